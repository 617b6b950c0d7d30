//! The client against scripted servers, over a simulated link in simulated time.

use super::*;
use crate::testing::{Datagram, SECOND, run};
use core::net::SocketAddrV4;
use proptest::prelude::*;
use std::cell::Cell;
use std::string::ToString;
use std::vec;
use wireboot_net::{Ipv4Cidr, Ipv4Config};
use wireboot_nic::sim::LinkConfig;
use wireboot_wire::dhcp::pxe::{BootServers, MenuItem};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PROXY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);

fn wish() -> DhcpRequest {
    DhcpRequest {
        architecture: 7,
        uuid: Some([7; 16]),
        client_id: None,
        vendor_class: VendorClass::Pxe,
        user_class: "wireboot".into(),
        requested_address: None,
        want_boot_file: true,
        proxied: false,
        patience: None,
    }
}

/// What a DHCP server at `server` with a free `address` says.
fn lease_reply(server: Ipv4Addr, address: Ipv4Addr, request: &Message) -> Message {
    let kind = match request.message_type() {
        Some(MessageType::Discover) => MessageType::Offer,
        _ => MessageType::Ack,
    };
    let mut reply = Message::reply(kind, request);
    reply.yiaddr = address;
    let options = &mut reply.options;
    options.set(option::SERVER_ID, server.octets());
    options.set(option::SUBNET_MASK, [255, 255, 255, 0]);
    options.set_addresses(option::ROUTERS, &[SERVER]);
    options.set_addresses(option::DNS_SERVERS, &[SERVER, OTHER]);
    options.set(option::DOMAIN_NAME, "example.net");
    options.set(option::LEASE_TIME, 3600u32.to_be_bytes());
    reply
}

fn with_file(mut reply: Message, file: &str) -> Message {
    reply.siaddr = reply.options.address(option::SERVER_ID).unwrap();
    reply.file = file.as_bytes().to_vec();
    reply
}

/// What a proxy says: no address, class PXEClient.
fn proxy_reply(request: &Message) -> Message {
    let mut reply = Message::reply(MessageType::Offer, request);
    reply.options.set(option::SERVER_ID, PROXY.octets());
    reply.options.set(option::VENDOR_CLASS, "PXEClient");
    reply
}

fn sent_by(server: Ipv4Addr, reply: &Message, micros: i64) -> Datagram {
    Datagram {
        source: SocketAddrV4::new(server, 67),
        destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, 68),
        payload: reply.emit(),
        micros,
        refusal: false,
    }
}

fn from(reply: &Message) -> Datagram {
    sent_by(
        reply.options.address(option::SERVER_ID).unwrap_or(SERVER),
        reply,
        0,
    )
}

/// True when a REQUEST is meant for `server`.
fn chosen(request: &Message, server: Ipv4Addr) -> bool {
    request.message_type() == Some(MessageType::Discover)
        || request.options.address(option::SERVER_ID) == Some(server)
}

fn discovered(
    link: LinkConfig,
    seed: u64,
    hosts: &[Ipv4Addr],
    request: DhcpRequest,
    mut script: impl FnMut(&Datagram, &Message) -> Vec<Datagram>,
) -> (Result<Lease, DhcpError>, i64) {
    let ((result, address), micros) = run(
        link,
        seed,
        hosts,
        |datagram| {
            let message = Message::parse(&datagram.payload).unwrap();
            script(datagram, &message)
        },
        async move |stack| (discover(&stack, &request).await, stack.address()),
    );
    match &result {
        // All is there but the boot file.
        Err(DhcpError::NoBootServer { address: ours, .. }) => {
            assert_eq!(address.map(|cidr| cidr.address()), Some(*ours));
        }
        Err(_) => assert_eq!(address, None),
        Ok(lease) => assert_eq!(address, Some(lease.address)),
    }
    (result, micros)
}

fn simply(
    script: impl FnMut(&Datagram, &Message) -> Vec<Datagram>,
) -> (Result<Lease, DhcpError>, i64) {
    discovered(
        LinkConfig::default(),
        1,
        &[SERVER, PROXY, OTHER],
        wish(),
        script,
    )
}

#[test]
fn a_complete_offer_is_taken_at_once() {
    let mut kinds = vec![];
    let (lease, micros) = simply(|datagram, message| {
        assert_eq!(
            datagram.source,
            SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68)
        );
        assert_eq!(
            datagram.destination,
            SocketAddrV4::new(Ipv4Addr::BROADCAST, 67)
        );
        kinds.push(message.message_type().unwrap());
        vec![from(&with_file(
            lease_reply(SERVER, ADDRESS, message),
            "http://10.0.0.1/a.conf",
        ))]
    });
    let lease = lease.unwrap();
    let ack = Message::parse(&lease.ack).unwrap();
    assert_eq!(
        (ack.message_type(), ack.yiaddr),
        (Some(MessageType::Ack), ADDRESS)
    );
    let discover = Message::parse(&lease.discover).unwrap();
    assert_eq!(
        (discover.message_type(), discover.xid),
        (Some(MessageType::Discover), ack.xid)
    );
    assert_eq!(
        lease,
        Lease {
            ack: lease.ack.clone(),
            discover: lease.discover.clone(),
            proxy_offer: Vec::new(),
            address: Ipv4Cidr::new(ADDRESS, 24),
            router: Some(SERVER),
            routes: vec![],
            dns: vec![SERVER, OTHER],
            search: vec!["example.net".into()],
            mtu: None,
            server: Some(SERVER),
            next_server: Some(SERVER),
            next_server_name: None,
            boot_file: Some("http://10.0.0.1/a.conf".into()),
            unreadable_boot_file: None,
            vendor: None,
            source: LeaseSource::Dhcp,
        }
    );
    assert_eq!(kinds, [MessageType::Discover, MessageType::Request]);
    assert!(micros < 50_000, "{micros} us");
}

