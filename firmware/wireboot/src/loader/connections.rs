//! TCP connections for the near end.

use super::{LoaderNetwork, SharedLoaderNetwork};
use crate::network::instant;
use core::net::{IpAddr, SocketAddr};
use wireboot_fetch::socket::{Ending, SocketPort, socket};
use wireboot_fetch::{Command, Job};
use wireboot_net::Instant;
use wireboot_platform::memory::{self, Pieces};
use wireboot_protocols::near_end::tcp::{Status, Streams};

/// Bytes of one piece of memory, of which a connection has up to four.
const PIECE: usize = 1 << 20;

/// A connection for the near end.
pub(super) struct Connection {
    job: Job,
    remote: SocketAddr,
    port: SocketPort<Pieces>,
    /// The server has accepted it.
    open: bool,
    /// Bytes to the loader, and from it.
    received: u64,
    sent: u64,
}

impl LoaderNetwork {
    /// What runs is lost with its AP (application processor), or with the card.
    pub(super) fn lose_connections(&mut self) {
        for connection in &mut self.connections {
            connection.port.end(Ending::Reset);
        }
    }

    /// Lets connections receive and send.
    pub(super) fn turn_connections(&mut self) {
        for Connection {
            port, open, remote, ..
        } in &mut self.connections
        {
            port.turn();
            if port.is_open() && !*open {
                *open = true;
                self.counts.connections += 1;
                log::debug!("near end: the boot loader is connected to {remote}");
            }
            while port.wants_memory()
                && let Ok(piece) = memory::download_buffer(PIECE)
            {
                port.give(piece);
            }
        }
    }

    fn connection(&self, job: Job) -> Option<&Connection> {
        self.connections.iter().find(|one| one.job == job)
    }

    fn connection_mut(&mut self, job: Job) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|one| one.job == job)
    }

    /// Whether what the engine sends comes from `address`.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        let leases = self.network.leases();
        match address {
            IpAddr::V4(address) => {
                let lease = leases.v4.as_ref();
                lease.is_some_and(|lease| lease.address.address() == address)
            }
            IpAddr::V6(address) => {
                let lease = leases.v6.as_ref();
                lease.is_some_and(|lease| lease.addresses.contains(&address))
            }
        }
    }
}

impl Streams for SharedLoaderNetwork {
    type Stream = Job;

    fn now(&self) -> Instant {
        instant(self.0.borrow().network.clock)
    }

    fn connect(&mut self, local: IpAddr, remote: SocketAddr) -> Option<Job> {
        let network = &mut *self.0.borrow_mut();
        if !network.has_address(local) {
            return None;
        }
        let job = network.next_job();
        let (socket, port) = socket();
        let command = Command::Connect {
            job,
            remote,
            socket,
        };
        network.send(command).ok()?;
        network.connections.push(Connection {
            job,
            remote,
            port,
            open: false,
            received: 0,
            sent: 0,
        });
        Some(job)
    }

    fn status(&mut self, job: &Job) -> Status {
        let network = &mut *self.0.borrow_mut();
        let connection = network.connection_mut(*job);
        connection.map_or(Status::Silent, |one| Status::of(&mut one.port))
    }

    fn read(&self, job: &Job, at: usize, to: &mut [u8]) -> usize {
        let network = self.0.borrow();
        let connection = network.connection(*job);
        connection.map_or(0, |one| one.port.read(at, to))
    }

    fn release(&mut self, job: &Job, count: usize) {
        let network = &mut *self.0.borrow_mut();
        if let Some(connection) = network.connection_mut(*job) {
            connection.received += count as u64;
            connection.port.release(count);
            network.counts.received += count as u64;
        }
    }

    fn room(&self, job: &Job) -> usize {
        let network = self.0.borrow();
        network.connection(*job).map_or(0, |one| one.port.room())
    }

    fn write(&mut self, job: &Job, bytes: &[u8]) {
        let network = &mut *self.0.borrow_mut();
        if let Some(connection) = network.connection_mut(*job) {
            connection.sent += bytes.len() as u64;
            connection.port.write(bytes);
            network.counts.sent += bytes.len() as u64;
        }
    }

    fn finish(&mut self, job: &Job) {
        if let Some(connection) = self.0.borrow_mut().connection_mut(*job) {
            connection.port.finish();
        }
    }

    fn close(&mut self, job: Job) {
        let network = &mut *self.0.borrow_mut();
        network.turn_connections();
        let Some(index) = network.connections.iter().position(|one| one.job == job) else {
            return;
        };
        let one = network.connections.swap_remove(index);
        log::debug!(
            "near end: {} is over, {} bytes to the loader, {} from it",
            one.remote,
            one.received,
            one.sent
        );
        if !one.port.is_finished() {
            let _ = network.send(Command::Cancel { job });
        }
    }
}
