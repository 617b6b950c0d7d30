//! The near end for TCP: a connection of a loader's own network stack is split in the machine.
//!
//! Such a loader has a small window, and answers each segment. Here the engine has the connection to the server, with a window of its own,
//! and the loader one to the near end, without a frame on the wire:
//!
//! ```text
//! loader <──its connection──> NearTcp <──bytes──> Streams (the engine) <──another connection──> server
//! ```
//!
//! The server is asked first: its answer to the engine's SYN is the loader's. Bytes, FIN and reset go on in the order in which they came,
//! each way by itself, and no more are taken than memory is there for. What cannot be done exactly goes to the wire untouched: connections from
//! another address than the engine's, more than there is memory for, and those that were there before.

use super::frames::Frames;
use super::segment::{self, Arrived};
use crate::link::Link;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use wireboot_fetch::socket::{Ending, SocketPort};
use wireboot_net::{Duration, Instant};
use wireboot_ring::Block;
use wireboot_tcp::{Connection, Flags, InitialSequence, Limits, Segment, State, Transmit, closed};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use super::segment::fill_checksums;

/// Connections at the same time; what is opened beyond goes to the wire. Each may have 4 MiB of what came for it, and some of what it
/// sends: 64 MiB together.
const CONNECTIONS: usize = 15;
/// Frames that wait for the loader, until it has taken some.
const FRAMES: usize = 32;
/// The window that the loader is told.
const WINDOW: u32 = 64 << 10;
/// A loader that has not looked for so long has missed no more than this: it may be at other work, and cannot know what came.
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// Connections to servers, as the near end has others make them.
pub trait Streams {
    /// What stands for a connection in these calls.
    type Stream;

    /// Time on the clock of the engine.
    fn now(&self) -> Instant;
    /// Begins to connect to `remote`, which has to see `local`; `None` where it cannot.
    fn connect(&mut self, local: IpAddr, remote: SocketAddr) -> Option<Self::Stream>;
    /// What has become of it.
    fn status(&mut self, stream: &Self::Stream) -> Status;
    /// Copies bytes that came, from the one `at` bytes behind the first that was not released on. Returns how many.
    fn read(&self, stream: &Self::Stream, at: usize, to: &mut [u8]) -> usize;
    /// The first `count` bytes that came are of no more use.
    fn release(&mut self, stream: &Self::Stream, count: usize);
    /// Bytes that it takes now.
    fn room(&self, stream: &Self::Stream) -> usize;
    /// Sends `bytes`, for which there is room.
    fn write(&mut self, stream: &Self::Stream, bytes: &[u8]);
    /// Sends a FIN behind what was written.
    fn finish(&mut self, stream: &Self::Stream);
    /// The loader has no more to do with it. Where one direction has not ended, it is reset.
    fn close(&mut self, stream: Self::Stream);
}

/// What has become of a connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The server has not answered yet.
    Connecting,
    /// It has refused, by a reset.
    Refused,
    /// It does not answer.
    Silent,
    /// It was not asked: there is no way to it.
    Unreachable,
    /// It has accepted.
    Open {
        /// Bytes that came and were not released.
        ready: usize,
        /// What comes behind these, if nothing more does.
        end: Option<StreamEnd>,
    },
}

impl Status {
    /// What has become of the connection behind `port`.
    #[must_use]
    pub fn of<B: Block + 'static>(port: &mut SocketPort<B>) -> Self {
        match (port.is_open(), port.ending()) {
            (true, ending) => Self::Open {
                ready: port.ready(),
                end: ending.map(|ending| match ending {
                    Ending::Finished => StreamEnd::Finished,
                    Ending::Silent => StreamEnd::Silent,
                    _ => StreamEnd::Reset,
                }),
            },
            (false, None) => Self::Connecting,
            (false, Some(Ending::Refused)) => Self::Refused,
            (false, Some(Ending::Unreachable)) => Self::Unreachable,
            (false, Some(_)) => Self::Silent,
        }
    }
}

/// How a server ends its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// By a FIN.
    Finished,
    /// By a reset, or for any other reason.
    Reset,
    /// It answers nothing any more.
    Silent,
}

/// A link on which TCP connections are split.
pub struct NearTcp<L, S: Streams> {
    link: L,
    streams: S,
    halves: Vec<Half<S::Stream>>,
    /// That wait for the loader.
    frames: Frames,
    sequence: InitialSequence,
    /// Longest frame that the loader takes, in bytes.
    longest: usize,
    /// The loader's time: it stands while nobody looks.
    now: Instant,
    looked: Instant,
}

/// The loader's half of a connection, and the engine's behind it.
struct Half<T> {
    client: SocketAddr,
    server: SocketAddr,
    /// The Ethernet header of the SYN.
    header: [u8; 14],
    stream: T,
    phase: Phase,
}

enum Phase {
    /// The server has not answered yet. The IP packet of the SYN.
    Connecting(Vec<u8>),
    Open(Box<Open>),
}

struct Open {
    connection: Connection,
    /// Bytes of the server's that were given to the connection and not acknowledged.
    queued: usize,
    /// The server's FIN was.
    closed: bool,
    /// The loader's FIN has come.
    finished: bool,
}

