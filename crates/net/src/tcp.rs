//! TCP connections: smoltcp keeps the protocol, and in-order data may take a short way round it.
//!
//! While a connection has a destination for its bytes, a segment that is exactly the next one, carries no news
//! for smoltcp and arrives while smoltcp holds nothing back is copied from DMA memory straight to the
//! destination. smoltcp never learns of those bytes: what it believes the peer's sequence numbers to be falls behind the
//! wire's by `delta`, which is taken off each segment shown to it and added to each acknowledgement (SACK
//! blocks too) that it sends. Anything odd (a flag, an ACK of our own data) goes to smoltcp; when it has handed
//! everything over, the short way opens again.
//!
//! Behind a gap, too, data is copied to its place, as long as the destination has more room than smoltcp's buffer: a
//! window of a long path takes no second memory then. What is there is noted ([`OutOfOrder`]) and told to the sender in SACK
//! options, and smoltcp is shown no data until the gap is filled. Where there is less room, smoltcp's reassembly
//! fills the gap.
//!
//! Windows are our own affair as well ([`window`]): segments of smoltcp's leave with ours in them.

use crate::ethernet::{
    ACK, ETHERNET_HEADER, FIN, IPV4_HEADER, PROTOCOL_TCP, PSH, RST, SYN, TCP_HEADER, Tcp, be16,
    be32, put,
};
use crate::memory::Region;
use crate::out_of_order::OutOfOrder;
use crate::parts::Parts;
use crate::stack::{Inner, NetError, Stack};
use crate::window;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::{SocketAddr, SocketAddrV4};
use core::task::Poll;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::IpEndpoint;

/// Offsets within a frame without IP options.
const IP: usize = ETHERNET_HEADER;
const TCP: usize = ETHERNET_HEADER + IPV4_HEADER;
const HEADERS: usize = TCP + TCP_HEADER;
/// An acknowledgement with three SACK blocks.
const LONGEST: usize = HEADERS + 4 + 3 * 8;

/// Request bytes that can be under way.
const SEND_BUFFER: usize = 16 * 1024;
/// A reader that hears nothing for so long is told [`NetError::TimedOut`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes taken the short way before an acknowledgement must leave. Each one may cost a doorbell, which
/// under load is dearer than everything else the receiver does.
const ACK_BYTES: u32 = 256 * 1024;
/// How long fewer bytes may wait for their acknowledgement. A sender in slow start waits for it.
const ACK_DELAY: Duration = Duration::from_micros(100);
/// How long a closed connection may take to say goodbye.
const LINGER: Duration = Duration::from_secs(3);

struct Destination {
    region: Region,
    /// Next byte to fill.
    at: usize,
    filled: usize,
}

impl Destination {
    /// Bytes that can still be filled.
    fn room(&self) -> usize {
        self.region.end().saturating_sub(self.at)
    }

    /// Writes `payload` so many bytes behind the next one. False when it does not fit.
    #[inline]
    fn write(&self, offset: usize, payload: Parts<'_>) -> bool {
        self.region.with(self.at.saturating_add(offset), |room| {
            room.len() >= payload.len() && {
                payload.copy_to(room);
                true
            }
        })
    }

    fn took(&mut self, count: usize) {
        self.at += count;
        self.filled += count;
    }
}

