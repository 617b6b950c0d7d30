use super::*;
use crate::event::Events;

const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const SERVER_ID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const CLIENT_ID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 7];
const SOURCE: SocketAddrV6 =
    SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7), 546, 0, 2);

/// RFC 8415, section 21.13: a status has a text for people.
#[test]
fn a_refusal_says_why() {
    for (code, text) in [
        (StatusCode::NO_ADDRS_AVAIL, "all addresses are taken"),
        (StatusCode::NO_BINDING, "this server knows nothing of it"),
        (
            StatusCode::NOT_ON_LINK,
            "the address is not of this network",
        ),
        (StatusCode::SUCCESS, ""),
    ] {
        assert_eq!(
            (status(code).code, status(code).message),
            (code, text.as_bytes())
        );
    }
}

/// An address of the network.
fn host(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

/// A directory that holds no boot file.
fn nothing() -> Arc<Directory> {
    Arc::new(Directory::open(std::path::Path::new("/sys/class"), None).unwrap())
}

fn answers() -> Answers {
    Answers {
        server_id: SERVER_ID.to_vec(),
        server: SERVER,
        own: vec![],
        link_local: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
        prefix: 64,
        range: Some(host(0x1000)..=host(0x1003)),
        dns: vec![host(0x53)],
        directory: nothing(),
        tftp: true,
        http: Some("http://[2001:db8::1]".to_owned()),
    }
}

fn responder() -> Responder {
    Responder::new(answers())
}

fn stateless() -> Responder {
    Responder::new(Answers {
        range: None,
        ..answers()
    })
}

fn from(client: u8, kind: MessageType, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut id = CLIENT_ID;
    id[9] = client;
    let mut writer = Writer::new(kind, 0x12_3456);
    writer.option(option::CLIENT_ID, id);
    write(&mut writer);
    writer.finish()
}

fn message(kind: MessageType, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    from(7, kind, write)
}

/// Adds an association with these addresses.
fn ia(writer: &mut Writer, addresses: &[Ipv6Addr]) {
    let ia = IaNa {
        iaid: 9,
        t1: 0,
        t2: 0,
        options: Options::default(),
    };
    writer.ia_na(&ia, |inner| {
        for &address in addresses {
            inner.ia_address(&IaAddress {
                address,
                preferred_lifetime: 0,
                valid_lifetime: 0,
                options: Options::default(),
            });
        }
    });
}

fn to_me(writer: &mut Writer, addresses: &[Ipv6Addr]) {
    writer.option(option::SERVER_ID, SERVER_ID);
    ia(writer, addresses);
}

fn firmware(writer: &mut Writer, class: &str, architecture: u16) {
    writer
        .vendor_class(343, &[class])
        .words(option::ARCHITECTURE, &[architecture]);
}

fn wants_dns(writer: &mut Writer) {
    writer.words(option::OPTION_REQUEST, &[option::DNS_SERVERS]);
}

fn ask_at(responder: &mut Responder, request: &[u8], now: Instant) -> Option<Vec<u8>> {
    responder.answer(request, SOURCE, Port::Server, now).0
}

fn ask(responder: &mut Responder, request: &[u8]) -> Option<Vec<u8>> {
    ask_at(responder, request, Instant::now())
}

/// Addresses with their valid lifetimes, and the status, of the only association.
fn association_of(reply: &[u8]) -> (Vec<(Ipv6Addr, u32)>, StatusCode) {
    let message = Message::parse(reply).unwrap();
    let all: Vec<_> = message.options.ia_na().collect();
    let [ia] = all.as_slice() else {
        panic!("{} associations", all.len());
    };
    assert_eq!(ia.iaid, 9);
    let addresses = ia.options.ia_addresses();
    let addresses = addresses.map(|one| (one.address, one.valid_lifetime));
    (addresses.collect(), ia.options.status().code)
}

fn url(responder: &mut Responder, request: &[u8]) -> Option<String> {
    let reply = ask(responder, request)?;
    let message = Message::parse(&reply).unwrap();
    message.options.boot_file_url().map(str::to_owned)
}

/// RFC 8415 sections 18.3.1, 18.3.2 and 18.3.9.
#[test]
fn solicit_advertise_request_reply() {
    let mut responder = responder();
    let solicit = message(MessageType::Solicit, |out| ia(out, &[]));
    let advertise = ask(&mut responder, &solicit).unwrap();
    let parsed = Message::parse(&advertise).unwrap();
    assert_eq!(parsed.kind, MessageType::Advertise);
    assert_eq!(parsed.transaction_id, 0x12_3456);
    assert_eq!(parsed.options.server_id(), Some(SERVER_ID.as_slice()));
    assert_eq!(parsed.options.client_id(), Some(CLIENT_ID.as_slice()));
    assert_eq!(parsed.options.preference(), 255);
    assert!(!parsed.options.rapid_commit());
    let (offered, _) = association_of(&advertise);
    let [(address, 3600)] = offered[..] else {
        panic!("{offered:?}");
    };
    assert!((host(0x1000)..=host(0x1003)).contains(&address));

    let request = message(MessageType::Request, |out| to_me(out, &[address]));
    let reply = ask(&mut responder, &request).unwrap();
    let parsed = Message::parse(&reply).unwrap();
    assert_eq!(parsed.kind, MessageType::Reply);
    assert_eq!(parsed.options.get(option::PREFERENCE), None);
    assert_eq!(
        association_of(&reply),
        (vec![(address, 3600)], StatusCode::SUCCESS)
    );
    let given = parsed.options.ia_na().next().unwrap();
    assert_eq!((given.t1, given.t2), (1800, 2880));
    let lifetimes = given.options.ia_addresses().next().unwrap();
    assert!(lifetimes.preferred_lifetime <= lifetimes.valid_lifetime);
}

/// Section 18.3.1: with Rapid Commit, the Reply to the Solicit is a lease.
#[test]
fn a_rapid_commit_is_a_lease() {
    let mut responder = responder();
    let now = Instant::now();
    let solicit = message(MessageType::Solicit, |out| {
        out.option(option::RAPID_COMMIT, []);
        ia(out, &[]);
    });
    let reply = ask_at(&mut responder, &solicit, now).unwrap();
    let parsed = Message::parse(&reply).unwrap();
    assert_eq!(parsed.kind, MessageType::Reply);
    assert!(parsed.options.rapid_commit());
    assert_eq!(parsed.options.get(option::PREFERENCE), None);
    let address = association_of(&reply).0[0].0;
    // An offer's time is over long before a lease's.
    let later = now + Duration::from_secs(3000);
    let other = from(8, MessageType::Request, |out| to_me(out, &[address]));
    let reply = ask_at(&mut responder, &other, later).unwrap();
    assert_ne!(association_of(&reply).0[0].0, address);
}

#[test]
fn a_request_is_given_what_it_wishes_or_another_address() {
    let mut responder = responder();
    let wish = |client| {
        from(client, MessageType::Request, |out| {
            to_me(out, &[host(0x1002)])
        })
    };
    let address = |reply: Vec<u8>| association_of(&reply).0[0].0;
    assert_eq!(
        address(ask(&mut responder, &wish(1)).unwrap()),
        host(0x1002)
    );
    assert_ne!(
        address(ask(&mut responder, &wish(2)).unwrap()),
        host(0x1002)
    );
    // Two associations of one client are two clients.
    let both = message(MessageType::Request, |out| {
        to_me(out, &[]);
        let ia = IaNa {
            iaid: 10,
            t1: 0,
            t2: 0,
            options: Options::default(),
        };
        out.ia_na(&ia, |_| {});
    });
    let reply = ask(&mut responder, &both).unwrap();
    let parsed = Message::parse(&reply).unwrap();
    let mut given: Vec<_> = parsed
        .options
        .ia_na()
        .flat_map(|ia| ia.options.ia_addresses())
        .collect();
    given.dedup_by_key(|one| one.address);
    assert_eq!(given.len(), 2);
}

#[test]
fn a_message_with_many_associations_does_not_empty_the_pool() {
    let mut responder = Responder::new(Answers {
        range: Some(host(0x1000)..=host(0x1fff)),
        ..answers()
    });
    let solicit = message(MessageType::Solicit, |out| {
        for iaid in 0..100 {
            let ia = IaNa {
                iaid,
                t1: 0,
                t2: 0,
                options: Options::default(),
            };
            out.ia_na(&ia, |_| {});
        }
    });
    let reply = ask(&mut responder, &solicit).unwrap();
    let parsed = Message::parse(&reply).unwrap();
    assert_eq!(parsed.options.ia_na().count(), 8);
}

#[test]
fn an_address_of_another_network_is_not_on_link() {
    let mut responder = responder();
    let elsewhere = Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, 0x1000);
    let request = message(MessageType::Request, |out| to_me(out, &[elsewhere]));
    let reply = ask(&mut responder, &request).unwrap();
    assert_eq!(association_of(&reply), (vec![], StatusCode::NOT_ON_LINK));
    // To a Solicit the wish is a hint.
    let solicit = message(MessageType::Solicit, |out| ia(out, &[elsewhere]));
    let advertise = ask(&mut responder, &solicit).unwrap();
    assert_eq!(association_of(&advertise).0.len(), 1);
    let rapid = message(MessageType::Solicit, |out| {
        out.option(option::RAPID_COMMIT, []);
        ia(out, &[elsewhere]);
    });
    let reply = ask(&mut responder, &rapid).unwrap();
    assert_eq!(association_of(&reply).0.len(), 1);
}

