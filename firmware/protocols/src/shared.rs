//! What the functions of all tables reach: the network, and who we are on it. One call at a time.

use crate::caller::Buffer;
use crate::failure::Failure;
use crate::http_children::Children;
use crate::signal::signal_all;
use crate::tpl::AtCallback;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell, RefMut};
use core::net::IpAddr;
use uefi::{Handle, Status};
use uefi_raw::Event;
use wireboot_fetch::File;
use wireboot_fetch::url::Url;
use wireboot_net::Instant;
use wireboot_protocols::Refusal;
use wireboot_protocols::base_code::Host;
use wireboot_protocols::http::Exchanges;
use wireboot_protocols::hub::Hub;
use wireboot_protocols::ip_config::{IpConfig, Settings};
use wireboot_protocols::link::Link;
use wireboot_protocols::simple_network::SimpleNetwork;

/// The network under the protocols.
pub trait Network: Exchanges {
    /// Looks after it for a moment.
    fn turn(&mut self);
    /// Leaves the machine to it until the firmware's next tick, where it runs without this processor and nothing is about to happen.
    fn idle(&mut self);
    /// Time on its clock.
    fn now(&self) -> Instant;
    /// Whether the card has a link, as it was last looked at.
    fn link_up(&self) -> bool;
    /// Uses another address of the station's, as a caller wants.
    fn configure(&mut self, address: IpAddr, prefix_len: u8, router: Option<IpAddr>);
    /// The size of the file at `url`, in bytes.
    ///
    /// # Errors
    /// Why it cannot be told.
    fn size(&mut self, url: &Url) -> Result<u64, Failure>;
    /// Downloads the file at `url`, no longer than `buffer`: into that, or to other memory where its size is told late, or the transfer has begun
    /// anew. Returns once nobody holds the buffer, unless it is the file's memory.
    ///
    /// # Errors
    /// Why not; nobody holds the buffer any more either.
    fn read(&mut self, url: &Url, buffer: Buffer) -> Result<File, Failure>;
    /// The interface has these settings from now on, of one IP version.
    fn set_interface(&mut self, settings: &Settings);
    /// Boot services end: stops all, without memory of the firmware's.
    fn halt(&mut self);
    /// Has others get the card when they have the firmware disconnect its driver: by the binding on our image's handle, which calls
    /// [`Self::let_go`]. The card's handle; `None` where nobody else can get it.
    ///
    /// # Errors
    /// The firmware's, when it has no memory.
    fn hold_as_driver(&mut self) -> Result<Option<Handle>, Status>;
    /// Others get the card: stops all that runs on it, for good.
    fn let_go(&mut self);
}

/// Has `network` read the file at `url`, and sees to it that it is in `buffer`. Returns its size in bytes.
///
/// # Errors
/// Why it is not.
pub(crate) fn read(network: &mut dyn Network, url: &Url, buffer: Buffer) -> Result<u64, Failure> {
    // SAFETY: it is filled only where the file is in other memory, and then nobody holds the buffer any more (`Network::read`).
    let mut place = unsafe { buffer.again() };
    let file = network.read(url, buffer)?;
    place.fill(file.content());
    Ok(file.len)
}

/// Who we are on the network.
#[derive(Clone, Debug)]
pub struct Station {
    /// Ethernet address of this machine's card.
    pub mac: [u8; 6],
    /// Largest packet of the link, in bytes.
    pub mtu: u16,
    /// IPv4 or IPv6 address of this machine.
    pub address: IpAddr,
    /// The length of its network's prefix.
    pub prefix_len: u8,
    /// The router of its network.
    pub router: Option<IpAddr>,
    /// The VLAN in which the firmware keeps the interface's settings. No path here leads through it: loaders would tag their frames.
    pub vlan: Option<u16>,
    /// Device path of the card as a network interface, up to its MAC node, with an end node.
    pub mac_path: Box<[u8]>,
    /// The same with an IPv4 or IPv6 node.
    pub ip_path: Box<[u8]>,
}

