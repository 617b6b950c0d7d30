//! Rights that the server gives up once its privileged sockets are open, so that who takes it over has little.
//!
//! | what               | is left                                                                                    |
//! |--------------------|--------------------------------------------------------------------------------------------|
//! | user               | `nobody`, or who `--user` names; somebody who is not root stays who they are               |
//! | capabilities       | `CAP_NET_BIND_SERVICE`, if DHCP is served: its ports, and questions to other DHCP servers  |
//! | `no_new_privs`     | no program that is started gets rights back                                                |
//! | Landlock           | reading the served directory and wireboot.efi's, writing in the folders of leases and reports; no TCP port |
//! | seccomp            | the system calls of [`calls`]; all others are answered with `ENOSYS`                       |
//!
//! A card with the server in it (`wireboot nic serve`) gives up the same, but for the user. It has its sockets and descriptors by then, too.
//!
//! A socket keeps the rights that it was opened with. So the packet socket of DHCP and ARP and the raw one of router advertisements need
//! nothing afterwards, nor do the ports of TFTP and HTTP. A TFTP transfer's own port is above 1023.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use anyhow::{Context, bail};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, make_bitflags,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::leases;

/// Who serves unless `--user` names somebody else.
const NOBODY: &str = "nobody";
/// User and group of nobody where the system has no such name.
const NOBODY_ID: u32 = 65534;

/// A user to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
    /// `--user` named it: a server that cannot become it does not start.
    is_asked_for: bool,
}

impl Account {
    /// The user `name`, or nobody. `None` for who is not root, and can become nobody else.
    ///
    /// # Errors
    /// When there is no such user, or it cannot be become.
    pub(crate) fn choose(name: Option<&str>) -> anyhow::Result<Option<Self>> {
        if name.is_none() && !geteuid().is_root() {
            return Ok(None);
        }
        let found = User::from_name(name.unwrap_or(NOBODY));
        let account = match (name, found) {
            (Some(name), Err(error)) => {
                return Err(error).with_context(|| format!("looking for the user {name}"));
            }
            (Some(name), Ok(None)) => bail!("--user {name}: there is no such user"),
            (_, Ok(Some(user))) => Self {
                name: user.name,
                uid: user.uid,
                gid: user.gid,
                is_asked_for: name.is_some(),
            },
            // nobody is known by its number, too.
            (None, Ok(None) | Err(_)) => Self {
                name: NOBODY.to_owned(),
                uid: Uid::from_raw(NOBODY_ID),
                gid: Gid::from_raw(NOBODY_ID),
                is_asked_for: false,
            },
        };
        if geteuid().is_root() {
            return Ok(Some(account));
        }
        if account.uid != geteuid() {
            bail!("--user {}: only root can become another user", account.name);
        }
        Ok(None)
    }

    /// Gives a folder and the files `names` in it to this user, unless others may write it. Links are not followed: a server that was taken
    /// over may have put them there. Returns the folder, which nobody else takes over as long as it is open.
    fn take_over(&self, folder: &Path, names: &[OsString]) -> io::Result<Option<File>> {
        let how = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let folder = match open(folder, how | OFlag::O_DIRECTORY, Mode::empty()) {
            Err(Errno::ELOOP | Errno::ENOTDIR) => return Ok(None),
            opened => File::from(opened?),
        };
        if folder.metadata()?.mode() & 0o022 != 0 {
            return Ok(None);
        }
        // Servers of one user share it; one of another user would take it from them.
        if let Err(TryLockError::WouldBlock) = folder.try_lock()
            && folder.metadata()?.uid() != self.uid.as_raw()
        {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let (uid, gid) = (Some(self.uid.as_raw()), Some(self.gid.as_raw()));
        for name in names {
            let Ok(file) = openat(&folder, name.as_os_str(), how, Mode::empty()) else {
                continue;
            };
            let file = File::from(file);
            let now = file.metadata()?;
            // One with another name elsewhere may be a file of root's.
            if now.is_file() && now.nlink() == 1 {
                fchown(&file, uid, gid)?;
            }
        }
        fchown(&folder, uid, gid)?;
        // Who holds it otherwise, against the rules, does no harm.
        let _ = folder.try_lock_shared();
        Ok(Some(folder))
    }

    fn assume(&self) -> nix::Result<()> {
        // The groups first: where this user cannot be become, that fails and nothing has changed.
        if self.is_asked_for {
            let name = CString::new(self.name.as_str()).map_err(|_| Errno::EINVAL)?;
            initgroups(&name, self.gid)?;
        } else {
            setgroups(&[self.gid])?;
        }
        setresgid(self.gid, self.gid, self.gid)?;
        setresuid(self.uid, self.uid, self.uid)
    }
}

/// Makes the folder that the leases in `file` are written in, if it is not there, and gives it to `account`, if there is one. What is there
/// already goes to the user only if `is_ours` says that the folder is the server's. Returns a folder that was given away, to be kept open as
/// long as the server runs.
///
/// # Errors
/// When the folder cannot be made, or given away; [`io::ErrorKind::ResourceBusy`] when a server of another user has it.
pub(crate) fn prepare_folder(
    file: &Path,
    is_ours: bool,
    account: Option<&Account>,
) -> io::Result<Option<File>> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let new = leases::new_of(Path::new(name)).into_os_string();
    prepare(folder, &[name.to_owned(), new], is_ours, account)
}

