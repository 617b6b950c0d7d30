//! Bodies of the fuzz targets: what must hold for any bytes. Each panics when it does not.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::http::chunked::{ChunkReader, Next};
use crate::http::head::{Framing, Head, HeadReader};
use crate::http::request::request_head;
use crate::http::{ChunkError, HeadError};
use crate::url::{Host, Scheme, Url};

const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A URL and a reference, separated by the first line feed.
pub fn fuzz_url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (text, reference) = text.split_once('\n').unwrap_or((&text, ""));
    check_url(text, reference);
}

/// A URL that is taken survives being displayed, names something to ask for, cannot break out of a
/// request line, and so do all that it leads to.
pub(crate) fn check_url(text: &str, reference: &str) {
    let server = Ipv4Addr::new(192, 0, 2, 1);
    for server in [
        IpAddr::from(server),
        Ipv6Addr::LOCALHOST.into(),
        LINK_LOCAL.into(),
    ] {
        if let Ok(url) = Url::from_boot_file(server, text) {
            check_whole(&url);
            if !text.contains("://") {
                assert_eq!(url.resource(), text);
                assert_eq!(url.host(), &Host::Address(server));
            }
        }
    }
    let Ok(url) = Url::parse(text) else { return };
    check_whole(&url);
    if let Ok(target) = url.join(reference) {
        check_whole(&target);
        assert_eq!(url.join(target.as_str()).as_ref(), Ok(&target));
    }
}

fn check_whole(url: &Url) {
    assert_eq!(Url::parse(url.as_str()).as_ref(), Ok(url));
    assert_ne!(url.port(), 0);
    let resource = url.resource();
    match url.scheme() {
        Scheme::Http => {
            assert!(resource.starts_with('/'));
            assert!(resource.bytes().all(|byte| byte.is_ascii_graphic()));
            check_request(&request_head(url, None));
        }
        Scheme::Tftp => assert!(!resource.is_empty() && !resource.contains('\0')),
    }
}

/// One request line, headers, one empty line at the end.
fn check_request(request: &str) {
    let lines: Vec<&str> = request.split("\r\n").collect();
    let [line, headers @ .., "", ""] = lines.as_slice() else {
        panic!("{request:?} does not end in an empty line");
    };
    assert_eq!(line.split(' ').count(), 3, "{request:?}");
    for header in headers {
        assert!(header.contains(": ") && !header.contains(['\r', '\n']));
    }
}

/// A response stream, cut into pieces of the size in its first byte.
///
/// Where the stream is cut does not matter; nothing is taken beyond the end of the head or of the chunks; and what a
/// response says goes into the request for the rest without breaking it.
pub fn fuzz_http_response(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    let pieces = usize::from(cut).max(1);
    let whole = read_response(stream, stream.len().max(1));
    assert_eq!(whole, read_response(stream, pieces));
    let Ok(Some((head, rest))) = whole else {
        return;
    };
    assert!(stream.ends_with(rest));
    if let Some(validator) = head.validator() {
        let url = Url::parse("http://192.0.2.1/file").expect("a valid URL");
        check_request(&request_head(&url, Some((1, &validator))));
    }
    if head.framing == Framing::Chunked {
        let body = read_chunks(rest, rest.len().max(1));
        assert_eq!(body, read_chunks(rest, pieces));
        if let Ok((body, left)) = body {
            assert!(body.len() + left.len() <= rest.len());
        }
    }
}

type Response<'a> = Option<(Head, &'a [u8])>;

fn read_response(stream: &[u8], pieces: usize) -> Result<Response<'_>, HeadError> {
    let mut reader = HeadReader::default();
    let mut rest = stream;
    while !rest.is_empty() {
        let piece = rest.get(..pieces).unwrap_or(rest);
        let (taken, complete) = reader.push(piece)?;
        rest = rest.get(taken..).expect("takes no more than given");
        if complete {
            return Ok(Some((reader.parse()?, rest)));
        }
        assert_eq!(taken, piece.len());
    }
    Ok(None)
}

fn read_chunks(stream: &[u8], pieces: usize) -> Result<(Vec<u8>, &[u8]), ChunkError> {
    let mut reader = ChunkReader::new();
    let mut body = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let piece = rest.get(..pieces).unwrap_or(rest);
        let (taken, next) = reader.push(piece)?;
        rest = rest.get(taken..).expect("takes no more than given");
        match next {
            Next::More => assert_eq!(taken, piece.len()),
            Next::Data(length) => {
                assert_ne!(length, 0);
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (data, behind) = rest.split_at(length.min(rest.len()));
                body.extend_from_slice(data);
                rest = behind;
            }
            Next::End => return Ok((body, rest)),
        }
    }
    Ok((body, rest))
}
