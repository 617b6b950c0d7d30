//! IPv6 (RFC 8200), neighbour and router discovery (RFC 4861), ICMPv6 (RFC 4443) on the link.

use super::{Delivery, Interface, NextHop, group_mac, icmp_delivery};
use crate::fragments::Fragment;
use crate::ipv6::header::{ICMP, Packet, Refusal, Upper, upper_of_whole};
use crate::ipv6::icmp::{self, DESTINATION_UNREACHABLE, PARAMETER_PROBLEM};
use crate::ipv6::mld::{self, Mld};
use crate::ipv6::ndisc::{self, Message, NeighborSolicitation, Nonce};
use crate::ipv6::slaac::Slaac;
use crate::ipv6::solicited_node;
use crate::ipv6::source::choose;
use crate::neighbors::NeighborUpdate;
use crate::packet::{ETHERTYPE_IPV6, IpVersion, PROTOCOL_TCP, PROTOCOL_UDP, put};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use wireboot_nic::{MacAddress, Offload};
use wireboot_tcp::Instant;

/// Code of Destination Unreachable.
const PORT_UNREACHABLE: u8 = 4;

/// What routers have said, put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterInfo {
    /// Addresses come from DHCPv6 (M).
    pub managed: bool,
    /// Other things come from DHCPv6 (O).
    pub other: bool,
    /// MTU of the link in bytes.
    pub mtu: u16,
    /// DNS servers (RFC 8106).
    pub dns: Vec<Ipv6Addr>,
    /// Domains to search (RFC 8106).
    pub search: Vec<String>,
}

/// The station's IPv6 half.
pub(super) struct V6 {
    pub slaac: Slaac,
    mld: Mld,
}

impl V6 {
    pub(super) fn source(&self, remote: Ipv6Addr, now: Instant) -> Option<Ipv6Addr> {
        choose(remote, self.slaac.candidates(now)).map(|candidate| candidate.address)
    }

    pub(super) fn next_hop(&self, remote: Ipv6Addr, now: Instant) -> Option<Ipv6Addr> {
        if remote.is_multicast() {
            return Some(remote);
        }
        self.slaac.routers.next_hop(remote, now)
    }

    pub(super) fn poll_at(&self, now: Instant) -> Option<Instant> {
        let times = [self.slaac.poll_at(now), self.mld.poll_at()];
        times.into_iter().flatten().min()
    }
}

impl Interface {
    /// Begins with IPv6: a link-local address, groups, and looking for routers.
    pub(crate) fn ipv6_up(&mut self, now: Instant) {
        if self.v6.is_some() {
            return;
        }
        let mut nonce = Nonce::default();
        self.random.fill(&mut nonce);
        self.v6 = Some(V6 {
            slaac: Slaac::new(self.station, self.link_mtu, nonce, now),
            mld: Mld::default(),
        });
        self.changed = true;
    }

    /// What routers have said; `None` before one has.
    pub(crate) fn router(&self, now: Instant) -> Option<RouterInfo> {
        let routers = &self.v6.as_ref()?.slaac.routers;
        routers.heard_at?;
        Some(RouterInfo {
            managed: routers.managed,
            other: routers.other,
            mtu: routers.mtu(),
            dns: routers.dns.iter(now).copied().collect(),
            search: routers.search.iter(now).cloned().collect(),
        })
    }

    /// Whether more than link-local addresses can be reached.
    pub(crate) fn has_ipv6_route(&self, now: Instant) -> bool {
        self.slaac().is_some_and(|v6| v6.routers.has_route(now))
    }

    /// Takes an address that DHCPv6 has given.
    pub(crate) fn add6(&mut self, address: Ipv6Addr, now: Instant) -> bool {
        self.changed = true;
        let v6 = self.v6.as_mut();
        v6.is_some_and(|v6| v6.slaac.add(address, now))
    }

    /// Our IPv6 addresses, once [`Self::ipv6_up`] was called.
    pub(crate) fn slaac(&self) -> Option<&Slaac> {
        self.v6.as_ref().map(|v6| &v6.slaac)
    }

