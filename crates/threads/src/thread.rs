//! One thread.
//!
//! The value goes to the AP (application processor) and the result comes back to the BSP (bootstrap processor) through one slot, which
//! belongs to whoever the state says:
//!
//! ```text
//!   STARTING --(the processor comes)--> RUNNING --(body returns)--> FINISHED
//!       |            the thread's           the thread's             the joiner's
//!       +------(the starter gives up)----> RECLAIMED
//!                                          the starter's
//! ```

use alloc::sync::Arc;
use core::ffi::c_void;

#[cfg(not(loom))]
use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};
#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

const STARTING: u8 = 0;
const RUNNING: u8 = 1;
const FINISHED: u8 = 2;
const RECLAIMED: u8 = 3;

/// What a processor is made to call, with the C calling convention of the target.
pub type Entry = extern "C" fn(*mut c_void);

/// A processor that has nothing to do.
pub trait Processor {
    /// Why it cannot be had.
    type Error;

    /// Makes the processor call `entry(argument)` once, soon, and returns without waiting for it. That call sees what was
    /// written before this one.
    ///
    /// # Errors
    /// When it will not be called: then and later.
    ///
    /// # Safety
    /// `entry` must be sound to call with `argument`, once, from any processor, at any later time.
    unsafe fn start(&mut self, entry: Entry, argument: *mut c_void) -> Result<(), Self::Error>;
}

/// What a thread and whoever started it share: state, requests, and the slot for value and result.
struct ThreadControlBlock<V, T> {
    state: AtomicU8,
    stop: AtomicBool,
    beats: AtomicU64,
    slot: UnsafeCell<Slot<V, T>>,
    body: fn(V, &Context<'_>) -> T,
}

enum Slot<V, T> {
    Value(V),
    Result(T),
    Empty,
}

// SAFETY: the slot is touched by one end at a time (the module's text), and what is in it may change processor.
unsafe impl<V: Send, T: Send> Send for ThreadControlBlock<V, T> {}
// SAFETY: as above; all else in it is atomic or never changes.
unsafe impl<V: Send, T: Send> Sync for ThreadControlBlock<V, T> {}

impl<V, T> ThreadControlBlock<V, T> {
    /// Takes what is in the slot.
    ///
    /// # Safety
    /// The slot must be the caller's, by the state.
    unsafe fn take(&self) -> Slot<V, T> {
        // SAFETY: the caller's promise.
        access(&self.slot, |slot| unsafe { slot.replace(Slot::Empty) })
    }

