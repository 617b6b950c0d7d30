//! Reports that machines send of themselves, a file each in a folder of their own.
//!
//! Anybody on the network can send some, so a report has to be one (`wireboot_report` reads it), and only so much is kept: of one client in a
//! day, and in all. A file is written beside its name and then renamed, so that no reader sees half of it, and none is ever overwritten.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, renameat2};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
pub(crate) use wireboot_report::LONGEST;
use wireboot_report::{ReadError, Report};

/// Bodies that are in memory at the same time.
const AT_ONCE: usize = 4;
/// How a file is called until it is whole.
const UNFINISHED: &str = ".unfinished-";
/// Names that are tried before the next report waits for another second.
const MOST_NAMES: u32 = 1000;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Clients that are counted. When there are more, all counts begin anew.
const CLIENTS: usize = 4096;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Files in the folder.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// Bytes of one client in a day.
    of_client: u64,
}

const LIMITS: Limits = Limits {
    files: 100_000,
    bytes: 4 << 30,
    of_client: 64 << 20,
};

/// Why a report is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It is none.
    #[error("{0}")]
    NoReport(#[from] ReadError),
    /// Its bytes are no text.
    #[error("not a report: it is not UTF-8 text")]
    NoText,
    /// Others are being taken in.
    #[error("other reports are being taken in; try again")]
    Busy,
    /// One client has sent very many.
    #[error("this client has sent 64 MiB in a day, which is enough")]
    OfClient,
    /// The folder has as many as it may have.
    #[error("the folder of reports is full (100,000 files or 4 GiB): move some of them elsewhere")]
    Full,
    /// The folder does not take the file.
    #[error("the report cannot be kept: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// The folder that reports are kept in.
#[derive(Debug)]
pub struct Reports {
    path: PathBuf,
    folder: OwnedFd,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: u64,
    bytes: u64,
    /// Bodies in memory.
    taken: usize,
    /// Since when which client has sent how many bytes.
    clients: HashMap<IpAddr, (SystemTime, u64)>,
}

/// Leave to read one report into memory.
pub(crate) struct Place<'a>(&'a Reports);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().taken -= 1;
    }
}

impl Reports {
    /// Counts what the folder has, and removes what was not finished by a server before.
    ///
    /// # Errors
    /// When `path` is no folder, or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with_limits(path, LIMITS)
    }

    fn with_limits(path: &Path, limits: Limits) -> io::Result<Self> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = open(path, how, Mode::empty())?;
        let mut listed = Dir::openat(&folder, ".", how, Mode::empty())?;
        let mut state = State::default();
        for entry in listed.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes().starts_with(UNFINISHED.as_bytes()) {
                let _ = unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir);
                continue;
            }
            let Ok(found) = fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
                continue;
            };
            if found.st_mode & libc::S_IFMT == libc::S_IFREG {
                state.files += 1;
                state.bytes += u64::try_from(found.st_size).unwrap_or_default();
            }
        }
        Ok(Self {
            path: path.to_owned(),
            folder,
            limits,
            state: Mutex::new(state),
        })
    }

    /// Where the folder is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process may write there.
    ///
    /// # Errors
    /// When it may not.
    pub(crate) fn try_to_write(&self) -> io::Result<()> {
        let name = unfinished();
        drop(self.create(&name)?);
        self.remove(&name)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in memory for a report.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub(crate) fn place(&self) -> Result<Place<'_>, Refusal> {
        let mut state = self.state();
        if state.taken >= AT_ONCE {
            return Err(Refusal::Busy);
        }
        state.taken += 1;
        Ok(Place(self))
    }

    /// Keeps a report that came from `client` at `now`, byte for byte. Returns the file's name.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is kept then.
    pub(crate) fn keep(
        &self,
        bytes: &[u8],
        client: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let text = str::from_utf8(bytes).map_err(|_| Refusal::NoText)?;
        let report = Report::from_json(text)?;
        let length = bytes.len() as u64;
        // One after the other: a report takes milliseconds, and the count is right.
        let mut state = self.state();
        state.admit(length, client, now, self.limits)?;
        let name = self.write(bytes, &stem(&report, client, now))?;
        state.count(length, client, now);
        Ok(name)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let how = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o644);
        Ok(openat(&self.folder, name, how, mode)?.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Writes a file whose name begins with `stem` and that is not there yet.
    fn write(&self, bytes: &[u8], stem: &str) -> Result<String, Refusal> {
        let draft = unfinished();
        let mut file = self.create(&draft)?;
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(Refusal::from)
            .and_then(|()| self.name(&draft, stem));
        if written.is_err() {
            let _ = self.remove(&draft);
        }
        written
    }

    /// Gives the file the first name that is free.
    fn name(&self, draft: &str, stem: &str) -> Result<String, Refusal> {
        for number in 1..=MOST_NAMES {
            let name = match number {
                1 => format!("{stem}.json"),
                number => format!("{stem}-{number}.json"),
            };
            let flags = RenameFlags::RENAME_NOREPLACE;
            match renameat2(&self.folder, draft, &self.folder, name.as_str(), flags) {
                Ok(()) => return Ok(name),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Refusal::Busy)
    }
}

impl State {
    /// Whether so many bytes more can be kept.
    fn admit(
        &self,
        length: u64,
        client: IpAddr,
        now: SystemTime,
        limits: Limits,
    ) -> Result<(), Refusal> {
        if self.files >= limits.files || self.bytes + length > limits.bytes {
            return Err(Refusal::Full);
        }
        if self.sent(client, now).1 + length > limits.of_client {
            return Err(Refusal::OfClient);
        }
        Ok(())
    }

    /// Since when the client has sent how many bytes.
    fn sent(&self, client: IpAddr, now: SystemTime) -> (SystemTime, u64) {
        let counted = self.clients.get(&client).copied();
        let counted = counted.filter(|(since, _)| {
            // A clock that was set back does not keep anybody out.
            now.duration_since(*since).is_ok_and(|passed| passed < DAY)
        });
        counted.unwrap_or((now, 0))
    }

    fn count(&mut self, length: u64, client: IpAddr, now: SystemTime) {
        self.files += 1;
        self.bytes += length;
        let (since, bytes) = self.sent(client, now);
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            self.clients.clear();
        }
        self.clients.insert(client, (since, bytes + length));
    }
}

