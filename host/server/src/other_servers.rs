//! Somebody else's DHCP server. Two that give addresses in one network harm everybody in it, so this one gives none from when it
//! finds another. One may come later than this one, or have been slow to answer: it is looked for as long as addresses are given.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::event::Events;
use crate::stop::Stop;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(300);
/// After a look that found nothing, clients that name another server bring about no new one for so long: anybody can say so.
const REST: Duration = Duration::from_secs(10);

/// What a server and its [`look_out`] tell each other. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherServers(Arc<OtherServerFlags>);

/// Whether another server was named by a client, and whether one was found.
#[derive(Debug, Default)]
struct OtherServerFlags {
    named: AtomicBool,
    found: AtomicBool,
}

impl OtherServers {
    /// A client has taken an address from another server, it says.
    pub(crate) fn named(&self) {
        self.0.named.store(true, Ordering::Relaxed);
    }

    /// Whether to look again, so long after the last look.
    pub(crate) fn is_time(&self, since: Duration) -> bool {
        let named = since >= REST && self.0.named.swap(false, Ordering::Relaxed);
        named || since >= LOOK_EVERY
    }

    /// Another server has offered an address.
    pub(crate) fn find(&self) {
        self.0.found.store(true, Ordering::Relaxed);
    }

    /// True once one has.
    pub(crate) fn found(&self) -> bool {
        self.0.found.load(Ordering::Relaxed)
    }
}

/// Asks for another server every now and then, and when a client names one, until there is one. `service`: DHCP or DHCPv6.
pub(crate) fn look_out<T: Display>(
    others: &OtherServers,
    service: &str,
    ask: impl Fn() -> io::Result<Option<T>>,
    events: &Events,
    stop: &Stop,
) {
    let mut looked = Instant::now();
    while !stop.is_set() {
        std::thread::sleep(Stop::CHECK_EVERY);
        if !others.is_time(looked.elapsed()) {
            continue;
        }
        // What cannot be asked now is asked again.
        if let Ok(Some(server)) = ask() {
            others.find();
            events.say(format!(
                "giving no more addresses, only boot files: the {service} server {server} gives them too ({ADVICE})"
            ));
            return;
        }
        looked = Instant::now();
    }
}

/// What to do when another server gives addresses.
pub(crate) const ADVICE: &str = "--authoritative gives them all the same";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_names_another_server_brings_the_next_look_forward() {
        let seconds = Duration::from_secs;
        let others = OtherServers::default();
        assert!(!others.is_time(seconds(299)));
        assert!(others.is_time(seconds(300)));
        others.named();
        assert!(!others.is_time(seconds(9)));
        assert!(others.is_time(seconds(10)), "it is not forgotten");
        assert!(!others.is_time(seconds(10)), "it counts once");
    }
}
