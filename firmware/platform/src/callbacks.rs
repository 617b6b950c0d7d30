//! What of ours the firmware may call while another image runs. As long as there is any, the image must stay in memory.

use core::sync::atomic::{AtomicUsize, Ordering};

static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// A function that the firmware knows, until this is dropped.
#[derive(Debug)]
pub struct Callback(());

impl Callback {
    /// To be made before the firmware learns of the function.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it counts")]
    pub fn new() -> Self {
        KNOWN.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        KNOWN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the firmware knows a function of ours.
pub(crate) fn any() -> bool {
    KNOWN.load(Ordering::Relaxed) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_counts() {
        let (first, second) = (Callback::new(), Callback::new());
        drop(first);
        assert!(any());
        drop(second);
        assert!(!any());
    }
}