/// One connection.
pub struct Connection {
    handle: SocketHandle,
    remote: SocketAddrV4,
    local_port: u16,
    /// Size of smoltcp's receive buffer in bytes.
    capacity: usize,
    /// Shifts of the window field (RFC 7323): the wire's and smoltcp's.
    scale: u8,
    inner_scale: u8,
    /// The peer understands SACK (RFC 2018).
    sack: bool,
    /// Shortest round trip seen.
    round_trip: Option<Duration>,
    /// What is timed: the acknowledgement that ends it, and when its segment left.
    timing: Option<(u32, Instant)>,
    destination: Option<Destination>,
    /// Wire sequence number of the peer's first data byte; known once its SYN is seen.
    base: Option<u32>,
    /// Bytes that took the short way: the wire is ahead of smoltcp by so many.
    delta: u32,
    /// Bytes taken out of smoltcp's receive buffer.
    consumed: u32,
    /// Wire sequence number expected next.
    expected: u32,
    /// Wire sequence number behind the last byte that smoltcp may hold.
    shown: u32,
    /// Last acknowledgement that smoltcp was shown.
    acknowledged: Option<u32>,
    /// The short way is open: a destination is set, acknowledgements have a model, and smoltcp holds nothing.
    short: bool,
    /// Data in its place behind a gap. While there is any, smoltcp is shown no data.
    out_of_order: OutOfOrder,
    /// Acknowledgements that must leave in this turn.
    urgent: u32,
    /// Headers of our last plain segment, the model for acknowledgements of the short way.
    model: Option<[u8; HEADERS]>,
    /// Our next sequence number, as seen on the wire.
    next: u32,
    /// Wire sequence number up to which the peer may send: the right edge of the window. Never goes back.
    edge: u32,
    /// Size of the window that was last told.
    window: u32,
    /// Bytes taken the short way and not yet acknowledged.
    pending: u32,
    last_data: Instant,
    received: Rc<Cell<u64>>,
    /// When a dropped connection is forgotten whatever its state.
    forget: Option<Instant>,
}

/// All connections of a stack.
pub struct Connections {
    list: Vec<Connection>,
    /// Bytes of the receive ring that they share.
    ring: u32,
    pub now: Instant,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            ring: 0,
            now: Instant::ZERO,
        }
    }
}

/// True when wire sequence number `a` comes after `b` (RFC 9293, section 3.4).
fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// Kinds of TCP options (RFC 7323, RFC 2018).
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;

/// Where the contents of the option of this kind lie, if it is there.
fn option(options: &[u8], kind: u8) -> Option<core::ops::Range<usize>> {
    let mut at = 0;
    loop {
        match *options.get(at..)? {
            [1, ..] => at += 1,
            [0, ..] | [] | [_] => return None,
            [_, len, ..] if len < 2 => return None,
            [found, len, ..] => {
                let end = at + usize::from(len);
                if found == kind {
                    return (end <= options.len()).then_some(at + 2..end);
                }
                at = end;
            }
        }
    }
}

/// The shift of a window scale option, if there is one.
fn window_scale(options: &[u8]) -> Option<u8> {
    let shift = *options.get(option(options, WINDOW_SCALE)?)?.first()?;
    Some(shift.min(14))
}

impl Connections {
    fn by_handle(&mut self, handle: SocketHandle) -> Option<&mut Connection> {
        self.list.iter_mut().find(|c| c.handle == handle)
    }

    /// The connection that a received segment belongs to.
    fn find(&mut self, segment: &Tcp<'_>) -> Option<&mut Connection> {
        self.list.iter_mut().find(|c| {
            c.local_port == segment.destination_port
                && c.remote.port() == segment.source_port
                && *c.remote.ip() == segment.source
        })
    }

    /// Whether the segment is of a connection of this engine's.
    pub fn knows(&mut self, segment: &Tcp<'_>) -> bool {
        self.find(segment).is_some()
    }

    /// Takes the segment the short way, if it may go there.
    pub fn take(&mut self, segment: &Tcp<'_>, now: Instant) -> bool {
        self.find(segment)
            .is_some_and(|connection| connection.take(segment, now))
    }

    /// The window that a connection may have beside the others.
    fn grant(&self, index: usize) -> u32 {
        let mut readers = 1;
        let mut taken = 0_u32;
        let mut round_trip = None;
        for (at, connection) in self.list.iter().enumerate() {
            if at == index {
                round_trip = connection.round_trip;
            } else {
                readers += u32::from(connection.destination.is_some());
                taken = taken.saturating_add(connection.taken());
            }
        }
        window::grant(self.ring, readers, taken, round_trip)
    }

