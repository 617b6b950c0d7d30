//! Which port an Ethernet address is behind.

use std::time::Duration;

/// Addresses at a time. The one that was silent for longest gives way.
const ADDRESSES: usize = 64;
/// How long an address is believed to be where it was last heard (IEEE 802.1D, table 7-5).
const AGEING: Duration = Duration::from_secs(300);

pub(super) type Mac = [u8; 6];

#[derive(Clone, Copy)]
struct Entry {
    mac: Mac,
    port: usize,
    heard: Duration,
}

#[derive(Default)]
pub(super) struct Table {
    /// Which port an address is behind, whoever else sends from it.
    fixed: Vec<(Mac, usize)>,
    learnt: Vec<Entry>,
}

impl Table {
    /// Nothing was heard yet, and these are where they are for good.
    pub(super) fn new(fixed: Vec<(Mac, usize)>) -> Self {
        Self {
            fixed,
            learnt: Vec::new(),
        }
    }

    fn fixed(&self, mac: Mac) -> Option<usize> {
        let mut fixed = self.fixed.iter();
        fixed.find_map(|(known, port)| (*known == mac).then_some(*port))
    }

    /// `mac` has sent something by this port.
    pub(super) fn learn(&mut self, mac: Mac, port: usize, heard: Duration) {
        if is_group(mac) || self.fixed(mac).is_some() {
            return;
        }
        let entry = Entry { mac, port, heard };
        if let Some(known) = self.learnt.iter_mut().find(|entry| entry.mac == mac) {
            *known = entry;
        } else if self.learnt.len() < ADDRESSES {
            self.learnt.push(entry);
        } else if let Some(oldest) = self.learnt.iter_mut().min_by_key(|entry| entry.heard) {
            *oldest = entry;
        }
    }

    /// Where frames for `mac` go to alone.
    pub(super) fn port(&self, mac: Mac, now: Duration) -> Option<usize> {
        if let Some(port) = self.fixed(mac) {
            return Some(port);
        }
        let known = self.learnt.iter().find(|entry| entry.mac == mac)?;
        let fresh = now.saturating_sub(known.heard) < AGEING;
        fresh.then_some(known.port)
    }
}

fn is_group([first, ..]: Mac) -> bool {
    first & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_address_is_where_it_was_last_heard() {
        let mut table = Table::default();
        assert_eq!(table.port(A, at(0)), None);
        table.learn(A, 1, at(0));
        table.learn(B, 2, at(0));
        assert_eq!(
            (table.port(A, at(1)), table.port(B, at(1))),
            (Some(1), Some(2))
        );
        table.learn(A, 3, at(2));
        assert_eq!(table.port(A, at(301)), Some(3));
        assert_eq!(
            (table.port(A, at(302)), table.port(B, at(300))),
            (None, None)
        );
    }

    #[test]
    fn many_are_never_behind_one_port() {
        let mut table = Table::default();
        table.learn([0xff; 6], 1, at(0));
        assert_eq!(table.port([0xff; 6], at(0)), None);
    }

    #[test]
    fn the_most_silent_gives_way() {
        let mut table = Table::default();
        let mac = |n: usize| [2, 0, 0, 0, (n >> 8) as u8, n as u8];
        for n in 0..ADDRESSES {
            table.learn(mac(n), 1, at(n as u64));
        }
        table.learn(mac(0), 1, at(100));
        table.learn(mac(1000), 4, at(101));
        assert_eq!(table.port(mac(1), at(101)), None);
        assert_eq!(table.port(mac(0), at(101)), Some(1));
        assert_eq!(table.port(mac(1000), at(101)), Some(4));
        assert_eq!(table.learnt.len(), ADDRESSES);
    }

    #[test]
    fn what_is_fixed_is_never_elsewhere() {
        let mut table = Table::new(vec![(A, 2)]);
        for port in [1, 2] {
            table.learn(A, port, at(0));
            table.learn(B, port, at(0));
        }
        for (seconds, of_b) in [(1, Some(2)), (1000, None)] {
            let ports = (table.port(A, at(seconds)), table.port(B, at(seconds)));
            assert_eq!(ports, (Some(2), of_b));
        }
    }
}
