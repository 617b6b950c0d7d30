//! The socket at which monitors come.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{getuid, umask};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("{0}: another process listens there; choose another --socket, or end it")]
    InUse(PathBuf),
    #[error("{0} is there and is no socket; choose another --socket, or remove it")]
    NoSocket(PathBuf),
    #[error(
        "{0} belongs to another user, who could put another socket there; choose a directory of your own"
    )]
    Foreign(PathBuf),
    #[error(
        "{0} can be written by others, who could put another socket there; `chmod go-w {0}` or choose another directory"
    )]
    Open(PathBuf),
    #[error("{path}: {error}")]
    Kernel { path: PathBuf, error: io::Error },
}

/// A listening socket, for this user alone. Its name goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`, where there may be a socket that nobody listens at.
    ///
    /// # Errors
    /// [`ListenError`].
    pub(crate) fn bind(path: &Path) -> Result<Self, ListenError> {
        let kernel = |error| ListenError::Kernel {
            path: path.to_owned(),
            error,
        };
        check_directory(path)?;
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(kernel(error)),
            Ok(there) if !there.file_type().is_socket() => {
                return Err(ListenError::NoSocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(kernel)?;
                }
                Err(error) => return Err(kernel(error)),
                Ok(_) => return Err(ListenError::InUse(path.to_owned())),
            },
        }
        let socket = for_this_user(|| UnixListener::bind(path)).map_err(kernel)?;
        socket.set_nonblocking(true).map_err(kernel)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }

    /// A monitor that has come, if one has.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                    Ok(None)
                }
                _ if is_shortage(&error) => {
                    // It may pass, and the monitor waits as long.
                    sleep(Duration::from_millis(100));
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Descriptors or memory are used up.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

/// What is made meanwhile is this user's alone. To be called before there are threads that make files.
pub(crate) fn for_this_user<T>(make: impl FnOnce() -> T) -> T {
    let before = umask(Mode::RWXG | Mode::RWXO);
    let made = make();
    umask(before);
    made
}

/// The directory must be this user's or root's, and writable by nobody else who could remove the socket.
fn check_directory(path: &Path) -> Result<(), ListenError> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let kernel = |error| ListenError::Kernel {
        path: directory.to_owned(),
        error,
    };
    let there = fs::metadata(directory).map_err(kernel)?;
    const STICKY: u32 = 0o1000;
    if there.uid() != 0 && there.uid() != getuid().as_raw() {
        return Err(ListenError::Foreign(directory.to_owned()));
    }
    if there.mode() & 0o022 != 0 && there.mode() & STICKY == 0 {
        return Err(ListenError::Open(directory.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_stale_socket_is_replaced_and_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card");
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&path).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o077, 0);
        let in_use = Listener::bind(&path).unwrap_err();
        assert!(matches!(in_use, ListenError::InUse(_)));
        assert!(listener.accept().unwrap().is_some());
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "precious").unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert!(matches!(error, ListenError::NoSocket(_)));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_directory_that_others_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert!(matches!(error, ListenError::Open(_)));
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(Listener::bind(&path).is_ok());
    }

    #[test]
    fn a_directory_that_is_not_there_is_told() {
        let error = Listener::bind(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/at: "), "{error}");
    }
}
