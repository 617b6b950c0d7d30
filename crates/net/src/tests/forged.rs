//! A host that an engine downloads from, and that can send any frame.

use super::{CLIENT, CLIENT_MAC, CLIENT6, IpVersion, SERVER_MAC, pattern};
use crate::checksum;
use crate::ipv6::header::Packet;
use crate::ipv6::ndisc::{self, Message, NeighborAdvertisement};
use crate::output::{Path, headers_len};
use crate::packet::{self, Ends, PROTOCOL_TCP, Received, TCP_HEADER, Tcp, parse, put};
use crate::{Engine, Memory, NetError, Region, Stack};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, SocketAddr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::{self, Clock, LinkConfig, NicConfig, SimNic};
use wireboot_nic::{Checksum, Frame, LentMemory, MacAddress, Nic, Offload, Receive, Transmit};
use wireboot_ring::{HeapBlock, prefix};
use wireboot_tcp::{Duration, Flags, Instant, State, WINDOW_SCALE, after};

/// Bytes of the file.
pub(crate) const LEN: usize = 60_000;
/// The file's first byte has this sequence number: the numbers wrap within the file.
pub(crate) const FIRST: u32 = u32::MAX - 20_000;
/// Payload of the host's segments.
pub(crate) const STEP: usize = 1000;
/// Maximum segment size 1400, SACK, a window that is not scaled by the host.
pub(crate) const OPTIONS: [u8; 12] = [2, 4, 5, 120, 4, 2, 3, 3, 0, 0, 0, 0];

/// SEG.SEQ, SEG.ACK, flags, SEG.WND as it stands there, and bytes of payload.
pub(crate) type Numbers = (u32, u32, Flags, u16, usize);

/// A TCP segment, as somebody sends it.
#[derive(Clone)]
pub(crate) struct Forged {
    pub to: MacAddress,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Forged {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let len = TCP_HEADER + self.options.len();
        let mut segment = vec![0; len];
        put(&mut segment, 0, self.source.port().to_be_bytes());
        put(&mut segment, 2, self.destination.port().to_be_bytes());
        put(&mut segment, 4, self.seq.to_be_bytes());
        put(&mut segment, 8, self.ack.to_be_bytes());
        put(
            &mut segment,
            12,
            [(len * 4) as u8, self.flags.0, 0xff, 0xff],
        );
        segment[TCP_HEADER..].copy_from_slice(&self.options);
        segment.extend(&self.payload);
        let ends = (self.source.ip(), self.destination.ip());
        let sum = transport_checksum(ends, PROTOCOL_TCP, &segment);
        put(&mut segment, 16, sum);
        packet(self.to, ends, PROTOCOL_TCP, &segment)
    }
}

/// The checksum of a segment that has zero there.
pub(crate) fn transport_checksum(ends: (IpAddr, IpAddr), protocol: u8, segment: &[u8]) -> [u8; 2] {
    let pseudo = checksum::pseudo_header(ends.0, ends.1, protocol, segment.len());
    checksum::compute(pseudo, segment).to_be_bytes()
}

/// A frame from the host's card: `ends` are source and destination.
pub(crate) fn packet(
    to: MacAddress,
    ends: (IpAddr, IpAddr),
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let path = Path {
        station: SERVER_MAC,
        next_hop: to,
        local: ends.0,
        remote: ends.1,
    };
    let mut frame = vec![0; headers_len(&path.remote)];
    path.write(&mut frame, protocol, payload.len());
    frame.extend(payload);
    frame
}

/// A frame with a whole IPv6 packet.
pub(crate) fn frame6(to: MacAddress, packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::from(to);
    frame.extend(SERVER_MAC);
    frame.extend([0x86, 0xdd]);
    frame.extend(packet);
    frame
}

