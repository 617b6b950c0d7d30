use super::*;
use crate::{MOST_BYTES, Recording, basic_boot};
use std::borrow::ToOwned;
use std::vec;
use std::vec::Vec;

const MS: u64 = 1_000_000;

/// Two options were tried, the first in vain.
fn recorded() -> Vec<u8> {
    let mut recording = Recording::default();
    recording.ready_to_boot(Some(1), 1000 * MS);
    recording.ready_to_boot(Some(7), 1500 * MS);
    recording.program_starts(1750 * MS);
    recording.program_came_back(2000 * MS);
    let mut table = vec![0; MOST_BYTES];
    recording.write(&mut table);
    table
}

/// The same, and behind it a driver that began to drive a device, from the one time to the other.
fn with_module(table: &[u8], from_ns: u64, to_ns: u64) -> Vec<u8> {
    let length = u32::from_le_bytes(*table[4..].first_chunk().unwrap()) as usize;
    let mut table = table[..length].to_vec();
    for (progress, at_ns) in [(5_u16, from_ns), (6, to_ns)] {
        table.extend([0x11, 0x10, 34 + 6, 1]);
        table.extend(progress.to_le_bytes());
        table.extend([0; 4]);
        table.extend(at_ns.to_le_bytes());
        table.extend([9; 16]);
        table.extend(b"MnpDxe");
    }
    let length = (table.len() as u32).to_le_bytes();
    table[4..8].copy_from_slice(&length);
    table
}

fn reported(table: &[u8]) -> Checkpoints {
    let mut points = Checkpoints::default();
    report_boot(&basic_boot(table).unwrap(), &mut points);
    report_details(table, |number| format!("Boot{number:04X} x"), &mut points);
    points
}

#[test]
fn points_that_were_not_reached_are_not_told() {
    let points = reported(&recorded());
    assert_eq!(points.reset_end_s, None);
    assert_eq!(points.load_image_s, Some(1.5));
    assert_eq!(points.start_image_s, Some(1.75));
    assert_eq!((points.exit_entry_s, points.exit_s), (None, None));
    let mut points = Checkpoints::default();
    let boot = BasicBoot {
        reset_end_ns: MS,
        load_image_ns: 2 * MS,
        start_image_ns: 3 * MS,
        exit_entry_ns: 4 * MS,
        exit_ns: 5 * MS,
    };
    report_boot(&boot, &mut points);
    assert_eq!(points.reset_end_s, Some(0.001));
    assert_eq!(points.exit_entry_s, Some(0.004));
    assert_eq!(points.exit_s, Some(0.005));
}

#[test]
fn attempts_have_the_names_of_their_options() {
    let points = reported(&recorded());
    let names: Vec<_> = points.attempts.iter().map(|one| &*one.option).collect();
    assert_eq!(names, ["Boot0001 x", "Boot0007 x"]);
    let first = &points.attempts[0];
    assert_eq!(
        (first.ready_s, first.start_s, first.back_s),
        (1.0, None, None)
    );
    let second = &points.attempts[1];
    assert_eq!((second.start_s, second.back_s), (Some(1.75), Some(2.0)));

    let mut recording = Recording::default();
    recording.ready_to_boot(None, MS);
    let mut table = vec![0; MOST_BYTES];
    recording.write(&mut table);
    let other = reported(&table).attempts[0].option.to_owned();
    assert_eq!(other, "what is no boot option");
}

/// Each has its name looked up in the firmware.
#[test]
fn no_more_attempts_are_told_than_the_recorder_keeps() {
    let mut table = recorded();
    let attempt = table[8 + 48..][..48].to_vec();
    let count = 2 * crate::MOST_ATTEMPTS;
    table.truncate(8 + 48);
    table.extend(attempt.repeat(count));
    let length = (table.len() as u32).to_le_bytes();
    table[4..8].copy_from_slice(&length);
    assert_eq!(reported(&table).attempts.len(), crate::MOST_ATTEMPTS);
}

#[test]
fn what_was_driven_before_the_first_option_counts_as_before() {
    let before = reported(&with_module(&recorded(), 600 * MS, 900 * MS));
    let [module] = &*before.modules else {
        panic!("{before:?}")
    };
    assert_eq!(module.name, "MnpDxe");
    assert!((module.bind_s - 0.3).abs() < 1e-9, "{module:?}");
    assert_eq!(module.bind_before_s, module.bind_s);
    // It is between the first option and the one that was used.
    let behind = reported(&with_module(&recorded(), 1100 * MS, 1400 * MS));
    assert_eq!(behind.modules[0].bind_before_s, 0.0);
}

#[test]
fn times_that_cannot_be_are_told_as_missing() {
    let table = with_module(&recorded(), 0, u64::MAX);
    let points = reported(&table);
    assert_eq!((points.modules.len(), points.attempts.len()), (0, 2));
    let said = points.missing.join(" ");
    assert!(said.contains("modules: the table's times"), "{said}");
    // An attempt that was never ready.
    let mut table = recorded();
    table[8 + 48 + 48 + 24..][..8].fill(0);
    let points = reported(&table);
    assert_eq!(points.attempts, []);
    let said = points.missing.join(" ");
    assert!(said.contains("tried: the table's times"), "{said}");
}
