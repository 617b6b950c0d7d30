//! What makes the Linux guest use its network, and do nothing else.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use wireboot_lab::guest::{Archive, Kernel};

/// The modules that drive the network card, each after those that it needs.
const DRIVERS: [&str; 8] = [
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

/// Writes a RAM disk whose init loads the network card's drivers, takes `address`, without asking whether somebody has it, and does what `script` says,
/// in busybox's shell, with these programs of the host.
///
/// # Errors
/// When busybox, one of them or a driver is missing.
pub fn write_ram_disk(
    file: &Path,
    kernel: &Kernel,
    address: &str,
    programs: &[&str],
    script: &str,
) -> Result<()> {
    let mut archive = Archive::with_busybox()?;
    for program in programs {
        archive.program(program)?;
    }
    let mut init = String::from("#!/bin/busybox sh\n");
    for driver in DRIVERS {
        archive.copy(driver, &kernel.modules.join(driver))?;
        init.push_str(&format!("/bin/busybox insmod /{driver}\n"));
    }
    init.push_str(&format!(
        "/bin/busybox mount -t devtmpfs dev /dev\n\
         /bin/busybox mkdir -p /proc\n\
         /bin/busybox mount -t proc proc /proc\n\
         echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad\n\
         /bin/busybox ip link set eth0 up\n\
         /bin/busybox ip address add {address} dev eth0\n\
         {script}\n\
         exec /bin/busybox sleep 1000\n"
    ));
    archive.file("init", init.as_bytes())?;
    fs::write(file, archive.finish()?).with_context(|| format!("writing {}", file.display()))
}
