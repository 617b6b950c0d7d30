//! Every combination of state, flags, place of the sequence number and of the acknowledgement, text and windows, each as one segment to a real
//! connection, against the verdicts of `rfc9293.txt`.

mod bench;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use bench::{Bench, DELAY, MAX_SND_WND, MSS, Sent, WINDOW};
use wireboot_tcp::{Error, Flags, Listen, Placement, Segment, State, closed, listen};

const TEXT: u32 = 100;
/// The window of a segment that does not close it: 3 full segments.
const SMALL: u32 = 3 * MSS as u32;

/// A line of the table.
#[derive(Debug)]
struct Row {
    line: usize,
    step: String,
    states: Vec<String>,
    flags: [Option<bool>; 4],
    seq: Vec<String>,
    ack: Vec<String>,
    text: Vec<String>,
    rwnd: Vec<String>,
    verdicts: Vec<Verdict>,
    source: String,
}

#[derive(Clone, Debug)]
struct Verdict {
    reply: String,
    state: String,
    text: String,
    una: String,
    nxt: String,
    told: String,
    timer: String,
}

impl Verdict {
    fn parse(words: &[&str]) -> Verdict {
        let [reply, state, text, una, nxt, told, timer] = words else {
            panic!("a verdict has seven columns: {words:?}")
        };
        let known = [
            ["none", "ack", "now", "may", "rst", "rst0", "synack"].contains(reply),
            ["-", "new", "held"].contains(text),
            ["-", "ack"].contains(una),
            ["-", "syn", "+"].contains(nxt),
            ["-", "reset", "refused"].contains(told),
            ["-", "2msl"].contains(timer),
        ];
        assert!(known.iter().all(|known| *known), "unknown word: {words:?}");
        let own = |word: &str| word.to_string();
        Verdict {
            reply: own(reply),
            state: own(state),
            text: own(text),
            una: own(una),
            nxt: own(nxt),
            told: own(told),
            timer: own(timer),
        }
    }

    /// The segment changes nothing.
    fn refuses(&self) -> bool {
        self.state == "=" && self.text == "-" && self.una == "-" && self.nxt == "-"
    }
}

/// A line of the send window's table: states, places of SEG.SEQ and SEG.ACK, and whether SND.WND is taken.
struct WindowRow {
    states: Vec<String>,
    seq: Vec<String>,
    ack: Vec<String>,
    taken: bool,
}

struct Table {
    rows: Vec<Row>,
    windows: Vec<WindowRow>,
}

impl Table {
    fn read() -> Table {
        let mut sets: HashMap<String, Vec<String>> = HashMap::new();
        let mut table = Table {
            rows: Vec::new(),
            windows: Vec::new(),
        };
        let list = |word: &str| word.split(',').map(str::to_string).collect::<Vec<_>>();
        for (index, source) in include_str!("rfc9293.txt").lines().enumerate() {
            let words: Vec<&str> = source.split_whitespace().collect();
            let expand = |name: String| sets.get(&name).cloned().unwrap_or_else(|| vec![name]);
            match words.as_slice() {
                [] => (),
                [first, ..] if first.starts_with('#') => (),
                ["set", name, "=", states @ ..] => {
                    sets.insert(
                        name.to_string(),
                        states.iter().map(|state| state.to_string()).collect(),
                    );
                }
                ["or", verdict @ ..] => {
                    table
                        .rows
                        .last_mut()
                        .expect("a row above")
                        .verdicts
                        .push(Verdict::parse(verdict));
                }
                ["window", _, states, seq, ack, taken @ ("taken" | "stays")] => {
                    let states = list(states).into_iter().flat_map(expand).collect();
                    table.windows.push(WindowRow {
                        states,
                        seq: list(seq),
                        ack: list(ack),
                        taken: *taken == "taken",
                    });
                }
                [
                    step,
                    states,
                    flags,
                    seq,
                    ack,
                    text,
                    rwnd,
                    "->",
                    verdict @ ..,
                ] => {
                    let mut pattern = [None; 4];
                    assert_eq!(flags.len(), 4, "line {}", index + 1);
                    for (flag, letter) in pattern.iter_mut().zip(flags.chars()) {
                        *flag = (letter != '*').then_some(letter != '-');
                    }
                    table.rows.push(Row {
                        line: index + 1,
                        step: step.to_string(),
                        states: list(states).into_iter().flat_map(expand).collect(),
                        flags: pattern,
                        seq: list(seq),
                        ack: list(ack),
                        text: list(text),
                        rwnd: list(rwnd),
                        verdicts: vec![Verdict::parse(verdict)],
                        source: source.to_string(),
                    });
                }
                _ => panic!("line {}: {source}", index + 1),
            }
        }
        table
    }

