//! Snapshots of machines whose firmware has come to its first PCI device. What OVMF does before is the same on each machine of a kind: it unpacks
//! itself, looks for a TPM for a second and a half, and loads its drivers. Nothing of it depends on cards and disks, so machines of one
//! kind begin with one snapshot, whatever devices they have.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::gdb::Debugger;
use crate::netns::Lab;
use crate::patience::{Patience, wait_until};
use crate::qemu::{Accelerator, Firmware, Machine};

/// The variable that names the directory of snapshots. Tests set it; without it, machines begin at power-on.
pub const DIRECTORY: &str = "WIREBOOT_SNAPSHOTS";

/// Where Debian's OVMF has the configuration space of the first PCI device: the command register, which it writes before it looks for others.
const COMMAND: u64 = 0xb000_0004;

/// How long the firmware may take to come there, and QEMU to write what it is asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Options beside which a machine stays of its kind: they add PCI devices and what is behind them. Each has one argument.
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
    if !snapshot.exists() {
        // `seen`: a machine of the kind was started. `begun`: somebody makes the snapshot, or could not; the others do not wait.
        if first(&snapshot.with_extension("seen"))? || !first(&snapshot.with_extension("begun"))? {
            return Ok(None);
        }
        if let Err(error) = make(machine, lab, &snapshot) {
            eprintln!("no snapshot of the firmware's start: {error:#}");
            return Ok(None);
        }
    }
    // Shown where the boot fails.
    eprintln!("a machine begins with {}", snapshot.display());
    Ok(Some(snapshot))
}

/// QEMU's name for a snapshot as the source of a machine's state.
pub(crate) fn source(snapshot: &Path) -> String {
    format!("exec:cat {}", quoted(snapshot))
}

/// All that the firmware's way to its first device depends on; none for machines that begin at power-on.
fn kind(machine: &Machine) -> Result<Option<u64>> {
    let Machine {
        qemu,
        machine: board,
        accelerator,
        counts_instructions,
        processor,
        processors,
        memory_mib,
        preallocate,
        shares_memory,
        firmware,
        network: _,
        disks: _,
        kernel,
        firmware_configuration,
        // In the variables.
        http_boot_ipv6: _,
        driver: _,
        entropy: _,
        trace: _,
        from_power_on,
        extra,
    } = machine;
    let (Firmware::Ovmf { code, .. }, Firmware::Ovmf { code: known, .. }) =
        (firmware, Firmware::debian_ovmf())
    else {
        return Ok(None);
    };
    let devices_alone = extra.iter().step_by(2).all(|option| {
        let option = option.to_string_lossy();
        DEVICES.contains(&option.as_ref())
    });
    if *from_power_on
        || *code != known
        || board != "q35"
        || *accelerator != Accelerator::Tcg
        || *counts_instructions
        || kernel.is_some()
        || !devices_alone
    {
        return Ok(None);
    }
    let mut hasher = DefaultHasher::new();
    (
        qemu,
        processor,
        processors,
        memory_mib,
        preallocate,
        shares_memory,
        firmware_configuration,
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
fn make(machine: &Machine, lab: &Lab, snapshot: &Path) -> Result<()> {
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
    machine.extra.clear();
    machine.debugged_at(&stub);
    let mut running = machine.build(lab, "snapshot", None, |_| {})?;
    let mut debugger = Debugger::attach(&stub)?;
    debugger.run_until_written(COMMAND, Patience::new(PATIENCE))?;
    // A machine that its debugger has stopped is still so in its snapshot: it is stopped as users do it, and stays where it is until then.
    let held = debugger.hold()?;
    wait_until(PATIENCE, "the machine to go on", || {
        Ok(running.status("query-status")? == "running")
    })?;
    running.ask("stop", json!({}))?;
    debugger.release(held)?;
    let unfinished = snapshot.with_extension("unfinished");
    let written = snapshot.with_extension("written");
    let [from, to] = [&unfinished, &written].map(|path| quoted(path));
    let uri = format!("exec:cat > {from} && mv {from} {to}");
    running.ask("migrate", json!({ "uri": uri }))?;
    wait_until(PATIENCE, "the snapshot", || {
        let status = running.status("query-migrate")?;
        ensure!(
            status != "failed",
            "QEMU did not write it: {}",
            running.messages()
        );
        // The shell has its last bytes later than QEMU says so, and takes what was broken off for whole.
        Ok(status == "completed" && written.exists())
    })?;
    fs::rename(&written, snapshot).context("keeping a snapshot")
}

/// As one word of the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::{Disk, NetworkCard};

    /// Of a machine of tests, with a change. `None` where the firmware is not installed.
    fn of_kind(change: impl FnOnce(&mut Machine)) -> Option<u64> {
        let mut machine = Machine::new(Accelerator::Tcg);
        change(&mut machine);
        if !Path::new("/usr/share/OVMF/OVMF_VARS_4M.fd").exists() {
            return None;
        }
        kind(&machine).unwrap()
    }

    #[test]
    fn devices_leave_a_machine_of_its_kind() {
        let plain = of_kind(|_| {});
        let with_devices = of_kind(|machine| {
            machine.network = Some(NetworkCard::new("user,id=net0".into()));
            machine.disks.push(Disk::Directory {
                path: "/".into(),
                boot_index: Some(1),
            });
            machine.entropy = false;
            machine.trace.push("virtio_set_status".into());
            machine.extra = ["-device", "qemu-xhci"].map(Into::into).into();
        });
        assert_eq!(plain, with_devices);
    }

    #[test]
    fn what_the_firmware_sees_before_makes_another_kind() {
        let Some(plain) = of_kind(|_| {}) else {
            println!("not run: OVMF is not installed");
            return;
        };
        let changes: [fn(&mut Machine); 7] = [
            |machine| machine.memory_mib += 1,
            |machine| machine.processors += 1,
            |machine| machine.processor = "qemu64".into(),
            |machine| machine.preallocate = true,
            |machine| machine.shares_memory = true,
            |machine| machine.pxe_only(None),
            |machine| {
                machine.network = Some(NetworkCard::new("user,id=net0".into()));
                machine.http_boot_ipv6 = true;
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let kind = of_kind(change);
            assert!(kind.is_some_and(|kind| kind != plain), "change {number}");
        }
    }

    #[test]
    fn others_begin_at_power_on() {
        let changes: [fn(&mut Machine); 7] = [
            |machine| machine.from_power_on = true,
            |machine| machine.machine = "pc".into(),
            |machine| machine.accelerator = Accelerator::Kvm,
            |machine| machine.counts_instructions = true,
            |machine| machine.firmware = Firmware::SeaBios,
            |machine| machine.extra = ["-vga", "none"].map(Into::into).into(),
            |machine| {
                if let Firmware::Ovmf { code, .. } = &mut machine.firmware {
                    *code = "/usr/share/OVMF/OVMF_CODE_4M.ms.fd".into();
                }
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(of_kind(change), None, "change {number}");
        }
    }

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
