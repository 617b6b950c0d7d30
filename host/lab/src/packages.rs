//! Debian packages: those installed here, and others, which are not to be installed.
//!
//! The others are fetched by apt with a configuration of its own (from the mirror that this machine uses, checked by the same
//! keys) and taken apart in the user's cache. The system's own sources and packages stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cache;

/// A package whose files are at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The whole version, as Debian writes it.
    pub version: String,
    /// The directory under which its files lie: `/` for an installed package.
    pub root: PathBuf,
}

impl Package {
    /// The package as it is installed.
    ///
    /// # Errors
    /// When it is not.
    pub fn installed(name: &str) -> Result<Self> {
        let version = output(Command::new("dpkg-query").args([
            "--show",
            "--showformat=${db:Status-Status} ${Version}",
            name,
        ]))
        .ok()
        .and_then(|text| text.strip_prefix("installed ").map(str::to_owned));
        let version =
            version.with_context(|| format!("{name} is not installed: apt install {name}"))?;
        Ok(Self {
            version,
            root: "/".into(),
        })
    }

    /// The package that [`fetch`] left in the cache.
    ///
    /// # Errors
    /// When there is none.
    pub fn fetched(name: &str) -> Result<Self> {
        let directory = directory()?.join(name);
        let version = fs::read_to_string(directory.join(NEWEST)).with_context(|| {
            format!(
                "no {name} in {}: it could not be fetched",
                directory.display()
            )
        })?;
        Ok(Self {
            root: directory.join(&version),
            version,
        })
    }

    /// The first of `paths`, relative to the package's root, that is there.
    ///
    /// # Errors
    /// When none is.
    pub fn file(&self, paths: &[&str]) -> Result<PathBuf> {
        let found = paths
            .iter()
            .map(|path| self.root.join(path))
            .find(|path| path.is_file());
        found.with_context(|| format!("none of {} under {}", paths.join(", "), self.root.display()))
    }
}

/// The file that holds the version of the newest package fetched.
const NEWEST: &str = "newest";

/// Fetches packages into the cache, unless it holds them and got them less than `lifetime` ago. Of Debian's `suites`, the first
/// that the mirror has serves. Wants the host's network, so call it outside the lab's namespaces.
///
/// # Errors
/// When they are not to be had; what the cache holds already stays.
pub fn fetch(names: &[&str], suites: &[&str], lifetime: Duration) -> Result<()> {
    let directory = directory()?;
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !younger(&directory.join(name).join(NEWEST), lifetime))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mirror = Mirror::of_this_system()?;
    let mut reason = None;
    for suite in suites {
        match Apt::new(&directory, &mirror, suite).and_then(|apt| {
            missing
                .iter()
                .try_for_each(|name| apt.take(name, &directory))
        }) {
            Ok(()) => return Ok(()),
            Err(error) => {
                log::info!("{suite}: {error:#}");
                reason.get_or_insert(error);
            }
        }
    }
    Err(reason.context("no suite to fetch from")?)
        .with_context(|| format!("fetching packages from {}", mirror.uri))
}

fn directory() -> Result<PathBuf> {
    Ok(cache::directory()?.join("packages"))
}

fn younger(file: &Path, lifetime: Duration) -> bool {
    let age = fs::metadata(file)
        .and_then(|data| data.modified())
        .ok()
        .and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age < lifetime)
}

/// Where this system gets Debian from.
#[derive(Debug, PartialEq, Eq)]
struct Mirror {
    uri: String,
}

/// Debian's keys, where its package debian-archive-keyring puts them.
const KEYS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

impl Mirror {
    fn of_this_system() -> Result<Self> {
        let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
        let targets = output(Command::new("apt-get").args([
            "indextargets",
            "--format",
            format,
            "Identifier: Packages",
        ]))?;
        let system = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
        let codename = system
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .unwrap_or_default();
        Self::among(&targets, codename).with_context(|| {
            format!("apt has no source for Debian's {codename} main, so its mirror is not known (apt-get indextargets shows the sources)")
        })
    }

    /// `targets`: lines of URI, release and component.
    fn among(targets: &str, codename: &str) -> Option<Self> {
        targets.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let (uri, release, component) = (words.next()?, words.next()?, words.next()?);
            let wanted = component == "main" && (release == codename || release == "stable");
            wanted.then(|| Self {
                uri: uri.to_owned(),
            })
        })
    }
}

/// An apt with state, sources and downloads of its own.
struct Apt {
    directory: PathBuf,
    options: Vec<String>,
}

