//! When the firmware reached which point of the boot that brought doctor.efi: its own table, or recorder.efi's.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_fpdt::{basic_boot, boot_table_address, boot_table_length, tell_boot, tell_details};
use wireboot_platform::acpi;
use wireboot_platform::variable::{self, GLOBAL};
use wireboot_report::Checkpoints;
use wireboot_wire::load_option::{LoadOption, NetworkBoot};

/// The points, and why some are missing.
pub(super) fn told() -> Checkpoints {
    let mut points = Checkpoints::default();
    if let Some(number) = variable::boot_current() {
        let content = option(number);
        let option = LoadOption::parse(&content);
        points.option = Some(named(number, option.as_ref()));
        points.over_network = option.is_some_and(|one| NetworkBoot::of(one.path).is_some());
    }
    let table = boot_table();
    let boot = table
        .as_deref()
        .map_err(Clone::clone)
        .and_then(|table| basic_boot(table).map_err(|error| format!("{error}")));
    match boot {
        Ok(boot) => tell_boot(&boot, &mut points),
        Err(reason) => points
            .missing
            .push(format!("the firmware's times: {reason}")),
    }
    if let Ok(table) = table {
        let name = |number| named(number, LoadOption::parse(&option(number)).as_ref());
        tell_details(&table, name, &mut points);
    }
    points
}

/// The firmware's table of this boot (FBPT), or why there is none.
fn boot_table() -> Result<Vec<u8>, String> {
    let Some(address) = acpi::find(*b"FPDT") else {
        return Err(
            "this firmware has no FPDT; after `doctor.efi record on` recorder.efi keeps them"
                .into(),
        );
    };
    let length = |head: &[u8; 8]| {
        let [_, _, _, _, length @ ..] = *head;
        usize::try_from(u32::from_le_bytes(length)).ok()
    };
    let outside = "the FPDT is not in the firmware's memory map";
    let table = acpi::read(address, length).ok_or(outside)?;
    let address = boot_table_address(&table).map_err(|error| format!("{error}"))?;
    let outside = "the table to which the FPDT points is none, or not in the firmware's memory map";
    let table = acpi::read(address, |head| boot_table_length(head).ok());
    Ok(table.ok_or(outside)?)
}

fn option(number: u16) -> Box<[u8]> {
    variable::read(&format!("Boot{number:04X}"), GLOBAL).unwrap_or_default()
}

/// The number and the name of a boot option.
fn named(number: u16, option: Option<&LoadOption<'_>>) -> String {
    let name = option.map_or("", |option| &option.description);
    let printable = name.chars().filter(|c| !c.is_control());
    let name: String = printable.collect();
    format!("Boot{number:04X} {name}").trim_end().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_its_number_and_its_name() {
        let option = LoadOption {
            active: true,
            description: "UEFI\n PXEv4".into(),
            path: &[],
        };
        assert_eq!(named(0x1a, Some(&option)), "Boot001A UEFI PXEv4");
        assert_eq!(named(7, None), "Boot0007");
    }
}
