//! Rights that the server gives up once its privileged sockets are open, so that who takes it over has little.
//!
//! | what               | is left                                                                                    |
//! |--------------------|--------------------------------------------------------------------------------------------|
//! | user               | `nobody`, or who `--user` names; somebody who is not root stays who they are               |
//! | capabilities       | `CAP_NET_BIND_SERVICE`, if DHCP is served: its ports, and questions to other DHCP servers  |
//! | `no_new_privs`     | no program that is started gets rights back                                                |
//! | Landlock           | reading the served directory and wireboot.efi's, writing in the leases' folder; no TCP port |
//! | seccomp            | the system calls of [`calls`]; all others are answered with `ENOSYS`                       |
//!
//! A socket keeps the rights that it was opened with. So the packet socket of DHCP and ARP and the raw one of router advertisements need
//! nothing afterwards, nor do the ports of TFTP and HTTP. A TFTP transfer's own port is above 1023.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use anyhow::{Context, bail};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, make_bitflags,
};
use nix::unistd::{Gid, Uid, User, geteuid, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

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
    pub fn choose(name: Option<&str>) -> anyhow::Result<Option<Self>> {
        let found = User::from_name(name.unwrap_or(NOBODY));
        let found = found.with_context(|| format!("looking for the user {name:?}"))?;
        let account = match (found, name) {
            (Some(user), _) => Self {
                name: user.name,
                uid: user.uid,
                gid: user.gid,
                is_asked_for: name.is_some(),
            },
            (None, None) => Self {
                name: NOBODY.to_owned(),
                uid: Uid::from_raw(NOBODY_ID),
                gid: Gid::from_raw(NOBODY_ID),
                is_asked_for: false,
            },
            (None, Some(name)) => bail!("--user {name}: there is no such user"),
        };
        if geteuid().is_root() {
            return Ok(Some(account));
        }
        if account.is_asked_for && account.uid != geteuid() {
            bail!("--user {}: only root can become another user", account.name);
        }
        Ok(None)
    }

    /// Makes the folder that `file` is written in, if it is not there, and gives it to this user. What is there already goes to the user only
    /// if `is_ours` says that the folder is the server's, and nobody but root could have put anything into it.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn give_folder(&self, file: &Path, is_ours: bool) -> io::Result<()> {
        let Some(folder) = file.parent().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(());
        };
        let (uid, gid) = (Some(self.uid.as_raw()), Some(self.gid.as_raw()));
        match fs::symlink_metadata(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder)?;
                lchown(folder, uid, gid)
            }
            Err(error) => Err(error),
            Ok(now) => {
                let of_root_alone = now.is_dir() && now.uid() == 0 && now.mode() & 0o022 == 0;
                if is_ours && of_root_alone && !self.uid.is_root() {
                    // First what it holds: afterwards the user can put links there.
                    if fs::symlink_metadata(file).is_ok() {
                        lchown(file, uid, gid)?;
                    }
                    lchown(folder, uid, gid)?;
                }
                Ok(())
            }
        }
    }

    fn assume(&self) -> nix::Result<()> {
        // The groups first: where this user cannot be become, that fails and nothing has changed.
        setgroups(&[self.gid])?;
        setresgid(self.gid, self.gid, self.gid)?;
        setresuid(self.uid, self.uid, self.uid)
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
    /// The folder that is written to.
    pub written: Option<&'a Path>,
}

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
    let measures = [
        (
            "no_new_privs",
            rustix::thread::set_no_new_privs(true).map_err(anyhow::Error::from),
        ),
        ("Landlock", landlock(needs)),
        ("seccomp", seccomp()),
    ];
    let told = measures.into_iter().map(|(name, result)| match result {
        Ok(()) => name.to_owned(),
        Err(error) => format!("no {name} ({error})"),
    });
    let told: Vec<String> = told.collect();
    Ok(format!("running as {who}, with {}", told.join(", ")))
}

/// Only these files can be opened, and no TCP port.
fn landlock(needs: &Needs<'_>) -> anyhow::Result<()> {
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
    if let Some(folder) = needs.written
        && let Ok(folder) = PathFd::new(folder)
    {
        rules = rules.add_rule(PathBeneath::new(folder, write))?;
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => bail!("this kernel has none"),
        _ => Ok(()),
    }
}

/// Only the system calls of a server are left.
fn seccomp() -> anyhow::Result<()> {
    let filter = SeccompFilter::new(
        calls()?,
        // What a library tries first and the kernel may lack, it does without.
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter_all_threads(&filter)?)
}

/// The system calls that are left: files, sockets of IP, memory, threads, time.
fn calls() -> anyhow::Result<BTreeMap<libc::c_long, Vec<SeccompRule>>> {
    let mut calls: BTreeMap<_, Vec<SeccompRule>> =
        FREE.iter().map(|call| (*call, Vec::new())).collect();
    let argument = |operator, value| {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let domain = |domain: i32| argument(SeccompCmpOp::Eq, domain as u64);
    calls.insert(
        libc::SYS_socket,
        vec![domain(libc::AF_INET)?, domain(libc::AF_INET6)?],
    );
    // Threads, and no other processes.
    let thread = libc::CLONE_THREAD as u64;
    let is_thread = argument(SeccompCmpOp::MaskedEq(thread), thread)?;
    calls.insert(libc::SYS_clone, vec![is_thread]);
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
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_readlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    // Sockets.
    libc::SYS_bind,
    libc::SYS_connect,
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
    libc::SYS_tgkill,
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
    // Of the process that takes back the address of `--address`.
    libc::SYS_wait4,
    libc::SYS_waitid,
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
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn no_program_can_be_started_and_no_process_looked_into() {
        let calls = calls().unwrap();
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
        for call in [libc::SYS_socket, libc::SYS_clone] {
            assert!(!calls[&call].is_empty(), "{call} has no condition");
        }
    }

    /// The folder's owner after it was given to nobody.
    fn given(folder: &Path, is_ours: bool) -> u32 {
        let account = Account {
            name: String::new(),
            uid: Uid::from_raw(NOBODY_ID),
            gid: Gid::from_raw(NOBODY_ID),
            is_asked_for: false,
        };
        account
            .give_folder(&folder.join("leases"), is_ours)
            .unwrap();
        fs::symlink_metadata(folder).unwrap().uid()
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
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        let ours = folder("ours", 0o755);
        assert_eq!(given(&ours, true), NOBODY_ID);
        assert_eq!(owner(&ours.join("leases")), NOBODY_ID);
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
        assert_eq!(owner(&theirs.join("leases")), 0);
        // What a server that was taken over put there: a link to a file of root's.
        let secret = house.path().join("secret");
        fs::write(&secret, "").unwrap();
        fs::remove_file(ours.join("leases")).unwrap();
        std::os::unix::fs::symlink(&secret, ours.join("leases")).unwrap();
        assert_eq!(given(&ours, true), NOBODY_ID);
        assert_eq!(owner(&secret), 0);
    }
}
