//! EFI_HTTP_PROTOCOL: the tables of the children, and their callers' tokens.

use crate::caller::Buffer;
use crate::handle::Installed;
use crate::shared::{Call, Shared, State};
use crate::signal::signal;
use crate::simple_network::{denied, status};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::net::IpAddr;
use core::ptr::{self, NonNull};
use uefi::Handle;
use uefi::boot::{self, MemoryType};
use uefi_raw::protocol::network::http::{
    HttpConfigData, HttpHeader, HttpMessage, HttpProtocol, HttpStatusCode, HttpToken, HttpVersion,
};
use uefi_raw::{Char8, Char16, Event, Handle as RawHandle, Status};
use wireboot_net::{Duration, Memory};
use wireboot_protocols::Refusal;
use wireboot_protocols::http::{Answer, Asked, Config, Http, Response, Verdict};

/// How long a call or a poll waits for what may be about to come: some callers look again after a tenth of a second only.
const LINGER: Duration = Duration::from_micros(200);
/// Longest URL, in characters, and longest header value that an end is looked for in.
const LONGEST: usize = 0x4000;
/// Header lines of a request, and bytes of its body, at most.
const MOST_HEADERS: usize = 128;
const MOST_BODY: usize = 16 << 20;

/// Of the network protocols (UEFI 2.10, appendix D).
const NETWORK_UNREACHABLE: Status = Status(Status::ERROR_BIT | 100);
const CONNECTION_FIN: Status = Status(Status::ERROR_BIT | 104);
const CONNECTION_RESET: Status = Status(Status::ERROR_BIT | 105);
const CONNECTION_REFUSED: Status = Status(Status::ERROR_BIT | 106);

/// The protocol of a child.
#[repr(C)]
struct Table {
    /// First, so that `this` is also the table's address.
    protocol: HttpProtocol,
    shared: &'static Shared,
}

struct Child {
    installed: Installed,
    /// Made by `create`, and freed when it is installed no more.
    table: NonNull<Table>,
    http: Http,
}

/// The children that there are.
#[derive(Default)]
pub(crate) struct Children(Vec<Child>);

impl Children {
    fn find(&mut self, this: *const HttpProtocol) -> Option<&mut Child> {
        let is = |child: &&mut Child| ptr::eq(child.table.as_ptr().cast_const().cast(), this);
        self.0.iter_mut().find(is)
    }
}

/// A new child, on `handle` if it is not null.
pub(crate) fn create(shared: &'static Shared, handle: RawHandle) -> Result<RawHandle, Status> {
    // A call that is at work would be in the way at the end.
    drop(shared.call().map_err(status)?);
    let table = NonNull::from(Box::leak(Box::new(Table {
        protocol: HttpProtocol {
            get_mode_data,
            configure,
            request,
            cancel,
            response,
            poll,
        },
        shared,
    })));
    // SAFETY: the caller's handle, or none.
    let on = unsafe { Handle::from_ptr(handle) };
    let protocol = (HttpProtocol::GUID, table.as_ptr().cast_const().cast());
    // SAFETY: the table lives as long as the protocol is installed.
    let installed = unsafe { Installed::on(on, &[protocol]) };
    let free = || {
        // SAFETY: leaked above, and not installed.
        drop(unsafe { Box::from_raw(table.as_ptr()) });
    };
    let mut installed = installed.map_err(|error| {
        free();
        error.status()
    })?;
    let handle = installed.handle().as_ptr();
    if let Ok(mut call) = shared.call() {
        call.state.http.0.push(Child {
            installed,
            table,
            http: Http::default(),
        });
        return Ok(handle);
    }
    if installed.remove() {
        free();
    }
    Err(Status::NOT_READY)
}

/// The end of the child on `handle`: its tokens are aborted.
pub(crate) fn destroy(shared: &Shared, handle: RawHandle) -> Status {
    let mut call = match shared.call() {
        Ok(call) => call,
        Err(refusal) => return status(refusal),
    };
    let children = &mut call.state.http.0;
    let is = |child: &Child| child.installed.handle().as_ptr() == handle;
    let Some(index) = children.iter().position(is) else {
        return Status::UNSUPPORTED;
    };
    let mut child = children.swap_remove(index);
    drop(call);
    // The firmware refuses while somebody has it open for good.
    let removed = child.installed.remove();
    let Ok(mut call) = shared.call() else {
        return Status::NOT_READY;
    };
    if !removed {
        call.state.http.0.push(child);
        return Status::ACCESS_DENIED;
    }
    let answers = child.http.abort(&mut *call.state.network);
    // SAFETY: leaked by `create`, and installed no more.
    drop(unsafe { Box::from_raw(child.table.as_ptr()) });
    end(call, answers);
    Status::SUCCESS
}

