//! A DHCPv6 message, as any neighbour may send it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_wire::fuzzing::fuzz_dhcpv6(data));
