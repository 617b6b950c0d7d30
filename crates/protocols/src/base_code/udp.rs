//! UdpWrite and UdpRead, and which datagrams get in.

use super::packet::{self, Header};
use super::{Datagram, Host, Port, show};
use crate::Refusal;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use wireboot_net::Duration;

/// Addresses of a filter's list at most (EFI_PXE_BASE_CODE_MAX_IPCNT).
const LIST: usize = 8;
/// How long a read waits for a datagram, as in EDK II.
const READING: Duration = Duration::from_secs(3);

/// Bits of a filter, as the protocol has them.
pub mod filter {
    /// Packets to the station.
    pub const STATION_IP: u8 = 1;
    /// Packets to all stations of the link.
    pub const BROADCAST: u8 = 2;
    /// Packets to any destination.
    pub const PROMISCUOUS: u8 = 4;
    /// Packets to any group of stations.
    pub const PROMISCUOUS_MULTICAST: u8 = 8;
}

/// Which packets are received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Bits of [`filter`]: which packets are received beside those to the list.
    pub bits: u8,
    /// Other addresses, of hosts or groups.
    pub list: Vec<IpAddr>,
}

impl Default for Filter {
    /// What Dhcp, Discover and Mtftp leave behind.
    fn default() -> Self {
        Self {
            bits: filter::STATION_IP,
            list: Vec::new(),
        }
    }
}

/// A datagram that UdpWrite is to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Whom it is for.
    pub to: SocketAddr,
    /// Instead of the link's router.
    pub gateway: Option<IpAddr>,
    /// Instead of the station's address.
    pub source: Option<IpAddr>,
    /// `None`: a random one from 49152 on.
    pub source_port: Option<u16>,
    /// The payload, header first.
    pub parts: [&'a [u8]; 2],
    /// Whether it may go in fragments.
    pub may_fragment: bool,
}

/// What UdpRead waits for. `None`: any.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The address that it went to.
    pub destination: Option<IpAddr>,
    /// The port that it went to.
    pub destination_port: Option<u16>,
    /// The address that it came from.
    pub source: Option<IpAddr>,
    /// The port that it came from.
    pub source_port: Option<u16>,
    /// The filter decides on the destination.
    pub use_filter: bool,
}

impl Expected {
    fn is(&self, host: &Host, datagram: &Datagram) -> bool {
        fn fits<T: PartialEq>(wanted: Option<T>, there: T) -> bool {
            wanted.is_none_or(|wanted| wanted == there)
        }
        let to = datagram.destination;
        let destination = if self.use_filter {
            host.passes(to.ip())
        } else {
            fits(self.destination, to.ip())
        };
        destination
            && fits(self.destination_port, to.port())
            && fits(self.source, datagram.source.ip())
            && fits(self.source_port, datagram.source.port())
    }
}

impl Host {
    /// EFI_PXE_BASE_CODE_PROTOCOL.SetIpFilter().
    ///
    /// # Errors
    /// [`Refusal::InvalidParameter`]: too many addresses, or a broadcast address among them.
    pub fn set_filter(&mut self, filter: Filter) -> Result<(), Refusal> {
        let wrong = |address: &IpAddr| self.is_broadcast(*address);
        if filter.list.len() > LIST || filter.list.iter().any(wrong) {
            return Err(Refusal::InvalidParameter);
        }
        self.filter = filter;
        Ok(())
    }

    /// The filter that was set last; [`Filter::default`] at first.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// What the filter says of a destination.
    fn passes(&self, to: IpAddr) -> bool {
        let bits = self.filter.bits;
        let bit = if self.is_broadcast(to) {
            filter::BROADCAST
        } else if to.is_multicast() {
            filter::PROMISCUOUS_MULTICAST
        } else if to == self.address {
            filter::STATION_IP
        } else {
            0
        };
        bits & (bit | filter::PROMISCUOUS) != 0 || self.filter.list.contains(&to)
    }

    /// Whether a packet gets in: the station's own do whatever the filter says, and all do as long as it has no address.
    pub(super) fn accepts(&self, to: IpAddr) -> bool {
        self.address.is_unspecified() || to == self.address || self.passes(to)
    }

    /// Sends a datagram. Returns the port that it came from.
    ///
    /// # Errors
    /// [`Refusal::InvalidParameter`]: to nowhere, from nowhere, or by a gateway that is none. [`Refusal::BadBufferSize`]: too long.
    /// [`Refusal::Timeout`]: nobody knows the way. [`Refusal::IcmpError`], [`Refusal::Aborted`].
    pub fn udp_write(&mut self, port: &mut dyn Port, what: &Outgoing<'_>) -> Result<u16, Refusal> {
        let source = what.source.unwrap_or(self.address);
        let gateway = what.gateway.filter(IpAddr::is_ipv4);
        let odd = |gateway: IpAddr| {
            gateway.is_unspecified() || gateway.is_multicast() || self.is_broadcast(gateway)
        };
        if what.to.ip().is_unspecified()
            || what.to.is_ipv4() != source.is_ipv4()
            || what.source.is_none() && self.has_address().is_err()
            || gateway.is_some_and(odd)
        {
            return Err(Refusal::InvalidParameter);
        }
        let number = what.source_port.unwrap_or_else(|| self.port());
        let len: usize = what.parts.iter().map(|part| part.len()).sum();
        let room = 0xffff - packet::UDP_HEADER - packet::header_len(what.to.ip());
        if len > room {
            return Err(Refusal::BadBufferSize);
        }
        show(port, false, &what.parts.concat())?;
        self.datagram_to(
            port,
            SocketAddr::new(source, number),
            what.to,
            gateway,
            what.parts,
            what.may_fragment,
        )?;
        self.listen(port)?;
        if self.is_refused(what.to.ip(), Some(number)) {
            return Err(Refusal::IcmpError);
        }
        Ok(number)
    }

    /// Sends `parts` one behind the other, from an address and a port that may be others than ours.
    pub(super) fn datagram_to(
        &mut self,
        port: &mut dyn Port,
        from: SocketAddr,
        to: SocketAddr,
        gateway: Option<IpAddr>,
        parts: [&[u8]; 2],
        may_fragment: bool,
    ) -> Result<(), Refusal> {
        let header = Header {
            source: from.ip(),
            destination: to.ip(),
            protocol: packet::UDP,
            ttl: self.ttl,
            tos: self.tos,
            id: self.random.next_u32(),
        };
        let datagram = packet::udp(from, to, parts);
        self.send(port, &header, &datagram, gateway, may_fragment)
    }

    /// The next datagram that is what was expected. Those before it are nobody's.
    ///
    /// # Errors
    /// [`Refusal::Timeout`]: none in three seconds. [`Refusal::IcmpError`], [`Refusal::Aborted`].
    pub fn udp_read(
        &mut self,
        port: &mut dyn Port,
        expected: &Expected,
    ) -> Result<Datagram, Refusal> {
        let end = port.now() + READING;
        let local = expected.destination_port;
        let talk = expected.source.map(|source| (source, local));
        let found = self.datagram(port, end, talk, |host, datagram| {
            expected.is(host, datagram)
        })?;
        found.ok_or(Refusal::Timeout)
    }
}
