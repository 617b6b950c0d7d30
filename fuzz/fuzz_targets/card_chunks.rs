//! Several units in one buffer, both ways, between a card and a guest that sends what it likes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_card::testing::fuzz_card_chunks(data));
