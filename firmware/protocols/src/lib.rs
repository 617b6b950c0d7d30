//! The EFI protocols by which boot loaders use wireboot's network: tables, pointer checks and handles. What calls mean is
//! `wireboot_protocols`'.
//!
//! ```text
//! handle MAC             device path, EFI_SIMPLE_NETWORK_PROTOCOL, EFI_HTTP_SERVICE_BINDING_PROTOCOL, EFI_IP4_CONFIG2_PROTOCOL,
//!                        EFI_IP6_CONFIG_PROTOCOL
//! handle MAC/IPv4 (IPv6) device path, EFI_LOAD_FILE_PROTOCOL, EFI_PXE_BASE_CODE_PROTOCOL, EFI_SIMPLE_NETWORK_PROTOCOL
//! or, where the loader came by HTTP,
//!        MAC/IPv4        device path, EFI_LOAD_FILE_PROTOCOL
//!        MAC/IPv4/Uri    device path, EFI_LOAD_FILE_PROTOCOL
//! handle of each child   EFI_HTTP_PROTOCOL
//! ```
#![cfg_attr(not(any(test, feature = "fuzzing")), no_std)]
#![deny(missing_docs)]

extern crate alloc;

mod base_code;
mod binding;
mod caller;
mod child;
mod failure;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(clippy::panic, reason = "a test kit")]
pub mod fuzzing;
mod guard;
mod handle;
mod http;
mod http_children;
mod ip_config;
mod load_file;
mod offered;
mod replaced;
mod resident;
mod service_binding;
mod shared;
mod signal;
mod simple_network;
mod status;
mod tpl;

pub use base_code::Packets;
pub use caller::Buffer;
pub use failure::Failure;
pub use resident::Resident;
pub use shared::{Interface, Network, Station};
