//! Which of a device's queue pairs receives the packets of a flow, so that a connection can choose a port whose packets come
//! to its own processor.

use core::net::{IpAddr, SocketAddr};

/// Entries of the indirection table that is programmed: what each device with RSS has at least (virtio 1.2, section 5.1.4.1).
pub(crate) const TABLE_LEN: usize = 128;

/// The key that is programmed: the one that Microsoft publishes with results to verify against. It need not be secret, as the
/// ports that decide are ours to choose.
pub(crate) const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The queue pair at `entry` of the indirection table that spreads flows over `pairs` pairs.
pub(crate) fn table(entry: usize, pairs: usize) -> usize {
    entry % pairs.max(1)
}

/// Which queue pair receives the packets of a TCP connection.
///
/// Up to 16 pairs are each met within 128 local ports in a row, whatever the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// At least 1.
    pairs: usize,
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Port,
    Hash,
}

impl Steering {
    /// By the local port, in turn: for a device that follows what it was last sent, so that any agreement between the pairs will do; and
    /// for tests and simulations. 0 pairs are 1.
    ///
    /// The device learns of a flow from its first frame, which must be sent over the pair that is told here. What belongs to no such flow
    /// (a datagram from a port that nobody wrote to, ARP) may come to any pair.
    #[must_use]
    pub fn by_port(pairs: usize) -> Self {
        Self {
            pairs: pairs.max(1),
            by: By::Port,
        }
    }

    /// By a Toeplitz hash of addresses and ports (receive-side scaling) with our key and a table of 128 entries, in which the pairs
    /// take turns. What is not TCP comes to the first pair. 0 pairs are 1.
    #[must_use]
    pub fn by_hash(pairs: usize) -> Self {
        Self {
            pairs: pairs.max(1),
            by: By::Hash,
        }
    }

    /// How many pairs there are; [`Self::pair`] is below this.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// The pair that receives the packets from `remote` to `local`, both of one IP version.
    #[must_use]
    pub fn pair(&self, remote: SocketAddr, local: SocketAddr) -> usize {
        match self.by {
            By::Port => usize::from(local.port()) % self.pairs,
            By::Hash => table(hash(remote, local) as usize % TABLE_LEN, self.pairs),
        }
    }
}

/// The hash of a packet's addresses and ports.
fn hash(source: SocketAddr, destination: SocketAddr) -> u32 {
    let (from, to) = (
        source.port().to_be_bytes(),
        destination.port().to_be_bytes(),
    );
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            toeplitz([&source.octets(), &destination.octets(), &from, &to])
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            toeplitz([&source.octets(), &destination.octets(), &from, &to])
        }
        // No packet has such ends; the first pair is as good as any.
        _ => 0,
    }
}

/// The Toeplitz hash of up to 36 bytes in pieces: for each bit that is set, the 32 bits of the key that begin at its place, added without
/// carry.
fn toeplitz(input: [&[u8]; 4]) -> u32 {
    let mut hash = 0;
    // Five bytes of the key hold what begins at any bit of the first.
    for (byte, key) in input.into_iter().flatten().zip(KEY.windows(5)) {
        let key = key.iter().fold(0, |key, byte| key << 8 | u64::from(*byte));
        for bit in 0..8 {
            if byte & 0x80 >> bit != 0 {
                hash ^= (key >> (8 - bit)) as u32;
            }
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    /// "Verifying the RSS Hash Calculation", Windows network driver documentation: IPv4 and IPv6 with TCP.
    #[test]
    fn the_hash_is_that_of_the_published_vectors() {
        for (destination, source, expected) in [
            ("161.142.100.80:1766", "66.9.149.187:2794", 0x51cc_c178),
            ("65.69.140.83:4739", "199.92.111.2:14230", 0xc626_b0ea),
            ("12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b_394a),
            ("209.142.163.6:2217", "38.27.205.30:48228", 0xafc7_327f),
            ("202.188.127.2:1303", "153.39.163.191:44251", 0x10e8_28a2),
            (
                "[3ffe:2501:200:3::1]:1766",
                "[3ffe:2501:200:1fff::7]:2794",
                0x4020_7d3d,
            ),
            (
                "[ff02::1]:4739",
                "[3ffe:501:8::260:97ff:fe40:efab]:14230",
                0xdde5_1bbf,
            ),
            (
                "[fe80::200:f8ff:fe21:67cf]:38024",
                "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
                0x02d1_feef,
            ),
        ] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(hash(source, destination), expected);
            let steering = Steering::by_hash(5);
            let pair = steering.pair(source, destination);
            assert_eq!(pair, (expected % 128 % 5) as usize);
        }
    }

    #[test]
    fn by_port_the_pairs_take_turns() {
        let steering = Steering::by_port(3);
        for ip in [
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Ipv6Addr::UNSPECIFIED.into(),
        ] {
            let remote = SocketAddr::new(ip, 80);
            for port in [0, 1, 2, 3, 49_152, u16::MAX] {
                let local = SocketAddr::new(ip, port);
                assert_eq!(steering.pair(remote, local), usize::from(port % 3));
            }
            for none in [Steering::by_port(0), Steering::by_hash(0)] {
                assert_eq!((none.pairs(), none.pair(remote, remote)), (1, 0));
            }
        }
    }

    fn each_pair_is_met(remote: SocketAddr, local: IpAddr, first: u16, pairs: usize) {
        for steering in [Steering::by_port(pairs), Steering::by_hash(pairs)] {
            let mut met = [false; 16];
            for port in first..first + 128 {
                let pair = steering.pair(remote, SocketAddr::new(local, port));
                assert!(pair < pairs);
                met[pair] = true;
            }
            assert!(met[..pairs].iter().all(|met| *met));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn each_pair_is_met_within_128_ports(
            remote: (u32, u128),
            local: (u32, u128),
            port: u16,
            first in 1024u16..65_408,
            pairs in 1usize..17,
        ) {
            let remote4 = SocketAddr::new(Ipv4Addr::from(remote.0).into(), port);
            each_pair_is_met(remote4, Ipv4Addr::from(local.0).into(), first, pairs);
            let remote6 = SocketAddr::new(Ipv6Addr::from(remote.1).into(), port);
            each_pair_is_met(remote6, Ipv6Addr::from(local.1).into(), first, pairs);
        }
    }
}
