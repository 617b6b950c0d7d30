//! Which services the firmware's network drivers called, how often, from where, and how long they took.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What a network boot and a transfer of the firmware's called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// A whole network boot up to its file: address, questions to servers, file. Nothing was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<Traced>,
    /// A file by TFTP alone, the fastest of several times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Traced>,
    /// What looking costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looking: Option<Looking>,
}

/// The calls in a boot or transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traced {
    /// What was fetched.
    pub file: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// How long all of it took, in seconds.
    pub took_s: f64,
    /// Frames that the firmware's driver gave to whoever asked.
    pub received: u64,
    /// Frames that it took.
    pub sent: u64,
    /// Calls, by service and caller. Rare ones of a service are together, their caller empty.
    pub calls: Vec<Called>,
    /// Calls that there was no room to note.
    pub lost: u64,
}

/// The calls of a service from one image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Called {
    /// The service's name in the specification: `GetTime`, `SNP.Receive`, `PciIo.Mem.Write`.
    pub service: String,
    /// The image that called: `MnpDxe`.
    pub image: String,
    /// Number of calls.
    pub calls: u64,
    /// Seconds in the service, without those in traced services that it called. `None` where calls were only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_s: Option<f64>,
}

/// The same transfer by turns: not looked at, its calls counted, and their times taken. Seconds of each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Looking {
    /// While nobody counted or timed its calls.
    pub plain_s: Vec<f64>,
    /// While its calls were counted and not timed.
    pub counted_s: Vec<f64>,
    /// Calls counted and timed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timed_s: Vec<f64>,
    /// What counting costs of a packet's work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counting_work: Option<PacketWork>,
    /// What counting and timing cost of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing_work: Option<PacketWork>,
}

/// The processor's work for a packet of a file, waits left out: from the call that brought it to the driver's next one, in ticks of the time-stamp
/// counter. The least of all turns, on average of 128 packets in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketWork {
    /// While nobody counted or timed its calls.
    pub plain: u64,
    /// While its calls were counted or timed.
    pub looked: u64,
}

impl PacketWork {
    /// How much more it is when it is looked at, as a part of that without; `None` where that is not known.
    pub fn overhead(&self) -> Option<f64> {
        (self.plain > 0).then(|| self.looked as f64 / self.plain as f64 - 1.0)
    }
}

impl Looking {
    /// How much longer the transfer takes when its calls are counted, as a part of its time without: of the fastest runs, which others on the
    /// machine and its network disturb least. `None` where that is not known.
    pub fn counting(&self) -> Option<f64> {
        self.costs(&self.counted_s)
    }

    /// The same for calls that are counted and timed.
    pub fn timing(&self) -> Option<f64> {
        self.costs(&self.timed_s)
    }

    fn costs(&self, looked_s: &[f64]) -> Option<f64> {
        let fastest = |runs: &[f64]| runs.iter().copied().reduce(f64::min);
        let plain_s = fastest(&self.plain_s).filter(|seconds| *seconds > 0.0)?;
        Some(fastest(looked_s)? / plain_s - 1.0)
    }
}

impl Traced {
    /// Calls of a service from all images.
    pub fn calls_of(&self, service: &str) -> u64 {
        self.of(service).map(|one| one.calls).sum()
    }

    /// Seconds in a service, from all images; `None` where calls were only counted, or there was none.
    pub fn own_s_of(&self, service: &str) -> Option<f64> {
        self.of(service)
            .filter_map(|one| one.own_s)
            .reduce(|sum, one| sum + one)
    }

    fn of(&self, service: &str) -> impl Iterator<Item = &Called> {
        let calls = self.calls.iter();
        calls.filter(move |one| one.service == service)
    }

    /// Calls of services by name: each service's calls and seconds from all images, what is only counted first, then the longest, then the most.
    pub fn services(&self) -> Vec<Called> {
        let mut sums: BTreeMap<&str, Called> = BTreeMap::new();
        for one in &self.calls {
            let sum = sums.entry(&one.service).or_insert_with(|| Called {
                service: one.service.clone(),
                ..Called::default()
            });
            sum.calls = sum.calls.saturating_add(one.calls);
            sum.own_s = match (sum.own_s, one.own_s) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            };
        }
        let mut services: Vec<_> = sums.into_values().collect();
        services.sort_by(|one, other| {
            // What is only counted among what is timed may be most of all.
            let seconds = |called: &Called| called.own_s.unwrap_or(f64::INFINITY);
            let by_time = seconds(other).total_cmp(&seconds(one));
            by_time.then(other.calls.cmp(&one.calls))
        });
        services
    }

    /// So many for each frame received, of `number`.
    pub fn per_packet(&self, number: f64) -> f64 {
        number / (self.received as f64).max(1.0)
    }

    /// Whether its times can be.
    pub(crate) fn is_possible(&self) -> bool {
        let mut own = self.calls.iter().filter_map(|one| one.own_s);
        self.took_s >= 0.0 && own.all(|seconds| seconds >= 0.0)
    }
}

