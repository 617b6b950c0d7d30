//! Fragments in disorder, with some of them lost, repeated or overlapping: what Linux makes of them, the card makes of them.

use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use wireboot_card::testing::packets::{Link, fragment, udp};
use wireboot_card::testing::{Script, VecMemory};
use wireboot_card::{GuestMemory, Header, Offload, Received, Span, Unit, Wire, feature};
use wireboot_namespace::{inside, sh};

use super::*;

/// To Ethernet's, IP's and UDP's addresses of [`udp`].
fn kernel() -> (Tap, UdpSocket) {
    sh("ip tuntap add dev card0 mode tap vnet_hdr
        ip link set card0 address 02:00:00:00:00:02");
    let mut tap = open("card0").unwrap();
    sh("ip link set card0 up
        ip address add 10.0.0.2/24 dev card0
        ip address add fd00::2/64 dev card0 nodad");
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 70)).unwrap();
    let short = Some(Duration::from_millis(20));
    socket.set_read_timeout(short).unwrap();
    for v6 in [false, true] {
        let link = Link {
            v6,
            tagged: false,
            id: 0,
            host: 1,
        };
        wait_for_linux(&mut tap, &socket, link);
    }
    let long = Some(Duration::from_secs(60));
    socket.set_read_timeout(long).unwrap();
    (tap, socket)
}

/// What is wrong with the fragments of a datagram, beyond their order.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Nothing,
    Lost,
    Twice,
    Overlap,
    /// One more lies behind the end.
    Beyond,
}

/// Parts of a datagram of `end` bytes, all but the last as long as each other.
fn parts(random: &mut Rng, end: usize, wrong: Wrong) -> Vec<Range<usize>> {
    let size = 8 * random.usize(2..40);
    let starts = (0..end).step_by(size);
    let mut all: Vec<_> = starts.map(|from| from..end.min(from + size)).collect();
    random.shuffle(&mut all);
    let place = random.usize(..=all.len());
    match wrong {
        Wrong::Nothing => {}
        Wrong::Lost => drop(all.remove(place.min(all.len() - 1))),
        Wrong::Twice => all.insert(place, all[random.usize(..all.len())].clone()),
        Wrong::Overlap => {
            // Of two that follow each other.
            let from = size * random.usize(..(end - 1) / size) + 8;
            all.insert(place, from..end.min(from + size));
        }
        Wrong::Beyond => {
            let from = end.next_multiple_of(8);
            all.insert(place, from..from + 16);
        }
    }
    all
}

/// Whether one of the parts lies in those before it, and is none of them. Linux takes it for a contradiction, or for one that came twice, by where the
/// borders are. The card looks at the bytes.
fn repeats(parts: &[Range<usize>]) -> bool {
    parts.iter().enumerate().any(|(n, part)| {
        let before = &parts[..n];
        let there = |at: usize| before.iter().any(|part| part.contains(&at));
        !before.contains(part) && part.clone().all(there)
    })
}

/// The payload of each datagram that the card puts together.
fn by_card(card: &mut Offload<Script>, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let memory = VecMemory::new(0x1000, 0x10800);
    let room = [Span {
        address: 0x1000,
        len: 0x10800,
    }];
    let mut got = Vec::new();
    for frame in frames {
        let coming = &mut card.wire_mut().coming;
        coming.push_back((Header::default(), frame.clone()));
        if let Received::Unit { len, .. } = card.receive(&memory, &room, Duration::ZERO) {
            let mut unit = vec![0; len];
            memory.read(0x1000, &mut unit).unwrap();
            let head = if unit[12] == 8 {
                14 + 20 + 8
            } else {
                14 + 40 + 8
            };
            got.push(unit.split_off(head));
        }
    }
    got
}

/// The datagram that says that all has come.
const LAST: &[u8] = b"that is all";

fn send_all<'a>(tap: &mut Tap, frames: impl IntoIterator<Item = &'a Vec<u8>>) {
    let memory = memory();
    for frame in frames {
        memory.write(0, frame).unwrap();
        let span = Span {
            address: 0,
            len: frame.len() as u32,
        };
        let unit = Unit {
            header: Header::default(),
            head: &[],
            spans: &[span],
            len: frame.len(),
        };
        assert!(tap.send(&memory, &unit));
    }
}

/// Waits until Linux takes what comes: its interface gets a carrier in its own time.
fn wait_for_linux(tap: &mut Tap, socket: &UdpSocket, link: Link) {
    let frame = udp(link, LAST);
    let took = (0..3000).any(|_| {
        send_all(tap, [&frame]);
        socket.recv(&mut [0; LAST.len()]).is_ok()
    });
    assert!(took, "{link:?}: nothing comes to the socket");
}

/// The same of Linux. What comes behind them comes to the socket behind what they are.
fn by_linux(tap: &mut Tap, socket: &UdpSocket, frames: &[Vec<u8>], link: Link) -> Vec<Vec<u8>> {
    send_all(tap, frames.iter().chain([&udp(link, LAST)]));
    let mut got = Vec::new();
    loop {
        let mut bytes = vec![0; 0x10000];
        let len = socket
            .recv(&mut bytes)
            .expect("nothing comes to the socket");
        bytes.truncate(len);
        if bytes == LAST {
            return got;
        }
        got.push(bytes);
    }
}

#[test]
fn fragments_are_to_the_card_what_they_are_to_linux() {
    if !inside("wires::tap::tests::fragments::fragments_are_to_the_card_what_they_are_to_linux") {
        return;
    }
    let (mut tap, socket) = kernel();
    let mut card = Offload::new(Script::default());
    Wire::<VecMemory>::agree(&mut card, feature::GUEST_CSUM | feature::GUEST_UFO);
    let kinds = [
        Wrong::Nothing,
        Wrong::Lost,
        Wrong::Twice,
        Wrong::Overlap,
        Wrong::Beyond,
    ];
    let mut came = [0; 5];
    for case in 0..1000 {
        let mut random = Rng::with_seed(case);
        let link = Link {
            v6: random.bool(),
            tagged: false,
            id: case as u16,
            host: 1,
        };
        let kind = random.usize(..kinds.len());
        let payload: Vec<u8> = (0..random.usize(320..1400))
            .map(|_| random.u8(..))
            .collect();
        let whole = udp(link, &payload);
        let datagram = whole[whole.len() - payload.len() - 8..].to_vec();
        let parts = parts(&mut random, datagram.len(), kinds[kind]);
        let bytes = [&datagram[..], &[0; 32]].concat();
        let frames = parts.iter().map(|part| {
            let more = part.end != datagram.len();
            fragment(link, &bytes[part.clone()], part.start, more)
        });
        let frames: Vec<_> = frames.collect();
        let ours = by_card(&mut card, &frames);
        let theirs = by_linux(&mut tap, &socket, &frames, link);
        let what = format!("case {case}: {:?}, {link:?}, {parts:?}", kinds[kind]);
        assert!(
            ours == theirs || theirs.is_empty() && repeats(&parts),
            "{what}"
        );
        assert!(ours.iter().all(|bytes| *bytes == payload), "{what}");
        came[kind] += ours.len();
    }
    let [right, lost, twice, overlap, beyond] = came;
    assert!(right > 100 && lost == 0 && twice > 100, "{came:?}");
    // Where what is wrong comes behind the last that is right.
    assert!(overlap < right / 2 && beyond < right / 4, "{came:?}");
}
