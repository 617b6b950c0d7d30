//! Every figure of the documents, measured anew into `docs/results/`, all by programs of one commit.

mod contents;

use crate::{apt, build, shell};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A measurement. What it prints goes to `docs/results/NAME.txt`.
struct Measurement {
    name: &'static str,
    program: Program,
    /// The other files that it can write, `NAME.` and this.
    files: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum Program {
    /// `wireboot` with these arguments.
    Wireboot(&'static str),
    /// An example of a package of ours, which needs one of its features.
    Example {
        package: &'static str,
        feature: &'static str,
        name: &'static str,
    },
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wireboot(arguments) => write!(formatter, "wireboot {arguments}"),
            Self::Example { package, name, .. } => write!(formatter, "{name} of {package}"),
        }
    }
}

/// In the order in which they run.
const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "boot",
        program: Program::Wireboot("lab boot"),
        files: &["json", "svg"],
    },
    Measurement {
        name: "snp-instructions",
        program: Program::Wireboot("lab ladder --phases --instructions --rounds 3 --ms 300"),
        files: &["json"],
    },
    Measurement {
        name: "snp-phases",
        program: Program::Wireboot("lab ladder --phases --rounds 9"),
        files: &["json"],
    },
    Measurement {
        name: "ladder-ipv4",
        program: Program::Wireboot("lab ladder"),
        files: &["json", "svg"],
    },
    Measurement {
        name: "ladder-loaders",
        program: Program::Wireboot("lab ladder --only driver,wireboot,ours --rounds 5"),
        files: &["json"],
    },
    Measurement {
        name: "ladder-ipv6",
        program: Program::Wireboot("lab ladder --ip 6"),
        files: &["json", "svg"],
    },
    Measurement {
        name: "engines",
        program: Program::Wireboot("lab ladder --processors 0,1,2,4 --only engine --rounds 9"),
        files: &["json", "svg"],
    },
    Measurement {
        name: "bench-ipv4",
        program: Program::Wireboot("lab bench --sizes 64 --rounds 3"),
        files: &["json", "svg", "md"],
    },
    Measurement {
        name: "bench-ipv6",
        program: Program::Wireboot("lab bench --sizes 64 --rounds 3 --ip 6"),
        files: &["json", "svg", "md"],
    },
    Measurement {
        name: "first-byte",
        program: Program::Wireboot(
            "lab bench --first-byte --only wireboot-http,ovmf-http,ovmf-new-http,ipxe --rounds 5",
        ),
        files: &["json", "md"],
    },
    Measurement {
        name: "loaders",
        program: Program::Wireboot("lab loaders --without-near-end --cold"),
        files: &["json", "svg", "md"],
    },
    Measurement {
        name: "nic",
        program: Program::Wireboot("lab nic"),
        files: &["json", "svg", "md"],
    },
    Measurement {
        name: "nic-instructions",
        program: Program::Example {
            package: "wireboot-host-card",
            feature: "counting",
            name: "nic-instructions",
        },
        files: &["json", "md"],
    },
    Measurement {
        name: "nic-faults",
        program: Program::Wireboot("lab nic-faults"),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-checkpoints",
        program: Program::Wireboot("lab checkpoints"),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-accuracy",
        program: Program::Wireboot("doctor accuracy"),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-faults",
        program: Program::Wireboot("doctor faults"),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-named",
        program: Program::Wireboot("doctor faults --named"),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-boots",
        program: Program::Wireboot("doctor lab boot runs=3"),
        files: &["json"],
    },
    Measurement {
        name: "doctor-cost",
        program: Program::Wireboot("doctor lab cost calls=1000000"),
        files: &["json"],
    },
    Measurement {
        name: "doctor-dma",
        program: Program::Wireboot("doctor lab dma"),
        files: &["json"],
    },
    Measurement {
        name: "doctor-trace",
        program: Program::Wireboot("doctor lab trace profile"),
        files: &["json"],
    },
    Measurement {
        name: "doctor-sweep",
        program: Program::Wireboot("doctor lab sweep rounds=3"),
        files: &["json"],
    },
    // 201 MB, as in Intel's table.
    Measurement {
        name: "doctor-201mb-ipv4",
        program: Program::Wireboot(
            "lab bench --sizes 192 --only ovmf-tftp,wireboot-tftp,ipxe-bios-tftp --rounds 3",
        ),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-201mb-ipv6",
        program: Program::Wireboot(
            "lab bench --sizes 192 --only ovmf-tftp,wireboot-tftp --rounds 3 --ip 6",
        ),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-window-4-ipv4",
        program: Program::Wireboot("doctor lab sweep file=192-mib block=1456 window=4 rounds=3"),
        files: &["json"],
    },
    Measurement {
        name: "doctor-window-50-ipv4",
        program: Program::Wireboot("doctor lab sweep file=192-mib block=1456 window=50 rounds=3"),
        files: &["json"],
    },
    Measurement {
        name: "doctor-window-4-ipv6",
        program: Program::Wireboot(
            "doctor lab sweep file=192-mib block=1448 window=4 rounds=3 --ip 6",
        ),
        files: &["json"],
    },
    Measurement {
        name: "doctor-window-50-ipv6",
        program: Program::Wireboot(
            "doctor lab sweep file=192-mib block=1448 window=50 rounds=3 --ip 6",
        ),
        files: &["json"],
    },
    Measurement {
        name: "doctor-time-per-packet",
        program: Program::Wireboot("doctor lab trace --fault slow-time"),
        files: &["json"],
    },
    Measurement {
        name: "doctor-iperf3",
        program: Program::Wireboot("lab throughput"),
        files: &["json", "md"],
    },
    Measurement {
        name: "doctor-ttcp",
        program: Program::Wireboot("lab ttcp"),
        files: &["json", "md"],
    },
    Measurement {
        name: "load-one-tftp",
        program: Program::Wireboot("lab load --clients 1 --rounds 9 --seconds 10"),
        files: &["json"],
    },
    Measurement {
        name: "load-200-tftp",
        program: Program::Wireboot("lab load --clients 200 --rounds 1 --seconds 400"),
        files: &["json"],
    },
    Measurement {
        name: "load-http",
        program: Program::Wireboot("lab load --server http --clients 1,50 --rounds 9"),
        files: &["json"],
    },
];

