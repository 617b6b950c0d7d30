//! `--named`: whether the findings name each fault, and which place it has among them.

use anyhow::Result;
use comfy_table::{Table as Lines, presets};
use serde::Serialize;
use wireboot_lab::host::Host;
use wireboot_lab::progress;
use wireboot_report::Report;

use super::super::name;
use super::super::site::Fault;
use super::catalogue::{FIRST_OPTION, OPTIONS, SERVICES, STOLEN};
use super::{FaultTestbed, FaultsArgs, Setting, TrialKind, version};

/// Faults that are planted together, and how they are looked for.
#[derive(Debug)]
struct Case {
    /// Each with the findings of which one names it.
    faults: &'static [(Fault, &'static [&'static str])],
    kind: TrialKind,
}

/// By the packets of a boot.
const fn packets(faults: &'static [(Fault, &'static [&'static str])]) -> Case {
    let kind = TrialKind::Short;
    Case { faults, kind }
}

/// By an examination with these words.
const fn inside(words: &'static str, faults: &'static [(Fault, &'static [&'static str])]) -> Case {
    let kind = TrialKind::Examination(words);
    Case { faults, kind }
}

const STP: (Fault, &[&str]) = (Fault::Stp, &["spanning-tree"]);
const TWO_DHCP: (Fault, &[&str]) = (Fault::TwoDhcp, &["several-servers"]);
const OPTION_43: (Fault, &[&str]) = (Fault::Option43, &["vendor-options"]);
// A server that is late may answer the second request first: the first has no answer then.
const LATE_DHCP: (Fault, &[&str]) = (Fault::LateDhcp, &["late-offer", "unanswered"]);
const NO_WINDOWSIZE: (Fault, &[&str]) = (Fault::NoWindowsize, &["window"]);
const NO_BLKSIZE: (Fault, &[&str]) = (Fault::NoBlksize, &["block-size"]);
const DELAY: (Fault, &[&str]) = (Fault::Delay, &["window"]);
const LACP: (Fault, &[&str]) = (Fault::Lacp, &["lacp"]);
const SILENT_PROXY: (Fault, &[&str]) = (Fault::SilentProxy, &["boot-server"]);
const SLOW_DISK: (Fault, &[&str]) = (Fault::SlowDisk, &["slow-server"]);
const IPV6_FIRST: (Fault, &[&str]) = (Fault::Ipv6First, &["ip-version"]);
const MENU_TIMEOUT: (Fault, &[&str]) = (Fault::MenuTimeout, &["boot-menu"]);
const SLOW_TIME: (Fault, &[&str]) = (Fault::SlowTime, &["time-per-packet", "slow-get-time"]);
const SLOW_VARIABLES: (Fault, &[&str]) = (
    Fault::SlowVariables,
    &["variables-written", "slow-variables"],
);
const SLOW_CONSOLE: (Fault, &[&str]) = (Fault::SlowConsole, &["slow-console"]);
const RECEIVERS: (Fault, &[&str]) = (Fault::Receivers, &["receivers"]);
const DEBUG_BUILD: (Fault, &[&str]) = (Fault::DebugBuild, &["debug-build"]);

/// Each kind of fault, eleven pairs, and none.
const CASES: [Case; 38] = [
    packets(&[]),
    packets(&[STP]),
    packets(&[LATE_DHCP]),
    packets(&[TWO_DHCP]),
    packets(&[OPTION_43]),
    packets(&[(Fault::NoBootFile, &["no-boot-file"])]),
    packets(&[(Fault::MissingFile, &["refused"])]),
    packets(&[NO_WINDOWSIZE]),
    packets(&[NO_BLKSIZE]),
    packets(&[(Fault::Loss, &["loss"])]),
    packets(&[DELAY]),
    packets(&[LACP]),
    packets(&[SILENT_PROXY]),
    packets(&[SLOW_DISK]),
    packets(&[(Fault::SmallMtu, &["fragments"])]),
    packets(&[IPV6_FIRST]),
    // shim takes no names: only what leads to it is looked at.
    inside(FIRST_OPTION, &[(Fault::SlowNames, &["names"])]),
    inside(OPTIONS, &[(Fault::DeadOption, &["failing-options"])]),
    inside(SERVICES, &[MENU_TIMEOUT]),
    inside(SERVICES, &[SLOW_TIME]),
    inside(SERVICES, &[SLOW_VARIABLES]),
    inside(SERVICES, &[SLOW_CONSOLE]),
    inside(SERVICES, &[RECEIVERS]),
    inside(SERVICES, &[DEBUG_BUILD]),
    inside(SERVICES, &[(Fault::NoRng, &["no-rng"])]),
    inside(STOLEN, &[(Fault::StoppedMachine, &["stolen-time"])]),
    inside("dma", &[(Fault::UncachedMemory, &["uncached-memory"])]),
    packets(&[STP, TWO_DHCP]),
    packets(&[STP, NO_BLKSIZE]),
    packets(&[LACP, OPTION_43]),
    packets(&[LATE_DHCP, NO_WINDOWSIZE]),
    packets(&[SLOW_DISK, TWO_DHCP]),
    packets(&[SILENT_PROXY, OPTION_43]),
    packets(&[IPV6_FIRST, NO_BLKSIZE]),
    packets(&[DELAY, NO_BLKSIZE]),
    inside(SERVICES, &[MENU_TIMEOUT, SLOW_TIME]),
    inside(SERVICES, &[SLOW_CONSOLE, SLOW_VARIABLES]),
    inside(SERVICES, &[RECEIVERS, DEBUG_BUILD]),
];

/// What a boot on a healthy network has, too: the firmware waits for more offers and asks for small windows, GRUB asks for blocks of 1024 bytes, and an
/// emulated machine is slow; over IPv6 the firmware is silent for seconds. Places are those among the other findings.
const HEALTHY_TOO: [&str; 5] = [
    "offer-wait",
    "window",
    "block-size",
    "slow-machine",
    "silence",
];
/// From so many seconds on a fault is to be the first of the findings.
const FIRST_FROM_S: f64 = 1.0;
/// Of two faults both are to be among so many.
const PAIR_AMONG: usize = 3;
/// On a healthy network no other finding is to have more seconds.
const HEALTHY_S: f64 = 0.5;

impl Case {
    fn setting(&self) -> Setting {
        let faults: Vec<Fault> = self.faults.iter().map(|(fault, _)| *fault).collect();
        Setting {
            ip: version(&faults),
            faults,
            kind: self.kind,
        }
    }
}

/// A case, and what was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NamedRow {
    faults: Vec<String>,
    /// The findings and their seconds, in order.
    findings: Vec<(String, f64)>,
    /// The place of each fault, from 1 on; none where no finding names it.
    places: Vec<Option<usize>>,
    is_met: bool,
}