/// The loader has returned: its children go, and nothing of its tokens is touched, as their memory may be free. False when one stays.
///
/// # Safety
/// As for [`Shared::afterwards`].
pub(crate) unsafe fn drop_children(shared: &Shared) -> bool {
    // SAFETY: the caller's word.
    let children = unsafe {
        shared.afterwards(|state, panicked| {
            let mut children = core::mem::take(&mut state.http.0);
            if !panicked {
                for child in &mut children {
                    drop(child.http.abort(&mut *state.network));
                }
            }
            children
        })
    };
    let mut gone = true;
    for mut child in children {
        if child.installed.remove() {
            // SAFETY: leaked by `create`, and installed no more.
            drop(unsafe { Box::from_raw(child.table.as_ptr()) });
        } else {
            gone = false;
        }
    }
    gone
}

/// Answers the tokens for which something has come, while nobody calls.
pub(crate) fn advance_all(shared: &Shared) {
    let Some(mut state) = shared.state() else {
        return;
    };
    let State { network, http, .. } = &mut *state;
    let children = http.0.iter_mut();
    let answers: Vec<Answer> = children
        .flat_map(|child| child.http.advance(&mut **network))
        .collect();
    let events: Vec<Event> = answers.into_iter().map(write).collect();
    drop(state);
    events.into_iter().for_each(signal);
}

/// Ends a call, and then tells whom these answers are for.
fn end(call: Call<'_>, answers: Vec<Answer>) {
    let events: Vec<Event> = answers.into_iter().map(write).collect();
    drop(call);
    events.into_iter().for_each(signal);
}

/// Does `work` with a child, and ends the call with the answers that it has.
fn with(
    this: *const HttpProtocol,
    work: impl FnOnce(&mut Http, &mut State) -> Result<Vec<Answer>, Status>,
) -> Status {
    if this.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: `this` is the first field of a table that lives while the protocol is installed.
    let table = unsafe { &*this.cast::<Table>() };
    let mut call = match table.shared.call() {
        Ok(call) => call,
        Err(refusal) => return denied(refusal),
    };
    let Some(child) = call.state.http.find(this) else {
        return Status::INVALID_PARAMETER;
    };
    let mut http = core::mem::take(&mut child.http);
    let result = work(&mut http, &mut call.state);
    if let Some(child) = call.state.http.find(this) {
        child.http = http;
    }
    match result {
        Ok(answers) => {
            end(call, answers);
            Status::SUCCESS
        }
        Err(status) => status,
    }
}

/// Takes what has come and what comes in a moment.
fn linger(http: &mut Http, state: &mut State) -> Vec<Answer> {
    let until = state.network.now() + LINGER;
    loop {
        state.network.turn();
        let answers = http.advance(&mut *state.network);
        let over = state.network.now() >= until;
        if over || !answers.is_empty() || !http.waits() {
            return answers;
        }
    }
}

/// Writes an answer to its token. Returns the token's event.
fn write(answer: Answer) -> Event {
    let token = ptr::with_exposed_provenance_mut::<HttpToken>(answer.token);
    let status = match answer.verdict {
        Verdict::Success => Status::SUCCESS,
        Verdict::HttpError => Status::HTTP_ERROR,
        Verdict::Aborted => Status::ABORTED,
        Verdict::ConnectionFin => CONNECTION_FIN,
        Verdict::ConnectionReset => CONNECTION_RESET,
        Verdict::ConnectionRefused => CONNECTION_REFUSED,
        Verdict::Unreachable => NETWORK_UNREACHABLE,
        Verdict::Timeout => Status::TIMEOUT,
        Verdict::DeviceError => Status::DEVICE_ERROR,
    };
    // SAFETY: the caller's token and message, which it leaves to us until it is answered.
    unsafe {
        (*token).status = status;
        let message = (*token).message;
        if let Some(response) = answer.response
            && !message.is_null()
            && let Err(status) = write_response(&mut *message, response)
        {
            (*token).status = status;
        }
        (*token).event
    }
}

