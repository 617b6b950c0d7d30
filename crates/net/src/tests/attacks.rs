//! Segments that a download must not be changed by, at the wire of the running engine, over both IP versions.

use super::forged::{Bench, FIRST, Forged, LEN, OPTIONS, STEP};
use super::{Version, pattern};
use crate::{IpAddr, Memory, NetError, Region};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;
use std::vec;
use std::vec::Vec;
use wireboot_tcp::{Duration, Flags};

fn each(test: impl Fn(Bench)) {
    for version in Version::BOTH {
        test(Bench::downloading(version));
    }
}

/// Numbers that look random, the same each time.
fn random() -> impl Iterator<Item = u32> {
    let next = |state: &u64| {
        let state = state.wrapping_mul(6_364_136_223_846_793_005);
        Some(state.wrapping_add(1_442_695_040_888_963_407))
    };
    core::iter::successors(Some(1_u64), next).map(|state| (state >> 32) as u32)
}

/// Another host's or nobody's address on the link.
fn stranger(version: Version) -> IpAddr {
    match version {
        Version::V4 => IpAddr::from([10, 0, 0, 77]),
        Version::V6 => "fe80::77".parse().unwrap(),
    }
}

fn changed(forged: &Forged, change: impl FnOnce(&mut Forged)) -> Vec<u8> {
    let mut forged = forged.clone();
    change(&mut forged);
    forged.frame()
}

#[test]
fn data_with_an_acknowledgement_of_what_was_never_sent() {
    each(|mut bench| {
        let forged = bench.forged();
        // The window that the host told is 65,535 bytes at most.
        let wrong = [1, 2, 1000, 1 << 31, 0_u32.wrapping_sub(100_000)];
        let frames = wrong.map(|by| changed(&forged, |f| f.ack = f.ack.wrapping_add(by)));
        bench.ignores("acknowledgement", frames);
        bench.ignores("none at all", [changed(&forged, |f| f.flags = Flags::PSH)]);
        bench.ignores("no flags", [changed(&forged, |f| f.flags = Flags::NONE)]);
        bench.finishes();
    });
}

#[test]
fn data_to_another_address() {
    each(|mut bench| {
        let forged = bench.forged();
        let port = forged.destination.port();
        let all: &[&str] = match bench.version {
            Version::V4 => &[
                "10.0.0.77",
                "10.0.0.255",
                "255.255.255.255",
                "224.0.0.1",
                "0.0.0.0",
            ],
            Version::V6 => &[
                "fe80::77",
                "ff02::1",
                "ff02::1:ff00:a",
                "2001:db8::1",
                "::",
                "::1",
            ],
        };
        for address in all {
            let to = SocketAddr::new(address.parse().unwrap(), port);
            bench.ignores(address, [changed(&forged, |f| f.destination = to)]);
        }
        bench.finishes();
    });
}

#[test]
fn data_to_many_stations_or_another() {
    each(|mut bench| {
        let forged = bench.forged();
        for mac in [
            [0xff; 6],
            [1, 0, 0x5e, 0, 0, 1],
            [0x33, 0x33, 0, 0, 0, 1],
            [0x33, 0x33, 0xff, 0, 0, 0x0a],
            [3, 0, 0, 0, 0, 0x0a],
            [2, 0, 0, 0, 0, 0x0c],
        ] {
            bench.ignores("Ethernet address", [changed(&forged, |f| f.to = mac)]);
        }
        bench.finishes();
    });
}

#[test]
fn data_beyond_the_window() {
    each(|mut bench| {
        let forged = bench.forged();
        let (rcv_nxt, rcv_wnd) = bench.window();
        assert!(rcv_wnd > 0);
        for by in [rcv_wnd, rcv_wnd + 1, 1 << 30, 1 << 31] {
            let seq = rcv_nxt.wrapping_add(by);
            bench.ignores("beyond", [changed(&forged, |f| f.seq = seq)]);
        }
        bench.finishes();
    });
}

