//! What to get: URLs of the schemes that wireboot speaks (RFC 3986), and the bare file names of network
//! boot firmware as URLs.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Write as _};
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use fluent_uri::pct_enc::EStr;
use fluent_uri::{Uri, UriRef};

/// A backslash as [`encode`] writes it.
const BACKSLASH: &[u8] = b"%5C";

/// How a file is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP/1.1 over TCP (RFC 9112).
    Http,
    /// TFTP (RFC 1350, URLs by RFC 3617).
    Tftp,
}

impl Scheme {
    /// The port used when a URL names none.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Tftp => 69,
        }
    }
}

/// The server of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name to be resolved: letters, digits, `-`, `_` and dots, at most 253 characters.
    Name(String),
    /// An IPv4 literal, or an IPv6 literal in brackets.
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// An absolute URL that wireboot can fetch.
///
/// Its text is kept as it was given (characters that a URL cannot hold, such as spaces, are
/// percent-encoded), so displaying a URL and parsing it again gives the same URL. The zone of a link-local address
/// (RFC 6874) is left out: it can only be the link of the network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: Scheme,
    host: Host,
    port: u16,
    /// HTTP: the request target. TFTP: the decoded file name.
    resource: String,
}

impl Url {
    /// Parses an absolute `http` or `tftp` URL.
    ///
    /// # Errors
    /// [`UrlError`]: not a URL, no scheme, a scheme or kind of address not supported, no host, a
    /// bad port, user names in the URL, or for TFTP an empty or unspeakable file name.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = escape(text)?;
        match Uri::parse(text.as_str()) {
            Ok(uri) => Self::from_uri(uri),
            Err(error) => match UriRef::parse(text.as_str()) {
                Ok(_) => Err(UrlError::NoScheme { url: text }),
                Err(_) => Err(invalid(&text, error)),
            },
        }
    }

    /// The URL of a boot file as DHCP gives it: a URL if it holds `://`, else the name of a TFTP file on
    /// `server`, taken literally (`%` and `\` included, a leading `/` too).
    ///
    /// # Errors
    /// [`UrlError`], as for [`Url::parse`].
    pub fn from_boot_file(server: impl Into<IpAddr>, file: &str) -> Result<Self, UrlError> {
        Self::from_boot_file_of(&Host::Address(server.into()).to_string(), file)
    }

    /// [`Self::from_boot_file`] where DHCP knows the server by its name alone.
    ///
    /// # Errors
    /// [`UrlError`], as for [`Url::parse`].
    pub fn from_boot_file_of(server: &str, file: &str) -> Result<Self, UrlError> {
        if file.contains("://") {
            return Self::parse(file);
        }
        let mut text = format!("tftp://{server}/");
        for byte in file.bytes() {
            if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                encode(byte, &mut text);
            }
        }
        Self::parse(&text)
    }

    /// Resolves `reference` (RFC 3986 section 5) against this URL: a whole URL, `//host/path`, `/path`,
    /// `path`, `../path` or `?query`.
    ///
    /// A `path` beside a TFTP file of a Windows server, `boot\x64\file`, is one in its folder. Its `..` are left to that server.
    ///
    /// # Errors
    /// [`UrlError`], as for [`Url::parse`].
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let rooted = reference.is_empty() || reference.starts_with(['/', '\\', '?', '#']);
        let reference = escape(reference)?;
        let parsed =
            UriRef::parse(reference.as_str()).map_err(|error| invalid(&reference, error))?;
        if let Some(folder) = self.backslash_folder()
            && !rooted
            && !parsed.has_scheme()
        {
            return self.join(&format!("{folder}{reference}"));
        }
        let base = Uri::parse(self.text.as_str()).map_err(|error| invalid(&self.text, error))?;
        let uri = parsed
            .resolve_against(&base.strip_fragment())
            .map_err(|error| invalid(&reference, error))?;
        Self::from_uri(uri.borrow())
    }

    /// This URL up to the last backslash of a TFTP file's name, where no slash follows.
    fn backslash_folder(&self) -> Option<&str> {
        let path = self.text.split(['?', '#']).next()?;
        let mut threes = path.as_bytes().windows(BACKSLASH.len());
        let last = threes.rposition(|three| three == BACKSLASH)?;
        let (folder, name) = path.split_at_checked(last + BACKSLASH.len())?;
        (self.scheme == Scheme::Tftp && !name.contains('/')).then_some(folder)
    }

    fn from_uri(uri: Uri<&str>) -> Result<Self, UrlError> {
        let url = || uri.as_str().to_owned();
        let scheme = match uri.scheme().as_str().to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "tftp" => Scheme::Tftp,
            "https" => return Err(UrlError::Https { url: url() }),
            other => {
                return Err(UrlError::Scheme {
                    scheme: other.to_owned(),
                    url: url(),
                });
            }
        };
        let authority = uri
            .authority()
            .ok_or_else(|| UrlError::NoHost { url: url() })?;
        if authority.has_userinfo() {
            return Err(UrlError::UserName { url: url() });
        }
        let host = parse_host(authority.host(), url)?;
        let port = match authority.port_to_u16() {
            Ok(None) => scheme.default_port(),
            Ok(Some(port)) if port != 0 => port,
            _ => return Err(UrlError::Port { url: url() }),
        };
        let resource = match scheme {
            Scheme::Http => {
                let path = match uri.path().as_str() {
                    "" => "/",
                    path => path,
                };
                match uri.query() {
                    Some(query) => format!("{path}?{query}"),
                    None => path.to_owned(),
                }
            }
            Scheme::Tftp => tftp_file(uri).ok_or_else(|| UrlError::FileName { url: url() })?,
        };
        Ok(Self {
            text: url(),
            scheme,
            host,
            port,
            resource,
        })
    }

    /// The whole URL, without the zone of a link-local address.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The protocol to fetch it by.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The server's name or address.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The server's port: the one given, else that of the scheme. Never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What to ask the server for. HTTP: the request target (RFC 9112 section 3.2.1, path and query,
    /// percent-encoded; ASCII without spaces or control characters). TFTP: the file name, percent-decoded,
    /// without the slash that ends the host, without `;mode=octet` (RFC 3617) at its end and without control characters; never
    /// empty.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// True when both are fetched the same way from the same server and port.
    pub fn same_server(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.host == other.host && self.port == other.port
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

/// Why a text is no URL for wireboot. Each names the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// RFC 3986 does not allow it.
    #[error("{url:?} is not a valid URL: {reason}; write special characters as %XX")]
    Invalid {
        /// The text that was refused.
        url: String,
        /// What is wrong and where.
        reason: String,
    },
    /// A line break, tab or other control character, or bytes that are no UTF-8, for which U+FFFD stands.
    #[error("{url:?} holds what is not text: write it in UTF-8, without control characters")]
    NotText {
        /// The text that was refused.
        url: String,
    },
    /// A relative reference where an absolute URL is needed.
    #[error("{url:?} has no scheme: write the whole URL, such as http://server/file")]
    NoScheme {
        /// The text that was refused.
        url: String,
    },
    /// `https`, which needs TLS.
    #[error("{url}: https is not supported; serve the file by http and give its sha256")]
    Https {
        /// The text that was refused.
        url: String,
    },
    /// Any other scheme.
    #[error("{url}: the scheme {scheme:?} is not supported; use http or tftp")]
    Scheme {
        /// The text that was refused.
        url: String,
        /// The scheme, in lower case.
        scheme: String,
    },
    /// No server is named, as in `http:///file`.
    #[error("{url}: names no host; write it as http://server/file")]
    NoHost {
        /// The text that was refused.
        url: String,
    },
    /// Something in brackets that is no IPv6 address, or none that one host can have.
    #[error("{url}: {host} is no IPv6 address of a host; write it as in http://[2001:db8::1]/file")]
    Ipv6 {
        /// The text that was refused.
        url: String,
        /// Its host part.
        host: String,
    },
    /// A zone for an address that is not link-local.
    #[error("{url}: only link-local addresses (fe80::...) have a zone; remove it")]
    Zone {
        /// The text that was refused.
        url: String,
    },
    /// A host that can be neither a name in the DNS nor an address.
    #[error(
        "{url}: {host:?} is no host name (letters, digits, hyphens and dots, at most 253 characters)"
    )]
    HostName {
        /// The text that was refused.
        url: String,
        /// Its host part.
        host: String,
    },
    /// A port that is 0 or above 65535.
    #[error("{url}: the port must be 1 to 65535")]
    Port {
        /// The text that was refused.
        url: String,
    },
    /// The URL names a user: `user@` or `user:password@`.
    #[error("{url}: user names and passwords in URLs are not supported")]
    UserName {
        /// The text that was refused.
        url: String,
    },
    /// A TFTP file name that is empty, not UTF-8 or has control characters.
    #[error(
        "{url}: names no TFTP file (the name must be there, be UTF-8 and hold no control characters)"
    )]
    FileName {
        /// The text that was refused.
        url: String,
    },
}

