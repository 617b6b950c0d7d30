//! Duplicate address detection (RFC 4862, section 5.4), optimistic (RFC 4429): an address is used at once, with care at first, and is given
//! up when somebody else turns out to have it. There is a [`Detection`] for each address, made from a prefix or given by DHCPv6.

use super::ndisc::{NeighborAdvertisement, NeighborSolicitation, Nonce};
use super::solicited_node;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use wireboot_nic::MacAddress;
use wireboot_tcp::{Duration, Instant};

/// How long an address is optimistic, behind its probe. RFC 4862 waits for the whole of [`OBJECTIONS`]; a machine that boots has not the
/// time, and until then neighbours would not learn our Ethernet address from us (RFC 4429, section 3.3).
const OPTIMISTIC: Duration = Duration::from_millis(20);
/// How long others have to object: RetransTimer (RFC 4862, section 5.4).
const OBJECTIONS: Duration = Duration::from_secs(1);

/// What is known of whether an address is ours alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detection {
    /// The probe, a solicitation, is still to be sent.
    Due,
    /// It was sent then; unique unless somebody objects.
    Sent(Instant),
    Unique,
    /// Somebody else's. Kept, so that the next advertisement does not make it again.
    Duplicate,
}

/// What becomes of a solicitation for an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is answered, with this Override flag.
    Answer { override_: bool },
    /// Somebody else has begun to use the address, too.
    Conflict,
    /// It is our own probe.
    Looped,
}

impl Detection {
    /// The probe for `address`, if it is due. `nonce` tells it from others' (RFC 7527).
    pub(super) fn probe(
        &mut self,
        address: Ipv6Addr,
        nonce: Nonce,
        now: Instant,
    ) -> Option<Vec<u8>> {
        if *self != Self::Due {
            return None;
        }
        *self = Self::Sent(now);
        let solicitation = NeighborSolicitation {
            target: address,
            source_link: None,
            nonce: Some(nonce),
        };
        Some(solicitation.packet(Ipv6Addr::UNSPECIFIED, solicited_node(address)))
    }

    /// The address becomes unique when nobody has objected in time.
    pub(super) fn settle(&mut self, now: Instant) {
        if matches!(*self, Self::Sent(sent) if now >= sent + OBJECTIONS) {
            *self = Self::Unique;
        }
    }

    /// When [`Self::probe`] or [`Self::settle`] has something to do.
    pub(super) fn poll_at(self, now: Instant) -> Option<Instant> {
        match self {
            Self::Due => Some(now),
            Self::Sent(sent) => Some(sent + OBJECTIONS),
            Self::Unique | Self::Duplicate => None,
        }
    }

    /// When `time` since the probe is over; `None` where it is.
    #[inline]
    fn probed_for(self, time: Duration, now: Instant) -> Option<Instant> {
        let sent = match self {
            Self::Due => now,
            Self::Sent(sent) => sent,
            Self::Unique | Self::Duplicate => return None,
        };
        Some(sent + time).filter(|end| now < *end)
    }

    /// When the address will no longer be optimistic; `None` when it is not.
    #[inline]
    pub(super) fn optimistic_until(self, now: Instant) -> Option<Instant> {
        self.probed_for(OPTIMISTIC, now)
    }

    /// Whether others may still object.
    pub(super) fn is_tentative(self, now: Instant) -> bool {
        self.probed_for(OBJECTIONS, now).is_some()
    }

    /// What a solicitation for the address means. `probe`: it comes from no address, so its sender wants this one. `ours`: the nonce of
    /// our own.
    pub(super) fn asked(
        self,
        probe: bool,
        nonce: Option<Nonce>,
        ours: Nonce,
        now: Instant,
    ) -> Asked {
        let optimistic = self.optimistic_until(now).is_some();
        if !(probe && optimistic) {
            return Asked::Answer {
                override_: !optimistic,
            };
        }
        // Ours comes back where the network loops (RFC 7527).
        if nonce == Some(ours) {
            Asked::Looped
        } else {
            Asked::Conflict
        }
    }

