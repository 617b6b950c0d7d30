//! Bodies of the fuzz targets: what must hold for any datagram. Each panics when it does not.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use wireboot_wire::dhcp::{Message, MessageType, Operation};
use wireboot_wire::dhcpv6;
use wireboot_wire::tftp::{self, Packet, TransferOptions};

use crate::dhcp::{Answers, Responder};
use crate::directory::Directory;
use crate::http::{Body, Head, Response};
use crate::ports::Port;
use crate::tftp::{Action, Sender, TftpAnswer, acknowledgement, agree, answer};

pub use crate::station::fuzz::fuzz_card_serve;

/// Size of the file in the TFTP part, in bytes.
const FILE: u64 = 100_000;

/// Requests to the DHCP, DHCPv6 and TFTP servers.
///
/// The first byte chooses the server; the rest is datagrams, each behind its length in two bytes.
pub fn fuzz_server_packets(data: &[u8]) {
    let Some((choice, mut rest)) = data.split_first() else {
        return;
    };
    let mut datagrams = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (datagram, after) = after.split_at(length);
        datagrams.push(datagram);
        rest = after;
    }
    match choice % 5 {
        0 => dhcp(&datagrams, false),
        1 => dhcp(&datagrams, true),
        2 => tftp(&datagrams),
        3 => dhcpv6(&datagrams, false),
        _ => dhcpv6(&datagrams, true),
    }
}

/// What comes on a connection to the HTTP server.
///
/// Every whole head gets a response whose own head parses, with a part that lies within its file; what follows is the next head.
pub fn fuzz_http_request(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((request, length))) = Head::parse(rest) {
        assert!(
            0 < length && length <= rest.len(),
            "a head of {length} bytes"
        );
        rest = rest.get(length..).unwrap_or_default();
        let response = Response::to(&request, served());
        if let Body::Part(content, range) = &response.body {
            assert!(range.start <= range.end && range.end <= content.len());
        }
        let head = response.head(request.close);
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Response::new(&mut fields);
        assert_eq!(
            parsed.parse(head.as_bytes()),
            Ok(httparse::Status::Complete(head.len())),
            "{head}"
        );
    }
}

/// Every Linux has it, and it holds no file that opening could do anything to.
fn served() -> &'static Arc<Directory> {
    static DIRECTORY: OnceLock<Arc<Directory>> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let opened = Directory::open(Path::new("/sys/class"), None);
        Arc::new(opened.expect("/sys is not mounted"))
    })
}

/// Every answer is a reply that parses, fits an Ethernet frame and gives only addresses of the range.
fn dhcp(datagrams: &[&[u8]], proxy: bool) {
    let range = Ipv4Addr::new(10, 0, 0, 2)..=Ipv4Addr::new(10, 0, 0, 9);
    let mut responder = Responder::new(Answers {
        server: Ipv4Addr::new(10, 0, 0, 1),
        own: Vec::new(),
        prefix: 24,
        range: (!proxy).then(|| range.clone()),
        router: Some(Ipv4Addr::new(10, 0, 0, 254)),
        dns: vec![Ipv4Addr::new(10, 0, 0, 253)],
        directory: served().clone(),
        tftp: true,
        http: Some("http://10.0.0.1".to_owned()),
    });
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 5), 68);
    let mut now = Instant::now();
    for datagram in datagrams {
        for port in [Port::Server, Port::Pxe] {
            let (Some(reply), _) = responder.answer(datagram, source, port, now) else {
                continue;
            };
            let request = Message::parse(datagram).expect("only messages are answered");
            assert_eq!(
                request.operation,
                Operation::Request,
                "a reply was answered"
            );
            let answer = Message::parse(&reply.message.emit()).expect("the answer is malformed");
            assert_eq!(answer.operation, Operation::Reply);
            assert_eq!((answer.xid, &answer.chaddr), (request.xid, &request.chaddr));
            let address = answer.yiaddr;
            assert!(address.is_unspecified() || (!proxy && range.contains(&address)));
            let gives = answer.message_type() == Some(MessageType::Offer) && !proxy;
            assert!(!gives || !address.is_unspecified(), "an offer of nothing");
        }
        now += Duration::from_secs(10);
    }
}

