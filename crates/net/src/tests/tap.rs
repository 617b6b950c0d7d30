//! A tap on the running engine's link: what reaches whom.

use super::datagrams::{datagram, listening};
use super::forged::{Bench, Forged, has, packet, transport_checksum};
use super::{CLIENT_MAC, IpVersion, SERVER_MAC, pattern};
use crate::packet::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::tap::cut::cut;
use crate::{TapPort, tap};
use core::net::SocketAddr;
use proptest::prelude::*;
use smoltcp::wire::{EthernetFrame, IpAddress, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket};
use std::vec;
use std::vec::Vec;
use wireboot_nic::{Checksum, Frame};
use wireboot_tcp::Flags;

fn tapped(mut bench: Bench) -> (Bench, TapPort) {
    let (tap, mut port) = tap(1500);
    bench.engine.set_tap(tap);
    port.set_up(true);
    bench.run_until_idle();
    bench.heard.clear();
    (bench, port)
}

/// A frame with a datagram to the port that [`listening`] has.
fn udp(version: IpVersion, payload: &[u8]) -> Vec<u8> {
    let ends = (version.server().ip(), version.client());
    let datagram = datagram(version, version.client(), payload);
    packet(CLIENT_MAC, ends, PROTOCOL_UDP, &datagram)
}

/// Everything that waits at the port.
fn all(port: &mut TapPort) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(frame) = port.peek() {
        frames.push(frame.to_vec());
        port.skip();
    }
    frames
}

/// What nobody of the engine's takes: a SYN, a datagram, an echo request, another protocol's frame.
fn foreign(bench: &Bench) -> Vec<Vec<u8>> {
    let version = bench.version;
    let syn = Forged {
        to: CLIENT_MAC,
        source: bench.host(),
        destination: SocketAddr::new(version.client(), 7777),
        seq: 1,
        ack: 0,
        flags: Flags::SYN,
        options: Vec::new(),
        payload: Vec::new(),
    };
    let (protocol, mut echo) = match version {
        IpVersion::V4 => (1, vec![8, 0, 0xf7, 0xff, 0, 0, 0, 0]),
        IpVersion::V6 => (58, vec![128, 0, 0, 0, 0, 0, 0, 0]),
    };
    let ends = (bench.host().ip(), version.client());
    if version == IpVersion::V6 {
        let sum = transport_checksum(ends, 58, &echo);
        echo[2..4].copy_from_slice(&sum);
    }
    let mut lldp = [&[0x01, 0x80, 0xc2, 0, 0, 0x0e][..], &SERVER_MAC].concat();
    lldp.extend([0x88, 0xcc, 1, 2, 3]);
    vec![
        syn.frame(),
        udp(version, b"to nobody"),
        packet(CLIENT_MAC, ends, protocol, &echo),
        lldp,
    ]
}

#[test]
fn what_nobody_takes_is_the_ports_while_it_is_up_and_is_not_answered() {
    for version in IpVersion::BOTH {
        let (mut bench, mut port) = tapped(Bench::silent(version));
        let frames = foreign(&bench);
        for frame in &frames {
            bench.send(frame);
        }
        bench.run_until_idle();
        assert_eq!(all(&mut port), frames);
        let answers = bench.heard.iter().filter(|frame| {
            // Neighbours may be asked for.
            frame[12..14] == [8, 0] || frame[12..14] == [0x86, 0xdd] && frame[20] != 58
        });
        assert_eq!(answers.count(), 0, "{:?}", bench.heard);

        // Down again, all three are answered by the engine: a reset once it knows the neighbour, port unreachable, an echo reply.
        port.set_up(false);
        bench.run_until_idle();
        for _ in 0..2 {
            bench.heard.clear();
            for frame in &frames {
                bench.send(frame);
            }
            bench.run_until_idle();
        }
        assert!(port.peek().is_none());
        let at = match version {
            IpVersion::V4 => 23,
            IpVersion::V6 => 20,
        };
        let mut protocols: Vec<u8> = bench.heard.iter().map(|frame| frame[at]).collect();
        protocols.sort_unstable();
        let expected = match version {
            IpVersion::V4 => [1, 1, 6],
            IpVersion::V6 => [6, 58, 58],
        };
        for protocol in expected {
            assert!(protocols.contains(&protocol), "{protocols:?}");
        }
    }
}

