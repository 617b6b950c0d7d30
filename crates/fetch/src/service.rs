//! The engine and all protocols behind a mailbox of two rings: commands in, events out, memory handed over and back. The caller may
//! be on the BSP (bootstrap processor), and this on an AP (application processor).

mod mailbox_destination;
mod mailbox_taker;

use mailbox_destination::MailboxDestination;
use mailbox_taker::MailboxTaker;

use crate::dhcp::{DhcpRequest, Lease};
use crate::dhcpv6::Lease6;
use crate::dns::{self, DnsError};
use crate::error::FetchError;
use crate::http::team::{Leader, Workers};
use crate::http::{self, Connections};
use crate::leases::{self, Leases, News};
use crate::outbox::Outbox;
use crate::pace::{Floor, Limits};
use crate::race::{self, Versions};
use crate::resolve::{Resolve, Unresolved};
use crate::socket::Socket;
use crate::tftp;
use crate::url::{Host, Scheme, Url};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, SocketAddr};
use core::pin::pin;
use core::task::Poll;
use wireboot_net::{Duration, Engine, Forwarded, Instant, Memory, Stack, Tap, Task};
use wireboot_nic::{Fault, Nic};
use wireboot_ring::{Receiver, Sender};

/// How long a router may take to advertise itself: at most half a second, but it does so every three seconds only (RFC 4861,
/// section 6.2.6).
const ROUTER_PATIENCE: Duration = Duration::from_secs(4);
/// How long in all a host name to which the name servers of one version's lease give no address waits for the other version's: there are
/// DHCP servers that look for 3 s whether an address is in use, and a first offer may be lost.
const LEASE_PATIENCE: Duration = Duration::from_secs(10);

/// How often the link is looked at while there is a tap on it.
const LINK_LOOKS: Duration = Duration::from_millis(100);

/// Downloads that run at the same time; further ones wait. They share the receive buffers.
pub const MAX_CONCURRENT: usize = 4;

/// Identifies a request in commands and events. The sender chooses it and uses it once.
pub type Job = u32;

/// What can be asked of a [`Service`].
#[derive(Debug)]
pub enum Command {
    /// Use a lease that the firmware obtained.
    Configure(Lease),
    /// The same for IPv6.
    Configure6(Lease6),
    /// The slowest download that goes on, from the next one on; [`Floor::default`] unless set.
    Floor(Floor),
    /// Obtain a lease by both IP versions; answered by [`Event::Lease`] when one has all that was asked for. The other one is taken on
    /// as well, when it is there.
    Dhcp {
        /// The events that answer carry it.
        job: Job,
        /// What to send to the server and ask of it.
        request: DhcpRequest,
    },
    /// Download `url`; answered by [`Event::NeedMemory`], [`Event::Progress`] and in the end [`Event::Done`].
    Get {
        /// The events that answer carry it.
        job: Job,
        /// An `http` or `tftp` URL.
        url: String,
        /// How long its server is waited for ([`Limits::patience`]).
        patience: Duration,
    },
    /// Send an HTTP request as it is; answered by [`Event::Exchange`]. It takes none of the [`MAX_CONCURRENT`] places.
    Exchange {
        /// The events that answer carry it.
        job: Job,
        /// What goes to whom.
        request: Box<http::Request>,
    },
    /// The memory that a job asked for, or that an exchange shall fill with the next bytes of its body.
    Memory {
        /// That of [`Event::NeedMemory`], or of [`Command::Exchange`].
        job: Job,
        /// At least as many bytes as were asked for.
        memory: Memory,
    },
    /// There is no memory for a job: it ends.
    NoMemory {
        /// That of [`Event::NeedMemory`].
        job: Job,
    },
    /// Connect a socket; [`Command::Cancel`] resets the connection, unless both its directions have ended.
    Connect {
        /// For [`Command::Cancel`]. No event carries it.
        job: Job,
        /// Address and port to connect to.
        remote: SocketAddr,
        /// The engine's end. It tells what becomes of the connection.
        socket: Socket,
    },
    /// Put a tap on the link, instead of any former one. From then on [`Event::Link`] tells of the link.
    Tap(Box<Tap>),
    /// End a job now; it is still answered by [`Event::Done`] or [`Exchanged::Ended`], but for a connection.
    Cancel {
        /// That of a [`Command::Get`], [`Command::Exchange`] or [`Command::Connect`]; others cannot be cancelled.
        job: Job,
    },
}

impl Leases {
    /// The commands by which a service uses them.
    pub fn commands(self) -> impl Iterator<Item = Command> {
        let v4 = self.v4.map(Command::Configure);
        v4.into_iter().chain(self.v6.map(Command::Configure6))
    }
}

