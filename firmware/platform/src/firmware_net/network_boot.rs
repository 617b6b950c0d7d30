//! The firmware's network boot by PXE, as its boot option does it: `EFI_LOAD_FILE_PROTOCOL` (UEFI 2.10, section 13.1), and the TFTP below it.

use super::pxe::{IPV4, IPV6, has_node};
use super::{handle_with, open};
use crate::claim::pci::Candidate;
use crate::load_file::{LoadFile, Size};
use crate::pxe::{Cached, cached};
use alloc::ffi::CString;
use core::net::IpAddr;
use uefi::boot::{OpenProtocolAttributes, ScopedProtocol};
use uefi::proto::ProtocolPointer;
use uefi::proto::network::pxe::BaseCode;
use uefi::{Handle, Identify, Status, StatusExt};
use uefi_raw::protocol::network::pxe::{PxeBaseCodeProtocol, PxeBaseCodeTftpOpcode};
use uefi_raw::{Boolean, IpAddress};

/// A network boot over one version of IP. The firmware's PXE is stopped on drop, where it was not started before.
#[derive(Debug)]
pub struct NetworkBoot {
    handle: Handle,
    was_started: bool,
}

/// Bytes of a block that EDK II asks for where packets have 1500: less IP's and UDP's headers, and TFTP's 4 bytes.
const BLOCK4: usize = 1468;
/// The same over IPv6.
const BLOCK6: usize = 1448;

impl NetworkBoot {
    /// The interface's over IPv4, else over IPv6.
    ///
    /// # Errors
    /// `NOT_FOUND` where the firmware offers none.
    pub fn of(interface: &Candidate) -> uefi::Result<Self> {
        Self::over_ipv4(interface).or_else(|_| Self::over_ipv6(interface))
    }

    /// The interface's over IPv4.
    ///
    /// # Errors
    /// As of [`of`](Self::of).
    pub fn over_ipv4(interface: &Candidate) -> uefi::Result<Self> {
        Self::over(interface, IPV4)
    }

    /// The interface's over IPv6.
    ///
    /// # Errors
    /// As of [`of`](Self::of).
    pub fn over_ipv6(interface: &Candidate) -> uefi::Result<Self> {
        Self::over(interface, IPV6)
    }

    fn over(interface: &Candidate, node: (u8, u8)) -> uefi::Result<Self> {
        let handle = handle_with(interface, &BaseCode::GUID, |path| has_node(path, node))?;
        let mut boot = Self {
            handle,
            was_started: false,
        };
        boot.was_started = boot.is_started();
        Ok(boot)
    }

    fn protocol<P: ProtocolPointer>(&self) -> uefi::Result<ScopedProtocol<P>> {
        // SAFETY: used at once; what is called does not remove the protocol. (Opening it exclusively would disconnect the firmware's network.)
        unsafe { open(self.handle, OpenProtocolAttributes::GetProtocol) }
    }

    fn is_started(&self) -> bool {
        let protocol = self.protocol::<BaseCode>();
        protocol.is_ok_and(|protocol| protocol.get().is_some_and(|one| one.mode().started()))
    }

    /// Obtains an address and loads the boot file, as for a boot; nothing is started. Returns the file's length.
    ///
    /// # Errors
    /// What the firmware answers: `NO_RESPONSE` without a DHCP server, `TFTP_ERROR`, `NOT_FOUND` and others.
    pub fn load(&self) -> uefi::Result<usize> {
        let handle = LoadFile::of(self.handle).ok_or(Status::NOT_FOUND)?;
        match handle.size(&[])? {
            Size::File(bytes) => handle.load(&[], bytes),
            Size::RamDisk(_) => {
                handle.decline();
                Err(Status::UNSUPPORTED.into())
            }
        }
    }

    /// What the firmware's PXE has learnt since it was started.
    #[must_use]
    pub fn learnt(&self) -> Option<Cached> {
        cached(self.handle)
    }

    /// Reads a file by TFTP into `memory`, in blocks as a boot has them, and returns its size. The firmware needs an address: see
    /// [`load`](Self::load).
    ///
    /// # Errors
    /// What the firmware answers: `BUFFER_TOO_SMALL`, `TFTP_ERROR`, `TIMEOUT` and others. `INVALID_PARAMETER` for a name with a zero in it.
    pub fn read(&self, server: IpAddr, file: &str, memory: &mut [u8]) -> uefi::Result<u64> {
        let name = CString::new(file).map_err(|_| Status::INVALID_PARAMETER)?;
        let mut protocol = self.protocol::<BaseCode>()?;
        let protocol = protocol.get_mut().ok_or(Status::UNSUPPORTED)?;
        // The `uefi` crate's call has blocks of 512 bytes.
        let protocol = core::ptr::from_mut(protocol).cast::<PxeBaseCodeProtocol>();
        let blocks = if server.is_ipv6() { BLOCK6 } else { BLOCK4 };
        let server = IpAddress::from(server);
        let mut bytes = memory.len() as u64;
        // SAFETY: `BaseCode` is a transparent wrapper of the protocol, which is live; the pointers are to locals, and to `bytes` bytes of memory.
        let status = unsafe {
            ((*protocol).mtftp)(
                protocol,
                PxeBaseCodeTftpOpcode::TFTP_READ_FILE,
                memory.as_mut_ptr().cast(),
                Boolean::FALSE,
                &raw mut bytes,
                &raw const blocks,
                &raw const server,
                name.as_ptr().cast(),
                core::ptr::null(),
                Boolean::FALSE,
            )
        };
        status.to_result_with_val(|| bytes)
    }
}

impl NetworkBoot {
    /// Stops the base code, also where it was started before. Whoever came by it starts it again, with what it knew.
    pub fn stop(&self) {
        if let Ok(mut protocol) = self.protocol::<BaseCode>()
            && let Some(protocol) = protocol.get_mut()
        {
            let _ = protocol.stop();
        }
    }
}

impl Drop for NetworkBoot {
    fn drop(&mut self) {
        if !self.was_started && self.is_started() {
            self.stop();
        }
    }
}
