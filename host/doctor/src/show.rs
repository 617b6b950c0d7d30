//! `wireboot report`: shows what was examined before.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::hash::RandomState;
use std::io::Read;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use wireboot_report::{Network, Profile, Report};

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
    let (names, reports) = named(arguments)?;
    let is_file = matches!(arguments.paths.as_slice(), [path] if path.is_file());
    let page = match (&arguments.against, names.as_slice(), reports.as_slice()) {
        (Some(_), [name, other_name], [report, other]) => {
            ensure!(
                !arguments.format.is_any(),
                "two reports beside each other are shown as text and as a page (--html) alone"
            );
            let names = [name.as_str(), other_name.as_str()];
            output::print(&against::shown(names, [report, other]));
            html::pair(names, [report, other])
        }
        (Some(_), ..) => bail!("--against sets one report beside one other"),
        (None, [name], [report]) if is_file => {
            output::print(&printed(name, report, &arguments.format));
            html::page(report)
        }
        (None, names, reports) => {
            ensure!(
                !arguments.format.is_any() || arguments.format.prometheus,
                "several reports are shown as text, as metrics (--prometheus) and as a page (--html) alone"
            );
            if arguments.format.prometheus {
                let names = names.iter().map(String::as_str);
                output::print(&prometheus(names.zip(reports)));
            } else {
                output::print(&fleet::shown(reports));
            }
            html::fleet(reports)
        }
    };
    if let Some(file) = &arguments.html {
        output::write(file, &page)?;
    }
    Ok(status(reports.iter()))
}

/// All reports, the one to be set beside them last, and how each is called.
fn named(arguments: &ReportArgs) -> Result<(Vec<String>, Vec<Report>)> {
    let mut all = all(&arguments.paths, arguments.anonymous)?;
    if let Some(file) = &arguments.against {
        all.push((stem(file), read(file)?));
    }
    let (mut names, mut reports): (Vec<String>, Vec<Report>) = all.into_iter().unzip();
    if arguments.anonymous {
        let key = RandomState::new();
        for report in &mut reports {
            *report = anonymous::made(report, &key);
        }
        // `wireboot serve` names files by the machines' addresses.
        let numbers = 1..=names.len();
        names = numbers.map(|number| format!("report {number}")).collect();
    }
    Ok((names, reports))
}

