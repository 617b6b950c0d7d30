//! What the lab's instruments and networks need of both versions of the Internet Protocol.

use std::fmt;
use std::net::IpAddr;

use clap::ValueEnum;
use etherparse::LaxNetSlice;
use serde::Serialize;

/// A version of the Internet Protocol, as `--ip` takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize)]
pub enum IpVersion {
    /// IPv4 alone
    #[default]
    #[value(name = "4")]
    #[serde(rename = "4")]
    V4,
    /// IPv6 alone: no IPv4 address on the network
    #[value(name = "6")]
    #[serde(rename = "6")]
    V6,
}

impl IpVersion {
    /// The version of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An address as a URL has it: IPv6 in brackets (RFC 3986 section 3.2.2).
#[must_use]
pub fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// From whom to whom a packet goes, and how long it was on the wire: a capture may have cut it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's, which may be a group's.
    pub destination: IpAddr,
    /// Bytes behind the IP header and its extensions: the transport header and what it carries.
    pub payload: usize,
}

impl IpPacket {
    /// `None` for what is no IP.
    pub fn of(net: &LaxNetSlice<'_>) -> Option<Self> {
        match net {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                Some(Self {
                    source: header.source_addr().into(),
                    destination: header.destination_addr().into(),
                    payload: usize::from(header.total_len()).saturating_sub(header.slice().len()),
                })
            }
            LaxNetSlice::Ipv6(ip) => {
                let header = ip.header();
                let extensions = ip.extensions().slice().len();
                Some(Self {
                    source: header.source_addr().into(),
                    destination: header.destination_addr().into(),
                    payload: usize::from(header.payload_length()).saturating_sub(extensions),
                })
            }
            LaxNetSlice::Arp(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{
        IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6Header, Ipv6RawExtHeader,
        LaxSlicedPacket, PacketBuilder,
    };

    /// A datagram of 100 bytes, of which the capture kept 80 of the frame.
    fn cut(ip: IpHeaders) -> Option<IpPacket> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ip(ip);
        builder.udp(69, 2000).write(&mut frame, &[0; 92]).unwrap();
        frame.truncate(80);
        IpPacket::of(&LaxSlicedPacket::from_ethernet(&frame).unwrap().net.unwrap())
    }

    #[test]
    fn length_is_that_on_the_wire() {
        let (from, to) = ([10, 77, 0, 1], [10, 77, 0, 2]);
        let mut header = Ipv4Header::new(0, 64, IpNumber::UDP, from, to).unwrap();
        header.options = [1; 4].into();
        let packet = cut(IpHeaders::Ipv4(header, Default::default())).unwrap();
        assert_eq!(
            (packet.source, packet.destination),
            (from.into(), to.into())
        );
        assert_eq!(packet.payload, 100);

        let (from, to) = ([0xfd; 16], [0xfe; 16]);
        let header = Ipv6Header {
            source: from,
            destination: to,
            ..Ipv6Header::default()
        };
        let options = Ipv6RawExtHeader::new_raw(IpNumber::UDP, &[1, 4, 0, 0, 0, 0]).unwrap();
        let extensions = Ipv6Extensions {
            destination_options: Some(options),
            ..Ipv6Extensions::default()
        };
        let packet = cut(IpHeaders::Ipv6(header, extensions)).unwrap();
        assert_eq!(
            (packet.source, packet.destination),
            (from.into(), to.into())
        );
        assert_eq!(packet.payload, 100);
    }

    #[test]
    fn only_ipv6_stands_in_brackets() {
        assert_eq!(host("10.77.0.1".parse().unwrap()), "10.77.0.1");
        assert_eq!(host("fd00:77::1".parse().unwrap()), "[fd00:77::1]");
    }
}
