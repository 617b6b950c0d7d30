//! Where the network runs: on APs (application processors), or on the BSP (bootstrap processor).
//!
//! A card that the firmware's driver drives is the BSP's in any case. An engine on an AP gets its frames by a relay, whose
//! driver end the BSP turns.

use super::ap_task::{ApStats, ApTask, Task, instant};
use crate::card::{AnyNic, FirmwareNic, NativeNic};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use wireboot_fetch::{Command, Event, Leader, Link, Service, Worker};
use wireboot_net::Instant;
use wireboot_nic::relay::{DriverEnd, EngineEnd, relay};
use wireboot_nic::virtio::VirtioPair;
use wireboot_nic::vlan::{Vlan, VlanId};
use wireboot_nic::{Counters, Fault, Nic, Transmit, nic_enum};
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
pub(super) enum EngineLocation {
    /// On the BSP, in [`Network::turn`](super::Network::turn).
    Local(Box<Service<Vlan<AnyNic>>>),
    /// On APs, which [`ApTask`] watches.
    Remote(ApTasks),
    /// It has ended, or could not be started anew after an AP was lost.
    Stopped,
}

nic_enum! {
    /// What an engine on an AP has.
    enum RemoteNic {
        /// A card that our own driver drives.
        Native(NativeNic),
        /// The engine's end of a relay.
        EngineEnd(EngineEnd),
    }
}

/// The service on one AP, and workers on others, each on a queue pair of the card of its own.
pub(super) struct ApTasks {
    leader: ApTask<ServiceTask<RemoteNic>>,
    workers: Vec<ApTask<WorkerTask>>,
    /// Where the firmware's driver drives the card, for which there are no workers.
    driver_end: Option<Box<DriverEnd<FirmwareNic>>>,
}

/// The NIC for an engine on the BSP: without its relay, if it has one.
fn local_nic(nic: RemoteNic, driver_end: Option<Box<DriverEnd<FirmwareNic>>>) -> Option<AnyNic> {
    match (nic, driver_end) {
        (_, Some(driver_end)) => Some(AnyNic::Firmware(driver_end.into_nic())),
        (RemoteNic::Native(nic), None) => Some(AnyNic::Native(nic)),
        // There is no engine end without a driver end.
        (RemoteNic::EngineEnd(_), None) => None,
    }
}

/// What remains when an AP is lost.
pub(super) struct LostTasks {
    /// All that do not stop, with whatever they were in the middle of.
    pub processors: Vec<Processor>,
    /// The interface, where the lost ones do not have it.
    pub driver_end: Option<Box<DriverEnd<FirmwareNic>>>,
}

impl fmt::Display for ApTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "processor {}", self.leader.number())?;
        for (index, task) in self.workers.iter().enumerate() {
            let before = if index == 0 {
                "; parts of large files on"
            } else {
                ","
            };
            write!(f, "{before} {}", task.number())?;
        }
        if self.driver_end.is_some() {
            f.write_str(", frames by way of the BSP, as the firmware's driver runs there")?;
        }
        Ok(())
    }
}

impl ApTasks {
    /// A task has ended, asked or not.
    pub(super) fn is_over(&self) -> bool {
        self.leader.is_over() || self.workers.iter().any(ApTask::is_over)
    }

    /// The number of an AP that is lost, and why.
    pub(super) fn loss(&mut self, now: u64) -> Option<(usize, String)> {
        fn of<T: Task>(task: &mut ApTask<T>, now: u64) -> Option<(usize, String)> {
            task.loss(now).map(|reason| (task.number(), reason))
        }
        let lost = of(&mut self.leader, now);
        lost.or_else(|| self.workers.iter_mut().find_map(|task| of(task, now)))
    }

    /// Passes frames between the firmware's driver and the engine, where there is a relay.
    pub(super) fn turn(&mut self) {
        if let Some(driver_end) = &mut self.driver_end {
            driver_end.turn();
        }
    }

    /// Whether there is a relay, which the BSP has to turn.
    pub(super) fn needs_turns(&self) -> bool {
        self.driver_end.is_some()
    }

