use super::*;
use std::vec::Vec;

/// A table with these records.
fn fbpt(records: &[Vec<u8>]) -> Vec<u8> {
    let rest = records.concat();
    let length = (BOOT_HEADER + rest.len()) as u32;
    [&b"FBPT"[..], &length.to_le_bytes(), &rest].concat()
}

/// A record as `ExtendedFirmwarePerformance.h` lays it out.
fn record(kind: u16, progress: u16, at_ns: u64, behind: &[u8]) -> Vec<u8> {
    let length = (34 + behind.len()) as u8;
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([length, 1]);
    bytes.extend(progress.to_le_bytes());
    bytes.extend(7_u32.to_le_bytes());
    bytes.extend(at_ns.to_le_bytes());
    bytes.extend([9; 16]);
    bytes.extend(behind);
    bytes
}

#[test]
fn each_type_of_record_is_read() {
    let table = fbpt(&[
        record(0x1010, 3, 10, &[]),
        record(0x1011, 4, 20, b"MnpDxe\0\0"),
        // A callback's.
        record(0x1012, 0x20, 21, &[1; 24]),
        record(0x1011, 1, 22, b"SnpDxe"),
        record(0x1013, 7, 23, &[2; 8]),
        // The name of the device, not the module's.
        record(0x1014, 6, 24, b"a numberPciRoot(0x0)/MAC(525400770002)"),
        // Another's.
        record(0x3000, 5, 25, &[2; 8]),
    ]);
    let events: Vec<_> = module_events(&table).unwrap().collect();
    let told = events.iter().map(|one| {
        assert_eq!(one.guid, [9; 16]);
        (one.activity, one.begins, one.at_ns, one.name)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (Activity::LoadImage, true, 10, ""),
            (Activity::LoadImage, false, 20, "MnpDxe"),
            (Activity::StartImage, true, 22, "SnpDxe"),
            (Activity::Supported, true, 23, ""),
            (Activity::Start, false, 24, ""),
        ]
    );
}

/// `PerformanceLib.h` has an odd number for each beginning, and the next one for its end.
#[test]
fn progress_says_what_and_whether_it_begins() {
    let of = |progress| Activity::of(progress);
    let all = [
        Activity::StartImage,
        Activity::LoadImage,
        Activity::Start,
        Activity::Supported,
        Activity::Stop,
    ];
    for (activity, first) in all.into_iter().zip((1..).step_by(2)) {
        assert_eq!(of(first), Some((true, activity)));
        assert_eq!(of(first + 1), Some((false, activity)));
    }
    for other in [0, 11, 0x10, 0x31, 0xffff] {
        assert_eq!(of(other), None);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let read = |table: &[u8]| module_events(table).map(|events| events.count());
    let long = record(0x1010, 3, LONGEST_NS + 1, &[]);
    assert_eq!(read(&fbpt(&[long])), Err(ParseError::Times));
    let good = record(0x1010, 3, LONGEST_NS, &[]);
    assert_eq!(read(&fbpt(core::slice::from_ref(&good))), Ok(1));
    let mut cut = good.clone();
    cut[2] += 1;
    assert_eq!(read(&fbpt(&[cut])), Err(ParseError::Truncated));
    // Too short for what it is; with a name that is none.
    let mut short = good[..33].to_vec();
    short[2] = 33;
    assert_eq!(read(&fbpt(&[short])), Ok(0));
    let table = fbpt(&[record(0x1011, 3, 1, b"\x1b[2J")]);
    assert_eq!(module_events(&table).unwrap().next().unwrap().name, "");
}
