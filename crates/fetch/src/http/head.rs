//! The head of a response: status line and headers (RFC 9112 sections 4 to 6, RFC 9110).

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest response head taken, in bytes.
pub(crate) const HEAD_LIMIT: usize = 16 * 1024;

/// Most header lines in one response head.
const HEADER_LIMIT: usize = 128;

/// Collects a response head from a stream that may be cut anywhere, and takes no byte beyond its end.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    bytes: Vec<u8>,
    /// Where the current line starts in `bytes`.
    line: usize,
}

impl HeadReader {
    /// Takes bytes from the stream. Returns how many belong to the head, and whether it is complete.
    pub(crate) fn push(&mut self, data: &[u8]) -> Result<(usize, bool), HeadError> {
        let mut taken = 0;
        for line in data.split_inclusive(|&byte| byte == b'\n') {
            if self.bytes.len() + line.len() > HEAD_LIMIT {
                return Err(HeadError::TooLong);
            }
            self.bytes.extend_from_slice(line);
            taken += line.len();
            if !line.ends_with(b"\n") {
                break;
            }
            match self.bytes.get(self.line..) {
                // Empty lines before a status line are passed over (RFC 9112 section 2.2).
                Some(b"\n" | b"\r\n") if self.line == 0 => self.bytes.clear(),
                Some(b"\n" | b"\r\n") => return Ok((taken, true)),
                _ => self.line = self.bytes.len(),
            }
        }
        Ok((taken, false))
    }

    /// Parses the complete head.
    pub(crate) fn parse(&self) -> Result<Head, HeadError> {
        Head::parse(&self.bytes)
    }

    /// Names and values of the header lines of a complete head.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let mut headers = [httparse::EMPTY_HEADER; HEADER_LIMIT];
        let mut response = httparse::Response::new(&mut headers);
        let _ = response.parse(&self.bytes);
        let headers = response.headers.iter();
        let fields = headers.filter(|header| !header.name.is_empty());
        fields
            .map(|header| {
                let value = String::from_utf8_lossy(header.value);
                (header.name.to_owned(), value.trim().to_owned())
            })
            .collect()
    }
}

/// Where the body of a response ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// Where the server closes the connection.
    UntilClose,
}

/// `Content-Range` (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// First and last byte sent; none in a 416.
    pub(crate) range: Option<(u64, u64)>,
    /// Size of the whole file, if the server knows.
    pub(crate) total: Option<u64>,
}

/// A strong validator (RFC 9110 section 8.8) that identifies one version of a file, as an `If-Range` value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Validator {
    /// A strong entity tag, quotes included.
    Tag(String),
    /// A modification date that is older than its response.
    Modified(String),
}

impl Validator {
    /// As it goes into `If-Range`.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Tag(value) | Self::Modified(value) => value,
        }
    }

    /// True when a partial response says that it is of another version.
    pub(crate) fn contradicts(&self, head: &Head) -> bool {
        let (ours, theirs) = match self {
            Self::Tag(tag) => (tag, &head.tag),
            Self::Modified(date) => (date, &head.modified),
        };
        theirs.as_ref().is_some_and(|theirs| theirs != ours)
    }
}

