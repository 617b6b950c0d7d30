//! Card and guest in one thread.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use wireboot_card::coalesce::Limits;
use wireboot_card::{Beyond, Card, Turn, Wire, feature};
use wireboot_fetch::Service;
use wireboot_net::Instant;
use wireboot_nic::virtio::VirtioNet;
use wireboot_nic::{Fault, Nic, Receive};

use super::frames::CLIENT;
use crate::data_path::DataPath;
use crate::guest::{Guest, GuestPci};
use crate::memory::Mapping;
use crate::vhost::{Connection, PairQueue, Rings, RunningRing, Session};

/// From one turn to the next.
const TURN: Duration = Duration::from_micros(20);
/// How long the guest's memory and queues may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Turns in which the card has answered its driver.
const ANSWER: usize = 8;

/// A card with a guest.
pub(super) struct Bench<W> {
    card: Card<DataPath<W>>,
    memory: Mapping,
    now: Duration,
}

impl<W> Bench<W>
where
    DataPath<W>: Wire<Mapping>,
{
    /// A card with this behind it, and the driver of a guest that is offered these features. Frames are gathered within these limits, if any.
    pub(super) fn start(
        data_path: DataPath<W>,
        features: u64,
        chunks: Option<Limits<Duration>>,
    ) -> Result<(Self, VirtioNet<GuestPci>)> {
        let offloads = data_path.offloads() & features;
        let offered = feature::consistent(feature::RINGS | offloads);
        let mut card = Card::new(data_path);
        card.offer(Beyond {
            chunks,
            ..Beyond::default()
        });
        let (ours, theirs) = UnixStream::pair().context("making sockets")?;
        let connection = Connection::new(theirs)?;
        let (orders, told) = channel();
        let session = Session::new(Orders(orders), offered, 1);
        thread::spawn(move || obey(connection, session));
        let guest = Guest::over(ours, CLIENT.mac)?;
        let nic = VirtioNet::new(guest.pci()?)?;
        let memory = start(&mut card, &told)?;
        let bench = Self {
            card,
            memory,
            now: Duration::ZERO,
        };
        Ok((bench, nic))
    }

    /// Has the driver ask the card what that does beyond virtio.
    pub(super) fn agree(&mut self, nic: &mut VirtioNet<GuestPci>) -> Result<()> {
        nic.ask_card(1)?;
        for _ in 0..ANSWER {
            self.turn();
            nic.split().0.burst(usize::MAX, |_| {})?;
            if nic.agreed().is_some() {
                return Ok(());
            }
        }
        bail!("the card did not answer its driver")
    }

    pub(super) fn turn(&mut self) -> Turn {
        self.now += TURN;
        self.card.turn(&self.memory, self.now)
    }

    /// Whether chunks have come, as is expected, and no queue was stopped.
    pub(super) fn check_chunks(&self, expected: bool) -> Result<()> {
        let counters = self.card.counters();
        ensure!(counters.stopped().next().is_none(), "a queue was stopped");
        let came = counters.received_chunks;
        ensure!((came > 0) == expected, "{came} chunks came");
        Ok(())
    }
}

impl<W> Bench<W> {
    pub(super) fn wire_mut(&mut self) -> &mut W {
        self.card.wire_mut().wire_mut()
    }
}

/// A turn of the card whose instructions are counted: callgrind knows it by its name.
#[inline(never)]
pub(super) fn count_card<W>(bench: &mut Bench<W>) -> Turn
where
    DataPath<W>: Wire<Mapping>,
{
    bench.turn()
}

/// The same of the guest.
#[inline(never)]
pub(super) fn count_guest<N: Nic>(service: &mut Service<N>, now: Instant) -> Result<bool, Fault> {
    service.poll(now)
}

/// What a session says of queues.
enum Order {
    Memory(Mapping),
    Agree(u64),
    Start(PairQueue, RunningRing),
}

/// The end of the queue of orders that a session has.
struct Orders(Sender<Order>);

impl Rings for Orders {
    fn set_memory(&mut self, memory: Option<Mapping>) {
        if let Some(memory) = memory {
            let _ = self.0.send(Order::Memory(memory));
        }
    }

    fn agree(&mut self, features: u64) {
        let _ = self.0.send(Order::Agree(features));
    }

    fn start(&mut self, queue: PairQueue, ring: RunningRing) {
        let _ = self.0.send(Order::Start(queue, ring));
    }

    fn set_call(&mut self, _: PairQueue, _: Option<OwnedFd>) {}

    /// The driver goes, and the card takes no turn meanwhile.
    fn stop(&mut self, _: PairQueue) -> u16 {
        0
    }
}

/// Starts the card's queues. The guest's memory.
fn start<W>(card: &mut Card<DataPath<W>>, told: &Receiver<Order>) -> Result<Mapping>
where
    DataPath<W>: Wire<Mapping>,
{
    let (mut memory, mut queues) = (None, 0);
    loop {
        let order = told.recv_timeout(PATIENCE);
        match order.context("the guest's driver did not start")? {
            Order::Memory(mapping) => memory = Some(mapping),
            Order::Agree(features) => card.wire_mut().agree(features),
            // It is started again when it is enabled.
            Order::Start(_, ring) if ring.discards => {}
            Order::Start(queue, ring) => {
                let memory = memory.as_ref().context("queues without memory")?;
                card.start(memory, queue.queue, ring.start)?;
                queues += 1;
            }
        }
        if queues == 2 {
            return memory.context("queues without memory");
        }
    }
}

/// Obeys a driver until it goes.
fn obey(mut connection: Connection, mut session: Session<Orders>) {
    loop {
        match connection.receive() {
            Ok(Some(message)) => {
                let number = message.number;
                let reply = session.obey(message).ok().map(|reply| reply.bytes());
                let bytes = match reply {
                    Some(None) => continue,
                    Some(Some(bytes)) => bytes,
                    None => 1u64.to_le_bytes(),
                };
                if connection.reply(number, &bytes).is_err() {
                    return;
                }
            }
            Ok(None) => {
                let mut polled = [PollFd::new(&connection, PollFlags::IN)];
                let _ = poll(&mut polled, None);
            }
            Err(_) => return,
        }
    }
}
