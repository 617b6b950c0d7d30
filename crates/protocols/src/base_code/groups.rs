//! The groups of the filter's list, told to routers and to switches that snoop: by IGMP over IPv4, by MLD over IPv6.

use super::packet::{self, put};
use super::{Host, Port};
use crate::simple_network::multicast_mac;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wireboot_net::{Igmp, Instant, Mld};

/// Where a packet's destination is.
const DESTINATION4: usize = 16;
const DESTINATION6: usize = 24;

#[derive(Default)]
pub(super) struct Groups {
    igmp: Igmp,
    mld: Mld,
}

impl Groups {
    /// Whether there are any, or others of which is still to be told that they are left.
    fn is_empty(&self) -> bool {
        self.igmp.is_empty() && self.mld.is_empty()
    }
}

impl Host {
    /// Whether it has to be looked after between calls: queries of routers are to be answered, and changes told again.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Hears what may be a router's query.
    pub(super) fn hear_query(&mut self, kind: [u8; 2], bytes: &[u8], now: Instant) {
        if self.groups.is_empty() {
            return;
        }
        let random = self.random.next_u16();
        match kind {
            packet::IPV4 => self.groups.igmp.hear(bytes, random, now),
            packet::IPV6 => self.groups.mld.hear(bytes, random, now),
            _ => {}
        }
    }

    /// Tells of groups that have come or gone, and answers queries, as far as it is time for it. What the link has no room for is lost: it
    /// is told again, or asked for again.
    pub(super) fn tell_groups(&mut self, port: &mut dyn Port, now: Instant) {
        let list = || self.filter.list.iter().copied();
        let v4 = list().filter_map(|one| match one {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        });
        self.groups.igmp.set(v4, now);
        let v6 = list().filter_map(|one| match one {
            IpAddr::V6(v6) => Some(v6),
            IpAddr::V4(_) => None,
        });
        self.groups.mld.set(v6, now);
        if self.groups.is_empty() || !port.link_up() {
            return;
        }
        let random = self.random.next_u16();
        let source = match self.address {
            IpAddr::V4(own) => own,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        for report in self.groups.igmp.due(source, random, now) {
            let to: Option<&[u8; 4]> = report.get(DESTINATION4..).and_then(<[u8]>::first_chunk);
            let to = to.map(|to| Ipv4Addr::from(*to).into());
            self.send_to_group(port, packet::IPV4, to, &report);
        }
        if let Some(report) = self.groups.mld.due(self.link_local(), random, now) {
            let to: Option<&[u8; 16]> = report.get(DESTINATION6..).and_then(<[u8]>::first_chunk);
            let to = to.map(|to| Ipv6Addr::from(*to).into());
            self.send_to_group(port, packet::IPV6, to, &report);
        }
    }

    fn send_to_group(
        &self,
        port: &mut dyn Port,
        kind: [u8; 2],
        group: Option<IpAddr>,
        bytes: &[u8],
    ) {
        let Some(mac) = group.and_then(|group| multicast_mac(group).ok()) else {
            return;
        };
        let mut header = [0; 14];
        put(&mut header, 0, &mac);
        put(&mut header, 6, &self.mac);
        put(&mut header, 12, &kind);
        port.send(&header, bytes);
    }
}
