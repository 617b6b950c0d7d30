//! The resolver against scripted servers, over a simulated link in simulated time.

use super::*;
use crate::testing::{Datagram, SECOND, run};
use core::net::Ipv6Addr;
use proptest::prelude::*;
use smoltcp::wire::DnsPacket;
use std::string::ToString;
use std::vec;
use wireboot_net::{Ipv4Addr, Ipv4Cidr, Ipv4Config};
use wireboot_nic::sim::LinkConfig;

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SECOND_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// What ARP may add to a query on this wire, in microseconds.
const ARP: i64 = SECOND / 100;
const SITE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

pub(crate) enum Data<'a> {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(&'a str),
    Raw(u16, &'a [u8]),
}

/// An answer to `query` with this response code and records.
pub(crate) fn answer(query: &[u8], rcode: u8, records: &[(&str, Data<'_>)]) -> Vec<u8> {
    let mut bytes = query.to_vec();
    bytes[2] |= 0x80;
    bytes[3] = 0x80 | rcode;
    bytes[7] = records.len() as u8;
    for (owner, data) in records {
        bytes.extend(Name::from_text(owner).unwrap().0);
        let (kind, value) = match data {
            Data::A(address) => (1, address.octets().to_vec()),
            Data::Aaaa(address) => (28, address.octets().to_vec()),
            Data::Cname(target) => (5, Name::from_text(target).unwrap().0),
            Data::Raw(kind, value) => (*kind, value.to_vec()),
        };
        bytes.extend(u16::to_be_bytes(kind));
        bytes.extend([0, 1, 0, 0, 0, 60]);
        bytes.extend((value.len() as u16).to_be_bytes());
        bytes.extend(value);
    }
    bytes
}

/// The name asked for, with dots.
pub(crate) fn asked(query: &[u8]) -> String {
    let packet = DnsPacket::new_checked(query).unwrap();
    let labels: Vec<_> = packet
        .parse_name(packet.payload())
        .map(|label| String::from_utf8(label.unwrap().to_vec()).unwrap())
        .collect();
    labels.join(".")
}

fn resolved_over(
    link: LinkConfig,
    seed: u64,
    search: &[&str],
    name: &str,
    script: impl FnMut(&Datagram) -> Vec<Datagram>,
) -> (Result<Vec<IpAddr>, DnsError>, i64) {
    let search: Vec<String> = search.iter().map(ToString::to_string).collect();
    let name = name.to_owned();
    run(
        link,
        seed,
        &[FIRST, SECOND_SERVER],
        script,
        async move |stack| {
            stack.configure(&Ipv4Config {
                address: Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, 100), 24),
                router: None,
                routes: vec![],
                mtu: None,
            });
            resolve(
                &stack,
                &[FIRST.into(), SECOND_SERVER.into()],
                &search,
                &name,
            )
            .await
        },
    )
}

fn resolved(
    search: &[&str],
    name: &str,
    script: impl FnMut(&Datagram) -> Vec<Datagram>,
) -> (Result<Vec<IpAddr>, DnsError>, i64) {
    resolved_over(LinkConfig::default(), 1, search, name, script)
}

#[test]
fn an_address_record() {
    let (addresses, micros) = resolved(&[], "Boot.example.net", |query| {
        assert_eq!(
            (query.destination.port(), *query.destination.ip()),
            (53, FIRST)
        );
        assert_eq!(asked(&query.payload), "boot.example.net");
        let records = [
            ("boot.example.net", Data::A(SITE)),
            ("BOOT.example.net", Data::A(FIRST)),
        ];
        vec![query.answer(answer(&query.payload, 0, &records))]
    });
    assert_eq!(addresses.unwrap(), [SITE, FIRST]);
    assert!(micros < 10_000, "{micros} us");
}

#[test]
fn aliases_in_one_answer_in_any_order() {
    let (addresses, _) = resolved(&[], "a.net", |query| {
        let records = [
            ("c.net", Data::A(SITE)),
            ("other.net", Data::A(FIRST)),
            ("b.net", Data::Cname("c.net")),
            ("a.net", Data::Raw(46, b"a signature")),
            ("a.net", Data::Cname("b.net")),
        ];
        vec![query.answer(answer(&query.payload, 0, &records))]
    });
    assert_eq!(addresses.unwrap(), [SITE]);
}

