//! Attempts that end as they are told to, on a simulated clock.

use super::*;
use crate::testing::{SECOND, run};
use std::cell::RefCell;
use std::rc::Rc;
use std::vec;
use wireboot_net::NetError;
use wireboot_nic::sim::LinkConfig;

/// When an attempt ends, in microseconds after its start, and whether well.
type AttemptEnd = (u64, bool);

/// Attempts at `ends.len()` servers: the number of the one that wins, when it is known, and when each began, in milliseconds.
fn raced(ends: Vec<AttemptEnd>) -> (Result<usize, NetError>, i64, Vec<(u16, i64)>) {
    let began = Rc::new(RefCell::new(Vec::new()));
    let log = began.clone();
    let (result, micros) = run(
        LinkConfig::default(),
        1,
        &[],
        |_| vec![],
        async move |stack| {
            let servers: Vec<SocketAddr> = (0..ends.len())
                .map(|n| SocketAddr::from(([10, 0, 0, 1], n as u16 + 1)))
                .collect();
            let result = first(&stack, &servers, NetError::Unreachable, |server| {
                let number = server.port() - 1;
                let now = stack.now().total_millis();
                log.borrow_mut().push((number, now));
                let (after, well) = ends[usize::from(number)];
                let stack = stack.clone();
                async move {
                    stack.sleep(Duration::from_micros(after)).await;
                    well.then_some(number).ok_or(NetError::Refused)
                }
            });
            result.await.map(|(server, number)| {
                assert_eq!(server.port(), number + 1);
                usize::from(number)
            })
        },
    );
    (result, micros, began.take())
}

const NEVER: u64 = 300 * SECOND as u64;

#[test]
fn the_first_that_answers_is_taken_and_a_dead_one_costs_a_quarter_of_a_second() {
    let (winner, micros, began) = raced(vec![(1000, true), (0, true)]);
    assert_eq!((winner, began), (Ok(0), vec![(0, 0)]));
    assert!(micros < 10_000, "{micros} us");
    let (winner, micros, began) = raced(vec![(NEVER, true), (1000, true), (0, true)]);
    assert_eq!((winner, began), (Ok(1), vec![(0, 0), (1, 250)]));
    assert!(micros < 260_000, "{micros} us");
    // The first may still win.
    let (winner, micros, began) = raced(vec![(300_000, true), (100_000, true)]);
    assert_eq!((winner, began), (Ok(0), vec![(0, 0), (1, 250)]));
    assert!(micros < 310_000, "{micros} us");
}

#[test]
fn a_failure_begins_the_next_at_once() {
    let (winner, micros, began) = raced(vec![(1000, false), (1000, false), (1000, true)]);
    assert_eq!(winner, Ok(2));
    assert_eq!(began.len(), 3);
    assert!(micros < 10_000, "{micros} us");
    let (winner, micros, _) = raced(vec![(1000, false), (2000, false)]);
    assert_eq!(winner, Err(NetError::Refused));
    assert!(micros < 10_000, "{micros} us");
    // Beside one that still runs, too.
    let (winner, micros, _) = raced(vec![(NEVER, true), (1000, false), (0, true)]);
    assert_eq!(winner, Ok(2));
    assert!(micros < 260_000, "{micros} us");
    // One that still runs is waited for.
    let (winner, _, _) = raced(vec![(400_000, true), (1000, false)]);
    assert_eq!(winner, Ok(0));
    assert_eq!(raced(vec![]).0, Err(NetError::Unreachable));
}

#[test]
fn an_address_is_reached_by_one_of_its_version() {
    let [four, six]: [IpAddr; 2] = ["10.0.0.1", "2001:db8::1"].map(|text| text.parse().unwrap());
    for (v4, v6) in [(false, false), (false, true), (true, false), (true, true)] {
        let versions = Versions { v4, v6 };
        assert_eq!(
            (
                versions.have_version_of(four),
                versions.have_version_of(six)
            ),
            (v4, v6)
        );
    }
}

#[test]
fn versions_take_turns() {
    let address = |text: &str| -> IpAddr { text.parse().unwrap() };
    let [a, b] = ["10.0.0.1", "10.0.0.2"].map(address);
    let [x, y, z] = ["2001:db8::1", "2001:db8::2", "fe80::1"].map(address);
    assert_eq!(by_turns(&[x, y, z, a, b]), [x, a, y, b, z]);
    assert_eq!(by_turns(&[a, b, x, y, z]), [a, x, b, y, z]);
    assert_eq!(by_turns(&[b, a]), [b, a]);
    assert!(by_turns(&[]).is_empty());
}

#[test]
fn an_address_that_the_link_alone_knows_is_none() {
    let task = async |stack: Stack| {
        let nothing = Versions::of(&stack);
        stack.ipv6_up();
        // Until nobody has objected to it.
        stack.sleep(Duration::from_secs(3)).await;
        assert!(stack.link_local().is_some());
        let local = Versions::of(&stack);
        assert!(stack.add_ipv6("2001:db8::5".parse().unwrap()));
        stack.sleep(Duration::from_secs(3)).await;
        (nothing, local, Versions::of(&stack))
    };
    let ((nothing, local, beyond), _) = run(LinkConfig::default(), 1, &[], |_| vec![], task);
    let versions = |v6| Versions { v4: false, v6 };
    assert_eq!(
        (nothing, local, beyond),
        (versions(false), versions(false), versions(true))
    );
}