#[test]
fn the_client_says_who_it_is() {
    let wish = DhcpRequest {
        requested_address: Some(ADDRESS),
        ..wish()
    };
    let (lease, _) = discovered(LinkConfig::default(), 1, &[], wish, |_, message| {
        let options = &message.options;
        assert_eq!(
            options.text(option::VENDOR_CLASS),
            Some("PXEClient:Arch:00007:UNDI:003000")
        );
        assert_eq!(
            options.get(option::USER_CLASS),
            Some(b"wireboot".as_slice())
        );
        assert_eq!(options.architectures(), [7]);
        assert_eq!(options.network_interface(), Some([1, 3, 0]));
        assert_eq!(options.machine_id(), Some([7; 16]));
        assert_eq!(
            options.get(option::CLIENT_ID),
            Some([1, 2, 0, 0, 0, 0, 0x0a].as_slice())
        );
        assert_eq!(options.u16(option::MAX_SIZE), Some(1500));
        assert_eq!(options.address(option::REQUESTED_ADDRESS), Some(ADDRESS));
        let asked = options.get(option::PARAMETERS).unwrap();
        let place = |code| asked.iter().position(|&c| c == code).unwrap();
        assert!(place(option::CLASSLESS_ROUTES) < place(option::ROUTERS));
        assert!(!message.wants_broadcast());
        let mut reply = from(&with_file(lease_reply(SERVER, ADDRESS, message), "f"));
        // Such a client can be answered before it has its address.
        reply.destination = SocketAddrV4::new(ADDRESS, 68);
        vec![reply]
    });
    assert_eq!(lease.unwrap().boot_file.as_deref(), Some("f"));
}

#[test]
fn a_machine_without_a_guid_is_known_by_its_ethernet_address() {
    let wish = DhcpRequest {
        uuid: None,
        ..wish()
    };
    let (lease, _) = discovered(LinkConfig::default(), 1, &[], wish, |_, message| {
        let [.., a, b, c, d, e, f] = message.options.machine_id().unwrap();
        assert_eq!(Some([a, b, c, d, e, f]), message.mac());
        vec![from(&with_file(lease_reply(SERVER, ADDRESS, message), "f"))]
    });
    assert!(lease.is_ok());
}

#[test]
fn http_clients_take_urls() {
    let wish = DhcpRequest {
        vendor_class: VendorClass::Http,
        architecture: 16,
        ..wish()
    };
    let (lease, micros) = discovered(LinkConfig::default(), 1, &[], wish, |_, message| {
        let class = message.options.text(option::VENDOR_CLASS);
        assert_eq!(class, Some("HTTPClient:Arch:00016:UNDI:003000"));
        let mut reply = lease_reply(SERVER, ADDRESS, message);
        reply.options.set(option::VENDOR_CLASS, "HTTPClient");
        reply
            .options
            .set(option::BOOT_FILE, "http://10.0.0.1/wireboot.efi");
        vec![from(&reply)]
    });
    assert_eq!(
        lease.unwrap().boot_file.as_deref(),
        Some("http://10.0.0.1/wireboot.efi")
    );
    assert!(micros < 50_000);
}

#[test]
fn a_plain_offer_waits_half_a_second_and_is_taken() {
    let (lease, micros) = simply(|_, message| vec![from(&lease_reply(SERVER, ADDRESS, message))]);
    assert_eq!(lease.unwrap().boot_file, None);
    assert!((500_000..600_000).contains(&micros), "{micros} us");
    let wish = DhcpRequest {
        want_boot_file: false,
        patience: None,
        ..wish()
    };
    let (lease, micros) = discovered(LinkConfig::default(), 1, &[], wish, |_, message| {
        vec![from(&lease_reply(SERVER, ADDRESS, message))]
    });
    assert!(lease.is_ok());
    assert!(micros < 50_000, "{micros} us: nothing to wait for");
}

#[test]
fn a_boot_file_that_is_not_text_is_told_of_where_nobody_names_another() {
    const LATIN: &[u8] = b"w\xe9efi";
    let unreadable = Some("w\u{fffd}efi".to_string());
    // Whether the server speaks of PXE: then it is asked on port 4011, and does not answer.
    for (pxe, proxy) in [(false, None), (true, None), (false, Some("loader.efi"))] {
        let (lease, _) = simply(|_, message| {
            let mut answers = vec![];
            if chosen(message, SERVER) {
                let mut reply = lease_reply(SERVER, ADDRESS, message);
                reply.file = LATIN.to_vec();
                if pxe {
                    reply.options.set(option::VENDOR_CLASS, "PXEClient");
                }
                answers.push(from(&reply));
            }
            if let Some(proxy) = proxy
                && message.message_type() == Some(MessageType::Discover)
            {
                let proxy = with_file(proxy_reply(message), proxy);
                answers.push(sent_by(PROXY, &proxy, 300_000));
            }
            answers
        });
        let lease = lease.unwrap();
        assert_eq!(lease.boot_file.as_deref(), proxy, "the proxy is waited for");
        let told = unreadable.clone().filter(|_| proxy.is_none());
        assert_eq!(lease.unreadable_boot_file, told);
    }
    let ack = kept(|m| m.file = LATIN.to_vec());
    let lease = Lease::from_packets(&ack, None, None).unwrap();
    assert_eq!(lease.unreadable_boot_file, unreadable);
}

#[test]
fn a_proxy_adds_its_boot_file() {
    for proxy_delay in [0, 300_000] {
        let (lease, micros) = simply(|_, message| {
            let mut answers = vec![];
            if chosen(message, SERVER) {
                answers.push(from(&lease_reply(SERVER, ADDRESS, message)));
            }
            if message.message_type() == Some(MessageType::Discover) {
                let proxy = with_file(proxy_reply(message), "loader.efi");
                answers.push(sent_by(PROXY, &proxy, proxy_delay));
            }
            answers
        });
        let lease = lease.unwrap();
        assert_eq!(lease.boot_file.as_deref(), Some("loader.efi"));
        assert_eq!(
            (lease.server, lease.next_server),
            (Some(SERVER), Some(PROXY))
        );
        assert!(micros < proxy_delay + 50_000, "{micros} us");
    }
}

