//! HTTP requests of loaders', by EFI_HTTP_PROTOCOL.

use super::{LoaderNetwork, SharedLoaderNetwork};
use alloc::boxed::Box;
use wireboot_fetch::http::Request;
use wireboot_fetch::{Command, Event, Exchanged, Job};
use wireboot_net::Memory;
use wireboot_protocols::http::{Exchanges, News, ReadAhead, Verdict};

/// Exchanges at the same time that have not ended: each has a connection.
const MOST: usize = 16;

/// One that was begun.
pub(super) struct Exchange {
    job: Job,
    body: ReadAhead,
}

impl LoaderNetwork {
    /// Takes an event that nobody waits for.
    pub(super) fn take(&mut self, event: Event) {
        let Event::Exchange { job, news } = event else {
            return self.take_download(event);
        };
        let mut exchanges = self.exchanges.iter_mut();
        let Some(exchange) = exchanges.find(|one| one.job == job) else {
            return;
        };
        match news {
            Exchanged::Head(head) => exchange.body.tell(News::Head(head)),
            Exchanged::Body { memory, len } => {
                if let Some(memory) = exchange.body.came(memory, len) {
                    // Where it cannot be sent, the exchange has ended.
                    let _ = self.send(Command::Memory { job, memory });
                }
            }
            Exchanged::Ended(result) => exchange.body.ended(match result {
                Some(result) => result.map_err(|problem| {
                    log::debug!("{problem}");
                    Verdict::from(&problem)
                }),
                None => Err(Verdict::Aborted),
            }),
        }
    }

    /// What runs is lost with its AP (application processor), or with the card.
    pub(super) fn lose_exchanges(&mut self) {
        for exchange in &mut self.exchanges {
            exchange.body.ended(Err(Verdict::DeviceError));
        }
    }

    fn exchange(&mut self, job: Job) -> Option<&mut Exchange> {
        self.exchanges.iter_mut().find(|one| one.job == job)
    }

    /// Forgets an exchange, with what was read ahead of it.
    fn forget(&mut self, job: Job) {
        self.exchanges.retain(|one| one.job != job);
    }
}

impl Exchanges for SharedLoaderNetwork {
    fn open(&mut self, request: Request) -> Option<Job> {
        let network = &mut *self.0.borrow_mut();
        let running = network.exchanges.iter();
        let running = running.filter(|one| !one.body.has_ended());
        if running.count() >= MOST {
            return None;
        }
        let job = network.next_job();
        network.exchanges.push(Exchange {
            job,
            body: ReadAhead::default(),
        });
        // Where it cannot be sent, the exchange has ended.
        let _ = network.send(Command::Exchange {
            job,
            request: Box::new(request),
        });
        Some(job)
    }

    fn news(&mut self, job: Job) -> Option<News> {
        let network = &mut *self.0.borrow_mut();
        let news = network.exchange(job)?.body.news();
        // A loader may never close it.
        if let Some(News::Ended(_)) = news {
            network.forget(job);
        }
        news
    }

    fn give(&mut self, job: Job, memory: Memory) {
        let network = &mut *self.0.borrow_mut();
        let wanted = network.exchange(job).and_then(|one| one.body.give(memory));
        if let Some(memory) = wanted {
            let _ = network.send(Command::Memory { job, memory });
        }
    }

    fn close(&mut self, job: Job) {
        let network = &mut *self.0.borrow_mut();
        let open = |network: &mut LoaderNetwork| {
            network
                .exchange(job)
                .is_some_and(|one| !one.body.has_ended())
        };
        if let Some(exchange) = network.exchange(job) {
            exchange.body.give_back();
        }
        if open(network) {
            let _ = network.send(Command::Cancel { job });
        }
        // Until the service has answered, it may still write to memory of the caller's.
        while open(network) {
            network.turn();
        }
        network.forget(job);
    }
}
