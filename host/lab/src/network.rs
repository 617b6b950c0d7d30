//! The lab's network: an interface `lab0` on which servers listen, a cable to the virtual machine, and more computers where wanted.
//!
//! ```text
//!  plain:   servers on lab0 = tap ──── VM          bridged:  servers on lab0 = bridge ┬ tap vm0 ──── VM
//!                                                                                     └ veth ──── station
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, setns, unshare};

use crate::netns::{Lab, tool};
use crate::qemu::NetworkCard;
use crate::wire::{self, Impairment, Wire};

/// The interface on which the lab's servers listen.
pub const INTERFACE: &str = "lab0";
/// The servers' own address on [`INTERFACE`].
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The length of the network's prefix in bits.
pub const PREFIX_LENGTH: u8 = 24;

/// How the network is made.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// The interfaces' MTU in bytes.
    pub mtu: u16,
    /// A bridge in front of the machine, to which stations can be joined. Without it the machine's cable is `lab0` itself.
    pub bridge: bool,
    /// Loss and delay on the machine's cable. Such a cable is made of a process that copies frames one by one: without offloads
    /// and slow, so not for measurements of speed.
    pub impairment: Option<Impairment>,
    /// The VLAN whose tag frames have on the machine's cable, as on a switch's trunk port. Such a cable is slow too.
    pub vlan: Option<u16>,
    /// Queue pairs of the machine's card.
    pub queues: u16,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            bridge: false,
            impairment: None,
            vlan: None,
            queues: 1,
        }
    }
}

/// A network that exists as long as this value.
#[derive(Debug)]
pub struct Network {
    scratch: PathBuf,
    options: NetworkOptions,
    tap: &'static str,
    wire: Option<Wire>,
}

impl Network {
    /// Makes the network, with [`SERVER`] as the address of [`INTERFACE`].
    ///
    /// # Errors
    /// When an interface cannot be made: usually /dev/net/tun is missing or closed to the user.
    pub fn new(lab: &Lab, options: NetworkOptions) -> Result<Network> {
        let tap = if options.bridge { "vm0" } else { INTERFACE };
        let mtu = options.mtu.to_string();
        let wire = match (&options.impairment, options.vlan) {
            (Some(impairment), vlan) => {
                Some(Wire::new(tap, impairment.clone(), vlan, options.queues)?)
            }
            (None, vlan @ Some(_)) => {
                Some(Wire::new(tap, Impairment::default(), vlan, options.queues)?)
            }
            (None, None) => {
                let several = (options.queues > 1).then_some("multi_queue");
                tool(
                    "ip",
                    ["tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr"]
                        .into_iter()
                        .chain(several),
                )?;
                None
            }
        };
        let network = Network {
            scratch: lab.scratch().to_owned(),
            options,
            tap,
            wire,
        };
        tool("ip", ["link", "set", tap, "mtu", &mtu])?;
        if network.options.bridge {
            tool(
                "ip",
                [
                    "link",
                    "add",
                    "name",
                    INTERFACE,
                    "mtu",
                    &mtu,
                    "type",
                    "bridge",
                    "forward_delay",
                    "0",
                    "mcast_snooping",
                    "0",
                ],
            )?;
            tool("ip", ["link", "set", tap, "master", INTERFACE, "up"])?;
        }
        tool(
            "ip",
            [
                "address",
                "add",
                &format!("{SERVER}/{PREFIX_LENGTH}"),
                "dev",
                INTERFACE,
            ],
        )?;
        tool("ip", ["link", "set", INTERFACE, "up"])?;
        Ok(network)
    }

    /// The interfaces' MTU in bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.options.mtu
    }

    /// Frames that the impairment of the machine's cable has taken so far, of both directions; none without one.
    #[must_use]
    pub fn lost_frames(&self) -> u64 {
        self.wire.as_ref().map_or(0, Wire::lost)
    }

    /// A card on the machine's end of the cable, the first boot device.
    #[must_use]
    pub fn card(&self) -> NetworkCard {
        let mut card = NetworkCard::new(self.qemu_netdev());
        if self.options.queues > 1 {
            card.properties.push("mq=on".to_owned());
        }
        card
    }

    /// The machine's end of the cable, as the value of QEMU's `-netdev` option, with the id `net0`.
    #[must_use]
    pub fn qemu_netdev(&self) -> String {
        match &self.wire {
            None => wire::tap_netdev(self.tap, self.options.queues),
            Some(wire) => wire.qemu_netdev().to_owned(),
        }
    }

    /// Joins another computer to the bridge, with the given address in the network.
    ///
    /// # Errors
    /// When its namespace or cable cannot be made.
    pub fn station(&self, name: &str, address: Ipv4Addr) -> Result<Station> {
        let namespace = self.scratch.join(format!("{name}.netns"));
        File::create(&namespace).context("making a name for the station's namespace")?;
        pin_new_namespace(&namespace)?;
        let path = namespace
            .to_str()
            .context("the scratch directory's name is not UTF-8")?
            .to_owned();
        let station = Station {
            name: name.to_owned(),
            namespace,
            scratch: self.scratch.clone(),
        };
        tool(
            "ip",
            [
                "link", "add", "name", name, "type", "veth", "peer", "name", INTERFACE, "netns",
                &path,
            ],
        )?;
        let mtu = self.options.mtu.to_string();
        tool(
            "ip",
            ["link", "set", name, "mtu", &mtu, "master", INTERFACE, "up"],
        )?;
        for arguments in [
            &["link", "set", "lo", "up"][..],
            &["link", "set", INTERFACE, "mtu", &mtu, "up"],
            &[
                "address",
                "add",
                &format!("{address}/{PREFIX_LENGTH}"),
                "dev",
                INTERFACE,
            ],
        ] {
            tool(
                "nsenter",
                [&format!("--net={path}"), "ip"]
                    .into_iter()
                    .map(AsRef::as_ref)
                    .chain(arguments.iter().copied()),
            )?;
        }
        Ok(station)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.wire = None;
        let mut interfaces = vec![INTERFACE];
        if self.options.bridge {
            interfaces.push(self.tap);
        }
        for interface in interfaces {
            // Gone already where it was the wire's own; whatever is left goes with the namespace.
            let _ = tool("ip", ["link", "delete", interface]);
        }
    }
}

/// A computer of its own on a bridged network: its interface is called `lab0` there too.
#[derive(Debug)]
pub struct Station {
    name: String,
    namespace: PathBuf,
    scratch: PathBuf,
}

impl Station {
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
        let mut namespace = std::ffi::OsString::from("--net=");
        namespace.push(&self.namespace);
        command
            .arg(namespace)
            .arg(program)
            .current_dir(&self.scratch)
            .stdin(std::process::Stdio::null());
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
