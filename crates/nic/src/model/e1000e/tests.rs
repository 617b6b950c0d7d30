use std::vec;
use std::vec::Vec;

use super::*;
use crate::e1000e::{E1000e, InitError, supports};
use crate::{Checksum, Fault, Nic, Offload, Receive, SendError, Transmit};
use proptest::prelude::*;

type Driver = E1000e<ModelPci>;

fn start() -> (Model, Driver) {
    start_as(0x10d3)
}

fn start_as(device: u16) -> (Model, Driver) {
    let model = Model::new(ModelConfig {
        device,
        ..ModelConfig::default()
    });
    let nic = E1000e::new(model.pci()).unwrap();
    (model, nic)
}

fn refused(model: &Model) -> InitError {
    let Err(error) = E1000e::new(model.pci()) else {
        panic!("the driver should refuse");
    };
    error
}

fn receive(nic: &mut Driver, budget: usize) -> Result<Vec<(Vec<u8>, Checksum)>, Fault> {
    let mut frames = Vec::new();
    let lent = nic.split().0.burst(budget, |frame| {
        assert_eq!(frame.parts.len(), 1);
        frames.push((frame.parts.concat(), frame.checksum));
    })?;
    assert_eq!(lent, frames.len());
    Ok(frames)
}

/// Bytes that tell their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

#[test]
fn knows_its_pci_ids() {
    for device in [0x10d3, 0x10f6, 0x100e, 0x100f] {
        assert!(supports(0x8086, device));
    }
    assert!(!supports(0x8086, 0x1533) && !supports(0x1af4, 0x10d3));
}

/// 82574 datasheet, sections 7.1.4 (status and errors of a received frame) and 7.2.10 (command of one to send).
#[test]
fn descriptors_are_those_of_the_datasheet() {
    use crate::e1000e::receive::{DAMAGED, IXSM};
    const STATUS: u32 = 32;
    const ERRORS: u32 = 40;
    const COMMAND: u32 = 24;
    let bits =
        |base: u32, bits: &[u32]| bits.iter().fold(0_u64, |sum, bit| sum | 1 << (base + bit));
    assert_eq!(DD, bits(STATUS, &[0]));
    assert_eq!(EOP, bits(STATUS, &[1]));
    assert_eq!(IXSM, bits(STATUS, &[2]));
    assert_eq!(TCPCS, bits(STATUS, &[5]));
    // CE, SE, SEQ, CXE, RXE.
    assert_eq!(DAMAGED, bits(ERRORS, &[0, 1, 2, 4, 7]));
    assert_eq!(TCPE, bits(ERRORS, &[5]));
    assert_eq!(IPE, bits(ERRORS, &[6]));
    let command = transmit::EOP | transmit::IFCS | transmit::RS;
    assert_eq!(command, bits(COMMAND, &[0, 1, 3]));
}

#[test]
fn both_kinds_start() {
    for device in [0x10d3, 0x100e] {
        let (model, nic) = start_as(device);
        let properties = nic.properties();
        assert_eq!(properties.mac, [2, 0, 0, 0, 0, 0x0e]);
        assert_eq!((properties.mtu, properties.max_receive), (1500, 1518));
        assert_eq!(properties.receive_frames, 992);
        assert_eq!(model.receive_buffers(), 1023);
        assert_eq!(model.resets(), 1);
    }
}

#[test]
fn refuses_what_it_cannot_use() {
    let with = |change: fn(&mut ModelConfig)| {
        let mut config = ModelConfig::default();
        change(&mut config);
        let model = Model::new(config);
        let error = refused(&model);
        assert!(!model.is_running() && !model.freed_while_running());
        assert_eq!(model.blocks(), 0);
        error
    };
    assert_eq!(with(|c| c.has_mac = false), InitError::NoMac);
    assert_eq!(with(|c| c.mac = [0; 6]), InitError::NoMac);
    assert_eq!(with(|c| c.mac[0] = 1), InitError::NoMac);
    let model = Model::new(ModelConfig::default());
    model.remove();
    assert_eq!(refused(&model), InitError::Removed);
}

