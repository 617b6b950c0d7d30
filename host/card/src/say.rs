//! Lines for the user, on standard error.

use std::fmt::Arguments;
use std::io::{self, Write};

/// As `eprintln!`, but where nobody can read any more, the card goes on.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: Arguments<'_>) {
    // Of tests that succeed, nobody wants to read it.
    if cfg!(test) {
        eprintln!("{text}");
        return;
    }
    let _ = writeln!(io::stderr().lock(), "{text}");
}
