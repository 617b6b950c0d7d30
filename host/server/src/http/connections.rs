//! The connections that are open, so that idle ones give way when there are too many.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// All connections, by their clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<HashMap<SocketAddr, Open>>>);

#[derive(Debug)]
struct Open {
    stream: TcpStream,
    /// Since when it waits for its client to ask; `None` while it is answered.
    idle: Option<Instant>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<SocketAddr, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.open().len()
    }

    /// How many this host has.
    pub fn of_host(&self, host: IpAddr) -> usize {
        self.open().keys().filter(|one| one.ip() == host).count()
    }

    /// Counts a connection in, which waits for its client to ask.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn enter(&self, stream: &TcpStream, client: SocketAddr) -> io::Result<Entry> {
        let open = Open {
            stream: stream.try_clone()?,
            idle: Some(Instant::now()),
        };
        self.open().insert(client, open);
        Ok(Entry {
            connections: self.clone(),
            client,
        })
    }

    /// Closes the connection, of this host or of any, that has waited for its client for the longest time. False when none does.
    pub fn close_idle(&self, host: Option<IpAddr>) -> bool {
        let mut open = self.open();
        let may_go = |(client, one): &(&SocketAddr, &mut Open)| {
            one.idle.is_some() && host.is_none_or(|host| client.ip() == host)
        };
        let idle = open.iter_mut().filter(may_go);
        let Some((_, longest)) = idle.min_by_key(|(_, one)| one.idle) else {
            return false;
        };
        longest.idle = None;
        // Its thread sees the end of the stream.
        let _ = longest.stream.shutdown(Shutdown::Both);
        true
    }
}

/// A connection's place among the open ones; given up when dropped.
#[derive(Debug)]
pub(super) struct Entry {
    connections: Connections,
    client: SocketAddr,
}

impl Entry {
    /// The client is waited for, from now on, or not.
    pub fn set_idle(&self, idle: bool) {
        if let Some(open) = self.connections.open().get_mut(&self.client) {
            open.idle = idle.then(Instant::now);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.open().remove(&self.client);
    }
}
