//! The server as one station on a link of its own: frames and the time in, frames out. No socket, no clock, and no thread but one for each report
//! that is being written.
//!
//! ```text
//!   frame ──> frame::parse ──┬── ARP, discovery, echo ──────────────┐
//!                            ├── UDP 67, 547 ──> DHCP's Responders ─┤
//!                            ├── UDP 69, others ──> downloads       ├──> answers: whole frames, few
//!                            ├── UDP 7077 ──> ladder ───────────────┤
//!                            └── TCP 80 ──> exchanges ──────────────┘
//!
//!   Station::next: an answer, else the next block, segment or datagram of a flow: its headers, and where the bytes behind them lie
//! ```
//!
//! The bytes of files stay where they are: whoever carries a frame takes them from there ([`Payload::pieces`]). What leaves is bounded by the
//! windows of TFTP and TCP, and nothing is made before it can leave.
//!
//! Answers go to the Ethernet address that was heard, so the station asks nobody for one, and keeps none.

mod discovery;
mod downloads;
mod exchanges;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod held;
mod ladder;
mod payload;
mod report;
mod step;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wireboot_tcp::{Transmit, closed};
use wireboot_wire::dhcp::{CLIENT_PORT, SERVER_PORT};
use wireboot_wire::dhcpv6::{self as wire6, duid};

use self::discovery::Discovery;
use self::downloads::Downloads;
use self::exchanges::Exchanges;
use self::frame::{Arrived, Mac, Peer};
use self::held::{Held, Made};
use self::ladder::LadderSender;
use self::step::FlowStep;
use crate::dhcp::{Answers, Destination, Responder};
use crate::dhcpv6::{self, range_of};
use crate::directory::Directory;
use crate::event::{Event, Events, Kind};
use crate::interface::Networks;
use crate::link_socket::speaker_of;
use crate::ports::Port;
use crate::ra::Advertisement;
use crate::reports::Reports;
pub use frame::Partial;
pub use payload::{Payload, Piece};

/// Bits of the prefixes of a station's networks.
const PREFIX: u8 = 24;
const PREFIX_IPV6: u8 = 64;
/// Its Ethernet address, a locally administered one.
const MAC: Mac = [0x02, 0x77, 0x62, 0x6f, 0x6f, 0x74];
/// The address of IPv6 that it has by that one (RFC 4291, appendix A).
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0077, 0x62ff, 0xfe6f, 0x6f74);
/// The longest packet of its link.
pub const MTU: usize = 1500;
/// Where clients of DHCPv6 ask.
const ALL_DHCPV6_SERVERS: SocketAddr = SocketAddr::V6(SocketAddrV6::new(
    wire6::ALL_SERVERS,
    wire6::SERVER_PORT,
    0,
    0,
));
/// Answers that wait. What is to be answered beyond is lost, as on a wire, and asked for again.
const MAX_ANSWERS: usize = 64;
/// Frames of one flow in a row while others may have some, too.
const STREAK: u32 = 32;

/// A frame that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its headers; of a short frame, all of it.
    pub head: &'a [u8],
    /// What follows `head`; empty where `head` is the whole frame.
    pub payload: Payload<'a>,
    /// The checksum that is not complete.
    pub partial: Option<Partial>,
    /// How it is to be cut into several, where it is longer than the link's MTU.
    pub cut: Option<Cut>,
}

/// How a frame is cut, for who cannot take it whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// To segments of TCP over IPv4 with so many bytes of payload.
    SegmentsIpv4(u16),
    /// The same over IPv6.
    SegmentsIpv6(u16),
    /// To fragments of IP with so many bytes of payload.
    Fragments(u16),
}

/// How long frames may be that are to be cut to segments, for who takes them, by IP version.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    /// For clients of IPv4, in bytes with the Ethernet header; `None` for single segments.
    pub ipv4: Option<usize>,
    /// For clients of IPv6, in bytes with the Ethernet header; `None` for single segments.
    pub ipv6: Option<usize>,
}

