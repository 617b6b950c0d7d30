//! A stub resolver (RFC 1034, 1035, 3596): A and AAAA records and the aliases (CNAME) that lead to them, over UDP.
//!
//! Records are asked for of the IP versions that this machine has, both at once. When one answer is there, the other has a
//! twentieth of a second (RFC 8305 section 3). Addresses that no other host can have are refused.
//!
//! Each query has a random ID and a random source port (RFC 5452), and an answer counts only from the server that was asked,
//! to the very question. DNS over TCP is not spoken: an answer too long for a datagram serves as far as it goes.

mod message;
#[cfg(test)]
pub(crate) mod tests;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use core::pin::pin;
use core::task::Poll;

use smoltcp::wire::DnsQueryType;
use wireboot_net::{Duration, Stack};

#[cfg(any(test, feature = "fuzzing"))]
pub use message::fuzz_dns;
use message::{Answer, Name, parse_answer, question};

use crate::dhcp::is_host;
use crate::leases::Leases;
use crate::race::{self, Versions};

const PORT: u16 = 53;
/// How long addresses of one IP version wait for the other's (RFC 8305 section 3, "Resolution Delay").
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// Seconds to wait for each server, in the first round over the servers and the next. The next round does not begin sooner where all fail.
const WAITS: [u64; 3] = [1, 2, 4];
/// How long a name may take in all, with its aliases and the search list. Without a limit, a slow server could answer with alias after
/// alias for hours.
const LIMIT: Duration = Duration::from_secs(30);
/// Servers asked, as in other resolvers (`MAXNS`).
const MAX_SERVERS: usize = 3;
/// Aliases followed for one name.
const MAX_ALIASES: usize = 8;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// DHCP named no server.
    #[error(
        "{name}: no DNS server is known; let DHCP give one (option 6, DHCPv6 option 23) or the router (RDNSS), or write an IP address in \
         the URL"
    )]
    NoServers {
        /// As the user wrote it, without the search list.
        name: String,
    },
    /// The name cannot be asked for.
    #[error(
        "{name:?} is no host name: it needs labels of 1 to 63 ASCII characters, 253 in all (international names in \
         their xn-- form)"
    )]
    BadName {
        /// As the user wrote it, without the search list.
        name: String,
    },
    /// The servers say that there is no such name (NXDOMAIN).
    #[error("{name}: no such name (NXDOMAIN for {}); check its spelling, and the domain that DHCP gives", .tried.join(", "))]
    NotFound {
        /// As the user wrote it, without the search list.
        name: String,
        /// The names that were asked for, with the search list.
        tried: Vec<String>,
    },
    /// The name exists but has no address that this machine can use.
    #[error("{name}: the name exists but has no {records}")]
    NoAddress {
        /// As the user wrote it, without the search list.
        name: String,
        /// The record types that were asked for, for the message.
        records: &'static str,
    },
    /// The name's addresses belong to no other host.
    #[error(
        "{name}: the DNS server {server} gives it the address {address}, which no other host can have; check the name's records"
    )]
    NoHost {
        /// As the user wrote it, without the search list.
        name: String,
        /// The one that answered.
        server: IpAddr,
        /// The first such address.
        address: IpAddr,
    },
    /// A server answers, but cannot answer this.
    #[error("{name}: the DNS server {server} answers {reason}; check that server's log")]
    Failed {
        /// As the user wrote it, without the search list.
        name: String,
        /// The one that answered.
        server: IpAddr,
        /// The response code, or why the server could not be asked.
        reason: String,
    },
    /// None of the servers has answered in time.
    #[error(
        "{name}: no answer from {} in {seconds} s; check that the DNS server that DHCP gives can be reached",
        shown(.servers)
    )]
    NoAnswer {
        /// As the user wrote it, without the search list.
        name: String,
        /// Those that were asked, three at most.
        servers: Vec<IpAddr>,
        /// How long it took, in seconds.
        seconds: u64,
    },
    /// The name's CNAME records form a circle, or a chain longer than is followed.
    #[error("{name}: its CNAME records form a circle, or a chain of more than 8")]
    Aliases {
        /// As the user wrote it, without the search list.
        name: String,
    },
}

fn shown(servers: &[IpAddr]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("{server}")).collect();
    names.join(", ")
}

