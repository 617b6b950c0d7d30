//! Files over several connections.

use super::*;
use crate::http::ranges::LARGE;

/// 25 ms there and back.
const FAR: LinkConfig = LinkConfig {
    latency_micros: 12_500,
    bits_per_second: 1_000_000_000,
    queue_frames: 1000,
    loss: 0.0,
    reorder: 0.0,
    reorder_micros: 0,
    duplicate: 0.0,
    corrupt: 0.0,
};

/// First and last byte asked for by `Range: bytes=N-M`, or to the end of the file.
fn asked(request: &Request, total: usize) -> Option<(usize, usize)> {
    let range = request.header("Range")?.strip_prefix("bytes=")?;
    let (from, last) = range.split_once('-')?;
    let last = if last.is_empty() {
        total - 1
    } else {
        last.parse().ok()?
    };
    Some((from.parse().ok()?, last))
}

/// A server that sends ranges and says so.
pub(super) fn ranges(file: &[u8], tag: &str, request: &Request) -> Reply {
    let total = file.len();
    let range = asked(request, total).filter(|_| request.header("If-Range") == Some(tag));
    let (status, from, last, content) = match range {
        Some((from, last)) => {
            let content = format!("Content-Range: bytes {from}-{last}/{total}\n");
            ("206 Partial Content", from, last, content)
        }
        None => ("200 OK", 0, total - 1, "".to_string()),
    };
    let length = last + 1 - from;
    let head = format!(
        "HTTP/1.1 {status}\nETag: {tag}\nAccept-Ranges: bytes\n{content}Content-Length: {length}\n\n"
    );
    reply(&head, &file[from..=last], Then::Listen)
}

/// The range that is asked for, in a body that has more: chunks, or some bytes before.
pub(super) fn with_more(file: &[u8], request: &Request, in_chunks: bool) -> Reply {
    let total = file.len();
    let (from, last) = asked(request, total).unwrap();
    let range = &file[from..=last];
    let (framing, body) = if in_chunks {
        let framing = "Transfer-Encoding: chunked".to_string();
        (framing, chunked(range, 10_000))
    } else {
        let body = [&b"a word before"[..], range].concat();
        (format!("Content-Length: {}", body.len()), body)
    };
    let head = format!(
        "HTTP/1.1 206 Partial Content\nETag: \"v\"\nAccept-Ranges: bytes\n\
         Content-Range: bytes {from}-{last}/{total}\n{framing}\n\n"
    );
    reply(&head, &body, Then::Listen)
}

pub(super) fn far() -> Wire {
    Wire {
        link: FAR,
        congestion: true,
        routed: true,
        ..Wire::default()
    }
}

/// Seconds that a file takes on a path that loses one packet in a hundred.
fn lossy(accept: bool) -> f64 {
    let file = content(6_000_000, 31);
    let served = file.clone();
    let wire = Wire {
        link: LinkConfig { loss: 0.01, ..FAR },
        ..far()
    };
    let mut world = World::new(wire, move |request| {
        let mut reply = ranges(&served, "\"v\"", request);
        if !accept {
            let at = reply.bytes.windows(6).position(|w| w == b"Accept");
            reply.bytes[at.unwrap()] = b'X';
        }
        reply
    });
    assert!(world.get(URL).bytes() == file);
    let connections = world.requests.borrow().iter().map(|r| r.connection).max();
    assert_eq!(connections.unwrap() > 0, accept);
    world.seconds()
}

#[test]
fn loss_on_a_long_path_costs_eight_connections_little() {
    let (one, eight) = (lossy(false), lossy(true));
    std::println!("{one:.1} s on one connection, {eight:.1} s on eight");
    assert!(one > 4.0 * eight, "{one} s and {eight} s");
}

#[test]
fn near_or_small_or_weak_is_not_split() {
    let file = content(5_000_000, 32);
    for (link, routed, len, tag) in [
        (LinkConfig::default(), true, file.len(), "\"v\""),
        (FAR, true, LARGE as usize - 1, "\"v\""),
        (FAR, true, file.len(), "W/\"v\""),
        // On the link: what makes the round trip long is no distance.
        (FAR, false, file.len(), "\"v\""),
    ] {
        let file = file[..len].to_vec();
        let served = file.clone();
        let wire = Wire {
            link,
            routed,
            ..Wire::default()
        };
        let mut world = World::new(wire, move |request| ranges(&served, tag, request));
        assert!(world.get(URL).bytes() == file);
        assert_eq!(world.requests.borrow().len(), 1);
    }
}

