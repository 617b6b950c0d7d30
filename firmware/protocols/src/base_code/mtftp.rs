//! Mtftp: files from the engine to the caller's memory; by the host where each packet is to be shown, and what the engine does not do.

use super::{Face, status, with};
use crate::caller::Buffer;
use crate::failure::Failure;
use crate::shared::{self, Network};
use core::ffi::{CStr, c_void};
use core::net::IpAddr;
use uefi_raw::protocol::network::pxe::{
    PxeBaseCodeMtftpInfo, PxeBaseCodeProtocol, PxeBaseCodeTftpOpcode,
};
use uefi_raw::{Boolean, Char8, IpAddress, Status};
use wireboot_fetch::url::Url;
use wireboot_net::MemoryBlock;
use wireboot_platform::raw::pxe_callback::PxeBaseCodeFunction;
use wireboot_protocols::Refusal;
use wireboot_protocols::base_code::{Source, Transfer};

/// The smallest block that TFTP has (RFC 2348 allows fewer; the protocol does not).
const SMALLEST_BLOCK: usize = 512;
/// The largest (RFC 2348).
const LARGEST_BLOCK: u16 = 65464;
/// Block size where the caller does not care: a packet of any link.
const USUAL_BLOCK: u16 = 1428;
/// Longest name of a file that is looked for an end in.
const LONGEST_NAME: usize = 4096;

/// The caller's name of a file, which ends with a zero.
///
/// # Safety
/// `name` leads to bytes of the caller's up to a zero.
unsafe fn file_name<'a>(name: *const Char8) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    let name: *const u8 = name.cast();
    for len in 0..LONGEST_NAME {
        // SAFETY: the caller's word, as no zero has come yet.
        if unsafe { *name.add(len) } == 0 {
            // SAFETY: as above, the zero included.
            let bytes = unsafe { core::slice::from_raw_parts(name, len + 1) };
            return CStr::from_bytes_with_nul(bytes).ok()?.to_str().ok();
        }
    }
    None
}

fn url(server: IpAddr, file: &str) -> Option<Url> {
    if file.contains("://") {
        return Url::parse(file).ok();
    }
    Url::from_boot_file(server, file).ok()
}

/// Which operation, of which file, how.
struct Request<'a> {
    operation: PxeBaseCodeTftpOpcode,
    transfer: Transfer<'a>,
    dont_use_buffer: bool,
}

pub(super) unsafe extern "efiapi" fn mtftp(
    this: *mut PxeBaseCodeProtocol,
    operation: PxeBaseCodeTftpOpcode,
    buffer: *mut c_void,
    _overwrite: Boolean,
    size: *mut u64,
    block_size: *const usize,
    server: *const IpAddress,
    file: *const Char8,
    _info: *const PxeBaseCodeMtftpInfo,
    dont_use_buffer: Boolean,
) -> Status {
    use PxeBaseCodeTftpOpcode as Opcode;
    // SAFETY: null or the caller's variables, aligned or not; the name ends with a zero.
    let (block_size, server, file) = unsafe {
        (
            (!block_size.is_null()).then(|| block_size.read_unaligned()),
            (!server.is_null()).then(|| server.cast::<[u8; 16]>().read_unaligned()),
            file_name(file),
        )
    };
    let (Some(server), Some(file)) = (server, file) else {
        return Status::INVALID_PARAMETER;
    };
    let dont_use_buffer = bool::from(dont_use_buffer);
    let into_buffer = match operation {
        Opcode::TFTP_READ_FILE | Opcode::TFTP_READ_DIRECTORY => !dont_use_buffer,
        Opcode::TFTP_WRITE_FILE => true,
        _ => false,
    };
    if size.is_null()
        || block_size.is_some_and(|size| size < SMALLEST_BLOCK)
        || into_buffer && buffer.is_null()
    {
        return Status::INVALID_PARAMETER;
    }
    let memory = if into_buffer {
        // SAFETY: the caller's buffer of as many bytes as its size says, for the length of the call.
        let memory = unsafe { Buffer::new(buffer, size.read_unaligned()) };
        let Some(memory) = memory else {
            return Status::INVALID_PARAMETER;
        };
        Some(memory)
    } else {
        None
    };
    with(this, |face| {
        face.started()?;
        let server = face.address(server);
        if server.is_unspecified() || server.is_multicast() {
            return Err(Status::INVALID_PARAMETER);
        }
        let block_size = block_size.map_or(USUAL_BLOCK, |size| {
            u16::try_from(size).map_or(LARGEST_BLOCK, |size| size.min(LARGEST_BLOCK))
        });
        let request = Request {
            operation,
            transfer: Transfer {
                server,
                file,
                // What nobody has to ask for.
                block_size: (usize::from(block_size) != SMALLEST_BLOCK).then_some(block_size),
            },
            dont_use_buffer,
        };
        face.begin();
        let result = carry_out(face, &request, memory);
        face.leave();
        let (len, status) = match result {
            Ok(len) => (Some(len), Ok(())),
            Err(Refusal::BufferTooSmall(len)) => (Some(len as u64), Err(Status::BUFFER_TOO_SMALL)),
            Err(refusal @ (Refusal::InvalidParameter | Refusal::Unsupported)) => {
                (None, Err(status(refusal)))
            }
            Err(refusal) => (Some(0), Err(status(refusal))),
        };
        if let Some(len) = len.filter(|_| operation != Opcode::TFTP_WRITE_FILE) {
            // SAFETY: the caller's variable.
            unsafe { size.write_unaligned(len) };
        }
        status
    })
}

