//! Rust's heap: one arena for all processors. An AP (application processor) may die in the middle of an allocation; the BSP (bootstrap
//! processor) then goes on with a second one, and without memory where there is none.

use crate::bsp::on_bsp;
use core::alloc::{GlobalAlloc, Layout};
use core::hint;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use spinning_top::RawSpinlock;
use talc::base::Talc;
use talc::source::Manual;
use talc::{DefaultBinning, TalcLock, lock_api::MutexGuard};

type Arena = TalcLock<RawSpinlock, Manual>;
type Locked<'a> = MutexGuard<'a, RawSpinlock, Talc<Manual, DefaultBinning>>;

/// Looks at a lock that is held, until its holder is taken for dead: a second or so, where an allocation takes microseconds. A holder that
/// lives all the same does no harm: it ends its work in an arena that nobody uses any more.
const PATIENCE: u64 = if cfg!(test) { 1000 } else { 50_000_000 };

/// The heap. `spare` gives memory for the second arena, its start and length, where it is called on a processor that may get some.
pub(crate) struct Heap {
    arenas: [Arena; 2],
    /// Index of the arena in use.
    current: AtomicUsize,
    /// Addresses of the second arena.
    second: [AtomicUsize; 2],
    spare: fn() -> Option<(*mut u8, usize)>,
}

impl Heap {
    pub(crate) const fn new(spare: fn() -> Option<(*mut u8, usize)>) -> Self {
        Self {
            arenas: [TalcLock::new(Manual), TalcLock::new(Manual)],
            current: AtomicUsize::new(0),
            second: [AtomicUsize::new(0), AtomicUsize::new(0)],
            spare,
        }
    }

    /// Makes memory the first arena.
    ///
    /// # Safety
    /// It is the heap's alone as long as anything allocates.
    pub(crate) unsafe fn claim(&self, start: *mut u8, bytes: usize) {
        // SAFETY: by the caller's word.
        unsafe { self.arenas[0].lock().claim(start, bytes) };
    }

    /// The second arena's memory, if it was needed.
    pub(crate) fn second(&self) -> Option<(*mut u8, usize)> {
        let [start, end] = self.second.each_ref().map(|at| at.load(Ordering::Acquire));
        (start > 0).then(|| (ptr::with_exposed_provenance_mut(start), end - start))
    }

    /// The arena in use, with its index. None on the BSP when the holder of the last arena is dead; others wait for the BSP
    /// to end them.
    fn lock(&self) -> Option<(usize, Locked<'_>)> {
        let mut looks = 0;
        loop {
            let index = self.current.load(Ordering::Acquire);
            let [first, second] = &self.arenas;
            let arena = if index == 0 { first } else { second };
            if let Some(locked) = arena.try_lock()
                && self.current.load(Ordering::Acquire) == index
            {
                return Some((index, locked));
            }
            looks += 1;
            if looks == PATIENCE {
                looks = 0;
                let switched = index == 0 && self.switch_to_second();
                if !switched && on_bsp() {
                    return None;
                }
            }
            hint::spin_loop();
        }
    }

    /// Allocates from the second arena from now on, if there is memory for it. What lies in the first stays as it is.
    #[cold]
    fn switch_to_second(&self) -> bool {
        let Some((start, bytes)) = (self.spare)() else {
            return false;
        };
        let at = start.expose_provenance();
        self.second[1].store(at + bytes, Ordering::Release);
        self.second[0].store(at, Ordering::Release);
        // SAFETY: the memory was given for this, and nobody has heard of it yet.
        unsafe { self.arenas[1].lock().claim(start, bytes) };
        self.current.store(1, Ordering::Release);
        true
    }

    /// Locks the arena in use for good.
    #[cfg(all(feature = "faults", target_os = "uefi"))]
    pub(crate) fn hold(&self) {
        core::mem::forget(self.lock());
    }

    /// Index of the arena that a block is of.
    fn of(&self, block: *mut u8) -> usize {
        let [start, end] = self.second.each_ref().map(|at| at.load(Ordering::Acquire));
        usize::from((start..end).contains(&block.addr()))
    }
}

