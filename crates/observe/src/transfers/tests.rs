use super::*;
use crate::{Content, Frame, LinkType};
use alloc::vec;
use etherparse::{Ethernet2Header, IpHeaders, PacketBuilder, PacketBuilderStep, TcpOptionElement};
use wireboot_report::network::Outcome;

#[derive(Clone, Copy)]
enum IpVersion {
    V4,
    V6,
}

/// A frame's headers up to IP, from or to the client.
fn ip(version: IpVersion, from_client: bool) -> PacketBuilderStep<IpHeaders> {
    let ethernet: PacketBuilderStep<Ethernet2Header> = PacketBuilder::ethernet2([2; 6], [4; 6]);
    match version {
        IpVersion::V4 if from_client => ethernet.ipv4([10, 77, 0, 2], [10, 77, 0, 1], 64),
        IpVersion::V4 => ethernet.ipv4([10, 77, 0, 1], [10, 77, 0, 2], 64),
        IpVersion::V6 if from_client => ethernet.ipv6([0xfd; 16], [0xfc; 16], 64),
        IpVersion::V6 => ethernet.ipv6([0xfc; 16], [0xfd; 16], 64),
    }
}

/// A packet each tenth of a second, of which the capture has `snap` bytes.
fn seen(packets: &[Vec<u8>], snap: usize) -> Vec<Transfer> {
    let mut transfers = Transfers::default();
    for (packet, tenths) in packets.iter().zip(0..) {
        let kept = packet.get(..snap).unwrap_or(packet);
        if let Content::Ip(ip) = Frame::parse(LinkType::Ethernet, kept).unwrap().content {
            transfers.packet(f64::from(tenths) / 10.0, &ip);
        }
    }
    transfers.finish()
}

fn udp(
    version: IpVersion,
    from_client: bool,
    client_port: u16,
    server_port: u16,
    payload: &[u8],
) -> Vec<u8> {
    let ip = ip(version, from_client);
    let builder = if from_client {
        ip.udp(client_port, server_port)
    } else {
        ip.udp(server_port, client_port)
    };
    let mut packet = Vec::new();
    builder.write(&mut packet, payload).unwrap();
    packet
}

fn data(version: IpVersion, number: u16, length: usize) -> Vec<u8> {
    let mut payload = vec![0, 3];
    payload.extend(number.to_be_bytes());
    payload.resize(4 + length, 0);
    udp(version, false, 2000, 3000, &payload)
}

#[test]
fn a_tftp_transfer_counts_each_block_once() {
    tftp_counts_each_block_once(IpVersion::V4);
    tftp_counts_each_block_once(IpVersion::V6);
}

fn tftp_counts_each_block_once(version: IpVersion) {
    let packets = [
        udp(
            version,
            true,
            2000,
            69,
            b"\0\x01kernel\0octet\0windowsize\x004\0",
        ),
        udp(
            version,
            true,
            2000,
            69,
            b"\0\x01kernel\0octet\0windowsize\x004\0",
        ),
        udp(version, false, 2000, 3000, b"\0\x06windowsize\x004\0"),
        udp(version, true, 2000, 3000, b"\0\x04\0\0"),
        data(version, 1, 512),
        data(version, 2, 512),
        data(version, 2, 512),
        data(version, 3, 100),
        udp(version, true, 2000, 3000, b"\0\x04\0\x03"),
    ];
    let transfers = seen(&packets, 80);
    let [transfer] = transfers.as_slice() else {
        panic!("{transfers:?}")
    };
    assert_eq!(
        (transfer.protocol, transfer.file.as_str()),
        (Protocol::Tftp, "kernel")
    );
    assert_eq!(
        (transfer.bytes, transfer.data_packets, transfer.repeated),
        (1124, 4, 1)
    );
    assert_eq!(transfer.granted, "windowsize=4");
    assert_eq!(transfer.client_port(), Some(2000));
    assert!(
        (transfer.seconds() - 0.8).abs() < 1e-6,
        "{}",
        transfer.seconds()
    );
}

fn tcp(
    version: IpVersion,
    from_client: bool,
    sequence: u32,
    acknowledgment: u32,
    syn: bool,
    payload: &[u8],
) -> Vec<u8> {
    let ip = ip(version, from_client);
    let mut builder = if from_client {
        ip.tcp(40000, 80, sequence, 65535)
    } else {
        ip.tcp(80, 40000, sequence, 65535)
    };
    builder = builder.ack(acknowledgment);
    if syn {
        builder = builder
            .syn()
            .options(&[TcpOptionElement::MaximumSegmentSize(1000)])
            .unwrap();
    }
    let mut packet = Vec::new();
    builder.write(&mut packet, payload).unwrap();
    packet
}

