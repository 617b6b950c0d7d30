//! EFI_SIMPLE_NETWORK_PROTOCOL (UEFI 2.10, section 24.1) on a link: to a loader this is a card of its own with the station's Ethernet
//! address.

use crate::Refusal;
use crate::link::Link;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_nic::MacAddress;

/// Bytes of an Ethernet header.
pub const MEDIA_HEADER: usize = 14;
/// Multicast addresses that can be listened to at most.
pub const MAX_MULTICAST: usize = 16;
/// Buffers that wait for a call of GetStatus to be handed back.
const RECYCLED: usize = 64;

/// Bits of the receive filters, as the protocol has them.
pub mod filter {
    /// Frames to the station.
    pub const UNICAST: u32 = 0x01;
    /// Frames to the multicast addresses of the list.
    pub const MULTICAST: u32 = 0x02;
    /// Frames to all stations of the link.
    pub const BROADCAST: u32 = 0x04;
    /// All frames that arrive; those to other stations do not.
    pub const PROMISCUOUS: u32 = 0x08;
    /// Frames to any group of stations.
    pub const PROMISCUOUS_MULTICAST: u32 = 0x10;
    /// All bits that may be set (ReceiveFilterMask).
    pub const MASK: u32 = 0x1f;
}

/// Bits of the interrupt status.
pub mod interrupt {
    /// A frame waits to be received.
    pub const RECEIVE: u32 = 0x01;
    /// A buffer was handed back.
    pub const TRANSMIT: u32 = 0x02;
}

/// The protocol's states, numbered as there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nobody uses it.
    #[default]
    Stopped = 0,
    /// Somebody does, and frames do not flow.
    Started = 1,
    /// Frames are sent and received.
    Initialized = 2,
}

/// Frames and bytes one way, since they were last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were received or sent; dropped ones are not counted here.
    pub frames: u64,
    /// Lost: received and filtered out, or to be sent and too long.
    pub dropped: u64,
    /// Frames to one station.
    pub unicast: u64,
    /// Frames to all stations of the link.
    pub broadcast: u64,
    /// Frames to groups of stations; broadcasts are not counted here.
    pub multicast: u64,
    /// Bytes of these frames, with their Ethernet headers.
    pub bytes: u64,
}

impl Counts {
    fn count(&mut self, frame: &[u8]) {
        self.frames += 1;
        self.bytes += frame.len() as u64;
        match kind(frame) {
            filter::BROADCAST => self.broadcast += 1,
            filter::MULTICAST => self.multicast += 1,
            _ => self.unicast += 1,
        }
    }
}

/// Which filter a frame is for.
fn kind(frame: &[u8]) -> u32 {
    match frame.first() {
        _ if frame.starts_with(&[0xff; 6]) => filter::BROADCAST,
        Some(first) if first & 1 == 1 => filter::MULTICAST,
        _ => filter::UNICAST,
    }
}

/// The link header that Transmit shall write.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The station's, where the caller names none.
    pub source: Option<MacAddress>,
    /// Whom the frame is for.
    pub destination: MacAddress,
    /// Its EtherType, as 0x0800 of IPv4.
    pub protocol: u16,
}

/// A network interface of a loader's own.
pub struct SimpleNetwork<L> {
    link: L,
    mac: MacAddress,
    /// Largest payload of a frame, in bytes.
    mtu: usize,
    state: State,
    filters: u32,
    multicast: Vec<MacAddress>,
    /// Addresses of buffers that the caller has not been handed back.
    recycled: VecDeque<usize>,
    received: Counts,
    sent: Counts,
}

impl<L: Link> SimpleNetwork<L> {
    /// On a link whose frames carry `mtu` bytes, for the station `mac`.
    #[must_use]
    pub fn new(link: L, mac: MacAddress, mtu: u16) -> Self {
        Self {
            link,
            mac,
            mtu: mtu.into(),
            state: State::Stopped,
            filters: 0,
            multicast: Vec::new(),
            recycled: VecDeque::new(),
            received: Counts::default(),
            sent: Counts::default(),
        }
    }

    /// The link that frames are sent and received on.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// The protocol's state; [`State::Stopped`] at first.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The filters that are on: bits of [`filter`].
    #[must_use]
    pub fn filters(&self) -> u32 {
        self.filters
    }

