//! Where the network runs: on other processors, or on the boot processor in its turns.
//!
//! A card that the firmware's driver drives is the boot processor's in any case. An engine elsewhere gets its frames by a relay, whose near
//! end the boot processor turns.

use super::post::{Account, Duty, Post, instant};
use crate::card::{AnyNic, Firmware, Native};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use wireboot_fetch::{Command, Event, Leader, Link, Service, Worker};
use wireboot_net::Instant;
use wireboot_nic::relay::{Far, Near, relay};
use wireboot_nic::virtio::VirtioPair;
use wireboot_nic::vlan::{Vlan, VlanId};
use wireboot_nic::{Counters, Either, Fault, Nic, Transmit};
#[cfg(feature = "faults")]
use wireboot_platform::faults::Place;
use wireboot_platform::pci::Function;
use wireboot_platform::processors::Processor;
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
    /// On others.
    There(Crew),
    /// Nowhere any more.
    Gone,
}

/// What an engine on another processor has: a card that our own driver drives, or the far end of a relay.
type Away = Either<Native, Far>;

/// The service on one processor, and assistants on others, each on a queue pair of the card of its own.
pub struct Crew {
    lead: Post<Engine<Away>>,
    assistants: Vec<Post<Aide>>,
    /// Where the firmware's driver drives the card, for which there are no assistants.
    near: Option<Box<Near<Firmware>>>,
}

/// The interface itself.
fn whole(nic: Away, near: Option<Box<Near<Firmware>>>) -> Option<AnyNic> {
    match (nic, near) {
        (_, Some(near)) => Some(Either::Second(near.into_nic())),
        (Either::First(nic), None) => Some(Either::First(nic)),
        // There is no far end without a near one.
        (Either::Second(_), None) => None,
    }
}

/// What remains of a crew that has lost a processor.
pub struct Wreck {
    /// All that do not stop, with whatever they were in the middle of.
    pub processors: Vec<Processor>,
    /// The interface, where the lost ones do not have it.
    pub near: Option<Box<Near<Firmware>>>,
}

impl fmt::Display for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "processor {}", self.lead.number())?;
        for (index, post) in self.assistants.iter().enumerate() {
            let before = if index == 0 {
                "; parts of large files on"
            } else {
                ","
            };
            write!(f, "{before} {}", post.number())?;
        }
        if self.near.is_some() {
            f.write_str(
                ", frames by way of the boot processor, as the firmware's driver runs there",
            )?;
        }
        Ok(())
    }
}

impl Crew {
    /// One of them has ended, asked or not.
    pub fn is_over(&self) -> bool {
        self.lead.is_over() || self.assistants.iter().any(Post::is_over)
    }

    /// A processor that is lost, and why.
    pub fn loss(&mut self, now: u64) -> Option<(usize, String)> {
        fn of<D: Duty>(post: &mut Post<D>, now: u64) -> Option<(usize, String)> {
            post.loss(now).map(|reason| (post.number(), reason))
        }
        let lost = of(&mut self.lead, now);
        lost.or_else(|| self.assistants.iter_mut().find_map(|post| of(post, now)))
    }

    /// The boot processor's part.
    pub fn turn(&mut self) {
        if let Some(near) = &mut self.near {
            near.turn();
        }
    }

    /// Whether the boot processor has a part.
    pub fn needs_turns(&self) -> bool {
        self.near.is_some()
    }

    /// Ends all, the lead last: its NIC is the one that stops the card.
    ///
    /// # Errors
    /// What remains, when a processor does not stop.
    pub fn end(self, clock: Clock) -> Result<(AnyNic, Option<Fault>), Wreck> {
        let mut near = self.near;
        self.assistants.iter().for_each(Post::dismiss);
        let mut processors = Vec::new();
        let mut faults = None;
        for post in self.assistants {
            match post.end(clock, || {}) {
                Ok((_, fault)) => faults = faults.or(fault),
                Err(processor) => processors.push(processor),
            }
        }
        let lead = self.lead.end(clock, || {
            if let Some(near) = &mut near {
                near.turn();
            }
        });
        match lead {
            Ok((nic, fault)) => match whole(nic, near) {
                Some(nic) if processors.is_empty() => Ok((nic, fault.or(faults))),
                nic => {
                    // Started anew for whoever comes next, as those that do not stop still have parts of it.
                    if let Some(mut nic) = nic {
                        nic.stop();
                    }
                    Err(Wreck {
                        processors,
                        near: None,
                    })
                }
            },
            Err(processor) => {
                processors.push(processor);
                Err(Wreck { processors, near })
            }
        }
    }

    /// What remains when a processor is lost.
    pub fn abandon(self) -> Wreck {
        let assistants = self.assistants.into_iter().map(Post::abandon);
        Wreck {
            processors: core::iter::once(self.lead.abandon())
                .chain(assistants)
                .collect(),
            near: self.near,
        }
    }
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
    /// Of the assistants, where there are any.
    lead: Option<Leader>,
}

impl<N: Nic> Engine<N> {
    fn service(self) -> Service<Vlan<N>> {
        let parts = self.parts;
        let nic = Vlan::new(self.nic, parts.vlan);
        let (seed, commands, events) = (parts.seed, parts.commands, parts.events);
        match parts.lead {
            None => Service::new(nic, seed, commands, events),
            Some(lead) => Service::with_workers(nic, seed, commands, events, lead),
        }
    }
}

