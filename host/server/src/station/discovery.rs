//! Neighbour discovery (RFC 4861): who has an address of the station's is told, and so is what network the link has.

use std::net::Ipv6Addr;
use std::time::Instant;

use super::frame::{self, Mac, Peer};
use crate::ra::{ALL_NODES, ALL_ROUTERS, Advertisement, HOP_LIMIT, Schedule, is_solicitation};

const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Flags of an advertisement: it answers somebody, and what it says replaces what is known.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
/// Where the options of a solicitation begin.
const OPTIONS: usize = 24;

/// What the station has on the link.
#[derive(Debug)]
pub(super) struct Discovery {
    mac: Mac,
    link_local: Ipv6Addr,
    address: Ipv6Addr,
    advertisement: Advertisement,
    /// When all nodes are told of the network; from when somebody has asked.
    schedule: Option<Schedule>,
}

/// The Ethernet address of a group (RFC 2464, section 7).
fn group(address: Ipv6Addr) -> Peer {
    let [.., a, b, c, d] = address.octets();
    Peer {
        mac: [0x33, 0x33, a, b, c, d],
        address: (address, 0).into(),
    }
}

/// The group in which who has this address listens for solicitations (RFC 4291, section 2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let (last, low) = (u16::from(a) | 0xff00, u16::from_be_bytes([b, c]));
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, last, low)
}

impl Discovery {
    /// Of a station with these addresses; hosts are told that of the network.
    pub(super) fn new(mac: Mac, link_local: Ipv6Addr, advertisement: Advertisement) -> Self {
        Self {
            mac,
            link_local,
            address: advertisement.prefix.0,
            advertisement,
            schedule: None,
        }
    }

    /// Whether the address is the station's.
    pub(super) fn has(&self, address: Ipv6Addr) -> bool {
        address == self.link_local || address == self.address
    }

    /// The host on the link has begun anew.
    pub(super) fn forget(&mut self) {
        self.schedule = None;
    }

    /// The answer to a message that came from the link with the right checksum, if there is one.
    pub(super) fn answer(
        &mut self,
        mac: Mac,
        (from, to): (Ipv6Addr, Ipv6Addr),
        message: &[u8],
        now: Instant,
    ) -> Option<Vec<u8>> {
        let peer = Peer {
            mac,
            address: (from, 0).into(),
        };
        if (to == ALL_ROUTERS || self.has(to)) && is_solicitation(message, from, Some(HOP_LIMIT)) {
            let schedule = self.schedule.get_or_insert_with(|| Schedule::new(now));
            if !from.is_unicast_link_local() {
                schedule.asked(now);
                return None;
            }
            return Some(self.advertise(peer));
        }
        let target = solicited(message, from)?;
        let is_heard = to == target || to == solicited_node(target);
        (self.has(target) && is_heard).then_some(())?;
        // Who asks without an address looks whether it is free (RFC 4862).
        let (peer, solicited) = match from.is_unspecified() {
            true => (group(ALL_NODES), 0),
            false => (peer, SOLICITED),
        };
        let mut answer = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0];
        answer.extend([solicited | OVERRIDE, 0, 0, 0]);
        answer.extend(target.octets());
        answer.extend([TARGET_LINK_LAYER, 1]);
        answer.extend(self.mac);
        Some(frame::neighbour(self.mac, target, peer, &answer))
    }

    /// What all nodes are to be told of the network now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<u8>> {
        let schedule = self.schedule.as_mut()?;
        (now >= schedule.next).then(|| schedule.sent(now))?;
        Some(self.advertise(group(ALL_NODES)))
    }

    /// When there is something for [`Self::next`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.schedule.as_ref().map(|schedule| schedule.next)
    }

    fn advertise(&self, to: Peer) -> Vec<u8> {
        let message = self.advertisement.emit(false);
        frame::neighbour(self.mac, self.link_local, to, &message)
    }
}

/// Whose Ethernet address is asked for (RFC 4861, section 7.1.1).
fn solicited(message: &[u8], from: Ipv6Addr) -> Option<Ipv6Addr> {
    let (head, mut options) = message.split_first_chunk::<OPTIONS>()?;
    let [kind, code, _, _, _, _, _, _, target @ ..] = head;
    ((*kind, *code) == (NEIGHBOUR_SOLICITATION, 0)).then_some(())?;
    while let Some(&[kind, units]) = options.first_chunk::<2>() {
        let from_nobody = kind == SOURCE_LINK_LAYER && from.is_unspecified();
        options = options.get(usize::from(units) * 8..)?;
        (units > 0 && !from_nobody).then_some(())?;
    }
    options.is_empty().then_some(Ipv6Addr::from(*target))
}
