//! Fragments of datagrams in whatever order, before a card that puts them together.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_card::testing::fuzz_card_fragments(data));
