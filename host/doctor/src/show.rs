//! `wireboot report`: shows what was examined before.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use wireboot_report::Report;

use crate::text::merged;
use crate::{anonymous, html, output, status, text};

/// Show the report of an examination, on the terminal or in another format.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// The report, as `--json` of `wireboot doctor` wrote it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write a page for a browser to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
    /// Replace addresses, serial numbers and names by digests, to show the report to others
    #[arg(long)]
    anonymous: bool,
}

/// What is printed.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
struct Format {
    /// Print the report as it is in the file, all of it
    #[arg(long)]
    json: bool,
    /// Print what happened when, as comma-separated values
    #[arg(long)]
    csv: bool,
    /// Print it as Markdown
    #[arg(long)]
    markdown: bool,
    /// Print it as metrics, in the text format of Prometheus
    #[arg(long)]
    prometheus: bool,
}

pub(crate) fn run(arguments: &ReportArgs) -> Result<ExitCode> {
    let mut report = read(&arguments.file)?;
    if arguments.anonymous {
        report = anonymous::made(&report);
    }
    if let Some(file) = &arguments.html {
        output::write(file, &html::page(&report))?;
    }
    let format = &arguments.format;
    let printed = if format.json {
        report.to_json() + "\n"
    } else if format.csv {
        csv(&report)
    } else if format.markdown {
        markdown(&report)
    } else if format.prometheus {
        prometheus(&report)
    } else {
        text::shown(&report)
    };
    print!("{printed}");
    Ok(status(&report))
}

fn read(file: &Path) -> Result<Report> {
    let named = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(named)?;
    Report::from_json(&text).with_context(named)
}

/// RFC 4180.
fn csv(report: &Report) -> String {
    let mut out = String::from("kind,start_s,end_s,seconds,what\r\n");
    for phase in &report.timeline {
        // The schema's word, in quotes as JSON has them.
        let kind = serde_json::to_string(&phase.kind).unwrap_or_default();
        let quoted = phase.what.replace('"', "\"\"");
        let _ = write!(
            out,
            "{},{:.6},{:.6},{:.6},\"{quoted}\"\r\n",
            kind.trim_matches('"'),
            phase.start_s,
            phase.end_s,
            phase.seconds()
        );
    }
    out
}

fn markdown(report: &Report) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut out = format!(
        "**{}**: {}\n\n",
        report.machine.mac,
        wireboot_diagnosis::verdict(report)
    );
    if !report.findings.is_empty() {
        out.push_str("| seconds | what | seen | change |\n|---|---|---|---|\n");
    }
    for finding in &report.findings {
        let _ = writeln!(
            out,
            "| {:.1} | {} | {} | {} |",
            finding.seconds,
            cell(&finding.label),
            cell(&finding.evidence),
            cell(&finding.advice.join(". "))
        );
    }
    out.push_str("\n| at, s | took, s | what |\n|---|---|---|\n");
    for row in merged(&report.timeline) {
        let (start, seconds) = (row.phase.start_s, row.phase.seconds());
        let _ = writeln!(out, "| {start:.2} | {seconds:.2} | {} |", cell(&row.text()));
    }
    out
}

/// Prometheus' text format, version 0.0.4.
fn prometheus(report: &Report) -> String {
    let label = |text: &str| {
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let mac = label(&report.machine.mac);
    let mut out = format!(
        "# HELP wireboot_boot_network_seconds From the machine's first packet to the end of its last file.\n\
         # TYPE wireboot_boot_network_seconds gauge\n\
         wireboot_boot_network_seconds{{mac=\"{mac}\"}} {}\n",
        report.network.span_s
    );
    let bytes: u64 = report.network.transfers.iter().map(|one| one.bytes).sum();
    let _ = write!(
        out,
        "# HELP wireboot_boot_bytes Bytes of files that came.\n# TYPE wireboot_boot_bytes gauge\nwireboot_boot_bytes{{mac=\"{mac}\"}} {bytes}\n"
    );
    if !report.findings.is_empty() {
        out.push_str(
            "# HELP wireboot_boot_lost_seconds Seconds that a change would give back.\n# TYPE wireboot_boot_lost_seconds gauge\n",
        );
    }
    for finding in &report.findings {
        let _ = writeln!(
            out,
            "wireboot_boot_lost_seconds{{mac=\"{mac}\",finding=\"{}\"}} {}",
            label(&finding.id),
            finding.seconds
        );
    }
    out
}
