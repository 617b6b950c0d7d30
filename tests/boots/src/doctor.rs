//! `wireboot doctor lab`: stock firmware, shim, GRUB and the installer's files, on networks with faults that the examination has to find.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};
use fatfs::{Dir, FileSystem, FsOptions};
use regex::Regex;
use wireboot_doctor::lab::{
    Examination, Fault, Hardware, Trial, boot, examine_inside, examine_sampled, examine_until_esc,
};
use wireboot_doctor::{examine, shown, stick};
use wireboot_lab::accel;
use wireboot_lab::embed;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders::newest_ovmf;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::SERVER6;
use wireboot_lab::qemu::{Machine, RunningMachine};
use wireboot_report::ladder::{DRIVER, MNP, SNP, UNDI};
use wireboot_report::memory::{CARDS, ORDINARY};
use wireboot_report::network::{Outcome, Protocol};
use wireboot_report::servers::Echoes;
use wireboot_report::sweep::{By, Cell, NOT_GRANTED};
use wireboot_report::{Network, Profile, ProfiledImage, Report};

use crate::firmware_drivers::BY_UNDI;
use crate::fixture::{
    Fixture, PATIENCE, callers_program, doctor_program, expect, faulty_doctor, planted_program,
};
use crate::{ipv6, secure_boot};

/// Findings that no host is too slow for, nor too fast: each is there where its fault is, and nowhere else.
const FAULTS: [&str; 19] = [
    "spanning-tree",
    "lacp",
    "unanswered",
    "ip-version",
    "late-offer",
    "several-servers",
    "vendor-options",
    "names",
    "no-boot-file",
    "refused",
    "path-mtu",
    "time-per-packet",
    "slow-get-time",
    "slow-variables",
    "slow-console",
    "debug-build",
    "receivers",
    "needless-drivers",
    "no-rng",
];

/// For a boot that arrives.
const LONGEST: Duration = Duration::from_secs(150);
/// One that does not, or that would take many minutes, is examined then.
const LONG_ENOUGH: Duration = Duration::from_secs(40);

fn examined(lab: &Lab, faults: &[Fault], longest: Duration) -> Result<Report> {
    let capture = lab.scratch().join("doctor.pcap");
    let trial = Trial {
        faults,
        ..Trial::healthy(accel::best(lab, false)?, longest)
    };
    let report = boot(lab, &trial, &capture)?;
    println!("{}", shown(&report));
    Ok(report)
}

/// Seconds lost by finding: all `wanted` are there, and of [`FAULTS`] no others.
fn findings<'a>(report: &'a Report, wanted: &[&str]) -> Result<BTreeMap<&'a str, f64>> {
    let all = report.findings.iter();
    let seconds: BTreeMap<_, _> = all.map(|one| (one.id.as_str(), one.seconds)).collect();
    for id in wanted {
        ensure!(seconds.contains_key(id), "{id} was not found");
    }
    let others = |id: &&str| FAULTS.contains(id) && !wanted.contains(id);
    let more: Vec<_> = seconds.keys().copied().filter(others).collect();
    ensure!(more.is_empty(), "{more:?} were found, too");
    Ok(seconds)
}

/// GRUB had the installer's kernel and initial RAM disk.
fn arrived(report: &Report) -> Result<()> {
    for (file, least) in [("linux", 4 << 20), ("initrd.gz", (1 << 20) - 1)] {
        let came = report.network.transfers.iter().any(|one| {
            one.file.ends_with(file) && one.outcome == Outcome::Complete && one.bytes > least
        });
        ensure!(came, "{file} did not come: {:?}", report.network.transfers);
    }
    Ok(())
}

/// The port forwards nothing for 30 s from power-on, of which the firmware needs some itself.
pub(crate) fn spanning_tree(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::Stp], LONGEST)?;
    let seconds = findings(&report, &["spanning-tree"])?;
    let lost = seconds.get("spanning-tree").copied().unwrap_or_default();
    ensure!((12.0..120.0).contains(&lost), "{lost} s");
    arrived(&report)
}

/// The port waits for LACP for 12 s from the machine's first frame, and then falls back.
pub(crate) fn lacp(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::Lacp], LONGEST)?;
    let seconds = findings(&report, &["lacp"])?;
    let lost = seconds.get("lacp").copied().unwrap_or_default();
    ensure!((4.0..120.0).contains(&lost), "{lost} s");
    let told = report.network.lacp.context("no LACP")?;
    ensure!(told.waits && told.forwards_s.is_some(), "{told:?}");
    Ok(())
}

/// Where the packets of [`inside`] are kept, in the lab's scratch directory.
const OUTSIDE: &str = "inside.pcap";

/// What doctor.efi finds on a network with these faults. It has left nothing behind.
pub(crate) fn inside(lab: &Lab, faults: &[Fault], words: &str, goes_on: bool) -> Result<Report> {
    inside_over(lab, IpVersion::V4, faults, words, goes_on)
}

/// The same over a version of IP.
fn inside_over(
    lab: &Lab,
    ip: IpVersion,
    faults: &[Fault],
    words: &str,
    goes_on: bool,
) -> Result<Report> {
    let trial = Trial {
        ip,
        faults,
        ..Trial::healthy(accel::best(lab, false)?, LONGEST)
    };
    inside_of(lab, trial, words, goes_on)
}

/// The same of any trial.
fn inside_of(lab: &Lab, trial: Trial<'_>, words: &str, goes_on: bool) -> Result<Report> {
    let planted = planted_program()?;
    let trial = Trial {
        planted: Some(&planted),
        ..trial
    };
    let program = doctor_program()?;
    let examination = Examination {
        program: &program,
        words,
        http: false,
        counts_instructions: false,
        goes_on,
    };
    let capture = lab.scratch().join(OUTSIDE);
    let report = examine_inside(lab, &trial, examination, &capture, |_| {})?;
    println!("{}", shown(&report));
    ensure!(report.as_found == Some(true), "not as it was found");
    Ok(report)
}

