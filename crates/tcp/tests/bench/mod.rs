//! A connection and the other end of it, by hand: the tests send each segment themselves and look at each answer.

#![allow(dead_code)] // each test uses a part

use wireboot_tcp::{Connection, Duration, Flags, Instant, Limits, PayloadRange, Segment};

/// The window field's value in the other end's segments, before the last one of [`Bench::receive_widest_window`].
const WND: u32 = 4000;
/// The largest window that the other end advertises.
pub(crate) const MAX_SND_WND: u32 = 4096;
/// Payload of a full segment, both ways: a multiple of what the scaled window field counts.
pub(crate) const MSS: u16 = 504;
/// Longer than any delay of an acknowledgement (3.8.6.3: at most 500 ms), shorter than any retransmission time-out.
pub(crate) const DELAY: u64 = 250;
/// The receive window, in bytes.
pub(crate) const WINDOW: u32 = 8192;
/// What the caller could store beyond the window that it advertises.
pub(crate) const ROOM_BEYOND: u32 = 3000;

/// What came out of the connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub wnd: u32,
    pub len: usize,
    pub options: Vec<u8>,
}

impl Sent {
    /// Octets of sequence space.
    pub(crate) fn seg_len(&self) -> u32 {
        self.len as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }
}

/// All that a caller can see of a connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    pub state: wireboot_tcp::State,
    pub error: Option<wireboot_tcp::Error>,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub rcv_nxt: u32,
    pub rcv_wnd: u32,
    pub may_receive: bool,
    pub poll_at: Option<Instant>,
}

pub(crate) struct Bench {
    pub connection: Connection,
    pub now: Instant,
    /// When the last FIN but one arrived, and the last FIN.
    pub entered: Instant,
    pub arrived: Instant,
    pub iss: u32,
    pub irs: u32,
    /// The other end's SND.NXT: what this end must have as RCV.NXT.
    pub peer_nxt: u32,
    /// The highest right edge of the window that this end has advertised.
    pub right_edge: u32,
    /// The caller's buffer, and what of it is free.
    pub buffer: u32,
    pub free: u32,
    /// Options of the other end's SYN.
    peer_options: Vec<u8>,
    peer_shift: u8,
    our_shift: u8,
}

/// MSS; with `scale`, SACK and a window shift of 3 as well.
fn syn_options(scale: bool) -> Vec<u8> {
    let mut options = vec![2, 4, (MSS >> 8) as u8, MSS as u8];
    if scale {
        options.extend([1, 1, 4, 2, 1, 3, 3, 3]);
    }
    options
}

impl Bench {
    /// An active OPEN whose SYN is on its way: SYN-SENT. `scale`: the other end knows SACK and window scale.
    pub(crate) fn connect(iss: u32, irs: u32, scale: bool) -> Self {
        Self::connect_with(MSS, iss, irs, scale)
    }

    pub(crate) fn connect_with(mss: u16, iss: u32, irs: u32, scale: bool) -> Self {
        let now = Instant::from_micros(1_000_000);
        let mut bench = Self::new(Connection::connect(mss, iss, now), now, iss, irs, scale);
        let sent = bench.transmit();
        assert_eq!(sent.len(), 1, "one SYN");
        assert_eq!((sent[0].flags, sent[0].seq), (Flags::SYN, iss));
        bench
    }

    /// A passive OPEN whose SYN-ACK is on its way: SYN-RECEIVED.
    pub(crate) fn accept(iss: u32, irs: u32, scale: bool) -> Self {
        let now = Instant::from_micros(1_000_000);
        let options = syn_options(scale);
        let syn = Segment {
            seq: irs,
            ack: 0,
            flags: Flags::SYN,
            wnd: MAX_SND_WND as u16,
            options: &options,
            len: 0,
        };
        let mut bench = Self::new(
            Connection::accept(MSS, iss, now, &syn),
            now,
            iss,
            irs,
            scale,
        );
        bench.peer_nxt = irs.wrapping_add(1);
        let sent = bench.transmit();
        assert_eq!(sent.len(), 1, "one SYN-ACK");
        assert_eq!(
            (sent[0].flags, sent[0].seq, sent[0].ack),
            (Flags::SYN | Flags::ACK, iss, irs.wrapping_add(1))
        );
        bench
    }

