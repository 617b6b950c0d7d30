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
