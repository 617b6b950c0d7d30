//! Initial sequence numbers (RFC 6528), as an attacker collects them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use wireboot_tcp::{Duration, InitialSequence, Instant};

fn tuple(local_port: u16, remote: &str) -> (SocketAddr, SocketAddr) {
    (
        SocketAddr::new("192.0.2.7".parse().unwrap(), local_port),
        remote.parse().unwrap(),
    )
}

/// 1,000 connections to one server, port after port, one each 10 ms, as an attacker who owns the server sees them. Each rule that has foretold
/// numbers of other stacks is tried on each successor, and finds none, nor comes within a window of it.
#[test]
fn no_rule_foretells_the_next_initial_sequence_number() {
    let generator = InitialSequence::new(*b"sixteen octets..");
    let mut now = Instant::from_micros(0);
    let mut numbers = Vec::new();
    for index in 0..1000_u16 {
        let (local, remote) = tuple(49_152 + index, "198.51.100.1:80");
        numbers.push(generator.iss(local, remote, now));
        now += Duration::from_millis(10);
    }
    assert_eq!(
        numbers.iter().collect::<HashSet<_>>().len(),
        1000,
        "all differ"
    );
    let tick = 2500;
    let mut hits: HashMap<&str, usize> = HashMap::new();
    for seen in numbers.windows(5) {
        let [a, b, c, d, next] = seen else {
            unreachable!()
        };
        let (ab, bc, cd) = (b.wrapping_sub(*a), c.wrapping_sub(*b), d.wrapping_sub(*c));
        let mut guess = |rule: &'static str, number: u32| {
            // A spoofed segment needs the number within a window.
            let near = number.wrapping_sub(*next).min(next.wrapping_sub(number)) < 1 << 16;
            *hits.entry(rule).or_default() += usize::from(near);
        };
        guess("the same", *d);
        guess("the clock alone", d.wrapping_add(tick));
        guess("constant difference", d.wrapping_add(cd));
        guess("the difference before", d.wrapping_add(bc));
        let times = |factor: u32, number: &u32| number.wrapping_mul(factor);
        guess(
            "second differences",
            times(3, d).wrapping_sub(times(3, c)).wrapping_add(*b),
        );
        let cubic = times(4, d)
            .wrapping_sub(times(6, c))
            .wrapping_add(times(4, b))
            .wrapping_sub(*a);
        guess("third differences", cubic);
        guess("the one before", *c);
        guess("the last exclusive or", d ^ (b ^ c));
        if let Some(multiplier) = inverse(ab).map(|inverse| bc.wrapping_mul(inverse)) {
            // LCG modulo 2^32: x' = m x + k, from three differences of an odd first.
            guess(
                "linear congruential",
                d.wrapping_add(cd.wrapping_mul(multiplier)),
            );
        }
        for (shift, rule) in [(13, "xorshift 13"), (17, "xorshift 17"), (5, "xorshift 5")] {
            guess(rule, d ^ (d << shift));
            guess(rule, d ^ (d >> shift));
        }
    }
    // A blind guess is within 2^16 on either side in 1 of 32,768 tries: of about 1,000 tries a rule, 3 would already be a finding.
    for (rule, hits) in &hits {
        assert!(*hits < 3, "{rule}: {hits} of 996 successors");
    }
    assert!(hits.len() >= 11, "{hits:?}");
}

/// The inverse of an odd number modulo 2^32.
fn inverse(odd: u32) -> Option<u32> {
    let mut x = odd;
    for _ in 0..5 {
        x = x.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(x)));
    }
    (odd & 1 == 1).then_some(x)
}

/// Each bit of the number, the low ones too, is set in half of the connections, and changes in half of the steps.
#[test]
fn every_bit_of_an_initial_sequence_number_is_even() {
    let generator = InitialSequence::new([7; 16]);
    let now = Instant::from_micros(123_456);
    let numbers: Vec<u32> = (0..4000)
        .map(|port| {
            let (local, remote) = tuple(port, "[2001:db8::1]:443");
            generator.iss(local, remote, now)
        })
        .collect();
    for bit in 0..32 {
        let set = numbers
            .iter()
            .filter(|number| *number >> bit & 1 == 1)
            .count();
        let changes = numbers
            .windows(2)
            .filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1)
            .count();
        // Of 4,000 coins, 5 standard deviations.
        assert!((1840..2160).contains(&set), "bit {bit}: {set} of 4,000");
        assert!(
            (1840..2160).contains(&changes),
            "bit {bit}: {changes} changes"
        );
    }
}

/// The secret and each part of the four-tuple count: with one changed, the number says nothing about the other, and between two tuples the difference
/// is another with another secret, so that one measured on one machine says nothing about the next.
#[test]
fn secret_and_every_part_of_the_tuple_count() {
    let now = Instant::from_micros(1_000_000);
    let tuples = [
        ("192.0.2.7:50000", "198.51.100.1:80"),
        ("192.0.2.8:50000", "198.51.100.1:80"),
        ("192.0.2.7:50001", "198.51.100.1:80"),
        ("192.0.2.7:50000", "198.51.100.2:80"),
        ("192.0.2.7:50000", "198.51.100.1:81"),
        ("198.51.100.1:80", "192.0.2.7:50000"),
        ("[2001:db8::7]:50000", "[2001:db8::1]:80"),
        ("[2001:db8::8]:50000", "[2001:db8::1]:80"),
        ("[2001:db8::7]:50000", "[2001:db8::2]:80"),
    ];
    let mut numbers = HashSet::new();
    let mut differences = HashSet::new();
    for secret in 0..50_u8 {
        let mut key = [0; 16];
        key[usize::from(secret % 16)] = secret + 1;
        let generator = InitialSequence::new(key);
        let iss: Vec<u32> = tuples
            .iter()
            .map(|(local, remote)| {
                generator.iss(local.parse().unwrap(), remote.parse().unwrap(), now)
            })
            .collect();
        differences.insert(iss[0].wrapping_sub(iss[1]));
        numbers.extend(iss);
    }
    assert_eq!(numbers.len(), 50 * tuples.len());
    assert_eq!(differences.len(), 50);
}

/// For the same four-tuple the number grows with a clock of 4 microseconds (3.4.1), so that an old connection's segments are not taken for the
/// new one's.
#[test]
fn the_same_tuple_goes_up_with_the_clock() {
    let generator = InitialSequence::new([9; 16]);
    let (local, remote) = tuple(50_000, "198.51.100.1:80");
    let at = |micros: i64| generator.iss(local, remote, Instant::from_micros(micros));
    for begin in [0_i64, 1 << 34, (1 << 34) - 2, 77_777_777] {
        for ticks in [1_i64, 2, 1000, 250_000] {
            assert_eq!(
                at(begin + 4 * ticks).wrapping_sub(at(begin)),
                ticks as u32,
                "{ticks} ticks from {begin}"
            );
        }
    }
}
