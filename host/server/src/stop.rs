//! How threads learn that the server ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A flag that every thread of a server looks at. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The longest that a thread sleeps without a look at the flag.
    pub const CHECK_EVERY: Duration = Duration::from_millis(200);

    /// Tells all to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once [`Stop::set`] was called, by whoever shares it.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
