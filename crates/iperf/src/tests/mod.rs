//! The client on a simulated wire in simulated time.

mod server;

use crate::{Error, Limit, PORT, Test, Watch, run};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use proptest::prelude::*;
use server::{ADDRESS, Fault, Server};
use std::vec;
use std::vec::Vec;
use wireboot_net::{Engine, Instant, Ipv4Cidr, Ipv4Config, Memory, Region};
use wireboot_nic::sim::{self, LinkConfig, NicConfig};
use wireboot_report::Throughput;
use wireboot_report::throughput::{Direction, Transport};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// In which every test has ended, in microseconds.
const LONGEST: i64 = 90_000_000;

struct Case {
    test: Test,
    fault: Fault,
    listens: bool,
    wire: LinkConfig,
    seed: u64,
}

struct Outcome {
    result: Result<Throughput, Error>,
    server: Server,
    micros: i64,
}

impl Case {
    fn new(test: Test) -> Self {
        Self {
            test,
            fault: Fault::None,
            listens: true,
            wire: LinkConfig::default(),
            seed: 1,
        }
    }

    fn faulty(fault: Fault) -> Self {
        Self {
            fault,
            ..Self::new(test())
        }
    }

    fn run(&self) -> Outcome {
        let (mut near, far) = sim::link(self.wire, self.wire, self.seed);
        near.configure(NicConfig::new([2, 0, 0, 0, 0, 0x0a]));
        let clock = near.clock();
        let mut server = Server::new(far, self.fault.clone(), self.listens);
        let mut client = Engine::new(near, [3; 32]);
        let stack = client.stack();
        stack.configure(&Ipv4Config {
            address: Ipv4Cidr::new(CLIENT, 24),
            router: None,
            routes: Vec::new(),
            mtu: None,
        });
        let result = Rc::new(RefCell::new(None));
        let (place, test) = (result.clone(), self.test.clone());
        client.spawn(async move {
            let memory = Region::new(Memory::from(vec![0; 1 << 20]));
            let watch = Watch::default();
            watch.set_busy_percent(33.0);
            let result = run(&stack, &test, &memory, &watch).await;
            assert!(!watch.is_running());
            *place.borrow_mut() = Some(result);
        });
        let mut idle = 0;
        let mut rest = 100;
        while rest > 0 {
            assert!(clock.now() < LONGEST, "the test does not end");
            let now = clock.now();
            let busy = client.poll(Instant::from_micros(now)).unwrap() | server.poll(now);
            idle = if busy { 0 } else { idle + 1 };
            clock.advance(match idle {
                0 => 10,
                1..1000 => 100,
                _ => 10_000,
            });
            rest -= i32::from(result.borrow().is_some());
        }
        Outcome {
            result: result.take().unwrap(),
            server,
            micros: clock.now(),
        }
    }

    fn error(&self) -> Error {
        match self.run().result {
            Err(error) => error,
            Ok(report) => panic!("{:?}: {report:?}", self.fault),
        }
    }
}

/// Two seconds of 20 Mbit/s.
fn test() -> Test {
    Test {
        limit: Limit::Seconds(2),
        length: Some(1400),
        bandwidth: Some(20_000_000),
        ..Test::new((ADDRESS, PORT).into())
    }
}

fn near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= one.max(other) / 50
}

#[test]
fn each_direction_of_either_transport_is_measured() {
    for transport in [Transport::Tcp, Transport::Udp] {
        for direction in [Direction::Send, Direction::Receive, Direction::Both] {
            for parallel in [1, 3] {
                let case = Case::new(Test {
                    transport,
                    direction,
                    parallel,
                    ..test()
                });
                let outcome = case.run();
                let report = outcome.result.unwrap();
                let told = outcome.server.results.unwrap();
                let both = u32::from(direction == Direction::Both) + 1;
                assert_eq!(report.streams.len() as u32, parallel * both);
                assert!((1.99..2.1).contains(&report.took_s), "{report:?}");
                for stream in &report.streams {
                    assert!(
                        near(stream.sent_bytes, stream.received_bytes),
                        "{transport:?} {direction:?}: {stream:?}"
                    );
                    let ours = told.of(stream.id).unwrap();
                    let bytes = if stream.sends {
                        stream.sent_bytes
                    } else {
                        stream.received_bytes
                    };
                    assert_eq!(ours.bytes, bytes);
                    if stream.sends {
                        // What was allowed, but for what is under way.
                        assert!(near(bytes, 5_000_000), "{stream:?}");
                        assert_eq!((stream.received_s, stream.sent_s), (1.5, report.took_s));
                    } else {
                        assert!(bytes > 1_000_000, "{stream:?}");
                    }
                    match (&stream.datagrams, transport) {
                        (None, Transport::Tcp) => {
                            let again = if stream.sends { 0 } else { 5 };
                            assert_eq!(stream.retransmissions, Some(again));
                        }
                        (Some(datagrams), Transport::Udp) => {
                            assert_eq!(datagrams.lost, 0, "{datagrams:?}");
                            assert!(near(datagrams.sent, bytes / 1400));
                            assert!(near(datagrams.received, datagrams.sent));
                            assert!(stream.sends == (datagrams.jitter_ms == 250.0));
                        }
                        other => panic!("{other:?}"),
                    }
                }
                let all: u64 = report.intervals.iter().flat_map(|one| &one.bytes).sum();
                let ours: u64 = told.streams.iter().map(|one| one.bytes).sum();
                assert_eq!(all, ours);
                assert_eq!(report.intervals.len(), 2);
                assert_eq!(report.server_busy_percent, Some(12.5));
                assert_eq!(told.cpu_util_total, 33.0);
            }
        }
    }
}

