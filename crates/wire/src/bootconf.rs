//! The boot configuration: what to boot, in the keys of the Boot Loader Specification's type 1 entries.
//!
//! ```text
//! # Before the first entry: what happens when nobody chooses.
//! default Debian installer
//! timeout 5
//! # And how wireboot.efi is to work, where this text is embedded in it.
//! processors 2
//!
//! title   Debian installer
//! linux   debian/linux
//! initrd  debian/initrd.gz
//! options console=ttyS0 priority=low
//! sha256  6d7f...64 digits...  debian/linux
//!
//! title   Shell
//! efi     http://server/shell.efi
//! ```
//!
//! Each line is a key, white space, and a value that goes to the end of the line. A `title` line begins an entry. Keys of the
//! specification that mean nothing here are ignored; unknown keys are ignored with a [`Notice`]. URLs are kept as
//! written: the caller resolves them against the configuration's own.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::text;

/// Longest text that is read, in bytes. No real configuration has as many.
pub const MAX_LEN: usize = 1 << 20;
/// Entries of one text.
pub const MAX_ENTRIES: usize = 1000;
/// Initial RAM disks of one entry.
const MAX_INITRDS: usize = 100;
/// Characters of a title.
const MAX_TITLE: usize = 200;
/// After this many errors the rest of the text is not worth reading: it is no boot configuration.
const MAX_ERRORS: usize = 20;
/// After this many warnings there is one more, which says that there would be others.
const MAX_WARNINGS: usize = 20;

/// Keys of the Boot Loader Specification that choose between installed systems or machines, which a network boot
/// has no use for.
const IGNORED_KEYS: [&str; 8] = [
    "version",
    "machine-id",
    "sort-key",
    "architecture",
    "devicetree",
    "devicetree-overlay",
    "profile",
    "grub_hotkey",
];

/// Keys that say how wireboot.efi is to work. They are none of the Boot Loader Specification's.
pub const SETTINGS: [&str; 9] = [
    "processors",
    "nic",
    "vlan",
    "card",
    "floor",
    "patience",
    "network",
    "near-end",
    "report",
];

/// Those of them that are needed only when the program is started, with the values that each takes. They are of effect in a configuration from a
/// server too. The others have to be known before the network is.
const OF_THE_PROGRAM: [(&str, Values); 3] = [
    ("network", Values::Words(&["firmware", "wireboot"])),
    ("near-end", Values::Words(&["0", "1"])),
    ("report", Values::HttpUrl),
];

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A URL of a server to send to.
    HttpUrl,
}

impl Values {
    /// Whether `value` is one of them. Whether a URL is right in all its parts is for the program to say.
    #[must_use]
    pub fn accept(&self, value: &str) -> bool {
        match self {
            Self::Words(words) => words.contains(&value),
            Self::HttpUrl => value
                .strip_prefix("http://")
                .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')),
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(&words.join(" or ")),
            Self::HttpUrl => f.write_str("an http URL"),
        }
    }
}

/// A remark on one line of the text: a warning, or one of the errors for which it was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it and what is expected.
    pub reason: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl core::error::Error for Notice {}

/// An error in the text, with its line.
pub type ConfigError = Notice;

/// A file to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is: absolute, or relative to the configuration.
    pub url: String,
    /// What its content must hash to, if the configuration says.
    pub sha256: Option<[u8; 32]>,
}

/// What an entry starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A Linux kernel with an EFI stub (`linux`).
    Linux(File),
    /// Any EFI program (`efi`).
    Efi(File),
}

impl Program {
    /// The program's file, whichever of the two it is.
    pub fn file(&self) -> &File {
        match self {
            Self::Linux(file) | Self::Efi(file) => file,
        }
    }
}

/// One thing that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name for the menu; the program's file name when the text gives none.
    pub title: String,
    /// What to start.
    pub program: Program,
    /// Initial RAM disks (`initrd`), to be handed over one after the other.
    pub initrd: Vec<File>,
    /// Arguments (`options`, joined by a space).
    pub options: String,
    /// How wireboot.efi is to work for this entry: only settings that concern the program, each key once at most.
    pub settings: Vec<Setting>,
}

