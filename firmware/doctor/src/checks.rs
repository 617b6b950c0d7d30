//! What can be examined, each in a module of its own.

mod boot;
mod cost;
mod dma;
mod frames;
mod iperf3;
mod machine;
mod net;
mod profile;
mod servers;
mod stock;
mod sweep;
mod trace;
mod ttcp;

use crate::error::Error;
use crate::examination::Examination;

/// Something to examine.
#[derive(Debug)]
pub(crate) struct Check {
    /// The word for it in the options.
    pub name: &'static str,
    /// What it does, for the screen.
    pub what: &'static str,
    /// In an examination without words.
    pub standard: bool,
    /// In one with `quick`.
    pub quick: bool,
    /// It measures against a server that the options name, so it is not among `all`.
    pub needs_server: bool,
    /// The firmware resets the machine when it takes longer than this, in seconds.
    pub limit_s: usize,
    /// Writes what it measures into the report.
    pub run: fn(&mut Examination<'_>) -> Result<(), Error>,
}

impl PartialEq for Check {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Check {}

/// All of them, in the order in which they run.
pub(crate) const ALL: &[Check] = &[
    Check {
        name: "check",
        what: "firmware, processors, and the times of this boot",
        standard: true,
        quick: true,
        needs_server: false,
        limit_s: 10,
        run: machine::examine,
    },
    Check {
        name: "net",
        what: "who speaks on the network, and who answers",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 180,
        run: net::examine,
    },
    Check {
        name: "servers",
        what: "what boot servers grant, and what the paths to them carry",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 420,
        run: servers::examine,
    },
    Check {
        name: "boot",
        what: "network boot options, loaded and not started",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 480,
        run: boot::examine,
    },
    Check {
        name: "cost",
        what: "what services of the firmware cost",
        standard: true,
        quick: true,
        needs_server: false,
        limit_s: 180,
        run: cost::examine,
    },
    Check {
        name: "dma",
        what: "how memory is cached, and what a packet costs in it",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 60,
        run: dma::examine,
    },
    Check {
        name: "frames",
        what: "what the card brings, and what the firmware keeps of it",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 60,
        run: frames::examine,
    },
    Check {
        name: "trace",
        what: "what the firmware calls while it boots over the network",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 300,
        run: trace::examine,
    },
    Check {
        name: "profile",
        what: "where the processor is while the firmware fetches a file",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 300,
        run: profile::examine,
    },
    Check {
        name: "sweep",
        what: "a file by TFTP in blocks and windows of many sizes",
        standard: true,
        quick: false,
        needs_server: false,
        limit_s: 900,
        run: sweep::examine,
    },
    Check {
        name: "iperf3",
        what: "TCP and UDP with a server of iperf3",
        standard: false,
        quick: false,
        needs_server: true,
        limit_s: 420,
        run: iperf3::examine,
    },
    Check {
        name: "ttcp",
        what: "what messages of several sizes cost, with a server of iperf3",
        standard: false,
        quick: false,
        needs_server: true,
        limit_s: 600,
        run: ttcp::examine,
    },
];
