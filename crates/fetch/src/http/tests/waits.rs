//! Servers and paths that would keep a machine waiting for ever.

use super::*;
use crate::pace::Floor;
use crate::resolve::Unresolved;
use core::net::IpAddr;

/// A body byte, or another one, each 3 s.
const DRIP: i64 = 3_000_000;

/// A reply of which the body drips.
fn dripping(head: &str, body: &[u8]) -> Reply {
    let mut reply = reply(head, body, Then::Listen);
    reply.drip = Some((reply.bytes.len() - body.len(), DRIP));
    reply
}

#[test]
fn a_body_byte_each_three_seconds_is_too_slow() {
    let mut chunks = b"8000\r\n".to_vec();
    chunks.extend([7; 0x8000]);
    for (head, body) in [
        (
            "HTTP/1.1 200 OK\nContent-Length: 100000\n\n",
            vec![7; 100_000],
        ),
        ("HTTP/1.0 200 OK\n\n", vec![7; 100_000]),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", chunks),
        // The size of a chunk, with an extension.
        (
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n",
            b"5;abcdefghijklmnopqrstuvwxyz=abcdefg\r\n".to_vec(),
        ),
    ] {
        let mut world = always(dripping(head, &body));
        let error = world.get(URL).error().to_string();
        assert!(
            error.contains("too slow: less than 65536 bytes in 30 s came"),
            "{error}"
        );
        assert!(
            error.starts_with("http://10.0.0.2/file from 10.0.0.2:80:"),
            "{error}"
        );
        // Two responses of 30 s.
        assert_eq!(world.requests.borrow().len(), 2);
        assert!(
            (60.0..61.0).contains(&world.seconds()),
            "{} s",
            world.seconds()
        );
    }
}

#[test]
fn a_body_above_the_floor_goes_on() {
    // A few bytes each millisecond.
    let body = vec![7; 200_000];
    let wire = Wire {
        piece: 2,
        ..Wire::default()
    };
    let chunks = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n";
    for whole in [
        ok(&body),
        reply(chunks, &chunked(&body, 1000), Then::Listen),
    ] {
        let mut world = World::new(wire, move |_| whole.clone());
        assert_eq!(world.get(URL).bytes(), body);
        assert!(world.seconds() > 31.0, "{} s", world.seconds());
        assert_eq!(world.requests.borrow().len(), 1);
    }
}

/// However much comes: what the settings ask for counts.
#[test]
fn a_body_below_a_high_floor_is_too_slow() {
    let body = vec![7; 1_000_000];
    let wire = Wire {
        piece: 4,
        ..Wire::default()
    };
    let served = body.clone();
    let mut world = World::new(wire, move |request| serve(&served, "\"v\"", request));
    let limits = Limits {
        floor: Floor {
            bytes: 500_000,
            ..Floor::default()
        },
        ..Limits::default()
    };
    let error = world.run(move |stack| async move {
        let url = Url::parse(URL).unwrap();
        let (connections, team) = (Connections::new(), Workers::none());
        let mut pages = Pages::default();
        let got = get(
            &stack,
            &connections,
            &team,
            &Hosts,
            &url,
            limits,
            &mut pages,
        )
        .await;
        let received = pages.last_progress.0;
        assert!(received > 100_000, "{received}");
        got.unwrap_err().to_string()
    });
    assert!(
        error.contains("too slow: less than 500000 bytes in 30 s came"),
        "{error}"
    );
    assert_eq!(world.requests.borrow().len(), 2);
    assert!(
        (60.0..61.0).contains(&world.seconds()),
        "{} s",
        world.seconds()
    );
}

/// Such as one that has no room for more yet.
#[test]
fn what_the_receiver_takes_its_time_for_is_not_too_slow() {
    struct Unhurried(Stack, Pages);
    impl Destination for Unhurried {
        async fn memory(
            &mut self,
            bytes: u64,
            previous: Option<(Memory, u64)>,
        ) -> Result<Memory, DestinationError> {
            self.0.sleep(Duration::from_secs(35)).await;
            self.1.memory(bytes, previous).await
        }
        fn progress(&mut self, received: u64, total: Option<u64>) {
            self.1.progress(received, total);
        }
    }
    let file = content(2_000_000, 58);
    // Nearly all of the file in any 30 s.
    let limits = Limits {
        floor: Floor {
            bytes: 1_900_000,
            ..Floor::default()
        },
        ..Limits::default()
    };
    // Where its size is not known, memory is asked for twice.
    let unknown = reply("HTTP/1.0 200 OK\n\n", &file, Then::Close);
    for (whole, seconds) in [(ok(&file), 35.0), (unknown, 70.0)] {
        let mut world = always(whole);
        let got = world.run(move |stack| async move {
            let url = Url::parse(URL).unwrap();
            let (connections, team) = (Connections::new(), Workers::none());
            let mut receiver = Unhurried(stack.clone(), Pages::default());
            get(
                &stack,
                &connections,
                &team,
                &Hosts,
                &url,
                limits,
                &mut receiver,
            )
            .await
        });
        assert!(testing::content(&got.unwrap().memory, file.len()) == file);
        assert_eq!(world.requests.borrow().len(), 1);
        assert!(world.seconds() > seconds, "{} s", world.seconds());
    }
}

