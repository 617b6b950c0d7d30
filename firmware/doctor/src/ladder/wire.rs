//! What the rungs of frames are measured through: anything that sends and receives them.

use super::tally::{Tally, Unit};
use crate::error::{Error, refused};
use wireboot_nic::{Nic, Offload, Receive, SendError, Transmit};
use wireboot_platform::firmware_net::Mnp;

/// Units that a driver of ours is asked for at once.
const BURST: usize = 64;

/// A way to the cable.
pub(crate) trait Wire {
    /// The station's Ethernet address, which frames to it must have.
    fn mac(&mut self) -> [u8; 6];

    /// Counts what has come.
    fn receive(&mut self, tally: &mut Tally<'_>) -> Result<(), Error>;

    /// Sends a frame. False when it does not leave: there is no room for it now, or what is below makes such frames itself.
    fn send(&mut self, frame: &[u8]) -> Result<bool, Error>;

    /// Nothing more will be sent for the moment.
    fn flush(&mut self) -> Result<(), Error>;

    /// True when all frames have left.
    fn sent(&mut self) -> Result<bool, Error>;
}

/// A driver behind the engine's traits.
pub(crate) struct Driver<N: Nic>(pub N);

impl<N: Nic> Driver<N> {
    /// Shows what has come to `sink`.
    #[inline]
    pub(crate) fn burst(&mut self, mut sink: impl FnMut(Unit<'_>)) -> Result<(), Error> {
        let (mut receive, _) = self.0.split();
        receive.burst(BURST, |frame| sink((frame.parts, frame.udp_segment)))?;
        Ok(())
    }
}

impl<N: Nic> Wire for Driver<N> {
    fn mac(&mut self) -> [u8; 6] {
        self.0.properties().mac
    }

    #[inline]
    fn receive(&mut self, tally: &mut Tally<'_>) -> Result<(), Error> {
        self.burst(|unit| tally.take(unit))
    }

    #[inline]
    fn send(&mut self, frame: &[u8]) -> Result<bool, Error> {
        let (_, mut transmit) = self.0.split();
        match transmit.send(frame.len(), Offload::None, &mut |place| {
            place.copy_from_slice(frame)
        }) {
            Ok(()) => Ok(true),
            Err(SendError::Fault(fault)) => Err(fault.into()),
            Err(SendError::Full | SendError::TooLong) => Ok(false),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(self.0.split().1.flush()?)
    }

    fn sent(&mut self) -> Result<bool, Error> {
        let (_, mut transmit) = self.0.split();
        transmit.flush()?;
        Ok(transmit.idle())
    }
}

/// The firmware's packet service. MNP's mode data is not read, so the address is given.
pub(crate) struct Managed {
    /// Open for the EtherType of the packets that are measured.
    pub mnp: Mnp,
    /// As our own driver has read it.
    pub mac: [u8; 6],
}

impl Wire for Managed {
    fn mac(&mut self) -> [u8; 6] {
        self.mac
    }

    #[inline]
    fn receive(&mut self, tally: &mut Tally<'_>) -> Result<(), Error> {
        self.mnp
            .receive(|frame| tally.take((&[frame], None)))
            .map_err(refused("MNP Receive"))?;
        Ok(())
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool, Error> {
        self.mnp.send(frame).map_err(refused("MNP Transmit"))?;
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn sent(&mut self) -> Result<bool, Error> {
        Ok(true)
    }
}
