//! The loaders: which calls, in which order, with which arguments.

use super::{AccessPoint, Child, Head, Http, LARGEST, Local, TokenWait, binding_on_the_way};
use crate::efi;
use crate::interface::{Data, Interface, Known, MAC};
use crate::report::{Failure, succeeded, tell};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr;
use uefi::{Handle, Status};
use uefi_raw::protocol::network::http::{HttpConfigData, HttpMethod, HttpProtocol, HttpStatusCode};
use uefi_raw::table::boot::Tpl;
use wireboot_platform::Clock;

/// What shim reads at a time.
const SHIMS_PIECE: usize = 9216;
/// How long FreeBSD's loader waits between two polls.
const FREEBSDS_PAUSE: usize = 100_000;
/// What ESXi's loader asks for to see whether plain HTTP is allowed: the answer is an error either way, and must come.
const ESXIS_PROBE: &str = "http://0.0.0.0/probe";
const ESXIS_RETRIES: u32 = 2;

/// Any address of a version, and a port of the producer's choice.
fn any(v6: bool, timeout: u32) -> Local {
    Local {
        address: if v6 {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        },
        mask: [0; 4],
        port: 0,
        timeout,
    }
}

/// The host of a URL, with its port.
fn host(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or_default()
}

/// ESXi's mboot. Its address is the path's, not the default one, and it chooses a port. First it asks for what cannot be there, to see whether
/// plain HTTP is allowed. Then for the size, by HEAD; then for the file, by GET; each with a Response for the head alone. Where a child does
/// not do, it takes another one.
pub(crate) fn esxi(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let mut child = esxis_child(device, clock)?;
    match child.request(HttpMethod::HEAD, ESXIS_PROBE, "0.0.0.0") {
        Ok(_) => return Err(Failure::Wrong("0.0.0.0 answers")),
        // Plain HTTP is not allowed.
        Err(error @ (Failure::Refused(_, Status::ACCESS_DENIED) | Failure::Wrong(_))) => {
            return Err(error);
        }
        Err(_) => {
            let this = child.child.protocol.as_ptr();
            // SAFETY: NULL is all tokens, of which there are none.
            let _ = unsafe { (child.child.table().cancel)(this, ptr::null_mut()) };
        }
    }
    let mut retry = |load: &dyn Fn(&Http) -> Result<Vec<u8>, Failure>| {
        let mut left = ESXIS_RETRIES;
        loop {
            match load(&child) {
                Err(Failure::Refused(what, status)) if left > 0 => {
                    tell(format_args!("esxi-http: {what}: {status:?}, once more"));
                    left -= 1;
                    let _ = child.child.configure(None);
                    child = esxis_child(device, clock)?;
                }
                result => return result,
            }
        }
    };
    // Without the port.
    let name = host(url);
    let port = name.rfind(':').filter(|at| Some(*at) > name.rfind(']'));
    let name = port.and_then(|at| name.get(..at)).unwrap_or(name);
    let told = Cell::new(0);
    retry(&|http| {
        http.request(HttpMethod::HEAD, url, name)?;
        told.set(http.first(&mut [])?.size()?);
        Ok(Vec::new())
    })?;
    retry(&|http| {
        http.request(HttpMethod::GET, url, name)?;
        let size = http.first(&mut [])?.size()?;
        same(told.get(), size)?;
        let mut file = vec![0; size];
        http.rest(&mut file, 0, LARGEST)?;
        Ok(file)
    })
}

fn esxis_child(device: Handle, clock: Clock) -> Result<Http, Failure> {
    let known = Known::of(device)?;
    let child = Child::create(binding_on_the_way(device)?)?;
    let mut count = 0;
    // SAFETY: a variable of ours.
    let status = unsafe { (efi::services()?.get_next_monotonic_count)(&mut count) };
    succeeded("GetNextMonotonicCount", status)?;
    let local = Local {
        // Over IPv6 it gives none.
        address: match known.address {
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            v4 @ IpAddr::V4(_) => v4,
        },
        mask: known.mask(),
        port: 49160 + (count % 1627) as u16 * 10,
        timeout: 10_000,
    };
    let mut point = AccessPoint::default();
    succeeded("Configure", child.configure(Some(&point.config(local))))?;
    Ok(Http {
        child,
        wait: TokenWait {
            tpl: Tpl::CALLBACK,
            pause: None,
        },
        clock,
        fields: &[(c"User-Agent", c"esx-boot/2.0")],
        heedless: true,
    })
}

