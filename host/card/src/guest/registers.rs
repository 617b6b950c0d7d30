//! Where a driver finds the device (virtio 1.2, section 4.1): configuration space, and the registers of one BAR.

use std::cell::RefCell;
use std::rc::Rc;

use wireboot_nic::platform::Registers;

use super::device::{Device, QUEUES, Register};

/// The BAR with all registers.
pub(super) const BAR: u8 = 4;
const COMMON: usize = 0;
const COMMON_LEN: usize = 0x38;
const DEVICE: usize = 0x100;
const DEVICE_LEN: usize = 12;
const NOTIFY: usize = 0x200;
/// Bytes from one doorbell to the next.
const DOORBELL: usize = 4;
const LEN: usize = NOTIFY + DOORBELL * QUEUES;

/// Configuration space: Red Hat's id of a modern network device, and three capabilities.
pub(super) fn config32(offset: u8) -> u32 {
    let capability = |next: u32, kind: u32, at: usize, len: usize| {
        // PCI_CAP_ID_VNDR, and 20 bytes.
        let first = 0x09 | next << 8 | 20 << 16 | kind << 24;
        [first, BAR.into(), at as u32, len as u32, DOORBELL as u32]
    };
    let (words, first) = match offset {
        0x40..0x54 => (capability(0x54, 1, COMMON, COMMON_LEN), 0x40),
        0x54..0x68 => (capability(0x68, 2, NOTIFY, LEN - NOTIFY), 0x54),
        0x68..0x7c => (capability(0, 4, DEVICE, DEVICE_LEN), 0x68),
        0x00 => return 0x1041_1af4,
        // In its status: there are capabilities.
        0x04 => return 1 << 20,
        0x34 => return 0x40,
        _ => return 0,
    };
    let word = usize::from(offset - first) / 4;
    words.get(word).copied().unwrap_or(0)
}

/// What is at an offset of the BAR.
fn register_at(offset: usize) -> Register {
    match offset {
        NOTIFY.. => Register::Doorbell((offset - NOTIFY) / DOORBELL),
        DEVICE.. => Register::Device(offset - DEVICE),
        _ => Register::Common(offset),
    }
}

/// Gives the driver the device's registers.
pub(crate) struct GuestBar(Rc<RefCell<Device>>);

impl GuestBar {
    pub(super) fn new(device: Rc<RefCell<Device>>) -> Self {
        Self(device)
    }

    fn read(&self, offset: usize, len: usize) -> u32 {
        self.0.borrow_mut().read(register_at(offset), len)
    }

    fn write(&self, offset: usize, value: u32) {
        self.0.borrow_mut().write(register_at(offset), value);
    }
}

impl Registers for GuestBar {
    fn len(&self) -> usize {
        LEN
    }
    fn read8(&self, offset: usize) -> u8 {
        self.read(offset, 1) as u8
    }
    fn read16(&self, offset: usize) -> u16 {
        self.read(offset, 2) as u16
    }
    fn read32(&self, offset: usize) -> u32 {
        self.read(offset, 4)
    }
    fn write8(&self, offset: usize, value: u8) {
        self.write(offset, value.into());
    }
    fn write16(&self, offset: usize, value: u16) {
        self.write(offset, value.into());
    }
    fn write32(&self, offset: usize, value: u32) {
        self.write(offset, value);
    }
}
