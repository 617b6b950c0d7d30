//! The interface and the addresses to serve at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, bail};

use crate::arp_probe::who_has;
use crate::dhcp::hardware_address;
use crate::event::Events;
use crate::interface::Interface;

/// An address with the bits of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// An IPv4 or IPv6 address, host bits included.
    pub address: IpAddr,
    /// 0 to 32, or to 128.
    pub prefix: u8,
}

impl FromStr for Cidr {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let address: IpAddr = address.parse().ok()?;
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.parse().ok().filter(|prefix| *prefix <= bits)?;
            Some(Self { address, prefix })
        });
        parsed.ok_or("expected an address with its prefix, such as 192.168.7.1/24 or fd00:7::1/64")
    }
}

/// The first and the last of some IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address, which belongs to the range.
    pub first: Ipv4Addr,
    /// The last; not before the first.
    pub last: Ipv4Addr,
}

impl FromStr for AddressRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('-').and_then(|(first, last)| {
            Some(Self {
                first: first.trim().parse().ok()?,
                last: last.trim().parse().ok()?,
            })
        });
        parsed
            .filter(|range| range.first <= range.last)
            .ok_or("expected the first and the last address, such as 192.168.7.100-192.168.7.200")
    }
}

/// The interface to serve: the named one, or the only one that machines may be connected to.
pub(super) fn choose_interface(
    all: Vec<Interface>,
    name: Option<&str>,
    has_address: bool,
) -> anyhow::Result<Interface> {
    let list = |interfaces: &[Interface]| {
        let line = |interface: &Interface| {
            let ipv4 = interface.addresses.iter();
            let ipv4 = ipv4.map(|(address, prefix)| format!(" {address}/{prefix}"));
            let ipv6 = interface.ipv6();
            let ipv6 = ipv6.map(|(address, prefix)| format!(" {address}/{prefix}"));
            let addresses: String = ipv4.chain(ipv6).collect();
            format!("\n  {}{addresses}", interface.name)
        };
        interfaces.iter().map(line).collect::<String>()
    };
    if let Some(name) = name {
        let Some(interface) = all.iter().find(|interface| interface.name == name) else {
            bail!(
                "there is no network interface {name}; there are:{}",
                list(&all)
            );
        };
        if interface.is_loopback {
            bail!("no machine is connected to the loopback interface {name}");
        }
        return Ok(interface.clone());
    }
    let usable = |interface: &Interface| {
        let addressed = !interface.addresses.is_empty() || interface.ipv6().is_some();
        interface.may_have_machines && (has_address || addressed)
    };
    let mut candidates: Vec<Interface> = all.into_iter().filter(usable).collect();
    match candidates.len() {
        1 => Ok(candidates.remove(0)),
        0 => bail!(
            "no network interface is up and has an address; set one up, or name one with --interface and --address"
        ),
        _ => bail!(
            "several network interfaces could be meant; choose one with --interface:{}",
            list(&candidates)
        ),
    }
}

/// The addresses that clients are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// The IPv4 address and the bits of its prefix.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// The IPv6 address: one that all the network reaches, else the link-local one.
    pub ipv6: Option<(Ipv6Addr, u8)>,
}

impl Addresses {
    /// Those that were asked for, else what the interface has.
    pub(super) fn of(interface: &Interface, asked: &[Cidr], no_ipv6: bool) -> anyhow::Result<Self> {
        let asked4 = asked.iter().find_map(|cidr| match cidr.address {
            IpAddr::V4(address) => Some((address, cidr.prefix)),
            IpAddr::V6(_) => None,
        });
        let asked6 = asked.iter().find_map(|cidr| match cidr.address {
            IpAddr::V6(address) => Some((address, cidr.prefix)),
            IpAddr::V4(_) => None,
        });
        let own6 = || interface.ipv6_addresses.first().copied();
        let ipv6 = asked6.or_else(|| interface.ipv6()).or_else(own6);
        let this = Self {
            ipv4: asked4.or_else(|| interface.addresses.first().copied()),
            ipv6: ipv6.filter(|_| !no_ipv6),
        };
        // A link-local address alone says nothing about whether this network is to be served.
        if this.ipv4.is_none() && this.ipv6_network().is_none() {
            bail!(
                "the interface {} has no address; give it one with --address, such as --address 192.168.7.1/24",
                interface.name
            );
        }
        Ok(this)
    }

    /// The network whose addresses are to be had by IPv6.
    pub(super) fn ipv6_network(self) -> Option<(Ipv6Addr, u8)> {
        self.ipv6
            .filter(|(address, _)| !address.is_unicast_link_local())
    }

    /// Hosts as they stand in URLs.
    pub(super) fn hosts(self) -> impl Iterator<Item = String> {
        let ipv4 = self.ipv4.map(|(address, _)| address.to_string());
        let ipv6 = self.ipv6.map(|(address, _)| format!("[{address}]"));
        ipv4.into_iter().chain(ipv6)
    }
}

/// An address that the interface has while this lives, and no longer than the process.
#[derive(Debug)]
pub(super) struct TemporaryAddress {
    /// Takes the address back when its input ends, with the rights that the server had when it started. `None`: it was there before.
    keeper: Option<Child>,
}

/// What the keeper does. Signals to the whole group of processes are not for it.
const KEEPER: &str = r#"trap "" HUP INT TERM; cat; exec ip address delete "$0" dev "$1""#;

