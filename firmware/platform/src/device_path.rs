//! Device paths: reading what firmware says about how it loaded us, and telling those we load the same.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use uefi::Handle;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol};
use uefi::proto::device_path::build::{BuildNode, DevicePathBuilder, messaging};
use uefi::proto::device_path::messaging::{DnsAddressType, Ipv4AddressOrigin, Ipv6AddressOrigin};
use uefi::proto::device_path::{DevicePath, DevicePathNodeEnum, LoadedImageDevicePath};

/// The node that ends a path, and its bytes.
const END_NODE: [u8; 4] = [0x7f, 0xff, 4, 0];
const END: usize = END_NODE.len();

/// The nodes of a handle's device path, without end node.
pub(crate) fn of_handle(handle: Handle) -> Option<Box<[u8]>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the path is copied at once, with no firmware call between.
    let path: ScopedProtocol<DevicePath> =
        unsafe { boot::open_protocol(params, OpenProtocolAttributes::GetProtocol) }.ok()?;
    Some(nodes(path.get()?))
}

/// The nodes of the path that this image was loaded from, file part included.
pub(crate) fn of_image() -> Option<Box<[u8]>> {
    let params = OpenProtocolParams {
        handle: boot::image_handle(),
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the path is copied at once, with no firmware call between.
    let path: ScopedProtocol<LoadedImageDevicePath> =
        unsafe { boot::open_protocol(params, OpenProtocolAttributes::GetProtocol) }.ok()?;
    Some(nodes(path.get()?))
}

/// A path's nodes, without end node.
pub(crate) fn nodes(path: &DevicePath) -> Box<[u8]> {
    let bytes = path.as_bytes();
    bytes
        .get(..bytes.len().saturating_sub(END))
        .unwrap_or_default()
        .into()
}

/// Whether a path's nodes lead through a serial port.
pub(crate) fn is_serial(nodes: &[u8]) -> bool {
    let mut bytes = nodes.to_vec();
    bytes.extend(END_NODE);
    let path = <&DevicePath>::try_from(bytes.as_slice());
    path.is_ok_and(|path| {
        path.node_iter()
            .any(|node| matches!(node.as_enum(), Ok(DevicePathNodeEnum::MessagingUart(_))))
    })
}

/// What the network nodes of a device path say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPath {
    /// Station address of the interface.
    pub mac: Option<[u8; 6]>,
    /// The VLAN in which the firmware uses it.
    pub vlan: Option<u16>,
    /// The IPv4 or IPv6 node, where it names an address of the interface.
    pub ip: Option<IpNode>,
    /// Name servers of the DNS node.
    pub dns: Vec<IpAddr>,
    /// The URI node, where it is not empty.
    pub uri: Option<String>,
    /// The path ends in a file on a medium, and this is its name.
    pub file: Option<String>,
}

/// An IPv4 or IPv6 node. Its addresses are of the version of the interface's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNode {
    /// Address of the interface.
    pub local: IpAddr,
    /// Address of the server; `None` where the node has the unspecified address.
    pub remote: Option<IpAddr>,
    /// Address of the router; `None` where the node has the unspecified address.
    pub gateway: Option<IpAddr>,
    /// Length of the prefix or subnet mask. `None` when the node has none (0, or a mask with holes), or more than the address is long.
    pub prefix: Option<u8>,
}

fn some(address: impl Into<IpAddr>) -> Option<IpAddr> {
    let address = address.into();
    (!address.is_unspecified()).then_some(address)
}