#[test]
fn a_proxy_goes_before_a_server_that_does_not_speak_its_class() {
    /// What the proxy names in its offer and on port 4011, whether one has led the firmware, whether the server's offer speaks the class, and
    /// what is booted.
    type Case = (
        &'static str,
        Option<&'static [u8]>,
        bool,
        bool,
        &'static str,
    );
    let cases: [Case; 6] = [
        ("loader.efi", None, true, false, "loader.efi"),
        ("", Some(b"loader.efi"), true, false, "loader.efi"),
        ("", None, true, false, "router.efi"),
        // What is not text is no file.
        ("", Some(b"caf\xe9"), true, false, "router.efi"),
        ("loader.efi", None, true, true, "router.efi"),
        ("loader.efi", None, false, false, "router.efi"),
    ];
    for (offered, named, proxied, speaks, file) in cases {
        let wish = DhcpRequest { proxied, ..wish() };
        let (lease, _) = discovered(
            LinkConfig::default(),
            1,
            &[SERVER, PROXY],
            wish,
            |datagram, message| {
                if datagram.destination.port() == PXE_PORT {
                    let Some(named) = named else {
                        return vec![];
                    };
                    let mut reply = Message::reply(MessageType::Ack, message);
                    reply.file = named.to_vec();
                    return vec![datagram.answer(reply.emit())];
                }
                let discover = message.message_type() == Some(MessageType::Discover);
                let mut answers = vec![];
                if discover {
                    answers.push(from(&with_file(proxy_reply(message), offered)));
                }
                if chosen(message, SERVER) {
                    let mut reply = with_file(lease_reply(SERVER, ADDRESS, message), "router.efi");
                    if speaks && discover {
                        reply.options.set(option::VENDOR_CLASS, "PXEClient");
                    }
                    answers.push(sent_by(SERVER, &reply, 5000));
                }
                answers
            },
        );
        let lease = lease.unwrap();
        assert_eq!(lease.boot_file.as_deref(), Some(file));
        assert_eq!(lease.unreadable_boot_file, None);
        let server = if file == "router.efi" { SERVER } else { PROXY };
        assert_eq!(lease.next_server, Some(server));
    }
}

#[test]
fn a_proxy_that_the_firmware_has_met_is_waited_for() {
    let late = Some(1_500_000);
    // When the proxy's offer comes; what the server names, and whether it speaks the class. What is booted, and after how many ms.
    for (proxied, proxy, named, speaks, file, millis) in [
        (true, late, "router.efi", false, "loader.efi", 1500),
        (true, late, "", false, "loader.efi", 1500),
        (true, late, "router.efi", true, "router.efi", 0),
        (true, Some(0), "router.efi", false, "loader.efi", 0),
        (true, None, "router.efi", false, "router.efi", 2000),
        (false, late, "router.efi", false, "router.efi", 0),
    ] {
        let wish = DhcpRequest { proxied, ..wish() };
        let (lease, micros) = discovered(LinkConfig::default(), 1, &[], wish, |_, message| {
            let mut answers = vec![];
            if let Some(delay) = proxy
                && message.message_type() == Some(MessageType::Discover)
            {
                let offer = with_file(proxy_reply(message), "loader.efi");
                answers.push(sent_by(PROXY, &offer, delay));
            }
            if chosen(message, SERVER) {
                let mut reply = with_file(lease_reply(SERVER, ADDRESS, message), named);
                if speaks {
                    reply.options.set(option::VENDOR_CLASS, "PXEClient");
                }
                answers.push(from(&reply));
            }
            answers
        });
        assert_eq!(lease.unwrap().boot_file.as_deref(), Some(file));
        let time = micros / 1000;
        assert!((millis..millis + 100).contains(&time), "{micros} us");
    }
    // Where no boot file is wanted, nobody is.
    let wish = DhcpRequest {
        proxied: true,
        want_boot_file: false,
        ..wish()
    };
    let (lease, micros) = discovered(LinkConfig::default(), 1, &[], wish, |_, message| {
        vec![from(&lease_reply(SERVER, ADDRESS, message))]
    });
    assert!(lease.is_ok());
    assert!(micros < 50_000, "{micros} us");
}

#[test]
fn a_proxy_without_a_file_is_asked_on_port_4011() {
    // Servers differ in the port that they answer to.
    let named: [(&[u8], _, _); 2] = [
        (b"from-4011.efi", Some("from-4011.efi"), None),
        // What is not text is an answer, too.
        (b"caf\xe9", None, Some("caf\u{fffd}")),
    ];
    for (to_client_port, (file, readable, unreadable)) in [(false, named[0]), (true, named[1])] {
        let (lease, micros) = simply(|datagram, message| {
            if datagram.destination == SocketAddrV4::new(PROXY, 4011) {
                assert_eq!(*datagram.source.ip(), ADDRESS);
                assert_eq!(message.ciaddr, ADDRESS);
                assert_eq!(message.message_type(), Some(MessageType::Request));
                assert_eq!(message.options.architectures(), [7]);
                let mut reply = with_file(proxy_reply(message), "");
                reply.file = file.to_vec();
                reply
                    .options
                    .set(option::MESSAGE_TYPE, [MessageType::Ack.code()]);
                let mut answer = datagram.answer(reply.emit());
                if to_client_port {
                    answer.destination.set_port(68);
                }
                return vec![answer];
            }
            let mut answers = vec![];
            if chosen(message, SERVER) {
                answers.push(from(&lease_reply(SERVER, ADDRESS, message)));
            }
            if message.message_type() == Some(MessageType::Discover) {
                answers.push(from(&proxy_reply(message)));
            }
            answers
        });
        let lease = lease.unwrap();
        assert_eq!(lease.boot_file.as_deref(), readable);
        assert_eq!(lease.unreadable_boot_file.as_deref(), unreadable);
        assert_eq!(lease.next_server, readable.map(|_| PROXY));
        assert!(micros < 50_000, "{micros} us");
    }
}

#[test]
fn a_silent_boot_server_is_named() {
    let (lease, micros) = simply(|_, message| {
        if message.ciaddr == ADDRESS {
            return vec![];
        }
        let mut reply = lease_reply(SERVER, ADDRESS, message);
        reply.options.set(option::VENDOR_CLASS, "PXEClient");
        vec![from(&reply)]
    });
    let error = lease.unwrap_err();
    assert_eq!(
        error,
        DhcpError::NoBootServer {
            address: ADDRESS,
            server: SERVER
        }
    );
    assert!(
        error
            .to_string()
            .contains("10.0.0.1 names no boot file (port 4011)"),
        "{error}"
    );
    assert!((6 * SECOND..9 * SECOND).contains(&micros), "{micros} us");
}

