//! The leases on disk, so that a server that was stopped, or killed, gives nobody's address to another.
//!
//! The file is a journal: a line of JSON is appended for each change, and the last one for an address counts. It is written anew when most of
//! its lines count no more.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::event::Events;

/// Lines that count no more before the file is written anew.
const STALE: usize = 1000;

/// A lease as a line of the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    address: IpAddr,
    /// What the client is known by, in hexadecimal digits.
    client: String,
    /// Seconds since 1970.
    until: u64,
}

/// A lease: the address, what its client is known by, and its end.
pub(crate) type Lease<A> = (A, Vec<u8>, Instant);

/// The leases of both IP versions. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Leases(Arc<Mutex<Journal>>);

#[derive(Debug)]
struct Journal {
    path: PathBuf,
    /// `None` if it cannot be written.
    file: Option<File>,
    leases: BTreeMap<IpAddr, Line>,
    lines: usize,
    events: Events,
}

impl Leases {
    /// Those of the file at `path`, whose folder is there. A file that makes no sense is set aside.
    ///
    /// # Errors
    /// When it cannot be read or written, or another server has it.
    pub(crate) fn open(path: &Path, events: &Events) -> io::Result<Self> {
        // Held while it is read: two servers must not write it.
        let held = OpenOptions::new().append(true).create(true).open(path)?;
        held.try_lock()?;
        let text = fs::read(path)?;
        let leases = lines(&text).unwrap_or_else(|| {
            let aside = path.with_added_extension("broken");
            let moved = fs::rename(path, &aside);
            let moved = moved.map(|()| format!("it is {} now", aside.display()));
            events.say(format!(
                "the leases in {} make no sense, going on without them: {}",
                path.display(),
                moved.unwrap_or_else(|error| error.to_string())
            ));
            BTreeMap::new()
        });
        let mut journal = Journal {
            path: path.to_owned(),
            file: None,
            leases,
            lines: 0,
            events: events.clone(),
        };
        journal.write_anew()?;
        Ok(Self(Arc::new(Mutex::new(journal))))
    }

    /// What the file at `path` says, for a server that cannot write it. What changes is not kept.
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
            leases: lines(&text.unwrap_or_default()).unwrap_or_default(),
            lines: 0,
            events: events.clone(),
        })))
    }

    /// The leases of one IP version; `address` takes an address for one of it.
    pub(crate) fn of<A>(&self, address: impl Fn(IpAddr) -> Option<A>) -> Vec<Lease<A>> {
        let Ok(journal) = self.0.lock() else {
            return Vec::new();
        };
        let (now, clock) = (Instant::now(), clock());
        let lease = |line: &Line| {
            let left = Duration::from_secs(line.until).saturating_sub(clock);
            Some((address(line.address)?, bytes(&line.client)?, now + left))
        };
        journal.leases.values().filter_map(lease).collect()
    }

    /// Keeps what has changed.
    pub(crate) fn keep<A: Into<IpAddr>>(&self, changed: Vec<Lease<A>>) {
        if changed.is_empty() {
            return;
        }
        let (now, clock) = (Instant::now(), clock());
        let changed = changed.into_iter().map(|(address, client, until)| Line {
            address: address.into(),
            client: client.iter().map(|byte| format!("{byte:02x}")).collect(),
            until: (clock + until.saturating_duration_since(now)).as_secs(),
        });
        if let Ok(mut journal) = self.0.lock() {
            journal.append(changed.collect());
        }
    }
}

impl Journal {
    fn append(&mut self, changed: Vec<Line>) {
        let Some(file) = &mut self.file else {
            return;
        };
        // In one piece, so that a server that is killed leaves whole lines.
        let written = text(&changed).and_then(|text| file.write_all(&text));
        self.lines += changed.len();
        let changed = changed.into_iter();
        self.leases.extend(changed.map(|line| (line.address, line)));
        let written = written.and_then(|()| match self.lines > self.leases.len() + STALE {
            true => self.write_anew(),
            false => Ok(()),
        });
        if let Err(error) = written {
            self.file = None;
            self.events.say(format!(
                "leases are not kept from now on: {}: {error}",
                self.path.display()
            ));
        }
    }

    /// Puts a file with one line for each lease in the place of the one that is there.
    fn write_anew(&mut self) -> io::Result<()> {
        let new = new_of(&self.path);
        let mut file = File::create(&new)?;
        file.try_lock()?;
        file.write_all(&text(self.leases.values())?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.file = Some(file);
        self.lines = self.leases.len();
        Ok(())
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
    use std::net::Ipv4Addr;

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
        let leases = Leases::open(path, &Events::default()).unwrap().of(ipv4);
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
            .of(|address| address.is_ipv6().then_some(address));
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
        for _ in 0..3 * STALE {
            leases.keep(vec![lease(1, b"one", 100), lease(2, b"two", 100)]);
        }
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!((2..=STALE + 4).contains(&lines), "{lines} lines");
        drop(leases);
        assert_eq!(all(&path).len(), 2);
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
