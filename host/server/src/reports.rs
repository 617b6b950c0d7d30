//! Reports that machines send of themselves, a file each in a folder of their own.
//!
//! Anybody on the network can send some, so a report has to be one (`wireboot_report` reads it), and only so much is kept: of one client in a
//! day, and in all. A machine on a link of its own may have many addresses: it counts as one client. A file is written beside its name and
//! then renamed, so that no reader sees half of it, and none is ever overwritten.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, renameat2};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
pub(crate) use wireboot_report::LONGEST;
use wireboot_report::{ReadError, Report};

/// Clients whose bodies are in memory at the same time, one of each.
const AT_ONCE: usize = 4;
/// How long a client waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// A file counts as so many bytes at least, as it takes a block of the disk.
const LEAST: u64 = 4096;
/// A folder that is full is looked at again for the next report, but not more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(10);
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
    /// Their bytes, by [`counted`].
    bytes: u64,
    /// Bytes of one client in a day, likewise.
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
    /// What came is no report.
    #[error("{0}")]
    NoReport(#[from] ReadError),
    /// Its bytes are no text.
    #[error("not a report: it is not UTF-8 text")]
    NoText,
    /// Others are being taken in.
    #[error("other reports are being taken in; try again")]
    Busy,
    /// One client has sent very many.
    #[error(
        "this client has sent 64 MiB in a day (a report counts 4 KiB at least), which is enough"
    )]
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

/// Why a folder is of no use for reports.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// This process may not write there.
    #[error(
        "the server, which runs as the user above, cannot write there; give that user the folder, or start the server with --user"
    )]
    Write(#[source] io::Error),
    /// It cannot give a file a name only if nothing has it. NFS cannot.
    #[error(
        "its file system does not rename a file without overwriting another (RENAME_NOREPLACE); NFS does not. Take a folder on a disk of this computer"
    )]
    Rename(#[source] io::Error),
}

/// The folder that reports are kept in.
#[derive(Debug)]
pub struct Reports {
    path: PathBuf,
    folder: OwnedFd,
    limits: Limits,
    patience: Duration,
    usage: Mutex<ReportUsage>,
    /// A permit came free.
    free: Condvar,
}

/// What of the [`Limits`] is used, by the folder, by memory and by each client.
#[derive(Debug, Default)]
struct ReportUsage {
    files: u64,
    bytes: u64,
    /// When the folder was full and was looked at again.
    looked: Option<Instant>,
    /// Whose bodies are in memory.
    permits: Vec<IpAddr>,
    /// Since when which client has sent how many bytes.
    clients: HashMap<IpAddr, (SystemTime, u64)>,
}

/// Permission to have one report in memory; given back when dropped.
#[derive(Debug)]
pub(crate) struct UploadPermit {
    reports: Arc<Reports>,
    /// Whose it is: a client, or a machine with all its addresses.
    owner: IpAddr,
}

impl UploadPermit {
    /// Keeps the report, that came from `client` at `now`.
    ///
    /// # Errors
    /// As [`Reports::keep_for`].
    pub(crate) fn keep(
        &self,
        bytes: &[u8],
        client: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        self.reports.keep_for(self.owner, bytes, client, now)
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let permits = &mut self.reports.usage().permits;
        permits.retain(|owner| *owner != self.owner);
        // Who waits may wait for this owner's permit or for any.
        self.reports.free.notify_all();
    }
}

