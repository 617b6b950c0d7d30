//! `wireboot nic`.

mod arguments;
mod card_args;
mod check;
mod chunk;
mod fault;
mod pace;
mod socket_place;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use wireboot_card::feature;

use wireboot_server::event::{Console, Events};

use self::card_args::CardArgs;
pub use self::check::CheckArgs;
use self::socket_place::SocketPlace;
use crate::table::{BUSES, LINES, Tables};
use crate::vhost::MAX_PAIRS;
use crate::wires::{HostWire, ServerWire, Tap};

/// Memory of a machine of which nobody says how much it has.
const MEMORY_MIB: u32 = 1024;

/// A network card for virtual machines, as a program of its own
///
/// QEMU, libvirt or Cloud Hypervisor attach a virtual machine's virtio network
/// card to it, by vhost-user: they share the machine's memory with this program,
/// which takes frames from there and puts frames there itself.
///
/// Make a tap, start the card, then the machine:
///
///   ip tuntap add dev vm0 mode tap vnet_hdr user $USER
///   wireboot nic run --socket $XDG_RUNTIME_DIR/card --wire tap=vm0
///   qemu-system-x86_64 $(wireboot nic args --socket $XDG_RUNTIME_DIR/card) ...
#[derive(Subcommand, Clone, Debug)]
#[command(verbatim_doc_comment)]
#[allow(missing_docs, reason = "the help of each stands at its arguments")]
pub enum Nic {
    Serve(ServeArgs),
    Run(RunArgs),
    Args(ArgsArgs),
    Table(TableArgs),
    Check(CheckArgs),
}

/// Boot virtual machines from a directory, by a card that is the boot server too.
///
/// The card and the server in it need no privilege, no interface and no network: the machine has a network of its own, on which the server is
/// 10.77.0.1. It gives the machine an address, wireboot.efi and the files of DIR, by DHCP, TFTP and HTTP over IPv4, as `wireboot serve` does.
/// The arguments by which QEMU attaches a machine are printed when the card is there.
///
/// Ends with 0 after SIGINT or SIGTERM, with 1 when it cannot start.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Directory to serve
    pub dir: PathBuf,
    /// Where monitors connect: a socket for this user alone, in a directory that others cannot write to [default: wireboot-card in
    /// $XDG_RUNTIME_DIR, else in a new directory of this user's]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// What any card can be told
    #[command(flatten)]
    pub card: CardArgs,
}

/// Be a card, until SIGINT or SIGTERM.
///
/// One virtual machine at a time is attached to it. It may be reset, or end and start again; the next one is then served. What its driver
/// does wrong stops the queue in question until the driver starts it anew.
///
/// Ends with 0 after a signal, with 1 when it cannot start.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Where monitors connect: a socket for this user alone, in a directory that others cannot write to. It is removed at the end. With
    /// queues=N, guests have N pairs of queues, 1 to 8
    #[arg(long, value_name = "PATH[,queues=N]")]
    pub socket: SocketArgument,
    /// Where frames go to and come from: tap=NAME, an interface that `ip tuntap add dev NAME mode tap vnet_hdr` has made, with multi_queue behind it for
    /// several pairs of queues; serve=DIR, a boot server as of `wireboot nic serve DIR`, for one pair; or none
    #[arg(long, value_name = "WIRE")]
    pub wire: WireArgument,
    /// What guests are offered, of what the card can: all, none, or a list of csum, guest_csum, guest_tso4, guest_tso6, guest_ecn, guest_ufo,
    /// host_tso4, host_tso6, host_ecn, host_ufo with commas between. `guest_*` is what may come to the guest in large units, `host_*` what it may
    /// send so. What one needs comes with it
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub offload: OffloadArgument,
    /// What any card can be told
    #[command(flatten)]
    pub card: CardArgs,
}

/// Print the arguments by which a monitor attaches a virtual machine to a card.
///
/// The machine's memory must be shared, hence the object `memory-backend-memfd,share=on`; its size is to be that of the machine.
#[derive(Args, Clone, Debug)]
pub struct ArgsArgs {
    /// Where the card listens, and how many pairs of queues it has
    #[arg(long, value_name = "PATH[,queues=N]")]
    pub socket: SocketArgument,
    /// Who is to read them
    #[arg(
        long = "for",
        value_enum,
        value_name = "MONITOR",
        default_value = "qemu"
    )]
    pub monitor: Monitor,
    /// Memory of the machine
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: u32,
}

