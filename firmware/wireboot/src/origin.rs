//! How were we loaded? From which interface and server, and what does the firmware know of the network?

use crate::above::Above;
use crate::error::Error;
use alloc::boxed::Box;
use alloc::string::ToString;
use core::fmt::Display;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wireboot_fetch::url::{Url, UrlError};
use wireboot_fetch::{ClientId, Lease, Lease6, LeaseSource, Leases};
use wireboot_net::Ipv4Cidr;
use wireboot_platform::device_path::{IpNode, NetworkPath};
use wireboot_platform::duid;
use wireboot_platform::image::LoadedSelf;
use wireboot_platform::pxe::{self, Cached};
use wireboot_platform::started;

/// Our own file's name.
const OWN_NAME: &str = "wireboot.efi";
/// The configuration that is looked for beside it.
const CONFIG_NAME: &str = "wireboot.conf";

/// What the firmware knows of the way we came.
pub struct Origin {
    /// Nodes of the path of the device that we were loaded from.
    pub path: Box<[u8]>,
    /// The MAC, VLAN, IP, DNS and URI nodes of that path.
    pub network: NetworkPath,
    /// The packets of the firmware's PXE.
    pub cached: Option<Cached>,
    /// The leases that the firmware holds.
    pub leases: Leases,
    /// As whom the firmware asks DHCPv6.
    pub client_id: Option<ClientId>,
    /// Where wireboot.efi came from; `None` from a disk.
    pub url: Option<Url>,
    /// We came by HTTP Boot.
    pub http: bool,
    above: Above,
}

impl Origin {
    /// Reads it. Best before the network interface is taken: the firmware forgets it then.
    pub fn of(image: &LoadedSelf) -> Self {
        // HTTP Boot tells by the whole path (the device's, then the URI); PXE by the device's handle.
        let path = image
            .device_path
            .clone()
            .or_else(|| image.path.clone())
            .unwrap_or_default();
        let above = Above(started::told());
        let network = [&image.path, &image.device_path]
            .into_iter()
            .flatten()
            .map(|nodes| NetworkPath::parse(nodes))
            .max_by_key(|network| (network.uri.is_some(), network.ip.is_some()))
            .unwrap_or_default();
        let uri = network.uri.as_deref().and_then(|uri| Url::parse(uri).ok());
        let cached = image.device.and_then(pxe::cached);
        let leases = cached
            .as_ref()
            .and_then(of_pxe)
            .unwrap_or_else(|| of_http_boot(&network));
        // Its PXE has told its server; HTTP Boot keeps that to itself, and chooses an association by chance.
        let client_id = cached
            .as_ref()
            .filter(|cached| cached.station.is_ipv6())
            .and_then(|cached| ClientId::of_packet(&cached.dhcp_ack))
            .or_else(|| {
                let duid = duid::of_firmware()?;
                Some(ClientId { duid, iaid: None })
            });
        // What a wireboot.efi fetched by PXE has a URI in its path, too.
        let by_path = network.uri.is_some() && cached.is_none();
        let http = above.http().unwrap_or(by_path);
        let url = uri.or_else(|| boot_files(&leases).next());
        Self {
            path,
            network,
            cached,
            leases,
            client_id,
            url,
            http,
            above,
        }
    }

    /// Whether a server names wireboot.efi again, or a program by which we came here, as one does that does not know the user class.
    pub fn leads_back(&self, url: &Url) -> bool {
        self.url.as_ref() == Some(url)
            || url.resource().rsplit(['/', '\\']).next() == Some(OWN_NAME)
            || self.above.has_started(url)
    }

    /// What leases name to be booted: the boot file of one, of those that do not lead back; else `wireboot.conf` beside wireboot.efi.
    ///
    /// # Errors
    /// [`Error::BootFile`]: why what they name cannot be fetched. Nothing else of this network is booted in its place: it was to come by
    /// `https`, perhaps.
    /// [`Error::Nothing`]: they name nothing, and wireboot.efi came from no server.
    pub(crate) fn named_by(&self, leases: &Leases) -> Result<Url, Error> {
        if let Some(url) = self.boot_file(leases).map_err(Error::BootFile)? {
            return Ok(url);
        }
        let own = self.url.clone().or_else(|| boot_files(leases).next());
        Ok(own.ok_or(Error::Nothing)?.join(CONFIG_NAME)?)
    }

