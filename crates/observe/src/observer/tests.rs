use super::*;
use crate::Clients;
use alloc::vec;
use etherparse::PacketBuilder;
use std::string::String;
use wireboot_report::PhaseKind;
use wireboot_report::network::{Outcome, VendorOptions};
use wireboot_wire::dhcp::{Message, MessageType, option};
use wireboot_wire::tftp;

const MACHINE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const SERVER: [u8; 4] = [10, 0, 0, 1];
const ADDRESS: [u8; 4] = [10, 0, 0, 50];
const BEGAN: f64 = 1_700_000_000.0;

/// A datagram in a frame.
fn frame(from: (Mac, [u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.0.0, [0xff; 6])
        .ipv4(from.1, to.0, 64)
        .udp(from.2, to.1)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

/// What the machine asks by DHCP.
fn ask(kind: MessageType, xid: u32, change: impl Fn(&mut Message)) -> Vec<u8> {
    let mut message = Message::request(kind, xid, MACHINE.0);
    message
        .options
        .set(option::VENDOR_CLASS, b"PXEClient:Arch:00007:UNDI:003000");
    message.options.set(option::ARCHITECTURE, [0, 7]);
    change(&mut message);
    frame((MACHINE, [0; 4], 68), ([255; 4], 67), &message.emit())
}

/// What a server answers to it.
fn answer(kind: MessageType, xid: u32, change: impl Fn(&mut Message)) -> Vec<u8> {
    let request = Message::request(MessageType::Discover, xid, MACHINE.0);
    let mut message = Message::reply(kind, &request);
    message.yiaddr = ADDRESS.into();
    message.options.set(option::SERVER_ID, SERVER);
    message.file = b"shimx64.efi".to_vec();
    change(&mut message);
    frame((SERVER_MAC, SERVER, 67), ([255; 4], 68), &message.emit())
}

fn tftp(from_machine: bool, port: u16, packet: &tftp::Packet<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    packet.emit(&mut payload);
    let (machine, server) = ((MACHINE, ADDRESS, 2000), (SERVER_MAC, SERVER, port));
    if from_machine {
        frame(machine, (SERVER, port), &payload)
    } else {
        frame(server, (ADDRESS, 2000), &payload)
    }
}

fn read_request<'a>(file: &'a str, options: &'a [u8]) -> tftp::Packet<'a> {
    tftp::Packet::Rrq(tftp::Request {
        filename: file,
        mode: "octet",
        options: tftp::Options::new(options),
    })
}

fn report(frames: &[(f64, Vec<u8>)]) -> Report {
    let mut observer = Observer::new(MACHINE, BEGAN);
    for (at, frame) in frames {
        observer.frame(BEGAN + at, LinkType::Ethernet, frame);
    }
    observer.report()
}

fn kinds(report: &Report) -> Vec<(PhaseKind, f64, f64)> {
    let round = |at: f64| (at * 1000.0).round() / 1000.0;
    let phases = report.timeline.iter();
    phases
        .map(|phase| (phase.kind, round(phase.start_s), round(phase.end_s)))
        .collect()
}

/// A boot as EDK II makes it: two requests that nobody hears, an offer that waits, a size, a file of two blocks.
fn boot() -> Vec<(f64, Vec<u8>)> {
    use MessageType::{Ack, Discover, Offer, Request};
    let chosen = |message: &mut Message| message.options.set(option::SERVER_ID, SERVER);
    let options = b"tsize\x000\0blksize\x001468\0windowsize\x004\0";
    let granted = b"tsize\x001500\0blksize\x001468\0windowsize\x004\0";
    let oack = tftp::Packet::Oack(tftp::Options::new(granted));
    let aborted = tftp::Packet::Error {
        code: tftp::ErrorCode::UNDEFINED,
        text: b"User aborted the transfer",
    };
    vec![
        (0.0, ask(Discover, 7, |_| ())),
        (4.0, ask(Discover, 7, |_| ())),
        (12.0, ask(Discover, 7, |_| ())),
        (12.5, answer(Offer, 7, |_| ())),
        (16.5, ask(Request, 7, chosen)),
        (16.6, answer(Ack, 7, |_| ())),
        (17.0, tftp(true, 69, &read_request("shimx64.efi", options))),
        (17.1, tftp(false, 3000, &oack)),
        (17.2, tftp(true, 3000, &aborted)),
        (
            18.0,
            tftp(true, 69, &read_request("shimx64.efi", &options[8..])),
        ),
        (18.1, tftp(false, 3001, &oack)),
        (18.2, tftp(true, 3001, &tftp::Packet::Ack { block: 0 })),
        (
            18.3,
            tftp(
                false,
                3001,
                &tftp::Packet::Data {
                    block: 1,
                    payload: &[1; 1468],
                },
            ),
        ),
        (
            18.4,
            tftp(
                false,
                3001,
                &tftp::Packet::Data {
                    block: 2,
                    payload: &[2; 32],
                },
            ),
        ),
        (18.5, tftp(true, 3001, &tftp::Packet::Ack { block: 2 })),
    ]
}

#[test]
fn a_boot_is_told_from_its_first_request_to_its_last_byte() {
    let report = report(&boot());
    assert_eq!(report.machine.mac, "02:00:00:00:00:01");
    assert_eq!(
        report.machine.vendor_class.as_deref(),
        Some("PXEClient:Arch:00007:UNDI:003000")
    );
    assert_eq!(
        kinds(&report),
        [
            (PhaseKind::DhcpUnanswered, 0.0, 12.0),
            (PhaseKind::DhcpOffer, 12.0, 12.5),
            (PhaseKind::OfferWait, 12.5, 16.5),
            (PhaseKind::DhcpRequest, 16.5, 16.6),
            (PhaseKind::Quiet, 16.6, 17.0),
            (PhaseKind::SizeProbe, 17.0, 17.2),
            (PhaseKind::Quiet, 17.2, 18.0),
            (PhaseKind::Transfer, 18.0, 18.5),
        ]
    );
    assert!((report.network.span_s - 18.5).abs() < 1e-6);
    let [probe, file] = report.network.transfers.as_slice() else {
        panic!("{:?}", report.network.transfers)
    };
    assert_eq!((probe.outcome, probe.bytes), (Outcome::SizeProbe, 0));
    assert_eq!((file.outcome, file.bytes), (Outcome::Complete, 1500));
    assert_eq!((file.block_bytes, file.window_blocks), (1468, 4));
    assert_eq!(
        (file.turns, file.data_packets, file.client_packets),
        (1, 2, 2)
    );
    let near = |one: f64, other: f64| (one - other).abs() < 1e-6;
    // From the ACK of the options to the first block; from the options and the last block to the machine's answers.
    assert!(
        near(file.server_wait_s, 0.1) && near(file.client_wait_s, 0.2),
        "{file:?}"
    );
    let offer = &report.network.dhcp[0].offers[0];
    assert_eq!(offer.boot_file.as_deref(), Some("shimx64.efi"));
    assert_eq!(offer.vendor_options, VendorOptions::Absent);
}

#[test]
fn a_packet_that_is_captured_twice_counts_once() {
    let twice: Vec<_> = boot()
        .into_iter()
        .flat_map(|(at, frame)| [(at, frame.clone()), (at + 0.00005, frame)])
        .collect();
    assert_eq!(report(&twice), report(&boot()));
    // One that comes again after a second is a repetition.
    let mut again = boot();
    let data = again[12].1.clone();
    again.insert(14, (18.45, data));
    assert_eq!(report(&again).network.transfers[1].repeated, 1);
}

#[test]
fn what_others_do_is_not_the_machines() {
    let mut frames = boot();
    let before = report(&frames);
    let other = Mac([2, 0, 0, 0, 0, 2]);
    let message = Message::request(MessageType::Discover, 7, other.0).emit();
    frames.insert(
        1,
        (0.5, frame((other, [0; 4], 68), ([255; 4], 67), &message)),
    );
    let mut request = Vec::new();
    read_request("theirs", b"").emit(&mut request);
    let theirs = frame((other, [10, 0, 0, 77], 2000), (SERVER, 69), &request);
    frames.push((18.6, theirs));
    assert_eq!(report(&frames), before);
}

#[test]
fn the_boot_ends_where_the_operating_system_asks_for_itself() {
    let mut frames = boot();
    let system = Message::request(MessageType::Discover, 99, MACHINE.0).emit();
    frames.push((30.0, frame((MACHINE, [0; 4], 68), ([255; 4], 67), &system)));
    let report = report(&frames);
    assert_eq!(report.network.system_s, Some(30.0));
    assert_eq!(report.network.transfers.len(), 2);
    assert_eq!(report.network.dhcp.len(), 1);
}

#[test]
fn a_boot_program_that_asks_without_a_word_does_not_end_the_boot() {
    let plain = Message::request(MessageType::Discover, 99, MACHINE.0).emit();
    let asks = frame((MACHINE, [0; 4], 68), ([255; 4], 67), &plain);
    let with = |next: Vec<u8>| {
        let mut frames = boot();
        frames.push((20.0, asks.clone()));
        frames.push((21.0, next));
        let report = report(&frames);
        (report.network.system_s, report.network.transfers.len())
    };
    // GRUB's net_bootp, and then its files.
    assert_eq!(
        with(tftp(true, 69, &read_request("grub.cfg", b""))),
        (None, 3)
    );
    let http = |agent: &str| {
        let mut packet = Vec::new();
        let get = std::format!("GET /linux HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n");
        PacketBuilder::ethernet2(MACHINE.0, [9; 6])
            .ipv4(ADDRESS, SERVER, 64)
            .tcp(4000, 80, 1, 1000)
            .ack(1)
            .write(&mut packet, get.as_bytes())
            .unwrap();
        packet
    };
    assert_eq!(with(http("GRUB 2.06-13")), (None, 3));
    // The next stage of the boot says what it is.
    assert_eq!(with(ask(MessageType::Discover, 100, |_| ())).0, None);
    // The installer fetches its packages.
    assert_eq!(with(http("Wget/1.21")), (Some(20.0), 2));
}

#[test]
fn what_two_relays_bring_counts_once() {
    let relayed = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        // giaddr, behind Ethernet's, IP's and UDP's headers.
        frame[14 + 20 + 8 + 24] = 10;
        frame
    };
    let all: Vec<_> = boot()
        .into_iter()
        .enumerate()
        .flat_map(|(place, (at, frame))| {
            let twice = (place < 6).then(|| (at + 0.0005, relayed(&frame)));
            core::iter::once((at, frame)).chain(twice)
        })
        .collect();
    assert_eq!(report(&all).network.dhcp, report(&boot()).network.dhcp);
}

#[test]
fn a_boot_server_that_does_not_answer_is_waited_for_until_the_machine_goes_on() {
    let mut frames = boot();
    let discover = |xid| Message::request(MessageType::Request, xid, MACHINE.0).emit();
    let to = ([10, 0, 0, 7], 4011);
    frames.insert(6, (16.7, frame((MACHINE, ADDRESS, 68), to, &discover(1))));
    frames.insert(7, (16.8, frame((MACHINE, ADDRESS, 68), to, &discover(2))));
    let silent = report(&frames);
    assert_eq!(silent.network.boot_servers[0].asked_s.len(), 2);
    assert!(kinds(&silent).contains(&(PhaseKind::BootServer, 16.7, 17.0)));
    let reply = Message::reply(
        MessageType::Ack,
        &Message::request(MessageType::Request, 2, MACHINE.0),
    );
    let reply = frame(
        (SERVER_MAC, [10, 0, 0, 7], 4011),
        (ADDRESS, 68),
        &reply.emit(),
    );
    frames.insert(8, (16.9, reply));
    let answered = report(&frames);
    assert!(kinds(&answered).contains(&(PhaseKind::BootServer, 16.7, 16.9)));
}

/// Discovery (PXE 2.1, section 2.2.3) by multicast and by broadcast.
#[test]
fn a_boot_server_that_all_were_asked_for_answers_from_its_own_address() {
    for group in [[224, 0, 1, 2], [255; 4]] {
        let mut frames = boot();
        let request = Message::request(MessageType::Request, 1, MACHINE.0);
        let asks = frame((MACHINE, ADDRESS, 68), (group, 4011), &request.emit());
        let reply = Message::reply(MessageType::Ack, &request).emit();
        let answers = frame((SERVER_MAC, [10, 0, 0, 7], 4011), (ADDRESS, 68), &reply);
        frames.insert(6, (16.7, asks));
        frames.insert(7, (16.9, answers));
        let asked = report(&frames).network.boot_servers;
        let answered_s = asked[0].answered_s.unwrap();
        assert!((answered_s - 16.9).abs() < 1e-6, "{group:?}: {answered_s}");
    }
}

#[test]
fn vendor_options_are_pxes_or_foreign() {
    let offer = |class: Option<&'static [u8]>, options: &'static [u8]| {
        let frames = [
            (0.0, ask(MessageType::Discover, 7, |_| ())),
            (
                0.1,
                answer(MessageType::Offer, 7, |message| {
                    message.options.set(option::VENDOR, options);
                    if let Some(class) = class {
                        message.options.set(option::VENDOR_CLASS, class);
                    }
                }),
            ),
        ];
        report(&frames).network.dhcp[0].offers[0].vendor_options
    };
    let pxe: &[u8] = &[6, 1, 8, 255];
    assert_eq!(offer(Some(b"PXEClient"), pxe), VendorOptions::Pxe);
    assert_eq!(offer(None, pxe), VendorOptions::Foreign);
    let controller: &[u8] = &[0xf1, 4, 10, 77, 0, 9];
    assert_eq!(offer(None, controller), VendorOptions::Foreign);
    // Also of who says that it knows PXE, which has no sub-option there.
    assert_eq!(
        offer(Some(b"PXEClient"), controller),
        VendorOptions::Foreign
    );
    let both: &[u8] = &[0xf1, 4, 10, 77, 0, 9, 6, 1, 8, 255];
    assert_eq!(offer(Some(b"PXEClient"), both), VendorOptions::Pxe);
    assert_eq!(offer(Some(b"PXEClient"), &[255]), VendorOptions::Pxe);
    assert_eq!(
        offer(Some(b"PXEClient"), &[6, 9, 8]),
        VendorOptions::Foreign
    );
}

#[test]
fn names_and_bridges_are_heard() {
    let mut query = vec![0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(b"\x04boot\x07example\0\0\x01\0\x01");
    let mut reply = query.clone();
    reply[2] = 0x81;
    let tree = [
        [
            1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 8, 0, 38, 0x42, 0x42, 3,
        ]
        .as_slice(),
        &[
            0, 0, 0, 0, 0, 0x80, 0, 2, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0x80, 0, 2, 0, 0, 0, 0, 8,
        ],
        &[0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0],
    ]
    .concat();
    let mut frames = boot();
    frames.insert(0, (-2.0, tree));
    let asks = frame((MACHINE, ADDRESS, 4000), (SERVER, 53), &query);
    frames.insert(7, (16.7, asks));
    let answers = frame((SERVER_MAC, SERVER, 53), (ADDRESS, 4000), &reply);
    frames.insert(8, (16.9, answers));
    let report = report(&frames);
    let name = &report.network.names[0];
    assert_eq!(name.name, "boot.example");
    assert!(name.answered_s.is_some());
    assert!(kinds(&report).contains(&(PhaseKind::Name, 16.7, 16.9)));
    let tree = report.network.spanning_tree.unwrap();
    assert_eq!((tree.first_s, tree.forward_delay_s), (-2.0, 15.0));
}

#[test]
fn machines_that_boot_are_found() {
    let mut clients = Clients::default();
    // Something of the machine's that is no request: its boot begins there.
    clients.frame(
        BEGAN - 1.0,
        LinkType::Ethernet,
        &frame((MACHINE, [0; 4], 1), ([255; 4], 2), b""),
    );
    for (at, frame) in boot() {
        clients.frame(BEGAN + at, LinkType::Ethernet, &frame);
    }
    // An operating system's request is none.
    let other = Mac([2, 0, 0, 0, 0, 2]);
    let plain = Message::request(MessageType::Discover, 1, other.0).emit();
    clients.frame(
        BEGAN,
        LinkType::Ethernet,
        &frame((other, [0; 4], 68), ([255; 4], 67), &plain),
    );
    let found = clients.found();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].mac, found[0].began_unix_s),
        (MACHINE, BEGAN - 1.0)
    );
    assert_eq!(
        found[0].vendor_class,
        String::from("PXEClient:Arch:00007:UNDI:003000")
    );
}

