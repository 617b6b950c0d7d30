//! What a server can by HTTP.

use crate::since;
use alloc::format;
use alloc::string::{String, ToString};
use core::net::SocketAddr;
use wireboot_fetch::http::{Problem, ResponseHead, ask_on};
use wireboot_fetch::url::Url;
use wireboot_net::{Duration, Stack, TcpStream};
use wireboot_report::servers::HttpAnswer;
use wireboot_wire::text;

/// How long the server may take to accept a connection, and to answer a request.
const PATIENCE: Duration = Duration::from_secs(3);
/// A part of the file: its first byte.
const PART: &str = "Range: bytes=0-0\r\n";
const PARTIAL_CONTENT: u16 = 206;

/// Asks for the file's head, and on the same connection, if it stays, for its first byte. The error is what a person reads.
pub(crate) async fn ask(
    stack: &Stack,
    server: SocketAddr,
    url: &Url,
) -> Result<HttpAnswer, String> {
    let begin = stack.now();
    let mut stream = connect(stack, server).await?;
    let connect_us = since(stack, begin).await;
    let head = request(stack, &mut stream, url, "HEAD", "").await?;
    let mut begin = stack.now();
    let again = request(stack, &mut stream, url, "GET", PART).await;
    let keeps_alive = again.is_ok();
    let part = match again {
        Ok(part) => part,
        Err(_) => {
            drop(stream);
            stream = connect(stack, server).await?;
            begin = stack.now();
            request(stack, &mut stream, url, "GET", PART).await?
        }
    };
    let first_byte_us = since(stack, begin).await;
    let of = |head: &ResponseHead, name: &str| {
        let mut fields = head.fields.iter();
        let field = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
        field.map(|(_, value)| text::shown(value.as_bytes()))
    };
    let whole = (200..300)
        .contains(&head.status)
        .then(|| of(&head, "content-length"));
    Ok(HttpAnswer {
        status: part.status,
        software: of(&part, "server"),
        file_bytes: whole.flatten().and_then(|length| length.parse().ok()),
        ranges: part.status == PARTIAL_CONTENT,
        keeps_alive,
        connect_us,
        first_byte_us,
    })
}

async fn connect(stack: &Stack, server: SocketAddr) -> Result<TcpStream, String> {
    let connected = stack.connect(server, PATIENCE).await;
    connected.map_err(|error| error.to_string())
}

async fn request(
    stack: &Stack,
    stream: &mut TcpStream,
    url: &Url,
    method: &str,
    fields: &str,
) -> Result<ResponseHead, String> {
    let port = match url.port() {
        80 => String::new(),
        port => format!(":{port}"),
    };
    let request = format!(
        "{method} {} HTTP/1.1\r\nHost: {}{port}\r\nUser-Agent: wireboot/{}\r\nAccept-Encoding: identity\r\n{fields}\r\n",
        url.resource(),
        url.host(),
        env!("CARGO_PKG_VERSION"),
    );
    let answered = stack.timeout(PATIENCE, ask_on(stream, request.as_bytes()));
    let answered: Option<Result<_, Problem>> = answered.await;
    let seconds = PATIENCE.secs();
    let answered = answered.ok_or_else(|| format!("no answer to {method} in {seconds} s"))?;
    answered.map_err(|error| error.to_string())
}
