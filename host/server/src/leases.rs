//! The leases on disk, so that a server that was stopped, or killed, gives nobody's address to another.
//!
//! The file is a journal: a line of JSON is appended for each change, and the last one for an address counts. It is written anew when most of
//! its lines count no more, and after it could not be written.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::event::Events;

/// Lines that count no more before the file is written anew, beside as many as there are leases.
const STALE: usize = 1000;
/// Seconds by which the file may say that a lease ends too early: who asks all the time gets no line each time.
const TOO_EARLY: u64 = 60;
/// Seconds for which the file remembers a lease after its end: its client gets the same address again.
const REMEMBERED: u64 = 24 * 3600;
/// Time before the file is tried again that could not be written.
const RETRY: Duration = Duration::from_secs(30);

/// A lease as a line of the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    address: IpAddr,
    /// What the client is known by, in hexadecimal digits.
    client: String,
    /// When it ends, in seconds since 1970.
    until: u64,
}

impl Line {
    /// The client, and what it has until when.
    fn said(self) -> (String, (IpAddr, u64)) {
        (self.client, (self.address, self.until))
    }
}

/// A lease: the address, what its client is known by, and its end.
pub(crate) type Lease<A> = (A, Vec<u8>, Instant);

/// The leases of both IP versions. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Leases(Arc<Mutex<Journal>>);

#[derive(Debug)]
struct Journal {
    path: PathBuf,
    /// `None` if it could not be written. Its last line may have broken off then.
    file: Option<File>,
    /// When the file is tried again that could not be written.
    retry: Instant,
    leases: BTreeMap<IpAddr, Line>,
    /// What the last line says that the file has of each client.
    written: HashMap<String, (IpAddr, u64)>,
    lines: usize,
    events: Events,
}

impl Leases {
    /// Those of the file at `path`, whose folder is there. A file that makes no sense is set aside.
    ///
    /// # Errors
    /// When it cannot be read or written, or another server has it.
    pub(crate) fn open(path: &Path, events: &Events) -> io::Result<Self> {
        // While it is read, too: two servers must not write it.
        let mut held = hold(path)?;
        let mut journal = Journal {
            path: path.to_owned(),
            file: None,
            retry: Instant::now(),
            leases: BTreeMap::new(),
            written: HashMap::new(),
            lines: 0,
            events: events.clone(),
        };
        journal.leases = journal.read(&mut held)?;
        journal.write_anew(clock())?;
        Ok(Self(Arc::new(Mutex::new(journal))))
    }

    /// What the file at `path` says, for a server that cannot write it. What changes is kept once the file can be written.
    pub(crate) fn read(path: &Path, events: &Events) -> Self {
        // Whoever can write the folder may have put a pipe there, which would be waited for.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let text = opened.and_then(|mut file| {
            let mut text = Vec::new();
            if file.metadata()?.is_file() {
                file.read_to_end(&mut text)?;
            }
            Ok(text)
        });
        Self(Arc::new(Mutex::new(Journal {
            path: path.to_owned(),
            file: None,
            retry: Instant::now() + RETRY,
            leases: lines(&text.unwrap_or_default()).unwrap_or_default(),
            written: HashMap::new(),
            lines: 0,
            events: events.clone(),
        })))
    }

    /// The leases of one IP version; `address` takes an address for one of it. None has more time left than `longest`, which is as long as a
    /// lease lasts: the clock may have been wrong when the file was written, or be so now.
    pub(crate) fn of<A>(
        &self,
        address: impl Fn(IpAddr) -> Option<A>,
        longest: Duration,
    ) -> Vec<Lease<A>> {
        let Ok(journal) = self.0.lock() else {
            return Vec::new();
        };
        let (now, clock) = (Instant::now(), clock());
        let lease = |line: &Line| {
            let left = Duration::from_secs(line.until).saturating_sub(clock);
            let until = now + left.min(longest);
            Some((address(line.address)?, bytes(&line.client)?, until))
        };
        journal.leases.values().filter_map(lease).collect()
    }

    /// Keeps what has changed. A client that renews its lease again within a minute gets no line: after a crash of this server, the lease ends
    /// up to a minute earlier than the client was told.
    pub(crate) fn keep<A: Into<IpAddr>>(&self, changed: Vec<Lease<A>>) {
        if !changed.is_empty() {
            self.keep_at(changed, Instant::now(), clock());
        }
    }

    fn keep_at<A: Into<IpAddr>>(&self, changed: Vec<Lease<A>>, now: Instant, clock: Duration) {
        let changed = changed.into_iter().map(|(address, client, until)| Line {
            address: address.into(),
            client: client.iter().map(|byte| format!("{byte:02x}")).collect(),
            until: (clock + until.saturating_duration_since(now)).as_secs(),
        });
        if let Ok(mut journal) = self.0.lock() {
            journal.keep(changed.collect(), now, clock);
        }
    }
}

