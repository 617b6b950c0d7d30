//! Servers and paths that would keep a machine waiting for ever.

use super::*;

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
    let floor = Floor {
        bytes: 500_000,
        ..Floor::default()
    };
    let error = world.run(move |stack| async move {
        let url = Url::parse(URL).unwrap();
        let (connections, team) = (Connections::new(), Assistants::none());
        let mut pages = Pages::default();
        let got = get(&stack, &connections, &team, &Hosts, &url, floor, &mut pages).await;
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
