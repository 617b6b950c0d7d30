//! The rungs of TCP that sends: from memory to the sender's sink, whose acknowledgement of the last byte is the end.

use super::Sample;
use crate::error::{Error, refused};
use crate::throughput::{configure, wait_for_router};
use alloc::rc::Rc;
use core::cell::Cell;
use core::net::SocketAddr;
use wireboot_boot::card::AnyNic;
use wireboot_boot::engine::{self, Cable};
use wireboot_fetch::Leases;
use wireboot_net::{Duration, Engine, Instant, Memory, NetError, Region, Stack, TcpStream};
use wireboot_nic::Nic;
use wireboot_platform::{Clock, memory, random};

/// What is sent, in bytes.
pub(crate) const BYTES: usize = 256 << 20;
/// How long each step may take, in microseconds.
const PATIENCE: u64 = 60_000_000;
/// How long the sink may take to answer.
const CONNECT: Duration = Duration::from_secs(5);

/// Sends from this processor, with the time of each turn; with the card's segmentation offload or without. Gives the interface back.
pub(crate) fn send(
    nic: AnyNic,
    tso: bool,
    leases: &Leases,
    sink: SocketAddr,
    clock: Clock,
) -> (AnyNic, Result<Sample, Error>) {
    let mut engine = Engine::new(engine::cable(nic), random::seed().0);
    if !tso {
        engine.without_segmentation_offload();
    }
    let result = transfer(&mut engine, leases, sink, clock);
    (engine.into_nic().into_nic(), result)
}

fn transfer(
    engine: &mut Engine<Cable>,
    leases: &Leases,
    sink: SocketAddr,
    clock: Clock,
) -> Result<Sample, Error> {
    let (memory, _) = memory::download_buffer(BYTES).map_err(refused("memory to send from"))?;
    let region = Region::new(Memory::new(memory));
    let stack = engine.stack();
    configure(&stack, leases);
    let (stream, _) = drive(engine, clock, async move { connect(&stack, sink).await })?;
    let mut stream = stream.map_err(Error::Sink)?;
    let before = engine.nic_mut().counters().transmit_frames;
    let begin = clock.micros();
    let kept = region.clone();
    let ((stream, sent), busy) = drive(engine, clock, async move {
        let sent = stream.send_from(&kept, 0, BYTES).await;
        (stream, sent)
    })?;
    sent.map_err(Error::Sink)?;
    let sample = Sample {
        packets: engine.nic_mut().counters().transmit_frames - before,
        bytes: BYTES as u64,
        micros: clock.micros() - begin,
        busy,
        ..Sample::default()
    };
    // Firmware that clears what it takes back needs a second for it, which is not TCP's.
    drop(region);
    drive(engine, clock, close(stream))?
        .0
        .map_err(Error::Sink)?;
    Ok(sample)
}

async fn connect(stack: &Stack, sink: SocketAddr) -> Result<TcpStream, NetError> {
    wait_for_router(stack, sink.ip()).await;
    stack.connect(sink, CONNECT).await
}

/// Closes, and waits until the other end has, too.
async fn close(mut stream: TcpStream) -> Result<(), NetError> {
    stream.close();
    while stream.read(|bytes| bytes.len()).await? > 0 {}
    Ok(())
}

/// Turns the engine until `task` is over. Gives what it gave, and the ticks of the turns that moved packets.
pub(super) fn drive<T: 'static>(
    engine: &mut Engine<Cable>,
    clock: Clock,
    task: impl Future<Output = T> + 'static,
) -> Result<(T, u64), Error> {
    let result = Rc::new(Cell::new(None));
    let (place, over) = (result.clone(), Rc::new(Cell::new(false)));
    let ended = over.clone();
    engine.spawn(async move {
        place.set(Some(task.await));
        ended.set(true);
    });
    let busy = turns(engine, clock, &over)?;
    let result = result.take().ok_or(Error::Sink(NetError::TimedOut))?;
    Ok((result, busy))
}

/// Turns the engine until something is over. Gives the ticks of the turns that moved packets.
fn turns(engine: &mut Engine<Cable>, clock: Clock, over: &Cell<bool>) -> Result<u64, Error> {
    let end = clock.micros() + PATIENCE;
    let mut busy = 0;
    loop {
        let start = clock.ticks();
        let now = clock.micros();
        let before = engine.nic_mut().counters().transmit_frames;
        let received = engine::turn(engine, Instant::from_micros(now as i64))?;
        if received || engine.nic_mut().counters().transmit_frames > before {
            busy += clock.ticks() - start;
        }
        if over.get() {
            return Ok(busy);
        }
        if now > end {
            return Err(Error::Sink(NetError::TimedOut));
        }
    }
}
