//! A connection: its state, the user's calls (RFC 9293, section 3.10), and what leaves next.

use crate::options::{OptionBytes, Options};
use crate::receive::Receive;
use crate::segment::{Flags, Reply, Segment};
use crate::send::Send;
use crate::time::{Duration, Instant};
use crate::window::{MAX_WINDOW, WINDOW_SCALE};

/// How long unanswered retransmissions go on, R2 (RFC 9293, section 3.8.3: at least 100 s).
const R2: Duration = Duration::from_secs(100);
/// Twice the maximum segment lifetime, as Linux has it.
const TIME_WAIT: Duration = Duration::from_secs(60);
/// Probes of a silent peer before it is given up (RFC 9293, section 3.8.4).
const KEEP_ALIVES: u32 = 5;
/// Challenge acknowledgements in any [`CHALLENGE_TIME`] (RFC 5961, section 7). Counted for each connection: a count that
/// connections share tells a stranger about others.
const CHALLENGES: u32 = 10;
const CHALLENGE_TIME: Duration = Duration::from_secs(1);

/// The states of RFC 9293, section 3.3.2. LISTEN has no connection: [`super::listen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection has ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A reset answered our SYN.
    #[error("connection refused")]
    Refused,
    /// The peer reset the connection.
    #[error("connection reset")]
    Reset,
    /// What was sent was not acknowledged, or a silent peer did not answer.
    #[error("the peer does not answer")]
    TimedOut,
}

/// What a connection is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest segment that we take, in bytes of payload: told in our SYN.
    pub mss: u16,
    /// Largest segment that the path takes, in bytes of payload.
    pub send_mss: u16,
    /// A peer that is silent for so long is probed.
    pub keep_alive: Option<Duration>,
}

/// What limits a segment that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest receive window to tell, in bytes: RCV.BUFF, or less where more could not be taken. Where memory ends, as with the
    /// last bytes of a file, no more than `room`: of a window that could be larger less than a segment is not told.
    pub window: u32,
    /// Bytes from RCV.NXT on that can be stored now.
    pub room: u32,
    /// Most payload bytes at once, where the device cuts them into segments of [`Transmit::mss`]; 0 where it does not.
    pub unit: u32,
}

impl Limits {
    /// The largest window that is true.
    fn open(&self) -> u32 {
        self.window.min(self.room)
    }
}

/// A segment that leaves, or several that the device cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK, 0 without [`Flags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The window field.
    pub wnd: u16,
    /// Options.
    pub options: OptionBytes,
    /// Where its payload begins, in bytes from the first in the send buffer that is not acknowledged.
    pub offset: u32,
    /// Bytes of payload.
    pub len: usize,
    /// Payload of each segment but the last.
    pub mss: u16,
}

/// A transmission control block.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) state: State,
    config: Config,
    pub(crate) send: Send,
    pub(crate) receive: Receive,
    /// Opened by a SYN that came to LISTEN.
    pub(crate) passive: bool,
    pub(crate) error: Option<Error>,
    /// A SYN must leave (again).
    syn_due: bool,
    /// The window that our SYN told.
    syn_window: u16,
    /// A reset that must leave.
    pub(crate) reply: Option<Reply>,
    challenges: u32,
    challenged: Instant,
    /// When TIME-WAIT ends.
    pub(crate) ends: Option<Instant>,
    /// When the oldest segment under way was sent for the first time.
    waiting_since: Option<Instant>,
    last_heard: Instant,
    keep_alives: u32,
}

impl Connection {
    /// Active OPEN (RFC 9293, section 3.10.1). The SYN is due.
    #[must_use]
    pub fn connect(config: Config, iss: u32, now: Instant) -> Self {
        Self {
            state: State::SynSent,
            config,
            send: Send::new(iss, config.send_mss),
            receive: Receive::new(0, 0, now),
            passive: false,
            error: None,
            syn_due: true,
            syn_window: 0,
            reply: None,
            challenges: 0,
            challenged: now,
            ends: None,
            waiting_since: None,
            last_heard: now,
            keep_alives: 0,
        }
    }

    /// Passive OPEN: `syn` came to a port in LISTEN, and [`super::listen`] accepts it. The SYN-ACK is due.
    #[must_use]
    pub fn accept(config: Config, iss: u32, now: Instant, syn: &Segment<'_>) -> Self {
        let mut connection = Self::connect(config, iss, now);
        connection.passive = true;
        connection.state = State::SynReceived;
        connection.synchronize(syn, now);
        connection
    }

