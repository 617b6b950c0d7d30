//! A request that somebody else has put together, and its response as it is: no redirect is followed, nothing is asked for again, and
//! the body goes to memory that is handed over piece by piece.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use wireboot_net::{Memory, NetError, Region, Stack, TcpStream};

use super::chunked::{ChunkReader, Next};
use super::connections::Connections;
use super::error::Problem;
use super::head::{Framing, Head, HeadError, HeadReader};
use super::limits::{CONNECT_TIMEOUT, SILENCE};
use super::patience::Patience;
use super::request::{INTERIM_LIMIT, receive_head};
use super::resolved::servers;
use crate::pace::Floor;
use crate::race;
use crate::resolve::Resolve;
use crate::url::{Scheme, Url};

/// A request as it goes to the server.
#[derive(Debug)]
pub struct Request {
    /// Whom to ask: the server of an `http` URL.
    pub url: Url,
    /// Its method, as in its first line (RFC 9110 section 9).
    pub method: &'static str,
    /// All of it: request line, header lines, empty line, body.
    pub bytes: Vec<u8>,
}

/// The head of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code (RFC 9110 section 15), never 1xx: interim responses are passed over.
    pub status: u16,
    /// Names and values of the header lines, in their order.
    pub fields: Vec<(String, String)>,
}

/// Who takes a response.
pub(crate) trait Taker {
    fn head(&mut self, head: ResponseHead);
    /// Memory for the next bytes of the body, when there is some.
    async fn memory(&mut self) -> Memory;
    /// The memory with so many bytes of the body: fewer than it holds only at the body's end, or where the connection breaks.
    fn body(&mut self, memory: Memory, len: usize);
}

/// What is left of a body.
struct Rest {
    /// Bytes up to its end, or up to that of a chunk.
    left: u64,
    chunks: Option<ChunkReader>,
    until_close: bool,
}

impl Rest {
    fn of(framing: Framing) -> Self {
        Self {
            left: match framing {
                Framing::Length(length) => length,
                Framing::Chunked => 0,
                Framing::UntilClose => u64::MAX,
            },
            chunks: (framing == Framing::Chunked).then(ChunkReader::new),
            until_close: framing == Framing::UntilClose,
        }
    }

    /// Whether there is more, after the line before a chunk has been read.
    async fn more(&mut self, stream: &mut TcpStream) -> Result<bool, Problem> {
        while self.left == 0
            && let Some(reader) = &mut self.chunks
        {
            let mut progress = Ok((0, Next::More));
            let read = stream.read(|bytes| {
                progress = reader.push(bytes);
                // A broken body ends the connection, so it does not matter what is consumed.
                progress.map_or(bytes.len(), |(taken, _)| taken)
            });
            if read.await.map_err(Problem::connection)? == 0 {
                return Err(Problem::BrokeOff { received: 0 });
            }
            match progress?.1 {
                Next::More => {}
                Next::Data(length) => self.left = length,
                Next::End => self.chunks = None,
            }
        }
        Ok(self.left > 0)
    }

    /// Reads to the end of `region`, or of the body. Returns how many bytes have come, and whether all is well.
    async fn read(
        &mut self,
        stream: &mut TcpStream,
        region: &Region,
        patience: &mut Patience<'_>,
    ) -> (usize, Result<(), Problem>) {
        let mut at = 0;
        while at < region.len() {
            let received = stream.received();
            let more = patience.attend(received, self.more(stream), || at as u64);
            match more.await.flatten() {
                Ok(true) => {}
                Ok(false) => break,
                Err(problem) => return (at, Err(problem)),
            }
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            let part = region.part(at.saturating_add(left));
            let received = stream.received();
            let before = received.get();
            let read = stream.read_into(&part, at);
            let count = patience
                .attend(received.clone(), read, || {
                    at as u64 + (received.get() - before)
                })
                .await;
            match count.and_then(|count| count.map_err(Problem::connection)) {
                Ok(0) if self.until_close => {
                    self.left = 0;
                    break;
                }
                Ok(0) => {
                    let received = at as u64;
                    return (at, Err(Problem::BrokeOff { received }));
                }
                Ok(count) => {
                    at += count;
                    if !self.until_close {
                        self.left = self.left.saturating_sub(count as u64);
                    }
                }
                Err(problem) => return (at, Err(problem)),
            }
        }
        (at, Ok(()))
    }
}

