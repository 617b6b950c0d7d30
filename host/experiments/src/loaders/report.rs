//! The figures: rows, their comparison with stock firmware, the tables and the JSON.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::Serialize;

use super::catalogue::{Loader, Network, Unit};
use super::{Figures, Plan};
use crate::bench::problems::{self, FailedTrial, Failure};
use crate::bench::report::new_table;
use wireboot_lab::host::Host;
use wireboot_lab::statistics::{digits, median, range, shown};

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct LoadersReport {
    /// Where and when it ran, by which command and commit.
    pub host: Host,
    /// Size of the file that loaders without one of their own read, in bytes.
    pub bytes: u64,
    /// The networks, in the order of the columns.
    pub networks: Vec<Column>,
    /// A row for each loader and state of memory.
    pub rows: Vec<LoaderRow>,
    /// What took no part, and what failed in every trial.
    pub failures: Vec<Failure>,
    /// Every trial that failed, also where the next one gave a figure.
    pub failed_trials: Vec<FailedTrial>,
}

/// What loaders ran over.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The network's short name.
    pub id: &'static str,
    /// The network's name, as tables show it.
    pub name: String,
    /// Whether it is wireboot's.
    pub is_ours: bool,
}

/// A loader in a state of memory.
#[derive(Debug, Serialize)]
pub struct LoaderRow {
    /// The loader's short name.
    pub id: &'static str,
    /// The loader's name, as tables show it.
    pub loader: String,
    /// From whom it read.
    pub server: &'static str,
    /// Whether the guest's memory was given to it before the start.
    pub warm: bool,
    /// The unit of its figures.
    pub unit: Unit,
    /// By the networks' short names; none where it has none.
    pub figures: BTreeMap<&'static str, Figure>,
}

/// What was measured of a loader over a network.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// Each trial's figure, in the row's unit.
    pub trials: Vec<f64>,
    /// Number of boots.
    pub n: usize,
    /// Median of `trials`.
    pub median: f64,
    /// The lowest of `trials`.
    pub lowest: f64,
    /// The highest of `trials`.
    pub highest: f64,
    /// For a network of ours, how many times as fast as over each stock firmware: of the medians.
    pub times_stock: BTreeMap<&'static str, f64>,
}

impl Figure {
    fn new(trials: &[f64]) -> Option<Self> {
        let (lowest, highest) = range(trials)?;
        Some(Self {
            trials: trials.to_vec(),
            n: trials.len(),
            median: median(trials)?,
            lowest,
            highest,
            times_stock: BTreeMap::new(),
        })
    }
}

/// A trial's name.
pub(super) fn what(loader: &Loader, network: &Network, cold: bool) -> String {
    let memory = if cold { " cold" } else { "" };
    format!("{} over {}{memory}", loader.id, network.name)
}

impl LoadersReport {
    pub(super) fn new(
        host: &Host,
        plan: &Plan,
        figures: &Figures,
        failed_trials: &[FailedTrial],
    ) -> Self {
        let networks: Vec<Column> = plan
            .networks
            .iter()
            .map(|network| Column {
                id: network.id,
                name: network.name.clone(),
                is_ours: network.wireboot.is_some(),
            })
            .collect();
        let rows = plan
            .loaders
            .iter()
            .enumerate()
            .flat_map(|(at, loader)| [(at, loader, false), (at, loader, true)])
            .map(|(at, loader, cold)| LoaderRow {
                id: loader.id,
                loader: loader.name.clone(),
                server: loader.server.name(),
                warm: !cold,
                unit: loader.unit,
                figures: compared(loader.unit, &networks, |over| {
                    Figure::new(figures.get(&(at, cold, over))?)
                }),
            })
            .filter(|row| !row.figures.is_empty());
        let rows = rows.collect();
        Self {
            host: host.clone(),
            bytes: plan.bytes,
            networks,
            rows,
            failures: failures(plan, figures, failed_trials),
            failed_trials: failed_trials.to_vec(),
        }
    }

