//! Loaders that have the firmware's HTTP fetch: EFI_HTTP_PROTOCOL (UEFI 2.10, section 29.6). A child of the service binding, its tokens, and
//! how loaders wait for them.

mod loaders;

pub(crate) use loaders::{esxi, freebsd, grub, shim};

use crate::efi;
use crate::report::{Failure, succeeded};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::net::IpAddr;
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::protocol::network::http::{
    HttpAccessPoint, HttpConfigData, HttpHeader, HttpMessage, HttpMethod, HttpProtocol,
    HttpRequestData, HttpRequestOrResponse, HttpResponseData, HttpStatusCode, HttpToken,
    HttpV4AccessPoint, HttpV6AccessPoint, HttpVersion,
};
use uefi_raw::table::boot::{EventType, Tpl};
use uefi_raw::{Event, Ipv4Address};
use wireboot_platform::Clock;

/// How long a token may stay out, in microseconds.
const PATIENCE: u64 = 60_000_000;
/// Larger than any file of these tests.
const LARGEST: usize = 1 << 30;

/// How a loader waits for its tokens.
#[derive(Clone, Copy)]
struct TokenWait {
    /// At which its events notify.
    tpl: Tpl,
    /// Between two polls, in microseconds. Who waits there takes an error of Poll for the end.
    pause: Option<usize>,
}

/// Room for an access point of either version.
#[derive(Default)]
pub(crate) struct AccessPoint {
    v4: HttpV4AccessPoint,
    v6: HttpV6AccessPoint,
}

impl AccessPoint {
    /// What Configure is given, for a local address, or for any of the version.
    pub(crate) fn config(&mut self, local: Local) -> HttpConfigData {
        let v6 = local.address.is_ipv6();
        match local.address {
            IpAddr::V4(address) => {
                self.v4 = HttpV4AccessPoint {
                    use_default_addr: local.address.is_unspecified().into(),
                    local_address: Ipv4Address(address.octets()),
                    local_subnet: Ipv4Address(local.mask),
                    local_port: local.port,
                }
            }
            IpAddr::V6(address) => {
                self.v6 = HttpV6AccessPoint {
                    local_address: address.into(),
                    local_port: local.port,
                }
            }
        }
        HttpConfigData {
            http_version: HttpVersion::HTTP_VERSION_11,
            time_out_millisec: local.timeout,
            local_addr_is_ipv6: v6.into(),
            access_point: self.node(v6),
        }
    }

    /// Whether it tells of `local`.
    pub(crate) fn is(&self, local: Local) -> bool {
        match local.address {
            IpAddr::V4(address) => {
                self.v4.local_address.0 == address.octets() && self.v4.local_port == local.port
            }
            IpAddr::V6(address) => {
                self.v6.local_address.0 == address.octets() && self.v6.local_port == local.port
            }
        }
    }

    /// Where GetModeData writes it.
    pub(crate) fn node(&mut self, v6: bool) -> HttpAccessPoint {
        if v6 {
            HttpAccessPoint {
                ipv6_node: &mut self.v6,
            }
        } else {
            HttpAccessPoint {
                ipv4_node: &mut self.v4,
            }
        }
    }
}

/// A loader's own end of its connections.
#[derive(Clone, Copy)]
pub(crate) struct Local {
    pub address: IpAddr,
    pub mask: [u8; 4],
    pub port: u16,
    /// How long a connection may take, in milliseconds.
    pub timeout: u32,
}

/// The handle with the service binding on the way to `device`.
pub(crate) fn binding_on_the_way(device: Handle) -> Result<Handle, Failure> {
    let guid = &HttpProtocol::SERVICE_BINDING_GUID;
    efi::on_the_way(device, guid, "HTTP service binding")
}

/// A child of a service binding. It is destroyed on drop.
pub(crate) struct Child {
    binding: NonNull<ServiceBindingProtocol>,
    handle: uefi_raw::Handle,
    pub protocol: NonNull<HttpProtocol>,
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: made by `create`.
        let _ =
            unsafe { (self.binding.as_ref().destroy_child)(self.binding.as_ptr(), self.handle) };
    }
}

impl Child {
    pub(crate) fn create(handle: Handle) -> Result<Self, Failure> {
        let binding: NonNull<ServiceBindingProtocol> = efi::protocol(
            handle,
            &HttpProtocol::SERVICE_BINDING_GUID,
            "HTTP service binding",
        )?;
        let mut child = ptr::null_mut();
        // SAFETY: a variable of ours.
        let status = unsafe { (binding.as_ref().create_child)(binding.as_ptr(), &mut child) };
        succeeded("CreateChild", status)?;
        // SAFETY: a handle of the producer's.
        let of_child = unsafe { Handle::from_ptr(child) };
        let of_child = of_child.ok_or(Failure::Wrong("a child without a handle"))?;
        let protocol = efi::protocol(of_child, &HttpProtocol::GUID, "HTTP on its child")?;
        Ok(Self {
            binding,
            handle: child,
            protocol,
        })
    }