    fn new(connection: Connection, now: Instant, iss: u32, irs: u32, scale: bool) -> Self {
        Self {
            connection,
            now,
            entered: now,
            arrived: now,
            iss,
            irs,
            peer_nxt: irs,
            right_edge: irs,
            buffer: WINDOW,
            free: WINDOW,
            peer_options: syn_options(scale),
            peer_shift: if scale { 3 } else { 0 },
            our_shift: 0,
        }
    }

    /// ESTABLISHED, opened passively or actively.
    pub(crate) fn established(iss: u32, irs: u32, scale: bool, passive: bool) -> Self {
        if passive {
            let mut bench = Self::accept(iss, irs, scale);
            bench.pass(10);
            bench.acknowledge();
            assert_eq!(bench.connection.state(), wireboot_tcp::State::Established);
            return bench;
        }
        let mut bench = Self::connect(iss, irs, scale);
        bench.pass(10);
        bench.receive_syn(Flags::SYN | Flags::ACK);
        assert_eq!(bench.connection.state(), wireboot_tcp::State::Established);
        assert_eq!(bench.transmit().len(), 1, "the handshake's ACK");
        bench
    }

    /// The other end's SYN, or SYN-ACK.
    pub(crate) fn receive_syn(&mut self, flags: Flags) {
        let options = self.peer_options.clone();
        let ack = if flags.contains(Flags::ACK) {
            self.iss.wrapping_add(1)
        } else {
            0
        };
        let syn = Segment {
            seq: self.irs,
            ack,
            flags,
            wnd: MAX_SND_WND as u16,
            options: &options,
            len: 0,
        };
        self.peer_nxt = self.irs.wrapping_add(1);
        self.connection
            .receive(self.now, &syn, self.free + ROOM_BEYOND);
    }

    pub(crate) fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// A segment arrives; `wnd` in octets.
    pub(crate) fn receive(
        &mut self,
        flags: Flags,
        seq: u32,
        ack: u32,
        len: usize,
        wnd: u32,
    ) -> Option<PayloadRange> {
        self.receive_with(flags, seq, ack, len, wnd, &[])
    }

    pub(crate) fn receive_with(
        &mut self,
        flags: Flags,
        seq: u32,
        ack: u32,
        len: usize,
        wnd: u32,
        options: &[u8],
    ) -> Option<PayloadRange> {
        let shift = if flags.contains(Flags::SYN) {
            0
        } else {
            self.peer_shift
        };
        let segment = Segment {
            seq,
            ack,
            flags,
            wnd: (wnd >> shift) as u16,
            options,
            len,
        };
        if flags.contains(Flags::FIN) {
            self.entered = self.arrived;
            self.arrived = self.now;
        }
        self.connection
            .receive(self.now, &segment, self.free + ROOM_BEYOND)
    }

    /// The next segment of the other end, as it should be.
    pub(crate) fn receive_next(&mut self, flags: Flags, len: usize) -> Option<PayloadRange> {
        let ack = self.connection.snd_una();
        let range = self.receive(flags, self.peer_nxt, ack, len, WND);
        self.peer_nxt = self
            .peer_nxt
            .wrapping_add(len as u32 + u32::from(flags.contains(Flags::FIN)));
        range
    }

    /// The other end acknowledges all that was sent.
    pub(crate) fn acknowledge(&mut self) {
        self.acknowledge_to(self.connection.snd_nxt());
    }

    pub(crate) fn acknowledge_to(&mut self, ack: u32) {
        self.receive(Flags::ACK, self.peer_nxt, ack, 0, WND);
        self.connection.acknowledged();
    }

