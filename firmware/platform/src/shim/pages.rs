//! Whether memory may be written.

use crate::page_tables::Tables;
use x86_64::registers::control::{Cr0, Cr0Flags};

/// Whether the word at `address` may be written.
pub(super) fn writable(address: u64) -> bool {
    if !Cr0::read().contains(Cr0Flags::WRITE_PROTECT) {
        return true;
    }
    let read = |entry: u64| {
        // SAFETY: the processor uses these tables, and firmware maps memory to its own address.
        Some(unsafe { (entry as *const u64).read_volatile() })
    };
    let page = Tables::current().page(address, read);
    page.is_some_and(|page| page.writable)
}
