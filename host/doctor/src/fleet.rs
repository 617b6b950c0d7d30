//! Reports of many machines, the slowest first, and by what they have in common.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use wireboot_report::Report;

/// From this many times the median on, a machine is an outlier.
const OUTLIER: f64 = 1.5;

/// A machine among others.
pub(crate) struct Machine<'a> {
    pub(crate) report: &'a Report,
    /// How long the boot took; `None` where none was looked at.
    pub(crate) seconds: Option<f64>,
    pub(crate) outlier: bool,
}

/// Seconds in a table.
pub(crate) fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.1}"))
}

/// How many boots were looked at.
pub(crate) fn boots(machines: &[Machine<'_>]) -> usize {
    let boots = machines.iter().filter(|one| one.seconds.is_some());
    boots.count()
}

fn median(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    if seconds.len() % 2 == 1 {
        seconds.get(middle).copied()
    } else {
        let pair = seconds.get(middle.checked_sub(1)?..=middle)?;
        Some(pair.iter().sum::<f64>() / 2.0)
    }
}

/// Whether a boot took so many times the median.
fn is_outlier(seconds: Option<f64>, median_s: Option<f64>) -> bool {
    let both = seconds.zip(median_s);
    both.is_some_and(|(seconds, median_s)| seconds > OUTLIER * median_s)
}

/// The most first, and what there is none of last.
fn by_seconds(one: Option<f64>, other: Option<f64>) -> Ordering {
    let [one, other] = [one, other].map(|seconds| seconds.unwrap_or(f64::NEG_INFINITY));
    other.total_cmp(&one)
}

/// The machines by seconds, and the median of their boots.
pub(crate) fn sorted(reports: &[Report]) -> (Vec<Machine<'_>>, Option<f64>) {
    let median = median(reports.iter().filter_map(Report::boot_s).collect());
    let mut machines: Vec<Machine<'_>> = reports
        .iter()
        .map(|report| Machine {
            report,
            seconds: report.boot_s(),
            outlier: is_outlier(report.boot_s(), median),
        })
        .collect();
    machines.sort_by(|one, other| by_seconds(one.seconds, other.seconds));
    (machines, median)
}

/// Machines that have something in common.
pub(crate) struct Group<'a> {
    /// What: `model`, `firmware`, `switch`.
    pub(crate) what: &'static str,
    pub(crate) name: &'a str,
    /// How many boots of theirs tell how long they took.
    pub(crate) count: usize,
    pub(crate) median_s: Option<f64>,
    /// Ethernet addresses of those that took so many times the group's own median.
    pub(crate) outliers: Vec<&'a str>,
}

/// The machines by model, by firmware and by switch, where there are several of these: the slowest group first.
pub(crate) fn groups<'a>(machines: &[Machine<'a>]) -> Vec<Group<'a>> {
    type Name = fn(&Report) -> Option<&str>;
    let what: [(_, Name); 3] = [
        ("model", |report| report.machine.model.as_deref()),
        ("firmware", |report| report.machine.firmware.as_deref()),
        ("switch", Report::switch),
    ];
    let mut groups = Vec::new();
    for (what, name) in what {
        let mut by_name: BTreeMap<&str, Vec<&Machine<'a>>> = BTreeMap::new();
        for machine in machines {
            let name = name(machine.report).unwrap_or("not told");
            by_name.entry(name).or_default().push(machine);
        }
        if by_name.len() < 2 {
            continue;
        }
        let mut these: Vec<Group<'a>> = by_name
            .into_iter()
            .map(|(name, machines)| group(what, name, &machines))
            .collect();
        these.sort_by(|one, other| by_seconds(one.median_s, other.median_s));
        groups.extend(these);
    }
    groups
}

