//! What most tests begin with: a network, a directory to boot from, a machine.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use wireboot_lab::accel;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, Network, NetworkOptions, SERVER};
use wireboot_lab::qemu::{Disk, Firmware, Machine, RunningMachine};
use wireboot_lab::server::Server;

use crate::system::System;

/// For a step of a boot: much longer than it takes, for machines that are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// The machine's name.
pub(crate) const MACHINE: &str = "machine";

/// A network, a directory to boot from, and a machine that is still switched off.
pub(crate) struct Fixture<'lab> {
    pub lab: &'lab Lab,
    pub network: Network,
    pub system: System,
    pub machine: Machine,
    /// Whether a script of the firmware's shell starts what is booted.
    starts_by_shell: bool,
}

impl<'lab> Fixture<'lab> {
    /// A plain network and little data.
    pub(crate) fn new(lab: &'lab Lab) -> Result<Self> {
        Fixture::on(lab, NetworkOptions::default(), 1)
    }

    /// Another network, and `megabytes` of data.
    pub(crate) fn on(lab: &'lab Lab, options: NetworkOptions, megabytes: usize) -> Result<Self> {
        let network = Network::new(lab, options)?;
        let system = System::new(&lab.scratch().join("system"), megabytes)?;
        fs::copy(boot_program()?, system.directory.join("wireboot.efi"))
            .context("copying wireboot.efi")?;
        let mut machine = Machine::new(accel::best(lab, false)?);
        machine.memory_mib = 768;
        machine.network = Some(network.card());
        machine.pxe_only(Some(IpVersion::V4));
        Ok(Fixture {
            lab,
            network,
            system,
            machine,
            starts_by_shell: false,
        })
    }

    /// Our own server.
    pub(crate) fn serve(&self, more: &[&str]) -> Result<Server> {
        self.serve_program(&boot_program()?, more)
    }

    /// Our own server on a network of IPv6 that has no other router: it tells of itself, as this computer forwards packets. Without a
    /// router, the firmware's PXE waits 10 s for one.
    pub(crate) fn serve_as_a_router(&self) -> Result<Server> {
        let file = format!("/proc/sys/net/ipv6/conf/{INTERFACE}/forwarding");
        fs::write(&file, "1").with_context(|| format!("writing {file}"))?;
        self.serve(&["--ra"])
    }

    /// Our own server, with another boot program.
    pub(crate) fn serve_program(&self, program: &Path, more: &[&str]) -> Result<Server> {
        Server::start(
            self.lab,
            self.lab.command(wireboot()?),
            &self.system.directory,
            program,
            more,
        )
    }

    /// Has the kernel come from a server that takes connections and says nothing.
    pub(crate) fn kernel_from_silence(&self) -> Result<TcpListener> {
        self.system
            .configure("title Test system\nlinux http://10.77.0.1:8080/linux\n")?;
        TcpListener::bind((SERVER, 8080)).context("listening")
    }

    /// Makes the machine boot wireboot.efi from a disk instead of the network, by a script of the firmware's shell.
    pub(crate) fn boot_from_disk(&mut self, arguments: &str) -> Result<()> {
        let disk = self.new_disk()?;
        fs::copy(boot_program()?, disk.join("wireboot.efi"))?;
        fs::write(
            disk.join("startup.nsh"),
            format!("fs0:\r\nwireboot.efi {arguments}\r\n"),
        )?;
        self.starts_by_shell = true;
        Ok(())
    }

    /// Makes the machine boot a wireboot.efi from a disk instead of the network, by the name that firmware looks for.
    pub(crate) fn boot_from_stick(&mut self, program: &Path) -> Result<()> {
        self.boot_from_stick_at(program).map(drop)
    }

    /// Has the directory's wireboot.efi come from a stick, for tests to which it is the same how it came: the firmware's PXE waits 4 s for offers.
    pub(crate) fn by_stick(mut self) -> Result<Self> {
        let program = self.system.directory.join("wireboot.efi");
        self.boot_from_stick(&program)?;
        Ok(self)
    }

    /// The same. The directory on the disk where the program lies.
    pub(crate) fn boot_from_stick_at(&mut self, program: &Path) -> Result<PathBuf> {
        let directory = self.new_disk()?.join("EFI/BOOT");
        fs::create_dir_all(&directory)?;
        fs::copy(program, directory.join("BOOTX64.EFI"))?;
        Ok(directory)
    }

    /// An empty disk, from which the machine boots instead of the network.
    fn new_disk(&mut self) -> Result<PathBuf> {
        let disk = self.lab.scratch().join("esp");
        if disk.exists() {
            fs::remove_dir_all(&disk)?;
        }
        fs::create_dir_all(&disk)?;
        self.machine.disks.push(Disk::Directory {
            path: disk.clone(),
            boot_index: Some(1),
        });
        if let Some(card) = &mut self.machine.network {
            card.boot_index = None;
        }
        self.machine.pxe_only(None);
        self.starts_by_shell = false;
        Ok(disk)
    }

    /// Switches the machine on.
    pub(crate) fn start(&self) -> Result<RunningMachine> {
        ensure!(
            matches!(self.machine.firmware, Firmware::Ovmf { .. }),
            "these tests are for UEFI"
        );
        let mut machine = self.machine.start(self.lab, MACHINE, |_| {})?;
        if self.starts_by_shell {
            // A key spares the 5 s that it waits otherwise.
            expect(&mut machine, "or any other key to continue")?;
            machine.console.send("\r")?;
        }
        Ok(machine)
    }