/// A name that no other server uses.
fn unfinished() -> String {
    let random = RandomState::new().build_hasher().finish();
    format!("{UNFINISHED}{random:016x}")
}

/// `20261125T043015Z-525400770002`: when it came and whose it is, by the card's Ethernet address, else by the client's of IP.
fn stem(report: &Report, client: IpAddr, now: SystemTime) -> String {
    let time = Timestamp::try_from(now).unwrap_or_default();
    let time = time.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ");
    let mac: String = report
        .machine
        .mac
        .chars()
        .filter(char::is_ascii_hexdigit)
        .collect();
    let whose = match mac.len() {
        12 => mac.to_ascii_lowercase(),
        _ => client.to_string().replace(':', "-"),
    };
    format!("{time}-{whose}")
}

impl AsFd for Reports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const REPORT: &str = r#"{"schema":1,"machine":{"mac":"52:54:00:77:00:0A"}}"#;
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_608_000)
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn each_report_is_a_file_of_its_own_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::open(folder.path()).unwrap();
        reports.try_to_write().unwrap();
        let other = REPORT.replace("52:54:00:77:00:0A", "../../etc/x");
        let keep = |text: &str| reports.keep(text.as_bytes(), CLIENT, noon()).unwrap();
        assert_eq!(keep(REPORT), "20261125T120000Z-52540077000a.json");
        assert_eq!(keep(REPORT), "20261125T120000Z-52540077000a-2.json");
        // A name is no path, whoever sends it.
        assert_eq!(keep(&other), "20261125T120000Z-10.0.0.7.json");
        assert_eq!(names(folder.path()).len(), 3);
        let kept = folder.path().join("20261125T120000Z-52540077000a-2.json");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), REPORT);
        // The next server goes on behind them, and removes what this one did not finish.
        std::fs::write(folder.path().join(".unfinished-1"), "{").unwrap();
        let next = Reports::open(folder.path()).unwrap();
        assert_eq!(next.state().files, 3);
        assert_eq!(
            next.state().bytes,
            2 * REPORT.len() as u64 + other.len() as u64
        );
        let third = next.keep(REPORT.as_bytes(), CLIENT, noon()).unwrap();
        assert_eq!(third, "20261125T120000Z-52540077000a-3.json");
        assert_eq!(names(folder.path()).len(), 4);
    }

    #[test]
    fn what_is_no_report_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::open(folder.path()).unwrap();
        for bytes in [&b"GIF89a"[..], b"{}", b"\xff\xfe", b"", br#"{"schema":2}"#] {
            let refused = reports.keep(bytes, CLIENT, noon());
            assert!(
                matches!(refused, Err(Refusal::NoText | Refusal::NoReport(_))),
                "{refused:?}"
            );
        }
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn so_much_is_kept_of_a_client_in_a_day_and_so_much_in_all() {
        let folder = tempfile::tempdir().unwrap();
        let length = REPORT.len() as u64;
        let limits = Limits {
            files: 5,
            bytes: 4 * length,
            of_client: 2 * length,
        };
        let reports = Reports::with_limits(folder.path(), limits).unwrap();
        let keep = |host, days: u32| {
            let client = Ipv4Addr::new(10, 0, 0, host).into();
            reports.keep(REPORT.as_bytes(), client, noon() + days * DAY)
        };
        keep(1, 0).unwrap();
        keep(1, 0).unwrap();
        assert!(matches!(keep(1, 0), Err(Refusal::OfClient)));
        keep(2, 0).unwrap();
        keep(1, 1).unwrap();
        assert!(matches!(keep(3, 1), Err(Refusal::Full)));
        assert_eq!(names(folder.path()).len(), 4);
        let few = Limits { files: 4, ..LIMITS };
        let reports = Reports::with_limits(folder.path(), few).unwrap();
        let refused = reports.keep(REPORT.as_bytes(), CLIENT, noon());
        assert!(matches!(refused, Err(Refusal::Full)));
    }

    #[test]
    fn few_are_in_memory_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::open(folder.path()).unwrap();
        let places: Vec<_> = (0..AT_ONCE).map(|_| reports.place().unwrap()).collect();
        assert!(matches!(reports.place(), Err(Refusal::Busy)));
        drop(places);
        assert!(reports.place().is_ok());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told_of() {
        assert!(Reports::open(Path::new("/nowhere")).is_err());
    }
}
