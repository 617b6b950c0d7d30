//! Packets put together from fragments, of both IP versions (RFC 791, RFC 8200 section 4.5), in a bounded table.
//!
//! - Overlap drops the whole packet and what still comes of it (RFC 5722); of IPv4 as well. A fragment that repeats one byte for byte
//!   is ignored (RFC 8200 allows it).
//! - What is not fragmented although it says so is handed on by itself (RFC 6946).
//! - The first fragment has all headers up to the transport's (RFC 7112).
//! - A packet gives way to another only when nothing has come of it for a while, and one sender never has more than half of
//!   the table. Memory: [`PACKETS`] times 64 KB.

use crate::ipv6::header::{self, upper_of_whole};
use crate::packet::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_tcp::{Duration, Instant};

/// Packets that are being put together, and those of them from one sender.
pub(crate) const PACKETS: usize = 8;
const OF_ONE_SENDER: usize = PACKETS / 2;
/// Pieces of one packet: 64 KB in the smallest that are usual.
const PIECES: usize = 128;
/// How long pieces are waited for (RFC 791, section 3.2; RFC 8200, section 4.5).
const LIFETIME_V4: Duration = Duration::from_secs(15);
const LIFETIME_V6: Duration = Duration::from_secs(60);
/// The pieces of a packet come right after each other: when one is missing so long, it is lost.
const IDLE: Duration = Duration::from_millis(200);
/// The largest IP packet, IPv4's header included.
const LONGEST: usize = 65_535;

/// A fragment, its IP header (and checksum) checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment<'a> {
    /// From whom to whom.
    pub path: (IpAddr, IpAddr),
    pub id: u32,
    /// IPv4's protocol; of IPv6 the next header of the Fragment header.
    pub protocol: u8,
    /// In bytes.
    pub offset: u16,
    pub more: bool,
    pub payload: &'a [u8],
}

/// What is behind the IP header, or for IPv6 behind the Fragment header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub protocol: u8,
    pub payload: Vec<u8>,
}

struct Packet {
    path: (IpAddr, IpAddr),
    id: u32,
    /// As the first fragment says.
    protocol: u8,
    bytes: Vec<u8>,
    /// Start and end of each piece that is there.
    pieces: Vec<(usize, usize)>,
    /// Known once the last piece is there.
    len: Option<usize>,
    until: Instant,
    /// When the last piece came.
    progress: Instant,
    /// Pieces overlapped: nothing more is taken.
    refused: bool,
}

#[derive(Default)]
pub(crate) struct Fragments(Vec<Packet>);

impl Fragments {
    /// Takes a fragment. The packet, when it is the last one missing.
    pub(crate) fn take(&mut self, fragment: &Fragment<'_>, now: Instant) -> Option<Whole> {
        let (start, data) = (usize::from(fragment.offset), fragment.payload);
        let end = start + data.len();
        let (source, destination) = fragment.path;
        let room = match source {
            IpAddr::V4(_) => LONGEST - 20,
            IpAddr::V6(_) => LONGEST,
        };
        let in_units = start % 8 == 0 && (!fragment.more || data.len().is_multiple_of(8));
        let right = source.is_ipv4() == destination.is_ipv4()
            && !data.is_empty()
            && in_units
            && end <= room
            && (start != 0 || holds_headers(fragment));
        if !right {
            return None;
        }
        if start == 0 && !fragment.more {
            return Some(Whole {
                protocol: fragment.protocol,
                payload: data.to_vec(),
            });
        }
        let index = self.packet(fragment, now)?;
        let packet = self.0.get_mut(index)?;
        if !packet.insert(fragment, start, end, now) {
            return None;
        }
        let have: usize = packet.pieces.iter().map(|(start, end)| end - start).sum();
        if packet.len != Some(have) {
            return None;
        }
        let packet = self.0.swap_remove(index);
        Some(Whole {
            protocol: packet.protocol,
            payload: packet.bytes,
        })
    }