/// Who does not want to wait presses Esc: the test ends, the report comes, and the machine is as it was.
pub(crate) fn ended_by_esc(lab: &Lab) -> Result<()> {
    let trial = Trial::healthy(accel::best(lab, false)?, LONGEST);
    let examination = Examination {
        program: &doctor_program()?,
        words: "iperf3=10.77.0.1 time=120",
        http: false,
        counts_instructions: false,
        goes_on: false,
    };
    let capture = lab.scratch().join(OUTSIDE);
    let begin = Regex::new(r"\d s, \d+ Mbit/s")?;
    let report = examine_until_esc(lab, &trial, examination, &capture, &begin)?;
    let [one] = &report.not_measured[..] else {
        bail!("{:?}", report.not_measured);
    };
    ensure!(
        one.check == "iperf3" && one.reason.contains("ended by the Esc key"),
        "{one:?}"
    );
    ensure!(report.throughput.is_empty() && report.as_found == Some(true));
    Ok(())
}

/// doctor.efi hears who gives what to machines that boot, without a boot, and the firmware boots as ever.
pub(crate) fn listens(lab: &Lab) -> Result<()> {
    let faults = [Fault::TwoDhcp, Fault::Option43];
    let report = inside(lab, &faults, "net", true)?;
    findings(&report, &["several-servers", "vendor-options"])?;
    let heard = report.surroundings.context("nothing was heard")?;
    ensure!(heard.listened_s > 30.0 && heard.packets > 0, "{heard:?}");
    let answered = heard.round_trips.iter().map(|one| one.took_us.len());
    ensure!(answered.min() == Some(10), "{:?}", heard.round_trips);
    ensure!(report.dry_boots.is_empty());
    Ok(())
}

/// What the boot server grants is told, and what the way to it carries, though nobody there says that.
pub(crate) fn servers(lab: &Lab) -> Result<()> {
    let report = inside(lab, &[Fault::SmallMtu, Fault::Delay], "servers", true)?;
    findings(&report, &["path-mtu"])?;
    let [server] = &report.servers[..] else {
        bail!("{:?}", report.servers);
    };
    let path = server.path.as_ref().context("no answer to an echo")?;
    ensure!(path.mtu_bytes == Some(1400) && path.on_link, "{path:?}");
    let whole = |one: &Echoes| one.answered == 100 && one.least_us >= 20_000;
    ensure!(path.echoes.iter().all(whole), "{path:?}");
    let tftp = server.tftp.as_ref().context("no answer by TFTP")?;
    ensure!(tftp.block_bytes == Some(1468), "{tftp:?}");
    ensure!(tftp.window.is_some_and(|window| window > 1), "{tftp:?}");
    ensure!(
        tftp.file_bytes.is_some() && tftp.first_block_us.is_some(),
        "{tftp:?}"
    );
    Ok(())
}

/// The report that a machine tells on its serial port.
pub(crate) fn told(machine: &mut RunningMachine) -> Result<Report> {
    let line = expect(machine, r"doctor: (\{.*\})\r?\n")?;
    let json = line.trim().strip_prefix("doctor: ");
    Ok(Report::from_json(json.context("no report")?)?)
}

/// The checks that measured nothing, each with a reason.
fn lacking(report: &Report) -> Result<Vec<&str>> {
    let all = report.not_measured.iter();
    ensure!(all.clone().all(|one| one.reason.len() > 10), "{all:?}");
    ensure!(report.as_found == Some(true), "not as it was found");
    Ok(all.map(|one| one.check.as_str()).collect())
}

/// Without a card and a second processor the rest is measured.
pub(crate) fn without_a_card(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.network = None;
    fixture.machine.processors = 1;
    let words = "check net servers boot cost dma frames trace profile sweep calls=1000";
    fixture.boot_from_stick(&examination_of(lab, words)?)?;
    let report = told(&mut fixture.start()?)?;
    let all = [
        "net", "servers", "boot", "dma", "frames", "trace", "profile", "sweep",
    ];
    ensure!(lacking(&report)? == all, "{:?}", report.not_measured);
    ensure!(!report.costs.is_empty() && report.memory.is_some());
    Ok(())
}

/// A card without a cable is told of, and costs no check more than its wait for a link.
pub(crate) fn without_a_link(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    let words = "check net servers frames";
    fixture.boot_from_stick(&examination_of(lab, words)?)?;
    let mut machine = fixture.start()?;
    machine.set_link(false)?;
    let report = told(&mut machine)?;
    let all = lacking(&report)?;
    ensure!(all == ["net", "servers", "frames"], "{report:?}");
    let mut reasons = report.not_measured.iter();
    ensure!(
        reasons.all(|one| one.reason.contains("no link")),
        "{:?}",
        report.not_measured
    );
    Ok(())
}

/// A firmware that starts signed programs alone is examined as others are.
pub(crate) fn under_secure_boot(lab: &Lab) -> Result<()> {
    let fixture = secure_boot::fixture(lab)?;
    let program = examination_of(lab, "check cost trace rounds=1 calls=1000")?;
    secure_boot::sign(lab, &program)?;
    let _server = fixture.serve_program(&program, &[])?;
    let report = told(&mut fixture.start()?)?;
    ensure!(lacking(&report)?.is_empty(), "{:?}", report.not_measured);
    ensure!(!report.costs.is_empty() && report.trace.is_some());
    Ok(())
}

/// On a machine with one processor, the firmware's timer takes the samples.
pub(crate) fn one_processor(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.processors = 1;
    let profile = examined_and_booted(fixture)?;
    ensure!(profile.by_timer && profile.samples > 10, "{profile:?}");
    Ok(())
}

/// The newest OVMF is examined as the older one is, and boots wireboot.efi and Linux.
pub(crate) fn newest_firmware(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.firmware = newest_ovmf()?;
    let profile = examined_and_booted(fixture)?;
    ensure!(!profile.by_timer && profile.samples > 100, "{profile:?}");
    Ok(())
}

