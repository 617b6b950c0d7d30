//! The bytes of a served file, and why there are none.

use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::sendfile::sendfile;

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
    /// Any other error of the operating system.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
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

/// Where bytes of a content lie.
#[derive(Clone, Copy, Debug)]
pub enum Lying<'a> {
    /// In this file, at their offset.
    File(BorrowedFd<'a>),
    /// They are in memory.
    Bytes(&'a [u8]),
}

#[derive(Clone, Debug)]
enum Source {
    File(Arc<File>),
    Bytes(Arc<[u8]>),
}

impl Content {
    pub(crate) fn from_file(file: OwnedFd) -> Result<Self, OpenError> {
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

    /// Whether both are clones of one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (Source::File(one), Source::File(other)) => Arc::ptr_eq(one, other),
            (Source::Bytes(one), Source::Bytes(other)) => Arc::ptr_eq(one, other),
            _ => false,
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

    /// Has `read` take `length` bytes from `offset` on, from where they lie, and tell how many it took. With `looks`, the file must be as
    /// it was opened when they have been taken: for the last bytes that a client gets, and now and then before.
    ///
    /// # Errors
    /// Those of `read`, and when the file has changed since it was opened.
    pub fn read_where_it_lies(
        &self,
        offset: u64,
        length: usize,
        looks: bool,
        read: impl FnOnce(Lying<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        let taken = match &self.source {
            Source::File(file) => {
                let taken = read(Lying::File(file.as_fd()))?;
                if looks {
                    self.is_as_opened(file)?;
                }
                taken
            }
            Source::Bytes(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
                let bytes = rest.and_then(|rest| rest.get(..length));
                read(Lying::Bytes(bytes.unwrap_or_default()))?
            }
        };
        (taken == length).then_some(()).ok_or_else(changed)
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
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    fn opened(path: &Path) -> Content {
        Content::from_file(File::open(path).unwrap().into()).unwrap()
    }

    #[test]
    fn reading_past_the_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "inside").unwrap();
        for content in [opened(&path), Content::from_bytes(b"inside".to_vec())] {
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

    #[test]
    fn a_file_that_was_changed_ends_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
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
            let content = opened(&path);
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
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; size]).unwrap();
        let content = opened(&path);
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
