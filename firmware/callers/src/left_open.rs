//! Programs that leave things behind: everything open, or their caller's image by Exit.

use crate::report::{Failure, succeeded, tell};
use crate::{base_code, efi, snp};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::mem;
use core::ptr::{self, NonNull};
use core::time::Duration;
use uefi::Handle;
use uefi::boot::{self, LoadImageSource, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::device_path::DevicePath;
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::protocol::network::http::{
    HttpAccessPoint, HttpConfigData, HttpHeader, HttpMessage, HttpMethod, HttpProtocol,
    HttpRequestData, HttpRequestOrResponse, HttpResponseData, HttpStatusCode, HttpToken,
    HttpV4AccessPoint, HttpVersion,
};
use uefi_raw::protocol::network::pxe::PxeBaseCodeProtocol;
use uefi_raw::table::boot::{EventNotifyFn, EventType, Tpl};
use uefi_raw::{Boolean, Event, Status};
use wireboot_platform::Clock;

/// A host that is not there.
const NOBODY: &str = "http://10.77.0.250/x";

/// Reads the file, and then leaves all open: the base code and SNP exclusively, SNP started, and a child of HTTP with two tokens out. Their memory
/// is free before this program returns, for longer than it takes to answer them, and the code that their event calls when it has.
pub(crate) fn leave_open(device: Handle, file: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let bytes = base_code::openbsd(device, file)?;
    efi::exclusively::<PxeBaseCodeProtocol>(device, &PxeBaseCodeProtocol::GUID)?;
    mem::forget(snp::Snp::open(snp::interface(device)?, clock)?);
    let tokens = ask_nobody(device, Some(told))?;
    let begin = clock.micros();
    for token in tokens {
        // SAFETY: a token that this program has leaked. This is what EDK II's firmware makes of memory that is freed.
        unsafe { token.write_bytes(0xaf, 1) };
    }
    while clock.micros() - begin < ANSWERED_WITHIN {
        boot::stall(STEP);
    }
    Ok(bytes)
}

unsafe extern "efiapi" fn told(_event: Event, context: *mut c_void) {
    // SAFETY: a token that this program has leaked.
    let status = unsafe { (*context.cast::<HttpToken>()).status };
    tell(format_args!("a token was answered: {status:?}"));
}

/// Microseconds in which the tokens of a host that is not there, or of a card that is gone, are answered: their producer does so when its timer next fires.
const ANSWERED_WITHIN: u64 = 5_000_000;
/// How long the firmware waits at a time.
const STEP: Duration = Duration::from_millis(10);

/// Tells how the tokens that [`ask_nobody`] gave are answered, if they are.
pub(crate) fn tell_answers(tokens: [NonNull<HttpToken>; 2], clock: Clock) -> Result<(), Failure> {
    let begin = clock.micros();
    let check = efi::services()?.check_event;
    for token in tokens {
        // SAFETY: a token that this program has leaked, whose producer does not change its event.
        let event = unsafe { (*token.as_ptr()).event };
        // SAFETY: the event is never closed.
        let is_answered = || unsafe { check(event) } == Status::SUCCESS;
        let mut answered = is_answered();
        while !answered && clock.micros() - begin < ANSWERED_WITHIN {
            answered = is_answered();
        }
        if answered {
            // SAFETY: leaked, and its producer is done with it.
            let status = unsafe { (*token.as_ptr()).status };
            tell(format_args!("a token was answered: {status:?}"));
        }
    }
    Ok(())
}

/// Begins a request that is not answered soon, with two tokens: `notify` is called when one is, if it is given.
pub(crate) fn ask_nobody(
    device: Handle,
    notify: Option<EventNotifyFn>,
) -> Result<[NonNull<HttpToken>; 2], Failure> {
    let guid = &HttpProtocol::SERVICE_BINDING_GUID;
    let handle = efi::on_the_way(device, guid, "HTTP service binding")?;
    let binding = efi::protocol::<ServiceBindingProtocol>(handle, guid, "HTTP service binding")?;
    let mut child = ptr::null_mut();
    // SAFETY: a variable of ours.
    let status = unsafe { (binding.as_ref().create_child)(binding.as_ptr(), &mut child) };
    succeeded("CreateChild", status)?;
    // SAFETY: a handle of the producer's.
    let child = unsafe { Handle::from_ptr(child) }.ok_or(Failure::Wrong("no handle"))?;
    let http = efi::protocol::<HttpProtocol>(child, &HttpProtocol::GUID, "HTTP on its child")?;
    let this = http.as_ptr();
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
    let url: Vec<u16> = NOBODY.encode_utf16().chain([0]).collect();
    let request = HttpRequestData {
        method: HttpMethod::GET,
        url: url.as_ptr().cast(),
    };
    let header = HttpHeader {
        field_name: c"Host".as_ptr().cast(),
        field_value: c"10.77.0.250".as_ptr().cast(),
    };
    // What the producer keeps until it answers lives longer than this function.
    let asks = Box::leak(Box::new(HttpMessage {
        data: HttpRequestOrResponse { request: &request },
        header_count: 1,
        header: Box::leak(Box::new(header)),
        body_length: 0,
        body: ptr::null_mut(),
    }));
    let answer = Box::leak(Box::new(HttpMessage {
        data: HttpRequestOrResponse {
            response: Box::leak(Box::new(HttpResponseData {
                status_code: HttpStatusCode::STATUS_UNSUPPORTED,
            })),
        },
        header_count: 0,
        header: ptr::null_mut(),
        body_length: 0,
        body: ptr::null_mut(),
    }));
    // SAFETY: the tokens, their messages and their event are left to the producer.
    unsafe {
        succeeded("Configure", (http.as_ref().configure)(this, &config))?;
        let tokens = [token(asks, notify)?, token(answer, notify)?];
        let [request, response] = tokens.map(NonNull::as_ptr);
        succeeded("Request", (http.as_ref().request)(this, request))?;
        succeeded("Response", (http.as_ref().response)(this, response))?;
        Ok(tokens)
    }
}

fn token(
    message: &'static mut HttpMessage,
    notify: Option<EventNotifyFn>,
) -> Result<NonNull<HttpToken>, Failure> {
    let token = Box::leak(Box::new(HttpToken {
        event: ptr::null_mut(),
        status: Status::NOT_READY,
        message,
    }));
    let mut event = ptr::null_mut();
    let kind = match notify {
        Some(_) => EventType::NOTIFY_SIGNAL,
        None => EventType::empty(),
    };
    // SAFETY: variables of ours, and a function of this image.
    let status = unsafe {
        (efi::services()?.create_event)(
            kind,
            Tpl::CALLBACK,
            notify,
            ptr::from_mut(token).cast(),
            &mut event,
        )
    };
    token.event = event;
    succeeded("CreateEvent", status)?;
    Ok(NonNull::from(token))
}

/// Reads the file and starts it, as a program that came from where this one did.
pub(crate) fn start(device: Handle, file: &str) -> Result<Vec<u8>, Failure> {
    let bytes = base_code::openbsd(device, file)?;
    let params = OpenProtocolParams {
        handle: device,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the handle that this image came from stays while it runs.
    let path =
        unsafe { boot::open_protocol::<DevicePath>(params, OpenProtocolAttributes::GetProtocol) };
    let path = path.map_err(|_| Failure::Absent("device path"))?;
    let source = LoadImageSource::FromBuffer {
        buffer: &bytes,
        file_path: path.get(),
    };
    let image = boot::load_image(boot::image_handle(), source);
    let image = image.map_err(|error| Failure::Refused("LoadImage", error.status()))?;
    let status = match boot::start_image(image) {
        Ok(()) => Status::SUCCESS,
        Err(error) => error.status(),
    };
    tell(format_args!("start {file}: it ended with {status:?}"));
    Ok(bytes)
}

/// Ends this program in the midst of its work.
pub(crate) fn exit() -> bool {
    tell(format_args!("exit"));
    // SAFETY: what is on the stack has nothing to give back but memory of this program's, which boot services keep.
    let _ = unsafe { boot::exit(boot::image_handle(), Status::ABORTED, 0, ptr::null_mut()) };
    false
}
