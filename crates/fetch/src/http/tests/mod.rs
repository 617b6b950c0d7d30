//! Downloads over a simulated wire, from a server that does what servers do and should not.

mod exchange;
mod ranges;
mod team;
mod threads;
mod waits;
mod world;

use core::future::{Future, poll_fn};
use core::pin::pin;
use std::cell::Cell;
use std::format;
use std::rc::Rc;
use std::string::{String, ToString};
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use wireboot_net::{Duration, Memory, NetError, Stack};
use wireboot_nic::sim::LinkConfig;

use super::body::{Body, FIRST_GROWTH};
use super::download::{FIRST_ATTEMPTS, RESUME_ATTEMPTS};
use super::head::{Head, HeadReader};
use super::request::request_head;
use super::team::Workers;
use super::*;
use crate::destination::{Destination, DestinationError};
use crate::pace::Limits;
use crate::testing;
use crate::url::Url;
use world::{Hosts, Outcome, Pages, Reply, Request, Then, Wire, World, reply};

const URL: &str = "http://10.0.0.2/file";
const OLD: &str =
    "Last-Modified: Sat, 01 Jan 2022 00:00:00 GMT\nDate: Sun, 02 Jan 2022 00:00:00 GMT\n";

/// Bytes that differ at each place and for each seed.
fn content(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

fn ok(body: &[u8]) -> Reply {
    let length = body.len();
    reply(
        &format!("HTTP/1.1 200 OK\nContent-Length: {length}\n\n"),
        body,
        Then::Listen,
    )
}

fn always(reply: Reply) -> World {
    World::new(Wire::default(), move |_| reply.clone())
}

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in body.chunks(size) {
        bytes.extend(format!("{:x};name=\"value\"\r\n", chunk.len()).bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\nTrailer: value\r\n\r\n");
    bytes
}

/// `Range: bytes=N-` of a request.
fn range(request: &Request) -> Option<usize> {
    let range = request.header("Range")?;
    range
        .strip_prefix("bytes=")?
        .strip_suffix('-')?
        .parse()
        .ok()
}

/// A server that follows the RFCs, with a version of the file named by `tag`.
fn serve(file: &[u8], tag: &str, request: &Request) -> Reply {
    let from = range(request).filter(|_| request.header("If-Range") == Some(tag));
    let total = file.len();
    match from {
        Some(from) if from >= total => reply(
            &format!(
                "HTTP/1.1 416 Range Not Satisfiable\nContent-Range: bytes */{total}\nContent-Length: 0\n\n"
            ),
            b"",
            Then::Listen,
        ),
        Some(from) => reply(
            &format!(
                "HTTP/1.1 206 Partial Content\nETag: {tag}\nContent-Length: {}\n\
                 Content-Range: bytes {from}-{}/{total}\n\n",
                total - from,
                total - 1
            ),
            &file[from..],
            Then::Listen,
        ),
        None => reply(
            &format!("HTTP/1.1 200 OK\nETag: {tag}\nContent-Length: {total}\n\n"),
            file,
            Then::Listen,
        ),
    }
}

/// Cuts a reply after so many bytes.
fn cut(mut reply: Reply, after: usize, then: Then) -> Reply {
    reply.bytes.truncate(after);
    reply.then = then;
    reply
}

#[test]
fn a_file_with_a_length() {
    let file = content(300_000, 1);
    let mut world = always(ok(&file));
    let outcome = world.get("http://10.0.0.2/a%20b?c#d");
    assert_eq!(outcome.bytes(), file);
    assert_eq!(outcome.pages.asked, [300_000]);
    assert_eq!(outcome.pages.last_progress, (300_000, Some(300_000)));
    assert_eq!(outcome.pages.committed.load(Ordering::Relaxed), 300_000);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        world.requests.borrow()[0].text,
        format!(
            "GET /a%20b?c HTTP/1.1\r\nHost: 10.0.0.2\r\nUser-Agent: wireboot/{version}\r\nAccept: */*\r\n\
             Accept-Encoding: identity"
        )
    );
}

#[test]
fn names_and_ports() {
    let mut world = always(ok(b"x"));
    assert_eq!(world.get("http://boot:8080/file").bytes(), b"x");
    assert_eq!(world.requests.borrow()[0].header("Host"), Some("boot:8080"));
    assert_eq!(world.get("http://two/file").bytes(), b"x");
    let error = world.get("http://none/file").error().to_string();
    assert!(error.contains("http://none/file") && error.contains("no address"));
    let error = world.get("http://other/file").error().to_string();
    assert!(error.contains("other") && error.contains("no such name"));
}

#[test]
fn over_ipv6_the_file_is_the_same() {
    let file = content(300_000, 5);
    for url in [
        "http://[fe80::b]/file",
        "http://[fe80::b%25eth0]/file",
        "http://six/file",
    ] {
        let mut world = always(ok(&file));
        assert_eq!(world.get(url).bytes(), file);
        let requests = world.requests.borrow();
        let host = if url.contains("six") {
            "six"
        } else {
            "[fe80::b]"
        };
        assert_eq!(requests[0].header("Host"), Some(host));
        assert!(world.seconds() < 0.1, "{} s", world.seconds());
    }
}

#[test]
fn a_version_that_is_dead_costs_a_quarter_of_a_second_at_most() {
    for url in ["http://dead-six/file", "http://dead-four/file"] {
        let mut world = always(ok(b"file"));
        assert_eq!(world.get(url).bytes(), b"file");
        assert!(world.seconds() < 0.3, "{url}: {} s", world.seconds());
    }
}

#[test]
fn a_head_in_pieces_of_one_byte() {
    let wire = Wire {
        piece: 1,
        ..Wire::default()
    };
    let mut world = World::new(wire, |_| ok(b"hello"));
    assert_eq!(world.get(URL).bytes(), b"hello");
}

#[test]
fn an_empty_file() {
    let outcome = always(ok(b"")).get(URL);
    assert_eq!(outcome.bytes(), b"");
    assert!(outcome.pages.asked.is_empty());
}

#[test]
fn interim_responses_are_passed_over() {
    let mut reply = ok(b"file");
    reply
        .bytes
        .splice(0..0, *b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    assert_eq!(always(reply).get(URL).bytes(), b"file");
    let endless = "HTTP/1.1 100 Continue\n\n".repeat(20);
    let mut world = always(self::reply(&endless, b"", Then::Listen));
    assert!(matches!(
        world.get(URL).error().problem,
        Problem::Head(HeadError::Interim)
    ));
}

#[test]
fn chunks() {
    for size in [1, 7, 4096, 1_000_000] {
        let file = content(if size == 1 { 3000 } else { 200_000 }, 2);
        let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n";
        let mut world = always(reply(head, &chunked(&file, size), Then::Listen));
        assert_eq!(world.get(URL).bytes(), file, "chunks of {size}");
        assert_eq!(world.get(URL).bytes(), file);
        assert_eq!(world.requests.borrow()[1].connection, 0, "connection kept");
    }
}

#[test]
fn a_chunk_size_is_not_believed() {
    let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nffffffffffffff00\n";
    let outcome = always(reply(head, b"some", Then::Close)).get(URL);
    assert!(matches!(
        outcome.error().problem,
        Problem::BrokeOff { received: 4 }
    ));
    // Once for each attempt.
    assert!(
        outcome
            .pages
            .asked
            .iter()
            .all(|&bytes| bytes == FIRST_GROWTH)
    );
    assert!(!outcome.pages.asked.is_empty());
}

#[test]
fn until_close_memory_grows_with_what_comes() {
    let file = content(3_500_000, 3);
    let outcome = always(reply("HTTP/1.0 200 OK\n\n", &file, Then::Close)).get(URL);
    assert_eq!(outcome.bytes(), file);
    assert_eq!(outcome.pages.asked, [1 << 20, 2 << 20, 4 << 20]);
    assert_eq!(outcome.pages.last_progress, (3_500_000, None));
}

#[test]
fn until_close_broken_off_is_no_file() {
    let outcome = always(reply("HTTP/1.0 200 OK\n\n", b"part", Then::Reset)).get(URL);
    assert!(matches!(outcome.error().problem, Problem::Connection(_)));
}

#[test]
fn more_announced_than_there_is_memory() {
    let head = "HTTP/1.1 200 OK\nContent-Length: 18446744073709551615\n\n";
    let mut world = always(reply(head, b"x", Then::Listen));
    let outcome = world.get(URL);
    assert_eq!(outcome.error().attempts, 1);
    assert!(matches!(
        outcome.error().problem,
        Problem::Destination(DestinationError::NoMemory { bytes: u64::MAX })
    ));
}

#[test]
fn memory_smaller_than_asked_for_is_not_overrun() {
    struct Stingy;
    impl Destination for Stingy {
        async fn memory(
            &mut self,
            bytes: u64,
            _: Option<(Memory, u64)>,
        ) -> Result<Memory, DestinationError> {
            Ok(vec![0; bytes as usize - 1].into())
        }
        fn progress(&mut self, _: u64, _: Option<u64>) {}
    }
    let mut world = always(ok(b"file"));
    let result = world.run(|stack| async move {
        let url = Url::parse(URL).unwrap();
        get(
            &stack,
            &Connections::new(),
            &Workers::none(),
            &Hosts,
            &url,
            Limits::default(),
            &mut Stingy,
        )
        .await
    });
    assert!(matches!(
        result.unwrap_err().problem,
        Problem::Destination(DestinationError::NoMemory { bytes: 4 })
    ));
}

fn redirect(status: u16, location: &str) -> Reply {
    reply(
        &format!("HTTP/1.1 {status} Moved\nLocation: {location}\nContent-Length: 5\n\n"),
        b"moved",
        Then::Listen,
    )
}

#[test]
fn redirects_absolute_and_relative() {
    let mut world = World::new(Wire::default(), |request| match request.target() {
        "/dir/a" => redirect(301, "b?x"),
        "/dir/b?x" => redirect(302, "/c"),
        "/c" => redirect(303, "http://mirror/d"),
        "/d" => redirect(307, "//10.0.0.2:8080/e"),
        "/e" => redirect(308, "./f g"),
        "/f%20g" => ok(b"there"),
        target => panic!("{target}"),
    });
    let outcome = world.get("http://boot/dir/a");
    assert_eq!(outcome.bytes(), b"there");
    let fetched = outcome.result.unwrap();
    assert_eq!(fetched.url.as_str(), "http://10.0.0.2:8080/f%20g");
    assert_eq!(fetched.stats.redirects, 5);
    // One to port 80 for the names and the address, one to port 8080.
    assert_eq!(fetched.stats.connections, 2);
    let requests = world.requests.borrow();
    assert_eq!(requests[3].header("Host"), Some("mirror"));
}

#[test]
fn redirects_end() {
    let count = |limit: u32| {
        World::new(Wire::default(), move |request| {
            let number: u32 = request.target()[1..].parse().unwrap_or(0);
            if number == limit {
                ok(b"there")
            } else {
                redirect(302, &format!("/{}", number + 1))
            }
        })
        .get(URL)
    };
    assert_eq!(count(10).bytes(), b"there");
    assert!(matches!(
        count(11).error().problem,
        Problem::RedirectChain { limit: 10, .. }
    ));
    let mut world = World::new(Wire::default(), |request| match request.target() {
        "/file" => redirect(302, "/other"),
        _ => redirect(302, "/file"),
    });
    let outcome = world.get(URL);
    let error = outcome.error();
    assert!(matches!(error.problem, Problem::RedirectLoop { .. }));
    assert!(error.to_string().contains("circle"));
    assert_eq!(error.attempts, 0);
}

#[test]
fn redirects_that_cannot_be_followed() {
    let problem = |reply: Reply| always(reply).get(URL).result.unwrap_err();
    let secure = problem(redirect(301, "https://h/x"));
    assert!(secure.to_string().contains("https is not supported"));
    assert!(matches!(
        problem(redirect(301, "tftp://h/x")).problem,
        Problem::RedirectScheme { .. }
    ));
    assert!(matches!(
        problem(reply(
            "HTTP/1.1 301 Moved\nContent-Length: 0\n\n",
            b"",
            Then::Listen
        ))
        .problem,
        Problem::RedirectNowhere
    ));
}

#[test]
fn a_connection_is_used_again() {
    let mut world = World::new(Wire::default(), |request| ok(request.target().as_bytes()));
    assert_eq!(world.get("http://boot/1").bytes(), b"/1");
    assert_eq!(world.get("http://mirror/2").bytes(), b"/2");
    let connections = |world: &World| {
        let requests = world.requests.borrow();
        requests.iter().map(|r| r.connection).collect::<Vec<_>>()
    };
    assert_eq!(connections(&world), [0, 0]);
    // A kept connection grows old.
    world.wait(5_000_000);
    assert_eq!(world.get("http://boot/3").bytes(), b"/3");
    assert_eq!(connections(&world), [0, 0, 1]);
}

#[test]
fn a_connection_that_must_not_be_used_again() {
    let close = "HTTP/1.1 200 OK\nConnection: close\nContent-Length: 4\n\n";
    let mut world = always(reply(close, b"file", Then::Listen));
    for number in 0..2 {
        assert_eq!(world.get(URL).bytes(), b"file");
        assert_eq!(world.requests.borrow()[number].connection, number);
    }
    // The body of this redirect is still coming when the next request is due.
    let wire = Wire {
        piece: 1,
        ..Wire::default()
    };
    let mut world = World::new(wire, |request| match request.number {
        0 => reply(
            "HTTP/1.1 302 Found\nLocation: /x\nTransfer-Encoding: chunked\n\n",
            &chunked(b"moved", 1),
            Then::Listen,
        ),
        _ => ok(b"file"),
    });
    let outcome = world.get(URL);
    assert_eq!(outcome.bytes(), b"file");
    assert_eq!(outcome.result.unwrap().stats.requests, 2);
}

#[test]
fn several_files_at_once() {
    let (one, two) = (content(200_000, 14), content(300_000, 15));
    let served = [one.clone(), two.clone()];
    let mut world = World::new(Wire::default(), move |request| match request.target() {
        "/one" => ok(&served[0]),
        _ => ok(&served[1]),
    });
    for _ in 0..2 {
        let connections = Rc::clone(&world.connections);
        let (first, second) = world.run(|stack| async move {
            let fetch = async |url: &str| {
                let url = Url::parse(url).unwrap();
                let mut pages = Pages::default();
                get(
                    &stack,
                    &connections,
                    &Workers::none(),
                    &Hosts,
                    &url,
                    Limits::default(),
                    &mut pages,
                )
                .await
            };
            let (mut first, mut second) = (
                pin!(fetch("http://boot/one")),
                pin!(fetch("http://boot/two")),
            );
            let mut results = (None, None);
            poll_fn(|context| {
                if results.0.is_none()
                    && let Poll::Ready(result) = first.as_mut().poll(context)
                {
                    results.0 = Some(result);
                }
                if results.1.is_none()
                    && let Poll::Ready(result) = second.as_mut().poll(context)
                {
                    results.1 = Some(result);
                }
                match &results {
                    (Some(_), Some(_)) => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            })
            .await;
            (results.0.unwrap().unwrap(), results.1.unwrap().unwrap())
        });
        assert_eq!(testing::content(&first.memory, one.len()), one);
        assert_eq!(testing::content(&second.memory, two.len()), two);
    }
    let requests = world.requests.borrow();
    assert!(requests.iter().all(|request| request.connection < 2));
}

#[test]
fn a_connection_that_the_server_closed_meanwhile() {
    for then in [Then::Close, Then::Reset] {
        let mut world = World::new(Wire::default(), move |_| Reply {
            drip: None,
            then,
            ..ok(b"file")
        });
        assert_eq!(world.get(URL).bytes(), b"file");
        // At once, when the end is still under way, and later.
        assert_eq!(world.get(URL).bytes(), b"file");
        world.wait(100_000);
        assert_eq!(world.get(URL).bytes(), b"file");
    }
}

#[test]
fn a_body_longer_than_announced() {
    let mut world = always(reply(
        "HTTP/1.1 200 OK\nContent-Length: 4\n\n",
        b"fileHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        Then::Listen,
    ));
    for connection in 0..3 {
        assert_eq!(world.get(URL).bytes(), b"file");
        assert_eq!(world.requests.borrow()[connection].connection, connection);
        world.wait(1000);
    }
}

#[test]
fn a_broken_transfer_goes_on() {
    let file = content(200_000, 4);
    for then in [
        Then::Reset,
        Then::Close,
        Then::Hang,
        Then::Restart(3_000_000),
    ] {
        let served = file.clone();
        let mut world = World::new(Wire::default(), move |request| {
            let reply = serve(&served, "\"v1\"", request);
            match request.number {
                0..3 => cut(reply, 50_000, then),
                _ => reply,
            }
        });
        let outcome = world.get(URL);
        assert_eq!(outcome.bytes(), file, "{then:?}");
        assert_eq!(outcome.pages.asked, [200_000]);
        let requests = world.requests.borrow();
        assert_eq!(requests.len(), 4);
        assert_eq!(requests[1].header("If-Range"), Some("\"v1\""));
        assert!(range(&requests[1]) < range(&requests[2]));
        assert_eq!(outcome.result.unwrap().stats.resumed, 3);
        // Silence is noticed after 10 s, not more.
        let limit = if then == Then::Hang { 33.0 } else { 15.0 };
        assert!(world.seconds() < limit, "{then:?}: {}", world.seconds());
    }
}

#[test]
fn the_rest_is_asked_of_the_address_that_answered() {
    let file = content(200_000, 4);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| {
        let reply = serve(&served, "\"v1\"", request);
        match request.number {
            0 => cut(reply, 50_000, Then::Reset),
            _ => reply,
        }
    });
    assert_eq!(world.get("http://two/file").bytes(), file);
    // A quarter of a second for the address that has nobody, and as much, or a quarter more, before the server is asked again.
    assert!(world.seconds() < 0.65, "{} s", world.seconds());
}

#[test]
fn a_kept_connection_is_its_servers_alone() {
    let mut world = always(ok(b"file"));
    for url in ["http://two/1", "http://two/2", "http://10.0.0.2/3"] {
        assert_eq!(world.get(url).bytes(), b"file");
    }
    let requests = world.requests.borrow();
    assert!(requests.iter().all(|request| request.connection == 0));
}

#[test]
fn the_body_of_a_redirect_may_end_early() {
    let mut world = World::new(Wire::default(), |request| match request.target() {
        "/file" => reply(
            "HTTP/1.1 301 Moved\nLocation: /there\nContent-Length: 1000\n\n",
            b"moved",
            Then::Close,
        ),
        _ => ok(b"there"),
    });
    assert_eq!(world.get(URL).bytes(), b"there");
}

/// The progress reported of a file of so many bytes, each with its time in milliseconds; and the end.
fn reported(world: &mut World, bytes: u64) -> (Vec<(i64, u64)>, i64) {
    /// A destination that notes what progress it is told, and when.
    struct ProgressLog(Stack, Pages, Vec<(i64, u64)>);
    impl Destination for ProgressLog {
        async fn memory(
            &mut self,
            bytes: u64,
            previous: Option<(Memory, u64)>,
        ) -> Result<Memory, DestinationError> {
            self.1.memory(bytes, previous).await
        }
        fn progress(&mut self, received: u64, total: Option<u64>) {
            self.1.progress(received, total);
            self.2.push((self.0.now().total_millis(), received));
        }
    }
    world.run(move |stack| async move {
        let url = Url::parse(URL).unwrap();
        let mut log = ProgressLog(stack.clone(), Pages::default(), Vec::new());
        let (connections, team) = (Connections::new(), Workers::none());
        let limits = Limits::default();
        let got = get(&stack, &connections, &team, &Hosts, &url, limits, &mut log).await;
        assert_eq!(got.unwrap().len, bytes);
        (log.2, stack.now().total_millis())
    })
}

#[test]
fn progress_is_told_on_the_way_and_no_sooner_than_the_bytes_come() {
    let file = content(6_000_000, 49);
    let total = file.len() as u64;
    // On one connection, and on several.
    for wire in [Wire::default(), ranges::far()] {
        let served = file.clone();
        let mut world = World::new(wire, move |request| {
            ranges::ranges(&served, "\"v\"", request)
        });
        let (reports, end) = reported(&mut world, total);
        let many = world.requests.borrow().len() > 1;
        assert_eq!(many, wire.congestion);
        for tenth in 1..10 {
            let part = total * tenth / 10..total * (tenth + 1) / 10;
            assert!(
                reports.iter().any(|(_, received)| part.contains(received)),
                "{tenth}"
            );
        }
        assert!(reports.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        let whole = reports.iter().find(|(_, received)| *received == total);
        let (time, _) = whole.expect("the last word is the whole file");
        assert!((end - 2..=end).contains(time), "{time} of {end} ms");
    }
}

#[test]
fn resumed_by_date() {
    let file = content(1000, 5);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| match range(request) {
        None => cut(
            reply(
                &format!("HTTP/1.1 200 OK\nETag: W/\"weak\"\n{OLD}Content-Length: 1000\n\n"),
                &served,
                Then::Listen,
            ),
            600,
            Then::Close,
        ),
        Some(from) => {
            assert_eq!(
                request.header("If-Range"),
                Some("Sat, 01 Jan 2022 00:00:00 GMT")
            );
            // No length, and no total: allowed.
            reply(
                &format!("HTTP/1.1 206 Partial Content\nContent-Range: bytes {from}-999/*\n\n"),
                &served[from..],
                Then::Close,
            )
        }
    });
    assert_eq!(world.get(URL).bytes(), file);
}

#[test]
fn without_a_validator_a_transfer_starts_anew() {
    let file = content(1000, 6);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| match request.number {
        0 => cut(ok(&served), 600, Then::Reset),
        _ => ok(&served),
    });
    let outcome = world.get(URL);
    assert_eq!(outcome.bytes(), file);
    assert_eq!(world.requests.borrow()[1].header("Range"), None);
    assert_eq!(outcome.result.unwrap().stats.restarted, 1);
}

#[test]
fn a_file_that_changed_in_between() {
    // Longer, shorter, and of the same size; from servers with and without ranges.
    for len in [2_000_000, 700, 1000] {
        let (old, new) = (content(1000, 7), content(len, 8));
        let expected = new.clone();
        let mut world = World::new(Wire::default(), move |request| match request.number {
            0 => cut(serve(&old, "\"old\"", request), 600, Then::Reset),
            1 => cut(serve(&new, "\"new\"", request), 650, Then::Reset),
            _ => serve(&new, "\"new\"", request),
        });
        assert_eq!(world.get(URL).bytes(), expected);
        let requests = world.requests.borrow();
        assert_eq!(requests[1].header("If-Range"), Some("\"old\""));
        assert_eq!(requests[2].header("If-Range"), Some("\"new\""));
    }
}

#[test]
fn partial_responses_that_do_not_fit() {
    let file = content(1000, 9);
    let heads = [
        "Content-Range: bytes 0-999/1000\nContent-Length: 1000\n",
        "Content-Range: bytes 501-999/1000\nContent-Length: 499\n",
        "Content-Range: bytes 500-999/1000\nContent-Length: 499\n",
        "Content-Range: bytes 500-999/1001\nContent-Length: 500\n",
        "Content-Range: bytes 500-1000/1001\nContent-Length: 501\n",
        "Content-Range: bytes 500-1000/*\nContent-Length: 501\n",
        "Content-Range: bytes 500-18446744073709551615/*\n",
        "Content-Range: bytes 500-999/1000\nETag: \"other\"\nContent-Length: 500\n",
        "Content-Range: bytes */1000\nContent-Length: 500\n",
        "Content-Type: multipart/byteranges\nContent-Length: 500\n",
        "Content-Length: 500\n",
    ];
    for head in heads {
        let served = file.clone();
        let mut world = World::new(Wire::default(), move |request| match request.number {
            0 => {
                let whole = serve(&served, "\"v\"", request);
                let head = whole.bytes.len() - 1000;
                cut(whole, head + 500, Then::Close)
            }
            1 => {
                assert_eq!(range(request), Some(500));
                let text = format!("HTTP/1.1 206 Partial Content\n{head}\n");
                reply(&text, &[0xbb; 600], Then::Close)
            }
            _ => serve(&served, "\"v\"", request),
        });
        assert_eq!(world.get(URL).bytes(), file, "{head}");
        assert_eq!(world.requests.borrow()[2].header("Range"), None, "{head}");
    }
}

#[test]
fn partial_responses_in_chunks_must_add_up() {
    let file = content(1000, 9);
    for (len, restarts) in [(500, false), (499, true), (501, true), (9999, true)] {
        let served = file.clone();
        let mut world = World::new(Wire::default(), move |request| match request.number {
            0 => {
                let whole = serve(&served, "\"v\"", request);
                let head = whole.bytes.len() - 1000;
                cut(whole, head + 500, Then::Close)
            }
            1 => {
                let mut rest = served[500..].to_vec();
                rest.resize(len, 0xbb);
                let head = "HTTP/1.1 206 Partial Content\nContent-Range: bytes 500-999/1000\n\
                            Transfer-Encoding: chunked\n\n";
                reply(head, &chunked(&rest, 100), Then::Listen)
            }
            _ => serve(&served, "\"v\"", request),
        });
        assert_eq!(world.get(URL).bytes(), file, "{len}");
        assert_eq!(world.requests.borrow().len() == 3, restarts, "{len}");
    }
}

/// A head as [`Body`] gets it.
fn head(text: &str) -> Head {
    let mut reader = HeadReader::default();
    reader.push(text.as_bytes()).unwrap();
    reader.parse().unwrap()
}

#[test]
fn the_rest_of_a_file_beyond_four_gibibytes() {
    const FROM: u64 = 5 << 30;
    let mut pages = Pages::default();
    let mut body = Body::new(&mut pages);
    body.start(&head(
        "HTTP/1.1 200 OK\r\nETag: \"v\"\r\nContent-Length: 6442450944\r\n\r\n",
    ));
    body.filled = FROM;
    let url = Url::parse(URL).unwrap();
    assert!(request_head(&url, body.resume()).contains("Range: bytes=5368709120-\r\n"));
    let rest = head(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 1073741824\r\n\
         Content-Range: bytes 5368709120-6442450943/6442450944\r\n\r\n",
    );
    assert_eq!(body.go_on(&rest).unwrap(), 6 << 30);
    body.filled = 6 << 30;
    body.check_end(6 << 30).unwrap();
}

#[test]
fn partial_response_to_a_whole_request() {
    let mut world = always(reply(
        "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-3/4\nContent-Length: 4\n\n",
        b"file",
        Then::Listen,
    ));
    assert!(matches!(world.get(URL).error().problem, Problem::Range));
}

#[test]
fn chunks_cut_before_the_last_are_found_complete() {
    let file = content(1000, 10);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| {
        if range(request).is_some() {
            return serve(&served, "\"v\"", request);
        }
        let head = "HTTP/1.1 200 OK\nETag: \"v\"\nTransfer-Encoding: chunked\n\n";
        let whole = reply(head, &chunked(&served, 500), Then::Listen);
        let len = whole.bytes.len();
        cut(whole, len - 10, Then::Close)
    });
    assert_eq!(world.get(URL).bytes(), file);
    assert_eq!(range(&world.requests.borrow()[1]), Some(1000));
}

