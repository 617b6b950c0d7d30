//! The registers: their places and bits by the names of the datasheets, the reset, and what the driver writes to start the
//! chip.

use super::InitError;
use super::ring::Ring;
use crate::MacAddress;
use crate::platform::{PciFunction, Registers};

pub(crate) const CTRL: usize = 0x0000;
pub(crate) const STATUS: usize = 0x0008;
const EECD: usize = 0x0010;
const IMC: usize = 0x00d8;
pub(crate) const RCTL: usize = 0x0100;
pub(crate) const TCTL: usize = 0x0400;
const TIPG: usize = 0x0410;
/// The registers of the receive ring; those of the transmit ring have the same places from [`TRANSMIT`] on.
pub(crate) const RECEIVE: usize = 0x2800;
pub(crate) const TRANSMIT: usize = 0x3800;
const RXCSUM: usize = 0x5000;
const RFCTL: usize = 0x5008;
const MTA: usize = 0x5200;
const MTA_COUNT: usize = 128;
pub(crate) const RAL0: usize = 0x5400;
pub(crate) const RAH0: usize = 0x5404;
const MRQC: usize = 0x5818;
/// The BAR is 128 KiB long; no register that the driver uses is beyond this.
const REGISTERS_LEN: usize = MRQC + 4;

// From RECEIVE or TRANSMIT on.
pub(crate) const BAL: usize = 0x00;
pub(crate) const BAH: usize = 0x04;
pub(crate) const LEN: usize = 0x08;
pub(crate) const HEAD: usize = 0x10;
pub(crate) const TAIL: usize = 0x18;
/// RDTR or TIDV: how long a write-back may be put off.
const DELAY: usize = 0x20;
/// RXDCTL or TXDCTL.
const DCTL: usize = 0x28;
/// RADV or TADV: how long at most.
const ABSOLUTE_DELAY: usize = 0x2c;

pub(crate) mod ctrl {
    pub const GIO_MASTER_DISABLE: u32 = 1 << 2;
    pub const SLU: u32 = 1 << 6;
    pub const FRCSPD: u32 = 1 << 11;
    pub const FRCDPLX: u32 = 1 << 12;
    pub const RST: u32 = 1 << 26;
    pub const VME: u32 = 1 << 30;
}

pub(crate) mod status {
    pub const LU: u32 = 1 << 1;
    pub const GIO_MASTER_ENABLE: u32 = 1 << 19;
}

const EECD_AUTO_RD: u32 = 1 << 9;

pub(crate) mod rctl {
    pub const EN: u32 = 1 << 1;
    pub const MPE: u32 = 1 << 4;
    pub const BAM: u32 = 1 << 15;
    pub const SECRC: u32 = 1 << 26;
}

pub(crate) mod tctl {
    pub const EN: u32 = 1 << 1;
    pub const PSP: u32 = 1 << 3;
    pub const CT: u32 = 0x0f << 4;
    pub const COLD: u32 = 0x3f << 12;
}

/// Inter-packet gaps for copper: IPGT 8, IPGR1 8, IPGR2 6.
const TIPG_COPPER: u32 = 8 | 8 << 10 | 6 << 20;
/// Thresholds count descriptors (GRAN), and each done one is written back at once (WTHRESH 1).
const TXDCTL_WRITE_BACK: u32 = 1 << 24 | 1 << 16;
/// A bit without a name that has to be set in the 82574.
const TXDCTL_82574: u32 = 1 << 22;

const RXCSUM_IPOFL: u32 = 1 << 8;
const RXCSUM_TUOFL: u32 = 1 << 9;

pub(crate) const RAH_AV: u32 = 1 << 31;

/// What a bus answers for a device that is not there.
const GONE: u32 = u32::MAX;

/// How long the bus may take to finish what the chip asked of it, in microseconds.
const MASTER_DISABLE_MICROS: u32 = 10_000;
/// How long the chip is left alone when a reset begins, in microseconds.
const RESET_SILENCE_MICROS: u32 = 1000;
/// How long a reset may take, in microseconds.
const RESET_MICROS: u32 = 100_000;
/// How long the chip may take to read its EEPROM after a reset, in microseconds.
const AUTO_READ_MICROS: u32 = 20_000;

/// The registers of one chip.
pub(super) struct Chip<B> {
    bar: B,
    /// It is a PCI Express chip, an 82574, else a PCI one.
    express: bool,
}

impl<B: Registers> Chip<B> {
    /// Maps the registers of the function.
    pub fn new<P: PciFunction<Bar = B>>(pci: &P, express: bool) -> Result<Self, InitError> {
        let bar = pci.map_bar(0)?;
        if bar.len() < REGISTERS_LEN {
            return Err(InitError::Misbehaved("its registers are too few"));
        }
        Ok(Chip { bar, express })
    }

