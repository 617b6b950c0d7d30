//! Snapshots of machines whose firmware has come to its first PCI device. What OVMF does before is the same on each machine of a kind: it unpacks
//! itself, looks for a TPM for a second and a half, and loads its drivers. Nothing of it depends on cards and disks, so machines of one
//! kind begin with one snapshot, whatever devices they have.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::gdb::Debugger;
use crate::netns::Lab;
use crate::qemu::{Accelerator, Firmware, Machine};

/// The variable with the directory of snapshots, for tests: to those it is the same how the firmware starts, but for the time that it takes. Without it,
/// machines begin at power-on.
pub const DIRECTORY: &str = "WIREBOOT_SNAPSHOTS";

/// Where Debian's OVMF has the configuration space of the first PCI device: the command register, which it writes before it looks for others.
const COMMAND: u64 = 0xb000_0004;

/// How long the firmware may take to come there, on a host that does much else.
const PATIENCE: Duration = Duration::from_secs(240);

/// Options beside which a machine stays of its kind: what they add is found after the snapshot.
const DEVICES: [&str; 5] = ["-chardev", "-device", "-drive", "-gdb", "-netdev"];

/// The snapshot that the machine begins with. None is made for the first of a kind, which may be the only one; the second makes it.
pub(crate) fn of(machine: &Machine, lab: &Lab) -> Result<Option<PathBuf>> {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return Ok(None);
    };
    let Some(kind) = kind(machine)? else {
        return Ok(None);
    };
    let snapshot = Path::new(&directory).join(format!("{kind:016x}"));
    if snapshot.exists() {
        return Ok(Some(snapshot));
    }
    // Other processes may be about to make it: they do so once, and nobody waits for it.
    if first(&snapshot.with_extension("seen"))? || !first(&snapshot.with_extension("begun"))? {
        return Ok(None);
    }
    let unfinished = snapshot.with_extension("unfinished");
    match make(machine, lab, &unfinished) {
        Ok(()) => {
            fs::rename(&unfinished, &snapshot).context("keeping a snapshot")?;
            Ok(Some(snapshot))
        }
        Err(error) => {
            log::warn!(
                "no snapshot of the firmware's start ({error:#}): it starts from the beginning"
            );
            Ok(None)
        }
    }
}

/// QEMU's name for a snapshot as the source of a machine's state.
pub(crate) fn source(snapshot: &Path) -> String {
    format!("exec:cat {}", quoted(snapshot))
}

/// All that the firmware's way to its first device depends on; none for machines that begin at the beginning.
fn kind(machine: &Machine) -> Result<Option<u64>> {
    let Firmware::Ovmf { code, .. } = &machine.firmware else {
        return Ok(None);
    };
    let Firmware::Ovmf { code: known, .. } = Firmware::debian_ovmf() else {
        return Ok(None);
    };
    let devices_alone = machine.extra.iter().step_by(2).all(|option| {
        let option = option.to_string_lossy();
        DEVICES.contains(&option.as_ref())
    });
    if *code != known
        || machine.machine != "q35"
        || machine.accelerator != Accelerator::Tcg
        || machine.counts_instructions
        || machine.kernel.is_some()
        || !devices_alone
    {
        return Ok(None);
    }
    let mut hasher = DefaultHasher::new();
    (
        &machine.qemu,
        &machine.processor,
        machine.processors,
        machine.memory_mib,
        machine.preallocate,
        machine.shares_memory,
        &machine.firmware_configuration,
        machine.variables()?,
    )
        .hash(&mut hasher);
    Ok(Some(hasher.finish()))
}

/// Whether this process is the first to make an empty file of that name.
fn first(file: &Path) -> Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| format!("making {}", file.display())),
    }
}

/// Starts a machine of the same kind without any device, up to the snapshot.
fn make(machine: &Machine, lab: &Lab, to: &Path) -> Result<()> {
    let stub = lab.scratch().join("snapshot.gdb");
    let variables = lab.scratch().join("snapshot.template");
    fs::write(&variables, machine.variables()?.unwrap_or_default())
        .with_context(|| format!("writing {}", variables.display()))?;
    let mut machine = machine.clone();
    if let Firmware::Ovmf { variables: of, .. } = &mut machine.firmware {
        *of = variables;
    }
    machine.http_boot_ipv6 = false;
    machine.driver = None;
    machine.network = None;
    machine.disks.clear();
    machine.entropy = false;
    machine.trace.clear();
    machine.extra = vec![
        "-gdb".into(),
        format!("unix:{},server=on,wait=off", stub.display()).into(),
    ];
    let mut running = machine.build(lab, "snapshot", None, |_| {})?;
    let mut debugger = Debugger::attach(&stub)?;
    debugger.run_until_written(COMMAND, PATIENCE)?;
    // A machine that its debugger has stopped is still so in its snapshot. Stopped by us, it goes on.
    let held = debugger.hold()?;
    running.ask("stop", json!({}))?;
    debugger.release(held)?;
    let uri = format!("exec:cat > {}", quoted(to));
    running.ask("migrate", json!({ "uri": uri }))?;
    loop {
        let state = running.ask("query-migrate", json!({}))?;
        match state["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => bail!("QEMU did not write it: {state}"),
            _ => sleep(Duration::from_millis(10)),
        }
    }
}

/// As one word of the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}