#[test]
fn without_a_free_address_the_association_says_so() {
    let mut responder = responder();
    for client in 0..4 {
        let request = from(client, MessageType::Request, |out| to_me(out, &[]));
        let reply = ask(&mut responder, &request).unwrap();
        assert_eq!(association_of(&reply).1, StatusCode::SUCCESS);
    }
    for kind in [MessageType::Solicit, MessageType::Request] {
        let request = message(kind, |out| match kind {
            MessageType::Solicit => ia(out, &[]),
            _ => to_me(out, &[]),
        });
        let reply = ask(&mut responder, &request).unwrap();
        assert_eq!(association_of(&reply), (vec![], StatusCode::NO_ADDRS_AVAIL));
        let parsed = Message::parse(&reply).unwrap();
        assert_eq!(parsed.options.ia_na().next().unwrap().t1, 0);
    }
}

/// The addresses that clients are offered, one each.
fn offered(answers: Answers) -> Vec<Ipv6Addr> {
    let mut responder = Responder::new(answers);
    let mut offered = Vec::new();
    for client in 0..4 {
        let solicit = from(client, MessageType::Solicit, |out| ia(out, &[]));
        let advertise = ask(&mut responder, &solicit).unwrap();
        let (addresses, _) = association_of(&advertise);
        offered.extend(addresses.into_iter().map(|(address, _)| address));
    }
    offered.sort();
    offered
}

