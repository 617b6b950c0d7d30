//! Servers and strangers that do not want the file to arrive, as scripts on the wire: what they send in answer to a request.

use super::*;
use crate::testing::{Datagram, SECOND, run};
use std::net::SocketAddrV4;

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const BLOCK: usize = 1468;
/// The simulated time in microseconds that any of them may take: three requests, and 30 s for the last.
const LIMIT: i64 = 50 * SECOND;

fn oack(options: &[(&str, &str)]) -> Vec<u8> {
    let mut packet = vec![0, 6];
    for (name, value) in options {
        for text in [name, value] {
            packet.extend(text.bytes());
            packet.push(0);
        }
    }
    packet
}

fn data(block: u16, len: usize) -> Vec<u8> {
    let mut packet = data_header(block).to_vec();
    packet.extend((0..len).map(|i| (usize::from(block) * 31 + i) as u8));
    packet
}

/// A block of 512 bytes of `file`, or what is left of it.
fn data_of(file: &[u8], block: u16) -> Vec<u8> {
    let rest = file.get((usize::from(block) - 1) * 512..).unwrap_or(&[]);
    let mut packet = data_header(block).to_vec();
    packet.extend(&rest[..rest.len().min(512)]);
    packet
}

fn after(mut datagram: Datagram, micros: i64) -> Datagram {
    datagram.micros = micros;
    datagram
}

/// The block size that a request asks for.
fn block_size(packet: &[u8]) -> Option<u16> {
    match Packet::parse(packet) {
        Ok(Packet::Rrq(request)) => TransferOptions::from_request(request.options).block_size,
        _ => None,
    }
}

struct Ended {
    result: Result<TftpFile, TftpError>,
    micros: i64,
    servers: Vec<SocketAddr>,
    path_mtu: u16,
}

impl Ended {
    fn error(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }

    fn bytes(&self) -> Vec<u8> {
        let file = self.result.as_ref().unwrap();
        testing::content(&file.memory, file.len as usize)
    }
}

/// A download from these servers, whose hosts the script speaks for.
fn attacked_at(servers: &[Ipv4Addr], script: impl FnMut(&Datagram) -> Vec<Datagram>) -> Ended {
    attacked_within(Limits::default(), servers, script)
}

fn attacked_within(
    limits: Limits,
    servers: &[Ipv4Addr],
    script: impl FnMut(&Datagram) -> Vec<Datagram>,
) -> Ended {
    attacked_asking(Sizes::default(), limits, servers, script)
}

fn attacked_asking(
    sizes: Sizes,
    limits: Limits,
    servers: &[Ipv4Addr],
    script: impl FnMut(&Datagram) -> Vec<Datagram>,
) -> Ended {
    attacked_into(sizes, limits, servers, script, room)
}

fn room(stack: Stack) -> Room {
    Room {
        stack,
        limit: 1 << 30,
        asked: Vec::new(),
        committed: Arc::default(),
    }
}

/// The same to a destination that `destination` makes.
fn attacked_into<D: Destination + 'static>(
    sizes: Sizes,
    limits: Limits,
    servers: &[Ipv4Addr],
    script: impl FnMut(&Datagram) -> Vec<Datagram>,
    destination: impl FnOnce(Stack) -> D + 'static,
) -> Ended {
    let hosts = [SERVER, OTHER];
    let at: Vec<SocketAddr> = servers
        .iter()
        .map(|&server| SocketAddr::new(server.into(), 69))
        .collect();
    let ((result, servers, path_mtu), micros) = run(
        LinkConfig::default(),
        1,
        &hosts,
        script,
        async move |stack| {
            stack.configure(&Ipv4Config {
                address: wireboot_net::Ipv4Cidr::new(US, 24),
                router: None,
                routes: Vec::new(),
                mtu: None,
            });
            let mut room = destination(stack.clone());
            let mut servers = at;
            let result = get(&stack, &mut servers, "x", 1, sizes, limits, &mut room).await;
            let path_mtu = stack.path_mtu(SERVER.into());
            (result, servers, path_mtu)
        },
    );
    Ended {
        result,
        micros,
        servers,
        path_mtu,
    }
}

fn attacked(script: impl FnMut(&Datagram) -> Vec<Datagram>) -> Ended {
    attacked_at(&[SERVER], script)
}

/// The answer from the port that the server has chosen for the transfer.
fn answer(query: &Datagram, packet: Vec<u8>) -> Datagram {
    let mut answer = query.answer(packet);
    answer.source.set_port(4000);
    answer
}

fn is_request(query: &Datagram) -> bool {
    query.payload.starts_with(&[0, 1])
}

/// A server of `file` whose blocks get through up to `room` bytes of IPv4 packet.
fn narrow(file: &[u8], room: usize) -> impl FnMut(&Datagram) -> Vec<Datagram> {
    granting(file, room, usize::MAX)
}

