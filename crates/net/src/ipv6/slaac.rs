//! The addresses of an interface: made from router advertisements (RFC 4862), by DHCPv6, and link-local. Each is checked for duplicates
//! ([`super::dad`]) while it is used. A conflict drops the address.

use super::dad::{Asked, Detection};
use super::lifetime::{end, is_over};
use super::ndisc::{
    NeighborAdvertisement, NeighborSolicitation, Nonce, PrefixInformation, RouterAdvertisement,
};
use super::routers::Routers;
use super::source::Candidate;
use super::{ALL_NODES, is_unicast, same_prefix, solicited_node};
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use wireboot_nic::MacAddress;
use wireboot_tcp::{Duration, Instant};

/// Addresses made from prefixes, and by DHCPv6.
const FROM_PREFIXES: usize = 6;
const FROM_DHCP: usize = 2;
/// RFC 4862, section 5.5.3 e.
const TWO_HOURS: u32 = 2 * 60 * 60;
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Link-local, or of a prefix.
    Prefix,
    Dhcp,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    address: Ipv6Addr,
    origin: Origin,
    detection: Detection,
    /// `None`: for ever.
    preferred_until: Option<Instant>,
    valid_until: Option<Instant>,
}

impl Address {
    #[inline]
    fn usable(&self, now: Instant) -> bool {
        self.detection != Detection::Duplicate && !is_over(self.valid_until, now)
    }
}

pub(crate) struct Slaac {
    mac: MacAddress,
    /// Tells our solicitations for an address from others' (RFC 7527).
    nonce: Nonce,
    addresses: Vec<Address>,
    pub routers: Routers,
}

impl Slaac {
    /// `nonce`: random. The interface has its link-local address from now on.
    pub(crate) fn new(mac: MacAddress, nic_mtu: u16, nonce: Nonce, now: Instant) -> Self {
        let mut slaac = Self {
            mac,
            nonce,
            addresses: Vec::new(),
            routers: Routers::new(mac, nic_mtu, now),
        };
        slaac.push(eui64(LINK_LOCAL, mac), Origin::Prefix, None, None);
        slaac
    }

    /// Takes a checked router advertisement.
    pub(crate) fn heard_ra(&mut self, source: Ipv6Addr, said: &RouterAdvertisement, now: Instant) {
        self.routers.heard(source, said, now);
        self.expire(now);
        for prefix in &said.prefixes {
            self.heard_prefix(prefix, now);
        }
    }

    /// RFC 4862, section 5.5.3.
    fn heard_prefix(&mut self, said: &PrefixInformation, now: Instant) {
        let (preferred, valid) = (said.preferred_lifetime, said.valid_lifetime);
        let of_use = said.autonomous
            && said.prefix_len == 64
            && is_unicast(said.prefix)
            && !said.prefix.is_unicast_link_local()
            && preferred <= valid;
        if !of_use {
            return;
        }
        let (preferred_until, valid_until) = (end(preferred, now), end(valid, now));
        let made = |known: &Address| known.origin != Origin::Dhcp;
        let mut known = self.addresses.iter_mut();
        let of_prefix = |known: &Address| same_prefix(known.address, said.prefix, 64);
        if let Some(known) = known.find(|known| made(known) && of_prefix(known)) {
            known.preferred_until = preferred_until;
            let two_hours = now + Duration::from_secs(TWO_HOURS.into());
            let longer = match (valid_until, known.valid_until) {
                (None, _) => true,
                (Some(said), Some(left)) => said > left,
                (Some(_), None) => false,
            };
            if longer || valid > TWO_HOURS {
                known.valid_until = valid_until;
            } else if known.valid_until.is_none_or(|left| left > two_hours) {
                known.valid_until = Some(two_hours);
            }
            return;
        }
        // Besides the link-local one.
        let room = self.addresses.iter().filter(|known| made(known)).count() <= FROM_PREFIXES;
        if valid != 0 && room {
            let address = eui64(said.prefix, self.mac);
            self.push(address, Origin::Prefix, preferred_until, valid_until);
        }
    }

    fn push(
        &mut self,
        address: Ipv6Addr,
        origin: Origin,
        preferred_until: Option<Instant>,
        valid_until: Option<Instant>,
    ) {
        self.addresses.push(Address {
            address,
            origin,
            detection: Detection::Due,
            preferred_until,
            valid_until,
        });
    }

    /// Takes an address that DHCPv6 has given, for ever: a boot is shorter than a lease. False when it is none that we can have. One
    /// that turned out to be somebody else's makes room.
    pub(crate) fn add(&mut self, address: Ipv6Addr, now: Instant) -> bool {
        self.expire(now);
        if !is_unicast(address) {
            return false;
        }
        if let Some(known) = self.known(address) {
            if known.detection == Detection::Duplicate {
                return false;
            }
            (known.preferred_until, known.valid_until) = (None, None);
            return true;
        }
        let of_dhcp = |known: &&Address| known.origin == Origin::Dhcp;
        if self.addresses.iter().filter(of_dhcp).count() == FROM_DHCP {
            let given_up = |known| of_dhcp(&known) && known.detection == Detection::Duplicate;
            let Some(place) = self.addresses.iter().position(given_up) else {
                return false;
            };
            self.addresses.remove(place);
        }
        self.push(address, Origin::Dhcp, None, None);
        self.routers.given(address, now);
        true
    }