fn printed(name: &str, report: &Report, format: &Format) -> String {
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
        prometheus(iter::once((name, report)))
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

/// The reports in files, and in the files `*.json` of directories, in the order of the files' names, and what each is called. What is no
/// report in a directory is told and passed over; where files are to be unknown, by its number.
fn all(paths: &[PathBuf], anonymous: bool) -> Result<Named> {
    let mut reports = Vec::new();
    for path in paths {
        if !path.is_dir() {
            reports.push((stem(path), read(path)?));
            continue;
        }
        let (kept, passed_over) = in_folder(path, anonymous)?;
        reports.extend(kept);
        for one in passed_over {
            output::complain(&one);
        }
    }
    reports.sort_by(|(one, _), (other, _)| one.cmp(other));
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

/// Reports, each behind its file's name without the ending.
type Named = Vec<(String, Report)>;

/// The reports in the files `*.json` of a directory, and what is said of those that are none.
fn in_folder(folder: &Path, anonymous: bool) -> Result<(Named, Vec<String>)> {
    let named = || folder.display().to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(named)? {
        let file = entry.with_context(named)?.path();
        if file.extension().is_some_and(|ending| ending == "json") {
            files.push(file);
        }
    }
    files.sort();
    let (mut reports, mut passed_over) = (Vec::new(), Vec::new());
    for (file, number) in files.iter().zip(1..) {
        match content(file) {
            Ok(report) => reports.push((stem(file), report)),
            Err(error) if anonymous => {
                passed_over.push(format!("passed over: file {number}: {error:#}"));
            }
            Err(error) => {
                let file = file.display();
                passed_over.push(format!("passed over: {file}: {error:#}"));
            }
        }
    }
    Ok((reports, passed_over))
}

fn read(file: &Path) -> Result<Report> {
    content(file).with_context(|| file.display().to_string())
}

/// The report in a file. Errors do not name the file.
fn content(file: &Path) -> Result<Report> {
    let mut bytes = Vec::new();
    // One byte more than a report has, so that a longer one is refused as such.
    let most = wireboot_report::LONGEST as u64 + 1;
    File::open(file)?.take(most).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes)
        .context("no text, so no report; captures are for `wireboot doctor pcap`")?;
    Ok(Report::from_json(&text)?)
}

/// What was captured of the machine's packets; `None` where nobody captured any.
fn captured(report: &Report) -> Option<&Network> {
    let network = &report.network;
    (*network != Network::default()).then_some(network)
}

/// Prometheus' text format, version 0.0.4, of reports and what each is called, in the order of their names.
fn prometheus<'a>(reports: impl Iterator<Item = (&'a str, &'a Report)>) -> String {
    let mut out = String::new();
    // By their labels, as two samples of the same are an error.
    let mut gauge = |name: &str, help: &str, samples: BTreeMap<String, f64>| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (labels, value) in samples {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
        }
    };
    let machines = newest(reports);
    let each = |value: fn(&Report) -> Option<f64>| {
        let sample = |(machine, report): (&String, &&Report)| {
            let value = value(report)?;
            Some((machine.clone(), value))
        };
        let samples = machines.iter().filter_map(sample);
        samples.collect::<BTreeMap<_, _>>()
    };
    gauge(
        "wireboot_boot_network_seconds",
        "From the machine's first packet to the end of its last file.",
        each(|report| Some(captured(report)?.span_s)),
    );
    gauge(
        "wireboot_boot_seconds",
        "From reset to the last checkpoint; or to load what a boot would use; or on the network.",
        each(Report::boot_s),
    );
    gauge(
        "wireboot_boot_bytes",
        "Bytes of files that came.",
        each(|report| {
            let transfers = captured(report)?.transfers.iter();
            // (The library's sum of nothing is -0.)
            Some(transfers.fold(0.0, |sum, one| sum + one.bytes as f64))
        }),
    );
    let mut lost: BTreeMap<String, f64> = BTreeMap::new();
    // Of two services of one name, as two serial consoles are, one.
    let mut costs = BTreeMap::new();
    for (machine, report) in &machines {
        for one in &report.findings {
            let labels = format!("{machine},{}", label("finding", &one.id));
            *lost.entry(labels).or_default() += one.seconds;
        }
        for one in &report.costs {
            let labels = format!("{machine},{}", label("service", &one.service));
            costs.insert(labels, one.median_ns as f64 / 1e9);
        }
    }
    gauge(
        "wireboot_boot_lost_seconds",
        "Seconds that a change would give back.",
        lost,
    );
    gauge(
        "wireboot_firmware_service_seconds",
        "What a call of the firmware's takes, the median.",
        costs,
    );
    out
}

/// The newest report of each machine, by the machine's label: its address, or where the report does not tell that, the report's own name.
/// Reports come in the order of their names.
fn newest<'a>(
    reports: impl Iterator<Item = (&'a str, &'a Report)>,
) -> BTreeMap<String, &'a Report> {
    let mut newest: BTreeMap<String, &Report> = BTreeMap::new();
    for (name, report) in reports {
        let machine = match report.machine.mac.as_str() {
            "" => label("report", name),
            mac => label("mac", mac),
        };
        let one = newest.entry(machine).or_insert(report);
        // Captures alone tell when they were. Else the later by its name is the newer, as names of files begin with the time.
        let began = report.network.began_unix_s;
        let is_older = began > 0.0 && began < one.network.began_unix_s;
        if !is_older {
            *one = report;
        }
    }
    newest
}

