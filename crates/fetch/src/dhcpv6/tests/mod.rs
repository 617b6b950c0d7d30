//! The client against scripted servers: messages and times in, messages and an outcome out.

mod wire;

use super::client::{Client, Outcome};
use super::*;
use crate::dhcp::{LeaseSource, VendorClass};
use proptest::prelude::*;
use std::boxed::Box;
use std::string::ToString;
use std::vec;
use std::vec::Vec;
use wireboot_net::{Duration, Instant};
use wireboot_wire::dhcpv6::{
    IaAddress, IaNa, Message, MessageType, Options, Status, StatusCode, Writer, option,
};

const MAC: [u8; 6] = [2, 0, 0, 1, 2, 3];
const IAID: u32 = 0x0001_0203;
const SERVER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x100);
const SECOND_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x101);
const DUID: [u8; 4] = [0, 9, 9, 1];
const OTHER_DUID: [u8; 4] = [0, 9, 9, 2];
const URL: &str = "tftp://[2001:db8::1]/wireboot.efi";
const UUID: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

fn request() -> DhcpRequest {
    DhcpRequest {
        architecture: 16,
        uuid: Some(UUID),
        client_id: None,
        vendor_class: VendorClass::Http,
        user_class: "wireboot".into(),
        requested_address: None,
        want_boot_file: true,
        proxied: false,
        patience: None,
    }
}

/// For an address and no boot file.
fn plain_request() -> DhcpRequest {
    DhcpRequest {
        want_boot_file: false,
        ..request()
    }
}

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

/// A client and what it sends, on a clock of its own.
struct Bench {
    client: Client,
    now: i64,
    sent: Vec<(i64, Vec<u8>)>,
    random: u32,
    slaac: bool,
}

impl Bench {
    fn new(request: &DhcpRequest) -> Self {
        let mut bench = Self {
            client: Client::new(request, MAC, at(0), 0x00ab_cdef),
            now: 0,
            sent: Vec::new(),
            random: 77,
            slaac: false,
        };
        bench.turn();
        bench
    }

    fn turn(&mut self) {
        let random = &mut self.random;
        let message = self.client.transmit(at(self.now), || {
            *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *random
        });
        self.sent.extend(message.map(|message| (self.now, message)));
    }

    /// Lets time pass up to `millis`, or to the outcome.
    fn until(&mut self, millis: i64) -> Option<Outcome> {
        loop {
            let outcome = self.client.outcome(self.slaac, at(self.now));
            if outcome.is_some() {
                return outcome;
            }
            self.turn();
            if self.now >= millis {
                return None;
            }
            self.now += 1;
        }
    }

    fn last(&self) -> Message<'_> {
        Message::parse(&self.sent.last().unwrap().1).unwrap()
    }

    fn kinds(&self) -> Vec<MessageType> {
        let messages = self.sent.iter();
        messages
            .map(|(_, bytes)| Message::parse(bytes).unwrap().kind)
            .collect()
    }

    /// A server's message to the transaction under way.
    fn hear(&mut self, source: Ipv6Addr, reply: &Reply) {
        let message = self.last();
        let client_id = message.options.client_id().unwrap().to_vec();
        let bytes = reply.bytes(message.transaction_id, &client_id);
        self.client.receive(source, &bytes, at(self.now));
    }

    fn lease(&mut self) -> Lease6 {
        match self.client.outcome(self.slaac, at(self.now)) {
            Some(Outcome::Lease(lease)) => *lease,
            other => panic!("{other:?}"),
        }
    }

    fn error(&mut self) -> Dhcp6Error {
        match self.until(100_000) {
            Some(Outcome::Failed(error)) => error,
            other => panic!("{other:?}"),
        }
    }
}

/// What a server says.
#[derive(Clone)]
struct Reply {
    kind: MessageType,
    duid: Vec<u8>,
    addresses: Vec<Ipv6Addr>,
    iaid: u32,
    valid: u32,
    status: Option<StatusCode>,
    ia_status: Option<StatusCode>,
    preference: Option<u8>,
    rapid: bool,
    url: Option<&'static str>,
    raw: Vec<(u16, Vec<u8>)>,
}

fn advertise() -> Reply {
    Reply {
        kind: MessageType::Advertise,
        duid: DUID.to_vec(),
        addresses: vec![ADDRESS],
        iaid: IAID,
        valid: 3600,
        status: None,
        ia_status: None,
        preference: None,
        rapid: false,
        url: None,
        raw: vec![],
    }
}

fn reply() -> Reply {
    Reply {
        kind: MessageType::Reply,
        ..advertise()
    }
}

impl Reply {
    fn url(mut self) -> Self {
        self.url = Some(URL);
        self
    }

    fn from(mut self, duid: [u8; 4]) -> Self {
        self.duid = duid.to_vec();
        self
    }

