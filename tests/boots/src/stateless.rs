//! A computer that makes its address itself and asks DHCPv6 for the rest, as wireboot: what stock firmware cannot do.

use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use wireboot_lab::network::{INTERFACE, Station};

use crate::fixture::PATIENCE;

/// `All_DHCP_Relay_Agents_and_Servers`, and the ports of both sides (RFC 8415 section 7).
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const SERVER_PORT: u16 = 547;
const CLIENT_PORT: u16 = 546;

/// Message types and options (RFC 8415 sections 7.3 and 21, RFC 5970).
const REPLY: u8 = 7;
const INFORMATION_REQUEST: u8 = 11;
const OPTION_CLIENTID: u16 = 1;
const OPTION_ORO: u16 = 6;
const OPTION_ELAPSED_TIME: u16 = 8;
const OPTION_USER_CLASS: u16 = 15;
const OPT_BOOTFILE_URL: u16 = 59;

const TRANSACTION: [u8; 3] = [1, 2, 3];
/// DUID-UUID.
const CLIENT: [u8; 18] = [0, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];

/// What a computer on its own knows after a while.
pub(crate) struct Learnt {
    /// The address that it made by a router's advertisement.
    pub address: Ipv6Addr,
    /// The boot file that it is told as user class `wireboot`.
    pub boot_file: String,
}

/// Lets the station, which has no address, learn both.
pub(crate) fn learn(station: &Station) -> Result<Learnt> {
    std::thread::scope(|scope| {
        let learnt = scope.spawn(|| {
            station.enter()?;
            let (address, index) = own_address()?;
            let boot_file = ask(index)?;
            Ok(Learnt { address, boot_file })
        });
        learnt.join().ok().context("the station panicked")?
    })
}

/// The interface's address that is no longer tried out, and its number.
fn own_address() -> Result<(Ipv6Addr, u32)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let table = fs::read_to_string("/proc/thread-self/net/if_inet6")?;
        let found = table.lines().find_map(|line| {
            let [address, index, _length, scope, flags, name] =
                *line.split_whitespace().collect::<Vec<_>>()
            else {
                return None;
            };
            let tentative = u8::from_str_radix(flags, 16).ok()? & 0x40 != 0;
            let wanted = name == INTERFACE && scope == "00" && !tentative;
            let address = u128::from_str_radix(address, 16).ok()?;
            let index = u32::from_str_radix(index, 16).ok()?;
            wanted.then_some((address.into(), index))
        });
        if let Some(found) = found {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "no address: {table}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn ask(interface: u32) -> Result<String> {
    let mut message = vec![INFORMATION_REQUEST];
    message.extend(TRANSACTION);
    let user_class = [&[0, 8][..], b"wireboot"].concat();
    for (code, value) in [
        (OPTION_CLIENTID, &CLIENT[..]),
        (OPTION_ELAPSED_TIME, &[0, 0]),
        (OPTION_USER_CLASS, &user_class),
        (OPTION_ORO, &OPT_BOOTFILE_URL.to_be_bytes()),
    ] {
        message.extend(code.to_be_bytes());
        message.extend(u16::try_from(value.len())?.to_be_bytes());
        message.extend(value);
    }
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, CLIENT_PORT)).context("listening")?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let deadline = Instant::now() + PATIENCE;
    let mut buffer = [0; 2000];
    while Instant::now() < deadline {
        socket.send_to(
            &message,
            SocketAddrV6::new(SERVERS, SERVER_PORT, 0, interface),
        )?;
        let Ok(length) = socket.recv(&mut buffer) else {
            continue;
        };
        if let Some([REPLY, a, b, c, options @ ..]) = buffer.get(..length)
            && [*a, *b, *c] == TRANSACTION
        {
            let url = option(options, OPT_BOOTFILE_URL).context("an answer without boot file")?;
            return Ok(String::from_utf8(url.to_vec())?);
        }
    }
    anyhow::bail!("no answer to an Information-request")
}

fn option(mut options: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [c0, c1, l0, l1, rest @ ..] = options {
        let length = usize::from(u16::from_be_bytes([*l0, *l1]));
        let (value, rest) = rest.split_at_checked(length)?;
        if u16::from_be_bytes([*c0, *c1]) == wanted {
            return Some(value);
        }
        options = rest;
    }
    None
}
