//! What a card did, for people and programs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use wireboot_card::{Counters, OffloadCounters, PacedCounters, Traffic};

use crate::program::ProgramCounters;

/// The card's counters and its owner's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub card: Counters,
    pub offload: OffloadCounters,
    pub paced: PacedCounters,
    /// None without a program.
    pub program: Option<ProgramCounters>,
    /// What went through each pair of queues.
    pub pairs: Vec<PairTraffic>,
    /// Doorbells that the guest rang.
    pub doorbells: u64,
    /// Those of them that it rang for what it sends.
    pub transmit_doorbells: u64,
    /// How often the card waited.
    pub waits: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PortStatistics {
    /// What its lines in the log begin with.
    pub name: Arc<str>,
    pub socket: PathBuf,
    pub statistics: Statistics,
}

/// What went through a pair of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PairTraffic {
    /// From the guest to the wire.
    pub sent: Traffic,
    /// From the wire to the guest.
    pub received: Traffic,
}

/// The same as a JSON document.
#[derive(Serialize)]
struct Document {
    sent_units: u64,
    sent_bytes: u64,
    send_lost: u64,
    send_bad_length: u64,
    send_not_understood: u64,
    hellos: u64,
    sent_chunks: u64,
    sent_chunk_units: u64,
    received_units: u64,
    received_bytes: u64,
    received_chunks: u64,
    received_chunk_units: u64,
    placed_units: u64,
    placed_bytes: u64,
    placements_refused: u64,
    receive_left: u64,
    receive_too_long: u64,
    receive_not_agreed: u64,
    receive_pretended: u64,
    no_room: u64,
    cut_units: u64,
    cut_frames: u64,
    joined_units: u64,
    joined_segments: u64,
    joined_datagrams: u64,
    joined_fragments: u64,
    dropped_fragments: u64,
    waiting_fragments: u64,
    dropped_frames: u64,
    line_lost: u64,
    line_too_long: u64,
    paced_no_room: u64,
    paced_wire_lost: u64,
    paced_forgotten: u64,
    calls: u64,
    doorbells: u64,
    transmit_doorbells: u64,
    waits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<ProgramDocument>,
    pairs: Vec<PairDocument>,
    /// Queues stopped, by reason.
    stopped: Vec<Stopped>,
}

/// Where there are several ports.
#[derive(Serialize)]
struct Ports {
    ports: Vec<Port>,
}

#[derive(Serialize)]
struct Port {
    socket: PathBuf,
    #[serde(flatten)]
    document: Document,
}

#[derive(Serialize)]
struct ProgramDocument {
    seen_guest: u64,
    seen_wire: u64,
    dropped: u64,
    edited: u64,
    delayed: u64,
    copies: u64,
    diverted: u64,
    no_room: u64,
    failed: u64,
    forgotten: u64,
    /// The values of each of the program's maps, by its name.
    maps: BTreeMap<String, Vec<u64>>,
}

impl From<ProgramCounters> for ProgramDocument {
    fn from(counters: ProgramCounters) -> Self {
        let [seen_guest, seen_wire] = counters.seen;
        Self {
            seen_guest,
            seen_wire,
            dropped: counters.dropped,
            edited: counters.edited,
            delayed: counters.delayed,
            copies: counters.copies,
            diverted: counters.diverted,
            no_room: counters.no_room,
            failed: counters.failed,
            forgotten: counters.forgotten,
            maps: counters.maps.into_iter().collect(),
        }
    }
}

#[derive(Serialize)]
struct PairDocument {
    sent_units: u64,
    sent_bytes: u64,
    received_units: u64,
    received_bytes: u64,
}

#[derive(Serialize)]
struct Stopped {
    reason: String,
    count: u64,
}

/// The counters of a port, or of several by their sockets, as JSON: a line.
///
/// # Errors
/// The writer's.
pub(crate) fn json(ports: &[PortStatistics]) -> serde_json::Result<String> {
    if let [port] = ports {
        return serde_json::to_string(&port.statistics.document());
    }
    let port = |port: &PortStatistics| Port {
        socket: port.socket.clone(),
        document: port.statistics.document(),
    };
    let ports = ports.iter().map(port).collect();
    serde_json::to_string(&Ports { ports })
}

