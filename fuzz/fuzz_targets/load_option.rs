//! Boot options of the firmware's variables, and their device paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_wire::fuzzing::fuzz_load_option(data));
