//! A part of the network on a processor of its own, watched from the boot processor.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use wireboot_net::Instant;
use wireboot_nic::{Counters, Fault};
use wireboot_platform::Clock;
#[cfg(feature = "faults")]
use wireboot_platform::faults::{self, Place};
use wireboot_platform::processors::{self, Parking, Processor};
use wireboot_threads::{Context, Thread, spawn};

/// How long a processor may take to come, in microseconds. 15 ms are common.
const START: u64 = 500_000;
/// A processor that has not told for so long that it is alive is lost, in microseconds. Hypervisors take processors away for
/// tenths of a second.
const SILENCE: u64 = 3_000_000;
/// When nothing has come for so long, in microseconds, the other processor begins to rest: longer than what servers near by take to
/// answer, block by block.
const BUSY: u64 = 1000;
/// Its longest rest, in microseconds. A rest is an eighth of the wait before it, so that is what it may cost a frame at most.
const LONGEST_REST: u64 = 1000;
/// How often the other processor forgets its translations of addresses, in microseconds. QEMU's translator lets a processor remember
/// more of them only when it has forgotten many; the boot processor has had occasion in the firmware. Otherwise most pages
/// of the ring and of the file are looked up in the page tables for each frame. To processors of silicon it means nothing.
const FORGET: u64 = 20_000;

/// What runs there.
pub trait Duty: Send + 'static {
    /// What it becomes on the processor, which it cannot leave any more.
    type Running;
    /// What remains of it.
    type Remains: Send + 'static;
    /// It, for a planted fault.
    #[cfg(feature = "faults")]
    const PLACE: Place;

    /// The clock that it goes by.
    fn clock(&self) -> Clock;
    /// Begins, on the processor that will run it.
    fn begin(self) -> Self::Running;
    /// One turn. Returns whether something was to be done.
    fn turn(running: &mut Self::Running, now: Instant) -> Result<bool, Fault>;
    /// What went through its NIC.
    fn counters(running: &mut Self::Running) -> Counters;
    /// Lets the last frames leave, and ends.
    fn end(running: Self::Running) -> Self::Remains;
}

/// What has been done on a processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Ticks of the time-stamp counter in turns that received frames.
    pub ticks: u64,
    /// Received units.
    pub units: u64,
    /// Bytes received, link headers included.
    pub bytes: u64,
}

/// An account that its processor writes and the boot processor reads.
#[derive(Default)]
struct Ledger {
    ticks: AtomicU64,
    units: AtomicU64,
    bytes: AtomicU64,
}

impl Ledger {
    fn enter(&self, ticks: u64, counters: &Counters) {
        self.ticks.store(ticks, Ordering::Relaxed);
        self.units.store(counters.receive_units, Ordering::Relaxed);
        self.bytes.store(counters.receive_bytes, Ordering::Relaxed);
    }

    fn read(&self) -> Account {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Account {
            ticks: read(&self.ticks),
            units: read(&self.units),
            bytes: read(&self.bytes),
        }
    }
}

/// A duty with the account that it keeps.
struct Manned<D> {
    duty: D,
    ledger: Arc<Ledger>,
}

/// How a duty ended: what remains, and the fault that ended it unless it was asked to.
type Ended<D> = (<D as Duty>::Remains, Option<Fault>);

/// A duty on a processor of its own.
pub struct Post<D: Duty> {
    thread: Thread<Manned<D>, Ended<D>>,
    processor: Processor,
    ledger: Arc<Ledger>,
    /// How often the thread had told that it is alive, and since when.
    beats: u64,
    since: u64,
}

