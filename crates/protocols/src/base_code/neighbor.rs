//! Ethernet addresses of neighbours: ARP (RFC 826) and neighbour discovery (RFC 4861).

use super::packet::{self, Header, Ip};
use super::{Host, NEIGHBORS, Port, show};
use crate::Refusal;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use wireboot_net::Duration;
use wireboot_nic::MacAddress;

/// Ethernet, IPv4, six and four bytes.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Nobody farther away can send it.
const HOPS: u8 = 255;

/// Questions, and how long each waits for its answer.
const ATTEMPTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(1);

/// The Ethernet address among the options of a neighbour discovery message. A message with an option of no length is none (RFC 4861,
/// section 4.6).
fn link_address(mut options: &[u8], wanted: u8) -> Option<MacAddress> {
    let mut found = None;
    while let [kind, len, value @ ..] = options {
        if *len == 0 {
            return None;
        }
        if *kind == wanted {
            found = value.first_chunk().copied();
        }
        options = options.get(usize::from(*len) * 8..)?;
    }
    found.filter(|_| options.is_empty())
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let bytes: &[u8; 16] = bytes.get(at..)?.first_chunk()?;
    Some((*bytes).into())
}

impl Host {
    pub(crate) fn learn(&mut self, address: IpAddr, mac: MacAddress) {
        self.neighbors.retain(|(known, _)| *known != address);
        if self.neighbors.len() >= NEIGHBORS {
            self.neighbors.remove(0);
        }
        self.neighbors.push((address, mac));
    }

    fn known(&self, address: IpAddr) -> Option<MacAddress> {
        let mut all = self.neighbors.iter();
        all.find(|(known, _)| *known == address)
            .map(|(_, mac)| *mac)
    }

    /// What a neighbour says to us, or to others where we know it already (RFC 826).
    pub(super) fn hear_arp(&mut self, arp: &[u8]) {
        let (
            Some(ARP_HEAD),
            Some(
                [
                    _,
                    _,
                    a,
                    b,
                    c,
                    d,
                    e,
                    f,
                    g,
                    h,
                    i,
                    j,
                    _,
                    _,
                    _,
                    _,
                    _,
                    _,
                    k,
                    l,
                    m,
                    n,
                ],
            ),
        ) = (
            arp.first_chunk().copied(),
            arp.get(6..).and_then(<[u8]>::first_chunk).copied(),
        )
        else {
            return;
        };
        let (sender, target) = (IpAddr::from([g, h, i, j]), IpAddr::from([k, l, m, n]));
        let mac = [a, b, c, d, e, f];
        let to_us = target == self.address && !target.is_unspecified();
        if mac[0] & 1 == 0
            && mac != self.mac
            && (to_us || self.known(sender).is_some())
            && !sender.is_unspecified()
        {
            self.learn(sender, mac);
        }
    }

    pub(super) fn hear_neighbor(&mut self, ip: &Ip<'_>) {
        let [kind, 0, ..] = *ip.payload else { return };
        if ip.hops != HOPS {
            return;
        }
        match kind {
            ADVERTISEMENT => {
                let target = address(ip.payload, 8);
                let mac = ip
                    .payload
                    .get(24..)
                    .and_then(|options| link_address(options, TARGET_ADDRESS));
                if let (Some(target), Some(mac)) = (target, mac)
                    && mac[0] & 1 == 0
                    && !target.is_multicast()
                    && (ip.destination == self.address || self.known(target.into()).is_some())
                {
                    self.learn(target.into(), mac);
                }
            }
            ROUTER_ADVERTISEMENT => {
                let lasts = packet::word(ip.payload, 6).is_some_and(|lifetime| lifetime > 0);
                let near =
                    matches!(ip.source, IpAddr::V6(source) if source.is_unicast_link_local());
                if lasts && near && self.address.is_ipv6() {
                    self.router.get_or_insert(ip.source);
                    let options = ip.payload.get(16..).unwrap_or_default();
                    if let Some(mac) = link_address(options, SOURCE_ADDRESS)
                        && mac[0] & 1 == 0
                    {
                        self.learn(ip.source, mac);
                    }
                }
            }
            _ => {}
        }
    }