impl Entry {
    /// All files of the entry, the program first.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        core::iter::once(self.program.file()).chain(&self.initrd)
    }
}

/// How wireboot.efi is to work: a line before the first entry. Most are of use only where they are known before the network is, so in an
/// embedded configuration. What concerns the program that is started may also stand in an entry, for that alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// One of [`SETTINGS`].
    pub key: &'static str,
    /// As written, and not empty: what it may be is for the program to say.
    pub value: String,
}

impl Setting {
    /// The values that this setting takes, if it is one that a configuration from a server can say.
    #[must_use]
    pub fn of_the_program(&self) -> Option<Values> {
        let mut all = OF_THE_PROGRAM.into_iter();
        all.find_map(|(key, values)| (key == self.key).then_some(values))
    }
}

/// A boot configuration without errors. Its `Display` is a text that parses to the same configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootConfig {
    /// Index into `entries` of the one to boot when nobody chooses.
    pub default: usize,
    /// Seconds that the menu waits for a choice. 0: no menu. `None`: the text does not say.
    pub timeout: Option<u32>,
    /// How wireboot.efi is to work: each key once at most.
    pub settings: Vec<Setting>,
    /// What can be booted: one entry or more. None only by [`parse_embedded`].
    pub entries: Vec<Entry>,
    /// Lines that were not understood, and ignored.
    pub warnings: Vec<Notice>,
}

impl BootConfig {
    /// The entry to boot when nobody chooses.
    pub fn default_entry(&self) -> Option<&Entry> {
        self.entries.get(self.default)
    }
}

