//! What a server of iperf3 says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_iperf::fuzzing::fuzz_session(data));
