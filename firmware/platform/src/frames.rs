//! The frames that the firmware's own network sends and receives, seen where it calls its drivers: `EFI_SIMPLE_NETWORK_PROTOCOL` (UEFI 2.10,
//! section 24.1).
//!
//! ```text
//! firmware's MNP ──Transmit, Receive──> functions of ours ──> the driver's
//!                                             └──> recorder: time-stamp counter, beginning of the frame
//! ```
//!
//! It sends nothing and knows no protocol above Ethernet. What others call than these two members it does not see: a driver's UNDI, a PCI
//! function.

mod recorder;

use crate::clock::{self, Clock};
use crate::memory::Pages;
use crate::shim::{self, Original, Refused, Shim};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use recorder::{HEADER, Recorder};
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, SearchType};
use uefi::proto::network::snp::SimpleNetwork;
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::{MacAddress, Status};

/// Of a frame, given its Ethernet header and what follows: how many bytes of the latter to keep.
pub type Keep = fn(&[u8; HEADER], &[u8]) -> usize;

/// `EFI_SIMPLE_NETWORK_TRANSMIT`.
type TransmitFn = unsafe extern "efiapi" fn(
    *const SimpleNetworkProtocol,
    usize,
    usize,
    *const c_void,
    *const MacAddress,
    *const MacAddress,
    *const u16,
) -> Status;
/// `EFI_SIMPLE_NETWORK_RECEIVE`.
pub(crate) type ReceiveFn = unsafe extern "efiapi" fn(
    *const SimpleNetworkProtocol,
    *mut usize,
    *mut usize,
    *mut c_void,
    *mut MacAddress,
    *mut MacAddress,
    *mut u16,
) -> Status;

/// A frame that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When, in ticks since the start of the clock: when the driver was given it, or had given it.
    pub ticks: u64,
    /// The interface's place in [`Watch::interfaces`].
    pub interface: usize,
    /// The firmware sent it; else it received it.
    pub sent: bool,
    /// Bytes that it had.
    pub length: usize,
    /// Its beginning, as far as it was kept.
    pub bytes: Vec<u8>,
}

/// Memory as whole words.
struct Words(Pages);

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the pages are ours alone until they are dropped, aligned to more than a word, and any bytes are words.
        unsafe { slice::from_raw_parts(self.0.start().cast().as_ptr(), self.0.bytes() / 8) }
    }
}

/// As many interfaces can be watched.
const MOST: usize = 8;

/// An interface's own functions.
struct Slot {
    transmit: Original<TransmitFn>,
    receive: Original<ReceiveFn>,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        transmit: Original::new(),
        receive: Original::new(),
    }
}; MOST];

/// Ours, one pair for each slot.
const SHIMS: [(TransmitFn, ReceiveFn); MOST] = [
    (transmit::<0>, receive::<0>),
    (transmit::<1>, receive::<1>),
    (transmit::<2>, receive::<2>),
    (transmit::<3>, receive::<3>),
    (transmit::<4>, receive::<4>),
    (transmit::<5>, receive::<5>),
    (transmit::<6>, receive::<6>),
    (transmit::<7>, receive::<7>),
];

/// Where frames go; null while nobody watches.
static RECORDER: AtomicPtr<Recorder<Words>> = AtomicPtr::new(ptr::null_mut());

/// The recorder, for the time of a call.
fn recorder<'a>() -> Option<&'a Recorder<Words>> {
    // SAFETY: null, or the value of the `Watch` in use. That is dropped by the BSP in code of ours, which no function below calls, so none of
    // them is under way then; and it removes the pointer first.
    unsafe { RECORDER.load(Ordering::Acquire).as_ref() }
}

/// The Ethernet header that the driver writes before a packet, from the arguments of `Transmit`.
///
/// # Safety
/// The pointers are null or valid.
unsafe fn written_header(
    this: *const SimpleNetworkProtocol,
    source: *const MacAddress,
    destination: *const MacAddress,
    kind: *const u16,
) -> Option<[u8; HEADER]> {
    // SAFETY: the caller's word; `mode` is the driver's, and valid as long as the protocol.
    let (source, destination, kind) = unsafe {
        let own = || {
            this.as_ref()
                .and_then(|this| this.mode.as_ref())
                .map(|mode| mode.current_address)
        };
        let source = source.as_ref().copied().or_else(own)?;
        (source, destination.as_ref()?, kind.as_ref()?)
    };
    let mut header = [0; HEADER];
    let (addresses, rest) = header.split_first_chunk_mut::<12>()?;
    let (to, from) = addresses.split_first_chunk_mut::<6>()?;
    *to = *destination.0.first_chunk()?;
    from.copy_from_slice(source.0.first_chunk::<6>()?);
    rest.copy_from_slice(&kind.to_be_bytes());
    Some(header)
}

