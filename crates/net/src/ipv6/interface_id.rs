//! The second half of an address: EUI-64 (RFC 4291, appendix A) or stable and private (RFC 7217).

use super::array;
use core::net::Ipv6Addr;
use sha2::{Digest, Sha256};
use wireboot_nic::MacAddress;

/// How a station makes its interface ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceId {
    /// From the Ethernet address.
    Eui64,
    /// From a secret: on each network another one, on each always the same, as long as the secret is.
    Stable { secret: [u8; 32] },
}

impl InterfaceId {
    /// The address within the /64 of `prefix`. `tries`: how many before it were somebody else's. `None` when there is no
    /// further one.
    pub fn address(&self, prefix: Ipv6Addr, mac: MacAddress, tries: u8) -> Option<Ipv6Addr> {
        let network = prefix.to_bits() >> 64;
        match self {
            InterfaceId::Eui64 if tries == 0 => {
                let [a, b, c, d, e, f] = mac;
                let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
                Some(join(network, id))
            }
            // IDGEN_RETRIES of RFC 7217, and that none is reserved.
            InterfaceId::Stable { secret } if tries <= 3 => (0..4)
                .map(|again| {
                    let hash = hash(secret, &[&network.to_be_bytes(), &mac, &[tries, again]]);
                    u64::from_be_bytes(hash)
                })
                .find(|id| !is_reserved(*id))
                .map(|id| join(network, id)),
            _ => None,
        }
    }
}

fn join(network: u128, id: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(network << 64 | u128::from(id))
}

/// RFC 5453: the routers' anycast address, those of RFC 2526, and IANA's.
fn is_reserved(id: u64) -> bool {
    id == 0
        || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&id)
        || (0x0200_5eff_fe00_0000..=0x0200_5eff_fe00_5212).contains(&id)
}

/// The first bytes of a keyed hash: SHA-256 over key, then parts. The parts of one use are always as long.
pub fn hash<const N: usize>(key: &[u8; 32], parts: &[&[u8]]) -> [u8; N] {
    let mut hash = Sha256::new();
    hash.update(key);
    for part in parts {
        hash.update(part);
    }
    // N is at most 32.
    array(&hash.finalize(), 0).unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
    const MAC: MacAddress = [0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde];

    #[test]
    fn eui_64() {
        // RFC 4291, appendix A, and RFC 2464, section 4.
        let address = InterfaceId::Eui64.address(LINK_LOCAL, MAC, 0).unwrap();
        assert_eq!(
            address,
            "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap()
        );
        assert_eq!(InterfaceId::Eui64.address(LINK_LOCAL, MAC, 1), None);
    }

    #[test]
    fn stable_and_private() {
        let id = |byte| InterfaceId::Stable { secret: [byte; 32] };
        let other: Ipv6Addr = "2001:db8::".parse().unwrap();
        let mut all = std::vec![];
        for (id, prefix, mac, tries) in [
            (id(1), LINK_LOCAL, MAC, 0),
            (id(1), LINK_LOCAL, MAC, 1),
            (id(1), LINK_LOCAL, MAC, 3),
            (id(1), LINK_LOCAL, [2; 6], 0),
            (id(1), other, MAC, 0),
            (id(2), LINK_LOCAL, MAC, 0),
        ] {
            let address = id.address(prefix, mac, tries).unwrap();
            assert_eq!(address.to_bits() >> 64, prefix.to_bits() >> 64);
            assert_eq!(id.address(prefix, mac, tries), Some(address));
            all.push(address.to_bits() as u64);
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        assert_eq!(id(1).address(LINK_LOCAL, MAC, 4), None);
    }

    #[test]
    fn reserved_ids() {
        for id in [
            0,
            0xfdff_ffff_ffff_ff80,
            u64::MAX - (2 << 56),
            0x0200_5eff_fe00_5212,
        ] {
            assert!(is_reserved(id), "{id:x}");
        }
        for id in [1, 0xfdff_ffff_ffff_ff7f, u64::MAX, 0x0200_5eff_fe00_5213] {
            assert!(!is_reserved(id), "{id:x}");
        }
    }
}
