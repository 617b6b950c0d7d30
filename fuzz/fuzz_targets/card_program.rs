//! A program for the card, as whatever file the input is: read, verified and run on a frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_host_card::fuzz_card_program(data));