#[test]
fn frames_come_in_order_through_many_wraps() {
    let (model, mut nic) = start();
    let mut expected = 0u32;
    for round in 0..if cfg!(miri) { 3 } else { 700 } {
        let count = 1 + round % 200;
        for n in 0..count {
            let mut frame = pattern(60);
            frame[..4].copy_from_slice(&(expected + n).to_le_bytes());
            assert!(model.deliver(&frame, Verdict::NotLooked));
        }
        let mut left = count as usize;
        while left > 0 {
            let frames = receive(&mut nic, 64).unwrap();
            assert_eq!(frames.len(), left.min(64));
            left -= frames.len();
            for (frame, _) in frames {
                assert_eq!(frame[..4], expected.to_le_bytes());
                assert_eq!(frame[4..], pattern(60)[4..]);
                expected += 1;
            }
        }
        let promised = nic.properties().receive_frames;
        assert!(model.receive_buffers() >= promised);
    }
    assert_eq!(receive(&mut nic, 64), Ok(vec![]));
    assert_eq!(nic.counters().receive_units, expected.into());
    assert_eq!(nic.counters().receive_bytes, u64::from(expected) * 60);
}

#[test]
fn a_full_ring_is_taken_whole() {
    let (model, mut nic) = start();
    let mut delivered = 0;
    while model.deliver(&pattern(1514), Verdict::NotLooked) {
        delivered += 1;
    }
    assert_eq!(delivered, 1023);
    let frames = receive(&mut nic, usize::MAX).unwrap();
    assert_eq!(frames.len(), delivered);
    assert_eq!(model.receive_buffers(), 1023, "all buffers are back");
}

#[test]
fn checksums_are_trusted_only_when_looked_at_and_right() {
    let (model, mut nic) = start();
    let cases = [
        (Verdict::NotLooked, Checksum::Unverified),
        (Verdict::Right, Checksum::Trusted),
        (Verdict::Wrong, Checksum::Unverified),
        (Verdict::WrongHeader, Checksum::Unverified),
    ];
    for (verdict, expected) in cases {
        assert!(model.deliver(&pattern(200), verdict));
        assert_eq!(receive(&mut nic, 8), Ok(vec![(pattern(200), expected)]));
    }
    // IXSM takes back what TCPCS says.
    model.lie_descriptor(RECEIVE, 0, 0x27 << 32 | 60);
    assert_eq!(receive(&mut nic, 8).unwrap()[0].1, Checksum::Unverified);
}

#[test]
fn odd_frames_are_dropped_and_their_buffers_used_again() {
    let (model, mut nic) = start();
    for (n, len) in [13, 1519, 1522, 2048, 2049, 5000].into_iter().enumerate() {
        assert!(model.deliver(&pattern(len), Verdict::Right));
        assert!(model.deliver(&pattern(60), Verdict::Right));
        let frames = receive(&mut nic, 64).unwrap();
        assert_eq!(frames, [(pattern(60), Checksum::Trusted)], "frame {n}");
    }
    // Two of them lay in two buffers and in three.
    assert_eq!(nic.counters().receive_dropped, 9);
    // Damaged on the wire: each of the errors.
    for error in [0, 1, 2, 4, 7] {
        let word = 3 << 32 | 1 << (40 + error) | 60;
        model.lie_descriptor(RECEIVE, 0, word);
    }
    assert_eq!(receive(&mut nic, 64), Ok(vec![]));
    assert_eq!(nic.counters().receive_dropped, 14);
}

