//! What to answer to a DHCPv6 message: no socket, no clock of its own.
//!
//! What a client boots is `boot`'s choice, always a URL (option 59).
//!
//! With addresses to give, it is a DHCPv6 server. Without, it answers clients that boot, as PXE's proxy: an Advertise that holds a boot
//! file and no address, and a Reply to who asks at port 4011. Information-requests are answered in both cases, where there is something to tell.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wireboot_wire::dhcpv6::option::{self, IaAddress, IaNa, Status, StatusCode};
use wireboot_wire::dhcpv6::{Message, MessageType, Options, Writer, duid};
use wireboot_wire::text;

use crate::boot::{Boot, Client, FileUrls, Machines, Untold};
use crate::boot_conf::BOOT_CONFIGURATION;
use crate::directory::Directory;
use crate::event::{Event, Kind};
use crate::leases::Lease;
use crate::other_servers::OtherServers;
use crate::pool::{self, Pool};
use crate::ports::Port;

/// How long a client may use its address.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(3600);
/// When it asks its server for more (half of it), and any server (four fifths): RFC 8415 section 21.4.
const T1: u32 = 1800;
const T2: u32 = 2880;
/// Associations of one message that are served; no machine has more, and a message must not empty the pool.
const ASSOCIATIONS: usize = 8;
/// The addresses to give of an IPv6 network, by their last 16 bits: low ones are for machines with a place of their own.
const IPV6_RANGE: RangeInclusive<u128> = 0x1000..=0xffff;
/// Bits of the longest IPv6 prefix that has room for that range.
const IPV6_PREFIX: u8 = 112;
/// A client takes a server with this preference at once (section 18.2.1).
const TAKEN_AT_ONCE: u8 = 255;

/// What the answers are made of.
#[derive(Clone, Debug)]
pub struct Answers {
    /// DUID of this server.
    pub server_id: Vec<u8>,
    /// Address of this server, as it stands in URLs.
    pub server: Ipv6Addr,
    /// Other addresses of this machine, which no client is given.
    pub own: Vec<Ipv6Addr>,
    /// Link-local address of this server.
    pub link_local: Option<Ipv6Addr>,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// Addresses to give; `None` beside a router or server that does.
    pub range: Option<RangeInclusive<Ipv6Addr>>,
    /// Name servers of the clients.
    pub dns: Vec<Ipv6Addr>,
    /// Where the boot files are.
    pub directory: Arc<Directory>,
    /// True when files can be had by TFTP.
    pub tftp: bool,
    /// `http://[SERVER][:PORT]`, when there is an HTTP server.
    pub http: Option<String>,
}

/// The addresses to give of this server's network. None where there is no room.
pub(crate) fn range_of(server: Ipv6Addr, prefix: u8) -> Option<RangeInclusive<Ipv6Addr>> {
    (prefix <= IPV6_PREFIX).then_some(())?;
    let network = u128::from(server) >> 16 << 16;
    let (first, last) = IPV6_RANGE.into_inner();
    // The bits between the prefix and the last 16 are those of this server.
    Some((network | first).into()..=(network | last).into())
}

/// A DHCPv6 server without its sockets.
#[derive(Debug)]
pub struct Responder {
    answers: Answers,
    pool: Option<Pool<Ipv6Addr>>,
    others: OtherServers,
    machines: Machines,
}

impl Responder {
    /// A server that answers so.
    pub fn new(answers: Answers) -> Self {
        let pool = answers
            .range
            .clone()
            .map(|range| Pool::new(range, excluded(&answers), LEASE_TIME));
        Self {
            answers,
            pool,
            others: OtherServers::default(),
            machines: Machines::default(),
        }
    }

    /// With leases that were made before.
    pub(crate) fn with(mut self, leases: Vec<Lease<Ipv6Addr>>) -> Self {
        self.pool = self.pool.map(|pool| pool.with(leases));
        self
    }

    /// The leases that have begun or ended since the last call.
    pub(crate) fn changed(&mut self) -> Vec<Lease<Ipv6Addr>> {
        self.pool.as_mut().map(Pool::changed).unwrap_or_default()
    }

