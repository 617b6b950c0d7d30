//! The head of a request (RFC 9112): what is asked for, as far as this server looks at it.

use httparse::{EMPTY_HEADER, Error, Status as Parsed};
use percent_encoding::percent_decode_str;

use super::status::Status;

/// Most bytes of a head. Firmware sends a few hundred.
pub(crate) const MAX_LEN: usize = 16 * 1024;
/// Most header fields of a head.
const MAX_FIELDS: usize = 100;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    /// Anything that is not served.
    Other,
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub method: Method,
    /// The path of the target, percent-decoded, without a query.
    pub path: String,
    pub fields: Fields,
    /// The connection ends after the response: the client said so, or what follows on it would not be read.
    pub close: bool,
}

/// Header fields: names in lower case, and values that are text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// The value of the first field of this name, which is written in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    /// True when a field of this name has the word in its comma-separated list.
    pub(crate) fn lists(&self, name: &str, word: &str) -> bool {
        let mut fields = self.0.iter().filter(|(field, _)| field == name);
        fields.any(|(_, value)| {
            value
                .split(',')
                .any(|item| item.trim().eq_ignore_ascii_case(word))
        })
    }
}

impl Head {
    /// Reads a head from the first bytes of a connection. With it comes its length in bytes; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The status of the refusal, for what is no HTTP/1 or exceeds the limits.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Status> {
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let length = match request.parse(bytes) {
            Ok(Parsed::Complete(length)) => length,
            Ok(Parsed::Partial) if bytes.len() < MAX_LEN => return Ok(None),
            Ok(Parsed::Partial) | Err(Error::TooManyHeaders) => return Err(Status::HEAD_TOO_LARGE),
            Err(Error::Version) => return Err(Status::VERSION),
            Err(_) => return Err(Status::BAD_REQUEST),
        };
        let text = |field: &httparse::Header<'_>| {
            let value = str::from_utf8(field.value).ok()?;
            Some((field.name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let fields = Fields(request.headers.iter().filter_map(text).collect());
        let has_body = fields.get("transfer-encoding").is_some()
            || fields
                .get("content-length")
                .is_some_and(|length| length != "0");
        let persistent = match request.version {
            Some(0) => fields.lists("connection", "keep-alive"),
            _ => !fields.lists("connection", "close"),
        };
        let head = Self {
            method: match request.method {
                Some("GET") => Method::Get,
                Some("HEAD") => Method::Head,
                Some("POST") => Method::Post,
                _ => Method::Other,
            },
            path: path(request.path.unwrap_or_default()),
            close: has_body || !persistent,
            fields,
        };
        Ok(Some((head, length)))
    }
}

/// The path of a request's target, which may be a whole URL (RFC 9112 section 3.2.2).
fn path(target: &str) -> String {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find(['/', '?']).map_or("/", |at| rest.split_at(at).1)
        }
        _ => target,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Head {
        let (head, length) = Head::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        head
    }

    #[test]
    fn a_head_is_whole_only_with_its_empty_line() {
        let text = "GET /a%20b?c HTTP/1.1\r\nHost: x\r\nRANGE: bytes=1-\r\n\r\n";
        for length in 0..text.len() {
            assert_eq!(Head::parse(&text.as_bytes()[..length]), Ok(None));
        }
        let head = parse(text);
        assert_eq!((head.method, head.path.as_str()), (Method::Get, "/a b"));
        assert_eq!(head.fields.get("range"), Some("bytes=1-"));
        assert!(!head.close);
        // What follows is another request.
        let two = format!("{text}{text}");
        assert_eq!(Head::parse(two.as_bytes()).unwrap().unwrap().1, text.len());
    }

    #[test]
    fn targets_may_be_urls() {
        for (target, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("http://10.0.0.1/a/b?c", "/a/b"),
            ("http://10.0.0.1", "/"),
            ("http://10.0.0.1?c", ""),
            ("/get?from=http://x/y", "/get"),
            ("/a://b", "/a://b"),
            ("/%2e%2e/%ff", "/../\u{fffd}"),
            ("*", "*"),
        ] {
            assert_eq!(path(target), expected, "{target}");
        }
    }

    #[test]
    fn connections_stay_as_the_version_and_the_client_say() {
        for (version, field, close) in [
            ("1.1", "", false),
            ("1.1", "Connection: close\r\n", true),
            ("1.1", "Connection: x, Close\r\n", true),
            ("1.0", "", true),
            ("1.0", "Connection: Keep-Alive\r\n", false),
            // A body is not read, so nothing after it could be.
            ("1.1", "Content-Length: 5\r\n", true),
            ("1.1", "Content-Length: 0\r\n", false),
            ("1.1", "Transfer-Encoding: chunked\r\n", true),
        ] {
            let head = parse(&format!("GET / HTTP/{version}\r\n{field}\r\n"));
            assert_eq!(head.close, close, "HTTP/{version} {field}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(MAX_LEN));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: a\r\n".repeat(101));
        for (text, status) in [
            (long.as_str(), Status::HEAD_TOO_LARGE),
            (many.as_str(), Status::HEAD_TOO_LARGE),
            ("GET / HTTP/2.0\r\n\r\n", Status::VERSION),
            ("\u{16}\u{3}\u{1}\0\0", Status::BAD_REQUEST),
            ("GET / HTTP/1.1\r\nno field\r\n\r\n", Status::BAD_REQUEST),
        ] {
            assert_eq!(Head::parse(text.as_bytes()), Err(status));
        }
    }
}