/// After all that replaces tables, gates and protocols, the firmware boots by its next option: wireboot.efi by PXE, and Linux.
fn examined_and_booted(mut fixture: Fixture<'_>) -> Result<Profile> {
    let lab = fixture.lab;
    let words = "check cost dma boot trace profile frames options=1 rounds=1 calls=1000";
    fixture.boot_from_stick(&examination_of(lab, words)?)?;
    let card = fixture.machine.network.as_mut().context("no card")?;
    card.boot_index = Some(2);
    fixture.machine.pxe_only(Some(IpVersion::V4));
    let reports = lab.scratch().join("reports");
    let kept = reports.to_str().context("a path that is no text")?;
    let _server = fixture.serve(&["--reports", kept])?;
    let mut machine = fixture.start()?;
    let report = told(&mut machine)?;
    println!("{}", shown(&report));
    ensure!(lacking(&report)?.is_empty(), "{:?}", report.not_measured);
    ensure!(report.trace.is_some());
    let profile = report.profile.context("no profile")?;
    let named = |one: &ProfiledImage| !one.name.is_empty();
    let named: u64 = profile
        .images
        .iter()
        .filter(|one| named(one))
        .map(|one| one.samples)
        .sum();
    ensure!(named * 10 > profile.samples * 9, "{profile:?}");
    fixture.arrives(&mut machine)?;
    Ok(profile)
}

/// What nginx can by HTTP, by which doctor.efi was started over IPv6.
pub(crate) fn servers_by_http(lab: &Lab) -> Result<()> {
    let program = examination_of(lab, "servers")?;
    let mut machine = ipv6::http_boot_of(lab, &program)?;
    let report = told(&mut machine.running)?;
    let [server] = &report.servers[..] else {
        bail!("{report:?}");
    };
    ensure!(server.address == SERVER6.to_string(), "{server:?}");
    let path = server.path.as_ref().context("no answer to an echo")?;
    ensure!(
        path.mtu_bytes == Some(1500) && path.echoes.len() == 2,
        "{path:?}"
    );
    ensure!(path.lost_percent() < 50.0, "{path:?}");
    let http = server.http.as_ref().context("no answer by HTTP")?;
    let size = fs::metadata(&program)?.len();
    ensure!(
        http.status == 206 && http.ranges && http.keeps_alive && http.file_bytes == Some(size),
        "{http:?}"
    );
    let software = http.software.as_deref().unwrap_or_default();
    ensure!(software.starts_with("nginx"), "{http:?}");
    Ok(())
}

/// Everything that dnsmasq and tftpd-hpa can be made to do wrong at once.
pub(crate) fn dhcp_and_blocks(lab: &Lab) -> Result<()> {
    let faults = [
        Fault::LateDhcp,
        Fault::TwoDhcp,
        Fault::Option43,
        Fault::NoBlksize,
    ];
    let report = examined(lab, &faults, LONGEST)?;
    let wanted = ["several-servers", "vendor-options", "block-size", "window"];
    let seconds = findings(&report, &[wanted.as_slice(), &["late-offer"]].concat())?;
    let late = seconds.get("late-offer").copied().unwrap_or_default();
    ensure!(late >= 5.0, "{late} s");
    ensure!(
        report
            .network
            .transfers
            .iter()
            .all(|one| one.block_bytes == 512)
    );
    arrived(&report)
}

/// Lost packets cost timers.
pub(crate) fn loss(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::Loss], LONG_ENOUGH)?;
    let all: Vec<_> = report.findings.iter().map(|one| one.id.as_str()).collect();
    ensure!(all.contains(&"loss"), "{all:?}");
    ensure!(!all.contains(&"slow-server"), "{all:?}");
    Ok(())
}

/// DHCP gives an address, and that is all.
pub(crate) fn no_boot_file(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::NoBootFile], LONG_ENOUGH)?;
    findings(&report, &["no-boot-file"])?;
    ensure!(report.network.transfers.is_empty());
    Ok(())
}

/// DHCP names a file that the server has not.
pub(crate) fn missing_file(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::MissingFile], LONG_ENOUGH)?;
    findings(&report, &["refused"])?;
    let refused = |one: &wireboot_report::network::Transfer| {
        one.file == "grubx46.efi" && one.outcome == Outcome::Refused
    };
    ensure!(
        report.network.transfers.iter().any(refused),
        "{:?}",
        report.network.transfers
    );
    Ok(())
}

/// The boot file, by the name that DHCP gives.
const LOADED: &str = "bootnetx64.efi";

/// Boots whose times inside and outside are compared, until those of one agree. On an idle host each does so, within 1 % or 2 ms; on a busy one a
/// packet may wait between the two places.
const COMPARED: usize = 3;

/// doctor.efi loads the boot option twice and starts nothing, and the packets outside say the same as those that it saw inside. Then it
/// returns, and the firmware boots by that option as ever.
pub(crate) fn dry_boot(lab: &Lab) -> Result<()> {
    let mut compared = Vec::new();
    for _ in 0..COMPARED {
        let (inside_s, outside_s) = inside_and_outside(lab)?;
        if (inside_s - outside_s).abs() < 0.02_f64.max(0.1 * outside_s) {
            return Ok(());
        }
        compared.push((inside_s, outside_s));
    }
    bail!("from request to last acknowledgement, inside and outside, in s: {compared:?}");
}