    /// Gives no addresses from when `others` has found another server that does.
    pub(crate) fn unless(mut self, others: OtherServers) -> Self {
        self.others = others;
        self
    }

    /// The answer to a datagram that came from `source`, if there is one, and what there is to tell.
    pub fn answer(
        &mut self,
        datagram: &[u8],
        source: SocketAddrV6,
        port: Port,
        now: Instant,
    ) -> (Option<Vec<u8>>, Vec<Event>) {
        let Ok(request) = Message::parse(datagram) else {
            return (None, Vec::new());
        };
        if self.others.found() {
            self.pool = None;
        }
        if !self.is_for_me(&request) {
            if request.kind == MessageType::Request && request.options.server_id().is_some() {
                self.others.named(None);
            }
            return (None, Vec::new());
        }
        let (boot, untold) = self.boot(&request, *source.ip(), now);
        let reply = match (port, self.pool.is_some()) {
            _ if self.has_no_information(&request, &boot) => None,
            (Port::Server, true) => self.server(&request, &boot, now),
            (Port::Server, false) => self.without_addresses(&request, &boot),
            (Port::Pxe, _) => self.boot_server(&request, &boot),
        };
        if reply.is_none() && self.pool.is_none() && untold.is_none() {
            // The business of the server that gives the addresses.
            return (None, Vec::new());
        }
        let asked = Event::now(Kind::Dhcpv6Request, source.ip()).message(describe(&request));
        let mut events = vec![match request.options.client_id() {
            Some(duid) => asked.duid(duid),
            None => asked,
        }];
        if let Some(untold) = untold {
            let event = Event::now(Kind::Dhcpv6Ignored, source.ip());
            events.push(untold.told_by(event));
        }
        let reply = reply.map(Writer::finish);
        events.extend(reply.as_deref().and_then(|reply| sent(reply, source.ip())));
        (reply, events)
    }

    /// Section 16: which messages a server discards.
    fn is_for_me(&self, request: &Message<'_>) -> bool {
        let options = request.options;
        let known = options.client_id().is_some();
        let server = options.server_id();
        let mine = server == Some(self.answers.server_id.as_slice());
        match request.kind {
            MessageType::Solicit | MessageType::Confirm | MessageType::Rebind => {
                known && server.is_none()
            }
            MessageType::Request
            | MessageType::Renew
            | MessageType::Decline
            | MessageType::Release => known && mine,
            MessageType::InformationRequest => {
                let associations = options.all(option::IA_NA).chain(options.all(option::IA_TA));
                (server.is_none() || mine) && associations.count() == 0
            }
            MessageType::Advertise | MessageType::Reply | MessageType::Reconfigure => false,
        }
    }

    /// Whether it is an Information-request, and asks for nothing that there is. The client takes the first Reply, though it be empty, and
    /// may not ask again for a day (RFC 8415 sections 18.2.6 and 21.23): it must be able to hear another server's.
    fn has_no_information(&self, request: &Message<'_>, boot: &Boot) -> bool {
        request.kind == MessageType::InformationRequest
            && !matches!(boot, Boot::File(_))
            && !self.tells_dns(&request.options)
    }

    /// Whether the client asks for name servers, and there are any.
    fn tells_dns(&self, request: &Options<'_>) -> bool {
        let mut wanted = request.option_request();
        !self.answers.dns.is_empty() && wanted.any(|wanted| wanted == option::DNS_SERVERS)
    }

