//! A report as Markdown, for issues and wikis.

use std::fmt::Write;

use wireboot_report::Report;

use crate::text::{heard_rows, how_sampled, merged, outcome};
use crate::{costs, ladder, memory, servers, sweep, throughput, trace};

/// Images and calls that are shown.
const ROWS: usize = 20;

pub(crate) fn markdown(report: &Report) -> String {
    let mut out = format!(
        "**{}**: {}\n",
        cell(&report.machine.mac),
        cell(&wireboot_diagnosis::verdict(report))
    );
    let found = report.findings.iter().map(|finding| {
        [
            format!("{:.1}", finding.seconds),
            finding.label.clone(),
            finding.evidence.clone(),
            finding.advice.join(". "),
        ]
    });
    table(&mut out, "", ["seconds", "what", "seen", "change"], found);
    for remark in report.remarks() {
        line(&mut out, &remark);
    }
    let loaded = report.dry_boots.iter().map(|boot| {
        [
            format!("{:.2} ± {:.2}", boot.mean_s(), boot.spread_s()),
            boot.runs_s.len().to_string(),
            outcome(boot),
            boot.option.clone(),
        ]
    });
    table(
        &mut out,
        "",
        ["loaded, s", "runs", "", "boot option"],
        loaded,
    );
    let (of, timeline) = match report.dry_boot() {
        Some(boot) if report.timeline.is_empty() => (boot.option.as_str(), &boot.timeline),
        _ => ("", &report.timeline),
    };
    let phases = merged(timeline).into_iter().map(|row| {
        let (start, seconds) = (row.phase.start_s, row.phase.seconds());
        [format!("{start:.2}"), format!("{seconds:.2}"), row.text()]
    });
    table(&mut out, of, ["at, s", "took, s", "what"], phases);
    if let Some(heard) = &report.surroundings {
        table(&mut out, "", ["heard", "", "at, s"], heard_rows(heard));
    }
    table(&mut out, "", servers::HEADS, servers::rows(report));
    table(
        &mut out,
        "",
        costs::HEADS,
        report.costs.iter().map(costs::row),
    );
    for sentence in costs::sentences(report) {
        line(&mut out, &sentence);
    }
    if let Some(memory) = &report.memory {
        table(&mut out, "", memory::TYPES, memory::types(memory));
        table(&mut out, "", memory::RATES, memory::rates(memory));
        table(&mut out, "", memory::WAYS, memory::ways(memory));
        for sentence in memory::sentences(memory) {
            line(&mut out, &sentence);
        }
    }
    if let Some(ladder) = &report.ladder {
        table(&mut out, "", ladder::HEADS, ladder::rows(ladder));
        line(&mut out, &ladder::sentence(ladder));
    }
    let traced = report.trace.iter().flat_map(|trace| {
        let boot = trace.boot.iter().flat_map(trace::of_boot);
        boot.chain(trace.transfer.iter().flat_map(trace::of_packets))
    });
    let traced = traced.map(|(what, calls)| [what, calls]);
    table(&mut out, "", ["what the firmware called", "calls"], traced);
    let tests = report.throughput.iter().map(throughput::row);
    table(&mut out, "", throughput::HEADS, tests);
    for fit in throughput::fits(&report.throughput) {
        line(&mut out, &fit);
    }
    sweep::markdown(&mut out, &report.sweep);
    if let Some(profile) = &report.profile {
        let images = profile.images.iter().take(ROWS).map(|image| {
            let name = match image.name.as_str() {
                "" => "no image",
                name => name,
            };
            let share = profile.share(image) * 100.0;
            [format!("{share:.1}"), name.to_owned()]
        });
        table(&mut out, "", ["share, %", "the processor was in"], images);
        let of = format!("{} samples, {}", profile.samples, how_sampled(profile));
        line(&mut out, &of);
    }
    out
}

/// A cell ends at a bar, and a stranger's file name must be neither HTML nor a link.
fn cell(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace(char::is_control, " ");
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('|', "\\|").replace('[', "\\[")
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "\n{}", cell(text));
}

/// A table, where it has rows, with a title if there is one.
fn table<const N: usize>(
    out: &mut String,
    title: &str,
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return;
    }
    if !title.is_empty() {
        line(out, title);
    }
    let rule = "---|".repeat(N);
    let _ = writeln!(out, "\n| {} |\n|{rule}", heads.join(" | "));
    for row in rows {
        let cells = row.map(|text| cell(&text));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an examination of a whole machine has measured.
    #[test]
    fn each_part_of_an_examination_has_its_table() {
        let recorded = include_str!("../../../crates/diagnosis/recorded/healthy.json");
        let page = markdown(&Report::from_json(recorded).unwrap());
        for head in [
            "| seconds | what | seen | change |",
            "| loaded, s | runs |  | boot option |",
            "| at, s | took, s | what |",
            "| heard |  | at, s |",
            "| server | path | answer |",
            "| what the firmware called | calls |",
            "| share, % | the processor was in |",
            "| received by | frames |",
            "TFTP by wireboot over IPv4, ",
        ] {
            assert!(page.contains(head), "{head} in {page}");
        }
        for line in page.lines().filter(|line| line.starts_with('|')) {
            assert!(line.ends_with('|'), "{line}");
        }
    }

    #[test]
    fn a_strangers_text_is_no_part_of_the_table() {
        let mut out = String::new();
        let row = ["a|b\nc".to_owned(), "<b>[x](y)".to_owned()];
        table(&mut out, "", ["one", "two"], [row]);
        assert!(out.ends_with("| a\\|b c | &lt;b>\\[x](y) |\n"), "{out}");
        let mut none = String::new();
        table(&mut none, "", ["one"], []);
        assert_eq!(none, "");
    }
}
