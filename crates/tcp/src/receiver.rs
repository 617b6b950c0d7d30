//! The receiving half: what is expected, what lies behind gaps, and when to acknowledge.

use crate::sack::Ranges;
use crate::segment::{Flags, Segment};
use crate::sequence::{after, at_or_after, earlier, later};
use crate::time::{Duration, Instant};
use crate::window::Window;

/// In-order bytes before an acknowledgement must leave, if the window is four times as large. Each one may cost a doorbell, which
/// under load is dearer than everything else the receiver does.
const ACK_BYTES: u32 = 256 * 1024;
/// How long fewer bytes may wait for their acknowledgement. A sender in slow start waits for it.
const ACK_DELAY: Duration = Duration::from_micros(100);
/// Most equal acknowledgements in a row for segments behind a gap: a sender without SACK counts three.
const MOST_DUPLICATES: u32 = 64;

/// A part of a segment's payload, and where it belongs. The caller must copy it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRange {
    /// First byte of the payload that is new.
    pub skip: usize,
    /// Bytes to copy.
    pub len: usize,
    /// Where they belong, in bytes from what RCV.NXT was before.
    pub at: u32,
    /// So many bytes from there on have now come without a gap: RCV.NXT has moved by as much, and by one more for a FIN.
    pub advance: u32,
}

/// RCV.NXT and what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub rcv_nxt: u32,
    pub window: Window,
    /// What has come behind gaps.
    pub out_of_order: Ranges,
    /// Sequence number of the peer's FIN, once it has come.
    fin: Option<u32>,
    /// In-order bytes that were not acknowledged yet, and when the last of them came.
    pending: u32,
    last_data: Instant,
    /// Acknowledgements that must leave now.
    pub urgent: u32,
}

impl Receiver {
    /// Behind a SYN with the sequence number `irs`, when `advertised` bytes of window were advertised before.
    pub(crate) fn new(irs: u32, advertised: u16, now: Instant) -> Self {
        let rcv_nxt = irs.wrapping_add(1);
        Self {
            rcv_nxt,
            window: Window::new(rcv_nxt, advertised),
            out_of_order: Ranges::default(),
            fin: None,
            pending: 0,
            last_data: now,
            urgent: 0,
        }
    }

    /// RFC 9293, section 3.10.7.4, first: whether a part of the segment lies in the window.
    pub(crate) fn acceptable(&self, seq: u32, seg_len: u32) -> bool {
        let window = self.window.size(self.rcv_nxt);
        let within = |number: u32| number.wrapping_sub(self.rcv_nxt) < window;
        match (seg_len, window) {
            (0, 0) => seq == self.rcv_nxt,
            (0, _) => within(seq),
            (_, 0) => false,
            (len, _) => within(seq) || within(seq.wrapping_add(len - 1)),
        }
    }

    /// The next segment, whole and into an open window, with nothing out of order: the usual case. False when it is another.
    #[inline(always)]
    pub(crate) fn next(&mut self, seq: u32, len: usize, now: Instant) -> bool {
        let next = seq == self.rcv_nxt
            && len <= self.window.size(self.rcv_nxt) as usize
            && self.out_of_order.is_empty()
            && self.fin.is_none();
        if next {
            self.took(len as u32, now);
        }
        next
    }

    #[inline]
    fn took(&mut self, bytes: u32, now: Instant) {
        self.rcv_nxt = self.rcv_nxt.wrapping_add(bytes);
        self.pending = self.pending.saturating_add(bytes);
        self.last_data = now;
    }

