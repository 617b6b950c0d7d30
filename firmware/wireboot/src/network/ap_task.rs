//! A part of the network on an AP (application processor), watched from the BSP (bootstrap processor).

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use wireboot_net::Instant;
use wireboot_nic::{Counters, Fault};
use wireboot_platform::Clock;
#[cfg(feature = "faults")]
use wireboot_platform::faults::{self, Place};
use wireboot_platform::processors::{self, Parking, Processor};
use wireboot_threads::{Context, Thread, Watch, spawn};

/// How long an AP may take to come, in microseconds. 15 ms are common.
const START: u64 = 500_000;
/// An AP that has not beaten ([`Context::beat`]) for so long while the BSP looked is lost, in microseconds. Hypervisors take
/// processors away for tenths of a second.
const SILENCE: u64 = 3_000_000;
/// When nothing has come for so long, in microseconds, the AP begins to park: longer than what servers near by take to
/// answer, block by block.
const BUSY: u64 = 1000;
/// It parks for this long at most, in microseconds, and for an eighth of the wait before, so that is what it may cost a frame at most.
const LONGEST_PARK: u64 = 1000;
/// How often the AP flushes its TLB, in microseconds. QEMU's translator (TCG) makes the TLB of a processor larger only when it
/// is flushed; the BSP's was in the firmware. Otherwise most pages of the ring and of the file are looked up in the page tables
/// for each frame. To processors of silicon it means nothing.
const FLUSH_TLB: u64 = 20_000;

/// What a task runs.
pub(super) trait Task: Send + 'static {
    /// The task once it has begun. It need not be `Send`: it stays on its processor.
    type Running;
    /// What goes back to the BSP at the end: the NIC.
    type Remains: Send + 'static;
    /// Where a planted fault panics, should it be this task's.
    #[cfg(feature = "faults")]
    const PLACE: Place;

    /// The machine's, calibrated by the BSP.
    fn clock(&self) -> Clock;
    /// Begins, on the AP that will run it.
    fn begin(self) -> Self::Running;
    /// One turn. Returns whether something was to be done.
    fn turn(running: &mut Self::Running, now: Instant) -> Result<bool, Fault>;
    /// Of its NIC, since the NIC was started.
    fn counters(running: &mut Self::Running) -> Counters;
    /// Lets the last frames leave, and ends.
    fn end(running: Self::Running) -> Self::Remains;
}

/// What has been done on an AP.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApStats {
    /// Ticks of the time-stamp counter in turns that received frames.
    pub ticks: u64,
    /// Units received: frames, or several that the card has joined.
    pub units: u64,
    /// Bytes received, link headers included.
    pub bytes: u64,
}

/// [`ApStats`] that the AP writes and the BSP reads. Each number for itself: they may be of different turns.
#[derive(Default)]
struct SharedStats {
    ticks: AtomicU64,
    units: AtomicU64,
    bytes: AtomicU64,
}

impl SharedStats {
    fn store(&self, ticks: u64, counters: &Counters) {
        self.ticks.store(ticks, Ordering::Relaxed);
        self.units.store(counters.receive_units, Ordering::Relaxed);
        self.bytes.store(counters.receive_bytes, Ordering::Relaxed);
    }

    fn load(&self) -> ApStats {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        ApStats {
            ticks: read(&self.ticks),
            units: read(&self.units),
            bytes: read(&self.bytes),
        }
    }
}

/// A task, with the numbers that it keeps.
struct TaskWithStats<T> {
    task: T,
    stats: Arc<SharedStats>,
}

/// How a task ended: what remains, and the fault that ended it unless it was asked to.
type Ended<T> = (<T as Task>::Remains, Option<Fault>);

/// A task on an AP of its own.
pub(super) struct ApTask<T: Task> {
    thread: Thread<TaskWithStats<T>, Ended<T>>,
    processor: Processor,
    stats: Arc<SharedStats>,
    /// [`Thread::beats`] when it last changed.
    beats: u64,
    /// How long the BSP has looked since.
    silence: Watch,
}

impl<T: Task> ApTask<T> {
    /// Has the first of `processors` that comes do `task`; those that do not come are passed over.
    ///
    /// # Errors
    /// The task, when none came.
    pub(super) fn spawn(
        processors: &mut impl Iterator<Item = Processor>,
        task: T,
    ) -> Result<Self, T> {
        let clock = task.clock();
        let stats = Arc::new(SharedStats::default());
        let mut task = TaskWithStats {
            task,
            stats: stats.clone(),
        };
        for mut processor in processors {
            let number = processor.number();
            let mut thread = match spawn(&mut processor, task, serve) {
                Ok(thread) => thread,
                Err(refused) => {
                    log::warn!(
                        "processor {number} does not start ({})",
                        refused.error.status()
                    );
                    task = refused.value;
                    continue;
                }
            };
            let mut wait = Watch::new(clock.micros());
            while !thread.is_started() && wait.look(clock.micros()) < START {
                core::hint::spin_loop();
            }
            if !thread.is_started() {
                match thread.reclaim() {
                    Ok(back) => {
                        log::warn!("processor {number} does not come");
                        // Should the firmware refuse: it will find nothing to do.
                        let _ = processor.kill();
                        task = back;
                        continue;
                    }
                    Err(came) => thread = came,
                }
            }
            return Ok(Self {
                beats: thread.beats(),
                silence: Watch::new(clock.micros()),
                thread,
                processor,
                stats,
            });
        }
        Err(task.task)
    }

