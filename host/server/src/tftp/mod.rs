//! The TFTP server: RFC 1350 read requests with the options of RFC 2347, 2348, 2349 and 7440, and our own `slide`.
//!
//! ```text
//!   port 69 --RRQ--> listener --thread for each transfer--> socket of its own, connected to the client
//!                                                             |  Sender says which blocks
//!                                                             |  preadv() lays file bytes between room for headers
//!                                                             v  one send() of up to 64 packets (UDP_SEGMENT)
//! ```

mod admission;
pub(crate) mod events;
mod sender;
mod transfer;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wireboot_wire::text;
use wireboot_wire::tftp::{
    DEFAULT_BLOCK_SIZE, ErrorCode, Options, Packet, Request, TransferOptions,
};

use crate::directory::{Content, Directory, OpenError};
use crate::event::{Event, Events, Kind};
use crate::interface::Networks;
use crate::listen::{Listen, Path, is_transient};
use crate::stop::Stop;

use admission::{Claim, TransferSlots, Waiting};
pub(crate) use sender::{Action, Sender, Terms};

/// What the server needs to know.
#[derive(Clone, Debug)]
pub struct TftpConfig {
    /// Where to take requests.
    pub listen: Listen,
    /// Largest window granted, in blocks.
    pub max_window: u16,
    /// Whose clients are served: a forged request must not send a file's blocks to a host elsewhere. `None`: anyone's.
    pub networks: Option<Networks>,
}

/// A TFTP server that is bound to its port.
#[derive(Debug)]
pub struct TftpServer {
    socket: UdpSocket,
    config: TftpConfig,
    directory: Arc<Directory>,
    events: Events,
}

impl TftpServer {
    /// Binds the port.
    ///
    /// # Errors
    /// When the port is in use or needs a permission that is not there.
    pub fn bind(config: TftpConfig, directory: Arc<Directory>, events: Events) -> io::Result<Self> {
        Ok(Self {
            socket: config.listen.udp()?,
            config,
            directory,
            events,
        })
    }

    /// Where requests are taken.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub fn run(&self, stop: &Stop) -> io::Result<()> {
        self.socket.set_read_timeout(Some(Stop::CHECK_EVERY))?;
        let (slots, mut waiting) = (TransferSlots::default(), Waiting::default());
        let mut buffer = [0; 2048];
        while !stop.is_set() {
            while let Some((path, request)) = waiting.next(&slots, Instant::now()) {
                self.take(&request, path, &slots, &mut waiting, stop);
            }
            let received = self.config.listen.receive(&self.socket, &mut buffer);
            let (length, path) = match received {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            let datagram = buffer.get(..length).unwrap_or_default();
            let networks = self.config.networks.as_ref();
            if networks.is_none_or(|networks| networks.contain(path.client.ip())) {
                self.take(datagram, path, &slots, &mut waiting, stop);
            }
        }
        Ok(())
    }

    fn take(
        &self,
        datagram: &[u8],
        path: Path,
        slots: &TransferSlots,
        waiting: &mut Waiting,
        stop: &Stop,
    ) {
        let client = path.client;
        let (request, file) = match answer(datagram, &self.directory) {
            TftpAnswer::Serve(request, file) => (request, file),
            TftpAnswer::Refuse { code, text, name } => {
                let mut packet = Vec::new();
                Packet::Error {
                    code,
                    text: text.as_bytes(),
                }
                .emit(&mut packet);
                let _ = self.socket.send_to(&packet, client);
                self.events.record(
                    Event::now(Kind::TftpError, client.ip())
                        .file(&name)
                        .message(text),
                );
                return;
            }
            TftpAnswer::Ignore => return,
        };
        let name = text::shown(request.filename.as_bytes());
        // A request repeated from the same port is for the transfer that already runs.
        let slot = match slots.claim(client, Instant::now()) {
            Claim::Granted(slot) => slot,
            Claim::Repeated => return,
            Claim::Full => return waiting.push(path, datagram),
        };
        let job = transfer::Job {
            path,
            asked: TransferOptions::from_request(request.options),
            max_window: self.config.max_window,
            file,
            name,
            events: self.events.clone(),
            stop: stop.clone(),
        };
        let events = self.events.clone();
        let spawned = std::thread::Builder::new()
            .name("tftp".to_owned())
            .spawn(move || job.run(&slot));
        if let Err(error) = spawned {
            events.record(
                Event::now(Kind::TftpError, client.ip())
                    .message(format!("no thread for the transfer: {error}")),
            );
        }
    }
}

/// What a datagram to the server's port deserves.
#[derive(Debug)]
pub(crate) enum TftpAnswer<'a> {
    /// A transfer of this file.
    Serve(Request<'a>, Content),
    /// An ERROR packet.
    Refuse {
        code: ErrorCode,
        text: String,
        name: String,
    },
    /// Nothing: to answer what is no request could make two servers talk to each other for ever.
    Ignore,
}

