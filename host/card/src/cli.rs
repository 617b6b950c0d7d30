//! `wireboot nic`: a card for virtual machines, with what shows, checks and counts what it does.

mod arguments;
mod card_args;
mod check;
mod chunk;
mod fault;
mod offload;
mod pace;
mod poll;
mod probe;
mod socket;
mod socket_place;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use wireboot_server::cli::{ReportsFolder, confine_card, say_what_is_served, watch_what_is_served};
use wireboot_server::directory::Directory;
use wireboot_server::event::Events;

use self::card_args::CardArgs;
pub use self::check::CheckArgs;
pub use self::probe::ProbeArgs;
pub use self::socket::SocketArgument;
use self::socket_place::SocketPlace;
pub use self::wire::WireArgument;
use self::wire::Wires;
use crate::card::HostCard;
use crate::say::say;
use crate::table::{BUSES, LINES, Tables};

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
///   ip link set vm0 up
///   wireboot nic run --socket $XDG_RUNTIME_DIR/card --wire tap=vm0
///   qemu-system-x86_64 $(wireboot nic args --socket $XDG_RUNTIME_DIR/card) ...
#[derive(Subcommand, Clone, Debug)]
#[command(verbatim_doc_comment)]
#[allow(missing_docs, reason = "the help of each stands at its arguments")]
pub enum Nic {
    Serve(ServeArgs),
    Run(RunArgs),
    Args(ArgsArgs),
    Probe(ProbeArgs),
    Table(TableArgs),
    Check(CheckArgs),
}

/// Boot virtual machines from a directory, by a card that is the boot server too.
///
/// The card and the server in it need no privilege, no interface and no network: the machine has a network of its own, on which the server is
/// 10.77.0.1 and fd00:77::1. It gives the machine an address of each IP version, wireboot.efi and the files of DIR, by DHCP, DHCPv6, TFTP and HTTP, as
/// `wireboot serve` does. When its sockets and files are open it gives up all rights that it does not need.
/// The arguments by which QEMU attaches a machine are printed when the card is there.
///
/// Ends with 0 after SIGINT or SIGTERM, with 1 when it cannot start.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Directory to serve
    pub dir: PathBuf,
    /// Where monitors connect: a socket for this user alone, in a directory that others cannot write to. Once for each machine, up to 16: each has a
    /// network of its own, 10.77.0.0/24 and fd00:77::/64, 10.77.1.0/24 and fd00:77:0:1::/64, and so on [default: wireboot-card in $XDG_RUNTIME_DIR, else in a new directory of this
    /// user's]
    #[arg(long, value_name = "PATH")]
    pub socket: Vec<PathBuf>,
    /// Take in the reports that doctor.efi sends (by HTTP, POST /report), a file each in the folder REPORTS, which is made if it is not there.
    /// `wireboot report REPORTS` shows them
    #[arg(long, value_name = "REPORTS")]
    pub reports: Option<PathBuf>,
    /// What any card can be told
    #[command(flatten)]
    pub card: CardArgs,
}

/// Be a card, until SIGINT or SIGTERM.
///
/// One virtual machine at a time is attached to each socket. It may be reset, or end and start again; the next one is then served. What its driver
/// does wrong stops the queue in question until the driver starts it anew, and no other machine notices.
///
/// Ends with 0 after a signal, with 1 when it cannot start.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Where monitors connect: a socket for this user alone, in a directory that others cannot write to. It is removed at the end. With
    /// queues=N, guests have N pairs of queues, 1 to 8; mac=M is the machine's only address: on the wires packet and card, what it sends from another
    /// one is lost, packet leaves out what is for others, and card gives no other machine what is for M. A guest that has further addresses (macvlan, a
    /// bridge in it) needs it left out. With mtu=N, its packets have up to N bytes on the wires card and dgram (without, 1500). Once for each machine, up to 16
    #[arg(long, value_name = "PATH[,queues=N][,mac=M][,mtu=N]", required = true)]
    pub socket: Vec<SocketArgument>,
    /// Where frames go to and come from. One wire, or one for each --socket in the same order: tap=NAME, an interface that `ip tuntap add dev NAME mode
    /// tap vnet_hdr` has made, with multi_queue behind it for several pairs of queues; packet=IF, the network behind an interface of this host, which
    /// itself is not reached so; serve=DIR, a boot server as of `wireboot nic serve DIR`; card, a switch between the machines that have it;
    /// dgram=PATH,remote=PATH, frames as datagrams from and to another program, as QEMU's `-netdev dgram` has them; or none. All but tap and none are
    /// for one pair of queues
    #[arg(long, value_name = "WIRE", required = true)]
    pub wire: Vec<WireArgument>,
    /// What any card can be told
    #[command(flatten)]
    pub card: CardArgs,
}

