//! Lines for the user, on standard error. A thread writes them: who reads there may have stopped (a terminal, a pipe), and neither a guest nor a
//! signal is to wait for that.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// Lines that wait to be written. What is more is left out.
const QUEUED: usize = 1000;
/// How long [`finish`] waits.
const LAST: Duration = Duration::from_secs(1);
/// Time between two looks whether there is room in the queue.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// From the first line on. Its thread has the rights of who says that, so it is for after these were given up. None where there is no thread.
static LOG: OnceLock<Option<Log>> = OnceLock::new();

/// As `eprintln!`, but nobody waits until it is written, and where nobody can read any more, the card goes on.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: Arguments<'_>) {
    // Of tests that succeed, nobody wants to read it.
    if cfg!(test) {
        eprintln!("{text}");
        return;
    }
    let text = format!("{text}\n");
    match LOG.get_or_init(|| Log::start(io::stderr()).ok()) {
        Some(log) => log.say(text),
        None => {
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

/// Waits until all that was said is written, for a second at most.
pub(crate) fn finish() {
    if let Some(Some(log)) = LOG.get() {
        log.is_written_within(LAST);
    }
}

/// Text for the thread, and who waits until it is written.
struct Queued {
    text: String,
    written: Option<Sender<()>>,
}

/// A thread that writes.
struct Log {
    queue: SyncSender<Queued>,
    /// Lines for which there was no room since the last one that had some.
    left_out: AtomicU64,
}

impl Log {
    /// # Errors
    /// When there is no thread for it.
    fn start(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, queued) = sync_channel(QUEUED);
        let builder = Builder::new().name("log".to_owned());
        builder.spawn(move || write(output, &queued))?;
        Ok(Self {
            queue,
            left_out: AtomicU64::new(0),
        })
    }

    /// Has a line written, behind the number of those that were left out.
    fn say(&self, line: String) {
        let (left_out, text) = self.behind_left_out(line);
        let written = None;
        if self.queue.try_send(Queued { text, written }).is_err() {
            self.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
        }
    }

    /// Whether all that was said is written within this time.
    fn is_written_within(&self, longest: Duration) -> bool {
        let begun = Instant::now();
        let (written, is_written) = channel();
        let (left_out, text) = self.behind_left_out(String::new());
        let written = Some(written);
        let mut last = Queued { text, written };
        while let Err(error) = self.queue.try_send(last) {
            let (TrySendError::Full(back) | TrySendError::Disconnected(back)) = error;
            if begun.elapsed() >= longest {
                self.left_out.fetch_add(left_out, Ordering::Relaxed);
                return false;
            }
            last = back;
            sleep(LOOK_EVERY);
        }
        let left = longest.saturating_sub(begun.elapsed());
        is_written.recv_timeout(left).is_ok()
    }

    /// How many lines were left out, and the text behind a line that tells it.
    fn behind_left_out(&self, text: String) -> (u64, String) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let text = match left_out {
            0 => text,
            count => format!("wireboot nic: {count} lines are left out here\n{text}"),
        };
        (left_out, text)
    }
}

fn write(mut output: impl Write, queued: &Receiver<Queued>) {
    for Queued { text, written } in queued {
        let _ = output.write_all(text.as_bytes());
        if let Some(written) = written {
            // Who has lost patience does not wait any more.
            let _ = written.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::spawn;

    /// Longer than anything takes here that ends.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Lines of 1 KB that are more than queue and pipe hold.
    const MANY: u64 = 4 * QUEUED as u64;

    #[test]
    fn what_was_said_is_written_at_the_end() {
        let (reader, output) = io::pipe().unwrap();
        let log = Log::start(output).unwrap();
        for line in ["one\n", "two\n"] {
            log.say(line.to_owned());
        }
        assert!(log.is_written_within(PATIENCE));
        drop(log);
        assert_eq!(io::read_to_string(reader).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn who_stops_reading_holds_up_nobody_and_is_told_how_much_is_missing() {
        let (reader, output) = io::pipe().unwrap();
        let log = Log::start(output).unwrap();
        let rest = "x".repeat(1000);
        for number in 0..MANY {
            log.say(format!("{number} {rest}\n"));
        }
        assert!(!log.is_written_within(Duration::from_millis(10)));
        // It goes on reading.
        let reading = spawn(move || io::read_to_string(reader).unwrap());
        assert!(log.is_written_within(PATIENCE));
        drop(log);
        let text = reading.join().unwrap();
        let number = |line: &str| line.split(' ').next().and_then(|word| word.parse().ok());
        let kept: Vec<u64> = text.lines().filter_map(number).collect();
        assert!(kept.is_sorted_by(|one, next| one < next), "{kept:?}");
        let told = text.lines();
        let told = told.filter_map(|line| line.strip_prefix("wireboot nic: "));
        let left_out: u64 = told.filter_map(number).sum();
        assert!(left_out > 0);
        assert_eq!(kept.len() as u64 + left_out, MANY);
    }
}