/// The addresses of `name`, by the name servers and search lists of `leases` and of routers, those of IPv4 first. See [`resolve`].
///
/// # Errors
/// [`DnsError`].
pub async fn resolve_by(
    stack: &Stack,
    leases: &Leases,
    name: &str,
) -> Result<Vec<IpAddr>, DnsError> {
    let (servers, search) = name_servers(stack, leases);
    resolve(stack, &servers, &search, name).await
}

/// Name servers and search list of both leases and of routers, those of IPv4 first.
pub(crate) fn name_servers(stack: &Stack, leases: &Leases) -> (Vec<IpAddr>, Vec<String>) {
    let mut servers: Vec<IpAddr> = Vec::new();
    let mut search: Vec<String> = Vec::new();
    if let Some(lease) = &leases.v4 {
        servers.extend(lease.dns.iter().copied().map(IpAddr::V4));
        search.extend_from_slice(&lease.search);
    }
    if let Some(lease) = &leases.v6 {
        servers.extend(lease.dns.iter().copied().map(IpAddr::V6));
        search.extend_from_slice(&lease.search);
    }
    if let Some(router) = stack.router() {
        servers.extend(router.dns.iter().copied().map(IpAddr::V6));
        search.extend_from_slice(&router.search);
    }
    dedup(&mut servers);
    dedup(&mut search);
    (servers, search)
}

/// Leaves the first of equals.
fn dedup<T: Clone + PartialEq>(list: &mut Vec<T>) {
    let mut seen: Vec<T> = Vec::new();
    list.retain(|item| {
        let new = !seen.contains(item);
        if new {
            seen.push(item.clone());
        }
        new
    });
}

/// The addresses of `name`, of each IP version in the order of the answer, and never none.
///
/// A name with a dot in it is tried as it is, then with each domain of `search`; one without the other way round; one with
/// a dot at its end only as it is. The first of `servers` are asked a quarter of a second apart, with more patience in each
/// round: 7 s in all and a little more for each server. Where all of them fail, they are asked again when the round's time is over: after
/// 1 s and after 3 s. All of it ends after 30 s.
///
/// Where there are servers of both IP versions, those of one do not alone say that there is no such name: they are a router's or another
/// network's, and may not know the site's names. The others have a second to tell.
///
/// # Errors
/// [`DnsError`].
pub async fn resolve(
    stack: &Stack,
    servers: &[IpAddr],
    search: &[String],
    name: &str,
) -> Result<Vec<IpAddr>, DnsError> {
    if servers.is_empty() {
        return Err(DnsError::NoServers {
            name: name.to_owned(),
        });
    }
    let versions = Versions::of(stack);
    let mut servers = race::order(stack, servers);
    if servers
        .iter()
        .any(|&server| versions.have_version_of(server))
    {
        servers.retain(|&server| versions.have_version_of(server));
    }
    servers.truncate(MAX_SERVERS);
    let mut resolver = Resolver {
        stack,
        servers,
        versions,
        name,
        is_last: false,
    };
    let found = stack.timeout(LIMIT, resolver.resolve(search)).await;
    found.unwrap_or_else(|| Err(resolver.no_answer(LIMIT)))
}

/// The names to ask for.
fn candidates(name: &str, search: &[String]) -> Vec<String> {
    if let Some(absolute) = name.strip_suffix('.') {
        return alloc::vec![absolute.to_owned()];
    }
    let domains = search.iter().map(|domain| domain.trim_matches('.'));
    let mut out: Vec<String> = domains
        .filter(|domain| !domain.is_empty())
        .map(|domain| format!("{name}.{domain}"))
        .collect();
    let at = if name.contains('.') { 0 } else { out.len() };
    out.insert(at, name.to_owned());
    out
}

struct Resolver<'a> {
    stack: &'a Stack,
    servers: Vec<IpAddr>,
    versions: Versions,
    /// As the user wrote it, for the messages.
    name: &'a str,
    /// There is no other candidate to ask for.
    is_last: bool,
}

