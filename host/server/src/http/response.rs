//! What a request is answered with: no socket.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::SystemTime;

use wireboot_wire::text;

use super::head::{Head, Method};
use super::select::{Selection, Validators, select};
use super::status::Status;
use crate::directory::{Content, Directory, OpenError};

#[derive(Debug)]
pub(crate) struct Response {
    pub status: Status,
    fields: Vec<(&'static str, String)>,
    /// Why the request is refused, if it is.
    pub refusal: Option<String>,
    pub body: Body,
}

/// What follows the head.
#[derive(Debug)]
pub(crate) enum Body {
    Empty,
    /// Why a request is refused, or under which name a report is kept.
    Text(String),
    /// These bytes of the file.
    Part(Content, Range<u64>),
}

impl Response {
    fn new(status: Status) -> Self {
        Self {
            status,
            fields: Vec::new(),
            refusal: None,
            body: Body::Empty,
        }
    }

    /// A refusal with its reason.
    pub(crate) fn refusal(status: Status, why: &str) -> Self {
        let reason = format!("{status}: {why}");
        let text = format!("{reason}\n");
        Self {
            status,
            fields: vec![
                ("Content-Type", "text/plain; charset=utf-8".to_owned()),
                ("Content-Length", text.len().to_string()),
            ],
            refusal: Some(reason),
            body: Body::Text(text),
        }
    }

    /// Something was made, under this name.
    pub(crate) fn created(name: &str) -> Self {
        let text = format!("kept as {name}\n");
        let mut response = Self::new(Status::CREATED)
            .with("Content-Type", "text/plain; charset=utf-8")
            .with("Content-Length", text.len());
        response.body = Body::Text(text);
        response
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }

    /// The answer to a request.
    pub(crate) fn to(request: &Head, directory: &Directory) -> Self {
        let mut response = Self::to_get(request, directory);
        if request.method == Method::Head {
            response.body = Body::Empty;
        }
        response
    }

    fn to_get(request: &Head, directory: &Directory) -> Self {
        if !matches!(request.method, Method::Get | Method::Head) {
            let status = Status::METHOD_NOT_ALLOWED;
            return Self::refusal(status, "only GET and HEAD are served")
                .with("Allow", "GET, HEAD");
        }
        let content = match directory.find(&request.path) {
            Ok(content) => content,
            Err(error) => {
                let status = match error {
                    OpenError::NotFound | OpenError::NotAFile => Status::NOT_FOUND,
                    OpenError::Outside | OpenError::Denied => Status::FORBIDDEN,
                    OpenError::Io(_) => Status::INTERNAL,
                };
                return Self::refusal(status, &error.to_string());
            }
        };
        let (validators, length) = (Validators::of(&content), content.len());
        let (mut response, range) = match select(&request.fields, &validators, length) {
            Selection::Unchanged => (Self::new(Status::NOT_MODIFIED), None),
            Selection::OutOfReach => {
                let refusal =
                    Self::refusal(Status::RANGE, "the range lies behind the end of the file");
                return refusal.with("Content-Range", format!("bytes */{length}"));
            }
            Selection::Whole => (Self::new(Status::OK), Some(0..length)),
            Selection::Part(range) => {
                let (first, last) = range.into_inner();
                let response = Self::new(Status::PARTIAL)
                    .with("Content-Range", format!("bytes {first}-{last}/{length}"));
                (response, Some(first..last + 1))
            }
        };
        response.fields.extend(validators.fields());
        let Some(range) = range else { return response };
        let mut response = response
            .with("Accept-Ranges", "bytes")
            .with("Content-Type", media_type(&request.path))
            .with("Content-Length", range.end - range.start);
        response.body = Body::Part(content, range);
        response
    }

    /// The head in the bytes of HTTP/1.1.
    pub(crate) fn head(&self, close: bool) -> String {
        let date = httpdate::fmt_http_date(SystemTime::now());
        let mut head = format!("HTTP/1.1 {}\r\nDate: {date}\r\n", self.status);
        // Writing to a String cannot fail.
        for (name, value) in &self.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        // What a client of HTTP/1.0 that asked for it needs to be told, and others ignore.
        head += match close {
            true => "Connection: close\r\n\r\n",
            false => "Connection: keep-alive\r\n\r\n",
        };
        head
    }
}

/// The name in the log.
pub(crate) fn shown(path: &str) -> String {
    text::shown(path.as_bytes())
}

/// Media types that UEFI firmware looks at, and text for people; all else is bytes.
fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "efi" => "application/efi",
        "iso" => "application/vnd.efi-iso",
        "img" => "application/vnd.efi-img",
        "conf" | "cfg" | "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UEFI 2.11, section 24.7.3.1: firmware goes by these types.
    #[test]
    fn files_have_the_media_types_that_firmware_looks_at() {
        for (name, expected) in [
            ("wireboot.efi", "application/efi"),
            ("a/SHIMX64.EFI", "application/efi"),
            ("disk.iso", "application/vnd.efi-iso"),
            ("disk.img", "application/vnd.efi-img"),
            ("wireboot.conf", "text/plain; charset=utf-8"),
            ("initrd.gz", "application/octet-stream"),
            ("efi", "application/octet-stream"),
        ] {
            assert_eq!(media_type(name), expected, "{name}");
        }
    }
}
