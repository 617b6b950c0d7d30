//! The menu: which of several entries.

use crate::error::Error;
use crate::network::Network;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_platform::Clock;
use wireboot_platform::console::{self, Key};
use wireboot_wire::bootconf::{BootConfig, Entry};

/// Seconds that the menu waits when the configuration does not say.
const TIMEOUT: u32 = 5;
/// Time between two looks at the keyboard, in microseconds.
const KEYS: u64 = 30_000;
/// Keys that are looked for which were pressed before there was a menu.
const TYPED_AHEAD: usize = 256;
/// Entries that are shown at once: with the lines around them they fit the smallest text mode, and a slow console has them soon, so that the
/// keyboard does not wait.
const SHOWN: usize = 18;
/// Characters of a title that are shown: with its number they fit a line of that mode.
const TITLE: usize = 70;

/// What is drawn of the entries.
fn lines(entries: &[Entry]) -> Vec<String> {
    let mut lines: Vec<String> = entries
        .iter()
        .take(SHOWN)
        .zip(1..)
        .map(|(entry, number)| {
            let title: String = entry.title.chars().take(TITLE).collect();
            format!("  {number}  {title}")
        })
        .collect();
    let more = entries.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more, by the arrow keys"));
    }
    lines
}

/// Lets the user choose another entry than the default, which could not be had, and leaves that one alone in the configuration. False
/// where nobody does.
pub(crate) fn choose_another(config: &mut BootConfig, clock: Clock) -> Result<bool, Error> {
    let index = choose(config, clock, None)?;
    Ok(leave_other(config, index))
}

/// Drops all entries but that one, unless it is the default.
fn leave_other(config: &mut BootConfig, index: usize) -> bool {
    let is_other = index != config.default && index < config.entries.len();
    if is_other {
        config.entries.swap(0, index);
        config.entries.truncate(1);
        config.default = 0;
    }
    is_other
}

/// The index of the entry to boot: the only one, the user's choice, or the default when the time is up. Meanwhile `network` goes on.
pub(crate) fn choose(
    config: &BootConfig,
    clock: Clock,
    mut network: Option<&mut Network>,
) -> Result<usize, Error> {
    let timeout = config.timeout.unwrap_or(TIMEOUT);
    if config.entries.len() < 2 || timeout == 0 {
        return Ok(config.default);
    }
    console::line("");
    for line in lines(&config.entries) {
        console::line(&line);
    }
    console::line("");
    let last = config.entries.len() - 1;
    let mut chosen = config.default.min(last);
    // What came before was for nobody.
    for _ in 0..TYPED_AHEAD {
        if console::key().is_none() {
            break;
        }
    }
    // A choice stops the count: somebody is there. Anything else may be noise on a serial line.
    let mut end = Some(clock.micros() + u64::from(timeout) * 1_000_000);
    let mut next_look = 0;
    let mut shown = None;
    loop {
        if let Some(network) = &mut network {
            match network.turn() {
                // Nothing was under way that could be lost with it.
                Ok(()) | Err(Error::Processor) => {}
                Err(error) => return Err(error),
            }
            // Nothing is under way; what comes late from what was is dropped.
            let _ = network.event();
        }
        let now = clock.micros();
        if now < next_look {
            if let Some(network) = &mut network {
                network.idle();
            }
            continue;
        }
        next_look = now + KEYS;
        if let Some(key) = console::key() {
            match key {
                Key::Enter => break,
                Key::Escape => {
                    console::clear_progress();
                    return Err(Error::Stopped);
                }
                Key::Up => (chosen, end) = (chosen.saturating_sub(1), None),
                Key::Down => (chosen, end) = ((chosen + 1).min(last), None),
                Key::Char(c) => {
                    let number = c.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                    if let Some(index) =
                        number.and_then(|n| n.checked_sub(1)).filter(|&i| i <= last)
                    {
                        (chosen, end) = (index, None);
                        if last < 9 {
                            break;
                        }
                    }
                }
                Key::Other => {}
            }
        }
        let left = match end {
            Some(end) if now >= end => break,
            Some(end) => Some((end - now).div_ceil(1_000_000)),
            None => None,
        };
        if shown != Some((chosen, left)) {
            shown = Some((chosen, left));
            let title = config.entries.get(chosen).map_or("", |entry| &entry.title);
            let count = left.map(|left| format!(" in {left} s")).unwrap_or_default();
            console::progress(&format!(
                "wireboot: {} {title}{count} (number, arrows, Enter; Esc leaves)",
                chosen + 1
            ));
        }
    }
    console::clear_progress();
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use wireboot_wire::bootconf::parse;

    fn drawn(count: usize) -> Vec<String> {
        let long = "x".repeat(200);
        let text = format!("title {long}\nlinux a\n").repeat(count);
        lines(&parse(text).unwrap().entries)
    }

    #[test]
    fn another_entry_is_all_that_is_left() {
        let text = "default 2\ntitle A\nlinux a\ntitle B\nlinux b\ntitle C\nlinux c";
        let config = parse(text).unwrap();
        for (index, title) in [(0, "A"), (2, "C")] {
            let mut config = config.clone();
            assert!(leave_other(&mut config, index));
            assert_eq!(config.entries.len(), 1);
            assert_eq!(config.default_entry().unwrap().title, title);
            // It could not be had either.
            assert!(!leave_other(&mut config, 0));
        }
        for index in [1, 3] {
            let mut same = config.clone();
            assert!(!leave_other(&mut same, index));
            assert_eq!(same, config);
        }
    }

    #[test]
    fn a_menu_fits_the_smallest_screen() {
        assert_eq!(
            lines(&parse("title A\nlinux a").unwrap().entries),
            ["  1  A"]
        );
        let all = drawn(SHOWN);
        assert_eq!(all.len(), 18);
        assert_eq!(all[17], "  18  ".to_string() + &"x".repeat(70));
        for count in [19, 1000] {
            let some = drawn(count);
            assert_eq!(some[..18], all);
            let rest = format!("  and {} more, by the arrow keys", count - 18);
            assert_eq!(some[18..], [rest]);
        }
    }
}
