//! TCP segments (RFC 9293) as units of up to 64 KB: cut for a wire that takes frames, joined for a guest that takes units. Headers alone
//! are read and written here; payload stays where it is.

mod cut;
mod join;

pub(crate) use cut::cut;
pub(crate) use join::Run;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// Where the checksum lies in the header of TCP.
const CHECKSUM: u16 = 16;
