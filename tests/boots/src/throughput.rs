//! doctor.efi against Debian's iperf3.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use wireboot_doctor::lab::IPERF3;
use wireboot_lab::netns::Lab;
use wireboot_report::Throughput;
use wireboot_report::throughput::Direction;

use crate::doctor;

/// One test, as the machine and the server tell it.
fn measured(lab: &Lab, words: &str) -> Result<(Throughput, Value)> {
    let words = format!("iperf3=10.77.0.1 time=3 {words}");
    let mut report = doctor::inside(lab, &[], &words, false)?;
    ensure!(report.not_measured.is_empty(), "{:?}", report.not_measured);
    let ours = report.throughput.pop().context("no test in the report")?;
    let theirs = fs::read_to_string(lab.scratch().join(IPERF3))?;
    let theirs = serde_json::from_str(&theirs).context("what iperf3 says")?;
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
