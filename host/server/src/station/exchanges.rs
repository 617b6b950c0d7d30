//! HTTP over TCP: each connection answers the requests on it, in order.
//!
//! A response is a list of parts; TCP knows their lengths only. A segment that leaves says which bytes it has, and whoever carries it takes them
//! from where they lie. Nothing is kept for sending again but the parts.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wireboot_tcp::{Connection, InitialSequence, Limits, Listen, Segment, State, listen};

use super::frame::{self, Partial, Peer};
use super::held::{self, Held};
use super::payload::{Part, Payload};
use super::report::{ReportAnswer, ReportUpload};
use super::step::FlowStep;
use super::{Cut, Longest, MTU, StationHost};
use crate::directory::Directory;
use crate::http::{Body, Head, MAX_HEAD, Response, events, upload};

/// The port of HTTP.
pub(super) const PORT: u16 = 80;
/// Connections at a time, those included that have ended and wait for stray segments.
const MAX_CONNECTIONS: usize = 64;
/// Responses of one connection that are under way.
const MAX_RESPONSES: usize = 4;
/// A client that sends no whole request head in this time is disconnected, and so is one that does not end its side after ours.
const PATIENCE: Duration = Duration::from_secs(30);
/// Payload of the longest segment of either IP version.
const LONGEST_SEGMENT: usize = MTU - 20 - TCP_HEADER;
/// Bytes of an Ethernet header.
const LINK: usize = 14;
/// Bytes of the header of TCP of a segment with data.
const TCP_HEADER: usize = 20;
/// A packet as long as can be, whatever the version.
const LONGEST_PACKET: usize = 65_535;
/// Bytes that TCP is told of ahead of what is acknowledged. It takes up to 1 GiB.
const AHEAD: u64 = 64 << 20;

#[derive(Debug)]
struct Exchange {
    peer: Peer,
    /// Address and port of the server.
    ours: SocketAddr,
    connection: Connection,
    /// What has come and is not answered yet.
    request: Vec<u8>,
    /// What is to be sent, from the first part on that is not all acknowledged.
    parts: VecDeque<Part>,
    /// Bytes of the first part that are acknowledged.
    acknowledged: u64,
    /// Bytes behind these that TCP has been told of, and that it has not.
    told: u64,
    untold: u64,
    /// Responses under way that have a file, with the bytes still to be acknowledged.
    files: VecDeque<Served>,
    held: Option<Held>,
    /// A report that comes, or is being written. What follows it is not answered.
    report: Option<ReportUpload>,
    /// Nothing is answered any more: our FIN comes behind what there is.
    closing: bool,
    /// When it came to wait for its client.
    waits: Instant,
}

/// Payload of the longest segment of a client, each way.
pub(super) fn mss(client: IpAddr) -> u16 {
    (MTU - frame::ip_header_len(client) - TCP_HEADER) as u16
}

/// Payload of a frame of several segments to a client that has so many bytes.
fn unit(client: IpAddr, longest: usize) -> u32 {
    longest
        .min(LINK + LONGEST_PACKET)
        .saturating_sub(LINK + frame::ip_header_len(client) + TCP_HEADER) as u32
}

/// A response with a file.
#[derive(Debug)]
struct Served {
    name: String,
    length: u64,
    began: Instant,
    /// Bytes up to its end that are not acknowledged: those of responses before it, too.
    left: u64,
}

pub(super) struct Exchanges {
    all: Vec<Exchange>,
    sequence: InitialSequence,
}