/// Somebody else's download fills the queue of a server that is near, so that all new connections see a long round trip.
#[test]
fn a_queue_is_no_distance() {
    const CROWD: &str = "http://10.0.0.2:8080/crowd";
    let (file, crowd) = (content(4_300_000, 49), content(4_000_000, 51));
    for met_before in [true, false] {
        let served = [file.clone(), crowd.clone()];
        let wire = Wire {
            link: LinkConfig {
                bits_per_second: 8_000_000,
                ..LinkConfig::default()
            },
            routed: true,
            ..Wire::default()
        };
        let mut world = World::new(wire, move |request| match request.target() {
            "/crowd" => ok(&served[1]),
            "/small" => ok(b"small"),
            _ => ranges(&served[0], "\"v\"", request),
        });
        if met_before {
            assert_eq!(world.get("http://10.0.0.2/small").bytes(), b"small");
            // Its connection is not kept for so long.
            world.wait(5_000_000);
        }
        let connections = Rc::clone(&world.connections);
        let fetched = world.run(move |stack| async move {
            // What the crowd knows of the server, it does not tell.
            let others = Connections::new();
            let fetch = async |url: &str, connections: &Connections| {
                let (url, team) = (Url::parse(url).unwrap(), Workers::none());
                let (limits, mut pages) = (Limits::default(), Pages::default());
                get(&stack, connections, &team, &Hosts, &url, limits, &mut pages).await
            };
            let mut crowd = pin!(fetch(CROWD, &others));
            let mut file = pin!(async {
                stack.sleep(Duration::from_millis(500)).await;
                fetch(URL, &connections).await
            });
            let mut crowd_is_there = false;
            poll_fn(|context| {
                if !crowd_is_there {
                    crowd_is_there = crowd.as_mut().poll(context).is_ready();
                }
                file.as_mut().poll(context)
            })
            .await
        });
        assert!(testing::content(&fetched.unwrap().memory, file.len()) == file);
        let requests = world.requests.borrow();
        let of_file = requests.iter().filter(|one| one.target() == "/file");
        // A server that was never met without its queue is taken to be distant.
        assert_eq!(of_file.count() == 1, met_before);
    }
}

#[test]
fn a_broken_connection_has_only_its_own_range_resumed() {
    let file = content(6_000_000, 33);
    let served = file.clone();
    let mut world = World::new(far(), move |request| {
        let whole = ranges(&served, "\"v\"", request);
        match request.number {
            3 => cut(whole, 200_000, Then::Reset),
            _ => whole,
        }
    });
    let outcome = world.get(URL);
    assert!(outcome.bytes() == file);
    let stats = outcome.result.unwrap().stats;
    let requests = world.requests.borrow();
    let parts: Vec<_> = requests[1..]
        .iter()
        .map(|request| asked(request, file.len()).unwrap())
        .collect();
    let broken = parts[2];
    // One request goes on within the range of the broken one, to its end; all others are disjoint.
    let resumed: Vec<_> = parts
        .iter()
        .filter(|part| part.0 > broken.0 && part.1 == broken.1)
        .collect();
    assert_eq!(resumed.len(), 1, "{parts:?}");
    assert!(resumed[0].0 - broken.0 > 100_000);
    let asked: usize = parts.iter().map(|part| part.1 + 1 - part.0).sum();
    assert!(asked - (resumed[0].1 + 1 - resumed[0].0) < file.len());
    assert_eq!((stats.resumed, stats.restarted), (1, 0));
    assert_eq!(stats.requests as usize, requests.len());
}

#[test]
fn the_first_connection_breaks() {
    let file = content(6_000_000, 34);
    let served = file.clone();
    let mut world = World::new(far(), move |request| {
        let whole = ranges(&served, "\"v\"", request);
        match request.number {
            0 => cut(whole, 300_000, Then::Reset),
            _ => whole,
        }
    });
    let outcome = world.get(URL);
    assert!(outcome.bytes() == file);
    assert_eq!(outcome.result.unwrap().stats.restarted, 0);
}

/// A server may send less than the rest (RFC 9110, section 14.2), and that in chunks, whose lines are none of the file's bytes (RFC 9112,
/// section 7.1).
#[test]
fn the_first_connection_takes_no_more_than_a_response_brings() {
    const MEBI: usize = 1 << 20;
    let file = content(6_000_000, 56);
    let slow = Wire {
        link: LinkConfig {
            bits_per_second: 20_000_000,
            ..FAR
        },
        ..far()
    };
    for (wire, most, in_chunks) in [
        (far(), usize::MAX, true),
        (far(), 100_000, true),
        (far(), 100_000, false),
        (slow, MEBI, false),
    ] {
        let served = file.clone();
        let mut world = World::new(wire, move |request| {
            let whole = ranges(&served, "\"v\"", request);
            // Helpers say where their ranges end.
            let Some(from) = range(request) else {
                return match request.number {
                    0 => cut(whole, 300_000, Then::Reset),
                    _ => whole,
                };
            };
            let total = served.len();
            let end = from.saturating_add(most).min(total);
            let mut body = served[from..end].to_vec();
            let framing = if in_chunks {
                body = chunked(&body, 10_000);
                "Transfer-Encoding: chunked".to_string()
            } else {
                format!("Content-Length: {}", end - from)
            };
            // Bytes of no file, such as those of a response that nobody asked for.
            body.extend([0xee; 5000]);
            let head = format!(
                "HTTP/1.1 206 Partial Content\nETag: \"v\"\nAccept-Ranges: bytes\n\
                 Content-Range: bytes {from}-{}/{total}\n{framing}\n\n",
                end - 1
            );
            reply(&head, &body, Then::Listen)
        });
        let outcome = world.get(URL);
        assert!(outcome.bytes() == file, "{most}, {in_chunks}");
        assert_eq!(outcome.result.unwrap().stats.restarted, 0);
        let requests = world.requests.borrow();
        assert!(requests.iter().any(|one| range(one).is_some()));
    }
}

