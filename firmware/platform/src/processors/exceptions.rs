//! What becomes of a fault on an AP (application processor): it is recorded and the processor halts, for the BSP
//! (bootstrap processor) to see.
//!
//! The AP gets descriptor tables of its own while our code runs there (Intel SDM volume 3, chapter 7): the firmware's
//! segments, so that no selector changes, a task state segment whose only use is a stack for exceptions, which must work
//! when the thread's own has run out, and gates for all 256 vectors. Interrupts do nothing but end a `hlt`.

use super::failure::record_and_halt;
use crate::image;
use alloc::boxed::Box;
use core::arch::{asm, naked_asm};
use core::ffi::c_void;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::instructions::tables::{lgdt, lidt, load_tss, sgdt, sidt};
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::idt::{Entry, HandlerFunc, InterruptDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;
use x86_64::{PrivilegeLevel, VirtAddr};

/// Bytes of the exceptions' stack: enough to write a message.
const STACK: usize = 16 << 10;
/// Descriptors of the firmware's that are taken over, at most. EDK II has nine.
const SEGMENTS: usize = 32;
/// The busy bit of a task state segment's descriptor.
const BUSY: u64 = 1 << 41;

/// Where our program lies, for telling addresses within it.
static IMAGE_BASE: AtomicU64 = AtomicU64::new(0);
static IMAGE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Notes where our program lies. For the BSP.
pub(crate) fn remember_image() {
    if let Some((base, bytes)) = image::extent() {
        IMAGE_BASE.store(base, Ordering::Relaxed);
        IMAGE_BYTES.store(bytes, Ordering::Relaxed);
    }
}

/// The tables, for one AP.
pub(super) struct Tables {
    gdt: GlobalDescriptorTable<{ SEGMENTS + 2 }>,
    idt: InterruptDescriptorTable,
    tss: TaskStateSegment,
    stack: [u8; STACK],
}

/// The firmware's tables and task register.
pub(super) struct Before {
    gdt: DescriptorTablePointer,
    idt: DescriptorTablePointer,
    task: u16,
}

impl Tables {
    pub(super) fn new() -> Box<Self> {
        let mut tables = Box::new(Self {
            gdt: GlobalDescriptorTable::empty(),
            idt: InterruptDescriptorTable::new(),
            tss: TaskStateSegment::new(),
            stack: [0; STACK],
        });
        // Calls want 16 bytes alignment.
        let top = (&raw const tables.stack) as u64 + STACK as u64;
        let mut stacks = [VirtAddr::zero(); 7];
        stacks[0] = VirtAddr::new_truncate(top & !15);
        tables.tss.interrupt_stack_table = stacks;
        tables
    }

    /// Makes them the calling processor's. None, with nothing changed, when the firmware's are too long.
    ///
    /// # Safety
    /// Interrupts are off, and the tables outlive [`Before::restore`].
    pub(super) unsafe fn load(&mut self) -> Option<Before> {
        let before = Before {
            gdt: sgdt(),
            idt: sidt(),
            task: task_register(),
        };
        let count = (usize::from(before.gdt.limit) + 1) / 8;
        if count == 0 || count > SEGMENTS {
            return None;
        }
        // SAFETY: the processor's own register says that the table is there, of so many entries.
        let segments = unsafe { core::slice::from_raw_parts(before.gdt.base.as_ptr(), count) };
        self.gdt = GlobalDescriptorTable::from_raw_entries(segments);
        // SAFETY: it lives as long as the table that refers to it.
        let task = self
            .gdt
            .append(unsafe { Descriptor::tss_segment_unchecked(&raw const self.tss) });
        fill(&mut self.idt);
        // SAFETY: by the caller's word they stay; the segments in use have kept their selectors.
        unsafe {
            self.gdt.load_unsafe();
            load_tss(task);
            self.idt.load_unsafe();
        }
        Some(before)
    }
}

impl Before {
    /// Makes the processor's tables what they were.
    ///
    /// # Safety
    /// On the processor that [`Tables::load`] was called on, with interrupts off.
    pub(super) unsafe fn restore(self) {
        let task = SegmentSelector(self.task);
        // SAFETY: they were in use before. A descriptor that was loaded is busy, and only one that is not can be loaded.
        unsafe {
            lidt(&self.idt);
            lgdt(&self.gdt);
            if task.index() != 0 {
                let descriptor = self
                    .gdt
                    .base
                    .as_mut_ptr::<u64>()
                    .add(usize::from(task.index()));
                descriptor.write_volatile(descriptor.read_volatile() & !BUSY);
                load_tss(SegmentSelector::new(task.index(), PrivilegeLevel::Ring0));
            }
        }
    }
}

fn task_register() -> u16 {
    let selector: u16;
    // SAFETY: reads a register.
    unsafe { asm!("str {0:x}", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    selector
}

/// Gates that record, by the vectors' names in the table, and for the interrupts one that returns.
macro_rules! exceptions {
    ($($field:ident $vector:literal $code:literal $name:literal,)*) => {
        fn fill(idt: &mut InterruptDescriptorTable) {
            // SAFETY: the handlers never return, or do nothing, as processors want them; the first stack is there.
            unsafe {
                $(
                    let handler = stub::<$vector, $code> as *const () as u64;
                    idt.$field.set_handler_addr(VirtAddr::new_truncate(handler)).set_stack_index(0);
                )*
                for gate in idt.slice_mut(32..=255) {
                    gate.set_handler_addr(VirtAddr::new_truncate(return_from_interrupt as *const () as u64));
                }
            }
        }

        fn name(vector: u64) -> &'static str {
            match vector {
                $($vector => $name,)*
                _ => "exception",
            }
        }
    };
}

exceptions! {
    divide_error 0 0 "division error",
    debug 1 0 "debug exception",
    non_maskable_interrupt 2 0 "non-maskable interrupt",
    breakpoint 3 0 "breakpoint",
    overflow 4 0 "overflow",
    bound_range_exceeded 5 0 "bound range exceeded",
    invalid_opcode 6 0 "invalid opcode",
    device_not_available 7 0 "no floating-point unit",
    double_fault 8 1 "double fault",
    invalid_tss 10 1 "invalid task state segment",
    segment_not_present 11 1 "segment not present",
    stack_segment_fault 12 1 "stack fault",
    general_protection_fault 13 1 "general protection fault",
    page_fault 14 1 "page fault",
    x87_floating_point 16 0 "floating-point error",
    alignment_check 17 1 "alignment check",
    machine_check 18 0 "machine check",
    simd_floating_point 19 0 "floating-point error",
    virtualization 20 0 "virtualization exception",
    cp_protection_exception 21 1 "control protection exception",
}

/// What an exception leaves on its stack, upwards.
#[repr(C)]
struct Frame {
    vector: u64,
    code: u64,
    instruction: u64,
    segment: u64,
    flags: u64,
    stack: u64,
}

struct Fault<'a>(&'a Frame);

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(frame) = self;
        write!(f, "{}", name(frame.vector))?;
        if frame.vector == 14
            && let Ok(address) = Cr2::read()
        {
            write!(f, " for address {address:#x}")?;
        }
        let [base, bytes] = [&IMAGE_BASE, &IMAGE_BYTES].map(|word| word.load(Ordering::Relaxed));
        match frame.instruction.checked_sub(base) {
            Some(offset) if offset < bytes => write!(f, " at image+{offset:#x}")?,
            _ => write!(f, " at {:#x}", frame.instruction)?,
        }
        write!(f, ", code {:#x}, stack {:#x}", frame.code, frame.stack)
    }
}

