//! What to do: the text of the section or of the load options.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The loader whose calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
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
    EndWithin,
    LeaveOpen,
    Start,
    Exit,
}

const COMMANDS: [(&str, Command); 24] = [
    ("openbsd", Command::OpenBsd),
    ("esxi-tftp", Command::Esxi),
    ("limine", Command::Limine),
    ("netbsd", Command::NetBsd),
    ("shim", Command::Shim),
    ("wds", Command::Wds),
    ("freebsd-snp", Command::FreeBsdSnp),
    ("esxi-http", Command::EsxiHttp),
    ("grub-http", Command::GrubHttp),
    ("shim-http", Command::ShimHttp),
    ("freebsd-http", Command::FreeBsdHttp),
    ("set-ip", Command::SetIp),
    ("show-ip", Command::ShowIp),
    ("load-file", Command::LoadFile),
    ("no-link", Command::NoLink),
    ("drivers-stay", Command::DriversStay),
    ("statuses", Command::Statuses),
    ("connect", Command::Connect),
    ("disconnect", Command::Disconnect),
    ("hand-over", Command::HandOver),
    ("end-within", Command::EndWithin),
    ("leave-open", Command::LeaveOpen),
    ("start", Command::Start),
    ("exit", Command::Exit),
];

impl Command {
    pub(crate) fn name(self) -> &'static str {
        let mut commands = COMMANDS.iter();
        commands
            .find(|(_, command)| *command == self)
            .map_or("", |(name, _)| name)
    }
}

/// A command and its file: a name on the boot server, or a URL for HTTP; settings for `set-ip`; empty for `statuses`, `drivers-stay` and
/// `exit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub command: Command,
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
            let found = COMMANDS.iter().find(|(known, _)| *known == name);
            let &(_, command) = found.ok_or_else(|| line.to_string())?;
            let alone = matches!(
                command,
                Command::Statuses | Command::DriversStay | Command::Exit
            );
            if alone != file.is_empty() {
                return Err(line.to_string());
            }
            let file = file.trim().to_string();
            Ok(Job { command, file })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_and_its_file() {
        let jobs = parse("openbsd a/b\n\n statuses ; shim c").unwrap();
        let told: Vec<_> = jobs
            .iter()
            .map(|job| (job.command, job.file.as_str()))
            .collect();
        let wanted = [
            (Command::OpenBsd, "a/b"),
            (Command::Statuses, ""),
            (Command::Shim, "c"),
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