    /// The report as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = new_table(&self.head(), 3);
        self.fill(&mut table);
        let problems = problems::text(&self.failures, &self.failed_trials);
        format!("{}\n\n{table}\n{problems}", self.host)
    }

    /// The report as a page.
    #[must_use]
    pub(super) fn markdown(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(comfy_table::presets::ASCII_MARKDOWN)
            .set_header(self.head());
        self.fill(&mut table);
        format!(
            "{}\n\nMedian (lowest to highest; number of trials), and ratios of medians. Loaders without a file of their own read one of {} MiB.\n\n\
             {table}\n{}",
            self.host.provenance(),
            self.bytes >> 20,
            problems::section(&self.failures, &self.failed_trials)
        )
    }

    /// The columns' names. Ratios of ours to each stock firmware stand at the end.
    fn head(&self) -> Vec<String> {
        let mut head = vec!["loader".to_owned(), "server".to_owned(), "unit".to_owned()];
        head.extend(self.networks.iter().map(|network| network.name.clone()));
        let ratios = self.ratios();
        head.extend(
            ratios
                .iter()
                .map(|(ours, stock)| format!("{} / {}", ours.name, stock.name)),
        );
        head
    }

    fn fill(&self, table: &mut Table) {
        for row in &self.rows {
            let memory = if row.warm { "" } else { ", cold memory" };
            let mut cells = vec![
                format!("{}{memory}", row.loader),
                row.server.to_owned(),
                row.unit.name().to_owned(),
            ];
            let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
            cells.extend(self.networks.iter().map(|network| {
                let figure = row.figures.get(network.id);
                or_none(figure.map(|figure| shown(&figure.trials)))
            }));
            cells.extend(self.ratios().iter().map(|(ours, stock)| {
                let figure = row.figures.get(ours.id);
                let times = figure.and_then(|figure| figure.times_stock.get(stock.id));
                or_none(times.map(|times| digits(*times, 2)))
            }));
            table.add_row(cells);
        }
    }

    /// Each network of ours with each of stock firmware.
    fn ratios(&self) -> Vec<(&Column, &Column)> {
        let (ours, stock): (Vec<_>, Vec<_>) =
            self.networks.iter().partition(|network| network.is_ours);
        let with_all = |ours| stock.iter().map(move |stock| (ours, *stock));
        ours.into_iter().flat_map(with_all).collect()
    }
}

/// The figures of a row by the networks' places, those of ours compared with those of stock firmware.
fn compared(
    unit: Unit,
    networks: &[Column],
    of: impl Fn(usize) -> Option<Figure>,
) -> BTreeMap<&'static str, Figure> {
    let mut figures: BTreeMap<&'static str, Figure> = networks
        .iter()
        .enumerate()
        .filter_map(|(over, network)| Some((network.id, of(over)?)))
        .collect();
    let stock: Vec<(&'static str, f64)> = networks
        .iter()
        .filter(|network| !network.is_ours)
        .filter_map(|network| Some((network.id, figures.get(network.id)?.median)))
        .collect();
    for network in networks.iter().filter(|network| network.is_ours) {
        if let Some(figure) = figures.get_mut(network.id) {
            let times = |&(id, median)| (id, unit.times(figure.median, median));
            figure.times_stock = stock.iter().map(times).collect();
        }
    }
    figures
}

