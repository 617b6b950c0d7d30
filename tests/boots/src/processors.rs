//! Which processor the network runs on, and what happens when that one is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use wireboot_lab::Impairment;
use wireboot_lab::embed;
use wireboot_lab::gdb::Debugger;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER6};
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::server::Server;

use crate::fixture::{Fixture, boot_program, expect};
use crate::system;

pub(crate) fn one_processor(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    fixture.machine.processors = 1;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        r"wireboot: the network runs on the BSP \(bootstrap processor\): the machine has one processor",
    )?;
    fixture.fetched_right(&mut machine)
}

pub(crate) fn bsp_by_option(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("processors=0 floor=1 http://10.77.0.1/wireboot.conf")?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        r"wireboot: the network runs on the BSP \(bootstrap processor\), as the settings say",
    )?;
    // What the service says that it was told.
    expect(
        &mut machine,
        "wireboot: a download ends that brings less than 1024 bytes in 30 s",
    )?;
    fixture.fetched_right(&mut machine)
}

/// A card with three queue pairs, and a processor for each.
pub(crate) fn three_pairs(lab: &Lab, ip: IpVersion, megabytes: usize) -> Result<Fixture<'_>> {
    let options = NetworkOptions {
        queues: 3,
        ..NetworkOptions::of(ip)
    };
    let mut fixture = Fixture::on(lab, options, megabytes)?;
    fixture.machine.processors = 4;
    fixture.machine.memory_mib = 1024;
    fixture.machine.trace = vec!["virtqueue_fill".into()];
    Ok(fixture)
}

/// An engine on each of them.
fn three_engines(lab: &Lab, megabytes: usize) -> Result<Fixture<'_>> {
    let mut fixture = three_pairs(lab, IpVersion::V4, megabytes)?;
    fixture.boot_from_disk("processors=3 http://10.77.0.1/wireboot.conf")?;
    Ok(fixture)
}

pub(crate) const THREE_ENGINES: &str =
    "wireboot: the network runs on processor 1; parts of large files on 2, 3";

pub(crate) fn several_engines(lab: &Lab) -> Result<()> {
    let fixture = three_engines(lab, 20)?;
    let mut server = fixture.serve(&[])?;
    let mut machine = receives_in_parts(&fixture, &mut server)?;
    fixture.runs(&mut machine)
}

/// The network has no IPv4, and the server is the only router.
pub(crate) fn several_engines_over_ipv6(lab: &Lab) -> Result<()> {
    let fixture = three_engines_over_ipv6(lab)?;
    let mut server = fixture.serve(&["--ra"])?;
    receives_in_parts(&fixture, &mut server).map(drop)
}

pub(crate) fn several_engines_by_hash_over_ipv6(lab: &Lab) -> Result<()> {
    steer_by_hash(three_engines_over_ipv6(lab)?, &["--ra"])
}

fn three_engines_over_ipv6(lab: &Lab) -> Result<Fixture<'_>> {
    let mut fixture = three_pairs(lab, IpVersion::V6, 20)?;
    fixture.boot_from_disk(&format!("processors=3 http://[{SERVER6}]/wireboot.conf"))?;
    Ok(fixture)
}

