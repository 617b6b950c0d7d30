//! The console: log lines, a progress line that is redrawn in place, keys.
//!
//! Everything goes to the firmware's console, which also reaches a serial line where the machine has one.

use crate::bsp::on_bsp;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};
use log::{Level, LevelFilter, Log, Metadata, Record};
use spinning_top::Spinlock;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::console::serial::Serial;
use uefi::proto::console::text::{Key as FirmwareKey, ScanCode};
use uefi::system;
use wireboot_ring::{SharedReceiver, SharedSender, shared_channel};

/// Width of the progress line: that of the smallest text mode, less the last column, which would wrap.
const COLUMNS: usize = 79;

/// Length of the progress line on screen.
static DRAWN: AtomicUsize = AtomicUsize::new(0);

/// Lines logged on APs (application processors), which may not call the firmware. The BSP alone looks here: others would wait for a
/// lock for ever if an AP were lost that has it.
static WAITING: Spinlock<Option<SharedReceiver<String>>> = Spinlock::new(None);
/// At most so many; more are dropped.
const WAITING_MAX: usize = 32;

struct Console {
    waiting: SharedSender<String>,
}

impl Log for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let kind = match record.level() {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            _ => "",
        };
        if on_bsp() {
            start_line();
            write(format_args!("wireboot: {kind}{}\n", record.args()));
        } else {
            let line = alloc::format!("wireboot: {kind}{}\n", record.args());
            // Of too many lines the last ones are lost.
            let _ = self.waiting.push(line);
        }
    }

    fn flush(&self) {}
}

/// Sends the `log` macros to the console, one line each, after `wireboot: `.
pub(crate) fn open() {
    let (sender, receiver) = shared_channel(WAITING_MAX);
    let console = Box::leak(Box::new(Console { waiting: sender }));
    // A second call finds the logger set, which is as well.
    if log::set_logger(console).is_ok() {
        *WAITING.lock() = Some(receiver);
    }
    log::set_max_level(LevelFilter::Info);
}

/// Writes to the console. A console that fails is no reason to stop.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    system::with_stdout(|out| {
        let _ = out.write_fmt(text);
    });
}

/// Writes what APs have logged. For the BSP, now and then.
pub fn write_ap_log() {
    let Some(mut waiting) = WAITING.try_lock() else {
        return;
    };
    let Some(waiting) = &mut *waiting else { return };
    while let Some(line) = waiting.pop() {
        start_line();
        write(format_args!("{line}"));
    }
}

/// A line of its own without prefix (menus).
pub fn line(text: &str) {
    start_line();
    write(format_args!("{text}\n"));
}

/// Goes to the start of a line: firmware drivers leave words of their own standing on the console.
pub(crate) fn start_line() {
    clear_progress();
    let column = system::with_stdout(|out| out.cursor_position().0);
    if column > 0 {
        write(format_args!("\n"));
    }
}

/// Draws `text` over the progress line. Costs what the slowest console costs (a millisecond or more): call
/// it a few times a second at most.
pub fn progress(text: &str) {
    let shown: String = text.chars().take(COLUMNS).collect();
    let len = shown.chars().count();
    let before = DRAWN.swap(len, Ordering::Relaxed);
    let blank = before.saturating_sub(len);
    write(format_args!("\r{shown}{:blank$}", ""));
}

/// Writes a line to the first serial port, past the console, which would break it where the screen ends. False when there
/// is no serial port, or it does not take the line.
#[must_use]
pub fn serial_line(text: &str) -> bool {
    let Ok(handle) = boot::get_handle_for_protocol::<Serial>() else {
        return false;
    };
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: used at once; nothing removes the protocol meanwhile. (Opening it exclusively would disconnect the console.)
    let port =
        unsafe { boot::open_protocol::<Serial>(params, OpenProtocolAttributes::GetProtocol) };
    let Ok(mut port) = port else { return false };
    let Some(port) = port.get_mut() else {
        return false;
    };
    let mut write = |bytes: &[u8]| port.write_exact(bytes).is_ok();
    // In pieces: the firmware gives a port a limited time for each.
    write(b"\r\n") && text.as_bytes().chunks(64).all(&mut write) && write(b"\r\n")
}

/// Removes the progress line.
pub fn clear_progress() {
    let drawn = DRAWN.swap(0, Ordering::Relaxed);
    if drawn > 0 {
        write(format_args!("\r{:drawn$}\r", ""));
    }
}

/// A key, as far as menus and downloads tell keys apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Leaves the menu or ends the download.
    Escape,
    /// CR or LF: a serial terminal may send either.
    Enter,
    /// The arrow key, by its scan code.
    Up,
    /// The arrow key, by its scan code.
    Down,
    /// Any printable character but CR, LF and ESC.
    Char(char),
    /// Function keys and other scan codes.
    Other,
}

/// The next key pressed, if any. Polls the keyboard, which may take a millisecond.
#[must_use]
pub fn key() -> Option<Key> {
    let key = system::with_stdin(|keyboard| keyboard.read_key().ok().flatten())?;
    Some(match key {
        FirmwareKey::Special(ScanCode::ESCAPE) => Key::Escape,
        FirmwareKey::Special(ScanCode::UP) => Key::Up,
        FirmwareKey::Special(ScanCode::DOWN) => Key::Down,
        FirmwareKey::Special(_) => Key::Other,
        FirmwareKey::Printable(c) => match char::from(c) {
            '\r' | '\n' => Key::Enter,
            '\u{1b}' => Key::Escape,
            c => Key::Char(c),
        },
    })
}

/// What the firmware calls itself.
#[must_use]
pub fn firmware() -> String {
    system::firmware_vendor().to_string()
}
