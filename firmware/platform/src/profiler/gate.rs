//! The gate of an interrupt in the BSP's table, with ours in its place: it notes what the interrupt interrupted.

use super::Position;
use crate::shim;
use core::arch::naked_asm;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use x86_64::instructions::interrupts::without_interrupts;
use x86_64::instructions::tables::sidt;

/// The vector of non-maskable interrupts.
pub(super) const NMI: u8 = 2;
/// Bytes of a gate in long mode.
const GATE: usize = 16;

/// What the gate reads and writes. Only the BSP writes here while there are periods, but for `asked`.
#[repr(C)]
struct GateData {
    /// Not 0: the next interrupt is to be noted.
    asked: AtomicU64,
    /// Not 0: each interrupt is, and goes on to the firmware's handler.
    chained: AtomicU64,
    /// The first of `positions` that is free.
    next: AtomicU64,
    /// How many there are.
    room: AtomicU64,
    positions: AtomicPtr<Position>,
    /// The firmware's handler, for interrupts that are not ours; 0 where its gate is in its place.
    original: AtomicU64,
}

static SHARED: GateData = GateData {
    asked: AtomicU64::new(0),
    chained: AtomicU64::new(0),
    next: AtomicU64::new(0),
    room: AtomicU64::new(0),
    positions: AtomicPtr::new(ptr::null_mut()),
    original: AtomicU64::new(0),
};

/// The vector whose gate is replaced.
static VECTOR: AtomicU8 = AtomicU8::new(0);

/// Whether somebody has a gate replaced.
pub(super) fn is_replaced() -> bool {
    SHARED.original.load(Ordering::Relaxed) != 0
}

