//! A small host on the loader's link, with the station's addresses: what EFI_PXE_BASE_CODE_PROTOCOL sends and receives by itself, beside
//! files, which the engine gets. IPv4 or IPv6; one call at a time, which waits for what it has asked for.

mod boot_server;
mod dhcp;
mod dhcpv6;
mod fragments;
mod groups;
mod neighbor;
pub(crate) mod packet;
mod tftp;
mod udp;

pub use boot_server::{Discovery, Reply, Server, server_of};
pub use dhcp::Exchange;
pub use tftp::{Source, Transfer};
pub use udp::{Expected, Filter, Outgoing, filter};

use crate::Refusal;
use crate::ip_config::is_host;
use crate::simple_network::multicast_mac;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use fragments::Fragments;
use groups::Groups;
use packet::{Header, Ip};
use wireboot_net::{Duration, Instant, Random};
use wireboot_nic::MacAddress;

/// What a call works with.
pub trait Port {
    /// The time; also lets the network get on.
    fn now(&mut self) -> Instant;
    /// Whether there is a link to send by.
    fn link_up(&self) -> bool;
    /// Sends a frame with all checksums: its Ethernet header, and what is behind. False when there is no room for it now.
    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool;
    /// The next frame, from its Ethernet header on.
    fn receive(&mut self) -> Option<Vec<u8>>;
    /// Shows the caller a packet of what it has asked for, or none while it waits. False when the caller wants it to end.
    fn show(&mut self, received: bool, packet: &[u8]) -> bool;
}

/// Entries of EFI_PXE_BASE_CODE_MODE's ARP cache.
pub const NEIGHBORS: usize = 8;
/// Datagrams that wait for a call to read them. Further ones are lost.
const DATAGRAMS: usize = 256;
/// How long the link may take to have room for a frame.
const SENDING: Duration = Duration::from_secs(3);
/// Frames that are heard before the time is looked at.
const FRAMES: usize = 256;
/// How often a caller who waits is asked whether to go on.
const ASK: Duration = Duration::from_millis(100);

/// A datagram that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Address and port that it came from.
    pub source: SocketAddr,
    /// Address and port that it went to: the station's, a group's or a broadcast address.
    pub destination: SocketAddr,
    /// The bytes behind the UDP header.
    pub payload: Vec<u8>,
}

/// An ICMP or ICMPv6 error about a datagram of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Whom that was for.
    pub about: IpAddr,
    /// The port that it came from.
    pub port: u16,
    /// The message, type first.
    pub message: Vec<u8>,
}

/// A server's TFTP error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TftpError {
    /// Its number (RFC 1350, section 5).
    pub code: u16,
    /// Its text, unchecked.
    pub text: Vec<u8>,
}

/// A host on one link, with one address of one IP version at a time.
pub struct Host {
    mac: MacAddress,
    mtu: usize,
    /// Unspecified while there is none.
    address: IpAddr,
    prefix_len: u8,
    router: Option<IpAddr>,
    /// Time to live of what it sends.
    pub ttl: u8,
    /// Type of service of what it sends.
    pub tos: u8,
    /// Whether it may ask for neighbours that it does not know.
    pub auto_arp: bool,
    filter: Filter,
    groups: Groups,
    /// The last ones asked for, the oldest first.
    neighbors: Vec<(IpAddr, MacAddress)>,
    datagrams: VecDeque<Datagram>,
    fragments: Fragments,
    icmp_error: Option<IcmpError>,
    tftp_error: Option<TftpError>,
    random: Random,
}

impl Host {
    /// On a link whose frames carry `mtu` bytes, without an address.
    #[must_use]
    pub fn new(mac: MacAddress, mtu: u16, seed: [u8; 32]) -> Self {
        Self {
            mac,
            mtu: mtu.into(),
            address: Ipv4Addr::UNSPECIFIED.into(),
            prefix_len: 0,
            router: None,
            ttl: 64,
            tos: 0,
            auto_arp: true,
            filter: Filter::default(),
            groups: Groups::default(),
            neighbors: Vec::new(),
            datagrams: VecDeque::new(),
            fragments: Fragments::default(),
            icmp_error: None,
            tftp_error: None,
            random: Random::new(seed),
        }
    }

