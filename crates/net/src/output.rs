//! Frames that leave: link and IP headers, transport checksums, and the packets that wait for their next hop.

use crate::checksum;
use crate::packet::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_HEADER, IPV6_HEADER, PROTOCOL_UDP,
    UDP_HEADER, put,
};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use wireboot_nic::{MacAddress, Offload};

/// Hop limit of what we send (RFC 1700's default TTL).
const HOP_LIMIT: u8 = 64;

/// Where a packet goes, and as whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The station.
    pub station: MacAddress,
    /// The next hop.
    pub next_hop: MacAddress,
    pub local: IpAddr,
    pub remote: IpAddr,
}

/// Bytes before the transport header of a packet to `remote`.
pub const fn headers_len(remote: &IpAddr) -> usize {
    ETHERNET_HEADER
        + match remote {
            IpAddr::V4(_) => IPV4_HEADER,
            IpAddr::V6(_) => IPV6_HEADER,
        }
}

impl Path {
    /// Writes the headers before `len` bytes of `protocol`, and returns where those begin.
    pub fn write(&self, frame: &mut [u8], protocol: u8, len: usize) -> usize {
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
                put(frame, ip + 8, octets6(local));
                put(frame, ip + 24, octets6(remote));
            }
        }
        headers_len(&self.remote)
    }

    /// Sets the transport checksum at `offset` of the segment that begins at `start`, or leaves it to the device.
    pub fn seal(
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

fn octets6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
    }
}

/// A UDP datagram before the next hop is known.
pub struct Packet {
    pub local: IpAddr,
    pub remote: IpAddr,
    /// The datagram, its checksum 0.
    pub segment: Vec<u8>,
}

impl Packet {
    /// A UDP datagram.
    pub fn udp(local: SocketAddr, remote: SocketAddr, payload: &[u8]) -> Self {
        let mut segment = vec![0; UDP_HEADER + payload.len()];
        put(&mut segment, 0, local.port().to_be_bytes());
        put(&mut segment, 2, remote.port().to_be_bytes());
        let len = segment.len() as u16;
        put(&mut segment, 4, len.to_be_bytes());
        if let Some(room) = segment.get_mut(UDP_HEADER..) {
            room.copy_from_slice(payload);
        }
        Self {
            local: local.ip(),
            remote: remote.ip(),
            segment,
        }
    }
}
