use super::*;
use std::vec::Vec;

/// The example of Intel's paper of 2014: a Linux by PXE.
const PXE: BasicBoot = BasicBoot {
    reset_end_ns: 21_000_000,
    load_image_ns: 7_037_000_000,
    start_image_ns: 20_246_000_000,
    exit_entry_ns: 40_363_000_000,
    exit_ns: 40_365_000_000,
};

/// A record of a kind that is passed over.
const OTHER: [u8; 6] = [0x11, 0x10, 6, 1, 0xaa, 0xbb];

fn fpdt(address: u64) -> Vec<u8> {
    let mut table = b"FPDT".to_vec();
    table.extend([0; 32]);
    table.extend(OTHER);
    table.extend([0, 0, 16, 1, 0, 0, 0, 0]);
    table.extend(address.to_le_bytes());
    let length = table.len() as u32;
    table[4..8].copy_from_slice(&length.to_le_bytes());
    let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    table[9] = 0_u8.wrapping_sub(sum);
    table
}

fn fbpt(boot: &BasicBoot) -> Vec<u8> {
    let mut table = b"FBPT\0\0\0\0".to_vec();
    table.extend(OTHER);
    table.extend([2, 0, 48, 2, 0, 0, 0, 0]);
    for time in [
        boot.reset_end_ns,
        boot.load_image_ns,
        boot.start_image_ns,
        boot.exit_entry_ns,
        boot.exit_ns,
    ] {
        table.extend(time.to_le_bytes());
    }
    let length = table.len() as u32;
    table[4..8].copy_from_slice(&length.to_le_bytes());
    table
}

#[test]
fn the_pointer_leads_to_the_times() {
    assert_eq!(boot_table_address(&fpdt(0x7f00_1000)), Ok(0x7f00_1000));
    let table = fbpt(&PXE);
    let header = table.first_chunk().unwrap();
    assert_eq!(boot_table_length(header), Ok(table.len()));
    assert_eq!(basic_boot(&table), Ok(PXE));
    // What lies behind the table is not the table's.
    let longer = [table.as_slice(), &[0xff; 9]].concat();
    assert_eq!(basic_boot(&longer), Ok(PXE));
}

#[test]
fn what_is_damaged_is_refused() {
    let table = fpdt(1);
    for (place, error) in [(0, ParseError::Signature), (20, ParseError::Checksum)] {
        let mut damaged = table.clone();
        damaged[place] ^= 1;
        assert_eq!(boot_table_address(&damaged), Err(error));
    }
    for end in 0..table.len() {
        assert_eq!(
            boot_table_address(&table[..end]),
            Err(ParseError::Truncated),
            "{end}"
        );
    }
    let table = fbpt(&PXE);
    for end in 0..table.len() {
        assert_eq!(
            basic_boot(&table[..end]),
            Err(ParseError::Truncated),
            "{end}"
        );
    }
    let mut short = table.clone();
    // A record of no length would never end.
    short[10] = 3;
    assert_eq!(basic_boot(&short), Err(ParseError::Truncated));
    let empty = b"FBPT\x08\0\0\0";
    assert_eq!(basic_boot(empty), Err(ParseError::NoRecord));
    assert_eq!(
        boot_table_length(b"FPDT\x08\0\0\0"),
        Err(ParseError::Signature)
    );
}

#[test]
fn times_that_no_boot_has_are_refused() {
    let with = |change: fn(&mut BasicBoot)| {
        let mut boot = PXE;
        change(&mut boot);
        basic_boot(&fbpt(&boot))
    };
    assert_eq!(
        with(|boot| boot.start_image_ns = 7_000_000_000),
        Err(ParseError::Times)
    );
    assert_eq!(
        with(|boot| boot.exit_ns = LONGEST_NS + 1),
        Err(ParseError::Times)
    );
    assert!(with(|boot| boot.exit_ns = LONGEST_NS).is_ok());
    // A system that never ended the boot services.
    let none = with(|boot| (boot.exit_entry_ns, boot.exit_ns) = (0, 0)).unwrap();
    assert_eq!(none.exit_ns, 0);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..90), signature in 0..3) {
        let mut bytes = bytes;
        let head: &[u8] = [b"FPDT".as_slice(), b"FBPT", b""][signature as usize];
        bytes.splice(..0, head.iter().copied());
        fuzzing::fuzz_fpdt(&bytes);
    }
}

fn pair(recording: &Recording) -> (BasicBoot, Vec<Attempt>) {
    let mut memory = [0xff; MOST_BYTES];
    recording.write(&mut memory);
    let length = boot_table_length(memory.first_chunk().unwrap()).unwrap();
    let table = &memory[..length];
    let attempts = attempts(table).unwrap().collect();
    (basic_boot(table).unwrap(), attempts)
}

