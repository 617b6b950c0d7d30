//! One VLAN of a NIC's network (IEEE 802.1Q): a tag on everything that is sent; what comes without it, or with another, is
//! somebody else's. Without a VLAN, a tag that tells a priority alone comes off.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    Counters, Fault, Frame, Nic, Offload, Placer, Properties, Receive, SendError, Transmit,
};

/// Length of a tag in bytes. A tagged frame is so much longer than the MTU says.
pub const TAG_LEN: usize = 4;
/// The EtherType that announces a tag.
pub const TPID: [u8; 2] = [0x81, 0x00];
/// Where the tag is: behind both addresses.
const TAG: usize = 12;
/// The VLAN's number in the second half of a tag; above it are priority and drop eligibility.
const VID: u16 = 0x0fff;
/// The number of none: the tag tells a priority.
const NO_VLAN: u16 = 0;
/// What the first part of a unit holds at least, by the contract of [`Frame`].
const FIRST_PART_MIN: usize = 128;
/// Parts of a unit, more than any driver here lends. A unit of more is lost.
const PARTS: usize = 32;

/// A VLAN's number: 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanId(u16);

impl VlanId {
    /// `None` for numbers that name no VLAN.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        (1..=4094).contains(&number).then_some(Self(number))
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The tag of a VLAN, without a priority.
fn tag(id: VlanId) -> [u8; TAG_LEN] {
    let ([t0, t1], [v0, v1]) = (TPID, id.0.to_be_bytes());
    [t0, t1, v0, v1]
}

/// What stands before and behind the tag of this VLAN; `None` where there is none, or another's.
#[inline]
fn around_tag(bytes: &[u8], id: u16) -> Option<(&[u8], &[u8])> {
    let (addresses, rest) = bytes.split_at_checked(TAG)?;
    let (tag, rest) = rest.split_first_chunk::<TAG_LEN>()?;
    let [t0, t1, v0, v1] = *tag;
    let is_its = [t0, t1] == TPID && u16::from_be_bytes([v0, v1]) & VID == id;
    is_its.then_some((addresses, rest))
}

/// A frame as it is sent into a VLAN, without a priority.
#[must_use]
pub fn tagged(frame: &[u8], id: VlanId) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(frame.len().min(TAG));
    [addresses, &tag(id), rest].concat()
}

/// A frame of a VLAN without its tag; `None` for every other frame.
#[must_use]
pub fn untagged(frame: &[u8], id: VlanId) -> Option<Vec<u8>> {
    let (addresses, rest) = around_tag(frame, id.0)?;
    Some([addresses, rest].concat())
}

/// A NIC as one VLAN sees it, or as it is.
#[derive(Debug)]
pub struct Vlan<N> {
    nic: N,
    id: Option<VlanId>,
    /// Units that were not for this VLAN.
    foreign: u64,
}

impl<N> Vlan<N> {
    /// VLAN `id` of what `nic` is plugged into; `None` leaves frames as they are, but for tags without a VLAN.
    pub fn new(nic: N, id: Option<VlanId>) -> Self {
        Self {
            nic,
            id,
            foreign: 0,
        }
    }

    /// The NIC itself, where it is.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }

    /// Gives the NIC back, without the VLAN.
    pub fn into_nic(self) -> N {
        self.nic
    }

    /// The same VLAN of the same NIC, which `change` gives another type.
    pub fn map<M>(self, change: impl FnOnce(N) -> M) -> Vlan<M> {
        Vlan {
            nic: change(self.nic),
            id: self.id,
            foreign: self.foreign,
        }
    }
}

impl<N: Nic> Nic for Vlan<N> {
    type Rx<'a>
        = VlanReceive<'a, N::Rx<'a>>
    where
        Self: 'a;
    type Tx<'a>
        = VlanTransmit<N::Tx<'a>>
    where
        Self: 'a;

    fn properties(&self) -> Properties {
        let properties = self.nic.properties();
        let tag = self.id.map_or(0, |_| TAG_LEN);
        Properties {
            transmit_unit: properties.transmit_unit.saturating_sub(tag),
            ..properties
        }
    }

    fn link_up(&mut self) -> bool {
        self.nic.link_up()
    }

    fn joins_datagrams(&self) -> bool {
        self.nic.joins_datagrams()
    }

    /// None for a VLAN: the device knows connections by frames without a tag.
    fn placer(&mut self) -> Option<&mut dyn Placer> {
        self.nic.placer().filter(|_| self.id.is_none())
    }

    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
        let (rx, tx) = self.nic.split();
        let id = self.id;
        let foreign = &mut self.foreign;
        (VlanReceive { rx, id, foreign }, VlanTransmit { tx, id })
    }

    fn counters(&self) -> Counters {
        let counters = self.nic.counters();
        Counters {
            receive_dropped: counters.receive_dropped + self.foreign,
            ..counters
        }
    }

    fn stop(&mut self) {
        self.nic.stop();
    }
}

