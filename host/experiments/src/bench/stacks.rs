//! Who takes part: the stacks, what runs each, and from whom it downloads.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::protocol::TransferProtocol;
use wireboot_lab::guest::Kernel;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders;
use wireboot_lab::packages::{self, Package};
use wireboot_lab::qemu::Firmware;

/// A server beside the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// TFTP by atftpd.
    Atftpd,
    /// HTTP by nginx.
    Nginx,
    /// Our own, TFTP and HTTP.
    Wireboot,
    /// The same in a card of ours, with no network.
    Card,
}

impl Server {
    /// As the report writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Atftpd => "atftpd",
            Self::Nginx => "nginx",
            Self::Wireboot => "wireboot serve",
            Self::Card => "wireboot nic serve",
        }
    }
}

/// The program that downloads, and what it needs to start.
#[derive(Clone, Debug)]
pub enum Loader {
    /// wireboot.efi, started over PXE by stock firmware.
    Wireboot {
        /// Path of wireboot.efi on the host.
        program: PathBuf,
    },
    /// The firmware's own PXE or HTTP Boot.
    Firmware,
    /// iPXE, started over PXE by stock firmware.
    Ipxe {
        /// Path of iPXE's EFI program on the host.
        program: PathBuf,
        /// Whether it drives the card itself, so that it needs no PXE before it.
        has_drivers: bool,
    },
    /// iPXE in the card's ROM under a legacy BIOS.
    IpxeRom {
        /// The BIOS; none for QEMU's own.
        bios: Option<PathBuf>,
        /// Path of the ROM image on the host.
        rom: PathBuf,
    },
    /// GRUB, started over PXE by stock firmware.
    Grub,
    /// wget on a Linux kernel that QEMU loads.
    Linux {
        /// The kernel and its modules, from the cache.
        kernel: Kernel,
    },
}

/// How a stack gets to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// By PXE of stock firmware.
    Pxe,
    /// By stock firmware from a stick, without the network.
    Stick,
    /// It is the firmware, or in the card's ROM.
    BuiltIn,
}

impl Start {
    /// As the report writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pxe => "PXE",
            Self::Stick => "stick",
            Self::BuiltIn => "built in",
        }
    }
}

/// What a stack is compared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// wireboot.efi: the rows that are ours.
    Wireboot,
    /// The firmware's own.
    Stock,
    /// iPXE of any sort.
    Ipxe,
    /// A guest that runs already, and fetches the file as any program does.
    Linux,
    /// What no row is compared with: GRUB.
    Other,
}

/// One competitor: a program, a protocol and a server.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Short name for `--only`: letters, digits and hyphens.
    pub id: String,
    /// As the report writes it.
    pub name: &'static str,
    /// The version of what downloads.
    pub version: String,
    /// By which it gets the file; how it comes to run is another matter.
    pub protocol: TransferProtocol,
    /// The server of the file.
    pub server: Server,
    /// What it is compared as.
    pub kind: Kind,
    /// The program that fetches.
    pub loader: Loader,
    /// The machine's, which starts the program, or downloads itself.
    pub firmware: Firmware,
}

impl Stack {
    /// The ways to start it of which the time to the first byte is taken; none where that tells nothing.
    #[must_use]
    pub fn starts(&self) -> &'static [Start] {
        match (&self.loader, self.protocol) {
            // Its DHCP names what `wireboot serve` finds to boot.
            _ if matches!(self.server, Server::Wireboot | Server::Card) => &[],
            (Loader::Wireboot { .. }, _) => &[Start::Pxe, Start::Stick],
            (Loader::Firmware, _) | (Loader::IpxeRom { .. }, TransferProtocol::Http) => {
                &[Start::BuiltIn]
            }
            (Loader::Ipxe { has_drivers, .. }, TransferProtocol::Http) => {
                if *has_drivers {
                    &[Start::Pxe, Start::Stick]
                } else {
                    &[Start::Pxe]
                }
            }
            _ => &[],
        }
    }
}

/// A stack that cannot take part, and why.
#[derive(Clone, Debug)]
pub struct Absent {
    /// The short name that it would have had, without protocol and server.
    pub id: String,
    /// The reason, with what to do.
    pub reason: String,
    /// Whether it could take part, were all at hand that it needs.
    pub able: bool,
}

/// The packages that take part in their newest version too.
const NEW: [&str; 4] = ["ovmf", "ipxe", "ipxe-qemu", "seabios"];
/// How long a package counts as the newest.
const NEW_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Fetches the newest packages into the cache, unless it holds them from the last days. Call it outside the lab's namespaces.
///
/// # Errors
/// When they are not to be had; those that the cache holds take part all the same.
pub fn fetch() -> Result<()> {
    packages::fetch(&NEW, &loaders::NEW_SUITES, NEW_LIFETIME)
}

