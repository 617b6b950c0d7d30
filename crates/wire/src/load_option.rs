//! Boot options, as the firmware's variables `Boot####` keep them (`EFI_LOAD_OPTION`: UEFI 2.10, section 3.1.3), and the device paths in them.
//!
//! ```text
//! attributes (4) | length of the paths (2) | description, UCS-2, ends in 0 | paths | optional data
//! path:  node, node ..., end    node:  type (1) | subtype (1) | length (2), header included | data
//! ```

use alloc::string::String;
use alloc::vec::Vec;

/// The option is for the boot manager to try (`LOAD_OPTION_ACTIVE`).
const ACTIVE: u32 = 1;

/// Bytes of a node's header.
const HEADER: usize = 4;

/// Types of nodes, and subtypes of messaging nodes (UEFI 2.10, section 10.3).
const END: u8 = 0x7f;
const MESSAGING: u8 = 3;
const MAC: u8 = 11;
const IPV4: u8 = 12;
const IPV6: u8 = 13;
const VLAN: u8 = 20;
const URI: u8 = 24;
/// A disk that is reached over the network: iSCSI, NVMe over Fabrics.
const ISCSI: u8 = 19;
const NVME_OF: u8 = 34;

/// A boot option, as a variable `Boot####` holds it (UEFI 2.10, section 3.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOption<'a> {
    /// The boot manager tries it by itself.
    pub active: bool,
    /// Its name for people. What is no UTF-16 is replaced.
    pub description: String,
    /// The nodes of its first path, without end node.
    pub path: &'a [u8],
}

impl<'a> LoadOption<'a> {
    /// Reads a variable's content. `None` for what is cut off, or has no path that ends.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (attributes, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (units, _) = rest.as_chunks::<2>();
        let mut units = units.iter().map(|unit| u16::from_le_bytes(*unit));
        let end = units.clone().position(|unit| unit == 0)?;
        let name: Vec<u16> = units.by_ref().take(end).collect();
        let paths = rest.get((end + 1) * 2..)?;
        let paths = paths.get(..usize::from(u16::from_le_bytes(*length)))?;
        Some(Self {
            active: u32::from_le_bytes(*attributes) & ACTIVE != 0,
            description: String::from_utf16_lossy(&name),
            path: first_path(paths)?,
        })
    }
}

/// The numbers in `BootOrder`.
pub fn order(bytes: &[u8]) -> impl Iterator<Item = u16> {
    let (numbers, _) = bytes.as_chunks::<2>();
    numbers.iter().map(|number| u16::from_le_bytes(*number))
}

/// The nodes before the first end node.
fn first_path(paths: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        let rest = paths.get(at..)?;
        let &[kind, _, low, high] = rest.first_chunk::<HEADER>()?;
        if kind == END {
            return paths.get(..at);
        }
        let length = usize::from(u16::from_le_bytes([low, high]));
        rest.get(..length).filter(|node| node.len() >= HEADER)?;
        at += length;
    }
}

/// How firmware boots over a network interface, by the device path of the boot option or of the handle that loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkBoot<'a> {
    /// The nodes up to the Ethernet address, or the VLAN behind it.
    pub interface: &'a [u8],
    /// That Ethernet address.
    pub mac: [u8; 6],
    /// Over IPv6; else IPv4.
    pub v6: bool,
    /// HTTP Boot; else PXE.
    pub http: bool,
}