    fn find(&self, case: &Case) -> Option<usize> {
        let has =
            |list: &[String], word: &str| list.iter().any(|entry| entry == "*" || entry == word);
        self.rows.iter().position(|row| {
            row.states.iter().any(|state| state == case.state)
                && row
                    .flags
                    .iter()
                    .zip(case.flags)
                    .all(|(wanted, is)| wanted.is_none_or(|wanted| wanted == is))
                && has(&row.seq, case.seq)
                && (row.ack == ["*"] || case.has(1) && has(&row.ack, case.ack))
                && has(&row.text, case.text)
                && has(&row.rwnd, case.rwnd)
        })
    }

    /// Whether SND.WND is taken from the segment, for a row whose ACK field counts.
    fn window_taken(&self, case: &Case) -> bool {
        let has =
            |list: &[String], word: &str| list.iter().any(|entry| entry == "*" || entry == word);
        let row = self.windows.iter().find(|row| {
            has(&row.states, case.state) && has(&row.seq, case.seq) && has(&row.ack, case.ack)
        });
        row.expect("a row for the send window").taken
    }
}

/// One combination.
#[derive(Clone, Debug)]
struct Case {
    state: &'static str,
    /// Something is in flight, where the state permits both.
    flight: bool,
    /// SYN, ACK, RST, FIN.
    flags: [bool; 4],
    seq: &'static str,
    ack: &'static str,
    text: &'static str,
    rwnd: &'static str,
    /// SEG.WND.
    wnd: u32,
    /// ISS, IRS.
    origin: (u32, u32),
    /// Window scale and SACK.
    scale: bool,
    /// ESTABLISHED came from a passive OPEN.
    passive: bool,
}

impl Case {
    fn has(&self, flag: usize) -> bool {
        self.flags[flag]
    }

    fn flags(&self) -> Flags {
        let all = [Flags::SYN, Flags::ACK, Flags::RST, Flags::FIN];
        all.into_iter()
            .zip(self.flags)
            .filter(|(_, set)| *set)
            .fold(Flags::default(), |flags, (flag, _)| flags | flag)
    }
}

/// The connection in the case's state, nothing due.
fn bring(case: &Case) -> Bench {
    let (iss, irs) = case.origin;
    match case.state {
        "SYN-SENT" => return Bench::connect(iss, irs, case.scale),
        "SYN-RCVD/A" => {
            let mut bench = Bench::connect(iss, irs, case.scale);
            bench.pass(10);
            bench.receive_syn(Flags::SYN);
            let sent = bench.transmit();
            assert_eq!(sent.len(), 1);
            assert_eq!((sent[0].flags, sent[0].seq), (Flags::SYN | Flags::ACK, iss));
            assert_eq!(bench.connection.state(), State::SynReceived);
            return bench;
        }
        "SYN-RCVD/P" => return Bench::accept(iss, irs, case.scale),
        _ => (),
    }
    let mut bench = Bench::established(iss, irs, case.scale, case.passive);
    // So that no acknowledgement number in question is older than the connection, and no sequence number.
    bench.send(6000);
    bench.take(2000);
    if case.rwnd == "0" {
        bench.take_unread(WINDOW);
        assert_eq!(bench.right_edge, bench.connection.rcv_nxt());
    }
    if ["CLOSE-WAIT", "LAST-ACK"].contains(&case.state) {
        bench.receive_next(Flags::FIN | Flags::ACK, 0);
        bench.transmit_within(DELAY);
    }
    if case.flight {
        bench.connection.queue(2 * u32::from(MSS));
        assert_eq!(
            bench.transmit().iter().map(|sent| sent.len).sum::<usize>(),
            2 * usize::from(MSS)
        );
    }
    if !["ESTAB", "CLOSE-WAIT"].contains(&case.state) {
        bench.connection.close();
        let sent = bench.transmit();
        assert_eq!(sent.len(), 1);
        assert!(sent[0].flags.contains(Flags::FIN));
    }
    if ["FIN-WAIT-2", "TIME-WAIT"].contains(&case.state) {
        bench.pass(10);
        bench.acknowledge();
    }
    if ["CLOSING", "TIME-WAIT"].contains(&case.state) {
        bench.receive_next(Flags::FIN | Flags::ACK, 0);
        bench.transmit_within(10);
    }
    bench.settle();
    bench.connection.acknowledged();
    assert_eq!(bench.connection.state(), state(case.state), "{case:?}");
    bench
}

