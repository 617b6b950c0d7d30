//! wireboot-callers.efi. The program is the library beside this file, which also builds on the host for its tests.
#![cfg_attr(target_os = "uefi", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "uefi")]
wireboot_platform::entry!(callers::main, callers::HEAP);

#[cfg(not(target_os = "uefi"))]
fn main() {
    eprintln!("wireboot-callers.efi is a UEFI program: build it with --target x86_64-unknown-uefi");
}