impl Trace {
    /// Whether its times can be.
    pub(crate) fn is_possible(&self) -> bool {
        let looking = self.looking.iter();
        let mut runs = looking.flat_map(|one| [&one.plain_s, &one.counted_s, &one.timed_s]);
        let mut traced = self.boot.iter().chain(&self.transfer);
        traced.all(Traced::is_possible) && runs.all(|runs| runs.iter().all(|run| *run >= 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadError, Report};
    use alloc::format;
    use alloc::vec;

    fn called(service: &str, image: &str, calls: u64, own_s: Option<f64>) -> Called {
        Called {
            service: service.into(),
            image: image.into(),
            calls,
            own_s,
        }
    }

    #[test]
    fn a_services_calls_are_those_of_all_images() {
        let traced = Traced {
            received: 10,
            calls: vec![
                called("GetTime", "a", 4, Some(0.5)),
                called("RaiseTPL", "a", 90, Some(0.1)),
                called("GetTime", "b", 6, Some(0.25)),
                called("Stall", "b", 95, Some(0.1)),
            ],
            ..Traced::default()
        };
        assert_eq!(traced.calls_of("GetTime"), 10);
        assert_eq!(traced.own_s_of("GetTime"), Some(0.75));
        assert_eq!(traced.own_s_of("SetTimer"), None);
        assert_eq!(traced.per_packet(5.0), 0.5);
        let services = traced.services();
        let names: Vec<_> = services.iter().map(|one| one.service.as_str()).collect();
        assert_eq!(names, ["GetTime", "Stall", "RaiseTPL"]);
        assert_eq!(services.first().unwrap().calls, 10);
        let mut calls = traced.calls.clone();
        calls.push(called("SetTimer", "b", 1, None));
        let with_one_counted = Traced { calls, ..traced };
        let services = with_one_counted.services();
        assert_eq!(services.first().unwrap().service, "SetTimer");
    }

    #[test]
    fn many_services_are_added_up_in_seconds() {
        let call = |number| called(&format!("service {number:06}"), "a", 1, None);
        let calls: Vec<_> = (0..60_000).chain(0..60_000).map(call).collect();
        let traced = Traced {
            calls,
            ..Traced::default()
        };
        let began = std::time::Instant::now();
        let services = traced.services();
        assert_eq!(services.len(), 60_000);
        assert!(services.iter().all(|one| one.calls == 2));
        // Each looked for among all before it: minutes.
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn looking_costs_a_part_of_the_time_without() {
        let looking = Looking {
            plain_s: vec![9.0, 2.0, 3.0],
            counted_s: vec![2.5, 2.75],
            ..Looking::default()
        };
        assert_eq!((looking.counting(), looking.timing()), (Some(0.25), None));
        let zero = Looking {
            plain_s: vec![0.0],
            ..looking
        };
        assert_eq!(zero.counting(), None);
    }

    #[test]
    fn looking_costs_a_part_of_a_packets_work() {
        let work = PacketWork {
            plain: 200,
            looked: 230,
        };
        let part = work.overhead().unwrap();
        assert!((part - 0.15).abs() < 1e-9, "{part}");
        assert_eq!(PacketWork { plain: 0, ..work }.overhead(), None);
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        for trace in [
            r#"{"boot":{"took_s":-1}}"#,
            r#"{"transfer":{"calls":[{"own_s":-0.1}]}}"#,
            r#"{"looking":{"plain_s":[1,-1]}}"#,
            r#"{"looking":{"timed_s":[-1]}}"#,
        ] {
            let text = format!(r#"{{"schema":1,"trace":{trace}}}"#);
            let error = Report::from_json(&text).unwrap_err();
            assert!(matches!(error, ReadError::Time), "{trace}");
        }
    }
}
