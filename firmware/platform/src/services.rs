//! What the firmware's services cost: each is called again and again, and timed call by call.
//!
//! ```text
//!   tables, variables, consoles, card ──> Service: a name and how to call it ──> Meter ──> Cost
//! ```

mod card;
mod consoles;
mod dpc;
mod tables;
mod variables;

use crate::Clock;
use crate::claim::pci::Candidate;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::arch::x86_64::{_mm_lfence, _rdtsc};
use uefi::Status;

/// The most calls of a service: 8 MiB of times.
pub const MOST_CALLS: usize = 1_000_000;

/// A service of the firmware's, and what a call of it needs.
pub struct Service {
    /// Its name in the specification: `GetTime`, `SNP.Receive`.
    pub name: String,
    /// How often it may be called.
    most: usize,
    call: Box<dyn FnMut() -> Called>,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    /// It did what it should.
    Done,
    /// It did something else that may happen now and then, so its time does not count.
    Other,
    /// It does not work here.
    Refused,
}

impl From<Status> for Called {
    fn from(status: Status) -> Self {
        if status.is_success() {
            Self::Done
        } else {
            Self::Refused
        }
    }
}

impl Service {
    fn new(name: impl ToString, call: impl FnMut() -> Called + 'static) -> Self {
        Self {
            name: name.to_string(),
            most: MOST_CALLS,
            call: Box::new(call),
        }
    }

    /// The same, called so often at most.
    fn at_most(self, most: usize) -> Self {
        Self { most, ..self }
    }
}

/// All services that there are here: those of `card` where one is given, and with `nonvolatile` so many writes of a variable that stays, which
/// wear out flash.
///
/// A card's drivers have to stay connected as long as its services are called. What services need is taken here, and given back when they are
/// dropped.
#[must_use]
pub fn all(card: Option<&Candidate>, nonvolatile: usize) -> Vec<Service> {
    let mut services = variables::services(nonvolatile);
    services.extend(tables::services());
    services.extend(dpc::service());
    services.extend(consoles::services());
    services.extend(card.into_iter().flat_map(card::services));
    services
}

/// Asks the firmware for the time of day (`GetTime`). Whether it tells.
#[must_use]
pub fn tells_time() -> bool {
    uefi::runtime::get_time().is_ok()
}

/// What calls took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How many there were.
    pub calls: usize,
    /// The shortest call, in nanoseconds.
    pub fastest: u64,
    /// Half of them took no longer.
    pub median: u64,
    /// 99 of 100 took no longer.
    pub p99: u64,
    /// The longest call, in nanoseconds.
    pub slowest: u64,
}

/// Measures how long calls of services take, by the time-stamp counter.
#[derive(Debug)]
pub struct Meter {
    clock: Clock,
    /// Ticks of each call.
    taken: Vec<u64>,
    /// Ticks that a call of nothing takes.
    nothing: u64,
}

impl Meter {
    /// For `most` calls of a service, but no more than [`MOST_CALLS`].
    #[must_use]
    pub fn new(clock: Clock, most: usize) -> Self {
        const NOTHING: usize = 1000;
        let mut meter = Self {
            clock,
            taken: Vec::with_capacity(most.clamp(NOTHING, MOST_CALLS)),
            nothing: 0,
        };
        let mut service = Service::new("", || Called::Done);
        meter.call(&mut service, NOTHING, clock.ticks_of(10_000));
        meter.nothing = meter.taken.iter().copied().min().unwrap_or_default();
        meter
    }

    /// Calls a service `calls` times, but begins no call after so many microseconds. `None` where it does not work.
    pub fn measure(&mut self, service: &mut Service, calls: usize, micros: u64) -> Option<Cost> {
        let calls = calls.min(service.most).min(self.taken.capacity());
        self.call(service, calls, self.clock.ticks_of(micros));
        let nothing = self.nothing;
        for ticks in &mut self.taken {
            *ticks = ticks.saturating_sub(nothing);
        }
        let nanos = |ticks| self.clock.nanos_of(ticks);
        Some(Cost {
            calls: self.taken.len(),
            median: nanos(nth(&mut self.taken, 1, 2)?),
            p99: nanos(nth(&mut self.taken, 99, 100)?),
            fastest: nanos(self.taken.iter().copied().min()?),
            slowest: nanos(self.taken.iter().copied().max()?),
        })
    }

    fn call(&mut self, service: &mut Service, calls: usize, limit: u64) {
        self.taken.clear();
        let begun = stamp();
        while self.taken.len() < calls {
            let before = stamp();
            let called = (service.call)();
            let after = stamp();
            match called {
                Called::Done => self.taken.push(after.wrapping_sub(before)),
                Called::Other => {}
                Called::Refused => break,
            }
            if after.wrapping_sub(begun) > limit {
                break;
            }
        }
    }
}

/// The time-stamp counter, when all before has been done and nothing behind has begun.
#[inline]
fn stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instructions, and firmware runs where they are permitted.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// The smallest of the values than which `part` of `whole` are no greater. `None` of no values.
fn nth(values: &mut [u64], part: usize, whole: usize) -> Option<u64> {
    let place = (values.len() * part).div_ceil(whole).checked_sub(1)?;
    let (_, value, _) = values.select_nth_unstable(place);
    Some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn parts_of_the_calls_took_no_longer() {
        let mut values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(nth(&mut values, 1, 2), Some(100));
        assert_eq!(nth(&mut values, 99, 100), Some(198));
        assert_eq!(nth(&mut [7], 99, 100), Some(7));
        assert_eq!(nth(&mut [], 1, 2), None);
    }

    /// What a service that answers so, again and again, costs, and how often it was called.
    fn measured(answers: &'static [Called], calls: usize, micros: u64) -> (Option<Cost>, usize) {
        let mut meter = Meter::new(Clock::ticking(1_000_000_000), 5000);
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        let mut service = Service::new("test", move || {
            counted.set(counted.get() + 1);
            answers[counted.get() % answers.len()]
        })
        .at_most(3000);
        (meter.measure(&mut service, calls, micros), count.get())
    }

    #[test]
    fn calls_are_counted_and_end() {
        const LONG: u64 = 60_000_000;
        let calls = |answers, most| {
            let (cost, called) = measured(answers, most, LONG);
            (cost.map(|cost| cost.calls), called)
        };
        assert_eq!(calls(&[Called::Done], 100), (Some(100), 100));
        assert_eq!(calls(&[Called::Done], 9000), (Some(3000), 3000));
        let (counted, called) = calls(&[Called::Done, Called::Other], 100);
        assert_eq!(counted, Some(100));
        assert!((199..=201).contains(&called), "{called}");
        assert_eq!(calls(&[Called::Refused], 100), (None, 1));
        // One call at least, however little time there is.
        assert_eq!(measured(&[Called::Done], 100, 0).1, 1);
        let (cost, _) = measured(&[Called::Done], 3000, LONG);
        let cost = cost.unwrap();
        let order = [cost.fastest, cost.median, cost.p99, cost.slowest];
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn what_a_call_of_nothing_takes_does_not_count() {
        let mut meter = Meter::new(Clock::ticking(1_000_000_000), 5000);
        let cost = meter.measure(&mut Service::new("", || Called::Done), 5000, 1_000_000);
        assert!(meter.nothing > 0);
        // At a gigahertz a tick is a nanosecond.
        let cost = cost.unwrap();
        assert!(cost.fastest < meter.nothing / 2, "{cost:?}");
    }
}
