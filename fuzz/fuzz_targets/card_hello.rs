//! What a driver and its card say to each other: the question at a card, the answer at a driver.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    wireboot_wire::fuzzing::fuzz_hello(data);
    wireboot_wire::fuzzing::fuzz_placement(data);
});
