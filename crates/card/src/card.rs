//! A card: a guest's pair of queues on one side, a wire on the other.

mod hello;

use alloc::boxed::Box;
use core::time::Duration;

use wireboot_wire::card::hello::Hello;
use wireboot_wire::card::placement::Note;

use crate::coalesce::{Coalescer, Limits};
use crate::counters::Counters;
use crate::header::Header;
use crate::host_side::{Delivered, Next, ReceiveQueue, TransmitQueue};
use crate::memory::GuestMemory;
use crate::placement::{Placement, UnitOutcome};
use crate::ring::{Lies, Ring, RingFault, RingStart};
use crate::wire::{Received, Wire};
use hello::DriverMessage;

/// Units that one turn moves in each direction at most.
const BURST: usize = 64;

/// One of the guest's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The guest receives from it.
    Receive,
    /// The guest sends by it.
    Transmit,
}

/// What a turn has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Units that were moved or lost.
    pub units: usize,
    /// The guest has no room for what may have come: it is behind, so give it the processor.
    pub no_room: bool,
    /// The guest wants to be called for what it received.
    pub call_receive: bool,
    /// The guest wants to be called for what it sent.
    pub call_transmit: bool,
    /// Why the receive queue was stopped.
    pub receive_fault: Option<RingFault>,
    /// Why the transmit queue was stopped.
    pub transmit_fault: Option<RingFault>,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// There is work already: do not wait.
    pub work: bool,
    /// There is room for what comes by the wire.
    pub wire: bool,
}

/// A queue of a guest's.
#[derive(Debug)]
enum Slot<Q> {
    Off,
    Runs(Q),
    /// The guest broke its rules.
    Stopped {
        base: u16,
    },
}

impl<Q> Slot<Q> {
    fn running(&mut self) -> Option<&mut Q> {
        match self {
            Self::Runs(queue) => Some(queue),
            _ => None,
        }
    }

    /// Takes the queue out of use. Its base, if it was in use.
    fn end(&mut self, ring: impl FnOnce(&Q) -> &Ring) -> Option<u16> {
        let base = match self {
            Self::Off => None,
            Self::Runs(queue) => Some(ring(queue).base()),
            Self::Stopped { base } => Some(*base),
        };
        *self = Self::Off;
        base
    }

    fn fail(&mut self, ring: impl FnOnce(&Q) -> &Ring) {
        if let Some(base) = self.end(ring) {
            *self = Self::Stopped { base };
        }
    }
}

/// A card with one pair of queues.
#[derive(Debug)]
pub struct Card<W> {
    wire: W,
    receive: Slot<ReceiveQueue>,
    transmit: Slot<TransmitQueue>,
    offered: Beyond,
    agreed: Agreed,
    /// Why queues were stopped, until a turn tells.
    faults: Faults,
    counters: Counters,
    lies: Lies,
    /// A transmit queue that starts loses all.
    discards: bool,
}

/// What a card does beyond virtio, for a driver that asks ([`wireboot_wire::card`]). By default nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beyond {
    /// How far frames are gathered, for a driver that takes chunks; where they need not wait, as long as the wire has some. The last frame may make
    /// them more bytes than the limit. `None` for no chunks.
    pub chunks: Option<Limits<Duration>>,
    /// Payload of TCP connections goes to where the driver wants it.
    pub placement: bool,
}

/// What the driver has asked for beyond virtio.
#[derive(Debug, Default)]
struct Agreed {
    /// Frames that wait for others; none when the driver has not asked for chunks.
    gather: Option<Coalescer<Duration>>,
    /// The answer to its question, until it has room for it.
    answer: Option<Hello>,
    /// Payload that goes elsewhere than to its buffers.
    placement: Placement,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    receive: Option<RingFault>,
    transmit: Option<RingFault>,
}

impl<W> Card<W> {
    /// A card whose queues are off.
    pub fn new(wire: W) -> Self {
        Self {
            wire,
            receive: Slot::Off,
            transmit: Slot::Off,
            offered: Beyond::default(),
            agreed: Agreed::default(),
            faults: Faults::default(),
            counters: Counters::default(),
            lies: Lies::default(),
            discards: false,
        }
    }

    /// Has it tell these lies on the queues that start from now on.
    pub fn lie(&mut self, lies: Lies) {
        self.lies = lies;
    }

