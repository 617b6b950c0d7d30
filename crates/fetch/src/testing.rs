//! For tests: a task on an engine, scripted hosts at the other end of a simulated link, and memory whose committed bytes are final.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::SocketAddrV4;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr,
    UdpPacket, UdpRepr,
};
use wireboot_net::{Engine, Instant, Ipv4Addr, Memory, MemoryBlock, Stack};
use wireboot_nic::sim::{self, LinkConfig, SimNic};
use wireboot_nic::{Nic, Offload, Receive, Transmit};
use wireboot_ring::{HeapBlock, PrefixReader, PrefixWriter, prefix};

/// Station address of the scripted hosts.
pub(crate) const HOSTS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
/// A simulated second, in microseconds.
pub(crate) const SECOND: i64 = 1_000_000;
/// Bytes of a piece of memory.
const PIECE: usize = 999;

/// Memory for a file, in small pieces, beginning as `previous` does so far as that is filled. Committed bytes cannot be written again,
/// so a file of which some were committed too early arrives wrong. `committed` counts them. Parts can be lent.
pub(crate) fn memory(
    bytes: u64,
    previous: Option<(Memory, u64)>,
    committed: &Arc<AtomicUsize>,
) -> Memory {
    let mut room = vec![0xee; bytes as usize];
    if let Some((old, filled)) = previous {
        let filled = filled as usize;
        room[..filled].copy_from_slice(&content(&old, filled));
    }
    committed.store(0, Ordering::Relaxed);
    let (writer, reader) = prefix(HeapBlock::in_pieces(&room, PIECE));
    Memory::new(Committing(writer, reader, committed.clone()))
}

/// The first `len` bytes of `memory`.
pub(crate) fn content(memory: &Memory, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        bytes.extend(memory.rest(bytes.len()));
    }
    bytes.truncate(len);
    bytes
}

struct Committing(
    PrefixWriter<HeapBlock>,
    PrefixReader<HeapBlock>,
    Arc<AtomicUsize>,
);

impl MemoryBlock for Committing {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn rest(&self, at: usize) -> &[u8] {
        self.0.rest(at)
    }
    fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        self.0.rest_mut(at)
    }
    fn commit(&mut self, len: usize) {
        assert!(len <= self.0.len(), "committed beyond the end");
        self.0.commit(len);
        let last = len.saturating_sub(1);
        let seen = last + self.1.committed(last).len();
        assert!(seen >= len, "committed what is lent");
        self.2.fetch_max(len, Ordering::Relaxed);
    }
    fn lend(&mut self, range: Range<usize>) -> Option<Memory> {
        self.0.lend(range).map(Memory::new)
    }
}

/// A UDP datagram that the task has sent, or that a script answers with.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub source: SocketAddrV4,
    pub destination: SocketAddrV4,
    pub payload: Vec<u8>,
    /// When a sent one arrived; how long an answer waits. In microseconds.
    pub micros: i64,
    /// No answer but a word of the host that nobody listens there.
    pub refusal: bool,
}

impl Datagram {
    /// The answer from where this went to where it came from.
    pub(crate) fn answer(&self, payload: Vec<u8>) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            payload,
            micros: 0,
            refusal: false,
        }
    }

    /// What a host says (ICMP port unreachable) on which nobody listens where this went.
    pub(crate) fn refused(&self) -> Self {
        Self {
            refusal: true,
            ..self.answer(Vec::new())
        }
    }
}

/// The hosts at the other end of the link: all of them at one NIC, which answers ARP for them, and UDP by the script.
struct ScriptedHosts<'a> {
    nic: SimNic,
    hosts: &'a [Ipv4Addr],
    script: &'a mut dyn FnMut(&Datagram) -> Vec<Datagram>,
    waiting: BTreeMap<(i64, usize), Vec<u8>>,
    sent: usize,
}