impl TemporaryAddress {
    /// Gives the interface `cidr`, unless it has it.
    ///
    /// # Errors
    /// When somebody else has the address, or the interface cannot be given it.
    pub(super) fn add(interface: &Interface, cidr: Cidr, events: &Events) -> anyhow::Result<Self> {
        let has = match cidr.address {
            IpAddr::V4(address) => interface.addresses.contains(&(address, cidr.prefix)),
            IpAddr::V6(address) => interface.ipv6_addresses.contains(&(address, cidr.prefix)),
        };
        if has {
            return Ok(Self { keeper: None });
        }
        let name = interface.name.as_str();
        let text = format!("{}/{}", cidr.address, cidr.prefix);
        ip(&["link", "set", "dev", name, "up"])?;
        let mut add = vec!["address", "add", &text, "dev", name];
        // For an IPv6 address the kernel asks itself (RFC 4862 section 5.4).
        if let IpAddr::V4(address) = cidr.address {
            refuse_taken(address, interface, events)?;
            add.extend(["broadcast", "+"]);
        }
        ip(&add)?;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, &text, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match keeper {
            Ok(keeper) => Ok(Self {
                keeper: Some(keeper),
            }),
            Err(error) => {
                let _ = ip(&["address", "delete", &text, "dev", name]);
                Err(error).context("cannot run `sh`, which takes the address back at the end")
            }
        }
    }
}

impl Drop for TemporaryAddress {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            // This ends its input first.
            let _ = keeper.wait();
        }
    }
}

/// Refuses an address that somebody has on the network: it would reach one of the two hosts by chance. Says so if that cannot be asked.
fn refuse_taken(address: Ipv4Addr, interface: &Interface, events: &Events) -> anyhow::Result<()> {
    match who_has(address, interface) {
        Ok(None) => {}
        Ok(Some(mac)) => bail!(
            "--address {address}: the machine {} on the network of {} has this address already; name one that nobody has, or give that machine another",
            hardware_address(&mac),
            interface.name
        ),
        Err(error) => events.say(format!(
            "whether somebody has {address} already cannot be asked before {} is given it (by ARP): {error}",
            interface.name
        )),
    }
    Ok(())
}

/// Runs the command `ip` of iproute2.
fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("cannot run `ip` (Debian's package iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}` failed: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[(Ipv4Addr, u8)], may_have_machines: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 1,
            mac: None,
            addresses: addresses.to_vec(),
            ipv6_addresses: Vec::new(),
            may_have_machines,
            is_loopback: false,
        }
    }

    #[test]
    fn the_only_interface_that_serves_is_chosen() {
        let lan = (Ipv4Addr::new(10, 0, 0, 1), 24);
        let all = vec![
            interface("lo", &[(Ipv4Addr::LOCALHOST, 8)], false),
            interface("down", &[], true),
            interface("lan", &[lan], true),
        ];
        let chosen = choose_interface(all.clone(), None, false).unwrap();
        assert_eq!(chosen.name, "lan");
        assert_eq!(
            choose_interface(all.clone(), Some("lo"), false)
                .unwrap()
                .name,
            "lo"
        );
        let error = choose_interface(all.clone(), Some("eth9"), false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("eth9") && error.contains("lan 10.0.0.1/24"),
            "{error}"
        );
        let error = choose_interface(all, None, true).unwrap_err().to_string();
        assert!(
            error.contains("--interface") && error.contains("down"),
            "{error}"
        );
        let error = choose_interface(vec![], None, false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--address"), "{error}");
    }

    #[test]
    fn arguments_are_checked() {
        assert!("10.0.0.1".parse::<Cidr>().is_err());
        assert!("10.0.0.1/33".parse::<Cidr>().is_err());
        assert!("fd00::1/129".parse::<Cidr>().is_err());
        assert_eq!("fd00::1/64".parse::<Cidr>().unwrap().prefix, 64);
        assert!("10.0.0.9-10.0.0.1".parse::<AddressRange>().is_err());
        let range: AddressRange = "10.0.0.1-10.0.0.9".parse().unwrap();
        assert_eq!(range.last, Ipv4Addr::new(10, 0, 0, 9));
    }

    #[test]
    fn what_was_asked_for_comes_before_what_is_there() {
        let link_local = ("fe80::1".parse().unwrap(), 64);
        let global = ("2001:db8::1".parse().unwrap(), 64);
        let mut lan = interface("lan", &[(Ipv4Addr::new(10, 0, 0, 1), 24)], true);
        lan.ipv6_addresses = vec![link_local, global];
        let all = Addresses::of(&lan, &[], false).unwrap();
        assert_eq!(all.ipv6, Some(global));
        assert_eq!(all.ipv6_network(), Some(global));
        assert_eq!(
            all.hosts().collect::<Vec<_>>(),
            ["10.0.0.1", "[2001:db8::1]"]
        );
        let asked = ["10.9.0.1/8".parse().unwrap(), "fd00::9/48".parse().unwrap()];
        let other = Addresses::of(&lan, &asked, false).unwrap();
        assert_eq!(other.ipv4, Some((Ipv4Addr::new(10, 9, 0, 1), 8)));
        assert_eq!(other.ipv6, Some(("fd00::9".parse().unwrap(), 48)));
        assert_eq!(Addresses::of(&lan, &[], true).unwrap().ipv6, None);

        lan.ipv6_addresses = vec![link_local];
        let both = Addresses::of(&lan, &[], false).unwrap();
        assert_eq!((both.ipv6, both.ipv6_network()), (Some(link_local), None));
        lan.addresses.clear();
        assert!(Addresses::of(&lan, &[], false).is_err());
    }
}
