//! The firmware's TFTP by `EFI_PXE_BASE_CODE_PROTOCOL` (UEFI 2.10, section 24.3).

use super::{handle_with, open};
use crate::claim::pci::Candidate;
use alloc::vec::Vec;
use core::net::IpAddr;
use uefi::boot::{OpenProtocolAttributes, ScopedProtocol};
use uefi::proto::network::pxe::BaseCode;
use uefi::{CStr8, Identify, Status};

/// The firmware's PXE over one version of IP, with an address. It is stopped on drop.
#[derive(Debug)]
pub struct Pxe(ScopedProtocol<BaseCode>);

impl Pxe {
    /// Starts it over IPv4 with an address and netmask that are known already, over IPv6 with what DHCPv6 gives: EDK II's `SetStationIp`
    /// may crash with an IPv6 address.
    ///
    /// # Errors
    /// What the firmware answers when it has no PXE on the interface, or when that does not start.
    pub fn open(
        interface: &Candidate,
        station: IpAddr,
        mask: Option<IpAddr>,
    ) -> uefi::Result<Self> {
        let node = if station.is_ipv6() { IPV6 } else { IPV4 };
        let handle = handle_with(interface, &BaseCode::GUID, |path| has_node(path, node))?;
        // SAFETY: nothing below removes the protocol while it is open. (Opening it exclusively would disconnect the
        // firmware's network.)
        let mut pxe = Self(unsafe { open(handle, OpenProtocolAttributes::GetProtocol) }?);
        let protocol = pxe.0.get_mut().ok_or(Status::UNSUPPORTED)?;
        match protocol.start(station.is_ipv6()) {
            Err(error) if error.status() != Status::ALREADY_STARTED => return Err(error),
            _ => {}
        }
        if station.is_ipv6() {
            protocol.dhcp(false)?;
        } else {
            protocol.set_station_ip(Some(&station), mask.as_ref())?;
        }
        Ok(pxe)
    }

    /// Reads a file by TFTP into `memory`, and returns its size.
    ///
    /// # Errors
    /// What the firmware answers: `BUFFER_TOO_SMALL`, `TFTP_ERROR`, `TIMEOUT` and others. `INVALID_PARAMETER` for a
    /// name that is not Latin-1.
    pub fn read(&mut self, server: IpAddr, file: &str, memory: &mut [u8]) -> uefi::Result<u64> {
        let mut name: Vec<u8> = file.bytes().collect();
        name.push(0);
        let name = CStr8::from_bytes_with_nul(&name).map_err(|_| Status::INVALID_PARAMETER)?;
        let protocol = self.0.get_mut().ok_or(Status::UNSUPPORTED)?;
        protocol.tftp_read_file(&server, name, Some(memory))
    }
}

impl Drop for Pxe {
    fn drop(&mut self) {
        if let Some(protocol) = self.0.get_mut() {
            let _ = protocol.stop();
        }
    }
}

/// Type and subtype of device path nodes (UEFI 2.10, sections 10.3.4.12 and 10.3.4.13).
pub(super) const IPV4: (u8, u8) = (3, 12);
pub(super) const IPV6: (u8, u8) = (3, 13);

/// Whether a device path has such a node, be it without addresses.
pub(super) fn has_node(path: &[u8], node: (u8, u8)) -> bool {
    let mut rest = path;
    while let [kind, subtype, low, high, ..] = *rest {
        if (kind, subtype) == node {
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
    fn nodes_are_found() {
        // MAC, then IPv4 or IPv6.
        let mac = [&[3, 11, 37, 0][..], &[0; 33]].concat();
        let ipv4 = [&mac[..], &[3, 12, 27, 0], &[0; 23]].concat();
        let ipv6 = [&mac[..], &[3, 13, 60, 0], &[0; 56]].concat();
        for (node, with, without) in [(IPV4, &ipv4, &ipv6), (IPV6, &ipv6, &ipv4)] {
            assert!(has_node(with, node));
            assert!(!has_node(without, node));
            assert!(!has_node(&mac, node));
        }
        assert!(!has_node(&[1, 1, 0, 0, 3, 12], IPV4));
    }
}