impl Apt {
    /// Makes its directories and reads the suite's index.
    fn new(parent: &Path, mirror: &Mirror, suite: &str) -> Result<Self> {
        let directory = parent.join("apt").join(suite);
        for part in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(part))
                .with_context(|| format!("making {}", directory.display()))?;
        }
        // Without the file, the keys that apt trusts anyway.
        let keys = KEYS.into_iter().find(|file| Path::new(file).is_file());
        let signed = keys
            .map(|file| format!("[signed-by={file}] "))
            .unwrap_or_default();
        fs::write(
            directory.join("sources.list"),
            format!("deb {signed}{} {suite} main\n", mirror.uri),
        )?;
        fs::write(directory.join("status"), "")?;
        let place = |key: &str, part: &str| format!("{key}={}", directory.join(part).display());
        let options = vec![
            place("Dir::State", "state"),
            place("Dir::State::status", "status"),
            place("Dir::Cache", "cache"),
            place("Dir::Etc::sourcelist", "sources.list"),
            "Dir::Etc::sourceparts=/dev/null".into(),
            "Dir::Etc::preferences=/dev/null".into(),
            "Dir::Etc::preferencesparts=/dev/null".into(),
            "APT::Architecture=amd64".into(),
            "APT::Architectures::=amd64".into(),
            // The cache belongs to the user, so apt's own user could not write there.
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "Acquire::Retries=2".into(),
            // Otherwise an unreachable mirror is a mere warning, and the package not found.
            "APT::Update::Error-Mode=any".into(),
        ];
        let apt = Self { directory, options };
        output(apt.command().arg("update"))?;
        Ok(apt)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
            .arg("-q")
            .env("LC_ALL", "C")
            .current_dir(&self.directory);
        command
    }

    /// Fetches the package and takes it apart at `destination/NAME/VERSION`.
    fn take(&self, name: &str, destination: &Path) -> Result<()> {
        let archive = self.download(name)?;
        let version = field(&archive, "Version")?;
        let root = destination.join(name).join(&version);
        let what = || format!("taking apart {name} {version}");
        fs::create_dir_all(&root).with_context(what)?;
        output(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(&archive)
                .arg(&root),
        )
        .with_context(what)?;
        // A package may be the mere head of a family: ovmf of ovmf-generic and others, a kernel's package of that of one release.
        for member in family(name, &field(&archive, "Depends")?) {
            let archive = self.download(&member)?;
            output(
                Command::new("dpkg-deb")
                    .arg("--extract")
                    .arg(&archive)
                    .arg(&root),
            )
            .with_context(what)?;
        }
        fs::write(destination.join(name).join(NEWEST), &version).with_context(what)
    }

    fn download(&self, name: &str) -> Result<PathBuf> {
        // apt names the file after package and version; alone in its directory it is easily found.
        let directory = self.directory.join("downloads").join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        output(
            self.command()
                .args(["download", name])
                .current_dir(&directory),
        )?;
        let file = fs::read_dir(&directory)?
            .next()
            .with_context(|| format!("apt-get download {name} left no file"))??;
        Ok(file.path())
    }
}

fn field(archive: &Path, name: &str) -> Result<String> {
    output(
        Command::new("dpkg-deb")
            .arg("--field")
            .arg(archive)
            .arg(name),
    )
    .map(|text| text.trim().to_owned())
}

/// The packages among `depends` whose names continue `name`, or that are wanted in one version.
fn family(name: &str, depends: &str) -> Vec<String> {
    let member = |dependency: &str| {
        let member = dependency.split_whitespace().next()?;
        let rest = member.strip_prefix(name);
        let continues = rest.is_some_and(|rest| rest.starts_with('-'));
        (continues || dependency.contains("(= ")).then(|| member.to_owned())
    };
    depends.split(',').filter_map(member).collect()
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let why: Vec<_> = text.lines().filter(|line| line.starts_with("E:")).collect();
        bail!(
            "{} failed: {}",
            command.get_program().display(),
            if why.is_empty() {
                text.trim().to_owned()
            } else {
                why.join(" ")
            }
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_that_of_the_release_not_of_others() {
        let targets = "https://tools.example/apt node main\n\
                       http://mirror.example/debian-security/ bookworm-security main\n\
                       http://mirror.example/debian/ bookworm contrib\n\
                       http://mirror.example/debian/ bookworm main\n";
        let found = Mirror::among(targets, "bookworm");
        assert_eq!(
            found,
            Some(Mirror {
                uri: "http://mirror.example/debian/".into()
            })
        );
        assert_eq!(Mirror::among(targets, "trixie"), None);
    }

    #[test]
    fn family_is_told_by_name_or_version() {
        assert_eq!(
            family("ovmf", "ovmf-amdsev, ovmf-generic (>= 1) | x, ovmfx, libc6"),
            ["ovmf-amdsev", "ovmf-generic"]
        );
        assert_eq!(
            family(
                "linux-image-x",
                "linux-image-6.1-x (= 6.1.1-1), libc6 (>= 2)"
            ),
            ["linux-image-6.1-x"]
        );
        assert_eq!(family("ipxe", ""), Vec::<String>::new());
    }
}
