//! What calls are counted into: fixed memory, as a service may be called while another one allocates.
//!
//! The timer's interrupt may come at any place here and call services itself. Such calls have ended when the interrupted one goes on: what it
//! finds is as it was, but for sites that are new.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// Places that call services, each with a service of its own. A network boot of OVMF's has some hundreds.
pub(super) const SITES: usize = 2048;
/// Looks for a site's entry at most.
const PROBES: usize = 32;
/// Calls within each other at most.
const DEPTH: usize = 64;
/// Bits of a key that are the service's number.
pub(super) const SERVICE_BITS: u32 = 8;
/// Fibonacci hashing: the upper bits of a product with it are mixed best.
pub(super) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where code that is no Rust finds the entries of a record, an entry's key and its calls; and the size of an entry, as a power of two.
pub(super) const ENTRIES: usize = offset_of!(Record, entries);
pub(super) const KEY: usize = offset_of!(Entry, key);
pub(super) const CALLS: usize = offset_of!(Entry, calls);
pub(super) const ENTRY_BITS: u32 = size_of::<Entry>().ilog2();
const _: () = assert!(size_of::<Entry>().is_power_of_two() && SITES.is_power_of_two());

/// A place that calls a service.
struct Entry {
    /// The address behind the call, and the service. 0 for none.
    key: AtomicU64,
    calls: AtomicU64,
    succeeded: AtomicU64,
    ticks: AtomicU64,
}

/// A call that has not returned.
struct Frame {
    site: AtomicUsize,
    /// Where it returns to, and where that stood.
    caller: AtomicUsize,
    stack: AtomicUsize,
    /// When it began, and the ticks of the calls in it that have returned.
    start: AtomicU64,
    inner: AtomicU64,
}

/// All that is counted.
pub(super) struct Record {
    entries: [Entry; SITES],
    frames: [Frame; DEPTH],
    depth: AtomicUsize,
    lost: AtomicU64,
}

/// A place that has called a service, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The address behind the call.
    pub address: u64,
    /// Place of the service in `services::ALL`.
    pub(super) service: usize,
    /// Number of calls of the service from here.
    pub calls: u64,
    /// Calls that have returned `SUCCESS`, where results are looked at.
    pub succeeded: u64,
    /// Ticks of the counter in the service, without those in services that it calls itself.
    pub ticks: u64,
}

/// For the BSP (bootstrap processor) alone: as good as a simple addition, and an interrupt in it loses what it has counted at this site, no more.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}

