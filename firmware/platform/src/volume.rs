//! Files on a disk's FAT volume, by `EFI_SIMPLE_FILE_SYSTEM_PROTOCOL` (UEFI 2.10, section 13.4).

use alloc::vec::Vec;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::media::file::{Directory, File, FileAttribute, FileHandle, FileMode, RegularFile};
use uefi::proto::media::fs::SimpleFileSystem;
use uefi::{CString16, Handle, Status};

/// Bytes that are written by one call: some firmware copies them once more.
const PIECE: usize = 64 * 1024;

/// A volume whose top folder is open.
#[derive(Debug)]
pub struct Volume(Directory);

impl Volume {
    /// That of a device; `None` where it has none, as a network interface.
    #[must_use]
    pub fn of(device: Handle) -> Option<Self> {
        let params = OpenProtocolParams {
            handle: device,
            agent: boot::image_handle(),
            controller: None,
        };
        // SAFETY: used at once; nothing removes the protocol meanwhile. (Opening it exclusively would disconnect who uses the volume.)
        let system = unsafe {
            boot::open_protocol::<SimpleFileSystem>(params, OpenProtocolAttributes::GetProtocol)
        };
        let mut system = system.ok()?;
        system.get_mut()?.open_volume().ok().map(Self)
    }

    fn open(&mut self, name: &str, mode: FileMode) -> uefi::Result<FileHandle> {
        let name = CString16::try_from(name).map_err(|_| Status::INVALID_PARAMETER)?;
        self.0.open(&name, mode, FileAttribute::empty())
    }

    fn file(&mut self, name: &str, mode: FileMode) -> uefi::Result<RegularFile> {
        let opened = self.open(name, mode)?.into_regular_file();
        opened.ok_or_else(|| Status::ACCESS_DENIED.into())
    }

    /// Whether there is something of this name. What the volume does not tell counts as there.
    pub fn has(&mut self, name: &str) -> bool {
        let opened = self.open(name, FileMode::Read);
        !opened.is_err_and(|error| error.status() == Status::NOT_FOUND)
    }

    /// Whether there is a file at `path`, whose parts are separated by `\`.
    pub fn has_file(&mut self, path: &str) -> bool {
        self.file(path, FileMode::Read).is_ok()
    }

    /// The first bytes of a file, at most `most`; `None` where there is no such file.
    pub fn read(&mut self, name: &str, most: usize) -> Option<Vec<u8>> {
        let mut file = self.file(name, FileMode::Read).ok()?;
        let mut bytes = alloc::vec![0; most];
        let length = file.read(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }

    /// Makes a file. One that cannot be written whole is removed.
    ///
    /// # Errors
    /// What the volume answers: `WRITE_PROTECTED`, `VOLUME_FULL`; `ALREADY_STARTED` where there is something of this name.
    pub fn create(&mut self, name: &str, bytes: &[u8]) -> uefi::Result {
        if self.has(name) {
            return Err(Status::ALREADY_STARTED.into());
        }
        let mut file = self.file(name, FileMode::CreateReadWrite)?;
        let written = write(&mut file, bytes);
        if written.is_err() {
            let _ = file.delete();
        }
        written
    }

    /// Removes the file at `name`, whose parts are separated by `\`.
    ///
    /// # Errors
    /// What the volume answers: `NOT_FOUND`, `WRITE_PROTECTED`; `ACCESS_DENIED` for a folder.
    pub fn remove(&mut self, name: &str) -> uefi::Result {
        self.file(name, FileMode::ReadWrite)?.delete()
    }
}

fn write(file: &mut RegularFile, bytes: &[u8]) -> uefi::Result {
    for piece in bytes.chunks(PIECE) {
        let status = |error: uefi::Error<usize>| uefi::Error::from(error.status());
        file.write(piece).map_err(status)?;
    }
    file.flush()
}