/// Print the arguments by which a monitor attaches a virtual machine to a card.
///
/// The machine's memory must be shared, hence the object `memory-backend-memfd,share=on`; its size is to be that of the machine.
#[derive(Args, Clone, Debug)]
pub struct ArgsArgs {
    /// As `wireboot nic run` was told: where the card listens, how many pairs of queues it has, the machine's address and MTU
    #[arg(long, value_name = "PATH[,queues=N][,mac=M][,mtu=N]")]
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

/// Runs the command to its end.
///
/// # Errors
/// What keeps it from running, and what to do.
pub fn run(command: Nic) -> Result<()> {
    let result = match command {
        Nic::Serve(arguments) => serve(&arguments),
        Nic::Run(arguments) => run_card(&arguments),
        Nic::Args(arguments) => print_arguments(&arguments),
        Nic::Probe(arguments) => probe::probe(&arguments),
        Nic::Table(arguments) => print_tables(&arguments),
        Nic::Check(arguments) => arguments.run(),
    };
    crate::say::finish();
    result
}

fn print_arguments(arguments: &ArgsArgs) -> Result<()> {
    let socket = std::path::absolute(&arguments.socket.path)?;
    let text = arguments::text(
        arguments.monitor,
        &socket,
        &arguments.socket,
        arguments.memory,
    )?;
    println!("{text}");
    Ok(())
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

/// Refuses a socket with what only a card with a wire of its own takes behind the path.
fn is_path_alone(socket: &Path) -> Result<()> {
    let text = socket.display().to_string();
    let options = ["queues=", "mac=", "mtu="];
    let is_option = |part: &str| options.iter().any(|name| part.starts_with(name));
    ensure!(
        !text.split(',').skip(1).any(is_option),
        "--socket {text}: `nic serve` takes a path alone; queues=, mac= and mtu= are of `nic run --wire serve=DIR` and `nic args`"
    );
    Ok(())
}

fn serve(arguments: &ServeArgs) -> Result<()> {
    for socket in &arguments.socket {
        is_path_alone(socket)?;
    }
    let places = match &arguments.socket[..] {
        [] => vec![SocketPlace::usual()?],
        wanted => wanted
            .iter()
            .map(|path| SocketPlace::at(path))
            .collect::<Result<_>>()?,
    };
    for place in &places {
        arguments::plain_name(place.path())?;
    }
    let sockets: Vec<_> = places
        .iter()
        .map(|place| SocketArgument::one_pair(place.path()))
        .collect();
    let reports = arguments.reports.as_deref().map(ReportsFolder::new);
    let reports = reports.transpose()?;
    let wire = WireArgument::Serve(arguments.dir.clone());
    let opened = wire::open(&sockets, &[wire], reports.as_ref())?;
    let Wires {
        wires,
        events,
        served,
    } = opened;
    let of_reports = reports.as_ref().map(|folder| folder.path().to_owned());
    let written: Vec<_> = arguments
        .card
        .written()
        .into_iter()
        .chain(of_reports)
        .collect();
    let emptied: Vec<_> = places.iter().filter_map(SocketPlace::emptied).collect();
    let confine = || {
        for directory in &served {
            events.say(confine_card(directory, &written, &emptied)?);
        }
        reports.as_ref().map_or(Ok(()), ReportsFolder::check)
    };
    let card = arguments.card.start(&sockets, wires, confine)?;
    tell(&served, &events)?;
    let _writer = events.start_writer().context("starting the log")?;
    say!("wireboot nic: waiting for a monitor; QEMU attaches a machine by these arguments:");
    // In front of them.
    crate::say::finish();
    for socket in &sockets {
        let text = arguments::text(Monitor::Qemu, &socket.path, socket, MEMORY_MIB)?;
        println!("{text}");
    }
    run_to_its_end(card)
}

fn run_card(arguments: &RunArgs) -> Result<()> {
    let sockets = &arguments.socket;
    arguments.card.check(sockets)?;
    let opened = wire::open(sockets, &arguments.wire, None)?;
    let card = arguments.card.start(sockets, opened.wires, || Ok(()))?;
    tell(&opened.served, &opened.events)?;
    let _writer = opened.events.start_writer().context("starting the log")?;
    for socket in sockets {
        say!(
            "wireboot nic: waiting for a monitor at {}; `wireboot nic args --socket {socket}` prints its arguments",
            socket.path.display()
        );
    }
    run_to_its_end(card)
}

/// Tells what the directories hold that are served, and of changes from here on.
fn tell(served: &[Arc<Directory>], events: &Events) -> Result<()> {
    for directory in served {
        say_what_is_served(directory, events);
        watch_what_is_served(directory.clone(), events.clone())
            .context("watching the configuration")?;
    }
    Ok(())
}

fn run_to_its_end(card: HostCard) -> Result<()> {
    for port in card.run()? {
        say!("{}: {}", port.name, port.statistics);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