#[test]
fn what_others_have_is_offered_to_nobody() {
    let two = || Answers {
        range: Some(host(0x1000)..=host(0x1001)),
        ..answers()
    };
    assert_eq!(offered(two()), [host(0x1000), host(0x1001)]);
    let own = Answers {
        own: vec![SERVER, host(0x1000)],
        ..two()
    };
    assert_eq!(offered(own), [host(0x1001)]);
    let dns = Answers {
        dns: vec![host(0x53), host(0x1001)],
        ..two()
    };
    assert_eq!(offered(dns), [host(0x1000)]);
    let server = Answers {
        server: host(0x1001),
        ..two()
    };
    assert_eq!(offered(server), [host(0x1000)]);
}

/// Sections 18.3.4 and 18.3.5.
#[test]
fn renew_and_rebind_extend_what_is_there() {
    for kind in [MessageType::Renew, MessageType::Rebind] {
        let mut responder = responder();
        let now = Instant::now();
        let ask_for = |addresses: &[Ipv6Addr]| {
            message(kind, |out| match kind {
                MessageType::Renew => to_me(out, addresses),
                _ => ia(out, addresses),
            })
        };
        // After a restart, a client's own address is taken for granted.
        let own = host(0x1001);
        let reply = ask_at(&mut responder, &ask_for(&[own]), now).unwrap();
        assert_eq!(
            association_of(&reply),
            (vec![(own, 3600)], StatusCode::SUCCESS)
        );
        let later = now + Duration::from_secs(3000);
        ask_at(&mut responder, &ask_for(&[own]), later).unwrap();
        let other = from(8, MessageType::Request, |out| to_me(out, &[own]));
        let reply = ask_at(&mut responder, &other, later + Duration::from_secs(3000)).unwrap();
        assert_ne!(association_of(&reply).0[0].0, own, "extended, so not free");
        // What cannot be extended is taken back.
        let foreign = host(0x2000);
        let reply = ask_at(&mut responder, &ask_for(&[foreign, own]), later).unwrap();
        let (addresses, _) = association_of(&reply);
        assert_eq!(addresses, [(own, 3600), (foreign, 0)]);
        let reply = ask_at(&mut responder, &ask_for(&[]), later).unwrap();
        assert_eq!(association_of(&reply), (vec![], StatusCode::NO_BINDING));
    }
}

