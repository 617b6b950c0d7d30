//! EFI_PXE_BASE_CODE_PROTOCOL: its table, and how a function reaches the network.

mod arp;
mod callback;
mod dhcp;
mod discover;
mod mode;
mod mtftp;
mod parameters;
mod udp;

use crate::http;
use crate::offered::Offered;
use crate::shared::{Call, ProtocolState, SharedProtocolState, Station};
use crate::status::status;
use alloc::boxed::Box;
use callback::{Callback, CallerPort};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use uefi_raw::protocol::network::pxe::{PxeBaseCodeMode, PxeBaseCodeProtocol};
use uefi_raw::{Boolean, Status};
use wireboot_platform::raw::pxe_callback::PxeBaseCodeFunction;
use wireboot_protocols::Refusal;
use wireboot_protocols::base_code::{Filter, Host, Port};
use wireboot_protocols::packet::Packet;

/// EFI_PXE_BASE_CODE_PROTOCOL_REVISION.
const REVISION: u64 = 0x0001_0000;
/// The packets of the DHCP exchange, each as it came, or `None`.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    /// The DISCOVER that the machine sent.
    pub discover: Option<Packet>,
    /// The server's acknowledgement; over IPv6 its Reply.
    pub ack: Option<Packet>,
    /// The offer of a proxy DHCP server, which gives a boot file and no address.
    pub proxy_offer: Option<Packet>,
    /// What was sent to a boot server.
    pub pxe_discover: Option<Packet>,
    /// The boot server's answer to `pxe_discover`.
    pub pxe_reply: Option<Packet>,
}

impl Packets {
    /// Does `work` on each that there is.
    pub fn each(&mut self, work: impl Fn(&mut Packet)) {
        let all = [
            &mut self.discover,
            &mut self.ack,
            &mut self.proxy_offer,
            &mut self.pxe_discover,
            &mut self.pxe_reply,
        ];
        all.into_iter().flatten().for_each(work);
    }
}

static OFFERED: Offered<BaseCodeTable> = Offered::none();

/// The protocol and what it points to.
#[repr(C)]
pub(crate) struct BaseCodeTable {
    /// First, so that `this` is also the table's address.
    protocol: PxeBaseCodeProtocol,
    mode: UnsafeCell<PxeBaseCodeMode>,
    shared: &'static SharedProtocolState,
}

impl BaseCodeTable {
    pub(crate) fn new(
        shared: &'static SharedProtocolState,
        station: &Station,
        packets: &Packets,
    ) -> Box<Self> {
        let mode = mode::new(station, packets);
        let mut table = Box::new(Self {
            protocol: PxeBaseCodeProtocol {
                revision: REVISION,
                start,
                stop,
                dhcp: dhcp::dhcp,
                discover: discover::discover,
                mtftp: mtftp::mtftp,
                udp_write: udp::udp_write,
                udp_read: udp::udp_read,
                set_ip_filter: parameters::set_ip_filter,
                arp: arp::arp,
                set_parameters: parameters::set_parameters,
                set_station_ip: parameters::set_station_ip,
                set_packets: parameters::set_packets,
                mode: core::ptr::null(),
            },
            mode: UnsafeCell::new(mode),
            shared,
        });
        table.protocol.mode = table.mode.get();
        OFFERED.set(&table);
        table
    }

    pub(crate) fn protocol(&self) -> *const c_void {
        (&raw const self.protocol).cast()
    }
}

impl Drop for BaseCodeTable {
    fn drop(&mut self) {
        OFFERED.forget(self);
    }
}

/// A call of a base code's function.
struct Face<'a> {
    call: Call<'a>,
    table: &'a BaseCodeTable,
}

