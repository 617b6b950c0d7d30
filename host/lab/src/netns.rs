//! Namespaces of the lab's own, so that it needs nothing of the host's network and leaves nothing behind.
//!
//! ```text
//! wireboot lab ...            supervisor: waits, removes the scratch directory
//!   └ wireboot lab ...        the same program again, process 1 of new network, mount and process namespaces
//!       ├ qemu                all of these end with process 1,
//!       ├ dnsmasq, nginx ...  and process 1 ends with the supervisor
//! ```

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getegid, geteuid};

/// Set for the copy of the program that runs inside; its value is the scratch directory.
const INSIDE: &str = "WIREBOOT_LAB_SCRATCH";

/// The inside of the lab's namespaces.
#[derive(Debug)]
pub struct Lab {
    scratch: PathBuf,
}

impl Lab {
    /// Starts this program again, with the same arguments, inside new namespaces, and returns only in that copy. The outer copy waits
    /// for it and exits with its exit status. Call it first in `main`: a process with several threads cannot change namespaces.
    ///
    /// As root it needs nothing more; as an ordinary user, a kernel that allows user namespaces.
    ///
    /// # Errors
    /// When the kernel refuses the namespaces, with what to do about it.
    pub fn enter() -> Result<Self> {
        match std::env::var_os(INSIDE) {
            Some(scratch) => Self::inside(scratch.into()),
            None => supervise(),
        }
    }

    /// Whether this is the copy of the program that runs inside.
    #[must_use]
    pub fn is_inside() -> bool {
        std::env::var_os(INSIDE).is_some()
    }

    fn inside(scratch: PathBuf) -> Result<Self> {
        set_pdeathsig(Signal::SIGKILL).context("asking to end with the supervisor")?;
        // Blocked by the supervisor and inherited; the lab's tools are to hear them.
        SigSet::all()
            .thread_unblock()
            .context("unblocking signals")?;
        // Nothing mounted from here on may reach the host.
        mount(
            None::<&str>,
            "/",
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            None::<&str>,
        )
        .context("making mounts private")?;
        // Tools that look at /proc should see the lab's processes. A container may forbid it; nothing here depends on it.
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        if let Err(error) = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
            log::debug!("the lab keeps the host's /proc: {error}");
        }
        tool("ip", ["link", "set", "lo", "up"])?;
        Ok(Self { scratch })
    }

    /// A directory for images, sockets, captures and logs. It is removed when the lab ends.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// A command that will run inside the lab, its working directory the scratch directory, its standard input empty.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.scratch).stdin(Stdio::null());
        command
    }
}

/// Runs a tool to its end; its error output becomes the error.
///
/// # Errors
/// When the tool cannot be started or fails.
pub fn tool<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = command
        .output()
        .with_context(|| format!("starting {program}: is it installed?"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

fn supervise() -> Result<Lab> {
    new_namespaces()?;
    let scratch = tempfile::Builder::new()
        .prefix("wireboot-lab-")
        .tempdir()
        .context("making a scratch directory")?;

    // Taken by wait() below, so that the scratch directory goes away on Ctrl-C too. The copy inside lets them through again.
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ] {
        signals.add(signal);
    }
    signals.thread_block().context("blocking signals")?;

    let program = std::env::current_exe().context("finding this program's own file")?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let mut child = command
        .args(arguments)
        .env(INSIDE, scratch.path())
        .spawn()
        .context("starting inside the lab")?;
    let code = loop {
        match signals.wait().context("waiting for the lab")? {
            Signal::SIGCHLD => {
                if let Some(status) = child.try_wait().context("waiting for the lab")? {
                    break exit_code(status);
                }
            }
            signal => {
                // Process 1 of a process namespace takes the rest with it.
                let _ = child.kill();
                let _ = child.wait();
                // A progress bar may have hidden the cursor.
                eprint!("\x1b[?25h");
                break 128 + signal as i32;
            }
        }
    };
    drop(scratch);
    std::process::exit(code)
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn new_namespaces() -> Result<()> {
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if geteuid().is_root() && unshare(flags).is_ok() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    if let Err(error) = unshare(flags | CloneFlags::CLONE_NEWUSER) {
        bail!(
            "the kernel refuses the lab its namespaces ({error}). Run it as root, or allow user namespaces: \
             sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), \
             user.max_user_namespaces above 0; in a container, add CAP_SYS_ADMIN"
        );
    }
    fs::write("/proc/self/setgroups", "deny").context("denying setgroups in the user namespace")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))
        .context("mapping the user to root of the user namespace")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
        .context("mapping the group to root of the user namespace")
}