/// Print what a card gets through bus and line, as the dissertation that such cards come from measured it, and as a model has it.
///
/// No card and no virtual machine is needed: the tables are computed in virtual time, and are the same everywhere. The source's figures
/// stand beside, as far as it gives any.
#[derive(Args, Clone, Debug)]
pub struct TableArgs {
    /// The host's bus. All but pci32-33 are assumptions: its start-up of a transfer, its rate by width and clock
    #[arg(long, value_name = "NAME", default_value = "pci32-33", value_parser = PossibleValuesParser::new(BUSES))]
    pub bus: String,
    /// The line between two cards
    #[arg(long, value_name = "NAME", default_value = "1g", value_parser = PossibleValuesParser::new(LINES))]
    pub line: String,
    /// Write all rows to FILE, those too that are not shown
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
}

/// A monitor of virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Monitor {
    /// Arguments of qemu-system-x86_64, besides its own
    Qemu,
    /// Elements of a libvirt domain
    Libvirt,
    /// Arguments of cloud-hypervisor, besides its own
    CloudHypervisor,
}

/// What `--socket` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketArgument {
    path: PathBuf,
    /// Pairs of queues.
    queues: usize,
}

impl FromStr for SocketArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, option) = text.split_once(',').unwrap_or((text, "queues=1"));
        let queues = option.strip_prefix("queues=").and_then(|n| n.parse().ok());
        let queues = queues.filter(|queues| (1..=MAX_PAIRS).contains(queues));
        match queues {
            Some(queues) if !path.is_empty() => Ok(Self {
                path: path.into(),
                queues,
            }),
            _ => Err(format!(
                "a socket is PATH or PATH,queues=N, with N from 1 to {MAX_PAIRS} and no comma in PATH"
            )),
        }
    }
}

/// What `--wire` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireArgument {
    /// Nothing.
    None,
    /// The tap of this name.
    Tap(String),
    /// A boot server of this directory.
    Serve(PathBuf),
}

impl FromStr for WireArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "none" => Ok(Self::None),
            Some(("tap", name)) if !name.is_empty() => Ok(Self::Tap(name.to_owned())),
            Some(("serve", dir)) if !dir.is_empty() => Ok(Self::Serve(dir.into())),
            _ => Err("a wire is tap=NAME, serve=DIR or none".to_owned()),
        }
    }
}

/// Offloads, as feature bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadArgument(u64);

impl FromStr for OffloadArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bits = match text {
            "all" => !0,
            "none" => 0,
            list => list
                .split(',')
                .map(offload_named)
                .try_fold(0, |all, bit| Ok::<_, String>(all | bit?))?,
        };
        for (bits_of, needed) in [
            (
                feature::GUEST_ECN,
                feature::GUEST_TSO4 | feature::GUEST_TSO6,
            ),
            (feature::HOST_ECN, feature::HOST_TSO4 | feature::HOST_TSO6),
        ] {
            if bits & bits_of != 0 && bits & needed == 0 {
                bits |= needed;
            }
        }
        let guest = feature::GUEST_TSO4 | feature::GUEST_TSO6 | feature::GUEST_UFO;
        let host = feature::HOST_TSO4 | feature::HOST_TSO6 | feature::HOST_UFO;
        for (large, needed) in [(guest, feature::GUEST_CSUM), (host, feature::CSUM)] {
            if bits & large != 0 {
                bits |= needed;
            }
        }
        Ok(Self(bits))
    }
}

fn offload_named(name: &str) -> Result<u64, String> {
    let known = feature::OFFLOADS.iter().find(|(known, _)| *known == name);
    known.map(|(_, bit)| *bit).ok_or_else(|| {
        let names = feature::OFFLOADS.map(|(name, _)| name).join(", ");
        format!("{name:?} is no offload: all, none, or a list of {names}")
    })
}

/// Runs the command to its end.
///
/// # Errors
/// What keeps it from running, and what to do.
pub fn run(command: Nic) -> Result<()> {
    match command {
        Nic::Serve(arguments) => serve(&arguments),
        Nic::Run(arguments) => run_card(&arguments),
        Nic::Args(arguments) => {
            let socket = std::path::absolute(&arguments.socket.path)?;
            let queues = arguments.socket.queues;
            let text = arguments::text(arguments.monitor, &socket, queues, arguments.memory)?;
            println!("{text}");
            Ok(())
        }
        Nic::Table(arguments) => print_tables(&arguments),
        Nic::Check(arguments) => arguments.run(),
    }
}

