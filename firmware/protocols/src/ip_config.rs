//! EFI_IP4_CONFIG2_PROTOCOL and EFI_IP6_CONFIG_PROTOCOL: their tables, which have the same form, and the variables of the firmware's in which
//! what callers set is kept.

use crate::caller::array;
use crate::offered::Offered;
use crate::shared::{Call, SharedProtocolState, Station};
use crate::status::{denied, status};
use alloc::boxed::Box;
use alloc::string::String;
use core::ffi::c_void;
use core::ptr;
use uefi_raw::protocol::network::ip4_config2::{Ip4Config2DataType, Ip4Config2Protocol};
use uefi_raw::{Event, Guid, Status, guid};
use wireboot_platform::variable;
use wireboot_protocols::Refusal;
use wireboot_protocols::ip_config::{self, IpConfig, Kind, Settings, Stored};

/// EFI_IP6_CONFIG_PROTOCOL_GUID (UEFI 2.10, section 28.7).
pub(crate) const IP6_CONFIG_GUID: Guid = guid!("937fe521-95ae-4d1a-8929-48bcd90ad31a");
/// More data than any type has.
const MOST_DATA: usize = 0x1000;

/// Of IPv4 and IPv6.
static OFFERED: [Offered<IpConfigTable>; 2] = [Offered::none(), Offered::none()];

/// The protocol's identifier, which is also the vendor of its variable.
pub(crate) fn guid_of(v6: bool) -> Guid {
    if v6 {
        IP6_CONFIG_GUID
    } else {
        Ip4Config2Protocol::GUID
    }
}

fn variable_name(station: &Station) -> String {
    ip_config::name(station.mac, station.vlan)
}

/// The settings of one IP version: by DHCP, or else the firmware's own.
pub(crate) fn settings_of(v6: bool, station: &Station, lease: &Settings) -> IpConfig {
    let stored = variable::read(&variable_name(station), guid_of(v6));
    let stored = stored.and_then(|bytes| Stored::read(v6, &bytes));
    IpConfig::new(v6, station.mac, lease.clone(), stored)
}

/// The protocol of one IP version.
#[repr(C)]
pub(crate) struct IpConfigTable {
    /// First, so that `this` is also the table's address. Data types apart, EFI_IP6_CONFIG_PROTOCOL is the same.
    protocol: Ip4Config2Protocol,
    v6: bool,
    variable: String,
    shared: &'static SharedProtocolState,
}

impl IpConfigTable {
    pub(crate) fn new(
        shared: &'static SharedProtocolState,
        v6: bool,
        station: &Station,
    ) -> Box<Self> {
        let table = Box::new(Self {
            protocol: Ip4Config2Protocol {
                set_data,
                get_data,
                register_data_notify,
                unregister_data_notify,
            },
            v6,
            variable: variable_name(station),
            shared,
        });
        table.offered().set(&table);
        table
    }

    fn offered(&self) -> &'static Offered<Self> {
        let [v4, v6] = &OFFERED;
        if self.v6 { v6 } else { v4 }
    }

    pub(crate) fn protocol(&self) -> *const c_void {
        (&raw const self.protocol).cast()
    }
}

impl Drop for IpConfigTable {
    fn drop(&mut self) {
        self.offered().forget(self);
    }
}

fn config<'a>(call: &'a mut Call<'_>, v6: bool) -> &'a mut IpConfig {
    let [v4_config, v6_config] = &mut call.state.ip;
    if v6 { v6_config } else { v4_config }
}

/// Begins a call about data of this type; `unknown` is for a type that there is none of, `busy` while another call is at work.
fn begin<'a>(
    this: *const Ip4Config2Protocol,
    data_type: Ip4Config2DataType,
    unknown: Status,
    busy: fn(Refusal) -> Status,
) -> Result<(Call<'a>, Kind, &'static IpConfigTable), Status> {
    let mut tables = OFFERED.iter();
    let table = tables.find_map(|offered| offered.at(this));
    let table = table.ok_or(Status::INVALID_PARAMETER)?;
    let of = if table.v6 { Kind::of_v6 } else { Kind::of_v4 };
    let kind = of(data_type.0).ok_or(unknown)?;
    let call = table.shared.call().map_err(busy)?;
    Ok((call, kind, table))
}