    /// Section 18.3, with addresses to give.
    fn server(&mut self, request: &Message<'_>, boot: &Boot, now: Instant) -> Option<Writer> {
        let options = request.options;
        let commits = request.kind == MessageType::Solicit && options.rapid_commit();
        let kind = match request.kind {
            MessageType::Solicit if !commits => MessageType::Advertise,
            _ => MessageType::Reply,
        };
        let mut reply = self.reply(kind, request);
        match request.kind {
            MessageType::Solicit | MessageType::Request => {
                if commits {
                    reply.option(option::RAPID_COMMIT, []);
                } else if kind == MessageType::Advertise {
                    reply.option(option::PREFERENCE, [TAKEN_AT_ONCE]);
                }
                for ia in options.ia_na().take(ASSOCIATIONS) {
                    let asked = request.kind == MessageType::Request;
                    let commit = asked || commits;
                    let given = self.give(key(&options, &ia), &ia, asked, commit, now);
                    association(&mut reply, &ia, &given);
                }
            }
            MessageType::Renew | MessageType::Rebind => {
                for ia in options.ia_na().take(ASSOCIATIONS) {
                    let given = self.extend(key(&options, &ia), &ia, now);
                    association(&mut reply, &ia, &given);
                }
            }
            MessageType::Confirm => {
                let addresses = || options.ia_na().flat_map(|ia| ia.options.ia_addresses());
                addresses().next()?;
                let code = match addresses().all(|one| self.is_on_network(one.address)) {
                    true => StatusCode::SUCCESS,
                    false => StatusCode::NOT_ON_LINK,
                };
                reply.status(status(code));
                return Some(reply);
            }
            MessageType::Release | MessageType::Decline => {
                let pool = self.pool.as_mut()?;
                for ia in options.ia_na().take(ASSOCIATIONS) {
                    let key = key(&options, &ia);
                    let held = pool.held_by(&key, now);
                    let mut named = ia.options.ia_addresses().map(|one| one.address);
                    match held.filter(|held| named.any(|one| one == *held)) {
                        Some(_) if request.kind == MessageType::Release => pool.release(&key, now),
                        Some(address) => pool.decline(&key, address, now),
                        None => association(&mut reply, &ia, &Given::none(StatusCode::NO_BINDING)),
                    }
                }
                reply.status(status(StatusCode::SUCCESS));
                return Some(reply);
            }
            _ => {}
        }
        self.configuration(&mut reply, &options, boot);
        Some(reply)
    }

    /// An address for an association: what the client names, if it can be had, else another. In a Request it names what it believes to have
    /// on this link; in a Solicit, what it would like.
    fn give(
        &mut self,
        client: pool::Client,
        ia: &IaNa<'_>,
        is_request: bool,
        commit: bool,
        now: Instant,
    ) -> Given {
        let wish = ia.options.ia_addresses().map(|one| one.address).next();
        let elsewhere = wish.is_some_and(|wish| !self.is_on_network(wish));
        if is_request && elsewhere {
            return Given::none(StatusCode::NOT_ON_LINK);
        }
        let Some(pool) = self.pool.as_mut() else {
            return Given::none(StatusCode::NO_ADDRS_AVAIL);
        };
        let offered = pool.offer(&client, wish, now);
        match offered {
            Some(address) if !commit || pool.lease(&client, address, now) => Given {
                address: Some(address),
                ..Given::none(StatusCode::SUCCESS)
            },
            _ => Given::none(StatusCode::NO_ADDRS_AVAIL),
        }
    }

    /// More time for the addresses of an association. After a restart of this server, a client's own address is taken for granted.
    fn extend(&mut self, client: pool::Client, ia: &IaNa<'_>, now: Instant) -> Given {
        let mut given = Given::none(StatusCode::SUCCESS);
        for one in ia.options.ia_addresses() {
            let pool = self.pool.as_mut();
            let extended = given.address.is_none()
                && pool.is_some_and(|pool| pool.lease(&client, one.address, now));
            match extended {
                true => given.address = Some(one.address),
                false => given.taken_back.push(one.address),
            }
        }
        if given.address.is_none() && given.taken_back.is_empty() {
            given.code = StatusCode::NO_BINDING;
        }
        given
    }

    /// Beside a server that gives the addresses: who asks for information, or boots, gets what there is.
    fn without_addresses(&self, request: &Message<'_>, boot: &Boot) -> Option<Writer> {
        let kind = match (request.kind, boot) {
            (MessageType::InformationRequest, _) => MessageType::Reply,
            (MessageType::Solicit, Boot::File(_)) => MessageType::Advertise,
            _ => return None,
        };
        let mut reply = self.reply(kind, request);
        self.configuration(&mut reply, &request.options, boot);
        Some(reply)
    }

