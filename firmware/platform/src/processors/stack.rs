//! The stack of an AP (application processor), with a guard page below it.
//!
//! Code that needs more than the stack faults at the guard page instead of writing over someone else's memory. Where the firmware does not
//! protect pages, a pattern in that page shows afterwards what happened.

use crate::memory::{PAGE, Pages};
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::unsafe_protocol;
use uefi::{Status, StatusExt};

/// Bytes of a stack. The network engine with a task of each kind needs a tenth of it.
const STACK: usize = 256 << 10;
/// What the page below is filled with where it cannot be protected.
const UNTOUCHED: u8 = 0xa5;
/// EFI_MEMORY_RP: any access faults.
const READ_PROTECT: u64 = 0x2000;

/// EFI_CPU_ARCH_PROTOCOL (PI 1.8, volume 2, section 12.3), up to what is used of it.
#[repr(C)]
#[unsafe_protocol("26baccb1-6f42-11d4-bce7-0080c73c8881")]
struct CpuArch {
    others: [*const c_void; 7],
    set_memory_attributes: unsafe extern "efiapi" fn(*mut Self, u64, u64, u64) -> Status,
}

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
fn protect(page: NonNull<u8>, attributes: u64) -> uefi::Result<()> {
    let handle = boot::get_handle_for_protocol::<CpuArch>()?;
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the firmware's processor driver is never unloaded.
    let protocol =
        unsafe { boot::open_protocol::<CpuArch>(params, OpenProtocolAttributes::GetProtocol) }?;
    let cpu: *const CpuArch = &*protocol;
    // SAFETY: the protocol is live; the page is the caller's alone.
    unsafe {
        ((*cpu).set_memory_attributes)(
            cpu.cast_mut(),
            page.as_ptr() as u64,
            PAGE as u64,
            attributes,
        )
    }
    .to_result()
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
