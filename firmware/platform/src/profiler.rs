//! Where the BSP (bootstrap processor) is, many times a second: an AP (application processor) sends it a non-maskable interrupt, and a gate of ours
//! notes what that interrupted. Interrupts that are off do not keep it away. Where the firmware offers no AP, the gate is that of its timer: a sample is
//! taken at each of its ticks, and late where interrupts are off.
//!
//! ```text
//!   AP: halts; each period ── asked ──> NMI ──> BSP, whatever it does ──> gate: address, flags ──> back to it
//!   timer: each tick ──> BSP, where interrupts are on ──> gate: address, flags ──> the firmware's handler
//! ```

mod gate;

use crate::Clock;
use crate::bsp;
use crate::cpu_arch;
use crate::processors::apic::Apic;
use crate::processors::{self, Parking, Processor};
use alloc::vec::Vec;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use wireboot_threads::{Context, Thread, spawn};

/// The flag in RFLAGS that lets interrupts through.
const INTERRUPTS: u64 = 1 << 9;
/// The most samples that are kept: 16 MiB.
const MOST: usize = 1 << 20;
/// How long the AP may take to come or to go, in microseconds. 15 ms are common.
const PATIENCE: u64 = 500_000;

/// Where the BSP was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Position {
    /// The address of the instruction that was next.
    pub address: u64,
    flags: u64,
}

impl Position {
    /// At an address, with these flags in RFLAGS.
    #[must_use]
    pub fn new(address: u64, flags: u64) -> Self {
        Self { address, flags }
    }

    /// Interrupts were off there.
    #[must_use]
    pub fn interrupts_off(&self) -> bool {
        self.flags & INTERRUPTS == 0
    }
}

/// A gate or a handler could not be put back, or an AP goes on asking.
static LEFT: AtomicBool = AtomicBool::new(false);

/// The vector that [`timer`] has found, else 0.
static TIMER: AtomicU8 = AtomicU8::new(0);

/// Whether the firmware's gates and handlers are as they were, and nobody asks any more.
#[must_use]
pub fn as_found() -> bool {
    !LEFT.load(Ordering::Relaxed)
}

/// Why nothing can be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unable {
    /// The firmware offers none, or the machine has one processor; and the firmware handles no interrupt, or several.
    #[error(
        "the firmware offers no AP (application processor) to ask the BSP where it is, and which interrupt is its timer's cannot be told"
    )]
    NoAp,
    /// A gate is still replaced: another profiler is at work, or it could not be put back.
    #[error("another sampling is under way, or its gate could not be put back")]
    Busy,
    /// The AP does not come.
    #[error("the AP (application processor) that is to ask the BSP where it is does not come")]
    Silent,
    /// The BSP's table of gates is too short, or may not be written.
    #[error("the firmware's table of interrupts is too short or in read-only memory")]
    NoGate,
    /// The samples have no room.
    #[error("no memory for samples: {} MiB", (MOST * size_of::<Position>()) >> 20)]
    NoMemory,
}

/// Samples until it is stopped or dropped.
pub struct Profiler {
    asker: Option<Asker>,
    /// The gate is ours.
    samples: bool,
    positions: Vec<Position>,
    clock: Clock,
}

/// The AP that asks.
struct Asker {
    thread: Thread<Ticker, Ticked>,
    processor: Processor,
}

/// Where the BSP was while a [`Profiler`] ran.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// In the order of time.
    pub positions: Vec<Position>,
    /// Samples for which there was no room.
    pub lost: u64,
    /// Periods in which the BSP had not answered the one before.
    pub missed: u64,
    /// The firmware's timer has taken them, at its own pace.
    pub by_timer: bool,
}

/// What the AP gets: whom to ask (the APIC id of the BSP), and how often (ticks of the clock).
struct Ticker {
    clock: Clock,
    bsp: u32,
    period: u64,
}

/// What the AP gives back.
#[derive(Clone, Copy, Debug, Default)]
struct Ticked {
    asked: u64,
    missed: u64,
}

impl Profiler {
    /// Begins: `hertz` times a second by an AP, or where the firmware offers none, at each tick of its timer.
    ///
    /// # Errors
    /// [`Unable`], with nothing changed.
    pub fn start(hertz: u64, clock: Clock) -> Result<Self, Unable> {
        if gate::is_replaced() {
            return Err(Unable::Busy);
        }
        let aps = processors::aps().unwrap_or_default();
        let processor = aps.into_iter().next();
        let vector = match &processor {
            Some(_) => gate::NMI,
            None => timer().ok_or(Unable::NoAp)?,
        };
        let mut positions = Vec::new();
        let room = positions.try_reserve_exact(MOST);
        room.map_err(|_| Unable::NoMemory)?;
        positions.resize(MOST, Position::default());
        // SAFETY: they are dropped, or given away, when the gate is the firmware's again, else never (`end`).
        let replaced = unsafe { gate::replace(vector, processor.is_none(), &mut positions) };
        replaced.ok_or(Unable::NoGate)?;
        let mut profiler = Self {
            asker: None,
            samples: true,
            positions,
            clock,
        };
        if let Some(mut processor) = processor {
            let ticker = Ticker {
                clock,
                bsp: bsp::apic_id(),
                period: clock.hertz() / hertz.max(1),
            };
            let thread = spawn(&mut processor, ticker, tick).map_err(|_| Unable::Silent)?;
            let asker = profiler.asker.insert(Asker { thread, processor });
            // Where it does not come, dropping the profiler ends all.
            wait(clock, || asker.thread.is_started())
                .then_some(())
                .ok_or(Unable::Silent)?;
        }
        Ok(profiler)
    }