impl Exchanges {
    /// None. `secret` is for initial sequence numbers.
    pub(super) fn new(secret: [u8; 16]) -> Self {
        Self {
            all: Vec::new(),
            sequence: InitialSequence::new(secret),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// What a connection keeps is bounded.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn check_bounds(&self) {
        for exchange in &self.all {
            assert!(exchange.request.len() <= MAX_HEAD + 2 * LONGEST_SEGMENT);
            // A head and a file of each response.
            assert!(exchange.parts.len() <= 2 * MAX_RESPONSES + 1);
            assert!(exchange.files.len() <= exchange.parts.len());
        }
    }

    /// Takes a segment to the port of HTTP.
    pub(super) fn take(
        &mut self,
        host: &mut StationHost,
        directory: &Arc<Directory>,
        (from, to): (Peer, SocketAddr),
        (segment, payload): (&Segment<'_>, &[u8]),
        now: Instant,
    ) {
        let tcp_now = host.tcp_time(now);
        let found = self
            .all
            .iter()
            .position(|one| one.peer.address == from.address && one.ours == to);
        if let Some(index) = found
            && let Some(exchange) = self.all.get_mut(index)
        {
            let opens = listen(segment) == Listen::Accept;
            if !(opens && exchange.connection.state() == State::TimeWait) {
                exchange.hear(segment, payload, tcp_now);
                return exchange.go_on(host, directory, now);
            }
            self.all.swap_remove(index);
        }
        match listen(segment) {
            Listen::Ignore => {}
            Listen::Reset(reply) => host.reset(from, to, &reply.into()),
            Listen::Accept => self.accept(host, (from, to), segment, now),
        }
    }

    fn accept(
        &mut self,
        host: &mut StationHost,
        (from, to): (Peer, SocketAddr),
        syn: &Segment<'_>,
        now: Instant,
    ) {
        if self.all.len() >= MAX_CONNECTIONS && !self.make_room(host, now) {
            // It asks again.
            return;
        }
        let tcp_now = host.tcp_time(now);
        let iss = self.sequence.iss(to, from.address, tcp_now);
        self.all.push(Exchange {
            peer: from,
            ours: to,
            connection: Connection::accept(mss(from.address.ip()), iss, tcp_now, syn),
            request: Vec::new(),
            parts: VecDeque::new(),
            acknowledged: 0,
            told: 0,
            untold: 0,
            files: VecDeque::new(),
            held: None,
            report: None,
            closing: false,
            waits: now,
        });
    }

    /// Ends the connection that has waited for its client for the longest time. False when none waits.
    fn make_room(&mut self, host: &mut StationHost, now: Instant) -> bool {
        let waiting = self.all.iter().enumerate();
        let waiting = waiting.filter(|(_, one)| one.is_idle());
        let longest =
            waiting.min_by_key(|(_, one)| (one.connection.state() != State::TimeWait, one.waits));
        let Some((index, _)) = longest else {
            return false;
        };
        let mut exchange = self.all.swap_remove(index);
        exchange.connection.abort();
        let limits = exchange.limits();
        if let Some(out) = exchange.connection.transmit(host.tcp_time(now), &limits) {
            host.reset(exchange.peer, exchange.ours, &out);
        }
        true
    }

    /// Does the next thing that a connection has to do: writes headers to `head`, whose checksum is to be completed. They are of one segment
    /// or, where `longest` is said for its IP version, of several that have up to so many bytes with them.
    pub(super) fn step(
        &mut self,
        index: usize,
        host: &mut StationHost,
        directory: &Arc<Directory>,
        (head, longest): (&mut Vec<u8>, Longest),
        now: Instant,
    ) -> (FlowStep, Option<Partial>) {
        let Some(exchange) = self.all.get_mut(index) else {
            return (FlowStep::Nothing(None), None);
        };
        exchange.go_on(host, directory, now);
        if exchange.connection.is_over() {
            // Nobody waits for it.
            exchange.held = None;
        }
        if let Some(step) = held::step(&mut exchange.held, head) {
            return step;
        }
        let client = exchange.client();
        let longest = longest.to(client);
        let limits = Limits {
            unit: longest.map_or(0, |longest| unit(client, longest)),
            ..exchange.limits()
        };
        let Some(out) = exchange.connection.transmit(host.tcp_time(now), &limits) else {
            if !exchange.connection.is_over() {
                return (FlowStep::Nothing(exchange.due(host, now)), None);
            }
            let exchange = self.all.swap_remove(index);
            exchange.tell_end(host, now);
            return (FlowStep::Over, None);
        };
        let partial = frame::tcp_headers(head, host.mac, exchange.ours, exchange.peer, &out);
        let offset = exchange.acknowledged + u64::from(out.offset);
        let (len, mss) = (out.len, out.mss);
        let cut = (len > usize::from(mss)).then_some(match client {
            IpAddr::V4(_) => Cut::SegmentsIpv4(mss),
            IpAddr::V6(_) => Cut::SegmentsIpv6(mss),
        });
        (FlowStep::Frame { offset, len, cut }, Some(partial))
    }

    /// What follows the headers of the segment that a connection has begun.
    pub(super) fn payload(&self, index: usize, offset: u64, len: usize) -> Payload<'_> {
        let exchange = self.all.get(index);
        exchange.map_or_else(Payload::default, |one| Payload::of(&one.parts, offset, len))
    }

    /// Where a connection holds a frame.
    pub(super) fn held_of(&mut self, index: usize) -> Option<&mut Option<Held>> {
        self.all.get_mut(index).map(|exchange| &mut exchange.held)
    }

    /// The frames of all connections whose payload is not there yet.
    pub(super) fn held(&mut self) -> impl Iterator<Item = &mut Held> {
        self.all
            .iter_mut()
            .filter_map(|exchange| exchange.held.as_mut())
    }

    /// A file could not be read: the connection is reset, so that its client does not take what it has for all.
    pub(super) fn fail(&mut self, index: usize, host: &mut StationHost, why: &str, now: Instant) {
        if let Some(exchange) = self.all.get_mut(index) {
            exchange.connection.abort();
            exchange.tell_broken_off(host, why, now);
        }
    }
}

impl Exchange {
    fn client(&self) -> IpAddr {
        self.peer.address.ip()
    }