impl Record {
    pub(super) const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    key: AtomicU64::new(0),
                    calls: AtomicU64::new(0),
                    succeeded: AtomicU64::new(0),
                    ticks: AtomicU64::new(0),
                }
            }; SITES],
            frames: [const {
                Frame {
                    site: AtomicUsize::new(0),
                    caller: AtomicUsize::new(0),
                    stack: AtomicUsize::new(0),
                    start: AtomicU64::new(0),
                    inner: AtomicU64::new(0),
                }
            }; DEPTH],
            depth: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Forgets all. No call may be under way.
    pub(super) fn clear(&self) {
        for entry in &self.entries {
            entry.key.store(0, Ordering::Relaxed);
            entry.calls.store(0, Ordering::Relaxed);
            entry.succeeded.store(0, Ordering::Relaxed);
            entry.ticks.store(0, Ordering::Relaxed);
        }
        self.depth.store(0, Ordering::Relaxed);
        self.lost.store(0, Ordering::Relaxed);
    }

    /// What was counted, and how many calls there was no room for.
    pub(super) fn read(&self) -> (impl Iterator<Item = Site>, u64) {
        let sites = self.entries.iter().filter_map(|entry| {
            let key = entry.key.load(Ordering::Relaxed);
            (key != 0).then(|| Site {
                address: key >> SERVICE_BITS,
                service: (key & ((1 << SERVICE_BITS) - 1)) as usize,
                calls: entry.calls.load(Ordering::Relaxed),
                succeeded: entry.succeeded.load(Ordering::Relaxed),
                ticks: entry.ticks.load(Ordering::Relaxed),
            })
        });
        (sites, self.lost.load(Ordering::Relaxed))
    }

    /// The entry of a place, which is made where there is none. `None` when there is no room.
    #[inline]
    fn entry(&self, service: usize, caller: usize) -> Option<(usize, &Entry)> {
        let key = (caller as u64) << SERVICE_BITS | service as u64;
        let first = (key.wrapping_mul(MIX) >> 32) as usize;
        for probe in 0..PROBES {
            let place = (first + probe) % SITES;
            let entry = self.entries.get(place)?;
            let mut found = entry.key.load(Ordering::Relaxed);
            if found == 0 {
                // An interrupt may have come between.
                let made = entry
                    .key
                    .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                found = made.err().unwrap_or(key);
            }
            if found == key {
                return Some((place, entry));
            }
        }
        None
    }

    /// A call that nobody waits for the end of.
    #[inline]
    pub(super) fn count(&self, service: usize, caller: usize) {
        match self.entry(service, caller) {
            Some((_, entry)) => add(&entry.calls, 1),
            None => add(&self.lost, 1),
        }
    }

    /// A call begins, at `stack`. True when [`end`](Self::end) has to be called behind it.
    #[inline]
    pub(super) fn begin(
        &self,
        service: usize,
        caller: usize,
        stack: usize,
        now: impl FnOnce() -> u64,
    ) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        let (Some((site, entry)), Some(frame)) =
            (self.entry(service, caller), self.frames.get(depth))
        else {
            add(&self.lost, 1);
            return false;
        };
        add(&entry.calls, 1);
        // First the depth: calls of an interrupt write no frame that is ours.
        self.depth.store(depth + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        frame.site.store(site, Ordering::Relaxed);
        frame.caller.store(caller, Ordering::Relaxed);
        frame.stack.store(stack, Ordering::Relaxed);
        frame.inner.store(0, Ordering::Relaxed);
        frame.start.store(now(), Ordering::Relaxed);
        true
    }

    /// The call that began at `stack` has returned; tells where to. Calls above it that never returned are forgotten. 0 when none began there.
    #[inline]
    pub(super) fn end(&self, stack: usize, succeeded: bool, now: u64) -> usize {
        let mut depth = self.depth.load(Ordering::Relaxed);
        while let Some(below) = depth.checked_sub(1)
            && let Some(frame) = self.frames.get(below)
        {
            depth = below;
            if frame.stack.load(Ordering::Relaxed) != stack {
                continue;
            }
            let caller = frame.caller.load(Ordering::Relaxed);
            let took = now.wrapping_sub(frame.start.load(Ordering::Relaxed));
            let own = took.saturating_sub(frame.inner.load(Ordering::Relaxed));
            if let Some(entry) = self.entries.get(frame.site.load(Ordering::Relaxed)) {
                add(&entry.ticks, own);
                add(&entry.succeeded, succeeded.into());
            }
            let outer = depth
                .checked_sub(1)
                .and_then(|outer| self.frames.get(outer));
            if let Some(outer) = outer {
                add(&outer.inner, took);
            }
            // Last the depth, as above.
            compiler_fence(Ordering::SeqCst);
            self.depth.store(depth, Ordering::Relaxed);
            return caller;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    static ONE: Record = Record::new();

    fn sites(record: &Record) -> Vec<Site> {
        let mut sites: Vec<_> = record.read().0.collect();
        sites.sort_by_key(|site| (site.service, site.address));
        sites
    }

    #[test]
    fn a_call_has_its_own_time_and_its_callers() {
        let record = &ONE;
        record.clear();
        // RestoreTPL from 0x10 to 0x100; in it CopyMem twice, from the same place; in the second one something that never returns.
        assert!(record.begin(1, 0x1000, 0x900, || 0x10));
        assert!(record.begin(2, 0x2000, 0x800, || 0x20));
        assert_eq!(record.end(0x800, true, 0x25), 0x2000);
        assert!(record.begin(2, 0x2000, 0x800, || 0x30));
        assert!(record.begin(3, 0x3000, 0x700, || 0x31));
        assert_eq!(record.end(0x800, false, 0x36), 0x2000);
        record.count(2, 0x4000);
        assert_eq!(record.end(0x900, true, 0x100), 0x1000);
        // Nothing is under way any more.
        assert_eq!(record.end(0x900, true, 0x100), 0);
        let site = |service, address, calls, succeeded, ticks| Site {
            address,
            service,
            calls,
            succeeded,
            ticks,
        };
        let expected = [
            site(1, 0x1000, 1, 1, 0xf0 - 5 - 6),
            site(2, 0x2000, 2, 1, 11),
            site(2, 0x4000, 1, 0, 0),
            site(3, 0x3000, 1, 0, 0),
        ];
        assert_eq!(sites(record), expected);
    }

    #[test]
    fn what_has_no_room_is_counted_as_lost_and_goes_on() {
        static FULL: Record = Record::new();
        for depth in 0..DEPTH {
            assert!(FULL.begin(1, 0x1000, 0x9000 - depth, || 0));
        }
        assert!(!FULL.begin(1, 0x1000, 0x7000, || 0));
        for depth in (0..DEPTH).rev() {
            assert_eq!(FULL.end(0x9000 - depth, true, 1), 0x1000);
        }
        assert!(FULL.begin(1, 0x1000, 0x7000, || 0));
        assert_eq!(FULL.end(0x7000, true, 1), 0x1000);
        for caller in 1..=10_000 {
            FULL.count(1, caller * 4);
        }
        let (found, lost) = FULL.read();
        let counted: u64 = found.map(|site| site.calls).sum();
        assert_eq!(counted + lost, DEPTH as u64 + 2 + 10_000);
        assert!(lost > 7_000, "{lost}");
    }

    #[test]
    fn places_that_fill_half_of_the_room_are_all_found() {
        static HALF: Record = Record::new();
        // Code of 60 images.
        for round in 0..3 {
            for caller in 0..SITES / 2 {
                let address = 0x7e00_0000 + (caller % 60) * 0x1_9000 + caller * 37;
                HALF.count(caller % 75, address);
            }
            let (found, lost) = HALF.read();
            assert_eq!((found.count(), lost), (SITES / 2, 0), "round {round}");
        }
        assert!(sites(&HALF).iter().all(|site| site.calls == 3));
    }
}
