//! Frames of a machine's network boot in, what happened when out.
//!
//! It sends nothing and asks nobody: frames come from a capture, or from a machine that looks at its own. [`Clients`] tells which machines
//! boot over the network in them; an [`Observer`] follows one of them and makes its [`Report`](wireboot_report::Report), findings excepted.
//! Frames may be cut off, come from a switch's mirror port or from the server, and be of any making.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod clients;
mod dhcp;
mod dhcpv6;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod lacp;
mod names;
mod neighbour;
mod observer;
mod routers;
mod spanning_tree;
mod timeline;
pub mod transfers;

pub use clients::{Client, Clients};
pub use frame::{Content, Frame, IpPacket, LinkType, Mac, Tcp, Udp};
pub use observer::Observer;

/// The most conversations of a kind, and packets of one, that are kept: a boot has far fewer.
const MOST: usize = 512;

/// Appends while there is room.
fn keep<T>(list: &mut alloc::vec::Vec<T>, item: T) {
    if list.len() < MOST {
        list.push(item);
    }
}
