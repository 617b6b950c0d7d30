//! Asking for the next hop at once.
//!
//! smoltcp sends one ARP request a second, whatever the number of hosts asked for, and repeats a lost one after
//! a second. A boot talks to a few hosts right after each other (DNS server, gateway, file server), so the
//! engine asks itself, for each of them and soon again; smoltcp takes the answers into its cache.

use crate::ethernet::Arp;
use crate::stack::Ipv4Config;
use alloc::vec::Vec;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::Ipv4Address;

/// Time between two requests for a host.
const INTERVAL: Duration = Duration::from_millis(100);
/// Requests for a host that does not answer. What waits for it may come back and ask again.
const REQUESTS: u32 = 5;
/// How long an answer is believed; less than smoltcp believes it.
const LIFETIME: Duration = Duration::from_secs(50);
/// Hosts remembered; smoltcp's cache holds no more.
const HOSTS: usize = 8;

struct Host {
    address: Ipv4Address,
    /// When to ask again, or, once it has answered, when to forget.
    next: Instant,
    /// Requests still to be sent; `None` once it has answered.
    requests: Option<u32>,
}

/// The hosts asked for.
#[derive(Default)]
pub struct Neighbors(Vec<Host>);

impl Neighbors {
    /// Somebody wants to send to `destination`.
    pub fn want(&mut self, config: &Ipv4Config, destination: Ipv4Address, now: Instant) {
        let Some(address) = next_hop(config, destination) else {
            return;
        };
        self.0
            .retain(|host| now < host.next || host.requests.is_some_and(|left| left > 0));
        if self.0.iter().any(|host| host.address == address) {
            return;
        }
        if self.0.len() == HOSTS {
            self.0.remove(0);
        }
        self.0.push(Host {
            address,
            next: now,
            requests: Some(REQUESTS),
        });
    }

    /// Hears an ARP packet.
    pub fn heard(&mut self, arp: &Arp, now: Instant) {
        if let Some(host) = self.0.iter_mut().find(|host| host.address == arp.sender) {
            host.requests = None;
            host.next = now + LIFETIME;
        }
    }

    /// The hosts to be asked for now.
    pub fn due(&mut self, now: Instant) -> impl Iterator<Item = Ipv4Address> {
        self.0.iter_mut().filter_map(move |host| {
            let left = host.requests.filter(|&left| left > 0 && now >= host.next)?;
            host.requests = Some(left - 1);
            host.next = now + INTERVAL;
            Some(host.address)
        })
    }
}

/// Whom a packet to `destination` is handed to: itself on the link, else the gateway of the longest
/// matching route.
fn next_hop(config: &Ipv4Config, destination: Ipv4Address) -> Option<Ipv4Address> {
    if config.address.contains_addr(&destination) {
        return Some(destination);
    }
    config
        .routes
        .iter()
        .filter(|(network, _)| network.contains_addr(&destination))
        .max_by_key(|(network, _)| network.prefix_len())
        .map(|(_, gateway)| *gateway)
        .or(config.router)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::Ipv4Cidr;
    use std::vec;

    fn ip(last: u8) -> Ipv4Address {
        Ipv4Address::new(10, 0, 0, last)
    }

    fn config() -> Ipv4Config {
        let net = |a, len| Ipv4Cidr::new(Ipv4Address::new(172, a, 0, 0), len);
        Ipv4Config {
            address: Ipv4Cidr::new(ip(1), 24),
            router: Some(ip(254)),
            routes: vec![(net(16, 12), ip(2)), (net(16, 16), ip(3))],
            mtu: None,
        }
    }

    #[test]
    fn the_longest_route_wins() {
        let hop = |a, b, c, d| next_hop(&config(), Ipv4Address::new(a, b, c, d)).unwrap();
        assert_eq!(hop(10, 0, 0, 7), ip(7));
        assert_eq!(hop(172, 16, 1, 1), ip(3));
        assert_eq!(hop(172, 17, 1, 1), ip(2));
        assert_eq!(hop(8, 8, 8, 8), ip(254));
    }

    #[test]
    fn each_host_is_asked_for_at_once_again_soon_and_not_for_ever() {
        let mut neighbors = Neighbors::default();
        let at = |ms| Instant::from_millis(ms);
        neighbors.want(&config(), ip(7), at(0));
        neighbors.want(&config(), ip(8), at(1));
        neighbors.want(&config(), ip(7), at(1));
        assert_eq!(neighbors.due(at(1)).collect::<Vec<_>>(), [ip(7), ip(8)]);
        assert_eq!(neighbors.due(at(50)).count(), 0);
        let arp = Arp {
            reply: true,
            sender_mac: [2; 6],
            sender: ip(7),
            target: ip(1),
        };
        neighbors.heard(&arp, at(60));
        let asked = (0..100)
            .map(|i| neighbors.due(at(100 + i * 20)).count())
            .sum::<usize>();
        assert_eq!(asked, REQUESTS as usize - 1);
        neighbors.want(&config(), ip(7), at(40_000));
        assert_eq!(neighbors.due(at(40_000)).count(), 0);
        neighbors.want(&config(), ip(7), at(60_000));
        assert_eq!(neighbors.due(at(60_000)).count(), 1);
    }
}