impl Statistics {
    fn document(&self) -> Document {
        let (card, offload, paced) = (&self.card, &self.offload, &self.paced);
        let stopped = card.stopped().map(|(fault, count)| Stopped {
            reason: fault.to_string(),
            count,
        });
        let pairs = self.pairs.iter().map(|pair| PairDocument {
            sent_units: pair.sent.units,
            sent_bytes: pair.sent.bytes,
            received_units: pair.received.units,
            received_bytes: pair.received.bytes,
        });
        Document {
            sent_units: card.sent.units,
            sent_bytes: card.sent.bytes,
            send_lost: card.send_lost,
            send_bad_length: card.send_bad_length,
            send_not_understood: card.send_not_understood,
            hellos: card.hellos,
            sent_chunks: card.sent_chunks,
            sent_chunk_units: card.sent_chunk_units,
            received_units: card.received.units,
            received_bytes: card.received.bytes,
            received_chunks: card.received_chunks,
            received_chunk_units: card.received_chunk_units,
            placed_units: card.placed.units,
            placed_bytes: card.placed.bytes,
            placements_refused: card.placements_refused,
            receive_left: card.receive_left,
            receive_too_long: card.receive_too_long,
            receive_not_agreed: card.receive_not_agreed,
            receive_pretended: card.receive_pretended,
            no_room: card.no_room,
            cut_units: offload.cut_units,
            cut_frames: offload.cut_frames,
            joined_units: offload.joined_units,
            joined_segments: offload.joined_segments,
            joined_datagrams: offload.joined_datagrams,
            joined_fragments: offload.joined_fragments,
            dropped_fragments: offload.dropped_fragments,
            waiting_fragments: offload.waiting_fragments,
            dropped_frames: offload.dropped_frames,
            line_lost: paced.line_lost,
            line_too_long: paced.line_too_long,
            paced_no_room: paced.no_room,
            paced_wire_lost: paced.wire_lost,
            paced_forgotten: paced.forgotten,
            calls: card.calls,
            doorbells: self.doorbells,
            transmit_doorbells: self.transmit_doorbells,
            waits: self.waits,
            program: self.program.clone().map(ProgramDocument::from),
            pairs: pairs.collect(),
            stopped: stopped.collect(),
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = &self.card;
        write!(
            f,
            "{} units sent, {} received, {} lost; {} doorbells, {} calls",
            card.sent.units,
            card.received.units,
            card.send_lost
                + card.send_bad_length
                + card.send_not_understood
                + card.receive_left
                + card.receive_too_long
                + card.receive_not_agreed
                + card.receive_pretended
                + self.offload.dropped_fragments
                + self.offload.dropped_frames
                + self.paced.lost()
                + self.program.as_ref().map_or(0, ProgramCounters::lost),
            self.doorbells,
            card.calls
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_str, json};
    use wireboot_card::RingFault;

    #[test]
    fn all_is_told() {
        let mut card = Counters {
            sent: Traffic {
                units: 1,
                bytes: 60,
            },
            send_lost: 2,
            send_bad_length: 3,
            hellos: 21,
            send_not_understood: 22,
            sent_chunks: 24,
            sent_chunk_units: 25,
            received_chunks: 26,
            received_chunk_units: 27,
            placed: Traffic {
                units: 29,
                bytes: 2900,
            },
            placements_refused: 43,
            receive_left: 28,
            received: Traffic {
                units: 4,
                bytes: 240,
            },
            receive_too_long: 5,
            receive_not_agreed: 6,
            receive_pretended: 23,
            no_room: 7,
            calls: 8,
            ..Counters::default()
        };
        card.faults[RingFault::Header.index()] = 9;
        let offload = OffloadCounters {
            cut_units: 12,
            cut_frames: 13,
            joined_units: 14,
            joined_segments: 15,
            joined_datagrams: 16,
            joined_fragments: 17,
            dropped_fragments: 18,
            waiting_fragments: 19,
            dropped_frames: 20,
        };
        let paced = PacedCounters {
            line_lost: 21,
            line_too_long: 22,
            no_room: 23,
            wire_lost: 24,
            forgotten: 25,
        };
        let statistics = Statistics {
            card,
            offload,
            paced,
            program: Some(ProgramCounters {
                seen: [30, 31],
                dropped: 32,
                edited: 33,
                delayed: 34,
                copies: 35,
                diverted: 41,
                no_room: 36,
                failed: 37,
                forgotten: 38,
                maps: vec![("of".to_owned(), vec![39, 40])],
            }),
            pairs: vec![
                PairTraffic {
                    sent: card.sent,
                    received: card.received,
                },
                PairTraffic::default(),
            ],
            doorbells: 10,
            transmit_doorbells: 42,
            waits: 11,
        };
        let port = |socket: &str| PortStatistics {
            name: "card".into(),
            socket: socket.into(),
            statistics: statistics.clone(),
        };
        let read = |ports: &[PortStatistics]| from_str::<Value>(&json(ports).unwrap()).unwrap();
        let document = read(&[port("/a")]);
        let mut expected = json!({
            "sent_units": 1, "sent_bytes": 60, "send_lost": 2, "send_bad_length": 3, "send_not_understood": 22, "hellos": 21,
            "sent_chunks": 24, "sent_chunk_units": 25, "received_chunks": 26, "received_chunk_units": 27, "receive_left": 28,
            "placed_units": 29, "placed_bytes": 2900, "placements_refused": 43,
            "received_units": 4, "received_bytes": 240, "receive_too_long": 5, "receive_not_agreed": 6, "receive_pretended": 23,
            "no_room": 7, "cut_units": 12, "cut_frames": 13, "joined_units": 14, "joined_segments": 15,
            "joined_datagrams": 16, "joined_fragments": 17, "dropped_fragments": 18, "waiting_fragments": 19,
            "dropped_frames": 20, "line_lost": 21, "line_too_long": 22, "paced_no_room": 23,
            "paced_wire_lost": 24, "paced_forgotten": 25, "calls": 8, "doorbells": 10, "transmit_doorbells": 42, "waits": 11,
        });
        expected["program"] = json!({
            "seen_guest": 30, "seen_wire": 31, "dropped": 32, "edited": 33, "delayed": 34, "copies": 35, "diverted": 41, "no_room": 36,
            "failed": 37, "forgotten": 38, "maps": { "of": [39, 40] },
        });
        expected["pairs"] = json!([
            { "sent_units": 1, "sent_bytes": 60, "received_units": 4, "received_bytes": 240 },
            { "sent_units": 0, "sent_bytes": 0, "received_units": 0, "received_bytes": 0 },
        ]);
        expected["stopped"] = json!([{ "reason": RingFault::Header.to_string(), "count": 9 }]);
        assert_eq!(document, expected);
        let several = read(&[port("/a"), port("/b")]);
        for (port, socket) in several["ports"]
            .as_array()
            .unwrap()
            .iter()
            .zip(["/a", "/b"])
        {
            expected["socket"] = socket.into();
            assert_eq!(*port, expected);
        }
        assert_eq!(several["ports"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            statistics.to_string(),
            "1 units sent, 4 received, 353 lost; 10 doorbells, 8 calls"
        );
    }
}