/// Makes a folder that is written in, if it is not there, and gives a new one to `account`, if there is one. Returns a folder that was given
/// away, to be kept open as long as the server runs.
///
/// # Errors
/// When the folder cannot be made, or given away.
pub(crate) fn prepare_new_folder(
    folder: &Path,
    account: Option<&Account>,
) -> io::Result<Option<File>> {
    prepare(folder, &[], false, account)
}

fn prepare(
    folder: &Path,
    names: &[OsString],
    is_ours: bool,
    account: Option<&Account>,
) -> io::Result<Option<File>> {
    let is_new = fs::symlink_metadata(folder).is_err();
    fs::create_dir_all(folder)?;
    match account {
        Some(account) if is_new || is_ours => account.take_over(folder, names),
        _ => Ok(None),
    }
}

/// What the server still has to do.
#[derive(Debug)]
pub(crate) struct Needs<'a> {
    /// Binding UDP ports below 1024.
    pub low_ports: bool,
    /// The directory that is served.
    pub served: BorrowedFd<'a>,
    /// Other folders that files are read from.
    pub read: Vec<OwnedFd>,
    /// The folders that are written to.
    pub written: Vec<PathFd>,
    /// The folders that names are removed from at the end.
    pub emptied: Vec<PathFd>,
    /// Whose system calls are left.
    pub confined: Confined,
}

/// Which process is confined: each has system calls of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confined {
    /// A boot server on a network.
    Server,
    /// A network card with a boot server in it, which has no network.
    Card,
}

/// What a server needs: sockets of IP ([`calls`] says of which), and the process that takes back the address of `--address`.
const SERVER: &[libc::c_long] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// What a card needs: files that the kernel has in its cache, threads of its own with doorbells, machines that come and go, their memory, and the
/// names of its sockets at the end.
const CARD: &[libc::c_long] = &[
    libc::SYS_preadv2,
    libc::SYS_fstatfs,
    libc::SYS_eventfd2,
    libc::SYS_socketpair,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
];

/// Becomes `account`, if there is one, and keeps those of its capabilities that are in `kept`. Says who it is.
///
/// # Errors
/// When the user was asked for and cannot be become, or the capabilities cannot be given up.
pub(crate) fn become_user(
    account: Option<&Account>,
    kept: CapabilitySet,
) -> anyhow::Result<String> {
    rustix::thread::set_keep_capabilities(true).context("keeping capabilities")?;
    let mut who = format!("user {}", geteuid());
    if let Some(account) = account {
        who = match account.assume() {
            Ok(()) => format!("user {}", account.name),
            // Groups stay as they are in a user namespace.
            Err(_) if account.uid == geteuid() => format!("user {}", account.name),
            Err(errno) if account.is_asked_for => {
                return Err(errno).with_context(|| format!("becoming the user {}", account.name));
            }
            Err(errno) => format!("{who} (cannot become {}: {errno})", account.name),
        };
    }
    let had = rustix::thread::capabilities(None).context("reading the capabilities")?;
    let kept = kept & had.permitted;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).context("giving up capabilities")?;
    Ok(who)
}

