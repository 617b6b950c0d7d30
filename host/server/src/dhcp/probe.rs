//! Is there a DHCP server already? Two that give addresses in one network harm everybody in it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wireboot_wire::dhcp::{CLIENT_PORT, Message, MessageType, Operation, SERVER_PORT, option};

use super::socket::bound;
use crate::interface::Interface;

/// How long an answer is waited for. Servers that first make sure that an address is unused take about a second.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);
const BROADCAST_FLAG: u16 = 0x8000;

/// A DHCP server that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherServer {
    /// Its address.
    pub address: Ipv4Addr,
}

/// Asks on `interface` for an address, and takes none. A proxyDHCP server does not count.
///
/// # Errors
/// When the question cannot be asked.
pub fn find_other_server(interface: &Interface) -> io::Result<Option<OtherServer>> {
    // A DHCP client on this machine may hold the port; broadcasts reach both.
    let socket = bound(interface, CLIENT_PORT, true)?;
    let mac = interface.mac.unwrap_or([2, 0, 0, 0, 0, 1]);
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut discover = Message::request(MessageType::Discover, clock.subsec_nanos(), mac);
    discover.flags = BROADCAST_FLAG;
    let began = Instant::now();
    let mut asked = 0;
    let mut buffer = [0; 2048];
    loop {
        let elapsed = began.elapsed();
        if elapsed >= PATIENCE {
            return Ok(None);
        }
        if elapsed >= ASK_EVERY * asked {
            socket.send_to(&discover.emit(), (Ipv4Addr::BROADCAST, SERVER_PORT))?;
            asked += 1;
        }
        let wait = (ASK_EVERY * asked)
            .min(PATIENCE)
            .saturating_sub(began.elapsed());
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let Ok((length, SocketAddr::V4(source))) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let Ok(reply) = Message::parse(buffer.get(..length).unwrap_or_default()) else {
            continue;
        };
        let answers_us = reply.operation == Operation::Reply && reply.xid == discover.xid;
        if answers_us
            && reply.message_type() == Some(MessageType::Offer)
            && !reply.yiaddr.is_unspecified()
        {
            let address = reply
                .options
                .address(option::SERVER_ID)
                .unwrap_or(*source.ip());
            return Ok(Some(OtherServer { address }));
        }
    }
}
