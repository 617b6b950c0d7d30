//! The files that are handed out: what lies below the served directory, and two names that the server adds.
//!
//! | name            | what                                                                    |
//! |-----------------|-------------------------------------------------------------------------|
//! | `wireboot.efi`  | the network boot program, wherever it lies on this machine               |
//! | `wireboot.conf` | the directory's own, or one made from what the directory holds           |
//!
//! Names come from the network. The kernel itself keeps them below the directory (`openat2` with `RESOLVE_BENEATH`): neither
//! `..` nor an absolute or outward symbolic link gets out, and there is no moment between check and use.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{
    OFlag, OpenHow, PosixFadviseAdvice, ResolveFlag, open, openat, openat2, posix_fadvise,
};
use nix::sys::sendfile::sendfile;
use nix::sys::stat::Mode;

use crate::boot_conf;

/// Name of the network boot program.
pub const BOOT_PROGRAM: &str = "wireboot.efi";
/// Name of the boot configuration.
pub const BOOT_CONFIGURATION: &str = "wireboot.conf";

/// Where a file system keeps what its check found, for root alone.
const LOST_AND_FOUND: &str = "lost+found";

/// Why a name cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("there is no such file here")]
    NotFound,
    /// The name leads out of the served directory.
    #[error("the name leads out of the served directory")]
    Outside,
    /// It is a directory or a device.
    #[error("this is not a regular file")]
    NotAFile,
    /// The server may not read it.
    #[error("the server may not read this file")]
    Denied,
    /// Anything else.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The served directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    root: OwnedFd,
    boot_program: Option<BootProgram>,
    url: OnceLock<String>,
}

/// A file by its name in a folder that is held open: the folders above that need not be readable.
#[derive(Debug)]
struct BootProgram {
    folder: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl Directory {
    /// Serves `path`, and `boot_program` under the name `wireboot.efi`.
    ///
    /// # Errors
    /// When `path` is no directory, or the folder of `boot_program` none.
    pub fn open(path: &Path, boot_program: Option<PathBuf>) -> io::Result<Self> {
        let folder = |path: &Path| {
            let how = OFlag::O_DIRECTORY | OFlag::O_PATH | OFlag::O_CLOEXEC;
            open(path, how, Mode::empty())
        };
        let boot_program = boot_program.map(|path| {
            let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
            let above = path.parent().filter(|path| !path.as_os_str().is_empty());
            io::Result::Ok(BootProgram {
                folder: folder(above.unwrap_or(Path::new(".")))?,
                name: name.to_owned(),
                path,
            })
        });
        Ok(Self {
            path: path.to_owned(),
            root: folder(path)?,
            boot_program: boot_program.transpose()?,
            url: OnceLock::new(),
        })
    }

    /// Machines reach the directory by HTTP at `url`, which ends with a slash. Said once; until then, nobody does.
    pub(crate) fn reached_at(&self, url: String) {
        let _ = self.url.set(url);
    }

    /// Where machines reach the directory by HTTP, with a slash at the end.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.get().map(String::as_str)
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
            let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC);
            let file = openat2(&program.folder, program.name.as_os_str(), how)?;
            return Content::from_file(file);
        }
        match self.open_below(name) {
            Err(OpenError::NotFound) if name == BOOT_CONFIGURATION => self
                .boot_configuration()
                .map(|text| Content::from_bytes(text.into_bytes()))
                .ok_or(OpenError::NotFound),
            result => result,
        }
    }

    /// The boot configuration made from what the directory holds; `None` when nothing in it looks bootable, or it has its own.
    pub fn boot_configuration(&self) -> Option<String> {
        match self.open_below(BOOT_CONFIGURATION) {
            Err(OpenError::NotFound) => boot_conf::generate(self, self.url()),
            _ => None,
        }
    }

    /// The folders that wireboot.efi is read from: that of its name and, for a link, that of the file.
    pub(crate) fn folders_of_boot_program(&self) -> Vec<OwnedFd> {
        let paths = self.boot_program.iter().flat_map(|program| {
            let file = program.path.canonicalize();
            let name = std::path::absolute(&program.path);
            [file, name].into_iter().flatten()
        });
        let how = OFlag::O_DIRECTORY | OFlag::O_PATH | OFlag::O_CLOEXEC;
        let folders = paths.filter_map(|path| open(path.parent()?, how, Mode::empty()).ok());
        folders.collect()
    }

    /// What the folder `name` below the directory holds, sorted by name; an empty name is the directory's.
    ///
    /// # Errors
    /// When it is no folder, or cannot be read.
    pub(crate) fn entries(&self, name: &str) -> Result<Vec<Entry>, OpenError> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = if name.is_empty() {
            openat(&self.root, ".", how, Mode::empty())?
        } else {
            let how = OpenHow::new()
                .flags(how)
                .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
            openat2(&self.root, name, how)?
        };
        let mut folder = Dir::from_fd(folder)?;
        let named = folder.iter().flatten().filter_map(|entry| {
            let name = entry.file_name().to_str().ok()?.to_owned();
            Some((name, entry.file_type()))
        });
        let named: Vec<_> = named.collect();
        let named = named
            .into_iter()
            .filter(|(name, _)| ![".", ".."].contains(&name.as_str()));
        let mut entries: Vec<Entry> = named
            .map(|(name, kind)| Entry {
                // Some file systems, that of CDs for one, do not say with the name.
                is_folder: match kind {
                    Some(kind) => kind == Type::Directory,
                    None => is_folder(&folder, &name),
                },
                name,
            })
            .collect();
        entries.sort();
        Ok(entries)
    }

    /// Files and folders below the directory that the server may not read, of the first `most` that it comes to. What belongs to the file
    /// system itself is none of them.
    pub(crate) fn unreadable(&self, most: usize) -> Vec<String> {
        let (mut denied, mut left) = (Vec::new(), most);
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let entries = match self.entries(&folder) {
                Ok(entries) => entries,
                Err(OpenError::Denied) => {
                    denied.push(folder);
                    continue;
                }
                Err(_) => continue,
            };
            for entry in entries {
                let Some(one_less) = left.checked_sub(1) else {
                    return denied;
                };
                left = one_less;
                if entry.name == LOST_AND_FOUND {
                    continue;
                }
                let name = match folder.as_str() {
                    "" => entry.name,
                    folder => format!("{folder}/{}", entry.name),
                };
                if entry.is_folder {
                    folders.push(name);
                } else if matches!(self.open_below(&name), Err(OpenError::Denied)) {
                    denied.push(name);
                }
            }
        }
        denied
    }

    fn open_below(&self, name: &str) -> Result<Content, OpenError> {
        if name.is_empty() {
            return Err(OpenError::NotAFile);
        }
        // Without O_NONBLOCK, opening a named pipe would wait for its writer.
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Content::from_file(openat2(&self.root, name, how)?)
    }
}