impl NamedRow {
    fn new(case: &Case, report: &Report) -> Self {
        let named = |id: &str| {
            let mut faults = case.faults.iter();
            faults.any(|(_, findings)| findings.contains(&id))
        };
        let others = report.findings.iter().filter(|one| {
            let id = one.id.as_str();
            named(id) || !HEALTHY_TOO.contains(&id)
        });
        let others: Vec<_> = others.collect();
        let found = case.faults.iter().map(|(_, findings)| {
            let place = others
                .iter()
                .position(|one| findings.contains(&one.id.as_str()))?;
            let seconds = others.get(place).map_or(0.0, |one| one.seconds);
            Some((place + 1, seconds))
        });
        let found: Vec<_> = found.collect();
        let is_met = match found.as_slice() {
            [] => others.iter().all(|one| one.seconds <= HEALTHY_S),
            [Some((place, seconds))] => *place == 1 || *seconds < FIRST_FROM_S,
            all => all
                .iter()
                .all(|one| one.is_some_and(|(place, _)| place <= PAIR_AMONG)),
        };
        let findings = report.findings.iter();
        Self {
            faults: case.faults.iter().map(|(fault, _)| name(*fault)).collect(),
            findings: findings
                .map(|one| (one.id.clone(), (one.seconds * 100.0).round() / 100.0))
                .collect(),
            places: found
                .iter()
                .map(|one| one.map(|(place, _)| place))
                .collect(),
            is_met,
        }
    }