impl Reports {
    /// Counts what the folder has, and removes what was not finished by a server before.
    ///
    /// # Errors
    /// When `path` is no folder, or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with_limits(path, LIMITS, PATIENCE)
    }

    fn with_limits(path: &Path, limits: Limits, patience: Duration) -> io::Result<Self> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = open(path, how, Mode::empty())?;
        for_each(&folder, |name| {
            if name.to_bytes().starts_with(UNFINISHED.as_bytes()) {
                let _ = unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir);
            }
        })?;
        let (files, bytes) = kept(&folder)?;
        Ok(Self {
            path: path.to_owned(),
            folder,
            limits,
            patience,
            usage: Mutex::new(ReportUsage {
                files,
                bytes,
                ..ReportUsage::default()
            }),
            free: Condvar::new(),
        })
    }

    /// Where the folder is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process can keep files there.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn try_to_write(&self) -> Result<(), Unusable> {
        let (draft, name) = (unfinished(), unfinished());
        drop(self.create(&draft).map_err(Unusable::Write)?);
        if let Err(errno) = self.rename(&draft, &name) {
            let _ = self.remove(&draft);
            return Err(Unusable::Rename(errno.into()));
        }
        self.remove(&name).map_err(Unusable::Write)
    }

    fn usage(&self) -> MutexGuard<'_, ReportUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for a report of `client`, which waits for it while others have all, or the client has one.
    ///
    /// # Errors
    /// [`Refusal::Busy`] when that takes too long.
    pub(crate) fn permit(self: &Arc<Self>, client: IpAddr) -> Result<UploadPermit, Refusal> {
        self.permit_within(client, self.patience)
    }

    /// A permit for a report of a machine on a link of its own, which `machine` stands for, without a wait.
    ///
    /// # Errors
    /// [`Refusal::Busy`] when others have all, or the machine has one.
    pub(crate) fn permit_at_once(
        self: &Arc<Self>,
        machine: IpAddr,
    ) -> Result<UploadPermit, Refusal> {
        self.permit_within(machine, Duration::ZERO)
    }

    fn permit_within(
        self: &Arc<Self>,
        owner: IpAddr,
        patience: Duration,
    ) -> Result<UploadPermit, Refusal> {
        let is_taken = |usage: &mut ReportUsage| {
            usage.permits.len() >= AT_ONCE || usage.permits.contains(&owner)
        };
        let waited = self
            .free
            .wait_timeout_while(self.usage(), patience, is_taken);
        let (mut usage, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(Refusal::Busy);
        }
        usage.permits.push(owner);
        Ok(UploadPermit {
            reports: self.clone(),
            owner,
        })
    }

    /// Keeps a report that came from `client` at `now`, byte for byte, and counts it as one of `owner`. Returns the file's name.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is kept then.
    fn keep_for(
        &self,
        owner: IpAddr,
        bytes: &[u8],
        client: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let text = str::from_utf8(bytes).map_err(|_| Refusal::NoText)?;
        let report = Report::from_json(text)?;
        let length = counted(bytes.len() as u64);
        self.admit(length, owner, now)?;
        // Disks are slow: others come in meanwhile.
        let written = self.write(bytes, &stem(&report, client, now));
        if written.is_err() {
            self.usage().take_back(length, owner);
        }
        written
    }

    /// Counts so many bytes of an owner in, if they can be kept.
    fn admit(&self, length: u64, owner: IpAddr, now: SystemTime) -> Result<(), Refusal> {
        let admitted = self.usage().admit(length, owner, now, self.limits);
        if !matches!(admitted, Err(Refusal::Full)) || !self.usage().may_look(Instant::now()) {
            return admitted;
        }
        // Somebody may have moved some.
        let (files, bytes) = kept(&self.folder)?;
        let mut usage = self.usage();
        (usage.files, usage.bytes) = (files, bytes);
        usage.admit(length, owner, now, self.limits)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let how = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o644);
        Ok(openat(&self.folder, name, how, mode)?.into())
    }

    /// Renames a file, unless another has the name.
    fn rename(&self, from: &str, to: &str) -> nix::Result<()> {
        let flags = RenameFlags::RENAME_NOREPLACE;
        renameat2(&self.folder, from, &self.folder, to, flags)
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
            match self.rename(draft, &name) {
                Ok(()) => return Ok(name),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Refusal::Busy)
    }
}

impl ReportUsage {
    /// Counts so many bytes of a client in, if they can be kept.
    fn admit(
        &mut self,
        length: u64,
        client: IpAddr,
        now: SystemTime,
        limits: Limits,
    ) -> Result<(), Refusal> {
        if self.files >= limits.files || self.bytes.saturating_add(length) > limits.bytes {
            return Err(Refusal::Full);
        }
        let (since, sent) = self.sent(client, now);
        if sent + length > limits.of_client {
            return Err(Refusal::OfClient);
        }
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            self.clients.clear();
        }
        self.clients.insert(client, (since, sent + length));
        self.files += 1;
        self.bytes += length;
        Ok(())
    }

    /// What was counted in is not kept.
    fn take_back(&mut self, length: u64, client: IpAddr) {
        // Both may have been counted anew meanwhile.
        self.files = self.files.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(length);
        if let Some((_, sent)) = self.clients.get_mut(&client) {
            *sent = sent.saturating_sub(length);
        }
    }

    /// Whether the full folder is to be looked at again.
    fn may_look(&mut self, now: Instant) -> bool {
        let is_due = self
            .looked
            .is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY);
        if is_due {
            self.looked = Some(now);
        }
        is_due
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
}

