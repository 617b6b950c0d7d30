//! The network interface with our stack on it, from taking it to giving it back. The stack runs on the BSP (bootstrap processor) or on APs
//! (application processors).

mod ap_task;
mod location;

use crate::card::{self, AnyNic, Card, NativeNic, Taken};
use crate::error::Error;
use crate::settings::Settings;
use crate::tap::{MTU, PortPlace};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
pub use ap_task::ApStats;
pub(crate) use ap_task::instant;
use core::net::IpAddr;
use location::{EngineLocation, LostTasks, Started};
use wireboot_fetch::url::{Host, Url};
use wireboot_fetch::{Command, Event, File, Floor, Leases};
use wireboot_net::tap;
use wireboot_nic::vlan::VlanId;
use wireboot_nic::{Fault, Nic};
use wireboot_platform::claim::lent::Lent;
use wireboot_platform::claim::pci::Claim;
use wireboot_platform::console::Key;
use wireboot_platform::idle::IdleTimer;
use wireboot_platform::processors::{self, Processor};
use wireboot_platform::{Clock, Handle, console, exit, memory, random};
use wireboot_ring::{Receiver, Sender};

/// How long the BSP polls for an answer, in microseconds: longer than small exchanges with servers near by take. It idles
/// by the firmware's tick, up to 10 ms at a time, which means nothing for large files; awake it takes from virtual machines'
/// hosts what the network could use.
const AWAKE: u64 = 3_000;
/// The same while a lease or a file has been asked for and nothing is known of it, in microseconds: when the answer comes, the network stands
/// still until something is done with it, and a tick would cost more than a tenth of the time that 64 MB take.
const AWAKE_FOR_ANSWER: u64 = 30_000;

/// How long the link is waited for before the console says so, in microseconds.
const SILENT: u64 = 1_500_000;
/// Time between two looks at the keyboard, in microseconds.
const KEYS: u64 = 100_000;

/// The interface and the service on it, which runs on an AP where there is one. Dropping it lets the last
/// frames leave, stops the device and gives it back to the firmware.
pub struct Network {
    /// Before the claim, so that the device's memory goes first.
    location: EngineLocation,
    /// `None` where the firmware's driver drives the interface.
    claim: Option<Claim>,
    vlan: Option<VlanId>,
    floor: Floor,
    commands: Sender<Command>,
    events: Receiver<Event>,
    /// Since wireboot's start.
    pub clock: Clock,
    mac: [u8; 6],
    interface: Box<[u8]>,
    /// The last leases that the service has told of or was given, also for a service that is started anew.
    leases: Leases,
    /// URLs of files that have come by TFTP, and the address that each came from.
    servers: Vec<(String, IpAddr)>,
    /// `None` without a tap.
    port_place: Option<PortPlace>,
    /// As the service has last told, once it has a tap.
    link_up: bool,
    /// Just after the card was started.
    link_was_down: bool,
    idle_timer: IdleTimer,
    /// How long the BSP has waited for ticks, in microseconds.
    idle_micros: u64,
    /// When something was last asked or answered, in microseconds.
    busy: u64,
    /// The last thing asked was for a lease or a file.
    asked: bool,
}

/// Waits until the link is up. Whether it was down.
fn wait_for_link(
    nic: &mut AnyNic,
    card: &Card,
    patience: u64,
    clock: Clock,
) -> Result<bool, Error> {
    let began = clock.micros();
    let (mut next_look, mut reported, mut was_down) = (began, false, false);
    while !nic.link_up() {
        was_down = true;
        let now = clock.micros();
        if now > began + patience {
            return Err(Error::NoLink(card.to_string()));
        }
        if !reported && now > began + SILENT {
            reported = true;
            let seconds = patience / 1_000_000;
            log::info!("no link yet on {card}; waiting {seconds} s for it (Esc leaves)");
        }
        if now >= next_look {
            next_look = now + KEYS;
            if console::key() == Some(Key::Escape) {
                return Err(Error::Stopped);
            }
        }
        core::hint::spin_loop();
    }
    Ok(was_down)
}

/// Asks the card what it does beyond virtio, if it is a virtio device. One that cannot take the question now is used as it is.
fn ask(nic: &mut AnyNic) {
    let AnyNic::Native(NativeNic::Virtio(nic)) = nic else {
        return;
    };
    let (seed, _) = random::seed();
    let token = seed.first_chunk().copied().unwrap_or_default();
    if let Err(error) = nic.ask_card(u64::from_ne_bytes(token)) {
        log::warn!("the network card is not asked what it does beyond virtio: {error}");
    }
}

/// What remains of a service: the NIC, still running, and why it ended unless it was asked to.
struct Ended {
    nic: AnyNic,
    fault: Option<Fault>,
}

