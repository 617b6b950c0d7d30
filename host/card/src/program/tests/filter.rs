//! What becomes of frames.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wireboot_card::model::Line;
use wireboot_card::testing::{Script, VecMemory};
use wireboot_card::{
    GuestMemory, Header, Pace, Paced, Received, Span, Unit, Unmapped, Wire, feature,
};

use super::super::machine::{SEEN, Wild};
use super::super::{Filter, Hook, PairOf, Program, ProgramCounters};
use super::program;

const BASE: u64 = 0x1000;
const ROOM: Span = Span {
    address: BASE,
    len: 0x1000,
};
/// A wire found the checksum right.
const VALID: Header = Header {
    flags: 2,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 0,
    csum_offset: 0,
};

/// A wire behind a program, of the only pair or of another.
pub(super) struct Rig {
    pub filter: Filter<Script>,
    memory: VecMemory,
}

impl Rig {
    pub(super) fn new(program: Program) -> Self {
        Self::of(program, PairOf::ONLY)
    }

    pub(super) fn of(program: Program, place: PairOf) -> Self {
        let script = Script {
            offloads: feature::KNOWN,
            ..Script::default()
        };
        Self {
            filter: Filter::new(script, Some(program), place),
            memory: VecMemory::new(BASE, 0x2000),
        }
    }

    /// The guest sends a frame, whose first bytes the card has. What has come to the wire by then.
    pub(super) fn send(&mut self, frame: &[u8], micros: u64) -> Vec<Vec<u8>> {
        let now = Duration::from_micros(micros);
        let head = frame.len().min(20);
        self.memory.write(BASE, &frame[head..]).unwrap();
        let span = Span {
            address: BASE,
            len: (frame.len() - head) as u32,
        };
        let unit = Unit {
            header: Header::default(),
            head: &frame[..head],
            spans: &[span],
            len: frame.len(),
        };
        assert!(self.filter.send(&self.memory, &unit, now));
        self.sent(micros)
    }

    /// What has come to the wire by then.
    pub(super) fn sent(&mut self, micros: u64) -> Vec<Vec<u8>> {
        self.filter
            .advance(&self.memory, Duration::from_micros(micros));
        let sent = std::mem::take(&mut self.filter.wire_mut().sent);
        sent.into_iter().map(|(_, frame)| frame).collect()
    }

    /// What comes to the guest by then of these frames and of what waited.
    pub(super) fn receive(&mut self, frames: &[&[u8]], micros: u64) -> Vec<Vec<u8>> {
        let received = self.receive_all(frames, micros);
        received.into_iter().map(|(_, frame)| frame).collect()
    }

    fn receive_all(&mut self, frames: &[&[u8]], micros: u64) -> Vec<(Header, Vec<u8>)> {
        let coming = frames.iter().map(|frame| (VALID, frame.to_vec()));
        self.filter.wire_mut().coming = coming.collect::<VecDeque<_>>();
        let now = Duration::from_micros(micros);
        let mut received = Vec::new();
        loop {
            match self.filter.receive(&self.memory, &[ROOM], now) {
                Received::Nothing => return received,
                Received::Kept => {}
                Received::TooLong => panic!("there is room"),
                Received::Unit { header, len } => {
                    received.push((header, self.memory.snapshot()[..len].to_vec()));
                }
            }
        }
    }

    pub(super) fn counters(&self) -> ProgramCounters {
        self.filter.counters().unwrap()
    }
}

fn frame(first: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| first.wrapping_add(n as u8)).collect()
}

#[test]
fn a_frame_is_passed_or_dropped() {
    for hook in Hook::ALL {
        // Those whose first byte is odd.
        let mut rig = Rig::new(program(hook, "ldxb r0, [r1+24]\nand r0, 1\nexit"));
        let frames = [frame(1, 60), frame(2, 1500), frame(3, 60), frame(4, 61)];
        let mut passed = Vec::new();
        for frame in &frames {
            passed.extend(match hook {
                Hook::Guest => rig.send(frame, 0),
                Hook::Wire => rig.receive(&[frame], 0),
            });
        }
        assert_eq!(passed, [frames[1].clone(), frames[3].clone()]);
        let counters = rig.counters();
        assert_eq!(counters.dropped, 2);
        assert_eq!(counters.seen[hook as usize], 4);
        assert_eq!(counters.seen[1 - hook as usize], 0);
    }
}

