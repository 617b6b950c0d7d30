//! Many clients at once: sockets and clocks for [`Client`]s, on a few threads.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{setsockopt, sockopt};
use wireboot_wire::tftp;

use super::client::{Client, ReadState, Wanted};
use wireboot_lab::network::{SERVER, Station};

/// Datagrams taken from one client's socket before the next client's turn.
const TURN: usize = 64;
/// Between looks at the clients' clocks.
const TICK: Duration = Duration::from_millis(50);
/// Memory that a packet of Ethernet's size holds in a receive buffer, in bytes.
const PACKET_MEMORY: usize = 4096;

/// How it went for one client.
#[derive(Clone, Debug)]
pub(super) struct ClientOutcome {
    /// Seconds from the crowd's start to the last byte; or why there are none.
    pub seconds: Result<f64, String>,
    /// Blocks that came again.
    pub doubled: u64,
    /// Blocks that were lost on the way.
    pub gaps: u64,
    /// Times that nothing came.
    pub timeouts: u64,
}

/// Lets `count` clients at the station begin together and read until all are done or `limit` has passed. `progress` counts the bytes.
///
/// # Errors
/// When sockets cannot be had. What goes wrong for a client is in its outcome.
pub(super) fn run(
    station: &Station,
    wanted: &Wanted,
    count: usize,
    limit: Duration,
    progress: &AtomicU64,
) -> Result<Vec<ClientOutcome>> {
    // Half of the processors are for the server.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (processors / 2).clamp(1, 8).min(count.max(1));
    let began = Instant::now();
    let share = |index: usize| count / threads + usize::from(index < count % threads);
    let parts: Vec<Result<Vec<ClientOutcome>>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|index| {
                scope.spawn(move || {
                    station.enter()?;
                    group(wanted, share(index), began, limit, progress)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            let panicked = |_| Err(anyhow!("a thread of clients panicked"));
            thread.join().unwrap_or_else(panicked)
        };
        running.into_iter().map(join).collect()
    });
    let mut outcomes = Vec::new();
    for part in parts {
        outcomes.extend(part?);
    }
    Ok(outcomes)
}

fn group(
    wanted: &Wanted,
    count: usize,
    began: Instant,
    limit: Duration,
    progress: &AtomicU64,
) -> Result<Vec<ClientOutcome>> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("waiting for many sockets")?;
    let mut seats = Vec::new();
    for index in 0..count {
        let seat = Seat::new(wanted.clone()).context("a client's socket")?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
        epoll.add(&seat.socket, event)?;
        seats.push(seat);
    }
    for seat in &mut seats {
        seat.send(&seat.client.request());
    }
    let mut events = [EpollEvent::empty(); 64];
    let mut next_tick = Instant::now() + TICK;
    loop {
        let ready = match epoll.wait(&mut events, TICK.as_millis() as u8) {
            Ok(ready) => ready,
            Err(nix::Error::EINTR) => 0,
            Err(errno) => return Err(errno).context("waiting for packets"),
        };
        for event in events.iter().take(ready) {
            if let Some(seat) = seats.get_mut(event.data() as usize) {
                seat.receive();
            }
        }
        let now = Instant::now();
        if now >= next_tick {
            next_tick = now + TICK;
            for seat in &mut seats {
                if let Some(packet) = seat.client.overdue(now) {
                    seat.send(&packet);
                }
                let bytes = seat.client.bytes();
                progress.fetch_add(bytes - seat.counted, Ordering::Relaxed);
                seat.counted = bytes;
            }
        }
        let reading = |seat: &Seat| *seat.client.state() == ReadState::Reading;
        if now.saturating_duration_since(began) >= limit || !seats.iter().any(reading) {
            break;
        }
    }
    Ok(seats.iter().map(|seat| seat.outcome(began)).collect())
}

/// A client and its socket.
struct Seat {
    client: Client,
    socket: UdpSocket,
    /// Where the server answers from, once it has.
    server: SocketAddr,
    /// Bytes that the progress knows of.
    counted: u64,
}

impl Seat {
    fn new(wanted: Wanted) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_nonblocking(true)?;
        // A window must fit, or the client itself would lose packets.
        let buffer = usize::from(wanted.window) * PACKET_MEMORY;
        if setsockopt(&socket, sockopt::RcvBufForce, &buffer).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &buffer)?;
        }
        Ok(Self {
            client: Client::new(wanted, Instant::now()),
            socket,
            server: SocketAddrV4::new(SERVER, tftp::PORT).into(),
            counted: 0,
        })
    }

    /// Takes what has come, and answers.
    fn receive(&mut self) {
        let mut datagram = [0; 2048];
        let now = Instant::now();
        for _ in 0..TURN {
            let Ok((length, from)) = self.socket.recv_from(&mut datagram) else {
                return;
            };
            if !self.client.is_answered() && from.ip() == self.server.ip() {
                self.server = from;
            }
            if from != self.server {
                continue;
            }
            let datagram = datagram.get(..length).unwrap_or_default();
            if let Some(packet) = self.client.receive(datagram, now) {
                self.send(&packet);
            }
        }
    }

    /// A packet that cannot be sent is lost, as any on its way might be.
    fn send(&self, packet: &[u8]) {
        if let Err(error) = self.socket.send_to(packet, self.server) {
            log::debug!("socket {}: {error}", self.socket.as_raw_fd());
        }
    }

    fn outcome(&self, began: Instant) -> ClientOutcome {
        ClientOutcome {
            seconds: match self.client.state() {
                ReadState::Complete(at) => Ok(at.saturating_duration_since(began).as_secs_f64()),
                ReadState::Failed(reason) => Err(reason.clone()),
                ReadState::Reading if !self.client.is_answered() => Err("no answer in time".into()),
                ReadState::Reading => Err("not finished in time".into()),
            },
            doubled: self.client.doubled,
            gaps: self.client.gaps,
            timeouts: self.client.timeouts,
        }
    }
}