/// Two responses that fall below the floor end it only where less than the floor's bytes came between.
#[test]
fn slow_spells_far_apart_do_not_end_a_download() {
    let file = content(1_000_000, 59);
    for (fast, requests) in [(300_000, 3), (1000, 2)] {
        let served = file.clone();
        let mut world = World::new(Wire::default(), move |request| {
            let mut reply = serve(&served, "\"v\"", request);
            reply.drip = match request.number {
                0 => Some((300_000, DRIP)),
                1 => Some((fast, DRIP)),
                _ => None,
            };
            reply
        });
        let outcome = world.get(URL);
        if requests == 3 {
            assert!(outcome.bytes() == file);
        } else {
            let problem = &outcome.error().problem;
            assert!(matches!(problem, Problem::Slow { .. }), "{problem}");
        }
        assert_eq!(world.requests.borrow().len(), requests);
        // Two responses of 30 s, and what they brought before.
        assert!(
            (60.0..62.0).contains(&world.seconds()),
            "{} s",
            world.seconds()
        );
    }
}

#[test]
fn a_head_byte_each_three_seconds_is_too_slow() {
    let mut slow = ok(b"file");
    slow.drip = Some((0, DRIP));
    let mut world = always(slow);
    let error = world.get(URL).error().to_string();
    assert!(error.contains("too slow"), "{error}");
    assert!(
        (60.0..61.0).contains(&world.seconds()),
        "{} s",
        world.seconds()
    );
}

#[test]
fn the_body_of_a_redirect_is_not_waited_for() {
    let mut world = World::new(Wire::default(), |request| match request.target() {
        "/file" => dripping(
            "HTTP/1.1 301 Moved\nLocation: /there\nContent-Length: 1000\n\n",
            &[7; 1000],
        ),
        _ => ok(b"there"),
    });
    assert_eq!(world.get(URL).bytes(), b"there");
    assert!(world.seconds() < 2.0, "{} s", world.seconds());
}

#[test]
fn a_helper_that_hardly_gets_on_leaves_its_piece_to_others() {
    let file = content(6_000_000, 41);
    let served = file.clone();
    let mut first = true;
    let mut world = World::new(ranges::far(), move |request| {
        let mut reply = ranges::ranges(&served, "\"v\"", request);
        if request.header("Range").is_some() && core::mem::take(&mut first) {
            reply.drip = Some((1000, DRIP));
        }
        reply
    });
    assert!(world.get(URL).bytes() == file);
    assert!(
        (30.0..33.0).contains(&world.seconds()),
        "{} s",
        world.seconds()
    );
}

#[test]
fn a_path_that_swallows_big_packets_is_asked_for_small_ones() {
    let file = content(100_000, 42);
    // Nothing comes; or only the ends of what the server sends at a time, behind gaps.
    for piece in [usize::MAX, 2000] {
        let served = file.clone();
        let wire = Wire {
            longest: 14 + 1280,
            piece,
            ..Wire::default()
        };
        let mut world = World::new(wire, move |request| serve(&served, "\"v\"", request));
        let outcome = world.get(URL);
        assert!(outcome.bytes() == file);
        assert_eq!(outcome.result.unwrap().stats.connections, 2);
        assert!(
            (4.0..5.0).contains(&world.seconds()),
            "{} s",
            world.seconds()
        );
        // The next file loses no time.
        world.wait(5_000_000);
        let before = world.seconds();
        assert!(world.get(URL).bytes() == file);
        assert!(world.seconds() - before < 1.0);
    }
}

