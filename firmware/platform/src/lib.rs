//! UEFI behind the traits: what wireboot needs of the machine, and nothing that knows of networks.
//!
//! A program over this crate is a safe function given to [`entry!`]. All `unsafe` code of the firmware is
//! here.
#![cfg_attr(not(test), no_std)]
#![deny(missing_docs)]

extern crate alloc;

pub mod acpi;
pub mod boot_points;
pub mod boot_report;
mod bsp;
pub mod cache;
mod callbacks;
pub mod claim;
mod clock;
pub mod console;
mod cpu_arch;
pub mod debug_build;
pub mod device_path;
mod dropped;
pub mod duid;
mod event;
pub mod exit;
#[cfg(feature = "faults")]
pub mod faults;
pub mod firmware_net;
mod firmware_nic;
pub mod frames;
pub mod free_memory;
pub mod gcd;
#[cfg(any(target_os = "uefi", test))]
mod heap;
pub mod idle;
pub mod image;
pub mod images;
pub mod initrd;
mod known_memory;
mod link_speed;
pub mod load_file;
pub mod loader_times;
pub mod memory;
pub mod memory_type;
mod page_tables;
#[cfg(target_os = "uefi")]
mod panic;
pub mod pci;
pub mod pcie;
mod place;
pub mod processors;
pub mod profiler;
pub mod pxe;
pub mod random;
pub mod raw;
pub mod region;
pub mod services;
pub mod shim;
pub mod smbios;
pub mod snp;
mod start;
pub mod started;
pub mod stolen;
pub mod tick;
pub mod trace;
pub mod undi;
mod undi_commands;
pub mod variable;
pub mod volume;
pub mod watchdog;

pub use callbacks::Callback;
pub use clock::Clock;
pub use start::{reset, start, start_driver};
pub use uefi::{Error, Handle, Status};
