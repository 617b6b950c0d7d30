//! The files that are handed out: what lies below the served directory, and three names that the server adds.
//!
//! | name            | what                                                                    |
//! |-----------------|-------------------------------------------------------------------------|
//! | `wireboot.efi`  | the network boot program, wherever it lies on this machine               |
//! | `wireboot.conf` | the directory's own, or one made from what the directory holds           |
//! | `doctor.efi`    | the directory's own, or the one of this machine, if it has one           |
//!
//! Clients name files, and get only those that lie in the directory (`folder`).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::fcntl::{OFlag, OpenHow, openat2};

use crate::boot_conf::{self, BOOT_CONFIGURATION, BOOT_PROGRAM, DOCTOR};
pub use crate::content::{Content, Lying, OpenError};
use crate::folder::Folder;

/// The directory that is served, with two programs that may lie elsewhere.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    folder: Folder,
    boot_program: Option<ProgramFile>,
    doctor: Option<ProgramFile>,
    url: OnceLock<String>,
}

/// A program's file, by its name in a folder that is held open: the folders above that need not be readable.
#[derive(Debug)]
struct ProgramFile {
    folder: Folder,
    name: OsString,
    path: PathBuf,
}

impl ProgramFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let above = path.parent().filter(|path| !path.as_os_str().is_empty());
        Ok(Self {
            folder: Folder::open(above.unwrap_or(Path::new(".")))?,
            name: name.to_owned(),
            path,
        })
    }

    fn content(&self) -> Result<Content, OpenError> {
        let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC);
        let file = openat2(&self.folder, self.name.as_os_str(), how)?;
        Content::from_file(file)
    }
}

impl Directory {
    /// Serves `path`, and `boot_program` under the name `wireboot.efi`.
    ///
    /// # Errors
    /// When `path` is no directory, or the folder of `boot_program` none.
    pub fn open(path: &Path, boot_program: Option<PathBuf>) -> io::Result<Self> {
        let boot_program = boot_program.map(ProgramFile::open).transpose()?;
        Ok(Self {
            path: path.to_owned(),
            folder: Folder::open(path)?,
            boot_program,
            doctor: None,
            url: OnceLock::new(),
        })
    }

    /// With a doctor.efi for machines that are to be examined.
    ///
    /// # Errors
    /// When its folder is none.
    pub(crate) fn with_doctor(mut self, doctor: Option<PathBuf>) -> io::Result<Self> {
        self.doctor = doctor.map(ProgramFile::open).transpose()?;
        Ok(self)
    }

    /// Machines reach the directory by HTTP at `url`, which ends with a slash. Said once; until then, nobody does.
    pub(crate) fn reached_at(&self, url: String) {
        let _ = self.url.set(url);
    }

