//! What clients send to our DHCP and TFTP servers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_server::fuzzing::fuzz_server_packets(data));
