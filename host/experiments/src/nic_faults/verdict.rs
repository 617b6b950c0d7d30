//! What became of a boot, by what the console shows.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use regex::Regex;
use serde::Serialize;

use super::guest::Guest;

/// A machine whose console shows nothing more for so long hangs. Firmware waits 60 s for an address.
pub(super) const QUIET: Duration = Duration::from_secs(90);

/// What became of a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// All came, and is right.
    Right,
    /// Bytes were taken for right that are wrong.
    WrongBytes,
    /// The guest told an error, and it or the firmware behind it goes on. The reason, or nothing where none is told.
    Error(String),
    /// Nothing more came on the console, twice.
    Hangs,
    /// The guest, or QEMU, ended or reported an exception.
    Crash,
}

impl Verdict {
    /// Whether no harm came of the fault but that it was told.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(self, Self::Right | Self::Error(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.write_str("right"),
            Self::WrongBytes => f.write_str("wrong bytes"),
            Self::Error(reason) if reason.is_empty() => f.write_str("error, goes on"),
            Self::Error(reason) => write!(f, "error, goes on: {reason}"),
            Self::Hangs => f.write_str("hangs"),
            Self::Crash => f.write_str("crash"),
        }
    }
}

/// Reads a guest's console.
pub(super) struct Judge {
    digests: Vec<String>,
    digest: Regex,
    crash: Regex,
    went_on: Regex,
    started: Option<Regex>,
    reason: Regex,
}

impl Judge {
    /// For a guest that tells these digests when all is right.
    ///
    /// # Errors
    /// None in practice.
    pub(super) fn new(guest: Guest, digests: &[String]) -> Result<Self> {
        Ok(Self {
            digests: digests.to_vec(),
            // As sha256sum tells it, a name behind. What a guest refuses has a digest in the error, too.
            digest: Regex::new(r"(?m)^([0-9a-f]{64})  ")?,
            crash: Regex::new(
                "X64 Exception Type|Kernel panic|BUG: |Oops: |general protection fault",
            )?,
            went_on: Regex::new(guest.went_on())?,
            started: guest.started().map(Regex::new).transpose()?,
            reason: Regex::new(guest.reason())?,
        })
    }

    /// The verdict of a boot that crashes or hangs: a program that came whole would have told its digest.
    pub(super) fn unless_started(&self, console: &str, verdict: Verdict) -> Verdict {
        let started = self.started.as_ref();
        match started.is_some_and(|started| started.is_match(console)) {
            true => Verdict::WrongBytes,
            false => verdict,
        }
    }

