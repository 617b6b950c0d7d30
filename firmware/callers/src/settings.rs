//! The settings of the interface, as a user of the firmware's menu sets and reads them.

use crate::efi;
use crate::http::binding_on_the_way;
use crate::interface::{Data, Interface, octets};
use crate::report::{Failure, tell};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, Ipv6Addr};
use uefi::{Handle, Status};

/// An address is tried on the network before it is set: tenths of a second.
const PATIENCE: u32 = 100;
const TENTH: usize = 100_000;

/// `ADDRESS/PREFIX GATEWAY DNS`
fn parse(text: &str) -> Option<(IpAddr, u8, IpAddr, IpAddr)> {
    let mut words = text.split(' ');
    let (address, prefix) = words.next()?.split_once('/')?;
    let [gateway, dns] = [words.next()?, words.next()?];
    Some((
        address.parse().ok()?,
        prefix.parse().ok()?,
        gateway.parse().ok()?,
        dns.parse().ok()?,
    ))
}

fn manual_address(address: IpAddr, prefix: u8) -> Vec<u8> {
    let mut data = octets(address);
    match address {
        IpAddr::V4(_) => {
            let host_bits = 32_u32.saturating_sub(prefix.into());
            data.extend(u32::MAX.checked_shl(host_bits).unwrap_or(0).to_be_bytes());
        }
        IpAddr::V6(_) => data.extend([0, prefix]),
    }
    data
}

/// Sets the policy to static or manual, an address, a router and a name server.
pub(crate) fn set(device: Handle, text: &str) -> Result<(), Failure> {
    let (address, prefix, gateway, dns) = parse(text).ok_or(Failure::Wrong("not settings"))?;
    let interface = Interface::on(binding_on_the_way(device)?, address.is_ipv6())?;
    for (kind, data) in [
        (Data::Policy, alloc::vec![0; 4]),
        (Data::Address, manual_address(address, prefix)),
        (Data::Gateway, octets(gateway)),
        (Data::Dns, octets(dns)),
    ] {
        match interface.set(kind, &data) {
            Status::SUCCESS => {}
            Status::NOT_READY => wait(&interface, kind)?,
            status => return Err(Failure::Refused("SetData", status)),
        }
    }
    Ok(())
}

/// Until data that was set is there.
fn wait(interface: &Interface, kind: Data) -> Result<(), Failure> {
    for _ in 0..PATIENCE {
        match interface.get(kind) {
            Ok(_) => return Ok(()),
            Err(Status::NOT_READY) => {
                // SAFETY: the firmware's service.
                let _ = unsafe { (efi::services()?.stall)(TENTH) };
            }
            Err(status) => return Err(Failure::Refused("GetData", status)),
        }
    }
    Err(Failure::Refused("GetData", Status::NOT_READY))
}

/// Tells what is set, of IPv6 if `version` says 6.
pub(crate) fn show(device: Handle, version: &str) -> Result<(), Failure> {
    let v6 = version == "6";
    let interface = Interface::on(binding_on_the_way(device)?, v6)?;
    let mut text = String::new();
    for kind in [Data::Policy, Data::Address, Data::Gateway, Data::Dns] {
        let data = interface.get(kind).unwrap_or_default();
        let _ = match kind {
            Data::Policy => write!(text, "policy {}", data.first().copied().unwrap_or(255)),
            Data::Address => write!(text, ", address {}", first(&data, v6)),
            Data::Gateway => write!(text, ", gateway {}", first(&data, v6)),
            _ => write!(text, ", DNS {}", first(&data, v6)),
        };
    }
    tell(format_args!("settings of IPv{version}: {text}"));
    Ok(())
}

/// The first address of some data, `::` for none.
fn first(data: &[u8], v6: bool) -> IpAddr {
    let v4 = data.first_chunk::<4>().filter(|_| !v6);
    let v6 = data.first_chunk::<16>().filter(|_| v6);
    let address = v4.map(|v4| IpAddr::from(*v4));
    let address = address.or_else(|| v6.map(|v6| IpAddr::from(*v6)));
    address.unwrap_or(Ipv6Addr::UNSPECIFIED.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_an_address_a_router_and_a_name_server() {
        let (address, prefix, gateway, dns) = parse("10.0.0.5/24 10.0.0.1 10.0.0.3").unwrap();
        assert_eq!(
            manual_address(address, prefix),
            [10, 0, 0, 5, 255, 255, 255, 0]
        );
        assert_eq!(first(&octets(gateway), false), gateway);
        assert_eq!(first(&octets(dns), false), dns);
        assert_eq!(first(&[], true), IpAddr::from([0; 16]));
        let (address, prefix, ..) = parse("fd00::5/48 fe80::1 fd00::3").unwrap();
        assert_eq!(manual_address(address, prefix)[16..], [0, 48]);
        for wrong in ["", "10.0.0.5", "10.0.0.5/24 10.0.0.1", "10.0.0.5/24 x y"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
