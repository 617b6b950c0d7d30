//! The HTTP/1.1 server: GET and HEAD of the served files, with byte ranges and validators (RFC 9110, RFC 9112).
//!
//! ```text
//!   listener --thread for each connection--> head: request --> response: what and which bytes (select) --> sendfile()
//! ```
//!
//! The kernel carries the bytes from the page cache to TCP (`sendfile`), so a connection needs no buffer of its own beyond one
//! for request heads.

mod head;
mod response;
mod select;
mod status;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

pub(crate) use self::head::Head;
pub(crate) use self::response::{Body, Response};
use self::status::Status;
use crate::directory::{Content, Directory};
use crate::event::{Event, Events, Kind};
use crate::listen::Listen;
use crate::stop::Stop;

/// A client that sends no whole request head in this time is disconnected.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that takes no byte of a response in this time is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait for a client to close its side after the last response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections at a time. Each holds a thread, a socket and, while it sends one, a file.
const MAX_CONNECTIONS: usize = 1024;
/// Bytes of a connection thread's stack.
const STACK: usize = 256 * 1024;

/// An HTTP server that is bound to its port.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    service: Arc<Service>,
}

/// What all connections share; its counter of references counts them.
#[derive(Debug)]
struct Service {
    directory: Arc<Directory>,
    events: Events,
}

