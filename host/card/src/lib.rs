//! A programmable network card for virtual machines: a process to which QEMU, or another monitor, attaches a guest by vhost-user.
//!
//! ```text
//!   monitor ── socket ──> vhost: messages, session ──commands──> poller ──> wireboot_card::Card ──> wires
//!                         (control thread)                       (a thread of each guest; its memory is this thread's alone)
//! ```
//!
//! The control thread never touches guest memory. It asks the poller to start and to stop a queue; when that has answered a stop, it
//! touches nothing of the queue any more.
#![deny(missing_docs)]

mod card;
pub mod cli;
mod control;
mod data_path;
mod guest;
#[cfg(any(test, feature = "counting"))]
pub mod instructions;
mod listener;
mod memory;
mod outage;
mod pcap;
mod poller;
mod port;
mod probe;
mod program;
mod say;
mod statistics;
mod statistics_file;
mod table;
mod vhost;
mod wires;

#[cfg(any(test, feature = "testing"))]
pub use guest::hostile::scribble_at;
#[cfg(any(test, feature = "fuzzing"))]
pub use program::fuzz::fuzz_card_program;
#[cfg(any(test, feature = "fuzzing"))]
pub use vhost::fuzz::fuzz_card_vhost;