    /// Ends all, the leader last: its NIC is the one that stops the card.
    ///
    /// # Errors
    /// What remains, when an AP does not stop.
    pub(super) fn end(self, clock: Clock) -> Result<(AnyNic, Option<Fault>), LostTasks> {
        let mut driver_end = self.driver_end;
        self.workers.iter().for_each(ApTask::request_stop);
        let mut processors = Vec::new();
        let mut faults = None;
        for task in self.workers {
            match task.end(clock, || {}) {
                Ok((_, fault)) => faults = faults.or(fault),
                Err(processor) => processors.push(processor),
            }
        }
        let leader = self.leader.end(clock, || {
            if let Some(driver_end) = &mut driver_end {
                driver_end.turn();
            }
        });
        match leader {
            Ok((nic, fault)) => match local_nic(nic, driver_end) {
                Some(nic) if processors.is_empty() => Ok((nic, fault.or(faults))),
                nic => {
                    // Started anew for whoever comes next, as those that do not stop still have parts of it.
                    if let Some(mut nic) = nic {
                        nic.stop();
                    }
                    Err(LostTasks {
                        processors,
                        driver_end: None,
                    })
                }
            },
            Err(processor) => {
                processors.push(processor);
                Err(LostTasks {
                    processors,
                    driver_end,
                })
            }
        }
    }

    /// Gives up all tasks, without waiting for them.
    pub(super) fn abandon(self) -> LostTasks {
        let workers = self.workers.into_iter().map(ApTask::abandon);
        LostTasks {
            processors: core::iter::once(self.leader.abandon())
                .chain(workers)
                .collect(),
            driver_end: self.driver_end,
        }
    }
}

/// The fetch service, for the processor that will run it.
pub(super) struct ServiceTask<N> {
    nic: N,
    parts: Parts,
}

/// What a service is made of besides the NIC.
struct Parts {
    vlan: Option<VlanId>,
    seed: [u8; 32],
    commands: Receiver<Command>,
    events: Sender<Event>,
    clock: Clock,
    /// `None` without workers.
    leader: Option<Leader>,
}

impl<N: Nic> ServiceTask<N> {
    fn service(self) -> Service<Vlan<N>> {
        let parts = self.parts;
        let nic = Vlan::new(self.nic, parts.vlan);
        let (seed, commands, events) = (parts.seed, parts.commands, parts.events);
        match parts.leader {
            None => Service::new(nic, seed, commands, events),
            Some(leader) => Service::with_workers(nic, seed, commands, events, leader),
        }
    }
}

impl ServiceTask<RemoteNic> {
    /// Puts workers on `processors`, one for each further queue pair of the card: all or none, as the card spreads what it receives over
    /// all of them.
    fn workers(
        &mut self,
        processors: &mut impl Iterator<Item = Processor>,
    ) -> Vec<ApTask<WorkerTask>> {
        let RemoteNic::Native(NativeNic::Virtio(card)) = &mut self.nic else {
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
        let (leader, links) = wireboot_fetch::team(&steering);
        self.parts.leader = Some(leader);
        let mut tasks = Vec::new();
        for (nic, link) in pairs.into_iter().zip(links) {
            let task = WorkerTask {
                nic,
                vlan: self.parts.vlan,
                seed: seed(),
                link,
                clock: self.parts.clock,
            };
            match ApTask::spawn(processors, task) {
                Ok(task) => tasks.push(task),
                Err(_) => {
                    self.stop_workers(tasks);
                    return Vec::new();
                }
            }
        }
        tasks
    }

    /// Ends the workers and has the card use one queue pair.
    fn stop_workers(&mut self, tasks: Vec<ApTask<WorkerTask>>) {
        for task in tasks {
            if let Err(mut processor) = task.end(self.parts.clock, || {}) {
                // What it had stays allocated.
                let _ = processor.kill();
            }
        }
        if self.parts.leader.take().is_some()
            && let RemoteNic::Native(NativeNic::Virtio(card)) = &mut self.nic
            && let Err(error) = card.spread(1)
        {
            log::warn!("the network card does not go back to one queue pair: {error}");
        }
    }
}

/// A worker, for the AP that will run it.
pub(super) struct WorkerTask {
    nic: VirtioPair<Function>,
    vlan: Option<VlanId>,
    seed: [u8; 32],
    link: Link,
    clock: Clock,
}

impl Task for WorkerTask {
    type Running = Worker<Vlan<VirtioPair<Function>>>;
    type Remains = VirtioPair<Function>;
    #[cfg(feature = "faults")]
    const PLACE: Place = Place::Worker;

