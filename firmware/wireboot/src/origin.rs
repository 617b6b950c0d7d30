//! How were we loaded? From which interface and server, and what does the firmware know of the network?

use alloc::boxed::Box;
use alloc::string::ToString;
use core::net::{IpAddr, Ipv4Addr};
use wireboot_fetch::url::Url;
use wireboot_fetch::{Lease, LeaseSource};
use wireboot_net::Ipv4Cidr;
use wireboot_platform::device_path::NetworkPath;
use wireboot_platform::image::Own;
use wireboot_platform::pxe::{self, Cached};

/// What the firmware knows of the way we came.
pub struct Origin {
    /// Nodes of the path of the device that we were loaded from.
    pub path: Box<[u8]>,
    /// What its network nodes say.
    pub network: NetworkPath,
    /// The packets of the firmware's PXE.
    pub cached: Option<Cached>,
    /// The lease that the firmware holds.
    pub lease: Option<Lease>,
    /// Where wireboot.efi came from.
    pub url: Option<Url>,
    /// We came by HTTP Boot.
    pub http: bool,
}

impl Origin {
    /// Reads it. Best before the network interface is taken: the firmware forgets it then.
    pub fn of(image: &Own) -> Self {
        // HTTP Boot tells by the whole path (the device's, then the URI); PXE by the device's handle.
        let path = image
            .device_path
            .clone()
            .or_else(|| image.path.clone())
            .unwrap_or_default();
        let network = [&image.path, &image.device_path]
            .into_iter()
            .flatten()
            .map(|nodes| NetworkPath::parse(nodes))
            .max_by_key(|network| (network.uri.is_some(), network.ip.is_some()))
            .unwrap_or_default();
        let uri = network.uri.as_deref().and_then(|uri| Url::parse(uri).ok());
        let cached = image.device.and_then(pxe::cached);
        let lease = cached
            .as_ref()
            .filter(|cached| cached.station.is_ipv4())
            .and_then(|cached| {
                Lease::from_packets(
                    &cached.dhcp_ack,
                    cached.proxy_offer.as_deref(),
                    cached.pxe_reply.as_deref(),
                )
                .inspect_err(|error| log::warn!("the firmware's lease is of no use: {error}"))
                .ok()
            })
            .or_else(|| of_http_boot(&network));
        let http = uri.is_some();
        let url = uri.or_else(|| boot_file(lease.as_ref()?));
        Self {
            path,
            network,
            cached,
            lease,
            url,
            http,
        }
    }
}

/// The lease as HTTP Boot's device path tells it.
fn of_http_boot(network: &NetworkPath) -> Option<Lease> {
    let ip = network.ip?;
    let IpAddr::V4(local) = ip.local else {
        return None;
    };
    let address = Ipv4Cidr::new(local, ip.prefix?);
    Some(Lease {
        router: ip.gateway.and_then(ipv4),
        dns: network.dns.iter().copied().filter_map(ipv4).collect(),
        next_server: ip.remote.and_then(ipv4),
        boot_file: network.uri.as_ref().map(ToString::to_string),
        ..Lease::new(address, LeaseSource::Firmware)
    })
}

fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// The boot file that a lease names, as a URL.
pub fn boot_file(lease: &Lease) -> Option<Url> {
    let file = lease.boot_file.as_deref()?;
    if file.contains("://") {
        return Url::parse(file).ok();
    }
    if let Some(server) = lease.next_server {
        return Url::from_boot_file(server, file).ok();
    }
    // A server known by name only: its TFTP file.
    let name = lease.next_server_name.as_deref()?;
    Url::parse(&alloc::format!("tftp://{name}/"))
        .ok()?
        .join(file)
        .ok()
}