    /// Takes the text and FIN of an acceptable segment (seventh and eighth). Of text behind a gap that is there in part only what
    /// comes before that is taken: it is not written again.
    pub(crate) fn text(
        &mut self,
        segment: &Segment<'_>,
        room: u32,
        now: Instant,
    ) -> Option<PayloadRange> {
        let end = segment.seq.wrapping_add(segment.len as u32);
        let window = self.window.size(self.rcv_nxt).min(room);
        let edge = self.rcv_nxt.wrapping_add(window);
        let edge = self.fin.map_or(edge, |fin| earlier(fin, edge));
        let start = later(segment.seq, self.rcv_nxt);
        let stop = earlier(end, edge);
        let range = if after(stop, start) {
            self.place(segment.seq, start, stop, now)
        } else {
            None
        };
        let fin = segment.flags.contains(Flags::FIN);
        // A FIN behind the window or before bytes that have come is none.
        let last = self.out_of_order.end().is_none_or(|held| !after(held, end));
        if fin && self.fin.is_none() && last && at_or_after(end, self.rcv_nxt) && after(edge, end) {
            self.fin = Some(end);
        }
        if segment.len > 0 || fin {
            // What fills or leaves a gap, and what has come before, is answered at once (RFC 5681, section 4.2).
            let in_order = range.is_some_and(|r| r.at == 0 && r.advance as usize == r.len);
            if !in_order || !self.out_of_order.is_empty() || fin {
                self.urgent = (self.urgent + 1).min(MOST_DUPLICATES);
            }
        }
        range
    }

    fn place(&mut self, seq: u32, start: u32, stop: u32, now: Instant) -> Option<PayloadRange> {
        let before = self.rcv_nxt;
        let (start, stop) = if start == before {
            (start, stop)
        } else {
            self.out_of_order.hole(start, stop)?
        };
        let advance = if start == before {
            self.out_of_order.advance(stop).wrapping_sub(before)
        } else if self.out_of_order.insert(start, stop) {
            0
        } else {
            return None;
        };
        if advance > 0 {
            self.took(advance, now);
        }
        Some(PayloadRange {
            skip: start.wrapping_sub(seq) as usize,
            len: stop.wrapping_sub(start) as usize,
            at: start.wrapping_sub(before),
            advance,
        })
    }

    /// Steps over the peer's FIN once all before it has come. True when that happens now.
    pub(crate) fn finish(&mut self) -> bool {
        let done = self.fin == Some(self.rcv_nxt);
        if done {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
            self.urgent = self.urgent.max(1);
        }
        done
    }

    /// Whether an acknowledgement must leave now, even if it has no more news than a window that may grow to `limit` bytes. Less than
    /// `worth` bytes more are not advertised.
    pub(crate) fn due(&self, limit: u32, worth: u32, now: Instant) -> bool {
        if self.urgent > 0 {
            return true;
        }
        let size = self.window.size(self.rcv_nxt);
        if self.pending > 0 {
            let enough = self.pending >= ACK_BYTES.min(size.saturating_add(self.pending) / 4);
            return enough || now >= self.last_data + ACK_DELAY;
        }
        // A window that was closed, or nearly, has opened.
        self.may_open()
            && self.window.growth(self.rcv_nxt, limit) >= worth.max(1)
            && size < worth.max(limit / 4)
    }

    /// The peer may send nothing: the advertised window is 0.
    fn is_closed(&self) -> bool {
        self.window.field(self.rcv_nxt) == 0
    }

    /// Equal acknowledgements mean a gap: with a new window they would not be equal. But a peer whose window is closed fills no gap.
    fn may_open(&self) -> bool {
        self.out_of_order.is_empty() || self.is_closed()
    }