impl<'a> NetworkBoot<'a> {
    /// Reads the nodes of a path. `None` for a path without an Ethernet address and an IP node behind it: one that leads elsewhere, to a disk over the network, or to a
    /// program that boots by means of its own, as iPXE in a card's ROM does.
    #[must_use]
    pub fn of(path: &'a [u8]) -> Option<Self> {
        let (mut interface, mut mac, mut v6, mut http) = (None, None, None, false);
        let mut at = 0;
        while let Some(rest) = path.get(at..).filter(|rest| !rest.is_empty()) {
            let &[kind, subtype, low, high] = rest.first_chunk::<HEADER>()?;
            let length = usize::from(u16::from_le_bytes([low, high]));
            let data = rest.get(..length)?.get(HEADER..)?;
            at += length;
            match (kind, subtype) {
                (MESSAGING, MAC) => {
                    mac = data.first_chunk().copied();
                    interface = path.get(..at);
                }
                (MESSAGING, VLAN) if v6.is_none() => interface = path.get(..at),
                (MESSAGING, IPV4) => v6 = Some(false),
                (MESSAGING, IPV6) => v6 = Some(true),
                (MESSAGING, URI) => http = true,
                (MESSAGING, ISCSI | NVME_OF) => return None,
                _ => {}
            }
        }
        Some(Self {
            interface: interface?,
            mac: mac?,
            v6: v6?,
            http,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn node(kind: u8, subtype: u8, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(HEADER + data.len()).unwrap().to_le_bytes();
        [&[kind, subtype], length.as_slice(), data].concat()
    }

    fn mac() -> Vec<u8> {
        let mut data = vec![0x52, 0x54, 0, 1, 2, 3];
        data.resize(33, 0);
        [node(2, 1, &[0; 8]), node(MESSAGING, MAC, &data)].concat()
    }

    fn option(name: &str, paths: &[u8]) -> Vec<u8> {
        let length = u16::try_from(paths.len()).unwrap().to_le_bytes();
        let name: Vec<u8> = name
            .encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect();
        // Optional data, as OVMF has behind its own options.
        [&[1, 0, 0, 0], length.as_slice(), &name, paths, b"data"].concat()
    }

    #[test]
    fn an_option_has_a_name_and_a_path() {
        let nodes = [mac(), node(MESSAGING, IPV4, &[0; 23])].concat();
        let end = node(END, 0xff, &[]);
        // A second path, which tells of other things.
        let paths = [&nodes, &end, &node(1, 1, &[7]), &end]
            .map(Vec::as_slice)
            .concat();
        let bytes = option("UEFI PXEv4", &paths);
        let read = LoadOption::parse(&bytes).unwrap();
        assert!(read.active);
        assert_eq!(read.description, "UEFI PXEv4");
        assert_eq!(read.path, nodes);
        let mut inactive = bytes.clone();
        inactive[0] = 8;
        assert!(!LoadOption::parse(&inactive).unwrap().active);
        // Cut off anywhere before the optional data, it is none.
        for length in 0..bytes.len() - 4 {
            assert_eq!(LoadOption::parse(&bytes[..length]), None, "{length}");
        }
        // Without an end node, and with a node shorter than its header.
        assert_eq!(LoadOption::parse(&option("x", &nodes)), None);
        let short = [&[1, 1, 3, 0], end.as_slice()].concat();
        assert_eq!(LoadOption::parse(&option("x", &short)), None);
    }

    #[test]
    fn an_order_is_numbers() {
        let numbers: Vec<u16> = order(&[3, 0, 0, 1, 9]).collect();
        assert_eq!(numbers, [3, 0x100]);
    }

    #[test]
    fn paths_tell_the_way_of_a_boot() {
        let ip = |subtype, bytes: usize| node(MESSAGING, subtype, &vec![0; bytes]);
        let pxe = [mac(), ip(IPV4, 23)].concat();
        let read = NetworkBoot::of(&pxe).unwrap();
        assert_eq!(read.interface, mac());
        assert_eq!(read.mac, [0x52, 0x54, 0, 1, 2, 3]);
        assert!(!read.v6 && !read.http);
        let http = [mac(), ip(IPV6, 56), ip(31, 17), node(MESSAGING, URI, b"")].concat();
        let read = NetworkBoot::of(&http).unwrap();
        assert!(read.v6 && read.http);
        let tagged = [mac(), node(MESSAGING, VLAN, &[5, 0])].concat();
        let read = [tagged.as_slice(), &ip(IPV4, 23)].concat();
        assert_eq!(NetworkBoot::of(&read).unwrap().interface, tagged);
        // A disk over the network is no network boot.
        for disk in [ISCSI, NVME_OF] {
            let path = [mac(), ip(IPV4, 23), ip(disk, 20)].concat();
            assert_eq!(NetworkBoot::of(&path), None);
        }
        // A card alone is booted by the ROM's own program.
        assert_eq!(NetworkBoot::of(&mac()), None);
        assert_eq!(NetworkBoot::of(&ip(IPV4, 23)), None);
        assert_eq!(NetworkBoot::of(&[]), None);
        for length in 1..pxe.len() {
            assert_eq!(NetworkBoot::of(&pxe[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzzing::fuzz_load_option(&bytes);
        }
    }
}
