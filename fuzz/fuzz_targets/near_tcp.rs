//! Segments of a boot loader's network stack, to the near end of its connections.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_protocols::fuzzing::fuzz_near_tcp(data));
