//! Loaders that have the firmware's HTTP fetch: EFI_HTTP_PROTOCOL (UEFI 2.10, section 29.6).

use crate::base_code::{BaseCode, own_address};
use crate::efi;
use crate::report::{Failure, succeeded};
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::protocol::network::http::HttpHeader;
use uefi_raw::protocol::network::http::{
    HttpAccessPoint, HttpConfigData, HttpMessage, HttpMethod, HttpProtocol, HttpRequestData,
    HttpRequestOrResponse, HttpResponseData, HttpStatusCode, HttpToken, HttpV4AccessPoint,
    HttpVersion,
};
use uefi_raw::protocol::network::ip4_config2::{
    Ip4Config2DataType, Ip4Config2ManualAddress, Ip4Config2Policy, Ip4Config2Protocol,
};
use uefi_raw::table::boot::{EventType, Tpl};
use uefi_raw::{Boolean, Event, Ipv4Address};
use wireboot_platform::Clock;

/// What a loader reads at a time, where that is not the whole file: shim's.
const PIECE: usize = 9216;
/// How long a token may stay out, in microseconds.
const PATIENCE: u64 = 60_000_000;
/// How long FreeBSD's loader waits between two polls.
const PAUSE: usize = 100_000;
/// Larger than any file of these tests.
const LARGEST: usize = 1 << 30;

/// A child of the service binding, configured. It is destroyed on drop.
struct Http {
    binding: NonNull<ServiceBindingProtocol>,
    child: uefi_raw::Handle,
    protocol: NonNull<HttpProtocol>,
    event: Event,
    clock: Clock,
    /// Between two polls.
    pause: Option<usize>,
}

impl Drop for Http {
    fn drop(&mut self) {
        // SAFETY: made by `open`.
        unsafe {
            let _ = (self.binding.as_ref().destroy_child)(self.binding.as_ptr(), self.child);
            if let Ok(services) = efi::services() {
                let _ = (services.close_event)(self.event);
            }
        }
    }
}

unsafe extern "efiapi" fn nothing(_event: Event, _context: *mut c_void) {}

/// Gives the interface the address that DHCP gave, as loaders do before they use HTTP.
fn set_address(handle: Handle, device: Handle) -> Result<(), Failure> {
    let config: NonNull<Ip4Config2Protocol> =
        efi::protocol(handle, &Ip4Config2Protocol::GUID, "IP4Config2")?;
    let mode = BaseCode::of(device)?.mode();
    let mask: [u8; 16] = {
        // SAFETY: a union of plain bytes.
        unsafe { core::mem::transmute(mode.subnet_mask) }
    };
    let address = Ip4Config2ManualAddress {
        address: Ipv4Address(own_address(&mode.dhcp_ack)),
        subnet_mask: Ipv4Address(mask.first_chunk().copied().unwrap_or_default()),
    };
    let policy = Ip4Config2Policy::STATIC;
    // SAFETY: data of the sizes that are told.
    unsafe {
        let this = config.as_ptr();
        let set = config.as_ref().set_data;
        let status = set(
            this,
            Ip4Config2DataType::POLICY,
            size_of_val(&policy),
            (&raw const policy).cast(),
        );
        succeeded("SetData(Policy)", status)?;
        let status = set(
            this,
            Ip4Config2DataType::MANUAL_ADDRESS,
            size_of_val(&address),
            (&raw const address).cast(),
        );
        succeeded("SetData(ManualAddress)", status)
    }
}

