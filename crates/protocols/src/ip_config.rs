//! EFI_IP4_CONFIG2_PROTOCOL and EFI_IP6_CONFIG_PROTOCOL: the settings of the interface, as callers read and write them (UEFI 2.10,
//! sections 28.5 and 28.7).
//!
//! With a lease, the address has been obtained when a loader runs, and nobody renews it, so the policy is static unless a caller says
//! otherwise. Without one, the settings are those that the firmware keeps from boot to boot. What callers set is kept there, too.

#[cfg(test)]
mod tests;
mod variable;

use crate::Refusal;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use variable::fill_checksum;
pub use variable::{Stored, name};

/// Notifications, of all kinds together.
const MOST_EVENTS: usize = 64;
/// Addresses of one kind at most.
const MOST: usize = 16;
/// Policy: Ip4Config2PolicyStatic, Ip6ConfigPolicyManual.
const FIXED: u32 = 0;
/// Ip4Config2PolicyDhcp.
const DHCP: u32 = 1;
/// IfType of Ethernet (RFC 3232).
const ETHERNET: u8 = 1;

/// What can be read and set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// InterfaceInfo, which can only be read.
    Info,
    /// AltInterfaceId; IPv6.
    AltInterfaceId,
    /// Policy: whether callers set addresses, gateways and name servers, or automatic configuration does.
    Policy,
    /// DupAddrDetectTransmits; IPv6.
    DupAddrDetect,
    /// ManualAddress: addresses with their prefixes.
    Address,
    /// Gateway: addresses of routers, no address twice.
    Gateway,
    /// DnsServer: addresses of name servers.
    Dns,
}

impl Kind {
    /// The kind with this number in EFI_IP4_CONFIG2_DATA_TYPE; `None` where no kind has it.
    #[must_use]
    pub fn of_v4(number: i32) -> Option<Self> {
        use Kind::{Address, Dns, Gateway, Info, Policy};
        let all = [Info, Policy, Address, Gateway, Dns];
        all.get(usize::try_from(number).ok()?).copied()
    }

    /// The kind with this number in EFI_IP6_CONFIG_DATA_TYPE; `None` where no kind has it.
    #[must_use]
    pub fn of_v6(number: i32) -> Option<Self> {
        use Kind::{Address, AltInterfaceId, Dns, DupAddrDetect, Gateway, Info, Policy};
        let all = [
            Info,
            AltInterfaceId,
            Policy,
            DupAddrDetect,
            Address,
            Gateway,
            Dns,
        ];
        all.get(usize::try_from(number).ok()?).copied()
    }

    fn number(self, v6: bool) -> Option<i32> {
        let of = if v6 { Self::of_v6 } else { Self::of_v4 };
        (0..7).find(|number| of(*number) == Some(self))
    }
}

/// What a policy is about.
const BY_HAND: [Kind; 3] = [Kind::Address, Kind::Gateway, Kind::Dns];

/// The interface by one IP version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Addresses, each with the length of its network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routers for destinations off the link; empty where none is set.
    pub gateways: Vec<IpAddr>,
    /// Addresses of name servers; empty where none is set.
    pub dns: Vec<IpAddr>,
}

/// A caller's event, which only its caller knows more of.
pub type Event = usize;

/// The settings of one IP version, and who wants to know of changes.
#[derive(Debug)]
pub struct IpConfig {
    v6: bool,
    mac: [u8; 6],
    policy: u32,
    settings: Settings,
    dup_addr_detect: u32,
    interface_id: [u8; 8],
    stored: Stored,
    events: Vec<(Kind, Event)>,
}

/// What a caller has set.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// Callers' events that are to be signalled for it.
    pub events: Vec<Event>,
    /// The interface has other settings now.
    pub changed: bool,
    /// What the firmware keeps, if that is something else now.
    pub variable: Option<Vec<u8>>,
}

impl IpConfig {
    /// IPv4, or IPv6 if `v6`, of the interface with the Ethernet address `mac`. `lease`: its settings by DHCP, without an address where
    /// there is none. `stored`: what the firmware keeps.
    #[must_use]
    pub fn new(v6: bool, mac: [u8; 6], lease: Settings, stored: Option<Stored>) -> Self {
        let [a, b, c, d, e, f] = mac;
        let mut config = Self {
            v6,
            mac,
            policy: FIXED,
            settings: Settings::default(),
            dup_addr_detect: 1,
            // RFC 4291, appendix A.
            interface_id: [a ^ 2, b, c, 0xff, 0xfe, d, e, f],
            stored: Stored::new(v6, mac),
            events: Vec::new(),
        };
        if let Some(stored) = stored {
            config.stored.take_ia_id(&stored);
            let policy = stored.get(Kind::Policy).map(number);
            let by_hand = if policy == Some(Ok(DHCP)) {
                &[][..]
            } else {
                &BY_HAND
            };
            let kinds = [Kind::AltInterfaceId, Kind::DupAddrDetect, Kind::Policy];
            for kind in kinds.iter().chain(by_hand) {
                if let Some(data) = stored.get(*kind) {
                    // What no interface can have is left out.
                    let _ = config.set(*kind, data);
                }
            }
        }
        if !lease.addresses.is_empty() {
            // By then the firmware's network boot has the policy static.
            if config.policy != FIXED {
                let _ = config.set(Kind::Policy, &FIXED.to_le_bytes());
            }
            config.settings = lease;
        }
        config
    }

