//! A URL from a DHCP server or a configuration, and a reference resolved against it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_fetch::fuzzing::fuzz_url(data));
