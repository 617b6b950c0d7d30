//! The settings of the interface, as loaders read and write them: EFI_IP4_CONFIG2_PROTOCOL and EFI_IP6_CONFIG_PROTOCOL (UEFI 2.10, sections
//! 28.5 and 28.7), whose tables are the same.

use crate::base_code::{BaseCode, own_address};
use crate::efi;
use crate::report::{Failure, succeeded};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr::NonNull;
use uefi::{Guid, Handle, Status, guid};
use uefi_raw::protocol::network::ip4_config2::{Ip4Config2DataType, Ip4Config2Protocol};

/// The GUID of EFI_IP6_CONFIG_PROTOCOL (UEFI 2.10, section 28.7); uefi-raw lacks it.
const IP6_CONFIG: Guid = guid!("937fe521-95ae-4d1a-8929-48bcd90ad31a");

/// Types and subtypes of the nodes of a network interface's path.
pub(crate) const MAC: (u8, u8) = (3, 11);
const IPV4: (u8, u8) = (3, 12);
const IPV6: (u8, u8) = (3, 13);
const DNS: (u8, u8) = (3, 31);

/// EFI_IP4_CONFIG2_DATA_TYPE and EFI_IP6_CONFIG_DATA_TYPE, as far as loaders use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Info,
    Policy,
    Address,
    Gateway,
    Dns,
}

impl Data {
    pub(crate) fn of(self, v6: bool) -> Ip4Config2DataType {
        Ip4Config2DataType(match (self, v6) {
            (Self::Info, _) => 0,
            (Self::Policy, false) => 1,
            (Self::Policy, true) | (Self::Address, false) => 2,
            (Self::Gateway, false) => 3,
            (Self::Address, true) | (Self::Dns, false) => 4,
            (Self::Gateway, true) => 5,
            (Self::Dns, true) => 6,
        })
    }
}

/// What a loader knows of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub address: IpAddr,
    /// An IPv4 mask, or the length of an IPv6 prefix.
    mask: [u8; 4],
    gateway: Option<IpAddr>,
    dns: Option<IpAddr>,
}

impl Known {
    /// Of the nodes of a path, as HTTP Boot leaves them.
    fn of_nodes(nodes: &[((u8, u8), Vec<u8>)]) -> Option<Self> {
        let given = |address: IpAddr| (!address.is_unspecified()).then_some(address);
        let dns = nodes.iter().find(|(kind, _)| *kind == DNS);
        // A byte tells the version; each address has 16.
        let dns = dns.and_then(|(_, data)| match *data.first()? {
            0 => address(data, 1, false),
            _ => address(data, 1, true),
        });
        let (kind, data) = nodes
            .iter()
            .find(|(kind, _)| matches!(*kind, IPV4 | IPV6))?;
        let v6 = *kind == IPV6;
        let (gateway, mask) = if v6 {
            (address(data, 40, true)?, [*data.get(39)?, 0, 0, 0])
        } else {
            (address(data, 15, false)?, *data.get(19..)?.first_chunk()?)
        };
        Some(Self {
            address: given(address(data, 0, v6)?)?,
            mask,
            gateway: given(gateway),
            dns: dns.and_then(given),
        })
    }

    /// Of the path by which this program came, else of the base code.
    pub(crate) fn of(device: Handle) -> Result<Self, Failure> {
        if let Some(known) = Self::of_nodes(&efi::nodes(device)) {
            return Ok(known);
        }
        let mode = BaseCode::of(device)?.mode();
        let v6 = bool::from(mode.using_ipv6);
        // SAFETY: unions of plain bytes.
        let (station, mask) = unsafe {
            (
                core::mem::transmute::<uefi_raw::IpAddress, [u8; 16]>(mode.station_ip),
                core::mem::transmute::<uefi_raw::IpAddress, [u8; 16]>(mode.subnet_mask),
            )
        };
        let [a, b, c, d, ..] = mask;
        Ok(Self {
            address: if v6 {
                station.into()
            } else {
                own_address(&mode.dhcp_ack).into()
            },
            mask: if v6 { [64, 0, 0, 0] } else { [a, b, c, d] },
            gateway: None,
            dns: None,
        })
    }

    /// The mask of an IPv4 address.
    pub(crate) fn mask(&self) -> [u8; 4] {
        self.mask
    }

    /// EFI_IP4_CONFIG2_MANUAL_ADDRESS or EFI_IP6_CONFIG_MANUAL_ADDRESS.
    pub(crate) fn manual_address(&self) -> Vec<u8> {
        let mut data = octets(self.address);
        if self.address.is_ipv6() {
            let [prefix, ..] = self.mask;
            data.extend([0, prefix]);
        } else {
            data.extend(self.mask);
        }
        data
    }
}

