//! How the processor caches memory that a card writes and files come to, how fast it is, and what a packet costs in it.

use super::stock;
use crate::error::{Error, refused};
use crate::examination::Examination;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use core::hint::black_box;
use wireboot_platform::claim::pci::Candidate;
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::memory_type::{MemoryType, Types};
use wireboot_platform::region::{self, Region};
use wireboot_platform::{Clock, cache, console, gcd, services};
use wireboot_report::memory::{self, Memory, Rate, Receive};

/// Work is repeated so often, but not begun again after so many microseconds.
const ROUNDS: usize = 8;
const LIMIT: u64 = 50_000;
/// A round of frames ends after so many microseconds.
const ROUND: u64 = 100_000;
/// It is looked behind so many of them whether it has.
const BATCH: u64 = 64;
/// Bytes of a full frame without the check sequence, and of the buffer that it lies in.
const FRAME: usize = 1514;
const BUFFER: usize = 2048;
/// More of a BAR are not looked at.
const MOST_OF_BAR: u64 = 2 << 20;

/// What buffers are given besides their own type.
const OTHERS: [(&str, MemoryType); 2] = [
    ("uncached", MemoryType::Uncached),
    ("write-combined", MemoryType::WriteCombining),
];

/// Looks at all regions, and receives in all ways.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let clock = examination.clock;
    let card = stock::cards(examination).next();
    // Not aligned as the regions are: processors, too, are slower where the addresses of both end in the same bits.
    let mut to = vec![0_u8; region::BYTES];
    let mut memory = Memory {
        virtual_machine: cache::in_virtual_machine(),
        ..Memory::default()
    };
    console::progress("memory");
    if let Err(unknown) = Types::read() {
        examination.not_measured("dma", &format!("memory types: {unknown}"));
    }
    match card.as_ref().map(|card| Region::of_card(card, clock)) {
        Some(Ok(mut buffers)) => of_card(examination, &mut memory, &mut buffers, &mut to),
        Some(Err(error)) => {
            examination.not_measured("dma", &format!("memory for the card: {error}"));
        }
        None => examination.not_measured("dma", "memory for the card: there is no network card"),
    }
    let look = Look::new(clock);
    let mut ordinary = Region::ordinary(card.as_ref()).map_err(refused("ordinary memory"))?;
    let regions = &mut memory.regions;
    regions.push(look.all(memory::ORDINARY, &mut ordinary, &mut to));
    if let Some(mut high) = Region::above_4_gib() {
        regions.push(look.all("above 4 GiB", &mut high, &mut to));
    }
    regions.extend(card.as_ref().and_then(|card| look.bar(card)));
    let start = clock.ticks();
    cache::write_back_all();
    let took = clock.ticks() - start;
    memory.write_back_all_us = Some(clock.nanos_of(took) as f64 / 1e3);
    examination.report.memory = Some(memory);
    Ok(())
}

/// The card's buffers, and frames in them.
fn of_card(
    examination: &mut Examination<'_>,
    memory: &mut Memory,
    buffers: &mut Region,
    to: &mut [u8],
) {
    let clock = examination.clock;
    let planted = if examination.options.plants_uncached {
        buffers.as_type(MemoryType::Uncached, &mut |buffers| {
            let region = Look::new(clock).all(memory::CARDS, buffers, to);
            memory.regions.push(region);
            receive(examination, memory, buffers, to);
        })
    } else {
        let region = Look::new(clock).all(memory::CARDS, buffers, to);
        memory.regions.push(region);
        receive(examination, memory, buffers, to);
        Ok(())
    };
    if let Err(unchanged) = planted {
        examination.not_measured("dma", &format!("uncached buffers: {unchanged}"));
    }
}

/// What regions are looked at with.
struct Look {
    clock: Clock,
    types: Option<Types>,
}

impl Look {
    fn new(clock: Clock) -> Self {
        let types = Types::read().ok();
        Self { clock, types }
    }

    /// A region's types and rates.
    fn all(&self, what: &str, region: &mut Region, to: &mut [u8]) -> memory::Region {
        let mut seen = self.types(what, region.address(), region::BYTES as u64);
        seen.mapped_elsewhere = region.mapped_elsewhere();
        let clock = self.clock;
        let mut value = 0_u8;
        let write = fastest(clock, &mut || {
            value = value.wrapping_add(1);
            black_box(region.bytes_mut()).fill(value);
        });
        let read = fastest(clock, &mut || {
            black_box(sum(black_box(region.bytes())));
        });
        let copy = fastest(clock, &mut || {
            let from = black_box(region.bytes());
            black_box(&mut *to).copy_from_slice(from);
        });
        let rates = [("read", read), ("write", write), ("copy", copy)];
        seen.rates = rates.map(|(what, ticks)| rate(clock, what, ticks)).into();
        region.bytes_mut().fill(value);
        let start = clock.ticks();
        let lines = cache::flush(region.bytes());
        let took = clock.ticks() - start;
        seen.flush_line_ns = (lines > 0).then(|| clock.nanos_of(took) as f64 / lines as f64);
        seen
    }

