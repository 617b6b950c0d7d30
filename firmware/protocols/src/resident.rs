//! What stays while a loader runs: the network, and the protocols on it.

use crate::base_code::{self, BaseCodeTable, Packets};
use crate::binding::BindingTable;
use crate::http;
use crate::ip_config::{self, IpConfigTable};
use crate::load_file::LoadFileTable;
use crate::service_binding::HttpServiceBinding;
use crate::shared::{Interface, Network, SharedProtocolState, Station};
use crate::simple_network::{self, SnpTable};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::time::Duration;
use uefi::Event;
use uefi::boot::{self, EventType, TimerTrigger, Tpl};
use uefi_raw::protocol::device_path::DevicePathProtocol;
use uefi_raw::protocol::media::LoadFileProtocol;
use uefi_raw::protocol::network::http::HttpProtocol;
use uefi_raw::protocol::network::pxe::PxeBaseCodeProtocol;
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use wireboot_platform::Callback;
use wireboot_platform::claim::lent::Lent;
use wireboot_platform::exit;
use wireboot_protocols::base_code::Host;
use wireboot_protocols::hub::Hub;
use wireboot_protocols::link::Link;
use wireboot_protocols::simple_network::SimpleNetwork;

/// The end node of a device path.
const END: [u8; 4] = [0x7f, 0xff, 4, 0];
/// How often the network is looked after while nobody calls.
const TICK: Duration = Duration::from_millis(10);

/// What the firmware has the addresses of.
struct Tables {
    // Before what they refer to.
    binding: Box<BindingTable>,
    snp: Box<SnpTable>,
    base_code: Box<BaseCodeTable>,
    http: Box<HttpServiceBinding>,
    load_file: Box<LoadFileTable>,
    ip: [Box<IpConfigTable>; 2],
    interface: Box<Interface>,
    station: Box<Station>,
    shared: NonNull<SharedProtocolState>,
}

impl Drop for Tables {
    fn drop(&mut self) {
        // SAFETY: leaked by `offer`; only the tables led to it, and nobody calls them any more.
        drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
    }
}

/// The protocols, as long as this lives.
pub struct Resident {
    events: Vec<Event>,
    /// Freed only when the firmware knows none of it any more.
    tables: ManuallyDrop<Tables>,
    known: ManuallyDrop<Callback>,
}

impl Resident {
    /// Offers `network` to whoever is started next, by handles for `station`. `link`: for a network stack of the loader's own. `packets`:
    /// of the DHCP exchange, as a loader shall see them. `interface`: what it reads and sets otherwise. `lent`: the handle of the card where the
    /// firmware's driver drives it, whose protocols then are ours.
    ///
    /// # Errors
    /// What the firmware answers when it has no memory, or when there are such handles already. The network has been dropped then.
    pub fn offer(
        mut network: Box<dyn Network>,
        link: Box<dyn Link>,
        station: Station,
        packets: &Packets,
        interface: Interface,
        lent: Option<&Lent>,
    ) -> uefi::Result<Self> {
        let known = Callback::new();
        let snp = SimpleNetwork::new(Hub::new(link), station.mac, station.mtu);
        let (seed, _) = wireboot_platform::random::seed();
        let mut host = Host::new(station.mac, station.mtu, seed);
        host.configure(station.address, station.prefix_len, station.router);
        let ip = [(false, &interface.v4), (true, &interface.v6)].map(|(v6, lease)| {
            let config = ip_config::settings_of(v6, &station, lease);
            // Without a lease, the address of the firmware's menu, if there is one.
            if lease.addresses.is_empty() {
                network.set_interface(config.settings());
            }
            config
        });
        let shared: &'static SharedProtocolState =
            Box::leak(Box::new(SharedProtocolState::new(network, snp, host, ip)));
        let mut resident = Self {
            events: Vec::new(),
            tables: ManuallyDrop::new(Tables {
                binding: BindingTable::new(shared),
                snp: SnpTable::new(shared, &station),
                base_code: BaseCodeTable::new(shared, &station, packets),
                http: HttpServiceBinding::new(http::BINDING, shared),
                load_file: LoadFileTable::new(shared, &interface.url),
                ip: [false, true].map(|v6| IpConfigTable::new(shared, v6, &station)),
                interface: Box::new(interface),
                station: Box::new(station),
                shared: NonNull::from(shared),
            }),
            known: ManuallyDrop::new(known),
        };
        resident.install(lent)?;
        Ok(resident)
    }

