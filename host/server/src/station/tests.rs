//! The station before machines that are made of its own codecs and TCP, on a wire that loses frames, in virtual time.

use std::fs::{self, File};
use std::path::Path;

use etherparse::{ArpEthIpv4Packet, ArpOperation, EtherType, Ethernet2Header};
use tempfile::TempDir;
use wireboot_tcp::{Connection, Limits, Segment, State, Transmit};
use wireboot_wire::dhcp::{Message, MessageType, option};
use wireboot_wire::ladder::{Answer, DATA_PORT, Request};
use wireboot_wire::tftp::{ErrorCode, Packet, TransferOptions};

use super::*;
use crate::directory::Lying;
use crate::event::Console;

const CLIENT: Mac = [0x52, 0x54, 0, 1, 2, 3];
/// Less than anybody waits before saying something again.
const PATIENT: Duration = Duration::from_millis(500);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 200);
const ADDRESS_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1);
const CLIENT_ADDRESS_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 0x1000);
/// The ends of a client, and of the server.
const VERSIONS: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(CLIENT_ADDRESS), IpAddr::V4(ADDRESS)),
    (IpAddr::V6(CLIENT_ADDRESS_IPV6), IpAddr::V6(ADDRESS_IPV6)),
];

/// A station, its directory and its events.
struct Fixture {
    scratch: TempDir,
    station: Station,
    now: Duration,
    /// Of frames that are to be cut.
    longest: Option<usize>,
    /// Of so many frames with bytes of a file, one is not there when it is first asked for; 0 for none.
    missing: u32,
    /// Files are never there.
    dead: bool,
    asked: u32,
    waited: u32,
    /// Frames wait; and others came since the client last had its say.
    waits: bool,
    delivered: bool,
    /// The addresses of clients and the server, as one of [`VERSIONS`].
    ends: (IpAddr, IpAddr),
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

impl Fixture {
    fn new(files: &[(&str, &[u8])]) -> Self {
        Self::on(0, files)
    }

    /// The first segment of a client's connection.
    fn syn(&self) -> Transmit {
        let host = &self.station.host;
        let now = host.tcp_time(host.epoch + self.now);
        let limits = Limits {
            window: 1000,
            room: 1000,
            unit: 0,
        };
        let mut opening = Connection::connect(1460, 1, now);
        opening.transmit(now, &limits).unwrap()
    }

    fn on(network: u8, files: &[(&str, &[u8])]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("served");
        fs::create_dir(&served).unwrap();
        for (name, bytes) in files {
            fs::write(served.join(name), bytes).unwrap();
        }
        let directory = Directory::open(&served, None).unwrap();
        let events = File::create(scratch.path().join("events")).unwrap();
        let events = Events::new(Console::Silent, Some(events));
        Self {
            station: Station::new(directory, events, network, [7; 18]),
            scratch,
            now: Duration::from_secs(1),
            longest: None,
            missing: 0,
            dead: false,
            asked: 0,
            waited: 0,
            waits: false,
            delivered: false,
            ends: VERSIONS[0],
        }
    }

    /// The server's end at this port, and the client's.
    fn peer(&self, port: u16) -> Peer {
        Peer {
            mac: MAC,
            address: (self.ends.1, port).into(),
        }
    }

    fn from(&self, port: u16) -> SocketAddr {
        (self.ends.0, port).into()
    }

    /// A datagram of the client's.
    fn say(&mut self, from: u16, to: u16, payload: &[u8]) {
        let frame = frame::datagram(CLIENT, self.from(from), self.peer(to), payload);
        self.take(&frame);
    }

    fn served(&self) -> std::path::PathBuf {
        self.scratch.path().join("served")
    }

    fn events(&self) -> String {
        fs::read_to_string(self.scratch.path().join("events")).unwrap()
    }

    fn take(&mut self, frame: &[u8]) {
        self.station.take(frame, false, self.now);
    }

    /// The next frame, whole, as the wire of a guest that completes no checksums puts it.
    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let longest = Longest {
                ipv4: self.longest,
                ipv6: self.longest,
            };
            let Some(frame) = self.station.next(self.now, longest) else {
                // What waits comes when the client has had its say to all that came before.
                let delivered = std::mem::take(&mut self.delivered);
                if !self.waits || delivered {
                    return None;
                }
                self.waits = false;
                self.station.go_on();
                continue;
            };
            let is_file = |piece| matches!(piece, Piece::File { .. });
            let of_file = frame.payload.pieces().any(is_file);
            let mut whole = frame.head.to_vec();
            let cut = frame.cut;
            let mut failure = None;
            for piece in frame.payload.pieces() {
                if let Err(error) = append(&mut whole, piece) {
                    failure = Some(error);
                }
            }
            if let Some(partial) = frame.partial {
                partial.complete(&mut whole);
            }
            // A unit of segments is of the version that it is said to be.
            match cut {
                Some(Cut::SegmentsIpv4(_)) => assert_eq!(whole[12..14], [8, 0]),
                Some(Cut::SegmentsIpv6(_)) => assert_eq!(whole[12..14], [0x86, 0xdd]),
                _ => {}
            }
            // Only what is to be cut is longer than the link takes.
            assert_eq!(cut.is_some(), whole.len() > 14 + MTU);
            let longest = match cut {
                None => 14 + MTU,
                Some(Cut::SegmentsIpv4(_) | Cut::SegmentsIpv6(_)) => self.longest.unwrap(),
                Some(Cut::Fragments(_)) => 14 + 65_535,
            };
            assert!(whole.len() <= longest);
            if of_file && self.dead {
                self.station.hold();
                continue;
            }
            if of_file && self.missing > 0 {
                self.asked += 1;
                if self.asked.is_multiple_of(self.missing) {
                    self.station.hold();
                    self.waited += 1;
                    self.waits = true;
                    continue;
                }
            }
            match failure {
                None => {
                    self.delivered = true;
                    return Some(whole);
                }
                Some(error) => self.station.fail(&error, self.now),
            }
        }
    }

    /// All frames that may leave now.
    fn all(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next()).take(10_000).collect()
    }

    fn flows(&self) -> usize {
        self.station.downloads.len() + self.station.exchanges.len()
    }
}

fn append(whole: &mut Vec<u8>, piece: Piece<'_>) -> std::io::Result<()> {
    match piece {
        Piece::Bytes(bytes) => {
            whole.extend_from_slice(bytes);
            Ok(())
        }
        Piece::File {
            content,
            offset,
            len,
            looks,
        } => content.read_where_it_lies(offset, len, looks, |lying| match lying {
            Lying::File(file) => {
                let mut bytes = vec![0; len];
                let file = File::from(file.try_clone_to_owned()?);
                let got = std::os::unix::fs::FileExt::read_at(&file, &mut bytes, offset)?;
                whole.extend_from_slice(bytes.get(..got).unwrap());
                Ok(got)
            }
            Lying::Bytes(bytes) => {
                whole.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }),
    }
}

/// What the client finds in a frame to it.
fn parsed(frame: &[u8]) -> Arrived<'_> {
    frame::parse(frame, CLIENT, false).expect("a frame that is right")
}

