//! Who boots over the card: what each is started from, what it fetches, and how its console tells what became of that.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::bench::linux::write_ram_disk;
use crate::bench::stacks::ovmf;
use crate::grub;
use wireboot_lab::embed;
use wireboot_lab::guest::{Archive, Kernel};
use wireboot_lab::host::hexadecimal;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::SERVER;
use wireboot_lab::packages::Package;
use wireboot_lab::qemu::{Accelerator, DirectKernel, Disk, Firmware, Machine, NetworkCard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    Ovmf,
    Ipxe,
    Grub,
    Linux,
    Wireboot,
}

/// Bytes of a file. A card begins to do wrong among the first 256 units: Linux and wireboot, whose units may have 64 KB, get three files.
const FILE: usize = 8 << 20;
/// What the three are called.
const FILES: [&str; 3] = ["one", "two", "three"];
/// The GRUB that tells the digest of what is in it.
const DIGEST: &str = "digest.efi";
/// Few messages: each costs time on a slow console. The timers of a machine on a busy host are not to be taken for broken.
const OPTIONS: &str = "console=ttyS0,115200n8 loglevel=4 panic=-1 cryptomgr.notests no_timer_check nohz=off highres=off";
/// Seconds after which the Linux guest gives up a file.
const FETCH: u32 = 20;
/// What guests of ours say when they have tried everything.
const END: &str = "faults: end";

/// A guest, ready to be switched on, but for its card.
pub(super) struct GuestSetup {
    pub machine: Machine,
    /// What the card serves.
    pub directory: PathBuf,
    /// The digests that the guest tells when all is right.
    pub digests: Vec<String>,
    /// What took part besides QEMU.
    pub version: String,
}

impl Guest {
    pub(super) const ALL: [Self; 5] = [
        Self::Ovmf,
        Self::Ipxe,
        Self::Grub,
        Self::Linux,
        Self::Wireboot,
    ];

    /// As the report writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ovmf => "OVMF's PXE",
            Self::Ipxe => "iPXE",
            Self::Grub => "GRUB",
            Self::Linux => "Linux",
            Self::Wireboot => "wireboot",
        }
    }

    /// What its console shows when it, or the firmware behind it, goes on without what it wanted.
    pub(super) fn went_on(self) -> &'static str {
        match self {
            Self::Ovmf => r#"BdsDxe: failed to (?:load|start) Boot\w+ "UEFI PXEv4"#,
            Self::Ipxe => r"faults: end|BdsDxe: failed to (?:load|start) Boot",
            Self::Grub | Self::Linux => END,
            Self::Wireboot => "wireboot: the firmware goes on with its next boot option",
        }
    }

    /// What its console shows when it has taken what came for right, and starts it, where that tells of its own digest alone.
    pub(super) fn started(self) -> Option<&'static str> {
        match self {
            Self::Ovmf => Some("NBP file downloaded successfully"),
            Self::Ipxe => Some(r"digest\.efi\.\.\.[^\n]* ok"),
            Self::Grub | Self::Linux | Self::Wireboot => None,
        }
    }

    /// The reason on its console, the first one: the group that matches is what the table shows.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Ovmf => r"(PXE-E\d+)",
            Self::Ipxe => r"https?://(ipxe\.org/[0-9a-f]{8})",
            Self::Grub => r"error: ([^\n]+)",
            Self::Linux => r"virtio_net \S+ ([^\n]+)|wget: ([^\n]+)",
            Self::Wireboot => r"wireboot: error: ([^\n]+?)(?:: expected [^\n]+)?\n",
        }
    }

    /// Puts its files in place.
    ///
    /// # Errors
    /// When a package is missing, or there is no room.
    pub(super) fn prepare(
        self,
        lab: &Lab,
        accelerator: Accelerator,
        wireboot: &Path,
    ) -> Result<GuestSetup> {
        let place = lab.scratch().join(format!("{self:?}"));
        let directory = place.join("served");
        fs::create_dir_all(&directory).context("making a directory to serve")?;
        let (version, firmware) = ovmf(Package::installed("ovmf"))?;
        let mut setup = GuestSetup {
            machine: Machine::new(accelerator),
            directory,
            digests: Vec::new(),
            version: format!("OVMF {version}"),
        };
        setup.machine.firmware = firmware;
        setup.machine.network = Some(NetworkCard::new(String::new()));
        setup.machine.pxe_only(Some(IpVersion::V4));
        match self {
            Self::Ovmf => {
                // The server names wireboot.efi to firmware.
                setup.digest_program("wireboot.efi", &place)?;
            }
            Self::Ipxe => {
                let package = Package::installed("ipxe")?;
                let program =
                    package.file(&["usr/lib/ipxe/ipxe-amd64.efi", "usr/lib/ipxe/ipxe.efi"])?;
                setup.stick(&place, |to| {
                    fs::copy(&program, to).context("copying iPXE").map(drop)
                })?;
                setup.digest_program(DIGEST, &place)?;
                let script =
                    format!("#!ipxe\nchain http://{SERVER}/{DIGEST} ||\necho {END}\nsleep 1000\n");
                setup.serve("boot.ipxe", script.as_bytes())?;
                setup.version = format!("iPXE {}", package.version);
            }
            Self::Grub => {
                let [file, ..] = FILES;
                setup.files(&[file])?;
                let script =
                    format!("net_dhcp\nsha256sum (http,{SERVER})/{file}\necho {END}\nsleep 1000\n");
                let config = place.join("grub.cfg");
                fs::write(&config, script).context("writing grub.cfg")?;
                let modules = ["efinet", "http", "hashsum", "gcry_sha256", "echo", "sleep"];
                setup.stick(&place, |to| grub::image(to, &config, &modules, None))?;
                // The firmware looks for drivers of what it could boot from.
                setup.boot_index(Some(2));
                let package = Package::installed("grub-efi-amd64-bin")?;
                setup.version = format!("GRUB {}", package.version);
            }
            Self::Linux => {
                setup.files(&FILES)?;
                let kernel = Kernel::cached()?;
                // Its own option for that, -T, crashes where busybox is linked dynamically.
                let gets = FILES.map(|file| format!(" && get {file}"));
                let script = format!(
                    "b() {{ /bin/busybox \"$@\"; }}\n\
                     get() {{\n\
                     b timeout {FETCH} /bin/busybox wget -q -O /$1 http://{SERVER}/$1\n\
                     case $? in 0) b sha256sum /$1 ;; 143) echo 'wget: not whole after {FETCH} s'; false ;; *) false ;; esac\n\
                     }}\n\
                     true{}\n\
                     echo {END}",
                    gets.concat()
                );
                let ram_disk = place.join("initrd");
                write_ram_disk(&ram_disk, &kernel, "10.77.0.40/24", &[], &script)?;
                setup.machine.kernel = Some(DirectKernel {
                    kernel: kernel.image.clone(),
                    initrd: Some(ram_disk),
                    command_line: OPTIONS.to_owned(),
                });
                setup.machine.firmware = Firmware::SeaBios;
                setup.machine.firmware_configuration.clear();
                setup.boot_index(None);
                setup.version = format!("Linux {}", kernel.release);
            }
            Self::Wireboot => {
                setup.stick(&place, |to| {
                    embed::configuration(wireboot, "patience 20\n", to)
                })?;
                setup.linux()?;
                setup.version = format!("wireboot {}", env!("CARGO_PKG_VERSION"));
            }
        }
        Ok(setup)
    }
}

