//! Reads by TFTP: each a [`Sender`], whose blocks leave one by one.
//!
//! A client whose transfer goes on may start anew and ask from the same port. Its request then waits until the transfer has ended, which it
//! does after a second without a word from the client.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wireboot_wire::text;
use wireboot_wire::tftp::{
    DATA_HEADER_LEN, ErrorCode, MAX_BLOCK_SIZE, PORT, Packet, TransferOptions, data_header,
};

use super::frame::{self, Partial, Peer};
use super::held::{self, Held};
use super::payload::{Part, Payload};
use super::step::FlowStep;
use super::{Cut, MTU, StationHost};
use crate::directory::Directory;
use crate::event::{Event, Kind};
use crate::tftp::{
    ABANDONED_AFTER, Action, Sender, TftpAnswer, acknowledgement, agree, answer, events, is_read,
};

/// Transfers at a time.
const MAX_TRANSFERS: usize = 64;
/// How long a transfer keeps its place, when another client wants it, until its client has answered.
const TIME_TO_ANSWER: Duration = Duration::from_millis(500);
/// Largest window granted, in blocks.
const MAX_WINDOW: u16 = 512;
/// Bytes of a datagram, its header included, in each of its fragments: in units of 8 (RFC 791).
const FRAGMENT: u16 = ((MTU - 20) & !7) as u16;
/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// The ports of transfers begin here (RFC 6335).
const EPHEMERAL: u16 = 49_152;

/// The largest block for this client of a datagram that fits the MTU.
fn short_block(client: IpAddr) -> u16 {
    (MTU - frame::ip_header_len(client) - UDP_HEADER - DATA_HEADER_LEN) as u16
}

#[derive(Debug)]
struct Download {
    peer: Peer,
    /// Its own end here.
    ours: SocketAddr,
    name: String,
    sender: Sender,
    /// The OACK packet; empty where none is sent.
    options: Vec<u8>,
    /// Told of at its first block.
    start: Option<Event>,
    parts: VecDeque<Part>,
    held: Option<Held>,
    began: Instant,
    asked_anew: Option<AskedAnew>,
}

/// What came from a client's port though the client has answered. It may have started anew; or the request is forged, or late.
#[derive(Debug)]
struct AskedAnew {
    from: Peer,
    request: Vec<u8>,
    /// When the first such request came.
    since: Instant,
}

#[derive(Debug)]
pub(super) struct Downloads {
    all: Vec<Download>,
    next_port: u16,
    /// Blocks over IPv4 may be longer than the MTU.
    pub(super) long: bool,
}

