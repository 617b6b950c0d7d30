//! The connections that are open, so that idle and slow ones give way when there are too many.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Table>>);

/// The connections by their numbers: one port of a client may have several, each to another address of this machine.
#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<u64, Open>,
    /// A number that none has had.
    next: u64,
}

#[derive(Debug)]
struct Open {
    stream: TcpStream,
    client: SocketAddr,
    state: ConnectionState,
    /// When it came to wait for its client, or when its answer last got on.
    since: Instant,
}

/// What a connection does. Those that give way first are first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionState {
    /// It waits for its client to ask.
    Idle,
    /// Its request is being answered.
    Answered,
    /// It has given way, and ends.
    Closed,
}

impl Connections {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.table().open.len()
    }

    /// How many this host has.
    pub(super) fn of_host(&self, host: IpAddr) -> usize {
        let table = self.table();
        let of_host = table.open.values().filter(|one| one.client.ip() == host);
        of_host.count()
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
            client,
            state: ConnectionState::Idle,
            since: now,
        };
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        table.open.insert(id, open);
        Ok(Entry {
            connections: self.clone(),
            id,
        })
    }

    /// Closes the connection, of this host or of any, that has waited for its client for the longest time, else the one whose answer has not
    /// got on for the longest time, if that is at least `slow`. False when there is none.
    pub(super) fn make_room(&self, host: Option<IpAddr>, slow: Duration, now: Instant) -> bool {
        let mut table = self.table();
        let may_go = |one: &&mut Open| {
            let gives_way = match one.state {
                ConnectionState::Idle => true,
                ConnectionState::Answered => now.saturating_duration_since(one.since) >= slow,
                ConnectionState::Closed => false,
            };
            gives_way && host.is_none_or(|host| one.client.ip() == host)
        };
        let candidates = table.open.values_mut().filter(may_go);
        let Some(longest) = candidates.min_by_key(|one| (one.state, one.since)) else {
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
    id: u64,
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
        if let Some(open) = self.connections.table().open.get_mut(&self.id)
            && open.state != ConnectionState::Closed
        {
            (open.state, open.since) = (state, now);
        }
    }

    /// Whether it was closed to make room.
    pub(super) fn gave_way(&self) -> bool {
        let table = self.connections.table();
        let one = table.open.get(&self.id);
        one.is_some_and(|one| one.state == ConnectionState::Closed)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
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

    #[test]
    fn each_connection_of_a_clients_port_counts_and_gives_way() {
        let connections = Connections::default();
        let (mut client, first) = entered(&connections, 1, 1);
        let (_other, second) = entered(&connections, 1, 1);
        let host = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!((connections.count(), connections.of_host(host)), (2, 2));
        drop(second);
        assert_eq!((connections.count(), connections.of_host(host)), (1, 1));
        assert!(connections.make_room(Some(host), SLOW, Instant::now()));
        assert!(first.gave_way());
        client.set_read_timeout(Some(SLOW)).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "its stream has ended");
        drop(first);
        assert_eq!((connections.count(), connections.of_host(host)), (0, 0));
    }
}