    /// Gives it an address, of the version that it speaks from now on, and the way off its link.
    pub fn configure(&mut self, address: IpAddr, prefix_len: u8, router: Option<IpAddr>) {
        if self.address.is_ipv4() != address.is_ipv4() {
            self.neighbors.clear();
        }
        (self.address, self.prefix_len, self.router) = (address, prefix_len, router);
    }

    /// The address, and the length of its network's prefix.
    #[must_use]
    pub fn address(&self) -> (IpAddr, u8) {
        (self.address, self.prefix_len)
    }

    /// The router of the link.
    #[must_use]
    pub fn router(&self) -> Option<IpAddr> {
        self.router
    }

    /// The neighbours that it knows.
    #[must_use]
    pub fn neighbors(&self) -> &[(IpAddr, MacAddress)] {
        &self.neighbors
    }

    /// The error that the last call has met.
    #[must_use]
    pub fn icmp_error(&self) -> Option<&IcmpError> {
        self.icmp_error.as_ref()
    }

    /// The error that the last transfer has met.
    #[must_use]
    pub fn tftp_error(&self) -> Option<&TftpError> {
        self.tftp_error.as_ref()
    }

    /// Forgets the errors: another call begins.
    pub fn begin(&mut self) {
        (self.icmp_error, self.tftp_error) = (None, None);
    }

    /// The last transfer was made by somebody else, who met this error.
    pub fn set_tftp_error(&mut self, code: u16, text: &[u8]) {
        self.tftp_error = Some(TftpError {
            code,
            text: text.to_vec(),
        });
    }

    /// Changes the address, or the mask of its network.
    ///
    /// # Errors
    /// [`Refusal::InvalidParameter`]: no host can have them.
    pub fn set_station(
        &mut self,
        address: Option<IpAddr>,
        mask: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let prefix_len = match mask {
            None => self.prefix_len,
            Some(mask) => {
                let (ones, zeros, len) = match mask {
                    IpAddr::V4(mask) => (
                        mask.to_bits().leading_ones(),
                        mask.to_bits().trailing_zeros(),
                        32,
                    ),
                    IpAddr::V6(mask) => (
                        mask.to_bits().leading_ones(),
                        mask.to_bits().trailing_zeros(),
                        128,
                    ),
                };
                if ones + zeros != len {
                    return Err(Refusal::InvalidParameter);
                }
                ones as u8
            }
        };
        if address.is_some_and(|address| !is_host(&address)) {
            return Err(Refusal::InvalidParameter);
        }
        let address = address.unwrap_or(self.address);
        self.configure(address, prefix_len, self.router);
        Ok(())
    }

    /// Hears what has come, and tells of its groups where it is time for that.
    ///
    /// # Errors
    /// None, as nobody is asked.
    pub fn listen(&mut self, port: &mut dyn Port) -> Result<(), Refusal> {
        let now = port.now();
        self.wait(port, now, |_| Some(()))?;
        Ok(())
    }

    /// Forgets what has come.
    pub fn flush(&mut self) {
        self.datagrams.clear();
    }

    fn has_address(&self) -> Result<(), Refusal> {
        if self.address.is_unspecified() {
            return Err(Refusal::InvalidParameter);
        }
        Ok(())
    }

    fn port(&mut self) -> u16 {
        // Those that nobody has registered (RFC 6335, section 6).
        0xc000 | self.random.next_u16()
    }

    /// Reads what has come, until `found` finds something, or `None` at `end`.
    fn wait<T>(
        &mut self,
        port: &mut dyn Port,
        end: Instant,
        mut found: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let mut asked = port.now();
        loop {
            let now = port.now();
            // As many as come, but a flood does not keep this from its end.
            for _ in 0..FRAMES {
                let Some(frame) = port.receive() else {
                    break;
                };
                self.hear(&frame, now);
            }
            self.tell_groups(port, now);
            let thing = found(self);
            if thing.is_some() || now >= end {
                return Ok(thing);
            }
            if now >= asked + ASK {
                asked = now;
                show(port, true, &[])?;
            }
        }
    }

