//! DHCP clients that we did not write, in a network namespace of their own.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

mod namespace;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use namespace::{Clients, Namespace, Served};
use nix::sys::signal::Signal;
use wireboot_namespace::{inside, sh};
use wireboot_wire::dhcp::{BROADCAST_FLAG, CLIENT_PORT, Message, MessageType, option};
use wireboot_wire::dhcpv6;

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

/// A server of the network, mostly on the far side of the cable: it gives 10.9.0.50 to 10.9.0.60.
struct Other {
    process: Child,
    _files: tempfile::TempDir,
}

impl Other {
    fn dnsmasq(clients: &Clients, interface: &str, arguments: &[&str]) -> Self {
        let mut command = clients.command("dnsmasq");
        command
            .arg("--bind-interfaces")
            .arg(format!("--interface={interface}"))
            .args(arguments);
        let (process, files) = Self::start_dnsmasq(command);
        Self::listening(clients, process, files)
    }

    /// On this side of the cable. It shares its port, and as it binds it to no interface, the system prefers a socket that is bound to one.
    fn dnsmasq_on_this_side() -> Self {
        let mut command = Command::new("dnsmasq");
        command.args(["--bind-dynamic", "--no-ping"]);
        let (process, files) = Self::start_dnsmasq(command);
        Self::when_listening(|| sh("ss -lun"), process, files)
    }

    fn start_dnsmasq(mut command: Command) -> (Child, tempfile::TempDir) {
        let files = tempfile::tempdir().unwrap();
        let leases = files.path().join("leases");
        let process = command
            .args(["--no-daemon", "--conf-file=/dev/null", "--port=0"])
            .args(["--user=root", "--dhcp-range=10.9.0.50,10.9.0.60"])
            .arg(format!("--dhcp-leasefile={}", leases.display()))
            .stderr(Stdio::null())
            .spawn()
            .expect("dnsmasq (Debian package dnsmasq-base)");
        (process, files)
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
        Self::when_listening(|| clients.run("ss -lun"), process, files)
    }

