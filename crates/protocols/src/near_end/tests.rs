//! Models of loaders that read by TFTP, on a link of which each frame can be seen.

use super::*;
use alloc::rc::Rc;
use core::cell::RefCell;
use proptest::prelude::*;
use smoltcp::wire::{EthernetFrame, Ipv4Packet, Ipv6Packet, UdpPacket};
use std::collections::VecDeque;
use std::string::ToString;
use std::vec;
use wireboot_net::Duration;
use wireboot_wire::tftp::{ErrorCode, Options, Packet, Request, TransferOptions, VariableWindow};

const LOADER: &str = "10.0.0.5:2000";
const SERVER: &str = "10.0.0.1";

/// What the engine and the wire are asked, and what they say.
struct World {
    now: Instant,
    progress: Progress,
    data: Vec<u8>,
    opened: Vec<String>,
    closed: usize,
    released: u64,
    /// Bytes that were released of the file that was closed last.
    served: u64,
    /// Frames that went to the wire.
    sent: Vec<Vec<u8>>,
    /// Frames that came from it.
    arrived: VecDeque<Vec<u8>>,
    full: bool,
    /// Reads from another address than this one, the engine's, are not its files.
    address: IpAddr,
}

/// The world, for files, link and test together.
type SharedWorld = Rc<RefCell<World>>;

fn whole(ready: u64) -> Progress {
    Progress {
        announced: Some(ready),
        ready,
        state: DownloadState::Whole,
    }
}

fn not_whole(ready: u64, state: DownloadState) -> Progress {
    Progress {
        announced: None,
        ready,
        state,
    }
}

fn coming(size: u64, ready: u64) -> Progress {
    Progress {
        announced: Some(size),
        ready,
        state: DownloadState::Coming,
    }
}

struct FakeFiles(SharedWorld);

impl Files for FakeFiles {
    type File = ();

    fn now(&self) -> Instant {
        self.0.borrow().now
    }

    fn open(&mut self, client: IpAddr, url: &Url) -> Option<()> {
        let mut world = self.0.borrow_mut();
        if client != world.address {
            return None;
        }
        world.opened.push(url.as_str().to_string());
        (!world.full).then_some(())
    }

    fn progress(&mut self, (): &()) -> Progress {
        self.0.borrow().progress.clone()
    }

    fn read(&self, (): &(), at: u64, to: &mut [u8]) -> usize {
        let world = self.0.borrow();
        assert!(at >= world.released, "what was released is gone");
        let bytes = world.data.get(at as usize..).unwrap_or_default();
        let count = bytes.len().min(to.len());
        to[..count].copy_from_slice(&bytes[..count]);
        count
    }

    fn release(&mut self, (): &(), at: u64) {
        let mut world = self.0.borrow_mut();
        world.released = world.released.max(at);
    }

    fn close(&mut self, (): ()) {
        let mut world = self.0.borrow_mut();
        world.closed += 1;
        world.served = world.released.min(world.data.len() as u64);
        world.released = 0;
    }
}

struct FakeLink(SharedWorld, Vec<u8>);

impl Link for FakeLink {
    fn set_up(&mut self, _: bool) {}

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        self.0.borrow_mut().sent.push([header, payload].concat());
        true
    }

    fn peek(&mut self) -> Option<&[u8]> {
        self.1 = self.0.borrow().arrived.front()?.clone();
        Some(&self.1)
    }

    fn skip(&mut self) {
        self.0.borrow_mut().arrived.pop_front();
    }
}

/// A loader, and what it is on.
struct Loader {
    near: NearEnd<FakeLink, FakeFiles>,
    world: SharedWorld,
    us: SocketAddr,
    server: IpAddr,
}

