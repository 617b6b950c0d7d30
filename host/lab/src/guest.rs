//! A small Linux to boot: Debian 12's cloud kernel, which has no network driver built in, and RAM disks with busybox.
//!
//! The kernel's package is fetched and taken apart, not installed: an installed kernel would be the next one that the host boots.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use cpio::newc;

use crate::packages::{self, Package};

const PACKAGE: &str = "linux-image-cloud-amd64";
/// The same guest on every host.
const SUITE: &str = "bookworm";

/// Fetches the kernel into the cache unless it is there. Wants the host's network, so call it outside the lab's namespaces.
///
/// # Errors
/// When it is not to be had.
pub fn fetch() -> Result<()> {
    packages::fetch(&[PACKAGE], &[SUITE], Duration::MAX)
}

/// The kernel that [`fetch`] left in the cache.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What a loader starts.
    pub image: PathBuf,
    /// Its release, as `uname -r` shows it.
    pub release: String,
    /// The directory with its modules: `drivers/net/virtio_net.ko` and so on.
    pub modules: PathBuf,
}

impl Kernel {
    /// Finds the kernel in the packages that were fetched.
    ///
    /// # Errors
    /// When it is not there.
    pub fn cached() -> Result<Self> {
        let root = Package::fetched(PACKAGE)?.root;
        let boot = root.join("boot");
        let files = fs::read_dir(&boot).with_context(|| format!("reading {}", boot.display()))?;
        let release = files
            .filter_map(|file| {
                let name = file.ok()?.file_name();
                Some(name.to_str()?.strip_prefix("vmlinuz-")?.to_owned())
            })
            .next()
            .with_context(|| format!("no kernel in {}", boot.display()))?;
        Ok(Self {
            image: boot.join(format!("vmlinuz-{release}")),
            modules: root.join("lib/modules").join(&release).join("kernel"),
            release,
        })
    }
}

/// A RAM disk in the making: a cpio archive.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    /// One with `bin/busybox`, and with `dev/console`, by which the kernel gives the first process its output.
    ///
    /// # Errors
    /// When busybox is not installed.
    pub fn with_busybox() -> Result<Self> {
        let mut archive = Self::default();
        archive.program("busybox")?;
        let console = newc::Builder::new("dev/console").mode(0o020_600);
        archive
            .parents("dev/console")
            .and_then(|()| archive.entry(console.rdev_major(5).rdev_minor(1), &[]))
            .context("packing dev/console")?;
        Ok(archive)
    }

    /// Adds a program of the host as `bin/NAME`, with its libraries.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn program(&mut self, name: &str) -> Result<()> {
        let program = which(name)?;
        self.copy(&format!("bin/{name}"), &program)?;
        for library in libraries(&program)? {
            let name = library.to_string_lossy();
            self.copy(name.trim_start_matches('/'), &library)?;
        }
        Ok(())
    }

    /// Adds a program or other file. `name` is relative to the root; its directories are made.
    ///
    /// # Errors
    /// When it is too long for the format: 4 GiB.
    pub fn file(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.parents(name)
            .and_then(|()| self.entry(newc::Builder::new(name).mode(0o100_755), content))
            .with_context(|| format!("packing {name}"))
    }

    /// Adds a copy of a file of the host.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn copy(&mut self, name: &str, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.file(name, &content)
    }

    /// The whole archive.
    ///
    /// # Errors
    /// None in practice: it lies in memory.
    pub fn finish(self) -> Result<Vec<u8>> {
        newc::trailer(self.bytes).context("ending the archive")
    }

    fn parents(&mut self, name: &str) -> io::Result<()> {
        // A directory that is there already does no harm.
        for (end, _) in name.match_indices('/') {
            let directory = name.get(..end).unwrap_or_default();
            self.entry(newc::Builder::new(directory).mode(0o040_755), &[])?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: newc::Builder, content: &[u8]) -> io::Result<()> {
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut writer = entry.write(&mut self.bytes, length);
        writer.write_all(content)?;
        writer.finish().map(drop)
    }
}

fn which(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file());
    found.with_context(|| format!("{program} is not installed: apt install busybox-static iperf3"))
}

/// The shared libraries of a program: none where it is linked statically.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("starting ldd")?;
    Ok(library_paths(&String::from_utf8_lossy(&output.stdout)))
}

fn library_paths(ldd: &str) -> Vec<PathBuf> {
    ldd.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_lies_in_them() {
        let mut archive = Archive::default();
        archive.file("a/b/c", b"content").unwrap();
        let bytes = archive.finish().unwrap();
        let mut names = Vec::new();
        let mut rest = bytes.as_slice();
        loop {
            let reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut content = Vec::new();
            rest = reader.to_writer(&mut content).unwrap();
            names.push((name, mode, content.len()));
        }
        let expected = [
            ("a", 0o040_755, 0),
            ("a/b", 0o040_755, 0),
            ("a/b/c", 0o100_755, 7),
        ];
        assert_eq!(
            names,
            expected.map(|(name, mode, length)| (name.to_owned(), mode, length))
        );
    }

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n";
        assert_eq!(
            library_paths(text),
            [
                PathBuf::from("/lib/x/libc.so.6"),
                PathBuf::from("/lib64/ld.so.2")
            ]
        );
        assert_eq!(
            library_paths("\tnot a dynamic executable\n"),
            Vec::<PathBuf>::new()
        );
    }
}