    /// Takes a checked solicitation. The answer, to the one who asked or to all.
    pub(crate) fn heard_ns(
        &mut self,
        source: Ipv6Addr,
        said: &NeighborSolicitation,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let detection = self.find(said.target, now)?.detection;
        let probe = source.is_unspecified();
        let override_ = match detection.asked(probe, said.nonce, self.nonce, now) {
            Asked::Answer { override_ } => override_,
            Asked::Conflict => {
                self.conflict(said.target);
                return None;
            }
            Asked::Looped => return None,
        };
        let answer = NeighborAdvertisement {
            solicited: !probe,
            override_,
            target: said.target,
            target_link: Some(self.mac),
        };
        let to = if probe { ALL_NODES } else { source };
        Some(answer.packet(said.target, to))
    }

    /// Takes a checked advertisement, as far as it is about addresses of ours.
    pub(crate) fn heard_na(&mut self, said: &NeighborAdvertisement, now: Instant) {
        let known = self.find(said.target, now);
        if known.is_some_and(|known| known.detection.denied(said, self.mac, now)) {
            self.conflict(said.target);
        }
    }

    /// The address is somebody else's and no longer ours.
    fn conflict(&mut self, address: Ipv6Addr) {
        if let Some(known) = self.known(address) {
            known.detection = Detection::Duplicate;
        }
    }

    /// The packet to be sent now: a solicitation of duplicate address detection or of routers. Its destination is a group. To be
    /// called until there is nothing.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.expire(now);
        for known in &mut self.addresses {
            known.detection.settle(now);
            if let Some(probe) = known.detection.probe(known.address, self.nonce, now) {
                return Some(probe);
            }
        }
        let link_local = self.link_local(now);
        let optimistic = |address| self.optimistic_until(address, now).is_some();
        let source = link_local.map(|address| (address, optimistic(address)));
        self.routers.due(source, now)
    }

    /// When [`Self::due`] has something to do.
    pub(crate) fn poll_at(&self, now: Instant) -> Option<Instant> {
        let addresses = self.addresses.iter();
        let times = addresses.flat_map(|known| [known.detection.poll_at(now), known.valid_until]);
        times.chain([self.routers.poll_at()]).flatten().min()
    }

    fn expire(&mut self, now: Instant) {
        let valid = |known: &Address| !is_over(known.valid_until, now);
        self.addresses.retain(valid);
    }

    fn known(&mut self, address: Ipv6Addr) -> Option<&mut Address> {
        let mut addresses = self.addresses.iter_mut();
        addresses.find(|known| known.address == address)
    }

    fn usable(&self, now: Instant) -> impl Iterator<Item = &Address> {
        self.addresses.iter().filter(move |known| known.usable(now))
    }

    #[inline]
    fn find(&self, address: Ipv6Addr, now: Instant) -> Option<&Address> {
        self.usable(now).find(|known| known.address == address)
    }

    /// Whether `address` may be used.
    #[inline]
    pub(crate) fn is_ours(&self, address: Ipv6Addr, now: Instant) -> bool {
        self.find(address, now).is_some()
    }

    /// Whether `address` was one of ours until somebody said that it is theirs.
    pub(crate) fn is_duplicate(&self, address: Ipv6Addr) -> bool {
        let mut known = self.addresses.iter();
        known.any(|known| known.address == address && known.detection == Detection::Duplicate)
    }

    /// When `address` will no longer be optimistic, if it is: until then no neighbour is told to forget another's Ethernet address for
    /// it.
    pub(crate) fn optimistic_until(&self, address: Ipv6Addr, now: Instant) -> Option<Instant> {
        self.find(address, now)?.detection.optimistic_until(now)
    }

    /// Whether `address` is one of ours that others may still object to.
    pub(crate) fn is_tentative(&self, address: Ipv6Addr, now: Instant) -> bool {
        let known = self.find(address, now);
        known.is_some_and(|known| known.detection.is_tentative(now))
    }

    pub(crate) fn link_local(&self, now: Instant) -> Option<Ipv6Addr> {
        let mut usable = self.usable(now).map(|known| known.address);
        usable.find(Ipv6Addr::is_unicast_link_local)
    }

    /// The addresses in use, as [`super::source`] chooses among them. Optimistic ones count as deprecated there (RFC 4429,
    /// section 3.3).
    pub(crate) fn candidates(&self, now: Instant) -> impl Iterator<Item = Candidate> {
        self.usable(now).map(move |known| Candidate {
            address: known.address,
            prefix_len: match known.origin {
                Origin::Prefix => 64,
                Origin::Dhcp => 128,
            },
            deprecated: known.detection.optimistic_until(now).is_some()
                || is_over(known.preferred_until, now),
        })
    }

    /// The groups that go with the addresses in use.
    pub(crate) fn groups(&self, now: Instant) -> impl Iterator<Item = Ipv6Addr> {
        self.usable(now).map(|known| solicited_node(known.address))
    }
}

/// The address within the /64 of `prefix` whose interface id is the modified EUI-64 of `mac` (RFC 4291, appendix A).
fn eui64(prefix: Ipv6Addr, mac: MacAddress) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(prefix.to_bits() >> 64 << 64 | u128::from(id))
}

#[cfg(test)]
mod tests;
