//! The stack of an AP (application processor), with a guard page below it.
//!
//! Code that needs more than the stack faults at the guard page instead of writing over someone else's memory. Where the firmware does not
//! protect pages, a pattern in that page shows afterwards what happened.

use crate::cpu_arch::{self, READ_PROTECT};
use crate::memory::{PAGE, Pages};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

/// Bytes of a stack. The network engine with a task of each kind needs a tenth of it.
const STACK: usize = 256 << 10;
/// What the page below is filled with where it cannot be protected.
const UNTOUCHED: u8 = 0xa5;
/// [`STACK`] bytes behind a guard page. Its memory is leaked where the page cannot be unprotected.
#[derive(Debug)]
pub(super) struct Stack {
    pages: ManuallyDrop<Pages>,
    guarded: bool,
}

impl Stack {
    pub(super) fn new() -> uefi::Result<Self> {
        let pages = Pages::allocate(PAGE + STACK)?;
        let guarded = protect(pages.start(), READ_PROTECT).is_ok();
        if !guarded {
            // SAFETY: the pages are fresh and ours, and longer than this.
            unsafe { pages.start().write_bytes(UNTOUCHED, PAGE) };
        }
        Ok(Self {
            pages: ManuallyDrop::new(pages),
            guarded,
        })
    }

    /// Its upper end, a multiple of a page.
    pub(super) fn top(&self) -> usize {
        self.pages.start().as_ptr() as usize + PAGE + STACK
    }

    /// True when it was seen that the stack was too small. One with a protected page need not be looked at.
    pub(super) fn is_exhausted(&self) -> bool {
        let start = self.pages.start();
        // SAFETY: within the pages; the AP may write them at any time, so each byte is read as plain data.
        !self.guarded
            && (0..PAGE)
                .step_by(64)
                .any(|at| unsafe { start.add(at).read_volatile() } != UNTOUCHED)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let usable = !self.guarded || protect(self.pages.start(), 0).is_ok();
        // SAFETY: the value ends here, and nothing uses the field after this.
        let pages = unsafe { ManuallyDrop::take(&mut self.pages) };
        give_back(pages, usable);
    }
}

/// Gives back memory that its next owner can use. Else it is leaked, which harms nobody.
fn give_back(memory: impl Sized, usable: bool) {
    if usable {
        drop(memory);
    } else {
        log::debug!("a protected page stays");
        core::mem::forget(memory);
    }
}

/// Sets the attributes of one page.
fn protect(page: NonNull<u8>, attributes: u64) -> uefi::Result {
    // SAFETY: a page of the stack's own, below what it uses.
    unsafe { cpu_arch::set(page.as_ptr() as u64, PAGE as u64, attributes) }
}

#[cfg(test)]
mod tests {
    use super::give_back;
    use std::rc::Rc;

    #[test]
    fn memory_that_nobody_could_use_is_not_given_back() {
        let memory = Rc::new(());
        give_back(memory.clone(), true);
        assert_eq!(Rc::strong_count(&memory), 1);
        give_back(memory.clone(), false);
        assert_eq!(Rc::strong_count(&memory), 2);
    }
}
