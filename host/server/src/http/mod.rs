//! The HTTP/1.1 server: GET and HEAD of the served files, with byte ranges and validators (RFC 9110).
//!
//! ```text
//!   hyper (connections, keep-alive, framing) --> respond(): what and which bytes --> FileBody: 512 KiB pieces, read one ahead
//! ```

mod body;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::net::{TcpListener, TcpStream};
use wireboot_wire::text;

use self::body::{FileBody, Report};
use crate::directory::{Content, Directory, OpenError};
use crate::event::{Event, Events, Kind};

/// A client that sends no whole request head in this time is disconnected.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// An HTTP server that is bound to its port.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    directory: Arc<Directory>,
    events: Events,
}

impl HttpServer {
    /// Binds the port. To be called within a tokio runtime.
    ///
    /// # Errors
    /// When the port is in use or needs a permission that is not there.
    pub async fn bind(
        listen: SocketAddrV4,
        directory: Arc<Directory>,
        events: Events,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(listen).await?,
            directory,
            events,
        })
    }

    /// Where connections are taken.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until dropped.
    pub async fn run(self) {
        loop {
            match self.listener.accept().await {
                Ok((stream, client)) => {
                    tokio::spawn(connection(
                        stream,
                        client,
                        self.directory.clone(),
                        self.events.clone(),
                    ));
                }
                // Out of file descriptors, most likely: those of ending connections come back.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    client: SocketAddr,
    directory: Arc<Directory>,
    events: Events,
) {
    // A response head must not wait for the acknowledgement of the response before it.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let (directory, events) = (directory.clone(), events.clone());
        async move { Ok::<_, Infallible>(respond(&request, client, &directory, &events)) }
    });
    // A connection ends with an error when the client leaves; its body has told of that.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn respond(
    request: &Request<Incoming>,
    client: SocketAddr,
    directory: &Directory,
    events: &Events,
) -> Response<FileBody> {
    let path = percent_decode_str(request.uri().path())
        .decode_utf8_lossy()
        .into_owned();
    let name = text::shown(path.as_bytes());
    let refuse = |status: StatusCode, why: &str| {
        let event = Event::now(Kind::HttpError, client.ip()).file(&name);
        events.record(event.message(format!("{status}: {why}")));
        refusal(status, why)
    };
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = refuse(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are served",
        );
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let content = match directory.find(&path) {
        Ok(content) => content,
        Err(error) => {
            let status = match error {
                OpenError::NotFound | OpenError::NotAFile => StatusCode::NOT_FOUND,
                OpenError::Outside | OpenError::Denied => StatusCode::FORBIDDEN,
                OpenError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            return refuse(status, &error.to_string());
        }
    };
    let validators = Validators::of(&content);
    let mut response = Response::new(FileBody::empty());
    let selection = select(request.headers(), &validators, content.len());
    validators.put(response.headers_mut());
    let put = |response: &mut Response<FileBody>, name, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    };
    put(&mut response, header::ACCEPT_RANGES, "bytes".to_owned());
    let range = match selection {
        Selection::Unchanged => {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        Selection::OutOfReach => {
            let mut response = refuse(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "the range lies behind the end of the file",
            );
            put(
                &mut response,
                header::CONTENT_RANGE,
                format!("bytes */{}", content.len()),
            );
            return response;
        }
        Selection::Whole => 0..content.len(),
        Selection::Part(range) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let value = format!("bytes {}-{}/{}", range.start(), range.end(), content.len());
            put(&mut response, header::CONTENT_RANGE, value);
            *range.start()..*range.end() + 1
        }
    };
    put(
        &mut response,
        header::CONTENT_TYPE,
        media_type(&name).to_owned(),
    );
    let length = range.end - range.start;
    if request.method() == Method::HEAD {
        put(&mut response, header::CONTENT_LENGTH, length.to_string());
        return response;
    }
    let mut start = Event::now(Kind::HttpStart, client.ip())
        .file(&name)
        .bytes(length);
    if range.start > 0 {
        start = start.message(format!("from byte {} on", range.start));
    }
    events.record(start);
    let report = Report::new(events.clone(), client, name, length);
    *response.body_mut() = FileBody::part(content, range.start, range.end, report);
    response
}

fn refusal(status: StatusCode, why: &str) -> Response<FileBody> {
    let mut response = Response::new(FileBody::text(format!("{status}: {why}\n")));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
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

/// What tells one version of a file from another.
#[derive(Debug)]
struct Validators {
    /// Absent for content made for this request.
    tag: Option<String>,
    modified: Option<SystemTime>,
}

impl Validators {
    fn of(content: &Content) -> Self {
        // Whole seconds, which is what the header can say.
        let since = content
            .modified()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            tag: since.map(|since| format!("\"{:x}-{:x}\"", since.as_nanos(), content.len())),
            modified: since.map(|since| UNIX_EPOCH + Duration::from_secs(since.as_secs())),
        }
    }

    fn put(&self, headers: &mut HeaderMap) {
        let modified = self.modified.map(httpdate::fmt_http_date);
        for (name, value) in [
            (header::ETAG, &self.tag),
            (header::LAST_MODIFIED, &modified),
        ] {
            if let Some(value) = value
                .as_ref()
                .and_then(|value| HeaderValue::from_str(value).ok())
            {
                headers.insert(name, value);
            }
        }
    }

    /// True when a list of entity tags names this version (weak comparison).
    fn tag_is_in(&self, list: &str) -> bool {
        let listed = |tag: &str| self.tag.as_deref() == Some(tag.trim().trim_start_matches("W/"));
        list.trim() == "*" || list.split(',').any(listed)
    }

    /// True when the value of If-Range is this version (strong comparison; an exact date counts as strong).
    fn is(&self, value: &str) -> bool {
        let date = httpdate::parse_http_date(value).ok();
        self.tag.as_deref() == Some(value.trim()) || (date.is_some() && date == self.modified)
    }
}