#[test]
fn frames_of_other_stations_are_nobodys() {
    let (mut bench, mut port) = tapped(Bench::silent(IpVersion::V4));
    let mut frame = udp(IpVersion::V4, b"x");
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x99]);
    bench.send(&frame);
    bench.send(&[0xff; 5]);
    bench.run_until_idle();
    assert_eq!(all(&mut port).len(), 0);
}

#[test]
fn what_is_the_engines_does_not_reach_the_port() {
    for version in IpVersion::BOTH {
        let (mut bench, mut port) = tapped(Bench::downloading(version));
        while bench.position < 50_000 {
            bench.go_on();
        }
        bench.run_until_idle();
        assert_eq!(all(&mut port), Vec::<Vec<u8>>::new());
        bench.finishes();
        let (mut bench, log) = listening(version);
        let (tap, mut port) = tap(1500);
        bench.engine.set_tap(tap);
        port.set_up(true);
        bench.run_until_idle();
        log.borrow_mut().clear();
        bench.send(&udp(version, b"ours"));
        bench.run_until_idle();
        assert_eq!((all(&mut port).len(), log.borrow().len()), (0, 1));
    }
}

#[test]
fn what_neighbours_say_reaches_both() {
    for version in IpVersion::BOTH {
        let (mut bench, mut port) = tapped(Bench::silent(version));
        let said = has(version.stranger(), [2, 0, 0, 0, 0, 0x77]);
        bench.send(&said);
        bench.run_until_idle();
        assert_eq!(all(&mut port), [said]);
    }
}

#[test]
fn the_ports_frames_are_sent_as_they_are() {
    let (mut bench, mut port) = tapped(Bench::silent(IpVersion::V4));
    let frame: Vec<u8> = [&SERVER_MAC[..], &CLIENT_MAC, &[0x12, 0x34], &[7; 400]].concat();
    // More than there are buffers for: they come back.
    for _ in 0..5 {
        let mut sent = 0;
        while port.send(&[&frame[..14], &frame[14..]]) {
            sent += 1;
        }
        assert_eq!(sent, 64);
        bench.run_until_idle();
        assert_eq!(bench.heard.len(), sent);
        assert!(bench.heard.iter().all(|heard| *heard == frame));
        bench.heard.clear();
    }
    assert!(!port.send(&[&[0; 1519]]));
    assert!(port.send(&[&[0; 1518]]));
}

#[test]
fn a_port_that_does_not_look_loses_frames_and_no_buffers() {
    let (mut bench, mut port) = tapped(Bench::silent(IpVersion::V4));
    let frame = udp(IpVersion::V4, b"to nobody");
    for _ in 0..3 {
        for _ in 0..40 {
            for _ in 0..10 {
                bench.send(&frame);
            }
            bench.turn();
        }
        bench.run_until_idle();
        assert_eq!(all(&mut port).len(), 256);
        // The buffers go back with the engine's next turn.
        bench.turn();
    }
    // What was not taken when it went down is not shown when it is up again.
    bench.send(&frame);
    bench.run_until_idle();
    port.set_up(false);
    port.set_up(true);
    bench.run_until_idle();
    assert!(port.peek().is_none());
    bench.send(&frame);
    bench.run_until_idle();
    assert_eq!(all(&mut port), [frame]);
}

#[test]
fn no_buffer_is_lost_when_all_are_under_way_at_once() {
    let (mut bench, mut port) = tapped(Bench::silent(IpVersion::V4));
    let frame = udp(IpVersion::V4, b"to nobody");
    for _ in 0..3 {
        // All that were sent come back, and as many as there is room for are received, before the port looks.
        while port.send(&[&frame]) {}
        bench.run_until_idle();
        for _ in 0..40 {
            for _ in 0..10 {
                bench.send(&frame);
            }
            bench.turn();
        }
        assert_eq!(all(&mut port).len(), 256);
        // All go back, and as many are sent, before the engine looks.
        let sent = core::iter::repeat_with(|| port.send(&[&frame])).take_while(|sent| *sent);
        assert_eq!(sent.count(), 64);
        port.set_up(false);
        port.set_up(true);
        bench.run_until_idle();
    }
}

