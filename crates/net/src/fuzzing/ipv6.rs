//! The bodies of fuzz targets for IPv6, and for fragments of both versions. They panic when a promise is broken.

use crate::fragments::{Fragment, Fragments, PACKETS};
use crate::ipv6::header::{self, ICMP, Packet};
use crate::ipv6::mld::Mld;
use crate::ipv6::ndisc::{self, Message};
use crate::ipv6::slaac::Slaac;
use crate::ipv6::source::Candidate;
use crate::ipv6::{ALL_NODES, ALL_ROUTERS, icmp, solicited_node};
use crate::neighbors::{Cache, Due, NeighborUpdate};
use crate::packet::{IpVersion, PROTOCOL_UDP, array};
use crate::path_mtu;
use crate::quote;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wireboot_tcp::{Duration, Instant};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// Nobody's, and never asked for.
const STRANGER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

/// The next `len` bytes, or what is left.
fn take<'d>(data: &mut &'d [u8], len: usize) -> &'d [u8] {
    let (taken, rest) = data.split_at(len.min(data.len()));
    *data = rest;
    taken
}

/// An interface with a link-local address that has passed duplicate address detection, which asks for its router.
struct Station {
    slaac: Slaac,
    cache: Cache,
    mld: Mld,
    us: Ipv6Addr,
    now: Instant,
}

impl Station {
    fn new() -> Self {
        let now = Instant::ZERO;
        let slaac = Slaac::new(MAC, 1500, [3; 6], now);
        let us = slaac.link_local(now).expect("a link-local address");
        let mut station = Self {
            slaac,
            cache: Cache::default(),
            mld: Mld::default(),
            us,
            now,
        };
        station.cache.want(ROUTER.into(), false, now);
        station.turn();
        station.now += Duration::from_secs(1);
        station.turn();
        station
    }

    /// Sends what is due. All of it is understood.
    fn turn(&mut self) {
        let now = self.now;
        self.mld.set(self.slaac.groups(now), now);
        while let Some(bytes) = self.slaac.due(now) {
            let packet = Packet::parse(&bytes).expect("a packet");
            let asks_routers = packet.destination == ALL_ROUTERS;
            assert!(asks_routers || read(&bytes).is_some());
        }
        while let Some(bytes) = self.mld.due(self.us, 0x8000, now) {
            let packet = Packet::parse(&bytes).expect("a packet");
            let upper = packet.upper().expect("a report");
            assert!(upper.router_alert && upper.protocol == ICMP);
        }
        while let Some(due) = self.cache.due(now) {
            let (Due::Ask(address, _) | Due::Failed(address)) = due;
            assert_eq!(address, ROUTER);
            if due == Due::Failed(address) {
                self.slaac.routers.unreachable(ROUTER);
            }
        }
    }

    fn packet(&mut self, bytes: &[u8]) {
        let now = self.now;
        let Some(packet) = Packet::parse(bytes) else {
            return;
        };
        let upper = match packet.upper() {
            Ok(upper) if upper.protocol == ICMP => upper,
            Ok(_) => return,
            Err(_) => {
                icmp::error(self.us, icmp::PARAMETER_PROBLEM, 2, 0, bytes, false);
                return;
            }
        };
        if !icmp::verify(packet.source, packet.destination, upper.payload) {
            return;
        }
        self.mld.heard(&packet, 0x8000, now);
        icmp::echo_reply(packet.source, self.us, upper.payload);
        quote::port_unreachable(IpVersion::V6, upper.payload);
        path_mtu::parse(IpVersion::V6, upper.payload);
        if let Some(message) = read(bytes) {
            self.message(packet.source, &message);
        }
    }

    fn hear(&mut self, address: Ipv6Addr, mac: Option<[u8; 6]>, solicited: bool, override_: bool) {
        let update = NeighborUpdate {
            address: address.into(),
            mac,
            solicited,
            override_,
        };
        let ours = self.slaac.is_ours(address, self.now);
        self.cache.update(&update, ours, self.now);
    }

    fn message(&mut self, source: Ipv6Addr, message: &Message) {
        let now = self.now;
        match message {
            Message::RouterAdvertisement(said) => {
                self.hear(source, said.source_link, false, true);
                self.slaac.heard_ra(source, said, now);
            }
            Message::NeighborSolicitation(said) => {
                self.hear(source, said.source_link, false, true);
                let answer = self.slaac.heard_ns(source, said, now);
                assert!(answer.is_none_or(|bytes| read(&bytes).is_some()));
            }
            Message::NeighborAdvertisement(said) => {
                self.hear(
                    said.target,
                    said.target_link,
                    said.solicited,
                    said.override_,
                );
                self.slaac.heard_na(said, now);
            }
            Message::Redirect(said) => {
                if self.slaac.routers.heard_redirect(source, said, now) {
                    self.hear(said.target, said.target_link, false, true);
                }
            }
        }
    }

