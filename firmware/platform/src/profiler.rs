//! Where the BSP (bootstrap processor) is, many times a second: an AP (application processor) sends it a non-maskable interrupt, and a gate of ours
//! notes what that interrupted. Interrupts that are off do not keep it away.
//!
//! ```text
//!   AP: halts; each period ── asked ──> NMI ──> BSP, whatever it does ──> gate: address, flags ──> back to it
//! ```

use crate::Clock;
use crate::bsp;
use crate::processors::apic::Apic;
use crate::processors::{self, Parking, Processor};
use crate::shim;
use alloc::vec::Vec;
use core::arch::naked_asm;
use core::hint::spin_loop;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use wireboot_threads::{Context, Thread, spawn};
use x86_64::instructions::interrupts::without_interrupts;
use x86_64::instructions::tables::sidt;

/// The vector of non-maskable interrupts.
const VECTOR: usize = 2;
/// Bytes of a gate in long mode.
const GATE: usize = 16;
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

/// What the gate reads and writes. Only the BSP writes here while there are periods, but for `asked`.
#[repr(C)]
struct GateData {
    /// Not 0: the next interrupt is ours.
    asked: AtomicU64,
    /// The first of `positions` that is free.
    next: AtomicU64,
    /// How many there are.
    room: AtomicU64,
    positions: AtomicPtr<Position>,
    /// The firmware's handler, for interrupts that are not ours.
    original: AtomicU64,
}

static SHARED: GateData = GateData {
    asked: AtomicU64::new(0),
    next: AtomicU64::new(0),
    room: AtomicU64::new(0),
    positions: AtomicPtr::new(ptr::null_mut()),
    original: AtomicU64::new(0),
};

/// The gate could not be put back, or an AP goes on asking.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Whether the firmware's gate is where it was, and nobody asks any more.
#[must_use]
pub fn as_found() -> bool {
    !LEFT.load(Ordering::Relaxed)
}

/// Why nothing can be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unable {
    /// The firmware offers none, the machine has one processor, or another profiler has it.
    #[error("no AP (application processor) is free to ask the BSP where it is")]
    NoAp,
    /// The BSP's table of gates is too short, or may not be written.
    #[error("the firmware's table of interrupts is too short or in read-only memory")]
    NoGate,
    /// The samples have no room.
    #[error("no memory for samples: {} MiB", (MOST * size_of::<Position>()) >> 20)]
    NoMemory,
}

/// Samples until it is stopped or dropped.
pub struct Profiler {
    thread: Option<Thread<Ticker, Ticked>>,
    processor: Processor,
    positions: Vec<Position>,
    clock: Clock,
}

/// What was sampled.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// In the order of time.
    pub positions: Vec<Position>,
    /// Samples for which there was no room.
    pub lost: u64,
    /// Periods in which the BSP had not answered the one before.
    pub missed: u64,
}

/// For the AP.
struct Ticker {
    clock: Clock,
    bsp: u32,
    period: u64,
}

/// From the AP.
#[derive(Clone, Copy, Debug, Default)]
struct Ticked {
    asked: u64,
    missed: u64,
}

impl Profiler {
    /// Begins, `hertz` times a second, on an AP.
    ///
    /// # Errors
    /// [`Unable`], with nothing changed.
    pub fn start(hertz: u64, clock: Clock) -> Result<Self, Unable> {
        let mut aps = processors::aps().map_err(|_| Unable::NoAp)?.into_iter();
        let mut processor = aps.next().ok_or(Unable::NoAp)?;
        if SHARED.original.load(Ordering::Relaxed) != 0 {
            return Err(Unable::NoAp);
        }
        let mut positions = Vec::new();
        let room = positions.try_reserve_exact(MOST);
        room.map_err(|_| Unable::NoMemory)?;
        positions.resize(MOST, Position::default());
        SHARED.asked.store(0, Ordering::Relaxed);
        SHARED.next.store(0, Ordering::Relaxed);
        SHARED.room.store(MOST as u64, Ordering::Relaxed);
        SHARED
            .positions
            .store(positions.as_mut_ptr(), Ordering::Relaxed);
        replace_gate().ok_or(Unable::NoGate)?;
        let ticker = Ticker {
            clock,
            bsp: bsp::apic_id(),
            period: clock.hertz() / hertz.max(1),
        };
        let thread = spawn(&mut processor, ticker, tick);
        let Ok(thread) = thread else {
            restore_gate();
            return Err(Unable::NoAp);
        };
        let profiler = Self {
            thread: Some(thread),
            processor,
            positions,
            clock,
        };
        let thread = profiler.thread.as_ref();
        let comes = || thread.is_some_and(Thread::is_started);
        // Where it does not come, dropping it ends all.
        profiler.wait(comes).then_some(()).ok_or(Unable::NoAp)?;
        Ok(profiler)
    }

