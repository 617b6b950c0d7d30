//! The HTTP/1.1 server: GET and HEAD of the served files, with byte ranges and validators (RFC 9110, RFC 9112), and POST of reports.
//!
//! ```text
//!   listener --thread for each connection--> head: request --> response: what and which bytes (select) --> sendfile()
//! ```
//!
//! The kernel carries the bytes from the page cache to TCP (`sendfile`), so a connection needs no buffer of its own beyond one
//! for request heads.

mod connections;
pub(crate) mod events;
mod farewell;
mod head;
mod response;
mod select;
pub(crate) mod status;
pub(crate) mod upload;

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

use self::connections::{Connections, Entry};
use self::farewell::Farewells;
pub(crate) use self::head::{Head, MAX_LEN as MAX_HEAD};
pub(crate) use self::response::{Body, Response};
use self::status::Status;
use crate::directory::{Content, Directory};
use crate::event::{Event, Events, Kind};
use crate::listen::Listen;
use crate::reports::Reports;
use crate::stop::Stop;

/// How long and how many.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// A client that sends no whole request head in this time is disconnected.
    head_timeout: Duration,
    /// A client that sends no whole report in this time is disconnected.
    body_timeout: Duration,
    /// A client that takes no byte of a response in this time is disconnected.
    send_timeout: Duration,
    /// A client that takes less than [`ENOUGH`] of a response in this time gives way when others wait.
    slow: Duration,
    /// The longest wait for a client to close its side after the last response.
    close_timeout: Duration,
    /// Connections at a time. Each holds a thread, a socket and, while it sends one, a file. Others wait in the listener's queue.
    connections: usize,
    /// Connections of one host at a time; several machines may share an address.
    of_host: usize,
}

const LIMITS: Limits = Limits {
    head_timeout: Duration::from_secs(30),
    body_timeout: Duration::from_secs(60),
    send_timeout: Duration::from_secs(60),
    slow: Duration::from_secs(120),
    close_timeout: Duration::from_secs(2),
    connections: 1024,
    of_host: 256,
};
/// Bytes that a client must take of a response, time and again, to be no slow one.
const ENOUGH: u64 = 256 * 1024;
/// What a client is asked to wait whose host has too many connections.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Time for a connection that was closed to leave its place.
const MAKING_ROOM: Duration = Duration::from_millis(10);
/// Bytes of a connection thread's stack.
const STACK: usize = 256 * 1024;

/// An HTTP server that is bound to its port.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    service: Arc<Service>,
}

/// What all connections share.
#[derive(Debug)]
struct Service {
    directory: Arc<Directory>,
    /// Where reports go, if they are taken in.
    reports: Option<Arc<Reports>>,
    events: Events,
    limits: Limits,
    connections: Connections,
}

impl HttpServer {
    /// Binds the port. With `reports` it takes them in, too.
    ///
    /// # Errors
    /// When the port is in use or needs a permission that is not there.
    pub fn bind(
        listen: impl Into<Listen>,
        directory: Arc<Directory>,
        reports: Option<Arc<Reports>>,
        events: Events,
    ) -> io::Result<Self> {
        Self::with_limits(listen, directory, reports, events, LIMITS)
    }

