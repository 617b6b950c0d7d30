//! Files that several engines receive together.

use super::ranges::{ranges, with_more};
use super::*;
use wireboot_net::Ipv4Addr;
use wireboot_nic::Nic;

fn near(engines: usize) -> Wire {
    Wire {
        engines,
        ..Wire::default()
    }
}

/// A link that loses, mixes and repeats frames.
const ROUGH: LinkConfig = LinkConfig {
    latency_micros: 50,
    bits_per_second: 1_000_000_000,
    queue_frames: 1000,
    loss: 0.005,
    reorder: 0.02,
    reorder_micros: 1000,
    duplicate: 0.005,
    corrupt: 0.001,
};

fn faithful(wire: Wire, file: &[u8]) -> World {
    let served = file.to_vec();
    World::new(wire, move |request| ranges(&served, "\"v\"", request))
}

/// The file's server by both IP versions.
const URLS: [&str; 2] = [URL, "http://six/img"];

/// Downloads and checks what must be right however it went: the bytes, and that all of them were committed in the end.
#[track_caller]
fn whole(world: &mut World, file: &[u8]) -> Outcome {
    whole_by(world, URL, file)
}

#[track_caller]
fn whole_by(world: &mut World, url: &str, file: &[u8]) -> Outcome {
    let outcome = world.get(url);
    assert!(outcome.bytes() == file);
    assert_eq!(outcome.pages.committed.load(Ordering::Relaxed), file.len());
    outcome
}

#[test]
fn each_engine_brings_its_part() {
    let file = content(6_000_000, 41);
    let teams = [(2, false), (3, true), (4, false), (4, true)];
    for ((engines, coalesce), url) in teams
        .into_iter()
        .flat_map(|team| URLS.map(|url| (team, url)))
    {
        let wire = Wire {
            coalesce,
            ..near(engines)
        };
        let mut world = faithful(wire, &file);
        let outcome = whole_by(&mut world, url, &file);
        let stats = outcome.result.unwrap().stats;
        let requests = world.requests.borrow();
        assert_eq!(stats.requests as usize, requests.len());
        assert_eq!(stats.connections as usize, engines);
        assert_eq!((stats.resumed, stats.restarted), (0, 0));
        let mut connections: Vec<_> = requests.iter().map(|r| r.connection).collect();
        connections.sort_unstable();
        connections.dedup();
        assert_eq!(connections.len(), engines, "each keeps its connection");
        // The first that helps has its share of what is left then, from the end.
        let share = requests[1].header("Range").unwrap();
        let share = share
            .strip_prefix("bytes=")
            .unwrap()
            .split_once('-')
            .unwrap();
        let share = (file.len() - share.0.parse::<usize>().unwrap()) * engines;
        let least = file.len() * 4 / 5;
        assert!((least..=file.len()).contains(&share), "{share}");
        for helper in &mut world.workers {
            let counters = helper.worker.as_mut().unwrap().nic_mut().counters();
            assert!(counters.receive_bytes > 500_000, "{counters}");
        }
    }
}

#[test]
fn the_next_file_comes_on_the_same_connections() {
    let file = content(5_000_000, 42);
    for url in URLS {
        let mut world = faithful(near(3), &file);
        whole_by(&mut world, url, &file);
        let stats = whole_by(&mut world, url, &file).result.unwrap().stats;
        // The first connection ends in the middle of a response, those of workers between two.
        assert_eq!(stats.connections, 1);
    }
}

#[test]
fn with_another_address_come_other_connections() {
    let file = content(5_000_000, 56);
    let mut world = faithful(near(3), &file);
    whole(&mut world, &file);
    world.moves(Ipv4Addr::new(10, 0, 0, 3));
    let stats = whole(&mut world, &file).result.unwrap().stats;
    assert_eq!(stats.connections, 3);
    assert!(world.workers.iter().all(|helper| helper.busy > 0));
}

#[test]
fn rough_links_and_cards_that_steer_otherwise_change_no_byte() {
    let file = content(4_500_000, 43);
    for (link, missteered) in [(ROUGH, false), (LinkConfig::default(), true), (ROUGH, true)] {
        for (engines, coalesce) in [(2, true), (4, false), (3, true), (3, false)] {
            let wire = Wire {
                link,
                missteered,
                coalesce,
                seed: engines as u64,
                ..near(engines)
            };
            let mut world = faithful(wire, &file);
            let url = URLS[usize::from(coalesce)];
            let outcome = whole_by(&mut world, url, &file);
            let stats = outcome.result.unwrap().stats;
            if link == LinkConfig::default() {
                // A reset for a segment that was missteered would have broken a connection.
                assert_eq!((stats.resumed, stats.restarted), (0, 0));
            }
            // Each engine counts what it gave to the leader.
            let none = wireboot_net::Forwarded::default();
            for helper in &world.workers {
                let forwarded = helper.worker.as_ref().unwrap().forwarded();
                assert_eq!(forwarded != none, missteered, "{forwarded:?}");
            }
        }
    }
}