#[test]
fn aliases_that_must_be_asked_for() {
    let mut names = vec![];
    let (addresses, _) = resolved(&[], "a.net", |query| {
        let name = asked(&query.payload);
        let reply = match name.as_str() {
            "a.net" => answer(&query.payload, 0, &[("a.net", Data::Cname("b.net"))]),
            _ => answer(&query.payload, 0, &[("b.net", Data::A(SITE))]),
        };
        names.push(name);
        vec![query.answer(reply)]
    });
    assert_eq!(addresses.unwrap(), [SITE]);
    assert_eq!(names, ["a.net", "b.net"]);
}

#[test]
fn alias_circles_end() {
    let circle = [
        ("a.net", Data::Cname("b.net")),
        ("b.net", Data::Cname("a.net")),
    ];
    let (addresses, _) = resolved(&[], "a.net", |query| {
        vec![query.answer(answer(&query.payload, 0, &circle))]
    });
    assert_eq!(
        addresses,
        Err(DnsError::NoAddress {
            name: "a.net".into(),
            records: "IPv4 address (A record)",
        })
    );
    let mut queries = 0;
    let (addresses, _) = resolved(&[], "a.net", |query| {
        queries += 1;
        let name = asked(&query.payload);
        let target = if name == "a.net" { "b.net" } else { "a.net" };
        vec![query.answer(answer(&query.payload, 0, &[(&name, Data::Cname(target))]))]
    });
    assert_eq!(
        addresses,
        Err(DnsError::Aliases {
            name: "a.net".into()
        })
    );
    assert_eq!(queries, 9);
}

#[test]
fn a_server_that_leads_on_and_on_is_not_followed_for_hours() {
    let search: Vec<String> = (0..300).map(|n| format!("d{n}.net")).collect();
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let (addresses, micros) = resolved(&search, "boot", |query| {
        let name = asked(&query.payload);
        let target = if name == "a.net" { "b.net" } else { "a.net" };
        let alias = answer(&query.payload, 0, &[(&name, Data::Cname(target))]);
        let mut late = query.answer(alias);
        late.micros = 9 * SECOND / 10;
        vec![late]
    });
    assert_eq!(
        addresses,
        Err(DnsError::NoAnswer {
            name: "boot".into(),
            servers: vec![FIRST.into(), SECOND_SERVER.into()],
            seconds: 30,
        })
    );
    assert!((30 * SECOND..31 * SECOND).contains(&micros), "{micros} us");
}

#[test]
fn a_host_without_a_server_is_asked_again_when_the_rounds_are_over() {
    let (result, micros) = resolved(&[], "a.net", |query| vec![query.refused()]);
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("nobody listens on its UDP port 53"),
        "{error}"
    );
    assert_eq!(micros / (SECOND / 10), 30, "{micros} us");
}

#[test]
fn servers_that_fail_for_some_seconds_are_asked_again() {
    // Whether nobody listens in that time, or the server starts and knows nothing.
    for listens in [true, false] {
        let mut asked = vec![];
        let (addresses, micros) = resolved(&[], "a.net", |query| {
            asked.push(query.micros / (SECOND / 10));
            let records = [("a.net", Data::A(SITE))];
            vec![if query.micros >= 3 * SECOND {
                query.answer(answer(&query.payload, 0, &records))
            } else if listens {
                query.answer(answer(&query.payload, 2, &[]))
            } else {
                query.refused()
            }]
        });
        assert_eq!(addresses.unwrap(), [SITE]);
        assert_eq!(micros / (SECOND / 10), 30, "{micros} us");
        // Two servers in each round, in tenths of seconds.
        assert_eq!(asked, [0, 0, 10, 10, 30]);
    }
}