    /// Ends, and gives what was sampled.
    #[must_use]
    pub fn stop(mut self) -> Profile {
        let ticked = self.end();
        let taken = usize::try_from(SHARED.next.load(Ordering::Relaxed)).unwrap_or(MOST);
        let mut positions = core::mem::take(&mut self.positions);
        positions.truncate(taken);
        Profile {
            lost: ticked.asked.saturating_sub(positions.len() as u64),
            missed: ticked.missed,
            positions,
        }
    }

    /// Whether `come` is true before patience ends.
    fn wait(&self, come: impl Fn() -> bool) -> bool {
        let end = self.clock.micros() + PATIENCE;
        while !come() {
            if self.clock.micros() > end {
                return come();
            }
            spin_loop();
        }
        true
    }

    /// Has the AP go, and puts the gate back.
    fn end(&mut self) -> Ticked {
        let Some(thread) = self.thread.take() else {
            return Ticked::default();
        };
        thread.stop();
        if !self.wait(|| thread.is_finished()) && !self.processor.kill() {
            // It goes on asking, so the gate and its memory stay. At the program's end the firmware is told to reset the machine.
            LEFT.store(true, Ordering::Relaxed);
            core::mem::forget(core::mem::take(&mut self.positions));
            return Ticked::default();
        }
        // The last one that it has asked for may be on its way.
        self.wait(|| SHARED.asked.load(Ordering::Acquire) == 0);
        restore_gate();
        self.wait(|| self.processor.is_idle());
        thread.join().unwrap_or_default()
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
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
        // Where this processor was taken away for long, the periods in between are gone.
        next = (next + ticker.period).max(ticker.clock.ticks());
        if SHARED.asked.swap(1, Ordering::AcqRel) != 0 {
            ticked.missed += 1;
            continue;
        }
        // SAFETY: the BSP's gate is ours until this thread has ended (`Profiler::end`), and no more is under way. While the firmware has another
        // table loaded (a legacy ROM's code in real mode), the interrupt takes that one's gate: firmware with such ROMs must bear it, as it must
        // a system's that samples so.
        if unsafe { apic.send_nmi(ticker.bsp) } {
            ticked.asked += 1;
        } else {
            SHARED.asked.store(0, Ordering::Release);
        }
    }
    ticked
}

/// Until the next period, or less. A processor that halts leaves a hypervisor's to the BSP and to the network card; one that spins takes it from them.
fn rest(parking: Option<&Parking>, micros: u64) {
    match parking {
        Some(parking) => parking.park(u32::try_from(micros).unwrap_or(u32::MAX)),
        None => spin_loop(),
    }
}

/// Puts the firmware's gate back where ours is in its place: the AP has been ended. Allocates nothing.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    restore_gate();
}

/// The gate of [`VECTOR`] in the calling processor's table.
fn gate() -> Option<ptr::NonNull<[u32; 4]>> {
    let table = sidt();
    if usize::from(table.limit) + 1 < (VECTOR + 1) * GATE {
        return None;
    }
    let address = (table.base.as_u64() + (VECTOR * GATE) as u64) as *mut [u32; 4];
    ptr::NonNull::new(address).filter(|gate| shim::is_writable(gate.as_ptr().cast()))
}

/// The address of the handler that a gate leads to (Intel SDM volume 3, figure 6-8).
fn handler(gate: [u32; 4]) -> u64 {
    let [low, middle, high, _] = gate;
    u64::from(high) << 32 | u64::from(middle & 0xffff_0000) | u64::from(low & 0xffff)
}

