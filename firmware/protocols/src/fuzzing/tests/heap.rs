//! How much of the heap a thread has.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

std::thread_local! {
    static USED: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    // Threads that end have no counter any more.
    let _ = USED.try_with(|used| used.set(used.get() + bytes));
}

// SAFETY: the system's own allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's word.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that this thread has allocated and not freed.
pub(super) fn used() -> isize {
    USED.with(Cell::get)
}
