//! What the server did, for people (a line on standard error) and for programs (JSON lines in a file).
//!
//! Much of it is said by clients. So a text holds no control character and is not long, and of each kind of event that clients can cause
//! only so many are recorded in a time, of one client fewer than of all together; how many were not is told. A machine on a link of its own
//! may have many addresses: all its clients count as one.

mod writer;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

pub use self::writer::Writer;
use self::writer::{Outputs, Queue};
use crate::stop::Stop;

/// Events of one kind: a thousand machines that are switched on together, each of which asks twice.
const OF_ALL: Rate = Rate {
    at_once: 2000,
    one_more: Duration::from_millis(50),
};
/// Events of one kind that one client causes: a tenth, so that the others' are still recorded.
const OF_CLIENT: Rate = Rate {
    at_once: 200,
    one_more: Duration::from_millis(500),
};
/// Clients, each with one kind of event, that are counted. When there are more, all counts begin anew.
const CLIENTS: usize = 4096;
/// Time between two lines that tell how many were left out.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Characters of a text, or of a line of it.
const LONGEST: usize = 1000;

/// What kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A DHCPDISCOVER arrived.
    DhcpDiscover,
    /// A DHCPOFFER was sent.
    DhcpOffer,
    /// A DHCPREQUEST arrived.
    DhcpRequest,
    /// A DHCPACK was sent.
    DhcpAck,
    /// A DHCPNAK was sent.
    DhcpNak,
    /// The client found its address in use.
    DhcpDecline,
    /// The client gave its address back.
    DhcpRelease,
    /// A client asked for more than its address.
    DhcpInform,
    /// The request was understood, but nothing can be answered to it.
    DhcpIgnored,
    /// Somebody has the address, as ARP tells.
    DhcpInUse,
    /// A DHCP or DHCPv6 answer could not be sent.
    DhcpError,
    /// A DHCPv6 message arrived; the words say which.
    Dhcpv6Request,
    /// A DHCPv6 Advertise was sent.
    Dhcpv6Advertise,
    /// A DHCPv6 Reply was sent.
    Dhcpv6Reply,
    /// The DHCPv6 message was understood, but what it asks for cannot be given.
    Dhcpv6Ignored,
    /// The first block of a file is about to be sent.
    TftpStart,
    /// The last block of a file was acknowledged.
    TftpDone,
    /// A client asked for the size of a file only.
    TftpSize,
    /// A request was refused or a transfer failed.
    TftpError,
    /// A response with a file begins.
    HttpStart,
    /// The last byte of a file was handed to TCP.
    HttpDone,
    /// A request was refused or a response broke off.
    HttpError,
    /// A machine's report was kept.
    Report,
    /// A machine that measures its network was sent frames, or could not be.
    Frames,
    /// Anything about the server itself. No client can cause it.
    Server,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::DhcpDiscover => "DHCP discover",
            Self::DhcpOffer => "DHCP offer",
            Self::DhcpRequest => "DHCP request",
            Self::DhcpAck => "DHCP ack",
            Self::DhcpNak => "DHCP nak",
            Self::DhcpDecline => "DHCP decline",
            Self::DhcpRelease => "DHCP release",
            Self::DhcpInform => "DHCP inform",
            Self::DhcpIgnored => "DHCP ignored",
            Self::DhcpInUse => "DHCP in use",
            Self::DhcpError => "DHCP error",
            Self::Dhcpv6Request => "DHCPv6 request",
            Self::Dhcpv6Advertise => "DHCPv6 advertise",
            Self::Dhcpv6Reply => "DHCPv6 reply",
            Self::Dhcpv6Ignored => "DHCPv6 ignored",
            Self::TftpStart => "TFTP start",
            Self::TftpDone => "TFTP done",
            Self::TftpSize => "TFTP size",
            Self::TftpError => "TFTP error",
            Self::HttpStart => "HTTP start",
            Self::HttpDone => "HTTP done",
            Self::HttpError => "HTTP error",
            Self::Report => "report",
            Self::Frames => "frames",
            Self::Server => "server",
        }
    }
}