fn is_folder(above: &Dir, name: &str) -> bool {
    let how = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(above, name, how, Mode::empty()).is_ok()
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub name: String,
    /// A folder itself; false for a link to one.
    pub is_folder: bool,
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG | Errno::EINVAL => Self::NotFound,
            Errno::EXDEV | Errno::ELOOP => Self::Outside,
            Errno::EACCES | Errno::EPERM => Self::Denied,
            Errno::ENXIO | Errno::EISDIR => Self::NotAFile,
            other => Self::Io(other.into()),
        }
    }
}

/// Bytes of a file that are sent at most between two looks at whether it has changed, and at how its client gets on.
const BETWEEN_LOOKS: usize = 256 << 10;
/// Bytes at its end before which there is a look in any case.
const LOOKED_AT_LAST: usize = 64 << 10;

/// An open file, or bytes that stand for one. Clones share it.
#[derive(Clone, Debug)]
pub struct Content {
    source: Source,
    len: u64,
    modified: SystemTime,
}

#[derive(Clone, Debug)]
enum Source {
    File(Arc<File>),
    Bytes(Arc<[u8]>),
}

impl Content {
    fn from_file(file: OwnedFd) -> Result<Self, OpenError> {
        let file = File::from(file);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(OpenError::NotAFile);
        }
        Ok(Self {
            len: metadata.len(),
            modified: metadata.modified()?,
            source: Source::File(Arc::new(file)),
        })
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self {
            len: bytes.len() as u64,
            modified: SystemTime::now(),
            source: Source::Bytes(bytes.into()),
        }
    }

    /// Length in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for an empty file.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When the content last changed; `None` when it was made for this request.
    pub fn modified(&self) -> Option<SystemTime> {
        matches!(self.source, Source::File(_)).then_some(self.modified)
    }

    /// Sends bytes from `offset` on to a socket, at most `length` and as many as it takes at once; the kernel carries them there
    /// from where it keeps the file. Returns how many.
    ///
    /// # Errors
    /// When the socket or the file fails, or the file has changed since it was opened.
    pub fn send(&self, socket: &TcpStream, offset: u64, length: u64) -> io::Result<u64> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let sent = match &self.source {
            Source::File(file) => {
                self.is_as_opened(file)?;
                // The end goes by itself: what is sent last is looked at last.
                let before_end = length.saturating_sub(LOOKED_AT_LAST);
                let length = match before_end {
                    0 => length,
                    _ => before_end.min(BETWEEN_LOOKS),
                };
                let mut offset = i64::try_from(offset).map_err(io::Error::other)?;
                sendfile(socket, file, Some(&mut offset), length)?
            }
            Source::Bytes(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
                let rest = rest.unwrap_or_default();
                let mut socket = socket;
                socket.write(rest.get(..length).unwrap_or(rest))?
            }
        };
        if sent == 0 && length > 0 {
            return Err(changed());
        }
        Ok(sent as u64)
    }

    /// Asks the kernel to read `length` bytes from `offset` on, soon to be sent, while other things are done.
    pub fn read_ahead(&self, offset: u64, length: u64) {
        if let Source::File(file) = &self.source
            && let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length))
        {
            // Advice: where it cannot be followed, reading waits for the disk.
            let _ = posix_fadvise(
                file,
                offset,
                length,
                PosixFadviseAdvice::POSIX_FADV_WILLNEED,
            );
        }
    }

    /// Fills all of `slices` with the bytes from `offset` on.
    ///
    /// # Errors
    /// When the file cannot be read, or has changed since it was opened.
    pub fn read_exact_at(&self, slices: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let read = match &self.source {
            Source::File(file) => {
                let offset = i64::try_from(offset).map_err(io::Error::other)?;
                let read = nix::sys::uio::preadv(file, slices, offset)?;
                self.is_as_opened(file)?;
                read
            }
            Source::Bytes(bytes) => {
                let mut rest = usize::try_from(offset)
                    .ok()
                    .and_then(|at| bytes.get(at..))
                    .unwrap_or_default();
                for slice in slices {
                    let n = slice.len().min(rest.len());
                    let (now, later) = rest.split_at(n);
                    if let Some(place) = slice.get_mut(..n) {
                        place.copy_from_slice(now);
                    }
                    rest = later;
                }
                bytes.len().saturating_sub(offset as usize).min(wanted)
            }
        };
        (read == wanted).then_some(()).ok_or_else(changed)
    }

    /// A client must not get half of one version and half of another.
    fn is_as_opened(&self, file: &File) -> io::Result<()> {
        let now = file.metadata()?;
        let same = now.len() == self.len && now.modified()? == self.modified;
        same.then_some(()).ok_or_else(changed)
    }
}