#[test]
fn so_many_bytes_end_a_test_too() {
    for transport in [Transport::Tcp, Transport::Udp] {
        for direction in [Direction::Send, Direction::Receive] {
            let outcome = Case::new(Test {
                transport,
                direction,
                limit: Limit::Bytes(1_400_000),
                ..test()
            })
            .run();
            let report = outcome.result.unwrap();
            assert!(report.received_bytes() >= 1_400_000, "{report:?}");
            assert!(report.received_bytes() < 1_600_000, "{report:?}");
            assert_eq!(
                (report.asked_s, report.asked_bytes),
                (None, Some(1_400_000))
            );
            assert_eq!(outcome.server.parameters["num"], 1_400_000);
        }
    }
}

#[test]
fn a_server_that_complains_is_quoted() {
    for at in [0, 1, 2, 3] {
        let error = Case::faulty(Fault::Says(at, &[255])).error();
        assert!(matches!(error, Error::Busy), "{at}: {error}");
        let error = Case::faulty(Fault::Says(at, &[254, 0, 0, 0, 7, 0, 0, 0, 9])).error();
        let quoted = matches!(error, Error::Server { code: 7, errno: 9 });
        assert!(quoted, "{at}: {error}");
    }
    // While data moves.
    let error = Case::faulty(Fault::Says(3, &[2, 11])).error();
    assert!(matches!(error, Error::Terminated), "{error}");
    let error = Case::faulty(Fault::Says(3, &[2, 77])).error();
    let odd = matches!(error, Error::State { state: 77, .. });
    assert!(odd, "{error}");
}

#[test]
fn a_server_that_closes_or_falls_silent_is_not_waited_for() {
    for at in 0..6 {
        let error = Case::faulty(Fault::Closes(at)).error();
        assert!(matches!(error, Error::Closed(_)), "{at}: {error}");
        let outcome = Case::faulty(Fault::Silent(at)).run();
        let error = outcome.result.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Control(..) | Error::Stalled(_) | Error::Stream(_)
            ),
            "{at}: {error}"
        );
        assert!(outcome.micros < 20_000_000, "{at}: {} us", outcome.micros);
    }
}

/// Datagrams have no connection that would end.
#[test]
fn datagrams_that_do_not_come_are_not_waited_for() {
    let case = Case {
        fault: Fault::Silent(4),
        ..Case::new(Test {
            transport: Transport::Udp,
            direction: Direction::Receive,
            limit: Limit::Seconds(60),
            ..test()
        })
    };
    let outcome = case.run();
    let error = outcome.result.unwrap_err();
    assert!(matches!(error, Error::Stalled(10)), "{error}");
    assert!(outcome.micros < 20_000_000, "{} us", outcome.micros);
}

#[test]
fn a_server_that_is_not_there() {
    let case = Case {
        listens: false,
        ..Case::new(test())
    };
    let error = case.error();
    assert!(matches!(error, Error::Connect(..)), "{error}");
    let case = Case {
        fault: Fault::NoDatagrams,
        ..Case::new(Test {
            transport: Transport::Udp,
            ..test()
        })
    };
    let error = case.error();
    assert!(matches!(error, Error::NoDatagrams(PORT)), "{error}");
}

#[test]
fn results_that_are_none_are_refused() {
    let error = Case::faulty(Fault::Results(&[255; 4])).error();
    assert!(matches!(error, Error::TooLong(u32::MAX)), "{error}");
    for lie in [
        &b"\0\0\0\x02{}"[..],
        b"\0\0\0\x01[",
        b"\0\0\0\0",
        b"\0\0\0\x5a{\"cpu_util_total\":0,\"cpu_util_user\":0,\"cpu_util_system\":0,\"sender_has_retransmits\":0,\"streams\":[]}",
    ] {
        let error = Case::faulty(Fault::Results(lie)).error();
        assert!(
            matches!(error, Error::Results(_) | Error::Control(..)),
            "{error}"
        );
    }
}

#[test]
fn sizes_that_the_path_does_not_take_are_refused() {
    let refused = |test: Test| matches!(Case::new(test).error(), Error::Size(_));
    let udp = Test {
        transport: Transport::Udp,
        ..test()
    };
    assert!(refused(Test {
        length: Some(15),
        ..udp.clone()
    }));
    assert!(refused(Test {
        length: Some(1473),
        ..udp.clone()
    }));
    assert!(refused(Test {
        mss: Some(500),
        ..test()
    }));
    let whole = Case::new(Test {
        length: None,
        ..udp
    });
    let report = whole.run().result.unwrap();
    assert_eq!(report.message_bytes, 1472);
    let outcome = Case::new(Test {
        mss: Some(1000),
        ..test()
    })
    .run();
    assert_eq!(outcome.server.parameters["MSS"], 1000);
    assert!(outcome.result.is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// A bad wire makes a test slow; it ends well, or with a reason.
    #[test]
    fn losses_are_counted(seed in any::<u64>(), loss in 0.0..0.03, reorder in 0.0..0.05, duplicate in 0.0..0.03, udp in any::<bool>(), reverse in any::<bool>()) {
        let mut case = Case::new(Test {
            transport: if udp { Transport::Udp } else { Transport::Tcp },
            direction: if reverse { Direction::Receive } else { Direction::Send },
            ..test()
        });
        case.seed = seed;
        case.wire = LinkConfig { loss, reorder, duplicate, ..LinkConfig::default() };
        match case.run().result {
            Ok(report) => {
                let stream = report.streams.first().unwrap();
                prop_assert!(stream.sent_bytes > 0);
                if let Some(datagrams) = &stream.datagrams {
                    prop_assert!(datagrams.received <= datagrams.sent + datagrams.sent / 10 + 10);
                }
            }
            // The wire lost a word that is not said again.
            Err(Error::NoDatagrams(_)) => prop_assert!(udp),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
