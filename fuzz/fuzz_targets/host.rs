//! Frames of a network, to the host that makes the calls of a boot loader.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_protocols::fuzzing::fuzz_host(data));
