//! The exchange with the servers: messages and times in, messages and an outcome out.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use wireboot_net::{Duration, Instant};
use wireboot_wire::dhcpv6::{Message, MessageType, Options, Status, StatusCode};
use wireboot_wire::text;

use super::Dhcp6Error;
use super::lease::Lease6;
use super::message::Identity;
use super::offers::{Offer, Offers};
use super::retransmission::{Rand, Retransmission};
use crate::dhcp_request::{DhcpRequest, LeaseSource};

/// SOL_TIMEOUT, REQ_TIMEOUT, DEC_TIMEOUT and INF_TIMEOUT (RFC 8415 section 7.6).
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time between two messages; the RFC's limits, of minutes, are for machines that go on for ever.
const MAX_RT: Duration = Duration::from_secs(8);
/// Requests to a server that has advertised, at most.
const REQUESTS: u32 = 3;
/// DEC_MAX_RC (RFC 8415 section 7.6).
const DECLINES: u32 = 4;
/// Messages without an answer after which an address by a router's prefix is all that there is.
const MESSAGES: u32 = 3;
/// How long an advertisement or a Reply with information waits for one that names a boot file, where it names none itself, and a router
/// that knows of no server for one that is there all the same.
const GRACE: Duration = Duration::from_millis(500);
/// How long it all may take, unless the caller says: to outlast a switch port's spanning tree.
const PATIENCE: Duration = Duration::from_secs(39);

/// The end of the client's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Lease(Box<Lease6>),
    Failed(Dhcp6Error),
}

/// The exchange under way (RFC 8415 section 18.2).
#[derive(Clone, Debug)]
enum Exchange {
    Solicit,
    Request(Offer),
    InformationRequest,
    Over(Lease6),
    /// Reports the addresses that neighbours have (section 18.2.8).
    Decline(Vec<Ipv6Addr>),
}

pub(super) struct Client {
    identity: Identity,
    want_boot_file: bool,
    began: Instant,
    end: Instant,
    exchange: Exchange,
    /// The Solicit or Information-request that was sent last.
    discover: Vec<u8>,
    /// Of the exchange, and when it began.
    transaction_id: u32,
    since: Instant,
    /// Of Solicit, which goes on where a Request has failed, and of the other exchanges.
    solicit: Retransmission,
    other: Retransmission,
    offers: Offers,
    /// When the best of them is taken, or the Reply that is kept for want of one with a boot file.
    choice: Option<Instant>,
    /// The DUID of the server that has given addresses.
    giver: Vec<u8>,
    /// When a router said that addresses are its prefixes' and that there is no server.
    unmanaged: Option<Instant>,
    setback: Option<Dhcp6Error>,
    messages: u32,
    malformed: u32,
}

impl Client {
    pub(super) fn new(request: &DhcpRequest, mac: [u8; 6], now: Instant, random: u32) -> Self {
        let timer = Retransmission::new(TIMEOUT, MAX_RT, now);
        Self {
            identity: Identity::new(request, mac),
            want_boot_file: request.want_boot_file,
            began: now,
            end: now + request.patience.unwrap_or(PATIENCE),
            exchange: Exchange::Solicit,
            discover: Vec::new(),
            transaction_id: random & 0x00ff_ffff,
            since: now,
            solicit: timer.clone(),
            other: timer,
            offers: Offers::default(),
            choice: None,
            giver: Vec::new(),
            unmanaged: None,
            setback: None,
            messages: 0,
            malformed: 0,
        }
    }

    /// A router has said whether addresses (M) and other settings (O) come from DHCPv6.
    pub(super) fn router(&mut self, managed: bool, other: bool, now: Instant) {
        let undecided = matches!(self.exchange, Exchange::Solicit) && self.offers.is_empty();
        if managed && matches!(self.exchange, Exchange::InformationRequest) {
            self.solicit_again(now);
        }
        if managed || !undecided {
            self.unmanaged = None;
        } else if other {
            self.transaction_id = self.transaction_id.wrapping_add(1) & 0x00ff_ffff;
            self.begin(Exchange::InformationRequest, now);
        } else if self.unmanaged.is_none() {
            self.unmanaged = Some(now);
            // Servers have the whole wait for an answer, also where no earlier message came through.
            self.solicit.next = now;
        }
    }

