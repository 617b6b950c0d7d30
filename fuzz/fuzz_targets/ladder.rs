//! What a machine that measures itself and the sender say to each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_wire::fuzzing::fuzz_ladder(data));