fn invalid(url: &str, reason: impl ToString) -> UrlError {
    UrlError::Invalid {
        url: url.to_owned(),
        reason: reason.to_string(),
    }
}

fn parse_host(host: &str, url: impl Fn() -> String) -> Result<Host, UrlError> {
    if host.is_empty() {
        return Err(UrlError::NoHost { url: url() });
    }
    if let Some(literal) = host.strip_prefix('[') {
        let address = literal.strip_suffix(']').and_then(|text| text.parse().ok());
        let address = address.filter(|address: &Ipv6Addr| {
            !address.is_multicast()
                && !address.is_unspecified()
                && address.to_ipv4_mapped().is_none()
        });
        let error = || UrlError::Ipv6 {
            url: url(),
            host: host.to_owned(),
        };
        return address.map(IpAddr::V6).map(Host::Address).ok_or_else(error);
    }
    if let Ok(address) = host.parse() {
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    let in_dns = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if host.len() > 253 || !host.bytes().all(in_dns) {
        return Err(UrlError::HostName {
            url: url(),
            host: host.to_owned(),
        });
    }
    Ok(Host::Name(host.to_owned()))
}

/// The transfer mode in a TFTP URL (RFC 3617), the one that wireboot has.
const MODE: &str = ";mode=octet";

/// The file name in a TFTP URL. TFTP has no queries, so a question mark is part of the name.
fn tftp_file(uri: Uri<&str>) -> Option<String> {
    let path = uri.path();
    let text = path.as_str();
    let end = text.len().saturating_sub(MODE.len());
    let path = match (text.get(end..), uri.query()) {
        (Some(mode), None) if mode.eq_ignore_ascii_case(MODE) => {
            EStr::new(text.get(..end).unwrap_or_default())?
        }
        _ => path,
    };
    let name = path.decode().to_string().ok()?;
    let mut file = name.strip_prefix('/').unwrap_or(&name).to_owned();
    if let Some(query) = uri.query() {
        file.push('?');
        file.push_str(&query.decode().to_string().ok()?);
    }
    (!file.is_empty() && !file.chars().any(char::is_control)).then_some(file)
}

/// Percent-encodes what people and servers write into URLs though RFC 3986 has no place for it: spaces,
/// backslashes, letters beyond ASCII, brackets outside the host. What is encoded already stays. A zone goes.
fn escape(text: &str) -> Result<String, UrlError> {
    let host = host_range(text);
    let zone = zone_range(text, &host)?;
    let mut escaped = String::with_capacity(text.len());
    for (index, character) in text.char_indices() {
        match character {
            _ if character.is_control() => {
                return Err(UrlError::NotText {
                    url: text.to_owned(),
                });
            }
            _ if zone.contains(&index) => {}
            '[' | ']' if host.contains(&index) => escaped.push(character),
            '!' | '#'..=';' | '=' | '?'..='Z' | '_' | 'a'..='z' | '~' => escaped.push(character),
            _ => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    encode(byte, &mut escaped);
                }
            }
        }
    }
    Ok(escaped)
}

