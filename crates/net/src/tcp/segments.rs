//! Segments that leave: their headers, and units that are cut here where the card does not cut.

use super::send_buffer::SendBuffer;
use crate::checksum;
use crate::output::{Path, headers_len};
use crate::packet::{ETHERNET_HEADER, Ends, IPV6_HEADER, PROTOCOL_TCP, TCP_HEADER, put};
use wireboot_nic::{Offload, Properties, Transmit};
use wireboot_tcp::{Flags, Transmit as Unit};

/// Offset of the checksum in the header.
const CHECKSUM: usize = 16;
/// The longest headers of a segment, with all options that TCP has room for.
const HEADERS: usize = ETHERNET_HEADER + IPV6_HEADER + 60;

/// Sends segments of a connection along a path.
pub(super) struct SegmentSender<'a> {
    pub path: Path,
    pub ends: Ends,
    pub properties: &'a Properties,
}

impl SegmentSender<'_> {
    /// Most payload bytes of a unit that the card cuts; 0 where it cuts none.
    pub(super) fn card_unit(&self) -> usize {
        let headers = headers_len(&self.path.remote) + TCP_HEADER;
        self.properties.transmit_unit.saturating_sub(headers)
    }

    /// Sends `unit`, whose payload is in `buffer`, by the card in one piece or segment by segment. Returns how much of the payload has
    /// left.
    pub(super) fn send(&self, unit: &Unit, buffer: &SendBuffer, tx: &mut dyn Transmit) -> usize {
        let start = headers_len(&self.path.remote);
        let header = TCP_HEADER + unit.options.as_slice().len();
        let mss = usize::from(unit.mss);
        let step = if self.card_unit() > 0 {
            unit.len
        } else {
            mss.max(1)
        };
        let mut headers = [0; HEADERS];
        let mut written = None;
        let mut sent = 0;
        loop {
            let len = step.min(unit.len - sent);
            let last = sent + len == unit.len;
            let mut flags = unit.flags;
            if !last {
                flags.0 &= !(Flags::FIN | Flags::PSH).0;
            }
            // Most differ in the sequence number alone.
            if written != Some((len, flags)) {
                self.write(&mut headers, unit, len, flags);
                written = Some((len, flags));
            }
            let seq = unit.seq.wrapping_add(sent as u32);
            put(&mut headers, start + 4, seq.to_be_bytes());
            let head = headers.get(..start + header).unwrap_or_default();
            let offload = self.offload(head.len(), (len > mss).then_some(unit.mss));
            let queued = tx.send(head.len() + len, offload, &mut |frame| {
                if let Some((room, payload)) = frame.split_at_mut_checked(head.len()) {
                    room.copy_from_slice(head);
                    buffer.fill(unit.offset as usize + sent, payload);
                }
                if offload == Offload::None {
                    let _ = self.path.seal(frame, PROTOCOL_TCP, start, CHECKSUM, false);
                }
            });
            if queued.is_err() {
                return sent;
            }
            sent += len;
            if last {
                return sent;
            }
        }
    }

    /// What the card is asked to do to a segment whose payload begins at `payload`, or to a unit that it shall `cut`.
    fn offload(&self, payload: usize, cut: Option<u16>) -> Offload {
        let start = headers_len(&self.path.remote) as u16;
        match cut {
            Some(mss) => Offload::TcpSegmentation {
                start,
                header_len: payload as u16,
                mss,
            },
            None if self.properties.transmit_checksum => Offload::L4Checksum {
                start,
                offset: CHECKSUM as u16,
            },
            None => Offload::None,
        }
    }

    /// Writes the headers before `len` bytes of payload, but for the sequence number.
    fn write(&self, headers: &mut [u8], unit: &Unit, len: usize, flags: Flags) {
        let options = unit.options.as_slice();
        let header = TCP_HEADER + options.len();
        let start = self.path.write(headers, PROTOCOL_TCP, header + len);
        let Some(tcp) = headers.get_mut(start..) else {
            return;
        };
        let (remote, local) = (self.ends.remote_end(), self.ends.local_end());
        put(tcp, 0, local.port().to_be_bytes());
        put(tcp, 2, remote.port().to_be_bytes());
        put(tcp, 8, unit.ack.to_be_bytes());
        put(tcp, 12, [((header / 4) as u8) << 4, flags.0]);
        put(tcp, 14, unit.wnd.to_be_bytes());
        let pseudo = checksum::pseudo_header(
            self.path.local,
            self.path.remote,
            PROTOCOL_TCP,
            header + len,
        );
        put(tcp, CHECKSUM, pseudo.to_be_bytes());
        if let Some(room) = tcp.get_mut(TCP_HEADER..header) {
            room.copy_from_slice(options);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::card::Card;
    use alloc::vec::Vec;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{EthernetFrame, Ipv4Packet, Ipv4Repr, Ipv6Packet, TcpPacket};
    use wireboot_tcp::Reply;

    const V4: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    ];
    const V6: [IpAddr; 2] = [
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ];

    /// Sends a unit of `len` bytes in segments of 1000, from the fourth byte of a buffer on.
    fn sent(
        [local, remote]: [IpAddr; 2],
        properties: &Properties,
        len: usize,
        room: usize,
    ) -> (usize, Vec<(Vec<u8>, Offload)>) {
        let sender = SegmentSender {
            path: Path {
                station: [2, 0, 0, 0, 0, 2],
                next_hop: [2, 0, 0, 0, 0, 1],
                local,
                remote,
            },
            ends: Ends::new((remote, 80).into(), (local, 49_152).into()),
            properties,
        };
        let reply = Reply {
            seq: 0xffff_ff00,
            ack: 77,
            flags: Flags::ACK | Flags::PSH | Flags::FIN,
        };
        let unit = Unit {
            wnd: 512,
            offset: 3,
            len,
            mss: 1000,
            ..reply.into()
        };
        let mut buffer = SendBuffer::default();
        buffer.push(&pattern(3 + len));
        let mut card = Card {
            room,
            ..Card::default()
        };
        let sent = sender.send(&unit, &buffer, &mut card);
        (sent, card.frames)
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n % 251) as u8).collect()
    }

    fn plain() -> Properties {
        Properties {
            mac: [2, 0, 0, 0, 0, 2],
            mtu: 1500,
            max_receive: 1514,
            receive_frames: 1,
            receive_frames_probe: 0,
            receive_bytes: 2048,
            transmit_checksum: false,
            transmit_unit: 0,
        }
    }

    /// Sequence number, control bits and payload, read by somebody else's code, which verifies the checksums too.
    fn read(frame: &[u8], [local, remote]: [IpAddr; 2]) -> (u32, Flags, Vec<u8>) {
        let ethernet = EthernetFrame::new_checked(frame).unwrap();
        let segment = match local {
            IpAddr::V4(_) => {
                let ip = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
                assert_eq!(usize::from(ip.total_len()), frame.len() - 14);
                Ipv4Repr::parse(&ip, &ChecksumCapabilities::default()).unwrap();
                ip.payload()
            }
            IpAddr::V6(_) => Ipv6Packet::new_checked(ethernet.payload())
                .unwrap()
                .payload(),
        };
        let tcp = TcpPacket::new_checked(segment).unwrap();
        assert!(tcp.verify_checksum(&local.into(), &remote.into()));
        assert_eq!((tcp.src_port(), tcp.dst_port()), (49_152, 80));
        assert_eq!((tcp.ack_number().0, tcp.window_len()), (77, 512));
        let flags = Flags(segment[13]);
        (tcp.seq_number().0 as u32, flags, tcp.payload().to_vec())
    }

    #[test]
    fn a_unit_is_cut_where_the_card_does_not() {
        for ends in [V4, V6] {
            for len in [1, 999, 1000, 1001, 2000, 3500] {
                let (count, frames) = sent(ends, &plain(), len, 9);
                assert_eq!((count, frames.len()), (len, len.div_ceil(1000)));
                let stream = pattern(3 + len);
                for (index, (frame, offload)) in frames.iter().enumerate() {
                    let at = index * 1000;
                    let end = len.min(at + 1000);
                    let flags = if end == len {
                        Flags::ACK | Flags::PSH | Flags::FIN
                    } else {
                        Flags::ACK
                    };
                    let seq = 0xffff_ff00_u32.wrapping_add(at as u32);
                    let expected = (seq, flags, stream[3 + at..3 + end].to_vec());
                    assert_eq!(read(frame, ends), expected, "{at} of {len}");
                    assert_eq!(*offload, Offload::None);
                }
            }
        }
    }

    #[test]
    fn what_finds_no_room_is_told() {
        for (room, left) in [(0, 0), (1, 1000), (3, 3000), (4, 3500)] {
            assert_eq!(sent(V4, &plain(), 3500, room).0, left);
        }
    }

    #[test]
    fn a_card_that_cuts_gets_the_unit() {
        let card = Properties {
            transmit_checksum: true,
            transmit_unit: 65_550,
            ..plain()
        };
        for (ends, start) in [(V4, 34), (V6, 54)] {
            let (_, frames) = sent(ends, &card, 3500, 9);
            let [(frame, offload)] = &frames[..] else {
                panic!("{} frames", frames.len());
            };
            let cut = Offload::TcpSegmentation {
                start,
                header_len: start + 20,
                mss: 1000,
            };
            assert_eq!(*offload, cut);
            assert_eq!(frame[usize::from(start) + 20..], pattern(3503)[3..]);
            // A single segment is not to be cut.
            let (_, frames) = sent(ends, &card, 1000, 9);
            assert_eq!(frames[0].1, Offload::L4Checksum { start, offset: 16 });
        }
    }
}
