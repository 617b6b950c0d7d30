//! What queues are made of, in loom's form under loom, so that the same code is model-checked and shipped.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicUsize, Ordering},
};

#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

/// loom's interface over core's cell.
#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A counter alone on its cache line, so that the ends of a queue do not fight over one.
#[repr(align(64))]
pub(crate) struct Counter(pub AtomicUsize);
