//! What to boot: load options, else an embedded configuration, else what the DHCP server gives to user class
//! `wireboot`, else `wireboot.conf` beside wireboot.efi.

use crate::error::Error;
use crate::fetching::{Fetcher, Wanted};
use crate::file_url::absolute;
use crate::options;
use crate::origin::{self, Origin};
use crate::settings::EMBEDDED;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use wireboot_fetch::dhcp::{DhcpRequest, VendorClass};
use wireboot_fetch::url::{Host, Url};
use wireboot_fetch::{File, Leases};
use wireboot_net::Duration;
use wireboot_platform::image::LoadedSelf;
use wireboot_platform::smbios;
use wireboot_wire::bootconf::{self, BootConfig};

/// The user class that we give (option 77).
const USER_CLASS: &str = "wireboot";

/// How long a DHCP server may take to say what to boot when the firmware has got an address already.
const PATIENCE_WITH_LEASE: Duration = Duration::from_secs(4);

/// What shall be booted, as far as known before anything is fetched.
#[derive(Clone)]
pub enum Choice {
    /// A configuration or an EFI program.
    Url {
        /// Absolute, as the load options give it.
        url: Url,
        /// For what is started.
        arguments: String,
    },
    /// The same as DHCP names it by one version of IP. By the other it may name another.
    Named {
        /// A boot file, or `wireboot.conf` beside wireboot.efi.
        url: Url,
    },
    /// A configuration that is here already.
    Config {
        /// Parsed, with at least one entry.
        config: BootConfig,
        /// What its relative URLs are relative to.
        base: Option<Url>,
        /// For what is started.
        arguments: String,
    },
}

impl Choice {
    /// The file by which it is seen whether a network leads to what shall be booted: that which is named, or the program of the default
    /// entry.
    pub(crate) fn first_file(
        &self,
        fetcher: &mut Fetcher,
        origin: &Origin,
    ) -> Result<Option<File>, Error> {
        let mut files = match self {
            Self::Url { url, .. } => fetcher.get(&[Wanted::plain(url)])?,
            Self::Named { url } => {
                let other = |leases: &Leases| {
                    origin::boot_files(leases)
                        .find(|other| *other != *url && !origin.leads_back(other))
                };
                return fetcher.get_either(url, other).map(Some);
            }
            Self::Config { config, base, .. } => {
                let entry = config.default_entry().ok_or(Error::Nothing)?;
                let program = entry.program.file();
                fetcher.get(&[Wanted {
                    url: &absolute(base.as_ref(), program)?,
                    sha256: program.sha256,
                    is_initrd: false,
                }])?
            }
        };
        Ok(files.pop())
    }

    /// The servers that it names by their addresses.
    fn servers(&self) -> Vec<IpAddr> {
        let address = |url: Url| match url.host() {
            Host::Address(address) => Some(*address),
            Host::Name(_) => None,
        };
        match self {
            Self::Url { url, .. } | Self::Named { url } => {
                address(url.clone()).into_iter().collect()
            }
            Self::Config { config, base, .. } => {
                let files = config.entries.iter().flat_map(bootconf::Entry::files);
                let urls = files.filter_map(|file| absolute(base.as_ref(), file).ok());
                urls.filter_map(address).collect()
            }
        }
    }
}

/// The configuration in our own image, if it has one.
pub fn embedded(image: &LoadedSelf) -> Result<Option<BootConfig>, Error> {
    let Some(text) = &image.section else {
        return Ok(None);
    };
    let config = bootconf::parse_embedded(text).map_err(|errors| Error::Config {
        name: EMBEDDED.to_string(),
        errors,
    })?;
    warn(EMBEDDED, &config);
    Ok(Some(config))
}

/// Logs what is odd in a configuration, but no error.
pub fn warn(name: &str, config: &BootConfig) {
    for warning in &config.warnings {
        log::warn!("{name}: {warning}");
    }
}

/// What load options or embedded configuration say. One without entries says nothing.
pub fn given(
    image: &LoadedSelf,
    embedded: Option<BootConfig>,
    origin: &Origin,
) -> Result<Option<Choice>, Error> {
    if let Some((url, arguments)) = options::url(&image.options) {
        return Ok(Some(Choice::Url {
            url: Url::parse(url)?,
            arguments: arguments.to_string(),
        }));
    }
    let embedded = embedded.filter(|config| !config.entries.is_empty());
    let embedded = embedded.map(|config| {
        log::info!("using {EMBEDDED}");
        Choice::Config {
            config,
            base: origin.url.clone(),
            arguments: String::new(),
        }
    });
    Ok(embedded)
}

/// Addresses without a question about boot files, to get what was chosen: the firmware's, and by DHCP where those do not lead to its
/// servers, at once or when a server's name has no address by them.
pub(crate) fn take_lease_to(
    fetcher: &mut Fetcher,
    origin: &Origin,
    choice: &Choice,
    patience: Option<Duration>,
) -> Result<(), Error> {
    let is_led_to = |server: &IpAddr| origin.leases.have_version_of(*server);
    if origin.has_lease() && choice.servers().iter().all(is_led_to) {
        fetcher.ask_for_names(request(origin, false, Some(PATIENCE_WITH_LEASE)));
        return adopt(fetcher, origin.leases.clone());
    }
    ask_beyond(fetcher, origin, false, patience).map(drop)
}

