//! The servers under load, each set up to serve as many clients as come.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;

use crate::protocol::TransferProtocol;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, SERVER};
use wireboot_lab::packages::Package;
use wireboot_lab::server::AS_ROOT;
use wireboot_lab::{nginx, tftpd_hpa};

/// Transfers at a time that the servers are told to allow, where they want to be told.
const MOST_TRANSFERS: usize = 2000;

/// Which server has the load, and by which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// `wireboot serve`
    Ours,
    /// dnsmasq's TFTP server
    Dnsmasq,
    /// atftpd, which knows windows too
    Atftpd,
    TftpdHpa,
    /// `wireboot serve`, its HTTP
    OursHttp,
    Nginx,
}

impl Kind {
    /// Those that serve by TFTP.
    pub(super) const TFTP: [Self; 4] = [Self::Ours, Self::Dnsmasq, Self::Atftpd, Self::TftpdHpa];
    /// Those that serve by HTTP.
    pub(super) const HTTP: [Self; 2] = [Self::OursHttp, Self::Nginx];

    /// What it is asked by.
    #[must_use]
    pub(super) fn protocol(self) -> TransferProtocol {
        if Self::HTTP.contains(&self) {
            TransferProtocol::Http
        } else {
            TransferProtocol::Tftp
        }
    }

    /// Whether it is `wireboot serve`.
    #[must_use]
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursHttp)
    }

    /// The one that the others by the same protocol are compared with.
    #[must_use]
    pub(super) fn rival(self) -> Self {
        match self.protocol() {
            TransferProtocol::Tftp => Self::Atftpd,
            TransferProtocol::Http => Self::Nginx,
        }
    }

    /// As the report calls it.
    #[must_use]
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "wireboot serve",
            Self::Dnsmasq => "dnsmasq",
            Self::Atftpd => "atftpd",
            Self::TftpdHpa => tftpd_hpa::PACKAGE,
            Self::OursHttp => "wireboot serve, HTTP",
            Self::Nginx => "nginx",
        }
    }

    /// Its version.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn version(self) -> Result<String> {
        Ok(match self {
            Self::Ours | Self::OursHttp => env!("CARGO_PKG_VERSION").to_owned(),
            Self::Nginx => Package::installed("nginx")?.version,
            Self::Dnsmasq => Package::installed("dnsmasq-base")?.version,
            Self::Atftpd => Package::installed("atftpd")?.version,
            Self::TftpdHpa => Package::fetched(tftpd_hpa::PACKAGE)?.version,
        })
    }

    fn command(self, lab: &Lab, root: &Path) -> Result<Command> {
        let most = MOST_TRANSFERS.to_string();
        let address = SERVER.to_string();
        let mut command;
        match self {
            Self::Ours | Self::OursHttp => {
                let program = std::env::current_exe().context("finding this program's own file")?;
                command = lab.command(program);
                command.arg("serve").arg(root).args(AS_ROOT);
                command.args(["--interface", INTERFACE, "--no-dhcp"]);
                if self == Self::Ours {
                    command.arg("--no-http");
                }
            }
            Self::Nginx => {
                let nginx = lab.command("nginx");
                command = nginx::serve(nginx, SERVER.into(), root, lab.scratch())?;
            }
            Self::Dnsmasq => {
                command = lab.command("dnsmasq");
                command
                    .args(["--keep-in-foreground", "--pid-file", "--log-facility=-"])
                    .args(["--conf-file=/dev/null", "--user=root", "--group=root"])
                    .args(["--port=0", "--bind-interfaces", "--enable-tftp"])
                    .arg(format!("--interface={INTERFACE}"))
                    .arg(format!("--tftp-max={most}"))
                    .arg(format!("--tftp-root={}", root.display()));
            }
            Self::Atftpd => {
                command = lab.command("atftpd");
                command
                    .args(["--daemon", "--no-fork", "--user", "root", "--group", "root"])
                    .args(["--logfile", "-", "--maxthread", &most])
                    .args(["--bind-address", &address])
                    .arg(root);
            }
            Self::TftpdHpa => {
                command = tftpd_hpa::serve(lab, SERVER.into(), root, &[])?;
            }
        }
        Ok(command)
    }
}

/// A running server. It ends, with all its processes, with this value.
#[derive(Debug)]
pub(super) struct Running {
    kind: Kind,
    child: Child,
    log: PathBuf,
    /// Processor seconds of ended children when it was started.
    before: f64,
}

impl Running {
    /// Starts a server of `root` in the lab.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn start(lab: &Lab, kind: Kind, root: &Path) -> Result<Self> {
        let log = lab.scratch().join("load-server.log");
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let before = of_ended_children()?;
        let child = kind
            .command(lab, root)?
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}: is it installed?", kind.name()))?;
        Ok(Self {
            kind,
            child,
            log,
            before,
        })
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When it has ended, with what it said last.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("waiting for the server")? {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            bail!(
                "it ended ({status}): {}",
                said.lines().last().unwrap_or_default()
            );
        }
        Ok(())
    }

    /// Processor seconds of its threads so far, those of processes that it has started not included.
    #[must_use]
    pub(super) fn processor_seconds(&self) -> f64 {
        let tasks = format!("/proc/{}/task", self.child.id());
        let nanoseconds = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<f64>().ok()
        };
        let sum: f64 = fs::read_dir(tasks)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(nanoseconds)
            .sum();
        sum / 1e9
    }

    /// The most memory that its first process has had at a time, in KiB.
    #[must_use]
    pub(super) fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    }

    /// Ends it. Returns the processor seconds of its whole life; nothing where the system does not count them, as tftpd-hpa leaves the
    /// work to processes for whose end it does not wait.
    ///
    /// # Errors
    /// When the system does not say.
    pub(super) fn stop(mut self) -> Result<Option<f64>> {
        self.end();
        let all = of_ended_children()? - self.before;
        Ok((self.kind != Kind::TftpdHpa).then_some(all))
    }

    fn end(&mut self) {
        if let Ok(id) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn of_ended_children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("asking for processor times")?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
