//! What is measured: the loaders, and the networks that they run over.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::problems::Failure;
use crate::bench::report::short_version;
use crate::bench::stacks::{Server, ovmf};
use wireboot_lab::packages::Package;
use wireboot_lab::payload::INSTALLER_PACKAGE;
use wireboot_lab::qemu::Firmware;

/// A loader's file, or a loop of calls.
#[derive(Clone, Debug)]
pub struct Loader {
    /// Short name for `--only`.
    pub id: &'static str,
    /// As the report writes it.
    pub name: String,
    /// From whom it reads.
    pub server: Server,
    /// The boot loader, or the caller in its place.
    pub program: Program,
    /// Of what is measured.
    pub unit: Unit,
}

/// In what a loader is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// The file's bits over the time that it took.
    #[serde(rename = "Mbit/s")]
    MbitS,
    /// The time that it took, in milliseconds.
    #[serde(rename = "ms")]
    Ms,
}

impl Unit {
    /// As the report writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MbitS => "Mbit/s",
            Self::Ms => "ms",
        }
    }

    /// How many times as fast the first is as the second.
    pub(super) fn times(self, one: f64, other: f64) -> f64 {
        match self {
            Self::MbitS => one / other,
            Self::Ms => other / one,
        }
    }
}

/// A boot loader, or a caller in its place.
#[derive(Clone, Debug)]
pub enum Program {
    /// wireboot-callers.efi, which makes the calls of this verb.
    Calls(&'static str),
    /// shim, until it has GRUB.
    Shim,
    /// shim and GRUB, until they have the kernel and the initial RAM disk of Debian's installer.
    Installer,
    /// GRUB, which reads a file by this protocol.
    Grub(&'static str),
    /// iPXE's snponly.efi, which reads a file by this protocol.
    Ipxe(&'static str, PathBuf),
    /// doctor.efi, which calls the Simple Network Protocol's Receive again and again.
    ReceiveLoop,
}

impl Loader {
    /// Whether it brings a network stack of its own, which the near end is for.
    fn has_stack(&self) -> bool {
        matches!(
            self.program,
            Program::Grub(_) | Program::Ipxe(..) | Program::Installer
        )
    }

    /// Whether memory that is `cold`, or not, makes a difference to it.
    pub(super) fn takes_part(&self, cold: bool) -> bool {
        !cold || !matches!(self.program, Program::ReceiveLoop)
    }
}

/// The loaders that can take part, in the order of the report, and those that cannot. `ipxe` finds iPXE's package.
#[must_use]
pub fn loaders(ipxe: fn(&str) -> Result<Package>) -> (Vec<Loader>, Vec<Failure>) {
    let loader = |id, name: &str, server, program, unit| Loader {
        id,
        name: name.to_owned(),
        server,
        program,
        unit,
    };
    let calls = |id, name, server, verb| {
        let program = Program::Calls(verb);
        loader(id, name, server, program, Unit::MbitS)
    };
    let mut all = vec![
        calls(
            "mtftp-ours",
            "Mtftp(READ_FILE)",
            Server::Wireboot,
            "esxi-tftp",
        ),
        calls(
            "mtftp-atftpd",
            "Mtftp(READ_FILE)",
            Server::Atftpd,
            "esxi-tftp",
        ),
        calls(
            "http-response",
            "HTTP, one Response",
            Server::Nginx,
            "grub-http",
        ),
        calls(
            "http-pieces",
            "HTTP, 9216 bytes each",
            Server::Nginx,
            "shim-http",
        ),
    ];
    let mut absent = Vec::new();
    let mut add = |id: &'static str, version: Result<String>, ways: &[Loader]| match version {
        Ok(version) => all.extend(ways.iter().cloned().map(|way| Loader {
            name: way.name.replace("VERSION", short_version(&version)),
            ..way
        })),
        Err(error) => absent.push(Failure {
            what: id.to_owned(),
            reason: format!("{error:#}"),
        }),
    };
    let (tftp, http) = (Server::Atftpd, Server::Nginx);
    let shim = || Package::fetched("shim-signed").map(|package| package.version);
    add(
        "shim",
        shim(),
        &[loader(
            "shim",
            "shim-signed VERSION fetches GRUB",
            tftp,
            Program::Shim,
            Unit::Ms,
        )],
    );
    let grub = Package::installed("grub-efi-amd64-bin").map(|package| package.version);
    let by = |id, name, server, scheme| {
        let program = Program::Grub(scheme);
        loader(id, name, server, program, Unit::MbitS)
    };
    add(
        "grub",
        grub,
        &[
            by("grub-tftp", "GRUB VERSION, TFTP", tftp, "tftp"),
            by("grub-http", "GRUB VERSION, HTTP", http, "http"),
        ],
    );
    let ipxe = ipxe("ipxe").and_then(|package| {
        let program = package.file(&["usr/lib/ipxe/snponly.efi"])?;
        Ok((package.version, program))
    });
    let (version, program) = match ipxe {
        Ok((version, program)) => (Ok(version), program),
        Err(error) => (Err(error), PathBuf::new()),
    };
    let by = |id, name, server, scheme| {
        let program = Program::Ipxe(scheme, program.clone());
        loader(id, name, server, program, Unit::MbitS)
    };
    add(
        "ipxe",
        version,
        &[
            by("ipxe-tftp", "iPXE VERSION snponly.efi, TFTP", tftp, "tftp"),
            by("ipxe-http", "iPXE VERSION snponly.efi, HTTP", http, "http"),
        ],
    );
    let installer = Package::installed(INSTALLER_PACKAGE).and_then(|_| shim());
    add(
        "installer",
        installer,
        &[loader(
            "installer",
            "shim-signed VERSION, GRUB, Debian 12's installer",
            tftp,
            Program::Installer,
            Unit::Ms,
        )],
    );
    all.push(loader(
        "snp-receive",
        "SNP, Receive in a loop",
        Server::Wireboot,
        Program::ReceiveLoop,
        Unit::MbitS,
    ));
    (all, absent)
}

/// What a loader runs over.
#[derive(Clone, Debug)]
pub struct Network {
    /// Short name, for JSON.
    pub id: &'static str,
    /// As the report writes it.
    pub name: String,
    /// The machine's firmware.
    pub firmware: Firmware,
    /// For wireboot's network, whether it has the near end.
    pub wireboot: Option<NearEnd>,
}

impl Network {
    /// Whether it tells something about a loader.
    pub(super) fn is_for(&self, loader: &Loader) -> bool {
        self.wireboot != Some(NearEnd::Off) || loader.has_stack()
    }
}

/// wireboot's setting `near-end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearEnd {
    /// As it is without the setting.
    On,
    /// `near-end 0`
    Off,
}

/// Stock firmware of today and the `newest`, and wireboot's network; that again `without_near_end`, where wanted.
///
/// # Errors
/// When OVMF is not installed.
pub fn networks(without_near_end: bool) -> Result<(Vec<Network>, Vec<Failure>)> {
    let (version, firmware) = ovmf(Package::installed("ovmf")).context("the machine's firmware")?;
    let stock = |id, version: &str, firmware| Network {
        id,
        name: format!("OVMF {}", short_version(version)),
        firmware,
        wireboot: None,
    };
    let mut all = vec![stock("ovmf", &version, firmware.clone())];
    let mut absent = Vec::new();
    match ovmf(Package::fetched("ovmf")) {
        Ok((version, firmware)) => all.push(stock("ovmf-new", &version, firmware)),
        Err(error) => absent.push(Failure {
            what: "the newest OVMF".to_owned(),
            reason: format!("{error:#}"),
        }),
    }
    let off = without_near_end.then_some(("wireboot-near-end-0", "near-end 0", NearEnd::Off));
    let ours = [("wireboot", "wireboot", NearEnd::On)]
        .into_iter()
        .chain(off);
    all.extend(ours.map(|(id, name, near_end)| Network {
        id,
        name: name.to_owned(),
        firmware: firmware.clone(),
        wireboot: Some(near_end),
    }));
    Ok((all, absent))
}
