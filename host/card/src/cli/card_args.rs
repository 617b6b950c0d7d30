//! What each card can be told, whatever is behind it.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use wireboot_card::{Beyond, Lies, Pace};
use wireboot_server::cli::allow_many_files;

use super::check;
use super::chunk::{self, ChunkArgument};
use super::fault::FaultArgument;
use super::offload::OffloadArgument;
use super::pace::{BusArgument, LineArgument};
use super::poll::PollArgument;
use super::socket::SocketArgument;
use crate::card::HostCard;
use crate::data_path::DataPath;
use crate::listener::Listener;
use crate::outage::Outages;
use crate::pcap::{self, Capture};
use crate::poller::Polling;
use crate::port::{Offer, Plan};
use crate::program::{Filter, PairOf, Program};
use crate::wires::HostWire;

/// Whose payload is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlacementArgument {
    /// Connections of each driver that asks.
    All,
    /// No connection is placed, whatever a driver asks.
    None,
}

/// Offloads, chunks, placement, speed, faults, counters.
#[derive(Args, Clone, Debug)]
pub struct CardArgs {
    /// What guests are offered, of what the card can: all, none, or a list of csum, guest_csum, guest_tso4, guest_tso6, guest_ecn, guest_ufo,
    /// guest_uso4, guest_uso6, host_tso4, host_tso6, host_ecn, host_ufo, host_uso with commas between. `guest_*`: what may come to the guest in
    /// large units; `host_*`: what it may send so. An offload that needs another brings it along
    #[arg(long, value_name = "LIST", default_value = "all")]
    offload: OffloadArgument,
    /// How frames are gathered for a driver that asks for chunks, as wireboot's does: frames=N, from 2 on, bytes=N, from 1514 to 1048576, and micros=N, up to
    /// 10000, with commas between, or none. So many frames or bytes are shown to the machine together, several in one buffer; with micros, the first waits
    /// so long for others, with 0 they go as soon as no more are there. What is not named is as by default
    #[arg(long, value_name = "LIST", default_value = chunk::DEFAULT)]
    chunk: ChunkArgument,
    /// Write payload of TCP to where a driver wants it that asks for that, as wireboot's does: all, or none
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = PlacementArgument::All)]
    placement: PlacementArgument,
    /// How long to look at the queues in vain before waiting for a doorbell: always, never, or microseconds, up to 1000000. Without, up to 50 us, as past waits
    /// teach. A card that always looks takes a processor
    #[arg(long, value_name = "TIME")]
    poll: Option<PollArgument>,
    /// Let units cross a bus, by the models of `wireboot nic table`: pci32-33, pci64-33, pci32-66, pci64-66, or per-transfer=NS,rate=R. It carries one at a
    /// time, either way. Rates are in bits a second, with k, m or g behind
    #[arg(long, value_name = "BUS")]
    bus: Option<BusArgument>,
    /// Let frames take a line: 1g, 10g, 25g, 100g or rate=R, and behind it delay=MS, loss=PERCENT, mtu=N (without, 1500), seed=N with commas
    /// between. The same seed (without, 1) loses the same frames
    #[arg(long, value_name = "LINE")]
    line: Option<LineArgument>,
    /// Do wrong, to see what a guest does: used-index, foreign-buffer, repeated-buffer, length, buffer-count, checksum, lost, late, order, silence, flap
    /// (the link goes down), death, with commas between, and seed=N. The same seed (without, 1) does so at the same places
    #[arg(long, value_name = "FAULTS")]
    fault: Option<FaultArgument>,
    /// Write what machines send and get to FILE, as pcapng with an interface for each --socket: large units whole, and checksums that are still to be
    /// completed as they are. FILE grows with the traffic, without limit: where the disk is full, the capture ends, and the card goes on
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pcap: Option<PathBuf>,
    /// Let a program see each frame between the card and what is behind it: pass, drop, delay, copy, edit, count. FILE is what `clang -target bpf -O2 -c`
    /// made of C with docs/card/programs/card.h; `wireboot nic check FILE` tells of it
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Keep counters in FILE, as JSON, written anew each second and at the end
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    stats: Option<PathBuf>,
}