#[test]
fn nothing_behind_a_file_of_another_size() {
    let file = content(1000, 10);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| {
        let head = "HTTP/1.1 200 OK\nETag: \"v\"\nTransfer-Encoding: chunked\n\n";
        let whole = reply(head, &chunked(&served, 500), Then::Listen);
        let len = whole.bytes.len();
        match request.number {
            0 => cut(whole, len - 10, Then::Close),
            1 => reply(
                "HTTP/1.1 416 No\nContent-Range: bytes */900\nContent-Length: 0\n\n",
                b"",
                Then::Listen,
            ),
            _ => whole,
        }
    });
    assert_eq!(world.get(URL).bytes(), file);
    assert_eq!(world.requests.borrow().len(), 3);
}

#[test]
fn chunks_cut_anywhere_go_on_with_a_range() {
    let file = content(3_000_000, 11);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| {
        if range(request).is_some() {
            return serve(&served, "\"v\"", request);
        }
        let head = "HTTP/1.1 200 OK\nETag: \"v\"\nTransfer-Encoding: chunked\n\n";
        let whole = reply(head, &chunked(&served, 9999), Then::Listen);
        cut(whole, 1_234_567, Then::Reset)
    });
    assert_eq!(world.get(URL).bytes(), file);
    assert_eq!(world.requests.borrow().len(), 2);
}