/// How many positions were noted.
pub(super) fn noted() -> usize {
    usize::try_from(SHARED.next.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}

/// Has the next interrupt noted. False where the one before was not yet. On any processor.
pub(super) fn ask() -> bool {
    SHARED.asked.swap(1, Ordering::AcqRel) == 0
}

/// Takes back what [`ask`] has asked for, where no interrupt will come.
pub(super) fn take_back() {
    SHARED.asked.store(0, Ordering::Release);
}

/// Whether what was asked for has come.
pub(super) fn is_noted() -> bool {
    SHARED.asked.load(Ordering::Acquire) == 0
}

/// Puts ours in the place of a vector's gate: where `chained`, each interrupt is noted and goes on to the firmware's handler; else those that were asked
/// for ([`ask`]). `None`, with nothing changed, where the table is too short or may not be written.
///
/// # Safety
/// `positions` live until the gate is the firmware's again ([`restore`]), and nobody else accesses them.
pub(super) unsafe fn replace(vector: u8, chained: bool, positions: &mut [Position]) -> Option<()> {
    let gate = gate(vector)?;
    let chained = u64::from(chained);
    SHARED.asked.store(chained, Ordering::Relaxed);
    SHARED.chained.store(chained, Ordering::Relaxed);
    SHARED.next.store(0, Ordering::Relaxed);
    let room = positions.len() as u64;
    SHARED.room.store(room, Ordering::Relaxed);
    let first = positions.as_mut_ptr();
    SHARED.positions.store(first, Ordering::Relaxed);
    VECTOR.store(vector, Ordering::Relaxed);
    uninterrupted(|| {
        // SAFETY: the processor's own register says that the table is there. The firmware keeps it in memory that it writes itself.
        let before = unsafe { gate.read_volatile() };
        SHARED.original.store(handler(before), Ordering::Relaxed);
        // SAFETY: the same; the code there is made for it, and what it reads is set. A non-maskable interrupt of the machine's between the
        // words of this write would go astray: they announce broken hardware.
        unsafe { gate.write_volatile(leading_to(before, ours())) };
    });
    Some(())
}

/// Puts the firmware's gate back. Where somebody else has replaced ours, they may go on to it at any time: it stays, and `left` says so.
pub(super) fn restore(left: &AtomicBool) {
    // A panic comes here, too: nothing more is looked at than has to be.
    if !is_replaced() {
        return;
    }
    // SAFETY: as in `replace`.
    unsafe { restore_in(gate(VECTOR.load(Ordering::Relaxed)), left) };
}

/// The same with the gate that was replaced, where it is still to be found.
///
/// # Safety
/// As [`put_back`].
unsafe fn restore_in(gate: Option<ptr::NonNull<[u32; 4]>>, left: &AtomicBool) {
    let original = SHARED.original.load(Ordering::Relaxed);
    // SAFETY: the caller's word.
    let put = |gate| uninterrupted(|| unsafe { put_back(gate, original) });
    if gate.is_some_and(put) {
        SHARED.original.store(0, Ordering::Relaxed);
    } else {
        left.store(true, Ordering::Relaxed);
    }
}

/// With interrupts off. A test's process has none, and may not switch them off.
fn uninterrupted<R>(run: impl FnOnce() -> R) -> R {
    if cfg!(test) {
        run()
    } else {
        without_interrupts(run)
    }
}

/// Has a gate that leads to ours lead to the firmware's handler again. False, with nothing changed, where it leads elsewhere.
///
/// # Safety
/// The gate is there, and nobody else writes it meanwhile.
unsafe fn put_back(gate: ptr::NonNull<[u32; 4]>, original: u64) -> bool {
    // SAFETY: the caller's word.
    let now = unsafe { gate.read_volatile() };
    let is_ours = handler(now) == ours();
    if is_ours {
        // SAFETY: the same; this is how the firmware had it.
        unsafe { gate.write_volatile(leading_to(now, original)) };
    }
    is_ours
}

/// The gate of a vector in the calling processor's table.
fn gate(vector: u8) -> Option<ptr::NonNull<[u32; 4]>> {
    let (table, vector) = (sidt(), usize::from(vector));
    if usize::from(table.limit) + 1 < (vector + 1) * GATE {
        return None;
    }
    let address = (table.base.as_u64() + (vector * GATE) as u64) as *mut [u32; 4];
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

/// The gate: notes where the BSP was if that was asked for. An interrupt that was not, or that is chained, goes on to the firmware's handler.
#[unsafe(naked)]
extern "C" fn note() {
    naked_asm!(
        "push rax",
        "push rcx",
        "push rdx",
        "lea rcx, [rip + {shared}]",
        // What is chained stays asked for.
        "mov rax, [rcx + {chained}]",
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
        "cmp qword ptr [rcx + {chained}], 0",
        "jne 3f",
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
        chained = const offset_of!(GateData, chained),
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
    fn a_gate_that_somebody_else_has_replaced_stays_as_it_is() {
        let firmwares = [0x0038_7788, 0x5566_8e00, 0x1122_3344, 0];
        let put = |gate: &mut [u32; 4]| {
            // SAFETY: a gate of the test's own.
            unsafe { put_back(ptr::NonNull::from(gate), handler(firmwares)) }
        };
        let mut gate = leading_to(firmwares, ours());
        assert!(put(&mut gate));
        assert_eq!(gate, firmwares);
        let others = leading_to(firmwares, ours() ^ 0x1_0000_0000);
        let mut gate = others;
        assert!(!put(&mut gate));
        assert_eq!(gate, others);
    }

    #[test]
    fn where_it_stays_the_machine_is_not_as_it_was_found() {
        let left = AtomicBool::new(false);
        // SAFETY: here and below, gates of the test's own.
        let restore_in = |gate| unsafe { restore_in(gate, &left) };
        restore(&left);
        assert!(!left.load(Ordering::Relaxed), "nothing was replaced");
        let firmwares = [0x0038_7788, 0x5566_8e00, 0x1122_3344, 0];
        let mut ours = leading_to(firmwares, ours());
        SHARED.original.store(handler(firmwares), Ordering::Relaxed);
        restore_in(Some(ptr::NonNull::from(&mut ours)));
        assert!(!left.load(Ordering::Relaxed) && !is_replaced());
        let mut others = leading_to(firmwares, 0x2000);
        SHARED.original.store(handler(firmwares), Ordering::Relaxed);
        for gate in [Some(ptr::NonNull::from(&mut others)), None] {
            left.store(false, Ordering::Relaxed);
            restore_in(gate);
            assert!(left.load(Ordering::Relaxed));
            assert!(is_replaced(), "nobody else is to replace it now");
        }
        SHARED.original.store(0, Ordering::Relaxed);
    }
}
