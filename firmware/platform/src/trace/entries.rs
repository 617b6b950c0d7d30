//! What stands in the members: code that counts a call and goes on to the firmware's function with the caller's arguments, however many they are.
//!
//! An entry notes its service's number and leaves the rest to `passed`, which calls `enter`. That tells the firmware's function, and whether
//! the call's end is waited for. If not, `passed` jumps to the function. If so, it takes the address that the call returns to off the stack
//! and calls the function in its place, so that this finds its arguments where it expects them; `leave` keeps the address meanwhile.
//!
//! Where calls are only counted, `counting` does without all that from a place's second call on: 13 instructions. A network driver of EDK II's
//! makes a hundred such calls and more for a packet.

use super::record::{self, Record};
use super::services::{ALL, COUNT, is_brief, is_frame};
use crate::shim::Original;
use core::arch::{naked_asm, x86_64::_rdtsc};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};

/// A function pointer of any type.
pub(super) type Function = *mut c_void;

/// The firmware's functions, by their services' numbers.
pub(super) static ORIGINALS: [Original<Function>; COUNT] = [const { Original::new() }; COUNT];
pub(super) static RECORD: Record = Record::new();
/// Whether the calls' times are taken.
pub(super) static TIMED: AtomicBool = AtomicBool::new(false);

/// How a service's calls are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// They are timed where that is asked for, else counted.
    Timed,
    /// Their results are looked at in any case.
    Frame,
    /// They are only counted: a look takes longer than such a call does.
    Brief,
}

const LOOKS: [Look; COUNT] = {
    let mut looks = [Look::Timed; COUNT];
    let mut number = 0;
    while number < COUNT {
        #[expect(clippy::indexing_slicing, reason = "checked when it is compiled")]
        {
            let (table, offset) = (ALL[number].table, ALL[number].offset);
            if is_frame(table, offset) {
                looks[number] = Look::Frame;
            } else if is_brief(table, offset) {
                looks[number] = Look::Brief;
            }
        }
        number += 1;
    }
    looks
};

impl Look {
    /// Whether the call's end is waited for.
    fn waits(self, timed: bool) -> bool {
        match self {
            Self::Timed => timed,
            Self::Frame => true,
            Self::Brief => false,
        }
    }
}

/// In what `enter` answers: the call's end is waited for. No address has this bit, as firmware maps memory to its own address.
const WAITED_FOR: u32 = 63;

#[inline]
fn now() -> u64 {
    // SAFETY: as in `clock`: every x86-64 processor has the instruction, and firmware runs where it is permitted.
    unsafe { _rdtsc() }
}

/// A service is called; what returns to `caller`, with that address at `stack`. Tells the firmware's function, with [`WAITED_FOR`].
extern "efiapi" fn enter(service: usize, caller: usize, stack: usize) -> usize {
    // It was noted before the entry was put into the member.
    let original = ORIGINALS.get(service).and_then(Original::get);
    let original = original.map_or(0, |function| function as usize);
    let look = LOOKS.get(service).copied().unwrap_or(Look::Timed);
    let waited = if look.waits(TIMED.load(Ordering::Relaxed)) {
        RECORD.begin(service, caller, stack, now)
    } else {
        RECORD.count(service, caller);
        false
    };
    original | usize::from(waited) << WAITED_FOR
}

/// The function has returned `status`. Tells where to go on.
extern "efiapi" fn leave(status: usize, stack: usize) -> usize {
    RECORD.end(stack, status == 0, now())
}

/// The entry of a service.
///
/// # Safety
/// As the service; from its member only.
#[unsafe(naked)]
unsafe extern "efiapi" fn entry<const SERVICE: usize>() {
    // r11 carries neither an argument nor anything that a caller keeps.
    naked_asm!(
        "mov r11d, {service}",
        "jmp {passed}",
        service = const SERVICE,
        passed = sym passed,
    )
}

/// See the module. The stack is a multiple of 16 bytes at each call.
///
/// # Safety
/// From `entry` only.
#[unsafe(naked)]
unsafe extern "efiapi" fn passed() {
    naked_asm!(
        "push rcx",
        "push rdx",
        "push r8",
        "push r9",
        "sub rsp, 40",
        "mov rcx, r11",
        "mov rdx, [rsp + 72]",
        "lea r8, [rsp + 72]",
        "call {enter}",
        "add rsp, 40",
        "pop r9",
        "pop r8",
        "pop rdx",
        "pop rcx",
        "btr rax, {waited_for}",
        "jc 2f",
        "jmp rax",
        "2:",
        "add rsp, 8",
        "call rax",
        "sub rsp, 8",
        "push rax",
        "sub rsp, 32",
        "mov rcx, rax",
        "lea rdx, [rsp + 40]",
        "call {leave}",
        "mov [rsp + 40], rax",
        "add rsp, 32",
        "pop rax",
        "ret",
        enter = sym enter,
        leave = sym leave,
        waited_for = const WAITED_FOR,
    )
}

