//! Makes the program a driver: an application could not stay in memory.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "uefi") {
        println!("cargo:rustc-link-arg-bin=wireboot-planted=/subsystem:efi_boot_service_driver");
    }
}