/// Sends `request`, and gives `taker` what comes. The connection is one that waits, or a new one, and waits afterwards if it can.
///
/// # Errors
/// [`Problem`]: what was asked of whom has not come, or not all of it.
pub(crate) async fn exchange<R: Resolve, T: Taker>(
    stack: &Stack,
    connections: &Connections,
    resolver: &R,
    request: &Request,
    taker: &mut T,
) -> Result<(), Problem> {
    if request.url.scheme() != Scheme::Http {
        return Err(Problem::NotHttp);
    }
    let servers = servers(stack, resolver, &request.url).await?;
    let (server, mut stream, head, fields) =
        converse(stack, connections, &servers, request).await?;
    let bodiless = request.method == "HEAD";
    taker.head(ResponseHead {
        status: head.status,
        fields,
    });
    let mut rest = Rest::of(if bodiless {
        Framing::Length(0)
    } else {
        head.framing
    });
    loop {
        let mut patience = Patience::new(stack, server.ip(), Floor::default(), 0);
        let received = stream.received();
        let more = patience.attend(received, rest.more(&mut stream), || 0);
        if !more.await.flatten()? {
            break;
        }
        let region = Region::new(patience.pause(taker.memory()).await);
        let (len, result) = rest.read(&mut stream, &region, &mut patience).await;
        if result.is_ok() || len > 0 {
            taker.body(region.take(), len);
        }
        result?;
    }
    if head.keep_alive {
        connections.put(stack, server, stream);
    } else {
        stream.close();
    }
    Ok(())
}

type Answer = (SocketAddr, TcpStream, Head, Vec<(String, String)>);

async fn converse(
    stack: &Stack,
    connections: &Connections,
    servers: &[SocketAddr],
    request: &Request,
) -> Result<Answer, Problem> {
    // A server may close a connection that waits at any time, and nobody knows then whether it has done what it was asked for.
    if matches!(request.method, "GET" | "HEAD")
        && let Some((server, mut stream)) = connections.take(stack, servers)
        && let Ok((head, fields)) = ask(stack, server, &mut stream, request).await
    {
        return Ok((server, stream, head, fields));
    }
    let connected = race::first(stack, servers, NetError::Unreachable, |server| {
        stack.connect(server, CONNECT_TIMEOUT)
    });
    let (server, mut stream) = connected.await.map_err(Problem::Connect)?;
    stream.set_idle_timeout(SILENCE);
    let (head, fields) = ask(stack, server, &mut stream, request).await?;
    Ok((server, stream, head, fields))
}

async fn ask(
    stack: &Stack,
    server: SocketAddr,
    stream: &mut TcpStream,
    request: &Request,
) -> Result<(Head, Vec<(String, String)>), Problem> {
    let received = stream.received();
    let talk = talk(stream, &request.bytes);
    let mut patience = Patience::new(stack, server.ip(), Floor::default(), 0);
    patience.attend(received, talk, || 0).await?
}

async fn talk(
    stream: &mut TcpStream,
    request: &[u8],
) -> Result<(Head, Vec<(String, String)>), Problem> {
    let sent = stream.write_all(request).await;
    sent.map_err(Problem::connection)?;
    for _ in 0..INTERIM_LIMIT {
        let mut reader = HeadReader::default();
        let head = receive_head(stream, &mut reader).await?;
        if !(100..200).contains(&head.status) {
            return Ok((head, reader.fields()));
        }
    }
    Err(Problem::Head(HeadError::Interim))
}

/// Sends a request, all of it, on a connection, and reads the head of its response. The body is left in the connection. Waits without end.
///
/// # Errors
/// [`Problem`]: no head has come, or none that can be read.
pub async fn ask_on(stream: &mut TcpStream, request: &[u8]) -> Result<ResponseHead, Problem> {
    let (head, fields) = talk(stream, request).await?;
    let status = head.status;
    Ok(ResponseHead { status, fields })
}
