//! The firmware's driver by `EFI_SIMPLE_NETWORK_PROTOCOL` (UEFI 2.10, section 24.1).

use super::{handle_with, open};
use crate::pci::Candidate;
use alloc::boxed::Box;
use alloc::vec::Vec;
use uefi::boot::{self, OpenProtocolAttributes, ScopedProtocol};
use uefi::proto::network::snp::{ReceiveFlags, SimpleNetwork};
use uefi::{Handle, Status};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;

/// A frame of 1500 bytes behind its header, and room for a VLAN tag.
const BUFFER: usize = 1536;
/// Frames under way at most.
const BUFFERS: usize = 16;

/// The driver, for us alone: what the firmware has built on it is gone until this is dropped.
#[derive(Debug)]
pub struct Snp {
    /// `None` only while being dropped.
    protocol: Option<ScopedProtocol<SimpleNetwork>>,
    handle: Handle,
    receive: Box<[u8]>,
    /// Buffers that the driver has, and others.
    sending: Vec<Box<[u8]>>,
    free: Vec<Box<[u8]>>,
}

impl Snp {
    /// Takes the driver away from the firmware's protocols and starts it.
    ///
    /// # Errors
    /// What the firmware answers when it has no driver for the interface, or when that does not start.
    pub fn open(interface: &Candidate) -> uefi::Result<Self> {
        let handle = handle_with(interface, &SimpleNetworkProtocol::GUID, |_| true)?;
        // SAFETY: exclusive.
        let protocol = unsafe { open(handle, OpenProtocolAttributes::Exclusive) }?;
        let buffer = || alloc::vec![0; BUFFER].into_boxed_slice();
        let mut snp = Self {
            protocol: Some(protocol),
            handle,
            receive: buffer(),
            sending: Vec::with_capacity(BUFFERS),
            free: (0..BUFFERS).map(|_| buffer()).collect(),
        };
        let protocol = snp.protocol()?;
        let started = |result: uefi::Result| match result {
            Err(error) if error.status() != Status::ALREADY_STARTED => Err(error),
            _ => Ok(()),
        };
        started(protocol.start())?;
        protocol.initialize(0, 0)?;
        protocol.receive_filters(
            ReceiveFlags::UNICAST | ReceiveFlags::BROADCAST,
            ReceiveFlags::empty(),
            true,
            None,
        )?;
        Ok(snp)
    }

    fn protocol(&mut self) -> uefi::Result<&mut SimpleNetwork> {
        let protocol = self.protocol.as_mut().and_then(|open| open.get_mut());
        protocol.ok_or_else(|| Status::UNSUPPORTED.into())
    }

    /// The interface's address.
    pub fn mac(&mut self) -> [u8; 6] {
        let address = self
            .protocol()
            .map(|protocol| protocol.mode().current_address.0);
        let mut mac = [0; 6];
        if let Ok(address) = address {
            mac.copy_from_slice(address.split_at(6).0);
        }
        mac
    }

    /// The next frame, if one has come.
    ///
    /// # Errors
    /// What the driver answers when it fails.
    pub fn receive(&mut self) -> uefi::Result<Option<&[u8]>> {
        let open = self.protocol.as_ref().and_then(|open| open.get());
        let protocol = open.ok_or(Status::UNSUPPORTED)?;
        match protocol.receive(&mut self.receive, None, None, None, None) {
            Ok(len) => Ok(self.receive.get(..len)),
            Err(error) if error.status() == Status::NOT_READY => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a frame. False when there is no room for it now.
    ///
    /// # Errors
    /// What the driver answers when it fails; `BAD_BUFFER_SIZE` for a frame longer than 1536 bytes.
    pub fn send(&mut self, frame: &[u8]) -> uefi::Result<bool> {
        self.recycle()?;
        let Some(mut buffer) = self.free.pop() else {
            return Ok(false);
        };
        let result = match buffer.get_mut(..frame.len()) {
            Some(place) => {
                place.copy_from_slice(frame);
                self.protocol()
                    .and_then(|protocol| protocol.transmit(0, place, None, None, None))
            }
            None => Err(Status::BAD_BUFFER_SIZE.into()),
        };
        match result {
            Ok(()) => {
                self.sending.push(buffer);
                Ok(true)
            }
            Err(error) => {
                self.free.push(buffer);
                if error.status() == Status::NOT_READY {
                    Ok(false)
                } else {
                    Err(error)
                }
            }
        }
    }

    /// True when all frames have left.
    ///
    /// # Errors
    /// What the driver answers when it fails.
    pub fn sent(&mut self) -> uefi::Result<bool> {
        self.recycle()?;
        Ok(self.sending.is_empty())
    }

    /// Takes back the buffers of frames that have left.
    fn recycle(&mut self) -> uefi::Result<()> {
        while !self.sending.is_empty() {
            let Some(left) = self.protocol()?.get_recycled_transmit_buffer_status()? else {
                break;
            };
            let mut sending = self.sending.iter().map(|buffer| buffer.as_ptr());
            if let Some(index) = sending.position(|buffer| core::ptr::eq(buffer, left.as_ptr())) {
                self.free.push(self.sending.swap_remove(index));
            }
        }
        Ok(())
    }
}

impl Drop for Snp {
    fn drop(&mut self) {
        if let Ok(protocol) = self.protocol() {
            // The driver lets go of all buffers.
            let _ = protocol.shutdown();
            let _ = protocol.stop();
        }
        // Closed before the firmware's protocols come back, which would be refused otherwise.
        self.protocol = None;
        let _ = boot::connect_controller(self.handle, &[], None, true);
    }
}
