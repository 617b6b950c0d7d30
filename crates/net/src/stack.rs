//! The protocol code's view of the engine.

use crate::bootp::Bootp;
use crate::ethernet::{Arp, BROADCAST, ETHERTYPE_ARP, put};
use crate::neighbor::Neighbors;
use crate::smoltcp_device::Port;
use crate::tcp::{Connections, TcpStream};
use crate::team::Member;
use crate::udp::{Binding, DatagramSink, UdpSocket};
use crate::window;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell, RefMut};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::pin::pin;
use core::task::Poll;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, Ipv4Address, Ipv4Cidr, Ipv6Cidr};
use wireboot_nic::{Fault, MacAddress, Nic, Offload, Properties, SendError, Transmit};

/// First ephemeral port (RFC 6335).
const EPHEMERAL: u16 = 49152;
/// Ports tried where not all will do: enough to find one of a card's 128 queues for certain.
const PORT_TRIES: usize = 4096;
/// ARP probes sent for an address, and the time between them. RFC 5227 asks for seconds; a machine that
/// boots has not the time, and a server that hands out an address has checked it already.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// Why the network did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The peer answered with a reset: nobody listens there.
    #[error("connection refused: nothing listens on that port")]
    Refused,
    /// The connection broke.
    #[error("the connection was reset")]
    Reset,
    /// Nothing came in time.
    #[error("no answer in time")]
    TimedOut,
    /// No address, or no route to there.
    #[error("no route: this machine has no address, or the destination needs a gateway")]
    Unreachable,
    /// Too much waits to be sent.
    #[error("too many packets wait to be sent (does the next hop answer ARP?)")]
    Full,
    /// No local port is free whose packets the card brings to this engine.
    #[error("no free port leads to this queue of the network card")]
    NoPort,
    /// The NIC failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// An IPv4 configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv4Config {
    /// Our address and the prefix of the link.
    pub address: Ipv4Cidr,
    /// Default gateway.
    pub router: Option<Ipv4Address>,
    /// Other routes: destination and gateway.
    pub routes: Vec<(Ipv4Cidr, Ipv4Address)>,
    /// MTU of the network in bytes; the NIC's if smaller or absent.
    pub mtu: Option<u16>,
}

/// What router advertisements say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterInfo {
    /// Addresses come from DHCPv6.
    pub managed: bool,
    /// Other settings come from DHCPv6.
    pub other: bool,
    /// MTU of the link.
    pub mtu: Option<u32>,
    /// Name servers.
    pub dns: Vec<Ipv6Addr>,
    /// Domains to try.
    pub search: Vec<alloc::string::String>,
}

/// Everything that a turn of the engine touches, but for the NIC and the tasks.
pub struct Inner {
    pub iface: Interface,
    pub sockets: SocketSet<'static>,
    pub udp: Vec<Binding>,
    /// Closed UDP sockets whose last datagrams may still have to leave, and until when.
    pub closing: Vec<(SocketHandle, Instant)>,
    pub connections: Connections,
    pub bootp: Option<VecDeque<(Ipv4Address, Vec<u8>)>>,
    /// Frames made here rather than by smoltcp.
    pub outbox: VecDeque<Vec<u8>>,
    /// An address that is being probed, and who claimed it.
    probe: Option<(Ipv4Address, Option<MacAddress>)>,
    /// The engine's place among others on the same card.
    pub team: Option<Member>,
    config: Option<Ipv4Config>,
    neighbors: Neighbors,
    /// Contiguous copies of received frames that smoltcp must see in one piece.
    pub linear: Vec<u8>,
    pub scratch: Vec<u8>,
}

impl Inner {
    /// Sees who answers, and who uses the address that is being probed (RFC 5227, section 2.1.1).
    pub fn arp(&mut self, arp: &Arp, station: MacAddress, now: Instant) {
        self.neighbors.heard(arp, now);
        if let Some((address, claimed)) = &mut self.probe {
            let probed_by_other = arp.sender.is_unspecified() && arp.target == *address;
            if arp.sender_mac != station && (arp.sender == *address || probed_by_other) {
                *claimed = Some(arp.sender_mac);
            }
        }
    }
}