/// Where the authority is in a URL or reference: between `//` and the next `/`, `?` or `#`.
fn host_range(text: &str) -> core::ops::Range<usize> {
    let delimiter = |c| matches!(c, '/' | '?' | '#');
    let start = match text.find(delimiter) {
        Some(slash) if text.get(slash..slash + 2) == Some("//") => slash + 2,
        _ => return 0..0,
    };
    let rest = text.get(start..).unwrap_or_default();
    start..start + rest.find(delimiter).unwrap_or(rest.len())
}

/// Where the zone of a link-local address is, with its `%25` or `%`.
fn zone_range(
    text: &str,
    host: &core::ops::Range<usize>,
) -> Result<core::ops::Range<usize>, UrlError> {
    let literal = text.get(host.clone()).and_then(|host| {
        let (before, literal) = host.split_once('[')?;
        let (literal, _) = literal.split_once(']')?;
        let (address, zone) = literal.split_once('%')?;
        Some((before.len() + 1 + address.len(), address, zone))
    });
    let Some((at, address, zone)) = literal else {
        return Ok(0..0);
    };
    let link_local = address
        .parse()
        .is_ok_and(|address: Ipv6Addr| address.is_unicast_link_local());
    let named = !zone.strip_prefix("25").unwrap_or(zone).is_empty();
    if !link_local || !named {
        return Err(UrlError::Zone {
            url: text.to_owned(),
        });
    }
    let start = host.start + at;
    Ok(start..start + 1 + zone.len())
}