#[test]
fn who_asks_for_a_boot_is_told_by_any_of_its_marks() {
    let found = |change: &dyn Fn(&mut Message)| {
        let mut message = Message::request(MessageType::Discover, 1, MACHINE.0);
        change(&mut message);
        let mut clients = Clients::default();
        let asks = frame((MACHINE, [0; 4], 68), ([255; 4], 67), &message.emit());
        clients.frame(BEGAN, LinkType::Ethernet, &asks);
        clients.found().len()
    };
    assert_eq!(found(&|_| ()), 0);
    assert_eq!(
        found(&|one| one.options.set(option::VENDOR_CLASS, b"udhcp 1.35")),
        0
    );
    assert_eq!(
        found(&|one| one.options.set(option::ARCHITECTURE, [0, 7])),
        1
    );
    assert_eq!(
        found(&|one| one.options.set(option::VENDOR_CLASS, b"PXEClient")),
        1
    );
    assert_eq!(
        found(&|one| one.options.set(option::VENDOR_CLASS, b"HTTPClient")),
        1
    );
    assert_eq!(
        found(&|one| one.options.set(option::USER_CLASS, b"iPXE")),
        1
    );
}

#[test]
fn what_a_machine_says_of_itself_is_kept() {
    let says = |message: &mut Message| {
        message.secs = 28;
        message.options.set(
            option::MACHINE_ID,
            [
                0, 0x78, 0x56, 0x34, 0x12, 0xcd, 0xab, 0x01, 0xef, 1, 2, 3, 4, 5, 6, 7, 8,
            ],
        );
        message.options.set(option::USER_CLASS, b"iPXE");
    };
    let report = report(&[(0.0, ask(MessageType::Discover, 7, says))]);
    assert_eq!(report.network.dhcp[0].tried_before_s, 28);
    assert_eq!(report.network.dhcp[0].user_class.as_deref(), Some("iPXE"));
    // SMBIOS has the first three fields little-endian.
    assert_eq!(
        report.machine.uuid.as_deref(),
        Some("12345678-abcd-ef01-0102-030405060708")
    );
}