/// What the tap gives its port of a unit that the card has not looked into.
fn given(unit: &[u8]) -> Vec<Vec<u8>> {
    let (bench, mut port) = tapped(Bench::silent(IpVersion::V4));
    let state = &mut *bench.stack.state();
    let (tap, linear) = (state.tap.as_mut().unwrap(), &mut state.linear);
    tap.give(
        &Frame {
            parts: &[unit],
            len: unit.len(),
            checksum: Checksum::Unverified,
            udp_segment: None,
        },
        linear,
    );
    all(&mut port)
}

#[test]
fn a_full_frame_may_have_a_vlan_tag() {
    // IEEE 802.1Q: tag, type, 1500 bytes.
    let frame = [
        &CLIENT_MAC[..],
        &SERVER_MAC,
        &[0x81, 0, 0, 5, 8, 0],
        &[7; 1500],
    ]
    .concat();
    assert_eq!(given(&frame), [frame]);
}

#[test]
fn what_the_card_has_joined_arrives_in_frames() {
    let data = pattern(1600);
    let frames = given(&joined(IpVersion::V4, PROTOCOL_TCP, &[], &data));
    let payloads: Vec<_> = frames.iter().map(|frame| checked(frame).0).collect();
    assert_eq!(payloads.concat(), data);
    assert_eq!(payloads.len(), 2);
}

/// A unit that a card has joined of segments or datagrams, its checksum that of the pseudo header.
fn joined(version: IpVersion, protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let ends = (version.server().ip(), version.client());
    let mut segment = match protocol {
        PROTOCOL_TCP => {
            let words = (20 + options.len()) / 4;
            let flags = (Flags::ACK.0 | 0x89) as u16;
            let mut header = vec![0x12, 0x34, 0, 80, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 1];
            header.extend(((words as u16) << 12 | flags).to_be_bytes());
            header.extend([0xff, 0xff, 0x12, 0x34, 0, 0]);
            header.extend(options);
            header
        }
        _ => {
            let len = (8 + payload.len()) as u16;
            [&[0x12, 0x34, 0, 69][..], &len.to_be_bytes(), &[0x12, 0x34]].concat()
        }
    };
    segment.extend(payload);
    packet(CLIENT_MAC, ends, protocol, &segment)
}

/// Payload, sequence number and flags of a frame that smoltcp finds right.
fn checked(frame: &[u8]) -> (Vec<u8>, u32, u8) {
    let frame = EthernetFrame::new_checked(frame).unwrap();
    let (ends, payload): ((IpAddress, IpAddress), _) = match u16::from(frame.ethertype()) {
        0x0800 => {
            let packet = Ipv4Packet::new_checked(frame.payload()).unwrap();
            assert!(packet.verify_checksum());
            assert_eq!(usize::from(packet.total_len()), frame.payload().len());
            (
                (packet.src_addr().into(), packet.dst_addr().into()),
                packet.payload().to_vec(),
            )
        }
        _ => {
            let packet = Ipv6Packet::new_checked(frame.payload()).unwrap();
            assert_eq!(packet.total_len(), frame.payload().len());
            (
                (packet.src_addr().into(), packet.dst_addr().into()),
                packet.payload().to_vec(),
            )
        }
    };
    let protocol = if frame.as_ref()[12] == 8 {
        frame.as_ref()[23]
    } else {
        frame.as_ref()[20]
    };
    if protocol == PROTOCOL_TCP {
        let tcp = TcpPacket::new_checked(&payload[..]).unwrap();
        assert!(tcp.verify_checksum(&ends.0, &ends.1));
        (
            tcp.payload().to_vec(),
            tcp.seq_number().0 as u32,
            payload[13],
        )
    } else {
        let udp = UdpPacket::new_checked(&payload[..]).unwrap();
        assert!(udp.verify_checksum(&ends.0, &ends.1));
        (udp.payload().to_vec(), 0, 0)
    }
}