/// # Safety
/// The message is a caller's, for a response.
unsafe fn write_response(message: &mut HttpMessage, response: Response) -> Result<(), Status> {
    message.body_length = response.len;
    // SAFETY: the caller's word.
    let data = unsafe { message.data.response.as_mut() };
    if let (Some(data), Some(status)) = (data, response.status) {
        data.status_code = status_code(status);
    }
    message.header_count = 0;
    message.header = ptr::null_mut();
    let Some(fields) = response.fields.filter(|fields| !fields.is_empty()) else {
        return Ok(());
    };
    let pool = |len| {
        boot::allocate_pool(MemoryType::BOOT_SERVICES_DATA, len).map_err(|error| error.status())
    };
    let text = |text: &str| {
        let place = pool(text.len() + 1)?;
        // SAFETY: allocated with so many bytes.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), place.as_ptr(), text.len());
            place.add(text.len()).write(0);
        }
        Ok::<_, Status>(place.as_ptr().cast_const().cast::<Char8>())
    };
    let headers = pool(fields.len() * size_of::<HttpHeader>())?.cast::<HttpHeader>();
    message.header = headers.as_ptr();
    for (name, value) in fields {
        let header = HttpHeader {
            field_name: text(&name)?,
            field_value: text(&value)?,
        };
        // SAFETY: there is room for all fields.
        unsafe { headers.add(message.header_count).write(header) };
        message.header_count += 1;
    }
    Ok(())
}

/// EFI_HTTP_STATUS_CODE: those of each class are numbered one after another.
fn status_code(status: u16) -> HttpStatusCode {
    let (first, last, number) = match status {
        100..200 => (100, 101, 1),
        200..300 => (200, 206, 3),
        307 => return HttpStatusCode::STATUS_307_TEMPORARY_REDIRECT,
        308 => return HttpStatusCode::STATUS_308_PERMANENT_REDIRECT,
        429 => return HttpStatusCode::STATUS_429_TOO_MANY_REQUESTS,
        300..400 => (300, 305, 10),
        400..500 => (400, 417, 17),
        500..600 => (500, 505, 35),
        _ => return HttpStatusCode::STATUS_UNSUPPORTED,
    };
    if status > last {
        return HttpStatusCode::STATUS_UNSUPPORTED;
    }
    HttpStatusCode(number + i32::from(status - first))
}

fn refused<T>(result: Result<T, Refusal>) -> Result<T, Status> {
    result.map_err(status)
}

unsafe extern "efiapi" fn get_mode_data(
    this: *const HttpProtocol,
    data: *mut HttpConfigData,
) -> Status {
    // SAFETY: null or the caller's variable.
    let Some(data) = (unsafe { data.as_mut() }) else {
        return Status::INVALID_PARAMETER;
    };
    with(this, |http, _| {
        let config = refused(http.mode())?;
        data.http_version = HttpVersion(config.version);
        data.time_out_millisec = config.timeout;
        data.local_addr_is_ipv6 = config.address.is_ipv6().into();
        // SAFETY: null or the caller's place for the access point.
        unsafe {
            match config.address {
                IpAddr::V4(address) => {
                    if let Some(point) = data.access_point.ipv4_node.as_mut() {
                        point.use_default_addr = config.default_address.into();
                        point.local_address = address.into();
                        point.local_subnet = config.subnet.into();
                        point.local_port = config.port;
                    }
                }
                IpAddr::V6(address) => {
                    if let Some(point) = data.access_point.ipv6_node.as_mut() {
                        point.local_address = address.into();
                        point.local_port = config.port;
                    }
                }
            }
        }
        Ok(Vec::new())
    })
}

