//! The system that the soak boots: the lab's small Linux without a network driver. It fills its memory with a pattern, waits, and tells
//! checksums of that and of the file that came with it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use md5::{Digest, Md5};
use sha2::Sha256;

use super::canary;
use super::plan::{Fault, Plan};
use wireboot_lab::embed;
use wireboot_lab::guest::{Archive, Kernel};
use wireboot_lab::loaders::{self, FOLDER};

/// What the kernel is told. Few messages: each costs time on a slow console. No clearing of pages that are about to be filled. No trial of
/// the timer's interrupts: on a host that is busy they come too late for it, and the kernel gives up. Periodic timers: a processor that misses one is woken by
/// the next.
const OPTIONS: &str = "console=ttyS0,115200n8 loglevel=4 panic=-1 init_on_alloc=0 cryptomgr.notests no_timer_check nohz=off highres=off";

/// Bytes in the file of patterns that the memory is filled from.
const UNIT: usize = 1 << 20;

/// One writer for each processor, and all of them at work. What stays free is for the system itself. The memory's checksums are of MD5, which an
/// emulated processor has in a third of the time: no attacker chooses what a card leaves there.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /canary /sums
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o size=100% canary /canary
processors=$(nproc)
for device in /sys/bus/pci/devices/*; do
    case "$(cat $device/class)" in 0x0200*) command=$(od -An -tx2 -j4 -N2 $device/config) ;; esac
done
echo "soak: processors $processors, card's command register" $command
echo "soak: data $(sha256sum /data | cut -c1-64)"
rm /data
while read name size unit; do case $name in MemAvailable:) available=$size ;; esac; done </proc/meminfo
units=$(( (available / 1024 - 12) / processors ))
patterns=$(yes /pattern | head -n $units)
number=0
while [ $number -lt $processors ]; do
    cat $patterns >/canary/$number &
    number=$((number + 1))
done
wait
echo "soak: canary of $processors x $units"
read go
for file in /canary/*; do md5sum $file | cut -c1-32 >/sums/${file##*/} & done
wait
echo "soak: canaries" $(cat /sums/*)
poweroff -f
"#;

/// A directory to boot from: `linux`, `system.cpio`, `data.cpio`, `wireboot.efi`, and `wireboot.conf` as the boot wants it.
#[derive(Debug)]
pub struct System {
    /// What `wireboot serve` is told to serve.
    pub directory: PathBuf,
    /// The checksum of the data, in hexadecimal.
    pub data: String,
    /// wireboot.efi without settings.
    program: PathBuf,
}

impl System {
    /// Makes the directory, with `bytes` of data that does not repeat.
    ///
    /// # Errors
    /// When the kernel, busybox or room is missing.
    pub fn new(directory: &Path, program: &Path, bytes: usize) -> Result<Self> {
        fs::create_dir_all(directory).context("making a directory to boot from")?;
        fs::copy(Kernel::cached()?.image, directory.join("linux")).context("copying the kernel")?;

        let mut archive = Archive::with_busybox()?;
        archive.file("init", INIT.as_bytes())?;
        archive.file("pattern", &canary::PAGE.repeat(UNIT / canary::PAGE.len()))?;
        write(&directory.join("system.cpio"), &archive.finish()?)?;

        let mut data = vec![0; bytes];
        fastrand::Rng::with_seed(7).fill(&mut data);
        let mut archive = Archive::default();
        archive.file("data", &data)?;
        write(&directory.join("data.cpio"), &archive.finish()?)?;
        // GRUB's first entry is started at once.
        let menu = format!(
            "set timeout=0\nmenuentry Soak {{\nlinux /linux {OPTIONS}\ninitrd /system.cpio /data.cpio\n}}\n"
        );
        loaders::shim_and_grub(directory, &menu)?;
        Ok(Self {
            directory: directory.to_owned(),
            data: hexadecimal(&Sha256::digest(&data)),
            program: program.to_owned(),
        })
    }

    /// Writes wireboot.efi, set to so many engines, and the boot configuration with which a boot begins.
    ///
    /// # Errors
    /// When the disk is full, or objcopy is missing.
    pub fn configure(&self, plan: &Plan, engines: u32) -> Result<()> {
        embed::configuration(
            &self.program,
            &format!("processors {engines}\n"),
            &self.directory.join("wireboot.efi"),
        )?;
        let last = format!(
            "title Soak\nlinux linux\ninitrd system.cpio\ninitrd {}://{}/data.cpio\noptions {OPTIONS}\n",
            plan.protocol.scheme(),
            wireboot_lab::network::SERVER
        );
        let first = match plan.fault {
            Fault::NextBootOption => "title Soak\nlinux no-such-kernel\n".to_owned(),
            Fault::StartedAgain => format!(
                "network firmware\ntitle Soak\nefi wireboot.efi\noptions http://{}/last.conf\n",
                wireboot_lab::network::SERVER
            ),
            Fault::Loaders => format!(
                "title Soak\nefi tftp://{}/{FOLDER}/bootnetx64.efi\n",
                wireboot_lab::network::SERVER
            ),
            _ => last.clone(),
        };
        write(&self.directory.join("last.conf"), last.as_bytes())?;
        write(&self.directory.join("wireboot.conf"), first.as_bytes())
    }

    /// Makes the configuration that boots the one that counts.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn mend(&self) -> Result<()> {
        fs::copy(
            self.directory.join("last.conf"),
            self.directory.join("wireboot.conf"),
        )
        .map(drop)
        .context("writing wireboot.conf")
    }
}

/// The checksum of a file of so many units of the pattern, in hexadecimal.
#[must_use]
pub(super) fn canary_sum(units: usize) -> String {
    let unit = canary::PAGE.repeat(UNIT / canary::PAGE.len());
    let mut sum = Md5::new();
    (0..units).for_each(|_| sum.update(&unit));
    hexadecimal(&sum.finalize())
}

fn write(file: &Path, content: &[u8]) -> Result<()> {
    fs::write(file, content).with_context(|| format!("writing {}", file.display()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
