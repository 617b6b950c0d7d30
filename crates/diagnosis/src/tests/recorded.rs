//! Reports as doctor.efi told them, of machines whose faults were planted by others: dnsmasq late, twice and with an access point's options; a firmware
//! whose clock and variables are slow, with four more receivers.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The recorded reports.
const RECORDED: [&str; 3] = [
    include_str!("../../recorded/healthy.json"),
    include_str!("../../recorded/sick-network.json"),
    include_str!("../../recorded/sick-firmware.json"),
];

/// All numbers, texts and the like of a document.
fn leaves<'v>(value: &'v mut Value, all: &mut Vec<&'v mut Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|one| leaves(one, all)),
        Value::Object(members) => members.values_mut().for_each(|one| leaves(one, all)),
        leaf => all.push(leaf),
    }
}

/// Another value of the same kind.
fn changed(value: &Value, what: usize) -> Value {
    let wholes = [0, 1, 3, 40, 200];
    let parts = [0.0, 0.0001, 0.4, 30.0, 1e6];
    match value {
        Value::Number(number) if number.is_u64() => json!(wholes[what]),
        Value::Number(_) => json!(parts[what]),
        Value::Bool(yes) => json!(!yes),
        Value::String(_) => json!(["", "a", "10.77.0.1", "complete", "http"][what]),
        other => other.clone(),
    }
}

proptest! {
    /// As a stranger may have changed them.
    #[test]
    fn any_report_is_examined(
        which in 0..RECORDED.len(),
        changes in vec((any::<prop::sample::Index>(), 0..5_usize), 1..40),
    ) {
        let mut document: Value = serde_json::from_str(RECORDED[which]).unwrap();
        let mut all = Vec::new();
        leaves(&mut document, &mut all);
        for (place, what) in changes {
            let place = place.index(all.len());
            *all[place] = changed(all[place], what);
        }
        let text = document.to_string();
        // Times that run backwards, and words that nobody knows, are refused.
        prop_assume!(Report::from_json(&text).is_ok());
        crate::fuzzing::fuzz_findings(text.as_bytes());
    }
}

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
