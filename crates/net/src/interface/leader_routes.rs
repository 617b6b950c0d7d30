//! Routes that the leader of a team has told its workers: one for each host that they are to talk to.

use alloc::vec::Vec;
use core::net::IpAddr;

/// Hosts whose routes are kept; the one told longest ago goes first.
const ROUTES: usize = 16;

/// How packets get to a host. All addresses are of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Who receives the packets in the end.
    pub remote: IpAddr,
    /// The address of ours that they come from.
    pub local: IpAddr,
    /// Whom they are handed to on the link: the host or a router.
    pub next_hop: IpAddr,
    /// Largest IP packet on the path, in bytes.
    pub mtu: u16,
}

/// What a worker knows of the network. Empty on every other engine.
#[derive(Default)]
pub(crate) struct LeaderRoutes(Vec<Route>);

impl LeaderRoutes {
    /// Takes a route instead of a former one to the same host.
    pub(crate) fn take(&mut self, route: Route) {
        self.0.retain(|known| known.remote != route.remote);
        if self.0.len() == ROUTES {
            self.0.remove(0);
        }
        self.0.push(route);
    }

    pub(crate) fn to(&self, remote: IpAddr) -> Option<&Route> {
        self.0.iter().find(|route| route.remote == remote)
    }

    /// Whether `address` is one of ours.
    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        self.0.iter().any(|route| route.local == address)
    }

    /// The address of ours from which packets go over `next_hop`: neighbours are asked from it (RFC 4861, section 7.2.2).
    pub(crate) fn source(&self, next_hop: IpAddr) -> Option<IpAddr> {
        let mut latest_first = self.0.iter().rev();
        let route = latest_first.find(|route| route.next_hop == next_hop)?;
        Some(route.local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    fn ip(last: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()
    }

    fn route(remote: u16, local: u16, next_hop: u16) -> Route {
        Route {
            remote: ip(remote),
            local: ip(local),
            next_hop: ip(next_hop),
            mtu: 1500,
        }
    }

    #[test]
    fn the_latest_route_to_a_host_and_over_a_neighbour() {
        let mut routes = LeaderRoutes::default();
        routes.take(route(1, 10, 20));
        routes.take(route(2, 11, 20));
        routes.take(route(1, 12, 21));
        assert_eq!(routes.to(ip(1)), Some(&route(1, 12, 21)));
        assert_eq!(routes.source(ip(20)), Some(ip(11)));
        assert_eq!(routes.source(ip(21)), Some(ip(12)));
        assert_eq!(routes.source(ip(1)), None);
        // The address before is no longer ours.
        let ours = [10, 11, 12].map(|last| routes.is_ours(ip(last)));
        assert_eq!(ours, [false, true, true]);
    }

    #[test]
    fn the_oldest_route_goes_first() {
        let mut routes = LeaderRoutes::default();
        for remote in 0..16 {
            routes.take(route(remote, 100, remote));
        }
        routes.take(route(0, 100, 0));
        routes.take(route(16, 100, 16));
        assert_eq!(routes.to(ip(1)), None);
        assert!(routes.to(ip(0)).is_some() && routes.to(ip(2)).is_some());
        assert_eq!(routes.0.len(), ROUTES);
    }
}
