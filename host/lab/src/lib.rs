//! The lab: virtual machines on a network of their own, the servers beside them, and the instruments that watch both.
//!
//! Everything runs in namespaces ([`netns`]): the host's own network is neither used nor changed, and all processes, interfaces and
//! files are gone when the lab's process ends, however it ends.

pub mod accel;
mod aggregation;
pub mod atftpd;
pub mod background;
pub mod boot;
pub mod cache;
pub mod capture;
pub mod chart;
pub mod checkpoints;
pub mod console;
pub mod dpdk;
pub mod embed;
pub mod gdb;
pub mod guest;
pub mod host;
pub mod ip;
pub mod loaders;
pub mod netns;
pub mod network;
pub mod nginx;
pub mod nic;
pub mod packages;
pub mod patience;
pub mod payload;
pub mod progress;
pub mod qemu;
mod qmp;
pub mod remote_server;
pub mod results;
pub mod sender;
pub mod server;
pub mod snapshot;
mod start;
pub mod station;
pub mod statistics;
pub mod tftpd_hpa;
pub mod timeline;
pub mod variables;
mod wire;

pub use wire::{Impairment, open_tap};
