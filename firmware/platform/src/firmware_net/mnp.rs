//! Packets by `EFI_MANAGED_NETWORK_PROTOCOL` (UEFI 2.10, section 25.1), beside the firmware's own protocols.

use super::{handle_with, open};
use crate::claim::pci::Candidate;
use crate::raw::managed_network::{
    MANAGED_NETWORK_SERVICE_BINDING, ManagedNetworkCompletionToken as Token,
    ManagedNetworkConfigData, ManagedNetworkFragmentData, ManagedNetworkProtocol,
    ManagedNetworkReceiveData, ManagedNetworkTransmitData,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::boot::{self, EventType, OpenProtocolAttributes, ScopedProtocol, Tpl};
use uefi::proto::unsafe_protocol;
use uefi::{Event, Handle, Status, StatusExt};
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::{Boolean, MacAddress};

/// The protocols as the `uefi` crate opens them.
#[repr(transparent)]
#[unsafe_protocol(ManagedNetworkProtocol::GUID)]
struct ManagedNetwork(ManagedNetworkProtocol);

#[repr(transparent)]
#[unsafe_protocol(MANAGED_NETWORK_SERVICE_BINDING)]
struct ServiceBinding(ServiceBindingProtocol);

impl fmt::Debug for ManagedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ManagedNetwork")
    }
}

impl fmt::Debug for ServiceBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceBinding")
    }
}

/// Receive tokens that wait for packets at the same time.
const TOKENS: usize = 32;
/// Length of the Ethernet header.
const HEADER: usize = 14;

/// The packet service that has a child of ours, and that child; null for none.
static SERVICE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CHILD: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Ends the child when its owner cannot: on a panic. Takes no memory of the heap.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    let child = CHILD.swap(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: null or a handle of the firmware's.
    let service = unsafe { Handle::from_ptr(SERVICE.load(Ordering::Relaxed)) };
    if let Some(service) = service.filter(|_| !child.is_null()) {
        // SAFETY: nothing disconnects the firmware's network meanwhile.
        let service =
            unsafe { open::<ServiceBinding>(service, OpenProtocolAttributes::GetProtocol) };
        if let Ok(mut service) = service {
            destroy(&mut service, child);
        }
    }
}

/// Ends a child, which gives all tokens back.
fn destroy(service: &mut ScopedProtocol<ServiceBinding>, child: *mut c_void) {
    if let Some(service) = service.get_mut() {
        let binding = &raw mut service.0;
        // SAFETY: the protocol is live and the child its own.
        let _ = unsafe { ((*binding).destroy_child)(binding, child) };
    }
}

/// A child of the firmware's packet service, one at a time, with tokens that receive packets of one protocol.
#[derive(Debug)]
pub struct Mnp {
    service: ScopedProtocol<ServiceBinding>,
    child: Handle,
    /// `None` only while being dropped.
    protocol: Option<ScopedProtocol<ManagedNetwork>>,
    tokens: Vec<Waiting>,
    /// The token that is filled next.
    next: usize,
}

/// A token that the firmware may write to at any time.
#[derive(Debug)]
struct Waiting {
    /// Leaked from a box: the firmware has its address until it is cancelled.
    token: NonNull<Token>,
    event: Option<Event>,
}

impl Waiting {
    fn new() -> uefi::Result<Self> {
        // SAFETY: an event without a notification function.
        let event =
            unsafe { boot::create_event(EventType::empty(), Tpl::APPLICATION, None, None) }?;
        let token = Token {
            event: event.as_ptr(),
            status: Status::NOT_READY,
            packet: ptr::null_mut(),
        };
        Ok(Self {
            token: NonNull::from(Box::leak(Box::new(token))),
            event: Some(event),
        })
    }

    fn status(&self) -> Status {
        // SAFETY: the token is allocated until drop; the firmware may write to it, hence volatile.
        unsafe { (&raw const (*self.token.as_ptr()).status).read_volatile() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            let _ = boot::close_event(event);
        }
        // SAFETY: leaked in `new`; whoever drops this has cancelled the token.
        drop(unsafe { Box::from_raw(self.token.as_ptr()) });
    }
}

