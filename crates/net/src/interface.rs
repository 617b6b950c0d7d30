//! The station on its link, over both IP versions: addresses, routes, neighbours, and the packets that wait for one.

mod leader_routes;
mod outbox;
mod v4;
mod v6;

pub use leader_routes::Route;
pub use v4::Ipv4Config;
pub use v6::RouterInfo;

use crate::echo::{self, EchoNews};
use crate::error::NetError;
use crate::fragments::Fragments;
use crate::ipv6::source::{Candidate, order};
use crate::ipv6::{is_unicast, multicast_mac};
use crate::neighbors::{Cache, Due, NeighborUpdate};
use crate::output::{Path, datagram_len, headers_len};
use crate::packet::{BROADCAST, ETHERNET_HEADER, IpVersion, is_host, put};
use crate::path_mtu::{self, PathMtus, TooBig};
use crate::quote::{Quoted, port_unreachable};
use crate::random::Random;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use leader_routes::LeaderRoutes;
use outbox::{Outbox, Outgoing};
use v6::V6;
use wireboot_nic::{Fault, MacAddress, Offload, Properties, SendError, Transmit};
use wireboot_tcp::{Duration, Instant};

/// Errors and resets that strangers are sent in any [`REFUSALS_TIME`] (RFC 4443, section 2.4 f).
const REFUSALS: u32 = 10;
const REFUSALS_TIME: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
enum NextHop {
    Known(MacAddress),
    Neighbor(IpAddr),
}

/// What a packet that was looked at in one piece means to the rest of the engine.
pub(crate) enum Delivery {
    /// A frame with a UDP datagram or TCP segment, put together from fragments or freed of options and extension headers.
    Whole(Vec<u8>),
    /// A host says that nobody took our datagram.
    Refused(Quoted),
    /// A packet of ours was too long for the path.
    TooBig(TooBig),
    /// An echo request, perhaps one of ours, was answered or too long.
    Echo(EchoNews),
    /// A neighbour told its Ethernet address.
    Neighbor(NeighborUpdate),
}

/// All that belongs to the link and the IP layers.
pub(crate) struct Interface {
    station: MacAddress,
    /// Largest IP packet on the link, as the card has it.
    link_mtu: u16,
    /// The card completes transport checksums.
    device: bool,
    pub v4: Option<Ipv4Config>,
    v6: Option<V6>,
    /// A worker's, which has neither of these.
    pub leader_routes: LeaderRoutes,
    neighbors: Cache,
    pub path_mtus: PathMtus,
    fragments: Fragments,
    outbox: Outbox,
    /// An address that is being probed, and who claimed it.
    pub probe: Option<(Ipv4Addr, Option<MacAddress>)>,
    /// Somebody else answers echo requests.
    pub mute: bool,
    refusals: u32,
    refused: Instant,
    /// When something is due, unless it changed since.
    wake: Option<Instant>,
    changed: bool,
    /// For delays, and for what tells our packets from others'.
    random: Random,
}

impl Interface {
    pub(crate) fn new(properties: &Properties, random: Random) -> Self {
        Self {
            station: properties.mac,
            link_mtu: properties.mtu,
            device: properties.transmit_checksum,
            v4: None,
            v6: None,
            leader_routes: LeaderRoutes::default(),
            neighbors: Cache::default(),
            path_mtus: PathMtus::default(),
            fragments: Fragments::default(),
            outbox: Outbox::default(),
            probe: None,
            mute: false,
            refusals: 0,
            refused: Instant::ZERO,
            wake: None,
            changed: false,
            random,
        }
    }

    /// Whether `address` is one of ours.
    #[inline]
    pub(crate) fn is_ours(&self, address: IpAddr, now: Instant) -> bool {
        let configured = match address {
            IpAddr::V4(address) => self.address4() == Some(address),
            IpAddr::V6(address) => self.slaac().is_some_and(|v6| v6.is_ours(address, now)),
        };
        configured || self.leader_routes.is_ours(address)
    }

    /// How packets get to `remote`, for another engine of the team. `None` without an address or a route.
    pub(crate) fn route(&self, remote: IpAddr, now: Instant) -> Option<Route> {
        let (local, next_hop) = self.source_and_hop(remote, now)?;
        Some(Route {
            remote,
            local,
            next_hop,
            mtu: self.path_mtu(remote, now),
        })
    }

    /// The address to send from to `remote`; `None` without an address or a route.
    pub(crate) fn source(&self, remote: IpAddr, now: Instant) -> Option<IpAddr> {
        self.source_and_hop(remote, now).map(|(source, _)| source)
    }

