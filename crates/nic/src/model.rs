//! A virtio-net device made of software, behind the platform traits: configuration space, registers and DMA
//! memory in host memory. It obeys the specification until a test or a fuzzer makes it lie. [`e1000e`] is another
//! device of that kind.
//!
//! The device works only when [`Model::deliver`], [`Model::collect`] or one of the lies is called, never inside
//! a register access, so it never writes to memory that the driver has on loan; and on its control queue when the driver waits for it. Queue
//! pairs may be on threads of their own, each with the calls here that concern it.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;
use std::vec::Vec;

use crate::MacAddress;
use crate::virtio::feature;

mod control;
pub mod e1000e;
mod fuzz;
mod lies;
mod memory;
mod registers;
pub use control::Commands;
use control::Receivers;
pub use e1000e::fuzz_e1000e;
pub use fuzz::fuzz_virtio;
use memory::Memory;
pub use memory::{ModelLent, ModelMemory};
pub use registers::{ModelBar, ModelPci};

const HEADER_LEN: usize = 12;

/// Longer buffers than this are none of this driver's.
const BUFFER_MAX: usize = 1 << 17;

/// What the device is and offers.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Feature bits (virtio 1.2, sections 5.1.3 and 6).
    pub features: u64,
    /// Of these, what it offers and does not let a driver have.
    pub refused: u64,
    /// Sizes of the receive and the transmit queue of each pair.
    pub queue_sizes: [u16; 2],
    /// Queue pairs that there are.
    pub pairs: u16,
    /// Queue pairs that its configuration space says it has, where that is not the truth.
    pub pairs_reported: Option<u16>,
    /// Size of the control queue.
    pub control_size: u16,
    /// Limits of receive-side scaling: bytes of the key, entries of the table, and the types of hash.
    pub rss: (u8, u16, u32),
    /// Ethernet address in the configuration space.
    pub mac: MacAddress,
    /// MTU, told when the feature is offered.
    pub mtu: u16,
    /// Bytes of configuration space that lie, by offset.
    pub config_lies: Vec<(u8, u8)>,
}

impl Default for ModelConfig {
    /// All that the driver can use with one queue pair, with queues of 256.
    fn default() -> Self {
        Self {
            features: feature::KNOWN,
            refused: 0,
            queue_sizes: [256; 2],
            pairs: 1,
            pairs_reported: None,
            control_size: 64,
            rss: (40, 128, 0x1ff),
            mac: [2, 0, 0, 0, 0, 0x0d],
            mtu: 1500,
            config_lies: Vec::new(),
        }
    }
}

impl ModelConfig {
    /// All that the driver can use, with so many queue pairs.
    pub fn with_pairs(pairs: u16) -> Self {
        let config = Self::default();
        Self {
            features: config.features | feature::MQ | feature::CTRL_VQ | feature::RSS,
            pairs,
            ..config
        }
    }
}

/// The fields of `struct virtio_net_hdr_v1` that a delivered unit carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitHeader {
    /// NEEDS_CSUM 1, DATA_VALID 2.
    pub flags: u8,
    /// 0 none, 1 TCPv4, 4 TCPv6, 5 UDP_L4; 0x80 on top with ECN.
    pub gso_type: u8,
    /// Payload bytes of each segment.
    pub gso_size: u16,
}

/// A frame that the driver sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Flags of its header.
    pub flags: u8,
    /// Offset of the transport header, when NEEDS_CSUM.
    pub csum_start: u16,
    /// Offset of the checksum in it, when NEEDS_CSUM.
    pub csum_offset: u16,
    /// 0 none, 1 TCPv4, 4 TCPv6.
    pub gso_type: u8,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Bytes of all headers, when it is to be cut.
    pub hdr_len: u16,
    /// The frame behind the virtio-net header, from its Ethernet header on.
    pub frame: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct QueueState {
    size: u16,
    enabled: bool,
    addresses: [u64; 3],
    /// Free-running index of the next available buffer.
    seen: u16,
    /// Free-running used index.
    used: u16,
    /// The interrupt is off.
    quiet: bool,
}

