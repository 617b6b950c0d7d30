//! The load generator against our server: a small crowd, all of whose clients get the right bytes.

use std::process::Command;

#[test]
fn fifty_clients_at_once_get_the_right_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("load.json");
    let output = Command::new(env!("CARGO_BIN_EXE_wireboot"))
        .args([
            "lab",
            "load",
            "--server",
            "ours",
            "--clients",
            "50",
            "--size",
            "1",
        ])
        // A busy host is as good.
        .args(["--rounds", "1", "--window", "16", "--force", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    // It fails when a client's bytes are wrong or missing; how fast they come is not asked.
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let trial = &report["trials"][0];
    assert_eq!(trial["server"], "ours");
    assert_eq!(trial["seconds"].as_array().unwrap().len(), 50, "{trial}");
    assert_eq!(trial["failures"], serde_json::json!([]));
}
