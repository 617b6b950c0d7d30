//! The TFTP server: RFC 1350 read requests with the options of RFC 2347, 2348, 2349 and 7440, and our own `slide`.
//!
//! ```text
//!   port 69 --RRQ--> listener: admission --thread for each transfer--> file, and a socket of its own, connected to the client
//!                                                                        |  Sender says which blocks
//!                                                                        |  preadv() lays file bytes between room for headers
//!                                                                        v  one send() of up to 64 packets (UDP_SEGMENT)
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

pub(crate) use admission::ABANDONED_AFTER;
use admission::{Claim, TransferSlot, TransferSlots, Waiting};
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
    service: Arc<Service>,
}

/// What the listener shares with the threads of the transfers.
#[derive(Debug)]
struct Service {
    socket: UdpSocket,
    config: TftpConfig,
    directory: Arc<Directory>,
    events: Events,
}

impl TftpServer {
    /// Binds the port of the configuration.
    ///
    /// # Errors
    /// When the port is in use or needs a permission that is not there.
    pub fn bind(config: TftpConfig, directory: Arc<Directory>, events: Events) -> io::Result<Self> {
        let service = Service {
            socket: config.listen.udp()?,
            config,
            directory,
            events,
        };
        Ok(Self {
            service: Arc::new(service),
        })
    }

    /// Where requests are taken.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.service.socket.local_addr()
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub fn run(&self, stop: &Stop) -> io::Result<()> {
        let Service { socket, config, .. } = &*self.service;
        socket.set_read_timeout(Some(Stop::CHECK_EVERY))?;
        let (slots, mut waiting) = (TransferSlots::default(), Waiting::default());
        let mut buffer = [0; 2048];
        while !stop.is_set() {
            self.admit(&slots, &mut waiting, stop);
            let (length, path) = match config.listen.receive(socket, &mut buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            let datagram = buffer.get(..length).unwrap_or_default();
            let networks = config.networks.as_ref();
            if networks.is_none_or(|networks| networks.contain(path.client.ip())) {
                self.take(datagram, path, &slots, &mut waiting);
            }
        }
        Ok(())
    }

    /// Refuses at once what is no read. A read waits for a slot, if only for a moment: a slot that has come free may be another's.
    fn take(&self, datagram: &[u8], path: Path, slots: &TransferSlots, waiting: &mut Waiting) {
        match requested(datagram) {
            // A request from the same port is for the transfer that already runs.
            Some(Ok(_)) if slots.tell(path, datagram, Instant::now()) => {}
            Some(Ok(_)) => waiting.push(path, datagram),
            Some(Err(refusal)) => self.service.refuse(path, refusal),
            None => {}
        }
    }

    /// Begins the transfers that there are slots for.
    fn admit(&self, slots: &TransferSlots, waiting: &mut Waiting, stop: &Stop) {
        while let Some((path, datagram)) = waiting.next(slots, Instant::now()) {
            if let Some(Ok(request)) = requested(&datagram)
                && let Claim::Granted(slot) = slots.claim(path.client)
            {
                self.begin(request, path, slot, stop);
            }
        }
    }

    /// The file may be on a slow disk, or has to be made: it is for the thread of the transfer.
    fn begin(&self, request: Request<'_>, path: Path, slot: TransferSlot, stop: &Stop) {
        let admitted = Admitted {
            service: self.service.clone(),
            path,
            slot,
            filename: request.filename.to_owned(),
            asked: TransferOptions::from_request(request.options),
            stop: stop.clone(),
        };
        let spawned = std::thread::Builder::new()
            .name("tftp".to_owned())
            .spawn(move || admitted.serve());
        if let Err(error) = spawned {
            self.service.events.record(
                Event::now(Kind::TftpError, path.client.ip())
                    .message(format!("no thread for the transfer: {error}")),
            );
        }
    }
}

impl Service {
    /// Tells the client, from the address that it asked, why it gets no file.
    fn refuse(&self, path: Path, refusal: Refusal) {
        let Refusal { code, text, name } = refusal;
        let mut packet = Vec::new();
        Packet::Error {
            code,
            text: text.as_bytes(),
        }
        .emit(&mut packet);
        let _ = path.answer(&self.socket, &packet);
        self.events.record(
            Event::now(Kind::TftpError, path.client.ip())
                .file(&name)
                .message(text),
        );
    }
}

/// A read that has its slot.
struct Admitted {
    service: Arc<Service>,
    path: Path,
    slot: TransferSlot,
    filename: String,
    asked: TransferOptions,
    stop: Stop,
}

impl Admitted {
    /// Finds the file and sends it.
    fn serve(self) {
        let Self {
            service,
            path,
            slot,
            filename,
            asked,
            stop,
        } = self;
        let file = match find(&filename, &service.directory) {
            Ok(file) => file,
            Err(refusal) => {
                // Once it is told, the client may ask for another file from the same port.
                drop(slot);
                return service.refuse(path, refusal);
            }
        };
        slot.file_found(Instant::now());
        let job = transfer::Job {
            path,
            asked,
            max_window: service.config.max_window,
            file,
            name: text::shown(filename.as_bytes()),
            events: service.events.clone(),
            stop,
        };
        // The port of the server is not kept for as long as a transfer goes on.
        drop(service);
        job.run(&slot);
    }
}

/// Why a client gets no file.
#[derive(Debug)]
struct Refusal {
    code: ErrorCode,
    text: String,
    /// The file's name, fit to be shown.
    name: String,
}

impl Refusal {
    fn new(filename: &str, code: ErrorCode, text: impl ToString) -> Self {
        Self {
            code,
            text: text.to_string(),
            name: text::shown(filename.as_bytes()),
        }
    }
}

/// What a datagram to the server's port deserves.
#[derive(Debug)]
pub(crate) enum TftpAnswer<'a> {
    /// A transfer of this file.
    Serve(Request<'a>, Content),
    /// An ERROR packet with this code and text; `name` is the file's, for the log.
    Refuse {
        code: ErrorCode,
        text: String,
        name: String,
    },
    /// Nothing: to answer what is no request could make two servers talk to each other for ever.
    Ignore,
}

impl From<Refusal> for TftpAnswer<'_> {
    fn from(Refusal { code, text, name }: Refusal) -> Self {
        Self::Refuse { code, text, name }
    }
}

