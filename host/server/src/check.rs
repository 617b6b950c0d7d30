//! What a machine that boots would say on its screen, told where it can be mended.

use std::io::IoSliceMut;
use std::time::SystemTime;

use percent_encoding::percent_decode_str;
use wireboot_wire::bootconf::{self, BootConfig, Setting};
use wireboot_wire::filetype;

use crate::boot_conf::{BOOT_CONFIGURATION, BOOT_PROGRAM};
use crate::directory::{Content, Directory, OpenError};
use crate::event::Events;
use crate::stop::Stop;
use crate::trees;

/// Bytes of a configuration that are read: one more than it may have.
const LONGEST: u64 = bootconf::MAX_LEN as u64 + 1;
/// Files that are tried whether they can be read.
const LOOKED_AT: usize = 10_000;
/// Looks at [`Stop::CHECK_EVERY`] between two at the configuration.
const LOOK_EVERY: u32 = 10;

/// Something to be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// True when some boot fails for it.
    pub is_error: bool,
    /// Which file, and what is wrong.
    pub text: String,
}

impl Finding {
    fn error(text: String) -> Self {
        Self {
            is_error: true,
            text,
        }
    }

    fn remark(text: String) -> Self {
        Self {
            is_error: false,
            text,
        }
    }
}

/// What is wrong with the files that machines will ask for.
pub(crate) fn check(directory: &Directory) -> Vec<Finding> {
    let mut findings = Vec::new();
    let at = directory.path().display();
    match directory.find(BOOT_PROGRAM) {
        Ok(program) => {
            if let Some(what) = no_program(&program, false) {
                findings.push(Finding::error(format!("{BOOT_PROGRAM} is {what}")));
            }
        }
        Err(OpenError::NotFound) => findings.push(Finding::error(format!(
            "there is no {BOOT_PROGRAM}: firmware will find nothing to load; name one with --nbp, or put it into {at}"
        ))),
        Err(error) => findings.push(Finding::error(format!("{BOOT_PROGRAM}: {error}"))),
    }
    findings.extend(unreadable(directory));
    let remarks = trees::remarks(directory.folder(), directory.url()).into_iter();
    findings.extend(remarks.map(Finding::remark));
    let configuration = match directory.find(BOOT_CONFIGURATION) {
        Ok(configuration) => configuration,
        Err(OpenError::NotFound) => {
            findings.push(Finding::error(format!(
                "{at} has no {BOOT_CONFIGURATION}, and nothing that one could be made from (a kernel named linux, vmlinuz or bzImage, an EFI program)"
            )));
            return findings;
        }
        Err(error) => {
            findings.push(Finding::error(format!("{BOOT_CONFIGURATION}: {error}")));
            return findings;
        }
    };
    let text = bytes(&configuration, LONGEST).unwrap_or_default();
    match bootconf::parse(&text) {
        Ok(configuration) => {
            let remarks = configuration.warnings.iter();
            findings.extend(remarks.map(|notice| Finding::remark(told(notice))));
            let of_entries = configuration.entries.iter();
            let of_entries = of_entries.flat_map(|entry| &entry.settings);
            let settings = configuration.settings.iter().chain(of_entries);
            findings.extend(settings.filter_map(setting));
            findings.extend(useless(&configuration, directory));
        }
        Err(errors) => findings.extend(errors.iter().map(|error| Finding::error(told(error)))),
    }
    findings
}

/// Files that clients are refused, although they are there. Those that a boot is known to need are errors of their own.
fn unreadable(directory: &Directory) -> Option<Finding> {
    let denied = directory.folder().unreadable(LOOKED_AT);
    let first = denied.first()?;
    let first = directory.path().join(first);
    let more = match denied.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Finding::remark(format!(
        "the server may not read {}{more}, and refuses it: if machines need it, let the server's user read it, or name a user who may with --user",
        first.display()
    )))
}

fn told(notice: &bootconf::Notice) -> String {
    format!("{BOOT_CONFIGURATION}, {notice}")
}

