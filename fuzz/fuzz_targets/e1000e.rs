//! The driver for Intel's 82574 against a chip that the input makes lie.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_nic::model::fuzz_e1000e(data));
