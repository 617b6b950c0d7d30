//! The network interface with our stack on it, from taking it to giving it back.

use crate::card::{self, AnyNic, Card, Native, Taken};
use crate::error::Error;
use crate::source::Settings;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use wireboot_fetch::dhcp::Lease;
use wireboot_fetch::{Command, Event, Service};
use wireboot_net::Instant;
use wireboot_nic::vlan::{Vlan, VlanId};
use wireboot_nic::{Either, Fault, Nic, Transmit};
use wireboot_platform::pci::Claim;
use wireboot_platform::processors::{self, Parking, Processor};
use wireboot_platform::rest::Rest;
use wireboot_platform::{Clock, console, memory, random};
use wireboot_ring::{Receiver, Sender};
use wireboot_threads::{Context, Thread, spawn};

/// Commands and events under way at most.
const MAILBOX: usize = 64;
/// How long the last frames may take to leave before the device is reset, in microseconds.
const DRAIN: u64 = 50_000;
/// How long a processor may take to come, in microseconds. 15 ms are common.
const START: u64 = 500_000;
/// A processor that has not told for so long that it is alive is lost, in microseconds. Hypervisors take processors away for
/// tenths of a second.
const SILENCE: u64 = 3_000_000;
/// When nothing has come for so long, in microseconds, the other processor begins to rest: longer than what servers near by take to
/// answer, block by block.
const BUSY: u64 = 1000;
/// Its longest rest, in microseconds. A rest is an eighth of the wait before it, so that is what it may cost a frame at most.
const LONGEST_REST: u64 = 1000;
/// How often the other processor forgets its translations of addresses, in microseconds. QEMU's translator lets a processor remember
/// more of them only when it has forgotten many; the boot processor has had occasion in the firmware. Otherwise most pages
/// of the ring and of the file are looked up in the page tables for each frame. To processors of silicon it means nothing.
const FORGET: u64 = 20_000;
/// How long the boot processor stays awake for an answer, in microseconds: longer than small exchanges with servers near by take. It rests
/// by the firmware's tick, up to 10 ms at a time, which means nothing for large files; awake it takes from virtual machines'
/// hosts what the network could use.
const AWAKE: u64 = 3_000;

/// The interface and the service on it, which runs on another processor where there is one. Dropping it lets the last
/// frames leave, stops the device and gives it back to the firmware.
pub struct Network {
    /// Before the claim, so that the device's memory goes first.
    home: Home,
    /// `None` where the firmware's driver drives the interface.
    claim: Option<Claim>,
    vlan: Option<VlanId>,
    commands: Sender<Command>,
    events: Receiver<Event>,
    /// Since wireboot's start.
    pub clock: Clock,
    mac: [u8; 6],
    interface: Box<[u8]>,
    /// The last lease that the service was given, for a service that has to begin again.
    lease: Option<Lease>,
    rest: Rest,
    /// How long the boot processor has rested, in microseconds.
    rested: u64,
    /// When something was last asked or answered, in microseconds.
    busy: u64,
}

/// Where the service runs.
enum Home {
    /// On the boot processor, in its turns.
    Here(Box<Service<Vlan<AnyNic>>>),
    /// On another one.
    There {
        thread: Thread<Engine<Native>, Ended<Native>>,
        processor: Processor,
        /// How often the thread had told that it is alive, and since when.
        beats: u64,
        since: u64,
    },
    /// Nowhere any more.
    Gone,
}

/// What the service is made of, on the processor that will run it.
struct Engine<N> {
    nic: N,
    parts: Parts,
}

/// What it is made of besides the NIC.
struct Parts {
    vlan: Option<VlanId>,
    seed: [u8; 32],
    commands: Receiver<Command>,
    events: Sender<Event>,
    clock: Clock,
}

/// What remains of a service: the NIC, still running, and why it ended unless it was asked to.
struct Ended<N> {
    nic: N,
    fault: Option<Fault>,
}

/// An interface whose engine is gone, still receiving: what is kept while a system starts.
pub struct Quiet {
    nic: AnyNic,
    claim: Option<Claim>,
}