    /// True when the state was `STARTING`, and is `state` now.
    fn leave_starting(&self, state: u8) -> bool {
        // Relaxed: the value was put there before the processor was started, and the loser only looks at the state.
        self.state
            .compare_exchange(STARTING, state, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(not(loom))]
fn access<S, R>(slot: &UnsafeCell<S>, f: impl FnOnce(*mut S) -> R) -> R {
    f(slot.get())
}

#[cfg(loom)]
fn access<S, R>(slot: &UnsafeCell<S>, f: impl FnOnce(*mut S) -> R) -> R {
    slot.with_mut(f)
}

/// The thread's view of itself.
pub struct Context<'a> {
    stop: &'a AtomicBool,
    beats: &'a AtomicU64,
}

impl Context<'_> {
    /// True once [`Thread::stop`] was called: the body is to return.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Tells that the thread is alive: to be called each turn.
    pub fn beat(&self) {
        // The thread alone writes, so this is no read-modify-write.
        let beats = self.beats.load(Ordering::Relaxed);
        self.beats.store(beats.wrapping_add(1), Ordering::Relaxed);
    }
}

/// A thread, for whoever started it. Dropping it leaves the thread alone: what it returns is dropped by whichever end is last.
pub struct Thread<V, T>(Arc<ThreadControlBlock<V, T>>);

/// No thread was started: what was to be its value, and why.
#[derive(Debug)]
pub struct Refused<V, E> {
    /// What [`spawn`] was given for the thread, handed back.
    pub value: V,
    /// The processor's reason.
    pub error: E,
}

/// Calls `body(value, context)` on `processor`.
///
/// # Errors
/// [`Refused`], with the value, when the processor cannot be had.
pub fn spawn<P, V, T>(
    processor: &mut P,
    value: V,
    body: fn(V, &Context<'_>) -> T,
) -> Result<Thread<V, T>, Refused<V, P::Error>>
where
    P: Processor,
    V: Send + 'static,
    T: Send + 'static,
{
    let shared = Arc::new(ThreadControlBlock {
        state: AtomicU8::new(STARTING),
        stop: AtomicBool::new(false),
        beats: AtomicU64::new(0),
        slot: UnsafeCell::new(Slot::Value(value)),
        body,
    });
    let argument = Arc::into_raw(shared.clone());
    // SAFETY: `enter` takes over the reference that `argument` is, once; value and result may change processor.
    let started = unsafe { processor.start(enter::<V, T>, argument.cast_mut().cast()) };
    match started {
        Ok(()) => Ok(Thread(shared)),
        Err(error) => {
            // SAFETY: it was not called and will not be (the trait's contract), so the reference and the slot are still ours.
            let slot = unsafe {
                drop(Arc::from_raw(argument));
                shared.take()
            };
            match slot {
                Slot::Value(value) => Err(Refused { value, error }),
                // Put there above.
                Slot::Result(_) | Slot::Empty => unreachable!(),
            }
        }
    }
}

extern "C" fn enter<V, T>(argument: *mut c_void) {
    // SAFETY: `spawn` made the argument of such a reference, for this one call.
    let shared = unsafe { Arc::from_raw(argument.cast::<ThreadControlBlock<V, T>>().cast_const()) };
    if !shared.leave_starting(RUNNING) {
        return;
    }
    // SAFETY: in RUNNING the slot is the thread's.
    if let Slot::Value(value) = unsafe { shared.take() } {
        let context = Context {
            stop: &shared.stop,
            beats: &shared.beats,
        };
        let result = (shared.body)(value, &context);
        access(&shared.slot, |slot| {
            // SAFETY: it still is.
            unsafe { *slot = Slot::Result(result) }
        });
    }
    // Release: the result is in the slot before the joiner looks for it.
    shared.state.store(FINISHED, Ordering::Release);
}

impl<V, T> Thread<V, T> {
    /// True once the processor has come and begun.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) != STARTING
    }

    /// True once the body has returned.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) == FINISHED
    }

