//! A boot configuration inside wireboot.efi, the way of `docs/deploy.md`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::netns::tool;

/// Writes a copy of `program` that has `configuration` in it to `to`, and the configuration itself beside that.
///
/// # Errors
/// When objcopy (package binutils) is missing, or refuses the program; when the disk is full.
pub fn configuration(program: &Path, configuration: &str, to: &Path) -> Result<()> {
    let text = to.with_extension("conf.embedded");
    fs::write(&text, configuration).with_context(|| format!("writing {}", text.display()))?;
    let mut section = OsString::from(".wbconf=");
    section.push(&text);
    tool(
        "objcopy",
        [
            "--add-section".as_ref(),
            section.as_os_str(),
            "--set-section-flags".as_ref(),
            ".wbconf=data,readonly".as_ref(),
            "--change-section-vma".as_ref(),
            ".wbconf=0x140400000".as_ref(),
            program.as_os_str(),
            to.as_os_str(),
        ],
    )
    .context("embedding a configuration")
}
