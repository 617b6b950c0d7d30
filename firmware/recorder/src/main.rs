//! recorder.efi. The program is the library beside this file, which also builds on the host.
#![cfg_attr(target_os = "uefi", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "uefi")]
wireboot_platform::driver_entry!(recorder::main);

#[cfg(not(target_os = "uefi"))]
fn main() {
    eprintln!("recorder.efi is a UEFI driver: build it with --target x86_64-unknown-uefi");
}