/// What a [`Service`] reports.
#[derive(Debug)]
pub enum Event {
    /// DHCP has ended or has brought what was asked for. On success the leases are in use. Sent again when the other version's lease
    /// comes later, or another address in place of one that somebody has.
    Lease {
        /// That of [`Command::Dhcp`].
        job: Job,
        /// At least one lease, or why there is none.
        result: Result<Box<Leases>, FetchError>,
    },
    /// A download needs memory, to be answered by [`Command::Memory`] or [`Command::NoMemory`].
    NeedMemory {
        /// That of [`Command::Get`].
        job: Job,
        /// How much: the size of the file in bytes, or a step when the size is not known.
        bytes: u64,
    },
    /// How far a download is.
    Progress {
        /// That of [`Command::Get`].
        job: Job,
        /// Bytes received, anywhere in the file: one that comes in parts is not there from its start up to here.
        received: u64,
        /// Size of the file in bytes, if known.
        total: Option<u64>,
    },
    /// A download is over.
    Done {
        /// That of [`Command::Get`].
        job: Job,
        /// The whole file, or why there is none.
        result: Result<File, FetchError>,
    },
    /// An exchange goes on.
    Exchange {
        /// That of [`Command::Exchange`].
        job: Job,
        /// The head, the next bytes of the body, or the end.
        news: Exchanged,
    },
    /// The link below the tap has come up, or gone down. It was up when the tap was put on it.
    Link {
        /// Which of the two.
        up: bool,
    },
}

/// What an exchange brings: a head, pieces of the body each after [`Command::Memory`], the end.
#[derive(Debug)]
pub enum Exchanged {
    /// The head of the response.
    Head(http::ResponseHead),
    /// The next bytes of the body.
    Body {
        /// It was handed over, and begins with them.
        memory: Memory,
        /// How many: all that there is room for, or less where the body or the connection ends.
        len: usize,
    },
    /// It is over, and nobody has memory of it any more: all has come, or why not. `None` where it was cancelled.
    Ended(Option<Result<(), http::Problem>>),
}

/// A file that was downloaded whole.
#[derive(Debug)]
pub struct File {
    /// Where it came from, after redirects.
    pub url: String,
    /// Memory whose first `len` bytes are the file.
    pub memory: Memory,
    /// Size in bytes.
    pub len: u64,
    /// The address that it came from by TFTP; `None` by HTTP.
    pub server: Option<IpAddr>,
    /// For the user and for benchmarks.
    pub stats: Stats,
}

impl File {
    /// Its bytes, where the memory is one piece.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        self.memory.rest(0).get(..len).unwrap_or_default()
    }

    /// Its bytes from `at` on, up to the end of their piece of memory.
    #[must_use]
    pub fn rest(&self, at: usize) -> &[u8] {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        let rest = self.memory.rest(at);
        rest.get(..len.saturating_sub(at)).unwrap_or(rest)
    }
}

/// Duration and losses of a download.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of the file.
    pub bytes: u64,
    /// Microseconds from the request to the last byte.
    pub micros: u64,
    /// Requests and acknowledgements that had to be sent again, connections made again included.
    pub retransmissions: u64,
}

impl Stats {
    /// Rate in Mbit/s.
    #[must_use]
    pub fn megabits(&self) -> u64 {
        // Bits per microsecond are megabits per second.
        (self.bytes * 8).checked_div(self.micros).unwrap_or(0)
    }
}

/// The network as a service of one processor.
pub struct Service<N: Nic> {
    engine: Engine<N>,
    commands: Receiver<Command>,
    shared: Rc<ServiceState>,
    /// `None` without a tap.
    link: Option<LinkState>,
}

/// The link, as it was last told.
struct LinkState {
    up: bool,
    next_look: Instant,
}

/// What the tasks of a service share.
struct ServiceState {
    stack: Stack,
    outbox: RefCell<Outbox<Event>>,
    /// Those of [`Command::Get`], [`Command::Exchange`] and [`Command::Connect`].
    jobs: RefCell<Vec<JobState>>,
    leases: RefCell<Leases>,
    /// Versions that DHCP is being asked for a lease of.
    awaited: Cell<Versions>,
    connections: Connections,
    workers: Workers,
    floor: Cell<Floor>,
    /// Downloads that run, at most [`MAX_CONCURRENT`].
    running: Cell<usize>,
}

