//! The connections of an engine: finding the one of a segment, sharing the receive ring among them, and sending what they have to say.

use super::buffer::ReceiveBuffer;
use super::segments::SegmentSender;
use super::send_buffer::SendBuffer;
use super::window;
use crate::interface::Interface;
use crate::output::Path;
use crate::packet::{Ends, Tcp};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use wireboot_nic::{Placer, Properties, Transmit};
use wireboot_tcp::{Connection, Duration, Instant, Limits, Reply, State};

/// How long a path is used before neighbours and routes are asked again.
const PATH_LIFETIME: Duration = Duration::from_secs(1);
/// How long a device may take to give memory back before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// A connection, and what is its engine's.
pub(crate) struct Flow {
    pub ends: Ends,
    pub connection: Connection,
    pub buffer: ReceiveBuffer,
    pub send: SendBuffer,
    path: Option<Path>,
    path_until: Instant,
    /// Bytes in order have come since the path was last asked for.
    confirmed: bool,
    pub last_data: Instant,
    pub received: Rc<Cell<u64>>,
    pub acknowledged: Rc<Cell<u64>>,
    /// A device has memory of it that it shall give back.
    wants_memory: bool,
    /// When a dropped connection is forgotten whatever its state.
    pub forget: Option<Instant>,
}

impl Flow {
    pub(crate) fn new(ends: Ends, connection: Connection, capacity: usize, now: Instant) -> Self {
        Self {
            ends,
            connection,
            buffer: ReceiveBuffer::new(capacity),
            send: SendBuffer::default(),
            path: None,
            path_until: now,
            confirmed: false,
            last_data: now,
            received: Rc::default(),
            acknowledged: Rc::default(),
            wants_memory: false,
            forget: None,
        }
    }

    /// Bytes from RCV.NXT on that can be stored.
    fn room(&self) -> u32 {
        if self.forget.is_some() {
            return 0;
        }
        u32::try_from(self.buffer.room()).unwrap_or(u32::MAX)
    }