    /// The Ethernet address of a neighbour. `shown`: the caller sees the questions.
    ///
    /// # Errors
    /// [`Refusal::Timeout`]: it does not answer, or may not be asked. [`Refusal::Aborted`].
    pub(super) fn neighbor(
        &mut self,
        port: &mut dyn Port,
        of: IpAddr,
        shown: bool,
    ) -> Result<MacAddress, Refusal> {
        if let Some(mac) = self.known(of) {
            return Ok(mac);
        }
        if !self.auto_arp {
            return Err(Refusal::Timeout);
        }
        for _ in 0..ATTEMPTS {
            self.ask(port, of, shown)?;
            let end = port.now() + PATIENCE;
            if let Some(mac) = self.wait(port, end, |host| host.known(of))? {
                return Ok(mac);
            }
        }
        Err(Refusal::Timeout)
    }

    fn ask(&mut self, port: &mut dyn Port, of: IpAddr, shown: bool) -> Result<(), Refusal> {
        match (self.address, of) {
            (IpAddr::V4(own), IpAddr::V4(of)) => {
                let mut arp = Vec::with_capacity(28);
                arp.extend(ARP_HEAD);
                arp.extend(REQUEST);
                arp.extend(self.mac);
                arp.extend(own.octets());
                arp.extend([0; 6]);
                arp.extend(of.octets());
                if shown {
                    show(port, false, &arp)?;
                }
                self.transmit(port, [0xff; 6], packet::ARP, &arp)
            }
            (IpAddr::V6(_), IpAddr::V6(of)) => {
                let [.., a, b, c] = of.octets();
                let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
                self.solicit(port, SOLICITATION, &of.octets(), group, shown)
            }
            _ => Err(Refusal::InvalidParameter),
        }
    }

    /// Sends a solicitation with our Ethernet address in it.
    fn solicit(
        &mut self,
        port: &mut dyn Port,
        kind: u8,
        target: &[u8],
        to: Ipv6Addr,
        shown: bool,
    ) -> Result<(), Refusal> {
        let mut message = alloc::vec![kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend(target);
        message.extend([SOURCE_ADDRESS, 1]);
        message.extend(self.mac);
        let header = Header {
            source: self.address,
            destination: to.into(),
            protocol: packet::ICMPV6,
            ttl: HOPS,
            tos: 0,
            id: 0,
        };
        let sum = packet::checksum(header.source, header.destination, header.protocol, &message);
        packet::put(&mut message, 2, &sum.to_be_bytes());
        if shown {
            show(port, false, &message)?;
        }
        self.send(port, &header, &message, None, false)
    }

    /// The router of the link. Over IPv6 it is asked for where none has made itself known.
    pub(super) fn find_router(&mut self, port: &mut dyn Port) -> Result<Option<IpAddr>, Refusal> {
        if self.address.is_ipv4() || self.address.is_unspecified() || !self.auto_arp {
            return Ok(self.router);
        }
        for _ in 0..ATTEMPTS {
            if self.router.is_some() {
                break;
            }
            self.solicit(port, ROUTER_SOLICITATION, &[], ALL_ROUTERS, false)?;
            let end = port.now() + PATIENCE;
            self.wait(port, end, |host| host.router)?;
        }
        Ok(self.router)
    }

    /// EFI_PXE_BASE_CODE_PROTOCOL.Arp().
    ///
    /// # Errors
    /// [`Refusal::InvalidParameter`]: without an address, or for one that no neighbour has. [`Refusal::DeviceError`]: unknown, and nobody may be asked.
    /// [`Refusal::Timeout`], [`Refusal::Aborted`].
    pub fn arp(&mut self, port: &mut dyn Port, of: IpAddr) -> Result<MacAddress, Refusal> {
        self.has_address()?;
        if of.is_unspecified() || of.is_multicast() || self.is_broadcast(of) {
            return Err(Refusal::InvalidParameter);
        }
        if !self.auto_arp && self.known(of).is_none() {
            return Err(Refusal::DeviceError);
        }
        self.neighbor(port, of, true)
    }
}
