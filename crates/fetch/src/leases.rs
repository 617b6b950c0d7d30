//! Addresses and a boot file by both IP versions at once.

use alloc::boxed::Box;
use core::cell::Cell;
use core::future::poll_fn;
use core::net::IpAddr;
use core::pin::pin;
use core::task::Poll;

use wireboot_net::{Duration, Instant, Stack};

use crate::dhcp::{self, DhcpError, DhcpRequest, Lease};
use crate::dhcpv6::{self, Dhcp6Error, Lease6};
use crate::error::FetchError;

/// How long a lease without a boot file waits for one by IPv6: servers answer in a round trip or two.
const GRACE_V6: Duration = Duration::from_secs(1);
/// The same for IPv4: there are servers that look for 3 s whether an address is in use.
const GRACE_V4: Duration = Duration::from_secs(5);

/// What a machine has learnt of its network. At least one of the two is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// From DHCP; `None` where that failed or has not ended.
    pub v4: Option<Lease>,
    /// From DHCPv6; `None` where that failed or has not ended.
    pub v6: Option<Lease6>,
}

impl Leases {
    /// Whether there is one of the version of IP of `address`.
    #[must_use]
    pub fn have_version_of(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.v4.is_some(),
            IpAddr::V6(_) => self.v6.is_some(),
        }
    }

    /// Without the one of the other version.
    pub fn keep_version_of(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(_) => self.v6 = None,
            IpAddr::V6(_) => self.v4 = None,
        }
    }
}

impl From<Lease> for Leases {
    fn from(lease: Lease) -> Self {
        Self {
            v4: Some(lease),
            v6: None,
        }
    }
}

/// What [`discover`] reports.
pub(crate) enum News {
    V4(Lease),
    V6(Lease6),
    /// DHCP has ended without a lease.
    NoV4,
    /// DHCPv6 has ended without a lease, and gives none later.
    NoV6,
    /// What the caller waits for. The other version may still follow.
    Decided(Result<Box<Leases>, FetchError>),
    /// Another lease has followed: all that there are now.
    Followed(Box<Leases>),
}