    fn install(&mut self, lent: Option<&Lent>) -> uefi::Result<()> {
        let Self { events, tables, .. } = self;
        let path = |path: &[u8]| (DevicePathProtocol::GUID, path.as_ptr().cast::<c_void>());
        let snp = (SimpleNetworkProtocol::GUID, tables.snp.protocol());
        let base_code = (PxeBaseCodeProtocol::GUID, tables.base_code.protocol());
        let context = Some(tables.shared.cast());
        // SAFETY: tables, paths and what events refer to live as long as the handles and events.
        unsafe {
            events.push(boot::create_event(
                EventType::NOTIFY_WAIT,
                Tpl::CALLBACK,
                Some(simple_network::on_wait),
                context,
            )?);
            tables.snp.set_wait_for_packet(events.last());
            let timer = boot::create_event(
                EventType::TIMER | EventType::NOTIFY_SIGNAL,
                Tpl::CALLBACK,
                Some(on_tick),
                context,
            )?;
            let set = boot::set_timer(&timer, TimerTrigger::Periodic(TICK));
            events.push(timer);
            set?;
            // A driver of the firmware's is called at TPL_CALLBACK at most. Its own event, which is older, comes behind this one.
            let at_exit = lent.map_or(Tpl::NOTIFY, |_| Tpl::CALLBACK);
            events.push(boot::create_event(
                EventType::SIGNAL_EXIT_BOOT_SERVICES,
                at_exit,
                Some(on_exit),
                context,
            )?);
            let [v4, v6] = &tables.ip;
            let mut all = Vec::from([
                (HttpProtocol::SERVICE_BINDING_GUID, tables.http.protocol()),
                (ip_config::guid_of(false), v4.protocol()),
                (ip_config::guid_of(true), v6.protocol()),
            ]);
            let mac_path = &tables.station.mac_path;
            let card = lent.filter(|lent| mac_path.strip_suffix(&END) == Some(&lent.path));
            if card.is_none() {
                all.push(path(mac_path));
            }
            if card.is_none_or(|lent| lent.simple_network.is_none()) {
                all.push(snp);
            }
            let on = card.map(|lent| lent.handle);
            // Loaders take the way by which they came: by its URI node, or by the base code.
            let ip_path = path(&tables.station.ip_path);
            let load_file = (LoadFileProtocol::GUID, tables.load_file.protocol());
            let below: &[&[_]] = match &tables.interface.uri_path {
                // The other one is for paths with other URLs.
                Some(uri_path) => &[&[path(uri_path), load_file], &[ip_path, load_file]],
                None => &[&[ip_path, load_file, base_code, snp]],
            };
            tables
                .binding
                .offer((on, &all), below, lent.map(|lent| (lent, snp)))
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let mut gone = true;
        for event in self.events.drain(..) {
            gone &= boot::close_event(event).is_ok();
        }
        if gone {
            // SAFETY: leaked by `offer`, and freed with the tables; the loader has returned, and the events are closed.
            gone &= unsafe { http::drop_children(self.tables.shared.as_ref()) };
        }
        gone &= self.tables.binding.remove();
        if gone {
            // SAFETY: dropped once, and not used afterwards.
            unsafe {
                ManuallyDrop::drop(&mut self.tables);
                ManuallyDrop::drop(&mut self.known);
            }
        } else {
            log::warn!("the firmware keeps a part of the boot loader's network");
        }
    }
}

unsafe extern "efiapi" fn on_tick(_: Event, context: Option<NonNull<c_void>>) {
    let Some(context) = context else { return };
    // SAFETY: the context lives as long as the event.
    let shared = unsafe { context.cast::<SharedProtocolState>().as_ref() };
    shared.at_leisure(|state| {
        http::forget_ended(state);
        state.network.turn();
        base_code::turn(state);
    });
    http::advance_all(shared);
}

unsafe extern "efiapi" fn on_exit(_: Event, context: Option<NonNull<c_void>>) {
    exit::begins();
    let Some(context) = context else { return };
    // SAFETY: the context lives as long as the event.
    unsafe { context.cast::<SharedProtocolState>().as_ref() }.halt();
}