    /// What to take off the sequence numbers of a segment before smoltcp sees it.
    pub fn arriving(&mut self, segment: &Tcp<'_>) -> u32 {
        let now = self.now;
        let Some(connection) = self.find(segment) else {
            return 0;
        };
        connection.arriving(segment, now);
        connection.delta
    }

    /// After smoltcp was shown a segment: its bytes go on to the destination.
    pub fn arrived(&mut self, segment: &Tcp<'_>, sockets: &mut SocketSet<'_>, now: Instant) {
        if let Some(connection) = self.find(segment) {
            connection.drain(sockets, now);
        }
    }

    /// Translates a frame that smoltcp sends, and learns from it.
    pub fn leaving(&mut self, frame: &mut [u8]) {
        if be16(frame, 12) != Some(0x0800)
            || frame.get(IP) != Some(&0x45)
            || frame.get(IP + 9) != Some(&PROTOCOL_TCP)
        {
            return;
        }
        let (Some(destination), Some(local), Some(remote)) =
            (be32(frame, IP + 16), be16(frame, TCP), be16(frame, TCP + 2))
        else {
            return;
        };
        let remote = SocketAddrV4::new(destination.into(), remote);
        if let Some(connection) = self
            .list
            .iter()
            .position(|c| c.local_port == local && c.remote == remote)
        {
            let grant = self.grant(connection);
            let now = self.now;
            if let Some(connection) = self.list.get_mut(connection) {
                connection.leaving(frame, grant, now);
            }
        }
    }

    /// Writes the acknowledgements that are due, each as a complete frame, to `send`.
    pub fn acknowledge(&mut self, now: Instant, mut send: impl FnMut(&mut [u8])) {
        for index in 0..self.list.len() {
            if !self.list.get(index).is_some_and(|c| c.due(now)) {
                continue;
            }
            let grant = self.grant(index);
            let Some(connection) = self.list.get_mut(index) else {
                continue;
            };
            // A sender without SACK counts the acknowledgements that segments behind a gap bring forth.
            for _ in 0..connection.urgent.max(1) {
                let mut frame = [0; LONGEST];
                let len = connection.acknowledgement(&mut frame, grant);
                match frame.get_mut(..len) {
                    Some(frame) if len > 0 => send(frame),
                    _ => break,
                }
            }
            connection.urgent = 0;
        }
    }

    /// Forgets dropped connections that have said goodbye.
    pub fn reap(&mut self, sockets: &mut SocketSet<'_>, now: Instant) {
        self.list.retain(|connection| {
            let Some(forget) = connection.forget else {
                return true;
            };
            let state = sockets.get::<tcp::Socket<'_>>(connection.handle).state();
            let done = matches!(state, tcp::State::Closed | tcp::State::TimeWait) || now >= forget;
            if done {
                sockets.remove(connection.handle);
            }
            !done
        });
    }
}

impl Connection {
    fn take(&mut self, segment: &Tcp<'_>, now: Instant) -> bool {
        let len = segment.payload.len();
        if !self.short {
            return false;
        }
        if segment.sequence != self.expected || !self.out_of_order.is_empty() {
            return self.take_out_of_order(segment, now);
        }
        if segment.flags & !PSH != ACK
            || len == 0
            || Some(segment.acknowledgement) != self.acknowledged
        {
            return false;
        }
        let Some(destination) = &mut self.destination else {
            return false;
        };
        if !destination.write(0, segment.payload) {
            return false;
        }
        destination.took(len);
        self.took(len, now);
        true
    }

    /// So many more bytes are in their place without a gap.
    #[inline]
    fn took(&mut self, len: usize, now: Instant) {
        self.expected = self.expected.wrapping_add(len as u32);
        self.delta = self.delta.wrapping_add(len as u32);
        self.pending = self.pending.saturating_add(len as u32);
        self.last_data = now;
        self.received.set(self.received.get() + len as u64);
    }

