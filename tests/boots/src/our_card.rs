//! Boots through `wireboot nic`: stock firmware's PXE and HTTP Boot, wireboot's driver, and the card between them and a tap, or with the server
//! in it.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::nic::Nic;
use wireboot_lab::payload;

use crate::fixture::{Fixture, PATIENCE, expect, wireboot};
use crate::loaders::program;
use crate::processors::{SHARE, THREE_ENGINES, three_pairs};

/// A fixture whose machine has our card.
fn fixture(lab: &Lab, megabytes: usize) -> Result<(Fixture<'_>, Nic)> {
    let mut fixture = Fixture::on(lab, NetworkOptions::default(), megabytes)?;
    let nic = Nic::start(lab, lab.command(wireboot()?), &fixture.network, None)?;
    nic.attach(&mut fixture.machine)?;
    Ok((fixture, nic))
}

pub(crate) fn counter(counters: &Value, name: &str) -> Result<u64> {
    let value = counters.get(name).and_then(Value::as_u64);
    value.with_context(|| format!("no {name} in {counters}"))
}

/// Twice, as a machine that is switched on again finds the same card.
pub(crate) fn by_pxe_twice(lab: &Lab) -> Result<()> {
    let (fixture, nic) = fixture(lab, 4)?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    fixture.boots()?;
    drop(fixture.fetches()?);
    let log = nic.log();
    let monitors = log.matches("a monitor has connected").count();
    ensure!(monitors == 2, "{log}");
    ensure!(!log.contains("stopped"), "{log}");
    let counters = nic.end()?;
    let mut sent = 0;
    for file in ["linux", "system.cpio", "data.cpio"] {
        sent += std::fs::metadata(fixture.system.directory.join(file))?.len();
    }
    let received = counter(&counters, "received_bytes")?;
    ensure!(received > 2 * sent, "{counters}");
    // The firmware gets frames, wireboot many segments at once: twice a frame's bytes are more than frames alone give.
    let units = counter(&counters, "received_units")?;
    ensure!(received > 3000 * units, "{counters}");
    // The firmware's driver does not ask its card, wireboot does once in each boot.
    ensure!(counter(&counters, "hellos")? == 2, "{counters}");
    for lost in [
        "send_lost",
        "send_bad_length",
        "send_not_understood",
        "placements_refused",
        "receive_pretended",
        "receive_too_long",
        "receive_not_agreed",
        "dropped_fragments",
        "dropped_frames",
    ] {
        ensure!(counter(&counters, lost)? == 0, "{counters}");
    }
    Ok(())
}

/// Killed while files come, and started again at the same place: the download goes on.
pub(crate) fn card_restarts_in_mid_transfer(lab: &Lab) -> Result<()> {
    let (fixture, nic) = fixture(lab, 64)?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, r"wireboot: ready after \d+ ms")?;
    drop(nic);
    let nic = Nic::start(lab, lab.command(wireboot()?), &fixture.network, None)?;
    fixture.arrives(&mut machine)?;
    let counters = nic.end()?;
    ensure!(
        counter(&counters, "received_bytes")? > 1 << 20,
        "{counters}"
    );
    Ok(())
}

/// Three pairs of queues, and an engine on each: a flow comes by the pair that has sent its last frame, so each brings a part of the data.
pub(crate) fn with_several_engines(lab: &Lab) -> Result<()> {
    let mut fixture = three_pairs(lab, IpVersion::V4, 20)?;
    let nic = Nic::start(lab, lab.command(wireboot()?), &fixture.network, None)?;
    nic.attach(&mut fixture.machine)?;
    fixture.boot_from_disk("processors=3 http://10.77.0.1/wireboot.conf")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, THREE_ENGINES)?;
    fixture.arrives(&mut machine)?;
    let counters = nic.end()?;
    let pairs = counters.get("pairs").and_then(Value::as_array);
    for pair in pairs.context("counters of each pair")? {
        ensure!(counter(pair, "received_bytes")? > SHARE, "{counters}");
    }
    ensure!(counter(&counters, "send_lost")? == 0, "{counters}");
    Ok(())
}

/// A card that is the server, too: without any right, on no network.
fn server_in_the_card(lab: &Lab, megabytes: usize) -> Result<(Fixture<'_>, Nic)> {
    server_that_offers(lab, megabytes, "all")
}

/// The same with these offloads.
fn server_that_offers<'a>(
    lab: &'a Lab,
    megabytes: usize,
    offloads: &str,
) -> Result<(Fixture<'a>, Nic)> {
    let mut fixture = Fixture::on(lab, NetworkOptions::default(), megabytes)?;
    let nic = server_of(lab, &fixture.system.directory, offloads)?;
    nic.attach(&mut fixture.machine)?;
    Ok((fixture, nic))
}

