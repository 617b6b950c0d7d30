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

mod pair;
mod patience;

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use wireboot_card::{Beyond, Lies, Wire};

use self::pair::{DESCRIPTORS, Pair};
use self::patience::Patience;
pub(crate) use self::patience::Polling;
use crate::data_path::DataPath;
use crate::memory::Mapping;
use crate::program::Diverted;
use crate::statistics::Statistics;
use crate::vhost::{MAX_PAIRS, PairQueue, Rings, RunningRing};

/// How long the counters are waited for: what a guest does may take the poller long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Commands that may wait. Each may hold descriptors, of which the process has so many only.
const COMMANDS: usize = 64;

enum Command {
    Memory(Option<Mapping>),
    Agree(u64),
    Start(PairQueue, RunningRing),
    Call(PairQueue, Option<OwnedFd>),
    Stop(PairQueue, Sender<u16>),
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
    commands: SyncSender<Command>,
    waker: Waker,
}

/// Ends the poller's wait, after each command.
#[derive(Clone, Debug)]
struct Waker(Arc<OwnedFd>);

impl Waker {
    fn wake(&self) {
        ring(self.0.as_fd());
    }
}

impl Poller {
    /// Starts the thread with a card before each of these, one for each pair of queues, [`MAX_PAIRS`] at most. They tell these lies, and do so much for drivers
    /// that ask. It waits as `polling` says. Lines in the log begin with `name`.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn start(
        name: Arc<str>,
        data_paths: Vec<DataPath>,
        lies: Lies,
        beyond: Beyond,
        polling: Polling,
    ) -> io::Result<Self> {
        let (commands, received) = sync_channel(COMMANDS);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = Waker(Arc::new(eventfd(0, flags)?));
        let offloads = data_paths.iter().map(Wire::<Mapping>::offloads);
        let offloads = offloads.reduce(|all, one| all & one).unwrap_or(0);
        let pairs = data_paths
            .into_iter()
            .map(|data_path| Pair::new(name.clone(), data_path, lies, beyond));
        let mut work = Work {
            commands: received,
            waker: waker.clone(),
            pairs: pairs.collect(),
            memory: None,
            begun: Instant::now(),
            patience: Patience::new(polling),
            waits: 0,
        };
        let thread = Builder::new()
            .name("card".to_owned())
            .spawn(move || work.run())?;
        Ok(Self {
            handle: Handle { commands, waker },
            offloads,
            thread: Some(thread),
        })
    }

    /// The offloads that the card can offer.
    pub(crate) fn offloads(&self) -> u64 {
        self.offloads
    }

    /// By which others give the thread commands.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What the card did so far.
    ///
    /// # Errors
    /// When the poller has ended, or does not answer.
    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        let statistics = self.handle.statistics(PATIENCE);
        statistics.ok_or(io::ErrorKind::BrokenPipe.into())
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
    /// What the card did so far. None when the poller has ended, or does not answer within this time.
    pub(crate) fn statistics(&self, patience: Duration) -> Option<Statistics> {
        let (reply, answer) = channel();
        self.commands.try_send(Command::Statistics(reply)).ok()?;
        self.waker.wake();
        answer.recv_timeout(patience).ok()
    }

    fn tell(&self, command: Command) {
        // A poller that has ended obeys nothing, and touches nothing.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Rings for Handle {
    fn set_memory(&mut self, memory: Option<Mapping>) {
        self.tell(Command::Memory(memory));
    }

    fn agree(&mut self, features: u64) {
        self.tell(Command::Agree(features));
    }

    fn start(&mut self, queue: PairQueue, ring: RunningRing) {
        self.tell(Command::Start(queue, ring));
    }

    fn set_call(&mut self, queue: PairQueue, call: Option<OwnedFd>) {
        self.tell(Command::Call(queue, call));
    }

    fn stop(&mut self, queue: PairQueue) -> u16 {
        let (reply, base) = channel();
        self.tell(Command::Stop(queue, reply));
        base.recv().unwrap_or(0)
    }
}

struct Work {
    commands: Receiver<Command>,
    waker: Waker,
    pairs: Vec<Pair>,
    memory: Option<Mapping>,
    /// The zero of the clock that cards and wires have.
    begun: Instant,
    patience: Patience,
    waits: u64,
}