    /// A datagram to the client's port.
    pub(super) fn receive(&mut self, source: Ipv6Addr, bytes: &[u8], now: Instant) {
        // Servers and relays are on the link (section 18.2.10: their link-local addresses are what they send from).
        if !source.is_unicast_link_local() {
            return;
        }
        let Ok(message) = Message::parse(bytes) else {
            self.malformed = self.malformed.saturating_add(1);
            return;
        };
        let options = message.options;
        if message.transaction_id != self.transaction_id
            || options.client_id() != Some(&self.identity.duid)
        {
            return;
        }
        let Some(server) = options.server_id() else {
            self.malformed = self.malformed.saturating_add(1);
            return;
        };
        match (&self.exchange, message.kind) {
            (Exchange::Solicit, MessageType::Advertise) => {
                self.advertised(source, server, (options, bytes), now);
            }
            (Exchange::Solicit, MessageType::Reply)
                if self.identity.rapid_commit && options.rapid_commit() =>
            {
                self.replied(source, server, (options, bytes), None, now);
            }
            // Whatever it says, it has heard (section 18.2.10.3).
            (Exchange::Decline(_), MessageType::Reply) if self.giver == server => {
                self.solicit_again(now);
            }
            (Exchange::Request(offer), MessageType::Reply) if offer.server == server => {
                let advertised = offer.lease.clone();
                self.replied(source, server, (options, bytes), Some(&advertised), now);
            }
            (Exchange::InformationRequest | Exchange::Over(_), MessageType::Reply) => {
                self.informed(source, (options, bytes), now);
            }
            _ => {}
        }
    }

    /// What a message says, unless that is that there is nothing.
    fn read(&mut self, source: Ipv6Addr, options: Options<'_>) -> Option<Lease6> {
        let status = options.status();
        if status.code != StatusCode::SUCCESS {
            self.refused(source, status);
            return None;
        }
        let mut lease = Lease6::read(options, Some(self.identity.iaid), LeaseSource::Dhcp);
        lease.server = Some(source);
        Some(lease)
    }

    fn refused(&mut self, server: Ipv6Addr, status: Status<'_>) {
        let name = match status.code {
            StatusCode::NO_ADDRS_AVAIL => "it has none left",
            StatusCode::NOT_ON_LINK => "not on this link",
            _ => "it failed",
        };
        let StatusCode(code) = status.code;
        let words = text::shown(status.message).to_string();
        let reason = match words.as_str() {
            "" => format!("{name} (status {code})"),
            words => format!("{words} (status {code})"),
        };
        self.setback = Some(Dhcp6Error::Refused { server, reason });
    }

    /// The status of our association, where that is why there is no address.
    fn association_refused(&mut self, server: Ipv6Addr, options: Options<'_>) {
        let iaid = self.identity.iaid;
        let status = options
            .ia_na()
            .filter(|ia| ia.iaid == iaid)
            .map(|ia| ia.options.status())
            .find(|status| status.code != StatusCode::SUCCESS);
        self.refused(
            server,
            status.unwrap_or(Status {
                code: StatusCode::NO_ADDRS_AVAIL,
                message: b"",
            }),
        );
    }

