//! A service and its workers on threads of their own, as on processors of a machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use wireboot_net::Ipv4Cidr;
use wireboot_nic::sim::multiqueue::{PairSelection, multiqueue};
use wireboot_nic::{Fault, Steering, sim};

use super::ranges::ranges;
use super::world::{CLIENT, Server};
use super::*;
use crate::testing;
use crate::{Command, Event, Lease, LeaseSource, Service, Worker, team};
use wireboot_net::Instant;

/// Counts the turns of each engine, so that virtual time waits for all of them.
struct Turns {
    stop: AtomicBool,
    counts: Vec<AtomicUsize>,
}

/// Stops all when one ends or the test fails.
struct StopAll<'a>(&'a AtomicBool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Turns {
    /// Runs an engine until the test is over.
    fn run(
        &self,
        index: usize,
        clock: &sim::Clock,
        mut poll: impl FnMut(Instant) -> Result<bool, Fault>,
    ) {
        let _stop = StopAll(&self.stop);
        while !self.stop.load(Ordering::Relaxed) {
            poll(Instant::from_micros(clock.now())).unwrap();
            self.counts[index].fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
        }
    }

    fn wait(&self) {
        let begin: Vec<_> = self
            .counts
            .iter()
            .map(|c| c.load(Ordering::Relaxed))
            .collect();
        for (count, begin) in self.counts.iter().zip(begin) {
            while count.load(Ordering::Relaxed) == begin {
                assert!(!self.stop.load(Ordering::Relaxed), "an engine ended");
                thread::yield_now();
            }
        }
    }
}

#[test]
fn on_real_threads_the_file_is_the_same() {
    const ENGINES: usize = 3;
    let file = content(5_000_000, 61);
    let served = file.clone();
    let wire = Wire::default();
    let (client, far) = sim::link(wire.link, wire.link, 1);
    let clock = client.clock();
    let mut server = Server::new(far, wire, move |request| ranges(&served, "\"v\"", request));
    let steering = Steering::by_port(ENGINES);
    let (leader, links) = team(&steering);
    let mut pairs = multiqueue(client, steering, PairSelection::Steered).into_iter();
    let (mut commands, inbox) = wireboot_ring::channel(16);
    let (outbox, mut events) = wireboot_ring::channel(64);
    let turns = Turns {
        stop: AtomicBool::new(false),
        counts: (0..ENGINES).map(|_| AtomicUsize::new(0)).collect(),
    };
    let (turns, clock) = (&turns, &clock);
    let lease = Lease::new(Ipv4Cidr::new(CLIENT, 24), LeaseSource::Firmware);
    assert!(commands.push(Command::Configure(lease)).is_ok());
    let get = |job| Command::Get {
        job,
        url: URL.to_string(),
        patience: Duration::ZERO,
    };
    assert!(commands.push(get(0)).is_ok() && commands.push(get(1)).is_ok());
    let committed = [Arc::default(), Arc::default()];
    let files = thread::scope(|scope| {
        let _stop = StopAll(&turns.stop);
        let pair = pairs.next().unwrap();
        scope.spawn(move || {
            let mut service = Service::with_workers(pair, [7; 32], inbox, outbox, leader);
            turns.run(0, clock, |now| service.poll(now));
        });
        for (index, (pair, link)) in pairs.zip(links).enumerate() {
            scope.spawn(move || {
                let mut worker = Worker::new(pair, [8 + index as u8; 32], link);
                turns.run(index + 1, clock, |now| worker.poll(now));
            });
        }
        let mut files = Vec::new();
        while files.len() < 2 {
            assert!(clock.now() < 20_000_000, "the downloads do not end");
            turns.wait();
            clock.advance(20);
            server.poll(Instant::from_micros(clock.now()));
            while let Some(event) = events.pop() {
                match event {
                    Event::NeedMemory { job, bytes } => {
                        let memory = testing::memory(bytes, None, &committed[job as usize]);
                        let command = Command::Memory { job, memory };
                        assert!(commands.push(command).is_ok());
                    }
                    Event::Done { result, .. } => files.push(result),
                    Event::Progress { .. }
                    | Event::Lease { .. }
                    | Event::Exchange { .. }
                    | Event::Link { .. } => {}
                }
            }
        }
        files
    });
    for result in files {
        let arrived = result.unwrap();
        assert!(testing::content(&arrived.memory, arrived.len as usize) == file);
    }
    let requests = server.requests.borrow();
    let connections = requests.iter().map(|r| r.connection).max().unwrap() + 1;
    assert!(connections >= ENGINES, "{connections}");
}
