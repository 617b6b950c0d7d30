//! IPv4 packets that may be IGMP queries, to a host that listens to groups.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_net::fuzzing::fuzz_igmp(data));
