//! Tests in a network namespace of their own: no permission is needed, and nothing leaves it.
//!
//! A test starts its own program again within `unshare`, for itself alone.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test kit")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Set in the process that runs within the namespace.
const INSIDE: &str = "WIREBOOT_TEST_INSIDE";

/// Runs the test `name` again in a network namespace; true when this is that run.
///
/// # Panics
/// When that run fails.
#[must_use]
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

/// What the shell says to `script`, as output and as errors.
///
/// # Panics
/// When `script` fails.
pub fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {text}");
    text.into_owned()
}
