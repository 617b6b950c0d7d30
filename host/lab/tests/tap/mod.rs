//! A NIC whose wire ends in this computer: frames go through a tap interface. They can be doubled and late, in both directions; the
//! fault middleware loses and damages them.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use wireboot_nic::{
    Checksum, Counters, Fault, Frame, MacAddress, Nic, Offload, Properties, Receive, SendError,
    Transmit,
};

pub(crate) const MAC: MacAddress = [2, 0, 0, 0, 0, 9];
const MTU: u16 = 1500;
const LONGEST: usize = MTU as usize + 14;
/// What the tap's queue of 500 frames holds for certain.
const FRAMES: usize = 256;
/// The share of frames that are late, and of those that come twice.
const SHARE: f64 = 0.01;
/// How much later: what was sent meanwhile overtakes them.
const LATE: Duration = Duration::from_millis(1);

/// What one direction does to its frames.
struct Disorder {
    share: f64,
    random: fastrand::Rng,
    late: Vec<(Instant, Vec<u8>)>,
    /// Frames that were late or doubled so far.
    disturbed: u64,
}

impl Disorder {
    fn new(seed: u64) -> Self {
        Self {
            share: 0.0,
            random: fastrand::Rng::with_seed(seed),
            late: Vec::new(),
            disturbed: 0,
        }
    }

    /// Whether `frame` passes now; a copy may come later.
    fn passes(&mut self, frame: &[u8]) -> bool {
        let chance = self.random.f64();
        if chance < 2.0 * self.share {
            self.disturbed += 1;
            self.late.push((Instant::now() + LATE, frame.to_vec()));
        }
        chance >= self.share
    }

    /// A late frame that comes now.
    fn due(&mut self) -> Option<Vec<u8>> {
        let (at, _) = self.late.first()?;
        (*at <= Instant::now()).then(|| self.late.remove(0).1)
    }
}

pub(crate) struct TapReceive {
    tap: File,
    disorder: Disorder,
}

pub(crate) struct TapTransmit {
    tap: File,
    disorder: Disorder,
    /// Frames since the last flush: no more than a ring's, as Linux's answers to them must fit the tap's queue.
    sent: usize,
}

pub(crate) struct TapNic {
    receive: TapReceive,
    transmit: TapTransmit,
}

impl TapNic {
    /// Makes the interface, which is gone with the NIC.
    pub(crate) fn new(interface: &str) -> Self {
        let tap = wireboot_lab::open_tap(interface).unwrap();
        Self {
            transmit: TapTransmit {
                tap: tap.try_clone().unwrap(),
                disorder: Disorder::new(4),
                sent: 0,
            },
            receive: TapReceive {
                tap,
                disorder: Disorder::new(5),
            },
        }
    }

    /// From now on frames are late and doubled.
    pub(crate) fn disturb(&mut self) {
        self.receive.disorder.share = SHARE;
        self.transmit.disorder.share = SHARE;
    }

    /// Frames that were late or doubled: received, sent.
    pub(crate) fn disturbed(&self) -> [u64; 2] {
        [
            self.receive.disorder.disturbed,
            self.transmit.disorder.disturbed,
        ]
    }
}

impl Receive for TapReceive {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let mut lend = |frame: &[u8]| {
            sink(Frame {
                parts: &[frame],
                len: frame.len(),
                checksum: Checksum::Unverified,
                udp_segment: None,
            });
        };
        let mut count = 0;
        let mut buffer = [0; LONGEST + 4];
        while count < budget {
            if let Some(frame) = self.disorder.due() {
                lend(&frame);
                count += 1;
                continue;
            }
            match self.tap.read(&mut buffer) {
                Ok(len) => {
                    let frame = &buffer[..len];
                    if self.disorder.passes(frame) {
                        lend(frame);
                        count += 1;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("reading from the tap: {error}"),
            }
        }
        Ok(count)
    }
}

impl Transmit for TapTransmit {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        assert_eq!(offload, Offload::None);
        if len > LONGEST {
            return Err(SendError::TooLong);
        }
        if self.room() == 0 {
            return Err(SendError::Full);
        }
        self.sent += 1;
        let mut frame = vec![0; len];
        fill(&mut frame);
        if self.disorder.passes(&frame) {
            self.tap.write_all(&frame).unwrap();
        }
        Ok(())
    }

    fn room(&mut self) -> usize {
        FRAMES - self.sent
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.sent = 0;
        while let Some(frame) = self.disorder.due() {
            self.tap.write_all(&frame).unwrap();
        }
        Ok(())
    }

    fn idle(&mut self) -> bool {
        self.disorder.late.is_empty()
    }
}

impl Nic for TapNic {
    type Rx<'a> = &'a mut TapReceive;
    type Tx<'a> = &'a mut TapTransmit;

    fn properties(&self) -> Properties {
        Properties {
            mac: MAC,
            mtu: MTU,
            max_receive: LONGEST,
            receive_frames: FRAMES,
            receive_frames_probe: 0,
            receive_bytes: FRAMES * LONGEST,
            transmit_checksum: false,
            transmit_unit: 0,
        }
    }

    fn link_up(&mut self) -> bool {
        true
    }

    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
        (&mut self.receive, &mut self.transmit)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn stop(&mut self) {}
}
