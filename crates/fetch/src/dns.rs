//! A stub resolver (RFC 1034, 1035): A records and the aliases (CNAME) that lead to them, over UDP.
//!
//! Each query has a random ID and a random source port (RFC 5452), and an answer counts only from the server that was asked,
//! to the very question. DNS over TCP is not spoken: an answer too long for a datagram serves as far as it goes.

#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::pin::pin;
use core::task::Poll;

use smoltcp::wire::{
    DnsFlags, DnsOpcode, DnsPacket, DnsQueryType, DnsQuestion, DnsRcode, DnsRecord, DnsRecordData,
    DnsRepr,
};
use wireboot_net::{Duration, Ipv4Address, Stack};

const PORT: u16 = 53;
/// Seconds to wait for each server, in the first round over the servers and the next.
const WAITS: [u64; 3] = [1, 2, 4];
/// Servers asked, as resolvers have it.
const MAX_SERVERS: usize = 3;
/// Aliases followed for one name.
const MAX_ALIASES: usize = 8;
/// Longest name in an answer or question, in bytes with the lengths of its labels (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 255;
const MAX_LABEL: usize = 63;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// DHCP named no server.
    #[error(
        "{name}: no DNS server is known; let DHCP give one (option 6), or write an IP address in the URL"
    )]
    NoServers {
        /// The name.
        name: String,
    },
    /// The name cannot be asked for.
    #[error(
        "{name:?} is no host name: it needs labels of 1 to 63 ASCII characters, 253 in all (international names in \
         their xn-- form)"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The servers say that there is no such name (NXDOMAIN).
    #[error("{name}: no such name (NXDOMAIN for {}); check its spelling, and the domain that DHCP gives", .tried.join(", "))]
    NotFound {
        /// The name.
        name: String,
        /// What was asked for, the search list applied.
        tried: Vec<String>,
    },
    /// The name exists but has no IPv4 address.
    #[error("{name}: the name exists but has no IPv4 address (A record)")]
    NoAddress {
        /// The name.
        name: String,
    },
    /// A server answers, but cannot answer this.
    #[error("{name}: the DNS server {server} answers {reason}; check that server's log")]
    Failed {
        /// The name.
        name: String,
        /// The server.
        server: Ipv4Address,
        /// SERVFAIL and the like.
        reason: String,
    },
    /// No server answers.
    #[error(
        "{name}: no answer from {} in {seconds} s; check that the DNS server that DHCP gives can be reached",
        shown(.servers)
    )]
    NoAnswer {
        /// The name.
        name: String,
        /// The servers asked.
        servers: Vec<Ipv4Address>,
        /// How long it took, in seconds.
        seconds: u64,
    },
    /// The name's aliases lead in a circle, or nowhere.
    #[error("{name}: its CNAME records form a circle, or a chain of more than 8")]
    Aliases {
        /// The name.
        name: String,
    },
}

fn shown(servers: &[Ipv4Address]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("{server}")).collect();
    names.join(", ")
}

/// The IPv4 addresses of `name`, in the order of the answer and never none.
///
/// A name with a dot in it is tried as it is, then with each domain of `search`; one without the other way round; one with
/// a dot at its end only as it is. The first of `servers` are asked in turn, each with more patience in the next
/// round: 7 s for each server in all.
///
/// # Errors
/// [`DnsError`].
pub async fn resolve(
    stack: &Stack,
    servers: &[Ipv4Address],
    search: &[String],
    name: &str,
) -> Result<Vec<Ipv4Address>, DnsError> {
    if servers.is_empty() {
        return Err(DnsError::NoServers {
            name: name.to_owned(),
        });
    }
    let servers = servers.get(..MAX_SERVERS).unwrap_or(servers);
    let resolver = Resolver {
        stack,
        servers,
        name,
    };
    let candidates = candidates(name, search);
    let mut setback: Option<DnsError> = None;
    for candidate in &candidates {
        let error = match Name::from_text(candidate) {
            Some(candidate) => match resolver.lookup(candidate).await {
                Ok(addresses) => return Ok(addresses),
                // The next candidate would wait as long.
                Err(error @ DnsError::NoAnswer { .. }) => return Err(error),
                Err(error) => error,
            },
            None => DnsError::BadName {
                name: name.to_owned(),
            },
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
            tried: candidates,
        }),
        Some(error) => Err(error),
        None => Err(DnsError::BadName {
            name: name.to_owned(),
        }),
    }
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

