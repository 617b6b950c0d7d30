//! wireboot-planted.efi: a driver that plants faults in a firmware, by the words of its load options.
//!
//! ```text
//!  Driver#### "slow-time receivers" ──> words ──> functions of ours in the firmware's tables and protocols
//! ```
#![cfg_attr(not(test), no_std)]

mod appearing;
mod busy;
mod console;
mod debug_build;
mod receivers;
mod services;
mod slow_time;
mod slow_variables;
mod witness;
mod words;

use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::loaded_image::LoadedImage;
use wireboot_platform::Status;
use words::Words;

/// Plants a fault.
type Plant = fn() -> uefi::Result;

/// All of them, by their words, and a witness of what programs leave behind.
const FAULTS: [(&str, Plant); 6] = [
    ("slow-time", slow_time::plant),
    ("slow-variables", slow_variables::plant),
    ("receivers", receivers::plant),
    ("debug-build", debug_build::plant),
    ("slow-console", console::plant),
    ("witness", witness::plant),
];

/// The driver: stays in memory when it succeeds.
pub fn main() -> Status {
    busy::calibrate();
    let planted = options().and_then(|words| {
        let mut wanted = FAULTS.iter().filter(|(name, _)| words.has(name));
        wanted.try_for_each(|(_, plant)| plant())
    });
    match planted {
        Ok(()) => Status::SUCCESS,
        // Tables may lead here already.
        Err(_) if services::any() => Status::SUCCESS,
        Err(error) => error.status(),
    }
}

fn options() -> uefi::Result<Words> {
    let params = OpenProtocolParams {
        handle: boot::image_handle(),
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the protocol is on this image's own handle while it runs.
    let image =
        unsafe { boot::open_protocol::<LoadedImage>(params, OpenProtocolAttributes::GetProtocol) }?;
    let options = image.get().and_then(LoadedImage::load_options_as_bytes);
    Ok(Words::of(options.unwrap_or_default()))
}