/// What is on handles for programs that use the firmware's own HTTP and IP.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Where the program came from.
    pub url: Url,
    /// Device path of the program, with its URI node and an end node, where it came by HTTP.
    pub uri_path: Option<Box<[u8]>>,
    /// Settings of IPv4 by the lease; without addresses where there is none.
    pub v4: Settings,
    /// The same of IPv6.
    pub v6: Settings,
}

/// What stands behind all tables and is changed by calls of any.
pub(crate) struct ProtocolState {
    pub network: Box<dyn Network>,
    pub snp: SimpleNetwork<Hub<Box<dyn Link>>>,
    pub host: Host,
    pub http: Children,
    /// Of IPv4 and IPv6.
    pub ip: [IpConfig; 2],
}

/// What the tables' functions reach: the state, for one call at a time.
pub(crate) struct SharedProtocolState {
    state: RefCell<ProtocolState>,
    /// Somebody else gets the card, or has it: no call is begun any more.
    gone: Cell<bool>,
}

/// A call at work: at TPL_CALLBACK, with the state to itself.
pub(crate) struct Call<'a> {
    pub state: RefMut<'a, ProtocolState>,
    tpl: AtCallback,
}

impl Call<'_> {
    /// Ends it, and signals events of callers. The function of none runs before all are signalled, so it may call again, and close any.
    pub(crate) fn end(self, events: Vec<Event>) {
        let Self { state, tpl } = self;
        drop(state);
        signal_all(events);
        drop(tpl);
    }
}

impl SharedProtocolState {
    pub(crate) fn new(
        network: Box<dyn Network>,
        snp: SimpleNetwork<Hub<Box<dyn Link>>>,
        host: Host,
        ip: [IpConfig; 2],
    ) -> Self {
        Self {
            state: RefCell::new(ProtocolState {
                network,
                snp,
                host,
                http: Children::default(),
                ip,
            }),
            gone: Cell::new(false),
        }
    }

    /// The state, unless a call is at work.
    pub(crate) fn state(&self) -> Option<RefMut<'_, ProtocolState>> {
        self.state.try_borrow_mut().ok()
    }

    /// Does `work` with the state, unless a call is at work.
    pub(crate) fn at_leisure(&self, work: impl FnOnce(&mut ProtocolState)) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            work(&mut state);
        }
    }

    /// Does `work` with what calls have left behind; it is told whether one has ended by a panic, in the midst of its work.
    ///
    /// # Safety
    /// Nobody calls any more: the loader has returned, and no event of ours can fire.
    pub(crate) unsafe fn afterwards<R>(
        &self,
        work: impl FnOnce(&mut ProtocolState, bool) -> R,
    ) -> R {
        let at_work = self.state.try_borrow_mut().is_err();
        // SAFETY: a borrow that is left is of a call that a panic has ended (the caller's word).
        work(unsafe { &mut *self.state.as_ptr() }, at_work)
    }

    /// Boot services end: no call is begun any more, and the network is stopped.
    pub(crate) fn halt(&self) {
        self.gone.set(true);
        match self.state.try_borrow_mut() {
            Ok(mut state) => state.network.halt(),
            // In the middle of a call, which never goes on.
            Err(_) => {
                if !wireboot_platform::exit::stop_all() {
                    // What runs on would write to memory of the system's.
                    wireboot_platform::reset();
                }
            }
        }
    }

    /// No call is begun any more. False, and nothing has changed, where one is at work.
    pub(crate) fn retire(&self) -> bool {
        let at_leisure = self.state.try_borrow_mut().is_ok();
        if at_leisure {
            self.gone.set(true);
        }
        at_leisure
    }

    /// Begins a call.
    ///
    /// # Errors
    /// `NotReady` where another is at work, as when an event of the caller's interrupts it, and above TPL_CALLBACK; `DeviceError` where the card
    /// is somebody else's.
    pub(crate) fn call(&self) -> Result<Call<'_>, Refusal> {
        if self.gone.get() {
            return Err(Refusal::DeviceError);
        }
        let tpl = AtCallback::enter().ok_or(Refusal::NotReady)?;
        let state = self.state.try_borrow_mut().map_err(|_| Refusal::NotReady)?;
        #[cfg(feature = "faults")]
        wireboot_platform::faults::reach(wireboot_platform::faults::Place::Call);
        Ok(Call { state, tpl })
    }
}
