//! Intel's 82574 (PCI Express) and 82540EM and 82545EM (PCI) Ethernet controllers, in poll mode: the
//! register-compatible chips that hypervisors call e1000e and e1000. One receive and one transmit ring of legacy descriptors,
//! which all of them share, and no interrupts. Facts from the 82574 datasheet and the PCI/PCI-X Family of
//! Gigabit Ethernet Controllers Software Developer's Manual.
//!
//! The chip is not trusted: lengths are checked, descriptors are looked at only while the chip has them, and the first
//! lie ends its use with [`Fault::Misbehaved`]. All memory that it can reach lives until it has confirmed a reset.

pub(crate) mod receive;
pub(crate) mod registers;
pub(crate) mod ring;
pub(crate) mod transmit;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem;

use crate::platform::{PciFunction, PlatformError};
use crate::vlan::TAG_LEN;
use crate::{Counters, Fault, Nic, NicState, Properties, Transmit as _};
pub use receive::E1000eReceive;
use registers::{Chip, HEAD, RCTL, RECEIVE, TCTL, TRANSMIT, rctl, tctl};
use ring::Ring;
pub use transmit::E1000eTransmit;

const VENDOR_INTEL: u16 = 0x8086;
/// 82574L and 82574LA.
const EXPRESS: [u16; 2] = [0x10d3, 0x10f6];
/// 82540EM and 82545EM.
const CONVENTIONAL: [u16; 2] = [0x100e, 0x100f];

const ETHERNET_LEN: usize = 14;
const MTU: u16 = 1500;
/// Longest frame, link header and VLAN tag included.
const MAX_FRAME: usize = MTU as usize + ETHERNET_LEN + TAG_LEN;

/// 12 ms of full-size frames at 1 Gbit/s.
const RECEIVE_RING: u16 = 1024;
const TRANSMIT_RING: u16 = 256;
/// Receive buffers go back to the chip when there are so many: a register's write takes a virtual machine some
/// microseconds.
const REFILL: u16 = 32;

/// How long the last frames may take before a stop, in microseconds.
const DRAIN_MICROS: u32 = 10_000;

/// Why a controller could not be started. It has been reset, unless it is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The machine gave no memory or no registers.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// Registers read as all ones.
    #[error("the network card is gone (removed or powered down)")]
    Removed,
    /// The chip did not finish a reset in time.
    #[error("the Intel network card does not finish its reset; power the machine off and on")]
    ResetTimeout,
    /// The chip has no valid address of its own.
    #[error("the Intel network card has no valid MAC address; its EEPROM may be damaged")]
    NoMac,
    /// The chip says something impossible. The text says what.
    #[error("the Intel network card misbehaves: {0}")]
    Misbehaved(&'static str),
}

/// True for the PCI ids of the controllers that this driver knows.
pub fn supports(vendor: u16, device: u16) -> bool {
    vendor == VENDOR_INTEL && (EXPRESS.contains(&device) || CONVENTIONAL.contains(&device))
}

/// The chip, as both halves share it: the registers, the state, and the memory that the chip can reach.
struct SharedChip<P: PciFunction> {
    pci: P,
    chip: Chip<P::Bar>,
    state: Cell<NicState>,
    /// The chip has confirmed that it stopped, or is gone.
    quiet: Cell<bool>,
    memory: RefCell<Vec<P::Dma>>,
}

impl<P: PciFunction> SharedChip<P> {
    fn reset(&self) -> bool {
        self.chip.reset(|| self.pci.stall_microsecond())
    }

    /// Ends the use of the chip: resets it, and leaves it alone from then on.
    fn end(&self, state: NicState) {
        self.state.set(state);
        self.quiet.set(self.reset());
    }

    fn fail(&self, fault: Fault) -> Fault {
        self.end(NicState::Failed(fault));
        fault
    }

    /// `Ok(false)` when the driver was stopped.
    fn running(&self) -> Result<bool, Fault> {
        self.state.get().running()
    }

    /// Asks the chip how it is. Register reads: not for each packet.
    fn check(&self) -> Result<(), Fault> {
        let chip = &self.chip;
        let enabled = chip.read(RCTL) & rctl::EN != 0 && chip.read(TCTL) & tctl::EN != 0;
        let inside = chip.read(RECEIVE + HEAD) < RECEIVE_RING.into()
            && chip.read(TRANSMIT + HEAD) < TRANSMIT_RING.into();
        if chip.is_gone() {
            Err(self.fail(Fault::Removed))
        } else if !enabled {
            Err(self.fail(Fault::Misbehaved("it was reset without being asked to")))
        } else if !inside {
            Err(self.fail(Fault::Misbehaved("it works beyond the end of a ring")))
        } else {
            Ok(())
        }
    }
}