impl Inner {
    /// Our address.
    pub fn address(&self) -> Option<Ipv4Address> {
        self.config.as_ref().map(|config| config.address.address())
    }

    /// Sees to it that the next hop to `destination` is known when the first packet leaves.
    pub fn want(&mut self, destination: Ipv4Address, now: Instant) {
        if let Some(config) = &self.config {
            self.neighbors.want(config, destination, now);
        }
    }

    /// Puts the ARP requests that are due into the outbox.
    pub fn resolve(&mut self, station: MacAddress, now: Instant) {
        if let Some(config) = &self.config {
            let sender = config.address.address();
            for target in self.neighbors.due(now) {
                self.outbox.push_back(arp_request(station, sender, target));
            }
        }
    }
}

struct Shared {
    inner: RefCell<Inner>,
    now: Cell<Instant>,
    mtu: Cell<u16>,
    random: RefCell<ChaCha12Rng>,
    paths: RefCell<BTreeMap<IpAddr, u16>>,
    properties: Properties,
    /// More receive buffers are counted on than are sure.
    tries: Cell<bool>,
}

/// A handle on the engine's network, for the tasks that run on it. Clones are cheap and name the same network.
#[derive(Clone)]
pub struct Stack(Rc<Shared>);

/// Stands in for a NIC where smoltcp asks for its capabilities only.
struct NoTransmit;

impl Transmit for NoTransmit {
    fn send<R>(
        &mut self,
        _: usize,
        _: Offload,
        _: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, SendError> {
        Err(SendError::Full)
    }
    fn room(&mut self) -> usize {
        0
    }
    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn idle(&mut self) -> bool {
        true
    }
}

/// smoltcp keeps the MTU it was made with, so a new MTU takes a new interface.
fn interface(mac: MacAddress, mtu: u16, seed: u64, now: Instant) -> Interface {
    let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
    config.random_seed = seed;
    let mut port = Port {
        frame: None,
        transmit: &mut NoTransmit,
        connections: &mut Connections::default(),
        scratch: &mut Vec::new(),
        mtu,
        offload: false,
    };
    Interface::new(config, &mut port, now)
}

impl Stack {
    pub(crate) fn new(nic: &impl Nic, seed: [u8; 32]) -> Self {
        let properties = nic.properties();
        let mut random = ChaCha12Rng::from_seed(seed);
        let iface = interface(
            properties.mac,
            properties.mtu,
            random.next_u64(),
            Instant::ZERO,
        );
        Self(Rc::new(Shared {
            inner: RefCell::new(Inner {
                iface,
                sockets: SocketSet::new(Vec::new()),
                udp: Vec::new(),
                closing: Vec::new(),
                connections: Connections::default(),
                bootp: None,
                outbox: VecDeque::new(),
                probe: None,
                team: None,
                config: None,
                neighbors: Neighbors::default(),
                linear: Vec::with_capacity(properties.max_receive),
                scratch: Vec::new(),
            }),
            now: Cell::new(Instant::ZERO),
            mtu: Cell::new(properties.mtu),
            random: RefCell::new(random),
            paths: RefCell::default(),
            properties,
            tries: Cell::new(properties.receive_frames_hoped > 0),
        }))
    }

    pub(crate) fn inner(&self) -> RefMut<'_, Inner> {
        // Borrows never overlap: the engine's turn ends before tasks run, and no task keeps one over an await.
        self.0.inner.borrow_mut()
    }

    pub(crate) fn set_now(&self, now: Instant) {
        self.0.now.set(now);
        self.inner().connections.now = now;
    }

