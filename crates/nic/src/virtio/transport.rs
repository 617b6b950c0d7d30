//! The modern PCI transport (virtio 1.2, section 4.1): where the registers are, the life of the device
//! status, feature negotiation and the programming of queues.

use super::InitError;
use super::tables::Layout;
use crate::platform::{PciFunction, Registers};

const PCI_STATUS_COMMAND: u8 = 0x04;
const PCI_STATUS_CAPABILITIES: u32 = 1 << (16 + 4);
const PCI_CAPABILITIES_POINTER: u8 = 0x34;
const PCI_CAP_ID_VNDR: u8 = 0x09;
/// Capabilities are at least 4 bytes long, between 0x40 and the end: more steps mean a loop.
const PCI_CAPABILITIES_MAX: usize = (0x100 - 0x40) / 4;

const VIRTIO_PCI_CAP_COMMON_CFG: u8 = 1;
const VIRTIO_PCI_CAP_NOTIFY_CFG: u8 = 2;
const VIRTIO_PCI_CAP_DEVICE_CFG: u8 = 4;

// struct virtio_pci_common_cfg
const DEVICE_FEATURE_SELECT: usize = 0x00;
const DEVICE_FEATURE: usize = 0x04;
const DRIVER_FEATURE_SELECT: usize = 0x08;
const DRIVER_FEATURE: usize = 0x0c;
const CONFIG_MSIX_VECTOR: usize = 0x10;
const DEVICE_STATUS: usize = 0x14;
const QUEUE_SELECT: usize = 0x16;
const QUEUE_SIZE: usize = 0x18;
const QUEUE_MSIX_VECTOR: usize = 0x1a;
const QUEUE_ENABLE: usize = 0x1c;
const QUEUE_NOTIFY_OFF: usize = 0x1e;
const QUEUE_DESC: usize = 0x20;
const QUEUE_DRIVER: usize = 0x28;
const QUEUE_DEVICE: usize = 0x30;
const COMMON_CFG_LEN: usize = 0x38;

const VIRTIO_MSI_NO_VECTOR: u16 = 0xffff;

/// Bits of the device status field.
pub(crate) mod status {
    pub(crate) const ACKNOWLEDGE: u8 = 1;
    pub(crate) const DRIVER: u8 = 2;
    pub(crate) const DRIVER_OK: u8 = 4;
    pub(crate) const FEATURES_OK: u8 = 8;
    pub(crate) const DEVICE_NEEDS_RESET: u8 = 64;
    /// Not a status: what a bus answers for a device that is not there.
    pub(crate) const GONE: u8 = 0xff;
}

/// How long a reset may take, in microseconds. The specification sets no limit, and a device may be a program on a busy host.
const RESET_MICROS: u32 = 1_000_000;

/// A piece of a BAR that a capability points out.
struct Region<B> {
    bar: B,
    offset: usize,
    len: usize,
}

/// What a vendor-specific capability says; not believed yet.
#[derive(Clone, Copy)]
struct Capability {
    bar: u8,
    offset: usize,
    len: usize,
    /// Where the capability lies in configuration space.
    at: u8,
}

/// The registers of one virtio device.
pub(super) struct Transport<B> {
    common: Region<B>,
    notify: Region<B>,
    notify_off_multiplier: usize,
    device: Region<B>,
}