fn encode(byte: u8, text: &mut String) {
    let _infallible = write!(text, "%{byte:02X}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

    fn http(text: &str) -> Url {
        let url = Url::parse(text).unwrap();
        assert_eq!(url.scheme(), Scheme::Http);
        url
    }

    #[test]
    fn parts_of_an_http_url() {
        let url = http("HTTP://Boot-1.example.:8080/a%20b/c?x=1&y=%2f#part");
        assert_eq!(url.host(), &Host::Name("Boot-1.example.".into()));
        assert_eq!(url.port(), 8080);
        assert_eq!(url.resource(), "/a%20b/c?x=1&y=%2f");
        assert_eq!(
            url.to_string(),
            "HTTP://Boot-1.example.:8080/a%20b/c?x=1&y=%2f#part"
        );
    }

    #[test]
    fn an_address_and_the_default_port() {
        let url = http("http://10.0.2.2");
        assert_eq!(url.host(), &Host::Address(SERVER.into()));
        assert_eq!((url.port(), url.resource()), (80, "/"));
        assert_eq!(http("http://h?q").resource(), "/?q");
        assert_eq!(http("http://h:/x").port(), 80);
    }

    #[test]
    fn what_a_url_cannot_hold_is_encoded() {
        assert_eq!(
            http("http://h/a b\\ü[1]|\"<>^`{}").resource(),
            "/a%20b%5C%C3%BC%5B1%5D%7C%22%3C%3E%5E%60%7B%7D"
        );
        // Brackets are the host's alone, however long that is.
        assert_eq!(http("http://boot.example/[1]").resource(), "/%5B1%5D");
        let tftp = Url::parse("tftp://h/boot\\x64 ü").unwrap();
        assert_eq!(tftp.resource(), "boot\\x64 ü");
    }

    #[test]
    fn tftp_names_are_decoded_and_keep_a_leading_slash_of_their_own() {
        let url = Url::parse("tftp://10.0.2.2/a/b%20c%25.efi?d").unwrap();
        assert_eq!((url.port(), url.resource()), (69, "a/b c%.efi?d"));
        assert_eq!(
            Url::parse("tftp://h:1069//abs/x").unwrap().resource(),
            "/abs/x"
        );
    }

    #[test]
    fn boot_files_of_firmware() {
        let literal = |file: &str| {
            let url = Url::from_boot_file(SERVER, file).unwrap();
            assert_eq!(url.scheme(), Scheme::Tftp);
            assert_eq!(url.host(), &Host::Address(SERVER.into()));
            assert_eq!(url.resource(), file);
            assert_eq!(Url::parse(url.as_str()).unwrap(), url);
        };
        literal("wireboot.efi");
        literal("/pxe/wireboot.efi");
        literal("Boot\\x64\\100%.efi?#[1]:2");
        literal("c:\\file");
        assert_eq!(
            Url::from_boot_file(SERVER, "http://h/x").unwrap().as_str(),
            "http://h/x"
        );
        assert!(Url::from_boot_file(SERVER, "").is_err());
        let named = Url::from_boot_file_of("boot.example", "a b\\x%20.efi").unwrap();
        assert_eq!(named.as_str(), "tftp://boot.example/a%20b%5Cx%2520.efi");
        assert!(Url::from_boot_file_of("no name", "x").is_err());
        assert!(matches!(
            Url::from_boot_file(SERVER, "https://h/x"),
            Err(UrlError::Https { .. })
        ));
    }

    #[test]
    fn refused_with_a_reason() {
        let error = |text: &str| Url::parse(text).unwrap_err();
        assert!(matches!(error("https://h/x"), UrlError::Https { .. }));
        assert!(matches!(error("ftp://h/x"), UrlError::Scheme { .. }));
        assert!(matches!(error("file.efi"), UrlError::NoScheme { .. }));
        assert!(matches!(error("http:x"), UrlError::NoHost { .. }));
        assert!(matches!(error("http:///x"), UrlError::NoHost { .. }));
        for host in ["::", "ff02::1", "::ffff:10.0.0.1", "v1.x", "10.0.0.1", ""] {
            let text = format!("http://[{host}]/x");
            assert!(
                matches!(
                    error(&text),
                    UrlError::Ipv6 { .. } | UrlError::Invalid { .. }
                ),
                "{host}"
            );
        }
        for host in ["2001:db8::1%25eth0", "fe80::1%25", "fe80::1%", "x%25eth0"] {
            let text = format!("http://[{host}]/x");
            assert!(matches!(error(&text), UrlError::Zone { .. }), "{host}");
        }
        assert!(matches!(error("http://a%20b/x"), UrlError::HostName { .. }));
        for (len, fits) in [(253, true), (254, false), (300, false)] {
            let url = Url::parse(&format!("http://{}/x", "a".repeat(len)));
            assert_eq!(url.is_ok(), fits, "{len} characters");
        }
        assert!(matches!(error("http://h:0/x"), UrlError::Port { .. }));
        assert!(matches!(error("http://h:65536/"), UrlError::Port { .. }));
        assert!(matches!(error("http://u:p@h/"), UrlError::UserName { .. }));
        assert!(matches!(error("http://h/100%"), UrlError::Invalid { .. }));
        assert!(matches!(
            error("http://h/a\r\nX: y"),
            UrlError::NotText { .. }
        ));
        assert!(matches!(error("tftp://h/a%00b"), UrlError::FileName { .. }));
        assert!(matches!(error("tftp://h/"), UrlError::FileName { .. }));
        assert!(matches!(error("tftp://h/%FF"), UrlError::FileName { .. }));
        assert!(error("ftp://h/x").to_string().contains("ftp://h/x"));
    }

    #[test]
    fn addresses_of_both_versions() {
        let address = |text: &str| match Url::parse(text).unwrap().host() {
            Host::Address(address) => *address,
            Host::Name(name) => panic!("{name}"),
        };
        let url = http("http://[2001:DB8::1]:8080/x");
        assert_eq!((url.port(), url.resource()), (8080, "/x"));
        assert_eq!(url.host().to_string(), "[2001:db8::1]");
        assert_eq!(url.as_str(), "http://[2001:DB8::1]:8080/x");
        assert!(url.same_server(&http("http://[2001:db8:0::1]:8080/y")));
        let link_local: IpAddr = "fe80::1".parse().unwrap();
        for text in [
            "tftp://[fe80::1%25eth0]/x",
            "tftp://[fe80::1%eth0]/x",
            "tftp://[fe80::1%253]/x",
            "tftp://[fe80::1]/x",
        ] {
            assert_eq!(address(text), link_local);
            // There is one link.
            assert_eq!(Url::parse(text).unwrap().as_str(), "tftp://[fe80::1]/x");
        }
        let base = Url::parse("tftp://[fe80::1%25eth0]:1069/a/b").unwrap();
        assert_eq!(
            base.join("c").unwrap().as_str(),
            "tftp://[fe80::1]:1069/a/c"
        );
        assert_eq!(
            base.join("//[fe80::2%25eth0]/c").unwrap().as_str(),
            "tftp://[fe80::2]/c"
        );
        // A percent sign elsewhere is nobody's zone.
        assert_eq!(http("http://[::2]/a%25b").resource(), "/a%25b");
        let file = Url::from_boot_file(link_local, "x").unwrap();
        assert_eq!(file.as_str(), "tftp://[fe80::1]/x");
    }

    #[test]
    fn the_transfer_mode_is_no_part_of_the_name() {
        let name = |text: &str| Url::parse(text).unwrap().resource().to_owned();
        assert_eq!(
            name("tftp://[2001:db8::1]/boot/x.efi;mode=octet"),
            "boot/x.efi"
        );
        assert_eq!(name("tftp://h/x;MODE=Octet"), "x");
        assert_eq!(name("tftp://h/x;mode=octet?"), "x;mode=octet?");
        assert_eq!(name("tftp://h/x;mode=netascii"), "x;mode=netascii");
        assert_eq!(name("tftp://h/x%3Bmode=octet"), "x;mode=octet");
        assert!(Url::parse("tftp://h/;mode=octet").is_err());
    }

    #[test]
    fn references_resolve_as_rfc_3986_says() {
        let base = http("http://h:8080/conf/wireboot.conf?a#b");
        let join = |reference: &str| base.join(reference).unwrap().to_string();
        assert_eq!(join("vmlinuz"), "http://h:8080/conf/vmlinuz");
        assert_eq!(join("./a/../initrd"), "http://h:8080/conf/initrd");
        assert_eq!(join("../initrd"), "http://h:8080/initrd");
        assert_eq!(join("../../../initrd"), "http://h:8080/initrd");
        assert_eq!(join("/k?x"), "http://h:8080/k?x");
        assert_eq!(join("/[1]"), "http://h:8080/%5B1%5D");
        assert_eq!(join("//other/k"), "http://other/k");
        assert_eq!(join("?x"), "http://h:8080/conf/wireboot.conf?x");
        assert_eq!(join("tftp://t/k"), "tftp://t/k");
        assert!(matches!(
            base.join("https://h/k"),
            Err(UrlError::Https { .. })
        ));
        let tftp = Url::from_boot_file(SERVER, "pxe/wireboot.conf").unwrap();
        assert_eq!(tftp.join("vm linuz").unwrap().resource(), "pxe/vm linuz");
        assert_eq!(tftp.join("/vmlinuz").unwrap().resource(), "vmlinuz");
    }

    #[test]
    fn what_is_beside_a_windows_servers_file_is_in_its_folder() {
        let file = Url::from_boot_file(SERVER, "boot\\x64\\wireboot.efi").unwrap();
        let config = file.join("wireboot.conf").unwrap();
        assert_eq!(config.resource(), "boot\\x64\\wireboot.conf");
        assert_eq!(config.host(), file.host());
        let name = |reference: &str| config.join(reference).unwrap().resource().to_owned();
        assert_eq!(name("vm linuz"), "boot\\x64\\vm linuz");
        assert_eq!(name("images\\initrd"), "boot\\x64\\images\\initrd");
        assert_eq!(name("images/./initrd"), "boot\\x64\\images/initrd");
        assert_eq!(
            config
                .join("images/a")
                .unwrap()
                .join("b")
                .unwrap()
                .resource(),
            "boot\\x64\\images/b"
        );
        // From the root on, and elsewhere.
        assert_eq!(name("/vmlinuz"), "vmlinuz");
        assert_eq!(name("\\vmlinuz"), "\\vmlinuz");
        assert_eq!(name("tftp://h/vmlinuz"), "vmlinuz");
        assert_eq!(name("http://h/vmlinuz"), "/vmlinuz");
        let join = |base: &str| Url::parse(base).unwrap().join("b").unwrap().to_string();
        assert_eq!(join("tftp://h:1/x\\y/a"), "tftp://h:1/x%5Cy/b");
        assert_eq!(join("tftp://h/x/y\\a?c\\d"), "tftp://h/x/y%5Cb");
        assert_eq!(join("tftp://h/a?c\\d"), "tftp://h/b");
        assert_eq!(join("tftp://h/a#c\\d"), "tftp://h/b");
        // In HTTP it is a letter as any other (RFC 3986 section 3.3).
        assert_eq!(join("http://h/x\\a"), "http://h/b");
    }

    proptest! {
        #[test]
        fn any_text_is_a_url_or_an_error(text in "\\PC*", reference in "\\PC*") {
            crate::fuzzing::check_url(&text, &reference);
        }

        #[test]
        fn url_like_texts(
            text in "(http|tftp)://([a-z0-9.:\\[\\]-]{0,12}|\\[fe80::[0-9a-f]{0,4}(%(25)?[a-z0-9%]{0,4})?\\])/[ -~]{0,20}(;mode=octet)?",
            reference in "[ -~]{0,20}|//\\[fe80::1%25[ -~]{0,6}\\]/x",
        ) {
            crate::fuzzing::check_url(&text, &reference);
        }

        #[test]
        fn boot_files_are_literal(file in "[^\\p{C}]{1,40}") {
            prop_assume!(!file.contains("://"));
            let url = Url::from_boot_file(SERVER, &file).unwrap();
            prop_assert_eq!(url.resource(), file.as_str());
        }
    }
}