/// Asks by both versions in the same turn, and reports each lease. The first lease with a boot file decides, or the first at all where no
/// boot file is wanted. A lease without a boot file waits a little for the other version's; a version that failed is not waited for. A
/// lease that comes after the decision is reported too: its boot file may be reachable where that of the first is not.
pub(crate) async fn discover(stack: &Stack, request: &DhcpRequest, mut report: impl FnMut(News)) {
    let mut v4 = pin!(dhcp::discover(stack, request));
    let lease6 = Cell::new(None);
    let mut v6 = pin!(dhcpv6::discover(stack, request, |lease| lease6.set(Some(lease))));
    let mut v6_goes_on = true;
    let mut found = Found::default();
    poll_fn(|context| {
        let now = stack.now();
        if found.v4.is_none()
            && let Poll::Ready(result) = v4.as_mut().poll(context)
        {
            report(match &result {
                Ok(lease) => News::V4(lease.clone()),
                Err(_) => News::NoV4,
            });
            found.end_v4(result, now);
        }
        if v6_goes_on && let Poll::Ready(end) = v6.as_mut().poll(context) {
            v6_goes_on = false;
            if let Err(error) = end {
                report(News::NoV6);
                found.v6 = Some((Err(error), now));
            }
        }
        if let Some(lease) = lease6.take() {
            report(News::V6(lease.clone()));
            found.lease_v6(lease, now);
        }
        if let Some(news) = found.news(request.want_boot_file, now) {
            report(news);
        }
        if found.v4.is_some() && !v6_goes_on {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// The result of each version so far, and when it came.
#[derive(Default)]
struct Found {
    v4: Option<(Result<Lease, DhcpError>, Instant)>,
    v6: Option<(Result<Lease6, Dhcp6Error>, Instant)>,
    decided: bool,
    /// A lease has come that was not told.
    has_news: bool,
}

impl Found {
    fn end_v4(&mut self, result: Result<Lease, DhcpError>, now: Instant) {
        self.has_news |= result.is_ok();
        self.v4 = Some((result, now));
    }

    /// The first, or one in place of an address that somebody has.
    fn lease_v6(&mut self, lease: Lease6, now: Instant) {
        self.has_news = true;
        self.v6 = Some((Ok(lease), now));
    }

    /// What is to be reported now. To be called until both versions have ended.
    fn news(&mut self, want_boot_file: bool, now: Instant) -> Option<News> {
        if self.decided {
            let has_news = core::mem::take(&mut self.has_news);
            let leases = has_news.then(|| self.result().ok()).flatten();
            return leases.map(News::Followed);
        }
        self.decided = self.is_enough(want_boot_file, now);
        self.has_news = false;
        self.decided.then(|| News::Decided(self.result()))
    }

    fn is_enough(&self, want_boot_file: bool, now: Instant) -> bool {
        if self.v4.is_some() && self.v6.is_some() {
            return true;
        }
        let v4 = match &self.v4 {
            Some((Ok(lease), since)) => {
                !want_boot_file || lease.boot_file.is_some() || now >= *since + GRACE_V6
            }
            _ => false,
        };
        let v6 = match &self.v6 {
            Some((Ok(lease), since)) => {
                !want_boot_file || lease.boot_file.is_some() || now >= *since + GRACE_V4
            }
            _ => false,
        };
        v4 || v6
    }

    fn result(&self) -> Result<Box<Leases>, FetchError> {
        let (v4, v6) = (
            self.v4.as_ref().map(|(result, _)| result),
            self.v6.as_ref().map(|(result, _)| result),
        );
        if let (Some(Err(v4)), Some(Err(v6))) = (v4, v6) {
            let v4 = Box::new(v4.clone());
            return Err(match v6 {
                Dhcp6Error::NoLinkLocal => FetchError::Dhcp(v4),
                v6 => FetchError::NoLease { v4, v6: v6.clone() },
            });
        }
        Ok(Box::new(Leases {
            v4: v4.and_then(|result| result.clone().ok()),
            v6: v6.and_then(|result| result.clone().ok()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhcp::LeaseSource;
    use std::string::ToString;
    use wireboot_net::{Ipv4Addr, Ipv4Cidr};

    fn v4(boot_file: bool) -> Result<Lease, DhcpError> {
        let address = Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, 1), 24);
        let mut lease = Lease::new(address, LeaseSource::Dhcp);
        lease.boot_file = boot_file.then(|| "x".into());
        Ok(lease)
    }

    fn v6(boot_file: bool) -> Result<Lease6, Dhcp6Error> {
        let mut lease = Lease6::new(LeaseSource::Dhcp);
        lease.boot_file = boot_file.then(|| "tftp://[::2]/x".into());
        Ok(lease)
    }

    fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    /// From when on the versions' ends at 1 s are enough, in milliseconds.
    fn enough(
        v4: Option<Result<Lease, DhcpError>>,
        v6: Option<Result<Lease6, Dhcp6Error>>,
        want: bool,
    ) -> Option<i64> {
        let found = Found {
            v4: v4.map(|end| (end, at(1000))),
            v6: v6.map(|end| (end, at(1000))),
            ..Found::default()
        };
        (1000..100_000).find(|&millis| found.is_enough(want, at(millis)))
    }

    #[test]
    fn the_first_with_a_boot_file_decides_and_neither_waits_long() {
        assert_eq!(enough(Some(v4(true)), None, true), Some(1000));
        assert_eq!(enough(None, Some(v6(true)), true), Some(1000));
        assert_eq!(enough(Some(v4(false)), None, false), Some(1000));
        assert_eq!(enough(None, Some(v6(false)), false), Some(1000));
        assert_eq!(enough(Some(v4(false)), None, true), Some(2000));
        assert_eq!(enough(None, Some(v6(false)), true), Some(6000));
        assert_eq!(enough(None, None, false), None);
        // A failure leaves it to the other; two that ended are all there is.
        let dead = Dhcp6Error::NoLinkLocal;
        assert_eq!(enough(None, Some(Err(dead.clone())), false), None);
        assert_eq!(enough(Some(Err(DhcpError::NoAddress)), None, false), None);
        assert_eq!(enough(Some(v4(false)), Some(Err(dead)), true), Some(1000));
        assert_eq!(enough(Some(v4(false)), Some(v6(false)), true), Some(1000));
    }

    #[test]
    fn a_lease_by_ipv4_is_what_is_known() {
        let lease = v4(true).unwrap();
        let known = Leases::from(lease.clone());
        assert_eq!((known.v4, known.v6), (Some(lease), None));
    }

    #[test]
    fn the_other_versions_lease_is_told_when_it_follows() {
        let mut found = Found::default();
        assert!(found.news(true, at(0)).is_none());
        found.end_v4(v4(true), at(1));
        assert!(matches!(
            found.news(true, at(1)),
            Some(News::Decided(Ok(_)))
        ));
        assert!(found.news(true, at(2)).is_none());
        found.v6 = Some((Err(Dhcp6Error::NoLinkLocal), at(3)));
        assert!(found.news(true, at(3)).is_none());
        found.lease_v6(v6(true).unwrap(), at(3));
        let Some(News::Followed(leases)) = found.news(true, at(3)) else {
            panic!("not reported");
        };
        assert_eq!((leases.v4, leases.v6), (v4(true).ok(), v6(true).ok()));
        assert!(found.news(true, at(4)).is_none(), "told twice");
        // The first was declined, and there is another.
        let mut alone = Found::default();
        alone.lease_v6(v6(true).unwrap(), at(1));
        assert!(matches!(alone.news(true, at(1)), Some(News::Decided(_))));
        assert!(alone.news(true, at(2)).is_none());
        alone.lease_v6(v6(true).unwrap(), at(3));
        assert!(matches!(alone.news(true, at(3)), Some(News::Followed(_))));
        alone.end_v4(Err(DhcpError::NoAddress), at(4));
        assert!(alone.news(true, at(4)).is_none());
        let mut late = Found::default();
        late.lease_v6(v6(true).unwrap(), at(1));
        assert!(matches!(late.news(true, at(1)), Some(News::Decided(_))));
        late.end_v4(v4(false), at(2));
        assert!(matches!(late.news(true, at(2)), Some(News::Followed(_))));
    }

    #[test]
    fn two_failures_are_both_told() {
        let result = |v6| {
            let found = Found {
                v4: Some((Err(DhcpError::NoAddress), at(0))),
                v6: Some((v6, at(0))),
                ..Found::default()
            };
            found.result().map_err(|error| error.to_string())
        };
        let v4_alone = DhcpError::NoAddress.to_string();
        assert_eq!(result(Err(Dhcp6Error::NoLinkLocal)), Err(v4_alone.clone()));
        let silent = Dhcp6Error::NoAnswer {
            messages: 3,
            seconds: 4,
            malformed: 0,
        };
        let text = result(Err(silent.clone())).unwrap_err();
        assert!(text.starts_with(&v4_alone) && text.ends_with(&silent.to_string()));
        let expected = Leases {
            v4: None,
            v6: v6(true).ok(),
        };
        assert_eq!(result(v6(true)), Ok(Box::new(expected)));
    }
}
