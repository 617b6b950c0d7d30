//! The registers: their places and bits by the names of the datasheets, the reset, and what the driver writes to start the
//! chip.

use super::InitError;
use super::ring::Ring;
use crate::MacAddress;
use crate::platform::{PciFunction, Registers};

pub(crate) const CTRL: usize = 0x0000;
pub(crate) const STATUS: usize = 0x0008;
const EECD: usize = 0x0010;
const CTRL_EXT: usize = 0x0018;
const IMC: usize = 0x00d8;
pub(crate) const RCTL: usize = 0x0100;
pub(crate) const TCTL: usize = 0x0400;
const TIPG: usize = 0x0410;
/// The registers of the receive ring; those of the transmit ring have the same places from [`TRANSMIT`] on.
pub(crate) const RECEIVE: usize = 0x2800;
pub(crate) const TRANSMIT: usize = 0x3800;
const TARC0: usize = 0x3840;
const RXCSUM: usize = 0x5000;
const RFCTL: usize = 0x5008;
const MTA: usize = 0x5200;
const MTA_COUNT: usize = 128;
pub(crate) const RAL0: usize = 0x5400;
pub(crate) const RAH0: usize = 0x5404;
const MRQC: usize = 0x5818;
const GCR: usize = 0x5b00;
const GCR2: usize = 0x5b64;
/// The BAR is 128 KiB long; no register that the driver uses is beyond this.
const REGISTERS_LEN: usize = GCR2 + 4;

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
    pub(crate) const GIO_MASTER_DISABLE: u32 = 1 << 2;
    pub(crate) const SLU: u32 = 1 << 6;
    pub(crate) const FRCSPD: u32 = 1 << 11;
    pub(crate) const FRCDPLX: u32 = 1 << 12;
    pub(crate) const RST: u32 = 1 << 26;
    /// Without a name, and to be clear in the 82574.
    pub(crate) const RESERVED: u32 = 1 << 29;
    pub(crate) const VME: u32 = 1 << 30;
}

pub(crate) mod status {
    pub(crate) const LU: u32 = 1 << 1;
    pub(crate) const GIO_MASTER_ENABLE: u32 = 1 << 19;
}

const EECD_AUTO_RD: u32 = 1 << 9;

pub(crate) mod rctl {
    pub(crate) const EN: u32 = 1 << 1;
    pub(crate) const MPE: u32 = 1 << 4;
    pub(crate) const BAM: u32 = 1 << 15;
    pub(crate) const SECRC: u32 = 1 << 26;
}

pub(crate) mod tctl {
    pub(crate) const EN: u32 = 1 << 1;
    pub(crate) const PSP: u32 = 1 << 3;
    pub(crate) const CT: u32 = 0x0f << 4;
    pub(crate) const COLD: u32 = 0x3f << 12;
}

