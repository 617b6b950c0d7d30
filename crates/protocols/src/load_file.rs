//! EFI_LOAD_FILE_PROTOCOL (UEFI 2.10, section 13.1): which file a call is for.

use crate::Refusal;
use wireboot_fetch::url::{Url, UrlError};

/// Type of messaging nodes of a device path (UEFI 2.10, section 10.3.4).
const MESSAGING: u8 = 3;
/// Subtype of the node with a URI.
const URI: u8 = 24;
/// Subtype of the node with name servers.
const DNS: u8 = 31;
/// Type and subtype of the node that ends a path.
const END: [u8; 2] = [0x7f, 0xff];
/// Type, subtype and length.
const HEADER: usize = 4;

/// The file that a call wants: that of the URI node in `path`, or without one, `own`. `path` is what the call says beyond the path of the handle.
///
/// # Errors
/// As the firmware's own network drivers refuse: `Unsupported` without `boot_policy`, `InvalidParameter` for nodes that lead to no file of the
/// network. `Unsupported`, too, for a URL that cannot be fetched.
pub fn wanted(mut path: &[u8], boot_policy: bool, own: &Url) -> Result<Url, Refusal> {
    if !boot_policy {
        return Err(Refusal::Unsupported);
    }
    let mut uri: &[u8] = &[];
    loop {
        let [kind, subtype, low, high, ..] = *path else {
            return Err(Refusal::InvalidParameter);
        };
        let len = usize::from(u16::from_le_bytes([low, high]));
        let (node, rest) = path
            .split_at_checked(len)
            .ok_or(Refusal::InvalidParameter)?;
        let data = node.get(HEADER..).ok_or(Refusal::InvalidParameter)?;
        match [kind, subtype] {
            END => break,
            [MESSAGING, DNS] => {}
            [MESSAGING, URI] => uri = data,
            _ => return Err(Refusal::InvalidParameter),
        }
        path = rest;
    }
    let text = core::str::from_utf8(uri).map_err(|_| Refusal::InvalidParameter)?;
    match text.trim_end_matches('\0') {
        "" => Ok(own.clone()),
        text => Url::parse(text).map_err(|error| match error {
            UrlError::Https { .. } | UrlError::Scheme { .. } => Refusal::Unsupported,
            _ => Refusal::InvalidParameter,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::string::String;

    const END_NODE: &[u8] = &[0x7f, 0xff, 4, 0];

    fn node(subtype: u8, data: &[u8]) -> Vec<u8> {
        let len = u16::try_from(data.len() + 4).unwrap();
        [&[3, subtype][..], &len.to_le_bytes(), data].concat()
    }

    fn path(nodes: &[Vec<u8>]) -> Vec<u8> {
        [&nodes.concat(), END_NODE].concat()
    }

    fn asked(path: &[u8], boot_policy: bool) -> Result<String, Refusal> {
        let own = Url::parse("http://10.0.0.1/own.efi").unwrap();
        wanted(path, boot_policy, &own).map(|url| url.as_str().into())
    }

    fn uri(text: &str) -> Vec<u8> {
        node(URI, text.as_bytes())
    }

    #[test]
    fn the_end_is_the_own_file_and_a_uri_another() {
        let own = Ok("http://10.0.0.1/own.efi".into());
        assert_eq!(asked(END_NODE, true), own);
        // As the firmware has it on its handles: to be named by DHCP.
        assert_eq!(asked(&path(&[uri("")]), true), own);
        let dns = node(DNS, &[0; 17]);
        assert_eq!(asked(&path(core::slice::from_ref(&dns)), true), own);
        for other in ["http://10.0.0.2/a.efi", "tftp://10.0.0.2/b.efi"] {
            assert_eq!(asked(&path(&[uri(other)]), true), Ok(other.into()));
            let behind = path(&[dns.clone(), uri(other)]);
            assert_eq!(asked(&behind, true), Ok(other.into()));
        }
        let terminated = path(&[uri("http://10.0.0.2/a.efi\0")]);
        assert_eq!(asked(&terminated, true), Ok("http://10.0.0.2/a.efi".into()));
    }

    #[test]
    fn only_the_boot_managers_way_is_there() {
        for path in [END_NODE, &path(&[uri("http://10.0.0.2/a")]), &[]] {
            assert_eq!(asked(path, false), Err(Refusal::Unsupported));
        }
    }

    #[test]
    fn what_is_no_file_of_the_network_is_refused() {
        // A file of a medium, an IPv4 node, and text that is no URL.
        let medium = [&[4, 4, 6, 0, b'a', 0][..], END_NODE].concat();
        let ipv4 = path(&[node(12, &[0; 23]), uri("http://10.0.0.2/a")]);
        for path in [
            medium,
            ipv4,
            path(&[uri("a.efi")]),
            path(&[node(URI, &[0xff])]),
        ] {
            assert_eq!(asked(&path, true), Err(Refusal::InvalidParameter));
        }
        for scheme in ["https", "ftp"] {
            let path = path(&[uri(&alloc::format!("{scheme}://10.0.0.2/a"))]);
            assert_eq!(asked(&path, true), Err(Refusal::Unsupported));
        }
    }

    #[test]
    fn paths_that_are_cut_are_refused() {
        let whole = path(&[uri("http://10.0.0.2/a.efi")]);
        for len in 0..whole.len() {
            let refused = asked(&whole[..len], true);
            assert_eq!(refused, Err(Refusal::InvalidParameter), "{len}");
        }
        // A node shorter than its header.
        for len in 0..4 {
            let short = [&[3, URI, len, 0][..], END_NODE].concat();
            assert_eq!(asked(&short, true), Err(Refusal::InvalidParameter));
        }
    }
}