fn group<'a>(what: &'static str, name: &'a str, machines: &[&Machine<'a>]) -> Group<'a> {
    let boots: Vec<f64> = machines.iter().filter_map(|one| one.seconds).collect();
    let count = boots.len();
    let median_s = median(boots);
    let slow = machines.iter();
    let slow = slow.filter(|one| is_outlier(one.seconds, median_s));
    Group {
        what,
        name,
        count,
        median_s,
        outliers: slow.map(|one| one.report.machine.mac.as_str()).collect(),
    }
}

impl Group<'_> {
    /// The outliers, the first few by name.
    pub(crate) fn outliers(&self) -> String {
        const SHOWN: usize = 4;
        let shown = self.outliers.iter().take(SHOWN).copied();
        let mut out = shown.collect::<Vec<_>>().join(", ");
        if let Some(more) = self.outliers.len().checked_sub(SHOWN + 1) {
            out.push_str(&format!(" and {} more", more + 1));
        }
        out
    }
}

impl Machine<'_> {
    /// What cost it most: labels and seconds.
    pub(crate) fn causes(&self) -> String {
        let timed = self
            .report
            .findings
            .iter()
            .filter(|one| one.seconds >= 0.05);
        let parts: Vec<String> = timed
            .take(3)
            .map(|one| format!("{:.1} {}", one.seconds, one.label))
            .collect();
        parts.join(", ")
    }
}

/// The machines as text.
pub(crate) fn shown(reports: &[Report]) -> String {
    let (machines, median) = sorted(reports);
    let outliers = machines.iter().filter(|one| one.outlier).count();
    let mut out = format!(
        "{} boots, median {} s; {outliers} took more than {OUTLIER} times as long (*)\n\n",
        boots(&machines),
        seconds(median)
    );
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(80)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["", "machine", "s", "of them"]);
    for machine in &machines {
        table.add_row([
            if machine.outlier { "*" } else { "" }.to_owned(),
            machine.report.machine.mac.clone(),
            seconds(machine.seconds),
            machine.causes(),
        ]);
    }
    add(&mut out, table, &[2]);
    let groups = groups(&machines);
    if !groups.is_empty() {
        out.push('\n');
        let mut table = Table::new();
        table
            .load_style(NOTHING)
            .set_width(80)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(["by", "", "boots", "median, s", "outliers in it"]);
        for group in &groups {
            table.add_row([
                group.what,
                group.name,
                &group.count.to_string(),
                &seconds(group.median_s),
                &group.outliers(),
            ]);
        }
        add(&mut out, table, &[2, 3]);
    }
    out
}

