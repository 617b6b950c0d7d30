//! What a monitor has said, and what follows for the rings.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, ioctl_fionbio};
use wireboot_card::{Queue, RingLayout, RingStart};

use super::connection::Message;
use super::message::{MAX_PAIRS, MemoryRegion, Request, RingEvent};
use crate::memory::{MapError, Mapping, Place};

/// vhost-user's own feature bit: the protocol features below can be agreed on.
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Protocol feature: there may be several pairs of queues, and the monitor may ask how many.
pub(super) const MULTI_QUEUE: u64 = 1 << 0;
/// Protocol feature: the monitor may ask whether a message could be obeyed.
pub(super) const REPLY_ACK: u64 = 1 << 3;

/// What a session moves. A queue that is started runs until it is stopped.
pub(crate) trait Rings {
    /// The memory for queues that start from here on. None runs.
    fn set_memory(&mut self, memory: Option<Mapping>);
    /// What was agreed on with the guest, for queues that start from here on. None runs.
    fn agree(&mut self, features: u64);
    /// Starts a queue that does not run, with the memory and the features that were told last.
    fn start(&mut self, queue: PairQueue, ring: RunningRing);
    /// Has a running queue call by another descriptor, or by none.
    fn set_call(&mut self, queue: PairQueue, call: Option<OwnedFd>);
    /// Stops a running queue. When this returns, nothing of it is read or written any more. The index with which it goes on.
    fn stop(&mut self, queue: PairQueue) -> u16;
}

/// One of a guest's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairQueue {
    /// The number of its pair, from 0 on.
    pub pair: usize,
    pub queue: Queue,
}

impl PairQueue {
    /// That of a ring by its number in vhost-user.
    fn of_ring(ring: usize) -> Self {
        let queue = if ring.is_multiple_of(2) {
            Queue::Receive
        } else {
            Queue::Transmit
        };
        Self {
            pair: ring / 2,
            queue,
        }
    }
}

/// A ring that is to run.
#[derive(Debug)]
pub(crate) struct RunningRing {
    pub start: RingStart,
    /// Readable when the guest has rung.
    pub kick: OwnedFd,
    /// Interrupts the guest; none where that only polls.
    pub call: Option<OwnedFd>,
    /// Tells the monitor that the ring is broken.
    pub error: Option<OwnedFd>,
    /// What the guest sends by it is lost: the monitor has disabled it.
    pub discards: bool,
}

/// Why a session has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The usual mistake.
    #[error(
        "the monitor does not share the guest's memory: start QEMU with memory-backend-memfd,share=on (`wireboot nic args` prints all arguments)"
    )]
    NoSharedMemory,
    /// Memory that is shared and cannot be.
    #[error("the monitor sent {0}")]
    Memory(#[from] MapError),
    /// Features that nobody offered.
    #[error("the monitor wants features {0:#x}, which were not offered")]
    Features(u64),
    /// A ring of a pair that there is not.
    #[error("the monitor speaks of ring {ring}, and this card has {rings}")]
    Ring { ring: usize, rings: usize },
    /// A ring longer than any.
    #[error("the monitor sent a ring of {0} entries")]
    Size(u32),
    /// An index beyond 16 bits.
    #[error("the monitor sent {0} as the index of a ring")]
    Base(u32),
    /// It rings no doorbell.
    #[error("the monitor sent a ring without a descriptor for its doorbell")]
    NoKick,
    /// Too few or too many descriptors.
    #[error("the monitor sent {0} descriptors with a message that has another number of them")]
    Descriptors(usize),
    #[error("a descriptor of the monitor's: {0}")]
    Kernel(#[from] Errno),
}

/// What the monitor is told in answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nothing,
    Number(u64),
    Base { ring: usize, base: u16 },
}

