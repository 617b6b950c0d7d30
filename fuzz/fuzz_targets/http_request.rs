//! What clients send to our HTTP server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_server::fuzzing::fuzz_http_request(data));
