//! wireboot.efi: takes the network interface that the firmware booted it from, fetches an operating system over
//! its own network stack, and starts it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod boot;
mod error;
mod fetching;
mod menu;
mod network;
mod origin;
mod source;

use error::Error;
use fetching::Fetcher;
use network::Network;
use origin::Origin;
use source::{Choice, Settings};
use wireboot_platform::{Clock, Status};

/// Name of the PE section that may hold a boot configuration.
const SECTION: &str = ".wbconf";

/// The program: returns only when nothing was booted, with an error status that makes the firmware go on.
pub fn main() -> Status {
    let clock = Clock::calibrate();
    log::info!("wireboot {}", env!("CARGO_PKG_VERSION"));
    // All that can be booted is started inside; coming back means that nothing was.
    let Err(error) = run(clock);
    error.tell();
    log::info!("the firmware goes on with its next boot option");
    error.status()
}

fn run(clock: Clock) -> Result<core::convert::Infallible, Error> {
    let image = wireboot_platform::image::Own::read(SECTION);
    // Taking the network interface makes the firmware forget how it loaded us: read that first.
    let origin = Origin::of(&image);
    let settings = Settings::of(&image)?;
    let network = Network::open(&origin, clock, settings.processors)?;
    log::info!("ready after {} ms", clock.micros() / 1000);
    let mut fetcher = Fetcher::new(network);
    let choice = match source::given(&image, &origin)? {
        Some(choice) => {
            source::take_lease(&mut fetcher, &origin)?;
            choice
        }
        None => source::by_dhcp(&mut fetcher, &origin)?,
    };
    let plan = match choice {
        Choice::Url { url, arguments } => source::fetch(&mut fetcher, url, arguments)?,
        Choice::Config {
            text,
            base,
            arguments,
        } => source::choose(
            &mut fetcher,
            &text,
            base.as_ref(),
            "the embedded configuration",
            &arguments,
        )?,
    };
    boot::run(fetcher, &origin, plan)
}
