//! The lab's network: an interface `lab0` on which servers listen, a cable to the virtual machine, and more computers where wanted.
//!
//! ```text
//!  plain:   servers on lab0 = tap ──── VM          bridged:  servers on lab0 = bridge ┬ tap vm0 ──── VM
//!                                                                                     └ veth ──── station
//! ```

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::aggregation;
use crate::background::Background;
use crate::ip::IpVersion;
use crate::netns::{Lab, tool};
use crate::qemu::NetworkCard;
pub use crate::station::{INTERFACE, Station};
use crate::wire::{self, Impairment, Wire};

/// The servers' own address on [`INTERFACE`].
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The same in IPv6.
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1);
/// The length of the network's prefix in bits.
pub const PREFIX_LENGTH: u8 = 24;
/// The same in IPv6.
pub const PREFIX_LENGTH6: u8 = 64;

/// The servers' address in a version of IP.
#[must_use]
pub fn server(version: IpVersion) -> IpAddr {
    match version {
        IpVersion::V4 => SERVER.into(),
        IpVersion::V6 => SERVER6.into(),
    }
}

/// The length of the network's prefix in a version of IP, in bits.
#[must_use]
pub fn prefix_length(version: IpVersion) -> u8 {
    match version {
        IpVersion::V4 => PREFIX_LENGTH,
        IpVersion::V6 => PREFIX_LENGTH6,
    }
}

/// An address with the length of the lab's prefixes, as `ip address add` takes it.
pub fn with_prefix(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}/{PREFIX_LENGTH}"),
        IpAddr::V6(address) => format!("{address}/{PREFIX_LENGTH6}"),
    }
}

/// How the network is made.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// The interfaces' MTU in bytes.
    pub mtu: u16,
    /// A bridge in front of the machine, to which stations can be joined. Without it the machine's cable is `lab0` itself.
    pub bridge: bool,
    /// The bridge speaks the spanning tree protocol, and holds the machine's port for 30 s when its link comes up.
    pub spanning_tree: bool,
    /// The machine's port of the bridge belongs to a group: it waits for LACP, forwards nothing meanwhile, and falls back so long
    /// after the machine's first frame. Only with a bridge.
    pub aggregation: Option<Duration>,
    /// Loss and delay on the machine's cable. Such a cable is made of a process that copies frames one by one: without offloads
    /// and slow, so not for measurements of speed.
    pub impairment: Option<Impairment>,
    /// The VLAN whose tag frames have on the machine's cable, as on a switch's trunk port. Such a cable is slow too.
    pub vlan: Option<u16>,
    /// Queue pairs of the machine's card.
    pub queues: u16,
    /// The versions of IP in which [`INTERFACE`] has an address.
    pub ip: &'static [IpVersion],
}

impl NetworkOptions {
    /// The plain network, with addresses of one version of IP alone.
    #[must_use]
    pub fn of(version: IpVersion) -> Self {
        Self {
            ip: match version {
                IpVersion::V4 => &[IpVersion::V4],
                IpVersion::V6 => &[IpVersion::V6],
            },
            ..Self::default()
        }
    }
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            bridge: false,
            spanning_tree: false,
            aggregation: None,
            impairment: None,
            vlan: None,
            queues: 1,
            ip: &[IpVersion::V4],
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
    aggregation: Option<Background>,
}

impl Network {
    /// Makes the network, with [`server`]'s addresses at [`INTERFACE`].
    ///
    /// # Errors
    /// When an interface cannot be made: usually /dev/net/tun is missing or closed to the user.
    pub fn new(lab: &Lab, options: NetworkOptions) -> Result<Self> {
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
        let mut network = Self {
            scratch: lab.scratch().to_owned(),
            options,
            tap,
            wire,
            aggregation: None,
        };
        tool("ip", ["link", "set", tap, "mtu", &mtu])?;
        if network.options.bridge {
            // The kernel's own delay is 15 s, for listening and again for learning.
            let tree: &[&str] = if network.options.spanning_tree {
                &["stp_state", "1"]
            } else {
                &["forward_delay", "0"]
            };
            let bridge = [
                "link",
                "add",
                "name",
                INTERFACE,
                "mtu",
                &mtu,
                "type",
                "bridge",
                "mcast_snooping",
                "0",
            ];
            tool("ip", bridge.iter().chain(tree))?;
            tool("ip", ["link", "set", tap, "master", INTERFACE, "up"])?;
        }
        for version in network.options.ip {
            tool("ip", address(server(*version)))?;
        }
        // Its own address of the link: servers of DHCPv6 and router advertisements wait until it is no longer tentative.
        let file = format!("/proc/sys/net/ipv6/conf/{INTERFACE}/accept_dad");
        fs::write(&file, "0").with_context(|| format!("writing {file}"))?;
        tool("ip", ["link", "set", INTERFACE, "up"])?;
        let aggregation = network.options.aggregation;
        network.aggregation = aggregation
            .map(|fallback| aggregation::start(tap, fallback))
            .transpose()?;
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

    /// The interface at which the machine's cable ends.
    #[must_use]
    pub fn cable(&self) -> &str {
        self.tap
    }

    /// Pairs of queues of the card on the machine's end of the cable.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.options.queues
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

    /// Joins another computer to the bridge, without an address of ours.
    ///
    /// # Errors
    /// When its namespace or cable cannot be made.
    pub fn stranger(&self, name: &str) -> Result<Station> {
        let station = Station::new(&self.scratch, name, self.options.mtu)?;
        tool("ip", ["link", "set", name, "master", INTERFACE])?;
        Ok(station)
    }

    /// Joins another computer to the bridge, with the given address in the network.
    ///
    /// # Errors
    /// When its namespace or cable cannot be made.
    pub fn station(&self, name: &str, at: impl Into<IpAddr>) -> Result<Station> {
        let station = self.stranger(name)?;
        let address = address(at.into());
        let address: Vec<_> = address.iter().map(String::as_str).collect();
        station.ip(&address)?;
        Ok(station)
    }
}

/// A network that is out of the way: see [`Network::aside`].
#[derive(Debug)]
pub struct Aside<'a> {
    _network: &'a Network,
}

/// The interface's name meanwhile.
const ASIDE: &str = "aside0";

impl Network {
    /// Takes a network of IPv4 without a bridge out of the way until this is dropped, so that there can be another one.
    ///
    /// # Errors
    /// When it is another one, or its interface cannot be renamed.
    pub fn aside(&self) -> Result<Aside<'_>> {
        // With the link the kernel would forget addresses of IPv6.
        ensure!(
            !self.options.bridge && self.options.ip == [IpVersion::V4],
            "only a network of IPv4 without a bridge can make way for another"
        );
        let aside = Aside { _network: self };
        tool("ip", ["link", "set", INTERFACE, "down"])?;
        tool("ip", ["link", "set", INTERFACE, "name", ASIDE])?;
        Ok(aside)
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        // An error shows at the network's next use.
        let _ = tool("ip", ["link", "set", ASIDE, "name", INTERFACE]);
        let _ = tool("ip", ["link", "set", INTERFACE, "up"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.aggregation = None;
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

/// Arguments for `ip` that give the lab's interface an address. Nobody else has it, so it need not be tried out first.
fn address(address: IpAddr) -> Vec<String> {
    let at_once = address.is_ipv6().then_some("nodad");
    ["address", "add", &with_prefix(address), "dev", INTERFACE]
        .into_iter()
        .chain(at_once)
        .map(str::to_owned)
        .collect()
}
