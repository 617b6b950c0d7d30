//! Where the time of a packet goes: the clock is read wherever the engine calls a driver, and the driver the engine.

use super::LadderRun;
use super::frames::Size;
use super::table::Kind;
use super::wire::Driver;
use crate::error::Error;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use wireboot_fetch::Service;
use wireboot_nic::{
    Checksum, Counters, Fault, Frame, Nic, Offload, Properties, Receive, SendError, Transmit,
};
use wireboot_platform::Clock;

/// Readings of the clock to find out what one takes.
const READINGS: u64 = 1000;

/// What turns that brought frames consisted of, in ticks of the time-stamp counter; readings of the clock are subtracted. What is not here
/// of such a turn is the engine's own, apart from frames: tasks, and what to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases {
    /// Turns that brought frames.
    pub turns: u64,
    /// Frames that they brought.
    pub frames: u64,
    /// Frames sent in them.
    pub sent: u64,
    /// The driver's calls that brought a frame.
    pub receive: u64,
    /// Its last calls of a burst, which brought none.
    pub look: u64,
    /// The engine's work on frames on loan: headers, checksum, copy, protocol.
    pub take: u64,
    /// The driver's calls that send frames and take back their buffers.
    pub transmit: u64,
}

impl Phases {
    fn add(&mut self, turn: &Self) {
        let Self {
            turns,
            frames,
            sent,
            receive,
            look,
            take,
            transmit,
        } = turn;
        self.turns += turns;
        self.frames += frames;
        self.sent += sent;
        self.receive += receive;
        self.look += look;
        self.take += take;
        self.transmit += transmit;
    }

    /// A JSON object.
    pub(crate) fn json(&self) -> String {
        let Self {
            turns,
            frames,
            sent,
            receive,
            look,
            take,
            transmit,
        } = self;
        format!(
            "{{\"turns\":{turns},\"frames\":{frames},\"sent\":{sent},\"receive\":{receive},\"look\":{look},\
             \"take\":{take},\"transmit\":{transmit}}}"
        )
    }
}

/// What is shared by a measured NIC and whoever reads the phases.
#[derive(Clone)]
pub(crate) struct Record {
    clock: Clock,
    /// Ticks of a reading.
    reading: u64,
    /// Turns that are over, and the one that is not.
    phases: Rc<Cell<(Phases, Phases)>>,
}

impl Record {
    /// Empty; takes as long as 1000 readings of the clock.
    pub(crate) fn new(clock: Clock) -> Self {
        let begin = clock.ticks();
        for _ in 1..READINGS {
            core::hint::black_box(clock.ticks());
        }
        Self {
            clock,
            reading: (clock.ticks() - begin) / READINGS,
            phases: Rc::default(),
        }
    }

    /// What was recorded since this was last asked; none where there was no frame.
    pub(crate) fn take(&self) -> Option<Phases> {
        self.turn();
        let (phases, _) = self.phases.take();
        (phases.frames > 0).then_some(phases)
    }

    /// A new turn begins. One without frames was waiting, which is not recorded.
    fn turn(&self) {
        let (mut phases, turn) = self.phases.get();
        if turn.frames > 0 {
            phases.add(&Phases { turns: 1, ..turn });
        }
        self.phases.set((phases, Phases::default()));
    }

    fn note(&self, change: impl FnOnce(&mut Phases)) {
        let (phases, mut turn) = self.phases.get();
        change(&mut turn);
        self.phases.set((phases, turn));
    }

    /// Ticks between two readings.
    fn between(&self, start: u64, end: u64) -> u64 {
        end.saturating_sub(start).saturating_sub(self.reading)
    }
}

/// A NIC whose calls are recorded.
pub(crate) struct Recorded<N> {
    nic: N,
    record: Record,
    /// Says of each frame that its checksum is right: what is left out then is what checking it takes.
    pub trusting: bool,
}

impl<N> Recorded<N> {
    /// Records into `record`.
    pub(crate) fn new(nic: N, record: Record) -> Self {
        Self {
            nic,
            record,
            trusting: false,
        }
    }
}