#[test]
fn only_the_boot_server_asked_may_answer() {
    let (lease, _) = simply(|datagram, message| {
        if datagram.destination.port() == PXE_PORT {
            let mut reply = with_file(proxy_reply(message), "stranger.efi");
            reply
                .options
                .set(option::MESSAGE_TYPE, [MessageType::Ack.code()]);
            let mut stranger = datagram.answer(reply.emit());
            stranger.source.set_ip(OTHER);
            reply.file = b"asked.efi".to_vec();
            let mut late = datagram.answer(reply.emit());
            late.micros = 5000;
            return vec![stranger, late];
        }
        let mut reply = lease_reply(SERVER, ADDRESS, message);
        reply.options.set(option::VENDOR_CLASS, "PXEClient");
        vec![from(&reply)]
    });
    assert_eq!(lease.unwrap().boot_file.as_deref(), Some("asked.efi"));
}

#[test]
fn the_first_menu_item_chooses_the_boot_server() {
    let list = PxeOptions {
        discovery_control: Some(discovery::LIST_ONLY | discovery::NO_MULTICAST),
        boot_servers: vec![
            BootServers {
                kind: 5,
                addresses: vec![SERVER],
            },
            BootServers {
                kind: 9,
                addresses: vec![OTHER],
            },
        ],
        menu: vec![
            MenuItem {
                kind: 9,
                description: "Install".into(),
            },
            MenuItem {
                kind: 5,
                description: "Other".into(),
            },
        ],
        ..PxeOptions::default()
    };
    let (lease, _) = simply(|datagram, message| {
        if datagram.destination.port() == 4011 {
            assert_eq!(*datagram.destination.ip(), OTHER);
            let asked = PxeOptions::parse(message.options.get(option::VENDOR).unwrap()).unwrap();
            assert_eq!(asked.item, Some(Item { kind: 9, layer: 0 }));
            let mut reply = Message::reply(MessageType::Ack, message);
            reply.file = b"install.efi".to_vec();
            return vec![datagram.answer(reply.emit())];
        }
        let mut reply = lease_reply(SERVER, ADDRESS, message);
        reply.options.set(option::VENDOR_CLASS, "PXEClient");
        reply.options.set(option::VENDOR, list.emit());
        vec![from(&reply)]
    });
    let lease = lease.unwrap();
    assert_eq!(lease.boot_file.as_deref(), Some("install.efi"));
    assert_eq!(
        lease.next_server,
        Some(OTHER),
        "who answered, when the reply does not say"
    );
}

#[test]
fn without_a_list_boot_servers_are_sought_by_broadcast() {
    let menu = PxeOptions {
        menu: vec![MenuItem {
            kind: 9,
            description: "Install".into(),
        }],
        ..PxeOptions::default()
    };
    let (lease, _) = simply(|_, message| {
        if message.ciaddr == ADDRESS {
            let mut reply = with_file(proxy_reply(message), "found.efi");
            reply
                .options
                .set(option::MESSAGE_TYPE, [MessageType::Ack.code()]);
            return vec![from(&reply)];
        }
        let mut reply = lease_reply(SERVER, ADDRESS, message);
        reply.options.set(option::VENDOR_CLASS, "PXEClient");
        reply.options.set(option::VENDOR, menu.emit());
        vec![from(&reply)]
    });
    assert_eq!(lease.unwrap().boot_file.as_deref(), Some("found.efi"));
}

#[test]
fn a_list_of_boot_servers_is_all_that_is_asked() {
    let menu = vec![MenuItem {
        kind: 9,
        description: "Install".into(),
    }];
    let listed = PxeOptions {
        boot_servers: vec![BootServers {
            kind: 9,
            addresses: vec![OTHER],
        }],
        menu: menu.clone(),
        ..PxeOptions::default()
    };
    // Only listed servers, and none is.
    let empty = PxeOptions {
        discovery_control: Some(discovery::LIST_ONLY),
        menu,
        ..PxeOptions::default()
    };
    for (options, server) in [(listed, OTHER), (empty, SERVER)] {
        let (lease, _) = simply(|datagram, message| {
            if message.ciaddr == ADDRESS {
                assert_eq!(*datagram.destination.ip(), server);
                let mut reply = Message::reply(MessageType::Ack, message);
                reply.file = b"stranger.efi".to_vec();
                let mut stranger = datagram.answer(reply.emit());
                stranger.source.set_ip(PROXY);
                reply.file = b"asked.efi".to_vec();
                let mut late = datagram.answer(reply.emit());
                late.micros = 5000;
                return vec![stranger, late];
            }
            let mut reply = lease_reply(SERVER, ADDRESS, message);
            reply.options.set(option::VENDOR_CLASS, "PXEClient");
            reply.options.set(option::VENDOR, options.emit());
            vec![from(&reply)]
        });
        assert_eq!(lease.unwrap().boot_file.as_deref(), Some("asked.efi"));
    }
}

#[test]
fn discovery_control_bit_3_uses_the_given_file() {
    let list = PxeOptions {
        discovery_control: Some(discovery::USE_BOOT_FILE),
        boot_servers: vec![BootServers {
            kind: 5,
            addresses: vec![OTHER],
        }],
        menu: vec![MenuItem {
            kind: 5,
            description: "Other".into(),
        }],
        ..PxeOptions::default()
    };
    let (lease, _) = simply(|datagram, message| {
        assert_eq!(datagram.destination.port(), 67, "no boot server is asked");
        let mut reply = with_file(lease_reply(SERVER, ADDRESS, message), "given.efi");
        reply.options.set(option::VENDOR_CLASS, "PXEClient");
        reply.options.set(option::VENDOR, list.emit());
        vec![from(&reply)]
    });
    let lease = lease.unwrap();
    assert_eq!(lease.boot_file.as_deref(), Some("given.efi"));
    assert_eq!(lease.vendor, Some(list.emit()));
}