fn state(name: &str) -> State {
    match name {
        "SYN-SENT" => State::SynSent,
        "SYN-RCVD/A" | "SYN-RCVD/P" => State::SynReceived,
        "ESTAB" => State::Established,
        "FIN-WAIT-1" => State::FinWait1,
        "FIN-WAIT-2" => State::FinWait2,
        "CLOSE-WAIT" => State::CloseWait,
        "CLOSING" => State::Closing,
        "LAST-ACK" => State::LastAck,
        "TIME-WAIT" => State::TimeWait,
        // Back to LISTEN is the end of this connection.
        "CLOSED" | "LISTEN" => State::Closed,
        _ => panic!("no such state: {name}"),
    }
}

/// The numbers of a case's segment.
struct Numbers {
    seq: u32,
    ack: u32,
    len: u32,
    seg_len: u32,
    rcv_nxt: u32,
    /// The right edge of the window.
    edge: u32,
}

fn numbers(case: &Case, rcv_nxt: u32, window: u32, snd_una: u32, snd_nxt: u32) -> Numbers {
    let len = match case.text {
        "0" => 0,
        "+" => TEXT,
        "over" => window + 10,
        _ => unreachable!(),
    };
    let from = |offset: i64| rcv_nxt.wrapping_add(offset as u32);
    let w = i64::from(window);
    let seq = match case.seq {
        "old" => from(-1000),
        "ends" => from(-i64::from(len)),
        "edge" => from(-1),
        "next" => rcv_nxt,
        "window" => from(w / 2),
        "fits" => from(w - i64::from(len)),
        "last" => from(w - 1),
        "beyond" => from(w.max(1)),
        "opposite" => from(1 << 31),
        _ => unreachable!(),
    };
    let max_snd_wnd = if case.state == "SYN-SENT" {
        0
    } else {
        MAX_SND_WND
    };
    let ack = match case.ack {
        "old" => snd_una.wrapping_sub(max_snd_wnd + 1),
        "lowest" => snd_una.wrapping_sub(max_snd_wnd),
        "dup" => snd_una,
        "flight" => snd_una.wrapping_add(u32::from(MSS)),
        "next" => snd_nxt,
        "beyond" => snd_nxt.wrapping_add(1),
        "opposite" => snd_nxt.wrapping_add(1 << 31),
        _ => unreachable!(),
    };
    let seg_len = len + u32::from(case.has(0)) + u32::from(case.has(3));
    Numbers {
        seq,
        ack,
        len,
        seg_len,
        rcv_nxt,
        edge: rcv_nxt.wrapping_add(window),
    }
}

impl Numbers {
    /// The octets from RCV.NXT that sequence numbers `from..to` have inside the window.
    fn inside(&self, from: u32, to: u32) -> Option<(u32, u32)> {
        let place = |number: u32| i64::from(number.wrapping_sub(self.rcv_nxt) as i32);
        let low = place(from).max(0);
        let high = place(to).min(place(self.edge));
        (low < high).then_some((low as u32, high as u32))
    }

    fn text_begin(&self, case: &Case) -> u32 {
        self.seq.wrapping_add(u32::from(case.has(0)))
    }
}

/// What is different from the verdict; empty if nothing is.
type Differences = String;

fn check_without_connection(case: &Case, verdict: &Verdict) -> Differences {
    let mut wrong = String::new();
    let n = numbers(
        case,
        case.origin.1,
        WINDOW,
        case.origin.0,
        case.origin.0.wrapping_add(1),
    );
    let segment = Segment {
        seq: n.seq,
        ack: n.ack,
        flags: case.flags(),
        wnd: case.wnd as u16,
        options: &[],
        len: n.len as usize,
    };
    let (reply, accepted) = if case.state == "CLOSED" {
        (closed(&segment), false)
    } else {
        match listen(&segment) {
            Listen::Ignore => (None, false),
            Listen::Reset(reply) => (Some(reply), false),
            Listen::Accept => (None, true),
        }
    };
    let reply = reply.map(|reply| (reply.seq, reply.ack, reply.flags));
    let expected = match verdict.reply.as_str() {
        "rst" => Some((n.ack, 0, Flags::RST)),
        "rst0" => Some((0, n.seq.wrapping_add(n.seg_len), Flags::RST | Flags::ACK)),
        _ => None,
    };
    // Without the ACK bit the field means nothing.
    let same = match (reply, expected) {
        (Some((seq, _, flags)), Some((want, _, Flags::RST))) => (seq, flags) == (want, Flags::RST),
        _ => reply == expected,
    };
    if !same {
        let _ = writeln!(wrong, "reply: expected {expected:?}, seen {reply:?}");
    }
    if accepted != (verdict.reply == "synack") {
        let _ = writeln!(wrong, "accepted: {accepted}");
    }
    wrong
}

