//! A folder that is held open, and what lies below it.
//!
//! Names come from the network. The kernel itself keeps them below the folder (`openat2` with `RESOLVE_BENEATH`): neither
//! `..` nor an absolute or outward symbolic link gets out, and there is no moment between check and use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::Mode;

use crate::content::{Content, OpenError};

/// Where a file system keeps what its check found, for root alone.
const LOST_AND_FOUND: &str = "lost+found";
/// How often opening a name is tried when something is renamed or mounted each time.
const TRIES: usize = 8;

/// A folder. It need not be readable itself.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub name: String,
    /// A folder itself; false for a link to one.
    pub is_folder: bool,
}

impl Folder {
    /// # Errors
    /// When `path` is no folder.
    pub(crate) fn open(path: &Path) -> nix::Result<Self> {
        let how = OFlag::O_DIRECTORY | OFlag::O_PATH | OFlag::O_CLOEXEC;
        open(path, how, Mode::empty()).map(Self)
    }

    /// Whether a client gets a file by this name: it cannot name one with a backslash, which it means as a slash.
    pub(crate) fn serves(&self, name: &str) -> bool {
        !name.contains('\\') && self.file(name).is_ok()
    }

    /// What the folder `name` below this one holds, sorted by name; an empty name is this one's.
    ///
    /// # Errors
    /// When it is no folder, or cannot be read.
    pub(crate) fn entries(&self, name: &str) -> Result<Vec<Entry>, OpenError> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = if name.is_empty() {
            openat(&self.0, ".", how, Mode::empty())?
        } else {
            self.below(name, how)?
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

    /// Files and folders below that the server may not read, of the first `most` that it comes to. What belongs to the file
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
                } else if matches!(self.file(&name), Err(OpenError::Denied)) {
                    denied.push(name);
                }
            }
        }
        denied
    }

    /// Opens the file `name` below.
    ///
    /// # Errors
    /// [`OpenError`], also where `name` leads out.
    pub(crate) fn file(&self, name: &str) -> Result<Content, OpenError> {
        if name.is_empty() {
            return Err(OpenError::NotAFile);
        }
        // Without O_NONBLOCK, opening a named pipe would wait for its writer.
        let how = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        Content::from_file(self.below(name, how)?)
    }

    /// Opens what lies below by this name, whatever it is.
    fn below(&self, name: &str, how: OFlag) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(how)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        retrying_eagain(|| openat2(&self.0, name, how))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Folder> for OwnedFd {
    fn from(folder: Folder) -> Self {
        folder.0
    }
}

/// Opens again where the kernel gives up: at a `..`, when anything is renamed or mounted meanwhile (openat2(2), `EAGAIN`).
fn retrying_eagain<T>(mut open: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    for _ in 1..TRIES {
        match open() {
            Err(Errno::EAGAIN) => {}
            result => return result,
        }
    }
    open()
}

fn is_folder(above: &Dir, name: &str) -> bool {
    let how = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(above, name, how, Mode::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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

    #[test]
    fn what_a_rename_disturbs_is_opened_again_but_not_for_ever() {
        let opened = |disturbed: usize, then: nix::Result<()>| {
            let mut tries = 0;
            let result = retrying_eagain(|| {
                tries += 1;
                if tries > disturbed {
                    then
                } else {
                    Err(Errno::EAGAIN)
                }
            });
            (result, tries)
        };
        assert_eq!(opened(0, Ok(())), (Ok(()), 1));
        assert_eq!(opened(TRIES - 1, Ok(())), (Ok(()), TRIES));
        assert_eq!(opened(TRIES, Ok(())), (Err(Errno::EAGAIN), TRIES));
        assert_eq!(
            opened(2, Err(Errno::ENOENT)),
            (Err(Errno::ENOENT), 3),
            "a reason of its own"
        );
    }
}