/// What nothing but the host's own words may change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    memory: Vec<u8>,
    received: u64,
    state: Option<State>,
    /// RCV.NXT, RCV.WND, SND.UNA, SND.NXT, SND.WND, bytes behind gaps.
    numbers: [u32; 6],
    mss: u16,
    poll_at: Option<Instant>,
    path_mtu: u16,
    done: Option<Result<usize, NetError>>,
    gateway: Option<crate::RouterInfo>,
    addresses: usize,
}

pub(crate) struct Bench {
    pub version: IpVersion,
    pub engine: Engine<SimNic>,
    pub stack: Stack,
    pub far: SimNic,
    pub clock: Clock,
    region: Region,
    received: Rc<RefCell<Rc<Cell<u64>>>>,
    pub done: Rc<RefCell<Option<Result<usize, NetError>>>>,
    /// The engine's end of the connection.
    pub us: SocketAddr,
    /// The host's RCV.NXT.
    pub ack: u32,
    /// Bytes of the file that the host has sent.
    pub position: usize,
    /// What the engine has sent since this was last emptied.
    pub heard: Vec<Vec<u8>>,
    /// How far the engine has said that the host may send; it never takes that back.
    edge: Option<u32>,
    scaled: bool,
    /// The host answers ARP and neighbour solicitations.
    pub answers: bool,
}

impl Bench {
    /// A download of which ten segments have come.
    pub(crate) fn downloading(version: IpVersion) -> Self {
        Self::with(version, &OPTIONS, true)
    }

    /// A download from a host with these options in its SYN; `acknowledges`: it has said that the request came.
    pub(crate) fn with(version: IpVersion, options: &[u8], acknowledges: bool) -> Self {
        Self::silent(version).asks(options, acknowledges)
    }

    /// A download like that of [`Self::downloading`], by a card whose ring has so many buffers.
    pub(crate) fn by_a_small_ring(version: IpVersion, receive_frames: usize) -> Self {
        let nic = NicConfig {
            receive_frames,
            ..NicConfig::new(CLIENT_MAC)
        };
        Self::on(version, nic).asks(&OPTIONS, true)
    }

    /// The same by a card that writes payload to its place.
    pub(crate) fn placing(version: IpVersion) -> Self {
        let nic = NicConfig {
            receive_frames: 12,
            places: true,
            ..NicConfig::new(CLIENT_MAC)
        };
        Self::on(version, nic).asks(&OPTIONS, true)
    }

    /// Bytes of the memory before the first that the card has.
    pub(crate) fn readable(&self) -> usize {
        self.region.with(0, |bytes| bytes.len())
    }

    /// Bytes that the card has put to their place.
    pub(crate) fn placed(&mut self) -> u64 {
        self.engine.nic_mut().placed()
    }

    fn asks(self, options: &[u8], acknowledges: bool) -> Self {
        let version = self.version;
        let mut bench = self;
        bench.scaled = options.windows(2).any(|option| option == [3, 3]);
        let (stack, into) = (bench.stack.clone(), bench.region.clone());
        let (counter, done) = (bench.received.clone(), bench.done.clone());
        bench.engine.spawn(async move {
            let server = version.server();
            let mut stream = stack.connect(server, Duration::from_secs(1)).await.unwrap();
            stream.set_idle_timeout(Duration::from_secs(3600));
            *counter.borrow_mut() = stream.received();
            stream.write_all(b"request").await.unwrap();
            let result = stream.read_into(&into, 0).await;
            *done.borrow_mut() = Some(result);
            // The connection stays.
            core::future::pending().await
        });
        bench.handshake(options);
        let request = bench.ack;
        if acknowledges {
            bench.send(&bench.segment(0).frame());
        } else {
            bench.ack = request.wrapping_sub(7);
        }
        for _ in 0..10 {
            bench.go_on();
        }
        bench.run_until_idle();
        bench.ack = request;
        bench.heard.clear();
        bench
    }

