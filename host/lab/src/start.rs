//! A machine is switched on.

use anyhow::{Context, Result};
use serde_json::json;

use crate::console::now;
use crate::netns::Lab;
use crate::qemu::{Machine, RunningMachine};
use crate::snapshot;

impl Machine {
    /// Builds the machine and switches it on; in tests, it begins with a snapshot of its firmware ([`snapshot::DIRECTORY`]). `name` names its files in the lab's scratch directory; `watch` sees the console live.
    ///
    /// # Errors
    /// When QEMU does not start, with what it said.
    pub fn start(
        &self,
        lab: &Lab,
        name: &str,
        watch: impl FnMut(&str) + Send + 'static,
    ) -> Result<RunningMachine> {
        let snapshot = snapshot::of(self, lab)?;
        let source = snapshot.as_deref().map(snapshot::source);
        let mut running = self.build(lab, name, source.as_deref(), watch)?;
        if running.from_snapshot {
            let read = running.wait_for_snapshot();
            read.with_context(|| format!("reading a snapshot: {}", running.messages()))?;
        }
        running.power_on = now();
        running.ask("cont", json!({}))?;
        Ok(running)
    }
}
