//! Somebody else's DHCP server. Two that give addresses in one network harm everybody in it, so this one gives none from when it
//! finds another. One may come later than this one, or have been slow to answer: it is looked for as long as addresses are given.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wireboot_wire::dhcp::Message;

use crate::event::Events;
use crate::stop::Stop;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(300);
/// After a look that found nothing, clients that name another server bring about no new one for so long: anybody can say so.
const REST: Duration = Duration::from_secs(10);

/// What a server and its [`look_out`] tell each other. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherServers(Arc<OtherServerSigns>);

/// Whether another server was named by a client, and whether one was found.
#[derive(Debug, Default)]
struct OtherServerSigns {
    named: AtomicBool,
    /// The request by which a DHCP client named one last.
    request: Mutex<Option<Message>>,
    found: AtomicBool,
}

impl OtherServers {
    /// A client has taken an address from another server, it says; by DHCP, in this request.
    pub(crate) fn named(&self, request: Option<&Message>) {
        *self.request() = request.cloned();
        self.0.named.store(true, Ordering::Relaxed);
    }

    /// The request by which a DHCP client named another server last, if one has since the last call.
    pub(crate) fn take_request(&self) -> Option<Message> {
        self.request().take()
    }

    /// It could not be asked: it is to be asked again soon, in the name of the client in `request` if none has named another server since.
    pub(crate) fn retry(&self, request: Option<Message>) {
        let mut kept = self.request();
        *kept = kept.take().or(request);
        self.0.named.store(true, Ordering::Relaxed);
    }

    fn request(&self) -> MutexGuard<'_, Option<Message>> {
        let request = self.0.request.lock();
        request.unwrap_or_else(PoisonError::into_inner)
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

/// Asks for another server every now and then, and when a client names one, until there is one. `service`: DHCP or DHCPv6. `ask` is given the
/// request of that client: the server may answer it, and not this machine. That a client names one is no proof.
pub(crate) fn look_out<T: Display>(
    others: &OtherServers,
    service: &str,
    ask: impl Fn(Option<&Message>) -> io::Result<Option<T>>,
    events: &Events,
    stop: &Stop,
) {
    let mut looked = Instant::now();
    while !stop.is_set() {
        std::thread::sleep(Stop::CHECK_EVERY);
        if !others.is_time(looked.elapsed()) {
            continue;
        }
        let request = others.take_request();
        match ask(request.as_ref()) {
            Ok(Some(server)) => {
                others.find();
                events.say(format!(
                    "giving no more addresses, only boot files: the {service} server {server} gives them too ({ADVICE})"
                ));
                return;
            }
            Ok(None) => {}
            Err(_) => others.retry(request),
        }
        looked = Instant::now();
    }
}

/// What to do when another server gives addresses.
pub(crate) const ADVICE: &str = "--authoritative gives them all the same";

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_wire::dhcp::MessageType;

    #[test]
    fn a_client_that_names_another_server_brings_the_next_look_forward() {
        let seconds = Duration::from_secs;
        let others = OtherServers::default();
        assert!(!others.is_time(seconds(299)));
        assert!(others.is_time(seconds(300)));
        others.named(None);
        assert!(!others.is_time(seconds(9)));
        assert!(others.is_time(seconds(10)), "it is not forgotten");
        assert!(!others.is_time(seconds(10)), "it counts once");
    }

    #[test]
    fn one_client_of_those_that_name_another_server_is_asked_for() {
        let others = OtherServers::default();
        let request = |mac| Message::request(MessageType::Request, 1, [2, 0, 0, 0, 0, mac]);
        assert_eq!(others.take_request(), None);
        others.named(Some(&request(8)));
        others.named(Some(&request(9)));
        assert_eq!(others.take_request(), Some(request(9)));
        assert_eq!(others.take_request(), None, "it counts once");
        assert!(others.is_time(Duration::from_secs(10)));
        // What could not be asked comes again, unless there is a newer one.
        others.retry(Some(request(8)));
        others.retry(Some(request(9)));
        assert_eq!(others.take_request(), Some(request(8)));
        assert!(others.is_time(Duration::from_secs(10)));
    }
}
