//! `--wire`, and which machine gets which.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use wireboot_server::cli::{ReportsFolder, station};
use wireboot_server::directory::Directory;
use wireboot_server::event::{Console, Events};

use super::socket::{SocketArgument, USUAL_MTU};
use crate::wires::{Dgram, HostWire, Packet, PortPlan, ServerWire, SwitchPort, Tap, switch};

/// Machines of one card.
const MAX_PORTS: usize = 16;

/// What is behind a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireArgument {
    /// What is sent vanishes.
    None,
    /// The tap of this name.
    Tap(String),
    /// The interface of this name.
    Packet(String),
    /// A boot server of this directory.
    Serve(PathBuf),
    /// A switch between the machines that have it.
    Card,
    /// Two datagram sockets of this host, a frame in each datagram.
    Dgram {
        /// Where frames for the machine come.
        local: PathBuf,
        /// Where the machine's frames go, another program's.
        remote: PathBuf,
    },
}

impl FromStr for WireArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "none" => Ok(Self::None),
            None if text == "card" => Ok(Self::Card),
            Some(("tap", name)) if !name.is_empty() => Ok(Self::Tap(name.to_owned())),
            Some(("packet", name)) if !name.is_empty() => Ok(Self::Packet(name.to_owned())),
            Some(("serve", dir)) if !dir.is_empty() => Ok(Self::Serve(dir.into())),
            Some(("dgram", paths)) => match paths.split_once(",remote=") {
                Some((local, remote)) if !local.is_empty() && !remote.is_empty() => {
                    Ok(Self::Dgram {
                        local: local.into(),
                        remote: remote.into(),
                    })
                }
                _ => Err("datagrams go between two sockets: dgram=PATH,remote=PATH".to_owned()),
            },
            _ => Err(
                "a wire is tap=NAME, packet=IF, serve=DIR, card, dgram=PATH,remote=PATH or none"
                    .to_owned(),
            ),
        }
    }
}

/// Opens the wires of the machine at each socket, one for each pair of queues. Servers among them keep reports in that folder, if there is one.
///
/// # Errors
/// What keeps it from that, and what to do. All is checked before anything is opened.
pub(super) fn open(
    sockets: &[SocketArgument],
    wires: &[WireArgument],
    reports: Option<&ReportsFolder>,
) -> Result<Wires> {
    let wires = assign(sockets, wires)?;
    let given = || sockets.iter().zip(&wires);
    let in_switch = given().filter(|(_, wire)| ***wire == WireArgument::Card);
    let plans: Vec<_> = in_switch.map(|(socket, _)| plan_of(socket)).collect();
    let ports = switch(&plans).context("making a switch")?;
    let mut opened = Opened {
        ports: ports.into_iter(),
        networks: 0,
        events: Events::new(Console::Human, None),
        served: Vec::new(),
        reports,
    };
    let wires = given()
        .map(|(socket, wire)| opened.open(wire, socket))
        .collect::<Result<_>>()?;
    Ok(Wires {
        wires,
        events: opened.events,
        served: opened.served,
    })
}

/// The port of a switch for a machine.
fn plan_of(socket: &SocketArgument) -> PortPlan {
    PortPlan {
        mtu: socket.mtu,
        mac: socket.mac,
    }
}

/// What is behind a card.
pub(super) struct Wires {
    /// Of the machine at each socket, one for each pair of queues.
    pub wires: Vec<Vec<HostWire>>,
    /// What servers among them tell.
    pub events: Events,
    /// The directories that they serve, each once.
    pub served: Vec<Arc<Directory>>,
}