fn print_tables(arguments: &TableArgs) -> Result<()> {
    let (bus, line) = (&arguments.bus, &arguments.line);
    let tables = Tables::new(bus, line)
        .with_context(|| format!("there is no model of a bus {bus} with a line {line}"))?;
    print!("{}", tables.text());
    if let Some(file) = &arguments.json {
        fs::write(file, serde_json::to_string_pretty(&tables.json())?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn serve(arguments: &ServeArgs) -> Result<()> {
    let wire = server(&arguments.dir)?;
    let place = SocketPlace::choose(arguments.socket.as_deref())?;
    // The server sends no fragments that a guest would need room for.
    let offloads = !feature::GUEST_UFO;
    let card = arguments.card.start(place.path(), vec![wire], offloads)?;
    let text = arguments::text(Monitor::Qemu, place.path(), 1, MEMORY_MIB)?;
    eprintln!("wireboot nic: waiting for a monitor; QEMU attaches a machine by these arguments:");
    println!("{text}");
    let statistics = card.run()?;
    eprintln!("wireboot nic: {statistics}");
    Ok(())
}

/// A boot server of a directory, which tells what it does.
fn server(dir: &Path) -> Result<HostWire> {
    let station = wireboot_server::cli::station(dir, Events::new(Console::Human, None))?;
    Ok(HostWire::Server(Box::new(ServerWire::new(station))))
}

fn run_card(arguments: &RunArgs) -> Result<()> {
    let SocketArgument { path, queues } = &arguments.socket;
    arguments.card.check(*queues)?;
    let wires: Vec<_> = match &arguments.wire {
        WireArgument::None => (0..*queues).map(|_| HostWire::None).collect(),
        WireArgument::Tap(name) => {
            let taps = Tap::open(name, *queues)?;
            taps.into_iter().map(HostWire::Tap).collect()
        }
        WireArgument::Serve(dir) => {
            ensure!(
                *queues == 1,
                "the server in the card has one pair of queues: leave out queues={queues}, or take a tap"
            );
            vec![server(dir)?]
        }
    };
    let card = arguments.card.start(path, wires, arguments.offload.0)?;
    let socket = path.display();
    let option = if *queues > 1 {
        format!(",queues={queues}")
    } else {
        String::new()
    };
    eprintln!(
        "wireboot nic: waiting for a monitor at {socket}; `wireboot nic args --socket {socket}{option}` prints its arguments"
    );
    let statistics = card.run()?;
    eprintln!("wireboot nic: {statistics}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_named_and_bring_what_they_need() {
        let bits = |text: &str| text.parse::<OffloadArgument>().map(|offloads| offloads.0);
        assert_eq!(bits("all"), Ok(!0));
        assert_eq!(bits("none"), Ok(0));
        for (name, bit) in feature::OFFLOADS {
            let bits = bits(name).unwrap();
            assert_eq!(bits & bit, bit, "{name}");
            assert_eq!(feature::consistent(bits), bits, "{name}");
        }
        let two = feature::CSUM | feature::HOST_TSO4 | feature::GUEST_CSUM;
        assert_eq!(bits("host_tso4,guest_csum"), Ok(two));
        for bad in ["", "tso", "csum,", "csum,all"] {
            let error = bits(bad).unwrap_err();
            assert!(error.contains("guest_ufo, host_tso4"), "{error}");
        }
    }

    #[test]
    fn sockets_have_a_path_and_queues() {
        let socket = |path: &str, queues| {
            Ok(SocketArgument {
                path: path.into(),
                queues,
            })
        };
        assert_eq!("/run/card".parse(), socket("/run/card", 1));
        assert_eq!("a=b,queues=8".parse(), socket("a=b", 8));
        for bad in [
            "",
            ",queues=2",
            "c,",
            "c,queues=0",
            "c,queues=9",
            "c,queues=1,queues=2",
            "c,mtu=9",
        ] {
            let error = bad.parse::<SocketArgument>().unwrap_err();
            assert!(error.contains("1 to 8"), "{bad}: {error}");
        }
    }

    #[test]
    fn wires_are_named() {
        assert_eq!("none".parse(), Ok(WireArgument::None));
        assert_eq!("tap=vm0".parse(), Ok(WireArgument::Tap("vm0".to_owned())));
        assert_eq!("serve=a=b".parse(), Ok(WireArgument::Serve("a=b".into())));
        for bad in ["", "tap", "tap=", "serve", "serve=", "none=1", "vm0"] {
            assert!(bad.parse::<WireArgument>().is_err(), "{bad}");
        }
    }

    #[derive(clap::Parser)]
    struct Command {
        #[command(subcommand)]
        nic: Nic,
    }

    #[test]
    fn unknown_buses_and_lines_are_refused_with_the_list() {
        use clap::Parser;
        for (option, list) in [("--bus", BUSES), ("--line", LINES)] {
            let arguments = ["wireboot", "table", option, "token-ring"];
            let error = Command::try_parse_from(arguments).err().unwrap();
            assert_eq!(error.exit_code(), 2);
            for name in list {
                assert!(error.to_string().contains(name), "{error}");
                let arguments = ["wireboot", "table", option, name];
                let parsed = Command::try_parse_from(arguments).unwrap().nic;
                assert!(matches!(parsed, Nic::Table(_)));
            }
        }
    }
}
