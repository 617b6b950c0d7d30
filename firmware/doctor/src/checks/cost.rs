//! What the firmware's services cost on this machine, how regularly its timer ticks, and what time is taken from it.

use super::stock;
use crate::error::Error;
use crate::escape::is_ended;
use crate::examination::Examination;
use crate::options::Options;
use alloc::format;
use wireboot_platform::claim::pci::Candidate;
use wireboot_platform::console;
use wireboot_platform::services::{self, Meter};
use wireboot_platform::{stolen, tick};
use wireboot_report::{Cost, Stolen, Timer};

/// How long is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effort {
    /// Calls of a service, at most.
    calls: usize,
    /// No call of it begins after so many microseconds.
    micros: u64,
    /// How long the timer is watched, and as long the processor, in microseconds.
    watched: u64,
}

impl Effort {
    fn of(options: &Options) -> Self {
        let (calls, micros, watched) = if options.thorough {
            (10_000, 2_000_000, 1_000_000)
        } else if options.quick {
            (1000, 100_000, 250_000)
        } else {
            (10_000, 500_000, 1_000_000)
        };
        Self {
            calls: options.calls.unwrap_or(calls),
            micros,
            watched,
        }
    }
}

/// Each service that there is.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let (clock, options) = (examination.clock, examination.options);
    let effort = Effort::of(options);
    let mut meter = Meter::new(clock, effort.calls);
    let card = card(examination);
    let mut services = services::all(card.as_ref(), options.nonvolatile);
    let all = services.len();
    for (service, number) in services.iter_mut().zip(1..) {
        if is_ended() {
            return Err(Error::Ended);
        }
        console::progress(&format!("{number} of {all}: {}", service.name));
        let Some(cost) = meter.measure(service, effort.calls, effort.micros) else {
            let reason = format!("the firmware refuses {}", service.name);
            examination.not_measured("cost", &reason);
            continue;
        };
        examination.report.costs.push(Cost {
            service: service.name.clone(),
            calls: cost.calls as u64,
            fastest_ns: cost.fastest,
            median_ns: cost.median,
            p99_ns: cost.p99,
            slowest_ns: cost.slowest,
        });
    }
    drop(services);
    console::progress("the firmware's timer");
    let report = &mut examination.report;
    report.timer = tick::watch(clock, effort.watched).map(|seen| Timer {
        ticks: seen.ticks as u64,
        period_us: seen.period,
        latest_us: seen.latest,
    });
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let seen = stolen::look(clock, effort.watched);
    report.stolen = Some(Stolen {
        looked_s: seconds(seen.looked),
        stolen_s: seconds(seen.stolen),
        gaps: seen.gaps,
        longest_us: seen.longest as f64 / 1e3,
        smis: seen.smis,
    });
    Ok(())
}

/// The card that we came by, else the one that is known to have a link, else the first, with the firmware's drivers on it.
fn card(examination: &Examination<'_>) -> Option<Candidate> {
    let card = stock::cards(examination).next()?;
    if examination.origin.network.mac.is_none() {
        card.connect();
    }
    Some(card)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_examination_takes_less_time_and_a_quick_one_least() {
        let effort = |thorough, quick, calls| {
            Effort::of(&Options {
                thorough,
                quick,
                calls,
                ..Options::default()
            })
        };
        let [quick, standard, named] = [(false, true), (false, false), (true, false)]
            .map(|(thorough, quick)| effort(thorough, quick, None));
        assert!(quick.micros < standard.micros && standard.micros < named.micros);
        let both = effort(true, true, None);
        let calls = [quick, standard, named, both].map(|effort| effort.calls);
        assert_eq!(calls, [1000, 10_000, 10_000, 10_000]);
        for (thorough, quick) in [(false, false), (false, true), (true, false)] {
            assert_eq!(effort(thorough, quick, Some(7)).calls, 7);
        }
    }
}