fn check(case: &Case, verdict: &Verdict, table: &Table) -> Differences {
    if ["CLOSED", "LISTEN"].contains(&case.state) {
        return check_without_connection(case, verdict);
    }
    let mut wrong = String::new();
    let mut b = bring(case);
    b.pass(10);
    let before = b.view();
    let window = if case.state == "SYN-SENT" {
        WINDOW
    } else {
        b.right_edge.wrapping_sub(before.rcv_nxt)
    };
    let rcv_nxt = if case.state == "SYN-SENT" {
        case.origin.1.wrapping_add(1)
    } else {
        before.rcv_nxt
    };
    let mut n = numbers(case, rcv_nxt, window, before.snd_una, before.snd_nxt);
    if case.state == "SYN-SENT" {
        // Whatever it is, it is the first octet.
        n.rcv_nxt = n.seq.wrapping_add(1);
        n.edge = n.rcv_nxt.wrapping_add(WINDOW);
    }
    let placement = b.receive(case.flags(), n.seq, n.ack, n.len as usize, case.wnd);
    let at_once = b.transmit();
    let after = b.view();
    let due = if b.connection.state() == State::Closed {
        Vec::new()
    } else {
        b.transmit_within(DELAY)
    };

    // State, what the user is told.
    let expected_state = if verdict.state == "=" {
        before.state
    } else {
        state(&verdict.state)
    };
    if after.state != expected_state {
        let _ = writeln!(
            wrong,
            "state: expected {expected_state:?}, seen {:?}",
            after.state
        );
    }
    let told = match verdict.told.as_str() {
        "reset" => Some(Error::Reset),
        "refused" => Some(Error::Refused),
        _ => None,
    };
    if after.error != told {
        let _ = writeln!(wrong, "told: expected {told:?}, seen {:?}", after.error);
    }

    // Text.
    let begin = n.text_begin(case);
    let inside = if verdict.text == "-" {
        None
    } else {
        n.inside(begin, begin.wrapping_add(n.len))
    };
    let advance = |(low, high): (u32, u32)| if verdict.text == "new" { high - low } else { 0 };
    let skip = n.rcv_nxt.wrapping_sub(begin);
    let expected = inside.map(|(low, high)| {
        (
            low.wrapping_add(skip) as usize,
            (high - low) as usize,
            low,
            advance((low, high)),
        )
    });
    let seen = placement
        .as_ref()
        .map(|p: &Placement| (p.skip, p.len, p.at, p.advance));
    if seen != expected {
        let _ = writeln!(
            wrong,
            "text (skip, len, at, advance): expected {expected:?}, seen {seen:?}"
        );
    }

    // SND.UNA, RCV.NXT.
    let newer = n.ack.wrapping_sub(before.snd_una) as i32 > 0;
    let snd_una = if verdict.una == "ack" && newer {
        n.ack
    } else {
        before.snd_una
    };
    let rcv_nxt = match verdict.nxt.as_str() {
        "syn" => n.seq.wrapping_add(1),
        "+" => {
            let end = begin
                .wrapping_add(n.len)
                .wrapping_add(u32::from(case.has(3)));
            n.inside(begin, end)
                .map_or(n.rcv_nxt, |(_, high)| n.rcv_nxt.wrapping_add(high))
        }
        _ => before.rcv_nxt,
    };
    let closed = expected_state == State::Closed;
    if !closed && after.snd_una != snd_una {
        let _ = writeln!(wrong, "SND.UNA: expected {snd_una}, seen {}", after.snd_una);
    }
    if !closed && after.rcv_nxt != rcv_nxt {
        let _ = writeln!(wrong, "RCV.NXT: expected {rcv_nxt}, seen {}", after.rcv_nxt);
    }
    let text_acknowledged = snd_una.wrapping_sub(before.snd_una);
    let acknowledged = b.connection.acknowledged();
    // The SYN and the FIN are no octets of the buffer.
    let of_the_buffer = match case.state {
        "SYN-SENT" | "SYN-RCVD/A" | "SYN-RCVD/P" => 0,
        "FIN-WAIT-1" | "CLOSING" | "LAST-ACK" if snd_una == before.snd_nxt => {
            text_acknowledged - u32::from(text_acknowledged > 0)
        }
        _ => text_acknowledged,
    };
    if !closed && acknowledged != of_the_buffer {
        let _ = writeln!(
            wrong,
            "acknowledged: expected {of_the_buffer}, seen {acknowledged}"
        );
    }

    // The reply.
    let is_ack = |sent: &Sent| {
        (sent.flags, sent.seq, sent.ack, sent.len) == (Flags::ACK, before.snd_nxt, rcv_nxt, 0)
    };
    let right = match verdict.reply.as_str() {
        "none" => at_once.is_empty() && due.is_empty(),
        "may" => at_once.iter().chain(&due).all(is_ack) && at_once.len() + due.len() <= 1,
        "now" => at_once.len() == 1 && is_ack(&at_once[0]) && due.is_empty(),
        "ack" => at_once.iter().chain(&due).all(is_ack) && at_once.len() + due.len() == 1,
        "rst" => {
            let reset = |sent: &Sent| (sent.flags, sent.seq, sent.len) == (Flags::RST, n.ack, 0);
            at_once.len() == 1 && reset(&at_once[0]) && due.is_empty()
        }
        "synack" => {
            let reply = |sent: &Sent| {
                (sent.flags, sent.seq, sent.ack, sent.len)
                    == (Flags::SYN | Flags::ACK, before.snd_una, rcv_nxt, 0)
            };
            at_once.len() == 1 && reply(&at_once[0]) && due.is_empty()
        }
        _ => unreachable!("no such reply of a connection"),
    };
    if !right {
        let _ = writeln!(
            wrong,
            "reply: expected {} (SND.NXT {}, RCV.NXT {rcv_nxt}), seen at once {at_once:?}, later {due:?}",
            verdict.reply, before.snd_nxt
        );
    }

    if verdict.refuses() {
        let mut same = before.clone();
        if verdict.timer == "2msl" {
            same.poll_at = before.poll_at.map(|at| at + (b.arrived - b.entered));
        }
        if after != same {
            let _ = writeln!(
                wrong,
                "refused, and changed: expected {same:?}, seen {after:?}"
            );
        }
    }
    if wrong.is_empty() {
        let taken = verdict.una == "ack" && table.window_taken(case);
        afterwards(case, verdict, &n, b, taken, &mut wrong);
    }
    wrong
}

