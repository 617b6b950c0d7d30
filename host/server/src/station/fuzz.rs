//! Body of the fuzz target `card_serve`.

use std::path::Path;

use wireboot_tcp::{Flags, Reply, Transmit};

use super::*;

const CLIENT: Mac = [0x52, 0x54, 0, 1, 2, 3];
const ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1)),
];
const CLIENT_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 200)),
];
/// Frames that leave while nothing comes and no time passes, at most: the windows of all transfers, those that TCP opens with, and a burst of
/// the ladder's.
const MOST: usize = 64 + 64 * 512 + 64 * 64 + 64;

/// What the input says.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Bytes behind their length.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.number()?).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(bytes)
    }
}

/// What a client has learnt of a connection, so that the input can say something that fits.
#[derive(Clone, Copy, Debug, Default)]
struct Learnt {
    /// By which version the client sends.
    ipv6: bool,
    /// The server's port of the last datagram.
    udp: u16,
    /// What the server sends next, and what it awaits.
    seq: u32,
    ack: u32,
}

/// A station before a machine that sends what the input says: whole frames, and datagrams and segments whose checksums are right.
///
/// It does not panic. What leaves is a right frame that the link takes, and not more than the windows; what it keeps is bounded.
pub fn fuzz_card_serve(data: &[u8]) {
    // Every Linux has it, and it holds no file that opening could do anything to. This program is served as wireboot.efi.
    let program = std::env::current_exe().ok();
    let directory = Directory::open(Path::new("/sys/class"), program);
    let directory = directory.expect("/sys is not mounted");
    let mut station = Station::new(directory, Events::default(), 0, [3; 18]);
    let mut now = Duration::ZERO;
    let mut learnt = Learnt::default();
    let mut input = Input(data);
    while act(&mut input, &mut station, &mut now, &mut learnt).is_some() {
        assert!(station.downloads.len() <= 64 && station.exchanges.len() <= 64);
        assert!(station.host.answers.len() <= MAX_ANSWERS);
        station.exchanges.check_bounds();
    }
    drain(&mut station, now, &mut learnt, MOST + 1);
}

fn act(
    input: &mut Input<'_>,
    station: &mut Station,
    now: &mut Duration,
    learnt: &mut Learnt,
) -> Option<()> {
    match input.byte()? % 11 {
        0 => station.take(input.bytes()?, false, *now),
        1 | 2 => {
            let port = u16::from(input.byte()?);
            let to = match input.byte()? {
                0 => SERVER_PORT,
                1 => wireboot_wire::tftp::PORT,
                2 => learnt.udp,
                3 => ladder::PORT,
                other => u16::from(other),
            };
            let (from, peer) = ends(*learnt, port, to);
            let frame = frame::datagram(CLIENT, from, peer, input.bytes()?);
            station.take(&frame, false, *now);
        }
        3 | 4 => {
            let port = u16::from(input.byte()?);
            let flags = Flags(input.byte()?);
            let (seq, ack) = (input.byte()?, input.byte()?);
            let mut out = Transmit::from(Reply {
                seq: learnt.ack.wrapping_add_signed((seq as i8).into()),
                ack: learnt.seq.wrapping_add_signed((ack as i8).into()),
                flags,
            });
            out.wnd = input.number()?;
            let payload = input.bytes()?;
            out.len = payload.len();
            let (from, peer) = ends(*learnt, port, exchanges::PORT);
            let mut frame = Vec::new();
            let partial = frame::tcp_headers(&mut frame, CLIENT, from, peer, &out);
            frame.extend_from_slice(payload);
            partial.complete(&mut frame);
            station.take(&frame, false, *now);
        }
        5 => *now += Duration::from_millis(1 << (input.byte()? % 17)),
        6 => drain(station, *now, learnt, input.byte()?.into()),
        7 => station.forget_flows(),
        8 => learnt.ipv6 = !learnt.ipv6,
        9 => {
            // Discovery, and DHCPv6.
            let from = Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(input.byte()?));
            let all = Peer {
                mac: [0x33, 0x33, 0, 0, 0, 1],
                address: match input.byte()? {
                    0 => (crate::ra::ALL_ROUTERS, 0).into(),
                    1 => (LINK_LOCAL, 0).into(),
                    _ => ALL_DHCPV6_SERVERS,
                },
            };
            let bytes = input.bytes()?;
            let frame = match all.address.port() {
                0 => frame::neighbour(CLIENT, from, all, bytes),
                port => frame::datagram(CLIENT, (from, port).into(), all, bytes),
            };
            station.take(&frame, false, *now);
        }
        _ => {
            station.send_long_datagrams(input.byte()?.is_multiple_of(2));
            station.forget_flows();
        }
    }
    Some(())
}

