//! Orders for payload to be placed, of a guest that orders what it likes, and segments that come meanwhile.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_card::testing::fuzz_card_placement(data));
