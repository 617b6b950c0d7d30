//! The bodies of fuzz targets. One is an engine in the middle of things, and a host that sends it anything. They panic when a promise is
//! broken.

pub mod ipv6;

use crate::checksum;
use crate::packet::{
    ETHERNET_HEADER, ETHERTYPE_ARP, IPV4_HEADER, PROTOCOL_TCP, Received, TCP_HEADER, be16, be32,
    parse, put, tcp,
};
use crate::tap::cut::cut;
use crate::{Engine, Igmp, Ipv4Config, Memory, Region};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{Ipv4Addr, SocketAddr};
use smoltcp::wire::Ipv4Cidr;
use wireboot_nic::sim::{self, LinkConfig, SimNic};
use wireboot_nic::{Checksum, Frame, Nic, Offload, Receive, Transmit};
use wireboot_tcp::{Duration, Instant};

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
/// Bytes of the destination: more than windows of few segments.
const LEN: usize = 100_000;
/// The host's first data byte. Its numbers wrap within the destination.
const FIRST: u32 = u32::MAX - 30_000;
const SYN: u8 = 2;
const ACK: u8 = 16;
const IP: usize = ETHERNET_HEADER;
const TCP: usize = ETHERNET_HEADER + IPV4_HEADER;

/// What a host without routing hears of groups, by IGMP: frames of IPv4 packets, each behind a byte with its length and one that says whether the
/// header and its sums are right, and time between.
pub fn fuzz_igmp(mut data: &[u8]) {
    let mut igmp = Igmp::default();
    let mut now = Instant::ZERO;
    let groups = [[239, 1, 2, 3], [224, 0, 0, 251], [224, 0, 0, 1]].map(Ipv4Addr::from);
    while let [len, how, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        data = rest;
        let mut bytes = bytes.to_vec();
        if how & 1 == 0 {
            set_right(&mut bytes);
        }
        let wanted = usize::from(how >> 1 & 3);
        igmp.set(groups.iter().copied().take(wanted), now);
        igmp.hear(&bytes, u16::from(*how) << 8, now);
        now += Duration::from_millis(u64::from(*how) * 100);
        for packet in igmp.due(US, 0x8000, now) {
            assert_eq!(be16(&packet, 2), u16::try_from(packet.len()).ok());
            let (header, message) = packet.split_at(24);
            assert_eq!(
                [header, message].map(|part| checksum::compute(0, part)),
                [0; 2]
            );
            assert_eq!(header[8..10], [1, 2]);
            // Of no group that everybody hears.
            assert!(!message.windows(4).any(|window| window == [224, 0, 0, 1]));
        }
    }
    igmp.set([].into_iter(), now);
    for _ in 0..2 {
        igmp.due(US, 0x8000, now);
        now += Duration::from_secs(1);
    }
    assert!(igmp.is_empty(), "a group stays");
}

/// Makes the header of an IGMP message what it has to be, and the sums right.
fn set_right(bytes: &mut [u8]) {
    const HEADER: usize = 24;
    let len = bytes.len() as u16;
    if bytes.len() < HEADER + 8 {
        return;
    }
    put(bytes, 0, [0x46, 0]);
    put(bytes, 2, len.to_be_bytes());
    put(bytes, 6, [0, 0, 1, 2, 0, 0]);
    put(bytes, 20, [0x94, 4, 0, 0]);
    let sum = checksum::compute(0, &bytes[..HEADER]);
    put(bytes, 10, sum.to_be_bytes());
    put(bytes, HEADER, [0x11]);
    put(bytes, HEADER + 2, [0, 0]);
    let sum = checksum::compute(0, &bytes[HEADER..]);
    put(bytes, HEADER + 2, sum.to_be_bytes());
}

/// Cuts any unit for a tap: two bytes for the longest frame, two for the length of joined datagrams, then the unit.
pub fn fuzz_cut(data: &[u8]) {
    let (Some(longest), Some(segment)) = (be16(data, 0), be16(data, 2)) else {
        return;
    };
    let unit = data.get(4..).unwrap_or_default();
    let longest = usize::from(longest % 2048);
    let mut bytes = 0;
    cut(unit, (segment != 0).then_some(segment), longest, |frame| {
        assert!(frame.len() <= longest, "a frame of {} bytes", frame.len());
        bytes += frame.len();
    });
    // Each frame has headers and at least a byte, or there is one.
    assert!(
        bytes <= unit.len().max(1) * 80,
        "{bytes} bytes of {}",
        unit.len()
    );
}

/// What the host sends at `offset` from its first byte.
fn byte(offset: u32) -> u8 {
    (offset ^ (offset >> 8)) as u8
}