    /// The settings in force: the lease's, or what callers have set.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// SetData.
    ///
    /// # Errors
    /// [`Refusal::WriteProtected`] for what cannot be set, or not under this policy; [`Refusal::BadBufferSize`];
    /// [`Refusal::InvalidParameter`] for what no host can have.
    pub fn set(&mut self, kind: Kind, data: &[u8]) -> Result<Change, Refusal> {
        let before = (self.settings.clone(), self.stored.clone());
        let mut about = vec![kind];
        match kind {
            Kind::Info => return Err(Refusal::WriteProtected),
            Kind::AltInterfaceId => {
                self.interface_id = data.try_into().map_err(|_| Refusal::BadBufferSize)?;
            }
            Kind::DupAddrDetect => self.dup_addr_detect = number(data)?,
            Kind::Policy => {
                let policy = number(data)?;
                if policy > DHCP {
                    return Err(Refusal::InvalidParameter);
                }
                if policy != self.policy {
                    self.policy = policy;
                    about.extend(BY_HAND);
                    for kind in BY_HAND {
                        self.stored.set(kind, &[]);
                    }
                }
            }
            _ if self.policy != FIXED => return Err(Refusal::WriteProtected),
            Kind::Address => {
                let size = if self.v6 { 18 } else { 8 };
                let entries = entries(data, size)?.map(|entry| self.address(entry));
                let addresses: Vec<(IpAddr, u8)> = entries.collect::<Result<_, _>>()?;
                if !self.v6 && addresses.len() > 1 {
                    return Err(Refusal::BadBufferSize);
                }
                self.settings.addresses = addresses;
            }
            Kind::Gateway => {
                let gateways = self.hosts(data)?;
                let mut rest = &*gateways;
                while let Some((first, others)) = rest.split_first() {
                    if others.contains(first) {
                        return Err(Refusal::InvalidParameter);
                    }
                    rest = others;
                }
                self.settings.gateways = gateways;
            }
            Kind::Dns => self.settings.dns = self.hosts(data)?,
        }
        self.stored.set(kind, data);
        let (settings, stored) = before;
        let events = self.events.iter().filter(|(of, _)| about.contains(of));
        Ok(Change {
            events: events.map(|(_, event)| *event).collect(),
            changed: self.settings != settings,
            variable: (self.stored != stored)
                .then(|| self.stored.write())
                .flatten(),
        })
    }

    fn address(&self, entry: &[u8]) -> Result<(IpAddr, u8), Refusal> {
        let address = host(entry, self.v6)?;
        if self.v6 {
            let prefix = entry.get(17).copied().unwrap_or_default();
            let prefix = if prefix == 0 { 64 } else { prefix };
            return (prefix <= 128)
                .then_some((address, prefix))
                .ok_or(Refusal::InvalidParameter);
        }
        let mask: [u8; 4] = entry
            .get(4..8)
            .and_then(|mask| mask.try_into().ok())
            .ok_or(Refusal::BadBufferSize)?;
        let mask = u32::from_be_bytes(mask);
        let ones = mask.leading_ones();
        if mask == 0 || mask.count_ones() != ones {
            return Err(Refusal::InvalidParameter);
        }
        Ok((address, ones as u8))
    }

    fn hosts(&self, data: &[u8]) -> Result<Vec<IpAddr>, Refusal> {
        entries(data, if self.v6 { 16 } else { 4 })?
            .map(|entry| host(entry, self.v6))
            .collect()
    }

    /// GetData, as it lies at address `at` of the caller's.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for what is not set.
    pub fn get(&self, kind: Kind, at: usize) -> Result<Vec<u8>, Refusal> {
        let data = match kind {
            // By DHCP, they are nobody's settings. Name servers are told either way.
            Kind::Address | Kind::Gateway if self.policy != FIXED => Vec::new(),
            Kind::Info => self.info(at),
            Kind::AltInterfaceId => self.interface_id.to_vec(),
            Kind::Policy => self.policy.to_le_bytes().to_vec(),
            Kind::DupAddrDetect => self.dup_addr_detect.to_le_bytes().to_vec(),
            Kind::Address => {
                let mut data = Vec::new();
                for (address, prefix) in &self.settings.addresses {
                    data.extend(octets(*address));
                    if self.v6 {
                        // IsAnycast, PrefixLength.
                        data.extend([0, *prefix]);
                    } else {
                        data.extend(mask(*prefix));
                    }
                }
                data
            }
            Kind::Gateway => all(&self.settings.gateways),
            Kind::Dns => all(&self.settings.dns),
        };
        if data.is_empty() {
            return Err(Refusal::NotFound);
        }
        Ok(data)
    }

