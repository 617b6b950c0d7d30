//! The questions on a simulated wire in simulated time, to a host that is smoltcp.

mod host;

use crate::probe;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use host::{ADDRESS, Answer, Host, Nature};
use std::string::ToString;
use std::vec;
use std::vec::Vec;
use wireboot_fetch::url::Url;
use wireboot_net::{Engine, Instant, Ipv4Cidr, Ipv4Config};
use wireboot_nic::sim::{self, LinkConfig, NicConfig};
use wireboot_report::Server;
use wireboot_report::servers::{HttpAnswer, TftpAnswer};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// In which every probe has ended, in microseconds.
const LONGEST: i64 = 46_000_000;

/// What the host was found to be, and the host.
fn probed(url: &str, wire: LinkConfig, nature: Nature) -> (Server, Host) {
    probed_by(url, wire, nature, 0)
}

/// The same on a processor that is away for so many microseconds in some turns, behind its look at the clock.
fn probed_by(url: &str, wire: LinkConfig, nature: Nature, away: i64) -> (Server, Host) {
    let (mut near, far) = sim::link(wire, wire, 1);
    near.configure(NicConfig::new([2, 0, 0, 0, 0, 0x0a]));
    let clock = near.clock();
    let mut host = Host::new(far, nature);
    let mut client = Engine::new(near, [3; 32]);
    let stack = client.stack();
    stack.configure(&Ipv4Config {
        address: Ipv4Cidr::new(CLIENT, 24),
        router: None,
        routes: Vec::new(),
        mtu: None,
    });
    let result = Rc::new(RefCell::new(None));
    let (place, url) = (result.clone(), Url::parse(url).unwrap());
    client.spawn(async move {
        let server = probe(&stack, &url, ADDRESS.into()).await;
        *place.borrow_mut() = Some(server);
    });
    let (mut idle, mut turns) = (0, 0);
    while result.borrow().is_none() {
        assert!(clock.now() < LONGEST, "the probe does not end");
        let now = clock.now();
        turns += 1;
        let back = now + if turns % 7 == 0 { away } else { 0 };
        while clock.now() < back {
            host.poll(clock.now());
            clock.advance(20);
        }
        let busy = client.poll(Instant::from_micros(now)).unwrap() | host.poll(clock.now());
        idle = if busy { 0 } else { idle + 1 };
        clock.advance(if idle < 100 { 20 } else { 1000 });
    }
    for _ in 0..100 {
        let now = clock.now();
        let _ = client.poll(Instant::from_micros(now)).unwrap() | host.poll(now);
        clock.advance(20);
    }
    (result.take().unwrap(), host)
}

fn on_a_lan(url: &str, nature: Nature) -> Server {
    probed(url, LinkConfig::default(), nature).0
}

fn lossy(loss: f64) -> LinkConfig {
    LinkConfig {
        latency_micros: 5_000,
        loss,
        ..LinkConfig::default()
    }
}

#[test]
fn a_healthy_path_carries_all() {
    let server = on_a_lan("tftp://10.0.0.2/a", Nature::default());
    let path = server.path.unwrap();
    assert_eq!((path.mtu_bytes, path.link_mtu_bytes), (Some(1500), 1500));
    assert!(path.on_link && !path.told && !path.is_black_hole());
    let lengths: Vec<_> = path.echoes.iter().map(|one| one.packet_bytes).collect();
    assert_eq!(lengths, [64, 1500]);
    for one in &path.echoes {
        assert_eq!((one.asked, one.answered), (100, 100), "{one:?}");
        assert_eq!((one.reordered, one.repeated), (0, 0), "{one:?}");
        // 50 us each way, and what turns take.
        let ways = [one.least_us, one.median_us, one.most_us];
        assert!(ways.iter().all(|way| (100..3_000).contains(way)), "{one:?}");
        assert!(ways.is_sorted(), "{one:?}");
    }
    assert_eq!(server.failure.as_deref(), Some("no answer to 3 requests"));
}

#[test]
fn no_way_is_told_shorter_than_it_is() {
    let wire = lossy(0.0);
    let nature = Nature {
        tftp: Some(grants),
        ..Nature::default()
    };
    let (server, _) = probed_by("tftp://10.0.0.2/a", wire, nature, 4_000);
    let path = server.path.unwrap();
    assert!(
        path.echoes.iter().all(|one| one.least_us >= 10_000),
        "{path:?}"
    );
    let tftp = server.tftp.unwrap();
    assert!(tftp.answer_us >= 10_000, "{tftp:?}");
    assert!(tftp.first_block_us.unwrap() >= 10_000, "{tftp:?}");
}

