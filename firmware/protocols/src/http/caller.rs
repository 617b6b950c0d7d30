//! What callers hand over: configurations and requests.

use crate::caller::{array, structure};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use uefi_raw::protocol::network::http::{HttpConfigData, HttpToken, HttpVersion};
use uefi_raw::{Char8, Char16, Status};
use wireboot_protocols::http::{Asked, Config};

/// Longest URL, in characters, and longest name or value of a header line.
const LONGEST: usize = 0x4000;
/// Header lines of a request, and bytes of its body, at most.
const MOST_HEADERS: usize = 128;
const MOST_BODY: usize = 16 << 20;

/// EFI_HTTP_CONFIG_DATA; `None` where it or its access point is none.
///
/// # Safety
/// Null or a caller's, with its access point.
pub(super) unsafe fn config(data: *const HttpConfigData) -> Option<Config> {
    // SAFETY: the caller's word; the access point is that of the version that it tells.
    unsafe {
        let data = structure(data)?;
        let version = data.http_version.0;
        let timeout = data.time_out_millisec;
        if bool::from(data.local_addr_is_ipv6) {
            let point = structure(data.access_point.ipv6_node)?;
            let address = IpAddr::from(point.local_address.0);
            return Some(Config {
                version,
                timeout,
                default_address: address.is_unspecified(),
                address,
                subnet: [0; 4],
                port: point.local_port,
            });
        }
        let point = structure(data.access_point.ipv4_node)?;
        Some(Config {
            version,
            timeout,
            default_address: bool::from(point.use_default_addr),
            address: IpAddr::from(point.local_address.0),
            subnet: point.local_subnet.0,
            port: point.local_port,
        })
    }
}

/// Tells a caller of a configuration.
///
/// # Safety
/// `data` is a caller's variable, with an access point of the configuration's version, or none.
pub(super) unsafe fn tell(data: *mut HttpConfigData, config: &Config) -> Result<(), Status> {
    // SAFETY: the caller's word.
    unsafe {
        // A pointer of either kind.
        let point = (*data).access_point.ipv4_node;
        if point.is_null() || !point.is_aligned() {
            return Err(Status::INVALID_PARAMETER);
        }
        (*data).http_version = HttpVersion(config.version);
        (*data).time_out_millisec = config.timeout;
        (*data).local_addr_is_ipv6 = config.address.is_ipv6().into();
        match config.address {
            IpAddr::V4(address) => {
                (*point).use_default_addr = config.default_address.into();
                (*point).local_address = address.into();
                (*point).local_subnet = config.subnet.into();
                (*point).local_port = config.port;
            }
            IpAddr::V6(address) => {
                let point = (*data).access_point.ipv6_node;
                (*point).local_address = address.into();
                (*point).local_port = config.port;
            }
        }
    }
    Ok(())
}

/// What a token asks for.
pub(super) struct Request<'a> {
    method: i32,
    url: String,
    fields: Vec<(&'a str, &'a str)>,
    body: &'a [u8],
}

impl Request<'_> {
    /// `None` where something of it cannot be.
    ///
    /// # Safety
    /// Null or a caller's token, with its message and all that it leads to.
    pub(super) unsafe fn read(token: *const HttpToken) -> Option<Self> {
        // SAFETY: the caller's word.
        unsafe {
            let message = structure(structure(token)?.message)?;
            let request = structure(message.data.request)?;
            let headers = array(message.header, message.header_count, MOST_HEADERS)?;
            let fields = headers
                .iter()
                .map(|header| Some((narrow(header.field_name)?, narrow(header.field_value)?)));
            Some(Self {
                method: request.method.0,
                url: wide(request.url)?,
                fields: fields.collect::<Option<_>>()?,
                body: array(message.body.cast(), message.body_length, MOST_BODY)?,
            })
        }
    }

    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
            method: self.method,
            url: &self.url,
            fields: &self.fields,
            body: self.body,
        }
    }
}

/// A text of a caller's in UCS-2, up to its end.
///
/// # Safety
/// Null, or `text` leads to characters of the caller's up to a zero.
unsafe fn wide(text: *const Char16) -> Option<String> {
    if text.is_null() {
        return None;
    }
    let mut units = Vec::new();
    loop {
        // SAFETY: the caller's word, as no zero has come yet.
        let unit = unsafe { text.cast::<u16>().add(units.len()).read_unaligned() };
        if unit == 0 {
            return String::from_utf16(&units).ok();
        }
        if units.len() >= LONGEST {
            return None;
        }
        units.push(unit);
    }
}

/// A text of a caller's in ASCII, up to its end.
///
/// # Safety
/// Null, or `text` leads to characters of the caller's up to a zero.
unsafe fn narrow<'a>(text: *const Char8) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    let text: *const u8 = text.cast();
    // SAFETY: the caller's word, as no zero has come yet.
    let len = (0..=LONGEST).find(|len| unsafe { *text.add(*len) } == 0)?;
    // SAFETY: as above.
    core::str::from_utf8(unsafe { core::slice::from_raw_parts(text, len) }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    #[test]
    fn texts_end_with_a_zero() {
        let wide_text: Vec<u16> = "http://h/ä\0x".encode_utf16().collect();
        // SAFETY: ends with a zero.
        let text = unsafe { wide(wide_text.as_ptr().cast()) };
        assert_eq!(text.as_deref(), Some("http://h/ä"));
        let endless = vec![b'a'.into(); LONGEST + 2];
        // SAFETY: longer than what is looked at.
        assert_eq!(unsafe { wide(<*const u16>::cast(endless.as_ptr())) }, None);
        // SAFETY: null is allowed, the other ends with a zero.
        unsafe {
            assert_eq!(narrow(ptr::null()), None);
            assert_eq!(wide(ptr::null()), None);
            assert_eq!(narrow(c"Host".as_ptr().cast()), Some("Host"));
            let endless = vec![b'a'; LONGEST + 1];
            assert_eq!(narrow(endless.as_ptr().cast()), None);
        }
    }
}