#[test]
fn of_many_offers_the_best_is_taken() {
    let wish = DhcpRequest {
        requested_address: Some(ADDRESS),
        ..wish()
    };
    let hosts = [SERVER, PROXY, OTHER];
    // A plain one with the address we had, a complete one, a complete one with the address we had.
    let script = |_: &Datagram, message: &Message| {
        let elsewhere = Ipv4Addr::new(10, 0, 0, 50);
        let offers = [
            lease_reply(SERVER, ADDRESS, message),
            with_file(lease_reply(PROXY, elsewhere, message), "b"),
            with_file(lease_reply(OTHER, ADDRESS, message), "c"),
        ];
        let servers = [SERVER, PROXY, OTHER];
        let offers = servers
            .iter()
            .zip(&offers)
            .filter(|(server, _)| chosen(message, **server));
        offers.map(|(_, offer)| from(offer)).collect()
    };
    // A coarse clock: all three lie in the queue when the client looks.
    let link = LinkConfig {
        bits_per_second: 0,
        ..LinkConfig::default()
    };
    let (lease, _) = discovered(link, 1, &hosts, wish, script);
    assert_eq!(lease.unwrap().server, Some(OTHER));
}

#[test]
fn among_plain_offers_the_former_address_wins_then_the_first() {
    for (requested, server) in [(None, SERVER), (Some(ADDRESS), OTHER)] {
        let wish = DhcpRequest {
            requested_address: requested,
            ..wish()
        };
        let (lease, _) = discovered(LinkConfig::default(), 1, &[], wish, |_, message| {
            let elsewhere = Ipv4Addr::new(10, 0, 0, 50);
            let offers = [
                lease_reply(SERVER, elsewhere, message),
                lease_reply(OTHER, ADDRESS, message),
            ];
            let servers = [SERVER, OTHER];
            let offers = servers
                .iter()
                .zip(&offers)
                .filter(|(s, _)| chosen(message, **s));
            offers.map(|(_, offer)| from(offer)).collect()
        });
        assert_eq!(lease.unwrap().server, Some(server));
    }
}

#[test]
fn a_nak_starts_again() {
    let naks = Cell::new(0);
    let mut xids = vec![];
    let (lease, micros) = simply(|_, message| {
        if message.message_type() == Some(MessageType::Discover) {
            xids.push(message.xid);
        } else if naks.replace(naks.get() + 1) == 0 {
            let mut nak = Message::reply(MessageType::Nak, message);
            nak.options.set(option::SERVER_ID, SERVER.octets());
            return vec![from(&nak)];
        }
        vec![from(&with_file(lease_reply(SERVER, ADDRESS, message), "f"))]
    });
    assert!(lease.is_ok());
    // Another server has until the next DISCOVER to offer something.
    assert!((1_800_000..2_300_000).contains(&micros), "{micros} us");
    assert_eq!(xids.len(), 2);
    assert_ne!(xids[0], xids[1]);
}

#[test]
fn after_a_server_that_gave_no_lease_comes_another_one() {
    // Whether the first says no, or nothing; which file the other one names, and when: there are servers that look whether an address is in
    // use.
    for (naks, file, delay) in [
        (true, "f", 5_000),
        (false, "f", 5_000),
        (false, "", 5_000),
        (true, "f", 1_500_000),
    ] {
        let mut requests = vec![];
        let (lease, micros) = simply(|_, message| {
            let discover = message.message_type() == Some(MessageType::Discover);
            let offer =
                |server, address, file| with_file(lease_reply(server, address, message), file);
            let mut answers = vec![];
            if discover {
                let elsewhere = Ipv4Addr::new(10, 0, 0, 50);
                answers.push(from(&offer(OTHER, elsewhere, "other")));
            } else {
                requests.extend(message.options.address(option::SERVER_ID));
            }
            if naks && !discover && chosen(message, OTHER) {
                let mut nak = Message::reply(MessageType::Nak, message);
                nak.options.set(option::SERVER_ID, OTHER.octets());
                answers.push(from(&nak));
            }
            if chosen(message, SERVER) {
                let delay = if discover { delay } else { 0 };
                answers.push(sent_by(SERVER, &offer(SERVER, ADDRESS, file), delay));
            }
            answers
        });
        assert_eq!(lease.unwrap().server, Some(SERVER));
        // One REQUEST that was refused, or three that were not answered.
        let last = requests.pop();
        assert_eq!(
            (last, requests.len()),
            (Some(SERVER), if naks { 1 } else { 3 })
        );
        // The good offer is waited for no longer than any other.
        let limit = if naks { delay + 100_000 } else { 9 * SECOND };
        assert!(micros < limit, "{micros} us");
    }
}

#[test]
fn an_address_that_the_stack_has_outlasts_a_failure() {
    let ours = Ipv4Cidr::new(ADDRESS, 24);
    let ((failed, kept), _) = run(
        LinkConfig::default(),
        1,
        &[SERVER],
        |datagram| {
            let message = Message::parse(&datagram.payload).unwrap();
            let reply = with_file(lease_reply(SERVER, ADDRESS, &message), "f");
            let discover = message.message_type() == Some(MessageType::Discover);
            discover.then(|| from(&reply)).into_iter().collect()
        },
        async move |stack| {
            stack.configure(&Ipv4Config {
                address: ours,
                router: None,
                routes: vec![],
                mtu: None,
            });
            (discover(&stack, &wish()).await.is_err(), stack.address())
        },
    );
    assert_eq!((failed, kept), (true, Some(ours)));
}

#[test]
fn naks_forever_end_with_the_servers_words() {
    let (lease, _) = simply(|_, message| {
        if message.message_type() == Some(MessageType::Discover) {
            return vec![from(&with_file(lease_reply(SERVER, ADDRESS, message), "f"))];
        }
        let mut nak = Message::reply(MessageType::Nak, message);
        nak.options.set(option::SERVER_ID, SERVER.octets());
        nak.options.set(option::MESSAGE, "wrong network\x1b[2J");
        vec![from(&nak)]
    });
    let error = lease.unwrap_err().to_string();
    assert!(
        error.contains("10.0.0.1 refused 10.0.0.100 (NAK: wrong network\u{fffd}[2J)"),
        "{error}"
    );
}

#[test]
fn a_nak_of_another_server_is_nothing_to_us() {
    let (lease, _) = simply(|_, message| {
        let mut nak = Message::reply(MessageType::Nak, message);
        nak.options.set(option::SERVER_ID, OTHER.octets());
        vec![
            from(&nak),
            from(&with_file(lease_reply(SERVER, ADDRESS, message), "f")),
        ]
    });
    assert!(lease.is_ok());
}

