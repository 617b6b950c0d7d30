//! The protocol code's view of the engine.

use crate::interface::{Ipv4Config, Route, RouterInfo};
use crate::random::Random;
use crate::state::NetState;
use crate::tcp::window;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell, RefMut};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::pin::pin;
use core::task::Poll;
use smoltcp::wire::{Ipv4Cidr, Ipv6Cidr};
use wireboot_nic::{MacAddress, Properties};
use wireboot_tcp::{Duration, InitialSequence, Instant};

/// First ephemeral port of TCP (RFC 6335), whose sequence numbers are secret, too.
const TCP_PORTS: u16 = 49152;
/// First one of UDP: all but the ports of services (RFC 6056, section 3.2).
const UDP_PORTS: u16 = 1024;
/// Ports tried where not all will do: enough to find one of a card's 128 queues for certain.
const PORT_TRIES: usize = 4096;
/// ARP probes sent for an address, and the time between them. RFC 5227 asks for seconds; a machine that
/// boots has not the time, and a server that hands out an address has checked it already.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// What all clones of a [`Stack`] are handles on.
struct StackInner {
    state: RefCell<NetState>,
    now: Cell<Instant>,
    initial_sequence: InitialSequence,
    random: RefCell<Random>,
    properties: Properties,
    /// Windows count [`Properties::receive_frames_probe`], too.
    probes: Cell<bool>,
    /// The card puts fragments together, as it says itself.
    joins_datagrams: Cell<bool>,
    /// It was of no use.
    no_long_datagrams: Cell<bool>,
}

/// Asks `ready` once a turn of the engine, until it has something.
pub(crate) async fn until<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    core::future::poll_fn(|_| ready().map_or(Poll::Pending, Poll::Ready)).await
}

/// A handle on the engine's network, for the tasks that run on it. Clones are cheap and name the same network.
#[derive(Clone)]
pub struct Stack(Rc<StackInner>);

impl Stack {
    pub(crate) fn new(properties: Properties, seed: [u8; 32]) -> Self {
        let mut random = Random::new(seed);
        let mut secret = [0; 16];
        random.fill(&mut secret);
        Self(Rc::new(StackInner {
            state: RefCell::new(NetState::new(&properties, random.fork())),
            now: Cell::new(Instant::ZERO),
            initial_sequence: InitialSequence::new(secret),
            random: RefCell::new(random),
            properties,
            probes: Cell::new(properties.receive_frames_probe > 0),
            joins_datagrams: Cell::new(false),
            no_long_datagrams: Cell::new(false),
        }))
    }