/// What a file of so many bytes counts.
fn counted(length: u64) -> u64 {
    length.max(LEAST)
}

fn for_each(folder: &OwnedFd, mut what: impl FnMut(&CStr)) -> io::Result<()> {
    let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listed = Dir::openat(folder, ".", how, Mode::empty())?;
    for entry in listed.iter() {
        what(entry?.file_name());
    }
    Ok(())
}

/// How many files the folder has, and their bytes.
fn kept(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0_u64);
    for_each(folder, |name| {
        let found = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        let found = found
            .ok()
            .filter(|one| one.st_mode & libc::S_IFMT == libc::S_IFREG);
        if let Some(found) = found {
            files += 1;
            let length = counted(found.st_size.try_into().unwrap_or_default());
            bytes = bytes.saturating_add(length);
        }
    })?;
    Ok((files, bytes))
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
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    const REPORT: &str = r#"{"schema":1,"machine":{"mac":"52:54:00:77:00:0A"}}"#;
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    impl Reports {
        /// Keeps a report that counts as one of the client's own.
        fn keep(&self, bytes: &[u8], client: IpAddr, now: SystemTime) -> Result<String, Refusal> {
            self.keep_for(client, bytes, client, now)
        }
    }

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
        assert_eq!(next.usage().files, 3);
        assert_eq!(next.usage().bytes, 3 * LEAST);
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

    /// The files that are counted, and their bytes.
    fn counts(reports: &Reports) -> (u64, u64) {
        let usage = reports.usage();
        (usage.files, usage.bytes)
    }

    /// A folder that takes so much.
    fn limited(limits: Limits) -> (tempfile::TempDir, Reports) {
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::with_limits(folder.path(), limits, PATIENCE).unwrap();
        (folder, reports)
    }

    fn host(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[test]
    fn so_much_is_kept_of_a_client_in_a_day_and_so_much_in_all() {
        // The shortest report counts as much as one of 4 KiB.
        let (folder, reports) = limited(Limits {
            files: 5,
            bytes: 4 * LEAST,
            of_client: 2 * LEAST,
        });
        let keep = |number, days: u32| {
            let at = noon() + days * DAY;
            reports.keep(br#"{"schema":1}"#, host(number), at)
        };
        keep(1, 0).unwrap();
        keep(1, 0).unwrap();
        assert!(matches!(keep(1, 0), Err(Refusal::OfClient)));
        keep(2, 0).unwrap();
        keep(1, 1).unwrap();
        assert!(matches!(keep(3, 1), Err(Refusal::Full)));
        assert_eq!(names(folder.path()).len(), 4);
        let few = Limits { files: 4, ..LIMITS };
        let reports = Reports::with_limits(folder.path(), few, PATIENCE).unwrap();
        let refused = reports.keep(REPORT.as_bytes(), CLIENT, noon());
        assert!(matches!(refused, Err(Refusal::Full)));
    }

    #[test]
    fn a_longer_report_counts_its_bytes() {
        let (_folder, reports) = limited(Limits {
            of_client: 3 * LEAST,
            ..LIMITS
        });
        let long = REPORT.replace(
            "\"machine\"",
            &format!("\"x\":\"{}\",\"machine\"", "x".repeat(5000)),
        );
        reports.keep(long.as_bytes(), CLIENT, noon()).unwrap();
        assert_eq!(reports.usage().bytes, long.len() as u64);
        reports.keep(REPORT.as_bytes(), CLIENT, noon()).unwrap();
        let refused = reports.keep(REPORT.as_bytes(), CLIENT, noon());
        assert!(matches!(refused, Err(Refusal::OfClient)));
    }

    #[test]
    fn a_full_folder_takes_reports_again_when_some_were_moved_elsewhere() {
        let (folder, reports) = limited(Limits { files: 2, ..LIMITS });
        let keep = || reports.keep(REPORT.as_bytes(), CLIENT, noon());
        let first = keep().unwrap();
        keep().unwrap();
        assert!(matches!(keep(), Err(Refusal::Full)));
        std::fs::remove_file(folder.path().join(&first)).unwrap();
        assert!(
            matches!(keep(), Err(Refusal::Full)),
            "it was looked at just now"
        );
        let before = Instant::now().checked_sub(LOOK_EVERY).unwrap();
        reports.usage().looked = Some(before);
        assert_eq!(keep().unwrap(), first);
        assert_eq!(counts(&reports), (2, 2 * LEAST));
    }

    #[test]
    fn what_could_not_be_written_does_not_count() {
        let (folder, reports) = limited(Limits {
            of_client: LEAST,
            ..LIMITS
        });
        std::fs::remove_dir(folder.path()).unwrap();
        for _ in 0..2 {
            let refused = reports.keep(REPORT.as_bytes(), CLIENT, noon());
            assert!(matches!(refused, Err(Refusal::Io(_))), "{refused:?}");
        }
        assert_eq!(counts(&reports), (0, 0));
    }

    /// A folder whose clients wait so long for a permit.
    fn patient(patience: Duration) -> (tempfile::TempDir, Arc<Reports>) {
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::with_limits(folder.path(), LIMITS, patience).unwrap();
        (folder, Arc::new(reports))
    }

    #[test]
    fn few_are_in_memory_at_a_time_and_one_of_a_client() {
        let (_folder, reports) = patient(Duration::from_millis(20));
        let mut permits: Vec<_> = (1..AT_ONCE as u8)
            .map(|number| reports.permit(host(number)).unwrap())
            .collect();
        assert!(matches!(reports.permit(host(1)), Err(Refusal::Busy)));
        permits.push(reports.permit(host(8)).unwrap());
        assert!(matches!(reports.permit(host(9)), Err(Refusal::Busy)));
        permits.remove(0);
        assert!(reports.permit(host(1)).is_ok());
    }

    #[test]
    fn who_comes_when_all_permits_are_given_waits() {
        let (_folder, reports) = patient(Duration::from_secs(60));
        let mut permits: Vec<_> = (1..=AT_ONCE as u8)
            .map(|number| reports.permit(host(number)).unwrap())
            .collect();
        std::thread::scope(|scope| {
            let own = scope.spawn(|| reports.permit(host(1)).is_ok());
            let other = scope.spawn(|| reports.permit(host(9)).is_ok());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!own.is_finished() && !other.is_finished());
            permits.remove(0);
            assert!(own.join().unwrap() && other.join().unwrap());
        });
    }

    /// What `body` has, in a thread of its own, which may give up rights.
    fn apart<T: Send>(body: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(body).join().unwrap())
    }

    #[test]
    fn a_folder_that_cannot_be_read_or_written_is_told_of() {
        assert!(Reports::open(Path::new("/nowhere")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::open(folder.path()).unwrap();
        let mode = std::fs::Permissions::from_mode(0o555);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        let tried = apart(|| {
            // With them root writes everywhere.
            let none = CapabilitySet::empty();
            let sets = CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            set_capabilities(None, sets).unwrap();
            reports.try_to_write()
        });
        assert!(matches!(tried, Err(Unusable::Write(_))), "{tried:?}");
        let said = tried.unwrap_err().to_string();
        assert!(said.contains("cannot write there"), "{said}");
    }

    #[test]
    fn a_folder_on_a_file_system_that_cannot_rename_so_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::open(folder.path()).unwrap();
        let tried = apart(|| {
            // NFS answers so.
            let filter = SeccompFilter::new(
                [(libc::SYS_renameat2, Vec::new())].into(),
                SeccompAction::Allow,
                SeccompAction::Errno(libc::EINVAL as u32),
                std::env::consts::ARCH.try_into().unwrap(),
            );
            let filter: BpfProgram = filter.unwrap().try_into().unwrap();
            seccompiler::apply_filter(&filter).unwrap();
            reports.try_to_write()
        });
        assert!(matches!(tried, Err(Unusable::Rename(_))), "{tried:?}");
        let said = tried.unwrap_err().to_string();
        assert!(said.contains("NFS"), "{said}");
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
