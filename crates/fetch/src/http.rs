//! Files by HTTP/1.1 (RFC 9110, RFC 9112): GET, redirects, connections used again, and transfers that go on
//! where they broke off.
//!
//! A body goes from the wire straight to the memory of its [`Destination`]. What was received is never mixed
//! with another version of the file: a transfer is resumed only if the server gave a strong validator, which goes into
//! `If-Range`; else it starts anew. A body without a length in HTTP/1.0 style ends where the server closes; whether
//! it is complete only a digest can tell ([`crate::verify`]).
//!
//! A large file comes over several connections, if the server can send ranges and it is distant or other processors help (module
//! `ranges`).

pub(crate) mod chunked;
mod connections;
mod error;
pub(crate) mod head;
mod patience;
mod piece;
mod ranges;

use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::net::{IpAddr, SocketAddr};
use core::pin::{Pin, pin};
use core::task::{Context, Waker};

use wireboot_net::{Duration, Memory, NetError, Region, Stack, TcpStream};

use crate::destination::{Destination, DestinationError};
use crate::pace::Floor;
use crate::race;
use crate::resolve::Resolve;
use crate::team::Assistants;
use crate::url::{Host, Scheme, Url};
use chunked::{ChunkReader, Next};
pub use connections::Connections;
pub use error::{ChunkError, HeadError, HttpError, Problem};
use head::{Framing, Head, HeadReader, Validator};
use patience::{Patience, SILENCE};
pub(crate) use piece::{Carrier, Piece, Source, Tally};
use ranges::Split;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that may fail in a row before the first byte of the file.
const FIRST_ATTEMPTS: u32 = 4;
/// Requests that may fail in a row without [`WORTHWHILE`] progress: with the back-off, a server has half a
/// minute to come back.
const RESUME_ATTEMPTS: u32 = 8;
/// Requests that may fail because too little came, without [`WORTHWHILE`] progress: each takes its time.
const SLOW_ATTEMPTS: u32 = 2;
/// Bytes that a download must gain before its failures are forgotten. A server that breaks off after each few bytes
/// would keep it going for ever.
const WORTHWHILE: u64 = 64 * 1024;
/// First wait between attempts; each further one is twice as long, up to [`BACKOFF_LIMIT`].
const BACKOFF: Duration = Duration::from_millis(250);
/// Longest wait between attempts.
const BACKOFF_LIMIT: Duration = Duration::from_secs(8);
/// Longest `Retry-After` obeyed.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(30);
/// Redirects followed in a row.
const REDIRECT_LIMIT: u32 = 10;
/// Interim (1xx) responses passed over before one response.
const INTERIM_LIMIT: u32 = 8;
/// Body of a redirect read for the sake of its connection, in bytes.
const DRAIN_LIMIT: u64 = 64 * 1024;
/// How long that may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Memory asked first for a body of unknown length, in bytes; then twice as much as before, but at most
/// [`GROWTH_LIMIT`] more.
const FIRST_GROWTH: u64 = 1024 * 1024;
/// See [`FIRST_GROWTH`].
const GROWTH_LIMIT: u64 = 256 * 1024 * 1024;

/// A file received whole.
#[derive(Debug)]
pub struct Fetched {
    /// Holds the file at its start.
    pub memory: Memory,
    /// Size of the file in bytes; the memory may be larger.
    pub len: u64,
    /// Where it came from, after redirects.
    pub url: Url,
    /// What it took.
    pub stats: HttpStats,
}

/// What a download took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpStats {
    /// Requests sent.
    pub requests: u32,
    /// Connections made (not those used again).
    pub connections: u32,
    /// Redirects followed.
    pub redirects: u32,
    /// Times the transfer went on where it had broken off.
    pub resumed: u32,
    /// Times it started anew, what was received being of no use.
    pub restarted: u32,
}

impl HttpStats {
    /// Adds what helpers took.
    fn add_help(&mut self, helpers: &Self) {
        self.requests += helpers.requests;
        self.connections += helpers.connections;
        self.resumed += helpers.resumed;
    }
}

