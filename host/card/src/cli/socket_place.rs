//! Where a card listens of which nobody says where.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The name of the socket.
const NAME: &str = "wireboot-card";

/// A place for a socket. A directory that was made for it goes with it.
#[derive(Debug)]
pub(super) struct SocketPlace {
    path: PathBuf,
    made: Option<PathBuf>,
}

impl SocketPlace {
    /// `wanted`, from the working directory on.
    ///
    /// # Errors
    /// Where there is no working directory.
    pub(super) fn at(wanted: &Path) -> Result<Self> {
        Ok(Self {
            // Monitors have working directories of their own.
            path: std::path::absolute(wanted)?,
            made: None,
        })
    }

    /// The one of which nobody says where.
    ///
    /// # Errors
    /// When no directory can be made.
    pub(super) fn usual() -> Result<Self> {
        Self::usual_of(std::env::var_os("XDG_RUNTIME_DIR"), &std::env::temp_dir())
    }

    fn usual_of(runtime: Option<OsString>, temporary: &Path) -> Result<Self> {
        let runtime = runtime.map(PathBuf::from);
        if let Some(directory) = runtime.filter(|path| path.is_absolute() && path.is_dir()) {
            return Ok(Self {
                path: directory.join(NAME),
                made: None,
            });
        }
        // Nobody else of this user's has this process' number. Where another user has taken the name, making it fails.
        let directory = temporary.join(format!("{NAME}-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .with_context(|| {
                format!("making {}; name a place with --socket", directory.display())
            })?;
        Ok(Self {
            path: directory.join("socket"),
            made: Some(directory),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder from which a name goes at the end: that of the socket, or that of the directory around it.
    pub(super) fn emptied(&self) -> Option<PathBuf> {
        let last = self.made.as_deref().unwrap_or(&self.path);
        last.parent().map(Path::to_owned)
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        if let Some(directory) = &self.made {
            let _ = fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_usual_place_is_the_users_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let runtime = scratch.path().join("runtime");
        fs::create_dir(&runtime).unwrap();
        let place = SocketPlace::usual_of(Some(runtime.clone().into()), scratch.path()).unwrap();
        assert_eq!(place.path(), runtime.join("wireboot-card"));
        drop(place);
        assert!(runtime.is_dir());
        for none in [
            None,
            Some("relative".into()),
            Some("/nowhere/at/all".into()),
        ] {
            let place = SocketPlace::usual_of(none, scratch.path()).unwrap();
            let directory = place.path().parent().unwrap().to_owned();
            assert_eq!(directory.parent(), Some(scratch.path()));
            let mode = fs::metadata(&directory).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            drop(place);
            assert!(!directory.exists());
        }
    }

    #[test]
    fn a_place_that_cannot_be_made_is_told() {
        let error = SocketPlace::usual_of(None, Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("--socket"), "{error}");
    }
}
