//! Another type for memory, for a while.
//!
//! It goes by the firmware's processor driver, which `SetMemorySpaceAttributes` of the DXE services calls, too, and which sets MTRRs on all
//! processors. GCD's descriptors stay as they are, and so do protections, which GCD does not know of on all machines.

use super::{EffectiveMemoryType, MemoryType, Registers, TypeOfPages, Types};
use crate::cpu_arch::{self, EXECUTE_PROTECT, READ_ONLY};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why memory has not got another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unchanged {
    /// Its types or its protection are unknown, or not the same everywhere.
    #[error("its pages have not all the same type and protection, or unknown ones")]
    NotUniform,
    /// By the firmware's status.
    #[error("the firmware gives it no other type: {0}")]
    Refused(uefi::Status),
    /// The firmware says that it has done it, and it has another type.
    #[error("the firmware says that it gives it another type, and does not")]
    NotDone,
}

/// Memory has not its own type again.
static LEFT: AtomicBool = AtomicBool::new(false);
/// The memory that has another type now, and the attributes that it had; no bytes for none.
static START: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static ATTRIBUTES: AtomicU64 = AtomicU64::new(0);

/// Whether all memory has its own type, and the registers say what they said.
#[must_use]
pub fn as_found() -> bool {
    !LEFT.load(Ordering::Relaxed)
}

/// Gives memory its own type back when its owner cannot: on a panic.
#[cfg(target_os = "uefi")]
pub(crate) fn put_back_in_panic() {
    let bytes = BYTES.swap(0, Ordering::Relaxed);
    if bytes > 0 {
        let start = START.load(Ordering::Relaxed);
        // SAFETY: pages of the program's; the type and protection that they had.
        let _ = unsafe { cpu_arch::set(start, bytes, ATTRIBUTES.load(Ordering::Relaxed)) };
    }
}

/// Types, protection and registers of pages at one time: compared before a change and afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemoryTypeSnapshot {
    types: EffectiveMemoryType,
    /// Attributes of the pages' protection; `None` where they differ.
    protection: Option<u64>,
    registers: Registers,
}

/// What gives memory types.
trait Machine {
    fn state(&self) -> Option<MemoryTypeSnapshot>;
    fn set(&self, attributes: u64) -> uefi::Result;
}

/// Pages of a caller's alone.
struct Pages {
    start: u64,
    bytes: u64,
}

impl Machine for Pages {
    fn state(&self) -> Option<MemoryTypeSnapshot> {
        let types = Types::read().ok()?;
        let (start, bytes) = (self.start, self.bytes);
        let mut protections = types.pages(start, bytes).map(|page| {
            let page = page?;
            let read_only = if page.writable { 0 } else { READ_ONLY };
            let no_execute = if page.executable { 0 } else { EXECUTE_PROTECT };
            Some(read_only | no_execute)
        });
        let first = protections.next().flatten();
        let all_same = protections.all(|other| other == first);
        drop(protections);
        Some(MemoryTypeSnapshot {
            types: types.of(start, bytes),
            protection: first.filter(|_| all_same),
            registers: types.registers,
        })
    }

    fn set(&self, attributes: u64) -> uefi::Result {
        // SAFETY: the caller's alone, by the word of `change`; they are protected as they were.
        unsafe { cpu_arch::set(self.start, self.bytes, attributes) }
    }
}

/// The attribute of a type that memory can be given (UEFI 2.10, section 7.2.3).
fn attribute(kind: MemoryType) -> u64 {
    match kind {
        MemoryType::Uncached | MemoryType::UncachedMinus => 0x1,
        MemoryType::WriteCombining => 0x2,
        MemoryType::WriteThrough => 0x4,
        MemoryType::WriteBack => 0x8,
        MemoryType::WriteProtected => 0x1000,
    }
}

/// Does `work` while whole pages have another type. They are the caller's alone.
///
/// # Errors
/// [`Unchanged`] where they do not get it; then nothing was done.
pub(crate) fn change(
    start: u64,
    bytes: u64,
    kind: MemoryType,
    work: &mut dyn FnMut(),
) -> Result<(), Unchanged> {
    START.store(start, Ordering::Relaxed);
    change_on(&Pages { start, bytes }, bytes, kind, work)
}