/// doctor.efi loads the boot option by HTTP twice, from nginx, and the packets outside are of the same file. Then the firmware boots by that option.
pub(crate) fn dry_boot_by_http(lab: &Lab) -> Result<()> {
    let trial = Trial {
        planted: Some(&planted_program()?),
        ..Trial::healthy(accel::best(lab, false)?, LONGEST)
    };
    let examination = Examination {
        program: &doctor_program()?,
        words: "boot runs=2 options=1",
        http: true,
        counts_instructions: false,
        goes_on: true,
    };
    let report = examine_inside(
        lab,
        &trial,
        examination,
        &lab.scratch().join(OUTSIDE),
        |_| {},
    )?;
    println!("{}", shown(&report));
    let dry = report.dry_boot().context("nothing was loaded")?;
    ensure!(dry.runs_s.len() == 2 && dry.failure.is_none(), "{dry:?}");
    ensure!(dry.option.contains("HTTPv4"), "{dry:?}");
    let bytes = |network: &Network| -> Vec<u64> {
        let files = network.transfers.iter();
        let whole = files.filter(|one| {
            one.protocol == Protocol::Http
                && one.file.ends_with(LOADED)
                && one.outcome == Outcome::Complete
        });
        whole.map(|one| one.bytes).collect()
    };
    let inside = bytes(&dry.network);
    let [with_head] = inside[..] else {
        bail!("{dry:?}")
    };
    let file = dry.bytes.context("no size")?;
    ensure!((file + 1..file + 1000).contains(&with_head), "{dry:?}");
    let outside = examine(&lab.scratch().join(OUTSIDE), None)?;
    let outside = bytes(&outside.network);
    // The third is the boot.
    ensure!(outside == [with_head; 3], "{with_head}, {outside:?}");
    Ok(())
}

/// From request to last acknowledgement of a boot file that doctor.efi has loaded, in seconds.
fn inside_and_outside(lab: &Lab) -> Result<(f64, f64)> {
    let inside = inside(lab, &[], "boot runs=2 options=1", true)?;
    let dry = inside.dry_boot().context("nothing was loaded")?;
    ensure!(dry.runs_s.len() == 2 && dry.failure.is_none(), "{dry:?}");
    ensure!(dry.packets > 100 && dry.packets_lost == 0, "{dry:?}");

    let whole = |report: &Report| -> Vec<f64> {
        let files = report.network.transfers.iter();
        let whole =
            files.filter(|one| one.file.ends_with(LOADED) && one.outcome == Outcome::Complete);
        whole.map(|one| one.seconds()).collect()
    };
    let outside = whole(&examine(&lab.scratch().join(OUTSIDE), None)?);
    // The third is the boot.
    ensure!(outside.len() >= 3, "{outside:?}");
    let of_dry = Report {
        network: dry.network.clone(),
        ..Report::new()
    };
    let seen = whole(&of_dry);
    let (Some(inside_s), Some(outside_s)) = (seen.first(), outside.get(1)) else {
        bail!("{seen:?}, {outside:?}");
    };
    Ok((*inside_s, *outside_s))
}

/// A network without IPv4: the firmware loads its boot file over IPv6, it and wireboot fetch a file in one size, Debian's iperf3 takes what is sent,
/// and the firmware boots so afterwards.
pub(crate) fn over_ipv6(lab: &Lab) -> Result<()> {
    let root = lab.scratch().join("root");
    fs::create_dir_all(&root)?;
    fs::write(root.join("swept"), vec![7; SWEPT])?;
    let words = format!(
        "boot options=1 sweep file=swept block=1448 window=50 rounds=1 iperf3={SERVER6} time=3"
    );
    let report = inside_over(lab, IpVersion::V6, &[], &words, true)?;
    findings(&report, &[])?;
    let dry = report.dry_boot().context("nothing was loaded")?;
    ensure!(dry.failure.is_none() && dry.packets > 100, "{dry:?}");
    let mut files = dry.network.transfers.iter();
    let file = files.find(|one| one.file.ends_with(LOADED) && one.outcome == Outcome::Complete);
    let file = file.context("the boot file did not come")?;
    ensure!(file.server == SERVER6.to_string(), "{file:?}");
    let came = |by| {
        let mut cells = wireboot_report::sweep::of(&report.sweep, by, 6);
        cells.any(|cell| cell.came() && cell.granted_window == Some(50))
    };
    ensure!(
        came(By::Firmware) && came(By::Wireboot),
        "{:?} {:?}",
        report.sweep,
        report.not_measured
    );
    let [sent] = &report.throughput[..] else {
        bail!("{:?} {:?}", report.throughput, report.not_measured);
    };
    ensure!(sent.received_bytes() > 1 << 20, "{sent:?}");
    Ok(())
}

/// The firmware asks a slow name server for the server of its boot file, and loads that all the same.
pub(crate) fn slow_names(lab: &Lab) -> Result<()> {
    let faults = [Fault::SlowNames];
    let report = inside_over(lab, IpVersion::V6, &faults, "boot options=1", false)?;
    let seconds = findings(&report, &["names"])?;
    let lost = seconds.get("names").copied().unwrap_or_default();
    // The server waits for 1 s by the host's clock; the machine's may be a little slower.
    ensure!((0.99..20.0).contains(&lost), "{lost} s");
    let dry = report.dry_boot().context("nothing was loaded")?;
    ensure!(dry.failure.is_none(), "{dry:?}");
    Ok(())
}

/// A card that only its option ROM can drive: what the ROM's UNDI brings is measured, and the firmware boots by it afterwards.
pub(crate) fn over_undi(lab: &Lab) -> Result<()> {
    let hardware = Hardware {
        card: Some("e1000".into()),
        rom: Some("/usr/lib/ipxe/qemu/efi-e1000.rom".into()),
        ..Hardware::default()
    };
    let trial = Trial {
        hardware: &hardware,
        ..Trial::healthy(accel::best(lab, false)?, LONGEST)
    };
    let words = "frames iperf3=10.77.0.1 driver=undi time=3";
    let report = inside_of(lab, trial, words, true)?;
    has_frames_of(&report, &[DRIVER, SNP, UNDI, MNP])?;
    let [sent] = &report.throughput[..] else {
        bail!("{:?}", report.throughput);
    };
    ensure!(
        sent.driver == BY_UNDI && sent.received_bytes() > 1 << 20,
        "{sent:?}"
    );
    Ok(())
}

