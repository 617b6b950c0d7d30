//! A name server's answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_fetch::dns::fuzz_dns(data));