impl Journal {
    fn keep(&mut self, mut changed: Vec<Line>, now: Instant, clock: Duration) {
        changed.retain(|line| self.take_in(line));
        let was_kept = self.file.is_some();
        if !was_kept && now < self.retry {
            return;
        }
        match self.write(changed, clock) {
            Ok(()) if was_kept => {}
            Ok(()) => {
                let words = format!("leases are kept from now on: {}", self.path.display());
                self.events.say(words);
            }
            Err(error) => {
                if was_kept {
                    self.events.say(format!(
                        "leases are not kept from now on: {}: {error}",
                        self.path.display()
                    ));
                }
                self.file = None;
                self.retry = now + RETRY;
            }
        }
    }

    /// Knows a change from now on. False if the file says nearly as much.
    fn take_in(&mut self, line: &Line) -> bool {
        let former = self.leases.insert(line.address, line.clone());
        let is_renewal = former.is_some_and(|former| former.client == line.client);
        // A client's last line counts, so it must be the one for this address.
        let said = self.written.get(&line.client);
        let said = said.filter(|(address, _)| is_renewal && *address == line.address);
        let longer = said.and_then(|(_, until)| line.until.checked_sub(*until));
        longer.is_none_or(|longer| longer >= TOO_EARLY)
    }

    /// Adds lines to the file, or makes one with all leases if there is none to add to.
    fn write(&mut self, new: Vec<Line>, clock: Duration) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            let mut held = hold(&self.path)?;
            // Another server may have had it in the meantime. What that gave is kept for the next start; this one does not learn of it.
            for (address, line) in self.read(&mut held)? {
                // What this server wrote itself is older than what it knows.
                let written = self.written.get(&line.client);
                if written == Some(&(line.address, line.until)) {
                    continue;
                }
                let known = self.leases.get(&address);
                if known.is_none_or(|known| known.until < line.until) {
                    self.leases.insert(address, line);
                }
            }
            return self.write_anew(clock);
        };
        // In one piece, so that a server that is killed leaves whole lines.
        file.write_all(&text(&new)?)?;
        self.lines += new.len();
        self.written.extend(new.into_iter().map(Line::said));
        match self.lines > 2 * self.leases.len() + STALE {
            true => self.write_anew(clock),
            false => Ok(()),
        }
    }

    /// What the file says, which this server holds. One that makes no sense is set aside.
    fn read(&self, held: &mut File) -> io::Result<BTreeMap<IpAddr, Line>> {
        let path = &self.path;
        let mut text = Vec::new();
        held.read_to_end(&mut text)?;
        Ok(lines(&text).unwrap_or_else(|| {
            let aside = path.with_added_extension("broken");
            let moved = fs::rename(path, &aside);
            let moved = moved.map(|()| format!("it is {} now", aside.display()));
            self.events.say(format!(
                "the leases in {} make no sense, going on without them: {}",
                path.display(),
                moved.unwrap_or_else(|error| error.to_string())
            ));
            BTreeMap::new()
        }))
    }

    /// Puts a file with one line for each lease in the place of the one that is there, without those that ended long ago.
    fn write_anew(&mut self, clock: Duration) -> io::Result<()> {
        let remembered = |until: u64| until.saturating_add(REMEMBERED) >= clock.as_secs();
        self.leases.retain(|_, line| remembered(line.until));
        let new = new_of(&self.path);
        let mut file = open_file(
            OpenOptions::new().write(true).create(true).truncate(true),
            &new,
        )?;
        file.try_lock()?;
        file.write_all(&text(self.leases.values())?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.file = Some(file);
        self.lines = self.leases.len();
        let mut lines: Vec<&Line> = self.leases.values().collect();
        // Of a client that had several addresses, the last one counts.
        lines.sort_by_key(|line| line.until);
        self.written = lines.into_iter().cloned().map(Line::said).collect();
        Ok(())
    }
}

