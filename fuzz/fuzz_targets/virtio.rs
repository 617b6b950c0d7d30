//! The virtio-net driver against a device that the input makes lie.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_nic::model::fuzz_virtio(data));