/// Every answer is a server's message that parses and gives only addresses of the range.
fn dhcpv6(datagrams: &[&[u8]], stateless: bool) {
    use dhcpv6::MessageType::{Advertise, Reply};
    let range =
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)..=Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
    let server_id = dhcpv6::duid::from_mac([2, 0, 0, 0, 0, 1]);
    let mut responder = crate::dhcpv6::Responder::new(crate::dhcpv6::Answers {
        server_id: server_id.to_vec(),
        server: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        own: Vec::new(),
        link_local: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
        prefix: 64,
        range: (!stateless).then(|| range.clone()),
        dns: vec![Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x53)],
        directory: served().clone(),
        tftp: true,
        http: Some("http://[fd00::1]".to_owned()),
    });
    let source = SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7), 546, 0, 1);
    let mut now = Instant::now();
    for datagram in datagrams {
        for port in [Port::Server, Port::Pxe] {
            let (Some(reply), _) = responder.answer(datagram, source, port, now) else {
                continue;
            };
            let request = dhcpv6::Message::parse(datagram).expect("only messages are answered");
            let answer = dhcpv6::Message::parse(&reply).expect("the answer is malformed");
            assert!(matches!(answer.kind, Advertise | Reply));
            assert_eq!(answer.transaction_id, request.transaction_id);
            assert_eq!(answer.options.server_id(), Some(server_id.as_slice()));
            assert_eq!(answer.options.client_id(), request.options.client_id());
            let given = answer
                .options
                .ia_na()
                .flat_map(|ia| ia.options.ia_addresses());
            for one in given.filter(|one| one.valid_lifetime > 0) {
                assert!(!stateless && range.contains(&one.address));
            }
        }
        now += Duration::from_secs(10);
    }
}

