//! The serial console: what the machine says, as text with times, and what is typed into it.

use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::patience::Patience;

/// A text on the console that an expression matches.
#[derive(Clone, Debug)]
pub struct ConsoleMatch {
    /// When its last byte came, in seconds since the Unix epoch.
    pub time: f64,
    /// The text that matched.
    pub text: String,
    /// The groups of the expression, the whole match first; a group that took no part is empty.
    pub groups: Vec<String>,
}

/// The console of one machine. Terminal control sequences are taken out; the cursor's moves to other lines become line ends.
pub struct Console {
    input: Box<dyn Write + Send>,
    shared: Arc<SharedTranscript>,
    /// Where the next [`Console::wait_for`] begins to search.
    searched: usize,
}

/// The transcript, with who waits for it to grow.
#[derive(Default)]
struct SharedTranscript {
    transcript: Mutex<Transcript>,
    changed: Condvar,
}

impl SharedTranscript {
    fn lock(&self) -> MutexGuard<'_, Transcript> {
        // The reader thread appends only whole pieces, so what it left is sound.
        self.transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Transcript {
    text: String,
    /// Up to which length of `text` (bytes) had come by when.
    arrivals: Vec<(usize, f64)>,
    ended: bool,
    /// Bytes received, control sequences and all.
    bytes: u64,
}

impl Transcript {
    /// What an expression found in the text from `start` on.
    fn seen(&self, start: usize, captures: &regex::Captures<'_>) -> ConsoleMatch {
        let group = |group: Option<regex::Match<'_>>| {
            group.map_or_else(String::new, |group| group.as_str().to_owned())
        };
        ConsoleMatch {
            time: self.time_of(start + captures.get_match().end()),
            text: captures.get_match().as_str().to_owned(),
            groups: captures.iter().map(group).collect(),
        }
    }

    fn time_of(&self, end: usize) -> f64 {
        let index = self.arrivals.partition_point(|(length, _)| *length < end);
        self.arrivals
            .get(index)
            .or(self.arrivals.last())
            .map_or(0.0, |(_, time)| *time)
    }
}

/// The time of day in seconds since the Unix epoch: the one clock of all that the lab reports.
#[must_use]
pub fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64())
}

impl Console {
    /// Reads `output` on a thread of its own until it ends. `watch` gets each piece of text as it comes.
    pub fn new(
        mut output: impl Read + Send + 'static,
        input: impl Write + Send + 'static,
        mut watch: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let shared = Arc::new(SharedTranscript::default());
        let writer = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut parser = vte::Parser::new();
            let mut screen = Screen::default();
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                parser.advance(&mut screen, bytes.get(..count).unwrap_or_default());
                let text = std::mem::take(&mut screen.text);
                let mut transcript = writer.lock();
                transcript.bytes += count as u64;
                if text.is_empty() {
                    continue;
                }
                transcript.text.push_str(&text);
                let length = transcript.text.len();
                transcript.arrivals.push((length, now()));
                drop(transcript);
                writer.changed.notify_all();
                watch(&text);
            }
            writer.lock().ended = true;
            writer.changed.notify_all();
        });
        Self {
            input: Box::new(input),
            shared,
            searched: 0,
        }
    }

    /// Waits for a text after the last one waited for, on a busy host longer than `timeout` ([`Patience`]).
    ///
    /// # Errors
    /// When it does not come in time or the machine ends before, with the last lines of the console.
    pub fn wait_for(&mut self, expression: &Regex, timeout: Duration) -> Result<ConsoleMatch> {
        let mut patience = Patience::new(timeout);
        let mut transcript = self.shared.lock();
        loop {
            let rest = transcript.text.get(self.searched..).unwrap_or_default();
            if let Some(captures) = expression.captures(rest) {
                let seen = transcript.seen(self.searched, &captures);
                self.searched += captures.get_match().end();
                return Ok(seen);
            }
            let wait = patience.wait();
            let Some(wait) = wait.filter(|_| !transcript.ended) else {
                let why = if transcript.ended {
                    "the machine ended".to_owned()
                } else {
                    format!("{} s went by", timeout.as_secs())
                };
                bail!(
                    "{why} without {:?} on the console, which ends with:\n{}",
                    expression.as_str(),
                    tail(&transcript.text, 25)
                );
            };
            let waited = self.shared.changed.wait_timeout(transcript, wait);
            transcript = waited.map_or_else(
                |poisoned| poisoned.into_inner().0,
                |(transcript, _)| transcript,
            );
        }
    }

    /// The first place where the console has shown a text so far, wherever [`Console::wait_for`] stands.
    #[must_use]
    pub fn seen(&self, expression: &Regex) -> Option<ConsoleMatch> {
        let transcript = self.shared.lock();
        expression
            .captures(&transcript.text)
            .map(|captures| transcript.seen(0, &captures))
    }

    /// All places where the console has shown a text so far, each on a line that has ended.
    #[must_use]
    pub fn all(&self, expression: &Regex) -> Vec<ConsoleMatch> {
        let transcript = self.shared.lock();
        let whole = transcript
            .text
            .rfind('\n')
            .and_then(|end| transcript.text.get(..end));
        expression
            .captures_iter(whole.unwrap_or_default())
            .map(|captures| transcript.seen(0, &captures))
            .collect()
    }

    /// How many bytes the machine has sent, control sequences included: its sign of life.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().bytes
    }

    /// Whether the machine closed its console: it has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.shared.lock().ended
    }

    /// Types into the console. A line ends with `\r`.
    ///
    /// # Errors
    /// When the machine has ended.
    pub fn send(&mut self, text: &str) -> Result<()> {
        self.input
            .write_all(text.as_bytes())
            .and_then(|()| self.input.flush())
            .context("typing into the serial console")
    }

    /// All that the console has shown.
    #[must_use]
    pub fn transcript(&self) -> String {
        self.shared.lock().text.clone()
    }

    /// The last lines that hold something.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        tail(&self.shared.lock().text, lines)
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..)
        .unwrap_or_default()
        .iter()
        .map(|line| format!("    | {line}\n"))
        .collect()
}