/// What becomes of a half.
enum Outcome {
    GoesOn,
    Over,
    /// The SYN has to go to the server itself.
    ForTheWire,
}

impl<L: Link, S: Streams> NearTcp<L, S> {
    /// On `link`, whose frames have at most `longest` bytes. `secret`: for first sequence numbers; unpredictable, and used for nothing else.
    pub fn new(link: L, streams: S, longest: usize, secret: [u8; 16]) -> Self {
        let looked = streams.now();
        Self {
            link,
            streams,
            halves: Vec::new(),
            frames: Frames::default(),
            sequence: InitialSequence::new(secret),
            longest,
            now: looked,
            looked,
        }
    }

    fn look(&mut self) {
        let now = self.streams.now();
        self.now += (now - self.looked).min(LONGEST_LOOK);
        self.looked = now;
    }

    fn position(&self, client: SocketAddr, server: SocketAddr) -> Option<usize> {
        let mut halves = self.halves.iter();
        halves.position(|half| half.client == client && half.server == server)
    }

    /// Takes a segment of the loader's that is for a connection of ours, or opens one. False when it is for the wire.
    fn take(&mut self, frame: (&[u8; 14], &[u8]), arrived: &Arrived<'_>) -> bool {
        let (client, server) = (arrived.source, arrived.destination);
        let opens = is_syn(&arrived.segment);
        if let Some(index) = self.position(client, server) {
            let Some(half) = self.halves.get_mut(index) else {
                return false;
            };
            if !(opens && half.gives_way(&arrived.segment)) {
                half.hear(&mut self.streams, arrived, self.now);
                return true;
            }
            self.drop_half(index);
        }
        opens && self.open(frame, client, server)
    }

    fn open(&mut self, frame: (&[u8; 14], &[u8]), client: SocketAddr, server: SocketAddr) -> bool {
        if self.halves.len() >= CONNECTIONS {
            // One that waits for nothing but stray segments.
            let Some(index) = self.halves.iter().position(Half::waits_no_more) else {
                return false;
            };
            self.drop_half(index);
        }
        let Some(stream) = self.streams.connect(client.ip(), server) else {
            return false;
        };
        self.halves.push(Half {
            client,
            server,
            header: *frame.0,
            stream,
            phase: Phase::Connecting(frame.1.into()),
        });
        true
    }

    fn drop_half(&mut self, index: usize) {
        let half = self.halves.swap_remove(index);
        self.streams.close(half.stream);
    }

    /// Lets the connections get on.
    fn turn(&mut self) {
        let mut index = 0;
        while let Some(half) = self.halves.get_mut(index) {
            let (server, client) = (half.server, half.client);
            let opening = || {
                let mss = self.longest.saturating_sub(segment::headers(server.ip()));
                let iss = self.sequence.iss(server, client, self.looked);
                (u16::try_from(mss).unwrap_or(u16::MAX), iss)
            };
            match half.turn(&mut self.streams, self.now, opening, &mut self.frames) {
                Outcome::GoesOn => {
                    index += 1;
                    continue;
                }
                Outcome::Over => {}
                Outcome::ForTheWire => {
                    if let Phase::Connecting(packet) = &half.phase {
                        self.link.send(&half.header, packet);
                    }
                }
            }
            self.drop_half(index);
        }
    }

    fn end_all(&mut self) {
        while !self.halves.is_empty() {
            self.drop_half(0);
        }
        self.frames.clear();
    }
}

/// Whether `frame` is a segment to the loader that belongs to one of `halves`.
fn is_ours<T>(halves: &[Half<T>], frame: &[u8]) -> bool {
    let arrived = frame
        .split_first_chunk()
        .and_then(|(header, packet)| segment::parse(header, packet));
    arrived.is_some_and(|arrived| {
        let mut halves = halves.iter();
        halves.any(|half| half.server == arrived.source && half.client == arrived.destination)
    })
}

/// Whether a segment does nothing but open a connection.
fn is_syn(segment: &Segment<'_>) -> bool {
    let Flags(bits) = segment.flags;
    let others = Flags::FIN | Flags::RST | Flags::ACK;
    segment.flags.contains(Flags::SYN) && bits & others.0 == 0
}

impl<T> Half<T> {
    /// Whether `syn` opens another connection in the place of this one.
    fn gives_way(&self, syn: &Segment<'_>) -> bool {
        match &self.phase {
            Phase::Connecting(packet) => {
                let first = segment::parse(&self.header, packet);
                first.is_none_or(|first| first.segment.seq != syn.seq)
            }
            Phase::Open(open) => open.connection.state() == State::TimeWait,
        }
    }

    /// Whether it has ended both ways, but for stray segments.
    fn waits_no_more(&self) -> bool {
        matches!(&self.phase, Phase::Open(open) if open.connection.state() == State::TimeWait)
    }