/// Somebody who knows the four-tuple sends a segment to each place in the window and guesses acknowledgements.
#[test]
fn a_blind_spray_of_the_whole_window() {
    each(|mut bench| {
        let forged = bench.forged();
        let (rcv_nxt, rcv_wnd) = bench.window();
        let mut guesses = random();
        let places: Vec<u32> = (0..rcv_wnd).step_by(STEP).chain([rcv_wnd - 1]).collect();
        let mut frames = Vec::new();
        for by in places {
            for _ in 0..2 {
                let (seq, ack) = (rcv_nxt.wrapping_add(by), guesses.next().unwrap());
                frames.push(changed(&forged, |f| (f.seq, f.ack) = (seq, ack)));
            }
        }
        assert!(frames.len() > 100);
        bench.ignores("spray", frames);
        let answers = bench.segments().len();
        assert!(answers <= 10, "{answers} challenges");
        bench.finishes();
    });
}

/// RFC 5961, sections 3 and 4: a RST or SYN that may be the peer's is answered, and what it says is not believed.
#[test]
fn resets_and_syns_near_the_next_number() {
    each(|mut bench| {
        let forged = bench.forged();
        let (rcv_nxt, rcv_wnd) = bench.window();
        for flags in [
            Flags::RST,
            Flags::RST | Flags::ACK,
            Flags::SYN,
            Flags::SYN | Flags::ACK,
            Flags::SYN | Flags::RST,
        ] {
            let synchronizes = flags.contains(Flags::SYN) && !flags.contains(Flags::RST);
            for (by, challenged) in [
                (0_u32.wrapping_sub(1), synchronizes),
                (0_u32.wrapping_sub(5000), synchronizes),
                (1, true),
                (STEP as u32, true),
                (rcv_wnd - 1, true),
                (rcv_wnd, synchronizes),
                (1 << 31, synchronizes),
            ] {
                for len in [0, STEP] {
                    bench.clock.advance(1_000_000);
                    bench.settle();
                    bench.heard.clear();
                    let frame = changed(&forged, |f| {
                        (f.flags, f.seq) = (flags, rcv_nxt.wrapping_add(by));
                        f.payload.truncate(len);
                    });
                    bench.ignores("control bits", [frame]);
                    let answers: Vec<Flags> = bench.segments().iter().map(|s| s.0.2).collect();
                    let expected: &[Flags] = if challenged { &[Flags::ACK] } else { &[] };
                    assert_eq!(answers, expected, "{flags:?} at {by}");
                }
            }
        }
        let syn = |f: &mut Forged| f.flags = Flags::SYN;
        bench.ignores("a SYN at the next number", [changed(&forged, syn)]);
        bench.finishes();
    });
}

#[test]
fn a_reset_with_text_at_the_next_number_ends_it_and_its_text_is_nothing() {
    for len in [0, STEP] {
        each(|mut bench| {
            let mut reset = bench.forged();
            reset.flags = Flags::RST | Flags::ACK;
            reset.payload.truncate(len);
            bench.send(&reset.frame());
            bench.settle();
            // What came before is handed over; the error follows.
            assert_eq!(*bench.done.borrow(), Some(Ok(10 * STEP)));
        });
    }
}

#[test]
fn a_fin_of_a_stranger() {
    each(|mut bench| {
        let mut fin = bench.forged();
        fin.flags = Flags::FIN | Flags::ACK;
        let (rcv_nxt, rcv_wnd) = bench.window();
        for len in [0, STEP] {
            fin.payload.truncate(len);
            let wrong = |f: &mut Forged| f.ack = f.ack.wrapping_add(1);
            bench.ignores("wrong acknowledgement", [changed(&fin, wrong)]);
            for by in [rcv_wnd, 1 << 31, 0_u32.wrapping_sub(2000)] {
                let seq = rcv_nxt.wrapping_add(by);
                bench.ignores("outside", [changed(&fin, |f| f.seq = seq)]);
            }
            bench.ignores("no ACK", [changed(&fin, |f| f.flags = Flags::FIN)]);
        }
        bench.finishes();
    });
}

#[test]
fn what_was_delivered_is_never_written_again() {
    each(|mut bench| {
        let forged = bench.forged();
        for (back, len) in [(1, 1), (1000, 1000), (10_000, 1000), (5000, 1300)] {
            let old = |f: &mut Forged| {
                f.seq = f.seq.wrapping_sub(back);
                f.payload = vec![b'!'; len];
            };
            bench.ignores("old bytes", [changed(&forged, old)]);
        }
        // Other old bytes, and then the right next ones.
        let mut next = bench.segment(700);
        next.seq = next.seq.wrapping_sub(500);
        next.payload.splice(0..0, [b'!'; 500]);
        bench.send(&next.frame());
        bench.position += 700;
        bench.settle();
        assert_eq!(bench.window().0, FIRST.wrapping_add(10_700));
        bench.finishes();
    });
}

