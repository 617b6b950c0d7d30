//! Connections whose last response is out: each is kept for a moment, so that its client can read that.
//!
//! A socket that is closed while bytes lie unread in it resets the connection, and what the client has not read yet may be lost to it
//! (RFC 9112 section 9.6).

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv};

/// Connections that are kept at a time.
const MOST: usize = 64;
/// How long each is kept.
const PATIENCE: Duration = Duration::from_secs(1);

/// The connections that are kept, each since when. Nothing here waits for a client.
#[derive(Debug, Default)]
pub(super) struct Farewells(VecDeque<(TcpStream, Instant)>);

impl Farewells {
    /// Ends a connection on this side, and keeps it. When there are too many, the oldest is closed.
    pub(super) fn keep(&mut self, stream: TcpStream, now: Instant) {
        if stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((stream, now));
    }

    /// Reads what has come. Closes the connections that their clients have ended, too, and those that were kept long enough.
    pub(super) fn read(&mut self, now: Instant) {
        self.0.retain(|(stream, since)| {
            let has_more = read_some(stream);
            has_more && now.saturating_duration_since(*since) < PATIENCE
        });
    }
}

/// Reads up to 64 KiB of what is there, and forgets it. False at the end of the stream.
fn read_some(stream: &TcpStream) -> bool {
    let mut bytes = [0; 4096];
    for _ in 0..16 {
        match recv(stream.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return true,
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    /// Longer than any test waits for what comes.
    const LONG: Duration = Duration::from_secs(30);

    /// The client's end and the server's.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let (stream, _) = listener.accept().unwrap();
        (client, stream)
    }

    #[test]
    fn a_client_reads_to_the_end_and_is_read_to_its_end() {
        let (mut farewells, now) = (Farewells::default(), Instant::now());
        let (mut client, mut stream) = connection();
        // More than is read at once.
        client.write_all(&[b'x'; 10_000]).unwrap();
        stream.write_all(b"come back").unwrap();
        farewells.keep(stream, now);
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert_eq!(told, "come back");
        for _ in 0..10 {
            farewells.read(now);
        }
        assert_eq!(farewells.0.len(), 1, "the client may send more");
        client.shutdown(Shutdown::Write).unwrap();
        let began = Instant::now();
        while !farewells.0.is_empty() {
            assert!(began.elapsed() < LONG, "its end is not seen");
            farewells.read(now);
        }
    }

    #[test]
    fn no_more_than_64_are_kept_and_none_longer_than_a_second() {
        let (mut farewells, now) = (Farewells::default(), Instant::now());
        let mut clients = Vec::new();
        for _ in 0..65 {
            let (client, stream) = connection();
            farewells.keep(stream, now);
            clients.push(client);
        }
        let first_kept = farewells.0[0].0.peer_addr().unwrap();
        assert_eq!(first_kept, clients[1].local_addr().unwrap());
        farewells.read(now + Duration::from_millis(999));
        assert_eq!(farewells.0.len(), 64);
        farewells.read(now + Duration::from_secs(1));
        assert!(farewells.0.is_empty());
    }
}