/// doctor.efi counts what the firmware calls while it fetches its boot file, and samples where the processor is meanwhile. Nothing of that is
/// left: the firmware boots as ever.
pub(crate) fn calls_and_samples(lab: &Lab) -> Result<()> {
    let report = inside(lab, &[], "check trace profile rounds=1", true)?;
    ensure!(report.not_measured.is_empty(), "{:?}", report.not_measured);
    findings(&report, &[])?;
    let build = report.build.as_ref().context("nothing about the build")?;
    // Debian's OVMF fills memory though it is a RELEASE build.
    ensure!(build.images > 50 && build.pool_filled, "{build:?}");
    let receivers: BTreeMap<_, _> = report
        .receivers
        .iter()
        .map(|one| (one.image.as_str(), one.ether_type))
        .collect();
    let own = [("ArpDxe", 0x0806), ("Ip4Dxe", 0x0800), ("Ip6Dxe", 0x86dd)];
    ensure!(receivers == own.into(), "{receivers:?}");
    ensure!(report.network_drivers.iter().any(|one| one == "MnpDxe"));

    let trace = report.trace.context("no calls")?;
    let looking = trace.looking.context("nothing about looking")?;
    ensure!(looking.plain_s.len() == 1 && looking.timed_s.len() == 1);
    let transfer = trace.transfer.context("no transfer")?;
    ensure!(transfer.file.ends_with(LOADED), "{}", transfer.file);
    // Blocks of 1468 bytes, and their acknowledgements: one for a window of four.
    let blocks = transfer.bytes / 1468;
    ensure!(transfer.received >= blocks && transfer.sent >= blocks / 4);
    ensure!(transfer.calls_of("SNP.Receive") >= transfer.received);
    ensure!(transfer.calls_of("SNP.Transmit") >= transfer.sent);
    // The network's own driver asks the card's.
    let by_mnp = |one: &wireboot_report::trace::Called| {
        one.service == "SNP.Receive" && one.image == "MnpDxe"
    };
    ensure!(transfer.calls.iter().any(by_mnp), "{:?}", transfer.calls);

    let profile = report.profile.context("no samples")?;
    let named: u64 = profile
        .images
        .iter()
        .filter(|one| !one.name.is_empty())
        .map(|one| one.samples)
        .sum();
    ensure!(
        profile.samples > 50 && named * 10 >= profile.samples * 9,
        "{profile:?}"
    );
    Ok(())
}

/// How far the part of an image may be from what QEMU sees, where each side has some thousand samples.
const SHARES_DIFFER: f64 = 0.05;
/// The fewest that tell.
const FEWEST: usize = 1000;

/// The images in which doctor.efi finds the processor are those in which QEMU sees it, as often.
pub(crate) fn profile_as_qemu_sees_it(lab: &Lab) -> Result<()> {
    let trial = Trial::healthy(accel::best(lab, false)?, LONGEST);
    let program = doctor_program()?;
    let examination = Examination {
        program: &program,
        words: "profile file=linux",
        http: false,
        counts_instructions: false,
        goes_on: false,
    };
    let capture = lab.scratch().join(OUTSIDE);
    // Before that the firmware waits for offers, and not for a file.
    let begin = Regex::new(", turn 1")?;
    let (report, positions) = examine_sampled(lab, &trial, examination, &capture, &begin)?;
    println!("{}", shown(&report));
    let profile = report.profile.as_ref().context("no samples")?;
    let nameless = profile.images.iter().filter(|one| one.name.is_empty());
    let nameless: u64 = nameless.map(|one| one.samples).sum();
    ensure!(
        nameless * 100 <= profile.samples * 3,
        "{nameless} of {} samples have no name",
        profile.samples
    );
    // Between two turns doctor.efi itself waits for its AP: QEMU sees that, and no sample is taken then.
    let firmwares = |one: &&ProfiledImage| !one.name.is_empty() && one.name != "BOOTX64.EFI";
    let seen = positions.iter().filter_map(|at| profile.at(*at));
    let seen: Vec<_> = seen.filter(firmwares).collect();
    let in_images = seen.len();
    let images = || profile.images.iter().filter(firmwares);
    let inside: u64 = images().map(|one| one.samples).sum();
    println!(
        "{} looks by QEMU, {in_images} of them in the firmware's images in which doctor.efi found the processor {inside} times",
        positions.len()
    );
    ensure!(
        in_images >= FEWEST && inside >= FEWEST as u64,
        "too few samples"
    );
    let mut differ = Vec::new();
    for image in images() {
        let by_qemu = seen.iter().filter(|one| **one == image).count();
        let share = image.samples as f64 / inside as f64;
        let by_qemu = by_qemu as f64 / in_images as f64;
        println!(
            "{:<24} {:5.1} % {:5.1} %",
            image.name,
            share * 100.0,
            by_qemu * 100.0
        );
        if (share - by_qemu).abs() >= SHARES_DIFFER {
            differ.push(image.name.as_str());
        }
    }
    ensure!(
        differ.is_empty(),
        "{differ:?}: QEMU sees the processor there more or less often"
    );
    Ok(())
}

/// Services that OVMF with a virtio-net card has.
const SERVICES: [&str; 26] = [
    "GetVariable",
    "GetVariable, none there",
    "SetVariable",
    "SetVariable, non-volatile",
    "GetTime",
    "GetNextMonotonicCount",
    "Stall, 1 us",
    "RaiseTPL + RestoreTPL",
    "CreateEvent + CloseEvent",
    "LocateProtocol",
    "SignalEvent",
    "CheckEvent",
    "SetTimer",
    "AllocatePool + FreePool",
    "AllocatePages + FreePages",
    "ConIn.ReadKeyStroke",
    "QueueDpc + DispatchDpc",
    "ConOut.OutputString",
    "OutputString, screen",
    "OutputString, serial",
    "SNP.GetStatus",
    "SNP.Receive",
    "PciIo.Pci.Read",
    "PciIo.Flush",
    "PciIo.Io.Read",
    "PciIo.Map + Unmap",
];

