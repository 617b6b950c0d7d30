//! A connection: its state, the user's calls (RFC 9293, section 3.10), and what leaves next.

use crate::options::Options;
use crate::receiver::Receiver;
use crate::segment::{Flags, Reply, Segment};
use crate::sender::Sender;
use crate::sequence::ahead;
use crate::time::{Duration, Instant};

/// Twice the maximum segment lifetime, as Linux has it.
const TIME_WAIT: Duration = Duration::from_secs(60);
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

/// A transmission control block.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) state: State,
    /// Largest segment that we take, in bytes of payload.
    pub(crate) rcv_mss: u16,
    pub(crate) send: Sender,
    pub(crate) receive: Receiver,
    /// Opened by a SYN that came to LISTEN.
    pub(crate) passive: bool,
    pub(crate) error: Option<Error>,
    /// A SYN must leave (again).
    pub(crate) syn_due: bool,
    /// The window that our SYN advertised.
    pub(crate) syn_window: u16,
    /// A reset that must leave.
    pub(crate) reply: Option<Reply>,
    challenges: u32,
    challenged: Instant,
    /// When TIME-WAIT ends; `None` in every other state.
    pub(crate) ends: Option<Instant>,
    /// When the oldest segment under way was sent for the first time.
    pub(crate) waiting_since: Option<Instant>,
    pub(crate) keep_alive: Option<Duration>,
    last_heard: Instant,
    pub(crate) keep_alives: u32,
}

impl Connection {
    /// Active OPEN (RFC 9293, section 3.10.1). The SYN is due. `mss`: largest segment that we take, told in our SYN, and that the path
    /// takes, in bytes of payload.
    #[must_use]
    pub fn connect(mss: u16, iss: u32, now: Instant) -> Self {
        Self {
            state: State::SynSent,
            rcv_mss: mss,
            send: Sender::new(iss, mss),
            receive: Receiver::new(0, 0, now),
            passive: false,
            error: None,
            syn_due: true,
            syn_window: 0,
            reply: None,
            challenges: 0,
            challenged: now,
            ends: None,
            waiting_since: None,
            keep_alive: None,
            last_heard: now,
            keep_alives: 0,
        }
    }

    /// Probes a peer that is silent for so long, and gives it up when it answers none of five (RFC 9293, section 3.8.4). Off unless set.
    pub fn set_keep_alive(&mut self, interval: Option<Duration>) {
        self.keep_alive = interval;
    }

    /// Passive OPEN: `syn` came to a port in LISTEN, and [`super::listen`] accepts it. The SYN-ACK is due.
    #[must_use]
    pub fn accept(mss: u16, iss: u32, now: Instant, syn: &Segment<'_>) -> Self {
        let mut connection = Self::connect(mss, iss, now);
        connection.passive = true;
        connection.state = State::SynReceived;
        connection.synchronize(syn, now);
        connection
    }

    /// Learns from the peer's SYN.
    pub(crate) fn synchronize(&mut self, syn: &Segment<'_>, now: Instant) {
        let options = Options::parse(syn.options);
        self.receive = Receiver::new(syn.seq, self.syn_window, now);
        if options.window_scale.is_none() {
            // The peer does not scale: neither may we (RFC 7323, section 2.2).
            self.receive.window.scale = 0;
        }
        self.send.synchronized(syn.seq, syn.wnd, &options);
        self.last_heard = now;
    }

    /// The connection's state (RFC 9293, section 3.3.2).
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

    /// RCV.WND: the window that was advertised, in bytes from RCV.NXT on.
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
        let end = self.receive.out_of_order.end();
        end.map_or(0, |end| ahead(end, self.receive.rcv_nxt))
    }

    /// The shortest round trip that was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.send.timer.shortest
    }

    /// Segments with data or a FIN that were sent again.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.send.retransmissions
    }

    /// SEND: so many more bytes wait in the caller's send buffer. It shall hold less than 1 GiB.
    pub fn queue(&mut self, bytes: u32) {
        if self.may_send() {
            self.send.queue(bytes);
        }
    }

    /// Bytes at the start of the send buffer that the peer has acknowledged since this was last asked: the caller drops them.
    pub fn acknowledged(&mut self) -> u32 {
        core::mem::take(&mut self.send.released)
    }

    /// Forgets what has come behind gaps, because the caller lost it (RFC 2018, section 8, allows it). It will come again.
    pub fn renege(&mut self) {
        self.receive.out_of_order.clear();
    }

    /// An ICMP message says that the segment with this sequence number was too large for the path, which takes `mss` bytes of
    /// payload. Believed of segments that are under way only (RFC 5927, section 4.1).
    ///
    /// Returns whether it was believed.
    pub fn too_big(&mut self, seq: u32, mss: u16) -> bool {
        self.send.too_big(seq, mss)
    }

    /// CLOSE (RFC 9293, section 3.10.4): what is queued is still sent, then a FIN.
    pub fn close(&mut self) {
        match self.state {
            State::SynSent => self.end(None),
            // A FIN of SYN-RECEIVED leaves once the connection is established.
            State::SynReceived => self.send.fin = true,
            State::Established => {
                self.send.fin = true;
                self.state = State::FinWait1;
            }
            State::CloseWait => {
                self.send.fin = true;
                self.state = State::LastAck;
            }
            _ => {}
        }
    }

    /// ABORT (RFC 9293, section 3.10.5). Where more could come, it is a reset for the caller, too.
    pub fn abort(&mut self) {
        if !matches!(self.state, State::SynSent | State::TimeWait | State::Closed) {
            self.reply = Some(Reply {
                seq: self.send.snd_nxt,
                ack: self.receive.rcv_nxt,
                flags: Flags::RST | Flags::ACK,
            });
        }
        let cut_off = self.may_receive().then_some(Error::Reset);
        self.end(self.error.or(cut_off));
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

    /// Something acceptable was heard.
    #[inline]
    pub(crate) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.keep_alives = 0;
    }

    /// When the next probe of a silent peer leaves.
    pub(crate) fn keep_alive_at(&self) -> Option<Instant> {
        let interval = self.keep_alive?;
        let idle =
            self.send.flight() == 0 && matches!(self.state, State::Established | State::CloseWait);
        idle.then(|| self.last_heard + interval * (self.keep_alives + 1))
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
            self.send.timer.expires,
            self.receive.due_at(),
            self.ends,
            self.keep_alive_at(),
        ];
        timers.into_iter().flatten().min()
    }
}
