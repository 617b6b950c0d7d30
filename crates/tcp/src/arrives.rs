//! SEGMENT ARRIVES (RFC 9293, section 3.10.7), step by step, with the answers to blind attackers of RFC 5961.

use crate::connection::{Connection, Error, State};
use crate::options::Options;
use crate::receiver::PayloadRange;
use crate::segment::{Flags, Segment, reset};
use crate::sequence::{after, at_or_after};
use crate::time::Instant;

impl Connection {
    /// Takes a segment of this connection, whose checksum was verified. `room`: bytes from RCV.NXT on that the caller can store.
    ///
    /// Where a [`PayloadRange`] is returned the caller must copy that part of the payload. Nothing has changed when the segment was
    /// not acceptable, but for an answer that [`Self::transmit`] may have.
    #[inline]
    pub fn receive(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        room: u32,
    ) -> Option<PayloadRange> {
        if segment.len <= room as usize && self.receive_next(now, segment) {
            return Some(PayloadRange {
                skip: 0,
                len: segment.len,
                at: 0,
                advance: segment.len as u32,
            });
        }
        if self.receive_acknowledgement(now, segment) {
            return None;
        }
        self.arrives(now, segment, room)
    }

    /// Takes what a download consists of: the next data, whole, with no news for the sending half. The caller has room for all of it,
    /// and copies it to where RCV.NXT was. False when the segment is another one, for [`Self::receive`]; nothing has changed then.
    #[inline(always)]
    pub fn receive_next(&mut self, now: Instant, segment: &Segment<'_>) -> bool {
        let next = self.state == State::Established
            && segment.flags.0 & !Flags::PSH.0 == Flags::ACK.0
            && segment.ack == self.send.snd_una
            && segment.options.is_empty()
            && segment.len > 0
            && self.receive.next(segment.seq, segment.len, now);
        if next {
            self.send.window(segment.seq, segment.ack, segment.wnd);
            self.heard(now);
        }
        next
    }

    /// Takes what an upload hears: an acknowledgement of more bytes while none are known to be lost, and nothing else. False when the
    /// segment is another one, for [`Self::receive`]; nothing has changed then.
    #[inline(always)]
    pub fn receive_acknowledgement(&mut self, now: Instant, segment: &Segment<'_>) -> bool {
        let usual = self.state == State::Established
            && segment.flags.0 & !Flags::PSH.0 == Flags::ACK.0
            && segment.seq == self.receive.rcv_nxt
            && segment.options.is_empty()
            && segment.len == 0
            && self.send.is_whole()
            && after(segment.ack, self.send.snd_una)
            && !after(segment.ack, self.send.snd_nxt);
        if usual {
            self.send.window(segment.seq, segment.ack, segment.wnd);
            self.send.acknowledged(segment.ack, now);
            self.progressed(now);
            self.heard(now);
        }
        usual
    }

    #[cold]
    fn arrives(&mut self, now: Instant, segment: &Segment<'_>, room: u32) -> Option<PayloadRange> {
        match self.state {
            State::Closed => {
                self.reply = self.reply.or(crate::segment::closed(segment));
                None
            }
            State::SynSent => {
                self.syn_sent(now, segment);
                None
            }
            _ => self.other(now, segment, room),
        }
    }

    /// Section 3.10.7.3.
    fn syn_sent(&mut self, now: Instant, segment: &Segment<'_>) {
        let Segment { ack, flags, .. } = *segment;
        let acknowledges = flags.contains(Flags::ACK);
        // First, the ACK bit.
        if acknowledges && (!after(ack, self.send.iss) || after(ack, self.send.snd_nxt)) {
            if !flags.contains(Flags::RST) {
                self.reply = Some(reset(ack));
            }
            return;
        }
        // Second, the RST bit.
        if flags.contains(Flags::RST) {
            if acknowledges {
                self.end(Some(Error::Refused));
            }
            return;
        }
        // Fourth, the SYN bit. Text that it brings comes again.
        if !flags.contains(Flags::SYN) {
            return;
        }
        self.synchronize(segment, now);
        if acknowledges {
            self.send.syn_acknowledged(segment.seq, ack, now);
            self.progressed(now);
            self.receive.urgent = 1;
            self.established();
        } else {
            self.state = State::SynReceived;
            // Simultaneous open: it leaves again, with the acknowledgement.
            self.syn_due = true;
        }
    }

    /// The state after a handshake; CLOSE may have come before.
    fn established(&mut self) {
        self.state = if self.send.fin {
            State::FinWait1
        } else {
            State::Established
        };
    }