/// The device behind all handles of a [`Model`]: registers, queues, and what it does wrong.
struct VirtioModelState {
    config: ModelConfig,
    removed: bool,
    obeys_reset: bool,
    /// The device has lied, so what the driver does to it need not make sense.
    lied: bool,
    /// The driver has set DRIVER_OK, and no reset was obeyed since.
    running: bool,
    /// It was running until the reset, and nothing was begun since: engines on other APs (application processors) may not know yet.
    ended: bool,
    status: u8,
    device_feature_select: u32,
    driver_feature_select: u32,
    driver_features: u64,
    queue_select: u16,
    /// Those of all pairs and the control queue.
    queues: Vec<QueueState>,
    commands: Commands,
    receivers: Receivers,
    link_up: bool,
    /// The interrupt for changes of the configuration is off.
    quiet: bool,
    /// How often the driver waits until the first pair's frames are sent; `None` while that takes a [`Model::collect`].
    patience: Option<u32>,
    /// What was sent so.
    sent: Vec<Sent>,
    /// How often the driver has rung each queue's doorbell.
    doorbells: Vec<usize>,
    resets: usize,
    memory: Memory,
}

/// A handle to the device: the test's end, while the driver holds a [`ModelPci`].
#[derive(Clone)]
pub struct Model(Arc<Mutex<VirtioModelState>>);

impl Model {
    /// A device that is off.
    pub fn new(config: ModelConfig) -> Self {
        let queues = 2 * usize::from(config.pairs) + 1;
        Self(Arc::new(Mutex::new(VirtioModelState {
            lied: !config.config_lies.is_empty(),
            running: false,
            ended: false,
            config,
            removed: false,
            obeys_reset: true,
            status: 0,
            device_feature_select: 0,
            driver_feature_select: 0,
            driver_features: 0,
            queue_select: 0,
            queues: vec![QueueState::default(); queues],
            commands: Commands::Obey,
            receivers: Receivers::default(),
            link_up: true,
            quiet: false,
            patience: None,
            sent: Vec::new(),
            doorbells: vec![0; queues],
            resets: 0,
            memory: Memory::new(),
        })))
    }

    /// What a test has broken off in the middle of is still worth looking at.
    fn state(&self) -> MutexGuard<'_, VirtioModelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The PCI function for a driver.
    pub fn pci(&self) -> ModelPci {
        ModelPci::new(self.clone())
    }

    /// Memory for a test to lend to the device by way of a driver. `gone` counts what was given back.
    pub fn lend(&self, len: usize, gone: &Arc<Mutex<usize>>) -> ModelLent {
        let memory = self.state().memory.allocate(len);
        let memory = memory.unwrap_or_else(|error| panic!("{error}"));
        ModelLent::new(memory, len, gone.clone())
    }

    /// Puts a unit into receive buffers, over as many as it needs; false when there are too few.
    pub fn deliver(&self, header: UnitHeader, unit: &[u8]) -> bool {
        self.deliver_to(0, header, unit)
    }