impl<B: Registers> Transport<B> {
    /// Finds the registers through the capability list of the function.
    pub(super) fn new<P: PciFunction<Bar = B>>(pci: &P) -> Result<Self, InitError> {
        let mut common = None;
        let mut notify = None;
        let mut device = None;

        let status = pci.config32(PCI_STATUS_COMMAND);
        if status == u32::MAX {
            return Err(InitError::Removed);
        }
        let mut at = 0;
        if status & PCI_STATUS_CAPABILITIES != 0 {
            at = pci.config32(PCI_CAPABILITIES_POINTER) as u8 & 0xfc;
        }
        for _ in 0..PCI_CAPABILITIES_MAX {
            if at < 0x40 {
                break;
            }
            let [id, next, len, cfg_type] = pci.config32(at).to_le_bytes();
            if id == PCI_CAP_ID_VNDR && len >= 16 && at <= 0xf0 {
                let capability = Capability {
                    bar: pci.config32(at + 4) as u8,
                    offset: pci.config32(at + 8) as usize,
                    len: pci.config32(at + 12) as usize,
                    at,
                };
                // The first of a type is the one that the device prefers; BARs above 5 are reserved
                // and to be skipped.
                let slot = match cfg_type {
                    VIRTIO_PCI_CAP_COMMON_CFG => Some(&mut common),
                    VIRTIO_PCI_CAP_NOTIFY_CFG if len >= 20 && at <= 0xec => Some(&mut notify),
                    VIRTIO_PCI_CAP_DEVICE_CFG => Some(&mut device),
                    _ => None,
                };
                if let Some(slot) = slot
                    && capability.bar <= 5
                {
                    slot.get_or_insert(capability);
                }
            }
            at = next & 0xfc;
        }

        let (Some(common), Some(notify), Some(device)) = (common, notify, device) else {
            return Err(InitError::Legacy);
        };
        Ok(Self {
            common: region(pci, common, COMMON_CFG_LEN, 4)?,
            notify: region(pci, notify, 2, 2)?,
            notify_off_multiplier: pci.config32(notify.at + 16) as usize,
            device: region(pci, device, 1, 4)?,
        })
    }

    pub(super) fn status(&self) -> u8 {
        self.common.read8(DEVICE_STATUS)
    }

    /// Adds bits to the device status.
    pub(super) fn add_status(&self, bits: u8) {
        self.common.write8(DEVICE_STATUS, self.status() | bits);
    }

    /// Resets the device and waits until it says that it has stopped. True when it has, or is gone;
    /// false when it may still access memory.
    pub(super) fn reset(&self, stall_microsecond: impl Fn()) -> bool {
        self.common.write8(DEVICE_STATUS, 0);
        for _ in 0..RESET_MICROS {
            if matches!(self.status(), 0 | status::GONE) {
                return true;
            }
            stall_microsecond();
        }
        false
    }

    pub(super) fn device_features(&self) -> u64 {
        let mut features = 0;
        for half in [1, 0] {
            self.common.write32(DEVICE_FEATURE_SELECT, half);
            features = features << 32 | u64::from(self.common.read32(DEVICE_FEATURE));
        }
        features
    }

    /// Accepts `features`, a part of [`Self::device_features`]; false when the device refuses.
    pub(super) fn accept_features(&self, features: u64) -> bool {
        for half in [0, 1] {
            self.common.write32(DRIVER_FEATURE_SELECT, half);
            self.common
                .write32(DRIVER_FEATURE, (features >> (32 * half)) as u32);
        }
        self.add_status(status::FEATURES_OK);
        self.status() & status::FEATURES_OK != 0
    }

    /// The largest size that the device allows for a queue; 0 when there is no such queue.
    pub(super) fn queue_size_max(&self, queue: u16) -> u16 {
        self.common.write16(QUEUE_SELECT, queue);
        self.common.read16(QUEUE_SIZE)
    }

    /// Tells the device where a queue of `size` lies and enables it, without interrupts.
    /// Returns its doorbell's place in the notification registers.
    pub(super) fn enable_queue(
        &self,
        queue: u16,
        size: u16,
        address: u64,
        layout: Layout,
    ) -> Result<usize, InitError> {
        self.common
            .write16(CONFIG_MSIX_VECTOR, VIRTIO_MSI_NO_VECTOR);
        self.common.write16(QUEUE_SELECT, queue);
        let doorbell = usize::from(self.common.read16(QUEUE_NOTIFY_OFF))
            .checked_mul(self.notify_off_multiplier)
            .filter(|offset| offset % 2 == 0 && self.notify.len - 2 >= *offset)
            .ok_or(InitError::Misbehaved("a doorbell beyond its registers"))?;
        self.common.write16(QUEUE_SIZE, size);
        self.common.write16(QUEUE_MSIX_VECTOR, VIRTIO_MSI_NO_VECTOR);
        self.common.write64(QUEUE_DESC, address);
        self.common
            .write64(QUEUE_DRIVER, address + layout.avail as u64);
        self.common
            .write64(QUEUE_DEVICE, address + layout.used as u64);
        self.common.write16(QUEUE_ENABLE, 1);
        Ok(doorbell)
    }