/// The same with blocks of no more than `most` bytes.
fn granting(file: &[u8], room: usize, most: usize) -> impl FnMut(&Datagram) -> Vec<Datagram> {
    let file = file.to_vec();
    let mut size = 512;
    move |query| {
        let packet = match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) => {
                size = most.min(block_size(&query.payload).unwrap().into());
                let size = std::format!("{size}");
                oack(&[("blksize", &size)])
            }
            Ok(Packet::Ack { block }) => {
                let at = usize::from(block) * size;
                let Some(rest) = file.get(at..) else {
                    return vec![];
                };
                let mut packet = data_header(block + 1).to_vec();
                packet.extend(&rest[..rest.len().min(size)]);
                packet
            }
            _ => return vec![],
        };
        let fits = 28 + packet.len() <= room;
        let answer = answer(query, packet);
        fits.then_some(answer).into_iter().collect()
    }
}

#[test]
fn smaller_blocks_where_large_ones_do_not_arrive() {
    let file = vec![7; 5000];
    for (room, seconds, size) in [(1492, 3, 1428), (1280, 7, 1220), (576, 10, 512)] {
        let ended = attacked(narrow(&file, room));
        assert_eq!(ended.bytes(), file, "MTU {room}");
        assert_eq!(ended.micros / SECOND, seconds, "MTU {room}");
        // The next file has them at once.
        assert_eq!(ended.path_mtu, (size + 32).max(576), "MTU {room}");
    }
    let ended = attacked(narrow(&file, 1500));
    assert_eq!((&*ended.bytes(), ended.path_mtu), (&*file, 1500));
    // Small blocks that the server wants say nothing of the path.
    let ended = attacked(granting(&file, 1500, 512));
    assert_eq!((&*ended.bytes(), ended.path_mtu), (&*file, 1500));
    let ended = attacked(narrow(&file, 300));
    let error = ended.error();
    assert!(
        error.contains("no block of the file arrives, not even of 512 bytes"),
        "{error}"
    );
    assert!(ended.micros < LIMIT, "{} us", ended.micros);
    // Others than those that were asked for would be another measurement.
    let asked = Sizes {
        block: Some(1468),
        window: Window::Own,
    };
    let ended = attacked_asking(asked, Limits::default(), &[SERVER], narrow(&file, 1492));
    assert!(matches!(
        ended.result,
        Err(TftpError::NoBlock { size: 1468 })
    ));
    assert_eq!(ended.micros / SECOND, 3);
}

#[test]
fn an_option_acknowledgement_without_end_is_no_progress() {
    let ended = attacked(|query| {
        if !is_request(query) {
            return vec![];
        }
        let size = std::format!("{}", block_size(&query.payload).unwrap());
        let packet = oack(&[("blksize", &size)]);
        (0..400)
            .map(|n| after(answer(query, packet.clone()), n * 100_000))
            .collect()
    });
    let error = ended.error();
    assert!(error.contains("no block of the file arrives"), "{error}");
    assert!(ended.micros < LIMIT, "{} us", ended.micros);
}

#[test]
fn wrong_blocks_without_end_are_no_progress() {
    // A block that is not due each 50 ms: old ones, and one from beyond a gap.
    for wrong in [0, 1, 3] {
        let ended = attacked(|query| {
            if !is_request(query) {
                return vec![];
            }
            let mut answers = vec![answer(query, oack(&[("blksize", "1468")]))];
            answers.push(after(answer(query, data(1, BLOCK)), 10_000));
            let block = data(wrong, BLOCK);
            answers.extend((1..2000).map(|n| after(answer(query, block.clone()), n * 50_000)));
            answers
        });
        let error = ended.error();
        assert_eq!(
            error,
            "too slow: 1468 bytes of the file are there, and less than 65536 bytes in 30 s came last"
        );
        assert_eq!(ended.micros / SECOND, 30, "block {wrong}");
    }
}

#[test]
fn one_block_each_two_seconds_is_too_slow() {
    let mut blocks = 0;
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => vec![answer(query, oack(&[("blksize", "1468")]))],
        Ok(Packet::Ack { block }) if block == blocks => {
            blocks += 1;
            vec![after(answer(query, data(block + 1, BLOCK)), 2 * SECOND)]
        }
        _ => vec![],
    });
    assert!(ended.error().starts_with("too slow"), "{}", ended.error());
    assert_eq!(ended.micros / SECOND, 30);
}

#[test]
fn a_slow_transfer_above_the_floor_goes_on() {
    // 512 bytes each 200 ms, for a minute.
    let file = vec![5; 512 * 300];
    let mut serve = narrow(&file, 1500);
    let ended = attacked(|query| {
        if is_request(query) {
            return vec![answer(query, data(1, 512))];
        }
        serve(query)
            .into_iter()
            .map(|answer| after(answer, 200_000))
            .collect()
    });
    assert_eq!(ended.bytes().len(), file.len());
    assert!(ended.micros > 60 * SECOND);
}

