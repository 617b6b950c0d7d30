//! IPv4 (RFC 791), ARP (RFC 826, RFC 5227) and ICMP (RFC 792).

use super::{Delivery, Interface, NextHop, icmp_delivery};
use crate::checksum;
use crate::fragments::Fragment;
use crate::neighbors::NeighborUpdate;
use crate::packet::{
    ARP_IPV4, Arp, BROADCAST, ETHERTYPE_ARP, IPV4_HEADER, IpVersion, PROTOCOL_ICMP, PROTOCOL_TCP,
    PROTOCOL_UDP, is_host, put,
};
use crate::parts::Parts;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use smoltcp::wire::{Ipv4Cidr, Ipv4Packet};
use wireboot_nic::{MacAddress, Offload};
use wireboot_tcp::Instant;

const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const DESTINATION_UNREACHABLE: u8 = 3;
/// Code of Destination Unreachable.
const PORT_UNREACHABLE: u8 = 3;
/// Bytes of a packet that an error message repeats.
const QUOTED: usize = 576 - IPV4_HEADER - 8;
/// The network of a default route.
const EVERYWHERE: Ipv4Cidr = Ipv4Cidr::new(Ipv4Addr::UNSPECIFIED, 0);

/// The station's address, routes and MTU in IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv4Config {
    /// Our address and the prefix of the link.
    pub address: Ipv4Cidr,
    /// Gateway for destinations that neither the link nor `routes` cover; `None`: they cannot be reached.
    pub router: Option<Ipv4Addr>,
    /// Other routes: destination, and gateway or 0.0.0.0 for what is on the link as well. Gateways of all destinations are tried when
    /// `router` does not answer.
    pub routes: Vec<(Ipv4Cidr, Ipv4Addr)>,
    /// MTU of the network in bytes; the NIC's if smaller or absent.
    pub mtu: Option<u16>,
}

impl Ipv4Config {
    /// Whom a packet to `destination` is handed to: the gateway of the longest matching route, or itself on the link.
    pub(super) fn next_hop(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        if destination.is_broadcast() {
            return Some(destination);
        }
        let router = self.router.map(|router| (EVERYWHERE, router));
        let link = (self.address, Ipv4Addr::UNSPECIFIED);
        // Of routes of one length the last.
        let routes = self.routes.iter().copied().chain(router).chain([link]);
        let (_, gateway) = routes
            .filter(|(network, _)| network.contains_addr(&destination))
            .max_by_key(|(network, _)| network.prefix_len())?;
        Some(if gateway.is_unspecified() {
            destination
        } else {
            gateway
        })
    }

    /// A neighbour does not answer: if it is the router, the next one is tried (RFC 1122, section 3.3.1.4).
    pub(super) fn unreachable(&mut self, neighbor: Ipv4Addr) {
        let others = |(network, gateway): &(Ipv4Cidr, Ipv4Addr)| {
            network.prefix_len() == 0 && !gateway.is_unspecified()
        };
        if self.router == Some(neighbor)
            && let Some(place) = self.routes.iter().position(others)
        {
            let (_, next) = self.routes.remove(place);
            self.routes.push((EVERYWHERE, neighbor));
            self.router = Some(next);
        }
    }
}

/// A packet of some host that is whole and whose header is right.
fn parse(bytes: &[u8]) -> Option<Ipv4Packet<&[u8]>> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    let header = bytes.get(..packet.header_len().into())?;
    let right = packet.version() == 4 && checksum::verify(0, Parts::new(&[header]));
    (right && is_host(packet.src_addr())).then_some(packet)
}

impl Interface {
    /// Our IPv4 address; `None` while there is no configuration.
    pub(crate) fn address4(&self) -> Option<Ipv4Addr> {
        self.v4.as_ref().map(|config| config.address.address())
    }

    /// Hears an ARP packet: who answers, who asks for us, and who uses the address that is being probed (RFC 5227,
    /// section 2.1.1). Returns what it says of its sender.
    pub(crate) fn arp(&mut self, arp: &Arp, now: Instant) -> Option<NeighborUpdate> {
        if arp.sender_mac == self.station {
            return None;
        }
        if let Some((address, claimed)) = &mut self.probe {
            // A probe to us alone is a switch's, which looks whether we are there: probes of others go to all.
            let probed_by_other =
                arp.sender.is_unspecified() && arp.target == *address && !arp.unicast;
            if arp.sender == *address || probed_by_other {
                *claimed = Some(arp.sender_mac);
            }
        }
        let update = (!arp.sender.is_unspecified()).then_some(NeighborUpdate {
            address: arp.sender.into(),
            mac: Some(arp.sender_mac),
            solicited: arp.reply,
            override_: true,
        });
        if let Some(update) = &update {
            self.update_neighbor(update, now);
        }
        if !arp.reply
            && self.address4() == Some(arp.target)
            && let Some(to) = self.way_of_answer(arp.sender.into(), Some(arp.sender_mac), now)
        {
            let frame = arp_packet(2, self.station, arp.target, arp.sender_mac, arp.sender);
            self.push(frame, Offload::None, to);
        }
        update
    }

