//! What the firmware's network drivers call.

use alloc::format;
use alloc::string::String;

use wireboot_report::Report;
use wireboot_report::trace::Traced;

use super::{Found, advice, count, listed, time};

/// So many calls for each packet are no accident.
const PER_PACKET: f64 = 0.5;
/// Fewer packets tell nothing about each.
const PACKETS: u64 = 20;
/// A smaller part of a transfer's time is not worth a word.
const SHARE: f64 = 0.01;

/// The calls of a service: how many for each packet, and their seconds if they are known, where that is worth a word.
fn per_packet(traced: &Traced, service: &str) -> Option<(f64, Option<f64>)> {
    let each = traced.per_packet(traced.calls_of(service) as f64);
    let own_s = traced.own_s_of(service);
    let tells = traced.received >= PACKETS && each >= PER_PACKET;
    let costs = own_s.is_none_or(|seconds| seconds >= traced.took_s * SHARE);
    (tells && costs).then_some((each, own_s))
}

/// What it says of them.
fn evidence(traced: &Traced, service: &str, (each, own_s): (f64, Option<f64>)) -> String {
    let callers = traced.calls.iter().filter(|one| one.service == service);
    let callers = callers.map(|one| one.image.as_str());
    let callers = listed(callers.filter(|image| !image.is_empty()));
    let spent = own_s.map_or(String::new(), |seconds| {
        format!(", {} of {}", time(seconds), time(traced.took_s))
    });
    format!(
        "{service} is called {each:.2} times for each packet received{spent}; callers: {callers}"
    )
}

/// The firmware asks for the time of day with each packet.
pub(super) fn time_per_packet(report: &Report) -> Option<Found> {
    let trace = report.trace.as_ref()?;
    let traced = trace.transfer.as_ref().or(trace.boot.as_ref())?;
    let found = per_packet(traced, "GetTime")?;
    Some(Found {
        label: "the time of day for each packet".into(),
        seconds: found.1.unwrap_or(0.0),
        evidence: evidence(traced, "GetTime", found),
        advice: advice([
            "take firmware whose network drivers are of EDK II from May 2014 or later",
            "or load no files by them: wireboot.efi is small, and reads no clock of the firmware's",
        ]),
        expected_s: found.1.map(|_| 0.0),
    })
}

/// The firmware looks at the keyboard with each packet.
pub(super) fn keyboard_per_packet(report: &Report) -> Option<Found> {
    let boot = report.trace.as_ref()?.boot.as_ref()?;
    let found = per_packet(boot, "ConIn.ReadKeyStroke")?;
    Some(Found {
        label: "the keyboard for each packet".into(),
        seconds: found.1.unwrap_or(0.0),
        evidence: evidence(boot, "ConIn.ReadKeyStroke", found),
        advice: advice([
            "switch off consoles that nobody uses in the firmware's setup: each serial port and keyboard is asked",
            "or load no large file by the firmware: wireboot.efi is small, and asks the keyboard some times a second",
        ]),
        expected_s: found.1.map(|_| 0.0),
    })
}

/// The firmware writes variables while it boots over the network.
pub(super) fn variables_written(report: &Report) -> Option<Found> {
    let boot = report.trace.as_ref()?.boot.as_ref()?;
    let calls = boot.calls_of("SetVariable");
    if calls == 0 {
        return None;
    }
    let own_s = boot.own_s_of("SetVariable");
    let writers = boot.calls.iter().filter(|one| one.service == "SetVariable");
    let writers = listed(writers.map(|one| one.image.as_str()));
    let spent = own_s.map_or(String::new(), |seconds| format!(", {}", time(seconds)));
    let calls = usize::try_from(calls).unwrap_or(usize::MAX);
    Some(Found {
        label: "variables written at each boot".into(),
        seconds: own_s.unwrap_or(0.0),
        evidence: format!(
            "SetVariable is called {} in a network boot{spent}; callers: {writers}",
            count(calls, "time")
        ),
        advice: advice([
            "ask the firmware's vendor why: flash wears out, and a write may stop all processors (SMM)",
        ]),
        expected_s: own_s.map(|_| 0.0),
    })
}