    /// The address to send from to `remote`, and whom packets there are handed to.
    fn source_and_hop(&self, remote: IpAddr, now: Instant) -> Option<(IpAddr, IpAddr)> {
        if let Some(route) = self.leader_routes.to(remote) {
            return Some((route.local, route.next_hop));
        }
        let hop = self.own_hop(remote, now)?;
        Some((self.own_source(remote, now)?, hop))
    }

    /// The address of this engine's own for packets to `remote`, whether or not there is a route.
    fn own_source(&self, remote: IpAddr, now: Instant) -> Option<IpAddr> {
        match remote {
            IpAddr::V4(_) => self.address4().map(IpAddr::V4),
            IpAddr::V6(remote) => self.v6.as_ref()?.source(remote, now).map(IpAddr::V6),
        }
    }

    /// Puts the addresses of a name into the order in which they are to be tried (RFC 6724, section 6).
    pub(crate) fn order(&self, destinations: &mut [IpAddr], now: Instant) {
        let v4 = self.v4.as_ref().map(|config| Candidate {
            address: config.address.address().to_ipv6_mapped(),
            prefix_len: 96 + config.address.prefix_len(),
            deprecated: false,
        });
        let v6 = self.slaac().into_iter().flat_map(|v6| v6.candidates(now));
        let candidates: Vec<_> = v6.chain(v4).collect();
        order(destinations, &candidates);
    }

    /// Whom a packet to `remote` is handed to.
    fn next_hop(&self, remote: IpAddr, now: Instant) -> Option<IpAddr> {
        match self.leader_routes.to(remote) {
            Some(route) => Some(route.next_hop),
            None => self.own_hop(remote, now),
        }
    }

    /// The same by the routes that this engine has itself.
    fn own_hop(&self, remote: IpAddr, now: Instant) -> Option<IpAddr> {
        match remote {
            IpAddr::V4(remote) => self.v4.as_ref()?.next_hop(remote).map(IpAddr::V4),
            IpAddr::V6(remote) => self.v6.as_ref()?.next_hop(remote, now).map(IpAddr::V6),
        }
    }

    /// Whether `remote` is handed its packets itself.
    pub(crate) fn is_on_link(&self, remote: IpAddr, now: Instant) -> bool {
        self.next_hop(remote, now) == Some(remote)
    }

    /// The MTU of the path to `remote`, as far as it is known.
    pub(crate) fn path_mtu(&self, remote: IpAddr, now: Instant) -> u16 {
        let link = match (self.leader_routes.to(remote), remote) {
            (Some(route), _) => Some(route.mtu),
            (None, IpAddr::V4(_)) => self.v4.as_ref().and_then(|config| config.mtu),
            (None, IpAddr::V6(_)) => self.slaac().map(|v6| v6.routers.mtu()),
        };
        // RFC 791: every link carries 576 bytes; less in an option is nonsense or an attack.
        let link = link.map_or(self.link_mtu, |mtu| mtu.max(576).min(self.link_mtu));
        let path = self.path_mtus.get(remote, now).unwrap_or(link);
        path.min(link)
    }

    /// The Ethernet address of a next hop; it is asked for where it is not known.
    fn resolve(&mut self, hop: IpAddr, now: Instant) -> Option<MacAddress> {
        if let Some(many) = group_mac(hop) {
            return Some(many);
        }
        let known = self.neighbors.lookup(hop, now);
        if known.is_none() {
            let ours = self.is_ours(hop, now);
            self.neighbors.want(hop, ours, now);
        }
        self.changed = true;
        known
    }

    /// Where a packet for a next hop goes, which is asked for where it is not known.
    fn toward(&mut self, hop: IpAddr, now: Instant) -> NextHop {
        let known = self.resolve(hop, now);
        known.map_or(NextHop::Neighbor(hop), NextHop::Known)
    }

    /// Whom an answer to `stranger` is handed to. `None` without a route, and where another neighbour's question would be given up for it.
    pub(crate) fn hop_of_answer(&self, stranger: IpAddr, now: Instant) -> Option<IpAddr> {
        let hop = self.next_hop(stranger, now)?;
        self.neighbors.has_room_for(hop).then_some(hop)
    }

    /// Where an answer to `stranger` goes, whose Ethernet address is `mac` if it has told that. `None` without a way, and while many answers
    /// wait.
    fn way_of_answer(
        &mut self,
        stranger: IpAddr,
        mac: Option<MacAddress>,
        now: Instant,
    ) -> Option<NextHop> {
        let to = match mac.or(group_mac(stranger)) {
            Some(mac) => NextHop::Known(mac),
            None => {
                let hop = self.hop_of_answer(stranger, now)?;
                self.toward(hop, now)
            }
        };
        self.outbox.has_room_for_answer(to).then_some(to)
    }