    pub(crate) fn table(&self) -> &HttpProtocol {
        // SAFETY: there until the child is destroyed.
        unsafe { self.protocol.as_ref() }
    }

    /// Ends the child, and tells what DestroyChild answered.
    pub(crate) fn destroy(self) -> Status {
        // SAFETY: made by `create`.
        let status =
            unsafe { (self.binding.as_ref().destroy_child)(self.binding.as_ptr(), self.handle) };
        if status == Status::SUCCESS {
            core::mem::forget(self);
        }
        status
    }

    /// Configure; `None` resets.
    pub(crate) fn configure(&self, config: Option<&HttpConfigData>) -> Status {
        let config = config.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the caller's data, or NULL.
        unsafe { (self.table().configure)(self.protocol.as_ptr(), config) }
    }
}

/// An event that tells whether it has been signalled. It is closed on drop.
pub(crate) struct Signal {
    pub event: Event,
    signalled: Box<Cell<bool>>,
}

unsafe extern "efiapi" fn note(_event: Event, context: *mut c_void) {
    // SAFETY: the cell of a signal, which lives as long as its event.
    unsafe { &*context.cast::<Cell<bool>>() }.set(true);
}

impl Signal {
    pub(crate) fn new(tpl: Tpl) -> Result<Self, Failure> {
        let signalled = Box::new(Cell::new(false));
        let mut event = ptr::null_mut();
        // SAFETY: variables of ours; the cell lives as long as the event.
        let status = unsafe {
            (efi::services()?.create_event)(
                EventType::NOTIFY_SIGNAL,
                tpl,
                Some(note),
                ptr::from_ref(&*signalled).cast_mut().cast(),
                &mut event,
            )
        };
        succeeded("CreateEvent", status)?;
        Ok(Self { event, signalled })
    }

    pub(crate) fn is_signalled(&self) -> bool {
        // SAFETY: the notification writes it while this program waits.
        unsafe { self.signalled.as_ptr().read_volatile() }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        if let Ok(services) = efi::services() {
            // SAFETY: made by `new`.
            let _ = unsafe { (services.close_event)(self.event) };
        }
    }
}

/// A configured child, and how its loader uses it.
struct Http {
    child: Child,
    wait: TokenWait,
    clock: Clock,
    /// Header lines of each request, beside those that its loader gives.
    fields: &'static [(&'static CStr, &'static CStr)],
    /// It looks at no status of a token for the body: only a Response that is refused ends its loop.
    heedless: bool,
}

/// A file's head.
struct Head {
    status: HttpStatusCode,
    /// The length of the body, where the server announced one.
    length: Option<usize>,
    /// Bytes of the body that came with it.
    have: usize,
    /// How often its loader has polled.
    polls: u32,
}

impl Http {
    /// Gives a token away by `begin`, and waits for it. Returns the token's status, and how often it has polled.
    fn exchange(
        &self,
        what: &'static str,
        begin: unsafe extern "efiapi" fn(*mut HttpProtocol, *mut HttpToken) -> Status,
        message: &mut HttpMessage,
    ) -> Result<(Status, u32), Failure> {
        let signal = Signal::new(self.wait.tpl)?;
        let mut token = HttpToken {
            event: signal.event,
            status: Status::NOT_READY,
            message,
        };
        let this = self.child.protocol.as_ptr();
        // SAFETY: all of the message lives until the token is signalled or cancelled.
        succeeded(what, unsafe { begin(this, &mut token) })?;
        let end = self.clock.micros() + PATIENCE;
        let mut polls = 0;
        while !signal.is_signalled() {
            polls += 1;
            // SAFETY: the producer's function.
            let polled = unsafe { (self.child.table().poll)(this) };
            let gives_up = polled.is_error() && self.wait.pause.is_some();
            let too_long = self.clock.micros() > end;
            if gives_up || too_long {
                // SAFETY: the token is given back before its memory goes.
                let _ = unsafe { (self.child.table().cancel)(this, &mut token) };
            }
            if too_long {
                return Err(Failure::Wrong("a token is not signalled"));
            }
            if gives_up {
                return Err(Failure::Refused("Poll", polled));
            }
            if let Some(pause) = self.wait.pause.filter(|_| !signal.is_signalled()) {
                // SAFETY: the firmware's service.
                let _ = unsafe { (efi::services()?.stall)(pause) };
            }
        }
        // SAFETY: the producer has written it.
        Ok((unsafe { (&raw const token.status).read_volatile() }, polls))
    }