/// An interface without an engine, still receiving: what is kept while a system starts.
pub struct IdleNic {
    nic: AnyNic,
    claim: Option<Claim>,
}

impl Network {
    /// Takes `card`, whose link may take `patience` microseconds to come up. The service goes to an AP, unless the
    /// settings say otherwise, there is none, or the firmware's driver drives the card and the settings ask for no other.
    pub fn open(
        card: &Card,
        patience: u64,
        settings: &Settings,
        clock: Clock,
    ) -> Result<Self, Error> {
        let (aps, pairs) = choose_aps(settings.processors);
        let Taken {
            mut nic,
            claim,
            driver,
        } = card.take(pairs, clock)?;
        let mac = nic.properties().mac;
        let [a, b, c, d, e, f] = mac;
        log::info!("{card}, {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, driven by {driver}");
        let link_was_down = match wait_for_link(&mut nic, card, patience, clock) {
            Ok(was_down) => was_down,
            Err(error) => {
                nic.stop();
                // Before the claim: its memory belongs to the device.
                drop(nic);
                return Err(error);
            }
        };
        if settings.ask_card {
            ask(&mut nic);
        }
        if let Some(vlan) = settings.vlan {
            log::info!("VLAN {vlan}");
        }
        let aps = match nic {
            // The BSP would be no freer: it has to look after the driver.
            AnyNic::Firmware(_) if !aps.is_empty() && settings.processors.is_none() => {
                log::info!(
                    "the network runs on the BSP (bootstrap processor), as the firmware's driver does"
                );
                Vec::new()
            }
            _ => aps,
        };
        let Started {
            location,
            commands,
            events,
        } = EngineLocation::start(nic, settings.vlan, clock, aps);
        let engines = location.ap_stats().len();
        if let Some(wanted) = settings.processors
            && (1..wanted as usize).contains(&engines)
        {
            log::info!(
                "{engines} of {wanted} engines: the machine has no more processors, or the card no more queue pairs"
            );
        }
        let mut network = Self {
            location,
            claim,
            vlan: settings.vlan,
            floor: settings.floor,
            commands,
            events,
            clock,
            mac,
            interface: card.path().into(),
            leases: Leases::default(),
            servers: Vec::new(),
            port_place: None,
            link_up: true,
            link_was_down,
            idle_timer: IdleTimer::new(),
            idle_micros: 0,
            busy: clock.micros(),
            asked: false,
        };
        if let Some(command) = network.floor() {
            network.send(command)?;
        }
        Ok(network)
    }

    /// Tells a service how slow a download may be, where the settings say.
    fn floor(&self) -> Option<Command> {
        (self.floor != Floor::default()).then_some(Command::Floor(self.floor))
    }

