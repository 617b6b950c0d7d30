//! The servers of a URL.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use wireboot_net::Stack;

use super::error::Problem;
use crate::race;
use crate::resolve::{Resolve, Unresolved};
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
            let found = resolver.resolve(host).await;
            let found = found.and_then(|found| match found.is_empty() {
                true => Err(Unresolved {
                    reason: "it has no address".into(),
                    passing: false,
                }),
                false => Ok(found),
            });
            found.map_err(|Unresolved { reason, passing }| Problem::Resolve {
                host: host.clone(),
                reason,
                passing,
            })?
        }
    };
    let addresses = race::order(stack, &addresses).into_iter();
    Ok(addresses
        .map(|address| SocketAddr::new(address, url.port()))
        .collect())
}