    /// The verdict by what the console shows so far; none while the boot goes on.
    pub(super) fn judge(&self, console: &str) -> Option<Verdict> {
        let told = || {
            let lines = self.digest.captures_iter(console);
            lines
                .filter_map(|line| line.get(1))
                .map(|digest| digest.as_str())
        };
        if told().any(|digest| self.digests.iter().all(|right| right != digest)) {
            return Some(Verdict::WrongBytes);
        }
        if self
            .digests
            .iter()
            .all(|right| told().any(|digest| digest == right))
        {
            return Some(Verdict::Right);
        }
        if self.crash.is_match(console) {
            return Some(self.unless_started(console, Verdict::Crash));
        }
        self.went_on.is_match(console).then(|| {
            let found = self.reason.captures(console);
            let reason = found.and_then(|found| found.iter().skip(1).flatten().next());
            Verdict::Error(
                reason
                    .map_or("", |reason| reason.as_str())
                    .trim()
                    .to_owned(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "1111111111111111111111111111111111111111111111111111111111111111";
    const TOO: &str = "2222222222222222222222222222222222222222222222222222222222222222";
    const WRONG: &str = "3333333333333333333333333333333333333333333333333333333333333333";

    fn of(guest: Guest, console: &str) -> Option<Verdict> {
        let digests = [RIGHT, TOO].map(str::to_owned);
        Judge::new(guest, &digests).unwrap().judge(console)
    }

    fn error(reason: &str) -> Option<Verdict> {
        Some(Verdict::Error(reason.to_owned()))
    }

    #[test]
    fn it_is_right_when_all_digests_have_come() {
        let one = format!("{RIGHT}  /one\n");
        assert_eq!(of(Guest::Linux, &one), None);
        let both = format!("{one}{TOO}  /two\n");
        assert_eq!(of(Guest::Linux, &both), Some(Verdict::Right));
        let end = format!("{both}faults: end\n");
        assert_eq!(of(Guest::Linux, &end), Some(Verdict::Right));
    }

    #[test]
    fn a_digest_that_is_none_of_the_files_is_of_wrong_bytes() {
        let console = format!("{RIGHT}  /one\n{WRONG}  /two\n{TOO}  /two\nfaults: end\n");
        assert_eq!(of(Guest::Linux, &console), Some(Verdict::WrongBytes));
    }

    #[test]
    fn what_is_refused_for_its_digest_is_an_error() {
        let console = format!(
            "wireboot: error: http://10.77.0.1/linux: wrong sha256: expected {RIGHT}, received {WRONG}\n\
             wireboot: the firmware goes on with its next boot option\n"
        );
        let reason = "http://10.77.0.1/linux: wrong sha256";
        assert_eq!(of(Guest::Wireboot, &console), error(reason));
    }

    #[test]
    fn a_part_is_an_error_when_the_guest_goes_on() {
        let console = format!("{RIGHT}  /one\nwget: not whole after 20 s\n");
        assert_eq!(of(Guest::Linux, &console), None);
        let console = console + "faults: end\n";
        assert_eq!(of(Guest::Linux, &console), error("not whole after 20 s"));
    }

    #[test]
    fn each_guest_has_its_own_words() {
        for (guest, console, reason) in [
            (
                Guest::Ovmf,
                "  PXE-E18: Server response timeout.\nBdsDxe: failed to load Boot0001 \"UEFI PXEv4 (MAC:52)\" from Pci: Not Found\n",
                "PXE-E18",
            ),
            (
                Guest::Ipxe,
                "digest.efi... Connection timed out (http://ipxe.org/4c0a6035)\nfaults: end\n",
                "ipxe.org/4c0a6035",
            ),
            (
                Guest::Grub,
                "error: couldn't autoconfigure efinet0.\nerror: destination unreachable.\nfaults: end\n",
                "couldn't autoconfigure efinet0.",
            ),
            (
                Guest::Linux,
                "[    9.05] virtio_net virtio1: input.0:id 0 is not a head!\nwget: not whole after 20 s\nfaults: end\n",
                "input.0:id 0 is not a head!",
            ),
        ] {
            assert_eq!(of(guest, console), error(reason), "{console}");
            let (before, _) = console.rsplit_once("BdsDxe").unwrap_or((console, ""));
            let before = before.replace("faults: end", "");
            assert_eq!(of(guest, &before), None, "{before}");
        }
    }

    #[test]
    fn a_program_that_is_started_and_tells_no_digest_has_wrong_bytes() {
        for (guest, console) in [
            (
                Guest::Ovmf,
                "  NBP file downloaded successfully.\nWelcome to GRUB!\nrelocation 0x10001 is not implemented yet\n",
            ),
            (
                Guest::Ipxe,
                "http://10.77.0.1/digest.efi... 15%  83%  ok\nWelcome to GRUB!\n",
            ),
        ] {
            let judge = Judge::new(guest, &[RIGHT.to_owned()]).unwrap();
            assert_eq!(judge.judge(console), None);
            assert_eq!(
                judge.unless_started(console, Verdict::Hangs),
                Verdict::WrongBytes
            );
            let crashed = format!("{console}!!!! X64 Exception Type - 06(#UD)\n");
            assert_eq!(judge.judge(&crashed), Some(Verdict::WrongBytes));
            let before = console.replace("success", "").replace(" ok", "");
            assert_eq!(
                judge.unless_started(&before, Verdict::Hangs),
                Verdict::Hangs
            );
        }
    }

    #[test]
    fn an_exception_is_a_crash_whoever_goes_on() {
        for line in [
            "!!!! X64 Exception Type - 0D(#GP - General Protection)",
            "Kernel panic - not syncing: no init",
        ] {
            let console = format!("{line}\nfaults: end\n");
            assert_eq!(of(Guest::Grub, &console), Some(Verdict::Crash));
        }
    }
}