    /// Whether `stranger` is told that nobody here takes what it sent: it is one host (RFC 9293, MUST-63; RFC 1122, section 3.2.2), and few
    /// were told lately.
    pub(crate) fn may_refuse(&mut self, stranger: IpAddr, now: Instant) -> bool {
        let broadcast = self.v4.as_ref().and_then(|v4| v4.address.broadcast());
        let one_host = match stranger {
            IpAddr::V4(stranger) => is_host(stranger) && Some(stranger) != broadcast,
            IpAddr::V6(stranger) => is_unicast(stranger),
        };
        if now >= self.refused + REFUSALS_TIME {
            (self.refused, self.refusals) = (now, 0);
        }
        self.refusals += u32::from(one_host);
        one_host && self.refusals <= REFUSALS
    }

    /// How to get from `local` to `remote` now; `None` while the next hop is not known.
    pub(crate) fn path(&mut self, local: IpAddr, remote: IpAddr, now: Instant) -> Option<Path> {
        let hop = self.next_hop(remote, now)?;
        let mac = self.resolve(hop, now)?;
        Some(self.over(mac, (local, remote)))
    }

    /// The next hop to `remote` has brought something forward.
    pub(crate) fn confirm(&mut self, remote: IpAddr, now: Instant) {
        if let Some(hop) = self.next_hop(remote, now) {
            self.neighbors.confirm(hop, now);
        }
    }

    /// Sends a UDP datagram from `port`, and from the address `local` where that is given and ours.
    ///
    /// # Errors
    /// [`NetError::Unreachable`] without an address or a route, [`NetError::TooLong`], [`NetError::Full`].
    pub(crate) fn send(
        &mut self,
        (local, port): (Option<IpAddr>, u16),
        remote: SocketAddr,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), NetError> {
        let way = match local.filter(|local| self.is_ours(*local, now)) {
            Some(local) => self.next_hop(remote.ip(), now).map(|hop| (local, hop)),
            None => self.source_and_hop(remote.ip(), now),
        };
        let (local, hop) = way.ok_or(NetError::Unreachable)?;
        if datagram_len(&remote.ip(), payload) > usize::from(self.link_mtu) {
            return Err(NetError::TooLong);
        }
        if !self.outbox.has_room() {
            return Err(NetError::Full);
        }
        let to = self.toward(hop, now);
        let (frame, offload) = self.datagram(SocketAddr::new(local, port), remote, payload);
        self.outbox.push_datagram(Outgoing { frame, offload, to });
        Ok(())
    }

    /// Sends an ICMP message without its checksum, as [`Self::send`] sends datagrams.
    ///
    /// # Errors
    /// Those of [`Self::send`].
    pub(crate) fn send_echo(
        &mut self,
        remote: IpAddr,
        mut message: Vec<u8>,
        now: Instant,
    ) -> Result<(), NetError> {
        let way = self.source_and_hop(remote, now);
        let (local, hop) = way.ok_or(NetError::Unreachable)?;
        if headers_len(&remote) - ETHERNET_HEADER + message.len() > usize::from(self.link_mtu) {
            return Err(NetError::TooLong);
        }
        if !self.outbox.has_room() {
            return Err(NetError::Full);
        }
        let to = self.toward(hop, now);
        let protocol = echo::seal(local, remote, &mut message);
        let frame = self.over([0; 6], (local, remote)).frame(protocol, &message);
        let offload = Offload::None;
        self.outbox.push_datagram(Outgoing { frame, offload, to });
        Ok(())
    }

    /// Sends a UDP datagram to all on the link, with or without an address of ours.
    pub(crate) fn broadcast(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        let (frame, offload) = self.datagram(local, remote, payload);
        self.push(frame, offload, NextHop::Known(BROADCAST));
    }

    fn datagram(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) -> (Vec<u8>, Offload) {
        let path = self.over([0; 6], (local.ip(), remote.ip()));
        let mut frame = self.outbox.memory();
        let ports = [local.port(), remote.port()];
        let offload = path.datagram(&mut frame, ports, payload, self.device);
        (frame, offload)
    }

    /// A path over the next hop with this Ethernet address: 0 where it is still to be found.
    fn over(&self, next_hop: MacAddress, (local, remote): (IpAddr, IpAddr)) -> Path {
        Path {
            station: self.station,
            next_hop,
            local,
            remote,
        }
    }

    fn push(&mut self, frame: Vec<u8>, offload: Offload, to: NextHop) {
        self.outbox.push(Outgoing { frame, offload, to });
    }

