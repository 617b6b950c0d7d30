//! The figures as tables for a page, cold memory beside warm.

use std::fmt::Write;

use super::files::MIB;
use super::problems;
use super::report::{BenchReport, BenchRow, short_version};
use wireboot_lab::statistics::{digits, shown_as};

/// All tables of a report.
#[must_use]
pub(super) fn tables(report: &BenchReport) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write(report, &mut text);
    text
}

fn write(report: &BenchReport, text: &mut String) -> std::fmt::Result {
    writeln!(text, "{}", report.host.provenance())?;
    if !report.rows.is_empty() {
        writeln!(
            text,
            "\nMbit/s: median (lowest to highest; number of trials). Ratios are of medians, warm / cold."
        )?;
    }
    let mut sizes: Vec<u64> = report.rows.iter().map(|row| row.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for bytes in sizes {
        writeln!(text, "\n### {} MiB\n", bytes / MIB)?;
        writeln!(
            text,
            "| stack | server | warm memory | cold memory | stock UEFI = 1 | iPXE = 1 | Linux guest = 1 |\n|---|---|---|---|---|---|---|"
        )?;
        let of_size = |row: &&BenchRow| row.bytes == bytes;
        let mut stacks: Vec<&str> = Vec::new();
        for row in report.rows.iter().filter(of_size) {
            if !stacks.contains(&row.id.as_str()) {
                stacks.push(&row.id);
            }
        }
        for id in stacks {
            let of = |warm: bool| {
                report
                    .rows
                    .iter()
                    .filter(of_size)
                    .find(|row| row.id == id && row.warm == warm)
            };
            let (warm, cold) = (of(true), of(false));
            let Some(row) = warm.or(cold) else { continue };
            let both = |ratio: fn(&BenchRow) -> Option<f64>| {
                let one = |row: Option<&BenchRow>| {
                    row.and_then(ratio)
                        .map_or_else(|| "-".to_owned(), |ratio| digits(ratio, 2))
                };
                format!("{} / {}", one(warm), one(cold))
            };
            writeln!(
                text,
                "| {} {}, {} | {} | {} | {} | {} | {} | {} |",
                row.stack,
                short_version(&row.version),
                row.protocol.to_uppercase(),
                row.server,
                rate(warm),
                rate(cold),
                both(|row| row.over_stock),
                both(|row| row.over_ipxe),
                both(|row| row.over_linux),
            )?;
        }
    }
    if !report.latency.is_empty() {
        writeln!(
            text,
            "\n### From the first DISCOVER or Solicit to the first byte of the file\n\n| stack | start | protocol | ms: median (lowest to highest; trials) | firmware's part |\n|---|---|---|---|---|"
        )?;
    }
    let ms = |seconds| seconds * 1e3;
    for row in &report.latency {
        writeln!(
            text,
            "| {} {} | {} | {} | {} | {} |",
            row.stack,
            short_version(&row.version),
            row.start.name(),
            row.protocol.to_uppercase(),
            shown_as(&row.seconds, ms),
            shown_as(&row.firmware_seconds, ms)
        )?;
    }
    if !report.instructions.is_empty() {
        writeln!(
            text,
            "\n### Instructions of the engine for a byte received (callgrind, host build)\n\n| stream | bytes | instructions | a byte |\n|---|---|---|---|"
        )?;
    }
    for row in &report.instructions {
        writeln!(
            text,
            "| {} | {} | {} | {} |",
            row.stream,
            row.bytes,
            row.instructions,
            digits(row.per_byte, 3)
        )?;
    }
    text.push_str(&problems::section(&report.failures, &report.failed_trials));
    Ok(())
}

fn rate(row: Option<&BenchRow>) -> String {
    row.map_or_else(
        || "-".to_owned(),
        |row| {
            let bits = row.bytes as f64 * 8.0;
            shown_as(&row.seconds, |seconds| bits / seconds / 1e6)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report;

    #[test]
    fn cold_stands_beside_warm_with_spread_and_number() {
        let text = tables(&report());
        for part in [
            "### 64 MiB",
            // 0.1, 0.3 and 0.2 s warm, 1 s cold; stock's best takes 10 s, Linux' 0.4 s, neither with cold memory.
            "| a stack 2.0, HTTP | nginx | 2700 (1800 to 5400; 3) | 540 (1) | 50 / - | - / - | 2.0 / - |",
            "| a stack 2.0 | PXE | HTTP | 3500 (3000 to 5000; 3) | 2000 (2000 to 2000; 3) |",
            "| a stack 2.0 | stick | HTTP | 3500 (3000 to 5000; 3) | - |",
            "- no figure for grub-http 64 MiB warm: it never asked for the file",
            "- failed in round 2: wireboot-http 64 MiB warm: the machine stopped",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn nothing_failed_is_said() {
        let mut report = report();
        report.failures.clear();
        report.failed_trials.clear();
        assert!(tables(&report).ends_with("Nothing.\n"));
    }
}
