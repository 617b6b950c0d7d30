//! A guest that asks for whatever payload to be placed, and segments that come meanwhile.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_card::testing::fuzz_card_placement(data));
