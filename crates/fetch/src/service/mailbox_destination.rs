//! Memory and progress of a download by way of the service's mailbox.

use wireboot_net::{Duration, Instant, Memory, Parts};

use super::{Event, Job, ServiceState};
use crate::destination::{Destination, DestinationError};

/// Time between two progress events of a job.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Asks for memory by [`Event::NeedMemory`], and reports progress by [`Event::Progress`].
pub(super) struct MailboxDestination<'a> {
    pub(super) shared: &'a ServiceState,
    pub(super) job: Job,
    /// When progress was last reported.
    pub(super) reported: Option<Instant>,
}

impl Destination for MailboxDestination<'_> {
    async fn memory(
        &mut self,
        bytes: u64,
        previous: Option<(Memory, u64)>,
    ) -> Result<Memory, DestinationError> {
        let job = self.job;
        self.shared.report(Event::NeedMemory { job, bytes });
        loop {
            let mut answer = None;
            self.shared
                .with_job(job, |state| answer = state.memory.take());
            let Some(answer) = answer else {
                self.shared.stack.next_turn().await;
                continue;
            };
            let enough = answer.filter(|memory| memory.len() as u64 >= bytes);
            let Some(mut memory) = enough else {
                return Err(DestinationError::NoMemory { bytes });
            };
            if let Some((old, filled)) = &previous {
                let filled = usize::try_from(*filled).unwrap_or(usize::MAX);
                let mut at = 0;
                while at < filled {
                    let piece = [old.rest(at)];
                    match memory.write(at, Parts::new(&piece).slice(0, filled - at)) {
                        // A card has some of it.
                        0 => return Err(DestinationError::NoMemory { bytes }),
                        count => at += count,
                    }
                }
            }
            return Ok(memory);
        }
    }

    fn progress(&mut self, received: u64, total: Option<u64>) {
        let now = self.shared.stack.now();
        if self
            .reported
            .is_none_or(|reported| now >= reported + PROGRESS_INTERVAL)
        {
            self.reported = Some(now);
            // Where there is no room, a later event says more.
            let _ = self.shared.outbox.borrow_mut().offer(Event::Progress {
                job: self.job,
                received,
                total,
            });
        }
    }
}
