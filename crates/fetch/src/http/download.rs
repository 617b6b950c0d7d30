//! One download: whom to ask, what for, and when to ask again. What comes goes to the [`Body`].

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::net::{IpAddr, SocketAddr};
use core::pin::{Pin, pin};
use core::task::{Context, Waker};

use wireboot_net::{Memory, NetError, Stack, TcpStream};

use super::body::Body;
use super::connections::Connections;
use super::error::{HttpError, Problem};
use super::head::{Framing, Head};
use super::limits::{CONNECT_TIMEOUT, SILENCE};
use super::patience::Patience;
use super::ranges::{self, Split};
use super::request::{AtEnd, drain, exchange, request_head};
use super::resolved::servers;
use super::source::{HttpStats, Source};
use super::team::Workers;
use crate::destination::Destination;
use crate::pace::Limits;
use crate::race;
use crate::resolve::Resolve;
use crate::url::{Scheme, Url};
use crate::wait::{WORTHWHILE, Wait, pause_after};

/// Requests that may fail in a row before the first byte of the file.
pub(super) const FIRST_ATTEMPTS: u32 = 4;
/// Requests that may fail in a row without [`WORTHWHILE`] progress: with the back-off, a server has half a
/// minute to come back.
pub(super) const RESUME_ATTEMPTS: u32 = 8;
/// Requests that may end below the floor, without as much progress between them as the floor asks for. Each lasts as long as the floor
/// allows.
const SLOW_ATTEMPTS: u32 = 2;
/// Times that a download may begin anew. Without a limit, a server that breaks off a little later each time would keep it going for days.
const RESTARTS: u32 = 8;
/// Redirects followed in a row.
const REDIRECT_LIMIT: u32 = 10;

/// A file received whole.
#[derive(Debug)]
pub struct Fetched {
    /// Holds the file at its start.
    pub memory: Memory,
    /// Size of the file in bytes; the memory may be larger.
    pub len: u64,
    /// Where it came from, after redirects.
    pub url: Url,
    /// Over all requests for the file, helpers' included.
    pub stats: HttpStats,
}

