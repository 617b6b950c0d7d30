//! Reports as doctor.efi told them, of machines whose faults were planted by others: dnsmasq late, twice and with an access point's options; a firmware
//! whose clock and variables are slow, with four more receivers.

use super::*;

/// What is found in a report: names and seconds, most first.
fn found(report: &Report) -> Vec<(String, f64)> {
    let seconds = |one: Finding| (one.id, (one.seconds * 10.0).round() / 10.0);
    examine(report).into_iter().map(seconds).collect()
}

fn report(text: &str) -> Report {
    Report::from_json(text).unwrap()
}

#[test]
fn of_a_healthy_machine_the_firmwares_own_patience_is_left() {
    let report = report(include_str!("../../recorded/healthy.json"));
    assert_eq!(found(&report), [("offer-wait".into(), 3.9)]);
    assert_eq!(
        verdict(&report),
        "4.0 s to load UEFI PXEv4 (MAC:525400770002); 3.9 of them DHCP patience."
    );
    assert!(!report.servers.is_empty() && report.as_found == Some(true));
}

#[test]
fn of_a_sick_network_each_fault_is_named() {
    let report = report(include_str!("../../recorded/sick-network.json"));
    assert_eq!(
        found(&report),
        [
            ("late-offer".into(), 8.0),
            ("offer-wait".into(), 3.9),
            ("several-servers".into(), 0.0),
            ("vendor-options".into(), 0.0),
        ]
    );
}

#[test]
fn of_a_sick_firmware_each_fault_is_named() {
    let report = report(include_str!("../../recorded/sick-firmware.json"));
    assert_eq!(
        found(&report),
        [
            ("time-per-packet".into(), 0.7),
            ("slow-get-time".into(), 0.0),
            ("slow-variables".into(), 0.0),
            ("receivers".into(), 0.0),
        ]
    );
}
