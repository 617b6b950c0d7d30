//! The server that doctor.efi came from, or that the options name: it is sent the report.

use crate::error::Error;
use crate::vlan;
use alloc::format;
use wireboot_boot::origin::Origin;
use wireboot_boot::{connect, source};
use wireboot_fetch::url::{Scheme, Url, UrlError};
use wireboot_platform::Clock;

/// How long the server may take, in microseconds.
const LONGEST: u64 = 60_000_000;

/// Where a server takes reports.
const PATH: &str = "/report";

/// Where a report goes: to the server that the options `name`, a URL or an address, else to the one that this program came from.
///
/// # Errors
/// When what they name is none.
pub(super) fn address(name: Option<&str>, origin: Option<&Url>) -> Result<Option<Url>, UrlError> {
    let server = match name {
        Some(name) if name.contains("://") => Some(Url::parse(name)?),
        Some(name) => Some(Url::parse(&format!("http://{name}/"))?),
        None => None,
    };
    let Some(server) = server.as_ref().or(origin) else {
        return Ok(None);
    };
    let url = match server.scheme() {
        // Somebody may have put it elsewhere.
        Scheme::Http if name.is_some() && server.resource() != "/" => server.clone(),
        Scheme::Http => server.join(PATH)?,
        // Its HTTP server has the port that such servers have.
        Scheme::Tftp => Url::parse(&format!("http://{}{PATH}", server.host()))?,
    };
    Ok(Some(url))
}

/// Sends a report, over wireboot's network.
///
/// # Errors
/// When there is no network, or the server does not take the report.
pub(super) fn send(url: &Url, report: &str, origin: &Origin, clock: Clock) -> Result<(), Error> {
    let settings = vlan::settings(origin);
    let (mut fetcher, ()) = connect(origin, &settings, clock, |fetcher, timeouts| {
        source::take_lease(fetcher, origin, timeouts.dhcp)
    })?;
    match fetcher.post(url, "application/json", report.as_bytes(), LONGEST)? {
        None => Err(Error::NoAnswer(format!("{url}"))),
        Some(200..300) => Ok(()),
        Some(status) => Err(Error::NotTaken {
            url: format!("{url}"),
            status,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_report_goes_where_the_program_came_from() {
        let to = |name: Option<&str>, origin: Option<&str>| {
            let origin = origin.map(|url| Url::parse(url).unwrap());
            let url = address(name, origin.as_ref()).unwrap();
            url.map(|url| url.to_string())
        };
        assert_eq!(to(None, None), None);
        for (origin, expected) in [
            ("tftp://10.0.0.1/doctor.efi", "http://10.0.0.1/report"),
            ("tftp://[fd00::1]/a/doctor.efi", "http://[fd00::1]/report"),
            (
                "http://10.0.0.1:8080/a/doctor.efi?x",
                "http://10.0.0.1:8080/report",
            ),
        ] {
            assert_eq!(to(None, Some(origin)).as_deref(), Some(expected));
            let named = to(Some("10.0.0.9"), Some(origin));
            assert_eq!(named.as_deref(), Some("http://10.0.0.9/report"));
        }
        for (name, expected) in [
            ("http://boot.lab", "http://boot.lab/report"),
            ("http://boot.lab:81/", "http://boot.lab:81/report"),
            (
                "http://boot.lab/take.php?a=b",
                "http://boot.lab/take.php?a=b",
            ),
            ("boot.lab:81", "http://boot.lab:81/report"),
            ("[fd00::1]", "http://[fd00::1]/report"),
        ] {
            assert_eq!(to(Some(name), None).as_deref(), Some(expected));
        }
        assert!(address(Some("https://boot.lab/"), None).is_err());
    }
}
