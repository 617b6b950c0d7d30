//! The system that is booted: the lab's small Linux without a network driver. It tells the checksum of the file that came with it and
//! switches the machine off.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use wireboot_lab::checkpoints;
use wireboot_lab::guest::{Archive, Kernel};

/// What the kernel is told. Few messages: each costs time on a slow console.
/// On a busy host the kernel takes an emulated timer for broken (`no_timer_check`), and once a processor slept for ever behind a one-shot
/// timer that did not fire: a periodic one (`nohz=off highres=off`) fires again. The kernel's tests of its own ciphers (`cryptomgr.notests`) are
/// more than half of the instructions of its start.
pub(crate) const OPTIONS: &str = "console=ttyS0,115200n8 loglevel=4 panic=-1 init_on_alloc=0 cryptomgr.notests no_timer_check nohz=off highres=off";

/// What it tells goes by the kernel's log, whose lines are out before the machine is off; what is written to the console may still lie in a buffer then.
/// `CHECKPOINTS` stands for the lines that tell the firmware's times.
const INIT: &str = "#!/bin/busybox sh
b() { /bin/busybox \"$@\"; }
b mkdir -p /proc /sys
b mount -t proc proc /proc
b mount -t sysfs sysfs /sys
b mknod /dev/kmsg c 1 11
tell() { b echo \"<3>boots: $*\" > /dev/kmsg; }
tell \"arguments $(b cat /proc/cmdline)\"
tell \"sha256 $(b sha256sum /data)\"
case \"$(b cat /proc/cmdline)\" in *times*)
b insmod /efivarfs.ko
b mount -t efivarfs efivarfs /sys/firmware/efi/efivars
for time in Init Exec; do
tell \"loader $time $(b tail -c +5 /sys/firmware/efi/efivars/LoaderTime${time}USec-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f | b tr -d '\\0')\"
done
{ b tail -c +5 /sys/firmware/efi/efivars/WirebootBoot-*; echo; } | b fold -w 700 | while read -r line; do
tell \"report $line.\"
done ;; esac
case \"$(b cat /proc/cmdline)\" in *checkpoints*)
CHECKPOINTS;; esac
case \"$(b cat /proc/cmdline)\" in *stay*) b sleep 600 ;; esac
b poweroff -f
";

/// A directory to boot from.
pub(crate) struct System {
    /// Where it lies: `linux`, `system.cpio`, `data.cpio`, `wireboot.conf`.
    pub directory: PathBuf,
    /// The checksum that the system is to tell, in hexadecimal.
    pub sha256: String,
}

impl System {
    /// Makes the directory, with `megabytes` of data that does not repeat.
    pub(crate) fn new(directory: &Path, megabytes: usize) -> Result<Self> {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir_all(directory)?;
        let kernel = Kernel::cached()?;
        fs::copy(&kernel.image, directory.join("linux")).context("copying the kernel")?;

        let mut archive = Archive::with_busybox()?;
        let init = INIT.replace("CHECKPOINTS", checkpoints::SCRIPT);
        archive.file("init", init.as_bytes())?;
        let variables = kernel.modules.join("fs/efivarfs/efivarfs.ko");
        archive.copy("efivarfs.ko", &variables)?;
        fs::write(directory.join("system.cpio"), archive.finish()?)?;

        let mut data = vec![0; megabytes * 1_000_000];
        fastrand::Rng::with_seed(7).fill(&mut data);
        let mut archive = Archive::default();
        archive.file("data", &data)?;
        fs::write(directory.join("data.cpio"), archive.finish()?)?;

        let system = Self {
            directory: directory.to_owned(),
            sha256: digest(&data),
        };
        system.configure(&format!("title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {OPTIONS}\n"))?;
        Ok(system)
    }

    /// The checksum of one of its files.
    pub(crate) fn digest_of(&self, file: &str) -> Result<String> {
        let bytes = fs::read(self.directory.join(file)).with_context(|| file.to_owned())?;
        Ok(digest(&bytes))
    }

    /// Has wireboot check its data, which the configuration calls `name`.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        let file = self.directory.join("wireboot.conf");
        let text = fs::read_to_string(&file).context("reading wireboot.conf")?;
        let digest = self.digest_of("data.cpio")?;
        self.configure(&format!("{text}sha256 {digest} {name}\n"))
    }

    /// Gives it another boot configuration.
    pub(crate) fn configure(&self, text: &str) -> Result<()> {
        fs::write(self.directory.join("wireboot.conf"), text).context("writing wireboot.conf")
    }
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