    /// `ports`: tells the UDP ports that are taken.
    fn when_listening(
        ports: impl Fn() -> String,
        process: Child,
        files: tempfile::TempDir,
    ) -> Self {
        let other = Self {
            process,
            _files: files,
        };
        let began = Instant::now();
        while !ports().contains(":67 ") {
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

/// A server of one IPv4 address, so that a second client gets none here.
const ONE_ADDRESS: &str = "--interface s0 --range 10.9.0.200-10.9.0.200";
const NO_MORE_GIVEN: &str = "giving no more addresses, only boot files: the DHCP server 10.9.0.2 gives them too (--authoritative";

/// The client with this Ethernet address takes one of `server`.
fn obtain_from(server: &str, client: &Namespace, mac: &str) {
    let log = client.run(&format!(
        "ip link set c0 address {mac}; busybox udhcpc -i c0 -n -q -f -t 9 -T 1 -s /bin/true 2>&1"
    ));
    assert!(log.contains(&format!("obtained from {server},")), "{log}");
}

const NAMES_ANOTHER_TO: &str = "WIREBOOT_TEST_NAMES_ANOTHER_TO";

/// Not a test: a DHCPv6 client that takes an address of another server, as it tells all servers.
#[test]
fn name_another() {
    let Ok(servers) = std::env::var(NAMES_ANOTHER_TO) else {
        return;
    };
    let mut request = dhcpv6::Writer::new(dhcpv6::MessageType::Request, 7);
    for (code, last) in [
        (dhcpv6::option::CLIENT_ID, 9),
        (dhcpv6::option::SERVER_ID, 2),
    ] {
        request.option(code, dhcpv6::duid::from_mac([2, 0, 0, 0, 0, last]));
    }
    let socket = UdpSocket::bind("[::]:0").unwrap();
    let servers = (servers.as_str(), dhcpv6::SERVER_PORT);
    socket.send_to(&request.finish(), servers).unwrap();
}

#[test]
fn another_server_that_comes_later_ends_the_giving_of_addresses() {
    if !inside("another_server_that_comes_later_ends_the_giving_of_addresses") {
        return;
    }
    let clients = Clients::new();
    let client = clients.another();
    clients.run("ip address add 10.9.0.2/24 dev b0; ip address add fe80::2/64 dev b0 nodad");
    clients.run("ip address add 2001:db8:9::2/64 dev b0 nodad");
    sh("ip address add 2001:db8:9::1/64 dev s0 nodad");
    let mut served = Served::start(ONE_ADDRESS);
    served.wait_for("wireboot: ready");
    let log = served.log();
    assert!(log.contains("giving addresses 2001:db8:9::1000"), "{log}");
    let (first, second) = ("02:00:00:00:00:08", "02:00:00:00:00:09");
    obtain_from("10.9.0.1", &client, first);
    let ipv6 = "--dhcp-range=2001:db8:9::100,2001:db8:9::1ff,64";
    let _other = Other::dnsmasq(&clients, "b0", &["--no-ping", ipv6]);
    // Of so many IPv6 addresses this server has one for everybody, and clients take it. So none names the other by itself.
    clients.run(&format!(
        "{NAMES_ANOTHER_TO}=ff02::1:2%b0 {} --exact name_another",
        std::env::current_exe().unwrap().display()
    ));
    obtain_from("10.9.0.2", &client, second);
    served.wait_for(NO_MORE_GIVEN);
    obtain_from("10.9.0.2", &client, first);
    served.wait_for("giving no more addresses, only boot files: the DHCPv6 server fe80::");
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn another_server_that_knows_its_clients_alone_is_found_when_one_names_it() {
    if !inside("another_server_that_knows_its_clients_alone_is_found_when_one_names_it") {
        return;
    }
    let clients = Clients::new();
    let client = clients.another();
    clients.run("ip address add 10.9.0.2/24 dev b0");
    let (first, second) = ("02:00:00:00:00:08", "02:00:00:00:00:09");
    let known = format!("--dhcp-host={second}");
    let known_alone = ["--no-ping", "--dhcp-ignore=tag:!known", known.as_str()];
    let _other = Other::dnsmasq(&clients, "b0", &known_alone);
    let mut served = Served::start(&format!("{ONE_ADDRESS} --no-ipv6"));
    served.wait_for("wireboot: ready");
    let log = served.log();
    assert!(log.contains("giving addresses 10.9.0.200"), "{log}");
    obtain_from("10.9.0.1", &client, first);
    obtain_from("10.9.0.2", &client, second);
    served.wait_for(NO_MORE_GIVEN);
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

/// What a client that has an address sends to the server alone, if this process is one.
fn send(kind: MessageType) -> Option<UdpSocket> {
    let from = std::env::var(RENEWS_FROM).ok()?;
    let (from, address) = from.split_once(' ').unwrap();
    let from: Ipv4Addr = from.parse().unwrap();
    let mut request = Message::request(kind, 7, [2, 0, 0, 0, 0, 9]);
    request.ciaddr = address.parse().unwrap();
    let socket = UdpSocket::bind((from, CLIENT_PORT)).unwrap();
    socket.send_to(&request.emit(), "10.9.0.1:67").unwrap();
    Some(socket)
}

/// Not a test: a client that goes on using an address, and asks its server alone.
#[test]
fn renew() {
    send(MessageType::Request);
}

/// Not a test: a client that has an address by its settings, and asks for the rest.
#[test]
fn inform() {
    send(MessageType::Inform);
}

/// The next message that comes to a client's socket, and where from.
fn hear(socket: &UdpSocket) -> (Message, SocketAddr) {
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).unwrap();
    let mut message = [0; 1500];
    let (length, source) = socket.recv_from(&mut message).unwrap();
    (Message::parse(&message[..length]).unwrap(), source)
}

/// Not a test: a client that renews, and is told by its server that it may.
#[test]
fn renew_until_acknowledged() {
    let Some(socket) = send(MessageType::Request) else {
        return;
    };
    let (answer, _) = hear(&socket);
    assert_eq!(answer.message_type(), Some(MessageType::Ack));
}

const DISCOVERS_AT: &str = "WIREBOOT_TEST_DISCOVERS_AT";

/// Not a test: firmware that asks servers until one tells it what to boot.
#[test]
fn discover_until_told() {
    let Ok(servers) = std::env::var(DISCOVERS_AT) else {
        return;
    };
    let mut discover = Message::request(MessageType::Discover, 8, [2, 0, 0, 0, 0, 8]);
    discover.flags = BROADCAST_FLAG;
    let options = &mut discover.options;
    options.set(option::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003000");
    options.set(option::ARCHITECTURE, 7u16.to_be_bytes());
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, CLIENT_PORT)).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.send_to(&discover.emit(), servers).unwrap();
    let (mut offer, mut source) = hear(&socket);
    while offer.boot_file() != Some("wireboot.efi") {
        (offer, source) = hear(&socket);
    }
    assert_eq!(source, "10.9.0.1:67".parse().unwrap());
}

#[test]
fn a_proxy_leaves_what_is_sent_to_its_machine_alone_to_the_server_beside_it() {
    if !inside("a_proxy_leaves_what_is_sent_to_its_machine_alone_to_the_server_beside_it") {
        return;
    }
    let clients = Clients::new();
    let other = Other::dnsmasq_on_this_side();
    let arguments = "--interface s0 --proxy --no-ipv6";
    let mut served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    let address = clients.obtain("02:00:00:00:00:09").expect("a lease");
    clients.run(&format!(
        "ip address add {address}/24 dev c0; ip route add 255.255.255.255 dev c0"
    ));
    let program = std::env::current_exe().unwrap();
    let run = |variable: &str, value: &str, client: &str| {
        let program = program.display();
        let text = clients.run(&format!(
            "{variable}=\"{value}\" {program} --exact {client}"
        ));
        assert!(text.contains("1 passed"), "{text}");
    };
    let renewed = format!("{address} {address}");
    run(RENEWS_FROM, &renewed, "renew_until_acknowledged");
    run(DISCOVERS_AT, "255.255.255.255:67", "discover_until_told");
    // As a relay sends.
    drop(other);
    served.end_and_start(&format!("{arguments} --anyone"));
    served.wait_for("wireboot: ready");
    run(DISCOVERS_AT, "10.9.0.1:67", "discover_until_told");
    assert_eq!(served.end(), Some(0), "{}", served.log());
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
    let run = |client: &str, from: &str, address: &str| {
        clients.run(&format!(
            "{RENEWS_FROM}=\"{from} {address}\" {} --exact {client}",
            program.display()
        ));
    };
    let renew = |from, address| run("renew", from, address);
    let mut served = Served::start("--authoritative");
    served.wait_for("wireboot: ready");
    renew("198.51.100.9", "10.9.0.200");
    served.wait_for("beyond this server's networks");
    assert!(!served.log().contains("10.9.0.200"), "{}", served.log());
    // One that was here before it was moved is told.
    renew("198.51.100.9", "198.51.100.9");
    served.wait_for("198.51.100.9 is not to be had here");
    run("inform", "10.9.0.9", "198.51.100.9");
    served.wait_for("the answer would go to 198.51.100.9, beyond");
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
        (
            "--interface s0 --router 10.9.1.1",
            "--router 10.9.1.1 is not of this server's network, 10.9.0.1/24",
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
fn what_is_told_over_ipv4_is_refused_without_ipv4() {
    if !inside("what_is_told_over_ipv4_is_refused_without_ipv4") {
        return;
    }
    let _clients = Clients::new();
    sh("ip address delete 10.9.0.1/24 dev s0; ip address add fd00:9::1/64 dev s0 nodad");
    let arguments = "--interface s0 --authoritative --dns fd00:9::53";
    for option in [
        "--range 10.9.0.5-10.9.0.9",
        "--router 10.9.0.2",
        "--dns 10.9.0.2",
    ] {
        let mut served = Served::start(&format!("{arguments} {option}"));
        assert_eq!(served.ended(), Some(1), "{option}: {}", served.log());
        let wanted = format!("{option} is for machines with IPv4, and the interface s0 has no");
        assert!(served.log().contains(&wanted), "{}", served.log());
    }
    let mut served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn a_router_that_passes_nothing_on_is_told_of() {
    if !inside("a_router_that_passes_nothing_on_is_told_of") {
        return;
    }
    let _clients = Clients::new();
    for (router, forwarding, is_told) in [
        ("10.9.0.1", "0", true),
        ("10.9.0.1", "1", false),
        // Somebody else's computer.
        ("10.9.0.2", "0", false),
    ] {
        fs::write("/proc/sys/net/ipv4/conf/s0/forwarding", forwarding).unwrap();
        let mut served =
            Served::start(&format!("--interface s0 --authoritative --router {router}"));
        served.wait_for("wireboot: ready");
        let log = served.log();
        let told = log.contains("warning: --router 10.9.0.1 is this computer, which passes on");
        assert_eq!(told, is_told, "{router}, {forwarding}: {log}");
        assert_eq!(served.end(), Some(0), "{}", served.log());
    }
}

#[test]
fn an_interface_that_is_made_anew_ends_the_server() {
    if !inside("an_interface_that_is_made_anew_ends_the_server") {
        return;
    }
    let _clients = Clients::new();
    let mut served = Served::start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    sh("ip link delete s0; ip link add s0 type veth peer name c0");
    assert_eq!(served.ended(), Some(1), "{}", served.log());
    let log = served.log();
    let wanted = "wireboot: the interface s0 was made anew, and";
    assert!(log.contains(wanted), "{log}");
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
fn an_address_that_somebody_has_is_not_taken_for_the_server() {
    if !inside("an_address_that_somebody_has_is_not_taken_for_the_server") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.8.0.1/24 dev c0");
    let mut served = Served::start("--interface s0 --address 10.8.0.1/24 --authoritative");
    assert_eq!(served.ended(), Some(1), "{}", served.log());
    let log = served.log();
    let wanted = "--address 10.8.0.1: the machine 02:00:00:00:00:07 on the network of s0 has";
    assert!(log.contains(wanted), "{log}");
    assert!(!sh("ip address show dev s0").contains("10.8.0.1"));
    // A free one beside it, also while that machine speaks.
    let mut speaker = clients
        .command("busybox")
        .args(["arping", "-I", "c0", "-w", "60", "10.8.0.77"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut served = Served::start("--interface s0 --address 10.8.0.9/24 --authoritative");
    served.wait_for("wireboot: ready");
    assert!(sh("ip address show dev s0").contains("10.8.0.9"));
    let log = served.log();
    assert!(!log.contains("cannot be asked"), "{log}");
    assert_eq!(served.end(), Some(0), "{}", served.log());
    assert!(speaker.try_wait().unwrap().is_none(), "nobody spoke");
    speaker.kill().unwrap();
    speaker.wait().unwrap();
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