    /// Takes a segment of the loader's.
    fn hear(
        &mut self,
        streams: &mut impl Streams<Stream = T>,
        arrived: &Arrived<'_>,
        now: Instant,
    ) {
        // Before the server has answered a loader has nothing to say but its SYN again.
        let Phase::Open(open) = &mut self.phase else {
            return;
        };
        let room = u32::try_from(streams.room(&self.stream)).unwrap_or(u32::MAX);
        let range = open.connection.receive(now, &arrived.segment, room);
        if let Some(range) = range {
            if range.at == 0 {
                let end = range.skip + range.len;
                let bytes = arrived.payload.get(range.skip..end);
                streams.write(&self.stream, bytes.unwrap_or_default());
            } else {
                // It comes again.
                open.connection.renege();
            }
        }
        if !open.connection.may_receive() && open.connection.error().is_none() && !open.finished {
            open.finished = true;
            streams.finish(&self.stream);
        }
    }

    /// Sends what is to be sent. `opening`: largest payload of a segment and first sequence number, for the SYN.
    fn turn(
        &mut self,
        streams: &mut impl Streams<Stream = T>,
        now: Instant,
        opening: impl FnOnce() -> (u16, u32),
        frames: &mut Frames,
    ) -> Outcome {
        let status = streams.status(&self.stream);
        if let Phase::Connecting(packet) = &self.phase {
            let Some(syn) = segment::parse(&self.header, packet) else {
                return Outcome::Over;
            };
            match status {
                Status::Connecting => return Outcome::GoesOn,
                Status::Refused => {
                    if let Some(reply) = closed(&syn.segment) {
                        self.send(streams, &reply.into(), frames);
                    }
                    return Outcome::Over;
                }
                Status::Silent => return Outcome::Over,
                Status::Unreachable => return Outcome::ForTheWire,
                Status::Open { .. } => {}
            }
            let (mss, iss) = opening();
            let connection = Connection::accept(mss, iss, now, &syn.segment);
            self.phase = Phase::Open(Box::new(Open {
                connection,
                queued: 0,
                closed: false,
                finished: false,
            }));
        }
        let end = match status {
            Status::Open { ready, end } => {
                self.queue(streams, ready);
                end
            }
            _ => Some(StreamEnd::Reset),
        };
        if let Phase::Open(open) = &mut self.phase {
            match end {
                Some(StreamEnd::Finished) if !open.closed => {
                    open.closed = true;
                    open.connection.close();
                }
                // Behind all that came before.
                Some(StreamEnd::Reset) if open.queued == 0 => open.connection.abort(),
                Some(StreamEnd::Silent) if open.queued == 0 => return Outcome::Over,
                _ => {}
            }
        }
        while frames.len() < FRAMES {
            let room = u32::try_from(streams.room(&self.stream)).unwrap_or(u32::MAX);
            let limits = Limits {
                window: WINDOW,
                room,
                unit: 0,
            };
            let Phase::Open(open) = &mut self.phase else {
                break;
            };
            let Some(out) = open.connection.transmit(now, &limits) else {
                break;
            };
            self.send(streams, &out, frames);
        }
        match &self.phase {
            Phase::Open(open) if open.connection.is_over() => Outcome::Over,
            _ => Outcome::GoesOn,
        }
    }

    /// Releases what the loader has acknowledged, and queues what has come; `ready`: bytes of the server's that are there.
    fn queue(&mut self, streams: &mut impl Streams<Stream = T>, ready: usize) {
        let Phase::Open(open) = &mut self.phase else {
            return;
        };
        let more = ready.saturating_sub(open.queued);
        if more > 0 && !open.closed && open.connection.may_send() {
            open.connection.queue(u32::try_from(more).unwrap_or(0));
            open.queued += more;
        }
        let done = (open.connection.acknowledged() as usize).min(open.queued);
        if done > 0 {
            open.queued -= done;
            streams.release(&self.stream, done);
        }
    }

    fn send(&self, streams: &impl Streams<Stream = T>, out: &Transmit, frames: &mut Frames) {
        let (header, server, client) = (&self.header, self.server, self.client);
        let frame = segment::answer(frames, header, server, client, out, |place| {
            if !place.is_empty() {
                streams.read(&self.stream, out.offset as usize, place);
            }
        });
        frames.push(frame);
    }
}

impl<L: Link, S: Streams> Link for NearTcp<L, S> {
    fn set_up(&mut self, up: bool) {
        self.end_all();
        self.link.set_up(up);
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        if let Some(arrived) = segment::parse(header, payload) {
            self.look();
            if self.take((header, payload), &arrived) {
                self.turn();
                return true;
            }
        }
        self.link.send(header, payload)
    }

    fn peek(&mut self) -> Option<&[u8]> {
        if self.frames.is_empty() && !self.halves.is_empty() {
            self.look();
            self.turn();
        }
        if self.frames.is_empty() {
            // Nobody on the wire has such a connection with the loader.
            let halves = &self.halves;
            while !halves.is_empty() && self.link.peek().is_some_and(|frame| is_ours(halves, frame))
            {
                self.link.skip();
            }
            return self.link.peek();
        }
        self.frames.front()
    }

    fn skip(&mut self) {
        if !self.frames.skip() {
            self.link.skip();
        }
    }
}

#[cfg(test)]
mod tests;
