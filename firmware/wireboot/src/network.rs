//! The network interface with our stack on it, from taking it to giving it back.

use crate::error::Error;
use crate::origin::Origin;
use alloc::boxed::Box;
use alloc::string::ToString;
use wireboot_fetch::{Command, Event, Service};
use wireboot_net::Instant;
use wireboot_nic::virtio::{self, VirtioNet};
use wireboot_nic::{Nic, Transmit};
use wireboot_platform::pci::{self, Candidate, Claim, Function};
use wireboot_platform::{Clock, random};
use wireboot_ring::{Receiver, Sender};

/// Commands and events under way at most.
const MAILBOX: usize = 64;
/// How long the last frames may take to leave before the device is reset, in microseconds.
const DRAIN: u64 = 50_000;
/// How long a link may take to come up, in microseconds.
const LINK: u64 = 5_000_000;

/// The interface and the service on it. Dropping it lets the last frames leave, stops the device and gives
/// it back to the firmware.
pub struct Network {
    /// `None` only while being taken apart. Before the claim, so that the device's memory goes first.
    service: Option<Service<VirtioNet<Function>>>,
    claim: Option<Claim>,
    commands: Sender<Command>,
    events: Receiver<Event>,
    /// Since wireboot's start.
    pub clock: Clock,
    mac: [u8; 6],
    interface: Box<[u8]>,
}

/// An interface whose engine is gone, still receiving: what is kept while a system starts.
pub struct Quiet {
    nic: VirtioNet<Function>,
    claim: Claim,
}

impl Network {
    /// Takes the interface that we were booted from; when we were not, the first with a link.
    pub fn open(origin: &Origin, clock: Clock) -> Result<Self, Error> {
        let (nic, claim, interface) = take(origin, clock)?;
        let (seed, source) = random::seed();
        if source == random::Source::Weak {
            log::warn!(
                "no random number generator: an attacker on the network could guess ids and ports"
            );
        }
        let mac = nic.properties().mac;
        let (commands, for_service) = wireboot_ring::channel(MAILBOX);
        let (to_us, events) = wireboot_ring::channel(MAILBOX);
        Ok(Self {
            service: Some(Service::new(nic, seed, for_service, to_us)),
            claim: Some(claim),
            commands,
            events,
            clock,
            mac,
            interface,
        })
    }

    /// The interface's address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Nodes of its PCI function's device path.
    pub fn interface(&self) -> &[u8] {
        &self.interface
    }

    /// Sends a command.
    pub fn send(&mut self, mut command: Command) -> Result<(), Error> {
        // The service takes commands each turn, so there is room after one.
        while let Err(back) = self.commands.push(command) {
            command = back;
            self.turn()?;
        }
        Ok(())
    }

    /// One turn of the network.
    pub fn turn(&mut self) -> Result<(), Error> {
        let now = instant(self.clock);
        if let Some(service) = &mut self.service {
            // No pause in an idle turn: a translator, and a hypervisor where several follow one another, gives the
            // processor away at it, and takes its time to give it back.
            service.poll(now)?;
        }
        Ok(())
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Ends the service and keeps the interface.
    pub fn quiet(mut self) -> Option<Quiet> {
        let service = self.service.take()?;
        Some(Quiet {
            nic: drained(service, self.clock),
            claim: self.claim.take()?,
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            drained(service, self.clock).stop();
        }
    }
}

impl Quiet {
    /// Stops the device: no DMA any more. May be called again.
    pub fn stop(&mut self) {
        self.nic.stop();
        self.claim.stop_dma();
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.stop();
    }
}

fn instant(clock: Clock) -> Instant {
    Instant::from_micros(i64::try_from(clock.micros()).unwrap_or(i64::MAX))
}

/// The NIC of a service whose last frames have left.
fn drained(mut service: Service<VirtioNet<Function>>, clock: Clock) -> VirtioNet<Function> {
    let end = clock.micros() + DRAIN;
    // What the tasks still have to say.
    let _ = service.poll(instant(clock));
    let mut nic = service.into_nic();
    let (_, transmit) = nic.split();
    let _ = transmit.flush();
    while !transmit.idle() && clock.micros() < end {
        core::hint::spin_loop();
    }
    nic
}

/// The running device, the claim to it, and its function's device path.
type Taken = (VirtioNet<Function>, Claim, Box<[u8]>);

fn take(origin: &Origin, clock: Clock) -> Result<Taken, Error> {
    let supported = |c: &Candidate| virtio::supports(c.vendor, c.device);
    if origin.network.mac.is_some() {
        let interface = pci::functions_on(&origin.path)
            .pop()
            .ok_or(Error::NoInterface)?;
        if !supported(&interface) {
            return Err(Error::Unsupported(interface.to_string()));
        }
        return start(&interface);
    }
    let mut candidates = pci::functions();
    candidates.retain(supported);
    let mut failure = Error::NoInterface;
    for interface in &candidates {
        match start(interface) {
            Ok((mut nic, claim, path)) => {
                // The last one is as good as it gets.
                let patience = if candidates.len() == 1 {
                    LINK
                } else {
                    LINK / 5
                };
                let end = clock.micros() + patience;
                while !nic.link_up() && clock.micros() < end {
                    core::hint::spin_loop();
                }
                if nic.link_up() {
                    return Ok((nic, claim, path));
                }
                log::warn!("{interface}: no link");
                nic.stop();
                // Before the claim: its memory belongs to the device.
                drop(nic);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn start(interface: &Candidate) -> Result<Taken, Error> {
    let refused = |status| Error::Refused {
        interface: interface.to_string(),
        status,
    };
    let claim = Claim::take(interface).map_err(|error| refused(error.status()))?;
    let function = claim.function().map_err(|error| refused(error.status()))?;
    Ok((VirtioNet::new(function)?, claim, interface.path.clone()))
}