#[test]
fn losses_and_disorder_are_counted() {
    let wire = LinkConfig {
        reorder: 0.1,
        reorder_micros: 30_000,
        duplicate: 0.05,
        ..lossy(0.1)
    };
    let (server, _) = probed("tftp://10.0.0.2/a", wire, Nature::default());
    let path = server.path.unwrap();
    assert_eq!(path.mtu_bytes, Some(1500), "{path:?}");
    // Of 200, each way a tenth.
    let lost = path.lost_percent();
    assert!((10.0..30.0).contains(&lost), "{lost}: {path:?}");
    let sum =
        |of: fn(&wireboot_report::servers::Echoes) -> u32| path.echoes.iter().map(of).sum::<u32>();
    assert!(sum(|one| one.reordered) > 4, "{path:?}");
    assert!(sum(|one| one.repeated) > 4, "{path:?}");
    assert!(path.echoes.iter().all(|one| one.least_us >= 10_000));
}

#[test]
fn the_longest_packet_is_found_whoever_tells() {
    for mtu in [576, 577, 1006, 1280, 1399, 1400, 1492, 1499] {
        for (told_mtu, names_mtu) in [(mtu, true), (mtu, false), (9000, true)] {
            let nature = Nature {
                path_mtu: mtu,
                told_mtu,
                names_mtu,
                ..Nature::default()
            };
            let path = on_a_lan("tftp://10.0.0.2/a", nature).path.unwrap();
            assert_eq!(path.mtu_bytes.map(usize::from), Some(mtu), "{path:?}");
            let told = told_mtu == mtu;
            assert_eq!((path.told, path.is_black_hole()), (told, !told), "{mtu}");
            assert_eq!(usize::from(path.echoes[1].packet_bytes), mtu);
            assert_eq!(path.echoes[1].answered, 100);
        }
    }
}

/// One router says what fits, and behind it less does, without a word.
#[test]
fn a_black_hole_behind_a_router_that_speaks_is_one() {
    let nature = Nature {
        path_mtu: 1400,
        told_mtu: 1492,
        ..Nature::default()
    };
    let path = on_a_lan("tftp://10.0.0.2/a", nature).path.unwrap();
    assert_eq!((path.mtu_bytes, path.told), (Some(1400), false));
    assert!(path.is_black_hole());
}

#[test]
fn who_keeps_long_requests_away_hides_what_the_path_carries() {
    let nature = Nature {
        longest_echo: 200,
        ..Nature::default()
    };
    let path = on_a_lan("tftp://10.0.0.2/a", nature).path.unwrap();
    assert_eq!(path.mtu_bytes, None);
    assert!(!path.is_black_hole());
    assert_eq!(path.echoes.len(), 1);
    assert_eq!(path.lost_percent(), 0.0);
}

#[test]
fn a_host_far_away_answers() {
    let wire = LinkConfig {
        latency_micros: 350_000,
        ..LinkConfig::default()
    };
    let (server, _) = probed("tftp://10.0.0.2/a", wire, Nature::default());
    let path = server.path.unwrap();
    assert_eq!(path.mtu_bytes, Some(1500), "{path:?}");
    assert!(
        path.echoes.iter().all(|one| one.answered == 100),
        "{path:?}"
    );
    assert!(path.echoes[0].least_us >= 700_000, "{path:?}");
}

#[test]
fn a_host_that_answers_no_echo_may_serve() {
    let nature = Nature {
        answers: false,
        tftp: Some(grants),
        ..Nature::default()
    };
    let server = on_a_lan("tftp://10.0.0.2/a", nature);
    assert_eq!(server.path, None);
    assert_eq!(server.failure, None);
    assert_eq!(server.tftp.unwrap().window, Some(16));
}

/// Half of what was asked for, then the file's first block.
fn grants(packet: &[u8]) -> Vec<Vec<u8>> {
    match packet {
        [0, 1, ..] => vec![b"\0\x06tsize\x003000000\0blksize\x00700\0windowsize\x0016\0".to_vec()],
        [0, 4, 0, 0] => vec![[&[0, 3, 0, 1], &[7; 700][..]].concat()],
        _ => Vec::new(),
    }
}

#[test]
fn what_tftp_grants_is_told_and_the_transfer_ended() {
    let nature = Nature {
        tftp: Some(grants),
        ..Nature::default()
    };
    let (server, host) = probed("tftp://10.0.0.2/boot/a", LinkConfig::default(), nature);
    let told = server.tftp.unwrap();
    let expected = TftpAnswer {
        asked_block_bytes: 1468,
        block_bytes: Some(700),
        asked_window: 64,
        window: Some(16),
        file_bytes: Some(3_000_000),
        ..told.clone()
    };
    assert_eq!(told, expected);
    assert!((100..3_000).contains(&told.answer_us), "{told:?}");
    let block = told.first_block_us.unwrap();
    assert!((100..3_000).contains(&block), "{told:?}");
    // The acknowledgement, and an error that ends it.
    let kinds: Vec<_> = host.acknowledged.iter().map(|bytes| bytes[1]).collect();
    assert_eq!(kinds, [4, 5]);
}