/// A name as it lies in a packet, without compression and in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name(Vec<u8>);

impl Name {
    fn from_text(text: &str) -> Option<Self> {
        let graphic = text.bytes().all(|b| b.is_ascii_graphic());
        let labels = text.split('.').map(str::as_bytes);
        graphic.then(|| Self::from_labels(labels)).flatten()
    }

    fn from_labels<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut name = Vec::new();
        for label in labels {
            if label.is_empty()
                || label.len() > MAX_LABEL
                || name.len() + label.len() + 2 > MAX_NAME
            {
                return None;
            }
            name.push(label.len() as u8);
            name.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        name.push(0);
        Some(Self(name))
    }

    /// The name that begins at the first of `bytes`, a part of `packet`. Its pointers can only lead back, so this ends.
    fn parse(packet: &DnsPacket<&[u8]>, bytes: &[u8]) -> Option<Self> {
        let mut whole = true;
        let labels = packet.parse_name(bytes).map_while(|label| {
            whole &= label.is_ok();
            label.ok()
        });
        Self::from_labels(labels).filter(|_| whole)
    }
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Addresses(Vec<Ipv4Address>),
    /// The name is another's alias, and that one's addresses are not in the answer.
    Alias(Name),
    NoAddress,
    NotFound,
    Failed(String),
}

struct Resolver<'a> {
    stack: &'a Stack,
    servers: &'a [Ipv4Address],
    /// As the user wrote it, for the messages.
    name: &'a str,
}

