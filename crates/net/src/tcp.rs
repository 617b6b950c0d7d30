//! TCP connections: smoltcp keeps the protocol, and in-order data may take a short way round it.
//!
//! While a connection has a destination for its bytes, a segment that is exactly the next one, carries no news
//! for smoltcp and arrives while smoltcp holds nothing back is copied from DMA memory straight to the
//! destination. smoltcp never learns of those bytes: what it believes the peer's sequence numbers to be falls behind the
//! wire's by `delta`, which is taken off each segment shown to it and added to each acknowledgement (SACK
//! blocks too) that it sends. Anything odd (a gap, an overlap, a flag, an ACK of our own data) goes to smoltcp, whose
//! reassembly fills the gap; when it has handed everything over, the short way opens again.

use crate::ethernet::{
    ACK, ETHERNET_HEADER, FIN, IPV4_HEADER, PROTOCOL_TCP, PSH, RST, SYN, TCP_HEADER, Tcp, be16,
    be32, put,
};
use crate::memory::Memory;
use crate::stack::{Inner, NetError, Stack};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::SocketAddrV4;
use core::task::Poll;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::IpEndpoint;

/// Offsets within a frame without IP options.
const IP: usize = ETHERNET_HEADER;
const TCP: usize = ETHERNET_HEADER + IPV4_HEADER;
const HEADERS: usize = TCP + TCP_HEADER;

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
    memory: Memory,
    /// Next byte to fill, and the first one not to.
    at: usize,
    end: usize,
    filled: usize,
}

impl Destination {
    fn room(&mut self) -> &mut [u8] {
        self.memory
            .as_mut_slice()
            .get_mut(self.at..self.end)
            .unwrap_or_default()
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
    /// Size of the receive window in bytes.
    capacity: usize,
    destination: Option<Destination>,
    /// Wire sequence number of the peer's first data byte; known once its SYN is seen.
    base: Option<u32>,
    /// Bytes that took the short way: the wire is ahead of smoltcp by so many.
    delta: u32,
    /// Bytes taken out of smoltcp's receive buffer.
    consumed: u32,
    /// Wire sequence number expected next.
    expected: u32,
    /// Wire sequence number behind the last byte that smoltcp was shown.
    shown: u32,
    /// Last acknowledgement that smoltcp was shown.
    acknowledged: Option<u32>,
    /// The short way is open: a destination is set and smoltcp holds nothing.
    short: bool,
    /// Headers of our last plain segment, the model for acknowledgements of the short way.
    model: Option<[u8; HEADERS]>,
    /// Our next sequence number, as seen on the wire.
    next: u32,
    /// Receive window in the units of the window field.
    window: u16,
    /// Bytes taken the short way and not yet acknowledged.
    pending: u32,
    last_data: Instant,
    received: Rc<Cell<u64>>,
    /// When a dropped connection is forgotten whatever its state.
    forget: Option<Instant>,
}

/// All connections of a stack.
#[derive(Default)]
pub struct Connections(Vec<Connection>);

/// True when wire sequence number `a` comes after `b` (RFC 9293, section 3.4).
fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The shift of a window scale option (RFC 7323), if there is one.
fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match *options {
            [3, 3, shift, ..] => return Some(shift.min(14)),
            [1, ref rest @ ..] => options = rest,
            [0, ..] | [] => return None,
            [_, len, ..] if len >= 2 => options = options.get(usize::from(len)..)?,
            _ => return None,
        }
    }
}

impl Connections {
    fn by_handle(&mut self, handle: SocketHandle) -> Option<&mut Connection> {
        self.0.iter_mut().find(|c| c.handle == handle)
    }

    /// The connection that a received segment belongs to.
    fn find(&mut self, segment: &Tcp<'_>) -> Option<&mut Connection> {
        self.0.iter_mut().find(|c| {
            c.local_port == segment.destination_port
                && c.remote.port() == segment.source_port
                && *c.remote.ip() == segment.source
        })
    }

    /// Takes the segment the short way, if it may go there.
    pub fn take(&mut self, segment: &Tcp<'_>, now: Instant) -> bool {
        self.find(segment)
            .is_some_and(|connection| connection.take(segment, now))
    }

