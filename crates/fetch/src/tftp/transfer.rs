//! A transfer as the wire sees it: DATA goes to memory in the middle of the engine's burst, all else waits for the task.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use wireboot_net::{DatagramSink, Duration, Ends, Instant, Memory, Parts};
use wireboot_wire::tftp::{DATA_HEADER_LEN, DEFAULT_BLOCK_SIZE, Packet};

use super::{FIRST_TIMEOUT, MAX_TIMEOUT, TftpError};

/// Shortest wait for the next packet of a running transfer: servers stall for tens of milliseconds.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// A duplicate so long after our acknowledgement means that the acknowledgement was lost. Sooner, the network duplicated a packet,
/// and an answer would double all packets from there on (RFC 1123 section 4.2.3.1, "Sorcerer's Apprentice").
pub(super) const DUPLICATE_AFTER: Duration = Duration::from_millis(50);
/// How long a block that answers a request waits for another answer of the same host: who sees nothing and guesses our port can forge a
/// file of one block.
const DOUBT: Duration = Duration::from_millis(50);
/// Packets that are not DATA kept for the task.
const CONTROL_QUEUE: usize = 8;

/// The state of a transfer, which the sink of its port and the task share.
pub(super) struct Transfer {
    /// Those that are asked.
    pub(super) servers: Vec<IpAddr>,
    /// The one that has answered, by the port that it chose for this transfer (its transfer ID), and we.
    pub(super) peer: Option<Ends>,
    /// It has answered by a block, and another answer may still come.
    doubted: bool,
    /// Another block has come.
    contested: bool,
    /// DATA may go to memory.
    pub(super) streaming: bool,
    pub(super) memory: Option<Memory>,
    pub(super) block_size: usize,
    pub(super) window: u16,
    /// Acknowledgements of its multiples slide the window on.
    pub(super) slide: Option<u16>,
    /// Each acknowledgement tells the window.
    pub(super) varies: bool,
    /// Next block expected, counted from 1 without wrapping.
    pub(super) next: u64,
    pub(super) received: u64,
    /// A block goes beyond the end of the memory.
    pub(super) overflow: bool,
    /// The server was kept waiting for room.
    pub(super) held: bool,
    /// The last block has come.
    pub(super) complete: bool,
    /// The block of our last acknowledgement.
    pub(super) acknowledged: u64,
    /// In-order blocks since our last acknowledgement.
    pub(super) unacknowledged: u16,
    /// Acknowledge in this turn.
    pub(super) due: bool,
    /// The server shall go on after the last block in order, whatever it has sent.
    pub(super) again: bool,
    /// A gap in this window has been reported.
    pub(super) gap: bool,
    /// When anything of this transfer last came, and when we last sent.
    pub(super) heard: Instant,
    pub(super) sent: Instant,
    /// The round trip is being measured: from an acknowledgement, or the request, to the first block that could not come without it.
    pub(super) timing: Option<(u64, Instant)>,
    pub(super) round_trip: Option<Duration>,
    /// The time-out after the last retransmission, doubled each time. It holds until the next sample of the round trip, which no
    /// retransmitted acknowledgement gives (RFC 6298 section 5.5 to 5.7, Karn's algorithm).
    backed_off: Option<Duration>,
    pub(super) retransmissions: u64,
    pub(super) trial: Option<Trial>,
    pub(super) control: VecDeque<Vec<u8>>,
    /// Senders that are not our peer. The task answers them with an error.
    pub(super) strangers: VecDeque<Ends>,
}

/// The first windows, where it is not known whether the receive buffers hold one.
pub(super) struct Trial {
    /// The last block of the trial.
    pub(super) end: u64,
    /// [`Transfer::retransmissions`] when the trial began, and those for a first block that took its time.
    pub(super) retransmissions: u64,
    /// Blocks are several frames, all of which may be dropped on the way.
    pub(super) long: bool,
}

impl DatagramSink for Transfer {
    fn datagram(&mut self, ends: &Ends, payload: Parts<'_>, now: Instant) {
        let known = match &self.peer {
            Some(peer) => peer == ends,
            None => self.servers.contains(&ends.remote_end().ip()),
        };
        if !known {
            self.stranger(ends, payload);
            return;
        }
        if self.streaming
            && let Some([0, 3, high, low]) = payload.first::<DATA_HEADER_LEN>()
        {
            let data = payload.slice(DATA_HEADER_LEN, usize::MAX);
            self.data(u16::from_be_bytes([high, low]), data, now);
        } else if self.doubted {
            self.reconsider(ends, payload);
        } else if self.control.len() < CONTROL_QUEUE {
            let bytes = copied(payload);
            if self.peer.is_none() {
                if !is_answer(&bytes) {
                    return;
                }
                self.peer = Some(*ends);
                self.doubted = is_block(&bytes);
                self.heard = now;
            }
            self.control.push_back(bytes);
        }
    }
}

