//! What engine and protocols cost the processor, counted rather than timed: instructions per byte received, by valgrind's callgrind.
//!
//! ```text
//!  callgrind counts inside counted():   Service ── Engine ── LoopNic
//!  and not outside:                                             └ units and frames ─ Peer: a TFTP and HTTP server in memory
//! ```
//!
//! Of several engines, each has a NIC and a peer of its own, and takes its turn after the others.
//!
//! The NIC lends frames that are prepared once, so that what is counted is the engine's work and the copy to the destination.

mod frames;
mod nic;
mod peer;

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use wireboot_fetch::{Command as Ask, Event, Lease, Lease6, LeaseSource, Leases, Service, Worker};
use wireboot_net::{Duration, Instant, Ipv4Cidr, Memory};
use wireboot_nic::{Fault, Steering};
use wireboot_ring::{HeapBlock, prefix};

use nic::LoopNic;
use peer::Peer;
use wireboot_lab::ip::{IpVersion, host};

/// A sort of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stream {
    /// TFTP, blocks that fill a frame: 1468 bytes over IPv4.
    Tftp,
    /// HTTP in units of up to 64 KiB, as a NIC hands them over that joins segments.
    Http,
    /// HTTP in single segments.
    HttpSegments,
    /// As `Http`, by two engines.
    HttpTwo,
    /// As `Http`, by four engines.
    HttpFour,
}

impl Stream {
    fn engines(self) -> usize {
        match self {
            Self::HttpTwo => 2,
            Self::HttpFour => 4,
            Self::Tftp | Self::Http | Self::HttpSegments => 1,
        }
    }
}

/// Instructions per byte received of one sort of stream.
#[derive(Clone, Debug, Serialize)]
pub struct Instructions {
    /// The stream's name, as tables show it.
    pub stream: String,
    /// Bytes of payload received.
    pub bytes: u64,
    /// Instructions that it took.
    pub instructions: u64,
    /// `instructions` over `bytes`.
    pub per_byte: f64,
}

/// The file's size in bytes: enough for the start not to matter.
const BYTES: u64 = 64 << 20;

/// Counts all streams. An empty list when valgrind is not installed.
///
/// # Errors
/// When a stream does not come to its end.
pub fn count_all() -> Result<Vec<Instructions>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        log::info!("valgrind is not installed: no instructions are counted");
        return Ok(Vec::new());
    }
    use IpVersion::{V4, V6};
    let streams = [
        (Stream::Tftp, V4, "TFTP, 1468-byte blocks"),
        (Stream::Tftp, V6, "TFTP, 1448-byte blocks, IPv6"),
        (Stream::Http, V4, "HTTP, joined segments"),
        (Stream::Http, V6, "HTTP, joined segments, IPv6"),
        (Stream::HttpSegments, V4, "HTTP, single segments"),
        (Stream::HttpSegments, V6, "HTTP, single segments, IPv6"),
        (Stream::HttpTwo, V4, "HTTP, joined segments, two engines"),
        (Stream::HttpFour, V4, "HTTP, joined segments, four engines"),
    ];
    streams
        .into_iter()
        .map(|(stream, ip, name)| count(stream, ip, name))
        .collect()
}

