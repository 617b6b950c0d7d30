//! Every combination of state, flags, place of the sequence number and of the acknowledgement, text and windows, each as one segment to a real
//! connection, against the verdicts of `rfc9293.txt`.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

#[path = "../bench/mod.rs"]
mod bench;
mod cases;
mod check;
mod rows;

use cases::every_case;
use check::{Differences, check};
use rows::Table;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Holds every combination against the table; what differs is told by row, with the first combinations of each.
fn hold(origin: (u32, u32), scale: bool, passive: bool) {
    let table = Table::read();
    let cases = every_case(origin, scale, passive);
    let mut used = vec![false; table.rows.len()];
    let mut failures: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for case in &cases {
        let Some(index) = table.find(case) else {
            failures
                .entry(usize::MAX)
                .or_default()
                .push(format!("{case:?}\nno row\n"));
            continue;
        };
        used[index] = true;
        let row = &table.rows[index];
        let differences: Vec<Differences> = row
            .verdicts
            .iter()
            .map(|verdict| check(case, verdict, &table))
            .take_while(|wrong| !wrong.is_empty())
            .collect();
        if differences.len() == row.verdicts.len() {
            failures
                .entry(index)
                .or_default()
                .push(format!("{case:?}\n{}", differences.join("or\n")));
        }
    }
    let mut report = String::new();
    for (index, failures) in &failures {
        let row = table.rows.get(*index).map_or("no row".into(), |row| {
            format!(
                "RFC 9293 section 3.10.7{} (rfc9293.txt:{}): {}",
                row.step, row.line, row.source
            )
        });
        let _ = writeln!(
            report,
            "\n{row}\n{} combinations differ, the first:",
            failures.len()
        );
        for failure in failures.iter().take(3) {
            let _ = writeln!(report, "{failure}");
        }
    }
    for (row, _) in table.rows.iter().zip(used).filter(|(_, used)| !used) {
        let _ = writeln!(
            report,
            "\nrfc9293.txt:{}: no combination comes to this row: {}",
            row.line, row.source
        );
    }
    let wrong: usize = failures.values().map(Vec::len).sum();
    assert!(
        report.is_empty(),
        "{report}\n{wrong} of {} combinations differ",
        cases.len()
    );
}

#[test]
fn every_combination() {
    hold((0x1000_0000, 0x2000_0000), false, false);
}

/// Sequence numbers pass zero with the SYN.
#[test]
fn every_combination_from_the_last_number() {
    hold((u32::MAX, u32::MAX), true, true);
}

/// Sequence numbers pass zero in what is in flight and in the segment.
#[test]
fn every_combination_across_zero() {
    hold((u32::MAX - 6500, u32::MAX - 2050), true, false);
}

/// Sequence numbers pass the middle, where signs change.
#[test]
fn every_combination_across_the_middle() {
    hold((0x7fff_ffff - 6500, 0x7fff_ffff - 2050), false, true);
}