/// Over the network comes a wireboot.efi with settings in it and no entries; what to boot the server says, with a setting that comes too
/// late.
pub(crate) fn several_engines_by_configuration(lab: &Lab) -> Result<()> {
    let fixture = three_pairs(lab, IpVersion::V4, 20)?;
    let program = fixture.system.directory.join("wireboot.efi");
    embed::configuration(&boot_program()?, "processors 3\nfloor 1\n", &program)?;
    fixture.system.configure(&format!(
        "processors 1\ntitle Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    let mut server = fixture.serve_program(&program, &[])?;
    let machine = receives_in_parts(&fixture, &mut server)?;
    let transcript = machine.console.transcript();
    for text in [
        "wireboot: the embedded configuration: processors 3",
        "wireboot: a download ends that brings less than 1024 bytes in 30 s",
        "wireboot.conf: processors 1 comes too late",
    ] {
        ensure!(transcript.contains(text), "the user was not told: {text}");
    }
    Ok(())
}

pub(crate) fn several_engines_by_hash(lab: &Lab) -> Result<()> {
    steer_by_hash(three_engines(lab, 20)?, &[])
}

/// The card steers by a hash of addresses and ports, instead of following what it was last sent.
fn steer_by_hash(mut fixture: Fixture<'_>, serve: &[&str]) -> Result<()> {
    if let Some(card) = &mut fixture.machine.network {
        card.properties.push("rss=on".into());
    }
    fixture.machine.trace.push("virtio_net_rss_*".into());
    let mut server = fixture.serve(serve)?;
    let machine = receives_in_parts(&fixture, &mut server)?;
    let events: Vec<_> = machine
        .trace()
        .into_iter()
        .map(|event| event.name)
        .filter(|name| name.starts_with("virtio_net_rss"))
        .collect();
    ensure!(
        events.iter().any(|name| name == "virtio_net_rss_enable")
            && !events.iter().any(|name| name == "virtio_net_rss_error"),
        "the card does not steer by hash: {events:?}"
    );
    Ok(())
}

pub(crate) fn more_engines_than_queue_pairs(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.processors = 4;
    fixture.boot_from_disk("processors=3 http://10.77.0.1/wireboot.conf")?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: the network runs on processor 1")?;
    expect(
        &mut machine,
        "wireboot: 1 of 3 engines: the machine has no more processors, or the card no more queue pairs",
    )?;
    fixture.fetched_right(&mut machine)
}

/// Bytes that a queue must have brought: less than the first part of the data of any engine, and more than the disk's queue has, which is
/// counted as well.
pub(crate) const SHARE: u64 = 3_000_000;

/// Each of three engines receives a part of the data, by its own queue; Linux starts.
fn receives_in_parts(fixture: &Fixture<'_>, server: &mut Server) -> Result<RunningMachine> {
    fixture.system.check("data.cpio")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, THREE_ENGINES)?;
    fixture.fetched_right(&mut machine)?;
    let parts = server
        .events()?
        .iter()
        .filter(|event| event.event == "http-start" && event.file.ends_with("data.cpio"))
        .count();
    ensure!(parts >= 3, "the data came in {parts} parts");
    let queues = bytes_by_queue(&machine);
    let busy = queues.values().filter(|bytes| **bytes >= SHARE).count();
    ensure!(busy == 3, "the engines' queues brought {queues:?} bytes");
    Ok(machine)
}

/// What each queue of QEMU's virtio devices has brought to the machine, by QEMU's name for the queue.
fn bytes_by_queue(machine: &RunningMachine) -> BTreeMap<String, u64> {
    let mut queues = BTreeMap::new();
    for event in machine.trace() {
        let words: Vec<_> = event.arguments.split(' ').collect();
        if let ("virtqueue_fill", ["vq", queue, "elem", _, "len", len, ..]) =
            (event.name.as_str(), words.as_slice())
            && let Ok(len) = len.parse::<u64>()
        {
            *queues.entry((*queue).to_owned()).or_default() += len;
        }
    }
    queues
}

pub(crate) fn a_worker_hangs(lab: &Lab) -> Result<()> {
    // Much, so that the download is under way when the machine is stopped.
    let mut fixture = three_engines(lab, 100)?;
    let stub = fixture.debugged();
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, THREE_ENGINES)?;
    Debugger::attach(&stub)?.run(3, CIRCLE)?;
    expect(
        &mut machine,
        r"wireboot: warning: processor 2 is lost \(it stopped answering\); going on with the BSP \(bootstrap processor\)",
    )?;
    fixture.arrives(&mut machine)
}

/// Machine code: jump to yourself.
pub(crate) const CIRCLE: &[u8] = &[0xeb, 0xfe];
/// Machine code: an instruction that there is not.
const UNDEFINED: &[u8] = &[0x0f, 0x0b];
/// Machine code: push, and again.
const PUSH_FOR_EVER: &[u8] = &[0x50, 0xeb, 0xfd];

pub(crate) fn processor_hangs(lab: &Lab) -> Result<()> {
    processor_is_lost(lab, CIRCLE, "it stopped answering")
}

/// The boot goes on over the firmware's driver, which the BSP has called all the time.
pub(crate) fn processor_of_a_relay_hangs(lab: &Lab) -> Result<()> {
    processor_is_lost_by(
        lab,
        Some("nic=snp processors=1 http://10.77.0.1/wireboot.conf"),
        CIRCLE,
        "it stopped answering",
    )
}

pub(crate) fn processor_faults(lab: &Lab) -> Result<()> {
    processor_is_lost(lab, UNDEFINED, "invalid opcode at 0x[0-9a-f]+, .*")
}

pub(crate) fn processor_exhausts_its_stack(lab: &Lab) -> Result<()> {
    processor_is_lost(
        lab,
        PUSH_FOR_EVER,
        "page fault for address 0x[0-9a-f]+ at .*",
    )
}

/// In mid-transfer the processor does something that it should not; the boot goes on without it.
fn processor_is_lost(lab: &Lab, code: &[u8], reason: &str) -> Result<()> {
    processor_is_lost_by(lab, None, code, reason)
}

/// A network that is slow enough to meet a transfer under way.
pub(crate) fn slow() -> NetworkOptions {
    NetworkOptions {
        impairment: Some(Impairment {
            loss: 0.0,
            delay: Duration::ZERO,
            rate: Some(40_000_000),
            seed: 1,
        }),
        ..NetworkOptions::default()
    }
}

/// The same with load options.
fn processor_is_lost_by(
    lab: &Lab,
    load_options: Option<&str>,
    code: &[u8],
    reason: &str,
) -> Result<()> {
    let mut fixture = Fixture::on(lab, slow(), 16)?;
    match load_options {
        Some(load_options) => fixture.boot_from_disk(load_options)?,
        None => fixture = fixture.by_stick()?,
    }
    let stub = fixture.debugged();
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: the network runs on processor 1")?;
    expect(&mut machine, r"wireboot: .*data\.cpio [1-9][0-9.]*/")?;
    Debugger::attach(&stub)?.run(2, code)?;
    expect(
        &mut machine,
        &format!(
            r"wireboot: warning: processor 1 is lost \({reason}\); going on with the BSP \(bootstrap processor\)"
        ),
    )?;
    fixture.arrives(&mut machine)
}
