//! The addresses of an interface: made from router advertisements (RFC 4862), by DHCPv6, and link-local; each checked by optimistic
//! duplicate address detection (RFC 4429), which lets it be used at once.
//!
//! A conflict drops the address. Where ids are stable and private, the next one is tried (RFC 7217, section 6), three times
//! altogether.

use super::interface_id::{InterfaceId, hash};
use super::lasting::{end, is_over};
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
/// How long others have to object. RFC 4862 waits for RetransTimer, a second; a machine that boots has not the time, and until then
/// neighbours would not learn our Ethernet address from us (RFC 4429, section 3.3).
const OBJECTIONS: Duration = Duration::from_millis(20);
/// RFC 4862, section 5.5.3 e.
const TWO_HOURS: u32 = 2 * 60 * 60;
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Link-local, or of a prefix. How many ids were others'.
    Prefix {
        tries: u8,
    },
    Dhcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detection {
    /// The solicitation is still to be sent.
    Due,
    /// It was sent; unique unless somebody objects until then.
    Sent(Instant),
    Unique,
    /// Somebody else's. Kept, so that the next advertisement does not make it again.
    Duplicate,
}

/// What an address may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// For everything, but no neighbour is told to forget another's Ethernet address for it.
    Optimistic,
    Preferred,
    /// For what has begun.
    Deprecated,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    address: Ipv6Addr,
    prefix_len: u8,
    origin: Origin,
    detection: Detection,
    /// `None`: for ever.
    preferred_until: Option<Instant>,
    valid_until: Option<Instant>,
}

/// What a neighbour's message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Nothing,
    /// A packet to be sent: to the one who asked, or to all.
    Answer(Vec<u8>),
    /// The address is somebody else's and no longer ours; the one that is tried instead.
    Conflict {
        address: Ipv6Addr,
        instead: Option<Ipv6Addr>,
    },
}

pub struct Slaac {
    mac: MacAddress,
    interface_id: InterfaceId,
    /// For nonces.
    seed: [u8; 32],
    addresses: Vec<Address>,
    pub routers: Routers,
}

impl Slaac {
    /// `seed`: random. The interface has its link-local address from now on.
    pub fn new(
        mac: MacAddress,
        interface_id: InterfaceId,
        nic_mtu: u16,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        let mut slaac = Slaac {
            mac,
            interface_id,
            seed,
            addresses: Vec::new(),
            routers: Routers::new(mac, nic_mtu, now),
        };
        slaac.make(LINK_LOCAL, u32::MAX, u32::MAX, now);
        slaac
    }

    /// Takes a checked router advertisement.
    pub fn heard_ra(&mut self, source: Ipv6Addr, said: &RouterAdvertisement, now: Instant) {
        self.routers.heard(source, said, now);
        self.expire(now);
        for prefix in &said.prefixes {
            self.heard_prefix(prefix, now);
        }
    }

    /// RFC 4862, section 5.5.3.
    fn heard_prefix(&mut self, said: &PrefixInformation, now: Instant) {
        let PrefixInformation {
            valid_lifetime: valid,
            preferred_lifetime: preferred,
            ..
        } = *said;
        let of_use = said.autonomous
            && said.prefix_len == 64
            && is_unicast(said.prefix)
            && !said.prefix.is_unicast_link_local()
            && preferred <= valid;
        if !of_use {
            return;
        }
        let made = |known: &Address| known.origin != Origin::Dhcp;
        let mut known = self.addresses.iter_mut();
        let of_prefix = |known: &Address| same_prefix(known.address, said.prefix, 64);
        if let Some(known) = known.find(|known| made(known) && of_prefix(known)) {
            known.preferred_until = end(preferred, now);
            let two_hours = now + Duration::from_secs(TWO_HOURS.into());
            let longer = match (end(valid, now), known.valid_until) {
                (None, _) => true,
                (Some(said), Some(left)) => said > left,
                (Some(_), None) => false,
            };
            if longer || valid > TWO_HOURS {
                known.valid_until = end(valid, now);
            } else if known.valid_until.is_none_or(|left| left > two_hours) {
                known.valid_until = Some(two_hours);
            }
            return;
        }
        // Besides the link-local one.
        let room = self.addresses.iter().filter(|known| made(known)).count() <= FROM_PREFIXES;
        if valid != 0 && room {
            self.make(said.prefix, preferred, valid, now);
        }
    }