    /// Takes what a neighbour says of an address into the cache.
    pub(crate) fn update_neighbor(&mut self, update: &NeighborUpdate, now: Instant) {
        let ours = self.is_ours(update.address, now);
        self.neighbors.update(update, ours, now);
        self.changed = true;
    }

    /// A frame of a packet that is whole now.
    fn whole(
        &self,
        path: (IpAddr, IpAddr),
        protocol: u8,
        payload: &[u8],
        unicast: bool,
    ) -> Delivery {
        let to = if unicast { self.station } else { BROADCAST };
        Delivery::Whole(self.over(to, path).frame(protocol, payload))
    }

    /// Does what is due: asks neighbours and routers, tests addresses, reports groups.
    pub(crate) fn turn(&mut self, now: Instant) {
        if !self.changed && self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        self.changed = false;
        while let Some(due) = self.neighbors.due(now) {
            match due {
                Due::Ask(hop, at) => {
                    // A router need not be in the network of our address.
                    let source = self.leader_routes.source(hop);
                    match (source.or_else(|| self.own_source(hop, now)), hop) {
                        (Some(IpAddr::V4(us)), IpAddr::V4(hop)) => self.ask4(us, hop, at),
                        (Some(IpAddr::V6(us)), IpAddr::V6(hop)) => self.ask6(us, hop, at, now),
                        _ => {}
                    }
                }
                Due::Failed(IpAddr::V4(address)) => {
                    if let Some(v4) = &mut self.v4 {
                        v4.unreachable(address);
                    }
                }
                Due::Failed(IpAddr::V6(address)) => {
                    if let Some(v6) = &mut self.v6 {
                        v6.slaac.routers.unreachable(address);
                    }
                }
            }
        }
        self.turn6(now);
        let v6 = self.v6.as_ref().and_then(|v6| v6.poll_at(now));
        self.wake = [self.neighbors.poll_at(), v6].into_iter().flatten().min();
    }

    /// Hands the frames whose next hop is known to the card.
    pub(crate) fn transmit(&mut self, tx: &mut dyn Transmit, now: Instant) -> Result<(), Fault> {
        let mut index = 0;
        // Most frames have the next hop of the one before.
        let mut found = None;
        while let Some(out) = self.outbox.get_mut(index) {
            let to = match out.to {
                NextHop::Known(mac) => Some(mac),
                NextHop::Neighbor(hop) => match found {
                    Some((known, mac)) if known == hop => mac,
                    _ => {
                        let mac = self.neighbors.lookup(hop, now);
                        found = Some((hop, mac));
                        mac
                    }
                },
            };
            let Some(to) = to else {
                let asked = matches!(out.to, NextHop::Neighbor(hop) if self.neighbors.has(hop));
                if asked {
                    index += 1;
                } else {
                    // Nobody has answered, or the question was given up for another one.
                    self.outbox.remove(index);
                }
                continue;
            };
            put(&mut out.frame, 0, to);
            let frame = &out.frame;
            match tx.send(frame.len(), out.offload, &mut |memory| {
                memory.copy_from_slice(frame)
            }) {
                Err(SendError::Full) => return Ok(()),
                Err(SendError::Fault(fault)) => return Err(fault),
                Ok(()) => self.outbox.left(index),
                Err(SendError::TooLong) => {
                    self.outbox.remove(index);
                }
            }
        }
        Ok(())
    }
}

/// The Ethernet address of many; `None` for a neighbour's.
fn group_mac(hop: IpAddr) -> Option<MacAddress> {
    match hop {
        IpAddr::V4(hop) => hop.is_broadcast().then_some(BROADCAST),
        IpAddr::V6(hop) => hop.is_multicast().then(|| multicast_mac(hop)),
    }
}

/// What an ICMP message to us says of a packet of ours. `path`: where the message came from and went to. `fragmented`: it came in fragments, as no message of
/// echo that is taken.
fn icmp_delivery(
    version: IpVersion,
    path: (IpAddr, IpAddr),
    message: &[u8],
    fragmented: bool,
) -> Option<Delivery> {
    if let Some(news) = echo::parse(version, path, message) {
        return (!fragmented).then_some(Delivery::Echo(news));
    }
    if let Some(quoted) = port_unreachable(version, message) {
        // The host that was meant must say so itself: what routers say is often passing.
        let itself = quoted.remote.ip() == path.0 && quoted.local.ip() == path.1;
        return itself.then_some(Delivery::Refused(quoted));
    }
    let too_big = path_mtu::parse(version, message)?;
    (too_big.quoted.local.ip() == path.1).then_some(Delivery::TooBig(too_big))
}

