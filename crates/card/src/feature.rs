//! Feature bits (virtio 1.2, sections 5.1.3 and 6) that the card knows.

/// The guest may leave a checksum to the card.
pub const CSUM: u64 = 1 << 0;
/// The card may leave a checksum to the guest, or say that it is right.
pub const GUEST_CSUM: u64 = 1 << 1;
/// A unit may lie in several receive buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// A descriptor may lead to a table of further descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Doorbells and calls are asked for by index, not by flag.
pub const EVENT_IDX: u64 = 1 << 29;
/// The device is not a legacy one.
pub const VERSION_1: u64 = 1 << 32;

/// All that the card offers.
pub const OFFERED: u64 = CSUM | GUEST_CSUM | MRG_RXBUF | INDIRECT_DESC | EVENT_IDX | VERSION_1;