#[test]
fn a_distant_server_has_no_more_connections_than_from_one_engine() {
    let file = content(6_000_000, 44);
    let mut world = faithful(
        Wire {
            engines: 3,
            ..super::ranges::far()
        },
        &file,
    );
    let outcome = whole(&mut world, &file);
    assert_eq!(outcome.result.unwrap().stats.connections, 8);
    assert!(world.workers.iter().all(|helper| helper.busy > 0));
}

#[test]
fn a_server_restarts_while_workers_work() {
    let file = content(6_000_000, 45);
    for (number, micros) in [(1, 3_000_000), (2, 100_000)] {
        let served = file.clone();
        let mut world = World::new(near(3), move |request| {
            let reply = ranges(&served, "\"v\"", request);
            if request.number == number {
                cut(reply, 200_000, Then::Restart(micros))
            } else {
                reply
            }
        });
        let outcome = whole(&mut world, &file);
        let stats = outcome.result.unwrap().stats;
        assert_eq!(stats.restarted, 0);
        assert!(stats.resumed > 0);
        assert!(world.seconds() < 10.0, "{} s", world.seconds());
    }
}

#[test]
fn a_server_that_does_not_keep_its_word_about_ranges() {
    let file = content(5_000_000, 46);
    for fault in 0..7 {
        let served = file.clone();
        let mut world = World::new(near(3), move |request| {
            let first = request.number == 0;
            match fault {
                // The whole file, another version, no more connections.
                0 if !first => ok(&served),
                1 if !first => ranges(&served, "\"w\"", request),
                2 if !first => reply(
                    "HTTP/1.1 503 Busy\nContent-Length: 0\n\n",
                    b"",
                    Then::Listen,
                ),
                // No word about ranges, no version.
                3 => ok(&served),
                4 => ranges(&served, "W/\"v\"", request),
                // More than the range.
                5 | 6 if !first => with_more(&served, request, fault == 5),
                _ => ranges(&served, "\"v\"", request),
            }
        });
        let outcome = whole(&mut world, &file);
        let stats = outcome.result.unwrap().stats;
        assert_eq!((stats.resumed, stats.restarted), (0, 0), "{fault}");
        let requests = world.requests.borrow().len();
        let is_split = !matches!(fault, 3 | 4);
        assert_eq!(requests, if is_split { 3 } else { 1 }, "{fault}");
    }
}

#[test]
fn memory_that_cannot_be_lent_is_filled_by_one_engine() {
    struct Vector;
    impl Destination for Vector {
        async fn memory(
            &mut self,
            bytes: u64,
            _: Option<(Memory, u64)>,
        ) -> Result<Memory, DestinationError> {
            Ok(vec![0; bytes as usize].into())
        }
        fn progress(&mut self, _: u64, _: Option<u64>) {}
    }
    let file = content(5_000_000, 47);
    let mut world = faithful(near(3), &file);
    let team = Rc::clone(&world.team);
    let result = world.run(|stack| async move {
        let url = Url::parse(URL).unwrap();
        get(
            &stack,
            &Connections::new(),
            &team,
            &Hosts,
            &url,
            Limits::default(),
            &mut Vector,
        )
        .await
    });
    assert!(result.unwrap().memory.rest(0) == file);
    assert_eq!(world.requests.borrow().len(), 1);
}

#[test]
fn a_worker_that_falls_silent_costs_seconds_and_other_memory() {
    let file = content(6_000_000, 48);
    // From the start, and with a piece half done.
    for silent in [0, 20_000] {
        let mut world = faithful(near(4), &file);
        world.workers[1].silent = silent;
        let outcome = whole(&mut world, &file);
        assert_eq!(outcome.pages.asked, [6_000_000, 6_000_000]);
        let stats = outcome.result.unwrap().stats;
        assert_eq!((stats.resumed, stats.restarted), (1, 0));
        assert!(world.seconds() < 5.0, "{} s", world.seconds());
        // The next file does without it.
        let before = world.seconds();
        let outcome = whole(&mut world, &file);
        assert_eq!(outcome.pages.asked, [6_000_000]);
        assert!(world.seconds() < before + 1.0);
        assert!(world.workers[2].busy > 0);
    }
}

#[test]
fn a_worker_that_goes_gives_back_what_it_has() {
    let file = content(6_000_000, 49);
    // Before it had anything, and with a piece half done.
    for gone in [0, 15_000] {
        let mut world = faithful(near(3), &file);
        world.workers[0].gone = gone;
        for _ in 0..2 {
            let outcome = whole(&mut world, &file);
            assert_eq!(outcome.pages.asked, [6_000_000]);
            assert!(world.seconds() < 1.0, "{} s", world.seconds());
        }
        assert!(world.workers[1].busy > 0);
    }
}

