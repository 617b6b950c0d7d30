//! An Intel 82574 or 82540EM made of software, as far as the driver goes: registers, legacy descriptors, reset. It obeys
//! the datasheet until a test or a fuzzer makes it lie.
//!
//! The chip works only when [`Model::deliver`], [`Model::collect`] or one of the lies is called, never inside a register
//! access, so it never writes to memory that the driver has on loan.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use super::memory::{Memory, ModelMemory};
use crate::MacAddress;
use crate::e1000e::receive::{EOP, IPE, TCPCS, TCPE};
use crate::e1000e::registers::{
    BAH, BAL, CTRL, HEAD, LEN, RAH_AV, RAH0, RAL0, RCTL, RECEIVE, STATUS, TAIL, TCTL, TRANSMIT,
    ctrl, rctl, status, tctl,
};
use crate::e1000e::ring::{BUFFER_LEN, DD};
use crate::e1000e::transmit;
use crate::platform::{PciFunction, PlatformError, Registers};

mod fuzz;
pub use fuzz::fuzz_e1000e;

/// Shorter than the chip's 128 KiB, where no more registers are that a driver needs.
const BAR_LEN: usize = 0x6000;
const EECD: usize = 0x0010;
const IMS: usize = 0x00d0;

const DESCRIPTOR_LEN: u64 = 16;

/// What the chip is.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// PCI device id.
    pub device: u16,
    /// Station address in the EEPROM.
    pub mac: MacAddress,
    /// The EEPROM is valid.
    pub has_mac: bool,
}

impl Default for ModelConfig {
    /// An 82574L.
    fn default() -> Self {
        Self {
            device: 0x10d3,
            mac: [2, 0, 0, 0, 0, 0x0e],
            has_mac: true,
        }
    }
}

/// What the chip says about a received frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The chip does nothing wrong.
    #[default]
    NotLooked,
    /// The chip has checked the checksum, and it is right (TCPCS).
    Right,
    /// The chip has checked the checksum, and it is wrong (TCPCS, TCPE).
    Wrong,
    /// Right, but the IP header's is not.
    WrongHeader,
}

/// The chip behind all handles of a [`Model`]: registers, and what it does wrong.
struct E1000eModelState {
    config: ModelConfig,
    removed: bool,
    obeys_reset: bool,
    /// The chip has lied, so what the driver does to it need not make sense.
    lied: bool,
    link_up: bool,
    /// How often the driver waits until frames are sent; `None` while that takes a [`Model::collect`].
    patience: Option<u32>,
    /// What was sent so.
    sent: Vec<Vec<u8>>,
    registers: Vec<u32>,
    /// Writes of the receive and the transmit tail.
    doorbells: [usize; 2],
    resets: usize,
    memory: Memory,
}

/// A handle to the chip: the test's end, while the driver holds a [`ModelPci`].
#[derive(Clone)]
pub struct Model(Rc<RefCell<E1000eModelState>>);

impl Model {
    /// A chip as it is when the power comes.
    pub fn new(config: ModelConfig) -> Self {
        let mut state = E1000eModelState {
            config,
            removed: false,
            obeys_reset: true,
            lied: false,
            link_up: true,
            patience: None,
            sent: Vec::new(),
            registers: Vec::new(),
            doorbells: [0; 2],
            resets: 0,
            memory: Memory::new(),
        };
        state.clear();
        Self(Rc::new(RefCell::new(state)))
    }

    /// The PCI function for a driver.
    pub fn pci(&self) -> ModelPci {
        ModelPci(self.clone())
    }

    /// Puts a frame into receive buffers, over as many as it needs; false when there are too few.
    pub fn deliver(&self, frame: &[u8], verdict: Verdict) -> bool {
        let mut state = self.0.borrow_mut();
        let pieces: Vec<_> = frame.chunks(BUFFER_LEN).collect();
        if state.register(RCTL) & rctl::EN == 0 || pieces.len() > state.available(RECEIVE) {
            return false;
        }
        for (n, piece) in pieces.iter().enumerate() {
            let (at, address, word) = state.head(RECEIVE);
            state.demand(
                word == 0,
                "handed over a descriptor that it has not cleared",
            );
            state.write(address, piece);
            let mut word = DD | piece.len() as u64;
            if n + 1 == pieces.len() {
                word |= EOP;
                word |= match verdict {
                    Verdict::NotLooked => 0,
                    Verdict::Right => TCPCS,
                    Verdict::Wrong => TCPCS | TCPE,
                    Verdict::WrongHeader => TCPCS | IPE,
                };
            }
            state.write(at + 8, &word.to_le_bytes());
            state.advance(RECEIVE);
        }
        true
    }