/// Judges a datagram to the server's port.
pub(crate) fn answer<'a>(datagram: &'a [u8], directory: &Directory) -> TftpAnswer<'a> {
    let refuse = |code, text: &dyn ToString, name: &str| TftpAnswer::Refuse {
        code,
        text: text.to_string(),
        name: text::shown(name.as_bytes()),
    };
    match Packet::parse(datagram) {
        Ok(Packet::Wrq(request)) => refuse(
            ErrorCode::ACCESS,
            &"this server only reads",
            request.filename,
        ),
        Ok(Packet::Rrq(request)) => {
            // Boot files are bytes: who asks for netascii gets them as they are, too.
            if !["octet", "netascii"]
                .iter()
                .any(|mode| request.mode.eq_ignore_ascii_case(mode))
            {
                return refuse(
                    ErrorCode::ILLEGAL,
                    &"the mode must be octet",
                    request.filename,
                );
            }
            match directory.find(request.filename) {
                Ok(file) => TftpAnswer::Serve(request, file),
                Err(error) => {
                    let code = match error {
                        OpenError::NotFound => ErrorCode::NOT_FOUND,
                        OpenError::Outside | OpenError::Denied | OpenError::NotAFile => {
                            ErrorCode::ACCESS
                        }
                        OpenError::Io(_) => ErrorCode::UNDEFINED,
                    };
                    refuse(code, &error, request.filename)
                }
            }
        }
        _ => TftpAnswer::Ignore,
    }
}

/// The terms of a transfer and the options that are acknowledged, from what was asked and what the path and the server take.
pub(crate) fn agree(
    asked: TransferOptions,
    size: u64,
    max_block_size: u16,
    max_window: u16,
) -> (Terms, TransferOptions) {
    let window = asked
        .window_size
        .map(|wanted| wanted.min(max_window.max(1)));
    let granted = TransferOptions {
        block_size: asked.block_size.map(|wanted| wanted.min(max_block_size)),
        window_size: window,
        transfer_size: asked.transfer_size.map(|_| size),
        timeout: asked.timeout,
        // At least two in a window: while one is on its way to us, the client has the other coming.
        slide: asked.slide.zip(window).and_then(|(wanted, window)| {
            let most = 1 << (window / 2).checked_ilog2()?;
            Some(wanted.min(most))
        }),
        variable_window: None,
    };
    let terms = Terms {
        block_size: granted.block_size.unwrap_or(DEFAULT_BLOCK_SIZE),
        window: window.unwrap_or(1),
        slide: granted.slide,
        size,
        timeout: granted
            .timeout
            .map(|seconds| Duration::from_secs(seconds.into())),
        options: !granted.is_empty(),
    };
    (terms, granted)
}