/// Works on: the send window is what the segment made it, a gap that is filled gives what was held, text is taken, acknowledgements count.
fn afterwards(
    case: &Case,
    verdict: &Verdict,
    n: &Numbers,
    mut b: Bench,
    taken: bool,
    wrong: &mut Differences,
) {
    use State::*;
    let state = b.connection.state();
    b.peer_nxt = b.connection.rcv_nxt();
    if state == Closed {
        if !b.transmit().is_empty() || b.connection.poll_at().is_some() {
            let _ = writeln!(wrong, "afterwards: CLOSED, and something is due");
        }
        return;
    }
    if verdict.una == "ack" && [Established, CloseWait].contains(&state) {
        let open = if taken { case.wnd } else { MAX_SND_WND };
        let in_flight = b.connection.snd_nxt().wrapping_sub(b.connection.snd_una());
        b.connection.queue(20 * u32::from(MSS));
        b.transmit();
        let sent = b.connection.snd_nxt().wrapping_sub(b.connection.snd_una());
        // The whole table's windows are 0 and 3 segments, or 8: more than the 4 that any congestion window lets out.
        let right = if open == MAX_SND_WND {
            sent > SMALL
        } else {
            sent == open.max(in_flight)
        };
        if !right {
            let _ = writeln!(
                wrong,
                "afterwards: {sent} octets in flight, SND.WND should be {open}"
            );
        }
    }
    if case.rwnd == "0" {
        b.free = WINDOW;
    }
    let fin = n.seq.wrapping_add(n.len);
    let held_fin = case.has(3)
        && verdict.una == "ack"
        && case.state != "SYN-SENT"
        && ["window", "fits", "last"].contains(&case.seq)
        && n.inside(fin, fin.wrapping_add(1)).is_some()
        && [Established, FinWait1, FinWait2].contains(&state);
    if verdict.text == "held" || held_fin {
        let end = n
            .inside(n.seq, n.seq.wrapping_add(n.seg_len))
            .expect("in the window")
            .1;
        let mut gap = n.seq.wrapping_sub(n.rcv_nxt);
        while gap > 0 {
            let len = gap.min(u32::from(MSS));
            b.receive_next(Flags::ACK, len as usize);
            b.transmit();
            gap -= len;
        }
        let expected = n.rcv_nxt.wrapping_add(end);
        if b.connection.rcv_nxt() != expected {
            let _ = writeln!(
                wrong,
                "the gap is filled: RCV.NXT expected {expected}, seen {}",
                b.connection.rcv_nxt()
            );
        }
        let closing = match state {
            Established => CloseWait,
            FinWait1 => Closing,
            _ => TimeWait,
        };
        let expected = if held_fin { closing } else { state };
        if b.connection.state() != expected {
            let _ = writeln!(
                wrong,
                "the gap is filled: state expected {expected:?}, seen {:?}",
                b.connection.state()
            );
        }
        b.peer_nxt = b.connection.rcv_nxt();
    }
    b.transmit_within(1100);
    if b.connection.state() == SynSent {
        b.receive_syn(Flags::SYN | Flags::ACK);
        b.transmit();
        if b.connection.state() != Established {
            let _ = writeln!(wrong, "afterwards: no connection by a good SYN-ACK");
        }
    }
    if b.connection.state() == SynReceived {
        b.acknowledge();
        if b.connection.state() != Established {
            let _ = writeln!(wrong, "afterwards: no connection by a good ACK");
        }
    }
    if [Established, FinWait1, FinWait2].contains(&b.connection.state()) {
        b.transmit();
        let placement = b.receive_next(Flags::ACK, MSS.into());
        let seen = placement.as_ref().map(|p| (p.skip, p.len, p.at, p.advance));
        if seen != Some((0, MSS.into(), 0, MSS.into())) {
            let _ = writeln!(wrong, "afterwards: good text is not taken: {seen:?}");
        }
        if b.transmit_within(DELAY)
            .iter()
            .all(|sent| sent.ack != b.peer_nxt)
        {
            let _ = writeln!(wrong, "afterwards: good text is not acknowledged");
        }
    }
    let next = match b.connection.state() {
        FinWait1 => FinWait2,
        Closing => TimeWait,
        LastAck => Closed,
        other => other,
    };
    b.acknowledge();
    if b.connection.state() != next
        || next != Closed && b.connection.snd_una() != b.connection.snd_nxt()
    {
        let _ = writeln!(
            wrong,
            "afterwards: a good ACK does not count, {:?}",
            b.connection.state()
        );
    }
    if next == TimeWait {
        b.transmit_within(1100);
        b.receive(
            Flags::FIN | Flags::ACK,
            b.peer_nxt.wrapping_sub(1),
            b.connection.snd_una(),
            0,
            MAX_SND_WND,
        );
        if b.transmit().len() != 1 {
            let _ = writeln!(
                wrong,
                "afterwards: the FIN that comes again is not acknowledged"
            );
        }
    }
}