/// Each service is called as often as was asked for, and nothing is left of it.
pub(crate) fn cost(lab: &Lab) -> Result<()> {
    let report = inside(lab, &[], "cost calls=200 nv=2", false)?;
    ensure!(report.not_measured.is_empty(), "{:?}", report.not_measured);
    findings(&report, &[])?;
    for service in SERVICES {
        let cost = report.cost(service);
        let cost = cost.with_context(|| format!("{service} was not measured"))?;
        let calls = match service {
            "SetVariable, non-volatile" => 2,
            _ => 200,
        };
        ensure!(cost.calls == calls, "{cost:?}");
        let times = [
            cost.fastest_ns,
            cost.median_ns,
            cost.p99_ns,
            cost.slowest_ns,
        ];
        ensure!(times.is_sorted() && cost.slowest_ns > 0, "{cost:?}");
    }
    // The clock waits for no less than it is told; a busy host makes all figures wrong by up to two.
    let stall_ns = report.cost("Stall, 1 us").map_or(0, |one| one.median_ns);
    ensure!((400..20_000).contains(&stall_ns), "{stall_ns} ns");
    let timer = report.timer.as_ref().context("no tick was seen")?;
    // 10 ms, and what a busy host makes of it.
    ensure!((5000.0..40_000.0).contains(&timer.period_us), "{timer:?}");
    let stolen = report.stolen.as_ref().context("no time was looked for")?;
    ensure!(
        (0.5..10.0).contains(&stolen.looked_s) && stolen.smis.is_none(),
        "{stolen:?}"
    );
    ensure!(stolen.stolen_s <= stolen.looked_s, "{stolen:?}");
    Ok(())
}

/// The firmware's own faults are all named, the one that costs seconds first.
pub(crate) fn planted(lab: &Lab) -> Result<()> {
    let faults = [
        Fault::SlowTime,
        Fault::SlowVariables,
        Fault::SlowConsole,
        Fault::Receivers,
        Fault::DebugBuild,
        Fault::NoRng,
    ];
    let words = "check cost trace calls=200 rounds=1 file=linux";
    let report = inside(lab, &faults, words, false)?;
    let seconds = findings(
        &report,
        &[
            "time-per-packet",
            "slow-get-time",
            "slow-variables",
            "slow-console",
            "receivers",
            "debug-build",
            "no-rng",
        ],
    )?;
    // A busy host takes time from the machine, which is found, too.
    let mut firmwares = report.findings.iter().map(|one| one.id.as_str());
    let first = firmwares.find(|id| *id != "stolen-time");
    ensure!(first == Some("time-per-packet"), "{first:?}");
    // 1 ms for each packet of more than 4 MB, and what a busy host makes of it.
    let lost = seconds.get("time-per-packet").copied().unwrap_or_default();
    ensure!((3.0..60.0).contains(&lost), "{lost} s");
    // 16 characters.
    let console_ns = report.cost("ConOut.OutputString").map(|one| one.median_ns);
    ensure!(console_ns.is_some_and(|median| median > 16_000_000));
    let planted = |image: &str| image == "wireboot-planted.efi";
    let more = report.receivers.iter().filter(|one| planted(&one.image));
    ensure!(more.count() == 4, "{:?}", report.receivers);
    let build = report.build.context("nothing about the build")?;
    ensure!(
        build.asserting.len() == 1 && build.asserting.iter().all(|one| planted(one)),
        "{build:?}"
    );
    Ok(())
}

/// What others have replaced before stays theirs: the firmware is as doctor.efi found it, and boots.
pub(crate) fn planted_stays(lab: &Lab) -> Result<()> {
    let faults = [Fault::SlowTime, Fault::SlowVariables, Fault::Receivers];
    let report = inside(lab, &faults, "check trace rounds=1", true)?;
    findings(&report, &["time-per-packet", "receivers"]).map(drop)
}

/// Somebody stops the machine again and again.
pub(crate) fn stopped(lab: &Lab) -> Result<()> {
    let report = inside(lab, &[Fault::StoppedMachine], "cost calls=200", false)?;
    findings(&report, &["stolen-time"])?;
    let longest_us = report.stolen.map_or(0.0, |stolen| stolen.longest_us);
    ensure!(longest_us > 250_000.0, "{longest_us} us");
    Ok(())
}

/// doctor.efi reads how OVMF has memory cached, gives the card's buffers other types for a while, and takes them back.
pub(crate) fn dma(lab: &Lab) -> Result<()> {
    let report = inside(lab, &[], "dma", true)?;
    findings(&report, &[])?;
    ensure!(report.not_measured.is_empty(), "{:?}", report.not_measured);
    ensure!(report.findings.is_empty(), "{:?}", report.findings);
    let memory = report.memory.as_ref().context("no memory")?;
    for what in [CARDS, ORDINARY] {
        let region = memory.region(what).context(what)?;
        ensure!(region.memory_type.as_deref() == Some("WB"), "{region:?}");
        ensure!(region.gcd.as_deref() == Some("WB"), "{region:?}");
        ensure!(region.mapped_elsewhere == Some(false), "{region:?}");
        let rates = region.rates.iter();
        let measured = rates.filter(|rate| rate.mb_per_s > 0.0).count();
        ensure!(measured == 3, "{region:?}");
    }
    let mut bars = memory.regions.iter();
    let bar = bars.find(|one| one.what.starts_with("BAR "));
    let bar = bar.context("no BAR")?;
    let types = (bar.memory_type.as_deref(), bar.gcd.as_deref());
    ensure!(types == (Some("UC"), Some("UC")), "{bar:?}");
    // Each was seen while it was so.
    let ways = memory.receive.iter();
    let ways: Vec<_> = ways
        .map(|one| (one.what.as_str(), one.memory_type.as_deref()))
        .collect();
    let wanted = [
        ("as they are", Some("WB")),
        ("flush of each buffer", Some("WB")),
        ("GetTime for each", Some("WB")),
        ("64-bit division for each", Some("WB")),
        ("uncached", Some("UC")),
        ("write-combined", Some("WC")),
    ];
    ensure!(ways == wanted, "{ways:?}");
    let packets = memory.receive.iter().map(|one| one.packets);
    ensure!(packets.min() > Some(0), "{:?}", memory.receive);
    Ok(())
}

