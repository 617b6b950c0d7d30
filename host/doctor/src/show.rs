//! `wireboot report`: shows what was examined before.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use wireboot_report::Report;

use crate::text::merged;
use crate::{against, anonymous, fleet, html, output, status, text};

/// Show the report of an examination, on the terminal or in another format.
///
/// Of several reports, or a directory of them, it shows a table of the machines, the slowest first.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Reports, as `--json` of `wireboot doctor` wrote them, and directories with such files
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Set another report beside it: before and after a change, or two machines
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
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

impl Format {
    fn is_any(&self) -> bool {
        self.json || self.csv || self.markdown || self.prometheus
    }
}

pub(crate) fn run(arguments: &ReportArgs) -> Result<ExitCode> {
    let mut reports = all(&arguments.paths)?;
    let mut other = arguments.against.as_deref().map(read).transpose()?;
    if arguments.anonymous {
        let every = reports.iter_mut().chain(&mut other);
        every.for_each(|report| *report = anonymous::made(report));
    }
    let found = reports
        .iter()
        .chain(&other)
        .any(|one| !one.findings.is_empty());
    let page = match (reports.as_slice(), &other, arguments.paths.as_slice()) {
        ([report], Some(other), [file]) => {
            ensure!(
                !arguments.format.is_any(),
                "two reports beside each other are shown as text and as a page (--html) alone"
            );
            let names = [file, arguments.against.as_ref().unwrap_or(file)].map(|file| stem(file));
            let names = [names[0].as_str(), names[1].as_str()];
            output::print(&against::shown(names, [report, other]));
            html::pair(names, [report, other])
        }
        (_, Some(_), _) => bail!("--against sets one report beside one other"),
        ([report], None, [file]) if file.is_file() => {
            output::print(&printed(report, &arguments.format));
            html::page(report)
        }
        (reports, None, _) => {
            ensure!(
                !(arguments.format.json || arguments.format.csv || arguments.format.markdown),
                "several reports are shown as text, as metrics (--prometheus) and as a page (--html) alone"
            );
            if arguments.format.prometheus {
                output::print(&prometheus(reports));
            } else {
                output::print(&fleet::shown(reports));
            }
            html::fleet(reports)
        }
    };
    if let Some(file) = &arguments.html {
        output::write(file, &page)?;
    }
    Ok(status(found))
}

fn printed(report: &Report, format: &Format) -> String {
    if format.json {
        report.to_json() + "\n"
    } else if format.csv {
        csv(report)
    } else if format.markdown {
        markdown(report)
    } else if format.prometheus {
        prometheus(std::slice::from_ref(report))
    } else {
        text::shown(report)
    }
}

/// A file's name without its ending.
fn stem(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    stem.to_string_lossy().into_owned()
}

/// The reports in files, and in the files `*.json` of directories, in the order of their names. What is no report in a directory is told and
/// passed over.
fn all(paths: &[PathBuf]) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for path in paths {
        if !path.is_dir() {
            reports.push(read(path)?);
            continue;
        }
        let named = || path.display().to_string();
        let entries = std::fs::read_dir(path).with_context(named)?;
        let mut files = Vec::new();
        for entry in entries {
            let file = entry.with_context(named)?.path();
            if file.extension().is_some_and(|ending| ending == "json") {
                files.push(file);
            }
        }
        files.sort();
        for file in files {
            match read(&file) {
                Ok(report) => reports.push(report),
                Err(error) => eprintln!("wireboot: passed over: {error:#}"),
            }
        }
    }
    ensure!(
        !reports.is_empty(),
        "no report in {}",
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(reports)
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
fn prometheus(reports: &[Report]) -> String {
    let quoted = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{}\"", text.replace('\n', "\\n"))
    };
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, samples: Vec<(String, f64)>| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (labels, value) in samples {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
        }
    };
    let mac = |report: &Report| format!("mac={}", quoted(&report.machine.mac));
    let each = |value: fn(&Report) -> f64| {
        let samples = reports.iter().map(|report| (mac(report), value(report)));
        samples.collect::<Vec<_>>()
    };
    gauge(
        "wireboot_boot_network_seconds",
        "From the machine's first packet to the end of its last file.",
        each(|report| report.network.span_s),
    );
    gauge(
        "wireboot_boot_bytes",
        "Bytes of files that came.",
        each(|report| {
            report
                .network
                .transfers
                .iter()
                .map(|one| one.bytes)
                .sum::<u64>() as f64
        }),
    );
    let lost = reports.iter().flat_map(|report| {
        let findings = report.findings.iter();
        findings.map(move |one| {
            (
                format!("{},finding={}", mac(report), quoted(&one.id)),
                one.seconds,
            )
        })
    });
    gauge(
        "wireboot_boot_lost_seconds",
        "Seconds that a change would give back.",
        lost.collect(),
    );
    out
}
