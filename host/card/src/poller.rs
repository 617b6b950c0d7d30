//! The thread that turns the card, and the messages between it and the control thread.
//!
//! ```text
//!   commands ─────────┐ (channel, and an eventfd that ends a wait)
//!   doorbells, wire ──┤
//!                     v
//!       turn, turn, turn ... nothing for a while ──> ask for doorbells, look once more ──> wait
//! ```
//!
//! Guest memory is this thread's alone.

mod patience;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use wireboot_card::coalesce::Limits;
use wireboot_card::{Card, Lies, Queue, RingFault, Turn, Wire};

use self::patience::Patience;
use crate::memory::Mapping;
use crate::stage::Stage;
use crate::statistics::Statistics;
use crate::vhost::{Rings, RunningRing};

enum Command {
    Memory(Option<Mapping>),
    Agree(u64),
    Start(Queue, RunningRing),
    Call(Queue, Option<OwnedFd>),
    Stop(Queue, Sender<u16>),
    Statistics(Sender<Statistics>),
    End,
}

/// The poller. It ends with this value; its handles do nothing then.
#[derive(Debug)]
pub(crate) struct Poller {
    handle: Handle,
    offloads: u64,
    thread: Option<JoinHandle<()>>,
}

/// Commands to the poller.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    bell: Bell,
}

/// Ends the poller's wait, after each command.
#[derive(Clone, Debug)]
struct Bell(Arc<OwnedFd>);

impl Bell {
    fn ring(&self) {
        ring(self.0.as_fd());
    }
}