/// RFC 9110, section 14.4: "*" says that the size is not known, so such a range need not end where the file does.
#[test]
fn a_range_of_a_file_of_unknown_size_is_not_taken_for_its_end() {
    let file = content(9000, 55);
    for size_is_told in [false, true] {
        let served = file.clone();
        let mut world = World::new(Wire::default(), move |request| match range(request) {
            None => {
                // A chunk of 9000 bytes.
                let head = "HTTP/1.1 200 OK\nETag: \"v\"\nTransfer-Encoding: chunked\n\n2328\n";
                reply(head, &served[..5000], Then::Close)
            }
            Some(from) if from < 9000 => {
                let last = from + 999;
                let size = if size_is_told && last == 8999 {
                    "9000"
                } else {
                    "*"
                };
                let head = format!(
                    "HTTP/1.1 206 Partial Content\nETag: \"v\"\nContent-Length: 1000\n\
                     Content-Range: bytes {from}-{last}/{size}\n\n"
                );
                reply(&head, &served[from..=last], Then::Listen)
            }
            Some(_) => serve(&served, "\"v\"", request),
        });
        assert_eq!(world.get(URL).bytes(), file);
        // The last one is refused: there is no more.
        let requests = if size_is_told { 5 } else { 6 };
        assert_eq!(world.requests.borrow().len(), requests);
    }
}