/// What took no part, and what failed in every trial, with the last reason.
fn failures(plan: &Plan, figures: &Figures, failed_trials: &[FailedTrial]) -> Vec<Failure> {
    let mut failures = plan.absent.clone();
    for (at, cold, over) in super::trials(plan) {
        let (Some(loader), Some(network)) = (plan.loaders.get(at), plan.networks.get(over)) else {
            continue;
        };
        let what = what(loader, network, cold);
        let mut of_it = failed_trials.iter().filter(|trial| trial.what == what);
        if !figures.contains_key(&(at, cold, over))
            && let Some(last) = of_it.next_back()
        {
            let reason = last.reason.clone();
            failures.push(Failure { what, reason });
        }
    }
    failures
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::stacks::Server;
    use crate::loaders::{NearEnd, Program};
    use wireboot_lab::ip::IpVersion;
    use wireboot_lab::qemu::{Accelerator, Firmware};

    fn plan() -> Plan {
        let network = |id, wireboot| Network {
            id,
            name: id.to_uppercase(),
            firmware: Firmware::SeaBios,
            wireboot,
        };
        let loader = |id, program, unit| Loader {
            id,
            name: format!("the {id}"),
            server: Server::Atftpd,
            program,
            unit,
        };
        Plan {
            loaders: vec![
                loader("grub", Program::Grub("tftp"), Unit::MbitS),
                loader("shim", Program::Shim, Unit::Ms),
            ],
            networks: vec![
                network("old", None),
                network("new", None),
                network("ours", Some(NearEnd::On)),
                network("off", Some(NearEnd::Off)),
            ],
            absent: Vec::new(),
            rounds: 3,
            bytes: 64 << 20,
            cold: true,
            busy: 0.0,
        }
    }

    /// GRUB reads at 10 (old), 50 (new) and 500 Mbit/s (ours), shim in 3000, 1500 and 100 ms.
    pub(in crate::loaders) fn report() -> LoadersReport {
        let plan = plan();
        let figures = Figures::from([
            ((0, false, 0), vec![9.0, 30.0, 10.0]),
            ((0, false, 1), vec![50.0]),
            ((0, false, 2), vec![500.0, 480.0, 510.0]),
            ((0, true, 2), vec![300.0]),
            ((1, false, 0), vec![3000.0]),
            ((1, false, 1), vec![1500.0]),
            ((1, false, 2), vec![100.0]),
        ]);
        let failed = |round, what: &str, reason: &str| FailedTrial {
            round,
            what: what.to_owned(),
            reason: reason.to_owned(),
        };
        let failed = [
            failed(1, "grub over OFF", "first"),
            failed(2, "grub over OFF", "last"),
            failed(2, "shim over OLD", "once"),
        ];
        let (accelerator, ip) = (Accelerator::Tcg, IpVersion::V4);
        let host = Host::new(None, 0.0, accelerator, ip, 1500, Vec::new());
        LoadersReport::new(&host, &plan, &figures, &failed)
    }

    #[test]
    fn who_takes_part() {
        let all: Vec<_> = crate::loaders::trials(&plan()).collect();
        let of = |at| all.iter().filter(|trial| trial.0 == at).count();
        // Without the near end, shim's calls are the same.
        assert_eq!((of(0), of(1)), (8, 6));
        assert!(!all.contains(&(1, false, 3)));
    }

    #[test]
    fn medians_are_compared_with_each_stock() {
        let report = report();
        let [grub, cold, shim] = report.rows.as_slice() else {
            panic!("{:?}", report.rows);
        };
        let ours = &grub.figures["ours"];
        assert_eq!(
            (ours.median, ours.lowest, ours.highest),
            (500.0, 480.0, 510.0)
        );
        assert_eq!(ours.times_stock, [("old", 50.0), ("new", 10.0)].into());
        assert!(grub.figures["old"].times_stock.is_empty());
        assert!(!grub.figures.contains_key("off"));
        // Nothing cold was measured beside it.
        assert!(!cold.warm && cold.figures["ours"].times_stock.is_empty());
        // Of times, less is more.
        let times = &shim.figures["ours"].times_stock;
        assert_eq!(*times, [("old", 30.0), ("new", 15.0)].into());
    }

    #[test]
    fn failures_are_told_with_every_trial() {
        let report = report();
        let [off] = report.failures.as_slice() else {
            panic!("{:?}", report.failures);
        };
        assert_eq!(
            (off.what.as_str(), off.reason.as_str()),
            ("grub over OFF", "last")
        );
        for text in [report.text(), report.markdown()] {
            for part in [
                "no figure for grub over OFF: last",
                "failed in round 1: grub over OFF: first",
                "failed in round 2: shim over OLD: once",
            ] {
                assert!(text.contains(part), "{part} in\n{text}");
            }
        }
    }

    #[test]
    fn table_has_figures_and_ratios() {
        for text in [report().text(), report().markdown()] {
            for part in [
                "OURS / OLD",
                "500 (480 to 510; 3)",
                "10 (9 to 30; 3)",
                "50 (1)",
                "the grub, cold memory",
                "Mbit/s",
            ] {
                assert!(text.contains(part), "{part} in\n{text}");
            }
        }
    }

    #[test]
    fn json_has_the_promised_shape() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["networks"][2]["id"], "ours");
        let row = &json["rows"][0];
        assert_eq!(
            (&row["id"], &row["unit"]),
            (&"grub".into(), &"Mbit/s".into())
        );
        let figure = &row["figures"]["ours"];
        assert_eq!(figure["trials"], serde_json::json!([500.0, 480.0, 510.0]));
        assert_eq!(
            (&figure["n"], &figure["times_stock"]["new"]),
            (&3.into(), &10.0.into())
        );
        for key in ["date", "command", "commit", "program_sha256", "busy"] {
            assert!(json["host"].get(key).is_some(), "host.{key}");
        }
        assert_eq!(json["failed_trials"][2]["reason"], "once");
    }
}