impl Longest {
    fn to(self, client: IpAddr) -> Option<usize> {
        match client {
            IpAddr::V4(_) => self.ipv4,
            IpAddr::V6(_) => self.ipv6,
        }
    }
}

/// What all flows share.
#[derive(Debug)]
struct StationHost {
    mac: Mac,
    address: Ipv4Addr,
    /// Of its link. All stations of a process share one log and one folder for reports, so each answers its own hosts alone.
    networks: Networks,
    discovery: Discovery,
    answers: VecDeque<Vec<u8>>,
    /// Where reports go, if they are taken in.
    reports: Option<Arc<Reports>>,
    events: Events,
    epoch: Instant,
}

impl StationHost {
    fn answer(&mut self, frame: Vec<u8>) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back(frame);
        }
    }

    /// Sends a segment without payload.
    fn reset(&mut self, to: Peer, from: SocketAddr, out: &Transmit) {
        self.answer(frame::segment(self.mac, from, to, out));
    }

    fn tcp_time(&self, now: Instant) -> wireboot_tcp::Instant {
        let micros = now.saturating_duration_since(self.epoch).as_micros();
        wireboot_tcp::Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    fn time_of(&self, at: wireboot_tcp::Instant) -> Instant {
        let micros = u64::try_from(at.total_micros()).unwrap_or(0);
        self.epoch + Duration::from_micros(micros)
    }
}

/// One of the flows.
#[derive(Clone, Copy, Debug)]
enum Flow {
    Download(usize),
    Exchange(usize),
    Ladder,
}

/// A server on a link.
pub struct Station {
    host: StationHost,
    directory: Arc<Directory>,
    responder: Responder,
    responder6: dhcpv6::Responder,
    downloads: Downloads,
    exchanges: Exchanges,
    ladder: LadderSender,
    /// The flow whose turn it is: downloads first.
    turn: usize,
    streak: u32,
    /// The last frame, and whose it was.
    last: Option<(Flow, Made)>,
    head: Vec<u8>,
    due: Option<Instant>,
}

impl Station {
    /// Serves `directory` on 10.77.`network`.0/24 and fd00:77:0:`network`::/64, as the first host of both. Of `random`, which must be unpredictable, initial sequence numbers and
    /// ports are made. All times count from when this is called.
    #[must_use]
    pub fn new(directory: Directory, events: Events, network: u8, random: [u8; 18]) -> Self {
        let directory = Arc::new(directory);
        let host = |number| Ipv4Addr::new(10, 77, network, number);
        let address = host(1);
        let http = format!("http://{address}");
        // Installers ask by IPv4 where there is both.
        directory.reached_at(format!("{http}/"));
        let host6 = |number| Ipv6Addr::new(0xfd00, 0x77, 0, network.into(), 0, 0, 0, number);
        let address6 = host6(1);
        let answers6 = dhcpv6::Answers {
            server_id: duid::from_mac(MAC).to_vec(),
            server: address6,
            own: Vec::new(),
            link_local: Some(LINK_LOCAL),
            prefix: PREFIX_IPV6,
            range: range_of(address6, PREFIX_IPV6),
            dns: Vec::new(),
            directory: directory.clone(),
            tftp: true,
            http: Some(format!("http://[{address6}]")),
        };
        let advertisement = Advertisement {
            managed: true,
            other: true,
            router: false,
            prefix: (address6, PREFIX_IPV6),
            dns: Vec::new(),
            mac: Some(MAC),
        };
        let answers = Answers {
            server: address,
            own: Vec::new(),
            prefix: PREFIX,
            range: Some(host(128)..=host(254)),
            router: None,
            dns: Vec::new(),
            directory: directory.clone(),
            tftp: true,
            http: Some(http),
        };
        let [a, b, secret @ ..] = random;
        Self {
            host: StationHost {
                mac: MAC,
                address,
                networks: Networks::from(vec![
                    (IpAddr::V4(address), PREFIX),
                    (IpAddr::V6(address6), PREFIX_IPV6),
                    (IpAddr::V6(LINK_LOCAL), PREFIX_IPV6),
                ]),
                discovery: Discovery::new(MAC, LINK_LOCAL, advertisement),
                answers: VecDeque::new(),
                reports: None,
                // The machine may have any address of the network.
                events: events.of_machine(address),
                epoch: Instant::now(),
            },
            directory,
            responder: Responder::new(answers),
            responder6: dhcpv6::Responder::new(answers6),
            downloads: Downloads::new(u16::from_ne_bytes([a, b])),
            exchanges: Exchanges::new(secret),
            ladder: LadderSender::new(),
            turn: 0,
            streak: 0,
            last: None,
            head: Vec::new(),
            due: None,
        }
    }

