//! A request, and the head of its response.

use alloc::format;
use alloc::string::String;

use wireboot_net::{Duration, Stack, TcpStream};

use super::error::Problem;
use super::head::{Framing, Head, HeadError, HeadReader, Validator};
use super::patience::Patience;
use crate::url::Url;

/// Interim (1xx) responses passed over before one response.
pub(super) const INTERIM_LIMIT: u32 = 8;
/// Body of a redirect read for the sake of its connection, in bytes.
const DRAIN_LIMIT: u64 = 64 * 1024;
/// How long that may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the response was read to its end, so that the connection may carry another.
pub(super) type AtEnd = bool;

/// Sends a request and receives the head of the final response.
pub(super) async fn exchange(
    patience: &mut Patience<'_>,
    stream: &mut TcpStream,
    request: &str,
) -> Result<Head, Problem> {
    let received = stream.received();
    let exchange = async {
        stream
            .write_all(request.as_bytes())
            .await
            .map_err(Problem::connection)?;
        for _ in 0..INTERIM_LIMIT {
            let head = read_head(stream).await?;
            if !(100..200).contains(&head.status) {
                return Ok(head);
            }
        }
        Err(Problem::Head(HeadError::Interim))
    };
    // A head brings nothing of the file.
    patience.attend(received, exchange, || 0).await?
}

/// The request for a file, or for its rest.
pub(crate) fn request_head(url: &Url, resume: Option<(u64, &Validator)>) -> String {
    match resume {
        Some((from, validator)) => range_request(url, from, None, validator),
        None => request_with(url, ""),
    }
}

/// The request for the bytes from `from` on, up to before `end` if there is one (RFC 9110 sections 13.1.5 and 14.2).
pub(super) fn range_request(
    url: &Url,
    from: u64,
    end: Option<u64>,
    validator: &Validator,
) -> String {
    let last = end.map_or(String::new(), |end| format!("{}", end.saturating_sub(1)));
    let validator = validator.as_str();
    request_with(
        url,
        &format!("Range: bytes={from}-{last}\r\nIf-Range: {validator}\r\n"),
    )
}

pub(super) fn request_with(url: &Url, range: &str) -> String {
    let port = match url.port() {
        80 => String::new(),
        port => format!(":{port}"),
    };
    format!(
        "GET {} HTTP/1.1\r\nHost: {}{port}\r\nUser-Agent: wireboot/{}\r\nAccept: */*\r\n\
         Accept-Encoding: identity\r\n{range}\r\n",
        url.resource(),
        url.host(),
        env!("CARGO_PKG_VERSION"),
    )
}

pub(super) async fn read_head(stream: &mut TcpStream) -> Result<Head, Problem> {
    receive_head(stream, &mut HeadReader::default()).await
}

/// The same, with what has come left in `reader`.
pub(super) async fn receive_head(
    stream: &mut TcpStream,
    reader: &mut HeadReader,
) -> Result<Head, Problem> {
    let mut progress = Ok((0, false));
    loop {
        let consumed = stream
            .read(|bytes| {
                progress = reader.push(bytes);
                // A head that cannot be used ends the connection, so it does not matter what is consumed.
                progress.as_ref().map_or(bytes.len(), |(taken, _)| *taken)
            })
            .await
            .map_err(Problem::connection)?;
        if consumed == 0 {
            return Err(Problem::NoAnswer);
        }
        if let (_, true) = progress.clone()? {
            return Ok(reader.parse()?);
        }
    }
}

/// Reads a body that nobody wants, if it is short and there soon, so that the connection can be used again.
pub(super) async fn drain(stack: &Stack, stream: &mut TcpStream, head: &Head) -> AtEnd {
    let Framing::Length(mut left @ 0..=DRAIN_LIMIT) = head.framing else {
        return false;
    };
    let drain = async {
        while left > 0 {
            let take = left as usize;
            match stream.read(|bytes| bytes.len().min(take)).await {
                Ok(count) if count > 0 => left = left.saturating_sub(count as u64),
                _ => return false,
            }
        }
        true
    };
    stack.timeout(DRAIN_TIMEOUT, drain).await.unwrap_or(false)
}