/// Each by a byte of the frame that it is told in.
#[test]
fn a_program_is_told_time_length_and_direction() {
    for hook in Hook::ALL {
        let text = "ldxdw r2, [r1]\nstxdw [r1+24], r2\nldxw r2, [r1+8]\nstxw [r1+32], r2\nldxh r2, [r1+12]\nstxw [r1+36], r2\n\
                    ldxb r2, [r1+85]\nstxb [r1+40], r2\nmov r0, 0\nexit";
        let mut rig = Rig::new(program(hook, text));
        // What was seen of the frame before is not there any more.
        for (len, behind) in [(100, 1 + 61), (61, 0)] {
            let frame = frame(1, len);
            let out = match hook {
                Hook::Guest => rig.send(&frame, 3),
                Hook::Wire => rig.receive(&[&frame], 3),
            };
            let mut expected = frame.clone();
            expected[..8].copy_from_slice(&3000u64.to_le_bytes());
            expected[8..12].copy_from_slice(&(len as u32).to_le_bytes());
            expected[12..16].copy_from_slice(&(hook as u32).to_le_bytes());
            expected[16] = behind;
            assert_eq!(out, [expected], "{hook:?}");
        }
    }
}

#[test]
fn what_is_edited_is_edited_within_the_frame() {
    let last = 24 + SEEN - 1;
    let text =
        format!("stb [r1+24], 0xee\nstb [r1+84], 0xee\nstb [r1+{last}], 0xee\nmov r0, 0\nexit");
    for hook in Hook::ALL {
        let mut rig = Rig::new(program(hook, &text));
        for len in [60, 61, SEEN - 1, SEEN, SEEN + 1, 1500] {
            let frame = frame(1, len);
            let mut expected = frame.clone();
            for at in [0, 60, SEEN - 1] {
                if let Some(byte) = expected.get_mut(at) {
                    *byte = 0xee;
                }
            }
            let out = match hook {
                Hook::Guest => rig.send(&frame, 0),
                Hook::Wire => rig.receive(&[&frame], 0),
            };
            assert_eq!(out, [expected], "{hook:?} {len}");
        }
        assert_eq!(rig.counters().edited, 6);
    }
    // Nobody has found right what was changed.
    let mut rig = Rig::new(program(Hook::Wire, "stb [r1+24], 9\nmov r0, 0\nexit"));
    let (changed, same) = (frame(1, 60), frame(9, 60));
    let received = rig.receive_all(&[&changed, &same], 0);
    let flags: Vec<u8> = received.iter().map(|(header, _)| header.flags).collect();
    assert_eq!(flags, [0, 2]);
}