    /// Takes in the reports that machines send, too.
    #[must_use]
    pub fn with_reports(mut self, reports: Arc<Reports>) -> Self {
        self.host.reports = Some(reports);
        self
    }

    /// Whether the machine on the link takes datagrams longer than the MTU ([`Cut::Fragments`]). Asked for when a read begins.
    pub fn send_long_datagrams(&mut self, long: bool) {
        self.downloads.long = long;
    }

    /// The directory that its files are from.
    #[must_use]
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The machine on the link has begun anew: what was under way is nobody's any more. Addresses that were given stay so.
    pub fn forget_flows(&mut self) {
        self.downloads.clear();
        self.exchanges.clear();
        self.ladder.clear();
        self.host.answers.clear();
        self.host.discovery.forget();
        (self.last, self.due) = (None, None);
    }

    /// Takes a frame. `partial`: its transport checksum was left to whoever carries it.
    pub fn take(&mut self, bytes: &[u8], partial: bool, now: Duration) {
        let now = self.host.epoch + now;
        self.ladder.frames += 1;
        let Some(arrived) = frame::parse(bytes, self.host.mac, partial) else {
            return;
        };
        let host = &mut self.host;
        match arrived {
            Arrived::Arp(request) => {
                if let Some((address, mac)) = speaker_of(&request)
                    && self.responder.heard(address, mac, now)
                {
                    let event = Event::now(Kind::DhcpInUse, mac_name(mac)).address(address);
                    host.events
                        .record(event.message("it is given to nobody else"));
                }
                if let Some(reply) = frame::arp_reply(&request, host.mac, host.address) {
                    host.answer(reply);
                }
            }
            Arrived::Neighbour {
                mac,
                from,
                to,
                message,
            } => {
                let answer = host.discovery.answer(mac, (from, to), message, now);
                if let Some(answer) = answer {
                    host.answer(answer);
                }
            }
            Arrived::Udp { from, to, payload } if to.port() == SERVER_PORT && to.is_ipv4() => {
                self.dhcp(from, payload, now);
            }
            Arrived::Udp { from, to, payload } if to == ALL_DHCPV6_SERVERS => {
                self.dhcpv6(from, payload, now);
            }
            // Answers go to single hosts.
            _ if !host.is_end_of(&arrived) => {}
            Arrived::Udp { from, to, payload } if to.port() == ladder::PORT => {
                self.ladder.take(host, (from, to), payload, now);
            }
            Arrived::Udp { from, to, payload } => {
                let ends = (from, to);
                self.downloads
                    .take(host, &self.directory, ends, payload, now);
            }
            Arrived::Tcp {
                from,
                to,
                segment,
                payload,
            } => {
                if to.port() == exchanges::PORT {
                    let ends = (from, to);
                    self.exchanges
                        .take(host, &self.directory, ends, (&segment, payload), now);
                } else if let Some(reply) = closed(&segment) {
                    host.reset(from, to, &reply.into());
                }
            }
            Arrived::Echo {
                from,
                to,
                id,
                seq,
                payload,
            } => {
                let reply = frame::echo_reply(host.mac, to, from, id, seq, payload);
                if let Some(reply) = reply.filter(|reply| reply.len() <= 14 + MTU) {
                    host.answer(reply);
                }
            }
        }
    }

