//! The logic of the EFI protocols by which boot loaders use a network: the states of each, what each call may be given, what it answers.
//!
//! What the calls look like in memory, and pointers, are the firmware side's.
#![no_std]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod base_code;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(clippy::panic, reason = "a test kit")]
pub mod fuzzing;
pub mod http;
pub mod hub;
pub mod ip_config;
pub mod link;
pub mod load_file;
pub mod near_end;
pub mod packet;
mod refusal;
pub mod simple_network;

pub use refusal::Refusal;