    /// The first boot file that can be fetched and does not lead back; `None` where leases name none, or only those that lead back.
    fn boot_file(&self, leases: &Leases) -> Result<Option<Url>, UrlError> {
        let mut failure = None;
        for file in named(leases) {
            match file {
                Ok(url) if self.leads_back(&url) => {}
                Ok(url) => return Ok(Some(url)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// Whether the firmware holds a lease.
    pub fn has_lease(&self) -> bool {
        self.leases.v4.is_some() || self.leases.v6.is_some()
    }
}

/// The lease of the firmware's PXE, which is of one version.
fn of_pxe(cached: &Cached) -> Option<Leases> {
    let ack = &cached.dhcp_ack;
    let (proxy, reply) = (cached.proxy_offer.as_deref(), cached.pxe_reply.as_deref());
    let useless = |error: &dyn Display| log::warn!("the firmware's lease is of no use: {error}");
    match cached.station {
        IpAddr::V4(_) => Lease::from_packets(ack, proxy, reply)
            .inspect_err(|error| useless(error))
            .ok()
            .map(Leases::from),
        IpAddr::V6(station) => {
            let mut lease = Lease6::from_packets(ack, proxy, reply)
                .inspect_err(|error| useless(error))
                .ok()?;
            // Where DHCPv6 gives none, the firmware has one of a router's prefix.
            if lease.addresses.is_empty() {
                lease.addresses.push(station);
            }
            Some(Leases {
                v4: None,
                v6: Some(lease),
            })
        }
    }
}

/// The lease as HTTP Boot's device path tells it.
fn of_http_boot(network: &NetworkPath) -> Leases {
    let mut leases = Leases::default();
    let boot_file = network.uri.as_ref().map(ToString::to_string);
    let dns = network.dns.iter().copied();
    match network.ip {
        Some(IpNode {
            local: IpAddr::V4(local),
            prefix: Some(prefix),
            gateway,
            remote,
        }) => {
            leases.v4 = Some(Lease {
                router: gateway.and_then(ipv4),
                dns: dns.filter_map(ipv4).collect(),
                next_server: remote.and_then(ipv4),
                boot_file,
                ..Lease::new(Ipv4Cidr::new(local, prefix), LeaseSource::Firmware)
            });
        }
        Some(IpNode {
            local: IpAddr::V6(local),
            ..
        }) => {
            leases.v6 = Some(Lease6 {
                addresses: alloc::vec![local],
                dns: dns.filter_map(ipv6).collect(),
                boot_file,
                ..Lease6::new(LeaseSource::Firmware)
            });
        }
        _ => {}
    }
    leases
}

fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn ipv6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// Those of the firmware's leases that are of a version of IP of which there is none in `given`.
pub(crate) fn beyond(given: &Leases, firmwares: &Leases) -> Leases {
    let Leases { v4, v6 } = firmwares.clone();
    Leases {
        v4: v4.filter(|_| given.v4.is_none()),
        v6: v6.filter(|_| given.v6.is_none()),
    }
}

/// The boot files that the leases name and that can be fetched.
pub fn boot_files(leases: &Leases) -> impl Iterator<Item = Url> {
    named(leases).filter_map(Result::ok)
}

fn named(leases: &Leases) -> impl Iterator<Item = Result<Url, UrlError>> {
    let v4 = leases.v4.as_ref();
    let v6 = leases.v6.as_ref();
    let file4 = v4.and_then(|lease| {
        boot_file4(lease).or_else(|| unreadable(lease.unreadable_boot_file.as_deref()))
    });
    let file6 = v6.and_then(|lease| {
        let url = lease.boot_file.as_deref().map(Url::parse);
        url.or_else(|| unreadable(lease.unreadable_boot_file.as_deref()))
    });
    file4.into_iter().chain(file6)
}

fn unreadable(name: Option<&str>) -> Option<Result<Url, UrlError>> {
    let url = name?.to_string();
    Some(Err(UrlError::NotText { url }))
}

fn boot_file4(lease: &Lease) -> Option<Result<Url, UrlError>> {
    let file = lease.boot_file.as_deref()?;
    if file.contains("://") {
        return Some(Url::parse(file));
    }
    if let Some(server) = lease.next_server {
        return Some(Url::from_boot_file(server, file));
    }
    let name = lease.next_server_name.as_deref()?;
    Some(Url::from_boot_file_of(name, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(v4: Option<&str>, v6: Option<&str>) -> Leases {
        let address = Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, 5), 24);
        let named = |file: Option<&str>| file.map(ToString::to_string);
        Leases {
            v4: Some(Lease {
                next_server: Some(Ipv4Addr::new(10, 0, 0, 1)),
                boot_file: named(v4),
                ..Lease::new(address, LeaseSource::Firmware)
            }),
            v6: Some(Lease6 {
                boot_file: named(v6),
                ..Lease6::new(LeaseSource::Firmware)
            }),
        }
    }

    /// A wireboot.efi that came from `url`.
    fn origin(url: Option<&str>) -> Origin {
        Origin {
            path: Box::default(),
            network: NetworkPath::default(),
            cached: None,
            leases: Leases::default(),
            client_id: None,
            url: url.map(|url| Url::parse(url).unwrap()),
            http: false,
            above: Above::default(),
        }
    }

    #[test]
    fn the_firmwares_lease_goes_on_by_a_version_of_ip_that_dhcp_gave_none_of() {
        let firmwares = leases(Some("w.efi"), Some("tftp://[fd00::1]/w.efi"));
        let only4 = Leases {
            v6: None,
            ..firmwares.clone()
        };
        let only6 = Leases {
            v4: None,
            ..firmwares.clone()
        };
        let none = Leases::default();
        // The machine came by IPv4, and only a router has given an address since.
        assert_eq!(beyond(&only6, &only4), only4);
        assert_eq!(beyond(&only4, &only6), only6);
        // Nobody has answered.
        assert_eq!(beyond(&none, &only4), only4);
        // What DHCP gives goes before what the firmware has.
        assert_eq!(beyond(&only4, &only4), none);
        assert_eq!(beyond(&only6, &only6), none);
        assert_eq!(beyond(&firmwares, &only4), none);
        assert_eq!(beyond(&only6, &firmwares), only4);
    }

    #[test]
    fn what_a_server_names_is_booted_or_refused() {
        let boot_file = |leases: &Leases| origin(None).boot_file(leases);
        let found = |v4, v6| {
            let found = boot_file(&leases(v4, v6));
            found.map(|url| url.map(|url| url.as_str().to_string()))
        };
        let (https, http) = ("https://10.0.0.1/wireboot.efi", "http://[fd00::1]/w.efi");
        assert_eq!(found(None, None), Ok(None));
        let tftp = Ok(Some("tftp://10.0.0.1/w.efi".to_string()));
        assert_eq!(found(Some("w.efi"), Some(https)), tftp);
        assert_eq!(found(None, Some(http)), Ok(Some(http.to_string())));
        assert_eq!(found(Some(https), Some(http)), Ok(Some(http.to_string())));
        for (v4, v6) in [
            (Some(https), None),
            (None, Some(https)),
            (Some(https), Some(https)),
            (Some("nfs://10.0.0.1/w"), None),
            (Some("http://"), None),
            (None, Some("w.efi")),
        ] {
            assert!(found(v4, v6).is_err(), "{v4:?} {v6:?}");
        }
        let mut named = leases(Some("w x.efi"), None);
        let v4 = named.v4.as_mut().unwrap();
        v4.next_server = None;
        v4.next_server_name = Some("boot.example".to_string());
        let url = boot_file(&named).unwrap().unwrap();
        assert_eq!(url.as_str(), "tftp://boot.example/w%20x.efi");
        let mut unreadable = leases(None, None);
        let name = Some("w\u{fffd}".to_string());
        unreadable.v4.as_mut().unwrap().unreadable_boot_file = name.clone();
        let why = boot_file(&unreadable).unwrap_err().to_string();
        assert!(
            why.contains("\"w\u{fffd}\" holds what is not text"),
            "{why}"
        );
        // The other version's can be had.
        unreadable.v6.as_mut().unwrap().boot_file = Some(http.to_string());
        assert!(boot_file(&unreadable).unwrap().is_some());
        let mut unreadable = leases(None, None);
        unreadable.v6.as_mut().unwrap().unreadable_boot_file = name;
        assert!(boot_file(&unreadable).is_err());
        let why = found(Some(https), None).unwrap_err().to_string();
        assert!(why.contains("https is not supported"), "{why}");
    }

    #[test]
    fn a_boot_file_that_leads_back_names_nothing_new() {
        let own = "tftp://10.0.0.1/x64/wireboot.efi";
        let found = |own: Option<&str>, v4: Option<&str>, v6: Option<&str>| {
            let found = origin(own).named_by(&leases(v4, v6));
            let found = found.map(|url| url.as_str().to_string());
            found.map_err(|error| error.to_string())
        };
        let (back4, back6) = ("x64/wireboot.efi", "tftp://[fd00::1]/wireboot.efi");
        let (new4, new6) = ("linux.conf", "http://[fd00::1]/linux.conf");
        let refused = |url: &str| -> Result<String, String> {
            let why = "the boot file that the DHCP server names cannot be fetched";
            let help = "https is not supported; serve the file by http and give its sha256";
            Err(format!("{why}: {url}: {help}"))
        };
        let (https4, https6) = ("https://10.0.0.1/a.efi", "https://[fd00::1]/a.efi");
        let by = |v4, v6| found(Some(own), Some(v4), Some(v6));
        assert_eq!(by(https4, back6), refused(https4));
        assert_eq!(by(back4, https6), refused(https6));
        assert_eq!(by(https4, https6), refused(https4));
        assert_eq!(by(https4, new6), Ok(new6.to_string()));
        assert_eq!(by(back4, new6), Ok(new6.to_string()));
        let new = Ok("tftp://10.0.0.1/linux.conf".to_string());
        assert_eq!(by(new4, new6), new);
        assert_eq!(by(new4, back6), new);
        assert_eq!(by(new4, https6), new);
        // Beside wireboot.efi.
        let conf = Ok("tftp://10.0.0.1/x64/wireboot.conf".to_string());
        assert_eq!(by(back4, back6), conf);
        assert_eq!(found(Some(own), None, None), conf);
        // Or, from a disk, beside the one that is named.
        assert_eq!(found(None, Some(back4), Some(back6)), conf);
        let nothing = found(None, None, None).unwrap_err();
        assert!(nothing.contains("nothing to boot"), "{nothing}");
    }
}