/// Which bytes a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    Whole,
    Part(RangeInclusive<u64>),
    OutOfReach,
    Unchanged,
}

/// RFC 9110 section 13.2.2 for GET and HEAD. Several ranges, or a header that is no range, get the whole file.
fn select(headers: &HeaderMap, validators: &Validators, length: u64) -> Selection {
    let value = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    if let Some(list) = value(header::IF_NONE_MATCH) {
        if validators.tag_is_in(list) {
            return Selection::Unchanged;
        }
    } else if let Some(date) = value(header::IF_MODIFIED_SINCE)
        && let Ok(date) = httpdate::parse_http_date(date)
        && validators.modified.is_some_and(|modified| modified <= date)
    {
        return Selection::Unchanged;
    }
    let Some(range) = value(header::RANGE) else {
        return Selection::Whole;
    };
    if value(header::IF_RANGE).is_some_and(|value| !validators.is(value)) {
        return Selection::Whole;
    }
    only_range(range, length).unwrap_or(Selection::Whole)
}

/// The one range of a Range header (RFC 9110 section 14.1.2); `None` when there are several, or it is malformed.
fn only_range(header: &str, length: u64) -> Option<Selection> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that does not fit lies behind the end of any file.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (first, last) = header.strip_prefix("bytes=")?.trim().split_once('-')?;
    let (first, last) = match (first, last) {
        ("", suffix) => (length.saturating_sub(number(suffix)?), u64::MAX),
        (first, "") => (number(first)?, u64::MAX),
        (first, last) => (number(first)?, number(last)?),
    };
    if last < first {
        return None;
    }
    Some(match first < length {
        true => Selection::Part(first..=last.min(length - 1)),
        false => Selection::OutOfReach,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn selected(headers: &[(header::HeaderName, &str)]) -> Selection {
        let validators = Validators {
            tag: Some("\"v1\"".to_owned()),
            modified: httpdate::parse_http_date(DATE).ok(),
        };
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        select(&headers.collect(), &validators, 1000)
    }

    #[test]
    fn ranges() {
        for (range, expected) in [
            ("bytes=0-99", Selection::Part(0..=99)),
            ("bytes=900-", Selection::Part(900..=999)),
            ("bytes=-100", Selection::Part(900..=999)),
            ("bytes=-5000", Selection::Part(0..=999)),
            ("bytes=999-", Selection::Part(999..=999)),
            ("bytes=990-2000", Selection::Part(990..=999)),
            ("bytes=1000-", Selection::OutOfReach),
            ("bytes=0-1,5-6", Selection::Whole),
            ("lines=1-2", Selection::Whole),
            ("bytes=-0", Selection::OutOfReach),
            ("bytes=99999999999999999999-", Selection::OutOfReach),
            ("bytes=5-4", Selection::Whole),
            ("bytes=+5-9", Selection::Whole),
            ("bytes=-", Selection::Whole),
            ("bytes=x", Selection::Whole),
        ] {
            assert_eq!(selected(&[(header::RANGE, range)]), expected, "{range}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_the_whole_file() {
        for (version, expected) in [
            ("\"v1\"", Selection::Part(5..=999)),
            (DATE, Selection::Part(5..=999)),
            ("\"v2\"", Selection::Whole),
            ("W/\"v1\"", Selection::Whole),
            ("Sun, 06 Nov 1994 08:49:38 GMT", Selection::Whole),
        ] {
            let headers = [(header::RANGE, "bytes=5-"), (header::IF_RANGE, version)];
            assert_eq!(selected(&headers), expected, "{version}");
        }
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        for (name, value, expected) in [
            (
                header::IF_NONE_MATCH,
                "\"v0\", W/\"v1\"",
                Selection::Unchanged,
            ),
            (header::IF_NONE_MATCH, "*", Selection::Unchanged),
            (header::IF_NONE_MATCH, "\"v2\"", Selection::Whole),
            (header::IF_MODIFIED_SINCE, DATE, Selection::Unchanged),
            (
                header::IF_MODIFIED_SINCE,
                "Sun, 06 Nov 1994 08:49:36 GMT",
                Selection::Whole,
            ),
            (header::IF_MODIFIED_SINCE, "yesterday", Selection::Whole),
        ] {
            assert_eq!(selected(&[(name, value)]), expected, "{value}");
        }
    }
}
