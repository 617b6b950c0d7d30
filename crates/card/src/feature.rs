//! Feature bits (virtio 1.2, sections 5.1.3 and 6) that the card knows.

/// The guest may leave a checksum to the card.
pub const CSUM: u64 = 1 << 0;
/// The card may leave a checksum to the guest, or say that it is right.
pub const GUEST_CSUM: u64 = 1 << 1;
/// The guest takes TCP segments over IPv4 as one unit.
pub const GUEST_TSO4: u64 = 1 << 7;
/// The same over IPv6.
pub const GUEST_TSO6: u64 = 1 << 8;
/// The same with congestion marks.
pub const GUEST_ECN: u64 = 1 << 9;
/// The guest takes the fragments of a UDP datagram as one unit.
pub const GUEST_UFO: u64 = 1 << 10;
/// The card cuts the guest's units to TCP segments over IPv4.
pub const HOST_TSO4: u64 = 1 << 11;
/// The same over IPv6.
pub const HOST_TSO6: u64 = 1 << 12;
/// The same with congestion marks.
pub const HOST_ECN: u64 = 1 << 13;
/// The card cuts the guest's units to fragments of a UDP datagram.
pub const HOST_UFO: u64 = 1 << 14;
/// A unit may lie in several receive buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// There are several pairs of queues. Which of them are in use the guest says by a queue that the monitor keeps to itself.
pub const MQ: u64 = 1 << 22;
/// A descriptor may lead to a table of further descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Doorbells and calls are asked for by index, not by flag.
pub const EVENT_IDX: u64 = 1 << 29;
/// The device is not a legacy one.
pub const VERSION_1: u64 = 1 << 32;
/// The guest takes UDP datagrams of one flow over IPv4 as one unit.
pub const GUEST_USO4: u64 = 1 << 54;
/// The same over IPv6.
pub const GUEST_USO6: u64 = 1 << 55;
/// The card cuts the guest's units to UDP datagrams, of both IP versions.
pub const HOST_USO: u64 = 1 << 56;

/// What the rings need, whatever the wire.
pub const RINGS: u64 = MRG_RXBUF | INDIRECT_DESC | EVENT_IDX | VERSION_1;

/// What depends on the wire, by names for people.
pub const OFFLOADS: [(&str, u64); 13] = [
    ("csum", CSUM),
    ("guest_csum", GUEST_CSUM),
    ("guest_tso4", GUEST_TSO4),
    ("guest_tso6", GUEST_TSO6),
    ("guest_ecn", GUEST_ECN),
    ("guest_ufo", GUEST_UFO),
    ("guest_uso4", GUEST_USO4),
    ("guest_uso6", GUEST_USO6),
    ("host_tso4", HOST_TSO4),
    ("host_tso6", HOST_TSO6),
    ("host_ecn", HOST_ECN),
    ("host_ufo", HOST_UFO),
    ("host_uso", HOST_USO),
];

/// What a guest has agreed on that gets UDP datagrams as one unit: nothing in the unit's header says of which IP version they are.
pub const GUEST_USO: u64 = GUEST_USO4 | GUEST_USO6;

/// What a guest may agree on to get units that are larger than a frame.
pub const LARGE_TO_GUEST: u64 = GUEST_TSO4 | GUEST_TSO6 | GUEST_UFO | GUEST_USO;
/// What a guest may agree on to send such units.
pub const LARGE_FROM_GUEST: u64 = HOST_TSO4 | HOST_TSO6 | HOST_UFO | HOST_USO;

/// What a wire that carries frames has not.
pub const LARGE_UNITS: u64 = LARGE_TO_GUEST | GUEST_ECN | LARGE_FROM_GUEST | HOST_ECN;

/// All that the card knows.
pub const KNOWN: u64 = RINGS | CSUM | GUEST_CSUM | LARGE_UNITS;

/// These features without those that need one that is missing (virtio 1.2, section 5.1.3.1); [`GUEST_USO`] is all there, or not.
#[must_use]
pub fn consistent(features: u64) -> u64 {
    let mut left = features;
    // By what is needed, each before what needs it.
    for (needed, by) in [
        (CSUM, LARGE_FROM_GUEST),
        (GUEST_CSUM, LARGE_TO_GUEST),
        (HOST_TSO4 | HOST_TSO6, HOST_ECN),
        (GUEST_TSO4 | GUEST_TSO6, GUEST_ECN),
    ] {
        if left & needed == 0 {
            left &= !by;
        }
    }
    if left & GUEST_USO != GUEST_USO {
        left &= !GUEST_USO;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_its_need_goes() {
        assert_eq!(consistent(KNOWN), KNOWN);
        let out = HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_UFO | HOST_USO;
        assert_eq!(consistent(KNOWN & !CSUM), KNOWN & !CSUM & !out);
        let to_guest = GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_UFO | GUEST_USO4 | GUEST_USO6;
        assert_eq!(
            consistent(KNOWN & !GUEST_CSUM),
            KNOWN & !GUEST_CSUM & !to_guest
        );
        for half in [GUEST_USO4, GUEST_USO6] {
            assert_eq!(consistent(KNOWN & !half), KNOWN & !GUEST_USO);
        }
        let one = CSUM | HOST_TSO6 | HOST_ECN;
        assert_eq!(consistent(one), one);
        assert_eq!(consistent(CSUM | HOST_ECN), CSUM);
        assert_eq!(
            consistent(GUEST_CSUM | GUEST_ECN | GUEST_UFO),
            GUEST_CSUM | GUEST_UFO
        );
    }

    #[test]
    fn each_offload_has_a_name() {
        let named = OFFLOADS.iter().fold(RINGS, |all, (_, bit)| all | bit);
        assert_eq!(named, KNOWN);
    }
}
