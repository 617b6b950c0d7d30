//! What processors share: queues, and memory that one fills and another reads. Each end belongs to one processor; nothing is locked
//! and nothing waits.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod prefix;
mod spsc;

pub use prefix::{Block, HeapBlock, PrefixPart, PrefixReader, PrefixWriter, prefix};
pub use spsc::{Receiver, Sender, channel};
