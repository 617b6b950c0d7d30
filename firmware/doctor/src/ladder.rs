//! `doctor.efi ladder`: what this machine's network can do at each height, measured in one boot against a sender on the network.
//!
//! ```text
//!  wireboot TFTP, HTTP            the firmware's TFTP (PXE), HTTP
//!  driver (ours)                  packets (MNP)
//!    │                            driver (SNP, UNDI)
//!    └──────────── card ───────────┘
//! ```
//!
//! Every rung is measured once a round, by turns, and the median counts. The sender (`wireboot serve --reports`, `wireboot nic serve`, or the
//! laboratory's) speaks [`wireboot_wire::ladder`].

pub(crate) mod files;
pub(crate) mod frame;
pub(crate) mod frames;
mod options;
mod ours;
mod phases;
pub(crate) mod sender;
mod stretch;
mod table;
mod tally;
mod udp;
mod upload;
pub(crate) mod wire;
mod work;

use crate::cards::Linked;
use crate::error::{Error, refused};
use crate::vlan;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use core::net::{IpAddr, SocketAddr};
use files::{Serve, Whose};
use frame::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use frames::{Frames, Size};
use options::Options;
use phases::{Phases, Record};
use table::{Kind, Ladder};
use udp::Udp;
use wire::{Driver, Managed, Wire};
use wireboot_boot::card::{self, AnyNic, Card, FirmwareNic};
use wireboot_boot::driver::Driver as NicDriver;
use wireboot_boot::engine;
use wireboot_boot::error::Error as BootError;
use wireboot_boot::fetching::Fetcher;
use wireboot_boot::network::{ApStats, Network};
use wireboot_boot::origin::Origin;
use wireboot_boot::settings::Settings;
use wireboot_fetch::Leases;
use wireboot_fetch::url::{Host, Url};
use wireboot_nic::Nic;
use wireboot_platform::claim::pci::{Candidate, Claim};
use wireboot_platform::claim::{snp, undi};
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::firmware_net::{Disconnected, Mnp, receivers};
use wireboot_platform::memory;
use wireboot_platform::snp::Snp;
use wireboot_platform::undi::Undi;
use wireboot_platform::{Clock, console};
use wireboot_wire::ladder::DATA_PORT;

/// What one measurement found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Packets that came through.
    pub packets: u64,
    /// Bytes of their payload, or of the file.
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Ticks of the time-stamp counter in calls that moved packets; 0 where that is not known.
    pub busy: u64,
    /// The share of the time that those calls took, in percent.
    pub work: u64,
    /// Packets sent at the other end of the wire; 0 where that is not known.
    pub sent: u64,
    /// How many of those did not come through.
    pub lost: u64,
    /// How long the sender had to wait for room in the cable, in microseconds. With none, the sender was the limit.
    pub waited: u64,
    /// Who else gets frames of the firmware's packet service, where that is what was measured.
    pub receivers: Option<usize>,
    /// What that busy time consisted of, where it was recorded.
    pub phases: Option<Phases>,
    /// The least ticks that a packet took, on average of many in a row, where that was looked for.
    pub least: Option<u64>,
}

impl Sample {
    /// Bits of payload in a second; headers do not count.
    pub(crate) fn bits_per_second(&self) -> u64 {
        (self.bytes * 8_000_000)
            .checked_div(self.micros)
            .unwrap_or(0)
    }
}

/// Memory that payload is copied to, in bytes: more than any processor's cache.
const MEMORY: usize = 64 << 20;
/// How long the link may take to come up, in microseconds.
const LINK: u64 = 5_000_000;

/// Measures what the options in `text` say, and tells.
///
/// # Errors
/// When the options are not understood, there is no card, address or sender, or the machine is in a VLAN.
pub(crate) fn run(text: &str, origin: &Origin, clock: Clock) -> Result<(), Error> {
    let options = Options::parse(text)?;
    vlan::ensure_none(origin)?;
    let mut run = LadderRun::open(&options, origin, clock)?;
    for round in 1..=options.rounds {
        log::info!("round {round} of {}", options.rounds);
        run.round();
    }
    for line in run.ladder.table() {
        console::line(&line);
    }
    let json = run.ladder.json(clock.hertz());
    if !console::serial_line(&format!("ladder: {json}")) {
        log::warn!("no serial port takes the figures");
    }
    Ok(())
}