impl NetworkPath {
    /// Reads a path's nodes (with or without end node). Malformed rests are ignored.
    #[must_use]
    pub fn parse(nodes: &[u8]) -> Self {
        let mut bytes = nodes.to_vec();
        if !nodes.ends_with(&END_NODE) {
            bytes.extend(END_NODE);
        }
        let mut found = Self::default();
        let Ok(path) = <&DevicePath>::try_from(bytes.as_slice()) else {
            return found;
        };
        for node in path.node_iter() {
            match node.as_enum() {
                Ok(DevicePathNodeEnum::MessagingMacAddress(node)) => {
                    found.mac = node.mac_address().first_chunk().copied();
                }
                Ok(DevicePathNodeEnum::MessagingVlan(node)) => {
                    found.vlan = Some(node.vlan_id());
                }
                Ok(DevicePathNodeEnum::MessagingIpv4(node)) => {
                    found.ip = some(node.local_ip_address()).map(|local| IpNode {
                        local,
                        remote: some(node.remote_ip_address()),
                        gateway: some(node.gateway_ip_address()),
                        prefix: prefix(node.subnet_mask()),
                    });
                }
                Ok(DevicePathNodeEnum::MessagingIpv6(node)) => {
                    found.ip = some(node.local_ip_address()).map(|local| IpNode {
                        local,
                        remote: some(node.remote_ip_address()),
                        gateway: some(node.gateway_ip_address()),
                        prefix: Some(node.prefix_length())
                            .filter(|length| matches!(length, 1..=128)),
                    });
                }
                Ok(DevicePathNodeEnum::MessagingDns(dns)) => {
                    // One byte of address family, then 16 bytes an address, of which IPv4 uses 4.
                    let addresses = node.data().get(1..).unwrap_or_default().chunks_exact(16);
                    let of_family = |entry: &[u8]| match dns.address_type() {
                        DnsAddressType::IPV4 => some(*entry.first_chunk::<4>()?),
                        DnsAddressType::IPV6 => some(*entry.first_chunk::<16>()?),
                        _ => None,
                    };
                    found.dns.extend(addresses.filter_map(of_family));
                }
                Ok(DevicePathNodeEnum::MessagingUri(node)) => {
                    found.uri = core::str::from_utf8(node.value())
                        .ok()
                        .map(|uri| uri.trim_end_matches('\0').to_string())
                        .filter(|uri| !uri.is_empty());
                }
                Ok(DevicePathNodeEnum::MediaFilePath(node)) => {
                    found.file = node
                        .path_name()
                        .to_cstring16()
                        .ok()
                        .map(|name| name.to_string());
                }
                _ => {}
            }
        }
        found
    }
}

fn ipv4_node(local: Ipv4Addr, ip: &IpNode) -> messaging::Ipv4 {
    let or_zero = |address: Option<IpAddr>| match address {
        Some(IpAddr::V4(address)) => address.octets(),
        _ => [0; 4],
    };
    let mask = u32::MAX.checked_shl(32_u32.saturating_sub(ip.prefix.unwrap_or(0).into()));
    messaging::Ipv4 {
        local_ip_address: local.octets(),
        remote_ip_address: or_zero(ip.remote),
        local_port: 0,
        remote_port: 0,
        protocol: TCP,
        ip_address_origin: Ipv4AddressOrigin::DHCP,
        gateway_ip_address: or_zero(ip.gateway),
        subnet_mask: mask.unwrap_or(0).to_be_bytes(),
    }
}

fn ipv6_node(local: Ipv6Addr, ip: &IpNode) -> messaging::Ipv6 {
    let or_zero = |address: Option<IpAddr>| match address {
        Some(IpAddr::V6(address)) => address.octets(),
        _ => [0; 16],
    };
    messaging::Ipv6 {
        local_ip_address: local.octets(),
        remote_ip_address: or_zero(ip.remote),
        local_port: 0,
        remote_port: 0,
        protocol: TCP,
        ip_address_origin: Ipv6AddressOrigin::STATEFUL_CONFIGURATION,
        prefix_length: ip.prefix.unwrap_or(0),
        gateway_ip_address: or_zero(ip.gateway),
    }
}

/// Prefix length of a mask; `None` for no mask at all or one with holes.
fn prefix(mask: [u8; 4]) -> Option<u8> {
    let mask = u32::from_be_bytes(mask);
    let ones = mask.leading_ones();
    (mask != 0 && mask.checked_shl(ones).unwrap_or(0) == 0).then_some(ones as u8)
}

/// The number of the protocol in IP headers.
const TCP: u16 = 6;

/// Paths of network interfaces, each with an end node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// Up to the node of the Ethernet address, or of the VLAN behind it.
    pub mac: Box<[u8]>,
    /// Up to that of the IPv4 or IPv6 address.
    pub ip: Box<[u8]>,
}

/// An owned device path, end node included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathBuf(Vec<u8>);

