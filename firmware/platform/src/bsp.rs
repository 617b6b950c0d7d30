//! Whether the calling processor is the BSP (bootstrap processor), which alone may call the firmware.

use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU32, Ordering};

/// The BSP's APIC id; `u32::MAX` until [`remember`] was called.
static BSP_APIC_ID: AtomicU32 = AtomicU32::new(u32::MAX);

#[cfg(test)]
std::thread_local! {
    /// This thread stands for an AP (application processor).
    pub(crate) static ON_AP: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Notes the calling processor as the BSP, when the program starts.
pub(crate) fn remember() {
    BSP_APIC_ID.store(apic_id(), Ordering::Relaxed);
}

/// True on the processor that runs the firmware. Not for every packet: virtual machines leave the guest for it.
pub(crate) fn on_bsp() -> bool {
    #[cfg(test)]
    if ON_AP.get() {
        return false;
    }
    let boot = BSP_APIC_ID.load(Ordering::Relaxed);
    boot == u32::MAX || boot == apic_id()
}

/// The number by which the processors know each other: leaf 0xb where there is one, else leaf 1.
pub(crate) fn apic_id() -> u32 {
    if __cpuid(0).eax >= 0xb {
        let topology = __cpuid(0xb);
        if topology.ebx != 0 {
            return topology.edx;
        }
    }
    __cpuid(1).ebx >> 24
}