/// States, and whether text is in flight.
const STATES: [(&str, bool); 18] = [
    ("CLOSED", false),
    ("LISTEN", false),
    ("SYN-SENT", false),
    ("SYN-RCVD/A", false),
    ("SYN-RCVD/P", false),
    ("ESTAB", false),
    ("ESTAB", true),
    ("FIN-WAIT-1", false),
    ("FIN-WAIT-1", true),
    ("FIN-WAIT-2", false),
    ("FIN-WAIT-2", true),
    ("CLOSE-WAIT", false),
    ("CLOSE-WAIT", true),
    ("CLOSING", false),
    ("CLOSING", true),
    ("LAST-ACK", false),
    ("LAST-ACK", true),
    ("TIME-WAIT", false),
];
const SEQ: [&str; 9] = [
    "old", "ends", "edge", "next", "window", "fits", "last", "beyond", "opposite",
];
const ACK: [&str; 7] = [
    "old", "lowest", "dup", "flight", "next", "beyond", "opposite",
];

/// Whether there is such a segment.
fn possible(case: &Case) -> bool {
    let synchronized =
        !["CLOSED", "LISTEN", "SYN-SENT", "SYN-RCVD/A", "SYN-RCVD/P"].contains(&case.state);
    let all_acknowledged = ["FIN-WAIT-2", "TIME-WAIT"].contains(&case.state)
        || ["ESTAB", "CLOSE-WAIT"].contains(&case.state) && !case.flight;
    let seq = match (case.seq, case.text, case.rwnd) {
        ("next", _, _) => true,
        (_, "over", _) => false,
        ("ends", "0", _) | ("window" | "fits" | "last", _, "0") | ("fits", "0", _) => false,
        _ => true,
    };
    let ack = match case.ack {
        "flight" => case.flight && !all_acknowledged,
        "next" => !all_acknowledged,
        "lowest" => case.state != "SYN-SENT",
        _ => true,
    };
    // Without the bit, two values of the field will do.
    let field = case.has(1) || ["dup", "opposite"].contains(&case.ack);
    let rwnd = case.rwnd == "+"
        || synchronized && ["ESTAB", "FIN-WAIT-1", "FIN-WAIT-2"].contains(&case.state);
    seq && ack && field && rwnd
}

