//! `scripts/setup.sh` on machines that lack something. Their commands are scripts of these tests.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that is all of PATH.
struct Machine(PathBuf);

impl Machine {
    /// Its user is root, its cargo new enough. It has no C compiler.
    fn without_compiler(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for real in ["env", "sed"] {
            symlink(Path::new("/usr/bin").join(real), folder.join(real)).unwrap();
        }
        Self(folder)
            .with("id", "echo 0")
            .with("cargo", "echo 'cargo 1.91.0 (0123 2026-01-01)'")
    }

    fn with(self, command: &str, script: &str) -> Self {
        let path = self.0.join(command);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// An apt-get of which this one command fails.
    fn with_apt_that_fails_to(self, fails: &str) -> Self {
        let log = self.0.join("log");
        let script = format!("echo \"$@\" >> {}; [ $1 != {fails} ]", log.display());
        self.with("apt-get", &script)
    }

    fn set_up(&self) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/setup.sh");
        let mut command = Command::new("/bin/sh");
        command.arg(script).env_clear();
        command.env("PATH", &self.0).env("HOME", &self.0);
        command.output().unwrap()
    }

    /// What apt-get was asked for.
    fn asked(&self) -> String {
        fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }
}

#[test]
fn a_failing_update_does_not_keep_packages_out_that_apt_knows() {
    let machine = Machine::without_compiler("update-fails").with_apt_that_fails_to("update");
    let output = machine.set_up();
    assert!(output.status.success(), "{output:?}");
    let asked = machine.asked();
    let installed = |line: &str| line.starts_with("install ") && line.contains(" gcc ");
    assert!(asked.lines().any(installed), "{asked}");
}

#[test]
fn it_ends_where_packages_cannot_be_installed() {
    let machine = Machine::without_compiler("install-fails").with_apt_that_fails_to("install");
    assert!(!machine.set_up().status.success());
    assert!(machine.asked().contains("install "));
}

#[test]
fn who_is_not_root_and_has_no_sudo_is_told() {
    let machine = Machine::without_compiler("no-sudo").with("id", "echo 1000");
    let machine = machine.with_apt_that_fails_to("nothing");
    let output = machine.set_up();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("needs root, or sudo"), "{error}");
    assert_eq!(machine.asked(), "");
}

#[test]
fn a_machine_that_has_all_is_left_as_it_is() {
    let machine = Machine::without_compiler("has-all").with("cc", "exit 0");
    let machine = machine.with_apt_that_fails_to("nothing");
    assert!(machine.set_up().status.success());
    assert_eq!(machine.asked(), "");
}
