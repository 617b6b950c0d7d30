//! Frames that leave: link and IP headers, transport checksums, and the packets that wait for their next hop.

use crate::checksum;
use crate::packet::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_HEADER, IPV6_HEADER, PROTOCOL_UDP,
    UDP_HEADER, put, v6,
};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_nic::{MacAddress, Offload};

/// Hop limit of what we send (RFC 1700's default TTL).
const HOP_LIMIT: u8 = 64;
/// Where the checksum is in a UDP header.
const UDP_CHECKSUM: usize = 6;

/// Where a packet goes, and as whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub station: MacAddress,
    /// The Ethernet address of the remote, or of a router to it.
    pub next_hop: MacAddress,
    pub local: IpAddr,
    pub remote: IpAddr,
}

/// Bytes before the transport header of a packet to `remote`.
pub(crate) const fn headers_len(remote: &IpAddr) -> usize {
    ETHERNET_HEADER
        + match remote {
            IpAddr::V4(_) => IPV4_HEADER,
            IpAddr::V6(_) => IPV6_HEADER,
        }
}

/// Bytes of the IP packet of a datagram to `remote`.
pub(crate) const fn datagram_len(remote: &IpAddr, payload: &[u8]) -> usize {
    headers_len(remote) - ETHERNET_HEADER + UDP_HEADER + payload.len()
}

