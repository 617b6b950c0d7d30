//! Clients that we did not write, over IPv6, in a network namespace of their own.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

mod namespace;

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use namespace::{Clients, Served};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wireboot_namespace::{inside, sh};

/// The server's address, and one beside it that a reply must not come from.
fn global_addresses(clients: &Clients) {
    sh(
        "ip address add 2001:db8:9::1/64 dev s0 nodad; ip address add 2001:db8:9::2/64 dev s0 nodad",
    );
    clients.run("ip address add 2001:db8:9::7/64 dev c0 nodad");
}

#[test]
fn files_come_over_both_versions_and_from_link_local_addresses() {
    if !inside("files_come_over_both_versions_and_from_link_local_addresses") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.9.0.7/24 dev c0");
    global_addresses(&clients);
    let mut served = Served::start("--no-dhcp");
    served.wait_for("wireboot: ready");
    for line in ["http://10.9.0.1", "http://[2001:db8:9::1]"] {
        assert!(served.log().contains(line), "no {line}: {}", served.log());
    }
    // Larger than a window, and no multiple of any block.
    let content: Vec<u8> = (0..3_000_017u32).map(|i| (i >> 7) as u8).collect();
    fs::write(served.directory.path().join("big"), &content).unwrap();
    let out = served.directory.path().join("out");
    for host in [
        "10.9.0.1",
        "[2001:db8:9::1]",
        "[2001:db8:9::2]",
        "[fe80::1%25c0]",
    ] {
        for (scheme, options) in [("http", ""), ("tftp", "--tftp-blksize 8192")] {
            let output = out.display();
            clients.run(&format!(
                "curl -sS --max-time 60 {options} -o {output} \"{scheme}://{host}/big\""
            ));
            assert!(fs::read(&out).unwrap() == content, "{scheme} {host}");
        }
    }
    // Firmware that was told a link-local address asks it from its global one.
    let output = out.display();
    let from_global = "--interface host!2001:db8:9::7 --tftp-blksize 8192";
    clients.run(&format!(
        "curl -sS --max-time 60 {from_global} -o {output} \"tftp://[fe80::1%25c0]/big\""
    ));
    assert!(fs::read(&out).unwrap() == content);
    // Who takes no reports sends no frames.
    UdpSocket::bind("10.9.0.1:7077").unwrap();
    let log = served.log();
    // Blocks fill a packet of 1500 bytes, whose headers are longer over IPv6.
    for line in [
        "TFTP start    10.9.0.7 big 3000017 bytes: block size 1468",
        "TFTP start    2001:db8:9::7 big 3000017 bytes: block size 1448",
        "TFTP start    fe80::7 big 3000017 bytes: block size 1448",
        "HTTP done     2001:db8:9::7 /big 3000017 bytes",
    ] {
        assert!(log.contains(line), "no {line}: {log}");
    }
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

const ASKED: &str = "WIREBOOT_TEST_ASKED";

/// Not a test: a TFTP client that looks where the answer comes from, which curl does not.
#[test]
fn ask() {
    let Ok(asked) = std::env::var(ASKED) else {
        return;
    };
    let asked: SocketAddr = asked.parse().unwrap();
    let socket = UdpSocket::bind("[::]:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    socket.send_to(b"\0\x01linux\0octet\0", asked).unwrap();
    let mut packet = [0; 600];
    let (length, peer) = socket.recv_from(&mut packet).unwrap();
    assert_eq!(peer.ip(), asked.ip());
    assert_eq!(&packet[..length], b"\0\x03\0\x01linux");
    socket.send_to(b"\0\x04\0\x01", peer).unwrap();
}

/// Not a test: asks for a token, as a machine that measures itself does.
#[test]
fn hello() {
    let Ok(asked) = std::env::var(ASKED) else {
        return;
    };
    let asked: SocketAddr = asked.parse().unwrap();
    let socket = UdpSocket::bind(("::", 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket.send_to(b"hello 7", asked).unwrap();
    let mut answer = [0; 64];
    let (length, peer) = socket.recv_from(&mut answer).unwrap();
    assert_eq!(peer, asked);
    assert!(answer[..length].starts_with(b"welcome 7 "));
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    if !inside("an_answer_comes_from_the_address_that_was_asked") {
        return;
    }
    let clients = Clients::new();
    global_addresses(&clients);
    let folder = tempfile::tempdir().unwrap();
    // The server gets there as nobody.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let reports = folder.path().join("reports");
    let mut served = Served::start(&format!("--no-dhcp --reports {}", reports.display()));
    served.wait_for("wireboot: ready");
    let link = clients.run("ip -o link show dev c0");
    let (index, _) = link.split_once(':').unwrap();
    let link_local = format!("[fe80::1%{index}]");
    let program = std::env::current_exe().unwrap();
    for (question, port) in [("ask", 69), ("hello", 7077)] {
        for host in ["[2001:db8:9::1]", "[2001:db8:9::2]", &link_local] {
            let program = program.display();
            let text = clients.run(&format!(
                "{ASKED}={host}:{port} {program} --exact {question}"
            ));
            assert!(text.contains("1 passed"), "{text}");
        }
    }
    // IPv4's port is the server's, too.
    assert!(UdpSocket::bind("10.9.0.1:7077").is_err());
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn a_network_without_ipv4_is_served() {
    if !inside("a_network_without_ipv4_is_served") {
        return;
    }
    let clients = Clients::new();
    sh("ip address delete 10.9.0.1/24 dev s0");
    global_addresses(&clients);
    let mut served = Served::start("--no-dhcp");
    served.wait_for("wireboot: ready");
    for scheme in ["http", "tftp"] {
        let file = clients.run(&format!("curl -sS {scheme}://[2001:db8:9::1]/wireboot.efi"));
        assert_eq!(file, "wireboot.efi");
    }
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

/// What ISC's DHCPv6 client learns, as environment variables of its script; empty if it gave up.
fn dhclient(clients: &Clients, directory: &Path, arguments: &str, configuration: &str) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    let [script, log, config] = ["script6", "learnt", "dhclient.conf"].map(at);
    let _ = fs::remove_file(&log);
    fs::write(
        &script,
        format!("#!/bin/sh\n[ \"$reason\" = PREINIT6 ] || env >> {log}\n"),
    )
    .unwrap();
    let also = "also request dhcp6.bootfile-url, dhcp6.name-servers, dhcp6.vendor-class;";
    fs::write(&config, format!("{also}\n{configuration}\n")).unwrap();
    sh(&format!(
        "chmod +x {script}; rm -f {directory}/leases6 {directory}/pid6",
        directory = directory.display()
    ));
    let files = format!(
        "-cf {config} -lf {} -pf {} -sf {script}",
        at("leases6"),
        at("pid6")
    );
    clients.run(&format!(
        "timeout 20 dhclient -6 -D LL {arguments} -1 -v {files} c0 || true; pkill -F {} || true",
        at("pid6")
    ));
    fs::read_to_string(&log).unwrap_or_default()
}

fn variable<'a>(environment: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = environment.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// Waits until the script prints the text.
fn wait_for(what: impl Fn() -> String, text: &str) {
    let began = Instant::now();
    while !what().contains(text) {
        let enough = began.elapsed() > Duration::from_secs(30);
        assert!(!enough, "no {text:?} in {}", what());
        std::thread::sleep(Duration::from_millis(50));
    }
}

const PXE: &str = "send dhcp6.client-arch-type 7;";
const HTTP: &str = "send dhcp6.client-arch-type 16;";
/// dhclient has no name for user classes. Each is a name behind its length in two bytes.
const WIREBOOT: &str =
    r#"option dhcp6.classes code 15 = string; send dhcp6.classes "\000\010wireboot";"#;

#[test]
fn dhclient_gets_an_address_and_boot_files() {
    if !inside("dhclient_gets_an_address_and_boot_files") {
        return;
    }
    let clients = Clients::new();
    global_addresses(&clients);
    let mut served = Served::start("--dns 2001:db8::53");
    served.wait_for("wireboot: ready");
    let log = served.log();
    let range = "giving addresses 2001:db8:9::1000 to 2001:db8:9::ffff";
    assert!(log.contains(range), "{log}");
    let directory = served.directory.path();
    let mut addresses = Vec::new();
    for (configuration, url) in [
        ("", None),
        (PXE, Some("tftp://[2001:db8:9::1]/wireboot.efi")),
        (HTTP, Some("http://[2001:db8:9::1]/wireboot.efi")),
        (WIREBOOT, Some("http://[2001:db8:9::1]/wireboot.conf")),
    ] {
        let environment = dhclient(&clients, directory, "", configuration);
        let found = |name| variable(&environment, name);
        let log = served.log();
        assert_eq!(found("new_dhcp6_bootfile_url"), url, "{environment}{log}");
        assert_eq!(found("new_dhcp6_name_servers"), Some("2001:db8::53"));
        assert_eq!(found("new_max_life"), Some("3600"));
        addresses.push(found("new_ip6_address").expect("an address").to_owned());
        if let Some(url) = url {
            let file = clients.run(&format!("curl -sS {url}"));
            assert!(!file.is_empty(), "{url}");
        }
    }
    // Each client has the same identifiers, so each time it is the same machine.
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    assert!(addresses[0].starts_with("2001:db8:9::"), "{addresses:?}");
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn a_proxy_gives_information_and_no_addresses() {
    if !inside("a_proxy_gives_information_and_no_addresses") {
        return;
    }
    let clients = Clients::new();
    global_addresses(&clients);
    let mut served = Served::start("--proxy");
    served.wait_for("wireboot: ready");
    let directory = served.directory.path();
    let environment = dhclient(&clients, directory, "-S", PXE);
    let url = variable(&environment, "new_dhcp6_bootfile_url");
    assert_eq!(
        url,
        Some("tftp://[2001:db8:9::1]/wireboot.efi"),
        "{environment}"
    );
    assert_eq!(variable(&environment, "new_ip6_address"), None);
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn another_server_keeps_its_addresses() {
    if !inside("another_server_keeps_its_addresses") {
        return;
    }
    let clients = Clients::new();
    global_addresses(&clients);
    let leases = tempfile::NamedTempFile::new().unwrap();
    let mut dnsmasq = clients
        .command("dnsmasq")
        .arg("--no-daemon")
        .args(["--conf-file=/dev/null", "--port=0", "--user=root"])
        .args(["--interface=c0", "--bind-interfaces"])
        .arg("--dhcp-range=2001:db8:9::100,2001:db8:9::1ff,64")
        .arg(format!("--dhcp-leasefile={}", leases.path().display()))
        .stderr(Stdio::null())
        .spawn()
        .expect("dnsmasq (Debian package dnsmasq-base)");
    wait_for(|| clients.run("ss -lun"), ":547 ");
    let mut served = Served::start("--interface s0");
    served.wait_for("wireboot: ready");
    let log = served.log();
    assert!(
        log.contains("giving no IPv6 addresses") && log.contains("server fe80::7 does"),
        "{log}"
    );
    assert!(!log.contains("giving addresses 2001"), "{log}");
    assert_eq!(served.end(), Some(0), "{}", served.log());
    let mut served = Served::start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    assert!(served.log().contains("giving addresses 2001:db8:9::1000"));
    assert_eq!(served.end(), Some(0), "{}", served.log());
    dnsmasq.kill().unwrap();
    dnsmasq.wait().unwrap();
}

#[test]
fn linux_takes_the_prefix_that_is_advertised_and_drops_it_at_the_end() {
    if !inside("linux_takes_the_prefix_that_is_advertised_and_drops_it_at_the_end") {
        return;
    }
    let clients = Clients::new();
    sh("ip address add 2001:db8:9::1/64 dev s0 nodad");
    let address = || clients.run("ip -6 address show dev c0 scope global");
    let route = || clients.run("ip -6 route show dev c0");
    let mut served = Served::start("--authoritative");
    served.wait_for("wireboot: ready");
    // Linux asks for routers when its link comes up.
    let reconnect = || {
        clients.run(
            "ip link set c0 down; ip link set c0 up; ip address replace fe80::7/64 dev c0 nodad",
        );
    };
    reconnect();
    let environment = dhclient(&clients, served.directory.path(), "", "");
    assert!(variable(&environment, "new_ip6_address").is_some());
    assert!(
        !route().contains("2001:db8:9::/64"),
        "nobody asked for --ra"
    );
    assert_eq!(served.end(), Some(0), "{}", served.log());

    let mut served = Served::start("--authoritative --ra");
    served.wait_for("wireboot: ready");
    reconnect();
    wait_for(route, "2001:db8:9::/64");
    assert!(
        !route().contains("default"),
        "this machine is no router: {}",
        route()
    );
    let own = "2001:db8:9::ff:fe00:7/64";
    wait_for(address, own);
    assert!(!address().contains("deprecated"), "{}", address());
    assert_eq!(served.end(), Some(0), "{}", served.log());
    wait_for(address, "deprecated");
}

const SOLICITED: &str = "WIREBOOT_TEST_SOLICITED";

/// Not a test: a host that asks for routers (RFC 4861, section 6.3.7) on the interface of this index.
#[test]
fn solicit() {
    let Ok(index) = std::env::var(SOLICITED) else {
        return;
    };
    let index = index.parse().unwrap();
    let at =
        |address: &str| SockAddr::from(SocketAddrV6::new(address.parse().unwrap(), 0, 0, index));
    let mut socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
    // It hears what is sent to this address alone.
    socket.bind(&at("fe80::7")).unwrap();
    socket.set_multicast_hops_v6(255).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    socket
        .send_to(&[133, 0, 0, 0, 0, 0, 0, 0], &at("ff02::2"))
        .unwrap();
    let mut message = [0; 1500];
    while message[0] != 134 {
        assert!(socket.read(&mut message).unwrap() > 0);
    }
}

#[test]
fn a_host_with_an_address_that_asks_for_routers_is_answered_alone() {
    if !inside("a_host_with_an_address_that_asks_for_routers_is_answered_alone") {
        return;
    }
    let clients = Clients::new();
    global_addresses(&clients);
    let mut served = Served::start("--authoritative --ra");
    served.wait_for("wireboot: ready");
    let link = clients.run("ip -o link show dev c0");
    let (index, _) = link.split_once(':').unwrap();
    let program = std::env::current_exe().unwrap();
    let text = clients.run(&format!(
        "{SOLICITED}={index} {} --exact solicit",
        program.display()
    ));
    assert!(text.contains("1 passed"), "{text}");
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn as_many_files_are_open_at_a_time_as_the_system_allows() {
    if !inside("as_many_files_are_open_at_a_time_as_the_system_allows") {
        return;
    }
    let _clients = Clients::new();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.min(256), most).unwrap();
    let mut served = Served::start("--no-dhcp");
    served.wait_for("wireboot: ready");
    let limits = fs::read_to_string(format!("/proc/{}/limits", served.child.id())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let numbers: Vec<_> = files.unwrap().split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, [most.to_string(), most.to_string()]);
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn an_interface_is_given_an_ipv6_address_for_a_while() {
    if !inside("an_interface_is_given_an_ipv6_address_for_a_while") {
        return;
    }
    let clients = Clients::new();
    sh("ip address delete 10.9.0.1/24 dev s0");
    let mut served = Served::start("--interface s0 --address fd00:7::1/64 --authoritative");
    served.wait_for("wireboot: ready");
    let environment = dhclient(&clients, served.directory.path(), "", PXE);
    let found = |name| variable(&environment, name);
    let address = found("new_ip6_address").expect("an address");
    assert!(address.starts_with("fd00:7::"), "{address}");
    let url = Some("tftp://[fd00:7::1]/wireboot.efi");
    assert_eq!(found("new_dhcp6_bootfile_url"), url);
    assert_eq!(served.end(), Some(0), "{}", served.log());
    assert!(!sh("ip address show dev s0").contains("fd00:7::1"));
}
