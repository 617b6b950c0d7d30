//! Boots that arrive.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use wireboot_lab::Impairment;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER};
use wireboot_lab::server::{Server, ServerEvent};

use crate::fixture::{Fixture, PATIENCE, boot_program, expect, wireboot};
use crate::{servers, system};

pub(crate) fn from_our_server(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} times\n",
        system::OPTIONS
    ))?;
    let mut server = fixture.serve(&[])?;
    let powered_on = Instant::now();
    let machine = fixture.boots()?;
    let longest = powered_on.elapsed().as_micros();
    let transcript = machine.console.transcript();
    ensure!(
        transcript.contains(system::OPTIONS),
        "the kernel did not get its options"
    );
    // As systemd-analyze shows them: the firmware's time, and the loader's.
    let [began, done] = ["Init", "Exec"].map(|name| told(&transcript, name));
    let (began, done) = (began?, done?);
    ensure!(
        0 < began && began < done && u128::from(done) < longest,
        "began at {began}, done at {done} of {longest} us"
    );
    let events = server.events()?;
    for file in ["linux", "system.cpio", "data.cpio"] {
        let size = std::fs::metadata(fixture.system.directory.join(file))?.len();
        let sent = bytes_sent(&events, file);
        ensure!(
            sent >= size,
            "the server sent {sent} bytes of {file}, which has {size}"
        );
    }
    Ok(())
}

/// A time of the loader's, in microseconds, that the system has found among the firmware's variables.
fn told(transcript: &str, name: &str) -> Result<u64> {
    let time = regex::Regex::new(&format!(r"boots: loader {name} (\d+)\s"))?;
    let found = time.captures(transcript).and_then(|found| found.get(1));
    let found = found.with_context(|| format!("the system found no LoaderTime{name}USec"))?;
    Ok(found.as_str().parse()?)
}

pub(crate) fn from_dnsmasq_atftpd_nginx(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let directory = &fixture.system.directory;
    let _servers = [
        servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq.conf")?,
        servers::atftpd(lab, SERVER.into(), directory)?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ];
    // The data by TFTP, the rest by HTTP.
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd tftp://10.77.0.1/data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    fixture.boots().map(drop)
}

fn bridged() -> NetworkOptions {
    NetworkOptions {
        bridge: true,
        ..NetworkOptions::default()
    }
}

/// Where the proxy is: not where the addresses come from.
const PROXY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

pub(crate) fn from_kea(lab: &Lab) -> Result<()> {
    // With another computer beside it: Kea leaves out an interface without a carrier, and the machine is still off.
    let fixture = Fixture::on(lab, bridged(), 1)?;
    fixture.system.check("data.cpio")?;
    let _other = fixture.network.station("other", PROXY)?;
    let directory = &fixture.system.directory;
    let _servers = [
        servers::kea(lab, "kea-dhcp4.json")?,
        servers::atftpd(lab, SERVER.into(), directory)?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ];
    fixture.fetches().map(drop)
}

pub(crate) fn from_kea_with_our_proxy(lab: &Lab) -> Result<()> {
    let fixture = Fixture::on(lab, bridged(), 1)?;
    fixture.system.check("data.cpio")?;
    let station = fixture.network.station("proxy", PROXY)?;
    let _kea = servers::kea(lab, "kea-addresses-only.json")?;
    let _server = Server::start(
        lab,
        station.command(wireboot()?),
        &fixture.system.directory,
        &boot_program()?,
        &["--proxy"],
    )?;
    let machine = fixture.fetches()?;
    ensure!(
        machine
            .console
            .transcript()
            .contains("http://10.77.0.2/linux"),
        "the files did not come from the proxy"
    );
    Ok(())
}

pub(crate) fn from_kea_with_dnsmasq_proxy(lab: &Lab) -> Result<()> {
    let fixture = Fixture::on(lab, bridged(), 1)?;
    fixture.system.check("data.cpio")?;
    let station = fixture.network.station("proxy", PROXY)?;
    let directory = &fixture.system.directory;
    let _servers = [
        servers::kea(lab, "kea-addresses-only.json")?,
        servers::atftpd(lab, SERVER.into(), directory)?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ];
    let _proxy = servers::dnsmasq(lab, station.command("dnsmasq"), "dnsmasq-proxy.conf")?;
    fixture.fetches().map(drop)
}

pub(crate) fn by_http_boot(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.pxe_only(None);
    let mut server = fixture.serve(&[])?;
    let machine = fixture.boots()?;
    ensure!(
        machine.console.transcript().contains("HTTP Boot"),
        "the firmware did not boot by HTTP"
    );
    let tftp = server
        .events()?
        .iter()
        .any(|event| event.event.starts_with("tftp"));
    ensure!(!tftp, "something came by TFTP");
    Ok(())
}