/// What matters of a response head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// 100 to 999.
    pub(crate) status: u16,
    /// The reason phrase; may be empty.
    pub(crate) reason: String,
    pub(crate) framing: Framing,
    /// The connection may be used again after the body.
    pub(crate) keep_alive: bool,
    pub(crate) location: Option<String>,
    pub(crate) range: Option<ContentRange>,
    /// `Retry-After` in seconds. Dates are ignored: this machine may not know the time.
    pub(crate) retry_after: Option<u64>,
    /// The server says that it sends ranges of bytes.
    pub(crate) accepts_ranges: bool,
    tag: Option<String>,
    modified: Option<String>,
    date: Option<String>,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self, HeadError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADER_LIMIT];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(HeadError::Malformed(httparse::Error::NewLine)),
            Err(error) => return Err(HeadError::Malformed(error)),
        }
        let status = response.code.unwrap_or_default();
        let mut head = Self {
            status,
            reason: response.reason.unwrap_or_default().to_owned(),
            framing: Framing::UntilClose,
            keep_alive: response.version == Some(1),
            location: None,
            range: None,
            retry_after: None,
            accepts_ranges: false,
            tag: None,
            modified: None,
            date: None,
        };
        let mut length = None;
        let mut coded = false;
        for header in response.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            // Header values that matter here are ASCII.
            let Ok(value) = core::str::from_utf8(header.value) else {
                continue;
            };
            let value = value.trim_matches([' ', '\t']);
            if is("Content-Length") {
                // Two lengths, even equal ones, are the mark of a broken or forged response.
                let value = decimal(value).filter(|_| length.is_none());
                length = Some(value.ok_or(HeadError::Length)?);
            } else if is("Transfer-Encoding") {
                if coded || !value.eq_ignore_ascii_case("chunked") {
                    return Err(HeadError::Coding(value.to_owned()));
                }
                coded = true;
            } else if is("Connection") {
                for option in value.split(',').map(str::trim) {
                    if option.eq_ignore_ascii_case("close") {
                        head.keep_alive = false;
                    } else if option.eq_ignore_ascii_case("keep-alive")
                        && response.version == Some(0)
                    {
                        head.keep_alive = true;
                    }
                }
            } else if is("Location") {
                head.location = Some(value.to_owned());
            } else if is("Content-Range") {
                head.range = content_range(value);
            } else if is("Retry-After") {
                head.retry_after = decimal(value);
            } else if is("Accept-Ranges") {
                head.accepts_ranges |= value.eq_ignore_ascii_case("bytes");
            } else if is("ETag") {
                head.tag = Some(value.to_owned());
            } else if is("Last-Modified") {
                head.modified = Some(value.to_owned());
            } else if is("Date") {
                head.date = Some(value.to_owned());
            }
            // Content-Encoding is left alone: servers label files such as initrd.gz with it though nobody
            // asked for a coding, and the file is wanted as it is stored.
        }
        head.framing = match (status, coded, length) {
            (100..=199 | 204 | 304, _, _) => Framing::Length(0),
            (_, true, length) => {
                // A length beside chunks, or chunks in HTTP/1.0: somebody on the way is confused (RFC 9112
                // section 6.1).
                head.keep_alive &= length.is_none() && response.version == Some(1);
                Framing::Chunked
            }
            (_, false, Some(length)) => Framing::Length(length),
            (_, false, None) => Framing::UntilClose,
        };
        head.keep_alive &= head.framing != Framing::UntilClose;
        Ok(head)
    }

    /// What a resumed download names so as to get the same version of the file, if the server gave any.
    pub(crate) fn validator(&self) -> Option<Validator> {
        if let Some(tag) = &self.tag
            && tag.starts_with('"')
        {
            return Some(Validator::Tag(tag.clone()));
        }
        // A file that changed within the second of the response keeps its date (RFC 9110 section 8.8.2.2).
        match (&self.modified, &self.date) {
            (Some(modified), Some(date)) if modified != date => {
                Some(Validator::Modified(modified.clone()))
            }
            _ => None,
        }
    }
}

/// A number of digits alone: no sign, no space, no overflow.
fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn content_range(value: &str) -> Option<ContentRange> {
    let (unit, rest) = value.split_once(' ')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (range, total) = rest.trim_start().split_once('/')?;
    let total = match total {
        "*" => None,
        total => Some(decimal(total)?),
    };
    let range = match range {
        "*" => None,
        range => {
            let (first, last) = range.split_once('-')?;
            let (first, last) = (decimal(first)?, decimal(last)?);
            if first > last || total.is_some_and(|total| last >= total) {
                return None;
            }
            Some((first, last))
        }
    };
    Some(ContentRange { range, total })
}

