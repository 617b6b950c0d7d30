//! The sending half: what is under way, what was lost, and what may leave next.

use crate::congestion::Congestion;
use crate::options::Options;
use crate::sack::{DUP_THRESH, Ranges};
use crate::sequence::{after, ahead, at_or_after, earlier, later};
use crate::time::Instant;
use crate::timers::Retransmission;

/// A segment of this size that was sent again so often without an answer may be too large for the path (RFC 4821, section 7.7).
const BLACK_HOLE: u32 = 2;
/// Payload that passes nearly every path (1280 bytes of IPv6, RFC 8200), and every one (576 bytes of IPv4).
const SMALLER_MSS: [u16; 2] = [1220, 536];
/// Largest segment of a peer that does not tell (RFC 9293, section 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Least that an MSS option is believed: less makes each byte dearer and serves nobody (as Linux' tcp_min_snd_mss).
const LEAST_MSS: u16 = 48;

/// Loss is being repaired, until everything before `point` is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recovery {
    /// RecoveryPoint: SND.NXT when it began.
    point: u32,
    /// By the retransmission timer: all that is not known to be there was lost.
    timeout: bool,
}

/// SND.UNA, SND.NXT and what belongs to them.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub iss: u32,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub snd_wnd: u32,
    snd_wl1: u32,
    snd_wl2: u32,
    pub max_snd_wnd: u32,
    /// Shift of the peer's window fields.
    scale: u8,
    /// The peer takes and sends SACK options.
    pub sack: bool,
    /// Largest segment that leaves, in bytes of payload.
    pub mss: u16,
    /// Behind the last byte in the caller's send buffer.
    end: u32,
    /// A FIN follows the last byte.
    pub fin: bool,
    /// Bytes at the start of the caller's send buffer that were acknowledged, and that it has not dropped yet.
    pub released: u32,
    sacked: Ranges,
    dup_acks: u32,
    recovery: Option<Recovery>,
    /// HighRxt: behind the last byte that was sent again in this recovery.
    high_rxt: u32,
    congestion: Congestion,
    pub timer: Retransmission,
    /// A closed window is to be probed by one byte.
    probe: bool,
    /// Segments that were sent again.
    pub retransmissions: u64,
}

/// A piece of the sequence space that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub seq: u32,
    pub len: u32,
    pub fin: bool,
}

impl Sender {
    /// Before a SYN with the sequence number `iss`.
    pub(crate) fn new(iss: u32, mss: u16) -> Self {
        let first = iss.wrapping_add(1);
        Self {
            iss,
            snd_una: iss,
            snd_nxt: iss,
            snd_wnd: 0,
            snd_wl1: 0,
            snd_wl2: 0,
            max_snd_wnd: 0,
            scale: 0,
            sack: false,
            mss,
            end: first,
            fin: false,
            released: 0,
            sacked: Ranges::default(),
            dup_acks: 0,
            recovery: None,
            high_rxt: iss,
            congestion: Congestion::new(mss),
            timer: Retransmission::default(),
            probe: false,
            retransmissions: 0,
        }
    }

    /// Learns what the peer's SYN says.
    pub(crate) fn synchronized(&mut self, seq: u32, wnd: u16, options: &Options) {
        let advertised = options.mss.unwrap_or(DEFAULT_MSS).max(LEAST_MSS);
        self.mss = self.mss.min(advertised);
        self.congestion = Congestion::new(self.mss);
        self.scale = options.window_scale.unwrap_or(0);
        self.sack = options.sack_permitted;
        // The window of a SYN is not scaled.
        self.snd_wnd = wnd.into();
        self.max_snd_wnd = self.snd_wnd;
        self.snd_wl1 = seq;
    }

    /// The peer has acknowledged our SYN by a segment at `seq`, whose window is the first in any case.
    pub(crate) fn syn_acknowledged(&mut self, seq: u32, ack: u32, now: Instant) {
        self.snd_una = self.iss.wrapping_add(1);
        self.snd_wl1 = seq;
        self.snd_wl2 = ack;
        self.timer.acknowledged(self.snd_una, false, now);
    }

    /// So many more bytes are in the send buffer.
    pub(crate) fn queue(&mut self, bytes: u32) {
        if !self.fin {
            self.end = self.end.wrapping_add(bytes);
        }
    }

    /// Whether our FIN has been sent and acknowledged.
    pub(crate) fn fin_acknowledged(&self) -> bool {
        self.fin && self.snd_una == self.end.wrapping_add(1)
    }

    /// Whether the piece ends with the last byte of the send buffer.
    pub(crate) fn is_last(&self, piece: &Piece) -> bool {
        piece.seq.wrapping_add(piece.len) == self.end
    }

