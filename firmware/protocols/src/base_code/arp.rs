//! Arp: the Ethernet address of an IP address.

use super::{mode, status, with};
use uefi_raw::protocol::network::pxe::PxeBaseCodeProtocol;
use uefi_raw::{IpAddress, MacAddress, Status};
use wireboot_platform::raw::pxe_callback::PxeBaseCodeFunction;

pub(super) unsafe extern "efiapi" fn arp(
    this: *mut PxeBaseCodeProtocol,
    ip: *const IpAddress,
    mac: *mut MacAddress,
) -> Status {
    if ip.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller's address, aligned or not.
    let ip = unsafe { ip.cast::<[u8; 16]>().read_unaligned() };
    with(this, |face| {
        face.started()?;
        let of = face.address(ip);
        let found = face.work(PxeBaseCodeFunction::ARP, |host, port| host.arp(port, of));
        let found = found.map_err(status)?;
        if !mac.is_null() {
            // SAFETY: the caller's variable.
            unsafe { mac.write_unaligned(mode::mac_address(found)) };
        }
        Ok(())
    })
}