    /// The same with the receive buffers of any pair.
    pub fn deliver_to(&self, pair: usize, header: UnitHeader, unit: &[u8]) -> bool {
        let rx = 2 * pair;
        let mut state = self.state();
        let available = usize::from(state.available(rx));
        let mut bytes = vec![0; HEADER_LEN];
        bytes[0] = header.flags;
        bytes[1] = header.gso_type;
        bytes[4..6].copy_from_slice(&header.gso_size.to_le_bytes());
        bytes.extend_from_slice(unit);

        // What goes where is decided before anything is written.
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            if pieces.len() == available {
                return false;
            }
            let (id, address, len) = state.buffer(rx, pieces.len() as u16);
            let len = (len as usize).min(bytes.len() - at);
            if len == 0 {
                return false;
            }
            pieces.push((id, address, at, len));
            at += len;
        }
        let mergeable = state.driver_features & feature::MRG_RXBUF != 0;
        if pieces.len() > 1 && !mergeable {
            return false;
        }
        bytes[10..12].copy_from_slice(&(pieces.len() as u16).to_le_bytes());
        for &(id, address, at, len) in &pieces {
            state.write(address, &bytes[at..at + len]);
            state.put_used(rx, id.into(), len as u32);
        }
        state.consume(rx, pieces.len() as u16);
        state.publish_used(rx);
        true
    }

    /// Takes all frames that the driver has published.
    pub fn collect(&self) -> Vec<Sent> {
        self.collect_from(0)
    }

    /// The same from any pair that the device was told to use.
    pub fn collect_from(&self, pair: usize) -> Vec<Sent> {
        let mut state = self.state();
        let mut sent = match pair {
            0 => mem::take(&mut state.sent),
            _ => Vec::new(),
        };
        sent.extend(state.send(pair));
        sent
    }

    /// Has the device send the first pair's frames when the driver has waited so many times, for all to see in [`Self::collect`].
    pub fn send_after_waits(&self, waits: u32) {
        self.state().patience = Some(waits);
    }

    /// Asks for (`true`) or forgoes doorbells of a queue (even ones receive, odd ones transmit).
    pub fn want_doorbells(&self, queue: usize, wanted: bool) {
        let state = self.state();
        let used = state.queues[queue].addresses[2];
        state.write(used, &u16::from(!wanted).to_le_bytes());
    }

    /// Doorbells of the first pair rung so far, receive and transmit.
    pub fn doorbells(&self) -> [usize; 2] {
        let state = self.state();
        [state.doorbells[0], state.doorbells[1]]
    }

    /// Doorbells of a queue rung so far.
    pub fn doorbells_of(&self, queue: usize) -> usize {
        self.state().doorbells[queue]
    }

    /// Receive buffers that the device holds.
    pub fn receive_buffers(&self) -> u16 {
        self.receive_buffers_of(0)
    }

    /// Receive buffers of a pair that the device holds.
    pub fn receive_buffers_of(&self, pair: usize) -> u16 {
        self.state().available(2 * pair)
    }

    /// Where a queue lies that the driver has enabled, for a device made elsewhere: its size, and the addresses of descriptors, available ring
    /// and used ring.
    pub fn queue(&self, queue: usize) -> Option<(u16, [u64; 3])> {
        let state = self.state();
        let queue = state.queues.get(queue).filter(|queue| queue.enabled)?;
        Some((queue.size, queue.addresses))
    }

    /// Bytes of the driver's memory; `None` when they do not lie in one block.
    pub fn read_memory(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        self.state().memory.read(address, len)
    }

    /// Writes to the driver's memory; `None` when the bytes would not lie in one block.
    pub fn write_memory(&self, address: u64, bytes: &[u8]) -> Option<()> {
        self.state().memory.write(address, bytes)
    }

    /// The features that the driver accepted.
    pub fn accepted(&self) -> u64 {
        self.state().driver_features
    }

    /// How often the driver reset the device.
    pub fn resets(&self) -> usize {
        self.state().resets
    }

    /// True while the device may access memory.
    pub fn is_running(&self) -> bool {
        self.state().is_running()
    }

    /// True when the driver gave memory back that the running device could still reach.
    pub fn freed_while_running(&self) -> bool {
        self.state().memory.freed_while_reachable()
    }

    /// Blocks of memory that the driver holds.
    pub fn blocks(&self) -> usize {
        self.state().memory.count()
    }

    /// Plugs the cable in or out.
    pub fn set_link_up(&self, up: bool) {
        self.state().link_up = up;
    }

    /// Pulls the device out: registers read as all ones.
    pub fn remove(&self) {
        let mut state = self.state();
        state.removed = true;
        state.memory.set_reachable(false);
    }

    /// Changes the device status behind the driver's back.
    pub fn set_status(&self, status: u8) {
        let mut state = self.state();
        state.lied = true;
        state.status = status;
    }

    /// Sets whether a reset works.
    pub fn set_obeys_reset(&self, obeys: bool) {
        self.state().obeys_reset = obeys;
    }
}

impl VirtioModelState {
    /// Complains about the driver, unless the device has misbehaved first.
    fn demand(&self, held: bool, what: &str) {
        assert!(held || self.lied, "the driver {what}");
    }

    fn is_running(&self) -> bool {
        self.running && !self.removed
    }

    fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let bytes = self.memory.read(address, len);
        self.demand(bytes.is_some(), "told an address outside its memory");
        bytes.unwrap_or_else(|| vec![0; len])
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        let written = self.memory.write(address, bytes);
        self.demand(written.is_some(), "told an address outside its memory");
    }

    fn read16(&self, address: u64) -> u16 {
        let bytes = self.read(address, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// Buffers that the driver has made available and the device has not used.
    fn available(&self, queue: usize) -> u16 {
        let q = &self.queues[queue];
        if !q.enabled {
            return 0;
        }
        let count = self
            .read16(q.addresses[1].wrapping_add(2))
            .wrapping_sub(q.seen);
        self.demand(count <= q.size, "offered too many buffers");
        count.min(q.size)
    }

    /// Number, address and length of the `n`th available buffer.
    fn buffer(&self, queue: usize, n: u16) -> (u16, u64, u32) {
        let q = &self.queues[queue];
        let slot = u64::from(q.seen.wrapping_add(n) % q.size);
        let id = self.read16(q.addresses[1] + 4 + 2 * slot);
        self.demand(id < q.size, "offered an impossible buffer");
        let bytes = self.read(q.addresses[0] + 16 * u64::from(id), 16);
        let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let len = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        let flags = u16::from_le_bytes([bytes[12], bytes[13]]);
        self.demand(
            flags == if queue.is_multiple_of(2) { 2 } else { 0 },
            "set odd flags",
        );
        self.demand(len as usize >= HEADER_LEN, "left no room for a header");
        (id, address, len)
    }

    /// Takes all frames that the driver has published, if the device is to use the pair.
    fn send(&mut self, pair: usize) -> Vec<Sent> {
        let tx = 2 * pair + 1;
        if pair >= self.receivers.pairs() {
            return Vec::new();
        }
        let count = self.available(tx);
        let mut sent = Vec::new();
        for n in 0..count {
            let (id, address, len) = self.buffer(tx, n);
            let bytes = self.read(address, (len as usize).clamp(HEADER_LEN, BUFFER_MAX));
            self.receivers.saw(pair, &bytes[HEADER_LEN..]);
            let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let wanted = match bytes[1] {
                1 => feature::HOST_TSO4,
                4 => feature::HOST_TSO6,
                _ => 0,
            };
            let cuts = self.driver_features & wanted != 0 && bytes[0] & 1 != 0;
            self.demand(bytes[1] == 0 || cuts, "asks for what was not agreed on");
            sent.push(Sent {
                flags: bytes[0],
                gso_type: bytes[1],
                hdr_len: field(2),
                gso_size: field(4),
                csum_start: field(6),
                csum_offset: field(8),
                frame: bytes[HEADER_LEN..].to_vec(),
            });
            self.put_used(tx, id.into(), 0);
        }
        self.consume(tx, count);
        self.publish_used(tx);
        sent
    }

    fn put_used(&mut self, queue: usize, id: u32, len: u32) {
        let q = &mut self.queues[queue];
        let at = q.addresses[2] + 4 + 8 * u64::from(q.used % q.size);
        q.used = q.used.wrapping_add(1);
        self.write(at, &id.to_le_bytes());
        self.write(at + 4, &len.to_le_bytes());
    }

    /// Marks available buffers as seen.
    fn consume(&mut self, queue: usize, count: u16) {
        let q = &mut self.queues[queue];
        if !q.enabled {
            return;
        }
        q.seen = q.seen.wrapping_add(count);
    }

    fn publish_used(&mut self, queue: usize) {
        let q = self.queues[queue];
        if !q.enabled {
            return;
        }
        self.write(q.addresses[2] + 2, &q.used.to_le_bytes());
        let avail = q.addresses[1];
        self.demand(self.read16(avail) == 1, "asks for interrupts");
    }

    fn reset(&mut self) {
        self.resets += 1;
        if self.obeys_reset {
            self.status = 0;
            self.ended = std::mem::take(&mut self.running);
            self.memory.set_reachable(false);
            self.driver_features = 0;
            self.queues.fill(QueueState::default());
            // Real ones turn interrupts off; this one goes on with what somebody has left.
            self.quiet = false;
            self.receivers = Receivers::default();
        }
    }
}

#[cfg(test)]
mod tests;