    /// A connection whose reader takes its memory when the flag says so. A device has some of that memory.
    pub(crate) fn beside_a_loan(version: IpVersion) -> (Self, Rc<Cell<bool>>, Box<dyn LentMemory>) {
        let mut bench = Self::silent(version);
        bench.scaled = true;
        let (stack, into) = (bench.stack.clone(), bench.region.clone());
        let done = bench.done.clone();
        let lent = into.lend_to_device(2 * STEP, STEP).unwrap();
        let begins = Rc::new(Cell::new(false));
        let may_begin = begins.clone();
        bench.engine.spawn(async move {
            let server = version.server();
            let mut stream = stack.connect(server, Duration::from_secs(1)).await.unwrap();
            stream.set_idle_timeout(Duration::from_secs(3600));
            while !may_begin.get() {
                stack.next_turn().await;
            }
            let result = stream.read_into(&into, 0).await;
            *done.borrow_mut() = Some(result);
        });
        bench.handshake(&OPTIONS);
        (bench, begins, lent)
    }

    /// Nothing has been asked of the engine.
    pub(crate) fn silent(version: IpVersion) -> Self {
        Self::on(version, NicConfig::new(CLIENT_MAC))
    }

    fn on(version: IpVersion, nic: NicConfig) -> Self {
        let (mut near, far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
        near.configure(nic);
        let clock = near.clock();
        let mut engine = Engine::new(near, [7; 32]);
        let stack = engine.stack();
        version.configure_before_start(&mut engine);
        Self {
            version,
            engine,
            stack,
            far,
            clock,
            region: Region::new(Memory::new(prefix(HeapBlock::from(vec![0xee; LEN])).0))
                .by_device(),
            received: Rc::default(),
            done: Rc::default(),
            us: SocketAddr::new(version.client(), 0),
            ack: 0,
            position: 0,
            heard: Vec::new(),
            edge: None,
            scaled: false,
            answers: true,
        }
    }

    /// Answers the SYN, and waits for what the engine says then.
    pub(crate) fn handshake(&mut self, options: &[u8]) {
        self.run_until_idle();
        assert_ne!(self.us.port(), 0, "no SYN");
        let mut syn = self.segment(0);
        syn.seq = FIRST.wrapping_sub(1);
        syn.flags = Flags::SYN | Flags::ACK;
        syn.options = options.into();
        self.send(&syn.frame());
        self.run_until_idle();
    }

    pub(crate) fn host(&self) -> SocketAddr {
        self.version.server()
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        let (_, tx) = self.far.split();
        let mut copy = |room: &mut [u8]| room.copy_from_slice(frame);
        tx.send(frame.len(), Offload::None, &mut copy).unwrap();
        tx.flush().unwrap();
    }

    /// The next segment of the file, of so many bytes.
    pub(crate) fn segment(&self, len: usize) -> Forged {
        let file = pattern(LEN);
        let end = LEN.min(self.position + len);
        Forged {
            to: CLIENT_MAC,
            source: self.host(),
            destination: self.us,
            seq: FIRST.wrapping_add(self.position as u32),
            ack: self.ack,
            flags: Flags::ACK,
            options: Vec::new(),
            payload: file[self.position..end].into(),
        }
    }

    /// The same place as the next segment, but other bytes.
    pub(crate) fn forged(&self) -> Forged {
        let mut forged = self.segment(STEP);
        forged.payload = vec![b'!'; STEP];
        forged
    }

    /// Sends the next segment of the file.
    pub(crate) fn go_on(&mut self) {
        let segment = self.segment(STEP);
        self.position += segment.payload.len();
        self.send(&segment.frame());
        self.turn();
    }

    /// Lets the engine and the wire work until nothing is left to do.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..8 {
            self.turn();
        }
    }

    pub(crate) fn turn(&mut self) {
        self.clock.advance(60);
        let now = Instant::from_micros(self.clock.now());
        self.engine.poll(now).unwrap();
        self.clock.advance(60);
        let mut frames = Vec::new();
        let (rx, _) = self.far.split();
        rx.burst(256, |frame| frames.push(frame.parts.concat()))
            .unwrap();
        for frame in frames {
            self.hear(&frame);
            self.heard.push(frame);
        }
    }

    fn hear(&mut self, frame: &[u8]) {
        if let Some(answer) = self.answer(frame) {
            self.send(&answer);
        }
        let Some((us, host, segment, options)) = tcp(frame) else {
            return;
        };
        if host != self.host() || segment.2.contains(Flags::RST) {
            return;
        }
        self.us = us;
        assert_eq!(frame[..6], SERVER_MAC, "the host is somebody else");
        let (seq, ack, flags, wnd, len) = segment;
        let control = u32::from(flags.contains(Flags::SYN)) + u32::from(flags.contains(Flags::FIN));
        self.ack = seq.wrapping_add(len as u32 + control);
        if flags.contains(Flags::SYN) {
            assert!(
                options
                    .windows(3)
                    .any(|option| option == [3, 3, WINDOW_SCALE])
            );
            return;
        }
        let shift = if self.scaled { WINDOW_SCALE } else { 0 };
        let edge = ack.wrapping_add(u32::from(wnd) << shift);
        // The field has whole units: what is less than one is not told again (RFC 7323, section 2.4).
        let slack = edge.wrapping_add((1 << shift) - 1);
        let before = self.edge.replace(edge);
        let moved = before.is_some_and(|before| after(before, slack));
        assert!(!moved, "the window moved back from {before:?} to {edge}");
    }

    /// The host's answer to a question for its Ethernet address.
    fn answer(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let host = self.host().ip();
        let right = match (self.version, parse(&lent(frame, &[frame]), &CLIENT_MAC)) {
            (IpVersion::V4, Some(Received::Arp(arp))) => {
                !arp.reply && IpAddr::V4(arp.target) == host
            }
            (IpVersion::V6, Some(Received::V6(_))) => {
                let packet = Packet::parse(&frame[14..]).unwrap();
                let said = ndisc::parse(&packet, packet.payload);
                matches!(said, Some(Message::NeighborSolicitation(said)) if IpAddr::V6(said.target) == host)
            }
            _ => false,
        };
        (right && self.answers).then(|| self.here(SERVER_MAC))
    }

    /// Says that the host has this Ethernet address, as an answer.
    pub(crate) fn here(&self, mac: MacAddress) -> Vec<u8> {
        here(self.version, mac)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut net = self.stack.state();
        let flow = net.flows.find(Ends::new(self.host(), self.us));
        let connection = flow.map(|flow| &flow.connection);
        let numbers = connection.map_or([0; 6], |one| {
            [
                one.rcv_nxt(),
                one.rcv_wnd(),
                one.snd_una(),
                one.snd_nxt(),
                one.snd_wnd(),
                one.out_of_order(),
            ]
        });
        let (state, mss) = (
            connection.map(|c| c.state()),
            connection.map_or(0, |c| c.mss()),
        );
        let poll_at = connection.and_then(|c| c.poll_at());
        drop(net);
        Snapshot {
            memory: self.region.with(0, |bytes| bytes.to_vec()),
            received: self.received.borrow().get(),
            state,
            numbers,
            mss,
            poll_at,
            path_mtu: self.stack.path_mtu(self.host().ip()),
            done: *self.done.borrow(),
            gateway: self.stack.router(),
            addresses: self.stack.addresses6().len(),
        }
    }

    /// RCV.NXT and RCV.WND.
    pub(crate) fn window(&self) -> (u32, u32) {
        let [rcv_nxt, rcv_wnd, ..] = self.snapshot().numbers;
        (rcv_nxt, rcv_wnd)
    }

    /// SND.UNA.
    pub(crate) fn snd_una(&self) -> u32 {
        self.snapshot().numbers[2]
    }

    /// Bytes behind gaps.
    pub(crate) fn out_of_order(&self) -> u32 {
        self.snapshot().numbers[5]
    }

    pub(crate) fn mss(&self) -> u16 {
        self.snapshot().mss
    }

    /// The end of the file's memory is now here.
    pub(crate) fn shorten(&self, end: usize) {
        self.region.set_end(end);
    }

    /// None of the frames changes anything.
    #[track_caller]
    pub(crate) fn ignores(&mut self, what: &str, frames: impl IntoIterator<Item = Vec<u8>>) {
        let before = self.snapshot();
        let mut count = 0;
        for frame in frames {
            self.send(&frame);
            self.turn();
            count += 1;
            if count % 64 == 0 {
                assert!(self.snapshot() == before, "{what}, after frame {count}");
            }
        }
        assert_ne!(count, 0);
        self.run_until_idle();
        let after = self.snapshot();
        let same = after.memory == before.memory;
        let rest = |snapshot: &Snapshot| Snapshot {
            memory: Vec::new(),
            ..snapshot.clone()
        };
        assert_eq!(rest(&after), rest(&before), "{what}");
        assert!(same, "{what}: bytes of the file changed");
    }

    /// The rest of the file comes, and all of it is right.
    #[track_caller]
    pub(crate) fn finishes(mut self) {
        while self.position < LEN {
            self.go_on();
        }
        self.run_until_idle();
        assert_eq!(*self.done.borrow(), Some(Ok(LEN)));
        assert!(self.region.with(0, |bytes| bytes == pattern(LEN)));
    }

    /// Segments to the host that the engine has sent, with their options.
    pub(crate) fn segments(&self) -> Vec<(Numbers, Vec<u8>)> {
        let all = self.heard.iter().filter_map(|frame| tcp(frame));
        let ours = all.filter(|(us, host, ..)| (*us, *host) == (self.us, self.host()));
        ours.map(|(_, _, segment, options)| (segment, options))
            .collect()
    }
}