    /// Sends what duplicate address detection, router discovery and listener discovery have to send.
    pub(super) fn turn6(&mut self, now: Instant) {
        let mut out = Vec::new();
        if let Some(v6) = &mut self.v6 {
            while let Some(packet) = v6.slaac.due(now) {
                out.push(packet);
            }
            v6.mld.set(v6.slaac.groups(now), now);
            let source = v6.slaac.link_local(now).unwrap_or(Ipv6Addr::UNSPECIFIED);
            if v6.mld.poll_at().is_some_and(|at| now >= at) {
                let random = self.random.next_u16();
                out.extend(v6.mld.due(source, random, now));
            }
        }
        for packet in out {
            self.send6(&packet, None);
        }
    }

    /// Sends a whole packet to `mac`, or else to the group that it is for.
    fn send6(&mut self, packet: &[u8], mac: Option<MacAddress>) {
        let group = || group_mac(Packet::parse(packet)?.destination.into());
        if let Some(mac) = mac.or_else(group) {
            self.push6(packet, NextHop::Known(mac));
        }
    }

    fn push6(&mut self, packet: &[u8], to: NextHop) {
        let mut frame = vec![0; 14];
        put(&mut frame, 6, self.station);
        put(&mut frame, 12, ETHERTYPE_IPV6.to_be_bytes());
        frame.extend_from_slice(packet);
        self.push(frame, Offload::None, to);
    }

    /// Answers a stranger, at `mac` if that is known, unless much waits already.
    fn answer6(&mut self, packet: &[u8], mac: Option<MacAddress>, now: Instant) {
        if let Some(answer) = Packet::parse(packet)
            && let Some(to) = self.way_of_answer(answer.destination.into(), mac, now)
        {
            self.push6(packet, to);
        }
    }

    /// Tells the sender of a datagram to us that nobody has its port (RFC 4443, section 3.1).
    pub(crate) fn port_unreachable6(&mut self, packet: &[u8], now: Instant) {
        let (kind, code) = (DESTINATION_UNREACHABLE, PORT_UNREACHABLE);
        if let Some(us) = Packet::parse(packet).map(|packet| packet.destination)
            && let Some(error) = icmp::error(us, kind, code, 0, packet, false)
        {
            self.answer6(&error, None, now);
        }
    }

    /// Asks from the address `us` who has `address`: its group, or the one that had it.
    pub(super) fn ask6(
        &mut self,
        us: Ipv6Addr,
        address: Ipv6Addr,
        at: Option<MacAddress>,
        now: Instant,
    ) {
        // Nobody shall remember an address that may be somebody else's, and without ours nobody answers (RFC 4429, section 3.2;
        // RFC 4861, section 7.2.2).
        if let Some(until) = self.slaac().and_then(|v6| v6.optimistic_until(us, now)) {
            self.neighbors.postpone(address.into(), until);
            return;
        }
        let solicitation = NeighborSolicitation {
            target: address,
            source_link: Some(self.station),
            nonce: None,
        };
        let to = match at {
            Some(_) => address,
            None => solicited_node(address),
        };
        self.send6(&solicitation.packet(us, to), at);
    }