/// Downloads `url` to memory of `destination`, with the help of `assistants` if the file is large.
///
/// Each wait in it ends: after 10 s without a byte the server is asked again, for the rest of the file if
/// possible; after 4 requests in a row that failed before the first byte, or 8 that brought less than 64 KiB
/// together, it gives up. A response that falls below `floor` is given up, too, and so is the download at the second one.
/// Responses 408, 429 and 5xx are retried too.
///
/// # Errors
/// [`HttpError`]: what was asked of whom, what happened, what to do.
pub async fn get<R: Resolve, D: Destination>(
    stack: &Stack,
    connections: &Connections,
    assistants: &Assistants,
    resolver: &R,
    url: &Url,
    floor: Floor,
    destination: &mut D,
) -> Result<Fetched, HttpError> {
    let mut download = Download {
        stack,
        connections,
        assistants,
        resolver,
        url: url.clone(),
        floor,
        servers: Vec::new(),
        turn: 0,
        body: Body::new(destination),
        helpers: Helpers::default(),
        stats: HttpStats::default(),
    };
    let mut failures = 0;
    let helpers = download.helpers.clone();
    let result = watch(download.run(&mut failures), || {
        let mut context = Context::from_waker(Waker::noop());
        helpers
            .borrow_mut()
            .retain_mut(|helper| helper.as_mut().poll(&mut context).is_pending());
    })
    .await;
    match result {
        Ok(()) => Ok(Fetched {
            len: download.body.filled,
            memory: download
                .body
                .region
                .map_or_else(|| Vec::new().into(), |region| region.take()),
            url: download.url,
            stats: download.stats,
        }),
        Err(problem) => Err(HttpError {
            server: download.server(),
            url: download.url,
            attempts: failures,
            problem,
        }),
    }
}

/// The helpers of a download that is split, which run beside it.
type Helpers<'a> = Rc<RefCell<Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>>>;

struct Download<'a, R, D> {
    stack: &'a Stack,
    connections: &'a Connections,
    assistants: &'a Assistants,
    resolver: &'a R,
    url: Url,
    floor: Floor,
    /// Addresses of the URL's server in the order of preference; empty until resolved.
    servers: Vec<SocketAddr>,
    /// Which of them is tried, modulo their number.
    turn: usize,
    body: Body<'a, D>,
    helpers: Helpers<'a>,
    stats: HttpStats,
}

/// How a request that did not fail ended.
enum Step {
    Complete,
    Redirect(String),
    /// A part of a split file is still to be asked for.
    More,
}

/// Whether the response was read to its end, so that the connection may carry another.
type AtEnd = bool;

impl<'a, R: Resolve, D: Destination> Download<'a, R, D> {
    async fn run(&mut self, failures: &mut u32) -> Result<(), Problem> {
        if self.url.scheme() != Scheme::Http {
            return Err(Problem::NotHttp);
        }
        let mut visited = vec![self.url.clone()];
        let mut reach = 0;
        let mut slow = 0;
        loop {
            let problem = match self.request().await {
                Ok(Step::Complete) => return Ok(()),
                Ok(Step::More) => continue,
                Ok(Step::Redirect(location)) => {
                    self.redirect(&location, &mut visited)?;
                    continue;
                }
                Err(problem) => problem,
            };
            if self.body.reach >= reach + WORTHWHILE {
                *failures = 0;
                slow = 0;
                reach = self.body.reach;
                visited = vec![self.url.clone()];
            }
            *failures += 1;
            let limit = if self.body.reach == 0 {
                FIRST_ATTEMPTS
            } else {
                RESUME_ATTEMPTS
            };
            slow += u32::from(matches!(problem, Problem::Slow { .. }));
            if !problem.is_transient() || *failures >= limit || slow >= SLOW_ATTEMPTS {
                return Err(problem);
            }
            let wait = self.back_off(*failures, &problem);
            log::warn!(
                "{}: {problem}; trying again in {} ms",
                self.url,
                wait.total_millis()
            );
            self.stack.sleep(wait).await;
        }
    }

