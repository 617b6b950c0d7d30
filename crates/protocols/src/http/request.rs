//! What a caller asks for, as a request on the wire.

use crate::Refusal;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_fetch::http::Request;
use wireboot_fetch::url::{Scheme, Url, UrlError};

/// A method by its name on the wire (RFC 9110, section 9).
pub type Method = &'static str;

/// EFI_HTTP_METHOD, by number.
const METHODS: [Method; 9] = [
    "GET", "POST", "PATCH", "OPTIONS", "CONNECT", "HEAD", "PUT", "DELETE", "TRACE",
];

/// What a caller asks for.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// EFI_HTTP_METHOD.
    pub method: i32,
    /// The `http` URL in full; with any other scheme the request is [`Refusal::Unsupported`].
    pub url: &'a str,
    /// Names and values of header lines.
    pub fields: &'a [(&'a str, &'a str)],
    /// The request's body; empty where there is none.
    pub body: &'a [u8],
}

impl Asked<'_> {
    pub(super) fn request(&self, old: bool) -> Result<Request, Refusal> {
        let method = usize::try_from(self.method).ok();
        let method = method.and_then(|method| METHODS.get(method));
        // A tunnel has no response of which there is an end.
        let method = *method
            .filter(|method| **method != "CONNECT")
            .ok_or(Refusal::Unsupported)?;
        let url = Url::parse(self.url).map_err(|error| match error {
            UrlError::Https { .. } | UrlError::Scheme { .. } => Refusal::Unsupported,
            _ => Refusal::InvalidParameter,
        })?;
        if url.scheme() != Scheme::Http {
            return Err(Refusal::Unsupported);
        }
        let version = if old { "1.0" } else { "1.1" };
        let mut text = format!("{method} {} HTTP/{version}\r\n", url.resource());
        let has = |wanted: &str| {
            let mut names = self.fields.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(wanted))
        };
        if !has("Host") {
            let port = match url.port() {
                80 => String::new(),
                port => format!(":{port}"),
            };
            text += &format!("Host: {}{port}\r\n", url.host());
        }
        for (name, value) in self.fields {
            let named = !name.is_empty() && name.bytes().all(is_token);
            let plain = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
            if !named || !value.bytes().all(plain) {
                return Err(Refusal::InvalidParameter);
            }
            text += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() && !has("Content-Length") && !has("Transfer-Encoding") {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        text += "\r\n";
        let mut bytes: Vec<u8> = text.into_bytes();
        bytes.extend_from_slice(self.body);
        Ok(Request { url, method, bytes })
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