    /// Sequence numbers that were sent and not acknowledged.
    pub(crate) fn flight(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.snd_una)
    }

    /// Sequence numbers, a FIN's included, that were not sent yet.
    fn unsent(&self) -> u32 {
        ahead(self.end.wrapping_add(self.fin.into()), self.snd_nxt)
    }

    /// Takes the window of an acceptable segment (RFC 9293, section 3.10.7.4, fifth).
    #[inline(always)]
    pub(crate) fn window(&mut self, seq: u32, ack: u32, wnd: u16) -> bool {
        let newer =
            after(seq, self.snd_wl1) || seq == self.snd_wl1 && at_or_after(ack, self.snd_wl2);
        if newer {
            (self.snd_wl1, self.snd_wl2) = (seq, ack);
        }
        let wnd = u32::from(wnd) << self.scale;
        let changed = newer && wnd != self.snd_wnd;
        if changed {
            let opens = self.snd_wnd == 0;
            self.snd_wnd = wnd;
            self.max_snd_wnd = self.max_snd_wnd.max(wnd);
            if opens || self.flight() == 0 {
                // The timer of a closed window is not that of what leaves now.
                self.timer.stop();
            }
            if opens && self.flight() > 0 {
                // The window had no room for it, the byte of a probe at least: it leaves again now.
                self.recover(true);
            }
        }
        changed
    }

    /// Whether nothing is known to be lost, or to have come behind a gap.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.recovery.is_none() && self.sacked.is_empty()
    }

    /// Everything before `ack`, which lies in (SND.UNA, SND.NXT], has come.
    pub(crate) fn acknowledged(&mut self, ack: u32, now: Instant) {
        let flight = self.flight();
        let newly = ack.wrapping_sub(self.snd_una);
        let fin = self.fin && after(ack, self.end);
        let bytes = newly - u32::from(fin);
        let mss = u32::from(self.mss);
        self.snd_una = ack;
        self.released = self.released.wrapping_add(bytes);
        self.sacked.forget_before(ack);
        self.high_rxt = later(self.high_rxt, ack);
        let backoffs = self.timer.backoffs;
        self.timer.acknowledged(ack, ack != self.snd_nxt, now);
        if self.snd_wnd == 0 {
            // A probe was taken, and the window is still closed.
            self.timer.backoffs = backoffs;
        }
        match self.recovery {
            Some(recovery) if at_or_after(ack, recovery.point) => {
                self.recovery = None;
                self.dup_acks = 0;
            }
            // A partial acknowledgement (RFC 6582, section 3.2): the equal ones counted bytes that are acknowledged now.
            Some(recovery) if !recovery.timeout => {
                self.dup_acks = self.dup_acks.saturating_sub(bytes / mss.max(1));
                return;
            }
            Some(_) => {}
            None => self.dup_acks = 0,
        }
        self.congestion.acknowledged(bytes, flight, mss);
    }

    /// Hears the SACK blocks of an acceptable segment. What lies outside of [SND.UNA, SND.NXT] is no news or a lie.
    /// True when something is new.
    pub(crate) fn heard_sack(&mut self, options: &Options) -> bool {
        if !self.sack || self.flight() == 0 {
            return false;
        }
        let before = self.sacked.count(self.snd_una, self.snd_nxt);
        for (left, right) in options.sack() {
            let valid = at_or_after(left, self.snd_una)
                && after(right, left)
                && at_or_after(self.snd_nxt, right)
                && right.wrapping_sub(self.snd_una) <= self.flight();
            if valid {
                self.sacked.insert(left, right);
            }
        }
        self.sacked.count(self.snd_una, self.snd_nxt) != before
    }

    /// An acknowledgement told nothing new but that another segment has come.
    pub(crate) fn duplicate(&mut self) {
        self.dup_acks = self.dup_acks.saturating_add(1);
    }

    /// Begins to repair a loss if the acknowledgements so far tell of one (RFC 6675, section 5; RFC 6582 without SACK).
    pub(crate) fn look_for_loss(&mut self) {
        if self.recovery.is_some() || self.flight() == 0 {
            return;
        }
        let mss = u32::from(self.mss);
        let lost = self.dup_acks >= DUP_THRESH || self.sacked.lost_before(mss).is_some();
        if lost {
            self.congestion.loss(self.flight(), mss);
            self.recover(false);
        }
    }

    fn recover(&mut self, timeout: bool) {
        self.recovery = Some(Recovery {
            point: self.snd_nxt,
            timeout,
        });
        self.high_rxt = self.snd_una;
    }

    /// What is not known to have come and lies before this number was lost.
    fn lost_before(&self) -> u32 {
        let mss = u32::from(self.mss);
        match self.recovery {
            None => self.snd_una,
            Some(recovery) if recovery.timeout => recovery.point,
            Some(recovery) => {
                let first = self.snd_una.wrapping_add(mss);
                let lost = self.sacked.lost_before(mss).unwrap_or(first);
                earlier(later(first, lost), recovery.point)
            }
        }
    }

    /// Bytes that are believed to be on the way (RFC 6675, SetPipe). Without SACK each equal acknowledgement stands for a segment.
    fn pipe(&self) -> u32 {
        let flight = self.flight();
        let there = if self.sack {
            self.sacked.count(self.snd_una, self.snd_nxt)
        } else {
            self.dup_acks.saturating_mul(self.mss.into()).min(flight)
        };
        let from = later(self.high_rxt, self.snd_una);
        let lost_before = self.lost_before();
        let lost = ahead(lost_before, from) - self.sacked.count(from, lost_before);
        flight.saturating_sub(there).saturating_sub(lost)
    }

    /// The retransmission timer has expired: for what is under way, or for a window that is closed.
    pub(crate) fn expired(&mut self, now: Instant) {
        let first = self.timer.backoffs == 0;
        self.timer.back_off(now);
        if self.flight() == 0 {
            self.probe = self.unsent() > 0;
            return;
        }
        let mss = u32::from(self.mss);
        // Into a closed window one byte goes, which tells nothing of the path.
        if self.snd_wnd > 0 {
            self.congestion.timeout(self.flight(), mss, first);
            if self.timer.backoffs.is_multiple_of(BLACK_HOLE) && self.flight() >= mss {
                self.shrink();
            }
        }
        self.sacked.clear();
        self.dup_acks = 0;
        self.recover(true);
    }

    /// Tries smaller segments: perhaps the path swallows large ones.
    fn shrink(&mut self) {
        if let Some(smaller) = SMALLER_MSS.into_iter().find(|&mss| mss < self.mss) {
            self.mss = smaller;
        }
    }

    /// The path takes segments of `mss` bytes at most; what was larger was lost, though not by congestion (RFC 8201, section 5.4).
    /// False when `seq` is of no segment that is under way: nothing has changed then.
    pub(crate) fn too_big(&mut self, seq: u32, mss: u16) -> bool {
        let under_way = seq.wrapping_sub(self.snd_una) < self.flight();
        let mss = mss.max(LEAST_MSS);
        if under_way && mss < self.mss {
            self.mss = mss;
            self.recover(true);
        }
        under_way
    }

    /// The next piece that may leave, and notes that it does. `unit` bytes at most, one segment or a multiple of segments.
    pub(crate) fn next(&mut self, unit: u32, now: Instant) -> Option<Piece> {
        self.again(now).or_else(|| self.anew(unit, now))
    }

    /// The next piece of what was lost, if it may leave now.
    fn again(&mut self, now: Instant) -> Option<Piece> {
        self.recovery?;
        let from = later(self.high_rxt, self.snd_una);
        let (start, stop) = self.sacked.hole(from, self.lost_before())?;
        // The first one leaves in any case.
        if from != self.snd_una && self.pipe() >= self.congestion.cwnd {
            return None;
        }
        let stop = earlier(stop, start.wrapping_add(self.mss.into()));
        self.high_rxt = stop;
        self.timer.resent(now);
        self.retransmissions += 1;
        Some(self.piece(start, stop))
    }

    /// What was not sent before.
    fn anew(&mut self, unit: u32, now: Instant) -> Option<Piece> {
        let unsent = self.unsent();
        if unsent == 0 {
            return None;
        }
        let mss = u32::from(self.mss);
        let open = ahead(self.snd_una.wrapping_add(self.snd_wnd), self.snd_nxt);
        let allowed = self.congestion.cwnd.saturating_sub(self.pipe());
        let data = ahead(self.end, self.snd_nxt);
        let mut len = data.min(open).min(allowed).min(unit.max(mss));
        // Whole segments, unless it is all there is; a part of the window only where it is half of the largest that was seen
        // (RFC 9293, section 3.8.6.2.1).
        if len < data {
            let whole = len - len % mss.max(1);
            if whole > 0 {
                len = whole;
            } else if len < self.max_snd_wnd / 2 || allowed < mss {
                len = 0;
            }
        }
        if len == 0 && data > 0 {
            if self.flight() > 0 {
                return None;
            }
            if !core::mem::take(&mut self.probe) {
                self.timer.start(now);
                return None;
            }
            // What the window takes, and one byte if it takes none (sections 3.8.6.1 and 3.8.6.2.1).
            len = data.min(open).min(mss).max(1);
        }
        self.probe = false;
        let start = self.snd_nxt;
        let fin = self.fin && len == data;
        self.snd_nxt = start.wrapping_add(len + u32::from(fin));
        self.timer.sent(self.snd_nxt, now);
        Some(self.piece(start, self.snd_nxt))
    }

    /// What begins at `seq`, and was new, did not leave.
    pub(crate) fn take_back(&mut self, seq: u32) {
        if at_or_after(seq, self.snd_una) && after(self.snd_nxt, seq) {
            self.snd_nxt = seq;
            self.timer.taken_back(seq, self.flight() > 0);
        }
    }

    fn piece(&self, start: u32, stop: u32) -> Piece {
        Piece {
            seq: start,
            len: ahead(earlier(stop, self.end), start),
            fin: after(stop, self.end),
        }
    }
}