impl Downloads {
    /// None. `random` chooses the first port.
    pub(super) fn new(random: u16) -> Self {
        Self {
            all: Vec::new(),
            next_port: EPHEMERAL | random,
            long: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// Takes a datagram to one of this host's addresses.
    pub(super) fn take(
        &mut self,
        host: &mut StationHost,
        directory: &Arc<Directory>,
        (from, to): (Peer, SocketAddr),
        datagram: &[u8],
        now: Instant,
    ) {
        if to.port() == PORT {
            return self.request(host, directory, (from, to), datagram, now);
        }
        let is_it = |one: &&mut Download| one.ours == to && one.peer.address == from.address;
        if let Some(download) = self.all.iter_mut().find(is_it) {
            download.sender.receive(datagram, now);
            // At its end, the client may have asked for its next file already.
            if download.sender.end().is_none() {
                download.asked_anew = None;
            }
        }
    }

    fn request(
        &mut self,
        host: &mut StationHost,
        directory: &Arc<Directory>,
        (from, to): (Peer, SocketAddr),
        datagram: &[u8],
        now: Instant,
    ) {
        if is_read(datagram) && self.tell((from, to), datagram, now) {
            return;
        }
        let client = from.address.ip();
        let (request, content) = match answer(datagram, directory) {
            TftpAnswer::Serve(request, content) => (request, content),
            TftpAnswer::Refuse { code, text, name } => {
                let frame = error(host, to, from, code, &text);
                host.answer(frame);
                let event = Event::now(Kind::TftpError, client).file(&name);
                return host.events.record(event.message(text));
            }
            TftpAnswer::Ignore => return,
        };
        if self.all.len() >= MAX_TRANSFERS && !self.revoke(host, now) {
            // It asks again.
            return;
        }
        let asked = TransferOptions::from_request(request.options);
        let largest = match client {
            IpAddr::V4(_) if self.long => MAX_BLOCK_SIZE,
            _ => short_block(client),
        };
        let (terms, granted) = agree(asked, content.len(), largest, MAX_WINDOW);
        let name = text::shown(request.filename.as_bytes());
        let port = self.port();
        self.all.push(Download {
            peer: from,
            ours: SocketAddr::new(to.ip(), port),
            sender: Sender::new(terms, now),
            options: acknowledgement(granted),
            start: Some(events::start(&terms, client, &name)),
            name,
            parts: [Part::File(content.clone(), 0..content.len())].into(),
            held: None,
            began: now,
            asked_anew: None,
        });
    }

    /// Tells the client's transfer of a request from the same port. False when there is none. Before the client has answered, it only repeats
    /// itself. The newest request counts.
    fn tell(&mut self, (from, to): (Peer, SocketAddr), request: &[u8], now: Instant) -> bool {
        let ends = (from.address, to.ip());
        let is_it = |one: &&mut Download| (one.peer.address, one.ours.ip()) == ends;
        let Some(download) = self.all.iter_mut().find(is_it) else {
            return false;
        };
        if download.sender.is_answered() || download.sender.end().is_some() {
            let former = download.asked_anew.take();
            download.asked_anew = Some(AskedAnew {
                from,
                request: request.to_vec(),
                since: former.map_or(now, |former| former.since),
            });
        }
        true
    }

    /// A transfer has ended: what its client has asked for meanwhile is taken up.
    fn take_up(
        &mut self,
        ended: Download,
        host: &mut StationHost,
        directory: &Arc<Directory>,
        now: Instant,
    ) {
        if let Some(AskedAnew { from, request, .. }) = ended.asked_anew {
            let to = SocketAddr::new(ended.ours.ip(), PORT);
            self.request(host, directory, (from, to), &request, now);
        }
    }

    /// A port that no transfer has.
    fn port(&mut self) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = EPHEMERAL | port.wrapping_add(1);
            // There are more ports than transfers.
            if self.all.iter().all(|one| one.ours.port() != port) {
                return port;
            }
        }
    }

    /// Has the oldest transfer that nobody has answered give way. False when there is none.
    fn revoke(&mut self, host: &StationHost, now: Instant) -> bool {
        let may_go = |one: &Download| {
            let waits = now.saturating_duration_since(one.began);
            // One that has ended is about to make room for what its client has asked for.
            let goes_anyway = one.asked_anew.is_some();
            !one.sender.is_answered() && !goes_anyway && waits >= TIME_TO_ANSWER
        };
        // They are in the order of their beginning, but for those that were moved into a gap.
        let oldest = self.all.iter().enumerate().filter(|(_, one)| may_go(one));
        let oldest = oldest.min_by_key(|(_, one)| one.began);
        let Some((index, _)) = oldest else {
            return false;
        };
        let download = self.all.swap_remove(index);
        let event = download.broken_off(now);
        host.events.record(event.message(events::REVOKED));
        true
    }

