//! Loaders that let the PXE base code read whole files.

use crate::efi;
use crate::report::{Failure, succeeded};
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::net::IpAddr;
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeMode, PxeBaseCodePacket, PxeBaseCodeProtocol, PxeBaseCodeTftpOpcode as Opcode,
};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::{Boolean, IpAddress};

/// What an uninitialised variable may hold.
const UNINITIALISED: u64 = 0x5a5a_5a5a;
/// No file of these tests is larger.
const LARGEST: u64 = 1 << 30;
/// Where a DHCP packet has its fields, and the first option.
const OPTIONS: usize = 240;

/// The base code of a device.
#[derive(Clone, Copy)]
pub(crate) struct BaseCode(pub(crate) NonNull<PxeBaseCodeProtocol>);

/// Arguments of Mtftp.
pub(crate) struct Mtftp<'a> {
    pub operation: Opcode,
    pub buffer: *mut u8,
    pub size: *mut u64,
    pub block: Option<usize>,
    pub server: Option<IpAddr>,
    pub file: Option<&'a CString>,
    pub dont_use_buffer: bool,
}

/// Addresses have 16 bytes, of which IPv4 uses the first four.
pub(crate) fn address(address: impl Into<IpAddr>) -> IpAddress {
    let mut bytes = [0; 16];
    match address.into() {
        IpAddr::V4(v4) => {
            if let Some(first) = bytes.first_chunk_mut() {
                *first = v4.octets();
            }
        }
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    bytes.into()
}

impl BaseCode {
    pub(crate) fn of(device: Handle) -> Result<Self, Failure> {
        efi::protocol(device, &PxeBaseCodeProtocol::GUID, "PXE base code").map(Self)
    }

    pub(crate) fn table(&self) -> &PxeBaseCodeProtocol {
        // SAFETY: the protocol stays while a loader that came by it runs.
        unsafe { self.0.as_ref() }
    }

    /// As it is now: calls change it.
    pub(crate) fn mode(&self) -> PxeBaseCodeMode {
        // SAFETY: the producer's mode, which is whole between calls.
        unsafe { (*self.table().mode).clone() }
    }

    pub(crate) fn mtftp(&self, call: &Mtftp<'_>) -> Status {
        let server = call.server.map(address);
        // SAFETY: what is not null by the test's purpose leads to variables of the caller's.
        unsafe {
            (self.table().mtftp)(
                self.0.as_ptr(),
                call.operation,
                call.buffer.cast::<c_void>(),
                Boolean::FALSE,
                call.size,
                call.block.as_ref().map_or(ptr::null(), ptr::from_ref),
                server.as_ref().map_or(ptr::null(), ptr::from_ref),
                call.file.map_or(ptr::null(), |file| file.as_ptr().cast()),
                ptr::null(),
                call.dont_use_buffer.into(),
            )
        }
    }

    /// GET_FILE_SIZE and READ_FILE, as most loaders do.
    fn size_and_read(
        &self,
        server: [u8; 4],
        file: &str,
        block: Option<usize>,
        dummy: bool,
    ) -> Result<Vec<u8>, Failure> {
        let file = CString::new(file).map_err(|_| Failure::Wrong("a zero in a name"))?;
        let mut size = UNINITIALISED;
        let mut byte = 0;
        let mut call = Mtftp {
            operation: Opcode::TFTP_GET_FILE_SIZE,
            buffer: if dummy { &mut byte } else { ptr::null_mut() },
            size: &mut size,
            block,
            server: Some(server.into()),
            file: Some(&file),
            dont_use_buffer: dummy,
        };
        succeeded("GET_FILE_SIZE", self.mtftp(&call))?;
        let told = size;
        if told > LARGEST {
            return Err(Failure::Wrong("an absurd size"));
        }
        let mut room = vec![0; told as usize];
        size = told;
        call.operation = Opcode::TFTP_READ_FILE;
        call.buffer = room.as_mut_ptr();
        call.size = &mut size;
        call.dont_use_buffer = false;
        succeeded("READ_FILE", self.mtftp(&call))?;
        if size != told {
            return Err(Failure::Wrong("another size than was told"));
        }
        Ok(room)
    }
}

/// The bytes of a packet in the mode.
pub(crate) fn raw(packet: &PxeBaseCodePacket) -> &[u8; 1472] {
    packet.as_ref()
}

fn four(packet: &PxeBaseCodePacket, at: usize) -> [u8; 4] {
    let bytes = raw(packet).get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().unwrap_or_default()
}

/// `siaddr` of a DHCP packet.
pub(crate) fn next_server(packet: &PxeBaseCodePacket) -> [u8; 4] {
    four(packet, 20)
}

/// `yiaddr`.
pub(crate) fn own_address(packet: &PxeBaseCodePacket) -> [u8; 4] {
    four(packet, 16)
}

/// An option's value.
pub(crate) fn option(packet: &[u8], code: u8) -> Option<&[u8]> {
    let mut rest = packet.get(OPTIONS..)?;
    loop {
        match *rest {
            [0, ref behind @ ..] => rest = behind,
            [255, ..] | [] | [_] => return None,
            [found, len, ref behind @ ..] => {
                let (value, behind) = behind.split_at_checked(usize::from(len))?;
                if found == code {
                    return Some(value);
                }
                rest = behind;
            }
        }
    }
}

/// The boot server as Limine and ESXi choose it: of PxeReply, else ProxyOffer, else DhcpAck.
fn chosen(mode: &PxeBaseCodeMode) -> &PxeBaseCodePacket {
    if bool::from(mode.pxe_reply_received) {
        &mode.pxe_reply
    } else if bool::from(mode.proxy_offer_received) {
        &mode.proxy_offer
    } else {
        &mode.dhcp_ack
    }
}

/// OpenBSD's BOOTX64: of DhcpAck, which it does not ask for; neither buffer nor block size with GET_FILE_SIZE.
pub(crate) fn openbsd(device: Handle, file: &str) -> Result<Vec<u8>, Failure> {
    let base_code = BaseCode::of(device)?;
    let mode = base_code.mode();
    base_code.size_and_read(next_server(&mode.dhcp_ack), file, None, false)
}

/// ESXi's mboot: DontUseBuffer beside a buffer, and its own block size. The server is option 54's where siaddr is empty.
pub(crate) fn esxi(device: Handle, file: &str) -> Result<Vec<u8>, Failure> {
    efi::protocol::<c_void>(device, &SimpleNetworkProtocol::GUID, "SNP on the device")?;
    let base_code = BaseCode::of(device)?;
    let mode = base_code.mode();
    let packet = chosen(&mode);
    let mut server = next_server(packet);
    if server == [0; 4] {
        let option = option(raw(packet), 54).and_then(|value| value.first_chunk());
        server = *option.ok_or(Failure::Wrong("no server is named"))?;
    }
    base_code.size_and_read(server, file, Some(1468), true)
}

pub(crate) fn limine(device: Handle, file: &str) -> Result<Vec<u8>, Failure> {
    let base_code = BaseCode::of(device)?;
    let mode = base_code.mode();
    base_code.size_and_read(next_server(chosen(&mode)), file, None, false)
}

/// shim: blocks of 512 bytes, 4 MB, twice what comes back when that is too small.
pub(crate) fn shim(device: Handle, file: &str) -> Result<Vec<u8>, Failure> {
    let base_code = BaseCode::of(device)?;
    let mode = base_code.mode();
    if !bool::from(mode.started) || !bool::from(mode.dhcp_ack_received) {
        return Err(Failure::Wrong("not started, or no DhcpAck"));
    }
    let server = next_server(&mode.dhcp_ack);
    let file = CString::new(file).map_err(|_| Failure::Wrong("a zero in a name"))?;
    let mut size = 4 << 20;
    loop {
        let mut room: Vec<u8> = vec![0; size as usize];
        let call = Mtftp {
            operation: Opcode::TFTP_READ_FILE,
            buffer: room.as_mut_ptr(),
            size: &mut size,
            block: Some(512),
            server: Some(server.into()),
            file: Some(&file),
            dont_use_buffer: false,
        };
        match base_code.mtftp(&call) {
            Status::BUFFER_TOO_SMALL if size < LARGEST => size *= 2,
            status => {
                succeeded("READ_FILE", status)?;
                room.truncate(size as usize);
                return Ok(room);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_behind_pads_and_not_behind_the_end() {
        let packet = [
            &[0; OPTIONS][..],
            &[0, 53, 1, 5, 54, 4, 10, 0, 0, 1, 255, 1, 1, 9],
        ]
        .concat();
        assert_eq!(option(&packet, 54), Some(&[10, 0, 0, 1][..]));
        assert_eq!(option(&packet, 1), None);
        assert_eq!(option(&packet[..OPTIONS + 8], 54), None);
    }
}
