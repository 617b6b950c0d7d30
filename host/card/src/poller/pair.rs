//! One of a guest's pairs of queues: its card with a wire of its own, doorbells and calls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use wireboot_card::{Armed, Beyond, Card, Lies, Queue, RingFault, Turn, Wire};

use super::{Woken, empty, ring};
use crate::data_path::DataPath;
use crate::memory::Mapping;
use crate::program::{Diverted, Hook, Wild};
use crate::say::say;
use crate::statistics::{PairTraffic, Statistics};
use crate::vhost::RunningRing;

/// The descriptors of a queue that is in use.
struct RingEvents {
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
}

/// Descriptors that may end a wait: the wire's and both doorbells.
pub(super) const DESCRIPTORS: usize = 3;

pub(super) struct Pair {
    /// What lines in the log begin with.
    name: Arc<str>,
    card: Card<DataPath>,
    /// Receive and transmit, as [`Queue`] numbers them.
    queues: [Option<RingEvents>; 2],
    armed: Armed,
    /// That were rung, in the same order.
    doorbells: [u64; 2],
    /// By kind: failures of the program that were told of.
    told: [bool; Wild::KINDS],
}

impl Pair {
    pub(super) fn new(name: Arc<str>, data_path: DataPath, lies: Lies, beyond: Beyond) -> Self {
        let mut card = Card::new(data_path);
        card.lie(lies);
        card.offer(beyond);
        Self {
            name,
            card,
            queues: [None, None],
            armed: Armed {
                work: false,
                wire: false,
            },
            doorbells: [0; 2],
            told: [false; Wild::KINDS],
        }
    }

    /// No queue of it is in use.
    pub(super) fn is_idle(&self) -> bool {
        self.queues.iter().all(Option::is_none)
    }

    pub(super) fn agree(&mut self, features: u64) {
        self.card.forget();
        self.card.wire_mut().agree(features);
    }

    pub(super) fn start(&mut self, memory: &Mapping, queue: Queue, ring: RunningRing) {
        self.card.wire_mut().filter_mut().restart(hook_of(queue));
        let wire = self.card.wire_mut().wire_mut();
        if queue == Queue::Receive {
            wire.set_receiving(true);
            if ring.start.base == 0 {
                // A driver that begins anew. One that was only held up goes on from where it was.
                wire.restart();
            }
        }
        self.card.discard(ring.discards);
        let result = self.card.start(memory, queue, ring.start);
        if let Some(events) = self.queues.get_mut(queue as usize) {
            *events = Some(RingEvents {
                kick: Some(ring.kick),
                call: ring.call,
                error: ring.error,
            });
        }
        if let Err(fault) = result {
            self.complain(queue, fault);
        }
    }

    /// The index with which the queue goes on.
    pub(super) fn stop(&mut self, queue: Queue) -> u16 {
        if queue == Queue::Receive {
            self.card.wire_mut().wire_mut().set_receiving(false);
            self.card.wire_mut().filter_mut().forget_received();
        }
        self.hear_doorbells();
        if let Some(events) = self.queues.get_mut(queue as usize) {
            *events = None;
        }
        self.card.stop(queue).unwrap_or(0)
    }

    pub(super) fn set_call(&mut self, queue: Queue, call: Option<OwnedFd>) {
        if let Some(events) = self.ring_events(queue) {
            events.call = call;
            // A call of the last moment may have gone to the one before.
            signal(events.call.as_ref());
        }
    }

    /// Adds what it did so far.
    pub(super) fn count(&mut self, statistics: &mut Statistics) {
        // Those, too, that ended no wait. The queues are looked at before the next.
        self.hear_doorbells();
        let counters = self.card.counters();
        statistics.card += counters;
        statistics.pairs.push(PairTraffic {
            sent: counters.sent,
            received: counters.received,
        });
        let data_path = self.card.wire();
        statistics.offload += data_path.offload_counters();
        statistics.paced += data_path.paced_counters();
        if let Some(program) = data_path.program_counters() {
            match &mut statistics.program {
                Some(sum) => *sum += program,
                none => *none = Some(program),
            }
        }
        let [receive, transmit] = self.doorbells;
        let add = |sum: &mut u64, count| *sum = sum.saturating_add(count);
        add(&mut statistics.doorbells, receive.saturating_add(transmit));
        add(&mut statistics.transmit_doorbells, transmit);
    }

    pub(super) fn turn(&mut self, memory: &Mapping, now: Duration) -> Turn {
        let turn = self.card.turn(memory, now);
        self.tell_guest(&turn);
        if turn.units == 0 {
            self.card.wire_mut().wire_mut().tell_failure();
        }
        if let Some((hook, failure)) = self.card.wire_mut().filter_mut().take_failure() {
            self.stop_for(hook, failure);
        }
        turn
    }

