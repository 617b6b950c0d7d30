//! What `--bus` and `--line` say.

use std::str::FromStr;

use wireboot_card::MOST_IN_FLIGHT;
use wireboot_card::model::{Bus, Line, Picos, Rate};

use crate::table::{BUSES, LINES};

/// The longest payload of a packet, as IPv4 has it; the line's frames have no more.
const MTUS: std::ops::RangeInclusive<u32> = 576..=65_535;

/// A bus: a preset's name, or both of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BusArgument(pub(super) Bus);

/// A line: a preset's name or a rate, and what makes it worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineArgument {
    pub(super) line: Line,
    pub(super) seed: u64,
}

impl FromStr for BusArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(bus) = Bus::named(text) {
            return Ok(Self(bus));
        }
        let (mut per_transfer, mut rate) = (None, None);
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("per-transfer", value)) => per_transfer = Some(nanoseconds(value)?),
                Some(("rate", value)) => rate = Some(bits_per_second(value)?),
                _ => return Err(format!("{part:?}: {}", bus_forms())),
            }
        }
        match (per_transfer, rate) {
            (Some(per_transfer), Some(rate)) => Ok(Self(Bus { per_transfer, rate })),
            _ => Err(bus_forms()),
        }
    }
}

impl FromStr for LineArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut line, mut rate, mut seed) = (None, None, 1);
        let [mut delay, mut loss, mut mtu] = [None; 3];
        for part in text.split(',') {
            match part.split_once('=') {
                None => line = Some(Line::named(part).ok_or_else(line_forms)?),
                Some(("rate", value)) => rate = Some(bits_per_second(value)?),
                Some(("delay", value)) => delay = Some(thousandths(value, "milliseconds", 10_000)?),
                Some(("loss", value)) => loss = Some(loss_in_million(value)?),
                Some(("mtu", value)) => mtu = Some(mtu_of(value)?.into()),
                Some(("seed", value)) => {
                    let number = value.parse();
                    seed = number.map_err(|_| format!("seed={value}: a number is needed"))?;
                }
                Some(_) => return Err(format!("{part:?}: {}", line_forms())),
            }
        }
        let mut line = match (line, rate) {
            (Some(line), None) => line,
            (None, Some(rate)) => Line {
                rate,
                ..Line::PRESETS[0].1
            },
            _ => return Err(line_forms()),
        };
        line.delay = Picos::micros(delay.unwrap_or(0));
        line.loss = loss.unwrap_or(0) as u32;
        line.mtu = mtu.map_or(line.mtu, |mtu| mtu as u32);
        if line.in_flight() > MOST_IN_FLIGHT {
            return Err(format!(
                "{} bytes would be on the line at once, and {MOST_IN_FLIGHT} may: choose a lower rate or a shorter delay",
                line.in_flight()
            ));
        }
        Ok(Self { line, seed })
    }
}

fn bus_forms() -> String {
    format!("a bus is {}, or per-transfer=NS,rate=R", BUSES.join(", "))
}

fn line_forms() -> String {
    format!(
        "a line is {} or rate=R, with [,delay=MS][,loss=PERCENT][,mtu=N][,seed=N] behind",
        LINES.join(", ")
    )
}

/// Nanoseconds, with up to three digits behind the point.
fn nanoseconds(text: &str) -> Result<Picos, String> {
    thousandths(text, "nanoseconds", 1_000_000_000).map(Picos::new)
}

/// Bits a second, with k, m or g for powers of 1000.
fn bits_per_second(text: &str) -> Result<Rate, String> {
    let wrong = || format!("rate={text}: bits a second are needed, from 1k to 1000g");
    let (number, factor) = match text.char_indices().next_back() {
        Some((at, 'k')) => (text.get(..at), 1000),
        Some((at, 'm')) => (text.get(..at), 1_000_000),
        Some((at, 'g')) => (text.get(..at), 1_000_000_000),
        _ => (Some(text), 1),
    };
    let number: u64 = number
        .and_then(|text| text.parse().ok())
        .ok_or_else(wrong)?;
    let bits = number.checked_mul(factor).ok_or_else(wrong)?;
    let possible = (1000..=1_000_000_000_000).contains(&bits);
    possible.then_some(Rate::new(bits)).ok_or_else(wrong)
}

