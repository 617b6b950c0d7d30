//! What programs did to frames, in numbers that can be added up.

use std::ops::AddAssign;

/// Frames that met a program, and its maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramCounters {
    /// Frames that they saw, by hook.
    pub seen: [u64; 2],
    pub dropped: u64,
    pub edited: u64,
    pub delayed: u64,
    /// Copies that went besides their frames.
    pub copies: u64,
    /// Frames that were sent to another pair of queues.
    pub diverted: u64,
    /// Frames that found no place to wait in, or not so much as they are long.
    pub no_room: u64,
    /// Frames on which it failed, and those that came before its queue was stopped.
    pub failed: u64,
    /// Frames that waited for a queue that was stopped, or a guest that began anew.
    pub forgotten: u64,
    /// Maps by name, and their values.
    pub maps: Vec<(String, Vec<u64>)>,
}

impl ProgramCounters {
    /// Frames that did not come through, those aside that were to be dropped.
    pub(crate) fn lost(&self) -> u64 {
        self.no_room + self.failed + self.forgotten
    }
}

impl AddAssign for ProgramCounters {
    /// Of the same program.
    fn add_assign(&mut self, other: Self) {
        for (sum, one) in self.seen.iter_mut().zip(other.seen) {
            *sum += one;
        }
        self.dropped += other.dropped;
        self.edited += other.edited;
        self.delayed += other.delayed;
        self.copies += other.copies;
        self.diverted += other.diverted;
        self.no_room += other.no_room;
        self.failed += other.failed;
        self.forgotten += other.forgotten;
        for ((_, sums), (_, values)) in self.maps.iter_mut().zip(other.maps) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_several_pairs_are_added() {
        let of = |n: u64| ProgramCounters {
            seen: [n, 2 * n],
            dropped: 3 * n,
            edited: 4 * n,
            delayed: 5 * n,
            copies: 6 * n,
            diverted: 13 * n,
            no_room: 7 * n,
            failed: 8 * n,
            forgotten: 9 * n,
            maps: vec![
                ("a".to_owned(), vec![10 * n, 11 * n]),
                ("b".to_owned(), vec![12 * n]),
            ],
        };
        let mut sum = of(1);
        sum += of(4);
        assert_eq!(sum, of(5));
        assert_eq!(sum.lost(), 5 * (7 + 8 + 9));
    }
}
