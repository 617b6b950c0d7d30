//! Answers to callers' tokens.

use alloc::string::String;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use uefi::boot::{self, MemoryType};
use uefi_raw::protocol::network::http::{HttpHeader, HttpMessage, HttpStatusCode, HttpToken};
use uefi_raw::{Char8, Event, Status};
use wireboot_protocols::http::{Answer, Response, Verdict};

/// Of the network protocols (UEFI 2.10, appendix D).
const NETWORK_UNREACHABLE: Status = Status(Status::ERROR_BIT | 100);
const CONNECTION_FIN: Status = Status(Status::ERROR_BIT | 104);
const CONNECTION_RESET: Status = Status(Status::ERROR_BIT | 105);
const CONNECTION_REFUSED: Status = Status(Status::ERROR_BIT | 106);

/// Writes answers to their tokens. Returns the tokens' events.
pub(super) fn write_all(answers: Vec<Answer>) -> Vec<Event> {
    answers.into_iter().map(write).collect()
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
    // SAFETY: the caller's token and message, which it leaves to us until it is answered. The token was aligned when it was taken.
    unsafe {
        (*token).status = status;
        let message = (*token).message;
        if let Some(response) = answer.response
            && !message.is_null()
            && message.is_aligned()
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
    // SAFETY: null or the caller's variable.
    unsafe {
        let data = message.data.response;
        if let Some(status) = response.status
            && !data.is_null()
        {
            (&raw mut (*data).status_code).write_unaligned(status_code(status));
        }
    }
    message.header_count = 0;
    message.header = ptr::null_mut();
    let fields = response.fields.unwrap_or_default();
    if !fields.is_empty() {
        let headers = Pool::default().headers(&fields)?;
        message.header = headers.as_ptr();
        message.header_count = fields.len();
    }
    Ok(())
}

/// Memory of the firmware's pool: the caller frees it, or nobody has it.
#[derive(Default)]
struct Pool(Vec<NonNull<u8>>);

impl Pool {
    fn allocate(&mut self, len: usize) -> Result<NonNull<u8>, Status> {
        let place = boot::allocate_pool(MemoryType::BOOT_SERVICES_DATA, len);
        let place = place.map_err(|error| error.status())?;
        self.0.push(place);
        Ok(place)
    }

    fn text(&mut self, text: &str) -> Result<*const Char8, Status> {
        let place = self.allocate(text.len() + 1)?;
        // SAFETY: allocated with so many bytes.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), place.as_ptr(), text.len());
            place.add(text.len()).write(0);
        }
        Ok(place.as_ptr().cast_const().cast())
    }

    /// Header lines, all or none.
    fn headers(mut self, fields: &[(String, String)]) -> Result<NonNull<HttpHeader>, Status> {
        let headers = self.allocate(fields.len() * size_of::<HttpHeader>())?;
        let headers = headers.cast::<HttpHeader>();
        for (index, (name, value)) in fields.iter().enumerate() {
            let header = HttpHeader {
                field_name: self.text(name)?,
                field_value: self.text(value)?,
            };
            // SAFETY: there is room for all fields.
            unsafe { headers.add(index).write(header) };
        }
        self.0.clear();
        Ok(headers)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for place in self.0.drain(..) {
            // SAFETY: allocated by `allocate`, and given to nobody.
            let _ = unsafe { boot::free_pool(place) };
        }
    }
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
}
