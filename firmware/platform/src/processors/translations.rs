//! What a processor remembers of the page tables.

use x86_64::registers::control::Cr3;

/// The calling processor forgets all translations that are not global. The page tables stay as they are.
pub fn forget() {
    let (tables, flags) = Cr3::read();
    // SAFETY: the value that is there already.
    unsafe { Cr3::write(tables, flags) };
}
