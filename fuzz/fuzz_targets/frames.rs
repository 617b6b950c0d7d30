//! Frames of any kind, to an engine that downloads.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_net::fuzzing::fuzz_frames(data));