/// A datagram between the machine and a server by IPv6.
fn frame6(from_machine: bool, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let (machine, server) = (
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [0xfd; 16],
    );
    let (mac, from, to) = if from_machine {
        (MACHINE, machine, server)
    } else {
        (SERVER_MAC, server, machine)
    };
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(mac.0, [0x33; 6])
        .ipv6(from, to, 64)
        .udp(ports.0, ports.1)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

#[test]
fn a_boot_over_ipv6_is_told() {
    use wireboot_wire::dhcpv6::{IaAddress, IaNa, MessageType, Options, Writer, duid, option};
    let message = |kind, boot: bool| {
        let mut writer = Writer::new(kind, 0x1234);
        writer.option(option::CLIENT_ID, duid::from_mac(MACHINE.0));
        if boot {
            writer.words(option::ARCHITECTURE, &[7]);
        }
        writer
    };
    let solicit = message(MessageType::Solicit, true).finish();
    let mut advertise = message(MessageType::Advertise, false);
    advertise.option(option::BOOT_FILE_URL, b"tftp://[fd00::1]/shim.efi");
    advertise.option(option::PREFERENCE, [255]);
    let options = Options::default();
    let (iaid, t1, t2) = (1, 0, 0);
    let association = IaNa {
        iaid,
        t1,
        t2,
        options,
    };
    advertise.ia_na(&association, |message| {
        message.ia_address(&IaAddress {
            address: "fd00::9".parse().unwrap(),
            preferred_lifetime: 0,
            valid_lifetime: 0,
            options,
        });
    });
    let frames = [
        (0.0, frame6(true, (546, 547), &solicit)),
        (1.0, frame6(true, (546, 547), &solicit)),
        (1.5, frame6(false, (547, 546), &advertise.finish())),
    ];
    let report = report(&frames);
    let [one] = report.network.dhcpv6.as_slice() else {
        panic!("{:?}", report.network.dhcpv6)
    };
    assert_eq!(
        (one.kind.as_str(), one.asked_s.len(), one.answered_s.len()),
        ("Solicit", 2, 1)
    );
    assert_eq!(one.boot_file.as_deref(), Some("tftp://[fd00::1]/shim.efi"));
    let [answer] = one.answers.as_slice() else {
        panic!("{one:?}")
    };
    assert_eq!(
        (answer.kind.as_str(), answer.preference),
        ("Advertise", 255)
    );
    assert_eq!((answer.at_s, answer.delay_s), (1.5, Some(0.5)));
    assert_eq!(answer.boot_file, one.boot_file);
    assert!(answer.server.contains(':'));
    assert_eq!(answer.address.as_deref(), Some("fd00::9"));
    assert_eq!(kinds(&report), [(PhaseKind::Dhcpv6, 0.0, 1.5)]);
    let mut not_text = message(MessageType::Advertise, false);
    not_text.option(option::BOOT_FILE_URL, b"http://\xe9");
    let frames = [
        (0.0, frame6(true, (546, 547), &solicit)),
        (0.5, frame6(false, (547, 546), &not_text.finish())),
    ];
    let one = &self::report(&frames).network.dhcpv6[0];
    assert_eq!(one.boot_file.as_deref(), Some("http://\u{fffd}"));
    let found = |payload: &[u8]| {
        let mut clients = Clients::default();
        clients.frame(
            BEGAN,
            LinkType::Ethernet,
            &frame6(true, (546, 547), payload),
        );
        clients.found()
    };
    assert_eq!(found(&solicit)[0].mac, MACHINE);
    assert_eq!(found(&message(MessageType::Solicit, false).finish()), []);
    let mut wants = message(MessageType::InformationRequest, false);
    wants.words(option::OPTION_REQUEST, &[option::BOOT_FILE_URL]);
    assert_eq!(found(&wants.finish()).len(), 1);
    wants = message(MessageType::InformationRequest, false);
    wants.words(option::OPTION_REQUEST, &[23]);
    assert_eq!(found(&wants.finish()), []);
}

#[test]
fn routers_are_asked_for_and_heard() {
    let icmp = |from_machine: bool, kind: u8| {
        let mut frame = frame6(from_machine, (0, 0), &[0; 8]);
        frame[20] = 58;
        frame[54] = kind;
        frame
    };
    let alone = report(&[
        (0.0, icmp(true, 133)),
        (4.0, icmp(true, 133)),
        (5.0, ask(MessageType::Discover, 7, |_| ())),
    ]);
    assert_eq!(alone.network.router_solicitations_s.len(), 2);
    assert!(kinds(&alone).contains(&(PhaseKind::Ipv6Unanswered, 0.0, 5.0)));
    let heard = report(&[
        (0.0, icmp(true, 133)),
        (0.1, icmp(false, 134)),
        (0.2, icmp(false, 133)),
    ]);
    assert_eq!(heard.network.router_advertisements_s.len(), 1);
    let mut managed = icmp(false, 134);
    managed[59..62].copy_from_slice(&[0x80, 7, 8]);
    let mut other = managed.clone();
    other[59] = 0x40;
    let told = report(&[(0.0, icmp(true, 133)), (0.5, managed), (2.0, other)]);
    let [router] = told.network.routers.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!(router.advertised_s, [0.5, 2.0]);
    assert_eq!((router.delay_s, router.lifetime_s), (Some(0.5), 0x708));
    // The last holds.
    assert!(!router.managed && router.other);
    assert_eq!(heard.network.router_solicitations_s.len(), 1);
    assert_eq!(kinds(&heard), []);
}

#[test]
fn an_offer_without_a_boot_file_has_none() {
    let frames = [
        (0.0, ask(MessageType::Discover, 7, |_| ())),
        (
            0.1,
            answer(MessageType::Offer, 7, |message| message.file.clear()),
        ),
    ];
    assert_eq!(report(&frames).network.dhcp[0].offers[0].boot_file, None);
}

#[test]
fn a_boot_file_whose_name_is_not_text_is_one() {
    let frames = [
        (0.0, ask(MessageType::Discover, 7, |_| ())),
        (
            0.1,
            answer(MessageType::Offer, 7, |message| {
                message.file = b"w\xe9.efi".to_vec();
            }),
        ),
    ];
    let offer = &report(&frames).network.dhcp[0].offers[0];
    assert_eq!(offer.boot_file.as_deref(), Some("w\u{fffd}.efi"));
}

#[test]
fn refusals_and_files_by_http_have_their_names_in_the_timeline() {
    let refusal = tftp::Packet::Error {
        code: tftp::ErrorCode::NOT_FOUND,
        text: b"File not found",
    };
    let mut get = Vec::new();
    PacketBuilder::ethernet2(MACHINE.0, [9; 6])
        .ipv4(ADDRESS, SERVER, 64)
        .tcp(4000, 80, 1, 1000)
        .ack(1)
        .write(&mut get, b"GET /linux HTTP/1.1\r\n\r\n")
        .unwrap();
    let report = report(&[
        (1.0, tftp(true, 69, &read_request("none.cfg", b""))),
        (1.5, tftp(false, 3000, &refusal)),
        (2.0, get),
    ]);
    let named: Vec<_> = report
        .timeline
        .iter()
        .map(|phase| (phase.kind, phase.what.as_str()))
        .collect();
    let quiet = (PhaseKind::Quiet, "");
    let refused = (PhaseKind::Refused, "tftp 10.0.0.1 none.cfg");
    let file = (PhaseKind::Transfer, "http 10.0.0.1 /linux");
    assert_eq!(named, [quiet, refused, quiet, file]);
}

#[test]
fn an_answer_of_another_name_server_or_to_another_machine_is_none() {
    let mut query = vec![0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(b"\x04boot\x07example\0\0\x01\0\x01");
    let answered = |from: [u8; 4], to: [u8; 4]| {
        let frames = [
            (0.0, frame((MACHINE, ADDRESS, 4000), (SERVER, 53), &query)),
            (0.5, frame((SERVER_MAC, from, 53), (to, 4000), &query)),
        ];
        report(&frames).network.names[0].answered_s.is_some()
    };
    assert!(answered(SERVER, ADDRESS));
    assert!(!answered([10, 0, 0, 2], ADDRESS));
    assert!(!answered(SERVER, [10, 0, 0, 51]));
}

#[test]
fn the_first_refusal_of_an_address_is_when_it_was_refused() {
    let frames = [
        (0.0, ask(MessageType::Request, 7, |_| ())),
        (0.5, answer(MessageType::Nak, 7, |_| ())),
        (0.9, answer(MessageType::Nak, 7, |_| ())),
    ];
    let report = report(&frames);
    let one = &report.network.dhcp[0];
    assert!((one.nak_s.unwrap() - 0.5).abs() < 1e-6);
    assert!(
        one.vendor_class
            .as_deref()
            .unwrap()
            .starts_with("PXEClient")
    );
}

/// A frame of the switch's to its neighbours, behind whose addresses come a type or a length.
fn from_switch(source: Mac, behind: &[&[u8]]) -> Vec<u8> {
    let addresses = [[0x01, 0x80, 0xc2, 0, 0, 0x0e], source.0].concat();
    [addresses, behind.concat()].concat()
}

const LLDP: [&[u8]; 4] = [
    &[0x88, 0xcc],
    b"\x02\x07\x04\x00\x1c\x73\x01\x02\x03",
    b"\x04\x05\x05Eth9\x06\x02\x00\x78",
    b"\x0a\x06leaf-3\x00\x00",
];
/// Its length is not looked at.
const CDP: [&[u8]; 4] = [
    &[0, 40],
    b"\xaa\xaa\x03\x00\x00\x0c\x20\x00\x02\xb4\x00\x00",
    b"\x00\x01\x00\x09cisco",
    b"\x00\x03\x00\x09Gi0/7",
];

fn lacp(state: u8) -> Vec<u8> {
    let behind = [
        b"\x88\x09\x01\x01\x01\x14\x80\x00".as_slice(),
        &SERVER_MAC.0,
        b"\x00\x11\x80\x00\x00\x0c",
        &[state],
    ];
    from_switch(SERVER_MAC, &behind)
}

#[test]
fn the_switch_is_named_and_not_the_machine_itself() {
    let lldp = |source| from_switch(source, &LLDP);
    let cdp = || from_switch(SERVER_MAC, &CDP);
    let named = |frames: &[(f64, Vec<u8>)]| {
        let told = report(frames).network.neighbour?;
        Some((told.switch, told.port, told.first_s))
    };
    let leaf = |at| Some(("leaf-3".to_string(), "Eth9".to_string(), at));
    let cisco = Some(("cisco".to_string(), "Gi0/7".to_string(), 1.0));
    assert_eq!(named(&[(-2.0, lldp(SERVER_MAC))]), leaf(-2.0));
    assert_eq!(named(&[(1.0, lldp(MACHINE))]), None);
    assert_eq!(named(&[(1.0, cdp()), (2.0, cdp())]), cisco);
    assert_eq!(named(&[(1.0, cdp()), (2.0, lldp(SERVER_MAC))]), leaf(2.0));
    assert_eq!(named(&[(1.0, lldp(SERVER_MAC)), (2.0, cdp())]), leaf(1.0));
    // In a VLAN.
    let tagged = [[0x81, 0, 0, 7].as_slice(), &LLDP.concat()];
    assert_eq!(named(&[(3.0, from_switch(SERVER_MAC, &tagged))]), leaf(3.0));
}

#[test]
fn a_group_that_waits_is_told_when_it_may_have_held_the_boot() {
    let mut frames = boot();
    frames.insert(0, (-1.0, lacp(0x45)));
    let first = report(&frames).network.lacp.unwrap();
    assert_eq!((first.first_s, first.forwards_s), (-1.0, None));
    assert!(first.waits && first.unheard && first.key == 17);
    frames.push((8.0, lacp(0x3d)));
    assert_eq!(report(&frames).network.lacp.unwrap().forwards_s, Some(8.0));
    assert_eq!(report(&[(9.0, lacp(0x45))]).network.lacp, None);
    // Who listens waits for it.
    let mut observer = Observer::new(MACHINE, BEGAN);
    observer.frame(BEGAN + 9.0, LinkType::Ethernet, &lacp(0x45));
    let heard = observer.report_until(12.0).network;
    assert_eq!((heard.span_s, heard.lacp.unwrap().first_s), (12.0, 9.0));
}