/// What a setting does not do when it comes from a server.
fn setting(setting: &Setting) -> Option<Finding> {
    let Setting { key, value } = setting;
    match setting.of_the_program() {
        None => Some(Finding::remark(format!(
            "{BOOT_CONFIGURATION}: {key} {value} has no effect: machines must know it before they have a network; embed it in {BOOT_PROGRAM}"
        ))),
        Some(values) if !values.accept(value) => Some(Finding::error(format!(
            "{BOOT_CONFIGURATION}: {key} {value:?} is not understood: {key} takes {values}"
        ))),
        Some(_) => None,
    }
}

/// Files of this directory that entries name, and that are not to be had or cannot be started.
fn useless(configuration: &BootConfig, directory: &Directory) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in &configuration.entries {
        // A URL of another server is that one's business.
        let here = entry.files().filter(|file| !file.url.contains("//"));
        for file in here {
            let path = file.url.split(['?', '#']).next().unwrap_or_default();
            let path = percent_decode_str(path).decode_utf8_lossy();
            let what = match directory.find(&path) {
                Err(error) => Some(error.to_string()),
                Ok(content) if file == entry.program.file() => {
                    let has_initrd = !entry.initrd.is_empty();
                    no_program(&content, has_initrd).map(|what| format!("is {what}"))
                }
                Ok(_) => None,
            };
            if let Some(what) = what {
                let text = format!(
                    "{BOOT_CONFIGURATION}, entry {}: {}: {what}",
                    entry.title, file.url
                );
                findings.push(Finding::error(text));
            }
        }
    }
    findings.dedup();
    findings
}

/// The first bytes of a file.
fn bytes(content: &Content, most: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; content.len().min(most) as usize];
    content
        .read_exact_at(&mut [IoSliceMut::new(&mut bytes)], 0)
        .ok()?;
    Some(bytes)
}

/// What a file is that firmware cannot start, or not with an initrd where it has one.
fn no_program(content: &Content, has_initrd: bool) -> Option<&'static str> {
    let begin = bytes(content, filetype::LOOKED_AT as u64).unwrap_or_default();
    let unknown =
        || (!filetype::is_efi_program(&begin)).then_some("no EFI program for x64 machines");
    let old = || filetype::takes_no_initrd(&begin).filter(|_| has_initrd);
    filetype::misfit(&begin).or_else(unknown).or_else(old)
}

/// Says what is wrong, each time that the configuration changes, until told to stop.
pub(crate) fn watch(directory: &Directory, events: &Events, stop: &Stop) {
    let mut seen = state(directory);
    let mut looks = 0;
    while !stop.is_set() {
        std::thread::sleep(Stop::CHECK_EVERY);
        looks += 1;
        if looks % LOOK_EVERY != 0 {
            continue;
        }
        let now = state(directory);
        if now != seen {
            events.say(format!("{BOOT_CONFIGURATION} has changed"));
            say(&check(directory), events);
            seen = now;
        }
    }
}

/// By which a change is seen. A configuration that is made from the names of files has no time.
fn state(directory: &Directory) -> Option<(u64, Option<SystemTime>)> {
    let content = directory.find(BOOT_CONFIGURATION).ok()?;
    Some((content.len(), content.modified()))
}

