//! Counts the instructions of the card and its guest: `cargo xtask results nic-instructions`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use wireboot_host_card::instructions::{InstructionsReport, Subject, run};
use wireboot_lab::host::{self, Host};

#[derive(Parser)]
struct Arguments {
    /// Do once what is counted, for callgrind
    #[arg(long)]
    subject: Option<Subject>,
    /// Write the counts to FILE as JSON
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    json: Option<PathBuf>,
    /// Write the table to FILE in Markdown
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    markdown: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(subject) = arguments.subject {
        return run(subject);
    }
    let program = std::env::current_exe().context("finding this program's own file")?;
    let host = Host {
        command: "make results ARGS=nic-instructions".to_owned(),
        ..Host::without_guests(host::other_work(), Vec::new())
    };
    let report = InstructionsReport::new(&program)?;
    print!("{}", report.markdown());
    wireboot_output::json(arguments.json.as_deref(), &host.before(&report))?;
    wireboot_output::text(arguments.markdown.as_deref(), || report.markdown())
}
