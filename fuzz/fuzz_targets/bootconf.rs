//! A boot configuration, as a server or a PE section may hold it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_wire::fuzzing::fuzz_bootconf(data));
