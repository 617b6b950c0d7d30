//! PXE vendor options (option 43) in a DHCP message.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_wire::fuzzing::fuzz_pxe(data));
