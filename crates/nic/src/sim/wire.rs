//! One direction of a link: when a frame arrives, how often, and what becomes of it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use super::LinkConfig;

/// The longest frame of plain Ethernet. A longer one is a datagram in fragments.
const LONGEST: usize = 1514;

/// One direction of a link.
pub(super) struct Direction {
    config: LinkConfig,
    random: fastrand::Rng,
    pub up: bool,
    /// When the wire is free again, in nanoseconds.
    busy_until: i64,
    /// When each queued frame leaves the queue, in nanoseconds.
    departures: VecDeque<i64>,
    /// Frames under way by delivery time in nanoseconds and order of sending.
    pub under_way: BTreeMap<(i64, u64), Vec<u8>>,
    sent: u64,
    pub lost: u64,
}

impl Direction {
    pub(super) fn new(config: LinkConfig, seed: u64) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            config,
            random: fastrand::Rng::with_seed(seed),
            up: true,
            busy_until: 0,
            departures: VecDeque::new(),
            under_way: BTreeMap::new(),
            sent: 0,
            lost: 0,
        }))
    }

    fn drawn(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.f64() < probability
    }

    /// Forgets the frames that have left the queue by `now` (nanoseconds).
    fn depart(&mut self, now: i64) {
        while self.departures.front().is_some_and(|&at| at <= now) {
            self.departures.pop_front();
        }
    }

    /// True when no frame waits for the wire at `now` (nanoseconds).
    pub(super) fn idle(&mut self, now: i64) -> bool {
        self.depart(now);
        self.departures.is_empty()
    }

    /// Takes a frame that is sent at `now` (nanoseconds).
    pub(super) fn carry(&mut self, now: i64, mut frame: Vec<u8>) {
        self.depart(now);
        if !self.up || self.departures.len() >= self.config.queue_frames {
            self.lost += 1;
            return;
        }
        let bits = frame.len() as u64 * 8;
        let wire_time = (bits * 1_000_000_000)
            .checked_div(self.config.bits_per_second)
            .unwrap_or(0);
        self.busy_until = self.busy_until.max(now) + wire_time as i64;
        let departure = self.busy_until;
        self.departures.push_back(departure);
        let fragments = frame.len().div_ceil(LONGEST).max(1);
        if (0..fragments).any(|_| self.drawn(self.config.loss)) {
            self.lost += 1;
            return;
        }
        if self.drawn(self.config.corrupt) && !frame.is_empty() {
            let bit = self.random.usize(0..frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        if self.drawn(self.config.duplicate) {
            self.deliver(departure, frame.clone());
        }
        self.deliver(departure, frame);
    }

    fn deliver(&mut self, departure: i64, frame: Vec<u8>) {
        let mut at = departure + i64::from(self.config.latency_micros) * 1000;
        if self.drawn(self.config.reorder) {
            at += self
                .random
                .i64(0..=i64::from(self.config.reorder_micros) * 1000);
        }
        self.under_way.insert((at, self.sent), frame);
        self.sent += 1;
    }
}