#[test]
fn a_file_given_up_in_the_middle_leaves_nothing_behind() {
    let file = content(6_000_000, 50);
    let mut world = faithful(near(3), &file);
    let team = Rc::clone(&world.team);
    let connections = Rc::clone(&world.connections);
    let received = world.run(|stack| async move {
        let url = Url::parse(URL).unwrap();
        let mut pages = Pages::default();
        {
            let mut get = pin!(get(
                &stack,
                &connections,
                &team,
                &Hosts,
                &url,
                Limits::default(),
                &mut pages
            ));
            let end = stack.now() + wireboot_net::Duration::from_millis(25);
            assert!(!team.busy());
            poll_fn(|context| {
                assert!(get.as_mut().poll(context).is_pending());
                match stack.now() < end {
                    true => Poll::Pending,
                    false => Poll::Ready(()),
                }
            })
            .await;
            assert!(team.busy());
        }
        assert!(!team.busy());
        pages.last_progress.0
    });
    assert!(received > 1_000_000 && received < 6_000_000, "{received}");
    world.wait(10_000);
    for helper in &mut world.workers {
        assert!(helper.busy > 0);
        helper.busy = 0;
    }
    world.wait(100_000);
    assert!(world.workers.iter().all(|helper| helper.busy == 0));
    whole(&mut world, &file);
}

#[test]
fn a_first_connection_that_brings_nothing_starts_anew_beside_workers() {
    let file = content(5_000_000, 55);
    let served = file.clone();
    let mut world = World::new(near(3), move |request| {
        let whole = ranges(&served, "\"v\"", request);
        let head = whole.bytes.len() - served.len().min(whole.bytes.len());
        match request.number {
            0 => cut(whole, head, Then::Reset),
            _ => whole,
        }
    });
    whole(&mut world, &file);
    assert!(world.workers[0].busy > 0);
}

#[test]
fn a_file_that_changes_meanwhile_comes_anew_while_workers_still_write() {
    let files = [content(5_000_000, 51), content(5_100_000, 52)];
    let expected = files[1].clone();
    let mut world = World::new(near(3), move |request| match request.number {
        0 => cut(ranges(&files[0], "\"0\"", request), 400_000, Then::Reset),
        1 | 2 => ranges(&files[0], "\"0\"", request),
        _ => ranges(&files[1], "\"1\"", request),
    });
    let outcome = whole(&mut world, &expected);
    assert_eq!(outcome.result.unwrap().stats.restarted, 1);
    // It comes whole on the first connection: nobody asks for parts of it.
    let requests = world.requests.borrow();
    let rest = requests.last().unwrap().header("Range").unwrap();
    assert!(rest.ends_with('-'), "{rest}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// Whatever happens to which connection and which engine: one version of the file, or an error.
    #[test]
    fn one_version_or_an_error(
        faults in prop::collection::vec((0..14, 0usize..600_000), 3..20),
        engines in 2usize..5,
        missteered in any::<bool>(),
        silent in prop_oneof![Just(i64::MAX), 0i64..60_000],
        gone in prop_oneof![Just(i64::MAX), 0i64..60_000],
        loss in prop_oneof![Just(0.0), 0.0..0.01],
        distant in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let files = [content(4_300_000, 53), content(4_300_000, 54)];
        let served = files.clone();
        let version = Cell::new(0);
        let latency_micros = if distant { 5000 } else { 50 };
        let link = LinkConfig { loss, latency_micros, ..LinkConfig::default() };
        // A silent engine swallows what is missteered to it.
        let missteered = missteered && silent == i64::MAX && gone == i64::MAX;
        let wire = Wire { link, seed, engines, missteered, ..Wire::default() };
        let mut world = World::new(wire, move |request| {
            let (fault, at) = faults[request.number % faults.len()];
            if fault == 0 {
                version.set(1 - version.get());
            }
            let tag = ["\"0\"", "\"1\""][version.get()];
            let file = &served[version.get()];
            match fault {
                1 => cut(ranges(file, tag, request), at, Then::Reset),
                2 => cut(ranges(file, tag, request), at, Then::Close),
                3 => ok(file),
                4 => reply("HTTP/1.1 503 Busy\nContent-Length: 0\n\n", b"", Then::Listen),
                _ => ranges(file, tag, request),
            }
        });
        world.workers[0].silent = silent;
        world.workers[engines - 2].gone = gone;
        let outcome = world.get(URL);
        match &outcome.result {
            Ok(_) => {
                prop_assert!(files.contains(&outcome.bytes()));
                prop_assert_eq!(outcome.pages.committed.load(Ordering::Relaxed), 4_300_000);
            }
            // The server never keeps still.
            Err(error) => prop_assert!(!matches!(error.problem, Problem::Silent { .. }), "{error}"),
        }
    }
}