/// Tells what was found.
pub(crate) fn say(findings: &[Finding], events: &Events) {
    for finding in findings {
        let kind = if finding.is_error { "error" } else { "warning" };
        events.say(format!("{kind}: {}", finding.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use wireboot_wire::testing::pe_image as program;

    fn findings(files: &[(&str, &[u8])]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let directory = Directory::open(folder.path(), None).unwrap();
        let mark = |finding: &Finding| if finding.is_error { "E " } else { "W " };
        let all = check(&directory);
        let all = all.iter().map(|one| mark(one).to_owned() + &one.text);
        let at = folder.path().display().to_string();
        all.map(|text| text.replace(&at, "DIR")).collect()
    }

    #[test]
    fn what_is_wrong_is_found_before_a_machine_finds_it() {
        let good = program(0x8664, 10);
        let good = ("wireboot.efi", good.as_slice());
        let kernel = ("linux", good.1);
        assert_eq!(findings(&[good, kernel]), [""; 0]);
        let of = |text: &str| findings(&[good, kernel, ("wireboot.conf", text.as_bytes())]);
        let elsewhere = "title A\nlinux http://10.0.0.1/none\ninitrd tftp://[fe80::1]/none\n";
        assert_eq!(of(elsewhere), [""; 0]);
        assert_eq!(of("title A\nlinux /linux?version=1\n"), [""; 0]);
        assert_eq!(
            of("title A\nlinux li%6eux\ninitrd none.gz\ncolour red\n"),
            [
                "W wireboot.conf, line 4: unknown key \"colour\" ignored",
                "E wireboot.conf, entry A: none.gz: there is no such file here",
            ]
        );
        assert_eq!(
            of("network wireboot\nnear-end 2\nvlan 7\ntitle A\nefi linux\n"),
            [
                "E wireboot.conf: near-end \"2\" is not understood: near-end takes 0 or 1",
                "W wireboot.conf: vlan 7 has no effect: machines must know it before they have a network; embed it in wireboot.efi",
            ]
        );
        let broken = of("timeout soon\ndefault 3\ntitle A\n");
        assert!(broken.len() >= 2, "all errors: {broken:?}");
        assert!(
            broken
                .iter()
                .all(|text| text.starts_with("E wireboot.conf, line "))
        );
    }

    #[test]
    fn trees_without_an_entry_are_told_of_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "live/vmlinuz",
            "live/initrd.img",
            "live/filesystem.squashfs",
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let directory = Directory::open(folder.path(), None).unwrap();
        directory.reached_at("http://[fd00::1]/".to_owned());
        let is_told = |one: &Finding| !one.is_error && one.text.contains("IPv4 only");
        assert!(check(&directory).iter().any(is_told));
    }

    #[test]
    fn an_empty_directory_and_what_is_no_program() {
        let empty = findings(&[]);
        assert_eq!(empty.len(), 2, "{empty:?}");
        assert!(empty[0].contains("no wireboot.efi") && empty[1].contains("no wireboot.conf"));
        let kernel = program(0x8664, 10);
        for (program, what) in [
            (program(0xaa64, 10), "an EFI program for arm64"),
            (kernel[..100].to_vec(), "no EFI program for x64 machines"),
            (b"#!/bin/sh\n".to_vec(), "no EFI program for x64 machines"),
            (vec![], "no EFI program for x64 machines"),
        ] {
            let found = findings(&[("linux", &kernel), ("wireboot.efi", &program)]);
            assert_eq!(found, [format!("E wireboot.efi is {what}")]);
        }
    }

    #[test]
    fn what_an_entry_starts_is_looked_at() {
        let good = program(0x8664, 10);
        let mut iso = vec![0; 0x8006];
        iso[0x8001..].copy_from_slice(b"CD001");
        // Its version says nothing of initrds.
        let mut old = good.clone();
        old[0x202..0x206].copy_from_slice(b"HdrS");
        let conf = "title A\nlinux a.iso\ntitle B\nlinux good\ninitrd a.iso\ntitle C\nefi text\n\
                    title D\nlinux old\ninitrd a.iso\ntitle E\nlinux old\n";
        let found = findings(&[
            ("wireboot.efi", &good),
            ("good", &good),
            ("old", &old),
            ("a.iso", &iso),
            ("text", b"text"),
            ("wireboot.conf", conf.as_bytes()),
        ]);
        let [a, c, d] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(
            a.starts_with("E wireboot.conf, entry A: a.iso: is an ISO 9660 image"),
            "{a}"
        );
        assert_eq!(
            c,
            "E wireboot.conf, entry C: text: is no EFI program for x64 machines"
        );
        let old = "E wireboot.conf, entry D: old: is a Linux kernel before 5.7";
        assert!(d.starts_with(old), "{d}");
    }
}
