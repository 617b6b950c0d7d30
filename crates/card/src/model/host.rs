//! What a load makes of the host's processor, by the way in which it learns of frames.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::latency::Latencies;
use super::time::Picos;
use crate::coalesce::{Coalescer, Limits};

/// What the host's one processor spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An interrupt and its handler, which puts frames into the queue of those to be worked on. It goes before all other work.
    pub interrupt: Picos,
    /// A look for frames, whether there are any or not.
    pub look: Picos,
    /// All the work on a frame, to the application.
    pub packet: Picos,
}

/// How the host learns of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An interrupt for each.
    Interrupts,
    /// It looks, when it has nothing else to do.
    Polling,
    /// An interrupt for those that the card has gathered.
    Coalescing(Limits<Picos>),
}

/// A host that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// What its work costs.
    pub costs: Costs,
    /// Frames that wait in the card's ring; what comes when it is full is dropped, which costs the host nothing.
    pub ring: usize,
    /// Frames that wait for work; what an interrupt brings when it is full is dropped.
    pub queue: usize,
    /// Frames that a look takes at most.
    pub burst: usize,
}

/// What became of the frames.
#[derive(Clone, Debug)]
pub struct Load {
    /// Frames in the second half of the time that were worked on: their number.
    pub worked: u64,
    /// How long that half was.
    pub time: Picos,
    /// Frames that were dropped, of all.
    pub dropped: u64,
    /// From a frame's arrival to the end of the work on it, in the second half.
    pub latencies: Latencies,
}

impl Host {
    /// Receives so many frames, one each `gap`.
    #[must_use]
    pub fn load(&self, notice: Notice, gap: Picos, frames: u32) -> Load {
        let arrivals = (1..=u64::from(frames)).map(|number| gap.times(number));
        let mut work = Work::new(gap.times(frames.into()));
        match notice {
            Notice::Polling => self.poll(arrivals, &mut work),
            Notice::Interrupts => {
                let each = Limits {
                    frames: 1,
                    bytes: usize::MAX,
                    wait: Picos::ZERO,
                };
                self.interrupts(batches(each, arrivals), &mut work);
            }
            Notice::Coalescing(limits) => self.interrupts(batches(limits, arrivals), &mut work),
        }
        work.load()
    }

    fn poll(&self, arrivals: impl Iterator<Item = Picos>, work: &mut Work) {
        let mut arrivals = arrivals.peekable();
        let mut ring = VecDeque::new();
        let look = self.costs.look.max(Picos::new(1));
        let mut now = Picos::ZERO;
        loop {
            while let Some(at) = arrivals.next_if(|at| *at <= now) {
                if ring.len() < self.ring {
                    ring.push_back(at);
                } else {
                    work.dropped += 1;
                }
            }
            if ring.is_empty() {
                // Looks in vain, until something is there.
                let Some(next) = arrivals.peek() else {
                    return;
                };
                now = now + look.times(next.since(now).get().div_ceil(look.get()));
                continue;
            }
            now = now + look;
            let burst = ring.len().min(self.burst.max(1));
            for at in ring.drain(..burst) {
                now = now + self.costs.packet;
                work.done(at, now);
            }
        }
    }

    fn interrupts(&self, batches: Vec<(Picos, Vec<Picos>)>, work: &mut Work) {
        let mut batches = batches.into_iter().peekable();
        let mut ring = VecDeque::new();
        let mut in_ring = 0;
        let mut queue = VecDeque::new();
        let mut now = Picos::ZERO;
        // Of the work on the first frame of the queue.
        let mut left = self.costs.packet;
        loop {
            while let Some((_, frames)) = batches.next_if(|(at, _)| *at <= now) {
                if in_ring + frames.len() <= self.ring {
                    in_ring += frames.len();
                    ring.push_back(frames);
                } else {
                    work.dropped += frames.len() as u64;
                }
            }
            let next = batches.peek().map(|(at, _)| *at);
            if let Some(frames) = ring.pop_front() {
                now = now + self.costs.interrupt;
                in_ring -= frames.len();
                for at in frames {
                    if queue.len() < self.queue {
                        queue.push_back(at);
                    } else {
                        work.dropped += 1;
                    }
                }
            } else if let Some(at) = queue.front().copied() {
                let done = now + left;
                match next {
                    Some(next) if next < done => {
                        left = done.since(next);
                        now = next;
                    }
                    _ => {
                        now = done;
                        left = self.costs.packet;
                        queue.pop_front();
                        work.done(at, now);
                    }
                }
            } else if let Some(next) = next {
                now = next;
            } else {
                return;
            }
        }
    }
}

/// Frames that go together, and when.
fn batches(
    limits: Limits<Picos>,
    arrivals: impl Iterator<Item = Picos>,
) -> Vec<(Picos, Vec<Picos>)> {
    let mut coalescer = Coalescer::new(limits);
    let (mut waiting, mut batches) = (Vec::new(), Vec::new());
    let mut send = |at: Picos, waiting: &mut Vec<Picos>| {
        if !waiting.is_empty() {
            batches.push((at, core::mem::take(waiting)));
        }
    };
    for at in arrivals {
        if let Some(due) = coalescer.due().filter(|due| *due < at) {
            coalescer.take();
            send(due, &mut waiting);
        }
        // Frames are counted here, not their bytes.
        if coalescer.add(0, at).is_some() {
            send(at, &mut waiting);
        }
        waiting.push(at);
    }
    if let Some(due) = coalescer.due() {
        send(due, &mut waiting);
    }
    batches
}

struct Work {
    end: Picos,
    times: Vec<Picos>,
    dropped: u64,
}

impl Work {
    fn new(end: Picos) -> Self {
        Self {
            end,
            times: Vec::new(),
            dropped: 0,
        }
    }

    fn half(&self) -> Picos {
        Picos::new(self.end.get() / 2)
    }

    fn done(&mut self, arrival: Picos, now: Picos) {
        if now > self.half() && now <= self.end {
            self.times.push(now.since(arrival));
        }
    }

    fn load(self) -> Load {
        Load {
            worked: self.times.len() as u64,
            time: self.end.since(self.half()),
            dropped: self.dropped,
            latencies: Latencies::new(self.times),
        }
    }
}