unsafe extern "efiapi" fn set_data(
    this: *mut Ip4Config2Protocol,
    data_type: Ip4Config2DataType,
    size: usize,
    data: *const c_void,
) -> Status {
    // Without both, what was set is cleared.
    if data.is_null() != (size == 0) {
        return Status::INVALID_PARAMETER;
    }
    if size > MOST_DATA {
        return Status::BAD_BUFFER_SIZE;
    }
    // SAFETY: the caller's data of so many bytes.
    let Some(data) = (unsafe { array(data.cast::<u8>(), size, MOST_DATA) }) else {
        return Status::INVALID_PARAMETER;
    };
    let (mut call, kind, table) = match begin(this, data_type, Status::UNSUPPORTED, denied) {
        Ok(begun) => begun,
        Err(status) => return status,
    };
    let change = match config(&mut call, table.v6).set(kind, data) {
        Ok(change) => change,
        Err(refusal) => return status(refusal),
    };
    if change.changed {
        let state = &mut *call.state;
        let [v4_config, v6_config] = &state.ip;
        let changed = if table.v6 { v6_config } else { v4_config };
        state.network.set_interface(changed.settings());
    }
    if let Some(content) = change.variable
        && let Err(error) = variable::keep(&table.variable, guid_of(table.v6), &content)
    {
        log::warn!(
            "the firmware does not keep the boot loader's settings of the interface ({})",
            error.status()
        );
    }
    let events = change.events.into_iter().map(|event| event as Event);
    call.end(events.collect());
    Status::SUCCESS
}

unsafe extern "efiapi" fn get_data(
    this: *mut Ip4Config2Protocol,
    data_type: Ip4Config2DataType,
    size: *mut usize,
    data: *mut c_void,
) -> Status {
    if size.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller's variable.
    let room = unsafe { size.read_unaligned() };
    if room > 0 && data.is_null() {
        return Status::INVALID_PARAMETER;
    }
    let (mut call, kind, table) = match begin(this, data_type, Status::NOT_FOUND, status) {
        Ok(begun) => begun,
        Err(status) => return status,
    };
    let bytes = match config(&mut call, table.v6).get(kind, data as usize) {
        Ok(bytes) => bytes,
        Err(refusal) => return status(refusal),
    };
    // SAFETY: the caller's variable, and its buffer of as many bytes as that said.
    unsafe {
        size.write_unaligned(bytes.len());
        if room < bytes.len() {
            return Status::BUFFER_TOO_SMALL;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len());
    }
    Status::SUCCESS
}

fn notify(
    this: *const Ip4Config2Protocol,
    data_type: Ip4Config2DataType,
    event: Event,
    unknown: Status,
    work: impl FnOnce(&mut IpConfig, Kind, usize) -> Result<(), Refusal>,
) -> Status {
    if event.is_null() {
        return Status::INVALID_PARAMETER;
    }
    match begin(this, data_type, unknown, denied) {
        Ok((mut call, kind, table)) => {
            let result = work(config(&mut call, table.v6), kind, event as usize);
            result.map_or_else(status, |()| Status::SUCCESS)
        }
        Err(status) => status,
    }
}

unsafe extern "efiapi" fn register_data_notify(
    this: *mut Ip4Config2Protocol,
    data_type: Ip4Config2DataType,
    event: Event,
) -> Status {
    let unknown = Status::UNSUPPORTED;
    notify(this, data_type, event, unknown, IpConfig::register)
}