pub(crate) fn over_a_lossy_network(lab: &Lab) -> Result<()> {
    // 20 ms there and back.
    let impairment = Impairment {
        loss: 0.01,
        delay: Duration::from_millis(10),
        rate: None,
        seed: 1,
    };
    let fixture = Fixture::on(
        lab,
        NetworkOptions {
            impairment: Some(impairment),
            ..NetworkOptions::default()
        },
        4,
    )?;
    let _server = fixture.serve(&[])?;
    fixture.boots()?;
    // More than a thousand frames go each way, so that this cannot be chance.
    ensure!(
        fixture.network.lost_frames() > 0,
        "the cable has lost nothing"
    );
    Ok(())
}

pub(crate) fn server_restarts_in_mid_transfer(lab: &Lab) -> Result<()> {
    // Slow enough to be in the middle: 20 MB take 3 s or more.
    let impairment = Impairment {
        loss: 0.0,
        delay: Duration::from_millis(1),
        rate: Some(50_000_000),
        seed: 1,
    };
    let fixture = Fixture::on(
        lab,
        NetworkOptions {
            impairment: Some(impairment),
            ..NetworkOptions::default()
        },
        20,
    )?
    .by_stick()?;
    let mut server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: ready")?;
    expect(&mut machine, r"data\.cpio ([2-9]|1\d)\.\d/")?;
    let size = std::fs::metadata(fixture.system.directory.join("data.cpio"))?.len();
    let before = bytes_sent(&server.events()?, "data.cpio");
    ensure!(
        before < size,
        "the transfer was over before the server could be stopped"
    );
    // For the connection that ends, which may be one, and for a new one, which is refused.
    let enough = resets_sent()? + 2;
    drop(server);
    let deadline = Instant::now() + PATIENCE;
    while resets_sent()? < enough {
        ensure!(
            Instant::now() < deadline,
            "the machine does not ask again; the console ends with\n{}",
            machine.console.tail(20)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut server = fixture.serve(&[])?;
    fixture.arrives(&mut machine)?;
    // What came before the restart was not sent again.
    let rest = bytes_sent(&server.events()?, "data.cpio");
    ensure!(rest > 0, "the data was not asked for again");
    ensure!(
        rest < size,
        "the transfer began anew: {rest} of {size} bytes"
    );
    Ok(())
}

/// TCP segments with RST that this network's Linux has sent (`OutRsts`).
fn resets_sent() -> Result<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut rows = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = rows.next().zip(rows.next()).context("no counters of TCP")?;
    let (_, value) = names
        .split(' ')
        .zip(values.split(' '))
        .find(|(name, _)| *name == "OutRsts")
        .context("no OutRsts")?;
    Ok(value.parse()?)
}

/// Bytes of `file` that the server's answers have brought. A machine that measures a long round trip, as it may on a busy host, asks
/// for a file in parts, each with an answer of its own, and cuts the first answer short.
fn bytes_sent(events: &[ServerEvent], file: &str) -> u64 {
    let answers = ["http-done", "http-error"];
    events
        .iter()
        .filter(|event| answers.contains(&event.event.as_str()) && event.file.ends_with(file))
        .map(|event| event.bytes)
        .sum()
}

pub(crate) fn without_entropy_device(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    fixture.machine.entropy = false;
    // Nor the instruction.
    fixture.machine.processor.push_str(",rdrand=off,rdseed=off");
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let machine = fixture.fetches()?;
    ensure!(
        machine
            .console
            .transcript()
            .contains("no random number generator"),
        "the user was not warned"
    );
    Ok(())
}

/// Files by both protocols, each checked while it comes.
pub(crate) fn right_checksums(lab: &Lab) -> Result<()> {
    let fixture = Fixture::on(lab, NetworkOptions::default(), 32)?.by_stick()?;
    let system = &fixture.system;
    let mut entry = format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd tftp://10.77.0.1/data.cpio\noptions {}\n",
        system::OPTIONS
    );
    for (file, url) in [
        ("linux", "linux"),
        ("system.cpio", "system.cpio"),
        ("data.cpio", "tftp://10.77.0.1/data.cpio"),
    ] {
        entry += &format!("sha256 {} {url}\n", system.digest_of(file)?);
    }
    system.configure(&entry)?;
    let _server = fixture.serve(&[])?;
    let machine = fixture.fetches()?;
    let transcript = machine.console.transcript();
    for file in ["linux", "system.cpio", "data.cpio"] {
        let right = format!("/{file}: sha256 is right");
        ensure!(transcript.contains(&right), "{file} was not checked");
    }
    Ok(())
}