impl Path {
    /// Writes the headers before `len` bytes of `protocol`, and returns where those begin.
    pub(crate) fn write(&self, frame: &mut [u8], protocol: u8, len: usize) -> usize {
        put(frame, 0, self.next_hop);
        put(frame, 6, self.station);
        let ip = ETHERNET_HEADER;
        match (self.local, self.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                put(frame, 12, ETHERTYPE_IPV4.to_be_bytes());
                let total = (len + IPV4_HEADER) as u16;
                let [high, low] = total.to_be_bytes();
                // No options, identification 0, not to be fragmented (RFC 6864).
                let mut header = [
                    0x45, 0, high, low, 0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0, 0, 0, 0, 0, 0, 0,
                    0, 0,
                ];
                put(&mut header, 12, local.octets());
                put(&mut header, 16, remote.octets());
                let sum = checksum::compute(0, &header);
                put(&mut header, 10, sum.to_be_bytes());
                put(frame, ip, header);
            }
            (local, remote) => {
                put(frame, 12, ETHERTYPE_IPV6.to_be_bytes());
                let [high, low] = (len as u16).to_be_bytes();
                put(frame, ip, [0x60, 0, 0, 0, high, low, protocol, HOP_LIMIT]);
                put(frame, ip + 8, v6(local).octets());
                put(frame, ip + 24, v6(remote).octets());
            }
        }
        headers_len(&self.remote)
    }

    /// A frame with `payload` behind the headers.
    pub(crate) fn frame(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; headers_len(&self.remote)];
        self.write(&mut frame, protocol, payload.len());
        frame.extend_from_slice(payload);
        frame
    }

    /// Makes `frame` one with a UDP datagram between two ports, its checksum set or left to the device.
    pub(crate) fn datagram(
        &self,
        frame: &mut Vec<u8>,
        [from, to]: [u16; 2],
        payload: &[u8],
        device: bool,
    ) -> Offload {
        let start = headers_len(&self.remote);
        let len = UDP_HEADER + payload.len();
        frame.clear();
        frame.reserve_exact(start + len);
        frame.resize(start + UDP_HEADER, 0);
        self.write(frame, PROTOCOL_UDP, len);
        let [[a, b], [c, d], [e, f]] = [from, to, len as u16].map(u16::to_be_bytes);
        put(frame, start, [a, b, c, d, e, f]);
        frame.extend_from_slice(payload);
        self.seal(frame, PROTOCOL_UDP, start, UDP_CHECKSUM, device)
    }

    /// Sets the transport checksum at `offset` of the segment that begins at `start`, or leaves it to the device.
    pub(crate) fn seal(
        &self,
        frame: &mut [u8],
        protocol: u8,
        start: usize,
        offset: usize,
        device: bool,
    ) -> Offload {
        let len = frame.len().saturating_sub(start);
        let pseudo = checksum::pseudo_header(self.local, self.remote, protocol, len);
        if device {
            put(frame, start + offset, pseudo.to_be_bytes());
            return Offload::L4Checksum {
                start: start as u16,
                offset: offset as u16,
            };
        }
        put(frame, start + offset, [0, 0]);
        let mut sum = checksum::compute(pseudo, frame.get(start..).unwrap_or_default());
        if sum == 0 && protocol == PROTOCOL_UDP {
            // RFC 768: zero on the wire would mean "no checksum".
            sum = 0xffff;
        }
        put(frame, start + offset, sum.to_be_bytes());
        Offload::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PROTOCOL_TCP;
    use core::net::{Ipv4Addr, Ipv6Addr};

    const US: MacAddress = [2, 0, 0, 0, 0, 0x0a];
    const HOP: MacAddress = [2, 0, 0, 0, 0, 0x0b];
    const US4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const US6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    fn path(local: impl Into<IpAddr>, remote: impl Into<IpAddr>) -> Path {
        Path {
            station: US,
            next_hop: HOP,
            local: local.into(),
            remote: remote.into(),
        }
    }

    #[test]
    fn an_ipv4_header() {
        let mut frame = vec![0xaa; 36];
        assert_eq!(path(US4, HOST4).write(&mut frame, 17, 280), 34);
        // RFC 791, section 3.1: version 4 and five words, no service, 300 bytes, identification 0, "don't fragment", 64 hops, UDP.
        let header = [
            0x45, 0, 0x01, 0x2c, 0, 0, 0x40, 0, 64, 17, 0x25, 0xbf, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let expected = [&HOP[..], &US, &[0x08, 0x00], &header, &[0xaa; 2]].concat();
        assert_eq!(frame, expected);
    }

    #[test]
    fn an_ipv6_header() {
        let mut frame = vec![0xaa; 56];
        assert_eq!(path(US6, HOST6).write(&mut frame, 6, 300), 54);
        // RFC 8200, section 3: version 6, no class, no flow label, 300 bytes behind the header, TCP, 64 hops.
        let mut expected = [&HOP[..], &US, &[0x86, 0xdd]].concat();
        expected.extend([0x60, 0, 0, 0, 0x01, 0x2c, 6, 64]);
        expected.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        expected.extend([0xaa; 2]);
        assert_eq!(frame, expected);
    }

    #[test]
    fn a_datagram_and_its_checksum() {
        let sealed = |path: Path, payload: &[u8], device| {
            // What was there before does not count.
            let mut frame = vec![0x55; 200];
            let offload = path.datagram(&mut frame, [0xc000, 69], payload, device);
            let start = headers_len(&path.remote);
            let mut headers = vec![0; start];
            path.write(&mut headers, 17, 8 + payload.len());
            assert_eq!(frame[..start], headers);
            // RFC 768: ports, length, checksum.
            let segment = &frame[start..];
            assert_eq!(segment[..6], [0xc0, 0, 0, 69, 0, 8 + payload.len() as u8]);
            assert_eq!(segment[8..], *payload);
            (offload, [segment[6], segment[7]])
        };
        let (v4, v6) = (path(US4, HOST4), path(US6, HOST6));
        let none = Offload::None;
        assert_eq!(sealed(v4, b"abcd", false), (none, [0x66, 0xc7]));
        assert_eq!(sealed(v6, b"abcd", false), (none, [0x4e, 0x8d]));
        // A device that completes it finds the sum of the pseudo header there.
        let device = |start| Offload::L4Checksum { start, offset: 6 };
        assert_eq!(sealed(v4, b"abcd", true), (device(34), [0x14, 0x20]));
        assert_eq!(sealed(v6, b"abcd", true), (device(54), [0x2c, 0x5a]));
        // A sum of zero is sent as all ones by UDP alone.
        let zero = [b'a', b'b', 0xca, 0x2b];
        assert_eq!(sealed(v4, &zero, false), (none, [0xff, 0xff]));
        // What was there before does not count.
        let head = [0xc0, 0, 0, 69, 0, 12, 0x55, 0x55];
        let mut segment = [&head[..], b"ab", &[0xca, 0x2b + (17 - PROTOCOL_TCP)]].concat();
        assert_eq!(v4.seal(&mut segment, PROTOCOL_TCP, 0, 6, false), none);
        assert_eq!(segment[6..8], [0, 0]);
    }
}