proptest! {
    #[test]
    fn joined_segments_are_cut_to_frames(len in 0_usize..60_000, v6: bool, options in 0_usize..10, longest in 576_usize..1519) {
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let data = pattern(len);
        let unit = joined(version, PROTOCOL_TCP, &vec![1; options * 4], &data);
        let mut frames = Vec::new();
        cut(&unit, None, longest, |frame| frames.push(frame.to_vec()));
        let mut back = Vec::new();
        let last = frames.len() - 1;
        for (index, frame) in frames.iter().enumerate() {
            prop_assert!(frame.len() <= longest);
            let (payload, seq, flags) = checked(frame);
            prop_assert_eq!(seq, 0xffff_fe00_u32.wrapping_add(back.len() as u32));
            // RFC 3168: CWR once; FIN and PSH at the end.
            let expected = 0x10 | if index == 0 { 0x80 } else { 0 } | if index == last { 0x09 } else { 0 };
            prop_assert_eq!(flags, expected);
            back.extend(payload);
        }
        prop_assert_eq!(back, data);
    }

    #[test]
    fn joined_datagrams_are_cut_as_they_were(count in 1_usize..40, step in 1_usize..1472, rest in 0_usize..1472, v6: bool) {
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let step = if v6 { step.min(1452) } else { step };
        let data = pattern(count * step + rest.min(step));
        let unit = joined(version, PROTOCOL_UDP, &[], &data);
        let mut parts = Vec::new();
        cut(&unit, Some(step as u16), 1514, |frame| parts.push(checked(frame).0));
        let expected: Vec<Vec<u8>> = data.chunks(step).map(<[u8]>::to_vec).collect();
        prop_assert_eq!(parts, expected);
    }

    #[test]
    fn any_bytes_are_cut_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_usize..3, segment: Option<u16>) {
        let mut bytes = bytes;
        let heads: [&[u8]; 3] = [&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[]];
        if bytes.len() > 20 {
            bytes[12..12 + heads[kind].len()].copy_from_slice(heads[kind]);
        }
        cut(&bytes, segment, 100, |frame| assert!(frame.len() <= 100));
    }
}

#[test]
fn what_the_card_vouched_for_is_completed() {
    let (bench, mut port) = tapped(Bench::silent(IpVersion::V4));
    let unit = joined(IpVersion::V4, PROTOCOL_UDP, &[], b"from this host");
    let state = &mut *bench.stack.state();
    let (tap, linear) = (state.tap.as_mut().unwrap(), &mut state.linear);
    tap.give(
        &Frame {
            parts: &[&unit[..20], &unit[20..]],
            len: unit.len(),
            checksum: Checksum::Trusted,
            udp_segment: None,
        },
        linear,
    );
    let frames = all(&mut port);
    assert_eq!(frames.len(), 1);
    assert_eq!(checked(&frames[0]).0, b"from this host");
}

#[test]
fn fragments_pass_as_they_are() {
    for field in [[0x20, 0], [0, 9]] {
        let mut unit = joined(IpVersion::V4, PROTOCOL_TCP, &[], &pattern(100));
        unit[20..22].copy_from_slice(&field);
        let mut frames = Vec::new();
        cut(&unit, None, 1514, |frame| frames.push(frame.to_vec()));
        assert_eq!(frames, [unit]);
    }
}

#[test]
fn options_of_ipv4_are_in_each_frame() {
    let mut unit = joined(IpVersion::V4, PROTOCOL_TCP, &[], &pattern(1600));
    // Eight bytes of NOP (RFC 791, section 3.1).
    unit.splice(34..34, [1; 8]);
    unit[14] = 0x47;
    let len = (unit.len() as u16 - 14).to_be_bytes();
    unit[16..18].copy_from_slice(&len);
    let mut payloads = Vec::new();
    cut(&unit, None, 1514, |frame| {
        assert_eq!(frame[34..42], [1; 8]);
        payloads.extend(checked(frame).0);
    });
    assert_eq!(payloads, pattern(1600));
}