    /// Sends all frames up to the tail, and returns all that were sent since the last time.
    pub fn collect(&self) -> Vec<Vec<u8>> {
        let mut state = self.0.borrow_mut();
        state.send();
        mem::take(&mut state.sent)
    }

    /// Has the chip send frames by itself when the driver has waited so many times.
    pub fn send_after_waits(&self, waits: u32) {
        self.0.borrow_mut().patience = Some(waits);
    }

    /// Writes of the tails so far, receive and transmit.
    pub fn doorbells(&self) -> [usize; 2] {
        self.0.borrow().doorbells
    }

    /// Receive buffers that the chip has.
    pub fn receive_buffers(&self) -> usize {
        self.0.borrow().available(RECEIVE)
    }

    /// How often the driver reset the chip.
    pub fn resets(&self) -> usize {
        self.0.borrow().resets
    }

    /// True while the chip may access memory.
    pub fn is_running(&self) -> bool {
        self.0.borrow().is_running()
    }

    /// True when the driver gave memory back that the running chip could still reach.
    pub fn freed_while_running(&self) -> bool {
        self.0.borrow().memory.freed_while_reachable()
    }

    /// Blocks of memory that the driver holds.
    pub fn blocks(&self) -> usize {
        self.0.borrow().memory.count()
    }

    /// Plugs the cable in or out.
    pub fn set_link_up(&self, up: bool) {
        self.0.borrow_mut().link_up = up;
    }

    /// Pulls the chip out: registers read as all ones.
    pub fn remove(&self) {
        let mut state = self.0.borrow_mut();
        state.removed = true;
        state.memory.set_reachable(false);
    }

    /// Sets whether the rings can be stopped and a reset ends.
    pub fn set_obeys_reset(&self, obeys: bool) {
        self.0.borrow_mut().obeys_reset = obeys;
    }

    /// Lies: changes a register behind the driver's back.
    pub fn lie_register(&self, register: usize, value: u32) {
        let mut state = self.0.borrow_mut();
        state.lied = true;
        state.set(register, value);
    }

    /// Lies: writes any second half (length, status, errors) of the descriptor `n` behind the head of the ring at
    /// `RECEIVE` or `TRANSMIT`, whoever has it, and moves the head behind it.
    pub fn lie_descriptor(&self, ring: usize, n: u16, word: u64) {
        let mut state = self.0.borrow_mut();
        state.lied = true;
        for _ in 0..n {
            state.advance(ring);
        }
        if state.is_running() {
            let (at, _, _) = state.head(ring);
            state.write(at + 8, &word.to_le_bytes());
            state.advance(ring);
        }
    }
}

impl E1000eModelState {
    /// Complains about the driver, unless the chip has misbehaved first.
    fn demand(&self, held: bool, what: &str) {
        assert!(held || self.lied, "the driver {what}");
    }