    /// Takes a segment that is not the next one, or is and may close a gap.
    #[cold]
    fn take_out_of_order(&mut self, segment: &Tcp<'_>, now: Instant) -> bool {
        let waiting = !self.out_of_order.is_empty();
        if segment.flags & (SYN | RST) != 0 {
            return false;
        }
        if segment.payload.is_empty() {
            // What an end behind a gap says is said again when the gap is filled.
            return waiting && segment.flags & FIN != 0;
        }
        if !waiting && segment.flags & !PSH != ACK {
            return false;
        }
        let Some(destination) = &mut self.destination else {
            return false;
        };
        let room = destination.room();
        // What is there already is cut off.
        let ahead = segment.sequence.wrapping_sub(self.expected) as i32;
        let old = ahead.min(0).unsigned_abs() as usize;
        let offset = ahead.max(0) as usize;
        let payload = segment.payload.slice(old, usize::MAX);
        let new = !payload.is_empty();
        if !waiting && (!new || offset == 0 || room <= self.capacity) {
            return false;
        }
        let start = self.expected.wrapping_add(offset as u32);
        let end = start.wrapping_add(payload.len() as u32);
        self.urgent += 1;
        if new
            && offset.saturating_add(payload.len()) <= room
            && destination.write(offset, payload)
            && self.out_of_order.insert(self.expected, start, end)
        {
            let end = self.out_of_order.advance(self.expected);
            let len = end.wrapping_sub(self.expected) as usize;
            if len > 0 {
                destination.took(len);
                self.took(len, now);
            }
        } else if !waiting {
            // Nothing was noted: smoltcp may have it.
            self.urgent -= 1;
            return false;
        }
        true
    }

    /// Bytes of the receive ring that the window takes.
    fn taken(&self) -> u32 {
        if self.base.is_none() || !after(self.edge, self.expected) {
            return 0;
        }
        window::taken(self.edge.wrapping_sub(self.expected), self.round_trip)
    }

    /// Moves the edge of the window behind the sequence number `next` as far as `grant` and the room there is allow, `free`
    /// bytes of it in smoltcp's buffer, and returns the window field.
    fn open(&mut self, next: u32, free: u32, grant: u32) -> u16 {
        let room = self.destination.as_ref().map_or(0, Destination::room);
        let room = u32::try_from(room).unwrap_or(u32::MAX).saturating_add(free);
        let edge = next.wrapping_add(room.min(grant).min(u32::from(u16::MAX) << self.scale));
        if after(edge, self.edge) {
            self.edge = edge;
        }
        self.field(next)
    }

    /// The window field of a segment that acknowledges up to `next`.
    fn field(&mut self, next: u32) -> u16 {
        self.window = if after(self.edge, next) {
            self.edge.wrapping_sub(next)
        } else {
            0
        };
        (self.window >> self.scale).min(u16::MAX.into()) as u16
    }

    fn arriving(&mut self, segment: &Tcp<'_>, now: Instant) {
        if let Some((end, left)) = self.timing
            && segment.flags & ACK != 0
            && !after(end, segment.acknowledgement)
        {
            let sample = now - left;
            self.round_trip = Some(self.round_trip.map_or(sample, |rtt| rtt.min(sample)));
            self.timing = None;
        }
        if segment.flags & SYN != 0 {
            let first = segment.sequence.wrapping_add(1);
            if self.base.is_none() {
                self.base = Some(first);
                self.expected = first;
                self.shown = first;
                self.edge = first;
                self.sack = option(segment.options, SACK_PERMITTED).is_some();
                if window_scale(segment.options).is_none() {
                    // The peer does not scale: neither may we.
                    self.scale = 0;
                    self.inner_scale = 0;
                }
            }
            return;
        }
        if let Some(base) = self.base
            && (!segment.payload.is_empty() || segment.flags & FIN != 0)
        {
            let end = segment.sequence.wrapping_add(segment.payload.len() as u32);
            // Of what lies beyond its buffer smoltcp keeps nothing.
            let full = base
                .wrapping_add(self.consumed)
                .wrapping_add(self.delta)
                .wrapping_add(self.capacity as u32);
            let end = if after(end, full) { full } else { end };
            if after(end, self.shown) {
                self.shown = end;
            }
        }
        if segment.flags & ACK != 0 && segment.flags & RST == 0 {
            let newer = self
                .acknowledged
                .is_none_or(|seen| after(segment.acknowledgement, seen));
            if newer {
                self.acknowledged = Some(segment.acknowledgement);
            }
        }
    }

