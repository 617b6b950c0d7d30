//! The DHCPv6 client (RFC 8415) with the options of network boot (RFC 5970).
//!
//! ```text
//! SOLICIT ->                   with rapid commit where no boot file is wanted; repeated after 1, 2, 4, ... s
//!                   <- REPLY       with rapid commit: taken at once
//!                   <- ADVERTISE   complete, or of preference 255: taken at once
//!                                  else taken after a short wait for a better one
//! REQUEST ->
//!                   <- REPLY       refused, or none: again from the start, with another server where one advertises
//!
//! DECLINE ->                   where a neighbour has the address; then again from the start
//!                   <- REPLY
//!
//! INFORMATION-REQUEST ->       in its place where routers say so (flag O without M): addresses are their prefixes'
//!                   <- REPLY       complete: taken at once
//!                                  else taken after a short wait for a better one
//! ```
//!
//! A router that commits may know of no boot file, while a boot server advertises one. If that one gives no addresses, its boot file goes
//! with another server's addresses, or with those of a router's prefix. The first SOLICIT leaves at once, before any router has been heard.
//! Only messages from the link count, to this transaction and this client, and after a choice only those of the server chosen.

mod client;
mod lease;
mod message;
mod offers;
mod retransmission;
#[cfg(test)]
mod tests;

pub use lease::Lease6;

pub use crate::dhcp_request::ClientId;

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use wireboot_net::Stack;
use wireboot_wire::dhcpv6::{ALL_SERVERS, CLIENT_PORT, SERVER_PORT};

use crate::dhcp_request::DhcpRequest;
use client::{Client, Outcome};
use lease::is_host;

/// Why DHCPv6 gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dhcp6Error {
    /// There is no link-local address, so nothing can be asked.
    #[error("this machine has no IPv6 address on the link")]
    NoLinkLocal,
    /// No usable answer came before the time was over.
    #[error(
        "no DHCPv6 server answered {messages} messages over {seconds} s ({malformed} malformed answers); check that a DHCPv6 \
         server, relay or router serves this network"
    )]
    NoAnswer {
        /// SOLICITs and INFORMATION-REQUESTs sent, repetitions too.
        messages: u32,
        /// How long it took, in seconds.
        seconds: u64,
        /// Messages to this client that were no usable answers.
        malformed: u32,
    },
    /// A server advertised addresses and then did not confirm them.
    #[error(
        "the DHCPv6 server {server} advertised an address but answered no REQUEST for it; check its log"
    )]
    NoReply {
        /// Link-local address that its ADVERTISE came from.
        server: Ipv6Addr,
    },
    /// A server has no address for this machine.
    #[error("the DHCPv6 server {server} gives no address: {reason}; check its log")]
    Refused {
        /// Link-local address that its message came from.
        server: Ipv6Addr,
        /// The status code and its text (RFC 8415 section 21.13).
        reason: String,
    },
    /// The address that a server gave is in use.
    #[error(
        "another machine on this network has the address {address} that the DHCPv6 server gave; check that nobody takes addresses from \
         its range"
    )]
    Taken {
        /// The first of the server's addresses that is in use.
        address: Ipv6Addr,
    },
}

/// Gets addresses and boot information over IPv6. Calls `found` with a lease as soon as the stack has its addresses. Ends when duplicate
/// address detection is through. Where a neighbour has one of the addresses, the server gets a DECLINE and is asked again, and `found` is
/// called with the second lease.
///
/// # Errors
/// [`Dhcp6Error`] after [`DhcpRequest::patience`], or at the end of as much time as DHCP over IPv4 takes; at once where there is no
/// IPv6.
pub async fn discover(
    stack: &Stack,
    request: &DhcpRequest,
    mut found: impl FnMut(Lease6),
) -> Result<(), Dhcp6Error> {
    if stack.link_local().is_none() {
        return Err(Dhcp6Error::NoLinkLocal);
    }
    let mut client = Client::new(request, stack.mac(), stack.now(), stack.random() as u32);
    loop {
        let mut lease = ask(stack, &mut client).await?;
        lease.take_on(stack);
        let given = lease.addresses.clone();
        let known = given.iter().any(|&address| stack.is_duplicate(address));
        if !known {
            if given.is_empty() {
                lease.addresses = global_addresses(stack);
            }
            log::debug!("DHCPv6 lease {:?} from {:?}", lease.addresses, lease.server);
            found(lease);
        }
        while given.iter().any(|&address| stack.is_tentative(address)) {
            stack.next_turn().await;
        }
        let taken = |address: &Ipv6Addr| stack.is_duplicate(*address);
        let taken: Vec<_> = given.into_iter().filter(taken).collect();
        let Some(&address) = taken.first() else {
            return Ok(());
        };
        log::warn!("{}", Dhcp6Error::Taken { address });
        client.decline(taken, stack.now());
    }
}

/// Exchanges messages until there is a lease.
async fn ask(stack: &Stack, client: &mut Client) -> Result<Lease6, Dhcp6Error> {
    let socket = stack.udp_on(CLIENT_PORT);
    let servers = SocketAddr::new(ALL_SERVERS.into(), SERVER_PORT);
    loop {
        while let Poll::Ready((source, bytes)) =
            pin!(socket.receive()).poll(&mut Context::from_waker(Waker::noop()))
        {
            if let IpAddr::V6(source) = source.ip() {
                client.receive(source, &bytes, stack.now());
            }
        }
        let slaac = global_addresses(stack);
        if let Some(router) = stack.router() {
            client.router(router.managed, router.other, stack.now());
        }
        match client.outcome(!slaac.is_empty(), stack.now()) {
            Some(Outcome::Lease(lease)) => return Ok(*lease),
            Some(Outcome::Failed(error)) => return Err(error),
            None => {}
        }
        if let Some(message) = client.transmit(stack.now(), || stack.random() as u32) {
            // What cannot leave now leaves with the next repetition.
            let _ = socket.send_to(servers, &message);
        }
        stack.next_turn().await;
    }
}

/// Our addresses that are known beyond the link.
fn global_addresses(stack: &Stack) -> Vec<Ipv6Addr> {
    let addresses = stack.addresses6();
    let addresses = addresses.iter().map(|cidr| cidr.address());
    addresses.filter(|&address| is_host(address)).collect()
}
