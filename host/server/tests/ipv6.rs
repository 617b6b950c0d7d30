//! Clients that we did not write, over IPv6, in a network namespace of their own.

mod namespace;

use namespace::{Clients, Served, inside, sh};

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
    std::fs::write(served.directory.path().join("big"), &content).unwrap();
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
            assert!(std::fs::read(&out).unwrap() == content, "{scheme} {host}");
        }
    }
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