/// Inter-packet gaps for copper: IPGT 8, IPGR1 8, IPGR2 6.
const TIPG_COPPER: u32 = 8 | 8 << 10 | 6 << 20;
/// Thresholds count descriptors (GRAN), and each done one is written back at once (WTHRESH 1).
const TXDCTL_WRITE_BACK: u32 = 1 << 24 | 1 << 16;
/// A bit without a name that has to be set in the 82574.
const TXDCTL_82574: u32 = 1 << 22;
/// More bits without names: which of a register have to be clear in the 82574, and which set, as Intel's own driver has them. The last is
/// for an erratum: PCI Express completions that are unreliable, mostly where the link saves power (ASPM), and stop transmission.
const BITS_82574: [(usize, u32, u32); 4] = [
    (CTRL_EXT, 1 << 23, 1 << 22),
    (TARC0, 0xf << 27, 1 << 26),
    (GCR, 0, 1 << 22),
    (GCR2, 0, 1 << 0),
];

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
    pub(super) fn new<P: PciFunction<Bar = B>>(pci: &P, express: bool) -> Result<Self, InitError> {
        let bar = pci.map_bar(0)?;
        if bar.len() < REGISTERS_LEN {
            return Err(InitError::Misbehaved("its registers are too few"));
        }
        Ok(Self { bar, express })
    }

    pub(super) fn read(&self, register: usize) -> u32 {
        self.bar.read32(register)
    }

    pub(super) fn write(&self, register: usize, value: u32) {
        self.bar.write32(register, value);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.read(STATUS) == GONE
    }

    pub(super) fn link_up(&self) -> bool {
        self.read(STATUS) & status::LU != 0
    }

    /// Stops both rings and resets the chip. True when it has stopped, or is gone; false when it may still access
    /// memory.
    pub(super) fn reset(&self, stall_microsecond: impl Fn()) -> bool {
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
    pub(super) fn wait_for_eeprom(&self, stall_microsecond: impl Fn()) {
        wait(AUTO_READ_MICROS, &stall_microsecond, || {
            self.express && self.read(EECD) & EECD_AUTO_RD != 0
        });
    }

    /// The station address, unless there is none that is valid.
    pub(super) fn mac(&self) -> Option<MacAddress> {
        let high = self.read(RAH0);
        let [a, b, c, d] = self.read(RAL0).to_le_bytes();
        let [e, f, _, _] = high.to_le_bytes();
        let mac = [a, b, c, d, e, f];
        let group = a & 1 != 0;
        (high & RAH_AV != 0 && !group && mac != [0; 6]).then_some(mac)
    }

    /// Starts both rings and the link. Some emulated chips keep their registers in a reset, so all that matter are
    /// written.
    pub(super) fn start(&self, receive: &Ring, transmit: &Ring) {
        let forced = ctrl::FRCSPD | ctrl::FRCDPLX;
        let keep = !(ctrl::GIO_MASTER_DISABLE | forced | ctrl::RESERVED | ctrl::VME);
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
            for (register, clear, set) in BITS_82574 {
                self.write(register, self.read(register) & !clear | set);
            }
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

#[cfg(test)]
mod tests {
    //! The numbers are those of the datasheets: 82574 GbE Controller Family, section 10; PCI/PCI-X Family of Gigabit Ethernet
    //! Controllers (8254x), section 13.

    use super::super::SharedChip;
    use super::*;
    use crate::NicState;
    use crate::model::ModelMemory;
    use crate::model::e1000e::{Model, ModelConfig};
    use crate::platform::PlatformError;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::rc::Rc;
    use std::vec;
    use std::vec::Vec;

    const MASTER_ENABLED: u32 = 0x0008_0000;
    const RESET: u32 = 0x0400_0000;

    /// Registers that keep what is written, and remember it all.
    #[derive(Clone, Default)]
    struct Bar {
        values: Rc<RefCell<BTreeMap<usize, u32>>>,
        written: Rc<RefCell<Vec<(usize, u32)>>>,
        /// Bytes; as the datasheet says where there is none.
        len: Option<usize>,
    }

    impl Bar {
        fn set(&self, register: usize, value: u32) {
            self.values.borrow_mut().insert(register, value);
        }
    }

    impl Registers for Bar {
        fn len(&self) -> usize {
            self.len.unwrap_or(0x2_0000)
        }
        fn read8(&self, _: usize) -> u8 {
            unreachable!()
        }
        fn read16(&self, _: usize) -> u16 {
            unreachable!()
        }
        fn read32(&self, offset: usize) -> u32 {
            self.values.borrow().get(&offset).copied().unwrap_or(0)
        }
        fn write8(&self, _: usize, _: u8) {
            unreachable!()
        }
        fn write16(&self, _: usize, _: u16) {
            unreachable!()
        }
        fn write32(&self, offset: usize, value: u32) {
            self.set(offset, value);
            self.written.borrow_mut().push((offset, value));
        }
    }

    fn chip(express: bool) -> (Bar, Chip<Bar>) {
        let bar = Bar::default();
        let chip = Chip {
            bar: bar.clone(),
            express,
        };
        (bar, chip)
    }

    /// Resets a chip whose bus is quiet, and which is ready, after so many microseconds each. Returns whether it stopped, and what the
    /// driver waited.
    fn reset(bar: &Bar, chip: &Chip<Bar>, quiet: u32, ready: u32) -> (bool, u32) {
        bar.set(0x0008, MASTER_ENABLED);
        let (waited, after) = (Cell::new(0), Cell::new(0));
        let done = chip.reset(|| {
            waited.set(waited.get() + 1);
            if waited.get() == quiet {
                bar.set(0x0008, 0x0000_0002);
            }
            let ctrl = bar.read32(0x0000);
            if ctrl & RESET != 0 {
                after.set(after.get() + 1);
            }
            if after.get() == ready {
                bar.set(0x0000, ctrl & !RESET);
            }
        });
        (done, waited.get())
    }

    #[test]
    fn a_reset_waits_for_the_bus_and_for_its_end() {
        let (bar, chip) = self::chip(true);
        bar.set(0x0000, 0x0000_0040);
        assert_eq!(reset(&bar, &chip, 50, 1030), (true, 50 + 1030));
        let all = 0xffff_ffff;
        let stops = [(0x00d8, all), (0x0100, 0), (0x0400, 0)];
        let resets = [(0x0000, 0x44), (0x0000, 0x0400_0044), (0x00d8, all)];
        assert_eq!(*bar.written.borrow(), [stops, resets].concat());
        // The bits may be set already, by a driver before, or a reset that did not end.
        for before in [0x44, 0x0400_0044] {
            let (bar, chip) = self::chip(true);
            bar.set(0x0000, before);
            assert!(reset(&bar, &chip, 1, 1030).0);
            let resets = [(0x0000, before), (0x0000, 0x0400_0044), (0x00d8, all)];
            assert_eq!(*bar.written.borrow(), [stops, resets].concat());
        }
        // A bus that is never quiet, a reset that takes no longer than the silence, and one that never ends.
        let (bar, chip) = self::chip(true);
        assert_eq!(reset(&bar, &chip, 0, 10), (true, 10_000 + 1000));
        let (bar, chip) = self::chip(true);
        assert_eq!(reset(&bar, &chip, 1, 0), (false, 1 + 1000 + 100_000));
        // PCI has no such bit.
        let (bar, chip) = self::chip(false);
        assert_eq!(reset(&bar, &chip, 1, 1001), (true, 1001));
        let resets = [(0x0000, RESET), (0x00d8, all)];
        assert_eq!(*bar.written.borrow(), [&stops[..], &resets].concat());
    }

    #[test]
    fn a_chip_that_is_gone_is_not_waited_for() {
        struct Gone;
        impl Registers for Gone {
            fn len(&self) -> usize {
                0x2_0000
            }
            fn read8(&self, _: usize) -> u8 {
                u8::MAX
            }
            fn read16(&self, _: usize) -> u16 {
                u16::MAX
            }
            fn read32(&self, _: usize) -> u32 {
                u32::MAX
            }
            fn write8(&self, _: usize, _: u8) {}
            fn write16(&self, _: usize, _: u16) {}
            fn write32(&self, _: usize, _: u32) {}
        }
        let chip = Chip {
            bar: Gone,
            express: true,
        };
        let waited = Cell::new(0);
        assert!(chip.is_gone() && chip.reset(|| waited.set(waited.get() + 1)));
        assert_eq!(waited.get(), 1000);
        assert_eq!(chip.mac(), None);
    }

    #[test]
    fn the_eeprom_is_waited_for() {
        for (express, expected) in [(true, 7), (false, 20_000)] {
            let (bar, chip) = self::chip(express);
            bar.set(0x0010, 0x0000_0100);
            let waited = Cell::new(0);
            chip.wait_for_eeprom(|| {
                waited.set(waited.get() + 1);
                if waited.get() == 7 {
                    bar.set(0x0010, 0x0000_0200);
                }
            });
            assert_eq!(waited.get(), expected);
        }
    }

    #[test]
    fn an_address_is_valid_or_none() {
        let (bar, chip) = self::chip(true);
        for (low, high, expected) in [
            (
                0x3322_1102,
                0x8000_5544,
                Some([2, 0x11, 0x22, 0x33, 0x44, 0x55]),
            ),
            (0x0000_0000, 0x8000_0100, Some([0, 0, 0, 0, 0, 1])),
            (0x3322_1102, 0x7fff_5544, None),
            (0x3322_1101, 0x8000_5544, None),
            (0x0000_0000, 0x8000_0000, None),
        ] {
            bar.set(0x5400, low);
            bar.set(0x5404, high);
            assert_eq!(chip.mac(), expected);
        }
    }

    #[test]
    fn the_link_is_told() {
        let (bar, chip) = self::chip(true);
        for (status, up) in [(0x0008_0002, true), (0x0008_0001, false), (0x3, true)] {
            bar.set(0x0008, status);
            assert_eq!((chip.link_up(), chip.is_gone()), (up, false));
        }
    }

    #[test]
    fn a_start_writes_what_the_datasheet_asks_for() {
        let model = Model::new(ModelConfig::default());
        let shared = SharedChip {
            chip: Chip::new(&model.pci(), true).unwrap(),
            pci: model.pci(),
            state: Cell::new(NicState::Running),
            quiet: Cell::new(false),
            memory: RefCell::new(Vec::new()),
        };
        let receive = Ring::new(&shared, 64).unwrap();
        let transmit = Ring::new(&shared, 8).unwrap();
        // CTRL: master disabled, full duplex, link reset, speed and duplex forced, a reserved bit, VLAN mode, and the link set up or not.
        // TCTL: a bit that no datasheet explains, and what it shall say already or not.
        for (express, ctrl, tctl) in [
            (true, 0x6000_180d, 0x1000_0000),
            (true, 0x4000_184d, 0x1003_f0fa),
            (false, 0x6000_180d, 0x1000_0000),
        ] {
            let (bar, chip) = self::chip(express);
            bar.set(0x0000, ctrl);
            bar.set(0x0400, tctl);
            // CTRL_EXT, TARC0, GCR and GCR2: bits that have to be clear, and some that stay.
            bar.set(0x0018, 0x0080_0010);
            bar.set(0x3840, 0x7800_0403);
            bar.set(0x5b00, 0x0000_0008);
            bar.set(0x5b64, 0x0000_0002);
            chip.start(&receive, &transmit);
            let mut expected = vec![(0x0000, 0x0000_0049)];
            expected.extend((0..128).map(|n| (0x5200 + 4 * n, 0)));
            expected.push((0x5000, 0x0000_0300));
            if express {
                expected.extend([(0x5008, 0), (0x5818, 0)]);
                expected.extend([(0x0018, 0x0040_0010), (0x3840, 0x0400_0403)]);
                expected.extend([(0x5b00, 0x0040_0008), (0x5b64, 0x0000_0003)]);
            }
            for (at, ring, len) in [(0x2800, &receive, 1024), (0x3800, &transmit, 128)] {
                let address = ring.address();
                assert_ne!(address, 0);
                expected.extend([
                    (at, address as u32),
                    (at + 0x04, (address >> 32) as u32),
                    (at + 0x08, len),
                    (at + 0x10, 0),
                    (at + 0x18, 0),
                    (at + 0x20, 0),
                    (at + 0x2c, 0),
                ]);
            }
            let txdctl = if express { 0x0141_0000 } else { 0x0101_0000 };
            expected.extend([
                (0x3828, txdctl),
                (0x0410, 0x0060_2008),
                (0x0400, 0x1003_f0fa),
                (0x0100, 0x0400_8012),
            ]);
            assert_eq!(*bar.written.borrow(), expected);
        }
    }

    #[test]
    fn registers_that_end_before_the_last_one_are_refused() {
        struct Pci(Bar);
        impl PciFunction for Pci {
            type Dma = ModelMemory;
            type Bar = Bar;
            fn config32(&self, _: u8) -> u32 {
                unreachable!()
            }
            fn map_bar(&self, _: u8) -> Result<Bar, PlatformError> {
                Ok(self.0.clone())
            }
            fn allocate(&self, _: usize) -> Result<ModelMemory, PlatformError> {
                unreachable!()
            }
            fn stall_microsecond(&self) {}
        }
        let refused = |len| {
            let bar = Bar {
                len: Some(len),
                ..Bar::default()
            };
            Chip::new(&Pci(bar), true).err()
        };
        // GCR2, of four bytes at 0x5b64.
        assert_eq!(refused(0x5b68), None);
        for len in [0, 0x5b64, 0x5b67] {
            let few = InitError::Misbehaved("its registers are too few");
            assert_eq!(refused(len), Some(few), "{len:#x}");
        }
    }
}
