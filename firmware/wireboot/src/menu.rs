//! The menu: which of several entries.

use crate::error::Error;
use crate::network::Network;
use alloc::format;
use wireboot_platform::console::{self, Key};
use wireboot_wire::bootconf::BootConfig;

/// Seconds that the menu waits when the configuration does not say.
const TIMEOUT: u32 = 5;
/// Time between two looks at the keyboard, in microseconds.
const KEYS: u64 = 30_000;

/// The index of the entry to boot: the only one, the user's choice, or the default when the time is up.
pub fn choose(config: &BootConfig, network: &mut Network) -> Result<usize, Error> {
    let timeout = config.timeout.unwrap_or(TIMEOUT);
    if config.entries.len() < 2 || timeout == 0 {
        return Ok(config.default);
    }
    console::line("");
    for (index, entry) in config.entries.iter().enumerate() {
        console::line(&format!("  {}  {}", index + 1, entry.title));
    }
    console::line("");
    let last = config.entries.len() - 1;
    let mut chosen = config.default.min(last);
    // Any key stops the count: somebody is there.
    let mut end = Some(network.clock.micros() + u64::from(timeout) * 1_000_000);
    let mut next_look = 0;
    let mut shown = None;
    loop {
        match network.turn() {
            // Nothing was under way that could be lost with it.
            Ok(()) | Err(Error::Processor) => {}
            Err(error) => return Err(error),
        }
        // Nothing is under way; what comes late from what was is dropped.
        let _ = network.event();
        let now = network.clock.micros();
        if now < next_look {
            network.idle();
            continue;
        }
        next_look = now + KEYS;
        if let Some(key) = console::key() {
            end = None;
            match key {
                Key::Enter => break,
                Key::Escape => {
                    console::clear_progress();
                    return Err(Error::Stopped);
                }
                Key::Up => chosen = chosen.saturating_sub(1),
                Key::Down => chosen = (chosen + 1).min(last),
                Key::Char(c) => {
                    let number = c.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                    if let Some(index) =
                        number.and_then(|n| n.checked_sub(1)).filter(|&i| i <= last)
                    {
                        chosen = index;
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