impl Network {
    /// Takes `card`, whose link may take `patience` microseconds to come up. The service goes to another processor, unless the
    /// settings say otherwise, there is none, or the firmware's driver drives the card.
    pub fn open(
        card: &Card,
        patience: u64,
        settings: &Settings,
        clock: Clock,
    ) -> Result<Self, Error> {
        let Taken {
            mut nic,
            claim,
            driver,
        } = card.take(clock)?;
        let mac = nic.properties().mac;
        let [a, b, c, d, e, f] = mac;
        log::info!("{card}, {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, driven by {driver}");
        let end = clock.micros() + patience;
        while !nic.link_up() {
            if clock.micros() > end {
                nic.stop();
                // Before the claim: its memory belongs to the device.
                drop(nic);
                return Err(Error::NoLink(card.to_string()));
            }
            core::hint::spin_loop();
        }
        if let Some(vlan) = settings.vlan {
            log::info!("VLAN {vlan}");
        }
        if settings.processors == Some(0) {
            log::info!("the network runs on the boot processor, as the load options say");
        }
        let (home, commands, events) = settle(nic, settings.vlan, clock, settings.processors);
        Ok(Self {
            home,
            claim,
            vlan: settings.vlan,
            commands,
            events,
            clock,
            mac,
            interface: card.path().into(),
            lease: None,
            rest: Rest::new(),
            rested: 0,
            busy: clock.micros(),
        })
    }

    /// The interface's address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Nodes of its device path.
    pub fn interface(&self) -> &[u8] {
        &self.interface
    }

    /// Sends a command.
    pub fn send(&mut self, mut command: Command) -> Result<(), Error> {
        if let Command::Configure(lease) = &command {
            self.lease = Some(lease.clone());
        }
        self.busy = self.clock.micros();
        // The service takes commands each turn, so there is room after one.
        while let Err(back) = self.commands.push(command) {
            command = back;
            self.turn()?;
        }
        Ok(())
    }

    /// One turn of the network, or a look at the processor that turns it.
    ///
    /// # Errors
    /// [`Error::Processor`] when that one was lost: the service has begun again on the boot processor, without the jobs
    /// that it had.
    pub fn turn(&mut self) -> Result<(), Error> {
        let now = self.clock.micros();
        match &mut self.home {
            // No pause in an idle turn: a translator, and a hypervisor where several follow one another, gives the
            // processor away at it, and takes its time to give it back.
            Home::Here(service) => {
                service.poll(instant(self.clock))?;
            }
            Home::There {
                thread,
                processor,
                beats,
                since,
            } => {
                console::tell_waiting();
                if thread.is_finished() {
                    let ended = self.end();
                    return Err(match ended.and_then(|ended| ended.fault) {
                        Some(fault) => fault.into(),
                        None => Error::Nothing,
                    });
                }
                let told = thread.beats();
                if told != *beats {
                    (*beats, *since) = (told, now);
                }
                let words = processors::last_words();
                if words.is_some() || processor.is_overflowing() || now > *since + SILENCE {
                    let number = processor.number();
                    let reason = words.unwrap_or_else(|| "it stopped answering".to_string());
                    log::warn!(
                        "processor {number} is lost ({reason}); going on with the boot processor"
                    );
                    self.begin_again()?;
                    return Err(Error::Processor);
                }
            }
            Home::Gone => return Err(Error::Nothing),
        }
        Ok(())
    }

