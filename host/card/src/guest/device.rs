//! The device behind the registers: what the driver says of features and queues, and what the card is told of it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use wireboot_card::feature;
use wireboot_nic::MacAddress;

use super::memory::MemfdPool;
use crate::vhost::{FrontEnd, FrontEndError, Offered, Request, RingEvent};

/// One pair: what the driver receives from, what it sends by.
pub(super) const QUEUES: usize = 2;
/// The longest queue, which cards do not tell: that of QEMU, where nobody says otherwise.
const QUEUE_SIZE: u16 = 256;

/// What a monitor answers for, and not the card: MAC and STATUS.
const OURS: u64 = 1 << 5 | 1 << 16;
/// What takes more of a monitor than there is here: an MTU, a queue for control, several pairs, RSS, an IOMMU. And vhost's own bits, which are
/// no driver's.
const NOT_PASSED: u64 = 1 << 3 | 1 << 17 | feature::MQ | 1 << 60 | 1 << 33 | 1 << 26 | 1 << 30;

const ACKNOWLEDGED: u8 = 8;
const DRIVER_OK: u8 = 4;
const LINK_UP: u8 = 1;

/// What a driver can read and write; `registers` says at which offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    /// Of `struct virtio_pci_common_cfg`, by its place.
    Common(usize),
    /// Of `struct virtio_net_config`, by its place.
    Device(usize),
    /// The doorbell of a queue, by the queue's number.
    Doorbell(usize),
}

/// A queue, as the driver has told.
#[derive(Debug)]
struct Queue {
    size: u16,
    enabled: bool,
    /// Of descriptors, available ring and used ring, as the device sees them.
    addresses: [u64; 3],
    kick: OwnedFd,
    /// Nobody reads it: the driver polls. Cards want one.
    call: OwnedFd,
}

impl Queue {
    fn new() -> Result<Self, FrontEndError> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let kernel = |error: rustix::io::Errno| FrontEndError::Kernel(error.into());
        Ok(Self {
            size: QUEUE_SIZE,
            enabled: false,
            addresses: [0; 3],
            kick: event().map_err(kernel)?,
            call: event().map_err(kernel)?,
        })
    }
}

/// What the driver has written to its registers so far, and the card that obeys it.
#[derive(Debug)]
pub(super) struct Device {
    card: FrontEnd,
    /// The card cannot be used any more: the device is gone.
    gone: bool,
    failure: Option<FrontEndError>,
    memory: Option<Arc<MemfdPool>>,
    mac: MacAddress,
    status: u8,
    /// Which half of the features is read, and which written.
    halves: [u32; 2],
    accepted: u64,
    queue: u16,
    queues: [Queue; QUEUES],
    running: bool,
}

impl Device {
    pub(super) fn new(card: FrontEnd, mac: MacAddress) -> Result<Self, FrontEndError> {
        Ok(Self {
            card,
            gone: false,
            failure: None,
            memory: None,
            mac,
            status: 0,
            halves: [0; 2],
            accepted: 0,
            queue: 0,
            queues: [Queue::new()?, Queue::new()?],
            running: false,
        })
    }