/// As where the options come through, and the blocks do not.
#[test]
fn options_without_a_block_are_a_failure() {
    let granted: fn(&[u8]) -> Vec<Vec<u8>> = |packet| match packet {
        [0, 1, ..] => grants(packet),
        _ => Vec::new(),
    };
    let refused: fn(&[u8]) -> Vec<Vec<u8>> = |packet| match packet {
        [0, 4, 0, 0] => vec![b"\0\x05\0\0no more\0".to_vec()],
        _ => grants(packet),
    };
    for (tftp, words) in [
        (granted, "options, and no block within 2 s"),
        (refused, "no more"),
    ] {
        let nature = Nature {
            tftp: Some(tftp),
            ..Nature::default()
        };
        let server = on_a_lan("tftp://10.0.0.2/a", nature);
        assert_eq!(server.tftp.unwrap().window, Some(16));
        assert_eq!(server.failure.as_deref(), Some(words));
    }
}

#[test]
fn a_server_without_options_sends_its_first_block() {
    let nature = Nature {
        tftp: Some(|packet| match packet {
            [0, 1, ..] => vec![[&[0, 3, 0, 1], &[7; 512][..]].concat()],
            _ => Vec::new(),
        }),
        ..Nature::default()
    };
    let told = on_a_lan("tftp://10.0.0.2/a", nature).tftp.unwrap();
    let granted = (told.block_bytes, told.window, told.file_bytes);
    assert_eq!(granted, (None, None, None));
    assert_eq!(told.first_block_us, None);
}

#[test]
fn a_refusal_by_tftp_is_in_the_servers_words() {
    let cases: [(host::Tftp, &str); 5] = [
        (
            |_| vec![b"\0\x05\0\x01no such file\0".to_vec()],
            "no such file",
        ),
        (|_| vec![b"\0\x05\0\x01\0".to_vec()], "file not found"),
        (
            |_| vec![b"\0\x06blksize\x007\0".to_vec()],
            "TFTP option blksize has the invalid value \"7\"",
        ),
        (
            |_| vec![b"\0\x09".to_vec()],
            "an answer that is none of TFTP",
        ),
        (|_| vec![Vec::new()], "an answer that is none of TFTP"),
    ];
    for (tftp, words) in cases {
        let nature = Nature {
            tftp: Some(tftp),
            ..Nature::default()
        };
        let server = on_a_lan("tftp://10.0.0.2/a", nature);
        assert_eq!(server.failure.as_deref(), Some(words));
    }
}

/// Parts of files, on connections that stay.
fn nginx(request: &str) -> Option<Answer> {
    let head = request.starts_with("HEAD /boot/a?b HTTP/1.1\r\nHost: 10.0.0.2\r\n");
    let part = request.starts_with("GET /boot/a?b HTTP/1.1\r\nHost: 10.0.0.2\r\n")
        && request.contains("\r\nRange: bytes=0-0\r\n");
    assert!(head != part, "{request}");
    let bytes = if head {
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nContent-Length: 4000\r\n\r\n"
    } else {
        "HTTP/1.1 206 Partial Content\r\nServer: nginx/1.22.1\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/4000\r\n\r\nx"
    };
    Some(Answer { bytes, ends: false })
}

/// Whole files, a connection each.
fn old(request: &str) -> Option<Answer> {
    let bytes = if request.starts_with("HEAD") {
        "HTTP/1.0 501 Not Implemented\r\n\r\n"
    } else {
        "HTTP/1.0 200 OK\r\nServer: old\r\n\r\nthe file"
    };
    Some(Answer { bytes, ends: true })
}

#[test]
fn what_http_can_is_told() {
    let of = |http| {
        let nature = Nature {
            http: Some(http),
            ..Nature::default()
        };
        on_a_lan("http://10.0.0.2/boot/a?b", nature)
    };
    let server = of(nginx);
    let told = server.http.unwrap();
    let expected = HttpAnswer {
        status: 206,
        software: Some("nginx/1.22.1".to_string()),
        file_bytes: Some(4000),
        ranges: true,
        keeps_alive: true,
        ..told.clone()
    };
    assert_eq!(told, expected);
    let times = [told.connect_us, told.first_byte_us];
    assert!(times.iter().all(|time| (100..3_000).contains(time)));
    assert_eq!(server.failure, None);
    let server = of(old);
    assert_eq!(server.failure, None);
    let told = server.http.unwrap();
    assert_eq!((told.status, told.file_bytes), (200, None));
    assert!(!told.ranges && !told.keeps_alive);
    assert_eq!(told.software.as_deref(), Some("old"));
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_long() {
    let silent = Nature {
        http: Some(|_| None),
        ..Nature::default()
    };
    let server = on_a_lan("http://10.0.0.2/a", silent);
    assert_eq!(server.failure.as_deref(), Some("no answer to HEAD in 3 s"));
    let closed = on_a_lan("http://10.0.0.2/a", Nature::default());
    let failure = closed.failure.unwrap();
    assert!(failure.contains("refused"), "{failure}");
}