#[test]
fn frames_wait_and_are_copied() {
    // The first byte is the delay in milliseconds, the second the copies.
    let text = "ldxb r2, [r1+24]\nmul r2, 1000\nstxw [r1+16], r2\nldxb r2, [r1+25]\nstxw [r1+20], r2\nstb [r1+26], 9\nmov r0, 0\nexit";
    let frame = |delay, copies, n| vec![delay, copies, 0, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let sent = |delay, copies, n| vec![delay, copies, 9, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut rig = Rig::new(program(Hook::Guest, text));
    assert_eq!(rig.send(&frame(5, 0, 1), 0), [[0; 0]; 0]);
    assert_eq!(rig.filter.due_from_guest(), Some(Duration::from_millis(5)));
    assert_eq!(rig.send(&frame(1, 1, 2), 0), [[0; 0]; 0]);
    assert_eq!(rig.send(&frame(0, 2, 3), 500), vec![sent(0, 2, 3); 3]);
    assert_eq!(rig.sent(999), [[0; 0]; 0]);
    assert_eq!(rig.sent(1000), vec![sent(1, 1, 2); 2]);
    assert_eq!(rig.filter.wire().flushes, 1);
    assert_eq!(rig.sent(9000), [sent(5, 0, 1)]);
    assert_eq!(rig.filter.due_from_guest(), None);
    let mut rig = Rig::new(program(Hook::Wire, text));
    let frames = [frame(5, 0, 1), frame(1, 1, 2), frame(0, 2, 3)];
    let frames = frames.each_ref().map(Vec::as_slice);
    assert_eq!(rig.receive(&frames, 0), vec![sent(0, 2, 3); 3]);
    assert_eq!(rig.filter.due_to_guest(), Some(Duration::from_millis(1)));
    assert_eq!(rig.receive(&[], 999), [[0; 0]; 0]);
    assert_eq!(rig.receive(&[], 1000), vec![sent(1, 1, 2); 2]);
    let counters = rig.counters();
    assert_eq!((counters.delayed, counters.copies), (2, 3));
    // What waits is not for the next guest.
    Wire::<VecMemory>::agree(&mut rig.filter, 0);
    assert_eq!(rig.receive(&[], 9000), [[0; 0]; 0]);
    assert_eq!(rig.counters().forgotten, 1);
}

/// The first byte chooses the pair, the second the copies, the third the delay in milliseconds.
const CHOOSES: &str = "ldxb r2, [r1+24]\nstxh [r1+22], r2\nldxb r2, [r1+25]\nstxh [r1+20], r2\nldxb r2, [r1+26]\nmul r2, 1000\n\
                       stxw [r1+16], r2\nmov r2, 9\nstxb [r1+27], r2\nmov r0, 0\nexit";

#[test]
fn a_frame_goes_on_by_the_pair_that_is_chosen() {
    for hook in Hook::ALL {
        let rig = |pair| Rig::of(program(hook, CHOOSES), PairOf { pair, pairs: 3 });
        let (mut one, mut two) = (rig(1), rig(2));
        let frame =
            |pair, copies, delay, n| [vec![pair, copies, delay, n], frame(50, 1000)].concat();
        let pass = |rig: &mut Rig, frames: &[&[u8]], micros| match hook {
            Hook::Guest => {
                let sent = frames.iter().flat_map(|frame| rig.send(frame, micros));
                let sent: Vec<_> = sent.collect();
                [sent, rig.sent(micros)].concat()
            }
            Hook::Wire => rig.receive(frames, micros),
        };
        let (stays, goes, goes_later) = (frame(1, 0, 0, 1), frame(2, 1, 0, 2), frame(2, 0, 7, 3));
        let gone = pass(&mut one, &[&stays, &goes, &goes_later], 0);
        assert_eq!(gone, [frame(1, 0, 0, 9)]);
        let diverted = one.filter.take_diverted();
        assert!(one.filter.take_diverted().is_empty());
        assert_eq!(diverted.len(), 2);
        for diverted in &diverted {
            assert_eq!((diverted.hook, diverted.pair), (hook, 2));
            two.filter.take_over(diverted);
        }
        // The program of the other pair does not see them.
        let arrived = pass(&mut two, &[], 6999);
        assert_eq!(arrived, [frame(2, 1, 0, 9), frame(2, 1, 0, 9)]);
        assert_eq!(pass(&mut two, &[], 7000), [frame(2, 0, 7, 9)]);
        assert_eq!(two.counters(), ProgramCounters::default());
        assert_eq!(one.counters().diverted, 2);
        assert_eq!(one.counters().lost(), 0);
        // One with as many as there is room for.
        for _ in 0..513 {
            pass(&mut one, &[&goes], 8000);
        }
        assert_eq!(one.filter.take_diverted().len(), 512);
        assert_eq!(one.counters().no_room, 1);
        // There is no such pair.
        assert_eq!(pass(&mut one, &[&frame(3, 0, 0, 1)], 9000), [[0; 0]; 0]);
        let wild = Wild::Pair { pair: 3, pairs: 3 };
        assert_eq!(one.filter.take_failure(), Some((hook, wild)));
    }
}

/// What is said of a frame's checksum goes with it.
#[test]
fn a_frame_keeps_its_header_on_another_pair() {
    const TO_THE_SECOND: &str = "mov r2, 1\nstxh [r1+22], r2\nmov r0, 0\nexit";
    const EDITED_TO_THE_SECOND: &str =
        "mov r2, 1\nstxh [r1+22], r2\nstxb [r1+24], r2\nmov r0, 0\nexit";
    let rigs = |hook, text| {
        let rig = |pair| Rig::of(program(hook, text), PairOf { pair, pairs: 2 });
        (rig(0), rig(1))
    };
    let frame = frame(3, 100);
    for (text, flags) in [(TO_THE_SECOND, VALID.flags), (EDITED_TO_THE_SECOND, 0)] {
        let (mut one, mut two) = rigs(Hook::Wire, text);
        assert!(one.receive(&[&frame], 0).is_empty());
        for diverted in one.filter.take_diverted() {
            two.filter.take_over(&diverted);
        }
        let received = two.receive_all(&[], 0);
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].0, Header { flags, ..VALID });
    }

    let (mut one, mut two) = rigs(Hook::Guest, TO_THE_SECOND);
    let header = Header {
        flags: 1,
        csum_start: 34,
        csum_offset: 16,
        ..Header::default()
    };
    let unit = Unit {
        header,
        head: &frame,
        spans: &[],
        len: frame.len(),
    };
    assert!(one.filter.send(&one.memory, &unit, Duration::ZERO));
    for diverted in one.filter.take_diverted() {
        two.filter.take_over(&diverted);
    }
    two.filter.advance(&two.memory, Duration::ZERO);
    assert_eq!(two.filter.wire().sent, [(header, frame)]);
}