impl fmt::Display for BootConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Setting { key, value } in &self.settings {
            writeln!(f, "{key} {value}")?;
        }
        if !self.entries.is_empty() {
            writeln!(f, "default {}", self.default + 1)?;
        }
        if let Some(timeout) = self.timeout {
            writeln!(f, "timeout {timeout}")?;
        }
        for entry in &self.entries {
            writeln!(f, "\ntitle {}", entry.title)?;
            match &entry.program {
                Program::Linux(file) => writeln!(f, "linux {}", file.url)?,
                Program::Efi(file) => writeln!(f, "efi {}", file.url)?,
            }
            for file in &entry.initrd {
                writeln!(f, "initrd {}", file.url)?;
            }
            if !entry.options.is_empty() {
                writeln!(f, "options {}", entry.options)?;
            }
            for Setting { key, value } in &entry.settings {
                writeln!(f, "{key} {value}")?;
            }
            for file in entry.files() {
                if let Some(sha256) = &file.sha256 {
                    f.write_str("sha256 ")?;
                    sha256.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                    writeln!(f, " {}", file.url)?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a boot configuration. A UTF-8 byte order mark and CR LF line ends are accepted.
///
/// # Errors
/// All errors found, in the order of their lines, and never an empty list.
pub fn parse(text: impl AsRef<[u8]>) -> Result<BootConfig, Vec<ConfigError>> {
    read(text.as_ref(), false)
}

/// Reads a configuration that is embedded in wireboot.efi: like [`parse`], but one with settings need not have an entry.
///
/// # Errors
/// As for [`parse`].
pub fn parse_embedded(text: impl AsRef<[u8]>) -> Result<BootConfig, Vec<ConfigError>> {
    read(text.as_ref(), true)
}

fn read(bytes: &[u8], embedded: bool) -> Result<BootConfig, Vec<ConfigError>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = Reader::default();
    if bytes.len() > MAX_LEN {
        return Err(alloc::vec![Notice {
            line: 1,
            reason: format!(
                "no boot configuration: it has {} bytes, and a configuration has {MAX_LEN} at most",
                bytes.len()
            ),
        }]);
    }
    for (index, line) in bytes.split(|&b| b == b'\n').enumerate() {
        reader.line = index + 1;
        reader.read(line.strip_suffix(b"\r").unwrap_or(line));
        if reader.begun > MAX_ENTRIES {
            reader.too_many_entries();
            break;
        }
        if reader.errors.len() >= MAX_ERRORS {
            break;
        }
    }
    reader.finish(embedded)
}

#[derive(Default)]
struct Reader {
    line: usize,
    errors: Vec<Notice>,
    warnings: Vec<Notice>,
    default: Option<(usize, String)>,
    timeout: Option<u32>,
    settings: Vec<Setting>,
    open: Option<Draft>,
    entries: Vec<Entry>,
    /// Entries that began, the faulty ones included.
    begun: usize,
}

/// An entry whose lines are still coming.
struct Draft {
    line: usize,
    title: Option<String>,
    program: Option<Program>,
    /// The line that names the program is, or may be, one that has been complained about.
    program_failed: bool,
    initrd: Vec<File>,
    options: String,
    settings: Vec<Setting>,
    sums: Vec<(usize, [u8; 32], String)>,
}

impl Reader {
    /// In the order of lines, though an entry's error is found at its end.
    fn error(&mut self, line: usize, reason: impl Into<String>) {
        let at = self.errors.partition_point(|error| error.line <= line);
        let reason = reason.into();
        self.errors.insert(at, Notice { line, reason });
    }

    /// The line could have been any, the program's too.
    fn unreadable(&mut self, reason: &str) {
        self.error(self.line, reason);
        if let Some(draft) = &mut self.open {
            draft.program_failed = true;
        }
    }

    fn read(&mut self, line: &[u8]) {
        let Ok(line) = str::from_utf8(line) else {
            return self.unreadable("not UTF-8 text");
        };
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return self.unreadable("holds a control character, which a text has no use for");
        }
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let value = value.trim_start();
        if let Some(key) = SETTINGS.into_iter().find(|name| *name == key) {
            return self.add_setting(key, value);
        }
        match key {
            "default" | "timeout" if self.open.is_some() => self.misplaced(key),
            "default" => self.set_default(value),
            "timeout" => self.set_timeout(value),
            "title" => self.set_title(value),
            "linux" | "efi" => self.set_program(key, value),
            "initrd" => {
                let url = self.url(key, value);
                if self.draft().initrd.len() >= MAX_INITRDS {
                    let reason = format!("more than {MAX_INITRDS} initrd lines in one entry");
                    self.error(self.line, reason);
                } else if let Some(url) = url {
                    self.draft().initrd.push(File { url, sha256: None });
                }
            }
            "options" => {
                let options = &mut self.draft().options;
                if !options.is_empty() && !value.is_empty() {
                    options.push(' ');
                }
                options.push_str(value);
            }
            "sha256" => self.add_sum(value),
            key if IGNORED_KEYS.contains(&key) => {}
            key => {
                let reason = match self.warnings.len() {
                    ..MAX_WARNINGS => {
                        format!("unknown key {:?} ignored", text::shown(key.as_bytes()))
                    }
                    MAX_WARNINGS => "more unknown keys ignored".to_owned(),
                    _ => return,
                };
                self.warnings.push(Notice {
                    line: self.line,
                    reason,
                });
            }
        }
    }

    /// The entry that has just begun is one too many.
    fn too_many_entries(&mut self) {
        self.open = None;
        self.error(
            self.line,
            format!("more than {MAX_ENTRIES} entries, too many for a menu"),
        );
    }

    fn misplaced(&mut self, key: &str) {
        self.error(
            self.line,
            format!("{key} concerns the whole file and belongs before the first entry"),
        );
    }

    fn add_setting(&mut self, key: &'static str, value: &str) {
        let settings = match &mut self.open {
            Some(draft) if OF_THE_PROGRAM.iter().any(|(name, _)| *name == key) => {
                &mut draft.settings
            }
            Some(_) => return self.misplaced(key),
            None => &mut self.settings,
        };
        if value.is_empty() {
            self.error(self.line, format!("{key} needs a value"));
        } else if settings.iter().any(|setting| setting.key == key) {
            self.error(self.line, format!("a second {key}"));
        } else {
            let value = value.to_owned();
            settings.push(Setting { key, value });
        }
    }

    /// The entry that the current line belongs to. A first entry may go without a title.
    fn draft(&mut self) -> &mut Draft {
        let line = self.line;
        let begun = &mut self.begun;
        self.open.get_or_insert_with(|| {
            *begun += 1;
            Draft {
                line,
                title: None,
                program: None,
                program_failed: false,
                initrd: Vec::new(),
                options: String::new(),
                settings: Vec::new(),
                sums: Vec::new(),
            }
        })
    }

    fn set_default(&mut self, value: &str) {
        if value.is_empty() {
            self.error(
                self.line,
                "default needs the number or the title of an entry",
            );
        } else if self.default.is_some() {
            self.error(self.line, "a second default");
        } else {
            self.default = Some((self.line, value.to_owned()));
        }
    }

    fn set_timeout(&mut self, value: &str) {
        match value.parse() {
            Ok(_) if self.timeout.is_some() => self.error(self.line, "a second timeout"),
            Ok(seconds) => self.timeout = Some(seconds),
            Err(_) => self.error(
                self.line,
                format!(
                    "timeout needs a whole number of seconds, not {:?}",
                    clip(value)
                ),
            ),
        }
    }

    fn set_title(&mut self, value: &str) {
        if value.is_empty() {
            self.error(self.line, "title needs a text");
        } else if value.chars().nth(MAX_TITLE).is_some() {
            let reason = format!("title has more than {MAX_TITLE} characters");
            self.error(self.line, reason);
        }
        // The specification does not order the keys of an entry: a first entry's title may come late.
        if self.open.as_ref().is_some_and(|open| open.title.is_some()) {
            self.close();
        }
        self.draft().title = Some(value.to_owned());
    }

    fn set_program(&mut self, key: &str, value: &str) {
        let url = self.url(key, value);
        let line = self.line;
        let draft = self.draft();
        let Some(url) = url else {
            draft.program_failed = true;
            return;
        };
        let file = File { url, sha256: None };
        let program = if key == "linux" {
            Program::Linux(file)
        } else {
            Program::Efi(file)
        };
        match &draft.program {
            None => draft.program = Some(program),
            Some(first) => {
                let first = if matches!(first, Program::Linux(_)) {
                    "linux"
                } else {
                    "efi"
                };
                self.error(
                    line,
                    format!(
                        "{key} in an entry that already has {first}; each entry starts one program and \
                         begins with its own title line"
                    ),
                );
            }
        }
    }

    fn add_sum(&mut self, value: &str) {
        let (hex, url) = value.split_once([' ', '\t']).unwrap_or((value, ""));
        let line = self.line;
        let Some(sum) = sha256_from_hex(hex) else {
            return self.error(
                line,
                format!(
                    "sha256 needs 64 hexadecimal digits and a URL, not {:?}",
                    clip(hex)
                ),
            );
        };
        if let Some(url) = self.url("sha256", url.trim_start()) {
            self.draft().sums.push((line, sum, url));
        }
    }

    fn url(&mut self, key: &str, value: &str) -> Option<String> {
        if value.is_empty() {
            self.error(self.line, format!("{key} needs a URL"));
            None
        } else if value.contains(char::is_whitespace) {
            let reason = format!(
                "{key} takes one URL, and {:?} holds a space (write %20 for a space in a name, and a line for \
                 each file)",
                clip(value)
            );
            self.error(self.line, reason);
            None
        } else {
            Some(value.to_owned())
        }
    }

    fn close(&mut self) {
        let Some(draft) = self.open.take() else {
            return;
        };
        let Some(mut program) = draft.program else {
            if !draft.program_failed {
                let title = draft.title.as_deref().map(clip).unwrap_or_default();
                self.error(
                    draft.line,
                    format!(
                        "entry {title:?} has neither linux nor efi, so there is nothing to start"
                    ),
                );
            }
            return;
        };
        let mut initrd = draft.initrd;
        for (line, sum, url) in draft.sums {
            let mut named = false;
            let own = match &mut program {
                Program::Linux(file) | Program::Efi(file) => file,
            };
            let mut conflict = false;
            for file in initrd
                .iter_mut()
                .chain([own])
                .filter(|file| file.url == url)
            {
                named = true;
                conflict |= file.sha256.replace(sum).is_some_and(|other| other != sum);
            }
            if !named {
                self.error(
                    line,
                    format!("sha256 of {:?}, which the entry does not load", clip(&url)),
                );
            } else if conflict {
                self.error(
                    line,
                    format!("a second, different sha256 of {:?}", clip(&url)),
                );
            }
        }
        if matches!(program, Program::Efi(_)) && !initrd.is_empty() {
            initrd.clear();
            let reason = "initrd ignored in this entry, as efi programs get none: write linux in place of efi for a kernel";
            self.warnings.push(Notice {
                line: draft.line,
                reason: reason.to_owned(),
            });
        }
        let title = draft.title.unwrap_or_else(|| {
            let url = &program.file().url;
            let name = url.rsplit('/').find(|part| !part.is_empty());
            name.unwrap_or(url).chars().take(MAX_TITLE).collect()
        });
        self.entries.push(Entry {
            title,
            program,
            initrd,
            options: draft.options,
            settings: draft.settings,
        });
    }

    fn finish(mut self, embedded: bool) -> Result<BootConfig, Vec<Notice>> {
        self.close();
        let mut default = 0;
        if self.begun == 0 {
            let about_entries = self.default.is_some() || self.timeout.is_some();
            if !embedded || self.settings.is_empty() || about_entries {
                self.error(
                    1,
                    "no entry: there must be a title line followed by linux or efi with the URL of what to boot",
                );
            }
        } else if let Some((line, wanted)) = self.default.take() {
            let number = || wanted.parse().ok().and_then(|n: usize| n.checked_sub(1));
            let found = self
                .entries
                .iter()
                .position(|entry| entry.title == wanted)
                .or_else(|| number().filter(|&n| n < self.begun));
            match found {
                Some(index) => default = index,
                // Faulty entries have no title to look for; they are complained about anyway.
                None if self.entries.len() < self.begun => {}
                None => self.error(
                    line,
                    format!(
                        "default {:?} is neither the title of an entry nor a number from 1 to {}",
                        clip(&wanted),
                        self.begun
                    ),
                ),
            }
        }
        if self.errors.is_empty() {
            Ok(BootConfig {
                default,
                timeout: self.timeout,
                settings: self.settings,
                entries: self.entries,
                warnings: self.warnings,
            })
        } else {
            self.errors.truncate(MAX_ERRORS);
            Err(self.errors)
        }
    }
}

/// At most 60 characters of a value, for messages.
fn clip(value: &str) -> &str {
    value
        .char_indices()
        .nth(60)
        .and_then(|(end, _)| value.get(..end))
        .unwrap_or(value)
}

fn sha256_from_hex(hex: &str) -> Option<[u8; 32]> {
    let digits = hex.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut sum = [0; 32];
    for (byte, pair) in sum.iter_mut().zip(digits.chunks_exact(2)) {
        for &digit in pair {
            *byte = *byte << 4 | char::from(digit).to_digit(16)? as u8;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    const SUM: &str = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

    fn file(url: &str) -> File {
        File {
            url: url.to_owned(),
            sha256: None,
        }
    }

    fn errors(text: &str) -> Vec<(usize, String)> {
        parse(text)
            .unwrap_err()
            .into_iter()
            .map(|e| (e.line, e.reason))
            .collect()
    }

    #[track_caller]
    fn one_error(text: &str, line: usize, part: &str) {
        let errors = errors(text);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].0, line, "{errors:?}");
        assert!(errors[0].1.contains(part), "{errors:?}");
    }

    #[test]
    fn two_entries() {
        let text = alloc::format!(
            "# Boot\ndefault Shell\ntimeout 5\n\ntitle Debian  installer\nversion 12\nlinux debian/linux\n\
             initrd debian/a.gz\ninitrd\tdebian/b.gz\noptions console=ttyS0\noptions  quiet splash \n\
             sha256 {SUM} debian/a.gz\nfoo bar\ntitle Shell\nefi http://server/shell.efi\n"
        );
        let config = parse(&text).unwrap();
        assert_eq!((config.default, config.timeout), (1, Some(5)));
        let first = &config.entries[0];
        assert_eq!(first.title, "Debian  installer");
        assert_eq!(first.program, Program::Linux(file("debian/linux")));
        assert_eq!(first.options, "console=ttyS0 quiet splash");
        assert_eq!(first.initrd[1], file("debian/b.gz"));
        assert_eq!(first.initrd[0].sha256.unwrap()[..3], [0, 0x11, 0x22]);
        assert_eq!(first.initrd[0].sha256.unwrap()[31], 0xff);
        assert_eq!(first.files().count(), 3);
        assert_eq!(
            config.default_entry().unwrap().program,
            Program::Efi(file("http://server/shell.efi"))
        );
        assert_eq!(
            config.warnings,
            vec![Notice {
                line: 13,
                reason: "unknown key \"foo\" ignored".to_owned()
            }]
        );
        let again = parse(config.to_string()).unwrap();
        assert_eq!(again.entries, config.entries);
        assert_eq!((again.default, again.timeout), (1, Some(5)));
    }

    #[test]
    fn settings_stand_before_the_first_entry() {
        let text = "processors 3\nnic\tsnp \nvlan x y\nfloor 9\npatience 7\ntimeout 2\n\ntitle A\nlinux a\n";
        let config = parse(text).unwrap();
        let pairs: Vec<_> = config
            .settings
            .iter()
            .map(|setting| (setting.key, setting.value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("processors", "3"),
                ("nic", "snp"),
                ("vlan", "x y"),
                ("floor", "9"),
                ("patience", "7")
            ]
        );
        assert_eq!(parse_embedded(text).unwrap(), config);
        assert_eq!(parse(config.to_string()).unwrap(), config);
        assert!(config.warnings.is_empty());

        one_error("title A\nlinux a\nvlan 7", 3, "before the first entry");
        one_error("processors\ntitle A\nlinux a", 1, "processors needs");
        one_error("nic a\nnic a\ntitle A\nlinux a", 2, "a second nic");
    }

    #[test]
    fn what_concerns_the_program_may_stand_in_its_entry() {
        let text = "near-end 0\ntitle A\nefi a\nnetwork firmware\ntitle B\nnetwork wireboot\nnear-end x\nefi b\n";
        let config = parse(text).unwrap();
        let settings = |entry: &Entry| {
            let settings = entry.settings.iter();
            let words = settings.map(|setting| format!("{} {}", setting.key, setting.value));
            words.collect::<Vec<_>>()
        };
        assert_eq!(settings(&config.entries[0]), ["network firmware"]);
        assert_eq!(
            settings(&config.entries[1]),
            ["network wireboot", "near-end x"]
        );
        assert_eq!(config.settings.len(), 1);
        assert_eq!(parse(config.to_string()).unwrap(), config);
        let twice = "title A\nefi a\nnetwork firmware\nnetwork firmware";
        one_error(twice, 4, "a second network");
        one_error("title A\nefi a\nnetwork", 3, "network needs");
        let without = parse("title A\nefi a\ninitrd b").unwrap();
        assert!(without.entries[0].initrd.is_empty());
        let warned = without.warnings[0].to_string();
        assert!(warned.starts_with("line 1: initrd ignored"), "{warned}");
        one_error("title A\nefi a\nnic snp", 3, "before the first entry");
    }

    #[test]
    fn only_an_embedded_configuration_with_settings_may_lack_an_entry() {
        let text = "# How\nprocessors 2\n";
        let config = parse_embedded(text).unwrap();
        assert_eq!((config.settings.len(), config.entries.len()), (1, 0));
        assert_eq!(parse_embedded(config.to_string()).unwrap(), config);
        one_error(text, 1, "no entry");
        // Nothing, and what only entries can have.
        for text in ["", "nic snp\ndefault 1", "nic snp\ntimeout 3"] {
            let errors = parse_embedded(text).unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].reason.contains("no entry"), "{errors:?}");
        }
    }

    #[test]
    fn byte_order_mark_and_crlf() {
        let config = parse("\u{feff}title A\r\nlinux a\r\n").unwrap();
        assert_eq!(config.entries[0].title, "A");
        assert_eq!(config.entries[0].program, Program::Linux(file("a")));
        assert_eq!(config.timeout, None);
    }

    #[test]
    fn a_first_entry_may_lack_a_title_or_have_it_late() {
        assert_eq!(
            parse("linux http://s/boot/vmlinuz/").unwrap().entries[0].title,
            "vmlinuz"
        );
        assert_eq!(
            parse("efi a/b.efi\ntitle Late").unwrap().entries[0].title,
            "Late"
        );
        one_error("linux a\ntitle B\nlinux b", 3, "each entry");
    }

    #[test]
    fn default_by_number_or_title() {
        let entries = "title 2\nlinux a\ntitle B\nlinux b\ntitle C\nlinux c";
        let default = |value: &str| {
            parse(format!("default {value}\n{entries}"))
                .unwrap()
                .default
        };
        assert_eq!(default("1"), 0);
        assert_eq!(default("2"), 0, "a title is looked for first");
        assert_eq!(default("3"), 2);
        assert_eq!(default("B"), 1);
        assert_eq!(parse(entries).unwrap().default, 0);
        for bad in ["0", "4", "b", "-1", "Windows"] {
            one_error(
                &format!("\ndefault {bad}\n{entries}"),
                2,
                "neither the title",
            );
        }
    }

    #[test]
    fn errors_name_their_line() {
        one_error("", 1, "no entry");
        one_error("# nothing\n", 1, "no entry");
        one_error("title A\ninitrd x\n", 1, "neither linux nor efi");
        one_error("title A\nlinux a\nefi b", 3, "already has linux");
        one_error("title A\nlinux a\nlinux b", 3, "already has linux");
        one_error("title A\nlinux", 2, "linux needs a URL");
        one_error("title A\nlinux a b", 2, "%20");
        one_error("title A\nlinux a\ninitrd x y", 3, "%20");
        one_error("title\nlinux a", 1, "title needs");
        one_error("default\ntitle A\nlinux a", 1, "default needs");
        one_error(
            "default 1\ndefault 1\ntitle A\nlinux a",
            2,
            "second default",
        );
        one_error("timeout soon\ntitle A\nlinux a", 1, "\"soon\"");
        one_error("timeout -1\ntitle A\nlinux a", 1, "seconds");
        one_error(
            "timeout 1\ntimeout 1\ntitle A\nlinux a",
            2,
            "second timeout",
        );
        one_error("title A\nlinux a\ntimeout 3", 3, "before the first entry");
        one_error("title A\nlinux a\nsha256 12 a", 3, "64 hexadecimal");
        one_error(
            &format!("title A\nlinux a\nsha256 {} a", SUM.replace('f', "g")),
            3,
            "64 hexadecimal",
        );
        one_error(&format!("title A\nlinux a\nsha256 {SUM}"), 3, "needs a URL");
        one_error(
            &format!("title A\nsha256 {SUM} b\nlinux a"),
            2,
            "does not load",
        );
        let zeros = "0".repeat(64);
        one_error(
            &format!("title A\nsha256 {SUM} a\nsha256 {zeros} a\nlinux a"),
            3,
            "different",
        );
        // One file that the entry loads twice.
        one_error(
            &format!("title A\nlinux a\ninitrd a\nsha256 {SUM} a\nsha256 {zeros} a"),
            5,
            "different",
        );
        one_error("title A\u{1b}[2J\nlinux a", 1, "control");
        let errors = parse(b"title A\nlinux \xff").unwrap_err();
        assert_eq!(errors[0].to_string(), "line 2: not UTF-8 text");
    }

    #[test]
    fn several_errors_come_in_order_and_a_binary_file_gives_few() {
        let lines: Vec<_> = errors("default X\ntimeout x\ntitle A\ntitle B\nefi\n")
            .into_iter()
            .map(|e| e.0)
            .collect();
        assert_eq!(lines, [2, 3, 5]);
        let lines: Vec<_> = errors("title A\ninitrd\n").iter().map(|e| e.0).collect();
        assert_eq!(lines, [1, 2]);
        // Of one line in the order in which they were found.
        let reasons: Vec<_> = errors("title\n").into_iter().map(|e| e.1).collect();
        assert_eq!(reasons.len(), 2);
        assert!(reasons[0].contains("title needs") && reasons[1].contains("neither linux"));
        assert_eq!(parse(b"\0\n".repeat(1000)).unwrap_err().len(), MAX_ERRORS);
    }

    fn entries(count: usize) -> String {
        "title A\nlinux a\n".repeat(count)
    }

    #[test]
    fn what_one_text_may_hold_is_bounded() {
        assert_eq!(parse(entries(1000)).unwrap().entries.len(), 1000);
        let many = entries(60_000);
        // A default that stands beyond the end of what is read is no second error.
        for text in [many.clone(), format!("default 50000\n{many}")] {
            let line = 2001 + text.lines().count() - 120_000;
            one_error(&text, line, "more than 1000 entries");
        }
        let initrds = |count| format!("title A\nlinux a\n{}", "initrd b\n".repeat(count));
        assert_eq!(parse(initrds(100)).unwrap().entries[0].initrd.len(), 100);
        one_error(&initrds(101), 103, "more than 100 initrd");

        let title = "\u{e9}".repeat(200);
        let named = format!("title {title}\nlinux a");
        assert_eq!(parse(&named).unwrap().entries[0].title, title);
        one_error(&named.replace("title ", "title +"), 1, "200 characters");
        let derived = parse(format!("linux boot/+{title}")).unwrap();
        assert_eq!(derived.entries[0].title, format!("+{title}")[..399]);
    }

    #[test]
    fn a_text_that_is_too_long_is_not_read() {
        let mut text = entries(1);
        text.extend(core::iter::repeat_n('\n', MAX_LEN - text.len()));
        assert_eq!(parse(&text).unwrap().entries.len(), 1);
        assert!(parse(format!("\u{feff}{text}")).is_ok());
        text.push('\n');
        one_error(&text, 1, "it has 1048577 bytes");
    }

    #[test]
    fn many_warnings_end_in_one_that_says_so() {
        let text = format!("title A\nlinux a\n{}", "colour red\n".repeat(60_000));
        let warnings = parse(&text).unwrap().warnings;
        assert_eq!(warnings.len(), MAX_WARNINGS + 1);
        assert_eq!(
            warnings[19].to_string(),
            "line 22: unknown key \"colour\" ignored"
        );
        assert_eq!(
            warnings[20].to_string(),
            "line 23: more unknown keys ignored"
        );
    }

    proptest! {
        #[test]
        fn any_text(
            lines in prop::collection::vec((
                prop::sample::select(vec![
                    "title", "linux", "efi", "initrd", "options", "sha256", "default", "timeout", "processors",
                    "nic", "vlan", "card", "floor", "patience", "network", "near-end", "#", "sort-key", "x",
                ]),
                prop_oneof!["[a-c1-3 ]{0,4}", Just(format!("{SUM} a")), any::<String>()],
            ), 0..12),
        ) {
            let text: String = lines.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
            crate::fuzzing::fuzz_bootconf(text.as_bytes());
        }
    }
}