    /// What no packet changes.
    fn check(&mut self) {
        let (slaac, now) = (&self.slaac, self.now);
        assert_eq!(slaac.link_local(now), Some(self.us));
        let us = |candidate: &Candidate| candidate.address == self.us;
        let us = slaac.candidates(now).find(us);
        assert!(us.is_some_and(|us| !us.deprecated));
        assert!(slaac.candidates(now).count() <= 9);
        let routers = &slaac.routers;
        assert!((1280..=1500).contains(&routers.mtu()));
        assert!(routers.dns.iter(now).count() <= 4 && routers.search.iter(now).count() <= 8);
        assert_eq!(routers.next_hop(STRANGER, now), Some(STRANGER));
        for unknown in [STRANGER, self.us] {
            assert_eq!(self.cache.lookup(unknown.into(), now), None);
        }
        if let Some(mac) = self.cache.lookup(ROUTER.into(), now) {
            assert!(mac[0] & 1 == 0 && mac != [0; 6]);
        }
    }
}

/// The message of neighbour discovery in a packet with a right checksum.
fn read(bytes: &[u8]) -> Option<Message> {
    let packet = Packet::parse(bytes)?;
    let upper = packet.upper().ok()?;
    let right = upper.protocol == ICMP
        && !upper.fragmented
        && icmp::verify(packet.source, packet.destination, upper.payload);
    right.then(|| ndisc::parse(&packet, upper.payload))?
}

/// Packets to a station whose link-local address has passed duplicate address detection. Each piece of the input: how it comes, its length, its bytes.
pub fn fuzz_nd(mut data: &[u8]) {
    let mut station = Station::new();
    while let [kind, low, high, rest @ ..] = data {
        let len = usize::from(u16::from_le_bytes([*low, *high])) % 1500;
        data = rest;
        let bytes = take(&mut data, len);
        let destination = if kind & 2 == 0 { ALL_NODES } else { station.us };
        let built = match kind & 0x0f {
            // As it is.
            0 => bytes.to_vec(),
            // Behind extension headers that are in the input as well.
            1 => header::packet(ROUTER, destination, kind >> 4, 1, bytes),
            // A message from the router, or from somebody who wants an address.
            kind => {
                let mut message = bytes.to_vec();
                if let Some(checksum) = message.get_mut(2..4) {
                    checksum.fill(0);
                }
                let target =
                    array(&message, 8).map_or(station.us, |octets: [u8; 16]| octets.into());
                let (source, destination) = match kind & 4 {
                    0 => (ROUTER, destination),
                    _ => (Ipv6Addr::UNSPECIFIED, solicited_node(target)),
                };
                icmp::packet(source, destination, 255, message)
            }
        };
        station.packet(&built);
        station.now += Duration::from_millis(u64::from(*kind));
        station.turn();
        station.check();
    }
}

/// Fragments of a few packets: of those whose bytes are honest, each whole one is as it was.
pub fn fuzz_fragments(mut data: &[u8]) {
    let honest = |id: u8, at: usize| (at ^ (at >> 8)) as u8 ^ id;
    let mut table = Fragments::default();
    let mut now = Instant::ZERO;
    // Ids of which a forged piece came.
    let mut forged = Vec::new();
    while let [kind, id, units, len, rest @ ..] = data {
        data = rest;
        let v4 = kind & 1 != 0;
        let offset = usize::from(*units) * if kind & 2 == 0 { 8 } else { 256 };
        let len = usize::from(*len) * if kind & 4 == 0 { 8 } else { 61 };
        let payload: Vec<u8> = match kind & 8 {
            0 => (offset..offset + len).map(|at| honest(*id, at)).collect(),
            _ => {
                forged.push((v4, *id));
                take(&mut data, len).to_vec()
            }
        };
        let host = |last: u8| match v4 {
            true => IpAddr::from(Ipv4Addr::new(10, 0, 0, last)),
            false => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last.into()).into(),
        };
        let fragment = Fragment {
            path: (host(id >> 5), host(1)),
            id: (*id).into(),
            // UDP, or extension headers of the input's.
            protocol: if kind & 0x40 == 0 { PROTOCOL_UDP } else { 60 },
            offset: offset as u16,
            more: kind & 0x10 != 0,
            payload: &payload,
        };
        if let Some(whole) = table.take(&fragment, now) {
            let right = |(at, byte): (usize, &u8)| *byte == honest(*id, at);
            let as_it_was = whole.payload.iter().enumerate().all(right);
            assert!(as_it_was || forged.contains(&(v4, *id)));
            header::upper_of_whole(whole.protocol, &whole.payload);
        }
        assert!(table.memory() <= PACKETS * 65_536);
        now += Duration::from_millis(if kind & 0x20 == 0 { 1 } else { 300 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_packets_break_a_promise(data in prop::collection::vec(any::<u8>(), 0..2000)) {
            fuzz_nd(&data);
        }

        #[test]
        fn no_fragments_break_a_promise(data in prop::collection::vec(any::<u8>(), 0..400)) {
            fuzz_fragments(&data);
        }
    }
}