/// The receive half of a [`Vlan`].
pub struct VlanReceive<'a, R> {
    rx: R,
    id: Option<VlanId>,
    foreign: &'a mut u64,
}

impl<R: Receive> Receive for VlanReceive<'_, R> {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let id = self.id.map_or(NO_VLAN, |VlanId(id)| id);
        let mut lent = 0;
        self.rx.burst(budget, |frame| {
            let may_be_of_it = id != NO_VLAN || is_tagged(&frame);
            if may_be_of_it && without_tag(&frame, id, &mut sink).is_some() {
                lent += 1;
            } else if id == NO_VLAN {
                lent += 1;
                sink(frame);
            } else {
                *self.foreign += 1;
            }
        })?;
        Ok(lent)
    }
}

#[inline]
fn is_tagged(frame: &Frame<'_>) -> bool {
    let behind = frame.parts.first().and_then(|first| first.get(TAG..));
    behind.and_then(<[u8]>::first_chunk) == Some(&TPID)
}

/// Shows `sink` the unit without its tag; `None` when it is not one of VLAN `id`.
// Few units have a tag: the usual way stays short.
#[inline(never)]
fn without_tag(frame: &Frame<'_>, id: u16, sink: &mut impl FnMut(Frame<'_>)) -> Option<()> {
    let (first, others) = frame.parts.split_first()?;
    let (addresses, rest) = around_tag(first, id)?;
    // The first part has to hold the headers in one piece, so its beginning is copied together.
    let mut head = [0; FIRST_PART_MIN];
    let (copied, rest) = rest.split_at(rest.len().min(FIRST_PART_MIN - TAG));
    let (to_addresses, to_copied) = head.split_at_mut(TAG);
    to_addresses.copy_from_slice(addresses);
    to_copied.get_mut(..copied.len())?.copy_from_slice(copied);
    let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
    let rest = core::iter::once(rest).filter(|rest| !rest.is_empty());
    let all = core::iter::once(head.get(..TAG + copied.len())?)
        .chain(rest)
        .chain(others.iter().copied());
    let mut count = 0;
    for part in all {
        *parts.get_mut(count)? = part;
        count += 1;
    }
    sink(Frame {
        parts: parts.get(..count)?,
        len: frame.len.checked_sub(TAG_LEN)?,
        ..*frame
    });
    Some(())
}

/// The transmit half of a [`Vlan`].
pub struct VlanTransmit<T> {
    tx: T,
    id: Option<VlanId>,
}

