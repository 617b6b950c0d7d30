//! The Esc key ends what is being examined.

use wireboot_platform::console::{self, Key};

/// It was pressed. Other keys are forgotten.
pub(crate) fn is_ended() -> bool {
    core::iter::from_fn(console::key).any(|key| key == Key::Escape)
}