    /// Where machines reach the directory by HTTP, with a slash at the end.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.get().map(String::as_str)
    }

    /// The directory itself, without what the server adds.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file that a client named. Leading slashes do not count, and a backslash is a slash.
    ///
    /// # Errors
    /// [`OpenError`], whose text is fit to be sent to the client.
    pub fn find(&self, name: &str) -> Result<Content, OpenError> {
        let name = name.replace('\\', "/");
        let name = name.trim_start_matches('/');
        if name == BOOT_PROGRAM
            && let Some(program) = &self.boot_program
        {
            return program.content();
        }
        match self.folder.file(name) {
            Err(OpenError::NotFound) if name == BOOT_CONFIGURATION => self
                .boot_configuration()
                .map(|text| Content::from_bytes(text.into_bytes()))
                .ok_or(OpenError::NotFound),
            Err(OpenError::NotFound) if name == DOCTOR => self
                .doctor
                .as_ref()
                .map_or(Err(OpenError::NotFound), ProgramFile::content),
            result => result,
        }
    }

    /// The boot configuration made from what the directory holds; `None` when nothing in it looks bootable, or it has its own.
    pub fn boot_configuration(&self) -> Option<String> {
        match self.folder.file(BOOT_CONFIGURATION) {
            Err(OpenError::NotFound) => {
                boot_conf::generate(&self.folder, self.url(), self.doctor.is_some())
            }
            _ => None,
        }
    }

    /// The folders that wireboot.efi and doctor.efi are read from: those of their names and, for a link, that of the file.
    pub(crate) fn folders_of_programs(&self) -> Vec<OwnedFd> {
        let programs = self.boot_program.iter().chain(&self.doctor);
        let paths = programs.flat_map(|program| {
            let file = program.path.canonicalize();
            let name = std::path::absolute(&program.path);
            [file, name].into_iter().flatten()
        });
        let folders = paths.filter_map(|path| Folder::open(path.parent()?).ok());
        folders.map(OwnedFd::from).collect()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use proptest::prelude::*;
    use std::io::IoSliceMut;
    use std::os::unix::fs::symlink;

    /// `served/` with files and links, beside a secret.
    fn house() -> (tempfile::TempDir, Directory) {
        let house = tempfile::tempdir().unwrap();
        let served = house.path().join("served");
        std::fs::create_dir_all(served.join("sub/dir")).unwrap();
        std::fs::write(house.path().join("secret"), "secret").unwrap();
        std::fs::write(served.join("file"), "inside").unwrap();
        std::fs::write(served.join("sub/file"), "inside").unwrap();
        symlink("sub/file", served.join("inward")).unwrap();
        symlink("../secret", served.join("outward")).unwrap();
        symlink(house.path().join("secret"), served.join("absolute")).unwrap();
        symlink("..", served.join("sub/up")).unwrap();
        symlink("../..", served.join("sub/out")).unwrap();
        symlink("loop", served.join("loop")).unwrap();
        nix::unistd::mkfifo(&served.join("pipe"), Mode::S_IRWXU).unwrap();
        let directory = Directory::open(&served, None).unwrap();
        (house, directory)
    }

    fn text(content: &Content) -> String {
        let mut bytes = vec![0; content.len() as usize];
        content
            .read_exact_at(&mut [IoSliceMut::new(&mut bytes)], 0)
            .unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn files_below_are_found_however_the_slashes_are_written() {
        let (_house, directory) = house();
        for name in [
            "file",
            "/file",
            "//file",
            "\\file",
            "sub/file",
            "sub\\file",
            "sub/../file",
            "./file",
            "inward",
            "sub/up/file",
        ] {
            assert_eq!(text(&directory.find(name).unwrap()), "inside", "{name}");
        }
    }

    #[test]
    fn nothing_above_is_found() {
        let (house, directory) = house();
        let absolute = house.path().join("secret");
        for name in [
            "../secret",
            "/../secret",
            "sub/../../secret",
            "outward",
            "absolute",
            "sub/out/secret",
            "..\\secret",
            "loop",
            absolute.to_str().unwrap(),
            "/proc/self/root/etc/passwd",
            "",
            "/",
            "sub",
            "pipe",
            "file/",
            "nothing",
            "file\0",
        ] {
            assert!(directory.find(name).is_err(), "{name}");
        }
        assert!(matches!(directory.find("outward"), Err(OpenError::Outside)));
        assert!(matches!(directory.find("sub"), Err(OpenError::NotAFile)));
        assert!(matches!(
            directory.find("nothing"),
            Err(OpenError::NotFound)
        ));
    }

    #[test]
    fn the_program_that_examines_may_lie_elsewhere() {
        let (house, directory) = house();
        let named = |file: &str| Some(house.path().join(file));
        assert!(matches!(directory.find(DOCTOR), Err(OpenError::NotFound)));
        let directory = directory.with_doctor(named("secret")).unwrap();
        assert_eq!(text(&directory.find("/doctor.efi").unwrap()), "secret");
        // The directory's own goes before.
        std::fs::write(house.path().join("served/doctor.efi"), "own").unwrap();
        assert_eq!(text(&directory.find(DOCTOR).unwrap()), "own");
    }

    #[test]
    fn the_boot_program_may_lie_elsewhere() {
        let (house, directory) = house();
        assert!(matches!(
            directory.find(BOOT_PROGRAM),
            Err(OpenError::NotFound)
        ));
        let directory =
            Directory::open(directory.path(), Some(house.path().join("secret"))).unwrap();
        assert_eq!(text(&directory.find("/wireboot.efi").unwrap()), "secret");
    }

    #[test]
    fn the_boot_configuration_is_the_directorys_own_or_made() {
        let (_house, directory) = house();
        assert!(matches!(
            directory.find(BOOT_CONFIGURATION),
            Err(OpenError::NotFound)
        ));
        std::fs::write(directory.path().join("vmlinuz"), "").unwrap();
        assert!(text(&directory.find("/wireboot.conf").unwrap()).contains("linux vmlinuz"));
        std::fs::write(directory.path().join(BOOT_CONFIGURATION), "title own").unwrap();
        assert_eq!(
            text(&directory.find(BOOT_CONFIGURATION).unwrap()),
            "title own"
        );
    }

    proptest! {
        /// Whatever the name, what is found is a file that lies below the directory.
        #[test]
        fn names_never_lead_out(parts in prop::collection::vec(
            prop::sample::select(vec!["..", ".", "", "sub", "up", "out", "file", "secret", "outward", "absolute", "proc", "\\..", "\0", "..\\.."]), 0..7,
        )) {
            thread_local!(static HOUSE: (tempfile::TempDir, Directory) = house());
            let name = parts.join("/");
            HOUSE.with(|(_, directory)| {
                if let Ok(content) = directory.find(&name) {
                    assert_eq!(text(&content), "inside", "{name}");
                }
            });
        }
    }
}