    fn bytes(&self, transaction_id: u32, client_id: &[u8]) -> Vec<u8> {
        let status = |code: StatusCode| Status {
            code,
            message: b"no luck",
        };
        let mut out = Writer::new(self.kind, transaction_id);
        out.option(option::CLIENT_ID, client_id);
        out.option(option::SERVER_ID, &self.duid);
        if !self.addresses.is_empty() || self.ia_status.is_some() {
            let association = IaNa {
                iaid: self.iaid,
                t1: 0,
                t2: 0,
                options: Options::default(),
            };
            out.ia_na(&association, |out| {
                for &address in &self.addresses {
                    out.ia_address(&IaAddress {
                        address,
                        preferred_lifetime: self.valid,
                        valid_lifetime: self.valid,
                        options: Options::default(),
                    });
                }
                if let Some(code) = self.ia_status {
                    out.status(status(code));
                }
            });
        }
        if let Some(code) = self.status {
            out.status(status(code));
        }
        if let Some(preference) = self.preference {
            out.option(option::PREFERENCE, [preference]);
        }
        if self.rapid {
            out.option(option::RAPID_COMMIT, []);
        }
        if let Some(url) = self.url {
            out.option(option::BOOT_FILE_URL, url);
            out.strings(option::BOOT_FILE_PARAMETERS, &["a b", "c"]);
        }
        out.addresses(option::DNS_SERVERS, &[SERVER, ADDRESS]);
        out.domain_search(&["example.net"]);
        for (code, value) in &self.raw {
            out.option(*code, value);
        }
        out.finish()
    }
}

#[test]
fn a_solicit_says_who_asks_and_for_what() {
    let bench = Bench::new(&request());
    assert_eq!(bench.sent[0].0, 0, "the first leaves at once");
    let message = bench.last();
    let options = message.options;
    assert_eq!(
        (message.kind, message.transaction_id),
        (MessageType::Solicit, 0x00ab_cdef)
    );
    assert_eq!(options.client_id().unwrap(), [&[0, 4][..], &UUID].concat());
    assert_eq!(options.server_id(), None);
    assert_eq!(options.get(option::RAPID_COMMIT), None);
    assert_eq!(options.elapsed_time(), Some(0));
    let associations: Vec<_> = options.ia_na().map(|ia| (ia.iaid, ia.t1, ia.t2)).collect();
    assert_eq!(associations, [(IAID, 0, 0)]);
    let asked: Vec<_> = options.option_request().collect();
    assert_eq!(asked, [59, 60, 16, 17, 23, 24, 82]);
    assert_eq!(options.architectures().collect::<Vec<_>>(), [16]);
    assert_eq!(options.network_interface(), Some([1, 3, 0]));
    assert_eq!(options.user_classes(), [b"wireboot"]);
    let classes: Vec<_> = options.vendor_classes().collect();
    assert_eq!(classes[0].enterprise_number, 343);
    assert_eq!(classes[0].classes, [b"HTTPClient:Arch:00016:UNDI:003000"]);
    // Without a boot file to be named, one server's word is enough.
    assert!(Bench::new(&plain_request()).last().options.rapid_commit());
    // Without a UUID it is the card.
    {
        let bench = Bench::new(&DhcpRequest {
            uuid: None,
            vendor_class: VendorClass::Pxe,
            architecture: 7,
            user_class: String::new(),
            ..request()
        });
        let options = bench.last().options;
        let duid = [&[0, 3, 0, 1][..], &MAC].concat();
        assert_eq!(options.client_id().unwrap(), duid);
        assert_eq!(options.get(option::USER_CLASS), None);
        let class = options.vendor_classes().next().unwrap();
        assert_eq!(class.classes, [b"PXEClient:Arch:00007:UNDI:003000"]);
    }
}

#[test]
fn a_server_sees_the_firmwares_client_again() {
    let message = Reply {
        iaid: 0x9876_5432,
        ..reply()
    };
    let duid = [0, 1, 0, 1, 2, 3, 4, 5, 2, 0, 0, 1, 2, 3];
    let client_id = ClientId::of_packet(&message.bytes(1, &duid));
    let known = ClientId {
        duid: duid.to_vec(),
        iaid: Some(0x9876_5432),
    };
    assert_eq!(client_id, Some(known.clone()));
    let who = |client_id| {
        let bench = Bench::new(&DhcpRequest {
            client_id: Some(client_id),
            ..request()
        });
        let options = bench.last().options;
        let iaid = options.ia_na().next().unwrap().iaid;
        (options.client_id().unwrap().to_vec(), iaid)
    };
    assert_eq!(who(known.clone()), (duid.to_vec(), 0x9876_5432));
    // HTTP Boot tells of no association.
    let iaid = None;
    assert_eq!(
        who(ClientId {
            iaid,
            ..known.clone()
        }),
        (duid.to_vec(), IAID)
    );
    // No DUID at all.
    let own = [&[0, 4][..], &UUID].concat();
    let duid = vec![0, 1];
    assert_eq!(who(ClientId { duid, ..known }), (own, 0x0001_0203));
    assert_eq!(ClientId::of_packet(&[7, 1, 2, 3]), None);
}

#[test]
fn solicits_are_repeated_as_the_rfc_says() {
    let mut bench = Bench::new(&request());
    let error = bench.error();
    assert_eq!(
        error,
        Dhcp6Error::NoAnswer {
            messages: 7,
            seconds: 39,
            malformed: 0
        }
    );
    let times: Vec<_> = bench.sent.iter().map(|(time, _)| *time).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // RAND is above 0 for the first, and within a tenth for the others; the limit is 8 s.
    assert!((1001..=1101).contains(&gaps[0]), "{gaps:?}");
    for pair in gaps.windows(2).take(2) {
        assert!(
            (pair[0] * 19 / 10 - 2..=pair[0] * 21 / 10 + 2).contains(&pair[1]),
            "{gaps:?}"
        );
    }
    assert!(
        gaps[3..].iter().all(|gap| (7200..=8800).contains(gap)),
        "{gaps:?}"
    );
    for (time, bytes) in &bench.sent {
        let message = Message::parse(bytes).unwrap();
        let elapsed = message.options.elapsed_time().unwrap();
        assert_eq!(i64::from(elapsed), time / 10);
        assert_eq!(message.transaction_id, 0x00ab_cdef);
        assert_eq!(message.options.get(option::RAPID_COMMIT), None);
    }
    let mut bench = Bench::new(&DhcpRequest {
        patience: Some(Duration::from_secs(3)),
        ..request()
    });
    bench.error();
    assert_eq!(bench.now, 3000);
}

