//! What a card at a socket does, found out by our own driver and engine on it.

use std::fmt::{self, Display, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use sha2::{Digest, Sha256};
use wireboot_card::feature;
use wireboot_fetch::{File, Leases};
use wireboot_wire::card::hello::{CHUNKS, Chunks, DATAGRAMS, Hello, PLACEMENT};

use crate::guest::{Guest, Machine, MachineError, Version};

/// Feature bits beyond those of [`feature::OFFLOADS`] (virtio 1.2, sections 5.1.3 and 6, and vhost's own).
const FEATURES: [(&str, u64); 21] = [
    ("mtu", 1 << 3),
    ("mac", 1 << 5),
    ("gso", 1 << 6),
    ("mrg_rxbuf", feature::MRG_RXBUF),
    ("status", 1 << 16),
    ("ctrl_vq", 1 << 17),
    ("ctrl_rx", 1 << 18),
    ("ctrl_vlan", 1 << 19),
    ("guest_announce", 1 << 21),
    ("mq", feature::MQ),
    ("log_all", 1 << 26),
    ("notify_on_empty", 1 << 24),
    ("any_layout", 1 << 27),
    ("indirect_desc", feature::INDIRECT_DESC),
    ("event_idx", feature::EVENT_IDX),
    ("protocol_features", 1 << 30),
    ("version_1", feature::VERSION_1),
    ("iommu_platform", 1 << 33),
    ("ring_packed", 1 << 34),
    ("in_order", 1 << 35),
    ("order_platform", 1 << 36),
];

/// vhost-user's protocol features, by bit.
const PROTOCOL_FEATURES: [&str; 17] = [
    "mq",
    "log_shmfd",
    "rarp",
    "reply_ack",
    "mtu",
    "backend_req",
    "cross_endian",
    "crypto_session",
    "pagefault",
    "config",
    "backend_send_fd",
    "host_notifier",
    "inflight_shmfd",
    "reset_device",
    "inband_notifications",
    "configure_mem_slots",
    "status",
];

/// What was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Probe {
    card: String,
    /// Offered by the card.
    features: Vec<String>,
    /// Of these, what our driver used.
    used: Vec<String>,
    protocol_features: Vec<String>,
    queue_pairs: u64,
    /// By what is known that frames go both ways; `None` when nothing came back.
    rings: Option<&'static str>,
    /// What the card does for a driver that asks; `None` when it did not answer.
    beyond_virtio: Option<BeyondVirtio>,
    address: Option<Address>,
    /// Why there is none.
    no_address: Option<String>,
    file: Option<Fetched>,
    /// Why the file that was asked for is not there.
    no_file: Option<String>,
}

/// An answer of the card's to its driver.
#[derive(Debug, Serialize)]
struct BeyondVirtio {
    long_datagrams: bool,
    placement: bool,
    chunks: Option<Gathered>,
}

/// How frames are gathered.
#[derive(Debug, Serialize)]
struct Gathered {
    frames: u16,
    bytes: u32,
    micros: u32,
}

#[derive(Debug, Serialize)]
struct Address {
    address: String,
    server: Option<String>,
}

#[derive(Debug, Serialize)]
struct Fetched {
    url: String,
    bytes: u64,
    micros: u64,
    megabits: u64,
    retransmissions: u64,
    sha256: String,
}

impl Probe {
    /// Looks at the card that listens at `path`, asks for an address for so long, and downloads a file, if one is named.
    ///
    /// # Errors
    /// Why there is nothing to be found out.
    pub(crate) fn new(path: &Path, patience: Duration, url: Option<&str>) -> Result<Self> {
        let mut random = [0; 43];
        let filled = getrandom(&mut random, GetRandomFlags::empty());
        if filled != Ok(random.len()) {
            bail!("the system gave too few random numbers");
        }
        let [a, b, c, t0, t1, t2, t3, t4, t5, t6, t7, seed @ ..] = random;
        // QEMU's addresses begin so.
        let guest = Guest::connect(path, [0x52, 0x54, 0, a, b, c]).with_context(|| {
            let path = path.display();
            format!("no card at {path} (`wireboot nic run --socket {path} --wire ...` starts one)")
        })?;
        let token = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        let mut machine = Machine::start(&guest, seed, Some(token))?;
        let offered = guest.offered();
        let mut probe = Self {
            card: path.display().to_string(),
            features: names_of_features(offered.features),
            used: names_of_features(guest.accepted()),
            protocol_features: names(offered.protocol, |bit| PROTOCOL_FEATURES.get(bit).copied()),
            queue_pairs: offered.pairs,
            rings: None,
            beyond_virtio: None,
            address: None,
            no_address: None,
            file: None,
            no_file: None,
        };
        // The version of the server's address, where it is one; by a name, either will do.
        let server = url.and_then(|url| Some(url.split_once("://")?.1));
        let version = server.and_then(|server| match server.split(['/', ':']).next()? {
            begin if begin.starts_with('[') => Some(Version::V6),
            host => host.parse::<Ipv4Addr>().ok().map(|_| Version::V4),
        });
        match machine.lease(patience, version) {
            Ok(leases) => probe.address = Some(Address::of(&leases)),
            Err(MachineError::Fetch(error)) => probe.no_address = Some(error.to_string()),
            Err(error) => return Err(error.into()),
        }
        probe.beyond_virtio = machine.agreed().map(BeyondVirtio::of);
        probe.rings = if probe.beyond_virtio.is_some() {
            Some("the card's answer to its driver came")
        } else if probe.address.is_some() {
            Some("an answer of DHCP came")
        } else {
            let came = machine.counters().receive_units > 0;
            came.then_some("frames came")
        };
        if let Some(url) = url {
            match machine.fetch(url) {
                Ok(file) => probe.file = Some(Fetched::of(&file)),
                Err(error) => probe.no_file = Some(error.to_string()),
            }
        }
        Ok(probe)
    }

