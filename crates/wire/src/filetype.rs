//! What a file is, by its first bytes: whether firmware can start it, and what to call it where it cannot.

use crate::pe::{Headers, u16_at};

/// Bytes at a file's start that hold all that is looked at.
pub const LOOKED_AT: usize = 0x8006;

/// `Machine` of PE images for x64 (Microsoft PE/COFF specification).
const X64: u16 = 0x8664;
/// The same for 32-bit x86.
const X86: u16 = 0x014c;
/// `Subsystem` of PE images for EFI: applications, boot service drivers, runtime drivers.
const EFI: core::ops::RangeInclusive<u16> = 10..=12;

/// Whether a file that begins so is an EFI program for x64 machines, a Linux kernel with an EFI stub among them.
pub fn is_efi_program(begin: &[u8]) -> bool {
    let is_ours = |(machine, subsystem)| machine == X64 && EFI.contains(&subsystem);
    pe(begin).is_some_and(is_ours)
}

/// What a file that begins so is, and what to do, where that is known and it is no EFI program for x64 machines. To be read behind "is".
pub fn misfit(begin: &[u8]) -> Option<&'static str> {
    let has = |at: usize, magic: &[u8]| begin.get(at..).is_some_and(|rest| rest.starts_with(magic));
    if has(0x8001, b"CD001") {
        return Some("an ISO 9660 image, no program: serve the kernel and the initrd in it");
    }
    if is_efi_program(begin) {
        return None;
    }
    let magics: [(usize, &[u8], &str); 13] = [
        (0, b"\x1f\x8b", "compressed with gzip: unpack it"),
        (0, b"\xfd7zXZ\0", "compressed with xz: unpack it"),
        (0, b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it"),
        (0, b"BZh", "compressed with bzip2: unpack it"),
        (0, b"07070", "a cpio archive, as initrds are, no program"),
        (
            0,
            b"\x7fELF",
            "an ELF file, as vmlinux is: serve the bzImage (vmlinuz) of the same kernel",
        ),
        (0x38, b"ARM\x64", "a Linux kernel for arm64"),
        (0x38, b"RSC\x05", "a Linux kernel for RISC-V"),
        (0x38, b"\xcd\x23\x82\x81", "a Linux kernel for LoongArch"),
        (0x24, b"\x18\x28\x6f\x01", "a Linux kernel for 32-bit Arm"),
        (0x202, b"HdrS", x86_kernel(begin)),
        (512, b"EFI PART", "a disk image, no program"),
        (
            0,
            b"#!ipxe",
            "a script for iPXE: wireboot reads a wireboot.conf",
        ),
    ];
    if let Some((.., what)) = magics.into_iter().find(|(at, magic, _)| has(*at, magic)) {
        return Some(what);
    }
    if let Some((machine, subsystem)) = pe(begin) {
        return Some(match (machine, EFI.contains(&subsystem)) {
            (_, false) => "a program for Windows, not for EFI",
            (X86, _) => "an EFI program for 32-bit x86",
            (0x01c0..=0x01c4, _) => "an EFI program for 32-bit Arm",
            (0xaa64, _) => "an EFI program for arm64",
            (0x5032 | 0x5064 | 0x5128, _) => "an EFI program for RISC-V",
            (0x6232 | 0x6264, _) => "an EFI program for LoongArch",
            _ => "an EFI program for another machine",
        });
    }
    if is_html(begin) {
        return Some("a web page (HTML): check the URL and the server");
    }
    let boots = has(510, b"\x55\xaa");
    boots.then_some("a disk image or a boot sector, and no EFI program")
}

/// What a kernel is that gets no initrd from us, where it is known to be one: its EFI stub says by its version which ways it knows (Linux,
/// include/linux/pe.h). To be read behind "is".
pub fn takes_no_initrd(begin: &[u8]) -> Option<&'static str> {
    let is_linux = begin
        .get(0x202..)
        .is_some_and(|rest| rest.starts_with(b"HdrS"));
    let version = Headers::new(begin)?.image_version()?;
    (is_linux && version == 0).then_some(
        "a Linux kernel before 5.7, whose EFI stub takes no initrd from wireboot: serve a newer one, or boot it by GRUB",
    )
}

