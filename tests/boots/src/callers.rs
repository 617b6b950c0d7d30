//! Calls of boot loaders that are not at hand, by a program of ours, over wireboot's network and over the firmware's.

use std::fs;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;
use wireboot_lab::qemu::RunningMachine;

use crate::scene::{Scene, boot_program, callers_program, expect};

/// Answers that the specification gives.
const PASSED: usize = 43;
/// What loaders read.
pub(crate) const FILE: &str = "system.cpio";

/// `callers.efi` with `jobs` in it.
pub(crate) fn prepare(scene: &Scene<'_>, jobs: &str) -> Result<()> {
    let program = scene.system.directory.join("callers.efi");
    embed::configuration(&callers_program()?, jobs, &program)
}

/// Each verb gets the file whole.
pub(crate) fn gets(scene: &Scene<'_>, machine: &mut RunningMachine, verbs: &[&str]) -> Result<()> {
    let sha256 = scene.system.digest_of(FILE)?;
    let bytes = fs::metadata(scene.system.directory.join(FILE))
        .context(FILE)?
        .len();
    for verb in verbs {
        expect(
            machine,
            &format!("callers: {verb} .*: {bytes} bytes in .* sha256 {sha256}"),
        )?;
    }
    Ok(())
}

fn jobs(verbs: &[&str]) -> String {
    verbs
        .iter()
        .map(|verb| format!("{verb} {FILE}\n"))
        .collect()
}

/// Every verb whose protocols wireboot has, and all statuses of the specification.
pub(crate) fn over_ours(lab: &Lab) -> Result<()> {
    const VERBS: [&str; 7] = [
        "openbsd",
        "esxi-tftp",
        "limine",
        "shim",
        "wds",
        "netbsd",
        "freebsd-snp",
    ];
    let scene = Scene::new(lab)?;
    prepare(&scene, &format!("statuses\n{}", jobs(&VERBS)))?;
    scene
        .system
        .configure("title callers\nefi tftp://10.77.0.1/callers.efi\n")?;
    let program = scene.system.directory.join("wireboot.efi");
    embed::configuration(&boot_program()?, "network wireboot\n", &program)?;
    let _server = scene.serve_program(&program, &[])?;
    let mut machine = scene.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    let told = expect(&mut machine, "callers: statuses: .* failed")?;
    let lines = |expression| -> Result<Vec<String>> {
        let all = machine.console.all(&Regex::new(expression)?);
        Ok(all.into_iter().map(|seen| seen.text).collect())
    };
    let failed = lines("callers: fail .*")?;
    ensure!(told.ends_with(" 0 failed"), "{told}: {failed:?}");
    let absent = lines("callers: UNSUPPORTED .*")?;
    ensure!(absent.is_empty(), "{absent:?}");
    ensure!(lines("callers: pass .*")?.len() >= PASSED, "{told}");
    gets(&scene, &mut machine, &VERBS)?;
    expect(&mut machine, "callers: done, 0 of 8 failed").map(drop)
}

/// The same calls succeed over the stack that loaders are written for.
pub(crate) fn over_stock(lab: &Lab) -> Result<()> {
    const VERBS: [&str; 6] = [
        "openbsd",
        "esxi-tftp",
        "limine",
        "shim",
        "wds",
        "freebsd-snp",
    ];
    let scene = Scene::new(lab)?;
    prepare(&scene, &jobs(&VERBS))?;
    let program = scene.system.directory.join("callers.efi");
    let _server = scene.serve_program(&program, &[])?;
    let mut machine = scene.start()?;
    gets(&scene, &mut machine, &VERBS)?;
    expect(&mut machine, "callers: done, 0 of 6 failed").map(drop)
}
