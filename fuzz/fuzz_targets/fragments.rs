//! Fragments of both IP versions.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_net::ipv6_fuzzing::fuzz_fragments(data));