impl Loader {
    fn new(us: &str, server: &str, data: Vec<u8>) -> Self {
        let us: SocketAddr = us.parse().unwrap();
        let world = Rc::new(RefCell::new(World {
            now: Instant::ZERO,
            progress: whole(data.len() as u64),
            data,
            opened: Vec::new(),
            closed: 0,
            released: 0,
            served: 0,
            sent: Vec::new(),
            arrived: VecDeque::new(),
            full: false,
            address: us.ip(),
        }));
        let link = FakeLink(world.clone(), Vec::new());
        Self {
            near: NearEnd::new(link, FakeFiles(world.clone()), 1514, [3; 32]),
            world,
            us,
            server: server.parse().unwrap(),
        }
    }

    fn with(data: Vec<u8>) -> Self {
        Self::new(LOADER, SERVER, data)
    }

    fn send(&mut self, port: u16, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        self.send_bytes(port, &bytes);
    }

    fn send_bytes(&mut self, port: u16, bytes: &[u8]) {
        let kind: [u8; 2] = if self.server.is_ipv4() {
            [8, 0]
        } else {
            [0x86, 0xdd]
        };
        let mut back = [2; 14];
        back[6..12].fill(4);
        back[12..].copy_from_slice(&kind);
        let to = SocketAddr::new(self.server, port);
        let frame = datagram::answer(
            &mut Frames::default(),
            &back,
            self.us,
            to,
            bytes.len(),
            |place| {
                place.copy_from_slice(bytes);
            },
        );
        let (header, payload) = frame.split_first_chunk().unwrap();
        assert!(self.near.send(header, payload));
    }

    fn ask(&mut self, file: &str, mode: &str, options: &TransferOptions) {
        let mut bytes = Vec::new();
        options.emit(&mut bytes);
        let request = Request {
            filename: file,
            mode,
            options: Options::new(&bytes),
        };
        self.send(tftp::PORT, &Packet::Rrq(request));
    }

    /// The next datagram for the loader, which smoltcp finds right: the port it is from, and its payload.
    fn receive(&mut self) -> Option<(u16, Vec<u8>)> {
        let frame = self.near.peek()?.to_vec();
        self.near.skip();
        assert!(frame.len() <= 1514);
        let frame = EthernetFrame::new_checked(&frame[..]).unwrap();
        assert_eq!(frame.src_addr().as_bytes(), [4; 6]);
        assert_eq!(frame.dst_addr().as_bytes(), [2; 6]);
        let (ends, udp) = match self.server {
            IpAddr::V4(_) => {
                let ip = Ipv4Packet::new_checked(frame.payload()).unwrap();
                assert!(ip.verify_checksum());
                let ends: (IpAddr, IpAddr) = (ip.src_addr().into(), ip.dst_addr().into());
                (ends, ip.payload())
            }
            IpAddr::V6(_) => {
                let ip = Ipv6Packet::new_checked(frame.payload()).unwrap();
                let ends: (IpAddr, IpAddr) = (ip.src_addr().into(), ip.dst_addr().into());
                (ends, ip.payload())
            }
        };
        assert_eq!(ends, (self.server, self.us.ip()));
        let udp = UdpPacket::new_checked(udp).unwrap();
        assert!(udp.verify_checksum(&ends.0.into(), &ends.1.into()));
        if self.server.is_ipv6() {
            assert_ne!(udp.checksum(), 0, "RFC 8200, section 8.1");
        }
        assert_eq!(udp.dst_port(), self.us.port());
        Some((udp.src_port(), udp.payload().to_vec()))
    }

    fn advance(&mut self, millis: u64) {
        self.world.borrow_mut().now += Duration::from_millis(millis);
    }