/// # Safety
/// `data` is a caller's.
unsafe fn config(data: &HttpConfigData) -> Option<Config> {
    let version = data.http_version.0;
    let timeout = data.time_out_millisec;
    // SAFETY: null or the caller's access point, by the version that it tells.
    unsafe {
        if bool::from(data.local_addr_is_ipv6) {
            let point = data.access_point.ipv6_node.as_ref()?;
            let address = IpAddr::from(point.local_address.0);
            return Some(Config {
                version,
                timeout,
                default_address: address.is_unspecified(),
                address,
                subnet: [0; 4],
                port: point.local_port,
            });
        }
        let point = data.access_point.ipv4_node.as_ref()?;
        Some(Config {
            version,
            timeout,
            default_address: bool::from(point.use_default_addr),
            address: IpAddr::from(point.local_address.0),
            subnet: point.local_subnet.0,
            port: point.local_port,
        })
    }
}

unsafe extern "efiapi" fn configure(
    this: *mut HttpProtocol,
    data: *const HttpConfigData,
) -> Status {
    // SAFETY: null or the caller's data.
    let config = match unsafe { data.as_ref() } {
        // SAFETY: as above.
        Some(data) => match unsafe { config(data) } {
            Some(config) => Some(config),
            None => return Status::INVALID_PARAMETER,
        },
        None => None,
    };
    with(this, |http, state| {
        let ours = state.ip.iter().flat_map(|ip| &ip.settings().addresses);
        let ours: Vec<IpAddr> = ours.map(|(address, _)| *address).collect();
        refused(http.configure(config, &ours, &mut *state.network))
    })
}

/// A text of a caller's in UCS-2, up to its end.
///
/// # Safety
/// `text` leads to characters of the caller's up to a zero.
unsafe fn wide(text: *const Char16) -> Option<String> {
    let mut units = Vec::new();
    loop {
        // SAFETY: the caller's word, as no zero has come yet.
        let unit = unsafe { text.cast::<u16>().add(units.len()).read_unaligned() };
        if unit == 0 {
            return String::from_utf16(&units).ok();
        }
        if units.len() >= LONGEST {
            return None;
        }
        units.push(unit);
    }
}

/// A text of a caller's in ASCII, up to its end.
///
/// # Safety
/// `text` leads to characters of the caller's up to a zero.
unsafe fn narrow<'a>(text: *const Char8) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(text.cast()) }.to_str().ok()
}

/// # Safety
/// `token` is null, or a caller's token with its message.
unsafe fn message<'a>(token: *mut HttpToken) -> Option<&'a HttpMessage> {
    // SAFETY: the caller's word.
    unsafe { token.as_ref()?.message.as_ref() }
}

unsafe extern "efiapi" fn request(this: *mut HttpProtocol, token: *mut HttpToken) -> Status {
    // SAFETY: null or the caller's token, message, request, header lines and body, which stay as they are during the call.
    let asked = unsafe {
        message(token).and_then(|message| {
            let request = message.data.request.as_ref()?;
            let url = (!request.url.is_null()).then(|| wide(request.url))??;
            let headers = match message.header_count {
                0 => &[][..],
                count if count > MOST_HEADERS || message.header.is_null() => return None,
                count => core::slice::from_raw_parts(message.header, count),
            };
            let fields = headers
                .iter()
                .map(|header| Some((narrow(header.field_name)?, narrow(header.field_value)?)));
            let body = match message.body_length {
                0 => &[][..],
                len if len > MOST_BODY || message.body.is_null() => return None,
                len => core::slice::from_raw_parts(message.body.cast::<u8>(), len),
            };
            Some((
                request.method.0,
                url,
                fields.collect::<Option<Vec<_>>>()?,
                body,
            ))
        })
    };
    let Some((method, url, fields, body)) = asked else {
        return Status::INVALID_PARAMETER;
    };
    with(this, |http, state| {
        let asked = Asked {
            method,
            url: &url,
            fields: &fields,
            body,
        };
        let number = token.expose_provenance();
        refused(http.request(number, &asked, &mut *state.network))?;
        Ok(linger(http, state))
    })
}

unsafe extern "efiapi" fn response(this: *mut HttpProtocol, token: *mut HttpToken) -> Status {
    // SAFETY: null or the caller's token.
    let Some(message) = (unsafe { message(token) }) else {
        return Status::INVALID_PARAMETER;
    };
    // SAFETY: a pointer either way.
    let wants_head = unsafe { !message.data.response.is_null() };
    let body = if message.body_length == 0 {
        None
    } else {
        // SAFETY: the caller's buffer, which it leaves to us until its token is answered.
        match unsafe { Buffer::new(message.body, message.body_length as u64) } {
            Some(buffer) => Some(Memory::new(buffer)),
            None => return Status::INVALID_PARAMETER,
        }
    };
    with(this, |http, state| {
        refused(http.response(token.expose_provenance(), wants_head, body))?;
        Ok(linger(http, state))
    })
}

