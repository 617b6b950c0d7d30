//! Panics where a test wants them, in a program that only tests boot.
//!
//! The word `fault=PLACE` among the arguments of what is booted names the place. What has been planted is told, with where the image lies.

use crate::{image, memory};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Bytes received that are the middle of a transfer, for the files that tests boot.
const MIDDLE: u64 = 1_000_000;

/// Where a panic is planted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// The BSP (bootstrap processor), while files come.
    Boot = 1,
    /// The first engine, while it receives.
    Engine,
    /// Another engine, while it receives.
    Worker,
    /// The heap, on the AP (application processor) of an engine that receives: it dies with the lock in its hands.
    Heap,
    /// The callback that gives Linux its initrds.
    Initrd,
    /// The callback at the end of boot services.
    Exit,
    /// A call of a boot loader's.
    Call,
    /// The ladder of doctor.efi, when it has disconnected the firmware's network.
    Ladder,
    /// An engine that is asked to stop. It does not panic there: it never stops.
    Stop,
    /// The first engine, while it receives, on firmware that does not end what runs on an AP.
    Kill,
    /// The check `boot` of doctor.efi, while it sees the frames of dry boots.
    DryBoot,
    /// The check `trace`, while the firmware's services lead through its shims.
    Trace,
    /// The check `profile`, while samples are taken.
    Profile,
    /// The check `dma`, while the card's buffers are uncached.
    Dma,
    /// The check `check`. It does not panic there: it hangs.
    Check,
}

const NAMES: [(&str, Place); 15] = [
    ("boot", Place::Boot),
    ("engine", Place::Engine),
    ("worker", Place::Worker),
    ("heap", Place::Heap),
    ("initrd", Place::Initrd),
    ("exit", Place::Exit),
    ("call", Place::Call),
    ("ladder", Place::Ladder),
    ("stop", Place::Stop),
    ("kill", Place::Kill),
    ("dry-boot", Place::DryBoot),
    ("trace", Place::Trace),
    ("profile", Place::Profile),
    ("dma", Place::Dma),
    ("check", Place::Check),
];

/// Where the next panic is; 0 for none.
static PLANTED: AtomicU8 = AtomicU8::new(0);
/// Whether the firmware ends nothing that runs on an AP.
static KILLS_NOTHING: AtomicBool = AtomicBool::new(false);

/// Plants the panic that `arguments` ask for.
pub fn plant(arguments: &str) {
    let mut wanted = arguments
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("fault="));
    let place = wanted.find_map(|name| NAMES.iter().find(|(known, _)| *known == name));
    if let (Some((name, place)), Some((base, bytes))) = (place, image::extent()) {
        log::info!(
            "fault planted: {name}; image {base:#x} to {:#x}",
            base + bytes
        );
        PLANTED.store(*place as u8, Ordering::Relaxed);
    }
}

/// Panics if this is the place, or does what else is planted there.
pub fn reach(place: Place) {
    let planted = PLANTED.compare_exchange(place as u8, 0, Ordering::Relaxed, Ordering::Relaxed);
    if planted.is_err() {
        return;
    }
    if place == Place::Heap {
        memory::hold_heap();
    }
    if place == Place::Kill {
        KILLS_NOTHING.store(true, Ordering::Relaxed);
    }
    if matches!(place, Place::Stop | Place::Check) {
        loop {
            core::hint::spin_loop();
        }
    }
    #[expect(clippy::panic, reason = "the planted fault")]
    {
        panic!("a planted fault")
    }
}

/// The same, once so many bytes have come that the transfer is under way.
pub fn reach_receiving(place: Place, bytes: u64) {
    if bytes >= MIDDLE {
        reach(place);
    }
}

/// Whether the firmware is to be taken for one that ends nothing on an AP.
pub(crate) fn kills_nothing() -> bool {
    KILLS_NOTHING.load(Ordering::Relaxed)
}