    /// What to take off the sequence numbers of a segment before smoltcp sees it.
    pub fn arriving(&mut self, segment: &Tcp<'_>) -> u32 {
        let Some(connection) = self.find(segment) else {
            return 0;
        };
        connection.arriving(segment);
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
            .0
            .iter_mut()
            .find(|c| c.local_port == local && c.remote == remote)
        {
            connection.leaving(frame);
        }
    }

    /// Writes the acknowledgements that are due, each as a complete frame, to `send`.
    pub fn acknowledge(&mut self, now: Instant, mut send: impl FnMut(&mut [u8; HEADERS])) {
        for connection in &mut self.0 {
            if let Some(mut frame) = connection.acknowledgement(now) {
                send(&mut frame);
            }
        }
    }

    /// Forgets dropped connections that have said goodbye.
    pub fn reap(&mut self, sockets: &mut SocketSet<'_>, now: Instant) {
        self.0.retain(|connection| {
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
        if !self.short
            || segment.sequence != self.expected
            || segment.flags & !PSH != ACK
            || len == 0
            || Some(segment.acknowledgement) != self.acknowledged
            || self.model.is_none()
        {
            return false;
        }
        let Some(destination) = &mut self.destination else {
            return false;
        };
        let room = destination.room();
        if room.len() < len {
            return false;
        }
        segment.payload.copy_to(room);
        destination.took(len);
        self.expected = self.expected.wrapping_add(len as u32);
        self.delta = self.delta.wrapping_add(len as u32);
        self.pending += len as u32;
        self.last_data = now;
        self.received.set(self.received.get() + len as u64);
        true
    }

    fn arriving(&mut self, segment: &Tcp<'_>) {
        if segment.flags & SYN != 0 {
            let first = segment.sequence.wrapping_add(1);
            if self.base.is_none() {
                self.base = Some(first);
                self.expected = first;
                self.shown = first;
                if window_scale(segment.options).is_none() {
                    // The peer does not scale: neither may we.
                    self.window = u16::MAX;
                }
            }
            return;
        }
        let end = segment.sequence.wrapping_add(segment.payload.len() as u32);
        if after(end, self.shown) {
            self.shown = end;
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
            while socket.can_recv() && !destination.room().is_empty() {
                let taken = socket.recv(|bytes| {
                    let room = destination.room();
                    let count = bytes.len().min(room.len());
                    if let (Some(room), Some(bytes)) = (room.get_mut(..count), bytes.get(..count)) {
                        room.copy_from_slice(bytes);
                    }
                    (count, count)
                });
                let Ok(count) = taken else { break };
                destination.took(count);
                self.consumed = self.consumed.wrapping_add(count as u32);
                self.received.set(self.received.get() + count as u64);
                self.last_data = now;
            }
        }
        self.look(socket);
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
            && held == 0
            && socket.state() == tcp::State::Established
            && !after(self.shown, self.expected);
    }

    fn leaving(&mut self, frame: &mut [u8]) {
        let (Some(sequence), Some(acknowledgement), Some(ip_len)) = (
            be32(frame, TCP + 4),
            be32(frame, TCP + 8),
            be16(frame, IP + 2),
        ) else {
            return;
        };
        let (Some(&offset), Some(&flags)) = (frame.get(TCP + 12), frame.get(TCP + 13)) else {
            return;
        };
        let header_len = usize::from(offset >> 4) * 4;
        if flags & SYN != 0 {
            let scale = frame
                .get(HEADERS..TCP + header_len)
                .and_then(window_scale)
                .unwrap_or(0);
            let window = self.capacity >> scale;
            self.window = window.min(usize::from(u16::MAX)) as u16;
            self.next = sequence.wrapping_add(1);
            return;
        }
        if flags & ACK != 0 {
            let translated = acknowledgement.wrapping_add(self.delta);
            put(frame, TCP + 8, translated.to_be_bytes());
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
        }
        if flags & (RST | FIN) == 0
            && let Some(model) = frame.first_chunk::<HEADERS>()
        {
            self.model = Some(*model);
        }
    }

    fn acknowledgement(&mut self, now: Instant) -> Option<[u8; HEADERS]> {
        let enough = self.pending >= ACK_BYTES.min(self.capacity as u32 / 4);
        if self.pending == 0 || (!enough && now < self.last_data + ACK_DELAY) {
            return None;
        }
        let mut frame = self.model?;
        put(
            &mut frame,
            IP + 2,
            ((IPV4_HEADER + TCP_HEADER) as u16).to_be_bytes(),
        );
        put(&mut frame, IP + 10, [0, 0]);
        let header = frame.get(IP..TCP).unwrap_or_default();
        let sum = crate::checksum::compute(0, header);
        put(&mut frame, IP + 10, sum.to_be_bytes());
        put(&mut frame, TCP + 4, self.next.to_be_bytes());
        put(&mut frame, TCP + 8, self.expected.to_be_bytes());
        put(&mut frame, TCP + 12, [((TCP_HEADER / 4) as u8) << 4, ACK]);
        put(&mut frame, TCP + 14, self.window.to_be_bytes());
        put(&mut frame, TCP + 16, [0, 0, 0, 0]);
        self.pending = 0;
        Some(frame)
    }
}

/// Adds `delta` to each edge in a SACK option (RFC 2018).
fn translate_sack(mut options: &mut [u8], delta: u32) {
    loop {
        let len = match *options {
            [1, ..] => 1,
            [0, ..] | [] | [_] => return,
            [_, len, ..] if len >= 2 => usize::from(len),
            _ => return,
        };
        let Some((option, rest)) = options.split_at_mut_checked(len) else {
            return;
        };
        if let [5, _, blocks @ ..] = option {
            for edge in blocks.as_chunks_mut::<4>().0 {
                *edge = u32::from_be_bytes(*edge).wrapping_add(delta).to_be_bytes();
            }
        }
        options = rest;
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
        remote: SocketAddrV4,
        timeout: Duration,
    ) -> Result<Self, NetError> {
        let local_port =
            stack.free_port(|inner, port| inner.connections.0.iter().all(|c| c.local_port != port));
        let capacity = stack.window();
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
            if inner.address().is_none() {
                return Err(NetError::Unreachable);
            }
            socket
                .connect(inner.iface.context(), IpEndpoint::from(remote), local_port)
                .map_err(|_| NetError::Unreachable)?;
            inner.want(*remote.ip(), stack.now());
            let handle = inner.sockets.add(socket);
            inner.connections.0.push(Connection {
                handle,
                remote,
                local_port,
                capacity,
                destination: None,
                base: None,
                delta: 0,
                consumed: 0,
                expected: 0,
                shown: 0,
                acknowledged: None,
                short: false,
                model: None,
                next: 0,
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

    /// Fills `memory[at..at + len]` straight from the wire. Ready when it is full, when the peer has
    /// closed its side, or on an error; the count is that of the bytes filled, and an error is
    /// returned only when there are none (the next read returns it again).
    pub async fn read_into(
        &mut self,
        memory: Memory,
        at: usize,
        len: usize,
    ) -> (Memory, Result<usize, NetError>) {
        let end = at.saturating_add(len).min(memory.len());
        let start = at.min(end);
        let mut handed = Some(memory);
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
                // Connections live as long as their stream, so this cannot be; but then the memory goes back.
                return match handed.take() {
                    Some(memory) => Poll::Ready((memory, Err(NetError::Reset))),
                    None => Poll::Pending,
                };
            };
            if let Some(memory) = handed.take() {
                connection.last_data = since;
                connection.destination = Some(Destination {
                    memory,
                    at: start,
                    end,
                    filled: 0,
                });
                connection.drain(sockets, since);
            }
            let socket = sockets.get::<tcp::Socket<'_>>(connection.handle);
            let last = connection.last_data;
            let Some(destination) = &mut connection.destination else {
                return Poll::Pending;
            };
            let ending = if destination.room().is_empty() {
                Some(Ok(0))
            } else if let Some(result) = ended(socket) {
                Some(result)
            } else if now >= last + idle {
                Some(Err(NetError::TimedOut))
            } else {
                None
            };
            let Some(ending) = ending else {
                return Poll::Pending;
            };
            connection.short = false;
            match connection.destination.take() {
                Some(Destination { memory, filled, .. }) => {
                    let result = if filled > 0 { Ok(filled) } else { ending };
                    Poll::Ready((memory, result))
                }
                None => Poll::Pending,
            }
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
            connection.short = false;
            connection.destination = None;
            connection.forget = Some(forget);
        });
    }
}
