//! HTTP requests of loaders', by EFI_HTTP_PROTOCOL.

use super::{LoaderNetwork, Shared};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use wireboot_fetch::http::Request;
use wireboot_fetch::{Command, Event, Exchanged, Job};
use wireboot_net::Memory;
use wireboot_protocols::http::{Exchanges, News, Verdict};

/// Exchanges at the same time: each has a connection.
const MOST: usize = 16;

/// One that was begun.
pub(super) struct Exchange {
    job: Job,
    news: VecDeque<News>,
    /// The service knows no more of it.
    ended: bool,
}

impl Exchange {
    fn end(&mut self, end: Result<(), Verdict>) {
        if !self.ended {
            self.ended = true;
            self.news.push_back(News::Ended(end));
        }
    }
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
            Exchanged::Head(head) => exchange.news.push_back(News::Head(head)),
            Exchanged::Body { len, .. } => exchange.news.push_back(News::Body(len)),
            Exchanged::Ended(result) => exchange.end(match result {
                Some(result) => result.map_err(|problem| {
                    log::debug!("{problem}");
                    Verdict::from(&problem)
                }),
                None => Err(Verdict::Aborted),
            }),
        }
    }

    /// What runs is lost with its processor, or with the card.
    pub(super) fn lose_exchanges(&mut self) {
        for exchange in &mut self.exchanges {
            exchange.end(Err(Verdict::DeviceError));
        }
    }

    fn exchange(&mut self, job: Job) -> Option<&mut Exchange> {
        self.exchanges.iter_mut().find(|one| one.job == job)
    }

    /// Sends a command about exchanges. One that cannot be sent was lost with all that ran.
    fn command(&mut self, command: Command) {
        if self.network.send(command).is_err() {
            self.lose_downloads();
            self.lose_exchanges();
        }
    }
}

impl Exchanges for Shared {
    fn open(&mut self, request: Request) -> Option<Job> {
        let network = &mut *self.0.borrow_mut();
        if network.exchanges.len() >= MOST {
            return None;
        }
        let job = network.next_job();
        network.exchanges.push(Exchange {
            job,
            news: VecDeque::new(),
            ended: false,
        });
        network.command(Command::Exchange {
            job,
            request: Box::new(request),
        });
        Some(job)
    }

    fn news(&mut self, job: Job) -> Option<News> {
        self.0.borrow_mut().exchange(job)?.news.pop_front()
    }

    fn give(&mut self, job: Job, memory: Memory) {
        self.0.borrow_mut().command(Command::Memory { job, memory });
    }

    fn close(&mut self, job: Job) {
        let network = &mut *self.0.borrow_mut();
        let open =
            |network: &mut LoaderNetwork| network.exchange(job).is_some_and(|one| !one.ended);
        if open(network) {
            network.command(Command::Cancel { job });
        }
        // Until the service has answered, it may still write to memory of the caller's.
        while open(network) {
            network.turn();
        }
        network.exchanges.retain(|one| one.job != job);
    }
}
