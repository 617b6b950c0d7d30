//! The kernel's calls for taps.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{
    IFF_ATTACH_QUEUE, IFF_DETACH_QUEUE, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, IFF_VNET_HDR,
    TUN_F_CSUM, TUN_F_TSO_ECN, TUN_F_TSO4, TUN_F_TSO6, TUN_F_USO4, TUN_F_USO6, TUNSETIFF,
    TUNSETOFFLOAD, TUNSETQUEUE, TUNSETVNETHDRSZ, c_int, c_ulong,
};
use wireboot_card::feature;

use crate::wires::interface::{call, request};

/// Ties an open /dev/net/tun to the interface, with headers; `several`: to a further one of its queues.
pub(super) fn attach(file: &File, name: &str, several: bool) -> io::Result<()> {
    let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    let attach = |flags| set_flags(file, TUNSETIFF as c_ulong, name, flags);
    if several {
        return attach(flags | IFF_MULTI_QUEUE);
    }
    match attach(flags) {
        // It was made with several.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            attach(flags | IFF_MULTI_QUEUE)
        }
        result => result,
    }
}

/// Whether the kernel gives frames to this queue of an interface with several.
pub(super) fn set_receiving(file: &File, receiving: bool) -> io::Result<()> {
    let flag = if receiving {
        IFF_ATTACH_QUEUE
    } else {
        IFF_DETACH_QUEUE
    };
    set_flags(file, TUNSETQUEUE as c_ulong, "", flag)
}

fn set_flags(file: &File, number: c_ulong, name: &str, flags: c_int) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    call(file.as_raw_fd(), number, (&raw mut request).cast())
}

/// The length of the header in front of each frame.
pub(super) fn set_header_len(file: &File, len: usize) -> io::Result<()> {
    let mut len = len as c_int;
    let argument = (&raw mut len).cast();
    call(file.as_raw_fd(), TUNSETVNETHDRSZ as c_ulong, argument)
}

/// What we take, by the guest's features: units whose checksum is to be completed, and large ones.
pub(super) fn set_offload(file: &File, features: u64) -> io::Result<()> {
    let offload = [
        (feature::GUEST_CSUM, TUN_F_CSUM),
        (feature::GUEST_TSO4, TUN_F_TSO4),
        (feature::GUEST_TSO6, TUN_F_TSO6),
        (feature::GUEST_ECN, TUN_F_TSO_ECN),
        (feature::GUEST_USO4, TUN_F_USO4),
        (feature::GUEST_USO6, TUN_F_USO6),
    ]
    .into_iter()
    .filter(|(feature, _)| features & feature != 0)
    .fold(0, |all, (_, flag)| all | flag);
    let argument = std::ptr::without_provenance_mut(offload as usize);
    call(file.as_raw_fd(), TUNSETOFFLOAD as c_ulong, argument)
}