    /// Moves what smoltcp holds to the destination and sees whether the short way is open.
    fn drain(&mut self, sockets: &mut SocketSet<'_>, now: Instant) {
        let socket = sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        if let Some(destination) = &mut self.destination {
            while socket.can_recv() && destination.room() > 0 {
                let taken = socket.recv(|bytes| {
                    let count = destination
                        .region
                        .with(destination.at, |room| Parts::new(&[bytes]).copy_to(room));
                    (count, count)
                });
                let Ok(count @ 1..) = taken else { break };
                destination.took(count);
                self.consumed = self.consumed.wrapping_add(count as u32);
                self.received.set(self.received.get() + count as u64);
                self.last_data = now;
            }
        }
        self.look(socket);
    }

    /// Closes the short way. What is behind a gap is given up (RFC 2018, section 8, allows it).
    fn leave_destination(&mut self) {
        self.short = false;
        self.destination = None;
        self.out_of_order.clear();
    }

    /// Where the wire is, and whether the short way is open.
    fn look(&mut self, socket: &tcp::Socket<'_>) {
        let Some(base) = self.base else { return };
        let held = socket.recv_queue();
        self.expected = base
            .wrapping_add(self.consumed)
            .wrapping_add(held as u32)
            .wrapping_add(self.delta);
        self.short = self.destination.is_some()
            && self.model.is_some()
            && held == 0
            && socket.state() == tcp::State::Established
            && !after(self.shown, self.expected);
    }

    fn leaving(&mut self, frame: &mut [u8], grant: u32, now: Instant) {
        let (Some(sequence), Some(acknowledgement), Some(ip_len)) = (
            be32(frame, TCP + 4),
            be32(frame, TCP + 8),
            be16(frame, IP + 2),
        ) else {
            return;
        };
        let (Some(&offset), Some(&flags), Some(field)) = (
            frame.get(TCP + 12),
            frame.get(TCP + 13),
            be16(frame, TCP + 14),
        ) else {
            return;
        };
        let header_len = usize::from(offset >> 4) * 4;
        if flags & SYN != 0 {
            let options = frame.get_mut(HEADERS..TCP + header_len).unwrap_or_default();
            let shift =
                option(options, WINDOW_SCALE).and_then(|at| options.get_mut(at)?.first_mut());
            if let Some(shift) = shift {
                self.inner_scale = *shift;
                self.scale = window::SCALE;
                *shift = window::SCALE;
            }
            // The window of a SYN is not scaled.
            let window = grant.min(field.into()) as u16;
            put(frame, TCP + 14, window.to_be_bytes());
            let next = sequence.wrapping_add(1);
            // An answer to one of two equal segments measures nothing (Karn's algorithm).
            self.timing = (self.next != next).then_some((next, now));
            self.next = next;
            return;
        }
        if flags & ACK != 0 {
            let translated = acknowledgement.wrapping_add(self.delta);
            put(frame, TCP + 8, translated.to_be_bytes());
            let free = u32::from(field) << self.inner_scale;
            let window = self.open(translated, free, grant);
            put(frame, TCP + 14, window.to_be_bytes());
            if let Some(options) = frame.get_mut(HEADERS..TCP + header_len) {
                translate_sack(options, self.delta);
            }
            // smoltcp's acknowledgement covers the short way's bytes as well.
            self.pending = 0;
        }
        let payload = usize::from(ip_len).saturating_sub(IPV4_HEADER + header_len)
            + usize::from(flags & FIN != 0);
        let next = sequence.wrapping_add(payload as u32);
        if after(next, self.next) {
            self.next = next;
            self.timing = self.timing.or(Some((next, now)));
        } else if payload > 0 {
            self.timing = None;
        }
        if flags & (RST | FIN) == 0
            && let Some(model) = frame.first_chunk::<HEADERS>()
        {
            self.model = Some(*model);
        }
    }

