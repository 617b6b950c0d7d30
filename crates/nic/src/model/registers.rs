//! What the driver sees of the virtio-net model over PCI: configuration space and registers.

use super::{Model, ModelMemory, VirtioModelState};
use crate::platform::{PciFunction, PlatformError, Registers};
use crate::virtio::transport::status;

// Where the model puts its registers in BAR 4.
const COMMON: usize = 0x000;
const DEVICE: usize = 0x100;
const NOTIFY: usize = 0x200;
const NOTIFY_MULTIPLIER: u32 = 4;
const BAR_LEN: usize = 0x300;
const NOTIFY_LEN: usize = BAR_LEN - NOTIFY;
const DEVICE_LEN: usize = 24;

impl VirtioModelState {
    fn read_register(&self, offset: usize, len: usize) -> u32 {
        if self.removed {
            return u32::MAX;
        }
        let queue = usize::from(self.queue_select);
        let size = |queue: usize| match queue {
            queue if self.control() == Some(queue) => self.config.control_size,
            queue if queue < 2 * self.pairs() => self.config.queue_sizes[queue % 2],
            _ => 0,
        };
        let half = |value: u64, select: u32| match select {
            0 => value as u32,
            1 => (value >> 32) as u32,
            _ => 0,
        };
        match (offset, len) {
            (0x04, 4) => half(self.config.features, self.device_feature_select),
            (0x14, 1) => self.status.into(),
            (0x18, 2) => match self.queues.get(queue) {
                Some(q) if q.size != 0 => q.size.into(),
                _ => size(queue).into(),
            },
            (0x1e, 2) => queue as u32,
            (DEVICE..NOTIFY, _) => {
                let mut bytes = [0; DEVICE_LEN];
                bytes[..6].copy_from_slice(&self.config.mac);
                bytes[6] = u8::from(self.link_up);
                let pairs = self.config.pairs_reported.unwrap_or(self.config.pairs);
                bytes[8..10].copy_from_slice(&pairs.to_le_bytes());
                bytes[10..12].copy_from_slice(&self.config.mtu.to_le_bytes());
                let (key, table, hashes) = self.config.rss;
                bytes[17] = key;
                bytes[18..20].copy_from_slice(&table.to_le_bytes());
                bytes[20..].copy_from_slice(&hashes.to_le_bytes());
                let at = offset - DEVICE;
                let value = (0..len).map(|n| bytes.get(at + n).copied().unwrap_or(0));
                value.rev().fold(0, |sum, byte| sum << 8 | u32::from(byte))
            }
            _ => 0,
        }
    }

    fn write_register(&mut self, offset: usize, len: usize, value: u32) {
        if self.removed {
            return;
        }
        let queue = self.queues.get_mut(usize::from(self.queue_select));
        match (offset, len, queue) {
            (0x00, 4, _) => self.device_feature_select = value,
            (0x08, 4, _) => self.driver_feature_select = value,
            (0x0c, 4, _) => {
                let shift = 32 * self.driver_feature_select.min(1);
                self.driver_features &= !(0xffff_ffff << shift);
                self.driver_features |= u64::from(value) << shift;
            }
            (0x10, 2, _) => self.quiet = value == 0xffff,
            (0x1a, 2, Some(q)) => q.quiet = value == 0xffff,
            (0x14, 1, _) if value == 0 => self.reset(),
            (0x14, 1, _) => {
                let mut value = value as u8;
                let allowed = self.config.features & !self.config.refused;
                if self.driver_features & !allowed != 0 {
                    value &= !status::FEATURES_OK;
                }
                self.status = value;
                self.ended = false;
                self.running |= value & status::DRIVER_OK != 0;
                let quiet = self.quiet && self.queues.iter().all(|q| q.quiet || !q.enabled);
                self.demand(quiet || !self.running, "leaves interrupts on");
                self.memory.set_reachable(self.is_running());
            }
            (0x16, 2, _) => self.queue_select = value as u16,
            (0x18, 2, Some(q)) => q.size = value as u16,
            (0x1c, 2, Some(q)) => q.enabled = value == 1 && q.size.is_power_of_two(),
            (0x20..0x38, 4, Some(q)) => {
                let address = &mut q.addresses[(offset - 0x20) / 8];
                let shift = (offset & 4) * 8;
                *address &= !(0xffff_ffff << shift);
                *address |= u64::from(value) << shift;
            }
            (NOTIFY.., 2, _) => {
                let number = (offset - NOTIFY) / NOTIFY_MULTIPLIER as usize;
                self.demand(number as u32 == value, "rang for another queue");
                // A device in reset ignores it.
                let started = self.status & status::DRIVER_OK != 0;
                self.demand(started || self.ended, "rang too early");
                if let Some(count) = self.doorbells.get_mut(number) {
                    *count += 1;
                }
            }
            _ => self.demand(false, "wrote to a register that is none"),
        }
    }