    /// A random ephemeral port (RFC 6056) that `free` accepts.
    pub(crate) fn free_port(&self, free: impl Fn(&Inner, u16) -> bool) -> u16 {
        loop {
            if let Some(port) = self.try_port(&free) {
                return port;
            }
        }
    }

    /// A random port that `free` accepts, which may be for few.
    pub(crate) fn rare_port(&self, free: impl Fn(&Inner, u16) -> bool) -> Option<u16> {
        (0..PORT_TRIES).find_map(|_| self.try_port(&free))
    }

    fn try_port(&self, free: impl Fn(&Inner, u16) -> bool) -> Option<u16> {
        let port = EPHEMERAL | (self.random() as u16 & !EPHEMERAL);
        free(&self.inner(), port).then_some(port)
    }

    /// Bytes of the receive ring that TCP connections share.
    pub(crate) fn ring(&self) -> u32 {
        window::ring(self.receive_frames(), self.mtu())
    }

    /// The time of the current turn. It stands still within one.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.now.get()
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        let end = self.now() + duration;
        core::future::poll_fn(|_| {
            if self.now() >= end {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Waits for the next turn of the engine.
    pub async fn next_turn(&self) {
        let mut waited = false;
        core::future::poll_fn(|_| {
            if core::mem::replace(&mut waited, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
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

    /// 64 bits from a generator that an observer of the network cannot predict (ChaCha12).
    #[must_use]
    pub fn random(&self) -> u64 {
        self.0.random.borrow_mut().next_u64()
    }

    /// The station's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> MacAddress {
        self.0.properties.mac
    }

    /// Largest IP packet, in bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.0.mtu.get()
    }

    /// Full-size frames that the receive buffers hold, as far as anybody knows: the honest limit of a window. Where the NIC only hopes
    /// for some of them, this is less once they turned out to be missing ([`Self::try_less`]).
    #[must_use]
    pub fn receive_frames(&self) -> usize {
        let properties = &self.0.properties;
        let hoped = if self.tries() {
            properties.receive_frames_hoped
        } else {
            0
        };
        properties.receive_frames + hoped
    }

    /// Whether [`Self::receive_frames`] is but a hope.
    #[must_use]
    pub fn tries(&self) -> bool {
        self.0.tries.get()
    }

    /// Frames of a window that only hopes had room for were lost: from now on no more is promised than is sure.
    pub fn try_less(&self) {
        self.0.tries.set(false);
    }

    /// Takes on an address, routes and MTU, instead of any former ones.
    pub fn configure(&self, config: &Ipv4Config) {
        let nic = self.0.properties.mtu;
        // RFC 791: every link carries 576 bytes; less in an option is nonsense or an attack.
        let mtu = config.mtu.map_or(nic, |mtu| mtu.clamp(576, nic));
        self.0.mtu.set(mtu);
        let seed = self.random();
        let mut iface = interface(self.mac(), mtu, seed, self.now());
        iface.update_ip_addrs(|addresses| {
            // A new interface has room for one address.
            let _ = addresses.push(IpCidr::Ipv4(config.address));
        });
        iface.routes_mut().update(|routes| {
            let default = config
                .router
                .map(|router| (Ipv4Cidr::new(Ipv4Address::UNSPECIFIED, 0), router));
            for (destination, gateway) in config.routes.iter().copied().chain(default) {
                // smoltcp keeps a fixed number of routes; the default one comes last and matters least
                // when classless routes (RFC 3442) are there, which replace it.
                let _ = routes.push(smoltcp::iface::Route {
                    cidr: IpCidr::Ipv4(destination),
                    via_router: gateway.into(),
                    preferred_until: None,
                    expires_at: None,
                });
            }
        });
        let mut inner = self.inner();
        inner.iface = iface;
        inner.config = Some(config.clone());
        // smoltcp's cache went with the interface.
        inner.neighbors = Neighbors::default();
    }

    /// Gives the address up.
    pub fn unconfigure(&self) {
        let seed = self.random();
        let mut inner = self.inner();
        inner.iface = interface(self.mac(), self.mtu(), seed, self.now());
        inner.config = None;
    }

    /// Our address and prefix.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Cidr> {
        self.inner().config.as_ref().map(|config| config.address)
    }

    /// Our usable IPv6 addresses.
    #[must_use]
    pub fn addresses6(&self) -> Vec<Ipv6Cidr> {
        Vec::new()
    }

    /// Our address on the link.
    #[must_use]
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        None
    }

    /// Takes on an IPv6 address.
    pub fn add_ipv6(&self, _: Ipv6Cidr) {}

    /// What routers have said.
    #[must_use]
    pub fn router(&self) -> Option<RouterInfo> {
        None
    }

    /// A UDP socket on a port of choice.
    #[must_use]
    pub fn udp_on(&self, _: u16) -> UdpSocket {
        self.udp()
    }

    /// Largest packet on the path to `host`, in bytes, as far as known.
    #[must_use]
    pub fn path_mtu(&self, host: IpAddr) -> u16 {
        let known = self.0.paths.borrow().get(&host).copied();
        known.unwrap_or(u16::MAX).min(self.mtu())
    }

    /// The path to `host` takes packets of `mtu` bytes at most.
    pub fn set_path_mtu(&self, host: IpAddr, mtu: u16) {
        self.0.paths.borrow_mut().insert(host, mtu);
        // All that TCP connects to from now on is told.
        let (config, link) = (self.inner().config.clone(), self.mtu());
        if let Some(config) = config {
            let mtu = Some(mtu);
            self.configure(&Ipv4Config { mtu, ..config });
            self.0.mtu.set(link);
        }
    }

    /// The DHCP client's port.
    #[must_use]
    pub fn bootp(&self) -> Bootp {
        Bootp::new(self.clone())
    }

    /// Asks the link whether somebody uses `address` (RFC 5227 probes, 15 ms in all), and who.
    pub async fn arp_probe(&self, address: Ipv4Address) -> Option<MacAddress> {
        self.inner().probe = Some((address, None));
        for _ in 0..PROBES {
            // RFC 5227: a sender address of 0.0.0.0 makes a request a probe.
            let probe = arp_request(self.mac(), Ipv4Address::UNSPECIFIED, address);
            self.inner().outbox.push_back(probe);
            self.sleep(PROBE_INTERVAL).await;
        }
        self.inner().probe.take().and_then(|(_, claimed)| claimed)
    }

    /// A UDP socket on a random port.
    #[must_use]
    pub fn udp(&self) -> UdpSocket {
        UdpSocket::queued(self.clone())
    }

    /// A UDP socket on a random port whose datagrams go to `sink` while they are on loan.
    #[must_use]
    pub fn udp_with_sink(&self, sink: Rc<RefCell<dyn DatagramSink>>) -> UdpSocket {
        UdpSocket::with_sink(self.clone(), sink)
    }

    /// Opens a TCP connection.
    ///
    /// # Errors
    /// [`NetError::Refused`], [`NetError::TimedOut`] after `timeout`, [`NetError::Unreachable`].
    pub async fn connect(
        &self,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<TcpStream, NetError> {
        TcpStream::connect(self.clone(), remote, timeout).await
    }
}

fn arp_request(mac: MacAddress, sender: Ipv4Address, target: Ipv4Address) -> Vec<u8> {
    let mut frame = alloc::vec![0; 42];
    put(&mut frame, 0, BROADCAST);
    put(&mut frame, 6, mac);
    put(&mut frame, 12, ETHERTYPE_ARP.to_be_bytes());
    // Ethernet, IPv4, lengths 6 and 4, request.
    put(&mut frame, 14, [0, 1, 8, 0, 6, 4, 0, 1]);
    put(&mut frame, 22, mac);
    put(&mut frame, 28, sender.octets());
    put(&mut frame, 38, target.octets());
    frame
}