impl Reply {
    /// The bytes of the answer; none where there is no answer.
    pub(crate) fn bytes(self) -> Option<[u8; 8]> {
        match self {
            Self::Nothing => None,
            Self::Number(number) => Some(number.to_le_bytes()),
            Self::Base { ring, base } => Some((ring as u64 | u64::from(base) << 32).to_le_bytes()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Addresses {
    descriptors: u64,
    used: u64,
    available: u64,
}

/// What is known of a ring.
#[derive(Debug, Default)]
struct Ring {
    size: u16,
    addresses: Option<Addresses>,
    base: u16,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    /// As the monitor said.
    enabled: Option<bool>,
    /// It has run while it was enabled, since its doorbell came.
    was_enabled: bool,
    running: bool,
}

impl Ring {
    /// It stands still until it gets another one.
    fn forget_doorbell(&mut self) {
        self.kick = None;
        self.was_enabled = false;
    }
}

/// A monitor's session. Its rings stop when it is dropped.
#[derive(Debug)]
pub(crate) struct Session<R: Rings> {
    card: R,
    offered: u64,
    features: u64,
    protocol_features: Option<u64>,
    memory: Vec<MemoryRegion>,
    /// The memory's file can be made shorter, and nobody was told yet.
    is_open: bool,
    rings: Vec<Ring>,
}

impl<R: Rings> Session<R> {
    /// The card offers its guest these features, and so many pairs of queues ([`MAX_PAIRS`] at most).
    pub(crate) fn new(card: R, offered: u64, pairs: usize) -> Self {
        let rings = 2 * pairs.min(MAX_PAIRS);
        Self {
            card,
            offered: offered | PROTOCOL_FEATURES,
            features: 0,
            protocol_features: None,
            memory: Vec::new(),
            is_open: false,
            rings: (0..rings).map(|_| Ring::default()).collect(),
        }
    }

    /// Whether memory has come whose file can be made shorter, which would end this process. Once for each.
    pub(crate) fn take_open_memory(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }

    /// The monitor has told the features that its guest uses, and shared no memory: it cannot.
    pub(crate) fn lacks_memory(&self) -> bool {
        self.features != 0 && self.memory.is_empty()
    }

    /// The protocol features. Cloud Hypervisor counts queues where QEMU counts pairs: with one pair it is told no number, and takes two queues.
    fn protocol_offered(&self) -> u64 {
        if self.rings.len() > 2 {
            MULTI_QUEUE | REPLY_ACK
        } else {
            REPLY_ACK
        }
    }

    /// Does what the message says. The answer is none where the message has none, and the monitor did not ask.
    ///
    /// # Errors
    /// [`SessionError`]; the session is then of no more use.
    pub(crate) fn obey(&mut self, message: Message) -> Result<Reply, SessionError> {
        let asks = message.need_reply && self.protocol_features.is_some_and(|f| f & REPLY_ACK != 0);
        Ok(match self.request(message.request, message.fds)? {
            Reply::Nothing if asks => Reply::Number(0),
            reply => reply,
        })
    }

    fn request(&mut self, request: Request, fds: Vec<OwnedFd>) -> Result<Reply, SessionError> {
        match request {
            Request::GetFeatures => {
                return Ok(Reply::Number(self.offered));
            }
            Request::GetProtocolFeatures => {
                return Ok(Reply::Number(self.protocol_offered()));
            }
            Request::GetQueueNumber => return Ok(Reply::Number(self.rings.len() as u64 / 2)),
            Request::SetOwner => {}
            Request::ResetOwner => {
                for ring in 0..self.rings.len() {
                    self.change(ring, Ring::forget_doorbell)?;
                }
            }
            Request::SetFeatures(features) => {
                if features & !self.offered != 0 {
                    return Err(SessionError::Features(features));
                }
                self.pause_all();
                self.features = features;
                self.card.agree(features & !PROTOCOL_FEATURES);
                self.start_all()?;
            }
            Request::SetProtocolFeatures(features) => {
                if features & !self.protocol_offered() != 0 {
                    return Err(SessionError::Features(features));
                }
                self.protocol_features = Some(features);
            }
            Request::SetMemoryTable(regions) => self.set_memory(regions, fds)?,
            Request::SetRingSize { ring, size } => {
                let size = u16::try_from(size).map_err(|_| SessionError::Size(size))?;
                self.change(ring, |ring| ring.size = size)?;
            }
            Request::SetRingAddresses {
                ring,
                descriptors,
                used,
                available,
            } => {
                let addresses = Addresses {
                    descriptors,
                    used,
                    available,
                };
                self.change(ring, |ring| ring.addresses = Some(addresses))?;
            }
            Request::SetRingBase { ring, base } => {
                let base = u16::try_from(base).map_err(|_| SessionError::Base(base))?;
                self.change(ring, |ring| ring.base = base)?;
            }
            Request::GetRingBase { ring } => {
                self.change(ring, Ring::forget_doorbell)?;
                let base = self.rings.get(ring).map_or(0, |ring| ring.base);
                return Ok(Reply::Base { ring, base });
            }
            Request::SetRingEvent { ring, event, fd } => {
                self.set_ring_event(ring, event, fd, fds)?
            }
            Request::SetRingEnable { ring, enable } => {
                self.change(ring, |ring| ring.enabled = Some(enable))?;
            }
        }
        Ok(Reply::Nothing)
    }

    fn set_memory(
        &mut self,
        regions: Vec<MemoryRegion>,
        fds: Vec<OwnedFd>,
    ) -> Result<(), SessionError> {
        if fds.is_empty() {
            return Err(SessionError::NoSharedMemory);
        }
        if fds.len() != regions.len() {
            return Err(SessionError::Descriptors(fds.len()));
        }
        let place = |region: &MemoryRegion| Place {
            guest: region.guest,
            len: region.len,
            offset: region.offset,
        };
        let parts: Vec<_> = regions.iter().map(place).zip(fds).collect();
        let mapping = Mapping::new(&parts)?;
        self.is_open = !mapping.is_sealed();
        self.pause_all();
        self.card.set_memory(Some(mapping));
        self.memory = regions;
        self.start_all()
    }

    fn set_ring_event(
        &mut self,
        ring: usize,
        event: RingEvent,
        wanted: bool,
        fds: Vec<OwnedFd>,
    ) -> Result<(), SessionError> {
        if fds.len() != usize::from(wanted) {
            return Err(SessionError::Descriptors(fds.len()));
        }
        let fd = fds.into_iter().next();
        if let Some(fd) = &fd {
            // Whatever it is, nobody waits for it.
            ioctl_fionbio(fd, true)?;
        }
        match event {
            RingEvent::Kick if fd.is_none() => Err(SessionError::NoKick),
            RingEvent::Kick => self.change(ring, |ring| ring.kick = fd),
            RingEvent::Error => self.change(ring, |ring| ring.error = fd),
            // Monitors change it all the time: nothing stops for that.
            RingEvent::Call => {
                let known = self.known(ring)?;
                known.call = fd;
                if known.running {
                    let call = duplicate(known.call.as_ref())?;
                    self.card.set_call(PairQueue::of_ring(ring), call);
                }
                Ok(())
            }
        }
    }

    /// Changes what is known of a ring while it does not run.
    fn change(&mut self, ring: usize, change: impl FnOnce(&mut Ring)) -> Result<(), SessionError> {
        self.pause(ring);
        change(self.known(ring)?);
        self.start(ring)
    }

    fn known(&mut self, ring: usize) -> Result<&mut Ring, SessionError> {
        let rings = self.rings.len();
        let known = self.rings.get_mut(ring);
        known.ok_or(SessionError::Ring { ring, rings })
    }

    fn pause(&mut self, ring: usize) {
        if let Some(known) = self.rings.get_mut(ring)
            && known.running
        {
            known.base = self.card.stop(PairQueue::of_ring(ring));
            known.running = false;
        }
    }

    fn pause_all(&mut self) {
        for ring in 0..self.rings.len() {
            self.pause(ring);
        }
    }

    fn start_all(&mut self) -> Result<(), SessionError> {
        for ring in 0..self.rings.len() {
            self.start(ring)?;
        }
        Ok(())
    }

    /// Starts a ring if all is there. One that is no longer enabled gives the guest nothing, and loses what the guest sends (vhost-user, "Ring
    /// states"). One that is not enabled yet is left alone: the guest may send before the monitor's message is read.
    fn start(&mut self, ring: usize) -> Result<(), SessionError> {
        // Without protocol features there is no request to enable a ring.
        let implied = self.features & PROTOCOL_FEATURES == 0 && self.protocol_features.is_none();
        let queue = PairQueue::of_ring(ring);
        let Some(ring) = self.rings.get_mut(ring) else {
            return Ok(());
        };
        let (Some(addresses), Some(kick)) = (ring.addresses, &ring.kick) else {
            return Ok(());
        };
        let enabled = ring.enabled.unwrap_or(implied);
        let discards = !enabled && ring.was_enabled && queue.queue == Queue::Transmit;
        let waits = !enabled && !discards;
        if waits || ring.size == 0 || self.memory.is_empty() {
            return Ok(());
        }
        let guest = |user| to_guest(&self.memory, user);
        let start = RingStart {
            layout: RingLayout {
                size: ring.size,
                descriptors: guest(addresses.descriptors),
                available: guest(addresses.available),
                used: guest(addresses.used),
            },
            base: ring.base,
            features: self.features,
        };
        let running = RunningRing {
            start,
            kick: kick.try_clone().map_err(kernel)?,
            call: duplicate(ring.call.as_ref())?,
            error: duplicate(ring.error.as_ref())?,
            discards,
        };
        ring.running = true;
        ring.was_enabled |= enabled;
        self.card.start(queue, running);
        Ok(())
    }
}

impl<R: Rings> Drop for Session<R> {
    fn drop(&mut self) {
        self.pause_all();
        self.card.set_memory(None);
        self.card.agree(0);
    }
}

/// The guest's address of a place in the monitor's memory. One that is nowhere becomes one that is in no guest, so that the ring is refused.
fn to_guest(memory: &[MemoryRegion], user: u64) -> u64 {
    let found = memory.iter().find_map(|region| {
        let offset = user.checked_sub(region.user)?;
        (offset < region.len).then(|| region.guest.wrapping_add(offset))
    });
    found.unwrap_or(!0xfff)
}

fn duplicate(fd: Option<&OwnedFd>) -> Result<Option<OwnedFd>, SessionError> {
    fd.map(OwnedFd::try_clone)
        .transpose()
        .map_err(|error| kernel(error).into())
}

fn kernel(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
