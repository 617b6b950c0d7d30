//! The file of `--stats`: always whole, a line of JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::say::say;

/// How often it is written anew.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) struct StatisticsFile {
    path: PathBuf,
    aside: PathBuf,
    written: Instant,
    /// The user knows that it cannot be written.
    told: bool,
}

impl StatisticsFile {
    /// At `path`, with this text.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn new(path: &Path, text: &str) -> Result<Self> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".new");
        let mut file = Self {
            path: path.to_owned(),
            aside: aside.into(),
            written: Instant::now(),
            told: false,
        };
        file.put(text)?;
        Ok(file)
    }

    /// How long until it is to be written.
    pub(crate) fn remaining(&self) -> Duration {
        EVERY.saturating_sub(self.written.elapsed())
    }

    /// It is to be written.
    pub(crate) fn due(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Puts another text in place of the one before. Where that cannot be, the user is told once, and the one before stays.
    pub(crate) fn write(&mut self, text: &str) {
        if let Some(complaint) = self.write_or_complain(text) {
            say!("wireboot nic: {complaint}; the card goes on");
        }
    }

    /// What the user is to be told.
    fn write_or_complain(&mut self, text: &str) -> Option<String> {
        let error = self.put(text).err();
        let told = std::mem::replace(&mut self.told, error.is_some());
        error.filter(|_| !told).map(|error| format!("{error:#}"))
    }

    fn put(&mut self, text: &str) -> Result<()> {
        self.written = Instant::now();
        fs::write(&self.aside, format!("{text}\n"))
            .and_then(|()| fs::rename(&self.aside, &self.path))
            .with_context(|| format!("writing {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_told_of_once_and_again_when_it_could_be_in_between() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        let path = folder.join("stats");
        fs::create_dir(&folder).unwrap();
        let mut file = StatisticsFile::new(&path, "0").unwrap();
        for _ in 0..2 {
            fs::remove_dir_all(&folder).unwrap();
            let complaint = file.write_or_complain("1").unwrap();
            assert!(complaint.contains(path.to_str().unwrap()), "{complaint}");
            assert_eq!(file.write_or_complain("2"), None);
            fs::create_dir(&folder).unwrap();
            assert_eq!(file.write_or_complain("3"), None);
            assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
        }
        assert!(StatisticsFile::new(&folder, "0").is_err());
    }
}
