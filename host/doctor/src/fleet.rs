//! Reports of many machines, the slowest first.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use wireboot_report::Report;

/// From this many times the median on, a machine is an outlier.
const OUTLIER: f64 = 1.5;

/// A machine among others.
pub(crate) struct Machine<'a> {
    pub(crate) report: &'a Report,
    pub(crate) outlier: bool,
}

/// The machines by seconds, and their median.
pub(crate) fn sorted(reports: &[Report]) -> (Vec<Machine<'_>>, f64) {
    let mut seconds: Vec<f64> = reports.iter().map(|one| one.network.span_s).collect();
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    let median = if seconds.len() % 2 == 1 {
        seconds.get(middle).copied()
    } else {
        let pair = middle
            .checked_sub(1)
            .and_then(|before| seconds.get(before..=middle));
        pair.map(|pair| pair.iter().sum::<f64>() / 2.0)
    };
    let median = median.unwrap_or_default();
    let mut machines: Vec<Machine<'_>> = reports
        .iter()
        .map(|report| Machine {
            report,
            outlier: report.network.span_s > OUTLIER * median,
        })
        .collect();
    machines.sort_by(|one, other| {
        let seconds = |machine: &Machine<'_>| machine.report.network.span_s;
        seconds(other).total_cmp(&seconds(one))
    });
    (machines, median)
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
        "{} boots, median {median:.1} s on the network; {outliers} took more than {OUTLIER} times as long (*)\n\n",
        machines.len()
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
            format!("{:.1}", machine.report.network.span_s),
            machine.causes(),
        ]);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(mac: &str, span_s: f64) -> Report {
        let mut report = Report::new();
        report.machine.mac = mac.to_owned();
        report.network.span_s = span_s;
        report
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
        assert_eq!(median, 11.5);
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
            shown.starts_with("4 boots, median 11.5 s on the network; 1 took more"),
            "{shown}"
        );
        assert_eq!(sorted(&[]).1, 0.0);
        assert_eq!(sorted(&reports[..3]).1, 11.0);
    }
}