    fn dhcp(&mut self, from: Peer, payload: &[u8], now: Instant) {
        let SocketAddr::V4(source) = from.address else {
            return;
        };
        let (reply, events) = self.responder.answer(payload, source, Port::Server, now);
        // Where leases are to outlive the server, they are taken from here.
        drop(self.responder.changed());
        if let Some(reply) = reply {
            let to = match reply.destination {
                Destination::Unicast(address) => Peer {
                    mac: from.mac,
                    address: address.into(),
                },
                Destination::Broadcast => Peer {
                    mac: [0xff; 6],
                    address: (Ipv4Addr::BROADCAST, CLIENT_PORT).into(),
                },
                Destination::Hardware(mac, address) => Peer {
                    mac,
                    address: (address, CLIENT_PORT).into(),
                },
            };
            let ours = (self.host.address, SERVER_PORT).into();
            let frame = frame::datagram(self.host.mac, ours, to, &reply.message.emit());
            self.host.answer(frame);
        }
        for event in events {
            self.host.events.record(event);
        }
    }

    fn dhcpv6(&mut self, from: Peer, payload: &[u8], now: Instant) {
        let SocketAddr::V6(source) = from.address else {
            return;
        };
        // Of this link: no relay asks here.
        if !source.ip().is_unicast_link_local() {
            return;
        }
        let (reply, events) = self.responder6.answer(payload, source, Port::Server, now);
        drop(self.responder6.changed());
        // Clients listen there, whatever port they send from (RFC 8415, section 7.2).
        let to = Peer {
            mac: from.mac,
            address: (*source.ip(), wire6::CLIENT_PORT).into(),
        };
        let ours = (LINK_LOCAL, wire6::SERVER_PORT).into();
        if let Some(reply) = reply {
            let frame = frame::datagram(self.host.mac, ours, to, &reply);
            self.host.answer(frame);
        }
        for event in events {
            self.host.events.record(event);
        }
    }

