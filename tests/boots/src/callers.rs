//! Calls of boot loaders that are not at hand, by a program of ours, over wireboot's network and over the firmware's.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail, ensure};
use regex::Regex;
use wireboot_lab::embed;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER, SERVER6};
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::server::Server;

use crate::fixture::{
    Fixture, MACHINE, PATIENCE, boot_program, callers_program, expect, faulty_program,
};

/// Answers that the specification gives, over either version of IP.
const PASSED: usize = 212;
/// What loaders read.
pub(crate) const FILE: &str = "system.cpio";

/// `callers.efi` with `jobs` in it.
pub(crate) fn prepare(fixture: &Fixture<'_>, jobs: &str) -> Result<()> {
    let program = fixture.system.directory.join("callers.efi");
    embed::configuration(&callers_program()?, jobs, &program)
}

/// Each verb gets the file whole.
pub(crate) fn gets(
    fixture: &Fixture<'_>,
    machine: &mut RunningMachine,
    verbs: &[&str],
) -> Result<()> {
    gets_file(fixture, machine, FILE, verbs)
}

fn gets_file(
    fixture: &Fixture<'_>,
    machine: &mut RunningMachine,
    file: &str,
    verbs: &[&str],
) -> Result<()> {
    let sha256 = fixture.system.digest_of(file)?;
    let bytes = fs::metadata(fixture.system.directory.join(file))
        .context(file.to_owned())?
        .len();
    for verb in verbs {
        expect(
            machine,
            &format!("callers: {verb} .*: {bytes} bytes in .* sha256 {sha256}"),
        )?;
    }
    Ok(())
}

fn jobs(verbs: &[&str]) -> String {
    verbs
        .iter()
        .map(|verb| format!("{verb} {FILE}\n"))
        .collect()
}

/// All answers are the specification's: so many, at least.
fn statuses(machine: &mut RunningMachine) -> Result<()> {
    let told = expect(machine, "callers: statuses: .* failed")?;
    let lines = |expression| -> Result<Vec<String>> {
        let all = machine.console.all(&Regex::new(expression)?);
        Ok(all.into_iter().map(|seen| seen.text).collect())
    };
    let failed = lines("callers: fail .*")?;
    ensure!(told.ends_with(" 0 failed"), "{told}: {failed:?}");
    let absent = lines("callers: UNSUPPORTED .*")?;
    ensure!(absent.is_empty(), "{absent:?}");
    ensure!(lines("callers: pass .*")?.len() >= PASSED, "{told}");
    Ok(())
}

/// What loaders read by HTTP.
const BY_HTTP: [&str; 4] = ["esxi-http", "grub-http", "shim-http", "freebsd-http"];

fn http_jobs(verbs: &[&str], server: &str) -> String {
    verbs
        .iter()
        .map(|verb| format!("{verb} http://{server}/{FILE}\n"))
        .collect()
}

/// wireboot.efi that keeps the network, for a program that it gets from `url`.
fn keeper(fixture: &Fixture<'_>, url: &str) -> Result<PathBuf> {
    fixture
        .system
        .configure(&format!("title callers\nefi {url}\n"))?;
    let program = fixture.system.directory.join("wireboot.efi");
    embed::configuration(&boot_program()?, "network wireboot\n", &program)?;
    Ok(program)
}

/// The program came by HTTP, so its device has no PXE base code: loaders read their addresses from its path.
pub(crate) fn over_ours_by_http(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    prepare(&fixture, &http_jobs(&BY_HTTP, "10.77.0.1"))?;
    let program = keeper(&fixture, "http://10.77.0.1/callers.efi")?;
    fixture.boot_from_stick(&program)?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi http.* over wireboot's network")?;
    gets(&fixture, &mut machine, &BY_HTTP)?;
    expect(&mut machine, "callers: done, 0 of 4 failed")?;
    // The head has come with the answer to the request, so nobody need wait for it.
    let told = Regex::new("callers: freebsd-http: polled .*")?;
    let told = machine.console.seen(&told).context("no polls")?.text;
    ensure!(told.contains(", 0 for the head"), "{told}");
    Ok(())
}

/// The same over IPv6, all statuses, and the base code's own address.
pub(crate) fn over_ours_over_ipv6(lab: &Lab) -> Result<()> {
    const VERBS: [&str; 3] = ["esxi-http", "grub-http", "shim-http"];
    let mut fixture = Fixture::on(lab, NetworkOptions::of(IpVersion::V6), 1)?;
    fixture.machine.pxe_only(Some(IpVersion::V6));
    let server = format!("[{SERVER6}]");
    prepare(
        &fixture,
        &format!("statuses\n{}", http_jobs(&VERBS, &server)),
    )?;
    let program = keeper(&fixture, &format!("tftp://{server}/callers.efi"))?;
    let _server = fixture.serve_program(&program, &["--ra"])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    statuses(&mut machine)?;
    gets(&fixture, &mut machine, &VERBS)?;
    expect(&mut machine, "callers: done, 0 of 4 failed").map(drop)
}

