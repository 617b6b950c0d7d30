//! Which of a server's addresses to use (RFC 8305, "happy eyeballs"): those of both IP versions are tried one shortly after the
//! other, and the first that answers is taken. So neither version waits for the other, and a dead one costs a quarter of a second.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::net::{IpAddr, SocketAddr};
use core::pin::Pin;
use core::task::Poll;

use wireboot_net::{Duration, Stack};

/// Time between the starts of two attempts (RFC 8305 section 5, "Connection Attempt Delay").
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses that are tried at most. All attempts may run at the same time.
const MAX_CONCURRENT: usize = 6;

/// Which versions of IP are meant: both, one, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Versions {
    /// Those that this machine has an address of, one that is not link-local.
    pub(crate) fn of(stack: &Stack) -> Self {
        let addresses = stack.addresses6();
        let beyond = |address: IpAddr| match address {
            IpAddr::V6(address) => !address.is_unicast_link_local(),
            IpAddr::V4(_) => false,
        };
        Self {
            v4: stack.address().is_some(),
            v6: addresses.iter().any(|cidr| beyond(cidr.address().into())),
        }
    }

    pub(crate) fn have_version_of(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        }
    }
}

/// The addresses in the order in which they are tried: that of RFC 6724, its versions by turns (RFC 8305 section 4).
pub(crate) fn order(stack: &Stack, addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut ordered = addresses.to_vec();
    stack.order(&mut ordered);
    by_turns(&ordered)
}

fn by_turns(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v6 = addresses.first().is_some_and(IpAddr::is_ipv6);
    let (first, second): (Vec<IpAddr>, Vec<IpAddr>) = addresses
        .iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

/// Tries `servers` in their order, each when the one before has failed or has had [`ATTEMPT_DELAY`]. The first success ends all other
/// attempts.
///
/// # Errors
/// The error of the last attempt that failed; `none` where there are no servers.
pub(crate) async fn first<T, E, F: Future<Output = Result<T, E>>>(
    stack: &Stack,
    servers: &[SocketAddr],
    none: E,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> Result<(SocketAddr, T), E> {
    type Attempt<F> = (SocketAddr, Pin<Box<F>>);
    let mut waiting = servers.iter().take(MAX_CONCURRENT).copied();
    let mut running: Vec<Attempt<F>> = Vec::new();
    let mut next = stack.now();
    let mut setback = none;
    let mut exhausted = false;
    let result = poll_fn(|context| {
        loop {
            if !exhausted && (stack.now() >= next || running.is_empty()) {
                match waiting.next() {
                    Some(server) => {
                        running.push((server, Box::pin(attempt(server))));
                        next = stack.now() + ATTEMPT_DELAY;
                    }
                    None => exhausted = true,
                }
            }
            let mut failed = false;
            let mut winner = None;
            running.retain_mut(|(server, future)| {
                if winner.is_some() {
                    return true;
                }
                match future.as_mut().poll(context) {
                    Poll::Ready(Ok(value)) => winner = Some((*server, value)),
                    Poll::Ready(Err(error)) => {
                        setback = error;
                        failed = true;
                    }
                    Poll::Pending => return true,
                }
                false
            });
            if let Some(winner) = winner {
                return Poll::Ready(Ok(winner));
            }
            if failed {
                next = stack.now();
            } else if !running.is_empty() {
                return Poll::Pending;
            }
            if running.is_empty() && exhausted {
                return Poll::Ready(Err(()));
            }
        }
    })
    .await;
    result.map_err(|()| setback)
}

#[cfg(test)]
mod tests;
