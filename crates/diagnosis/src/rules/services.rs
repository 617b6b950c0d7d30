//! What the firmware's services cost, how its timer ticks, and what is taken from it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::Report;

use super::{Found, advice, listed, time, trace};

/// What a service may cost, and from where on it is worth a word.
struct Limit {
    service: &'static str,
    sane_ns: u64,
    slow_ns: u64,
}

/// The clock's chip is asked by ports, ten times a microsecond; a call of system management mode takes some hundred.
const GET_TIME: Limit = limit("GetTime", 50_000, 200_000);
const VARIABLES: [Limit; 3] = [
    limit("GetVariable", 20_000, 200_000),
    limit("GetVariable, none there", 20_000, 200_000),
    limit("SetVariable", 200_000, 2_000_000),
];
/// 16 characters take 1.4 ms on a serial port of 115,200 bits a second.
const CONSOLES: [Limit; 4] = [
    limit("ConOut.OutputString", 2_000_000, 5_000_000),
    limit("OutputString, screen", 2_000_000, 5_000_000),
    limit("OutputString, serial", 2_000_000, 5_000_000),
    limit("ConIn.ReadKeyStroke", 50_000, 500_000),
];

const fn limit(service: &'static str, sane_ns: u64, slow_ns: u64) -> Limit {
    Limit {
        service,
        sane_ns,
        slow_ns,
    }
}

/// What the firmware's timer may take from tick to tick, and be late; busy hosts make virtual machines late.
const LONGEST_PERIOD_S: f64 = 0.025;
const LATEST_S: f64 = 0.2;

/// More than this share of the processor's time is worth a word: where nobody but system management mode takes it, and where it may be a host.
const STOLEN: f64 = 0.01;
const STOLEN_BY_HOST: f64 = 0.5;

impl Limit {
    /// The median, in seconds, where it is too slow.
    fn slow_s(&self, report: &Report) -> Option<f64> {
        let median_ns = report.cost(self.service)?.median_ns;
        (median_ns > self.slow_ns).then_some(median_ns as f64 / 1e9)
    }

    /// Seconds of a boot's calls of `service` that are beyond what is sane, and how many calls these are. `None` where the calls were not counted.
    fn lost(&self, report: &Report, service: &str) -> Option<(f64, u64)> {
        let median_s = self.slow_s(report)?;
        let boot = report.trace.as_ref()?.boot.as_ref()?;
        let calls = boot.calls_of(service);
        Some(((median_s - self.sane_ns as f64 / 1e9) * calls as f64, calls))
    }
}

/// `GetVariable 310 us, SetVariable 9 ms` of those that are slow; `None` where none is.
fn told(limits: &[Limit], report: &Report) -> Option<String> {
    let slow = limits
        .iter()
        .filter_map(|limit| Some((limit.service, limit.slow_s(report)?)));
    let slow: Vec<String> = slow
        .map(|(service, median_s)| format!("{service} {}", time(median_s)))
        .collect();
    (!slow.is_empty()).then(|| listed(slow.iter().map(String::as_str)))
}

/// What calls of a boot lose, `(seconds, calls)`, or that nobody has counted them.
fn found(label: &str, told: &str, lost: Option<(f64, u64)>, advice: Vec<String>) -> Found {
    let calls = match lost {
        Some((_, calls)) => format!("a network boot makes {calls} such calls"),
        None => String::from("how many a boot makes was not counted"),
    };
    Found {
        label: label.into(),
        seconds: lost.map_or(0.0, |(seconds, _)| seconds),
        evidence: format!("half of the calls take longer than: {told}; {calls}"),
        advice,
        expected_s: lost.map(|_| 0.0),
    }
}

/// The time of day takes long.
pub(super) fn slow_get_time(report: &Report) -> Option<Found> {
    let told = told(&[GET_TIME], report)?;
    // Where each packet asks for it, that is told with all its seconds.
    let lost = match trace::time_per_packet(report) {
        Some(_) => None,
        None => GET_TIME.lost(report, GET_TIME.service),
    };
    Some(found(
        "a slow clock",
        &told,
        lost,
        advice([
            "ask the firmware's vendor: its clock is read in system management mode (SMM), or waits for the chip",
        ]),
    ))
}

/// Variables take long to read or to write.
pub(super) fn slow_variables(report: &Report) -> Option<Found> {
    let told = told(&VARIABLES, report)?;
    let [read, ..] = &VARIABLES;
    // What writing costs is told with variables that a boot writes.
    let lost = read.lost(report, read.service);
    Some(found(
        "slow variables",
        &told,
        lost,
        advice([
            "see whether system management memory (SMRAM) is cached: uncached, each variable takes hundreds of microseconds",
            "take newer firmware: EDK II keeps a copy of all variables outside of it since 2019",
        ]),
    ))
}

/// The screen, the serial port or the keyboard takes long.
pub(super) fn slow_console(report: &Report) -> Option<Found> {
    let told = told(&CONSOLES, report)?;
    let [all, ..] = &CONSOLES;
    let lost = all.lost(report, all.service);
    Some(found(
        "slow consoles",
        &told,
        lost,
        advice([
            "switch off consoles that nobody uses in the firmware's setup: serial port, serial over LAN",
            "or set the serial port to 115,200 bits a second, without flow control where nothing is connected",
        ]),
    ))
}

/// The timer by which network drivers look for packets ticks too seldom.
pub(super) fn slow_timer(report: &Report) -> Option<Found> {
    let timer = report.timer.as_ref()?;
    let (period_s, latest_s) = (timer.period_us / 1e6, timer.latest_us / 1e6);
    if period_s <= LONGEST_PERIOD_S && latest_s <= LATEST_S {
        return None;
    }
    Some(Found {
        label: "a slow timer".into(),
        seconds: 0.0,
        evidence: format!(
            "{} ticks, one each {}, the latest {} late; EDK II's network drivers look for packets each 10 ms",
            timer.ticks,
            time(period_s),
            time(latest_s)
        ),
        advice: advice([
            "ask the firmware's vendor for ticks of 10 ms",
            "in a virtual machine: see what else its host does",
        ]),
        expected_s: None,
    })
}

/// Somebody takes the processor.
pub(super) fn stolen_time(report: &Report) -> Option<Found> {
    let stolen = report.stolen.as_ref()?;
    let least = match stolen.smis {
        Some(_) => STOLEN,
        None => STOLEN_BY_HOST,
    };
    if stolen.share() <= least {
        return None;
    }
    let smis = stolen.smis.map_or_else(String::new, |count| {
        format!("; {count} interrupts of system management mode (SMI) meanwhile")
    });
    Some(Found {
        label: "stolen time".into(),
        seconds: 0.0,
        evidence: format!(
            "the processor was away for {:.0} % of {}, with interrupts off: {} gaps, the longest {}{smis}",
            stolen.share() * 100.0,
            time(stolen.looked_s),
            stolen.gaps,
            time(stolen.longest_us / 1e6)
        ),
        advice: advice([
            "on a machine: switch off USB legacy support and power management by the firmware in its setup, both work by SMI",
            "in a virtual machine: its host is busy; all other figures of this report are too large, too",
        ]),
        expected_s: None,
    })
}
