//! A Linux guest that does nothing but download: Debian's cloud kernel and a RAM disk with busybox.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cpio::newc;

/// The newest cloud kernel installed, and its release.
///
/// # Errors
/// When there is none.
pub fn kernel() -> Result<(PathBuf, String)> {
    let mut releases = Vec::new();
    for entry in fs::read_dir("/boot").context("reading /boot")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        releases.extend(
            name.strip_prefix("vmlinuz-")
                .filter(|release| release.ends_with("-cloud-amd64"))
                .map(str::to_owned),
        );
    }
    let newest = releases.into_iter().max_by_key(|release| numbers(release));
    let release =
        newest.context("no cloud kernel in /boot: apt install linux-image-cloud-amd64")?;
    Ok((
        Path::new("/boot").join(format!("vmlinuz-{release}")),
        release,
    ))
}

/// The numbers in a release, so that 6.1.0-10 counts as newer than 6.1.0-9.
fn numbers(release: &str) -> Vec<u64> {
    release
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

/// Writes a RAM disk whose init loads the virtio drivers of kernel `release`, takes `address` and fetches `url`.
///
/// # Errors
/// When busybox or the kernel's modules are missing.
pub fn write_ram_disk(file: &Path, release: &str, address: &str, url: &str) -> Result<()> {
    let tree = Path::new("/lib/modules").join(release);
    let dependencies = fs::read_to_string(tree.join("modules.dep"))
        .with_context(|| format!("reading {}/modules.dep", tree.display()))?;
    let mut modules = Vec::new();
    for wanted in ["virtio_pci", "virtio_net"] {
        for module in load_order(&dependencies, wanted)
            .with_context(|| format!("kernel {release} has no module {wanted}"))?
        {
            if !modules.contains(&module) {
                modules.push(module);
            }
        }
    }

    let mut archive = Archive {
        writer: File::create(file).with_context(|| format!("making {}", file.display()))?,
        inode: 0,
    };
    for directory in ["dev", "proc", "bin", "modules"] {
        archive.directory(directory)?;
    }
    let busybox = which("busybox")?;
    archive.copy("bin/busybox", &busybox)?;
    for library in libraries(&busybox)? {
        let name = library.to_string_lossy();
        archive.parents(name.trim_start_matches('/'))?;
        archive.copy(name.trim_start_matches('/'), &library)?;
    }
    let mut init = String::from("#!/bin/busybox sh\n");
    for (number, module) in modules.iter().enumerate() {
        let name = format!("modules/{number}.ko");
        archive.copy(&name, &tree.join(module))?;
        init.push_str(&format!("/bin/busybox insmod /{name}\n"));
    }
    init.push_str(&format!(
        "/bin/busybox mount -t devtmpfs dev /dev\n\
         /bin/busybox ip link set eth0 up\n\
         /bin/busybox ip address add {address} dev eth0\n\
         /bin/busybox wget -q -O /dev/null {url} && echo downloaded\n\
         exec /bin/busybox sleep 1000\n"
    ));
    archive.file("init", init.as_bytes())?;
    newc::trailer(archive.writer).with_context(|| format!("writing {}", file.display()))?;
    Ok(())
}

/// The module's file and those that it needs, the first to load first. `modules.dep` lists what is needed, the last first.
fn load_order<'a>(dependencies: &'a str, module: &str) -> Option<Vec<&'a str>> {
    dependencies.lines().find_map(|line| {
        let (file, needed) = line.split_once(':')?;
        let name = file.rsplit('/').next()?.split('.').next()?;
        (name == module).then(|| needed.split_whitespace().rev().chain([file]).collect())
    })
}

fn which(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file());
    found.with_context(|| format!("{program} is not installed: apt install busybox-static"))
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

struct Archive {
    writer: File,
    inode: u32,
}

impl Archive {
    fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name, 0o040_755, 0)?
            .finish()
            .map(drop)
            .with_context(|| format!("packing {name}"))
    }

    fn parents(&mut self, name: &str) -> Result<()> {
        // A directory that is there already does no harm.
        let ends: Vec<_> = name.match_indices('/').map(|(at, _)| at).collect();
        ends.into_iter()
            .try_for_each(|end| self.directory(name.get(..end).unwrap_or_default()))
    }

    fn copy(&mut self, name: &str, from: &Path) -> Result<()> {
        if from
            .extension()
            .is_some_and(|extension| extension == "xz" || extension == "zst")
        {
            bail!(
                "{} is compressed, which busybox's insmod may not read",
                from.display()
            );
        }
        self.file(
            name,
            &fs::read(from).with_context(|| format!("reading {}", from.display()))?,
        )
    }

    fn file(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let what = || format!("packing {name}");
        let mut entry = self.entry(
            name,
            0o100_755,
            u32::try_from(content.len()).with_context(what)?,
        )?;
        entry.write_all(content).with_context(what)?;
        entry.finish().map(drop).with_context(what)
    }

    fn entry(&mut self, name: &str, mode: u32, length: u32) -> io::Result<newc::Writer<&mut File>> {
        self.inode += 1;
        Ok(newc::Builder::new(name)
            .ino(self.inode)
            .mode(mode)
            .nlink(1)
            .write(&mut self.writer, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_need() {
        let dependencies = "kernel/a/virtio.ko: kernel/a/ring.ko\nkernel/a/ring.ko:\nkernel/b/virtio_net.ko.xz: kernel/a/virtio.ko kernel/a/ring.ko\n";
        let order = load_order(dependencies, "virtio_net");
        assert_eq!(
            order,
            Some(vec![
                "kernel/a/ring.ko",
                "kernel/a/virtio.ko",
                "kernel/b/virtio_net.ko.xz"
            ])
        );
        assert_eq!(load_order(dependencies, "virtio_pci"), None);
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert!(numbers("6.1.0-10-cloud-amd64") > numbers("6.1.0-9-cloud-amd64"));
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
