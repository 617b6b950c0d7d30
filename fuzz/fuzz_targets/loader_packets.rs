//! Packets of DHCP servers, as boot loaders are shown them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_protocols::fuzzing::fuzz_packet(data));