#[test]
fn an_address_in_use_is_declined() {
    let taken = ADDRESS;
    let free = Ipv4Addr::new(10, 0, 0, 101);
    let mut declined = vec![];
    let (lease, _) = discovered(
        LinkConfig::default(),
        1,
        &[SERVER, taken],
        wish(),
        |_, message| {
            if message.message_type() == Some(MessageType::Decline) {
                assert_eq!(message.options.address(option::SERVER_ID), Some(SERVER));
                declined.extend(message.options.address(option::REQUESTED_ADDRESS));
                return vec![];
            }
            let address = if declined.is_empty() { taken } else { free };
            vec![from(&with_file(lease_reply(SERVER, address, message), "f"))]
        },
    );
    assert_eq!(lease.unwrap().address.address(), free);
    assert_eq!(declined, [taken]);
    // Its server is no worse for that than another one, which names no file.
    let beside_another = |other_address: Ipv4Addr| {
        let mut declined = false;
        discovered(
            LinkConfig::default(),
            1,
            &[SERVER, taken],
            wish(),
            move |_, message| {
                declined |= message.message_type() == Some(MessageType::Decline);
                let address = if declined { other_address } else { taken };
                let discover = message.message_type() == Some(MessageType::Discover);
                let offer = with_file(lease_reply(SERVER, address, message), "f");
                let plain = lease_reply(OTHER, Ipv4Addr::new(10, 0, 0, 50), message);
                match (discover, chosen(message, SERVER)) {
                    (true, _) => vec![from(&plain), from(&offer)],
                    (false, true) => vec![from(&offer)],
                    (false, false) => vec![from(&plain)],
                }
            },
        )
        .0
        .unwrap()
        .server
    };
    assert_eq!(beside_another(free), Some(SERVER));
    // It is where it has no other address.
    assert_eq!(beside_another(taken), Some(OTHER));
    // A server that has no other address.
    let (lease, _) = discovered(LinkConfig::default(), 1, &[taken], wish(), |_, message| {
        vec![from(&with_file(lease_reply(SERVER, taken, message), "f"))]
    });
    let error = lease.unwrap_err().to_string();
    assert!(
        error.contains("offered 10.0.0.100, which 02:00:00:00:00:0b uses"),
        "{error}"
    );
}

#[test]
fn the_address_that_is_acknowledged_is_probed() {
    let taken = Ipv4Addr::new(10, 0, 0, 100);
    let free = Ipv4Addr::new(10, 0, 0, 101);
    let answered = |offered, acknowledged, wait| {
        discovered(
            LinkConfig::default(),
            1,
            &[SERVER, taken],
            wish(),
            |_, message| match message.message_type() {
                Some(MessageType::Discover) => {
                    vec![from(&with_file(lease_reply(SERVER, offered, message), "f"))]
                }
                Some(MessageType::Request) => {
                    let ack = with_file(lease_reply(SERVER, acknowledged, message), "f");
                    vec![sent_by(SERVER, &ack, wait)]
                }
                _ => vec![],
            },
        )
    };
    let (lease, _) = answered(free, taken, 0);
    assert!(matches!(
        lease.unwrap_err(),
        DhcpError::AddressInUse { address, .. } if address == taken
    ));
    let (lease, _) = answered(taken, free, 0);
    assert_eq!(lease.unwrap().address.address(), free);
    // Once, beside a quick acknowledgement; again behind a slow one.
    let (lease, micros) = answered(free, free, 0);
    assert!(lease.is_ok());
    assert!((15_000..25_000).contains(&micros), "{micros} us");
    let (lease, micros) = answered(free, free, 200_000);
    assert!(lease.is_ok());
    assert!((215_000..225_000).contains(&micros), "{micros} us");
}

#[test]
fn who_answers_arp_for_all_addresses_uses_none() {
    let other = Ipv4Addr::new(10, 0, 0, 155);
    for (hosts, router, is_taken) in [
        (vec![ADDRESS, other], SERVER, false),
        (vec![ADDRESS], SERVER, true),
        // A second address of the router's.
        (vec![ADDRESS, SERVER], SERVER, true),
        (vec![ADDRESS, other], other, true),
    ] {
        let (lease, _) = discovered(LinkConfig::default(), 1, &hosts, wish(), |_, message| {
            let mut reply = with_file(lease_reply(SERVER, ADDRESS, message), "f");
            reply.options.set_addresses(option::ROUTERS, &[router]);
            vec![from(&reply)]
        });
        let in_use = matches!(lease, Err(DhcpError::AddressInUse { .. }));
        assert_eq!((in_use, lease.is_ok()), (is_taken, !is_taken));
    }
}

#[test]
fn silence_ends_with_advice() {
    let mut times = vec![];
    let (lease, micros) = simply(|datagram, message| {
        assert_eq!(u64::from(message.secs), datagram.micros as u64 / 1_000_000);
        times.push(datagram.micros / 1000);
        vec![]
    });
    let error = lease.unwrap_err().to_string();
    assert!(
        error.starts_with("no DHCP server answered 6 DISCOVERs over "),
        "{error}"
    );
    assert!(error.contains("cable"), "{error}");
    assert!((35 * SECOND..43 * SECOND).contains(&micros), "{micros} us");
    assert_eq!(times.len(), 6);
    for (pair, wait) in times.windows(2).zip(DISCOVER_WAITS) {
        let wait = wait as i64 * 1000;
        assert!(
            ((wait * 9 / 10)..=(wait * 11 / 10 + 2)).contains(&(pair[1] - pair[0])),
            "{times:?}"
        );
    }
}

#[test]
fn patience_has_the_end_that_was_asked_for() {
    let mut wish = wish();
    wish.patience = Some(Duration::from_secs(4));
    let silent = |_: &Datagram, _: &Message| vec![];
    let (lease, micros) = discovered(LinkConfig::default(), 1, &[SERVER], wish, silent);
    let error = lease.unwrap_err().to_string();
    assert!(error.contains("3 DISCOVERs over 4 s"), "{error}");
    assert!(
        (4 * SECOND..4 * SECOND + SECOND / 10).contains(&micros),
        "{micros} us"
    );
}