    fn with_limits(
        listen: impl Into<Listen>,
        directory: Arc<Directory>,
        reports: Option<Arc<Reports>>,
        events: Events,
        limits: Limits,
    ) -> io::Result<Self> {
        let listener = listen.into().tcp()?;
        // A client may leave between poll() and accept().
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            service: Arc::new(Service {
                directory,
                reports,
                events,
                limits,
                connections: Connections::default(),
            }),
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
        let mut farewells = Farewells::default();
        while !stop.is_set() {
            farewells.read(Instant::now());
            let mut listener = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            let patience =
                PollTimeout::try_from(Stop::CHECK_EVERY).unwrap_or(PollTimeout::from(100u8));
            match poll(&mut listener, patience) {
                Ok(0) | Err(nix::Error::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            let Limits {
                connections, slow, ..
            } = self.service.limits;
            if self.service.connections.count() >= connections {
                let now = Instant::now();
                self.service.connections.make_room(None, slow, now);
                std::thread::sleep(MAKING_ROOM);
                continue;
            }
            match self.listener.accept() {
                Ok((stream, client)) => self.take(stream, client, &mut farewells),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Out of file descriptors, most likely: those of ending connections come back.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Ok(())
    }

    fn take(&self, stream: TcpStream, client: SocketAddr, farewells: &mut Farewells) {
        let connections = &self.service.connections;
        let Limits { of_host, slow, .. } = self.service.limits;
        let (host, now) = (client.ip(), Instant::now());
        if connections.of_host(host) >= of_host && !connections.make_room(Some(host), slow, now) {
            self.record_refusal(client, "its host has too many");
            return turn_away(stream, farewells, now);
        }
        if let Err(error) = self.begin(stream, client, now) {
            self.record_refusal(client, error);
        }
    }

    /// Has a thread of its own serve a connection.
    fn begin(&self, stream: TcpStream, client: SocketAddr, now: Instant) -> io::Result<()> {
        let service = self.service.clone();
        let entry = service.connections.enter(&stream, client, now)?;
        let mut connection = Connection {
            stream,
            client,
            buffer: Vec::new(),
            limits: service.limits,
            entry,
        };
        let spawned = std::thread::Builder::new()
            .name("http".to_owned())
            .stack_size(STACK)
            // It ends with an error when the client leaves; what was under way has told of that.
            .spawn(move || drop(connection.serve(&service)));
        spawned.map(drop)
    }

    fn record_refusal(&self, client: SocketAddr, why: impl Display) {
        let event = Event::now(Kind::HttpError, client.ip());
        let message = format!("the connection is refused: {why}");
        self.service.events.record(event.message(message));
    }
}

/// Asks a client to come back whose host has too many connections.
fn turn_away(mut stream: TcpStream, farewells: &mut Farewells, now: Instant) {
    let refusal = Response::refusal(Status::BUSY, "your host has too many connections")
        .with("Retry-After", RETRY_AFTER.as_secs());
    if write(&mut stream, &refusal, true).is_ok() {
        farewells.keep(stream, now);
    }
}

/// A connection of a client's, served by a thread of its own.
struct Connection {
    stream: TcpStream,
    client: SocketAddr,
    /// Bytes that have come and are not answered yet.
    buffer: Vec<u8>,
    limits: Limits,
    entry: Entry,
}

impl Connection {
    fn serve(&mut self, service: &Service) -> io::Result<()> {
        // A response head must not wait for the acknowledgement of the response before it.
        self.stream.set_nodelay(true)?;
        self.stream
            .set_write_timeout(Some(self.limits.send_timeout))?;
        while let Some(head) = self.read_head()? {
            self.entry.gets_on(Instant::now());
            let close = head.as_ref().map_or(true, |head| head.close);
            match head {
                Ok(head) if upload::is_report(&head) => {
                    self.take_report(&head, service)?;
                    return self.close();
                }
                Ok(head) => self.answer(&head, service)?,
                Err(status) => {
                    let response = Response::refusal(status, "the request is not understood");
                    service.refused(
                        self.client,
                        "",
                        response.refusal.as_deref().unwrap_or_default(),
                    );
                    write(&mut self.stream, &response, true)?;
                }
            }
            if close {
                return self.close();
            }
            self.entry.waits(Instant::now());
        }
        Ok(())
    }

    /// The next request, or the status of its refusal; `None` when the client closes the connection first.
    fn read_head(&mut self) -> io::Result<Option<Result<Head, Status>>> {
        let deadline = Instant::now() + self.limits.head_timeout;
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
        let name = events::name(head);
        let response = Response::to(head, &service.directory);
        if let Some(reason) = &response.refusal {
            service.refused(self.client, &name, reason);
        }
        let Body::Part(content, range) = &response.body else {
            return write(&mut self.stream, &response, head.close);
        };
        let length = range.end - range.start;
        let client = self.client.ip();
        service.events.record(events::start(client, &name, range));
        let (began, mut sent) = (Instant::now(), 0);
        let result = write(&mut self.stream, &response, head.close)
            .and_then(|()| self.send(content, range.clone(), &mut sent));
        let took = began.elapsed();
        service.events.record(match &result {
            Ok(()) => events::done(client, &name, sent, took),
            Err(error) => {
                let why = match self.entry.gave_way() {
                    true => format!(
                        "the client took less than {ENOUGH} bytes in {} s, and others waited",
                        self.limits.slow.as_secs()
                    ),
                    false => broken_off(error, length, self.limits),
                };
                events::broken_off(client, &name, sent, took).message(why)
            }
        });
        result
    }

    /// Sends these bytes of the file, and counts them in `sent`.
    fn send(&self, content: &Content, range: Range<u64>, sent: &mut u64) -> io::Result<()> {
        let length = range.end - range.start;
        let mut enough = ENOUGH;
        while *sent < length {
            match content.send(&self.stream, range.start + *sent, length - *sent) {
                Ok(more) => {
                    *sent += more;
                    if *sent >= enough {
                        self.entry.gets_on(Instant::now());
                        enough = *sent + ENOUGH;
                    }
                }
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
        let deadline = Instant::now() + self.limits.close_timeout;
        let mut bytes = [0; 2048];
        while self.read(&mut bytes, deadline)? > 0 {}
        Ok(())
    }
}

/// Writes the response's head, and its text if it has one.
fn write(stream: &mut TcpStream, response: &Response, close: bool) -> io::Result<()> {
    let mut bytes = response.head(close).into_bytes();
    match &response.body {
        Body::Empty => {}
        Body::Text(text) => bytes.extend_from_slice(text.as_bytes()),
        Body::Part(_, range) if range.is_empty() => {}
        Body::Part(..) => return write_with_more_to_come(stream, &bytes),
    }
    stream.write_all(&bytes)
}

/// Leaves the end of the bytes to the packet in which the file begins.
fn write_with_more_to_come(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let socket = SockRef::from(stream);
    while !bytes.is_empty() {
        match socket.send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Service {
    fn refused(&self, client: SocketAddr, name: &str, reason: &str) {
        self.events
            .record(events::refused(client.ip(), name, reason));
    }
}

/// Why a response broke off.
fn broken_off(error: &io::Error, length: u64, limits: Limits) -> String {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    match error.kind() {
        BrokenPipe | ConnectionReset => {
            format!("the client closed the connection before all {length} bytes were sent")
        }
        WouldBlock | TimedOut => {
            format!(
                "the client took nothing for {} s",
                limits.send_timeout.as_secs()
            )
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Console;
    use std::collections::VecDeque;
    use std::net::Ipv4Addr;

    /// Longer than any test waits for what comes.
    const LONG: Duration = Duration::from_secs(30);
    const PATIENT: Limits = Limits {
        head_timeout: LONG,
        body_timeout: LONG,
        send_timeout: LONG,
        slow: LONG,
        close_timeout: LONG,
        ..LIMITS
    };

    /// A server of a directory that holds the file `file` of so many bytes.
    struct Bench {
        address: SocketAddr,
        service: Arc<Service>,
        stop: Stop,
        folder: tempfile::TempDir,
    }

    impl Bench {
        fn new(size: usize, limits: Limits) -> Self {
            let (bench, server) = Self::bound(size, limits);
            bench.run(server);
            bench
        }

        /// A server whose port takes connections, which nobody serves yet.
        fn bound(size: usize, limits: Limits) -> (Self, HttpServer) {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("file"), vec![7; size]).unwrap();
            let directory = Arc::new(Directory::open(folder.path(), None).unwrap());
            let log = std::fs::File::create(folder.path().join("log")).unwrap();
            let events = Events::new(Console::Silent, Some(log));
            let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let kept = folder.path().join("reports");
            std::fs::create_dir(&kept).unwrap();
            let reports = Some(Arc::new(Reports::open(&kept).unwrap()));
            let server = HttpServer::with_limits(listen, directory, reports, events, limits);
            let server = server.unwrap();
            let bench = Self {
                address: server.local_addr().unwrap(),
                service: server.service.clone(),
                stop: Stop::default(),
                folder,
            };
            (bench, server)
        }

        fn run(&self, server: HttpServer) {
            let stop = self.stop.clone();
            std::thread::spawn(move || server.run(&stop));
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream
        }

        fn log(&self) -> String {
            std::fs::read_to_string(self.folder.path().join("log")).unwrap()
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.stop.set();
        }
    }

    /// Asks, and reads until the head of the response is there.
    fn head(stream: &mut TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            read.extend(byte);
        }
        String::from_utf8(read).unwrap()
    }

    #[test]
    fn idle_connections_give_way_and_busy_ones_do_not() {
        let bench = Bench::new(
            64 << 20,
            Limits {
                connections: 3,
                ..PATIENT
            },
        );
        let request = "HEAD /file HTTP/1.1\r\n\r\n";
        // One takes its file slowly, one has asked before, one has asked nothing.
        let mut busy = bench.connect();
        assert!(head(&mut busy, "GET /file HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        let mut asked = bench.connect();
        assert!(head(&mut asked, request).starts_with("HTTP/1.1 200 "));
        let mut silent = bench.connect();
        // Nobody waits for a place, so all stay.
        silent.set_read_timeout(Some(10 * MAKING_ROOM)).unwrap();
        let ended = silent.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(ended, Err(io::ErrorKind::WouldBlock));
        silent.set_read_timeout(Some(LONG)).unwrap();
        assert!(head(&mut asked, request).starts_with("HTTP/1.1 200 "));
        let mut idle = VecDeque::from([silent, asked]);
        for _ in 0..10 {
            let mut new = bench.connect();
            assert!(head(&mut new, request).starts_with("HTTP/1.1 200 "));
            idle.push_back(new);
            let end = idle.pop_front().unwrap().read(&mut [0]);
            assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
        }
        let mut file = vec![0; 64 << 20];
        busy.read_exact(&mut file).unwrap();
        assert!(file.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_host_with_too_many_connections_is_asked_to_wait() {
        let bench = Bench::new(
            64 << 20,
            Limits {
                of_host: 2,
                ..PATIENT
            },
        );
        let mut busy = [bench.connect(), bench.connect()];
        for stream in &mut busy {
            assert!(head(stream, "GET /file HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        }
        let mut refused = String::new();
        bench.connect().read_to_string(&mut refused).unwrap();
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        assert!(refused.contains("\r\nRetry-After: 2\r\n"), "{refused}");
        assert!(bench.log().contains("its host has too many"));
        // A place that was given up can be had again, as soon as the server has seen that it was.
        drop(busy);
        for _ in 0..500 {
            let mut stream = bench.connect();
            let _ = stream.write_all(b"HEAD /file HTTP/1.1\r\n\r\n");
            let mut first = [0; 12];
            if stream.read_exact(&mut first).is_ok() && first == *b"HTTP/1.1 200" {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no place came free");
    }

    #[test]
    fn who_is_asked_to_wait_can_read_that_though_nobody_reads_the_request() {
        let limits = Limits {
            of_host: 0,
            ..PATIENT
        };
        let (bench, server) = Bench::bound(1, limits);
        let mut stream = bench.connect();
        // It is there before the server looks.
        let request = b"GET /file HTTP/1.1\r\n\r\n";
        stream.write_all(request).unwrap();
        bench.run(server);
        let began = Instant::now();
        while !bench.log().contains("its host has too many") {
            assert!(began.elapsed() < LONG, "{}", bench.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut refusal = String::new();
        stream.read_to_string(&mut refusal).unwrap();
        assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
        assert!(refusal.ends_with("too many connections\n"), "{refusal}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        // One that goes on sending is not heard for ever.
        while stream.write_all(b"x").is_ok() {
            assert!(began.elapsed() < LONG, "still taken");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn clients_that_hardly_take_anything_give_way_to_those_who_wait() {
        let request = "GET /file HTTP/1.1\r\n\r\n";
        for (connections, of_host) in [(2, 256), (1024, 2)] {
            let bench = Bench::new(
                64 << 20,
                Limits {
                    slow: Duration::from_millis(50),
                    connections,
                    of_host,
                    ..PATIENT
                },
            );
            let mut slow = [bench.connect(), bench.connect()];
            for stream in &mut slow {
                assert!(head(stream, request).starts_with("HTTP/1.1 200 "));
            }
            // A host with too many is asked to wait until one of its connections is slow.
            let served = || {
                let mut new = bench.connect();
                let _ = new.write_all(b"HEAD /file HTTP/1.1\r\n\r\n");
                let mut first = [0; 12];
                new.read_exact(&mut first).is_ok() && first == *b"HTTP/1.1 200"
            };
            let began = Instant::now();
            while !served() {
                assert!(began.elapsed() < LONG, "{}", bench.log());
                std::thread::sleep(Duration::from_millis(20));
            }
            let why = "the client took less than 262144 bytes in 0 s, and others waited";
            while !bench.log().contains(why) {
                assert!(began.elapsed() < LONG, "{}", bench.log());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    #[test]
    fn a_head_that_never_ends_ends_the_connection() {
        let short = Duration::from_millis(50);
        let bench = Bench::new(
            1,
            Limits {
                head_timeout: short,
                ..PATIENT
            },
        );
        let mut stream = bench.connect();
        stream.write_all(b"GET /file HTTP/1.1\r\n").unwrap();
        let mut read = Vec::new();
        assert_eq!(stream.read_to_end(&mut read).unwrap(), 0);
        // One that trickles in does not hold it either: the time is for the whole head.
        let mut stream = bench.connect();
        let began = Instant::now();
        while stream.write_all(b"X").is_ok() {
            assert!(began.elapsed() < LONG, "still taken");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_head_for_a_connection_that_has_ended_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let error = write_with_more_to_come(&stream, b"HTTP/1.1 200 OK").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_client_that_takes_nothing_is_disconnected() {
        let short = Duration::from_millis(100);
        let bench = Bench::new(
            64 << 20,
            Limits {
                send_timeout: short,
                ..PATIENT
            },
        );
        let mut stream = bench.connect();
        stream.write_all(b"GET /file HTTP/1.1\r\n\r\n").unwrap();
        let began = Instant::now();
        while !bench.log().contains("the client took nothing") {
            assert!(began.elapsed() < LONG, "{}", bench.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The answer to a request, up to the end of the connection.
    fn answer(bench: &Bench, request: &[u8]) -> String {
        let mut stream = bench.connect();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn reports_are_taken_in_and_nothing_else_is() {
        let bench = Bench::new(1, PATIENT);
        let post = |path: &str, fields: &str, body: &str| {
            let request = format!("POST {path} HTTP/1.1\r\n{fields}\r\n{body}");
            answer(&bench, request.as_bytes())
        };
        let report = r#"{"schema":1,"machine":{"mac":"52:54:00:77:00:02"}}"#;
        let length = format!("Content-Length: {}\r\n", report.len());
        let said = post("/report", &length, report);
        assert!(said.starts_with("HTTP/1.1 201 "), "{said}");
        let name = said.trim_end().rsplit(' ').next().unwrap();
        assert!(name.ends_with("Z-525400770002.json"), "{said}");
        let kept = bench.folder.path().join("reports").join(name);
        assert_eq!(std::fs::read_to_string(kept).unwrap(), report);
        assert!(bench.log().contains(r#""event":"report""#));
        // What curl asks before it sends much.
        let said = post(
            "/report",
            &format!("{length}Expect: 100-continue\r\n"),
            report,
        );
        assert!(
            said.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 "),
            "{said}"
        );
        for (path, fields, body, status) in [
            ("/report", "Content-Length: 2\r\n", "{}", "400"),
            ("/report", "", "", "411"),
            ("/report", "Content-Length: x\r\n", "", "411"),
            ("/report", "Transfer-Encoding: chunked\r\n", "", "411"),
            ("/report", "Content-Length: 16777217\r\n", "", "413"),
            (
                "/report",
                "Content-Length: 99999999999999999999\r\n",
                "",
                "411",
            ),
            ("/file", length.as_str(), report, "405"),
            ("/reports/x", length.as_str(), report, "405"),
        ] {
            let said = post(path, fields, body);
            assert!(
                said.starts_with(&format!("HTTP/1.1 {status} ")),
                "{path} {fields}: {said}"
            );
        }
        let kept = std::fs::read_dir(bench.folder.path().join("reports")).unwrap();
        assert_eq!(kept.count(), 2);
    }

    /// A connection from another host's address.
    fn from(bench: &Bench, host: u8) -> TcpStream {
        let domain = socket2::Domain::IPV4;
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
        let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
        socket.bind(&address.into()).unwrap();
        socket.connect(&bench.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    #[test]
    fn who_sends_slowly_over_many_connections_keeps_no_others_out() {
        let bench = Bench::new(1, PATIENT);
        let post =
            |fields: &str| format!("POST /report HTTP/1.1\r\nContent-Length: 12\r\n{fields}\r\n");
        // The first of them has the host's permit when it is told to go on.
        let mut first = from(&bench, 2);
        let told = head(&mut first, &post("Expect: 100-continue\r\n"));
        assert!(told.starts_with("HTTP/1.1 100 "), "{told}");
        first.write_all(b"{").unwrap();
        let mut slow = vec![first];
        for _ in 1..8 {
            let mut stream = from(&bench, 2);
            stream.write_all(post("").as_bytes()).unwrap();
            stream.write_all(b"{").unwrap();
            slow.push(stream);
        }
        let (host, began) = (Ipv4Addr::new(127, 0, 0, 2).into(), Instant::now());
        while bench.service.connections.of_host(host) < slow.len() {
            assert!(began.elapsed() < LONG, "not all are taken");
            std::thread::sleep(Duration::from_millis(5));
        }
        let whole = post("") + r#"{"schema":1}"#;
        let said = answer(&bench, whole.as_bytes());
        assert!(said.starts_with("HTTP/1.1 201 "), "{said}");
    }

    #[test]
    fn a_refusal_says_why_in_a_short_line() {
        let bench = Bench::new(1, PATIENT);
        let long = "\u{7f}".repeat(60 << 10);
        let longer = "\u{7f}".repeat(crate::reports::LONGEST - 100);
        for (body, why) in [
            ("{}".to_owned(), "schema 0"),
            ("GIF89a".to_owned(), "not a report"),
            (format!(r#"{{"schema":"{long}"}}"#), "invalid type: string"),
            (format!(r#"{{"schema":"{longer}"}}"#), "64 KiB"),
            ("[".repeat(1 << 20), "65,536"),
        ] {
            let length = body.len();
            let request =
                format!("POST /report HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}");
            let said = answer(&bench, request.as_bytes());
            let (head, line) = said.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
            assert!(
                line.starts_with("400 Bad Request: ") && line.contains(why),
                "{line}"
            );
            assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
            assert!(line.len() < 300, "{}", line.len());
        }
        assert!(bench.log().len() < 5000, "{}", bench.log().len());
    }

    #[test]
    fn a_report_that_does_not_end_is_given_up() {
        let short = Duration::from_millis(100);
        let bench = Bench::new(
            1,
            Limits {
                body_timeout: short,
                ..PATIENT
            },
        );
        let said = answer(
            &bench,
            b"POST /report HTTP/1.1\r\nContent-Length: 50\r\n\r\n{",
        );
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    }

    #[test]
    fn a_refusal_is_read_to_its_end_though_more_was_sent() {
        let bench = Bench::new(1, PATIENT);
        let mut stream = bench.connect();
        // More than the server looks at: closed at once, the connection would be reset.
        let request = [b"GET x y z\r\n\r\n".as_slice(), &[b'x'; 60_000]].concat();
        stream.write_all(&request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut refusal = String::new();
        stream.read_to_string(&mut refusal).unwrap();
        assert!(refusal.starts_with("HTTP/1.1 505 "), "{refusal}");
        assert!(refusal.contains("not understood"), "{refusal}");
    }
}
