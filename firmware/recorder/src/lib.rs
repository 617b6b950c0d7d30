//! recorder.efi: a driver that keeps the times of a boot, for firmware that does not.
//!
//! ```text
//!  Driver#### ──> hooks ──> ready to boot, image started, end of boot services ──> FBPT in reserved memory <── FPDT <── the system
//! ```
#![no_std]
#![forbid(unsafe_code)]

use spinning_top::Spinlock;
use wireboot_fpdt::{FPDT_BYTES, Recording, write_fpdt};
use wireboot_platform::boot_points::{self, BootPoints};
use wireboot_platform::memory::{self, PAGE, reserved_page};
use wireboot_platform::{Clock, Status, acpi, variable};

/// What is kept.
struct Recorder {
    clock: Clock,
    recording: Recording,
    /// The FBPT, for the system.
    page: &'static mut [u8; PAGE],
    /// The FPDT leads to it.
    is_offered: bool,
}

/// Boot services have one caller at a time, but a notification may come between: it finds this locked, and is lost.
static RECORDER: Spinlock<Option<Recorder>> = Spinlock::new(None);

/// The driver: stays in memory when it succeeds.
pub fn main() -> Status {
    match run() {
        Ok(()) => Status::SUCCESS,
        Err(error) => error.status(),
    }
}

fn run() -> Result<(), wireboot_platform::Error> {
    if acpi::find(*b"FPDT").is_some() {
        // The firmware's own is better: it begins earlier.
        return Err(Status::ALREADY_STARTED.into());
    }
    let recorder = Recorder {
        clock: Clock::calibrate_finely(),
        recording: Recording::default(),
        page: reserved_page()?,
        is_offered: false,
    };
    *RECORDER.lock() = Some(recorder);
    let observed = boot_points::observe(&Observer);
    if observed.is_err()
        && let Some(recorder) = RECORDER.lock().take()
    {
        memory::give_back_reserved(recorder.page);
    }
    observed
}

/// The firmware's functions come by here.
struct Observer;

impl BootPoints for Observer {
    fn ready_to_boot(&self) {
        let option = variable::boot_current();
        record(|recording, now| recording.ready_to_boot(option, now));
    }

    fn program_starts(&self) -> bool {
        let begins = record(Recording::program_starts).unwrap_or(false);
        if begins {
            offer();
        }
        begins
    }

    fn program_came_back(&self) {
        record(Recording::program_came_back);
    }

    fn exit_begins(&self) {
        record(Recording::exit_begins);
    }

    fn exit_done(&self) {
        record(Recording::exit_done);
    }
}

/// Does `change` at this time, and shows it to the system.
fn record<T>(change: impl FnOnce(&mut Recording, u64) -> T) -> Option<T> {
    let mut recorder = RECORDER.try_lock()?;
    let recorder = recorder.as_mut()?;
    let now = recorder.clock.nanos_since_reset();
    let changed = change(&mut recorder.recording, now);
    recorder.recording.write(recorder.page);
    Some(changed)
}

/// Tells the system where the times are, once. As late as can be: some firmware makes its own table only when it is ready to boot.
fn offer() {
    let Some(mut recorder) = RECORDER.try_lock() else {
        return;
    };
    let Some(recorder) = recorder.as_mut() else {
        return;
    };
    if recorder.is_offered || acpi::find(*b"FPDT").is_some() {
        return;
    }
    let table: [u8; FPDT_BYTES] = write_fpdt(recorder.page.as_ptr() as u64);
    recorder.is_offered = acpi::install(&table).is_ok();
}