/// Buffers that are not cached are found, and cached again afterwards.
pub(crate) fn uncached_memory(lab: &Lab) -> Result<()> {
    let report = inside(lab, &[Fault::UncachedMemory], "dma", false)?;
    let all: Vec<_> = report.findings.iter().map(|one| one.id.as_str()).collect();
    ensure!(all == ["uncached-memory"], "{all:?}");
    let memory = report.memory.as_ref().context("no memory")?;
    let kind = |what| memory.region(what)?.memory_type.as_deref();
    ensure!(kind(CARDS) == Some("UC") && kind(ORDINARY) == Some("WB"));
    Ok(())
}

pub(crate) fn has_all_frames(report: &Report) -> Result<()> {
    has_frames_of(report, &[DRIVER, SNP, MNP])
}

/// Full frames and the smallest, of each of these.
fn has_frames_of(report: &Report, drivers: &[&str]) -> Result<()> {
    ensure!(report.not_measured.is_empty(), "{:?}", report.not_measured);
    let ladder = report.ladder.as_ref().context("no ladder")?;
    let rungs = ladder.rungs.iter();
    let rungs: Vec<_> = rungs.map(|one| (one.what.as_str(), one.full)).collect();
    let wanted = drivers
        .iter()
        .flat_map(|what| [(*what, true), (*what, false)]);
    ensure!(rungs.iter().copied().eq(wanted), "{rungs:?}");
    for rung in &ladder.rungs {
        ensure!(rung.packets > 0 && rung.mbit_s > 0.0, "{rung:?}");
        ensure!(rung.receivers.is_some() == (rung.what == MNP), "{rung:?}");
    }
    ensure!(ladder.sender == "10.77.0.1", "{}", ladder.sender);
    Ok(())
}

/// The file of a sweep: its last block is not full, in any size.
const SWEPT: usize = 200_001;

/// The firmware and wireboot fetch a file in all sizes, and atftpd grants what they ask for.
pub(crate) fn sweep(lab: &Lab) -> Result<()> {
    let root = lab.scratch().join("root");
    fs::create_dir_all(&root)?;
    fs::write(root.join("swept"), vec![7; SWEPT])?;
    let report = inside(lab, &[], "sweep file=swept rounds=1", false)?;
    // There is no option to boot over IPv6.
    let mut missing = report.not_measured.iter();
    let all = missing.all(|one| one.reason.starts_with("over IPv6"));
    ensure!(all, "{:?}", report.not_measured);
    let of = |by| wireboot_report::sweep::of(&report.sweep, by, 4);
    ensure!(of(By::Firmware).count() == 7 * 7 && of(By::Wireboot).count() == 7 * 9);
    // atftpd knows no windows that vary.
    let (varying, fixed): (Vec<_>, Vec<_>) = report.sweep.iter().partition(|cell| cell.varying);
    let refused = |cell: &&Cell| cell.failure.as_deref() == Some(NOT_GRANTED);
    ensure!(
        varying.len() == 7 && varying.iter().all(refused),
        "{varying:?}"
    );
    for cell in fixed {
        let granted = (cell.granted_block_bytes, cell.granted_window);
        let asked = (Some(cell.block_bytes), cell.window.or(granted.1));
        ensure!(cell.came() && granted == asked, "{cell:?}");
        ensure!(cell.bytes == SWEPT as u64, "{cell:?}");
    }
    let one = "sweep file=swept block=1456 window=50 rounds=1";
    let report = inside(lab, &[], one, false)?;
    let sizes = report.sweep.iter().map(|cell| {
        let granted = (cell.granted_block_bytes, cell.granted_window);
        (cell.by, granted, cell.bytes)
    });
    let granted = (Some(1456), Some(50));
    let all = [By::Firmware, By::Wireboot].map(|by| (by, granted, SWEPT as u64));
    ensure!(sizes.eq(all), "{:?}", report.sweep);
    Ok(())
}

/// A doctor.efi that makes one check, a quick one.
fn short_examination(lab: &Lab) -> Result<PathBuf> {
    examination_of(lab, "check")
}

/// A doctor.efi that makes these checks.
pub(crate) fn examination_of(lab: &Lab, checks: &str) -> Result<PathBuf> {
    let program = lab.scratch().join("short.efi");
    embed::configuration(&doctor_program()?, &format!("{checks}\n"), &program)?;
    Ok(program)
}

/// The machine gets doctor.efi by PXE, the server sends it frames and a file to measure, and gets its report.
pub(crate) fn report_comes_to_the_server(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let reports = lab.scratch().join("reports");
    let kept = reports.to_str().context("a path that is no text")?;
    let words = "check frames sweep file=data.cpio block=1456 window=50 rounds=1";
    let program = examination_of(lab, words)?;
    let _server = fixture.serve_program(&program, &["--reports", kept])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, r"doctor-check: check\r?\n")?;
    expect(
        &mut machine,
        r"wireboot: the report was sent to http://10\.77\.0\.1/report",
    )?;
    let mut report = sole_report(&reports)?;
    // There is no option to boot over IPv6.
    report.not_measured.retain(|one| one.check != "sweep");
    // The base code by which it came was stopped for that, and started again.
    let came = report.sweep.iter().filter(|cell| cell.came()).count();
    ensure!(came == 2, "{:?} {:?}", report.sweep, report.not_measured);
    has_all_frames(&report)
}

