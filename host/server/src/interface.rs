//! The network interface to serve.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// An interface as the system has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Its IPv4 addresses with the bits of their networks' prefixes.
    pub addresses: Vec<(Ipv4Addr, u8)>,
    /// Its IPv6 addresses with the bits of their networks' prefixes.
    pub ipv6_addresses: Vec<(Ipv6Addr, u8)>,
    /// True for one that machines may be connected to: up, no loopback, no point-to-point tunnel.
    pub may_have_machines: bool,
}

impl Interface {
    /// The IPv6 address to be reached at from all the network: the lowest one that is not link-local. The system's order tells nothing.
    pub fn ipv6(&self) -> Option<(Ipv6Addr, u8)> {
        let addresses = self.ipv6_addresses.iter().copied();
        addresses
            .filter(|(address, _)| !address.is_unicast_link_local())
            .min()
    }

    /// Its link-local IPv6 address.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        let mut addresses = self.ipv6_addresses.iter().map(|(address, _)| *address);
        addresses.find(Ipv6Addr::is_unicast_link_local)
    }
}

/// All interfaces, in the system's order.
///
/// # Errors
/// When the system does not tell.
pub fn all() -> io::Result<Vec<Interface>> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in getifaddrs()? {
        let at = match interfaces
            .iter()
            .position(|interface| interface.name == entry.interface_name)
        {
            Some(at) => at,
            None => {
                let apart = InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_POINTOPOINT;
                interfaces.push(Interface {
                    index: if_nametoindex(entry.interface_name.as_str()).unwrap_or(0),
                    name: entry.interface_name,
                    mac: None,
                    addresses: Vec::new(),
                    ipv6_addresses: Vec::new(),
                    may_have_machines: entry.flags.contains(InterfaceFlags::IFF_UP)
                        && !entry.flags.intersects(apart),
                });
                interfaces.len() - 1
            }
        };
        let Some(interface) = interfaces.get_mut(at) else {
            continue;
        };
        let Some(address) = entry.address else {
            continue;
        };
        if let Some(link) = address.as_link_addr() {
            interface.mac = link.addr();
        }
        if let Some(address) = address.as_sockaddr_in() {
            let mask = entry
                .netmask
                .and_then(|mask| mask.as_sockaddr_in().map(|mask| mask.ip()));
            let prefix = u32::from(mask.unwrap_or(Ipv4Addr::BROADCAST)).leading_ones() as u8;
            interface.addresses.push((address.ip(), prefix));
        }
        if let Some(address) = address.as_sockaddr_in6() {
            let mask = entry
                .netmask
                .and_then(|mask| mask.as_sockaddr_in6().map(|mask| mask.ip()));
            let prefix = mask.map_or(128, |mask| u128::from(mask).leading_ones()) as u8;
            interface.ipv6_addresses.push((address.ip(), prefix));
        }
    }
    Ok(interfaces)
}