/// RFC 8415, section 18.3.3.
#[test]
fn confirm_tells_whether_addresses_fit_the_link() {
    let mut responder = responder();
    let elsewhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 7);
    for (addresses, code) in [
        (vec![host(7)], Some(StatusCode::SUCCESS)),
        (vec![elsewhere], Some(StatusCode::NOT_ON_LINK)),
        (vec![host(7), elsewhere], Some(StatusCode::NOT_ON_LINK)),
        (vec![], None),
    ] {
        let confirm = message(MessageType::Confirm, |out| ia(out, &addresses));
        let reply = ask(&mut responder, &confirm);
        let status = reply.map(|reply| Message::parse(&reply).unwrap().options.status().code);
        assert_eq!(status, code, "{addresses:?}");
    }
}

/// Sections 18.3.7 and 18.3.8.
#[test]
fn release_and_decline_end_a_binding() {
    for kind in [MessageType::Release, MessageType::Decline] {
        let mut responder = responder();
        let request = message(MessageType::Request, |out| to_me(out, &[host(0x1001)]));
        let reply = ask(&mut responder, &request).unwrap();
        let address = association_of(&reply).0[0].0;
        let other = |kind| from(8, kind, |out| to_me(out, &[address]));
        // Who does not have it cannot end it.
        let reply = ask(&mut responder, &other(kind)).unwrap();
        assert_eq!(association_of(&reply).1, StatusCode::NO_BINDING);
        let reply = ask(&mut responder, &other(MessageType::Request)).unwrap();
        assert_ne!(association_of(&reply).0[0].0, address);

        let end = message(kind, |out| to_me(out, &[address]));
        let reply = ask(&mut responder, &end).unwrap();
        let parsed = Message::parse(&reply).unwrap();
        assert_eq!(parsed.kind, MessageType::Reply);
        assert_eq!(parsed.options.status().code, StatusCode::SUCCESS);
        assert_eq!(parsed.options.ia_na().count(), 0);
        // A released address can be had again; a declined one is somebody's.
        let third = from(9, MessageType::Request, |out| to_me(out, &[address]));
        let reply = ask(&mut responder, &third).unwrap();
        let free = association_of(&reply).0[0].0 == address;
        assert_eq!(free, kind == MessageType::Release);
    }
}

/// RFC 8415, section 16.
#[test]
fn messages_that_a_server_discards() {
    use MessageType::*;
    let with = |kind, client: bool, server: Option<&[u8]>| {
        let mut writer = Writer::new(kind, 1);
        if client {
            writer.option(option::CLIENT_ID, CLIENT_ID);
        }
        if let Some(server) = server {
            writer.option(option::SERVER_ID, server);
        }
        match kind {
            InformationRequest => wants_dns(&mut writer),
            _ => ia(&mut writer, &[host(0x1000)]),
        }
        writer.finish()
    };
    let (mine, other) = (SERVER_ID.as_slice(), [0, 3, 0, 1, 9].as_slice());
    for (kind, without, with_mine) in [
        (Solicit, true, false),
        (Advertise, false, false),
        (Request, false, true),
        (Confirm, true, false),
        (Renew, false, true),
        (Rebind, true, false),
        (Reply, false, false),
        (Release, false, true),
        (Decline, false, true),
        (Reconfigure, false, false),
        (InformationRequest, true, true),
    ] {
        let answers = |client, server| ask(&mut responder(), &with(kind, client, server)).is_some();
        assert_eq!(answers(true, None), without, "{kind:?}");
        assert_eq!(answers(true, Some(mine)), with_mine, "{kind:?} to me");
        assert!(!answers(true, Some(other)), "{kind:?} to another");
        // Only information may be asked for without a name.
        let anonymous = kind == InformationRequest;
        assert_eq!(answers(false, None), anonymous, "{kind:?}");
        assert_eq!(answers(false, Some(mine)), anonymous, "{kind:?}");
    }
    let information = message(InformationRequest, |out| {
        wants_dns(out);
        ia(out, &[]);
    });
    assert!(ask(&mut responder(), &information).is_none());
    assert!(ask(&mut responder(), b"\x0c").is_none());
}