/// Such as one that has no room for more yet.
#[test]
fn what_the_receiver_takes_its_time_for_is_not_too_slow() {
    struct Unhurried(Room);
    impl Destination for Unhurried {
        async fn memory(
            &mut self,
            bytes: u64,
            previous: Option<(Memory, u64)>,
        ) -> Result<Memory, DestinationError> {
            self.0.stack.sleep(Duration::from_secs(35)).await;
            self.0.memory(bytes, previous).await
        }
        fn progress(&mut self, _: u64, _: Option<u64>) {}
    }
    // More than the first memory where the size is not announced.
    let file: Vec<u8> = (0..4_400_000).map(|at| (at / 7) as u8).collect();
    let limits = Limits {
        floor: Floor {
            bytes: file.len() as u64,
            ..Floor::default()
        },
        ..Limits::default()
    };
    let ended = attacked_into(
        Sizes::default(),
        limits,
        &[SERVER],
        narrow(&file, 1500),
        |stack| Unhurried(room(stack)),
    );
    assert!(ended.bytes() == file);
    assert!(ended.micros > 70 * SECOND, "{} us", ended.micros);
}

#[test]
fn a_server_that_falls_silent_is_asked_again_and_anew() {
    let (mut requests, mut acknowledgements) = (0, 0);
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => {
            requests += 1;
            vec![answer(query, data(1, 512))]
        }
        Ok(Packet::Ack { block: 1 }) => {
            acknowledgements += 1;
            vec![]
        }
        _ => vec![],
    });
    let error = ended.result.unwrap_err();
    assert!(
        matches!(error, TftpError::Stalled { received: 512 }),
        "{error}"
    );
    assert_eq!(requests, ATTEMPTS);
    assert_eq!(acknowledgements, ATTEMPTS * (1 + RETRIES));
    assert!(ended.micros < LIMIT, "{} us", ended.micros);
}

#[test]
fn each_block_has_all_patience_again() {
    // The server does not hear the first acknowledgement of each second block.
    let mut newest = 0;
    let last = 3 * RETRIES as u16;
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => vec![answer(query, data(1, 512))],
        Ok(Packet::Ack { block }) => {
            let again = core::mem::replace(&mut newest, block) == block;
            let heard = again || block % 2 == 1;
            let len = if block + 1 < last { 512 } else { 0 };
            let next = (heard && block < last).then(|| answer(query, data(block + 1, len)));
            next.into_iter().collect()
        }
        _ => vec![],
    });
    assert!(ended.result.as_ref().unwrap().retransmissions > RETRIES.into());
    assert_eq!(ended.bytes().len(), 512 * (usize::from(last) - 1));
}

#[test]
fn an_error_in_the_middle_ends_the_transfer() {
    // One that says nothing of the request is tried again. One before the first block is an answer to the request.
    for (code, blocks, attempts) in [(0, 1, ATTEMPTS), (2, 1, 1), (0, 0, 1)] {
        let mut requests = 0;
        let ended = attacked(|query| match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) => {
                requests += 1;
                let mut error = vec![0, 5, 0, code];
                error.extend(b"the disk is gone\0");
                let first = answer(query, data(1, 512));
                let mut answers = vec![first; blocks];
                // When the block is beyond doubt.
                answers.push(after(answer(query, error), 60_000));
                answers
            }
            _ => vec![],
        });
        assert!(
            ended.error().contains("the disk is gone"),
            "{}",
            ended.error()
        );
        assert_eq!(requests, attempts, "error {code} after {blocks} blocks");
        assert!(ended.micros < SECOND, "{} us", ended.micros);
    }
}

#[test]
fn a_server_that_gives_up_each_time_is_not_waited_for_with_patience() {
    let limits = Limits {
        patience: Duration::from_secs(60),
        ..Limits::default()
    };
    let mut requests = 0;
    let ended = attacked_within(limits, &[SERVER], |query| {
        match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) => {
                requests += 1;
                vec![answer(query, data(1, 512))]
            }
            Ok(Packet::Ack { block: 1 }) => vec![answer(query, b"\0\x05\0\0later\0".to_vec())],
            _ => vec![],
        }
    });
    assert!(ended.error().contains("later"), "{}", ended.error());
    assert_eq!(requests, ATTEMPTS);
    assert!(ended.micros < SECOND, "{} us", ended.micros);
}

#[test]
fn a_request_that_is_sent_again_is_counted() {
    let mut requests = 0;
    let ended = attacked(|query| {
        if !is_request(query) {
            return vec![];
        }
        requests += 1;
        let second = (requests == 2).then(|| answer(query, data(1, 7)));
        second.into_iter().collect()
    });
    assert_eq!(ended.result.unwrap().retransmissions, 1);
}

