//! What a network card made of software and its driver say to each other beyond virtio-net.
//!
//! - [`hello`]: what both understand, agreed in one question and one answer.
//! - [`chunk`]: several units in one buffer.
//! - [`placement`]: payload written to where it belongs.
//!
//! # The mark
//!
//! What such a card says to its driver comes as units of virtio-net, like frames. The field `gso_type` of their header (`struct virtio_net_hdr`,
//! virtio 1.2, section 5.1.6) is [`MARK`], a value that the specification and Linux leave unused: they have 0, 1, 3, 4 and 5, and the bits
//! 0x20, 0x40 and 0x80. All other fields but `num_buffers` are 0.
//!
//! The header is the device's word, not the wire's: it is written by whoever fills the receive buffer, and no frame from a wire carries one.
//! vhost-net and tap make it of a packet's properties, QEMU writes zeros where its host side has no such header, and a tap refuses to be
//! given a type that it does not know. So a driver that believes only what is marked believes its own device and nobody behind it, even
//! somebody who has read its question on the wire because the card was none of this kind.
//!
//! A card of this kind passes no unit with the mark from its wire to its guest, nor from its guest to its wire.

pub mod chunk;
pub mod hello;
pub mod placement;

/// `gso_type` of what a card itself says to its driver.
pub const MARK: u8 = 0x1e;

/// The group address that is the card itself: the nearest bridge's, which no bridge forwards (IEEE Std 802.1Q, table 8-1).
pub const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
/// The EtherType: local experimental 1 (IEEE Std 802, section 9.2.4).
pub const ETHERTYPE: u16 = 0x88b5;
/// Bytes of an Ethernet header, by which [`is_for_card`] tells.
pub const LINK_LEN: usize = 14;

/// True for the link header of a frame between a driver and its card, whatever it holds.
#[must_use]
pub fn is_for_card(link: &[u8; LINK_LEN]) -> bool {
    link.starts_with(&GROUP) && link.ends_with(&ETHERTYPE.to_be_bytes())
}