/// Turns a terminal's stream into plain lines.
#[derive(Default)]
struct Screen {
    text: String,
    /// Something stands on the line at hand.
    line_begun: bool,
    /// A carriage return came; what follows on the same line writes over it.
    returned: bool,
    row: u16,
}

impl Screen {
    fn new_line(&mut self) {
        self.returned = false;
        if self.line_begun {
            self.text.push('\n');
            self.line_begun = false;
        }
    }
}

impl vte::Perform for Screen {
    fn print(&mut self, character: char) {
        if self.returned {
            self.new_line();
        }
        self.text.push(character);
        self.line_begun = true;
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.row = self.row.saturating_add(1);
                self.returned = false;
                self.text.push('\n');
                self.line_begun = false;
            }
            b'\r' => self.returned = true,
            b'\t' => self.text.push('\t'),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, parameters: &vte::Params, _: &[u8], _: bool, action: char) {
        // CUP, HVP: the cursor goes to a row and column. Firmware and dialogs draw with them.
        if matches!(action, 'H' | 'f') {
            let mut numbers = parameters
                .iter()
                .map(|numbers| numbers.first().copied().unwrap_or(1));
            let (row, column) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
            if row != self.row || column <= 1 {
                self.row = row;
                self.new_line();
            } else if self.line_begun {
                // Words that stand apart on the screen stay apart.
                self.text.push(' ');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(bytes: &[u8]) -> String {
        let mut screen = Screen::default();
        vte::Parser::new().advance(&mut screen, bytes);
        screen.text
    }

    #[test]
    fn control_sequences_vanish() {
        assert_eq!(
            flat(b"\x1b[2J\x1b[01;01H\x1b[=3h\x1b[0m\x1b[35mhello\x1b[0m world\r\n"),
            "hello world\n"
        );
    }

    #[test]
    fn moves_to_other_rows_end_lines() {
        assert_eq!(
            flat(b"\x1b[2;5HSelect\x1b[2;20Ha language\x1b[4;1HC"),
            "Select a language\nC"
        );
    }

    #[test]
    fn overwritten_lines_are_kept_one_by_one() {
        assert_eq!(flat(b"10 %\r20 %\r\n"), "10 %\n20 %\n");
    }

    #[test]
    fn waiting_goes_forward_and_ends_with_the_machine() {
        let mut console = Console::new(&b"one two one\n"[..], std::io::sink(), |_| {});
        let one = Regex::new("one").unwrap();
        assert!(console.wait_for(&one, Duration::from_secs(5)).unwrap().time > 0.0);
        assert_eq!(
            console.wait_for(&one, Duration::from_secs(5)).unwrap().text,
            "one"
        );
        let error = console
            .wait_for(&one, Duration::from_secs(5))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the machine ended") && error.contains("one two one"),
            "{error}"
        );
    }
}