    /// How long to wait after so many failures: twice as long each time, and up to a quarter more so that
    /// many machines that lost their server at once do not come back at once.
    fn back_off(&self, failures: u32, problem: &Problem) -> Duration {
        let wait = (BACKOFF * (1 << (failures - 1).min(8))).min(BACKOFF_LIMIT);
        let wait = wait + Duration::from_micros(self.stack.random() % (wait.total_micros() / 4));
        match problem {
            Problem::Status {
                retry_after: Some(seconds),
                ..
            } => wait.max(Duration::from_secs(*seconds.min(&RETRY_AFTER_LIMIT.secs()))),
            _ => wait,
        }
    }

    fn redirect(&mut self, location: &str, visited: &mut Vec<Url>) -> Result<(), Problem> {
        let target = self.url.join(location)?;
        if target.scheme() != Scheme::Http {
            return Err(Problem::RedirectScheme { target });
        }
        if visited.contains(&target) {
            return Err(Problem::RedirectLoop { target });
        }
        if visited.len() > REDIRECT_LIMIT as usize {
            return Err(Problem::RedirectChain {
                limit: REDIRECT_LIMIT,
                target,
            });
        }
        self.stats.redirects += 1;
        if !target.same_server(&self.url) {
            self.servers.clear();
        }
        visited.push(target.clone());
        self.url = target;
        Ok(())
    }

    /// The server that is asked, once known.
    fn server(&self) -> Option<SocketAddr> {
        self.servers
            .get(self.turn % self.servers.len().max(1))
            .copied()
    }

    async fn resolve(&mut self) -> Result<(), Problem> {
        if !self.servers.is_empty() {
            return Ok(());
        }
        let addresses = match self.url.host() {
            Host::Address(address) => vec![*address],
            Host::Name(host) => {
                let failed = |reason| Problem::Resolve {
                    host: host.clone(),
                    reason,
                };
                let found = self.resolver.resolve(host).await.map_err(failed)?;
                if found.is_empty() {
                    return Err(failed("it has no address".into()));
                }
                found
            }
        };
        let port = self.url.port();
        self.servers = race::order(self.stack, &addresses)
            .into_iter()
            .map(|address| SocketAddr::new(address, port))
            .collect();
        self.turn = 0;
        Ok(())
    }

    /// One request and its response.
    async fn request(&mut self) -> Result<Step, Problem> {
        self.resolve().await?;
        let (mut stream, head) = self.converse().await?;
        let (step, at_end) = self.respond(&mut stream, &head).await?;
        match self.server() {
            Some(server) if head.keep_alive && at_end => {
                self.connections.put(self.stack, server, stream)
            }
            // What it would still bring is a helper's: a reset ends it.
            _ if self.body.split.is_some() => drop(stream),
            _ => stream.close(),
        }
        match self.body.split.clone() {
            Some(split) => self.join(&split).await,
            None => Ok(step),
        }
    }

    /// Splits the file whose first response has this head, if that pays.
    async fn split(&mut self, stream: &TcpStream, head: &Head) -> Result<(), Problem> {
        let (Framing::Length(total), Some(server), Some(validator)) =
            (head.framing, self.server(), head.validator())
        else {
            return Ok(());
        };
        let helpers = |assistants| ranges::helpers(self.stack, stream, head, total, assistants);
        let mut assistants = self.assistants.present();
        if self.body.alone || helpers(assistants.len()).is_none() {
            return Ok(());
        }
        self.body.reserve(total).await?;
        let Some(region) = self.body.region.clone() else {
            return Ok(());
        };
        // Memory that cannot be lent at all is this engine's alone. Assistants have an IPv4 address and no other.
        if region.lend(0..1).is_none() || server.is_ipv6() {
            assistants.clear();
        }
        let Some(helpers) = helpers(assistants.len()) else {
            return Ok(());
        };
        let connections = 1 + helpers + assistants.len();
        log::debug!("{}: on {connections} connections", self.url);
        let source = Source {
            url: self.url.clone(),
            server,
            validator,
            total,
            floor: self.floor,
        };
        let split = Split::new(source, region, connections);
        let mut list = self.helpers.borrow_mut();
        for index in assistants {
            let assistant = ranges::assist(self.stack, self.assistants, index, split.clone());
            list.push(Box::pin(assistant));
        }
        for _ in 0..helpers {
            let helper = ranges::help(self.stack, self.connections, split.clone());
            list.push(Box::pin(helper));
        }
        self.body.split = Some(split);
        Ok(())
    }

