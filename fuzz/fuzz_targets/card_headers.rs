//! Units and frames with whatever headers, before a card that cuts and joins.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_card::testing::fuzz_card_headers(data));
