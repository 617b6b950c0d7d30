//! Writing events, and the thread that does it while the server serves: an output may take nothing for a time (a stopped terminal, a pipe
//! that nobody reads, a disk that hangs), and nobody else is to wait for it.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

use super::{Console, Event, Events, OF_ALL, left_out_line};

/// Events that wait to be written: as many of one kind as may come at once.
const QUEUED: usize = OF_ALL.at_once as usize;
/// How long the end waits for what is queued to be written.
const LAST: Duration = Duration::from_secs(1);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The way to the thread: events, and `None` at the end.
pub(super) type Queue = SyncSender<Option<Event>>;

/// What events are written to.
#[derive(Debug)]
pub(super) struct Outputs {
    file: Option<Mutex<File>>,
    console: Console,
    zone: TimeZone,
}

impl Outputs {
    pub(super) fn new(console: Console, file: Option<File>) -> Self {
        Self {
            file: file.map(Mutex::new),
            console,
            // Read now: once confined, the server cannot.
            zone: TimeZone::system(),
        }
    }

    /// Writes an event. A failing output must not stop the server, so it is passed over.
    pub(super) fn write(&self, event: &Event) {
        let json = serde_json::to_string(event).unwrap_or_default() + "\n";
        let to_file = self.file.as_ref().map(|file| {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(json.as_bytes()).is_ok()
        });
        let line = match self.console {
            Console::Silent => None,
            Console::Human => Some(event.human(&self.zone)),
            Console::Json => Some(json),
        };
        let to_console = line.map(|line| io::stderr().lock().write_all(line.as_bytes()).is_ok());
        let outputs = [to_file, to_console];
        // Where there is none, nobody waits for it.
        event.note(outputs.contains(&Some(true)) || outputs == [None, None]);
    }
}

/// The thread that writes events. When this value goes, the thread ends: what is queued is still written, and how many were left out. An
/// output that takes nothing is waited for one second.
#[derive(Debug)]
pub struct Writer {
    queue: Queue,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Has the thread end once all that is queued is written. Whether it did so in this time.
    fn ends_within(&self, longest: Duration) -> bool {
        let began = Instant::now();
        let mut is_told = false;
        while !self.thread.is_finished() {
            if began.elapsed() >= longest {
                return false;
            }
            // There may be no room for it at first.
            is_told = is_told || self.queue.try_send(None).is_ok();
            std::thread::sleep(LOOK_EVERY);
        }
        true
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.ends_within(LAST);
    }
}

impl Events {
    /// Leaves writing to a thread, for all clones: from here on nobody who records an event waits for an output. What the queue has no room
    /// for is left out, and counted. The thread has the rights that its caller has now, so it is for after these were given up.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start_writer(&self) -> io::Result<Writer> {
        let (queue, queued) = sync_channel(QUEUED);
        let events = self.clone();
        let builder = std::thread::Builder::new().name("log writer".to_owned());
        let thread = builder.spawn(move || events.write_queued(&queued))?;
        // Where there is a thread already, this one gets nothing to do.
        let _ = self.queue.set(queue.clone());
        Ok(Writer { queue, thread })
    }

    /// Writes what comes until the end, and then what was left out since that was told last.
    fn write_queued(&self, queued: &Receiver<Option<Event>>) {
        while let Ok(Some(event)) = queued.recv() {
            self.outputs.write(&event);
        }
        for (kind, count) in self.left_out() {
            self.outputs.write(&left_out_line(kind, count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Kind, Written};
    use crate::stop::Stop;
    use std::io::PipeReader;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    /// Longer than anything takes here that ends.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Events of 1 KB each that are more than queue and pipe hold.
    const MANY: usize = 4 * QUEUED;

    /// Events that a thread writes to a pipe.
    fn piped() -> (PipeReader, Events, Writer) {
        let (reader, file) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(file));
        let events = Events::new(Console::Silent, Some(file));
        let writer = events.start_writer().unwrap();
        (reader, events, writer)
    }

    /// Records [`MANY`] events, which begin with their number. How many were left out.
    fn record_many(events: &Events) -> usize {
        let is_left_out = |number: &usize| {
            let written = Written::default();
            let message = format!("{number} {}", "x".repeat(900));
            let event = Event::now(Kind::Server, "").message(message);
            events.record(event.noted_by(written.clone()));
            !written.is_so()
        };
        (0..MANY).filter(is_left_out).count()
    }

    /// What `body` returns, which is not to wait for ever.
    #[track_caller]
    fn ending<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        spawn(move || done.send(body()));
        result.recv_timeout(PATIENCE).expect("it does not end")
    }

    #[test]
    fn a_reader_that_stops_holds_up_nobody_and_what_it_misses_is_counted() {
        let (reader, events, writer) = piped();
        let left_out = ending(move || {
            let left_out = record_many(&events);
            // There may be no room for this either.
            let stop = Stop::default();
            stop.set();
            events.tell_left_out(&stop);
            left_out
        });
        assert!(left_out > 0);
        // It goes on reading.
        let reading = spawn(move || io::read_to_string(reader).unwrap());
        assert!(writer.ends_within(PATIENCE));
        let text = reading.join().unwrap();
        let message = |line: &str| -> String {
            let json: serde_json::Value = serde_json::from_str(line).unwrap();
            json["message"].as_str().unwrap().to_owned()
        };
        let messages: Vec<String> = text.lines().map(message).collect();
        let (told, kept): (Vec<&String>, Vec<&String>) = messages
            .iter()
            .partition(|message| message.ends_with(" more of \"server\" are left out here"));
        let number =
            |message: &&String| -> usize { message.split(' ').next().unwrap().parse().unwrap() };
        let told: Vec<usize> = told.iter().map(number).collect();
        assert_eq!(told, [left_out]);
        let kept: Vec<usize> = kept.iter().map(number).collect();
        assert_eq!(kept.len() + left_out, MANY);
        assert!(kept.is_sorted_by(|one, next| one < next), "{kept:?}");
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_that_stopped() {
        let (reader, events, writer) = piped();
        let is_written = ending(move || {
            record_many(&events);
            let is_written = writer.ends_within(Duration::ZERO);
            drop(writer);
            is_written
        });
        assert!(!is_written);
        // Nobody has read until here.
        drop(reader);
    }

    #[test]
    fn what_is_queued_counts_as_written_until_the_writing_fails() {
        let is_written = |file: File| {
            let events = Events::new(Console::Silent, Some(file));
            let writer = events.start_writer().unwrap();
            let written = Written::default();
            let event = Event::now(Kind::DhcpIgnored, "one");
            events.record(event.noted_by(written.clone()));
            assert!(writer.ends_within(PATIENCE));
            written.is_so()
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(is_written(file.reopen().unwrap()));
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text.lines().count(), 1);
        // Every write to it fails.
        let full = File::options().write(true).open("/dev/full");
        assert!(!is_written(full.unwrap()));
    }
}
