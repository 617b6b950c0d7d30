//! A simulated Ethernet link in virtual time: latency, rate, queue, loss, reordering, duplication and
//! corruption, the same for the same seed.
//!
//! Nothing moves by itself: the test advances the [`Clock`], and a frame is there for its receiver once the
//! clock has reached its delivery time ([`SimNic::next_delivery`] tells a test loop how far it can jump).
//!
//! ```
//! use wireboot_nic::{Nic, Offload, Receive, Transmit, sim};
//!
//! let (mut a, mut b) = sim::link(sim::LinkConfig::default(), sim::LinkConfig::default(), 1);
//! let (_, tx) = a.split();
//! tx.send(60, Offload::None, &mut |frame| frame.fill(7)).unwrap();
//! tx.flush().unwrap();
//! a.clock().set(b.next_delivery().unwrap());
//! assert_eq!(b.split().0.burst(1, |frame| assert_eq!(frame.len, 60)), Ok(1));
//! ```

mod coalesce;
mod cut;
pub mod multiqueue;
mod placing;
mod wire;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    Checksum, Counters, Fault, Frame, MacAddress, Nic, Offload, Placer, Properties, Receive,
    SendError, Transmit, checksum,
};
use placing::Placing;
use wire::Direction;

/// Virtual time in microseconds, shared by all that has a handle and moved by the test alone.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    /// The time now, in microseconds.
    pub fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves to `micros`, unless that lies in the past.
    pub fn set(&self, micros: i64) {
        self.0.fetch_max(micros, Ordering::Relaxed);
    }

    /// Moves `micros` microseconds ahead.
    pub fn advance(&self, micros: i64) {
        self.set(self.now() + micros);
    }
}

/// How one direction of a link treats its frames. Probabilities are from 0.0 to 1.0, each drawn for each frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// From the last bit sent to delivery, in microseconds.
    pub latency_micros: u32,
    /// Bits a second, or 0 for no limit.
    pub bits_per_second: u64,
    /// Frames that may wait for the wire; more are lost.
    pub queue_frames: usize,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame is late by a random time of up to `reorder_micros`.
    pub reorder: f64,
    /// Longest extra delay of a late frame, in microseconds.
    pub reorder_micros: u32,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a frame is flipped (and no frame check sequence notices).
    pub corrupt: f64,
}

impl Default for LinkConfig {
    /// A healthy gigabit LAN: 50 us, 1000 frames of queue, nothing lost.
    fn default() -> Self {
        Self {
            latency_micros: 50,
            bits_per_second: 1_000_000_000,
            queue_frames: 1000,
            loss: 0.0,
            reorder: 0.0,
            reorder_micros: 1000,
            duplicate: 0.0,
            corrupt: 0.0,
        }
    }
}

/// What the simulated NIC at one end of a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// Ethernet address that the NIC tells as [`Properties::mac`].
    pub mac: MacAddress,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Frames that the receive buffers hold between two bursts; more are lost.
    pub receive_frames: usize,
    /// What its properties say of them, where that differs: `receive_frames` and `receive_frames_probe`.
    pub receive_frames_reported: Option<(usize, usize)>,
    /// Frames that can be queued between two flushes.
    pub transmit_frames: usize,
    /// Whether the device joins TCP segments and UDP datagrams that arrive together into units of up to
    /// 64 KB with a trusted checksum (GUEST_TSO, GUEST_USO), of both IP versions.
    pub coalesce: bool,
    /// Whether the device puts fragments of UDP datagrams together. The other end of the link then sends each datagram as one frame, which
    /// the link treats as its fragments: lost where one of them is, and in as many buffers.
    pub joins_datagrams: bool,
    /// Received units are lent in parts of this many bytes (at least 128), as scattered receive buffers would.
    pub part_len: Option<usize>,
    /// Whether the device completes checksums on transmit.
    pub transmit_checksum: bool,
    /// Longest frame that the device cuts into TCP segments, of which it takes [`UNITS`] between two flushes (HOST_TSO4 and HOST_TSO6); 0
    /// where it does not do that.
    pub transmit_unit: usize,
    /// Whether the device writes the payload of TCP connections to where it belongs ([`crate::placer`]).
    pub places: bool,
}

/// Frames to be cut that a simulated NIC takes between two flushes.
pub const UNITS: usize = 8;

impl NicConfig {
    /// A plain NIC with the given station address.
    pub fn new(mac: MacAddress) -> Self {
        Self {
            mac,
            mtu: 1500,
            receive_frames: 256,
            receive_frames_reported: None,
            transmit_frames: 256,
            coalesce: false,
            joins_datagrams: false,
            part_len: None,
            transmit_checksum: false,
            transmit_unit: 0,
            places: false,
        }
    }
}

