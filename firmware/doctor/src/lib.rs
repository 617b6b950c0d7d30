//! doctor.efi: where the seconds of this machine's network boot go, measured with the firmware that is in it.
//!
//! ```text
//!  command ──> runner ──> a check after the other ──> report ──> findings ──> screen, serial port, server, disk
//!      ├────> ladder: what the network can do at each height
//!      └────> record: whether the firmware loads recorder.efi
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod cards;
mod checks;
mod command;
mod delivery;
mod error;
mod escape;
mod examination;
mod ladder;
mod options;
pub mod pcapng;
mod record;
mod runner;
mod throughput;
mod vlan;

use command::Command;
use error::Error;
use examination::Examination;
use wireboot_boot::origin::Origin;
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::image::{self, LoadedSelf};
use wireboot_platform::{Clock, Status};

/// The program: does what its options say, and tells. A machine that it was the boot of goes on with its next boot option.
pub fn main() -> Status {
    let clock = Clock::calibrate_finely();
    log::info!("doctor {}", env!("CARGO_PKG_VERSION"));
    match run(clock) {
        Ok(()) if image::is_from_the_shell() => Status::SUCCESS,
        // With success a boot manager takes the machine for booted: it shows its menu, and tries no other option (UEFI 2.10, section 3.1.1).
        Ok(()) => Status::ABORTED,
        Err(error) => {
            log::error!("{error}");
            error.status()
        }
    }
}

fn run(clock: Clock) -> Result<(), Error> {
    let image = LoadedSelf::read();
    // Taking the network interface makes the firmware forget how it loaded us: read that first.
    let origin = Origin::of(&image);
    let text = image.text();
    #[cfg(feature = "faults")]
    faults::plant(&text);
    match Command::parse(&text)? {
        Command::Record(switch) => record::run(switch, &image),
        Command::Ladder(text) => ladder::run(&text, &origin, clock),
        Command::Examine { checks, options } => {
            runner::run(&checks, Examination::new(&options, &image, &origin, clock));
            Ok(())
        }
    }
}