    /// Does the next thing that a transfer has to do: writes headers to `head`.
    pub(super) fn step(
        &mut self,
        index: usize,
        host: &mut StationHost,
        directory: &Arc<Directory>,
        head: &mut Vec<u8>,
        now: Instant,
    ) -> (FlowStep, Option<Partial>) {
        let Some(download) = self.all.get_mut(index) else {
            return (FlowStep::Nothing(None), None);
        };
        let abandoned = download.abandoned_at();
        if download.sender.end().is_some() {
            // Nobody waits for it.
            download.held = None;
        } else if abandoned.is_some_and(|at| at <= now) {
            let download = self.all.swap_remove(index);
            let event = download.broken_off(now);
            host.events.record(event.message(events::ASKED_ANEW));
            self.take_up(download, host, directory, now);
            return (FlowStep::Over, None);
        }
        match held::step(&mut download.held, head) {
            Some((FlowStep::Nothing(_), _)) => return (FlowStep::Nothing(abandoned), None),
            Some(step) => return step,
            None => {}
        }
        let (from, peer) = (download.ours, download.peer);
        match download.sender.next_action(now) {
            Action::SendOptions => {
                let options = &download.options;
                let partial = frame::udp_headers(head, host.mac, from, peer, options.len());
                head.extend_from_slice(options);
                download.sender.sent(0, now);
                let (offset, len, cut) = (0, 0, None);
                (FlowStep::Frame { offset, len, cut }, partial)
            }
            Action::Send { first, .. } => {
                if let Some(event) = download.start.take() {
                    host.events.record(event);
                }
                let (offset, len) = (download.sender.offset(first), download.sender.length(first));
                let datagram = DATA_HEADER_LEN + len;
                let number = Sender::wire_number(first);
                let (cut, partial) = match from.ip() {
                    IpAddr::V4(address) if len > short_block(address.into()).into() => {
                        let from = (address, from.port());
                        let partial =
                            frame::long_udp_headers(head, host.mac, from, peer, datagram, number);
                        (Some(Cut::Fragments(FRAGMENT)), Some(partial))
                    }
                    _ => {
                        let partial = frame::udp_headers(head, host.mac, from, peer, datagram);
                        (None, partial)
                    }
                };
                head.extend(data_header(number));
                download.sender.sent(1, now);
                (FlowStep::Frame { offset, len, cut }, partial)
            }
            Action::Wait(until) => {
                let until = abandoned.map_or(until, |at| at.min(until));
                (FlowStep::Nothing(Some(until)), None)
            }
            Action::Ended(end) => {
                let download = self.all.swap_remove(index);
                let took = now.saturating_duration_since(download.began);
                let Download { sender, name, .. } = &download;
                let event = events::end(end, sender, download.client(), name, took);
                host.events.record(event);
                if let Some((code, text)) = sender.farewell() {
                    let frame = error(host, download.ours, download.peer, code, text);
                    host.answer(frame);
                }
                self.take_up(download, host, directory, now);
                (FlowStep::Over, None)
            }
        }
    }

    /// What follows the headers of the frame that a transfer has begun.
    pub(super) fn payload(&self, index: usize, offset: u64, len: usize) -> Payload<'_> {
        let download = self.all.get(index);
        download.map_or_else(Payload::default, |one| Payload::of(&one.parts, offset, len))
    }

    /// Where a transfer holds a frame.
    pub(super) fn held_of(&mut self, index: usize) -> Option<&mut Option<Held>> {
        self.all.get_mut(index).map(|download| &mut download.held)
    }

    /// The frames of all transfers whose payload is not there yet.
    pub(super) fn held(&mut self) -> impl Iterator<Item = &mut Held> {
        self.all
            .iter_mut()
            .filter_map(|download| download.held.as_mut())
    }

    /// The file of a transfer could not be read.
    pub(super) fn fail(
        &mut self,
        index: usize,
        host: &mut StationHost,
        directory: &Arc<Directory>,
        why: &str,
        now: Instant,
    ) {
        if index >= self.all.len() {
            return;
        }
        let download = self.all.swap_remove(index);
        let took = now.saturating_duration_since(download.began);
        let event = events::failed(download.client(), &download.name, took);
        host.events.record(event.message(why));
        let code = ErrorCode::UNDEFINED;
        let frame = error(host, download.ours, download.peer, code, why);
        host.answer(frame);
        self.take_up(download, host, directory, now);
    }
}

impl Download {
    fn client(&self) -> IpAddr {
        self.peer.address.ip()
    }

    /// When it ends for a client that has asked anew and says nothing more to it.
    fn abandoned_at(&self) -> Option<Instant> {
        let asked_anew = self.asked_anew.as_ref()?;
        Some(asked_anew.since + ABANDONED_AFTER)
    }

    /// The event of its being broken off, for a reason that is still to be added.
    fn broken_off(&self, now: Instant) -> Event {
        let took = now.saturating_duration_since(self.began);
        events::broken_off(&self.sender, self.client(), &self.name, took)
    }
}

/// The frame of an ERROR packet.
fn error(host: &StationHost, from: SocketAddr, to: Peer, code: ErrorCode, text: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    let text = text.as_bytes();
    Packet::Error { code, text }.emit(&mut packet);
    frame::datagram(host.mac, from, to, &packet)
}
