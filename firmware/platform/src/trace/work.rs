//! What a packet costs the firmware's own network, waits left out.
//!
//! ```text
//!  Receive brings a frame ──> MNP, IP, UDP or TCP, TFTP or HTTP, who asked ──> Receive is called again ... brings nothing ... brings a frame
//!  └───────────────────────── work ─────────────────────────────────────────┘   └──────── waits ───────────┘
//! ```

use super::{TraceError, simple_network};
use crate::claim::pci::Candidate;
use crate::clock;
use crate::frames::ReceiveFn;
use crate::shim::{self, Original, Shim};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::{MacAddress, Status};

static RECEIVE: Original<ReceiveFn> = Original::new();
static TALLY: Tally = Tally::new();

/// Counts what the firmware does with the frames that its driver gives it, until it is dropped. One at a time, for firmware that asks its driver
/// again and again: where it asks at the ticks of a timer, the wait for that counts, too.
#[derive(Debug)]
pub struct PacketWork(Shim);

/// Frames in a row whose work is taken together. How much each costs depends on how many come at once, and that on the host of a virtual machine
/// and on the network; a stretch that came without gaps costs the same again and again.
const STRETCH: u64 = 128;

/// Frames, and what was done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// Frames that the driver gave, but for the last one: its work has no end.
    pub frames: u64,
    /// Ticks of the time-stamp counter from the call that brought a frame to the next call.
    pub ticks: u64,
    /// The least that a frame took, on average of 128 in a row; `None` where there were not as many.
    pub least: Option<u64>,
}

/// For the BSP (bootstrap processor) alone.
struct Tally {
    /// When the call began that brought the last frame; 0 where the call behind it has come.
    since: AtomicU64,
    frames: AtomicU64,
    ticks: AtomicU64,
    /// Of the last whole stretch: what `ticks` was at its end.
    before: AtomicU64,
    /// Ticks of the cheapest stretch.
    least: AtomicU64,
}

impl Tally {
    const fn new() -> Self {
        Self {
            since: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            before: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
        }
    }

    fn clear(&self) {
        for value in [&self.since, &self.frames, &self.ticks, &self.before] {
            value.store(0, Ordering::Relaxed);
        }
        self.least.store(u64::MAX, Ordering::Relaxed);
    }

    /// The driver is asked: what was done with the frame before has ended.
    fn asked(&self, now: u64) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since == 0 {
            return;
        }
        let took = now.wrapping_sub(since);
        let ticks = self.ticks.fetch_add(took, Ordering::Relaxed) + took;
        let frames = self.frames.fetch_add(1, Ordering::Relaxed) + 1;
        if frames.is_multiple_of(STRETCH) {
            let before = self.before.swap(ticks, Ordering::Relaxed);
            self.least.fetch_min(ticks - before, Ordering::Relaxed);
        }
    }

    /// The call that began then has brought a frame.
    fn brought(&self, began: u64) {
        self.since.store(began, Ordering::Relaxed);
    }

    fn worked(&self) -> Worked {
        let least = self.least.load(Ordering::Relaxed);
        Worked {
            frames: self.frames.load(Ordering::Relaxed),
            ticks: self.ticks.load(Ordering::Relaxed),
            least: (least != u64::MAX).then_some(least / STRETCH),
        }
    }
}

impl PacketWork {
    /// Begins, on the interface of `card`. Its drivers must stay connected until this is dropped.
    ///
    /// # Errors
    /// Where the firmware does not show the interface, or lets nobody write to it.
    pub fn start(card: &Candidate) -> Result<Self, TraceError> {
        let interface = simple_network(card)?;
        TALLY.clear();
        // SAFETY: the protocol is live while its driver is connected (the caller's word); ours goes on to the driver's function with the caller's
        // arguments.
        let shim = unsafe {
            let member = &raw mut (*interface.as_ptr()).receive;
            let member = NonNull::new(member.cast::<ReceiveFn>()).ok_or(uefi::Status::UNSUPPORTED);
            let member = member.map_err(uefi::Error::from)?;
            shim::replace(member, None, receive as ReceiveFn, &RECEIVE)?
        };
        Ok(Self(shim))
    }

    /// Counts no more, and tells.
    #[must_use]
    pub fn finish(self) -> Worked {
        drop(self.0);
        TALLY.worked()
    }
}

/// Stands in the place of the driver's `Receive`, which it calls.
///
/// # Safety
/// As the driver's own: the firmware's network calls it in that one's place.
unsafe extern "efiapi" fn receive(
    this: *const SimpleNetworkProtocol,
    header_size: *mut usize,
    buffer_size: *mut usize,
    buffer: *mut c_void,
    source: *mut MacAddress,
    destination: *mut MacAddress,
    kind: *mut u16,
) -> Status {
    let Some(original) = RECEIVE.get() else {
        return Status::DEVICE_ERROR;
    };
    let began = clock::ticks();
    TALLY.asked(began);
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
    if status.is_success() {
        TALLY.brought(began);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_where_the_driver_is_asked_again_and_waits_do_not_count() {
        let tally = Tally::new();
        tally.asked(100);
        tally.brought(100);
        // Two calls that bring nothing, and a frame behind them.
        tally.asked(130);
        tally.asked(200);
        tally.asked(300);
        tally.brought(300);
        tally.asked(310);
        tally.brought(310);
        let worked = Worked {
            frames: 2,
            ticks: 30 + 10,
            least: None,
        };
        assert_eq!(tally.worked(), worked);
        // The last one's work has no end.
        tally.clear();
        tally.asked(400);
        assert_eq!(tally.worked(), Worked::default());
    }

    #[test]
    fn the_cheapest_stretch_counts() {
        let tally = Tally::new();
        let mut now = 1;
        // Every second frame of the third stretch is cheap, and the fourth is not whole.
        for frame in 0..STRETCH * 4 - 1 {
            tally.brought(now);
            now += match frame / STRETCH {
                0 => 70,
                1 => 50,
                2 => 40 + frame % 2 * 40,
                _ => 10,
            };
            tally.asked(now);
            now += 1000;
        }
        assert_eq!(tally.worked().least, Some(50));
        tally.clear();
        assert_eq!(tally.worked(), Worked::default());
    }
}