impl<T: Transmit> Transmit for VlanTransmit<T> {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        let Some(id) = self.id else {
            return self.tx.send(len, offload, fill);
        };
        let tag = tag(id);
        let behind = |offset: u16| offset.saturating_add(TAG_LEN as u16);
        let offload = match offload {
            Offload::None => Offload::None,
            Offload::L4Checksum { start, offset } => Offload::L4Checksum {
                start: behind(start),
                offset,
            },
            Offload::TcpSegmentation {
                start,
                header_len,
                mss,
            } => Offload::TcpSegmentation {
                start: behind(start),
                header_len: behind(header_len),
                mss,
            },
        };
        self.tx.send(len + TAG_LEN, offload, &mut |memory| {
            // Written behind the place of the tag, then the addresses move before it.
            let (_, frame) = memory.split_at_mut(TAG_LEN);
            fill(frame);
            if len >= TAG {
                memory.copy_within(TAG_LEN..TAG_LEN + TAG, 0);
                if let Some(place) = memory.get_mut(TAG..TAG + TAG_LEN) {
                    place.copy_from_slice(&tag);
                }
            }
        })
    }

    fn room(&mut self) -> usize {
        self.tx.room()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.tx.flush()
    }

    fn idle(&mut self) -> bool {
        self.tx.idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checksum;
    use crate::sim::{LinkConfig, NicConfig, link};
    use crate::wrapped::is_as_its_nic;
    use std::vec;

    fn id(number: u16) -> VlanId {
        VlanId::new(number).unwrap()
    }

    /// A frame whose bytes behind the EtherType count up.
    fn frame(len: usize) -> Vec<u8> {
        (0..len).map(|at| at as u8).collect()
    }

    fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
        [&frame[..12], &tag, &frame[12..]].concat()
    }

    #[test]
    fn numbers() {
        assert_eq!(VlanId::new(0), None);
        assert_eq!(VlanId::new(4095), None);
        assert!(VlanId::new(1).is_some() && VlanId::new(4094).is_some());
        assert_eq!(std::format!("{}", id(4094)), "4094");
    }

    #[test]
    fn a_frame_gets_its_tag_and_loses_it() {
        let plain = frame(60);
        let wire = super::tagged(&plain, id(0xabc));
        assert_eq!(wire, tagged(&plain, [0x81, 0, 0x0a, 0xbc]));
        assert_eq!(untagged(&wire, id(0xabc)), Some(plain.clone()));
        // Of any priority.
        let urgent = tagged(&plain, [0x81, 0, 0xfa, 0xbc]);
        assert_eq!(untagged(&urgent, id(0xabc)), Some(plain.clone()));
        for other in [&wire, &tagged(&plain, [0x88, 0xa8, 0, 6]), &plain] {
            assert_eq!(untagged(other, id(6)), None);
        }
    }

    #[test]
    fn short_frames_are_no_harm() {
        let wire = super::tagged(&[7; 12], id(5));
        for len in 0..wire.len() {
            assert_eq!(untagged(&wire[..len], id(5)), None);
            let _ = super::tagged(&wire[..len], id(5));
        }
        assert_eq!(untagged(&wire, id(5)), Some(vec![7; 12]));
    }

    #[test]
    fn what_is_somebody_elses_counts_as_dropped() {
        for (vlan, foreign) in [(None, 0), (Some(id(5)), 1)] {
            let counters = is_as_its_nic(|nic| Vlan::new(nic, vlan));
            assert_eq!(counters.receive_dropped, foreign);
            // As another type it has counted the same.
            let (nic, _) = link(LinkConfig::default(), LinkConfig::default(), 1);
            let mut nic = Vlan::new(nic, vlan);
            nic.foreign = 7;
            let nic = nic.map(|nic| nic);
            assert_eq!((nic.id, nic.counters().receive_dropped), (vlan, 7));
        }
    }

    /// What the other end of a cable sees, plain.
    fn sent(vlan: Option<VlanId>, frame: &[u8]) -> Vec<u8> {
        let (a, mut b) = link(LinkConfig::default(), LinkConfig::default(), 1);
        let mut a = Vlan::new(a, vlan);
        let (_, mut tx) = a.split();
        tx.send(frame.len(), Offload::None, &mut |memory| {
            memory.copy_from_slice(frame);
        })
        .unwrap();
        tx.flush().unwrap();
        b.clock().advance(1000);
        let mut seen = Vec::new();
        b.split()
            .0
            .burst(1, |frame| seen = frame.parts.concat())
            .unwrap();
        seen
    }

    #[test]
    fn a_tag_goes_on() {
        let plain = frame(90);
        assert_eq!(sent(None, &plain), plain);
        let expected = tagged(&plain, [0x81, 0, 0x0a, 0xbc]);
        assert_eq!(sent(Some(id(0xabc)), &plain), expected);
    }

    #[test]
    fn a_frame_to_be_cut_leaves_room_for_the_tag() {
        for (vlan, told, unit) in [
            (None, 60_000, 60_000),
            (Some(id(7)), 60_000, 59_996),
            (Some(id(7)), 0, 0),
        ] {
            let (mut a, _) = link(LinkConfig::default(), LinkConfig::default(), 1);
            a.configure(NicConfig {
                transmit_unit: told,
                ..NicConfig::new([2; 6])
            });
            assert_eq!(Vlan::new(a, vlan).properties().transmit_unit, unit);
        }
    }

    /// Remembers what it was asked for.
    struct Asked(Vec<(usize, Offload)>);

    impl Transmit for Asked {
        fn send(
            &mut self,
            len: usize,
            offload: Offload,
            fill: &mut dyn FnMut(&mut [u8]),
        ) -> Result<(), SendError> {
            self.0.push((len, offload));
            fill(&mut vec![0; len]);
            Ok(())
        }
        fn room(&mut self) -> usize {
            1
        }
        fn flush(&mut self) -> Result<(), Fault> {
            Ok(())
        }
        fn idle(&mut self) -> bool {
            true
        }
    }

    #[test]
    fn the_device_is_told_where_the_headers_have_moved() {
        let mut tx = VlanTransmit {
            tx: Asked(Vec::new()),
            id: Some(id(7)),
        };
        let offload = Offload::L4Checksum {
            start: 34,
            offset: 16,
        };
        tx.send(60, offload, &mut |_| ()).unwrap();
        let moved = Offload::L4Checksum {
            start: 38,
            offset: 16,
        };
        assert_eq!(tx.tx.0, [(64, moved)]);
        let offload = Offload::TcpSegmentation {
            start: 54,
            header_len: 74,
            mss: 1428,
        };
        tx.send(40_000, offload, &mut |_| ()).unwrap();
        let moved = Offload::TcpSegmentation {
            start: 58,
            header_len: 78,
            mss: 1428,
        };
        assert_eq!(tx.tx.0[1], (40_004, moved));
        // Too short to have addresses: no harm.
        tx.send(3, Offload::None, &mut |_| ()).unwrap();
    }

    /// Lends one unit.
    struct Once<'a>(Frame<'a>);

    impl Receive for Once<'_> {
        fn burst(&mut self, _: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
            sink(self.0);
            Ok(1)
        }
    }

    /// The parts in which VLAN 5 sees a unit that came in `parts`.
    fn received(parts: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
        received_by(Some(id(5)), parts, 4)
    }

    /// Those that one sees to whom it is `less` shorter, if it sees it.
    fn received_by(vlan: Option<VlanId>, parts: &[&[u8]], less: usize) -> Option<Vec<Vec<u8>>> {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut foreign = 0;
        let mut rx = VlanReceive {
            rx: Once(Frame {
                parts,
                len,
                checksum: Checksum::Trusted,
                udp_segment: Some(1400),
            }),
            id: vlan,
            foreign: &mut foreign,
        };
        let mut seen = None;
        let lent = rx
            .burst(8, |frame| {
                let sum: usize = frame.parts.iter().map(|part| part.len()).sum();
                assert_eq!((frame.len, sum), (len - less, len - less));
                assert_eq!(frame.checksum, Checksum::Trusted);
                assert_eq!(frame.udp_segment, Some(1400));
                seen = Some(frame.parts.iter().map(|part| part.to_vec()).collect());
            })
            .unwrap();
        assert_eq!(lent, usize::from(seen.is_some()));
        assert_eq!(foreign, u64::from(seen.is_none()));
        seen
    }

    #[test]
    fn a_tag_comes_off() {
        // Priority and drop eligibility do not matter.
        for (len, tag) in [(60, [0x81, 0, 0, 5]), (1514, [0x81, 0, 0xf0, 5])] {
            let plain = frame(len);
            let wire = tagged(&plain, tag);
            let parts = received(&[&wire]).unwrap();
            assert_eq!(parts.concat(), plain);
            assert!(parts[0].len() >= plain.len().min(128));
        }
    }

    /// IEEE 802.1Q: a frame in VLAN 0 is in none, but has a priority.
    #[test]
    fn a_tag_without_a_vlan_comes_off_where_there_is_none() {
        for (len, priority) in [(60, 0), (1514, 0x60), (1514, 0xf0)] {
            let plain = frame(len);
            let wire = tagged(&plain, [0x81, 0, priority, 0]);
            let parts = received_by(None, &[&wire], 4).unwrap();
            assert_eq!(parts.concat(), plain);
            assert!(parts[0].len() >= plain.len().min(128));
            assert_eq!(received(&[&wire]), None);
        }
        // All else stays as it is.
        let plain = frame(60);
        for tag in [[0x81, 0, 0, 5], [0x81, 0, 1, 0], [0x88, 0xa8, 0, 0]] {
            let wire = tagged(&plain, tag);
            assert_eq!(received_by(None, &[&wire], 0), Some(vec![wire]));
        }
        for len in 0..17 {
            let short = &tagged(&plain, [0x81, 0, 0, 0])[..len];
            let less = if len < 16 { 0 } else { 4 };
            let seen = received_by(None, &[short], less).unwrap().concat();
            assert_eq!(seen.len(), len - less);
        }
    }

    #[test]
    fn units_in_many_parts_stay_whole() {
        let plain = frame(60_000);
        let wire = tagged(&plain, [0x81, 0, 0, 5]);
        let parts: Vec<&[u8]> = wire.chunks(4096).collect();
        let seen = received(&parts).unwrap();
        assert_eq!(seen.concat(), plain);
        assert_eq!(seen.len(), parts.len() + 1);
        assert_eq!(seen[0].len(), 128);
        // The shortest first part that a driver may lend.
        let parts: Vec<&[u8]> = core::iter::once(&wire[..128])
            .chain(wire[128..].chunks(4096))
            .collect();
        assert_eq!(received(&parts).unwrap().concat(), plain);
    }

    #[test]
    fn the_rest_is_somebody_elses() {
        let plain = frame(60);
        for tag in [[0x81, 0, 0, 6], [0x81, 0, 0x10, 5], [0x88, 0xa8, 0, 5]] {
            let wire = tagged(&plain, tag);
            let ours = tag == [0x81, 0, 0x10, 5];
            assert_eq!(received(&[&wire]).is_some(), ours, "{tag:?}");
        }
        assert_eq!(received(&[&plain]), None);
        for len in 1..16 {
            assert_eq!(received(&[&plain[..len]]), None);
        }
        // More parts than there is room for.
        let wire = tagged(&frame(60_000), [0x81, 0, 0, 5]);
        let parts: Vec<&[u8]> = wire.chunks(128).collect();
        assert_eq!(received(&parts), None);
    }
}
