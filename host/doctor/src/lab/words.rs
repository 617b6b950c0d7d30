//! The words for doctor.efi, looked at before a machine is booted with them.

use wireboot_report::words::{CHECKS, FLAGS, GROUPS, KEYS};

/// An examination as without words.
pub(super) const STANDARD: &str = "standard";

/// Takes words that doctor.efi knows. Their values it reads itself.
///
/// # Errors
/// With those that there are.
pub(super) fn known(text: &str) -> Result<String, String> {
    match text.split_whitespace().find(|word| !is_known(word)) {
        None => Ok(text.to_owned()),
        Some(wrong) => Err(format!(
            "doctor.efi knows no {wrong}; it has the checks {STANDARD} {} {}, and the options {} {}=",
            GROUPS.join(" "),
            CHECKS.join(" "),
            FLAGS.join(" "),
            KEYS.join("= ")
        )),
    }
}

fn is_known(word: &str) -> bool {
    match word.split_once('=') {
        Some((key, _)) => KEYS.contains(&key),
        None => word == STANDARD || [&GROUPS[..], &CHECKS, &FLAGS].concat().contains(&word),
    }
}

#[cfg(test)]
mod tests {
    use crate::lab::LabArgs;
    use clap::{Args, Command, error::ErrorKind};

    #[test]
    fn words_are_refused_before_anything_is_booted() {
        let read = |words: &[&str]| {
            let command = LabArgs::augment_args(Command::new("lab"));
            command.try_get_matches_from([&["lab"], words].concat())
        };
        assert!(
            read(&[
                "standard",
                "quick",
                "check",
                "trace",
                "hz=10",
                "udp",
                "server=a=b"
            ])
            .is_ok()
        );
        assert!(read(&["check cost"]).is_ok() && read(&[]).is_ok());
        // The last two are no examinations, and give no report.
        for wrong in ["fish", "hertz=10", "cost fish", "=", "ladder", "record"] {
            let refused = read(&["check", wrong]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ValueValidation);
            assert_eq!(refused.exit_code(), 2);
            let said = refused.to_string();
            assert!(said.contains(wrong) && said.contains("profile"), "{said}");
        }
    }
}