#[test]
fn the_last_attempt_is_the_boot_and_those_before_are_kept() {
    let mut recording = Recording::default();
    assert_eq!(pair(&recording), (BasicBoot::default(), Vec::new()));
    recording.ready_to_boot(Some(7), 1_000);
    recording.ready_to_boot(None, 3_000);
    assert!(recording.program_starts(4_000));
    assert!(!recording.program_starts(4_100));
    recording.program_came_back(5_000);
    recording.ready_to_boot(Some(1), 6_000);
    assert!(recording.program_starts(7_000));
    recording.exit_begins(8_000);
    recording.exit_begins(8_500);
    recording.exit_done(9_000);
    let (boot, attempts) = pair(&recording);
    assert_eq!(
        boot,
        BasicBoot {
            reset_end_ns: 0,
            load_image_ns: 6_000,
            start_image_ns: 7_000,
            exit_entry_ns: 8_000,
            exit_ns: 9_000,
        }
    );
    let attempt = |option, ready_ns, start_ns, back_ns| Attempt {
        option,
        ready_ns,
        start_ns,
        back_ns,
    };
    assert_eq!(
        attempts,
        [
            attempt(Some(7), 1_000, 0, 0),
            attempt(None, 3_000, 4_000, 5_000),
            attempt(Some(1), 6_000, 7_000, 0),
        ]
    );
}

#[test]
fn a_program_before_the_first_attempt_is_none() {
    let mut recording = Recording::default();
    assert!(!recording.program_starts(1));
    recording.program_came_back(2);
    assert_eq!(pair(&recording).1, Vec::new());
}

#[test]
fn of_too_many_attempts_the_latest_are_kept() {
    let mut recording = Recording::default();
    for number in 0..MOST_ATTEMPTS as u16 + 3 {
        recording.ready_to_boot(Some(number), u64::from(number) + 1);
    }
    let (boot, attempts) = pair(&recording);
    assert_eq!(attempts.len(), MOST_ATTEMPTS);
    assert_eq!(attempts[0].option, Some(3));
    assert_eq!(
        attempts.last().unwrap().option,
        Some(MOST_ATTEMPTS as u16 + 2)
    );
    assert_eq!(boot.load_image_ns, MOST_ATTEMPTS as u64 + 3);
}

#[test]
fn a_table_without_room_is_cut_off_and_nothing_else_is_written() {
    let mut recording = Recording::default();
    recording.ready_to_boot(Some(1), 1);
    let mut memory = [0; 60];
    recording.write(&mut memory);
    assert_eq!(basic_boot(&memory), Err(ParseError::Truncated));
    assert!(attempts(&memory).is_err());
}

#[test]
fn attempts_of_others_and_impossible_ones_are_none() {
    assert_eq!(attempts(&fbpt(&PXE)).unwrap().count(), 0);
    let mut recording = Recording::default();
    recording.ready_to_boot(Some(1), 5);
    recording.program_starts(6);
    let mut memory = [0; MOST_BYTES];
    recording.write(&mut memory);
    assert_eq!(attempts(&memory).unwrap().count(), 1);
    let mut others = memory;
    others[60] ^= 1;
    assert_eq!(attempts(&others).unwrap().count(), 0);
    let mut backwards = memory;
    backwards[56 + 24] = 7;
    assert_eq!(attempts(&backwards).err(), Some(ParseError::Times));
    let mut ages = memory;
    ages[56 + 32..][..8].copy_from_slice(&(LONGEST_NS + 1).to_le_bytes());
    assert_eq!(attempts(&ages).err(), Some(ParseError::Times));
}

#[test]
fn the_pointer_that_is_written_is_read() {
    for address in [0, 0x1f73_c000, u64::MAX] {
        assert_eq!(boot_table_address(&write_fpdt(address)), Ok(address));
    }
}

proptest::proptest! {
    #[test]
    fn what_is_recorded_is_read(steps in proptest::collection::vec((0..5, 1..1_000_u64), 0..200)) {
        let mut recording = Recording::default();
        let mut now = 0;
        for (step, later) in steps {
            now += later;
            match step {
                0 => recording.ready_to_boot(Some(now as u16), now),
                1 => drop(recording.program_starts(now)),
                2 => recording.program_came_back(now),
                3 => recording.exit_begins(now),
                _ => recording.exit_done(now),
            }
            let (boot, attempts) = pair(&recording);
            assert!(attempts.len() <= MOST_ATTEMPTS);
            let latest = attempts.last().copied().unwrap_or_default();
            assert_eq!((boot.load_image_ns, boot.start_image_ns), (latest.ready_ns, latest.start_ns));
        }
    }
}