/// The network as a boot has it.
fn network(card: &Card, processors: Option<u32>, clock: Clock) -> Result<Network, BootError> {
    let settings = Settings {
        processors,
        ..Settings::default()
    };
    Network::open(card, LINK, &settings, clock)
}

/// The rungs of one `ladder` command: what they are measured with, and what was found.
struct LadderRun<'o> {
    options: &'o Options,
    origin: &'o Origin,
    clock: Clock,
    card: Card,
    /// Its PCI function.
    interface: Candidate,
    mac: [u8; 6],
    /// Of the server's version of IP alone, which is the one that is measured.
    leases: Leases,
    server: IpAddr,
    frames: Frames,
    ladder: Ladder,
    /// Where phases are recorded, if they are.
    record: Option<Record>,
}

impl<'o> LadderRun<'o> {
    /// Finds the interface and an address.
    fn open(options: &'o Options, origin: &'o Origin, clock: Clock) -> Result<Self, Error> {
        let driver = Some(NicDriver::Native);
        let cards = card::all(origin, driver)?;
        let card = Linked::default().choose(cards, driver, clock)?;
        let Card::Native(interface) = &card else {
            return Err(BootError::NoInterface.into());
        };
        let interface = interface.clone();
        let mut fetcher = Fetcher::new(network(&card, None, clock)?);
        let (local, server) = sender::find(&mut fetcher, origin, options.server)?;
        let mut leases = fetcher.leases().clone();
        leases.keep_version_of(server);
        let mac = fetcher.network().mac();
        let micros = options.millis * 1000;
        Ok(Self {
            options,
            origin,
            clock,
            card,
            interface,
            mac,
            server,
            frames: Frames::new(clock, local, server, micros),
            leases,
            ladder: Ladder::new(),
            record: options.phases.then(|| Record::new(clock)),
        })
    }

    /// A measurement with the share of the time that was work, and what that was.
    fn with_work_share(&self, result: Result<Sample, Error>) -> Result<Sample, Error> {
        let phases = self.record.as_ref().and_then(Record::take);
        result.map(|sample| Sample {
            phases,
            work: (sample.busy * 100)
                .checked_div(self.clock.ticks_of(sample.micros))
                .unwrap_or(0),
            ..sample
        })
    }

    fn url(&self, scheme: &str, file: &str) -> Result<Url, Error> {
        let text = format!("{scheme}://{}/{file}", Host::Address(self.server));
        Ok(Url::parse(&text)?)
    }

    /// Each rung once, or those with phases.
    fn round(&mut self) {
        if let Some(record) = self.record.clone() {
            return self.phases(record);
        }
        if let Err(error) = self.native_driver() {
            log::warn!("our driver: {error}");
        }
        if let Err(error) = self.our_protocols() {
            log::warn!("our protocols: {error}");
        }
        self.interface.connect();
        self.firmware_network();
        let counts = &self.options.processors;
        let counts = match counts.as_slice() {
            [] => vec![None],
            counts => counts.iter().copied().map(Some).collect(),
        };
        for count in counts {
            if let Err(error) = self.boots(count) {
                log::warn!("wireboot's network: {error}");
            }
        }
    }

    /// What works with our driver on the BSP.
    fn native_driver(&mut self) -> Result<(), Error> {
        let what = "the network interface";
        let claim = Claim::take(&self.interface).map_err(refused(what))?;
        let function = claim.function(self.clock).map_err(refused(what))?;
        let mut driver = Driver(card::start(function, 1)?);
        self.wait_for_link(&mut driver)?;
        self.wire("driver", &mut driver);
        self.copied("driver, copied", &mut driver);
        let nic = self.datagrams("wireboot UDP", AnyNic::Native(driver.0));
        let mut nic = self.uploads(nic);
        for (scheme, name) in [
            ("tftp", "wireboot TFTP, one processor"),
            ("http", "wireboot HTTP, one processor"),
        ] {
            nic = self.turns(nic, scheme, name)?;
        }
        nic.stop();
        // Before the claim: its memory belongs to the device.
        drop(nic);
        drop(claim);
        Ok(())
    }