/// Judges a datagram to the server's port.
pub(crate) fn answer<'a>(datagram: &'a [u8], directory: &Directory) -> TftpAnswer<'a> {
    let Some(request) = requested(datagram) else {
        return TftpAnswer::Ignore;
    };
    let served = request.and_then(|request| {
        let file = find(request.filename, directory)?;
        Ok(TftpAnswer::Serve(request, file))
    });
    served.unwrap_or_else(TftpAnswer::from)
}

/// Whether a datagram asks for a file that there may be.
pub(crate) fn is_read(datagram: &[u8]) -> bool {
    matches!(requested(datagram), Some(Ok(_)))
}

/// The read that a datagram asks for, or why it gets no file whatever there is. `None`: it gets no answer.
fn requested(datagram: &[u8]) -> Option<Result<Request<'_>, Refusal>> {
    match Packet::parse(datagram) {
        Ok(Packet::Wrq(request)) => {
            let text = "this server only reads";
            Some(Err(Refusal::new(request.filename, ErrorCode::ACCESS, text)))
        }
        Ok(Packet::Rrq(request)) => {
            // Boot files are bytes: who asks for netascii gets them as they are, too.
            let is_known = ["octet", "netascii"]
                .iter()
                .any(|mode| request.mode.eq_ignore_ascii_case(mode));
            let illegal = || {
                let text = "the mode must be octet";
                Refusal::new(request.filename, ErrorCode::ILLEGAL, text)
            };
            Some(is_known.then_some(request).ok_or_else(illegal))
        }
        _ => None,
    }
}