/// A client that was given two addresses by rapid commit, of which a neighbour has the first.
fn declining() -> Bench {
    let mut bench = Bench::new(&plain_request());
    bench.now = 10;
    let rapid = Reply {
        rapid: true,
        addresses: vec![ADDRESS, SECOND_ADDRESS],
        ..reply().url()
    };
    bench.hear(SERVER, &rapid);
    assert_eq!(bench.lease().addresses, [ADDRESS, SECOND_ADDRESS]);
    bench.now = 30;
    bench.client.decline(vec![ADDRESS], at(30));
    bench
}

#[test]
fn an_address_that_a_neighbour_has_is_declined() {
    let mut bench = declining();
    let solicit = bench.last().transaction_id;
    assert_eq!(bench.until(40), None);
    let (time, _) = bench.sent[1];
    assert_eq!(time, 30, "at once");
    let message = bench.last();
    let options = message.options;
    assert_eq!(message.kind, MessageType::Decline);
    assert_ne!(message.transaction_id, solicit);
    assert_eq!(options.client_id().unwrap(), [&[0, 4][..], &UUID].concat());
    assert_eq!(options.server_id(), Some(&DUID[..]));
    assert_eq!(options.elapsed_time(), Some(0));
    let ia = options.ia_na().next().unwrap();
    let addresses = ia.options.ia_addresses();
    let addresses: Vec<_> = addresses
        .map(|one| (one.address, one.preferred_lifetime, one.valid_lifetime))
        .collect();
    assert_eq!((ia.iaid, addresses), (IAID, vec![(ADDRESS, 0, 0)]));
    // Nothing is asked for.
    for code in [option::OPTION_REQUEST, option::RAPID_COMMIT] {
        assert_eq!(options.get(code), None);
    }
    // Another server's answer, one of another kind; then the server's, whatever it says.
    bench.hear(OTHER, &reply().from(OTHER_DUID));
    bench.hear(SERVER, &advertise());
    bench.until(1200);
    let kinds = [
        MessageType::Solicit,
        MessageType::Decline,
        MessageType::Decline,
    ];
    assert_eq!(bench.kinds(), kinds);
    let failed = Reply {
        addresses: vec![],
        status: Some(StatusCode::UNSPEC_FAIL),
        ..reply()
    };
    bench.hear(SERVER, &failed);
    bench.until(1210);
    assert_eq!(bench.sent[3].0, 1200);
    assert_eq!(bench.last().kind, MessageType::Solicit);
    let second = Reply {
        rapid: true,
        addresses: vec![SECOND_ADDRESS],
        ..reply()
    };
    bench.hear(SERVER, &second);
    assert_eq!(bench.lease().addresses, [SECOND_ADDRESS]);
}

#[test]
fn a_server_that_does_not_hear_of_it_is_asked_again_all_the_same() {
    let mut bench = declining();
    bench.until(20_000);
    let kinds = bench.kinds();
    assert_eq!(
        kinds[..5],
        [vec![MessageType::Solicit], vec![MessageType::Decline; 4]].concat()
    );
    assert_eq!(kinds[5], MessageType::Solicit);
    let times: Vec<_> = bench.sent[1..6].iter().map(|(time, _)| *time).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (gap, seconds) in gaps.iter().zip([1, 2, 4, 8]) {
        // RAND adds up.
        let (least, most) = (seconds * 700, seconds * 1400);
        assert!((least..=most).contains(gap), "{gaps:?}");
    }
    let address = ADDRESS;
    assert_eq!(bench.error(), Dhcp6Error::Taken { address });
}

#[test]
fn a_reply_with_rapid_commit_is_the_lease() {
    let mut bench = Bench::new(&plain_request());
    bench.hear(SERVER, &reply().url());
    assert_eq!(
        bench.until(100),
        None,
        "without rapid commit it counts for nothing"
    );
    let rapid = Reply {
        rapid: true,
        ..reply().url()
    };
    bench.hear(SERVER, &rapid);
    let lease = bench.lease();
    assert_eq!(
        lease,
        Lease6 {
            addresses: vec![ADDRESS],
            dns: vec![SERVER, ADDRESS],
            search: vec!["example.net".to_string()],
            boot_file: Some(URL.to_string()),
            unreadable_boot_file: None,
            parameters: vec!["a b".to_string(), "c".to_string()],
            vendor: None,
            server: Some(SERVER),
            source: LeaseSource::Dhcp,
            ack: rapid.bytes(
                bench.last().transaction_id,
                bench.last().options.client_id().unwrap()
            ),
            discover: bench.sent[0].1.clone(),
            proxy_offer: Vec::new(),
        }
    );
    assert_eq!(bench.sent.len(), 1);
    // Where it was not asked for, it counts for nothing either.
    let mut bench = Bench::new(&request());
    bench.hear(SERVER, &rapid);
    assert_eq!(bench.until(900), None);
    assert_eq!(bench.sent.len(), 1);
}