#[test]
fn the_search_list() {
    let order = |name: &str| {
        let mut names = vec![];
        let (addresses, _) = resolved(&["x.net", "y.net."], name, |query| {
            names.push(asked(&query.payload));
            vec![query.answer(answer(&query.payload, 3, &[]))]
        });
        (names, addresses.unwrap_err())
    };
    let (names, error) = order("boot");
    assert_eq!(names, ["boot.x.net", "boot.y.net", "boot"]);
    assert_eq!(
        error.to_string(),
        "boot: no such name (NXDOMAIN for boot.x.net, boot.y.net, boot); check its spelling, and the domain \
         that DHCP gives"
    );
    assert_eq!(
        order("boot.lan").0,
        ["boot.lan", "boot.lan.x.net", "boot.lan.y.net"]
    );
    assert_eq!(order("boot.").0, ["boot"]);
    // Name servers without the world behind them refuse what is not theirs: that is not waited for where another name is left.
    let (addresses, micros) = resolved(&["x.net"], "boot.lan", |query| {
        let name = asked(&query.payload);
        vec![query.answer(if name == "boot.lan.x.net" {
            answer(&query.payload, 0, &[("boot.lan.x.net", Data::A(SITE))])
        } else {
            answer(&query.payload, 5, &[])
        })]
    });
    assert_eq!(addresses.unwrap(), [SITE]);
    assert!(micros < 100_000, "{micros} us");
    // One of them may have lost its packet.
    let mut lost = false;
    let (addresses, _) = resolved(&["x.net"], "boot.lan", |query| {
        let records = [("boot.lan", Data::A(SITE))];
        let elsewhere = [("boot.lan.x.net", Data::A(FIRST))];
        match asked(&query.payload).as_str() {
            "boot.lan" if *query.destination.ip() == FIRST => {
                vec![query.answer(answer(&query.payload, 5, &[]))]
            }
            "boot.lan" if std::mem::replace(&mut lost, true) => {
                vec![query.answer(answer(&query.payload, 0, &records))]
            }
            "boot.lan" => vec![],
            _ => vec![query.answer(answer(&query.payload, 0, &elsewhere))],
        }
    });
    assert_eq!(addresses.unwrap(), [SITE]);
    let (addresses, _) = resolved(&["x.net", "y.net"], "boot", |query| {
        let name = asked(&query.payload);
        vec![query.answer(if name == "boot.y.net" {
            answer(&query.payload, 0, &[("boot.y.net", Data::A(SITE))])
        } else {
            answer(&query.payload, 3, &[])
        })]
    });
    assert_eq!(addresses.unwrap(), [SITE]);
}

#[test]
fn failures_are_told_apart() {
    let fails = |rcode, seconds: i64| {
        let (addresses, micros) = resolved(&[], "a.net", |query| {
            vec![query.answer(answer(&query.payload, rcode, &[]))]
        });
        let late = micros - seconds * SECOND;
        assert!((0..ARP + 100_000).contains(&late), "{micros} us");
        addresses.unwrap_err().to_string()
    };
    assert!(fails(0, 0).contains("exists but has no IPv4 address"));
    assert!(fails(3, 0).contains("no such name"));
    // These are no answers, and asked for again.
    assert!(fails(2, 3).contains("10.0.0.2 answers SERVFAIL"));
    assert!(fails(5, 3).contains("REFUSED"));
    assert!(fails(4, 3).contains("with code 4"));
}

#[test]
fn a_server_that_fails_or_is_silent_is_passed_over() {
    for silent in [false, true] {
        let (addresses, micros) = resolved(&[], "a.net", |query| {
            let records = [("a.net", Data::A(SITE))];
            if *query.destination.ip() == SECOND_SERVER {
                vec![query.answer(answer(&query.payload, 0, &records))]
            } else if silent {
                vec![]
            } else {
                vec![query.answer(answer(&query.payload, 2, &[]))]
            }
        });
        assert_eq!(addresses.unwrap(), [SITE]);
        let patience = if silent { SECOND / 4 } else { 0 };
        assert!(micros < patience + ARP + 10_000, "{micros} us");
    }
}

#[test]
fn silence_ends() {
    let mut ids = vec![];
    let (addresses, micros) = resolved(&["x.net"], "boot", |query| {
        ids.push((query.source.port(), [query.payload[0], query.payload[1]]));
        vec![]
    });
    let error = addresses.unwrap_err().to_string();
    assert!(
        error.starts_with("boot: no answer from 10.0.0.1, 10.0.0.2 in 7 s"),
        "{error}"
    );
    assert!(micros < 8 * SECOND);
    assert_eq!(ids.len(), 6);
    for (n, (port, id)) in ids.iter().enumerate() {
        assert!(
            ids[..n].iter().all(|(p, i)| p != port && i != id),
            "{ids:?}"
        );
    }
}

