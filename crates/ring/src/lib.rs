//! Queues between processors. Each end belongs to one processor; nothing is locked and nothing waits.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod spsc;

pub use spsc::{Receiver, Sender, channel};
