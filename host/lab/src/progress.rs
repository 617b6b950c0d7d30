//! What people see of work that takes long.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How far a measurement of so many trials is.
#[must_use]
pub fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) =
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
