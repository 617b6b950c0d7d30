//! Two reports beside each other: before and after a change, two machines, two servers.

use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use wireboot_report::network::Outcome;
use wireboot_report::{PhaseKind, Report};

use crate::costs::micros;
use crate::text::kind_name;

/// A row: what it is, and each report's figure.
pub(crate) type ComparedRow = (String, [String; 2]);

/// Each figure that one of the reports has.
pub(crate) fn rows(reports: [&Report; 2]) -> Vec<ComparedRow> {
    let seconds = |one: f64| format!("{one:.1}");
    let mut rows = vec![(
        "on the network, s".to_owned(),
        reports.map(|report| seconds(report.network.span_s)),
    )];
    let lost = reports.map(|report| {
        let findings = report.findings.iter();
        let lost = findings.map(|one| {
            (
                one.label.clone(),
                Some(one.seconds).filter(|one| *one > 0.0),
            )
        });
        lost.collect::<BTreeMap<_, _>>()
    });
    for label in union(&lost) {
        let figure = |of: &BTreeMap<String, Option<f64>>| match of.get(&label) {
            Some(Some(lost)) => seconds(*lost),
            Some(None) => "found".to_owned(),
            None => "-".to_owned(),
        };
        let figures = [figure(&lost[0]), figure(&lost[1])];
        rows.push((format!("found: {label}"), figures));
    }
    let spent = reports.map(spent);
    for kind in union(&spent) {
        let figure = |of: &BTreeMap<&'static str, f64>| {
            of.get(kind)
                .map_or("-".to_owned(), |one| format!("{one:.2}"))
        };
        rows.push((
            format!("spent: {kind}"),
            [figure(&spent[0]), figure(&spent[1])],
        ));
    }
    rows.push(("largest file, Mbit/s".to_owned(), reports.map(rate)));
    rows.extend(beside(reports.map(|report| {
        let costs = report.costs.iter();
        costs
            .map(|one| (format!("{}, us", one.service), micros(one.median_ns)))
            .collect()
    })));
    rows.extend(beside(reports.map(|report| {
        let ways = report.memory.iter().flat_map(|memory| &memory.receive);
        ways.map(|one| {
            let cycles = format!("{:.0}", one.cycles_per_packet);
            (format!("a frame, {}, cycles", one.what), cycles)
        })
        .collect()
    })));
    rows.extend(beside(reports.map(|report| {
        let rungs = report.ladder.iter().flat_map(|ladder| &ladder.rungs);
        rungs
            .map(|one| (crate::ladder::label(one), format!("{:.0}", one.mbit_s)))
            .collect()
    })));
    rows
}

/// Rows of figures that have a name in each report.
fn beside(figures: [BTreeMap<String, String>; 2]) -> Vec<ComparedRow> {
    let names = union(&figures).into_iter();
    names
        .map(|name| {
            let of = |one: &BTreeMap<String, String>| one.get(&name).cloned();
            let both = [&figures[0], &figures[1]].map(|one| of(one).unwrap_or("-".to_owned()));
            (name, both)
        })
        .collect()
}

fn union<K: Clone + Ord, V>(maps: &[BTreeMap<K, V>; 2]) -> Vec<K> {
    let all = maps.iter().flat_map(|map| map.keys().cloned());
    all.collect::<std::collections::BTreeSet<K>>()
        .into_iter()
        .collect()
}

/// Seconds by kind, those of a kind that overlap counted once.
fn spent(report: &Report) -> BTreeMap<&'static str, f64> {
    let mut until: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut spent: BTreeMap<&'static str, f64> = BTreeMap::new();
    for phase in &report.timeline {
        // A request that is answered at once is no time.
        if phase.kind == PhaseKind::Other {
            continue;
        }
        let name = kind_name(phase.kind);
        let until = until.entry(name).or_insert(0.0);
        let from = phase.start_s.max(*until);
        if phase.end_s > from {
            *spent.entry(name).or_default() += phase.end_s - from;
            *until = phase.end_s;
        }
    }
    spent.retain(|_, seconds| *seconds >= 0.005);
    spent
}

fn rate(report: &Report) -> String {
    let transfers = report.network.transfers.iter();
    let complete = transfers.filter(|one| one.outcome == Outcome::Complete);
    let largest = complete.max_by_key(|one| one.bytes);
    largest.map_or("-".to_owned(), |one| {
        format!("{:.0}", one.bytes as f64 * 8e-6 / one.seconds().max(1e-6))
    })
}

/// The rows as text.
pub(crate) fn shown(names: [&str; 2], reports: [&Report; 2]) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["", names[0], names[1]]);
    for (what, [one, other]) in rows(reports) {
        table.add_row([what, one, other]);
    }
    for column in 1..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}