    /// Sends one probe for the address that is being probed (RFC 5227: a sender address of 0.0.0.0 makes a request a probe).
    pub(crate) fn send_probe(&mut self) {
        if let Some((address, _)) = self.probe {
            let frame = arp_packet(1, self.station, Ipv4Addr::UNSPECIFIED, [0; 6], address);
            self.push(frame, Offload::None, NextHop::Known(BROADCAST));
        }
    }

    /// Asks from the address `us` who has `address`, all or the one that had it.
    pub(super) fn ask4(&mut self, us: Ipv4Addr, address: Ipv4Addr, at: Option<MacAddress>) {
        let frame = arp_packet(1, self.station, us, [0; 6], address);
        let to = NextHop::Known(at.unwrap_or(BROADCAST));
        self.push(frame, Offload::None, to);
    }

    /// Looks at a packet with options, in fragments, or of neither UDP nor TCP, from its header on. `unicast`: to this station on the
    /// link.
    pub(crate) fn ipv4(&mut self, packet: &[u8], unicast: bool, now: Instant) -> Option<Delivery> {
        let packet = parse(packet)?;
        if self.address4() != Some(packet.dst_addr()) || !unicast {
            return None;
        }
        let path = (packet.src_addr().into(), packet.dst_addr().into());
        let protocol = packet.next_header().into();
        if packet.frag_offset() == 0 && !packet.more_frags() {
            return self.upper4(path, protocol, packet.payload(), false, now);
        }
        let fragment = Fragment {
            path,
            id: packet.ident().into(),
            protocol,
            offset: packet.frag_offset(),
            more: packet.more_frags(),
            payload: packet.payload(),
        };
        let whole = self.fragments.take(&fragment, now)?;
        self.upper4(path, whole.protocol, &whole.payload, true, now)
    }

    fn upper4(
        &mut self,
        path: (IpAddr, IpAddr),
        protocol: u8,
        payload: &[u8],
        fragmented: bool,
        now: Instant,
    ) -> Option<Delivery> {
        match protocol {
            PROTOCOL_TCP | PROTOCOL_UDP => Some(self.whole(path, protocol, payload, true)),
            PROTOCOL_ICMP if checksum::verify(0, Parts::new(&[payload])) => {
                self.icmp(path, payload, fragmented, now)
            }
            _ => None,
        }
    }

    fn icmp(
        &mut self,
        path: (IpAddr, IpAddr),
        message: &[u8],
        fragmented: bool,
        now: Instant,
    ) -> Option<Delivery> {
        if message.starts_with(&[ECHO_REQUEST, 0]) {
            if self.mute {
                return None;
            }
            let mut reply = message.to_vec();
            put(&mut reply, 0, [ECHO_REPLY, 0]);
            self.send_icmp((path.1, path.0), reply, now);
            return None;
        }
        icmp_delivery(IpVersion::V4, path, message, fragmented)
    }

