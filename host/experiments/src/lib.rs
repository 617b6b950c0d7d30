//! What wireboot is measured with, in the machines and networks of [`wireboot_lab`]: how fast files come, beside other stacks
//! ([`mod@bench`]), rung by rung ([`ladder`]) and to boot loaders ([`loaders`]), when the firmware reaches which point of a boot
//! ([`checkpoints`]), how many machines a server serves ([`load`]), how our card does beside QEMU's tap ([`nic`]), what guests do
//! about a card that does wrong ([`nic_faults`]), and what a thousand disturbed
//! boots bring to light ([`soak`]), what TCP and UDP bring of what the card can do ([`throughput`]), and what a packet and a byte cost
//! each driver ([`ttcp`]).

#![forbid(unsafe_code)]

pub mod bench;
pub mod checkpoints;
mod grub;
mod iperf3;
pub mod ladder;
pub mod load;
pub mod loaders;
pub mod nic;
pub mod nic_faults;
pub mod protocol;
pub mod soak;
pub mod throughput;
pub mod ttcp;
