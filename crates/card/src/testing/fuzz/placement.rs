//! Requests of a guest's for payload to be placed.

use core::time::Duration;
use std::collections::VecDeque;
use std::vec::Vec;

use wireboot_wire::card::placement::{Ends, NOTE_LEN, Note, PlacementRequest, Region};

use super::Bytes;
use crate::card::{Beyond, Card};
use crate::feature;
use crate::header::{DATA_VALID, Header};
use crate::memory::GuestMemory;
use crate::testing::packets::{Link, TcpFields, tcp};
use crate::testing::{Guest, Script};

const ACK: u8 = 0x10;
/// Sequence numbers wrap within the stream.
const FIRST: u32 = u32::MAX - 3000;

fn ends(host: u8) -> Ends {
    let address = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
    Ends {
        remote: address(host),
        local: address(2),
        remote_port: 8080,
        local_port: 80,
    }
}

/// A card with segments on its wire, and a guest that asks for what `data` says, for memory of its own or not, where its rings lie too.
/// Each unit comes whole, once, in order, from the buffers and the regions that its note names, but those that were too long for the buffers.
///
/// # Panics
/// When one does not, or a note names what was not asked for.
pub fn fuzz_card_placement(data: &[u8]) {
    let mut bytes = Bytes(data);
    let kind = bytes.u8();
    // The wire makes use of more room than a frame takes, and has longer units.
    let (mergeable, long) = (kind & 1 != 0, kind & 2 != 0);
    let features =
        feature::VERSION_1 | feature::GUEST_CSUM | if mergeable { feature::MRG_RXBUF } else { 0 };
    let mut guest = Guest::new(16, features);
    let mut card = Card::new(Script {
        useful_room: long.then_some(65_535),
        ..Script::default()
    });
    card.offer(Beyond {
        placement: true,
        ..Beyond::default()
    });
    guest.start(&mut card).unwrap();
    let piece = if mergeable { 300 } else { 1700 };
    // Regions lie one behind the other where nothing else lies.
    let mut spare = guest.spare();
    let mut regions: Vec<Region> = Vec::new();
    let mut expected = Expected::default();
    let mut sequence = FIRST;
    while !bytes.0.is_empty() {
        match bytes.u8() % 6 {
            0 => {
                let last = regions.last();
                let follows = last.map_or(sequence, |last| last.sequence.wrapping_add(last.len));
                let kind = bytes.u8();
                let region = Region {
                    id: regions.len() as u32 + 1,
                    sequence: match kind % 4 {
                        0 => follows,
                        1 => sequence.wrapping_add(bytes.u16().into()),
                        _ => sequence,
                    },
                    // Or not in the guest's memory.
                    address: if kind & 0x10 == 0 {
                        spare.start
                    } else {
                        u64::from(bytes.u16()) << 32
                    },
                    len: 1 + u32::from(bytes.u16() % 0x1000),
                };
                if kind & 0x10 == 0 {
                    if u64::from(region.len) > spare.end - spare.start {
                        continue;
                    }
                    spare.start += u64::from(region.len);
                }
                regions.push(region);
                let request = PlacementRequest::Fill(ends(1 + kind / 128), region);
                guest.send(Header::default(), &request.emit([2; 6]), &[], false);
                guest.transmit.publish(&guest.memory);
            }
            1 => {
                let request = PlacementRequest::Leave(ends(1 + bytes.u8() % 2), bytes.u8().into());
                guest.send(Header::default(), &request.emit([2; 6]), &[], false);
                guest.transmit.publish(&guest.memory);
            }
            2 | 3 => {
                let kind = bytes.u8();
                let link = Link {
                    v6: false,
                    tagged: kind & 0x40 != 0,
                    id: 1,
                    host: 1 + kind / 128,
                };
                let back = if kind & 3 == 0 { bytes.u16() } else { 0 };
                let fields = TcpFields {
                    port: 8080,
                    sequence: sequence.wrapping_sub(back.into()),
                    flags: if kind & 12 == 12 { bytes.u8() } else { ACK },
                    options: kind & 0x20 != 0,
                };
                let len = usize::from(bytes.u16()) % if long { 5000 } else { 1400 };
                let payload: Vec<u8> = (0..len as u32)
                    .map(|n| (fields.sequence.wrapping_add(n) >> 1) as u8)
                    .collect();
                let unit = tcp(link, fields, &payload);
                sequence = fields.sequence.wrapping_add(len as u32);
                let header = Header {
                    flags: if kind & 0x10 == 0 { DATA_VALID } else { 0 },
                    ..Header::default()
                };
                card.wire_mut().coming.push_back((header, unit.clone()));
                expected.units.push_back(unit);
            }
            4 => {
                while guest.offer(&[12 + piece]) {}
                guest.receive.publish(&guest.memory);
            }
            _ => {
                let turn = card.turn(&guest.memory, Duration::ZERO);
                assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
                while guest.transmit.take(&guest.memory).is_some() {}
                while let Some((header, mut unit, _)) = guest.received() {
                    if header.gso_type != wireboot_wire::card::MARK {
                        expected.come(&unit);
                        continue;
                    }
                    let tail = unit.split_off(unit.len() - NOTE_LEN);
                    match Note::parse(tail.first_chunk().unwrap()).unwrap() {
                        Note::Ended { .. } if unit.is_empty() => continue,
                        Note::Ended { .. } => {}
                        Note::Placed { id, at, len } => {
                            for (address, count) in places(&regions, id, at, len) {
                                let before = unit.len();
                                unit.resize(before + count, 0);
                                guest.memory.read(address, &mut unit[before..]).unwrap();
                            }
                        }
                    }
                    expected.come(&unit);
                }
                assert!(expected.lost <= card.counters().receive_too_long);
            }
        }
    }
}

/// Units that are to come, and how many before the last one have not.
#[derive(Default)]
struct Expected {
    units: VecDeque<Vec<u8>>,
    lost: u64,
}

impl Expected {
    fn come(&mut self, unit: &[u8]) {
        while self.units.pop_front().expect("another unit") != unit {
            self.lost += 1;
        }
    }
}

/// Where placed bytes lie: in a region that was asked for, and in those that follow it in the stream.
fn places(regions: &[Region], id: u32, mut at: u32, len: u32) -> Vec<(u64, usize)> {
    let mut places = Vec::new();
    let mut left = len;
    let mut next = None;
    for region in regions.iter().filter(|region| region.id >= id) {
        if left == 0 || next.is_some_and(|next| next != region.sequence) {
            continue;
        }
        assert!(at < region.len, "beyond a region");
        let count = left.min(region.len - at);
        places.push((region.address + u64::from(at), count as usize));
        next = Some(region.sequence.wrapping_add(region.len));
        (at, left) = (0, left - count);
    }
    assert_eq!(left, 0, "more than was asked for");
    places
}