#[test]
fn units_stay_with_the_guest_while_many_frames_are_on_their_way_to_other_pairs() {
    let mut rig = Rig::of(program(Hook::Guest, CHOOSES), PairOf { pair: 0, pairs: 2 });
    let takes = |rig: &Rig| Wire::<VecMemory>::takes(&rig.filter);
    let mut count = 0;
    while takes(&rig) {
        rig.send(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0);
        count += 1;
    }
    // There is room for what the longest unit is cut into.
    assert!((400..=512 - 46).contains(&count), "{count}");
    assert_eq!(rig.filter.take_diverted().len(), count);
    assert!(takes(&rig));
}

#[test]
fn behind_a_line_too_none_is_lost_on_its_way_to_another_pair() {
    let pace = Pace {
        line: Line::named("1g"),
        ..Pace::default()
    };
    let chooses = program(Hook::Guest, CHOOSES);
    let filter = Filter::new(
        Script::default(),
        Some(chooses),
        PairOf { pair: 0, pairs: 2 },
    );
    let memory = VecMemory::new(BASE, 0x1000);
    let mut paced = Paced::new(filter, pace);
    let frame = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let unit = Unit {
        header: Header::default(),
        head: &frame,
        spans: &[],
        len: frame.len(),
    };
    let mut now = Duration::ZERO;
    for _ in 0..1000 {
        assert!(paced.send(&memory, &unit, now));
        now += Duration::from_micros(1);
        paced.advance(&memory, now);
    }
    now += Duration::from_secs(1);
    let mut arrived = 0;
    while arrived < 1000 {
        paced.advance(&memory, now);
        let diverted = paced.wire_mut().take_diverted().len();
        assert!((1..=512).contains(&diverted), "{diverted} behind {arrived}");
        arrived += diverted;
    }
    assert_eq!(paced.counters().lost(), 0);
}

#[test]
fn units_stay_with_the_guest_while_the_wire_behind_the_program_is_busy() {
    let mut rig = Rig::new(program(Hook::Guest, "mov r0, 0\nexit"));
    for is_busy in [true, false] {
        rig.filter.wire_mut().is_busy = is_busy;
        assert_eq!(Wire::<VecMemory>::takes(&rig.filter), !is_busy);
    }
}

#[test]
fn a_stopped_receive_queue_has_nothing_waiting() {
    // All wait for a second.
    for hook in Hook::ALL {
        let mut rig = Rig::new(program(hook, "stw [r1+16], 1000000\nmov r0, 0\nexit"));
        let frame = frame(1, 60);
        rig.receive(&[&frame, &frame], 0);
        rig.send(&frame, 0);
        rig.filter.forget_received();
        let (to_wire, to_guest) = (rig.sent(2_000_000), rig.receive(&[], 2_000_000));
        assert!(to_guest.is_empty());
        match hook {
            Hook::Guest => assert_eq!(to_wire, [frame]),
            Hook::Wire => assert_eq!(rig.counters().forgotten, 2),
        }
    }
}

#[test]
fn a_program_is_told_its_pair_and_how_many_there_are() {
    let text = "ldxh r2, [r1+14]\nstxb [r1+24], r2\nldxh r2, [r1+22]\nstxb [r1+25], r2\nldxh r2, [r1+12]\nstxb [r1+26], r2\nmov r0, 0\nexit";
    for hook in Hook::ALL {
        let mut rig = Rig::of(program(hook, text), PairOf { pair: 5, pairs: 8 });
        let frame = frame(1, 60);
        let told = match hook {
            Hook::Guest => rig.send(&frame, 0),
            Hook::Wire => rig.receive(&[&frame], 0),
        };
        assert_eq!(told[0][..3], [8, 5, hook as u8]);
    }
}

