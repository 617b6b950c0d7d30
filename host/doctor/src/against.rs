//! Two reports beside each other: before and after a change, two machines, two servers.

use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use wireboot_report::network::Outcome;
use wireboot_report::sweep::{self, By};
use wireboot_report::{Checkpoints, PhaseKind, Report};

use crate::costs::micros;
use crate::text::kind_name;

/// A row: what it is, and each report's figure.
pub(crate) type ComparedRow = (String, [String; 2]);

/// Each figure that one of the reports has.
pub(crate) fn rows(reports: [&Report; 2]) -> Vec<ComparedRow> {
    let seconds = |one: f64| format!("{one:.1}");
    let boot = |report: &Report| report.boot_s().map_or("-".to_owned(), seconds);
    let mut rows = vec![("the boot, s".to_owned(), reports.map(boot))];
    rows.extend(beside(reports.map(parts)));
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
    rows.extend(beside(reports.map(transfers)));
    rows.extend(beside(reports.map(calls)));
    rows.extend(beside(reports.map(samples)));
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

/// The parts of a boot: between its checkpoints, and to load each boot option.
fn parts(report: &Report) -> BTreeMap<String, String> {
    let seconds = |one: f64| format!("{one:.2}");
    let mut before = 0.0;
    let points = report.checkpoints.iter().flat_map(Checkpoints::parts);
    let spans = points.map(|(name, at_s)| {
        let span = at_s - before;
        before = at_s;
        (format!("{name}, s"), seconds(span))
    });
    let loaded = report.dry_boots.iter().map(|one| {
        let took = match &one.failure {
            None => seconds(one.mean_s()),
            Some(status) => format!("{} {status}", seconds(one.mean_s())),
        };
        (format!("to load {}, s", one.option), took)
    });
    spans.chain(loaded).collect()
}

/// Rates: the best sizes of each sweep, and tests of throughput.
fn transfers(report: &Report) -> BTreeMap<String, String> {
    let ways = [(By::Firmware, "the firmware"), (By::Wireboot, "wireboot")];
    let ways = ways
        .into_iter()
        .flat_map(|(by, name)| [4, 6].map(|ip| (by, name, ip)));
    let swept = ways.filter_map(|(by, name, ip)| {
        let best = sweep::best(sweep::of(&report.sweep, by, ip))?;
        let mbit_s = format!("{:.0}", best.bits_per_second() / 1e6);
        Some((
            format!("TFTP by {name} over IPv{ip}, best sizes, Mbit/s"),
            mbit_s,
        ))
    });
    let tests = report.throughput.iter().map(|one| {
        let [what, mbit_s, ..] = crate::throughput::row(one);
        (format!("{what}, {}, Mbit/s", one.driver), mbit_s)
    });
    swept.chain(tests).collect()
}

/// What the firmware called: in its boot, and for each packet of its transfer.
fn calls(report: &Report) -> BTreeMap<String, String> {
    let trace = report.trace.iter();
    let each = trace.flat_map(|trace| {
        let boot = trace.boot.iter().flat_map(crate::trace::of_boot);
        let packets = trace.transfer.iter().flat_map(crate::trace::of_packets);
        boot.chain(packets)
    });
    each.collect()
}

/// Where the processor was, in images with no less than this part of the samples.
fn samples(report: &Report) -> BTreeMap<String, String> {
    const LEAST_SHARE: f64 = 0.02;
    let profile = report.profile.iter();
    let images = profile.flat_map(|profile| profile.images.iter().map(move |one| (profile, one)));
    let shares = images.map(|(profile, image)| (image, profile.share(image)));
    let shown = shares.filter(|(image, share)| *share >= LEAST_SHARE && !image.name.is_empty());
    shown
        .map(|(image, share)| {
            let name = format!("the processor in {}, %", image.name);
            (name, format!("{:.1}", share * 100.0))
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::trace::{Called, Traced};
    use wireboot_report::{DryBoot, Profile, ProfiledImage, Trace};

    #[test]
    fn what_examinations_measured_stands_beside_each_other() {
        let of = |seconds: f64, calls: u64| {
            let mut report = Report::new();
            report.dry_boots.push(DryBoot {
                option: "UEFI PXEv4".to_owned(),
                runs_s: vec![seconds],
                ..DryBoot::default()
            });
            report.sweep.push(sweep::Cell {
                ip: 4,
                bytes: 1_000_000,
                seconds,
                ..sweep::Cell::default()
            });
            report.profile = Some(Profile {
                samples: 100,
                images: [("DxeCore", 60), ("Rare", 1)]
                    .map(|(name, samples)| ProfiledImage {
                        name: name.to_owned(),
                        samples,
                        ..ProfiledImage::default()
                    })
                    .into(),
                ..Profile::default()
            });
            report.trace = Some(Trace {
                transfer: Some(Traced {
                    received: 10,
                    calls: vec![Called {
                        service: "GetTime".to_owned(),
                        calls,
                        ..Called::default()
                    }],
                    ..Traced::default()
                }),
                ..Trace::default()
            });
            report
        };
        let rows = rows([&of(4.0, 10), &of(2.0, 25)]);
        let row = |name: &str| {
            let found = rows.iter().find(|(what, _)| what == name);
            found.map(|(_, [one, other])| (one.as_str(), other.as_str()))
        };
        assert_eq!(row("the boot, s"), Some(("4.0", "2.0")));
        assert_eq!(row("to load UEFI PXEv4, s"), Some(("4.00", "2.00")));
        let best = "TFTP by the firmware over IPv4, best sizes, Mbit/s";
        assert_eq!(row(best), Some(("2", "4")));
        assert_eq!(row("each packet: time of day"), Some(("1.00", "2.50")));
        assert_eq!(row("the processor in DxeCore, %"), Some(("60.0", "60.0")));
        assert_eq!(row("the processor in Rare, %"), None);
    }

    #[test]
    fn parts_of_a_boot_are_those_between_its_checkpoints() {
        let report = Report {
            checkpoints: Some(Checkpoints {
                load_image_s: Some(3.0),
                exit_entry_s: Some(20.5),
                ..Checkpoints::default()
            }),
            ..Report::new()
        };
        let parts = parts(&report);
        assert_eq!(parts["firmware, s"], "3.00");
        assert_eq!(parts["system, until boot services end, s"], "17.50");
    }
}