fn copied(payload: Parts<'_>) -> Vec<u8> {
    let mut bytes = alloc::vec![0; payload.len()];
    payload.copy_to(&mut bytes);
    bytes
}

fn is_block(packet: &[u8]) -> bool {
    packet.starts_with(&[0, 3])
}

/// Whether a request can have this answer.
pub(super) fn is_answer(packet: &[u8]) -> bool {
    matches!(
        Packet::parse(packet),
        Ok(Packet::Oack(_) | Packet::Error { .. } | Packet::Data { block: 1, .. })
    )
}

impl Transfer {
    pub(super) fn new(servers: &[SocketAddr], now: Instant) -> Self {
        Self {
            servers: servers.iter().map(SocketAddr::ip).collect(),
            peer: None,
            doubted: false,
            contested: false,
            streaming: false,
            memory: None,
            block_size: usize::from(DEFAULT_BLOCK_SIZE),
            window: 1,
            slide: None,
            varies: false,
            next: 1,
            received: 0,
            overflow: false,
            held: false,
            complete: false,
            acknowledged: 0,
            unacknowledged: 0,
            due: false,
            again: false,
            gap: false,
            heard: now,
            sent: now,
            timing: None,
            round_trip: None,
            backed_off: None,
            retransmissions: 0,
            trial: None,
            control: VecDeque::new(),
            strangers: VecDeque::new(),
        }
    }

