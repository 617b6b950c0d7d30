//! The firmware's TFTP by `EFI_PXE_BASE_CODE_PROTOCOL` (UEFI 2.10, section 24.3).

use super::{handle_with, open};
use crate::pci::Candidate;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use uefi::boot::{OpenProtocolAttributes, ScopedProtocol};
use uefi::proto::network::pxe::BaseCode;
use uefi::{CStr8, Identify, Status};

/// The firmware's PXE over IPv4, with an address. It is stopped on drop.
#[derive(Debug)]
pub struct Pxe(ScopedProtocol<BaseCode>);

impl Pxe {
    /// Starts it with an address that is known already: no DHCP.
    ///
    /// # Errors
    /// What the firmware answers when it has no PXE on the interface, or when that does not start.
    pub fn open(interface: &Candidate, station: Ipv4Addr, mask: Ipv4Addr) -> uefi::Result<Self> {
        let handle = handle_with(interface, &BaseCode::GUID, is_over_ipv4)?;
        // SAFETY: nothing below removes the protocol while it is open. (Opening it exclusively would disconnect the
        // firmware's network.)
        let mut pxe = Self(unsafe { open(handle, OpenProtocolAttributes::GetProtocol) }?);
        let protocol = pxe.0.get_mut().ok_or(Status::UNSUPPORTED)?;
        match protocol.start(false) {
            Err(error) if error.status() != Status::ALREADY_STARTED => return Err(error),
            _ => {}
        }
        protocol.set_station_ip(Some(&IpAddr::V4(station)), Some(&IpAddr::V4(mask)))?;
        Ok(pxe)
    }

    /// Reads a file by TFTP into `memory`, and returns its size.
    ///
    /// # Errors
    /// What the firmware answers: `BUFFER_TOO_SMALL`, `TFTP_ERROR`, `TIMEOUT` and others. `INVALID_PARAMETER` for a
    /// name that is not Latin-1.
    pub fn read(&mut self, server: Ipv4Addr, file: &str, memory: &mut [u8]) -> uefi::Result<u64> {
        let mut name: Vec<u8> = file.bytes().collect();
        name.push(0);
        let name = CStr8::from_bytes_with_nul(&name).map_err(|_| Status::INVALID_PARAMETER)?;
        let protocol = self.0.get_mut().ok_or(Status::UNSUPPORTED)?;
        protocol.tftp_read_file(&IpAddr::V4(server), name, Some(memory))
    }
}

impl Drop for Pxe {
    fn drop(&mut self) {
        if let Some(protocol) = self.0.get_mut() {
            let _ = protocol.stop();
        }
    }
}

/// Whether a device path has an IPv4 node (UEFI 2.10, section 10.3.4.12), be it without addresses.
fn is_over_ipv4(path: &[u8]) -> bool {
    let mut rest = path;
    while let [kind, subtype, low, high, ..] = *rest {
        if (kind, subtype) == (3, 12) {
            return true;
        }
        let len = usize::from(u16::from_le_bytes([low, high]));
        match rest.get(len..) {
            Some(next) if len >= 4 => rest = next,
            _ => break,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_nodes_are_found() {
        // MAC, then IPv4 or IPv6.
        let mac = [&[3, 11, 37, 0][..], &[0; 33]].concat();
        let ipv4 = [&mac[..], &[3, 12, 27, 0], &[0; 23]].concat();
        let ipv6 = [&mac[..], &[3, 13, 60, 0], &[0; 56]].concat();
        assert!(is_over_ipv4(&ipv4));
        assert!(!is_over_ipv4(&ipv6));
        assert!(!is_over_ipv4(&mac));
        assert!(!is_over_ipv4(&[1, 1, 0, 0, 3, 12]));
    }
}
