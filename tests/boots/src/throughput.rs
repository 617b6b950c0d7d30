//! doctor.efi against Debian's iperf3.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use wireboot_doctor::lab::IPERF3;
use wireboot_lab::netns::Lab;
use wireboot_report::throughput::Direction;
use wireboot_report::{Report, Throughput};

use crate::doctor;
use crate::fixture::wireboot;

/// The report of one test, and what the server tells of it.
fn reported(lab: &Lab, words: &str) -> Result<(Report, Value)> {
    let words = format!("iperf3=10.77.0.1 {words}");
    let report = doctor::inside(lab, &[], &words, false)?;
    ensure!(report.not_measured.is_empty(), "{:?}", report.not_measured);
    let theirs = fs::read_to_string(lab.scratch().join(IPERF3))?;
    let theirs = serde_json::from_str(&theirs).context("what iperf3 says")?;
    Ok((report, theirs))
}

/// One test of three seconds, as the machine and the server tell it.
fn measured(lab: &Lab, words: &str) -> Result<(Throughput, Value)> {
    let (mut report, theirs) = reported(lab, &format!("time=3 {words}"))?;
    let ours = report.throughput.pop().context("no test in the report")?;
    Ok((ours, theirs))
}

/// What Linux keeps for a connection of what a program has sent, in bytes (`net.ipv4.tcp_wmem`): iperf3 counts it as sent when it ends the test.
const SEND_BUFFER: f64 = 4_194_304.0;

/// Both ends count the same bytes within 1 %, and the processor's share is known.
fn agree(ours: &Throughput, theirs: &Value, streams: usize) -> Result<()> {
    let bytes = ours.received_bytes();
    let (key, under_way) = match ours.direction {
        Direction::Receive => ("/end/sum_sent/bytes", SEND_BUFFER),
        _ => ("/end/sum_received/bytes", 0.0),
    };
    let told = theirs.pointer(key).and_then(Value::as_f64);
    let told = told.with_context(|| format!("no {key} in {theirs:#}"))?;
    let missing = told - bytes as f64;
    let part = told * 0.01;
    ensure!(
        bytes > 1 << 20 && (-part..part + under_way).contains(&missing),
        "{bytes} bytes here, {told} there: {ours:#?}"
    );
    ensure!(ours.streams.len() == streams, "{ours:#?}");
    let work = ours.work.as_ref().context("no share of the processor")?;
    ensure!(work.busy_cycles > 0 && work.units > 0 && work.busy_percent <= 100.0);
    ensure!(ours.intervals.len() >= 3);
    Ok(())
}

pub(crate) fn tcp_of_four_streams(lab: &Lab) -> Result<()> {
    let (ours, theirs) = measured(lab, "parallel=4")?;
    agree(&ours, &theirs, 4)?;
    // What was acknowledged is what came.
    let (sent, came) = (ours.sent_bytes() as f64, ours.received_bytes() as f64);
    ensure!((sent / came - 1.0).abs() < 0.01, "{ours:#?}");
    Ok(())
}

pub(crate) fn tcp_reverse(lab: &Lab) -> Result<()> {
    let (ours, theirs) = measured(lab, "reverse")?;
    agree(&ours, &theirs, 1)
}

/// At a rate that every host keeps up with.
pub(crate) fn udp(lab: &Lab) -> Result<()> {
    let (ours, theirs) = measured(lab, "udp bandwidth=5000000")?;
    agree(&ours, &theirs, 1)?;
    let stream = ours.streams.first().context("no stream")?;
    let datagrams = stream.datagrams.as_ref().context("no datagrams")?;
    let told = theirs.pointer("/end/sum/packets").and_then(Value::as_f64);
    let told = told.context("no datagrams there")?;
    ensure!(
        (datagrams.sent as f64 / told - 1.0).abs() < 0.01,
        "{ours:#?}"
    );
    // 5 Mbit/s of 1472 bytes for three seconds.
    ensure!((1225..1325).contains(&datagrams.sent), "{ours:#?}");
    Ok(())
}

const BYTES: u64 = 20_000_000;

/// So many bytes in messages of 16 KiB and segments of 1000 bytes. `wireboot report --iperf3` tells of it as iperf3 does.
pub(crate) fn tcp_of_some_bytes(lab: &Lab) -> Result<()> {
    let words = format!("bytes={BYTES} length=16384 mss=1000");
    let (report, theirs) = reported(lab, &words)?;
    let [ours] = &report.throughput[..] else {
        bail!("{:?}", report.throughput);
    };
    // Whole messages leave.
    let range = BYTES..BYTES + 2 * 16384;
    ensure!(range.contains(&ours.received_bytes()), "{ours:#?}");
    ensure!(ours.mss_bytes == Some(1000), "{ours:#?}");
    let file = lab.scratch().join("throughput.json");
    fs::write(&file, report.to_json())?;
    let mut command = Command::new(wireboot()?);
    let told = command
        .args(["report", "--iperf3"])
        .arg(&file)
        .output()
        .context("starting wireboot report")?;
    let told: Value = serde_json::from_slice(&told.stdout).context("what wireboot says")?;
    for key in ["protocol", "num_streams", "blksize", "bytes", "reverse"] {
        let key = format!("/start/test_start/{key}");
        let (one, other) = (told.pointer(&key), theirs.pointer(&key));
        ensure!(one.is_some() && one == other, "{key}: {one:?}, {other:?}");
    }
    let came = "/end/sum_received/bytes";
    let [one, other] = [&told, &theirs].map(|one| one.pointer(came).and_then(Value::as_u64));
    ensure!(one.is_some() && one == other, "{one:?}, {other:?}");
    Ok(())
}
