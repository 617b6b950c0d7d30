//! What segments of the peer mean to a download, and what the engine says to it, over both IP versions.

use super::attacks::{changed, each};
use super::forged::{Bench, FIRST, LEN, OPTIONS, STEP, tcp};
use super::{IpVersion, pattern};
use crate::packet::Ends;
use crate::{Memory, NetError, Region};
use alloc::rc::Rc;
use core::cell::RefCell;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;
use wireboot_tcp::{Duration, Flags, Instant, State};

#[test]
fn a_reset_with_text_at_the_next_number_ends_it_and_its_text_is_nothing() {
    for len in [0, STEP] {
        each(|mut bench| {
            let mut reset = bench.forged();
            reset.flags = Flags::RST | Flags::ACK;
            reset.payload.truncate(len);
            bench.send(&reset.frame());
            bench.run_until_idle();
            // What came before is handed over; the error follows.
            assert_eq!(*bench.done.borrow(), Some(Ok(10 * STEP)));
        });
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
        bench.run_until_idle();
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
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), None);
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), Some(Ok(12 * STEP)));
    });
}

#[test]
fn data_that_brings_news_for_what_was_sent() {
    for version in IpVersion::BOTH {
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
        bench.run_until_idle();
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
    for version in IpVersion::BOTH {
        let mut bench = Bench::with(version, &[2, 4, 5, 120], true);
        bench.position += STEP;
        bench.go_on();
        bench.run_until_idle();
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
            bench.run_until_idle();
        }
        assert!(bench.segments().len() >= 8);
        assert_eq!(*bench.done.borrow(), Some(Ok(15 * STEP)));
        assert_eq!(bench.window().0, rcv_nxt.wrapping_add(8 * STEP as u32));
    });
}

/// What lies behind a gap there may be in what is somebody else's part now: it has to come again.
#[test]
fn memory_that_shrinks_keeps_nothing_behind_a_gap() {
    each(|mut bench| {
        bench.position += STEP;
        bench.go_on();
        bench.run_until_idle();
        assert_ne!(bench.out_of_order(), 0);
        bench.shorten(11 * STEP + 500);
        bench.position -= 2 * STEP;
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(bench.out_of_order(), 0);
        assert_eq!(bench.window().0, FIRST.wrapping_add(11 * STEP as u32));
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(bench.window().0, FIRST.wrapping_add(12 * STEP as u32));
        assert_eq!(*bench.done.borrow(), Some(Ok(11 * STEP + 500)));
    });
}

/// What lies behind a gap and before both ends is where it was, and nobody else's: it stays.
#[test]
fn an_end_that_moves_elsewhere_takes_nothing_from_behind_a_gap() {
    for (before, after) in [(LEN, 13 * STEP), (13 * STEP, LEN)] {
        each(|mut bench| {
            bench.shorten(before);
            bench.position += STEP;
            bench.go_on();
            bench.run_until_idle();
            assert_ne!(bench.out_of_order(), 0);
            bench.shorten(after);
            bench.position -= 2 * STEP;
            bench.go_on();
            bench.run_until_idle();
            assert_eq!(bench.window().0, FIRST.wrapping_add(12 * STEP as u32));
            bench.shorten(LEN);
            bench.position += STEP;
            bench.finishes();
        });
    }
}

/// What lies beyond the end is held elsewhere: it has to come again to its place in the longer memory.
#[test]
fn memory_that_grows_keeps_nothing_that_lay_beyond_its_end() {
    each(|mut bench| {
        bench.shorten(11 * STEP + 500);
        bench.position += STEP;
        bench.go_on();
        bench.run_until_idle();
        assert_ne!(bench.out_of_order(), 0);
        bench.shorten(LEN);
        bench.position -= 2 * STEP;
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(bench.out_of_order(), 0);
        assert_eq!(bench.window().0, FIRST.wrapping_add(11 * STEP as u32));
        bench.finishes();
    });
}

