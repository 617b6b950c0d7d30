//! virtio-net (virtio 1.2, section 5.1) over PCI, in poll mode: one receive and one transmit queue, no
//! interrupts, a doorbell only when the device asks for one.
//!
//! The device is not trusted: what it writes (numbers, lengths, counts, indices, configuration) is
//! checked, and the first lie ends its use with [`Fault::Misbehaved`]. All memory that it can reach lives
//! until it has confirmed a reset.

mod queue;
mod receive;
mod transmit;
pub(crate) mod transport;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem;
use core::ptr::NonNull;

use crate::platform::{DmaMemory, PciFunction, PlatformError, Registers};
use crate::vlan::TAG_LEN;
use crate::{Counters, Fault, MacAddress, Nic, Properties, Transmit as _};
use queue::{Layout, Queue};
pub use receive::VirtioReceive;
pub use transmit::VirtioTransmit;
use transport::{Transport, status};

/// Feature bits (virtio 1.2, sections 5.1.3 and 6).
pub(crate) mod feature {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const MTU: u64 = 1 << 3;
    pub const MAC: u64 = 1 << 5;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
    pub const VERSION_1: u64 = 1 << 32;
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    pub const ORDER_PLATFORM: u64 = 1 << 36;
    pub const GUEST_USO4: u64 = 1 << 54;
    pub const GUEST_USO6: u64 = 1 << 55;

    /// The device hands over units larger than a frame.
    pub const COALESCING: u64 = GUEST_TSO4 | GUEST_TSO6 | GUEST_USO4 | GUEST_USO6;

    /// All that this driver knows how to use. EVENT_IDX is left out on purpose: with it QEMU asks for a doorbell
    /// after every frame that it delivers, and each takes the machine's global lock. The platform's DMA addresses serve ACCESS_PLATFORM; the
    /// ordering of processors with UEFI serves ORDER_PLATFORM.
    pub const KNOWN: u64 = CSUM
        | GUEST_CSUM
        | MTU
        | MAC
        | MRG_RXBUF
        | STATUS
        | VERSION_1
        | ACCESS_PLATFORM
        | ORDER_PLATFORM
        | COALESCING;
}

// struct virtio_net_config
const CONFIG_MAC: usize = 0;
const CONFIG_STATUS: usize = 6;
const CONFIG_MTU: usize = 10;
const VIRTIO_NET_S_LINK_UP: u16 = 1;

const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;

/// Length of `struct virtio_net_hdr_v1`, which precedes each unit in its buffer.
const HEADER_LEN: usize = 12;
const ETHERNET_LEN: usize = 14;

/// Fewer buffers than this could not hold one large unit.
const QUEUE_SIZE_MIN: u16 = 32;
const RECEIVE_QUEUE_MAX: u16 = 1024;
/// Enough with buffers for whole large units; more only leave the processor's cache.
const RECEIVE_QUEUE_LARGE: u16 = 128;
const TRANSMIT_QUEUE_MAX: u16 = 256;

/// Least length of a mergeable buffer, and what all of them hold: a short ring, such as QEMU's default of 256,
/// has longer buffers instead, so that large units find as much room.
const MERGEABLE_BUFFER: usize = 4096;
const MERGEABLE_TOTAL: usize = RECEIVE_QUEUE_MAX as usize * MERGEABLE_BUFFER;
/// At least the 65,562 bytes that the specification asks for when units are large and not mergeable.
const LARGE_BUFFER: usize = 66 * 1024;
/// Buffers for single frames are multiples of this.
const FRAME_BUFFER: usize = 2048;
/// Largest unit that a device may coalesce: what remains of 65,562 bytes behind the header.
const MAX_UNIT: usize = 65_562 - HEADER_LEN;
/// Largest MTU that is used; devices that offer more get frames of this one.
const MAX_MTU: u16 = 9216;
/// The least that IPv4 asks of a link (RFC 791), and the specification of a device.
const MIN_MTU: u16 = 68;

