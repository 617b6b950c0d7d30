//! `wireboot nic check`: what is in a program for the card, or why the card would not run it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use crate::program::{Hook, Program};

/// Tell what a program for the card has in it, and whether the card would run it.
///
/// Ends with 0 for a program that `wireboot nic run --program FILE` takes, else with 1 and the instruction and the reason.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// What `clang -target bpf -O2 -c` made
    pub file: PathBuf,
    /// Write the same to FILE
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
}

/// What is told of a program.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ProgramReport {
    hooks: Vec<HookReport>,
    maps: Vec<MapReport>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct HookReport {
    section: &'static str,
    instructions: usize,
    longest_path: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct MapReport {
    name: String,
    entries: u32,
}

/// A program that the card runs.
///
/// # Errors
/// What is wrong with it.
pub(super) fn open(file: &Path) -> Result<Program> {
    Program::open(file).with_context(|| format!("the program {}", file.display()))
}

impl CheckArgs {
    pub(super) fn run(&self) -> Result<()> {
        let report = ProgramReport::new(open(&self.file)?);
        print!("{}", report.text());
        if let Some(file) = &self.json {
            fs::write(file, serde_json::to_string_pretty(&report)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }
}

impl ProgramReport {
    fn new(program: Program) -> Self {
        let hooks = Hook::ALL.into_iter().zip(program.hooks);
        let hooks = hooks.filter_map(|(hook, code)| {
            let code = code?;
            Some(HookReport {
                section: hook.name(),
                instructions: code.instructions.len(),
                longest_path: code.longest,
            })
        });
        let maps = program.maps.into_iter().map(|map| MapReport {
            name: map.name,
            entries: map.entries,
        });
        Self {
            hooks: hooks.collect(),
            maps: maps.collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for hook in &self.hooks {
            let HookReport {
                section,
                instructions,
                longest_path,
            } = hook;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "section {section}: {instructions} instructions, {longest_path} on the longest path"
            );
        }
        for map in &self.maps {
            let _ = writeln!(text, "map {}: {} entries", map.name, map.entries);
        }
        text
    }
}
