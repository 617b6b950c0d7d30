//! A TFTP packet, as any sender that guesses the port may send it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_wire::fuzzing::fuzz_tftp(data));