#[test]
fn each_kind_of_client_gets_its_boot_file() {
    let solicit = |class: &str, architecture| {
        message(MessageType::Solicit, |out| {
            ia(out, &[]);
            firmware(out, class, architecture);
        })
    };
    for (class, architecture, expected) in [
        (
            "PXEClient:Arch:00007:UNDI:003016",
            7,
            Some("tftp://[2001:db8::1]/wireboot.efi"),
        ),
        ("PXEClient", 9, Some("tftp://[2001:db8::1]/wireboot.efi")),
        (
            "HTTPClient:Arch:00016:UNDI:003016",
            16,
            Some("http://[2001:db8::1]/wireboot.efi"),
        ),
        ("PXEClient", 0, None),
        ("PXEClient", 11, None),
        ("HTTPClient", 19, None),
        // Without a class of its own, firmware is known by its architecture.
        ("other", 16, Some("http://[2001:db8::1]/wireboot.efi")),
        ("other", 7, Some("tftp://[2001:db8::1]/wireboot.efi")),
    ] {
        let found = url(&mut responder(), &solicit(class, architecture));
        assert_eq!(found.as_deref(), expected, "{class} {architecture}");
    }
    let wireboot = message(MessageType::Solicit, |out| {
        ia(out, &[]);
        firmware(out, "PXEClient", 7);
        out.strings(option::USER_CLASS, &["wireboot"]);
    });
    let configuration = url(&mut responder(), &wireboot);
    assert_eq!(
        configuration.as_deref(),
        Some("http://[2001:db8::1]/wireboot.conf")
    );
    let without_http = Answers {
        http: None,
        ..answers()
    };
    let configuration = url(&mut Responder::new(without_http), &wireboot);
    assert_eq!(
        configuration.as_deref(),
        Some("tftp://[2001:db8::1]/wireboot.conf")
    );
    let plain = message(MessageType::Solicit, |out| ia(out, &[]));
    assert_eq!(url(&mut responder(), &plain), None);

    let bios = solicit("PXEClient:Arch:00000", 0);
    let (reply, events) = responder().answer(&bios, SOURCE, Port::Server, Instant::now());
    assert!(reply.is_some(), "it gets an address");
    let told = |event: &Event| {
        event.event == Kind::Dhcpv6Ignored && event.message.as_deref().unwrap().contains("BIOS")
    };
    assert!(events.iter().any(told), "{events:?}");
}

/// What firmware takes for a boot server's answer and what for a proxy's depends on the vendor class.
#[test]
fn the_vendor_class_is_echoed_where_firmware_needs_it() {
    let solicit = |class: &str, architecture| {
        message(MessageType::Solicit, |out| {
            ia(out, &[]);
            firmware(out, class, architecture);
        })
    };
    let echoed = |mut responder: Responder, request: &[u8]| {
        let reply = ask(&mut responder, request).unwrap();
        let parsed = Message::parse(&reply).unwrap();
        let codes: Vec<u16> = parsed.options.iter().map(|(code, _)| code).collect();
        assert_ne!(
            codes.last(),
            Some(&option::BOOT_FILE_URL),
            "a zero byte must follow"
        );
        let class = parsed.options.vendor_classes().next()?;
        assert_eq!(class.enterprise_number, 343);
        Some(class.classes.concat())
    };
    let http = solicit("HTTPClient:Arch:00016:UNDI:003016", 16);
    let pxe = solicit("PXEClient:Arch:00007:UNDI:003016", 7);
    assert_eq!(echoed(responder(), &http).unwrap(), b"HTTPClient");
    assert_eq!(echoed(stateless(), &http).unwrap(), b"HTTPClient");
    assert_eq!(echoed(responder(), &pxe), None);
    assert_eq!(echoed(stateless(), &pxe).unwrap(), b"PXEClient");
}

#[test]
fn name_servers_are_told_to_who_asks_for_them() {
    for kind in [MessageType::InformationRequest, MessageType::Solicit] {
        for (wanted, told) in [(option::DNS_SERVERS, 1), (option::BOOT_FILE_URL, 0)] {
            let request = message(kind, |out| {
                out.words(option::OPTION_REQUEST, &[wanted]);
                firmware(out, "PXEClient", 7);
            });
            let reply = ask(&mut responder(), &request).unwrap();
            let parsed = Message::parse(&reply).unwrap();
            assert_eq!(parsed.options.dns_servers().count(), told);
        }
    }
}