fn udp(frame: &[u8]) -> (u16, u16, &[u8]) {
    match parsed(frame) {
        Arrived::Udp { from, to, payload } => (from.address.port(), to.port(), payload),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_asks_for_its_address_is_told() {
    let mut fixture = Fixture::new(&[]);
    let request = |target_ipv4| {
        let header = Ethernet2Header {
            source: CLIENT,
            destination: [0xff; 6],
            ether_type: EtherType::ARP,
        };
        let arp = ArpEthIpv4Packet {
            operation: ArpOperation::REQUEST,
            sender_mac: CLIENT,
            sender_ipv4: CLIENT_ADDRESS.octets(),
            target_mac: [0; 6],
            target_ipv4,
        };
        [&header.to_bytes()[..], &arp.to_bytes()].concat()
    };
    fixture.take(&request(ADDRESS.octets()));
    let reply = fixture.next().unwrap();
    assert_eq!((&reply[..6], &reply[6..12]), (&CLIENT[..], &MAC[..]));
    // Operation, its own addresses, the client's.
    assert_eq!(reply[20..22], [0, 2]);
    assert_eq!(
        (&reply[22..28], &reply[28..32]),
        (&MAC[..], &ADDRESS.octets()[..])
    );
    assert_eq!(
        (&reply[32..38], &reply[38..42]),
        (&CLIENT[..], &CLIENT_ADDRESS.octets()[..])
    );
    fixture.take(&request([10, 77, 0, 9]));
    assert_eq!(fixture.next(), None);
    // It has an address of the range by hand.
    assert!(
        fixture.events().contains("dhcp-in-use"),
        "{}",
        fixture.events()
    );
}

#[test]
fn an_echo_comes_back() {
    let mut fixture = Fixture::new(&[]);
    let builder = |to: Ipv4Addr| {
        etherparse::PacketBuilder::ethernet2(CLIENT, MAC)
            .ipv4(CLIENT_ADDRESS.octets(), to.octets(), 64)
            .icmpv4_echo_request(3, 4)
    };
    let mut frame = Vec::new();
    builder(ADDRESS).write(&mut frame, b"abcde").unwrap();
    fixture.take(&frame);
    let reply = fixture.next().unwrap();
    let mut expected = Vec::new();
    etherparse::PacketBuilder::ethernet2(MAC, CLIENT)
        .ipv4(ADDRESS.octets(), CLIENT_ADDRESS.octets(), 64)
        .icmpv4_echo_reply(3, 4)
        .write(&mut expected, b"abcde")
        .unwrap();
    assert_eq!(reply[34..], expected[34..]);
    assert_eq!(reply[..14], expected[..14]);
    // Whose bytes changed on the way.
    *frame.last_mut().unwrap() ^= 1;
    fixture.take(&frame);
    let mut other = Vec::new();
    builder(CLIENT_ADDRESS).write(&mut other, b"").unwrap();
    fixture.take(&other);
    assert_eq!(fixture.next(), None);
}

/// What a client of this class is told to boot.
fn boot_file(fixture: &mut Fixture, class: &str, architecture: u16, user: Option<&[u8]>) -> String {
    let mut discover = Message::request(MessageType::Discover, 77, CLIENT);
    discover.options.set(option::VENDOR_CLASS, class);
    discover
        .options
        .set(option::ARCHITECTURE, architecture.to_be_bytes());
    if let Some(user) = user {
        discover.options.set(option::USER_CLASS, user);
    }
    let from = (Ipv4Addr::UNSPECIFIED, CLIENT_PORT).into();
    let to = Peer {
        mac: [0xff; 6],
        address: (Ipv4Addr::BROADCAST, SERVER_PORT).into(),
    };
    fixture.take(&frame::datagram(CLIENT, from, to, &discover.emit()));
    let offer = fixture.next().unwrap();
    assert_eq!(offer[..6], CLIENT);
    let (source, destination, payload) = udp(&offer);
    assert_eq!((source, destination), (SERVER_PORT, CLIENT_PORT));
    let offer = Message::parse(payload).unwrap();
    assert_eq!(offer.message_type(), Some(MessageType::Offer));
    let [10, 77, network, 128..=254] = offer.yiaddr.octets() else {
        panic!("{}", offer.yiaddr);
    };
    assert_eq!(fixture.station.host.address.octets(), [10, 77, network, 1]);
    offer.boot_file().unwrap().to_owned()
}

#[test]
fn machines_are_told_what_to_boot() {
    let mut fixture = Fixture::new(&[("wireboot.efi", b"MZ")]);
    assert_eq!(
        boot_file(&mut fixture, "PXEClient:Arch:00007", 7, None),
        "wireboot.efi"
    );
    let by_http = boot_file(&mut fixture, "HTTPClient:Arch:00016", 16, None);
    assert_eq!(by_http, "http://10.77.0.1/wireboot.efi");
    let wireboot = boot_file(&mut fixture, "PXEClient", 7, Some(b"\x08wireboot"));
    assert_eq!(wireboot, "http://10.77.0.1/wireboot.conf");
}

#[test]
fn each_network_has_its_addresses() {
    for network in [1, 15] {
        let mut fixture = Fixture::on(network, &[("wireboot.efi", b"MZ")]);
        let by_http = boot_file(&mut fixture, "HTTPClient:Arch:00016", 16, None);
        assert_eq!(by_http, format!("http://10.77.{network}.1/wireboot.efi"));
    }
}

fn request(name: &str, options: TransferOptions) -> Vec<u8> {
    let mut pairs = Vec::new();
    options.emit(&mut pairs);
    let mut packet = Vec::new();
    Packet::Rrq(wireboot_wire::tftp::Request {
        filename: name,
        mode: "octet",
        options: wireboot_wire::tftp::Options::new(&pairs),
    })
    .emit(&mut packet);
    packet
}

fn ack(block: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    Packet::Ack { block }.emit(&mut packet);
    packet
}

/// Reads a file by TFTP; the frame of each number in `lost` is lost on its way to the client. The file, or the server's error.
fn read_by_tftp(
    fixture: &mut Fixture,
    name: &str,
    options: TransferOptions,
    lost: impl Fn(u32) -> bool,
) -> Result<Vec<u8>, (ErrorCode, String)> {
    const PORT: u16 = 3000;
    let packet = request(name, options);
    fixture.say(PORT, 69, &packet);
    let block_size = usize::from(options.block_size.unwrap_or(512));
    let window = options.window_size.unwrap_or(1);
    let (mut file, mut expected, mut frames, mut unacknowledged) = (Vec::new(), 1u16, 0, 0);
    let mut silent = 0;
    loop {
        let Some(frame) = fixture.next() else {
            silent += 1;
            assert!(silent < 100, "the transfer stands still");
            fixture.now = fixture.station.due().unwrap_or_default().max(fixture.now);
            continue;
        };
        frames += 1;
        if lost(frames) {
            continue;
        }
        silent = 0;
        let (port, _, payload) = udp(&frame);
        let acknowledge = |fixture: &mut Fixture, block| {
            fixture.say(PORT, port, &ack(block));
            fixture.now += Duration::from_millis(1);
        };
        match Packet::parse(payload).unwrap() {
            Packet::Oack(_) => acknowledge(fixture, 0),
            Packet::Data { block, payload } if block == expected => {
                file.extend_from_slice(payload);
                expected = expected.wrapping_add(1);
                unacknowledged += 1;
                let last = payload.len() < block_size;
                if last || unacknowledged == window {
                    unacknowledged = 0;
                    acknowledge(fixture, block);
                }
                if last {
                    // The server ends, too.
                    assert_eq!(fixture.next(), None);
                    return Ok(file);
                }
            }
            Packet::Data { .. } => {
                unacknowledged = 0;
                acknowledge(fixture, expected.wrapping_sub(1));
            }
            Packet::Error { code, text } => {
                return Err((code, String::from_utf8(text.to_vec()).unwrap()));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn options(block_size: u16, window_size: u16) -> TransferOptions {
    TransferOptions {
        block_size: Some(block_size),
        window_size: Some(window_size),
        ..TransferOptions::default()
    }
}

#[test]
fn files_come_by_tftp() {
    let file = bytes(100_000);
    let mut fixture = Fixture::new(&[("file", &file), ("empty", b""), ("even", &file[..1024])]);
    let whole = |_| false;
    for ends in VERSIONS {
        fixture.ends = ends;
        for asked in [
            TransferOptions::default(),
            options(1448, 1),
            options(1448, 8),
            options(8, 64),
        ] {
            assert!(read_by_tftp(&mut fixture, "file", asked, whole).as_ref() == Ok(&file));
            assert_eq!(fixture.flows(), 0);
        }
    }
    for (name, len) in [("empty", 0), ("even", 1024)] {
        let got = read_by_tftp(&mut fixture, name, TransferOptions::default(), whole);
        assert!(got.as_deref() == Ok(&file[..len]), "{name}");
    }
    let events = fixture.events();
    assert_eq!(events.matches("tftp-start").count(), 10);
    assert_eq!(events.matches("tftp-done").count(), 10, "{events}");
    assert!(!events.contains("sent again"), "{events}");
}

#[test]
fn no_block_is_longer_than_the_link_takes() {
    let file = bytes(10_000);
    let mut fixture = Fixture::new(&[("file", &file)]);
    // Over IPv6 not for a machine either that takes datagrams longer than the MTU.
    for (ends, long, granted) in [
        (VERSIONS[0], false, b"1468"),
        (VERSIONS[1], false, b"1448"),
        (VERSIONS[1], true, b"1448"),
    ] {
        fixture.ends = ends;
        fixture.station.send_long_datagrams(long);
        fixture.say(3000, 69, &request("file", options(9000, 4)));
        let oack = fixture.next().unwrap();
        let (port, _, payload) = udp(&oack);
        assert!(payload.windows(4).any(|w| w == granted), "{payload:?}");
        fixture.say(3000, port, &ack(0));
        let window = fixture.all();
        assert_eq!(window.len(), 4);
        assert!(window.iter().all(|frame| frame.len() == 14 + MTU));
        fixture.station.forget_flows();
    }
}

/// To a machine that takes datagrams longer than the MTU.
#[test]
fn long_blocks_are_to_be_cut_to_fragments() {
    let file = bytes(200_000);
    let mut fixture = Fixture::new(&[("file", &file)]);
    fixture.station.send_long_datagrams(true);
    for (block, window) in [(65_464, 1), (65_464, 8), (1469, 4), (1468, 4), (9000, 5)] {
        let whole = read_by_tftp(&mut fixture, "file", options(block, window), |_| false);
        assert!(whole.as_ref() == Ok(&file), "{block}");
        let lossy = read_by_tftp(&mut fixture, "file", options(block, window), |n| n % 3 == 0);
        assert!(lossy.as_ref() == Ok(&file), "{block}");
    }
}

/// RFC 791: "don't fragment" is off, the identification is another one's, and a fragment has a multiple of 8 bytes. Virtio 1.2, section
/// 5.1.6.2: the checksum is partial.
#[test]
fn the_headers_of_a_long_block_say_that_it_may_be_cut() {
    let file = bytes(200_000);
    let mut fixture = Fixture::new(&[("file", &file)]);
    fixture.station.send_long_datagrams(true);
    let packet = request("file", options(65_464, 2));
    fixture.say(3000, 69, &packet);
    let port = udp(&fixture.next().unwrap()).0;
    fixture.say(3000, port, &ack(0));
    for id in [1, 2] {
        let frame = fixture
            .station
            .next(fixture.now, Longest::default())
            .unwrap();
        assert_eq!(frame.cut, Some(Cut::Fragments(1480)));
        let partial = frame.partial.unwrap();
        assert_eq!((partial.start, partial.offset), (34, 6));
        assert_eq!(frame.head.len(), 46);
        // Length, identification, flags.
        assert_eq!(frame.head[16..22], [0xff, 0xd8, 0, id, 0, 0]);
        // The sum of 10.77.0.1, 10.77.0.200, 17 and 65,476, carries added.
        assert_eq!(frame.head[40..42], 0x1539u16.to_be_bytes());
    }
}

#[test]
fn blocks_that_are_lost_come_again() {
    let file = bytes(100_000);
    let mut fixture = Fixture::new(&[("file", &file)]);
    for window in [1, 8] {
        let got = read_by_tftp(&mut fixture, "file", options(1468, window), |n| n % 7 == 3);
        assert!(got.as_ref() == Ok(&file));
    }
    assert!(fixture.events().contains("sent again"));
}

#[test]
fn what_is_not_there_is_refused() {
    let mut fixture = Fixture::new(&[]);
    let options = TransferOptions::default();
    let error = read_by_tftp(&mut fixture, "nothing", options, |_| false).unwrap_err();
    assert_eq!(
        error,
        (
            ErrorCode::NOT_FOUND,
            "there is no such file here".to_owned()
        )
    );
    assert_eq!(fixture.flows(), 0);
}

#[test]
fn a_file_that_changes_while_it_is_sent_ends_with_an_error() {
    let file = bytes(1_000_000);
    let mut fixture = Fixture::new(&[("file", &file)]);
    let path = fixture.served().join("file");
    let changes = |n| {
        if n == 100 {
            change(&path);
        }
        false
    };
    let error = read_by_tftp(&mut fixture, "file", options(1468, 8), changes).unwrap_err();
    assert_eq!(error.1, "the file was changed while it was sent");
    assert!(fixture.events().contains("tftp-error"));
    assert_eq!(fixture.flows(), 0);

    fs::write(&path, &file).unwrap();
    let mut client = Client::new(&fixture, 4000);
    client.send(b"GET /file HTTP/1.1\r\n\r\n");
    let path = fixture.served().join("file");
    client.run(&mut fixture, |n| {
        if n == 100 {
            change(&path);
        }
        false
    });
    assert_eq!(client.connection.error(), Some(wireboot_tcp::Error::Reset));
    assert!(client.received.len() < file.len());
    let events = fixture.events();
    let last = events.lines().last().unwrap();
    assert!(
        last.contains("http-error") && last.contains("was changed"),
        "{events}"
    );
    assert_eq!(fixture.flows(), 0);
}

/// The same length, other bytes, another time.
fn change(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"other", 999_000).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(10);
    file.set_modified(later).unwrap();
}

/// A machine with one connection.
struct Client {
    port: u16,
    connection: Connection,
    sent: Vec<u8>,
    received: Vec<u8>,
    frames: u32,
}

impl Client {
    fn new(fixture: &Fixture, port: u16) -> Self {
        let now = fixture
            .station
            .host
            .tcp_time(fixture.station.host.epoch + fixture.now);
        Self {
            port,
            connection: Connection::connect(exchanges::mss(fixture.ends.0), 1000, now),
            sent: Vec::new(),
            received: Vec::new(),
            frames: 0,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        self.connection.queue(bytes.len() as u32);
    }

    /// Sends and receives until neither side has anything to say for ten seconds, or it is over. Of what the server sends, each frame that `lost`
    /// says is lost.
    fn run(&mut self, fixture: &mut Fixture, lost: impl Fn(u32) -> bool) {
        let limits = Limits {
            window: 1 << 20,
            room: 1 << 20,
            unit: 0,
        };
        let mut begun = fixture.now;
        loop {
            let now = fixture
                .station
                .host
                .tcp_time(fixture.station.host.epoch + fixture.now);
            let released = self.connection.acknowledged() as usize;
            self.sent.drain(..released);
            let mut moved = false;
            while let Some(out) = self.connection.transmit(now, &limits) {
                moved = true;
                let mut frame = Vec::new();
                let partial = frame::tcp_headers(
                    &mut frame,
                    CLIENT,
                    fixture.from(self.port),
                    fixture.peer(80),
                    &out,
                );
                frame.extend_from_slice(&self.sent[out.offset as usize..][..out.len]);
                partial.complete(&mut frame);
                fixture.take(&frame);
                fixture.station.exchanges.check_bounds();
            }
            while let Some(frame) = fixture.next() {
                moved = true;
                self.frames += 1;
                if lost(self.frames) {
                    continue;
                }
                if let Arrived::Tcp {
                    segment, payload, ..
                } = parsed(&frame)
                {
                    self.hear(now, &segment, payload);
                }
            }
            if self.connection.is_over() {
                return;
            }
            if moved {
                begun = fixture.now;
                fixture.now += Duration::from_millis(1);
                continue;
            }
            let ours = self
                .connection
                .poll_at()
                .map(|at| Duration::from_micros(at.total_micros() as u64));
            let due = ours.into_iter().chain(fixture.station.due()).min();
            let due = due
                .unwrap_or(Duration::MAX)
                .max(fixture.now + Duration::from_millis(1));
            if due > begun + Duration::from_secs(10) {
                return;
            }
            fixture.now = due;
        }
    }

    fn hear(&mut self, now: wireboot_tcp::Instant, segment: &Segment<'_>, payload: &[u8]) {
        if let Some(placement) = self.connection.receive(now, segment, 1 << 20) {
            if placement.at == 0 {
                let end = placement.skip + placement.len;
                self.received
                    .extend_from_slice(&payload[placement.skip..end]);
                if placement.advance as usize > placement.len {
                    self.connection.renege();
                }
            } else {
                self.connection.renege();
            }
        }
    }
}

/// Splits what came into heads and bodies by their lengths.
fn responses(mut bytes: &[u8]) -> Vec<(String, &[u8])> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        bytes = &bytes[end + 4..];
        let (body, rest) = bytes.split_at(bytes.len().min(length));
        all.push((head, body));
        bytes = rest;
    }
    all
}

#[test]
fn files_come_by_http_one_behind_the_other() {
    let file = bytes(300_000);
    let mut fixture = Fixture::new(&[("file", &file), ("small", b"small"), ("empty", b"")]);
    for (lost, ends) in [
        ((|_| false) as fn(u32) -> bool, VERSIONS[0]),
        (|n| n % 11 == 5, VERSIONS[0]),
        (|_| false, VERSIONS[1]),
        (|n| n % 11 == 5, VERSIONS[1]),
    ] {
        fixture.ends = ends;
        let mut client = Client::new(&fixture, 4000);
        client.send(
            b"GET /file HTTP/1.1\r\n\r\nGET /small HTTP/1.1\r\n\r\nGET /empty HTTP/1.1\r\n\r\n",
        );
        client.send(
            b"GET /nothing HTTP/1.1\r\n\r\nGET /file HTTP/1.1\r\nRange: bytes=1000-2999\r\n\r\n",
        );
        client.send(b"GET /small HTTP/1.1\r\nConnection: close\r\n\r\n");
        client.run(&mut fixture, lost);
        let got = responses(&client.received);
        let statuses: Vec<_> = got.iter().map(|(head, _)| &head[9..12]).collect();
        assert_eq!(statuses, ["200", "200", "200", "404", "206", "200"]);
        assert!(got[0].1 == file);
        assert_eq!((got[1].1, got[2].1), (&b"small"[..], &b""[..]));
        assert!(got[4].1 == &file[1000..3000]);
        assert_eq!(got[5].1, b"small");
        assert_eq!(client.connection.state(), State::CloseWait);
        client.connection.close();
        client.run(&mut fixture, |_| false);
        assert_eq!(client.connection.error(), None);
        fixture.now += Duration::from_secs(120);
        assert_eq!(fixture.all(), Vec::<Vec<u8>>::new());
        assert_eq!(fixture.flows(), 0);
    }
    let events = fixture.events();
    assert_eq!(events.matches("http-start").count(), 20, "{events}");
    assert_eq!(events.matches("http-done").count(), 20, "{events}");
}

#[test]
fn a_guest_that_takes_them_gets_units_of_many_segments() {
    let file = bytes(3_000_000);
    let mut fixture = Fixture::new(&[("file", &file)]);
    for (longest, lost, ends) in [
        (14 + 65_535, (|_| false) as fn(u32) -> bool, VERSIONS[0]),
        (1 << 20, |n| n % 11 == 5, VERSIONS[0]),
        (4000, |_| false, VERSIONS[0]),
        (14 + 65_535, |_| false, VERSIONS[1]),
        (4000, |n| n % 11 == 5, VERSIONS[1]),
    ] {
        fixture.ends = ends;
        fixture.longest = Some(longest);
        let mut client = Client::new(&fixture, 4000);
        client.send(b"GET /file HTTP/1.1\r\nConnection: close\r\n\r\n");
        client.run(&mut fixture, lost);
        assert!(responses(&client.received)[0].1 == file);
        let least = file.len() / longest;
        let frames = client.frames as usize;
        let most = if lost(5) { usize::MAX } else { 150 + 3 * least };
        assert!(frames < most, "{frames} frames, {least} at least");
        client.connection.abort();
        client.run(&mut fixture, |_| false);
    }
    assert_eq!(fixture.flows(), 0);
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_connection() {
    let mut fixture = Fixture::new(&[]);
    for (request, status) in [
        (
            &b"POST /report HTTP/1.1\r\nContent-Length: 0\r\n\r\n"[..],
            "404",
        ),
        (b"POST /file HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "405"),
        (b"\x00\x01\x02\r\n\r\n", "400"),
    ] {
        let mut client = Client::new(&fixture, 4000);
        client.send(request);
        client.run(&mut fixture, |_| false);
        assert_eq!(&client.received[9..12], status.as_bytes());
        client.connection.abort();
        client.run(&mut fixture, |_| false);
        assert_eq!(fixture.flows(), 0);
    }
    // A head without an end.
    let mut client = Client::new(&fixture, 4000);
    client.send(b"GET / HTTP/1.1\r\n");
    client.send(&[b'x'; 20_000]);
    client.run(&mut fixture, |_| false);
    assert_eq!(&client.received[9..12], b"431");
}

#[test]
fn clients_that_say_nothing_are_given_up() {
    let file = bytes(100_000);
    let mut fixture = Fixture::new(&[("file", &file)]);
    let mut client = Client::new(&fixture, 4000);
    client.run(&mut fixture, |_| false);
    assert_eq!(
        (client.connection.state(), fixture.flows()),
        (State::Established, 1)
    );
    let mut packet = Vec::new();
    Packet::Rrq(wireboot_wire::tftp::Request {
        filename: "file",
        mode: "octet",
        options: wireboot_wire::tftp::Options::new(b""),
    })
    .emit(&mut packet);
    fixture.say(3000, 69, &packet);
    assert_eq!(fixture.flows(), 2);
    let mut frames = 0;
    loop {
        frames += fixture.all().len();
        if fixture.flows() == 0 {
            break;
        }
        fixture.now = fixture
            .station
            .due()
            .expect("a time at which something is given up")
            .max(fixture.now + Duration::from_millis(1));
        assert!(fixture.now < Duration::from_secs(1000));
    }
    assert!(frames < 30, "{frames}");
    assert!(fixture.events().contains("stopped answering"));
}

#[test]
fn what_one_machine_begins_is_bounded() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    let mut packet = Vec::new();
    Packet::Rrq(wireboot_wire::tftp::Request {
        filename: "file",
        mode: "octet",
        options: wireboot_wire::tftp::Options::new(b""),
    })
    .emit(&mut packet);
    for port in 0..=1000 {
        fixture.say(3000 + port, 69, &packet);
        let syn = fixture.syn();
        fixture.take(&frame::segment(
            CLIENT,
            fixture.from(3000 + port),
            fixture.peer(80),
            &syn,
        ));
        fixture.now += Duration::from_millis(1);
    }
    assert_eq!(
        (
            fixture.station.downloads.len(),
            fixture.station.exchanges.len()
        ),
        (64, 64)
    );
    // Those that nobody had answered for half a second gave way, each once.
    let revoked = fixture.events().matches("others needed its slot").count();
    assert_eq!(revoked, 65);
    assert!(fixture.station.host.answers.len() <= MAX_ANSWERS);
    // The newest has a place: those that nobody answered gave way.
    let frames = fixture.all();
    let newest = frames
        .iter()
        .filter(|frame| matches!(parsed(frame), Arrived::Udp { to, .. } if to.port() == 4000));
    assert_eq!(newest.count(), 1);
    fixture.station.forget_flows();
    assert_eq!((fixture.flows(), fixture.next()), (0, None));
}

#[test]
fn other_ports_are_closed_and_other_hosts_are_not_answered() {
    let mut fixture = Fixture::new(&[("file", b"")]);
    let syn = fixture.syn();
    fixture.take(&frame::segment(
        CLIENT,
        fixture.from(3000),
        fixture.peer(22),
        &syn,
    ));
    match parsed(&fixture.next().unwrap()) {
        Arrived::Tcp { from, segment, .. } => {
            assert_eq!((from.address.port(), segment.flags.0), (22, 0x14));
        }
        other => panic!("{other:?}"),
    }
    let mut to = fixture.peer(80);
    to.address.set_ip(CLIENT_ADDRESS.into());
    fixture.take(&frame::segment(CLIENT, fixture.from(3000), to, &syn));
    for source in [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 77, 0, 255),
        ADDRESS,
        Ipv4Addr::UNSPECIFIED,
    ] {
        let source = (source, 3000).into();
        fixture.take(&frame::segment(CLIENT, source, fixture.peer(80), &syn));
    }
    assert_eq!((fixture.next(), fixture.flows()), (None, 0));
}

/// Each station of a process has a network of its own, and only the log and the folder for reports are shared.
#[test]
fn hosts_of_other_networks_are_not_answered() {
    let mut fixture = Fixture::on(3, &[("file", b"file")]);
    let ours = Ipv4Addr::new(10, 77, 3, 1);
    let ours6 = |host| Ipv6Addr::new(0xfd00, 0x77, 0, 3, 0, 0, 0, host);
    let flows = |fixture: &mut Fixture, (source, to): (IpAddr, IpAddr)| {
        fixture.ends = (source, to);
        fixture.say(3000, 69, &request("file", options(512, 1)));
        let syn = fixture.syn();
        let (from, to) = (fixture.from(3000), fixture.peer(80));
        fixture.take(&frame::segment(CLIENT, from, to, &syn));
        (fixture.flows(), fixture.all().len())
    };
    for source in [
        CLIENT_ADDRESS,
        Ipv4Addr::new(10, 77, 2, 200),
        Ipv4Addr::new(192, 0, 2, 1),
    ] {
        let ends = (source.into(), ours.into());
        assert_eq!(flows(&mut fixture, ends), (0, 0), "{source}");
    }
    for source in [
        CLIENT_ADDRESS_IPV6,
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    ] {
        let ends = (source.into(), ours6(1).into());
        assert_eq!(flows(&mut fixture, ends), (0, 0), "{source}");
    }
    let ends: [(IpAddr, IpAddr); 3] = [
        (Ipv4Addr::new(10, 77, 3, 200).into(), ours.into()),
        (ours6(0x1000).into(), ours6(1).into()),
        (LINK_LOCAL_OF_CLIENT.into(), ours6(1).into()),
    ];
    for (n, ends) in ends.into_iter().enumerate() {
        assert_eq!(flows(&mut fixture, ends).0, 2 * n + 2, "{ends:?}");
    }
}

/// A read request from this port.
fn ask(fixture: &mut Fixture, port: u16, options: TransferOptions) {
    let mut pairs = Vec::new();
    options.emit(&mut pairs);
    let mut packet = Vec::new();
    Packet::Rrq(wireboot_wire::tftp::Request {
        filename: "file",
        mode: "octet",
        options: wireboot_wire::tftp::Options::new(&pairs),
    })
    .emit(&mut packet);
    fixture.say(port, 69, &packet);
}

/// The client at this port acknowledges a block to the server's.
fn acknowledge(fixture: &mut Fixture, (port, server): (u16, u16), block: u16) {
    let mut packet = Vec::new();
    Packet::Ack { block }.emit(&mut packet);
    fixture.say(port, server, &packet);
}

/// The ports of client and server of each datagram that leaves now.
fn ends(fixture: &mut Fixture) -> Vec<(u16, u16)> {
    let frames = fixture.all();
    let ends = frames.iter().map(|frame| udp(frame));
    ends.map(|(server, client, _)| (client, server)).collect()
}

#[test]
fn a_request_that_comes_twice_has_one_transfer() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    for _ in 0..2 {
        ask(&mut fixture, 3000, options(512, 1));
    }
    assert_eq!((fixture.flows(), fixture.all().len()), (1, 1));
}

/// A transfer of the file to a client at this port, which has acknowledged its options. The ports of client and server.
fn begun(fixture: &mut Fixture, port: u16) -> (u16, u16) {
    ask(fixture, port, options(512, 1));
    let first = ends(fixture)[0];
    acknowledge(fixture, first, 0);
    first
}

#[test]
fn a_client_that_asks_anew_from_the_same_port_is_answered_soon() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    let first = begun(&mut fixture, 3000);
    assert_eq!(ends(&mut fixture), [first]);
    let asked = fixture.now;
    // Each time that it asks, it waits no longer.
    for after in [0, 500, 999] {
        fixture.now = asked + Duration::from_millis(after);
        ask(&mut fixture, 3000, options(1000, 1));
        let ends = ends(&mut fixture);
        assert!(ends.iter().all(|end| *end == first), "{ends:?}");
    }
    let soon = asked + Duration::from_secs(1);
    assert_eq!(fixture.station.due(), Some(soon));
    fixture.now = soon;
    let frames = fixture.all();
    let [frame] = &frames[..] else {
        panic!("{frames:?}");
    };
    let (server, client, oack) = udp(frame);
    assert!(matches!(Packet::parse(oack), Ok(Packet::Oack(_))));
    assert!(oack.windows(4).any(|w| w == b"1000"), "the newest request");
    assert_eq!(client, 3000);
    assert_ne!(server, first.1);
    assert_eq!(fixture.flows(), 1);
    let events = fixture.events();
    assert!(events.contains(crate::tftp::events::ASKED_ANEW), "{events}");
    acknowledge(&mut fixture, (client, server), 0);
    assert_eq!(ends(&mut fixture), [(client, server)]);
}

#[test]
fn a_client_that_asks_anew_does_not_wait_for_a_disk() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    fixture.dead = true;
    let first = begun(&mut fixture, 3000);
    assert!(ends(&mut fixture).is_empty());
    ask(&mut fixture, 3000, options(512, 1));
    assert!(ends(&mut fixture).is_empty());
    let soon = fixture.now + Duration::from_secs(1);
    assert_eq!(fixture.station.due(), Some(soon));
    fixture.now = soon;
    let anew = ends(&mut fixture);
    assert_eq!((anew.len(), fixture.flows()), (1, 1));
    assert_ne!(anew[0], first);
}

#[test]
fn a_request_ends_no_transfer_whose_client_goes_on() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    let first = begun(&mut fixture, 3000);
    assert_eq!(ends(&mut fixture), [first]);
    // Ten blocks; the request is forged, or late.
    for block in 1..=10 {
        ask(&mut fixture, 3000, options(512, 1));
        fixture.now += Duration::from_millis(900);
        let again = ends(&mut fixture);
        assert!(again.iter().all(|end| *end == first), "{again:?}");
        if block == 10 {
            // The last word but one: nothing is left of the request.
            acknowledge(&mut fixture, first, 9);
            fixture.now += Duration::from_secs(2);
            let again = ends(&mut fixture);
            assert!(again.iter().all(|end| *end == first), "{again:?}");
        }
        acknowledge(&mut fixture, first, block);
        let next = ends(&mut fixture);
        assert_eq!(next.len(), usize::from(block < 10));
        assert!(next.iter().all(|end| *end == first), "{next:?}");
    }
    assert_eq!(fixture.flows(), 0);
    let events = fixture.events();
    assert_eq!(events.matches("tftp-done").count(), 1, "{events}");
    assert!(!events.contains("tftp-error"), "{events}");
}

