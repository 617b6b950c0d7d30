//! The TLB of a processor.

use x86_64::registers::control::Cr3;

/// Flushes the calling processor's TLB, but for global pages (Intel SDM volume 3, section 4.10.4.1).
pub fn flush() {
    let (tables, flags) = Cr3::read();
    // SAFETY: the value that is there already.
    unsafe { Cr3::write(tables, flags) };
}
