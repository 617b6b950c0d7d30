//! A file that DHCP names, while the other version of IP may name another: one of the two servers may be dead.

use super::{Download, Fetcher, OTHER_VERSION, Progress, Wanted, take};
use crate::error::Error;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use wireboot_fetch::url::Url;
use wireboot_fetch::{Command, Event, File, LeaseSource, Leases};
use wireboot_platform::console;

/// How long the first file may bring nothing until the other is asked for as well, in microseconds. Servers that are there answer sooner,
/// and one that is dead is waited for much longer. In this time DHCPv6 has answered, too, where there is one.
const HEAD_START: u64 = 1_000_000;

/// Whether the other file is not waited for any more after so many microseconds, when the first has failed: no lease is to come that names
/// it.
fn comes_no_other(waited: u64, leases: &Leases) -> bool {
    let patience = match &leases.v4 {
        // The firmware's own is no answer; without one by DHCPv6 either, DHCP has ended.
        Some(lease) if lease.source == LeaseSource::Dhcp || leases.v6.is_none() => HEAD_START,
        _ => OTHER_VERSION,
    };
    waited >= patience
}

impl Fetcher {
    /// Downloads `first`. Where that fails, or brings nothing for a while, what `other` names then is asked for too, and the first of
    /// them that has come is taken.
    pub fn get_either(
        &mut self,
        first: &Url,
        other: impl Fn(&Leases) -> Option<Url>,
    ) -> Result<File, Error> {
        self.retry_once(|fetcher| fetcher.either(first, &other))
    }

    fn either(
        &mut self,
        first: &Url,
        other: &dyn Fn(&Leases) -> Option<Url>,
    ) -> Result<File, Error> {
        let (job, mut second) = (self.job(), Some(self.job()));
        let begin = self.network.clock.micros();
        let mut downloads = Vec::new();
        let known = self.known.clone();
        downloads.push(Download::begin(
            &mut self.network,
            &known,
            job,
            Wanted::plain(first),
        )?);
        let mut progress = Progress::new(begin);
        let mut failure = None;
        let result = self.drive(|network, event| {
            let now = network.clock.micros();
            let mut step = Ok(());
            match event {
                Some(Event::Done {
                    job,
                    result: Err(error),
                }) if downloads.iter().any(|one| one.job == job) => {
                    downloads.retain(|one| one.job != job);
                    if downloads.is_empty() && second.is_none() && failure.is_none() {
                        return ControlFlow::Break(Err(error.into()));
                    }
                    log::warn!("{error}");
                    failure.get_or_insert(error);
                }
                Some(event) => step = take(network, &mut downloads, event),
                None => progress.draw(now, &downloads),
            }
            if downloads.iter().any(Download::is_over) {
                return ControlFlow::Break(Ok(()));
            }
            let waited = now - begin;
            let nothing = |one: &Download| one.received == 0 && one.total.is_none();
            if step.is_ok()
                && (downloads.is_empty() || waited >= HEAD_START && downloads.iter().all(nothing))
                && let Some(url) = other(network.leases())
                && let Some(job) = second.take()
            {
                log::info!("asking for {url} as well");
                step = Download::begin(network, &known, job, Wanted::plain(&url))
                    .map(|one| downloads.push(one));
            }
            match (step, &failure) {
                (Err(error), _) => ControlFlow::Break(Err(error)),
                (_, Some(_))
                    if downloads.is_empty()
                        && (second.is_none() || comes_no_other(waited, network.leases())) =>
                {
                    ControlFlow::Break(failure.take().map_or(Ok(()), |error| Err(error.into())))
                }
                _ => ControlFlow::Continue(false),
            }
        });
        console::clear_progress();
        for download in downloads.iter().filter(|one| one.file.is_none()) {
            self.network.send(Command::Cancel { job: download.job })?;
        }
        result??;
        self.summary.micros += self.network.clock.micros() - begin;
        let mut come = downloads.into_iter();
        let file = come.find_map(|one| Some((one.ended, one.file?)));
        let (ended, file) = file.ok_or(Error::Nothing)?;
        self.arrived(&file, ended);
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_fetch::{Lease, Lease6};
    use wireboot_net::{Ipv4Addr, Ipv4Cidr};

    #[test]
    fn dhcp_over_ipv4_may_take_longer_to_name_another_file() {
        let address = Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, 5), 24);
        let v4 = |source| Some(Lease::new(address, source));
        let v6 = || Some(Lease6::new(LeaseSource::Dhcp));
        for (v4, v6, patience) in [
            (v4(LeaseSource::Dhcp), None, 1_000_000),
            (v4(LeaseSource::Dhcp), v6(), 1_000_000),
            (v4(LeaseSource::Firmware), None, 1_000_000),
            (v4(LeaseSource::Firmware), v6(), 5_000_000),
            (None, v6(), 5_000_000),
        ] {
            let leases = Leases { v4, v6 };
            assert!(!comes_no_other(patience - 1, &leases));
            assert!(comes_no_other(patience, &leases));
        }
    }
}
