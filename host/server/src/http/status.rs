//! Status codes of responses (RFC 9110 section 15).

use std::fmt;

/// A status code and its reason phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u16, &'static str);

impl Status {
    pub(crate) const OK: Self = Self(200, "OK");
    pub(crate) const CREATED: Self = Self(201, "Created");
    pub(crate) const PARTIAL: Self = Self(206, "Partial Content");
    pub(crate) const NOT_MODIFIED: Self = Self(304, "Not Modified");
    pub(crate) const BAD_REQUEST: Self = Self(400, "Bad Request");
    pub(crate) const FORBIDDEN: Self = Self(403, "Forbidden");
    pub(crate) const NOT_FOUND: Self = Self(404, "Not Found");
    pub(crate) const METHOD_NOT_ALLOWED: Self = Self(405, "Method Not Allowed");
    pub(crate) const TIMEOUT: Self = Self(408, "Request Timeout");
    pub(crate) const LENGTH_REQUIRED: Self = Self(411, "Length Required");
    pub(crate) const TOO_LARGE: Self = Self(413, "Content Too Large");
    pub(crate) const RANGE: Self = Self(416, "Range Not Satisfiable");
    pub(crate) const TOO_MANY: Self = Self(429, "Too Many Requests");
    pub(crate) const HEAD_TOO_LARGE: Self = Self(431, "Request Header Fields Too Large");
    pub(crate) const INTERNAL: Self = Self(500, "Internal Server Error");
    pub(crate) const BUSY: Self = Self(503, "Service Unavailable");
    pub(crate) const VERSION: Self = Self(505, "HTTP Version Not Supported");
    pub(crate) const NO_ROOM: Self = Self(507, "Insufficient Storage");
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}
