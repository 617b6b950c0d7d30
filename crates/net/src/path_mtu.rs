//! How long packets to a destination may be (RFC 1191, RFC 8201).
//!
//! Anybody can send the messages that tell it. What [`parse`] returns is believed for a flow of ours alone, for TCP with data in
//! flight at the quoted sequence number; see [`crate::quote`].

use crate::ipv6::icmp::MIN_MTU;
use crate::packet::{IpVersion, array};
use crate::quote::{Quoted, read};
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_tcp::{Duration, Instant};

/// IPv4 packets of this length are sent whatever a message says.
pub(crate) const MIN_MTU_V4: u16 = 576;
/// RFC 8201, section 5.3: after so long, longer packets are tried again.
const LIFETIME: Duration = Duration::from_secs(600);
/// Destinations remembered at most: the oldest makes room for a new one.
const DESTINATIONS: usize = 16;
/// RFC 1191, section 7.1: what to try when a router names no MTU.
const PLATEAUS: [u16; 8] = [
    32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, MIN_MTU_V4,
];

/// A packet of ours that was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBig {
    pub quoted: Quoted,
    /// At least what every path carries, and less than the packet was long.
    pub mtu: u16,
}

/// Reads Packet Too Big (ICMPv6) or Fragmentation Needed (ICMPv4), whose checksum is right.
pub(crate) fn parse(version: IpVersion, message: &[u8]) -> Option<TooBig> {
    let quoted = read(version, message.get(8..)?)?;
    let mtu = reported_mtu(version, message, quoted.len)?;
    Some(TooBig { quoted, mtu })
}

/// What such a message about a packet of `len` bytes says: at least what every path carries, and less than `len`.
pub(crate) fn reported_mtu(version: IpVersion, message: &[u8], len: usize) -> Option<u16> {
    let [kind, code, _, _, mtu @ ..] = array::<8>(message, 0)?;
    let mtu = u32::from_be_bytes(mtu);
    let (expected, mtu) = match version {
        IpVersion::V4 => {
            let mtu = match mtu & 0xffff {
                0 => PLATEAUS.into_iter().find(|mtu| usize::from(*mtu) < len)?,
                mtu => (mtu as u16).max(MIN_MTU_V4),
            };
            ((3, 4), mtu)
        }
        // Nobody needs to send less than every link carries (RFC 8201, section 4).
        IpVersion::V6 => (
            (2, 0),
            u16::try_from(mtu).ok().filter(|mtu| *mtu >= MIN_MTU)?,
        ),
    };
    let right = (kind, code) == expected && usize::from(mtu) < len;
    right.then_some(mtu)
}

/// What is known of paths. Each destination: its MTU, and until when that is believed.
#[derive(Default)]
pub(crate) struct PathMtus(Vec<(IpAddr, u16, Instant)>);

impl PathMtus {
    /// The MTU of the path to `destination`, if it is less than the link's.
    pub(crate) fn get(&self, destination: IpAddr, now: Instant) -> Option<u16> {
        let mut live = self.0.iter().filter(|(_, _, until)| now < *until);
        let known = live.find(|(to, ..)| *to == destination)?;
        Some(known.1)
    }