/// A response head that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Over 16 KiB.
    #[error("its response head is longer than 16 KiB")]
    TooLong,
    /// It does not parse as the head of an HTTP/1.0 or HTTP/1.1 response.
    #[error("its response is not HTTP/1.1 ({0})")]
    Malformed(httparse::Error),
    /// `Content-Length` is no number, or is there twice.
    #[error("its Content-Length is malformed or given twice")]
    Length,
    /// A transfer coding other than `chunked`.
    #[error("it uses the transfer coding {0:?}; only chunked is supported")]
    Coding(String),
    /// More than a few 1xx responses.
    #[error("it sends interim responses without end")]
    Interim,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Head, HeadError> {
        let mut reader = HeadReader::default();
        let (taken, complete) = reader.push(text.as_bytes())?;
        assert_eq!((taken, complete), (text.len(), true), "{text:?}");
        reader.parse()
    }

    fn ok(headers: &str) -> Head {
        parse(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")).unwrap()
    }

    #[test]
    fn a_plain_response() {
        let head = ok("content-length: 5\r\nETag: \"a\"\r\n");
        assert_eq!((head.status, head.reason.as_str()), (200, "OK"));
        assert_eq!(head.framing, Framing::Length(5));
        assert!(head.keep_alive);
        assert_eq!(head.validator(), Some(Validator::Tag("\"a\"".to_string())));
    }

    #[test]
    fn lengths_beyond_four_gibibytes() {
        assert_eq!(
            ok("Content-Length: 18446744073709551615\r\n").framing,
            Framing::Length(u64::MAX)
        );
    }

    #[test]
    fn lengths_that_are_none() {
        for value in ["", "+5", "-5", "5, 5", "5 5", "0x5", "18446744073709551616"] {
            assert_eq!(
                parse(&format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\n"
                )),
                Err(HeadError::Length),
                "{value}"
            );
        }
        assert_eq!(
            parse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"),
            Err(HeadError::Length)
        );
    }

    #[test]
    fn framing_by_precedence() {
        assert_eq!(ok("").framing, Framing::UntilClose);
        assert!(!ok("").keep_alive);
        let both = ok("Content-Length: 3\r\nTransfer-Encoding: Chunked\r\n");
        assert_eq!((both.framing, both.keep_alive), (Framing::Chunked, false));
        assert!(ok("Transfer-Encoding: chunked\r\n").keep_alive);
        assert!(matches!(
            parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
            Err(HeadError::Coding(_))
        ));
        let none = parse("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n").unwrap();
        assert_eq!(none.framing, Framing::Length(0));
    }

    #[test]
    fn keep_alive_by_version_and_option() {
        assert!(!ok("Content-Length: 0\r\nConnection: foo, Close\r\n").keep_alive);
        let old = |options: &str| {
            parse(&format!(
                "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n{options}\r\n"
            ))
            .unwrap()
            .keep_alive
        };
        assert!(!old(""));
        assert!(old("Connection: keep-alive\r\n"));
    }

    #[test]
    fn validators_that_are_strong() {
        let date = "Last-Modified: Sat, 01 Jan 2022 00:00:00 GMT\r\n";
        let sent = "Date: Sun, 02 Jan 2022 00:00:00 GMT\r\n";
        assert_eq!(
            ok(&format!("ETag: W/\"a\"\r\n{date}{sent}")).validator(),
            Some(Validator::Modified("Sat, 01 Jan 2022 00:00:00 GMT".into()))
        );
        assert_eq!(ok(date).validator(), None);
        assert_eq!(ok("ETag: W/\"a\"\r\n").validator(), None);
        let same = date.replace("Last-Modified", "Date");
        assert_eq!(ok(&format!("{date}{same}")).validator(), None);
        let validator = Validator::Tag("\"a\"".into());
        assert!(validator.contradicts(&ok("ETag: \"b\"\r\n")));
        assert!(!validator.contradicts(&ok("ETag: \"a\"\r\n")));
        assert!(!validator.contradicts(&ok("")));
    }

    #[test]
    fn content_ranges() {
        let range = |value: &str| ok(&format!("Content-Range: {value}\r\n")).range;
        let known = |range, total| Some(ContentRange { range, total });
        assert_eq!(range("bytes 5-9/10"), known(Some((5, 9)), Some(10)));
        assert_eq!(range("Bytes 5-9/*"), known(Some((5, 9)), None));
        assert_eq!(range("bytes */10"), known(None, Some(10)));
        for bad in [
            "bytes 9-5/10",
            "bytes 5-10/10",
            "items 5-9/10",
            "bytes 5-9",
            "5-9/10",
        ] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_newlines_and_empty_lines_in_front() {
        let head = parse("\r\n\nHTTP/1.1 404 Not  Found\nX: y\n\n").unwrap();
        assert_eq!((head.status, head.reason.as_str()), (404, "Not  Found"));
        assert_eq!(parse("HTTP/1.1 500\r\n\r\n").unwrap().reason, "");
    }

    #[test]
    fn not_http() {
        for text in [
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        ] {
            assert!(
                matches!(parse(text), Err(HeadError::Malformed(_))),
                "{text:?}"
            );
        }
    }

    #[test]
    fn too_long_or_too_many() {
        let mut reader = HeadReader::default();
        let endless = vec![b'a'; HEAD_LIMIT + 1];
        assert_eq!(reader.push(&endless), Err(HeadError::TooLong));
        let mut reader = HeadReader::default();
        assert_eq!(reader.push(&endless[..HEAD_LIMIT]), Ok((HEAD_LIMIT, false)));
        assert_eq!(reader.push(b"a"), Err(HeadError::TooLong));
        let many = "A: b\r\n".repeat(HEADER_LIMIT + 1);
        assert!(matches!(
            parse(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")),
            Err(HeadError::Malformed(httparse::Error::TooManyHeaders))
        ));
    }

    proptest! {
        /// A head cut anywhere is the head in one piece, and not one byte of the body is taken.
        #[test]
        fn splits_do_not_matter(cuts in prop::collection::vec(1usize..20, 1..60), body in prop::collection::vec(any::<u8>(), 0..20)) {
            let text = b"\r\nHTTP/1.1 206 Partial Content\r\nContent-Length: 7\r\nContent-Range: bytes 3-9/10\r\nETag: \"x\"\r\n\r\n";
            let mut stream = text.to_vec();
            stream.extend_from_slice(&body);
            let mut reader = HeadReader::default();
            let mut at = 0;
            let mut complete = false;
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(stream.len());
                let (taken, done) = reader.push(&stream[at..end]).unwrap();
                at += taken;
                if done { complete = true; break; }
                prop_assert_eq!(at, end);
                if end == stream.len() { break; }
            }
            prop_assert!(complete);
            prop_assert_eq!(at, text.len());
            prop_assert_eq!(reader.parse().unwrap().framing, Framing::Length(7));
        }
    }
}