/// The wire of each socket.
fn assign<'a>(
    sockets: &[SocketArgument],
    wires: &'a [WireArgument],
) -> Result<Vec<&'a WireArgument>> {
    ensure!(
        sockets.len() <= MAX_PORTS,
        "a card has {MAX_PORTS} machines at most: leave out some --socket, or start another card"
    );
    for (n, socket) in sockets.iter().enumerate() {
        let before = sockets.iter().take(n);
        ensure!(
            before.clone().all(|other| other.path != socket.path),
            "--socket {} is there twice: each machine needs one of its own",
            socket.path.display()
        );
        let mac = socket.mac;
        ensure!(
            mac.is_none() || before.clone().all(|other| other.mac != mac),
            "--socket {} has the mac= of one before it: each machine needs an address of its own",
            socket.path.display()
        );
    }
    let wires: Vec<_> = match wires {
        [one] => sockets.iter().map(|_| one).collect(),
        several => several.iter().collect(),
    };
    ensure!(
        wires.len() == sockets.len(),
        "there are {} --wire for {} --socket: give one for all, or one for each, in the same order",
        wires.len(),
        sockets.len()
    );
    let of_one =
        |wire: &WireArgument| matches!(wire, WireArgument::Tap(_) | WireArgument::Dgram { .. });
    for (n, wire) in wires.iter().enumerate() {
        ensure!(
            !of_one(wire) || wires.iter().skip(n + 1).all(|other| other != wire),
            "a tap or a socket for datagrams is one machine's: give each --socket a --wire of its own, in the same order"
        );
    }
    let switched = wires.iter().filter(|wire| ***wire == WireArgument::Card);
    ensure!(
        switched.count() != 1,
        "--wire card is a switch between machines, and one alone has it: give it another --socket"
    );
    for (socket, wire) in sockets.iter().zip(&wires) {
        let many = matches!(wire, WireArgument::None | WireArgument::Tap(_));
        let queues = socket.queues;
        ensure!(
            queues == 1 || many,
            "such a wire has one pair of queues: leave out queues={queues}, or take a tap"
        );
        let fixed = matches!(
            wire,
            WireArgument::Tap(_) | WireArgument::Packet(_) | WireArgument::Serve(_)
        );
        let mtu = socket.mtu;
        ensure!(
            mtu == USUAL_MTU || !fixed,
            "such a wire has an MTU of its own: leave out mtu={mtu}; that of an interface is set by `ip link set dev NAME mtu {mtu}`"
        );
    }
    Ok(wires)
}

/// What several machines share.
struct Opened<'a> {
    ports: std::vec::IntoIter<SwitchPort>,
    /// On which there is a server.
    networks: u8,
    events: Events,
    served: Vec<Arc<Directory>>,
    /// Where servers keep reports.
    reports: Option<&'a ReportsFolder>,
}