    /// The same where a device may have memory ahead: as far as this segment can be stored now. What lies beyond has to come again, when the device has
    /// given that back.
    fn room_for(&mut self, tcp: &Tcp<'_>) -> u32 {
        if !self.buffer.may_be_lent() {
            return self.room();
        }
        // How far it begins behind the next byte, or before it.
        let ahead = tcp.segment.seq.wrapping_sub(self.connection.rcv_nxt()) as i32;
        let known = ahead.min(0).unsigned_abs() as usize;
        let new = tcp.payload.slice(known, usize::MAX);
        if new.is_empty() {
            // A FIN needs none.
            return self.room();
        }
        let ahead = ahead.max(0) as usize;
        let room = self.buffer.room_for(ahead, new);
        self.wants_memory |= room < ahead + new.len();
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Has a device fill what comes beyond the window that the peer knows.
    fn place(&mut self, placer: &mut dyn Placer) {
        if self.forget.is_some() || self.wants_memory {
            return;
        }
        let edge = self.connection.rcv_wnd() as usize;
        if let Some((ahead, memory)) = self.buffer.lend(edge) {
            let sequence = self.connection.rcv_nxt().wrapping_add(ahead as u32);
            let len = memory.len();
            if placer
                .place(&self.ends.for_device(), sequence, memory)
                .is_ok()
            {
                self.buffer.lent(ahead, len);
            }
        }
    }

    /// Takes the next data for a destination, or an acknowledgement of what was sent; false when the segment is another one.
    #[inline(always)]
    fn take_next(&mut self, tcp: &Tcp<'_>, now: Instant) -> bool {
        if let Some(destination) = self.buffer.direct(tcp.payload)
            && self.connection.receive_next(now, &tcp.segment)
        {
            destination.append(tcp.payload);
            self.took(tcp.segment.len, now);
            return true;
        }
        let acknowledges = self.connection.receive_acknowledgement(now, &tcp.segment);
        if acknowledges {
            self.release();
        }
        acknowledges
    }

    /// Has what `region` holds from byte `from` to before byte `to` sent.
    pub(crate) fn queue(&mut self, region: &crate::Region, from: usize, to: usize) {
        let before = self.send.len();
        self.send.push_region(region.clone(), from, to);
        self.connection.queue((self.send.len() - before) as u32);
    }

    /// Drops what was acknowledged.
    fn release(&mut self) {
        let count = self.connection.acknowledged();
        self.send.release(count as usize);
        self.acknowledged
            .set(self.acknowledged.get() + u64::from(count));
    }

    fn take(&mut self, tcp: &Tcp<'_>, now: Instant) {
        let behind = self.connection.out_of_order() as usize;
        if self.buffer.end_takes(behind) {
            self.connection.renege();
        }
        let room = self.room_for(tcp);
        if let Some(range) = self.connection.receive(now, &tcp.segment, room) {
            let count = self.buffer.place(&range, tcp.payload);
            if range.advance > 0 {
                self.took(count, now);
            }
        }
        self.release();
    }

    /// Bytes in order have come, so many of them to their destination.
    #[inline(always)]
    fn took(&mut self, count: usize, now: Instant) {
        self.last_data = now;
        self.confirmed = true;
        self.received.set(self.received.get() + count as u64);
    }

    /// Takes memory for what is received from now on.
    pub(crate) fn set_destination(&mut self, region: crate::Region, at: usize, now: Instant) {
        let behind = self.connection.out_of_order() as usize;
        let count = self.buffer.set_destination(region, at, behind);
        self.received.set(self.received.get() + count as u64);
        // What lies behind a gap stayed where it was, and nothing that is held takes it along later.
        if self.buffer.held() == 0 && self.buffer.is_lent() {
            self.connection.renege();
        }
        self.last_data = now;
    }

    /// Asks a device for memory that it still has; false when it has none.
    pub(crate) fn wants_memory_back(&mut self) -> bool {
        let is_lent = self.buffer.is_lent();
        self.wants_memory |= is_lent;
        is_lent
    }

    /// Moves what is held to the destination, if that was a device's before.
    pub(crate) fn drain(&mut self) {
        if self.buffer.held() > 0 && self.buffer.may_be_lent() {
            let behind = self.connection.out_of_order() as usize;
            let count = self.buffer.drain(behind);
            self.received.set(self.received.get() + count as u64);
        }
    }

    /// Gives the memory back; what lies behind a gap there has to come again.
    pub(crate) fn leave_destination(&mut self) {
        self.wants_memory_back();
        if self.buffer.leave_destination() {
            self.connection.renege();
        }
    }

    /// Bytes of the receive ring that its window takes.
    fn taken(&self) -> u32 {
        window::taken(self.connection.rcv_wnd(), self.connection.round_trip())
    }

    /// How to reach the peer; `None` while that is not known.
    fn path(&mut self, interface: &mut Interface, now: Instant) -> Option<Path> {
        if now >= self.path_until || self.path.is_none() {
            let (remote, local) = (self.ends.remote_end().ip(), self.ends.local_end().ip());
            if !interface.is_ours(local, now) {
                // It was given up, or is somebody else's.
                self.connection.abort();
                return None;
            }
            if core::mem::take(&mut self.confirmed) {
                interface.confirm(remote, now);
            }
            self.path = interface.path(local, remote, now);
            self.path_until = now + PATH_LIFETIME;
        }
        self.path
    }
}

/// All connections of an engine, by slot.
#[derive(Default)]
pub(crate) struct Flows {
    slots: Vec<Option<Flow>>,
    by_ends: BTreeMap<Ends, usize>,
    /// The slot of the segment before: in a burst most are of one connection.
    last: usize,
    /// Connections, perhaps former ones, whose memory a device shall give back, and when it is asked again.
    wanted: Vec<(Ends, Instant)>,
    /// Answers to segments of no connection.
    resets: Vec<(Ends, Reply)>,
    /// Bytes of the receive ring that they share.
    pub ring: u32,
}

impl Flows {
    pub(crate) fn add(&mut self, flow: Flow) -> usize {
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.unwrap_or(self.slots.len());
        self.by_ends.insert(flow.ends, slot);
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(flow),
            None => self.slots.push(Some(flow)),
        }
        slot
    }

    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut Flow> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Whether a local port is used by any of them.
    pub(crate) fn uses(&self, port: u16) -> bool {
        self.slots
            .iter()
            .flatten()
            .any(|flow| flow.ends.local_end().port() == port)
    }

    /// Gives the next data, or an acknowledgement, to the connection that had the segment before; false when it is another one's, or
    /// another segment.
    #[inline(always)]
    pub(crate) fn take_next(&mut self, tcp: &Tcp<'_>, now: Instant) -> bool {
        match self.slots.get_mut(self.last) {
            Some(Some(flow)) if flow.ends == tcp.ends => flow.take_next(tcp, now),
            _ => false,
        }
    }