    /// Whether it can stay below an EFI program that is started.
    ///
    /// # Errors
    /// Why not: whose handles are in the place of ours.
    pub fn can_stay(&self) -> Result<(), &'static str> {
        match &self.claim {
            Some(claim) if claim.is_borrowed() => {
                Err("the program that started wireboot has the card too")
            }
            _ => Ok(()),
        }
    }

    /// Gives way on the card's handle, for protocols of ours, where the firmware's driver drives it.
    pub fn lend(&mut self) -> Option<Lent> {
        self.location.firmware_nic()?.lend()
    }

    /// The interface's Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The leases in use, as far as they have come.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The address of the URL's server; of one with a name, that from which the file has come by TFTP.
    pub(crate) fn server_of(&self, url: &Url) -> Option<IpAddr> {
        if let Host::Address(address) = url.host() {
            return Some(*address);
        }
        let mut servers = self.servers.iter();
        let (_, server) = servers.rfind(|(of, _)| of == url.as_str())?;
        Some(*server)
    }

    /// Puts a tap on the link, and its port into the place that is returned; so it does again when the service is started anew.
    pub(crate) fn tap(&mut self) -> Result<PortPlace, Error> {
        let place = self.port_place.get_or_insert_default().clone();
        if let Some(command) = self.new_tap() {
            self.send(command)?;
        }
        Ok(place)
    }

    fn new_tap(&self) -> Option<Command> {
        let place = self.port_place.as_ref()?;
        let (tap, port) = tap(MTU);
        place.set(Some(Box::new(port)));
        Some(Command::Tap(Box::new(tap)))
    }

    /// Whether the link is up, as far as a service with a tap has told.
    pub fn link_up(&self) -> bool {
        self.link_up
    }

    /// Whether the link came up only after the card had been started: a switch's port may let nothing through for a while.
    pub(crate) fn link_was_down(&self) -> bool {
        self.link_was_down
    }

    /// Nodes of the interface's device path, without end node.
    pub fn interface(&self) -> &[u8] {
        &self.interface
    }

    /// Sends a command, with turns while its ring is full.
    pub fn send(&mut self, mut command: Command) -> Result<(), Error> {
        match &command {
            Command::Configure(lease) => self.leases.v4 = Some(lease.clone()),
            Command::Configure6(lease) => self.leases.v6 = Some(lease.clone()),
            _ => {}
        }
        self.busy = self.clock.micros();
        self.asked = matches!(command, Command::Get { .. } | Command::Dhcp { .. });
        // The service takes commands each turn, so there is room after one.
        while let Err(back) = self.commands.push(command) {
            command = back;
            self.turn()?;
        }
        Ok(())
    }

    /// One turn of the network, or a look at the APs that turn it.
    ///
    /// # Errors
    /// [`Error::Processor`] when one of those was lost: the service was started anew on the BSP, without the jobs
    /// that it had.
    pub fn turn(&mut self) -> Result<(), Error> {
        let now = self.clock.micros();
        match &mut self.location {
            // No pause in an idle turn: a translator, and a hypervisor where several follow one another, gives the
            // processor away at it, and takes its time to give it back.
            EngineLocation::Local(service) => {
                service.poll(instant(self.clock))?;
            }
            EngineLocation::Remote(tasks) => {
                tasks.turn();
                console::write_ap_log();
                if tasks.is_over() {
                    let ended = self.end();
                    return Err(match ended.and_then(|ended| ended.fault) {
                        Some(fault) => fault.into(),
                        None => Error::Nothing,
                    });
                }
                if let Some((number, reason)) = tasks.loss(now) {
                    log::warn!(
                        "processor {number} is lost ({reason}); going on with the BSP (bootstrap processor)"
                    );
                    self.restart_service()?;
                    return Err(Error::Processor);
                }
            }
            EngineLocation::Stopped => return Err(Error::Nothing),
        }
        Ok(())
    }

    /// Whether APs run the network, and the BSP has no part in it.
    pub fn is_remote(&self) -> bool {
        matches!(&self.location, EngineLocation::Remote(tasks) if !tasks.needs_turns())
    }

    /// What has been done on each of the APs, by their numbers.
    pub fn ap_stats(&self) -> Vec<(usize, ApStats)> {
        self.location.ap_stats()
    }

    /// How long the BSP has waited for ticks since the start, in microseconds.
    pub fn idle_micros(&self) -> u64 {
        self.idle_micros
    }

    /// Nothing to do at the moment: waits for the firmware's next tick, once it is clear that nothing will happen soon.
    pub fn idle(&mut self) {
        if !self.is_remote() {
            return;
        }
        // Awake without a pause, for the reason given in `turn`.
        let now = self.clock.micros();
        let awake = if self.asked { AWAKE_FOR_ANSWER } else { AWAKE };
        if now >= self.busy + awake {
            self.idle_timer.wait_for_tick();
            self.idle_micros += self.clock.micros() - now;
        }
    }

    /// The next event of the service; `None` when none waits.
    pub fn event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        // Progress is no reason to stay awake.
        if !matches!(event, Event::Progress { .. }) {
            self.busy = self.clock.micros();
            self.asked = false;
        }
        match &event {
            Event::Lease {
                result: Ok(leases), ..
            } => self.leases = (**leases).clone(),
            Event::Link { up } => self.link_up = *up,
            // What a loader reads is its own matter.
            Event::Done {
                result:
                    Ok(File {
                        url,
                        server: Some(server),
                        ..
                    }),
                ..
            } if self.port_place.is_none() => self.servers.push((url.clone(), *server)),
            _ => {}
        }
        Some(event)
    }

    /// Ends the service and keeps the interface.
    pub fn into_idle(mut self) -> Option<IdleNic> {
        let mut nic = self.end()?.nic;
        if let AnyNic::Firmware(nic) = &mut nic {
            // At once: where boot services end, the firmware's driver can no longer be asked to.
            nic.stop();
        }
        let claim = self.claim.take();
        Some(IdleNic { nic, claim })
    }

    /// Boot services end: stops the service and the device. Neither memory nor anything else of the firmware's is touched; what was
    /// allocated stays so. May be called again.
    pub fn halt(&mut self) {
        let nic = match core::mem::replace(&mut self.location, EngineLocation::Stopped) {
            EngineLocation::Local(service) => Some(service.into_nic().into_nic()),
            EngineLocation::Remote(tasks) => match tasks.end(self.clock) {
                Ok((nic, _)) => Some(nic),
                Err(lost) => {
                    // Nothing is freed here, and what runs on must not find its memory in other hands.
                    core::mem::forget(lost);
                    // What the firmware does not end was halted, as far as it can be.
                    let _ = exit::stop_all();
                    None
                }
            },
            EngineLocation::Stopped => None,
        };
        if let Some(mut nic) = nic {
            nic.stop();
            core::mem::forget(nic);
        }
        if let Some(claim) = &self.claim {
            claim.stop_dma();
        }
    }

    /// Has others get the card when they ask the firmware for it ([`Claim::hold_as_driver`]). The card's handle; `None` where they cannot.
    pub fn hold_as_driver(&mut self) -> Result<Option<Handle>, wireboot_platform::Error> {
        match &mut self.claim {
            Some(claim) => claim.hold_as_driver(),
            None => Ok(None),
        }
    }

    /// Others get the card: the service ends, and the device is stopped, for good.
    pub fn let_go(&mut self) {
        if let Some(mut ended) = self.end() {
            ended.nic.stop();
        }
        if let Some(claim) = &mut self.claim {
            claim.let_go();
        }
    }

    /// Ends the service, and the APs' part in it.
    fn end(&mut self) -> Option<Ended> {
        let ended = match core::mem::replace(&mut self.location, EngineLocation::Stopped) {
            EngineLocation::Local(service) => Some(Ended {
                nic: location::drained(*service, self.clock),
                fault: None,
            }),
            EngineLocation::Remote(tasks) => match tasks.end(self.clock) {
                Ok((nic, fault)) => Some(Ended { nic, fault }),
                Err(lost) => Some(Ended {
                    nic: self.recover(lost).ok()?,
                    fault: None,
                }),
            },
            EngineLocation::Stopped => None,
        };
        console::write_ap_log();
        memory::collect();
        ended
    }

    /// After an AP was lost: a new service, on the BSP. What the old one had stays allocated.
    fn restart_service(&mut self) -> Result<(), Error> {
        let EngineLocation::Remote(tasks) =
            core::mem::replace(&mut self.location, EngineLocation::Stopped)
        else {
            return Err(Error::Nothing);
        };
        let nic = self.recover(tasks.abandon())?;
        let Started {
            location,
            commands,
            events,
        } = EngineLocation::start(nic, self.vlan, self.clock, Vec::new());
        (self.location, self.commands, self.events) = (location, commands, events);
        // As a service begins.
        self.link_up = true;
        let leases = self.leases.clone().commands();
        let mut commands = self.floor().into_iter().chain(self.new_tap()).chain(leases);
        commands.try_for_each(|command| self.send(command))
    }

    /// The interface without the APs that are lost. One that our own driver drives is reset first.
    fn recover(&self, lost: LostTasks) -> Result<AnyNic, Error> {
        if let Err(error) = kill(lost.processors) {
            // A tap is a boot loader's. The AP may write to memory that the loader uses again, and drives the card beside its next owner.
            if self.port_place.is_some() {
                log::error!("{error}; the machine is reset");
                wireboot_platform::reset();
            }
            return Err(error);
        }
        if let Some(driver_end) = lost.driver_end {
            return Ok(AnyNic::Firmware(driver_end.into_nic()));
        }
        let function = self
            .claim
            .as_ref()
            .and_then(|claim| claim.function(self.clock).ok());
        Ok(AnyNic::Native(card::start(
            function.ok_or(Error::NoInterface)?,
            1,
        )?))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(mut ended) = self.end() {
            ended.nic.stop();
        }
    }
}

