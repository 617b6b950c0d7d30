//! Where the network runs: on another processor, or on the boot processor in its turns.

use super::post::{Account, Duty, Post, instant};
use crate::card::{AnyNic, Native};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_fetch::{Command, Event, Service};
use wireboot_net::Instant;
use wireboot_nic::vlan::{Vlan, VlanId};
use wireboot_nic::{Counters, Either, Fault, Nic, Transmit};
use wireboot_platform::processors::{self, Processor};
use wireboot_platform::{Clock, random};
use wireboot_ring::{Receiver, Sender};

/// Commands and events under way at most.
const MAILBOX: usize = 64;
/// How long the last frames may take to leave before the device is reset, in microseconds.
const DRAIN: u64 = 50_000;

/// Where the service runs.
pub enum Home {
    /// On the boot processor, in its turns.
    Here(Box<Service<Vlan<AnyNic>>>),
    /// On another one.
    There(Post<Engine<Native>>),
    /// Nowhere any more.
    Gone,
}

/// What the service is made of, for the processor that will run it.
pub struct Engine<N> {
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

impl<N: Nic> Engine<N> {
    fn service(self) -> Service<Vlan<N>> {
        let parts = self.parts;
        let nic = Vlan::new(self.nic, parts.vlan);
        Service::new(nic, parts.seed, parts.commands, parts.events)
    }
}

impl<N: Nic + Send + 'static> Duty for Engine<N> {
    type Running = (Service<Vlan<N>>, Clock);
    type Remains = N;

    fn clock(&self) -> Clock {
        self.parts.clock
    }

    fn begin(self) -> Self::Running {
        let clock = self.parts.clock;
        (self.service(), clock)
    }

    fn turn((service, _): &mut Self::Running, now: Instant) -> Result<bool, Fault> {
        service.poll(now)
    }

    fn counters((service, _): &mut Self::Running) -> Counters {
        service.nic_mut().counters()
    }

    fn end((service, clock): Self::Running) -> N {
        drained(service, clock)
    }
}

/// The NIC of a service whose last frames have left.
pub fn drained<N: Nic>(mut service: Service<Vlan<N>>, clock: Clock) -> N {
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

/// A service, and the ends of its mailbox.
pub struct Settled {
    pub home: Home,
    pub commands: Sender<Command>,
    pub events: Receiver<Event>,
}

impl Home {
    /// A service on `nic`, on another processor if there is one and it comes.
    pub fn settle(
        nic: AnyNic,
        vlan: Option<VlanId>,
        clock: Clock,
        processors: Option<u32>,
    ) -> Settled {
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
                Ok(others) => Self::there(Engine { nic, parts }, others),
                Err(alone) => {
                    log::info!("the network runs on the boot processor: {alone}");
                    let nic = Either::First(nic);
                    Self::here(Engine { nic, parts })
                }
            },
            nic => {
                if let Either::Second(_) = nic {
                    log::info!(
                        "the network runs on the boot processor, as the firmware's driver does"
                    );
                }
                Self::here(Engine { nic, parts })
            }
        };
        Settled {
            home,
            commands,
            events,
        }
    }

    fn here(engine: Engine<AnyNic>) -> Self {
        Self::Here(Box::new(engine.service()))
    }

    /// On the first of `others` that comes.
    fn there(engine: Engine<Native>, others: Vec<Processor>) -> Self {
        match Post::fill(&mut others.into_iter(), engine) {
            Ok(post) => {
                log::info!("the network runs on processor {}", post.number());
                Self::There(post)
            }
            Err(Engine { nic, parts }) => {
                let nic = Either::First(nic);
                Self::here(Engine { nic, parts })
            }
        }
    }

    /// What has been done on each of the other processors, by their numbers.
    pub fn accounts(&self) -> Vec<(usize, Account)> {
        match self {
            Self::There(post) => [(post.number(), post.account())].into(),
            Self::Here(_) | Self::Gone => Vec::new(),
        }
    }

    /// A processor that is lost, and why.
    pub fn loss(&mut self, now: u64) -> Option<(usize, String)> {
        match self {
            Self::There(post) => post.loss(now).map(|reason| (post.number(), reason)),
            Self::Here(_) | Self::Gone => None,
        }
    }
}