#[test]
fn another_address_is_not_the_server() {
    for first in [oack(&[("blksize", "1468")]), data(1, 5)] {
        let mut errors = 0;
        let ended = attacked(|query| {
            if query.destination.ip() == &OTHER {
                errors += usize::from(query.payload.starts_with(&[0, 5, 0, 5]));
                return vec![];
            }
            if !is_request(query) {
                return vec![];
            }
            let mut forged = answer(query, first.clone());
            forged.source = SocketAddrV4::new(OTHER, 69);
            let mut late = after(forged.clone(), 10_000);
            late.payload = data(1, 9);
            vec![forged, after(answer(query, data(1, 7)), 5_000), late]
        });
        assert_eq!(ended.bytes(), &data(1, 7)[4..]);
        assert_eq!(errors, 0, "nobody has asked it");
    }
}

/// Somebody who sees nothing sends a block to each port, before the server answers.
#[test]
fn a_forged_block_is_not_the_file() {
    // Under another port, and under the one of a server that has no other.
    for port in [4001, 4000] {
        no_file_is_forged(port);
    }
}

fn no_file_is_forged(port: u16) {
    let evil = |query: &Datagram, len| {
        let mut evil = answer(query, data(1, len));
        evil.source.set_port(port);
        evil
    };
    // A server that knows options.
    let file = vec![7; 5000];
    let mut serve = narrow(&file, 1500);
    let ended = attacked(|query| {
        let forged = is_request(query).then(|| [9, 8].map(|len| evil(query, len)));
        let answers = serve(query).into_iter();
        let answers = answers.map(|answer| after(answer, 5_000));
        forged.into_iter().flatten().chain(answers).collect()
    });
    assert_eq!(ended.bytes(), file);
    assert!(ended.micros < 50_000, "{} us", ended.micros);
    // One that has no such file.
    let ended = attacked(|query| match is_request(query) {
        true => vec![
            evil(query, 9),
            after(answer(query, b"\0\x05\0\x01none\0".to_vec()), 5_000),
        ],
        false => vec![],
    });
    assert!(ended.error().contains("none"), "{}", ended.error());
    // One that knows no options: which block is its own nobody can tell, and it is asked again.
    for (ports, requested) in [(0, 1), (1, 2), (2, 3), (u32::MAX, ATTEMPTS)] {
        let mut requests = 0;
        let ended = attacked(|query| {
            if !is_request(query) {
                return vec![];
            }
            requests += 1;
            let forged = (requests <= ports).then(|| evil(query, 9));
            let right = after(answer(query, data(1, 7)), 5_000);
            forged.into_iter().chain([right]).collect()
        });
        assert_eq!(requests, requested);
        match &ended.result {
            Ok(_) => assert_eq!(ended.bytes(), &data(1, 7)[4..]),
            Err(error) => assert_eq!((error, ports), (&TftpError::Contested, u32::MAX)),
        }
    }
    // The same block twice is the server's.
    let ended = attacked(|query| {
        let mut again = answer(query, data(1, 7));
        again.source.set_port(port);
        match is_request(query) {
            true => vec![answer(query, data(1, 7)), after(again, 5_000)],
            false => vec![],
        }
    });
    assert_eq!(ended.bytes(), &data(1, 7)[4..]);
}

#[test]
fn another_port_of_the_server_is_not_the_transfer() {
    let mut told = Vec::new();
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => {
            let stranger = |port, packet, micros| {
                let mut stranger = after(answer(query, packet), micros);
                stranger.source.set_port(port);
                stranger
            };
            vec![
                answer(query, data(1, 512)),
                stranger(4001, data(2, 3), 5_000),
                // Two that answer errors would never end (CVE-2024-2169).
                stranger(4002, b"\0\x05\0\x05who?\0".to_vec(), 55_000),
                stranger(4003, oack(&[("blksize", "1468")]), 60_000),
            ]
        }
        Ok(Packet::Ack { block: 1 }) => vec![after(answer(query, data(2, 7)), 20_000)],
        Ok(Packet::Error { .. }) => {
            told.push(query.destination.port());
            vec![]
        }
        _ => vec![],
    });
    assert_eq!(ended.bytes().len(), 519);
    assert_eq!(told, [4001, 4003]);
}

/// While a block waits for another answer, nobody is asked, and nothing fails.
#[test]
fn a_block_in_doubt_ends_the_requests() {
    // It comes shortly before the second server is asked, the first one again, and the last wait is over.
    for (servers, micros, asked) in [(2, 230_000, 1), (1, 980_000, 1), (1, 18_980_000, RETRIES)] {
        let mut requests = 0;
        let ended = attacked_at(&[SERVER, OTHER][..servers], |query| {
            requests += u32::from(is_request(query));
            let first = is_request(query) && requests == 1;
            let block = first.then(|| after(answer(query, data(1, 7)), micros));
            block.into_iter().collect()
        });
        assert_eq!(ended.bytes(), &data(1, 7)[4..]);
        assert_eq!(requests, asked);
    }
    // The host says three times that nobody listens.
    let ended = attacked(|query| {
        if !is_request(query) {
            return vec![];
        }
        let mut answers = vec![answer(query, data(1, 7))];
        answers.extend((1..=3).map(|turn| after(query.refused(), turn * 5_000)));
        answers
    });
    assert_eq!(ended.bytes(), &data(1, 7)[4..]);
}