/// Returns the size of the file.
fn carry_out(
    face: &mut Face<'_>,
    request: &Request<'_>,
    memory: Option<Buffer>,
) -> Result<u64, Refusal> {
    use PxeBaseCodeTftpOpcode as Opcode;
    let transfer = &request.transfer;
    let url = || url(transfer.server, transfer.file).ok_or(Refusal::InvalidParameter);
    match request.operation {
        Opcode::TFTP_GET_FILE_SIZE => {
            let url = url()?;
            by_engine(face, |network| network.size(&url))
        }
        Opcode::TFTP_READ_FILE => {
            // What comes by HTTP has no packets of TFTP to show.
            let shown = request.dont_use_buffer
                || face.callback(PxeBaseCodeFunction::MTFTP).is_some()
                    && !transfer.file.contains("://");
            match memory {
                Some(memory) if !shown => {
                    let url = url()?;
                    by_engine(face, |network| shared::read(network, &url, memory))
                }
                memory => by_host(face, transfer, Source::File, memory),
            }
        }
        Opcode::TFTP_READ_DIRECTORY => by_host(face, transfer, Source::Directory, memory),
        Opcode::TFTP_WRITE_FILE => {
            let memory = memory.ok_or(Refusal::InvalidParameter)?;
            let written = face.work(PxeBaseCodeFunction::MTFTP, |host, port| {
                host.tftp_write(port, transfer, memory.rest(0))
            });
            written.map(|()| memory.len() as u64)
        }
        Opcode::MTFTP_GET_FILE_SIZE | Opcode::MTFTP_READ_FILE | Opcode::MTFTP_READ_DIRECTORY => {
            Err(Refusal::Unsupported)
        }
        _ => Err(Refusal::InvalidParameter),
    }
}

fn by_engine(
    face: &mut Face<'_>,
    get: impl FnOnce(&mut dyn Network) -> Result<u64, Failure>,
) -> Result<u64, Refusal> {
    // The host hears the ICMP errors.
    let link = face.call.state.snp.link();
    let up = link.is_host_up();
    link.set_host_up(true);
    let result = get(&mut *face.call.state.network);
    let result = result.map_err(|failure| match failure {
        Failure::TooSmall(len) => {
            Refusal::BufferTooSmall(usize::try_from(len).unwrap_or(usize::MAX))
        }
        Failure::Tftp { code, text } => {
            face.host().set_tftp_error(code.into(), text.as_bytes());
            Refusal::TftpError
        }
        Failure::NotFound => {
            face.host().set_tftp_error(1, b"File not found");
            Refusal::TftpError
        }
        Failure::Refused => {
            let heard = face.listen();
            heard.err().unwrap_or(Refusal::IcmpError)
        }
        Failure::Timeout => Refusal::Timeout,
        Failure::OutOfResources => Refusal::OutOfResources,
        Failure::Device => Refusal::DeviceError,
    });
    face.call.state.snp.link().set_host_up(up);
    result
}

fn by_host(
    face: &mut Face<'_>,
    transfer: &Transfer<'_>,
    source: Source,
    mut memory: Option<Buffer>,
) -> Result<u64, Refusal> {
    let room = memory.as_ref().map(|memory| memory.len() as u64);
    face.work(PxeBaseCodeFunction::MTFTP, |host, port| {
        host.tftp_read(port, transfer, source, room, &mut |at, bytes| {
            let place = usize::try_from(at).ok().zip(memory.as_mut());
            let place = place.map(|(at, memory)| memory.rest_mut(at));
            if let Some(place) = place.and_then(|rest| rest.get_mut(..bytes.len())) {
                place.copy_from_slice(bytes);
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_files_of_the_server_or_urls() {
        let server = "10.0.0.1".parse().unwrap();
        let text = |file| url(server, file).map(|url| url.as_str().to_string());
        assert_eq!(text("a/b.efi").as_deref(), Some("tftp://10.0.0.1/a/b.efi"));
        assert_eq!(text("http://c/d").as_deref(), Some("http://c/d"));
        assert_eq!(text("https://c/d"), None);
    }

    #[test]
    fn a_name_ends_with_a_zero_and_is_text() {
        // SAFETY: each ends with a zero.
        let name = |bytes: &'static [u8]| unsafe { file_name(bytes.as_ptr().cast()) };
        assert_eq!(name(b"grubx64.efi\0rest"), Some("grubx64.efi"));
        assert_eq!(name(b"\0"), Some(""));
        assert_eq!(name(b"\xff\0"), None);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { file_name(core::ptr::null()) }, None);
        let endless = alloc::vec![b'a'; LONGEST_NAME + 1];
        // SAFETY: longer than what is looked at.
        assert_eq!(unsafe { file_name(endless.as_ptr().cast()) }, None);
    }
}
