//! What leaves next: answers, our SYN, data, acknowledgements, probes of a silent peer.

use crate::connection::{Connection, Error, State};
use crate::options::OptionBytes;
use crate::segment::{Flags, Reply};
use crate::time::{Duration, Instant};
use crate::window::{MAX_WINDOW, WINDOW_SCALE};

/// How long unanswered retransmissions go on, R2 (RFC 9293, section 3.8.3: at least 100 s).
const R2: Duration = Duration::from_secs(100);
/// Probes of a silent peer before it is given up (RFC 9293, section 3.8.4).
const KEEP_ALIVES: u32 = 5;

/// What limits a segment that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest receive window to advertise, in bytes: RCV.BUFF, or less where more could not be taken. Where memory ends, as with the
    /// last bytes of a file, no more than `room`: of a window that could be larger less than a segment is not advertised.
    pub window: u32,
    /// Bytes from RCV.NXT on that can be stored now.
    pub room: u32,
    /// Most payload bytes at once, which somebody cuts into segments of [`Transmit::mss`]; a single segment is returned in any case.
    pub unit: u32,
}

impl Limits {
    /// The largest window that is true.
    fn open(&self) -> u32 {
        self.window.min(self.room)
    }
}

/// A segment that leaves, or several that are to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK, 0 without [`Flags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The window field, as it stands in the header.
    pub wnd: u16,
    /// Options of the segment, whole 32-bit words; empty where there are none.
    pub options: OptionBytes,
    /// Where its payload begins, in bytes from the first in the send buffer that is not acknowledged.
    pub offset: u32,
    /// Bytes of payload.
    pub len: usize,
    /// Payload of each segment but the last.
    pub mss: u16,
}

impl Connection {
    /// The next segment that is to leave now; `None` when there is no more. Whoever cannot send it has lost it, as a wire would.
    pub fn transmit(&mut self, now: Instant, limits: &Limits) -> Option<Transmit> {
        if let Some(reply) = self.reply.take() {
            return Some(reply.into());
        }
        self.expire(now);
        match self.state {
            State::Closed => None,
            State::SynSent | State::SynReceived => self.synchronizing(now, limits),
            _ => self.synchronized(now, limits),
        }
    }

    /// Of what [`Self::transmit`] has just returned only `sent` bytes have left. If it was more than one segment, the rest is returned
    /// again; a single one is lost, as on a wire.
    pub fn take_back(&mut self, out: &Transmit, sent: u32) {
        if out.len > usize::from(out.mss) {
            self.send.take_back(out.seq.wrapping_add(sent));
        }
    }

    /// Sees which timers have expired.
    fn expire(&mut self, now: Instant) {
        if self.ends.is_some_and(|ends| now >= ends) {
            self.end(None);
        }
        let expires = self.send.timer.expires;
        if expires.is_some_and(|expires| now >= expires) {
            if self.waiting_since.is_some_and(|since| now >= since + R2) {
                self.end(Some(Error::TimedOut));
            } else if matches!(self.state, State::SynSent | State::SynReceived) {
                self.send.timer.back_off(now);
                self.syn_due = true;
            } else {
                self.send.expired(now);
            }
        }
    }

    /// Our SYN, alone or with the acknowledgement of the peer's; or an acknowledgement.
    fn synchronizing(&mut self, now: Instant, limits: &Limits) -> Option<Transmit> {
        let received = self.state == State::SynReceived;
        if !core::mem::take(&mut self.syn_due) {
            return if received {
                self.acknowledgement(now, limits)
            } else {
                None
            };
        }
        let first = self.send.iss.wrapping_add(1);
        if self.send.snd_nxt == self.send.iss {
            self.send.snd_nxt = first;
            self.send.timer.sent(first, now);
            self.waiting_since = Some(now);
            // The window of a SYN is not scaled.
            let window = limits.open().min(u16::MAX.into());
            self.syn_window = window as u16;
            if received {
                self.receive
                    .window
                    .advertise(self.receive.rcv_nxt, self.syn_window);
            }
        } else {
            self.send.timer.resent(now);
        }
        let (scale, sack) = if received {
            (self.receive.window.scale > 0, self.send.sack)
        } else {
            (true, true)
        };
        let mut syn = Transmit::from(Reply {
            seq: self.send.iss,
            ack: 0,
            flags: Flags::SYN,
        });
        syn.options = OptionBytes::syn(self.rcv_mss, scale.then_some(WINDOW_SCALE), sack);
        syn.wnd = self.syn_window;
        if received {
            syn.ack = self.receive.rcv_nxt;
            syn.flags = Flags::SYN | Flags::ACK;
            self.receive.urgent = 0;
        }
        Some(syn)
    }

    fn synchronized(&mut self, now: Instant, limits: &Limits) -> Option<Transmit> {
        let unit = limits.unit.min(MAX_WINDOW);
        if self.state != State::TimeWait
            && let Some(piece) = self.send.next(unit, now)
        {
            self.waiting_since = self.waiting_since.or(Some(now));
            let mut flags = Flags::ACK;
            if piece.fin {
                flags = flags | Flags::FIN;
            }
            if piece.len > 0 && self.send.is_last(&piece) {
                flags = flags | Flags::PSH;
            }
            return Some(self.acknowledging(piece.seq, flags, piece.len, limits));
        }
        self.acknowledgement(now, limits)
    }

    /// A segment without payload, if an acknowledgement or a keep-alive is due.
    fn acknowledgement(&mut self, now: Instant, limits: &Limits) -> Option<Transmit> {
        let (limit, worth) = (limits.open(), self.worth(limits));
        let mut seq = self.send.snd_nxt;
        if !self.receive.due(limit, worth, now) {
            self.keep_alive_at().filter(|&at| now >= at)?;
            if self.keep_alives >= KEEP_ALIVES {
                self.end(Some(Error::TimedOut));
                return None;
            }
            self.keep_alives += 1;
            // Outside of the peer's window, so that it answers (RFC 9293, section 3.8.4).
            seq = seq.wrapping_sub(1);
        }
        Some(self.acknowledging(seq, Flags::ACK, 0, limits))
    }

    /// Least by which the window is opened: a segment, or half of the buffer (RFC 9293, section 3.8.6.2.2).
    fn worth(&self, limits: &Limits) -> u32 {
        u32::from(self.rcv_mss).min(limits.window / 2)
    }

    /// A segment that acknowledges all that has come.
    fn acknowledging(&mut self, seq: u32, flags: Flags, len: u32, limits: &Limits) -> Transmit {
        let (limit, worth) = (limits.open(), self.worth(limits));
        let wnd = self.receive.acknowledge(limit, worth);
        let options = if self.send.sack && len == 0 {
            OptionBytes::sack(self.receive.out_of_order.blocks())
        } else {
            OptionBytes::NONE
        };
        Transmit {
            seq,
            ack: self.receive.rcv_nxt,
            flags,
            wnd,
            options,
            offset: seq.wrapping_sub(self.send.snd_una),
            len: len as usize,
            mss: self.send.mss,
        }
    }
}

impl From<Reply> for Transmit {
    fn from(reply: Reply) -> Self {
        Self {
            seq: reply.seq,
            ack: reply.ack,
            flags: reply.flags,
            wnd: 0,
            options: OptionBytes::NONE,
            offset: 0,
            len: 0,
            mss: 0,
        }
    }
}