/// The address at byte `at`.
fn address(data: &[u8], at: usize, v6: bool) -> Option<IpAddr> {
    let rest = data.get(at..)?;
    if v6 {
        Some(IpAddr::from(*rest.first_chunk::<16>()?))
    } else {
        Some(IpAddr::from(*rest.first_chunk::<4>()?))
    }
}

/// An address' bytes.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The protocol of one version on a handle.
#[derive(Clone, Copy)]
pub(crate) struct Interface {
    pub table: NonNull<Ip4Config2Protocol>,
    pub v6: bool,
}

impl Interface {
    /// The protocol's identifier.
    pub(crate) fn guid(v6: bool) -> &'static Guid {
        if v6 {
            &IP6_CONFIG
        } else {
            &Ip4Config2Protocol::GUID
        }
    }

    pub(crate) fn on(handle: Handle, v6: bool) -> Result<Self, Failure> {
        let what = if v6 { "IP6Config" } else { "IP4Config2" };
        let table = efi::protocol(handle, Self::guid(v6), what)?;
        Ok(Self { table, v6 })
    }

    /// Sets the interface by SetData, and tells what that answered.
    pub(crate) fn set(&self, kind: Data, data: &[u8]) -> Status {
        // SAFETY: the table stays while a loader runs, and the data has the size that is told.
        unsafe {
            (self.table.as_ref().set_data)(
                self.table.as_ptr(),
                kind.of(self.v6),
                data.len(),
                if data.is_empty() {
                    core::ptr::null()
                } else {
                    data.as_ptr().cast()
                },
            )
        }
    }

    /// GetData: the size first, then the data.
    pub(crate) fn get(&self, kind: Data) -> Result<Vec<u8>, Status> {
        let mut size = 0;
        let get = |size: &mut usize, data: *mut u8| {
            // SAFETY: as above.
            unsafe {
                let this = self.table.as_ptr();
                (self.table.as_ref().get_data)(this, kind.of(self.v6), size, data.cast())
            }
        };
        match get(&mut size, core::ptr::null_mut()) {
            Status::BUFFER_TOO_SMALL => {}
            status => return Err(status),
        }
        let mut data = alloc::vec![0; size];
        match get(&mut size, data.as_mut_ptr()) {
            Status::SUCCESS => {
                data.truncate(size);
                Ok(data)
            }
            status => Err(status),
        }
    }

    /// Has the interface be as the loader knows it. Loaders take only a success for one.
    pub(crate) fn configure(&self, known: &Known, policy: bool) -> Result<(), Failure> {
        if policy {
            succeeded("SetData(Policy)", self.set(Data::Policy, &[0; 4]))?;
        }
        let address = known.manual_address();
        succeeded("SetData(ManualAddress)", self.set(Data::Address, &address))?;
        if let Some(gateway) = known.gateway {
            let status = self.set(Data::Gateway, &octets(gateway));
            succeeded("SetData(Gateway)", status)?;
        }
        Ok(())
    }

    /// The name server that the loader knows.
    pub(crate) fn set_dns(&self, known: &Known) -> Result<(), Failure> {
        match known.dns {
            Some(dns) => succeeded("SetData(DnsServer)", self.set(Data::Dns, &octets(dns))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_http_boot_leaves_in_the_path_is_known() {
        let mut v4 = alloc::vec![0; 23];
        v4[..4].copy_from_slice(&[10, 0, 0, 5]);
        v4[15..19].copy_from_slice(&[10, 0, 0, 1]);
        v4[19..].copy_from_slice(&[255, 255, 255, 0]);
        let dns = [&[0, 10, 0, 0, 3][..], &[0; 12]].concat();
        let known = Known::of_nodes(&[(IPV4, v4.clone()), (DNS, dns)]).unwrap();
        assert_eq!(known.address, IpAddr::from([10, 0, 0, 5]));
        assert_eq!(known.gateway, Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(known.dns, Some(IpAddr::from([10, 0, 0, 3])));
        assert_eq!(known.manual_address(), [10, 0, 0, 5, 255, 255, 255, 0]);
        // PXE leaves no address there.
        v4[..4].fill(0);
        assert_eq!(Known::of_nodes(&[(IPV4, v4)]), None);
        let mut v6 = alloc::vec![0; 56];
        v6[0] = 0xfd;
        v6[39] = 64;
        let known = Known::of_nodes(&[(IPV6, v6)]).unwrap();
        assert_eq!(known.manual_address()[16..], [0, 64]);
        assert_eq!(known.gateway, None);
    }
}