/// How long the last frames may take before a stop, in microseconds.
const DRAIN_MICROS: u32 = 10_000;

/// Why a virtio-net device could not be started. It has been reset, unless it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The machine gave no memory or no registers.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// Registers read as all ones.
    #[error("the network device is gone (removed or powered down)")]
    Removed,
    /// The device has no modern (virtio 1.0 or later) interface.
    #[error("the virtio device is legacy only; start it with disable-modern=off")]
    Legacy,
    /// The device did not confirm a reset in time.
    #[error("the virtio device does not finish its reset")]
    ResetTimeout,
    /// The device refused a subset of the features that it offered.
    #[error("the virtio device refuses the features that it offered")]
    FeaturesRefused,
    /// The device has no address of its own.
    #[error("the virtio device has no valid MAC address; configure one")]
    NoMac,
    /// A queue is missing or unusably small.
    #[error("virtio queue {queue} has {size} entries; at least 32 are needed")]
    QueueSize {
        /// Queue number: 0 receives, 1 transmits.
        queue: u16,
        /// Size that the device offers.
        size: u16,
    },
    /// The device says something impossible. The text says what.
    #[error("the virtio device misbehaves: {0}")]
    Misbehaved(&'static str),
}

/// True for the PCI ids of virtio-net: the modern one and the transitional one.
pub fn supports(vendor: u16, device: u16) -> bool {
    vendor == 0x1af4 && matches!(device, 0x1000 | 0x1041)
}

#[derive(Clone, Copy)]
enum State {
    Running,
    Stopped,
    Failed(Fault),
}

/// What both halves share: the registers, the state, and the memory that the device can reach.
struct Shared<P: PciFunction> {
    pci: P,
    transport: Transport<P::Bar>,
    state: Cell<State>,
    /// The device has confirmed that it stopped, or is gone.
    quiet: Cell<bool>,
    memory: RefCell<Vec<P::Dma>>,
}

impl<P: PciFunction> Shared<P> {
    /// Ends the use of the device: resets it, and leaves it alone from then on.
    fn end(&self, state: State) {
        self.state.set(state);
        let quiet = self.transport.reset(|| self.pci.stall_microsecond());
        self.quiet.set(quiet);
    }

    fn fail(&self, fault: Fault) -> Fault {
        self.end(State::Failed(fault));
        fault
    }

    /// `Ok(false)` when the driver was stopped.
    fn running(&self) -> Result<bool, Fault> {
        match self.state.get() {
            State::Running => Ok(true),
            State::Stopped => Ok(false),
            State::Failed(fault) => Err(fault),
        }
    }

    /// Asks the device how it is. A register read: not for each packet.
    fn check(&self) -> Result<(), Fault> {
        let status = self.transport.status();
        if status == status::GONE {
            Err(self.fail(Fault::Removed))
        } else if status & status::DEVICE_NEEDS_RESET != 0 {
            Err(self.fail(Fault::NeedsReset))
        } else if status & status::DRIVER_OK == 0 {
            Err(self.fail(Fault::Misbehaved("it was reset without being asked to")))
        } else {
            Ok(())
        }
    }
}

impl<P: PciFunction> Drop for Shared<P> {
    fn drop(&mut self) {
        if let State::Running = self.state.get() {
            self.end(State::Stopped);
        }
        if !self.quiet.get() {
            // Better lost than given to someone else while the device may still write to it.
            mem::forget(self.memory.take());
        }
    }
}

/// A virtio-net device in use. Dropping it resets the device.
pub struct VirtioNet<P: PciFunction> {
    shared: Rc<Shared<P>>,
    rx: VirtioReceive<P>,
    tx: VirtioTransmit<P>,
    properties: Properties,
    /// The device tells the state of its link.
    tells_link: bool,
}