/// Fedora's GRUB, on a handle that it finds by the settings of its interface. It sets them, and reads them again. HEAD and GET are on one
/// child, each with a Response for the head alone, before one Response of the whole file. A child that is configured is no mistake.
pub(crate) fn grub(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let known = Known::of(device)?;
    let v6 = known.address.is_ipv6();
    let handle = efi::on_the_way(device, Interface::guid(false), "IP4Config2")?;
    let interface = Interface::on(handle, v6)?;
    interface.configure(&known, true)?;
    interface.set_dns(&known)?;
    let told = interface.get(Data::Address);
    let told = told.map_err(|status| Failure::Refused("GetData(ManualAddress)", status))?;
    if told != known.manual_address() {
        return Err(Failure::Wrong("another ManualAddress than was set"));
    }
    let info = interface.get(Data::Info);
    info.map_err(|status| Failure::Refused("GetData(InterfaceInfo)", status))?;
    let child = Child::create(handle)?;
    let mut point = AccessPoint::default();
    let local = Local {
        address: if v6 {
            known.address
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        },
        ..any(v6, 5000)
    };
    let config = point.config(local);
    succeeded("Configure", child.configure(Some(&config)))?;
    match child.configure(Some(&config)) {
        Status::ALREADY_STARTED => {}
        status => return Err(Failure::Refused("Configure twice", status)),
    }
    let http = Http {
        child,
        wait: TokenWait {
            tpl: Tpl::CALLBACK,
            pause: None,
        },
        clock,
        fields: &[(c"Accept", c"*/*"), (c"User-Agent", c"UefiHttpBoot/1.0")],
        heedless: true,
    };
    http.request(HttpMethod::HEAD, url, host(url))?;
    let told = http.first(&mut [])?.size()?;
    http.request(HttpMethod::GET, url, host(url))?;
    let size = http.first(&mut [])?.size()?;
    same(told, size)?;
    let mut file = vec![0; size];
    http.rest(&mut file, 0, LARGEST)?;
    Ok(file)
}

/// shim, on the handle of all with a service binding that has its card's MAC. It sets no policy. Pieces of 9,216 bytes, the first with the
/// head. Its events notify at TPL_NOTIFY, and it configures, asks and destroys for each file anew; the first is mostly not there.
pub(crate) fn shim(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let known = Known::of(device)?;
    let v6 = known.address.is_ipv6();
    let mac = |handle| {
        let nodes = efi::nodes(handle).into_iter();
        nodes
            .filter(|(kind, _)| *kind == MAC)
            .map(|(_, mac)| mac)
            .next()
    };
    let own = mac(device).ok_or(Failure::Wrong("no MAC in the path"))?;
    let mut handles = efi::handles(&HttpProtocol::SERVICE_BINDING_GUID).into_iter();
    let handle = handles.find(|handle| mac(*handle).as_ref() == Some(&own));
    let handle = handle.ok_or(Failure::Absent("HTTP service binding"))?;
    Interface::on(handle, v6)?.configure(&known, false)?;
    let open = || -> Result<Http, Failure> {
        let child = Child::create(handle)?;
        let mut point = AccessPoint::default();
        succeeded(
            "Configure",
            child.configure(Some(&point.config(any(v6, 0)))),
        )?;
        Ok(Http {
            child,
            wait: TokenWait {
                tpl: Tpl::NOTIFY,
                pause: None,
            },
            clock,
            fields: &[(c"Accept", c"*/*"), (c"User-Agent", c"UefiHttpBoot/1.0")],
            heedless: false,
        })
    };
    let mut first = vec![0; SHIMS_PIECE];
    let http = open()?;
    let absent = alloc::format!("{url}.no-such-file");
    http.request(HttpMethod::GET, &absent, host(url))?;
    if http.first(&mut first)?.status != HttpStatusCode::STATUS_404_NOT_FOUND {
        return Err(Failure::Wrong("another status than 404"));
    }
    drop(http);
    let http = open()?;
    http.request(HttpMethod::GET, url, host(url))?;
    let head = http.first(&mut first)?;
    first.truncate(head.have);
    first.resize(head.size()?, 0);
    http.rest(&mut first, head.have, SHIMS_PIECE)?;
    Ok(first)
}

/// FreeBSD's loader, which has IPv4 only. It configures anew, as it was told to be configured, for each file, and waits 100 ms after each
/// poll that was for nothing. It tells how many polls that took.
pub(crate) fn freebsd(device: Handle, url: &str, clock: Clock) -> Result<Vec<u8>, Failure> {
    let known = Known::of(device)?;
    let handle = binding_on_the_way(device)?;
    let interface = Interface::on(handle, false)?;
    interface.configure(&known, true)?;
    interface.set_dns(&known)?;
    let child = Child::create(handle)?;
    let mut point = AccessPoint::default();
    let config = point.config(any(false, 0));
    succeeded("Configure", child.configure(Some(&config)))?;
    let mut told = HttpConfigData {
        access_point: point.node(false),
        ..HttpConfigData::default()
    };
    // SAFETY: variables of ours.
    let status = unsafe { (child.table().get_mode_data)(child.protocol.as_ptr(), &mut told) };
    succeeded("GetModeData", status)?;
    succeeded("Configure(NULL)", child.configure(None))?;
    succeeded("Configure as it was", child.configure(Some(&told)))?;
    let http = Http {
        child,
        wait: TokenWait {
            tpl: Tpl::CALLBACK,
            pause: Some(FREEBSDS_PAUSE),
        },
        clock,
        fields: &[(c"Connection", c"close"), (c"Accept", c"*/*")],
        heedless: false,
    };
    let request = http.request(HttpMethod::GET, url, host(url))?;
    let head @ Head { polls, .. } = http.first(&mut [])?;
    let mut file = vec![0; head.size()?];
    let responses = http.rest(&mut file, 0, LARGEST)?;
    tell(format_args!(
        "freebsd-http: polled {request} times for the request, {polls} for the head; {responses} Responses for the body"
    ));
    Ok(file)
}

fn same(head: usize, get: usize) -> Result<(), Failure> {
    if head == get {
        Ok(())
    } else {
        Err(Failure::Wrong("HEAD and GET tell different sizes"))
    }
}