#[test]
fn the_next_request_may_come_right_behind_the_last_acknowledgement() {
    let mut fixture = Fixture::new(&[("file", &bytes(100))]);
    let first = begun(&mut fixture, 3000);
    assert_eq!(ends(&mut fixture), [first]);
    acknowledge(&mut fixture, first, 1);
    ask(&mut fixture, 3000, options(512, 1));
    let second = ends(&mut fixture);
    assert_eq!((second.len(), fixture.flows()), (1, 1));
    assert_ne!(second[0], first);
    // It wanted to know the size only, and then asks for what is not there.
    let mut packet = Vec::new();
    let (code, text) = (ErrorCode::UNDEFINED, &b""[..]);
    Packet::Error { code, text }.emit(&mut packet);
    fixture.say(3000, second[0].1, &packet);
    ask(&mut fixture, 3000, options(512, 1));
    let third = ends(&mut fixture);
    assert_eq!((third.len(), fixture.flows()), (1, 1));
    assert_ne!(third[0], second[0]);
    fixture.say(3000, third[0].1, &packet);
    fixture.say(3000, 69, &request("nothing", options(512, 1)));
    assert_eq!(ends(&mut fixture), [(3000, 69)]);
    assert_eq!(fixture.flows(), 0);
    let events = fixture.events();
    assert_eq!(events.matches("tftp-done").count(), 1, "{events}");
    assert_eq!(events.matches("tftp-size").count(), 2, "{events}");
    assert_eq!(events.matches("tftp-error").count(), 1, "{events}");
}