/// The entry of a service whose calls are only counted, at a place that has called it before: counts there, and goes on. All else is `entry`'s.
///
/// # Safety
/// As `entry`.
#[unsafe(naked)]
unsafe extern "efiapi" fn counting<const SERVICE: usize>() {
    // rax and r10 carry nothing either. The place is found as `Record::entry` finds it at its first look.
    naked_asm!(
        "mov r10, [rsp]",
        "shl r10, {service_bits}",
        "or r10, {service}",
        "movabs rax, {mix}",
        "imul rax, r10",
        "shr rax, 32",
        "and eax, {sites} - 1",
        "shl eax, {entry_bits}",
        "lea r11, [rip + {record} + {entries}]",
        "cmp [r11 + rax + {key}], r10",
        "jne 2f",
        "inc qword ptr [r11 + rax + {calls}]",
        "jmp qword ptr [rip + {originals} + 8 * {service}]",
        "2:",
        "mov r11d, {service}",
        "jmp {passed}",
        service = const SERVICE,
        service_bits = const record::SERVICE_BITS,
        mix = const record::MIX as i64,
        sites = const record::SITES,
        entry_bits = const record::ENTRY_BITS,
        entries = const record::ENTRIES,
        key = const record::KEY,
        calls = const record::CALLS,
        record = sym RECORD,
        originals = sym ORIGINALS,
        passed = sym passed,
    )
}

// `counting` jumps to what is in it.
const _: () = assert!(size_of::<Original<Function>>() == 8);

/// An entry for each service, by their numbers.
macro_rules! of_each_service {
    ($entry:ident) => {
        [
            $entry::<0>,
            $entry::<1>,
            $entry::<2>,
            $entry::<3>,
            $entry::<4>,
            $entry::<5>,
            $entry::<6>,
            $entry::<7>,
            $entry::<8>,
            $entry::<9>,
            $entry::<10>,
            $entry::<11>,
            $entry::<12>,
            $entry::<13>,
            $entry::<14>,
            $entry::<15>,
            $entry::<16>,
            $entry::<17>,
            $entry::<18>,
            $entry::<19>,
            $entry::<20>,
            $entry::<21>,
            $entry::<22>,
            $entry::<23>,
            $entry::<24>,
            $entry::<25>,
            $entry::<26>,
            $entry::<27>,
            $entry::<28>,
            $entry::<29>,
            $entry::<30>,
            $entry::<31>,
            $entry::<32>,
            $entry::<33>,
            $entry::<34>,
            $entry::<35>,
            $entry::<36>,
            $entry::<37>,
            $entry::<38>,
            $entry::<39>,
            $entry::<40>,
            $entry::<41>,
            $entry::<42>,
            $entry::<43>,
            $entry::<44>,
            $entry::<45>,
            $entry::<46>,
            $entry::<47>,
            $entry::<48>,
            $entry::<49>,
            $entry::<50>,
            $entry::<51>,
            $entry::<52>,
            $entry::<53>,
            $entry::<54>,
            $entry::<55>,
            $entry::<56>,
            $entry::<57>,
            $entry::<58>,
            $entry::<59>,
            $entry::<60>,
            $entry::<61>,
            $entry::<62>,
            $entry::<63>,
            $entry::<64>,
            $entry::<65>,
            $entry::<66>,
            $entry::<67>,
            $entry::<68>,
            $entry::<69>,
            $entry::<70>,
            $entry::<71>,
            $entry::<72>,
            $entry::<73>,
            $entry::<74>,
        ]
    };
}

const ENTRIES: [unsafe extern "efiapi" fn(); COUNT] = of_each_service!(entry);
const COUNTING: [unsafe extern "efiapi" fn(); COUNT] = of_each_service!(counting);