#[test]
fn an_http_transfer_ends_with_the_ack_of_its_last_byte() {
    http_ends_with_the_ack_of_its_last_byte(IpVersion::V4);
    http_ends_with_the_ack_of_its_last_byte(IpVersion::V6);
}

fn http_ends_with_the_ack_of_its_last_byte(version: IpVersion) {
    // The server's numbers wrap in the middle of the response.
    let start = u32::MAX - 1500;
    let packets = [
        tcp(version, true, 99, 0, true, b""),
        tcp(version, false, start.wrapping_sub(1), 100, true, b""),
        tcp(
            version,
            true,
            100,
            start,
            false,
            b"GET /linux HTTP/1.1\r\n\r\n",
        ),
        tcp(version, false, start, 123, false, &[0; 2500]),
        tcp(version, true, 123, start.wrapping_add(2500), false, b""),
        tcp(
            version,
            false,
            start.wrapping_add(2500),
            123,
            false,
            &[0; 500],
        ),
        tcp(
            version,
            false,
            start.wrapping_add(2500),
            123,
            false,
            &[0; 500],
        ),
        tcp(version, true, 123, start.wrapping_add(3000), false, b""),
        // The acknowledgement of a FIN is no byte's.
        tcp(version, true, 123, start.wrapping_add(3001), false, b""),
    ];
    let transfers = seen(&packets, 100);
    let [transfer] = transfers.as_slice() else {
        panic!("{transfers:?}")
    };
    assert_eq!(
        (transfer.protocol, transfer.file.as_str()),
        (Protocol::Http, "/linux")
    );
    assert_eq!(
        (transfer.bytes, transfer.data_packets, transfer.repeated),
        (3000, 5, 1)
    );
    assert!(
        (transfer.seconds() - 0.5).abs() < 1e-6,
        "{}",
        transfer.seconds()
    );
}

/// Options as they stand in a request.
fn options(
    version: IpVersion,
    from_client: bool,
    port: u16,
    head: &[u8],
    options: &str,
) -> Vec<u8> {
    let mut payload = head.to_vec();
    for word in options.split([' ', '=']) {
        payload.extend(word.as_bytes());
        payload.push(0);
    }
    udp(version, from_client, 2000, port, &payload)
}

const RRQ: &[u8] = b"\0\x01kernel\0octet\0";
const OACK: &[u8] = b"\0\x06";

fn one(packets: &[Vec<u8>]) -> Transfer {
    let transfers = seen(packets, 2000);
    let [transfer] = transfers.as_slice() else {
        panic!("{transfers:?}")
    };
    transfer.clone()
}

#[test]
fn each_end_of_a_tftp_transfer_is_told() {
    let v = IpVersion::V4;
    let request = options(v, true, 69, RRQ, "tsize=0 blksize=1024");
    let granted = options(v, false, 3000, OACK, "tsize=1030 blksize=1024");
    let ack = |number: u8| udp(v, true, 2000, 3000, &[0, 4, 0, number]);
    let error = |from_client| udp(v, from_client, 2000, 3000, b"\0\x05\0\x01not here\0");
    let whole = [
        request.clone(),
        granted.clone(),
        ack(0),
        data(v, 1, 1024),
        ack(1),
        data(v, 2, 6),
        ack(2),
    ];
    let transfer = one(&whole);
    assert_eq!(
        (transfer.outcome, transfer.bytes),
        (Outcome::Complete, 1030)
    );
    assert_eq!((transfer.block_bytes, transfer.window_blocks), (1024, 1));
    assert_eq!(transfer.asked, "tsize=0 blksize=1024");
    assert_eq!(transfer.granted, "tsize=1030 blksize=1024");
    // An error behind the end changes nothing.
    let late = [whole.as_slice(), &[error(true)]].concat();
    assert_eq!(one(&late).outcome, Outcome::Complete);
    assert_eq!(one(&whole[..6]).outcome, Outcome::Unfinished);
    let probe = [request.clone(), granted.clone(), error(true)];
    assert_eq!(one(&probe).outcome, Outcome::SizeProbe);
    let broken = [whole[..5].to_vec(), vec![error(true)]].concat();
    assert_eq!(one(&broken).outcome, Outcome::BrokenOff);
    let refused = one(&[request, error(false)]);
    assert_eq!(refused.outcome, Outcome::Refused);
    assert_eq!(refused.message.as_deref(), Some("not here"));
    assert!((refused.seconds() - 0.1).abs() < 1e-9);
}