    /// A measurement, if it is wanted.
    fn rung(
        &mut self,
        kind: Kind,
        name: &str,
        measure: impl FnOnce(&mut Self) -> Result<Sample, Error>,
    ) {
        if self.options.wants(name) {
            let result = measure(self);
            self.ladder.add(kind, name, self.with_work_share(result));
        }
    }

    /// A file by our stack on the BSP.
    fn turns(&mut self, nic: AnyNic, scheme: &str, name: &'static str) -> Result<AnyNic, Error> {
        let nic = self.turns_by(engine::serve, engine::cable(nic), scheme, name)?;
        Ok(nic.into_nic())
    }

    /// The same by a service whose turns `serve` makes.
    fn turns_by<N: Nic>(
        &mut self,
        serve: Serve<N>,
        nic: N,
        scheme: &str,
        name: &'static str,
    ) -> Result<N, Error> {
        if !self.options.wants(name) {
            return Ok(nic);
        }
        let url = self.url(scheme, &self.options.file)?;
        let (nic, result) = files::turns(nic, serve, &self.leases, &url, self.clock);
        self.ladder
            .add(Kind::Receive, name, self.with_work_share(result));
        Ok(nic)
    }

    /// UDP by our stack on the BSP.
    fn datagrams(&mut self, name: &'static str, nic: AnyNic) -> AnyNic {
        if !self.options.wants(name) {
            return nic;
        }
        let mut udp = Udp::open(nic, &self.leases, self.server, self.clock);
        self.wire(name, &mut udp);
        udp.into_nic()
    }

    /// TCP that sends, from the BSP: in frames that we make, and in units that the card cuts where it does.
    fn uploads(&mut self, nic: AnyNic) -> AnyNic {
        let nic = self.upload(nic, false, "wireboot TCP");
        match nic.properties().transmit_unit {
            0 => nic,
            _ => self.upload(nic, true, "wireboot TCP, TSO"),
        }
    }

    fn upload(&mut self, nic: AnyNic, tso: bool, name: &str) -> AnyNic {
        if !self.options.wants(name) {
            return nic;
        }
        let sink = SocketAddr::new(self.server, DATA_PORT);
        let (nic, result) = upload::send(nic, tso, &self.leases, sink, self.clock);
        self.ladder
            .add(Kind::Transmit, name, self.with_work_share(result));
        nic
    }

    /// Up to [`LINK`] microseconds; the error names the interface.
    fn wait_for_link(&self, driver: &mut Driver<impl Nic>) -> Result<(), Error> {
        let end = self.clock.micros() + LINK;
        while !driver.0.link_up() {
            if self.clock.micros() > end {
                return Err(BootError::NoLink(format!("{}", self.interface)).into());
            }
        }
        Ok(())
    }

    /// Frames in both directions and sizes.
    fn wire(&mut self, name: &'static str, wire: &mut impl Wire) {
        for (kind, size) in [
            (Kind::Receive, Size::Full),
            (Kind::ReceiveSmall, Size::Small),
        ] {
            self.rung(kind, name, |run| run.frames.receive(wire, size, None));
        }
        for (kind, size) in [
            (Kind::Transmit, Size::Full),
            (Kind::TransmitSmall, Size::Small),
        ] {
            self.rung(kind, name, |run| run.frames.transmit(wire, size));
        }
    }

    /// Full frames, each payload copied to memory.
    fn copied(&mut self, name: &str, wire: &mut impl Wire) {
        self.rung(Kind::Receive, name, |run| {
            let buffer = memory::download_buffer(MEMORY);
            let (mut memory, _) = buffer.map_err(refused("memory to copy to"))?;
            run.frames
                .receive(wire, Size::Full, Some(memory.rest_mut(0)))
        });
    }