    /// Whether an acknowledgement must leave now.
    fn due(&self, now: Instant) -> bool {
        if self.urgent > 0 {
            return true;
        }
        let enough = self.pending >= ACK_BYTES.min(self.window / 4);
        self.pending > 0 && (enough || now >= self.last_data + ACK_DELAY)
    }

    /// Writes an acknowledgement of all that is there, as a complete frame, and returns its length; 0 when nothing can
    /// be written yet.
    fn acknowledgement(&mut self, frame: &mut [u8; LONGEST], grant: u32) -> usize {
        let Some(model) = &self.model else { return 0 };
        put(frame, 0, *model);
        let window = if self.destination.is_some() && self.out_of_order.is_empty() {
            self.open(self.expected, self.capacity as u32, grant)
        } else {
            // Equal acknowledgements tell of a gap: with a new window they would not be equal. And without a
            // destination smoltcp knows what room there is.
            self.field(self.expected)
        };
        let mut len = HEADERS;
        if self.sack && !self.out_of_order.is_empty() {
            for (start, end) in self.out_of_order.blocks() {
                put(frame, len + 4, start.to_be_bytes());
                put(frame, len + 8, end.to_be_bytes());
                len += 8;
            }
            let blocks = (len - HEADERS + 2) as u8;
            put(frame, HEADERS, [1, 1, SACK, blocks]);
            len += 4;
        }
        put(frame, IP + 2, ((len - IP) as u16).to_be_bytes());
        put(frame, IP + 10, [0, 0]);
        let header = frame.get(IP..TCP).unwrap_or_default();
        let sum = crate::checksum::compute(0, header);
        put(frame, IP + 10, sum.to_be_bytes());
        put(frame, TCP + 4, self.next.to_be_bytes());
        put(frame, TCP + 8, self.expected.to_be_bytes());
        put(frame, TCP + 12, [((len - TCP) / 4 * 16) as u8, ACK]);
        put(frame, TCP + 14, window.to_be_bytes());
        put(frame, TCP + 16, [0, 0, 0, 0]);
        self.pending = 0;
        len
    }
}

/// Adds `delta` to each edge in a SACK option (RFC 2018).
fn translate_sack(options: &mut [u8], delta: u32) {
    let blocks = option(options, SACK).and_then(|at| options.get_mut(at));
    for edge in blocks.unwrap_or_default().as_chunks_mut::<4>().0 {
        *edge = u32::from_be_bytes(*edge).wrapping_add(delta).to_be_bytes();
    }
}

/// A TCP connection. Dropping it resets the connection, unless [`TcpStream::close`] was called.
pub struct TcpStream {
    stack: Stack,
    handle: SocketHandle,
    received: Rc<Cell<u64>>,
    closed: bool,
    idle_timeout: Duration,
}