/// A request gets terms within the limits; whatever follows it, only blocks of the file within the window are sent.
fn tftp(datagrams: &[&[u8]]) {
    let mut now = Instant::now();
    let mut datagrams = datagrams.iter();
    let Some(first) = datagrams.next() else {
        return;
    };
    let asked = match answer(first, served()) {
        TftpAnswer::Refuse { code, text, .. } => {
            let mut packet = Vec::new();
            let error = Packet::Error {
                code,
                text: text.as_bytes(),
            };
            error.emit(&mut packet);
            assert_eq!(Packet::parse(&packet), Ok(error));
            TransferOptions::default()
        }
        TftpAnswer::Serve(request, _) => TransferOptions::from_request(request.options),
        TftpAnswer::Ignore => match Packet::parse(first) {
            Ok(Packet::Oack(options)) => TransferOptions::from_request(options),
            _ => TransferOptions::default(),
        },
    };
    let (terms, granted) = agree(asked, FILE, 1468, 512);
    assert!((8..=1468).contains(&terms.block_size) && (1..=512).contains(&terms.window));
    assert!(
        asked
            .block_size
            .is_none_or(|wanted| terms.block_size <= wanted)
    );
    assert!(
        asked
            .window_size
            .is_none_or(|wanted| terms.window <= wanted)
    );
    assert!(matches!(
        Packet::parse(&acknowledgement(granted)),
        Ok(Packet::Oack(_))
    ));
    let mut sender = Sender::new(terms, now);
    let last = FILE / u64::from(terms.block_size) + 1;
    for datagram in datagrams {
        for _ in 0..4 {
            match sender.next_action(now) {
                Action::SendOptions => sender.sent(0, now),
                Action::Send { first, count } => {
                    assert!(first >= 1 && count >= 1 && first + count - 1 <= last);
                    assert!(count <= u64::from(terms.window));
                    assert!(sender.offset(last) + sender.length(last) as u64 == FILE);
                    let packet = tftp::data_header(Sender::wire_number(first));
                    assert!(matches!(Packet::parse(&packet), Ok(Packet::Data { .. })));
                    sender.sent(count.min(44), now);
                }
                Action::Wait(until) => now = now.max(until),
                Action::Ended(_) => return,
            }
        }
        sender.receive(datagram, now);
        assert!(sender.acknowledged_bytes() <= FILE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wireboot_wire::dhcp::option;

    fn case(choice: u8, datagrams: &[Vec<u8>]) -> Vec<u8> {
        let mut data = vec![choice];
        for datagram in datagrams {
            data.extend((datagram.len() as u16).to_be_bytes());
            data.extend(datagram);
        }
        data
    }

    prop_compose! {
        fn dhcp_request()(
            kind in 0u8..9,
            client in 0u8..4,
            fields in any::<(u16, [u8; 4], [u8; 4])>(),
            options in prop::collection::vec((prop::sample::select(vec![
                option::REQUESTED_ADDRESS, option::SERVER_ID, option::VENDOR_CLASS, option::USER_CLASS,
                option::ARCHITECTURE, option::MACHINE_ID, option::RELAY_AGENT,
            ]), prop_oneof![
                (0u8..12).prop_map(|last| vec![10, 0, 0, last]),
                Just(b"PXEClient:Arch:00007".to_vec()), Just(b"HTTPClient".to_vec()), Just(b"wireboot".to_vec()),
                (0u8..20).prop_map(|architecture| vec![0, architecture]),
                prop::collection::vec(any::<u8>(), 0..40),
            ]), 0..6),
            near in any::<bool>(),
        ) -> Vec<u8> {
            let mut message = Message::request(MessageType::Discover, 9, [2, 0, 0, 0, 0, client]);
            message.options.set(option::MESSAGE_TYPE, [kind]);
            message.flags = fields.0;
            if !near {
                message.ciaddr = fields.1.into();
                message.giaddr = fields.2.into();
            }
            for (code, value) in options {
                message.options.set(code, value);
            }
            message.emit()
        }
    }

    prop_compose! {
        fn dhcpv6_request()(
            kind in prop::sample::select(vec![
                dhcpv6::MessageType::Solicit, dhcpv6::MessageType::Request, dhcpv6::MessageType::Confirm, dhcpv6::MessageType::Renew,
                dhcpv6::MessageType::Rebind, dhcpv6::MessageType::Release, dhcpv6::MessageType::Decline,
                dhcpv6::MessageType::InformationRequest, dhcpv6::MessageType::Reply,
            ]),
            client in 0u8..4,
            to_server in any::<bool>(),
            associations in prop::collection::vec((0u32..3, prop::collection::vec(0u16..12, 0..3)), 0..3),
            options in prop::collection::vec((1u16..65, prop::collection::vec(any::<u8>(), 0..30)), 0..4),
            boots in prop::sample::select(vec!["", "PXEClient", "HTTPClient"]),
            architecture in 0u16..20,
        ) -> Vec<u8> {
            use wireboot_wire::dhcpv6::option::{self, IaAddress, IaNa};
            let mut writer = dhcpv6::Writer::new(kind, 9);
            writer.option(option::CLIENT_ID, dhcpv6::duid::from_mac([2, 0, 0, 0, 0, client]));
            if to_server {
                writer.option(option::SERVER_ID, dhcpv6::duid::from_mac([2, 0, 0, 0, 0, 1]));
            }
            for (iaid, addresses) in associations {
                let ia = IaNa { iaid, t1: 0, t2: 0, options: dhcpv6::Options::default() };
                writer.ia_na(&ia, |inner| for last in addresses {
                    let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
                    let options = dhcpv6::Options::default();
                    inner.ia_address(&IaAddress { address, preferred_lifetime: 0, valid_lifetime: 0, options });
                });
            }
            for (code, value) in options {
                writer.option(code, value);
            }
            if !boots.is_empty() {
                writer.vendor_class(343, &[boots]).words(option::ARCHITECTURE, &[architecture]);
            }
            writer.finish()
        }
    }

    proptest! {
        #[test]
        fn dhcpv6_conversations(choice in 3u8..5, datagrams in prop::collection::vec(dhcpv6_request(), 0..20)) {
            fuzz_server_packets(&case(choice, &datagrams));
        }

        #[test]
        fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..600)) {
            fuzz_server_packets(&data);
        }

        #[test]
        fn http_conversations(
            requests in prop::collection::vec(("[A-Z]{1,4}|GET|HEAD", "[!-~]{1,20}|/net/lo/mtu", prop::collection::vec(("[A-Za-z-]{1,12}|Range|If-Range", "[ -~]{0,20}|bytes=[0-9]{0,3}-[0-9]{0,3}"), 0..4)), 0..4),
            junk in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut data = Vec::new();
            for (method, target, fields) in requests {
                let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                data.extend(format!("{method} {target} HTTP/1.1\r\n{fields}\r\n").into_bytes());
            }
            data.extend(junk);
            fuzz_http_request(&data);
        }

        #[test]
        fn dhcp_conversations(choice in 0u8..2, datagrams in prop::collection::vec(dhcp_request(), 0..20)) {
            fuzz_server_packets(&case(choice, &datagrams));
        }

        #[test]
        fn tftp_conversations(
            options in prop::collection::vec((prop::sample::select(vec!["blksize", "windowsize", "slide", "tsize", "timeout"]), 0u32..70_000), 0..4),
            name in "[a-z./]{0,12}",
            answers in prop::collection::vec((3u8..6, 0u16..200), 0..50),
        ) {
            let options: String = options.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
            let mut datagrams = vec![[b"\0\x01", name.as_bytes(), b"\0octet\0", options.as_bytes()].concat()];
            for (opcode, number) in answers {
                let [a, b] = number.to_be_bytes();
                datagrams.push(vec![0, opcode, a, b]);
            }
            fuzz_server_packets(&case(2, &datagrams));
        }
    }
}