    fn is_running(&self) -> bool {
        let enabled = self.register(RCTL) & rctl::EN | self.register(TCTL) & tctl::EN;
        enabled != 0 && !self.removed
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

    fn register(&self, register: usize) -> u32 {
        self.registers[register / 4]
    }

    fn set(&mut self, register: usize, value: u32) {
        self.registers[register / 4] = value;
    }

    /// Sends all frames up to the tail.
    fn send(&mut self) {
        if self.register(TCTL) & tctl::EN == 0 {
            return;
        }
        for _ in 0..self.available(TRANSMIT) {
            let (at, address, word) = self.head(TRANSMIT);
            let command = transmit::EOP | transmit::IFCS | transmit::RS;
            self.demand(
                word & !0xffff == command,
                "sends something else than a frame",
            );
            let len = usize::from(word as u16);
            self.demand((60..=1518).contains(&len), "sends a frame of an odd length");
            let frame = self.read(address, len);
            self.sent.push(frame);
            self.write(at + 8, &(word | DD).to_le_bytes());
            self.advance(TRANSMIT);
        }
    }

    /// Descriptors of a ring.
    fn size(&self, ring: usize) -> u32 {
        self.register(ring + LEN) / DESCRIPTOR_LEN as u32
    }

    /// Descriptors that the chip has of a ring.
    fn available(&self, ring: usize) -> usize {
        let size = self.size(ring);
        if size == 0 {
            return 0;
        }
        let tail = self.register(ring + TAIL) % size;
        let head = self.register(ring + HEAD) % size;
        ((tail + size - head) % size) as usize
    }

    /// Where the descriptor at the head is, and its two halves.
    fn head(&self, ring: usize) -> (u64, u64, u64) {
        let base =
            u64::from(self.register(ring + BAH)) << 32 | u64::from(self.register(ring + BAL));
        let at = base + DESCRIPTOR_LEN * u64::from(self.register(ring + HEAD));
        let bytes = self.read(at, 16);
        let half = |n: usize| u64::from_le_bytes(bytes[n..n + 8].try_into().unwrap());
        (at, half(0), half(8))
    }

    fn advance(&mut self, ring: usize) {
        let next = (self.register(ring + HEAD) + 1).checked_rem(self.size(ring));
        self.set(ring + HEAD, next.unwrap_or(0));
    }

    /// What a reset does to the registers.
    fn clear(&mut self) {
        self.registers = vec![0; BAR_LEN / 4];
        if self.config.has_mac {
            let [a, b, c, d, e, f] = self.config.mac;
            self.set(RAL0, u32::from_le_bytes([a, b, c, d]));
            self.set(RAH0, u32::from_le_bytes([e, f, 0, 0]) | RAH_AV);
            self.set(EECD, 1 << 9);
        }
        self.memory.set_reachable(false);
    }

    fn read_register(&self, register: usize) -> u32 {
        if self.removed {
            return u32::MAX;
        }
        match register {
            STATUS => {
                let master = self.register(CTRL) & ctrl::GIO_MASTER_DISABLE == 0;
                let link = self.link_up && self.register(CTRL) & ctrl::SLU != 0;
                let bit = |set, bit| if set { bit } else { 0 };
                bit(master, status::GIO_MASTER_ENABLE) | bit(link, status::LU)
            }
            _ => self.register(register),
        }
    }

    fn write_register(&mut self, register: usize, value: u32) {
        if self.removed {
            return;
        }
        match register {
            CTRL if value & ctrl::RST != 0 => {
                self.demand(!self.is_running(), "resets a chip with running rings");
                self.resets += 1;
                if self.obeys_reset {
                    self.clear();
                    return;
                }
            }
            RCTL | TCTL if value & rctl::EN == 0 && !self.obeys_reset => return,
            RCTL => {
                let understood = rctl::EN | rctl::MPE | rctl::BAM | rctl::SECRC;
                self.demand(value & !understood == 0, "wants odd frames");
                self.demand(value == 0 || self.size(RECEIVE) >= 8, "has no receive ring");
            }
            TCTL => self.demand(
                value == 0 || self.size(TRANSMIT) >= 8,
                "has no transmit ring",
            ),
            IMS => self.demand(value == 0, "asks for interrupts"),
            _ => {}
        }
        for (n, ring) in [RECEIVE, TRANSMIT].into_iter().enumerate() {
            if register == ring + LEN {
                self.demand(value.is_multiple_of(128), "has a ring of an odd length");
            } else if register == ring + BAL {
                self.demand(value.is_multiple_of(16), "has a ring at an odd address");
            } else if register == ring + TAIL && self.is_running() {
                self.demand(value < self.size(ring), "has a tail beyond its ring");
                self.doorbells[n] += 1;
            }
        }
        self.set(register, value);
        self.memory.set_reachable(self.is_running());
    }
}

/// The PCI function of a [`Model`].
pub struct ModelPci(Model);

impl PciFunction for ModelPci {
    type Dma = ModelMemory;
    type Bar = ModelBar;

    fn config32(&self, offset: u8) -> u32 {
        let state = self.0.0.borrow();
        match offset {
            _ if state.removed => u32::MAX,
            0 => u32::from(state.config.device) << 16 | 0x8086,
            _ => 0,
        }
    }

    fn map_bar(&self, index: u8) -> Result<ModelBar, PlatformError> {
        if index != 0 {
            return Err(PlatformError::NoBar(index));
        }
        Ok(ModelBar(self.0.clone()))
    }

    fn allocate(&self, len: usize) -> Result<ModelMemory, PlatformError> {
        self.0.0.borrow().memory.allocate(len)
    }

    fn stall_microsecond(&self) {
        let mut state = self.0.0.borrow_mut();
        match state.patience {
            Some(0) => state.send(),
            Some(left) => state.patience = Some(left - 1),
            None => {}
        }
    }
}

/// The registers of a [`Model`].
pub struct ModelBar(Model);

impl Registers for ModelBar {
    fn len(&self) -> usize {
        BAR_LEN
    }
    fn read8(&self, _: usize) -> u8 {
        panic!("registers are 32 bits wide")
    }
    fn read16(&self, _: usize) -> u16 {
        panic!("registers are 32 bits wide")
    }
    fn read32(&self, offset: usize) -> u32 {
        assert_eq!(offset % 4, 0, "an unaligned read");
        self.0.0.borrow().read_register(offset)
    }
    fn write8(&self, _: usize, _: u8) {
        panic!("registers are 32 bits wide")
    }
    fn write16(&self, _: usize, _: u16) {
        panic!("registers are 32 bits wide")
    }
    fn write32(&self, offset: usize, value: u32) {
        assert_eq!(offset % 4, 0, "an unaligned write");
        self.0.0.borrow_mut().write_register(offset, value);
    }
}

#[cfg(test)]
mod tests;