/// Nor is the wait for another answer a part of the round trip.
#[test]
fn a_block_in_doubt_counts_from_when_it_came() {
    let (mut asked, mut acknowledged) = (0, Vec::new());
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => {
            asked = query.micros;
            vec![after(answer(query, data(1, 512)), 40_000)]
        }
        Ok(Packet::Ack { block: 1 }) => {
            acknowledged.push(query.micros - asked);
            // The first acknowledgement is lost.
            let heard = acknowledged.len() > 1;
            let next = heard.then(|| answer(query, data(2, 7)));
            next.into_iter().collect()
        }
        _ => vec![],
    });
    assert_eq!(ended.bytes().len(), 519);
    let [first, second] = &acknowledged[..] else {
        panic!("{acknowledged:?}");
    };
    assert!((90_000..97_000).contains(first), "{acknowledged:?}");
    // Three round trips later.
    let waited = second - first;
    assert!((115_000..140_000).contains(&waited), "{acknowledged:?}");
}

/// What is lost behind the first block is missed by what that has told of the way, however long the server took for its options.
#[test]
fn the_first_block_tells_the_round_trip() {
    let mut acknowledged = Vec::new();
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => {
            let granted = answer(query, oack(&[("windowsize", "4")]));
            vec![after(granted, 500_000)]
        }
        Ok(Packet::Ack { block }) => {
            acknowledged.push(query.micros);
            let (len, micros) = if block == 0 { (512, 60_000) } else { (7, 0) };
            vec![after(answer(query, data(block + 1, len)), micros)]
        }
        _ => vec![],
    });
    assert_eq!(ended.bytes().len(), 519);
    // The block's way, and three round trips.
    let waited = acknowledged[1] - acknowledged[0];
    assert!((240_000..250_000).contains(&waited), "{acknowledged:?}");
}

/// The server repeats its options, as the acknowledgement was lost: the first block may answer either of two, and tells nothing.
#[test]
fn a_block_after_repeated_options_tells_no_round_trip() {
    let mut acknowledged = Vec::new();
    let ended = attacked(|query| {
        let granted = oack(&[("windowsize", "4"), ("slide", "2")]);
        match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) => vec![answer(query, granted)],
            Ok(Packet::Ack { block }) => {
                acknowledged.push(query.micros);
                match acknowledged.len() {
                    1 => vec![after(answer(query, granted), 900_000)],
                    2 => vec![after(answer(query, data(1, 512)), 10_000)],
                    _ => vec![answer(query, data(block + 1, 7))],
                }
            }
            _ => vec![],
        }
    });
    assert_eq!(ended.bytes().len(), 519);
    // The first time-out.
    let waited = acknowledged[2] - acknowledged[1];
    assert!((1_000_000..1_100_000).contains(&waited), "{acknowledged:?}");
}

#[test]
fn only_an_answer_chooses_the_transfer() {
    let ended = attacked(|query| {
        if !is_request(query) {
            return vec![];
        }
        // None of these answers a request.
        let noise = [
            vec![],
            vec![0],
            vec![0, 4, 0, 0],
            data(2, 5),
            data(0, 5),
            vec![0, 9, 1, 1],
        ];
        let mut answers: Vec<Datagram> = noise
            .into_iter()
            .map(|packet| {
                let mut noise = answer(query, packet);
                noise.source.set_port(4001);
                noise
            })
            .collect();
        answers.push(after(answer(query, data(1, 7)), 5_000));
        answers
    });
    assert_eq!(ended.bytes(), &data(1, 7)[4..]);
}

#[test]
fn an_oversized_block_and_data_after_the_last_block_change_nothing() {
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => vec![answer(
            query,
            oack(&[("blksize", "1000"), ("windowsize", "4")]),
        )],
        Ok(Packet::Ack { block: 0 }) => vec![
            answer(query, data(1, 1001)),
            after(answer(query, data(1, 1000)), 1000),
            after(answer(query, data(2, 1001)), 2000),
            after(answer(query, data(2, 600)), 3000),
            // In the same turn as the last block.
            after(answer(query, data(3, 1000)), 3000),
            after(answer(query, data(3, 1)), 3000),
        ],
        _ => vec![],
    });
    let mut expected = data(1, 1000)[4..].to_vec();
    expected.extend(&data(2, 600)[4..]);
    assert_eq!(ended.bytes(), expected);
    assert_eq!(ended.result.as_ref().unwrap().retransmissions, 0);
}