    pub(crate) fn state(&self) -> RefMut<'_, NetState> {
        // Borrows never overlap: the engine's turn ends before tasks run, and no task keeps one over an await.
        self.0.state.borrow_mut()
    }

    pub(crate) fn set_now(&self, now: Instant) {
        self.0.now.set(now);
    }

    pub(crate) fn set_joins_datagrams(&self, joins: bool) {
        self.0.joins_datagrams.set(joins);
    }

    /// A random port of UDP that `free` accepts.
    pub(crate) fn udp_port(&self, free: impl Fn(&NetState, u16) -> bool) -> u16 {
        loop {
            if let Some(port) = self.try_port(UDP_PORTS, &free) {
                return port;
            }
        }
    }

    /// A random port of TCP that `free` accepts, which may be so for few.
    pub(crate) fn tcp_port(&self, free: impl Fn(&NetState, u16) -> bool) -> Option<u16> {
        (0..PORT_TRIES).find_map(|_| self.try_port(TCP_PORTS, &free))
    }

    /// A random port from `first` on.
    fn try_port(&self, first: u16, free: impl Fn(&NetState, u16) -> bool) -> Option<u16> {
        let count = u64::from(u16::MAX - first) + 1;
        let port = first + (self.random() % count) as u16;
        free(&self.state(), port).then_some(port)
    }

    /// Bytes of the receive ring that TCP connections share, when they bring packets as long as `remote` may send.
    pub(crate) fn ring(&self, remote: IpAddr) -> u32 {
        window::ring(self.receive_frames(), self.path_mtu(remote))
    }

    /// The time of the current turn. It stands still within one.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.now.get()
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        let end = self.now() + duration;
        until(|| (self.now() >= end).then_some(())).await;
    }

    /// Waits for the next turn of the engine.
    pub async fn next_turn(&self) {
        let mut waited = false;
        until(|| core::mem::replace(&mut waited, true).then_some(())).await;
    }

    /// Runs `future` for at most `duration`; `None` when it did not end in time.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Option<F::Output> {
        let end = self.now() + duration;
        let mut future = pin!(future);
        core::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.now() >= end => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// 64 bits that an observer of the network cannot foretell.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.0.random.borrow_mut().next_u64()
    }

    /// The station's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> MacAddress {
        self.0.properties.mac
    }

    /// Largest IPv4 packet of the network, in bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.path_mtu(Ipv4Addr::UNSPECIFIED.into())
    }

    /// Largest IP packet on the path to `remote`, in bytes, as far as it is known: that of the link, or what routers (RFC 1191,
    /// RFC 8201) or [`Self::set_path_mtu`] have told.
    #[must_use]
    pub fn path_mtu(&self, remote: IpAddr) -> u16 {
        self.state().interface.path_mtu(remote, self.now())
    }

    /// Packets longer than `mtu` do not reach `remote`. Believed for ten minutes.
    pub fn set_path_mtu(&self, remote: IpAddr, mtu: u16) {
        let mut state = self.state();
        state.interface.path_mtus.lower(remote, mtu, self.now());
    }

    /// Full-size frames that the receive buffers hold, as far as anybody knows: the honest limit of a window. With
    /// [`Properties::receive_frames_probe`] this is less once they turned out to be missing ([`Self::stop_probing`]).
    #[must_use]
    pub fn receive_frames(&self) -> usize {
        let properties = &self.0.properties;
        let probe = if self.probes_receive_frames() {
            properties.receive_frames_probe
        } else {
            0
        };
        properties.receive_frames + probe
    }

    /// Whether [`Self::receive_frames`] counts frames for which there may be no buffer ([`Properties::receive_frames_probe`]).
    #[must_use]
    pub fn probes_receive_frames(&self) -> bool {
        self.0.probes.get()
    }

    /// Frames were lost for which there was no buffer: from now on windows count only those that there are.
    pub fn stop_probing(&self) {
        self.0.probes.set(false);
    }

    /// Bytes that the receive buffers hold when the card packs large units.
    #[must_use]
    pub fn receive_bytes(&self) -> usize {
        self.0.properties.receive_bytes
    }

    /// Whether datagrams longer than the MTU may be asked for: the card puts them together
    /// ([`Nic::joins_datagrams`](wireboot_nic::Nic::joins_datagrams)), and nobody has given them up.
    #[must_use]
    pub fn takes_long_datagrams(&self) -> bool {
        self.0.joins_datagrams.get() && !self.0.no_long_datagrams.get()
    }

    /// Datagrams longer than the MTU do not arrive, or nobody sends them: none are to be asked for from now on.
    pub fn give_up_long_datagrams(&self) {
        self.0.no_long_datagrams.set(true);
    }

    /// Takes on an IPv4 address, routes and MTU, instead of any former ones.
    pub fn configure(&self, config: &Ipv4Config) {
        self.state().interface.v4 = Some(config.clone());
    }

    /// Gives the IPv4 address up.
    pub fn unconfigure(&self) {
        self.state().interface.v4 = None;
    }

    /// Our IPv4 address and prefix.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Cidr> {
        let state = self.state();
        state.interface.v4.as_ref().map(|config| config.address)
    }

    /// Begins with IPv6, if it has not begun: a link-local address at once (optimistic, RFC 4429), router discovery, addresses from
    /// prefixes. They end in the modified EUI-64 of the Ethernet address, as DHCP servers and firewalls of machines that boot expect.
    pub fn ipv6_up(&self) {
        self.state().interface.ipv6_up(self.now());
    }

    /// What IPv6 routers have said; `None` before one has.
    #[must_use]
    pub fn router(&self) -> Option<RouterInfo> {
        self.state().interface.router(self.now())
    }

    /// Whether more than link-local addresses can be reached by IPv6: there is a router, or a prefix on the link. [`Self::router`] may tell
    /// of one that is no router for us.
    #[must_use]
    pub fn has_ipv6_route(&self) -> bool {
        self.state().interface.has_ipv6_route(self.now())
    }

    /// Takes an IPv6 address that DHCPv6 has given, for as long as the machine boots. False when it is none that a station can have, or
    /// somebody else's.
    pub fn add_ipv6(&self, address: Ipv6Addr) -> bool {
        self.state().interface.add6(address, self.now())
    }

    /// Whether `address`, an IPv6 address of ours, may still turn out to be somebody else's.
    #[must_use]
    pub fn is_tentative(&self, address: Ipv6Addr) -> bool {
        let state = self.state();
        let v6 = state.interface.slaac();
        v6.is_some_and(|v6| v6.is_tentative(address, self.now()))
    }

    /// Whether `address` is in the first part of that time, in which it is used with care (RFC 4429).
    #[must_use]
    pub fn is_optimistic(&self, address: Ipv6Addr) -> bool {
        let state = self.state();
        let v6 = state.interface.slaac();
        v6.is_some_and(|v6| v6.optimistic_until(address, self.now()).is_some())
    }

    /// Whether an IPv6 address that we took turned out to be somebody else's (RFC 4862, section 5.4). It is not used.
    #[must_use]
    pub fn is_duplicate(&self, address: Ipv6Addr) -> bool {
        let state = self.state();
        let v6 = state.interface.slaac();
        v6.is_some_and(|v6| v6.is_duplicate(address))
    }

    /// Our IPv6 addresses in use, the link-local one too.
    #[must_use]
    pub fn addresses6(&self) -> Vec<Ipv6Cidr> {
        let state = self.state();
        let v6 = state.interface.slaac().into_iter();
        v6.flat_map(|v6| v6.candidates(self.now()))
            .map(|one| Ipv6Cidr::new(one.address, one.prefix_len))
            .collect()
    }

    /// Our IPv6 link-local address.
    #[must_use]
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.state().interface.slaac()?.link_local(self.now())
    }

    /// The address of ours that packets to `remote` come from (RFC 6724); `None` without an address or a route.
    #[must_use]
    pub fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        self.state().interface.source(remote, self.now())
    }

    /// How packets get to `remote`, for another engine of the team ([`Self::take_route`]). Waits until the address that they come from is
    /// known to be ours alone. `None` without an address or a route.
    pub async fn route(&self, remote: IpAddr) -> Option<Route> {
        loop {
            let route = self.state().interface.route(remote, self.now())?;
            match route.local {
                IpAddr::V6(local) if self.is_optimistic(local) => self.next_turn().await,
                _ => return Some(route),
            }
        }
    }

    /// Whether `remote` is on the link, with no router between.
    #[must_use]
    pub fn is_on_link(&self, remote: IpAddr) -> bool {
        self.state().interface.is_on_link(remote, self.now())
    }

    /// Has packets to a host go by the route that the leader of the team knows, for as long as the machine boots or until there is
    /// another one.
    pub fn take_route(&self, route: Route) {
        self.state().interface.leader_routes.take(route);
    }

    /// Puts the addresses of a name into the order in which they are to be tried (RFC 6724, section 6).
    pub fn order(&self, destinations: &mut [IpAddr]) {
        self.state().interface.order(destinations, self.now());
    }

    /// The initial sequence number of a connection.
    pub(crate) fn iss(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.0.initial_sequence.iss(local, remote, self.now())
    }

    /// Whether the Ethernet address of the next hop to `remote` is known. It is asked for where it is not.
    #[must_use]
    pub fn resolves(&self, remote: IpAddr) -> bool {
        let now = self.now();
        let interface = &mut self.state().interface;
        let local = interface.source(remote, now);
        local.is_some_and(|local| interface.path(local, remote, now).is_some())
    }

    /// Asks the link whether somebody uses `address` (RFC 5227 probes, 15 ms in all), and who.
    pub async fn arp_probe(&self, address: Ipv4Addr) -> Option<MacAddress> {
        self.state().interface.probe = Some((address, None));
        for _ in 0..PROBES {
            self.state().interface.send_probe();
            self.sleep(PROBE_INTERVAL).await;
        }
        self.state().interface.probe.take()?.1
    }
}