    /// EFI_IP4_CONFIG2_INTERFACE_INFO or EFI_IP6_CONFIG_INTERFACE_INFO, with its tables behind it.
    fn info(&self, at: usize) -> Vec<u8> {
        let mut info = Vec::new();
        for unit in "eth0".encode_utf16() {
            info.extend(unit.to_le_bytes());
        }
        info.resize(64, 0);
        info.extend([ETHERNET, 0, 0, 0]);
        info.extend(6_u32.to_le_bytes());
        info.extend(self.mac);
        info.resize(104, 0);
        let Settings {
            addresses,
            gateways,
            ..
        } = &self.settings;
        if self.v6 {
            let table: Vec<u8> = addresses
                .iter()
                .flat_map(|(address, prefix)| [octets(*address), vec![*prefix]].concat())
                .collect();
            let mut routes = Vec::new();
            for (address, prefix) in addresses {
                // Gateway, destination, prefix length.
                routes.extend([vec![0; 16], network(*address, *prefix), vec![*prefix]].concat());
            }
            for gateway in gateways {
                routes.extend([octets(*gateway), vec![0; 17]].concat());
            }
            const LEN: usize = 136;
            info.extend((addresses.len() as u64).to_le_bytes());
            info.extend(pointer(at.wrapping_add(LEN), &table));
            info.extend(((routes.len() / 33) as u64).to_le_bytes());
            info.extend(pointer(at.wrapping_add(LEN + table.len()), &routes));
            info.extend(table);
            info.extend(routes);
            return info;
        }
        let mut routes = Vec::new();
        if let Some((address, prefix)) = addresses.first() {
            info.extend(octets(*address));
            info.extend(mask(*prefix));
            // Subnet, mask, gateway.
            let route = [
                network(*address, *prefix),
                mask(*prefix).to_vec(),
                vec![0; 4],
            ];
            routes.extend(route.concat());
        } else {
            info.extend([0; 8]);
        }
        for gateway in gateways {
            routes.extend([vec![0; 8], octets(*gateway)].concat());
        }
        const LEN: usize = 128;
        info.extend(((routes.len() / 12) as u64).to_le_bytes());
        info.extend(pointer(at.wrapping_add(LEN), &routes));
        info.extend(routes);
        info
    }

    /// RegisterDataNotify.
    ///
    /// # Errors
    /// [`Refusal::AccessDenied`] for an event that is registered; [`Refusal::OutOfResources`] when there are too many.
    pub fn register(&mut self, kind: Kind, event: Event) -> Result<(), Refusal> {
        if self.events.contains(&(kind, event)) {
            return Err(Refusal::AccessDenied);
        }
        if self.events.len() >= MOST_EVENTS {
            return Err(Refusal::OutOfResources);
        }
        self.events.push((kind, event));
        Ok(())
    }

    /// UnregisterDataNotify.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for an event that is not registered.
    pub fn unregister(&mut self, kind: Kind, event: Event) -> Result<(), Refusal> {
        let index = self.events.iter().position(|one| *one == (kind, event));
        self.events.remove(index.ok_or(Refusal::NotFound)?);
        Ok(())
    }
}

fn number(data: &[u8]) -> Result<u32, Refusal> {
    let bytes = data.try_into().map_err(|_| Refusal::BadBufferSize)?;
    Ok(u32::from_le_bytes(bytes))
}

fn entries(data: &[u8], size: usize) -> Result<core::slice::ChunksExact<'_, u8>, Refusal> {
    if !data.len().is_multiple_of(size) || data.len() / size > MOST {
        return Err(Refusal::BadBufferSize);
    }
    Ok(data.chunks_exact(size))
}

/// The address at the start of `entry`, if one host can have it.
fn host(entry: &[u8], v6: bool) -> Result<IpAddr, Refusal> {
    let address = if v6 {
        let bytes = entry.first_chunk::<16>();
        bytes.map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes)))
    } else {
        let bytes = entry.first_chunk::<4>();
        bytes.map(|bytes| IpAddr::V4(Ipv4Addr::from(*bytes)))
    };
    address.filter(is_host).ok_or(Refusal::InvalidParameter)
}

/// Whether a station can have the address.
pub(crate) fn is_host(address: &IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_loopback()
        && *address != IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn all(addresses: &[IpAddr]) -> Vec<u8> {
    addresses.iter().copied().flat_map(octets).collect()
}

fn mask(prefix: u8) -> [u8; 4] {
    let host_bits = 32_u32.saturating_sub(prefix.into());
    u32::MAX.checked_shl(host_bits).unwrap_or(0).to_be_bytes()
}

/// The network that an address is of.
fn network(address: IpAddr, prefix: u8) -> Vec<u8> {
    let mut left = u32::from(prefix);
    let mut bytes = octets(address);
    for byte in &mut bytes {
        *byte &= !u8::MAX.checked_shr(left).unwrap_or(0);
        left = left.saturating_sub(8);
    }
    bytes
}

/// Where a table is; null if it is empty.
fn pointer(at: usize, table: &[u8]) -> [u8; 8] {
    let at = if table.is_empty() { 0 } else { at as u64 };
    at.to_le_bytes()
}