/// The stacks that can take part here, in the order of the report, and those that cannot. `program`: wireboot.efi, where it is built.
#[must_use]
pub fn all(program: Option<PathBuf>, ip: IpVersion) -> (Vec<Stack>, Vec<Absent>) {
    let mut list = List::default();
    let stock = ovmf(Package::installed("ovmf"));
    let wireboot = wireboot(program, stock.as_ref());
    let mut ways = vec![
        (TransferProtocol::Tftp, Server::Wireboot),
        (TransferProtocol::Tftp, Server::Atftpd),
        (TransferProtocol::Http, Server::Nginx),
    ];
    if ip == IpVersion::V4 {
        ways.extend([
            (TransferProtocol::Tftp, Server::Card),
            (TransferProtocol::Http, Server::Card),
        ]);
    }
    list.add("wireboot", wireboot, &ways);
    let (tftp, http) = (
        (TransferProtocol::Tftp, Server::Atftpd),
        (TransferProtocol::Http, Server::Nginx),
    );
    for (age, package) in [
        ("", Package::installed as fn(&str) -> Result<Package>),
        ("-new", Package::fetched),
    ] {
        let firmware = ovmf(package("ovmf")).map(|(version, firmware)| {
            entry(
                "stock OVMF",
                version,
                Kind::Stock,
                Loader::Firmware,
                firmware,
            )
        });
        list.add(
            &format!("ovmf{age}"),
            firmware,
            &[tftp, (TransferProtocol::Tftp, Server::Wireboot), http],
        );
        let ipxe = |name: &'static str, files: &[&str], has_drivers| {
            let (_, firmware) = stock
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{error:#}"))?;
            let package = package("ipxe")?;
            let program = package.file(files)?;
            Ok(entry(
                name,
                package.version,
                Kind::Ipxe,
                Loader::Ipxe {
                    program,
                    has_drivers,
                },
                firmware.clone(),
            ))
        };
        let snponly = ipxe("iPXE snponly.efi", &["usr/lib/ipxe/snponly.efi"], false);
        list.add(&format!("ipxe-snp{age}"), snponly, &[http, tftp]);
        let full = ipxe(
            "iPXE ipxe.efi",
            &[
                "usr/lib/ipxe/ipxe-amd64.efi",
                "usr/lib/ipxe/ipxe.efi",
                "boot/ipxe.efi",
            ],
            true,
        );
        list.add(&format!("ipxe-efi{age}"), full, &[http, tftp]);
        list.add(&format!("ipxe-bios{age}"), ipxe_rom(package), &[http, tftp]);
    }
    match ip {
        IpVersion::V4 => list.add("grub", grub(stock.as_ref()), &[http, tftp]),
        IpVersion::V6 => list.unable("grub", "it has no DHCPv6"),
    }
    list.add("linux", linux(), &[http]);
    (list.stacks, list.absent)
}

#[derive(Default)]
struct List {
    stacks: Vec<Stack>,
    absent: Vec<Absent>,
}

impl List {
    fn unable(&mut self, id: &str, reason: &str) {
        self.absent.push(Absent {
            id: id.to_owned(),
            reason: reason.to_owned(),
            able: false,
        });
    }

    fn add(&mut self, id: &str, stack: Result<Stack>, ways: &[(TransferProtocol, Server)]) {
        match stack {
            Err(error) => self.absent.push(Absent {
                id: id.to_owned(),
                reason: format!("{error:#}"),
                able: true,
            }),
            Ok(stack) => self.stacks.extend(ways.iter().map(|&(protocol, server)| {
                let own = match server {
                    Server::Wireboot => "-ours",
                    Server::Card => "-card",
                    Server::Atftpd | Server::Nginx => "",
                };
                let id = format!("{id}-{}{own}", protocol.name().to_lowercase());
                Stack {
                    id,
                    protocol,
                    server,
                    ..stack.clone()
                }
            })),
        }
    }
}

/// Protocol and server are filled in by [`List::add`].
fn entry(
    name: &'static str,
    version: String,
    kind: Kind,
    loader: Loader,
    firmware: Firmware,
) -> Stack {
    Stack {
        id: String::new(),
        name,
        version,
        protocol: TransferProtocol::Http,
        server: Server::Nginx,
        kind,
        loader,
        firmware,
    }
}

/// OVMF's version and files.
pub(crate) fn ovmf(package: Result<Package>) -> Result<(String, Firmware)> {
    let package = package?;
    let code = package.file(&["usr/share/OVMF/OVMF_CODE_4M.fd"])?;
    let variables = package.file(&["usr/share/OVMF/OVMF_VARS_4M.fd"])?;
    Ok((package.version, Firmware::Ovmf { code, variables }))
}

