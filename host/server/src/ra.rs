//! Router advertisements (RFC 4861 section 6.2, RFC 8106) for a network without an IPv6 router: which prefix it has, and whether
//! addresses or the rest come by DHCPv6.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::interface::Interface;
use crate::stop::Stop;

pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Hop limit of neighbour discovery: no router passes it on, so it comes from the link.
pub(crate) const HOP_LIMIT: u8 = 255;
/// Hop limit that hosts are to use.
const CUR_HOP_LIMIT: u8 = 64;

const SOURCE_LINK_LAYER: u8 = 1;
const PREFIX_INFORMATION: u8 = 3;
const RDNSS: u8 = 25;

/// Prefix information: the prefix is on this link, and hosts may make themselves addresses of it.
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;
/// Bits of a prefix that hosts can make addresses of (RFC 4291 section 2.5.1).
const AUTONOMOUS_PREFIX: u8 = 64;

/// AdvValidLifetime and AdvPreferredLifetime: a day, for a server that may go for good at any time.
const VALID_LIFETIME: u32 = 86_400;
const PREFERRED_LIFETIME: u32 = 14_400;
/// AdvDefaultLifetime, and that of name servers.
const ROUTER_LIFETIME: u16 = 1800;

/// Time between advertisements that nobody asked for (MinRtrAdvInterval), and between the first ones.
const EVERY: Duration = Duration::from_secs(200);
const EVERY_AT_FIRST: Duration = Duration::from_secs(16);
const AT_FIRST: u32 = 3;
/// MIN_DELAY_BETWEEN_RAS, of those to all nodes.
const MIN_DELAY: Duration = Duration::from_secs(3);
/// Time until the next try after one that failed: the interface may not have its link-local address yet.
const RETRY: Duration = Duration::from_millis(500);

/// What hosts are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Addresses come by DHCPv6 (M).
    pub managed: bool,
    /// The rest comes by DHCPv6 (O).
    pub other: bool,
    /// This machine forwards packets: it is a default router.
    pub router: bool,
    /// An address of the network, and the bits of its prefix.
    pub prefix: (Ipv6Addr, u8),
    /// Name servers (option RDNSS, RFC 8106, section 5.1); the option is left out where there are none, and holds the first 127.
    pub dns: Vec<Ipv6Addr>,
    /// Ethernet address of the interface.
    pub mac: Option<[u8; 6]>,
}

impl Advertisement {
    /// The ICMPv6 message, its checksum left to who sends it. The last one takes back what the others told.
    pub(crate) fn emit(&self, last: bool) -> Vec<u8> {
        let lifetime = |lifetime: u32| if last { 0 } else { lifetime };
        let router = lifetime(if self.router {
            ROUTER_LIFETIME.into()
        } else {
            0
        }) as u16;
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        let mut out = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, CUR_HOP_LIMIT, flags];
        out.extend(router.to_be_bytes());
        // Reachable time and retransmission timer: not told.
        out.extend([0; 8]);
        if let Some(mac) = self.mac {
            out.extend([SOURCE_LINK_LAYER, 1]);
            out.extend(mac);
        }
        let (address, bits) = self.prefix;
        let host_bits = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
        let network = Ipv6Addr::from(u128::from(address) & !host_bits);
        let autonomous = if bits == AUTONOMOUS_PREFIX {
            AUTONOMOUS
        } else {
            0
        };
        out.extend([PREFIX_INFORMATION, 4, bits, ON_LINK | autonomous]);
        out.extend(lifetime(VALID_LIFETIME).to_be_bytes());
        out.extend(lifetime(PREFERRED_LIFETIME).to_be_bytes());
        out.extend([0; 4]);
        out.extend(network.octets());
        // The option's length counts eight bytes at a time, in one byte.
        let dns = self.dns.get(..127).unwrap_or(&self.dns);
        if !dns.is_empty() {
            out.extend([RDNSS, 1 + 2 * dns.len() as u8, 0, 0]);
            out.extend(lifetime(ROUTER_LIFETIME.into()).to_be_bytes());
            out.extend(dns.iter().flat_map(Ipv6Addr::octets));
        }
        out
    }
}