#[test]
fn without_servers_or_with_an_impossible_name() {
    let (result, _) = run(
        LinkConfig::default(),
        1,
        &[],
        |_| vec![],
        async |stack| resolve(&stack, &[], &[], "a").await,
    );
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("no DNS server is known")
    );
    for name in [
        "a..b",
        ".",
        "",
        "a b",
        "m\u{fc}ller.de",
        &"a".repeat(64),
        &"a.".repeat(128),
    ] {
        let (result, _) = resolved(&[], name, |_| panic!("nothing to ask"));
        assert_eq!(result, Err(DnsError::BadName { name: name.into() }));
    }
}

#[test]
fn a_domain_with_which_a_name_is_none_is_passed_over() {
    for (name, tried) in [
        ("boot", ["boot.x.net", "boot"]),
        ("a.b", ["a.b", "a.b.x.net"]),
    ] {
        let (result, _) = resolved(&["not one", "x.net"], name, |query| {
            vec![query.answer(answer(&query.payload, 3, &[]))]
        });
        let expected = DnsError::NotFound {
            name: name.into(),
            tried: tried.map(ToString::to_string).into(),
        };
        assert_eq!(result, Err(expected));
    }
}

#[test]
fn what_does_not_answer_the_question_is_ignored() {
    type Spoil = fn(&mut Datagram);
    let spoils: [Spoil; 7] = [
        |d| d.payload[0] ^= 1,
        |d| d.payload[2] &= 0x7f,
        |d| d.payload[2] |= 0x10,
        |d| d.payload[5] = 2,
        |d| d.payload[13] ^= 1,
        |d| d.source.set_port(54),
        |d| d.source.set_ip(SECOND_SERVER),
    ];
    for (n, spoil) in spoils.into_iter().enumerate() {
        let (addresses, micros) = resolved(&[], "a.net", |query| {
            let mut bad = query.answer(answer(&query.payload, 0, &[("a.net", Data::A(FIRST))]));
            spoil(&mut bad);
            let mut good = query.answer(answer(&query.payload, 0, &[("a.net", Data::A(SITE))]));
            good.micros = 5000;
            vec![bad, good]
        });
        assert_eq!(addresses.unwrap(), [SITE], "case {n}");
        assert!(micros < SECOND, "case {n}");
    }
}

#[test]
fn answers_that_are_cut_off_or_lie() {
    let name = Name::from_text("a.net").unwrap();
    let query = question(7, &name, DnsQueryType::A);
    let whole = answer(
        &query,
        0,
        &[("a.net", Data::A(SITE)), ("a.net", Data::A(FIRST))],
    );
    for len in 0..whole.len() {
        let addresses = match parse_answer(&whole[..len], 7, &name, DnsQueryType::A) {
            Some(Answer::Addresses(addresses)) => addresses.len(),
            _ => 0,
        };
        assert_eq!(
            addresses,
            usize::from(len >= whole.len() - 21),
            "{len} bytes"
        );
        fuzz_dns(&whole[..len]);
    }
    // A pointer to itself, and two that point to each other.
    for owner in [[0xc0, 23], [0xc0, 24]] {
        let mut bytes = answer(&query, 0, &[]);
        bytes[7] = 1;
        bytes.extend(owner);
        bytes.extend([0xc0, 23, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        assert_eq!(
            parse_answer(&bytes, 7, &name, DnsQueryType::A),
            Some(Answer::NoAddress)
        );
    }
    // A record that claims more than there is, and an address of 5 bytes.
    let lies = answer(&query, 0, &[("a.net", Data::Raw(1, &[1; 5]))]);
    assert_eq!(
        parse_answer(&lies, 7, &name, DnsQueryType::A),
        Some(Answer::NoAddress)
    );
    let mut cut = answer(&query, 0, &[]);
    cut[2] |= 2;
    assert!(matches!(
        parse_answer(&cut, 7, &name, DnsQueryType::A),
        Some(Answer::Failed(_))
    ));
}

#[test]
fn addresses_that_no_other_host_can_have_are_refused_at_once() {
    let ours = Ipv4Addr::new(10, 0, 0, 100);
    let bad = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, 1, 2, 3),
        Ipv4Addr::new(127, 0, 0, 1),
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::BROADCAST,
        // Our network's broadcast address, and our own.
        Ipv4Addr::new(10, 0, 0, 255),
        ours,
    ];
    for address in bad {
        let (addresses, micros) = resolved(&[], "a.net", |query| {
            let records = [("a.net", Data::A(address))];
            vec![query.answer(answer(&query.payload, 0, &records))]
        });
        let expected = DnsError::NoHost {
            name: "a.net".into(),
            server: FIRST.into(),
            address: address.into(),
        };
        assert_eq!(addresses, Err(expected));
        assert!(micros < ARP, "{micros} us");
        let (addresses, _) = resolved(&[], "a.net", |query| {
            let records = [("a.net", Data::A(address)), ("a.net", Data::A(SITE))];
            vec![query.answer(answer(&query.payload, 0, &records))]
        });
        assert_eq!(addresses.unwrap(), [SITE]);
    }
}