/// Gives up all that the server does not need. From here on this thread and those that it starts are confined. Says what is in force.
///
/// # Errors
/// As [`become_user`]; what the kernel lacks is none.
pub(crate) fn confine(account: Option<&Account>, needs: &Needs<'_>) -> anyhow::Result<String> {
    let kept = match needs.low_ports {
        true => CapabilitySet::NET_BIND_SERVICE,
        false => CapabilitySet::empty(),
    };
    let who = become_user(account, kept)?;
    let no_new_privs = rustix::thread::set_no_new_privs(true).map_err(anyhow::Error::from);
    let measures = [
        ("no_new_privs", no_new_privs.map(|()| "")),
        ("Landlock", landlock(needs).and_then(in_force)),
        ("seccomp", seccomp(needs.confined).map(|()| "")),
    ];
    let told = measures.into_iter().map(|(name, result)| match result {
        Ok(how) => format!("{name}{how}"),
        Err(error) => format!("no {name} ({error})"),
    });
    let told: Vec<String> = told.collect();
    Ok(format!("running as {who}, with {}", told.join(", ")))
}

/// Only these files can be opened, and no TCP port.
fn landlock(needs: &Needs<'_>) -> anyhow::Result<RulesetStatus> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    // A journal is written beside the old one, and renamed.
    let write = make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile
    });
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V5))?
        .create()?
        .add_rule(PathBeneath::new(needs.served, read))?;
    for folder in &needs.read {
        rules = rules.add_rule(PathBeneath::new(folder, read))?;
    }
    for folder in &needs.written {
        rules = rules.add_rule(PathBeneath::new(folder, write))?;
    }
    let remove = make_bitflags!(AccessFs::{RemoveFile | RemoveDir});
    for folder in &needs.emptied {
        rules = rules.add_rule(PathBeneath::new(folder, remove))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// What is to be added about Landlock.
fn in_force(status: RulesetStatus) -> anyhow::Result<&'static str> {
    match status {
        RulesetStatus::FullyEnforced => Ok(""),
        RulesetStatus::PartiallyEnforced => Ok(" in part (this kernel knows less of it)"),
        RulesetStatus::NotEnforced => bail!("this kernel has none"),
    }
}

/// Only the system calls that `confined` needs are left.
fn seccomp(confined: Confined) -> anyhow::Result<()> {
    let filter = SeccompFilter::new(
        calls(confined)?,
        // What a library tries first and the kernel may lack, it does without.
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter_all_threads(&filter)?)
}