    /// Boots to the end: the system tells the right checksum and switches itself off.
    pub(crate) fn boots(&self) -> Result<RunningMachine> {
        let mut machine = self.start()?;
        expect(&mut machine, r"wireboot: ready after \d+ ms")?;
        self.arrives(&mut machine)?;
        Ok(machine)
    }

    /// The rest of a boot, from wireboot's first words.
    pub(crate) fn arrives(&self, machine: &mut RunningMachine) -> Result<()> {
        self.fetched(machine)?;
        self.runs(machine)
    }

    /// Boots until Linux is started, for tests to which it is the same what that does: it takes as long as all before. The data has the checksum
    /// that the configuration says ([`System::check`]).
    pub(crate) fn fetches(&self) -> Result<RunningMachine> {
        let mut machine = self.start()?;
        expect(&mut machine, r"wireboot: ready after \d+ ms")?;
        self.fetched_right(&mut machine)?;
        Ok(machine)
    }

    /// The rest of such a boot.
    pub(crate) fn fetched_right(&self, machine: &mut RunningMachine) -> Result<()> {
        self.fetched(machine)?;
        let transcript = machine.console.transcript();
        ensure!(
            transcript.contains("data.cpio: sha256 is right"),
            "the data was not checked"
        );
        Ok(())
    }

    /// All has come.
    fn fetched(&self, machine: &mut RunningMachine) -> Result<()> {
        expect(
            machine,
            r"wireboot: \S+data\.cpio: \d+ bytes in [0-9.]+ s, \d+ Mbit/s",
        )?;
        expect(
            machine,
            r"wireboot: [0-9.]+ MB in [0-9.]+ s, \d+ Mbit/s, \d+ retransmissions",
        )?;
        expect(machine, r"wireboot: starting linux").map(drop)
    }

    /// The system has its data, and switches the machine off.
    pub(crate) fn runs(&self, machine: &mut RunningMachine) -> Result<()> {
        expect(machine, &format!("boots: sha256 {}", self.system.sha256))?;
        let status = machine
            .wait(PATIENCE)?
            .context("the system did not switch the machine off")?;
        ensure!(
            status.success(),
            "QEMU failed: {status}, {}",
            machine.messages()
        );
        Ok(())
    }

    /// wireboot tells what is wrong, and the firmware goes on.
    pub(crate) fn fails(&self, machine: &mut RunningMachine, texts: &[&str]) -> Result<()> {
        for text in texts {
            expect(machine, text)?;
        }
        expect(
            machine,
            "wireboot: the firmware goes on with its next boot option",
        )
        .map(drop)
    }

    /// Gives the machine a stub for a debugger.
    pub(crate) fn debugged(&mut self) -> PathBuf {
        let stub = self.lab.scratch().join("gdb");
        self.machine.debugged_at(&stub);
        stub
    }

    /// The firmware comes to the boot option after PXE.
    pub(crate) fn goes_on(&self, machine: &mut RunningMachine) -> Result<()> {
        expect(machine, "(?i)start HTTP Boot over IPv4").map(drop)
    }
}

/// The next console text that matches.
pub(crate) fn expect(machine: &mut RunningMachine, expression: &str) -> Result<String> {
    Ok(machine
        .console
        .wait_for(&Regex::new(expression)?, PATIENCE)?
        .text)
}

fn dist(file: &str) -> Result<PathBuf> {
    let directory = std::env::var_os("WIREBOOT_DIST").map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist").into(),
        PathBuf::from,
    );
    let path = directory.join(file);
    path.canonicalize()
        .with_context(|| format!("{}: `make build` makes it", path.display()))
}

/// The network boot program.
pub(crate) fn boot_program() -> Result<PathBuf> {
    dist("wireboot.efi")
}

/// The same with panics on demand.
pub(crate) fn faulty_program() -> Result<PathBuf> {
    dist("wireboot-faults.efi")
}

/// The program that examines machines, with panics on demand.
pub(crate) fn faulty_doctor() -> Result<PathBuf> {
    dist("doctor-faults.efi")
}

/// The program that examines machines.
pub(crate) fn doctor_program() -> Result<PathBuf> {
    dist("doctor.efi")
}

/// The driver that keeps the times of a boot.
pub(crate) fn recorder_program() -> Result<PathBuf> {
    dist("recorder.efi")
}

/// The driver that plants faults.
pub(crate) fn planted_program() -> Result<PathBuf> {
    dist("wireboot-planted.efi")
}

/// The program that makes loaders' calls.
pub(crate) fn callers_program() -> Result<PathBuf> {
    dist("wireboot-callers.efi")
}

/// The host command.
pub(crate) fn wireboot() -> Result<PathBuf> {
    dist("wireboot")
}

/// Runs a tool to its end.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("starting {:?}: is it installed?", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// A server process. It ends with this value.
pub(crate) struct Daemon(std::process::Child);

impl Daemon {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("starting {:?}: is it installed?", command.get_program()))?;
        Ok(Self(child))
    }

    /// Ends with an error when the process has ended.
    pub(crate) fn still_runs(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("the server has ended: {status}"),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