    /// Packets longer than `mtu` do not reach `destination`. Known MTUs only become less.
    pub(crate) fn lower(&mut self, destination: IpAddr, mtu: u16, now: Instant) {
        let floor = if destination.is_ipv4() {
            MIN_MTU_V4
        } else {
            MIN_MTU
        };
        let mtu = mtu.max(floor);
        if self.get(destination, now).is_some_and(|known| known <= mtu) {
            return;
        }
        self.0
            .retain(|(to, _, until)| *to != destination && now < *until);
        if self.0.len() == DESTINATIONS {
            // The oldest.
            self.0.remove(0);
        }
        self.0.push((destination, mtu, now + LIFETIME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{PROTOCOL_TCP, PROTOCOL_UDP};
    use crate::quote::tests::{HOST4, HOST6, about, sent};
    use proptest::prelude::*;

    fn says(version: IpVersion, kind: u8, code: u8, mtu: u32, len: u16) -> Option<u16> {
        let message = about(kind, code, mtu, &sent(version, PROTOCOL_TCP, len));
        let got = parse(version, &message)?;
        assert_eq!(
            Some(got.quoted),
            read(version, &sent(version, PROTOCOL_TCP, len))
        );
        Some(got.mtu)
    }

    #[test]
    fn packet_too_big() {
        let says = |kind, code, mtu| says(IpVersion::V6, kind, code, mtu, 1500);
        assert_eq!(says(2, 0, 1400), Some(1400));
        assert_eq!(says(2, 0, 1280), Some(1280));
        assert_eq!(says(2, 0, 1279), None);
        assert_eq!(says(2, 0, 0), None);
        assert_eq!(says(2, 0, 1500), None);
        assert_eq!(says(2, 0, 65_536 + 1400), None);
        assert_eq!(says(2, 1, 1400), None);
        assert_eq!(says(1, 0, 1400), None);
    }

    #[test]
    fn fragmentation_needed() {
        let says = |kind, code, mtu, len| says(IpVersion::V4, kind, code, mtu, len);
        assert_eq!(says(3, 4, 1400, 1500), Some(1400));
        assert_eq!(says(3, 4, 100, 1500), Some(576));
        assert_eq!(says(3, 4, 1500, 1500), None);
        assert_eq!(says(3, 4, 100, 576), None);
        // Of a router that names none.
        assert_eq!(says(3, 4, 0, 1500), Some(1492));
        assert_eq!(says(3, 4, 0, 1492), Some(1006));
        assert_eq!(says(3, 4, 0, 577), Some(576));
        assert_eq!(says(3, 4, 0, 576), None);
        // The upper half of the word is not used.
        assert_eq!(says(3, 4, 0xffff_0000 + 1400, 1500), Some(1400));
        assert_eq!(says(3, 3, 1400, 1500), None);
        assert_eq!(says(4, 4, 1400, 1500), None);
    }

    #[test]
    fn a_path_may_turn_out_shorter_still() {
        let mut paths = PathMtus::default();
        paths.lower(HOST4.into(), 1400, Instant::from_secs(0));
        paths.lower(HOST4.into(), 1300, Instant::from_secs(1));
        assert_eq!(paths.get(HOST4.into(), Instant::from_secs(2)), Some(1300));
        assert_eq!(paths.0.len(), 1);
    }

    #[test]
    fn a_path_is_remembered_for_ten_minutes() {
        let at = Instant::from_secs;
        let mut paths = PathMtus::default();
        let (v4, v6) = (IpAddr::V4(HOST4), IpAddr::V6(HOST6));
        assert_eq!(paths.get(v4, at(0)), None);
        paths.lower(v4, 1400, at(0));
        paths.lower(v6, 100, at(1));
        assert_eq!(
            (paths.get(v4, at(0)), paths.get(v6, at(1))),
            (Some(1400), Some(1280))
        );
        // Never raised, nor held longer, by a message.
        paths.lower(v4, 1450, at(300));
        paths.lower(v4, 1400, at(300));
        assert_eq!(
            (paths.get(v4, at(599)), paths.get(v4, at(600))),
            (Some(1400), None)
        );
        paths.lower(v4, 1450, at(600));
        assert_eq!(paths.get(v4, at(600)), Some(1450));
        paths.lower(v4, 99, at(601));
        assert_eq!(paths.get(v4, at(1200)), Some(576));
        for last in 0..100_u32 {
            paths.lower(IpAddr::V4(last.into()), 1000, at(602));
        }
        assert_eq!(paths.0.len(), DESTINATIONS);
        assert_eq!(paths.get(IpAddr::V4(99.into()), at(602)), Some(1000));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, value: u32, len in 40..u16::MAX) {
            for (version, kind, code) in [(IpVersion::V4, 3, 4), (IpVersion::V6, 2, 0)] {
                parse(version, &bytes);
                let message = about(kind, code, value, &sent(version, PROTOCOL_UDP, len));
                if let Some(got) = parse(version, &message) {
                    prop_assert!(usize::from(got.mtu) < usize::from(len) && got.mtu >= 576);
                }
                parse(version, &about(kind, code, value, &bytes));
            }
        }
    }
}