impl Resolver<'_> {
    /// Tries one candidate after the other.
    async fn resolve(&mut self, search: &[String]) -> Result<Vec<IpAddr>, DnsError> {
        // A domain that is none, or makes the name too long, is passed over.
        let candidates: Vec<(String, Name)> = candidates(self.name, search)
            .into_iter()
            .filter_map(|text| Name::from_text(&text).map(|name| (text, name)))
            .collect();
        let mut setback: Option<DnsError> = None;
        for ((_, candidate), left) in candidates.iter().zip((0..candidates.len()).rev()) {
            self.is_last = left == 0;
            let error = match self.lookup(candidate.clone()).await {
                Ok(addresses) => return Ok(addresses),
                // The next candidate would wait as long.
                Err(error @ DnsError::NoAnswer { .. }) => return Err(error),
                Err(error) => error,
            };
            // "No such name" says least.
            match setback {
                Some(DnsError::NotFound { .. }) | None => setback = Some(error),
                Some(_) => {}
            }
        }
        match setback {
            Some(DnsError::NotFound { name, .. }) => Err(DnsError::NotFound {
                name,
                tried: candidates.into_iter().map(|(text, _)| text).collect(),
            }),
            Some(error) => Err(error),
            None => Err(DnsError::BadName {
                name: self.name.to_owned(),
            }),
        }
    }

    fn no_answer(&self, waited: Duration) -> DnsError {
        DnsError::NoAnswer {
            name: self.name.to_owned(),
            servers: self.servers.clone(),
            seconds: waited.secs(),
        }
    }

    /// Addresses of each IP version that this machine has.
    async fn lookup(&self, name: Name) -> Result<Vec<IpAddr>, DnsError> {
        match self.versions {
            Versions { v4: true, v6: true } => self.lookup_both(name).await,
            Versions { v6: true, .. } => self.lookup_type(name, DnsQueryType::Aaaa).await,
            _ => self.lookup_type(name, DnsQueryType::A).await,
        }
    }

    async fn lookup_both(&self, name: Name) -> Result<Vec<IpAddr>, DnsError> {
        let mut v6 = pin!(self.lookup_type(name.clone(), DnsQueryType::Aaaa));
        let mut v4 = pin!(self.lookup_type(name, DnsQueryType::A));
        let (mut found6, mut found4) = (None, None);
        let mut end = None;
        poll_fn(|context| {
            if found6.is_none()
                && let Poll::Ready(result) = v6.as_mut().poll(context)
            {
                found6 = Some(result);
            }
            if found4.is_none()
                && let Poll::Ready(result) = v4.as_mut().poll(context)
            {
                found4 = Some(result);
            }
            let now = self.stack.now();
            if matches!(found6, Some(Ok(_))) || matches!(found4, Some(Ok(_))) {
                end.get_or_insert(now + RESOLUTION_DELAY);
            }
            let both = found6.is_some() && found4.is_some();
            if both || end.is_some_and(|end| now >= end) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        let mut addresses = Vec::new();
        let mut errors = Vec::new();
        for result in [found6, found4].into_iter().flatten() {
            match result {
                Ok(found) => addresses.extend(found),
                Err(error) => errors.push(error),
            }
        }
        let worst = errors.into_iter().min_by_key(DnsError::rank);
        match worst {
            Some(error) if addresses.is_empty() => Err(error),
            _ => Ok(addresses),
        }
    }

    async fn lookup_type(
        &self,
        mut name: Name,
        record: DnsQueryType,
    ) -> Result<Vec<IpAddr>, DnsError> {
        let text = || self.name.to_owned();
        for _ in 0..=MAX_ALIASES {
            match self.ask(&name, record).await? {
                (server, Answer::Addresses(mut addresses)) => {
                    let first = addresses.first().copied();
                    addresses.retain(|&address| self.is_other_host(address));
                    return match first {
                        Some(address) if addresses.is_empty() => Err(DnsError::NoHost {
                            name: text(),
                            server,
                            address,
                        }),
                        _ => Ok(addresses),
                    };
                }
                (_, Answer::Alias(target)) => name = target,
                (_, Answer::NoAddress) => {
                    return Err(DnsError::NoAddress {
                        name: text(),
                        records: match self.versions {
                            Versions { v4: true, v6: true } => "address (A or AAAA record)",
                            Versions { v6: true, .. } => "IPv6 address (AAAA record)",
                            _ => "IPv4 address (A record)",
                        },
                    });
                }
                (_, Answer::NotFound) => {
                    return Err(DnsError::NotFound {
                        name: text(),
                        tried: Vec::new(),
                    });
                }
                (server, Answer::Failed(reason)) => {
                    return Err(DnsError::Failed {
                        name: text(),
                        server,
                        reason,
                    });
                }
            }
        }
        Err(DnsError::Aliases { name: text() })
    }

    /// Whether one host can have `address`, and it is not this one.
    fn is_other_host(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let ours = self.stack.address();
                is_host(address)
                    && ours.is_none_or(|ours| {
                        ours.address() != address && ours.broadcast() != Some(address)
                    })
            }
            IpAddr::V6(address) => {
                let ours = self.stack.addresses6();
                !address.is_unspecified()
                    && !address.is_loopback()
                    && !address.is_multicast()
                    && address.to_ipv4_mapped().is_none()
                    && ours.iter().all(|ours| ours.address() != address)
            }
        }
    }

    /// Asks the servers until one knows. If none does: that there is no such name where one says so, else what one that failed says.
    async fn ask(&self, name: &Name, record: DnsQueryType) -> Result<(IpAddr, Answer), DnsError> {
        let started = self.stack.now();
        let mut failed = None;
        let servers: Vec<SocketAddr> = self
            .servers
            .iter()
            .map(|&server| SocketAddr::new(server, PORT))
            .collect();
        let mut next = started;
        for wait in WAITS {
            // A server that fails may be starting, as a silent one.
            self.stack.sleep(next - self.stack.now()).await;
            let wait = Duration::from_secs(wait);
            next = self.stack.now() + wait;
            let silent = Cell::new(false);
            let denier = Cell::new(None::<IpAddr>);
            let answer = race::first(self.stack, &servers, None, async |server| {
                let query = self.query(server, name, record);
                match self.stack.timeout(wait, query).await {
                    Some(answer @ Answer::Failed(_)) => Err(Some((server.ip(), answer))),
                    Some(Answer::NotFound) if self.others_may_know(server.ip(), denier.get()) => {
                        denier.set(Some(server.ip()));
                        Err(None)
                    }
                    Some(answer) => Ok(answer),
                    None => {
                        silent.set(true);
                        Err(None)
                    }
                }
            });
            match answer.await {
                Ok((server, answer)) => return Ok((server.ip(), answer)),
                Err(failure) => failed = failure.or(failed),
            }
            if let Some(denier) = denier.get() {
                return Ok((denier, Answer::NotFound));
            }
            if failed.is_some() && !silent.get() && !self.is_last {
                break;
            }
        }
        failed.ok_or_else(|| self.no_answer(self.stack.now() - started))
    }

    /// Whether servers of the other IP version may know a name of which `server` says that there is none. `denier`: one that has said so
    /// before.
    fn others_may_know(&self, server: IpAddr, denier: Option<IpAddr>) -> bool {
        let is_other = |other: &IpAddr| other.is_ipv4() != server.is_ipv4();
        let both_deny = denier.as_ref().is_some_and(is_other);
        self.servers.iter().any(is_other) && !both_deny
    }

    /// One question to one server. Waits for its answer forever.
    async fn query(&self, server: SocketAddr, name: &Name, record: DnsQueryType) -> Answer {
        let id = self.stack.random() as u16;
        let socket = self.stack.udp();
        if let Err(error) = socket.send_to(server, &question(id, name, record)) {
            return Answer::Failed(format!("nothing, since it cannot be asked ({error})"));
        }
        loop {
            let mut receive = pin!(socket.receive());
            let answer = poll_fn(|context| {
                if socket.was_refused_by(server) {
                    return Poll::Ready(None);
                }
                receive.as_mut().poll(context).map(Some)
            });
            let Some((source, bytes)) = answer.await else {
                return Answer::Failed(format!("nothing: nobody listens on its UDP port {PORT}"));
            };
            if (source.ip(), source.port()) == (server.ip(), server.port())
                && let Some(answer) = parse_answer(&bytes, id, name, record)
            {
                return answer;
            }
        }
    }
}

impl DnsError {
    /// Of several errors the one that says most comes first.
    fn rank(&self) -> u8 {
        match self {
            Self::NoHost { .. } => 0,
            Self::Failed { .. } => 1,
            Self::Aliases { .. } => 2,
            Self::NoAddress { .. } => 3,
            Self::NoAnswer { .. } => 4,
            _ => 5,
        }
    }
}