/// The other end of the wire.
struct Host {
    nic: SimNic,
    /// The engine's port and its next sequence number, once it has sent a SYN.
    peer: Option<(u16, u32)>,
    /// Offset of the byte that comes next.
    position: u32,
}

impl Host {
    fn send(&mut self, frame: &[u8]) {
        let (_, tx) = self.nic.split();
        // What does not fit is lost, as on any wire.
        let _ = tx.send(frame.len(), Offload::None, &mut |room| {
            room.copy_from_slice(frame);
        });
        let _ = tx.flush();
    }

    /// Answers ARP and the SYN.
    fn turn(&mut self) {
        let mut frames = Vec::new();
        let (rx, _) = self.nic.split();
        let _ = rx.burst(64, |frame| frames.push(frame.parts.concat()));
        for frame in frames {
            if be16(&frame, 12) == Some(ETHERTYPE_ARP) && be32(&frame, 38) == Some(HOST.to_bits()) {
                let mut answer = frame.clone();
                put(&mut answer, 0, OUR_MAC);
                put(&mut answer, 6, HOST_MAC);
                put(&mut answer, 20, [0, 2]);
                put(&mut answer, 22, HOST_MAC);
                put(&mut answer, 28, HOST.octets());
                put(&mut answer, 32, OUR_MAC);
                put(&mut answer, 38, US.octets());
                self.send(&answer);
            }
            if frame.get(IP + 9) != Some(&PROTOCOL_TCP) {
                continue;
            }
            let (Some(port), Some(sequence), Some(total), Some(&[offset, flags])) = (
                be16(&frame, TCP),
                be32(&frame, TCP + 4),
                be16(&frame, IP + 2),
                frame.get(TCP + 12..).and_then(|rest| rest.first_chunk()),
            ) else {
                continue;
            };
            let headers = IPV4_HEADER + usize::from(offset >> 4) * 4;
            let len = usize::from(total).saturating_sub(headers) as u32;
            let next = sequence.wrapping_add(len + u32::from(flags & SYN != 0));
            self.peer = Some((port, next));
            if flags & SYN != 0 {
                // Segments of 1460 bytes, SACK, windows shifted by 7.
                let options = [2, 4, 5, 180, 4, 2, 3, 3, 7, 0, 0, 0];
                self.segment(FIRST.wrapping_sub(1), next, SYN | ACK, &options, &[]);
            }
        }
    }

    fn segment(
        &mut self,
        sequence: u32,
        acknowledged: u32,
        flags: u8,
        options: &[u8],
        data: &[u8],
    ) {
        let Some((port, _)) = self.peer else { return };
        let len = TCP_HEADER + options.len() + data.len();
        let mut frame = vec![0; TCP + len];
        put(&mut frame, 0, OUR_MAC);
        put(&mut frame, 6, HOST_MAC);
        put(&mut frame, 12, [8, 0, 0x45, 0]);
        put(
            &mut frame,
            IP + 2,
            ((IPV4_HEADER + len) as u16).to_be_bytes(),
        );
        put(&mut frame, IP + 8, [64, PROTOCOL_TCP]);
        put(&mut frame, IP + 12, HOST.octets());
        put(&mut frame, IP + 16, US.octets());
        let sum = checksum::compute(0, &frame[IP..TCP]);
        put(&mut frame, IP + 10, sum.to_be_bytes());
        put(&mut frame, TCP, 80_u16.to_be_bytes());
        put(&mut frame, TCP + 2, port.to_be_bytes());
        put(&mut frame, TCP + 4, sequence.to_be_bytes());
        put(&mut frame, TCP + 8, acknowledged.to_be_bytes());
        let offset = ((TCP_HEADER + options.len()) / 4 * 16) as u8;
        put(&mut frame, TCP + 12, [offset, flags, 0xff, 0xff]);
        frame[TCP + TCP_HEADER..][..options.len()].copy_from_slice(options);
        frame[TCP + TCP_HEADER + options.len()..].copy_from_slice(data);
        let pseudo = checksum::pseudo_header(HOST.into(), US.into(), PROTOCOL_TCP, len);
        let sum = checksum::compute(pseudo, &frame[TCP..]);
        put(&mut frame, TCP + 16, sum.to_be_bytes());
        self.send(&frame);
    }

    /// Whether a frame is a segment of the connection, checksums and all, or may become one.
    fn has_data(&self, frame: &[u8]) -> bool {
        let parts = [frame];
        let lent = Frame {
            parts: &parts,
            len: frame.len(),
            checksum: Checksum::Unverified,
            udp_segment: None,
        };
        match (parse(&lent, &OUR_MAC), self.peer) {
            (Some(Received::V4(ip)), Some((port, _))) => tcp(&lent, &ip).is_some_and(|tcp| {
                let ends = (tcp.ends.remote_end(), tcp.ends.local_end());
                ip.protocol == PROTOCOL_TCP
                    && ends
                        == (
                            SocketAddr::new(HOST.into(), 80),
                            SocketAddr::new(US.into(), port),
                        )
            }),
            (Some(Received::Odd(_)), _) => frame.get(IP + 9) == Some(&PROTOCOL_TCP),
            _ => false,
        }
    }

