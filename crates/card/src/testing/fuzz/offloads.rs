//! Units and frames with all kinds of headers, before the card's offloads.

use core::time::Duration;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use super::Bytes;
use crate::card::{Card, Queue};
use crate::feature;
use crate::frame::Ip;
use crate::header::Header;
use crate::memory::{Span, gather};
use crate::offload::Offload;
use crate::testing::packets::{Link, TcpFields, fragment, incomplete, tcp, udp};
use crate::testing::{Guest, Script, VecMemory};
use crate::wire::{Received, Wire};

fn link(bytes: &mut Bytes<'_>) -> Link {
    let kind = bytes.u8();
    Link {
        v6: kind & 1 != 0,
        tagged: kind & 2 != 0,
        id: u16::from(kind >> 2 & 3),
        host: kind >> 4 & 3,
    }
}

/// A frame with right headers but for some bytes that are changed.
fn packet(bytes: &mut Bytes<'_>, sequence: &mut u32) -> Vec<u8> {
    let link = link(bytes);
    let kind = bytes.u8();
    let len = usize::from(bytes.u16()) * if kind & 1 == 0 { 1 } else { 20 } % 60_000;
    let payload = vec![kind; len];
    let mut frame = if kind & 2 == 0 {
        let fields = TcpFields {
            port: u16::from(kind >> 6),
            sequence: *sequence,
            flags: if kind & 4 == 0 { 0x10 } else { bytes.u8() },
            options: kind & 8 != 0,
        };
        *sequence = sequence.wrapping_add(len as u32);
        tcp(link, fields, &payload)
    } else {
        udp(link, &payload)
    };
    for _ in 0..kind >> 4 & 3 {
        let (at, value) = (usize::from(bytes.u8()), bytes.u8());
        if let Some(byte) = frame.get_mut(at) {
            *byte = value;
        }
    }
    frame
}

/// What is said of it: right, or whatever the input says.
fn said(bytes: &mut Bytes<'_>, frame: Vec<u8>) -> (Header, Vec<u8>) {
    let how = bytes.u8();
    let parsed = Ip::parse(&frame).filter(|_| how & 1 == 0);
    let fits = parsed.is_some_and(|ip| frame.len() >= ip.end + 20);
    let (mut header, frame) = if fits && how & 2 == 0 {
        incomplete(&frame)
    } else {
        (Header::default(), frame)
    };
    if how & 4 != 0 {
        header.gso_type = bytes.u8() & 0x87;
        header.gso_size = bytes.u16() % 2000;
        header.hdr_len = bytes.u8().into();
    }
    if how & 8 != 0 {
        header.flags = bytes.u8();
        header.csum_start = bytes.u8().into();
        header.csum_offset = bytes.u8().into();
    }
    (header, frame)
}

/// A guest and a wire that say of their units and frames what `data` says, and a card between that cuts and joins.
///
/// # Panics
/// When the card breaks a promise: a frame that is longer than its unit or asks for more than was agreed on, one that is lost and not
/// counted.
pub fn fuzz_card_headers(data: &[u8]) {
    let mut bytes = Bytes(data);
    let offloads = feature::KNOWN & !feature::RINGS;
    let (low, high) = (u64::from(bytes.u16()), u64::from(bytes.u16()));
    let agreed = (low | high << 48) & offloads | feature::MRG_RXBUF | feature::VERSION_1;
    let mut guest = Guest::new(64, agreed);
    let wire = Script {
        offloads: feature::CSUM,
        max_unit: Some(65_553),
        ..Script::default()
    };
    let mut card = Card::new(Offload::new(wire));
    Wire::<VecMemory>::agree(card.wire_mut(), agreed);
    guest.start(&mut card).unwrap();
    let mut sequence = 0;
    let mut came = 0u64;
    while !bytes.0.is_empty() {
        let from_guest = bytes.u8() & 1 == 0;
        let frame = packet(&mut bytes, &mut sequence);
        let (header, frame) = said(&mut bytes, frame);
        if !from_guest {
            came += 1;
            let coming = &mut card.wire_mut().wire_mut().coming;
            coming.push_back((header, frame));
            // Several, so that they may be joined.
            if bytes.u8() & 3 != 0 {
                continue;
            }
        } else if guest.send(header, &frame, &[], false) {
            guest.transmit.publish(&guest.memory);
        }
        while guest.offer(&[4096]) {}
        guest.receive.publish(&guest.memory);
        let turn = card.turn(&guest.memory, Duration::ZERO);
        assert_eq!(turn.receive_fault, None);
        if turn.transmit_fault.is_some() {
            let base = card.stop(Queue::Transmit).unwrap();
            // The unit is given up.
            let start = guest.start_of(Queue::Transmit, base.wrapping_add(1));
            card.start(&guest.memory, Queue::Transmit, start).unwrap();
            while card.turn(&guest.memory, Duration::ZERO).units != 0 {}
        }
        while guest.transmit.take(&guest.memory).is_some() {}
        while let Some((header, unit, _)) = guest.received() {
            let passed = header.arriving(agreed, unit.len());
            assert_eq!(passed, Some(header), "not agreed on");
        }
        for (header, frame) in card.wire_mut().wire_mut().sent.drain(..) {
            let passed = header.leaving(agreed & feature::CSUM, frame.len());
            assert_eq!(passed, Some(header), "not what the wire takes");
        }
    }
    // All that came is somewhere.
    loop {
        while guest.offer(&[4096]) {}
        guest.receive.publish(&guest.memory);
        let turn = card.turn(&guest.memory, Duration::ZERO);
        while guest.received().is_some() {}
        if turn.units == 0 && !turn.no_room {
            break;
        }
    }
    let (counters, offload) = (card.counters(), card.wire().counters());
    let units = counters.received.units + counters.receive_not_agreed + counters.receive_too_long;
    let single = units - offload.joined_units - offload.joined_datagrams;
    let fragments =
        offload.joined_fragments + offload.dropped_fragments + offload.waiting_fragments;
    assert_eq!(single + offload.joined_segments + fragments, came);
}