/// The table's lines, without blanks at their ends; these columns are numbers.
fn add(out: &mut String, mut table: Table, numbers: &[usize]) {
    for number in numbers {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::network::Neighbour;
    use wireboot_report::{DryBoot, Surroundings};

    fn report(mac: &str, span_s: f64) -> Report {
        let mut report = Report::new();
        report.machine.mac = mac.to_owned();
        report.network.span_s = span_s;
        report
    }

    #[test]
    fn groups_tell_whether_it_is_the_model_or_the_switch() {
        let named = |mac: &str, model: Option<&str>, seconds: f64| {
            let mut report = report(mac, 0.0);
            report.machine.model = model.map(str::to_owned);
            report.machine.firmware = Some("EDK II".to_owned());
            // From inside the machine: the first option that has a file. What stands behind it does not matter.
            for (failure, seconds) in [(None, seconds), (Some("NOT_FOUND"), 99.0)] {
                report.dry_boots.push(DryBoot {
                    runs_s: vec![seconds],
                    failure: failure.map(str::to_owned),
                    ..DryBoot::default()
                });
            }
            report
        };
        let mut reports = vec![
            named("a", Some("fast"), 10.0),
            named("b", Some("fast"), 11.0),
            named("c", Some("fast"), 40.0),
            named("d", Some("slow"), 70.0),
            named("e", None, 5.0),
        ];
        let (machines, median) = sorted(&reports);
        assert_eq!(median, Some(11.0));
        let seen: Vec<_> = groups(&machines)
            .iter()
            .map(|one| (one.what, one.name, one.count, one.median_s, one.outliers()))
            .collect();
        let none = String::new;
        assert_eq!(
            seen,
            [
                ("model", "slow", 1, Some(70.0), none()),
                ("model", "fast", 3, Some(11.0), "c".to_owned()),
                ("model", "not told", 1, Some(5.0), none()),
            ]
        );
        assert!(shown(&reports).contains("outliers in it"));
        for number in 0..6 {
            reports.push(named(&format!("x{number}"), Some("fast"), 1000.0));
            reports.push(named("y", Some("fast"), 1.0));
            reports.push(named("z", Some("fast"), 1.0));
        }
        let (machines, _) = sorted(&reports);
        let all = groups(&machines);
        let fast = all.iter().find(|one| one.name == "fast").unwrap();
        assert!(fast.outliers().contains(" and "), "{}", fast.outliers());
        for (report, switch) in reports.iter_mut().zip(["leaf-1", "leaf-2"]) {
            let heard = report.surroundings.insert(Surroundings::default());
            heard.network.neighbour = Some(Neighbour {
                switch: switch.to_owned(),
                ..Neighbour::default()
            });
        }
        let (machines, _) = sorted(&reports);
        let all = groups(&machines);
        let by_switch: Vec<_> = all.iter().filter(|one| one.what == "switch").collect();
        let of = |name: &str| by_switch.iter().find(|one| one.name == name).unwrap();
        assert_eq!(of("leaf-1").median_s, Some(10.0));
        assert_eq!(of("leaf-2").median_s, Some(11.0));
        // One of a kind is no group.
        reports.iter_mut().for_each(|one| one.surroundings = None);
        assert!(groups(&sorted(&reports[..2]).0).is_empty());
    }

    #[test]
    fn the_slowest_is_first_and_outliers_are_marked() {
        let reports = [
            report("a", 10.0),
            report("b", 66.0),
            report("c", 11.0),
            report("d", 12.0),
        ];
        let (machines, median) = sorted(&reports);
        assert_eq!(median, Some(11.5));
        let order: Vec<_> = machines
            .iter()
            .map(|one| (one.report.machine.mac.as_str(), one.outlier))
            .collect();
        assert_eq!(
            order,
            [("b", true), ("d", false), ("c", false), ("a", false)]
        );
        let shown = shown(&reports);
        assert!(
            shown.starts_with("4 boots, median 11.5 s; 1 took more"),
            "{shown}"
        );
        assert_eq!(sorted(&[]).1, None);
        assert_eq!(sorted(&reports[..3]).1, Some(11.0));
    }

    #[test]
    fn a_report_without_a_boot_is_no_boot_that_took_no_time() {
        let with = |mac: &str, model: &str, span_s| {
            let mut report = report(mac, span_s);
            report.machine.model = Some(model.to_owned());
            report
        };
        let none = 0.0;
        let reports = [
            with("a", "fast", none),
            with("b", "fast", none),
            with("c", "fast", none),
            with("d", "fast", 10.0),
            with("e", "fast", 12.0),
            with("f", "unknown", none),
        ];
        let (machines, median) = sorted(&reports);
        assert_eq!(median, Some(11.0));
        assert!(machines.iter().all(|one| !one.outlier));
        assert_eq!(machines[0].report.machine.mac, "e");
        let groups = groups(&machines);
        let groups = groups.iter();
        let groups: Vec<_> = groups
            .map(|one| (one.name, one.count, one.median_s, one.outliers()))
            .collect();
        let none = String::new;
        assert_eq!(
            groups,
            [
                ("fast", 2, Some(11.0), none()),
                ("unknown", 0, None, none())
            ]
        );
        let shown = shown(&reports);
        assert!(
            shown.starts_with("2 boots, median 11.0 s; 0 took more"),
            "{shown}"
        );
        let row = |line: &str| line.split_whitespace().collect::<Vec<_>>() == ["a", "-"];
        assert!(shown.lines().any(row), "{shown}");
    }
}
