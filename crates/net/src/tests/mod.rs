//! The running engine on a simulated wire in simulated time: against smoltcp, which is nothing of ours ([`downloads`], [`uploads`]),
//! and against a host that sends what no stack would ([`forged`]).

mod attacks;
pub(crate) mod card;
pub(crate) mod datagrams;
mod downloads;
mod echo;
pub(crate) mod forged;
mod fragments;
mod headers;
mod icmp;
mod isn;
mod neighbors;
pub(crate) mod path_mtu;
mod placement;
mod segments;
pub(crate) mod server;
mod station;
mod tap;
mod uploads;

pub(crate) use server::FileServer;

use crate::{Duration, Engine, Instant, IpAddr, Ipv4Addr, Ipv4Cidr, Ipv4Config, Ipv6Addr, Stack};
use core::net::SocketAddr;
use std::vec::Vec;
use wireboot_nic::Nic;

pub(crate) use crate::packet::IpVersion;

pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The modified EUI-64 of 02:00:00:00:00:0a (RFC 4291, appendix A).
pub(crate) const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x00ff, 0xfe00, 0x000a);
pub(crate) const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
/// ARP has no checksum, and a corrupted answer stays in the cache for a minute: a wire that flips bits unseen
/// asks for patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(200);
pub(crate) const REQUEST: &[u8] = b"give me the file";

impl IpVersion {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn client(self) -> IpAddr {
        match self {
            Self::V4 => CLIENT.into(),
            Self::V6 => CLIENT6.into(),
        }
    }

    /// The server's port 80.
    pub(crate) fn server(self) -> SocketAddr {
        let host: IpAddr = match self {
            Self::V4 => SERVER.into(),
            Self::V6 => SERVER6.into(),
        };
        SocketAddr::new(host, 80)
    }

    /// Another host on the link.
    pub(crate) fn stranger(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 0, 0, 77).into(),
            Self::V6 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77).into(),
        }
    }

    /// Gives the station its address.
    pub(crate) fn configure(self, stack: &Stack) {
        match self {
            Self::V4 => stack.configure(&Ipv4Config {
                address: Ipv4Cidr::new(CLIENT, 24),
                router: None,
                routes: Vec::new(),
                mtu: None,
            }),
            Self::V6 => stack.ipv6_up(),
        }
    }

    /// The same before the clock begins, so that duplicate address detection is over then.
    pub(crate) fn configure_before_start<N: Nic>(self, engine: &mut Engine<N>) {
        let mut turn = |millis| engine.poll(Instant::from_millis(millis)).unwrap();
        turn(-30);
        self.configure(&engine.stack());
        let mut turn = |millis| engine.poll(Instant::from_millis(millis)).unwrap();
        turn(-30);
        turn(-1);
    }
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 253) as u8).collect()
}
