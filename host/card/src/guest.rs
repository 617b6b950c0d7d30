//! A virtio network device in this process, whose queues a card at a socket works on: what a monitor is to a guest, for our own driver. So the
//! driver and engine that run in firmware use any vhost-user card, without a virtual machine.
//!
//! ```text
//!   wireboot_nic's driver ──registers──> device ──messages──> card
//!            └──────────── memory, doorbells ───────────────────┘
//! ```

mod device;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod hostile;
mod machine;
mod memory;
mod registers;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
#[cfg(any(test, feature = "counting"))]
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use wireboot_nic::MacAddress;
use wireboot_nic::platform::{PciFunction, PlatformError};

use self::device::Device;
pub(crate) use self::machine::{Machine, MachineError, Version};
use self::memory::{FileMemory, MemfdPool, Piece};
use self::registers::{BAR, GuestBar};
use crate::vhost::{FrontEnd, FrontEndError, Offered};

/// A device at a card. One driver at a time.
pub(crate) struct Guest(Rc<RefCell<Device>>);

impl Guest {
    /// Connects to the card that listens at `path`, for a device with this address.
    ///
    /// # Errors
    /// [`FrontEndError`].
    pub(crate) fn connect(path: &Path, mac: MacAddress) -> Result<Self, FrontEndError> {
        let card = FrontEnd::connect(path)?;
        Ok(Self(Rc::new(RefCell::new(Device::new(card, mac)?))))
    }

    /// The same with the card at the other end of a socket.
    ///
    /// # Errors
    /// [`FrontEndError`].
    #[cfg(any(test, feature = "counting"))]
    pub(crate) fn over(socket: UnixStream, mac: MacAddress) -> Result<Self, FrontEndError> {
        let card = FrontEnd::over(socket)?;
        Ok(Self(Rc::new(RefCell::new(Device::new(card, mac)?))))
    }

    /// What the card offers.
    pub(crate) fn offered(&self) -> Offered {
        self.0.borrow().offered()
    }

    /// Of that, what the driver uses.
    pub(crate) fn accepted(&self) -> u64 {
        self.0.borrow().accepted()
    }

    /// Why the device is gone, if it is.
    pub(crate) fn take_failure(&self) -> Option<FrontEndError> {
        self.0.borrow_mut().take_failure()
    }

    /// The function for a driver, with memory of its own.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn pci(&self) -> io::Result<GuestPci> {
        let memory = MemfdPool::new()?;
        self.0.borrow_mut().set_memory(memory.clone());
        Ok(GuestPci {
            device: self.0.clone(),
            memory,
        })
    }
}

/// The device as a PCI function.
pub(crate) struct GuestPci {
    device: Rc<RefCell<Device>>,
    memory: Arc<MemfdPool>,
}

impl GuestPci {
    /// Memory for files, which the card sees, too.
    fn file_memory(&self) -> FileMemory {
        FileMemory(self.memory.clone())
    }
}

impl PciFunction for GuestPci {
    type Dma = Piece;
    type Bar = GuestBar;

    fn config32(&self, offset: u8) -> u32 {
        registers::config32(offset)
    }

    fn map_bar(&self, index: u8) -> Result<GuestBar, PlatformError> {
        if index != BAR {
            return Err(PlatformError::NoBar(index));
        }
        Ok(GuestBar::new(self.device.clone()))
    }

    fn allocate(&self, len: usize) -> Result<Piece, PlatformError> {
        self.memory.allocate(len)
    }

    /// Lets the card run, too, where there are few processors.
    fn stall_microsecond(&self) {
        std::thread::sleep(std::time::Duration::from_micros(1));
    }
}
