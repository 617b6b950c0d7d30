//! A guest made of software, wires for tests, and the bodies of the fuzz targets.

mod fuzz;
mod guest;
mod memory;
pub mod packets;
mod wires;

pub use fuzz::fuzz_card_rings;
pub use guest::{Guest, GuestRing};
pub use memory::VecMemory;
pub use wires::{Loopback, Script};
