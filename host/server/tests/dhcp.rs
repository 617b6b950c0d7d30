//! DHCP clients that we did not write, in a network namespace of their own.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

mod namespace;

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use namespace::{Clients, Served};
use nix::sys::signal::Signal;
use wireboot_namespace::{inside, sh};
use wireboot_wire::dhcp::{CLIENT_PORT, Message, MessageType};

/// What busybox's DHCP client learns, as environment variables of its script.
fn udhcpc(clients: &Clients, directory: &Path, arguments: &str) -> String {
    let script = directory.join("script");
    fs::write(&script, "#!/bin/sh\n[ \"$1\" != bound ] || env\n").unwrap();
    sh(&format!("chmod +x {}", script.display()));
    clients.run(&format!(
        "busybox udhcpc -i c0 -n -q -f -t 5 -T 1 -s {} -O 66 -O 67 {arguments}",
        script.display()
    ))
}

#[test]
fn udhcpc_gets_a_lease_and_files() {
    if !inside("udhcpc_gets_a_lease_and_files") {
        return;
    }
    let clients = Clients::new();
    // With one interface up, none need be named.
    let mut served = Served::start("");
    served.wait_for("wireboot: ready");
    let directory = served.directory.path();
    let environment = udhcpc(
        &clients,
        directory,
        "-V PXEClient:Arch:00007:UNDI:003000 -x 0x5d:0007",
    );
    for wanted in [
        "subnet=255.255.255.0",
        "siaddr=10.9.0.1",
        "boot_file=wireboot.efi",
        "serverid=10.9.0.1",
        "lease=3600",
    ] {
        assert!(environment.contains(wanted), "no {wanted} in {environment}");
    }
    let address = |environment: &str| {
        environment
            .lines()
            .find_map(|line| line.strip_prefix("ip="))
            .unwrap()
            .to_owned()
    };
    let first = address(&environment);
    assert!(first.starts_with("10.9.0."), "{first}");
    // A broadcast answer for a client that wants one; the address is the same; what does not boot gets no boot file.
    let environment = udhcpc(&clients, directory, "-B");
    assert_eq!(address(&environment), first);
    assert!(!environment.contains("boot_file="), "{environment}");
    let environment = udhcpc(&clients, directory, "-V HTTPClient:Arch:00016 -x 0x5d:0010");
    assert!(
        environment.contains("boot_file=http://10.9.0.1/wireboot.efi"),
        "{environment}"
    );
    let environment = udhcpc(&clients, directory, "-x 0x4d:77697265626f6f74");
    assert!(
        environment.contains("boot_file=http://10.9.0.1/wireboot.conf"),
        "{environment}"
    );

    clients.run(&format!("ip address add {first}/24 dev c0"));
    assert_eq!(
        clients.run("curl -sS tftp://10.9.0.1/wireboot.efi"),
        "wireboot.efi"
    );
    let configuration = clients.run("curl -sS http://10.9.0.1/wireboot.conf");
    assert!(
        configuration.contains("linux linux\ninitrd initrd.gz"),
        "{configuration}"
    );
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

/// A server of the network, on the far side of the cable: it gives 10.9.0.50 to 10.9.0.60.
struct Other {
    process: Child,
    _files: tempfile::TempDir,
}

impl Other {
    fn dnsmasq(clients: &Clients, interface: &str, arguments: &[&str]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let leases = files.path().join("leases");
        let process = clients
            .command("dnsmasq")
            .args(["--no-daemon", "--conf-file=/dev/null", "--port=0"])
            .args(["--user=root", "--bind-interfaces"])
            .arg("--dhcp-range=10.9.0.50,10.9.0.60")
            .arg(format!("--interface={interface}"))
            .arg(format!("--dhcp-leasefile={}", leases.display()))
            .args(arguments)
            .stderr(Stdio::null())
            .spawn()
            .expect("dnsmasq (Debian package dnsmasq-base)");
        Self::listening(clients, process, files)
    }

    fn udhcpd(clients: &Clients) -> Self {
        let files = tempfile::tempdir().unwrap();
        let (configuration, leases) = (files.path().join("conf"), files.path().join("leases"));
        let text = format!(
            "start 10.9.0.50\nend 10.9.0.60\ninterface c0\nlease_file {}\npidfile {}\n",
            leases.display(),
            files.path().join("pid").display()
        );
        fs::write(&configuration, text).unwrap();
        fs::write(&leases, "").unwrap();
        let process = clients
            .command("busybox")
            .args(["udhcpd", "-f"])
            .arg(&configuration)
            .stderr(Stdio::null())
            .spawn()
            .expect("busybox (Debian package busybox)");
        Self::listening(clients, process, files)
    }

    fn kea(clients: &Clients) -> Self {
        let files = tempfile::tempdir().unwrap();
        let configuration = files.path().join("kea.json");
        let text = r#"{"Dhcp4":{"interfaces-config":{"interfaces":["c0"]},"lease-database":{"type":"memfile","persist":false},
            "subnet4":[{"subnet":"10.9.0.0/24","pools":[{"pool":"10.9.0.50-10.9.0.60"}]}]}}"#;
        fs::write(&configuration, text).unwrap();
        let process = clients
            .command("kea-dhcp4")
            .arg("-c")
            .arg(&configuration)
            .env("KEA_PIDFILE_DIR", files.path())
            .env("KEA_LOCKFILE_DIR", files.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("kea-dhcp4 (Debian package kea-dhcp4-server)");
        Self::listening(clients, process, files)
    }

    fn isc(clients: &Clients) -> Self {
        let files = tempfile::tempdir().unwrap();
        let (configuration, leases) = (files.path().join("conf"), files.path().join("leases"));
        let text = "subnet 10.9.0.0 netmask 255.255.255.0 { range 10.9.0.50 10.9.0.60; }";
        fs::write(&configuration, text).unwrap();
        fs::write(&leases, "").unwrap();
        let process = clients
            .command("dhcpd")
            .args(["-4", "-f", "-q", "-user", "root", "-group", "root"])
            .arg("-cf")
            .arg(&configuration)
            .arg("-lf")
            .arg(&leases)
            .arg("-pf")
            .arg(files.path().join("pid"))
            .arg("c0")
            .stderr(Stdio::null())
            .spawn()
            .expect("dhcpd (Debian package isc-dhcp-server)");
        Self::listening(clients, process, files)
    }

    fn listening(clients: &Clients, process: Child, files: tempfile::TempDir) -> Self {
        let other = Self {
            process,
            _files: files,
        };
        let began = Instant::now();
        while !clients.run("ss -lun").contains(":67 ") {
            assert!(began.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(20));
        }
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const NONE_GIVEN: &str =
    "giving no IPv4 addresses, only boot files: the server 10.9.0.2 does (--authoritative";

#[test]
fn no_addresses_are_given_beside_another_server() {
    if !inside("no_addresses_are_given_beside_another_server") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.9.0.2/24 dev c0");
    // The first two offer an address once they have made sure that nobody has it: after three seconds, and after two.
    let servers: [fn(&Clients) -> Other; 4] = [
        |clients| Other::dnsmasq(clients, "c0", &[]),
        Other::udhcpd,
        Other::kea,
        Other::isc,
    ];
    // Ten of each in `make soak`.
    let starts = std::env::var("WIREBOOT_STARTS").map_or(1, |starts| starts.parse().unwrap());
    for start in servers {
        for _ in 0..starts {
            let _other = start(&clients);
            let mut served = Served::start("--interface s0 --no-ipv6");
            served.wait_for("wireboot: ready");
            assert!(served.log().contains(NONE_GIVEN), "{}", served.log());
            assert_eq!(served.end(), Some(0), "{}", served.log());
        }
    }
}

#[test]
fn another_server_that_comes_later_ends_the_giving_of_addresses() {
    if !inside("another_server_that_comes_later_ends_the_giving_of_addresses") {
        return;
    }
    let clients = Clients::new();
    let client = clients.another();
    clients.run("ip address add 10.9.0.2/24 dev b0");
    // One address, so that a second client gets none here.
    let mut served = Served::start("--interface s0 --no-ipv6 --range 10.9.0.200-10.9.0.200");
    served.wait_for("wireboot: ready");
    let obtained = |mac: &str, server: &str| {
        let log = client.run(&format!(
            "ip link set c0 address {mac}; busybox udhcpc -i c0 -n -q -f -t 9 -T 1 -s /bin/true 2>&1"
        ));
        assert!(log.contains(&format!("obtained from {server},")), "{log}");
    };
    let (first, second) = ("02:00:00:00:00:08", "02:00:00:00:00:09");
    obtained(first, "10.9.0.1");
    let _other = Other::dnsmasq(&clients, "b0", &["--no-ping"]);
    obtained(second, "10.9.0.2");
    served.wait_for("giving no more addresses, only boot files: the DHCP server 10.9.0.2 gives them too (--authoritative");
    obtained(first, "10.9.0.2");
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn a_server_that_was_killed_gives_nobodys_address_to_another() {
    if !inside("a_server_that_was_killed_gives_nobodys_address_to_another") {
        return;
    }
    let clients = Clients::new();
    let arguments = "--interface s0 --authoritative --range 10.9.0.200-10.9.0.201";
    let mut served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    let (first, second) = ("02:00:00:00:00:08", "02:00:00:00:00:09");
    let addresses = [first, second].map(|mac| clients.obtain(mac).expect("a lease"));
    served.kill_and_start(arguments);
    served.wait_for("wireboot: ready");
    assert!(clients.is_refused("02:00:00:00:00:0a"));
    assert!(
        served
            .log()
            .contains("all addresses of the range are taken")
    );
    assert_eq!(
        clients.obtain(second).as_deref(),
        Some(addresses[1].as_str())
    );
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn an_address_that_somebody_has_is_given_to_nobody_else() {
    if !inside("an_address_that_somebody_has_is_given_to_nobody_else") {
        return;
    }
    let clients = Clients::new();
    let client = clients.another();
    let range = "--interface s0 --authoritative --range 10.9.0.200-10.9.0.201";
    let obtain = |mac| client.obtain(mac).expect("a lease");
    let mut served = Served::start(range);
    served.wait_for("wireboot: ready");
    let first = obtain("02:00:00:00:00:08");
    let second = obtain("02:00:00:00:00:09");
    assert_ne!(first, second);
    assert_eq!(served.end(), Some(0), "{}", served.log());

    // Somebody has it when the server starts, and when it has started.
    let have = format!("ip address add {first}/24 dev b0");
    let have_no_more = format!("ip address delete {first}/24 dev b0");
    clients.run(&have);
    let mut served = Served::start(range);
    served.wait_for("wireboot: ready");
    assert_eq!(obtain("02:00:00:00:00:08"), second);
    assert!(
        served
            .log()
            .contains(&format!(" {first}: it is given to nobody else"))
    );
    assert_eq!(served.end(), Some(0), "{}", served.log());
    clients.run(&have_no_more);
    let mut served = Served::start(range);
    served.wait_for("wireboot: ready");
    clients.run(&have);
    assert_eq!(obtain("02:00:00:00:00:08"), second);
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

const RENEWS_FROM: &str = "WIREBOOT_TEST_RENEWS_FROM";

/// Not a test: a client that goes on using an address, and asks its server alone.
#[test]
fn renew() {
    let Ok(from) = std::env::var(RENEWS_FROM) else {
        return;
    };
    let (from, address) = from.split_once(' ').unwrap();
    let from: Ipv4Addr = from.parse().unwrap();
    let mut request = Message::request(MessageType::Request, 7, [2, 0, 0, 0, 0, 9]);
    request.ciaddr = address.parse().unwrap();
    let socket = UdpSocket::bind((from, CLIENT_PORT)).unwrap();
    socket.send_to(&request.emit(), "10.9.0.1:67").unwrap();
}

#[test]
fn who_is_beyond_the_network_is_given_no_address() {
    if !inside("who_is_beyond_the_network_is_given_no_address") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.9.0.9/24 dev c0; ip address add 198.51.100.9/32 dev c0");
    sh("ip route add 198.51.100.9 dev s0");
    let program = std::env::current_exe().unwrap();
    let renew = |from: &str, address: &str| {
        clients.run(&format!(
            "{RENEWS_FROM}=\"{from} {address}\" {} --exact renew",
            program.display()
        ));
    };
    let mut served = Served::start("--authoritative");
    served.wait_for("wireboot: ready");
    renew("198.51.100.9", "10.9.0.200");
    served.wait_for("beyond this server's networks");
    assert!(!served.log().contains("10.9.0.200"), "{}", served.log());
    // One that was here before it was moved is told.
    renew("198.51.100.9", "198.51.100.9");
    served.wait_for("198.51.100.9 is not to be had here");
    renew("10.9.0.9", "10.9.0.200");
    served.wait_for("10.9.0.200");
    served.end_and_start("--authoritative --anyone");
    served.wait_for("wireboot: ready");
    renew("198.51.100.9", "10.9.0.200");
    served.wait_for("10.9.0.200");
}

#[test]
fn what_machines_will_miss_is_told_at_the_start_and_after_each_change() {
    if !inside("what_machines_will_miss_is_told_at_the_start_and_after_each_change") {
        return;
    }
    let _clients = Clients::new();
    let mut served = Served::start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    assert!(
        served
            .log()
            .contains("wireboot: error: wireboot.efi is no EFI program")
    );
    let configuration = served.directory.path().join("wireboot.conf");
    fs::write(&configuration, "title A\nlinux linux\ninitrd lost.gz\n").unwrap();
    served.wait_for("error: wireboot.conf, entry A: lost.gz: there is no such file here");
    fs::write(&configuration, "title A\nlinux\n").unwrap();
    served.wait_for("error: wireboot.conf, line 2: ");
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn errors_say_what_to_do() {
    if !inside("errors_say_what_to_do") {
        return;
    }
    let _clients = Clients::new();
    let _holder = std::net::UdpSocket::bind("10.9.0.1:69").unwrap();
    for (arguments, wanted) in [
        ("--interface s0 --authoritative", "ss -lunp sport = :69"),
        (
            "--interface nothing",
            "there is no network interface nothing",
        ),
        ("--interface s0 --nbp nothing", "there is no such file"),
        (
            "--interface s0 --range 1-2",
            "expected the first and the last address",
        ),
        (
            "--interface s0 --authoritative --no-tftp --range 10.9.1.5-10.9.1.9",
            "not of this server's network, 10.9.0.1/24",
        ),
        (
            "--interface s0 --authoritative --no-tftp --range 10.9.0.1-10.9.0.1",
            "there is none to give",
        ),
        ("--interface lo", "the loopback interface lo"),
        ("--no-dhcp --no-tftp --no-http", "nothing to serve"),
        ("--http-port 0", "0 is not in 1..=65535"),
        ("--check", "wireboot.efi is no EFI program for x64 machines"),
    ] {
        let mut served = Served::start(arguments);
        assert!(!served.child.wait().unwrap().success());
        assert!(
            served.log().contains(wanted),
            "{arguments}: {}",
            served.log()
        );
    }
}

#[test]
fn each_signal_to_end_leaves_nothing_behind() {
    if !inside("each_signal_to_end_leaves_nothing_behind") {
        return;
    }
    let _clients = Clients::new();
    let arguments = "--interface s0 --address 10.8.0.1/24 --authoritative";
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        let mut served = Served::start(arguments);
        served.wait_for("wireboot: ready");
        assert!(sh("ip address show dev s0").contains("10.8.0.1"));
        served.signal(signal);
        let code = served.ended();
        assert_eq!(code, Some(0), "{signal}: {}", served.log());
        assert!(served.log().contains(&format!("{signal} received, ending")));
        assert!(!sh("ip address show dev s0").contains("10.8.0.1"));
    }
    let mut served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    served.end_and_start_without_hangup(arguments);
    served.wait_for("wireboot: ready");
    served.signal(Signal::SIGHUP);
    assert_eq!(served.end(), Some(0), "{}", served.log());
    assert!(served.log().contains("SIGTERM received, ending"));
}

#[test]
fn an_interface_without_an_address_is_given_one_for_a_while() {
    if !inside("an_interface_without_an_address_is_given_one_for_a_while") {
        return;
    }
    let clients = Clients::new();
    sh("ip address flush dev s0");
    let mut served =
        Served::start("--interface s0 --address 10.8.0.1/24 --authoritative --no-http");
    served.wait_for("wireboot: ready");
    let environment = udhcpc(&clients, served.directory.path(), "");
    assert!(environment.contains("ip=10.8.0."), "{environment}");
    assert_eq!(served.end(), Some(0), "{}", served.log());
    assert!(!sh("ip address show dev s0").contains("10.8.0.1"));
    // Killed, it cannot take the address back itself.
    let mut served = Served::start("--interface s0 --address 10.8.0.1/24 --authoritative");
    served.wait_for("wireboot: ready");
    assert!(sh("ip address show dev s0").contains("10.8.0.1"));
    served.child.kill().unwrap();
    let began = Instant::now();
    while sh("ip address show dev s0").contains("10.8.0.1") {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
}