/// The first connection finds the file elsewhere when it asks for its rest, or a redirect in a circle.
#[test]
fn a_redirect_of_the_rest_is_followed_and_ends() {
    let file = content(6_000_000, 57);
    for is_there in [true, false] {
        let served = file.clone();
        let mut world = World::new(far(), move |request| {
            let whole = ranges(&served, "\"v\"", request);
            let by_helper = request.header("Range").is_some() && range(request).is_none();
            match request.target() {
                _ if request.number == 0 => cut(whole, 300_000, Then::Reset),
                "/file" if by_helper => whole,
                "/file2" if is_there => whole,
                _ => redirect(302, "/file2"),
            }
        });
        let outcome = world.get(URL);
        assert!(world.requests.borrow().len() < 100);
        assert!(world.seconds() < 10.0, "{} s", world.seconds());
        if is_there {
            assert!(outcome.bytes() == file);
            assert_eq!(outcome.result.unwrap().stats.redirects, 1);
        } else {
            let problem = &outcome.error().problem;
            assert!(matches!(problem, Problem::RedirectLoop { .. }), "{problem}");
        }
    }
}

#[test]
fn memory_in_which_nothing_was_committed_is_used_again() {
    let file = content(6_000_000, 39);
    let served = file.clone();
    // The first connection ends behind the head, when helpers are at work.
    let mut world = World::new(far(), move |request| {
        let whole = ranges(&served, "\"v\"", request);
        match request.number {
            0 => {
                let head = whole.bytes.len() - served.len();
                cut(whole, head, Then::Reset)
            }
            _ => whole,
        }
    });
    let outcome = world.get(URL);
    assert!(outcome.bytes() == file);
    assert!(world.requests.borrow().len() > 8, "it was split");
    assert_eq!(outcome.pages.asked, [file.len() as u64]);
}

#[test]
fn a_server_restarts_while_eight_connections_run() {
    let file = content(6_000_000, 38);
    let served = file.clone();
    // Longer than a helper tries: all pieces are given up, the second of them first, and the first connection receives them one
    // by one.
    let mut world = World::new(far(), move |request| {
        let whole = ranges(&served, "\"v\"", request);
        match request.number {
            2 => cut(whole, 100_000, Then::Reset),
            3 => cut(whole, 200_000, Then::Restart(3_000_000)),
            _ => whole,
        }
    });
    let outcome = world.get(URL);
    assert!(outcome.bytes() == file);
    assert_eq!(outcome.pages.committed.load(Ordering::Relaxed), file.len());
    assert_eq!(outcome.result.unwrap().stats.restarted, 0);
    assert!(world.seconds() < 10.0, "{} s", world.seconds());
}

#[test]
fn a_server_that_does_not_keep_its_word_about_ranges() {
    let file = content(5_000_000, 35);
    for fault in 0..6 {
        let served = file.clone();
        let mut world = World::new(far(), move |request| {
            if request.number == 0 {
                return ranges(&served, "\"v\"", request);
            }
            match fault {
                // The whole file, another version, another size, more than the range, or no more connections.
                0 => ok(&served),
                1 => ranges(&served, "\"w\"", request),
                2 => {
                    let longer = [&served[..], b"!"].concat();
                    ranges(&longer, "\"v\"", request)
                }
                3 | 4 => with_more(&served, request, fault == 3),
                _ => reply(
                    "HTTP/1.1 503 Busy\nContent-Length: 0\n\n",
                    b"",
                    Then::Listen,
                ),
            }
        });
        // The first connection gets back what the helpers had taken, and goes on as if nothing had been.
        let outcome = world.get(URL);
        assert!(outcome.bytes() == file, "{fault}");
        let stats = outcome.result.unwrap().stats;
        assert_eq!((stats.resumed, stats.restarted), (0, 0));
        assert_eq!(world.requests.borrow().len(), 8);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// Whatever happens to which connection: one version of the file, or an error.
    #[test]
    fn one_version_or_an_error(
        faults in prop::collection::vec((0..12, 0usize..600_000), 3..20),
        loss in prop_oneof![Just(0.0), 0.0..0.01],
        seed in any::<u64>(),
    ) {
        let files = [content(4_300_000, 36), content(4_300_000, 37)];
        let served = files.clone();
        let version = Cell::new(0);
        let wire = Wire { link: LinkConfig { loss, ..FAR }, seed, routed: true, ..Wire::default() };
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
        let outcome = world.get(URL);
        match &outcome.result {
            Ok(_) => prop_assert!(files.contains(&outcome.bytes())),
            // The server never keeps still.
            Err(error) => prop_assert!(!matches!(error.problem, Problem::Silent { .. }), "{error}"),
        }
    }
}
