//! The network interface to serve.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// An interface as the system has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The system's name for it, such as `eth0`.
    pub name: String,
    /// The system's number for it (if_nametoindex(3)).
    pub index: u32,
    /// Its Ethernet address; `None` where it has none of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Its IPv4 addresses with the bits of their networks' prefixes.
    pub addresses: Vec<(Ipv4Addr, u8)>,
    /// Its IPv6 addresses with the bits of their networks' prefixes.
    pub ipv6_addresses: Vec<(Ipv6Addr, u8)>,
    /// True for one that machines may be connected to: up, no loopback, no point-to-point tunnel.
    pub may_have_machines: bool,
    /// True for the interface to this computer itself.
    pub is_loopback: bool,
}

impl Interface {
    /// The IPv6 address to be reached at from all the network: the lowest one that is not link-local. The system's order tells nothing.
    pub fn ipv6(&self) -> Option<(Ipv6Addr, u8)> {
        let addresses = self.ipv6_addresses.iter().copied();
        addresses
            .filter(|(address, _)| !address.is_unicast_link_local())
            .min()
    }

    /// The networks that it is in.
    pub fn networks(&self) -> Networks {
        let ipv4 = self
            .addresses
            .iter()
            .map(|&(ip, prefix)| (ip.into(), prefix));
        let ipv6 = self.ipv6_addresses.iter();
        let ipv6 = ipv6.map(|&(ip, prefix)| (ip.into(), prefix.min(IPV6_PREFIX)));
        Networks(ipv4.chain(ipv6).collect())
    }

    /// Its link-local IPv6 address.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        let mut addresses = self.ipv6_addresses.iter().map(|(address, _)| *address);
        addresses.find(Ipv6Addr::is_unicast_link_local)
    }
}

/// Networks by an address and the bits of the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(Vec<(IpAddr, u8)>);

impl Networks {
    /// Whether `address` is of one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        let same = |(network, prefix): &(IpAddr, u8)| match (*network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = u32::from(network) ^ u32::from(address);
                differ.leading_zeros() >= u32::from(*prefix)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = u128::from(network) ^ u128::from(address);
                differ.leading_zeros() >= u32::from(*prefix)
            }
            _ => false,
        };
        self.0.iter().any(same)
    }
}

impl From<Vec<(IpAddr, u8)>> for Networks {
    fn from(networks: Vec<(IpAddr, u8)>) -> Self {
        Self(networks)
    }
}

/// Bits of the prefix of an IPv6 network (RFC 4291 section 2.5.4). An address by DHCPv6 comes with 128, which says nothing of the network.
const IPV6_PREFIX: u8 = 64;

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
                    is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_networks_of_an_interface() {
        let interface = Interface {
            name: String::new(),
            index: 1,
            mac: None,
            addresses: vec![(Ipv4Addr::new(10, 9, 3, 1), 22)],
            ipv6_addresses: vec![
                ("fe80::1".parse().unwrap(), 64),
                ("2001:db8::5".parse().unwrap(), 128),
                ("fd00::1".parse().unwrap(), 48),
            ],
            may_have_machines: true,
            is_loopback: false,
        };
        let networks = interface.networks();
        for (address, inside) in [
            ("10.9.0.0", true),
            ("10.9.3.255", true),
            ("10.9.4.0", false),
            ("10.8.255.255", false),
            ("fe80::ffff:ffff:ffff:ffff", true),
            ("fe80:0:0:1::", false),
            ("2001:db8::1:2:3:4", true),
            ("2001:db8:0:1::5", false),
            ("fd00:0:0:ffff::1", true),
            ("fd00:0:1::1", false),
            ("::ffff:10.9.3.1", false),
        ] {
            assert_eq!(
                networks.contain(address.parse().unwrap()),
                inside,
                "{address}"
            );
        }
        let all = Networks::from(vec![(Ipv4Addr::UNSPECIFIED.into(), 0)]);
        assert!(all.contain(Ipv4Addr::new(192, 0, 2, 1).into()));
    }
}
