//! The receiving card: frames from the line, gathered, in transfers to the host.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::arrival::Arrival;
use super::latency::Latencies;
use super::receive_offload::{Cost, ReceiveOffload};
use super::throughput::Throughput;
use super::time::Picos;
use super::{Bus, on_bus};
use crate::coalesce::{Coalescer, Limits};

/// A card that receives. While one transfer is under way, it gathers for the next.
#[derive(Clone, Copy, Debug)]
pub struct ReceivingCard {
    /// To the host.
    pub bus: Bus,
    /// How frames are handed over.
    pub offload: ReceiveOffload,
    /// What ends the gathering, as far as the offload leaves that open.
    pub limits: Limits<Picos>,
    /// Bytes of frames that it holds. A frame for which there is no room is dropped.
    pub memory: usize,
}

/// What became of the frames.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Frames that the host has.
    pub delivered: u64,
    /// Frames for which the card had no room.
    pub dropped: u64,
    /// Frames that are of no use without others.
    pub given_up: u64,
    /// Their data that the host has.
    pub data: u64,
    /// What it cost that the host has them.
    pub cost: Cost,
    /// The longest time on the bus of frames that went together.
    pub longest_move: Picos,
    /// The longest time from a frame's arrival until the host had it.
    pub longest_wait: Picos,
    /// Data that came to the host, in the second half of the time in which frames came.
    pub throughput: Throughput,
    /// From a frame's arrival until the host had it, in that half.
    pub latencies: Latencies,
}

/// Receives frames, which come in the order of their time.
#[must_use]
pub fn receive(card: &ReceivingCard, arrivals: &[Arrival]) -> Outcome {
    let last = arrivals.last().map_or(Picos::ZERO, |arrival| arrival.at);
    let mut receiver = Receiver::new(card, last);
    for arrival in arrivals {
        receiver.accept(*arrival);
    }
    receiver.finish()
}

struct Receiver<'a> {
    card: &'a ReceivingCard,
    lanes: BTreeMap<u32, Lane>,
    /// Frames that go together, since when, and whether they go by the ordinary way.
    ready: VecDeque<(Picos, Vec<Arrival>, bool)>,
    /// Bytes that the card holds, those under way included.
    held: usize,
    /// Bytes under way, until `free`.
    moving: usize,
    free: Picos,
    settled: Settled,
    outcome: Outcome,
}

/// Frames that may go together.
struct Lane {
    coalescer: Coalescer<Picos>,
    frames: Vec<Arrival>,
    /// The number of the frame that continues them.
    next: u64,
    /// They are behind a gap.
    ordinary: bool,
}

/// The second half of the time in which frames came.
struct Settled {
    half: Picos,
    last: Picos,
    /// Ends of its first and its last transfer.
    ends: Option<(Picos, Picos)>,
    /// Data behind the first.
    bytes: u64,
    times: Vec<Picos>,
}

impl<'a> Receiver<'a> {
    fn new(card: &'a ReceivingCard, last: Picos) -> Self {
        Self {
            card,
            lanes: BTreeMap::new(),
            ready: VecDeque::new(),
            held: 0,
            moving: 0,
            free: Picos::ZERO,
            settled: Settled {
                half: Picos::new(last.get() / 2),
                last,
                ends: None,
                bytes: 0,
                times: Vec::new(),
            },
            outcome: Outcome::default(),
        }
    }

