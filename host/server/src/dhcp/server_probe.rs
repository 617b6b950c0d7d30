//! Is there a DHCP server already that gives addresses? Then this one gives none.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use wireboot_wire::dhcp::{
    BROADCAST_FLAG, CLIENT_PORT, Message, MessageType, Operation, SERVER_PORT, option,
};

use super::socket::bound;
use crate::interface::Interface;
use crate::ports::{ask, random_id};

/// Asks on `interface` for an address, and takes none. The server that offers one. `request` is a client's, which names another server: first
/// an address is asked for in its name. The server that it names may not know this machine, or have nothing left for it.
///
/// # Errors
/// When the question cannot be asked.
pub fn another_gives_addresses(
    interface: &Interface,
    request: Option<&Message>,
) -> io::Result<Option<Ipv4Addr>> {
    // A DHCP client on this machine may hold the port; broadcasts reach both.
    let socket = bound(interface, Ipv4Addr::UNSPECIFIED, CLIENT_PORT, true)?;
    let xid = random_id()?;
    let own = discover(xid, interface.mac.unwrap_or([2, 0, 0, 0, 0, 1]));
    let clients = request.and_then(|request| discover_as(request, xid));
    for discover in clients.iter().chain([&own]) {
        let server = offered_by(&socket, discover)?;
        if server.is_some() {
            return Ok(server);
        }
    }
    Ok(None)
}

/// The question of the machine with this Ethernet address; the offer goes to all, so that this one hears it.
fn discover(xid: u32, mac: [u8; 6]) -> Message {
    let mut discover = Message::request(MessageType::Discover, xid, mac);
    discover.flags = BROADCAST_FLAG;
    discover
}

/// The question of the client that sent `request`. What is offered is its own address or a free one, and it is not taken.
fn discover_as(request: &Message, xid: u32) -> Option<Message> {
    let mut discover = discover(xid, request.mac()?);
    // By which a server may know it (RFC 2131 section 4.2).
    if let Some(id) = request.options.get(option::CLIENT_ID) {
        discover.options.set(option::CLIENT_ID, id);
    }
    Some(discover)
}

/// The server that offers an address when it is asked so.
fn offered_by(socket: &UdpSocket, discover: &Message) -> io::Result<Option<Ipv4Addr>> {
    let servers = (Ipv4Addr::BROADCAST, SERVER_PORT).into();
    ask(socket, servers, &discover.emit(), |datagram, source| {
        let reply = Message::parse(datagram).ok()?;
        let SocketAddr::V4(source) = source else {
            return None;
        };
        let named = reply.options.address(option::SERVER_ID);
        offers(&reply, discover).then(|| named.unwrap_or(*source.ip()))
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
    fn a_client_is_asked_for_as_its_server_knows_it() {
        let mac = [2, 0, 0, 0, 0, 9];
        let mut request = Message::request(MessageType::Request, 7, mac);
        let options = &mut request.options;
        options.set(option::CLIENT_ID, b"client");
        options.set_addresses(option::SERVER_ID, &[Ipv4Addr::new(10, 0, 0, 2)]);
        options.set_addresses(option::REQUESTED_ADDRESS, &[Ipv4Addr::new(10, 0, 0, 9)]);
        let mut expected = discover(8, mac);
        expected.options.set(option::CLIENT_ID, b"client");
        assert_eq!(discover_as(&request, 8), Some(expected.clone()));
        assert!(expected.wants_broadcast());
        assert_eq!(expected.message_type(), Some(MessageType::Discover));
        request.hardware_type = 6;
        assert_eq!(discover_as(&request, 8), None);
    }

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
