//! Files that examinations leave.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use wireboot_report::Report;

use crate::{html, text};

/// Where a report goes besides the terminal.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Write the report to FILE, for `wireboot report` and for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to FILE as a page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl OutputArgs {
    /// Prints the report, and writes it where it is wanted.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn give(&self, report: &Report) -> Result<()> {
        print!("{}", text::shown(report));
        if let Some(file) = &self.json {
            write(file, &(report.to_json() + "\n"))?;
        }
        if let Some(file) = &self.html {
            write(file, &html::page(report))?;
        }
        Ok(())
    }
}

pub(crate) fn write(file: &Path, content: &str) -> Result<()> {
    std::fs::write(file, content).with_context(|| format!("writing {}", file.display()))
}