    fn types(&self, what: &str, address: u64, bytes: u64) -> memory::Region {
        let types = self.types.as_ref().map(|types| types.of(address, bytes));
        let told = types.map(|types| [types.effective, types.page, types.range]);
        let [memory_type, page_type, range_type] = match told {
            Some(told) => told.map(|told| Some(told.to_string())),
            None => [const { None }; 3],
        };
        memory::Region {
            what: what.to_string(),
            bytes,
            memory_type,
            page_type,
            range_type,
            gcd: gcd::types_at(address),
            ..memory::Region::default()
        }
    }

    /// A region's effective type.
    fn kind(&self, region: &Region) -> Option<String> {
        let types = self.types.as_ref()?;
        let memory_type = types.of(region.address(), region::BYTES as u64);
        Some(memory_type.effective.to_string())
    }

    /// The card's first BAR in memory. What is behind it is neither read nor written: that may do something.
    fn bar(&self, card: &Candidate) -> Option<memory::Region> {
        let (number, address, bytes) = region::first_bar(card, self.clock)?;
        Some(self.types(&format!("BAR {number}"), address, bytes.min(MOST_OF_BAR)))
    }
}

/// Frames in all ways.
fn receive(
    examination: &mut Examination<'_>,
    memory: &mut Memory,
    buffers: &mut Region,
    to: &mut [u8],
) {
    let clock = examination.clock;
    console::progress("frames");
    let mut way = |what: &str, buffers: &Region, each: &mut dyn FnMut(&[u8])| {
        let (packets, cycles_per_packet) = frames(clock, buffers, to, each);
        memory.receive.push(Receive {
            what: what.to_string(),
            memory_type: Look::new(clock).kind(buffers),
            packets,
            cycles_per_packet,
        });
    };
    way(memory::AS_FOUND, buffers, &mut |_| {});
    if cache::line().is_some() {
        way("flush of each buffer", buffers, &mut |frame| {
            cache::flush(frame);
        });
    }
    if services::tells_time() {
        way("GetTime for each", buffers, &mut |_| {
            let _ = services::tells_time();
        });
    } else {
        examination.not_measured("dma", "GetTime for each packet: the firmware tells no time");
    }
    way("64-bit division for each", buffers, &mut |_| {
        black_box(black_box(u64::MAX).checked_div(black_box(10_000_000)));
    });
    if examination.options.plants_uncached {
        return;
    }
    for (what, kind) in OTHERS {
        let changed = buffers.as_type(kind, &mut |buffers| {
            #[cfg(feature = "faults")]
            faults::reach(faults::Place::Dma);
            way(what, buffers, &mut |_| {});
        });
        if let Err(unchanged) = changed {
            examination.not_measured("dma", &format!("{what} buffers: {unchanged}"));
        }
    }
}

/// Takes a frame out of each buffer, after `each` has seen it. Of the fastest round, how many there were and the cycles of each.
fn frames(
    clock: Clock,
    buffers: &Region,
    to: &mut [u8],
    each: &mut dyn FnMut(&[u8]),
) -> (u64, f64) {
    let limit = clock.ticks_of(ROUND);
    let mut best = (0, f64::INFINITY);
    let begun = clock.micros();
    for _ in 0..ROUNDS {
        // One behind the other, as those of a file are.
        let places = to.chunks_exact_mut(FRAME);
        let frames = buffers.bytes().chunks_exact(BUFFER);
        let frames = frames.filter_map(|buffer| buffer.get(..FRAME));
        let start = clock.ticks();
        let mut packets = 0;
        for (frame, place) in frames.zip(places) {
            each(frame);
            place.copy_from_slice(black_box(frame));
            packets += 1;
            // The counter, too, takes time.
            if packets % BATCH == 0 && clock.ticks() - start > limit {
                break;
            }
        }
        let cycles = (clock.ticks() - start) as f64 / packets.max(1) as f64;
        if cycles < best.1 {
            best = (packets, cycles);
        }
        if clock.micros() - begun > LIMIT {
            break;
        }
    }
    best
}

/// Ticks of the fastest time that it is done.
fn fastest(clock: Clock, work: &mut dyn FnMut()) -> u64 {
    let begun = clock.micros();
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let start = clock.ticks();
        work();
        best = best.min(clock.ticks() - start);
        if clock.micros() - begun > LIMIT {
            break;
        }
    }
    best
}

/// The rate at which a whole region took so many ticks.
fn rate(clock: Clock, what: &str, ticks: u64) -> Rate {
    let nanos = clock.nanos_of(ticks).max(1);
    Rate {
        what: what.to_string(),
        mb_per_s: region::BYTES as f64 * 1e3 / nanos as f64,
        cycles_per_byte: ticks as f64 / region::BYTES as f64,
    }
}

/// Of all words, each read once.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter();
    words.fold(0, |sum, word| {
        u64::wrapping_add(sum, u64::from_ne_bytes(*word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let bytes: [u8; 32] = core::array::from_fn(|at| u8::from(at % 8 == 0) * (at as u8 + 1));
        assert_eq!(sum(&bytes), 1 + 9 + 17 + 25);
    }
}