/// `Transmit` of the interface in a slot.
///
/// # Safety
/// As the driver's own: the firmware's network calls it in that one's place.
unsafe extern "efiapi" fn transmit<const SLOT: usize>(
    this: *const SimpleNetworkProtocol,
    header_size: usize,
    buffer_size: usize,
    buffer: *const c_void,
    source: *const MacAddress,
    destination: *const MacAddress,
    kind: *const u16,
) -> Status {
    let Some(original) = SLOTS.get(SLOT).and_then(|slot| slot.transmit.get()) else {
        return Status::DEVICE_ERROR;
    };
    let began = clock::ticks();
    let entry = recorder().filter(|_| !buffer.is_null()).and_then(|to| {
        // SAFETY: the caller gives so many bytes. With a header size, the first of them are the driver's to write.
        let frame = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), buffer_size) };
        let (header, body) = frame.split_first_chunk::<HEADER>()?;
        let header = match header_size {
            0 => *header,
            // SAFETY: the caller's own arguments.
            HEADER => unsafe { written_header(this, source, destination, kind) }?,
            _ => return None,
        };
        to.begin(SLOT, true, &header, body)
    });
    let called = clock::ticks();
    // SAFETY: the caller's own arguments for the driver's own function.
    let status = unsafe {
        original(
            this,
            header_size,
            buffer_size,
            buffer,
            source,
            destination,
            kind,
        )
    };
    let back = clock::ticks();
    // What the driver did not take was not sent.
    if let Some(entry) = entry.filter(|_| status.is_success()) {
        entry.finish(called);
    }
    if let Some(to) = recorder() {
        to.spent((called - began).saturating_add(clock::ticks() - back));
    }
    status
}

/// `Receive` of the interface in a slot.
///
/// # Safety
/// As the driver's own: the firmware's network calls it in that one's place.
unsafe extern "efiapi" fn receive<const SLOT: usize>(
    this: *const SimpleNetworkProtocol,
    header_size: *mut usize,
    buffer_size: *mut usize,
    buffer: *mut c_void,
    source: *mut MacAddress,
    destination: *mut MacAddress,
    kind: *mut u16,
) -> Status {
    let Some(original) = SLOTS.get(SLOT).and_then(|slot| slot.receive.get()) else {
        return Status::DEVICE_ERROR;
    };
    // SAFETY: null, or the caller's.
    let room = unsafe { buffer_size.as_ref() }.copied();
    // SAFETY: the caller's own arguments for the driver's own function.
    let status = unsafe {
        original(
            this,
            header_size,
            buffer_size,
            buffer,
            source,
            destination,
            kind,
        )
    };
    if !status.is_success() || buffer.is_null() {
        return status;
    }
    let now = clock::ticks();
    // SAFETY: as above.
    let length = unsafe { buffer_size.as_ref() }.copied();
    if let (Some(to), Some(room), Some(length)) = (recorder(), room, length) {
        // SAFETY: the driver has written so many bytes of the caller's buffer, which has room for `room`.
        let frame = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), length.min(room)) };
        if let Some((header, body)) = frame.split_first_chunk::<HEADER>()
            && let Some(entry) = to.begin(SLOT, false, header, body)
        {
            entry.finish(now);
        }
        to.spent(clock::ticks() - now);
    }
    status
}

/// Sees all frames of all Ethernet interfaces that the firmware's drivers offer, until it is dropped.
pub struct Watch {
    // Dropped in this order, behind `drop`.
    shims: Vec<Shim>,
    recorder: Rc<Recorder<Words>>,
    interfaces: Vec<[u8; 6]>,
    clock: Clock,
}

/// Why nothing can be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no memory.
    #[error("no memory for the frames: {0}")]
    Memory(uefi::Error),
    /// A driver's functions cannot be replaced.
    #[error("a network driver's functions cannot be watched: {0}")]
    Refused(#[from] Refused),
    /// There is a [`Watch`] already; there can be one at a time.
    #[error("the frames are watched already")]
    Watched,
}