#[test]
fn transfers_take_turns_and_have_ports_of_their_own() {
    let mut fixture = Fixture::new(&[("file", &bytes(500_000))]);
    let mut servers = Vec::new();
    for port in [3000, 3001] {
        ask(&mut fixture, port, options(512, 200));
        servers.extend(ends(&mut fixture));
    }
    assert_ne!(servers[0].1, servers[1].1);
    // Of another's, one takes no acknowledgement.
    acknowledge(&mut fixture, (3001, servers[0].1), 0);
    assert_eq!(fixture.next(), None);
    for end in &servers {
        acknowledge(&mut fixture, *end, 0);
    }
    let order: Vec<u16> = ends(&mut fixture)
        .into_iter()
        .map(|(client, _)| client)
        .collect();
    assert_eq!(order.len(), 400);
    let first = order.first().copied().unwrap();
    for (client, streak) in order
        .chunks(32)
        .zip([true, false].into_iter().cycle())
        .take(12)
    {
        assert!(
            client.iter().all(|client| (*client == first) == streak),
            "{order:?}"
        );
    }
}

#[test]
fn no_two_transfers_have_one_port() {
    let mut fixture = Fixture::new(&[("file", &bytes(500))]);
    ask(&mut fixture, 3000, options(512, 1));
    let first = ends(&mut fixture)[0].1;
    // There are 16384 ports.
    for _ in 0..16_384 {
        ask(&mut fixture, 3001, options(512, 1));
        let (client, server) = ends(&mut fixture)[0];
        assert_ne!(server, first);
        let mut packet = Vec::new();
        let (code, text) = (ErrorCode::UNDEFINED, &b""[..]);
        Packet::Error { code, text }.emit(&mut packet);
        fixture.say(client, server, &packet);
        assert_eq!((fixture.next(), fixture.flows()), (None, 1));
    }
}

