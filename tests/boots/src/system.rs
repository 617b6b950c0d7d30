//! The system that is booted: Debian's cloud kernel, which has no built-in network driver, and busybox. It tells the checksum of the
//! file that came with it and switches the machine off.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cpio::newc;
use sha2::{Digest, Sha256};

/// What the kernel is told. Few messages: each costs time on a slow console.
pub const OPTIONS: &str = "console=ttyS0,115200n8 loglevel=4 panic=-1";

const INIT: &str = "#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox echo \"boots: arguments $(/bin/busybox cat /proc/cmdline)\"
/bin/busybox echo \"boots: sha256 $(/bin/busybox sha256sum /data)\"
case \"$(/bin/busybox cat /proc/cmdline)\" in *stay*) /bin/busybox sleep 600 ;; esac
/bin/busybox poweroff -f
";

/// A directory to boot from.
pub struct System {
    /// Where it lies: `linux`, `system.cpio`, `data.cpio`, `wireboot.conf`.
    pub directory: PathBuf,
    /// The checksum that the system is to tell, in hexadecimal.
    pub sha256: String,
}

impl System {
    /// Makes the directory, with `megabytes` of data that does not repeat.
    pub fn new(directory: &Path, megabytes: usize) -> Result<System> {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir_all(directory)?;
        fs::copy(kernel()?, directory.join("linux")).context("copying the kernel")?;

        let mut archive = Vec::new();
        for directory in ["bin", "dev", "lib", "lib/x86_64-linux-gnu", "lib64"] {
            add(&mut archive, directory, 0o040_755, &[])?;
        }
        for file in busybox()? {
            let name = file.trim_start_matches("/usr").trim_start_matches('/');
            let content = fs::read(&file).with_context(|| format!("reading {file}"))?;
            add(&mut archive, name, 0o100_755, &content)?;
        }
        add(&mut archive, "init", 0o100_755, INIT.as_bytes())?;
        add_console(&mut archive)?;
        newc::trailer(&mut archive)?;
        fs::write(directory.join("system.cpio"), archive)?;

        let mut data = vec![0; megabytes * 1_000_000];
        fastrand::Rng::with_seed(7).fill(&mut data);
        let mut archive = Vec::new();
        add(&mut archive, "data", 0o100_644, &data)?;
        newc::trailer(&mut archive)?;
        fs::write(directory.join("data.cpio"), archive)?;

        let sha256 = Sha256::digest(&data)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let system = System {
            directory: directory.to_owned(),
            sha256,
        };
        system.configure(&format!("title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {OPTIONS}\n"))?;
        Ok(system)
    }

    /// Gives it another boot configuration.
    pub fn configure(&self, text: &str) -> Result<()> {
        fs::write(self.directory.join("wireboot.conf"), text).context("writing wireboot.conf")
    }
}

/// busybox, and its shared libraries where it has them.
fn busybox() -> Result<Vec<String>> {
    let busybox = "/bin/busybox";
    let output = Command::new("ldd")
        .arg(busybox)
        .output()
        .context("starting ldd")?;
    let output = String::from_utf8_lossy(&output.stdout);
    let path = |line: &str| {
        line.split_whitespace()
            .find(|word| word.starts_with('/'))
            .map(str::to_owned)
    };
    Ok(std::iter::once(busybox.to_owned())
        .chain(output.lines().filter_map(path))
        .collect())
}

fn add(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    let length = u32::try_from(content.len()).context("too long for the archive")?;
    let mut writer = newc::Builder::new(name).mode(mode).write(archive, length);
    writer.write_all(content)?;
    writer.finish()?;
    Ok(())
}

/// /dev/console, by which the kernel gives the first process its output.
fn add_console(archive: &mut Vec<u8>) -> Result<()> {
    newc::Builder::new("dev/console")
        .mode(0o020_600)
        .rdev_major(5)
        .rdev_minor(1)
        .write(archive, 0)
        .finish()?;
    Ok(())
}

/// The newest kernel of the package linux-image-cloud-amd64.
fn kernel() -> Result<PathBuf> {
    let mut found: Vec<_> = fs::read_dir("/boot")?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("vmlinuz-") && name.ends_with("-cloud-amd64"))
        })
        .collect();
    found.sort();
    found
        .pop()
        .context("no /boot/vmlinuz-*-cloud-amd64: install the package linux-image-cloud-amd64")
}