    /// When an acknowledgement must leave at the latest.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        (self.pending > 0).then(|| self.last_data + ACK_DELAY)
    }

    /// Opens the window to `limit` bytes at most, by `worth` bytes at least, and returns its field; all that has come is acknowledged
    /// by the segment that takes it.
    pub(crate) fn acknowledge(&mut self, limit: u32, worth: u32) -> u16 {
        let growth = self.window.growth(self.rcv_nxt, limit);
        // A peer that probes a closed window may have whatever there is.
        let probed = self.urgent > 0 && self.is_closed();
        if probed || growth >= worth && self.may_open() {
            self.window.open(self.rcv_nxt, limit);
        }
        self.pending = 0;
        self.urgent = self.urgent.saturating_sub(1);
        self.window.field(self.rcv_nxt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;
    const WORTH: u32 = 1000;

    /// RCV.NXT is 1000, RCV.WND so many bytes: whole units of 256.
    fn opened(window: u32) -> Receiver {
        let mut receive = Receiver::new(999, 0, NOW);
        receive.window.open(1000, window);
        assert_eq!(receive.window.size(1000), window);
        receive
    }

    fn text(seq: u32, len: usize, flags: Flags) -> Segment<'static> {
        Segment {
            seq,
            ack: 0,
            flags,
            wnd: 0,
            options: &[],
            len,
        }
    }

    /// The table of RFC 9293, section 3.10.7.4.
    #[test]
    fn a_segment_is_acceptable_when_a_part_lies_in_the_window() {
        let open = opened(512);
        for (seq, len, acceptable) in [
            (999, 0, false),
            (1000, 0, true),
            (1511, 0, true),
            (1512, 0, false),
            (990, 10, false),
            (990, 11, true),
            (1000, 1, true),
            (1511, 1, true),
            (1512, 1, false),
            (1511, 500, true),
        ] {
            assert_eq!(open.acceptable(seq, len), acceptable, "{seq} {len}");
        }
        let closed = opened(0);
        for (seq, len, acceptable) in [
            (999, 0, false),
            (1000, 0, true),
            (1001, 0, false),
            (999, 2, false),
            (1000, 1, false),
        ] {
            assert_eq!(closed.acceptable(seq, len), acceptable, "{seq} {len}");
        }
    }

    /// Of a part of a unit nothing is advertised, and the peer fills no gap.
    #[test]
    fn a_gap_keeps_a_window_as_it_is_unless_that_is_closed() {
        for behind in [712, 812, 912] {
            let mut receive = opened(1024);
            let first = text(1000, behind, Flags::ACK);
            assert!(receive.text(&first, 9000, NOW).is_some());
            let rest = 1024 - behind as u32;
            let gap = text(1000 + behind as u32 + rest / 2, 40, Flags::ACK);
            assert!(receive.text(&gap, 9000, NOW).is_some());
            assert!(!receive.out_of_order.is_empty());
            // 312 bytes are advertised as one unit, 212 and 112 as none.
            let closed = rest < 256;
            // While nothing is free, nothing is advertised.
            receive.acknowledge(0, WORTH);
            receive.urgent = 0;
            assert_eq!(receive.due(4096, WORTH, NOW), closed, "{behind}");
            let advertised = receive.acknowledge(4096, WORTH);
            assert_eq!(advertised > 1, closed, "{behind}: {advertised}");
            let probed = text(1000 + behind as u32, 1, Flags::ACK);
            assert!(receive.text(&probed, 9000, NOW).is_some());
            assert_eq!(receive.acknowledge(4096, WORTH) > 1, closed, "{behind}");
        }
    }

    #[test]
    fn an_acknowledgement_leaves_for_a_quarter_of_the_window_or_after_a_while() {
        let late = NOW + Duration::from_micros(100);
        for (window, enough) in [
            (64 << 10, 16 << 10),
            (1 << 20, 256 << 10),
            (4 << 20, 256 << 10),
        ] {
            let mut receive = opened(window);
            assert!(!receive.due(window, WORTH, late));
            assert_eq!(receive.due_at(), None);
            assert!(receive.next(1000, enough - 1, NOW));
            assert!(!receive.due(window, WORTH, NOW));
            assert!(!receive.due(window, WORTH, NOW + Duration::from_micros(99)));
            assert!(receive.due(window, WORTH, late));
            assert_eq!(receive.due_at(), Some(late));
            assert!(receive.next(999 + enough as u32, 1, NOW));
            assert!(receive.due(window, WORTH, NOW));
            receive.acknowledge(window, WORTH);
            assert!(!receive.due(window, WORTH, late));
            assert_eq!(receive.due_at(), None);
        }
    }

    /// RFC 5681, section 4.2.
    #[test]
    fn what_leaves_fills_or_repeats_is_acknowledged_at_once() {
        let mut receive = opened(64 << 10);
        let mut urgent = |seq, len| {
            receive.text(&text(seq, len, Flags::ACK), u32::MAX, NOW);
            core::mem::take(&mut receive.urgent)
        };
        assert_eq!(urgent(1000, 100), 0, "in order");
        assert_eq!(urgent(1100, 0), 0, "no text");
        assert_eq!(urgent(1000, 100), 1, "again");
        assert_eq!(urgent(1200, 100), 1, "behind a gap");
        assert_eq!(urgent(1100, 50), 1, "a part of the gap");
        assert_eq!(urgent(1150, 50), 1, "the rest of the gap");
        assert_eq!(urgent(1300, 100), 0, "in order again");
        for _ in 0..100 {
            receive.text(&text(2000, 100, Flags::ACK), u32::MAX, NOW);
        }
        assert_eq!(receive.urgent, 64, "no more equal ones in a row");
    }

    #[test]
    fn what_lies_behind_a_gap_is_not_written_again() {
        let mut receive = opened(64 << 10);
        let mut take = |seq, len| {
            let range = receive.text(&text(seq, len, Flags::ACK), u32::MAX, NOW);
            range.map(|r| (r.skip, r.len, r.at, r.advance))
        };
        assert_eq!(take(1200, 100), Some((0, 100, 200, 0)));
        assert_eq!(take(1150, 200), Some((0, 50, 150, 0)));
        assert_eq!(take(1150, 200), Some((150, 50, 300, 0)));
        assert_eq!(take(1150, 200), None);
        assert_eq!(take(1000, 150), Some((0, 150, 0, 350)));
        assert_eq!(receive.rcv_nxt, 1350);
    }

    #[test]
    fn a_fin_ends_the_text() {
        let fin = Flags::FIN | Flags::ACK;
        let mut receive = opened(1024);
        receive.text(&text(1200, 100, Flags::ACK), u32::MAX, NOW);
        receive.text(&text(1100, 100, fin), u32::MAX, NOW);
        assert!(!receive.finish());
        receive.text(&text(1000, 100, Flags::ACK), u32::MAX, NOW);
        assert_eq!(
            receive.rcv_nxt, 1300,
            "one before text that has come is none"
        );
        assert!(!receive.finish());
        receive.text(&text(1300, 724, fin), u32::MAX, NOW);
        assert_eq!(receive.rcv_nxt, 2024);
        assert!(!receive.finish(), "one behind the window is none");

        let mut receive = opened(1024);
        receive.text(&text(1100, 100, fin), u32::MAX, NOW);
        assert!(!receive.finish(), "text is missing");
        receive.urgent = 0;
        receive.text(&text(1000, 300, Flags::ACK), u32::MAX, NOW);
        assert_eq!(receive.rcv_nxt, 1200, "nothing comes behind a FIN");
        receive.urgent = 0;
        assert!(receive.finish());
        assert_eq!((receive.rcv_nxt, receive.urgent), (1201, 1));
        assert!(!receive.finish(), "once");
    }

    /// RFC 9293, section 3.8.6.2.2.
    #[test]
    fn a_window_that_opens_is_advertised_when_it_was_nearly_closed() {
        for (size, limit, due) in [
            (0, 1023, false),
            (0, 1024, true),
            (768, 2048, true),
            (1024, 2304, false),
            (16 << 10, 64 << 10, false),
            (16 << 10, (64 << 10) + 256, true),
            (32 << 10, 64 << 10, false),
        ] {
            let receive = opened(size);
            assert_eq!(receive.due(limit, WORTH, NOW), due, "{size} {limit}");
        }
        assert!(!opened(0).due(0, 0, NOW), "nothing is new");
    }

    #[test]
    fn the_window_opens_by_what_it_is_worth_or_for_a_probe() {
        for (size, urgent, limit, worth, field) in [
            (0, 0, 768, 1000, 0),
            (0, 0, 1024, 1000, 4),
            (0, 0, 1024, 1024, 4),
            (0, 1, 768, 1000, 3),
            (256, 1, 768, 1000, 1),
        ] {
            let mut receive = opened(size);
            receive.urgent = urgent;
            let advertised = receive.acknowledge(limit, worth);
            assert_eq!(advertised, field, "{size} {urgent} {limit} {worth}");
            assert_eq!(receive.urgent, 0);
        }
    }

    /// RFC 5681, section 2: with another window an acknowledgement is no duplicate.
    #[test]
    fn the_window_stays_while_there_is_a_gap() {
        let mut receive = opened(1024);
        receive.text(&text(1100, 100, Flags::ACK), u32::MAX, NOW);
        assert_eq!(receive.acknowledge(1 << 20, WORTH), 4);
        assert!(!receive.due(1 << 20, WORTH, NOW));
        receive.text(&text(1000, 100, Flags::ACK), u32::MAX, NOW);
        assert_eq!(receive.acknowledge(1 << 20, WORTH), 4096);
    }
}