impl Work {
    fn run(&mut self) {
        let mut idle_since = None;
        loop {
            // Nothing is to be done without a queue, and a wire without a guest is not read.
            let command = if self.pairs.iter().all(Pair::is_idle) {
                let idle = Instant::now();
                let command = self.commands.recv();
                // The clock of the wires stands still meanwhile: a machine that is paused loses no transfer.
                self.begun += idle.elapsed();
                command.map_err(|_| TryRecvError::Disconnected)
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
            let now = Instant::now();
            let (moved, no_room) = self.turn(now.duration_since(self.begun));
            if moved {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if self.patience.is_over(now.duration_since(since), no_room) {
                let begun = Instant::now();
                self.wait();
                // How long a guest takes to make room says nothing of the next frame.
                if !no_room {
                    self.patience.learn(begun.elapsed());
                }
                idle_since = None;
            } else if no_room {
                // The guest may need this processor to make some.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Turns each pair. Whether units were moved, and whether the guest had no room.
    fn turn(&mut self, now: Duration) -> (bool, bool) {
        let (mut moved, mut no_room) = (false, false);
        // A queue runs with memory only.
        if let Some(memory) = &self.memory {
            for n in 0..self.pairs.len() {
                let Some(pair) = self.pairs.get_mut(n) else {
                    continue;
                };
                let turn = pair.turn(memory, now);
                moved |= turn.units != 0;
                no_room |= turn.no_room;
                for frame in pair.take_diverted() {
                    moved = true;
                    deliver(&mut self.pairs, n, &frame);
                }
            }
        }
        (moved, no_room)
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Memory(memory) => self.memory = memory,
            Command::Agree(features) => {
                for pair in &mut self.pairs {
                    pair.agree(features);
                }
            }
            Command::Start(queue, ring) => {
                if let (Some(memory), Some(pair)) = (&self.memory, self.pairs.get_mut(queue.pair)) {
                    pair.start(memory, queue.queue, ring);
                }
            }
            Command::Call(queue, call) => {
                if let Some(pair) = self.pairs.get_mut(queue.pair) {
                    pair.set_call(queue.queue, call);
                }
            }
            Command::Stop(queue, reply) => {
                let pair = self.pairs.get_mut(queue.pair);
                // Nobody waits when the session is gone.
                let _ = reply.send(pair.map_or(0, |pair| pair.stop(queue.queue)));
            }
            Command::Statistics(reply) => {
                let mut statistics = Statistics {
                    waits: self.waits,
                    ..Statistics::default()
                };
                for pair in &mut self.pairs {
                    pair.count(&mut statistics);
                }
                let _ = reply.send(statistics);
            }
            Command::End => {}
        }
    }

    /// Waits for a doorbell, a wire or a command.
    fn wait(&mut self) {
        let Some(memory) = &self.memory else {
            return;
        };
        let mut work = false;
        for pair in &mut self.pairs {
            work |= pair.arm(memory);
        }
        if !work {
            let due = self.pairs.iter().filter_map(Pair::due).min();
            let left = due.map(|due| due.saturating_sub(self.begun.elapsed()));
            let woken = wait(&self.waker, &self.pairs, left);
            self.waits += 1;
            // Before commands are looked at: one that comes later wakes again.
            empty(self.waker.0.as_fd());
            for (pair, woken) in self.pairs.iter_mut().zip(woken) {
                pair.woken(woken);
            }
        }
        for pair in &mut self.pairs {
            pair.disarm(memory);
        }
    }
}

/// Takes a frame to the pair that a program has chosen. Where the guest does not use that one, it goes on by the pair by which it has come.
fn deliver(pairs: &mut [Pair], from: usize, frame: &Diverted) {
    let chosen = pairs.get(frame.pair);
    let used = chosen.is_some_and(|pair| pair.runs(frame.hook));
    let to = if used { frame.pair } else { from };
    if let Some(pair) = pairs.get_mut(to) {
        pair.take_over(frame);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    No,
    Rung,
    Broken,
}

/// Waits, for so long at most. What became of each pair's descriptors.
fn wait(
    waker: &Waker,
    pairs: &[Pair],
    longest: Option<Duration>,
) -> [[Woken; DESCRIPTORS]; MAX_PAIRS] {
    let mut woken = [[Woken::No; DESCRIPTORS]; MAX_PAIRS];
    // The waker stands in for what is not there.
    let waker = PollFd::from_borrowed_fd(waker.0.as_fd(), PollFlags::IN);
    let mut polled: [_; 1 + DESCRIPTORS * MAX_PAIRS] = std::array::from_fn(|_| waker.clone());
    let fds = pairs.iter().flat_map(Pair::descriptors);
    let count = 1 + DESCRIPTORS * pairs.len();
    for (polled, fd) in polled.iter_mut().skip(1).zip(fds) {
        if let Some(fd) = fd {
            *polled = PollFd::from_borrowed_fd(fd, PollFlags::IN);
        }
    }
    let longest = longest.map(|time| Timespec {
        tv_sec: time.as_secs() as _,
        tv_nsec: time.subsec_nanos().into(),
    });
    let polled = polled.get_mut(..count).unwrap_or_default();
    if poll(polled, longest.as_ref()).is_err() {
        // A signal: as good as woken.
        return woken;
    }
    for (woken, fd) in woken
        .as_flattened_mut()
        .iter_mut()
        .zip(polled.iter().skip(1))
    {
        let events = fd.revents();
        // What is closed is readable, too.
        *woken = if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            Woken::Broken
        } else if events.is_empty() {
            Woken::No
        } else {
            Woken::Rung
        };
    }
    woken
}

fn ring(fd: BorrowedFd<'_>) {
    // An eventfd that is full rings already. The monitor's may be gone.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// How often an eventfd was rung since it was last emptied.
fn empty(fd: BorrowedFd<'_>) -> u64 {
    let mut count = [0; 8];
    // A monitor's may be one that blocks. Nothing in it is as good.
    let here = u64::MAX;
    let mut place = [IoSliceMut::new(&mut count)];
    let read = match preadv2(fd, &mut place, here, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) if !reads_at_once() && is_readable(fd) => {
            rustix::io::read(fd, &mut count)
        }
        read => read,
    };
    read.map_or(0, |_| u64::from_ne_bytes(count))
}

/// Whether this kernel reads an eventfd without waiting: since Linux 5.8. What then cannot be read so is none, and might block for ever.
fn reads_at_once() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let Ok(fd) = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else {
            return false;
        };
        let mut count = [0; 8];
        let mut place = [IoSliceMut::new(&mut count)];
        preadv2(&fd, &mut place, u64::MAX, ReadWriteFlags::NOWAIT).is_ok()
    })
}

/// Whether there is something to read now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let at_once = Timespec::default();
    let [polled] = match poll(&mut polled, Some(&at_once)) {
        Ok(_) => polled,
        Err(_) => return false,
    };
    polled.revents().contains(PollFlags::IN)
}

#[cfg(test)]
mod tests;
