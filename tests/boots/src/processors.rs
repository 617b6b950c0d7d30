//! Which processor the network runs on, and what happens when that one is lost.

use std::time::Duration;

use anyhow::Result;
use wireboot_lab::Impairment;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;

use crate::gdb::Debugger;
use crate::scene::{Scene, expect};

pub fn one_processor(lab: &Lab) -> Result<()> {
    let mut scene = Scene::new(lab)?;
    scene.machine.processors = 1;
    let _server = scene.serve(&[])?;
    let mut machine = scene.start()?;
    expect(
        &mut machine,
        "wireboot: the network runs on the boot processor: the machine has one processor",
    )?;
    scene.arrives(&mut machine)
}

pub fn boot_processor_by_option(lab: &Lab) -> Result<()> {
    let mut scene = Scene::new(lab)?;
    scene.boot_from_disk("processors=0 http://10.77.0.1/wireboot.conf")?;
    let _server = scene.serve(&[])?;
    let mut machine = scene.start()?;
    expect(
        &mut machine,
        "wireboot: the network runs on the boot processor, as the load options say",
    )?;
    scene.arrives(&mut machine)
}

/// Machine code: jump to yourself.
const CIRCLE: &[u8] = &[0xeb, 0xfe];
/// Machine code: an instruction that there is not.
const UNDEFINED: &[u8] = &[0x0f, 0x0b];
/// Machine code: push, and again.
const PUSH_FOR_EVER: &[u8] = &[0x50, 0xeb, 0xfd];

pub fn processor_hangs(lab: &Lab) -> Result<()> {
    processor_is_lost(lab, CIRCLE, "it stopped answering")
}

pub fn processor_faults(lab: &Lab) -> Result<()> {
    processor_is_lost(lab, UNDEFINED, "invalid opcode at 0x[0-9a-f]+, .*")
}

pub fn processor_exhausts_its_stack(lab: &Lab) -> Result<()> {
    processor_is_lost(
        lab,
        PUSH_FOR_EVER,
        "page fault for address 0x[0-9a-f]+ at .*",
    )
}

/// In mid-transfer the processor does something that it should not; the boot goes on without it.
fn processor_is_lost(lab: &Lab, code: &[u8], reason: &str) -> Result<()> {
    let options = NetworkOptions {
        impairment: Some(Impairment {
            // Slow enough to meet it at work.
            loss: 0.0,
            delay: Duration::ZERO,
            rate: Some(40_000_000),
            seed: 1,
        }),
        ..NetworkOptions::default()
    };
    let mut scene = Scene::on(lab, options, 16)?;
    let stub = lab.scratch().join("gdb");
    scene.machine.extra.extend([
        "-gdb".into(),
        format!("unix:{},server=on,wait=off", stub.display()).into(),
    ]);
    let _server = scene.serve(&[])?;
    let mut machine = scene.start()?;
    expect(&mut machine, "wireboot: the network runs on processor 1")?;
    expect(&mut machine, r"wireboot: .*data\.cpio [1-9][0-9.]*/")?;
    Debugger::attach(&stub)?.run(2, code)?;
    expect(
        &mut machine,
        &format!(
            r"wireboot: warning: processor 1 is lost \({reason}\); going on with the boot processor"
        ),
    )?;
    scene.arrives(&mut machine)
}
