//! Files that lie on disk alone, asked for before they are sent.

use crate::content::Content;

/// Bytes of the file asked of the disk ahead of those being sent: some ten milliseconds at the rate of a fast client.
const AHEAD: u64 = 4 << 20;
/// Bytes asked for in one call. Linux takes a longer one for as much as it reads ahead at most, which is this much by default.
const AHEAD_STEP: u64 = 128 << 10;

/// How far the kernel has been asked to read the file, so that a file that lies on disk alone does not hold up a window.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    asked: u64,
}

impl ReadAhead {
    /// Asks for what is to be there before the bytes from `offset` on are sent.
    pub(crate) fn before(&mut self, content: &Content, offset: u64) {
        for part in self.due(offset, content.len()) {
            content.read_ahead(part, AHEAD_STEP);
        }
    }

    /// Where the parts begin, of [`AHEAD_STEP`] bytes each, that are to be asked for before the bytes from `offset` on are sent.
    fn due(&mut self, offset: u64, size: u64) -> impl Iterator<Item = u64> + use<> {
        let until = offset.saturating_add(AHEAD).min(size);
        let from = self.asked;
        self.asked = from.max(until.next_multiple_of(AHEAD_STEP));
        (from..until).step_by(AHEAD_STEP as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_file_is_asked_for_once_and_in_time() {
        for size in [0, 1, AHEAD_STEP, AHEAD_STEP + 1, 3 * AHEAD + 12_345] {
            let mut ahead = ReadAhead::default();
            let mut parts = Vec::new();
            // Forward, and now and then back to send again.
            for offset in (0..size).step_by(90_000).flat_map(|at| [at, at / 2]) {
                parts.extend(ahead.due(offset, size));
                let asked = parts.len() as u64 * AHEAD_STEP;
                assert!(
                    asked >= size.min(offset + AHEAD),
                    "{asked} at {offset} of {size}"
                );
                assert!(asked < offset.max(90_000 + offset * 2) + AHEAD + 2 * AHEAD_STEP);
            }
            let all: Vec<u64> = (0..size).step_by(AHEAD_STEP as usize).collect();
            assert_eq!(parts, all);
        }
    }
}