/// The measurement of this name, else all whose names contain the word.
fn meant_by(word: &str) -> Result<Vec<&'static Measurement>> {
    if let Some(one) = MEASUREMENTS.iter().find(|one| one.name == word) {
        return Ok(vec![one]);
    }
    let meant: Vec<_> = MEASUREMENTS
        .iter()
        .filter(|one| one.name.contains(word))
        .collect();
    if meant.is_empty() {
        let names: Vec<_> = MEASUREMENTS.iter().map(|one| one.name).collect();
        bail!(
            "no measurement is called {word}; there are {}",
            names.join(", ")
        );
    }
    Ok(meant)
}

/// What the words mean, each once; all, if there is no word.
fn wanted(words: &[String]) -> Result<Vec<&'static Measurement>> {
    if words.is_empty() {
        return Ok(MEASUREMENTS.iter().collect());
    }
    let mut wanted: Vec<&Measurement> = Vec::new();
    for one in words.iter().map(|word| meant_by(word)) {
        wanted.extend(one?);
    }
    let is_wanted = |one: &&Measurement| wanted.iter().any(|wanted| wanted.name == one.name);
    Ok(MEASUREMENTS.iter().filter(is_wanted).collect())
}

/// Measures what the words mean. One that fails does not stop the others.
pub(crate) fn run(only: &[String]) -> Result<()> {
    let wanted = wanted(only)?;
    ensure!(
        shell::is_root(),
        "most measurements need root: `sudo make results`"
    );
    apt::ensure(apt::COUNTING)?;
    if wanted
        .iter()
        .any(|one| matches!(one.program, Program::Wireboot(_)))
    {
        apt::ensure(&[apt::BOOT, apt::BENCH, apt::EMBEDDING, apt::SERVERS].concat())?;
        build::all()?;
    }
    if wanted.iter().any(|one| one.name == "nic") {
        apt::ensure(apt::DPDK)?;
    }
    // Whoever commits while it measures changes no program.
    let commit = build::commit();
    let mut failed = Vec::new();
    for one in wanted {
        println!("\n== {}", one.name);
        let start = Instant::now();
        let measured = measure(one);
        let seconds = start.elapsed().as_secs_f64();
        println!("{seconds:.0} s");
        let is_good = measured.is_ok().then_some(seconds);
        let noted = contents::note(one, MEASUREMENTS, &commit, is_good);
        if let Err(error) = measured.and(noted) {
            println!("{error:#}");
            failed.push(one.name);
        }
    }
    if !failed.is_empty() {
        bail!("no results of {}", failed.join(", "));
    }
    Ok(())
}

