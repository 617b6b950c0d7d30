//! The firmware's timer: how regularly it signals an event.

use crate::Clock;
use crate::clock::ticks;
use crate::event::OwnEvent;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::hint::spin_loop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use uefi::Event;
use uefi::boot::{self, EventType, TimerTrigger, Tpl};

/// The most ticks that are kept: as many as 5 s of a millisecond have.
const MOST: usize = 5000;
/// Fewer tell nothing about their period.
const LEAST: usize = 4;

/// How the timer ticked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticking {
    /// How often it was seen.
    pub ticks: usize,
    /// From one to the next, the median, in microseconds.
    pub period: f64,
    /// The longest such time, less that, in microseconds.
    pub latest: f64,
}

/// The time stamps of ticks, as the notification function notes them.
struct TickLog {
    count: AtomicUsize,
    stamps: Box<[AtomicU64]>,
}

/// Has the firmware signal an event at each tick of its timer, for so many microseconds. `None` where it has no event or its timer hardly ticks.
#[must_use]
pub fn watch(clock: Clock, micros: u64) -> Option<Ticking> {
    let log = TickLog {
        count: AtomicUsize::new(0),
        stamps: (0..MOST).map(|_| AtomicU64::new(0)).collect(),
    };
    // SAFETY: the context is `log`, which outlives the event.
    let event = unsafe {
        OwnEvent::new(
            EventType::TIMER | EventType::NOTIFY_SIGNAL,
            Tpl::CALLBACK,
            Some(note),
            Some(NonNull::from(&log).cast()),
        )
    };
    let event = event.ok()?;
    // Each 0 units of 100 ns: at each tick (UEFI 2.10, section 7.1, SetTimer).
    let shortest = TimerTrigger::Periodic(core::time::Duration::ZERO);
    boot::set_timer(event.get()?, shortest).ok()?;
    let end = clock.micros() + micros;
    while clock.micros() < end {
        spin_loop();
    }
    drop(event);
    let count = log.count.load(Ordering::Relaxed);
    let stamps = log.stamps.iter().take(count);
    let stamps: Vec<u64> = stamps.map(|stamp| stamp.load(Ordering::Relaxed)).collect();
    let micros = |ticks: u64| clock.nanos_of(ticks) as f64 / 1e3;
    ticking(&stamps, micros)
}

unsafe extern "efiapi" fn note(_: Event, context: Option<NonNull<c_void>>) {
    let Some(log) = context else { return };
    // SAFETY: the context is a `TickLog` (see `watch`), of which there are shared references alone.
    let log = unsafe { log.cast::<TickLog>().as_ref() };
    let count = log.count.load(Ordering::Relaxed);
    if let Some(stamp) = log.stamps.get(count) {
        stamp.store(ticks(), Ordering::Relaxed);
        log.count.store(count + 1, Ordering::Relaxed);
    }
}

fn ticking(stamps: &[u64], micros: impl Fn(u64) -> f64) -> Option<Ticking> {
    let pairs = stamps.iter().zip(stamps.iter().skip(1));
    let mut spans: Vec<u64> = pairs.map(|(one, next)| next.saturating_sub(*one)).collect();
    spans.sort_unstable();
    let (median, longest) = (*spans.get(spans.len() / 2)?, *spans.last()?);
    (stamps.len() >= LEAST).then(|| Ticking {
        ticks: stamps.len(),
        period: micros(median),
        latest: micros(longest - median),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_period_and_the_longest_is_late() {
        let micros = |ticks| ticks as f64 / 2.0;
        let stamps = [100, 120, 141, 160, 250, 270];
        let told = ticking(&stamps, micros).unwrap();
        assert_eq!((told.ticks, told.period, told.latest), (6, 10.0, 35.0));
        for few in [&[][..], &[1], &[1, 2, 3]] {
            assert_eq!(ticking(few, micros), None);
        }
    }
}
