//! A capture file, and all that is read out of its packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_capture::fuzzing::fuzz_capture(data));
