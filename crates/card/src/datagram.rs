//! UDP datagrams of up to 65,507 bytes as units: cut to fragments of IP for a wire, put together for a guest.

mod cut;
mod join;
mod split;

pub(crate) use cut::{checksum, cut};
pub(crate) use join::{Fragments, Put, is_fragment};
pub(crate) use split::split;

/// IPv4: more fragments follow.
const MORE: u16 = 0x2000;
/// IPv4: the part of a fragment's place, in units of 8 bytes.
const OFFSET: u16 = 0x1fff;
/// IPv6: the Fragment header (RFC 8200, section 4.5), as a next header, and its length.
const FRAGMENT: u8 = 44;
const FRAGMENT_LEN: usize = 8;
/// The header of UDP.
const UDP_LEN: usize = 8;
/// Where the checksum lies in it.
const CHECKSUM: u16 = 6;
