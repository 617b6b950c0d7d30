//! Our client of iperf3's protocol against Debian's iperf3, in a network namespace of their own.
//!
//! ```text
//!   iperf3 -s ── tap0 (10.78.0.1, fe80::1) ── TapNic ── Engine (10.78.0.2, a link-local address)
//! ```

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

#[allow(dead_code, reason = "its disorder is for the tests of TCP")]
mod tap;

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tap::TapNic;
use wireboot_iperf::{Error, Limit, PORT, Test, Watch, run};
use wireboot_namespace::{inside, sh};
use wireboot_net::{Engine, Ipv4Cidr, Ipv4Config, Memory, Region};
use wireboot_report::Throughput;
use wireboot_report::throughput::{Direction, Transport};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
/// Far more than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn wire() -> TapNic {
    let nic = TapNic::new("tap0");
    sh(
        "ip link set lo up; ip link set tap0 addrgenmode none; ip link set tap0 mtu 1500 up
        ip address add 10.78.0.1/24 dev tap0; ip address add fe80::1/64 dev tap0 nodad",
    );
    nic
}

/// One test, of which the server says in JSON what it saw.
struct Server(Child);

impl Server {
    fn start(more: &[&str]) -> Self {
        let mut command = Command::new("iperf3");
        command.args(["--server", "--json", "--one-off"]).args(more);
        let child = command.stdout(Stdio::piped()).spawn();
        let server = Self(child.expect("iperf3 (Debian package iperf3)"));
        let until = Instant::now() + PATIENCE;
        while !sh("cat /proc/net/tcp6").contains(&format!("{PORT:04X} 0000")) {
            assert!(Instant::now() < until, "iperf3 does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn said(mut self) -> Value {
        let mut output = self.0.stdout.take().unwrap();
        let value = serde_json::from_reader(&mut output).unwrap();
        self.0.wait().unwrap();
        value
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(nic: TapNic, test: Test) -> (TapNic, Result<Throughput, Error>) {
    let mut engine = Engine::new(nic, [3; 32]);
    let stack = engine.stack();
    stack.configure(&Ipv4Config {
        address: Ipv4Cidr::new(Ipv4Addr::new(10, 78, 0, 2), 24),
        router: None,
        routes: Vec::new(),
        mtu: None,
    });
    stack.ipv6_up();
    let result = Rc::new(RefCell::new(None));
    let place = result.clone();
    let began = Instant::now();
    let now =
        |began: Instant| wireboot_net::Instant::from_micros(began.elapsed().as_micros() as i64);
    // Duplicate address detection takes a second.
    while test.server.is_ipv6() && began.elapsed() < Duration::from_millis(1500) {
        engine.poll(now(began)).unwrap();
    }
    engine.spawn(async move {
        let memory = Region::new(Memory::from(vec![0; 8 << 20]));
        *place.borrow_mut() = Some(run(&stack, &test, &memory, &Watch::default()).await);
    });
    while result.borrow().is_none() {
        assert!(began.elapsed() < PATIENCE, "the test does not end");
        if !engine.poll(now(began)).unwrap() {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    // The last words leave.
    for _ in 0..100 {
        engine.poll(now(began)).unwrap();
    }
    (engine.into_nic(), result.take().unwrap())
}

fn test(server: IpAddr) -> Test {
    Test {
        limit: Limit::Seconds(3),
        ..Test::new(SocketAddr::new(server, PORT))
    }
}

/// Both ends say the same of what the receiver got, within 1 %.
fn agree(ours: &Throughput, theirs: &Value) {
    let number = |path: &str| theirs.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let near = |one: f64, other: f64, what: &str| {
        assert!(
            (one - other).abs() <= one.max(other) * 0.01,
            "{what}: {one}, {other} of\n{ours:#?}\n{theirs:#}"
        );
    };
    let sum = |sends: bool, received: bool| {
        let streams = ours.streams.iter().filter(|one| one.sends == sends);
        let bytes = streams.map(|one| {
            if received {
                one.received_bytes
            } else {
                one.sent_bytes
            }
        });
        bytes.sum::<u64>() as f64
    };
    // Of datagrams, a host that is busy loses some, and says so.
    let lost = |sends: bool| {
        let streams = ours.streams.iter().filter(|one| one.sends == sends);
        let datagrams = streams.filter_map(|one| one.datagrams.as_ref());
        let lost: u64 = datagrams.map(|one| one.lost).sum();
        (lost * u64::from(ours.message_bytes)) as f64
    };
    if ours.direction != Direction::Receive {
        near(
            sum(true, false),
            number("/end/sum_received/bytes") + lost(true),
            "what we sent",
        );
        near(
            sum(true, true),
            number("/end/sum_received/bytes"),
            "what we are told of it",
        );
        assert!(number("/end/sum_received/bytes") > 1e5);
    }
    let key = match ours.direction {
        Direction::Both => "/end/sum_sent_bidir_reverse/bytes",
        _ => "/end/sum_sent/bytes",
    };
    if ours.direction != Direction::Send {
        near(
            sum(false, false) + lost(false),
            number(key),
            "what it says it sent",
        );
        assert!(sum(false, true) > 1e5);
    }
}

fn tried(nic: TapNic, test: Test) -> TapNic {
    let server = Server::start(&[]);
    let (nic, ours) = client(nic, test.clone());
    let ours = ours.unwrap_or_else(|error| panic!("{test:?}: {error}"));
    let theirs = server.said();
    println!(
        "{test:?}: {:.0} Mbit/s, {} retransmissions",
        ours.bits_per_second() / 1e6,
        ours.streams[0].retransmissions.unwrap_or(0)
    );
    agree(&ours, &theirs);
    nic
}

/// How many are tried.
fn streams(server: IpAddr) -> &'static [u32] {
    if server.is_ipv4() { &[1, 4] } else { &[3] }
}

/// Both versions of IP, all directions, and several numbers of streams.
fn both_ends_count_the_same(of: impl Fn(Test) -> Test) {
    let mut nic = wire();
    for server in [V4, V6] {
        for direction in [Direction::Send, Direction::Receive, Direction::Both] {
            for &parallel in streams(server) {
                nic = tried(
                    nic,
                    of(Test {
                        direction,
                        parallel,
                        ..test(server)
                    }),
                );
            }
        }
    }
}

#[test]
fn tcp_both_ends_count_the_same() {
    if inside("tcp_both_ends_count_the_same") {
        both_ends_count_the_same(|test| test);
    }
}

#[test]
fn udp_both_ends_count_the_same() {
    if inside("udp_both_ends_count_the_same") {
        both_ends_count_the_same(|test| Test {
            transport: Transport::Udp,
            bandwidth: Some(20_000_000),
            ..test
        });
    }
}