extern "C" fn record_exception(frame: *const c_void) -> ! {
    // SAFETY: `stub` has put it together on a stack that stays.
    record_and_halt(&Fault(unsafe { &*frame.cast() }))
}

/// Completes the frame with the error code, where the processor gives none, and the vector.
#[unsafe(naked)]
extern "C" fn stub<const VECTOR: u64, const HAS_CODE: u64>() {
    naked_asm!(
        ".if {has_code} == 0",
        "push 0",
        ".endif",
        "push {vector}",
        "cld",
        // Where either calling convention has its first argument.
        "mov rcx, rsp",
        "mov rdi, rsp",
        "and rsp, -16",
        "sub rsp, 32",
        "call {record_exception}",
        "ud2",
        has_code = const HAS_CODE,
        vector = const VECTOR,
        record_exception = sym record_exception,
    )
}

/// True on a processor that has loaded [`Tables`]: an interrupt by `vector` does nothing there.
pub(super) fn are_loaded(vector: u8) -> bool {
    let idt = sidt();
    let gate = usize::from(vector);
    let end = (gate + 1) * size_of::<Entry<HandlerFunc>>() - 1;
    if usize::from(idt.limit) < end {
        return false;
    }
    // SAFETY: the processor's own register says that the table is there and so long.
    let gate = unsafe { &*idt.base.as_ptr::<Entry<HandlerFunc>>().add(gate) };
    gate.handler_addr().as_u64() == return_from_interrupt as *const () as u64
}

/// An interrupt, whose only use is that `hlt` has ended.
#[unsafe(naked)]
extern "C" fn return_from_interrupt() {
    naked_asm!("iretq")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_fault_is_told_in_words() {
        let frame = Frame {
            vector: 13,
            code: 0,
            instruction: 0x1234,
            segment: 0x38,
            flags: 2,
            stack: 0x5678,
        };
        assert_eq!(
            Fault(&frame).to_string(),
            "general protection fault at 0x1234, code 0x0, stack 0x5678"
        );
    }

    #[test]
    fn every_vector_has_a_gate() {
        let mut idt = InterruptDescriptorTable::new();
        fill(&mut idt);
        let gates = idt.slice(32..=255);
        assert!(gates.iter().all(|gate| gate.handler_addr().as_u64() != 0));
        assert_ne!(
            idt.page_fault.handler_addr(),
            idt.double_fault.handler_addr()
        );
    }
}
