//! A fault injector: makes any NIC lose and damage frames, refuse them, or fail for good.

use crate::middleware::{Direction, Hook, Hooked};
use crate::{Fault, Nic};

/// Which faults, and how often. Probabilities are from 0.0 to 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultConfig {
    /// Probability that a received unit is lost.
    pub receive_loss: f64,
    /// Probability that a sent frame is lost.
    pub transmit_loss: f64,
    /// Probability that one bit of a received unit is flipped.
    pub receive_corrupt: f64,
    /// Probability that a send finds the ring full.
    pub full: f64,
    /// After this many bursts, sends and flushes, the NIC fails so.
    pub fault: Option<(u64, Fault)>,
}

/// The hook behind [`inject`].
pub struct FaultInjector {
    config: FaultConfig,
    random: fastrand::Rng,
    calls: u64,
}

/// Puts a fault injector before `nic`; the same seed gives the same faults.
pub fn inject<N: Nic>(nic: N, config: FaultConfig, seed: u64) -> Hooked<N, FaultInjector> {
    let random = fastrand::Rng::with_seed(seed);
    Hooked::new(
        nic,
        FaultInjector {
            config,
            random,
            calls: 0,
        },
    )
}

impl FaultInjector {
    /// Changes the faults from now on.
    pub fn configure(&mut self, config: FaultConfig) {
        self.config = config;
    }

    fn drawn(&mut self, probability: f64) -> bool {
        self.random.f64() < probability
    }
}

impl Hook for FaultInjector {
    fn fault(&mut self) -> Option<Fault> {
        self.calls += 1;
        let (after, fault) = self.config.fault?;
        (self.calls > after).then_some(fault)
    }

    fn full(&mut self) -> bool {
        self.drawn(self.config.full)
    }

    fn lose(&mut self, direction: Direction) -> bool {
        self.drawn(match direction {
            Direction::Receive => self.config.receive_loss,
            Direction::Transmit => self.config.transmit_loss,
        })
    }

    fn frame(&mut self, direction: Direction, frame: &mut [u8]) {
        if direction == Direction::Receive
            && !frame.is_empty()
            && self.drawn(self.config.receive_corrupt)
        {
            let bit = self.random.usize(0..frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{LinkConfig, SimNic, link};
    use crate::wrapped::is_as_its_nic;
    use crate::{Offload, Receive, SendError, Transmit};
    use std::vec::Vec;

    fn pair(config: FaultConfig) -> (Hooked<SimNic, FaultInjector>, SimNic) {
        let (a, b) = link(LinkConfig::default(), LinkConfig::default(), 1);
        (inject(a, config, 1), b)
    }

    /// Sends `count` zeroed frames and lists what comes out at the other end.
    fn through(
        from: &mut impl Nic,
        to: &mut impl Nic,
        advance: impl FnOnce(),
        count: usize,
    ) -> Vec<Vec<u8>> {
        let (_, mut tx) = from.split();
        for _ in 0..count {
            tx.send(60, Offload::None, &mut |frame| frame.fill(0))
                .unwrap();
        }
        tx.flush().unwrap();
        advance();
        let mut seen = Vec::new();
        to.split()
            .0
            .burst(usize::MAX, |frame| seen.push(frame.parts.concat()))
            .unwrap();
        seen
    }

    #[test]
    fn quiet_unless_told() {
        let (mut a, mut b) = pair(FaultConfig::default());
        let clock = b.clock();
        let zeros = std::vec![std::vec![0; 60]; 100];
        assert_eq!(through(&mut a, &mut b, || clock.advance(1000), 100), zeros);
        assert_eq!(through(&mut b, &mut a, || clock.advance(1000), 100), zeros);
    }

    #[test]
    fn loses_and_damages() {
        let config = FaultConfig {
            receive_loss: 0.5,
            transmit_loss: 1.0,
            receive_corrupt: 1.0,
            ..FaultConfig::default()
        };
        let (mut a, mut b) = pair(config);
        let clock = b.clock();
        assert!(through(&mut a, &mut b, || clock.advance(1000), 100).is_empty());
        let received = through(&mut b, &mut a, || clock.advance(1000), 100);
        assert!((1..100).contains(&received.len()));
        for frame in received {
            let flipped: u32 = frame.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(flipped, 1);
        }
    }

    #[test]
    fn refuses_and_fails_for_good() {
        let config = FaultConfig {
            full: 1.0,
            fault: Some((2, Fault::Removed)),
            ..FaultConfig::default()
        };
        let (mut a, _) = pair(config);
        let (rx, tx) = a.split();
        assert_eq!(
            tx.send(60, Offload::None, &mut |_| ()),
            Err(SendError::Full)
        );
        assert_eq!(tx.flush(), Ok(()));
        assert_eq!(rx.burst(1, |_| ()), Err(Fault::Removed));
        assert_eq!(tx.flush(), Err(Fault::Removed));
        a.with(|_, hook| hook.configure(FaultConfig::default()));
        let late = a.split().1.send(60, Offload::None, &mut |_| ());
        assert_eq!(late, Err(SendError::Fault(Fault::Removed)));
    }

    #[test]
    fn without_faults_it_is_as_its_nic() {
        is_as_its_nic(|nic| inject(nic, FaultConfig::default(), 1));
    }

    /// Set bits are cleared, clear ones set, the last byte's too.
    #[test]
    fn any_bit_may_flip() {
        let config = FaultConfig {
            receive_corrupt: 1.0,
            ..FaultConfig::default()
        };
        for byte in [0, 0xff] {
            let mut flipped = [0_u32; 2];
            let mut injector = FaultInjector {
                config,
                random: fastrand::Rng::with_seed(1),
                calls: 0,
            };
            for _ in 0..100 {
                let mut frame = [byte; 2];
                injector.frame(Direction::Receive, &mut frame);
                let changed = frame.map(|now| (now ^ byte).count_ones());
                assert_eq!(changed[0] + changed[1], 1);
                flipped[0] += changed[0];
                flipped[1] += changed[1];
            }
            assert!(flipped.iter().all(|count| *count > 20), "{flipped:?}");
            let mut sent = [byte; 2];
            injector.frame(Direction::Transmit, &mut sent);
            assert_eq!(sent, [byte; 2]);
            injector.frame(Direction::Receive, &mut []);
        }
    }

    #[test]
    fn faults_can_be_changed_on_the_way() {
        let (mut a, mut b) = pair(FaultConfig::default());
        let clock = b.clock();
        let mut arrived = |transmit_loss| {
            a.with(|_, hook| {
                hook.configure(FaultConfig {
                    transmit_loss,
                    ..FaultConfig::default()
                });
            });
            through(&mut a, &mut b, || clock.advance(1000), 100).len()
        };
        assert_eq!([1.0, 0.0].map(&mut arrived), [0, 100]);
    }
}
