//! Where the tree is, and commands that show themselves before they run.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the source tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the tree")
}

/// Where cargo puts what it builds: `CARGO_TARGET_DIR`, else `target/`.
pub(crate) fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// What outlives a `make clean`: `$XDG_CACHE_HOME/wireboot`, else `~/.cache/wireboot`.
pub(crate) fn cache_directory() -> PathBuf {
    match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) if Path::new(&cache).is_absolute() => {
            PathBuf::from(cache).join("wireboot")
        }
        (_, Some(home)) => PathBuf::from(home).join(".cache/wireboot"),
        _ => root().join(".cache"),
    }
}

/// Where cargo keeps what it fetched: `CARGO_HOME`, else `~/.cargo`.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// A command that runs in the root of the tree.
pub(crate) fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(root());
    command
}

/// Whether the user is root.
pub(crate) fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id == "0")
}

/// A command in the root of the tree, through sudo where the user is not root. Of the environment, it has `DEBIAN_FRONTEND`.
pub(crate) fn as_root(program: impl Into<OsString>) -> Command {
    if is_root() {
        return command(program);
    }
    let mut command = command("sudo");
    command
        .arg("--preserve-env=DEBIAN_FRONTEND")
        .arg(program.into());
    command
}

/// The cargo that runs xtask.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Shows the command, runs it and fails unless it exits with 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    run_to(command, &[0])
}

/// Shows the command, runs it and fails unless it exits with one of these codes.
pub(crate) fn run_to(command: &mut Command, codes: &[i32]) -> Result<()> {
    let line = line(command);
    println!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start: {line}"))?;
    if !status.code().is_some_and(|code| codes.contains(&code)) {
        bail!("{status}: {line}");
    }
    Ok(())
}

/// The same beside others: what it prints is shown in one piece at its end.
pub(crate) fn run_beside(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("$ {line}");
    let output = command
        .output()
        .with_context(|| format!("cannot start: {line}"))?;
    let text = [output.stderr, output.stdout].concat();
    println!("of {line}:\n{}", String::from_utf8_lossy(&text));
    if !output.status.success() {
        bail!("{}: {line}", output.status);
    }
    Ok(())
}

/// Runs the command out of sight and tells whether it exited with 0.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// What the command writes to its standard output, without the last line's end. Fails unless it exits with 0.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start: {line}"))?;
    if !output.status.success() {
        bail!(
            "{}: {line}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}

/// The command as one would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let mut line = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
