//! IPv6 packets of any kind, to a station on a link: neighbour discovery, MLD, ICMPv6.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_net::ipv6_fuzzing::fuzz_nd(data));
