//! TCP segments.

use proptest::collection::vec;

use super::*;
use crate::frame::put;
use crate::header::{DATA_VALID, GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM};
use crate::testing::packets::{TcpFields, incomplete, is_right, tcp};

const AGREED: u64 = feature::GUEST_CSUM | TSO;
const FIELDS: TcpFields = TcpFields {
    port: 1000,
    sequence: 0xffff_ff00,
    flags: 0x10,
    options: true,
};
const LINK: Link = Link {
    v6: false,
    tagged: false,
    id: 7,
    host: 1,
};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 % 251) as u8).collect()
}

/// The frame as a unit that is to be cut.
fn to_cut(frame: &[u8], size: usize) -> (Header, Vec<u8>) {
    let (header, bytes) = incomplete(frame);
    let head = usize::from(header.csum_start) + 20;
    let v6 = Ip::parse(frame).unwrap().version == Version::V6;
    let header = Header {
        gso_type: if v6 { GSO_TCPV6 } else { GSO_TCPV4 },
        gso_size: size as u16,
        hdr_len: head as u16,
        ..header
    };
    (header, bytes)
}

/// The frames that a unit for the guest stands for.
fn frames_of(header: Header, unit: &[u8]) -> Vec<Vec<u8>> {
    if header.gso_type == GSO_NONE {
        return vec![completed(header, unit)];
    }
    let mut frames = Vec::new();
    segment::cut(
        header,
        &unit[..unit.len().min(MAX_HEAD)],
        unit.len(),
        1,
        |header, head, place| {
            let frame = [head, &unit[place]].concat();
            frames.push(completed(header, &frame));
        },
    )
    .expect("a unit that cannot be cut");
    frames
}

/// What the wire says of a frame's checksum.
fn said(frame: &[u8], how: u8) -> (Header, Vec<u8>) {
    let valid = Header {
        flags: DATA_VALID,
        ..Header::default()
    };
    match how % 3 {
        0 => (Header::default(), frame.to_vec()),
        1 => (valid, frame.to_vec()),
        _ => incomplete(frame),
    }
}

proptest! {
    /// Whatever is cut comes out whole again, in as many units as the wire made pauses.
    #[test]
    fn what_is_cut_is_joined(
        link in link(),
        options in any::<bool>(),
        pushed in any::<bool>(),
        (size, count) in (16..1440usize, 1..60usize),
        cuts in vec(1..3000u32, 0..20),
        room in vec(1..3000u32, 0..20),
        pauses in vec(0..60usize, 0..3),
        how in any::<u8>(),
    ) {
        let payload = bytes((size * count).min(65_400));
        let flags = if pushed { 0x18 } else { 0x10 };
        let whole = tcp(link, TcpFields { flags, options, ..FIELDS }, &payload);
        let (header, unit) = to_cut(&whole, size);
        let mut card = card(AGREED);
        prop_assert!(send(&mut card, header, &unit, &cuts));
        let frames = core::mem::take(&mut card.wire.sent);
        let count = payload.len().div_ceil(size);
        prop_assert_eq!(frames.len(), count);
        prop_assert_eq!(card.counters().cut_frames, count as u64);
        let mut breaks = 0;
        for (n, frame) in frames.iter().enumerate() {
            prop_assert!(is_right(frame));
            if n != 0 && pauses.contains(&n) {
                card.wire.coming.push_back(None);
                breaks += 1;
            }
            card.wire.coming.push_back(Some(said(frame, how)));
        }
        let units = receive(&mut card, &room, NOW);
        prop_assert_eq!(units.len(), breaks + 1);
        let again: Vec<_> = units.iter().flat_map(|(header, unit)| frames_of(*header, unit)).collect();
        prop_assert_eq!(again, frames);
        if breaks == 0 && count > 1 {
            let (got, bytes) = &units[0];
            let hdr_len = (unit.len() - payload.len()) as u16;
            prop_assert_eq!(got, &Header { hdr_len, ..header });
            prop_assert_eq!(bytes, &unit);
        }
    }

    /// Frames of several connections, of all kinds: each comes, once, in its order, and as it was.
    #[test]
    fn units_stand_for_the_frames_that_came(
        steps in vec((0..3u8, 0..12u8, 0..4u8), 1..150),
        room in vec(1..3000u32, 0..20),
        agreed in prop::sample::select(vec![AGREED, feature::GUEST_CSUM | feature::GUEST_TSO4, feature::GUEST_TSO6, 0]),
    ) {
        let mut flows = [(100u32, 1u16), (5000, 500), (u32::MAX - 1000, 0xfff0)];
        let mut card = card(agreed);
        let mut expected = Vec::new();
        for (flow, kind, how) in steps {
            let (sequence, id) = &mut flows[usize::from(flow)];
            let link = Link { v6: flow == 2, tagged: flow == 1, id: *id, host: flow };
            let mut fields = TcpFields { port: flow.into(), sequence: *sequence, ..FIELDS };
            let mut len = 100;
            match kind {
                0 => len = 40,
                1 => fields.flags = 0x18,
                2 => fields.flags = [0x11, 0x12, 0x14, 0x90][usize::from(how)],
                3 => fields.sequence = fields.sequence.wrapping_sub(100),
                4 => fields.options = false,
                5 => { card.wire.coming.push_back(None); continue; }
                6 => len = 0,
                7 => len = 200,
                _ => {}
            }
            *sequence = fields.sequence.wrapping_add(len as u32);
            *id = id.wrapping_add(1);
            let mut frame = tcp(link, fields, &bytes(len));
            match (kind, how) {
                // Padding; a checksum that is wrong.
                (8, 0) => frame.extend([0; 4]),
                (8, 1) => *frame.last_mut().unwrap() ^= 1,
                (8, 2) => frame[14 + 8] ^= 1,
                _ => {}
            }
            // A wire that says it is right is believed.
            let says = if kind == 8 { 0 } else { how };
            card.wire.coming.push_back(Some(said(&frame, says)));
            expected.push(frame);
        }
        let mut got = Vec::new();
        for (header, unit) in receive(&mut card, &room, NOW) {
            if header.gso_type != GSO_NONE {
                prop_assert!(header.arriving(agreed, unit.len()).is_some(), "{header:?}");
                prop_assert!(unit.len() <= LONGEST_UNIT);
            }
            got.extend(frames_of(header, &unit));
        }
        prop_assert_eq!(got, expected);
    }
}