/// An address without a question about boot files: the firmware's, else by DHCP.
pub fn take_lease(
    fetcher: &mut Fetcher,
    origin: &Origin,
    patience: Option<Duration>,
) -> Result<(), Error> {
    if origin.has_lease() {
        adopt(fetcher, origin.leases.clone())
    } else {
        ask(fetcher, origin, false, patience).map(drop)
    }
}

/// An address of `server`'s version of IP, or of IPv4 where no server is known yet, without a question about boot files: the firmware's,
/// else by DHCP. Where none of that version comes, there is perhaps one of the other.
pub fn take_lease_for(
    fetcher: &mut Fetcher,
    origin: &Origin,
    server: Option<IpAddr>,
) -> Result<(), Error> {
    let server = server.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    if origin.leases.have_version_of(server) {
        return adopt(fetcher, origin.leases.clone());
    }
    let patience = patience_with(fetcher, origin, None);
    ask(fetcher, origin, false, patience)?;
    fetcher.wait_for_lease(server)
}

/// What DHCP answers to a question for a boot file, without one where none is named.
pub fn boot_leases(fetcher: &mut Fetcher, origin: &Origin) -> Result<Leases, Error> {
    let patience = patience_with(fetcher, origin, None);
    ask(fetcher, origin, true, patience)
}

/// How long DHCP is waited for that only says what to boot where the firmware has a lease. On many cards, our start of it takes the link down,
/// and the switch's port begins anew with its spanning tree: nobody has heard us then. Of DHCP servers that have answered the firmware's PXE,
/// that is the reason; there may be none where the firmware came by HTTP.
fn patience_with(
    fetcher: &mut Fetcher,
    origin: &Origin,
    without: Option<Duration>,
) -> Option<Duration> {
    let was_heard = !fetcher.network().link_was_down() || origin.cached.is_none();
    if origin.has_lease() && was_heard {
        Some(PATIENCE_WITH_LEASE)
    } else {
        without
    }
}

fn adopt(fetcher: &mut Fetcher, leases: Leases) -> Result<(), Error> {
    report(&leases, "the firmware's lease");
    fetcher.configure(leases)
}

/// All addresses, for the account of the boot.
pub(crate) fn addresses(leases: &Leases) -> String {
    let v4 = leases.v4.iter().map(|lease| lease.address.to_string());
    let v6 = leases.v6.iter().flat_map(|lease| &lease.addresses);
    let all: Vec<String> = v4.chain(v6.map(ToString::to_string)).collect();
    all.join(", ")
}

fn report(leases: &Leases, source: &str) {
    if let Some(lease) = &leases.v4 {
        log::info!("address {} ({source})", lease.address);
    }
    for address in leases.v6.iter().flat_map(|lease| &lease.addresses) {
        log::info!("address {address} ({source})");
    }
}

fn request(origin: &Origin, want_boot_file: bool, patience: Option<Duration>) -> DhcpRequest {
    let (architecture, vendor_class) = if origin.http {
        (16, VendorClass::Http)
    } else {
        (7, VendorClass::Pxe)
    };
    let proxied = origin.cached.as_ref().is_some_and(|cached| {
        // Where no boot server has replied, iPXE shows the acknowledgement a second time.
        let reply = cached.pxe_reply.as_ref();
        let replied = reply.is_some_and(|reply| *reply != cached.dhcp_ack);
        cached.station.is_ipv4() && (replied || cached.proxy_offer.is_some())
    });
    DhcpRequest {
        architecture,
        uuid: smbios::system_uuid(),
        client_id: origin.client_id.clone(),
        vendor_class,
        user_class: USER_CLASS.to_string(),
        requested_address: origin
            .leases
            .v4
            .as_ref()
            .map(|lease| lease.address.address()),
        want_boot_file,
        proxied,
        patience,
    }
}

fn ask(
    fetcher: &mut Fetcher,
    origin: &Origin,
    want_boot_file: bool,
    patience: Option<Duration>,
) -> Result<Leases, Error> {
    let leases = fetcher.dhcp(request(origin, want_boot_file, patience))?;
    report(&leases, "DHCP");
    Ok(leases)
}

/// What DHCP gives. By a version of IP of which it gives no lease now, the firmware's goes on.
fn ask_beyond(
    fetcher: &mut Fetcher,
    origin: &Origin,
    want_boot_file: bool,
    patience: Option<Duration>,
) -> Result<Leases, Error> {
    let leases = match ask(fetcher, origin, want_boot_file, patience) {
        Err(Error::Fetch(error)) if origin.has_lease() => {
            log::warn!("{error}");
            Leases::default()
        }
        result => result?,
    };
    adopt(fetcher, origin::beyond(&leases, &origin.leases))?;
    Ok(leases)
}

/// Asks DHCP what to boot, and looks beside wireboot.efi when the answer is of no help.
pub fn by_dhcp(
    fetcher: &mut Fetcher,
    origin: &Origin,
    patience: Option<Duration>,
) -> Result<Choice, Error> {
    let patience = patience_with(fetcher, origin, patience);
    let leases = ask_beyond(fetcher, origin, true, patience)?;
    let url = origin.named_by(&leases)?;
    Ok(Choice::Named { url })
}