    fn make(&mut self, prefix: Ipv6Addr, preferred: u32, valid: u32, now: Instant) {
        if let Some(address) = self.interface_id.address(prefix, self.mac, 0) {
            let origin = Origin::Prefix { tries: 0 };
            self.push(address, 64, origin, (preferred, valid), now);
        }
    }

    fn push(
        &mut self,
        address: Ipv6Addr,
        prefix_len: u8,
        origin: Origin,
        (preferred, valid): (u32, u32),
        now: Instant,
    ) {
        self.addresses.push(Address {
            address,
            prefix_len,
            origin,
            detection: Detection::Due,
            preferred_until: end(preferred, now),
            valid_until: end(valid, now),
        });
    }

    /// Takes an address that DHCPv6 has given, or gives it new lifetimes (in seconds). False when it is none that we can have.
    pub fn add(
        &mut self,
        address: Ipv6Addr,
        prefix_len: u8,
        preferred: u32,
        valid: u32,
        now: Instant,
    ) -> bool {
        self.expire(now);
        let of_dhcp = |known: &&Address| known.origin == Origin::Dhcp;
        let full = self.addresses.iter().filter(of_dhcp).count() >= FROM_DHCP;
        let mut known = self.addresses.iter_mut();
        let known = known.find(|known| known.address == address);
        let right = is_unicast(address) && preferred <= valid && valid != 0;
        match known {
            Some(known) if right && known.detection != Detection::Duplicate => {
                known.preferred_until = end(preferred, now);
                known.valid_until = end(valid, now);
                true
            }
            None if right && !full => {
                self.push(address, prefix_len, Origin::Dhcp, (preferred, valid), now);
                true
            }
            _ => false,
        }
    }

    /// Takes a checked solicitation.
    pub fn heard_ns(
        &mut self,
        source: Ipv6Addr,
        said: &NeighborSolicitation,
        now: Instant,
    ) -> Verdict {
        let Some(state) = self.state(said.target, now) else {
            return Verdict::Nothing;
        };
        let optimistic = state == State::Optimistic;
        let asks_for_itself = source.is_unspecified();
        if asks_for_itself && optimistic {
            // Ours comes back where the network loops (RFC 7527).
            return match said.nonce == Some(self.nonce(said.target)) {
                true => Verdict::Nothing,
                false => self.conflict(said.target),
            };
        }
        let answer = NeighborAdvertisement {
            router: false,
            solicited: !asks_for_itself,
            override_: !optimistic,
            target: said.target,
            target_link: Some(self.mac),
        };
        let to = if asks_for_itself { ALL_NODES } else { source };
        Verdict::Answer(answer.packet(said.target, to))
    }

    /// Takes a checked advertisement, as far as it is about addresses of ours.
    pub fn heard_na(&mut self, said: &NeighborAdvertisement, now: Instant) -> Verdict {
        let ours = said.target_link == Some(self.mac);
        match self.state(said.target, now) {
            // A settled address is not given up (RFC 4862, section 5.4.4 leaves it open): else a packet could take it.
            Some(State::Optimistic) if !ours => self.conflict(said.target),
            _ => Verdict::Nothing,
        }
    }

    fn conflict(&mut self, address: Ipv6Addr) -> Verdict {
        let mut instead = None;
        let mut known = self.addresses.iter_mut();
        if let Some(known) = known.find(|known| known.address == address) {
            known.detection = Detection::Duplicate;
            if let Origin::Prefix { tries } = &mut known.origin {
                *tries += 1;
                instead = self.interface_id.address(address, self.mac, *tries);
            }
            if let Some(address) = instead {
                known.address = address;
                known.detection = Detection::Due;
            }
        }
        Verdict::Conflict { address, instead }
    }

