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

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long the interface may take until it has an address that can be sent from: it makes sure that nobody else has it.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(4);
/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Asks on `interface` for an address, and takes none. The server that advertises one.
///
/// # Errors
/// When the question cannot be asked.
pub fn another_gives_addresses(interface: &Interface) -> io::Result<Option<Ipv6Addr>> {
    let socket = bound(interface, Ipv6Addr::UNSPECIFIED, CLIENT_PORT)?;
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

    let began = Instant::now();
    while let Err(error) = socket.send_to(&solicit, servers) {
        if began.elapsed() >= ADDRESS_PATIENCE {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let began = Instant::now();
    let mut asked = 1;
    let mut buffer = [0; 2048];
    loop {
        let elapsed = began.elapsed();
        if elapsed >= PATIENCE {
            return Ok(None);
        }
        if elapsed >= ASK_EVERY * asked {
            socket.send_to(&solicit, servers)?;
            asked += 1;
        }
        let wait = (ASK_EVERY * asked)
            .min(PATIENCE)
            .saturating_sub(began.elapsed());
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let Ok((length, SocketAddr::V6(source))) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let Ok(reply) = Message::parse(buffer.get(..length).unwrap_or_default()) else {
            continue;
        };
        let mut addresses = reply
            .options
            .ia_na()
            .flat_map(|ia| ia.options.ia_addresses());
        if reply.transaction_id == transaction_id
            && reply.kind == MessageType::Advertise
            && addresses.next().is_some()
        {
            return Ok(Some(*source.ip()));
        }
    }
}
