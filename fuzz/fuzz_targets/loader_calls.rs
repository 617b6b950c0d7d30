//! Calls of a boot loader, to the tables of the EFI protocols that it uses.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| efi_protocols::fuzzing::fuzz_loader_calls(data));
