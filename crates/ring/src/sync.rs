//! What queues are made of, in loom's form under loom, so that the same code is model-checked and shipped.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicUsize, Ordering},
};

#[cfg(not(loom))]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

/// loom's interface over core's cell.
#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A counter alone on its cache line, so that the ends of a queue do not fight over one.
#[repr(align(64))]
pub struct Counter(pub AtomicUsize);