// SAFETY: the halves and the device share an `Rc`, but all of it is in here: the halves are lent by `split` and never given
// away. So it may change processor as a whole.
unsafe impl<P: PciFunction + Send> Send for VirtioNet<P>
where
    P::Bar: Send,
    P::Dma: Send,
{
}

impl<P: PciFunction> VirtioNet<P> {
    /// Resets the device behind `pci` and starts it with all features that both sides know.
    ///
    /// # Errors
    /// [`InitError`]; the device is then reset again.
    pub fn new(pci: P) -> Result<Self, InitError> {
        let transport = Transport::new(&pci)?;
        let shared = Rc::new(Shared {
            pci,
            transport,
            state: Cell::new(State::Running),
            quiet: Cell::new(false),
            memory: RefCell::new(Vec::new()),
        });
        // From here on, an error drops `shared`, which resets the device before memory is given back.
        let transport = &shared.transport;
        if !transport.reset(|| shared.pci.stall_microsecond()) {
            return Err(InitError::ResetTimeout);
        }
        if transport.status() == status::GONE {
            return Err(InitError::Removed);
        }
        transport.add_status(status::ACKNOWLEDGE | status::DRIVER);
        let features = negotiate(transport.device_features())?;
        if !transport.accept_features(features) {
            return Err(InitError::FeaturesRefused);
        }
        let has = |bits: u64| features & bits != 0;

        let mac = read_mac(transport, has(feature::MAC))?;
        let mut mtu = 1500;
        if has(feature::MTU) {
            mtu = transport.config16(CONFIG_MTU).min(MAX_MTU);
            if mtu < MIN_MTU {
                return Err(InitError::Misbehaved("an MTU below 68"));
            }
        }
        let frame = usize::from(mtu) + ETHERNET_LEN + TAG_LEN;
        let frame_buffer = (HEADER_LEN + frame).next_multiple_of(FRAME_BUFFER);
        let coalescing = has(feature::COALESCING);
        let max_receive = if coalescing { MAX_UNIT } else { frame };

        let mergeable = has(feature::MRG_RXBUF);
        let receive_max = if coalescing && !mergeable {
            RECEIVE_QUEUE_LARGE
        } else {
            RECEIVE_QUEUE_MAX
        };
        let receive_size = queue_size(transport, RECEIVE_QUEUE, receive_max)?;
        let buffers = usize::from(receive_size);
        let receive_buffer = match (mergeable, coalescing) {
            (true, true) => MERGEABLE_TOTAL / buffers,
            (true, false) => frame_buffer.max(MERGEABLE_BUFFER),
            (false, true) => LARGE_BUFFER,
            (false, false) => frame_buffer,
        };
        let transmit_size = queue_size(transport, TRANSMIT_QUEUE, TRANSMIT_QUEUE_MAX)?;
        let receive = Ring::new(&shared, RECEIVE_QUEUE, receive_size, receive_buffer)?;
        let transmit = Ring::new(&shared, TRANSMIT_QUEUE, transmit_size, frame_buffer)?;
        transport.add_status(status::DRIVER_OK);

        let properties = Properties {
            mac,
            mtu,
            max_receive,
            receive_frames: buffers / (HEADER_LEN + frame).div_ceil(receive_buffer),
            receive_bytes: buffers
                * match (mergeable, coalescing) {
                    (true, true) => receive_buffer,
                    (false, true) => MAX_UNIT,
                    (_, false) => frame,
                },
            transmit_checksum: has(feature::CSUM),
        };
        let mut rx = VirtioReceive::new(shared.clone(), receive, features, max_receive);
        rx.refill();
        let tx = VirtioTransmit::new(shared.clone(), transmit, frame, has(feature::CSUM));
        Ok(VirtioNet {
            shared,
            rx,
            tx,
            properties,
            tells_link: has(feature::STATUS),
        })
    }
}

/// The features to accept of those offered.
fn negotiate(offered: u64) -> Result<u64, InitError> {
    if offered & feature::VERSION_1 == 0 {
        return Err(InitError::Legacy);
    }
    let mut features = offered & feature::KNOWN;
    if features & feature::GUEST_CSUM == 0 {
        // Coalesced units come with partial checksums.
        features &= !feature::COALESCING;
    }
    Ok(features)
}

