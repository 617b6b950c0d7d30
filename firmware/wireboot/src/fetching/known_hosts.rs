//! Servers that this machine boots from: a download waits for them longer than for one of which nothing has come yet, which may be none
//! at all.

use alloc::vec::Vec;
use wireboot_fetch::url::{Host, Url};
use wireboot_net::Duration;

/// Hosts that files of this boot have come from, and how long each is waited for.
#[derive(Clone, Default)]
pub(super) struct KnownHosts {
    patience: Duration,
    hosts: Vec<Host>,
}

impl KnownHosts {
    /// `origin` is where wireboot.efi came from.
    pub(super) fn new(patience: Duration, origin: Option<&Url>) -> Self {
        Self {
            patience,
            hosts: origin.map(|url| url.host().clone()).into_iter().collect(),
        }
    }

    /// A file has come from here.
    pub(super) fn add(&mut self, url: &Url) {
        if !self.hosts.contains(url.host()) {
            self.hosts.push(url.host().clone());
        }
    }

    /// How long a download waits for its server.
    pub(super) fn patience(&self, url: &Url) -> Duration {
        if self.hosts.contains(url.host()) {
            self.patience
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_waited_for_once_something_has_come_from_it() {
        let url = |text| Url::parse(text).unwrap();
        let long = Duration::from_secs(600);
        let mut known = KnownHosts::new(long, Some(&url("tftp://10.0.0.1/wireboot.efi")));
        // By whatever protocol: it is one machine, and starts all its servers.
        assert_eq!(known.patience(&url("http://10.0.0.1:8080/linux")), long);
        let other = url("http://mirror/linux");
        assert_eq!(known.patience(&other), Duration::ZERO);
        known.add(&other);
        known.add(&other);
        assert_eq!(known.patience(&url("http://mirror/initrd")), long);
        assert_eq!(known.hosts.len(), 2);
        let mut known = KnownHosts::new(long, None);
        assert_eq!(known.patience(&other), Duration::ZERO);
        known.add(&other);
        assert_eq!(known.patience(&other), long);
    }
}