/// A metric's label. What no terminal gets is replaced here already, so that two labels that are printed alike are one.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    let value = value.replace('\n', "\\n");
    format!("{name}=\"{}\"", output::printable(&value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::collections::BTreeSet;
    use wireboot_report::network::Neighbour;
    use wireboot_report::{Cost, Finding, NotMeasured, Phase};

    /// What a command line says.
    fn arguments(words: &[&str]) -> ReportArgs {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            report: ReportArgs,
        }
        let words = iter::once("report").chain(words.iter().copied());
        Line::parse_from(words).report
    }

    /// A file with a report, by a name such as `wireboot serve` gives it.
    fn kept(folder: &Path, name: &str, report: &Report) -> String {
        let file = folder.join(name);
        std::fs::write(&file, report.to_json()).unwrap();
        file.to_str().unwrap().to_owned()
    }

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
        let reports = [report("a", 7.0), report("b", 9.0), report("c", 8.0)];
        assert_eq!(
            sampled(&reports, "wireboot_boot_network_seconds"),
            ["{mac=\"02:00:00:00:00:01\"} 9"]
        );
    }

    /// Labels and values of a metric of reports that are called `0`, `1` and so on.
    fn sampled(reports: &[Report], metric: &str) -> Vec<String> {
        let metrics = output::printable(&metrics(reports));
        let samples = metrics.lines().filter_map(|line| line.strip_prefix(metric));
        samples.map(str::to_owned).collect()
    }

    fn metrics(reports: &[Report]) -> String {
        let names: Vec<String> = (0..reports.len()).map(|place| place.to_string()).collect();
        prometheus(names.iter().map(String::as_str).zip(reports))
    }

    #[test]
    fn of_reports_from_inside_a_machine_the_last_is_a_metric() {
        let inside = |mac: &str, span_s| {
            let mut report = report("a", 0.0);
            report.machine.mac = mac.to_owned();
            report.network.span_s = span_s;
            report
        };
        let reports = [inside("a", 7.0), inside("a", 9.0), inside("a", 8.0)];
        let metric = "wireboot_boot_network_seconds";
        assert_eq!(sampled(&reports, metric), ["{mac=\"a\"} 8"]);
        // Machines of which nothing is known are not one.
        let reports = [inside("", 7.0), inside("", 9.0)];
        assert_eq!(
            sampled(&reports, metric),
            ["{report=\"0\"} 7", "{report=\"1\"} 9"]
        );
    }

    #[test]
    fn a_capture_is_not_newer_than_a_later_report_from_inside() {
        let metric = "wireboot_boot_network_seconds";
        let mut inside = report("inside", 0.0);
        inside.network.span_s = 9.0;
        let captured = report("captured", 7.0);
        let newest = |reports: [&Report; 2]| sampled(&reports.map(Report::clone), metric);
        let mac = "{mac=\"02:00:00:00:00:01\"}";
        assert_eq!(newest([&captured, &inside]), [format!("{mac} 9")]);
        assert_eq!(newest([&inside, &captured]), [format!("{mac} 7")]);
    }

    #[test]
    fn files_of_several_folders_are_in_the_order_of_their_names() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let names = ["20261126T120000Z-a", "20261125T120000Z-b"];
        for (folder, name) in folders.iter().zip(names) {
            kept(folder.path(), &format!("{name}.json"), &report(name, 0.0));
        }
        let words = [0, 1].map(|place| folders[place].path().to_str().unwrap());
        let (found, _) = named(&arguments(&words)).unwrap();
        assert_eq!(found, [names[1], names[0]]);
    }

    #[test]
    fn without_a_capture_there_are_no_metrics_of_one() {
        let mut inside = report("a", 0.0);
        assert_eq!(inside.network, Network::default());
        inside.costs.push(Cost::default());
        let reports = [inside];
        for metric in ["wireboot_boot_network_seconds", "wireboot_boot_bytes"] {
            assert!(sampled(&reports, metric).is_empty(), "{metric}");
        }
        assert_eq!(
            sampled(&reports, "wireboot_firmware_service_seconds").len(),
            1
        );
        let captured = [report("a", 7.0)];
        assert_eq!(
            sampled(&captured, "wireboot_boot_bytes"),
            ["{mac=\"02:00:00:00:00:01\"} 0"]
        );
    }

    #[test]
    fn no_two_samples_have_the_same_labels() {
        let mut report = report("a", 1.0);
        let ids = ["window", "window", "w\u{1}", "w\u{2}", "w\r\n", "w\u{1}\\n"];
        report.findings = ids
            .map(|id| Finding {
                id: id.to_owned(),
                seconds: 1.5,
                ..Finding::default()
            })
            .into();
        report.costs = ["s\u{1}", "s\u{2}"]
            .map(|service| Cost {
                service: service.to_owned(),
                ..Cost::default()
            })
            .into();
        let named = |mac: &str| {
            let mut report = report.clone();
            report.machine.mac = mac.to_owned();
            report
        };
        let reports = [named("m\u{1}"), named("m\u{2}")];
        let lost = sampled(&reports, "wireboot_boot_lost_seconds");
        let window = "{mac=\"m\u{fffd}\",finding=\"window\"} 3".to_owned();
        assert!(lost.contains(&window), "{lost:?}");
        let metrics = output::printable(&metrics(&reports));
        let samples = metrics.lines().filter(|line| !line.starts_with('#'));
        let parts = samples.map(|line| line.rsplit_once(' ').unwrap());
        let names: Vec<&str> = parts.map(|(name, _)| name).collect();
        let once: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), once.len(), "{metrics}");
    }

    #[test]
    fn no_files_name_is_shown_of_who_is_to_be_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let name = "20261125T120000Z-020000000001";
        let before = kept(folder.path(), &format!("{name}.json"), &report("a", 1.0));
        let mut unknown = report("b", 2.0);
        unknown.machine.mac.clear();
        let after = kept(folder.path(), "20261125T120001Z-10.0.0.7.json", &unknown);
        let page = folder.path().join("page.html");
        let html = page.to_str().unwrap();
        let words = [before.as_str(), "--against", &after, "--html", html];
        run(&arguments(&words)).unwrap();
        let shown = std::fs::read_to_string(&page).unwrap();
        assert!(shown.contains(name), "{shown}");
        let anonymous = arguments(&[&words[..], &["--anonymous"]].concat());
        run(&anonymous).unwrap();
        let (names, reports) = named(&anonymous).unwrap();
        assert_eq!(names, ["report 1", "report 2"]);
        let both = [&reports[0], &reports[1]];
        let table = against::shown([&names[0], &names[1]], both);
        let metrics = prometheus(names.iter().map(String::as_str).zip(&reports));
        assert!(metrics.contains("{report=\"report 2\"} 2"), "{metrics}");
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains("report 1 and report 2"), "{page}");
        for shown in [page, table, metrics] {
            for secret in ["20261125", "020000000001", "02:00:00:00:00:01", "10.0.0.7"] {
                assert!(!shown.contains(secret), "{secret} in {shown}");
            }
        }
    }

    #[test]
    fn who_is_unknown_is_passed_over_by_number() {
        let folder = tempfile::tempdir().unwrap();
        kept(folder.path(), "a.json", &report("a", 1.0));
        std::fs::write(folder.path().join("s3cret.json"), "{").unwrap();
        for (anonymous, named) in [(true, "file 2: "), (false, "s3cret.json: ")] {
            let (reports, passed_over) = in_folder(folder.path(), anonymous).unwrap();
            assert_eq!(reports.len(), 1);
            let [said] = &passed_over[..] else {
                panic!("{passed_over:?}");
            };
            assert!(said.contains(named), "{said}");
            assert_eq!(said.contains("s3cret"), !anonymous, "{said}");
        }
    }

    #[test]
    fn who_is_unknown_is_in_the_same_group_as_before() {
        let folder = tempfile::tempdir().unwrap();
        for (name, switch) in [("a", "leaf-1"), ("b", "leaf-1"), ("c", "leaf-2")] {
            let mut report = report(name, 1.0);
            report.network.neighbour = Some(Neighbour {
                switch: switch.to_owned(),
                ..Neighbour::default()
            });
            kept(folder.path(), &format!("{name}.json"), &report);
        }
        let words = [folder.path().to_str().unwrap(), "--anonymous"];
        let (_, reports) = named(&arguments(&words)).unwrap();
        let [one, other, third] = [0, 1, 2].map(|place| reports[place].switch().unwrap());
        assert!(one == other && one != third, "{one} {other} {third}");
        assert_ne!(one, "leaf-1");
        assert_eq!(reports[0].machine.mac, reports[1].machine.mac);
    }

    #[test]
    fn what_is_longer_than_a_report_is_not_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 30).unwrap();
        let said = format!("{:#}", read(file.path()).unwrap_err());
        assert!(said.contains("longer than 16 MiB"), "{said}");
    }
}