fn every_case(origin: (u32, u32), scale: bool, passive: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for (state, flight) in STATES {
        for bits in 0..16 {
            let flags = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, bits & 8 != 0];
            for seq in SEQ {
                for ack in ACK {
                    for text in ["0", "+", "over"] {
                        for rwnd in ["0", "+"] {
                            for wnd in [0, SMALL] {
                                let case = Case {
                                    state,
                                    flight,
                                    flags,
                                    seq,
                                    ack,
                                    text,
                                    rwnd,
                                    wnd,
                                    origin,
                                    scale,
                                    passive,
                                };
                                if possible(&case) {
                                    cases.push(case);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    cases
}

/// Holds every combination against the table; what differs is told by row, with the first combinations of each.
fn hold(origin: (u32, u32), scale: bool, passive: bool) {
    let table = Table::read();
    let cases = every_case(origin, scale, passive);
    let mut used = vec![false; table.rows.len()];
    let mut failures: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for case in &cases {
        let Some(index) = table.find(case) else {
            failures
                .entry(usize::MAX)
                .or_default()
                .push(format!("{case:?}\nno row\n"));
            continue;
        };
        used[index] = true;
        let row = &table.rows[index];
        let differences: Vec<Differences> = row
            .verdicts
            .iter()
            .map(|verdict| check(case, verdict, &table))
            .take_while(|wrong| !wrong.is_empty())
            .collect();
        if differences.len() == row.verdicts.len() {
            failures
                .entry(index)
                .or_default()
                .push(format!("{case:?}\n{}", differences.join("or\n")));
        }
    }
    let mut report = String::new();
    for (index, failures) in &failures {
        let row = table.rows.get(*index).map_or("no row".into(), |row| {
            format!(
                "RFC 9293 section 3.10.7{} (rfc9293.txt:{}): {}",
                row.step, row.line, row.source
            )
        });
        let _ = writeln!(
            report,
            "\n{row}\n{} combinations differ, the first:",
            failures.len()
        );
        for failure in failures.iter().take(3) {
            let _ = writeln!(report, "{failure}");
        }
    }
    for (row, _) in table.rows.iter().zip(used).filter(|(_, used)| !used) {
        let _ = writeln!(
            report,
            "\nrfc9293.txt:{}: no combination comes to this row: {}",
            row.line, row.source
        );
    }
    let wrong: usize = failures.values().map(Vec::len).sum();
    assert!(
        report.is_empty(),
        "{report}\n{wrong} of {} combinations differ",
        cases.len()
    );
}

#[test]
fn every_combination() {
    hold((0x1000_0000, 0x2000_0000), false, false);
}

/// Sequence numbers pass zero with the SYN.
#[test]
fn every_combination_from_the_last_number() {
    hold((u32::MAX, u32::MAX), true, true);
}

/// Sequence numbers pass zero in what is in flight and in the segment.
#[test]
fn every_combination_across_zero() {
    hold((u32::MAX - 6500, u32::MAX - 2050), true, false);
}

/// Sequence numbers pass the middle, where signs change.
#[test]
fn every_combination_across_the_middle() {
    hold((0x7fff_ffff - 6500, 0x7fff_ffff - 2050), false, true);
}