#[test]
fn the_next_deadline_is_the_first_of_all() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    for (port, seconds) in [(3000, 5), (3001, 1), (3002, 9)] {
        ask(
            &mut fixture,
            port,
            TransferOptions {
                timeout: Some(seconds),
                ..TransferOptions::default()
            },
        );
    }
    assert_eq!(fixture.all().len(), 3);
    for turn in 0..3 {
        fixture.station.turn = turn;
        assert_eq!(fixture.next(), None);
        let first = fixture.now + Duration::from_secs(1);
        assert_eq!(fixture.station.due(), Some(first));
    }
}

#[test]
fn a_transfer_that_ends_holds_up_no_other() {
    let mut fixture = Fixture::new(&[("file", &bytes(600))]);
    let mut clients = Vec::new();
    for port in [3000, 3001, 3002] {
        ask(&mut fixture, port, options(512, 2));
        clients.extend(ends(&mut fixture));
    }
    acknowledge(&mut fixture, clients[0], 0);
    assert_eq!(ends(&mut fixture), [clients[0], clients[0]]);
    // The first ends, the second has something to send, the last is looked at first and waits.
    acknowledge(&mut fixture, clients[0], 2);
    acknowledge(&mut fixture, clients[1], 0);
    fixture.station.turn = 2;
    assert_eq!(ends(&mut fixture), [clients[1], clients[1]]);
    assert_eq!(fixture.flows(), 2);
}

#[test]
fn what_changed_on_its_way_is_passed_over() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    let mut packet = Vec::new();
    Packet::Rrq(wireboot_wire::tftp::Request {
        filename: "file",
        mode: "octet",
        options: wireboot_wire::tftp::Options::new(b""),
    })
    .emit(&mut packet);
    let mut read = Vec::new();
    etherparse::PacketBuilder::ethernet2(CLIENT, MAC)
        .ipv4(CLIENT_ADDRESS.octets(), ADDRESS.octets(), 64)
        .udp(3000, 69)
        .write(&mut read, &packet)
        .unwrap();
    let syn = frame::segment(CLIENT, fixture.from(3000), fixture.peer(80), &fixture.syn());
    // Destination, source, type; time to live, flags (a fragment); checksums; the last byte.
    for at in [5, 6, 12, 22, 20] {
        for frame in [&read, &syn] {
            let mut other = frame.clone();
            other[at] ^= if at == 20 { 0x60 } else { 1 };
            if at == 20 {
                // A fragment, with a header that is right.
                other[24..26].fill(0);
                let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&other[14..34]);
                other[24..26].copy_from_slice(&sum.ones_complement().to_be().to_be_bytes());
            }
            fixture.take(&other);
        }
    }
    for (frame, at) in [(&read, 41), (&read, read.len() - 1), (&syn, 50), (&syn, 37)] {
        let mut other = frame.clone();
        other[at] ^= 1;
        fixture.take(&other);
        assert_eq!(fixture.flows(), 0, "byte {at}");
        for len in 0..frame.len() {
            fixture.take(&frame[..len]);
        }
    }
    assert_eq!((fixture.flows(), fixture.next()), (0, None));
    // Nothing of that was wrong before; a checksum that is not complete is not looked at.
    fixture.take(&read);
    let mut partial = syn;
    partial[50] ^= 1;
    fixture.station.take(&partial, true, fixture.now);
    assert_eq!(fixture.flows(), 2);
}

#[test]
fn a_client_that_asks_for_much_at_once_waits() {
    let mut fixture = Fixture::new(&[("small", b"small")]);
    let mut client = Client::new(&fixture, 4000);
    client.send(&b"GET /small HTTP/1.1\r\n\r\n".repeat(100));
    client.run(&mut fixture, |_| false);
    assert_eq!(responses(&client.received).len(), 100);
}

