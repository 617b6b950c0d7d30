//! The servers of a URL.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use wireboot_net::Stack;

use super::error::Problem;
use crate::race;
use crate::resolve::Resolve;
use crate::url::{Host, Url};

/// Addresses of the URL's server in the order of preference, at least one.
pub(super) async fn servers<R: Resolve>(
    stack: &Stack,
    resolver: &R,
    url: &Url,
) -> Result<Vec<SocketAddr>, Problem> {
    let addresses = match url.host() {
        Host::Address(address) => vec![*address],
        Host::Name(host) => {
            let failed = |reason| Problem::Resolve {
                host: host.clone(),
                reason,
            };
            let found = resolver.resolve(host).await.map_err(failed)?;
            if found.is_empty() {
                return Err(failed("it has no address".into()));
            }
            found
        }
    };
    let addresses = race::order(stack, &addresses).into_iter();
    Ok(addresses
        .map(|address| SocketAddr::new(address, url.port()))
        .collect())
}
