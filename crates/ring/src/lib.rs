//! What processors share: queues, and memory that one fills and another reads. Each end belongs to one processor; nothing is locked
//! and nothing waits.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod mpsc;
mod prefix;
mod spsc;
mod sync;

pub use mpsc::{SharedReceiver, SharedSender, shared_channel};
pub use prefix::{Block, HeapBlock, PrefixPart, PrefixReader, PrefixWriter, prefix};
pub use spsc::{Receiver, Sender, channel};
