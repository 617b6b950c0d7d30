use std::vec;
use std::vec::Vec;

use super::*;
use crate::platform::PlatformError;
use crate::virtio::{InitError, VirtioNet, supports};
use crate::{Checksum, Fault, Nic, Offload, Receive, SendError, Transmit};
use proptest::prelude::*;

mod pairs;

type Driver = VirtioNet<ModelPci>;

const RX: usize = 0;
const TX: usize = 1;

fn start(config: ModelConfig) -> (Model, Driver) {
    let model = Model::new(config);
    let nic = VirtioNet::new(model.pci()).unwrap();
    (model, nic)
}

fn without(features: u64) -> ModelConfig {
    ModelConfig {
        features: feature::KNOWN & !features,
        ..ModelConfig::default()
    }
}

fn refused(config: ModelConfig) -> InitError {
    let model = Model::new(config);
    let Err(error) = VirtioNet::new(model.pci()) else {
        panic!("the driver should refuse");
    };
    assert!(!model.is_running() && !model.freed_while_running());
    assert_eq!(model.blocks(), 0);
    error
}

#[derive(Debug, PartialEq)]
struct Unit {
    bytes: Vec<u8>,
    parts: usize,
    checksum: Checksum,
    udp_segment: Option<u16>,
}

fn receive(nic: &mut impl Nic, budget: usize) -> Result<Vec<Unit>, Fault> {
    let mut units = Vec::new();
    let lent = nic.split().0.burst(budget, |frame| {
        units.push(Unit {
            bytes: frame.parts.concat(),
            parts: frame.parts.len(),
            checksum: frame.checksum,
            udp_segment: frame.udp_segment,
        });
    })?;
    assert_eq!(lent, units.len());
    Ok(units)
}

/// Bytes that tell their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

fn plain() -> UnitHeader {
    UnitHeader::default()
}

#[test]
fn knows_its_pci_ids() {
    assert!(supports(0x1af4, 0x1000) && supports(0x1af4, 0x1041));
    assert!(!supports(0x1af4, 0x1001) && !supports(0x8086, 0x1041));
}

/// Virtio 1.2, sections 5.1.3 and 6.
#[test]
fn features_are_those_of_the_specification() {
    let bits = |bits: &[u32]| bits.iter().fold(0_u64, |sum, bit| sum | 1 << bit);
    assert_eq!(feature::COALESCING, bits(&[7, 8, 10, 54, 55]));
    assert_eq!(feature::SEGMENTATION, bits(&[11, 12]));
    let known = [0, 1, 3, 5, 7, 8, 10, 11, 12, 15, 16, 32, 33, 36, 54, 55];
    assert_eq!(feature::KNOWN, bits(&known));
    let pairs = feature::CTRL_VQ | feature::MQ | feature::RSS;
    assert_eq!(pairs, bits(&[17, 22, 60]));
    for (feature, bit) in [
        (feature::CSUM, 0),
        (feature::GUEST_CSUM, 1),
        (feature::MTU, 3),
        (feature::MAC, 5),
        (feature::MRG_RXBUF, 15),
        (feature::STATUS, 16),
        (feature::CTRL_VQ, 17),
        (feature::MQ, 22),
        (feature::VERSION_1, 32),
    ] {
        assert_eq!(feature, 1 << bit);
    }
}

