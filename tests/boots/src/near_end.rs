//! Boot loaders with a TCP of their own, over wireboot's network: their connections are split in the machine, or reach the server as they are.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use wireboot_lab::capture::{Capture, HEADERS, Transfer};
use wireboot_lab::loaders::FOLDER;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, NetworkOptions};

use crate::fixture::Fixture;
use crate::loaders::{program, start};
use crate::system;

/// Debian's GRUB for its installer, not signed, and the modules beside it (package grub-efi-amd64-bin).
const GRUB: &str = "/usr/lib/grub/x86_64-efi/monolithic/grubnetx64-installer.efi";
const MODULES: &str = "/usr/lib/grub/x86_64-efi";
/// The first port that the engine connects from; GRUB's begin at 21550.
const ENGINE_PORTS: u16 = 49152;
const FILES: [&str; 3] = ["/linux", "/system.cpio", "/data.cpio"];

/// Puts GRUB into its folder, with the module for HTTP and a menu that has the system come by it.
fn prepare(fixture: &Fixture<'_>) -> Result<()> {
    let folder = fixture.system.directory.join(FOLDER);
    let modules = folder.join("grub/x86_64-efi");
    fs::create_dir_all(&modules)?;
    fs::copy(GRUB, folder.join("grubx64.efi")).context(GRUB)?;
    let module = "http.mod";
    fs::copy(Path::new(MODULES).join(module), modules.join(module)).context(module)?;
    let from = "(http,10.77.0.1)";
    let menu = format!(
        "set timeout=0\ninsmod http\nmenuentry x {{\nlinux {from}/linux {}\ninitrd {from}/system.cpio {from}/data.cpio\n}}\n",
        system::OPTIONS
    );
    fs::write(folder.join("grub/grub.cfg"), menu)?;
    let by_tftp = format!("title GRUB\nefi tftp://10.77.0.1/{FOLDER}/grubx64.efi\n");
    fixture.system.configure(&by_tftp)
}

/// GRUB gets a system by HTTP, with so many megabytes of data, and starts it. Returns what was on the wire for each file.
fn grub(lab: &Lab, settings: &str, megabytes: usize) -> Result<Vec<Transfer>> {
    let mut fixture = Fixture::on(lab, NetworkOptions::default(), megabytes)?;
    prepare(&fixture)?;
    let program = program(&fixture, settings)?;
    fixture.boot_from_stick(&program)?;
    let _server = fixture.serve_program(&program, &[])?;
    let capture = Capture::start(
        lab,
        INTERFACE,
        "tcp",
        HEADERS,
        &lab.scratch().join("near-end.pcap"),
    )?;
    fixture.runs(&mut start(&fixture)?)?;
    let transfers = capture.finish()?;
    let of_file = |file: &&str| {
        // GRUB may have asked for less before.
        let transfers = transfers.iter().filter(|transfer| transfer.file == *file);
        let transfer = transfers.max_by_key(|transfer| transfer.bytes).cloned();
        let transfer = transfer.with_context(|| format!("{file} was not asked for"))?;
        println!(
            "{file} from port {}: {} bytes in {:.2} s, {:.0} Mbit/s",
            transfer.client,
            transfer.bytes,
            transfer.seconds(),
            transfer.bytes as f64 * 8e-6 / transfer.seconds()
        );
        Ok(transfer)
    };
    FILES.iter().map(of_file).collect()
}

/// The server sees the engine's connections.
pub(crate) fn grub_over_http(lab: &Lab) -> Result<()> {
    for transfer in grub(lab, "", 4)? {
        ensure!(transfer.client_port() >= Some(ENGINE_PORTS), "{transfer:?}");
    }
    Ok(())
}

/// The server sees GRUB's.
pub(crate) fn grub_over_http_by_its_own_means(lab: &Lab) -> Result<()> {
    for transfer in grub(lab, "near-end 0\n", 4)? {
        ensure!(transfer.client_port() < Some(ENGINE_PORTS), "{transfer:?}");
    }
    Ok(())
}