// SAFETY: each block comes from an arena that is locked then, and goes back to the same or to none; a block of an arena that was left is
// valid and nobody else's, as its arena gives none to anybody.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((_, mut arena)) = self.lock() else {
            return ptr::null_mut();
        };
        // SAFETY: the layout is not empty, by the caller's word.
        let block = unsafe { arena.allocate(layout) };
        block.map_or(ptr::null_mut(), |block| block.as_ptr())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some((index, mut arena)) = self.lock()
            && index == self.of(block)
        {
            // SAFETY: the block is of this arena.
            unsafe { arena.deallocate(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some((index, mut arena)) = self.lock() else {
            return ptr::null_mut();
        };
        // SAFETY: the block is of this arena.
        if index == self.of(block) && unsafe { arena.try_realloc_in_place(block, layout, size) } {
            return block;
        }
        drop(arena);
        // SAFETY: the size is not 0 and fits, rounded up, by the caller's word.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both have so many bytes; the old block is given back once, after that.
            unsafe {
                ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;

    fn memory() -> Option<(*mut u8, usize)> {
        let memory = Box::leak(vec![0u8; 1 << 20].into_boxed_slice());
        Some((memory.as_mut_ptr(), memory.len()))
    }

    fn heap(spare: fn() -> Option<(*mut u8, usize)>) -> Heap {
        let heap = Heap::new(spare);
        let (start, bytes) = memory().unwrap();
        // SAFETY: the memory is leaked.
        unsafe { heap.claim(start, bytes) };
        heap
    }

    #[test]
    fn a_holder_that_dies_does_not_stop_the_others() {
        let heap = heap(memory);
        let layout = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: each block is used as long as it is, and given back once with its layout.
        unsafe {
            let [before, moved, kept] = [(); 3].map(|()| heap.alloc(layout));
            for (block, value) in [(before, 1), (moved, 2), (kept, 3)] {
                block.write_bytes(value, 100);
            }
            core::mem::forget(heap.arenas[0].lock());
            let after = heap.alloc(layout);
            assert_eq!(
                [before, moved, kept, after].map(|block| heap.of(block)),
                [0, 0, 0, 1]
            );
            after.write_bytes(4, 100);
            heap.dealloc(before, layout);
            let moved = heap.realloc(moved, layout, 5000);
            assert_eq!(heap.of(moved), 1);
            assert!((0..100).all(|at| moved.add(at).read() == 2));
            assert!((0..100).all(|at| kept.add(at).read() == 3 && after.add(at).read() == 4));
            heap.dealloc(moved, Layout::from_size_align(5000, 8).unwrap());
            heap.dealloc(after, layout);
            assert_eq!(
                heap.alloc(layout),
                after,
                "what was given back is there again"
            );
            assert_eq!(heap.second().map(|(_, bytes)| bytes), Some(1 << 20));
        }
    }

    #[test]
    fn every_wait_for_a_dead_holder_ends() {
        let layout = Layout::from_size_align(100, 8).unwrap();
        let none: fn() -> Option<(*mut u8, usize)> = || None;
        for (spare, arenas) in [(none, 1), (memory, 2)] {
            let heap = heap(spare);
            for arena in &heap.arenas[..arenas] {
                // SAFETY: the layout is not empty.
                assert!(!unsafe { heap.alloc(layout) }.is_null());
                core::mem::forget(arena.lock());
            }
            // SAFETY: as above.
            assert!(unsafe { heap.alloc(layout) }.is_null());
        }
    }

    #[test]
    fn blocks_grow_and_go_back() {
        let heap = heap(|| None);
        let layout = Layout::from_size_align(1000, 16).unwrap();
        // SAFETY: each block is used as long as it is, and given back once with its layout.
        unsafe {
            for _ in 0..10_000 {
                let block = heap.alloc(layout);
                block.write_bytes(7, 1000);
                let other = heap.alloc(layout);
                let grown = heap.realloc(block, layout, 300_000);
                assert!((0..1000).all(|at| grown.add(at).read() == 7));
                heap.dealloc(grown, Layout::from_size_align(300_000, 16).unwrap());
                heap.dealloc(other, layout);
            }
        }
        assert!(heap.second().is_none());
    }
}
