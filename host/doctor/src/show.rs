//! `wireboot report`: shows what was examined before.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use wireboot_report::{Profile, Report};

use crate::csv::{self, CsvTable};
use crate::markdown::markdown;
use crate::{against, anonymous, fleet, html, iperf3, output, status, text};

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
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
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
    /// Print a table as comma-separated values: what happened when, or where only a sweep was made, its cells; or the one that is named
    #[arg(long, value_enum, value_name = "TABLE", num_args = 0..=1, require_equals = true)]
    csv: Option<Option<CsvTable>>,
    /// Print it as Markdown
    #[arg(long)]
    markdown: bool,
    /// Print it as metrics, in the text format of Prometheus
    #[arg(long)]
    prometheus: bool,
    /// Print its tests of throughput as `iperf3 --json` does
    #[arg(long)]
    iperf3: bool,
    /// Print where the processor was, for programs that draw flame graphs
    #[arg(long)]
    folded: bool,
}

impl Format {
    fn is_any(&self) -> bool {
        self.json
            || self.csv.is_some()
            || self.markdown
            || self.prometheus
            || self.iperf3
            || self.folded
    }
}

pub(crate) fn run(arguments: &ReportArgs) -> Result<ExitCode> {
    let mut reports = all(&arguments.paths)?;
    let mut other = arguments.against.as_deref().map(read).transpose()?;
    if arguments.anonymous {
        let every = reports.iter_mut().chain(&mut other);
        every.for_each(|report| *report = anonymous::made(report));
    }
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
                !arguments.format.is_any() || arguments.format.prometheus,
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
    Ok(status(reports.iter().chain(&other)))
}

fn printed(report: &Report, format: &Format) -> String {
    if format.json {
        report.to_json() + "\n"
    } else if let Some(named) = format.csv {
        csv::table(report, named)
    } else if format.markdown {
        markdown(report)
    } else if format.folded {
        report
            .profile
            .as_ref()
            .map(Profile::folded)
            .unwrap_or_default()
    } else if format.prometheus {
        prometheus(std::slice::from_ref(report))
    } else if format.iperf3 {
        iperf3::documents(report)
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
                Err(error) => output::complain(&format!("passed over: {error:#}")),
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
    let mut bytes = Vec::new();
    // One byte more than a report has, so that a longer one is refused as such.
    let most = wireboot_report::LONGEST as u64 + 1;
    let opened = File::open(file).with_context(named)?;
    opened
        .take(most)
        .read_to_end(&mut bytes)
        .with_context(named)?;
    let text = String::from_utf8(bytes)
        .context("no text, so no report; captures are for `wireboot doctor pcap`")
        .with_context(named)?;
    Report::from_json(&text).with_context(named)
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
    // Of a machine, the newest: two samples of one name are an error.
    let mut newest: BTreeMap<&str, &Report> = BTreeMap::new();
    for report in reports {
        let one = newest.entry(&report.machine.mac).or_insert(report);
        if report.network.began_unix_s > one.network.began_unix_s {
            *one = report;
        }
    }
    let reports: Vec<&Report> = newest.into_values().collect();
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
    let boots = reports
        .iter()
        .filter_map(|report| Some((mac(report), report.boot_s()?)));
    gauge(
        "wireboot_boot_seconds",
        "From reset to the last checkpoint; or to load what a boot would use; or on the network.",
        boots.collect(),
    );
    gauge(
        "wireboot_boot_bytes",
        "Bytes of files that came.",
        each(|report| {
            let transfers = report.network.transfers.iter();
            // (The library's sum of nothing is -0.)
            transfers.fold(0.0, |sum, one| sum + one.bytes as f64)
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
    let costs = reports.iter().flat_map(|report| {
        // Of two services of one name, as two serial consoles are, one: two samples of one name are an error.
        let costs = report.costs.iter();
        let medians = costs.map(|one| (one.service.as_str(), one.median_ns as f64 / 1e9));
        let medians: BTreeMap<&str, f64> = medians.collect();
        medians.into_iter().map(move |(service, seconds)| {
            let labels = format!("{},service={}", mac(report), quoted(service));
            (labels, seconds)
        })
    });
    gauge(
        "wireboot_firmware_service_seconds",
        "What a call of the firmware's takes, the median.",
        costs.collect(),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::{Finding, NotMeasured, Phase};

    fn report(what: &str, began_unix_s: f64) -> Report {
        let mut report = Report::new();
        report.machine.mac = "02:00:00:00:00:01".to_owned();
        report.network.began_unix_s = began_unix_s;
        report.network.span_s = began_unix_s;
        report.findings.push(Finding {
            label: what.to_owned(),
            evidence: what.to_owned(),
            seconds: 1.0,
            ..Finding::default()
        });
        report.timeline.push(Phase {
            what: what.to_owned(),
            ..Phase::default()
        });
        report
    }

    #[test]
    fn what_was_not_measured_is_said_everywhere_and_is_a_status() {
        let mut report = Report::new();
        assert_eq!(status([&report].into_iter()), ExitCode::SUCCESS);
        report.not_measured.push(NotMeasured {
            check: "frames".into(),
            reason: "no sender <b> answers".into(),
        });
        let said = "not measured: frames: no sender";
        crate::testing::assert_terminal_says(&report, &[said]);
        crate::testing::assert_page_says(&report, &[said, "&lt;b&gt; answers"]);
        assert!(markdown(&report).contains("not measured: frames: no sender &lt;b> answers"));
        assert_eq!(
            status([&report].into_iter()),
            ExitCode::from(crate::NOT_MEASURED)
        );
        report.findings.push(Finding::default());
        assert_eq!(status([&report].into_iter()), ExitCode::FAILURE);
    }

    #[test]
    fn a_strangers_names_are_neither_html_nor_formulas_nor_cells() {
        let page = markdown(&report("<img src=//x>|[y](z)\\|\nnext\rlast", 1.0));
        for wrong in ["<img", "|[y]", "[y](", "\nnext", "\rlast"] {
            assert!(
                !page.replace("\\[", "").contains(wrong),
                "{wrong} in {page}"
            );
        }
        for formula in ["=1+1", "+1", "-1", "@x"] {
            let values = csv::table(&report(formula, 1.0), None);
            assert!(values.contains(&format!("\"'{formula}\"")), "{values}");
        }
    }

    #[test]
    fn of_a_machine_the_newest_boot_is_a_metric() {
        let metrics = prometheus(&[report("a", 7.0), report("b", 9.0), report("c", 8.0)]);
        let samples: Vec<_> = metrics
            .lines()
            .filter(|line| line.starts_with("wireboot_boot_network_seconds"))
            .collect();
        assert_eq!(
            samples,
            ["wireboot_boot_network_seconds{mac=\"02:00:00:00:00:01\"} 9"]
        );
    }

    #[test]
    fn what_is_longer_than_a_report_is_not_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 30).unwrap();
        let said = format!("{:#}", read(file.path()).unwrap_err());
        assert!(said.contains("longer than 16 MiB"), "{said}");
    }
}