impl IdleNic {
    /// Stops the device: no DMA any more. May be called again.
    pub fn stop(&mut self) {
        self.nic.stop();
        if let Some(claim) = &self.claim {
            claim.stop_dma();
        }
    }
}

impl Drop for IdleNic {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends what runs on lost APs. Where the firmware refuses, the device may get a second owner at any time, so nobody else may
/// use it, and the boot is over for us.
fn kill(processors: Vec<Processor>) -> Result<(), Error> {
    for mut processor in processors {
        if !processor.kill() {
            return Err(Error::NotKilled(processor.number()));
        }
    }
    Ok(())
}

/// The APs that there are, and on how many of them engines are wanted: as many as the settings
/// say, else one. More than one pay only where each has a core of its own, which a virtual machine cannot tell.
fn choose_aps(wanted: Option<u32>) -> (Vec<Processor>, usize) {
    if wanted == Some(0) {
        log::info!("the network runs on the BSP (bootstrap processor), as the settings say");
        return (Vec::new(), 1);
    }
    match processors::aps() {
        Ok(aps) => {
            let wanted = wanted.map_or(1, |wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
            let engines = wanted.min(aps.len());
            (aps, engines)
        }
        Err(reason) => {
            log::info!("the network runs on the BSP (bootstrap processor): {reason}");
            (Vec::new(), 1)
        }
    }
}