impl Face<'_> {
    fn mode(&mut self) -> &mut PxeBaseCodeMode {
        // SAFETY: calls are one at a time, callers read the mode between them, and nobody keeps the reference while a callback runs.
        unsafe { &mut *self.table.mode.get() }
    }

    fn host(&mut self) -> &mut Host {
        &mut self.call.state.host
    }

    fn started(&mut self) -> Result<(), Status> {
        if bool::from(self.mode().started) {
            Ok(())
        } else {
            Err(Status::NOT_STARTED)
        }
    }

    /// Has the mode say what the host knows.
    fn publish(&mut self) {
        // SAFETY: as in `mode`.
        let mode = unsafe { &mut *self.table.mode.get() };
        mode::publish(mode, &self.call.state.host);
    }

    /// Forgets the errors of the calls before.
    fn begin(&mut self) {
        self.host().begin();
        self.publish();
    }

    /// The caller's callback, where it wants to be called.
    fn callback(&mut self, function: PxeBaseCodeFunction) -> Option<Callback> {
        let this = &raw const self.table.protocol;
        bool::from(self.mode().make_callbacks)
            .then(|| Callback::find(this.cast(), function))
            .flatten()
    }

    /// Has the host do something on the link.
    fn work<T>(
        &mut self,
        function: PxeBaseCodeFunction,
        work: impl FnOnce(&mut Host, &mut dyn Port) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.begin();
        let callback = self.callback(function);
        let ProtocolState {
            network, snp, host, ..
        } = &mut *self.call.state;
        let hub = snp.link();
        hub.set_host_up(true);
        let mut port = CallerPort {
            network: &mut **network,
            hub,
            callback,
        };
        let result = work(host, &mut port);
        self.publish();
        result
    }

    /// Has the host hear what has come.
    fn listen(&mut self) -> Result<(), Refusal> {
        listen(&mut self.call.state)
    }

    /// Dhcp, Discover and Mtftp leave the filter empty, and nothing unread.
    fn leave(&mut self) {
        let _ = self.host().set_filter(Filter::default());
        // Routers are told of groups that are left.
        let _ = self.listen();
        self.host().flush();
        self.publish();
    }

    /// Has the engine use the host's address too, if that has one.
    fn use_address(&mut self) {
        let state = &mut *self.call.state;
        let (address, prefix_len) = state.host.address();
        if address.is_unspecified() {
            return;
        }
        state
            .network
            .configure(address, prefix_len, state.host.router());
    }

    /// The address in a caller's variable, of the version in use.
    fn address(&mut self, bytes: [u8; 16]) -> IpAddr {
        mode::address(bytes, self.mode().using_ipv6.into())
    }
}

fn listen(state: &mut ProtocolState) -> Result<(), Refusal> {
    let ProtocolState {
        network, snp, host, ..
    } = state;
    host.listen(&mut CallerPort {
        network: &mut **network,
        hub: snp.link(),
        callback: None,
    })
}

/// Looks after the host between calls, where it has to be: routers ask for its groups.
pub(crate) fn turn(state: &mut ProtocolState) {
    if state.host.has_groups() {
        let _ = listen(state);
    }
}

/// Begins a call.
fn enter(this: *mut PxeBaseCodeProtocol) -> Result<Face<'static>, Status> {
    let table = OFFERED.at(this).ok_or(Status::INVALID_PARAMETER)?;
    let mut call = table.shared.call().map_err(status)?;
    http::forget_ended(&mut call.state);
    Ok(Face { call, table })
}

/// Does `work` with the network and the mode.
fn with(
    this: *mut PxeBaseCodeProtocol,
    work: impl FnOnce(&mut Face<'_>) -> Result<(), Status>,
) -> Status {
    match enter(this).and_then(|mut face| work(&mut face)) {
        Ok(()) => Status::SUCCESS,
        Err(status) => status,
    }
}

/// Whether the base code is started.
pub(crate) fn is_started() -> bool {
    OFFERED.get().is_some_and(|table| {
        // SAFETY: calls are one at a time, and this one is of another table.
        let started = unsafe { (*table.mode.get()).started };
        started.into()
    })
}

unsafe extern "efiapi" fn start(this: *mut PxeBaseCodeProtocol, ipv6: Boolean) -> Status {
    with(this, |face| {
        if face.started().is_ok() {
            return Err(Status::ALREADY_STARTED);
        }
        let mode = face.mode();
        (mode.started, mode.using_ipv6) = (Boolean::TRUE, bool::from(ipv6).into());
        // Without an address, as in EDK II, until somebody sets one or asks DHCP.
        let none: IpAddr = if bool::from(ipv6) {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        face.host().configure(none, 0, None);
        face.leave();
        Ok(())
    })
}

unsafe extern "efiapi" fn stop(this: *mut PxeBaseCodeProtocol) -> Status {
    with(this, |face| {
        face.started()?;
        face.leave();
        face.call.state.snp.link().set_host_up(false);
        *face.mode() = mode::stopped();
        let host = face.host();
        (host.ttl, host.tos, host.auto_arp) = (mode::TTL, 0, true);
        Ok(())
    })
}