impl<D: Duty> Post<D> {
    /// Has the first of `processors` that comes do `duty`; those that do not come are passed over.
    ///
    /// # Errors
    /// The duty, when none came.
    pub fn fill(processors: &mut impl Iterator<Item = Processor>, duty: D) -> Result<Self, D> {
        let clock = duty.clock();
        let ledger = Arc::new(Ledger::default());
        let mut manned = Manned {
            duty,
            ledger: ledger.clone(),
        };
        for mut processor in processors {
            let number = processor.number();
            let mut thread = match spawn(&mut processor, manned, serve) {
                Ok(thread) => thread,
                Err(refused) => {
                    log::warn!(
                        "processor {number} does not start ({})",
                        refused.error.status()
                    );
                    manned = refused.value;
                    continue;
                }
            };
            let end = clock.micros() + START;
            while !thread.is_started() && clock.micros() < end {
                core::hint::spin_loop();
            }
            if !thread.is_started() {
                match thread.reclaim() {
                    Ok(back) => {
                        log::warn!("processor {number} does not come");
                        // Should the firmware refuse: it will find nothing to do.
                        let _ = processor.kill();
                        manned = back;
                        continue;
                    }
                    Err(came) => thread = came,
                }
            }
            return Ok(Self {
                beats: thread.beats(),
                since: clock.micros(),
                thread,
                processor,
                ledger,
            });
        }
        Err(manned.duty)
    }

    /// The processor's number.
    pub fn number(&self) -> usize {
        self.processor.number()
    }

    /// What has been done so far.
    pub fn account(&self) -> Account {
        self.ledger.read()
    }

    /// The duty has ended, asked or not.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Why the processor is lost, if it is.
    pub fn loss(&mut self, now: u64) -> Option<String> {
        let told = self.thread.beats();
        if told != self.beats {
            (self.beats, self.since) = (told, now);
        }
        let silent = now > self.since + SILENCE;
        let words = self.processor.last_words();
        (words.is_some() || self.processor.is_overflowing() || silent)
            .then(|| words.unwrap_or_else(|| "it stopped answering".to_string()))
    }

    /// Asks the duty to end, and does not wait for it.
    pub fn dismiss(&self) {
        self.thread.stop();
    }

    /// Ends the duty, and does what it needs of this processor `meanwhile`.
    ///
    /// # Errors
    /// The processor, when it does not stop.
    pub fn end(self, clock: Clock, mut meanwhile: impl FnMut()) -> Result<Ended<D>, Processor> {
        let Self {
            mut thread,
            processor,
            ..
        } = self;
        thread.stop();
        let end = clock.micros() + SILENCE;
        let ended = loop {
            match thread.join() {
                Ok(ended) => break ended,
                Err(_) if clock.micros() > end => {
                    log::warn!("processor {} does not stop", processor.number());
                    return Err(processor);
                }
                Err(back) => thread = back,
            }
            meanwhile();
            core::hint::spin_loop();
        };
        // It has a few instructions to go on our stack.
        while !processor.is_idle() && clock.micros() < end {
            core::hint::spin_loop();
        }
        Ok(ended)
    }

    /// The processor, with whatever the duty was in the middle of.
    pub fn abandon(self) -> Processor {
        self.processor
    }
}

/// The life of a duty on a processor of its own.
fn serve<D: Duty>(manned: Manned<D>, context: &Context<'_>) -> Ended<D> {
    let Manned { duty, ledger } = manned;
    let clock = duty.clock();
    let mut running = duty.begin();
    let parking = Parking::here(clock);
    let mut busy = clock.micros();
    let mut forgotten = busy;
    let (mut ticks, mut units) = (0, 0);
    let fault = loop {
        if context.stopping() {
            break None;
        }
        context.beat();
        let begin = clock.ticks();
        match D::turn(&mut running, instant(clock)) {
            Err(fault) => break Some(fault),
            Ok(true) => {
                busy = clock.micros();
                let counters = D::counters(&mut running);
                if counters.receive_units != units {
                    units = counters.receive_units;
                    ticks += clock.ticks() - begin;
                    ledger.enter(ticks, &counters);
                    #[cfg(feature = "faults")]
                    for place in [D::PLACE, Place::Heap] {
                        faults::reach_receiving(place, counters.receive_bytes);
                    }
                }
                if busy >= forgotten + FORGET {
                    processors::forget_translations();
                    forgotten = busy;
                }
            }
            Ok(false) => {
                let idle = clock.micros() - busy;
                if let Some(parking) = &parking
                    && idle >= BUSY
                {
                    parking.park((idle / 8).min(LONGEST_REST) as u32);
                }
            }
        }
    };
    (D::end(running), fault)
}

/// Now, for an engine.
pub fn instant(clock: Clock) -> Instant {
    Instant::from_micros(i64::try_from(clock.micros()).unwrap_or(i64::MAX))
}
