//! Files that a command is to write: what cannot be written is told before the work, not hours later when there is something
//! to write. Those that nobody asked for are not made.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

/// Reads the path of a file to be written from the command line. It leads there from other directories, too: tools run in ones of their own.
///
/// # Errors
/// When no such file can be, and why.
pub fn file(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() {
        return Err("it is a directory".into());
    }
    let (Some(parent), Some(_)) = (path.parent(), path.file_name()) else {
        return Err("it is not the name of a file".into());
    };
    if !parent.as_os_str().is_empty() && !parent.is_dir() {
        return Err(format!("there is no directory {}", parent.display()));
    }
    std::path::absolute(&path).map_err(|error| error.to_string())
}

/// Writes figures as JSON.
///
/// # Errors
/// When they are none of JSON's, or the file cannot be written.
pub fn json(file: Option<&Path>, figures: &impl Serialize) -> Result<()> {
    let Some(path) = file else {
        return Ok(());
    };
    let text = serde_json::to_string_pretty(figures)
        .with_context(|| format!("making JSON for {}", path.display()))?;
    self::text(file, || text + "\n")
}

/// Writes the text that `make` makes.
///
/// # Errors
/// When the file cannot be written.
pub fn text(file: Option<&Path>, make: impl FnOnce() -> String) -> Result<()> {
    match file {
        Some(file) => {
            fs::write(file, make()).with_context(|| format!("writing {}", file.display()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_written_or_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("figures.json");
        json(Some(&path), &[1, 2]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
        text(None, || panic!("nobody asked for it")).unwrap();
        let error = text(Some(place.path()), String::new).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&place.path().display().to_string())
        );
    }

    #[test]
    fn a_file_needs_a_directory_to_be_in() {
        let place = tempfile::tempdir().unwrap();
        let inside = |name: &str| place.path().join(name).display().to_string();
        assert_eq!(file(&inside("new.json")), Ok(inside("new.json").into()));
        let here = std::env::current_dir().unwrap();
        assert_eq!(file("new.json"), Ok(here.join("new.json")));
        let error = file(&inside("none/new.json")).unwrap_err();
        assert_eq!(error, format!("there is no directory {}", inside("none")));
        assert_eq!(file(&inside("")).unwrap_err(), "it is a directory");
        for not_a_name in ["", "/nowhere/.."] {
            assert!(file(not_a_name).is_err(), "{not_a_name}");
        }
    }
}
