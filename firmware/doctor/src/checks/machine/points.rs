//! When the firmware reached which point of the boot that brought doctor.efi: its own table, or recorder.efi's.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_fpdt::{
    LONGEST_TABLE, ParseError, basic_boot, boot_table_address, report_boot, report_details,
};
use wireboot_platform::acpi;
use wireboot_platform::variable::{self, GLOBAL};
use wireboot_report::Checkpoints;
use wireboot_wire::load_option::{LoadOption, NetworkBoot};

/// The points, and why some are missing.
pub(super) fn told() -> Checkpoints {
    let mut points = Checkpoints::default();
    if let Some(number) = variable::boot_current() {
        came_by(number, &option(number), &mut points);
    }
    match boot_table().and_then(|table| Ok((basic_boot(&table).map_err(shown)?, table))) {
        Ok((boot, table)) => {
            report_boot(&boot, &mut points);
            report_details(&table, |number| named(number, &option(number)), &mut points);
        }
        Err(reason) => points
            .missing
            .push(format!("the firmware's times: {reason}")),
    }
    points
}

/// Writes down by which boot option the examination came.
fn came_by(number: u16, option: &[u8], points: &mut Checkpoints) {
    points.option = Some(named(number, option));
    points.over_network =
        LoadOption::parse(option).is_some_and(|one| NetworkBoot::of(one.path).is_some());
}

/// The firmware's table of this boot (FBPT), or why there is none.
fn boot_table() -> Result<Vec<u8>, String> {
    let none = "this firmware has no FPDT; after `doctor.efi record on` recorder.efi keeps them";
    let elsewhere = |which| format!("{which} is not in memory for tables, or longer than 4 MiB");
    let pointer = acpi::find(*b"FPDT").ok_or(none)?;
    let pointer = acpi::read(pointer, LONGEST_TABLE).ok_or_else(|| elsewhere("the FPDT"))?;
    let table = boot_table_address(&pointer).map_err(shown)?;
    acpi::read(table, LONGEST_TABLE).ok_or_else(|| elsewhere("the FBPT"))
}

fn shown(error: ParseError) -> String {
    format!("{error}")
}

fn option(number: u16) -> Box<[u8]> {
    variable::read(&format!("Boot{number:04X}"), GLOBAL).unwrap_or_default()
}

/// The number and the name of a boot option.
fn named(number: u16, option: &[u8]) -> String {
    let name = LoadOption::parse(option).map_or_else(String::new, |option| option.description);
    let printable: String = name.chars().filter(|c| !c.is_control()).collect();
    format!("Boot{number:04X} {printable}").trim_end().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// An option with this name and this path.
    fn option(name: &str, path: &[u8]) -> Vec<u8> {
        let mut option = vec![1, 0, 0, 0];
        option.extend((path.len() as u16 + 4).to_le_bytes());
        option.extend(name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        option.extend(path);
        option.extend([0x7f, 0xff, 4, 0]);
        option
    }

    #[test]
    fn an_option_has_its_number_and_its_name() {
        assert_eq!(
            named(0x1a, &option("UEFI\n PXEv4", &[])),
            "Boot001A UEFI PXEv4"
        );
        assert_eq!(named(7, &[]), "Boot0007");
    }

    #[test]
    fn who_comes_over_the_network_says_so() {
        let mut points = Checkpoints::default();
        // A MAC address, and IPv4.
        let mac = [&[3, 11, 37, 0][..], &[7; 33]].concat();
        let ipv4 = [&[3, 12, 27, 0][..], &[7; 23]].concat();
        came_by(3, &option("PXE", &[mac, ipv4].concat()), &mut points);
        assert!(points.over_network);
        assert_eq!(points.option.as_deref(), Some("Boot0003 PXE"));
        came_by(4, &option("Disk", &[]), &mut points);
        assert!(!points.over_network);
    }
}