/// The memory is the reader's again: what comes later is not written there, and what lay behind a gap there comes again.
#[test]
fn a_reader_that_gave_up_reads_the_rest_elsewhere() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let (stack, done) = (bench.stack.clone(), bench.done.clone());
        let rest = Rc::new(RefCell::new(Vec::new()));
        let (region, out) = (Region::new(Memory::from(vec![0; LEN])), rest.clone());
        let memory = region.clone();
        bench.engine.spawn(async move {
            let stream = stack
                .connect(version.server(), Duration::from_secs(1))
                .await;
            let mut stream = stream.unwrap();
            stream.set_idle_timeout(Duration::from_secs(5));
            *done.borrow_mut() = Some(stream.read_into(&region, 0).await);
            loop {
                let consume = |bytes: &[u8]| {
                    out.borrow_mut().extend_from_slice(bytes);
                    bytes.len()
                };
                let _ = stream.read(consume).await;
                stack.next_turn().await;
            }
        });
        bench.handshake(&OPTIONS);
        bench.go_on();
        bench.go_on();
        bench.position += STEP;
        bench.go_on();
        bench.clock.advance(6_000_000);
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), Some(Ok(2 * STEP)));
        let before = memory.with(0, |bytes| bytes.to_vec());
        bench.position = 2 * STEP;
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(bench.window().0, FIRST.wrapping_add(3 * STEP as u32));
        bench.go_on();
        bench.run_until_idle();
        assert_eq!(*rest.borrow(), pattern(LEN)[2 * STEP..4 * STEP]);
        assert_eq!(memory.with(0, |bytes| bytes.to_vec()), before);
    }
}

/// A body without a length would count as whole.
#[test]
fn a_download_whose_address_is_lost_is_not_at_its_end() {
    let mut bench = Bench::silent(IpVersion::V4);
    let (stack, done) = (bench.stack.clone(), bench.done.clone());
    bench.engine.spawn(async move {
        let server = IpVersion::V4.server();
        let stream = stack.connect(server, Duration::from_secs(1)).await;
        let read = stream.unwrap().read(<[u8]>::len).await;
        *done.borrow_mut() = Some(read);
    });
    bench.handshake(&OPTIONS);
    bench.stack.unconfigure();
    // Where the path leads is asked once a second.
    bench.clock.advance(1_000_000);
    bench.run_until_idle();
    assert_eq!(*bench.done.borrow(), Some(Err(NetError::Reset)));
}

#[test]
fn a_reader_of_nothing_is_told_why() {
    let ends = [
        (Flags::RST | Flags::ACK, Err(NetError::Reset)),
        (Flags::FIN | Flags::ACK, Ok(0)),
        (Flags::ACK, Err(NetError::TimedOut)),
    ];
    for (flags, expected) in ends {
        for version in IpVersion::BOTH {
            let mut bench = Bench::silent(version);
            let (stack, done) = (bench.stack.clone(), bench.done.clone());
            bench.engine.spawn(async move {
                let stream = stack
                    .connect(version.server(), Duration::from_secs(1))
                    .await;
                let mut stream = stream.unwrap();
                stream.set_idle_timeout(Duration::from_secs(5));
                let region = Region::new(Memory::from(vec![0; LEN]));
                *done.borrow_mut() = Some(stream.read_into(&region, 0).await);
            });
            bench.handshake(&OPTIONS);
            let mut end = bench.segment(0);
            end.flags = flags;
            bench.send(&end.frame());
            bench.run_until_idle();
            bench.clock.advance(6_000_000);
            bench.run_until_idle();
            assert_eq!(*bench.done.borrow(), Some(expected), "{flags:?}");
        }
    }
}

/// Bytes that were written before, and are not acknowledged yet, count once.
#[test]
fn a_region_follows_what_was_written() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let stack = bench.stack.clone();
        bench.engine.spawn(async move {
            let stream = stack
                .connect(version.server(), Duration::from_secs(1))
                .await;
            let mut stream = stream.unwrap();
            stream.write_all(b"request").await.unwrap();
            let region = Region::new(Memory::from(pattern(3000)));
            stream.send_from(&region, 0, 3000).await.unwrap();
            stream.close();
            core::future::pending().await
        });
        bench.handshake(&OPTIONS);
        let first = bench.snd_una();
        let last = first.wrapping_add(3007);
        assert_eq!(bench.ack, last, "of what was sent");
        bench.send(&bench.segment(0).frame());
        bench.run_until_idle();
        let (numbers, _) = bench.segments().pop().unwrap();
        assert_eq!(numbers.0, last);
        assert!(numbers.2.contains(Flags::FIN));
    }
}

/// RFC 6056: no two connections to one host from the same port.
#[test]
fn connections_have_ports_of_their_own() {
    let mut bench = Bench::silent(IpVersion::V4);
    for _ in 0..3 {
        // As many as the wire takes at once.
        for _ in 0..200 {
            let stack = bench.stack.clone();
            bench.engine.spawn(async move {
                let server = IpVersion::V4.server();
                let _ = stack.connect(server, Duration::from_secs(60)).await;
            });
        }
        bench.run_until_idle();
    }
    let syns = bench.heard.iter().filter_map(|frame| tcp(frame));
    let ports: BTreeSet<u16> = syns.map(|(us, ..)| us.port()).collect();
    assert_eq!(ports.len(), 600);
}