#[test]
fn properties_follow_the_features() {
    let (model, nic) = start(ModelConfig::default());
    assert_eq!(model.accepted(), feature::KNOWN);
    let all = nic.properties();
    assert_eq!(all.mac, [2, 0, 0, 0, 0, 0x0d]);
    assert_eq!((all.mtu, all.max_receive), (1500, 65_550));
    // A ring of 256, so buffers of 16 KiB.
    assert_eq!((all.receive_frames, all.receive_bytes), (256, 4 << 20));
    assert!(all.transmit_checksum);

    let (_, nic) = start(without(feature::MRG_RXBUF));
    let large = nic.properties();
    assert_eq!(large.max_receive, 65_550);
    assert_eq!(large.receive_frames, 128);
    // Without mergeable buffers, not for datagrams alone.
    let (model, nic) = start(without(
        feature::MRG_RXBUF | feature::COALESCING & !feature::GUEST_UFO,
    ));
    assert_eq!(model.accepted() & feature::GUEST_UFO, 0);
    assert_eq!(nic.properties().max_receive, 1518);

    let (model, nic) = start(without(feature::GUEST_CSUM | feature::CSUM));
    assert_eq!(model.accepted() & feature::COALESCING, 0);
    let small = nic.properties();
    assert_eq!(small.max_receive, 1518);
    assert!(!small.transmit_checksum);

    let jumbo = ModelConfig {
        mtu: 9000,
        queue_sizes: [32768, 512],
        ..ModelConfig::default()
    };
    let (model, nic) = start(jumbo);
    assert_eq!(nic.properties().mtu, 9000);
    assert_eq!(nic.properties().receive_frames, 341);
    assert_eq!(model.receive_buffers(), 1024);
}

#[test]
fn refuses_what_it_cannot_use() {
    assert_eq!(refused(without(feature::VERSION_1)), InitError::Legacy);
    assert_eq!(refused(without(feature::MAC)), InitError::NoMac);
    let with = |change: fn(&mut ModelConfig)| {
        let mut config = ModelConfig::default();
        change(&mut config);
        refused(config)
    };
    assert_eq!(with(|c| c.mac = [1, 0, 0, 0, 0, 1]), InitError::NoMac);
    assert!(matches!(with(|c| c.mtu = 67), InitError::Misbehaved(_)));
    let small = with(|c| c.queue_sizes[1] = 16);
    assert_eq!(small, InitError::QueueSize { queue: 1, size: 16 });
    let odd = with(|c| c.queue_sizes[0] = 300);
    assert!(matches!(odd, InitError::Misbehaved(_)));
    assert_eq!(
        with(|c| c.refused = feature::MRG_RXBUF),
        InitError::FeaturesRefused
    );
    // No capability list; capabilities that point at themselves; one beyond its BAR; another BAR; a doorbell
    // beyond its registers.
    assert_eq!(with(|c| c.config_lies.push((6, 0))), InitError::Legacy);
    assert_eq!(
        with(|c| c.config_lies.push((0x41, 0x40))),
        InitError::Legacy
    );
    let beyond = with(|c| c.config_lies.push((0x49, 0xff)));
    assert!(matches!(beyond, InitError::Misbehaved(_)));
    let absent = with(|c| c.config_lies.push((0x44, 3)));
    assert_eq!(absent, InitError::Platform(PlatformError::NoBar(3)));
    let doorbell = with(|c| c.config_lies.push((0x65, 1)));
    assert!(matches!(doorbell, InitError::Misbehaved(_)));
}

#[test]
fn a_device_that_is_not_there_is_removed() {
    let model = Model::new(ModelConfig::default());
    model.remove();
    let Err(error) = VirtioNet::new(model.pci()) else {
        panic!("nothing is there");
    };
    assert_eq!(error, InitError::Removed);
}

mod chunks;
mod hello;

#[test]
fn units_come_in_order_through_many_wraps() {
    for features in [0, feature::MRG_RXBUF] {
        let (model, mut nic) = start(without(features | feature::COALESCING));
        let mut expected = 0u32;
        for round in 0..if cfg!(miri) { 3 } else { 700 } {
            let count = 1 + round % 200;
            for n in 0..count {
                let mut unit = pattern(60);
                unit[..4].copy_from_slice(&(expected + n).to_le_bytes());
                assert!(model.deliver(plain(), &unit));
            }
            let mut left = count as usize;
            while left > 0 {
                let units = receive(&mut nic, 64).unwrap();
                assert_eq!(units.len(), left.min(64));
                left -= units.len();
                for unit in units {
                    assert_eq!(unit.bytes[..4], expected.to_le_bytes());
                    assert_eq!(unit.bytes[4..], pattern(60)[4..]);
                    expected += 1;
                }
            }
            assert_eq!(model.receive_buffers(), 256, "all buffers are back");
        }
        assert_eq!(receive(&mut nic, 64), Ok(vec![]));
        assert_eq!(nic.counters().receive_units, expected.into());
        assert_eq!(nic.counters().receive_bytes, u64::from(expected) * 60);
    }
}

