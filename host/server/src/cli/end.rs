//! How the server ends: by a signal, or because a thread fails.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use signal_hook::iterator::Handle;

use crate::event::Events;
use crate::interface::Interface;
use crate::listen::index_of;
use crate::stop::Stop;

/// Time between two looks at the interface.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What a thread does until told to stop.
pub(super) type Body = Box<dyn FnOnce(&Stop) -> anyhow::Result<()> + Send>;

/// Tells the threads of the end, and the main thread of one that failed. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// Tells the threads.
    pub stop: Stop,
    failed: Sender<anyhow::Error>,
    signals: Handle,
}

impl End {
    /// A thread that fails ends the wait for signals, too; why it failed comes to the receiver before that.
    pub(super) fn new(signals: Handle) -> (Self, Receiver<anyhow::Error>) {
        let (failed, failure) = channel();
        let this = Self {
            stop: Stop::default(),
            failed,
            signals,
        };
        (this, failure)
    }

    /// Starts a thread. When `body` fails, the whole server ends: half a server would go unnoticed, and a service manager starts it again.
    pub(super) fn spawn(
        &self,
        name: &str,
        body: Body,
        events: &Events,
    ) -> io::Result<JoinHandle<()>> {
        let (end, events) = (self.clone(), events.clone());
        let what = name.to_owned();
        Builder::new().name(name.to_owned()).spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| body(&end.stop)));
            let panicked = |_| Err(anyhow!("the thread {what} of the server panicked"));
            if let Err(error) = result.unwrap_or_else(panicked) {
                events.say(format!("{error:#}"));
                // At the end of the server nobody waits for it.
                let _ = end.failed.send(error);
                end.signals.close();
            }
        })
    }
}

/// Fails once another interface has the interface's name: sockets stay with the one that they were bound to, which is gone.
pub(super) fn watch(interface: &Interface, stop: &Stop) -> anyhow::Result<()> {
    let name = interface.name.as_str();
    let mut looked = Instant::now();
    while !stop.is_set() {
        std::thread::sleep(Stop::CHECK_EVERY);
        if looked.elapsed() < LOOK_EVERY {
            continue;
        }
        looked = Instant::now();
        // An interface that is not there now may come back.
        if index_of(name).is_ok_and(|index| index != interface.index) {
            bail!(
                "the interface {name} was made anew, and this server does not hear the new one: start the server again"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Console;
    use signal_hook::iterator::Signals;

    #[test]
    fn a_thread_that_fails_ends_the_wait_for_a_signal() {
        let none: [i32; 0] = [];
        let mut signals = Signals::new(none).unwrap();
        let events = Events::new(Console::Silent, None);
        let (end, failure) = End::new(signals.handle());
        let good = end.spawn("good", Box::new(|_| Ok(())), &events).unwrap();
        good.join().unwrap();
        assert!(!signals.is_closed());
        let bad = end.spawn("bad", Box::new(|_| bail!("the disk is gone")), &events);
        assert_eq!(signals.forever().next(), None);
        let error = failure.try_recv().unwrap();
        assert_eq!(error.to_string(), "the disk is gone");
        bad.unwrap().join().unwrap();
        let wrong = end.spawn("wrong", Box::new(|_| panic!("on purpose")), &events);
        wrong.unwrap().join().unwrap();
        let error = failure.try_recv().unwrap();
        assert_eq!(error.to_string(), "the thread wrong of the server panicked");
    }
}
