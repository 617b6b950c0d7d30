//! One of two NICs, so that what stands above need not be built for each: which one is decided when the machine is known.

use crate::{Counters, Fault, Frame, Nic, Offload, Properties, Receive, SendError, Transmit};

/// One of two NICs, or a half of one of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The one.
    First(A),
    /// The other.
    Second(B),
}

macro_rules! of_both {
    ($either:expr, $one:ident => $result:expr) => {
        match $either {
            Either::First($one) => $result,
            Either::Second($one) => $result,
        }
    };
}

impl<A: Receive, B: Receive> Receive for Either<A, B> {
    fn burst(&mut self, budget: usize, sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        of_both!(self, rx => rx.burst(budget, sink))
    }
}

impl<A: Transmit, B: Transmit> Transmit for Either<A, B> {
    fn send<R>(
        &mut self,
        len: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, SendError> {
        of_both!(self, tx => tx.send(len, offload, fill))
    }

    fn room(&mut self) -> usize {
        of_both!(self, tx => tx.room())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        of_both!(self, tx => tx.flush())
    }

    fn idle(&mut self) -> bool {
        of_both!(self, tx => tx.idle())
    }
}

impl<A: Nic, B: Nic> Nic for Either<A, B> {
    type Rx<'a>
        = Either<A::Rx<'a>, B::Rx<'a>>
    where
        Self: 'a;
    type Tx<'a>
        = Either<A::Tx<'a>, B::Tx<'a>>
    where
        Self: 'a;

    fn properties(&self) -> Properties {
        of_both!(self, nic => nic.properties())
    }

    fn link_up(&mut self) -> bool {
        of_both!(self, nic => nic.link_up())
    }

    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
        match self {
            Either::First(nic) => {
                let (rx, tx) = nic.split();
                (Either::First(rx), Either::First(tx))
            }
            Either::Second(nic) => {
                let (rx, tx) = nic.split();
                (Either::Second(rx), Either::Second(tx))
            }
        }
    }

    fn counters(&self) -> Counters {
        of_both!(self, nic => nic.counters())
    }

    fn stop(&mut self) {
        of_both!(self, nic => nic.stop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{LinkConfig, SimNic, link};
    use crate::wrapped::is_as_its_nic;

    #[test]
    fn frames_go_through_whichever_it_is() {
        let (a, b) = link(LinkConfig::default(), LinkConfig::default(), 1);
        let clock = b.clock();
        let mut first: Either<SimNic, SimNic> = Either::First(a);
        let mut second: Either<SimNic, SimNic> = Either::Second(b);
        for (from, to) in [(0, 1), (1, 0)] {
            let nics = [&mut first, &mut second];
            let (_, mut tx) = nics[from].split();
            tx.send(60, Offload::None, |frame| frame.fill(7)).unwrap();
            tx.flush().unwrap();
            clock.advance(1000);
            assert!(tx.idle());
            let mut seen = 0;
            let (mut rx, _) = nics[to].split();
            rx.burst(8, |frame| {
                assert_eq!(frame.parts.concat(), [7; 60]);
                seen += 1;
            })
            .unwrap();
            assert_eq!(seen, 1);
            assert_eq!(nics[to].counters().receive_units, 1);
        }
    }

    #[test]
    fn each_is_as_its_nic() {
        is_as_its_nic(Either::<SimNic, SimNic>::First);
        is_as_its_nic(Either::<SimNic, SimNic>::Second);
    }
}
