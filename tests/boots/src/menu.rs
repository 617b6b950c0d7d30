//! The user at the keyboard, mostly that of a serial terminal: choosing from the menu, and Esc.

use anyhow::{Result, ensure};
use regex::Regex;
use wireboot_lab::netns::Lab;
use wireboot_lab::qemu::RunningMachine;

use crate::fixture::{Fixture, expect};
use crate::system;

// What a serial terminal sends for these keys.
const UP: &str = "\x1b[A";
const DOWN: &str = "\x1b[B";
const ENTER: &str = "\r";
const ESC: &str = "\x1b";

/// Three entries that differ in what they tell the kernel.
fn configure(fixture: &Fixture<'_>, globals: &str) -> Result<()> {
    let mut text = globals.to_owned();
    for name in ["first", "second", "third"] {
        text += &format!(
            "\ntitle The {name} system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} entry={name}\n",
            system::OPTIONS
        );
    }
    fixture.system.configure(&text)
}

/// The line below the entries: which is chosen, and in which time it will start.
fn chosen(machine: &mut RunningMachine, entry: &str, count: &str) -> Result<()> {
    expect(
        machine,
        &format!(r"wireboot: {entry} system{count} \(number, arrows, Enter; Esc leaves\)"),
    )
    .map(drop)
}

/// The entries are on the screen.
fn shows_entries(machine: &mut RunningMachine) -> Result<()> {
    expect(machine, r"  1  The first system\s")?;
    expect(machine, r"  2  The second system\s")?;
    expect(machine, r"  3  The third system\s").map(drop)
}

/// The entry called `name` starts.
fn starts(machine: &mut RunningMachine, name: &str) -> Result<()> {
    expect(machine, &format!("wireboot: booting \"The {name} system\"")).map(drop)
}

/// The same, and the kernel has its options.
fn boots(machine: &mut RunningMachine, name: &str) -> Result<()> {
    starts(machine, name)?;
    expect(machine, &format!("boots: arguments .*entry={name}")).map(drop)
}

pub(crate) fn arrows_and_enter_choose(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    configure(&fixture, "timeout 60\n")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    shows_entries(&mut machine)?;
    chosen(&mut machine, "1 The first", r" in \d+ s")?;
    // The last entry is the end, and the first key stops the count.
    for (key, entry) in [
        (DOWN, "2 The second"),
        (DOWN, "3 The third"),
        (UP, "2 The second"),
    ] {
        machine.console.send(key)?;
        chosen(&mut machine, entry, "")?;
    }
    machine.console.send(ENTER)?;
    boots(&mut machine, "second")
}

pub(crate) fn digit_chooses_at_once(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    configure(&fixture, "timeout 60\n")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    chosen(&mut machine, "1 The first", r" in \d+ s")?;
    machine.console.send("3")?;
    starts(&mut machine, "third")
}

pub(crate) fn time_out_starts_the_default(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    configure(&fixture, "default 2\ntimeout 4\n")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    shows_entries(&mut machine)?;
    chosen(&mut machine, "2 The second", r" in \d+ s")?;
    // Noise on the line is no choice.
    machine.console.send("x")?;
    starts(&mut machine, "second")?;
    // A busy machine may leave out a second.
    let transcript = machine.console.transcript();
    let counts: Vec<&str> = Regex::new(r" in (\d) s \(number")?
        .captures_iter(&transcript)
        .filter_map(|captures| Some(captures.get(1)?.as_str()))
        .collect();
    ensure!(
        counts.len() > 1 && counts.is_sorted_by(|one, next| one > next),
        "no time ran down: {counts:?}"
    );
    Ok(())
}

pub(crate) fn esc_leaves_the_menu(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    configure(&fixture, "timeout 60\n")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    chosen(&mut machine, "1 The first", r" in \d+ s")?;
    machine.console.send(ESC)?;
    fixture.fails(&mut machine, &["wireboot: .*stopped by Esc"])?;
    fixture.goes_on(&mut machine)
}

pub(crate) fn esc_stops_a_download(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let _server = fixture.serve(&[])?;
    let _silent = fixture.kernel_from_silence()?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: linux 0.0 MB")?;
    // On the machine's own keyboard.
    machine.press(&["esc"])?;
    fixture.fails(&mut machine, &["wireboot: .*stopped by Esc"])?;
    fixture.goes_on(&mut machine)
}