/// A client's end at this port, and the station's.
fn ends(learnt: Learnt, port: u16, to: u16) -> (SocketAddr, Peer) {
    let of_version = |[v4, v6]: [IpAddr; 2]| if learnt.ipv6 { v6 } else { v4 };
    let peer = Peer {
        mac: MAC,
        address: (of_version(ADDRESSES), to).into(),
    };
    ((of_version(CLIENT_ADDRESSES), port).into(), peer)
}

/// Takes frames; no more than `most` leave.
fn drain(station: &mut Station, now: Duration, learnt: &mut Learnt, most: usize) {
    // A guest that takes them gets frames that are to be cut.
    let most_segments = most.is_multiple_of(2).then_some(20_000);
    let longest = Longest {
        ipv4: most_segments,
        ipv6: most_segments,
    };
    for count in 0..most {
        assert!(count < MOST, "there is no end of frames");
        let Some(frame) = station.next(now, longest) else {
            return;
        };
        let mut whole = frame.head.to_vec();
        for piece in frame.payload.pieces() {
            assert!(!piece.is_empty());
            whole.resize(whole.len() + piece.len(), 0);
        }
        if let Some(partial) = frame.partial {
            partial.complete(&mut whole);
        }
        let most = match frame.cut {
            None => 14 + MTU,
            Some(Cut::SegmentsIpv4(_) | Cut::SegmentsIpv6(_)) => most_segments.unwrap_or(0),
            Some(Cut::Fragments(_)) => 14 + 65_535,
        };
        assert!(whole.len() <= most, "a frame of {} bytes", whole.len());
        let arrived = frame::parse(&whole, CLIENT, false);
        match arrived {
            Some(Arrived::Udp { from, .. }) => learnt.udp = from.address.port(),
            Some(Arrived::Tcp { segment, .. }) => {
                let len = segment.len as u32 + u32::from(segment.flags.contains(Flags::SYN));
                learnt.seq = segment.seq.wrapping_add(len);
                learnt.ack = segment.ack;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_length(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    #[test]
    fn a_read_and_a_request_come_to_their_files() {
        let rrq = with_length(b"\x00\x01wireboot.efi\x00octet\x00windowsize\x008\x00");
        let ack = with_length(&[0, 4, 0, 0]);
        let syn = [&[3, 9, 2, 0, 0, 0xff, 0xff][..], &with_length(b"")].concat();
        let get = with_length(b"GET /wireboot.efi HTTP/1.1\r\n\r\n");
        let get = [&[3, 9, 0x18, 0, 0, 0xff, 0xff][..], &get].concat();
        let drained = [6, 20];
        let tftp = [&[1, 7, 1][..], &rrq, &drained, &[1, 7, 2], &ack].concat();
        let all = [&tftp[..], &drained, &syn, &drained, &get, &drained].concat();
        fuzz_card_serve(&all);
        let send = with_length(b"send 7 0 18 5000");
        let ladder = [&[1, 7, 3][..], &send, &[6, 255, 5, 1, 6, 255, 5, 5, 6, 3]].concat();
        fuzz_card_serve(&[&all[..], &ladder, &[5, 16, 6, 255, 7]].concat());
        // By IPv6, whose headers leave less room.
        let send = with_length(b"send 8 0 1472 5000");
        fuzz_card_serve(&[&[8, 1, 7, 3][..], &send, &[6, 255]].concat());
    }

    proptest! {
        #[test]
        fn anything(data in prop::collection::vec(any::<u8>(), 0..600)) {
            fuzz_card_serve(&data);
        }
    }
}