#[test]
fn silence_is_suspicious_on_a_new_connection_and_for_large_packets_alone() {
    let file = content(200_000, 43);
    // The second time, small packets were asked for already.
    for (bytes, seconds) in [(60_000, 4 + 10), (70_000, 10 + 10)] {
        let served = file.clone();
        let mut world = World::new(Wire::default(), move |request| {
            let reply = serve(&served, "\"v\"", request);
            match request.number {
                0 | 1 => cut(reply, bytes, Then::Hang),
                _ => reply,
            }
        });
        assert!(world.get(URL).bytes() == file);
        let seconds = f64::from(seconds);
        // And a quarter and half of a second between.
        assert!(
            (seconds..seconds + 1.5).contains(&world.seconds()),
            "{} s",
            world.seconds()
        );
    }
}

#[test]
fn a_helper_whose_connections_break_gives_up() {
    let file = content(6_000_000, 50);
    let served = file.clone();
    let mut world = World::new(ranges::far(), move |request| {
        let reply = ranges::ranges(&served, "\"v\"", request);
        match range(request) {
            None if request.number > 0 => cut(reply, 0, Then::Reset),
            _ => reply,
        }
    });
    assert!(world.get(URL).bytes() == file);
    assert!(world.seconds() < 5.0, "{} s", world.seconds());
}

#[test]
fn a_partial_response_that_ends_early_is_not_the_file() {
    let file = content(1000, 44);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| match request.number {
        0 => cut(serve(&served, "\"v\"", request), 80 + 300, Then::Close),
        1 => {
            let from = range(request).unwrap();
            let head = format!(
                "HTTP/1.1 206 Partial Content\nETag: \"v\"\nContent-Length: 100\n\
                 Content-Range: bytes {from}-{}/1000\n\n",
                from + 99
            );
            reply(&head, &served[from..from + 100], Then::Listen)
        }
        _ => serve(&served, "\"v\"", request),
    });
    let outcome = world.get(URL);
    assert_eq!(outcome.bytes(), file);
    assert_eq!(world.requests.borrow().len(), 3);
}

#[test]
fn a_file_that_begins_anew_each_time_is_given_up() {
    // Each time enough more for the failures to be forgotten.
    let mut world = World::new(Wire::default(), |request| {
        let body = vec![7; 70_000 * (request.number + 1)];
        let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1000000\n";
        reply(head, &body, Then::Close)
    });
    let error = world.get(URL).error().to_string();
    assert!(error.contains("broke off after 630000 bytes"), "{error}");
    assert_eq!(world.requests.borrow().len(), 9);
}

#[test]
fn a_length_that_contradicts_the_range_is_refused_before_a_byte_is_taken() {
    let file = content(1000, 45);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| match request.number {
        0 => cut(serve(&served, "\"v\"", request), 80 + 300, Then::Close),
        1 => {
            let from = range(request).unwrap();
            let head = format!(
                "HTTP/1.1 206 Partial Content\nETag: \"v\"\nContent-Length: 2000\n\
                 Content-Range: bytes {from}-999/1000\n\n"
            );
            reply(&head, &[0xaa; 2000], Then::Listen)
        }
        _ => serve(&served, "\"v\"", request),
    });
    let outcome = world.get(URL);
    assert_eq!(outcome.bytes(), file);
    // Once for each version of what is there; nothing beyond the end of the file was to be received.
    assert!(
        outcome.pages.asked.iter().all(|&bytes| bytes == 1000),
        "{:?}",
        outcome.pages.asked
    );
    assert_eq!(outcome.result.unwrap().stats.restarted, 0);
}

#[test]
fn a_piece_of_another_version_is_refused() {
    let file = content(6_000_000, 46);
    let other = content(6_000_000, 47);
    let served = file.clone();
    let mut world = World::new(ranges::far(), move |request| {
        // A server behind the same address that has another version, and does not look at If-Range.
        let helper = request
            .header("Range")
            .is_some_and(|range| !range.ends_with('-'));
        let mut reply = ranges::ranges(if helper { &other } else { &served }, "\"v\"", request);
        if helper {
            let at = reply.bytes.windows(3).position(|w| w == b"\"v\"").unwrap();
            reply.bytes[at + 1] = b'w';
        }
        reply
    });
    assert!(world.get(URL).bytes() == file);
    let requests = world.requests.borrow();
    assert!(requests.len() > 1, "nobody helped");
}

#[test]
fn a_connection_that_the_server_closes_is_not_used_for_the_next_piece() {
    let file = content(6_000_000, 48);
    let served = file.clone();
    let mut world = World::new(ranges::far(), move |request| {
        let mut reply = ranges::ranges(&served, "\"v\"", request);
        let at = reply.bytes.windows(2).position(|w| w == b"\r\n").unwrap();
        reply.bytes.splice(at..at, *b"\r\nConnection: close");
        reply.then = Then::Close;
        reply
    });
    let outcome = world.get(URL);
    assert!(outcome.bytes() == file);
    let stats = outcome.result.unwrap().stats;
    // No request went to a closed connection.
    assert_eq!(stats.requests as usize, world.requests.borrow().len());
    assert_eq!((stats.requests, stats.resumed), (stats.connections, 0));
    assert!(stats.connections > 1);
}