/// The system calls that are left: files, what sockets there are, memory, threads, time, and what `confined` needs besides.
fn calls(confined: Confined) -> anyhow::Result<BTreeMap<libc::c_long, Vec<SeccompRule>>> {
    let mut calls: BTreeMap<_, Vec<SeccompRule>> = FREE
        .iter()
        .chain(match confined {
            Confined::Server => SERVER,
            Confined::Card => CARD,
        })
        .map(|call| (*call, Vec::new()))
        .collect();
    let argument = |number, operator, value| {
        let condition = SeccompCondition::new(number, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let domain = |domain: i32| argument(0, SeccompCmpOp::Eq, domain as u64);
    if confined == Confined::Server {
        calls.insert(
            libc::SYS_socket,
            vec![domain(libc::AF_INET)?, domain(libc::AF_INET6)?],
        );
    }
    // Threads, and no other processes.
    let thread = libc::CLONE_THREAD as u64;
    let is_thread = argument(0, SeccompCmpOp::MaskedEq(thread), thread)?;
    calls.insert(libc::SYS_clone, vec![is_thread]);
    // Sockets are made non-blocking, and nothing is typed into the terminal of who started the server (TIOCSTI).
    let is_fionbio = argument(1, SeccompCmpOp::Eq, libc::FIONBIO)?;
    calls.insert(libc::SYS_ioctl, vec![is_fionbio]);
    // A program that aborts sends itself a signal.
    let is_own = argument(0, SeccompCmpOp::Eq, std::process::id().into())?;
    calls.insert(libc::SYS_tgkill, vec![is_own]);
    Ok(calls)
}

/// Those that need no look at their arguments.
const FREE: &[libc::c_long] = &[
    // Files. Landlock and the user say which.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_getdents64,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_sendfile,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    // Memory, threads, time, the end.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_geteuid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Names that newer architectures do without.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn no_program_can_be_started_and_no_process_looked_into() {
        for confined in [Confined::Server, Confined::Card] {
            no_harm(&calls(confined).unwrap());
        }
        assert!(!calls(Confined::Server).unwrap()[&libc::SYS_socket].is_empty());
        // The card has no network.
        let calls = calls(Confined::Card).unwrap();
        for call in [libc::SYS_socket, libc::SYS_bind, libc::SYS_connect] {
            assert!(!calls.contains_key(&call), "{call}");
        }
    }

    fn no_harm(calls: &BTreeMap<libc::c_long, Vec<SeccompRule>>) {
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_clone3,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_mount,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_kill,
            libc::SYS_setuid,
            libc::SYS_chmod,
            libc::SYS_fchmodat,
            libc::SYS_fchownat,
        ] {
            assert!(!calls.contains_key(&call), "{call}");
        }
        assert!(!calls[&libc::SYS_clone].is_empty(), "it has no condition");
    }

    #[test]
    fn what_landlock_does_not_enforce_is_told() {
        assert_eq!(in_force(RulesetStatus::FullyEnforced).unwrap(), "");
        let part = in_force(RulesetStatus::PartiallyEnforced).unwrap();
        assert!(part.starts_with(" in part"));
        assert!(in_force(RulesetStatus::NotEnforced).is_err());
    }

    #[test]
    fn nothing_else_is_opened_or_removed() {
        let house = tempfile::tempdir().unwrap();
        let path = |name: &str| house.path().join(name);
        for folder in ["served", "written", "emptied", "else"] {
            fs::create_dir(path(folder)).unwrap();
            fs::write(path(folder).join("file"), "").unwrap();
            fs::create_dir(path(folder).join("folder")).unwrap();
        }
        std::os::unix::fs::symlink(path("else"), path("served/link")).unwrap();
        let served = File::open(path("served")).unwrap();
        let needs = Needs {
            low_ports: false,
            served: served.as_fd(),
            read: Vec::new(),
            written: vec![PathFd::new(path("written")).unwrap()],
            emptied: vec![PathFd::new(path("emptied")).unwrap()],
            confined: Confined::Card,
        };
        let denied = |result: io::Result<()>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let reads = |name: &str| File::open(path(name)).map(drop);
        let makes = |name: &str| File::create(path(name)).map(drop);
        // A thread's rules are its own.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rustix::thread::set_no_new_privs(true).unwrap();
                if in_force(landlock(&needs).unwrap()).is_err() {
                    // This kernel has no Landlock, and the server says so.
                    return;
                }
                reads("served/file").unwrap();
                for other in ["else/file", "served/link/file", "emptied/file"] {
                    assert!(denied(reads(other)), "{other}");
                }
                assert!(denied(File::open("/etc/passwd").map(drop)));
                makes("written/new").unwrap();
                for other in ["served/new", "served/file", "emptied/new", "else/new"] {
                    assert!(denied(makes(other)), "{other}");
                }
                fs::remove_file(path("emptied/file")).unwrap();
                fs::remove_dir(path("emptied/folder")).unwrap();
                assert!(denied(fs::remove_file(path("served/file"))));
                assert!(denied(fs::remove_dir(path("else/folder"))));
            });
        });
    }

    /// What `body` has, in a thread with the server's filter.
    fn filtered<T: Send>(body: impl FnOnce() -> T + Send) -> T {
        let filter = SeccompFilter::new(
            calls(Confined::Server).unwrap(),
            SeccompAction::Errno(libc::ENOSYS as u32),
            SeccompAction::Allow,
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let filter: BpfProgram = filter.unwrap().try_into().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                seccompiler::apply_filter(&filter).unwrap();
                body()
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn nothing_can_be_typed_into_a_terminal() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let typed = || {
            // SAFETY: the byte outlives the call.
            let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCSTI, b"x".as_ptr()) };
            Errno::result(result)
        };
        assert_eq!(typed(), Err(Errno::ENOTTY), "without the filter");
        filtered(|| {
            assert_eq!(typed(), Err(Errno::ENOSYS));
            socket.set_nonblocking(true).unwrap();
        });
    }

    #[test]
    fn no_other_process_gets_a_signal() {
        let signal = |process: u32, thread: i32| {
            // SAFETY: signal 0 is sent to nobody; the call takes numbers only.
            let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
            Errno::result(result).map(drop)
        };
        let other = nix::unistd::getppid().as_raw();
        let ours = std::process::id();
        assert_ne!(
            signal(other as u32, other),
            Err(Errno::ENOSYS),
            "without the filter"
        );
        filtered(|| {
            assert_eq!(signal(other as u32, other), Err(Errno::ENOSYS));
            assert_eq!(signal(ours, ours as i32), Ok(()));
        });
    }

    fn account(id: u32) -> Account {
        Account {
            name: String::new(),
            uid: Uid::from_raw(id),
            gid: Gid::from_raw(id),
            is_asked_for: false,
        }
    }

    fn owner(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().uid()
    }

    /// The folder's owner after it was given to nobody.
    fn given(folder: &Path, is_ours: bool) -> u32 {
        let nobody = account(NOBODY_ID);
        prepare_folder(&folder.join("leases"), is_ours, Some(&nobody)).unwrap();
        owner(folder)
    }

    #[test]
    fn a_folder_is_given_away_only_if_nobody_else_could_write_it() {
        if !geteuid().is_root() {
            // Only root can give files away; the tests in namespaces run as root.
            return;
        }
        let house = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode| {
            let folder = house.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("leases"), "").unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            folder
        };
        let ours = folder("ours", 0o755);
        fs::write(ours.join("leases.new"), "").unwrap();
        fs::write(ours.join("else"), "").unwrap();
        assert_eq!(given(&ours, true), NOBODY_ID);
        assert_eq!(owner(&ours.join("leases")), NOBODY_ID);
        assert_eq!(owner(&ours.join("leases.new")), NOBODY_ID);
        assert_eq!(owner(&ours.join("else")), 0);
        assert_eq!(given(&house.path().join("made/new"), false), NOBODY_ID);
        assert_eq!(owner(&house.path().join("made")), 0);
        let theirs = folder("theirs", 0o755);
        assert_eq!(given(&theirs, false), 0);
        for (name, mode) in [("open", 0o777), ("group", 0o775)] {
            let shared = folder(name, mode);
            assert_eq!(given(&shared, true), 0);
            assert_eq!(owner(&shared.join("leases")), 0);
        }
        let link = house.path().join("link");
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        assert_eq!(given(&link, true), 0);
        assert_eq!(owner(&theirs), 0);
        assert_eq!(owner(&theirs.join("leases")), 0);
        // What a server that was taken over put there: links to a file of root's.
        let secret = house.path().join("secret");
        fs::write(&secret, "").unwrap();
        fs::remove_file(ours.join("leases")).unwrap();
        std::os::unix::fs::symlink(&secret, ours.join("leases")).unwrap();
        assert_eq!(given(&ours, true), NOBODY_ID);
        assert_eq!(owner(&secret), 0);
        fs::remove_file(ours.join("leases")).unwrap();
        fs::hard_link(&secret, ours.join("leases")).unwrap();
        assert_eq!(given(&ours, true), NOBODY_ID);
        assert_eq!(owner(&secret), 0);
    }

    #[test]
    fn our_folder_goes_from_one_user_to_the_next() {
        if !geteuid().is_root() {
            return;
        }
        let house = tempfile::tempdir().unwrap();
        let folder = house.path().join("wireboot");
        let (eth0, eth1) = (folder.join("eth0.leases"), folder.join("eth1.leases"));
        fs::create_dir(&folder).unwrap();
        for file in [&eth0, &eth1] {
            fs::write(file, "").unwrap();
        }
        // Root's file of a second interface, in a folder that is nobody's already.
        for file in [&eth0, &eth1] {
            prepare_folder(file, true, Some(&account(NOBODY_ID))).unwrap();
            assert_eq!([owner(&folder), owner(file)], [NOBODY_ID; 2]);
        }
        for user in [1234, 0] {
            prepare_folder(&eth0, true, Some(&account(user))).unwrap();
            assert_eq!([owner(&folder), owner(&eth0)], [user; 2]);
        }
        assert_eq!(owner(&eth1), NOBODY_ID);
    }
}