    fn advertised(
        &mut self,
        source: Ipv6Addr,
        server: &[u8],
        (options, raw): (Options<'_>, &[u8]),
        now: Instant,
    ) {
        let Some(mut lease) = self.read(source, options) else {
            return;
        };
        if lease.addresses.is_empty() {
            if lease.boot_file.is_some() {
                lease.proxy_offer = raw.to_vec();
                lease.discover.clone_from(&self.discover);
                self.offers.proxy.get_or_insert(lease);
            } else {
                self.association_refused(source, options);
            }
        } else {
            self.offers.keep(Offer {
                server: server.to_vec(),
                preference: options.preference(),
                lease,
            });
        }
        if self.offers.decided(self.want_boot_file) {
            // What else has come already may be better still.
            self.choice = Some(now);
        } else if !self.offers.is_empty() {
            self.choice.get_or_insert(now + GRACE);
        }
    }

    /// A Reply that gives addresses, or not.
    fn replied(
        &mut self,
        source: Ipv6Addr,
        server: &[u8],
        (options, raw): (Options<'_>, &[u8]),
        advertised: Option<&Lease6>,
        now: Instant,
    ) {
        let lease = self.read(source, options);
        match lease {
            Some(mut lease) if !lease.addresses.is_empty() => {
                // The reply has the last word, but there are servers that name the file in the advertisement alone.
                for other in advertised.into_iter().chain(&self.offers.proxy) {
                    lease.or_boot_file_of(other);
                }
                self.giver = server.to_vec();
                self.over(lease, raw);
            }
            read => {
                if read.is_some() {
                    self.association_refused(source, options);
                }
                self.solicit_again(now);
            }
        }
    }

    /// A Reply to the Information-request. One without a boot file is kept, and waits for one that names it: a home router may tell of
    /// name servers alone.
    fn informed(&mut self, source: Ipv6Addr, (options, raw): (Options<'_>, &[u8]), now: Instant) {
        let Some(mut lease) = self.read(source, options) else {
            return;
        };
        lease.addresses.clear();
        if let Some(proxy) = &self.offers.proxy {
            lease.or_boot_file_of(proxy);
        }
        let waits = self.want_boot_file && lease.boot_file.is_none();
        if let Exchange::Over(kept) = &mut self.exchange {
            if waits || self.choice.is_none() {
                return;
            }
            lease.dns.append(&mut kept.dns);
            lease.search.append(&mut kept.search);
        }
        self.over(lease, raw);
        self.choice = waits.then_some(now + GRACE);
    }

    /// There is a lease, by the Reply `raw`.
    fn over(&mut self, mut lease: Lease6, raw: &[u8]) {
        lease.ack = raw.to_vec();
        lease.discover.clone_from(&self.discover);
        self.exchange = Exchange::Over(lease);
        self.choice = None;
    }

    /// Neighbours have these addresses of the lease. The server gets a DECLINE (section 18.2.8), then it is asked again.
    pub(super) fn decline(&mut self, addresses: Vec<Ipv6Addr>, now: Instant) {
        let first = addresses.first();
        self.setback = first.map(|&address| Dhcp6Error::Taken { address });
        self.transaction_id = self.transaction_id.wrapping_add(1) & 0x00ff_ffff;
        self.begin(Exchange::Decline(addresses), now);
    }

    fn begin(&mut self, exchange: Exchange, now: Instant) {
        self.exchange = exchange;
        self.since = now;
        self.other = Retransmission::new(TIMEOUT, MAX_RT, now);
        self.offers.clear_kept();
        self.choice = None;
    }

    /// Back to the start, but not sooner than the next Solicit would have left. Others go before a server that was requested from in vain.
    fn solicit_again(&mut self, now: Instant) {
        if let Exchange::Request(offer) = &self.exchange {
            self.offers.failed.push(offer.server.clone());
        }
        self.begin(Exchange::Solicit, now);
        self.offers.proxy = None;
        self.transaction_id = self.transaction_id.wrapping_add(1) & 0x00ff_ffff;
    }

    /// The message that leaves now, if it is time for one.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        mut random: impl FnMut() -> u32,
    ) -> Option<Vec<u8>> {
        if self.choice.is_some_and(|choice| now >= choice)
            && let Some(best) = self.offers.take_best()
        {
            self.transaction_id = random() & 0x00ff_ffff;
            self.begin(Exchange::Request(best), now);
        }
        if let Exchange::Request(offer) = &self.exchange
            && self.other.count == REQUESTS
            && now >= self.other.next
        {
            if let Some(server) = offer.lease.server {
                self.setback = Some(Dhcp6Error::NoReply { server });
            }
            self.solicit_again(now);
            self.transaction_id = random() & 0x00ff_ffff;
        }
        if matches!(self.exchange, Exchange::Decline(_))
            && self.other.count == DECLINES
            && now >= self.other.next
        {
            self.solicit_again(now);
        }
        let (kind, server, timer, first) = match &self.exchange {
            Exchange::Solicit => (MessageType::Solicit, None, &mut self.solicit, Rand::ABOVE),
            Exchange::Request(offer) => (
                MessageType::Request,
                Some(offer.server.as_slice()),
                &mut self.other,
                Rand::AROUND,
            ),
            Exchange::InformationRequest => (
                MessageType::InformationRequest,
                None,
                &mut self.other,
                Rand::AROUND,
            ),
            Exchange::Decline(_) => (
                MessageType::Decline,
                Some(self.giver.as_slice()),
                &mut self.other,
                Rand::AROUND,
            ),
            Exchange::Over(_) => return None,
        };
        if now < timer.next {
            return None;
        }
        timer.sent(now, first, random());
        self.messages += 1;
        let hundredths = (now - self.since).total_millis() / 10;
        let elapsed = u16::try_from(hundredths).unwrap_or(u16::MAX);
        let id = self.transaction_id;
        let declined = match &self.exchange {
            Exchange::Decline(addresses) => addresses.as_slice(),
            _ => &[],
        };
        let message = self.identity.message(kind, id, elapsed, server, declined);
        if matches!(kind, MessageType::Solicit | MessageType::InformationRequest) {
            self.discover.clone_from(&message);
        }
        Some(message)
    }

    fn timer(&self) -> &Retransmission {
        match self.exchange {
            Exchange::Solicit => &self.solicit,
            _ => &self.other,
        }
    }

    /// How it ended, if it has. `slaac` says whether there is an address by a router's prefix.
    pub(super) fn outcome(&self, slaac: bool, now: Instant) -> Option<Outcome> {
        if let Exchange::Over(lease) = &self.exchange
            && (slaac || !lease.addresses.is_empty())
        {
            let taken = self.choice.is_none_or(|choice| now >= choice);
            return taken.then(|| Outcome::Lease(Box::new(lease.clone())));
        }
        let alone = self.unmanaged.is_some_and(|since| now >= since + GRACE);
        // With an address there is something to boot with; a few messages are enough then.
        let silent = self.messages >= MESSAGES && now >= self.timer().next;
        if slaac && (alone || silent || now >= self.end) {
            // A server without addresses may have named the boot file.
            let proxy = self.offers.proxy.clone();
            let lease = proxy.unwrap_or_else(|| Lease6::new(LeaseSource::Dhcp));
            return Some(Outcome::Lease(Box::new(lease)));
        }
        (now >= self.end).then(|| {
            let silence = Dhcp6Error::NoAnswer {
                messages: self.messages,
                seconds: (now - self.began).secs(),
                malformed: self.malformed,
            };
            Outcome::Failed(self.setback.clone().unwrap_or(silence))
        })
    }
}