    /// The next datagram that `wanted` wants, which the caller is shown. Those before it are nobody's. `None` at `end`.
    ///
    /// # Errors
    /// As of [`Self::arrival`]; [`Refusal::Aborted`].
    fn datagram(
        &mut self,
        port: &mut dyn Port,
        end: Instant,
        talk: Option<(IpAddr, Option<u16>)>,
        wanted: impl Fn(&Self, &Datagram) -> bool,
    ) -> Result<Option<Datagram>, Refusal> {
        let found = self.arrival(port, end, talk, wanted)?;
        if let Some(datagram) = &found {
            show(port, true, &datagram.payload)?;
        }
        Ok(found)
    }

    /// The same without showing it. `talk`: whom the caller waits for, and at which port of ours, or any.
    ///
    /// # Errors
    /// [`Refusal::IcmpError`] about what was sent there; [`Refusal::Aborted`].
    fn arrival(
        &mut self,
        port: &mut dyn Port,
        end: Instant,
        talk: Option<(IpAddr, Option<u16>)>,
        wanted: impl Fn(&Self, &Datagram) -> bool,
    ) -> Result<Option<Datagram>, Refusal> {
        let found = self.wait(port, end, |host| {
            while let Some(datagram) = host.datagrams.pop_front() {
                if wanted(host, &datagram) {
                    return Some(Ok(datagram));
                }
            }
            let refused = talk.is_some_and(|(peer, local)| host.is_refused(peer, local));
            refused.then_some(Err(Refusal::IcmpError))
        })?;
        found.transpose()
    }

    /// Whether an ICMP error has come about a datagram to `server`, from our port `local` if one is given.
    fn is_refused(&self, server: IpAddr, local: Option<u16>) -> bool {
        self.icmp_error.as_ref().is_some_and(|error| {
            error.about == server && local.is_none_or(|local| local == error.port)
        })
    }

    fn hear(&mut self, frame: &[u8], now: Instant) {
        let Some((header, payload)) = frame.split_first_chunk::<14>() else {
            return;
        };
        let [.., k0, k1] = *header;
        if [k0, k1] == packet::ARP {
            self.hear_arp(payload);
            return;
        }
        self.hear_query([k0, k1], payload, now);
        let Some(ip) = packet::parse([k0, k1], payload) else {
            return;
        };
        match ip.fragment {
            None => self.hear_packet(&ip),
            Some(part) => {
                if let Some(whole) = self.fragments.take(&ip, part, now) {
                    self.hear_packet(&Ip {
                        payload: &whole,
                        fragment: None,
                        ..ip
                    });
                }
            }
        }
    }

    fn hear_packet(&mut self, ip: &Ip<'_>) {
        match ip.protocol {
            packet::UDP if self.datagrams.len() < DATAGRAMS && self.accepts(ip.destination) => {
                let datagram = packet::datagram(ip.source, ip.destination, ip.payload);
                self.datagrams
                    .extend(datagram.map(|(source, destination, payload)| Datagram {
                        source,
                        destination,
                        payload: payload.to_vec(),
                    }));
            }
            packet::ICMP if ip.source.is_ipv4() && packet::icmp_checksum(ip.payload) == 0 => {
                self.hear_error(ip, &[3, 4, 11, 12], packet::IPV4);
            }
            packet::ICMPV6 if ip.source.is_ipv6() => {
                let sum = packet::checksum(ip.source, ip.destination, ip.protocol, ip.payload);
                if sum == 0 {
                    // Not type 2, Packet Too Big: it does not say that nobody is there.
                    self.hear_error(ip, &[1, 3, 4], packet::IPV6);
                    self.hear_neighbor(ip);
                }
            }
            _ => {}
        }
    }