#[test]
fn a_client_that_ends_its_side_gets_its_answer_and_an_end() {
    let mut fixture = Fixture::new(&[("small", b"small")]);
    // Then the same port again, while the connection before waits for stray segments; and one whose server ends first.
    for request in [
        &b"GET /small HTTP/1.1\r\n\r\n"[..],
        b"GET /small HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /small HTTP/1.1\r\n\r\n",
    ] {
        let begun = fixture.now;
        let mut client = Client::new(&fixture, 4000);
        client.send(request);
        client.run(&mut fixture, |_| false);
        client.connection.close();
        client.run(&mut fixture, |_| false);
        assert_eq!(responses(&client.received)[0].1, b"small");
        assert_eq!(client.connection.error(), None);
        let state = client.connection.state();
        assert!(
            matches!(state, State::TimeWait | State::Closed),
            "{state:?}"
        );
        assert!(fixture.now < begun + PATIENT);
    }
}

const LINK_LOCAL_OF_CLIENT: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
const ALL_NODES: Ipv6Addr = crate::ra::ALL_NODES;

/// A message of ICMPv6 from the client to a group or to the station.
fn message(from: Ipv6Addr, to: Ipv6Addr, bytes: &[u8]) -> Vec<u8> {
    let [.., a, b, c, d] = to.octets();
    let to = Peer {
        mac: if to.is_multicast() {
            [0x33, 0x33, a, b, c, d]
        } else {
            MAC
        },
        address: (to, 0).into(),
    };
    frame::neighbour(CLIENT, from, to, bytes)
}

/// Whose address, from whom to whom, and the message, of a frame to a host of the link.
fn heard(frame: &[u8]) -> (Ipv6Addr, Ipv6Addr, &[u8]) {
    match parsed(frame) {
        Arrived::Neighbour {
            mac,
            from,
            to,
            message,
        } => {
            assert_eq!(mac, MAC);
            (from, to, message)
        }
        other => panic!("{other:?}"),
    }
}

fn solicitation(target: Ipv6Addr) -> Vec<u8> {
    [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat()
}

#[test]
fn who_solicits_its_address_is_told() {
    let mut fixture = Fixture::new(&[]);
    let own = |kind: u8| [&[kind, 1][..], &CLIENT].concat();
    for target in [ADDRESS_IPV6, LINK_LOCAL] {
        let [.., a, b, c] = target.octets();
        let low = u16::from_be_bytes([b, c]);
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low);
        let asks = [solicitation(target), own(1)].concat();
        for (from, to, asks) in [
            (LINK_LOCAL_OF_CLIENT, group, asks.clone()),
            (CLIENT_ADDRESS_IPV6, target, solicitation(target)),
        ] {
            fixture.take(&message(from, to, &asks));
            let reply = fixture.next().unwrap();
            assert_eq!(reply[..6], CLIENT);
            let (who, whom, told) = heard(&reply);
            assert_eq!((who, whom), (target, from));
            // Solicited, override.
            let told = (told[0], told[4], &told[8..24], &told[24..]);
            let ours = [&[2, 1][..], &MAC].concat();
            assert_eq!(told, (136, 0x60, &target.octets()[..], &ours[..]));
        }
        // Who has no address yet looks whether this one is free: all are told.
        let nobody = Ipv6Addr::UNSPECIFIED;
        fixture.take(&message(nobody, group, &solicitation(target)));
        let reply = fixture.next().unwrap();
        assert_eq!(reply[..6], [0x33, 0x33, 0, 0, 0, 1]);
        let (_, whom, told) = heard(&reply);
        assert_eq!((whom, told[4]), (ALL_NODES, 0x20));
        fixture.take(&message(nobody, group, &asks));
        // Another's group.
        fixture.take(&message(LINK_LOCAL_OF_CLIENT, ALL_NODES, &asks));
        for wrong in [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[1, 2], &[1]] {
            let asks = [&solicitation(target)[..], wrong].concat();
            fixture.take(&message(LINK_LOCAL_OF_CLIENT, group, &asks));
        }
        let mut routed = message(LINK_LOCAL_OF_CLIENT, group, &asks);
        routed[21] = 254;
        fixture.take(&routed);
        let mut broken = message(LINK_LOCAL_OF_CLIENT, group, &asks);
        broken[56] ^= 1;
        fixture.take(&broken);
        let others = solicitation(CLIENT_ADDRESS_IPV6);
        fixture.take(&message(LINK_LOCAL_OF_CLIENT, target, &others));
        assert_eq!(fixture.next(), None);
    }
}

#[test]
fn who_solicits_a_router_is_told_of_the_network() {
    let mut fixture = Fixture::on(3, &[]);
    let asks = [133, 0, 0, 0, 0, 0, 0, 0];
    let routers = crate::ra::ALL_ROUTERS;
    assert_eq!((fixture.next(), fixture.station.due()), (None, None));
    fixture.take(&message(LINK_LOCAL_OF_CLIENT, routers, &asks));
    let told = fixture.all();
    let [answer, all] = &told[..] else {
        panic!("{told:?}");
    };
    let (from, to, advertisement) = heard(answer);
    assert_eq!((from, to), (LINK_LOCAL, LINK_LOCAL_OF_CLIENT));
    // Managed, other; no router.
    assert_eq!(
        advertisement[..8],
        [134, 0, advertisement[2], advertisement[3], 64, 0xc0, 0, 0]
    );
    let prefix = advertisement
        .windows(16)
        .find(|w| w.starts_with(&[0xfd, 0, 0, 0x77]));
    assert_eq!(
        prefix,
        Some(&[0xfd, 0, 0, 0x77, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0][..])
    );
    assert_eq!(
        (&all[..6], heard(all).1),
        (&[0x33, 0x33, 0, 0, 0, 1][..], ALL_NODES)
    );
    // From then on now and then.
    let due = fixture.station.due().unwrap();
    assert!(due > fixture.now);
    fixture.now = due;
    assert_eq!(heard(&fixture.next().unwrap()).1, ALL_NODES);
    // Nobody is there any more.
    fixture.station.forget_flows();
    assert_eq!((fixture.next(), fixture.station.due()), (None, None));
    // Without an address of its own.
    fixture.take(&message(Ipv6Addr::UNSPECIFIED, routers, &asks));
    let told = fixture.all();
    assert_eq!(
        told.iter().map(|one| heard(one).1).collect::<Vec<_>>(),
        [ALL_NODES]
    );
}

/// What firmware asks DHCPv6 for by HTTP Boot.
fn solicit(kind: wire6::MessageType, server: Option<&[u8]>, architecture: u16) -> Vec<u8> {
    use wireboot_wire::dhcpv6::option;
    let mut solicit = wire6::Writer::new(kind, 77);
    solicit.option(option::CLIENT_ID, duid::from_mac(CLIENT));
    if let Some(server) = server {
        solicit.option(option::SERVER_ID, server);
    }
    solicit.option(option::ARCHITECTURE, architecture.to_be_bytes());
    let ia = option::IaNa {
        iaid: 5,
        t1: 0,
        t2: 0,
        options: wire6::Options::default(),
    };
    solicit.ia_na(&ia, |_| {});
    solicit.finish()
}

#[test]
fn machines_get_an_address_and_are_told_what_to_boot_by_dhcpv6() {
    let mut fixture = Fixture::on(2, &[("wireboot.efi", b"MZ")]);
    let ask = |fixture: &mut Fixture, to: Ipv6Addr, from: Ipv6Addr, message: &[u8]| {
        let to = Peer {
            mac: [0x33, 0x33, 0, 1, 0, 2],
            address: (to, 547).into(),
        };
        let from = (from, 546).into();
        fixture.take(&frame::datagram(CLIENT, from, to, message));
    };
    for (architecture, url) in [
        (16, "http://[fd00:77:0:2::1]/wireboot.efi"),
        (7, "tftp://[fd00:77:0:2::1]/wireboot.efi"),
    ] {
        let message = solicit(wire6::MessageType::Solicit, None, architecture);
        ask(
            &mut fixture,
            wire6::ALL_SERVERS,
            LINK_LOCAL_OF_CLIENT,
            &message,
        );
        let advertise = fixture.next().unwrap();
        let (from, to, payload) = udp(&advertise);
        assert_eq!((from, to), (547, 546));
        let advertise = wire6::Message::parse(payload).unwrap();
        assert_eq!(advertise.kind, wire6::MessageType::Advertise);
        let server = advertise.options.server_id().unwrap().to_vec();
        let request = solicit(wire6::MessageType::Request, Some(&server), architecture);
        ask(
            &mut fixture,
            wire6::ALL_SERVERS,
            LINK_LOCAL_OF_CLIENT,
            &request,
        );
        let reply = fixture.next().unwrap();
        let reply = wire6::Message::parse(udp(&reply).2).unwrap();
        assert_eq!(reply.options.boot_file_url(), Some(url));
        let given = reply.options.ia_na().next().unwrap();
        let given = given.options.ia_addresses().next().unwrap().address;
        let [0xfd00, 0x77, 0, 2, 0, 0, 0, last] = given.segments() else {
            panic!("{given}");
        };
        assert!(last >= 0x1000);
    }
    let message = solicit(wire6::MessageType::Solicit, None, 7);
    // To the server alone, and from elsewhere.
    ask(&mut fixture, LINK_LOCAL, LINK_LOCAL_OF_CLIENT, &message);
    ask(
        &mut fixture,
        wire6::ALL_SERVERS,
        CLIENT_ADDRESS_IPV6,
        &message,
    );
    assert_eq!(fixture.next(), None);
    assert!(fixture.events().contains("dhcpv6-reply"));
}