impl PathBuf {
    /// The path of something fetched from `uri` over the interface at `interface`: its nodes, MAC, IPv4 or IPv6, URI
    /// (UEFI 2.10, section 24.7.3.1). MAC and IP nodes are added only where `interface`, which may be that
    /// of a PCI function or of a network handle of the firmware, has none.
    #[must_use]
    pub fn fetched(interface: &[u8], mac: [u8; 6], ip: Option<IpNode>, uri: &str) -> Option<Self> {
        const MAC: [u8; 2] = [3, 11];
        const IPV4: [u8; 2] = [3, 12];
        const IPV6: [u8; 2] = [3, 13];
        const ETHERNET: u8 = 1;
        let mut bytes = interface.to_vec();
        bytes.extend(END_NODE);
        let base = <&DevicePath>::try_from(bytes.as_slice()).ok()?;
        let mut out = Vec::new();
        let mut builder = DevicePathBuilder::with_vec(&mut out);
        let (mut has_mac, mut has_ip) = (false, false);
        for node in base.node_iter() {
            let kind = [node.device_type().0, node.sub_type().0];
            has_mac |= kind == MAC;
            has_ip |= kind == IPV4 || kind == IPV6;
            builder = builder.push(&node).ok()?;
        }
        if !has_mac {
            let mut mac_address = [0; 32];
            mac_address.first_chunk_mut().map(|place| *place = mac)?;
            let node = messaging::MacAddress {
                mac_address,
                interface_type: ETHERNET,
            };
            builder = builder.push(&node as &dyn BuildNode).ok()?;
        }
        if let (Some(ip), false) = (ip, has_ip) {
            builder = match ip.local {
                IpAddr::V4(local) => builder.push(&ipv4_node(local, &ip) as &dyn BuildNode),
                IpAddr::V6(local) => builder.push(&ipv6_node(local, &ip) as &dyn BuildNode),
            }
            .ok()?;
        }
        builder
            .push(&messaging::Uri {
                value: uri.as_bytes(),
            } as &dyn BuildNode)
            .ok()?
            .finalize()
            .ok()?;
        Some(Self(out))
    }

    /// The paths of the interfaces that it leads through.
    #[must_use]
    pub fn interfaces(&self) -> Option<Interfaces> {
        const MESSAGING: u8 = 3;
        const END: [u8; 4] = [0x7f, 0xff, 4, 0];
        let (mut mac, mut ip) = (None, None);
        let mut at = 0;
        while let Some([kind, sub_kind, l0, l1, ..]) = self.0.get(at..) {
            let len = usize::from(u16::from_le_bytes([*l0, *l1]));
            let end = at + len.max(END.len());
            match (*kind, *sub_kind) {
                // MAC, VLAN.
                (MESSAGING, 11 | 20) => mac = self.0.get(..end),
                // IPv4, IPv6.
                (MESSAGING, 12 | 13) => ip = self.0.get(..end),
                _ => {}
            }
            at = end;
        }
        let ended = |nodes: &[u8]| [nodes, &END].concat().into_boxed_slice();
        Some(Interfaces {
            mac: ended(mac?),
            ip: ended(ip?),
        })
    }

