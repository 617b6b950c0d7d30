//! Echo messages (RFC 792, RFC 4443), and what came for each socket.

use crate::checksum;
use crate::ipv6::header::ICMP;
use crate::ipv6::icmp;
use crate::output::headers_len;
use crate::packet::{ETHERNET_HEADER, IpVersion, PROTOCOL_ICMP, array, put};
use crate::path_mtu;
use crate::quote;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

const REQUEST_V4: u8 = 8;
const REPLY_V4: u8 = 0;
const REQUEST_V6: u8 = 128;
const REPLY_V6: u8 = 129;
/// Bytes of a message before its data.
const HEADER: usize = 8;
/// Replies that wait for a reader that is slow.
const WAITING: usize = 256;

/// An open socket: its peer, and what has come from it.
pub(crate) struct Binding {
    remote: IpAddr,
    identifier: u16,
    /// Sequence numbers of replies that nobody has taken yet.
    pub(crate) replies: VecDeque<u16>,
    /// How long a packet may be, by what was said last.
    pub(crate) too_big: Option<u16>,
}

impl Binding {
    pub(crate) fn new(remote: IpAddr, identifier: u16) -> Self {
        Self {
            remote,
            identifier,
            replies: VecDeque::new(),
            too_big: None,
        }
    }

    /// Whether it is the socket of that host and identifier.
    pub(crate) fn is_of(&self, remote: IpAddr, identifier: u16) -> bool {
        (self.remote, self.identifier) == (remote, identifier)
    }
}

pub(crate) fn find(
    bindings: &mut [Binding],
    remote: IpAddr,
    identifier: u16,
) -> Option<&mut Binding> {
    bindings
        .iter_mut()
        .find(|one| one.is_of(remote, identifier))
}

/// A request without its checksum, for an IP packet of `packet_bytes` or of the shortest that holds one.
pub(crate) fn request(
    remote: IpAddr,
    identifier: u16,
    sequence: u16,
    packet_bytes: u16,
) -> Vec<u8> {
    let header = headers_len(&remote) - ETHERNET_HEADER;
    let len = usize::from(packet_bytes).saturating_sub(header).max(HEADER);
    let mut message = vec![0; len];
    let kind = match remote {
        IpAddr::V4(_) => REQUEST_V4,
        IpAddr::V6(_) => REQUEST_V6,
    };
    put(&mut message, 0, [kind, 0, 0, 0]);
    put(&mut message, 4, identifier.to_be_bytes());
    put(&mut message, 6, sequence.to_be_bytes());
    message
}

/// What a message says of a request that may be one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EchoNews {
    remote: IpAddr,
    identifier: u16,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Reply {
        sequence: u16,
    },
    /// It was too long for the path, which takes so much.
    TooBig {
        mtu: u16,
    },
}

/// Reads a message from `path.0` to `path.1`, whose checksum is right.
pub(crate) fn parse(
    version: IpVersion,
    path: (IpAddr, IpAddr),
    message: &[u8],
) -> Option<EchoNews> {
    let reply = match version {
        IpVersion::V4 => REPLY_V4,
        IpVersion::V6 => REPLY_V6,
    };
    let [kind, code, _, _, a, b, c, d] = array::<HEADER>(message, 0)?;
    if (kind, code) == (reply, 0) {
        return Some(EchoNews {
            remote: path.0,
            identifier: u16::from_be_bytes([a, b]),
            what: What::Reply {
                sequence: u16::from_be_bytes([c, d]),
            },
        });
    }
    let quoted = quote::packet(version, message.get(HEADER..)?)?;
    let mtu = path_mtu::reported_mtu(version, message, quoted.len)?;
    let request = match version {
        IpVersion::V4 => (PROTOCOL_ICMP, REQUEST_V4),
        IpVersion::V6 => (ICMP, REQUEST_V6),
    };
    let [kind, _, _, _, a, b, ..] = array::<HEADER>(quoted.transport, 0)?;
    let ours = (quoted.protocol, kind) == request && quoted.local == path.1;
    ours.then_some(EchoNews {
        remote: quoted.remote,
        identifier: u16::from_be_bytes([a, b]),
        what: What::TooBig { mtu },
    })
}

/// Gives news to the socket of the host and the identifier, if there is one.
pub(crate) fn take(bindings: &mut [Binding], news: &EchoNews) {
    let Some(binding) = find(bindings, news.remote, news.identifier) else {
        return;
    };
    match news.what {
        What::Reply { sequence } if binding.replies.len() < WAITING => {
            binding.replies.push_back(sequence);
        }
        What::Reply { .. } => {}
        What::TooBig { mtu } => binding.too_big = Some(mtu),
    }
}

/// Sets the checksum of a message that has zero there. Returns its IP protocol.
pub(crate) fn seal(local: IpAddr, remote: IpAddr, message: &mut [u8]) -> u8 {
    match (local, remote) {
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            icmp::seal(local, remote, message);
            ICMP
        }
        _ => {
            let sum = checksum::compute(0, message);
            put(message, 2, sum.to_be_bytes());
            PROTOCOL_ICMP
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_message_is_read_or_refused(
            v6 in any::<bool>(),
            kind in prop_oneof![Just(0u8), Just(2), Just(3), Just(129), any::<u8>()],
            code in prop_oneof![Just(0u8), Just(4), any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let (version, path): (_, (IpAddr, IpAddr)) = match v6 {
                true => (
                    IpVersion::V6,
                    (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()),
                ),
                false => (
                    IpVersion::V4,
                    (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into()),
                ),
            };
            let message = [&[kind, code], &rest[..]].concat();
            let is_reply = (kind, code) == (if v6 { REPLY_V6 } else { REPLY_V4 }, 0);
            let news = parse(version, path, &message);
            let replied = matches!(news, Some(EchoNews { what: What::Reply { .. }, .. }));
            prop_assert_eq!(replied, is_reply && message.len() >= HEADER);
        }
    }
}