unsafe extern "efiapi" fn cancel(this: *mut HttpProtocol, token: *mut HttpToken) -> Status {
    with(this, |http, state| {
        let token = (!token.is_null()).then(|| token.expose_provenance());
        refused(http.cancel(token, &mut *state.network))
    })
}

unsafe extern "efiapi" fn poll(this: *mut HttpProtocol) -> Status {
    let mut idle = false;
    let status = with(this, |http, state| {
        refused(http.mode())?;
        let answers = linger(http, state);
        idle = answers.is_empty();
        Ok(answers)
    });
    if status.is_success() && idle {
        return Status::NOT_READY;
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_have_the_numbers_of_the_specification() {
        for (status, code) in [
            (101, HttpStatusCode::STATUS_101_SWITCHING_PROTOCOLS),
            (200, HttpStatusCode::STATUS_200_OK),
            (206, HttpStatusCode::STATUS_206_PARTIAL_CONTENT),
            (207, HttpStatusCode::STATUS_UNSUPPORTED),
            (301, HttpStatusCode::STATUS_301_MOVED_PERMANENTLY),
            (305, HttpStatusCode::STATUS_305_USE_PROXY),
            (306, HttpStatusCode::STATUS_UNSUPPORTED),
            (307, HttpStatusCode::STATUS_307_TEMPORARY_REDIRECT),
            (308, HttpStatusCode::STATUS_308_PERMANENT_REDIRECT),
            (404, HttpStatusCode::STATUS_404_NOT_FOUND),
            (417, HttpStatusCode::STATUS_417_EXPECTATION_FAILED),
            (429, HttpStatusCode::STATUS_429_TOO_MANY_REQUESTS),
            (451, HttpStatusCode::STATUS_UNSUPPORTED),
            (500, HttpStatusCode::STATUS_500_INTERNAL_SERVER_ERROR),
            (505, HttpStatusCode::STATUS_505_VERSION_NOT_SUPPORTED),
            (599, HttpStatusCode::STATUS_UNSUPPORTED),
            (999, HttpStatusCode::STATUS_UNSUPPORTED),
        ] {
            assert_eq!(status_code(status), code, "{status}");
        }
    }

    #[test]
    fn answers_are_written_to_the_token_and_the_message() {
        let mut data = uefi_raw::protocol::network::http::HttpResponseData::default();
        let mut message = HttpMessage {
            body_length: 100,
            ..HttpMessage::default()
        };
        message.data.response = &mut data;
        let mut token = HttpToken {
            message: &mut message,
            ..HttpToken::default()
        };
        let event = write(Answer {
            token: (&raw mut token).expose_provenance(),
            verdict: Verdict::HttpError,
            response: Some(Response {
                status: Some(404),
                fields: None,
                len: 7,
            }),
        });
        assert!(event.is_null());
        assert_eq!(token.status, Status::HTTP_ERROR);
        assert_eq!((message.body_length, message.header_count), (7, 0));
        assert_eq!(data.status_code, HttpStatusCode::STATUS_404_NOT_FOUND);
    }

    #[test]
    fn texts_end_with_a_zero() {
        let wide_text: Vec<u16> = "http://h/ä\0x".encode_utf16().collect();
        // SAFETY: ends with a zero.
        let text = unsafe { wide(wide_text.as_ptr().cast()) };
        assert_eq!(text.as_deref(), Some("http://h/ä"));
        let endless = vec![b'a'.into(); LONGEST + 2];
        // SAFETY: longer than what is looked at.
        assert_eq!(unsafe { wide(<*const u16>::cast(endless.as_ptr())) }, None);
        // SAFETY: null is allowed, the other ends with a zero.
        unsafe {
            assert_eq!(narrow(ptr::null()), None);
            assert_eq!(narrow(c"Host".as_ptr().cast()), Some("Host"));
        }
    }
}
