//! Things that are known for a time, a limited number of them.

use alloc::vec::Vec;
use wireboot_tcp::{Duration, Instant};

/// When a lifetime of `seconds` ends; `None`: never.
pub(crate) fn end(seconds: u32, now: Instant) -> Option<Instant> {
    let lasts = (seconds != u32::MAX).then(|| Duration::from_secs(seconds.into()));
    lasts.map(|lifetime| now + lifetime)
}

/// True when what ends `at` is over.
pub(crate) fn is_over(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now >= at)
}

/// A list whose first entries stay: what comes when it is full is not taken, so that a flood drives out nothing.
pub(crate) struct TimedList<T> {
    limit: usize,
    entries: Vec<(T, Option<Instant>)>,
}

impl<T: PartialEq> TimedList<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let entries = Vec::new();
        Self { limit, entries }
    }

    /// `item` is said to last for so many seconds from now: 0 forgets it, `u32::MAX` is for ever.
    pub(crate) fn hear(&mut self, item: T, seconds: u32, now: Instant) {
        let until = end(seconds, now);
        self.entries.retain(|(_, until)| !is_over(*until, now));
        let room = self.entries.len() < self.limit;
        match self.entries.iter_mut().find(|(known, _)| *known == item) {
            Some(entry) => entry.1 = until,
            None if room => self.entries.push((item, until)),
            None => {}
        }
    }

    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = &T> {
        let lasting = move |entry: &&(T, Option<Instant>)| !is_over(entry.1, now);
        self.entries.iter().filter(lasting).map(|(item, _)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn it_lasts_as_long_as_it_is_said() {
        let at = Instant::from_secs;
        let mut list = TimedList::new(3);
        let seen = |list: &TimedList<_>, second| list.iter(at(second)).copied().collect::<Vec<_>>();
        list.hear('a', 10, at(0));
        list.hear('b', u32::MAX, at(0));
        list.hear('c', 5, at(0));
        list.hear('d', 100, at(4));
        assert_eq!(seen(&list, 4), vec!['a', 'b', 'c']);
        assert_eq!(seen(&list, 5), vec!['a', 'b']);
        list.hear('d', 100, at(5));
        list.hear('a', 20, at(6));
        assert_eq!(seen(&list, 25), vec!['a', 'b', 'd']);
        list.hear('b', 0, at(25));
        list.hear('e', 0, at(25));
        assert_eq!(seen(&list, 25), vec!['a', 'd']);
        assert_eq!(seen(&list, 26), vec!['d']);
    }
}
