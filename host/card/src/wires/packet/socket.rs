//! The kernel's calls for packet sockets (packet(7)).

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, ETH_P_ALL,
    PACKET_ADD_MEMBERSHIP, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING, PACKET_MR_PROMISC,
    PACKET_VNET_HDR, SO_ATTACH_FILTER, SOL_PACKET, SOL_SOCKET, c_int, sock_filter, socklen_t,
};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::memory::Control;

/// The type of a tag.
const VLAN: u16 = 0x8100;

/// Opens a socket of the interface, which has all frames that come there, with headers in front, and not what this host sends. With `mac`, only
/// what is for that address or for many.
pub(super) fn open(name: &str, mac: Option<[u8; 6]>) -> io::Result<OwnedFd> {
    // Without a protocol it has no frames before all is said.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let index = name_to_index(&socket, name)?;
    let index = c_int::try_from(index).map_err(io::Error::other)?;
    for option in [PACKET_VNET_HDR, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING] {
        set(socket.as_fd(), SOL_PACKET, option, &(1 as c_int))?;
    }
    if let Some(mac) = mac {
        attach(socket.as_fd(), &mut filter(mac))?;
    }
    let everything = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(
        socket.as_fd(),
        SOL_PACKET,
        PACKET_ADD_MEMBERSHIP,
        &everything,
    )?;
    bind(socket.as_fd(), index)?;
    Ok(socket)
}

/// Sets an option whose value is a `T`.
fn set<T: Copy>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let len = mem::size_of::<T>() as socklen_t;
    let value = (&raw const *value).cast();
    // SAFETY: the kernel reads as many bytes as the value has. A filter's own pointer is that of a program that its caller keeps.
    done(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) })
}

fn attach(socket: BorrowedFd<'_>, program: &mut [sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program)
}

/// Lets frames for many and frames for `mac` through, in the kernel's BPF.
fn filter(mac: [u8; 6]) -> [sock_filter; 8] {
    let [a, b, c, d, e, f] = mac;
    let instruction = |code: u32, jt, jf, k| sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let high = u32::from_be_bytes([a, b, c, d]);
    let low = u32::from(u16::from_be_bytes([e, f]));
    [
        instruction(BPF_LD | BPF_B | BPF_ABS, 0, 0, 0),
        instruction(BPF_JMP | BPF_JSET | BPF_K, 4, 0, 1),
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, high),
        instruction(BPF_LD | BPF_H | BPF_ABS, 0, 0, 4),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, low),
        instruction(BPF_RET | BPF_K, 0, 0, u32::MAX),
        instruction(BPF_RET | BPF_K, 0, 0, 0),
    ]
}

fn bind(socket: BorrowedFd<'_>, index: c_int) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (ETH_P_ALL as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = mem::size_of_val(&address) as socklen_t;
    // SAFETY: an address of as many bytes.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })
}

fn done(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The tag (802.1Q) that the kernel has taken out of a frame, as it stood behind the addresses: `struct tpacket_auxdata` behind a `struct cmsghdr`.
pub(super) fn tag(control: &Control) -> Option<[u8; 4]> {
    let (head, rest) = control
        .bytes()
        .split_at_checked(mem::size_of::<libc::cmsghdr>())?;
    let number = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let level_at = mem::offset_of!(libc::cmsghdr, cmsg_level);
    let type_at = mem::offset_of!(libc::cmsghdr, cmsg_type);
    let of_packets = number(head, level_at)? == SOL_PACKET as u32;
    if !of_packets || number(head, type_at)? != PACKET_AUXDATA as u32 {
        return None;
    }
    let half = |at: usize| {
        let bytes = rest.get(at..)?.first_chunk()?;
        Some(u16::from_ne_bytes(*bytes))
    };
    let status = number(rest, mem::offset_of!(libc::tpacket_auxdata, tp_status))?;
    let tci = half(mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tci))?;
    let protocol = half(mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tpid))?;
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let named = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if named { protocol } else { VLAN };
    let [p0, p1] = protocol.to_be_bytes();
    let [t0, t1] = tci.to_be_bytes();
    Some([p0, p1, t0, t1])
}