    /// The AP's number, by EFI_MP_SERVICES_PROTOCOL.
    pub(super) fn number(&self) -> usize {
        self.processor.number()
    }

    /// Since the task began.
    pub(super) fn stats(&self) -> ApStats {
        self.stats.load()
    }

    /// The task has ended, asked or not.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Why the AP is lost, if it is.
    pub(super) fn loss(&mut self, now: u64) -> Option<String> {
        let beats = self.thread.beats();
        if beats != self.beats {
            (self.beats, self.silence) = (beats, Watch::new(now));
        }
        let silent = self.silence.look(now) > SILENCE;
        let message = self.processor.failure_message();
        (message.is_some() || self.processor.is_overflowing() || silent)
            .then(|| message.unwrap_or_else(|| "it stopped answering".to_string()))
    }

    /// Asks the task to end, and does not wait for it.
    pub(super) fn request_stop(&self) {
        self.thread.stop();
    }

    /// Ends the task, and does what it needs of the BSP `meanwhile`.
    ///
    /// # Errors
    /// The AP, when it does not stop.
    pub(super) fn end(
        self,
        clock: Clock,
        mut meanwhile: impl FnMut(),
    ) -> Result<Ended<T>, Processor> {
        let Self {
            mut thread,
            processor,
            ..
        } = self;
        thread.stop();
        let mut wait = Watch::new(clock.micros());
        let ended = loop {
            match thread.join() {
                Ok(ended) => break ended,
                Err(_) if wait.look(clock.micros()) > SILENCE => {
                    halt(&processor, clock);
                    return Err(processor);
                }
                Err(back) => thread = back,
            }
            meanwhile();
            core::hint::spin_loop();
        };
        // It has a few instructions to go on our stack.
        while !processor.is_idle() && wait.look(clock.micros()) < SILENCE {
            core::hint::spin_loop();
        }
        Ok(ended)
    }

    /// The AP, with whatever the task was in the middle of.
    pub(super) fn abandon(self) -> Processor {
        self.processor
    }
}

/// Halts an AP that does not stop, so that it does not go on in memory that soon is somebody else's.
fn halt(processor: &Processor, clock: Clock) {
    let number = processor.number();
    let mut told = false;
    processor.halt(clock, |message| {
        told = true;
        log::warn!("processor {number} does not stop and was halted ({message})");
    });
    if !told {
        log::warn!("processor {number} does not stop, and does not say where it is");
    }
}

/// Runs a task on its AP until it is asked to stop or meets a fault.
fn serve<T: Task>(task: TaskWithStats<T>, context: &Context<'_>) -> Ended<T> {
    let TaskWithStats { task, stats } = task;
    let clock = task.clock();
    let mut running = task.begin();
    let parking = Parking::here(clock);
    let mut busy = clock.micros();
    let mut flushed = busy;
    let (mut ticks, mut units) = (0, 0);
    let fault = loop {
        if context.stopping() {
            #[cfg(feature = "faults")]
            faults::reach(Place::Stop);
            break None;
        }
        context.beat();
        let begin = clock.ticks();
        match T::turn(&mut running, instant(clock)) {
            Err(fault) => break Some(fault),
            Ok(true) => {
                busy = clock.micros();
                let counters = T::counters(&mut running);
                if counters.receive_units != units {
                    units = counters.receive_units;
                    ticks += clock.ticks() - begin;
                    stats.store(ticks, &counters);
                    #[cfg(feature = "faults")]
                    for place in [T::PLACE, Place::Heap, Place::Kill] {
                        faults::reach_receiving(place, counters.receive_bytes);
                    }
                }
                if busy >= flushed + FLUSH_TLB {
                    processors::flush_tlb();
                    flushed = busy;
                }
            }
            Ok(false) => {
                let idle = clock.micros() - busy;
                if let Some(parking) = &parking
                    && idle >= BUSY
                {
                    parking.park((idle / 8).min(LONGEST_PARK) as u32);
                }
            }
        }
    };
    (T::end(running), fault)
}

/// The clock's time as engines take it.
pub(crate) fn instant(clock: Clock) -> Instant {
    Instant::from_micros(i64::try_from(clock.micros()).unwrap_or(i64::MAX))
}
