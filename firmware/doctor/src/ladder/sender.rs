//! Who sends, and with which address of ours he is reached.

use crate::error::Error;
use core::net::IpAddr;
use wireboot_boot::fetching::Fetcher;
use wireboot_boot::origin::{Origin, boot_files};
use wireboot_boot::source;
use wireboot_fetch::Leases;
use wireboot_fetch::url::{Host, Url};

/// Takes an address, and finds the sender: who is `named`, else the server that this program came from, else the one that boots machines. Returns
/// our address and the sender's.
///
/// # Errors
/// When there is no address, or nobody says where the sender is.
pub(crate) fn find(
    fetcher: &mut Fetcher,
    origin: &Origin,
    named: Option<IpAddr>,
) -> Result<(IpAddr, IpAddr), Error> {
    let named = named.or_else(|| origin.url.as_ref().and_then(address_of));
    source::take_lease_for(fetcher, origin, named)?;
    let leases = fetcher.leases();
    let next_server = || Some(leases.v4.as_ref()?.next_server?.into());
    // DHCPv6 names a server in the boot file's URL alone.
    let in_url = || boot_files(leases).find_map(|url| address_of(&url));
    let sender = named.or_else(next_server).or_else(in_url);
    let sender = sender.ok_or(Error::NoServer)?;
    Ok((own_address(leases, sender)?, sender))
}

fn address_of(url: &Url) -> Option<IpAddr> {
    match url.host() {
        Host::Address(address) => Some(*address),
        Host::Name(_) => None,
    }
}

/// Our address of the version of IP that `server` has.
pub(crate) fn own_address(leases: &Leases, server: IpAddr) -> Result<IpAddr, Error> {
    let address = match server {
        IpAddr::V4(_) => leases
            .v4
            .as_ref()
            .map(|lease| lease.address.address().into()),
        IpAddr::V6(_) => {
            let lease = leases.v6.as_ref();
            lease.and_then(|lease| lease.addresses.first().copied().map(IpAddr::V6))
        }
    };
    address.ok_or(Error::NoAddress(server))
}