#[test]
fn sent_frames_reach_the_chip_at_flush() {
    let (model, mut nic) = start();
    let (_, tx) = nic.split();
    tx.send(60, Offload::None, &mut |frame| {
        frame.copy_from_slice(&pattern(60))
    })
    .unwrap();
    tx.send(1514, Offload::None, &mut |frame| {
        frame.copy_from_slice(&pattern(1514))
    })
    .unwrap();
    let long = tx.send(1519, Offload::None, &mut |_| ());
    assert_eq!(long, Err(SendError::TooLong));
    let cut = Offload::TcpSegmentation {
        start: 34,
        header_len: 54,
        mss: 536,
    };
    assert_eq!(tx.send(1500, cut, &mut |_| ()), Err(SendError::TooLong));
    assert!(model.collect().is_empty());
    assert!(!tx.idle());
    tx.flush().unwrap();
    tx.flush().unwrap();
    assert!(!tx.idle());
    assert_eq!(model.collect(), [pattern(60), pattern(1514)]);
    assert!(tx.idle());
    assert_eq!(model.doorbells()[1], 1, "one for all that was queued");
    assert_eq!(nic.counters().transmit_doorbells, 1);
}

#[test]
fn short_frames_are_padded_with_zeros() {
    let (model, mut nic) = start();
    let (_, tx) = nic.split();
    // Through the whole ring, so that buffers are used again.
    for len in [1514, 0, 17] {
        for _ in 0..256 {
            tx.send(len, Offload::None, &mut |frame| frame.fill(0xff))
                .unwrap();
            tx.flush().unwrap();
            let [sent] = model.collect().try_into().unwrap();
            assert_eq!(sent.len(), len.max(60));
            assert!(sent[..len].iter().all(|byte| *byte == 0xff));
            assert!(sent[len..].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn the_driver_completes_checksums() {
    let (model, mut nic) = start();
    assert!(!nic.properties().transmit_checksum);
    let (_, tx) = nic.split();
    let offload = Offload::L4Checksum {
        start: 34,
        offset: 16,
    };
    tx.send(60, offload, &mut |frame| frame.fill(0)).unwrap();
    tx.flush().unwrap();
    assert_eq!(model.collect()[0][50..52], [0xff, 0xff]);
}

#[test]
fn the_transmit_ring_fills_and_drains() {
    let (model, mut nic) = start();
    let (_, tx) = nic.split();
    for round in 0..if cfg!(miri) { 2 } else { 300 } {
        for n in 0..255 {
            assert_eq!(tx.room(), 255 - n);
            let number = (n as u32).to_le_bytes();
            tx.send(64, Offload::None, &mut |frame| {
                frame[..4].copy_from_slice(&number)
            })
            .unwrap();
        }
        assert_eq!(
            tx.send(64, Offload::None, &mut |_| ()),
            Err(SendError::Full)
        );
        tx.flush().unwrap();
        assert_eq!(tx.room(), 0);
        let sent = model.collect();
        assert_eq!(sent.len(), 255, "round {round}");
        for (n, sent) in sent.iter().enumerate() {
            assert_eq!(sent[..4], (n as u32).to_le_bytes());
        }
        assert!(tx.idle());
    }
    assert!(nic.counters().transmit_full > 0);
}

#[test]
fn the_receive_tail_is_written_once_for_many_buffers() {
    let (model, mut nic) = start();
    assert_eq!(model.doorbells()[0], 1, "the first buffers");
    for _ in 0..31 {
        model.deliver(&pattern(60), Verdict::NotLooked);
        receive(&mut nic, 8).unwrap();
    }
    assert_eq!(model.doorbells()[0], 1);
    model.deliver(&pattern(60), Verdict::NotLooked);
    receive(&mut nic, 8).unwrap();
    assert_eq!(model.doorbells()[0], 2);
    assert_eq!(model.receive_buffers(), 1023);
    assert_eq!(nic.counters().receive_doorbells, 2);
}

#[test]
fn a_frame_can_be_answered_while_it_is_on_loan() {
    let (model, mut nic) = start();
    model.deliver(&pattern(300), Verdict::NotLooked);
    let (rx, tx) = nic.split();
    rx.burst(8, |frame| {
        tx.send(frame.len, Offload::None, &mut |out| {
            out.copy_from_slice(frame.parts[0])
        })
        .unwrap();
        tx.flush().unwrap();
    })
    .unwrap();
    assert_eq!(model.collect(), [pattern(300)]);
}

#[test]
fn the_link_is_asked_for() {
    let (model, mut nic) = start();
    assert!(nic.link_up());
    model.set_link_up(false);
    assert!(!nic.link_up());
}

/// Lets the chip do something and expects the fault, for good, from both halves.
fn fault_after(act: impl FnOnce(&Model, &mut Driver)) -> Fault {
    let (model, mut nic) = start();
    act(&model, &mut nic);
    let fault = receive(&mut nic, 64).unwrap_err();
    assert!(!model.is_running());
    let resets = model.resets();
    assert_eq!(receive(&mut nic, 64), Err(fault));
    let (_, tx) = nic.split();
    assert_eq!(tx.send(60, Offload::None, &mut |_| ()), Err(fault.into()));
    assert_eq!(tx.flush(), Err(fault));
    assert_eq!((tx.room(), tx.idle()), (0, true));
    assert!(!nic.link_up());
    nic.stop();
    drop(nic);
    assert_eq!(model.resets(), resets, "left alone after the fault");
    assert!(!model.freed_while_running());
    assert_eq!(model.blocks(), 0);
    fault
}

#[test]
fn each_lie_is_a_fault() {
    let impossible = "it returned an impossible length";
    for len in [2049, u64::from(u16::MAX)] {
        let fault = fault_after(|model, _| model.lie_descriptor(RECEIVE, 0, DD | EOP | len));
        assert_eq!(fault, Fault::Misbehaved(impossible));
    }
    let fault = |register, value| {
        fault_after(|model, nic| {
            model.lie_register(register, value);
            assert!(!nic.link_up());
        })
    };
    for register in [RCTL, TCTL] {
        let reset = Fault::Misbehaved("it was reset without being asked to");
        assert_eq!(fault(register, 0), reset);
    }
    for head in [(RECEIVE, 1024), (TRANSMIT, 256), (TRANSMIT, u32::MAX)] {
        let beyond = Fault::Misbehaved("it works beyond the end of a ring");
        assert_eq!(fault(head.0 + HEAD, head.1), beyond);
    }
}

#[test]
fn done_bits_mean_nothing_in_descriptors_that_the_chip_has_not() {
    let (model, mut nic) = start();
    // The one between tail and head, and one in the midst of the others.
    model.lie_descriptor(RECEIVE, 1023, DD | EOP | 60);
    model.lie_descriptor(RECEIVE, 500, DD | EOP | 60);
    model.lie_descriptor(TRANSMIT, 0, DD);
    model.lie_descriptor(TRANSMIT, 7, DD);
    assert_eq!(receive(&mut nic, 64), Ok(vec![]));
    let (_, tx) = nic.split();
    assert_eq!(tx.room(), 255);
    tx.send(60, Offload::None, &mut |_| ()).unwrap();
    tx.flush().unwrap();
    assert!(!tx.idle(), "done before it was sent");
    assert_eq!(tx.room(), 254);
}

#[test]
fn removal_is_noticed() {
    let fault = fault_after(|model, nic| {
        model.remove();
        assert!(!nic.link_up());
    });
    assert_eq!(fault, Fault::Removed);
}

#[test]
#[cfg_attr(miri, ignore = "65,536 bursts")]
fn removal_is_noticed_by_polling_alone() {
    let (model, mut nic) = start();
    model.remove();
    let fault = (0..=1 << 16).find_map(|_| receive(&mut nic, 64).err());
    assert_eq!(fault, Some(Fault::Removed));
}

#[test]
fn stop_waits_until_the_last_frames_are_sent() {
    for waits in [0, 1, 5000] {
        let (model, mut nic) = start();
        model.send_after_waits(waits);
        let (_, tx) = nic.split();
        tx.send(60, Offload::None, &mut |frame| frame.fill(7))
            .unwrap();
        nic.stop();
        assert!(!model.is_running());
        assert_eq!(model.collect(), [[7; 60]], "{waits}");
    }
    // Not for ever.
    let (model, mut nic) = start();
    nic.split().1.send(60, Offload::None, &mut |_| ()).unwrap();
    nic.stop();
    assert!(!model.is_running());
    assert_eq!(model.collect(), [[0; 0]; 0]);
}

#[test]
fn stop_resets_and_gives_memory_back() {
    let (model, mut nic) = start();
    assert_eq!(model.blocks(), 4);
    nic.stop();
    assert!(!model.is_running());
    assert_eq!(receive(&mut nic, 8), Ok(vec![]));
    let (_, tx) = nic.split();
    let sent = tx.send(60, Offload::None, &mut |_| ());
    assert_eq!(sent, Err(SendError::Fault(Fault::Removed)));
    assert_eq!(tx.flush(), Err(Fault::Removed));
    let resets = model.resets();
    drop(nic);
    assert_eq!(model.resets(), resets, "it may serve someone else by now");
    assert_eq!(model.blocks(), 0);
    assert!(!model.freed_while_running());

    let (model, nic) = start();
    drop(nic);
    assert!(!model.is_running() && !model.freed_while_running());
    let again = E1000e::new(model.pci());
    assert!(again.is_ok(), "a chip can be started again");
}

#[test]
#[cfg_attr(miri, ignore = "leaks on purpose")]
fn memory_that_the_chip_may_still_reach_is_kept() {
    let (model, nic) = start();
    model.lie_register(STATUS, 0);
    model.set_obeys_reset(false);
    drop(nic);
    assert_eq!(model.blocks(), 4);
    assert_eq!(refused(&model), InitError::ResetTimeout);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn what_is_delivered_is_received(
        batches in prop::collection::vec(
            (prop::collection::vec(14usize..1515, 0..200), 1usize..64), 1..8),
    ) {
        let (model, mut nic) = start();
        for (lengths, budget) in batches {
            let delivered: Vec<_> = lengths.into_iter().map(pattern).collect();
            for frame in &delivered {
                prop_assert!(model.deliver(frame, Verdict::NotLooked));
            }
            let mut received = Vec::new();
            loop {
                let frames = receive(&mut nic, budget).unwrap();
                if frames.is_empty() {
                    break;
                }
                received.extend(frames.into_iter().map(|(frame, _)| frame));
            }
            prop_assert_eq!(received, delivered);
        }
    }

    #[test]
    fn no_chip_breaks_the_driver(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_e1000e(&data);
    }

    /// The same with a chip that has an address, so that the rings are reached.
    #[test]
    fn no_running_chip_breaks_the_driver(
        kind in 0u8..2, data in prop::collection::vec(any::<u8>(), 0..400)
    ) {
        let mut all = vec![kind];
        all.extend(data);
        fuzz_e1000e(&all);
    }
}

#[test]
fn the_longest_frame_is_full_size_with_a_vlan_tag() {
    let (model, mut nic) = start();
    let (_, tx) = nic.split();
    let mut long = |frame: &mut [u8]| frame.copy_from_slice(&pattern(1518));
    tx.send(1518, Offload::None, &mut long).unwrap();
    tx.send(17, Offload::None, &mut |_| ()).unwrap();
    tx.flush().unwrap();
    assert_eq!(model.collect()[0], pattern(1518));
    // Without what pads the other.
    let counters = nic.counters();
    let sent = (counters.transmit_frames, counters.transmit_bytes);
    assert_eq!(sent, (2, 1518 + 17));
}