#[test]
fn a_dropped_stream_is_reset() {
    for closes in [false, true] {
        for version in IpVersion::BOTH {
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
                let ends = Ends::new(bench.host(), bench.us);
                assert!(bench.stack.state().flows.find(ends).is_none());
                // It is forgotten: what comes still is answered as for any closed port.
                bench.heard.clear();
                bench.send(&bench.segment(STEP).frame());
                bench.run_until_idle();
                let (numbers, _) = bench.segments().pop().unwrap();
                assert_eq!((numbers.0, numbers.2), (bench.ack, Flags::RST));
            }
        }
    }
}

/// A download that gets a segment each three seconds, of the kind that has options, goes on; one that gets none for five is over.
#[test]
fn what_comes_by_segments_with_options_is_progress() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let (stack, done) = (bench.stack.clone(), bench.done.clone());
        bench.engine.spawn(async move {
            let server = version.server();
            let stream = stack.connect(server, Duration::from_secs(1)).await;
            let mut stream = stream.unwrap();
            stream.set_idle_timeout(Duration::from_secs(5));
            let region = Region::new(Memory::from(vec![0; LEN]));
            *done.borrow_mut() = Some(stream.read_into(&region, 0).await);
        });
        bench.handshake(&OPTIONS);
        for _ in 0..4 {
            bench.clock.advance(3_000_000);
            bench.run_until_idle();
            let mut segment = bench.segment(STEP);
            segment.options = vec![1, 1, 1, 0];
            bench.position += STEP;
            bench.send(&segment.frame());
            bench.run_until_idle();
            assert_eq!(*bench.done.borrow(), None);
        }
        bench.clock.advance(6_000_000);
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), Some(Ok(4 * STEP)));
    }
}

/// The same for an upload: what is acknowledged is progress.
#[test]
fn an_upload_lasts_while_it_is_acknowledged() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let (stack, done) = (bench.stack.clone(), bench.done.clone());
        bench.engine.spawn(async move {
            let server = version.server();
            let stream = stack.connect(server, Duration::from_secs(1)).await;
            let mut stream = stream.unwrap();
            stream.set_idle_timeout(Duration::from_secs(5));
            let region = Region::new(Memory::from(vec![0; LEN]));
            let sent = stream.send_from(&region, 0, LEN).await;
            *done.borrow_mut() = Some(sent.map(|()| LEN));
        });
        bench.handshake(&OPTIONS);
        for _ in 0..4 {
            bench.clock.advance(3_000_000);
            bench.run_until_idle();
            assert_eq!(*bench.done.borrow(), None);
            // Of the oldest segment alone.
            let mut acknowledges = bench.segment(0);
            acknowledges.ack = bench.snd_una().wrapping_add(1400);
            bench.send(&acknowledges.frame());
            bench.run_until_idle();
        }
        bench.clock.advance(6_000_000);
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), Some(Err(NetError::TimedOut)));
    }
}

/// Segments to ports that nobody has are refused, ten in a tenth of a second and no more; resets never, and none of who is no single host.
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
        let (_, _, numbers, _) = tcp(&heard[0]).unwrap();
        assert_eq!((heard.len(), numbers.0, numbers.1), (1, 0, 8));
        assert_eq!(numbers.2, Flags::RST | Flags::ACK);
        let many: &[&str] = match bench.version {
            IpVersion::V4 => &["255.255.255.255", "224.0.0.1", "10.0.0.255", "0.0.0.0"],
            IpVersion::V6 => &["ff02::1", "ff0e::1", "::"],
        };
        let resets = |bench: &Bench| {
            let segments = bench.heard.iter().filter_map(|frame| tcp(frame));
            let resets = segments.filter(|segment| segment.2.2.contains(Flags::RST));
            resets.count()
        };
        for source in many {
            let forged = changed(&syn, |f| f.source.set_ip(source.parse().unwrap()));
            bench.ignores(source, [forged]);
        }
        assert_eq!(resets(&bench), 0);
        for tenth in 1..=2 {
            bench.clock.advance(100_000);
            for port in 1..=30 {
                bench.send(&changed(&syn, |f| f.destination.set_port(port)));
                bench.turn();
            }
            bench.run_until_idle();
            assert_eq!(resets(&bench), tenth * 10);
        }
        bench.finishes();
    });
}