#[test]
fn a_complete_advertisement_is_taken_at_once() {
    let last = Reply {
        preference: Some(255),
        ..advertise()
    };
    for complete in [advertise().url(), last] {
        let mut bench = Bench::new(&request());
        bench.now = 3;
        bench.hear(SERVER, &complete);
        bench.turn();
        assert_eq!(bench.kinds(), [MessageType::Solicit, MessageType::Request]);
        assert_eq!(bench.sent[1].0, 3);
        let message = bench.last();
        assert_eq!(message.options.server_id(), Some(&DUID[..]));
        assert!(!message.options.rapid_commit());
        assert_eq!(message.options.elapsed_time(), Some(0));
        assert_ne!(message.transaction_id, 0x00ab_cdef);
        bench.hear(SERVER, &reply());
        let lease = bench.lease();
        // There are servers that name the file in the advertisement alone.
        assert_eq!(lease.boot_file.as_deref(), complete.url);
        let request = Message::parse(&bench.sent[1].1).unwrap();
        let id = (request.transaction_id, request.options.client_id().unwrap());
        assert_eq!(lease.ack, reply().bytes(id.0, id.1));
        assert_eq!(lease.discover, bench.sent[0].1);
        assert!(lease.proxy_offer.is_empty());
        assert_eq!(lease.addresses, [ADDRESS]);
    }
    let mut bench = Bench::new(&plain_request());
    bench.hear(SERVER, &advertise());
    bench.turn();
    assert_eq!(bench.kinds(), [MessageType::Solicit, MessageType::Request]);
}

/// Which of these advertisements, all of other servers, is requested, and when.
fn chosen(advertisements: &[(i64, Reply)]) -> (u8, i64) {
    let mut bench = Bench::new(&request());
    for (number, (time, advertisement)) in advertisements.iter().enumerate() {
        if *time > bench.now {
            assert_eq!(bench.until(*time), None);
        }
        let duid = [0, 9, 9, number as u8];
        bench.hear(SERVER, &advertisement.clone().from(duid));
    }
    bench.until(bench.now + 600);
    assert_eq!(bench.kinds(), [MessageType::Solicit, MessageType::Request]);
    let duid = bench.last().options.server_id().unwrap();
    (duid[3], bench.sent[1].0)
}

#[test]
fn the_best_advertisement_is_taken() {
    let plain = advertise();
    let preferred = |preference| Reply {
        preference: Some(preference),
        ..advertise()
    };
    assert_eq!(chosen(&[(5, plain.clone())]), (0, 505));
    assert_eq!(
        chosen(&[(1, plain.clone()), (6, advertise().url())]),
        (1, 6)
    );
    assert_eq!(
        chosen(&[(5, plain.clone()), (300, plain.clone())]),
        (0, 505)
    );
    assert_eq!(chosen(&[(5, plain.clone()), (300, preferred(7))]), (1, 505));
    assert_eq!(chosen(&[(5, preferred(7)), (300, preferred(3))]), (0, 505));
    let (best, time) = chosen(&[(5, preferred(200)), (300, advertise().url())]);
    assert_eq!((best, time), (1, 300));
    // What has come in the same turn is looked at as well.
    let both = [
        (5, advertise().url()),
        (
            5,
            Reply {
                preference: Some(9),
                ..advertise().url()
            },
        ),
    ];
    assert_eq!(chosen(&both), (1, 5));
}

#[test]
fn a_server_without_addresses_may_name_the_boot_file() {
    let proxy = proxy();
    for first in [true, false] {
        let mut bench = Bench::new(&request());
        if first {
            bench.hear(OTHER, &proxy);
        }
        bench.hear(SERVER, &advertise());
        if !first {
            bench.hear(OTHER, &proxy);
            // Its arrival completes what there is.
        }
        bench.turn();
        assert_eq!(bench.kinds(), [MessageType::Solicit, MessageType::Request]);
        bench.hear(SERVER, &reply());
        let lease = bench.lease();
        assert_eq!(lease.boot_file.as_deref(), Some(URL));
        assert_eq!(lease.server, Some(SERVER));
        let offer = Message::parse(&lease.proxy_offer).unwrap();
        assert_eq!(offer.options.server_id(), Some(&OTHER_DUID[..]));
        assert_eq!(Message::parse(&lease.ack).unwrap().kind, MessageType::Reply);
    }
    // Alone it is no lease.
    let mut bench = Bench::new(&request());
    bench.hear(OTHER, &proxy);
    assert_eq!(bench.until(30_000), None);
}

