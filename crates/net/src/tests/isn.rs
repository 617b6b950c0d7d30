//! Initial sequence numbers and ports of many connections.

use super::IpVersion;
use super::forged::{Bench, tcp};
use crate::NetError;
use std::vec;
use std::vec::Vec;
use wireboot_tcp::{Duration, Flags};

/// The length of the shortest linear feedback shift register that makes these bits (Berlekamp and Massey): about half as many for
/// random bits, the size of its state for a generator that is linear over bits.
fn linear_complexity(bits: &[bool]) -> usize {
    let (mut c, mut b) = (vec![false; bits.len() + 1], vec![false; bits.len() + 1]);
    (c[0], b[0]) = (true, true);
    let (mut len, mut last) = (0, usize::MAX);
    for n in 0..bits.len() {
        let wrong = (0..=len).fold(false, |sum, i| sum ^ (c[i] & bits[n - i]));
        if !wrong {
            continue;
        }
        let before = c.clone();
        let shift = n.wrapping_sub(last);
        for i in 0..b.len().saturating_sub(shift) {
            c[i + shift] ^= b[i];
        }
        if len <= n / 2 {
            (len, last, b) = (n + 1 - len, n, before);
        }
    }
    len
}

/// What 1000 connections tell of the next one: nothing (CVE-2023-45236).
#[test]
fn initial_sequence_numbers_cannot_be_foretold() {
    const COUNT: usize = 1000;
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let stack = bench.stack.clone();
        bench.engine.spawn(async move {
            for _ in 0..COUNT {
                let refused = stack
                    .connect(version.server(), Duration::from_secs(1))
                    .await;
                assert_eq!(refused.err(), Some(NetError::Refused));
            }
        });
        let (mut isns, mut ports) = (Vec::new(), Vec::new());
        while isns.len() < COUNT {
            bench.turn();
            for frame in core::mem::take(&mut bench.heard) {
                let Some((us, _, numbers, _)) = tcp(&frame) else {
                    continue;
                };
                if numbers.2 == Flags::SYN {
                    isns.push(numbers.0);
                    ports.push(us.port());
                    bench.us = us;
                    let mut refusal = bench.segment(0);
                    refusal.flags = Flags::RST | Flags::ACK;
                    refusal.ack = numbers.0.wrapping_add(1);
                    bench.send(&refusal.frame());
                }
            }
        }
        let steps = |of: &[u32]| -> Vec<u32> {
            of.windows(2)
                .map(|pair| pair[1].wrapping_sub(pair[0]))
                .collect()
        };
        let (first, second) = (steps(&isns), steps(&steps(&isns)));
        for numbers in [&isns, &first, &second] {
            let mut distinct = numbers.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert!(distinct.len() > COUNT - 5, "{} distinct", distinct.len());
            // Chi-squared with 15 degrees of freedom: above 60 once in 10^6 times.
            let mut counts = [0_i32; 16];
            numbers.iter().for_each(|n| counts[(n >> 28) as usize] += 1);
            let expected = numbers.len() as f64 / 16.0;
            let distance = |count: &i32| (f64::from(*count) - expected).powi(2) / expected;
            let chi: f64 = counts.iter().map(distance).sum();
            assert!(chi < 60.0, "{chi}");
        }
        // x' = a x + c, guessed from four in a row where they tell a.
        let inverse = |odd: u32| {
            (0..5).fold(odd, |x, _| {
                x.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(x)))
            })
        };
        let mut guessed = 0;
        for three in first.windows(3).filter(|three| three[0] % 2 == 1) {
            let a = three[1].wrapping_mul(inverse(three[0]));
            guessed += usize::from(a.wrapping_mul(three[1]) == three[2]);
        }
        assert!(guessed <= 1, "{guessed} foretold");
        for bit in [0, 7, 16, 31] {
            let bits: Vec<bool> = isns.iter().map(|n| n >> bit & 1 == 1).collect();
            let complexity = linear_complexity(&bits);
            assert!(
                complexity.abs_diff(COUNT / 2) < 20,
                "bit {bit}: {complexity}"
            );
        }
        let (low, high) = (ports.iter().min().unwrap(), ports.iter().max().unwrap());
        assert!(*low >= 49_152 && high - low > 15_000, "{low} to {high}");
        let bits: Vec<bool> = ports.iter().map(|port| port & 1 == 1).collect();
        assert!(linear_complexity(&bits).abs_diff(COUNT / 2) < 20);
    }
}

#[test]
fn the_measure_of_linear_generators_finds_one() {
    // x^16 + x^14 + x^13 + x^11 + 1.
    let step = |state: &u16| {
        let bit = (state ^ (state >> 2) ^ (state >> 3) ^ (state >> 5)) & 1;
        Some((state >> 1) | (bit << 15))
    };
    let bits = core::iter::successors(Some(0xace1_u16), step).map(|state| state & 1 == 1);
    assert_eq!(linear_complexity(&bits.take(200).collect::<Vec<_>>()), 16);
}
