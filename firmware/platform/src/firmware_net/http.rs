//! The firmware's HTTP by `EFI_HTTP_PROTOCOL` (UEFI 2.10, section 29.6).

use super::{handle_with, open};
use crate::claim::pci::Candidate;
use alloc::vec::Vec;
use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use uefi::boot::{self, OpenProtocolAttributes, ScopedProtocol};
use uefi::proto::network::http::{Http as HttpProtocol, HttpBinding};
use uefi::proto::network::ip4config2::Ip4Config2;
use uefi::{CString16, Handle, Identify, Status, StatusExt};
use uefi_raw::protocol::network::http::{
    HttpAccessPoint, HttpConfigData, HttpHeader, HttpMessage, HttpMethod, HttpRequestData,
    HttpRequestOrResponse, HttpResponseData, HttpStatusCode, HttpToken, HttpV4AccessPoint,
    HttpVersion,
};
use uefi_raw::protocol::network::ip4_config2::Ip4Config2DataType;

/// The firmware's HTTP over IPv4, with an address from its DHCP. How the firmware comes by addresses is as before on drop.
#[derive(Debug)]
pub struct Http {
    /// Before the policy, whose change it need not see.
    child: Child,
    _policy: Policy,
}

/// A child of the service binding. It is destroyed on drop.
#[derive(Debug)]
struct Child {
    binding: ScopedProtocol<HttpBinding>,
    handle: Handle,
    /// `None` only while being dropped.
    protocol: Option<ScopedProtocol<HttpProtocol>>,
}

/// How the firmware comes by addresses.
#[derive(Debug)]
struct Policy {
    configuration: ScopedProtocol<Ip4Config2>,
    before: Vec<u8>,
}

impl Http {
    /// Has the firmware obtain an address, which takes it seconds, and opens its HTTP.
    ///
    /// # Errors
    /// What the firmware answers when it has no HTTP on the interface, or obtains no address (`TIMEOUT`).
    pub fn open(interface: &Candidate) -> uefi::Result<Self> {
        let handle = handle_with(interface, &Ip4Config2::GUID, |_| true)?;
        // SAFETY: nothing below removes the protocol while it is open. (Opening it exclusively would disconnect the
        // firmware's network.)
        let mut configuration: ScopedProtocol<Ip4Config2> =
            unsafe { open(handle, OpenProtocolAttributes::GetProtocol) }?;
        let before = configuration.get_data(Ip4Config2DataType::POLICY)?;
        let mut policy = Policy {
            configuration,
            before,
        };
        policy.configuration.ifup()?;
        let handle = handle_with(interface, &HttpBinding::GUID, |_| true)?;
        let mut child = Child::new(handle)?;
        child.configure()?;
        Ok(Self {
            child,
            _policy: policy,
        })
    }

    /// Reads a file into `memory`, straight from the protocol, and returns its size. For one file: the connection is closed behind it.
    ///
    /// # Errors
    /// What the firmware answers: `TIMEOUT`, `HTTP_ERROR` and others. `NOT_FOUND` for any status but 200, `BUFFER_TOO_SMALL` for a
    /// larger file, `UNSUPPORTED` when the server does not tell its size, `END_OF_FILE` when it ends before.
    pub fn read(&mut self, url: &str, memory: &mut [u8]) -> uefi::Result<u64> {
        self.child.get(url)?;
        let size = self.child.head()?;
        let mut rest = memory.get_mut(..size).ok_or(Status::BUFFER_TOO_SMALL)?;
        while !rest.is_empty() {
            let came = self.child.body(rest)?;
            rest = match rest.get_mut(came..) {
                Some(later) if came > 0 => later,
                _ => return Err(Status::END_OF_FILE.into()),
            };
        }
        Ok(size as u64)
    }
}

impl Child {
    fn new(service: Handle) -> uefi::Result<Self> {
        // SAFETY: nothing below removes the protocols while they are open.
        let mut binding: ScopedProtocol<HttpBinding> =
            unsafe { open(service, OpenProtocolAttributes::GetProtocol) }?;
        let handle = binding.create_child()?;
        let mut child = Self {
            binding,
            handle,
            protocol: None,
        };
        // SAFETY: as above.
        child.protocol = Some(unsafe { open(handle, OpenProtocolAttributes::GetProtocol) }?);
        Ok(child)
    }

    fn protocol(&mut self) -> uefi::Result<&mut HttpProtocol> {
        let protocol = self.protocol.as_deref_mut();
        protocol.ok_or_else(|| Status::UNSUPPORTED.into())
    }

    fn configure(&mut self) -> uefi::Result<()> {
        let mut address = HttpV4AccessPoint {
            use_default_addr: true.into(),
            ..HttpV4AccessPoint::default()
        };
        self.protocol()?.configure(&HttpConfigData {
            http_version: HttpVersion::HTTP_VERSION_11,
            time_out_millisec: TIMEOUT,
            local_addr_is_ipv6: false.into(),
            access_point: HttpAccessPoint {
                ipv4_node: &mut address,
            },
        })
    }