    /// Rings a doorbell given by [`Self::enable_queue`].
    pub(super) fn notify(&self, doorbell: usize, queue: u16) {
        self.notify.write16(doorbell, queue);
    }

    /// Reads 8 bits of the device's own configuration; all ones beyond its end.
    pub(super) fn config8(&self, offset: usize) -> u8 {
        self.device.read8(offset)
    }

    /// Reads 16 bits of the device's own configuration; all ones beyond its end.
    pub(super) fn config16(&self, offset: usize) -> u16 {
        self.device.read16(offset)
    }

    /// Reads 32 bits of the device's own configuration; all ones beyond its end.
    pub(super) fn config32(&self, offset: usize) -> u32 {
        self.device.read32(offset)
    }
}

/// Maps what a capability points out, if it is there, long enough and aligned.
fn region<P: PciFunction>(
    pci: &P,
    capability: Capability,
    least: usize,
    align: usize,
) -> Result<Region<P::Bar>, InitError> {
    let Capability {
        bar, offset, len, ..
    } = capability;
    let bar = pci.map_bar(bar)?;
    let fits = offset.checked_add(len).is_some_and(|end| end <= bar.len());
    if !fits || len < least || offset % align != 0 {
        return Err(InitError::Misbehaved(
            "a PCI capability points beyond its registers",
        ));
    }
    Ok(Region { bar, offset, len })
}

impl<B: Registers> Region<B> {
    fn holds(&self, offset: usize, len: usize) -> bool {
        offset + len <= self.len
    }

    fn read8(&self, offset: usize) -> u8 {
        if !self.holds(offset, 1) {
            return u8::MAX;
        }
        self.bar.read8(self.offset + offset)
    }

    fn read16(&self, offset: usize) -> u16 {
        if !self.holds(offset, 2) {
            return u16::MAX;
        }
        self.bar.read16(self.offset + offset)
    }

    fn read32(&self, offset: usize) -> u32 {
        if !self.holds(offset, 4) {
            return u32::MAX;
        }
        self.bar.read32(self.offset + offset)
    }

    // Writes go to offsets that `region` and `enable_queue` have checked.

    fn write8(&self, offset: usize, value: u8) {
        self.bar.write8(self.offset + offset, value);
    }

    fn write16(&self, offset: usize, value: u16) {
        self.bar.write16(self.offset + offset, value);
    }

    fn write32(&self, offset: usize, value: u32) {
        self.bar.write32(self.offset + offset, value);
    }

    /// 64-bit registers are written as two halves, low one first, as the specification allows.
    fn write64(&self, offset: usize, value: u64) {
        self.write32(offset, value as u32);
        self.write32(offset + 4, (value >> 32) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, ModelConfig};
    use std::cell::Cell;

    #[test]
    #[cfg_attr(miri, ignore = "a million looks")]
    fn a_reset_may_take_a_second() {
        for (micros, ends) in [(300_000, true), (999_999, true), (1_000_000, false)] {
            let model = Model::new(ModelConfig::default());
            let transport = Transport::new(&model.pci()).unwrap();
            model.set_obeys_reset(false);
            model.set_status(status::DRIVER_OK);
            let left = Cell::new(micros);
            let pass = || {
                left.set(left.get() - 1);
                if left.get() == 0 {
                    model.set_status(0);
                }
            };
            assert_eq!(transport.reset(pass), ends, "{micros}");
        }
    }
}