impl CardArgs {
    /// Looks whether a card can do that for machines at these sockets.
    ///
    /// # Errors
    /// What it cannot, and what to do.
    pub(super) fn check(&self, sockets: &[SocketArgument]) -> Result<()> {
        let plain = self.bus.is_none() && self.line.is_none();
        let several = sockets.iter().find(|socket| socket.queues > 1);
        if let Some(SocketArgument { queues, .. }) = several {
            ensure!(
                plain,
                "a bus or a line carries one pair of queues: leave out queues={queues}, or --bus and --line"
            );
        }
        Ok(())
    }

    /// A card that listens at the sockets, each of which has a pair of queues for each of its wires. When they and all files are open, and before there
    /// is a thread, `confine` may give up rights that nobody needs any more.
    ///
    /// # Errors
    /// What keeps it from that, and what to do.
    pub(super) fn start(
        &self,
        sockets: &[SocketArgument],
        wires: Vec<Vec<HostWire>>,
        confine: impl FnOnce() -> Result<()>,
    ) -> Result<HostCard> {
        let offer = Offer {
            offloads: self.offload.0,
            beyond: Beyond {
                chunks: self.chunk.0,
                placement: self.placement == PlacementArgument::All,
            },
            polling: self.poll.map_or(Polling::default(), |argument| argument.0),
        };
        // Each machine may have some hundred files at once.
        allow_many_files();
        // Before there is a thread: where the umask changes, no other may make a file.
        let listeners = sockets
            .iter()
            .map(|socket| Ok(Listener::bind(&socket.path)?))
            .collect::<Result<Vec<_>>>()?;
        let writing = |path: &Path| format!("writing {}", path.display());
        let capture = self.pcap.as_deref().map(|path| {
            let file = File::create(path).with_context(|| writing(path))?;
            anyhow::Ok((file, path))
        });
        let capture = capture.transpose()?;
        let program = self.program.as_deref().map(check::open).transpose()?;
        confine()?;
        let (writer, captures) = match capture {
            Some((file, path)) => {
                let names: Vec<_> = sockets.iter().map(SocketArgument::to_string).collect();
                let started = pcap::start(file, path, &names);
                let (writer, captures) = started.with_context(|| writing(path))?;
                (Some(writer), captures)
            }
            None => (None, Vec::new()),
        };
        let mut captures = captures.into_iter();
        let plans = sockets.iter().zip(wires).map(|(socket, wires)| {
            self.plan(&socket.path, wires, program.as_ref(), captures.next())
        });
        let plans = listeners.into_iter().zip(plans);
        HostCard::new(plans.collect(), offer, self.stats.as_deref(), writer)
    }

    /// The folder that files are written in while the card runs.
    pub(super) fn written(&self) -> Option<PathBuf> {
        folder_of(self.stats.as_deref()?)
    }

    fn plan(
        &self,
        socket: &Path,
        wires: Vec<HostWire>,
        program: Option<&Program>,
        capture: Option<Capture>,
    ) -> Plan {
        let pace = Pace {
            bus: self.bus.map(|argument| argument.0),
            line: self.line.map(|argument| argument.line),
            seed: self.line.map_or(0, |argument| argument.seed),
        };
        let pairs = wires.len() as u16;
        let data_paths = (0..)
            .zip(wires)
            .map(|(pair, wire)| Filter::new(wire, program.cloned(), PairOf { pair, pairs }))
            .map(|wire| DataPath::new(wire, pace, capture.clone()));
        let (lies, outages) = match &self.fault {
            Some(fault) => (fault.lies(), fault.outages()),
            None => (Lies::default(), Outages::new(Vec::new(), 0)),
        };
        Plan {
            socket: socket.to_owned(),
            data_paths: data_paths.collect(),
            lies,
            outages,
        }
    }
}

/// The folder that the file at `path` is in.
pub(super) fn folder_of(path: &Path) -> Option<PathBuf> {
    Some(std::path::absolute(path).ok()?.parent()?.to_owned())
}