/// The entries, by their services' numbers: of calls that are timed, or only counted.
///
/// The linker keeps naked functions that nobody calls. Inline, they are built for programs that trace, and for no other.
#[inline]
pub(super) fn entries(timed: bool) -> impl Iterator<Item = Function> {
    let both = ENTRIES.into_iter().zip(COUNTING).zip(LOOKS);
    both.map(move |((full, counting), look)| {
        let entry = if look.waits(timed) { full } else { counting };
        entry as Function
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::{self, Shim};
    use alloc::vec::Vec;
    use core::ptr::NonNull;

    type Many = extern "efiapi" fn(u8, u64, u32, *const u8, u64, bool, u64, u64) -> usize;
    type Two = extern "efiapi" fn(usize, Many) -> usize;

    static TEXT: u8 = 7;

    extern "efiapi" fn many(
        a: u8,
        b: u64,
        c: u32,
        d: *const u8,
        e: u64,
        f: bool,
        g: u64,
        h: u64,
    ) -> usize {
        assert_eq!(d, &raw const TEXT);
        assert!(f);
        // A stack that is not aligned would crash such code.
        let aligned = core::hint::black_box([1.0_f64, 2.0, 3.0, 4.0]);
        let sum: f64 = aligned.iter().sum();
        (u64::from(a) + b + u64::from(c) + e + g + h + sum as u64) as usize
    }

    /// Calls another service, and fails where it is told to.
    extern "efiapi" fn two(value: usize, service: Many) -> usize {
        value.wrapping_add(service(1, 2, 3, &raw const TEXT, 4, true, 5, 6))
    }

    struct Members {
        many: Many,
        two: Two,
    }

    /// The number of the first that is used here; both are timed.
    const FIRST: usize = 1;

    fn shimmed(members: &mut Members, timed: bool) -> Vec<Shim> {
        RECORD.clear();
        TIMED.store(timed, Ordering::Relaxed);
        let places: [NonNull<Function>; 2] = [
            NonNull::from(&mut members.many).cast(),
            NonNull::from(&mut members.two).cast(),
        ];
        let services = entries(timed).zip(&ORIGINALS).skip(FIRST);
        // SAFETY: the members live until the shims are gone; an entry behaves as what it replaces.
        places
            .into_iter()
            .zip(services)
            .map(|(place, (entry, original))| unsafe {
                shim::replace(place, None, entry, original).unwrap()
            })
            .collect()
    }

    #[test]
    fn arguments_and_results_pass_and_calls_are_counted() {
        let _alone = shim::ALONE.lock();
        for timed in [false, true] {
            let members = std::boxed::Box::leak(std::boxed::Box::new(Members { many, two }));
            let shims = shimmed(members, timed);
            let read = |place: &Many| unsafe {
                // SAFETY: a live local's member, which the shims have changed behind the compiler's back.
                core::ptr::from_ref(place).read_volatile()
            };
            let service = read(&members.many);
            for _ in 0..3 {
                assert_eq!(service(1, 2, 3, &raw const TEXT, 4, true, 5, 6), 31);
            }
            // SAFETY: as above.
            let outer = unsafe { (&raw const members.two).read_volatile() };
            assert_eq!(outer(100, service), 131);
            assert_eq!(outer(usize::MAX - 30, service), 0);
            drop(shims);
            let mut calls = [0; 2];
            let mut succeeded = [0; 2];
            let mut ticks = [0; 2];
            let (sites, lost) = RECORD.read();
            for site in sites {
                calls[site.service - FIRST] += site.calls;
                succeeded[site.service - FIRST] += site.succeeded;
                ticks[site.service - FIRST] += site.ticks;
            }
            assert_eq!((calls, lost), ([5, 2], 0));
            assert_eq!(succeeded, if timed { [0, 1] } else { [0, 0] });
            assert_eq!(ticks.iter().all(|ticks| *ticks > 0), timed);
            assert_eq!(members.two as usize, two as Two as usize);
        }
    }

    #[test]
    fn frames_are_looked_at_where_calls_are_only_counted_and_what_is_brief_is_only_counted() {
        let names = |wanted: fn(Look) -> bool| -> Vec<_> {
            let services = ALL.iter().zip(LOOKS).filter(|(_, look)| wanted(*look));
            services.map(|(service, _)| service.name).collect()
        };
        use super::super::services::{RECEIVE, TRANSMIT};
        assert_eq!(names(|look| look.waits(false)), [TRANSMIT, RECEIVE]);
        assert_eq!(names(|look| !look.waits(true)), ["RaiseTPL"]);
    }
}