const SITE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

/// What a machine with these IP versions finds, and when, in microseconds. The script has the type of the record that is asked for.
fn found(
    versions: Versions,
    mut script: impl FnMut(&Datagram, u8) -> Vec<Datagram>,
) -> (Result<Vec<IpAddr>, DnsError>, i64) {
    run(
        LinkConfig::default(),
        1,
        &[FIRST],
        |query: &Datagram| {
            // The type is the last but two bytes.
            let kind = query.payload[query.payload.len() - 3];
            script(query, kind)
        },
        async move |stack| {
            stack.configure(&Ipv4Config {
                address: Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, 100), 24),
                router: None,
                routes: vec![],
                mtu: None,
            });
            let resolver = Resolver {
                stack: &stack,
                servers: vec![FIRST.into()],
                versions,
                name: "a.net",
                is_last: true,
            };
            resolver.lookup(Name::from_text("a.net").unwrap()).await
        },
    )
}

/// A and AAAA answers with their delays in microseconds; no answer where there is no delay.
fn both(
    v4: Option<(i64, u8, Option<Ipv4Addr>)>,
    v6: Option<(i64, u8, Option<Ipv6Addr>)>,
) -> (Result<Vec<IpAddr>, DnsError>, i64) {
    found(Versions { v4: true, v6: true }, move |query, kind| {
        let (delay, rcode, data) = match kind {
            1 => match v4 {
                Some((delay, rcode, address)) => (delay, rcode, address.map(Data::A)),
                None => return vec![],
            },
            28 => match v6 {
                Some((delay, rcode, address)) => (delay, rcode, address.map(Data::Aaaa)),
                None => return vec![],
            },
            other => panic!("type {other}"),
        };
        let records: Vec<_> = data.into_iter().map(|data| ("a.net", data)).collect();
        let mut reply = query.answer(answer(&query.payload, rcode, &records));
        reply.micros = delay;
        vec![reply]
    })
}

#[test]
fn both_versions_are_asked_at_once_and_neither_waits_long() {
    let (a, aaaa) = (Some(SITE), Some(SITE6));
    let (v4, v6) = (IpAddr::V4(SITE), IpAddr::V6(SITE6));
    // Both soon.
    let (addresses, micros) = both(Some((0, 0, a)), Some((20_000, 0, aaaa)));
    assert_eq!(addresses.unwrap(), [v6, v4]);
    assert!(micros < 20_000 + ARP, "{micros} us");
    // One late, one never: the other has 50 ms, counted from the answer.
    for late in [Some(80_000), None] {
        let (addresses, micros) = both(Some((0, 0, a)), late.map(|late| (late, 0, aaaa)));
        assert_eq!(addresses.unwrap(), [v4]);
        assert!((50_000..50_000 + ARP).contains(&micros), "{micros} us");
        let (addresses, micros) = both(late.map(|late| (late, 0, a)), Some((0, 0, aaaa)));
        assert_eq!(addresses.unwrap(), [v6]);
        assert!((50_000..50_000 + ARP).contains(&micros), "{micros} us");
    }
    // A version without an address is waited for by nobody, and waits for the other.
    let (addresses, micros) = both(Some((80_000, 0, a)), Some((0, 0, None)));
    assert_eq!(addresses.unwrap(), [v4]);
    assert!(micros < 80_000 + ARP, "{micros} us");
    let (addresses, _) = both(Some((0, 3, None)), Some((80_000, 0, aaaa)));
    assert_eq!(addresses.unwrap(), [v6]);
}