#[test]
fn what_lies_behind_a_gap_is_not_written_again_before_the_gap_is_filled() {
    each(|mut bench| {
        let at = bench.position;
        bench.position = at + STEP;
        bench.go_on();
        bench.position = at;
        bench.settle();
        assert_eq!(bench.out_of_order(), 2 * STEP as u32);
        let mut forged = bench.forged();
        forged.seq = forged.seq.wrapping_add(STEP as u32);
        bench.ignores("behind a gap", [forged.frame()]);
        bench.finishes();
    });
}

#[test]
fn wrong_checksums() {
    each(|mut bench| {
        let frame = bench.forged().frame();
        let transport = match bench.version {
            Version::V4 => 34,
            Version::V6 => 54,
        };
        for at in [
            transport + 16,
            transport + 17,
            transport + 4,
            frame.len() - 1,
        ] {
            let mut wrong = frame.clone();
            wrong[at] ^= 1;
            bench.ignores("TCP checksum", [wrong]);
        }
        if bench.version == Version::V4 {
            // Of the header alone: identification, time to live, checksum.
            for at in [14 + 4, 14 + 8, 14 + 10, 14 + 11] {
                let mut wrong = frame.clone();
                wrong[at] ^= 1;
                bench.ignores("IP checksum", [wrong]);
            }
        }
        bench.finishes();
    });
}

#[test]
fn lengths_that_are_not_true() {
    each(|mut bench| {
        let frame = bench.forged().frame();
        let (ip_len, transport) = match bench.version {
            Version::V4 => (16, 34),
            Version::V6 => (18, 54),
        };
        let len = u16::from_be_bytes([frame[ip_len], frame[ip_len + 1]]);
        for wrong_len in [0, 19, 20, 39, len - 1, len + 1, u16::MAX] {
            let mut wrong = frame.clone();
            wrong[ip_len..ip_len + 2].copy_from_slice(&wrong_len.to_be_bytes());
            if bench.version == Version::V4 {
                wrong[24..26].fill(0);
                let sum = crate::checksum::compute(0, &wrong[14..34]).to_be_bytes();
                wrong[24..26].copy_from_slice(&sum);
            }
            bench.ignores("IP length", [wrong]);
        }
        for words in [0, 4, 15] {
            let mut wrong = frame.clone();
            wrong[transport + 12] = words << 4;
            bench.ignores("TCP header length", [wrong]);
        }
        for end in [0, 13, 14, 33, 34, 53, 54, 60, frame.len() - 1] {
            bench.ignores("cut", [frame[..end].to_vec()]);
        }
        bench.finishes();
    });
}

/// All but the segment is right: it belongs to no connection, and is answered with a reset.
#[test]
fn another_port_or_source_address() {
    each(|mut bench| {
        let forged = bench.forged();
        let stranger = SocketAddr::new(stranger(bench.version), forged.source.port());
        let other = |port: u16| if port == 50_000 { 50_001 } else { 50_000 };
        bench.ignores("source port", [changed(&forged, |f| f.source.set_port(81))]);
        let port = other(forged.destination.port());
        bench.ignores("port", [changed(&forged, |f| f.destination.set_port(port))]);
        bench.ignores("source", [changed(&forged, |f| f.source = stranger)]);
        let swapped = |f: &mut Forged| core::mem::swap(&mut f.source, &mut f.destination);
        bench.ignores("our own", [changed(&forged, swapped)]);
        bench.finishes();
    });
}

/// An IPv6 packet between the mapped addresses (RFC 4291, section 2.5.5.2) of an IPv4 connection.
#[test]
fn mapped_addresses_are_nobodys() {
    let mut bench = Bench::downloading(Version::V4);
    bench.stack.ipv6_up();
    bench.settle();
    let forged = bench.forged();
    let mapped = |end: &mut SocketAddr| match end.ip() {
        IpAddr::V4(address) => end.set_ip(address.to_ipv6_mapped().into()),
        IpAddr::V6(_) => {}
    };
    for (source, destination) in [(true, true), (true, false), (false, true)] {
        let frame = changed(&forged, |f| {
            if source {
                mapped(&mut f.source);
            }
            if destination {
                mapped(&mut f.destination);
            }
        });
        bench.ignores("mapped", [frame]);
    }
    bench.finishes();
}