impl Resolver<'_> {
    async fn lookup(&self, mut name: Name) -> Result<Vec<Ipv4Address>, DnsError> {
        let text = || self.name.to_owned();
        for _ in 0..=MAX_ALIASES {
            match self.ask(&name).await? {
                (_, Answer::Addresses(addresses)) => return Ok(addresses),
                (_, Answer::Alias(target)) => name = target,
                (_, Answer::NoAddress) => return Err(DnsError::NoAddress { name: text() }),
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

    /// Asks the servers until one knows. If none does: what one that failed says.
    async fn ask(&self, name: &Name) -> Result<(Ipv4Address, Answer), DnsError> {
        let started = self.stack.now();
        let mut failed = None;
        for wait in WAITS {
            for &server in self.servers {
                let wait = Duration::from_secs(wait);
                match self.stack.timeout(wait, self.query(server, name)).await {
                    Some(answer @ Answer::Failed(_)) => failed = Some((server, answer)),
                    Some(answer) => return Ok((server, answer)),
                    None => {}
                }
            }
        }
        failed.ok_or_else(|| DnsError::NoAnswer {
            name: self.name.to_owned(),
            servers: self.servers.to_vec(),
            seconds: (self.stack.now() - started).secs(),
        })
    }

    /// One question to one server. Waits for its answer forever.
    async fn query(&self, server: Ipv4Address, name: &Name) -> Answer {
        let id = self.stack.random() as u16;
        let socket = self.stack.udp();
        let server = SocketAddrV4::new(server, PORT);
        if let Err(error) = socket.send_to(server, &question(id, name)) {
            return Answer::Failed(format!("nothing, since it cannot be asked ({error})"));
        }
        loop {
            let mut receive = pin!(socket.receive());
            let answer = core::future::poll_fn(|context| {
                if socket.was_refused_by(server) {
                    return Poll::Ready(None);
                }
                receive.as_mut().poll(context).map(Some)
            });
            let Some((source, bytes)) = answer.await else {
                return Answer::Failed(format!("nothing: nobody listens on its UDP port {PORT}"));
            };
            if source == server
                && let Some(answer) = parse_answer(&bytes, id, name)
            {
                return answer;
            }
        }
    }
}

fn question(id: u16, name: &Name) -> Vec<u8> {
    let repr = DnsRepr {
        transaction_id: id,
        opcode: DnsOpcode::Query,
        flags: DnsFlags::RECURSION_DESIRED,
        question: DnsQuestion {
            name: &name.0,
            type_: DnsQueryType::A,
        },
    };
    let mut bytes = alloc::vec![0; repr.buffer_len()];
    repr.emit(&mut DnsPacket::new_unchecked(bytes.as_mut_slice()));
    bytes
}

/// What `bytes` answer to the question for `name` with this ID; `None` if they are no answer to it.
fn parse_answer(bytes: &[u8], id: u16, name: &Name) -> Option<Answer> {
    let packet = DnsPacket::new_checked(bytes).ok()?;
    let ours = packet.transaction_id() == id
        && packet.flags().contains(DnsFlags::RESPONSE)
        && packet.opcode() == DnsOpcode::Query
        && packet.question_count() == 1;
    if !ours {
        return None;
    }
    let (mut rest, question) = DnsQuestion::parse(packet.payload()).ok()?;
    if question.type_ != DnsQueryType::A || Name::parse(&packet, question.name)? != *name {
        return None;
    }
    match packet.rcode() {
        DnsRcode::NoError => {}
        DnsRcode::NXDomain => return Some(Answer::NotFound),
        DnsRcode::ServFail => return Some(Answer::Failed("SERVFAIL".to_owned())),
        DnsRcode::Refused => return Some(Answer::Failed("REFUSED".to_owned())),
        other => return Some(Answer::Failed(format!("with code {}", u8::from(other)))),
    }
    let mut addresses = Vec::new();
    let mut aliases = Vec::new();
    for _ in 0..packet.answer_record_count() {
        // A record that cannot be read ends the answer: it was cut off. Those before it hold.
        let Ok((after, record)) = DnsRecord::parse(rest) else {
            break;
        };
        rest = after;
        let Some(owner) = Name::parse(&packet, record.name) else {
            break;
        };
        match record.data {
            DnsRecordData::A(address) if !address.is_unspecified() => {
                addresses.push((owner, address))
            }
            DnsRecordData::Cname(target) => match Name::parse(&packet, target) {
                Some(target) => aliases.push((owner, target)),
                None => break,
            },
            _ => {}
        }
    }
    // The aliases may be in any order; each leads on at most once, so a circle ends.
    let mut current = name.clone();
    while let Some(at) = aliases.iter().position(|(owner, _)| *owner == current) {
        (_, current) = aliases.swap_remove(at);
    }
    addresses.retain(|(owner, _)| *owner == current);
    if !addresses.is_empty() {
        Some(Answer::Addresses(
            addresses.into_iter().map(|(_, address)| address).collect(),
        ))
    } else if current != *name {
        Some(Answer::Alias(current))
    } else if packet.flags().contains(DnsFlags::TRUNCATED) {
        Some(Answer::Failed("more than fits a datagram".to_owned()))
    } else {
        Some(Answer::NoAddress)
    }
}

/// Body of a fuzz target: an answer to the question that the packet itself holds, read as a resolver would.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_dns(data: &[u8]) {
    let Ok(packet) = DnsPacket::new_checked(data) else {
        return;
    };
    let Ok((_, asked)) = DnsQuestion::parse(packet.payload()) else {
        return;
    };
    let Some(name) = Name::parse(&packet, asked.name) else {
        return;
    };
    let id = packet.transaction_id();
    assert_eq!(
        parse_answer(data, !id, &name),
        None,
        "an answer to another question"
    );
    let sent = question(id, &name);
    assert_eq!(
        parse_answer(&sent, id, &name),
        None,
        "a question is no answer"
    );
    match parse_answer(data, id, &name) {
        Some(Answer::Addresses(addresses)) => {
            // Each takes a record of 16 bytes at least.
            assert!(!addresses.is_empty() && addresses.len() * 15 <= data.len());
        }
        Some(Answer::Alias(target)) => assert!(target != name && target.0.len() <= MAX_NAME),
        _ => {}
    }
}