    /// Looks at a packet with extension headers, in fragments, or of neither UDP nor TCP, from its header on. `unicast`: to this station
    /// on the link.
    pub(crate) fn ipv6(&mut self, bytes: &[u8], unicast: bool, now: Instant) -> Option<Delivery> {
        let packet = Packet::parse(bytes)?;
        let v6 = self.v6.as_ref()?;
        let ours = unicast && v6.slaac.is_ours(packet.destination, now);
        // In a frame to us alone, too (RFC 6085).
        let group = v6.mld.listens_to(packet.destination);
        if !ours && !group {
            return None;
        }
        match packet.upper() {
            Ok(Upper {
                fragment: Some(place),
                protocol,
                payload,
                ..
            }) => {
                let fragment = Fragment {
                    path: (packet.source.into(), packet.destination.into()),
                    id: place.id,
                    protocol,
                    offset: place.offset,
                    more: place.more,
                    payload,
                };
                let whole = self.fragments.take(&fragment, now)?;
                let upper = upper_of_whole(whole.protocol, &whole.payload)?;
                self.upper6(&packet, &upper, ours, now)
            }
            Ok(upper) => self.upper6(&packet, &upper, ours, now),
            Err(Refusal::Drop) => None,
            Err(Refusal::Problem {
                code,
                pointer,
                to_group,
            }) => {
                if self.mute || !self.may_refuse(packet.source.into(), now) {
                    return None;
                }
                let us = self.v6.as_ref()?.source(packet.source, now)?;
                let us = if ours { packet.destination } else { us };
                let error = icmp::error(us, PARAMETER_PROBLEM, code, pointer, bytes, to_group)?;
                self.answer6(&error, None, now);
                None
            }
        }
    }

    /// What is behind the headers of a packet, in one piece.
    fn upper6(
        &mut self,
        packet: &Packet<'_>,
        upper: &Upper<'_>,
        ours: bool,
        now: Instant,
    ) -> Option<Delivery> {
        let path = (packet.source.into(), packet.destination.into());
        let message = upper.payload;
        match upper.protocol {
            PROTOCOL_TCP | PROTOCOL_UDP => {
                return Some(self.whole(path, upper.protocol, message, ours));
            }
            ICMP if icmp::verify(packet.source, packet.destination, message) => {}
            _ => return None,
        }
        match *message.first()? {
            // Neighbour discovery never comes in fragments (RFC 6980).
            133..=137 if !upper.fragmented => {
                let said = ndisc::parse(packet, message)?;
                let update = self.discovery(packet.source, &said, now)?;
                self.update_neighbor(&update, now);
                Some(Delivery::Neighbor(update))
            }
            mld::QUERY => {
                let random = self.random.next_u16();
                self.v6.as_mut()?.mld.heard(packet, random, now);
                self.changed = true;
                None
            }
            _ if !ours => None,
            _ => {
                if !self.mute
                    && let Some(reply) =
                        icmp::echo_reply(packet.source, packet.destination, message)
                {
                    self.answer6(&reply, None, now);
                    return None;
                }
                icmp_delivery(IpVersion::V6, path, message, upper.fragmented)
            }
        }
    }

    /// Neighbour and router discovery, whose messages are checked already. Returns what is said of a neighbour's Ethernet address.
    fn discovery(
        &mut self,
        source: Ipv6Addr,
        said: &Message,
        now: Instant,
    ) -> Option<NeighborUpdate> {
        self.changed = true;
        let v6 = self.v6.as_mut()?;
        // Who speaks for itself, asked or not.
        let speaks = |mac: Option<MacAddress>| mac.map(|mac| NeighborUpdate::unasked(source, mac));
        match said {
            // We are no router.
            Message::RouterAdvertisement(_) if v6.slaac.is_ours(source, now) => None,
            Message::RouterAdvertisement(said) => {
                v6.slaac.heard_ra(source, said, now);
                speaks(said.source_link)
            }
            Message::NeighborSolicitation(said) => {
                if let Some(packet) = v6.slaac.heard_ns(source, said, now) {
                    self.answer6(&packet, said.source_link, now);
                }
                speaks(said.source_link)
            }
            Message::NeighborAdvertisement(said) => {
                v6.slaac.heard_na(said, now);
                Some(NeighborUpdate {
                    address: said.target.into(),
                    mac: said.target_link,
                    solicited: said.solicited,
                    override_: said.override_,
                })
            }
            Message::Redirect(said) => {
                let known = v6.slaac.routers.heard_redirect(source, said, now);
                let mac = said.target_link.filter(|_| known)?;
                Some(NeighborUpdate::unasked(said.target, mac))
            }
        }
    }
}
