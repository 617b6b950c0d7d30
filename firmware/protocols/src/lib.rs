//! The EFI protocols by which boot loaders use wireboot's network: tables, pointer checks and handles. What calls mean is
//! `wireboot_protocols`'.
//!
//! ```text
//! handle MAC             device path, EFI_SIMPLE_NETWORK_PROTOCOL
//! handle MAC/IPv4 (IPv6) device path, EFI_PXE_BASE_CODE_PROTOCOL, EFI_SIMPLE_NETWORK_PROTOCOL
//! ```
#![cfg_attr(not(test), no_std)]
#![deny(missing_docs)]

extern crate alloc;

mod base_code;
mod caller;
mod failure;
mod guard;
mod handle;
mod resident;
mod shared;
mod simple_network;

pub use base_code::Packets;
pub use caller::Buffer;
pub use failure::Failure;
pub use resident::Resident;
pub use shared::{Network, Station};
