//! A name server that takes its time, for the one name of a boot file's URL.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use wireboot_lab::background::Background;

/// The name, as a URL has it.
pub(super) const NAME: &str = "boot.example";
/// Until it answers. EDK II's firmware gives up soon after 1.7 s.
const TAKES: Duration = Duration::from_secs(1);
/// How soon it notices that it is to end.
const LOOKS: Duration = Duration::from_millis(100);
const PORT: u16 = 53;

/// RFC 1035, section 4.1.1: bytes of a message's head; a response, to who wanted recursion, where it was available; one answer.
const HEAD: usize = 12;
const RESPONSE: [u8; 2] = [0x81, 0x80];
/// Section 4.1.4: the name of the question.
const SAME_NAME: [u8; 2] = [0xc0, HEAD as u8];
/// RFC 3596, section 2.1: type AAAA, class IN.
const AAAA: [u8; 4] = [0, 28, 0, 1];

/// Answers who asks for [`NAME`]'s address, until it is dropped.
///
/// # Errors
/// When the port cannot be opened.
pub(super) fn serve(address: Ipv6Addr) -> Result<Background> {
    let socket = UdpSocket::bind((address, PORT)).context("opening the port of name servers")?;
    serve_on(socket, address, TAKES)
}

/// The same on a socket, each answer after so long.
fn serve_on(socket: UdpSocket, address: Ipv6Addr, takes: Duration) -> Result<Background> {
    socket
        .set_read_timeout(Some(LOOKS))
        .context("setting a socket's patience")?;
    Ok(Background::start(move |pauses| {
        let mut query = [0; 512];
        let mut answered = None;
        // Whatever keeps it from receiving, it goes on until it is dropped.
        while pauses.pause(Duration::ZERO) {
            let Ok((bytes, client)) = socket.recv_from(&mut query) else {
                continue;
            };
            let Some(answer) = query.get(..bytes).and_then(|query| answer(query, address)) else {
                continue;
            };
            // Who has asked again meanwhile has its answer.
            let this = (client, answer.first_chunk::<2>().copied());
            if answered == Some(this) {
                continue;
            }
            answered = Some(this);
            if !pauses.pause(takes) {
                return;
            }
            // A machine that is gone asks no more.
            let _ = socket.send_to(&answer, client);
        }
    }))
}

/// The answer to a query; `None` where that does not ask for [`NAME`]'s address.
fn answer(query: &[u8], address: Ipv6Addr) -> Option<Vec<u8>> {
    let labels = NAME.split('.').flat_map(|label| {
        let length = u8::try_from(label.len()).unwrap_or_default();
        [&[length], label.as_bytes()].concat()
    });
    let question: Vec<u8> = labels.chain([0]).chain(AAAA).collect();
    let (head, rest) = query.split_at_checked(HEAD)?;
    let asked = rest.get(..question.len())?;
    if !asked.eq_ignore_ascii_case(&question) {
        return None;
    }
    let id = head.first_chunk::<2>()?;
    // One question and one answer.
    let counts = [0, 1, 0, 1, 0, 0, 0, 0];
    // For a minute, 16 bytes.
    let validity = [0, 0, 0, 60, 0, 16];
    Some(
        [
            &id[..],
            &RESPONSE,
            &counts,
            asked,
            &SAME_NAME,
            &AAAA,
            &validity,
            &address.octets(),
        ]
        .concat(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `dig AAAA boot.example` asks, without EDNS.
    const QUERY: &[u8] =
        b"\x12\x34\x01\x20\x00\x01\x00\x00\x00\x00\x00\x00\x04boot\x07example\x00\x00\x1c\x00\x01";

    #[test]
    fn the_name_has_the_servers_address() {
        let address = "fd00:77::1".parse().unwrap();
        let answer = answer(QUERY, address).unwrap();
        let expected = b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x04boot\x07example\x00\x00\x1c\x00\x01\
            \xc0\x0c\x00\x1c\x00\x01\x00\x00\x00\x3c\x00\x10\xfd\x00\x00\x77\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01";
        assert_eq!(answer, expected);
    }

    #[test]
    fn nothing_else_is_answered() {
        let address = Ipv6Addr::LOCALHOST;
        assert!(answer(&[], address).is_none());
        for bytes in 0..QUERY.len() {
            assert!(answer(&QUERY[..bytes], address).is_none(), "{bytes}");
        }
        let mut other = QUERY.to_vec();
        other[14] = b'x';
        assert!(answer(&other, address).is_none());
        // The address of version 4.
        let mut other = QUERY.to_vec();
        other[QUERY.len() - 3] = 1;
        assert!(answer(&other, address).is_none());
        // Names are the same in capitals.
        assert!(answer(&QUERY.to_ascii_uppercase(), address).is_some());
    }

    #[test]
    fn who_asks_again_meanwhile_gets_one_answer_and_who_asks_nonsense_none() {
        let server = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let client = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let _server = serve_on(server, Ipv6Addr::LOCALHOST, Duration::from_millis(20)).unwrap();
        let mut next = QUERY.to_vec();
        next[1] = 0x35;
        for query in [&QUERY[..9], QUERY, QUERY, &next, QUERY] {
            client.send(query).unwrap();
        }
        let mut answer = [0; 512];
        let ids = [(); 3].map(|()| {
            client.recv(&mut answer).unwrap();
            answer[1]
        });
        // The first asks once more when it has its answer: that may be a lost one.
        assert_eq!(ids, [0x34, 0x35, 0x34]);
    }
}