    /// The packet that the fragment belongs to, a new one if there is room.
    fn packet(&mut self, fragment: &Fragment<'_>, now: Instant) -> Option<usize> {
        self.0.retain(|packet| now < packet.until);
        let v4 = fragment.path.0.is_ipv4();
        let of_packet = |packet: &Packet| {
            packet.path == fragment.path
                && packet.id == fragment.id
                // Pieces of an IPv6 packet may differ (RFC 8200, section 4.5).
                && (!v4 || packet.protocol == fragment.protocol)
        };
        let known = self.0.iter().position(of_packet);
        if known.is_some() {
            return known;
        }
        let of_sender = |packet: &Packet| packet.path.0 == fragment.path.0;
        let many = self.0.iter().filter(|packet| of_sender(packet)).count() >= OF_ONE_SENDER;
        if many || self.0.len() >= PACKETS {
            let packets = self.0.iter().enumerate();
            let may_go = packets.filter(|(_, packet)| {
                let idle = packet.refused || now >= packet.progress + IDLE;
                idle && (!many || of_sender(packet))
            });
            let (oldest, _) =
                may_go.min_by_key(|(_, packet)| (!packet.refused, packet.progress))?;
            self.0.swap_remove(oldest);
        }
        self.0.push(Packet {
            path: fragment.path,
            id: fragment.id,
            protocol: fragment.protocol,
            bytes: Vec::new(),
            pieces: Vec::new(),
            len: None,
            until: now + if v4 { LIFETIME_V4 } else { LIFETIME_V6 },
            progress: now,
            refused: false,
        });
        Some(self.0.len() - 1)
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory(&self) -> usize {
        self.0.iter().map(|packet| packet.bytes.capacity()).sum()
    }
}

impl Packet {
    /// Takes a piece. False when it brings nothing.
    fn insert(&mut self, fragment: &Fragment<'_>, start: usize, end: usize, now: Instant) -> bool {
        if self.refused {
            return false;
        }
        let same = self.bytes.get(start..end) == Some(fragment.payload)
            && self.pieces.contains(&(start, end))
            && fragment.more == (self.len != Some(end));
        if same {
            return false;
        }
        let overlaps = |&(other, other_end): &(usize, usize)| start < other_end && other < end;
        let known_end = self.pieces.iter().map(|(_, end)| *end).max().unwrap_or(0);
        let wrong = self.pieces.iter().any(overlaps)
            || self.len.is_some_and(|len| end > len)
            || (!fragment.more && known_end > end)
            || self.pieces.len() == PIECES;
        if wrong {
            self.refused = true;
            self.bytes = Vec::new();
            self.pieces = Vec::new();
            return false;
        }
        if self.bytes.len() < end {
            // Not more than 64 KB, however a vector grows.
            self.bytes.reserve_exact(end - self.bytes.len());
            self.bytes.resize(end, 0);
        }
        if let Some(room) = self.bytes.get_mut(start..end) {
            room.copy_from_slice(fragment.payload);
        }
        self.pieces.push((start, end));
        if start == 0 {
            self.protocol = fragment.protocol;
        }
        if !fragment.more {
            self.len = Some(end);
        }
        self.progress = now;
        true
    }
}

/// True when a first fragment has the transport header and all before it (RFC 7112; RFC 1858 for IPv4).
fn holds_headers(fragment: &Fragment<'_>) -> bool {
    let (protocol, payload) = match fragment.path.0 {
        IpAddr::V4(_) => (fragment.protocol, fragment.payload),
        IpAddr::V6(_) => match upper_of_whole(fragment.protocol, fragment.payload) {
            Some(upper) => (upper.protocol, upper.payload),
            None => return false,
        },
    };
    let needed = match protocol {
        PROTOCOL_TCP => payload
            .get(12)
            .map_or(20, |b| usize::from(b >> 4) * 4)
            .max(20),
        PROTOCOL_UDP | PROTOCOL_ICMP | header::ICMP => 8,
        _ => 0,
    };
    payload.len() >= needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;
    use std::vec;

    const FAMILIES: [bool; 2] = [false, true];

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn host(v6: bool, last: u8) -> IpAddr {
        match v6 {
            false => Ipv4Addr::new(10, 0, 0, last).into(),
            true => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last.into()).into(),
        }
    }