fn comes(card: &mut Offload<Frames>, frames: &[Vec<u8>]) -> Vec<usize> {
    let coming = frames
        .iter()
        .map(|frame| Some((Header::default(), frame.clone())));
    card.wire.coming.extend(coming);
    let units = receive(card, &[], NOW);
    units.iter().map(|(_, unit)| unit.len()).collect()
}

fn segments(link: Link, count: u32, size: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| {
            let fields = TcpFields {
                sequence: FIELDS.sequence.wrapping_add(n * size),
                options: false,
                ..FIELDS
            };
            let link = Link {
                id: link.id.wrapping_add(n as u16),
                ..link
            };
            tcp(link, fields, &bytes(size as usize))
        })
        .collect()
}

#[test]
fn a_unit_is_no_longer_than_ip_can_say() {
    for v6 in [false, true] {
        let mut card = card(AGREED);
        let link = Link { v6, ..LINK };
        let lens = comes(&mut card, &segments(link, 60, 1400));
        let head = if v6 { 74 } else { 54 };
        let most = (65_549 - head) / 1400;
        assert_eq!(lens, [head + most * 1400, head + (60 - most) * 1400]);
        let counters = card.counters();
        assert_eq!((counters.joined_units, counters.joined_segments), (2, 60));
    }
}

