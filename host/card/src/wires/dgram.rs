//! Frames as datagrams between two sockets of this host, one each, as QEMU's `-netdev dgram` has them.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use wireboot_card::{Header, Received, Span, Unit};

use super::throw_away;
use crate::listener::for_this_user;
use crate::memory::{Mapping, few};

/// Bytes of a link header.
const LINK: usize = 14;
/// Bytes of a tag.
const TAG: usize = 4;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DgramError {
    #[error("{0}: another process has it; choose another socket, or end it")]
    InUse(PathBuf),
    #[error("{0} is there and is no socket; choose another, or remove it")]
    NoSocket(PathBuf),
    #[error("{path}: {error}")]
    Kernel { path: PathBuf, error: io::Error },
}

/// A wire of datagrams: a Unix socket of ours, and the path of the peer's.
#[derive(Debug)]
pub(crate) struct Dgram {
    socket: UnixDatagram,
    local: PathBuf,
    remote: PathBuf,
    /// The other end was there when last looked for.
    connected: bool,
    /// Frames in very many pieces, and the end of one that is too long.
    aside: Box<[u8]>,
}

impl Dgram {
    /// Takes what is sent to `local`, packets of up to `mtu` bytes, and sends to `remote`, which may come later.
    ///
    /// # Errors
    /// [`DgramError`].
    pub(crate) fn open(local: &Path, remote: &Path, mtu: u16) -> Result<Self, DgramError> {
        let kernel = |error| DgramError::Kernel {
            path: local.to_owned(),
            error,
        };
        match std::fs::symlink_metadata(local) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(kernel(error)),
            Ok(there) if !there.file_type().is_socket() => {
                return Err(DgramError::NoSocket(local.to_owned()));
            }
            Ok(_) => {
                let asks = UnixDatagram::unbound().map_err(kernel)?;
                match asks.connect(local) {
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        std::fs::remove_file(local).map_err(kernel)?;
                    }
                    // Of another type, it is somebody's too.
                    _ => return Err(DgramError::InUse(local.to_owned())),
                }
            }
        }
        let socket = for_this_user(|| UnixDatagram::bind(local)).map_err(kernel)?;
        let end = Self {
            socket,
            local: local.to_owned(),
            remote: remote.to_owned(),
            connected: false,
            aside: vec![0; LINK + TAG + usize::from(mtu)].into_boxed_slice(),
        };
        end.socket.set_nonblocking(true).map_err(kernel)?;
        Ok(end)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn max_unit(&self) -> usize {
        self.aside.len()
    }

    /// False when nobody is there, or too much waits there.
    pub(super) fn send(&mut self, memory: &Mapping, unit: &Unit<'_>) -> bool {
        // Who was there may have gone, and come back.
        (0..2).any(|_| self.is_connected() && self.write(memory, unit))
    }

    fn is_connected(&mut self) -> bool {
        self.connected = self.connected || self.socket.connect(&self.remote).is_ok();
        self.connected
    }

    fn write(&mut self, memory: &Mapping, unit: &Unit<'_>) -> bool {
        let put = if few(unit.spans) {
            memory.write_to(self.socket.as_fd(), unit.head, unit.spans)
        } else {
            self.write_aside(memory, unit)
        };
        let gone = |error: &io::Error| !matches!(error.kind(), ErrorKind::WouldBlock);
        self.connected = !put.as_ref().is_err_and(gone);
        put.is_ok_and(|put| put == unit.len)
    }

    #[cold]
    fn write_aside(&mut self, memory: &Mapping, unit: &Unit<'_>) -> io::Result<usize> {
        let outside = || io::Error::from(ErrorKind::InvalidInput);
        let frame = self.aside.get_mut(..unit.len).ok_or_else(outside)?;
        let (head, rest) = frame
            .split_at_mut_checked(unit.head.len())
            .ok_or_else(outside)?;
        head.copy_from_slice(unit.head);
        memory.gather(unit.spans, rest).map_err(|_| outside())?;
        self.socket.send(frame)
    }

    /// What came before is nobody's.
    pub(super) fn restart(&mut self) {
        throw_away(self.socket.as_fd(), &mut self.aside);
    }

    pub(super) fn receive(&mut self, memory: &Mapping, room: &[Span]) -> Received {
        let direct = few(room);
        let spans = if direct { room } else { &[] };
        let got = memory.read_from(self.socket.as_fd(), &mut [], spans, &mut self.aside);
        // What fails now says nothing of the next frame.
        let Ok(len) = got else {
            return Received::Nothing;
        };
        let space: usize = room.iter().map(|span| span.len as usize).sum();
        let aside = self.aside.get(..len).unwrap_or_default();
        if len < LINK {
            // No frame.
            return Received::Kept;
        }
        if len > space || (!direct && memory.scatter(room, 0, aside).is_err()) {
            return Received::TooLong;
        }
        Received::Unit {
            header: Header::default(),
            len,
        }
    }
}

impl Drop for Dgram {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.local);
    }
}

#[cfg(test)]
mod tests;