    /// An ICMP error quotes the beginning of the packet that it is about: a datagram of ours, where anybody waits for that.
    fn hear_error(&mut self, ip: &Ip<'_>, types: &[u8], version: [u8; 2]) {
        let Some((header, quoted)) = ip.payload.split_first_chunk::<8>() else {
            return;
        };
        let Some(quoted) = packet::quoted(version, quoted) else {
            return;
        };
        if types.contains(&header[0])
            && quoted.source == self.address
            && let Some((port, _)) = packet::ports(&quoted)
        {
            self.icmp_error = Some(IcmpError {
                about: quoted.destination,
                port,
                message: ip.payload.to_vec(),
            });
        }
    }

    /// Sends a packet to its destination, by `gateway` or the way of its own.
    fn send(
        &mut self,
        port: &mut dyn Port,
        header: &Header,
        payload: &[u8],
        gateway: Option<IpAddr>,
        may_fragment: bool,
    ) -> Result<(), Refusal> {
        let packets = packet::packets(header, payload, self.mtu, may_fragment)
            .ok_or(Refusal::BadBufferSize)?;
        let mac = self.mac_of(port, header.destination, gateway)?;
        packets.iter().try_for_each(|packet| {
            let kind = if header.destination.is_ipv4() {
                packet::IPV4
            } else {
                packet::IPV6
            };
            self.transmit(port, mac, kind, packet)
        })
    }

    fn transmit(
        &mut self,
        port: &mut dyn Port,
        to: MacAddress,
        kind: [u8; 2],
        payload: &[u8],
    ) -> Result<(), Refusal> {
        if !port.link_up() {
            return Err(Refusal::NoMedia);
        }
        let mut header = [0; 14];
        packet::put(&mut header, 0, &to);
        packet::put(&mut header, 6, &self.mac);
        packet::put(&mut header, 12, &kind);
        let end = port.now() + SENDING;
        while !port.send(&header, payload) {
            if port.now() >= end {
                return Err(Refusal::Timeout);
            }
        }
        Ok(())
    }

    /// Whether a destination is on the link.
    fn is_near(&self, to: IpAddr) -> bool {
        match (self.address, to) {
            (IpAddr::V4(own), IpAddr::V4(to)) => {
                let other = own.to_bits() ^ to.to_bits();
                other.leading_zeros() >= self.prefix_len.into()
            }
            (IpAddr::V6(own), IpAddr::V6(to)) => {
                let other = own.to_bits() ^ to.to_bits();
                to.is_unicast_link_local() || other.leading_zeros() >= self.prefix_len.into()
            }
            _ => false,
        }
    }

    /// Whether it is a broadcast address here.
    fn is_broadcast(&self, to: IpAddr) -> bool {
        match (self.address, to) {
            (_, IpAddr::V4(Ipv4Addr::BROADCAST)) => true,
            (IpAddr::V4(own), IpAddr::V4(to)) if (1..31).contains(&self.prefix_len) => {
                let hosts = u32::MAX >> self.prefix_len;
                to.to_bits() == own.to_bits() | hosts
            }
            _ => false,
        }
    }

    /// The Ethernet address by which a packet goes.
    fn mac_of(
        &mut self,
        port: &mut dyn Port,
        to: IpAddr,
        gateway: Option<IpAddr>,
    ) -> Result<MacAddress, Refusal> {
        if self.is_broadcast(to) {
            return Ok([0xff; 6]);
        }
        if let Ok(group) = multicast_mac(to) {
            return Ok(group);
        }
        let hop = match gateway {
            Some(gateway) => gateway,
            None if self.is_near(to) => to,
            // Without a router, perhaps somebody answers for all (RFC 1027).
            None => self.find_router(port)?.unwrap_or(to),
        };
        self.neighbor(port, hop, false)
    }
}

fn show(port: &mut dyn Port, received: bool, packet: &[u8]) -> Result<(), Refusal> {
    if port.show(received, packet) {
        Ok(())
    } else {
        Err(Refusal::Aborted)
    }
}

/// The unspecified address of the same version.
fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests;
