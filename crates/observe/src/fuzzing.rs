//! The body of the fuzz target: what must hold for any bytes. It panics when it does not.

use alloc::vec::Vec;

use wireboot_report::Report;

use crate::{Clients, LinkType, Mac, Observer};

/// Any frames make a report that can be written and read, with times that go forward.
///
/// `data` is a list of frames: a byte that chooses the link type and the time since the last one, two for the length, the frame.
pub fn fuzz_observe(data: &[u8]) {
    let mut clients = Clients::default();
    let mut observer = Observer::new(Mac([2, 0, 0, 0, 0, 1]), 0.0);
    let mut time = 0.0;
    let mut rest = data;
    while let Some((&[kind, high, low], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (frame, behind) = behind.split_at(length);
        rest = behind;
        time += f64::from(kind >> 2) / 8.0;
        let link = match kind & 3 {
            0 => LinkType::Ethernet,
            1 => LinkType::LinuxCooked,
            2 => LinkType::LinuxCooked2,
            _ => LinkType::Ip,
        };
        clients.frame(time, link, frame);
        observer.frame(time, link, frame);
    }
    let found: Vec<_> = clients.found();
    assert!(found.iter().all(|client| client.began_unix_s <= time));
    let report = observer.report();
    let again = Report::from_json(&report.to_json());
    assert_eq!(again.ok(), Some(report));
}