    /// The same for a token that must end well. Returns how often it has polled.
    fn exchange_well(
        &self,
        what: &'static str,
        begin: unsafe extern "efiapi" fn(*mut HttpProtocol, *mut HttpToken) -> Status,
        message: &mut HttpMessage,
    ) -> Result<u32, Failure> {
        match self.exchange(what, begin, message)? {
            (Status::SUCCESS | Status::HTTP_ERROR, polls) => Ok(polls),
            (status, _) => Err(Failure::Refused(what, status)),
        }
    }

    /// Request. `host`: as its loader tells it.
    fn request(&self, method: HttpMethod, url: &str, host: &str) -> Result<u32, Failure> {
        let wide: Vec<u16> = url.encode_utf16().chain([0]).collect();
        let host: Vec<u8> = host.bytes().chain([0]).collect();
        let mut headers = alloc::vec![HttpHeader {
            field_name: c"Host".as_ptr().cast(),
            field_value: host.as_ptr().cast(),
        }];
        headers.extend(self.fields.iter().map(|(name, value)| HttpHeader {
            field_name: name.as_ptr().cast(),
            field_value: value.as_ptr().cast(),
        }));
        let data = HttpRequestData {
            method,
            url: wide.as_ptr().cast(),
        };
        let mut message = HttpMessage {
            data: HttpRequestOrResponse { request: &data },
            header_count: headers.len(),
            header: headers.as_mut_ptr(),
            body_length: 0,
            body: ptr::null_mut(),
        };
        self.exchange_well("Request", self.child.table().request, &mut message)
    }

    /// The first Response, with so much room for the body.
    fn first(&self, room: &mut [u8]) -> Result<Head, Failure> {
        let mut data = HttpResponseData {
            status_code: HttpStatusCode::STATUS_UNSUPPORTED,
        };
        let mut message = HttpMessage {
            data: HttpRequestOrResponse {
                response: &mut data,
            },
            header_count: 0,
            header: ptr::null_mut(),
            body_length: room.len(),
            body: if room.is_empty() {
                ptr::null_mut()
            } else {
                room.as_mut_ptr().cast()
            },
        };
        let response = self.child.table().response;
        let polls = self.exchange_well("Response", response, &mut message)?;
        // SAFETY: the producer has written it.
        let status = unsafe { (&raw const data.status_code).read_volatile() };
        let length = length(&message);
        if !message.header.is_null() {
            // SAFETY: loaders free the array, which comes from the pool.
            let _ = unsafe { (efi::services()?.free_pool)(message.header.cast()) };
        }
        Ok(Head {
            status,
            length,
            have: message.body_length,
            polls,
        })
    }

    /// A later Response, without data and headers.
    fn more(&self, room: &mut [u8]) -> Result<usize, Failure> {
        let mut message = HttpMessage {
            body_length: room.len(),
            body: room.as_mut_ptr().cast(),
            ..HttpMessage::default()
        };
        let response = self.child.table().response;
        if self.heedless {
            let _ = self.exchange("a later Response", response, &mut message)?;
            return Ok(message.body_length);
        }
        self.exchange_well("a later Response", response, &mut message)?;
        match message.body_length {
            0 => Err(Failure::Wrong("a Response without a byte")),
            len => Ok(len),
        }
    }

    /// The rest of a file, in pieces of so many bytes at most. Returns how many Responses that took.
    fn rest(&self, file: &mut [u8], mut have: usize, piece: usize) -> Result<u32, Failure> {
        let mut responses = 0;
        while have < file.len() {
            let end = file.len().min(have.saturating_add(piece));
            let room = file.get_mut(have..end);
            let room = room.ok_or(Failure::Wrong("more than was told"))?;
            have += self.more(room)?;
            responses += 1;
        }
        Ok(responses)
    }
}

impl Head {
    /// The file's size.
    fn size(&self) -> Result<usize, Failure> {
        if self.status != HttpStatusCode::STATUS_200_OK {
            return Err(Failure::Wrong("another status than 200"));
        }
        let length = self.length.filter(|&length| length <= LARGEST);
        length.ok_or(Failure::Wrong("no Content-Length"))
    }
}

fn length(message: &HttpMessage) -> Option<usize> {
    if message.header.is_null() {
        return None;
    }
    // SAFETY: the producer's array of so many headers, each a pair of texts with zeros behind.
    let headers = unsafe { core::slice::from_raw_parts(message.header, message.header_count) };
    headers.iter().find_map(|header| {
        // SAFETY: as above.
        let (name, value) = unsafe {
            (
                CStr::from_ptr(header.field_name.cast()),
                CStr::from_ptr(header.field_value.cast()),
            )
        };
        let is_length = name.to_bytes().eq_ignore_ascii_case(b"content-length");
        let value = value.to_str().ok().filter(|_| is_length)?;
        value.trim().parse().ok()
    })
}
