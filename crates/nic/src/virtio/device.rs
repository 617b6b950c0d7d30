//! What the queue pairs of a device share, on whichever processors they are: its registers and whether it is in use. And the one owner, who
//! resets the device and gives its memory back.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::transport::{Transport, status};
use crate::Fault;
use crate::platform::{PciFunction, PlatformError};

/// No fault lies at this address.
const STOPPED: *mut Fault = ptr::without_provenance_mut(1);

/// A device, as its queue pairs share it: each holds on to it.
pub(super) struct SharedDevice<B> {
    /// Once the device runs, pairs ring their own doorbells and read; all other writes are the owner's.
    pub transport: Transport<B>,
    /// Null while the device is in use, then for good [`STOPPED`] or the first fault, which is of static life.
    state: AtomicPtr<Fault>,
}

impl<B> SharedDevice<B> {
    pub(super) fn new(transport: Transport<B>) -> Self {
        Self {
            transport,
            state: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// `Ok(false)` when the driver was stopped.
    #[inline]
    fn running(&self) -> Result<bool, Fault> {
        // Nothing is read that was written before the state: a fault that it points to has always been there.
        let state = self.state.load(Ordering::Relaxed);
        if state.is_null() {
            return Ok(true);
        }
        ended(state)
    }

    /// Ends the use of the device by all pairs, and tells what ended it: whoever comes first is right.
    fn end(&self, state: *mut Fault) -> Result<bool, Fault> {
        let running = ptr::null_mut();
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let changed = self
            .state
            .compare_exchange(running, state, success, failure);
        ended(changed.map_or_else(|earlier| earlier, |_| state))
    }
}

/// A state that is not null.
#[cold]
fn ended(state: *mut Fault) -> Result<bool, Fault> {
    if state == STOPPED {
        return Ok(false);
    }
    // SAFETY: the state is set by `SharedDevice::end` only. Its callers, all in this module, give it `STOPPED` or what they got as a
    // `&'static Fault`, which is valid for good and never written.
    Err(unsafe { *state })
}

/// The one owner of a device, who started it and ends its use.
pub(super) struct Device<P: PciFunction> {
    pci: P,
    pub shared: Arc<SharedDevice<P::Bar>>,
    /// After the reset that ended the use: the device has confirmed that it stopped, or is gone.
    quiet: Cell<Option<bool>>,
    /// All that the device can reach. Only here, as giving it back calls the firmware.
    memory: Vec<P::Dma>,
}

impl<P: PciFunction> Device<P> {
    pub(super) fn new(pci: P, transport: Transport<P::Bar>) -> Self {
        Self {
            pci,
            shared: Arc::new(SharedDevice::new(transport)),
            quiet: Cell::new(None),
            memory: Vec::new(),
        }
    }

    /// Memory for the device, which keeps its place until the owner is dropped, and longer where a pair still has its queues in it.
    pub(super) fn allocate(&mut self, len: usize) -> Result<&P::Dma, PlatformError> {
        let memory = self.pci.allocate(len)?;
        self.memory.push(memory);
        self.memory.last().ok_or(PlatformError::OutOfMemory)
    }

    /// The owner as one who uses queues.
    pub(super) fn user(&self) -> User<'_, P> {
        User {
            shared: &self.shared,
            owner: Some(self),
            stopped: false,
        }
    }

    pub(super) fn stall_microsecond(&self) {
        self.pci.stall_microsecond();
    }

    /// True when the device has stopped, or is gone.
    pub(super) fn reset(&self) -> bool {
        self.shared.transport.reset(|| self.pci.stall_microsecond())
    }

    /// Ends the use of the device: resets it, unless a fault did before.
    pub(super) fn stop(&self) {
        // Told first, so that a pair that finds the device in reset knows why.
        let _ = self.shared.end(STOPPED);
        self.leave();
    }

    /// The device has confirmed that it stopped, or is gone.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.get() == Some(true)
    }

    /// Resets the device for the last time, and leaves it alone from then on.
    fn leave(&self) {
        if self.quiet.get().is_none() {
            self.quiet.set(Some(self.reset()));
        }
    }
}

impl<P: PciFunction> Drop for Device<P> {
    fn drop(&mut self) {
        self.stop();
        // True when each pair is gone and all that it did to its queues has happened: its last use of them comes before it lets go of its
        // `Arc`, and `get_mut` sees the letting go with acquire ordering.
        let alone = Arc::get_mut(&mut self.shared).is_some();
        if !self.is_quiet() || !alone {
            // Better lost than given to someone else while the device may still write to it, or a pair look at it.
            mem::forget(mem::take(&mut self.memory));
        }
    }
}

/// Who uses a queue: the owner of the device, or one of its other pairs.
pub(super) struct User<'a, P: PciFunction> {
    pub shared: &'a SharedDevice<P::Bar>,
    /// The device, for its owner.
    pub owner: Option<&'a Device<P>>,
    /// The pair was stopped, whatever the device does.
    pub stopped: bool,
}

impl<P: PciFunction> Clone for User<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: PciFunction> Copy for User<'_, P> {}

impl<P: PciFunction> User<'_, P> {
    /// `Ok(false)` when the driver was stopped. A fault that another pair has met makes the owner reset the device.
    #[inline]
    pub(super) fn running(&self) -> Result<bool, Fault> {
        if self.stopped {
            return Ok(false);
        }
        match self.shared.running() {
            Err(fault) => Err(self.left(fault)),
            running => running,
        }
    }

    /// The device broke its contract: it is used no more. Tells which fault ended its use, or `Ok(false)` when the driver was stopped
    /// meanwhile.
    #[cold]
    pub(super) fn fail(&self, fault: &'static Fault) -> Result<bool, Fault> {
        let ended = self.shared.end(ptr::from_ref(fault).cast_mut());
        ended.map_err(|fault| self.left(fault))
    }

    #[cold]
    fn left(&self, fault: Fault) -> Fault {
        if let Some(owner) = self.owner {
            owner.leave();
        }
        fault
    }

    /// Asks the device how it is. A register read: not for each packet.
    pub(super) fn check(&self) -> Result<bool, Fault> {
        let status = self.shared.transport.status();
        if status == status::GONE {
            self.fail(&Fault::Removed)
        } else if status & status::DEVICE_NEEDS_RESET != 0 {
            self.fail(&Fault::NeedsReset)
        } else if status & status::DRIVER_OK == 0 {
            self.fail(&Fault::Misbehaved("it was reset without being asked to"))
        } else {
            Ok(true)
        }
    }
}