impl Http {
    fn open(device: Handle, clock: Clock) -> Result<Self, Failure> {
        let handle = efi::on_the_way(
            device,
            &HttpProtocol::SERVICE_BINDING_GUID,
            "HTTP service binding",
        )?;
        let binding: NonNull<ServiceBindingProtocol> = efi::protocol(
            handle,
            &HttpProtocol::SERVICE_BINDING_GUID,
            "HTTP service binding",
        )?;
        set_address(handle, device)?;
        let mut child = ptr::null_mut();
        let mut event = ptr::null_mut();
        // SAFETY: variables of ours; the notification does nothing.
        unsafe {
            let status = (binding.as_ref().create_child)(binding.as_ptr(), &mut child);
            succeeded("CreateChild", status)?;
            let status = (efi::services()?.create_event)(
                EventType::NOTIFY_SIGNAL,
                Tpl::NOTIFY,
                Some(nothing),
                ptr::null_mut(),
                &mut event,
            );
            succeeded("CreateEvent", status)?;
        }
        // SAFETY: a handle of the producer's.
        let of_child = unsafe { Handle::from_ptr(child) };
        let of_child = of_child.ok_or(Failure::Wrong("a child without a handle"))?;
        let protocol = efi::protocol(of_child, &HttpProtocol::GUID, "HTTP on its child")?;
        Ok(Self {
            binding,
            child,
            protocol,
            event,
            clock,
            pause: None,
        })
    }

    fn table(&self) -> &HttpProtocol {
        // SAFETY: there until the child is destroyed.
        unsafe { self.protocol.as_ref() }
    }

    fn configure(&self) -> Result<(), Failure> {
        let mut point = HttpV4AccessPoint {
            use_default_addr: Boolean::TRUE,
            ..HttpV4AccessPoint::default()
        };
        let config = HttpConfigData {
            http_version: HttpVersion::HTTP_VERSION_11,
            time_out_millisec: 0,
            local_addr_is_ipv6: Boolean::FALSE,
            access_point: HttpAccessPoint {
                ipv4_node: &mut point,
            },
        };
        // SAFETY: variables of ours.
        let status = unsafe { (self.table().configure)(self.protocol.as_ptr(), &config) };
        succeeded("Configure", status)
    }

    /// Polls until the token is signalled.
    fn wait(&self, what: &'static str, token: &HttpToken) -> Result<(), Failure> {
        let end = self.clock.micros() + PATIENCE;
        let status = loop {
            // SAFETY: the producer writes the token.
            let status = unsafe { (&raw const token.status).read_volatile() };
            if status != Status::NOT_READY {
                break status;
            }
            // SAFETY: the producer's function.
            let _ = unsafe { (self.table().poll)(self.protocol.as_ptr()) };
            if self.clock.micros() > end {
                return Err(Failure::Refused(what, Status::TIMEOUT));
            }
            if let Some(pause) = self.pause {
                // SAFETY: the firmware's service.
                let _ = unsafe { (efi::services()?.stall)(pause) };
            }
        };
        succeeded(what, status)
    }

    fn request(&self, method: HttpMethod, url: &str) -> Result<(), Failure> {
        let wide: Vec<u16> = url.encode_utf16().chain([0]).collect();
        let host = url.split('/').nth(2).unwrap_or_default();
        let host: Vec<u8> = host.bytes().chain([0]).collect();
        let mut headers = [
            HttpHeader {
                field_name: c"Host".as_ptr().cast(),
                field_value: host.as_ptr().cast(),
            },
            HttpHeader {
                field_name: c"Accept".as_ptr().cast(),
                field_value: c"*/*".as_ptr().cast(),
            },
        ];
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
        let mut token = self.token(&mut message);
        // SAFETY: all of the message lives until the token is signalled.
        let status = unsafe { (self.table().request)(self.protocol.as_ptr(), &mut token) };
        succeeded("Request", status)?;
        self.wait("Request's token", &token)
    }

    fn token(&self, message: &mut HttpMessage) -> HttpToken {
        HttpToken {
            event: self.event,
            status: Status::NOT_READY,
            message,
        }
    }