    /// After a part of a split file: what is to be asked for next, or nothing once the helpers are through.
    async fn join(&mut self, split: &Split) -> Result<Step, Problem> {
        loop {
            self.body.tell(self.body.filled);
            if self.body.filled < split.front.end() as u64 {
                return Ok(Step::More);
            }
            if let Some((start, end)) = split.hole() {
                self.body.filled = start;
                split.position.set(start);
                split.front.set_end(end as usize);
                return Ok(Step::More);
            }
            if !split.busy() {
                split.account(&mut self.stats);
                if let Some(start) = split.lost() {
                    // All before is there.
                    self.body.filled = start;
                    self.body.unsplit();
                    self.body.relocate(split.source.total).await?;
                    return Ok(Step::More);
                }
                self.body.filled = split.source.total;
                self.body.split = None;
                return Ok(Step::Complete);
            }
            self.stack.next_turn().await;
        }
    }

    /// Gets a connection, sends the request, and receives the head of the response.
    async fn converse(&mut self) -> Result<(TcpStream, Head), Problem> {
        if let Some((server, mut stream)) = self.connections.take(self.stack, &self.servers) {
            let turn = self.servers.iter().position(|other| *other == server);
            self.turn = turn.unwrap_or(self.turn);
            // The server may be closing it just now: then that is no failure, and a new one is made.
            if let Ok(head) = self.ask(&mut stream).await {
                return Ok((stream, head));
            }
        }
        let mut servers = self.servers.clone();
        let turn = self.turn % servers.len().max(1);
        servers.rotate_left(turn);
        let (stack, attempts) = (self.stack, &mut self.stats.connections);
        let connected = race::first(stack, &servers, NetError::Unreachable, |server| {
            *attempts += 1;
            stack.connect(server, CONNECT_TIMEOUT)
        });
        match connected.await {
            Ok((server, mut stream)) => {
                let turn = self.servers.iter().position(|other| *other == server);
                self.turn = turn.unwrap_or(self.turn);
                stream.set_idle_timeout(SILENCE);
                let head = self.ask(&mut stream).await?;
                Ok((stream, head))
            }
            Err(error) => {
                self.turn += 1;
                Err(Problem::Connect(error))
            }
        }
    }

    async fn ask(&mut self, stream: &mut TcpStream) -> Result<Head, Problem> {
        self.stats.requests += 1;
        let request = request_head(&self.url, self.body.resume());
        let mut patience = self.patience();
        exchange(&mut patience, stream, &request).await
    }

    fn patience(&self) -> Patience<'a> {
        let server = self.server().map(|server| server.ip());
        // Who is asked has an address.
        let server = server.unwrap_or(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED));
        Patience::new(self.stack, server, self.floor, self.body.position())
    }

    async fn respond(
        &mut self,
        stream: &mut TcpStream,
        head: &Head,
    ) -> Result<(Step, AtEnd), Problem> {
        match head.status {
            200 | 203 => {
                if self.body.filled > 0 {
                    self.stats.restarted += 1;
                }
                self.body.start(head);
                self.split(stream, head).await?;
                let mut patience = self.patience();
                self.body
                    .receive(stream, head.framing, &mut patience)
                    .await?;
                let total = self.body.split.as_ref().map(|split| split.source.total);
                Ok((
                    Step::Complete,
                    total.is_none_or(|total| self.body.filled == total),
                ))
            }
            206 => {
                let end = self.body.go_on(head)?;
                self.stats.resumed += 1;
                let framing = match head.framing {
                    Framing::UntilClose => Framing::Length(end - self.body.filled),
                    framing => framing,
                };
                let mut patience = self.patience();
                self.body.receive(stream, framing, &mut patience).await?;
                let at_end = head.framing == framing && self.body.filled == end;
                self.body.check_end(end)?;
                Ok((Step::Complete, at_end))
            }
            416 if self.body.resume().is_some() => {
                self.body.refused(head)?;
                Ok((Step::Complete, drain(self.stack, stream, head).await))
            }
            301 | 302 | 303 | 307 | 308 => {
                let location = head.location.clone().ok_or(Problem::RedirectNowhere)?;
                Ok((
                    Step::Redirect(location),
                    drain(self.stack, stream, head).await,
                ))
            }
            status => Err(Problem::Status {
                status,
                reason: head.reason.clone(),
                retry_after: head.retry_after,
            }),
        }
    }
}

