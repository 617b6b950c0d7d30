//! `wireboot nic probe`: a look at whoever's card, by being its guest.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::probe::Probe;

/// Look at a card that listens at a socket, whoever made it: be a machine without being one.
///
/// Connects as a monitor does, and runs wireboot's driver and network stack on the card's queues. Prints what the card offers, whether frames go both ways, and
/// which address DHCP gives. With --fetch it downloads a file, and prints its size, the rate and its sum. The card must have no other guest.
///
/// Ends with 0 when something came back, and the file, if one was to be fetched; with 1 when not, or when there is no card.
#[derive(Args, Clone, Debug)]
pub struct ProbeArgs {
    /// Where the card listens
    pub socket: PathBuf,
    /// Download this file
    #[arg(long, value_name = "URL")]
    pub fetch: Option<String>,
    /// How long to wait for an address
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub patience: u64,
    /// Write what was found out to FILE
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
}

pub(super) fn probe(arguments: &ProbeArgs) -> Result<()> {
    let patience = Duration::from_secs(arguments.patience);
    let probe = Probe::new(&arguments.socket, patience, arguments.fetch.as_deref())?;
    print!("{probe}");
    if let Some(file) = &arguments.json {
        fs::write(file, serde_json::to_string_pretty(&probe)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    match probe.failure() {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}
