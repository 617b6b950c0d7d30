//! A network namespace for each test, which starts itself again within `unshare`, as the user that it calls root there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Set in the process that runs within the namespace.
const INSIDE: &str = "WIREBOOT_TEST_INSIDE";

/// Runs the test `name` again within the namespace; true when this is that run.
pub fn inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut unshare = Command::new("unshare");
    // An ordinary user needs a user namespace; root may live where none can be made.
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        unshare.arg("--net");
    } else {
        unshare.args(["--user", "--map-root-user", "--net"]);
    }
    let output = unshare
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare (Debian package util-linux)");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    // A name that is no test's would be no failure either.
    assert!(text.contains("1 passed"), "{name} did not run: {text}");
    false
}

/// What a script says; it must succeed.
pub fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {text}");
    text.into_owned()
}