/// One thing that happened. Fields that do not apply are left out of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// The kind of event, which says what the other fields mean.
    pub event: Kind,
    /// IP address of the client, or its MAC address while it has none; empty for the server's own events.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// What a DHCPv6 server knows the client by, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duid: Option<String>,
    /// The file, as the client named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// IP address offered or acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes of the file: in a start event those to be sent, else those that were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Seconds from the request to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// What the other fields do not say, in words; `None` where they say all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who wants to know whether it was written.
    #[serde(skip)]
    pub(crate) written: Option<Written>,
}

impl Event {
    /// An event that happens now.
    pub fn now(event: Kind, client: impl ToString) -> Self {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            time: time.as_secs_f64(),
            event,
            client: client.to_string(),
            duid: None,
            file: None,
            address: None,
            bytes: None,
            seconds: None,
            message: None,
            written: None,
        }
    }

    /// With the client's DUID.
    pub fn duid(mut self, duid: &[u8]) -> Self {
        self.duid = Some(duid.iter().map(|byte| format!("{byte:02x}")).collect());
        self
    }

    /// With the file's name.
    pub fn file(mut self, name: &str) -> Self {
        self.file = Some(name.to_owned());
        self
    }

    /// With the address that the client gets.
    pub fn address(mut self, address: impl ToString) -> Self {
        self.address = Some(address.to_string());
        self
    }

    /// With a number of bytes.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// With a duration in seconds.
    pub fn seconds(mut self, seconds: f64) -> Self {
        self.seconds = Some(seconds);
        self
    }

    /// With a text for people, in place of any before.
    pub fn message(mut self, message: impl ToString) -> Self {
        self.message = Some(message.to_string());
        self
    }

    /// Tells `written` when it was.
    pub(crate) fn noted_by(mut self, written: Written) -> Self {
        self.written = Some(written);
        self
    }

    /// Tells who wants to know whether it was written.
    fn note(&self, is_written: bool) {
        if let Some(written) = &self.written {
            written.0.store(is_written, Ordering::Relaxed);
        }
    }

    /// With texts that are safe to show.
    fn cleaned(mut self) -> Self {
        // What the server itself says may have several lines.
        let keeps_lines = self.event == Kind::Server;
        self.client = clean(&self.client, false);
        for text in [&mut self.file, &mut self.address, &mut self.message] {
            *text = text.take().map(|text| clean(&text, keeps_lines));
        }
        self
    }

    /// The lines that a person reads, each with the local time.
    fn human(&self, zone: &TimeZone) -> String {
        let time = Timestamp::from_microsecond((self.time * 1e6) as i64).unwrap_or_default();
        let time = time.to_zoned(zone.clone());
        let time = time.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z");
        let lines = self.words();
        let lines = lines.lines().map(|line| format!("{time} {line}\n"));
        lines.collect()
    }

    fn words(&self) -> String {
        let mut line = format!("{:<13}", self.event.label());
        for part in [&Some(self.client.clone()), &self.file, &self.address] {
            if let Some(text) = part
                && !text.is_empty()
            {
                line = line + " " + text;
            }
        }
        if let Some(bytes) = self.bytes {
            line += &format!(" {bytes} bytes");
        }
        if let Some(seconds) = self.seconds {
            line += &format!(" {seconds:.3} s");
            if let Some(bytes) = self.bytes
                && seconds > 0.0
            {
                line += &format!(" {:.0} Mbit/s", bytes as f64 * 8e-6 / seconds);
            }
        }
        match &self.message {
            Some(message) if self.event == Kind::Server => {
                let lines = message.lines().map(|line| format!("wireboot: {line}\n"));
                lines.collect()
            }
            Some(message) => line + ": " + message,
            None => line,
        }
    }
}

/// `text` without control characters, line separators and what turns the direction of writing, and not too long.
fn clean(text: &str, keeps_lines: bool) -> String {
    let is_safe = |c: char| {
        let misleads = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (keeps_lines && c == '\n') || !(c.is_control() || misleads)
    };
    let line = |line: &str| -> String {
        let mut safe = line
            .chars()
            .map(|c| if is_safe(c) { c } else { '\u{fffd}' });
        let mut line: String = safe.by_ref().take(LONGEST).collect();
        if safe.next().is_some() {
            line.push('…');
        }
        line
    };
    match keeps_lines {
        true => text.split('\n').map(line).collect::<Vec<_>>().join("\n"),
        false => line(text),
    }
}