#[test]
fn a_long_text_leaves_piece_by_piece() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let (stack, done) = (bench.stack.clone(), bench.done.clone());
        bench.engine.spawn(async move {
            let server = version.server();
            let stream = stack.connect(server, Duration::from_secs(1)).await;
            let mut stream = stream.unwrap();
            let sent = stream.write_all(&pattern(40_000)).await;
            *done.borrow_mut() = Some(sent.map(|()| 40_000));
            core::future::pending().await
        });
        bench.handshake(&OPTIONS);
        let first = bench.snd_una();
        for _ in 0..60 {
            let ends = Ends::new(bench.host(), bench.us);
            let waits = bench.stack.state().flows.find(ends).unwrap().send.len();
            assert!(waits <= 16 * 1024);
            // The host has heard what came up to here.
            bench.send(&bench.segment(0).frame());
            bench.run_until_idle();
        }
        assert_eq!(*bench.done.borrow(), Some(Ok(40_000)));
        assert_eq!(bench.ack, first.wrapping_add(40_000));
        let mut text = vec![0; 40_000];
        for frame in &bench.heard {
            if let Some((_, _, (seq, .., len), _)) = tcp(frame)
                && len > 0
            {
                let at = seq.wrapping_sub(first) as usize;
                text[at..at + len].copy_from_slice(&frame[frame.len() - len..]);
            }
        }
        assert!(text == pattern(40_000));
    }
}

/// A connection that is closed as soon as it is there.
fn closing(version: IpVersion) -> Bench {
    let mut bench = Bench::silent(version);
    let stack = bench.stack.clone();
    bench.engine.spawn(async move {
        let server = version.server();
        let stream = stack.connect(server, Duration::from_secs(1)).await;
        stream.unwrap().close();
    });
    bench.handshake(&OPTIONS);
    bench
}

/// The end of a connection is said again until the host has heard it, for three seconds and no longer.
#[test]
fn a_closed_stream_says_goodbye_again() {
    for version in IpVersion::BOTH {
        let mut bench = closing(version);
        let ends = Ends::new(bench.host(), bench.us);
        let is_kept = |bench: &Bench| bench.stack.state().flows.find(ends).is_some();
        let goodbyes = |bench: &Bench| {
            let all = bench.segments();
            all.iter()
                .filter(|(numbers, _)| numbers.2.contains(Flags::FIN))
                .count()
        };
        assert_eq!(goodbyes(&bench), 1);
        for _ in 0..28 {
            bench.clock.advance(100_000);
            bench.run_until_idle();
        }
        assert!(goodbyes(&bench) > 1 && is_kept(&bench));
        bench.clock.advance(400_000);
        bench.run_until_idle();
        assert!(!is_kept(&bench));
    }
}

/// A host that has heard the end of a closed connection and never says its own has the same three seconds.
#[test]
fn a_closed_stream_waits_no_longer_for_the_hosts_goodbye() {
    for version in IpVersion::BOTH {
        let mut bench = closing(version);
        // The host has heard all, the end too.
        bench.send(&bench.segment(0).frame());
        bench.run_until_idle();
        let ends = Ends::new(bench.host(), bench.us);
        let port = bench.us.port();
        let state = |bench: &Bench| {
            let mut net = bench.stack.state();
            let state = net.flows.find(ends).map(|flow| flow.connection.state());
            assert_eq!(net.flows.uses(port), state.is_some());
            state
        };
        assert_eq!(state(&bench), Some(State::FinWait2));
        bench.clock.advance(2_800_000);
        bench.run_until_idle();
        assert_eq!(state(&bench), Some(State::FinWait2));
        bench.clock.advance(400_000);
        bench.run_until_idle();
        assert_eq!(state(&bench), None);
    }
}

#[test]
fn a_stream_tells_its_round_trip_and_what_it_received() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let (stack, done) = (bench.stack.clone(), bench.done.clone());
        let told = Rc::new(RefCell::new(None));
        let out = told.clone();
        bench.engine.spawn(async move {
            let server = version.server();
            let stream = stack.connect(server, Duration::from_secs(1)).await;
            let mut stream = stream.unwrap();
            while stack.now() < Instant::from_millis(100) {
                stack.next_turn().await;
            }
            // What came before there was memory for it, a part of it read.
            let read = stream.read(|bytes| bytes.len().min(700)).await;
            let before = stream.received().get();
            let region = Region::new(Memory::from(vec![0; 4 * STEP]));
            *done.borrow_mut() = Some(stream.read_into(&region, 0).await);
            *out.borrow_mut() = Some((
                stream.round_trip().unwrap(),
                read,
                before,
                stream.received().get(),
            ));
        });
        bench.handshake(&OPTIONS);
        bench.go_on();
        bench.go_on();
        bench.clock.advance(100_000);
        bench.run_until_idle();
        for _ in 0..3 {
            bench.go_on();
        }
        bench.run_until_idle();
        assert_eq!(*bench.done.borrow(), Some(Ok(4 * STEP)));
        let (round_trip, read, before, received) = told.borrow_mut().take().unwrap();
        // One turn of the bench and the next.
        assert!((60..1000).contains(&round_trip.total_micros()));
        assert_eq!(
            (read, before, received),
            (Ok(700), 700, 700 + 4 * STEP as u64)
        );
    }
}