impl TcpStream {
    pub(crate) async fn connect(
        stack: Stack,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, NetError> {
        let SocketAddr::V4(remote) = remote else {
            return Err(NetError::Unreachable);
        };
        let Some(address) = stack.address() else {
            return Err(NetError::Unreachable);
        };
        // What the server sends must come to this engine.
        let comes_here = |inner: &Inner, port| {
            let local = SocketAddrV4::new(address.address(), port);
            let team = inner.team.as_ref();
            team.is_none_or(|team| team.owns(remote, local))
        };
        let local_port = stack
            .rare_port(|inner, port| {
                let list = &inner.connections.list;
                list.iter().all(|c| c.local_port != port) && comes_here(inner, port)
            })
            .ok_or(NetError::NoPort)?;
        let ring = stack.ring();
        let capacity = window::held(ring);
        let received = Rc::new(Cell::new(0));
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; capacity]),
            tcp::SocketBuffer::new(vec![0; SEND_BUFFER]),
        );
        // Data that smoltcp sees is the exception: acknowledge it at once, so that a loss is repaired at once.
        socket.set_ack_delay(None);
        socket.set_nagle_enabled(false);
        let handle = {
            let mut inner = stack.inner();
            let inner = &mut *inner;
            socket
                .connect(inner.iface.context(), IpEndpoint::from(remote), local_port)
                .map_err(|_| NetError::Unreachable)?;
            inner.want(*remote.ip(), stack.now());
            let handle = inner.sockets.add(socket);
            inner.connections.ring = ring;
            inner.connections.list.push(Connection {
                handle,
                remote,
                local_port,
                capacity,
                scale: 0,
                inner_scale: 0,
                sack: false,
                round_trip: None,
                timing: None,
                destination: None,
                base: None,
                delta: 0,
                consumed: 0,
                expected: 0,
                shown: 0,
                acknowledged: None,
                short: false,
                out_of_order: OutOfOrder::default(),
                urgent: 0,
                model: None,
                next: 0,
                edge: 0,
                window: 0,
                pending: 0,
                last_data: stack.now(),
                received: received.clone(),
                forget: None,
            });
            handle
        };
        let stream = Self {
            stack,
            handle,
            received,
            closed: false,
            idle_timeout: IDLE_TIMEOUT,
        };
        let established = stream.stack.timeout(
            timeout,
            core::future::poll_fn(|_| match stream.state() {
                tcp::State::SynSent | tcp::State::SynReceived => Poll::Pending,
                tcp::State::Closed => Poll::Ready(Err(NetError::Refused)),
                _ => Poll::Ready(Ok(())),
            }),
        );
        match established.await {
            Some(Ok(())) => Ok(stream),
            Some(Err(error)) => Err(error),
            None => Err(NetError::TimedOut),
        }
    }

    /// A read that receives nothing for so long ends with [`NetError::TimedOut`] (10 s unless set).
    pub fn set_idle_timeout(&mut self, timeout: Duration) {
        self.idle_timeout = timeout;
    }

    /// Bytes received so far, as a counter that can be read while a read is under way.
    #[must_use]
    pub fn received(&self) -> Rc<Cell<u64>> {
        self.received.clone()
    }

    /// Bytes received so far.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.received.get()
    }

    /// The shortest round trip seen on this connection, if any was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.with(|connection, _| connection.round_trip).flatten()
    }

    fn state(&self) -> tcp::State {
        self.with_socket(|socket| socket.state())
    }

    fn with_socket<R>(&self, f: impl FnOnce(&mut tcp::Socket<'static>) -> R) -> R {
        f(self.stack.inner().sockets.get_mut(self.handle))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Connection, &mut SocketSet<'static>) -> R) -> Option<R> {
        let mut inner = self.stack.inner();
        let Inner {
            connections,
            sockets,
            ..
        } = &mut *inner;
        Some(f(connections.by_handle(self.handle)?, sockets))
    }

    /// Sends all of `bytes`; ready when they are in the send buffer.
    ///
    /// # Errors
    /// [`NetError::Reset`] when the connection is gone, [`NetError::TimedOut`] when the peer takes nothing.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), NetError> {
        let mut since = self.stack.now();
        core::future::poll_fn(|_| {
            loop {
                if bytes.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                match self.with_socket(|socket| socket.send_slice(bytes)) {
                    Err(_) => return Poll::Ready(Err(NetError::Reset)),
                    Ok(0) if self.stack.now() >= since + self.idle_timeout => {
                        return Poll::Ready(Err(NetError::TimedOut));
                    }
                    Ok(0) => return Poll::Pending,
                    Ok(count) => {
                        since = self.stack.now();
                        bytes = bytes.get(count..).unwrap_or_default();
                    }
                }
            }
        })
        .await
    }

    /// Waits for bytes and shows them to `consume`, which returns how many it took. Returns that number, or 0
    /// when the peer has closed its side and everything was read.
    ///
    /// # Errors
    /// [`NetError::Reset`] when the connection broke, [`NetError::TimedOut`] after the idle time-out.
    pub async fn read(&mut self, consume: impl FnOnce(&[u8]) -> usize) -> Result<usize, NetError> {
        let since = self.stack.now();
        let mut consume = Some(consume);
        core::future::poll_fn(|_| {
            let ready = self.with(|connection, sockets| {
                let socket = sockets.get_mut::<tcp::Socket<'_>>(connection.handle);
                if socket.can_recv() {
                    let Some(consume) = consume.take() else {
                        return Some(Ok(0));
                    };
                    let count = socket
                        .recv(|bytes| {
                            let count = consume(bytes).min(bytes.len());
                            (count, count)
                        })
                        .unwrap_or(0);
                    connection.consumed = connection.consumed.wrapping_add(count as u32);
                    let received = &connection.received;
                    received.set(received.get() + count as u64);
                    return Some(Ok(count));
                }
                ended(socket)
            });
            match ready {
                None => Poll::Ready(Err(NetError::Reset)),
                Some(Some(result)) => Poll::Ready(result),
                Some(None) if self.stack.now() >= since + self.idle_timeout => {
                    Poll::Ready(Err(NetError::TimedOut))
                }
                Some(None) => Poll::Pending,
            }
        })
        .await
    }

    /// Fills `region` from `at` to its end straight from the wire. Ready when it is full, when the peer has
    /// closed its side, or on an error; the count is that of the bytes filled, and an error is
    /// returned only when there are none (the next read returns it again). Bytes behind those may have been written
    /// to as well.
    pub async fn read_into(&mut self, region: &Region, at: usize) -> Result<usize, NetError> {
        let mut handed = Some(region.clone());
        let since = self.stack.now();
        core::future::poll_fn(move |_| {
            let now = self.stack.now();
            let idle = self.idle_timeout;
            let mut inner = self.stack.inner();
            let Inner {
                connections,
                sockets,
                ..
            } = &mut *inner;
            let Some(connection) = connections.by_handle(self.handle) else {
                // Connections live as long as their stream, so this cannot be.
                return Poll::Ready(Err(NetError::Reset));
            };
            if let Some(region) = handed.take() {
                connection.last_data = since;
                connection.destination = Some(Destination {
                    region,
                    at,
                    filled: 0,
                });
                connection.drain(sockets, since);
            }
            let socket = sockets.get::<tcp::Socket<'_>>(connection.handle);
            let last = connection.last_data;
            let Some(destination) = &connection.destination else {
                return Poll::Ready(Ok(0));
            };
            let ending = if destination.room() == 0 {
                Some(Ok(0))
            } else if let Some(result) = ended(socket) {
                Some(result)
            } else if now >= last + idle {
                Some(Err(NetError::TimedOut))
            } else {
                None
            };
            let filled = destination.filled;
            let Some(ending) = ending else {
                return Poll::Pending;
            };
            connection.leave_destination();
            Poll::Ready(if filled > 0 { Ok(filled) } else { ending })
        })
        .await
    }

    /// Ends our side; what was written is still sent.
    pub fn close(&mut self) {
        self.closed = true;
        self.with_socket(|socket| socket.close());
    }
}

/// Whether nothing more can come, and why.
fn ended(socket: &tcp::Socket<'_>) -> Option<Result<usize, NetError>> {
    if socket.can_recv() || socket.may_recv() {
        return None;
    }
    match socket.state() {
        tcp::State::Closed | tcp::State::SynSent | tcp::State::Listen => Some(Err(NetError::Reset)),
        _ => Some(Ok(0)),
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let forget = self.stack.now() + LINGER;
        if !self.closed {
            self.with_socket(|socket| socket.abort());
        }
        self.with(|connection, _| {
            connection.leave_destination();
            connection.forget = Some(forget);
        });
    }
}