/// The file that a client named.
fn find(filename: &str, directory: &Directory) -> Result<Content, Refusal> {
    directory.find(filename).map_err(|error| {
        let code = match error {
            OpenError::NotFound => ErrorCode::NOT_FOUND,
            OpenError::Outside | OpenError::Denied | OpenError::NotAFile => ErrorCode::ACCESS,
            OpenError::Io(_) => ErrorCode::UNDEFINED,
        };
        Refusal::new(filename, code, error)
    })
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
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

    /// A server of what the folder holds.
    fn bound(listen: SocketAddr, folder: &std::path::Path, events: Events) -> TftpServer {
        let config = TftpConfig {
            listen: listen.into(),
            max_window: 8,
            networks: None,
        };
        let directory = Arc::new(Directory::open(folder, None).unwrap());
        TftpServer::bind(config, directory, events).unwrap()
    }

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
            client.send_to(b"\0\x02nothing\0octet\0", address).unwrap();
        }
        let [beyond, inside] = clients;
        inside
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut packet = [0; 100];
        inside.recv_from(&mut packet).unwrap();
        // Writes are refused by the listener itself, in the order in which they come.
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
        let mut waiting = Waiting::default();
        let path = Path {
            client: client.local_addr().unwrap(),
            local: (Ipv4Addr::LOCALHOST, 0).into(),
        };
        for _ in 0..2 {
            let request = b"\0\x01file\0octet\0timeout\x00255\0";
            server.take(request, path, &slots, &mut waiting);
            server.admit(&slots, &mut waiting, &stop);
        }
        let mut packet = [0; 2048];
        let (_, transfer) = client.recv_from(&mut packet).unwrap();
        // Each transfer would answer from a port of its own: once the first is over, nothing may be left to come.
        client.send_to(b"\0\x05\0\0enough\0", transfer).unwrap();
        while matches!(slots.claim(path.client), Claim::Repeated) {
            std::thread::sleep(Duration::from_millis(5));
        }
        client.set_nonblocking(true).unwrap();
        assert!(client.recv_from(&mut packet).is_err());
    }

    #[test]
    fn a_file_is_looked_for_once_there_is_a_slot() {
        let folder = tempfile::tempdir().unwrap();
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let server = bound(listen, folder.path(), Events::default());
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let path = Path {
            client: client.local_addr().unwrap(),
            local: listen,
        };
        let (slots, stop) = (TransferSlots::default(), Stop::default());
        let mut waiting = Waiting::default();
        // All that the client's host may have.
        let taken: Vec<_> = (1..1000u16)
            .map_while(|port| {
                let other = (Ipv4Addr::LOCALHOST, port).into();
                match slots.claim(other) {
                    Claim::Granted(slot) => Some(slot),
                    _ => None,
                }
            })
            .collect();
        let request = b"\0\x01nothing\0octet\0";
        server.take(request, path, &slots, &mut waiting);
        server.admit(&slots, &mut waiting, &stop);
        let mut packet = [0; 100];
        client.set_nonblocking(true).unwrap();
        assert!(client.recv_from(&mut packet).is_err(), "it has to wait");
        client.set_nonblocking(false).unwrap();
        drop(taken);
        server.admit(&slots, &mut waiting, &stop);
        let (length, peer) = client.recv_from(&mut packet).unwrap();
        assert_eq!(peer, server.local_addr().unwrap());
        assert_eq!(
            &packet[..length],
            b"\0\x05\0\x01there is no such file here\0"
        );
        // It may go on to the next file at once.
        let next = slots.claim(path.client);
        assert!(matches!(next, Claim::Granted(_)), "{next:?}");
    }

    #[test]
    fn a_slot_that_comes_free_is_for_who_waits() {
        let folder = tempfile::tempdir().unwrap();
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let server = bound(listen, folder.path(), Events::default());
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let (slots, stop) = (TransferSlots::default(), Stop::default());
        let mut waiting = Waiting::default();
        let of_greedy_host =
            |host: u8, port: u16| SocketAddr::from((Ipv4Addr::new(127, 0, 1, host), port));
        let mut taken = Vec::new();
        for n in 0..512u16 {
            match slots.claim(of_greedy_host((n / 128) as u8, 1 + n)) {
                Claim::Granted(slot) => taken.push(slot),
                other => panic!("{n}: {other:?}"),
            }
        }
        let mut asks = |client: SocketAddr| {
            let path = Path {
                client,
                local: listen,
            };
            server.take(b"\0\x01nothing\0octet\0", path, &slots, &mut waiting);
            server.admit(&slots, &mut waiting, &stop);
        };
        asks(client.local_addr().unwrap());
        taken.pop();
        // Its host has 127 slots, the client's none.
        asks(of_greedy_host(3, 999));
        let mut packet = [0; 100];
        let (length, _) = client.recv_from(&mut packet).unwrap();
        assert!(packet[..length].starts_with(b"\0\x05\0\x01"));
    }

    /// With a time-out that nothing is sent again after within a test.
    const READ: &[u8] = b"\0\x01file\0octet\0blksize\x008\0timeout\x00255\0";
    const OACK: &[u8] = b"\0\x06blksize\x008\0timeout\x00255\0";

    /// A transfer of a long file that has begun, and still goes on.
    struct Begun {
        client: UdpSocket,
        server: SocketAddr,
        /// The server's end of the transfer.
        transfer: SocketAddr,
        stop: Stop,
        serving: std::thread::JoinHandle<()>,
    }

    impl Begun {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("file"), [7; 100_000]).unwrap();
            let listen = (Ipv4Addr::LOCALHOST, 0).into();
            let server = bound(listen, folder.path(), Events::default());
            let address = server.local_addr().unwrap();
            let stop = Stop::default();
            let flag = stop.clone();
            let serving = std::thread::spawn(move || {
                // It goes when the server goes.
                let _folder = folder;
                server.run(&flag).unwrap();
            });
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            client.send_to(READ, address).unwrap();
            let mut packet = [0; 100];
            let (length, transfer) = client.recv_from(&mut packet).unwrap();
            assert_eq!(&packet[..length], OACK);
            let begun = Self {
                client,
                server: address,
                transfer,
                stop,
                serving,
            };
            begun.acknowledge(0);
            let (length, peer) = begun.client.recv_from(&mut packet).unwrap();
            assert_eq!((&packet[..4], length), (&b"\0\x03\0\x01"[..], 12));
            assert_eq!(peer, transfer);
            begun
        }

        /// Asks for the file, from the same port.
        fn ask(&self) {
            self.client.send_to(READ, self.server).unwrap();
        }

        fn acknowledge(&self, block: u16) {
            let ack = wireboot_wire::tftp::ack(block);
            self.client.send_to(&ack, self.transfer).unwrap();
        }

        fn end(self) {
            self.stop.set();
            self.serving.join().unwrap();
        }
    }

    /// It was reset in the middle of a transfer, and knows nothing of it.
    #[test]
    fn a_client_that_asks_anew_from_the_same_port_is_answered_soon() {
        let begun = Begun::new();
        begun.ask();
        let asked = Instant::now();
        let mut packet = [0; 100];
        // Until the transfer has ended, its blocks come.
        let length = loop {
            let (length, peer) = begun.client.recv_from(&mut packet).unwrap();
            assert!(asked.elapsed() < Duration::from_secs(10), "no answer");
            if peer != begun.transfer {
                break length;
            }
        };
        assert_eq!(&packet[..length], OACK);
        begun.end();
    }

    #[test]
    fn a_forged_request_ends_no_transfer_whose_client_goes_on() {
        // On a busy host this client itself may be silent for too long: then it begins anew.
        while !goes_on_beside_forged_requests() {}
    }

    /// False when the client was held up for so long that its transfer may have ended for that.
    fn goes_on_beside_forged_requests() -> bool {
        let begun = Begun::new();
        let began = Instant::now();
        let mut packet = [0; 100];
        let mut block = 1u16;
        let mut keeps_up = true;
        while keeps_up && began.elapsed() < Duration::from_secs(3) {
            let turn = Instant::now();
            begun.ask();
            begun.acknowledge(block);
            block += 1;
            // A block may come twice.
            while keeps_up && packet[2..4] != block.to_be_bytes() {
                let (_, peer) = begun.client.recv_from(&mut packet).unwrap();
                keeps_up = turn.elapsed() < Duration::from_millis(500);
                assert!(
                    peer == begun.transfer || !keeps_up,
                    "another transfer has begun"
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        begun.end();
        keeps_up
    }

    /// A client takes no answer from another address than it has asked, so none is sent there: the first one here is no address of this
    /// machine.
    #[test]
    fn a_refusal_leaves_from_the_address_that_was_asked() {
        let folder = tempfile::tempdir().unwrap();
        let log = tempfile::NamedTempFile::new().unwrap();
        let events = Events::new(Console::Silent, Some(log.reopen().unwrap()));
        let server = bound((Ipv6Addr::UNSPECIFIED, 0).into(), folder.path(), events);
        let client = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let (slots, stop) = (TransferSlots::default(), Stop::default());
        let mut waiting = Waiting::default();
        let elsewhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        // The listener refuses the write, the thread of a transfer the read.
        let requests = [b"\0\x02nothing\0octet\0", b"\0\x01nothing\0octet\0"];
        let mut refused = 0;
        for asked in [elsewhere, Ipv6Addr::LOCALHOST] {
            let path = Path {
                client: client.local_addr().unwrap(),
                local: (asked, 0).into(),
            };
            for request in requests {
                server.take(request, path, &slots, &mut waiting);
                server.admit(&slots, &mut waiting, &stop);
                refused += 1;
                // What is told has been sent before, or could not be.
                let told = || std::fs::read_to_string(log.path()).unwrap();
                let began = Instant::now();
                while told().lines().count() < refused {
                    assert!(began.elapsed() < Duration::from_secs(30), "{}", told());
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        let from = SocketAddr::from((Ipv6Addr::LOCALHOST, server.local_addr().unwrap().port()));
        let mut packet = [0; 100];
        for code in [ErrorCode::ACCESS, ErrorCode::NOT_FOUND] {
            let (length, peer) = client.recv_from(&mut packet).unwrap();
            let told = Packet::parse(&packet[..length]);
            let is_it = matches!(told, Ok(Packet::Error { code: its, .. }) if its == code);
            assert!(is_it && peer == from, "{peer}: {told:?}");
        }
        client.set_nonblocking(true).unwrap();
        assert!(client.recv_from(&mut packet).is_err());
    }
}