impl Mnp {
    /// Makes a child that receives packets of an EtherType to this station and to all.
    ///
    /// # Errors
    /// What the firmware answers when it has no such service on the interface.
    pub fn open(interface: &Candidate, ethertype: u16) -> uefi::Result<Self> {
        let handle = handle_with(interface, &MANAGED_NETWORK_SERVICE_BINDING, |_| true)?;
        // SAFETY: nothing disconnects the firmware's network while this is in use.
        let mut service: ScopedProtocol<ServiceBinding> =
            unsafe { open(handle, OpenProtocolAttributes::GetProtocol) }?;
        let binding = &raw mut service.get_mut().ok_or(Status::UNSUPPORTED)?.0;
        let mut child = ptr::null_mut();
        // SAFETY: the protocol is live; it writes the new handle to a local.
        unsafe { ((*binding).create_child)(binding, &raw mut child) }.to_result()?;
        SERVICE.store(handle.as_ptr(), Ordering::Relaxed);
        CHILD.store(child, Ordering::Relaxed);
        // SAFETY: null or a handle.
        let child = unsafe { Handle::from_ptr(child) }.ok_or(Status::UNSUPPORTED)?;
        let mut mnp = Self {
            service,
            child,
            protocol: None,
            tokens: Vec::new(),
            next: 0,
        };
        // SAFETY: the child is ours.
        mnp.protocol = Some(unsafe { open(child, OpenProtocolAttributes::GetProtocol) }?);
        let config = ManagedNetworkConfigData {
            protocol_type_filter: ethertype,
            enable_unicast_receive: Boolean::TRUE,
            enable_broadcast_receive: Boolean::TRUE,
            flush_queues_on_reset: Boolean::TRUE,
            ..ManagedNetworkConfigData::default()
        };
        let protocol = mnp.protocol()?;
        // SAFETY: the protocol is live; it copies the configuration.
        unsafe { ((*protocol).configure)(protocol, &raw const config) }.to_result()?;
        for _ in 0..TOKENS {
            let waiting = Waiting::new()?;
            let token = waiting.token;
            mnp.tokens.push(waiting);
            mnp.offer(token)?;
        }
        Ok(mnp)
    }

    fn protocol(&mut self) -> uefi::Result<*mut ManagedNetworkProtocol> {
        let protocol = self.protocol.as_mut().and_then(|open| open.get_mut());
        Ok(&raw mut protocol.ok_or(Status::UNSUPPORTED)?.0)
    }

    /// Gives a token to the firmware.
    fn offer(&mut self, token: NonNull<Token>) -> uefi::Result<()> {
        let protocol = self.protocol()?;
        // SAFETY: the firmware does not have the token: it is fresh or was filled. It stays allocated until it is cancelled.
        unsafe {
            (&raw mut (*token.as_ptr()).status).write_volatile(Status::NOT_READY);
            ((*protocol).receive)(protocol, token.as_ptr()).to_result()
        }
    }

    /// Has the firmware look for packets, and shows those that have come to `sink`, link header first. Returns how many.
    ///
    /// # Errors
    /// What the firmware answers when it fails.
    pub fn receive(&mut self, mut sink: impl FnMut(&[u8])) -> uefi::Result<usize> {
        let protocol = self.protocol()?;
        // SAFETY: the protocol is live. NOT_READY says that nothing has come.
        let _ = unsafe { ((*protocol).poll)(protocol) };
        let mut packets = 0;
        for _ in 0..TOKENS {
            let Some(waiting) = self.tokens.get(self.next) else {
                break;
            };
            let token = waiting.token;
            match waiting.status() {
                Status::NOT_READY => break,
                Status::SUCCESS => {
                    // SAFETY: a token that ended well points to a packet that is ours until it is recycled.
                    unsafe { show(token, &mut sink) };
                    packets += 1;
                }
                _ => {}
            }
            self.next = (self.next + 1) % TOKENS;
            self.offer(token)?;
        }
        Ok(packets)
    }

