//! Work that goes on in a thread of its own.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// Work that ends when this is dropped.
pub struct Background {
    /// Dropped to end it.
    go_on: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The pauses of such work.
pub struct Pauses(Receiver<()>);

impl Pauses {
    /// Waits. False when the work is to end, at once.
    #[must_use]
    pub fn pause(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }
}

impl Background {
    /// Begins. The work ends by itself, or when one of its pauses says so.
    pub fn start(work: impl FnOnce(&Pauses) + Send + 'static) -> Self {
        let (go_on, pauses) = channel();
        Self {
            go_on: Some(go_on),
            thread: Some(spawn(move || work(&Pauses(pauses)))),
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Background")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.go_on = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn work_ends_with_its_owner() {
        let rounds = Arc::new(AtomicU32::new(0));
        let counted = rounds.clone();
        let work = Background::start(move |pauses| {
            while pauses.pause(Duration::from_millis(1)) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        while rounds.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        drop(work);
        let ended = rounds.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rounds.load(Ordering::Relaxed), ended);
    }
}