    fn get(&mut self, url: &str) -> uefi::Result<()> {
        let host = url.split('/').nth(2).unwrap_or_default();
        let host: Vec<u8> = host.bytes().chain([0]).collect();
        let url = CString16::try_from(url).map_err(|_| Status::INVALID_PARAMETER)?;
        let data = HttpRequestData {
            method: HttpMethod::GET,
            url: url.as_ptr().cast(),
        };
        let mut header = HttpHeader {
            field_name: c"Host".as_ptr().cast(),
            field_value: host.as_ptr(),
        };
        let mut message = HttpMessage {
            data: HttpRequestOrResponse { request: &data },
            header_count: 1,
            header: &mut header,
            body_length: 0,
            body: ptr::null_mut(),
        };
        self.complete(&mut message, HttpProtocol::request)
    }

    /// The head of the answer alone; the size of the body.
    fn head(&mut self) -> uefi::Result<usize> {
        let mut data = HttpResponseData {
            status_code: HttpStatusCode::STATUS_UNSUPPORTED,
        };
        let mut message = HttpMessage {
            data: HttpRequestOrResponse {
                response: &mut data,
            },
            header_count: 0,
            header: ptr::null_mut(),
            body_length: 0,
            body: ptr::null_mut(),
        };
        let result = self.complete(&mut message, HttpProtocol::response);
        // SAFETY: the firmware has filled it, or it is as above.
        let length = unsafe { take_length(&message) };
        match (result, data.status_code) {
            (Ok(()), HttpStatusCode::STATUS_200_OK) => {
                length.ok_or_else(|| Status::UNSUPPORTED.into())
            }
            (Err(error), _) if error.status() != Status::HTTP_ERROR => Err(error),
            _ => Err(Status::NOT_FOUND.into()),
        }
    }

    /// What comes of the body in one call, at most as much as there is room for.
    fn body(&mut self, room: &mut [u8]) -> uefi::Result<usize> {
        let mut message = HttpMessage {
            data: HttpRequestOrResponse {
                response: ptr::null_mut(),
            },
            header_count: 0,
            header: ptr::null_mut(),
            body_length: room.len(),
            body: room.as_mut_ptr().cast::<c_void>(),
        };
        self.complete(&mut message, HttpProtocol::response)?;
        Ok(message.body_length)
    }

    /// Hands a token for `message` to a function of the protocol, and polls until it is back.
    fn complete(
        &mut self,
        message: &mut HttpMessage,
        function: fn(&mut HttpProtocol, &mut HttpToken) -> uefi::Result<()>,
    ) -> uefi::Result<()> {
        let protocol = self.protocol()?;
        let mut token = HttpToken {
            event: ptr::null_mut(),
            status: Status::NOT_READY,
            message,
        };
        function(protocol, &mut token)?;
        loop {
            // SAFETY: a variable of ours, to which the firmware writes, hence volatile.
            let status = unsafe { (&raw const token.status).read_volatile() };
            if status != Status::NOT_READY {
                return status.to_result();
            }
            match protocol.poll() {
                Err(error) if error.status() != Status::NOT_READY => {
                    protocol.cancel(&mut token)?;
                    return Err(error);
                }
                _ => {}
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.protocol = None;
        let _ = self.binding.destroy_child(self.handle);
    }
}

/// How long the firmware may try, in milliseconds.
const TIMEOUT: u32 = 10_000;

/// The value of Content-Length, if there is one. Frees the headers.
///
/// # Safety
/// The headers of `message` must be none or the firmware's own, and nobody may use them afterwards.
unsafe fn take_length(message: &HttpMessage) -> Option<usize> {
    let headers = NonNull::new(message.header)?;
    let mut length = None;
    for index in 0..message.header_count {
        // SAFETY: there are so many (the caller's word), each with two strings that end with zeros and come from the pool.
        unsafe {
            let HttpHeader {
                field_name,
                field_value,
            } = headers.add(index).read();
            let name = CStr::from_ptr(field_name.cast());
            if name.to_bytes().eq_ignore_ascii_case(b"content-length") {
                let value = CStr::from_ptr(field_value.cast()).to_str().ok();
                length = value.and_then(|value| value.trim().parse().ok());
            }
            for string in [field_name, field_value] {
                if let Some(string) = NonNull::new(string.cast_mut()) {
                    let _ = boot::free_pool(string);
                }
            }
        }
    }
    // SAFETY: from the pool, too.
    let _ = unsafe { boot::free_pool(headers.cast()) };
    length
}

impl Drop for Policy {
    fn drop(&mut self) {
        let policy = Ip4Config2DataType::POLICY;
        // A failure leaves it with DHCP, as network boot does.
        let _ = self.configuration.set_data(policy, &mut self.before);
    }
}