/// A server's answer breaks off, and says nothing by which the rest of the same file could be asked for: the file comes anew, and the caller's
/// buffer has all of it.
pub(crate) fn file_comes_anew(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    prepare(&fixture, &format!("shim http://{SERVER}:8080/{FILE}\n"))?;
    let program = keeper(&fixture, &format!("tftp://{SERVER}/callers.efi"))?;
    fixture.boot_from_stick(&program)?;
    let _server = fixture.serve_program(&program, &[])?;
    let answers = answer_twice(&fixture, |len| [len / 2, len])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    gets(&fixture, &mut machine, &["shim"])?;
    are_given(answers)
}

/// The body breaks off. GRUB looks at no status of a token, and asks for the rest until it is refused.
pub(crate) fn body_breaks_off(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    let jobs = http_jobs(&["grub-http"], &format!("{SERVER}:8080"));
    prepare(&fixture, &jobs)?;
    let program = keeper(&fixture, &format!("http://{SERVER}/callers.efi"))?;
    fixture.boot_from_stick(&program)?;
    let _server = fixture.serve_program(&program, &[])?;
    // HEAD, then GET.
    let answers = answer_twice(&fixture, |len| [0, len / 2])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    expect(&mut machine, "callers: grub-http .*: a later Response: ")?;
    expect(&mut machine, "callers: done, 1 of 1 failed")?;
    are_given(answers)
}

/// The engine's processor is lost under a loader, in the middle of a file. That comes all the same, and the loader's own frames go on.
pub(crate) fn processor_is_lost(lab: &Lab) -> Result<()> {
    const VERBS: [&str; 2] = ["openbsd", "freebsd-snp"];
    let mut fixture = Fixture::new(lab)?;
    let (_server, mut machine) = loses_its_processor(&mut fixture, &jobs(&VERBS), "engine")?;
    gets(&fixture, &mut machine, &VERBS)?;
    expect(&mut machine, "callers: done, 0 of 2 failed").map(drop)
}

/// The firmware does not end what runs on the lost processor, which has the caller's buffer: no loader goes on beside it. QEMU ends instead of
/// beginning anew.
pub(crate) fn processor_is_not_ended(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    let jobs = http_jobs(&["shim-http"], &SERVER.to_string());
    let (_server, mut machine) = loses_its_processor(&mut fixture, &jobs, "kill")?;
    expect(
        &mut machine,
        "wireboot: error: the firmware does not end what runs on processor 1; .*; the machine is reset",
    )?;
    let status = machine.wait(PATIENCE)?;
    ensure!(
        status.is_some_and(|status| status.success()),
        "the machine stands still"
    );
    Ok(())
}

/// The callers' jobs, under which the engine's processor is lost by `fault`.
fn loses_its_processor(
    fixture: &mut Fixture<'_>,
    jobs: &str,
    fault: &str,
) -> Result<(Server, RunningMachine)> {
    prepare(fixture, jobs)?;
    let program = keeper(fixture, &format!("tftp://{SERVER}/callers.efi"))?;
    embed::configuration(&faulty_program()?, "network wireboot\n", &program)?;
    let configuration = fixture.system.directory.join("wireboot.conf");
    let text = fs::read_to_string(&configuration)?;
    fs::write(&configuration, format!("{text}options fault={fault}\n"))?;
    fixture.boot_from_stick(&program)?;
    let server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    expect(
        &mut machine,
        r"wireboot: warning: processor 1 is lost \(panicked at",
    )?;
    Ok((server, machine))
}

type Answers = JoinHandle<io::Result<()>>;

/// Has a server at port 8080 take two requests for the file, and give so many bytes of it each time.
fn answer_twice(fixture: &Fixture<'_>, lengths: fn(usize) -> [usize; 2]) -> Result<Answers> {
    let file = fs::read(fixture.system.directory.join(FILE))?;
    let listener = TcpListener::bind((SERVER, 8080)).context("listening")?;
    Ok(thread::spawn(move || {
        lengths(file.len())
            .into_iter()
            .try_for_each(|len| answer(&listener, &file, len))
    }))
}

fn are_given(answers: Answers) -> Result<()> {
    let given = answers.join().map_err(|_| anyhow!("serving {FILE}"))?;
    given.with_context(|| format!("serving {FILE}"))
}

/// Takes a request, and answers with so many bytes of the file.
fn answer(listener: &TcpListener, file: &[u8], len: usize) -> io::Result<()> {
    let mut stream = listener.accept()?.0;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(file.get(..len).unwrap_or_default())
}

/// A client of Windows Deployment Services reads an image of 200 MB by datagrams of its own: block numbers begin anew twice.
pub(crate) fn image_by_wds(lab: &Lab) -> Result<()> {
    const IMAGE: &str = "data.cpio";
    let mut fixture = Fixture::on(lab, NetworkOptions::default(), 200)?;
    fixture.machine.memory_mib = 1024;
    prepare(&fixture, &format!("wds {IMAGE}\n"))?;
    let program = keeper(&fixture, "tftp://10.77.0.1/callers.efi")?;
    fixture.boot_from_stick(&program)?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    gets_file(&fixture, &mut machine, IMAGE, &["wds"])
}