    /// Section 3.10.7.4.
    fn other(&mut self, now: Instant, segment: &Segment<'_>, room: u32) -> Option<PayloadRange> {
        let Segment { seq, flags, .. } = *segment;
        // First and second, the sequence number of a RST (RFC 5961, section 3.2): its own place counts, not that of its text.
        if flags.contains(Flags::RST) {
            if seq == self.rcv_nxt() {
                self.was_reset();
            } else if self.receive.acceptable(seq, 0) {
                self.challenge(now);
            }
            return None;
        }
        // First, the sequence number. A segment into a window that is closed may still acknowledge.
        if !self.receive.acceptable(seq, segment.seg_len()) {
            let closed = self.rcv_wnd() == 0 && seq == self.rcv_nxt();
            let acknowledges = flags.contains(Flags::ACK) && !flags.contains(Flags::SYN);
            if !closed || !acknowledges {
                self.not_acceptable(now, segment);
                return None;
            }
        }
        // Fourth, the SYN bit (RFC 5961, section 4.2).
        if flags.contains(Flags::SYN) {
            // One in the window; the SYN that comes again, with text perhaps, lies before it.
            let fresh = self.receive.acceptable(seq, 1);
            if self.state == State::SynReceived && self.passive && fresh {
                self.end(Some(Error::Reset));
            } else {
                self.challenge(now);
            }
            return None;
        }
        // Fifth, the ACK bit.
        if !flags.contains(Flags::ACK) || !self.acknowledges(now, segment) {
            return None;
        }
        self.heard(now);
        // Seventh, the text, and the place of a FIN.
        let range = match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => {
                self.receive.text(segment, room, now)
            }
            _ => None,
        };
        // Eighth, the FIN bit.
        if self.receive.finish() {
            self.peer_has_ended(now);
        }
        range
    }

    /// A segment outside of the window.
    fn not_acceptable(&mut self, now: Instant, segment: &Segment<'_>) {
        let Segment {
            seq, ack, flags, ..
        } = *segment;
        let fin_again = flags.0 & !Flags::PSH.0 == (Flags::FIN | Flags::ACK).0
            && seq.wrapping_add(segment.seg_len()) == self.rcv_nxt()
            && self.plausible(ack);
        if self.state == State::TimeWait && fin_again {
            // Our last acknowledgement was lost (eighth, TIME-WAIT).
            self.time_wait(now);
        }
        if segment.len > 0 {
            // An answer has no text, so that no two ends answer each other without end: a flood shall not silence the answer to a
            // peer that has lost our acknowledgement.
            self.receive.urgent = self.receive.urgent.max(1);
        } else {
            self.challenge(now);
        }
    }

    /// The peer has reset the connection.
    fn was_reset(&mut self) {
        self.end(match self.state {
            State::SynReceived if self.passive => Some(Error::Reset),
            State::SynReceived => Some(Error::Refused),
            State::Closing | State::LastAck | State::TimeWait => None,
            _ => Some(Error::Reset),
        });
    }

    /// RFC 5961, section 5.2: SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT.
    fn plausible(&self, ack: u32) -> bool {
        let oldest = self.send.snd_una.wrapping_sub(self.send.max_snd_wnd);
        at_or_after(ack, oldest) && !after(ack, self.send.snd_nxt)
    }

    /// The acknowledgement of an acceptable segment; false when the segment goes no further.
    fn acknowledges(&mut self, now: Instant, segment: &Segment<'_>) -> bool {
        let Segment { seq, ack, wnd, .. } = *segment;
        let (snd_una, snd_nxt) = (self.send.snd_una, self.send.snd_nxt);
        if self.state == State::SynReceived {
            if !after(ack, snd_una) || after(ack, snd_nxt) {
                self.reply = Some(reset(ack));
                return false;
            }
            self.send.syn_acknowledged(seq, ack, now);
            self.send.window(seq, ack, wnd);
            self.progressed(now);
            self.established();
            return true;
        }
        if !self.plausible(ack) {
            self.challenge(now);
            return false;
        }
        if !at_or_after(ack, snd_una) {
            return true;
        }
        let changed = self.send.window(seq, ack, wnd);
        let news = self.send.heard_sack(&Options::parse(segment.options));
        if ack == snd_una {
            // RFC 5681, section 2; RFC 6675, section 2, where the peer tells what has come.
            let plain = segment.seg_len() == 0 && !changed && snd_una != snd_nxt;
            if if self.send.sack { news } else { plain } {
                self.send.duplicate();
            }
            if self.send.snd_wnd == 0 {
                self.progressed(now);
            }
        } else {
            self.send.acknowledged(ack, now);
            self.progressed(now);
        }
        self.send.look_for_loss();
        if self.send.fin_acknowledged() {
            match self.state {
                State::FinWait1 => self.state = State::FinWait2,
                State::Closing => self.time_wait(now),
                State::LastAck => {
                    self.end(None);
                    return false;
                }
                _ => {}
            }
        }
        true
    }

    /// The peer's FIN has come, and all before it.
    fn peer_has_ended(&mut self, now: Instant) {
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.time_wait(now),
            _ => {}
        }
    }
}