    /// The multicast addresses that are listened to.
    #[must_use]
    pub fn multicast(&self) -> &[MacAddress] {
        &self.multicast
    }

    fn initialized(&self) -> Result<(), Refusal> {
        match self.state {
            State::Stopped => Err(Refusal::NotStarted),
            State::Started => Err(Refusal::DeviceError),
            State::Initialized => Ok(()),
        }
    }

    /// From Stopped to Started.
    ///
    /// # Errors
    /// [`Refusal::AlreadyStarted`].
    pub fn start(&mut self) -> Result<(), Refusal> {
        if self.state != State::Stopped {
            return Err(Refusal::AlreadyStarted);
        }
        self.state = State::Started;
        Ok(())
    }

    /// From Started to Stopped.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`]; [`Refusal::DeviceError`] while frames flow.
    pub fn stop(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Stopped => Err(Refusal::NotStarted),
            State::Initialized => Err(Refusal::DeviceError),
            State::Started => {
                self.state = State::Stopped;
                Ok(())
            }
        }
    }

    /// From Started to Initialized: frames to the station and to all flow, as no filter has been set yet.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`]; [`Refusal::DeviceError`] when they flow already.
    pub fn initialize(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Stopped => Err(Refusal::NotStarted),
            State::Initialized => Err(Refusal::DeviceError),
            State::Started => {
                self.state = State::Initialized;
                self.filters = filter::UNICAST | filter::BROADCAST;
                self.multicast.clear();
                self.open();
                Ok(())
            }
        }
    }

    /// Forgets what was received and sent, and stays initialized, with its filters, addresses and statistics (UEFI 2.10, section 24.1, Reset).
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized.
    pub fn reset(&mut self) -> Result<(), Refusal> {
        self.initialized()?;
        self.open();
        Ok(())
    }

    fn open(&mut self) {
        self.link.set_up(true);
        self.recycled.clear();
    }

    /// From Initialized to Started: no frames any more.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized.
    pub fn shutdown(&mut self) -> Result<(), Refusal> {
        self.initialized()?;
        self.close(State::Started);
        Ok(())
    }

    /// Whatever the state: nobody uses it any more.
    pub fn abandon(&mut self) {
        self.close(State::Stopped);
    }

    fn close(&mut self, state: State) {
        self.link.set_up(false);
        self.recycled.clear();
        (self.filters, self.state) = (0, state);
        self.multicast.clear();
    }

    /// Switches filters on, then off. `list`: the multicast addresses to listen to from now on, if there are any.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized. [`Refusal::InvalidParameter`]: a bit that is none, a
    /// multicast filter without an address, too many addresses, or one that is not of a group.
    pub fn receive_filters(
        &mut self,
        enable: u32,
        disable: u32,
        reset_multicast: bool,
        list: &[MacAddress],
    ) -> Result<(), Refusal> {
        self.initialized()?;
        let list = if reset_multicast { &[] } else { list };
        let wanted = enable & !disable & filter::MULTICAST != 0;
        let valid = (enable | disable) & !filter::MASK == 0
            && list.len() <= MAX_MULTICAST
            && list.iter().all(|mac| mac[0] & 1 == 1)
            && !(wanted && list.is_empty() && !reset_multicast);
        if !valid {
            return Err(Refusal::InvalidParameter);
        }
        self.filters = (self.filters | enable) & !disable;
        if reset_multicast {
            self.multicast.clear();
            self.filters &= !filter::MULTICAST;
        } else if !list.is_empty() {
            self.multicast = list.to_vec();
        }
        Ok(())
    }

    /// Sets the station's address: it has only the card's. `new`: `None` to reset it.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized. [`Refusal::Unsupported`]: another address.
    pub fn station_address(&mut self, new: Option<MacAddress>) -> Result<(), Refusal> {
        self.initialized()?;
        match new {
            Some(new) if new != self.mac => Err(Refusal::Unsupported),
            _ => Ok(()),
        }
    }

    /// What was received and what was sent.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized.
    pub fn statistics(&mut self, reset: bool) -> Result<(Counts, Counts), Refusal> {
        self.initialized()?;
        if reset {
            (self.received, self.sent) = Default::default();
        }
        Ok((self.received, self.sent))
    }

    /// The bits of [`interrupt`], and, where the caller wants to `take` one back, a buffer that may be used again.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized.
    pub fn status(&mut self, take: bool) -> Result<(u32, Option<usize>), Refusal> {
        self.initialized()?;
        let mut bits = 0;
        if self.waits()? {
            bits |= interrupt::RECEIVE;
        }
        if !self.recycled.is_empty() {
            bits |= interrupt::TRANSMIT;
        }
        let recycled = if take {
            self.recycled.pop_front()
        } else {
            None
        };
        Ok((bits, recycled))
    }

    /// Sends the frame in `buffer`, whose address the next [`Self::status`] hands back. Where there is a `header`, that is written to the
    /// start of the buffer's copy; the bytes there mean nothing.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized. [`Refusal::BufferTooSmall`]: no room for a header.
    /// [`Refusal::InvalidParameter`]: longer than the link allows. [`Refusal::NotReady`]: too many buffers to be handed back, or too
    /// many frames under way.
    pub fn transmit(
        &mut self,
        header: Option<Header>,
        buffer: &[u8],
        address: usize,
    ) -> Result<(), Refusal> {
        self.initialized()?;
        let Some((link, payload)) = buffer.split_first_chunk::<MEDIA_HEADER>() else {
            return Err(Refusal::BufferTooSmall(MEDIA_HEADER));
        };
        // A tag (IEEE 802.1Q) does not count.
        let tag = if link.ends_with(&[0x81, 0]) { 4 } else { 0 };
        if payload.len() > self.mtu + tag {
            self.sent.dropped += 1;
            return Err(Refusal::InvalidParameter);
        }
        if self.recycled.len() >= RECYCLED {
            return Err(Refusal::NotReady);
        }
        let mut link = *link;
        if let Some(header) = header {
            let [a, b, c, d, e, f] = header.destination;
            let [g, h, i, j, k, l] = header.source.unwrap_or(self.mac);
            let [m, n] = header.protocol.to_be_bytes();
            link = [a, b, c, d, e, f, g, h, i, j, k, l, m, n];
        }
        if !self.link.send(&link, payload) {
            return Err(Refusal::NotReady);
        }
        self.sent.count(&link);
        self.sent.bytes += payload.len() as u64;
        self.recycled.push_back(address);
        Ok(())
    }

    /// Whether a frame waits that the filters let through.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized.
    pub fn waits(&mut self) -> Result<bool, Refusal> {
        // One that is refused stays.
        match self.receive(|_| Err::<(), _>(Refusal::Aborted)) {
            Err(Refusal::NotReady) => Ok(false),
            Err(Refusal::Aborted) | Ok(()) => Ok(true),
            Err(refusal) => Err(refusal),
        }
    }

    /// Gives `take` the next frame that the filters let through. Where that refuses it, the frame stays the next one.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`], [`Refusal::DeviceError`]: not initialized. [`Refusal::NotReady`]: there is none. What `take` says.
    pub fn receive<R>(
        &mut self,
        take: impl FnOnce(&[u8]) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        self.initialized()?;
        loop {
            let frame = self.link.peek().ok_or(Refusal::NotReady)?;
            if passes(frame, self.filters, &self.multicast) {
                let taken = take(frame)?;
                self.received.count(frame);
                self.link.skip();
                return Ok(taken);
            }
            self.received.dropped += 1;
            self.link.skip();
        }
    }
}

fn passes(frame: &[u8], filters: u32, multicast: &[MacAddress]) -> bool {
    let kind = kind(frame);
    let all = if kind == filter::MULTICAST {
        filter::PROMISCUOUS | filter::PROMISCUOUS_MULTICAST
    } else {
        kind | filter::PROMISCUOUS
    };
    let listed = kind == filter::MULTICAST
        && filters & filter::MULTICAST != 0
        && multicast.iter().any(|mac| frame.starts_with(mac));
    frame.len() >= MEDIA_HEADER && (filters & all != 0 || listed)
}

/// The Ethernet address of an IP multicast group (RFC 1112, section 6.4; RFC 2464, section 7).
///
/// # Errors
/// [`Refusal::InvalidParameter`]: no group.
pub fn multicast_mac(group: IpAddr) -> Result<MacAddress, Refusal> {
    match group {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            Ok([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            Ok([0x33, 0x33, a, b, c, d])
        }
        _ => Err(Refusal::InvalidParameter),
    }
}

#[cfg(test)]
mod tests;
