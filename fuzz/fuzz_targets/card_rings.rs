//! The card before a guest that writes to its memory whatever the input says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_card::testing::fuzz_card_rings(data));