    /// Configuration space: three vendor capabilities that point into BAR 4.
    fn config(&self, offset: u8) -> u32 {
        let mut space = [0u8; 256];
        space[..4].copy_from_slice(&[0xf4, 0x1a, 0x41, 0x10]);
        space[6] = 0x10;
        space[0x34] = 0x40;
        let capabilities = [
            (0x40, 0x54, 1, COMMON, 0x38),
            (0x54, 0x70, 2, NOTIFY, NOTIFY_LEN),
            (0x70, 0x00, 4, DEVICE, DEVICE_LEN),
        ];
        for (at, next, cfg_type, offset, len) in capabilities {
            space[at..at + 5].copy_from_slice(&[0x09, next, 20, cfg_type, 4]);
            space[at + 8..at + 12].copy_from_slice(&(offset as u32).to_le_bytes());
            space[at + 12..at + 16].copy_from_slice(&(len as u32).to_le_bytes());
            space[at + 16..at + 20].copy_from_slice(&NOTIFY_MULTIPLIER.to_le_bytes());
        }
        for &(at, value) in &self.config.config_lies {
            space[usize::from(at)] = value;
        }
        let at = usize::from(offset & 0xfc);
        u32::from_le_bytes([space[at], space[at + 1], space[at + 2], space[at + 3]])
    }
}

/// The PCI function of a [`Model`].
pub struct ModelPci(Model);

impl ModelPci {
    pub(super) fn new(model: Model) -> Self {
        Self(model)
    }
}

impl PciFunction for ModelPci {
    type Dma = ModelMemory;
    type Bar = ModelBar;

    fn config32(&self, offset: u8) -> u32 {
        let state = self.0.state();
        if state.removed {
            return u32::MAX;
        }
        state.config(offset)
    }

    fn map_bar(&self, index: u8) -> Result<ModelBar, PlatformError> {
        if index != 4 {
            return Err(PlatformError::NoBar(index));
        }
        Ok(ModelBar(self.0.clone()))
    }

    fn allocate(&self, len: usize) -> Result<ModelMemory, PlatformError> {
        self.0.state().memory.allocate(len)
    }

    /// The driver waits, so the device works.
    fn stall_microsecond(&self) {
        let mut state = self.0.state();
        state.work();
        match state.patience {
            Some(0) => {
                let sent = state.send(0);
                state.sent.extend(sent);
            }
            Some(left) => state.patience = Some(left - 1),
            None => {}
        }
    }
}

/// The registers of a [`Model`].
pub struct ModelBar(Model);

impl ModelBar {
    fn read(&self, offset: usize, len: usize) -> u32 {
        assert!(offset + len <= BAR_LEN, "a read beyond the registers");
        assert_eq!(offset % len, 0, "an unaligned read");
        self.0.state().read_register(offset, len)
    }

    fn write(&self, offset: usize, len: usize, value: u32) {
        assert!(offset + len <= BAR_LEN, "a write beyond the registers");
        assert_eq!(offset % len, 0, "an unaligned write");
        self.0.state().write_register(offset, len, value);
    }
}

impl Registers for ModelBar {
    fn len(&self) -> usize {
        BAR_LEN
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
        self.write(offset, 1, value.into());
    }
    fn write16(&self, offset: usize, value: u16) {
        self.write(offset, 2, value.into());
    }
    fn write32(&self, offset: usize, value: u32) {
        self.write(offset, 4, value);
    }
}
