//! `--poll`: for how long a card is turned in vain.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::poller::Polling;

/// A card that waits is woken in some 50 microseconds.
const MICROS: RangeInclusive<u64> = 1..=1_000_000;

/// How long the card looks at its queues in vain before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollArgument(pub(super) Polling);

impl FromStr for PollArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let polling = match text {
            "always" => Polling::Always,
            "never" => Polling::For(Duration::ZERO),
            _ => {
                let micros = text.parse().ok();
                let micros = micros.filter(|micros| MICROS.contains(micros));
                let micros = micros.ok_or_else(|| {
                    format!("{text:?} is none of always, never, and microseconds from 1 to 1000000")
                })?;
                Polling::For(Duration::from_micros(micros))
            }
        };
        Ok(Self(polling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let read = |text: &str| text.parse().map(|PollArgument(polling)| polling);
        assert_eq!(read("always"), Ok(Polling::Always));
        assert_eq!(read("never"), Ok(Polling::For(Duration::ZERO)));
        for (text, micros) in [("1", 1), ("200", 200), ("1000000", 1_000_000)] {
            assert_eq!(read(text), Ok(Polling::For(Duration::from_micros(micros))));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "0", "1000001", "-1", "Always", "5us"] {
            let error = text.parse::<PollArgument>().unwrap_err();
            assert!(error.contains("microseconds from 1 to 1000000"), "{error}");
        }
    }
}
