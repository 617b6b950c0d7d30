//! One TFTP read transfer as a state machine: no socket, no file, no clock of its own.
//!
//! The caller asks [`Sender::next_action`] what to do, does it, and feeds back what arrives. Block numbers here never wrap
//! (the first block is 1); only [`Sender::wire_number`] folds them to the 16 bits of a packet, 65535 being followed by 0.
//!
//! ```text
//!         acked          next         window end
//!   ........|#############|............|
//!           sent, in flight   may be sent
//! ```
//!
//! By RFC 7440 an acknowledgement takes `next` back to the block after it. Where the `slide` option was granted
//! ([`wireboot_wire::tftp::TransferOptions::slide`]), one of a multiple of its value moves `acked` and the window's end, and
//! `next` stays: the wire need not fall silent while a window is acknowledged.

use std::time::{Duration, Instant};

use wireboot_wire::text;
use wireboot_wire::tftp::{ErrorCode, Packet};

/// Doublings that outlive an acknowledgement. More would make a client that loses the end of each window, which no packet
/// follows to show it, wait longer and longer.
const KEPT_BACKOFF: u32 = 1;
/// Doublings of the wait before a repetition is answered: from a microsecond they lead beyond [`MAX_TIMEOUT`].
const MOST_DOUBLINGS: u32 = 23;
/// Wait for an answer before anything is known of the round trip.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// Shortest wait for an acknowledgement: below it, a client that is busy for a moment looks like loss.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest wait between two sendings of the same window.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);
/// A client that has said nothing useful for so long is gone.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);
/// One that has not said anything at all perhaps never asked: its request may be forged, and each sending goes to the victim. There is time
/// for two more.
const GIVE_UP_UNANSWERED_AFTER: Duration = Duration::from_secs(7);

/// What was agreed for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Payload bytes of every block but the last, 8 to 65464.
    pub block_size: u16,
    /// Blocks sent for one acknowledgement, at least 1.
    pub window: u16,
    /// Acknowledgements of multiples of this power of two slide the window on; at most `window`.
    pub slide: Option<u16>,
    /// Bytes of the file.
    pub size: u64,
    /// Wait before sending again that the client asked for (RFC 2349).
    pub timeout: Option<Duration>,
    /// True when options were acknowledged: the transfer begins with an OACK, which the client answers with ACK 0.
    pub options: bool,
}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send the option acknowledgement.
    SendOptions,
    /// Send `count` blocks from block `first` on.
    Send {
        /// Number of the first block, unfolded.
        first: u64,
        /// How many blocks, at least 1.
        count: u64,
    },
    /// Nothing to send before a packet arrives or this moment comes.
    Wait(Instant),
    /// The transfer is over.
    Ended(TransferEnd),
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferEnd {
    /// The last block was acknowledged.
    Complete,
    /// The client broke off before the first byte, as clients do that only asked for the size.
    SizeOnly,
    /// The client sent an ERROR packet.
    Aborted,
    /// The client sent a packet that has no place in a read transfer.
    Illegal,
    /// The client stopped answering.
    Silent,
}

/// The sending side of one transfer.
#[derive(Debug)]
pub(crate) struct Sender {
    terms: Terms,
    last_block: u64,
    started: bool,
    /// The client has acknowledged something.
    answered: bool,
    options_due: bool,
    acked: u64,
    next: u64,
    /// The furthest block that was ever sent, which going back leaves as it is.
    furthest: u64,
    sent_at: Instant,
    heard_at: Instant,
    rolled_back_at: Option<Instant>,
    /// Repetitions answered since the client had something new.
    repeats: u32,
    /// With a window that slides: a block sent once whose acknowledgement is awaited to measure the round trip.
    timed: Option<(u64, Instant)>,
    shortest_round_trip: Option<Duration>,
    smoothed_round_trip: Option<Duration>,
    /// How far round trips lie from the smoothed one, smoothed too.
    round_trip_variation: Duration,
    /// Doublings of the wait since the last sample: an acknowledgement of what was sent twice does not end them all (RFC 6298 section 5).
    backoff: u32,
    /// The next acknowledgement may be of the first sending or of the second.
    ambiguous: bool,
    resent: u64,
    end: Option<TransferEnd>,
    error_text: String,
}