    fn accept(&mut self, frame: Arrival) {
        self.run(Some(frame.at));
        if self.free <= frame.at {
            self.moved();
        }
        let len = on_bus(frame.payload);
        if self.held.saturating_add(len) > self.card.memory {
            self.outcome.dropped += 1;
            return;
        }
        self.held += len;
        let offload = self.card.offload;
        let lane = self
            .lanes
            .entry(offload.lane(&frame))
            .or_insert_with(|| Lane {
                coalescer: Coalescer::new(offload.limits(self.card.limits)),
                frames: Vec::new(),
                next: frame.number,
                ordinary: false,
            });
        if !offload.continues(&lane.frames, lane.next, &frame) {
            lane.coalescer.take();
            let frames = core::mem::take(&mut lane.frames);
            if offload.is_useless(&frames) {
                self.held -= frames
                    .iter()
                    .map(|frame| on_bus(frame.payload))
                    .sum::<usize>();
                self.outcome.given_up += frames.len() as u64;
            } else if !frames.is_empty() {
                self.ready.push_back((frame.at, frames, lane.ordinary));
            }
            lane.ordinary = true;
        }
        lane.next = frame.number.wrapping_add(1);
        if lane.coalescer.add(offload.len(&frame), frame.at).is_some() {
            let frames = core::mem::take(&mut lane.frames);
            let ordinary = core::mem::take(&mut lane.ordinary);
            self.ready.push_back((frame.at, frames, ordinary));
        }
        lane.frames.push(frame);
    }

    /// Starts the transfers that start before `until`; all where that is none.
    fn run(&mut self, until: Option<Picos>) {
        loop {
            let due = self
                .lanes
                .values_mut()
                .filter_map(|lane| lane.coalescer.due().map(|due| (due, lane)));
            let lane = due.min_by_key(|(due, _)| *due);
            let ready = self.ready.front().map(|(from, ..)| *from);
            let Some(from) = ready.or(lane.as_ref().map(|(due, _)| *due)) else {
                return;
            };
            let start = from.max(self.free);
            if until.is_some_and(|until| start >= until) {
                return;
            }
            if let Some((_, frames, ordinary)) = self.ready.pop_front() {
                self.transfer(start, &frames, ordinary);
            } else if let Some((_, lane)) = lane {
                lane.coalescer.take();
                let frames = core::mem::take(&mut lane.frames);
                let ordinary = core::mem::take(&mut lane.ordinary);
                self.transfer(start, &frames, ordinary);
            }
        }
    }

    fn transfer(&mut self, start: Picos, frames: &[Arrival], ordinary: bool) {
        self.moved();
        let cost = self.card.offload.cost(&self.card.bus, frames, ordinary);
        self.free = start + cost.time;
        self.moving = frames.iter().map(|frame| on_bus(frame.payload)).sum();
        let data = frames.iter().map(|frame| u64::from(frame.data)).sum();
        self.settled.count(start, self.free, frames, data);
        let outcome = &mut self.outcome;
        outcome.delivered += frames.len() as u64;
        outcome.data += data;
        outcome.cost.add(&cost);
        outcome.longest_move = outcome.longest_move.max(cost.time);
        if let Some(first) = frames.first() {
            outcome.longest_wait = outcome.longest_wait.max(self.free.since(first.at));
        }
    }

    /// The transfer under way has ended.
    fn moved(&mut self) {
        self.held = self.held.saturating_sub(self.moving);
        self.moving = 0;
    }

    /// No more frames come.
    fn finish(mut self) -> Outcome {
        if self.card.offload == ReceiveOffload::Datagrams {
            self.run(Some(Picos::MAX));
            let left = self.lanes.values().map(|lane| lane.frames.len() as u64);
            self.outcome.given_up += left.sum::<u64>();
        } else {
            self.run(None);
        }
        let Settled {
            ends, bytes, times, ..
        } = self.settled;
        self.outcome.throughput = ends.map_or(Throughput::NONE, |(first, last)| Throughput {
            bytes,
            time: last.since(first),
        });
        self.outcome.latencies = Latencies::new(times);
        self.outcome
    }
}

impl Settled {
    fn count(&mut self, start: Picos, end: Picos, frames: &[Arrival], data: u64) {
        if start < self.half || start >= self.last {
            return;
        }
        match &mut self.ends {
            None => self.ends = Some((end, end)),
            Some((_, last)) => {
                *last = end;
                self.bytes += data;
            }
        }
        self.times
            .extend(frames.iter().map(|frame| end.since(frame.at)));
    }
}
