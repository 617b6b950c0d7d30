//! Where the machine's TCP sends to: takes all, keeps nothing, and closes when the machine does.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use wireboot_server::stop::Stop;

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Most bytes that are taken at once.
const BYTES: usize = 1 << 20;

/// Listens.
///
/// # Errors
/// When the port is taken.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).context("opening the sink's port")?;
    listener
        .set_nonblocking(true)
        .context("limiting the sink's waits")?;
    Ok(listener)
}

/// Takes one connection after the other, until it is to stop.
pub(super) fn serve(listener: &TcpListener, stop: &Stop) {
    while !stop.is_set() {
        match listener.accept() {
            Ok((stream, machine)) => match take(&stream, stop) {
                Ok(bytes) => log::debug!("{bytes} bytes from {machine}"),
                Err(error) => log::warn!("the sink, from {machine}: {error:#}"),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK / 10),
            Err(error) => {
                log::warn!("the sink: {error}");
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// Takes what comes until its end; how much that was.
fn take(stream: &TcpStream, stop: &Stop) -> Result<u64> {
    // Accepted sockets may have inherited it.
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    let mut place = vec![0; BYTES];
    let mut bytes = 0;
    while !stop.is_set() {
        // TCP throws away what it would copy with MSG_TRUNC (tcp(7)): the machine is measured, not this.
        match recv(stream.as_raw_fd(), &mut place, MsgFlags::MSG_TRUNC) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error).context("receiving"),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    #[test]
    fn all_is_taken_and_the_end_is_answered() {
        for address in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let listener = listen((address, 0).into()).unwrap();
            let at = listener.local_addr().unwrap();
            let stop = Stop::default();
            std::thread::scope(|scope| {
                scope.spawn(|| serve(&listener, &stop));
                // More than one, and more than the sockets hold.
                for bytes in [0, 8 << 20] {
                    let mut stream = TcpStream::connect(at).unwrap();
                    stream.write_all(&vec![7; bytes]).unwrap();
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                    stream
                        .set_read_timeout(Some(Duration::from_secs(60)))
                        .unwrap();
                    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
                }
                stop.set();
            });
        }
    }

    #[test]
    fn what_came_is_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut machine = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        machine.write_all(&[7; 12_345]).unwrap();
        drop(machine);
        assert_eq!(take(&stream, &Stop::default()).unwrap(), 12_345);
    }
}
