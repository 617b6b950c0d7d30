use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

use super::*;

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const LIMITS: Limits<Duration> = Limits {
    frames: 3,
    bytes: 4000,
    wait: micros(100),
};

fn batch(frames: usize, bytes: usize) -> Option<Batch> {
    Some(Batch { frames, bytes })
}

#[test]
fn the_first_frame_starts_the_timer() {
    let mut coalescer = Coalescer::new(LIMITS);
    assert_eq!((coalescer.due(), coalescer.take()), (None, None));
    assert_eq!(coalescer.add(1000, micros(5)), None);
    assert_eq!(coalescer.add(1000, micros(50)), None);
    assert_eq!(coalescer.due(), Some(micros(105)));
    assert_eq!(coalescer.take(), batch(2, 2000));
    assert_eq!((coalescer.due(), coalescer.take()), (None, None));
    assert_eq!(coalescer.add(1000, micros(200)), None);
    assert_eq!(coalescer.due(), Some(micros(300)));
}

#[test]
fn the_last_frame_of_a_full_batch_makes_it_due() {
    let mut coalescer = Coalescer::new(LIMITS);
    for at in 0..3 {
        assert_eq!(coalescer.add(100, micros(at)), None);
    }
    assert_eq!(coalescer.due(), Some(micros(2)));
    // Nobody took it: the next frame sends it on.
    assert_eq!(coalescer.add(100, micros(9)), batch(3, 300));
    assert_eq!(coalescer.due(), Some(micros(109)));

    let mut coalescer = Coalescer::new(LIMITS);
    assert_eq!(coalescer.add(2000, micros(0)), None);
    assert_eq!(coalescer.add(2000, micros(1)), None);
    assert_eq!(coalescer.due(), Some(micros(1)));
}

#[test]
fn what_does_not_fit_begins_the_next_batch() {
    let mut coalescer = Coalescer::new(LIMITS);
    assert_eq!(coalescer.add(3000, micros(0)), None);
    assert_eq!(coalescer.add(1001, micros(7)), batch(1, 3000));
    assert_eq!(coalescer.due(), Some(micros(107)));
    // Longer than any batch: alone, at once.
    assert_eq!(coalescer.add(9000, micros(8)), batch(1, 1001));
    assert_eq!(coalescer.due(), Some(micros(8)));
    assert_eq!(coalescer.take(), batch(1, 9000));
}

#[test]
fn the_end_of_time_is_no_end() {
    let limits = Limits {
        wait: Duration::MAX,
        ..LIMITS
    };
    let mut coalescer = Coalescer::new(limits);
    assert_eq!(coalescer.add(usize::MAX, Duration::MAX), None);
    assert_eq!(
        coalescer.add(usize::MAX, Duration::MAX),
        batch(1, usize::MAX)
    );
    assert_eq!(coalescer.due(), Some(Duration::MAX));
}

/// Batches with the moments at which they went. The owner takes what is due up to `late` after that.
fn run(
    limits: Limits<Duration>,
    frames: &[(Duration, usize)],
    late: Duration,
) -> Vec<(Duration, Batch)> {
    let mut coalescer = Coalescer::new(limits);
    let mut gone = Vec::new();
    for (at, len) in frames {
        while let Some(due) = coalescer.due().filter(|due| *due + late < *at) {
            gone.push((due + late, coalescer.take().unwrap()));
        }
        gone.extend(coalescer.add(*len, *at).map(|batch| (*at, batch)));
    }
    if let Some(due) = coalescer.due() {
        gone.push((due + late, coalescer.take().unwrap()));
    }
    assert_eq!(coalescer.take(), None);
    gone
}

proptest! {
    #[test]
    fn all_go_in_time_in_order_and_within_the_limits(
        gaps in vec((0..200u64, 60..1600usize), 1..200),
        limits in (0..43usize, 0..65_536usize, 0..1000u64),
        late in 0..500u64,
    ) {
        let limits = Limits { frames: limits.0, bytes: limits.1, wait: micros(limits.2) };
        let late = micros(late);
        let mut now = Duration::ZERO;
        let frames: Vec<_> = gaps.iter().map(|(gap, len)| { now += micros(*gap); (now, *len) }).collect();
        let mut coming = frames.iter();
        let mut before = Duration::ZERO;
        for (gone, batch) in run(limits, &frames, late) {
            prop_assert!(batch.frames > 0 && gone >= before);
            before = gone;
            let of: Vec<_> = coming.by_ref().take(batch.frames).collect();
            // Those of a batch are the next ones, all of them and no others.
            prop_assert_eq!(of.len(), batch.frames);
            prop_assert_eq!(of.iter().map(|(_, len)| len).sum::<usize>(), batch.bytes);
            prop_assert!(batch.frames == 1 || batch.frames <= limits.frames);
            prop_assert!(batch.frames == 1 || batch.bytes <= limits.bytes);
            for (at, _) in of {
                prop_assert!(*at <= gone && gone - *at <= limits.wait + late);
            }
        }
        prop_assert_eq!(coming.next(), None);
    }
}