    fn boot_server(&self, request: &Message<'_>, boot: &Boot) -> Option<Writer> {
        let asks = matches!(
            request.kind,
            MessageType::Request | MessageType::InformationRequest
        );
        if !asks || !matches!(boot, Boot::File(_)) {
            return None;
        }
        let mut reply = self.reply(MessageType::Reply, request);
        self.configuration(&mut reply, &request.options, boot);
        Some(reply)
    }

    /// A message to the client with both identifiers.
    fn reply(&self, kind: MessageType, request: &Message<'_>) -> Writer {
        let mut reply = Writer::new(kind, request.transaction_id);
        reply.option(option::SERVER_ID, &self.answers.server_id);
        if let Some(client) = request.options.client_id() {
            reply.option(option::CLIENT_ID, client);
        }
        reply
    }

    /// All but addresses. EDK II's HTTP Boot reads the URL up to a zero byte, which is the first one of the option behind it.
    fn configuration(&self, reply: &mut Writer, request: &Options<'_>, boot: &Boot) {
        if let Boot::File(url) = boot {
            reply.option(option::BOOT_FILE_URL, url);
            let (enterprise_number, class) = vendor_class(request);
            // With its own class, PXE firmware would take the server for a proxy and ask port 4011 once more.
            let http = class.starts_with("HTTPClient");
            let echoed = match (http, self.pool.is_some()) {
                (true, _) => Some("HTTPClient"),
                (false, false) if class.starts_with("PXEClient") => Some("PXEClient"),
                _ => None,
            };
            if let Some(class) = echoed {
                reply.vendor_class(enterprise_number, &[class]);
            }
        }
        if self.tells_dns(request) {
            reply.addresses(option::DNS_SERVERS, &self.answers.dns);
        }
        reply.status(status(StatusCode::SUCCESS));
    }

    fn boot(
        &mut self,
        request: &Message<'_>,
        machine: Ipv6Addr,
        now: Instant,
    ) -> (Boot, Option<Untold>) {
        let options = request.options;
        let tftp = format!("tftp://[{}]", self.answers.server);
        let http = self.answers.http.as_ref();
        // Firmware asks a proxy at port 4011 before it has an address that could reach any other, and reads the file from there.
        let from_proxy = self.pool.is_none() && request.kind != MessageType::InformationRequest;
        let pxe = self.answers.link_local.filter(|_| from_proxy);
        let pxe = pxe.map_or_else(|| tftp.clone(), |address| format!("tftp://[{address}]"));
        let url = format!("{}/", http.unwrap_or(&tftp));
        let urls = FileUrls {
            configuration: format!("{url}{BOOT_CONFIGURATION}"),
            http: http.map(|http| format!("{http}/")),
            tftp: self.answers.tftp.then(|| format!("{pxe}/")),
            url,
        };
        let client = Client {
            user_classes: options.user_classes(),
            vendor_class: vendor_class(&options).1,
            architectures: options.architectures().collect(),
            has_ipxe_options: false,
        };
        let directory = &self.answers.directory;
        self.machines
            .boots(&machine.octets(), &client, urls, directory, now)
    }

    fn is_on_network(&self, address: Ipv6Addr) -> bool {
        let host_bits = u128::MAX
            .checked_shr(self.answers.prefix.into())
            .unwrap_or(0);
        u128::from(address) | host_bits == u128::from(self.answers.server) | host_bits
    }
}

/// The addresses of machines that do not ask here: no client is given them, even if they are of the range.
fn excluded(answers: &Answers) -> BTreeSet<Ipv6Addr> {
    let others = answers.own.iter().chain(&answers.dns).copied();
    [answers.server].into_iter().chain(others).collect()
}

/// What an association gets.
struct Given {
    address: Option<Ipv6Addr>,
    /// Addresses that the client must not use any more.
    taken_back: Vec<Ipv6Addr>,
    code: StatusCode,
}

impl Given {
    fn none(code: StatusCode) -> Self {
        Self {
            address: None,
            taken_back: Vec::new(),
            code,
        }
    }
}