    fn piece(v6: bool, id: u32, offset: u16, more: bool, payload: &[u8]) -> Fragment<'_> {
        Fragment {
            path: (host(v6, 2), host(v6, 1)),
            id,
            protocol: PROTOCOL_UDP,
            offset,
            more,
            payload,
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at ^ (at >> 8)) as u8).collect()
    }

    /// Gives the pieces between these offsets, in the order of `pieces`. What comes of the last one.
    fn give(
        table: &mut Fragments,
        v6: bool,
        id: u32,
        data: &[u8],
        pieces: &[(usize, usize)],
    ) -> Option<Whole> {
        let mut whole = None;
        for &(start, end) in pieces {
            assert_eq!(whole, None);
            let piece = piece(v6, id, start as u16, end != data.len(), &data[start..end]);
            whole = table.take(&piece, at(0));
        }
        whole
    }

    #[test]
    fn in_any_order() {
        let data = bytes(100);
        for v6 in FAMILIES {
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
                let mut table = Fragments::default();
                let pieces = order.map(|index| [(0, 40), (40, 48), (48, 100)][index]);
                let whole = give(&mut table, v6, 7, &data, &pieces).unwrap();
                assert_eq!((whole.protocol, &whole.payload), (PROTOCOL_UDP, &data));
                assert!(table.0.is_empty());
            }
        }
    }

    #[test]
    fn what_tells_packets_apart() {
        let data = bytes(32);
        for v6 in FAMILIES {
            let first = piece(v6, 7, 0, true, &data[..16]);
            let right = piece(v6, 7, 16, false, &data[16..]);
            let mut others = vec![right; 3];
            others[0].id = 8;
            others[1].path.0 = host(v6, 3);
            others[2].path.1 = host(v6, 3);
            let mut table = Fragments::default();
            for piece in [first].iter().chain(&others) {
                assert_eq!(table.take(piece, at(0)), None);
            }
            // The protocol is one more field of IPv4. Of IPv6 the first fragment's counts.
            let mut other = right;
            other.protocol = PROTOCOL_TCP;
            let whole = table.take(&other, at(0));
            assert_eq!(
                whole.map(|whole| whole.protocol),
                v6.then_some(PROTOCOL_UDP)
            );
            assert_eq!(table.take(&right, at(0)).is_some(), !v6);
            if v6 {
                let mut table = Fragments::default();
                assert_eq!(table.take(&other, at(0)), None);
                assert_eq!(table.take(&first, at(0)).unwrap().protocol, PROTOCOL_UDP);
            }
        }
    }

    /// RFC 6946: handed on at once, whatever else has the same id.
    #[test]
    fn atomic_fragments() {
        let data = bytes(32);
        for v6 in FAMILIES {
            let mut table = Fragments::default();
            assert_eq!(give(&mut table, v6, 7, &data, &[(0, 16)]), None);
            let other = [9; 11];
            let whole = table.take(&piece(v6, 7, 0, false, &other), at(0));
            assert_eq!(whole.unwrap().payload, other);
            assert_eq!(
                give(&mut table, v6, 7, &data, &[(16, 32)]).unwrap().payload,
                data
            );
        }
    }

    /// RFC 5722; the teardrop and the rewriting of headers.
    #[test]
    fn overlap_drops_the_packet_and_what_still_comes() {
        let data = bytes(64);
        for v6 in FAMILIES {
            for (start, end) in [(8, 24), (0, 24), (8, 16), (16, 40), (0, 8), (24, 40)] {
                let mut table = Fragments::default();
                let seen = [(0, 16), (24, 32)];
                assert_eq!(give(&mut table, v6, 7, &data, &seen), None);
                assert_eq!(give(&mut table, v6, 7, &data, &[(start, end)]), None);
                let overlaps = seen.iter().any(|(s, e)| start < *e && *s < end);
                assert_eq!(table.0[0].refused, overlaps && (start, end) != (0, 16));
                assert_eq!(table.memory(), 0);
                let rest = [(16, 24), (32, 64), (0, 16), (24, 32)];
                assert_eq!(give(&mut table, v6, 7, &data, &rest), None);
            }
        }
    }

    #[test]
    fn the_same_again_is_ignored() {
        let data = bytes(64);
        for v6 in FAMILIES {
            let mut table = Fragments::default();
            let pieces = [(0, 16), (0, 16), (32, 64), (32, 64), (16, 32)];
            assert_eq!(
                give(&mut table, v6, 7, &data, &pieces).unwrap().payload,
                data
            );
            // Not the same: other bytes, or the last one where another said that more comes.
            for (other, more) in [(vec![0; 16], true), (data[..16].to_vec(), false)] {
                assert_eq!(give(&mut table, v6, 7, &data, &[(16, 32)]), None);
                let mut piece = piece(v6, 7, 16, more, &other);
                piece.payload = if more { &other } else { &data[16..32] };
                assert_eq!(table.take(&piece, at(0)), None);
                assert!(table.0[0].refused);
                table = Fragments::default();
            }
        }
    }

    #[test]
    fn one_end_only() {
        let data = bytes(64);
        for v6 in FAMILIES {
            for (first, second) in [
                (
                    piece(v6, 7, 32, false, &data[..16]),
                    piece(v6, 7, 56, false, &data[..8]),
                ),
                (
                    piece(v6, 7, 32, false, &data[..16]),
                    piece(v6, 7, 48, true, &data[..8]),
                ),
                (
                    piece(v6, 7, 32, true, &data[..16]),
                    piece(v6, 7, 16, false, &data[..8]),
                ),
            ] {
                let mut table = Fragments::default();
                assert_eq!(table.take(&first, at(0)), None);
                assert_eq!(table.take(&second, at(0)), None);
                assert!(table.0[0].refused);
            }
        }
    }

    #[test]
    fn wrong_fragments_leave_nothing() {
        let data = bytes(2000);
        for v6 in FAMILIES {
            let longest = 65_535 - if v6 { 0 } else { 20 };
            let last = 65_528_u16 - if v6 { 0 } else { 24 };
            let room = longest - usize::from(last);
            let mut mixed = piece(v6, 7, 16, true, &data[..16]);
            mixed.path.1 = host(!v6, 1);
            let mut table = Fragments::default();
            for wrong in [
                piece(v6, 7, 16, true, &[]),
                piece(v6, 7, 16, true, &data[..15]),
                piece(v6, 7, 12, true, &data[..16]),
                piece(v6, 7, last, false, &data[..room + 1]),
                piece(v6, 7, last, true, &data[..16]),
                mixed,
            ] {
                assert_eq!(table.take(&wrong, at(0)), None);
                assert!(table.0.is_empty(), "{wrong:?}");
            }
            assert_eq!(
                table.take(&piece(v6, 7, last, false, &data[..room]), at(0)),
                None
            );
            assert_eq!(table.0.len(), 1);
        }
    }

    #[test]
    fn the_longest_packet() {
        for v6 in FAMILIES {
            let data = bytes(if v6 { 65_535 } else { 65_515 });
            let mut pieces: Vec<_> = (0..data.len())
                .step_by(552)
                .map(|start| (start, data.len().min(start + 552)))
                .collect();
            pieces.rotate_left(40);
            let mut table = Fragments::default();
            assert_eq!(
                give(&mut table, v6, 7, &data, &pieces).unwrap().payload,
                data
            );
        }
    }

    /// RFC 7112 and RFC 1858: filters must see whom a packet is for.
    #[test]
    fn tiny_first_fragments() {
        let mut tcp = [0; 64];
        tcp[12] = 0x60;
        let headers = [&[PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0][..], &[0; 8]].concat();
        for (v6, protocol, payload, right) in [
            (false, PROTOCOL_UDP, &tcp[..8], true),
            (false, PROTOCOL_TCP, &tcp[..24], true),
            (false, PROTOCOL_TCP, &tcp[..16], false),
            (false, PROTOCOL_TCP, &tcp[..8], false),
            (true, PROTOCOL_UDP, &tcp[..8], true),
            (true, PROTOCOL_TCP, &tcp[..24], true),
            (true, PROTOCOL_TCP, &tcp[..16], false),
            (true, header::ICMP, &tcp[..8], true),
            // Destination options, whole and cut behind them; a length of them that leads out of the fragment.
            (true, 60, &headers[..], true),
            (true, 60, &headers[..8], false),
            (true, 60, &[PROTOCOL_UDP, 1, 1, 4, 0, 0, 0, 0], false),
            // A fragment within a fragment.
            (true, 44, &headers[..], false),
        ] {
            let mut first = piece(v6, 7, 0, true, payload);
            first.protocol = protocol;
            let mut table = Fragments::default();
            assert_eq!(table.take(&first, at(0)), None);
            assert_eq!(
                table.0.len(),
                usize::from(right),
                "{v6} {protocol} {}",
                payload.len()
            );
        }
        // The data offset of TCP counts.
        tcp[12] = 0xf0;
        let mut first = piece(false, 7, 0, true, &tcp[..56]);
        first.protocol = PROTOCOL_TCP;
        let mut table = Fragments::default();
        assert_eq!((table.take(&first, at(0)), table.0.len()), (None, 0));
        let mut short = tcp;
        short[12] = 0x10;
        first.payload = &short[..16];
        assert_eq!((table.take(&first, at(0)), table.0.len()), (None, 0));
        for (v6, protocol) in [(true, PROTOCOL_UDP), (true, header::ICMP), (false, 1)] {
            let mut atomic = piece(v6, 7, 0, false, &tcp[..7]);
            atomic.protocol = protocol;
            assert_eq!(table.take(&atomic, at(0)), None);
            atomic.payload = &tcp[..8];
            assert!(table.take(&atomic, at(0)).is_some());
        }
    }

    #[test]
    fn pieces_are_not_waited_for_for_ever() {
        let data = bytes(32);
        for (v6, lifetime) in [(false, 15_000), (true, 60_000)] {
            for (late, whole) in [(lifetime - 1, true), (lifetime, false)] {
                let mut table = Fragments::default();
                table.take(&piece(v6, 7, 16, false, &data[16..]), at(0));
                let got = table.take(&piece(v6, 7, 0, true, &data[..16]), at(late));
                assert_eq!(got.is_some(), whole);
            }
        }
    }

    #[test]
    fn a_flood_does_not_drive_out_what_makes_progress() {
        let data = bytes(64);
        for v6 in FAMILIES {
            let mut table = Fragments::default();
            let ours = [(0, 16), (16, 32), (32, 48), (48, 64)];
            let mut whole = None;
            for (step, (start, end)) in ours.into_iter().enumerate() {
                let now = at(step as i64 * 199);
                // From the same sender, from another one, from many.
                for id in 100..300 {
                    for source in [2, 3, id as u8] {
                        let mut flood = piece(v6, id * 4 + step as u32, 8, true, &data[..8]);
                        flood.path.0 = host(v6, source);
                        if step > 0 {
                            table.take(&flood, now);
                        }
                        assert!(table.0.len() <= PACKETS && table.memory() <= PACKETS * 65_536);
                    }
                }
                let more = end != data.len();
                whole = table.take(&piece(v6, 7, start as u16, more, &data[start..end]), now);
            }
            assert_eq!(whole.unwrap().payload, data);
        }
    }

    #[test]
    fn one_sender_has_half_of_the_table() {
        let data = bytes(64);
        let mut table = Fragments::default();
        for id in 0..100 {
            table.take(&piece(true, id, 8, true, &data[..8]), at(0));
        }
        assert_eq!(table.0.len(), OF_ONE_SENDER);
        // Of the others, the one that has waited longest gives way, a refused one first.
        let ids = |table: &Fragments| {
            let mut ids: Vec<_> = table.0.iter().map(|packet| packet.id).collect();
            ids.sort_unstable();
            ids
        };
        table.take(&piece(true, 0, 16, true, &data[..8]), at(10));
        table.take(&piece(true, 100, 8, true, &data[..8]), at(199));
        assert_eq!(ids(&table), [0, 1, 2, 3]);
        table.take(&piece(true, 100, 8, true, &data[..8]), at(200));
        assert_eq!(ids(&table), [0, 2, 3, 100]);
        table.take(&piece(true, 100, 0, true, &data[..24]), at(200));
        table.take(&piece(true, 101, 8, true, &data[..8]), at(200));
        assert_eq!(ids(&table), [0, 2, 3, 101]);
    }

    #[test]
    fn one_sender_takes_no_place_of_another() {
        let data = bytes(8);
        let mut table = Fragments::default();
        let mut other = piece(true, 0, 8, true, &data);
        other.path.0 = host(true, 3);
        table.take(&other, at(0));
        for id in 0..4 {
            table.take(&piece(true, id, 8, true, &data), at(300));
        }
        table.take(&piece(true, 9, 8, true, &data), at(300));
        assert!(table.0.iter().any(|packet| packet.path.0 == other.path.0));
        assert!(table.0.iter().all(|packet| packet.id != 9));
    }

    #[test]
    fn so_many_pieces() {
        let data = bytes(8);
        let mut table = Fragments::default();
        for piece_ in 1..=PIECES as u16 {
            table.take(&piece(true, 7, piece_ * 16, true, &data), at(0));
        }
        assert!(!table.0[0].refused);
        table.take(&piece(true, 7, 16 * 1000, true, &data), at(0));
        assert!(table.0[0].refused);
    }

    proptest! {
        /// Any cut, any order, some pieces twice: the packet is as it was.
        #[test]
        fn it_is_put_together(len in 9..3000_usize, cuts in prop::collection::vec(1..375_usize, 1..20), seed: u64, v6: bool) {
            let data = bytes(len);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut * 8).filter(|cut| *cut < len).collect();
            cuts.extend([0, len]);
            cuts.sort_unstable();
            cuts.dedup();
            prop_assume!(cuts.len() > 2);
            let mut order: Vec<_> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
            order.extend(order.first().copied());
            let n = order.len();
            let mut random = seed;
            for index in 0..n {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(index, (random >> 33) as usize % n);
            }
            let mut table = Fragments::default();
            let wholes: Vec<_> = order.iter().filter_map(|&(start, end)| {
                table.take(&piece(v6, 7, start as u16, end != len, &data[start..end]), at(0))
            }).collect();
            prop_assert_eq!(wholes.len(), 1);
            prop_assert_eq!(&wholes[0].payload, &data);
        }
    }
}