    pub(super) fn offered(&self) -> Offered {
        self.card.offered()
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(super) fn take_failure(&mut self) -> Option<FrontEndError> {
        self.failure.take()
    }

    /// The memory of the driver that comes.
    pub(super) fn set_memory(&mut self, memory: Arc<MemfdPool>) {
        self.memory = Some(memory);
    }

    /// What the driver may use.
    fn features(&self) -> u64 {
        self.card.offered().features & !NOT_PASSED | OURS
    }

    /// As a bus does, all ones where there is no device.
    pub(super) fn read(&mut self, register: Register, len: usize) -> u32 {
        if register == Register::Common(0x14) && !self.gone && !self.card.is_open() {
            self.fail(FrontEndError::Closed);
        }
        if self.gone {
            return u32::MAX;
        }
        let half = |value: u64, select: u32| match select {
            0 => value as u32,
            1 => (value >> 32) as u32,
            _ => 0,
        };
        let queue = self.queues.get(usize::from(self.queue));
        match register {
            Register::Common(0x04) => half(self.features(), self.halves[0]),
            // num_queues
            Register::Common(0x12) => QUEUES as u32,
            Register::Common(0x14) => self.status.into(),
            Register::Common(0x18) => queue.map_or(0, |queue| queue.size.into()),
            Register::Common(0x1c) => queue.map_or(0, |queue| queue.enabled.into()),
            Register::Common(0x1e) => self.queue.into(),
            Register::Common(_) | Register::Doorbell(_) => 0,
            Register::Device(at) => {
                let [a, b, c, d, e, f] = self.mac;
                let bytes = [a, b, c, d, e, f, LINK_UP, 0, 1, 0, 0, 0];
                let bytes = bytes.iter().skip(at).take(len).rev();
                bytes.fold(0, |sum, byte| sum << 8 | u32::from(*byte))
            }
        }
    }

    pub(super) fn write(&mut self, register: Register, value: u32) {
        if self.gone {
            return;
        }
        let at = match register {
            Register::Common(at) => at,
            Register::Doorbell(queue) => return self.ring(queue),
            Register::Device(_) => return,
        };
        // A queue that the card has is not changed.
        let still = !self.running;
        let queue = self.queues.get_mut(usize::from(self.queue));
        match (at, queue) {
            (0x00, _) => self.halves[0] = value,
            (0x08, _) => self.halves[1] = value,
            (0x0c, _) if still => match self.halves[1] {
                0 => self.accepted = self.accepted & !0xffff_ffff | u64::from(value),
                1 => self.accepted = self.accepted & 0xffff_ffff | u64::from(value) << 32,
                _ => {}
            },
            (0x14, _) => self.set_status(value as u8),
            (0x16, _) => self.queue = value as u16,
            (0x18, Some(queue)) if still => queue.size = (value as u16).min(QUEUE_SIZE),
            (0x1c, Some(queue)) if still => queue.enabled = value == 1,
            (0x20..0x38, Some(queue)) if still => {
                if let Some(address) = queue.addresses.get_mut((at - 0x20) / 8) {
                    let shift = (at & 4) * 8;
                    *address = *address & !(0xffff_ffff << shift) | u64::from(value) << shift;
                }
            }
            _ => {}
        }
    }

    /// The memory of the driver, and where its tables lie.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn shared(&self) -> Option<(Arc<MemfdPool>, [[u64; 3]; QUEUES])> {
        let tables = self.queues.each_ref().map(|queue| queue.addresses);
        Some((self.memory.clone()?, tables))
    }

    fn ring(&self, queue: usize) {
        if let Some(queue) = self.queues.get(queue).filter(|_| self.running) {
            // One that is full rings already.
            let _ = rustix::io::write(&queue.kick, &1u64.to_ne_bytes());
        }
    }

    fn set_status(&mut self, status: u8) {
        let done = if status == 0 {
            self.reset()
        } else {
            let known = self.accepted & !self.features() == 0;
            self.status = if known {
                status
            } else {
                status & !ACKNOWLEDGED
            };
            if self.status & DRIVER_OK != 0 && !self.running {
                self.start()
            } else {
                Ok(())
            }
        };
        if let Err(error) = done {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: FrontEndError) {
        self.gone = true;
        self.failure = Some(error);
    }

    /// Hands the driver's queues to the card.
    fn start(&mut self) -> Result<(), FrontEndError> {
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        self.running = true;
        self.card.set_features(self.accepted & !OURS)?;
        let table = Request::SetMemoryTable(vec![memory.region()]);
        self.card.tell(&table, &[memory.file()])?;
        for (ring, queue) in self.queues.iter().enumerate() {
            if !queue.enabled {
                continue;
            }
            let size = queue.size.into();
            let [descriptors, available, used] =
                queue.addresses.map(|address| memory.user_address(address));
            let addresses = Request::SetRingAddresses {
                ring,
                descriptors,
                used,
                available,
            };
            let event = |event| Request::SetRingEvent {
                ring,
                event,
                fd: true,
            };
            let card = &mut self.card;
            card.tell(&Request::SetRingSize { ring, size }, &[])?;
            card.tell(&Request::SetRingBase { ring, base: 0 }, &[])?;
            card.tell(&addresses, &[])?;
            card.tell(&event(RingEvent::Call), &[queue.call.as_fd()])?;
            card.tell(&event(RingEvent::Kick), &[queue.kick.as_fd()])?;
        }
        self.enable(true)
    }

    /// Takes the queues from the card. When this returns without an error, it touches them no more.
    fn reset(&mut self) -> Result<(), FrontEndError> {
        if self.running {
            self.running = false;
            self.enable(false)?;
            for ring in 0..QUEUES {
                self.card.ask(&Request::GetRingBase { ring })?;
            }
        }
        self.status = 0;
        self.accepted = 0;
        for queue in &mut self.queues {
            queue.size = QUEUE_SIZE;
            queue.enabled = false;
            queue.addresses = [0; 3];
        }
        Ok(())
    }

    fn enable(&mut self, enable: bool) -> Result<(), FrontEndError> {
        if !self.card.has_protocol_features() {
            return Ok(());
        }
        for ring in 0..QUEUES {
            self.card
                .tell(&Request::SetRingEnable { ring, enable }, &[])?;
        }
        Ok(())
    }
}