    fn clock(&self) -> Clock {
        self.clock
    }

    fn begin(self) -> Self::Running {
        Worker::new(Vlan::new(self.nic, self.vlan), self.seed, self.link)
    }

    fn turn(worker: &mut Self::Running, now: Instant) -> Result<bool, Fault> {
        worker.poll(now)
    }

    fn counters(worker: &mut Self::Running) -> Counters {
        worker.nic_mut().counters()
    }

    fn end(worker: Self::Running) -> VirtioPair<Function> {
        worker.into_nic().into_nic()
    }
}

impl<N: Nic + Send + 'static> Task for ServiceTask<N> {
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

/// Seeds an engine's generator; warns where the seed could be guessed.
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
pub(super) fn drained<N: Nic>(mut service: Service<Vlan<N>>, clock: Clock) -> N {
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
pub(super) struct Started {
    pub location: EngineLocation,
    pub commands: Sender<Command>,
    pub events: Receiver<Event>,
}

impl EngineLocation {
    /// A service on `nic`: on the first of `processors` that comes, with workers on as many others as the card has queue pairs for;
    /// or on the BSP, where none comes.
    pub(super) fn start(
        nic: AnyNic,
        vlan: Option<VlanId>,
        clock: Clock,
        processors: Vec<Processor>,
    ) -> Started {
        let seed = seed();
        let (commands, for_service) = wireboot_ring::channel(MAILBOX);
        let (to_us, events) = wireboot_ring::channel(MAILBOX);
        let parts = Parts {
            vlan,
            seed,
            commands: for_service,
            events: to_us,
            clock,
            leader: None,
        };
        let location = if processors.is_empty() {
            Self::local(ServiceTask { nic, parts })
        } else {
            Self::remote(nic, parts, processors)
        };
        Started {
            location,
            commands,
            events,
        }
    }

    fn local(task: ServiceTask<AnyNic>) -> Self {
        Self::Local(Box::new(task.service()))
    }

    fn remote(nic: AnyNic, parts: Parts, processors: Vec<Processor>) -> Self {
        let (nic, driver_end) = match nic {
            AnyNic::Native(nic) => (RemoteNic::Native(nic), None),
            AnyNic::Firmware(nic) => {
                let (driver_end, engine_end) = relay(nic);
                (RemoteNic::EngineEnd(engine_end), Some(Box::new(driver_end)))
            }
        };
        let mut task = ServiceTask { nic, parts };
        let mut processors = processors.into_iter();
        let first = processors.next();
        let workers = task.workers(&mut processors);
        match ApTask::spawn(&mut first.into_iter().chain(processors), task) {
            Ok(leader) => {
                let tasks = ApTasks {
                    leader,
                    workers,
                    driver_end,
                };
                log::info!("the network runs on {tasks}");
                Self::Remote(tasks)
            }
            Err(mut task) => {
                task.stop_workers(workers);
                let ServiceTask { nic, parts } = task;
                match local_nic(nic, driver_end) {
                    Some(nic) => Self::local(ServiceTask { nic, parts }),
                    None => Self::Stopped,
                }
            }
        }
    }

    /// The card, where the firmware's driver drives it.
    pub(super) fn firmware_nic(&mut self) -> Option<&mut FirmwareNic> {
        match self {
            Self::Local(service) => match service.nic_mut().nic_mut() {
                AnyNic::Firmware(nic) => Some(nic),
                AnyNic::Native(_) => None,
            },
            Self::Remote(tasks) => tasks.driver_end.as_mut().map(|end| end.nic_mut()),
            Self::Stopped => None,
        }
    }

    /// What has been done on each of the APs, by their numbers.
    pub(super) fn ap_stats(&self) -> Vec<(usize, ApStats)> {
        let Self::Remote(tasks) = self else {
            return Vec::new();
        };
        let leader = (tasks.leader.number(), tasks.leader.stats());
        let workers = tasks.workers.iter();
        let workers = workers.map(|task| (task.number(), task.stats()));
        core::iter::once(leader).chain(workers).collect()
    }
}