fn change_on(
    machine: &impl Machine,
    bytes: u64,
    kind: MemoryType,
    work: &mut dyn FnMut(),
) -> Result<(), Unchanged> {
    let before = machine.state().ok_or(Unchanged::NotUniform)?;
    let (TypeOfPages::All(own), Some(protection)) = (before.types.range, before.protection) else {
        return Err(Unchanged::NotUniform);
    };
    let back = attribute(own) | protection;
    ATTRIBUTES.store(back, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
    let set = machine.set(attribute(kind) | protection);
    let done = machine
        .state()
        .is_some_and(|state| state.types.effective == TypeOfPages::All(kind));
    let result = match set {
        Err(error) => Err(Unchanged::Refused(error.status())),
        Ok(()) if !done => Err(Unchanged::NotDone),
        Ok(()) => {
            work();
            Ok(())
        }
    };
    // Also where it was refused: part of it may have been done.
    let restored = machine.state().as_ref() == Some(&before)
        || machine.set(back).is_ok() && machine.state().as_ref() == Some(&before);
    BYTES.store(0, Ordering::Relaxed);
    if !restored {
        LEFT.store(true, Ordering::Relaxed);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_type::ranges::Ranges;
    use std::cell::{Cell, RefCell};
    use std::sync::Mutex;

    /// What is left is told for the whole program: one test at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Pages that are write-back and not executed, and what becomes of a call.
    struct Model {
        kind: Cell<MemoryType>,
        range: TypeOfPages,
        protection: Cell<Option<u64>>,
        calls: RefCell<Vec<u64>>,
        /// The first call that is refused, and the first that does nothing.
        refuses: usize,
        ignores: usize,
    }

    fn model() -> Model {
        Model {
            kind: Cell::new(MemoryType::WriteBack),
            range: TypeOfPages::All(MemoryType::WriteBack),
            protection: Cell::new(Some(EXECUTE_PROTECT)),
            calls: RefCell::default(),
            refuses: usize::MAX,
            ignores: usize::MAX,
        }
    }

    impl Machine for Model {
        fn state(&self) -> Option<MemoryTypeSnapshot> {
            Some(MemoryTypeSnapshot {
                types: EffectiveMemoryType {
                    effective: TypeOfPages::All(self.kind.get()),
                    page: TypeOfPages::All(MemoryType::WriteBack),
                    range: self.range,
                },
                protection: self.protection.get(),
                registers: Registers {
                    caches_off: false,
                    pat: [6; 8],
                    ranges: Ranges::read(36, false, |_| 0),
                },
            })
        }

        fn set(&self, attributes: u64) -> uefi::Result {
            let call = self.calls.borrow().len();
            self.calls.borrow_mut().push(attributes);
            if call >= self.refuses {
                return Err(uefi::Status::OUT_OF_RESOURCES.into());
            }
            if call < self.ignores {
                self.protection.set(Some(attributes & !0xff));
                self.kind.set(match attributes & 0xff {
                    1 => MemoryType::Uncached,
                    2 => MemoryType::WriteCombining,
                    _ => MemoryType::WriteBack,
                });
            }
            Ok(())
        }
    }

    /// What becomes of the change, whether the memory is as found, and the calls.
    fn changed(model: &Model) -> (Result<(), Unchanged>, bool, Vec<u64>) {
        LEFT.store(false, Ordering::Relaxed);
        let kind = MemoryType::Uncached;
        let mut seen = None;
        let result = change_on(model, 4096, kind, &mut || seen = Some(model.kind.get()));
        // It was done where and while the memory had the type.
        assert_eq!(seen, result.is_ok().then_some(kind));
        let found = as_found();
        LEFT.store(false, Ordering::Relaxed);
        assert_eq!(BYTES.load(Ordering::Relaxed), 0);
        (result, found, model.calls.take())
    }

    #[test]
    fn memory_has_another_type_for_a_while_and_stays_protected() {
        let _alone = ALONE.lock().unwrap();
        let (result, found, calls) = changed(&model());
        assert_eq!((result, found), (Ok(()), true));
        assert_eq!(calls, [0x1 | EXECUTE_PROTECT, 0x8 | EXECUTE_PROTECT]);
    }

    #[test]
    fn memory_that_does_not_get_its_type_back_is_not_as_found() {
        let _alone = ALONE.lock().unwrap();
        for (refuses, ignores) in [(1, usize::MAX), (usize::MAX, 1)] {
            let stuck = Model {
                refuses,
                ignores,
                ..model()
            };
            let (result, found, _) = changed(&stuck);
            assert_eq!((result, found), (Ok(()), false));
        }
    }

    #[test]
    fn nothing_is_done_in_memory_that_gets_no_other_type() {
        let _alone = ALONE.lock().unwrap();
        let refused = Model {
            refuses: 0,
            ..model()
        };
        let status = uefi::Status::OUT_OF_RESOURCES;
        let (result, found, calls) = changed(&refused);
        assert_eq!((result, found), (Err(Unchanged::Refused(status)), true));
        assert_eq!(calls.len(), 1);
        let ignored = Model {
            ignores: 0,
            ..model()
        };
        let (result, found, _) = changed(&ignored);
        assert_eq!((result, found), (Err(Unchanged::NotDone), true));
    }

    #[test]
    fn memory_of_several_types_is_left_alone() {
        let _alone = ALONE.lock().unwrap();
        let mixed = Model {
            range: TypeOfPages::Mixed,
            ..model()
        };
        let protected = Model {
            protection: Cell::new(None),
            ..model()
        };
        for model in [mixed, protected] {
            let (result, found, calls) = changed(&model);
            assert_eq!((result, found), (Err(Unchanged::NotUniform), true));
            assert!(calls.is_empty());
        }
    }
}