/// Acknowledgements of what was not sent do not make it faster (optimistic acknowledgements), and free nothing.
#[test]
fn acknowledgements_ahead_of_the_data() {
    for version in Version::BOTH {
        let mut bench = Bench::silent(version);
        let stack = bench.stack.clone();
        let sent = Rc::new(RefCell::new(None));
        let out = sent.clone();
        bench.engine.spawn(async move {
            let server = version.server();
            let mut stream = stack.connect(server, Duration::from_secs(1)).await.unwrap();
            let region = Region::new(Memory::from(pattern(LEN)));
            *out.borrow_mut() = Some(stream.send_from(&region, 0, LEN).await);
            core::future::pending().await
        });
        bench.handshake(&OPTIONS);
        let first = bench.segments();
        let bytes: usize = first.iter().map(|(numbers, _)| numbers.4).sum();
        // The initial window (RFC 6928), of segments of 1400 bytes.
        assert_eq!(bytes, 14_000);
        bench.heard.clear();
        let pure = bench.segment(0);
        for by in [1, 1400, 20_000, 1 << 30, 1 << 31] {
            bench.ignores(
                "ahead",
                [changed(&pure, |f| f.ack = f.ack.wrapping_add(by))],
            );
        }
        let again: usize = bench.segments().iter().map(|(numbers, _)| numbers.4).sum();
        assert_eq!(again, 0);
        assert_eq!(*sent.borrow(), None);
        // What was sent is acknowledged: slow start goes on.
        bench.send(&pure.frame());
        bench.settle();
        let more: usize = bench.segments().iter().map(|(numbers, _)| numbers.4).sum();
        assert_eq!(more, 28_000);
    }
}

#[test]
fn data_with_other_flags() {
    // The urgent pointer means nothing here: the bytes are text like any other.
    each(|mut bench| {
        let mut urgent = bench.segment(STEP);
        urgent.flags = Flags::ACK | Flags::URG;
        bench.send(&urgent.frame());
        bench.position += STEP;
        bench.finishes();
    });
    // A FIN ends the file behind its text.
    each(|mut bench| {
        let mut fin = bench.segment(STEP);
        fin.flags = Flags::ACK | Flags::FIN | Flags::PSH;
        bench.send(&fin.frame());
        bench.settle();
        assert_eq!(*bench.done.borrow(), Some(Ok(11 * STEP)));
        assert_eq!(bench.window().0, FIRST.wrapping_add(11_001));
    });
    // A FIN before a gap is filled does not.
    each(|mut bench| {
        let mut fin = bench.segment(2 * STEP);
        fin.payload.drain(..STEP);
        fin.seq = fin.seq.wrapping_add(STEP as u32);
        fin.flags = Flags::ACK | Flags::FIN;
        bench.send(&fin.frame());
        bench.settle();
        assert_eq!(*bench.done.borrow(), None);
        bench.go_on();
        bench.settle();
        assert_eq!(*bench.done.borrow(), Some(Ok(12 * STEP)));
    });
}

#[test]
fn data_that_brings_news_for_what_was_sent() {
    for version in Version::BOTH {
        let mut bench = Bench::with(version, &OPTIONS, false);
        let request = bench.ack;
        assert_eq!(bench.snd_una(), request.wrapping_sub(7));
        bench.go_on();
        assert_eq!(bench.snd_una(), request);
        bench.finishes();
    }
}

#[test]
fn gaps_are_told_by_their_edges() {
    each(|mut bench| {
        bench.position += STEP;
        let start = FIRST.wrapping_add(bench.position as u32);
        bench.go_on();
        bench.go_on();
        bench.settle();
        let (numbers, options) = bench.segments().pop().unwrap();
        assert_eq!(numbers.1, start.wrapping_sub(STEP as u32));
        let mut block = vec![1, 1, 5, 10];
        block.extend(start.to_be_bytes());
        block.extend(start.wrapping_add(2 * STEP as u32).to_be_bytes());
        assert_eq!(options, block);
    });
}

