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
use wireboot_net::{Duration, Instant, Stack};
use wireboot_report::Server;

/// How long the path may take. Where packets vanish on a long way, it is not measured.
const PATH: Duration = Duration::from_secs(30);

/// Asks the server of `url`, which has the address `server`. Takes 45 seconds at most, and 3 where nothing is lost.
pub async fn probe(stack: &Stack, url: &Url, server: IpAddr) -> Server {
    let path = stack.timeout(PATH, path::measure(stack, server)).await;
    let mut answer = Server {
        url: url.to_string(),
        address: server.to_string(),
        path: path.flatten(),
        ..Server::default()
    };
    let end = SocketAddr::new(server, url.port());
    match url.scheme() {
        Scheme::Tftp => {
            (answer.tftp, answer.failure) = tftp::ask(stack, end, url.resource()).await;
        }
        Scheme::Http => match http::ask(stack, end, url).await {
            Ok(http) => answer.http = Some(http),
            Err(failure) => answer.failure = Some(failure),
        },
    }
    answer
}

/// Microseconds since `begin` by the next turn: what has just come did so after the turn had begun, and where the processor was away meanwhile, long after.
async fn since(stack: &Stack, begin: Instant) -> u64 {
    stack.next_turn().await;
    (stack.now() - begin).total_micros()
}