/// What a kernel in the x86 boot protocol is that is no EFI program for x64 (Linux, Documentation/arch/x86/boot.rst).
fn x86_kernel(begin: &[u8]) -> &'static str {
    const KERNEL_64: u16 = 1;
    // `xloadflags` are there from version 2.12 on.
    let version = u16_at(begin, 0x206).unwrap_or(0);
    let flags = u16_at(begin, 0x236).filter(|_| version >= 0x020c);
    match (pe(begin), flags) {
        (Some((X86, _)), _) => "a 32-bit Linux kernel: serve a 64-bit one",
        (_, Some(flags)) if flags & KERNEL_64 == 0 => "a 32-bit Linux kernel: serve a 64-bit one",
        _ => "a Linux kernel without EFI stub: serve one that has it (CONFIG_EFI_STUB)",
    }
}

/// `Machine` and `Subsystem` of a PE image.
fn pe(begin: &[u8]) -> Option<(u16, u16)> {
    let headers = Headers::new(begin)?;
    Some((headers.machine()?, headers.subsystem()?))
}

fn is_html(begin: &[u8]) -> bool {
    let text = begin.trim_ascii_start();
    let starts = |with: &str| {
        let start = text.get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    starts("<!doctype html") || starts("<html")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pe_image as image;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// The same with other bytes at some place.
    fn with(mut bytes: Vec<u8>, at: usize, other: &[u8]) -> Vec<u8> {
        let len = bytes.len().max(at + other.len());
        bytes.resize(len, 0);
        bytes[at..at + other.len()].copy_from_slice(other);
        bytes
    }

    /// The setup header of an x86 kernel.
    fn bz_image(bytes: Vec<u8>, version: u16, flags: u16) -> Vec<u8> {
        let bytes = with(bytes, 0x1fe, b"\x55\xaa");
        let bytes = with(bytes, 0x202, b"HdrS");
        let bytes = with(bytes, 0x206, &version.to_le_bytes());
        with(bytes, 0x236, &flags.to_le_bytes())
    }

    #[track_caller]
    fn is(bytes: &[u8], words: &str) {
        let what = misfit(bytes).expect("nothing known of it");
        assert!(what.contains(words), "{what}");
        assert!(!is_efi_program(bytes) || words.contains("ISO"));
    }

    #[test]
    fn what_starts_has_no_other_name() {
        for subsystem in 10..=12 {
            let program = image(0x8664, subsystem);
            assert!(is_efi_program(&program));
            assert_eq!(misfit(&program), None);
        }
        // A kernel has a boot sector, too.
        let kernel = bz_image(image(0x8664, 10), 0x020f, 0x7f);
        assert!(is_efi_program(&kernel) && misfit(&kernel).is_none());
        for unknown in [&b""[..], b"M", b"MZ", b"kernel", &[0; 0x9000]] {
            assert!(!is_efi_program(unknown) && misfit(unknown).is_none());
        }
    }

    #[test]
    fn programs_of_other_machines_and_systems() {
        is(&image(0xaa64, 10), "an EFI program for arm64");
        is(&image(0x014c, 11), "an EFI program for 32-bit x86");
        is(&image(0x01c2, 10), "an EFI program for 32-bit Arm");
        is(&image(0x5064, 10), "an EFI program for RISC-V");
        is(&image(0x6264, 10), "an EFI program for LoongArch");
        is(&image(0x0ebc, 10), "another machine");
        is(&image(0x8664, 3), "for Windows");
        is(&image(0x8664, 13), "for Windows");
        is(b"\x7fELF\x02\x01\x01", "an ELF file");
    }

    #[test]
    fn kernels_that_do_not_start() {
        let thirty_two = "a 32-bit Linux kernel";
        is(&bz_image(image(0x014c, 10), 0x020f, 0x04), thirty_two);
        is(&bz_image(Vec::new(), 0x020c, 0), thirty_two);
        is(&bz_image(Vec::new(), 0x020c, 1), "without EFI stub");
        // Where nothing tells of 64 bits.
        is(&bz_image(Vec::new(), 0x020b, 0), "without EFI stub");
        let arm64 = with(image(0xaa64, 10), 0x38, b"ARM\x64");
        is(&arm64, "a Linux kernel for arm64");
        is(
            &with(Vec::new(), 0x38, b"ARM\x64"),
            "a Linux kernel for arm64",
        );
        is(&with(Vec::new(), 0x38, b"RSC\x05"), "for RISC-V");
        is(
            &with(Vec::new(), 0x38, b"\xcd\x23\x82\x81"),
            "for LoongArch",
        );
        is(
            &with(Vec::new(), 0x24, b"\x18\x28\x6f\x01"),
            "for 32-bit Arm",
        );
        is(b"\x1f\x8b\x08\0", "compressed with gzip");
        is(b"\xfd7zXZ\0\0", "compressed with xz");
        is(b"\x28\xb5\x2f\xfd\x04", "compressed with zstd");
        is(b"BZh91AY", "compressed with bzip2");
    }

    #[test]
    fn what_is_no_program_at_all() {
        let volume = with(Vec::new(), 0x8001, b"CD001");
        assert_eq!(volume.len(), LOOKED_AT);
        is(&volume, "an ISO 9660 image");
        // One that can be written to a USB stick begins as a disk, or as a program.
        is(&with(volume.clone(), 510, b"\x55\xaa"), "an ISO 9660 image");
        is(&with(volume, 0, &image(0x8664, 10)), "an ISO 9660 image");
        is(&with(Vec::new(), 512, b"EFI PART"), "a disk image");
        is(&with(Vec::new(), 510, b"\x55\xaa"), "a boot sector");
        is(b"070701000", "a cpio archive");
        is(b"#!ipxe\n", "a script for iPXE");
        is(b"\r\n<!DOCTYPE HTML>", "a web page");
        is(b"<html lang=", "a web page");
    }

    #[test]
    fn a_header_that_lies_about_its_place() {
        let far = with(image(0x8664, 10), 0x3c, &[0xff; 4]);
        assert!(!is_efi_program(&far) && misfit(&far).is_none());
        let cut = &image(0x8664, 10)[..0x80 + 93];
        assert!(!is_efi_program(cut));
    }

    proptest! {
        #[test]
        fn any_bytes(begin in prop::collection::vec(any::<u8>(), 0..1100)) {
            prop_assert!(!is_efi_program(&begin) || misfit(&begin).is_none());
        }
    }

    /// Linux 3.3 had an EFI stub before the protocol told of 64 bits.
    #[test]
    fn the_stub_of_an_old_kernel_tells_its_bits() {
        let kernel = |machine| bz_image(image(machine, 10), 0x020b, 0);
        is(&kernel(0x014c), "a 32-bit Linux kernel");
        assert!(misfit(&kernel(0x8664)).is_none());
    }

    #[test]
    fn an_old_kernel_takes_no_initrd() {
        let mut kernel = image(X64, 10);
        // No kernel.
        assert_eq!(takes_no_initrd(&kernel), None);
        kernel[0x202..0x206].copy_from_slice(b"HdrS");
        for (version, takes) in [(0, false), (1, true), (3, true)] {
            kernel[0x80 + 24 + 44] = version;
            assert_eq!(takes_no_initrd(&kernel).is_none(), takes);
        }
        // What says no version.
        kernel.truncate(0x80 + 24 + 44);
        assert_eq!(takes_no_initrd(&kernel), None);
    }
}