/// How many events may be recorded.
#[derive(Clone, Copy, Debug)]
struct Rate {
    at_once: u32,
    /// Time until there may be one more.
    one_more: Duration,
}

/// How many events may be recorded now.
#[derive(Debug)]
struct Budget {
    rate: Rate,
    left: u32,
    /// When there was one more for the last time.
    since: Instant,
}

impl Budget {
    fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            left: rate.at_once,
            since: now,
        }
    }

    /// Whether one may be recorded now.
    fn take(&mut self, now: Instant) -> bool {
        let Rate { at_once, one_more } = self.rate;
        let passed = now.saturating_duration_since(self.since).as_nanos() / one_more.as_nanos();
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(at_once);
            self.since = now;
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// What may be recorded of what clients cause.
#[derive(Debug, Default)]
struct Budgets {
    of_all: BTreeMap<Kind, Budget>,
    of_clients: HashMap<(Kind, String), Budget>,
    /// How many of each kind were not recorded.
    left_out: BTreeMap<Kind, u64>,
}

impl Budgets {
    /// Whether one may be recorded now. What is too much of one client takes nothing from the others.
    fn take(&mut self, kind: Kind, client: &str, now: Instant) -> bool {
        let key = (kind, client.to_owned());
        if self.of_clients.len() >= CLIENTS && !self.of_clients.contains_key(&key) {
            self.of_clients.clear();
        }
        let of_client = self.of_clients.entry(key);
        let of_client = of_client.or_insert_with(|| Budget::new(OF_CLIENT, now));
        let of_all = self.of_all.entry(kind);
        let of_all = of_all.or_insert_with(|| Budget::new(OF_ALL, now));
        let may = of_client.take(now) && of_all.take(now);
        if !may {
            *self.left_out.entry(kind).or_default() += 1;
        }
        may
    }
}

/// Whether an event was written, or is to be by a [`Writer`]: what is told only once is told again if nobody could read it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Arc<AtomicBool>);

impl Written {
    /// True once it was.
    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where events go. Clones share the same outputs, and the [`Writer`] if there is one.
#[derive(Clone, Debug)]
pub struct Events {
    outputs: Arc<Outputs>,
    budgets: Arc<Mutex<Budgets>>,
    /// Where events wait for the thread that writes them. As long as there is none, who records an event writes it.
    queue: Arc<OnceLock<Queue>>,
    /// Whose events all are, for their number. `None`: each client's are its own.
    machine: Option<String>,
}

impl Default for Events {
    fn default() -> Self {
        Self::new(Console::Silent, None)
    }
}

/// What standard error shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Console {
    /// No event is shown.
    #[default]
    Silent,
    /// A readable line for each event.
    Human,
    /// A JSON line for each event.
    Json,
}

impl Events {
    /// Events to standard error as `console` says and, as JSON lines, to `file`.
    pub fn new(console: Console, file: Option<File>) -> Self {
        Self {
            outputs: Arc::new(Outputs::new(console, file)),
            budgets: Arc::default(),
            queue: Arc::default(),
            machine: None,
        }
    }

    /// The same outputs for what one machine causes: as many events as one client, whatever addresses it has.
    #[must_use]
    pub(crate) fn of_machine(mut self, machine: impl ToString) -> Self {
        self.machine = Some(machine.to_string());
        self
    }

    /// Records an event, unless there are too many of its kind, or of its client or machine.
    pub fn record(&self, event: Event) {
        let event = event.cleaned();
        let kind = event.event;
        let whose = self.machine.as_ref().unwrap_or(&event.client);
        if kind != Kind::Server && !self.may_record(kind, whose, Instant::now()) {
            return;
        }
        if !self.pass_on(event) {
            self.leave_out(kind, 1);
        }
    }

    /// Writes an event, or has it written. False if there is no room for it.
    fn pass_on(&self, event: Event) -> bool {
        let Some(queue) = self.queue.get() else {
            self.outputs.write(&event);
            return true;
        };
        // Before it is queued: then the thread may know better already.
        event.note(true);
        match queue.try_send(Some(event)) {
            Ok(()) => true,
            Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) => {
                if let Some(event) = event {
                    event.note(false);
                }
                false
            }
        }
    }

    fn may_record(&self, kind: Kind, client: &str, now: Instant) -> bool {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        budgets.take(kind, client, now)
    }

    /// Counts events that are not recorded.
    fn leave_out(&self, kind: Kind, count: u64) {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        *budgets.left_out.entry(kind).or_default() += count;
    }

    /// Tells, now and then and at the end, how many events were left out.
    pub(crate) fn tell_left_out(&self, stop: &Stop) {
        let mut told = Instant::now();
        loop {
            let ends = stop.is_set();
            if ends || told.elapsed() >= TELL_EVERY {
                for (kind, count) in self.left_out() {
                    // What there is no room for is told the next time.
                    if !self.pass_on(left_out_line(kind, count)) {
                        self.leave_out(kind, count);
                    }
                }
                told = Instant::now();
            }
            if ends {
                return;
            }
            std::thread::sleep(Stop::CHECK_EVERY);
        }
    }

    /// How many of each kind were not recorded since the last call.
    fn left_out(&self) -> BTreeMap<Kind, u64> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut budgets.left_out)
    }

    /// Records words about the server itself, which no client can cause.
    pub fn say(&self, message: impl ToString) {
        self.record(Event::now(Kind::Server, "").message(message));
    }
}