/// A percentage with up to four digits behind the point, in millionths.
fn loss_in_million(text: &str) -> Result<u64, String> {
    let wrong = || format!("loss={text}: a percentage from 0 to 100 is needed, such as 0.01");
    let loss = decimal(text, 4).ok_or_else(wrong)?;
    (loss <= 1_000_000).then_some(loss).ok_or_else(wrong)
}

fn mtu_of(text: &str) -> Result<u32, String> {
    let mtu = text.parse().ok().filter(|mtu| MTUS.contains(mtu));
    mtu.ok_or_else(|| {
        format!(
            "mtu={text}: bytes from {} to {} are needed",
            MTUS.start(),
            MTUS.end()
        )
    })
}

/// A number with up to three digits behind the point and up to `most`, in thousandths.
fn thousandths(text: &str, unit: &str, most: u64) -> Result<u64, String> {
    let value = decimal(text, 3).filter(|value| *value <= most * 1000);
    value.ok_or_else(|| format!("{text:?}: {unit} up to {most} are needed"))
}

/// A number with up to `digits` digits behind the point, times ten to that power.
fn decimal(text: &str, digits: u32) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let len = u32::try_from(part.len()).ok()?;
    if !all_digits(whole) || !all_digits(part) || len > digits {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = part.parse().ok()?;
    let part = part * 10u64.pow(digits - len);
    whole.checked_mul(10u64.pow(digits))?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Line, String> {
        text.parse::<LineArgument>().map(|argument| argument.line)
    }

    #[test]
    fn buses_are_named_or_described() {
        for name in BUSES {
            assert_eq!(name.parse().ok(), Bus::named(name).map(BusArgument));
        }
        let bus = Bus {
            per_transfer: Picos::new(1_500_250),
            rate: Rate::new(2_500_000_000),
        };
        assert_eq!(
            "per-transfer=1500.25,rate=2500m".parse(),
            Ok(BusArgument(bus))
        );
        assert_eq!(
            "rate=2500000k,per-transfer=1500.250".parse(),
            Ok(BusArgument(bus))
        );
        for bad in [
            "",
            "pcie",
            "rate=1g",
            "per-transfer=1",
            "per-transfer=-1,rate=1g",
            "per-transfer=1.2345,rate=1g",
            "per-transfer=1e3,rate=1g",
            "per-transfer=1000000001,rate=1g",
            "per-transfer=1,rate=0",
            "per-transfer=1,rate=999",
            "per-transfer=1,rate=1001g",
            "per-transfer=1,rate=99999999999g",
            "per-transfer=1,rate=1g,width=64",
        ] {
            assert!(bad.parse::<BusArgument>().is_err(), "{bad}");
        }
    }

    #[test]
    fn lines_are_named_or_described() {
        for name in LINES {
            assert_eq!(line(name).ok(), Line::named(name));
        }
        let expected = Line {
            rate: Rate::new(1_000_000_000),
            delay: Picos::micros(20_500),
            loss: 100,
            mtu: 9000,
        };
        for text in [
            "1g,delay=20.5,loss=0.01,mtu=9000",
            "rate=1000m,mtu=9000,loss=0.0100,delay=20.500",
        ] {
            assert_eq!(line(text), Ok(expected), "{text}");
        }
        let seeded: LineArgument = "1g,loss=1,seed=9".parse().unwrap();
        assert_eq!((seeded.line.loss, seeded.seed), (10_000, 9));
        for bad in [
            "",
            "2g",
            "delay=1",
            "1g,rate=1g",
            "1g,delay=10001",
            "1g,delay=",
            "1g,loss=101",
            "1g,loss=100.0001",
            "1g,loss=.1",
            "1g,loss=0.00001",
            "1g,mtu=575",
            "1g,mtu=65536",
            "1g,seed=x",
            "1g,jitter=1",
            // More than a gigabyte under way.
            "100g,delay=100",
        ] {
            assert!(line(bad).is_err(), "{bad}");
        }
        assert!(line("100g,delay=5").is_ok());
    }
}