    /// Asks the body to return.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// How often the thread has told that it is alive. One whose number stands still hangs.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.0.beats.load(Ordering::Relaxed)
    }

    /// What the body returned, or the thread when it has not returned yet.
    ///
    /// # Errors
    /// The thread itself, for another try.
    pub fn join(self) -> Result<T, Self> {
        // Acquire: the result was put there before.
        if self.0.state.load(Ordering::Acquire) != FINISHED {
            return Err(self);
        }
        // SAFETY: in FINISHED the slot is the joiner's, of whom there is one: this takes the thread.
        match unsafe { self.0.take() } {
            Slot::Result(result) => Ok(result),
            Slot::Value(_) | Slot::Empty => Err(self),
        }
    }

    /// Takes back the value of a thread whose processor has not come, which will then do nothing if it comes.
    ///
    /// # Errors
    /// The thread, when its processor came after all.
    pub fn reclaim(self) -> Result<V, Self> {
        if !self.0.leave_starting(RECLAIMED) {
            return Err(self);
        }
        // SAFETY: in RECLAIMED the slot is the starter's, of whom there is one.
        match unsafe { self.0.take() } {
            Slot::Value(value) => Ok(value),
            Slot::Result(_) | Slot::Empty => Err(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    extern crate std;
    #[cfg(not(loom))]
    use core::sync::atomic::fence;
    #[cfg(loom)]
    use loom::{sync::atomic::fence, thread};
    #[cfg(not(loom))]
    use std::thread;

    /// A processor that comes at once, or never.
    struct Host {
        comes: bool,
        late: Option<(Entry, usize)>,
    }

    #[derive(Debug, PartialEq)]
    struct NoSuchProcessor;

    impl Processor for Host {
        type Error = NoSuchProcessor;
        unsafe fn start(
            &mut self,
            entry: Entry,
            argument: *mut c_void,
        ) -> Result<(), NoSuchProcessor> {
            let argument = argument as usize;
            if self.comes {
                thread::spawn(move || entry(argument as *mut c_void));
            } else {
                self.late = Some((entry, argument));
            }
            Ok(())
        }
    }

    struct Absent;

    impl Processor for Absent {
        type Error = NoSuchProcessor;
        unsafe fn start(&mut self, _: Entry, _: *mut c_void) -> Result<(), NoSuchProcessor> {
            Err(NoSuchProcessor)
        }
    }

    fn host(comes: bool) -> Host {
        Host { comes, late: None }
    }

    fn joined<V, T>(mut thread: Thread<V, T>) -> T {
        loop {
            match thread.join() {
                Ok(result) => return result,
                Err(back) => thread = back,
            }
            thread::yield_now();
        }
    }

    #[cfg(not(loom))]
    fn model(test: impl Fn() + Sync + Send + 'static) {
        test();
    }
    #[cfg(loom)]
    fn model(test: impl Fn() + Sync + Send + 'static) {
        loom::model(test);
    }

    #[test]
    fn the_value_goes_and_the_result_comes_back() {
        model(|| {
            let value = Arc::new(7);
            let thread = spawn(&mut host(true), value.clone(), |value, context| {
                context.beat();
                *value + 1
            });
            let Ok(thread) = thread else {
                panic!("refused");
            };
            assert_eq!(joined(thread), 8);
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }

    #[test]
    fn each_beat_is_counted() {
        model(|| {
            let Ok(thread) = spawn(&mut host(true), (), |(), context| {
                context.beat();
                context.beat();
            }) else {
                panic!("refused");
            };
            while !thread.is_finished() {
                assert!(thread.beats() <= 2);
                thread::yield_now();
            }
            // The beats came before the end that was seen.
            fence(Ordering::Acquire);
            assert!(thread.is_started());
            assert_eq!(thread.beats(), 2);
            joined(thread);
        });
    }

    #[test]
    fn a_thread_runs_until_it_is_told_to_stop() {
        model(|| {
            let Ok(thread) = spawn(&mut host(true), (), |(), context| {
                while !context.stopping() {
                    context.beat();
                    thread::yield_now();
                }
            }) else {
                panic!("refused");
            };
            thread.stop();
            joined(thread);
        });
    }

    #[test]
    fn nobody_is_told_to_stop_unasked() {
        model(|| {
            let Ok(thread) = spawn(&mut host(true), (), |(), context| context.stopping()) else {
                panic!("refused");
            };
            assert!(!joined(thread));
        });
    }

    /// The starter gives up when all is over: the result is still there.
    #[test]
    fn a_thread_that_has_run_is_not_reclaimed() {
        model(|| {
            let Ok(thread) = spawn(&mut host(true), 7, |value: i32, _| value) else {
                panic!("refused");
            };
            while !thread.is_finished() {
                thread::yield_now();
            }
            let Err(thread) = thread.reclaim() else {
                panic!("the value was used");
            };
            assert_eq!(thread.join().ok(), Some(7));
        });
    }

    /// The starter gives up while the processor comes: exactly one of them has the value.
    #[test]
    fn a_value_is_reclaimed_or_used_never_both() {
        model(|| {
            let value = Arc::new(());
            let Ok(thread) = spawn(&mut host(true), value.clone(), |value, _| drop(value)) else {
                panic!("refused");
            };
            match thread.reclaim() {
                Ok(value) => assert_eq!(Arc::strong_count(&value), 2),
                Err(thread) => joined(thread),
            }
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }

    #[test]
    fn a_processor_that_comes_too_late_does_nothing() {
        model(|| {
            let mut processor = host(false);
            let Ok(thread) = spawn(&mut processor, 5, |value: i32, _| value) else {
                panic!("refused");
            };
            assert!(!thread.is_started() && !thread.is_finished());
            let Err(thread) = thread.join() else {
                panic!("nobody ran it");
            };
            assert_eq!(thread.reclaim().ok(), Some(5));
            let (entry, argument) = processor.late.unwrap();
            entry(argument as *mut c_void);
        });
    }

    #[test]
    fn a_processor_that_cannot_be_had_gives_the_value_back() {
        model(|| {
            let Err(refused) = spawn(&mut Absent, 5, |value: i32, _| value) else {
                panic!("there is none");
            };
            assert_eq!((refused.value, refused.error), (5, NoSuchProcessor));
        });
    }
}
