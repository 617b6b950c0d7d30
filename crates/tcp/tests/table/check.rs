//! One combination against a verdict.

use crate::bench::{Bench, DELAY, MAX_SND_WND, MSS, Sent, WINDOW};
use crate::cases::{Case, Numbers, SMALL, numbers};
use crate::rows::{Table, Verdict};
use std::fmt::Write as _;
use wireboot_tcp::{Error, Flags, Listen, PayloadRange, Segment, State, closed, listen};

/// What is different from the verdict; empty if nothing is.
pub(crate) type Differences = String;

pub(crate) fn check_without_connection(case: &Case, verdict: &Verdict) -> Differences {
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

pub(crate) fn check(case: &Case, verdict: &Verdict, table: &Table) -> Differences {
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
    let range = b.receive(case.flags(), n.seq, n.ack, n.len as usize, case.wnd);
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
    let seen = range
        .as_ref()
        .map(|r: &PayloadRange| (r.skip, r.len, r.at, r.advance));
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
    bench.receive_widest_window();
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
        let range = b.receive_next(Flags::ACK, MSS.into());
        let seen = range.as_ref().map(|r| (r.skip, r.len, r.at, r.advance));
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
