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
    /// The system's.
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
        let result = self.put(text);
        if let Err(error) = &result
            && !self.told
        {
            say!("wireboot nic: {error:#}; the card goes on");
        }
        self.told = result.is_err();
    }

    fn put(&mut self, text: &str) -> Result<()> {
        self.written = Instant::now();
        fs::write(&self.aside, format!("{text}\n"))
            .and_then(|()| fs::rename(&self.aside, &self.path))
            .with_context(|| format!("writing {}", self.path.display()))
    }
}