/// RFC 7323, section 2.2, and RFC 2018, section 2.
#[test]
fn nothing_is_used_that_the_peer_does_not_know() {
    for version in Version::BOTH {
        let mut bench = Bench::with(version, &[2, 4, 5, 120], true);
        bench.position += STEP;
        bench.go_on();
        bench.settle();
        let segments = bench.segments();
        assert!(!segments.is_empty());
        assert!(segments.iter().all(|(_, options)| options.is_empty()));
        let (_, rcv_wnd) = bench.window();
        let told = segments.last().unwrap().0.3;
        assert_eq!(u32::from(told), rcv_wnd);
        bench.position -= 2 * STEP;
        bench.finishes();
    }
}

/// The host watches that no window moves back ([`Bench`]).
#[test]
fn memory_that_shrinks_does_not_take_a_promise_back() {
    each(|mut bench| {
        let (rcv_nxt, rcv_wnd) = bench.window();
        assert!(rcv_wnd as usize > 10 * STEP);
        bench.shorten(15 * STEP);
        for _ in 0..8 {
            bench.go_on();
            bench.settle();
        }
        assert!(bench.segments().len() >= 8);
        assert_eq!(*bench.done.borrow(), Some(Ok(15 * STEP)));
        assert_eq!(bench.window().0, rcv_nxt.wrapping_add(8 * STEP as u32));
    });
}

#[test]
fn a_dropped_stream_is_reset() {
    for closes in [false, true] {
        for version in Version::BOTH {
            let mut bench = Bench::silent(version);
            let stack = bench.stack.clone();
            bench.engine.spawn(async move {
                let server = version.server();
                let stream = stack.connect(server, Duration::from_secs(1)).await;
                let mut stream = stream.unwrap();
                if closes {
                    stream.close();
                }
            });
            bench.handshake(&OPTIONS);
            let (numbers, _) = bench.segments().pop().unwrap();
            let (flags, seq) = (numbers.2, numbers.0);
            if closes {
                assert_eq!(flags, Flags::FIN | Flags::ACK);
            } else {
                assert_eq!(flags, Flags::RST | Flags::ACK);
                assert_eq!(seq, bench.ack);
                // It is forgotten: what comes still is answered as for any closed port.
                bench.heard.clear();
                bench.send(&bench.segment(STEP).frame());
                bench.settle();
                let (numbers, _) = bench.segments().pop().unwrap();
                assert_eq!((numbers.0, numbers.2), (bench.ack, Flags::RST));
            }
        }
    }
}

/// Segments to ports that nobody has are refused, so many in a turn and no more; resets never.
#[test]
fn strangers_are_refused() {
    each(|mut bench| {
        let mut syn = bench.segment(0);
        (syn.flags, syn.seq, syn.ack) = (Flags::SYN, 7, 0);
        syn.destination.set_port(22);
        for flags in [Flags::RST, Flags::RST | Flags::ACK] {
            bench.ignores("a reset", [changed(&syn, |f| f.flags = flags)]);
        }
        assert!(bench.heard.is_empty());
        bench.ignores("a SYN", [syn.frame()]);
        let heard = core::mem::take(&mut bench.heard);
        let (_, _, numbers, _) = super::forged::tcp(&heard[0]).unwrap();
        assert_eq!((heard.len(), numbers.0, numbers.1), (1, 0, 8));
        assert_eq!(numbers.2, Flags::RST | Flags::ACK);
        for port in 1..=30 {
            bench.send(&changed(&syn, |f| f.destination.set_port(port)));
        }
        // All are there at the next turn.
        bench.clock.advance(200);
        bench.settle();
        assert!(
            (1..=4).contains(&bench.heard.len()),
            "{}",
            bench.heard.len()
        );
        bench.finishes();
    });
}

/// The length of the shortest linear feedback shift register that makes these bits (Berlekamp and Massey): about half as many for
/// random bits, the size of its state for a generator that is linear over bits.
fn linear_complexity(bits: &[bool]) -> usize {
    let (mut c, mut b) = (vec![false; bits.len() + 1], vec![false; bits.len() + 1]);
    (c[0], b[0]) = (true, true);
    let (mut len, mut last) = (0, usize::MAX);
    for n in 0..bits.len() {
        let wrong = (0..=len).fold(false, |sum, i| sum ^ (c[i] & bits[n - i]));
        if !wrong {
            continue;
        }
        let before = c.clone();
        let shift = n.wrapping_sub(last);
        for i in 0..b.len().saturating_sub(shift) {
            c[i + shift] ^= b[i];
        }
        if len <= n / 2 {
            (len, last, b) = (n + 1 - len, n, before);
        }
    }
    len
}

