//! Several units in one buffer, from a card that has said so, and what is none.

use super::*;
use wireboot_wire::card::MARK;
use wireboot_wire::card::hello::{CHUNKS, Chunks, Hello, Kind};

const MORE: u8 = 0x80;

/// A driver whose card gives and takes chunks.
fn agreed(config: ModelConfig) -> (Model, VirtioNet<ModelPci>) {
    let (model, mut nic) = start(config);
    nic.ask_card(5).unwrap();
    let question = Hello::parse(&model.collect()[0].frame).unwrap();
    assert_eq!(question.features & CHUNKS, CHUNKS);
    let Chunks { frames, bytes, .. } = question.chunks;
    assert!(frames >= 43 && bytes >= 65_536);
    let answer = Hello {
        kind: Kind::Answer,
        features: CHUNKS,
        ..question
    };
    let marked = UnitHeader {
        gso_type: MARK,
        ..plain()
    };
    assert!(model.deliver(marked, &answer.emit()));
    assert!(receive(&mut nic, 1).unwrap().is_empty());
    assert_eq!(nic.agreed().unwrap().features, CHUNKS);
    (model, nic)
}

/// A header by the format's table.
fn header(flags: u8, hdr_len: u16) -> [u8; 12] {
    let [h0, h1] = hdr_len.to_le_bytes();
    [flags, 0, h0, h1, 0, 0, 0, 0, 0, 0, 1, 0]
}

/// Units of these lengths in one buffer.
fn chunk(lengths: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (n, len) in lengths.iter().enumerate() {
        bytes.resize(bytes.len().next_multiple_of(8), 0xee);
        let more = n + 1 < lengths.len();
        let flags = if more { MORE } else { 0 };
        bytes.extend(header(flags, if more { *len as u16 } else { 0 }));
        bytes.extend(pattern(*len));
    }
    bytes
}

/// The device fills the `n`th buffer, which has this number from the start.
fn fill(model: &Model, n: u16, bytes: &[u8]) {
    model.lie_buffer(0, 0, bytes);
    model.lie_used(0, n.into(), bytes.len() as u32);
}

#[test]
fn units_of_a_chunk_are_lent_one_by_one() {
    for features in [0, feature::MRG_RXBUF] {
        for budget in [1, 2, 64] {
            let (model, mut nic) = agreed(without(features));
            let lengths = [60, 61, 14, 1514, 1000];
            // The answer was in buffer 0.
            fill(&model, 1, &chunk(&lengths));
            let mut units = Vec::new();
            for _ in 0..lengths.len() {
                let got = receive(&mut nic, budget).unwrap();
                assert!(got.len() <= budget);
                units.extend(got.into_iter().map(|unit| unit.bytes));
            }
            assert_eq!(units, lengths.map(pattern));
            assert_eq!(nic.counters().receive_units, 5);
        }
    }
}

#[test]
fn a_chunk_that_contradicts_itself_is_a_fault() {
    let good = chunk(&[60, 60]);
    let with = |at: usize, bytes: &[u8]| {
        let mut chunk = good.clone();
        chunk[at..at + bytes.len()].copy_from_slice(bytes);
        chunk
    };
    let fault = Fault::Misbehaved("it returned an impossible chunk");
    // Lengths of the first unit that are no frame, that leave none behind it, that are beyond the chunk; and a second one behind which there is
    // nothing.
    for bad in [
        with(2, &[0, 0]),
        with(2, &[13, 0]),
        with(2, &[60 + 59, 0]),
        with(2, &[0xff, 0xff]),
        with(72, &[MORE, 0, 60, 0]),
    ] {
        let (model, mut nic) = agreed(without(0));
        fill(&model, 1, &bad);
        assert_eq!(receive(&mut nic, 64).unwrap_err(), fault);
        assert!(!model.is_running());
    }
    // Longer than its buffer.
    let (model, mut nic) = agreed(without(0));
    model.lie_buffer(0, 0, &good);
    model.lie_used(0, 1, 1 << 20);
    assert_eq!(receive(&mut nic, 64).unwrap_err(), fault);
}

#[test]
fn a_unit_that_is_no_frame_is_dropped_alone() {
    let (model, mut nic) = agreed(without(feature::COALESCING));
    fill(&model, 1, &chunk(&[60, 1519, 61]));
    let units = receive(&mut nic, 64).unwrap();
    assert_eq!(units.len(), 2);
    assert_eq!(nic.counters().receive_dropped, 1);
}

#[test]
fn the_bit_says_nothing_where_nothing_is_agreed() {
    let (model, mut nic) = start(without(0));
    let bytes = chunk(&[60, 60]);
    fill(&model, 0, &bytes);
    let units = receive(&mut nic, 64).unwrap();
    assert_eq!(units.len(), 1);
    assert_eq!(units[0].bytes, bytes[12..]);
}

#[test]
fn short_frames_between_two_flushes_share_a_buffer() {
    let send = |nic: &mut VirtioNet<ModelPci>| {
        let (_, mut tx) = nic.split();
        for len in [60, 61, 1514, 60, 1514] {
            tx.send(len, Offload::None, &mut |out| {
                out.copy_from_slice(&pattern(len))
            })
            .unwrap();
        }
        tx.flush().unwrap();
        tx.send(60, Offload::None, &mut |out| out.fill(1)).unwrap();
        tx.flush().unwrap();
    };
    let (model, mut nic) = start(without(0));
    send(&mut nic);
    let alone: Vec<_> = model
        .collect()
        .iter()
        .map(|sent| sent.frame.len())
        .collect();
    assert_eq!(alone, [60, 61, 1514, 60, 1514, 60]);
    let (model, mut nic) = agreed(without(0));
    send(&mut nic);
    let sent = model.collect();
    // 2048 bytes: 12 + 60, 12 + 61, 12 + 1514, 12 + 60; then 12 + 1514; what was flushed is not touched again.
    let lengths: Vec<_> = sent.iter().map(|sent| sent.frame.len()).collect();
    assert_eq!(lengths, [72 + 80 + 1528 + 60, 1514, 60]);
    assert_eq!((sent[0].flags, sent[0].hdr_len), (MORE, 60));
    let mut expected = chunk(&[60, 61, 1514, 60]);
    let behind = &mut sent[0].frame.clone();
    // Between units lies what was there before.
    for (to, from) in [(72 + 73, 72 + 80), (152 + 1526, 152 + 1528)] {
        expected[to..from].fill(0);
        behind[to - 12..from - 12].fill(0);
    }
    expected[72 + 80 + 10..][..2].fill(0);
    for header in [72, 152, 1680] {
        expected[header + 10..header + 12].fill(0);
    }
    assert_eq!(behind[..], expected[12..]);
    assert_eq!(nic.counters().transmit_frames, 1 + 6);
}