/// Sends a request and receives the head of the final response.
async fn exchange(
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
fn range_request(url: &Url, from: u64, end: Option<u64>, validator: &Validator) -> String {
    let last = end.map_or(String::new(), |end| format!("{}", end.saturating_sub(1)));
    let validator = validator.as_str();
    request_with(
        url,
        &format!("Range: bytes={from}-{last}\r\nIf-Range: {validator}\r\n"),
    )
}

fn request_with(url: &Url, range: &str) -> String {
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

async fn read_head(stream: &mut TcpStream) -> Result<Head, Problem> {
    let mut reader = HeadReader::default();
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
async fn drain(stack: &Stack, stream: &mut TcpStream, head: &Head) -> AtEnd {
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

/// The file as far as it is there.
struct Body<'a, D> {
    destination: &'a mut D,
    region: Option<Region>,
    /// Bytes of the file at the start of the region.
    filled: u64,
    /// Size of the whole file, if known.
    total: Option<u64>,
    /// Version of the file that the bytes are of.
    validator: Option<Validator>,
    /// Most bytes that were ever there: the measure of progress, which starting anew does not undo.
    reach: u64,
    /// Set while helpers receive other parts: then `filled` is where the first connection is, and its part ends where
    /// the split says.
    split: Option<Rc<Split>>,
    /// A split came to nothing: there is no other.
    alone: bool,
}

impl<'a, D: Destination> Body<'a, D> {
    fn new(destination: &'a mut D) -> Self {
        Body {
            destination,
            region: None,
            filled: 0,
            total: None,
            validator: None,
            reach: 0,
            split: None,
            alone: false,
        }
    }

    /// Ends the help of others, for good: on this engine they keep no way to the memory. Returns whether other engines
    /// do.
    fn unsplit(&mut self) -> bool {
        let Some(split) = self.split.take() else {
            return false;
        };
        split.refuse();
        self.alone = true;
        self.region = self.region.take().map(|region| Region::new(region.take()));
        split.lends()
    }

    /// Ends the help of others, and gives back the memory unless it is as it came: what is settled is written no more, and
    /// what is lent not by us.
    fn discard(&mut self) {
        let lent = self.unsplit();
        if self.filled > 0 || lent {
            self.region = None;
        }
        self.filled = 0;
    }

    /// Tells the destination how much is there when the first connection is at `position`.
    fn tell(&mut self, position: u64) {
        let (received, settled) = match &self.split {
            Some(split) => (
                (position + split.tally.received.get()).min(split.source.total),
                split.settled(),
            ),
            None => (position, position),
        };
        if let Some(region) = &self.region {
            region.settle(settled as usize);
        }
        self.destination.progress(received, self.total);
    }

    /// From where to go on, and with which version, if that is possible.
    fn resume(&self) -> Option<(u64, &Validator)> {
        let validator = self.validator.as_ref().filter(|_| self.filled > 0)?;
        Some((self.filled, validator))
    }

    /// The response brings the file from its start.
    fn start(&mut self, head: &Head) {
        self.discard();
        self.total = match head.framing {
            Framing::Length(length) => Some(length),
            _ => None,
        };
        self.validator = head.validator();
    }

    /// The response brings the bytes from `filled` to the returned end, or does not fit.
    fn go_on(&mut self, head: &Head) -> Result<u64, Problem> {
        let fits = || {
            let (from, validator) = self.resume()?;
            let content = head.range?;
            let (first, last) = content.range?;
            let length = (last - first).checked_add(1)?;
            let framed = match head.framing {
                Framing::Length(framed) => framed == length,
                _ => true,
            };
            let same = !validator.contradicts(head)
                && (self.total.is_none() || content.total.is_none() || self.total == content.total);
            (first == from && framed && same).then_some((last.checked_add(1)?, content.total))
        };
        match fits() {
            Some((end, total)) if self.total.or(total).is_none_or(|total| end <= total) => {
                self.total = self.total.or(total);
                Ok(end)
            }
            _ => {
                self.forget();
                Err(Problem::Range)
            }
        }
    }

    /// The server has nothing behind what is there.
    fn refused(&mut self, head: &Head) -> Result<(), Problem> {
        let size = head.range.and_then(|range| range.total);
        match self.total {
            None if size == Some(self.filled) => Ok(()),
            None => {
                self.forget();
                Err(Problem::Range)
            }
            Some(announced) => {
                let received = size.unwrap_or(self.filled);
                self.forget();
                Err(Problem::Short {
                    received,
                    announced,
                })
            }
        }
    }

    /// What is there is of no use: the next request asks for the file from its start.
    fn forget(&mut self) {
        self.discard();
        self.total = None;
        self.validator = None;
    }

    /// After a partial response that should bring the bytes up to `end`.
    fn check_end(&mut self, end: u64) -> Result<(), Problem> {
        if let Some(split) = &self.split {
            let whole = self.filled >= split.front.end() as u64;
            return if whole {
                Ok(())
            } else {
                Err(self.ended_early())
            };
        }
        if self.filled != end {
            self.forget();
            return Err(Problem::Range);
        }
        match self.total {
            Some(total) if end < total => Err(self.ended_early()),
            _ => Ok(()),
        }
    }

    fn ended_early(&self) -> Problem {
        match self.total {
            Some(announced) => Problem::Short {
                received: self.filled,
                announced,
            },
            None => Problem::BrokeOff {
                received: self.filled,
            },
        }
    }

    /// Bytes of the file that are there, wherever in it.
    fn position(&self) -> u64 {
        let helped = self
            .split
            .as_ref()
            .map_or(0, |split| split.tally.received.get());
        self.filled.saturating_add(helped)
    }

    async fn receive(
        &mut self,
        stream: &mut TcpStream,
        framing: Framing,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        let announced = self.total.unwrap_or(0).max(self.filled);
        patience.pause(self.reserve(announced)).await?;
        match framing {
            Framing::Length(length) => self.receive_exactly(stream, length, patience).await,
            Framing::Chunked => self.receive_chunks(stream, patience).await,
            Framing::UntilClose => self.receive_until_close(stream, patience).await,
        }
    }

    async fn receive_exactly(
        &mut self,
        stream: &mut TcpStream,
        length: u64,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        let mut left = length;
        while left > 0 {
            patience.pause(self.grow()).await?;
            let count = self.fill(stream, left, patience).await?;
            if let Some(split) = &self.split
                && self.filled >= split.front.end() as u64
            {
                return Ok(());
            }
            if count == 0 {
                return Err(self.ended_early());
            }
            left = left.saturating_sub(count);
        }
        Ok(())
    }

    async fn receive_until_close(
        &mut self,
        stream: &mut TcpStream,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        loop {
            patience.pause(self.grow()).await?;
            if self.fill(stream, u64::MAX, patience).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn receive_chunks(
        &mut self,
        stream: &mut TcpStream,
        patience: &mut Patience<'_>,
    ) -> Result<(), Problem> {
        let mut reader = ChunkReader::new();
        let received = stream.received();
        loop {
            let mut progress = Ok((0, Next::More));
            let read = stream.read(|bytes| {
                progress = reader.push(bytes);
                // A broken body ends the connection, so it does not matter what is consumed.
                progress.map_or(bytes.len(), |(taken, _)| taken)
            });
            let position = self.position();
            let consumed = patience
                .attend(received.clone(), read, || position)
                .await?
                .map_err(Problem::connection)?;
            if consumed == 0 {
                return Err(self.ended_early());
            }
            match progress?.1 {
                Next::More => {}
                Next::Data(length) => {
                    // Known here only for the rest of a file: the chunks must add up to it.
                    if self.total.is_some_and(|total| length > total - self.filled) {
                        self.forget();
                        return Err(Problem::Range);
                    }
                    self.receive_exactly(stream, length, patience).await?;
                }
                Next::End => return Ok(()),
            }
        }
    }

    /// Makes sure that there is room for one more byte. Never believes an announced length of a part: memory grows
    /// with what has come.
    async fn grow(&mut self) -> Result<(), Problem> {
        let size = self.size();
        if self.filled < size {
            return Ok(());
        }
        let step = size.clamp(FIRST_GROWTH, GROWTH_LIMIT);
        self.reserve(size.saturating_add(step)).await
    }

    fn size(&self) -> u64 {
        self.region.as_ref().map_or(0, |region| region.len() as u64)
    }

    /// Makes sure that there is memory for `bytes` in all.
    async fn reserve(&mut self, bytes: u64) -> Result<(), Problem> {
        if self.size() >= bytes {
            return Ok(());
        }
        self.relocate(bytes).await
    }

    /// Takes what is there to other memory, of `bytes` in all.
    async fn relocate(&mut self, bytes: u64) -> Result<(), Problem> {
        let previous = self
            .region
            .take()
            .map(|region| (region.take(), self.filled));
        let memory = self.destination.memory(bytes, previous).await?;
        if (memory.len() as u64) < bytes {
            return Err(DestinationError::NoMemory { bytes }.into());
        }
        self.region = Some(Region::new(memory));
        Ok(())
    }

    /// Reads up to `limit` bytes of the file, as many as there is room for. Returns fewer when the server
    /// ended the stream; then, and at the end, 0.
    async fn fill(
        &mut self,
        stream: &mut TcpStream,
        limit: u64,
        patience: &mut Patience<'_>,
    ) -> Result<u64, Problem> {
        let Some(region) = &self.region else {
            return Ok(0);
        };
        let at = self.filled as usize;
        let part = match &self.split {
            Some(split) => split.front.clone(),
            None => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                region.part(at.saturating_add(limit))
            }
        };
        let received = stream.received();
        let start = received.get();
        let mut told = start;
        let read = stream.read_into(&part, at);
        let result = patience
            .attend(received.clone(), read, || {
                let now = received.get();
                if now != told {
                    told = now;
                    let position = self.filled + (now - start);
                    if let Some(split) = &self.split {
                        split.position.set(position);
                    }
                    self.tell(position);
                }
                self.position() + (now - start)
            })
            .await;
        // What helpers have taken from the end meanwhile is theirs, even where some of it has come here, too.
        let len = part.end().saturating_sub(at);
        let count = match &result {
            Ok(Ok(count)) => *count,
            Ok(Err(_)) => 0,
            // The read was given up in the middle.
            Err(_) => (received.get() - start) as usize,
        };
        let count = count.min(len);
        self.filled += count as u64;
        self.reach = self.reach.max(self.filled);
        if let Some(split) = &self.split {
            split.position.set(self.filled);
        }
        self.tell(self.filled);
        result?.map_err(Problem::connection)?;
        // It ended early: either nothing came for too long, or the next read tells why.
        let told_next = |end| matches!(end, Some(Ok(0) | Err(_)));
        if count < len && !told_next(connections::pending(stream)) {
            return Err(Problem::connection(NetError::TimedOut));
        }
        Ok(count as u64)
    }
}

/// Polls `future`, and calls `each` whenever it is not ready.
async fn watch<F: Future>(future: F, mut each: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let poll = future.as_mut().poll(context);
        if poll.is_pending() {
            each();
        }
        poll
    })
    .await
}

#[cfg(test)]
mod tests;