#[test]
fn waits_are_the_servers_or_the_machines() {
    let v = IpVersion::V4;
    let ack = |number: u8| udp(v, true, 2000, 3000, &[0, 4, 0, number]);
    // A packet each tenth of a second.
    let transfer = one(&[
        options(v, true, 69, RRQ, "blksize=512"),
        data(v, 1, 512),
        ack(1),
        // Lost: the machine asks again, and its wait goes on.
        ack(1),
        ack(1),
        data(v, 2, 512),
        ack(2),
        data(v, 3, 0),
        ack(3),
    ]);
    assert_eq!(
        (transfer.outcome, transfer.bytes),
        (Outcome::Complete, 1024)
    );
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{transfer:?}");
    near(transfer.answer_delay_s().unwrap(), 0.1);
    near(transfer.server_wait_s, 0.3 + 0.1);
    near(transfer.shortest_server_wait_s.unwrap(), 0.1);
    near(transfer.client_wait_s, 0.3);
    near(transfer.shortest_client_wait_s.unwrap(), 0.1);
    assert_eq!((transfer.turns, transfer.server_stalls), (2, 1));
    near(transfer.server_stalled_s, 0.3);
    near(transfer.client_stalled_s, 0.0);
}

fn http(version: IpVersion, request: &[u8], response: &[u8], end: &[u8]) -> Transfer {
    let start = 1000;
    let behind = start + response.len() as u32;
    one(&[
        tcp(version, true, 99, 0, true, b""),
        tcp(version, false, start - 1, 100, true, b""),
        tcp(version, true, 100, start, false, request),
        tcp(version, false, start, 123, false, response),
        tcp(version, true, 123, behind, false, end),
    ])
}

#[test]
fn each_end_of_an_http_transfer_is_told() {
    let v = IpVersion::V4;
    let get = b"GET /linux HTTP/1.1\r\n\r\n";
    let whole = http(
        v,
        get,
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"",
    );
    assert_eq!((whole.outcome, whole.message), (Outcome::Complete, None));
    assert_eq!((whole.block_bytes, whole.window_bytes), (1000, 65535));
    let part = http(
        v,
        get,
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
        b"",
    );
    assert_eq!(part.outcome, Outcome::Unfinished);
    let gone = http(
        v,
        get,
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"",
    );
    assert_eq!(gone.outcome, Outcome::Refused);
    assert_eq!(gone.message.as_deref(), Some("HTTP/1.1 404 Not Found"));
    let head = http(
        v,
        b"HEAD /linux HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
        b"",
    );
    assert_eq!(
        (head.outcome, head.file.as_str()),
        (Outcome::Complete, "/linux (HEAD)")
    );
    // Nobody can say how long it is, until the next request on the connection.
    let endless = http(v, get, b"HTTP/1.1 200 OK\r\n\r\nhello", b"");
    assert_eq!(endless.outcome, Outcome::Unfinished);
}

#[test]
fn a_pause_of_the_machines_is_its_own() {
    let v = IpVersion::V4;
    let ack = |number: u8| udp(v, true, 2000, 3000, &[0, 4, 0, number]);
    let nothing = tcp(v, true, 1, 1, false, b"");
    let transfer = one(&[
        options(v, true, 69, RRQ, "blksize=512"),
        data(v, 1, 512),
        nothing.clone(),
        nothing.clone(),
        ack(1),
        data(v, 2, 0),
        ack(2),
    ]);
    assert!(
        (transfer.client_stalled_s - 0.3).abs() < 1e-9,
        "{transfer:?}"
    );
    assert_eq!(
        (transfer.server_stalls, transfer.server_stalled_s),
        (0, 0.0)
    );
}

/// A segment of the client's without data.
fn ack(acknowledgment: u32, window: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    ip(IpVersion::V4, true)
        .tcp(40000, 80, 123, window)
        .ack(acknowledgment)
        .write(&mut packet, &[])
        .unwrap();
    packet
}

#[test]
fn a_shut_window_is_the_machines_wait() {
    let v = IpVersion::V4;
    let nothing = udp(v, true, 1, 2, b"");
    let transfer = one(&[
        tcp(v, true, 100, 1000, false, b"GET /linux HTTP/1.1\r\n\r\n"),
        tcp(v, false, 1000, 123, false, &[0; 500]),
        ack(1500, 0),
        nothing.clone(),
        nothing.clone(),
        // The same number, and room again.
        ack(1500, 5000),
        tcp(v, false, 1500, 123, false, &[0; 500]),
        ack(2000, 5000),
    ]);
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{transfer:?}");
    // To the first acknowledgement, while the window was shut, to the last one.
    near(transfer.client_wait_s, 0.1 + 0.3 + 0.1);
    near(transfer.server_wait_s, 0.1);
    near(transfer.client_stalled_s, 0.3);
}