    /// The nodes as UEFI lays them out, end node included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as the `uefi` crate knows it.
    pub(crate) fn as_path(&self) -> Option<&DevicePath> {
        <&DevicePath>::try_from(self.0.as_slice()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC_PATH: &[u8] = &[
        2, 1, 12, 0, 0xd0, 0x41, 3, 0x0a, 0, 0, 0, 0, // ACPI
        1, 1, 6, 0, 0, 3, // PCI
        3, 11, 37, 0, 0x52, 0x54, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 1, // MAC
    ];

    const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    const IPV4: IpNode = IpNode {
        local: IpAddr::V4(Ipv4Addr::new(10, 0, 2, 15)),
        remote: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2))),
        gateway: None,
        prefix: Some(24),
    };

    const fn ipv6(last: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, last))
    }

    const IPV6: IpNode = IpNode {
        local: ipv6(0x100),
        remote: Some(ipv6(1)),
        gateway: Some(ipv6(0xfe)),
        prefix: Some(64),
    };

    #[test]
    fn a_terminal_is_behind_a_serial_port() {
        let uart = [
            3, 14, 19, 0, 0, 0, 0, 0, 0, 0xc2, 1, 0, 0, 0, 0, 0, 8, 1, 1, // 115200 8N1
        ];
        let terminal = [&MAC_PATH[..18], &uart, &[3, 10, 20, 0], &[0x5a; 16]].concat();
        assert!(is_serial(&terminal));
        assert!(!is_serial(&MAC_PATH[..18]));
        assert!(!is_serial(&terminal[..30]));
        assert!(!is_serial(&[]));
    }

    #[test]
    fn a_path_leads_through_interfaces() {
        let end = [0x7f, 0xff, 4, 0];
        let path = PathBuf::fetched(MAC_PATH, MAC, Some(IPV4), "http://10.0.2.2/a").unwrap();
        let found = path.interfaces().unwrap();
        assert_eq!(*found.mac, [MAC_PATH, &end].concat());
        // An IPv4 node has 27 bytes.
        assert_eq!(*found.ip, [&path.0[..MAC_PATH.len() + 27], &end].concat());
        let without = PathBuf::fetched(MAC_PATH, MAC, None, "http://10.0.2.2/a").unwrap();
        assert_eq!(without.interfaces(), None);
    }

    #[test]
    fn what_is_built_reads_back() {
        for (ip, uri) in [(IPV4, "http://10.0.2.2/a"), (IPV6, "http://[fd00:77::1]/a")] {
            let path = PathBuf::fetched(MAC_PATH, MAC, Some(ip), uri).unwrap();
            let read = NetworkPath::parse(&path.0);
            assert_eq!(read.mac, Some(MAC));
            assert_eq!(read.ip, Some(ip));
            assert_eq!(read.uri.as_deref(), Some(uri));
            // A path that has an IP node keeps it, and gets no second one.
            let longer = &path.0[..path.0.len() - 4 - 4 - uri.len()];
            for another in [None, Some(IPV4), Some(IPV6)] {
                let again = PathBuf::fetched(longer, MAC, another, uri).unwrap();
                assert_eq!(again, path);
            }
            // A PCI function's path gets a MAC node.
            let from_function = PathBuf::fetched(&MAC_PATH[..18], MAC, Some(ip), uri).unwrap();
            assert_eq!(from_function, path);
        }
    }

    /// As OVMF has it before it knows an address, and with one; then with a length that no prefix has.
    #[test]
    fn ipv6_nodes() {
        let mut path = MAC_PATH.to_vec();
        path.extend([3, 13, 60, 0]);
        path.extend([0; 56]);
        let at = path.len() - 56;
        path[at + 39] = 64;
        assert_eq!(NetworkPath::parse(&path).ip, None);
        let IpAddr::V6(address) = IPV6.local else {
            panic!()
        };
        path[at..at + 16].copy_from_slice(&address.octets());
        let expected = IpNode {
            remote: None,
            gateway: None,
            ..IPV6
        };
        assert_eq!(NetworkPath::parse(&path).ip, Some(expected));
        path[at + 39] = 129;
        let read = NetworkPath::parse(&path).ip.unwrap();
        assert_eq!((read.local, read.prefix), (IPV6.local, None));
    }

    #[test]
    fn vlan_nodes() {
        let mut path = MAC_PATH.to_vec();
        assert_eq!(NetworkPath::parse(&path).vlan, None);
        path.extend([3, 20, 6, 0, 5, 0]);
        assert_eq!(NetworkPath::parse(&path).vlan, Some(5));
    }

    #[test]
    fn dns_nodes() {
        let mut path = MAC_PATH.to_vec();
        path.extend([3, 31, 4 + 1 + 32, 0, 0]);
        path.extend([10, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        path.extend([10, 0, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let read = NetworkPath::parse(&path);
        assert_eq!(
            read.dns,
            [Ipv4Addr::new(10, 0, 2, 3), Ipv4Addr::new(10, 0, 2, 4)].map(IpAddr::V4)
        );
        let mut path = MAC_PATH.to_vec();
        path.extend([3, 31, 4 + 1 + 16, 0, 1]);
        path.extend([0xfd, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(NetworkPath::parse(&path).dns, [ipv6(3)]);
    }

    #[test]
    fn cut_paths_are_no_harm() {
        for len in 0..MAC_PATH.len() {
            let _ = NetworkPath::parse(&MAC_PATH[..len]);
            let _ = PathBuf::fetched(&MAC_PATH[..len], MAC, None, "http://a/");
        }
    }

    #[test]
    fn masks() {
        assert_eq!(prefix([255, 255, 255, 0]), Some(24));
        assert_eq!(prefix([255, 255, 255, 255]), Some(32));
        assert_eq!(prefix([255, 0, 255, 0]), None);
        assert_eq!(prefix([0; 4]), None);
    }
}
