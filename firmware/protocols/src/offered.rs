//! The tables that are offered: a call with any other `this` is refused before that is looked behind, as the specification has it. Such calls
//! come by a copy of a table, and by one of which the protocol is installed no more.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The table of a kind, of which one is offered at a time.
pub(crate) struct Offered<T>(AtomicPtr<T>);

impl<T> Offered<T> {
    pub(crate) const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// To be called when `table` has found its place.
    pub(crate) fn set(&self, table: &T) {
        self.0
            .store(ptr::from_ref(table).cast_mut(), Ordering::Release);
    }

    /// To be called before `table` goes.
    pub(crate) fn forget(&self, table: &T) {
        let table = ptr::from_ref(table).cast_mut();
        let none = ptr::null_mut();
        let _ = self
            .0
            .compare_exchange(table, none, Ordering::Release, Ordering::Relaxed);
    }

    /// The table, if `this` leads to it.
    pub(crate) fn at<P>(&self, this: *const P) -> Option<&T> {
        self.get().filter(|table| ptr::addr_eq(*table, this))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or a table that is there until `forget`; who goes on with it then is a loader that has returned.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_table_itself_is_found() {
        let (table, copy) = ([1_u64, 2], [1_u64, 2]);
        let offered = Offered::none();
        assert!(offered.at(ptr::null::<u64>()).is_none());
        offered.set(&table);
        assert_eq!(offered.at(table.as_ptr()), Some(&table));
        assert!(offered.at(copy.as_ptr()).is_none());
        assert!(offered.at(ptr::null::<u64>()).is_none());
        offered.forget(&copy);
        assert!(offered.get().is_some());
        offered.forget(&table);
        assert!(offered.get().is_none());
    }
}
