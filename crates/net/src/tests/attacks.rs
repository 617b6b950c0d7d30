//! Segments that a download must not be changed by, at the wire of the running engine, over both IP versions.

use super::forged::{Bench, FIRST, Forged, LEN, OPTIONS, STEP};
use super::{IpVersion, pattern};
use crate::{IpAddr, Memory, Region};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;
use std::vec;
use std::vec::Vec;
use wireboot_tcp::{Duration, Flags};

pub(super) fn each(test: impl Fn(Bench)) {
    for version in IpVersion::BOTH {
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
fn stranger(version: IpVersion) -> IpAddr {
    match version {
        IpVersion::V4 => IpAddr::from([10, 0, 0, 77]),
        IpVersion::V6 => "fe80::77".parse().unwrap(),
    }
}

pub(super) fn changed(forged: &Forged, change: impl FnOnce(&mut Forged)) -> Vec<u8> {
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
            IpVersion::V4 => &[
                "10.0.0.77",
                "10.0.0.255",
                "255.255.255.255",
                "224.0.0.1",
                "0.0.0.0",
            ],
            IpVersion::V6 => &[
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
                    bench.run_until_idle();
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
        bench.run_until_idle();
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
        bench.run_until_idle();
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
            IpVersion::V4 => 34,
            IpVersion::V6 => 54,
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
        if bench.version == IpVersion::V4 {
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
            IpVersion::V4 => (16, 34),
            IpVersion::V6 => (18, 54),
        };
        let len = u16::from_be_bytes([frame[ip_len], frame[ip_len + 1]]);
        for wrong_len in [0, 19, 20, 39, len - 1, len + 1, u16::MAX] {
            let mut wrong = frame.clone();
            wrong[ip_len..ip_len + 2].copy_from_slice(&wrong_len.to_be_bytes());
            if bench.version == IpVersion::V4 {
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
    let mut bench = Bench::downloading(IpVersion::V4);
    bench.stack.ipv6_up();
    bench.run_until_idle();
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
    for version in IpVersion::BOTH {
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
        bench.run_until_idle();
        let more: usize = bench.segments().iter().map(|(numbers, _)| numbers.4).sum();
        assert_eq!(more, 28_000);
    }
}