/// The OACK packet for the granted options.
pub(crate) fn acknowledgement(granted: TransferOptions) -> Vec<u8> {
    let mut pairs = Vec::new();
    granted.emit(&mut pairs);
    let mut packet = Vec::new();
    Packet::Oack(Options::new(&pairs)).emit(&mut packet);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Console;
    use std::net::{Ipv4Addr, SocketAddrV4};

    #[test]
    fn a_window_slides_over_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..100_500u32).map(|i| (i / 7) as u8).collect();
        std::fs::write(folder.path().join("file"), &content).unwrap();
        let config = TftpConfig {
            listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into(),
            max_window: 512,
            networks: None,
        };
        let directory = Arc::new(Directory::open(folder.path(), None).unwrap());
        let events = Events::new(Console::Silent, None);
        let server = TftpServer::bind(config, directory, events).unwrap();
        let address = server.local_addr().unwrap();
        let stop = Stop::default();
        let flag = stop.clone();
        let serving = std::thread::spawn(move || server.run(&flag).unwrap());

        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // With its timeout, the server sends nothing twice unless told to go back.
        let request =
            b"\0\x01file\0octet\0blksize\x001000\0windowsize\x008\0timeout\x00255\0slide\x004\0";
        client.send_to(request, address).unwrap();
        let mut packet = [0; 2048];
        let (length, peer) = client.recv_from(&mut packet).unwrap();
        assert_eq!(
            &packet[..length],
            b"\0\x06blksize\x001000\0windowsize\x008\0timeout\x00255\0slide\x004\0"
        );
        client.send_to(&wireboot_wire::tftp::ack(0), peer).unwrap();
        let mut received = Vec::new();
        for expected in 1..=101 {
            let length = client.recv(&mut packet).unwrap();
            let Ok(Packet::Data { block, payload }) = Packet::parse(&packet[..length]) else {
                panic!("{:?}", &packet[..length]);
            };
            assert_eq!(block, expected);
            received.extend_from_slice(payload);
            if block % 4 == 0 || payload.len() < 1000 {
                client
                    .send_to(&wireboot_wire::tftp::ack(block), peer)
                    .unwrap();
            }
        }
        assert!(received == content);
        stop.set();
        serving.join().unwrap();
    }

    #[test]
    fn a_slide_is_granted_with_a_window_and_fits_it_twice() {
        for (window, slide, granted) in [
            (Some(256), Some(128), Some(128)),
            (Some(256), Some(16), Some(16)),
            (Some(256), Some(256), Some(128)),
            (Some(40_000), Some(32_768), Some(128)),
            (Some(7), Some(128), Some(2)),
            (Some(2), Some(1), Some(1)),
            (Some(1), Some(1), None),
            (None, Some(1), None),
            (Some(256), None, None),
        ] {
            let asked = TransferOptions {
                window_size: window,
                slide,
                ..TransferOptions::default()
            };
            let (terms, answer) = agree(asked, 1000, 1468, 256);
            assert_eq!((terms.slide, answer.slide), (granted, granted), "{asked:?}");
        }
    }

    #[test]
    fn what_is_no_request_is_not_answered() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "text").unwrap();
        let directory = Directory::open(folder.path(), None).unwrap();
        for datagram in [
            b"".as_slice(),
            b"\0",
            b"\0\x01",
            b"\0\x01file",
            b"\0\x03\0\x01data",
            b"\0\x04\0\x01",
            b"\0\x05\0\x01an error\0",
            b"\0\x06blksize\x001000\0",
            b"\0\x07\0\x01",
            b"\x01\0file\0octet\0",
        ] {
            let answer = answer(datagram, &directory);
            assert!(
                matches!(answer, TftpAnswer::Ignore),
                "{datagram:?}: {answer:?}"
            );
        }
        let request = answer(b"\0\x01file\0octet\0", &directory);
        assert!(matches!(request, TftpAnswer::Serve(..)), "{request:?}");
    }

    #[test]
    fn a_block_fits_the_path_and_is_no_larger_than_asked() {
        for (wanted, granted) in [(65_464, 1448), (1449, 1448), (1448, 1448), (512, 512)] {
            let asked = TransferOptions {
                block_size: Some(wanted),
                ..TransferOptions::default()
            };
            let (terms, answer) = agree(asked, 1000, 1448, 8);
            assert_eq!(
                (terms.block_size, answer.block_size),
                (granted, Some(granted))
            );
        }
        let (terms, answer) = agree(TransferOptions::default(), 1000, 1448, 8);
        assert_eq!((terms.block_size, answer.block_size), (512, None));
    }

    /// Its address may be forged: an answer would go to somebody who never asked.
    #[test]
    fn a_request_from_beyond_the_networks_is_not_answered() {
        let folder = tempfile::tempdir().unwrap();
        let here = Ipv4Addr::new(127, 0, 0, 2);
        let config = TftpConfig {
            listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into(),
            max_window: 8,
            networks: Some(vec![(here.into(), 32)].into()),
        };
        let directory = Arc::new(Directory::open(folder.path(), None).unwrap());
        let server = TftpServer::bind(config, directory, Events::default()).unwrap();
        let address = server.local_addr().unwrap();
        let stop = Stop::default();
        let flag = stop.clone();
        let serving = std::thread::spawn(move || server.run(&flag).unwrap());
        let clients = [Ipv4Addr::LOCALHOST, here].map(|ip| UdpSocket::bind((ip, 0)).unwrap());
        for client in &clients {
            client.send_to(b"\0\x01nothing\0octet\0", address).unwrap();
        }
        let [beyond, inside] = clients;
        inside
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut packet = [0; 100];
        inside.recv_from(&mut packet).unwrap();
        // Requests are refused in the order in which they come.
        beyond.set_nonblocking(true).unwrap();
        assert!(beyond.recv_from(&mut packet).is_err());
        stop.set();
        serving.join().unwrap();
    }

    /// The client asks again because the answer was lost on its way. Both requests are for the same transfer.
    #[test]
    fn a_repeated_request_starts_no_second_transfer() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), [7; 1000]).unwrap();
        let config = TftpConfig {
            listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into(),
            max_window: 8,
            networks: None,
        };
        let directory = Arc::new(Directory::open(folder.path(), None).unwrap());
        let server = TftpServer::bind(config, directory, Events::default()).unwrap();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let (slots, stop) = (TransferSlots::default(), Stop::default());
        let path = Path {
            client: client.local_addr().unwrap(),
            local: (Ipv4Addr::LOCALHOST, 0).into(),
        };
        for _ in 0..2 {
            let request = b"\0\x01file\0octet\0timeout\x00255\0";
            server.take(request, path, &slots, &mut Waiting::default(), &stop);
        }
        let mut packet = [0; 2048];
        let (_, transfer) = client.recv_from(&mut packet).unwrap();
        // Each transfer would answer from a port of its own: once the first is over, nothing may be left to come.
        client.send_to(b"\0\x05\0\0enough\0", transfer).unwrap();
        while matches!(slots.claim(path.client, Instant::now()), Claim::Repeated) {
            std::thread::sleep(Duration::from_millis(5));
        }
        client.set_nonblocking(true).unwrap();
        assert!(client.recv_from(&mut packet).is_err());
    }
}