    /// What tells our solicitation for an address from others'.
    fn nonce(&self, address: Ipv6Addr) -> Nonce {
        hash(&self.seed, &[&address.octets()])
    }

    /// The packet to be sent now: a solicitation of duplicate address detection or of routers. Its destination is a group. To be
    /// called until there is nothing.
    pub fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.expire(now);
        for known in &mut self.addresses {
            if matches!(known.detection, Detection::Sent(until) if now >= until) {
                known.detection = Detection::Unique;
            }
        }
        let mut known = self.addresses.iter_mut();
        let probe = known.find(|known| known.detection == Detection::Due);
        if let Some(known) = probe {
            known.detection = Detection::Sent(now + OBJECTIONS);
            let target = known.address;
            let solicitation = NeighborSolicitation {
                target,
                source_link: None,
                nonce: Some(self.nonce(target)),
            };
            return Some(solicitation.packet(Ipv6Addr::UNSPECIFIED, solicited_node(target)));
        }
        let link_local = self.link_local(now);
        let optimistic = |address| self.state(address, now) == Some(State::Optimistic);
        let source = link_local.map(|address| (address, optimistic(address)));
        self.routers.due(source, now)
    }

    /// When [`Self::due`] has something to do.
    pub fn poll_at(&self, now: Instant) -> Option<Instant> {
        let addresses = self.addresses.iter();
        let times = addresses.flat_map(|known| {
            let detection = match known.detection {
                Detection::Due => Some(now),
                Detection::Sent(until) => Some(until),
                _ => None,
            };
            [detection, known.valid_until]
        });
        times.chain([self.routers.poll_at()]).flatten().min()
    }

    fn expire(&mut self, now: Instant) {
        let valid = |known: &Address| !is_over(known.valid_until, now);
        self.addresses.retain(valid);
    }

    fn usable(&self, now: Instant) -> impl Iterator<Item = &Address> {
        self.addresses.iter().filter(move |known| {
            known.detection != Detection::Duplicate && !is_over(known.valid_until, now)
        })
    }

    /// What `address` may be used for; `None` when it is not ours.
    pub fn state(&self, address: Ipv6Addr, now: Instant) -> Option<State> {
        let known = self.usable(now).find(|known| known.address == address)?;
        Some(match known.detection {
            Detection::Unique if is_over(known.preferred_until, now) => State::Deprecated,
            Detection::Unique => State::Preferred,
            _ => State::Optimistic,
        })
    }

    /// When `address` will no longer be optimistic, if it is.
    pub fn settles_at(&self, address: Ipv6Addr, now: Instant) -> Option<Instant> {
        let known = self.usable(now).find(|known| known.address == address)?;
        match known.detection {
            Detection::Due => Some(now + OBJECTIONS),
            Detection::Sent(until) => Some(until),
            Detection::Unique | Detection::Duplicate => None,
        }
    }

    pub fn link_local(&self, now: Instant) -> Option<Ipv6Addr> {
        let mut usable = self.usable(now).map(|known| known.address);
        usable.find(Ipv6Addr::is_unicast_link_local)
    }

    /// The addresses in use, as [`super::source`] chooses among them. Optimistic ones count as deprecated there (RFC 4429,
    /// section 3.3).
    pub fn candidates(&self, now: Instant) -> impl Iterator<Item = Candidate> {
        self.usable(now).map(move |known| Candidate {
            address: known.address,
            prefix_len: known.prefix_len,
            deprecated: known.detection != Detection::Unique || is_over(known.preferred_until, now),
        })
    }

    /// The groups that go with the addresses in use.
    pub fn groups(&self, now: Instant) -> impl Iterator<Item = Ipv6Addr> {
        self.usable(now).map(|known| solicited_node(known.address))
    }
}

#[cfg(test)]
mod tests;