/// Runs this program under callgrind, which counts while [`counted`] runs.
fn count(stream: Stream, ip: IpVersion, name: &str) -> Result<Instructions> {
    let file = tempfile::NamedTempFile::new().context("making a file for callgrind")?;
    let program = std::env::current_exe().context("finding this program's own file")?;
    let name_of_stream = stream
        .to_possible_value()
        .context("a stream without a name")?;
    let name_of_ip = ip.to_possible_value().context("a version without a name")?;
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--cache-sim=no",
            "--toggle-collect=*instructions*counted*",
        ])
        .arg(format!("--callgrind-out-file={}", file.path().display()))
        .arg(program)
        .args(["lab", "bench", "--receive", name_of_stream.get_name()])
        .args(["--ip", name_of_ip.get_name()])
        .output()
        .context("starting valgrind")?;
    if !output.status.success() {
        bail!(
            "counting instructions failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let profile = fs::read_to_string(file.path()).context("reading callgrind's output")?;
    let instructions = totals(&profile)
        .filter(|&count| count > 0)
        .context("callgrind counted nothing")?;
    Ok(Instructions {
        stream: name.to_owned(),
        bytes: BYTES,
        instructions,
        per_byte: instructions as f64 / BYTES as f64,
    })
}

/// The sum that callgrind writes at the end of its file.
fn totals(profile: &str) -> Option<u64> {
    profile
        .lines()
        .find_map(|line| line.strip_prefix("totals:")?.trim().parse().ok())
}

/// Receives a file over `stream` from a server in memory.
///
/// # Errors
/// When the file does not come whole, and for several engines with IPv6, by which workers do not receive.
pub fn receive(stream: Stream, ip: IpVersion) -> Result<()> {
    if ip == IpVersion::V6 && stream.engines() > 1 {
        bail!("several engines receive by IPv4 only");
    }
    receive_bytes(stream, ip, BYTES)
}

/// Passes between two turns of the engine.
const TURN_MICROS: i64 = 20;
/// Turns without an event after which the transfer counts as dead: a minute.
const MOST_IDLE_TURNS: u32 = 3_000_000;

fn receive_bytes(stream: Stream, ip: IpVersion, bytes: u64) -> Result<()> {
    let (mut ask, commands) = wireboot_ring::channel(8);
    let (events, mut told) = wireboot_ring::channel(64);
    let steering = Steering::by_port(stream.engines());
    let (leader, links) = wireboot_fetch::team(&steering);
    let nic = LoopNic::new(stream, ip);
    let service = match stream.engines() {
        1 => Service::new(nic, [7; 32], commands, events),
        _ => Service::with_workers(nic, [7; 32], commands, events, leader),
    };
    let mut engines = vec![Running::Service(service)];
    for (index, link) in (8..).zip(links) {
        let worker = Worker::new(LoopNic::new(stream, ip), [index; 32], link);
        engines.push(Running::Worker(worker));
    }
    let mut engines: Vec<(Running, Peer)> = engines
        .into_iter()
        .map(|engine| (engine, Peer::new(stream, ip, bytes)))
        .collect();
    let scheme = if stream == Stream::Tftp {
        "tftp"
    } else {
        "http"
    };
    let url = format!("{scheme}://{}/file", host(frames::server(ip)));
    let get = Ask::Get {
        job: 1,
        url,
        patience: Duration::ZERO,
    };
    for command in leases(ip).commands().chain([get]) {
        ask.push(command)
            .ok()
            .context("the engine takes no commands")?;
    }
    let mut now = 0;
    let mut idle = 0;
    while idle < MOST_IDLE_TURNS {
        now += TURN_MICROS;
        idle += 1;
        let asked = engines.iter().any(|(_, peer)| peer.asked);
        for (engine, peer) in &mut engines {
            let poll = if asked { counted } else { Running::poll };
            poll(engine, Instant::from_micros(now)).context("the engine")?;
            let nic = engine.nic();
            for frame in nic.transmit.sent.drain(..) {
                peer.frame(&frame, &mut nic.receive.queue);
            }
        }
        while let Some(event) = told.pop() {
            idle = 0;
            match event {
                Event::NeedMemory { job, bytes } => {
                    let bytes = usize::try_from(bytes).context("a file larger than memory")?;
                    let (memory, _) = prefix(HeapBlock::from(vec![0; bytes]));
                    ask.push(Ask::Memory {
                        job,
                        memory: Memory::new(memory),
                    })
                    .ok()
                    .context("the engine takes no memory")?;
                }
                Event::Done { result, .. } => {
                    let file = result.context("receiving")?;
                    if file.len != bytes {
                        bail!("{} bytes instead of {bytes}", file.len);
                    }
                    let lazy = |(_, peer): &(Running, Peer)| peer.connection.is_none();
                    if engines.len() > 1 && bytes > MOST_ALONE && engines.iter().any(lazy) {
                        bail!("an engine had no part in the file");
                    }
                    return Ok(());
                }
                Event::Lease { .. }
                | Event::Progress { .. }
                | Event::Exchange { .. }
                | Event::Link { .. } => {}
            }
        }
    }
    bail!("the transfer stands still")
}

/// Larger files come by all engines that there are.
const MOST_ALONE: u64 = 8 << 20;

/// An engine at work.
enum Running {
    Service(Service<LoopNic>),
    Worker(Worker<LoopNic>),
}

impl Running {
    fn nic(&mut self) -> &mut LoopNic {
        match self {
            Self::Service(service) => service.nic_mut(),
            Self::Worker(worker) => worker.nic_mut(),
        }
    }

    fn poll(&mut self, now: Instant) -> Result<bool, Fault> {
        match self {
            Self::Service(service) => service.poll(now),
            Self::Worker(worker) => worker.poll(now),
        }
    }
}

/// The part whose instructions are counted: callgrind knows it by its name. What comes before the server is asked, such as finding it,
/// is no part of it.
#[inline(never)]
fn counted(engine: &mut Running, now: Instant) -> Result<bool, Fault> {
    engine.poll(now)
}

/// What the firmware would have learnt of the network.
fn leases(ip: IpVersion) -> Leases {
    match ip {
        IpVersion::V4 => {
            let address = Ipv4Cidr::new(frames::CLIENT, 24);
            Lease::new(address, LeaseSource::Firmware).into()
        }
        IpVersion::V6 => Leases {
            v4: None,
            v6: Some(Lease6 {
                addresses: vec![frames::CLIENT6],
                ..Lease6::new(LeaseSource::Firmware)
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_arrives_whole() {
        for ip in [IpVersion::V4, IpVersion::V6] {
            let whole_blocks = nic::block_size(ip) as u64 * 3;
            for stream in Stream::value_variants() {
                if ip == IpVersion::V6 && stream.engines() > 1 {
                    assert!(receive(*stream, ip).is_err());
                    continue;
                }
                for bytes in [1, whole_blocks, 3_000_001, 9_000_001] {
                    receive_bytes(*stream, ip, bytes).unwrap_or_else(|error| {
                        panic!("{stream:?} of {bytes} bytes, {ip}: {error:#}")
                    });
                }
            }
        }
    }

    #[test]
    fn totals_are_read() {
        assert_eq!(
            totals("events: Ir\nsummary: 7\nfn=x\ntotals: 12345\n"),
            Some(12345)
        );
        assert_eq!(totals("events: Ir\n"), None);
    }
}