fn busy(retry_after: &str) -> Reply {
    let head = format!("HTTP/1.1 503 Busy\n{retry_after}Content-Length: 0\n\n");
    reply(&head, b"", Then::Listen)
}

/// So many requests go wrong, and then the file comes.
fn after(failures: usize, failure: Reply) -> World {
    World::new(Wire::default(), move |request| match request.number {
        number if number < failures => failure.clone(),
        _ => ok(b"file"),
    })
}

#[test]
fn a_server_that_does_not_serve_is_waited_for_with_patience() {
    let too_many = "HTTP/1.1 429 Too Many Requests\nContent-Length: 0\n\n";
    for failure in [
        busy("Retry-After: 7\n"),
        busy(""),
        reply(too_many, b"", Then::Close),
        reply("", b"", Then::Hang),
    ] {
        let mut world = after(12, failure.clone());
        assert_eq!(world.get_patiently(URL, 300).bytes(), b"file");
        assert!(world.seconds() > 60.0, "{} s", world.seconds());
        let mut world = after(12, failure);
        let outcome = world.get(URL);
        assert_eq!(outcome.error().attempts, FIRST_ATTEMPTS);
    }
}

/// What answers while the server behind it starts: a forwarder that hangs up, or a gateway that says so (RFC 9110, sections 15.6.3 and
/// 15.6.5).
#[test]
fn a_server_that_something_else_answers_for_is_waited_for_with_patience() {
    let gateway = |status: u16| {
        let head = format!("HTTP/1.1 {status} Gateway\nContent-Length: 0\n\n");
        reply(&head, b"", Then::Listen)
    };
    for failure in [
        reply("", b"", Then::Close),
        reply("", b"", Then::Reset),
        gateway(502),
        gateway(504),
    ] {
        let mut world = after(7, failure);
        assert_eq!(world.get_patiently(URL, 60).bytes(), b"file");
        assert!(world.seconds() > 20.0, "{} s", world.seconds());
    }
}

#[test]
fn patience_ends_with_a_file_that_begins_anew_each_time() {
    let mut world = always(cut(ok(&[7; 1000]), 500, Then::Reset));
    let outcome = world.get_patiently(URL, 300);
    assert!(matches!(outcome.error().problem, Problem::Connection(_)));
    assert_eq!(world.requests.borrow().len(), 9);
}

#[test]
fn an_address_that_takes_connections_and_says_nothing_is_left_for_the_next() {
    let mut silent = None;
    let mut world = World::new(Wire::default(), move |request| {
        // The first one asked.
        if *silent.get_or_insert(request.server) == request.server {
            reply("", b"", Then::Hang)
        } else {
            ok(b"file")
        }
    });
    assert_eq!(world.get("http://both/file").bytes(), b"file");
    assert_eq!(world.requests.borrow().len(), 2);
}

fn unresolved(passing: bool) -> Unresolved {
    Unresolved {
        reason: "no answer".to_string(),
        passing,
    }
}

#[test]
fn a_name_server_that_starts_again_is_waited_for() {
    for (failures, patience) in [(1, 0), (7, 60)] {
        let mut world = always(ok(b"file"));
        let outcome = world.get_by(
            move |number| match number {
                number if number < failures => Err(unresolved(true)),
                _ => Ok(vec![IpAddr::from([10, 0, 0, 2])]),
            },
            "http://boot/file",
            patience,
        );
        assert_eq!(outcome.bytes(), b"file");
    }
    let mut world = always(ok(b"file"));
    let outcome = world.get_by(|_| Err(unresolved(true)), "http://boot/file", 0);
    assert_eq!(outcome.error().attempts, 2);
    // That there is no such name is an answer.
    let mut world = always(ok(b"file"));
    let outcome = world.get_by(|_| Err(unresolved(false)), "http://boot/file", 60);
    assert_eq!(outcome.error().attempts, 1);
}

