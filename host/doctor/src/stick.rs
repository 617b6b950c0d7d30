//! `wireboot doctor stick`: the image of a stick that a machine boots to be examined.
//!
//! A boot record with one partition, and on that a FAT volume: what firmware of all makers looks for on a stick.

use std::fs::{self, File, OpenOptions};
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions, format_volume};

use crate::output;

/// Make the image of a stick that a machine boots to be examined.
///
/// Write it to a stick (`dd if=FILE.img of=/dev/sdX bs=4M`, or any program that writes images), boot the machine from it, and read what it
/// has found: `wireboot report` of the folder where the stick is mounted.
#[derive(Args, Clone, Debug)]
pub struct StickArgs {
    /// The image to make; a file that is there already is not overwritten
    file: PathBuf,
    /// The doctor.efi to put on it [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Where firmware looks for a program on a stick (UEFI 2.10, section 3.5.1.1).
const FOLDER: [&str; 2] = ["EFI", "EFI/BOOT"];
const PROGRAM: &str = "EFI/BOOT/BOOTX64.EFI";
/// The driver that keeps times of a boot for the system.
const RECORDER: &str = "recorder.efi";
/// Bytes of a sector.
const SECTOR: usize = 512;
/// Where the partition begins.
const START: usize = 1 << 20;
/// Bytes of the partition: room for many reports, and enough clusters for FAT32, which firmware asks for.
const SIZE: usize = 63 << 20;
/// Bytes of the largest program.
const LARGEST: u64 = 16 << 20;
/// A partition with FAT32, by its sectors' numbers.
const FAT32_LBA: u8 = 0x0c;

pub(crate) fn run(arguments: &StickArgs) -> Result<ExitCode> {
    let program = match &arguments.program {
        Some(file) => file.clone(),
        None => beside("doctor.efi").context(
            "no doctor.efi beside this program; `make build` leaves one in dist, --program names another",
        )?,
    };
    let recorder = program.with_file_name(RECORDER);
    make(
        &arguments.file,
        &program,
        Some(&recorder)
            .filter(|file| file.is_file())
            .map(PathBuf::as_path),
    )?;
    output::print(&format!(
        "{}: write it to a stick, boot the machine from that, then show what it found: wireboot report FOLDER, where the stick is mounted\n",
        arguments.file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn beside(name: &str) -> Option<PathBuf> {
    let file = std::env::current_exe().ok()?.with_file_name(name);
    file.is_file().then_some(file)
}

/// Makes the image `file` with doctor.efi, and recorder.efi where there is one.
///
/// # Errors
/// When the file is there already or cannot be written, or the program cannot be read or is too large.
pub fn make(file: &Path, program: &Path, recorder: Option<&Path>) -> Result<()> {
    let mut files = vec![(PROGRAM.to_owned(), read(program)?)];
    if let Some(recorder) = recorder {
        files.push((format!("EFI/BOOT/{RECORDER}"), read(recorder)?));
    }
    let image = image(&files).context("making a FAT volume")?;
    let named = || format!("making {}", file.display());
    ensure!(
        fs::symlink_metadata(file).is_err(),
        "{} is there already, and nothing is overwritten; name another file",
        file.display()
    );
    let mut to = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .with_context(named)?;
    let written = to.write_all(&image);
    if written.is_err() {
        // Half an image is none.
        let _ = fs::remove_file(file);
    }
    written.with_context(|| file.display().to_string())
}

/// A program, unless it is too large for one.
fn read(file: &Path) -> Result<Vec<u8>> {
    let named = || file.display().to_string();
    let mut bytes = Vec::new();
    let opened = File::open(file).with_context(named)?;
    opened
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .with_context(named)?;
    ensure!(
        bytes.len() as u64 <= LARGEST,
        "{}: more than {} MiB, so no doctor.efi",
        file.display(),
        LARGEST >> 20
    );
    Ok(bytes)
}

fn image(files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut image = vec![0; START + SIZE];
    if let Some((record, partition)) = image.split_at_mut_checked(START) {
        boot_record(record);
        volume(partition, files)?;
    }
    Ok(image)
}

/// A FAT32 volume that holds the files.
fn volume(bytes: &mut [u8], files: &[(String, Vec<u8>)]) -> Result<()> {
    let options = FormatVolumeOptions::new()
        .fat_type(FatType::Fat32)
        .bytes_per_cluster(SECTOR as u32)
        .volume_label(*b"DOCTOR     ");
    format_volume(Cursor::new(&mut *bytes), options)?;
    let volume = FileSystem::new(Cursor::new(bytes), FsOptions::new())?;
    let root = volume.root_dir();
    for folder in FOLDER {
        root.create_dir(folder)?;
    }
    for (name, content) in files {
        root.create_file(name)?.write_all(content)?;
    }
    drop(root);
    Ok(volume.unmount()?)
}

/// A boot record with the one partition (UEFI 2.10, section 5.2.1), and no code.
fn boot_record(record: &mut [u8]) {
    let [start, sectors] = [START, SIZE].map(|bytes| (bytes / SECTOR) as u32);
    // Cylinders, heads and sectors that nobody counts by any more.
    let beyond = [0xfe, 0xff, 0xff];
    let entry = [
        &[0][..],
        &beyond,
        &[FAT32_LBA],
        &beyond,
        &start.to_le_bytes(),
        &sectors.to_le_bytes(),
    ]
    .concat();
    for (at, bytes) in [(446, entry.as_slice()), (510, &[0x55, 0xaa])] {
        if let Some(place) = record.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_has_the_program_where_firmware_looks() {
        let folder = tempfile::tempdir().unwrap();
        let [program, recorder, file] =
            ["doctor.efi", "recorder.efi", "stick.img"].map(|name| folder.path().join(name));
        let content: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        fs::write(&program, &content).unwrap();
        fs::write(&recorder, b"recorder").unwrap();
        make(&file, &program, Some(&recorder)).unwrap();
        let mut image = fs::read(&file).unwrap();
        assert_eq!(image.len(), START + SIZE);
        assert_eq!(image[510..512], [0x55, 0xaa]);
        assert_eq!(image[450], FAT32_LBA);
        assert_eq!(image[454..458], 2048_u32.to_le_bytes());
        let volume = FileSystem::new(Cursor::new(&mut image[START..]), FsOptions::new()).unwrap();
        assert_eq!(volume.fat_type(), FatType::Fat32);
        let free = volume.stats().unwrap().free_clusters() as usize * SECTOR;
        assert!(free > 48 << 20, "{free}");
        for (name, expected) in [
            (PROGRAM, content.as_slice()),
            ("EFI/BOOT/recorder.efi", b"recorder"),
        ] {
            let mut bytes = Vec::new();
            let mut file = volume.root_dir().open_file(name).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn nothing_is_overwritten_and_no_disk_is_taken_for_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let [program, file] = ["doctor.efi", "stick.img"].map(|name| folder.path().join(name));
        fs::write(&program, "MZ").unwrap();
        fs::write(&file, "mine").unwrap();
        let said = format!("{:#}", make(&file, &program, None).unwrap_err());
        assert!(said.contains("nothing is overwritten"), "{said}");
        assert_eq!(fs::read(&file).unwrap(), b"mine");
        let nowhere = folder.path().join("nowhere/stick.img");
        let said = format!("{:#}", make(&nowhere, &program, None).unwrap_err());
        assert!(
            said.contains("nowhere") && !said.contains("overwritten"),
            "{said}"
        );
        let large = fs::File::create(&program).unwrap();
        large.set_len(SIZE as u64).unwrap();
        let other = folder.path().join("other.img");
        let said = format!("{:#}", make(&other, &program, None).unwrap_err());
        assert!(said.contains("no doctor.efi"), "{said}");
        assert!(!other.exists());
    }
}
