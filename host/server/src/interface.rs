//! The network interface to serve.

use std::io;
use std::net::Ipv4Addr;

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
    /// True for one that machines may be connected to: up, no loopback, no point-to-point tunnel.
    pub may_have_machines: bool,
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
    }
    Ok(interfaces)
}
