//! `wireboot lab loaders`, in short.

use std::mem::discriminant;

use anyhow::{Context, Result, ensure};
use wireboot_experiments::loaders::{self, Loader, LoadersReport, Network, Plan, Programs};
use wireboot_lab::netns::Lab;
use wireboot_lab::packages::Package;

use crate::fixture::{boot_program, callers_program, doctor_program, wireboot};

/// The smallest file that the measurement has: how fast it comes is of no interest here.
const BYTES: u64 = 1 << 20;

fn measured(lab: &Lab, loaders: Vec<Loader>, networks: Vec<Network>) -> Result<LoadersReport> {
    let programs = Programs {
        wireboot: boot_program()?,
        callers: callers_program()?,
        doctor: doctor_program()?,
        command: wireboot()?,
    };
    let plan = Plan {
        loaders,
        networks,
        absent: Vec::new(),
        rounds: 1,
        bytes: BYTES,
        cold: false,
        busy: 0.0,
    };
    loaders::measure(lab, &programs, plan, |_| Ok(()))
}

/// Each kind of loader has a figure over wireboot's network, and one is compared with stock firmware. How high it is depends on the host.
pub(crate) fn each_kind_of_loader_is_measured(lab: &Lab) -> Result<()> {
    let (mut others, absent) = loaders::loaders(Package::installed);
    ensure!(absent.is_empty(), "{absent:?}");
    // One of each kind: the calls of others, GRUB and iPXE differ by their server alone.
    others.dedup_by_key(|loader| discriminant(&loader.program));
    let first = others.drain(..1).collect();
    let (networks, _) = loaders::networks(false)?;
    let (stock, ours): (Vec<_>, Vec<_>) = networks
        .into_iter()
        .partition(|network| network.wireboot.is_none());
    let stock = stock.first().context("no stock firmware")?;
    let both = [std::slice::from_ref(stock), &ours].concat();
    let report = measured(lab, first, both)?;
    let row = report.rows.first().with_context(|| report.text())?;
    let figure = row.figures.get("wireboot").with_context(|| report.text())?;
    let times = figure.times_stock.get(stock.id);
    ensure!(times.is_some_and(|times| *times > 0.0), report.text());

    let report = measured(lab, others.clone(), ours)?;
    for loader in others {
        let mut rows = report.rows.iter();
        let row = rows.find(|row| row.id == loader.id);
        let figure = row.and_then(|row| row.figures.get("wireboot"));
        ensure!(
            figure.is_some_and(|figure| figure.median > 0.0),
            "{} has no figure:\n{}",
            loader.id,
            report.text()
        );
    }
    Ok(())
}