impl Opened<'_> {
    fn open(&mut self, wire: &WireArgument, socket: &SocketArgument) -> Result<Vec<HostWire>> {
        let queues = socket.queues;
        Ok(match wire {
            WireArgument::None => (0..queues).map(|_| HostWire::None).collect(),
            WireArgument::Tap(name) => {
                let taps = Tap::open(name, queues)?;
                taps.into_iter().map(HostWire::Tap).collect()
            }
            WireArgument::Packet(name) => {
                vec![HostWire::Packet(Packet::open(name, socket.mac)?)]
            }
            WireArgument::Serve(dir) => vec![self.server(dir)?],
            WireArgument::Card => match self.ports.next() {
                Some(port) => vec![HostWire::Switch(port)],
                None => bail!("the switch has too few ports"),
            },
            WireArgument::Dgram { local, remote } => {
                vec![HostWire::Dgram(Dgram::open(local, remote, socket.mtu)?)]
            }
        })
    }

    /// A boot server of a directory on the next network, which tells what it does.
    fn server(&mut self, dir: &Path) -> Result<HostWire> {
        let station = station(dir, self.events.clone(), self.networks, self.reports)?;
        self.networks += 1;
        if !self.served.iter().any(|served| served.path() == dir) {
            self.served.push(station.directory().clone());
        }
        let wire = ServerWire::new(station).context("waiting for files")?;
        Ok(HostWire::Server(Box::new(wire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> Result<WireArgument, String> {
        text.parse()
    }

    #[test]
    fn wires_are_named() {
        assert_eq!(wire("none"), Ok(WireArgument::None));
        assert_eq!(wire("card"), Ok(WireArgument::Card));
        assert_eq!(wire("tap=vm0"), Ok(WireArgument::Tap("vm0".to_owned())));
        assert_eq!(
            wire("packet=eth0"),
            Ok(WireArgument::Packet("eth0".to_owned()))
        );
        assert_eq!(wire("serve=a=b"), Ok(WireArgument::Serve("a=b".into())));
        let dgram = WireArgument::Dgram {
            local: "/a".into(),
            remote: "/b".into(),
        };
        assert_eq!(wire("dgram=/a,remote=/b"), Ok(dgram));
        for bad in [
            "",
            "tap",
            "tap=",
            "packet",
            "packet=",
            "serve",
            "serve=",
            "none=1",
            "card=1",
            "vm0",
            "dgram=/a",
            "dgram=,remote=/b",
            "dgram=/a,remote=",
            "dgram",
        ] {
            assert!(wire(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_switch_knows_what_the_user_says_of_a_machine() {
        let socket = "a,mac=52:54:00:12:34:56,mtu=9000".parse().unwrap();
        let PortPlan { mtu, mac } = plan_of(&socket);
        assert_eq!((mtu, mac), (9000, Some([0x52, 0x54, 0, 0x12, 0x34, 0x56])));
    }

    fn assigned(sockets: &[&str], wires: &[&str]) -> Result<usize, String> {
        let sockets: Vec<_> = sockets.iter().map(|text| text.parse().unwrap()).collect();
        let wires: Vec<_> = wires.iter().map(|text| text.parse().unwrap()).collect();
        let assigned = assign(&sockets, &wires).map(|wires| wires.len());
        assigned.map_err(|error| error.to_string())
    }

    #[test]
    fn each_machine_has_a_wire() {
        for (sockets, wires) in [
            (&["a"][..], &["none"][..]),
            (&["a", "b", "c"], &["serve=x"]),
            (&["a", "b"], &["card"]),
            (&["a", "b"], &["tap=1", "tap=2"]),
            (&["a", "b", "c"], &["card", "none", "card"]),
            (&["a,queues=8", "b,queues=2"], &["tap=1", "none"]),
            // Each machine is one more station behind the interface.
            (&["a", "b"], &["packet=eth0"]),
            (&["a,mtu=9000", "b,mtu=576"], &["card"]),
        ] {
            assert_eq!(assigned(sockets, wires), Ok(sockets.len()));
        }
        let many: Vec<_> = (0..17).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(assigned(&many[1..], &["none"]), Ok(16));
        for (sockets, wires, why) in [
            (&many[..], &["none"][..], "16 machines at most"),
            (&["a", "b", "a"], &["none"], "--socket a is there twice"),
            (
                &["a,mac=02:00:00:00:00:01", "b,mac=02:00:00:00:00:01"],
                &["card"],
                "--socket b has the mac=",
            ),
            (
                &["a", "b", "c"],
                &["none", "none"],
                "2 --wire for 3 --socket",
            ),
            (&["a"], &["none", "none"], "2 --wire for 1 --socket"),
            (&["a", "b"], &["tap=1"], "a --wire of its own"),
            (&["a", "b"], &["dgram=x,remote=y"], "a --wire of its own"),
            (&["a"], &["card"], "another --socket"),
            (&["a", "b"], &["card", "none"], "another --socket"),
            (&["a,queues=2"], &["serve=x"], "leave out queues=2"),
            (&["a,queues=2", "b"], &["card"], "leave out queues=2"),
            (&["a,queues=2"], &["packet=eth0"], "leave out queues=2"),
            (&["a,mtu=9000"], &["tap=1"], "dev NAME mtu 9000"),
            (&["a,mtu=576"], &["packet=eth0"], "dev NAME mtu 576"),
            (&["a,mtu=9000"], &["serve=x"], "leave out mtu=9000"),
        ] {
            let error = assigned(sockets, wires).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