    /// Reads a file as RFC 1350 and 7440 say, losing the frames that `loses` picks. Returns the file and the size it was told.
    fn read(
        &mut self,
        options: &TransferOptions,
        mut loses: impl FnMut() -> bool,
    ) -> (Vec<u8>, Option<u64>) {
        self.ask("file", "octet", options);
        let (mut block_size, mut window) = (512, 1);
        let (mut file, mut size, mut next, mut port) = (Vec::new(), None, 1_u16, 0);
        let mut since = 0;
        let mut idle = 0;
        loop {
            let Some((from, bytes)) = self.receive() else {
                // Timed out: says again how far it is.
                self.advance(400);
                idle += 1;
                assert!(idle < 200, "nothing comes any more, at {next}");
                if port != 0 && idle % 2 == 0 {
                    let block = next.wrapping_sub(1);
                    self.send(port, &Packet::Ack { block });
                }
                continue;
            };
            if loses() {
                continue;
            }
            port = from;
            match Packet::parse(&bytes).unwrap() {
                Packet::Oack(granted) => {
                    let granted = TransferOptions::from_acknowledgement(granted).unwrap();
                    block_size = granted.block_size.unwrap_or(512);
                    window = granted.window_size.unwrap_or(1);
                    size = granted.transfer_size;
                    self.send(port, &Packet::Ack { block: 0 });
                }
                Packet::Data { block, payload } if block == next => {
                    idle = 0;
                    file.extend(payload);
                    next = next.wrapping_add(1);
                    since += 1;
                    let last = payload.len() < block_size.into();
                    if last || since >= window {
                        since = 0;
                        self.send(port, &Packet::Ack { block });
                    }
                    if last {
                        return (file, size);
                    }
                }
                Packet::Data { .. } => {
                    since = 0;
                    let block = next.wrapping_sub(1);
                    self.send(port, &Packet::Ack { block });
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// As GRUB asks.
fn grub() -> TransferOptions {
    TransferOptions {
        block_size: Some(1024),
        transfer_size: Some(0),
        ..TransferOptions::default()
    }
}

#[test]
fn a_file_is_read_without_a_frame_on_the_wire() {
    for (us, server, url) in [
        (LOADER, SERVER, "tftp://10.0.0.1/file"),
        ("[fd00::5]:2000", "fd00::1", "tftp://[fd00::1]/file"),
    ] {
        for len in [0, 1, 1023, 1024, 1025, 100_000] {
            let mut loader = Loader::new(us, server, bytes(len));
            let (file, size) = loader.read(&grub(), || false);
            assert!(file == bytes(len), "{len}");
            assert_eq!(size, Some(len as u64));
            assert!(loader.receive().is_none());
            let world = loader.world.borrow();
            assert_eq!(world.opened, [url]);
            assert_eq!((world.closed, world.sent.len()), (1, 0));
            assert_eq!(world.served, len as u64, "all is counted");
        }
    }
}

/// RFC 2347: without options there is no acknowledgement of any.
#[test]
fn a_loader_that_knows_no_options_gets_none() {
    let mut loader = Loader::with(bytes(1000));
    loader.ask("file", "OCTET", &TransferOptions::default());
    let (_, first) = loader.receive().unwrap();
    let payload = &bytes(512)[..];
    assert_eq!(
        Packet::parse(&first),
        Ok(Packet::Data { block: 1, payload })
    );
    assert!(loader.receive().is_none(), "lock-step");
    assert_eq!(
        Loader::with(bytes(1000))
            .read(&TransferOptions::default(), || false)
            .0,
        bytes(1000)
    );
}

#[test]
fn options_are_granted_as_far_as_they_fit() {
    let granted = |server, us, wanted: TransferOptions| {
        let mut loader = Loader::new(us, server, bytes(10));
        loader.ask("file", "octet", &wanted);
        let (_, first) = loader.receive().unwrap();
        match Packet::parse(&first).unwrap() {
            Packet::Oack(options) => TransferOptions::from_acknowledgement(options).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let wanted = TransferOptions {
        block_size: Some(65464),
        window_size: Some(1000),
        transfer_size: Some(0),
        timeout: Some(3),
        slide: Some(4),
        variable_window: Some(VariableWindow::Asked),
    };
    // Blocks fit frames of 1514 bytes.
    let expected = TransferOptions {
        block_size: Some(1468),
        window_size: Some(64),
        transfer_size: Some(10),
        timeout: Some(3),
        slide: None,
        variable_window: None,
    };
    assert_eq!(granted(SERVER, LOADER, wanted), expected);
    let six = TransferOptions {
        block_size: Some(1448),
        ..expected
    };
    assert_eq!(granted("fd00::1", "[fd00::5]:2000", wanted), six);
}

#[test]
fn block_numbers_wrap() {
    let options = TransferOptions {
        block_size: Some(8),
        window_size: Some(16),
        ..TransferOptions::default()
    };
    let data = bytes(8 * 70_000 + 3);
    assert!(Loader::with(data.clone()).read(&options, || false).0 == data);
}

#[test]
fn blocks_come_as_the_file_does() {
    let mut loader = Loader::with(bytes(3000));
    let world = loader.world.clone();
    let set = |progress| world.borrow_mut().progress = progress;
    set(not_whole(0, DownloadState::Asked));
    loader.ask("file", "octet", &grub());
    // Repeated, it is still one.
    loader.ask("file", "octet", &grub());
    assert!(loader.receive().is_none());
    assert_eq!(world.borrow().opened.len(), 1);
    set(coming(3000, 1023));
    let (port, _) = loader.receive().unwrap();
    loader.send(port, &Packet::Ack { block: 0 });
    assert!(loader.receive().is_none());
    set(coming(3000, 3000));
    assert_eq!(loader.receive().unwrap().1.len(), 4 + 1024);
    loader.send(port, &Packet::Ack { block: 1 });
    assert_eq!(loader.receive().unwrap().1.len(), 4 + 1024);
    loader.send(port, &Packet::Ack { block: 2 });
    // Whether the rest is the last block, only the end of the file tells.
    assert!(loader.receive().is_none());
    set(whole(3000));
    assert_eq!(loader.receive().unwrap().1.len(), 4 + 952);
}

fn refused() -> DownloadState {
    DownloadState::Refused {
        code: 1,
        text: "no such file".to_string(),
    }
}

#[test]
fn a_servers_error_and_silence_arrive_as_they_are() {
    let mut loader = Loader::with(Vec::new());
    loader.world.borrow_mut().progress = not_whole(0, refused());
    loader.ask("file", "octet", &grub());
    let (_, error) = loader.receive().unwrap();
    let text = b"no such file";
    let expected = Packet::Error {
        code: ErrorCode::NOT_FOUND,
        text,
    };
    assert_eq!(Packet::parse(&error), Ok(expected));
    loader.world.borrow_mut().progress = not_whole(0, DownloadState::Silent);
    loader.ask("file", "octet", &grub());
    assert!(loader.receive().is_none());
    assert_eq!(loader.world.borrow().closed, 2);
}

#[test]
fn what_cannot_be_done_here_goes_to_the_wire_as_it_is() {
    let mut loader = Loader::with(bytes(10));
    loader.ask("file", "netascii", &grub());
    loader.send_bytes(tftp::PORT, b"\0\x02file\0octet\0");
    loader.send(69, &Packet::Ack { block: 0 });
    loader.send(3000, &Packet::Ack { block: 0 });
    loader.send_bytes(53, b"a question");
    loader.send_bytes(tftp::PORT, b"\0\x01file\0octet");
    let count = loader.world.borrow().sent.len();
    assert_eq!(count, 6);
    loader.ask("tftp://10.9.9.9/file", "octet", &grub());
    assert_eq!(loader.world.borrow_mut().sent.pop().map(|_| ()), Some(()));
    assert_eq!(loader.world.borrow().sent.len(), count);
    assert!(loader.world.borrow().opened.is_empty());
    // No memory, told at once or later.
    loader.world.borrow_mut().full = true;
    loader.ask("file", "octet", &grub());
    loader.world.borrow_mut().full = false;
    loader.world.borrow_mut().progress = not_whole(0, DownloadState::Asked);
    loader.ask("file", "octet", &grub());
    assert_eq!(loader.world.borrow().sent.len(), 7);
    loader.world.borrow_mut().progress = not_whole(0, DownloadState::ForTheWire);
    assert!(loader.receive().is_none());
    let world = loader.world.borrow();
    assert_eq!(world.sent.len(), 8);
    assert_eq!(world.sent[6], world.sent[7]);
    assert_eq!(world.closed, 1);
    let opened = world.opened.len();
    drop(world);
    // Said again it goes the same way; another one does not.
    loader.ask("file", "octet", &grub());
    assert_eq!(loader.world.borrow().sent.len(), 9);
    assert_eq!(loader.world.borrow().opened.len(), opened);
    loader.world.borrow_mut().full = true;
    loader.ask("other", "octet", &grub());
    assert_eq!(loader.world.borrow().opened.len(), opened + 1);
    // What is no UDP, in fragments, or no IP.
    for packet in [&[0x45, 0, 0, 20][..], &[], &[0xff; 60]] {
        for kind in [[8, 0], [0x86, 0xdd], [8, 6]] {
            let mut header = [2; 14];
            header[12..].copy_from_slice(&kind);
            loader.near.send(&header, packet);
        }
    }
    assert_eq!(loader.world.borrow().sent.len(), 19);
}

#[test]
fn a_loader_that_gives_up_or_goes_ends_its_transfer() {
    let mut loader = Loader::with(bytes(10_000));
    loader.ask("file", "octet", &grub());
    let (port, _) = loader.receive().unwrap();
    let text = b"";
    let code = ErrorCode::UNDEFINED;
    loader.send(port, &Packet::Error { code, text });
    assert_eq!(loader.world.borrow().closed, 1);
    assert!(loader.receive().is_none());
    // Silent: it is told again for half a minute.
    loader.ask("file", "octet", &grub());
    let mut told = 0;
    for _ in 0..40 {
        loader.advance(1000);
        while loader.receive().is_some() {
            told += 1;
        }
    }
    assert!((25..=31).contains(&told), "{told}");
    assert_eq!(loader.world.borrow().closed, 2);
    // Another transfer from the same port, in the middle of one.
    loader.ask("file", "octet", &grub());
    loader.ask("other", "octet", &grub());
    assert_eq!(loader.world.borrow().closed, 3);
    loader.near.set_up(false);
    assert_eq!(loader.world.borrow().closed, 4);
}

#[test]
fn so_many_transfers_and_no_more() {
    let mut loader = Loader::with(bytes(10));
    for port in 0..SESSIONS as u16 + 2 {
        loader.us.set_port(3000 + port);
        loader.ask("file", "octet", &grub());
    }
    assert_eq!(loader.world.borrow().sent.len(), 2);
}

/// RFC 7440, section 4: an acknowledgement within the window says where the gap is.
#[test]
fn a_window_goes_on_behind_what_was_acknowledged() {
    let options = TransferOptions {
        window_size: Some(4),
        ..TransferOptions::default()
    };
    let blocks = |loader: &mut Loader| -> Vec<u16> {
        let all = core::iter::from_fn(|| loader.receive());
        all.map(|(_, bytes)| u16::from_be_bytes([bytes[2], bytes[3]]))
            .collect()
    };
    let mut loader = Loader::with(bytes(512 * 20));
    loader.ask("file", "octet", &options);
    let (port, _) = loader.receive().unwrap();
    // Of no block, and none of the options.
    loader.send(port, &Packet::Ack { block: 5 });
    assert_eq!(blocks(&mut loader), []);
    loader.send(port, &Packet::Ack { block: 0 });
    assert_eq!(blocks(&mut loader), [1, 2, 3, 4]);
    loader.send(port, &Packet::Ack { block: 2 });
    assert_eq!(blocks(&mut loader), [3, 4, 5, 6]);
    loader.send(port, &Packet::Ack { block: 2 });
    assert_eq!(blocks(&mut loader), [3, 4, 5, 6]);
    // Of a block that has not been sent.
    loader.send(port, &Packet::Ack { block: 7 });
    assert_eq!(blocks(&mut loader), []);
    loader.send(port, &Packet::Ack { block: 6 });
    // Said again before it has seen what was sent for it.
    loader.send(port, &Packet::Ack { block: 6 });
    assert_eq!(blocks(&mut loader), [7, 8, 9, 10]);
    // In lock-step nothing is sent twice but after a time-out.
    let mut loader = Loader::with(bytes(2000));
    loader.ask("file", "octet", &TransferOptions::default());
    let (port, _) = loader.receive().unwrap();
    loader.send(port, &Packet::Ack { block: 1 });
    assert_eq!(blocks(&mut loader), [2]);
    loader.send(port, &Packet::Ack { block: 1 });
    assert_eq!(blocks(&mut loader), []);
    loader.advance(999);
    assert_eq!(blocks(&mut loader), []);
    loader.advance(1);
    assert_eq!(blocks(&mut loader), [2]);
}

#[test]
fn a_request_said_again_is_another_transfer_once_it_was_answered() {
    let mut loader = Loader::with(bytes(2000));
    loader.world.borrow_mut().progress = not_whole(0, DownloadState::Asked);
    loader.ask("file", "octet", &grub());
    loader.ask("file", "octet", &grub());
    assert_eq!(loader.world.borrow().closed, 0);
    loader.ask("other", "octet", &grub());
    assert_eq!(loader.world.borrow().closed, 1);
    loader.world.borrow_mut().progress = whole(2000);
    assert!(loader.receive().is_some());
    loader.ask("other", "octet", &grub());
    assert_eq!(loader.world.borrow().closed, 2);
    assert!(loader.receive().is_some());
}

#[test]
fn a_block_that_cannot_be_read_is_not_sent() {
    let mut loader = Loader::with(bytes(100));
    loader.world.borrow_mut().progress = whole(200);
    loader.ask("file", "octet", &TransferOptions::default());
    assert!(loader.receive().is_none());
}

#[test]
fn only_whole_datagrams_of_udp_are_looked_at() {
    let request = b"\0\x01file\0octet\0";
    for server in [SERVER, "fd00::1"] {
        let us = if server == SERVER {
            LOADER
        } else {
            "[fd00::5]:2000"
        };
        let mut loader = Loader::new(us, server, bytes(10));
        let to = SocketAddr::new(loader.server, 69);
        let kind: [u8; 2] = if loader.server.is_ipv4() {
            [8, 0]
        } else {
            [0x86, 0xdd]
        };
        let mut back = [2; 14];
        back[12..].copy_from_slice(&kind);
        let frame = datagram::answer(
            &mut Frames::default(),
            &back,
            loader.us,
            to,
            request.len(),
            |place| {
                place.copy_from_slice(request);
            },
        );
        // Of another protocol, a fragment of either kind, of another version, under another ethertype: the byte and its value.
        let changes: &[(usize, u8)] = match loader.server {
            IpAddr::V4(_) => &[(23, 6), (20, 0x20), (21, 1), (14, 0x65), (13, 6)],
            IpAddr::V6(_) => &[(20, 6), (14, 0x40), (13, 0xde)],
        };
        for (at, value) in changes {
            let mut frame = frame.clone();
            frame[*at] = *value;
            let (header, payload) = frame.split_first_chunk().unwrap();
            loader.near.send(header, payload);
            assert!(loader.world.borrow().opened.is_empty(), "{server}, {at}");
        }
        assert_eq!(loader.world.borrow().sent.len(), changes.len());
        let (header, payload) = frame.split_first_chunk().unwrap();
        loader.near.send(header, payload);
        assert_eq!(loader.world.borrow().opened.len(), 1);
    }
}

#[test]
fn transfers_side_by_side_are_told_apart() {
    let mut loader = Loader::with(bytes(2000));
    let mut ports = Vec::new();
    for port in [3000, 3001] {
        loader.us.set_port(port);
        loader.ask("file", "octet", &TransferOptions::default());
        ports.push(loader.receive().unwrap().0);
    }
    // The second acknowledges to the first one's port, then to its own.
    loader.send(ports[0], &Packet::Ack { block: 1 });
    assert!(loader.receive().is_none());
    assert_eq!(loader.world.borrow().sent.len(), 1);
    loader.send(ports[1], &Packet::Ack { block: 1 });
    assert_eq!(loader.receive().unwrap().0, ports[1]);
}

#[test]
fn frames_of_the_wire_come_behind_those_of_transfers() {
    let mut loader = Loader::with(bytes(10));
    loader.world.borrow_mut().arrived.push_back(vec![1, 2, 3]);
    loader.ask("file", "octet", &TransferOptions::default());
    assert!(loader.receive().is_some());
    assert_eq!(loader.near.peek(), Some(&[1, 2, 3][..]));
    loader.near.skip();
    assert_eq!(loader.near.peek(), None);
}

/// A frame of the wire's, from the server's address.
fn forged(loader: &Loader, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut back = [4; 14];
    back[6..12].fill(2);
    let kind: [u8; 2] = if loader.server.is_ipv4() {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    back[12..].copy_from_slice(&kind);
    let from = SocketAddr::new(loader.server, port);
    let len = payload.len();
    datagram::answer(
        &mut Frames::default(),
        &back,
        from,
        loader.us,
        len,
        |place| {
            place.copy_from_slice(payload);
        },
    )
}

/// The first fragment of the packet in a frame, of 256 bytes.
fn first_fragment(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame[12] == 8 {
        frame.truncate(14 + 20 + 256);
        let packet = &mut frame[14..];
        packet[2..4].copy_from_slice(&276_u16.to_be_bytes());
        packet[6] = 0x20;
        Ipv4Packet::new_unchecked(packet).fill_checksum();
    } else {
        frame.truncate(14 + 40 + 256);
        let packet = &mut frame[14..];
        packet[4..6].copy_from_slice(&264_u16.to_be_bytes());
        packet[6] = 44;
        let payload = frame.split_off(14 + 40);
        frame.extend([17, 0, 0, 1, 0, 0, 0, 9]);
        frame.extend(payload);
    }
    frame
}

/// RFC 1350, section 4: whoever knows both ports could put blocks into the file.
#[test]
fn what_the_wire_has_for_a_transfer_is_nobodys() {
    for (us, server, stranger) in [
        (LOADER, SERVER, "10.0.0.3"),
        ("[fd00::5]:2000", "fd00::1", "fd00::3"),
    ] {
        let mut loader = Loader::new(us, server, bytes(10_000));
        loader.ask("file", "octet", &TransferOptions::default());
        let (port, _) = loader.receive().unwrap();
        let block = [&[0, 3, 0, 2][..], &[7; 512]].concat();
        let whole = forged(&loader, port, &block);
        let cut = first_fragment(&whole);
        let of_another_port = forged(&loader, port ^ 1, &block);
        let all = [whole, cut, of_another_port];
        loader.world.borrow_mut().arrived.extend(all);
        assert!(loader.receive().is_none(), "{server}");
        assert!(loader.world.borrow().arrived.is_empty());
        // What is for another port or from somebody else is not the transfer's.
        let mut other = Loader::new(us, stranger, Vec::new());
        let of_a_stranger = forged(&other, port, &block);
        other.server = loader.server;
        other.us.set_port(2001);
        for frame in [of_a_stranger, forged(&other, port, &block)] {
            loader.world.borrow_mut().arrived.push_back(frame.clone());
            assert_eq!(loader.near.peek(), Some(&frame[..]));
            loader.near.skip();
        }
        // Afterwards the port is the loader's.
        let (code, text) = (ErrorCode::UNDEFINED, &b""[..]);
        loader.send(port, &Packet::Error { code, text });
        let late = forged(&loader, port, &block);
        loader.world.borrow_mut().arrived.push_back(late);
        assert!(loader.receive().is_some());
    }
}

/// Nobody can tell the next port by the last.
#[test]
fn transfers_come_from_ports_in_no_order() {
    let mut loader = Loader::with(bytes(10));
    let ports = [(); 4].map(|()| {
        loader.ask("file", "octet", &TransferOptions::default());
        loader.receive().unwrap().0
    });
    assert!(ports.iter().all(|port| *port >= 0xc000), "{ports:?}");
    let steps = [0_usize, 1, 2].map(|at| ports[at + 1].wrapping_sub(ports[at]));
    assert!(steps[0] != steps[1] || steps[1] != steps[2], "{ports:?}");
}

/// The engine has no such address, so its server would see another client.
#[test]
fn reads_from_another_address_go_to_the_wire() {
    let mut loader = Loader::with(bytes(10));
    loader.us = "10.0.0.9:2000".parse().unwrap();
    loader.ask("file", "octet", &grub());
    let world = loader.world.borrow();
    assert_eq!((world.opened.len(), world.sent.len()), (0, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Loaders lose frames where their buffers are full.
    #[test]
    fn a_loader_that_loses_frames_gets_the_file(
        len in 0_usize..40_000,
        block_size in prop::option::of(100_u16..1468),
        window_size in prop::option::of(1_u16..40),
        seed: u64,
    ) {
        let options = TransferOptions { block_size, window_size, ..TransferOptions::default() };
        let mut state = seed | 1;
        let loses = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 60) == 0
        };
        let mut loader = Loader::with(bytes(len));
        prop_assert!(loader.read(&options, loses).0 == bytes(len));
        prop_assert_eq!(loader.world.borrow().sent.len(), 0);
    }

    #[test]
    fn any_packets_do_no_harm(packets in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 0..20)) {
        let mut loader = Loader::with(bytes(5000));
        loader.ask("file", "octet", &grub());
        let (port, _) = loader.receive().unwrap();
        for (to_port, bytes) in packets {
            loader.send_bytes(if to_port { port } else { 69 }, &bytes);
            while loader.receive().is_some() {}
        }
    }
}

/// RFC 2349: the time-out that was granted is the one that the server keeps.
#[test]
fn a_granted_time_out_is_kept() {
    let options = TransferOptions {
        timeout: Some(3),
        ..TransferOptions::default()
    };
    let mut loader = Loader::with(bytes(2000));
    loader.ask("file", "octet", &options);
    let (port, _) = loader.receive().unwrap();
    loader.send(port, &Packet::Ack { block: 0 });
    assert!(loader.receive().is_some());
    loader.advance(2999);
    assert!(loader.receive().is_none());
    loader.advance(1);
    assert!(loader.receive().is_some());
}

/// As by the wire: an error comes behind the blocks that came before it.
#[test]
fn blocks_that_came_before_an_error_come_before_it() {
    let mut loader = Loader::with(bytes(1100));
    loader.world.borrow_mut().progress = not_whole(1100, refused());
    loader.ask("file", "octet", &TransferOptions::default());
    for block in 1..=2 {
        let (port, got) = loader.receive().unwrap();
        assert_eq!(got.len(), 4 + 512);
        loader.send(port, &Packet::Ack { block });
    }
    let (_, error) = loader.receive().unwrap();
    let text = b"no such file";
    let code = ErrorCode::NOT_FOUND;
    assert_eq!(Packet::parse(&error), Ok(Packet::Error { code, text }));
}

/// A server that was slow to answer is no loader that says nothing.
#[test]
fn a_loader_whose_server_was_slow_is_not_given_up() {
    let mut loader = Loader::with(bytes(2000));
    loader.world.borrow_mut().progress = not_whole(0, DownloadState::Asked);
    loader.ask("file", "octet", &grub());
    loader.advance(40_000);
    loader.world.borrow_mut().progress = whole(2000);
    let (port, _) = loader.receive().unwrap();
    assert!(loader.receive().is_none());
    loader.send(port, &Packet::Ack { block: 0 });
    assert_eq!(loader.receive().unwrap().1.len(), 4 + 1024);
}

/// As any link: what was received and not taken is forgotten.
#[test]
fn a_link_that_is_set_up_anew_has_no_frames_of_before() {
    let mut loader = Loader::with(bytes(2000));
    loader.ask("file", "octet", &grub());
    loader.near.set_up(false);
    loader.near.set_up(true);
    assert!(loader.receive().is_none());
}