#[test]
fn what_is_not_from_the_link_or_not_for_us_counts_for_nothing() {
    let good = advertise().url();
    let spoils: [fn(&mut Vec<u8>); 4] = [
        // Another type, another transaction, another client, no server.
        |bytes| bytes[0] = 1,
        |bytes| bytes[3] ^= 1,
        |bytes| bytes[9] ^= 1,
        |bytes| {
            let length = 4 + DUID.len();
            bytes.drain(26..26 + length);
        },
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let mut bench = Bench::new(&request());
        let client_id = bench.last().options.client_id().unwrap().to_vec();
        let mut bytes = good.bytes(0x00ab_cdef, &client_id);
        spoil(&mut bytes);
        assert!(Message::parse(&bytes).is_ok(), "case {number}");
        bench.client.receive(SERVER, &bytes, at(0));
        assert_eq!(bench.until(900), None);
        assert_eq!(bench.sent.len(), 1, "case {number}");
    }
    for source in [ADDRESS, Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST] {
        let mut bench = Bench::new(&request());
        bench.hear(source, &good);
        assert_eq!(bench.until(900), None);
        assert_eq!(bench.sent.len(), 1, "{source}");
    }
    // A reply of a server that was not chosen, and one to the solicit.
    let mut bench = Bench::new(&request());
    bench.hear(SERVER, &good);
    bench.turn();
    bench.hear(SERVER, &reply().url().from(OTHER_DUID));
    let client_id = bench.last().options.client_id().unwrap().to_vec();
    let late = Reply {
        rapid: true,
        ..reply()
    };
    let late = late.bytes(0x00ab_cdef, &client_id);
    bench.client.receive(SERVER, &late, at(0));
    assert_eq!(bench.until(500), None);
    bench.hear(SERVER, &reply());
    assert_eq!(bench.lease().addresses, [ADDRESS]);
}

#[test]
fn pixie_fail() {
    // CVE-2023-45229: an association of 11 bytes. 45230: a server identifier of 1,100 bytes.
    let short = Reply {
        addresses: vec![],
        raw: vec![(option::IA_NA, vec![0; 11])],
        ..advertise().url()
    };
    let long = Reply {
        duid: vec![7; 1100],
        ..advertise().url()
    };
    for bad in [short, long] {
        let mut bench = Bench::new(&request());
        bench.hear(SERVER, &bad);
        assert_eq!(bench.until(900), None);
        assert_eq!(bench.sent.len(), 1);
        let error = bench.error();
        assert!(matches!(error, Dhcp6Error::NoAnswer { malformed: 1, .. }));
    }
    // 45234: name servers of one byte. The rest holds.
    let mut bench = Bench::new(&plain_request());
    let client_id = bench.last().options.client_id().unwrap().to_vec();
    let mut out = Writer::new(MessageType::Reply, 0x00ab_cdef);
    out.option(option::CLIENT_ID, &client_id);
    out.option(option::SERVER_ID, DUID);
    out.option(option::DNS_SERVERS, [1]);
    out.option(option::RAPID_COMMIT, []);
    let association = IaNa {
        iaid: IAID,
        t1: 0,
        t2: 0,
        options: Options::default(),
    };
    out.ia_na(&association, |out| {
        out.ia_address(&IaAddress {
            address: ADDRESS,
            preferred_lifetime: 1,
            valid_lifetime: 1,
            options: Options::default(),
        });
    });
    bench.client.receive(SERVER, &out.finish(), at(0));
    let lease = bench.lease();
    assert_eq!((lease.addresses, lease.dns), (vec![ADDRESS], vec![]));
}

#[test]
fn addresses_that_no_host_can_have_are_no_lease() {
    let multicast: Ipv6Addr = "ff02::1".parse().unwrap();
    let mapped: Ipv6Addr = "::ffff:10.0.0.1".parse().unwrap();
    for bad in [
        multicast,
        mapped,
        SERVER,
        Ipv6Addr::UNSPECIFIED,
        Ipv6Addr::LOCALHOST,
    ] {
        let lying = Reply {
            addresses: vec![bad, SECOND_ADDRESS, SECOND_ADDRESS],
            rapid: true,
            ..reply()
        };
        let mut bench = Bench::new(&plain_request());
        bench.hear(SERVER, &lying);
        assert_eq!(bench.lease().addresses, [SECOND_ADDRESS], "{bad}");
    }
    let rapid = Reply {
        rapid: true,
        ..reply()
    };
    let expired = Reply {
        valid: 0,
        ..rapid.clone()
    };
    let anothers = Reply {
        iaid: IAID + 1,
        ..rapid.clone()
    };
    let refused = Reply {
        ia_status: Some(StatusCode::NO_ADDRS_AVAIL),
        ..rapid
    };
    for bad in [expired, anothers, refused] {
        let mut bench = Bench::new(&plain_request());
        bench.hear(SERVER, &bad);
        assert_eq!(bench.until(900), None);
    }
}

#[test]
fn of_very_many_addresses_some_are_kept() {
    let addresses = |count: u16| (0..count).map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, n));
    let rapid = Reply {
        rapid: true,
        addresses: addresses(10).collect(),
        ..reply()
    };
    let mut bench = Bench::new(&plain_request());
    bench.hear(SERVER, &rapid);
    assert_eq!(bench.lease().addresses, addresses(8).collect::<Vec<_>>());
}