#[test]
fn an_echo_comes_back_over_ipv6() {
    let mut fixture = Fixture::new(&[]);
    for us in [ADDRESS_IPV6, LINK_LOCAL] {
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ethernet2(CLIENT, MAC)
            .ipv6(LINK_LOCAL_OF_CLIENT.octets(), us.octets(), 64)
            .icmpv6_echo_request(3, 4)
            .write(&mut frame, b"abcde")
            .unwrap();
        fixture.take(&frame);
        let mut expected = Vec::new();
        etherparse::PacketBuilder::ethernet2(MAC, CLIENT)
            .ipv6(us.octets(), LINK_LOCAL_OF_CLIENT.octets(), 64)
            .icmpv6_echo_reply(3, 4)
            .write(&mut expected, b"abcde")
            .unwrap();
        assert_eq!(fixture.next(), Some(expected));
        *frame.last_mut().unwrap() ^= 1;
        fixture.take(&frame);
        assert_eq!(fixture.next(), None);
    }
}

/// RFC 8200, section 8.1: a datagram without a checksum is none. RFC 768: a checksum of zero is sent as all ones.
#[test]
fn datagrams_over_ipv6_have_checksums() {
    let mut fixture = Fixture::new(&[("file", &bytes(5000))]);
    fixture.ends = VERSIONS[1];
    let request = request("file", options(512, 1));
    let mut frame = frame::datagram(CLIENT, fixture.from(3000), fixture.peer(69), &request);
    for checksum in [[0, 0], [1, 1]] {
        let mut other = frame.clone();
        other[60..62].copy_from_slice(&checksum);
        fixture.take(&other);
        assert_eq!(fixture.next(), None);
    }
    // The client leaves it to the card.
    frame[60..62].fill(0);
    fixture.station.take(&frame, true, fixture.now);
    assert_eq!(fixture.flows(), 1);
    // Payload that makes the sum zero.
    let (from, to) = (fixture.from(3000), fixture.peer(69));
    let frame = frame::datagram(CLIENT, from, to, &[0, 0]);
    let sum = [frame[60], frame[61]];
    let zero = frame::datagram(CLIENT, from, to, &sum);
    assert_eq!(zero[60..62], [0xff, 0xff]);
    assert!(matches!(
        parsed_by_station(&zero),
        Some(Arrived::Udp { .. })
    ));
}

fn parsed_by_station(frame: &[u8]) -> Option<Arrived<'_>> {
    frame::parse(frame, MAC, false)
}

#[test]
fn its_two_addresses_have_connections_of_their_own() {
    let mut fixture = Fixture::new(&[("file", b"file")]);
    for us in [ADDRESS_IPV6, LINK_LOCAL] {
        fixture.ends = (VERSIONS[1].0, us.into());
        let mut client = Client::new(&fixture, 4000);
        client.send(b"GET /file HTTP/1.1\r\n\r\n");
        client.run(&mut fixture, |_| false);
        assert_eq!(responses(&client.received)[0].1, b"file");
    }
    for us in [ADDRESS_IPV6, LINK_LOCAL] {
        fixture.ends = (VERSIONS[1].0, us.into());
        fixture.say(3000, 69, &request("file", options(512, 1)));
        let oack = fixture.next().unwrap();
        assert_eq!(oack[22..38], us.octets());
    }
    assert_eq!(fixture.flows(), 4);
    for source in [Ipv6Addr::UNSPECIFIED, ALL_NODES, LINK_LOCAL, ADDRESS_IPV6] {
        fixture.ends = (source.into(), ADDRESS_IPV6.into());
        fixture.say(3001, 69, &request("file", options(512, 1)));
    }
    fixture.ends = (VERSIONS[1].0, CLIENT_ADDRESS_IPV6.into());
    fixture.say(3001, 69, &request("file", options(512, 1)));
    assert_eq!(fixture.flows(), 4);
}

/// Payload that is not there at first, again and again, while the client acknowledges and asks for more.
#[test]
fn what_waits_for_its_payload_comes_whole() {
    let file = bytes(300_000);
    for ends in VERSIONS {
        let mut fixture = Fixture::new(&[("file", &file), ("small", b"small")]);
        fixture.ends = ends;
        fixture.missing = 3;
        let mut client = Client::new(&fixture, 4000);
        // Responses that are acknowledged while one behind them waits.
        client.send(&b"GET /small HTTP/1.1\r\n\r\n".repeat(4));
        client.send(b"GET /file HTTP/1.1\r\n\r\nGET /small HTTP/1.1\r\n\r\n");
        client.run(&mut fixture, |n| n % 13 == 5);
        let got = responses(&client.received);
        assert!(got[..4].iter().all(|one| one.1 == b"small"));
        assert!(got[4].1 == file);
        assert_eq!(got[5].1, b"small");
        fixture.station.forget_flows();
        let got = read_by_tftp(&mut fixture, "file", options(1400, 8), |n| n % 13 == 5);
        assert!(got.as_ref() == Ok(&file));
        assert!(fixture.waited > 50, "{}", fixture.waited);
    }
}

/// The client goes away while the disk has not answered: no place is kept for it, and nothing is sent when the disk does.
#[test]
fn a_connection_that_is_over_waits_for_no_payload() {
    let mut fixture = Fixture::new(&[("file", &bytes(300_000))]);
    fixture.dead = true;
    let mut client = Client::new(&fixture, 4000);
    client.send(b"GET /file HTTP/1.1\r\n\r\n");
    client.run(&mut fixture, |_| false);
    assert_eq!(fixture.flows(), 1);
    client.connection.abort();
    client.run(&mut fixture, |_| false);
    assert_eq!(fixture.flows(), 0);
    fixture.dead = false;
    fixture.station.go_on();
    assert!(fixture.all().is_empty());
}

/// A report, as long as one of doctor.efi's.
fn report() -> String {
    let report = r#"{"schema":1,"machine":{"mac":"52:54:00:77:00:0A"}}"#;
    format!("{report}{}", " ".repeat(100_000))
}

#[test]
fn reports_are_kept() {
    let mut fixture = Fixture::new(&[]);
    let folder = fixture.scratch.path().join("reports");
    fs::create_dir(&folder).unwrap();
    let reports = Arc::new(Reports::open(&folder).unwrap());
    fixture.station.host.reports = Some(reports.clone());
    let text = report();
    let head = |length: usize, more: &str| {
        format!("POST /report HTTP/1.1\r\n{more}Content-Length: {length}\r\n\r\n")
    };
    let names = || {
        let entries = fs::read_dir(&folder).unwrap();
        entries.map(|one| one.unwrap().path()).collect::<Vec<_>>()
    };
    // Over either version, and none overwrites another.
    for (n, (ends, more)) in VERSIONS
        .into_iter()
        .zip(["", "Expect: 100-continue\r\n"])
        .enumerate()
    {
        fixture.ends = ends;
        let mut client = Client::new(&fixture, 4000 + n as u16);
        client.send(head(text.len(), more).as_bytes());
        client.send(text.as_bytes());
        // What comes behind a report is not answered.
        client.send(b"GET /file HTTP/1.1\r\n\r\n");
        until_answered(&mut client, &mut fixture);
        let got = String::from_utf8(client.received).unwrap();
        let asked = "HTTP/1.1 100 Continue\r\n\r\n";
        let answer = if more.is_empty() {
            &got[..]
        } else {
            got.strip_prefix(asked).unwrap()
        };
        assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{got}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{got}");
        let names = names();
        assert_eq!(names.len(), n + 1);
        assert!(
            names
                .iter()
                .all(|name| fs::read_to_string(name).unwrap() == text)
        );
    }
    assert_eq!(fixture.events().matches("\"report\"").count(), 2);
    let mut refused = |head: &str, body: &[u8], status: &str| {
        let mut client = Client::new(&fixture, 5000);
        client.send(head.as_bytes());
        client.send(body);
        until_answered(&mut client, &mut fixture);
        let got = String::from_utf8_lossy(&client.received);
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{got}");
        client.connection.abort();
        client.run(&mut fixture, |_| false);
    };
    refused(&head(9, ""), b"no report", "400");
    refused(&head((16 << 20) + 1, ""), &text.as_bytes()[..1000], "413");
    refused("POST /report HTTP/1.1\r\n\r\n", b"", "411");
    // It does not come to its end.
    refused(&head(text.len(), ""), &text.as_bytes()[1..], "408");
    // Others are being taken in, and nobody waits for them here.
    let machine = IpAddr::V4(ADDRESS);
    let permit = reports.permit_at_once(machine).unwrap();
    let mut busy = Client::new(&fixture, 5001);
    busy.send(head(text.len(), "").as_bytes());
    until_answered(&mut busy, &mut fixture);
    assert_eq!(&busy.received[9..12], b"503");
    drop(permit);
    assert_eq!(names().len(), 2);
    // One whose client goes away, or ends its side too early, gives its permit back.
    for (port, aborts) in [(5002, true), (5003, false)] {
        let mut gone = Client::new(&fixture, port);
        gone.send(head(text.len(), "").as_bytes());
        gone.run(&mut fixture, |_| false);
        assert!(reports.permit_at_once(machine).is_err());
        if aborts {
            gone.connection.abort();
        } else {
            gone.connection.close();
        }
        gone.run(&mut fixture, |_| false);
        assert!(reports.permit_at_once(machine).is_ok());
    }
}

