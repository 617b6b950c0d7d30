//! What machine it is, and how it came here.

mod points;

use crate::error::Error;
use crate::examination::Examination;
use alloc::format;
use alloc::string::String;
use wireboot_diagnosis::is_network_driver;
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::images::Images;
use wireboot_platform::{console, debug_build, processors, random, smbios, variable};
use wireboot_report::Build;

/// Firmware, processors, counter, UUID, maker and model, how long the firmware waits for its menu, the points of this boot, how the firmware is built and which
/// network drivers it has.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    #[cfg(feature = "faults")]
    faults::reach(faults::Place::Check);
    let machine = &mut examination.report.machine;
    machine.firmware = Some(console::firmware());
    machine.counter_hz = Some(examination.clock.hertz());
    let others = processors::aps().map_or(0, |aps| aps.len());
    machine.processors = u32::try_from(others + 1).ok();
    machine.uuid = smbios::system_uuid().map(|uuid| {
        uuid.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    });
    machine.model = smbios::system_model();
    let timeout = variable::read("Timeout", variable::GLOBAL);
    let timeout = timeout.and_then(|value| <[u8; 2]>::try_from(&*value).ok());
    machine.boot_menu_s = timeout.map(u16::from_le_bytes);
    machine.random = Some(random::is_offered());
    examination.report.checkpoints = Some(points::told());
    let images = Images::read();
    let asserting = debug_build::asserting(&images);
    examination.report.build = Some(Build {
        pool_filled: debug_build::pool_is_filled(),
        images: images.len() as u64,
        asserting: asserting
            .into_iter()
            .map(|image| image.name.clone())
            .collect(),
    });
    let names = images.iter().map(|image| &image.name);
    let drivers = names.filter(|name| is_network_driver(name));
    examination.report.network_drivers = drivers.cloned().collect();
    Ok(())
}
