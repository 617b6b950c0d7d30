//! Tests of throughput as iperf3 tells them (`iperf3 -J`), for whatever reads that.

use serde_json::{Value, json};
use wireboot_report::Report;
use wireboot_report::throughput::{Direction, Stream, Throughput, Transport, rate};

/// Each test as a JSON document of its own, one behind the other. What iperf3 tells and nobody measured here is left out.
pub(crate) fn documents(report: &Report) -> String {
    let each = report.throughput.iter();
    let texts = each.map(|one| serde_json::to_string_pretty(&document(report, one)));
    texts.flatten().map(|text| text + "\n").collect()
}

fn document(report: &Report, one: &Throughput) -> Value {
    let udp = one.transport == Transport::Udp;
    let connected = one.streams.iter().map(|stream| {
        let (host, port) = ends(&stream.local);
        json!({
            "socket": stream.id,
            "local_host": host,
            "local_port": port,
            "remote_host": one.server,
            "remote_port": one.port,
        })
    });
    json!({
        "start": {
            "connected": connected.collect::<Vec<_>>(),
            "version": format!("wireboot {}", report.version),
            "system_info": report.machine.firmware.as_deref().unwrap_or_default(),
            "connecting_to": { "host": one.server, "port": one.port },
            "target_bitrate": one.bandwidth_bit_s.unwrap_or(0),
            "test_start": {
                "protocol": if udp { "UDP" } else { "TCP" },
                "num_streams": one.parallel,
                "blksize": one.message_bytes,
                "omit": 0,
                "duration": one.asked_s.unwrap_or(0),
                "bytes": one.asked_bytes.unwrap_or(0),
                "blocks": 0,
                "reverse": i32::from(one.direction == Direction::Receive),
                "tos": 0,
                "target_bitrate": one.bandwidth_bit_s.unwrap_or(0),
            },
        },
        "intervals": intervals(one),
        "end": end(one),
    })
}