fn changed() -> io::Error {
    io::Error::other("the file was changed while it was sent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{FileExt, symlink};

    #[test]
    fn folders_are_told_from_files_where_the_file_system_does_not_say() {
        let above = tempfile::tempdir().unwrap();
        std::fs::create_dir(above.path().join("folder")).unwrap();
        std::fs::write(above.path().join("file"), "").unwrap();
        symlink("folder", above.path().join("link")).unwrap();
        let above = Dir::open(above.path(), OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        let folders = ["folder", "file", "link", "none"].map(|name| is_folder(&above, name));
        assert_eq!(folders, [true, false, false, false]);
    }

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

    #[test]
    fn reading_past_the_end_is_an_error() {
        let (_house, directory) = house();
        for content in [
            directory.find("file").unwrap(),
            Content::from_bytes(b"inside".to_vec()),
        ] {
            let (mut a, mut b) = ([0; 2], [0; 3]);
            content
                .read_exact_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 1)
                .unwrap();
            assert_eq!((&a, &b), (b"ns", b"ide"));
            assert!(
                content
                    .read_exact_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 2)
                    .is_err()
            );
            assert!(
                content
                    .read_exact_at(&mut [IoSliceMut::new(&mut a)], u64::MAX)
                    .is_err()
            );
        }
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

    #[test]
    fn a_file_that_was_changed_ends_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let directory = Directory::open(folder.path(), None).unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let shorter = |file: File| file.set_len(40).unwrap();
        let longer = |file: File| file.set_len(101).unwrap();
        let other = |file: File| {
            file.write_all_at(&[8; 100], 0).unwrap();
            // Later than any time that the file had before.
            let later = SystemTime::now() + std::time::Duration::from_secs(1);
            file.set_modified(later).unwrap();
        };
        for change in [&shorter as &dyn Fn(File), &longer, &other] {
            std::fs::write(&path, [7; 100]).unwrap();
            let content = directory.find("file").unwrap();
            let mut bytes = [0; 40];
            let read = |bytes: &mut [u8]| content.read_exact_at(&mut [IoSliceMut::new(bytes)], 0);
            assert_eq!(content.send(&socket, 0, 100).unwrap(), 100);
            read(&mut bytes).unwrap();
            assert_eq!(bytes, [7; 40]);
            change(File::options().write(true).open(&path).unwrap());
            for error in [content.send(&socket, 0, 40).err(), read(&mut bytes).err()] {
                let error = error.unwrap().to_string();
                assert_eq!(error, "the file was changed while it was sent");
            }
        }
    }

    #[test]
    fn a_large_file_is_looked_at_now_and_then_and_before_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let size = 2 * BETWEEN_LOOKS;
        std::fs::write(folder.path().join("file"), vec![7; size]).unwrap();
        let directory = Directory::open(folder.path(), None).unwrap();
        let content = directory.find("file").unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut taking, _) = listener.accept().unwrap();
        std::thread::spawn(move || std::io::copy(&mut taking, &mut std::io::sink()));
        let (mut at, mut last) = (0, 0);
        while at < size as u64 {
            last = content.send(&socket, at, size as u64 - at).unwrap();
            assert!(last <= BETWEEN_LOOKS as u64);
            at += last;
        }
        assert!(last <= LOOKED_AT_LAST as u64, "{last}");
    }
}
