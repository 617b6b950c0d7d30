//! Waiting for a server that does not serve at the moment: it is busy with many machines, starts again, or was switched on with them.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Display;

use wireboot_net::{Duration, Instant, Stack};

/// First pause between attempts; each further one is twice as long, up to [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause between attempts, unless the server asks for more.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Bytes that a download must gain before its failures are forgotten. Without them, a server that breaks off after each few bytes would
/// keep it going for ever.
pub(crate) const WORTHWHILE: u64 = 64 * 1024;
/// Time after which the same reason is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The pause after so many failures: twice as long each time, at least as long as the server `asked` for, and up to a quarter more, so
/// that many machines that were turned away at once do not come back at once.
pub(crate) fn pause_after(stack: &Stack, failures: u32, asked: Duration) -> Duration {
    let doubled = FIRST_PAUSE * (1 << failures.saturating_sub(1).min(8));
    let pause = doubled.min(LONGEST_PAUSE).max(asked);
    pause + Duration::from_micros(stack.random() % (pause.total_micros() / 4))
}

/// How long one download waits for its server.
pub(crate) struct Wait {
    /// The longest wait without success.
    patience: Duration,
    /// The first failure since the last success.
    since: Option<Instant>,
    /// The last reason reported, and when.
    reported: Option<(String, Instant)>,
}

impl Wait {
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            patience,
            since: None,
            reported: None,
        }
    }

    /// Notes a failure. Returns how much longer the download waits; `None` when it has waited long enough.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let end = since + self.patience;
        (now < end).then(|| end - now)
    }

    /// Notes that the server serves.
    pub(crate) fn over(&mut self) {
        self.since = None;
        self.reported = None;
    }

    /// A message for the user, where the reason is new or was reported long ago.
    pub(crate) fn news(
        &mut self,
        why: &dyn Display,
        left: Duration,
        now: Instant,
    ) -> Option<String> {
        let why = why.to_string();
        let known =
            |(reported, at): &(String, Instant)| *reported == why && now < *at + REPORT_INTERVAL;
        if self.reported.as_ref().is_some_and(known) {
            return None;
        }
        let left = left.secs();
        let news = format!("{why}; waiting for the server, {left} s more at most (Esc leaves)");
        self.reported = Some((why, now));
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::from_secs(seconds)
    }

    #[test]
    fn a_wait_ends_and_begins_again() {
        let mut wait = Wait::new(Duration::from_secs(60));
        assert_eq!(wait.failed(at(100)), Some(Duration::from_secs(60)));
        assert_eq!(wait.failed(at(159)), Some(Duration::from_secs(1)));
        assert_eq!(wait.failed(at(160)), None);
        wait.over();
        assert_eq!(wait.failed(at(161)), Some(Duration::from_secs(60)));
        assert_eq!(Wait::new(Duration::ZERO).failed(at(1)), None);
    }

    #[test]
    fn the_user_is_told_why_and_now_and_then_that_it_goes_on() {
        let mut wait = Wait::new(Duration::from_secs(600));
        let left = Duration::from_secs(7);
        let expected = "busy; waiting for the server, 7 s more at most (Esc leaves)";
        assert_eq!(wait.news(&"busy", left, at(0)).as_deref(), Some(expected));
        assert_eq!(wait.news(&"busy", left, at(59)), None);
        assert!(wait.news(&"busy", left, at(60)).is_some());
        assert!(wait.news(&"silent", left, at(61)).is_some());
        assert_eq!(wait.news(&"silent", left, at(62)), None);
        wait.over();
        assert!(wait.news(&"silent", left, at(63)).is_some());
    }
}