    /// Tells the sender of a datagram to us that nobody has its port (RFC 1122, section 4.1.3.1).
    pub(crate) fn port_unreachable4(&mut self, packet: &[u8], now: Instant) {
        let Some(header) = parse(packet) else { return };
        let path = (header.dst_addr().into(), header.src_addr().into());
        // As much as fits into what every host takes (RFC 1812, section 4.3.2.3).
        let quoted = packet.get(..QUOTED).unwrap_or(packet);
        let mut message = vec![DESTINATION_UNREACHABLE, PORT_UNREACHABLE, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(quoted);
        self.send_icmp(path, message, now);
    }

    /// Sends a message to a stranger, unless much waits already.
    fn send_icmp(&mut self, path: (IpAddr, IpAddr), mut message: Vec<u8>, now: Instant) {
        let Some(to) = self.way_of_answer(path.1, None, now) else {
            return;
        };
        put(&mut message, 2, [0, 0]);
        let sum = checksum::compute(0, &message);
        put(&mut message, 2, sum.to_be_bytes());
        let frame = self.over([0; 6], path).frame(PROTOCOL_ICMP, &message);
        self.push(frame, Offload::None, to);
    }
}

/// An ARP packet in a frame whose destination is not set.
fn arp_packet(
    operation: u8,
    station: MacAddress,
    sender: Ipv4Addr,
    target_mac: MacAddress,
    target: Ipv4Addr,
) -> Vec<u8> {
    let mut frame = vec![0; 42];
    put(&mut frame, 6, station);
    put(&mut frame, 12, ETHERTYPE_ARP.to_be_bytes());
    put(&mut frame, 14, ARP_IPV4);
    put(&mut frame, 20, [0, operation]);
    put(&mut frame, 22, station);
    put(&mut frame, 28, sender.octets());
    put(&mut frame, 32, target_mac);
    put(&mut frame, 38, target.octets());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_route_wins_wherever_it_stands() {
        let ip = |last| Ipv4Addr::new(10, 0, 0, last);
        let net = |a, len| Ipv4Cidr::new(Ipv4Addr::new(172, a, 0, 0), len);
        let mut config = Ipv4Config {
            address: Ipv4Cidr::new(ip(1), 24),
            router: Some(ip(254)),
            routes: vec![
                (net(16, 12), ip(2)),
                (net(16, 16), ip(3)),
                (net(16, 14), ip(4)),
            ],
            mtu: None,
        };
        for _ in 0..3 {
            let hop = |a, b, c, d| config.next_hop(Ipv4Addr::new(a, b, c, d)).unwrap();
            assert_eq!(hop(10, 0, 0, 7), ip(7));
            assert_eq!(hop(172, 16, 1, 1), ip(3));
            assert_eq!(hop(172, 17, 1, 1), ip(4));
            assert_eq!(hop(172, 20, 1, 1), ip(2));
            assert_eq!(hop(8, 8, 8, 8), ip(254));
            config.routes.rotate_left(1);
        }
        config.router = None;
        assert_eq!(config.next_hop(Ipv4Addr::new(8, 8, 8, 8)), None);
    }

    /// RFC 1122, section 3.3.1; RFC 3442.
    #[test]
    fn our_network_is_a_route_like_others() {
        let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        let net = |text, len| Ipv4Cidr::new(ip(text), len);
        let (wide, ours, host) = (net("10.0.0.5", 8), net("10.0.0.5", 24), net("10.0.0.5", 32));
        let within = (net("10.9.0.0", 16), "10.0.0.1");
        let same = (net("10.0.0.0", 24), "10.0.0.1");
        // No gateway: it is on the link, too.
        let beside = (net("10.0.1.0", 24), "0.0.0.0");
        let cloud = Some("172.31.1.1");
        let far = (net("192.0.2.0", 24), "172.31.1.1");
        for (address, route, router, to, hop) in [
            (wide, within, None, "10.9.1.1", Some("10.0.0.1")),
            (wide, within, None, "10.8.1.1", Some("10.8.1.1")),
            (ours, same, None, "10.0.0.9", Some("10.0.0.9")),
            (ours, beside, Some("10.0.0.1"), "10.0.1.9", Some("10.0.1.9")),
            (ours, beside, Some("10.0.0.1"), "10.0.2.9", Some("10.0.0.1")),
            // A router that is not in our network.
            (host, far, None, "192.0.2.9", cloud),
            (host, far, None, "10.0.0.9", None),
            (host, far, cloud, "10.0.0.9", cloud),
            (host, far, cloud, "172.31.1.1", cloud),
            (host, far, None, "255.255.255.255", Some("255.255.255.255")),
        ] {
            let config = Ipv4Config {
                address,
                router: router.map(ip),
                routes: vec![(route.0, ip(route.1))],
                mtu: None,
            };
            assert_eq!(config.next_hop(ip(to)), hop.map(ip), "{to} from {address}");
        }
    }

    #[test]
    fn the_next_router_is_tried_when_one_does_not_answer() {
        let ip = |last| Ipv4Addr::new(10, 0, 0, last);
        let on_link = (EVERYWHERE, Ipv4Addr::UNSPECIFIED);
        let mut config = Ipv4Config {
            address: Ipv4Cidr::new(ip(9), 24),
            router: Some(ip(1)),
            routes: vec![on_link, (EVERYWHERE, ip(2)), (EVERYWHERE, ip(3))],
            mtu: None,
        };
        let far = Ipv4Addr::new(8, 8, 8, 8);
        for router in [1, 2, 3, 1, 2] {
            config.unreachable(ip(77));
            assert_eq!(config.next_hop(far), Some(ip(router)));
            config.unreachable(ip(router));
        }
        config.routes = vec![on_link];
        config.unreachable(ip(3));
        assert_eq!(config.next_hop(far), Some(ip(3)), "there is no other");
    }
}
