//! The file of `--stats`: always whole, a line of JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How often it is written anew.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) struct StatisticsFile {
    path: PathBuf,
    aside: PathBuf,
    written: Instant,
}

impl StatisticsFile {
    /// At `path`, with this text.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(path: &Path, text: &str) -> Result<Self> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".new");
        let mut file = Self {
            path: path.to_owned(),
            aside: aside.into(),
            written: Instant::now(),
        };
        file.write(text)?;
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

    /// Puts another text in place of the one before.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        self.written = Instant::now();
        fs::write(&self.aside, format!("{text}\n"))
            .and_then(|()| fs::rename(&self.aside, &self.path))
            .with_context(|| format!("writing {}", self.path.display()))
    }
}