impl Sender {
    /// A transfer that begins now.
    pub(crate) fn new(terms: Terms, now: Instant) -> Self {
        let terms = Terms {
            block_size: terms.block_size.max(1),
            window: terms.window.max(1),
            ..terms
        };
        Self {
            terms,
            last_block: terms.size / u64::from(terms.block_size) + 1,
            started: !terms.options,
            answered: false,
            options_due: terms.options,
            acked: 0,
            next: 1,
            furthest: 0,
            sent_at: now,
            heard_at: now,
            rolled_back_at: None,
            repeats: 0,
            timed: None,
            shortest_round_trip: None,
            smoothed_round_trip: None,
            round_trip_variation: Duration::ZERO,
            backoff: 0,
            ambiguous: false,
            resent: 0,
            end: None,
            error_text: String::new(),
        }
    }

    /// What goes into the packet for block `block`.
    pub(crate) fn wire_number(block: u64) -> u16 {
        (block & 0xffff) as u16
    }

    /// Where block `block` begins in the file, in bytes.
    pub(crate) fn offset(&self, block: u64) -> u64 {
        block.saturating_sub(1) * u64::from(self.terms.block_size)
    }

    /// Payload bytes of block `block`; the last block is short, and empty when the size is a multiple of the block size.
    pub(crate) fn length(&self, block: u64) -> usize {
        let left = self.terms.size.saturating_sub(self.offset(block));
        left.min(self.terms.block_size.into()) as usize
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> u64 {
        self.terms.size
    }

    /// File bytes that the client has acknowledged.
    pub(crate) fn acknowledged_bytes(&self) -> u64 {
        self.offset(self.acked + 1).min(self.terms.size)
    }

    /// Blocks sent more than once.
    pub(crate) fn resent_blocks(&self) -> u64 {
        self.resent
    }

    /// True once the client has acknowledged something.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    /// How the transfer ended, if it has.
    pub(crate) fn end(&self) -> Option<TransferEnd> {
        self.end
    }

    /// Text of the client's ERROR packet, fit to be shown; empty without one.
    pub(crate) fn error_text(&self) -> &str {
        &self.error_text
    }

    /// What to do at `now`. The same answer comes again until [`Sender::sent`] or a packet changes it.
    pub(crate) fn next_action(&mut self, now: Instant) -> Action {
        if let Some(end) = self.end {
            return Action::Ended(end);
        }
        if let Some(action) = self.due() {
            return action;
        }
        // What is heard while the window slides may leave nothing to send: the client is there all the same.
        let patience = match self.answered {
            true => GIVE_UP_AFTER,
            false => GIVE_UP_UNANSWERED_AFTER,
        };
        let end = self.heard_at + patience;
        let deadline = end.min(self.sent_at.max(self.heard_at) + self.timeout());
        if now < deadline {
            return Action::Wait(deadline);
        }
        if now >= end {
            self.end = Some(TransferEnd::Silent);
            return Action::Ended(TransferEnd::Silent);
        }
        self.backoff += 1;
        self.ambiguous = true;
        self.roll_back(now);
        self.due().unwrap_or(Action::Wait(deadline))
    }

    /// Tells that the packets of the last action, `Send` with this many blocks or `SendOptions`, went out at `now`.
    pub(crate) fn sent(&mut self, blocks: u64, now: Instant) {
        self.sent_at = now;
        if self.options_due {
            self.options_due = false;
            return;
        }
        let first = self.next;
        self.next = (first + blocks).min(self.window_end() + 1);
        let fresh = first.max(self.furthest + 1);
        self.resent += fresh.min(self.next) - first;
        self.furthest = self.furthest.max(self.next - 1);
        if let Some(slide) = self.terms.slide
            && self.timed.is_none()
        {
            let newest = self.next - 1;
            let answered = if newest == self.last_block {
                newest
            } else {
                newest - newest % u64::from(slide.max(1))
            };
            self.timed = (answered >= fresh).then_some((answered, now));
        }
    }

    /// Takes a datagram from the client.
    pub(crate) fn receive(&mut self, datagram: &[u8], now: Instant) {
        if self.end.is_some() {
            return;
        }
        match Packet::parse(datagram) {
            Ok(Packet::Ack { block }) => self.acknowledge(block, now),
            Ok(Packet::Error { code, text }) => {
                self.error_text = text::shown(text);
                if self.error_text.is_empty() {
                    self.error_text = code.meaning().to_owned();
                }
                let only_asked = self.acked == 0 && self.terms.options;
                self.end = Some(if only_asked {
                    TransferEnd::SizeOnly
                } else {
                    TransferEnd::Aborted
                });
            }
            // The client did not see our answer and asked again from the same port.
            Ok(Packet::Rrq(_)) => {}
            Ok(_) => self.end = Some(TransferEnd::Illegal),
            Err(_) => {}
        }
    }

    /// The ERROR packet that tells the client why the transfer ended, if it is to be told.
    pub(crate) fn farewell(&self) -> Option<(ErrorCode, &'static str)> {
        match self.end {
            Some(TransferEnd::Illegal) => {
                Some((ErrorCode::ILLEGAL, "only ACK and ERROR belong here"))
            }
            Some(TransferEnd::Silent) if self.answered => {
                Some((ErrorCode::UNDEFINED, "no acknowledgement came in time"))
            }
            _ => None,
        }
    }

    fn acknowledge(&mut self, number: u16, now: Instant) {
        if self.options_due {
            return;
        }
        let advance = u64::from(number.wrapping_sub(Self::wire_number(self.acked)));
        // Not up to `next` alone: what was sent before going back may still be acknowledged.
        let awaited = self.furthest - self.acked;
        if !self.started {
            if number == 0 {
                self.started = true;
                self.answered = true;
                self.sample(now.saturating_duration_since(self.sent_at));
                self.heard_at = now;
            }
        } else if advance == 0 {
            self.repeat(now);
        } else if advance <= awaited {
            self.acked += advance;
            self.answered = true;
            self.repeats = 0;
            self.take_sample(now);
            self.backoff = self.backoff.min(KEPT_BACKOFF);
            self.heard_at = now;
            if self.acked == self.last_block {
                self.end = Some(TransferEnd::Complete);
            } else if self.slides(self.acked) {
                self.next = self.next.max(self.acked + 1);
            } else {
                // RFC 7440: an acknowledgement within the window opens a new window after that block.
                self.roll_back(now);
            }
        }
        // Anything else is an old acknowledgement that comes late.
    }

    /// An acknowledgement of this block says nothing but that everything up to it has come.
    fn slides(&self, block: u64) -> bool {
        self.terms
            .slide
            .is_some_and(|slide| block.is_multiple_of(slide.into()))
    }

    /// The client repeats what it acknowledged: the first block after it is missing. With a window of one this says no more than
    /// that a packet was doubled on its way, and to answer it would double every later one (the sorcerer's apprentice). The same
    /// goes for a repetition that comes sooner than any answer to what was last sent can; with a window that slides, where
    /// something is always just being sent, to what was sent after the last going back. A client that is behind says the same for
    /// each doubled block that it finds, and an answer each time would leave it no room for the one that it lacks: each further answer
    /// comes twice as late.
    fn repeat(&mut self, now: Instant) {
        let nothing_sent = self.next == self.acked + 1;
        if self.terms.window == 1 || nothing_sent {
            return;
        }
        let since = if self.terms.slide.is_some() {
            self.rolled_back_at
        } else {
            Some(self.sent_at)
        };
        let doublings = self.repeats.saturating_sub(1).min(MOST_DOUBLINGS);
        let answers = since.is_none_or(|since| {
            let wait = self.shortest_round_trip;
            let wait = wait.map(|shortest| (shortest * (1 << doublings)).min(MAX_TIMEOUT));
            wait.is_some_and(|wait| now.saturating_duration_since(since) >= wait)
        });
        if answers {
            // Whoever says nothing else is gone at last, too.
            if self.repeats == 0 {
                self.heard_at = now;
            }
            self.repeats = self.repeats.saturating_add(1);
            self.roll_back(now);
        }
    }

    /// Measures the round trip, now that `acked` has moved.
    fn take_sample(&mut self, now: Instant) {
        let since = if self.terms.slide.is_none() {
            self.sent_at
        } else if let Some((block, since)) = self.timed
            && block <= self.acked
        {
            self.timed = None;
            since
        } else {
            return;
        };
        self.sample(now.saturating_duration_since(since));
    }

    /// RFC 6298 section 2. A sample after a resending might belong to the first sending (Karn); until there is a better one, the wait
    /// stays longer than it was. Else every window of a client that has become slow would be sent twice.
    fn sample(&mut self, sample: Duration) {
        if std::mem::take(&mut self.ambiguous) {
            return;
        }
        self.backoff = 0;
        let shortest = self.shortest_round_trip.unwrap_or(sample);
        self.shortest_round_trip = Some(shortest.min(sample));
        self.smoothed_round_trip = Some(match self.smoothed_round_trip {
            Some(smoothed) => {
                self.round_trip_variation =
                    (self.round_trip_variation * 3 + smoothed.abs_diff(sample)) / 4;
                (smoothed * 7 + sample) / 8
            }
            None => {
                self.round_trip_variation = sample / 2;
                sample
            }
        });
    }

    fn due(&self) -> Option<Action> {
        if self.options_due {
            return Some(Action::SendOptions);
        }
        let end = self.window_end();
        (self.started && self.next <= end).then(|| Action::Send {
            first: self.next,
            count: end + 1 - self.next,
        })
    }

    fn window_end(&self) -> u64 {
        (self.acked + u64::from(self.terms.window)).min(self.last_block)
    }

    /// The next block to send is the one after the last that was acknowledged.
    fn roll_back(&mut self, now: Instant) {
        if self.started {
            self.next = self.acked + 1;
            self.rolled_back_at = Some(now);
            self.timed = None;
        } else {
            self.options_due = true;
        }
    }

    fn timeout(&self) -> Duration {
        let base = match (self.terms.timeout, self.smoothed_round_trip) {
            (Some(asked), _) => asked,
            (None, Some(round_trip)) => {
                let varied = round_trip + self.round_trip_variation * 4;
                varied.max(round_trip * 4).max(MIN_TIMEOUT)
            }
            (None, None) => FIRST_TIMEOUT,
        };
        let longest = MAX_TIMEOUT.max(self.terms.timeout.unwrap_or_default());
        base.saturating_mul(1 << self.backoff.min(10)).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use wireboot_wire::tftp;

    fn terms(size: u64, block_size: u16, window: u16) -> Terms {
        Terms {
            block_size,
            window,
            slide: None,
            size,
            timeout: None,
            options: true,
        }
    }

    fn sliding(size: u64, block_size: u16, window: u16, slide: u16) -> Terms {
        Terms {
            slide: Some(slide),
            ..terms(size, block_size, window)
        }
    }

    /// Steps through one exchange by hand.
    struct Bench {
        sender: Sender,
        now: Instant,
    }

    impl Bench {
        fn new(terms: Terms) -> Self {
            let now = Instant::now();
            let mut bench = Self {
                sender: Sender::new(terms, now),
                now,
            };
            if terms.options {
                assert_eq!(bench.action(), Action::SendOptions);
                bench.sender.sent(0, bench.now);
                bench.later(1);
                bench.ack(0);
            }
            bench
        }

        fn later(&mut self, millis: u64) {
            self.now += Duration::from_millis(millis);
        }

        fn action(&mut self) -> Action {
            self.sender.next_action(self.now)
        }

        fn ack(&mut self, block: u16) {
            self.sender.receive(&tftp::ack(block), self.now);
        }

        /// Expects blocks `first..first+count` to be sent, and nothing more.
        fn sends(&mut self, first: u64, count: u64) {
            assert_eq!(self.action(), Action::Send { first, count });
            self.sender.sent(count, self.now);
            self.waits();
        }

        fn waits(&mut self) {
            assert!(
                matches!(self.action(), Action::Wait(_)),
                "{:?}",
                self.action()
            );
        }
    }

    #[test]
    fn windows_follow_one_another_to_the_short_last_block() {
        let mut bench = Bench::new(terms(100 * 5 + 7, 100, 4));
        bench.sends(1, 4);
        bench.later(1);
        bench.ack(4);
        bench.sends(5, 2);
        assert_eq!((bench.sender.offset(6), bench.sender.length(6)), (500, 7));
        bench.ack(6);
        assert_eq!(bench.action(), Action::Ended(TransferEnd::Complete));
        assert_eq!(bench.sender.acknowledged_bytes(), 507);
        assert_eq!(bench.sender.resent_blocks(), 0);
    }

    #[test]
    fn a_size_that_is_a_multiple_of_the_block_size_ends_with_an_empty_block() {
        let mut bench = Bench::new(terms(200, 100, 8));
        bench.sends(1, 3);
        assert_eq!(bench.sender.length(3), 0);
        bench.ack(3);
        assert_eq!(bench.action(), Action::Ended(TransferEnd::Complete));
        let mut bench = Bench::new(terms(0, 100, 8));
        bench.sends(1, 1);
        assert_eq!(bench.sender.length(1), 0);
    }

    #[test]
    fn without_options_the_first_block_goes_out_at_once() {
        let mut bench = Bench::new(Terms {
            options: false,
            ..terms(700, 512, 1)
        });
        bench.sends(1, 1);
        bench.ack(1);
        bench.sends(2, 1);
    }

    #[test]
    fn only_acknowledgement_0_answers_the_options() {
        let mut bench = Bench {
            sender: Sender::new(terms(10_000, 100, 8), Instant::now()),
            now: Instant::now(),
        };
        assert_eq!(bench.action(), Action::SendOptions);
        // One that comes before they were sent answers nothing.
        bench.ack(0);
        assert_eq!(bench.action(), Action::SendOptions);
        bench.sender.sent(0, bench.now);
        for block in [1, 8, 65_535] {
            bench.ack(block);
            bench.waits();
        }
        bench.ack(0);
        bench.sends(1, 8);
    }

    /// A doubled acknowledgement that comes before the next window is sent says nothing of it, and does not hide that its beginning is lost.
    #[test]
    fn a_repetition_before_the_window_is_sent_is_no_answer_to_it() {
        let mut bench = Bench::new(sliding(100_000, 100, 8, 4));
        bench.sends(1, 8);
        bench.later(10);
        bench.ack(8);
        bench.ack(8);
        bench.sends(9, 8);
        bench.ack(8);
        bench.sends(9, 8);
        assert_eq!(bench.sender.resent_blocks(), 8);
    }

    #[test]
    fn an_acknowledgement_within_the_window_rolls_back() {
        let mut bench = Bench::new(terms(10_000, 100, 8));
        bench.sends(1, 8);
        bench.ack(3);
        bench.sends(4, 8);
        assert_eq!(bench.sender.resent_blocks(), 5);
    }

    #[test]
    fn a_repeated_acknowledgement_is_answered_once_a_round_trip() {
        let mut bench = Bench::new(terms(10_000, 100, 8));
        bench.sends(1, 8);
        bench.later(1);
        bench.ack(8);
        bench.sends(9, 8);
        bench.ack(8);
        bench.waits();
        bench.later(1);
        bench.ack(8);
        bench.sends(9, 8);
        bench.ack(8);
        bench.waits();
    }

    #[test]
    fn a_client_that_repeats_itself_without_end_is_answered_ever_more_slowly() {
        let mut bench = Bench::new(terms(100_000, 100, 8));
        bench.sends(1, 8);
        bench.later(1);
        bench.ack(8);
        bench.sends(9, 8);
        let mut answered = Vec::new();
        for at in 1..=40 {
            bench.later(1);
            bench.ack(8);
            if let Action::Send { first, count } = bench.action() {
                bench.sends(first, count);
                answered.push(at);
            }
        }
        assert_eq!(answered, [1, 2, 4, 8, 16, 32]);
        // From what is new on, at once again.
        bench.ack(16);
        bench.sends(17, 8);
        bench.later(1);
        bench.ack(16);
        bench.sends(17, 8);
        let began = bench.now;
        let end = loop {
            bench.later(50);
            bench.ack(16);
            match bench.action() {
                Action::Send { first, count } => bench.sends(first, count),
                Action::Ended(end) => break end,
                _ => {}
            }
            assert!(bench.now - began < 2 * GIVE_UP_AFTER, "it never ends");
        };
        assert_eq!(end, TransferEnd::Silent);
        assert!(bench.now - began >= GIVE_UP_AFTER);
    }

    #[test]
    fn the_window_slides_on_at_a_multiple_and_goes_back_at_anything_else() {
        let mut bench = Bench::new(sliding(100_000, 100, 8, 4));
        bench.sends(1, 8);
        bench.later(1);
        bench.ack(4);
        bench.sends(9, 4);
        bench.ack(8);
        bench.sends(13, 4);
        assert_eq!(bench.sender.resent_blocks(), 0);
        bench.ack(10);
        bench.sends(11, 8);
        assert_eq!(bench.sender.resent_blocks(), 6);
        // An acknowledgement that was overtaken says nothing.
        bench.ack(8);
        bench.waits();
        bench.ack(16);
        bench.sends(19, 6);
        assert_eq!(bench.sender.resent_blocks(), 6);
    }

    #[test]
    fn what_was_sent_before_going_back_may_be_acknowledged_after_it() {
        for terms in [sliding(100_000, 100, 8, 4), terms(100_000, 100, 8)] {
            let mut bench = Bench::new(terms);
            bench.sends(1, 8);
            bench.ack(1);
            assert_eq!(bench.action(), Action::Send { first: 2, count: 8 });
            bench.sender.sent(2, bench.now);
            bench.ack(8);
            bench.sends(9, 8);
            assert_eq!(bench.sender.resent_blocks(), 2);
        }
    }

    #[test]
    fn while_the_window_slides_a_repeated_acknowledgement_goes_back_once_a_round_trip() {
        let mut bench = Bench::new(sliding(100_000, 100, 8, 4));
        bench.sends(1, 8);
        bench.later(1);
        bench.ack(4);
        bench.ack(4);
        bench.sends(5, 8);
        bench.ack(4);
        bench.waits();
        bench.later(1);
        bench.ack(4);
        bench.sends(5, 8);
        assert_eq!(bench.sender.resent_blocks(), 4 + 8);
    }

    #[test]
    fn while_the_window_slides_the_round_trip_is_that_of_one_block() {
        let mut bench = Bench::new(sliding(100_000, 100, 8, 4));
        bench.sends(1, 8);
        // A sample from when something was last sent would be next to nothing.
        for block in (4..400).step_by(4) {
            bench.later(60);
            bench.ack(block);
            bench.sends(u64::from(block) + 5, 4);
        }
        let round_trip = bench.sender.smoothed_round_trip.unwrap();
        assert!(round_trip > Duration::from_millis(110), "{round_trip:?}");
        assert_eq!(
            bench.action(),
            Action::Wait(bench.now + round_trip * 4),
            "from the newest sending on"
        );
    }

    #[test]
    fn a_silent_client_gets_the_sliding_window_again() {
        let mut bench = Bench::new(sliding(100_000, 100, 8, 4));
        bench.sends(1, 8);
        bench.later(1);
        bench.ack(4);
        bench.sends(9, 4);
        bench.later(99);
        bench.waits();
        bench.later(1);
        bench.sends(5, 8);
        assert_eq!(bench.sender.resent_blocks(), 8);
    }

    #[test]
    fn a_sliding_window_wraps() {
        let mut bench = Bench::new(sliding(140_000 * 8 + 3, 8, 0x2000, 0x1000));
        bench.sends(1, 0x2000);
        let mut sent = 0x2000;
        for block in (0x1000..140_000).step_by(0x1000) {
            bench.ack((block & 0xffff) as u16);
            let end = (block + 0x2000).min(140_001);
            if end > sent {
                bench.sends(sent + 1, end - sent);
                sent = end;
            }
        }
        bench.ack((140_001u32 & 0xffff) as u16);
        assert_eq!(bench.action(), Action::Ended(TransferEnd::Complete));
        assert_eq!(bench.sender.resent_blocks(), 0);
    }

    #[test]
    fn with_a_window_of_one_a_repeated_acknowledgement_is_never_answered() {
        let mut bench = Bench::new(terms(10_000, 100, 1));
        bench.sends(1, 1);
        bench.later(5);
        bench.ack(1);
        bench.sends(2, 1);
        bench.later(50);
        bench.ack(1);
        bench.waits();
        bench.later(100);
        bench.sends(2, 1);
    }

    #[test]
    fn silence_is_answered_with_the_window_again_ever_more_slowly_and_then_given_up() {
        let mut bench = Bench::new(terms(10_000, 100, 4));
        let mut sendings = Vec::new();
        let end = loop {
            match bench.action() {
                Action::Send { first, count } => {
                    assert_eq!((first, count), (1, 4));
                    sendings.push(bench.now);
                    bench.sender.sent(count, bench.now);
                }
                Action::Wait(until) => bench.now = until,
                other => break other,
            }
        };
        assert_eq!(end, Action::Ended(TransferEnd::Silent));
        assert!(bench.sender.farewell().is_some());
        let gaps: Vec<_> = sendings.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(gaps[0], MIN_TIMEOUT);
        assert!(gaps.windows(2).all(|w| w[1] == (w[0] * 2).min(MAX_TIMEOUT)));
        assert!((8..20).contains(&sendings.len()), "{}", sendings.len());
    }

    /// The request may be forged: its victim gets little, and no ERROR.
    #[test]
    fn a_client_that_never_answered_is_sent_little() {
        for options in [false, true] {
            // A client may name a time that is longer than the server's patience.
            for (timeout, sendings) in [(None, 3), (Some(2), 3), (Some(255), 1)] {
                let mut now = Instant::now();
                let began = now;
                let mut sender = Sender::new(
                    Terms {
                        options,
                        timeout: timeout.map(Duration::from_secs),
                        ..terms(10_000, 512, 1)
                    },
                    now,
                );
                let mut sent = 0;
                let end = loop {
                    match sender.next_action(now) {
                        Action::Send { .. } | Action::SendOptions => {
                            sent += 1;
                            sender.sent(u64::from(!options), now);
                        }
                        Action::Wait(until) => now = until,
                        Action::Ended(end) => break end,
                    }
                };
                assert_eq!((end, sender.farewell()), (TransferEnd::Silent, None));
                assert_eq!(sent, sendings, "{timeout:?}");
                assert_eq!(now - began, GIVE_UP_UNANSWERED_AFTER);
                assert!(!sender.is_answered());
            }
        }
    }

    #[test]
    fn a_client_that_becomes_slow_is_not_sent_everything_twice() {
        let mut bench = Bench::new(terms(100_000, 100, 4));
        for window in 0..100 {
            bench.sends(u64::from(window) * 4 + 1, 4);
            let answered = bench.now + Duration::from_millis(150);
            loop {
                match bench.action() {
                    Action::Wait(until) if until > answered => break,
                    Action::Wait(until) => bench.now = until,
                    Action::Send { count, .. } => bench.sender.sent(count, bench.now),
                    other => panic!("{other:?}"),
                }
            }
            bench.now = answered;
            bench.ack(window * 4 + 4);
        }
        let resent = bench.sender.resent_blocks();
        assert!((1..=8).contains(&resent), "{resent}");
    }

    #[test]
    fn a_client_that_loses_the_end_of_each_window_does_not_wait_longer_and_longer() {
        let mut bench = Bench::new(terms(40_000, 100, 8));
        let start = bench.now;
        for window in 1..=200 {
            // The sending, and the resending at which the client tells that it has two blocks more.
            for _ in 0..2 {
                bench.now = loop {
                    match bench.action() {
                        Action::Wait(until) => break until,
                        Action::Send { count, .. } => bench.sender.sent(count, bench.now),
                        other => panic!("{other:?}"),
                    }
                };
            }
            bench.ack(window * 2);
        }
        let longest = MIN_TIMEOUT * (2 + 4) * 200;
        assert!(bench.now - start <= longest, "{:?}", bench.now - start);
    }

    #[test]
    fn the_asked_timeout_is_kept() {
        let mut bench = Bench::new(Terms {
            timeout: Some(Duration::from_secs(7)),
            ..terms(10_000, 100, 4)
        });
        bench.sends(1, 4);
        assert_eq!(
            bench.action(),
            Action::Wait(bench.now + Duration::from_secs(7))
        );
    }

    #[test]
    fn block_numbers_wrap_to_zero() {
        let mut bench = Bench::new(terms(70_000 * 8 + 3, 8, 60_000));
        bench.sends(1, 60_000);
        bench.ack(60_000);
        bench.sends(60_001, 10_001);
        assert_eq!(Sender::wire_number(65_536), 0);
        bench.ack((70_001u32 & 0xffff) as u16);
        assert_eq!(bench.action(), Action::Ended(TransferEnd::Complete));
    }

    #[test]
    fn an_error_before_the_first_byte_means_that_only_the_size_was_wanted() {
        let mut bench = Bench::new(terms(10_000, 100, 4));
        bench.sender.receive(b"\0\x05\0\x08bye\0", bench.now);
        assert_eq!(bench.action(), Action::Ended(TransferEnd::SizeOnly));
        let mut bench = Bench::new(terms(10_000, 100, 4));
        bench.sends(1, 4);
        bench.ack(4);
        bench.sender.receive(b"\0\x05\0\x03disk full\0", bench.now);
        assert_eq!(bench.action(), Action::Ended(TransferEnd::Aborted));
        assert_eq!(bench.sender.error_text(), "disk full");
        assert!(bench.sender.farewell().is_none());
    }

    #[test]
    fn packets_of_another_kind_end_the_transfer() {
        let mut bench = Bench::new(terms(10_000, 100, 4));
        bench.sender.receive(b"\0\x03\0\x01data", bench.now);
        assert_eq!(bench.action(), Action::Ended(TransferEnd::Illegal));
    }

    /// A receiver as RFC 7440 describes it: in-order blocks only, ACK at the window's end and at the first gap. With a
    /// window that slides, at multiples instead of the window's end.
    struct Receiver {
        window: u64,
        slide: Option<u64>,
        expected: u64,
        last_block: u64,
        in_window: u64,
        gap_told: bool,
    }

    impl Receiver {
        fn data(&mut self, number: u16) -> Option<u16> {
            if number != Sender::wire_number(self.expected) {
                let again = std::mem::replace(&mut self.gap_told, true);
                self.in_window = 0;
                return (!again).then(|| Sender::wire_number(self.expected - 1));
            }
            self.gap_told = false;
            self.expected += 1;
            self.in_window += 1;
            let due = match self.slide {
                Some(slide) => (self.expected - 1).is_multiple_of(slide),
                None => self.in_window == self.window,
            };
            if due || self.expected > self.last_block {
                self.in_window = 0;
                return Some(Sender::wire_number(self.expected - 1));
            }
            None
        }

        fn timeout(&mut self) -> u16 {
            self.in_window = 0;
            Sender::wire_number(self.expected - 1)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is lost, doubled or delayed, a transfer ends complete, and every block was sent.
        #[test]
        fn a_lossy_link_is_survived(
            blocks in 1u64..600,
            window in 1u16..80,
            slide in prop::option::of(0u32..7),
            first_block_shift in prop::sample::select(vec![0u64, 65_300]),
            fates in prop::collection::vec(0u8..100, 4096),
        ) {
            let blocks = blocks + first_block_shift;
            let size = (blocks - 1) * 8 + 5;
            let start = Instant::now();
            let mut now = start;
            let slide = slide.map(|bit| 1u16 << bit.min(window.ilog2()));
            let terms = Terms { slide, ..terms(size, 8, window) };
            let mut sender = Sender::new(terms, now);
            let mut receiver = Receiver { window: window.into(), slide: slide.map(u64::from), expected: 1, last_block: blocks, in_window: 0, gap_told: false };
            let mut fates = fates.into_iter().cycle();
            // Both directions, in order, one millisecond each way; packets may vanish or be doubled.
            let mut to_receiver: VecDeque<(Instant, Option<u16>)> = VecDeque::new();
            let mut to_sender: VecDeque<(Instant, u16)> = VecDeque::new();
            let latency = Duration::from_millis(1);
            let mut receiver_deadline = now + Duration::from_secs(1);
            let mut steps = 0u32;
            let mut sent = 0;
            // Loss starts after the shift, which is there to cross the wrap and would only take time.
            loop {
                steps += 1;
                prop_assert!(steps < 400_000, "no end in sight at block {}", receiver.expected);
                let lossy = receiver.expected > first_block_shift;
                let mut copies = || match fates.next() { Some(0..6) if lossy => 0, Some(6..9) if lossy => 2, _ => 1 };
                match sender.next_action(now) {
                    Action::SendOptions => {
                        for _ in 0..copies() { to_receiver.push_back((now + latency, None)); }
                        sender.sent(0, now);
                        continue;
                    }
                    Action::Send { first, count } => {
                        let end = blocks.min(sender.acked + u64::from(window));
                        prop_assert!(first > sender.acked && count >= 1 && first + count - 1 <= end);
                        for block in first..first + count {
                            for _ in 0..copies() { to_receiver.push_back((now + latency, Some(Sender::wire_number(block)))); }
                        }
                        sender.sent(count, now);
                        sent += count;
                        continue;
                    }
                    Action::Ended(end) => { prop_assert_eq!(end, TransferEnd::Complete); break; }
                    Action::Wait(deadline) => {
                        let next = [Some(deadline), to_receiver.front().map(|p| p.0), to_sender.front().map(|p| p.0), Some(receiver_deadline)]
                            .into_iter().flatten().min().unwrap();
                        now = now.max(next);
                    }
                }
                while to_receiver.front().is_some_and(|p| p.0 <= now) {
                    let (_, packet) = to_receiver.pop_front().unwrap();
                    receiver_deadline = now + Duration::from_millis(300);
                    let answer = match packet {
                        None => (receiver.expected == 1).then_some(0),
                        Some(number) => receiver.data(number),
                    };
                    if let Some(number) = answer {
                        for _ in 0..copies() { to_sender.push_back((now + latency, number)); }
                    }
                }
                if receiver_deadline <= now {
                    receiver_deadline = now + Duration::from_millis(300);
                    let number = receiver.timeout();
                    for _ in 0..copies() { to_sender.push_back((now + latency, number)); }
                }
                while to_sender.front().is_some_and(|p| p.0 <= now) {
                    let (_, number) = to_sender.pop_front().unwrap();
                    sender.receive(&tftp::ack(number), now);
                }
            }
            prop_assert_eq!(receiver.expected, blocks + 1);
            prop_assert_eq!(sender.acknowledged_bytes(), size);
            prop_assert_eq!(sent, blocks + sender.resent_blocks());
        }

        /// Any packets at any time: no panic, and never a block outside the window or the file.
        #[test]
        fn any_packets(
            size in 0u64..5000, window in 1u16.., slide in prop::option::of(0u32..16), packets in prop::collection::vec((0u8..7, any::<u16>(), 0u64..3000), 0..60),
        ) {
            let mut now = Instant::now();
            let slide = slide.map(|bit| 1u16 << bit.min(window.ilog2()));
            let mut sender = Sender::new(Terms { slide, ..terms(size, 8, window) }, now);
            let last = size / 8 + 1;
            for (opcode, number, millis) in packets {
                for _ in 0..3 {
                    match sender.next_action(now) {
                        Action::Send { first, count } => {
                            let end = last.min(sender.acked + u64::from(window));
                            prop_assert!(first > sender.acked && count >= 1 && first + count - 1 <= end);
                            sender.sent(count.min(3), now);
                        }
                        Action::SendOptions => sender.sent(0, now),
                        _ => break,
                    }
                }
                now += Duration::from_millis(millis);
                let [a, b] = number.to_be_bytes();
                sender.receive(&[0, opcode.min(4), a, b], now);
            }
        }
    }
}