#[cfg(test)]
mod tests {
    use super::outbox::{OWN, WAITING};
    use super::*;
    use crate::tests::card::Card;
    use alloc::vec;
    use smoltcp::wire::Ipv4Cidr;

    fn interface() -> Interface {
        let properties = Properties {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            max_receive: 1514,
            receive_frames: 64,
            receive_frames_probe: 0,
            receive_bytes: 64 * 1514,
            transmit_checksum: false,
            transmit_unit: 0,
        };
        Interface::new(&properties, Random::new([7; 32]))
    }

    #[test]
    fn so_many_packets_wait_and_no_more() {
        let (us, host) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut interface = interface();
        interface.v4 = Some(Ipv4Config {
            address: Ipv4Cidr::new(us, 24),
            router: None,
            routes: vec![],
            mtu: None,
        });
        let [local, host]: [SocketAddr; 2] = [(us, 5000).into(), (host, 69).into()];
        for count in 1..=WAITING {
            let sent = interface.send((None, 5000), host, b"hello", Instant::ZERO);
            assert_eq!((sent, interface.outbox.len()), (Ok(()), count));
        }
        let sent = interface.send((None, 5000), host, b"hello", Instant::ZERO);
        assert_eq!(sent, Err(NetError::Full));
        for count in 1..=OWN + 1 {
            interface.broadcast(local, host, b"hello");
            assert_eq!(interface.outbox.len(), WAITING + count.min(OWN));
        }
    }

    /// RFC 1122, section 3.3.1.4.
    #[test]
    fn a_router_that_does_not_answer_gives_way() {
        let ip = |last| Ipv4Addr::new(10, 0, 0, last);
        let far = IpAddr::from([8, 8, 8, 8]);
        let mut interface = interface();
        let everywhere = Ipv4Cidr::new(Ipv4Addr::UNSPECIFIED, 0);
        interface.v4 = Some(Ipv4Config {
            address: Ipv4Cidr::new(ip(1), 24),
            router: Some(ip(253)),
            routes: vec![(everywhere, ip(254))],
            mtu: None,
        });
        let hop = |interface: &Interface| interface.next_hop(far, Instant::ZERO);
        let sent = interface.send((None, 5000), (far, 69).into(), b"far", Instant::ZERO);
        assert_eq!(sent, Ok(()));
        for millis in (0..500).step_by(100) {
            interface.turn(Instant::from_millis(millis));
            assert_eq!(hop(&interface), Some(ip(253).into()));
        }
        interface.turn(Instant::from_millis(500));
        assert_eq!(hop(&interface), Some(ip(254).into()));
    }

    #[test]
    fn frames_that_have_left_lend_their_memory_and_nothing_else() {
        let (us, host) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let [local, host]: [SocketAddr; 2] = [(us, 5000).into(), (host, 69).into()];
        let (mut interface, now) = (interface(), Instant::ZERO);
        let mut card = Card {
            room: 1000,
            ..Card::default()
        };
        interface.broadcast(local, host, &[0x55; 1000]);
        let memory = interface.outbox.last().unwrap().frame.as_ptr();
        interface.transmit(&mut card, now).unwrap();
        interface.broadcast(local, host, b"short");
        assert_eq!(interface.outbox.last().unwrap().frame.as_ptr(), memory);
        interface.transmit(&mut card, now).unwrap();
        let lengths = card.frames.iter().map(|(frame, _)| frame.len());
        assert_eq!(Vec::from_iter(lengths), [42 + 1000, 42 + 5]);
        // The station's own frames bring memory, too, and take none.
        interface.probe = Some((us, None));
        for _ in 0..3 * WAITING {
            interface.send_probe();
            interface.transmit(&mut card, now).unwrap();
        }
        assert_eq!(card.frames.len(), 2 + 3 * WAITING);
        assert!(interface.outbox.spare() <= WAITING);
    }

    /// RFC 7559: a solicitation of routers, and another one each four seconds, besides other things.
    #[test]
    fn what_is_due_is_done_when_its_time_comes() {
        let mut interface = interface();
        interface.ipv6_up(Instant::ZERO);
        interface.turn(Instant::ZERO);
        let mut times = 0;
        while let Some(at) = interface.wake {
            // Nobody looks at the very moment.
            let late = at + Duration::from_millis(3);
            interface.turn(late);
            assert!(interface.wake.is_none_or(|next| next > late));
            times += 1;
            if times == 10 {
                break;
            }
        }
        assert!(times >= 3 && interface.outbox.len() >= 3);
    }
}