/// The content of a datagram at `at`.
fn content(key: u8, at: usize) -> u8 {
    (at / 8) as u8 ^ key
}

/// Fragments as `data` says, of few datagrams.
///
/// # Panics
/// When the card breaks a promise: a datagram with bytes that did not come, or of another length; a fragment that is lost and not
/// counted.
pub fn fuzz_card_fragments(data: &[u8]) {
    let mut bytes = Bytes(data);
    let agreed = feature::GUEST_CSUM | feature::GUEST_UFO;
    let mut card = Offload::new(Script::default());
    Wire::<VecMemory>::agree(&mut card, agreed);
    let memory = VecMemory::new(0x1000, 0x10800);
    let room = [Span {
        address: 0x1000,
        len: 0x10800,
    }];
    let mut now = Duration::ZERO;
    // The ends that were told, by datagram.
    let mut ends: BTreeMap<(bool, u16), Vec<usize>> = BTreeMap::new();
    let (mut came, mut passed) = (0, 0);
    while !bytes.0.is_empty() {
        let link = link(&mut bytes);
        let kind = bytes.u8();
        now += Duration::from_secs((kind & 7).into());
        let (more, wrong) = (kind & 8 != 0, kind & 0x30 == 0x30);
        // As far as the field for it goes: thirteen bits, in units of eight bytes.
        let step = if kind & 0x40 == 0 { 8 } else { 264 };
        let offset = usize::from(bytes.u8()) * step % 0x1_0000;
        let len = (usize::from(bytes.u8()) + 1) * if kind & 0x80 == 0 { 8 } else { 2 };
        let key = link.id as u8 | u8::from(link.v6) << 2;
        let data: Vec<u8> = (offset..offset + len)
            .map(|at| content(key, at) ^ u8::from(wrong))
            .collect();
        // All of one sender.
        let link = Link { host: 1, ..link };
        let frame = fragment(link, &data, offset, more);
        if !more {
            let known = ends.entry((link.v6, link.id)).or_default();
            known.push(offset + len);
        }
        came += 1;
        card.wire_mut().coming.push_back((Header::default(), frame));
        match card.receive(&memory, &room, now) {
            Received::Kept => {}
            Received::Unit { header, len } => {
                let mut unit = vec![0; len];
                assert_eq!(gather(&memory, &room, &mut unit), Ok(true));
                if header.gso_type == 0 {
                    passed += 1;
                    continue;
                }
                let ip = Ip::parse(&unit).unwrap();
                assert!(ip.is_intact(&unit) && ip.at + ip.len == len && ip.protocol == 17);
                let whole = unit.get(ip.end..).unwrap();
                assert!(ends[&(link.v6, link.id)].contains(&whole.len()));
                for (at, byte) in whole.iter().enumerate() {
                    assert!(byte ^ content(key, at) <= 1, "a byte that did not come");
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let counters = card.counters();
    let fragments =
        counters.joined_fragments + counters.dropped_fragments + counters.waiting_fragments;
    assert_eq!(fragments + passed, came);
}