#[test]
fn data_after_the_last_block_in_one_burst_changes_nothing() {
    let mut transfer = midway();
    block(&mut transfer, 1, 1);
    let now = Instant::from_millis(1);
    transfer.data(2, Parts::new(&[&[1; 7]]), now);
    assert!(transfer.complete);
    for number in [3, 2] {
        transfer.data(number, Parts::new(&[&[2; 8]]), now);
    }
    assert_eq!((transfer.received, transfer.next), (15, 3));
    let memory = transfer.memory.as_ref().unwrap();
    assert!(memory.rest(0)[15..].iter().all(|&byte| byte == 0));
}

#[test]
fn more_than_was_asked_is_refused() {
    for option in [
        ("blksize", "1469"),
        ("blksize", "65464"),
        ("windowsize", "257"),
    ] {
        let ended = attacked(|query| {
            let granted = is_request(query).then(|| answer(query, oack(&[option])));
            granted.into_iter().collect()
        });
        let (name, value) = option;
        assert_eq!(
            ended.error(),
            format!("the TFTP server answers {name}={value}, which this client did not ask for")
        );
        assert!(ended.micros < SECOND);
    }
}

#[test]
fn a_server_that_answers_an_option_wrongly_is_asked_more_plainly() {
    let file: Vec<u8> = (0..5000).map(|at| (at / 7) as u8).collect();
    for (wrong, times) in [
        (("blksize", "1469"), 1),
        (("blksize", "7"), 2),
        (("windowsize", "0"), 1),
        (("windowsize", "none"), 2),
    ] {
        let (mut requests, mut refusals) = (0, 0);
        let mut serve = narrow(&file, 1500);
        let ended = attacked(|query| {
            refusals += usize::from(query.payload.starts_with(&[0, 5, 0, 8]));
            requests += usize::from(is_request(query));
            match (is_request(query), block_size(&query.payload)) {
                (true, _) if requests <= times => vec![answer(query, oack(&[wrong]))],
                // It has no options.
                (true, None) => vec![answer(query, data_of(&file, 1))],
                _ if requests > 2 => match Packet::parse(&query.payload) {
                    Ok(Packet::Ack { block }) => vec![answer(query, data_of(&file, block + 1))],
                    _ => vec![],
                },
                _ => serve(query),
            }
        });
        assert_eq!(ended.bytes(), file, "{wrong:?}");
        assert_eq!((requests, refusals), (times + 1, times), "{wrong:?}");
        assert!(ended.micros < SECOND, "{} us", ended.micros);
    }
}

#[test]
fn an_option_that_is_asked_for_no_more_is_refused() {
    let ended = attacked(|query| {
        let Ok(Packet::Rrq(request)) = Packet::parse(&query.payload) else {
            return vec![];
        };
        let asked = TransferOptions::from_request(request.options);
        let packet = match asked.window_size {
            Some(_) => [&[0, 5, 0, 8][..], b"no windows\0"].concat(),
            None => oack(&[("windowsize", "4")]),
        };
        vec![answer(query, packet)]
    });
    assert_eq!(
        ended.error(),
        "the TFTP server answers windowsize=4, which this client did not ask for"
    );
}

#[test]
fn a_repeated_option_acknowledgement_is_acknowledged_again() {
    // Our first acknowledgement is lost; the server, which repeats its OACK after 200 ms, waits for it.
    let mut acknowledgements = 0;
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => {
            let packet = oack(&[("blksize", "1468")]);
            vec![
                answer(query, packet.clone()),
                // Two of one are no sign of a loss.
                after(answer(query, packet.clone()), 1000),
                after(answer(query, packet), 200_000),
            ]
        }
        Ok(Packet::Ack { block: 0 }) => {
            acknowledgements += 1;
            let answered = (acknowledgements == 2).then(|| answer(query, data(1, 7)));
            answered.into_iter().collect()
        }
        _ => vec![],
    });
    assert_eq!(ended.bytes().len(), 7);
    // Before our own time-out of a second.
    assert!(
        (200_000..220_000).contains(&ended.micros),
        "{} us",
        ended.micros
    );
}

