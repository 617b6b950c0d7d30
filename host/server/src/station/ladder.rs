//! The sender that a machine measures itself against ([`wireboot_wire::ladder`]): datagrams as fast as the machine takes them, when it asks.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub(super) use wireboot_wire::ladder::PORT;
use wireboot_wire::ladder::{Answer, DATA_PORT, MAX_PAYLOAD, Request};

use super::frame::{self, LINK, Partial, Peer};
use super::payload::{Part, Payload};
use super::step::FlowStep;
use super::{MTU, StationHost};

/// Of every machine: there is one alone, to which all frames go, whatever address it names as its own.
const TOKEN: u64 = 0;
/// Datagrams that leave at one instant, at most.
const BURST: u32 = 64;

/// Sends to one machine at a time, and counts what comes from it.
#[derive(Debug)]
pub(super) struct LadderSender {
    /// Frames that came from the machine.
    pub frames: u64,
    flood: Option<Flood>,
    /// The last request that was served to its end, and its answer, which may have been lost.
    last: Option<(Request, Answer)>,
    /// What the datagrams say.
    parts: VecDeque<Part>,
}

/// The datagrams of one request, while they leave.
#[derive(Debug)]
struct Flood {
    request: Request,
    number: u32,
    payload: u16,
    /// Who asked, and where.
    ends: (Peer, SocketAddr),
    /// Headers, the same of each.
    head: Vec<u8>,
    partial: Option<Partial>,
    begun: Instant,
    until: Instant,
    datagrams: u64,
    /// When the last left, and how many at that instant.
    last: Instant,
    burst: u32,
    /// How long there was no room for the next.
    waited: Duration,
}

impl Flood {
    /// Whether the next may leave now, which is then counted.
    fn leaves(&mut self, now: Instant) -> bool {
        if now > self.last {
            if self.burst < BURST {
                self.waited += now - self.last;
            }
            (self.last, self.burst) = (now, 0);
        }
        let leaves = self.burst < BURST;
        if leaves {
            self.burst += 1;
            self.datagrams += 1;
        }
        leaves
    }

    fn answer(&self, now: Instant) -> Answer {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Answer::Sent {
            number: self.number,
            datagrams: self.datagrams,
            // None leaves without room.
            dropped: 0,
            micros: micros(now.saturating_duration_since(self.begun)),
            waited: micros(self.waited),
        }
    }
}

impl LadderSender {
    pub(super) fn new() -> Self {
        let content = Part::Bytes(vec![0x55; MAX_PAYLOAD.into()]);
        Self {
            frames: 0,
            flood: None,
            last: None,
            parts: [content].into(),
        }
    }

    /// The machine has begun anew.
    pub(super) fn clear(&mut self) {
        (self.flood, self.last) = (None, None);
    }

    /// Whether datagrams are under way.
    pub(super) fn is_sending(&self) -> bool {
        self.flood.is_some()
    }

    /// Takes a datagram to [`PORT`].
    pub(super) fn take(
        &mut self,
        host: &mut StationHost,
        (from, to): (Peer, SocketAddr),
        datagram: &[u8],
        now: Instant,
    ) {
        let Some(request) = Request::parse(datagram) else {
            return;
        };
        let answer = match (request, self.last) {
            (_, Some((known, answer))) if known == request => answer,
            (Request::Hello { number }, _) => Answer::Welcome {
                number,
                token: TOKEN,
            },
            (Request::Count { number, .. }, _) => Answer::Counted {
                number,
                frames: self.frames,
            },
            (
                Request::Send {
                    number,
                    payload,
                    micros,
                    ..
                },
                _,
            ) => return self.begin(host, (from, to), request, (number, payload, micros), now),
        };
        say(host, (from, to), &answer);
    }

    /// Sends from now on, unless it does so already, or a frame would be longer than the network takes.
    fn begin(
        &mut self,
        host: &StationHost,
        (from, to): (Peer, SocketAddr),
        request: Request,
        (number, payload, micros): (u32, u16, u32),
        now: Instant,
    ) {
        let same = |flood: &Flood| flood.request == request;
        if self.flood.as_ref().is_some_and(same) {
            return;
        }
        let data = |address: SocketAddr| SocketAddr::new(address.ip(), DATA_PORT);
        let machine = Peer {
            address: data(from.address),
            ..from
        };
        let mut head = Vec::new();
        let partial = frame::udp_headers(&mut head, host.mac, data(to), machine, payload.into());
        if head.len() + usize::from(payload) > LINK + MTU {
            return;
        }
        self.flood = Some(Flood {
            request,
            number,
            payload,
            ends: (from, to),
            head,
            partial,
            begun: now,
            until: now + Duration::from_micros(micros.into()),
            datagrams: 0,
            last: now,
            burst: 0,
            waited: Duration::ZERO,
        });
    }

    /// The next datagram, whose headers go to `head`; the answer when all have left.
    pub(super) fn step(
        &mut self,
        host: &mut StationHost,
        head: &mut Vec<u8>,
        now: Instant,
    ) -> (FlowStep, Option<Partial>) {
        let Some(flood) = &mut self.flood else {
            return (FlowStep::Nothing(None), None);
        };
        if now >= flood.until {
            let answer = flood.answer(now);
            say(host, flood.ends, &answer);
            self.last = Some((flood.request, answer));
            self.flood = None;
            return (FlowStep::Over, None);
        }
        if !flood.leaves(now) {
            return (FlowStep::Nothing(Some(now)), None);
        }
        head.extend_from_slice(&flood.head);
        let (offset, len, cut) = (0, flood.payload.into(), None);
        (FlowStep::Frame { offset, len, cut }, flood.partial)
    }

    /// What follows the headers of a datagram.
    pub(super) fn payload(&self, offset: u64, len: usize) -> Payload<'_> {
        Payload::of(&self.parts, offset, len)
    }
}

fn say(host: &mut StationHost, (to, from): (Peer, SocketAddr), answer: &Answer) {
    let frame = frame::datagram(host.mac, from, to, answer.emit().as_bytes());
    host.answer(frame);
}