    /// Ends, and gives what was sampled.
    #[must_use]
    pub fn stop(mut self) -> Profile {
        let by_timer = self.asker.is_none();
        let ticked = self.end();
        let mut positions = core::mem::take(&mut self.positions);
        positions.truncate(gate::noted());
        Profile {
            lost: ticked.asked.saturating_sub(positions.len() as u64),
            missed: ticked.missed,
            positions,
            by_timer,
        }
    }

    /// Has the AP go, and puts the gate back.
    fn end(&mut self) -> Ticked {
        if !core::mem::take(&mut self.samples) {
            return Ticked::default();
        }
        let Some(Asker {
            thread,
            mut processor,
        }) = self.asker.take()
        else {
            self.put_back();
            return Ticked::default();
        };
        thread.stop();
        if !wait(self.clock, || thread.is_finished()) && !processor.kill() {
            // It goes on asking, so the gate and its memory stay. At the program's end the firmware is told to reset the machine.
            LEFT.store(true, Ordering::Relaxed);
            core::mem::forget(core::mem::take(&mut self.positions));
            return Ticked::default();
        }
        // The last one that it has asked for may be on its way.
        wait(self.clock, gate::is_noted);
        self.put_back();
        wait(self.clock, || processor.is_idle());
        thread.join().unwrap_or_default()
    }

    /// Puts the gate back. Where somebody has replaced it, ours still notes: what it writes to stays.
    fn put_back(&mut self) {
        gate::restore(&LEFT);
        if gate::is_replaced() {
            core::mem::forget(core::mem::take(&mut self.positions));
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.end();
    }
}

/// The vector of the firmware's timer: of the only interrupt that it handles.
fn timer() -> Option<u8> {
    let known = TIMER.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let found = cpu_arch::handled_interrupt().unwrap_or_else(|_| {
        LEFT.store(true, Ordering::Relaxed);
        None
    })?;
    TIMER.store(found, Ordering::Relaxed);
    Some(found)
}

/// Whether `come` is true before patience ends.
fn wait(clock: Clock, come: impl Fn() -> bool) -> bool {
    let end = clock.micros() + PATIENCE;
    while !come() {
        if clock.micros() > end {
            return come();
        }
        spin_loop();
    }
    true
}

/// Asks the BSP, each period. On the AP.
fn tick(ticker: Ticker, context: &Context<'_>) -> Ticked {
    let mut ticked = Ticked::default();
    let Some(apic) = Apic::here() else {
        return ticked;
    };
    let parking = Parking::here(ticker.clock);
    let mut next = ticker.clock.ticks();
    while !context.stopping() {
        let left = next.saturating_sub(ticker.clock.ticks());
        if left > 0 {
            rest(parking.as_ref(), ticker.clock.micros_of(left));
            continue;
        }
        // Where this AP was taken away for long, the periods in between are gone.
        next = (next + ticker.period).max(ticker.clock.ticks());
        if !gate::ask() {
            ticked.missed += 1;
            continue;
        }
        // SAFETY: the BSP's gate is ours until this thread has ended (`Profiler::end`), and no more is under way. While the firmware has another
        // table loaded (a legacy ROM's code in real mode), the interrupt takes that one's gate: firmware with such ROMs must bear it, as it must
        // a system's that samples so.
        if unsafe { apic.send_nmi(ticker.bsp) } {
            ticked.asked += 1;
        } else {
            gate::take_back();
        }
    }
    ticked
}

/// Until the next period, or less. An AP that halts leaves a hypervisor's to the BSP and to the network card; one that spins takes it from
/// them.
fn rest(parking: Option<&Parking>, micros: u64) {
    match parking {
        Some(parking) => parking.park(u32::try_from(micros).unwrap_or(u32::MAX)),
        None => spin_loop(),
    }
}

/// Puts the firmware's gate back where ours is in its place. An AP that asks has been ended before. Allocates nothing.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    gate::restore(&LEFT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_tell_whether_interrupts_were_off() {
        let at = |flags| Position::new(1, flags);
        assert!(at(0x002).interrupts_off() && !at(0x202).interrupts_off());
    }
}
