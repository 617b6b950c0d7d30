//! The connections that are open, so that idle and slow ones give way when there are too many.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All connections, by their clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<HashMap<SocketAddr, Open>>>);

#[derive(Debug)]
struct Open {
    stream: TcpStream,
    state: ConnectionState,
    /// When it came to wait for its client, or when its answer last got on.
    since: Instant,
}

/// What a connection does. Those that give way first are first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionState {
    /// It waits for its client to ask.
    Idle,
    /// It is answered.
    Answered,
    /// It has given way, and ends.
    Closed,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<SocketAddr, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.open().len()
    }

    /// How many this host has.
    pub(super) fn of_host(&self, host: IpAddr) -> usize {
        self.open().keys().filter(|one| one.ip() == host).count()
    }

    /// Counts a connection in, which waits for its client to ask.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub(super) fn enter(
        &self,
        stream: &TcpStream,
        client: SocketAddr,
        now: Instant,
    ) -> io::Result<Entry> {
        let open = Open {
            stream: stream.try_clone()?,
            state: ConnectionState::Idle,
            since: now,
        };
        self.open().insert(client, open);
        Ok(Entry {
            connections: self.clone(),
            client,
        })
    }

    /// Closes the connection, of this host or of any, that has waited for its client for the longest time, else the one whose answer has not
    /// got on for the longest time, if that is at least `slow`. False when there is none.
    pub(super) fn make_room(&self, host: Option<IpAddr>, slow: Duration, now: Instant) -> bool {
        let mut open = self.open();
        let may_go = |(client, one): &(&SocketAddr, &mut Open)| {
            let gives_way = match one.state {
                ConnectionState::Idle => true,
                ConnectionState::Answered => now.saturating_duration_since(one.since) >= slow,
                ConnectionState::Closed => false,
            };
            gives_way && host.is_none_or(|host| client.ip() == host)
        };
        let candidates = open.iter_mut().filter(may_go);
        let Some((_, longest)) = candidates.min_by_key(|(_, one)| (one.state, one.since)) else {
            return false;
        };
        longest.state = ConnectionState::Closed;
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
    /// The client is waited for, from now on.
    pub(super) fn waits(&self, now: Instant) {
        self.set(ConnectionState::Idle, now);
    }

    /// The client is answered, or has taken enough of an answer to be no slow one.
    pub(super) fn gets_on(&self, now: Instant) {
        self.set(ConnectionState::Answered, now);
    }

    fn set(&self, state: ConnectionState, now: Instant) {
        if let Some(open) = self.connections.open().get_mut(&self.client)
            && open.state != ConnectionState::Closed
        {
            (open.state, open.since) = (state, now);
        }
    }

    /// Whether it was closed to make room.
    pub(super) fn gave_way(&self) -> bool {
        let open = self.connections.open();
        let one = open.get(&self.client);
        one.is_some_and(|one| one.state == ConnectionState::Closed)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.open().remove(&self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const SLOW: Duration = Duration::from_secs(120);

    /// A connection that is taken to come from this port of a host, and its entry.
    fn entered(connections: &Connections, host: u8, port: u16) -> (TcpStream, Entry) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let from = (Ipv4Addr::new(10, 0, 0, host), port).into();
        let entry = connections.enter(&stream, from, Instant::now());
        (client, entry.unwrap())
    }

    #[test]
    fn the_longest_idle_goes_first_then_the_slowest_and_nobody_else() {
        let (connections, began) = (Connections::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let host = |number| Some(Ipv4Addr::new(10, 0, 0, number).into());
        let all =
            [(1, 1), (2, 1), (1, 2), (2, 2)].map(|(host, port)| entered(&connections, host, port));
        let [slow, steady, slower, idle] = [0, 1, 2, 3].map(|index| &all[index].1);
        slow.gets_on(at(10));
        slower.gets_on(at(5));
        steady.gets_on(at(5));
        steady.gets_on(at(100));
        idle.gets_on(at(5));
        idle.waits(at(124));
        let make_room = |host, second| connections.make_room(host, SLOW, at(second));
        assert!(!make_room(host(3), 1000), "it has none");
        assert!(make_room(None, 200) && idle.gave_way());
        assert!(!make_room(host(2), 219), "it got on 119 s ago");
        assert!(make_room(None, 200) && slower.gave_way() && !slow.gave_way());
        assert!(make_room(host(1), 200) && slow.gave_way());
        assert!(!make_room(None, 219) && !steady.gave_way());
        // What has given way stays so.
        slow.gets_on(at(219));
        assert!(slow.gave_way());
        assert!(make_room(None, 220) && steady.gave_way());
        assert!(!make_room(None, 10_000));
        assert_eq!(connections.count(), 4);
    }
}
