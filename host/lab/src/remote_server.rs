//! A server behind a router, and a link to it that takes smaller packets than those on either side of it know.
//!
//! ```text
//!  VM ── lab0: this computer, a router ──── router ──── server
//!             1500                     1280        1500
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use crate::netns::{Lab, tool};
use crate::network::{INTERFACE, Network};
use crate::station::{Station, cable, forward};

/// The address of the server behind the link.
pub const REMOTE_SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The same in IPv6.
pub const REMOTE_SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x78, 0, 0, 0, 0, 0, 1);

/// What `ip` is told at this computer, at the router and at the server.
const HERE: [&str; 4] = [
    "address add 10.79.0.1/24 dev router",
    "address add fd00:79::1/64 dev router nodad",
    "route add 10.78.0.0/24 via 10.79.0.2",
    "route add fd00:78::/64 via fd00:79::2",
];
const ROUTER: [&str; 6] = [
    "address add 10.79.0.2/24 dev lab0",
    "address add fd00:79::2/64 dev lab0 nodad",
    "address add 10.78.0.254/24 dev far",
    "address add fd00:78::fe/64 dev far nodad",
    "route add 10.77.0.0/24 via 10.79.0.1",
    "route add fd00:77::/64 via fd00:79::1",
];
const SERVER: [&str; 4] = [
    "address add 10.78.0.1/24 dev lab0",
    "address add fd00:78::1/64 dev lab0 nodad",
    "route add default via 10.78.0.254",
    "route add default via fd00:78::fe",
];
/// The router says nothing to the server: what comes from itself (not from another interface) goes nowhere.
const SILENT: [&str; 2] = [
    "-4 rule add iif lo to 10.78.0.1 blackhole",
    "-6 rule add iif lo to fd00:78::1 blackhole",
];

/// The link between this computer and the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its MTU in bytes.
    pub mtu: u16,
    /// Whether the router tells the server of packets that are too big for it (RFC 1191, RFC 8201).
    pub icmp: bool,
}

/// A server behind such a link, and the router. They exist as long as this value; machines reach them in the versions of IP that
/// the network has, if this computer is the router that they are told of.
#[derive(Debug)]
pub struct RemoteServer {
    // Before the router: its cable ends there.
    server: Station,
    _router: Station,
}

impl RemoteServer {
    /// Puts a server behind `path`.
    ///
    /// # Errors
    /// When a namespace, a cable or a route cannot be made.
    pub fn new(lab: &Lab, network: &Network, path: Path) -> Result<Self> {
        let router = Station::new(lab.scratch(), "router", path.mtu)?;
        let server = Station::without_cable(lab.scratch(), "far")?;
        cable("far", &server, INTERFACE, Some(&router), network.mtu())?;
        forward()?;
        router.forward()?;

        for command in HERE {
            tool("ip", words(command))?;
        }
        let silence = if path.icmp { &[][..] } else { &SILENT };
        for command in ROUTER.iter().chain(silence) {
            router.ip(&words(command))?;
        }
        for command in SERVER {
            server.ip(&words(command))?;
        }
        Ok(Self {
            server,
            _router: router,
        })
    }

    /// The server, at which commands may run.
    #[must_use]
    pub fn server(&self) -> &Station {
        &self.server
    }
}

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}