const IN_THE_MENU: &str = "fd00:98::7/64 fe80::7 fd00:98::53";
const BY_A_LOADER: [&str; 2] = [
    "10.9.8.66/24 10.9.8.1 10.9.8.53",
    "fd00:99::66/64 fe80::1 fd00:99::53",
];

fn sets(machine: &mut RunningMachine) -> Result<()> {
    expect(machine, "callers: set-ip .*: done").map(drop)
}

fn shows(machine: &mut RunningMachine, version: &str, settings: &str) -> Result<()> {
    let words: Vec<_> = settings.split([' ', '/']).collect();
    let [address, _, gateway, dns] = words[..] else {
        bail!("{settings}")
    };
    expect(
        machine,
        &format!(
            "callers: settings of IPv{version}: policy 0, address {address}, gateway {gateway}, DNS {dns}\n"
        ),
    )
    .map(drop)
}

/// Three boots of one machine, which keeps its firmware's variables. Over the stack that loaders are written for: their calls by TFTP, and
/// settings as its menu makes them. Over ours: all statuses, these settings where there is no lease, every verb, and other settings. Over
/// stock again: those, and loaders by HTTP.
pub(crate) fn over_both(lab: &Lab) -> Result<()> {
    const OVER_STOCK: [&str; 6] = [
        "openbsd",
        "esxi-tftp",
        "limine",
        "shim",
        "wds",
        "freebsd-snp",
    ];
    const OVER_OURS: [&str; 7] = [
        "openbsd",
        "esxi-tftp",
        "limine",
        "shim",
        "wds",
        "netbsd",
        "freebsd-snp",
    ];
    let mut fixture = Fixture::new(lab)?;
    let callers = fixture.system.directory.join("callers.efi");

    let by_tftp = jobs(&OVER_STOCK);
    prepare(&fixture, &format!("set-ip {IN_THE_MENU}\n{by_tftp}"))?;
    let server = fixture.serve_program(&callers, &[])?;
    let mut machine = fixture.start()?;
    sets(&mut machine)?;
    gets(&fixture, &mut machine, &OVER_STOCK)?;
    expect(&mut machine, "callers: done, 0 of 7 failed")?;
    drop((machine, server));
    fixture.machine.keep_variables(lab, MACHINE)?;

    let [v4, v6] = BY_A_LOADER;
    prepare(
        &fixture,
        &format!(
            "show-ip 6\nstatuses\n{}set-ip {v4}\nset-ip {v6}\n",
            jobs(&OVER_OURS)
        ),
    )?;
    let program = keeper(&fixture, "tftp://10.77.0.1/callers.efi")?;
    let server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    shows(&mut machine, "6", IN_THE_MENU)?;
    statuses(&mut machine)?;
    gets(&fixture, &mut machine, &OVER_OURS)?;
    // Last: the interface has another address behind that.
    sets(&mut machine)?;
    sets(&mut machine)?;
    expect(&mut machine, "callers: done, 0 of 11 failed")?;
    drop((machine, server));
    fixture.machine.keep_variables(lab, MACHINE)?;

    let by_http = http_jobs(&BY_HTTP, "10.77.0.1");
    prepare(&fixture, &format!("show-ip 4\nshow-ip 6\n{by_http}"))?;
    let _server = fixture.serve_program(&callers, &[])?;
    fixture.machine.pxe_only(None);
    let mut machine = fixture.start()?;
    expect(&mut machine, "(?i)start HTTP Boot over IPv4")?;
    shows(&mut machine, "4", v4)?;
    shows(&mut machine, "6", v6)?;
    gets(&fixture, &mut machine, &BY_HTTP)?;
    expect(&mut machine, "callers: done, 0 of 6 failed").map(drop)
}

fn without_a_link(fixture: &Fixture<'_>, machine: &mut RunningMachine) -> Result<()> {
    expect(machine, "callers: no-link: take the link away")?;
    machine.set_link(false)?;
    expect(machine, "callers: no-link: give the link back")?;
    machine.set_link(true)?;
    gets(fixture, machine, &["no-link"])
}

/// The cable is pulled while a loader runs: over ours its calls are answered as over stock, and all goes on when it is back.
pub(crate) fn no_link(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    prepare(&fixture, &jobs(&["no-link"]))?;
    let callers = fixture.system.directory.join("callers.efi");
    let server = fixture.serve_program(&callers, &[])?;
    let mut machine = fixture.start()?;
    without_a_link(&fixture, &mut machine)?;
    drop((machine, server));

    let program = keeper(&fixture, "tftp://10.77.0.1/callers.efi")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    without_a_link(&fixture, &mut machine)
}