#[test]
fn servers_that_never_answer_are_told() {
    let v = IpVersion::V4;
    let request = options(v, true, 69, RRQ, "blksize=512");
    let transfer = one(&[request.clone(), request.clone(), request]);
    assert_eq!(
        (transfer.answer_s, transfer.outcome),
        (None, Outcome::Unfinished)
    );
    assert!((transfer.seconds() - 0.2).abs() < 1e-9);

    let syn = |ack: bool| {
        let mut packet = Vec::new();
        let segment = if ack {
            ip(v, false).tcp(80, 40000, 9, 65535).syn().ack(100)
        } else {
            ip(v, true).tcp(40000, 80, 99, 65535).syn()
        };
        segment.write(&mut packet, &[]).unwrap();
        packet
    };
    let transfer = one(&[syn(false), syn(false), syn(false)]);
    assert_eq!(
        (transfer.protocol, transfer.file.as_str()),
        (Protocol::Http, "port 80")
    );
    assert_eq!(
        (transfer.answer_s, transfer.server.as_str()),
        (None, "10.77.0.1")
    );
    assert!((transfer.seconds() - 0.2).abs() < 1e-9);
    assert_eq!(seen(&[syn(false), syn(true)], 100), []);
}

/// A SYN with a window scale, of the client's or with the server's answer.
fn syn(from_client: bool, shift: u8) -> Vec<u8> {
    let builder = ip(IpVersion::V4, from_client);
    let builder = if from_client {
        builder.tcp(40000, 80, 99, 100).syn()
    } else {
        builder.tcp(80, 40000, 999, 100).syn().ack(100)
    };
    let options = [
        TcpOptionElement::MaximumSegmentSize(1000),
        TcpOptionElement::WindowScale(shift),
    ];
    let mut packet = Vec::new();
    let builder = builder.options(&options).unwrap();
    builder.write(&mut packet, &[]).unwrap();
    packet
}

#[test]
fn windows_count_as_they_are_scaled() {
    let v = IpVersion::V4;
    let get = tcp(v, true, 100, 1000, false, b"GET /linux HTTP/1.1\r\n\r\n");
    let transfer = one(&[syn(true, 3), syn(false, 7), get.clone()]);
    assert_eq!(transfer.window_bytes, 65535 << 3);
    // Only where both ends scale.
    let plain = tcp(v, false, 999, 100, true, b"");
    assert_eq!(one(&[syn(true, 3), plain, get]).window_bytes, 65535);
}

#[test]
fn the_next_request_of_a_connection_ends_the_one_before() {
    let v = IpVersion::V4;
    let body = b"HTTP/1.1 200 OK\r\n\r\nhello";
    let behind = 1000 + body.len() as u32;
    let packets = [
        tcp(v, true, 100, 1000, false, b"GET /a HTTP/1.1\r\n\r\n"),
        tcp(v, false, 1000, 123, false, body),
        tcp(v, true, 123, behind, false, b""),
        tcp(v, true, 123, behind, false, b"GET /b HTTP/1.1\r\n\r\n"),
        tcp(v, true, 123, behind, false, b"GET /b HTTP/1.1\r\n\r\n"),
    ];
    let transfers = seen(&packets, 2000);
    let ends: Vec<_> = transfers
        .iter()
        .map(|one| (one.file.as_str(), one.outcome))
        .collect();
    assert_eq!(
        ends,
        [("/a", Outcome::Complete), ("/b", Outcome::Unfinished)]
    );
    assert_eq!(transfers[1].start_s, 0.3);
    // One that had no answer was broken off, not complete.
    let early = [&packets[..1], &packets[3..]].concat();
    assert_eq!(seen(&early, 2000)[0].outcome, Outcome::Unfinished);
}

#[test]
fn what_there_is_no_room_for_counts_nowhere_else() {
    let v = IpVersion::V4;
    let (get, body) = (b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nhello");
    let packets = (0..MOST as u32 + 9).flat_map(|number| {
        let ours = 100 + number * get.len() as u32;
        let theirs = 1000 + number * body.len() as u32;
        [
            tcp(v, true, ours, theirs, false, get),
            tcp(v, false, theirs, ours + get.len() as u32, false, body),
        ]
    });
    let transfers = seen(&packets.collect::<Vec<_>>(), 2000);
    assert_eq!(transfers.len(), MOST);
    let whole = |one: &Transfer| one.bytes == body.len() as u64;
    assert!(transfers.iter().all(whole), "{:?}", transfers.last());
}

#[test]
fn blocks_behind_a_gap_count_and_those_before_it_are_repetitions() {
    let v = IpVersion::V4;
    let transfer = one(&[
        options(v, true, 69, RRQ, "blksize=512"),
        data(v, 1, 512),
        data(v, 4, 512),
        data(v, 3, 512),
        data(v, 5, 0),
    ]);
    assert_eq!((transfer.bytes, transfer.repeated), (1024, 1));
    // A request to another port is no read by TFTP.
    assert_eq!(seen(&[options(v, true, 70, RRQ, "blksize=512")], 2000), []);
}