/// The same gate, leading to `address`.
fn leading_to(gate: [u32; 4], address: u64) -> [u32; 4] {
    let [low, middle, _, reserved] = gate;
    let part = address as u32;
    [
        low & 0xffff_0000 | part & 0xffff,
        middle & 0xffff | part & 0xffff_0000,
        (address >> 32) as u32,
        reserved,
    ]
}

/// Where our gate leads.
fn ours() -> u64 {
    note as *const () as u64
}

fn replace_gate() -> Option<()> {
    let gate = gate()?;
    without_interrupts(|| {
        // SAFETY: the processor's own register says that the table is there. The firmware keeps it in memory that it writes itself.
        let before = unsafe { gate.read_volatile() };
        SHARED.original.store(handler(before), Ordering::Relaxed);
        // SAFETY: the same; the code there is made for it, and what it reads is set. A non-maskable interrupt of the machine's between the
        // words of this write would go astray: they announce broken hardware.
        unsafe { gate.write_volatile(leading_to(before, ours())) };
    });
    Some(())
}

/// Puts the firmware's gate back. Where somebody else has replaced ours, they may go on to it at any time: it stays, and [`as_found`] says so.
fn restore_gate() {
    let original = SHARED.original.load(Ordering::Relaxed);
    if original == 0 {
        return;
    }
    let put = gate().is_some_and(|gate| {
        without_interrupts(|| {
            // SAFETY: as in `replace_gate`.
            let now = unsafe { gate.read_volatile() };
            let is_ours = handler(now) == ours();
            if is_ours {
                // SAFETY: as in `replace_gate`; this is how the firmware had it.
                unsafe { gate.write_volatile(leading_to(now, original)) };
            }
            is_ours
        })
    });
    if put {
        SHARED.original.store(0, Ordering::Relaxed);
    } else {
        LEFT.store(true, Ordering::Relaxed);
    }
}

/// The gate: notes where the BSP was if an AP has asked, else goes on to the firmware's handler.
#[unsafe(naked)]
extern "C" fn note() {
    naked_asm!(
        "push rax",
        "push rcx",
        "push rdx",
        "lea rcx, [rip + {shared}]",
        "xor eax, eax",
        "xchg rax, [rcx + {asked}]",
        "test rax, rax",
        "jz 3f",
        "mov rax, [rcx + {next}]",
        "cmp rax, [rcx + {room}]",
        "jae 2f",
        "inc qword ptr [rcx + {next}]",
        "shl rax, 4",
        "add rax, [rcx + {positions}]",
        // Behind our three registers: address, code segment, flags.
        "mov rdx, [rsp + 24]",
        "mov [rax], rdx",
        "mov rdx, [rsp + 40]",
        "mov [rax + 8], rdx",
        "2:",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "iretq",
        "3:",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "jmp qword ptr [rip + {shared} + {original}]",
        shared = sym SHARED,
        asked = const offset_of!(GateData, asked),
        next = const offset_of!(GateData, next),
        room = const offset_of!(GateData, room),
        positions = const offset_of!(GateData, positions),
        original = const offset_of!(GateData, original),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_leads_where_it_is_made_to_and_is_else_the_same() {
        // Offset 0x11223344_55667788, selector 0x38, interrupt gate, present.
        let gate = [0x0038_7788, 0x5566_8e00, 0x1122_3344, 0];
        assert_eq!(handler(gate), 0x1122_3344_5566_7788);
        let other = leading_to(gate, 0xaabb_ccdd_eeff_0011);
        assert_eq!(handler(other), 0xaabb_ccdd_eeff_0011);
        assert_eq!(other[0] >> 16, 0x38);
        assert_eq!(other[1] & 0xffff, 0x8e00);
        assert_eq!(leading_to(other, handler(gate)), gate);
    }

    #[test]
    fn flags_tell_whether_interrupts_were_off() {
        let at = |flags| Position::new(1, flags);
        assert!(at(0x002).interrupts_off() && !at(0x202).interrupts_off());
    }
}