/// A card with the server in it, without a right, a network, or /dev/net/tun, and not root by what it sees.
pub(crate) fn server_of(lab: &Lab, directory: &Path, offloads: &str) -> Result<Nic> {
    /// As long as it may.
    const HIDE: &str = "mount --bind /dev/null /dev/net/tun && exec \"$@\"";
    let mut program = lab.command("unshare");
    program.args(["--user", "--map-user=65534", "--map-group=65534"]);
    program.args(["--keep-caps", "--net", "--mount", "sh", "-c", HIDE, "sh"]);
    program.args(["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    program.args(["--ambient-caps=-all", "--no-new-privs"]);
    program.arg(wireboot()?);
    program.args(["nic", "serve", "--offload", offloads]);
    program.arg(directory);
    Nic::launch(lab, program)
}

/// What the card says when it has sent all of a file.
pub(crate) fn sent(fixture: &Fixture<'_>, protocol: &str, file: &str) -> Result<String> {
    let len = std::fs::metadata(fixture.system.directory.join(file))?.len();
    // wireboot goes by the version that is answered first.
    Ok(format!(
        "{protocol} done     (10.77.0.\\d+|fd00:77::\\S+) {file} {len} bytes"
    ))
}

pub(crate) fn has(log: &str, expression: &str) -> Result<bool> {
    Ok(regex::Regex::new(expression)?.is_match(log))
}

/// The machine's network is in the card: a directory is all that it takes.
pub(crate) fn server_in_the_card_by_pxe(lab: &Lab) -> Result<()> {
    let (fixture, nic) = server_in_the_card(lab, 4)?;
    fixture.system.check("data.cpio")?;
    fixture.boots()?;
    // A second monitor, and a driver that begins anew.
    drop(fixture.fetches()?);
    let log = nic.log();
    ensure!(
        has(&log, &sent(&fixture, "TFTP", "wireboot.efi")?)?,
        "{log}"
    );
    for file in ["/linux", "/system.cpio", "/data.cpio"] {
        let name = file.trim_start_matches('/');
        let sent = sent(&fixture, "HTTP", name)?.replace(name, file);
        ensure!(has(&log, &sent)?, "{sent}: {log}");
    }
    ensure!(!log.contains("error") && !log.contains("stopped"), "{log}");
    let counters = nic.end()?;
    for lost in ["send_lost", "receive_too_long", "receive_not_agreed"] {
        ensure!(counter(&counters, lost)? == 0, "{counters}");
    }
    // A file's first window comes to the buffers, the rest of the 4 MB in two boots to its place.
    ensure!(counter(&counters, "placed_bytes")? > 4 << 20, "{counters}");
    // Most came by TCP, and wireboot takes units of many segments.
    let units = counter(&counters, "received_units")?;
    ensure!(
        counter(&counters, "received_bytes")? > 4000 * units,
        "{counters}"
    );
    Ok(())
}

/// Debian's installer, as a user boots it, up to its first question.
pub(crate) fn server_in_the_card_installs(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::on(lab, NetworkOptions::default(), 1)?;
    let nic = server_of(lab, &payload::debian_installer(lab)?, "all")?;
    nic.attach(&mut fixture.machine)?;
    fixture.machine.memory_mib = 1024;
    // Its kernel draws slowly on a busy host.
    fixture
        .machine
        .extra
        .extend(["-vga", "none"].map(Into::into));
    let mut machine = fixture.start()?;
    expect(&mut machine, payload::FIRST_QUESTION)?;
    let log = nic.log();
    ensure!(log.contains("initrd.gz") && !log.contains("error"), "{log}");
    nic.end().map(drop)
}

/// The firmware's own TCP and HTTP.
pub(crate) fn server_in_the_card_by_http_boot(lab: &Lab) -> Result<()> {
    let (mut fixture, nic) = server_in_the_card(lab, 4)?;
    fixture.machine.pxe_only(None);
    fixture.boots()?;
    let log = nic.log();
    let sent = sent(&fixture, "HTTP", "wireboot.efi")?;
    let sent = sent.replace("wireboot.efi", "/wireboot.efi");
    ensure!(has(&log, &sent)? && !log.contains("TFTP"), "{log}");
    nic.end().map(drop)
}

/// Stock firmware's PXE and HTTP Boot over IPv6, and wireboot's files by the same version.
pub(crate) fn server_in_the_card_over_ipv6(lab: &Lab) -> Result<()> {
    for (by, begins, protocol, file) in [
        (
            Some(IpVersion::V6),
            ">>Start PXE over IPv6",
            "TFTP",
            "wireboot.efi",
        ),
        (None, ">>Start HTTP Boot over IPv6", "HTTP", "/wireboot.efi"),
    ] {
        let (mut fixture, nic) = server_in_the_card(lab, 4)?;
        fixture.machine.pxe_only(by);
        fixture.machine.http_boot_ipv6 = by.is_none();
        let server = "http://[fd00:77::1]";
        fixture.system.configure(&format!(
            "title Test system\nlinux {server}/linux\ninitrd {server}/system.cpio\ninitrd {server}/data.cpio\noptions {}\n",
            crate::system::OPTIONS
        ))?;
        fixture.system.check(&format!("{server}/data.cpio"))?;
        let mut machine = fixture.start()?;
        expect(&mut machine, begins)?;
        fixture.fetched_right(&mut machine)?;
        let log = nic.log();
        for (protocol, file) in [(protocol, file), ("HTTP", "/data.cpio")] {
            let done = format!("{protocol} done     fd00:77::[0-9a-f:]+ {file} \\d+ bytes");
            ensure!(has(&log, &done)?, "{done}: {log}");
        }
        ensure!(!log.contains("error") && !log.contains("stopped"), "{log}");
        nic.end()?;
    }
    Ok(())
}

/// All by TFTP, wireboot's windows included.
pub(crate) fn server_in_the_card_by_tftp_alone(lab: &Lab) -> Result<()> {
    let (fixture, nic) = server_in_the_card(lab, 16)?;
    let tftp = "tftp://10.77.0.1";
    fixture.system.configure(&format!(
        "title Test system\nlinux {tftp}/linux\ninitrd {tftp}/system.cpio\ninitrd {tftp}/data.cpio\noptions {}\n",
        crate::system::OPTIONS
    ))?;
    fixture.boots()?;
    let log = nic.log();
    ensure!(has(&log, &sent(&fixture, "TFTP", "data.cpio")?)?, "{log}");
    // wireboot.efi has its card's longest datagrams; the firmware, which asked for it, has not.
    ensure!(
        has(&log, "data.cpio .*block size 65464, window 8")?,
        "{log}"
    );
    ensure!(!has(&log, "wireboot.efi .*block size 65464")?, "{log}");
    nic.end().map(drop)
}

/// Many frames in one buffer, as wireboot's driver asks for: what the server sends by TFTP, and what three downloads at once have the driver send.
pub(crate) fn server_in_the_card_in_chunks(lab: &Lab) -> Result<()> {
    let (fixture, nic) = server_that_offers(lab, 16, "guest_tso4,guest_tso6")?;
    let (tftp, http) = ("tftp://10.77.0.1", "http://10.77.0.1");
    fixture.system.configure(&format!(
        "title Test system\nlinux {http}/linux\ninitrd {http}/system.cpio\ninitrd {tftp}/data.cpio\noptions {}\n",
        crate::system::OPTIONS
    ))?;
    fixture.boots()?;
    let counters = nic.end()?;
    let chunks = counter(&counters, "received_chunks")?;
    let in_chunks = counter(&counters, "received_chunk_units")?;
    ensure!(chunks > 100 && in_chunks > 3 * chunks, "{counters}");
    ensure!(counter(&counters, "sent_chunks")? > 0, "{counters}");
    for lost in ["send_lost", "receive_left", "receive_too_long"] {
        ensure!(counter(&counters, lost)? == 0, "{counters}");
    }
    Ok(())
}

/// A driver that is told to ask its card nothing gets what virtio has: large units, no chunks, nothing at its place.
pub(crate) fn server_in_a_card_that_is_asked_nothing(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::on(lab, NetworkOptions::default(), 16)?;
    fixture.system.check("data.cpio")?;
    let program = program(&fixture, "card plain\n")?;
    fixture.boot_from_stick(&program)?;
    let nic = server_of(lab, &fixture.system.directory, "all")?;
    nic.attach(&mut fixture.machine)?;
    drop(fixture.fetches()?);
    let counters = nic.end()?;
    for extra in ["hellos", "received_chunks", "sent_chunks", "placed_bytes"] {
        ensure!(counter(&counters, extra)? == 0, "{counters}");
    }
    let (bytes, units) = (
        counter(&counters, "received_bytes")?,
        counter(&counters, "received_units")?,
    );
    ensure!(bytes > 16 << 20 && bytes > 4000 * units, "{counters}");
    Ok(())
}

/// A client must not get half of each version. When the file stays as it is, the boot arrives.
pub(crate) fn server_in_the_card_while_a_file_changes(lab: &Lab) -> Result<()> {
    let (fixture, nic) = server_in_the_card(lab, 64)?;
    let data = File::options()
        .write(true)
        .open(fixture.system.directory.join("data.cpio"))?;
    let mut machine = fixture.start()?;
    let deadline = Instant::now() + PATIENCE;
    let mut changed = SystemTime::now();
    while !nic.log().contains("the file was changed while it was sent") {
        ensure!(Instant::now() < deadline, "{}", nic.log());
        changed += Duration::from_secs(1);
        data.set_modified(changed)?;
        std::thread::sleep(Duration::from_millis(5));
    }
    fixture.arrives(&mut machine)?;
    let log = nic.log();
    ensure!(has(&log, "HTTP error.*/data.cpio.*was changed")?, "{log}");
    nic.end().map(drop)
}
