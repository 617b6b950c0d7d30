//! Requests as they are, bodies in pieces.

use super::world::{Hosts, Reply, Request as ServedRequest, Then, Wire, World, reply};
use super::{chunked, content, ok};
use crate::http::{Problem, Request, ResponseHead, Taker, exchange};
use crate::url::Url;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;
use wireboot_net::Memory;

/// Memory in pieces of `piece` bytes.
#[derive(Default)]
struct Pieces {
    piece: usize,
    heads: Vec<ResponseHead>,
    body: Vec<u8>,
    lens: Vec<usize>,
}

impl Taker for Pieces {
    fn head(&mut self, head: ResponseHead) {
        self.heads.push(head);
    }

    async fn memory(&mut self) -> Memory {
        vec![0xee; self.piece].into()
    }

    fn body(&mut self, memory: Memory, len: usize) {
        self.body.extend(&memory.rest(0)[..len]);
        self.lens.push(len);
    }
}

fn ask(world: &mut World, method: &'static str, piece: usize) -> (Result<(), Problem>, Pieces) {
    let connections = Rc::clone(&world.connections);
    world.run(move |stack| async move {
        let request = Request {
            url: Url::parse("http://10.0.0.2/file").unwrap(),
            method,
            bytes: std::format!("{method} /file HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes(),
        };
        let mut taker = Pieces {
            piece,
            ..Pieces::default()
        };
        let result = exchange(&stack, &connections, &Hosts, &request, &mut taker).await;
        (result, taker)
    })
}

fn world(handler: impl FnMut(&ServedRequest) -> Reply + 'static) -> World {
    World::new(Wire::default(), handler)
}

#[test]
fn a_body_comes_in_pieces_of_any_size_on_one_connection() {
    let body = content(100_000, 1);
    let sent = body.clone();
    let mut world = world(move |seen| {
        assert_eq!(seen.connection, 0);
        ok(&sent)
    });
    for piece in [1, 999, 9216, 100_000, 200_000] {
        let (result, taken) = ask(&mut world, "GET", piece);
        result.unwrap();
        assert!(taken.body == body, "{piece}");
        let (last, others) = taken.lens.split_last().unwrap();
        assert!(others.iter().all(|len| *len == piece) && *last > 0);
        let [head] = &taken.heads[..] else { panic!() };
        assert_eq!(head.status, 200);
        let length = ("Content-Length".into(), "100000".into());
        assert!(head.fields.contains(&length), "{:?}", head.fields);
    }
}

#[test]
fn chunks_and_endless_bodies_are_put_together() {
    let body = content(50_000, 2);
    for head in ["Transfer-Encoding: chunked\n", ""] {
        let bytes = if head.is_empty() {
            body.clone()
        } else {
            chunked(&body, 777)
        };
        let then = if head.is_empty() {
            Then::Close
        } else {
            Then::Listen
        };
        let head = std::format!("HTTP/1.1 200 OK\n{head}\n");
        let mut world = world(move |_| reply(&head, &bytes, then));
        for piece in [500, 777, 50_000, 60_000] {
            let (result, taken) = ask(&mut world, "GET", piece);
            result.unwrap();
            assert!(taken.body == body);
        }
    }
}

#[test]
fn what_has_no_body_takes_no_memory() {
    let head = "HTTP/1.1 200 OK\nContent-Length: 5\n\n";
    let mut head_only = world(move |_| reply(head, b"", Then::Listen));
    let (result, taken) = ask(&mut head_only, "HEAD", 10);
    result.unwrap();
    assert_eq!((taken.lens.len(), taken.heads[0].status), (0, 200));
    let mut empty = world(|_| ok(b""));
    assert_eq!(ask(&mut empty, "GET", 10).1.lens.len(), 0);
}

#[test]
fn errors_and_redirects_are_answers() {
    for status in [302, 404, 503] {
        let head =
            std::format!("HTTP/1.1 {status} X\nLocation: http://elsewhere/\nContent-Length: 3\n\n");
        let mut world = world(move |_| reply(&head, b"why", Then::Listen));
        let (result, taken) = ask(&mut world, "GET", 10);
        result.unwrap();
        assert_eq!(
            (taken.heads[0].status, &taken.body[..]),
            (status, &b"why"[..])
        );
    }
}

#[test]
fn a_body_that_breaks_off_is_told() {
    let head = "HTTP/1.1 200 OK\nContent-Length: 5000\n\n";
    let mut world = world(move |_| reply(head, &[7; 3000], Then::Close));
    let (result, taken) = ask(&mut world, "GET", 2000);
    assert!(
        matches!(result, Err(Problem::BrokeOff { .. })),
        "{result:?}"
    );
    assert_eq!(taken.lens, [2000, 1000]);
}

#[test]
fn a_silent_server_is_given_up() {
    let head = "HTTP/1.1 200 OK\nContent-Length: 5000\n\n";
    let mut world = world(move |_| reply(head, &[7; 3000], Then::Hang));
    let (result, _) = ask(&mut world, "GET", 5000);
    assert!(matches!(result, Err(Problem::Silent { .. })), "{result:?}");
}

/// Before the first chunk, and between two.
#[test]
fn chunk_sizes_that_drip_are_too_slow() {
    const DRIP: i64 = 3_000_000;
    let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n";
    let size = b"5;abcdefghijklmnopqrstuvwxyz=abcdefg\r\n";
    for before in [&b""[..], b"5\r\nabcde\r\n"] {
        let body = [before, size].concat();
        let mut world = world(move |_| {
            let mut reply = reply(head, &body, Then::Listen);
            reply.drip = Some((reply.bytes.len() - size.len(), DRIP));
            reply
        });
        let (result, _) = ask(&mut world, "GET", 100);
        assert!(matches!(result, Err(Problem::Slow { .. })), "{result:?}");
    }
}

#[test]
fn only_what_may_be_repeated_goes_over_a_connection_that_waited() {
    let mut world = world(|seen| {
        assert_eq!(seen.connection, seen.number);
        ok(b"a")
    });
    ask(&mut world, "GET", 10).0.unwrap();
    ask(&mut world, "POST", 10).0.unwrap();
}
