//! Our TCP against Linux's, in a network namespace of their own, over good wires and bad ones.
//!
//! ```text
//!   sockets of Linux ── tap0 (10.78.0.1, fe80::1) ── TapNic ── fault middleware ── Engine (10.78.0.2, a link-local address)
//! ```

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

mod tap;

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use tap::TapNic;
use wireboot_namespace::{inside, sh};
use wireboot_net::{Engine, Ipv4Cidr, Ipv4Config, NetError, Region, TcpStream};
use wireboot_nic::fault::{FaultConfig, FaultInjector, inject};
use wireboot_nic::middleware::Hooked;

/// For one connection; far more than any takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a transfer: no multiple of a segment, many times a window.
const LENGTH: usize = 8_000_017;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

type Linux = std::net::TcpStream;

#[derive(Clone, Copy, PartialEq)]
enum Wire {
    Good,
    /// Frames are lost, doubled and late in both directions, and damaged on the way to us.
    Bad,
}

/// Who closes first.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Linux,
    Ours,
}

fn content() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    std::iter::repeat_with(|| random.u8(..))
        .take(LENGTH)
        .collect()
}

fn patience() -> wireboot_net::Duration {
    wireboot_net::Duration::from_micros(PATIENCE.as_micros() as u64)
}

/// An engine on a wire to this computer.
struct Station {
    engine: Engine<Hooked<TapNic, FaultInjector>>,
    linux: IpAddr,
    began: Instant,
}

impl Station {
    fn new(linux: IpAddr, wire: Wire) -> Self {
        let nic = TapNic::new("tap0");
        // Linux is told our Ethernet address: nobody can tell a damaged ARP packet from a good one.
        let mac = tap::MAC.map(|byte| format!("{byte:02x}")).join(":");
        sh(&format!(
            "ip link set lo up; ip link set tap0 addrgenmode none; ip link set tap0 mtu 1500 up
             ip address add 10.78.0.1/24 dev tap0; ip address add fe80::1/64 dev tap0 nodad
             ip neighbour add 10.78.0.2 lladdr {mac} dev tap0 nud permanent"
        ));
        let engine = Engine::new(inject(nic, FaultConfig::default(), 2), [3; 32]);
        let stack = engine.stack();
        match linux {
            IpAddr::V4(_) => stack.configure(&Ipv4Config {
                address: Ipv4Cidr::new(Ipv4Addr::new(10, 78, 0, 2), 24),
                router: None,
                routes: Vec::new(),
                mtu: None,
            }),
            IpAddr::V6(_) => stack.ipv6_up(),
        }
        let mut station = Self {
            engine,
            linux,
            began: Instant::now(),
        };
        // For the same reason our side finds Linux on a good wire.
        let hello = station.converse(
            async |mut stream: TcpStream| stream.read(<[u8]>::len).await,
            |mut socket| socket.write_all(b"hello"),
        );
        assert_eq!(hello, Ok(5));
        if wire == Wire::Bad {
            station.engine.nic_mut().with(|nic, faults| {
                nic.disturb();
                faults.configure(FaultConfig {
                    receive_loss: 0.02,
                    transmit_loss: 0.02,
                    receive_corrupt: 0.002,
                    ..FaultConfig::default()
                });
            });
        }
        station
    }

    /// Turns the engine until `ours` and `linux` have ended, and says how `ours` did. `linux` must end well.
    fn run<T: 'static>(
        &mut self,
        ours: impl Future<Output = T> + 'static,
        linux: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> T {
        let result = Rc::new(RefCell::new(None));
        let (slot, thread) = (result.clone(), std::thread::spawn(linux));
        self.engine.spawn(async move {
            let value = ours.await;
            *slot.borrow_mut() = Some(value);
        });
        let until = Instant::now() + PATIENCE;
        while result.borrow().is_none() || !thread.is_finished() {
            assert!(
                Instant::now() < until,
                "we have ended: {}, Linux has: {}; {}",
                result.borrow().is_some(),
                thread.is_finished(),
                sh("cat /proc/net/snmp"),
            );
            let now = self.began.elapsed().as_micros() as i64;
            if !self
                .engine
                .poll(wireboot_net::Instant::from_micros(now))
                .unwrap()
            {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        thread.join().unwrap().unwrap();
        result.take().unwrap()
    }

    /// A connection to a server of Linux's.
    fn converse<T: 'static>(
        &mut self,
        ours: impl AsyncFnOnce(TcpStream) -> T + 'static,
        linux: impl FnOnce(Linux) -> io::Result<()> + Send + 'static,
    ) -> T {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let remote = SocketAddr::new(self.linux, listener.local_addr().unwrap().port());
        let stack = self.engine.stack();
        let ours = async move {
            let mut stream = stack.connect(remote, patience()).await.unwrap();
            stream.set_idle_timeout(patience());
            ours(stream).await
        };
        self.run(ours, move || {
            let (socket, _) = listener.accept()?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            linux(socket)
        })
    }

    fn download(&mut self, first: First) {
        // Where Linux closes first, its end is what ends the reading.
        let room = LENGTH + usize::from(first == First::Linux);
        let region = Region::new(vec![0; room].into());
        let whole = region.clone();
        // The stream comes back, so that it can repeat its last segments until Linux has ended.
        let stream = self.converse(
            async move |mut stream: TcpStream| {
                assert_eq!(stream.read_into(&region, 0).await, Ok(LENGTH));
                stream.close();
                assert_eq!(stream.read(<[u8]>::len).await, Ok(0));
                stream
            },
            move |mut socket| {
                socket.write_all(&content())?;
                if first == First::Linux {
                    socket.shutdown(Shutdown::Write)?;
                }
                assert_eq!(socket.read(&mut [0])?, 0);
                Ok(())
            },
        );
        drop(stream);
        assert!(whole.take().rest(0)[..LENGTH] == content());
    }

    fn upload(&mut self, first: First) {
        let region = Region::new(content().into());
        let stream = self.converse(
            async move |mut stream: TcpStream| {
                if first == First::Linux {
                    // Half closed: we still send.
                    assert_eq!(stream.read(<[u8]>::len).await, Ok(0));
                }
                stream.send_from(&region, 0, LENGTH).await.unwrap();
                stream.close();
                assert_eq!(stream.read(<[u8]>::len).await, Ok(0));
                stream
            },
            move |mut socket| {
                if first == First::Linux {
                    socket.shutdown(Shutdown::Write)?;
                }
                let mut bytes = Vec::new();
                socket.read_to_end(&mut bytes)?;
                assert!(bytes == content());
                Ok(())
            },
        );
        drop(stream);
    }
}

/// A counter of Linux's TCP in this namespace.
fn counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next().unwrap().split_whitespace();
    let mut pairs = names.zip(lines.next().unwrap().split_whitespace());
    let (_, value) = pairs.find(|pair| pair.0 == name).unwrap();
    value.parse().unwrap()
}