fn measure(one: &Measurement) -> Result<()> {
    let text = format!("docs/results/{}.txt", one.name);
    let output = File::create(shell::root().join(&text)).context(text)?;
    let mut command = command(one);
    let status = command.stdout(Stdio::from(output)).status();
    let status = status.with_context(|| format!("starting {command:?}"))?;
    // An examination that has found something.
    let examines = matches!(one.program, Program::Wireboot(line) if line.starts_with("doctor "));
    let found = examines && status.code() == Some(1);
    if status.success() || found {
        return Ok(());
    }
    bail!("{status}: {command:?}");
}

fn command(one: &Measurement) -> Command {
    let mut command = match one.program {
        Program::Wireboot(arguments) => {
            let mut command = shell::command(shell::root().join("dist/wireboot"));
            command.args(arguments.split(' '));
            command
        }
        Program::Example {
            package,
            feature,
            name,
        } => {
            let mut cargo = shell::cargo();
            // As in the command's build: results tell what they were measured with.
            cargo.env("WIREBOOT_COMMIT", build::commit());
            cargo.args(["run", "--release", "--quiet", "--package", package]);
            cargo.args(["--features", feature, "--example", name, "--"]);
            cargo
        }
    };
    for file in one.files {
        let option = match *file {
            "svg" => "--plot",
            "md" => "--markdown",
            _ => "--json",
        };
        command
            .arg(option)
            .arg(format!("docs/results/{}.{file}", one.name));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_asked_for_by_its_option() {
        let one = Measurement {
            name: "x",
            program: Program::Wireboot("lab bench --ip 6"),
            files: &["json", "svg", "md"],
        };
        let arguments: Vec<_> = command(&one)
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            arguments.join(" "),
            "lab bench --ip 6 --json docs/results/x.json --plot docs/results/x.svg --markdown docs/results/x.md"
        );
    }

    fn names(words: &[&str]) -> Vec<&'static str> {
        let words: Vec<_> = words.iter().copied().map(String::from).collect();
        let wanted = wanted(&words).unwrap();
        wanted.iter().map(|one| one.name).collect()
    }

    #[test]
    fn a_whole_name_means_that_one_alone() {
        assert_eq!(names(&["boot"]), ["boot"]);
        assert_eq!(names(&["bench-"]), ["bench-ipv4", "bench-ipv6"]);
        assert_eq!(
            names(&["bench-ipv6", "bench-", "boot"]),
            ["boot", "bench-ipv4", "bench-ipv6"]
        );
        assert_eq!(names(&[]).len(), MEASUREMENTS.len());
    }

    #[test]
    fn a_word_that_means_nothing_is_an_error() {
        let words = ["boot", "bench-ipv5"].map(String::from);
        let error = wanted(&words).err().unwrap();
        assert!(error.to_string().contains("called bench-ipv5; there are"));
    }

    #[test]
    fn no_two_write_the_same_files() {
        let mut names: Vec<_> = MEASUREMENTS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MEASUREMENTS.len());
    }
}
