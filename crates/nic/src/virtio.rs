//! virtio-net (virtio 1.2, section 5.1) over PCI, in poll mode: no interrupts, a doorbell only when the device asks for one.
//!
//! A NIC is a pair of one receive and one transmit queue. Where the device has several pairs, each further one is a NIC of its own for an
//! AP (application processor) of its own ([`VirtioNet::with_pairs`], [`VirtioPair`]): on the way of a packet they share nothing that is
//! written.
//!
//! ```text
//!   VirtioNet            VirtioPair           VirtioPair
//!   first pair           second pair          third pair      each: receive ring, transmit ring, doorbells, counters
//!      |  '---------------------+-----------------'
//!      |                Arc<SharedDevice>: registers; running, stopped or the first fault
//!   Device: DMA memory of all, reset, the control queue
//! ```
//!
//! The device is not trusted: what it writes (numbers, lengths, counts, indices, configuration) is
//! checked, and the first lie ends its use with [`Fault::Misbehaved`]. All memory that it can reach lives
//! until it has confirmed a reset.

mod control;
mod device;
mod hello;
#[cfg(loom)]
pub mod loom_queue;
mod pair;
mod placed;
mod queue;
mod receive;
mod ring;
mod shape;
mod tables;
mod transmit;
pub(crate) mod transport;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use crate::platform::{PciFunction, PlatformError, Registers};
use crate::steering::Steering;
use crate::{
    Counters, Fault, LentMemory, MacAddress, Nic, Offload, Placer, Properties, SendError,
    Transmit as _,
};
use control::{Control, Offer};
use device::Device;
use pair::Queues;
pub use pair::VirtioPair;
pub use receive::VirtioReceive;
use shape::Shape;
pub use transmit::VirtioTransmit;
use transport::{Transport, status};
use wireboot_wire::card::hello::Hello;
use wireboot_wire::card::placement::{Ends, PlacementRequest, Region};

/// Feature bits (virtio 1.2, sections 5.1.3 and 6).
pub(crate) mod feature {
    pub(crate) const CSUM: u64 = 1 << 0;
    pub(crate) const GUEST_CSUM: u64 = 1 << 1;
    pub(crate) const MTU: u64 = 1 << 3;
    pub(crate) const MAC: u64 = 1 << 5;
    pub(crate) const GUEST_TSO4: u64 = 1 << 7;
    pub(crate) const GUEST_TSO6: u64 = 1 << 8;
    pub(crate) const GUEST_UFO: u64 = 1 << 10;
    pub(crate) const HOST_TSO4: u64 = 1 << 11;
    pub(crate) const HOST_TSO6: u64 = 1 << 12;
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
    pub(crate) const CTRL_VQ: u64 = 1 << 17;
    pub(crate) const MQ: u64 = 1 << 22;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const ACCESS_PLATFORM: u64 = 1 << 33;
    pub(crate) const ORDER_PLATFORM: u64 = 1 << 36;
    pub(crate) const GUEST_USO4: u64 = 1 << 54;
    pub(crate) const GUEST_USO6: u64 = 1 << 55;
    pub(crate) const RSS: u64 = 1 << 60;

    /// The device hands over units larger than a frame.
    pub(crate) const COALESCING: u64 =
        GUEST_TSO4 | GUEST_TSO6 | GUEST_UFO | GUEST_USO4 | GUEST_USO6;

    /// The device cuts TCP segments of both IP versions.
    pub(crate) const SEGMENTATION: u64 = HOST_TSO4 | HOST_TSO6;

    /// All that one queue pair knows how to use. EVENT_IDX is left out on purpose: with it QEMU asks for a doorbell
    /// after every frame that it delivers, and each takes the machine's global lock. The platform's DMA addresses serve ACCESS_PLATFORM; the
    /// ordering of processors with UEFI serves ORDER_PLATFORM.
    pub(crate) const KNOWN: u64 = CSUM
        | GUEST_CSUM
        | MTU
        | MAC
        | MRG_RXBUF
        | STATUS
        | VERSION_1
        | ACCESS_PLATFORM
        | ORDER_PLATFORM
        | COALESCING
        | SEGMENTATION;
}

// struct virtio_net_config
const CONFIG_MAC: usize = 0;
const CONFIG_STATUS: usize = 6;
const CONFIG_MTU: usize = 10;