#[test]
fn a_lone_proxy_is_no_dhcp_server() {
    let (lease, _) = simply(|_, message| vec![from(&with_file(proxy_reply(message), "f"))]);
    let error = lease.unwrap_err().to_string();
    assert!(
        error.starts_with("only the proxyDHCP server 10.0.0.2 answered"),
        "{error}"
    );
}

#[test]
fn a_server_that_never_confirms_is_named() {
    let (lease, _) = simply(|_, message| {
        if message.message_type() == Some(MessageType::Discover) {
            vec![from(&with_file(lease_reply(SERVER, ADDRESS, message), "f"))]
        } else {
            vec![]
        }
    });
    let error = lease.unwrap_err();
    assert_eq!(
        error,
        DhcpError::NoAck {
            server: SERVER,
            address: ADDRESS
        }
    );
}

#[test]
fn the_acknowledgement_decides() {
    let other = Ipv4Addr::new(10, 0, 0, 77);
    let (lease, _) = simply(|_, message| {
        let mut reply = with_file(lease_reply(SERVER, ADDRESS, message), "offered");
        if message.message_type() == Some(MessageType::Request) {
            reply.yiaddr = other;
            reply.file = b"acknowledged".to_vec();
        }
        vec![from(&reply)]
    });
    let lease = lease.unwrap();
    assert_eq!(lease.address.address(), other);
    assert_eq!(lease.boot_file.as_deref(), Some("acknowledged"));
}

#[test]
fn replies_that_are_not_for_us_or_not_possible_are_ignored() {
    type Spoil = fn(&mut Message);
    let spoils: [Spoil; 12] = [
        |m| m.xid ^= 1,
        |m| m.chaddr[5] ^= 1,
        |m| m.operation = Operation::Request,
        |m| m.hardware_type = 6,
        |m| m.yiaddr = Ipv4Addr::new(224, 0, 0, 1),
        |m| m.yiaddr = Ipv4Addr::BROADCAST,
        |m| m.yiaddr = Ipv4Addr::LOCALHOST,
        |m| m.yiaddr = Ipv4Addr::UNSPECIFIED,
        |m| m.yiaddr = Ipv4Addr::new(10, 0, 0, 255),
        |m| m.yiaddr = Ipv4Addr::new(10, 0, 0, 0),
        |m| m.options.set(option::SERVER_ID, [10, 0, 0]),
        |m| m.options.set(option::MESSAGE_TYPE, [9]),
    ];
    for spoil in spoils {
        let (lease, _) = simply(|_, message| {
            let good = with_file(lease_reply(SERVER, ADDRESS, message), "f");
            let mut bad = with_file(
                lease_reply(OTHER, Ipv4Addr::new(10, 0, 0, 66), message),
                "bad",
            );
            spoil(&mut bad);
            vec![sent_by(OTHER, &bad, 0), sent_by(SERVER, &good, 5000)]
        });
        assert_eq!(lease.unwrap().boot_file.as_deref(), Some("f"));
    }
}

#[test]
fn loss_duplication_and_reordering_cost_time_only() {
    let link = LinkConfig {
        loss: 0.3,
        duplicate: 0.3,
        reorder: 0.3,
        reorder_micros: 20_000,
        ..LinkConfig::default()
    };
    let mut leases = 0;
    for seed in 0..30 {
        let (lease, _) = discovered(link, seed, &[SERVER], wish(), |_, message| {
            vec![from(&with_file(lease_reply(SERVER, ADDRESS, message), "f"))]
        });
        if let Ok(lease) = lease {
            assert_eq!(lease.address.address(), ADDRESS);
            leases += 1;
        }
    }
    // A lossy link may eat all of one try's messages; not often.
    assert!(leases >= 28, "{leases} of 30");
}

#[test]
fn corrupt_frames_yield_no_wrong_lease() {
    let link = LinkConfig {
        corrupt: 0.5,
        ..LinkConfig::default()
    };
    for seed in 0..30 {
        let (lease, _) = discovered(link, seed, &[], wish(), |_, message| {
            vec![from(&with_file(lease_reply(SERVER, ADDRESS, message), "f"))]
        });
        if let Ok(lease) = lease {
            assert_eq!(lease.address, Ipv4Cidr::new(ADDRESS, 24));
            assert_eq!(lease.boot_file.as_deref(), Some("f"));
        }
    }
}

/// An acknowledgement as firmware keeps it.
fn kept(edit: impl FnOnce(&mut Message)) -> Vec<u8> {
    let request = Message::request(MessageType::Request, 1, [2; 6]);
    let mut ack = lease_reply(SERVER, ADDRESS, &request);
    edit(&mut ack);
    let mut packet = ack.emit();
    // The base code's packets have a fixed size.
    packet.resize(1472, 0);
    packet
}

fn kept_reply(server: Ipv4Addr, file: &str) -> Vec<u8> {
    kept(|m| {
        m.yiaddr = Ipv4Addr::UNSPECIFIED;
        m.siaddr = server;
        m.file = file.as_bytes().to_vec();
    })
}

#[test]
fn firmware_packets_become_a_lease() {
    let ack = kept(|m| {
        m.siaddr = SERVER;
        m.file = b"ack.efi".to_vec();
    });
    let lease = Lease::from_packets(&ack, None, None).unwrap();
    assert_eq!(lease.source, LeaseSource::Firmware);
    assert_eq!(lease.address, Ipv4Cidr::new(ADDRESS, 24));
    assert_eq!(lease.boot_file.as_deref(), Some("ack.efi"));
    let proxy = kept_reply(PROXY, "proxy.efi");
    let lease = Lease::from_packets(&ack, Some(&proxy), None).unwrap();
    assert_eq!(
        (lease.next_server, lease.boot_file.as_deref()),
        (Some(PROXY), Some("proxy.efi"))
    );
    let reply = kept_reply(OTHER, "reply.efi");
    let lease = Lease::from_packets(&ack, Some(&proxy), Some(&reply)).unwrap();
    assert_eq!(
        (lease.next_server, lease.boot_file.as_deref()),
        (Some(OTHER), Some("reply.efi"))
    );
    // What is damaged, or names nothing, is passed over.
    let lease =
        Lease::from_packets(&ack, Some(&proxy[..200]), Some(&kept_reply(OTHER, ""))).unwrap();
    assert_eq!(lease.boot_file.as_deref(), Some("ack.efi"));

    assert!(matches!(
        Lease::from_packets(&[0; 1472], None, None),
        Err(DhcpError::Malformed(_))
    ));
    let nothing = kept(|m| m.yiaddr = Ipv4Addr::UNSPECIFIED);
    assert_eq!(
        Lease::from_packets(&nothing, None, None),
        Err(DhcpError::NoAddress)
    );
    let offer = kept(|m| m.options.set(option::MESSAGE_TYPE, [2]));
    assert_eq!(
        Lease::from_packets(&offer, None, None),
        Err(DhcpError::NoAddress)
    );
}