    pub fn read(&self, register: usize) -> u32 {
        self.bar.read32(register)
    }

    pub fn write(&self, register: usize, value: u32) {
        self.bar.write32(register, value);
    }

    pub fn is_gone(&self) -> bool {
        self.read(STATUS) == GONE
    }

    pub fn link_up(&self) -> bool {
        self.read(STATUS) & status::LU != 0
    }

    /// Stops both rings and resets the chip. True when it has stopped, or is gone; false when it may still access
    /// memory.
    pub fn reset(&self, stall_microsecond: impl Fn()) -> bool {
        self.write(IMC, u32::MAX);
        self.write(RCTL, 0);
        self.write(TCTL, 0);
        if self.express {
            // A reset in the midst of a read can hang the bus. A chip that does not get rid of its requests needs the reset
            // all the same.
            self.write(CTRL, self.read(CTRL) | ctrl::GIO_MASTER_DISABLE);
            wait(MASTER_DISABLE_MICROS, &stall_microsecond, || {
                let status = self.read(STATUS);
                status == GONE || status & status::GIO_MASTER_ENABLE == 0
            });
        }
        self.write(CTRL, self.read(CTRL) | ctrl::RST);
        for _ in 0..RESET_SILENCE_MICROS {
            stall_microsecond();
        }
        let done = wait(RESET_MICROS, &stall_microsecond, || {
            let ctrl = self.read(CTRL);
            ctrl == GONE || ctrl & ctrl::RST == 0
        });
        self.write(IMC, u32::MAX);
        done
    }

    /// Waits until the chip has its address from its EEPROM, after a reset. Only the 82574 tells; that it
    /// never does shows in the address.
    pub fn wait_for_eeprom(&self, stall_microsecond: impl Fn()) {
        wait(AUTO_READ_MICROS, &stall_microsecond, || {
            self.express && self.read(EECD) & EECD_AUTO_RD != 0
        });
    }

    /// The station address, unless there is none that is valid.
    pub fn mac(&self) -> Option<MacAddress> {
        let high = self.read(RAH0);
        let [a, b, c, d] = self.read(RAL0).to_le_bytes();
        let [e, f, _, _] = high.to_le_bytes();
        let mac = [a, b, c, d, e, f];
        let group = a & 1 != 0;
        (high & RAH_AV != 0 && !group && mac != [0; 6]).then_some(mac)
    }

    /// Starts both rings and the link. Some emulated chips keep their registers in a reset, so all that matter are
    /// written.
    pub fn start(&self, receive: &Ring, transmit: &Ring) {
        let keep = !(ctrl::GIO_MASTER_DISABLE | ctrl::FRCSPD | ctrl::FRCDPLX | ctrl::VME);
        self.write(CTRL, self.read(CTRL) & keep | ctrl::SLU);

        for n in 0..MTA_COUNT {
            self.write(MTA + 4 * n, 0);
        }
        self.write(RXCSUM, RXCSUM_IPOFL | RXCSUM_TUOFL);
        let mut txdctl = TXDCTL_WRITE_BACK;
        if self.express {
            // Legacy descriptors and one queue.
            self.write(RFCTL, 0);
            self.write(MRQC, 0);
            txdctl |= TXDCTL_82574;
        }
        self.set_ring(RECEIVE, receive);
        self.set_ring(TRANSMIT, transmit);
        self.write(TRANSMIT + DCTL, txdctl);
        self.write(TIPG, TIPG_COPPER);

        self.write(
            TCTL,
            self.read(TCTL) | tctl::EN | tctl::PSP | tctl::CT | tctl::COLD,
        );
        // Buffers of 2048 bytes and no frames longer than 1522 are what zeros say. All multicast, since there is nobody
        // to ask which.
        self.write(RCTL, rctl::EN | rctl::MPE | rctl::BAM | rctl::SECRC);
    }

    /// Tells where a ring is, empty.
    fn set_ring(&self, registers: usize, ring: &Ring) {
        let address = ring.address();
        self.write(registers + BAL, address as u32);
        self.write(registers + BAH, (address >> 32) as u32);
        self.write(registers + LEN, ring.len() as u32);
        self.write(registers + HEAD, 0);
        self.write(registers + TAIL, 0);
        self.write(registers + DELAY, 0);
        self.write(registers + ABSOLUTE_DELAY, 0);
    }
}

/// True when `done` within `micros`.
fn wait(micros: u32, stall_microsecond: impl Fn(), done: impl Fn() -> bool) -> bool {
    for _ in 0..micros {
        if done() {
            return true;
        }
        stall_microsecond();
    }
    done()
}
