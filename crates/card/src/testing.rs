//! A guest made of software, wires for tests, and the bodies of the fuzz targets.

mod chunks;
mod fuzz;
mod guest;
mod memory;
pub mod packets;
mod wires;

pub use chunks::{chunk_of, units_of};
pub use fuzz::{
    fuzz_card_chunks, fuzz_card_fragments, fuzz_card_headers, fuzz_card_placement, fuzz_card_rings,
};
pub use guest::{Guest, GuestRing};
pub use memory::VecMemory;
pub use wires::{Loopback, Script};