#[test]
fn transactions_have_24_bits() {
    // The next one is 0.
    let last = || {
        let mut bench = Bench::new(&plain_request());
        bench.client = Client::new(&plain_request(), MAC, at(0), u32::MAX);
        bench.turn();
        assert_eq!(bench.last().transaction_id, 0x00ff_ffff);
        bench
    };
    let rapid = Reply {
        rapid: true,
        ..reply()
    };
    let mut informed = last();
    informed.client.router(false, true, at(0));
    informed.turn();
    assert_eq!(informed.last().kind, MessageType::InformationRequest);
    informed.hear(SERVER, &reply().url());
    informed.slaac = true;
    assert_eq!(informed.lease().boot_file.as_deref(), Some(URL));
    let mut declining = last();
    declining.hear(SERVER, &rapid);
    declining.client.decline(vec![ADDRESS], at(0));
    declining.turn();
    assert_eq!(declining.last().kind, MessageType::Decline);
    declining.hear(SERVER, &reply());
    declining.until(1200);
    assert_eq!(declining.last().kind, MessageType::Solicit);
    let mut refused = last();
    let refusal = Reply {
        status: Some(StatusCode::UNSPEC_FAIL),
        ..rapid.clone()
    };
    refused.hear(SERVER, &refusal);
    refused.until(1200);
    assert_eq!(refused.last().kind, MessageType::Solicit);
    refused.hear(SERVER, &rapid);
    assert_eq!(refused.lease().addresses, [ADDRESS]);
}

#[test]
fn a_refusal_is_told_and_asked_again_no_sooner() {
    for (refusal, words) in [
        (
            Reply {
                status: Some(StatusCode::NO_ADDRS_AVAIL),
                ..advertise().url()
            },
            "no luck (status 2)",
        ),
        (
            Reply {
                addresses: vec![],
                ia_status: Some(StatusCode::NO_ADDRS_AVAIL),
                ..advertise()
            },
            "no luck (status 2)",
        ),
        (
            Reply {
                addresses: vec![],
                ..advertise()
            },
            "it has none left (status 2)",
        ),
    ] {
        let mut bench = Bench::new(&request());
        bench.hear(SERVER, &refusal);
        assert_eq!(bench.until(900), None);
        assert_eq!(bench.sent.len(), 1);
        let error = bench.error();
        assert_eq!(
            error,
            Dhcp6Error::Refused {
                server: SERVER,
                reason: words.to_string()
            }
        );
    }
    // A reply to the request refuses: the next solicit leaves when it would have left anyway.
    let mut bench = Bench::new(&plain_request());
    bench.hear(SERVER, &advertise().url());
    bench.turn();
    let refusal = Reply {
        status: Some(StatusCode::NOT_ON_LINK),
        ..reply()
    };
    bench.hear(SERVER, &refusal);
    assert_eq!(bench.until(1500), None);
    assert_eq!(
        bench.kinds(),
        [
            MessageType::Solicit,
            MessageType::Request,
            MessageType::Solicit
        ]
    );
    assert!(bench.sent[2].0 > 1000, "{:?}", bench.sent[2].0);
    assert_ne!(bench.last().transaction_id, 0x00ab_cdef);
    let rapid = Reply {
        rapid: true,
        ..reply()
    };
    bench.hear(SERVER, &rapid);
    assert_eq!(bench.lease().addresses, [ADDRESS]);
}

#[test]
fn a_server_that_answers_no_request_is_given_up() {
    let mut bench = Bench::new(&request());
    bench.hear(SERVER, &advertise().url());
    bench.until(9_000);
    use MessageType::{Request, Solicit};
    assert_eq!(
        bench.kinds()[..5],
        [Solicit, Request, Request, Request, Solicit]
    );
    assert_eq!(bench.error(), Dhcp6Error::NoReply { server: SERVER });
}

#[test]
fn after_a_server_that_gave_no_lease_comes_another_one() {
    let refusal = Reply {
        status: Some(StatusCode::NOT_ON_LINK),
        ..reply().from(OTHER_DUID)
    };
    let first = Reply {
        preference: Some(255),
        ..advertise().url().from(OTHER_DUID)
    };
    // What the other one advertises, and how long after the first that is requested.
    for (second, wait) in [
        (Some(advertise().url()), 5),
        (Some(advertise()), 500),
        (None, 500),
    ] {
        for refuses in [true, false] {
            let mut bench = Bench::new(&request());
            bench.hear(OTHER, &first);
            bench.turn();
            assert_eq!(bench.last().options.server_id(), Some(&OTHER_DUID[..]));
            if refuses {
                bench.hear(OTHER, &refusal);
            }
            while bench.last().kind != MessageType::Solicit {
                assert_eq!(bench.until(bench.now + 1), None);
            }
            let began = bench.now;
            bench.hear(OTHER, &first);
            assert_eq!(bench.until(began + 5), None);
            if let Some(second) = &second {
                bench.hear(SERVER, second);
            }
            assert_eq!(bench.until(began + 600), None);
            let (time, _) = bench.sent.last().unwrap();
            assert_eq!(time - began, wait);
            let chosen = second.as_ref().map_or(OTHER_DUID, |_| DUID);
            assert_eq!(bench.last().kind, MessageType::Request);
            assert_eq!(bench.last().options.server_id(), Some(&chosen[..]));
        }
    }
}

