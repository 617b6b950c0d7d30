//! `wireboot lab ttcp`: what messages of several sizes bring, and what a packet and a byte cost, by card, driver and version of IP.
//!
//! ```text
//! each round ── each card and driver ── IPv4, IPv6 ── doctor.efi ttcp=... ──> iperf3's server ──> medians, lines through the costs
//! ```

mod report;
mod trial;

use anyhow::{Context, Result, bail};
use clap::Args;

use report::{Rows, TtcpReport};
use trial::{SETUPS, Setup, TtcpTestbed, VERSIONS};
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::packages::Package;
use wireboot_lab::progress;
use wireboot_lab::results::ResultsArgs;

/// Measure what messages of several sizes bring by TCP and UDP, and what a packet and a byte cost, card by card and driver by driver
///
/// Debian's iperf3 is the server. One machine boots after the other, round after round: each card with each of its drivers, over IPv4 and IPv6, in
/// packets of 1500 bytes and of 9000. Cycles are ticks of the time-stamp counter in turns of the engine that moved something.
#[derive(Clone, Debug, Args)]
pub struct TtcpArgs {
    /// How often each is measured, by turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Only cards and drivers whose names contain one of these: `--only virtio,UNDI`
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    pub only: Vec<String>,
    /// What runs the guests' instructions
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AcceleratorChoice,
    #[command(flatten)]
    results: ResultsArgs,
}

/// Measures, and tells. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the lab does not work, or a card and driver gave no figure; the report is written all the same.
pub fn run(arguments: TtcpArgs) -> Result<()> {
    let chosen = chosen(&arguments.only)?;
    let doctor = firmware_program(None, "doctor.efi").context("make build makes it")?;
    let lab = Lab::enter()?;
    let busy = arguments.results.quiet()?;
    let accelerator = arguments.accel.choose(&lab)?;
    let server = Package::installed("iperf3").context("the server of this measurement")?;
    let roms = Package::installed("ipxe-qemu").context("the cards' option ROMs")?;
    let versions = vec![
        format!("iperf3 {}", server.version),
        format!("ipxe-qemu {}", roms.version),
    ];
    let host = Host::new(
        Some(&doctor),
        busy,
        accelerator,
        IpVersion::V4,
        1500,
        versions,
    )
    .with_several_networks();
    let testbed = TtcpTestbed {
        lab: &lab,
        accelerator,
        command: std::env::current_exe().context("finding this program's own file")?,
        doctor,
    };
    let mut rows = Rows::of(&chosen);
    let boots = arguments.rounds as usize * chosen.len() * VERSIONS.len();
    let bar = progress::bar(boots as u64);
    for round in 1..=arguments.rounds {
        for setup in &chosen {
            for ip in VERSIONS {
                bar.set_message(format!("round {round}: {}, {ip}", setup.name));
                let found = testbed.measure(setup, ip);
                if let Err(error) = &found {
                    let name = setup.name;
                    bar.suspend(|| eprintln!("round {round}: {name}, {ip}: {error:#}"));
                }
                rows.add(setup, ip, found);
                bar.inc(1);
            }
        }
        save(&TtcpReport::new(&host, &rows), &arguments)?;
    }
    bar.finish_and_clear();
    println!("{}", TtcpReport::new(&host, &rows).text());
    match rows.failed() {
        0 => Ok(()),
        count => bail!("{count} boots gave no figure; the reasons are above"),
    }
}

fn chosen(only: &[String]) -> Result<Vec<&'static Setup>> {
    let wanted =
        |setup: &&Setup| only.is_empty() || only.iter().any(|word| setup.name.contains(word));
    let chosen: Vec<_> = SETUPS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<_> = SETUPS.iter().map(|setup| setup.name).collect();
        bail!(
            "no card and driver has that name; there are: {}",
            names.join("; ")
        );
    }
    Ok(chosen)
}

fn save(report: &TtcpReport<'_>, arguments: &TtcpArgs) -> Result<()> {
    arguments.results.write(report, || report.markdown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_among_cards_and_drivers() {
        let named = |word: &str| chosen(&[word.to_owned()]).map(|setups| setups.len());
        assert_eq!(named("UNDI").unwrap(), 1);
        assert_eq!(named("SNP").unwrap(), 2);
        assert_eq!(chosen(&[]).unwrap().len(), SETUPS.len());
        let refused = named("token ring").unwrap_err().to_string();
        assert!(refused.contains("e1000, UNDI"), "{refused}");
    }
}