#[test]
fn the_first_server_that_answers_has_the_transfer() {
    for dead in [true, false] {
        let mut asked = Vec::new();
        let ended = attacked_at(&[SERVER, OTHER], |query| {
            let host = *query.destination.ip();
            if is_request(query) {
                asked.push((host, query.micros / 1000));
            }
            match host {
                SERVER if dead => vec![],
                _ if is_request(query) => vec![answer(query, data(1, 7))],
                _ => vec![],
            }
        });
        assert_eq!(ended.bytes().len(), 7);
        // The block waits 50 ms for another answer.
        let (host, limit) = if dead {
            (OTHER, 310_000)
        } else {
            (SERVER, 60_000)
        };
        assert_eq!(ended.servers, [SocketAddr::new(host.into(), 69)]);
        assert!(ended.micros < limit, "{} us", ended.micros);
        assert_eq!(asked.len(), 1 + usize::from(dead), "{asked:?}");
    }
    // The second answer is turned away.
    let mut turned_away = 0;
    let ended = attacked_at(&[SERVER, OTHER], |query| {
        let host = *query.destination.ip();
        turned_away += usize::from(host == OTHER && query.payload.starts_with(&[0, 5, 0, 5]));
        match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) => {
                let delay = if host == SERVER { 300_000 } else { 100_000 };
                vec![after(answer(query, data(1, 512)), delay)]
            }
            Ok(Packet::Ack { block: 1 }) => vec![after(answer(query, data(2, 7)), 200_000)],
            _ => vec![],
        }
    });
    assert_eq!(ended.bytes().len(), 519);
    assert_eq!(ended.servers, [SocketAddr::new(SERVER.into(), 69)]);
    assert!(turned_away > 0);
    // Nobody answers at all.
    let ended = attacked_at(&[SERVER, OTHER], |_| vec![]);
    let error = ended.error();
    assert!(
        error.starts_with("no answer from the TFTP server after 6 requests in 19 s"),
        "{error}"
    );
}

#[test]
fn a_host_without_a_server_is_reported_soon() {
    let ended = attacked(|query| vec![query.refused()]);
    let error = ended.error();
    assert!(
        error.starts_with("nobody listens on UDP port 69 of the TFTP server (asked 3 times)"),
        "{error}"
    );
    // Two waits, of a second and two.
    assert!((3_000_000..3_200_000).contains(&ended.micros));
    // Another address of the server does not wait for that.
    let ended = attacked_at(&[SERVER, OTHER], |query| {
        if !is_request(query) {
            return vec![];
        }
        match *query.destination.ip() {
            SERVER => vec![query.refused()],
            _ => vec![answer(query, data(1, 7))],
        }
    });
    assert_eq!(ended.bytes().len(), 7);
    assert!(ended.micros < 310_000, "{} us", ended.micros);
}

#[test]
fn windows_are_shared() {
    // 64 receive buffers for all that run at the same time.
    let window = |sharers: usize| {
        let transfer = Rc::new(RefCell::new(Transfer::new(&[], Instant::ZERO)));
        let (mut near, _far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
        let mut config = NicConfig::new(near.properties().mac);
        config.receive_frames = 64;
        near.configure(config);
        let engine = Engine::new(near, [1; 32]);
        let stack = engine.stack();
        let run = Run {
            stack: &stack,
            sharers,
            sizes: Sizes::default(),
            floor: Floor::default(),
            socket: stack.udp_with_sink(transfer.clone()),
            transfer,
            announced: None,
            long: false,
            ended: true,
        };
        run.options(&[], Ask::All, MAX_BLOCK_SIZE).window_size
    };
    let windows = [0, 1, 2, 4, 100].map(window);
    assert_eq!(windows, [Some(64), Some(64), Some(32), Some(16), Some(1)]);
}

#[test]
fn a_window_is_on_trial_for_four_windows() {
    let (mut near, _far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let mut config = NicConfig::new(near.properties().mac);
    config.receive_frames_reported = Some((8, 56));
    near.configure(config);
    let engine = Engine::new(near, [1; 32]);
    let stack = engine.stack();
    let transfer = Rc::new(RefCell::new(Transfer::new(&[], Instant::ZERO)));
    let run = Run {
        stack: &stack,
        sharers: 1,
        sizes: Sizes::default(),
        floor: Floor::default(),
        socket: stack.udp_with_sink(transfer.clone()),
        transfer: transfer.clone(),
        announced: None,
        long: false,
        ended: true,
    };
    // A block was lost when so many of a window of 8 are there.
    let failed = |window, blocks: u64| {
        transfer.borrow_mut().window = window;
        run.begin_trial();
        transfer.borrow_mut().next = blocks + 1;
        assert!(
            !run.transfer.borrow_mut().trial_failed(),
            "nothing was lost"
        );
        transfer.borrow_mut().retransmissions += 1;
        run.transfer.borrow_mut().trial_failed()
    };
    assert!(failed(8, 0) && failed(8, 31));
    assert!(!failed(8, 32) && !failed(8, 40));
    // One block at a time fits any buffers.
    assert!(!failed(1, 0));
}

#[test]
fn a_gap_is_reported_again_when_the_report_was_lost() {
    // A window that slides; block 2 is lost, and so is our first report of it. All that the server sends then is from beyond the gap.
    let mut reports = Vec::new();
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => {
            let options = [("blksize", "1468"), ("windowsize", "8"), ("slide", "4")];
            vec![answer(query, oack(&options))]
        }
        Ok(Packet::Ack { block: 0 }) => {
            let gap = |block: u16| after(answer(query, data(block, BLOCK)), 1000);
            vec![answer(query, data(1, BLOCK)), gap(3), gap(4)]
        }
        Ok(Packet::Ack { block: 1 }) => {
            reports.push(query.micros);
            match reports.len() {
                // The first report is lost; the second, by time-out, as well, and the server sends what slides in.
                1 => vec![],
                2 => vec![after(answer(query, data(5, BLOCK)), 1000)],
                _ => vec![answer(query, data(2, 7))],
            }
        }
        _ => vec![],
    });
    assert_eq!(ended.bytes().len(), BLOCK + 7);
    let again = reports[2] - reports[1];
    // At once, not by the next time-out.
    assert!(again < 5000, "{reports:?}");
}