    /// Whether another processor runs the network.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.home, Home::There { .. })
    }

    /// How long the boot processor has rested since the start, in microseconds.
    pub fn rested(&self) -> u64 {
        self.rested
    }

    /// Nothing to do at the moment: rests the boot processor, once it is clear that nothing will happen soon.
    pub fn idle(&mut self) {
        if !self.is_elsewhere() {
            return;
        }
        // Awake without a pause, for the reason given in `turn`.
        let now = self.clock.micros();
        if now >= self.busy + AWAKE {
            self.rest.nap();
            self.rested += self.clock.micros() - now;
        }
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        // Progress is no reason to stay awake.
        if !matches!(event, Event::Progress { .. }) {
            self.busy = self.clock.micros();
        }
        if let Event::Lease {
            result: Ok(lease), ..
        } = &event
        {
            self.lease = Some(lease.clone());
        }
        Some(event)
    }

    /// Ends the service and keeps the interface.
    pub fn quiet(mut self) -> Option<Quiet> {
        let mut nic = self.end()?.nic;
        if let Either::Second(snp) = &mut nic {
            // At once: where boot services end, the firmware's driver can no longer be asked to.
            snp.stop();
        }
        let claim = self.claim.take();
        Some(Quiet { nic, claim })
    }

    /// Ends the service, and its thread.
    fn end(&mut self) -> Option<Ended<AnyNic>> {
        let ended = match core::mem::replace(&mut self.home, Home::Gone) {
            Home::Here(service) => Some(Ended {
                nic: drained(*service, self.clock),
                fault: None,
            }),
            Home::There {
                mut thread,
                mut processor,
                ..
            } => {
                thread.stop();
                let end = self.clock.micros() + SILENCE;
                let ended = loop {
                    match thread.join() {
                        Ok(ended) => break Some(ended),
                        Err(_) if self.clock.micros() > end => break None,
                        Err(back) => thread = back,
                    }
                    core::hint::spin_loop();
                };
                match ended {
                    Some(Ended { nic, fault }) => {
                        // It has a few instructions to go on our stack.
                        while !processor.is_idle() && self.clock.micros() < end {
                            core::hint::spin_loop();
                        }
                        let nic = Either::First(nic);
                        Some(Ended { nic, fault })
                    }
                    None => {
                        log::warn!("processor {} does not stop", processor.number());
                        kill(&mut processor).ok()?;
                        let nic = Either::First(self.start_nic().ok()?);
                        Some(Ended { nic, fault: None })
                    }
                }
            }
            Home::Gone => None,
        };
        console::tell_waiting();
        memory::collect();
        ended
    }

    /// After the processor was lost: a new service, here, on a device that is started anew. What the old one had stays
    /// allocated.
    fn begin_again(&mut self) -> Result<(), Error> {
        if let Home::There { mut processor, .. } = core::mem::replace(&mut self.home, Home::Gone) {
            kill(&mut processor)?;
        }
        let nic = Either::First(self.start_nic()?);
        let (home, commands, events) = settle(nic, self.vlan, self.clock, Some(0));
        (self.home, self.commands, self.events) = (home, commands, events);
        if let Some(lease) = self.lease.clone() {
            self.send(Command::Configure(lease))?;
        }
        Ok(())
    }

    /// Our driver, on a device that it resets first.
    fn start_nic(&self) -> Result<Native, Error> {
        let function = self
            .claim
            .as_ref()
            .and_then(|claim| claim.function(self.clock).ok());
        card::start(function.ok_or(Error::NoInterface)?)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(mut ended) = self.end() {
            ended.nic.stop();
        }
    }
}