#[test]
fn routers_say_whether_addresses_come_from_a_server() {
    // O without M: information alone.
    let mut bench = Bench::new(&request());
    bench.now = 20;
    bench.client.router(false, true, at(20));
    bench.client.router(false, true, at(20));
    bench.turn();
    bench.turn();
    assert_eq!(
        bench.kinds(),
        [MessageType::Solicit, MessageType::InformationRequest]
    );
    let message = bench.last();
    assert_eq!(message.options.ia_na().count(), 0);
    assert!(!message.options.rapid_commit());
    let asked: Vec<_> = message.options.option_request().collect();
    assert_eq!(asked, [59, 60, 16, 17, 23, 24, 83, 32]);
    bench.hear(SERVER, &reply().url());
    assert_eq!(bench.until(40), None, "there is no address yet");
    bench.slaac = true;
    let lease = bench.lease();
    assert_eq!(lease.addresses, Vec::<Ipv6Addr>::new());
    assert_eq!(lease.boot_file.as_deref(), Some(URL));
    assert_eq!(lease.discover, bench.sent[1].1);
    assert_eq!(Message::parse(&lease.ack).unwrap().kind, MessageType::Reply);
    // Another router says M.
    let mut bench = Bench::new(&request());
    bench.client.router(false, true, at(0));
    bench.turn();
    bench.client.router(true, true, at(0));
    assert_eq!(bench.until(2000), None);
    assert_eq!(bench.kinds().last(), Some(&MessageType::Solicit));
    // M: as without a router.
    let mut bench = Bench::new(&request());
    bench.client.router(true, true, at(0));
    bench.turn();
    assert_eq!(bench.kinds(), [MessageType::Solicit]);
    // An advertisement is better than what routers say.
    let mut bench = Bench::new(&request());
    bench.hear(SERVER, &advertise().url());
    bench.client.router(false, true, at(0));
    bench.turn();
    assert_eq!(bench.kinds(), [MessageType::Solicit, MessageType::Request]);
}

#[test]
fn an_address_by_a_routers_prefix_is_enough_where_there_is_no_server() {
    let bare = Outcome::Lease(Box::new(Lease6::new(LeaseSource::Dhcp)));
    // The router says that there is none.
    let mut bench = Bench::new(&request());
    bench.slaac = true;
    for now in 0..500 {
        bench.client.router(false, false, at(now));
        assert_eq!(bench.client.outcome(true, at(now)), None);
    }
    assert_eq!(bench.client.outcome(true, at(500)), Some(bare.clone()));
    assert_eq!(bench.client.outcome(false, at(500)), None);
    // It says that there is one, which does not answer three messages.
    // Each has its time: one, two and four seconds, more or less; a first one that it made needless has none.
    for (managed, time) in [(true, 5_800..9_000), (false, 2_500..4_000)] {
        let mut bench = Bench::new(&request());
        bench.slaac = true;
        bench.client.router(managed, true, at(0));
        assert_eq!(bench.until(60_000), Some(bare.clone()));
        assert!(time.contains(&bench.now), "{} ms", bench.now);
    }
}

/// A server without addresses that names the boot file.
fn proxy() -> Reply {
    Reply {
        addresses: vec![],
        ..advertise().url().from(OTHER_DUID)
    }
}

#[test]
fn a_boot_file_that_was_advertised_goes_with_an_address_by_a_routers_prefix() {
    // What the router says, and when that is all that comes: at once, or when nobody has answered three messages.
    for (managed, other, time) in [
        (false, false, 500..501),
        (true, true, 5_800..9_000),
        (false, true, 2_500..4_000),
    ] {
        let mut bench = Bench::new(&request());
        bench.slaac = true;
        bench.hear(OTHER, &proxy());
        bench.client.router(managed, other, at(0));
        let Some(Outcome::Lease(lease)) = bench.until(60_000) else {
            panic!("no lease");
        };
        assert!(time.contains(&bench.now), "{} ms", bench.now);
        assert_eq!(lease.addresses, Vec::<Ipv6Addr>::new());
        assert_eq!(lease.boot_file.as_deref(), Some(URL));
        assert_eq!(lease.dns, [SERVER, ADDRESS]);
        assert_eq!(lease.server, Some(OTHER));
        assert_eq!(lease.discover, bench.sent[0].1);
        let offer = Message::parse(&lease.proxy_offer).unwrap();
        assert_eq!(offer.options.server_id(), Some(&OTHER_DUID[..]));
    }
}

/// A client that asks for information, since 20 ms.
fn asking_for_information(request: &DhcpRequest) -> Bench {
    let mut bench = Bench::new(request);
    bench.now = 20;
    bench.client.router(false, true, at(20));
    bench.turn();
    assert_eq!(bench.last().kind, MessageType::InformationRequest);
    bench
}

#[test]
fn information_without_a_boot_file_waits_for_one() {
    let plain = Reply {
        addresses: vec![],
        ..reply().from(OTHER_DUID)
    };
    // A boot server answers later; the name servers of both are known.
    let mut bench = asking_for_information(&request());
    bench.slaac = true;
    bench.hear(OTHER, &plain);
    assert_eq!(bench.until(300), None);
    bench.hear(OTHER, &plain);
    bench.hear(SERVER, &reply().url());
    let lease = bench.lease();
    assert_eq!(lease.addresses, Vec::<Ipv6Addr>::new());
    assert_eq!(lease.boot_file.as_deref(), Some(URL));
    assert_eq!(lease.server, Some(SERVER));
    assert_eq!(lease.dns, [SERVER, ADDRESS, SERVER, ADDRESS]);
    let ack = Message::parse(&lease.ack).unwrap();
    assert_eq!(ack.options.server_id(), Some(&DUID[..]));
    // What comes behind one that names the file counts for nothing.
    let other = Reply {
        url: Some("http://[2001:db8::2]/x"),
        ..plain.clone()
    };
    bench.hear(OTHER, &other);
    bench.hear(OTHER, &plain);
    assert_eq!(bench.lease(), lease);
    // None does: the first is the lease. Others make it no later, and nothing is sent.
    let mut bench = asking_for_information(&request());
    bench.slaac = true;
    bench.hear(OTHER, &plain);
    assert_eq!(bench.until(400), None);
    bench.hear(SERVER, &plain);
    assert_eq!(bench.until(519), None);
    let Some(Outcome::Lease(lease)) = bench.until(520) else {
        panic!("no lease");
    };
    assert_eq!((&lease.boot_file, lease.server), (&None, Some(OTHER)));
    assert_eq!(lease.dns, [SERVER, ADDRESS]);
    assert_eq!(bench.sent.len(), 2);
    // Where none is wanted, or a server without addresses has advertised one, nobody waits.
    let mut bench = asking_for_information(&plain_request());
    bench.slaac = true;
    bench.hear(OTHER, &plain);
    assert_eq!(bench.lease().boot_file, None);
    let mut bench = Bench::new(&request());
    bench.slaac = true;
    bench.hear(OTHER, &proxy());
    bench.client.router(false, true, at(0));
    bench.turn();
    bench.hear(SERVER, &plain);
    let lease = bench.lease();
    assert_eq!(lease.boot_file.as_deref(), Some(URL));
    assert_eq!(lease.server, Some(SERVER));
    assert!(!lease.proxy_offer.is_empty());
}

