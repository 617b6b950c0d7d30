//! Memory whose owners were dropped on APs (application processors), which may not call the firmware. The BSP (bootstrap processor) drops
//! them once more, and that gives the memory back.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::boot::PAGE_SIZE as PAGE;

pub(crate) static DROPPED: Dropped = Dropped(AtomicPtr::new(ptr::null_mut()));

/// Gives back to the firmware what APs have dropped. For the BSP.
pub fn collect() {
    DROPPED.collect();
}

/// The last that was dropped. The owners wait in the memory's own first bytes.
pub(crate) struct Dropped(AtomicPtr<Waiting>);

/// The list knows each without its owner's type.
#[repr(C)]
struct Waiting<T = ()> {
    next: *mut Waiting,
    /// Takes the owner out of a `Waiting<T>` and drops it.
    drop: unsafe fn(NonNull<Waiting>),
    owner: T,
}

impl Dropped {
    /// Keeps the owner of `memory` for the BSP.
    ///
    /// # Safety
    /// `memory` is at least a page, aligned to one, and `owner`'s alone.
    pub(crate) unsafe fn keep<T: Send + 'static>(&self, memory: NonNull<u8>, owner: T) {
        const { assert!(size_of::<Waiting<T>>() <= PAGE && align_of::<Waiting<T>>() <= PAGE) };
        let waiting = memory.cast::<Waiting<T>>();
        let (next, drop) = (ptr::null_mut(), drop_owner::<T> as _);
        // SAFETY: there is room (see above), and nobody else refers to it.
        unsafe { waiting.write(Waiting { next, drop, owner }) };
        let waiting = waiting.cast::<Waiting>().as_ptr();
        let _ = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, |first| {
                // SAFETY: as above; the list does not have it yet.
                unsafe { (*waiting).next = first };
                Some(waiting)
            });
    }

    /// Drops all of them.
    fn collect(&self) {
        let mut next = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        while let Some(waiting) = NonNull::new(next) {
            // SAFETY: `keep` wrote it to memory that nobody else refers to, and the list was taken whole.
            let head = unsafe { waiting.read() };
            next = head.next;
            // SAFETY: as above, and nothing refers to it after this.
            unsafe { (head.drop)(waiting) };
        }
    }
}

/// # Safety
/// A `Waiting<T>`, which is not used again.
unsafe fn drop_owner<T>(waiting: NonNull<Waiting>) {
    // SAFETY: the caller's promise. It is read first, as it lies in the memory that its owner gives back.
    drop(unsafe { waiting.cast::<Waiting<T>>().read() }.owner);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::sync::atomic::AtomicUsize;

    /// A page, given back once.
    #[repr(align(4096))]
    struct Page([u8; PAGE]);

    static SUM: AtomicUsize = AtomicUsize::new(0);

    struct Owner(usize);

    impl Drop for Owner {
        fn drop(&mut self) {
            SUM.fetch_add(self.0, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_processors_drop_is_given_back_once_and_later() {
        let mut pages: [Box<Page>; 8] = core::array::from_fn(|_| Box::new(Page([0xa5; PAGE])));
        let dropped = Dropped(AtomicPtr::default());
        std::thread::scope(|scope| {
            for (page, number) in pages.iter_mut().zip(1..) {
                let (dropped, owner) = (&dropped, Owner(1 << number));
                scope.spawn(move || {
                    let memory = NonNull::from(&mut page.0).cast();
                    // SAFETY: a page that nobody else uses as long as there is the list.
                    unsafe { dropped.keep(memory, owner) };
                });
            }
        });
        assert_eq!(SUM.load(Ordering::Relaxed), 0);
        for _ in 0..2 {
            dropped.collect();
            assert_eq!(SUM.load(Ordering::Relaxed), 0x1fe);
        }
    }
}
