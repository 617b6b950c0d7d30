//! Threads before an operating system: a function on a processor of its own, watched by its heartbeat and
//! stopped by a flag.
//!
//! ```text
//!   BSP (bootstrap processor)               AP (application processor)
//!   spawn(processor, value, body)  ------>  body(value, &context)
//!   Thread::stop                   --flag-> Context::stopping
//!   Thread::beats                  <-count- Context::beat                (Watch: for how long it has not)
//!   Thread::join                   <-------  what body returns
//!   Thread::reclaim                         (for a processor that never came)
//! ```
//!
//! There is no scheduler: a thread has its processor until it returns. Nothing here waits or takes a lock, and nothing knows
//! of UEFI: [`Processor`] is what a platform implements, by EFI_MP_SERVICES_PROTOCOL for one. Queues between threads
//! are those of `wireboot-ring`.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod thread;
mod watch;

pub use thread::{Context, Entry, Processor, Refused, Thread, spawn};
pub use watch::Watch;