#[test]
fn of_two_errors_the_one_that_says_more() {
    let error = |v4, v6| {
        both(Some((0, v4, None)), Some((0, v6, None)))
            .0
            .unwrap_err()
    };
    let text = error(0, 0).to_string();
    assert!(text.contains("no address (A or AAAA record)"), "{text}");
    assert!(matches!(error(3, 0), DnsError::NoAddress { .. }));
    assert!(matches!(error(0, 3), DnsError::NoAddress { .. }));
    assert!(matches!(error(3, 3), DnsError::NotFound { .. }));
    assert!(matches!(error(2, 0), DnsError::Failed { .. }));
    assert!(matches!(error(3, 2), DnsError::Failed { .. }));
    // An address that no host can have says more than a failure, silence more than that there is no such name.
    let local = Some((0, 0, Some(Ipv4Addr::LOCALHOST)));
    let (result, _) = both(local, Some((0, 2, None)));
    assert!(matches!(result, Err(DnsError::NoHost { .. })), "{result:?}");
    let (result, _) = both(None, Some((0, 3, None)));
    assert!(
        matches!(result, Err(DnsError::NoAnswer { .. })),
        "{result:?}"
    );
}

#[test]
fn the_longest_name() {
    let [long, short, longer] = [63, 61, 62].map(|len| "a".repeat(len));
    let name = |last: &str| Name::from_text(&[&long, &long, &long, last].join("."));
    // With the lengths of its labels, and the empty one at the end.
    assert_eq!(name(&short).unwrap().0.len(), 255);
    assert_eq!(name(&longer), None);
}

#[test]
fn one_version_asks_for_its_records_alone() {
    for (v4, kind, address) in [(true, 1, SITE.into()), (false, 28, IpAddr::V6(SITE6))] {
        let (addresses, _) = found(Versions { v4, v6: !v4 }, |query, asked| {
            assert_eq!(asked, kind);
            // The other kind beside it counts for nothing.
            let records = [("a.net", Data::A(SITE)), ("a.net", Data::Aaaa(SITE6))];
            vec![query.answer(answer(&query.payload, 0, &records))]
        });
        assert_eq!(addresses.unwrap(), [address]);
    }
    for bad in ["::", "::1", "ff02::1", "::ffff:10.0.0.1"] {
        let bad: Ipv6Addr = bad.parse().unwrap();
        let versions = Versions {
            v4: false,
            v6: true,
        };
        let (addresses, _) = found(versions, |query, _| {
            let records = [("a.net", Data::Aaaa(bad))];
            vec![query.answer(answer(&query.payload, 0, &records))]
        });
        assert!(matches!(addresses, Err(DnsError::NoHost { .. })), "{bad}");
    }
}

#[test]
fn loss_costs_time_only() {
    let link = LinkConfig {
        loss: 0.3,
        duplicate: 0.3,
        ..LinkConfig::default()
    };
    let found = (0..30).filter(|&seed| {
        let (addresses, _) = resolved_over(link, seed, &[], "a.net", |query| {
            vec![query.answer(answer(&query.payload, 0, &[("a.net", Data::A(SITE))]))]
        });
        addresses.is_ok_and(|addresses| addresses == [SITE])
    });
    assert!(found.count() >= 28);
}

proptest! {
    #[test]
    fn any_answer(
        flips in prop::collection::vec((0usize..120, any::<u8>()), 0..8),
        tail in prop::collection::vec(prop_oneof![Just(0xc0u8), Just(0x0c), any::<u8>()], 0..60),
        count: u8,
    ) {
        let query = question(7, &Name::from_text("boot.example.net").unwrap(), DnsQueryType::A);
        let records = [
            ("boot.example.net", Data::Cname("b.example.net")),
            ("b.example.net", Data::A(SITE)),
        ];
        let mut bytes = answer(&query, 0, &records);
        bytes[7] = count;
        bytes.extend(tail);
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= value;
            }
        }
        fuzz_dns(&bytes);
    }
}

#[test]
fn the_record_that_is_missing_is_named() {
    for (v4, record) in [
        (true, "IPv4 address (A record)"),
        (false, "IPv6 address (AAAA record)"),
    ] {
        let (addresses, _) = found(Versions { v4, v6: !v4 }, |query, _| {
            vec![query.answer(answer(&query.payload, 0, &[]))]
        });
        let text = addresses.unwrap_err().to_string();
        assert!(text.ends_with(&format!("has no {record}")), "{text}");
    }
}