    /// Whether it waits for its client, and nothing of ours is under way.
    fn is_idle(&self) -> bool {
        self.parts.is_empty() && self.report.is_none()
    }

    fn limits(&self) -> Limits {
        // Behind the longest head there is room for segments that show it to be too long: a window of less than a segment is not told.
        let window = MAX_HEAD + 2 * LONGEST_SEGMENT;
        let room = window.saturating_sub(self.request.len());
        Limits {
            window: window as u32,
            room: room as u32,
            unit: 0,
        }
    }

    fn hear(&mut self, segment: &Segment<'_>, payload: &[u8], now: wireboot_tcp::Instant) {
        let room = self.limits().room;
        if let Some(placement) = self.connection.receive(now, segment, room) {
            if placement.at != 0 {
                // It comes again.
                self.connection.renege();
            } else if !self.closing {
                let end = placement.skip + placement.len;
                let bytes = payload.get(placement.skip..end);
                self.request.extend_from_slice(bytes.unwrap_or_default());
            }
        }
    }

    /// Drops what is acknowledged, answers what has come, and tells TCP of it.
    fn go_on(&mut self, host: &mut StationHost, directory: &Arc<Directory>, now: Instant) {
        self.drop_acknowledged(host, now);
        self.go_on_with_report(host, now);
        while self.report.is_none()
            && !self.closing
            && self.parts.len() < 2 * MAX_RESPONSES
            && !self.request.is_empty()
        {
            match Head::parse(&self.request) {
                Ok(Some((head, length))) => {
                    self.request.drain(..length.min(self.request.len()));
                    if upload::is_report(&head) {
                        self.begin_report(&head, host, now);
                    } else {
                        self.closing = head.close;
                        self.answer(&head, host, directory, now);
                    }
                }
                Ok(None) => break,
                Err(status) => {
                    self.closing = true;
                    let response = Response::refusal(status, "the request is not understood");
                    self.refused("", &response, host);
                    self.respond(&response);
                }
            }
        }
        // The client has ended its side, and what it has sent is answered or no request.
        self.closing |= !self.connection.may_receive() && self.is_idle();
        if self.is_idle() && now.saturating_duration_since(self.waits) >= PATIENCE {
            if self.closing {
                self.connection.abort();
            }
            (self.closing, self.waits) = (true, now);
        }
        if self.closing {
            self.request.clear();
        }
        let more = self.untold.min(AHEAD.saturating_sub(self.told));
        if more > 0 && self.connection.may_send() {
            self.connection.queue(more as u32);
            (self.told, self.untold) = (self.told + more, self.untold - more);
        }
        if self.closing && self.untold == 0 {
            self.connection.close();
        }
    }