    fn cells(&self) -> [String; 4] {
        let findings = self.findings.iter();
        let findings: Vec<_> = findings
            .map(|(id, seconds)| format!("{id} {seconds:.1}"))
            .collect();
        let places = self.places.iter();
        let places: Vec<_> = places
            .map(|place| place.map_or_else(|| "not named".to_owned(), |place| place.to_string()))
            .collect();
        let faults = match self.faults.as_slice() {
            [] => "none".to_owned(),
            some => format!("`{}`", some.join("`, `")),
        };
        [
            faults,
            findings.join(", "),
            places.join(", "),
            if self.is_met { "yes" } else { "NO" }.to_owned(),
        ]
    }
}

const COLUMNS: [&str; 4] = [
    "faults",
    "findings, with their seconds",
    "place",
    "as wanted",
];

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Named {
    host: Host,
    rows: Vec<NamedRow>,
    failures: Vec<String>,
}

impl Named {
    fn text(&self) -> String {
        let mut lines = Lines::new();
        lines.load_style(presets::ASCII_MARKDOWN);
        lines.set_header(COLUMNS);
        for row in &self.rows {
            lines.add_row(row.cells());
        }
        let failures = self.failures.iter();
        let failures: String = failures.map(|one| format!("\nfailed: {one}")).collect();
        format!("{lines}{failures}\n{}", self.verdict())
    }

    fn verdict(&self) -> String {
        let met = |faults: usize| {
            let of = |row: &&NamedRow| row.faults.len() == faults;
            let all = self.rows.iter().filter(of);
            (all.clone().filter(|row| row.is_met).count(), all.count())
        };
        let ((one, ones), (two, twos)) = (met(1), met(2));
        format!(
            "{one} of {ones} faults are named, first where they cost {FIRST_FROM_S} s or more; of {two} of {twos} pairs both are among the first {PAIR_AMONG}"
        )
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let head = line(&COLUMNS.map(str::to_owned));
        let rows: String = self.rows.iter().map(|row| line(&row.cells())).collect();
        let failures = self.failures.iter();
        let failures: String = failures.map(|one| format!("\nFailed: {one}.\n")).collect();
        format!(
            "{}\n\n{}. Places are those among findings that a boot on a healthy network has not, too ({}). One boot each.\n\n{head}|---|---|---|---|\n{rows}{failures}",
            self.host.provenance(),
            self.verdict(),
            HEALTHY_TOO.join(", ")
        )
    }
}

