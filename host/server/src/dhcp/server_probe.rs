//! Is there a DHCP server already that gives addresses? Then this one gives none.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use wireboot_wire::dhcp::{CLIENT_PORT, Message, MessageType, Operation, SERVER_PORT, option};

use super::socket::bound;
use crate::interface::Interface;
use crate::ports::{ask, random_id};

const BROADCAST_FLAG: u16 = 0x8000;

/// Asks on `interface` for an address, and takes none. The server that offers one.
///
/// # Errors
/// When the question cannot be asked.
pub fn another_gives_addresses(interface: &Interface) -> io::Result<Option<Ipv4Addr>> {
    // A DHCP client on this machine may hold the port; broadcasts reach both.
    let socket = bound(interface, CLIENT_PORT, true)?;
    let mac = interface.mac.unwrap_or([2, 0, 0, 0, 0, 1]);
    let mut discover = Message::request(MessageType::Discover, random_id()?, mac);
    discover.flags = BROADCAST_FLAG;
    let servers = (Ipv4Addr::BROADCAST, SERVER_PORT).into();
    ask(&socket, servers, &discover.emit(), |datagram, source| {
        let reply = Message::parse(datagram).ok()?;
        let SocketAddr::V4(source) = source else {
            return None;
        };
        let named = reply.options.address(option::SERVER_ID);
        offers(&reply, &discover).then(|| named.unwrap_or(*source.ip()))
    })
}

/// Whether `reply` offers an address to who sent `discover`.
fn offers(reply: &Message, discover: &Message) -> bool {
    reply.operation == Operation::Reply
        && reply.xid == discover.xid
        && reply.chaddr == discover.chaddr
        && reply.message_type() == Some(MessageType::Offer)
        && !reply.yiaddr.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_offered_to_us_counts() {
        let discover = Message::request(MessageType::Discover, 7, [2, 0, 0, 0, 0, 1]);
        let mut offer = Message::reply(MessageType::Offer, &discover);
        offer.yiaddr = Ipv4Addr::new(10, 0, 0, 9);
        assert!(offers(&offer, &discover));
        let changes: [fn(&mut Message); 5] = [
            |offer| offer.operation = Operation::Request,
            |offer| offer.xid = 8,
            |offer| offer.chaddr = vec![2, 0, 0, 0, 0, 2],
            |offer| offer.options.set(option::MESSAGE_TYPE, [5]),
            // A proxy's.
            |offer| offer.yiaddr = Ipv4Addr::UNSPECIFIED,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut other = offer.clone();
            change(&mut other);
            assert!(!offers(&other, &discover), "change {n}");
        }
    }
}