    /// The first Response, with so much room for the body. Returns Content-Length and the bytes that came.
    fn first(&self, room: &mut [u8]) -> Result<(usize, usize), Failure> {
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
        let mut token = self.token(&mut message);
        // SAFETY: all of the message lives until the token is signalled.
        let status = unsafe { (self.table().response)(self.protocol.as_ptr(), &mut token) };
        succeeded("Response", status)?;
        self.wait("Response's token", &token)?;
        // SAFETY: the producer has written both.
        let code = unsafe { (&raw const data.status_code).read_volatile() };
        if code != HttpStatusCode::STATUS_200_OK {
            return Err(Failure::Wrong("another status than 200"));
        }
        let length = length(&message);
        if !message.header.is_null() {
            // SAFETY: loaders free the array, which comes from the pool.
            let _ = unsafe { (efi::services()?.free_pool)(message.header.cast()) };
        }
        let length = length.filter(|&length| length <= LARGEST);
        let length = length.ok_or(Failure::Wrong("no Content-Length"))?;
        Ok((length, message.body_length))
    }

    /// A later Response, without data and headers.
    fn more(&self, room: &mut [u8]) -> Result<usize, Failure> {
        let mut message = HttpMessage {
            body_length: room.len(),
            body: room.as_mut_ptr().cast(),
            ..HttpMessage::default()
        };
        let mut token = self.token(&mut message);
        // SAFETY: as above.
        let status = unsafe { (self.table().response)(self.protocol.as_ptr(), &mut token) };
        succeeded("a later Response", status)?;
        self.wait("a later Response's token", &token)?;
        match message.body_length {
            0 => Err(Failure::Wrong("a Response without a byte")),
            len => Ok(len),
        }
    }

    /// The rest of a file, in pieces of so many bytes at most.
    fn rest(&self, file: &mut [u8], mut have: usize, piece: usize) -> Result<(), Failure> {
        while have < file.len() {
            let end = file.len().min(have.saturating_add(piece));
            let room = file.get_mut(have..end);
            let room = room.ok_or(Failure::Wrong("more than was told"))?;
            have += self.more(room)?;
        }
        Ok(())
    }

    /// The head in a Response of its own, then the body.
    fn get(&self, url: &str, piece: usize) -> Result<Vec<u8>, Failure> {
        self.request(HttpMethod::GET, url)?;
        let (length, _) = self.first(&mut [])?;
        let mut file = vec![0; length];
        self.rest(&mut file, 0, piece)?;
        Ok(file)
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

/// ESXi's mboot: GET, the head alone, and the rest in one Response.
pub(crate) fn esxi(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let http = Http::open(device, clock)?;
    http.configure()?;
    http.get(url, LARGEST)
}

/// Fedora's GRUB: HEAD and GET on the same child, then one Response of the whole file.
pub(crate) fn grub(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let http = Http::open(device, clock)?;
    http.configure()?;
    http.request(HttpMethod::HEAD, url)?;
    let (told, _) = http.first(&mut [])?;
    let file = http.get(url, LARGEST)?;
    if file.len() != told {
        return Err(Failure::Wrong("HEAD and GET tell different sizes"));
    }
    Ok(file)
}

/// shim: pieces of 9,216 bytes, the first with the head.
pub(crate) fn shim(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let http = Http::open(device, clock)?;
    http.configure()?;
    http.request(HttpMethod::GET, url)?;
    let mut first = vec![0; PIECE];
    let (length, have) = http.first(&mut first)?;
    first.truncate(have);
    first.resize(length, 0);
    http.rest(&mut first, have, PIECE)?;
    Ok(first)
}

/// FreeBSD's loader: configured anew, and 100 ms between two polls.
pub(crate) fn freebsd(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let mut http = Http::open(device, clock)?;
    http.pause = Some(PAUSE);
    let mut config = HttpConfigData::default();
    // SAFETY: variables of ours; NULL resets.
    unsafe {
        let this = http.protocol.as_ptr();
        let _ = (http.table().get_mode_data)(this, &mut config);
        let status = (http.table().configure)(this, ptr::null());
        succeeded("Configure(NULL)", status)?;
    }
    http.configure()?;
    http.get(url, LARGEST)
}