#[test]
fn a_name_whose_addresses_cannot_be_connected_to_is_resolved_again() {
    let (dead, good) = (IpAddr::from([10, 0, 0, 77]), IpAddr::from([10, 0, 0, 2]));
    let mut world = always(ok(b"file"));
    let outcome = world.get_by(
        move |number| match number {
            0 => Ok(vec![dead]),
            // What is known stays.
            1 => Err(unresolved(true)),
            _ => Ok(vec![dead, good]),
        },
        "http://boot/file",
        0,
    );
    assert_eq!(outcome.bytes(), b"file");
}

#[test]
fn a_server_that_starts_again_is_waited_for_with_patience() {
    let file = content(200_000, 52);
    for patience in [0, 120] {
        let served = file.clone();
        let mut world = World::new(Wire::default(), move |request| {
            let whole = serve(&served, "\"v\"", request);
            match request.number {
                0 => cut(whole, 90_000, Then::Restart(100_000_000)),
                _ => whole,
            }
        });
        let outcome = world.get_patiently(URL, patience);
        if patience == 0 {
            assert!(matches!(outcome.error().problem, Problem::Connect(_)));
            assert_eq!(outcome.error().attempts, RESUME_ATTEMPTS);
        } else {
            assert_eq!(outcome.bytes(), file);
            assert_eq!(world.requests.borrow().len(), 2);
        }
    }
}

#[test]
fn patience_ends() {
    for (url, failure, seconds) in [
        (URL, busy("Retry-After: 7\n"), 60.0..61.0),
        // Nobody listens.
        ("http://10.0.0.2:81/file", ok(b""), 60.0..61.0),
        // The last request has its 10 s, and so has the first.
        (URL, reply("", b"", Then::Hang), 60.0..81.0),
    ] {
        let mut world = always(failure);
        let outcome = world.get_patiently(url, 60);
        assert!(outcome.error().attempts > 1);
        assert!(seconds.contains(&world.seconds()), "{} s", world.seconds());
    }
}

/// A server that serves some of the file between two waits is waited for anew.
#[test]
fn patience_begins_anew_when_the_file_gets_on() {
    let file = content(250_000, 53);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| {
        let rest = serve(&served, "\"v\"", request);
        match request.number {
            0 | 12 => cut(rest, 90_000, Then::Close),
            // More than are asked without patience.
            1..24 => busy(""),
            _ => rest,
        }
    });
    // Each of the two waits takes 55 to 70 s.
    assert_eq!(world.get_patiently(URL, 90).bytes(), file);
    assert!(world.seconds() > 90.0, "{} s", world.seconds());
}

#[test]
fn patience_is_for_servers_that_may_serve_later() {
    for (text, attempts) in [
        ("HTTP/1.1 404 Not Found\nContent-Length: 0\n\n", 1),
        ("HTTP/1.1 500 Oops\nContent-Length: 0\n\n", FIRST_ATTEMPTS),
    ] {
        let mut world = always(reply(text, b"", Then::Listen));
        let outcome = world.get_patiently(URL, 300);
        assert_eq!(outcome.error().attempts, attempts);
        assert!(world.seconds() < 5.0, "{} s", world.seconds());
    }
    let head = "HTTP/1.1 200 OK\nContent-Length: 100000\n\n";
    let mut world = always(dripping(head, &[7; 100_000]));
    let outcome = world.get_patiently(URL, 300);
    assert!(matches!(outcome.error().problem, Problem::Slow { .. }));
    assert!(world.seconds() < 61.0, "{} s", world.seconds());
}

/// What else goes wrong after a long wait is not taken for the last straw.
#[test]
fn failures_that_patience_excuses_do_not_count_with_others() {
    let mut world = World::new(Wire::default(), |request| match request.number {
        0..10 => busy(""),
        10..13 => reply(
            "HTTP/1.1 500 Oops\nContent-Length: 0\n\n",
            b"",
            Then::Listen,
        ),
        13 => busy(""),
        _ => ok(b"file"),
    });
    assert_eq!(world.get_patiently(URL, 300).bytes(), b"file");
}

#[test]
fn machines_that_are_turned_away_together_do_not_come_back_together() {
    let seconds = |seed| {
        let wire = Wire {
            seed,
            ..Wire::default()
        };
        let mut world = World::new(wire, |request| match request.number {
            0 => busy("Retry-After: 20\n"),
            _ => ok(b"file"),
        });
        assert_eq!(world.get(URL).bytes(), b"file");
        world.seconds()
    };
    let all: Vec<f64> = (1..9).map(seconds).collect();
    let first = all.iter().copied().fold(f64::INFINITY, f64::min);
    let last = all.iter().copied().fold(0.0, f64::max);
    assert!(first >= 20.0 && last < 25.1, "{all:?}");
    assert!(last - first > 1.0, "{all:?}");
}