    /// Frames by the firmware's driver, and our stack over it.
    fn over_firmware_driver<N: Nic>(
        &mut self,
        nic: N,
        of_firmware: fn(N) -> FirmwareNic,
        [wire, tftp, http]: [&'static str; 3],
    ) {
        let mut driver = Driver(nic);
        self.wire(wire, &mut driver);
        let nic = AnyNic::Firmware(of_firmware(driver.0));
        let nic = self
            .turns(nic, "tftp", tftp)
            .and_then(|nic| self.turns(nic, "http", http));
        // Where there is one, the interface goes back to the firmware.
        if let Err(error) = nic {
            log::warn!("{wire}: {error}");
        }
    }

    /// The firmware's driver.
    fn snp(&self) -> Result<Snp, Error> {
        let interface = snp::interfaces()
            .into_iter()
            .find(|interface| interface.path.starts_with(&self.interface.path))
            .ok_or(BootError::NoInterface)?;
        Snp::open(&interface).map_err(refused("SNP on this interface"))
    }

    /// The firmware's own network, from the driver up.
    fn firmware_network(&mut self) {
        match self.snp() {
            Ok(nic) => self.over_firmware_driver(
                nic,
                FirmwareNic::Snp,
                ["SNP", "wireboot TFTP over SNP", "wireboot HTTP over SNP"],
            ),
            Err(error) => self.ladder.add(Kind::Receive, "SNP", Err(error)),
        }
        // Few of the firmware's drivers have one.
        let mut undis = undi::interfaces().into_iter();
        let undi = undis.find(|interface| interface.path.starts_with(&self.interface.path));
        if let Some(interface) = undi {
            match Undi::open(&interface, self.clock) {
                Ok(nic) => self.over_firmware_driver(
                    nic,
                    FirmwareNic::Undi,
                    ["UNDI", "wireboot TFTP over UNDI", "wireboot HTTP over UNDI"],
                ),
                Err(reason) => {
                    let interface = format!("{interface}");
                    let error = BootError::Undi { interface, reason };
                    self.ladder.add(Kind::Receive, "UNDI", Err(error.into()));
                }
            }
        }
        if let Err(error) = self.relayed() {
            log::warn!("SNP, engine on an AP: {error}");
        }
        self.packet_service();
        self.rung(Kind::Receive, "firmware's TFTP (PXE)", |run| {
            run.by_base_code(Whose::Firmwares, &run.options.small)
        });
        if self.server.is_ipv6() {
            // Its addresses of IPv6 are not ours to order.
            return;
        }
        self.rung(Kind::Receive, "firmware's HTTP", |run| {
            run.by_http_protocol(Whose::Firmwares, &run.options.small)
        });
    }

    /// The firmware's packet service: with all that it serves, and with less and less of that.
    fn packet_service(&mut self) {
        self.managed("MNP");
        let rungs = [
            ("MNP without IP", &[ETHERTYPE_IPV4, ETHERTYPE_IPV6][..]),
            ("MNP without IP and ARP", &[ETHERTYPE_ARP]),
        ];
        if !rungs.iter().any(|(name, _)| self.options.wants(name)) {
            return;
        }
        // Without the service, the rung above says so.
        let Ok(mut receivers) = Disconnected::none(&self.interface) else {
            return;
        };
        for (name, ether_types) in rungs {
            match receivers.disconnect(ether_types) {
                Ok(()) => self.managed(name),
                Err(error) => {
                    let error = refused("to disconnect receivers of MNP")(error);
                    self.ladder.add(Kind::Receive, name, Err(error));
                    break;
                }
            }
        }
        if !receivers.connect() {
            log::warn!(
                "the firmware does not connect all that it had on MNP: start the machine anew before its network is used"
            );
            self.ladder.as_found = false;
        }
    }

    /// Frames by the firmware's packet service, of both sizes, and how many receive them, too.
    fn managed(&mut self, name: &str) {
        self.rung(Kind::Receive, name, |run| {
            let what = "MNP on this interface";
            let receivers = receivers(&run.interface).map_err(refused(what))?;
            let receivers = Some(receivers.len());
            let ethertype = frame::ethertype(run.server);
            let mnp = Mnp::open(&run.interface, ethertype).map_err(refused(what))?;
            #[cfg(feature = "faults")]
            if receivers == Some(0) {
                faults::reach(faults::Place::Ladder);
            }
            let mac = run.mac;
            let mut managed = Managed { mnp, mac };
            let full = run.frames.receive(&mut managed, Size::Full, None)?;
            let small = run.frames.receive(&mut managed, Size::Small, None);
            let small = small.map(|small| Sample { receivers, ..small });
            let small = run.with_work_share(small);
            run.ladder.add(Kind::ReceiveSmall, name, small);
            Ok(Sample { receivers, ..full })
        });
    }

    /// A file by the EFI_PXE_BASE_CODE_PROTOCOL that the interface has now.
    fn by_base_code(&self, whose: Whose, file: &str) -> Result<Sample, Error> {
        let interface = (&self.interface, whose);
        files::by_base_code(interface, &self.leases, self.server, file, self.clock)
    }

    /// A file by the EFI_HTTP_PROTOCOL that the interface has now.
    fn by_http_protocol(&self, whose: Whose, file: &str) -> Result<Sample, Error> {
        let url = self.url("http", file)?;
        files::by_http_protocol((&self.interface, whose), &url, self.clock)
    }

    /// The same by an engine on an AP, where there is one.
    fn relayed(&mut self) -> Result<(), Error> {
        let wanted = [
            ("tftp", "wireboot TFTP, SNP relayed"),
            ("http", "wireboot HTTP, SNP relayed"),
        ];
        if !wanted.iter().any(|(_, name)| self.options.wants(name)) {
            return Ok(());
        }
        let card = self
            .card
            .with_firmware_driver()
            .ok_or(BootError::NoInterface)?;
        let network = network(&card, Some(1), self.clock)?;
        if network.ap_stats().is_empty() {
            return Ok(());
        }
        let mut fetcher = Fetcher::new(network);
        fetcher.configure(self.leases.clone())?;
        for (scheme, name) in wanted {
            self.rung(Kind::Receive, name, |run| {
                let url = run.url(scheme, &run.options.file)?;
                files::boot(&mut fetcher, &url, run.clock)
            });
        }
        Ok(())
    }

    /// wireboot's TFTP and HTTP, as a boot has them, on so many processors.
    fn boots(&mut self, processors: Option<u32>) -> Result<(), Error> {
        let network = network(&self.card, processors, self.clock)?;
        let engines = network.ap_stats().len();
        let on = match processors {
            None => String::new(),
            Some(_) if engines == 0 => ", BSP".into(),
            Some(_) if engines == 1 => ", 1 engine".into(),
            Some(_) => format!(", {engines} engines"),
        };
        let mut fetcher = Fetcher::new(network);
        fetcher.configure(self.leases.clone())?;
        for (scheme, name) in [("tftp", "wireboot TFTP"), ("http", "wireboot HTTP")] {
            let name = format!("{name}{on}");
            if !self.options.wants(&name) {
                continue;
            }
            let url = self.url(scheme, &self.options.file)?;
            let before = fetcher.network().ap_stats();
            let result = files::boot(&mut fetcher, &url, self.clock);
            let micros = result.as_ref().map_or(0, |sample| sample.micros);
            self.ladder
                .add(Kind::Receive, &name, self.with_work_share(result));
            if scheme == "http" {
                let after = fetcher.network().ap_stats();
                self.engines(&before, &after, micros);
            }
        }
        if processors.is_none() && fetcher.network().is_remote() {
            self.work(&mut fetcher);
        }
        Ok(())
    }

    /// What each engine did in so many microseconds.
    fn engines(&mut self, before: &[(usize, ApStats)], after: &[(usize, ApStats)], micros: u64) {
        let engines = after.len();
        for (index, ((_, before), (_, after))) in before.iter().zip(after).enumerate() {
            let sample = Sample {
                packets: after.units - before.units,
                bytes: after.bytes - before.bytes,
                busy: after.ticks - before.ticks,
                micros,
                ..Sample::default()
            };
            let name = format!("{} of {engines}", index + 1);
            self.ladder
                .add(Kind::Engine, &name, self.with_work_share(Ok(sample)));
        }
    }

    /// What the BSP has left for other things while an AP receives.
    fn work(&mut self, fetcher: &mut Fetcher) {
        self.rung(Kind::Work, "nothing else", |run| {
            let micros = u64::from(run.options.millis) * 1000;
            Ok(work::alone(micros, run.clock))
        });
        for (scheme, name) in [
            ("tftp", "beside wireboot TFTP"),
            ("http", "beside wireboot HTTP"),
        ] {
            self.rung(Kind::Work, name, |run| {
                let url = run.url(scheme, &run.options.large)?;
                work::beside(fetcher, &url, run.clock)
            });
        }
    }
}
