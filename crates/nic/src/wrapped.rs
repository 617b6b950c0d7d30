//! What a NIC that stands before another one has to pass on.

use crate::sim::{LinkConfig, NicConfig, SimNic, link};
use crate::{Counters, Fault, Nic, Offload, Receive, Transmit};

/// Looks at a NIC made of another one from all sides, and returns its counters after a frame each way.
pub(crate) fn is_as_its_nic<N: Nic>(wrap: impl FnOnce(SimNic) -> N) -> Counters {
    let (mut inner, mut peer) = link(LinkConfig::default(), LinkConfig::default(), 1);
    inner.configure(NicConfig {
        transmit_frames: 3,
        joins_datagrams: true,
        ..NicConfig::new([2, 0, 0, 0, 0, 9])
    });
    let (clock, properties) = (inner.clock(), inner.properties());
    let mut nic = wrap(inner);
    assert_eq!(nic.properties(), properties);
    assert!(nic.joins_datagrams());
    for up in [false, true] {
        peer.set_link_up(up);
        assert_eq!(nic.link_up(), up);
    }
    {
        let (_, mut tx) = nic.split();
        assert_eq!((tx.room(), tx.idle()), (3, true));
        tx.send(60, Offload::None, &mut |frame| frame.fill(7))
            .unwrap();
        assert_eq!((tx.room(), tx.idle()), (2, false));
        tx.flush().unwrap();
        clock.advance(1000);
        assert_eq!((tx.room(), tx.idle()), (3, true));
    }
    assert_eq!(peer.split().0.burst(8, |_| ()), Ok(1));
    let (_, tx) = peer.split();
    tx.send(60, Offload::None, &mut |frame| frame.fill(9))
        .unwrap();
    tx.flush().unwrap();
    clock.advance(1000);
    nic.split().0.burst(8, |_| ()).unwrap();
    let counters = nic.counters();
    assert_eq!(counters.transmit_frames, 1);
    assert_eq!(counters.receive_units, 1);
    nic.stop();
    assert_eq!(nic.split().1.flush(), Err(Fault::Removed));
    counters
}
