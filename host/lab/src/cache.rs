//! Where the lab keeps what it need not find out, fetch or build again.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The lab's directory in the user's cache (XDG Base Directory Specification), made when it is not there:
/// `$XDG_CACHE_HOME/wireboot`, else `~/.cache/wireboot`.
///
/// # Errors
/// When there is no home directory or the directory cannot be made.
pub fn directory() -> Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
    {
        Some(cache) => cache,
        None => std::env::home_dir()
            .context("no home directory: set XDG_CACHE_HOME")?
            .join(".cache"),
    };
    let directory = cache.join("wireboot");
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    Ok(directory)
}
