//! How long a machine is waited for. It is given longer where the host is busy with others: a virtual machine's time is its processor's.

use std::fs;
use std::num::NonZero;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Processes that want to run, for each processor, with which a machine has the time that it is given.
const USUAL: f64 = 2.0;
/// How often the host is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What is left of it.
#[derive(Clone, Debug)]
pub struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    /// So much, on a host that is as busy as usual or less.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Self {
            left: time,
            looked: Instant::now(),
        }
    }

    /// How long to wait before asking again, a second at most; `None` when it is over. What went by is taken off, on a busy host a part of it.
    pub fn wait(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let went_by = now.duration_since(std::mem::replace(&mut self.looked, now));
        self.left = self.left.saturating_sub(went_by.mul_f64(share()));
        (!self.left.is_zero()).then(|| self.left.min(LOOK))
    }
}

/// Looks again and again whether something is so.
///
/// # Errors
/// When it is not in that time, or nobody can tell.
pub(crate) fn wait_until(
    time: Duration,
    what: &str,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let mut patience = Patience::new(time);
    while !is_so()? {
        let wait = patience.wait();
        let wait = wait.with_context(|| format!("waited for {what} in vain"))?;
        sleep(wait.min(Duration::from_millis(10)));
    }
    Ok(())
}

/// The part of a processor that a machine has, of what is usual.
fn share() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
    share_of(
        load.unwrap_or(0.0),
        available_parallelism().map_or(1, NonZero::get),
    )
}

fn share_of(load: f64, processors: usize) -> f64 {
    let usual = USUAL * processors as f64;
    if load > usual { usual / load } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_among_many_has_a_part() {
        for (load, processors, share) in [
            (0.0, 2, 1.0),
            (4.0, 2, 1.0),
            (8.0, 2, 0.5),
            (16.0, 2, 0.25),
            (8.0, 16, 1.0),
        ] {
            assert_eq!(share_of(load, processors), share, "{load}");
        }
    }

    #[test]
    fn it_ends() {
        let mut patience = Patience::new(Duration::from_millis(30));
        let begun = Instant::now();
        while let Some(wait) = patience.wait() {
            assert!(wait <= Duration::from_millis(30));
            std::thread::sleep(wait);
        }
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert_eq!(patience.wait(), None);
        let mut long = Patience::new(Duration::from_secs(100));
        assert_eq!(long.wait(), Some(LOOK));
    }
}