/// The head of a request that sends [`report`].
fn report_head() -> String {
    let length = report().len();
    format!("POST /report HTTP/1.1\r\nContent-Length: {length}\r\n\r\n")
}

/// A machine chooses its addresses, and each of them is another client.
#[test]
fn a_machine_with_many_addresses_keeps_no_other_from_sending_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let reports = Arc::new(Reports::open(folder.path()).unwrap());
    let [mut first, mut second] = [0, 1].map(|network| {
        let mut fixture = Fixture::on(network, &[]);
        fixture.station.host.reports = Some(reports.clone());
        fixture
    });
    for host in 200..=203 {
        first.ends.0 = Ipv4Addr::new(10, 77, 0, host).into();
        let mut client = Client::new(&first, 4000);
        client.send(report_head().as_bytes());
        client.run(&mut first, |_| false);
        if host == 200 {
            assert_eq!(client.received, b"");
        } else {
            assert_eq!(&client.received[9..12], b"503");
            client.connection.abort();
            client.run(&mut first, |_| false);
        }
    }
    let host = |number| IpAddr::V4(Ipv4Addr::new(10, 77, 1, number));
    second.ends = (host(200), host(1));
    let mut client = Client::new(&second, 4000);
    client.send(report_head().as_bytes());
    client.send(report().as_bytes());
    until_answered(&mut client, &mut second);
    assert_eq!(&client.received[9..12], b"201");
    // It is told of by the address that it came from.
    let events = second.events();
    assert!(events.contains("\"client\":\"10.77.1.200\""), "{events}");
}

#[test]
fn a_machine_with_many_addresses_does_not_fill_the_log() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let events = Events::new(Console::Silent, Some(log.reopen().unwrap()));
    let [mut first, mut second] = [0, 1].map(|network| {
        let mut fixture = Fixture::on(network, &[]);
        let directory = Directory::open(&fixture.served(), None).unwrap();
        fixture.station = Station::new(directory, events.clone(), network, [7; 18]);
        fixture
    });
    let asked = request("nothing", TransferOptions::default());
    for _ in 0..100 {
        for host in 100..200 {
            first.ends.0 = Ipv4Addr::new(10, 77, 0, host).into();
            first.say(3000, 69, &asked);
            assert_eq!(first.all().len(), 1);
        }
    }
    let host = |number| IpAddr::V4(Ipv4Addr::new(10, 77, 1, number));
    second.ends = (host(200), host(1));
    second.say(3000, 69, &asked);
    assert_eq!(second.all().len(), 1);
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("\"client\":\"10.77.1.200\""));
}

/// The machine may stand still meanwhile, and its clock with it.
#[test]
fn a_report_took_as_long_as_it_was_coming_by_the_stations_clock() {
    let mut fixture = Fixture::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let reports = Reports::open(folder.path()).unwrap();
    fixture.station.host.reports = Some(Arc::new(reports));
    let mut client = Client::new(&fixture, 4000);
    client.send(report_head().as_bytes());
    client.run(&mut fixture, |_| false);
    fixture.now += Duration::from_secs(20);
    client.send(report().as_bytes());
    until_answered(&mut client, &mut fixture);
    assert_eq!(&client.received[9..12], b"201");
    let events = fixture.events();
    let told: Vec<serde_json::Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &serde_json::Value| event["event"] == "report")
        .collect();
    assert_eq!(told.len(), 1, "{events}");
    assert!(told[0]["seconds"].as_f64().unwrap() >= 20.0, "{events}");
}

/// A thread writes reports, in its own time.
fn until_answered(client: &mut Client, fixture: &mut Fixture) {
    let interim = |bytes: &[u8]| bytes.is_empty() || bytes.ends_with(b"100 Continue\r\n\r\n");
    let begun = std::time::Instant::now();
    while interim(&client.received) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no answer");
        client.run(fixture, |_| false);
        fixture.now = fixture.station.due().unwrap_or_default().max(fixture.now);
        std::thread::yield_now();
    }
}

/// What the sender says to a request.
fn answer(frame: &[u8]) -> Answer {
    let (from, to, text) = udp(frame);
    assert_eq!((from, to), (ladder::PORT, ladder::PORT));
    Answer::parse(text).unwrap()
}

fn measure(fixture: &mut Fixture, request: Request) {
    fixture.say(ladder::PORT, ladder::PORT, request.emit().as_bytes());
}

#[test]
fn a_machine_that_says_hello_is_welcome() {
    let mut fixture = Fixture::new(&[]);
    measure(&mut fixture, Request::Hello { number: 5 });
    let (number, token) = (5, 0);
    assert_eq!(
        answer(&fixture.next().unwrap()),
        Answer::Welcome { number, token }
    );
}

fn send(number: u32, payload: u16, micros: u32) -> Request {
    Request::Send {
        number,
        token: 0,
        payload,
        micros,
    }
}

#[test]
fn a_machine_that_measures_itself_gets_datagrams_as_long_as_it_wants() {
    for (ends, payload) in [(VERSIONS[0], 1472), (VERSIONS[1], 1452), (VERSIONS[0], 18)] {
        let mut fixture = Fixture::new(&[]);
        fixture.ends = ends;
        let request = send(7, payload, 300);
        measure(&mut fixture, request);
        let mut sent = 0;
        for instant in 0..30 {
            // It asks again, as nothing may have come.
            if instant == 15 {
                measure(&mut fixture, request);
            }
            let frames = fixture.all();
            assert_eq!(frames.len(), 64, "at one instant");
            for frame in &frames {
                let (from, to, content) = udp(frame);
                assert_eq!((from, to), (DATA_PORT, DATA_PORT));
                assert_eq!(content, vec![0x55; payload.into()]);
            }
            sent += 64;
            fixture.now += Duration::from_micros(10);
        }
        let over = Answer::Sent {
            number: 7,
            datagrams: sent,
            dropped: 0,
            micros: 300,
            waited: 0,
        };
        assert_eq!(answer(&fixture.next().unwrap()), over);
        assert_eq!(fixture.next(), None);
        // The answer was lost.
        measure(&mut fixture, request);
        assert_eq!(answer(&fixture.next().unwrap()), over);
        assert_eq!(fixture.next(), None);
        measure(&mut fixture, send(8, payload, 300));
        assert_eq!(fixture.all().len(), 64);
    }
}

#[test]
fn the_sender_tells_how_long_it_waited_for_room() {
    let mut fixture = Fixture::new(&[]);
    measure(&mut fixture, send(1, 18, 1000));
    // There is room for all that leaves, for three, for all, for none.
    for (taken, pause) in [(64, 100), (3, 50), (64, 300), (0, 550)] {
        assert_eq!((0..taken).map_while(|_| fixture.next()).count(), taken);
        fixture.now += Duration::from_micros(pause);
    }
    let over = Answer::Sent {
        number: 1,
        datagrams: 131,
        dropped: 0,
        micros: 1000,
        waited: 50,
    };
    assert_eq!(answer(&fixture.next().unwrap()), over);
}

#[test]
fn frames_of_the_machine_are_counted() {
    let mut fixture = Fixture::new(&[]);
    for _ in 0..5 {
        fixture.say(DATA_PORT, DATA_PORT, &[7; 18]);
        assert_eq!(fixture.next(), None);
    }
    for (number, frames) in [(3, 6), (4, 7)] {
        measure(&mut fixture, Request::Count { number, token: 0 });
        let counted = Answer::Counted { number, frames };
        assert_eq!(answer(&fixture.next().unwrap()), counted);
    }
}

#[test]
fn who_measures_and_who_downloads_take_turns() {
    let mut fixture = Fixture::new(&[("file", &bytes(500_000))]);
    ask(&mut fixture, 3000, options(512, 200));
    let servers = ends(&mut fixture);
    measure(&mut fixture, send(1, 18, 1000));
    acknowledge(&mut fixture, servers[0], 0);
    let frames = fixture.all();
    let is_data = |frame: &Vec<u8>| udp(frame).1 == DATA_PORT;
    assert_eq!(
        (
            frames.len(),
            frames.iter().filter(|frame| is_data(frame)).count()
        ),
        (264, 64)
    );
    let first = is_data(&frames[0]);
    let turns = [32, 64].map(|at| is_data(&frames[at]));
    assert_eq!(turns, [!first, first]);
    // The machine begins anew.
    fixture.station.forget_flows();
    fixture.now += Duration::from_millis(1);
    assert_eq!(fixture.next(), None);
}

#[test]
fn what_asks_for_too_much_is_not_sent() {
    let mut fixture = Fixture::new(&[]);
    for (ends, text) in [
        (VERSIONS[0], "send 1 0 1473 5"),
        (VERSIONS[0], "send 1 0 18 10000001"),
        // Longer than the network's frames.
        (VERSIONS[1], "send 1 0 1453 5"),
        (VERSIONS[0], "send"),
        (VERSIONS[0], ""),
    ] {
        fixture.ends = ends;
        fixture.say(ladder::PORT, ladder::PORT, text.as_bytes());
        assert_eq!(fixture.next(), None, "{text}");
    }
}