fn read_mac<B: Registers>(
    transport: &Transport<B>,
    has_mac: bool,
) -> Result<MacAddress, InitError> {
    let mac: MacAddress = core::array::from_fn(|n| transport.config8(CONFIG_MAC + n));
    let group = mac[0] & 1 != 0;
    if !has_mac || group || mac == [0; 6] {
        return Err(InitError::NoMac);
    }
    Ok(mac)
}

/// The size to use for a queue: what the device offers, up to `max`.
fn queue_size<B: Registers>(
    transport: &Transport<B>,
    queue: u16,
    max: u16,
) -> Result<u16, InitError> {
    let size = transport.queue_size_max(queue);
    if size < QUEUE_SIZE_MIN {
        return Err(InitError::QueueSize { queue, size });
    }
    if !size.is_power_of_two() {
        return Err(InitError::Misbehaved(
            "a queue size that is no power of two",
        ));
    }
    Ok(size.min(max))
}

/// A queue with its doorbell and one buffer of a fixed length for each descriptor.
struct Ring {
    queue: Queue,
    number: u16,
    doorbell: usize,
    buffers: NonNull<u8>,
    buffers_address: u64,
    buffer_len: usize,
}

impl Ring {
    /// Allocates memory for a queue and its buffers, and enables it in the device.
    fn new<P: PciFunction>(
        shared: &Shared<P>,
        number: u16,
        size: u16,
        buffer_len: usize,
    ) -> Result<Self, InitError> {
        let layout = Layout::new(size);
        let memory = shared.pci.allocate(layout.len)?;
        let buffers = shared.pci.allocate(buffer_len * usize::from(size))?;
        let ring = Ring {
            // SAFETY: the memory is zeroed, page aligned and long enough, and nothing else refers to it. It
            // lives in `shared`, which each half holds as long as its queue.
            queue: unsafe { Queue::new(memory.as_ptr(), size) },
            number,
            doorbell: shared.transport.enable_queue(
                number,
                size,
                memory.device_address(),
                layout,
            )?,
            buffers: buffers.as_ptr(),
            buffers_address: buffers.device_address(),
            buffer_len,
        };
        shared.memory.borrow_mut().extend([memory, buffers]);
        Ok(ring)
    }

    /// First byte of buffer `id`, as the processor sees it.
    fn buffer(&self, id: u16) -> NonNull<u8> {
        let id = id & (self.queue.size() - 1);
        // SAFETY: there are as many buffers as the queue has entries, one behind the other.
        unsafe { self.buffers.add(usize::from(id) * self.buffer_len) }
    }

    /// The same, as the device sees it.
    fn buffer_address(&self, id: u16) -> u64 {
        self.buffers_address + u64::from(id) * self.buffer_len as u64
    }
}

impl<P: PciFunction> Nic for VirtioNet<P> {
    type Rx<'a>
        = &'a mut VirtioReceive<P>
    where
        P: 'a;
    type Tx<'a>
        = &'a mut VirtioTransmit<P>
    where
        P: 'a;

    fn properties(&self) -> Properties {
        self.properties
    }

    /// Also asks the device for its health: a fault found here is returned by the next call of either half.
    fn link_up(&mut self) -> bool {
        if self.shared.running() != Ok(true) || self.shared.check().is_err() {
            return false;
        }
        let status = self.shared.transport.config16(CONFIG_STATUS);
        !self.tells_link || status & VIRTIO_NET_S_LINK_UP != 0
    }

    fn split(&mut self) -> (&mut VirtioReceive<P>, &mut VirtioTransmit<P>) {
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
        // A fault in the last frames has reset the device already.
        if self.shared.running() == Ok(true) {
            self.shared.end(State::Stopped);
        }
    }
}
