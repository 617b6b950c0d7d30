//! Asks a boot server what it grants, and the path to it what it carries, without fetching a file.
//!
//! ```text
//!           ┌─> path: echo requests ── loss, order, way there and back, longest packet
//! URL ──────┼─> tftp: a request, one block ── options granted, delays
//!           └─> http: HEAD, GET of a byte ── ranges, connections that stay, delays
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod http;
mod path;
#[cfg(test)]
mod tests;
mod tftp;

use alloc::string::ToString;
use core::net::{IpAddr, SocketAddr};
use wireboot_fetch::url::{Scheme, Url};
use wireboot_net::{Instant, Stack};
use wireboot_report::Server;

/// Asks the server of `url`, which has the address `server`. Takes 20 seconds at most.
pub async fn probe(stack: &Stack, url: &Url, server: IpAddr) -> Server {
    let path = path::measure(stack, server).await;
    let mut answer = Server {
        url: url.to_string(),
        address: server.to_string(),
        path,
        ..Server::default()
    };
    let end = SocketAddr::new(server, url.port());
    let failure = match url.scheme() {
        Scheme::Tftp => match tftp::ask(stack, end, url.resource()).await {
            Ok(tftp) => {
                answer.tftp = Some(tftp);
                None
            }
            Err(failure) => Some(failure),
        },
        Scheme::Http => match http::ask(stack, end, url).await {
            Ok(http) => {
                answer.http = Some(http);
                None
            }
            Err(failure) => Some(failure),
        },
    };
    answer.failure = failure;
    answer
}

/// Microseconds since `begin`.
fn since(stack: &Stack, begin: Instant) -> u64 {
    (stack.now() - begin).total_micros()
}