/// `10.77.0.50:49152` and `[fd00::1]:49152` in their parts.
fn ends(local: &str) -> (&str, u16) {
    let (host, port) = local.rsplit_once(':').unwrap_or((local, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host, port.parse().unwrap_or(0))
}

/// A span of time, and bytes in it.
fn span(start_s: f64, end_s: f64, bytes: u64, sender: bool) -> Value {
    let seconds = end_s - start_s;
    json!({
        "start": start_s,
        "end": end_s,
        "seconds": seconds,
        "bytes": bytes,
        "bits_per_second": rate(bytes, seconds),
        "sender": sender,
    })
}

/// `value` with more members.
fn with(mut value: Value, more: Value) -> Value {
    if let (Some(members), Value::Object(more)) = (value.as_object_mut(), more) {
        members.extend(more);
    }
    value
}

fn intervals(one: &Throughput) -> Vec<Value> {
    let intervals = one.intervals.iter().map(|interval| {
        let part = |bytes, sends, datagrams: Option<u64>| {
            let value = span(interval.start_s, interval.end_s, bytes, sends);
            let value = with(value, json!({ "omitted": false }));
            match datagrams {
                Some(datagrams) => with(value, json!({ "packets": datagrams })),
                None => value,
            }
        };
        let bytes = |place: usize| interval.bytes.get(place).copied().unwrap_or(0);
        let datagrams = |place: usize| interval.datagrams.get(place).copied();
        let streams = one.streams.iter().enumerate().map(|(place, stream)| {
            let part = part(bytes(place), stream.sends, datagrams(place));
            with(part, json!({ "socket": stream.id }))
        });
        let sum = |sends| {
            let places = one.streams.iter().enumerate();
            let places = places.filter(|(_, stream)| stream.sends == sends);
            let places: Vec<usize> = places.map(|(place, _)| place).collect();
            let count: Option<u64> = places.iter().map(|place| datagrams(*place)).sum();
            part(places.iter().map(|place| bytes(*place)).sum(), sends, count)
        };
        let value = json!({
            "streams": streams.collect::<Vec<_>>(),
            "sum": sum(one.direction != Direction::Receive),
        });
        match one.direction {
            Direction::Both => with(value, json!({ "sum_bidir_reverse": sum(false) })),
            _ => value,
        }
    });
    intervals.collect()
}

fn end(one: &Throughput) -> Value {
    let first = one.direction != Direction::Receive;
    let mut value = json!({
        "streams": one.streams.iter().map(stream).collect::<Vec<_>>(),
        "sum_sent": sum(one, first, true),
        "sum_received": sum(one, first, false),
    });
    if one.transport == Transport::Udp {
        value = with(value, json!({ "sum": sum(one, first, false) }));
    }
    if one.direction == Direction::Both {
        let more = json!({
            "sum_sent_bidir_reverse": sum(one, false, true),
            "sum_received_bidir_reverse": sum(one, false, false),
        });
        value = with(value, more);
    }
    let mut load = json!({});
    if let Some(work) = &one.work {
        load = with(load, json!({ "host_total": work.busy_percent }));
    }
    if let Some(share) = one.server_busy_percent {
        load = with(load, json!({ "remote_total": share }));
    }
    with(value, json!({ "cpu_utilization_percent": load }))
}

fn stream(stream: &Stream) -> Value {
    let socket = json!({ "socket": stream.id });
    let sent = span(0.0, stream.sent_s, stream.sent_bytes, stream.sends);
    let received = span(0.0, stream.received_s, stream.received_bytes, stream.sends);
    let Some(datagrams) = &stream.datagrams else {
        let again = json!({ "retransmits": stream.retransmissions });
        let sender = match stream.retransmissions {
            Some(_) => with(sent, again),
            None => sent,
        };
        return json!({ "sender": with(sender, socket.clone()), "receiver": with(received, socket) });
    };
    let own = if stream.sends { sent } else { received };
    let lost = lost(
        datagrams.jitter_ms,
        datagrams.lost,
        datagrams.received + datagrams.lost,
    );
    let mut value = with(with(own, lost), socket);
    if let Some(count) = datagrams.out_of_order {
        value = with(value, json!({ "out_of_order": count }));
    }
    json!({ "udp": value })
}

/// What became of datagrams.
fn lost(jitter_ms: f64, lost: u64, packets: u64) -> Value {
    let percent = lost as f64 * 100.0 / (packets as f64).max(1.0);
    json!({
        "jitter_ms": jitter_ms,
        "lost_packets": lost,
        "packets": packets,
        "lost_percent": percent,
    })
}

/// All streams of a direction together: what was sent, or what came.
fn sum(one: &Throughput, sends: bool, sent: bool) -> Value {
    let streams: Vec<&Stream> = one
        .streams
        .iter()
        .filter(|one| one.sends == sends)
        .collect();
    let total = |of: fn(&Stream) -> u64| streams.iter().map(|one| of(one)).sum::<u64>();
    let longest = |of: fn(&Stream) -> f64| streams.iter().map(|one| of(one)).fold(0.0, f64::max);
    let mut value = if sent {
        span(
            0.0,
            longest(|one| one.sent_s),
            total(|one| one.sent_bytes),
            sends,
        )
    } else {
        let bytes = total(|one| one.received_bytes);
        span(0.0, longest(|one| one.received_s), bytes, sends)
    };
    let again: Option<u64> = streams.iter().map(|one| one.retransmissions).sum();
    if let (true, Some(again), Transport::Tcp) = (sent, again, one.transport) {
        value = with(value, json!({ "retransmits": again }));
    }
    let datagrams = streams.iter().filter_map(|one| one.datagrams.as_ref());
    let datagrams: Vec<_> = datagrams.collect();
    if datagrams.is_empty() {
        return value;
    }
    if sent {
        let packets: u64 = datagrams.iter().map(|one| one.sent).sum();
        return with(value, lost(0.0, 0, packets));
    }
    let jitter = datagrams.iter().map(|one| one.jitter_ms).sum::<f64>();
    let gone: u64 = datagrams.iter().map(|one| one.lost).sum();
    let came: u64 = datagrams.iter().map(|one| one.received).sum();
    let jitter = jitter / datagrams.len() as f64;
    with(value, lost(jitter, gone, came + gone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::throughput::{Datagrams, Interval, Work};

    fn report(direction: Direction, transport: Transport) -> Report {
        let stream = |id, sends| Stream {
            id,
            sends,
            local: format!("10.77.0.50:{}", 50_000 + id),
            sent_bytes: 1_000_000,
            sent_s: 2.0,
            received_bytes: 900_000,
            received_s: 2.5,
            retransmissions: (transport == Transport::Tcp).then_some(3),
            datagrams: (transport == Transport::Udp).then(|| Datagrams {
                sent: 1000,
                received: 900,
                lost: 100,
                jitter_ms: 0.5,
                ..Datagrams::default()
            }),
        };
        Report {
            throughput: vec![Throughput {
                server: "10.77.0.1".into(),
                port: 5201,
                direction,
                transport,
                parallel: 1,
                took_s: 2.0,
                streams: match direction {
                    Direction::Both => vec![stream(1, true), stream(3, false)],
                    _ => vec![stream(1, direction == Direction::Send)],
                },
                intervals: vec![Interval {
                    start_s: 0.0,
                    end_s: 2.0,
                    bytes: vec![500_000, 250_000],
                    datagrams: match transport {
                        Transport::Udp => vec![500, 250],
                        _ => Vec::new(),
                    },
                }],
                work: Some(Work {
                    busy_percent: 64.0,
                    ..Work::default()
                }),
                ..Throughput::default()
            }],
            ..Report::new()
        }
    }

    fn of(direction: Direction, transport: Transport) -> Value {
        serde_json::from_str(&documents(&report(direction, transport))).unwrap()
    }

    /// The paths that flent and others read.
    #[test]
    fn figures_stand_where_iperf3_has_them() {
        let value = of(Direction::Send, Transport::Tcp);
        for (path, number) in [
            ("/end/sum_sent/bits_per_second", 4e6),
            ("/end/sum_sent/retransmits", 3.0),
            ("/end/sum_received/bits_per_second", 2.88e6),
            ("/end/streams/0/sender/bytes", 1e6),
            ("/end/streams/0/receiver/bytes", 9e5),
            ("/end/cpu_utilization_percent/host_total", 64.0),
            ("/intervals/0/sum/bits_per_second", 2e6),
            ("/intervals/0/streams/0/socket", 1.0),
            ("/start/connected/0/local_port", 50_001.0),
        ] {
            let found = value.pointer(path).and_then(Value::as_f64);
            assert_eq!(found, Some(number), "{path} of {value:#}");
        }
        assert_eq!(value["end"]["sum_sent"]["sender"], true);
    }

    #[test]
    fn of_datagrams_losses_are_told() {
        let value = of(Direction::Receive, Transport::Udp);
        for (path, number) in [
            ("/end/sum/lost_percent", 10.0),
            ("/end/sum/packets", 1000.0),
            ("/end/sum/jitter_ms", 0.5),
            ("/end/streams/0/udp/lost_packets", 100.0),
            ("/intervals/0/streams/0/packets", 500.0),
        ] {
            let found = value.pointer(path).and_then(Value::as_f64);
            assert_eq!(found, Some(number), "{path} of {value:#}");
        }
        assert_eq!(value["end"]["sum_sent"]["sender"], false);
        assert_eq!(value["start"]["test_start"]["reverse"], 1);
    }

    #[test]
    fn both_directions_stand_beside_each_other() {
        let value = of(Direction::Both, Transport::Tcp);
        assert_eq!(value["end"]["sum_sent"]["sender"], true);
        assert_eq!(value["end"]["sum_received_bidir_reverse"]["sender"], false);
        assert_eq!(value["intervals"][0]["sum"]["bytes"], 500_000);
        assert_eq!(value["intervals"][0]["sum_bidir_reverse"]["bytes"], 250_000);
    }

    #[test]
    fn an_address_of_ipv6_has_no_brackets() {
        assert_eq!(ends("[fd00::1]:7"), ("fd00::1", 7));
        assert_eq!(ends("nonsense"), ("nonsense", 0));
    }
}