impl HttpServer {
    /// Binds the port.
    ///
    /// # Errors
    /// When the port is in use or needs a permission that is not there.
    pub fn bind(
        listen: impl Into<Listen>,
        directory: Arc<Directory>,
        events: Events,
    ) -> io::Result<Self> {
        let listener = listen.into().tcp()?;
        // A client may leave between poll() and accept().
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            service: Arc::new(Service { directory, events }),
        })
    }

    /// Where connections are taken.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until told to stop. Connections that are open then end with the process, or when their clients close them.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub fn run(&self, stop: &Stop) -> io::Result<()> {
        while !stop.is_set() {
            let mut listener = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            let patience =
                PollTimeout::try_from(Stop::CHECK_EVERY).unwrap_or(PollTimeout::from(100u8));
            match poll(&mut listener, patience) {
                Ok(0) | Err(nix::Error::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            match self.listener.accept() {
                Ok((stream, client)) => self.take(stream, client),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Out of file descriptors, most likely: those of ending connections come back.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Ok(())
    }

    fn take(&self, stream: TcpStream, client: SocketAddr) {
        let service = self.service.clone();
        let mut connection = Connection {
            stream,
            client,
            buffer: Vec::new(),
        };
        let spawned = if Arc::strong_count(&service) <= MAX_CONNECTIONS + 1 {
            std::thread::Builder::new()
                .name("http".to_owned())
                .stack_size(STACK)
                // It ends with an error when the client leaves; what was under way has told of that.
                .spawn(move || drop(connection.serve(&service)))
                .map(drop)
        } else {
            let refusal = Response::refusal(Status::BUSY, "too many connections");
            let _ = connection.write(&refusal, true);
            Err(io::Error::other("too many connections"))
        };
        if let Err(error) = spawned {
            let event = Event::now(Kind::HttpError, client.ip());
            let message = format!("the connection is refused: {error}");
            self.service.events.record(event.message(message));
        }
    }
}

/// A client's connection.
struct Connection {
    stream: TcpStream,
    client: SocketAddr,
    /// Bytes that have come and are not answered yet.
    buffer: Vec<u8>,
}

impl Connection {
    fn serve(&mut self, service: &Service) -> io::Result<()> {
        // A response head must not wait for the acknowledgement of the response before it.
        self.stream.set_nodelay(true)?;
        self.stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        while let Some(head) = self.read_head()? {
            let close = head.as_ref().map_or(true, |head| head.close);
            match head {
                Ok(head) => self.answer(&head, service)?,
                Err(status) => {
                    let response = Response::refusal(status, "the request is not understood");
                    service.refused(
                        self.client,
                        "",
                        response.refusal.as_deref().unwrap_or_default(),
                    );
                    self.write(&response, true)?;
                }
            }
            if close {
                return self.close();
            }
        }
        Ok(())
    }

    /// The next request, or the status of its refusal; `None` when the client closes the connection first.
    fn read_head(&mut self) -> io::Result<Option<Result<Head, Status>>> {
        let deadline = Instant::now() + HEAD_TIMEOUT;
        loop {
            match Head::parse(&self.buffer) {
                Ok(Some((head, length))) => {
                    self.buffer.drain(..length.min(self.buffer.len()));
                    return Ok(Some(Ok(head)));
                }
                Ok(None) => {}
                Err(status) => return Ok(Some(Err(status))),
            }
            let mut bytes = [0; 2048];
            let length = self.read(&mut bytes, deadline)?;
            if length == 0 {
                return Ok(None);
            }
            self.buffer
                .extend_from_slice(bytes.get(..length).unwrap_or_default());
        }
    }

    /// Reads what is there; nothing at the end of the stream.
    fn read(&mut self, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn answer(&mut self, head: &Head, service: &Service) -> io::Result<()> {
        let name = response::shown(&head.path);
        let response = Response::to(head, &service.directory);
        if let Some(reason) = &response.refusal {
            service.refused(self.client, &name, reason);
        }
        let Body::Part(content, range) = &response.body else {
            return self.write(&response, head.close);
        };
        let length = range.end - range.start;
        let mut start = Event::now(Kind::HttpStart, self.client.ip())
            .file(&name)
            .bytes(length);
        if range.start > 0 {
            start = start.message(format!("from byte {} on", range.start));
        }
        service.events.record(start);
        let (began, mut sent) = (Instant::now(), 0);
        let result = self
            .write(&response, head.close)
            .and_then(|()| self.send(content, range.clone(), &mut sent));
        let kind = match result {
            Ok(()) => Kind::HttpDone,
            Err(_) => Kind::HttpError,
        };
        let mut event = Event::now(kind, self.client.ip())
            .file(&name)
            .bytes(sent)
            .seconds(began.elapsed().as_secs_f64());
        if let Err(error) = &result {
            event = event.message(broken_off(error, length));
        }
        service.events.record(event);
        result
    }

    /// Writes the response's head, and its text if it has one.
    fn write(&mut self, response: &Response, close: bool) -> io::Result<()> {
        let mut bytes = response.head(close).into_bytes();
        match &response.body {
            Body::Empty => {}
            Body::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Body::Part(_, range) if range.is_empty() => {}
            Body::Part(..) => return self.write_with_more_to_come(&bytes),
        }
        self.stream.write_all(&bytes)
    }

    /// Leaves the end of the bytes to the packet in which the file begins.
    fn write_with_more_to_come(&self, mut bytes: &[u8]) -> io::Result<()> {
        let socket = SockRef::from(&self.stream);
        while !bytes.is_empty() {
            match socket.send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL) {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends these bytes of the file, and counts them in `sent`.
    fn send(&self, content: &Content, range: Range<u64>, sent: &mut u64) -> io::Result<()> {
        let length = range.end - range.start;
        while *sent < length {
            match content.send(&self.stream, range.start + *sent, length - *sent) {
                Ok(more) => *sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the connection such that the client sees the whole response: a socket that is closed while bytes lie unread in it
    /// resets the connection, and what the client has not read yet may be lost to it (RFC 9112 section 9.6).
    fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut bytes = [0; 2048];
        while self.read(&mut bytes, deadline)? > 0 {}
        Ok(())
    }
}

impl Service {
    fn refused(&self, client: SocketAddr, name: &str, reason: &str) {
        let event = Event::now(Kind::HttpError, client.ip()).file(name);
        self.events.record(event.message(reason));
    }
}

/// Why a response broke off.
fn broken_off(error: &io::Error, length: u64) -> String {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    match error.kind() {
        BrokenPipe | ConnectionReset => {
            format!("the client closed the connection before all {length} bytes were sent")
        }
        WouldBlock | TimedOut => {
            format!("the client took nothing for {} s", SEND_TIMEOUT.as_secs())
        }
        _ => error.to_string(),
    }
}