/// What 1000 connections tell of the next one: nothing (CVE-2023-45236).
#[test]
fn initial_sequence_numbers_cannot_be_foretold() {
    const COUNT: usize = 1000;
    for version in Version::BOTH {
        let mut bench = Bench::silent(version);
        let stack = bench.stack.clone();
        bench.engine.spawn(async move {
            for _ in 0..COUNT {
                let refused = stack
                    .connect(version.server(), Duration::from_secs(1))
                    .await;
                assert_eq!(refused.err(), Some(NetError::Refused));
            }
        });
        let (mut isns, mut ports) = (Vec::new(), Vec::new());
        while isns.len() < COUNT {
            bench.turn();
            for frame in core::mem::take(&mut bench.heard) {
                let Some((us, _, numbers, _)) = super::forged::tcp(&frame) else {
                    continue;
                };
                if numbers.2 == Flags::SYN {
                    isns.push(numbers.0);
                    ports.push(us.port());
                    bench.us = us;
                    let mut refusal = bench.segment(0);
                    refusal.flags = Flags::RST | Flags::ACK;
                    refusal.ack = numbers.0.wrapping_add(1);
                    bench.send(&refusal.frame());
                }
            }
        }
        let steps = |of: &[u32]| -> Vec<u32> {
            of.windows(2)
                .map(|pair| pair[1].wrapping_sub(pair[0]))
                .collect()
        };
        let (first, second) = (steps(&isns), steps(&steps(&isns)));
        for numbers in [&isns, &first, &second] {
            let mut distinct = numbers.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert!(distinct.len() > COUNT - 5, "{} distinct", distinct.len());
            // Chi-squared with 15 degrees of freedom: above 60 once in 10^6 times.
            let mut counts = [0_i32; 16];
            numbers.iter().for_each(|n| counts[(n >> 28) as usize] += 1);
            let expected = numbers.len() as f64 / 16.0;
            let distance = |count: &i32| (f64::from(*count) - expected).powi(2) / expected;
            let chi: f64 = counts.iter().map(distance).sum();
            assert!(chi < 60.0, "{chi}");
        }
        // x' = a x + c, guessed from four in a row where they tell a.
        let inverse = |odd: u32| {
            (0..5).fold(odd, |x, _| {
                x.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(x)))
            })
        };
        let mut guessed = 0;
        for three in first.windows(3).filter(|three| three[0] % 2 == 1) {
            let a = three[1].wrapping_mul(inverse(three[0]));
            guessed += usize::from(a.wrapping_mul(three[1]) == three[2]);
        }
        assert!(guessed <= 1, "{guessed} foretold");
        for bit in [0, 7, 16, 31] {
            let bits: Vec<bool> = isns.iter().map(|n| n >> bit & 1 == 1).collect();
            let complexity = linear_complexity(&bits);
            assert!(
                complexity.abs_diff(COUNT / 2) < 20,
                "bit {bit}: {complexity}"
            );
        }
        let (low, high) = (ports.iter().min().unwrap(), ports.iter().max().unwrap());
        assert!(*low >= 49_152 && high - low > 15_000, "{low} to {high}");
        let bits: Vec<bool> = ports.iter().map(|port| port & 1 == 1).collect();
        assert!(linear_complexity(&bits).abs_diff(COUNT / 2) < 20);
    }
}

#[test]
fn the_measure_of_linear_generators_finds_one() {
    // x^16 + x^14 + x^13 + x^11 + 1.
    let step = |state: &u16| {
        let bit = (state ^ (state >> 2) ^ (state >> 3) ^ (state >> 5)) & 1;
        Some((state >> 1) | (bit << 15))
    };
    let bits = core::iter::successors(Some(0xace1_u16), step).map(|state| state & 1 == 1);
    assert_eq!(linear_complexity(&bits.take(200).collect::<Vec<_>>()), 16);
}
