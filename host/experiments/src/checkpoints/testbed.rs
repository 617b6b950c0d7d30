//! A machine whose firmware loads recorder.efi, and the three ways in which it boots.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;
use serde::Serialize;
use wireboot_fpdt::BasicBoot;
use wireboot_lab::checkpoints::{self, Checkpoints};
use wireboot_lab::embed;
use wireboot_lab::guest::{Archive, Kernel};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders::{FOLDER, shim_and_grub};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::qemu::{Accelerator, Disk, Machine};
use wireboot_lab::server::Server;

use super::LONGEST;

/// By what Linux is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BootMethod {
    Disk,
    Pxe,
    Wireboot,
}

/// In the order of a round.
pub(crate) const BOOT_METHODS: [BootMethod; 3] =
    [BootMethod::Disk, BootMethod::Pxe, BootMethod::Wireboot];

impl fmt::Display for BootMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk, GRUB",
            Self::Pxe => "stock PXE, shim, GRUB, TFTP",
            Self::Wireboot => "wireboot.efi by PXE, HTTP",
        })
    }
}

/// What `make build` leaves.
pub(crate) struct Programs {
    pub(crate) wireboot: PathBuf,
    pub(crate) doctor: PathBuf,
    pub(crate) recorder: PathBuf,
}

const OPTIONS: &str = "console=ttyS0,115200n8 loglevel=4 panic=-1 no_timer_check iomem=relaxed";
const KERNEL: &str = "linux";
const INITRD: &str = "initrd.cpio";
/// The machine's name, and its boot file.
const NAME: &str = "checkpoints";
const LOADER: &str = "BOOTX64.EFI";

const INIT: &str = r#"#!/bin/busybox sh
b() { /bin/busybox "$@"; }
b mkdir -p /proc /sys
b mount -t proc proc /proc
b mount -t sysfs sysfs /sys
b mknod /dev/kmsg c 1 11
tell() { b echo "<3>checkpoints: $*" > /dev/kmsg; }
"#;

/// The machine and what it boots from.
pub(crate) struct CheckpointTestbed<'a> {
    lab: &'a Lab,
    network: Network,
    machine: Machine,
    /// Linux, both loaders and wireboot.conf.
    tree: PathBuf,
    wireboot: PathBuf,
}

impl<'a> CheckpointTestbed<'a> {
    /// The machine that boots.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Has the firmware of a new machine load recorder.efi from its disk, which has Linux, too.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub(crate) fn new(
        lab: &'a Lab,
        programs: &Programs,
        accelerator: Accelerator,
        mebibytes: u32,
    ) -> Result<Self> {
        let tree = lab.scratch().join("tree");
        let disk = lab.scratch().join("disk");
        for directory in [&tree, &disk] {
            files(directory, mebibytes)?;
        }
        let conf = format!("linux {KERNEL}\ninitrd {INITRD}\noptions {OPTIONS}\n");
        fs::write(tree.join("wireboot.conf"), conf).context("writing wireboot.conf")?;

        let boot = disk.join("EFI/BOOT");
        fs::create_dir_all(&boot).context("making a disk")?;
        fs::copy(&programs.recorder, boot.join("recorder.efi")).context("copying recorder.efi")?;
        embed::configuration(&programs.doctor, "record on\n", &boot.join(LOADER))?;
        let network = Network::new(lab, NetworkOptions::default())?;
        let mut machine = Machine::new(accelerator);
        machine.memory_mib = 1024;
        let mut card = network.card();
        card.boot_index = None;
        machine.network = Some(card);
        machine.pxe_only(Some(IpVersion::V4));
        machine.disks.push(Disk::Directory {
            path: disk.clone(),
            boot_index: Some(1),
        });
        let mut running = machine.start(lab, NAME, |_| {})?;
        running
            .console
            .wait_for(&Regex::new("record is on")?, LONGEST)?;
        drop(running);
        machine.keep_variables(lab, NAME)?;
        let grub = tree.join(FOLDER).join("grubx64.efi");
        fs::copy(&grub, boot.join(LOADER)).context("copying GRUB")?;
        Ok(Self {
            lab,
            network,
            machine,
            tree,
            wireboot: programs.wireboot.clone(),
        })
    }

    /// Boots once. What the firmware's tables say, and how many seconds after its first word of loading the firmware's word of starting came on the console.
    ///
    /// # Errors
    /// When it does not arrive, with the end of the console.
    pub(crate) fn boot(&self, method: BootMethod) -> Result<(BasicBoot, f64)> {
        let mut machine = self.machine.clone();
        let mut card = self.network.card();
        let (first, second) = match method {
            BootMethod::Disk => (Some(1), None),
            BootMethod::Pxe | BootMethod::Wireboot => (None, Some(1)),
        };
        for disk in &mut machine.disks {
            if let Disk::Directory { boot_index, .. } = disk {
                *boot_index = first;
            }
        }
        card.boot_index = second;
        machine.network = Some(card);
        let shim = self.tree.join(FOLDER).join("bootnetx64.efi");
        let program = match method {
            BootMethod::Disk => None,
            BootMethod::Pxe => Some(&shim),
            BootMethod::Wireboot => Some(&self.wireboot),
        };
        let _server = program
            .map(|program| {
                let command = self.lab.command(std::env::current_exe()?);
                Server::start(self.lab, command, &self.tree, program, &[])
            })
            .transpose()?;
        let mut running = machine.start(self.lab, NAME, |_| {})?;
        let mut wait = |text: &str| running.console.wait_for(&Regex::new(text)?, LONGEST);
        // Over the network the firmware says that it loads when the file has come.
        let loading = wait(">>Start PXE over IPv4|BdsDxe: loading Boot")?.time;
        let starting = wait("BdsDxe: starting Boot")?.time;
        wait(r"fbpt [0-9a-f]+\.")?;
        let boot = Checkpoints::told(&running.console.transcript())?.boot;
        Ok((boot, starting - loading))
    }
}

/// Linux, its RAM disk, shim, and GRUB with its configuration.
fn files(directory: &Path, mebibytes: u32) -> Result<()> {
    let menu =
        format!("set timeout=0\nmenuentry x {{\nlinux /{KERNEL} {OPTIONS}\ninitrd /{INITRD}\n}}\n");
    shim_and_grub(directory, &menu)?;
    // The server gives shim under a name of its own, and shim looks for GRUB beside that.
    let grub = directory.join(FOLDER).join("grubx64.efi");
    fs::copy(&grub, directory.join("grubx64.efi")).context("copying GRUB")?;
    fs::copy(Kernel::cached()?.image, directory.join(KERNEL)).context("copying the kernel")?;
    let mut archive = Archive::with_busybox()?;
    let init = format!("{INIT}{}b poweroff -f\n", checkpoints::SCRIPT);
    archive.file("init", init.as_bytes())?;
    // As large as a real one, and nothing that could be shortened.
    let mut data = vec![0; usize::try_from(mebibytes)? << 20];
    fastrand::Rng::with_seed(1).fill(&mut data);
    archive.file("data", &data)?;
    fs::write(directory.join(INITRD), archive.finish()?).context("writing the RAM disk")
}