/// The file at `path`, which no other server has as long as it is open. It is made if it is not there.
///
/// # Errors
/// When it cannot be written, or another server has it.
fn hold(path: &Path) -> io::Result<File> {
    let file = open_file(OpenOptions::new().append(true).create(true), path)?;
    file.try_lock()?;
    // Another server may have put a new one in its place before it was locked.
    let (here, there) = (file.metadata()?, fs::metadata(path)?);
    match (here.dev(), here.ino()) == (there.dev(), there.ino()) {
        true => Ok(file),
        false => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Opens a file that is read and written. Whoever can write the folder may have put a pipe there, which would be waited for: opened both ways
/// it is not (fifo(7)), and then it is refused.
fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.read(true).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("{} is no file", path.display()))),
    }
}

/// What a file of leases is called while it is written anew.
pub(crate) fn new_of(path: &Path) -> PathBuf {
    path.with_added_extension("new")
}

fn text<'a>(lines: impl IntoIterator<Item = &'a Line>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// What the file says of each address at last; `None` if it is no file of leases. A last line without its end is one that was being
/// written.
fn lines(text: &[u8]) -> Option<BTreeMap<IpAddr, Line>> {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    let whole = text.get(..end.map_or(0, |end| end + 1))?;
    let lines = whole.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty()).map(|line| {
        let line: Line = serde_json::from_slice(line).ok()?;
        bytes(&line.client)?;
        Some((line.address, line))
    });
    lines.collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// The time since the Unix epoch.
