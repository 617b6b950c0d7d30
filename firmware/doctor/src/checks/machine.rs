//! What machine it is.

use crate::error::Error;
use crate::examination::Examination;
use alloc::format;
use wireboot_platform::{console, processors, smbios, variable};

/// Firmware, processors, counter, UUID, maker and model, and how long the firmware waits for its menu.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let machine = &mut examination.report.machine;
    machine.firmware = Some(console::firmware());
    machine.counter_hz = Some(examination.clock.hertz());
    let others = processors::aps().map_or(0, |aps| aps.len());
    machine.processors = u32::try_from(others + 1).ok();
    machine.uuid = smbios::system_uuid().map(|uuid| {
        uuid.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<alloc::string::String>()
    });
    machine.model = smbios::system_model();
    let timeout = variable::read("Timeout", variable::GLOBAL);
    let timeout = timeout.and_then(|value| <[u8; 2]>::try_from(&*value).ok());
    machine.boot_menu_s = timeout.map(u16::from_le_bytes);
    Ok(())
}