    /// Learns from the peer's SYN.
    pub(crate) fn synchronize(&mut self, syn: &Segment<'_>, now: Instant) {
        let options = Options::parse(syn.options);
        self.receive = Receive::new(syn.seq, self.syn_window, now);
        if options.window_scale.is_none() {
            // The peer does not scale: neither may we (RFC 7323, section 2.2).
            self.receive.window.scale = 0;
        }
        self.send.synchronized(syn.seq, syn.wnd, &options);
        self.last_heard = now;
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection has ended, if it was not by both sides' FIN.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.error
    }

    /// Whether the peer may still send: its FIN has not come.
    #[must_use]
    pub fn may_receive(&self) -> bool {
        matches!(
            self.state,
            State::SynSent
                | State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
        )
    }

    /// Whether more may be queued: neither CLOSE nor an end.
    #[must_use]
    pub fn may_send(&self) -> bool {
        matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
        )
    }

    /// RCV.NXT.
    #[must_use]
    pub fn rcv_nxt(&self) -> u32 {
        self.receive.rcv_nxt
    }

    /// RCV.WND: bytes from RCV.NXT on that the peer has been told it may send.
    #[must_use]
    pub fn rcv_wnd(&self) -> u32 {
        self.receive.window.size(self.receive.rcv_nxt)
    }

    /// SND.UNA.
    #[must_use]
    pub fn snd_una(&self) -> u32 {
        self.send.snd_una
    }

    /// SND.NXT.
    #[must_use]
    pub fn snd_nxt(&self) -> u32 {
        self.send.snd_nxt
    }

    /// SND.WND.
    #[must_use]
    pub fn snd_wnd(&self) -> u32 {
        self.send.snd_wnd
    }

    /// Largest segment that leaves, in bytes of payload.
    #[must_use]
    pub fn mss(&self) -> u16 {
        self.send.mss
    }

    /// Bytes behind RCV.NXT up to the end of the last ones that lie behind a gap.
    #[inline]
    #[must_use]
    pub fn out_of_order(&self) -> u32 {
        self.receive.out_of_order()
    }

    /// The shortest round trip that was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.send.timer.shortest()
    }

    /// SEND: so many more bytes wait in the caller's send buffer. It shall hold less than 1 GiB.
    pub fn queue(&mut self, bytes: u32) {
        if self.may_send() {
            self.send.queue(bytes);
        }
    }

    /// Bytes at the start of the send buffer that the peer has acknowledged since this was last asked: the caller drops them.
    pub fn acknowledged(&mut self) -> u32 {
        self.send.released()
    }

    /// Forgets what has come behind gaps, because the caller lost it. It will come again.
    pub fn renege(&mut self) {
        self.receive.renege();
    }

    /// An ICMP message says that the segment with this sequence number was too large for the path, which takes `mss` bytes of
    /// payload. Believed of segments that are under way only (RFC 5927, section 4.1).
    ///
    /// Returns whether it was believed.
    pub fn too_big(&mut self, seq: u32, mss: u16) -> bool {
        let under_way = self.send.under_way(seq);
        if under_way {
            self.send.too_big(mss);
        }
        under_way
    }

    /// CLOSE (RFC 9293, section 3.10.4): what is queued is still sent, then a FIN.
    pub fn close(&mut self) {
        match self.state {
            State::SynSent => self.end(None),
            // A FIN of SYN-RECEIVED leaves once the connection is established.
            State::SynReceived | State::Established => {
                self.send.finish();
                self.state = if self.state == State::Established {
                    State::FinWait1
                } else {
                    self.state
                };
            }
            State::CloseWait => {
                self.send.finish();
                self.state = State::LastAck;
            }
            _ => {}
        }
    }

    /// ABORT (RFC 9293, section 3.10.5).
    pub fn abort(&mut self) {
        if !matches!(self.state, State::SynSent | State::TimeWait | State::Closed) {
            self.reply = Some(Reply {
                seq: self.send.snd_nxt,
                ack: self.receive.rcv_nxt,
                flags: Flags::RST | Flags::ACK,
            });
        }
        self.end(None);
    }

    /// The connection is over.
    pub(crate) fn end(&mut self, error: Option<Error>) {
        self.state = State::Closed;
        self.error = error;
        self.syn_due = false;
        self.send.timer.stop();
        self.ends = None;
    }

    /// Both sides have said that they end.
    pub(crate) fn time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.send.timer.stop();
        self.ends = Some(now + TIME_WAIT);
    }

    /// The SYN was answered by one that does not acknowledge it: simultaneous open.
    pub(crate) fn syn_again(&mut self) {
        self.syn_due = true;
    }

    /// Something acceptable was heard.
    #[inline]
    pub(crate) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.keep_alives = 0;
    }

    /// Something that was sent has been acknowledged, or the peer says that it has no room for it.
    pub(crate) fn progressed(&mut self, now: Instant) {
        self.waiting_since = (self.send.flight() > 0).then_some(now);
    }

    /// Whether nothing is left to do or to say: it can be forgotten.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Closed && self.reply.is_none()
    }

    /// A challenge ACK (RFC 5961): what the segment says is not believed, and a peer that meant it will say so better.
    pub(crate) fn challenge(&mut self, now: Instant) {
        if now >= self.challenged + CHALLENGE_TIME {
            self.challenged = now;
            self.challenges = 0;
        }
        if self.challenges < CHALLENGES {
            self.challenges += 1;
            self.receive.urgent = self.receive.urgent.max(1);
        }
    }

    /// When [`Self::transmit`] must be called though nothing arrives and nothing is queued.
    #[must_use]
    pub fn poll_at(&self) -> Option<Instant> {
        if self.state == State::Closed {
            return None;
        }
        let timers = [
            self.send.timer.expires(),
            self.receive.due_at(),
            self.ends,
            self.keep_alive_at(),
        ];
        timers.into_iter().flatten().min()
    }

    fn keep_alive_at(&self) -> Option<Instant> {
        let interval = self.config.keep_alive?;
        let idle =
            self.send.flight() == 0 && matches!(self.state, State::Established | State::CloseWait);
        idle.then(|| self.last_heard + interval * (self.keep_alives + 1))
    }

    /// The next segment that is to leave now; `None` when there is no more. Whoever cannot send it has lost it, as a wire would.
    pub fn transmit(&mut self, now: Instant, limits: &Limits) -> Option<Transmit> {
        if let Some(reply) = self.reply.take() {
            return Some(control(reply));
        }
        self.expire(now);
        match self.state {
            State::Closed => None,
            State::SynSent | State::SynReceived => self.synchronizing(now, limits),
            _ => self.synchronized(now, limits),
        }
    }

    /// What [`Self::transmit`] has just returned, of more than one segment, did not leave: the card takes no more of such now. It is
    /// returned again.
    pub fn take_back(&mut self, out: &Transmit) {
        self.send.take_back(out.seq);
    }

    /// Sees which timers have expired.
    fn expire(&mut self, now: Instant) {
        if self.ends.is_some_and(|ends| now >= ends) {
            self.end(None);
        }
        if self
            .send
            .timer
            .expires()
            .is_some_and(|expires| now >= expires)
        {
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
                    .tell(self.receive.rcv_nxt, self.syn_window);
            }
        } else {
            self.send.timer.resent(now);
        }
        let (scale, sack) = if received {
            (self.receive.window.scale > 0, self.send.sack)
        } else {
            (true, true)
        };
        let mut syn = control(Reply {
            seq: self.send.iss,
            ack: 0,
            flags: Flags::SYN,
        });
        syn.options = OptionBytes::syn(self.config.mss, scale.then_some(WINDOW_SCALE), sack);
        syn.wnd = self.syn_window;
        if received {
            syn.ack = self.receive.rcv_nxt;
            syn.flags = Flags::SYN | Flags::ACK;
            self.receive.syn_acknowledged();
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
        u32::from(self.config.mss).min(limits.window / 2)
    }

    /// A segment that acknowledges all that has come.
    fn acknowledging(&mut self, seq: u32, flags: Flags, len: u32, limits: &Limits) -> Transmit {
        let (limit, worth) = (limits.open(), self.worth(limits));
        let wnd = self.receive.acknowledge(limit, worth);
        let options = if self.send.sack && len == 0 {
            OptionBytes::sack(self.receive.blocks())
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

/// A segment of nothing but control bits.
fn control(reply: Reply) -> Transmit {
    Transmit {
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