#[test]
fn the_next_server_in_all_its_places() {
    let next = |edit: fn(&mut Message)| {
        let ack = kept(|m| {
            m.file = b"f".to_vec();
            edit(m);
        });
        let lease = Lease::from_packets(&ack, None, None).unwrap();
        (lease.next_server, lease.next_server_name)
    };
    assert_eq!(next(|m| m.siaddr = OTHER), (Some(OTHER), None));
    assert_eq!(
        next(|m| m.options.set(option::TFTP_SERVER, "10.0.0.2")),
        (Some(PROXY), None)
    );
    assert_eq!(
        next(|m| m.sname = b"10.0.0.3".to_vec()),
        (Some(OTHER), None)
    );
    assert_eq!(
        next(|m| m.options.set(option::TFTP_SERVER, "tftp")),
        (None, Some("tftp".into()))
    );
    assert_eq!(
        next(|m| {
            m.siaddr = OTHER;
            m.sname = b"tftp".to_vec();
        }),
        (Some(OTHER), None)
    );
    assert_eq!(next(|_| {}), (Some(SERVER), None));
}

#[test]
fn routes_names_and_masks() {
    let lease = |edit: &dyn Fn(&mut Options)| {
        Lease::from_packets(&kept(|m| edit(&mut m.options)), None, None).unwrap()
    };
    use wireboot_wire::dhcp::Options;
    let routed = lease(&|options| {
        let routes = [
            &[0, 10, 0, 0, 3][..],
            &[16, 172, 16, 10, 0, 0, 2],
            &[16, 172, 17, 0, 0, 0, 0],
            &[0, 10, 0, 0, 2],
            // By what is no host.
            &[0, 224, 0, 0, 1],
            &[16, 172, 18, 224, 0, 0, 1],
        ]
        .concat();
        options.set(option::CLASSLESS_ROUTES, routes);
        options.set(option::MTU, [35, 40]);
        options.set(option::DOMAIN_SEARCH, b"\x01a\x03net\0\x01b\xc0\x02");
    });
    assert_eq!(routed.router, Some(OTHER), "RFC 3442: option 3 is ignored");
    let network = |second| Ipv4Cidr::new(Ipv4Addr::new(172, second, 0, 0), 16);
    let on_link = Ipv4Addr::UNSPECIFIED;
    let everywhere = Ipv4Cidr::new(Ipv4Addr::UNSPECIFIED, 0);
    let second = (everywhere, PROXY);
    assert_eq!(
        routed.routes,
        [(network(16), PROXY), (network(17), on_link), second]
    );
    assert_eq!(routed.mtu, Some(9000));
    assert_eq!(routed.search, ["a.net", "b.net"]);
    // RFC 2132, section 3.5: in the order of preference.
    let routers = [SERVER, on_link, PROXY, OTHER];
    let several = lease(&|options| options.set_addresses(option::ROUTERS, &routers));
    assert_eq!(several.router, Some(SERVER));
    assert_eq!(several.routes, [second, (everywhere, OTHER)]);
    let bare = lease(&|options| {
        options.set(option::SUBNET_MASK, [0; 4]);
        options.set(option::ROUTERS, [10, 0]);
        options.set(option::DNS_SERVERS, [0, 0, 0, 0, 10, 0, 0, 1]);
        options.set(option::DOMAIN_NAME, "");
    });
    assert_eq!(bare.address.prefix_len(), 8);
    assert_eq!(
        (bare.router, bare.dns, bare.search),
        (None, vec![SERVER], vec![])
    );
    let host = lease(&|options| options.set(option::SUBNET_MASK, [255; 4]));
    assert_eq!(host.address.prefix_len(), 32);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever comes to port 68: no panic, and no lease but the good server's.
    #[test]
    fn garbage_never_becomes_a_lease(
        seed: u64,
        flips in prop::collection::vec((0usize..320, any::<u8>()), 1..6),
        cut in 0usize..320,
        noise in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let (lease, _) = discovered(LinkConfig::default(), seed, &[], wish(), |_, message| {
            let good = with_file(lease_reply(SERVER, ADDRESS, message), "f");
            // A damaged answer of another server. What is damaged beyond its address may still be an offer of its own.
            let mut bad = with_file(lease_reply(OTHER, ADDRESS, message), "f").emit();
            for &(at, value) in &flips {
                if let Some(byte) = bad.get_mut(at) {
                    *byte ^= value;
                }
            }
            let short = bad[..cut.min(bad.len() - 1)].to_vec();
            let raw = |payload: Vec<u8>| Datagram {
                source: SocketAddrV4::new(OTHER, 67),
                destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, 68),
                payload,
                micros: 0,
                refusal: false,
            };
            let mut answers = vec![raw(bad), raw(short), raw(noise.clone())];
            if chosen(message, SERVER) {
                answers.push(sent_by(SERVER, &good, 2000));
            }
            answers
        });
        if let Ok(lease) = lease {
            prop_assert!(is_host(lease.address.address()));
            prop_assert!((1..=32).contains(&lease.address.prefix_len()));
            if lease.server == Some(SERVER) {
                prop_assert_eq!(lease.address.address(), ADDRESS);
                prop_assert_eq!(lease.next_server, Some(SERVER));
            }
        }
    }

    #[test]
    fn any_firmware_packets(
        ack in prop::collection::vec(any::<u8>(), 0..400),
        at in 0usize..300,
        value: u8,
    ) {
        let _ = Lease::from_packets(&ack, Some(&ack), Some(&ack));
        let mut packet = kept(|_| {});
        packet[at] = value;
        if let Ok(lease) = Lease::from_packets(&packet, None, None) {
            prop_assert!(is_host(lease.address.address()));
        }
    }
}
