//! The boot server in the card before a machine that sends whatever the input says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_server::fuzzing::fuzz_card_serve(data));
