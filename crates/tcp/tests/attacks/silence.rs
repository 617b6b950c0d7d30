//! A peer that is silent.

use crate::bench::Bench;
use crate::{connection, until_closed};
use wireboot_tcp::Error;

/// Text that is never acknowledged is sent again ever more rarely, and the connection ends (3.8.3).
#[test]
fn a_peer_that_never_acknowledges_ends_the_connection() {
    let mut bench = connection(0);
    bench.connection.queue(2000);
    let (seconds, sent) = until_closed(&mut bench);
    assert_eq!(bench.connection.error(), Some(Error::TimedOut));
    assert!((20..=1000).contains(&seconds), "{seconds} s");
    let times: Vec<i64> = sent.iter().map(|(at, _)| at.total_millis()).collect();
    let gaps: Vec<i64> = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .filter(|gap| *gap > 0)
        .collect();
    assert!(
        gaps.len() >= 3 && gaps.windows(2).all(|pair| pair[1] >= pair[0]),
        "{gaps:?} ms"
    );
    assert!(sent.len() < 40, "{} segments to a silent peer", sent.len());
}

#[test]
fn a_syn_and_a_fin_without_an_answer_end() {
    let mut bench = Bench::connect(u32::MAX, 7, false);
    until_closed(&mut bench);
    assert_eq!(bench.connection.error(), Some(Error::TimedOut));
    let mut bench = Bench::accept(u32::MAX, 7, false);
    until_closed(&mut bench);
    let mut bench = connection(0);
    bench.connection.close();
    until_closed(&mut bench);
}