/// RFC 8415 section 18.2.6: the client takes the first Reply, which may be another server's only where this one has nothing to tell.
#[test]
fn who_asks_for_information_that_there_is_not_gets_no_reply() {
    let nothing = |_: &mut Writer| {};
    let boots = |out: &mut Writer| firmware(out, "PXEClient", 7);
    // There is no program for it.
    let is_unserved = |out: &mut Writer| firmware(out, "PXEClient", 11);
    type Write = fn(&mut Writer);
    let cases: [(Write, bool, bool); 5] = [
        // What is asked for, and the answers with name servers and without.
        (nothing, false, false),
        (wants_dns, true, false),
        (boots, true, true),
        (is_unserved, false, false),
        (
            |out| {
                wants_dns(out);
                firmware(out, "PXEClient", 7);
            },
            true,
            true,
        ),
    ];
    for range in [answers().range, None] {
        for (n, (write, with_dns, without)) in cases.into_iter().enumerate() {
            for (dns, answered) in [(answers().dns, with_dns), (vec![], without)] {
                let mut responder = Responder::new(Answers {
                    range: range.clone(),
                    dns,
                    ..answers()
                });
                let request = message(MessageType::InformationRequest, write);
                let reply = ask(&mut responder, &request);
                assert_eq!(reply.is_some(), answered, "case {n}, {range:?}");
            }
        }
    }
}

#[test]
fn a_client_that_takes_another_servers_address_is_a_sign_of_one() {
    let others = OtherServers::default();
    let mut responder = responder().unless(others.clone());
    let heard = || others.is_time(Duration::from_secs(60));
    let _ = ask(
        &mut responder,
        &message(MessageType::Request, |out| to_me(out, &[])),
    );
    assert!(!heard());
    let elsewhere = |out: &mut Writer| {
        out.option(option::SERVER_ID, [0, 3, 0, 1, 9, 9, 9, 9, 9, 9]);
        ia(out, &[]);
    };
    let release = message(MessageType::Release, elsewhere);
    assert!(ask(&mut responder, &release).is_none());
    assert!(!heard());
    let request = message(MessageType::Request, elsewhere);
    assert!(ask(&mut responder, &request).is_none());
    assert!(heard());

    let solicit = message(MessageType::Solicit, |out| {
        ia(out, &[]);
        firmware(out, "PXEClient:Arch:00007:UNDI:003000", 7);
    });
    let advertise = ask(&mut responder, &solicit).unwrap();
    assert_eq!(association_of(&advertise).0.len(), 1);
    others.find();
    let advertise = ask(&mut responder, &solicit).unwrap();
    let options = Message::parse(&advertise).unwrap().options;
    let given = options.ia_na().flat_map(|ia| ia.options.ia_addresses());
    assert_eq!(given.count(), 0);
    assert!(options.boot_file_url().is_some());
}

