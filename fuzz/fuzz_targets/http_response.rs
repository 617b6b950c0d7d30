//! A web server's answer: head and body.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_fetch::fuzzing::fuzz_http_response(data));