/// Whether an ICMPv6 message with a good checksum is a router solicitation (RFC 4861 section 6.1.1).
pub(crate) fn is_solicitation(message: &[u8], source: Ipv6Addr, hop_limit: Option<u8>) -> bool {
    let Some((&[kind, code, ..], mut options)) = message.split_first_chunk::<8>() else {
        return false;
    };
    if (kind, code, hop_limit) != (ROUTER_SOLICITATION, 0, Some(HOP_LIMIT)) {
        return false;
    }
    while let Some(&[kind, units]) = options.first_chunk::<2>() {
        let from_nobody = kind == SOURCE_LINK_LAYER && source.is_unspecified();
        match options.get(usize::from(units) * 8..) {
            Some(rest) if units > 0 && !from_nobody => options = rest,
            _ => return false,
        }
    }
    options.is_empty()
}

/// When all nodes are told next.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub next: Instant,
    last: Option<Instant>,
    sent: u32,
}

impl Schedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            next: now,
            last: None,
            sent: 0,
        }
    }

    pub(crate) fn sent(&mut self, now: Instant) {
        self.sent = self.sent.saturating_add(1);
        self.last = Some(now);
        let every = if self.sent < AT_FIRST {
            EVERY_AT_FIRST
        } else {
            EVERY
        };
        self.next = now + every;
    }

    fn failed(&mut self, now: Instant) {
        self.next = now + RETRY;
    }

    /// Somebody without an address asked.
    pub(crate) fn asked(&mut self, now: Instant) {
        let soonest = self.last.map_or(now, |last| now.max(last + MIN_DELAY));
        self.next = self.next.min(soonest);
    }
}

/// A socket for router advertisements on one interface.
#[derive(Debug)]
pub struct RaSocket {
    socket: Socket,
    index: u32,
}

impl RaSocket {
    /// Opens it; needs the capability `CAP_NET_RAW`.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn open(interface: &Interface) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.bind_device(Some(interface.name.as_bytes()))?;
        socket.set_multicast_if_v6(interface.index)?;
        socket.set_multicast_hops_v6(HOP_LIMIT.into())?;
        socket.set_unicast_hops_v6(HOP_LIMIT.into())?;
        socket.set_multicast_loop_v6(false)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        socket.join_multicast_v6(&ALL_ROUTERS, interface.index)?;
        Ok(Self {
            socket,
            index: interface.index,
        })
    }
}

/// Tells the hosts of one interface.
#[derive(Debug)]
pub struct RaServer {
    socket: RaSocket,
    advertisement: Advertisement,
}

impl RaServer {
    /// A server that tells so.
    #[must_use]
    pub fn new(socket: RaSocket, advertisement: Advertisement) -> Self {
        Self {
            socket,
            advertisement,
        }
    }

