//! Is there a DHCPv6 server already that gives addresses? Then this one gives none.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use wireboot_wire::dhcpv6::option::{self, IaNa};
use wireboot_wire::dhcpv6::{
    ALL_SERVERS, CLIENT_PORT, Message, MessageType, Options, SERVER_PORT, Writer, duid,
};

use super::socket::bound;
use crate::interface::Interface;
use crate::ports::{ask, random_id};

/// How long the interface may take until it has an address that can be sent from: it makes sure that nobody else has it.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(4);
/// Asks on `interface` for an address, and takes none. The server that advertises one.
///
/// # Errors
/// When the question cannot be asked.
pub fn another_gives_addresses(interface: &Interface) -> io::Result<Option<Ipv6Addr>> {
    let socket = bound(interface, Ipv6Addr::UNSPECIFIED, CLIENT_PORT)?;
    // Not to this server itself.
    socket.set_multicast_loop_v6(false)?;
    let transaction_id = random_id()? & 0x00ff_ffff;
    let mut solicit = Writer::new(MessageType::Solicit, transaction_id);
    let mac = interface.mac.unwrap_or([2, 0, 0, 0, 0, 1]);
    let client_id = duid::from_mac(mac);
    solicit.option(option::CLIENT_ID, client_id);
    let ia = IaNa {
        iaid: 1,
        t1: 0,
        t2: 0,
        options: Options::default(),
    };
    solicit
        .ia_na(&ia, |_| {})
        .option(option::ELAPSED_TIME, [0, 0]);
    let solicit = solicit.finish();
    let servers = SocketAddrV6::new(ALL_SERVERS, SERVER_PORT, 0, interface.index);

    let mut answer = |datagram: &[u8], source: SocketAddr| {
        let reply = Message::parse(datagram).ok()?;
        let SocketAddr::V6(source) = source else {
            return None;
        };
        let asked = (transaction_id, client_id.as_slice());
        advertises(&reply, asked, *source.ip()).then_some(*source.ip())
    };
    let began = Instant::now();
    loop {
        match ask(&socket, servers.into(), &solicit, &mut answer) {
            Err(_) if began.elapsed() < ADDRESS_PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

/// Whether `reply` from `source` advertises an address to the client that asked with this transaction id and DUID. A server of this link
/// answers a link-local address from its own (RFC 8415 section 18.3.10); nothing from one comes through a router.
fn advertises(
    reply: &Message<'_>,
    (transaction_id, client_id): (u32, &[u8]),
    source: Ipv6Addr,
) -> bool {
    let options = reply.options;
    reply.kind == MessageType::Advertise
        && reply.transaction_id == transaction_id
        && source.is_unicast_link_local()
        && options.client_id() == Some(client_id)
        && options.server_id().is_some()
        && options
            .ia_na()
            .any(|ia| ia.options.ia_addresses().next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_wire::dhcpv6::option::IaAddress;

    const ASKED: (u32, &[u8]) = (7, b"client");

    /// An Advertise of `id` for `client`, with a server's DUID and with an address, or without.
    fn advertise(kind: MessageType, id: u32, client: &[u8], server: bool, gives: bool) -> Vec<u8> {
        let mut message = Writer::new(kind, id);
        message.option(option::CLIENT_ID, client);
        if server {
            message.option(option::SERVER_ID, b"server");
        }
        let options = Options::default();
        let (iaid, t1, t2) = (1, 0, 0);
        let ia = IaNa {
            iaid,
            t1,
            t2,
            options,
        };
        message.ia_na(&ia, |message| {
            if gives {
                message.ia_address(&IaAddress {
                    address: "fd00::9".parse().unwrap(),
                    preferred_lifetime: 60,
                    valid_lifetime: 60,
                    options,
                });
            }
        });
        message.finish()
    }

    #[test]
    fn an_address_that_a_server_of_the_link_advertises_to_us_counts() {
        use MessageType::{Advertise, Reply};
        let link_local = "fe80::1".parse().unwrap();
        let right = advertise(Advertise, 7, b"client", true, true);
        let taken =
            |message: &[u8], source| advertises(&Message::parse(message).unwrap(), ASKED, source);
        assert!(taken(&right, link_local));
        assert!(!taken(&right, "2001:db8::1".parse().unwrap()));
        for other in [
            advertise(Reply, 7, b"client", true, true),
            advertise(Advertise, 8, b"client", true, true),
            advertise(Advertise, 7, b"other", true, true),
            advertise(Advertise, 7, b"client", false, true),
            advertise(Advertise, 7, b"client", true, false),
        ] {
            assert!(!taken(&other, link_local), "{other:x?}");
        }
    }
}