    /// What one piece of the input says: a frame as it is, or a segment not far from what is expected. Returns the rest, and
    /// whether it may have brought data of others.
    fn speak<'d>(&mut self, kind: u8, input: &'d [u8]) -> (&'d [u8], bool) {
        let (fields, rest) = input.split_at(input.len().min(4));
        let mut all = [0; 4];
        all[..fields.len()].copy_from_slice(fields);
        let [a, b, c, d] = all;
        if kind & 0x0f == 0 {
            let len = usize::from(u16::from_le_bytes([a, b])) % 1515;
            let (frame, rest) = rest.split_at(len.min(rest.len()));
            self.send(frame);
            return (rest, self.has_data(frame));
        }
        let (options, rest) = match kind & 4 {
            0 => rest.split_at(0),
            _ => rest.split_at(rest.len().min(12) / 4 * 4),
        };
        // Sometimes the next byte, sometimes one before or behind it.
        let ahead = match kind & 2 {
            0 => 0,
            _ => i32::from(i16::from_le_bytes([a, b])),
        };
        let offset = self.position.wrapping_add_signed(ahead);
        let len = (usize::from(c) * 8).min(1460 - options.len());
        let data: Vec<u8> = (0..len as u32)
            .map(|at| byte(offset.wrapping_add(at)))
            .collect();
        let flags = if kind & 8 == 0 { ACK } else { d };
        let next = self.peer.map_or(0, |(_, next)| next);
        let acknowledged = next.wrapping_sub(u32::from(kind >> 4));
        let sequence = FIRST.wrapping_add(offset);
        self.segment(sequence, acknowledged, flags, options, &data);
        if ahead == 0 {
            self.position = self.position.wrapping_add(len as u32);
        }
        (rest, false)
    }
}

/// Whatever comes, the engine goes on, and what a download received is what was sent.
pub fn fuzz_frames(data: &[u8]) {
    let (near, far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let mut host = Host {
        nic: far,
        peer: None,
        position: 0,
    };
    let mut engine = Engine::new(near, [7; 32]);
    let stack = engine.stack();
    stack.configure(&Ipv4Config {
        address: Ipv4Cidr::new(US, 24),
        router: None,
        routes: Vec::new(),
        mtu: None,
    });
    let region = Region::new(Memory::from(vec![0; LEN]));
    let counter = Rc::new(RefCell::new(Rc::new(Cell::new(0))));
    let (into, told) = (region.clone(), counter.clone());
    engine.spawn(async move {
        let _port = stack.udp();
        let server = SocketAddr::new(HOST.into(), 80);
        let Ok(mut stream) = stack.connect(server, Duration::from_secs(1)).await else {
            return;
        };
        *told.borrow_mut() = stream.received();
        let _ = stream.write_all(b"request").await;
        let _ = stream.read_into(&into, 0).await;
        // The connection stays, without a destination.
        core::future::pending().await
    });
    let mut turn = |host: &mut Host| {
        for _ in 0..3 {
            let now = Instant::from_micros(clock.now());
            engine.poll(now).expect("the NIC works");
            host.turn();
            clock.advance(60);
        }
    };
    for _ in 0..10 {
        turn(&mut host);
    }
    assert!(host.peer.is_some(), "no SYN");
    let mut rest = data;
    let mut foreign = false;
    while let [kind, after @ ..] = rest {
        let (behind, others) = host.speak(*kind, after);
        foreign |= others;
        rest = behind;
        turn(&mut host);
    }
    let received = counter.borrow().get() as usize;
    let memory = region.take();
    let received = memory.rest(0).get(..received);
    let received = received.expect("no more than the destination holds");
    let sent = |(at, &received): (usize, &u8)| received == byte(at as u32);
    assert!(foreign || received.iter().enumerate().all(sent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_host_is_understood() {
        // In order, behind a gap, the gap filled, old data again.
        fuzz_frames(&[
            1, 0, 0, 180, 0, 3, 0, 4, 100, 0, 1, 0, 0, 255, 0, 3, 0, 255, 90, 0,
        ]);
    }

    proptest! {
        #[test]
        fn no_frames_make_it_panic(data in prop::collection::vec(any::<u8>(), 0..2000)) {
            fuzz_frames(&data);
        }
    }
}