/// The receive half of a [`Recorded`].
pub(crate) struct RecordedReceive<'a, R> {
    inner: R,
    record: &'a Record,
    trusting: bool,
}

impl<R: Receive> Receive for RecordedReceive<'_, R> {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let record = self.record;
        record.turn();
        let mut turn = Phases::default();
        let mut at = record.clock.ticks();
        let lent = self.inner.burst(budget, |frame| {
            let start = record.clock.ticks();
            let checksum = if self.trusting {
                Checksum::Trusted
            } else {
                frame.checksum
            };
            sink(Frame { checksum, ..frame });
            let end = record.clock.ticks();
            turn.frames += 1;
            turn.receive += record.between(at, start);
            turn.take += record.between(start, end);
            at = end;
        })?;
        turn.look = record.between(at, record.clock.ticks());
        record.note(|now| *now = turn);
        Ok(lent)
    }
}

/// The transmit half of a [`Recorded`].
pub(crate) struct RecordedTransmit<'a, T> {
    inner: T,
    record: &'a Record,
}

impl<T: Transmit> RecordedTransmit<'_, T> {
    fn timed<R>(&mut self, call: impl FnOnce(&mut T) -> R) -> R {
        let start = self.record.clock.ticks();
        let result = call(&mut self.inner);
        let ticks = self.record.between(start, self.record.clock.ticks());
        self.record.note(|turn| turn.transmit += ticks);
        result
    }
}

impl<T: Transmit> Transmit for RecordedTransmit<'_, T> {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        // Writing the frame is a part of this, and next to nothing of it for acknowledgements.
        let result = self.timed(|inner| inner.send(len, offload, fill));
        let sent = u64::from(result.is_ok());
        self.record.note(|turn| turn.sent += sent);
        result
    }

    fn room(&mut self) -> usize {
        self.timed(T::room)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.timed(T::flush)
    }

    fn idle(&mut self) -> bool {
        self.inner.idle()
    }
}

impl<N: Nic> Nic for Recorded<N> {
    type Rx<'a>
        = RecordedReceive<'a, N::Rx<'a>>
    where
        Self: 'a;
    type Tx<'a>
        = RecordedTransmit<'a, N::Tx<'a>>
    where
        Self: 'a;

    fn properties(&self) -> Properties {
        self.nic.properties()
    }

    fn link_up(&mut self) -> bool {
        self.nic.link_up()
    }

    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
        let (receive, transmit) = self.nic.split();
        (
            RecordedReceive {
                inner: receive,
                record: &self.record,
                trusting: self.trusting,
            },
            RecordedTransmit {
                inner: transmit,
                record: &self.record,
            },
        )
    }

    fn counters(&self) -> Counters {
        self.nic.counters()
    }

    fn stop(&mut self) {
        self.nic.stop();
    }
}

impl LadderRun<'_> {
    /// The rungs of receiving by the firmware's driver: frames thrown away, copied, and by our stack, with and without checksums.
    pub(super) fn phases(&mut self, record: Record) {
        self.interface.connect();
        let nic = self.snp().map(|nic| Recorded::new(nic, record));
        if let Err(error) = nic.and_then(|nic| self.recorded(nic)) {
            self.ladder.add(Kind::Receive, "SNP", Err(error));
        }
    }

    fn recorded(&mut self, nic: Recorded<impl Nic>) -> Result<(), Error> {
        let mut driver = Driver(nic);
        self.rung(Kind::Receive, "SNP", |run| {
            run.frames.receive(&mut driver, Size::Full, None)
        });
        self.copied("SNP, copied", &mut driver);
        let mut nic = driver.0;
        nic = self.turns_by(Service::poll, nic, "tftp", "wireboot TFTP over SNP")?;
        nic = self.turns_by(Service::poll, nic, "http", "wireboot HTTP over SNP")?;
        nic.trusting = true;
        nic = self.turns_by(
            Service::poll,
            nic,
            "tftp",
            "wireboot TFTP over SNP, unchecked",
        )?;
        self.turns_by(
            Service::poll,
            nic,
            "http",
            "wireboot HTTP over SNP, unchecked",
        )?;
        Ok(())
    }
}