    fn drop_acknowledged(&mut self, host: &mut StationHost, now: Instant) {
        let count = u64::from(self.connection.acknowledged());
        if count == 0 {
            return;
        }
        self.told = self.told.saturating_sub(count);
        self.acknowledged += count;
        while let Some(part) = self.parts.front()
            && part.len() <= self.acknowledged
        {
            self.acknowledged -= part.len();
            held::shift(&mut self.held, part.len());
            self.parts.pop_front();
        }
        for served in &mut self.files {
            served.left = served.left.saturating_sub(count);
        }
        while self.files.front().is_some_and(|served| served.left == 0) {
            if let Some(served) = self.files.pop_front() {
                let took = now.saturating_duration_since(served.began);
                let event = events::done(self.client(), &served.name, served.length, took);
                host.events.record(event);
            }
        }
        self.waits = now;
    }

    fn answer(
        &mut self,
        head: &Head,
        host: &StationHost,
        directory: &Arc<Directory>,
        now: Instant,
    ) {
        let response = Response::to(head, directory);
        let name = events::name(head);
        self.refused(&name, &response, host);
        self.respond(&response);
        if let Body::Part(_, range) = &response.body {
            host.events
                .record(events::start(self.client(), &name, range));
            self.files.push_back(Served {
                name,
                length: range.end - range.start,
                began: now,
                left: self.told + self.untold,
            });
        }
    }

    /// Nothing else is answered on a connection that brings a report.
    fn begin_report(&mut self, head: &Head, host: &StationHost, now: Instant) {
        let whose = (IpAddr::V4(host.address), self.client());
        match ReportUpload::begin(head, host.reports.as_ref(), whose, now) {
            Ok(report) => {
                if upload::asks_first(head) {
                    self.push(Part::Bytes(upload::CONTINUE.to_vec()));
                }
                self.report = Some(report);
                self.go_on_with_report(host, now);
            }
            Err(response) => self.conclude(&response, host),
        }
    }

    fn go_on_with_report(&mut self, host: &StationHost, now: Instant) {
        let Some(report) = &mut self.report else {
            return;
        };
        let ended = !self.connection.may_receive();
        match report.take(&mut self.request, ended, &host.events, now) {
            ReportAnswer::Later => {}
            ReportAnswer::None => self.report = None,
            ReportAnswer::Response(response) => {
                self.report = None;
                self.waits = now;
                self.conclude(&response, host);
            }
        }
    }

    fn conclude(&mut self, response: &Response, host: &StationHost) {
        self.closing = true;
        self.refused(upload::PATH, response, host);
        self.respond(response);
    }

    fn refused(&self, name: &str, response: &Response, host: &StationHost) {
        if let Some(reason) = &response.refusal {
            host.events
                .record(events::refused(self.client(), name, reason));
        }
    }

    /// Puts a response behind those that are under way.
    fn respond(&mut self, response: &Response) {
        let mut bytes = response.head(self.closing).into_bytes();
        if let Body::Text(text) = &response.body {
            bytes.extend_from_slice(text.as_bytes());
        }
        self.push(Part::Bytes(bytes));
        if let Body::Part(content, range) = &response.body
            && !range.is_empty()
        {
            self.push(Part::File(content.clone(), range.clone()));
        }
    }

    fn push(&mut self, part: Part) {
        self.untold += part.len();
        self.parts.push_back(part);
    }

    /// When something is to be done though nothing comes.
    fn due(&self, host: &StationHost, now: Instant) -> Option<Instant> {
        let tcp = self.connection.poll_at().map(|at| host.time_of(at));
        let idle = self.is_idle().then(|| self.waits + PATIENCE);
        let report = self.report.as_ref().map(|report| report.due(now));
        [tcp, idle, report].into_iter().flatten().min()
    }

    /// The connection is over; what was under way is told.
    fn tell_end(mut self, host: &mut StationHost, now: Instant) {
        self.drop_acknowledged(host, now);
        let why = match self.connection.error() {
            Some(error) => error.to_string(),
            None => "the client closed the connection".to_owned(),
        };
        self.tell_broken_off(host, &why, now);
    }

    fn tell_broken_off(&mut self, host: &StationHost, why: &str, now: Instant) {
        for served in std::mem::take(&mut self.files) {
            let sent = served.length.saturating_sub(served.left);
            let took = now.saturating_duration_since(served.began);
            let event = events::broken_off(self.client(), &served.name, sent, took);
            host.events.record(event.message(why));
        }
    }
}
