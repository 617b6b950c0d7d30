//! Files for tests.

use alloc::vec;
use alloc::vec::Vec;

/// The headers of a PE image with this `Machine` and `Subsystem`.
pub fn pe_image(machine: u16, subsystem: u16) -> Vec<u8> {
    let mut bytes = vec![0; 0x400];
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x3c] = 0x80;
    bytes[0x80..0x84].copy_from_slice(b"PE\0\0");
    bytes[0x84..0x86].copy_from_slice(&machine.to_le_bytes());
    bytes[0x80 + 92..0x80 + 94].copy_from_slice(&subsystem.to_le_bytes());
    bytes
}
