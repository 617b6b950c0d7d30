//! Computers of the lab's own, each a network namespace.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, setns, unshare};

use crate::netns::tool;

/// The interface on which the lab's servers listen.
pub const INTERFACE: &str = "lab0";

/// A computer of its own: its interface is called `lab0` there too.
#[derive(Debug)]
pub struct Station {
    name: String,
    namespace: PathBuf,
    scratch: PathBuf,
}

impl Station {
    /// A computer whose cable ends in an interface `name` here, with the given MTU. Both ends are up and have no address.
    pub(crate) fn new(scratch: &Path, name: &str, mtu: u16) -> Result<Self> {
        let station = Self::without_cable(scratch, name)?;
        cable(name, &station, INTERFACE, None, mtu)?;
        Ok(station)
    }

    /// A computer with its loopback interface alone.
    pub(crate) fn without_cable(scratch: &Path, name: &str) -> Result<Self> {
        let namespace = scratch.join(format!("{name}.netns"));
        File::create(&namespace).context("making a name for the station's namespace")?;
        pin_new_namespace(&namespace)?;
        let station = Self {
            name: name.to_owned(),
            namespace,
            scratch: scratch.to_owned(),
        };
        station.ip(&["link", "set", "lo", "up"])?;
        Ok(station)
    }

    /// The value of nsenter's and ip's options that name its namespace.
    fn namespace(&self) -> Result<&str> {
        self.namespace
            .to_str()
            .context("the scratch directory's name is not UTF-8")
    }

    /// Runs `ip` at the station.
    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<()> {
        let namespace = format!("--net={}", self.namespace()?);
        let program = [namespace.as_str(), "ip"];
        tool("nsenter", program.iter().chain(arguments))
    }

    /// Has the station pass on what is not its own, in both versions of IP.
    pub(crate) fn forward(&self) -> Result<()> {
        let namespace = File::open(&self.namespace).context("opening the station's namespace")?;
        let thread = std::thread::spawn(move || -> Result<()> {
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .context("entering the station's namespace")?;
            forward()
        });
        thread
            .join()
            .map_err(|_| anyhow!("the thread that sets up a router panicked"))?
    }

    /// Moves the calling thread, and what it starts, to the station.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self) -> Result<()> {
        let namespace = File::open(&self.namespace).context("opening the station's namespace")?;
        setns(namespace, CloneFlags::CLONE_NEWNET).context("entering the station's namespace")
    }

    /// A command that will run at the station.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let mut namespace = OsString::from("--net=");
        namespace.push(&self.namespace);
        command
            .arg(namespace)
            .arg(program)
            .current_dir(&self.scratch)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        // The cable would go with the namespace too, but later: the name is to be free at once.
        let _ = tool("ip", ["link", "delete", &self.name]);
        let _ = umount(&self.namespace);
        let _ = fs::remove_file(&self.namespace);
    }
}

/// A cable of the given MTU between an interface `name` at `from`, or here, and `peer` at `to`. Both ends are up.
pub(crate) fn cable(
    name: &str,
    to: &Station,
    peer: &str,
    from: Option<&Station>,
    mtu: u16,
) -> Result<()> {
    let mtu = mtu.to_string();
    let here = |arguments: &[&str]| match from {
        Some(station) => station.ip(arguments),
        None => tool("ip", arguments),
    };
    here(&[
        "link",
        "add",
        "name",
        name,
        "mtu",
        &mtu,
        "type",
        "veth",
        "peer",
        "name",
        peer,
        "mtu",
        &mtu,
        "netns",
        to.namespace()?,
    ])?;
    to.ip(&["link", "set", peer, "up"])?;
    here(&["link", "set", name, "up"])
}

/// Has the computer of the calling thread pass on what is not its own: /proc/sys/net is the thread's.
pub(crate) fn forward() -> Result<()> {
    for file in [
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/net/ipv6/conf/all/forwarding",
    ] {
        fs::write(file, "1").with_context(|| format!("writing {file}"))?;
    }
    Ok(())
}

/// Makes a network namespace and keeps it alive under the name `path`. Namespaces belong to threads: a new one enters, and ends.
fn pin_new_namespace(path: &Path) -> Result<()> {
    let path = path.to_owned();
    let thread = std::thread::spawn(move || -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNET).context("making the station's network namespace")?;
        mount(
            Some("/proc/thread-self/ns/net"),
            &path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .context("keeping the station's network namespace")
    });
    thread
        .join()
        .map_err(|_| anyhow!("the thread that makes a namespace panicked"))?
}
