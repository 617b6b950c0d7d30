//! `--chunk`: how many frames the card gathers in one buffer, and for how long.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use wireboot_card::coalesce::Limits;

/// What is not said otherwise: 43 frames of Ethernet are in 64 KB.
pub(super) const DEFAULT: &str = "frames=43,bytes=65536,micros=0";

const FRAMES: RangeInclusive<u64> = 2..=1024;
/// At least an ordinary frame.
const BYTES: RangeInclusive<u64> = 1514..=1 << 20;
/// The most that wireboot's driver takes.
const MICROS: RangeInclusive<u64> = 0..=10_000;

/// How frames are gathered; `None` for no chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkArgument(pub(super) Option<Limits<Duration>>);

impl FromStr for ChunkArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let mut limits = Limits {
            frames: 43,
            bytes: 65_536,
            wait: Duration::ZERO,
        };
        for item in text.split(',') {
            let Some((name, value)) = item.split_once('=') else {
                return Err(format!(
                    "{item:?} is no limit of chunks: none, or a list of frames=N, bytes=N, micros=N"
                ));
            };
            match name {
                "frames" => limits.frames = number(name, value, FRAMES)? as usize,
                "bytes" => limits.bytes = number(name, value, BYTES)? as usize,
                "micros" => limits.wait = Duration::from_micros(number(name, value, MICROS)?),
                _ => {
                    return Err(format!(
                        "{name:?} is no limit of chunks: frames, bytes or micros"
                    ));
                }
            }
        }
        Ok(Self(Some(limits)))
    }
}

fn number(name: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        format!("{name} is {text:?}: it is to be a number from {least} to {most}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let limits = |frames, bytes, micros| {
            Ok(ChunkArgument(Some(Limits {
                frames,
                bytes,
                wait: Duration::from_micros(micros),
            })))
        };
        assert_eq!(DEFAULT.parse(), limits(43, 65_536, 0));
        assert_eq!("micros=100".parse(), limits(43, 65_536, 100));
        assert_eq!("bytes=1514,frames=2".parse(), limits(2, 1514, 0));
        let most = "frames=1024,bytes=1048576,micros=10000";
        assert_eq!(most.parse(), limits(1024, 1 << 20, 10_000));
        assert_eq!("none".parse(), Ok(ChunkArgument(None)));
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "no limit of chunks"),
            ("frames", "no limit of chunks"),
            ("frames=43,none", "no limit of chunks"),
            ("packets=3", "frames, bytes or micros"),
            ("frames=1", "from 2 to 1024"),
            ("frames=1025", "from 2 to 1024"),
            ("frames=-2", "from 2 to 1024"),
            ("bytes=1513", "from 1514 to 1048576"),
            ("bytes=1048577", "from 1514 to 1048576"),
            ("bytes=64k", "from 1514 to 1048576"),
            ("micros=10001", "from 0 to 10000"),
        ] {
            let error = text.parse::<ChunkArgument>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
