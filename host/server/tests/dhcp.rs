//! DHCP clients that we did not write, in a network namespace of their own.

mod namespace;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use namespace::{Clients, Served};
use wireboot_namespace::{inside, sh};

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

#[test]
fn a_second_server_is_refused_and_a_proxy_is_not() {
    if !inside("a_second_server_is_refused_and_a_proxy_is_not") {
        return;
    }
    let clients = Clients::new();
    // The other server of the network, on the far side.
    clients.run("ip address add 10.9.0.2/24 dev c0");
    let leases = tempfile::NamedTempFile::new().unwrap();
    let pid = clients.sleeper.id().to_string();
    let mut dnsmasq = Command::new("nsenter")
        .args([
            "--net",
            "--target",
            &pid,
            "dnsmasq",
            "--no-daemon",
            "--conf-file=/dev/null",
            "--port=0",
            "--no-ping",
        ])
        .args([
            "--user=root",
            "--interface=c0",
            "--bind-interfaces",
            "--dhcp-range=10.9.0.50,10.9.0.60",
        ])
        .arg(format!("--dhcp-leasefile={}", leases.path().display()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("dnsmasq (Debian package dnsmasq-base)");
    let mut served = Served::start("--interface s0 --no-tftp --no-http");
    assert!(!served.child.wait().unwrap().success());
    assert!(
        served
            .log()
            .contains("10.9.0.2 already gives addresses on s0")
            && served.log().contains("--proxy"),
        "{}",
        served.log()
    );
    let mut served = Served::start("--interface s0 --proxy");
    served.wait_for("wireboot: ready");
    assert_eq!(served.end(), Some(0), "{}", served.log());
    dnsmasq.kill().unwrap();
    dnsmasq.wait().unwrap();
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
}
