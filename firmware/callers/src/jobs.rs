//! What to do: the text of the section or of the load options.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The loader whose calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    OpenBsd,
    Esxi,
    Limine,
    NetBsd,
    Shim,
    Wds,
    FreeBsdSnp,
    EsxiHttp,
    GrubHttp,
    ShimHttp,
    FreeBsdHttp,
    /// Not a loader: sets the interface as the firmware's menu does, `ADDRESS/PREFIX GATEWAY DNS`.
    SetIp,
    /// Not a loader: tells how it is set, `4` or `6`.
    ShowIp,
    LoadFile,
    /// Not a loader: calls while the card has no link, which somebody takes away and gives back.
    NoLink,
    /// Not a file: drivers that must not be disconnected.
    DriversStay,
    /// Not a loader: the tables of statuses of the specification.
    Statuses,
    /// Nor these: what programs do beside a loader's network, and what they leave.
    Connect,
    Disconnect,
    HandOver,
    LeaveOpen,
    Start,
    Exit,
}

const VERBS: [(&str, Verb); 23] = [
    ("openbsd", Verb::OpenBsd),
    ("esxi-tftp", Verb::Esxi),
    ("limine", Verb::Limine),
    ("netbsd", Verb::NetBsd),
    ("shim", Verb::Shim),
    ("wds", Verb::Wds),
    ("freebsd-snp", Verb::FreeBsdSnp),
    ("esxi-http", Verb::EsxiHttp),
    ("grub-http", Verb::GrubHttp),
    ("shim-http", Verb::ShimHttp),
    ("freebsd-http", Verb::FreeBsdHttp),
    ("set-ip", Verb::SetIp),
    ("show-ip", Verb::ShowIp),
    ("load-file", Verb::LoadFile),
    ("no-link", Verb::NoLink),
    ("drivers-stay", Verb::DriversStay),
    ("statuses", Verb::Statuses),
    ("connect", Verb::Connect),
    ("disconnect", Verb::Disconnect),
    ("hand-over", Verb::HandOver),
    ("leave-open", Verb::LeaveOpen),
    ("start", Verb::Start),
    ("exit", Verb::Exit),
];

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        let mut verbs = VERBS.iter();
        verbs
            .find(|(_, verb)| *verb == self)
            .map_or("", |(name, _)| name)
    }
}

/// A verb and its file: a name on the boot server, or a URL for HTTP; settings for `set-ip`; empty for `statuses`, `drivers-stay` and `exit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub verb: Verb,
    pub file: String,
}

/// # Errors
/// The job that is not understood.
pub(crate) fn parse(text: &str) -> Result<Vec<Job>, String> {
    let lines = text.split(['\n', ';']).map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, file) = line.split_once(' ').unwrap_or((line, ""));
            let found = VERBS.iter().find(|(known, _)| *known == name);
            let &(_, verb) = found.ok_or_else(|| line.to_string())?;
            let alone = matches!(verb, Verb::Statuses | Verb::DriversStay | Verb::Exit);
            if alone != file.is_empty() {
                return Err(line.to_string());
            }
            let file = file.trim().to_string();
            Ok(Job { verb, file })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_verb_and_its_file() {
        let jobs = parse("openbsd a/b\n\n statuses ; shim c").unwrap();
        let told: Vec<_> = jobs
            .iter()
            .map(|job| (job.verb, job.file.as_str()))
            .collect();
        let wanted = [
            (Verb::OpenBsd, "a/b"),
            (Verb::Statuses, ""),
            (Verb::Shim, "c"),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for wrong in ["openbsd", "plan9 a", "statuses a", "exit a"] {
            assert_eq!(parse(wrong), Err(wrong.to_string()));
        }
    }
}