/// Transfers in both directions, ended by either side.
fn transfers(linux: IpAddr, wire: Wire) {
    let mut station = Station::new(linux, wire);
    for first in [First::Linux, First::Ours] {
        station.download(first);
        station.upload(first);
    }
    // Nothing of ours has a wrong checksum.
    assert_eq!(counter("InCsumErrors"), 0);
    if wire == Wire::Good {
        assert_eq!(counter("OutRsts"), 0);
    } else {
        // The wire was bad.
        assert!(counter("RetransSegs") > 0);
        let disturbed = station.engine.nic_mut().with(|nic, _| nic.disturbed());
        assert!(disturbed.iter().all(|frames| *frames > 0), "{disturbed:?}");
    }
}

/// Closing this socket resets its connection.
fn reset_by_close(socket: &Linux) {
    let at_once = linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(socket, sockopt::Linger, &at_once).unwrap();
}

/// Connections that one side breaks off, or that nobody takes.
fn endings(linux: IpAddr) {
    let mut station = Station::new(linux, Wire::Good);
    let region = Region::new(vec![0; LENGTH].into());
    let end = station.converse(
        async move |mut stream: TcpStream| {
            let mut at = 0;
            // What came before the reset is told first.
            loop {
                match stream.read_into(&region, at).await {
                    Ok(filled) if filled > 0 => at += filled,
                    end => return end,
                }
            }
        },
        |mut socket| {
            socket.write_all(&content()[..LENGTH / 2])?;
            reset_by_close(&socket);
            Ok(())
        },
    );
    assert_eq!(end, Err(NetError::Reset), "in a download");

    let region = Region::new(content().into());
    let end = station.converse(
        async move |mut stream: TcpStream| stream.send_from(&region, 0, LENGTH).await,
        |mut socket| {
            socket.read_exact(&mut vec![0; LENGTH / 4])?;
            reset_by_close(&socket);
            Ok(())
        },
    );
    assert_eq!(end, Err(NetError::Reset), "in an upload");

    let end = station.converse(
        // The stream is dropped without being closed.
        async |mut stream: TcpStream| stream.read(<[u8]>::len).await,
        |mut socket| {
            socket.write_all(b"some")?;
            let error = socket.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            Ok(())
        },
    );
    assert_eq!(end, Ok(4), "by us");

    let listener = TcpListener::bind("[::]:0").unwrap();
    let closed = SocketAddr::new(linux, listener.local_addr().unwrap().port());
    drop(listener);
    let stack = station.engine.stack();
    let connect = async move { stack.connect(closed, patience()).await.map(drop) };
    assert_eq!(station.run(connect, || Ok(())), Err(NetError::Refused));
}

#[test]
fn transfers_over_ipv4() {
    if inside("transfers_over_ipv4") {
        transfers(V4, Wire::Good);
    }
}

#[test]
fn transfers_over_ipv6() {
    if inside("transfers_over_ipv6") {
        transfers(V6, Wire::Good);
    }
}

#[test]
fn transfers_over_ipv4_on_a_bad_wire() {
    if inside("transfers_over_ipv4_on_a_bad_wire") {
        transfers(V4, Wire::Bad);
    }
}

#[test]
fn transfers_over_ipv6_on_a_bad_wire() {
    if inside("transfers_over_ipv6_on_a_bad_wire") {
        transfers(V6, Wire::Bad);
    }
}

#[test]
fn endings_over_ipv4() {
    if inside("endings_over_ipv4") {
        endings(V4);
    }
}

#[test]
fn endings_over_ipv6() {
    if inside("endings_over_ipv6") {
        endings(V6);
    }
}