/// Plants each once, and prints what is found. True when all is as wanted.
pub(super) fn run(testbed: &FaultTestbed<'_>, arguments: &FaultsArgs) -> Result<bool> {
    let wanted = |case: &&Case| {
        let mut faults = case.faults.iter();
        arguments.only.is_empty() || faults.any(|(fault, _)| arguments.only.contains(fault))
    };
    let cases: Vec<_> = CASES.iter().filter(wanted).collect();
    let bar = progress::bar(cases.len() as u64);
    let mut named = Named {
        host: testbed.host.clone(),
        rows: Vec::new(),
        failures: Vec::new(),
    };
    for case in cases {
        let setting = case.setting();
        let what = setting.what();
        bar.set_message(what.clone());
        match testbed.report(&setting) {
            Ok(report) => {
                let row = NamedRow::new(case, &report);
                bar.suspend(|| eprintln!("{what}: {}", row.cells().join("; ")));
                named.rows.push(row);
            }
            Err(error) => {
                bar.suspend(|| eprintln!("{what}: {error:#}"));
                // Behind its first line is the end of the console.
                let error = error.to_string();
                let why = error.lines().next().unwrap_or_default();
                named.failures.push(format!("{what}: {why}"));
            }
        }
        bar.inc(1);
        arguments.results.write(&named, || named.markdown())?;
    }
    bar.finish_and_clear();
    println!("{}", named.text());
    Ok(named.failures.is_empty() && named.rows.iter().all(|row| row.is_met))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use wireboot_report::Finding;

    fn report(findings: &[(&str, f64)]) -> Report {
        let finding = |(id, seconds): &(&str, f64)| Finding {
            id: (*id).into(),
            seconds: *seconds,
            ..Finding::default()
        };
        let mut report = Report::new();
        report.findings = findings.iter().map(finding).collect();
        report
    }

    fn row(case: &Case, findings: &[(&str, f64)]) -> (Vec<Option<usize>>, bool) {
        let row = NamedRow::new(case, &report(findings));
        (row.places, row.is_met)
    }

    #[test]
    fn each_fault_is_alone_once_and_ten_are_in_pairs() {
        for fault in Fault::value_variants() {
            let alone = |case: &&Case| matches!(case.faults, [(one, _)] if one == fault);
            assert_eq!(CASES.iter().filter(alone).count(), 1, "{}", name(*fault));
        }
        let pairs = CASES.iter().filter(|case| case.faults.len() == 2);
        assert!(pairs.count() >= 10);
        let names: Vec<_> = wireboot_diagnosis::names().collect();
        let mut findings = CASES
            .iter()
            .flat_map(|case| case.faults)
            .flat_map(|one| one.1);
        assert!(findings.all(|id| names.contains(id)));
    }

    #[test]
    fn what_a_healthy_boot_has_too_takes_no_place() {
        let one = packets(&[STP]);
        let healthy = ("offer-wait", 4.0);
        assert_eq!(row(&one, &[("spanning-tree", 31.0)]), (vec![Some(1)], true));
        let behind_it = [healthy, ("spanning-tree", 3.0)];
        assert_eq!(row(&one, &behind_it), (vec![Some(1)], true));
        let second = [("loss", 5.0), ("spanning-tree", 1.0)];
        assert_eq!(row(&one, &second), (vec![Some(2)], false));
        let cheap = [("loss", 5.0), ("spanning-tree", 0.9)];
        assert_eq!(row(&one, &cheap), (vec![Some(2)], true));
        assert_eq!(row(&one, &[healthy]), (vec![None], false));
        // It is the fault itself here.
        let window = [healthy, ("window", 2.0)];
        assert_eq!(
            row(&packets(&[NO_WINDOWSIZE]), &window),
            (vec![Some(1)], true)
        );
    }

    #[test]
    fn of_two_both_are_among_three() {
        let two = packets(&[STP, TWO_DHCP]);
        let found = |place: &[&str]| {
            let findings: Vec<_> = place.iter().map(|id| (*id, 1.0)).collect();
            row(&two, &findings)
        };
        let both = ["loss", "several-servers", "spanning-tree"];
        assert_eq!(found(&both), (vec![Some(3), Some(2)], true));
        let late = ["loss", "window-x", "several-servers", "spanning-tree"];
        assert_eq!(found(&late), (vec![Some(4), Some(3)], false));
        assert_eq!(found(&["spanning-tree"]), (vec![Some(1), None], false));
    }

    #[test]
    fn a_healthy_network_costs_nothing() {
        let none = packets(&[]);
        assert!(row(&none, &[("offer-wait", 4.0), ("loss", 0.5)]).1);
        assert!(!row(&none, &[("loss", 0.6)]).1);
    }

    #[test]
    fn the_table_says_how_many() {
        let rows = [
            (packets(&[STP]), &[("spanning-tree", 31.0)][..]),
            (packets(&[STP, TWO_DHCP]), &[("spanning-tree", 31.0)]),
        ];
        let rows = rows.map(|(case, findings)| NamedRow::new(&case, &report(findings)));
        let named = Named {
            host: Host::without_guests(0.0, Vec::new()),
            rows: rows.into(),
            failures: vec!["a boot: it ended".into()],
        };
        let page = named.markdown();
        for part in [
            "1 of 1 faults are named, first where they cost 1 s or more; of 0 of 1 pairs both",
            "| `stp` | spanning-tree 31.0 | 1 | yes |\n",
            "| `stp`, `two-dhcp` | spanning-tree 31.0 | 1, not named | NO |\n",
            "\nFailed: a boot: it ended.\n",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
    }
}