/// Three messages were in vain, and the fourth would leave meanwhile.
#[test]
fn information_that_comes_late_is_kept_all_the_same() {
    let plain = Reply {
        addresses: vec![],
        ..reply()
    };
    let mut bench = asking_for_information(&request());
    assert_eq!(bench.until(10_000), None);
    let (fourth, _) = bench.sent[3];
    let mut bench = asking_for_information(&request());
    assert_eq!(bench.until(fourth - 100), None);
    assert_eq!(bench.sent.len(), 3);
    bench.hear(SERVER, &plain);
    bench.slaac = true;
    assert_eq!(bench.until(fourth + 399), None);
    assert!(bench.until(fourth + 400).is_some());
    assert_eq!(bench.lease().dns, [SERVER, ADDRESS]);
    assert_eq!(bench.sent.len(), 3);
}

#[test]
fn the_firmwares_packets() {
    let ack = reply().url().bytes(1, b"client");
    let lease = Lease6::from_packets(&ack, None, None).unwrap();
    assert_eq!((lease.addresses, lease.server), (vec![ADDRESS], None));
    assert_eq!(lease.boot_file.as_deref(), Some(URL));
    assert_eq!(lease.source, LeaseSource::Firmware);
    let proxy = Reply {
        addresses: vec![SECOND_ADDRESS],
        url: Some("http://[2001:db8::2]/x"),
        raw: vec![(option::VENDOR_OPTIONS, vec![0, 0, 1, 87])],
        ..advertise()
    };
    let proxy = proxy.bytes(1, b"client");
    let plain = reply().bytes(1, b"client");
    for (proxy, pxe_reply) in [(Some(&*proxy), Some(&plain[..])), (None, Some(&*proxy))] {
        let lease = Lease6::from_packets(&plain, proxy, pxe_reply).unwrap();
        assert_eq!(lease.boot_file.as_deref(), Some("http://[2001:db8::2]/x"));
        assert_eq!(lease.vendor.as_deref(), Some(&[0, 0, 1, 87][..]));
        assert_eq!(lease.addresses, [ADDRESS]);
    }
    // A URL that is not text is one that cannot be had, not none.
    let latin = Reply {
        raw: vec![(option::BOOT_FILE_URL, b"http://[fd00::1]/caf\xe9".to_vec())],
        ..reply()
    };
    let lease = Lease6::from_packets(&latin.bytes(1, b"client"), None, None).unwrap();
    let named = lease.unreadable_boot_file.as_deref();
    assert_eq!(named, Some("http://[fd00::1]/caf\u{fffd}"));
    // A damaged one is passed over.
    let lease = Lease6::from_packets(&ack, Some(&[2]), Some(&[])).unwrap();
    assert_eq!(lease.boot_file.as_deref(), Some(URL));
    assert!(Lease6::from_packets(&[], None, None).is_err());
    let bench = Bench::new(&request());
    assert!(Lease6::from_packets(&bench.sent[0].1, None, None).is_err());
}

proptest! {
    #[test]
    fn no_message_leads_to_a_lease_that_nobody_can_have(
        flips in prop::collection::vec((0usize..220, any::<u8>()), 0..6),
        cut in 0usize..400, rapid in any::<bool>(), requesting in any::<bool>(),
    ) {
        let mut bench = Bench::new(&DhcpRequest { want_boot_file: !rapid, ..request() });
        if requesting {
            bench.hear(SERVER, &advertise().url());
            bench.turn();
        }
        let message = bench.last();
        let client_id = message.options.client_id().unwrap().to_vec();
        let kind = if rapid || requesting { MessageType::Reply } else { MessageType::Advertise };
        let answer = Reply { rapid, kind, preference: Some(1), ..advertise().url() };
        let mut bytes = answer.bytes(message.transaction_id, &client_id);
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= value;
            }
        }
        bytes.truncate(cut);
        bench.client.receive(SERVER, &bytes, at(0));
        bench.turn();
        if let Some(Outcome::Lease(lease)) = bench.client.outcome(false, at(0)) {
            prop_assert!(!lease.addresses.is_empty());
            prop_assert!(lease.addresses.iter().all(|&address| is_host(address)));
        }
    }
}