impl Engine<Away> {
    /// Puts assistants on `processors`, one for each further queue pair of the card: all or none, as the card spreads what it receives over
    /// all of them.
    fn assistants(&mut self, processors: &mut impl Iterator<Item = Processor>) -> Vec<Post<Aide>> {
        let Either::First(Either::First(card)) = &mut self.nic else {
            return Vec::new();
        };
        let pairs = card.take_pairs();
        if pairs.is_empty() {
            return Vec::new();
        }
        let steering = match card.spread(pairs.len() + 1) {
            Ok(steering) => steering,
            Err(error) => {
                log::warn!("{error}; the network runs on one processor");
                return Vec::new();
            }
        };
        let (lead, links) = wireboot_fetch::team(&steering);
        self.parts.lead = Some(lead);
        let mut posts = Vec::new();
        for (nic, link) in pairs.into_iter().zip(links) {
            let aide = Aide {
                nic,
                vlan: self.parts.vlan,
                seed: seed(),
                link,
                clock: self.parts.clock,
            };
            match Post::fill(processors, aide) {
                Ok(post) => posts.push(post),
                Err(_) => {
                    self.disband(posts);
                    return Vec::new();
                }
            }
        }
        posts
    }

    /// Goes on without assistants.
    fn disband(&mut self, posts: Vec<Post<Aide>>) {
        for post in posts {
            if let Err(mut processor) = post.end(self.parts.clock, || {}) {
                // What it had stays allocated.
                let _ = processor.kill();
            }
        }
        if self.parts.lead.take().is_some()
            && let Either::First(Either::First(card)) = &mut self.nic
            && let Err(error) = card.spread(1)
        {
            log::warn!("the network card does not go back to one queue pair: {error}");
        }
    }
}

/// What an assistant is made of.
pub struct Aide {
    nic: VirtioPair<Function>,
    vlan: Option<VlanId>,
    seed: [u8; 32],
    link: Link,
    clock: Clock,
}

impl Duty for Aide {
    type Running = Worker<Vlan<VirtioPair<Function>>>;
    type Remains = VirtioPair<Function>;
    #[cfg(feature = "faults")]
    const PLACE: Place = Place::Assistant;

    fn clock(&self) -> Clock {
        self.clock
    }

    fn begin(self) -> Self::Running {
        Worker::new(Vlan::new(self.nic, self.vlan), self.seed, self.link)
    }

    fn turn(assistant: &mut Self::Running, now: Instant) -> Result<bool, Fault> {
        assistant.poll(now)
    }

    fn counters(assistant: &mut Self::Running) -> Counters {
        assistant.nic_mut().counters()
    }

    fn end(assistant: Self::Running) -> VirtioPair<Function> {
        assistant.into_nic().into_nic()
    }
}

impl<N: Nic + Send + 'static> Duty for Engine<N> {
    type Running = (Service<Vlan<N>>, Clock);
    type Remains = N;
    #[cfg(feature = "faults")]
    const PLACE: Place = Place::Engine;

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

/// For the random numbers of an engine.
fn seed() -> [u8; 32] {
    let (seed, source) = random::seed();
    if source == random::Source::Weak {
        log::warn!(
            "no random number generator: an attacker on the network could guess ids and ports"
        );
    }
    seed
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
    /// A service on `nic`: on the first of `processors` that comes, with assistants on as many others as the card has queue pairs for;
    /// or here, where there are none.
    pub fn settle(
        nic: AnyNic,
        vlan: Option<VlanId>,
        clock: Clock,
        processors: Vec<Processor>,
    ) -> Settled {
        let seed = seed();
        let (commands, for_service) = wireboot_ring::channel(MAILBOX);
        let (to_us, events) = wireboot_ring::channel(MAILBOX);
        let parts = Parts {
            vlan,
            seed,
            commands: for_service,
            events: to_us,
            clock,
            lead: None,
        };
        let home = if processors.is_empty() {
            Self::here(Engine { nic, parts })
        } else {
            Self::there(nic, parts, processors)
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

    fn there(nic: AnyNic, parts: Parts, processors: Vec<Processor>) -> Self {
        let (nic, near) = match nic {
            Either::First(nic) => (Either::First(nic), None),
            Either::Second(nic) => {
                let (near, far) = relay(nic);
                (Either::Second(far), Some(Box::new(near)))
            }
        };
        let mut engine = Engine { nic, parts };
        let mut processors = processors.into_iter();
        let first = processors.next();
        let assistants = engine.assistants(&mut processors);
        match Post::fill(&mut first.into_iter().chain(processors), engine) {
            Ok(lead) => {
                let crew = Crew {
                    lead,
                    assistants,
                    near,
                };
                log::info!("the network runs on {crew}");
                Self::There(crew)
            }
            Err(mut engine) => {
                engine.disband(assistants);
                let Engine { nic, parts } = engine;
                match whole(nic, near) {
                    Some(nic) => Self::here(Engine { nic, parts }),
                    None => Self::Gone,
                }
            }
        }
    }

    /// What has been done on each of the other processors, by their numbers.
    pub fn accounts(&self) -> Vec<(usize, Account)> {
        let Self::There(crew) = self else {
            return Vec::new();
        };
        let lead = (crew.lead.number(), crew.lead.account());
        let assistants = crew.assistants.iter();
        let assistants = assistants.map(|post| (post.number(), post.account()));
        core::iter::once(lead).chain(assistants).collect()
    }
}