    /// Frames that the program has sent to other pairs.
    pub(super) fn take_diverted(&mut self) -> Vec<Diverted> {
        self.card.wire_mut().filter_mut().take_diverted()
    }

    /// Takes a frame from another pair.
    pub(super) fn take_over(&mut self, frame: &Diverted) {
        self.card.wire_mut().filter_mut().take_over(frame);
    }

    /// Whether the queue behind the hook is in use.
    pub(super) fn runs(&self, hook: Hook) -> bool {
        self.card.runs(queue_of(hook))
    }

    /// Stops the queue of a hook whose program has failed, and tells the user once of each kind of failure.
    #[cold]
    fn stop_for(&mut self, hook: Hook, failure: Wild) {
        if let Some(told) = self.told.get_mut(failure.kind())
            && !std::mem::replace(told, true)
        {
            say!(
                "wireboot nic: the program in section {}: {failure}",
                hook.name()
            );
        }
        // The next turn tells the guest.
        self.card.fail(queue_of(hook), RingFault::Program);
    }

    /// Asks for doorbells, before a wait. True when there is work already.
    pub(super) fn arm(&mut self, memory: &Mapping) -> bool {
        self.armed = self.card.arm(memory);
        self.armed.work
    }

    /// Forgoes doorbells again, after a wait.
    pub(super) fn disarm(&mut self, memory: &Mapping) {
        self.card.disarm(memory);
    }

    /// What may end a wait.
    pub(super) fn descriptors(&self) -> [Option<BorrowedFd<'_>>; DESCRIPTORS] {
        let [receive, transmit] = self.queues.each_ref().map(|events| {
            let kick = events.as_ref().and_then(|events| events.kick.as_ref());
            kick.map(OwnedFd::as_fd)
        });
        let wake = self.card.wire().wake(self.armed.wire);
        [wake.descriptor, receive, transmit]
    }

    /// When a wait is to end.
    pub(super) fn due(&self) -> Option<Duration> {
        let wake = self.card.wire().wake(self.armed.wire);
        [wake.due, self.card.due()].into_iter().flatten().min()
    }

    /// What became of [`Self::descriptors`] in a wait.
    pub(super) fn woken(&mut self, [_, receive, transmit]: [Woken; DESCRIPTORS]) {
        let all = [receive, transmit];
        if all.contains(&Woken::Rung) {
            self.hear_doorbells();
        }
        for (events, woken) in self.queues.iter_mut().zip(all) {
            if let (Some(events), Woken::Broken) = (events, woken) {
                // Nobody will ever ring there.
                events.kick = None;
            }
        }
    }

    /// Counts the doorbells that were rung.
    fn hear_doorbells(&mut self) {
        for (events, count) in self.queues.iter().zip(&mut self.doorbells) {
            let kick = events.as_ref().and_then(|events| events.kick.as_ref());
            let rung = kick.map_or(0, |kick| empty(kick.as_fd()));
            // A monitor may say any number.
            *count = count.saturating_add(rung);
        }
    }

    fn ring_events(&mut self, queue: Queue) -> Option<&mut RingEvents> {
        self.queues.get_mut(queue as usize)?.as_mut()
    }

    fn tell_guest(&mut self, turn: &Turn) {
        let call = |queue: &Option<RingEvents>, wanted: bool| {
            if let Some(events) = queue
                && wanted
            {
                signal(events.call.as_ref());
            }
        };
        let [receive, transmit] = &self.queues;
        call(receive, turn.call_receive);
        call(transmit, turn.call_transmit);
        if let Some(fault) = turn.receive_fault {
            self.complain(Queue::Receive, fault);
        }
        if let Some(fault) = turn.transmit_fault {
            self.complain(Queue::Transmit, fault);
        }
    }

    /// Tells monitor and user that a queue was stopped; the user once for each reason.
    #[cold]
    fn complain(&mut self, queue: Queue, fault: RingFault) {
        if let Some(events) = self.ring_events(queue) {
            signal(events.error.as_ref());
        }
        let count = self.card.counters().stopped().find(|(of, _)| *of == fault);
        if count.is_none_or(|(_, count)| count == 1) {
            let name = match queue {
                Queue::Receive => "receive",
                Queue::Transmit => "transmit",
            };
            say!(
                "{}: the guest's {name} queue is stopped until its driver starts it anew: {fault}",
                self.name
            );
        }
    }
}

/// Where a queue's frames meet a program.
fn hook_of(queue: Queue) -> Hook {
    match queue {
        Queue::Receive => Hook::Wire,
        Queue::Transmit => Hook::Guest,
    }
}

/// Where a hook's frames are the guest's.
fn queue_of(hook: Hook) -> Queue {
    match hook {
        Hook::Guest => Queue::Transmit,
        Hook::Wire => Queue::Receive,
    }
}

fn signal(fd: Option<&OwnedFd>) {
    if let Some(fd) = fd {
        ring(fd.as_fd());
    }
}