#[test]
fn what_differs_is_not_joined() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(bool, Change); 12] = [
        (true, |_| {}),
        (false, |frame| frame[5] ^= 1),
        (false, |frame| frame[15] = 2),
        (false, |frame| frame[22] = 63),
        (false, |frame| frame[19] ^= 8),
        (false, |frame| frame[29] ^= 1),
        (false, |frame| frame[33] ^= 1),
        (false, |frame| frame[37] ^= 1),
        (false, |frame| frame[45] ^= 1),
        (false, |frame| frame[46] |= 1),
        (false, |frame| frame[48] ^= 1),
        // Do not fragment.
        (false, |frame| frame[20] = 0x40),
    ];
    for (n, (joined, change)) in changes.into_iter().enumerate() {
        let mut frames = segments(LINK, 2, 1000);
        change(&mut frames[1]);
        let ip = Ip::parse(&frames[1]).unwrap();
        ip.set_len(&mut frames[1], 1020).unwrap();
        let (header, partial) = incomplete(&frames[1]);
        frames[1] = completed(header, &partial);
        let lens = comes(&mut card(AGREED), &frames);
        assert_eq!(lens.len() == 1, joined, "change {n}");
    }
    let six: [(bool, Change); 6] = [
        (true, |_| {}),
        (false, |frame| frame[15] ^= 1),
        (false, |frame| frame[17] ^= 1),
        (false, |frame| frame[21] = 63),
        (false, |frame| frame[37] ^= 1),
        (false, |frame| frame[53] ^= 1),
    ];
    for (n, (joined, change)) in six.into_iter().enumerate() {
        let mut frames = segments(Link { v6: true, ..LINK }, 2, 1000);
        change(&mut frames[1]);
        let (header, partial) = incomplete(&frames[1]);
        frames[1] = completed(header, &partial);
        let lens = comes(&mut card(AGREED), &frames);
        assert_eq!(lens.len() == 1, joined, "change {n} over IPv6");
    }
    // An identification that means nothing may be anything.
    let mut frames = segments(LINK, 2, 1000);
    for frame in &mut frames {
        put(frame, 18, &[0, 0, 0x40]).unwrap();
        let ip = Ip::parse(frame).unwrap();
        ip.set_len(frame, 1020).unwrap();
    }
    assert_eq!(comes(&mut card(AGREED), &frames), [2054]);
}

#[test]
fn flags_are_where_they_belong() {
    let mut card = card(AGREED);
    let flags = 0x80 | 0x10 | 0x08 | 0x01;
    let fields = TcpFields { flags, ..FIELDS };
    let (header, unit) = to_cut(&tcp(LINK, fields, &bytes(250)), 100);
    let header = Header {
        gso_type: GSO_TCPV4 | crate::header::GSO_ECN,
        ..header
    };
    assert!(send(&mut card, header, &unit, &[]));
    let flags: Vec<u8> = card
        .wire
        .sent
        .iter()
        .map(|frame| frame[14 + 20 + 13])
        .collect();
    assert_eq!(flags, [0x90, 0x10, 0x19]);
    let lens: Vec<usize> = card.wire.sent.iter().map(Vec::len).collect();
    assert_eq!(lens, [166, 166, 116]);
}

#[test]
fn what_cannot_be_cut_is_lost_and_sends_nothing() {
    let (good, unit) = to_cut(&tcp(LINK, FIELDS, &bytes(500)), 100);
    let mut low = unit.clone();
    low[14 + 20 + 12] = 0x40;
    let mut long = unit.clone();
    long.truncate(60);
    let mut arp = unit.clone();
    arp[13] = 6;
    let (six, unit_six) = to_cut(&tcp(Link { v6: true, ..LINK }, FIELDS, &bytes(500)), 100);
    // In the addresses, where they look like a header of TCP.
    let early = Header {
        csum_start: 26,
        ..six
    };
    for (n, (header, unit)) in [
        (
            Header {
                gso_size: 15,
                ..good
            },
            &unit,
        ),
        (
            Header {
                gso_type: GSO_TCPV6,
                ..good
            },
            &unit,
        ),
        (
            Header {
                csum_start: 30,
                ..good
            },
            &unit,
        ),
        (
            Header {
                csum_offset: 6,
                ..good
            },
            &unit,
        ),
        (good, &low),
        (good, &long),
        (good, &arp),
        (early, &unit_six),
    ]
    .into_iter()
    .enumerate()
    {
        let mut card = card(AGREED);
        assert!(!send(&mut card, header, unit, &[]), "case {n}");
        assert_eq!(card.wire.sent.len(), 0);
        assert_eq!(card.counters(), OffloadCounters::default());
    }
    let mut card = card(AGREED);
    card.wire.takes = Some(3);
    assert!(!send(&mut card, good, &unit, &[]), "a frame is lost");
    assert_eq!(card.counters().cut_frames, 3);
}

#[test]
fn nothing_of_a_guest_comes_to_the_next() {
    let mut card = card(AGREED);
    let (memory, room) = memory(&[]);
    let frames = [segments(LINK, 1, 1000), segments(LINK, 1, 1000)].concat();
    let coming = frames
        .into_iter()
        .map(|frame| Some((Header::default(), frame)));
    card.wire.coming.extend(coming);
    let first = card.receive(&memory, &room, NOW);
    assert!(matches!(first, Received::Unit { len: 1054, .. }));
    Wire::<VecMemory>::agree(&mut card, 0);
    assert_eq!(card.receive(&memory, &room, NOW), Received::Nothing);
    assert_eq!(card.counters().dropped_frames, 1);
}

