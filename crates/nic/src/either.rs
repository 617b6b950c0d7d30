//! One of two kinds of NIC, so that what stands above need not be built for each: which one is decided when the machine is known.

use crate::{Fault, Frame, Offload, Receive, SendError, Transmit};

/// The receive or transmit half of one of two kinds of NIC: see [`nic_enum`](crate::nic_enum).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// A NIC of the first kind.
    First(A),
    /// A NIC of the second kind.
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
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
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

/// Declares an enum of two kinds of NIC that is a [`Nic`](crate::Nic) itself.
#[macro_export]
macro_rules! nic_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $(#[$first_attribute:meta])*
            $first:ident($first_nic:ty),
            $(#[$second_attribute:meta])*
            $second:ident($second_nic:ty),
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $name {
            $(#[$first_attribute])*
            $first($first_nic),
            $(#[$second_attribute])*
            $second($second_nic),
        }

        impl $crate::Nic for $name {
            type Rx<'a>
                = $crate::Either<<$first_nic as $crate::Nic>::Rx<'a>, <$second_nic as $crate::Nic>::Rx<'a>>
            where
                Self: 'a;
            type Tx<'a>
                = $crate::Either<<$first_nic as $crate::Nic>::Tx<'a>, <$second_nic as $crate::Nic>::Tx<'a>>
            where
                Self: 'a;

            fn properties(&self) -> $crate::Properties {
                match self {
                    Self::$first(nic) => nic.properties(),
                    Self::$second(nic) => nic.properties(),
                }
            }

            fn link_up(&mut self) -> bool {
                match self {
                    Self::$first(nic) => nic.link_up(),
                    Self::$second(nic) => nic.link_up(),
                }
            }

            fn joins_datagrams(&self) -> bool {
                match self {
                    Self::$first(nic) => nic.joins_datagrams(),
                    Self::$second(nic) => nic.joins_datagrams(),
                }
            }

            fn placer(&mut self) -> Option<&mut dyn $crate::Placer> {
                match self {
                    Self::$first(nic) => nic.placer(),
                    Self::$second(nic) => nic.placer(),
                }
            }

            fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
                match self {
                    Self::$first(nic) => {
                        let (rx, tx) = nic.split();
                        ($crate::Either::First(rx), $crate::Either::First(tx))
                    }
                    Self::$second(nic) => {
                        let (rx, tx) = nic.split();
                        ($crate::Either::Second(rx), $crate::Either::Second(tx))
                    }
                }
            }

            fn counters(&self) -> $crate::Counters {
                match self {
                    Self::$first(nic) => nic.counters(),
                    Self::$second(nic) => nic.counters(),
                }
            }

            fn stop(&mut self) {
                match self {
                    Self::$first(nic) => nic.stop(),
                    Self::$second(nic) => nic.stop(),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nic;
    use crate::sim::{LinkConfig, SimNic, link};
    use crate::wrapped::is_as_its_nic;

    nic_enum! {
        enum Two {
            One(SimNic),
            Other(SimNic),
        }
    }

    #[test]
    fn frames_go_through_whichever_it_is() {
        let (a, b) = link(LinkConfig::default(), LinkConfig::default(), 1);
        let clock = b.clock();
        let mut first = Two::One(a);
        let mut second = Two::Other(b);
        for (from, to) in [(0, 1), (1, 0)] {
            let nics = [&mut first, &mut second];
            let (_, mut tx) = nics[from].split();
            tx.send(60, Offload::None, &mut |frame| frame.fill(7))
                .unwrap();
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
        is_as_its_nic(Two::One);
        is_as_its_nic(Two::Other);
    }
}
