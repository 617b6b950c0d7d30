//! What all commands that measure ask: where their figures go, and whether the host may be busy.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::host;

/// Where figures go, and from which host.
#[derive(Clone, Debug, Args)]
pub struct ResultsArgs {
    /// Write all figures to FILE as JSON
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    json: Option<PathBuf>,
    /// Write the tables to FILE as Markdown
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    markdown: Option<PathBuf>,
    /// Measure although the host is busy with something else
    #[arg(long)]
    force: bool,
}

impl ResultsArgs {
    /// How busy the host is, as [`host::quiet`] has it.
    ///
    /// # Errors
    /// When it is too busy, and nobody said that it may be.
    pub fn quiet(&self) -> Result<f64> {
        host::quiet(self.force)
    }

    /// Writes the files that were asked for.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn write(&self, figures: &impl Serialize, tables: impl FnOnce() -> String) -> Result<()> {
        wireboot_output::json(self.json.as_deref(), figures)?;
        wireboot_output::text(self.markdown.as_deref(), tables)
    }
}
