//! wireboot-planted.efi. The program is the library beside this file, which also builds on the host for its tests.
#![cfg_attr(target_os = "uefi", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "uefi")]
wireboot_platform::driver_entry!(planted::main);

#[cfg(not(target_os = "uefi"))]
fn main() {
    eprintln!("wireboot-planted.efi is a UEFI driver: build it with --target x86_64-unknown-uefi");
}