fn clock() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Console;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
        match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }

    fn address(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, n)
    }

    fn lease(n: u8, client: &[u8], seconds: u64) -> Lease<Ipv4Addr> {
        let until = Instant::now() + Duration::from_secs(seconds);
        (address(n), client.to_vec(), until)
    }

    /// Addresses, clients and seconds left, rounded to tens.
    fn all(path: &Path) -> Vec<(Ipv4Addr, Vec<u8>, u64)> {
        let leases = Leases::open(path, &Events::default()).unwrap();
        let leases = leases.of(ipv4, HOUR);
        let now = Instant::now();
        let left = |until: Instant| (until - now).as_secs().next_multiple_of(10);
        leases
            .into_iter()
            .map(|(address, client, until)| (address, client, left(until)))
            .collect()
    }

    #[test]
    fn what_is_kept_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let leases = Leases::open(&path, &Events::default()).unwrap();
        leases.keep(vec![lease(1, b"one", 100), lease(2, &[1, 0xff], 50)]);
        leases.keep(vec![lease(1, b"else", 200)]);
        let ipv6 = (
            std::net::Ipv6Addr::LOCALHOST,
            b"six".to_vec(),
            Instant::now(),
        );
        leases.keep(vec![ipv6]);
        drop(leases);
        // The end of a line that a killed server was writing.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"address\":\"10.0").unwrap();
        let expected = [
            (address(1), b"else".to_vec(), 200),
            (address(2), vec![1, 0xff], 50),
        ];
        assert_eq!(all(&path), expected);
        assert_eq!(all(&path), expected, "once more");
        let ipv6 = Leases::open(&path, &Events::default())
            .unwrap()
            .of(|address| address.is_ipv6().then_some(address), HOUR);
        assert_eq!(ipv6.len(), 1);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        for broken in [
            "something else\n",
            "{\"address\":\"10.0.0.1\",\"client\":\"0g\",\"until\":1}\n",
            "{\"address\":\"10.0.0\",\"client\":\"00\",\"until\":1}\n",
        ] {
            fs::write(&path, broken).unwrap();
            assert!(all(&path).is_empty());
            let aside = fs::read_to_string(directory.path().join("leases.broken")).unwrap();
            assert_eq!(aside, broken);
        }
        let leases = Leases::open(&path, &Events::default()).unwrap();
        leases.keep(vec![lease(1, b"one", 100)]);
        drop(leases);
        assert_eq!(all(&path), [(address(1), b"one".to_vec(), 100)]);
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let leases = Leases::open(&path, &Events::default()).unwrap();
        for n in 0..3 * STALE {
            // Somebody else each time.
            let client = n.to_be_bytes();
            leases.keep(vec![lease(1, &client, 100), lease(2, &client, 100)]);
        }
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!((2..=STALE + 4).contains(&lines), "{lines} lines");
        drop(leases);
        assert_eq!(all(&path).len(), 2);
    }

    fn lines_in(path: &Path) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn a_long_file_is_written_anew_when_more_than_half_of_it_counts_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let leases = Leases::open(&path, &Events::default()).unwrap();
        let until = Instant::now() + HOUR;
        let lease = |number: usize, client: usize| {
            let address = Ipv4Addr::from(number as u32);
            (address, client.to_be_bytes().to_vec(), until)
        };
        let many = 2 * STALE;
        leases.keep((0..many).map(|n| lease(n, n)).collect());
        let most = 2 * many + STALE;
        leases.keep((many..most).map(|client| lease(0, client)).collect());
        assert_eq!(lines_in(&path), most);
        leases.keep(vec![lease(0, most)]);
        assert_eq!(lines_in(&path), many);
    }

    #[test]
    fn who_renews_within_a_minute_gets_no_line_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let leases = Leases::open(&path, &Events::default()).unwrap();
        let (start, clock) = (Instant::now(), clock());
        // Keeps that this client has this address for another hour, so many seconds after the start.
        let keep = |n: u8, client: &[u8], after: u64| {
            let passed = Duration::from_secs(after);
            let (now, clock) = (start + passed, clock + passed);
            leases.keep_at(vec![(address(n), client.to_vec(), now + HOUR)], now, clock);
        };
        let known = |n: u8| {
            let journal = leases.0.lock().unwrap();
            let line = journal.leases.get(&IpAddr::from(address(n))).unwrap();
            Duration::from_secs(line.until - clock.as_secs())
        };
        for (n, client, after, lines) in [
            (1, b"one", 0, 1),
            (1, b"one", 59, 1),
            (1, b"one", 60, 2),
            (1, b"one", 119, 2),
            // Its last line must be the one for the address that it has.
            (2, b"one", 120, 3),
            (1, b"one", 121, 4),
            (1, b"two", 122, 5),
            (1, b"one", 123, 6),
        ] {
            keep(n, client, after);
            assert_eq!(lines_in(&path), lines, "after {after} s");
            assert_eq!(known(n), HOUR + Duration::from_secs(after));
        }
        // The end of a lease is no renewal.
        leases.keep_at(vec![(address(1), b"one".to_vec(), start)], start, clock);
        assert_eq!(lines_in(&path), 7);
        assert_eq!(known(1), Duration::ZERO);
        // It is known, too, what a file says that was written anew.
        drop(leases);
        let leases = Leases::open(&path, &Events::default()).unwrap();
        let renewed = start + HOUR + Duration::from_secs(120);
        leases.keep_at(vec![(address(2), b"one".to_vec(), renewed)], start, clock);
        assert_eq!(lines_in(&path), 2);
        let renewed = renewed + Duration::from_secs(60);
        leases.keep_at(vec![(address(2), b"one".to_vec(), renewed)], start, clock);
        assert_eq!(lines_in(&path), 3);
    }

    #[test]
    fn what_ended_long_ago_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let day = 24 * 3600;
        let line = |n: u8, ago: u64| Line {
            address: address(n).into(),
            client: format!("{n:02x}"),
            until: clock().as_secs() - ago,
        };
        let lines = [line(1, 2 * day), line(2, day - 3600)];
        fs::write(&path, text(&lines).unwrap()).unwrap();
        assert_eq!(all(&path), [(address(2), vec![2], 0)]);
        assert_eq!(lines_in(&path), 1);
    }

    #[test]
    fn no_lease_lasts_longer_than_this_server_gives_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let in_ten_years = clock().as_secs() + 10 * 365 * 24 * 3600;
        let line = |n: u8, until: u64| Line {
            address: address(n).into(),
            client: format!("{n:02x}"),
            until,
        };
        let lines = [line(1, in_ten_years), line(2, u64::MAX)];
        fs::write(&path, text(&lines).unwrap()).unwrap();
        let leases = Leases::open(&path, &Events::default()).unwrap();
        let before = Instant::now();
        let leases = leases.of(ipv4, HOUR);
        let after = Instant::now();
        assert_eq!(leases.len(), 2);
        for (_, _, until) in leases {
            assert!((before + HOUR..=after + HOUR).contains(&until));
        }
    }

    /// A file on a disk that is full.
    fn full() -> File {
        OpenOptions::new().write(true).open("/dev/full").unwrap()
    }

    /// How often a server said that it keeps leases no more, and that it does so again.
    fn said(told: &Path) -> [usize; 2] {
        let told = fs::read_to_string(told).unwrap();
        ["leases are not kept", "leases are kept"].map(|words| told.matches(words).count())
    }

    #[test]
    fn what_could_not_be_written_is_written_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let told = directory.path().join("told");
        let events = Events::new(Console::Silent, Some(File::create(&told).unwrap()));
        let leases = Leases::open(&path, &events).unwrap();
        let (start, clock) = (Instant::now(), clock());
        let keep = |n: u8, after: u64| {
            let passed = Duration::from_secs(after);
            let (now, clock) = (start + passed, clock + passed);
            leases.keep_at(vec![(address(n), vec![n], now + HOUR)], now, clock);
        };
        keep(1, 0);
        leases.0.lock().unwrap().file = Some(full());
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"address\":\"10.0").unwrap();
        let broken_off = fs::read(&path).unwrap();
        let retry = RETRY.as_secs();
        keep(2, 1);
        assert_eq!(said(&told), [1, 0]);
        // Given back meanwhile: the file's own line does not undo it.
        let now = start + Duration::from_secs(2);
        leases.keep_at(vec![(address(1), vec![1], now)], now, clock);
        // So that a new file cannot be made.
        fs::create_dir(new_of(&path)).unwrap();
        keep(3, retry);
        keep(4, 1 + retry);
        fs::remove_dir(new_of(&path)).unwrap();
        keep(5, 2 * retry);
        assert_eq!(fs::read(&path).unwrap(), broken_off);
        assert_eq!(said(&told), [1, 0]);
        keep(6, 1 + 2 * retry);
        let kept = lines(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(kept.len(), 6);
        assert_eq!(kept[&address(1).into()].until, clock.as_secs());
        assert_eq!(said(&told), [1, 1]);
        keep(7, 2 + 2 * retry);
        assert_eq!(lines_in(&path), 7);
        assert_eq!(said(&told), [1, 1]);
        drop(leases);
        assert_eq!(all(&path).len(), 7);
    }

    #[test]
    fn a_server_that_cannot_write_at_its_start_tries_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let told = directory.path().join("told");
        let events = Events::new(Console::Silent, Some(File::create(&told).unwrap()));
        let before = Leases::open(&path, &events).unwrap();
        before.keep(vec![lease(1, b"one", 100)]);
        drop(before);
        fs::create_dir(new_of(&path)).unwrap();
        assert!(Leases::open(&path, &events).is_err());
        let start = Instant::now();
        let leases = Leases::read(&path, &events);
        let later = Instant::now() + RETRY;
        fs::remove_dir(new_of(&path)).unwrap();
        leases.keep_at(vec![lease(2, b"two", 100)], start, clock());
        assert_eq!(lines_in(&path), 1);
        // Another server has it, and gives an address again.
        let other = Leases::open(&path, &Events::default()).unwrap();
        leases.keep_at(vec![lease(3, b"three", 100)], later, clock());
        assert_eq!(lines_in(&path), 1);
        other.keep(vec![lease(1, b"another", 900)]);
        drop(other);
        leases.keep_at(vec![lease(4, b"four", 100)], later + RETRY, clock());
        assert_eq!(said(&told), [0, 1]);
        drop(leases);
        let all = all(&path);
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].1, b"another");
    }

    /// What `body` returns, which waits for nobody.
    fn soon<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        std::thread::spawn(move || done.send(body()));
        let result = result.recv_timeout(Duration::from_secs(30));
        result.expect("it waits for the other end of a pipe")
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let opened = || {
            let path = path.clone();
            soon(move || Leases::open(&path, &Events::default()).map(drop))
        };
        let read = || {
            let path = path.clone();
            soon(move || Leases::read(&path, &Events::default()))
        };
        for pipe in [path.clone(), new_of(&path)] {
            mkfifo(&pipe, Mode::S_IRWXU).unwrap();
            assert!(opened().is_err());
            assert!(read().of(ipv4, HOUR).is_empty());
            // Nor is somebody waited for who has the other end, and says nothing.
            let both = OpenOptions::new().read(true).write(true).open(&pipe);
            assert!(opened().is_err());
            assert!(read().of(ipv4, HOUR).is_empty());
            drop(both.unwrap());
            fs::remove_file(&pipe).unwrap();
        }
        opened().unwrap();
    }

    #[test]
    fn two_servers_do_not_share_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let first = Leases::open(&path, &Events::default()).unwrap();
        assert!(Leases::open(&path, &Events::default()).is_err());
        drop(first);
        assert!(Leases::open(&path, &Events::default()).is_ok());
    }
}