    /// Has the transmit queue lose what the guest sends, or no more: from its next start on. For one that the guest fills, and nobody is to use.
    pub fn discard(&mut self, discards: bool) {
        self.discards = discards;
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What is behind it.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// The same, to change it between turns.
    pub fn wire_mut(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Does this for a guest whose driver asks for it.
    pub fn offer(&mut self, beyond: Beyond) {
        self.offered = beyond;
    }

    /// When frames that wait for others are to go; none when nothing waits.
    pub fn due(&self) -> Option<Duration> {
        self.agreed.gather.as_ref()?.due()
    }

    /// What was agreed on with a driver may be another's from now on: what it has asked for is forgotten.
    pub fn forget(&mut self) {
        self.leave();
        self.agreed = Agreed::default();
    }

    /// Frames that wait for others are lost.
    fn leave(&mut self) {
        if let Some(batch) = self.agreed.gather.as_mut().and_then(Coalescer::take) {
            self.counters.receive_left += batch.frames as u64;
        }
    }

    /// Starts a queue. `memory` is the one to give to [`Self::turn`] until the queue is stopped.
    ///
    /// # Errors
    /// [`RingFault`]; the queue is then stopped.
    pub fn start<M: GuestMemory>(
        &mut self,
        memory: &M,
        queue: Queue,
        start: RingStart,
    ) -> Result<(), RingFault> {
        self.stop(queue);
        let base = start.base;
        // A driver that begins anew has asked nothing. Here, as it asks by this queue.
        if base == 0 {
            self.agreed.gather = None;
            if queue == Queue::Transmit {
                self.agreed.answer = None;
            }
        }
        let discards = self.discards && queue == Queue::Transmit;
        let liar = if discards { None } else { self.lies.next() };
        let result = match queue {
            Queue::Receive => ReceiveQueue::start(memory, start)
                .and_then(|queue| queue.ring.forgo_doorbells(memory).map(|()| queue))
                .map(|mut queue| {
                    queue.ring.liar = liar.map(Box::new);
                    self.receive = Slot::Runs(queue)
                })
                .inspect_err(|_| self.receive = Slot::Stopped { base }),
            Queue::Transmit => TransmitQueue::start(memory, start)
                .and_then(|queue| queue.ring.forgo_doorbells(memory).map(|()| queue))
                .map(|mut queue| {
                    queue.ring.liar = liar.map(Box::new);
                    queue.discards = discards;
                    self.transmit = Slot::Runs(queue)
                })
                .inspect_err(|_| self.transmit = Slot::Stopped { base }),
        };
        result.inspect_err(|fault| self.counters.count_fault(*fault))
    }

    /// Whether a queue is in use, and neither stopped for a fault nor one that loses all.
    pub fn runs(&self, queue: Queue) -> bool {
        match queue {
            Queue::Receive => matches!(self.receive, Slot::Runs(_)),
            Queue::Transmit => matches!(&self.transmit, Slot::Runs(queue) if !queue.discards),
        }
    }

    /// Stops a queue. From here on, nothing of it is read or written. The index of the buffer with which it may be started again; none
    /// when it was not in use.
    pub fn stop(&mut self, queue: Queue) -> Option<u16> {
        match queue {
            Queue::Receive => {
                self.leave();
                self.agreed.placement.forget();
                self.faults.receive = None;
                self.receive.end(|queue| &queue.ring)
            }
            Queue::Transmit => {
                self.faults.transmit = None;
                self.transmit.end(|queue| &queue.ring)
            }
        }
    }

    /// Stops a queue as if the guest had broken a rule. The next turn tells.
    pub fn fail(&mut self, queue: Queue, fault: RingFault) {
        let mut faults = Faults::default();
        match queue {
            Queue::Receive => faults.receive = Some(fault),
            Queue::Transmit => faults.transmit = Some(fault),
        }
        self.stop_faulty(faults);
    }

    /// Moves what there is, up to a burst in each direction.
    pub fn turn<M: GuestMemory>(&mut self, memory: &M, now: Duration) -> Turn
    where
        W: Wire<M>,
    {
        let mut turn = Turn::default();
        let mut faults = Faults::default();
        self.wire.advance(memory, now);
        if let Some(queue) = self.transmit.running() {
            if let Some(liar) = &mut queue.ring.liar {
                liar.now = now;
            }
            let moved = send(
                queue,
                memory,
                &mut self.wire,
                now,
                self.offered,
                &mut self.agreed,
                &mut self.counters,
            );
            let called = queue.ring.publish(memory);
            self.wire.flush();
            turn.call_transmit = called == Ok(true);
            faults.transmit = moved.and(called).err();
            turn.units += moved.unwrap_or(0);
            let chunks = queue.take_counters();
            self.counters.sent_chunks += chunks.chunks;
            self.counters.sent_chunk_units += chunks.units;
        }
        if let Some(queue) = self.receive.running() {
            if let Some(liar) = &mut queue.ring.liar {
                liar.now = now;
            }
            queue.set_chunks(self.agreed.gather.is_some());
            let moved = receive(
                queue,
                memory,
                &mut self.wire,
                now,
                &mut self.agreed,
                &mut self.counters,
            );
            let (units, no_room) = moved.unwrap_or((0, false));
            let due = self.agreed.gather.as_ref().and_then(Coalescer::due);
            let called = if !no_room && due.is_some_and(|due| due > now) {
                Ok(false)
            } else {
                if let Some(gather) = &mut self.agreed.gather {
                    gather.take();
                }
                let closed = queue.close(memory);
                closed.and_then(|()| queue.ring.publish(memory))
            };
            turn.call_receive = called == Ok(true);
            faults.receive = moved.and(called).err();
            turn.units += units;
            turn.no_room = no_room;
            let chunks = queue.take_counters();
            self.counters.received_chunks += chunks.chunks;
            self.counters.received_chunk_units += chunks.units;
        }
        self.counters.calls += u64::from(turn.call_transmit) + u64::from(turn.call_receive);
        self.stop_faulty(faults);
        let told = core::mem::take(&mut self.faults);
        turn.receive_fault = told.receive;
        turn.transmit_fault = told.transmit;
        turn
    }

    /// Asks for doorbells, before a wait.
    pub fn arm<M: GuestMemory>(&mut self, memory: &M) -> Armed
    where
        W: Wire<M>,
    {
        let mut armed = Armed {
            work: false,
            wire: false,
        };
        let mut faults = Faults::default();
        // Its owner knows when a wire takes units again.
        if let Some(queue) = self.transmit.running().filter(|_| self.wire.takes()) {
            armed.work |= queue.follows();
            match queue.ring.want_doorbell(memory) {
                Ok(work) => armed.work |= work,
                Err(fault) => faults.transmit = Some(fault),
            }
        }
        if let Some(queue) = self.receive.running() {
            // With room, a doorbell for more of it would wake nobody who can use it.
            let least = least_room::<M, _>(&self.wire, &self.agreed.placement);
            let room = queue.room(memory, least, least);
            match room.map(|room| room.is_some()) {
                Ok(true) => {
                    armed.wire = true;
                    armed.work |= self.agreed.answer.is_some() || self.agreed.placement.tells();
                }
                Ok(false) => match queue.ring.want_doorbell(memory) {
                    Ok(work) => armed.work |= work,
                    Err(fault) => faults.receive = Some(fault),
                },
                Err(fault) => faults.receive = Some(fault),
            }
        }
        armed.work |= self.stop_faulty(faults);
        let receive = self.receive.running().map(|queue| &queue.ring);
        let transmit = self.transmit.running().map(|queue| &queue.ring);
        armed.work |= [receive, transmit].into_iter().flatten().any(Ring::keeps);
        armed
    }

    /// Forgoes doorbells again, after a wait.
    pub fn disarm<M: GuestMemory>(&mut self, memory: &M) {
        let receive = self.receive.running();
        let receive = receive.and_then(|queue| queue.ring.forgo_doorbells(memory).err());
        let transmit = self.transmit.running();
        let transmit = transmit.and_then(|queue| queue.ring.forgo_doorbells(memory).err());
        self.stop_faulty(Faults { receive, transmit });
    }

    /// Stops the queues that have a fault. True when there is one, which the next turn tells.
    fn stop_faulty(&mut self, faults: Faults) -> bool {
        if let Some(fault) = faults.receive {
            self.leave();
            self.agreed.placement.forget();
            self.receive.fail(|queue| &queue.ring);
            self.counters.count_fault(fault);
            self.faults.receive = Some(fault);
        }
        if let Some(fault) = faults.transmit {
            self.transmit.fail(|queue| &queue.ring);
            self.counters.count_fault(fault);
            self.faults.transmit = Some(fault);
        }
        faults.receive.is_some() || faults.transmit.is_some()
    }
}

/// From the guest to the wire. How many units there were.
fn send<M: GuestMemory>(
    queue: &mut TransmitQueue,
    memory: &M,
    wire: &mut impl Wire<M>,
    now: Duration,
    offered: Beyond,
    agreed: &mut Agreed,
    counters: &mut Counters,
) -> Result<usize, RingFault> {
    let (features, discards) = (queue.features, queue.discards);
    let mut units = 0;
    // A chunk may go on in the next turn.
    while units < BURST {
        if !wire.takes() {
            break;
        }
        match queue.next(memory)? {
            Next::Nothing => break,
            Next::BadLength => counters.send_bad_length += 1,
            Next::Unit(_) if discards => counters.send_lost += 1,
            Next::Unit(unit) if hello::for_card(memory, unit.spans, unit.len)? => {
                match hello::driver_message(memory, &unit, features, offered)? {
                    Some(DriverMessage::Question(hello)) => {
                        agreed.answer = Some(hello);
                        agreed.placement.forget();
                        counters.hellos += 1;
                    }
                    Some(DriverMessage::Request(request))
                        if agreed.placement.accept(memory, &request) => {}
                    Some(DriverMessage::Request(_)) => counters.placements_refused += 1,
                    None => counters.send_not_understood += 1,
                }
            }
            Next::Unit(unit) if wire.send(memory, &unit, now) => counters.sent.count(unit.len),
            Next::Unit(_) => counters.send_lost += 1,
        }
        units += 1;
        if !queue.follows() {
            queue.done(memory)?;
        }
    }
    Ok(units)
}

/// Bytes of room without which the wire is not asked: for a unit, and for a note behind it.
fn least_room<M, W: Wire<M>>(wire: &W, placement: &Placement) -> usize {
    wire.max_unit() + placement.note_room()
}

/// From the wire to the guest. How many units there were, and whether the guest had no room for more.
fn receive<M: GuestMemory>(
    queue: &mut ReceiveQueue,
    memory: &M,
    wire: &mut impl Wire<M>,
    now: Duration,
    agreed: &mut Agreed,
    counters: &mut Counters,
) -> Result<(usize, bool), RingFault> {
    let Agreed {
        gather,
        answer,
        placement,
    } = agreed;
    let (unit, most) = (wire.max_unit(), wire.useful_room());
    let least = least_room::<M, _>(&*wire, placement);
    let note = placement.note_room();
    for units in 0..BURST {
        let Some(room) = queue.room(memory, least, most + note)? else {
            counters.no_room += 1;
            return Ok((units, true));
        };
        if answer.is_some() {
            answer_guest(queue, memory, gather, answer, counters)?;
            continue;
        }
        if let Some(id) = placement.take_ended() {
            let ended = Note::Ended { id };
            if queue.note(memory, 0, Header::default(), ended)? != Delivered::Yes {
                placement.tell(id);
                return Ok((units, false));
            }
            continue;
        }
        let room = placement.arrange(room, unit, most);
        match wire.receive(memory, room, now) {
            Received::Nothing => return Ok((units, false)),
            Received::Kept => {}
            Received::TooLong => counters.receive_too_long += 1,
            Received::Unit { len, .. } if hello::for_card(memory, queue.found(), len)? => {
                counters.receive_pretended += 1;
            }
            Received::Unit { header, len } => {
                match deliver(queue, memory, placement, header, len, counters)? {
                    Delivered::Yes => {
                        counters.received.count(len);
                        let Some(gather) = gather else {
                            continue;
                        };
                        if gather.add(len, now).is_some() || gather.is_full() {
                            // So much goes together.
                            gather.expire(now);
                            return Ok((units + 1, false));
                        }
                    }
                    Delivered::NotAgreed => counters.receive_not_agreed += 1,
                    Delivered::TooLong => counters.receive_too_long += 1,
                }
            }
        }
    }
    Ok((BURST, false))
}

/// Gives the guest the answer to its question, in the room that was found last.
#[cold]
fn answer_guest<M: GuestMemory>(
    queue: &mut ReceiveQueue,
    memory: &M,
    gather: &mut Option<Coalescer<Duration>>,
    answer: &mut Option<Hello>,
    counters: &mut Counters,
) -> Result<(), RingFault> {
    let Some(hello) = answer.take() else {
        return Ok(());
    };
    match hello::deliver(queue, memory, &hello)? {
        Delivered::Yes => {
            // What comes behind the answer may be gathered.
            *gather = hello::limits(&hello).map(Coalescer::new);
            queue.set_chunks(gather.is_some());
        }
        Delivered::NotAgreed | Delivered::TooLong => counters.receive_too_long += 1,
    }
    Ok(())
}

/// Gives the guest a unit that has come to the room that [`Placement::arrange`] gave.
fn deliver<M: GuestMemory>(
    queue: &mut ReceiveQueue,
    memory: &M,
    placement: &mut Placement,
    header: Header,
    len: usize,
    counters: &mut Counters,
) -> Result<Delivered, RingFault> {
    if placement.is_idle() {
        return queue.deliver(memory, header, len);
    }
    match placement.place_unit(memory, queue.found(), queue.room_len(), &header, len)? {
        UnitOutcome::Whole => queue.deliver(memory, header, len),
        UnitOutcome::Lost => Ok(Delivered::TooLong),
        UnitOutcome::Noted { len, note } => {
            if let Note::Placed { len, .. } = note {
                counters.placed.count(len as usize);
            }
            queue.note(memory, len, header, note)
        }
    }
}

#[cfg(test)]
mod tests;
