use super::option::*;
use super::pxe::{self, BootServers, Item, MenuItem, Prompt};
use super::*;
use alloc::vec;
use proptest::prelude::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];

/// A reply with these bytes as `sname`, `file` and option field.
fn reply(sname: &[u8], file: &[u8], options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(&[2, 1, 6, 0]);
    bytes[CHADDR..CHADDR + 6].copy_from_slice(&MAC);
    bytes[SNAME..SNAME + sname.len()].copy_from_slice(sname);
    bytes[FILE..FILE + file.len()].copy_from_slice(file);
    bytes[MAGIC..].copy_from_slice(&MAGIC_COOKIE);
    bytes.extend_from_slice(options);
    bytes
}

fn parsed(options: &[u8]) -> Message {
    Message::parse(&reply(b"", b"", options)).unwrap()
}

fn with(code: u8, value: &[u8]) -> Options {
    let mut options = Options::default();
    options.set(code, value);
    options
}

#[test]
fn a_message_survives() {
    let mut message = Message::request(MessageType::Discover, 0x1234_5678, MAC);
    message.secs = 7;
    message.flags = 0x8000;
    message
        .options
        .set(VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003000");
    message.options.set(IPXE, vec![9; 600]);
    let bytes = message.emit();
    assert_eq!(Message::parse(&bytes), Ok(message.clone()));
    assert_eq!(message.mac(), Some(MAC));
    assert!(message.wants_broadcast());
    assert_eq!(
        bytes[HEADER..HEADER + 3],
        [53, 1, 1],
        "the message type comes first"
    );
    assert_eq!(
        Message::request(MessageType::Discover, 0, MAC).emit().len(),
        MIN_LEN
    );
}

#[test]
fn each_message_type_has_its_code() {
    let kinds = [
        MessageType::Discover,
        MessageType::Offer,
        MessageType::Request,
        MessageType::Decline,
        MessageType::Ack,
        MessageType::Nak,
        MessageType::Release,
        MessageType::Inform,
    ];
    for (code, kind) in (1..).zip(kinds) {
        assert_eq!(kind.code(), code);
        assert_eq!(parsed(&[53, 1, code]).message_type(), Some(kind));
    }
    for code in [0, 9] {
        assert_eq!(parsed(&[53, 1, code]).message_type(), None);
    }
}

#[test]
fn only_the_top_bit_of_the_flags_asks_for_broadcast() {
    let mut message = Message::request(MessageType::Discover, 1, MAC);
    assert!(!message.wants_broadcast());
    message.flags = 0x7fff;
    assert!(!message.wants_broadcast());
    message.flags = 0x8000;
    assert!(message.wants_broadcast());
}

#[test]
fn a_hardware_address_is_cut_at_sixteen_bytes() {
    let mut message = Message::request(MessageType::Discover, 1, MAC);
    message.chaddr = (1..=20).collect();
    let again = Message::parse(&message.emit()).unwrap();
    assert_eq!(again.chaddr, message.chaddr[..16]);
    assert_eq!(again.mac(), None);
}

#[test]
fn long_names_move_to_options() {
    let mut message = Message::request(MessageType::Offer, 1, MAC);
    message.operation = Operation::Reply;
    message.file = vec![b'f'; 128];
    message.sname = vec![b's'; 65];
    let message = Message::parse(&message.emit()).unwrap();
    assert_eq!(message.boot_file().unwrap().len(), 128);
    assert_eq!(message.file.len(), 128);
    assert_eq!(message.boot_server_name().unwrap().len(), 65);
    assert_eq!(message.sname, b"");
}

#[test]
fn a_reply_echoes_what_it_must() {
    let mut request = Message::request(MessageType::Request, 5, MAC);
    request.giaddr = Ipv4Addr::new(10, 0, 0, 1);
    request.ciaddr = Ipv4Addr::new(10, 0, 0, 2);
    request.hops = 1;
    request.secs = 9;
    request.flags = 0x8000;
    request.options.set(RELAY_AGENT, b"\x01\x02ab");
    let ack = Message::reply(MessageType::Ack, &request);
    assert_eq!(
        (ack.xid, ack.giaddr, ack.ciaddr),
        (5, request.giaddr, request.ciaddr)
    );
    assert_eq!((ack.hops, ack.secs), (0, 0));
    assert_eq!(ack.mac(), Some(MAC));
    for kind in [MessageType::Offer, MessageType::Ack, MessageType::Nak] {
        assert!(Message::reply(kind, &request).wants_broadcast());
    }
    assert_eq!(ack.options.get(RELAY_AGENT), Some(b"\x01\x02ab".as_slice()));
    assert_eq!(ack.message_type(), Some(MessageType::Ack));
    assert_eq!(
        Message::reply(MessageType::Nak, &request).ciaddr,
        Ipv4Addr::UNSPECIFIED
    );
}

#[test]
fn short_and_foreign_packets_are_refused() {
    let whole = reply(b"", b"", b"\xff");
    assert!(Message::parse(&whole).is_ok());
    for len in 0..HEADER {
        assert_eq!(Message::parse(&whole[..len]), Err(ParseError::Truncated));
    }
    let mut bytes = whole.clone();
    bytes[MAGIC] = 0;
    assert_eq!(Message::parse(&bytes), Err(ParseError::Magic));
    let mut bytes = whole.clone();
    bytes[2] = 17;
    assert_eq!(
        Message::parse(&bytes),
        Err(ParseError::Header),
        "hlen beyond chaddr"
    );
    let mut bytes = whole;
    bytes[0] = 3;
    assert_eq!(Message::parse(&bytes), Err(ParseError::Header));
}

#[test]
fn missing_end_is_tolerated_and_cut_options_are_not() {
    assert_eq!(
        parsed(b"\x35\x01\x02").message_type(),
        Some(MessageType::Offer)
    );
    assert_eq!(parsed(b"").message_type(), None);
    assert_eq!(parsed(b"\0\0\0").options, Options::default());
    for cut in [
        b"\x35\x01\x02\x36\x04\x0a\0\0".as_slice(),
        b"\x36",
        b"\x36\x01",
        b"\x36\xff\0",
    ] {
        assert_eq!(
            Message::parse(&reply(b"", b"", cut)),
            Err(ParseError::Option(54))
        );
    }
    assert!(
        Message::parse(&reply(b"", b"", b"\xff\x36\xff")).is_ok(),
        "after the end"
    );
}

#[test]
fn split_options_are_joined_in_the_order_of_rfc_3396() {
    let options = parsed(b"\x38\x02ab\x0c\x01x\x38\x01c\xff").options;
    assert_eq!(options.get(MESSAGE), Some(b"abc".as_slice()));
    // Overload 3: the options field, then file, then sname.
    let message = Message::parse(&reply(
        b"\x38\x01c\xff",
        b"\x38\x01b\x43\x05a.efi\xff",
        b"\x34\x01\x03\x38\x01a\xff",
    ))
    .unwrap();
    assert_eq!(message.options.get(MESSAGE), Some(b"abc".as_slice()));
    assert_eq!(message.boot_file(), Some("a.efi"));
    assert_eq!((message.sname.len(), message.file.len()), (0, 0));
    assert_eq!(Message::parse(&message.emit()), Ok(message));
}

#[test]
fn overload_of_one_field_leaves_the_other() {
    let message = Message::parse(&reply(b"server\0x", b"\x0c\x01h", b"\x34\x01\x01")).unwrap();
    assert_eq!(message.boot_server_name(), Some("server"));
    assert_eq!(message.options.text(HOST_NAME), Some("h"));
    assert_eq!(message.boot_file(), None);
    let message = Message::parse(&reply(b"\x0c\x01h", b"file", b"\x34\x01\x02")).unwrap();
    assert_eq!(message.boot_file(), Some("file"));
    assert_eq!(message.boot_server_name(), None);
    // An overload of 0 or of two bytes is none; one within a field has no power.
    assert_eq!(
        Message::parse(&reply(b"", b"f", b"\x34\x01\0"))
            .unwrap()
            .boot_file(),
        Some("f")
    );
    assert_eq!(
        Message::parse(&reply(b"", b"f", b"\x34\x02\x01\0"))
            .unwrap()
            .boot_file(),
        Some("f")
    );
    let message = Message::parse(&reply(b"s", b"\x34\x01\x03", b"\x34\x01\x01")).unwrap();
    assert_eq!(message.boot_server_name(), Some("s"));
    assert_eq!(message.options, Options::default());
    // A field cut off in the middle of an option.
    let mut file = [0; 128];
    file[127] = 12;
    assert_eq!(
        Message::parse(&reply(b"", &file, b"\x34\x01\x01")),
        Err(ParseError::Option(12))
    );
}

#[test]
fn lengths_are_checked() {
    let address = [10, 0, 0, 1];
    assert_eq!(
        with(SERVER_ID, &address).address(SERVER_ID),
        Some(address.into())
    );
    assert_eq!(with(SERVER_ID, &address[..3]).address(SERVER_ID), None);
    assert_eq!(with(DNS_SERVERS, &[1; 8]).addresses(DNS_SERVERS).len(), 2);
    assert_eq!(with(DNS_SERVERS, &[1; 7]).addresses(DNS_SERVERS).len(), 0);
    assert_eq!(with(DNS_SERVERS, &[]).addresses(DNS_SERVERS).len(), 0);
    assert_eq!(with(SUBNET_MASK, &[255, 255, 254, 0]).prefix(), Some(23));
    assert_eq!(with(SUBNET_MASK, &[0; 4]).prefix(), Some(0));
    assert_eq!(with(SUBNET_MASK, &[255, 0, 255, 0]).prefix(), None);
    assert_eq!(with(MTU, &[5, 0xdc]).mtu(), Some(1500));
    assert_eq!(with(MTU, &[0, 68]).mtu(), Some(68));
    assert_eq!(with(MTU, &[0, 67]).mtu(), None);
    assert_eq!(
        with(LEASE_TIME, &[0, 0, 14, 16]).u32(LEASE_TIME),
        Some(3600)
    );
    assert_eq!(with(ARCHITECTURE, &[0, 7, 0, 16]).architectures(), [7, 16]);
    assert_eq!(with(ARCHITECTURE, &[0, 7, 0]).architectures(), []);
    assert_eq!(
        with(NETWORK_INTERFACE, &[1, 3, 0]).network_interface(),
        Some([1, 3, 0])
    );
    assert_eq!(with(MACHINE_ID, &[0; 17]).machine_id(), Some([0; 16]));
    assert_eq!(with(MACHINE_ID, &[0; 16]).machine_id(), None);
    assert_eq!(with(MACHINE_ID, &[1; 17]).machine_id(), None);
}

#[test]
fn text_options() {
    assert_eq!(with(BOOT_FILE, b"a.efi\0\0").text(BOOT_FILE), Some("a.efi"));
    assert_eq!(with(BOOT_FILE, b"\0").text(BOOT_FILE), None);
    assert_eq!(with(BOOT_FILE, b"a\x1b[2J").text(BOOT_FILE), None);
    assert_eq!(with(BOOT_FILE, b"\xff").text(BOOT_FILE), None);
    // An unusable option 67 does not hide the field.
    assert_eq!(
        Message::parse(&reply(b"", b"f", b"\x43\x01\0"))
            .unwrap()
            .boot_file(),
        Some("f")
    );
    assert_eq!(parsed(b"\x38\x04no\x07!").message().unwrap(), "no\u{fffd}!");
}

#[test]
fn a_boot_file_that_is_not_text_is_told_apart_from_none() {
    let unreadable = |file: &[u8], options: &[u8]| {
        let message = Message::parse(&reply(b"", file, options)).unwrap();
        assert!(message.boot_file().is_none() || message.unreadable_boot_file().is_none());
        message.unreadable_boot_file()
    };
    assert_eq!(unreadable(b"", b""), None);
    assert_eq!(unreadable(b"a.efi", b""), None);
    assert_eq!(unreadable(b"a.efi\n", b"").unwrap(), "a.efi\u{fffd}");
    assert_eq!(unreadable(b"", b"\x43\x02\xe9a").unwrap(), "\u{fffd}a");
    // Another name that is text is one.
    assert_eq!(unreadable(b"a.efi", b"\x43\x02\xe9a"), None);
    // However far behind it lies.
    let mut message = parsed(b"");
    message.options = with(BOOT_FILE, &[[b'a'; 300].as_slice(), b"\xff"].concat());
    assert!(
        message
            .unreadable_boot_file()
            .unwrap()
            .ends_with('\u{fffd}')
    );
}

#[test]
fn user_class_forms() {
    assert_eq!(with(USER_CLASS, b"wireboot").user_classes(), [b"wireboot"]);
    assert_eq!(
        with(USER_CLASS, b"\x08wireboot").user_classes(),
        [b"wireboot"]
    );
    assert_eq!(
        with(USER_CLASS, b"\x04iPXE\x01x").user_classes(),
        [b"iPXE".as_slice(), b"x"]
    );
    assert_eq!(with(USER_CLASS, b"\x04iPX").user_classes(), [b"\x04iPX"]);
    assert_eq!(with(USER_CLASS, b"\x01x\0").user_classes(), [b"\x01x\0"]);
    assert!(with(USER_CLASS, b"").user_classes().is_empty());
}

#[test]
fn search_list_with_compression() {
    let list = b"\x03eng\x05apple\x03com\0\x09marketing\xc0\x04\x05sales\xc0\x0f";
    assert_eq!(
        with(DOMAIN_SEARCH, list).domain_search().unwrap(),
        [
            "eng.apple.com",
            "marketing.apple.com",
            "sales.marketing.apple.com"
        ]
    );
    for bad in [
        b"\xc0\x00".as_slice(),
        b"\x01a\xc0\x00",
        b"\x01a\xc0\x02",
        b"\x01a\xc0",
        b"\x01a\xc0\x40",
        b"\x01a",
        b"\x05a",
        b"\x40",
        b"\x01 \0",
    ] {
        assert_eq!(with(DOMAIN_SEARCH, bad).domain_search(), None, "{bad:?}");
    }
    // RFC 1035 section 2.3.4, without the final dot: 253 characters and no more.
    let label = [b"\x3f".as_slice(), &[b'a'; 63]].concat();
    for (last, length) in [(61, Some(253)), (62, None)] {
        let list = [
            label.repeat(3),
            vec![last],
            vec![b'a'; last.into()],
            vec![0],
        ]
        .concat();
        let names = with(DOMAIN_SEARCH, &list).domain_search();
        assert_eq!(names.map(|names| names[0].len()), length);
    }
    let long = label.repeat(4);
    assert_eq!(
        with(DOMAIN_SEARCH, &[long, vec![0]].concat()).domain_search(),
        None
    );
}

#[test]
fn classless_routes() {
    let bytes = [
        0, 10, 0, 0, 1, // default
        24, 10, 17, 0, 10, 0, 0, 2, // 10.17.0.0/24
        25, 10, 229, 0, 255, 10, 0, 0, 3, // stray bits
        32, 1, 2, 3, 4, 0, 0, 0, 0, // on the link
    ];
    let routes = with(CLASSLESS_ROUTES, &bytes).classless_routes().unwrap();
    let shown: Vec<_> = routes
        .iter()
        .map(|r| (r.destination.octets(), r.prefix, r.router.octets()))
        .collect();
    assert_eq!(
        shown,
        [
            ([0; 4], 0, [10, 0, 0, 1]),
            ([10, 17, 0, 0], 24, [10, 0, 0, 2]),
            ([10, 229, 0, 128], 25, [10, 0, 0, 3]),
            ([1, 2, 3, 4], 32, [0; 4]),
        ]
    );
    for bad in [
        &[33, 1, 2, 3, 4, 5, 10, 0, 0, 1][..],
        &[24, 10, 17],
        &[0, 10, 0, 0],
        &[255],
    ] {
        assert_eq!(with(CLASSLESS_ROUTES, bad).classless_routes(), None);
    }
}

#[test]
fn pxe_sub_options() {
    let options = PxeOptions {
        discovery_control: Some(pxe::discovery::USE_BOOT_FILE | 1),
        multicast: Some(Ipv4Addr::new(224, 0, 1, 2)),
        boot_servers: vec![
            BootServers {
                kind: 15,
                addresses: vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
            },
            BootServers {
                kind: 16,
                addresses: vec![],
            },
        ],
        menu: vec![MenuItem {
            kind: 15,
            description: "Install".into(),
        }],
        prompt: Some(Prompt {
            timeout: 3,
            text: "Press F8".into(),
        }),
        item: Some(Item { kind: 15, layer: 0 }),
    };
    assert_eq!(PxeOptions::parse(&options.emit()), Some(options.clone()));
    assert!(options.controls(8) && !options.controls(2));
    assert_eq!(options.servers_of(15).len(), 2);
    assert!(options.servers_of(99).is_empty());
    // What dnsmasq sends with a boot file of its own.
    let dnsmasq = b"\x06\x01\x08\x0a\x04\0PXE\x09\x0d\x80\x00\x0aNetwork\0\0\0\xff";
    assert_eq!(PxeOptions::parse(dnsmasq).unwrap().menu[0].kind, 0x8000);
}

/// Lengths that a parser which copies fixed sizes would read past.
#[test]
fn pxe_lengths_that_lie() {
    for bad in [
        b"\x06\x00".as_slice(),            // no control byte
        b"\x06\x02\x08\x08",               // two of them
        b"\x06\x01",                       // cut off
        b"\x06",                           // no length
        b"\x07\x03\xe0\0\x01",             // short address
        b"\x08\x02\0\x0f",                 // no count
        b"\x08\x03\0\x0f\x01",             // a server without an address
        b"\x08\x06\0\x0f\x01\x0a\0\0",     // half an address
        b"\x08\x04\0\x0f\0\0",             // bytes left
        b"\x08\xff\0\x0f\xff\x0a\0\0\x01", // count and length far beyond
        b"\x09\x03\0\x0f\x01",             // description missing
        b"\x09\x04\0\x0f\xffa",            // description beyond the end
        b"\x0a\x00",                       // no timeout
        b"\x47\x03\0\x0f\0",               // short item
        b"\x47\x05\0\x0f\0\0\0",           // long item
    ] {
        assert_eq!(PxeOptions::parse(bad), None, "{bad:02x?}");
    }
    assert_eq!(PxeOptions::parse(b""), Some(PxeOptions::default()));
    assert_eq!(PxeOptions::parse(b"\xff\x06"), Some(PxeOptions::default()));
    assert_eq!(
        PxeOptions::parse(b"\x01\x02ab"),
        Some(PxeOptions::default())
    );
}

#[test]
fn pxe_lists_are_cut_where_they_must() {
    let options = PxeOptions {
        boot_servers: (0..10)
            .map(|kind| BootServers {
                kind,
                addresses: vec![Ipv4Addr::LOCALHOST; 10],
            })
            .collect(),
        menu: vec![MenuItem {
            kind: 0,
            description: "\u{20ac}".repeat(100),
        }],
        prompt: Some(Prompt {
            timeout: 1,
            text: "\u{20ac}".repeat(100),
        }),
        ..PxeOptions::default()
    };
    let again = PxeOptions::parse(&options.emit()).unwrap();
    assert_eq!(again.boot_servers, options.boot_servers[..5]);
    assert_eq!(again.menu[0].description, "\u{20ac}".repeat(84));
    // 254 bytes are left for it, which end within a character.
    assert_eq!(again.prompt.unwrap().text, "\u{20ac}".repeat(84));
}

/// A server list and a prompt that fill a sub-option to the last byte, and one more of each.
#[test]
fn pxe_sub_options_hold_255_bytes() {
    for (addresses, text, kept) in [(63, 254, (63, 254)), (64, 255, (63, 254))] {
        let options = PxeOptions {
            boot_servers: vec![BootServers {
                kind: 1,
                addresses: vec![Ipv4Addr::LOCALHOST; addresses],
            }],
            prompt: Some(Prompt {
                timeout: 255,
                text: "x".repeat(text),
            }),
            ..PxeOptions::default()
        };
        let again = PxeOptions::parse(&options.emit()).unwrap();
        let prompt = again.prompt.unwrap();
        assert_eq!(
            (again.boot_servers[0].addresses.len(), prompt.text.len()),
            kept
        );
        assert_eq!(prompt.timeout, 255);
    }
}

#[test]
fn a_list_of_addresses_survives() {
    let mut message = Message::request(MessageType::Offer, 1, MAC);
    let servers = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    message.options.set_addresses(DNS_SERVERS, &servers);
    message.options.set_addresses(SERVER_ID, &servers[..1]);
    let options = Message::parse(&message.emit()).unwrap().options;
    assert_eq!(options.addresses(DNS_SERVERS), servers);
    assert_eq!(options.address(SERVER_ID), Some(servers[0]));
}

proptest! {
    #[test]
    fn any_options(
        sname in prop::collection::vec(any::<u8>(), 0..=64),
        file in prop::collection::vec(any::<u8>(), 0..=128),
        codes in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)), 0..20),
        tail in prop::collection::vec(any::<u8>(), 0..4),
        overload in 0u8..5,
    ) {
        let mut options = vec![52, 1, overload];
        for (code, value) in codes {
            super::option::emit(&mut options, code, &value);
        }
        options.extend(tail);
        crate::fuzzing::fuzz_dhcp(&reply(&sname, &file, &options));
    }

    #[test]
    fn any_pxe_options(data in prop::collection::vec(
        prop_oneof![Just(6u8), Just(8), Just(9), Just(10), Just(71), 0u8..5, any::<u8>()], 0..40,
    )) {
        crate::fuzzing::fuzz_pxe(&data);
    }
}
