//! What the firmware's services cost, how its timer ticks, and what is taken from it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::Report;
use wireboot_report::network::Transfer;

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
/// As is a gap of this length: no processor's turns are so long.
const LONGEST_GAP_S: f64 = 0.25;

impl Limit {
    /// What a call takes, in seconds, where it is too slow: the median, or the fastest of a processor that was away most of the time.
    fn slow_s(&self, report: &Report) -> Option<f64> {
        let cost = report.cost(self.service)?;
        let call_ns = if is_mostly_away(report) {
            cost.fastest_ns
        } else {
            cost.median_ns
        };
        (call_ns > self.slow_ns).then_some(call_ns as f64 / 1e9)
    }

    /// Whether a trace counts its calls: not those that are one of a service's uses alone.
    fn is_counted(&self) -> bool {
        !self.service.contains(',')
    }

    /// Seconds of a boot's calls that are beyond what is sane, where they are slow and were counted, and how many calls these are.
    fn lost(&self, report: &Report) -> Option<(f64, u64)> {
        let call_s = self.slow_s(report).filter(|_| self.is_counted())?;
        let boot = report.trace.as_ref()?.boot.as_ref()?;
        let calls = boot.calls_of(self.service);
        let seconds = (call_s - self.sane_ns as f64 / 1e9) * calls as f64;
        let counts = if self.is_told_elsewhere(report) {
            0.0
        } else {
            1.0
        };
        Some((seconds * counts, calls))
    }

    /// Whether another finding has the seconds of all of its calls.
    fn is_told_elsewhere(&self, report: &Report) -> bool {
        let other = match self.service {
            "GetTime" => trace::time_per_packet(report),
            "SetVariable" => trace::variables_written(report),
            "ConIn.ReadKeyStroke" => trace::keyboard_per_packet(report),
            _ => None,
        };
        other.is_some_and(|found| found.expected_s.is_some())
    }
}

/// The sum over all that are slow and counted; `None` where there is no such.
fn lost(limits: &[Limit], report: &Report) -> Option<(f64, u64)> {
    let each = limits.iter().filter_map(|limit| limit.lost(report));
    each.reduce(|(seconds, calls), (more_s, more)| (seconds + more_s, calls.saturating_add(more)))
}

/// `GetVariable 310 us, SetVariable 9 ms` of those that are slow; `None` where none is.
fn told(limits: &[Limit], report: &Report) -> Option<String> {
    let slow = limits
        .iter()
        .filter_map(|limit| Some((limit.service, limit.slow_s(report)?)));
    let slow: Vec<String> = slow
        .map(|(service, call_s)| format!("{service} {}", time(call_s)))
        .collect();
    (!slow.is_empty()).then(|| listed(slow.iter().map(String::as_str)))
}

/// Those that are slow, and what a boot's calls of them lose. `None` where none is slow.
fn found(label: &str, limits: &[Limit], report: &Report, advice: Vec<String>) -> Option<Found> {
    let told = told(limits, report)?;
    let longer = if is_mostly_away(report) {
        "each call takes at least"
    } else {
        "half of the calls take longer than"
    };
    let lost = lost(limits, report);
    let calls = match lost {
        Some((_, 0)) => String::from("a network boot makes no such call"),
        Some((_, calls)) => format!("a network boot makes {calls} such calls"),
        None => String::from("how many a boot makes was not counted"),
    };
    Some(Found {
        label: label.into(),
        seconds: lost.map_or(0.0, |(seconds, _)| seconds),
        evidence: format!("{longer}: {told}; {calls}"),
        advice,
        expected_s: lost.map(|_| 0.0),
    })
}

/// The time of day takes long.
pub(super) fn slow_get_time(report: &Report) -> Option<Found> {
    found(
        "a slow clock",
        &[GET_TIME],
        report,
        advice([
            "ask the firmware's vendor: its clock is read in system management mode (SMM), or waits for the chip",
        ]),
    )
}

/// Variables take long to read or to write.
pub(super) fn slow_variables(report: &Report) -> Option<Found> {
    found(
        "slow variables",
        &VARIABLES,
        report,
        advice([
            "see whether system management memory (SMRAM) is cached: uncached, each variable takes hundreds of microseconds",
            "take newer firmware: EDK II keeps a copy of all variables outside of it since 2019",
        ]),
    )
}

/// The screen, the serial port or the keyboard takes long.
pub(super) fn slow_console(report: &Report) -> Option<Found> {
    found(
        "slow consoles",
        &CONSOLES,
        report,
        advice([
            "switch off consoles that nobody uses in the firmware's setup: serial port, serial over LAN",
            "or set the serial port to 115,200 bits a second, without flow control where nothing is connected",
        ]),
    )
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

/// The processor is elsewhere most of the time, so that the median of calls is no measure.
fn is_mostly_away(report: &Report) -> bool {
    let stolen = report.stolen.as_ref();
    stolen.is_some_and(|stolen| stolen.share() > STOLEN_BY_HOST)
}

/// Somebody takes the processor.
pub(super) fn stolen_time(report: &Report) -> Option<Found> {
    let stolen = report.stolen.as_ref()?;
    let least = match stolen.smis {
        Some(_) => STOLEN,
        None => STOLEN_BY_HOST,
    };
    let longest_s = stolen.longest_us / 1e6;
    if stolen.looked_s <= 0.0 || (stolen.share() <= least && longest_s < LONGEST_GAP_S) {
        return None;
    }
    let files_s = files_s(report);
    let of_files = files_s.map_or_else(String::new, |seconds| {
        format!(
            "; a boot's files, which take {}, lose as much",
            time(seconds)
        )
    });
    let smis = stolen.smis.map_or_else(String::new, |count| {
        format!("; {count} interrupts of system management mode (SMI) meanwhile")
    });
    Some(Found {
        label: "stolen time".into(),
        seconds: files_s.map_or(0.0, |seconds| seconds * stolen.share()),
        evidence: format!(
            "the processor was away for {:.0} % of {}, with interrupts off: {} gaps, the longest {}{smis}{of_files}",
            stolen.share() * 100.0,
            time(stolen.looked_s),
            stolen.gaps,
            time(longest_s)
        ),
        advice: advice([
            "on a machine: switch off USB legacy support and power management by the firmware in its setup, both work by SMI",
            "in a virtual machine: its host is busy; all other figures of this report are too large, too",
        ]),
        expected_s: files_s.map(|_| 0.0),
    })
}

/// How long a boot of this machine fetches files, where that was measured: its waits end no sooner when nobody takes time.
fn files_s(report: &Report) -> Option<f64> {
    let traced = || Some(report.trace.as_ref()?.transfer.as_ref()?.took_s);
    let dry = report.dry_boot().map(|boot| {
        let files = boot.network.transfers.iter();
        files.map(Transfer::seconds).sum()
    });
    dry.or_else(traced)
}