#[test]
fn partial_checksums_of_others_are_not_believed() {
    let mut frames = segments(LINK, 2, 1000).into_iter();
    let header = Header {
        flags: NEEDS_CSUM,
        csum_start: 30,
        csum_offset: 16,
        ..Header::default()
    };
    let mut card = card(AGREED);
    card.wire
        .coming
        .extend(frames.by_ref().map(|frame| Some((header, frame))));
    assert_eq!(receive(&mut card, &[], NOW).len(), 2);
}

#[test]
fn what_no_unit_can_say_is_in_none() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(bool, Change); 5] = [
        (true, |_| {}),
        // More fragments; an urgent pointer; padding; a wrong checksum of IP.
        (false, |frame| {
            frame[20] = 0x20;
            Ip::parse(frame).unwrap().set_len(frame, 1020).unwrap();
        }),
        (false, |frame| frame[53] = 1),
        (false, |frame| frame.extend([0; 4])),
        (false, |frame| frame[24] ^= 1),
    ];
    let valid = Header {
        flags: DATA_VALID,
        ..Header::default()
    };
    for (n, (joined, change)) in changes.into_iter().enumerate() {
        let mut frames = segments(LINK, 2, 1000);
        frames.iter_mut().for_each(change);
        let mut card = card(AGREED);
        let coming = frames.into_iter().map(|frame| Some((valid, frame)));
        card.wire.coming.extend(coming);
        let units = receive(&mut card, &[], NOW);
        assert_eq!(units.len() == 1, joined, "change {n}");
    }
    // Padding alone at the end.
    let mut frames = segments(LINK, 2, 1000);
    let last = Link { id: 8, ..LINK };
    let sequence = FIELDS.sequence.wrapping_add(1000);
    let fields = TcpFields {
        sequence,
        options: false,
        ..FIELDS
    };
    frames[1] = [tcp(last, fields, &bytes(900)), vec![0; 10]].concat();
    let mut card = card(AGREED);
    let coming = frames.into_iter().map(|frame| Some((valid, frame)));
    card.wire.coming.extend(coming);
    let lens: Vec<_> = receive(&mut card, &[], NOW)
        .iter()
        .map(|(_, unit)| unit.len())
        .collect();
    assert_eq!(lens, [1054, 964]);
}

/// Behind a segment come frames that are taken and kept, without end: what was joined goes, and each turn of the card ends.
#[test]
fn frames_that_are_kept_end_a_unit() {
    #[derive(Debug)]
    struct Flood {
        first: Option<Vec<u8>>,
        asked: usize,
    }
    impl Wire<VecMemory> for Flood {
        fn offloads(&self) -> u64 {
            feature::CSUM
        }
        fn agree(&mut self, _: u64) {}
        fn max_unit(&self) -> usize {
            1518
        }
        fn send(&mut self, _: &VecMemory, _: &Unit<'_>, _: Duration) -> bool {
            true
        }
        fn flush(&mut self) {}
        fn receive(&mut self, memory: &VecMemory, room: &[Span], _: Duration) -> Received {
            self.asked += 1;
            assert!(self.asked < 1000, "a turn without end");
            let Some(frame) = self.first.take() else {
                // Whoever keeps a frame has had a look at it where it came.
                assert_eq!(scatter(memory, room, &[0xee; 200]), Ok(true));
                return Received::Kept;
            };
            assert_eq!(scatter(memory, room, &frame), Ok(true));
            Received::Unit {
                header: Header::default(),
                len: frame.len(),
            }
        }
    }
    let frame = tcp(LINK, FIELDS, &bytes(100));
    let mut card = Offload::new(Flood {
        first: Some(frame.clone()),
        asked: 0,
    });
    Wire::<VecMemory>::agree(&mut card, AGREED);
    let (memory, room) = memory(&[]);
    let got = card.receive(&memory, &room, NOW);
    let len = frame.len();
    assert!(
        matches!(got, Received::Unit { len: came, .. } if came == len),
        "{got:?}"
    );
    let mut unit = vec![0; len];
    assert_eq!(gather(&memory, &room, &mut unit), Ok(true));
    assert_eq!(unit, frame);
    assert_eq!(card.receive(&memory, &room, NOW), Received::Kept);
}