#[test]
fn large_units_arrive_whole() {
    for features in [0, feature::MRG_RXBUF] {
        let (model, mut nic) = start(without(features));
        for len in [14, 128, 16_372, 16_373, 20_000, 65_550] {
            let header = UnitHeader {
                flags: 1,
                gso_type: 1,
                gso_size: 1460,
            };
            assert!(model.deliver(header, &pattern(len)));
            let [unit] = receive(&mut nic, 8).unwrap().try_into().unwrap();
            assert_eq!(unit.bytes, pattern(len));
            assert_eq!((unit.checksum, unit.udp_segment), (Checksum::Trusted, None));
            let parts = match features {
                0 => (len + 12).div_ceil(16_384),
                _ => 1,
            };
            assert_eq!(unit.parts, parts);
        }
    }
}

#[test]
fn the_header_is_understood() {
    let (model, mut nic) = start(ModelConfig::default());
    let cases = [
        ((0, 0, 0), Some((Checksum::Unverified, None))),
        ((1, 0, 0), Some((Checksum::Trusted, None))),
        ((2, 4, 1440), Some((Checksum::Trusted, None))),
        ((1, 5, 1468), Some((Checksum::Trusted, Some(1468)))),
        ((0, 5, 0), None),
    ];
    for ((flags, gso_type, gso_size), expected) in cases {
        let header = UnitHeader {
            flags,
            gso_type,
            gso_size,
        };
        assert!(model.deliver(header, &pattern(200)));
        let units = receive(&mut nic, 8).unwrap();
        let seen = units.first().map(|unit| (unit.checksum, unit.udp_segment));
        assert_eq!(seen, expected);
    }
    assert_eq!(nic.counters().receive_dropped, 1);
    // Runts and giants are dropped, and their buffers used again.
    assert!(model.deliver(plain(), &pattern(13)));
    assert!(model.deliver(plain(), &pattern(65_551)));
    assert_eq!(receive(&mut nic, 8), Ok(vec![]));
    assert_eq!(nic.counters().receive_dropped, 3);
    assert_eq!(model.receive_buffers(), 256);
}

#[test]
fn without_guest_csum_nothing_is_trusted() {
    let (model, mut nic) = start(without(feature::GUEST_CSUM));
    let header = UnitHeader {
        flags: 3,
        ..plain()
    };
    assert!(model.deliver(header, &pattern(100)));
    let units = receive(&mut nic, 8).unwrap();
    assert_eq!(units[0].checksum, Checksum::Unverified);
}

#[test]
fn sent_frames_reach_the_device_at_flush() {
    let (model, mut nic) = start(ModelConfig::default());
    let (_, mut tx) = nic.split();
    tx.send(60, Offload::None, &mut |frame| {
        frame.copy_from_slice(&pattern(60))
    })
    .unwrap();
    let offload = Offload::L4Checksum {
        start: 34,
        offset: 16,
    };
    tx.send(1514, offload, &mut |frame| {
        frame.copy_from_slice(&pattern(1514))
    })
    .unwrap();
    assert_eq!(tx.send(1519, offload, &mut |_| ()), Err(SendError::TooLong));
    assert_eq!(model.collect(), []);
    assert!(!tx.idle());
    tx.flush().unwrap();
    let sent = model.collect();
    assert_eq!(sent.len(), 2);
    assert_eq!((sent[0].flags, &sent[0].frame), (0, &pattern(60)));
    assert_eq!((sent[1].flags, &sent[1].frame), (1, &pattern(1514)));
    assert_eq!((sent[1].csum_start, sent[1].csum_offset), (34, 16));
    assert!(tx.idle());
}