#[test]
fn a_program_gone_wild_passes_nothing_until_its_queue_starts_again() {
    for (text, wild) in [
        ("mov r0, 2\nexit", Wild::Verdict(2)),
        (
            "stw [r1+16], 1000001\nmov r0, 0\nexit",
            Wild::Delay(1_000_001),
        ),
        ("stw [r1+20], 9\nmov r0, 0\nexit", Wild::Copies(9)),
        (
            "mov r0, 0\nstdw [r10], 0\nexit",
            Wild::Write {
                instruction: 1,
                width: 8,
            },
        ),
    ] {
        for hook in Hook::ALL {
            // On frames whose first byte is odd.
            let text = format!("ldxb r0, [r1+24]\nand r0, 1\njne r0, 0, +1\nexit\n{text}");
            let mut rig = Rig::new(program(hook, &text));
            let (good, bad) = (frame(2, 60), frame(1, 60));
            let one = |rig: &mut Rig, frame: &[u8]| match hook {
                Hook::Guest => rig.send(frame, 0).len(),
                Hook::Wire => rig.receive(&[frame], 0).len(),
            };
            assert_eq!(one(&mut rig, &good), 1);
            assert_eq!(rig.filter.take_failure(), None);
            assert_eq!((one(&mut rig, &bad), one(&mut rig, &good)), (0, 0));
            let wild = match wild {
                Wild::Write { width, .. } => Wild::Write {
                    instruction: 5,
                    width,
                },
                other => other,
            };
            assert_eq!(rig.filter.take_failure(), Some((hook, wild)));
            assert_eq!(rig.filter.take_failure(), None);
            let other = Hook::ALL[1 - hook as usize];
            rig.filter.restart(other);
            assert_eq!(one(&mut rig, &good), 0);
            rig.filter.restart(hook);
            assert_eq!(one(&mut rig, &good), 1);
            assert_eq!(rig.counters().failed, 3);
        }
    }
}

#[test]
fn a_program_sees_frames_and_its_wire_has_no_large_units() {
    let large = feature::LARGE_UNITS;
    let offloads = |filter: &Filter<Script>| Wire::<VecMemory>::offloads(filter);
    let mut rig = Rig::new(program(Hook::Wire, "mov r0, 0\nexit"));
    assert_eq!(offloads(&rig.filter), feature::KNOWN & !large);
    Wire::<VecMemory>::agree(&mut rig.filter, feature::KNOWN);
    assert_eq!(rig.filter.wire().agreed, feature::KNOWN & !large);
    let script = Script {
        offloads: feature::KNOWN,
        ..Script::default()
    };
    let mut none = Filter::from(script);
    assert_eq!(offloads(&none), feature::KNOWN);
    Wire::<VecMemory>::agree(&mut none, feature::KNOWN);
    assert_eq!(none.wire().agreed, feature::KNOWN);
    assert_eq!(none.counters(), None);
}

/// Memory of a guest that writes to a frame as soon as it has been read once.
struct Changing {
    memory: VecMemory,
    reads: Cell<usize>,
}

impl GuestMemory for Changing {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped> {
        self.memory.read(address, to)?;
        if self.reads.replace(self.reads.get() + 1) > 0 {
            to.fill(0xee);
        }
        Ok(())
    }

    fn contains(&self, span: Span) -> bool {
        self.memory.contains(span)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        self.memory.write(address, from)
    }

    fn load(&self, address: u64, order: Ordering) -> Result<u16, Unmapped> {
        self.memory.load(address, order)
    }

    fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), Unmapped> {
        self.memory.store(address, value, order)
    }
}

#[test]
fn what_a_program_has_passed_is_what_goes() {
    let memory = Changing {
        memory: VecMemory::new(BASE, 0x1000),
        reads: Cell::new(0),
    };
    let bytes = frame(1, 700);
    memory.write(BASE, &bytes).unwrap();
    let span = Span {
        address: BASE,
        len: 700,
    };
    let unit = Unit {
        header: Header::default(),
        head: &[],
        spans: &[span],
        len: 700,
    };
    let passes = program(Hook::Guest, "mov r0, 0\nexit");
    let mut filter = Filter::new(Script::default(), Some(passes), PairOf::ONLY);
    assert!(filter.send(&memory, &unit, Duration::ZERO));
    let (_, sent) = &filter.wire_mut().sent[0];
    assert_eq!(sent.len(), 700);
    assert!(sent[..SEEN] == bytes[..SEEN]);
}