    /// The next frame, if there is one to leave now. Where `longest` is said, segments of up to so many bytes that are to be cut may come, too,
    /// and datagrams of any length after [`Self::send_long_datagrams`]. All others are as long as the link takes.
    pub fn next(&mut self, now: Duration, longest: Longest) -> Option<Frame<'_>> {
        let now = self.host.epoch + now;
        self.head.clear();
        if let Some(told) = self.host.discovery.next(now) {
            self.host.answer(told);
        }
        let (mut idle, mut due) = (0, self.host.discovery.due());
        self.last = None;
        while self.host.answers.is_empty() {
            let downloads = self.downloads.len();
            let exchanges = self.exchanges.len();
            let flows = downloads + exchanges + usize::from(self.ladder.is_sending());
            if idle >= flows {
                self.due = due;
                return None;
            }
            if self.turn >= flows {
                self.turn = 0;
            }
            let flow = match self.turn.checked_sub(downloads) {
                None => Flow::Download(self.turn),
                Some(index) if index < exchanges => Flow::Exchange(index),
                Some(_) => Flow::Ladder,
            };
            let (step, partial) = self.step(flow, now, longest);
            match step {
                FlowStep::Frame { offset, len, cut } => {
                    self.streak += 1;
                    if self.streak >= STREAK {
                        (self.streak, self.turn) = (0, self.turn + 1);
                    }
                    let made = Made {
                        offset,
                        len,
                        cut,
                        partial,
                    };
                    self.last = Some((flow, made));
                    let payload = match flow {
                        Flow::Download(index) => self.downloads.payload(index, offset, len),
                        Flow::Exchange(index) => self.exchanges.payload(index, offset, len),
                        Flow::Ladder => self.ladder.payload(offset, len),
                    };
                    return Some(Frame {
                        head: &self.head,
                        payload,
                        partial,
                        cut,
                    });
                }
                FlowStep::Nothing(at) => {
                    (self.streak, self.turn, idle) = (0, self.turn + 1, idle + 1);
                    due = due.into_iter().chain(at).min();
                }
                // Another flow has its place now.
                FlowStep::Over => (idle, due) = (0, self.host.discovery.due()),
            }
        }
        self.head = self.host.answers.pop_front()?;
        Some(Frame {
            head: &self.head,
            payload: Payload::default(),
            partial: None,
            cut: None,
        })
    }

    fn step(&mut self, flow: Flow, now: Instant, longest: Longest) -> (FlowStep, Option<Partial>) {
        let (host, head) = (&mut self.host, &mut self.head);
        match flow {
            Flow::Download(index) => {
                let directory = &self.directory;
                self.downloads.step(index, host, directory, head, now)
            }
            Flow::Exchange(index) => {
                let directory = &self.directory;
                self.exchanges
                    .step(index, host, directory, (head, longest), now)
            }
            Flow::Ladder => self.ladder.step(host, head, now),
        }
    }

    /// The payload of the last frame could not be taken from where it lies: what it belongs to ends.
    pub fn fail(&mut self, why: &std::io::Error, now: Duration) {
        let (now, why) = (self.host.epoch + now, why.to_string());
        match self.last.take() {
            Some((Flow::Download(index), _)) => {
                let (host, directory) = (&mut self.host, &self.directory);
                self.downloads.fail(index, host, directory, &why, now);
            }
            Some((Flow::Exchange(index), _)) => {
                self.exchanges.fail(index, &mut self.host, &why, now);
            }
            // Its payload is always there.
            Some((Flow::Ladder, _)) | None => {}
        }
    }

    /// The payload of the last frame is not there yet: the frame waits until [`Self::go_on`], and so does the flow that it belongs to. All others go on.
    pub fn hold(&mut self) {
        let Some((flow, made)) = self.last.take() else {
            return;
        };
        let place = match flow {
            Flow::Download(index) => self.downloads.held_of(index),
            Flow::Exchange(index) => self.exchanges.held_of(index),
            Flow::Ladder => None,
        };
        if let Some(place) = place {
            *place = Some(Held {
                head: std::mem::take(&mut self.head),
                made,
                again: false,
            });
        }
    }

    /// Payload has come: frames that wait are tried again.
    pub fn go_on(&mut self) {
        for held in self.downloads.held().chain(self.exchanges.held()) {
            held.again = true;
        }
    }

    /// When [`Self::next`], which had nothing, may have something though nothing comes.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let due = self.due?;
        Some(due.saturating_duration_since(self.host.epoch))
    }
}

impl StationHost {
    /// Whether it goes from a single host of its networks to this one.
    fn is_end_of(&self, arrived: &Arrived<'_>) -> bool {
        let (from, to) = match arrived {
            Arrived::Arp(_) | Arrived::Neighbour { .. } => return false,
            Arrived::Udp { from, to, .. } | Arrived::Tcp { from, to, .. } => (from, to.ip()),
            Arrived::Echo { from, to, .. } => (from, *to),
        };
        // No group is of them, and neither is who has no address yet.
        let source = from.address.ip();
        self.networks.contain(source)
            && match (source, to) {
                (IpAddr::V4(source), IpAddr::V4(to)) => {
                    let us = self.address;
                    let all = Ipv4Addr::from(u32::from(us) | (u32::MAX >> PREFIX));
                    to == us && source != all && source != us
                }
                (IpAddr::V6(source), IpAddr::V6(to)) => {
                    self.discovery.has(to) && !self.discovery.has(source)
                }
                _ => false,
            }
    }
}

fn mac_name(mac: Mac) -> String {
    crate::dhcp::hardware_address(&mac)
}
