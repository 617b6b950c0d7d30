//! Is there a DHCPv6 server already that gives addresses? Then this one gives none.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wireboot_wire::dhcpv6::option::{self, IaNa};
use wireboot_wire::dhcpv6::{
    ALL_SERVERS, CLIENT_PORT, Message, MessageType, Options, SERVER_PORT, Writer, duid,
};

use super::socket::bound;
use crate::interface::Interface;
use crate::ports::ask;

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
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let transaction_id = clock.subsec_nanos() & 0x00ff_ffff;
    let mut solicit = Writer::new(MessageType::Solicit, transaction_id);
    let mac = interface.mac.unwrap_or([2, 0, 0, 0, 0, 1]);
    solicit.option(option::CLIENT_ID, duid::from_mac(mac));
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

    let mut advertises = |datagram: &[u8], source: SocketAddr| {
        let reply = Message::parse(datagram).ok()?;
        let mut addresses = reply
            .options
            .ia_na()
            .flat_map(|ia| ia.options.ia_addresses());
        let gives = reply.transaction_id == transaction_id
            && reply.kind == MessageType::Advertise
            && addresses.next().is_some();
        match source {
            SocketAddr::V6(source) if gives => Some(*source.ip()),
            _ => None,
        }
    };
    let began = Instant::now();
    loop {
        match ask(&socket, servers.into(), &solicit, &mut advertises) {
            Err(_) if began.elapsed() < ADDRESS_PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}