fn association(reply: &mut Writer, ia: &IaNa<'_>, given: &Given) {
    let ia = IaNa {
        t1: given.address.map_or(0, |_| T1),
        t2: given.address.map_or(0, |_| T2),
        ..*ia
    };
    reply.ia_na(&ia, |inner| {
        let kept = given.address.map(|address| (address, LEASE_TIME));
        let taken_back = given.taken_back.iter().map(|&one| (one, Duration::ZERO));
        for (address, time) in kept.into_iter().chain(taken_back) {
            inner.ia_address(&IaAddress {
                address,
                preferred_lifetime: time.as_secs() as u32,
                valid_lifetime: time.as_secs() as u32,
                options: Options::default(),
            });
        }
        if given.code != StatusCode::SUCCESS {
            inner.status(status(given.code));
        }
    });
}

/// What a client is known by: which of its associations, and its DUID.
fn key(options: &Options<'_>, ia: &IaNa<'_>) -> pool::Client {
    [
        &ia.iaid.to_be_bytes(),
        options.client_id().unwrap_or_default(),
    ]
    .concat()
}

fn status(code: StatusCode) -> Status<'static> {
    let message: &[u8] = match code {
        StatusCode::NO_ADDRS_AVAIL => b"all addresses are taken",
        StatusCode::NO_BINDING => b"this server knows nothing of it",
        StatusCode::NOT_ON_LINK => b"the address is not of this network",
        _ => b"",
    };
    Status { code, message }
}

/// The vendor class that tells how the client boots. Firmware that sends none is known by its architecture.
fn vendor_class<'a>(options: &Options<'a>) -> (u32, &'a str) {
    let classes = options.vendor_classes().flat_map(|vendor| {
        let classes = vendor.classes.into_iter();
        classes.map(move |class| (vendor.enterprise_number, class))
    });
    let mut boots = classes.filter_map(|(number, class)| {
        let class = str::from_utf8(class).ok()?;
        let known = class.starts_with("HTTPClient") || class.starts_with("PXEClient");
        known.then_some((number, class))
    });
    boots.next().unwrap_or_else(|| {
        let class = if options.architectures().any(|one| one == X64_HTTP) {
            "HTTPClient"
        } else if options.architectures().next().is_some() {
            "PXEClient"
        } else {
            ""
        };
        (INTEL, class)
    })
}

/// Enterprise number of the vendor class in UEFI.
const INTEL: u32 = 343;
/// Client system architecture of x64 HTTP Boot.
const X64_HTTP: u16 = 16;

fn sent(reply: &[u8], client: &Ipv6Addr) -> Option<Event> {
    let message = Message::parse(reply).ok()?;
    let kind = match message.kind {
        MessageType::Advertise => Kind::Dhcpv6Advertise,
        _ => Kind::Dhcpv6Reply,
    };
    let mut event = Event::now(kind, client);
    let mut associations = message.options.ia_na();
    if let Some(ia) = associations.next() {
        match ia.options.ia_addresses().next() {
            Some(one) => event = event.address(one.address),
            None => event = event.message(text::shown(ia.options.status().message)),
        }
    }
    Some(match message.options.boot_file_url() {
        Some(url) => event.message(format!("boot file {url}")),
        None => event,
    })
}

/// Who asks for what.
fn describe(request: &Message<'_>) -> String {
    let options = request.options;
    let what = match request.kind {
        MessageType::Solicit => "Solicit",
        MessageType::Request => "Request",
        MessageType::Confirm => "Confirm",
        MessageType::Renew => "Renew",
        MessageType::Rebind => "Rebind",
        MessageType::Release => "Release",
        MessageType::Decline => "Decline",
        MessageType::InformationRequest => "Information-request",
        MessageType::Advertise | MessageType::Reply | MessageType::Reconfigure => "a server's",
    };
    let mut words = what.to_owned();
    let id = options.client_id().unwrap_or_default();
    let hex = |bytes: &[u8], separator: &str| {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.join(separator)
    };
    if let Some(mac) = duid::mac(id) {
        words += &format!(" from {}", hex(&mac, ":"));
    } else if let Some(uuid) = duid::uuid(id) {
        words += &format!(" from machine {}", hex(&uuid, ""));
    }
    for vendor in options.vendor_classes() {
        for class in vendor.classes {
            words += &format!(", {}", text::shown(class));
        }
    }
    for class in options.user_classes() {
        words += &format!(", user class {}", text::shown(class));
    }
    words
}

#[cfg(test)]
mod tests;