/// A download, running or waiting for its turn, an exchange, or a connection.
struct JobState {
    job: Job,
    /// What [`Command::Memory`] brought, such as the answer to [`Event::NeedMemory`], once it is there; inside, `None` after [`Command::NoMemory`].
    memory: Option<Option<Memory>>,
    cancelled: bool,
}

impl<N: Nic> Service<N> {
    /// A service on `nic`, without an address yet. `seed` comes from the machine's best source of randomness.
    #[must_use]
    pub fn new(nic: N, seed: [u8; 32], commands: Receiver<Command>, events: Sender<Event>) -> Self {
        let engine = Engine::new(nic, seed);
        Self::on(engine, Workers::none(), commands, events)
    }

    /// The same with workers. `nic` is the first pair of a card, the workers are on the others ([`team`](crate::team())).
    #[must_use]
    pub fn with_workers(
        nic: N,
        seed: [u8; 32],
        commands: Receiver<Command>,
        events: Sender<Event>,
        leader: Leader,
    ) -> Self {
        let mut engine = Engine::new(nic, seed);
        let (peer, workers) = Workers::new(leader);
        engine.join(peer);
        Self::on(engine, workers, commands, events)
    }

    fn on(
        engine: Engine<N>,
        workers: Workers,
        commands: Receiver<Command>,
        events: Sender<Event>,
    ) -> Self {
        // Routers are asked at once, and nobody waits for them. Interface ids are the firmware's, from the Ethernet address.
        let stack = engine.stack();
        stack.ipv6_up();
        let shared = Rc::new(ServiceState {
            stack,
            outbox: RefCell::new(Outbox::new(events)),
            jobs: RefCell::new(Vec::new()),
            leases: RefCell::default(),
            awaited: Cell::default(),
            connections: Connections::new(),
            workers,
            floor: Cell::default(),
            running: Cell::new(0),
        });
        Self {
            engine,
            commands,
            shared,
            link: None,
        }
    }

    /// One turn: takes commands, runs the engine, sends events. Returns whether frames arrived or workers have work. Never blocks.
    ///
    /// # Errors
    /// [`Fault`] when the NIC failed; the service is of no more use then, and open jobs are not answered.
    pub fn poll(&mut self, now: Instant) -> Result<bool, Fault> {
        while let Some(command) = self.commands.pop() {
            self.command(command);
        }
        self.shared.workers.turn(now);
        let received = self.engine.poll(now)?;
        self.look_at_link(now);
        self.shared.outbox.borrow_mut().flush();
        Ok(received || self.shared.workers.busy())
    }

    /// The NIC, for its counters and link state.
    pub fn nic_mut(&mut self) -> &mut N {
        self.engine.nic_mut()
    }

    /// Frames that the engine gave to those of its workers.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        self.engine.forwarded()
    }

    /// Ends all jobs and gives the NIC back, still running.
    #[must_use]
    pub fn into_nic(self) -> N {
        self.engine.into_nic()
    }

    fn look_at_link(&mut self, now: Instant) {
        let Some(link) = self.link.as_mut().filter(|link| now >= link.next_look) else {
            return;
        };
        link.next_look = now + LINK_LOOKS;
        let up = self.engine.nic_mut().link_up();
        if link.up != up {
            link.up = up;
            self.shared.report(Event::Link { up });
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Tap(tap) => {
                self.engine.set_tap(*tap);
                self.link.get_or_insert(LinkState {
                    up: true,
                    next_look: Instant::ZERO,
                });
            }
            command => {
                if let Some(task) = self.shared.command(command) {
                    self.engine.add(task);
                }
            }
        }
    }
}