/// The link header of an IP version, and what the device is told of it.
const VERSIONS: [([u8; 2], u8); 2] = [([0x08, 0x00], 1), ([0x86, 0xdd], 4)];

const CUT: Offload = Offload::TcpSegmentation {
    start: 34,
    header_len: 54,
    mss: 1460,
};

#[test]
fn the_device_is_asked_to_cut_segments() {
    for (ethertype, gso_type) in VERSIONS {
        for tag in [&[][..], &[0x81, 0, 0, 5]] {
            let (model, mut nic) = start(ModelConfig::default());
            let unit = nic.properties().transmit_unit;
            assert_eq!(unit, 65_549);
            let mut frame = pattern(unit + tag.len());
            frame[12..][..tag.len()].copy_from_slice(tag);
            frame[12 + tag.len()..][..2].copy_from_slice(&ethertype);
            let (_, mut tx) = nic.split();
            for len in [frame.len(), 1515, 1514] {
                tx.send(len, CUT, &mut |place| place.copy_from_slice(&frame[..len]))
                    .unwrap();
            }
            tx.flush().unwrap();
            let sent = model.collect();
            assert_eq!(sent.len(), 3);
            for (sent, len) in sent.iter().zip([frame.len(), 1515, 1514]) {
                assert_eq!(sent.frame, frame[..len]);
                assert_eq!((sent.flags, sent.csum_start, sent.csum_offset), (1, 34, 16));
                let gso = (sent.gso_type, sent.gso_size, sent.hdr_len);
                // What one segment holds is not to be cut.
                let cut = len > 54 + 1460;
                assert_eq!(gso, if cut { (gso_type, 1460, 54) } else { (0, 0, 0) });
            }
        }
    }
}

#[test]
fn frames_to_be_cut_have_memory_of_their_own() {
    let (model, mut nic) = start(ModelConfig::default());
    let unit = nic.properties().transmit_unit;
    let (_, mut tx) = nic.split();
    assert_eq!(tx.send(unit + 5, CUT, &mut |_| ()), Err(SendError::TooLong));
    for round in 0..20_u8 {
        for n in 0..16 {
            let byte = round.wrapping_mul(16).wrapping_add(n);
            tx.send(unit, CUT, &mut |frame| frame.fill(byte)).unwrap();
        }
        assert_eq!(tx.send(100, CUT, &mut |_| ()), Err(SendError::Full));
        assert_eq!(tx.room(), 240);
        for n in 0..240 {
            tx.send(60, Offload::None, &mut |frame| frame.fill(n))
                .unwrap();
        }
        assert_eq!(tx.send(100, CUT, &mut |_| ()), Err(SendError::Full));
        assert!(!tx.idle());
        tx.flush().unwrap();
        let sent = model.collect();
        assert_eq!(sent.len(), 256);
        for (n, sent) in sent.iter().enumerate() {
            let (len, byte) = match n {
                0..16 => (unit, round.wrapping_mul(16).wrapping_add(n as u8)),
                _ => (60, (n - 16) as u8),
            };
            assert_eq!(sent.frame.len(), len);
            assert!(sent.frame.iter().all(|b| *b == byte));
        }
        // The next round begins with what this one gave back at its end.
        assert_eq!((tx.idle(), tx.room()), (true, 256));
    }
}

#[test]
fn without_both_ip_versions_nothing_is_cut() {
    for lacking in [feature::HOST_TSO4, feature::HOST_TSO6, feature::CSUM] {
        let (model, mut nic) = start(without(lacking));
        assert_eq!(model.accepted() & feature::SEGMENTATION, 0);
        assert_eq!(nic.properties().transmit_unit, 0);
        let (_, mut tx) = nic.split();
        assert_eq!(tx.send(100, CUT, &mut |_| ()), Err(SendError::TooLong));
    }
}