/// Makes a link between NICs `a` (02:00:00:00:00:0a) and `b` (02:00:00:00:00:0b): `ab` treats the frames
/// that `a` sends, `ba` those that `b` sends. [`SimNic::configure`] changes the NICs.
pub fn link(ab: LinkConfig, ba: LinkConfig, seed: u64) -> (SimNic, SimNic) {
    let clock = Clock::default();
    let to_b = Direction::new(ab, seed);
    let to_a = Direction::new(ba, seed ^ 0x9e37_79b9_7f4a_7c15);
    let a = NicConfig::new([2, 0, 0, 0, 0, 0x0a]);
    let b = NicConfig::new([2, 0, 0, 0, 0, 0x0b]);
    (
        SimNic::new(a, clock.clone(), to_a.clone(), to_b.clone()),
        SimNic::new(b, clock, to_b, to_a),
    )
}

/// A frame or coalesced unit in a receive buffer.
struct Unit {
    bytes: Vec<u8>,
    checksum: Checksum,
    udp_segment: Option<u16>,
}

impl Unit {
    /// Shows the unit in parts of so many bytes.
    fn lend(&self, part_len: Option<usize>, sink: &mut impl FnMut(Frame<'_>)) {
        let part_len = part_len.unwrap_or(usize::MAX).max(128);
        let mut parts: Vec<&[u8]> = self.bytes.chunks(part_len).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        sink(Frame {
            parts: &parts,
            len: self.bytes.len(),
            checksum: self.checksum,
            udp_segment: self.udp_segment,
        });
    }
}

/// The NIC at one end of a simulated link.
pub struct SimNic {
    config: NicConfig,
    rx: SimReceive,
    tx: SimTransmit,
}

impl SimNic {
    fn new(
        config: NicConfig,
        clock: Clock,
        inbound: Arc<Mutex<Direction>>,
        outbound: Arc<Mutex<Direction>>,
    ) -> Self {
        Self {
            config,
            rx: SimReceive {
                config,
                clock: clock.clone(),
                inbound,
                placing: Placing::default(),
                counters: Counters::default(),
                stopped: false,
            },
            tx: SimTransmit {
                config,
                clock,
                outbound,
                queued: Vec::new(),
                units: 0,
                counters: Counters::default(),
                stopped: false,
            },
        }
    }

    /// Changes what this NIC is like. To be called before it is used.
    pub fn configure(&mut self, config: NicConfig) {
        self.config = config;
        self.rx.config = config;
        self.tx.config = config;
    }

    /// The clock of the link.
    pub fn clock(&self) -> Clock {
        self.rx.clock.clone()
    }

    /// When the next frame reaches this NIC, in microseconds (rounded up; may lie in the past).
    pub fn next_delivery(&self) -> Option<i64> {
        let inbound = lock(&self.rx.inbound);
        let (&(at, _), _) = inbound.under_way.first_key_value()?;
        Some(micros_up(at))
    }

    /// Plugs the cable in (`true`) or pulls it out: frames sent while it is out are lost.
    pub fn set_link_up(&mut self, up: bool) {
        lock(&self.rx.inbound).up = up;
        lock(&self.tx.outbound).up = up;
    }

    /// It knows no more what it was lent, until it is asked for that.
    pub fn forget_memory(&mut self) {
        self.rx.placing.forgets = true;
    }

    /// From now on it gives memory back only when that is full.
    pub fn keep_memory(&mut self) {
        self.rx.placing.keeps = true;
    }

    /// Bytes of payload that it has put to their place.
    pub fn placed(&self) -> u64 {
        self.rx.placing.placed
    }

    /// Frames that the link lost on their way from this NIC.
    pub fn lost(&self) -> u64 {
        lock(&self.tx.outbound).lost
    }
}

/// A test that panics on one thread shall not hide its message behind the others' panics.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros_up(nanos: i64) -> i64 {
    (nanos + 999).div_euclid(1000)
}

impl Nic for SimNic {
    type Rx<'a> = &'a mut SimReceive;
    type Tx<'a> = &'a mut SimTransmit;

    fn properties(&self) -> Properties {
        let frame = usize::from(self.config.mtu) + 14;
        let reported = self.config.receive_frames_reported;
        let (sure, probe) = reported.unwrap_or((self.config.receive_frames, 0));
        Properties {
            mac: self.config.mac,
            mtu: self.config.mtu,
            max_receive: if self.config.coalesce || self.config.joins_datagrams {
                coalesce::MAX_UNIT
            } else {
                frame
            },
            receive_frames: sure,
            receive_frames_probe: probe,
            receive_bytes: sure * frame,
            transmit_checksum: self.config.transmit_checksum,
            transmit_unit: self.config.transmit_unit,
        }
    }

    fn link_up(&mut self) -> bool {
        lock(&self.rx.inbound).up
    }

    fn joins_datagrams(&self) -> bool {
        self.config.joins_datagrams
    }

    fn placer(&mut self) -> Option<&mut dyn Placer> {
        self.config.places.then_some(&mut self.rx.placing)
    }

    fn split(&mut self) -> (&mut SimReceive, &mut SimTransmit) {
        (&mut self.rx, &mut self.tx)
    }