#[test]
fn a_file_shorter_than_announced() {
    // The server announces 1000 bytes and has 400, whatever is asked.
    let served = content(400, 12);
    let mut world = World::new(Wire::default(), move |request| match range(request) {
        None => reply(
            "HTTP/1.1 200 OK\nETag: \"v\"\nContent-Length: 1000\n\n",
            &served,
            Then::Close,
        ),
        Some(from) => reply(
            &format!(
                "HTTP/1.1 206 Partial Content\nETag: \"v\"\nContent-Range: bytes {from}-999/1000\n\
                 Content-Length: {}\n\n",
                1000 - from
            ),
            b"",
            Then::Close,
        ),
    });
    let outcome = world.get(URL);
    let error = outcome.error();
    assert!(matches!(
        error.problem,
        Problem::Short {
            received: 400,
            announced: 1000
        }
    ));
    assert_eq!(error.attempts, RESUME_ATTEMPTS);
    let text = error.to_string();
    for part in [URL, "10.0.0.2:80", "400 of 1000", "tried 8 times"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_few_bytes_at_a_time_are_no_progress() {
    let file = content(100_000, 16);
    let mut world = World::new(Wire::default(), move |request| {
        let whole = serve(&file, "\"v\"", request);
        let head = whole.bytes.windows(4).position(|end| end == b"\r\n\r\n");
        cut(whole, head.unwrap() + 4 + 10, Then::Close)
    });
    let outcome = world.get(URL);
    assert!(matches!(
        outcome.error().problem,
        Problem::Short { received: 80, .. }
    ));
    assert_eq!(outcome.error().attempts, RESUME_ATTEMPTS);
}

#[test]
fn failures_are_forgotten_after_progress() {
    let file = content(2_000_000, 17);
    let served = file.clone();
    let mut world = World::new(Wire::default(), move |request| {
        cut(serve(&served, "\"v\"", request), 70_000, Then::Reset)
    });
    assert_eq!(world.get(URL).bytes(), file);
    assert!(world.requests.borrow().len() > 25);
}

#[test]
fn statuses_that_do_not_change_are_told_at_once() {
    for (status, advice) in [
        (404, "path"),
        (403, "everybody"),
        (204, "check"),
        (418, "check"),
    ] {
        let head = format!("HTTP/1.1 {status} Words of it\nContent-Length: 0\n\n");
        let mut world = always(reply(&head, b"", Then::Listen));
        let outcome = world.get(URL);
        let text = outcome.error().to_string();
        for part in [URL, "10.0.0.2:80", &format!("{status} Words of it"), advice] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("tried"), "{text}");
        assert_eq!(world.requests.borrow().len(), 1);
        assert!(world.seconds() < 0.1);
    }
}

#[test]
fn no_range_of_what_was_asked_for_whole_is_an_error() {
    let head = "HTTP/1.1 416 No\nContent-Range: bytes */0\nContent-Length: 0\n\n";
    let outcome = always(reply(head, b"", Then::Listen)).get(URL);
    assert!(matches!(
        outcome.error().problem,
        Problem::Status { status: 416, .. }
    ));
}

#[test]
fn statuses_that_may_pass_are_asked_again() {
    let mut world = World::new(Wire::default(), |request| match request.number {
        0 => reply(
            "HTTP/1.1 503 Service Unavailable\nRetry-After: 5\nContent-Length: 0\n\n",
            b"",
            Then::Listen,
        ),
        1 => reply(
            "HTTP/1.1 429 Too Many Requests\nContent-Length: 0\n\n",
            b"",
            Then::Close,
        ),
        _ => ok(b"file"),
    });
    assert_eq!(world.get(URL).bytes(), b"file");
    assert!((5.0..8.0).contains(&world.seconds()));
    let mut world = always(reply(
        "HTTP/1.1 500 Oops\nRetry-After: 999999999999999\nContent-Length: 0\n\n",
        b"",
        Then::Listen,
    ));
    let outcome = world.get(URL);
    assert_eq!(outcome.error().attempts, FIRST_ATTEMPTS);
    let text = outcome.error().to_string();
    assert!(text.contains("look at the server's log"), "{text}");
    assert!(
        (90.0..112.5).contains(&world.seconds()),
        "30 s each at most, and a quarter more: {} s",
        world.seconds()
    );
}

#[test]
fn nobody_there() {
    let mut world = always(ok(b""));
    let outcome = world.get("http://10.0.0.2:81/file");
    let error = outcome.error();
    assert_eq!(error.attempts, FIRST_ATTEMPTS);
    assert!(error.to_string().contains("refused"), "{error}");
    // A quarter, half of one, and one second, each up to a quarter longer.
    assert!(
        (1.75..2.2).contains(&world.seconds()),
        "{} s",
        world.seconds()
    );
    let outcome = world.get("http://10.0.0.99/file");
    assert!(matches!(
        outcome.error().problem,
        Problem::Connect(NetError::TimedOut)
    ));
}

#[test]
fn a_server_that_never_answers() {
    let mut world = always(reply("", b"", Then::Hang));
    let outcome = world.get(URL);
    assert!(matches!(outcome.error().problem, Problem::Silent { .. }));
    let mut world = always(reply("HTTP/1.1 200", b"", Then::Close));
    let outcome = world.get(URL);
    assert!(matches!(outcome.error().problem, Problem::NoAnswer));
    assert_eq!(outcome.error().attempts, FIRST_ATTEMPTS);
}

#[test]
fn answers_that_are_no_http() {
    for text in [
        "SSH-2.0-OpenSSH_9.2\n\n",
        "HTTP/1.1 200 OK\nContent-Length: 4\nContent-Length: 5\n\n",
        "HTTP/1.1 200 OK\nContent-Length: -4\n\n",
        "HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nxyz\n",
    ] {
        let mut world = always(reply(text, b"file", Then::Listen));
        let outcome = world.get(URL);
        assert!(
            matches!(
                outcome.error().problem,
                Problem::Head(_) | Problem::Chunks(_)
            ),
            "{text}"
        );
        assert_eq!(outcome.error().attempts, 1);
    }
    let endless = "A: b\n".repeat(5000);
    let mut world = always(reply(
        &format!("HTTP/1.1 200 OK\n{endless}"),
        b"",
        Then::Listen,
    ));
    assert!(matches!(
        world.get(URL).error().problem,
        Problem::Head(HeadError::TooLong)
    ));
}

#[test]
fn faulty_wires() {
    let clean = LinkConfig::default();
    let wires = [
        LinkConfig {
            loss: 0.03,
            ..clean
        },
        LinkConfig {
            reorder: 0.1,
            ..clean
        },
        LinkConfig {
            duplicate: 0.1,
            ..clean
        },
        LinkConfig {
            loss: 0.01,
            latency_micros: 20_000,
            ..clean
        },
    ];
    let file = content(400_000, 13);
    for (number, link) in wires.into_iter().enumerate() {
        for coalesce in [false, true] {
            let wire = Wire {
                link,
                seed: number as u64,
                coalesce,
                ..Wire::default()
            };
            let served = file.clone();
            let mut world = World::new(wire, move |request| match request.target() {
                "/length" => ok(&served),
                _ => reply(
                    "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n",
                    &chunked(&served, 10_000),
                    Then::Listen,
                ),
            });
            assert_eq!(world.get("http://boot/length").bytes(), file, "{wire:?}");
            assert_eq!(world.get("http://boot/chunks").bytes(), file, "{wire:?}");
        }
    }
}

/// How a server answers one request: with what body and head, and where it breaks off.
#[derive(Clone, Debug)]
struct HttpAnswerScript {
    chunk: Option<usize>,
    ranges: bool,
    /// Weight of the validator: none, weak, strong.
    tag: u8,
    cut: Option<(usize, Then)>,
    /// The file has another content from here on.
    changed: bool,
    extra: usize,
    status: Option<u16>,
}

fn answer_script() -> impl Strategy<Value = HttpAnswerScript> {
    let then = prop_oneof![
        Just(Then::Close),
        Just(Then::Reset),
        Just(Then::Hang),
        Just(Then::Restart(700_000))
    ];
    (
        prop::option::of(1usize..5000),
        prop::bool::weighted(0.8),
        prop_oneof![1 => Just(0u8), 1 => Just(1), 4 => Just(2)],
        prop::option::weighted(0.6, (0usize..60_000, then)),
        prop::bool::weighted(0.15),
        prop_oneof![4 => Just(0usize), 1 => 1usize..100],
        prop::option::weighted(0.1, prop_oneof![Just(503u16), Just(429), Just(416)]),
    )
        .prop_map(
            |(chunk, ranges, tag, cut, changed, extra, status)| HttpAnswerScript {
                chunk,
                ranges,
                tag,
                cut,
                changed,
                extra,
                status,
            },
        )
}

fn answer(
    script: &HttpAnswerScript,
    files: &[Vec<u8>],
    version: usize,
    request: &Request,
) -> Reply {
    let file = &files[version];
    let total = file.len();
    let tag = format!("\"{version}\"");
    if let Some(status) = script.status {
        let head = format!("HTTP/1.1 {status} Words\nContent-Length: 0\n\n");
        return reply(&head, b"", Then::Listen);
    }
    let from = range(request)
        .filter(|from| script.ranges && *from < total)
        .filter(|_| request.header("If-Range") == Some(tag.as_str()));
    let mut head = match from {
        Some(from) => format!(
            "HTTP/1.1 206 Partial Content\nContent-Range: bytes {from}-{}/{total}\n",
            total - 1
        ),
        None => "HTTP/1.1 200 OK\n".to_string(),
    };
    head += &match script.tag {
        0 => String::new(),
        1 => format!("ETag: W/{tag}\n"),
        _ => format!("ETag: {tag}\n"),
    };
    let data = &file[from.unwrap_or(0)..];
    let mut body = match script.chunk {
        Some(size) => {
            head += "Transfer-Encoding: chunked\n\n";
            chunked(data, size)
        }
        None => {
            head += &format!("Content-Length: {}\n\n", data.len());
            data.to_vec()
        }
    };
    body.extend(vec![b'H'; script.extra]);
    let whole = reply(&head, &body, Then::Listen);
    match script.cut {
        Some((after, then)) => cut(whole, after, then),
        None => whole,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Whatever server and wire do: two downloads are each one version of the file, byte for byte, or an error.
    #[test]
    fn right_bytes_or_an_error(
        scripts in prop::collection::vec(answer_script(), 1..8),
        len in 0usize..50_000,
        same_len in any::<bool>(),
        piece in prop_oneof![Just(usize::MAX), 500usize..3000],
        loss in prop_oneof![Just(0.0), 0.0..0.05],
        reorder in prop_oneof![Just(0.0), 0.0..0.2],
        duplicate in prop_oneof![Just(0.0), 0.0..0.2],
        corrupt in prop_oneof![Just(0.0), 0.0..0.02],
        coalesce in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let files: Vec<_> = (0..20u32)
            .map(|version| content(if same_len { len } else { len + version as usize * 100 }, version + 20))
            .collect();
        let link = LinkConfig { loss, reorder, duplicate, corrupt, ..LinkConfig::default() };
        let version = Rc::new(Cell::new(0));
        let served = files.clone();
        let mut world = World::new(Wire { link, seed, coalesce, piece, ..Wire::default() }, move |request| {
            let script = &scripts[request.number % scripts.len()];
            if script.changed {
                version.set((version.get() + 1) % served.len());
            }
            answer(script, &served, version.get(), request)
        });
        for _ in 0..2 {
            let outcome = world.get_to(URL, Pages::default());
            if outcome.result.is_ok() {
                let bytes = outcome.bytes();
                prop_assert!(files.contains(&bytes), "{} bytes, of no version", bytes.len());
            }
        }
    }
}

#[test]
fn less_than_64_kib_in_eight_requests_is_no_progress() {
    let file = content(2_000_000, 18);
    let mut world = World::new(Wire::default(), move |request| {
        let whole = serve(&file, "\"v\"", request);
        let head = whole.bytes.windows(4).position(|end| end == b"\r\n\r\n");
        cut(whole, head.unwrap() + 4 + 8000, Then::Close)
    });
    let outcome = world.get(URL);
    assert!(matches!(
        outcome.error().problem,
        Problem::Short {
            received: 64_000,
            ..
        }
    ));
    assert_eq!(outcome.error().attempts, 8);
}

#[test]
fn a_connection_that_is_not_kept_is_closed_and_not_reset() {
    let close = "HTTP/1.1 200 OK\nConnection: close\nContent-Length: 4\n\n";
    for then in [Then::Listen, Then::Close] {
        let mut world = always(reply(close, b"file", then));
        assert_eq!(world.get(URL).bytes(), b"file");
        world.wait(1_000_000);
        assert_eq!(world.resets(), 0, "{then:?}");
    }
}
