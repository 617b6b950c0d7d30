//! The kernel's calls about interfaces.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use libc::{IFF_UP, SIOCGIFFLAGS, SIOCGIFMTU, c_int, c_ulong, c_void};
use rustix::net::{AddressFamily, SocketType, socket};

/// Whether an interface can have this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains(['/', '\0'])
}

/// A request about an interface, without an answer so far.
pub(super) fn request(name: &str) -> libc::ifreq {
    // SAFETY: numbers, arrays and pointers, all of which may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let places = request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1);
    for (to, from) in places.zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes a request by a socket or a device.
pub(super) fn call(fd: RawFd, number: c_ulong, argument: *mut c_void) -> io::Result<()> {
    // SAFETY: our callers give what the request takes: a pointer to a live value of its type, or a number.
    let result = unsafe { libc::ioctl(fd, number as _, argument) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What the kernel tells of the interface by this request.
fn told(name: &str, code: c_ulong) -> io::Result<libc::ifreq> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = request(name);
    call(socket.as_raw_fd(), code, (&raw mut request).cast())?;
    Ok(request)
}

/// The longest packet of the interface, in bytes without the Ethernet header.
pub(super) fn mtu(name: &str) -> io::Result<usize> {
    let request = told(name, SIOCGIFMTU as c_ulong)?;
    // SAFETY: that is the field that the request fills; it is a number in any case.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether somebody has set the interface up.
pub(super) fn is_up(name: &str) -> io::Result<bool> {
    let request = told(name, SIOCGIFFLAGS as c_ulong)?;
    // SAFETY: that is the field that the request fills; it is a number in any case.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(c_int::from(flags) & IFF_UP != 0)
}
