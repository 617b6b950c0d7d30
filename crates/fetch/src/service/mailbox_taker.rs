//! Head and body of a response by way of the service's mailbox.

use super::{Event, Exchanged, Job, ServiceState};
use crate::http::{ResponseHead, Taker};
use wireboot_net::Memory;

/// Tells by [`Event::Exchange`] what has come.
pub(super) struct MailboxTaker<'a> {
    pub(super) shared: &'a ServiceState,
    pub(super) job: Job,
}

impl MailboxTaker<'_> {
    fn report(&self, news: Exchanged) {
        let job = self.job;
        self.shared.report(Event::Exchange { job, news });
    }
}

impl Taker for MailboxTaker<'_> {
    fn head(&mut self, head: ResponseHead) {
        self.report(Exchanged::Head(head));
    }

    async fn memory(&mut self) -> Memory {
        loop {
            let mut answer = None;
            self.shared
                .with_job(self.job, |state| answer = state.memory.take());
            if let Some(memory) = answer.flatten() {
                return memory;
            }
            self.shared.stack.next_turn().await;
        }
    }

    fn body(&mut self, memory: Memory, len: usize) {
        self.report(Exchanged::Body { memory, len });
    }
}