#[test]
fn a_server_that_is_away_is_waited_for_with_patience() {
    let patience = |seconds| Limits {
        patience: Duration::from_secs(seconds),
        ..Limits::default()
    };
    // It says nothing; nobody listens; it sends a block and falls silent; it serves.
    let script = |query: &Datagram| {
        let serves = query.micros >= 150 * SECOND;
        match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) if query.micros < 50 * SECOND => vec![],
            Ok(Packet::Rrq(_)) if query.micros < 100 * SECOND => vec![query.refused()],
            Ok(Packet::Rrq(_)) => vec![answer(query, data(1, 512))],
            Ok(Packet::Ack { block: 1 }) if serves => vec![answer(query, data(2, 7))],
            _ => vec![],
        }
    };
    let ended = attacked_within(patience(200), &[SERVER], script);
    assert_eq!(ended.bytes().len(), 519);
    assert!(ended.micros >= 150 * SECOND, "{} us", ended.micros);
    let ended = attacked(script);
    assert!(ended.error().contains("no answer"), "{}", ended.error());
    assert!(ended.micros < 20 * SECOND, "{} us", ended.micros);
    // It ends: 19 s for the first requests, and as much for the last ones.
    let ended = attacked_within(patience(100), &[SERVER], |_| vec![]);
    assert!(ended.error().contains("no answer"), "{}", ended.error());
    let seconds = ended.micros / SECOND;
    assert!((119..=139).contains(&seconds), "{seconds} s");
    // What the server says is an answer.
    let refusal = [&[0, 5, 0, 1][..], b"none\0"].concat();
    let ended = attacked_within(patience(100), &[SERVER], |query| {
        vec![answer(query, refusal.clone())]
    });
    assert!(ended.error().contains("none"), "{}", ended.error());
    assert!(ended.micros < SECOND, "{} us", ended.micros);
}

/// A server that serves twice as much of the file as before is waited for anew. One that serves as much each time is not.
#[test]
fn patience_begins_anew_when_the_file_gets_on() {
    let file: Vec<u8> = (0..250_000).map(|at| (at / 7) as u8).collect();
    let limits = Limits {
        patience: Duration::from_secs(60),
        ..Limits::default()
    };
    // It begins to serve at these seconds, and falls silent behind so many blocks.
    let (mut transfers, mut blocks) = (0, 0);
    let ended = attacked_within(limits, &[SERVER], |query| {
        match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) => {
                let (second, most) = [(0, 200), (30, 450), (85, u16::MAX)][transfers];
                if query.micros < second * SECOND {
                    return vec![query.refused()];
                }
                transfers += 1;
                blocks = most;
                vec![answer(query, data_of(&file, 1))]
            }
            Ok(Packet::Ack { block }) if block < blocks => {
                vec![answer(query, data_of(&file, block + 1))]
            }
            _ => vec![],
        }
    });
    assert_eq!(ended.bytes(), file);
    assert!(ended.micros > 85 * SECOND, "{} us", ended.micros);
    let ended = attacked_within(limits, &[SERVER], |query| {
        match Packet::parse(&query.payload) {
            Ok(Packet::Rrq(_)) => vec![answer(query, data_of(&file, 1))],
            Ok(Packet::Ack { block }) if block < 200 => {
                vec![answer(query, data_of(&file, block + 1))]
            }
            _ => vec![],
        }
    });
    assert!(ended.error().contains("fell silent"), "{}", ended.error());
    // Three attempts of 10 s, the patience, and one more.
    assert!(ended.micros < 115 * SECOND, "{} us", ended.micros);
}

#[test]
fn a_server_that_sends_no_block_says_nothing_of_the_path() {
    // To all requests it agrees.
    let ended = attacked(narrow(&[7; 5000], 300));
    let error = ended.error();
    assert!(error.contains("no block of the file arrives"), "{error}");
    assert_eq!(ended.path_mtu, 1500);
}

#[test]
fn a_first_block_that_is_small_may_take_longer() {
    let ended = attacked(|query| match Packet::parse(&query.payload) {
        Ok(Packet::Rrq(_)) => vec![answer(query, oack(&[("blksize", "512")]))],
        Ok(Packet::Ack { block: 0 }) => vec![after(answer(query, data(1, 7)), 5 * SECOND)],
        _ => vec![],
    });
    assert_eq!(ended.bytes().len(), 7);
    assert_eq!(ended.micros / SECOND, 5);
}