impl ScriptedHosts<'_> {
    fn poll(&mut self, now: i64) {
        let mut frames = Vec::new();
        self.nic
            .split()
            .0
            .burst(64, |frame| frames.push(frame.parts.concat()))
            .unwrap();
        for frame in frames {
            self.frame(&frame, now);
        }
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 <= now
        {
            let frame = entry.remove();
            let (_, tx) = self.nic.split();
            tx.send(frame.len(), Offload::None, &mut |memory| {
                memory.copy_from_slice(&frame)
            })
            .unwrap();
            tx.flush().unwrap();
        }
    }

    fn frame(&mut self, bytes: &[u8], now: i64) {
        let Ok(frame) = EthernetFrame::new_checked(bytes) else {
            return;
        };
        match frame.ethertype() {
            EthernetProtocol::Arp => {
                let Ok(packet) = ArpPacket::new_checked(frame.payload()) else {
                    return;
                };
                let Ok(ArpRepr::EthernetIpv4 {
                    operation: ArpOperation::Request,
                    source_hardware_addr,
                    source_protocol_addr,
                    target_protocol_addr,
                    ..
                }) = ArpRepr::parse(&packet)
                else {
                    return;
                };
                if !self.hosts.contains(&target_protocol_addr) {
                    return;
                }
                let repr = ArpRepr::EthernetIpv4 {
                    operation: ArpOperation::Reply,
                    source_hardware_addr: EthernetAddress(HOSTS_MAC),
                    source_protocol_addr: target_protocol_addr,
                    target_hardware_addr: source_hardware_addr,
                    target_protocol_addr: source_protocol_addr,
                };
                let mut arp = alloc::vec![0; repr.buffer_len()];
                repr.emit(&mut ArpPacket::new_unchecked(&mut arp));
                self.send(now, EthernetProtocol::Arp, source_hardware_addr, &arp);
            }
            EthernetProtocol::Ipv4 => {
                let Ok(packet) = Ipv4Packet::new_checked(frame.payload()) else {
                    return;
                };
                let Ok(udp) = UdpPacket::new_checked(packet.payload()) else {
                    return;
                };
                let (source, destination) = (packet.src_addr(), packet.dst_addr());
                if !udp.verify_checksum(&source.into(), &destination.into()) {
                    return;
                }
                let datagram = Datagram {
                    source: SocketAddrV4::new(source, udp.src_port()),
                    destination: SocketAddrV4::new(destination, udp.dst_port()),
                    payload: udp.payload().to_vec(),
                    micros: now,
                    refusal: false,
                };
                for answer in (self.script)(&datagram) {
                    let ip = if answer.refusal {
                        port_unreachable(&packet)
                    } else {
                        udp_packet(&answer)
                    };
                    let to = if answer.destination.ip().is_broadcast() {
                        EthernetAddress::BROADCAST
                    } else {
                        frame.src_addr()
                    };
                    self.send(now + answer.micros, EthernetProtocol::Ipv4, to, &ip);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, at: i64, ethertype: EthernetProtocol, to: EthernetAddress, payload: &[u8]) {
        let repr = EthernetRepr {
            src_addr: EthernetAddress(HOSTS_MAC),
            dst_addr: to,
            ethertype,
        };
        let mut frame = alloc::vec![0; repr.buffer_len() + payload.len()];
        repr.emit(&mut EthernetFrame::new_unchecked(&mut frame));
        frame[repr.buffer_len()..].copy_from_slice(payload);
        self.waiting.insert((at, self.sent), frame);
        self.sent += 1;
    }
}

fn udp_packet(datagram: &Datagram) -> Vec<u8> {
    let (source, destination) = (*datagram.source.ip(), *datagram.destination.ip());
    let udp = UdpRepr {
        src_port: datagram.source.port(),
        dst_port: datagram.destination.port(),
    };
    let ip = Ipv4Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + datagram.payload.len(),
        hop_limit: 64,
    };
    let mut packet = alloc::vec![0; ip.buffer_len() + ip.payload_len];
    ip.emit(
        &mut Ipv4Packet::new_unchecked(&mut packet),
        &ChecksumCapabilities::default(),
    );
    udp.emit(
        &mut UdpPacket::new_unchecked(&mut packet[ip.buffer_len()..]),
        &source.into(),
        &destination.into(),
        datagram.payload.len(),
        |memory| memory.copy_from_slice(&datagram.payload),
        &ChecksumCapabilities::default(),
    );
    packet
}

/// What the destination of `packet` says when nobody listens.
fn port_unreachable(packet: &Ipv4Packet<&[u8]>) -> Vec<u8> {
    let header = Ipv4Repr {
        src_addr: packet.src_addr(),
        dst_addr: packet.dst_addr(),
        next_header: IpProtocol::Udp,
        payload_len: packet.payload().len(),
        hop_limit: packet.hop_limit(),
    };
    let icmp = Icmpv4Repr::DstUnreachable {
        reason: Icmpv4DstUnreachable::PortUnreachable,
        header,
        data: packet.payload().get(..8).unwrap_or_default(),
    };
    let ip = Ipv4Repr {
        src_addr: packet.dst_addr(),
        dst_addr: packet.src_addr(),
        next_header: IpProtocol::Icmp,
        payload_len: icmp.buffer_len(),
        hop_limit: 64,
    };
    let mut out = alloc::vec![0; ip.buffer_len() + ip.payload_len];
    let checksums = ChecksumCapabilities::default();
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut out), &checksums);
    let start = ip.buffer_len();
    icmp.emit(
        &mut Icmpv4Packet::new_unchecked(&mut out[start..]),
        &checksums,
    );
    out
}

/// Runs `task` against hosts that answer ARP and, by the script, UDP: its result and the simulated time it took, in
/// microseconds.
///
/// # Panics
/// When the task does not end within 400 simulated seconds.
pub(crate) fn run<T: 'static>(
    link: LinkConfig,
    seed: u64,
    hosts: &[Ipv4Addr],
    mut script: impl FnMut(&Datagram) -> Vec<Datagram>,
    task: impl AsyncFnOnce(Stack) -> T + 'static,
) -> (T, i64) {
    let (near, nic) = sim::link(link, link, seed);
    let clock = near.clock();
    let mut engine = Engine::new(near, [seed as u8; 32]);
    let mut others = ScriptedHosts {
        nic,
        hosts,
        script: &mut script,
        waiting: BTreeMap::new(),
        sent: 0,
    };
    let result = Rc::new(RefCell::new(None));
    let (stack, out) = (engine.stack(), result.clone());
    engine.spawn(async move {
        let value = task(stack).await;
        *out.borrow_mut() = Some(value);
    });
    loop {
        let now = clock.now();
        engine.poll(Instant::from_micros(now)).unwrap();
        if let Some(value) = result.borrow_mut().take() {
            return (value, now);
        }
        others.poll(now);
        assert!(now < 400 * SECOND, "the task does not end");
        let events = [
            engine.nic_mut().next_delivery(),
            others.nic.next_delivery(),
            others.waiting.first_key_value().map(|((at, _), _)| *at),
        ];
        let next = events.into_iter().flatten().min().unwrap_or(i64::MAX);
        clock.set(next.clamp(now + 1, now + 1000));
    }
}