    fn counters(&self) -> Counters {
        let (rx, tx) = (self.rx.counters, self.tx.counters);
        Counters {
            receive_units: rx.receive_units,
            receive_bytes: rx.receive_bytes,
            receive_dropped: rx.receive_dropped,
            receive_doorbells: rx.receive_doorbells,
            ..tx
        }
    }

    fn stop(&mut self) {
        self.rx.stopped = true;
        self.tx.stopped = true;
        self.tx.queued.clear();
        self.tx.units = 0;
    }
}

/// The receive half of a [`SimNic`].
pub struct SimReceive {
    config: NicConfig,
    clock: Clock,
    inbound: Arc<Mutex<Direction>>,
    placing: Placing,
    counters: Counters,
    stopped: bool,
}

impl SimReceive {
    /// What has arrived since the last burst and found a buffer.
    fn arrived(&mut self, budget: usize) -> Vec<Unit> {
        if self.stopped {
            return Vec::new();
        }
        let now = self.clock.now() * 1000;
        let mut inbound = lock(&self.inbound);
        // The buffers fill in the order of arrival; what comes after the last one is lost.
        let mut buffered = 0;
        let mut units = Vec::new();
        let mut kept = Vec::new();
        while let Some(entry) = inbound.under_way.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (key, bytes) = entry.remove_entry();
            let frame = usize::from(self.config.mtu) + 14;
            buffered += bytes.len().div_ceil(frame).max(1);
            let too_long = bytes.len() > frame && !self.config.joins_datagrams;
            if buffered > self.config.receive_frames || too_long {
                self.counters.receive_dropped += 1;
                continue;
            }
            let joined = self.config.coalesce
                && kept.is_empty()
                && units
                    .last_mut()
                    .is_some_and(|unit| coalesce::join(unit, &bytes));
            if joined {
                continue;
            }
            if units.len() < budget {
                units.push(coalesce::unit(bytes, self.config.coalesce));
            } else {
                kept.push((key, bytes));
            }
        }
        inbound.under_way.extend(kept);
        units
    }
}

impl Receive for SimReceive {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let units = self.arrived(budget);
        for unit in &units {
            self.counters.receive_units += 1;
            self.counters.receive_bytes += unit.bytes.len() as u64;
            if !self.placing.lend(unit, &mut sink) {
                unit.lend(self.config.part_len, &mut sink);
            }
        }
        Ok(units.len())
    }
}

/// The transmit half of a [`SimNic`].
pub struct SimTransmit {
    config: NicConfig,
    clock: Clock,
    outbound: Arc<Mutex<Direction>>,
    /// Sent, but not flushed yet: the link has not heard of them.
    queued: Vec<(Vec<u8>, Offload)>,
    /// How many of them are to be cut.
    units: usize,
    counters: Counters,
    stopped: bool,
}

impl Transmit for SimTransmit {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        if self.stopped {
            return Err(Fault::Removed.into());
        }
        let to_cut = matches!(offload, Offload::TcpSegmentation { .. });
        let longest = if to_cut {
            self.config.transmit_unit
        } else {
            usize::from(self.config.mtu) + 14
        };
        if len > longest {
            return Err(SendError::TooLong);
        }
        if self.room() == 0 || to_cut && self.units == UNITS {
            self.counters.transmit_full += 1;
            return Err(SendError::Full);
        }
        // Former content is unspecified: not zero, so that a caller that relies on zeros is found out.
        let mut frame = alloc::vec![0xa5; len];
        fill(&mut frame);
        self.queued.push((frame, offload));
        self.units += usize::from(to_cut);
        self.counters.transmit_frames += 1;
        self.counters.transmit_bytes += len as u64;
        Ok(())
    }

    fn room(&mut self) -> usize {
        self.config
            .transmit_frames
            .saturating_sub(self.queued.len())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.stopped {
            return Err(Fault::Removed);
        }
        if !self.queued.is_empty() {
            self.counters.transmit_doorbells += 1;
        }
        let now = self.clock.now() * 1000;
        self.units = 0;
        let mut outbound = lock(&self.outbound);
        for (mut frame, offload) in self.queued.drain(..) {
            match offload {
                Offload::None => outbound.carry(now, frame),
                Offload::L4Checksum { start, offset } => {
                    checksum::complete(&mut frame, start.into(), offset.into());
                    outbound.carry(now, frame);
                }
                Offload::TcpSegmentation {
                    start,
                    header_len,
                    mss,
                } => {
                    let longest = usize::from(self.config.mtu) + 14;
                    let segments = cut::cut(&frame, start.into(), header_len.into(), mss.into());
                    for segment in segments.unwrap_or_default() {
                        if segment.len() <= longest {
                            outbound.carry(now, segment);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn idle(&mut self) -> bool {
        self.queued.is_empty() && lock(&self.outbound).idle(self.clock.now() * 1000)
    }
}

#[cfg(test)]
mod tests;