impl Watch {
    /// Begins. `bytes` of memory are for the frames; `keep` says how many bytes of each.
    ///
    /// # Errors
    /// [`WatchError`]; all is as it was then.
    pub fn begin(bytes: usize, keep: Keep, clock: Clock) -> Result<Self, WatchError> {
        if !RECORDER.load(Ordering::Acquire).is_null() {
            return Err(WatchError::Watched);
        }
        let memory = Pages::allocate(bytes).map_err(WatchError::Memory)?;
        let recorder = Rc::new(Recorder::new(Words(memory), keep));
        RECORDER.store(Rc::as_ptr(&recorder).cast_mut(), Ordering::Release);
        let mut watch = Self {
            shims: Vec::new(),
            recorder,
            interfaces: Vec::new(),
            clock,
        };
        for (protocol, mac) in protocols().into_iter().take(MOST) {
            watch.replace(protocol)?;
            watch.interfaces.push(mac);
        }
        Ok(watch)
    }

    fn replace(&mut self, protocol: NonNull<SimpleNetworkProtocol>) -> Result<(), Refused> {
        let place = self.interfaces.len();
        let (Some(slot), Some((transmit, receive))) = (SLOTS.get(place), SHIMS.get(place)) else {
            return Ok(());
        };
        let protocol = protocol.as_ptr();
        // SAFETY: members of the driver's protocol, which stays while the interface does: nothing removes that while we watch.
        let members = unsafe {
            (
                NonNull::new_unchecked(&raw mut (*protocol).transmit),
                NonNull::new_unchecked(&raw mut (*protocol).receive),
            )
        };
        // SAFETY: see above; ours do what the driver's do, and each slot is of one interface.
        unsafe {
            let shim = shim::replace(members.0, None, *transmit, &slot.transmit)?;
            self.shims.push(shim);
            let shim = shim::replace(members.1, None, *receive, &slot.receive)?;
            self.shims.push(shim);
        }
        Ok(())
    }

    /// The Ethernet addresses of the interfaces.
    #[must_use]
    pub fn interfaces(&self) -> &[[u8; 6]] {
        &self.interfaces
    }

    /// Forgets what it has seen.
    pub fn forget(&self) {
        self.recorder.forget();
    }

    /// The frames since then, in the order in which they passed.
    pub fn frames(&self) -> impl Iterator<Item = Frame> {
        self.recorder.frames().map(|mut frame| {
            frame.ticks = self.clock.since_start(frame.ticks);
            frame
        })
    }

    /// How many more there were for which there was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.recorder.lost()
    }

    /// Ticks that our functions took themselves.
    #[must_use]
    pub fn ticks_spent(&self) -> u64 {
        self.recorder.ticks_spent()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shims.clear();
        // A member that somebody else has replaced since still calls ours, which then only passes on.
        RECORDER.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Each interface once: PXE's and HTTP Boot's handles have the same protocol as the card's.
fn protocols() -> Vec<(NonNull<SimpleNetworkProtocol>, [u8; 6])> {
    const ETHERNET: u8 = 1;
    let mut found: Vec<(NonNull<SimpleNetworkProtocol>, [u8; 6])> = Vec::new();
    let Ok(handles) = boot::locate_handle_buffer(SearchType::from_proto::<SimpleNetwork>()) else {
        return found;
    };
    for &handle in handles.iter() {
        let params = OpenProtocolParams {
            handle,
            agent: boot::image_handle(),
            controller: None,
        };
        // SAFETY: nothing removes an interface of the firmware's while this program runs and leaves its driver connected.
        let open = unsafe {
            boot::open_protocol::<SimpleNetwork>(params, OpenProtocolAttributes::GetProtocol)
        };
        let Ok(mut open) = open else { continue };
        let Some(snp) = open.get_mut() else { continue };
        let mode = snp.mode();
        let mac = mode.current_address.0.first_chunk().copied();
        let is_ethernet = (mode.if_type, mode.hw_address_size) == (ETHERNET, 6);
        // A transparent wrapper of it.
        let protocol = NonNull::from(snp).cast::<SimpleNetworkProtocol>();
        if let Some(mac) = mac
            && is_ethernet
            && !found.iter().any(|(known, _)| *known == protocol)
        {
            found.push((protocol, mac));
        }
    }
    found
}

#[cfg(test)]
mod tests;