impl GuestSetup {
    fn serve(&self, name: &str, content: &[u8]) -> Result<()> {
        fs::write(self.directory.join(name), content).with_context(|| format!("writing {name}"))
    }

    /// Serves files that the guest is to tell the digests of.
    fn files(&mut self, names: &[&str]) -> Result<()> {
        for (seed, name) in (1..).zip(names) {
            let content = random(FILE, seed);
            self.digests.push(digest(&content));
            self.serve(name, &content)?;
        }
        Ok(())
    }

    /// Serves a GRUB that has a file in it and tells that one's digest.
    fn digest_program(&mut self, name: &str, place: &Path) -> Result<()> {
        let content = random(FILE, 0);
        self.digests.push(digest(&content));
        let mut archive = Archive::default();
        archive.file("data", &content)?;
        let memdisk = place.join("memdisk");
        fs::write(&memdisk, archive.finish()?).context("writing an archive")?;
        let config = place.join("digest.cfg");
        fs::write(&config, "sha256sum (memdisk)/data\nsleep 1000\n").context("writing a script")?;
        let modules = ["memdisk", "newc", "hashsum", "gcry_sha256", "sleep"];
        grub::image(
            &self.directory.join(name),
            &config,
            &modules,
            Some(&memdisk),
        )
    }

    /// Serves a system of three files for wireboot, which tells the digest of what is in the third.
    fn linux(&mut self) -> Result<()> {
        let kernel = Kernel::cached()?;
        let mut system = Archive::with_busybox()?;
        let init =
            "#!/bin/busybox sh\n/bin/busybox sha256sum /data\nexec /bin/busybox sleep 1000\n";
        system.file("init", init.as_bytes())?;
        let content = random(2 * FILE, 0);
        self.digests.push(digest(&content));
        let mut data = Archive::default();
        data.file("data", &content)?;
        let files = [
            (
                "linux",
                fs::read(&kernel.image).context("reading the kernel")?,
            ),
            ("system.cpio", system.finish()?),
            ("data.cpio", data.finish()?),
        ];
        let mut entry = format!(
            "timeout 0\ntitle faults\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {OPTIONS}\n"
        );
        for (name, content) in &files {
            self.serve(name, content)?;
            entry.push_str(&format!("sha256 {} {name}\n", digest(content)));
        }
        self.serve("wireboot.conf", entry.as_bytes())
    }

    /// Starts what `write` writes from a stick.
    fn stick(&mut self, place: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let disk = place.join("stick");
        let folder = disk.join("EFI/BOOT");
        fs::create_dir_all(&folder).context("making a stick")?;
        write(&folder.join("BOOTX64.EFI"))?;
        self.machine.disks.push(Disk::Directory {
            path: disk,
            boot_index: Some(1),
        });
        self.boot_index(None);
        Ok(())
    }

    /// Gives the card a place in the boot order.
    fn boot_index(&mut self, index: Option<u32>) {
        if let Some(card) = &mut self.machine.network {
            card.boot_index = index;
        }
    }
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}
