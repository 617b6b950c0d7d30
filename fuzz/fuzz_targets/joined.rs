//! Units that a card has joined, cut to frames for a tap.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_net::fuzzing::fuzz_cut(data));
