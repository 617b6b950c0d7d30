//! What else the BSP (bootstrap processor) gets done: it hashes, as a boot loader would unpack or check something.

use super::Sample;
use crate::error::Error;
use alloc::vec;
use alloc::vec::Vec;
use wireboot_boot::fetching::{Fetcher, Wanted};
use wireboot_fetch::url::Url;
use wireboot_fetch::verify::Check;
use wireboot_platform::Clock;

/// Bytes hashed between two looks at the network, as when a file is checked while it comes.
const BLOCK: usize = 64 << 10;

/// The work, counted.
struct Work {
    clock: Clock,
    block: Vec<u8>,
    check: Check,
    begin: u64,
    sample: Sample,
}

impl Work {
    fn begin(clock: Clock) -> Self {
        Self {
            clock,
            block: vec![0x5a; BLOCK],
            check: Check::new([0; 32]),
            begin: clock.micros(),
            sample: Sample::default(),
        }
    }

    fn step(&mut self) {
        let start = self.clock.ticks();
        self.check.restart();
        self.check.follow(&self.block, BLOCK);
        self.sample.bytes += BLOCK as u64;
        self.sample.busy += self.clock.ticks() - start;
    }

    fn end(self) -> Sample {
        Sample {
            micros: self.clock.micros() - self.begin,
            ..self.sample
        }
    }
}

/// With nothing else to do, for so many microseconds.
pub(crate) fn alone(micros: u64, clock: Clock) -> Sample {
    let mut work = Work::begin(clock);
    while clock.micros() < work.begin + micros {
        work.step();
    }
    work.end()
}

/// While `url` is downloaded.
pub(crate) fn beside(fetcher: &mut Fetcher, url: &Url, clock: Clock) -> Result<Sample, Error> {
    let mut work = Work::begin(clock);
    let files = fetcher.get_beside(&[Wanted::plain(url)], &mut || work.step())?;
    let sample = work.end();
    // Behind the end: firmware may need a second to take back so much memory.
    drop(files);
    Ok(sample)
}