    /// Tells, and answers who asks, until told to stop.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub fn run(&self, stop: &Stop) -> io::Result<()> {
        let mut schedule = Schedule::new(Instant::now());
        while !stop.is_set() {
            let now = Instant::now();
            if now >= schedule.next {
                match self.send(ALL_NODES, false) {
                    Ok(()) => schedule.sent(now),
                    Err(_) => schedule.failed(now),
                }
            }
            let left = schedule.next.saturating_duration_since(Instant::now());
            // Rounded up, so that a wait of less than a millisecond does not become a busy loop.
            let left = left.min(Stop::CHECK_EVERY) + Duration::from_millis(1);
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut waiting = [PollFd::new(self.socket.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, left) {
                Ok(0) | Err(nix::Error::EINTR) => {}
                Ok(_) => self.take(&mut schedule)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        self.send(ALL_NODES, true)
    }

    fn take(&self, schedule: &mut Schedule) -> io::Result<()> {
        let mut buffer = [0; 2048];
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let mut control = nix::cmsg_space!(libc::c_int);
        let received = recvmsg::<SockaddrIn6>(
            self.socket.socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::MSG_DONTWAIT,
        );
        let message = match received {
            Ok(message) => message,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let hop_limit = message.cmsgs()?.find_map(|one| match one {
            ControlMessageOwned::Ipv6HopLimit(limit) => u8::try_from(limit).ok(),
            _ => None,
        });
        let (length, source) = (message.bytes, message.address);
        let source = source.map_or(Ipv6Addr::UNSPECIFIED, |source| source.ip());
        let message = buffer.get(..length).unwrap_or_default();
        if is_solicitation(message, source, hop_limit) {
            // One that cannot be sent is asked for again.
            if !source.is_unicast_link_local() || self.send(source, false).is_err() {
                schedule.asked(Instant::now());
            }
        }
        Ok(())
    }

    fn send(&self, to: Ipv6Addr, last: bool) -> io::Result<()> {
        let to = SocketAddrV6::new(to, 0, 0, self.socket.index);
        let message = self.advertisement.emit(last);
        self.socket.socket.send_to(&message, &to.into()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);

    fn advertisement() -> Advertisement {
        Advertisement {
            managed: true,
            other: true,
            router: false,
            prefix: ("2001:db8:0:9::1".parse().unwrap(), 64),
            dns: vec!["2001:db8::53".parse().unwrap()],
            mac: Some(MAC),
        }
    }

    #[test]
    fn an_advertisement_has_the_bytes_of_the_rfc() {
        let expected = [
            // Type, code, checksum, hop limit, M and O, router lifetime, reachable time, retransmission timer.
            [134, 0, 0, 0, 64, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].as_slice(),
            &[1, 1, 2, 0, 0, 0, 0, 1],
            // Prefix information: L and A; a day, four hours.
            &[
                3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 0, 0x38, 0x40, 0, 0, 0, 0,
            ],
            &[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0],
            // Recursive name servers: half an hour.
            &[25, 3, 0, 0, 0, 0, 7, 8],
            &[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53],
        ]
        .concat();
        assert_eq!(advertisement().emit(false), expected);
    }

    #[test]
    fn flags_and_lifetimes_are_those_of_the_server() {
        let flags = |managed, other| {
            let advertisement = Advertisement {
                managed,
                other,
                ..advertisement()
            };
            advertisement.emit(false)[5]
        };
        assert_eq!(
            [flags(false, false), flags(false, true), flags(true, false)],
            [0, 0x40, 0x80]
        );
        let router = Advertisement {
            router: true,
            ..advertisement()
        };
        assert_eq!(router.emit(false)[6..8], [7, 8]);
        // Hosts make no addresses of other prefixes.
        let short = Advertisement {
            prefix: ("2001:db8:0:9:8000::1".parse().unwrap(), 65),
            mac: None,
            ..advertisement()
        };
        let emitted = short.emit(false);
        assert_eq!(emitted[16..20], [3, 4, 65, 0x80]);
        assert_eq!(
            emitted[32..48],
            [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 9, 0x80, 0, 0, 0, 0, 0, 0, 0]
        );
        // The last one takes all of it back.
        let last = router.emit(true);
        assert_eq!(last[6..8], [0, 0]);
        assert_eq!(last[28..36], [0; 8]);
        assert_eq!(last[60..64], [0; 4]);
        assert_eq!(last.len(), router.emit(false).len());
    }

    #[test]
    fn only_solicitations_from_the_link_count() {
        let bare = [133, 0, 0, 0, 0, 0, 0, 0];
        let nobody = Ipv6Addr::UNSPECIFIED;
        assert!(is_solicitation(&bare, HOST, Some(255)));
        assert!(is_solicitation(&bare, nobody, Some(255)));
        assert!(!is_solicitation(&bare, HOST, Some(254)));
        assert!(!is_solicitation(&bare, HOST, None));
        assert!(!is_solicitation(&bare[..7], HOST, Some(255)));
        assert!(!is_solicitation(
            &[134, 0, 0, 0, 0, 0, 0, 0],
            HOST,
            Some(255)
        ));
        assert!(!is_solicitation(
            &[133, 1, 0, 0, 0, 0, 0, 0],
            HOST,
            Some(255)
        ));
        let with = |option: &[u8]| [bare.as_slice(), option].concat();
        let address = with(&[1, 1, 2, 0, 0, 0, 0, 1]);
        assert!(is_solicitation(&address, HOST, Some(255)));
        assert!(!is_solicitation(&address, nobody, Some(255)));
        for wrong in [[14, 0, 0, 0].as_slice(), &[14, 2, 0, 0, 0, 0, 0, 0], &[14]] {
            assert!(!is_solicitation(&with(wrong), HOST, Some(255)), "{wrong:?}");
        }
    }

    #[test]
    fn all_nodes_are_told_now_and_then_and_when_somebody_asks() {
        let start = Instant::now();
        let seconds = |n| start + Duration::from_secs(n);
        let mut schedule = Schedule::new(start);
        assert_eq!(schedule.next, start);
        schedule.failed(start);
        assert_eq!(schedule.next, start + RETRY);
        schedule.sent(seconds(1));
        assert_eq!(schedule.next, seconds(17));
        // Not more often than every three seconds.
        schedule.asked(seconds(2));
        assert_eq!(schedule.next, seconds(4));
        schedule.asked(seconds(3));
        assert_eq!(schedule.next, seconds(4));
        schedule.sent(seconds(4));
        schedule.sent(seconds(20));
        assert_eq!(schedule.next, seconds(220));
        schedule.asked(seconds(100));
        assert_eq!(schedule.next, seconds(100));
    }
}