    /// The server's address and port, once it has answered.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer.as_ref()?.remote_end())
    }

    /// A packet of another sender than our peer.
    #[cold]
    fn stranger(&mut self, ends: &Ends, payload: Parts<'_>) {
        let host = ends.remote_end().ip();
        let is_peer_host = self.peer().is_some_and(|peer| peer.ip() == host);
        if self.doubted && is_peer_host && self.reconsider(ends, payload) {
            return;
        }
        // An ERROR gets no answer: two who answer those would never end (CVE-2024-2169).
        let header = payload.first::<DATA_HEADER_LEN>();
        let is_asked_for = matches!(header, Some([0, 3 | 6, ..]));
        if is_asked_for && self.servers.contains(&host) && self.strangers.len() < CONTROL_QUEUE {
            self.strangers.push_back(*ends);
        }
    }

    /// Another packet of our peer's host, which may have one port for all transfers, while a block is in doubt. True if it is the answer
    /// instead.
    #[cold]
    fn reconsider(&mut self, ends: &Ends, payload: Parts<'_>) -> bool {
        let bytes = copied(payload);
        let answers = is_answer(&bytes);
        if answers && !is_block(&bytes) {
            // A server that knows options, or has no such file.
            self.peer = Some(*ends);
            (self.doubted, self.contested) = (false, false);
            self.control = [bytes].into();
            return true;
        }
        self.contested |= answers && self.control.front() != Some(&bytes);
        false
    }

    /// The answer to the request, when it is beyond doubt.
    pub(super) fn answer(&mut self, now: Instant) -> Option<Result<Vec<u8>, TftpError>> {
        if self.doubted && now < self.heard + DOUBT {
            return None;
        }
        self.doubted = false;
        if self.contested {
            return Some(Err(TftpError::Contested));
        }
        self.control.pop_front().map(Ok)
    }

    /// One DATA packet, on loan.
    #[inline(always)]
    pub(super) fn data(&mut self, block: u16, data: Parts<'_>, now: Instant) {
        if data.len() > self.block_size || self.complete {
            return;
        }
        self.heard = now;
        // The block number is 16 bits of the count (files beyond 65535 blocks wrap to 0).
        let ahead = block.wrapping_sub(self.next as u16) as i16;
        if ahead < 0 {
            // Only a repeated newest block shows that our acknowledgement was lost: one answer for a whole window.
            // After a time-out of ours, it may answer the acknowledgement that was sent again.
            let lost_after = self.backed_off.unwrap_or(DUPLICATE_AFTER);
            if ahead == -1 && now >= self.sent + lost_after {
                self.retransmissions += 1;
                self.due = true;
                self.again = true;
            }
            return;
        }
        if ahead > 0 {
            if !self.gap {
                self.gap = true;
                self.due = true;
                self.again = true;
                self.retransmissions += 1;
                self.narrow();
            }
            return;
        }
        let received = self.received as usize;
        let write = |memory: &mut Memory| memory.write(received, data);
        if self.memory.as_mut().map_or(0, write) < data.len() {
            // The task finds memory and asks for the block again, of which some may be written.
            self.overflow |= self.received + data.len() as u64 > self.capacity();
            self.due = true;
            self.again = true;
            return;
        }
        if let Some((_, since)) = self.timing.take_if(|(block, _)| *block == self.next) {
            let sample = now - since;
            self.round_trip = Some(match self.round_trip {
                Some(smooth) => (smooth * 7 + sample) / 8,
                None => sample,
            });
            self.backed_off = None;
        }
        self.received += data.len() as u64;
        self.next += 1;
        self.unacknowledged += 1;
        self.gap = false;
        self.complete = data.len() < self.block_size;
        let window_ends = match self.slide {
            Some(slide) => (self.next - 1).is_multiple_of(slide.into()),
            None => self.unacknowledged >= self.window,
        };
        if self.complete || window_ends {
            self.due = true;
        }
        if window_ends {
            self.widen();
        }
    }

    /// Declares final what has been received: it is not written again.
    pub(super) fn commit(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.commit(self.received as usize);
        }
    }

    /// The block to acknowledge now, and how often.
    pub(super) fn acknowledgements(&mut self, now: Instant) -> (u16, usize) {
        let newest = self.next - 1;
        let again = core::mem::take(&mut self.again) || self.complete;
        let (block, copies) = match self.slide.map(u64::from) {
            None => {
                // The first acknowledgement of this block: what comes next answers it (Karn's algorithm).
                self.timing = (self.unacknowledged > 0).then_some((self.next, now));
                (newest, 1)
            }
            Some(slide) if again => {
                self.timing = None;
                // The first acknowledgement of a multiple slides the window on; only the next one takes it back.
                let slides = newest.is_multiple_of(slide) && newest != self.acknowledged;
                let twice = slides && !self.complete;
                (newest, if twice { 2 } else { 1 })
            }
            Some(slide) => {
                // A burst may go beyond the multiple, but only a multiple slides the window on.
                let block = newest - newest % slide;
                if self.timing.is_none() && block > self.acknowledged {
                    let window = u64::from(self.window);
                    self.timing = Some((self.acknowledged + window + 1, now));
                }
                (block, 1)
            }
        };
        self.sent = now;
        self.acknowledged = block;
        self.unacknowledged = 0;
        (block as u16, copies)
    }

    /// Room that a whole window beyond the last block in order needs, which is all that a server may have on its way.
    pub(super) fn wanted(&self) -> u64 {
        self.received + u64::from(self.window) * self.block_size as u64
    }

    /// Whether all that the server sends for an acknowledgement can be written at once, as far as the file goes that was `announced`, and a
    /// block beyond.
    pub(super) fn has_room(&mut self, announced: Option<u64>) -> bool {
        let block = self.received + self.block_size as u64;
        let most = announced.map_or(u64::MAX, |size| size.max(block));
        let wanted = usize::try_from(self.wanted().min(most)).unwrap_or(usize::MAX);
        self.memory.as_mut().is_none_or(|memory| {
            let wanted = wanted.min(memory.len());
            memory.has_room(wanted)
        })
    }

    pub(super) fn capacity(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.len() as u64)
    }

    /// How long to wait for the next packet.
    pub(super) fn timeout(&self) -> Duration {
        if let Some(timeout) = self.backed_off {
            return timeout;
        }
        self.round_trip
            .map_or(FIRST_TIMEOUT, |smooth| (smooth * 3).max(MIN_TIMEOUT))
            .min(MAX_TIMEOUT)
    }

    /// Nothing has come for [`Self::timeout`]: the last acknowledgement is to be sent again.
    pub(super) fn timed_out(&mut self) {
        self.backed_off = Some((self.timeout() * 2).min(MAX_TIMEOUT));
        self.retransmissions += 1;
        // A server that has to find the file, not a lost window: nothing of that has come.
        if self.next == 1
            && !self.gap
            && let Some(trial) = &mut self.trial
            && !trial.long
        {
            trial.retransmissions += 1;
        }
        self.again = true;
        self.narrow();
        // If our report of a gap was lost, what slides in now shall be reported, too.
        self.gap &= self.slide.is_none();
    }
}