type Stock<'a> = Result<&'a (String, Firmware), &'a anyhow::Error>;

fn wireboot(program: Option<PathBuf>, stock: Stock<'_>) -> Result<Stack> {
    let (_, firmware) = stock.map_err(|error| anyhow::anyhow!("{error:#}"))?;
    let program = program.context("no wireboot.efi: make build, or name it with --nbp")?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(entry(
        "wireboot",
        version,
        Kind::Wireboot,
        Loader::Wireboot { program },
        firmware.clone(),
    ))
}

fn ipxe_rom(package: fn(&str) -> Result<Package>) -> Result<Stack> {
    let roms = package("ipxe-qemu")?;
    let rom = roms.file(&[
        "usr/lib/ipxe/qemu/pxe-virtio.rom",
        "usr/share/qemu/pxe-virtio.rom",
    ])?;
    let bios = package("seabios")?.file(&["usr/share/seabios/bios-256k.bin"])?;
    let loader = Loader::IpxeRom {
        bios: Some(bios),
        rom,
    };
    Ok(entry(
        "SeaBIOS + iPXE virtio",
        roms.version,
        Kind::Ipxe,
        loader,
        Firmware::SeaBios,
    ))
}

fn grub(stock: Stock<'_>) -> Result<Stack> {
    let (_, firmware) = stock.map_err(|error| anyhow::anyhow!("{error:#}"))?;
    let package = Package::installed("grub-efi-amd64-bin")?;
    Ok(entry(
        "GRUB",
        package.version,
        Kind::Other,
        Loader::Grub,
        firmware.clone(),
    ))
}

fn linux() -> Result<Stack> {
    let kernel = Kernel::cached()?;
    Ok(entry(
        "Linux guest, wget",
        kernel.release.clone(),
        Kind::Linux,
        Loader::Linux { kernel },
        Firmware::SeaBios,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_protocol_and_our_server() {
        let mut list = List::default();
        let stack = entry(
            "x",
            "1".into(),
            Kind::Other,
            Loader::Grub,
            Firmware::SeaBios,
        );
        list.add(
            "x-new",
            Ok(stack),
            &[
                (TransferProtocol::Tftp, Server::Atftpd),
                (TransferProtocol::Tftp, Server::Wireboot),
                (TransferProtocol::Http, Server::Nginx),
            ],
        );
        let ids: Vec<_> = list.stacks.iter().map(|stack| stack.id.as_str()).collect();
        assert_eq!(ids, ["x-new-tftp", "x-new-tftp-ours", "x-new-http"]);
    }

    #[test]
    fn a_stick_is_for_what_drives_the_card_itself() {
        let starts = |loader, protocol, server| {
            let firmware = Firmware::SeaBios;
            let stack = entry("x", "1".into(), Kind::Other, loader, firmware);
            Stack {
                protocol,
                server,
                ..stack
            }
            .starts()
        };
        let program = PathBuf::new;
        let wireboot = || Loader::Wireboot { program: program() };
        let ipxe = |has_drivers| Loader::Ipxe {
            program: program(),
            has_drivers,
        };
        let (http, tftp) = (TransferProtocol::Http, TransferProtocol::Tftp);
        let both = [Start::Pxe, Start::Stick];
        assert_eq!(starts(wireboot(), http, Server::Nginx), both);
        assert_eq!(starts(wireboot(), tftp, Server::Wireboot), []);
        assert_eq!(starts(ipxe(true), http, Server::Nginx), both);
        assert_eq!(starts(ipxe(false), http, Server::Nginx), [Start::Pxe]);
        assert_eq!(starts(ipxe(true), tftp, Server::Atftpd), []);
        assert_eq!(
            starts(Loader::Firmware, tftp, Server::Atftpd),
            [Start::BuiltIn]
        );
        assert_eq!(starts(Loader::Grub, http, Server::Nginx), []);
    }

    #[test]
    fn grub_is_left_out_over_ipv6_alone() {
        for (ip, unable) in [(IpVersion::V4, false), (IpVersion::V6, true)] {
            let (stacks, absent) = all(None, ip);
            let told = absent
                .iter()
                .any(|absent| absent.id == "grub" && !absent.able);
            assert_eq!(told, unable);
            if unable {
                assert!(stacks.iter().all(|stack| !stack.id.starts_with("grub")));
            }
        }
    }

    #[test]
    fn absent_stack_keeps_its_reason() {
        let mut list = List::default();
        list.add("y", Err(anyhow::anyhow!("inner").context("outer")), &[]);
        assert_eq!(
            list.absent.first().map(|absent| absent.reason.as_str()),
            Some("outer: inner")
        );
    }
}