#[test]
fn without_csum_the_driver_completes_checksums() {
    let (model, mut nic) = start(without(feature::CSUM));
    let (_, mut tx) = nic.split();
    let offload = Offload::L4Checksum {
        start: 34,
        offset: 16,
    };
    tx.send(60, offload, &mut |frame| frame.fill(0)).unwrap();
    tx.flush().unwrap();
    let sent = model.collect();
    assert_eq!(sent[0].flags, 0);
    assert_eq!(sent[0].frame[50..52], [0xff, 0xff]);
}

#[test]
fn the_transmit_ring_fills_and_drains() {
    let (size, rounds) = if cfg!(miri) { (32, 2) } else { (256, 300) };
    let (model, mut nic) = start(ModelConfig {
        queue_sizes: [size; 2],
        ..ModelConfig::default()
    });
    let size = usize::from(size);
    let (_, mut tx) = nic.split();
    for round in 0..rounds {
        for n in 0..size {
            assert_eq!(tx.room(), size - n);
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
        assert_eq!(sent.len(), size, "round {round}");
        for (n, sent) in sent.iter().enumerate() {
            assert_eq!(sent.frame[..4], (n as u32).to_le_bytes());
        }
        assert!(tx.idle());
    }
}

#[test]
fn doorbells_ring_only_when_asked() {
    let (model, mut nic) = start(ModelConfig::default());
    assert_eq!(model.doorbells(), [1, 0], "the first buffers");
    model.want_doorbells(RX, false);
    for _ in 0..5 {
        model.deliver(plain(), &pattern(60));
        receive(&mut nic, 8).unwrap();
    }
    assert_eq!(model.doorbells(), [1, 0], "the device has buffers enough");
    model.want_doorbells(TX, false);
    let (_, mut tx) = nic.split();
    tx.send(60, Offload::None, &mut |_| ()).unwrap();
    tx.flush().unwrap();
    assert_eq!(model.doorbells(), [1, 0]);
    model.want_doorbells(TX, true);
    tx.flush().unwrap();
    assert_eq!(model.doorbells(), [1, 0], "nothing new to tell");
    tx.send(60, Offload::None, &mut |_| ()).unwrap();
    tx.send(60, Offload::None, &mut |_| ()).unwrap();
    tx.flush().unwrap();
    assert_eq!(model.doorbells(), [1, 1], "one for all that was queued");
    assert_eq!(nic.counters().transmit_doorbells, 1);
    assert_eq!(nic.counters().receive_doorbells, 1);
}

#[test]
fn a_unit_can_be_answered_while_it_is_on_loan() {
    let (model, mut nic) = start(ModelConfig::default());
    model.deliver(plain(), &pattern(300));
    let (mut rx, mut tx) = nic.split();
    rx.burst(8, |frame| {
        tx.send(frame.len, Offload::None, &mut |out| {
            out.copy_from_slice(frame.parts[0])
        })
        .unwrap();
        tx.flush().unwrap();
    })
    .unwrap();
    assert_eq!(model.collect()[0].frame, pattern(300));
}

#[test]
fn a_unit_still_under_way_waits() {
    let (model, mut nic) = start(ModelConfig::default());
    let mut header = vec![0; 12];
    header[10] = 2;
    model.lie_buffer(RX, 0, &header);
    model.lie_used(RX, 0, 4096);
    assert_eq!(receive(&mut nic, 8), Ok(vec![]));
    model.lie_used(RX, 1, 100);
    let units = receive(&mut nic, 8).unwrap();
    assert_eq!((units[0].parts, units[0].bytes.len()), (2, 4184));
}

#[test]
fn link_and_health_are_asked_for() {
    let (model, mut nic) = start(ModelConfig::default());
    assert!(nic.link_up());
    model.set_link_up(false);
    assert!(!nic.link_up());
    let (model, mut silent) = start(without(feature::STATUS));
    model.set_link_up(false);
    assert!(silent.link_up(), "cannot tell");
}

/// Lets the device do something and expects the fault, for good, from both halves.
fn fault_after(config: ModelConfig, act: impl FnOnce(&Model, &mut Driver)) -> Fault {
    let (model, mut nic) = start(config);
    act(&model, &mut nic);
    let fault = receive(&mut nic, 64).unwrap_err();
    assert!(!model.is_running());
    let resets = model.resets();
    assert_eq!(receive(&mut nic, 64), Err(fault));
    let (_, mut tx) = nic.split();
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
    type Lie = fn(&Model);
    let header = |num_buffers: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, num_buffers, 0];
    let lies: [Lie; 10] = [
        |model| model.lie_used(RX, 256, 100),
        |model| model.lie_used(RX, u32::MAX, 100),
        |model| model.lie_used(RX, 0, 4097),
        |model| model.lie_used(RX, 0, 11),
        |model| model.lie_used(RX, 0, 12),
        |model| model.lie_index(RX, 257),
        |model| model.lie_index(RX, u16::MAX),
        // Zero and 255 buffers; the same buffer twice; a hole behind the first buffer.
        |model| model.lie_used(RX, 0, 100),
        |model| {
            model.lie_buffer(RX, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
            model.lie_used(RX, 0, 100);
            model.lie_used(RX, 0, 100);
        },
        |model| {
            model.lie_buffer(RX, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
            model.lie_used(RX, 0, 50);
            model.lie_used(RX, 1, 4000);
        },
    ];
    for lie in lies {
        let fault = fault_after(ModelConfig::default(), |model, _| lie(model));
        assert!(matches!(fault, Fault::Misbehaved(_)));
    }
    let fault = fault_after(ModelConfig::default(), |model, _| {
        model.lie_buffer(RX, 0, &header(255));
        model.lie_used(RX, 0, 100);
    });
    assert!(matches!(fault, Fault::Misbehaved(_)));
    let fault = fault_after(ModelConfig::default(), |model, nic| {
        model.lie_used(TX, 3, 0);
        assert!(nic.split().1.flush().is_err());
    });
    assert!(matches!(fault, Fault::Misbehaved(_)));
}

#[test]
fn a_length_beyond_its_buffer_is_a_fault() {
    let impossible = Fault::Misbehaved("it returned an impossible length");
    let one = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let two = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    for (lacking, buffer) in [
        (0, 16_384),
        (feature::MRG_RXBUF, 67_584),
        (feature::COALESCING, 4096),
        (feature::MRG_RXBUF | feature::COALESCING, 2048),
    ] {
        let (model, mut nic) = start(without(lacking));
        // As long as the buffer is no lie, though it may be too long for a unit.
        model.lie_buffer(RX, 0, &one);
        model.lie_used(RX, 0, buffer);
        let units = receive(&mut nic, 8).unwrap().len() as u64;
        assert_eq!(units + nic.counters().receive_dropped, 1);
        let fault = fault_after(without(lacking), |model, _| {
            model.lie_buffer(RX, 0, &one);
            model.lie_used(RX, 0, buffer + 1);
        });
        assert_eq!(fault, impossible, "a buffer of {buffer}");
    }
    // The same of a buffer that is not a unit's first.
    let fault = fault_after(ModelConfig::default(), |model, _| {
        model.lie_buffer(RX, 0, &two);
        model.lie_used(RX, 0, 16_384);
        model.lie_used(RX, 1, 16_385);
    });
    assert_eq!(fault, impossible);
}

#[test]
fn removal_and_failure_are_noticed() {
    let fault = fault_after(ModelConfig::default(), |model, nic| {
        model.remove();
        assert!(!nic.link_up());
    });
    assert_eq!(fault, Fault::Removed);
    let fault = fault_after(ModelConfig::default(), |model, nic| {
        model.set_status(0x4f);
        assert!(!nic.link_up());
    });
    assert_eq!(fault, Fault::NeedsReset);
    let fault = fault_after(ModelConfig::default(), |model, nic| {
        model.set_status(0);
        assert!(!nic.link_up());
    });
    assert!(matches!(fault, Fault::Misbehaved(_)));
}

#[test]
#[cfg_attr(miri, ignore = "65,536 bursts")]
fn removal_is_noticed_by_polling_alone() {
    let (model, mut nic) = start(ModelConfig::default());
    model.remove();
    let fault = (0..=1 << 16).find_map(|_| receive(&mut nic, 64).err());
    assert_eq!(fault, Some(Fault::Removed));
}

#[test]
fn stop_waits_until_the_last_frames_are_sent() {
    for waits in [0, 1, 5000] {
        let (model, mut nic) = start(ModelConfig::default());
        model.send_after_waits(waits);
        let (_, mut tx) = nic.split();
        tx.send(60, Offload::None, &mut |frame| frame.fill(7))
            .unwrap();
        nic.stop();
        assert!(!model.is_running());
        let sent = model.collect();
        assert_eq!((sent.len(), &sent[0].frame), (1, &vec![7; 60]), "{waits}");
    }
    // Not for ever.
    let (model, mut nic) = start(ModelConfig::default());
    nic.split().1.send(60, Offload::None, &mut |_| ()).unwrap();
    nic.stop();
    assert!(!model.is_running());
    assert_eq!(model.collect(), []);
}

#[test]
fn stop_resets_and_gives_memory_back() {
    let (model, mut nic) = start(ModelConfig::default());
    // Two queues, their buffers, and those for frames to be cut.
    assert_eq!(model.blocks(), 5);
    nic.stop();
    assert!(!model.is_running());
    assert_eq!(receive(&mut nic, 8), Ok(vec![]));
    let (_, mut tx) = nic.split();
    let sent = tx.send(60, Offload::None, &mut |_| ());
    assert_eq!(sent, Err(SendError::Fault(Fault::Removed)));
    assert_eq!(tx.flush(), Err(Fault::Removed));
    let resets = model.resets();
    drop(nic);
    assert_eq!(model.resets(), resets, "it may serve someone else by now");
    assert_eq!(model.blocks(), 0);
    assert!(!model.freed_while_running());

    let (model, nic) = start(ModelConfig::default());
    drop(nic);
    assert!(!model.is_running() && !model.freed_while_running());
    let again = VirtioNet::new(model.pci());
    assert!(again.is_ok(), "a device can be started again");
}

#[test]
#[cfg_attr(miri, ignore = "leaks on purpose")]
fn memory_that_the_device_may_still_reach_is_kept() {
    let (model, nic) = start(ModelConfig::default());
    model.set_obeys_reset(false);
    drop(nic);
    assert_eq!(model.blocks(), 5);
    let Err(error) = VirtioNet::new(model.pci()) else {
        panic!("it does not reset");
    };
    assert_eq!(error, InitError::ResetTimeout);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn what_is_delivered_is_received(
        features in prop::sample::select(vec![
            0, feature::MRG_RXBUF, feature::COALESCING, feature::GUEST_CSUM,
        ]),
        batches in prop::collection::vec(
            (prop::collection::vec(14usize..20_000, 0..12), 1usize..16), 1..8),
    ) {
        let (model, mut nic) = start(without(features));
        let max = nic.properties().max_receive;
        for (lengths, budget) in batches {
            let delivered: Vec<_> = lengths
                .into_iter()
                .map(|len| pattern(len.min(max)))
                .filter(|unit| model.deliver(plain(), unit))
                .collect();
            let mut received = Vec::new();
            loop {
                let units = receive(&mut nic, budget).unwrap();
                if units.is_empty() {
                    break;
                }
                received.extend(units.into_iter().map(|unit| unit.bytes));
            }
            prop_assert_eq!(received, delivered);
            prop_assert_eq!(
                usize::from(model.receive_buffers()),
                if features == feature::MRG_RXBUF { 128 } else { 256 }
            );
        }
    }

    #[test]
    fn no_device_breaks_the_driver(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_virtio(&data);
    }

    /// The same with a device that offers something usable, so that the queues are reached.
    #[test]
    fn no_running_device_breaks_the_driver(
        kind in 0u8..0x20, data in prop::collection::vec(any::<u8>(), 0..400)
    ) {
        let mut all = vec![kind];
        all.extend(data);
        fuzz_virtio(&all);
    }
}

#[test]
fn what_is_full_has_room_as_soon_as_the_device_is_done() {
    let (model, mut nic) = start(ModelConfig::default());
    // All descriptors, and all buffers for frames to be cut.
    for (count, offload) in [(256, Offload::None), (16, CUT)] {
        let (_, mut tx) = nic.split();
        for _ in 0..count {
            tx.send(60, offload, &mut |frame| frame.fill(0)).unwrap();
        }
        assert_eq!(tx.send(60, offload, &mut |_| ()), Err(SendError::Full));
        tx.flush().unwrap();
        assert_eq!(model.collect().len(), count);
        assert_eq!(tx.send(60, offload, &mut |frame| frame.fill(0)), Ok(()));
        tx.flush().unwrap();
        assert_eq!(model.collect().len(), 1);
    }
    assert_eq!(nic.counters().transmit_full, 2);
}

#[test]
fn the_largest_unit_fits_the_shortest_buffers() {
    let (model, mut nic) = start(ModelConfig {
        queue_sizes: [1024, 256],
        ..ModelConfig::default()
    });
    assert!(model.deliver(plain(), &pattern(65_550)));
    let [unit] = receive(&mut nic, 8).unwrap().try_into().unwrap();
    assert_eq!(unit.bytes, pattern(65_550));
    // 65,562 bytes with the header, in buffers of 4096.
    assert_eq!(unit.parts, 17);
}

/// To read a register takes a virtual machine some microseconds.
#[test]
fn an_empty_burst_asks_the_device_nothing() {
    let (model, mut nic) = start(ModelConfig::default());
    model.remove();
    for _ in 0..1000 {
        assert_eq!(receive(&mut nic, 64), Ok(vec![]));
    }
}

#[test]
fn the_shortest_queues_are_used() {
    let (model, mut nic) = start(ModelConfig {
        queue_sizes: [32; 2],
        ..ModelConfig::default()
    });
    assert_eq!(model.receive_buffers(), 32);
    assert_eq!(nic.split().1.room(), 32);
}

/// Virtio 1.2, section 4.1.4.4: `cap.length` is at least `queue_notify_off * notify_off_multiplier + 2`. It is 256 here, and so the
/// multiplier is the place of the doorbell that sends.
#[test]
fn a_doorbell_may_be_the_last_register() {
    let multiplier = |[low, high]: [u8; 2]| ModelConfig {
        config_lies: vec![(0x64, low), (0x65, high)],
        ..ModelConfig::default()
    };
    let (model, mut nic) = start(multiplier([254, 0]));
    let (_, mut tx) = nic.split();
    tx.send(60, Offload::None, &mut |_| ()).unwrap();
    tx.flush().unwrap();
    assert_eq!(nic.counters().transmit_doorbells, 1);
    assert_eq!(model.collect().len(), 1);
    // The first behind its registers, and one that is not aligned.
    for beyond in [[0, 1], [253, 0]] {
        let error = refused(multiplier(beyond));
        assert_eq!(
            error,
            InitError::Misbehaved("a doorbell beyond its registers")
        );
    }
}

#[test]
fn behind_its_end_the_configuration_tells_nothing() {
    // It ends behind the address, before the state of the link.
    let (model, mut nic) = start(ModelConfig {
        config_lies: vec![(0x7c, 6)],
        ..without(feature::MTU)
    });
    model.set_link_up(false);
    assert!(nic.link_up(), "cannot tell");
}