/// Says that the host has this Ethernet address, as an answer.
pub(crate) fn here(version: IpVersion, mac: MacAddress) -> Vec<u8> {
    has(version.server().ip(), mac)
}

/// Says that the host with `address` has this Ethernet address, as an answer.
pub(crate) fn has(address: IpAddr, mac: MacAddress) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp(2, mac, address, CLIENT),
        IpAddr::V6(target) => {
            let said = NeighborAdvertisement {
                solicited: true,
                override_: true,
                target,
                target_link: Some(mac),
            };
            frame6(CLIENT_MAC, &said.packet(target, CLIENT6))
        }
    }
}

/// An ARP packet from `mac`.
pub(crate) fn arp(
    operation: u8,
    mac: MacAddress,
    sender: core::net::Ipv4Addr,
    target: core::net::Ipv4Addr,
) -> Vec<u8> {
    let mut frame = Vec::from(CLIENT_MAC);
    frame.extend(SERVER_MAC);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(mac);
    frame.extend(sender.octets());
    frame.extend(CLIENT_MAC);
    frame.extend(target.octets());
    frame
}

fn lent<'a>(frame: &'a [u8], parts: &'a [&'a [u8]]) -> Frame<'a> {
    Frame {
        parts,
        len: frame.len(),
        checksum: Checksum::Unverified,
        udp_segment: None,
    }
}

/// Source, destination, numbers and options of a segment that the engine sent, whose checksums are right.
pub(crate) fn tcp(frame: &[u8]) -> Option<(SocketAddr, SocketAddr, Numbers, Vec<u8>)> {
    let to = *frame.first_chunk::<6>()?;
    let parts = [frame];
    let lent = lent(frame, &parts);
    let Some(Received::V4(ip) | Received::V6(ip)) = parse(&lent, &to) else {
        return None;
    };
    if ip.protocol != PROTOCOL_TCP {
        return None;
    }
    let Tcp { ends, segment, .. } = packet::tcp(&lent, &ip)?;
    let numbers = (
        segment.seq,
        segment.ack,
        segment.flags,
        segment.wnd,
        segment.len,
    );
    Some((
        ends.remote_end(),
        ends.local_end(),
        numbers,
        segment.options.into(),
    ))
}