    /// Whether an advertisement makes the address somebody else's. `mac`: ours. A unique address is not given up (RFC 4862, section 5.4.4
    /// leaves it open): else a packet could take it.
    pub(super) fn denied(
        self,
        said: &NeighborAdvertisement,
        mac: MacAddress,
        now: Instant,
    ) -> bool {
        said.target_link != Some(mac) && self.is_tentative(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Packet;
    use super::super::ndisc::{Message, parse};
    use super::*;

    const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
    const OTHER: MacAddress = [2, 0, 0, 0, 0, 2];
    const NONCE: Nonce = [3; 6];

    fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Probed at 0 ms.
    fn probed() -> Detection {
        let mut detection = Detection::Due;
        assert!(detection.probe(US, NONCE, at(0)).is_some());
        detection
    }

    fn has(target_link: Option<MacAddress>) -> NeighborAdvertisement {
        NeighborAdvertisement {
            solicited: false,
            override_: true,
            target: US,
            target_link,
        }
    }

    #[test]
    fn one_probe() {
        let mut detection = Detection::Due;
        assert_eq!(detection.poll_at(at(7)), Some(at(7)));
        let bytes = detection.probe(US, NONCE, at(7)).unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.source, Ipv6Addr::UNSPECIFIED);
        assert_eq!(packet.destination, solicited_node(US));
        let probe = Message::NeighborSolicitation(NeighborSolicitation {
            target: US,
            source_link: None,
            nonce: Some(NONCE),
        });
        assert_eq!(parse(&packet, packet.payload), Some(probe));
        for mut again in [Detection::Unique, Detection::Duplicate, detection] {
            assert_eq!(again.probe(US, NONCE, at(8)), None);
        }
        assert_eq!(detection.poll_at(at(8)), Some(at(1007)));
        detection.settle(at(1006));
        assert_eq!(detection, Detection::Sent(at(7)));
        detection.settle(at(1007));
        assert_eq!(detection, Detection::Unique);
        assert_eq!(detection.poll_at(at(1007)), None);
    }

    #[test]
    fn used_with_care_at_first() {
        // Before its probe is sent, too, for as long as that takes.
        assert_eq!(Detection::Due.optimistic_until(at(50)), Some(at(70)));
        assert_eq!(probed().optimistic_until(at(19)), Some(at(20)));
        assert_eq!(probed().optimistic_until(at(20)), None);
        for over in [Detection::Unique, Detection::Duplicate] {
            assert_eq!(over.optimistic_until(at(0)), None);
            assert!(!over.is_tentative(at(0)));
        }
    }

    /// For the second after the probe (RFC 4862, section 5.4), though the address is in use by then; looked at in between or not.
    #[test]
    fn others_may_object_for_a_second() {
        assert!(Detection::Due.denied(&has(Some(OTHER)), MAC, at(0)));
        for millis in [0, 19, 100, 999, 1000, 1100] {
            for looked_at in [0, 50, millis] {
                let mut detection = probed();
                detection.settle(at(looked_at.min(millis)));
                let in_time = millis < 1000;
                assert_eq!(detection.is_tentative(at(millis)), in_time);
                for other in [Some(OTHER), None] {
                    let denied = detection.denied(&has(other), MAC, at(millis));
                    assert_eq!(denied, in_time, "{millis} ms");
                }
                // Our own, looped back.
                assert!(!detection.denied(&has(Some(MAC)), MAC, at(millis)));
            }
        }
    }

    #[test]
    fn what_a_solicitation_means() {
        let asked = |probe, nonce, millis| probed().asked(probe, nonce, NONCE, at(millis));
        // A neighbour that looks for us. While optimistic, nobody's cache is overridden.
        let careful = Asked::Answer { override_: false };
        let sure = Asked::Answer { override_: true };
        assert_eq!(asked(false, None, 19), careful);
        assert_eq!(asked(false, None, 20), sure);
        // Somebody who wants the address at the same time; or later: it is defended.
        assert_eq!(asked(true, None, 19), Asked::Conflict);
        assert_eq!(asked(true, Some([1; 6]), 19), Asked::Conflict);
        assert_eq!(asked(true, Some(NONCE), 19), Asked::Looped);
        assert_eq!(asked(true, None, 20), sure);
    }
}
