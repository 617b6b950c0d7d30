//! Which multicast groups are listened to, and when that is reported: what IGMP version 3 (RFC 3376) and MLD version 2 (RFC 3810) have in
//! common, the types of their records too.

use crate::sort;
use alloc::vec::Vec;
use wireboot_tcp::{Duration, Instant};

/// All senders of a group are listened to: the answer to a query.
pub(crate) const MODE_IS_EXCLUDE: u8 = 2;
/// The group has been left: no sender of it is listened to any more.
pub(crate) const CHANGE_TO_INCLUDE: u8 = 3;
/// The group has been joined: from now on all its senders are listened to.
pub(crate) const CHANGE_TO_EXCLUDE: u8 = 4;
/// Robustness Variable and Unsolicited Report Interval (RFC 3376, section 8; RFC 3810, section 9).
const ROBUSTNESS: u8 = 2;
const UNSOLICITED: Duration = Duration::from_secs(1);
/// The most groups that are listened to at once.
pub(crate) const GROUPS: usize = 16;

struct Group<A> {
    address: A,
    /// Not joined but left.
    left: bool,
    /// Reports of the change still to be sent.
    reports: u8,
}

pub(crate) struct Membership<A> {
    groups: Vec<Group<A>>,
    /// When changes are reported.
    change: Option<Instant>,
    /// When a query is answered.
    answer: Option<Instant>,
}

impl<A> Default for Membership<A> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            change: None,
            answer: None,
        }
    }
}

impl<A: Copy + Ord> Membership<A> {
    /// The groups listened to are now these.
    pub(crate) fn set(&mut self, groups: impl Iterator<Item = A>, now: Instant) {
        let mut wanted: Vec<_> = groups.collect();
        sort::insertion(&mut wanted, |one, other| one < other);
        wanted.dedup();
        wanted.truncate(GROUPS);
        for &address in &wanted {
            if !self.groups.iter().any(|group| group.address == address) {
                self.groups.push(Group {
                    address,
                    left: true,
                    reports: 0,
                });
            }
        }
        for group in &mut self.groups {
            let left = !wanted.contains(&group.address);
            if group.left != left {
                (group.left, group.reports) = (left, ROBUSTNESS);
                self.change = Some(now);
            }
        }
    }

    /// Whether no group is listened to, and there is nothing more to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// True for a group that is listened to.
    pub(crate) fn has(&self, group: A) -> bool {
        let mut joined = self.groups.iter().filter(|group| !group.left);
        joined.any(|known| known.address == group)
    }

    /// Somebody asks for all groups, and gets the answer within `delay`. `random` spreads the answers of many hosts.
    pub(crate) fn asked(&mut self, delay: Duration, random: u16, now: Instant) {
        let at = now + part(delay, random);
        self.answer = Some(self.answer.map_or(at, |earlier| earlier.min(at)));
    }

    /// What is to be reported now: types of records, and groups.
    pub(crate) fn due(&mut self, random: u16, now: Instant) -> Vec<(u8, A)> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        let mut records = Vec::new();
        if is_due(self.change) {
            for group in self.groups.iter_mut().filter(|group| group.reports > 0) {
                group.reports -= 1;
                let kind = match group.left {
                    true => CHANGE_TO_INCLUDE,
                    false => CHANGE_TO_EXCLUDE,
                };
                records.push((kind, group.address));
            }
            self.groups.retain(|group| !group.left || group.reports > 0);
            let again = self.groups.iter().any(|group| group.reports > 0);
            self.change = again.then(|| now + part(UNSOLICITED, random));
        } else if is_due(self.answer) {
            self.answer = None;
            let joined = self.groups.iter().filter(|group| !group.left);
            records.extend(joined.map(|group| (MODE_IS_EXCLUDE, group.address)));
        }
        records
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        [self.change, self.answer].into_iter().flatten().min()
    }
}

/// `random` 65,536ths of `whole`.
fn part(whole: Duration, random: u16) -> Duration {
    Duration::from_micros((whole.total_micros() * u64::from(random)) >> 16)
}