unsafe extern "efiapi" fn unregister_data_notify(
    this: *mut Ip4Config2Protocol,
    data_type: Ip4Config2DataType,
    event: Event,
) -> Status {
    let unknown = Status::NOT_FOUND;
    notify(this, data_type, event, unknown, IpConfig::unregister)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use r_efi::protocols::ip6::{AddressInfo, RouteTable};
    use uefi_raw::protocol::network::ip4::Ip4RouteTable;
    use uefi_raw::protocol::network::ip4_config2::Ip4Config2InterfaceInfo;
    use uefi_raw::{Char16, MacAddress};

    /// EFI_IP6_CONFIG_INTERFACE_INFO (UEFI 2.10, section 28.7.3).
    #[repr(C)]
    struct InterfaceInfo {
        name: [Char16; 32],
        if_type: u8,
        hw_address_size: u32,
        hw_address: MacAddress,
        address_info_count: u32,
        address_info: *mut AddressInfo,
        route_count: u32,
        route_table: *mut RouteTable,
    }

    /// What is written byte by byte lies where the specification's structures have it.
    #[test]
    fn interface_infos_have_the_form_of_the_specification() {
        type V4 = Ip4Config2InterfaceInfo;
        let settings = |address: &str, gateway: &str| Settings {
            addresses: vec![(address.parse().unwrap(), 24)],
            gateways: vec![gateway.parse().unwrap()],
            dns: vec![],
        };
        let mac = [2, 3, 4, 5, 6, 7];
        let at = 0x10_0000_usize;
        let word = |info: &[u8], offset: usize| {
            usize::from_le_bytes(info[offset..][..8].try_into().unwrap())
        };
        let config = IpConfig::new(false, mac, settings("10.0.0.5", "10.0.0.1"), None);
        let info = config.get(Kind::Info, at).unwrap();
        assert_eq!(info[offset_of!(V4, if_type)], 1);
        assert_eq!(info[offset_of!(V4, hw_addr_size)], 6);
        assert_eq!(info[offset_of!(V4, hw_addr)..][..6], mac);
        assert_eq!(info[offset_of!(V4, station_addr)..][..4], [10, 0, 0, 5]);
        assert_eq!(info[offset_of!(V4, subnet_mask)..][..4], [255, 255, 255, 0]);
        assert_eq!(info[offset_of!(V4, route_table_size)], 2);
        assert_eq!(
            word(&info, offset_of!(V4, route_table)),
            at + size_of::<V4>()
        );
        assert_eq!(info.len(), size_of::<V4>() + 2 * size_of::<Ip4RouteTable>());
        type V6 = InterfaceInfo;
        // Laid out as the specification's declaration is on x86-64.
        let places = [
            (offset_of!(V6, if_type), 64),
            (offset_of!(V6, hw_address_size), 68),
            (offset_of!(V6, hw_address), 72),
            (offset_of!(V6, address_info_count), 104),
            (offset_of!(V6, address_info), 112),
            (offset_of!(V6, route_count), 120),
            (offset_of!(V6, route_table), 128),
            (size_of::<V6>(), 136),
        ];
        assert!(places.iter().all(|(at, expected)| at == expected));
        let config = IpConfig::new(true, mac, settings("fd00::5", "fe80::1"), None);
        let info = config.get(Kind::Info, at).unwrap();
        assert_eq!(offset_of!(V6, name), 0);
        assert_eq!(info[offset_of!(V6, if_type)], 1);
        assert_eq!(info[offset_of!(V6, hw_address_size)], 6);
        assert_eq!(info[offset_of!(V6, hw_address)..][..6], mac);
        assert_eq!(info[offset_of!(V6, address_info_count)], 1);
        assert_eq!(info[offset_of!(V6, route_count)], 2);
        let addresses = size_of::<V6>();
        assert_eq!(word(&info, offset_of!(V6, address_info)), at + addresses);
        let routes = addresses + size_of::<AddressInfo>();
        assert_eq!(word(&info, offset_of!(V6, route_table)), at + routes);
        assert_eq!(info.len(), routes + 2 * size_of::<RouteTable>());
        let second = routes + size_of::<RouteTable>();
        assert_eq!(info[second + offset_of!(RouteTable, gateway)], 0xfe);
        let length = |route| info[route + offset_of!(RouteTable, prefix_length)];
        assert_eq!((length(routes), length(second)), (24, 0));
        assert_eq!(info[routes + offset_of!(RouteTable, destination)], 0xfd);
        assert_eq!(info[addresses + offset_of!(AddressInfo, address)], 0xfd);
        assert_eq!(info[addresses + offset_of!(AddressInfo, prefix_length)], 24);
    }
}
