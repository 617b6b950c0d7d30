//! IPv6 without input and output: what packets say is checked and read, what is to be sent is built, state machines keep a
//! virtual clock.
//!
//! Builders return whole packets, from the IPv6 header on. What they are sent to decides the Ethernet address:
//! [`multicast_mac`] for groups, the neighbour cache for hosts.

mod dad;
pub(crate) mod header;
pub(crate) mod icmp;
pub(crate) mod lifetime;
pub(crate) mod mld;
pub(crate) mod ndisc;
pub(crate) mod routers;
pub(crate) mod slaac;
pub(crate) mod source;

use core::net::Ipv6Addr;
use wireboot_nic::MacAddress;

/// ff02::1.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// ff02::2.
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The group that all who have `address` listen to (RFC 4291, section 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);
    Ipv6Addr::from_bits(group.to_bits() | (address.to_bits() & 0xff_ffff))
}

/// Where Ethernet frames to a group go (RFC 2464, section 7).
pub(crate) fn multicast_mac(group: Ipv6Addr) -> MacAddress {
    let [a, b, c, d] = (group.to_bits() as u32).to_be_bytes();
    [0x33, 0x33, a, b, c, d]
}

/// True for an address that one host can have on a link.
pub(crate) fn is_unicast(address: Ipv6Addr) -> bool {
    !address.is_multicast() && !address.is_unspecified() && !address.is_loopback()
}

/// True when the first `len` bits are the same.
pub(crate) fn same_prefix(a: Ipv6Addr, b: Ipv6Addr, len: u8) -> bool {
    (a.to_bits() ^ b.to_bits()).leading_zeros() >= u32::from(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_their_ethernet_addresses() {
        // RFC 4291, section 2.7.1, and RFC 2464, section 7.
        let address: Ipv6Addr = "4037::1:800:200e:8c6c".parse().unwrap();
        let group: Ipv6Addr = "ff02::1:ff0e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(address), group);
        assert_eq!(multicast_mac(group), [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
        let other = "4037::1:800:200f:8c6c".parse().unwrap();
        assert!(same_prefix(address, other, 111) && !same_prefix(address, other, 112));
        assert!(same_prefix(address, address, 128) && !same_prefix(address, other, 255));
    }
}