    /// Why the card is of no use, if it is none.
    pub(crate) fn failure(&self) -> Option<&str> {
        let nothing = "nothing came back from the card: its wire may be down or without a DHCP server (--patience waits longer)";
        let no_rings = self.rings.is_none().then_some(nothing);
        no_rings.or(self.no_file.as_deref())
    }
}

impl BeyondVirtio {
    fn of(hello: Hello) -> Self {
        let does = |bit| hello.features & bit != 0;
        let Chunks {
            frames,
            bytes,
            micros,
        } = hello.chunks;
        Self {
            long_datagrams: does(DATAGRAMS),
            placement: does(PLACEMENT),
            chunks: does(CHUNKS).then_some(Gathered {
                frames,
                bytes,
                micros,
            }),
        }
    }
}

impl Display for BeyondVirtio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut does = Vec::new();
        if self.long_datagrams {
            does.push("long datagrams".to_owned());
        }
        if self.placement {
            does.push("placement".to_owned());
        }
        if let Some(Gathered {
            frames,
            bytes,
            micros,
        }) = self.chunks
        {
            does.push(format!(
                "chunks of {frames} frames, {bytes} bytes, {micros} us at most"
            ));
        }
        f.write_str(&listed(&does))
    }
}

impl Address {
    fn of(leases: &Leases) -> Self {
        let v4 = leases.v4.as_ref();
        let v4 = v4.map(|lease| {
            (
                lease.address.to_string(),
                lease.server.map(|ip| ip.to_string()),
            )
        });
        let v6 = leases.v6.iter().flat_map(|lease| lease.addresses.first());
        let v6 = || v6.map(|address| (address.to_string(), None)).next();
        let (address, server) = v4.or_else(v6).unwrap_or_default();
        Self { address, server }
    }
}

impl Fetched {
    fn of(file: &File) -> Self {
        let digest = Sha256::digest(file.content());
        Self {
            url: file.url.clone(),
            bytes: file.len,
            micros: file.stats.micros,
            megabits: file.stats.megabits(),
            retransmissions: file.stats.retransmissions,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

/// A table for people.
impl Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &str| writeln!(f, "{name:<18}{value}");
        row("card", &self.card)?;
        row("features", &listed(&self.features))?;
        row("used by driver", &listed(&self.used))?;
        row("protocol features", &listed(&self.protocol_features))?;
        row("pairs of queues", &self.queue_pairs.to_string())?;
        let rings = self.rings.unwrap_or("nothing came back");
        row("rings", rings)?;
        let beyond = self.beyond_virtio.as_ref();
        let beyond = beyond.map(BeyondVirtio::to_string);
        row("beyond virtio", beyond.as_deref().unwrap_or("no answer"))?;
        let mut address = String::new();
        match (&self.address, &self.no_address) {
            (Some(known), _) => {
                address += &known.address;
                if let Some(server) = &known.server {
                    write!(address, " from {server}")?;
                }
            }
            (None, Some(why)) => write!(address, "none: {why}")?,
            (None, None) => {}
        }
        row("address", &address)?;
        if let Some(file) = &self.file {
            row("file", &file.url)?;
            row("bytes", &file.bytes.to_string())?;
            row("Mbit/s", &file.megabits.to_string())?;
            row("sent again", &file.retransmissions.to_string())?;
            row("sha256", &file.sha256)?;
        }
        Ok(())
    }
}

fn names_of_features(features: u64) -> Vec<String> {
    let known = || feature::OFFLOADS.iter().chain(&FEATURES);
    names(features, |bit| {
        let known = known().find(|(_, known)| *known == 1 << bit);
        known.map(|(name, _)| *name)
    })
}

/// What each bit is called, or its number.
fn names(bits: u64, name: impl Fn(usize) -> Option<&'static str>) -> Vec<String> {
    let set = (0..64).filter(|bit| bits & 1 << bit != 0);
    set.map(|bit| name(bit).map_or_else(|| format!("bit {bit}"), str::to_owned))
        .collect()
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}