impl<P: PciFunction> Drop for SharedChip<P> {
    fn drop(&mut self) {
        if let NicState::Running = self.state.get() {
            self.end(NicState::Stopped);
        }
        if !self.quiet.get() {
            // Better lost than given to someone else while the chip may still write to it.
            mem::forget(self.memory.take());
        }
    }
}

/// An Intel controller in use. Dropping it resets the chip.
pub struct E1000e<P: PciFunction> {
    shared: Rc<SharedChip<P>>,
    rx: E1000eReceive<P>,
    tx: E1000eTransmit<P>,
    properties: Properties,
}

// SAFETY: the halves and the chip share an `Rc`, but all of it is in here: the halves are lent by `split` and never given
// away. So it may change processor as a whole.
unsafe impl<P: PciFunction + Send> Send for E1000e<P>
where
    P::Bar: Send,
    P::Dma: Send,
{
}

impl<P: PciFunction> E1000e<P> {
    /// Resets the chip behind `pci`, one that [`supports`] knows, and starts it. The link may need some seconds after
    /// that.
    ///
    /// # Errors
    /// [`InitError`]; the chip is then reset again.
    pub fn new(pci: P) -> Result<Self, InitError> {
        let device = (pci.config32(0) >> 16) as u16;
        let shared = Rc::new(SharedChip {
            chip: Chip::new(&pci, EXPRESS.contains(&device))?,
            pci,
            state: Cell::new(NicState::Running),
            quiet: Cell::new(false),
            memory: RefCell::new(Vec::new()),
        });
        // From here on, an error drops `shared`, which resets the chip before memory is given back.
        let chip = &shared.chip;
        if chip.is_gone() {
            return Err(InitError::Removed);
        }
        if !shared.reset() {
            return Err(InitError::ResetTimeout);
        }
        chip.wait_for_eeprom(|| shared.pci.stall_microsecond());
        if chip.is_gone() {
            return Err(InitError::Removed);
        }
        let mac = chip.mac().ok_or(InitError::NoMac)?;
        let receive = Ring::new(&shared, RECEIVE_RING)?;
        let transmit = Ring::new(&shared, TRANSMIT_RING)?;
        chip.start(&receive, &transmit);

        let receive_frames = usize::from(RECEIVE_RING - REFILL);
        let properties = Properties {
            mac,
            mtu: MTU,
            max_receive: MAX_FRAME,
            receive_frames,
            receive_frames_probe: 0,
            receive_bytes: receive_frames * MAX_FRAME,
            transmit_checksum: false,
            transmit_unit: 0,
        };
        let mut rx = E1000eReceive::new(shared.clone(), receive);
        rx.refill();
        let tx = E1000eTransmit::new(shared.clone(), transmit);
        Ok(Self {
            shared,
            rx,
            tx,
            properties,
        })
    }
}

impl<P: PciFunction> Nic for E1000e<P> {
    type Rx<'a>
        = &'a mut E1000eReceive<P>
    where
        P: 'a;
    type Tx<'a>
        = &'a mut E1000eTransmit<P>
    where
        P: 'a;

    fn properties(&self) -> Properties {
        self.properties
    }

    /// Also asks the chip for its health: a fault found here is returned by the next call of either half.
    fn link_up(&mut self) -> bool {
        self.shared.running() == Ok(true)
            && self.shared.check().is_ok()
            && self.shared.chip.link_up()
    }

    fn split(&mut self) -> (&mut E1000eReceive<P>, &mut E1000eTransmit<P>) {
        (&mut self.rx, &mut self.tx)
    }

    fn counters(&self) -> Counters {
        let (rx, tx) = (self.rx.counters(), self.tx.counters());
        Counters {
            receive_units: rx.receive_units,
            receive_bytes: rx.receive_bytes,
            receive_dropped: rx.receive_dropped,
            receive_doorbells: rx.receive_doorbells,
            ..tx
        }
    }

    /// Sends what is queued first, so that a last acknowledgement is not lost.
    fn stop(&mut self) {
        if self.shared.running() != Ok(true) || self.tx.flush().is_err() {
            return;
        }
        for _ in 0..DRAIN_MICROS {
            if self.tx.idle() {
                break;
            }
            self.shared.pci.stall_microsecond();
        }
        self.shared.end(NicState::Stopped);
    }
}
