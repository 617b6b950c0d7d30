//! A card's control thread before a monitor that sends whatever the input says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_host_card::fuzz_card_vhost(data));