    /// Gives a segment to its connection; false when there is none.
    pub(crate) fn take(&mut self, tcp: &Tcp<'_>, now: Instant) -> bool {
        let Some(&slot) = self.by_ends.get(&tcp.ends) else {
            return false;
        };
        self.last = slot;
        if let Some(flow) = self.get(slot) {
            flow.take(tcp, now);
        }
        true
    }

    /// The connection between these ends.
    pub(crate) fn find(&mut self, ends: Ends) -> Option<&mut Flow> {
        let slot = *self.by_ends.get(&ends)?;
        self.get(slot)
    }

    /// Answers a segment of no connection (RFC 9293, section 3.10.7.1). How often is for the caller to say.
    #[cold]
    pub(crate) fn refuse(&mut self, tcp: &Tcp<'_>) {
        if let Some(reply) = wireboot_tcp::closed(&tcp.segment) {
            self.resets.push((tcp.ends, reply));
        }
    }

    /// Has the device fill what may come, and asks for what it shall give back, until it has done so: an order may be lost with a card.
    pub(crate) fn place(&mut self, placer: &mut dyn Placer, now: Instant) {
        for flow in self.slots.iter_mut().flatten() {
            flow.place(placer);
            let known = || self.wanted.iter().any(|(ends, _)| *ends == flow.ends);
            if flow.wants_memory && !known() {
                self.wanted.push((flow.ends, now));
            }
        }
        self.wanted.retain_mut(|(ends, due)| {
            let has = placer.has(&ends.for_device());
            if has && now >= *due && placer.leave(&ends.for_device()).is_ok() {
                *due = now + ASK_AGAIN;
            }
            has
        });
        for flow in self.slots.iter_mut().flatten() {
            flow.wants_memory &= self.wanted.iter().any(|(ends, _)| *ends == flow.ends);
        }
    }

    /// Sends what is due.
    pub(crate) fn transmit(
        &mut self,
        interface: &mut Interface,
        tx: &mut dyn Transmit,
        properties: &Properties,
        now: Instant,
    ) {
        for (ends, reply) in core::mem::take(&mut self.resets) {
            let (local, remote) = (ends.local_end().ip(), ends.remote_end().ip());
            if interface.hop_of_answer(remote, now).is_some()
                && let Some(path) = interface.path(local, remote, now)
            {
                let sender = SegmentSender {
                    path,
                    ends,
                    properties,
                };
                sender.send(&reply.into(), &SendBuffer::default(), tx);
            }
        }
        let (mut readers, mut taken) = (0_u32, 0_u32);
        for flow in self.slots.iter().flatten() {
            readers += u32::from(flow.buffer.has_destination());
            taken = taken.saturating_add(flow.taken());
        }
        for flow in self.slots.iter_mut().flatten() {
            let own = u32::from(flow.buffer.has_destination());
            let others = taken.saturating_sub(flow.taken());
            let rtt = flow.connection.round_trip();
            let window = window::grant(self.ring, readers - own + 1, others, rtt);
            transmit(flow, window, interface, tx, properties, now);
        }
    }

    /// Forgets dropped connections that have said goodbye.
    pub(crate) fn reap(&mut self, now: Instant) {
        for slot in &mut self.slots {
            let done = slot.as_ref().is_some_and(|flow| {
                let quiet = flow.connection.is_over() || flow.connection.state() == State::TimeWait;
                flow.forget.is_some_and(|forget| quiet || now >= forget)
            });
            if done && let Some(flow) = slot.take() {
                self.by_ends.remove(&flow.ends);
            }
        }
    }
}

fn transmit(
    flow: &mut Flow,
    window: u32,
    interface: &mut Interface,
    tx: &mut dyn Transmit,
    properties: &Properties,
    now: Instant,
) {
    let Some(path) = flow.path(interface, now) else {
        return;
    };
    let sender = SegmentSender {
        path,
        ends: flow.ends,
        properties,
    };
    loop {
        // What does not fit into the transmit ring waits; an acknowledgement is covered by the next one.
        let mut unit = 0;
        if flow.send.len() > 0 {
            let frames = tx.room();
            if frames == 0 {
                return;
            }
            unit = match sender.card_unit() {
                0 => frames * usize::from(flow.connection.mss()),
                unit => unit,
            };
        }
        let limits = Limits {
            window,
            room: flow.room(),
            unit: u32::try_from(unit).unwrap_or(u32::MAX),
        };
        let Some(out) = flow.connection.transmit(now, &limits) else {
            return;
        };
        let sent = sender.send(&out, &flow.send, tx);
        if sent < out.len {
            // The ring has room for frames, but not for such units.
            flow.connection.take_back(&out, sent as u32);
            return;
        }
    }
}