    /// Sends a frame of at least a header, and waits until the firmware has taken it, a thousand looks at most.
    ///
    /// # Errors
    /// What the firmware answers when it fails; `TIMEOUT`.
    pub fn send(&mut self, frame: &[u8]) -> uefi::Result<()> {
        let Some((header, payload)) = frame.split_first_chunk::<HEADER>() else {
            return Err(Status::INVALID_PARAMETER.into());
        };
        let mut address = MacAddress([0; 32]);
        address.0[..6].copy_from_slice(&header[..6]);
        let payload_len = u32::try_from(payload.len()).map_err(|_| Status::INVALID_PARAMETER)?;
        let mut payload = payload.to_vec();
        let mut address = Box::new(address);
        let mut transmit = Box::new(ManagedNetworkTransmitData {
            destination_address: &raw mut *address,
            source_address: ptr::null_mut(),
            protocol_type: u16::from_be_bytes([header[12], header[13]]),
            data_length: payload_len,
            header_length: 0,
            fragment_count: 1,
            fragment_table: [ManagedNetworkFragmentData {
                fragment_length: payload_len,
                fragment_buffer: payload.as_mut_ptr().cast(),
            }],
        });
        let waiting = Waiting::new()?;
        let protocol = self.protocol()?;
        // SAFETY: the protocol and the token are live, and what the token points to is kept below until the firmware has
        // let go of it.
        unsafe {
            (&raw mut (*waiting.token.as_ptr()).packet).write((&raw mut *transmit).cast());
            ((*protocol).transmit)(protocol, waiting.token.as_ptr()).to_result()?;
        }
        for _ in 0..1000 {
            if waiting.status() != Status::NOT_READY {
                return waiting.status().to_result();
            }
            // SAFETY: as in `receive`.
            let _ = unsafe { ((*protocol).poll)(protocol) };
        }
        // SAFETY: the token is the protocol's still, which gives it back.
        let _ = unsafe { ((*protocol).cancel)(protocol, waiting.token.as_ptr()) };
        Err(Status::TIMEOUT.into())
    }
}

/// Shows the packet of a token that was filled, and recycles it.
///
/// # Safety
/// The token must have ended with SUCCESS and must not have been shown before.
unsafe fn show(token: NonNull<Token>, sink: &mut impl FnMut(&[u8])) {
    // SAFETY: the token is allocated, and filled by the caller's word.
    let data = unsafe { (&raw const (*token.as_ptr()).packet).read_volatile() };
    let Some(data) = NonNull::new(data.cast::<ManagedNetworkReceiveData>()) else {
        return;
    };
    // SAFETY: received data of the firmware's, valid until it is recycled below.
    let packet = unsafe { data.as_ref() };
    if !packet.media_header.is_null() {
        // SAFETY: the packet, header first, lies in one buffer.
        sink(unsafe {
            core::slice::from_raw_parts(
                packet.media_header.cast::<u8>(),
                packet.packet_length as usize,
            )
        });
    }
    // SAFETY: null or the event by which the firmware takes the packet back.
    if let Some(event) = unsafe { Event::from_ptr(packet.recycle_event) } {
        let _ = boot::signal_event(&event);
    }
}

impl Drop for Mnp {
    fn drop(&mut self) {
        if let Ok(protocol) = self.protocol() {
            // SAFETY: the protocol is live. All tokens come back, then the child is nothing any more.
            unsafe {
                let _ = ((*protocol).cancel)(protocol, ptr::null_mut());
                let _ = ((*protocol).configure)(protocol, ptr::null());
            }
        }
        self.tokens.clear();
        self.protocol = None;
        CHILD.store(ptr::null_mut(), Ordering::Relaxed);
        destroy(&mut self.service, self.child.as_ptr());
    }
}
