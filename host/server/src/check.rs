//! What a machine that boots would say on its screen, told where it can be mended.

use std::io::IoSliceMut;
use std::time::SystemTime;

use percent_encoding::percent_decode_str;
use wireboot_wire::bootconf::{self, BootConfig};

use crate::directory::{BOOT_CONFIGURATION, BOOT_PROGRAM, Content, Directory, OpenError};
use crate::event::Events;
use crate::stop::Stop;
use crate::trees;

/// Bytes of a configuration that are read; no real one has as many.
const LONGEST: u64 = 1 << 20;
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
            let begin = bytes(&program, 4096).unwrap_or_default();
            if !is_efi_program(&begin) {
                let text = format!("{BOOT_PROGRAM} is no EFI program for x64 machines");
                findings.push(Finding::error(text));
            }
        }
        Err(OpenError::NotFound) => findings.push(Finding::error(format!(
            "there is no {BOOT_PROGRAM}: firmware will find nothing to load; name one with --nbp, or put it into {at}"
        ))),
        Err(error) => findings.push(Finding::error(format!("{BOOT_PROGRAM}: {error}"))),
    }
    findings.extend(unreadable(directory));
    findings.extend(trees::media_only(directory).iter().map(|kernel| {
        Finding::remark(format!(
            "{kernel}: this installer looks for the CD that it is from in the machine itself; unpack netboot.tar.gz of the same release into {at}"
        ))
    }));
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
            findings.extend(missing(&configuration, directory));
        }
        Err(errors) => findings.extend(errors.iter().map(|error| Finding::error(told(error)))),
    }
    findings
}

/// Files that clients are refused, although they are there.
fn unreadable(directory: &Directory) -> Option<Finding> {
    let denied = directory.unreadable(LOOKED_AT);
    let first = denied.first()?;
    let first = directory.path().join(first);
    let more = match denied.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Finding::error(format!(
        "the server may not read {}{more}: let everybody read what is served (chmod -R a+rX {}), or name a user who may with --user",
        first.display(),
        directory.path().display()
    )))
}

fn told(notice: &bootconf::Notice) -> String {
    format!("{BOOT_CONFIGURATION}, {notice}")
}

/// Files of this directory that entries name, and that are not to be had.
fn missing(configuration: &BootConfig, directory: &Directory) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in &configuration.entries {
        // A URL of another server is that one's business.
        let here = entry.files().filter(|file| !file.url.contains("//"));
        for file in here {
            let path = file.url.split(['?', '#']).next().unwrap_or_default();
            let path = percent_decode_str(path).decode_utf8_lossy();
            if let Err(error) = directory.find(&path) {
                let text = format!(
                    "{BOOT_CONFIGURATION}, entry {}: {}: {error}",
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

/// Whether a file that begins so is an EFI application or driver for x64 (PE format: machine 0x8664, subsystems 10 to 12).
fn is_efi_program(begin: &[u8]) -> bool {
    let u16_at = |at: usize| {
        let bytes = begin.get(at..at + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    };
    let header = || {
        let header = begin.get(0x3c..0x40)?.try_into().ok()?;
        let header = u32::from_le_bytes(header) as usize;
        let signed = begin.starts_with(b"MZ") && begin.get(header..)?.starts_with(b"PE\0\0");
        let machine = u16_at(header + 4)?;
        let subsystem = u16_at(header + 24 + 68)?;
        Some(signed && machine == 0x8664 && (10..=12).contains(&subsystem))
    };
    header().unwrap_or(false)
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

    /// The headers of an EFI program.
    fn program(machine: u16, subsystem: u16) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[0x3c] = 0x80;
        bytes[0x80..0x84].copy_from_slice(b"PE\0\0");
        bytes[0x84..0x86].copy_from_slice(&machine.to_le_bytes());
        bytes[0x80 + 92..0x80 + 94].copy_from_slice(&subsystem.to_le_bytes());
        bytes
    }

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
        let kernel = ("linux", b"kernel".as_slice());
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
        let broken = of("timeout soon\ndefault 3\ntitle A\n");
        assert!(broken.len() >= 2, "all errors: {broken:?}");
        assert!(
            broken
                .iter()
                .all(|text| text.starts_with("E wireboot.conf, line "))
        );
    }

    #[test]
    fn an_empty_directory_and_what_is_no_program() {
        let empty = findings(&[]);
        assert_eq!(empty.len(), 2, "{empty:?}");
        assert!(empty[0].contains("no wireboot.efi") && empty[1].contains("no wireboot.conf"));
        let no_program = "E wireboot.efi is no EFI program for x64 machines";
        for program in [
            program(0xaa64, 10),
            program(0x8664, 3),
            program(0x8664, 10)[..100].to_vec(),
            b"#!/bin/sh\n".to_vec(),
            vec![],
        ] {
            let found = findings(&[("linux", b"kernel"), ("wireboot.efi", &program)]);
            assert_eq!(found, [no_program]);
        }
        let mut beyond = program(0x8664, 10);
        beyond[0x3c..0x40].fill(0xff);
        assert!(!is_efi_program(&beyond));
    }
}
