//! The machine's network boot options, loaded by the firmware's own programs and not started.
//!
//! ```text
//! BootOrder, Boot#### ──> options ──> LoadFile of the handle ──> time, size or status
//!                                        └── its frames, at the card's driver ──> observation: what happened when
//! ```
//!
//! Afterwards the firmware's network is connected anew: it keeps nothing of these boots.

mod observation;
mod options;

use crate::error::Error;
use crate::examination::Examination;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use options::Bootable;
use wireboot_platform::console::{self, Key};
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::frames::Watch;
use wireboot_platform::load_file::{self, LoadFile, Size};
use wireboot_platform::{Clock, Status};
use wireboot_report::{DryBoot, NotMeasured};

/// Memory for the frames of a run, in bytes.
const ROOM: usize = 32 << 20;

/// The largest file that is loaded, in bytes. Boot programs have a hundredth of it.
const LARGEST: usize = 512 << 20;

/// So long after its beginning the check begins no run any more, in microseconds. A run in vain takes EDK II's programs a minute and more.
const BEGINS_WITHIN: u64 = 180_000_000;

/// Why an option is left out of an examination that has other checks to make.
const BEHIND: &str = "stands behind an option that loads; the word `boot` has it loaded, too";

/// Loads each option, as often as the examination's options say.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let mut bootables = options::found();
    bootables.truncate(examination.options.boot_options);
    if bootables.is_empty() {
        return Err(Error::NoBootOption);
    }
    let watch = Watch::begin(ROOM, observation::keep, examination.clock)?;
    #[cfg(feature = "faults")]
    faults::reach(faults::Place::DryBoot);
    let mut trial = Trial {
        watch: &watch,
        clock: examination.clock,
        until: examination.clock.micros() + BEGINS_WITHIN,
        ended: None,
    };
    let report = &mut examination.report;
    for bootable in &bootables {
        let boot = trial.runs(bootable, examination.options.runs);
        let loaded = boot.as_ref().is_some_and(|boot| boot.failure.is_none());
        if let Some(reason) = trial.ended {
            report.not_measured.push(NotMeasured {
                check: "boot".into(),
                reason: format!("{}: {reason}", bootable.name),
            });
        }
        report.dry_boots.extend(boot);
        if loaded && !examination.options.thorough && trial.ended.is_none() {
            trial.ended = Some(BEHIND);
        }
    }
    drop(watch);
    // One by one: to collect them is to sort them, 4 kB of a program.
    let mut cards = BTreeSet::new();
    cards.extend(bootables.iter().map(|one| one.mac));
    for mac in cards {
        load_file::connect_anew(mac);
    }
    Ok(())
}

/// Loads options, one after the other.
struct Trial<'a> {
    watch: &'a Watch,
    clock: Clock,
    /// No run begins after this, in microseconds.
    until: u64,
    /// Why no other run begins.
    ended: Option<&'static str>,
}

/// An option that was loaded, or was not.
struct Run {
    /// When it began, in the clock's ticks, and how long it took.
    began: u64,
    seconds: f64,
    bytes: Option<usize>,
    failure: Option<String>,
}

impl Trial<'_> {
    /// Loads an option so often; one that fails, once. `None` where no run has begun.
    fn runs(&mut self, bootable: &Bootable, runs: usize) -> Option<DryBoot> {
        let handle = bootable.handle();
        let mut boot = DryBoot {
            option: bootable.name.clone(),
            ..DryBoot::default()
        };
        for number in 1..=runs {
            self.look_after();
            if self.ended.is_some() {
                break;
            }
            log::info!("{}, {number} of {runs}", bootable.name);
            let run = match &handle {
                Some(handle) => self.run(bootable, handle),
                None => Run {
                    began: self.clock.ticks(),
                    seconds: 0.0,
                    bytes: None,
                    failure: Some(format!("{:?}", Status::NOT_FOUND)),
                },
            };
            self.observe(&mut boot, bootable.mac, &run);
            boot.runs_s.push(run.seconds);
            boot.bytes = run.bytes.and_then(|bytes| u64::try_from(bytes).ok());
            boot.failure = run.failure;
            if boot.failure.is_some() {
                break;
            }
        }
        (!boot.runs_s.is_empty()).then_some(boot)
    }

    /// Notices a key, and how late it is.
    fn look_after(&mut self) {
        while let Some(key) = console::key() {
            if key == Key::Escape {
                self.ended = Some("ended by the Esc key");
            }
        }
        if self.clock.micros() > self.until {
            self.ended = Some("no time was left");
        }
    }

    /// Loads an option, from nothing.
    fn run(&mut self, bootable: &Bootable, handle: &LoadFile) -> Run {
        handle.end();
        self.watch.forget();
        let began = self.clock.ticks();
        let path = bootable.path_for(handle);
        let loaded = match handle.size(path) {
            Ok(Size::File(bytes)) if bytes <= LARGEST => {
                let loaded = handle.load(path, bytes).map(Some);
                loaded.map_err(|error| (error.status(), Some(bytes)))
            }
            Ok(Size::File(bytes) | Size::RamDisk(bytes)) => {
                handle.decline();
                Err((Status::UNSUPPORTED, Some(bytes)))
            }
            Err(error) => Err((error.status(), None)),
        };
        let ticks = self.clock.ticks() - began;
        handle.end();
        let (bytes, failure) = match loaded {
            Ok(bytes) => (bytes, None),
            Err((Status::UNSUPPORTED, Some(bytes))) => {
                (Some(bytes), Some("a disk's image, not loaded".into()))
            }
            Err((status, bytes)) => (bytes, Some(format!("{status:?}"))),
        };
        if failure.as_deref() == Some("ABORTED") {
            // The firmware has the keyboard meanwhile, and ends the boot at that key.
            self.ended = Some("ended by the Esc key");
        }
        Run {
            began,
            seconds: observation::seconds(ticks, self.clock.hertz()),
            bytes,
            failure,
        }
    }

    /// What the run's frames showed.
    fn observe(&self, boot: &mut DryBoot, mac: [u8; 6], run: &Run) {
        let mut interfaces = self.watch.interfaces().iter();
        let interface = interfaces.position(|one| *one == mac);
        let frames = self.watch.frames();
        let own = frames.filter(|frame| Some(frame.interface) == interface);
        let observed =
            observation::BootObservation::of(own, mac, run.began, run.seconds, self.clock.hertz());
        boot.packets = observed.packets;
        boot.packets_lost = self.watch.lost();
        boot.watching_s = observation::seconds(self.watch.ticks_spent(), self.clock.hertz());
        boot.timeline = observed.timeline;
        boot.network = observed.network;
    }
}