#[test]
fn beside_another_server_there_are_boot_files_and_no_addresses() {
    let mut responder = stateless();
    let boots = |kind, id: bool| {
        message(kind, |out| {
            if id {
                out.option(option::SERVER_ID, SERVER_ID);
            }
            ia(out, &[]);
            firmware(out, "PXEClient:Arch:00007:UNDI:003016", 7);
        })
    };
    let advertise = ask(&mut responder, &boots(MessageType::Solicit, false)).unwrap();
    let parsed = Message::parse(&advertise).unwrap();
    assert_eq!(parsed.kind, MessageType::Advertise);
    assert_eq!(parsed.options.ia_na().count(), 0);
    assert_eq!(
        parsed.options.preference(),
        0,
        "the other server's is taken"
    );
    // Firmware can reach no other address yet.
    let url = Some("tftp://[fe80::1]/wireboot.efi");
    assert_eq!(parsed.options.boot_file_url(), url);
    let request = boots(MessageType::Request, true);
    assert!(ask(&mut responder, &request).is_none());
    let (reply, _) = responder.answer(&request, SOURCE, Port::Pxe, Instant::now());
    let reply = reply.unwrap();
    let parsed = Message::parse(&reply).unwrap();
    assert_eq!(parsed.kind, MessageType::Reply);
    assert_eq!(
        parsed.options.boot_file_url(),
        Some("tftp://[fe80::1]/wireboot.efi")
    );
    // Who does not boot is the other server's.
    let plain = message(MessageType::Solicit, |out| ia(out, &[]));
    let (reply, events) = responder.answer(&plain, SOURCE, Port::Server, Instant::now());
    assert!(reply.is_none() && events.is_empty());
    let (reply, _) = responder.answer(&plain, SOURCE, Port::Pxe, Instant::now());
    assert!(reply.is_none());
    let information = message(MessageType::InformationRequest, |_| {});
    let (reply, events) = responder.answer(&information, SOURCE, Port::Server, Instant::now());
    assert!(reply.is_none() && events.is_empty());
    let information = message(MessageType::InformationRequest, wants_dns);
    let reply = ask(&mut responder, &information).unwrap();
    let parsed = Message::parse(&reply).unwrap();
    assert_eq!(parsed.kind, MessageType::Reply);
    assert_eq!(parsed.options.dns_servers().count(), 1);
    // Who has an address can reach any.
    let information = message(MessageType::InformationRequest, |out| {
        firmware(out, "PXEClient", 7);
    });
    let reply = ask(&mut responder, &information).unwrap();
    let url = Some("tftp://[2001:db8::1]/wireboot.efi");
    assert_eq!(Message::parse(&reply).unwrap().options.boot_file_url(), url);
}

#[test]
fn the_log_says_who_asked_for_what() {
    let solicit = message(MessageType::Solicit, |out| {
        ia(out, &[]);
        firmware(out, "HTTPClient:Arch:00016:UNDI:003016", 16);
        out.strings(option::USER_CLASS, &["x\x1b"]);
    });
    let (_, events) = responder().answer(&solicit, SOURCE, Port::Server, Instant::now());
    let [asked, answered] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(
        (asked.event, asked.client.as_str()),
        (Kind::Dhcpv6Request, "fe80::7")
    );
    assert_eq!(
        asked.message.as_deref(),
        Some(
            "Solicit from 02:00:00:00:00:07, HTTPClient:Arch:00016:UNDI:003016, user class x\u{fffd}"
        )
    );
    assert_eq!(answered.event, Kind::Dhcpv6Advertise);
    assert!(answered.address.is_some());
    assert_eq!(
        answered.message.as_deref(),
        Some("boot file http://[2001:db8::1]/wireboot.efi")
    );
}

/// RFC 5970 section 3.3: the architecture is option 61.
#[test]
fn what_the_directory_holds_is_for_those_who_can_run_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["grubaa64.efi", "boot.ipxe"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let directory = Arc::new(Directory::open(folder.path(), None).unwrap());
    let mut responder = Responder::new(Answers {
        directory,
        ..answers()
    });
    let asked = |client, class: &str, architecture, user: &[u8]| {
        from(client, MessageType::Solicit, |out| {
            ia(out, &[]);
            firmware(out, class, architecture);
            if !user.is_empty() {
                let length = (user.len() as u16).to_be_bytes();
                out.option(option::USER_CLASS, [length.as_slice(), user].concat());
            }
        })
    };
    for (request, expected) in [
        (
            asked(1, "PXEClient", 11, b""),
            Some("tftp://[2001:db8::1]/grubaa64.efi"),
        ),
        (
            asked(2, "HTTPClient", 19, b""),
            Some("http://[2001:db8::1]/grubaa64.efi"),
        ),
        (
            asked(3, "PXEClient", 7, b"iPXE"),
            Some("http://[2001:db8::1]/boot.ipxe"),
        ),
        (asked(4, "PXEClient", 6, b""), None),
    ] {
        assert_eq!(url(&mut responder, &request).as_deref(), expected);
    }
    // Also where another server gives the addresses, and once.
    let mut stateless = stateless();
    let request = asked(5, "PXEClient", 11, b"");
    for told in [true, false] {
        let (reply, events) = stateless.answer(&request, SOURCE, Port::Server, Instant::now());
        assert!(reply.is_none());
        let why = events
            .iter()
            .find(|event| event.event == Kind::Dhcpv6Ignored);
        let words = why.and_then(|event| event.message.as_deref());
        assert_eq!(words.is_some_and(|why| why.contains("grubaa64.efi")), told);
        if let Some(why) = why {
            Events::default().record(why.clone());
        }
    }
}