    /// Everything that is due now.
    pub(crate) fn transmit(&mut self) -> Vec<Sent> {
        let limits = Limits {
            window: self.buffer,
            room: self.free,
            unit: 0,
        };
        let mut all = Vec::new();
        while let Some(transmit) = self.connection.transmit(self.now, &limits) {
            let options = transmit.options.as_slice().to_vec();
            let syn = transmit.flags.contains(Flags::SYN);
            if syn && self.peer_shift > 0 {
                self.our_shift = window_shift(&options);
            }
            let wnd = u32::from(transmit.wnd) << if syn { 0 } else { self.our_shift };
            let edge = transmit.ack.wrapping_add(wnd);
            if transmit.flags.contains(Flags::ACK)
                && (edge.wrapping_sub(self.right_edge) as i32) > 0
            {
                self.right_edge = edge;
            }
            let (seq, ack, flags, len) = (transmit.seq, transmit.ack, transmit.flags, transmit.len);
            all.push(Sent {
                seq,
                ack,
                flags,
                wnd,
                len,
                options,
            });
            assert!(all.len() < 1000, "transmit() does not come to an end");
        }
        all
    }

    /// Everything that is due until `milliseconds` from now.
    pub(crate) fn transmit_within(&mut self, milliseconds: u64) -> Vec<Sent> {
        let end = self.now + Duration::from_millis(milliseconds);
        let mut all = self.transmit();
        let mut turns = 0;
        while let Some(at) = self.connection.poll_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            all.extend(self.transmit());
            turns += 1;
            assert!(turns < 1000, "poll_at() stays at {at:?}");
        }
        self.now = end;
        all
    }

    /// Sends `octets` and has all of them acknowledged.
    pub(crate) fn send(&mut self, octets: u32) {
        self.connection.queue(octets);
        let end = self.connection.snd_una().wrapping_add(octets);
        let mut turns = 0;
        while self.connection.snd_una() != end {
            self.transmit();
            self.pass(10);
            self.acknowledge();
            turns += 1;
            assert!(turns < 1000, "the connection does not send");
        }
    }

    /// The other end sends `octets` in full segments; each is taken, all are acknowledged.
    pub(crate) fn take(&mut self, octets: u32) {
        let mut left = octets;
        while left > 0 {
            let len = left.min(u32::from(MSS));
            let range = self.receive_next(Flags::ACK, len as usize).expect("taken");
            assert_eq!(
                (range.skip, range.len, range.at, range.advance),
                (0, len as usize, 0, len)
            );
            self.transmit();
            left -= len;
        }
        self.transmit_within(DELAY);
    }

    /// As [`Bench::take`], and the caller does not read: the window closes by as much.
    pub(crate) fn take_unread(&mut self, octets: u32) {
        let mut left = octets;
        while left > 0 {
            let len = left.min(u32::from(MSS));
            self.receive_next(Flags::ACK, len as usize).expect("taken");
            self.free -= len;
            self.transmit();
            left -= len;
        }
        self.transmit_within(DELAY);
    }

    /// The other end acknowledges nothing new, with the largest window: now SND.WL1 is RCV.NXT, SND.WL2 SND.UNA, and SND.WND is MAX_SND_WND.
    pub(crate) fn receive_widest_window(&mut self) {
        let ack = self.connection.snd_una();
        self.receive(Flags::ACK, self.peer_nxt, ack, 0, MAX_SND_WND);
        let sent = self.transmit();
        assert!(sent.is_empty(), "nothing is due: {sent:?}");
        assert_eq!(self.connection.rcv_nxt(), self.peer_nxt);
    }

    pub(crate) fn view(&self) -> View {
        let c = &self.connection;
        View {
            state: c.state(),
            error: c.error(),
            snd_una: c.snd_una(),
            snd_nxt: c.snd_nxt(),
            rcv_nxt: c.rcv_nxt(),
            rcv_wnd: c.rcv_wnd(),
            may_receive: c.may_receive(),
            poll_at: c.poll_at(),
        }
    }
}

/// The shift of a window scale option, 0 without one.
fn window_shift(options: &[u8]) -> u8 {
    let mut rest = options;
    while let [kind, tail @ ..] = rest {
        match (kind, tail) {
            (0, _) => break,
            (1, _) => rest = tail,
            (3, [3, shift, ..]) => return *shift,
            (_, [len, ..]) => rest = &rest[usize::from(*len)..],
            _ => break,
        }
    }
    0
}