/// Runs `work` until `stop` says so.
pub(crate) async fn unless<T>(stop: impl Fn() -> bool, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    core::future::poll_fn(|context| {
        if stop() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

impl ServiceState {
    /// Does what is asked for, or gives what will have done it. Not a part of [`Service`], so that there is one of it, and of all protocols
    /// below, for all kinds of NICs.
    fn command(self: &Rc<Self>, command: Command) -> Option<Task> {
        let shared = self.clone();
        match command {
            Command::Configure(lease) => shared.adopt(lease),
            Command::Configure6(lease) => shared.adopt6(lease),
            Command::Floor(floor) => {
                log::info!("a download ends that brings less than {floor}");
                shared.floor.set(floor);
            }
            Command::Dhcp { job, request } => {
                shared.awaited.set(Versions { v4: true, v6: true });
                return Some(Box::pin(async move {
                    leases::discover(&shared.stack, &request, |news| match news {
                        News::V4(lease) => {
                            shared.await_no_v4();
                            shared.remember(lease);
                        }
                        News::V6(lease) => {
                            shared.await_no_v6();
                            shared.leases.borrow_mut().v6 = Some(lease);
                        }
                        News::NoV4 => shared.await_no_v4(),
                        News::NoV6 => shared.await_no_v6(),
                        News::Decided(result) => shared.report(Event::Lease { job, result }),
                        News::Followed(leases) => shared.report(Event::Lease {
                            job,
                            result: Ok(leases),
                        }),
                    })
                    .await;
                }));
            }
            Command::Get { job, url, patience } => {
                shared.begin(job);
                return Some(Box::pin(async move {
                    let result = shared.download(job, &url, patience).await;
                    shared.end(job);
                    shared.report(Event::Done { job, result });
                }));
            }
            Command::Exchange { job, request } => {
                shared.begin(job);
                return Some(Box::pin(async move {
                    let result = unless(|| shared.cancelled(job), shared.exchange(job, &request));
                    let news = Exchanged::Ended(result.await);
                    shared.end(job);
                    shared.report(Event::Exchange { job, news });
                }));
            }
            Command::Connect {
                job,
                remote,
                socket,
            } => {
                shared.begin(job);
                return Some(Box::pin(async move {
                    let connection = socket.run(&shared.stack, remote);
                    let _ = unless(|| shared.cancelled(job), connection).await;
                    shared.end(job);
                }));
            }
            Command::Memory { job, memory } => {
                shared.with_job(job, |state| state.memory = Some(Some(memory)));
            }
            Command::NoMemory { job } => shared.with_job(job, |state| state.memory = Some(None)),
            Command::Cancel { job } => shared.with_job(job, |state| state.cancelled = true),
            // The engine's.
            Command::Tap(_) => {}
        }
        None
    }

    fn report(&self, event: Event) {
        self.outbox.borrow_mut().send(event);
    }

    fn begin(&self, job: Job) {
        self.jobs.borrow_mut().push(JobState {
            job,
            memory: None,
            cancelled: false,
        });
    }

    fn end(&self, job: Job) {
        self.jobs.borrow_mut().retain(|state| state.job != job);
    }

    /// Runs `f` on the state of a job. Does nothing for a job that is over.
    fn with_job(&self, job: Job, f: impl FnOnce(&mut JobState)) {
        if let Some(state) = self.jobs.borrow_mut().iter_mut().find(|m| m.job == job) {
            f(state);
        }
    }

    fn adopt(&self, lease: Lease) {
        self.stack.configure(&lease.ipv4_config());
        self.remember(lease);
    }

    /// Keeps a lease that the stack is configured by.
    fn remember(&self, lease: Lease) {
        // Connections of the former address lead nowhere.
        self.connections.clear();
        self.leases.borrow_mut().v4 = Some(lease);
    }

    fn adopt6(&self, lease: Lease6) {
        lease.take_on(&self.stack);
        self.leases.borrow_mut().v6 = Some(lease);
    }

    fn await_no_v4(&self) {
        let Versions { v6, .. } = self.awaited.get();
        self.awaited.set(Versions { v4: false, v6 });
    }

    fn await_no_v6(&self) {
        let Versions { v4, .. } = self.awaited.get();
        self.awaited.set(Versions { v4, v6: false });
    }

    async fn download(&self, job: Job, url: &str, patience: Duration) -> Result<File, FetchError> {
        let url = Url::parse(url)?;
        // Until there is an address, others may run.
        let _ = unless(|| self.cancelled(job), self.leased(url.host())).await;
        while self.running.get() >= MAX_CONCURRENT && !self.cancelled(job) {
            self.stack.next_turn().await;
        }
        self.running.set(self.running.get() + 1);
        let limits = Limits {
            floor: self.floor.get(),
            patience,
        };
        let work = async {
            self.routed(url.host()).await;
            self.transfer(job, &url, limits).await
        };
        let result = unless(|| self.cancelled(job), work).await;
        self.running.set(self.running.get() - 1);
        result.unwrap_or_else(|| Err(FetchError::Cancelled { url }))
    }

    /// Waits for an address of the version of IP that leads to the host, as long as DHCP is asked for one.
    async fn leased(&self, host: &Host) {
        let Host::Address(address) = *host else {
            return;
        };
        while !is_link_local(host)
            && !Versions::of(&self.stack).have_version_of(address)
            && self.awaited.get().have_version_of(address)
        {
            self.stack.next_turn().await;
        }
    }

    /// Waits until `end` for a lease that is not among `known`, as long as DHCP is asked for one. False where none comes.
    async fn another_lease(&self, known: &Leases, end: Instant) -> bool {
        let has_come = || *self.leases.borrow() != *known;
        while !has_come() && self.awaited.get() != Versions::default() && self.stack.now() < end {
            self.stack.next_turn().await;
        }
        has_come() && self.stack.now() < end
    }

    /// Waits for a router or an on-link prefix where there is only IPv6 and the host is beyond this link: a router advertisement tells of them.
    async fn routed(&self, host: &Host) {
        let alone = |leases: &Leases| leases.v6.is_some() && leases.v4.is_none();
        let is_here = || matches!(*host, Host::Address(address) if self.stack.is_on_link(address));
        let end = self.stack.now() + ROUTER_PATIENCE;
        while !is_here()
            && alone(&self.leases.borrow())
            && !self.stack.has_ipv6_route()
            && self.stack.now() < end
        {
            self.stack.next_turn().await;
        }
    }

    fn cancelled(&self, job: Job) -> bool {
        self.jobs
            .borrow()
            .iter()
            .any(|state| state.job == job && state.cancelled)
    }

    async fn transfer(&self, job: Job, url: &Url, limits: Limits) -> Result<File, FetchError> {
        let mut destination = MailboxDestination {
            shared: self,
            job,
            reported: None,
        };
        let begin = self.stack.now();
        let (memory, len, url, retransmissions, server) = match url.scheme() {
            Scheme::Http => {
                let file = http::get(
                    &self.stack,
                    &self.connections,
                    &self.workers,
                    &self,
                    url,
                    limits,
                    &mut destination,
                )
                .await?;
                let again = file.stats.resumed + file.stats.restarted;
                (file.memory, file.len, file.url, u64::from(again), None)
            }
            Scheme::Tftp => {
                let addresses = self.addresses(url).await?;
                let mut servers: Vec<SocketAddr> = race::order(&self.stack, &addresses)
                    .into_iter()
                    .map(|address| SocketAddr::new(address, url.port()))
                    .collect();
                // All that have been asked for, since those that wait may start while this one runs.
                let sharers = self.jobs.borrow().len().min(MAX_CONCURRENT);
                let file = url.resource();
                let (stack, destination) = (&self.stack, &mut destination);
                let sizes = tftp::Sizes::default();
                let result = tftp::get(
                    stack,
                    &mut servers,
                    file,
                    sharers,
                    sizes,
                    limits,
                    destination,
                );
                let result = result.await;
                let server = servers.first().map(SocketAddr::ip);
                let file = result.map_err(|error| FetchError::Tftp {
                    url: url.clone(),
                    servers,
                    error: Box::new(error),
                })?;
                let again = file.retransmissions;
                (file.memory, file.len, url.clone(), again, server)
            }
        };
        Ok(File {
            url: url.to_string(),
            memory,
            len,
            server,
            stats: Stats {
                bytes: len,
                micros: (self.stack.now() - begin).total_micros(),
                retransmissions,
            },
        })
    }

    async fn exchange(&self, job: Job, request: &http::Request) -> Result<(), http::Problem> {
        self.routed(request.url.host()).await;
        let mut taker = MailboxTaker { shared: self, job };
        http::exchange(&self.stack, &self.connections, &self, request, &mut taker).await
    }

    async fn addresses(&self, url: &Url) -> Result<Vec<IpAddr>, FetchError> {
        match url.host() {
            Host::Address(address) => Ok(alloc::vec![*address]),
            Host::Name(name) => self
                .resolve(name)
                .await
                .map_err(|error| FetchError::Unresolved {
                    url: url.clone(),
                    reason: error.reason,
                }),
        }
    }
}

/// Whether it is on this link, whatever the network is.
fn is_link_local(host: &Host) -> bool {
    matches!(host, Host::Address(IpAddr::V6(address)) if address.is_unicast_link_local())
}

impl Resolve for &ServiceState {
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved> {
        (**self).resolve(host).await
    }
}

impl ServiceState {
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let mut end = None;
        let found = loop {
            // While the name servers of these are asked, another one may come.
            let leases = self.leases.borrow().clone();
            let found = dns::resolve_by(&self.stack, &leases, host).await;
            if matches!(found, Ok(_) | Err(DnsError::BadName { .. })) {
                break found;
            }
            // The other version's lease may bring a name server or a domain that knows the name, or an address of it into reach.
            let end = *end.get_or_insert_with(|| self.stack.now() + LEASE_PATIENCE);
            if !self.another_lease(&leases, end).await {
                break found;
            }
        };
        found.map_err(|error| Unresolved {
            reason: error.to_string(),
            passing: matches!(error, DnsError::NoAnswer { .. } | DnsError::Failed { .. }),
        })
    }
}

#[cfg(test)]
mod tests;