/// Downloads `url` to memory of `destination`, with the help of `workers` if the file is large.
///
/// Each wait in it ends: after 10 s without a byte the server is asked again, for the rest of the file if
/// possible; after 4 requests in a row that failed before the first byte, or 8 that brought less than 64 KiB
/// together, it gives up. A response that falls below the floor is given up, too, and so is the download at the second one, or when it has
/// begun anew 8 times.
/// Responses 408, 429 and 5xx are retried too. Beyond that, a server that is busy (429, 503), is not there for its gateway (502, 504),
/// cannot be reached, hangs up or says nothing is waited for as long as the limits say.
///
/// While nothing has come, each attempt begins with the next of the server's addresses. Its name is resolved again when none of them could
/// be connected to.
///
/// # Errors
/// [`HttpError`]: what was asked of whom, what happened, what to do.
pub async fn get<R: Resolve, D: Destination>(
    stack: &Stack,
    connections: &Connections,
    workers: &Workers,
    resolver: &R,
    url: &Url,
    limits: Limits,
    destination: &mut D,
) -> Result<Fetched, HttpError> {
    let mut download = Download {
        stack,
        connections,
        workers,
        resolver,
        url: url.clone(),
        limits,
        servers: Vec::new(),
        resolve_again: false,
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
    workers: &'a Workers,
    resolver: &'a R,
    url: Url,
    limits: Limits,
    /// Addresses of the URL's server in the order of preference; empty until resolved.
    servers: Vec<SocketAddr>,
    /// The last attempt could not connect: the name is resolved again.
    resolve_again: bool,
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

impl<'a, R: Resolve, D: Destination> Download<'a, R, D> {
    async fn run(&mut self, failures: &mut u32) -> Result<(), Problem> {
        if self.url.scheme() != Scheme::Http {
            return Err(Problem::NotHttp);
        }
        let mut visited = vec![self.url.clone()];
        let mut reach = 0;
        let (mut slow, mut slow_reach) = (0, 0);
        // Failures in a row that no patience excuses.
        let (mut wait, mut unexcused) = (Wait::new(self.limits.patience), 0);
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
                (*failures, unexcused) = (0, 0);
                wait.over();
                reach = self.body.reach;
                visited = vec![self.url.clone()];
            }
            *failures += 1;
            if matches!(problem, Problem::Slow { .. }) {
                let enough = slow_reach + self.limits.floor.bytes.max(WORTHWHILE);
                slow = if self.body.reach >= enough {
                    1
                } else {
                    slow + 1
                };
                slow_reach = self.body.reach;
            }
            let hopeless = slow >= SLOW_ATTEMPTS || self.body.discarded >= RESTARTS;
            if hopeless || !problem.is_transient() {
                return Err(problem);
            }
            let now = self.stack.now();
            let waits = problem.is_of_a_server_to_wait_for();
            let left = waits.then(|| wait.failed(now)).flatten();
            let pause = pause_after(self.stack, *failures, problem.retry_after());
            let pause = if let Some(left) = left {
                if let Some(news) = wait.news(&problem, left, now) {
                    log::warn!("{}: {news}", self.url);
                }
                pause.min(left)
            } else {
                unexcused += 1;
                let limit = match (&problem, self.body.reach) {
                    // The resolver has asked several times itself.
                    (Problem::Resolve { .. }, _) => FIRST_ATTEMPTS / 2,
                    (_, 0) => FIRST_ATTEMPTS,
                    _ => RESUME_ATTEMPTS,
                };
                if unexcused >= limit || waits && *failures >= limit {
                    return Err(problem);
                }
                log::warn!(
                    "{}: {problem}; trying again in {} ms",
                    self.url,
                    pause.total_millis()
                );
                pause
            };
            self.resolve_again = matches!(problem, Problem::Connect(_));
            if self.resolve_again || self.body.reach == 0 {
                self.turn += 1;
            }
            self.stack.sleep(pause).await;
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

    /// Finds the server's addresses where they are not known or of no use any more. Known ones stay if that fails.
    async fn resolve(&mut self) -> Result<(), Problem> {
        let known = !self.servers.is_empty();
        if known && !core::mem::take(&mut self.resolve_again) {
            return Ok(());
        }
        match servers(self.stack, self.resolver, &self.url).await {
            Ok(servers) => self.servers = servers,
            Err(_) if known => return Ok(()),
            Err(problem) => return Err(problem),
        }
        if !known {
            self.turn = 0;
        }
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
            Some(split) if self.body.join(&split, self.stack, &mut self.stats).await? => {
                Ok(Step::Complete)
            }
            Some(_) => Ok(Step::More),
            None => Ok(step),
        }
    }

    /// Splits the file whose first response has this head, if that pays.
    async fn split(&mut self, head: &Head) -> Result<(), Problem> {
        let (Framing::Length(total), Some(server), Some(validator)) =
            (head.framing, self.server(), head.validator())
        else {
            return Ok(());
        };
        let distant = ranges::is_distant(self.stack, self.connections, server.ip());
        let helpers = |workers| ranges::helpers(self.stack, distant, head, total, workers);
        let mut workers = self.workers.present();
        if self.body.alone || helpers(workers.len()).is_none() {
            return Ok(());
        }
        self.body.reserve(total).await?;
        let Some(region) = self.body.region.clone() else {
            return Ok(());
        };
        // Memory that cannot be lent at all is this engine's alone.
        if region.lend(0..1).is_none() {
            workers.clear();
        }
        let Some(helpers) = helpers(workers.len()) else {
            return Ok(());
        };
        let connections = 1 + helpers + workers.len();
        log::debug!("{}: on {connections} connections", self.url);
        let source = Source {
            url: self.url.clone(),
            server,
            validator,
            total,
            floor: self.limits.floor,
        };
        let split = Split::new(source, region, connections);
        let mut list = self.helpers.borrow_mut();
        for index in workers {
            let worker = ranges::help_by_worker(self.stack, self.workers, index, split.clone());
            list.push(Box::pin(worker));
        }
        for _ in 0..helpers {
            let helper = ranges::help(self.stack, self.connections, split.clone());
            list.push(Box::pin(helper));
        }
        self.body.split = Some(split);
        Ok(())
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
            Err(error) => Err(Problem::Connect(error)),
        }
    }

    async fn ask(&mut self, stream: &mut TcpStream) -> Result<Head, Problem> {
        self.stats.requests += 1;
        let request = request_head(&self.url, self.body.resume());
        let mut patience = self.patience();
        let head = exchange(&mut patience, stream, &request).await?;
        if let Some(server) = self.server() {
            self.connections.measured(server.ip(), stream);
        }
        Ok(head)
    }

    fn patience(&self) -> Patience<'a> {
        let server = self.server().map(|server| server.ip());
        // Who is asked has an address.
        let server = server.unwrap_or(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED));
        Patience::new(self.stack, server, self.limits.floor, self.body.position())
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
                self.split(head).await?;
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
                // The last chunk, which holds nothing, may not have been read.
                let at_end = self.body.filled == end && framing != Framing::Chunked;
                self.body.check_end(end)?;
                Ok((Step::Complete, at_end))
            }
            416 if self.body.resume().is_some() => {
                self.body.refused(head)?;
                Ok((Step::Complete, drain(self.stack, stream, head).await))
            }
            301 | 302 | 303 | 307 | 308 => {
                let location = head.location.clone().ok_or(Problem::RedirectNowhere)?;
                // Helpers would go on at the former URL.
                if self.body.split.is_some() {
                    self.body.forget();
                }
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
