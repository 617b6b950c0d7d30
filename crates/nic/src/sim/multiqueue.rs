//! A simulated NIC with several queue pairs, each a [`Nic`] of its own.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;

use super::{Clock, SimNic, Unit, lock};
use crate::{
    Counters, Fault, Frame, Nic, Offload, Properties, Receive, SendError, Steering, Transmit,
};

/// How the NIC selects the pair for a unit: whether it keeps to its [`Steering`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairSelection {
    /// TCP and UDP go where the steering says, all else to the first pair.
    Steered,
    /// Each unit goes to any pair, the same for the same seed.
    Missteered(u64),
}

/// Splits a NIC into the pairs that `steering` has. They share its station address, and each has as many receive buffers as it.
#[must_use]
pub fn multiqueue(nic: SimNic, steering: Steering, selection: PairSelection) -> Vec<Pair> {
    let pairs = steering.pairs();
    let random = match selection {
        PairSelection::Steered => None,
        PairSelection::Missteered(seed) => Some(fastrand::Rng::with_seed(seed)),
    };
    let clock = nic.clock();
    let properties = nic.properties();
    let hub = Arc::new(Mutex::new(Hub {
        nic,
        steering,
        random,
        queues: (0..pairs).map(|_| VecDeque::new()).collect(),
    }));
    let end = |index| Pair {
        clock: clock.clone(),
        properties,
        rx: PairReceive {
            hub: hub.clone(),
            index,
            counters: Counters::default(),
        },
        tx: PairTransmit(hub.clone()),
    };
    (0..pairs).map(end).collect()
}

struct Hub {
    nic: SimNic,
    steering: Steering,
    /// Chooses the pair where units are missteered.
    random: Option<fastrand::Rng>,
    queues: Vec<VecDeque<Unit>>,
}

impl Hub {
    /// Sorts what has arrived. What finds no buffer is lost.
    fn sort(&mut self) {
        let room = self.nic.config.receive_frames;
        for unit in self.nic.rx.arrived(usize::MAX) {
            let pairs = self.queues.len();
            let pair = match &mut self.random {
                Some(random) => random.usize(0..pairs),
                None => {
                    ends(&unit.bytes).map_or(0, |(remote, local)| self.steering.pair(remote, local))
                }
            };
            match self.queues.get_mut(pair) {
                Some(queue) if queue.len() < room => queue.push_back(unit),
                _ => self.nic.rx.counters.receive_dropped += 1,
            }
        }
    }
}

/// Where a TCP or UDP packet comes from and goes to.
fn ends(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (from, to): (IpAddr, IpAddr);
    let ports = match frame.get(12..)? {
        [8, 0, 0x45, _, _, _, _, _, flags, 0, _, 6 | 17, ..] if flags & 0x3f == 0 => {
            from = Ipv4Addr::from(*octets::<4>(frame, 26)?).into();
            to = Ipv4Addr::from(*octets::<4>(frame, 30)?).into();
            34
        }
        [0x86, 0xdd, _, _, _, _, _, _, 6 | 17, ..] => {
            from = Ipv6Addr::from(*octets::<16>(frame, 22)?).into();
            to = Ipv6Addr::from(*octets::<16>(frame, 38)?).into();
            54
        }
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(*octets(frame, at)?));
    Some((
        SocketAddr::new(from, port(ports)?),
        SocketAddr::new(to, port(ports + 2)?),
    ))
}

fn octets<const N: usize>(frame: &[u8], at: usize) -> Option<&[u8; N]> {
    frame.get(at..)?.first_chunk()
}

/// One queue pair of the simulated NIC.
pub struct Pair {
    clock: Clock,
    properties: Properties,
    rx: PairReceive,
    tx: PairTransmit,
}

impl Pair {
    /// When the next frame reaches the NIC, for whichever pair, or now when one waits for this pair. In microseconds (may lie in
    /// the past).
    #[must_use]
    pub fn next_delivery(&self) -> Option<i64> {
        let hub = lock(&self.rx.hub);
        let waits = hub
            .queues
            .get(self.rx.index)
            .is_some_and(|queue| !queue.is_empty());
        if waits {
            return Some(self.clock.now());
        }
        hub.nic.next_delivery()
    }
}

impl Nic for Pair {
    type Rx<'a> = &'a mut PairReceive;
    type Tx<'a> = &'a mut PairTransmit;

    fn properties(&self) -> Properties {
        self.properties
    }

    fn link_up(&mut self) -> bool {
        lock(&self.rx.hub).nic.link_up()
    }

    fn split(&mut self) -> (&mut PairReceive, &mut PairTransmit) {
        (&mut self.rx, &mut self.tx)
    }

    /// Received units are this pair's; all else is the whole NIC's.
    fn counters(&self) -> Counters {
        Counters {
            receive_units: self.rx.counters.receive_units,
            receive_bytes: self.rx.counters.receive_bytes,
            ..lock(&self.rx.hub).nic.counters()
        }
    }

    /// Stops all pairs.
    fn stop(&mut self) {
        lock(&self.rx.hub).nic.stop();
    }
}

/// The receive half of a [`Pair`].
pub struct PairReceive {
    hub: Arc<Mutex<Hub>>,
    index: usize,
    counters: Counters,
}

impl Receive for PairReceive {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        // The lock is free again before the sink runs, which may send.
        let (units, part_len): (Vec<Unit>, _) = {
            let mut hub = lock(&self.hub);
            hub.sort();
            let part_len = hub.nic.config.part_len;
            let Some(queue) = hub.queues.get_mut(self.index) else {
                return Ok(0);
            };
            let count = queue.len().min(budget);
            (queue.drain(..count).collect(), part_len)
        };
        for unit in &units {
            self.counters.receive_units += 1;
            self.counters.receive_bytes += unit.bytes.len() as u64;
            unit.lend(part_len, &mut sink);
        }
        Ok(units.len())
    }
}

/// The transmit half of a [`Pair`].
pub struct PairTransmit(Arc<Mutex<Hub>>);

impl Transmit for PairTransmit {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        lock(&self.0).nic.tx.send(len, offload, fill)
    }

    fn room(&mut self) -> usize {
        lock(&self.0).nic.tx.room()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        lock(&self.0).nic.tx.flush()
    }

    fn idle(&mut self) -> bool {
        lock(&self.0).nic.tx.idle()
    }
}