impl Quiet {
    /// Stops the device: no DMA any more. May be called again.
    pub fn stop(&mut self) {
        self.nic.stop();
        if let Some(claim) = &self.claim {
            claim.stop_dma();
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends what runs on a lost processor. Where the firmware refuses, the device may get a second owner at any time, so nobody else may
/// use it, and the boot is over for us.
fn kill(processor: &mut Processor) -> Result<(), Error> {
    if processor.kill() {
        Ok(())
    } else {
        Err(Error::Undying(processor.number()))
    }
}

/// A service on `nic`, on another processor if there is one and it comes, with the ends of its mailbox.
fn settle(
    nic: AnyNic,
    vlan: Option<VlanId>,
    clock: Clock,
    processors: Option<u32>,
) -> (Home, Sender<Command>, Receiver<Event>) {
    let (seed, source) = random::seed();
    if source == random::Source::Weak {
        log::warn!(
            "no random number generator: an attacker on the network could guess ids and ports"
        );
    }
    let (commands, for_service) = wireboot_ring::channel(MAILBOX);
    let (to_us, events) = wireboot_ring::channel(MAILBOX);
    let parts = Parts {
        vlan,
        seed,
        commands: for_service,
        events: to_us,
        clock,
    };
    let home = match nic {
        Either::First(nic) if processors != Some(0) => match processors::others() {
            Ok(others) => Home::there(Engine { nic, parts }, others),
            Err(alone) => {
                log::info!("the network runs on the boot processor: {alone}");
                let nic = Either::First(nic);
                Home::here(Engine { nic, parts })
            }
        },
        nic => {
            if let Either::Second(_) = nic {
                log::info!("the network runs on the boot processor, as the firmware's driver does");
            }
            Home::here(Engine { nic, parts })
        }
    };
    (home, commands, events)
}

impl<N: Nic> Engine<N> {
    /// For the processor that will run it: it cannot change to another.
    fn service(self) -> Service<Vlan<N>> {
        let Parts {
            vlan,
            seed,
            commands,
            events,
            ..
        } = self.parts;
        Service::new(Vlan::new(self.nic, vlan), seed, commands, events)
    }
}

impl Home {
    fn here(engine: Engine<AnyNic>) -> Self {
        Self::Here(Box::new(engine.service()))
    }

    /// On the first of `others` that comes.
    fn there(mut engine: Engine<Native>, others: Vec<Processor>) -> Self {
        let clock = engine.parts.clock;
        for mut processor in others {
            let number = processor.number();
            let mut thread = match spawn(&mut processor, engine, serve) {
                Ok(thread) => thread,
                Err(refused) => {
                    log::warn!(
                        "processor {number} does not start ({})",
                        refused.error.status()
                    );
                    engine = refused.value;
                    continue;
                }
            };
            let end = clock.micros() + START;
            while !thread.is_started() && clock.micros() < end {
                core::hint::spin_loop();
            }
            if !thread.is_started() {
                match thread.reclaim() {
                    Ok(back) => {
                        log::warn!("processor {number} does not come");
                        // Should the firmware refuse: it will find nothing to do.
                        let _ = processor.kill();
                        engine = back;
                        continue;
                    }
                    Err(came) => thread = came,
                }
            }
            log::info!("the network runs on processor {number}");
            return Self::There {
                beats: thread.beats(),
                since: clock.micros(),
                thread,
                processor,
            };
        }
        let Engine { nic, parts } = engine;
        let nic = Either::First(nic);
        Self::here(Engine { nic, parts })
    }
}

/// The life of the service on a processor of its own.
fn serve(engine: Engine<Native>, context: &Context<'_>) -> Ended<Native> {
    let clock = engine.parts.clock;
    let mut service = engine.service();
    let parking = Parking::here(clock);
    let mut busy = clock.micros();
    let mut forgotten = busy;
    let fault = loop {
        if context.stopping() {
            break None;
        }
        context.beat();
        match service.poll(instant(clock)) {
            Err(fault) => break Some(fault),
            Ok(true) => {
                busy = clock.micros();
                if busy >= forgotten + FORGET {
                    processors::forget_translations();
                    forgotten = busy;
                }
            }
            Ok(false) => {
                let idle = clock.micros() - busy;
                if let Some(parking) = &parking
                    && idle >= BUSY
                {
                    parking.park((idle / 8).min(LONGEST_REST) as u32);
                }
            }
        }
    };
    Ended {
        nic: drained(service, clock),
        fault,
    }
}

fn instant(clock: Clock) -> Instant {
    Instant::from_micros(i64::try_from(clock.micros()).unwrap_or(i64::MAX))
}

/// The NIC of a service whose last frames have left.
fn drained<N: Nic>(mut service: Service<Vlan<N>>, clock: Clock) -> N {
    let end = clock.micros() + DRAIN;
    // What the tasks still have to say.
    let _ = service.poll(instant(clock));
    let mut nic = service.into_nic();
    let (_, mut transmit) = nic.split();
    let _ = transmit.flush();
    while !transmit.idle() && clock.micros() < end {
        core::hint::spin_loop();
    }
    drop(transmit);
    nic.into_nic()
}