impl Poller {
    /// Starts the thread with a card before this, which tells these lies and offers chunks within these limits, if any.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(
        stage: Stage,
        lies: Lies,
        chunks: Option<Limits<Duration>>,
    ) -> io::Result<Self> {
        let (commands, received) = channel();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Bell(Arc::new(eventfd(0, flags)?));
        let offloads = stage.offloads();
        let mut card = Card::new(stage);
        card.lie(lies);
        card.offer_chunks(chunks);
        let mut work = Work {
            commands: received,
            bell: bell.clone(),
            card,
            memory: None,
            queues: [None, None],
            begun: Instant::now(),
            statistics: Statistics::default(),
        };
        let thread = Builder::new()
            .name("card".to_owned())
            .spawn(move || work.run())?;
        Ok(Self {
            handle: Handle { commands, bell },
            offloads,
            thread: Some(thread),
        })
    }

    /// The offloads that the card can offer.
    pub(crate) fn offloads(&self) -> u64 {
        self.offloads
    }

    /// For commands.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What the card did so far.
    ///
    /// # Errors
    /// When the poller has ended.
    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        let (reply, answer) = channel();
        self.handle.tell(Command::Statistics(reply));
        answer.recv().map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.handle.tell(Command::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Handle {
    fn tell(&self, command: Command) {
        // A poller that has ended obeys nothing, and touches nothing.
        let _ = self.commands.send(command);
        self.bell.ring();
    }
}

impl Rings for Handle {
    fn set_memory(&mut self, memory: Option<Mapping>) {
        self.tell(Command::Memory(memory));
    }

    fn agree(&mut self, features: u64) {
        self.tell(Command::Agree(features));
    }

    fn start(&mut self, queue: Queue, ring: RunningRing) {
        self.tell(Command::Start(queue, ring));
    }

    fn set_call(&mut self, queue: Queue, call: Option<OwnedFd>) {
        self.tell(Command::Call(queue, call));
    }

    fn stop(&mut self, queue: Queue) -> u16 {
        let (reply, base) = channel();
        self.tell(Command::Stop(queue, reply));
        base.recv().unwrap_or(0)
    }
}

/// The descriptors of a queue that is in use.
struct Bells {
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
}

struct Work {
    commands: Receiver<Command>,
    bell: Bell,
    card: Card<Stage>,
    memory: Option<Mapping>,
    /// By queue.
    queues: [Option<Bells>; 2],
    begun: Instant,
    statistics: Statistics,
}

impl Work {
    fn run(&mut self) {
        let mut idle_since = None;
        let mut patience = Patience::new();
        loop {
            // Nothing is to be done without a queue, and a wire without a guest is not read.
            let idle = self.queues.iter().all(Option::is_none);
            let command = if idle {
                self.commands.recv().map_err(|_| TryRecvError::Disconnected)
            } else {
                self.commands.try_recv()
            };
            match command {
                Ok(Command::End) | Err(TryRecvError::Disconnected) => return,
                Ok(command) => {
                    self.obey(command);
                    continue;
                }
                Err(TryRecvError::Empty) => {}
            }
            let Some(memory) = &self.memory else {
                self.queues = [None, None];
                continue;
            };
            let now = Instant::now();
            let turn = self.card.turn(memory, now.duration_since(self.begun));
            self.tell_guest(&turn);
            if turn.units != 0 {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if turn.no_room || patience.is_over(now.duration_since(since)) {
                let begun = Instant::now();
                self.wait();
                // How long a guest takes to make room says nothing of the next frame.
                if !turn.no_room {
                    patience.learn(begun.elapsed());
                }
                idle_since = None;
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Memory(memory) => self.memory = memory,
            Command::Agree(features) => {
                self.card.wire_mut().agree(features);
            }
            Command::Start(queue, ring) => self.start(queue, ring),
            Command::Call(queue, call) => {
                if let Some(bells) = self.bells(queue) {
                    bells.call = call;
                    // A call of the last moment may have gone to the one before.
                    ring_all([bells.call.as_ref()]);
                }
            }
            Command::Stop(queue, reply) => {
                let base = self.card.stop(queue).unwrap_or(0);
                if let Some(bells) = self.queues.get_mut(queue as usize) {
                    *bells = None;
                }
                // Nobody waits when the session is gone.
                let _ = reply.send(base);
            }
            Command::Statistics(reply) => {
                self.statistics.card = self.card.counters();
                let stage = self.card.wire();
                self.statistics.offload = stage.offload_counters();
                self.statistics.paced = stage.paced_counters();
                let _ = reply.send(self.statistics);
            }
            Command::End => {}
        }
    }

    fn bells(&mut self, queue: Queue) -> Option<&mut Bells> {
        self.queues.get_mut(queue as usize)?.as_mut()
    }

    fn start(&mut self, queue: Queue, ring: RunningRing) {
        let Some(memory) = &self.memory else {
            return;
        };
        if queue == Queue::Receive && ring.start.base == 0 {
            // A driver that begins anew. One that was only held up goes on from where it was.
            self.card.wire_mut().wire_mut().restart();
        }
        let result = self.card.start(memory, queue, ring.start);
        if let Some(bells) = self.queues.get_mut(queue as usize) {
            *bells = Some(Bells {
                kick: Some(ring.kick),
                call: ring.call,
                error: ring.error,
            });
        }
        if let Err(fault) = result {
            self.complain(queue, fault);
        }
    }

    fn tell_guest(&mut self, turn: &Turn) {
        let bell = |queue: &Option<Bells>, wanted: bool| {
            if let Some(bells) = queue
                && wanted
            {
                ring_all([bells.call.as_ref()]);
            }
        };
        let [receive, transmit] = &self.queues;
        bell(receive, turn.call_receive);
        bell(transmit, turn.call_transmit);
        if let Some(fault) = turn.receive_fault {
            self.complain(Queue::Receive, fault);
        }
        if let Some(fault) = turn.transmit_fault {
            self.complain(Queue::Transmit, fault);
        }
    }

    /// Tells monitor and user that a queue was stopped; the user once for each reason.
    fn complain(&mut self, queue: Queue, fault: RingFault) {
        if let Some(bells) = self.bells(queue) {
            ring_all([bells.error.as_ref()]);
        }
        let count = self.card.counters().stopped().find(|(of, _)| *of == fault);
        if count.is_none_or(|(_, count)| count == 1) {
            let name = match queue {
                Queue::Receive => "receive",
                Queue::Transmit => "transmit",
            };
            eprintln!(
                "wireboot nic: the guest's {name} queue is stopped until its driver starts it anew: {fault}"
            );
        }
    }

    /// Waits for a doorbell, the wire or a command.
    fn wait(&mut self) {
        let Some(memory) = &self.memory else {
            return;
        };
        let armed = self.card.arm(memory);
        if !armed.work {
            let wake = self.card.wire().wake(armed.wire);
            let due = [wake.due, self.card.due()].into_iter().flatten().min();
            let left = due.map(|due| due.saturating_sub(self.begun.elapsed()));
            let woken = wait(&self.bell, &self.queues, wake.descriptor, left);
            self.statistics.waits += 1;
            // Before commands are looked at: one that comes later rings again.
            empty(self.bell.0.as_fd());
            for (bells, woken) in self.queues.iter_mut().flatten().zip(woken) {
                match woken {
                    Woken::No => {}
                    Woken::Rung => {
                        if let Some(kick) = &bells.kick {
                            empty(kick.as_fd());
                            self.statistics.doorbells += 1;
                        }
                    }
                    // Nobody will ever ring there.
                    Woken::Broken => bells.kick = None,
                }
            }
        }
        self.card.disarm(memory);
        self.card.wire_mut().wire_mut().tell_failure();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    No,
    Rung,
    Broken,
}

/// Waits, for so long at most. What became of the doorbells of the queues that are in use, in order.
fn wait(
    bell: &Bell,
    queues: &[Option<Bells>; 2],
    wire: Option<BorrowedFd<'_>>,
    longest: Option<Duration>,
) -> [Woken; 2] {
    let kicks = queues.iter().flatten().map(|bells| bells.kick.as_ref());
    // The bell stands in for what is not there.
    let mut fds = [bell.0.as_fd(); 4];
    for (fd, kick) in fds.iter_mut().skip(2).zip(kicks) {
        if let Some(kick) = kick {
            *fd = kick.as_fd();
        }
    }
    if let (Some(wire), [_, fd, ..]) = (wire, &mut fds) {
        *fd = wire;
    }
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let longest = longest.map(|time| Timespec {
        tv_sec: time.as_secs() as _,
        tv_nsec: time.subsec_nanos().into(),
    });
    if poll(&mut polled, longest.as_ref()).is_err() {
        // A signal: as good as woken.
        return [Woken::No; 2];
    }
    let [_, _, first, second] = polled.map(|fd| {
        let events = fd.revents();
        if events.contains(PollFlags::IN) {
            Woken::Rung
        } else if events.is_empty() {
            Woken::No
        } else {
            Woken::Broken
        }
    });
    [first, second]
}

fn ring_all<const N: usize>(fds: [Option<&OwnedFd>; N]) {
    for fd in fds.into_iter().flatten() {
        ring(fd.as_fd());
    }
}

fn ring(fd: BorrowedFd<'_>) {
    // An eventfd that is full rings already. The monitor's may be gone.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

fn empty(fd: BorrowedFd<'_>) {
    // It does not block; nothing in it is as good.
    let _ = rustix::io::read(fd, &mut [0; 8]);
}

#[cfg(test)]
mod tests;
