//! UdpWrite and UdpRead of EFI_PXE_BASE_CODE_PROTOCOL.

use super::{mode, status, with};
use crate::caller::array;
use core::ffi::c_void;
use core::net::SocketAddr;
use core::ptr;
use uefi_raw::protocol::network::pxe::{PxeBaseCodeProtocol, PxeBaseCodeUdpOpFlags};
use uefi_raw::{IpAddress, Status};
use wireboot_platform::raw::pxe_callback::PxeBaseCodeFunction;
use wireboot_protocols::base_code::{Expected, Outgoing};

/// The caller's variable, if there is one.
///
/// # Safety
/// Null or a variable of the caller's, aligned or not.
unsafe fn read<T: Copy>(at: *const T) -> Option<T> {
    // SAFETY: the caller's word.
    (!at.is_null()).then(|| unsafe { at.read_unaligned() })
}

/// Sets a caller's variable, if there is one.
///
/// # Safety
/// As for [`read`].
unsafe fn write<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the caller's word.
        unsafe { at.write_unaligned(value) }
    }
}

pub(super) unsafe extern "efiapi" fn udp_write(
    this: *mut PxeBaseCodeProtocol,
    flags: PxeBaseCodeUdpOpFlags,
    destination: *const IpAddress,
    port: *const u16,
    gateway: *const IpAddress,
    source: *const IpAddress,
    source_port: *mut u16,
    header_size: *const usize,
    header: *const c_void,
    size: *const usize,
    buffer: *const c_void,
) -> Status {
    // SAFETY: null or the caller's variables, aligned or not.
    let (destination, number, gateway, source, from, header_size, size) = unsafe {
        (
            read(destination.cast::<[u8; 16]>()),
            read(port),
            read(gateway.cast::<[u8; 16]>()),
            read(source.cast::<[u8; 16]>()),
            read(source_port.cast_const()),
            read(header_size),
            read(size),
        )
    };
    let (Some(destination), Some(number), Some(size)) = (destination, number, size) else {
        return Status::INVALID_PARAMETER;
    };
    if header_size == Some(0) {
        return Status::INVALID_PARAMETER;
    }
    let header_size = header_size.unwrap_or(0);
    // SAFETY: the caller's buffers.
    let parts = unsafe {
        (
            array(header.cast::<u8>(), header_size, usize::MAX),
            array(buffer.cast::<u8>(), size, usize::MAX),
        )
    };
    let (Some(header), Some(payload)) = parts else {
        return Status::INVALID_PARAMETER;
    };
    with(this, |face| {
        face.started()?;
        let what = Outgoing {
            to: SocketAddr::new(face.address(destination), number),
            gateway: gateway.map(|gateway| face.address(gateway)),
            source: source.map(|source| face.address(source)),
            // Zero is no port (RFC 768).
            source_port: from
                .filter(|&port| port != 0 && !flags.contains(PxeBaseCodeUdpOpFlags::ANY_SRC_PORT)),
            parts: [header, payload],
            may_fragment: flags.contains(PxeBaseCodeUdpOpFlags::MAY_FRAGMENT),
        };
        let sent = face.work(PxeBaseCodeFunction::UDP_WRITE, |host, port| {
            host.udp_write(port, &what)
        });
        let from = sent.map_err(status)?;
        // SAFETY: null or the caller's variable.
        unsafe { write(source_port, from) };
        Ok(())
    })
}

pub(super) unsafe extern "efiapi" fn udp_read(
    this: *mut PxeBaseCodeProtocol,
    flags: PxeBaseCodeUdpOpFlags,
    destination: *mut IpAddress,
    port: *mut u16,
    source: *mut IpAddress,
    source_port: *mut u16,
    header_size: *const usize,
    header: *mut c_void,
    size: *mut usize,
    buffer: *mut c_void,
) -> Status {
    use PxeBaseCodeUdpOpFlags as Flags;
    // SAFETY: null or the caller's variables, aligned or not.
    let (to, number, from, from_number, header_room, room) = unsafe {
        (
            read(destination.cast::<[u8; 16]>().cast_const()),
            read(port.cast_const()),
            read(source.cast::<[u8; 16]>().cast_const()),
            read(source_port.cast_const()),
            read(header_size),
            read(size.cast_const()),
        )
    };
    let Some(room) = room.filter(|_| !buffer.is_null()) else {
        return Status::INVALID_PARAMETER;
    };
    if header_room.is_some_and(|room| room == 0 || header.is_null())
        || !flags.contains(Flags::ANY_DEST_PORT) && number.is_none()
        || !flags.contains(Flags::ANY_SRC_IP) && from.is_none()
        || !flags.contains(Flags::ANY_SRC_PORT) && from_number.is_none()
    {
        return Status::INVALID_PARAMETER;
    }
    with(this, |face| {
        face.started()?;
        // The station, where the caller says nothing.
        let to = match to {
            Some(to) => face.address(to),
            None => face.host().address().0,
        };
        let from = from.map(|from| face.address(from));
        let expected = Expected {
            destination: (!flags.contains(Flags::ANY_DEST_IP)).then_some(to),
            destination_port: number.filter(|_| !flags.contains(Flags::ANY_DEST_PORT)),
            source: from.filter(|_| !flags.contains(Flags::ANY_SRC_IP)),
            source_port: from_number.filter(|_| !flags.contains(Flags::ANY_SRC_PORT)),
            use_filter: flags.contains(Flags::USE_FILTER),
        };
        let read = face.work(PxeBaseCodeFunction::UDP_READ, |host, port| {
            host.udp_read(port, &expected)
        });
        let datagram = read.map_err(status)?;
        let len = header_room.unwrap_or(0).min(datagram.payload.len());
        let (first, rest) = datagram.payload.split_at_checked(len).unwrap_or_default();
        // SAFETY: null or the caller's variables, and its buffers of as many bytes as it says.
        unsafe {
            write(destination, mode::ip_address(datagram.destination.ip()));
            write(port, datagram.destination.port());
            write(source, mode::ip_address(datagram.source.ip()));
            write(source_port, datagram.source.port());
            write(size, rest.len());
            if rest.len() > room {
                return Err(Status::BUFFER_TOO_SMALL);
            }
            // Which EDK II writes, too.
            write(header_size.cast_mut(), first.len());
            ptr::copy_nonoverlapping(first.as_ptr(), header.cast(), first.len());
            ptr::copy_nonoverlapping(rest.as_ptr(), buffer.cast(), rest.len());
        }
        Ok(())
    })
}