/// Length of `struct virtio_net_hdr_v1`, which precedes each unit in its buffer.
const HEADER_LEN: usize = 12;
const ETHERNET_LEN: usize = 14;

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
    #[error("the network card is gone (removed or powered down)")]
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
    #[error("virtio queue {queue} has {size} entries, too few to be of use")]
    QueueSize {
        /// Queue number: even ones receive, odd ones transmit; behind all pairs comes the control queue.
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

/// Why a device does not spread its flows over queue pairs as told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpreadError {
    /// There are no such pairs.
    #[error("the network card was started with {there} queue pairs, not {wanted}")]
    NoSuchPairs {
        /// Pairs asked for.
        wanted: usize,
        /// As many as the device was started with.
        there: usize,
    },
    /// The device will not: it goes on as before.
    #[error("the network card refuses to use {0} queue pairs")]
    Refused(usize),
    /// The device failed, and is of no more use.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A virtio-net device in use, and its first queue pair. Dropping it resets the device.
///
/// It is the one to stop, to drop and to tell how many pairs are used. It should go last: memory that a [`VirtioPair`] still holds
/// when it is dropped is lost, as a pair on another AP could not give it back.
pub struct VirtioNet<P: PciFunction> {
    queues: Queues,
    /// The other pairs, until they are taken.
    others: Vec<VirtioPair<P>>,
    /// All pairs that were started.
    pairs: u16,
    control: Option<Control>,
    /// RSS was negotiated.
    hashes: bool,
    /// Behind the pairs, which must be gone when it is dropped.
    device: Device<P>,
}

impl<P: PciFunction> VirtioNet<P> {
    /// Resets the device behind `pci` and starts it with all features that both sides know.
    ///
    /// # Errors
    /// [`InitError`]; the device is then reset again.
    pub fn new(pci: P) -> Result<Self, InitError> {
        Self::with_pairs(pci, 1)
    }

    /// The same with up to `pairs` queue pairs, fewer where the device has fewer. It uses the first alone until [`Self::spread`].
    ///
    /// Each pair takes as much memory as the first; with too little for all of them, this fails.
    ///
    /// # Errors
    /// [`InitError`]; the device is then reset again.
    pub fn with_pairs(pci: P, pairs: usize) -> Result<Self, InitError> {
        let transport = Transport::new(&pci)?;
        let mut device = Device::new(pci, transport);
        // From here on, an error drops `device`, which resets it before memory is given back.
        let transport = &device.shared.transport;
        if !device.reset() {
            return Err(InitError::ResetTimeout);
        }
        if transport.status() == status::GONE {
            return Err(InitError::Removed);
        }
        transport.add_status(status::ACKNOWLEDGE | status::DRIVER);
        let offered = transport.device_features();
        let mut features = negotiate(offered)?;
        let offer = if pairs > 1 {
            Offer::read(transport, offered)?
        } else {
            None
        };
        if let Some(offer) = &offer {
            features |= offer.features;
        }
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
        let shape = Shape { features, mac, mtu };

        // SAFETY: `device` goes where the queues go, into the `VirtioNet`, which uses neither once it is dropped.
        let mut queues = unsafe { Queues::new(&mut device, 0, &shape)? };
        let mut others = Vec::new();
        let mut control = None;
        let mut count = 1;
        if let Some(offer) = offer {
            count = u16::try_from(pairs).map_or(offer.pairs, |pairs| pairs.min(offer.pairs));
            for pair in 1..count {
                // SAFETY: they stay with the shared part of `device`, in the `VirtioPair`, which drops both together.
                let queues = unsafe { Queues::new(&mut device, pair, &shape)? };
                others.push(VirtioPair::new(queues, device.shared.clone()));
            }
            // SAFETY: as for the first queues.
            control = Some(unsafe { Control::new(&mut device, offer.pairs)? });
        }
        device.shared.transport.add_status(status::DRIVER_OK);
        queues.rx.refill(&device.shared);
        for other in &mut others {
            other.queues.rx.refill(&device.shared);
        }
        Ok(Self {
            queues,
            others,
            pairs: count,
            control,
            hashes: has(feature::RSS),
            device,
        })
    }

    /// Asks what the card does beyond virtio, where it is a program that knows such a question ([`wireboot_wire::card::hello`]). Any other card
    /// sends the question to its wire, once, and nothing changes. `token` is random, so that nobody else knows it. No answer is waited
    /// for: it comes with a later burst of [`Receive`](crate::Receive), and [`Self::agreed`] tells.
    ///
    /// # Errors
    /// As for [`Transmit::send`](crate::Transmit::send); the card is then not asked.
    pub fn ask_card(&mut self, token: u64) -> Result<(), SendError> {
        let question = self.queues.rx.hello.ask(self.queues.properties.mac, token);
        let (_, mut tx) = self.queues.split(self.device.user());
        tx.send(question.len(), Offload::None, &mut |frame| {
            frame.copy_from_slice(&question);
        })?;
        Ok(tx.flush()?)
    }

    /// Sends a request to the card itself. The device hears of it with the next frame.
    fn send_request(&mut self, request: &PlacementRequest) -> Result<(), SendError> {
        let request = request.emit(self.queues.properties.mac);
        let (_, mut tx) = self.queues.split(self.device.user());
        tx.send(request.len(), Offload::None, &mut |frame| {
            frame.copy_from_slice(&request);
        })
    }

    /// The card's answer to [`Self::ask_card`], once it has come.
    pub fn agreed(&self) -> Option<Hello> {
        self.queues.rx.hello.agreed()
    }

    /// How many queue pairs were started, the first included.
    pub fn pairs(&self) -> usize {
        self.pairs.into()
    }

    /// The queue pairs beyond the first, in order, each a NIC of its own; none after the first call. The device uses them only
    /// after [`Self::spread`].
    pub fn take_pairs(&mut self) -> Vec<VirtioPair<P>> {
        mem::take(&mut self.others)
    }

    /// Has the device spread what it receives over the first `pairs` queue pairs, each of which somebody must serve; with 1 the first
    /// receives all again. Waits for the answer, a second at most.
    ///
    /// # Errors
    /// [`SpreadError`]; unless it is a fault, the device goes on with the pairs that it used before.
    pub fn spread(&mut self, pairs: usize) -> Result<Steering, SpreadError> {
        let there = self.pairs();
        let wanted = match u16::try_from(pairs) {
            Ok(wanted) if (1..=there).contains(&pairs) => wanted,
            _ => {
                let wanted = pairs;
                return Err(SpreadError::NoSuchPairs { wanted, there });
            }
        };
        if !self.device.user().running()? {
            return Err(Fault::Removed.into());
        }
        let Some(control) = &mut self.control else {
            return Ok(Steering::by_port(1));
        };
        // One pair is what the other command is the off switch for.
        if self.hashes && pairs > 1 && control.set_rss(&self.device, wanted)? {
            return Ok(Steering::by_hash(pairs));
        }
        // A host may be unable to steer by hash after all, for want of a privilege.
        if control.set_pairs(&self.device, wanted)? {
            return Ok(Steering::by_port(pairs));
        }
        Err(SpreadError::Refused(pairs))
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
    if features & feature::MRG_RXBUF == 0 {
        // It alone is not worth buffers of 64 KB for each frame.
        features &= !feature::GUEST_UFO;
    }
    let all = feature::SEGMENTATION | feature::CSUM;
    if features & all != all {
        features &= !feature::SEGMENTATION;
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

impl<P: PciFunction> Nic for VirtioNet<P> {
    type Rx<'a>
        = VirtioReceive<'a, P>
    where
        P: 'a;
    type Tx<'a>
        = VirtioTransmit<'a, P>
    where
        P: 'a;

    fn properties(&self) -> Properties {
        self.queues.properties
    }

    /// Also asks the device for its health: a fault found here is returned by the next call of either half.
    fn link_up(&mut self) -> bool {
        self.queues.link_up(self.device.user())
    }

    fn joins_datagrams(&self) -> bool {
        self.queues.rx.hello.joins_datagrams()
    }

    fn placer(&mut self) -> Option<&mut dyn Placer> {
        if self.queues.rx.hello.places() {
            Some(self)
        } else {
            None
        }
    }

    fn split(&mut self) -> (VirtioReceive<'_, P>, VirtioTransmit<'_, P>) {
        self.queues.split(self.device.user())
    }

    fn counters(&self) -> Counters {
        self.queues.counters()
    }

    /// Sends what is queued first, so that a last acknowledgement is not lost. Ends the use of all pairs.
    fn stop(&mut self) {
        let (_, mut tx) = self.queues.split(self.device.user());
        if tx.flush().is_err() {
            return;
        }
        for _ in 0..DRAIN_MICROS {
            if tx.idle() {
                break;
            }
            self.device.stall_microsecond();
        }
        self.device.stop();
        if self.device.is_quiet() {
            self.queues.rx.placed.give_back(true);
        }
    }
}

impl<P: PciFunction> Placer for VirtioNet<P> {
    fn place(
        &mut self,
        ends: &Ends,
        sequence: u32,
        memory: Box<dyn LentMemory>,
    ) -> Result<(), SendError> {
        let id = self.queues.rx.placed.next_id();
        let region = Region {
            id,
            sequence,
            address: memory.device_address(),
            len: u32::try_from(memory.len()).map_err(|_| SendError::TooLong)?,
        };
        self.send_request(&PlacementRequest::Fill(*ends, region))?;
        self.queues.rx.placed.lend(ends, memory);
        Ok(())
    }

    fn has(&self, ends: &Ends) -> bool {
        self.queues.rx.placed.last_of(ends).is_some()
    }

    fn leave(&mut self, ends: &Ends) -> Result<(), SendError> {
        match self.queues.rx.placed.last_of(ends) {
            Some(last) => self.send_request(&PlacementRequest::Leave(*ends, last)),
            None => Ok(()),
        }
    }
}

impl<P: PciFunction> Drop for VirtioNet<P> {
    fn drop(&mut self) {
        self.device.stop();
        self.queues.rx.placed.give_back(self.device.is_quiet());
    }
}