/// Tells that so many of a kind were not recorded.
fn left_out_line(kind: Kind, count: u64) -> Event {
    let label = kind.label();
    Event::now(Kind::Server, "").message(format!("{count} more of \"{label}\" are left out here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_hold_what_applies_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::new(Console::Silent, Some(file.reopen().unwrap()));
        events.record(
            Event::now(Kind::TftpDone, "10.0.0.2")
                .file("a b")
                .bytes(1000)
                .seconds(0.5),
        );
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.ends_with('\n'));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["event"], "tftp-done");
        assert_eq!(
            (&json["client"], &json["file"]),
            (&"10.0.0.2".into(), &"a b".into())
        );
        assert_eq!(
            (json["bytes"].as_u64(), json["seconds"].as_f64()),
            (Some(1000), Some(0.5))
        );
        assert!(json["time"].as_f64().unwrap() > 1.7e9);
        assert!(json.get("message").is_none());
    }

    #[test]
    fn people_read_the_rate() {
        let event = Event::now(Kind::TftpDone, "10.0.0.2")
            .file("linux")
            .bytes(1_000_000)
            .seconds(0.08);
        assert_eq!(
            event.words(),
            "TFTP done     10.0.0.2 linux 1000000 bytes 0.080 s 100 Mbit/s"
        );
    }

    #[test]
    fn each_line_has_the_local_time() {
        let zone = TimeZone::fixed(jiff::tz::offset(-3));
        let mut event = Event::now(Kind::Server, "").message("one\n\ntwo\n");
        // 2001-09-09T01:46:40 UTC.
        event.time = 1e9 + 0.0625;
        let time = "2001-09-08T22:46:40.062-03:00";
        assert_eq!(
            event.human(&zone),
            format!("{time} wireboot: one\n{time} wireboot: \n{time} wireboot: two\n")
        );
    }

    #[test]
    fn what_clients_say_cannot_forge_lines() {
        let evil = "a\nb\r\x1b[2J\u{85}\u{202e}\u{2028}\u{7f}\0z";
        let safe = "a?b??[2J?????z".replace('?', "\u{fffd}");
        let event = Event::now(Kind::TftpError, evil).file(evil).address(evil);
        let event = event.message(evil).cleaned();
        assert_eq!(
            event.words(),
            format!("TFTP error    {safe} {safe} {safe}: {safe}")
        );
        let long = "ä".repeat(5000);
        let event = Event::now(Kind::HttpError, "").file(&long).cleaned();
        let expected = "ä".repeat(LONGEST) + "…";
        assert_eq!(event.file, Some(expected));
        let whole = "ä".repeat(LONGEST);
        assert_eq!(clean(&whole, false), whole);
        // The server's own words keep their lines, and nothing else.
        let event = Event::now(Kind::Server, "").message("a\n\x1bb").cleaned();
        assert_eq!(event.message.as_deref(), Some("a\n\u{fffd}b"));
    }

    #[test]
    fn a_flood_of_events_is_counted_and_not_recorded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::new(Console::Silent, Some(file.reopen().unwrap()));
        let began = Instant::now();
        // Each of another client.
        let taken = |kind, at| {
            let may = |client: &i32| events.may_record(kind, &client.to_string(), at);
            (0..5000).filter(may).count()
        };
        assert_eq!(taken(Kind::TftpError, began), 2000);
        assert_eq!(taken(Kind::HttpError, began), 2000, "each kind for itself");
        let later = began + Duration::from_millis(1040);
        assert_eq!(taken(Kind::TftpError, later), 20);
        let much_later = began + Duration::from_secs(10_000);
        assert_eq!(taken(Kind::TftpError, much_later), 2000);
        let stop = Stop::default();
        stop.set();
        events.tell_left_out(&stop);
        events.tell_left_out(&stop);
        for _ in 0..2100 {
            events.say("the server's own");
        }
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].contains(r#""10980 more of \"TFTP error\" are left out here""#),
            "{}",
            lines[0]
        );
        assert!(
            lines[1].contains(r#""3000 more of \"HTTP error\" are left out here""#),
            "{}",
            lines[1]
        );
        assert_eq!(lines.len(), 2 + 2100);
    }

    #[test]
    fn one_client_cannot_use_up_what_all_may_cause() {
        let events = Events::default();
        let began = Instant::now();
        let taken = |kind, client, at| {
            let may = |_: &u32| events.may_record(kind, client, at);
            (0..5000).filter(may).count()
        };
        assert_eq!(taken(Kind::TftpError, "one", began), 200);
        assert_eq!(taken(Kind::HttpError, "one", began), 200, "another kind");
        assert_eq!(taken(Kind::TftpError, "two", began), 200);
        // What was left out took nothing: nine more have their share, the others none.
        let clients: Vec<String> = (0..9).map(|number| format!("client {number}")).collect();
        let all: Vec<usize> = clients
            .iter()
            .map(|client| taken(Kind::TftpError, client, began))
            .collect();
        assert_eq!(all, [200, 200, 200, 200, 200, 200, 200, 200, 0]);
        let later = began + Duration::from_millis(1040);
        assert_eq!(taken(Kind::TftpError, "one", later), 2);
        assert_eq!(taken(Kind::TftpError, "another", later), 18, "of all");
    }

    #[test]
    fn clients_that_are_counted_are_bounded() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        for client in 0..3 * CLIENTS {
            budgets.take(Kind::HttpError, &client.to_string(), now);
            assert!(budgets.of_clients.len() <= CLIENTS);
        }
        let left_out = 3 * CLIENTS as u64 - u64::from(OF_ALL.at_once);
        assert_eq!(budgets.left_out[&Kind::HttpError], left_out);
    }

    #[test]
    fn who_wants_to_know_is_told_what_was_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::new(Console::Silent, Some(file.reopen().unwrap()));
        let refusal = |events: &Events, client: &str| {
            let written = Written::default();
            let event = Event::now(Kind::DhcpIgnored, client);
            events.record(event.noted_by(written.clone()));
            written.is_so()
        };
        assert!((0..200).all(|_| refusal(&events, "one")));
        assert!(!refusal(&events, "one"), "too many");
        assert!(refusal(&events, "two"));
        // It is no part of what is written.
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text.lines().count(), 201);
        assert!(!text.contains("written"), "{text}");
        // Every write to it fails.
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let full = Events::new(Console::Silent, Some(full.unwrap()));
        assert!(!refusal(&full, "one"));
        assert!(refusal(&Events::default(), "one"), "nobody reads it");
    }

    #[test]
    fn waiting_for_one_more_is_not_forgotten_by_asking() {
        let began = Instant::now();
        let mut budget = Budget::new(OF_ALL, began);
        while budget.take(began) {}
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        assert!(![10, 20, 30, 40, 49].into_iter().any(|n| budget.take(at(n))));
        assert!(budget.take(at(50)));
        assert!(!budget.take(at(99)));
        assert!(budget.take(at(100)));
    }
}
