//! Codecs of network boot.
//!
//! - [`tftp`]: packets and options of the Trivial File Transfer Protocol.
//! - [`dhcp`]: DHCP messages and the options of network boot, PXE's among them.
//! - [`dhcpv6`]: DHCPv6 messages, with the options of network boot.
//! - [`bootconf`]: the text that says what to boot.
//! - [`filetype`]: what a file is that is to be started.
//! - [`pe`]: the headers of such a file.
//! - [`load_option`]: the firmware's boot options, and how their device paths lead to a network.
//! - [`card`]: what a network card made of software and its driver agree on.
//! - [`ladder`]: what a machine that measures itself asks of the sender.
//!
//! Parsers borrow from the packet, check every length, and take any input without a panic. The same code serves
//! the client and the server.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bootconf;
pub mod card;
pub mod dhcp;
pub mod dhcpv6;
pub mod filetype;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod fuzzing;
pub mod ladder;
pub mod load_option;
pub mod pe;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::indexing_slicing, reason = "a test kit")]
pub mod testing;
pub mod text;
pub mod tftp;
