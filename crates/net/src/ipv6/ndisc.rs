//! Messages of neighbour discovery (RFC 4861) with the options of RFC 7527 and RFC 8106.
//!
//! A message is read when all of it is right by sections 6.1, 7.1 and 8.1; the checksum and that no Fragment header was there
//! (RFC 6980) are for the caller to see. What needs knowledge of the network (who is the first hop, which prefixes are
//! of use) is for [`super::routers`] and [`super::slaac`].

use super::header::Packet;
use super::{ALL_ROUTERS, icmp, is_unicast, solicited_node};
use crate::packet::{array, be32, be128};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use wireboot_nic::MacAddress;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const NONCE: u8 = 14;
const RDNSS: u8 = 25;
const DNSSL: u8 = 31;

/// Only a neighbour's packet still has it.
const HOP_LIMIT: u8 = 255;
/// Of each kind of option, how many a message can bring.
const MOST: usize = 16;

pub(crate) type Nonce = [u8; 6];

/// What hosts take; a router solicitation is for routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    RouterAdvertisement(RouterAdvertisement),
    NeighborSolicitation(NeighborSolicitation),
    NeighborAdvertisement(NeighborAdvertisement),
    Redirect(Redirect),
}

/// Lifetimes are in seconds; those of 32 bits have `u32::MAX` for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouterAdvertisement {
    /// Addresses by DHCPv6.
    pub managed: bool,
    /// Other things by DHCPv6.
    pub other: bool,
    /// 1, 0 or -1 (RFC 4191).
    pub preference: i8,
    /// 0: not a default router.
    pub router_lifetime: u16,
    pub source_link: Option<MacAddress>,
    pub mtu: Option<u32>,
    pub prefixes: Vec<PrefixInformation>,
    pub dns: Vec<(Ipv6Addr, u32)>,
    pub search: Vec<(String, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixInformation {
    pub prefix: Ipv6Addr,
    /// At most 128.
    pub prefix_len: u8,
    pub on_link: bool,
    pub autonomous: bool,
    pub valid_lifetime: u32,
    pub preferred_lifetime: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighborSolicitation {
    pub target: Ipv6Addr,
    pub source_link: Option<MacAddress>,
    pub nonce: Option<Nonce>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighborAdvertisement {
    pub solicited: bool,
    pub override_: bool,
    pub target: Ipv6Addr,
    pub target_link: Option<MacAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// The better first hop.
    pub target: Ipv6Addr,
    /// The address whose packets are to take another way.
    pub destination: Ipv6Addr,
    pub target_link: Option<MacAddress>,
}

/// Reads the message behind the headers of a packet.
pub(crate) fn parse(packet: &Packet<'_>, message: &[u8]) -> Option<Message> {
    let (source, destination) = (packet.source, packet.destination);
    let [kind, code] = array(message, 0)?;
    if packet.hop_limit != HOP_LIMIT || code != 0 {
        return None;
    }
    let address = |at| be128(message, at).map(Ipv6Addr::from);
    let options = |at| options(message.get(at..)?);
    match kind {
        ROUTER_ADVERTISEMENT => {
            let advertisement = router_advertisement(message, &options(16)?)?;
            let right = source.is_unicast_link_local();
            right.then_some(Message::RouterAdvertisement(advertisement))
        }
        NEIGHBOR_SOLICITATION => {
            let (target, options) = (address(8)?, options(24)?);
            let source_link = link_address(&options, SOURCE_LINK)?;
            let group = solicited_node(target);
            let right = if source.is_unspecified() {
                destination == group && source_link.is_none()
            } else {
                destination == group || destination == target
            };
            let nonce = options.iter().find(|option| option.0 == NONCE);
            (right && is_unicast(target)).then_some(Message::NeighborSolicitation(
                NeighborSolicitation {
                    target,
                    source_link,
                    nonce: nonce.and_then(|option| option.1.try_into().ok()),
                },
            ))
        }
        NEIGHBOR_ADVERTISEMENT => {
            let target = address(8)?;
            let target_link = link_address(&options(24)?, TARGET_LINK)?;
            let flags = *message.get(4)?;
            let solicited = flags & 0x40 != 0;
            let right = is_unicast(source)
                && is_unicast(target)
                && !(solicited && destination.is_multicast());
            right.then_some(Message::NeighborAdvertisement(NeighborAdvertisement {
                solicited,
                override_: flags & 0x20 != 0,
                target,
                target_link,
            }))
        }
        REDIRECT => {
            let redirect = Redirect {
                target: address(8)?,
                destination: address(24)?,
                target_link: link_address(&options(40)?, TARGET_LINK)?,
            };
            let to_router = redirect.target.is_unicast_link_local();
            let right = source.is_unicast_link_local()
                && !destination.is_multicast()
                && is_unicast(redirect.destination)
                && (to_router || redirect.target == redirect.destination);
            right.then_some(Message::Redirect(redirect))
        }
        _ => None,
    }
}

/// Type and data of each option, when all of them fit.
fn options(mut bytes: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut options = Vec::new();
    while let Some(&kind) = bytes.first() {
        let len = usize::from(*bytes.get(1)?) * 8;
        // Fails for a length of 0.
        options.push((kind, bytes.get(2..len)?));
        bytes = bytes.get(len..)?;
    }
    Some(options)
}

/// The Ethernet address in the option of type `kind`, if there is one. `None` when it is not six bytes long.
fn link_address(options: &[(u8, &[u8])], kind: u8) -> Option<Option<MacAddress>> {
    match options.iter().find(|option| option.0 == kind) {
        Some((_, data)) => Some(Some((*data).try_into().ok()?)),
        None => Some(None),
    }
}

fn router_advertisement(message: &[u8], options: &[(u8, &[u8])]) -> Option<RouterAdvertisement> {
    let [_, _, _, _, _, flags, lifetime @ ..] = array::<8>(message, 0)?;
    let mut advertisement = RouterAdvertisement {
        managed: flags & 0x80 != 0,
        other: flags & 0x40 != 0,
        preference: match flags >> 3 & 3 {
            1 => 1,
            3 => -1,
            _ => 0,
        },
        router_lifetime: u16::from_be_bytes(lifetime),
        source_link: link_address(options, SOURCE_LINK)?,
        ..RouterAdvertisement::default()
    };
    for &(kind, data) in options {
        match kind {
            PREFIX => advertisement.prefixes.push(prefix_information(data)?),
            MTU if data.len() == 6 => {
                advertisement.mtu = Some(be32(data, 2)?);
            }
            MTU => return None,
            // Those two are passed over when they are wrong (RFC 8106, section 5.3.1).
            RDNSS => advertisement.dns.extend(servers(data).unwrap_or_default()),
            DNSSL => advertisement.search.extend(names(data).unwrap_or_default()),
            _ => {}
        }
    }
    advertisement.prefixes.truncate(MOST);
    advertisement.dns.truncate(MOST);
    advertisement.search.truncate(MOST);
    Some(advertisement)
}

fn prefix_information(data: &[u8]) -> Option<PrefixInformation> {
    let data: &[u8; 30] = data.try_into().ok()?;
    let [prefix_len, flags, ..] = *data;
    (prefix_len <= 128).then_some(PrefixInformation {
        prefix: Ipv6Addr::from(be128(data, 14)?),
        prefix_len,
        on_link: flags & 0x80 != 0,
        autonomous: flags & 0x40 != 0,
        valid_lifetime: be32(data, 2)?,
        preferred_lifetime: be32(data, 6)?,
    })
}

fn servers(data: &[u8]) -> Option<Vec<(Ipv6Addr, u32)>> {
    let lifetime = be32(data, 2)?;
    let (addresses, rest) = data.get(6..)?.as_chunks::<16>();
    if !rest.is_empty() {
        return None;
    }
    let servers = addresses.iter().copied().map(Ipv6Addr::from);
    let servers = servers.filter(|server| is_unicast(*server));
    Some(servers.map(|server| (server, lifetime)).collect())
}

/// Names of host name characters only, as others write them into files and onto screens.
fn names(data: &[u8]) -> Option<Vec<(String, u32)>> {
    let lifetime = be32(data, 2)?;
    let (mut names, mut name, mut rest) = (Vec::new(), String::new(), data.get(6..)?);
    while let Some((&len, after)) = rest.split_first() {
        let label = after.get(..usize::from(len))?;
        rest = after.get(usize::from(len)..)?;
        if len == 0 {
            // The end of a name, or padding.
            if !name.is_empty() {
                names.push((core::mem::take(&mut name), lifetime));
            }
            continue;
        }
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if len > 63 || !label.iter().all(plain) {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|&b| char::from(b)));
        if name.len() > 253 {
            return None;
        }
    }
    // Each name has an end.
    name.is_empty().then_some(names)
}

fn push_link(message: &mut Vec<u8>, kind: u8, mac: Option<MacAddress>) {
    if let Some(mac) = mac {
        message.extend([kind, 1]);
        message.extend(mac);
    }
}

/// Asks the routers. `mac` is left out where `source` is optimistic or unspecified (RFC 4429, section 3.2).
pub(crate) fn router_solicitation(source: Ipv6Addr, mac: Option<MacAddress>) -> Vec<u8> {
    let mut message = Vec::from([ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
    push_link(&mut message, SOURCE_LINK, mac);
    icmp::packet(source, ALL_ROUTERS, HOP_LIMIT, message)
}

impl NeighborSolicitation {
    /// Asks `destination`: the target, or its group.
    pub(crate) fn packet(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let mut message = Vec::from([NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
        message.extend(self.target.octets());
        push_link(&mut message, SOURCE_LINK, self.source_link);
        push_link(&mut message, NONCE, self.nonce);
        icmp::packet(source, destination, HOP_LIMIT, message)
    }
}

impl NeighborAdvertisement {
    pub(crate) fn packet(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let flags = u8::from(self.solicited) << 6 | u8::from(self.override_) << 5;
        let mut message = Vec::from([NEIGHBOR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
        message.extend(self.target.octets());
        push_link(&mut message, TARGET_LINK, self.target_link);
        icmp::packet(source, destination, HOP_LIMIT, message)
    }
}

#[cfg(test)]
mod tests;
