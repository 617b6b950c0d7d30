//! The files that the stacks download: small UEFI programs, padded to the size wanted.
//!
//! A firmware that network-boots one of them downloads all of it, starts a program that returns at once, and goes on; a loader that
//! only fetches it sees bytes like any other. So one file serves every stack.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// A megabyte, as file sizes are given here: 2^20 bytes.
pub(crate) const MIB: u64 = 1 << 20;

/// The name of the file of `bytes` bytes, under which every server offers it.
#[must_use]
pub(crate) fn name(bytes: u64) -> String {
    format!("{}M.efi", bytes / MIB)
}

/// Writes the file of `bytes` bytes into `directory`.
///
/// # Errors
/// When the file cannot be written, the disk being full for example.
pub(crate) fn write(directory: &Path, bytes: u64) -> Result<()> {
    let path = directory.join(name(bytes));
    let what = || format!("writing {} of {} MiB", path.display(), bytes / MIB);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).with_context(what)?);
    let program = program();
    file.write_all(&program).with_context(what)?;
    // Not zeros, so that nothing between disk and guest can make the file smaller than it looks; the same in every run.
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut rest = bytes.saturating_sub(program.len() as u64);
    let mut block = vec![0; 1 << 16];
    while rest > 0 {
        random.fill(&mut block);
        let part = usize::try_from(rest).unwrap_or(usize::MAX).min(block.len());
        file.write_all(block.get(..part).unwrap_or_default())
            .with_context(what)?;
        rest -= part as u64;
    }
    file.flush().with_context(what)
}

/// The alignment of headers and sections in the file, in bytes.
const FILE_ALIGNMENT: u32 = 0x200;
/// The alignment of sections in memory, in bytes.
const SECTION_ALIGNMENT: u32 = 0x1000;
/// Where the only section lies in memory, relative to the image.
const TEXT: u32 = 0x1000;
/// x86-64: `xor eax, eax; ret`, that is, return EFI_SUCCESS.
const CODE: [u8; 3] = [0x31, 0xc0, 0xc3];

/// A PE32+ image of an x86-64 UEFI application that returns EFI_SUCCESS (PE/COFF specification, sections 2 to 4).
fn program() -> Vec<u8> {
    let mut image = Vec::new();
    let word = |image: &mut Vec<u8>, value: u16| image.extend(value.to_le_bytes());
    let long = |image: &mut Vec<u8>, value: u32| image.extend(value.to_le_bytes());
    let quad = |image: &mut Vec<u8>, value: u64| image.extend(value.to_le_bytes());

    // MS-DOS header: its magic, and at offset 60 where the PE signature lies.
    image.extend(b"MZ");
    image.resize(60, 0);
    long(&mut image, 64);

    // PE signature and COFF file header.
    image.extend(b"PE\0\0");
    word(&mut image, 0x8664); // Machine: x86-64
    word(&mut image, 1); // NumberOfSections
    for _ in 0..3 {
        long(&mut image, 0); // TimeDateStamp, PointerToSymbolTable, NumberOfSymbols
    }
    word(&mut image, 112 + 16 * 8); // SizeOfOptionalHeader
    word(&mut image, 0x22); // Characteristics: executable, large addresses; not stripped of relocations: it needs none

    // Optional header, standard fields.
    word(&mut image, 0x20b); // Magic: PE32+
    word(&mut image, 0); // linker version
    long(&mut image, FILE_ALIGNMENT); // SizeOfCode
    long(&mut image, 0); // SizeOfInitializedData
    long(&mut image, 0); // SizeOfUninitializedData
    long(&mut image, TEXT); // AddressOfEntryPoint
    long(&mut image, TEXT); // BaseOfCode

    // Optional header, Windows-specific fields.
    quad(&mut image, 0); // ImageBase
    long(&mut image, SECTION_ALIGNMENT);
    long(&mut image, FILE_ALIGNMENT);
    for _ in 0..4 {
        long(&mut image, 0); // versions of the operating system, the image and the subsystem; reserved
    }
    long(&mut image, TEXT + SECTION_ALIGNMENT); // SizeOfImage
    long(&mut image, FILE_ALIGNMENT); // SizeOfHeaders
    long(&mut image, 0); // CheckSum
    word(&mut image, 10); // Subsystem: EFI application
    word(&mut image, 0); // DllCharacteristics
    for _ in 0..4 {
        quad(&mut image, 0); // stack and heap sizes
    }
    long(&mut image, 0); // LoaderFlags
    long(&mut image, 16); // NumberOfRvaAndSizes
    for _ in 0..16 {
        quad(&mut image, 0); // no data directory is in use
    }

    // Section header.
    image.extend(b".text\0\0\0");
    long(&mut image, CODE.len() as u32); // VirtualSize
    long(&mut image, TEXT); // VirtualAddress
    long(&mut image, FILE_ALIGNMENT); // SizeOfRawData
    long(&mut image, FILE_ALIGNMENT); // PointerToRawData
    for _ in 0..3 {
        long(&mut image, 0); // relocations, line numbers and their counts
    }
    long(&mut image, 0x6000_0020); // Characteristics: code, may be read and executed

    image.resize(FILE_ALIGNMENT as usize, 0);
    image.extend(CODE);
    image.resize(2 * FILE_ALIGNMENT as usize, 0);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_has_the_headers_where_the_specification_wants_them() {
        let image = program();
        assert_eq!(image.len(), 1024);
        assert_eq!(image[60..64], 64u32.to_le_bytes());
        assert_eq!(image[64..68], *b"PE\0\0");
        let optional = 64 + 4 + 20;
        assert_eq!(image[64 + 20..64 + 22], 240u16.to_le_bytes());
        assert_eq!(image[optional..optional + 2], 0x20bu16.to_le_bytes());
        assert_eq!(image[optional + 240..optional + 245], *b".text");
        assert_eq!(image[512..515], CODE);
    }

    #[test]
    fn file_has_exactly_its_size() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), MIB).unwrap();
        assert_eq!(
            std::fs::metadata(directory.path().join("1M.efi"))
                .unwrap()
                .len(),
            MIB
        );
    }
}