/// The menu of our server's own configuration offers it. The machine is examined with its firmware's network, and the report comes back.
pub(crate) fn from_the_menu(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let directory = &fixture.system.directory;
    fs::remove_file(directory.join("wireboot.conf"))?;
    // With one thing to boot there is no menu.
    fs::copy(callers_program()?, directory.join("callers.efi"))?;
    fs::copy(short_examination(lab)?, directory.join("doctor.efi"))?;
    let reports = lab.scratch().join("reports");
    let kept = reports.to_str().context("a path that is no text")?;
    let _server = fixture.serve(&["--reports", kept])?;
    let mut machine = fixture.start()?;
    let offered = expect(&mut machine, r"  \d  Diagnose this machine\s")?;
    let number = offered.trim().chars().next().context("no number")?;
    expect(&mut machine, r"Esc leaves\)")?;
    machine.console.send(&number.to_string())?;
    for line in [
        r#"wireboot: booting "Diagnose this machine""#,
        r"wireboot: starting efi http://10\.77\.0\.1/doctor\.efi over the firmware's network",
        r"doctor-check: check\r?\n",
        r"wireboot: the report was sent to http://10\.77\.0\.1/report",
    ] {
        expect(&mut machine, line)?;
    }
    sole_report(&reports).map(drop)
}

/// The image of a stick boots, and has the reports afterwards. A check that an examination did not come out of is left out of the next one.
pub(crate) fn report_lies_on_the_stick(lab: &Lab) -> Result<()> {
    let image = lab.scratch().join("stick.img");
    stick::make(&image, &short_examination(lab)?, None)?;
    let machine = with_stick(lab, &image)?;
    let examined = || {
        let mut running = machine.start(lab, "doctor", |_| {})?;
        let kept = r"wireboot: kept on the disk as (\S+)";
        let name = expect(&mut running, kept)?;
        // Nothing is left of what the check that ran was called, so the examination is over.
        expect(&mut running, r"BdsDxe: |UEFI Interactive Shell")?;
        Ok::<_, anyhow::Error>(name)
    };
    examined()?;
    let first = on_stick(&image, |root| {
        ensure!(root.open_file(RUNNING).is_err());
        let first = report_in(root, "doctor-1.json")?;
        root.create_file(RUNNING)?.write_all(b"check\r\n")?;
        Ok(first)
    })?;
    ensure!(first.machine.firmware.is_some() && first.not_measured.is_empty());
    examined()?;
    on_stick(&image, |root| {
        let second = report_in(root, "doctor-2.json")?;
        let [left_out] = second.not_measured.as_slice() else {
            bail!("{:?}", second.not_measured);
        };
        ensure!(left_out.check == "check" && second.machine.firmware.is_none());
        ensure!(report_in(root, "doctor-1.json")? == first);
        ensure!(root.open_file(RUNNING).is_err());
        Ok(())
    })
}

/// A check hangs: the firmware resets the machine after the check's 10 s, and the next examination says which it was, leaves it out and makes the others.
pub(crate) fn check_that_hangs(lab: &Lab) -> Result<()> {
    let image = lab.scratch().join("stick.img");
    let program = lab.scratch().join("hangs.efi");
    let words = "check cost calls=10 fault=check\n";
    embed::configuration(&faulty_doctor()?, words, &program)?;
    stick::make(&image, &program, None)?;
    let machine = with_stick(lab, &image)?;
    let mut hanging = machine.start(lab, "doctor", |_| {})?;
    expect(&mut hanging, r"doctor-check: check\r?\n")?;
    let ended = hanging.wait(PATIENCE)?;
    ensure!(
        ended.is_some_and(|status| status.success()),
        "no reset: {ended:?}"
    );
    let mut next = machine.start(lab, "doctor", |_| {})?;
    expect(&mut next, r"wireboot: kept on the disk as doctor-1\.json")?;
    expect(&mut next, r"BdsDxe: |UEFI Interactive Shell")?;
    on_stick(&image, |root| {
        let report = report_in(root, "doctor-1.json")?;
        let [left_out] = report.not_measured.as_slice() else {
            bail!("{:?}", report.not_measured);
        };
        ensure!(left_out.check == "check" && report.machine.firmware.is_none());
        ensure!(!report.costs.is_empty(), "the next check was not made");
        ensure!(root.open_file(RUNNING).is_err());
        Ok(())
    })
}

/// A machine that boots from a stick.
fn with_stick(lab: &Lab, image: &Path) -> Result<Machine> {
    let mut machine = Machine::new(accel::best(lab, false)?);
    let drive = format!("if=none,id=stick,format=raw,file={}", image.display());
    let usb = "usb-storage,drive=stick,bootindex=1,removable=on";
    for argument in ["-drive", &drive, "-device", "qemu-xhci", "-device", usb] {
        machine.extra.push(argument.into());
    }
    Ok(machine)
}

const RUNNING: &str = "doctor-running.txt";

type Folder<'a, 'b> = Dir<'a, Cursor<&'b mut [u8]>>;

/// Looks into the stick's partition, and keeps what is changed there.
fn on_stick<T>(image: &Path, look: impl FnOnce(&Folder<'_, '_>) -> Result<T>) -> Result<T> {
    let mut bytes = fs::read(image)?;
    let partition = bytes.get_mut(1 << 20..).context("no partition")?;
    let volume = FileSystem::new(Cursor::new(partition), FsOptions::new())?;
    let seen = look(&volume.root_dir())?;
    volume.unmount()?;
    fs::write(image, bytes)?;
    Ok(seen)
}

fn report_in(root: &Folder<'_, '_>, name: &str) -> Result<Report> {
    let mut text = String::new();
    let mut file = root.open_file(name).context(name.to_owned())?;
    file.read_to_string(&mut text)?;
    Report::from_json(&text).context(name.to_owned())
}

/// The only file there is the report of the lab's machine.
pub(crate) fn sole_report(reports: &Path) -> Result<Report> {
    let files = fs::read_dir(reports)?.collect::<io::Result<Vec<_>>>()?;
    let [file] = files.as_slice() else {
        bail!("{} files in {}", files.len(), reports.display());
    };
    let report = Report::from_json(&fs::read_to_string(file.path())?)?;
    ensure!(
        report.machine.mac == "52:54:00:77:00:02",
        "{:?}",
        report.machine
    );
    let model = report.machine.model.as_deref().unwrap_or_default();
    ensure!(model.starts_with("QEMU Standard PC"), "{model}");
    Ok(report)
}
