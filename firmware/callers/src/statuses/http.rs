//! EFI_HTTP_SERVICE_BINDING_PROTOCOL and EFI_HTTP_PROTOCOL (section 29.6).

use super::{INVALID, SUCCESS, Walk};
use crate::efi;
use crate::http::{AccessPoint, Child, Local, Signal, binding_on_the_way};
use crate::interface::Known;
use crate::report::Failure;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr::{self, NonNull};
use uefi::{Handle, Status};
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::protocol::network::http::{
    HttpConfigData, HttpMessage, HttpMethod, HttpProtocol, HttpRequestData, HttpRequestOrResponse,
    HttpResponseData, HttpStatusCode, HttpToken, HttpVersion,
};
use uefi_raw::table::boot::Tpl;
use wireboot_platform::Clock;

const NOT_STARTED: &[Status] = &[Status::NOT_STARTED];

/// A request's token, all that it leads to, and the event.
struct Asking {
    signal: Signal,
    /// What the data leads to.
    _url: Vec<u16>,
    data: HttpRequestData,
    message: HttpMessage,
    token: HttpToken,
}

impl Asking {
    /// It must stay where it is while its token is out.
    fn new(method: HttpMethod, url: &str) -> Result<Box<Self>, Failure> {
        let signal = Signal::new(Tpl::NOTIFY)?;
        let url: Vec<u16> = url.encode_utf16().chain([0]).collect();
        let mut asking = Box::new(Self {
            data: HttpRequestData {
                method,
                url: url.as_ptr().cast(),
            },
            _url: url,
            message: HttpMessage::default(),
            token: HttpToken {
                event: signal.event,
                status: Status::NOT_READY,
                message: ptr::null_mut(),
            },
            signal,
        });
        asking.message.data = HttpRequestOrResponse {
            request: &raw const asking.data,
        };
        asking.token.message = &raw mut asking.message;
        Ok(asking)
    }

    /// How the token has ended: signalled, with this status.
    fn ended(&self, status: Status) -> bool {
        // SAFETY: the producer writes it.
        let told = unsafe { (&raw const self.token.status).read_volatile() };
        self.signal.is_signalled() && told == status
    }
}

pub(super) fn walk(walk: &mut Walk, device: Handle, _: Clock) -> Result<(), Failure> {
    let handle = binding_on_the_way(device)?;
    binding(walk, handle, device)?;
    let address = Known::of(device)?.address;
    nulls(walk, handle, address)?;
    tokens(walk, handle, address)
}

fn binding(walk: &mut Walk, handle: Handle, device: Handle) -> Result<(), Failure> {
    let binding: NonNull<ServiceBindingProtocol> = efi::protocol(
        handle,
        &HttpProtocol::SERVICE_BINDING_GUID,
        "HTTP service binding",
    )?;
    // SAFETY: it stays while this program runs.
    let table = unsafe { binding.as_ref() };
    let this = binding.as_ptr();
    let mut child = ptr::null_mut();
    let foreign = &[Status::UNSUPPORTED, Status::INVALID_PARAMETER];
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        let none = ptr::null_mut();
        walk.expect(
            "CreateChild(NULL)",
            (table.create_child)(none, &mut child),
            INVALID,
        );
        let nowhere = (table.create_child)(this, ptr::null_mut());
        walk.expect("CreateChild without a place", nowhere, INVALID);
        walk.expect(
            "CreateChild",
            (table.create_child)(this, &mut child),
            SUCCESS,
        );
        let mut other = ptr::null_mut();
        walk.expect(
            "CreateChild again",
            (table.create_child)(this, &mut other),
            SUCCESS,
        );
        walk.holds("children are on handles of their own", child != other);
        walk.expect(
            "DestroyChild(NULL)",
            (table.destroy_child)(ptr::null_mut(), child),
            INVALID,
        );
        let nobody = (table.destroy_child)(this, ptr::null_mut());
        walk.expect("DestroyChild of no handle", nobody, INVALID);
        let stranger = (table.destroy_child)(this, device.as_ptr());
        walk.expect(
            "DestroyChild of a handle that is no child",
            stranger,
            foreign,
        );
        walk.expect("DestroyChild", (table.destroy_child)(this, child), SUCCESS);
        walk.expect(
            "DestroyChild twice",
            (table.destroy_child)(this, child),
            foreign,
        );
        walk.expect(
            "DestroyChild of the other",
            (table.destroy_child)(this, other),
            SUCCESS,
        );
    }
    Ok(())
}

fn any(address: IpAddr) -> Local {
    Local {
        address: match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        },
        mask: [0; 4],
        port: 0,
        timeout: 0,
    }
}

/// NULLs, and what is asked of a child in a wrong state. Nothing goes to the network.
fn nulls(walk: &mut Walk, handle: Handle, address: IpAddr) -> Result<(), Failure> {
    let child = Child::create(handle)?;
    let table = child.table();
    let this = child.protocol.as_ptr();
    let v6 = address.is_ipv6();
    let none = ptr::null_mut();
    let mut point = AccessPoint::default();
    let mut told = HttpConfigData::default();
    let mut asking = Asking::new(HttpMethod::GET, "http://0.0.0.0/")?;
    let mut https = Asking::new(HttpMethod::GET, "https://0.0.0.0/")?;
    let mut tunnel = Asking::new(HttpMethod::CONNECT, "http://0.0.0.0/")?;
    let mut byte = 0_u8;
    // Of a body without a request, or a response without a head before it.
    let mut body = HttpMessage {
        body_length: 1,
        body: (&raw mut byte).cast(),
        ..HttpMessage::default()
    };
    let mut without_data = HttpToken {
        event: asking.signal.event,
        status: Status::NOT_READY,
        message: &mut body,
    };
    let mut without_message = HttpToken {
        event: asking.signal.event,
        status: Status::NOT_READY,
        message: ptr::null_mut(),
    };
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        walk.expect(
            "GetModeData(NULL)",
            (table.get_mode_data)(none, &mut told),
            INVALID,
        );
        let nowhere = (table.get_mode_data)(this, ptr::null_mut());
        walk.expect("GetModeData without a place", nowhere, INVALID);
        let nowhere = (table.get_mode_data)(this, &mut told);
        walk.expect("GetModeData without an access point", nowhere, INVALID);
        told.access_point = point.node(v6);
        let early = (table.get_mode_data)(this, &mut told);
        walk.expect("GetModeData before Configure", early, NOT_STARTED);
        let early = (table.request)(this, &mut asking.token);
        walk.expect("Request before Configure", early, NOT_STARTED);
        walk.expect(
            "Cancel before Configure",
            (table.cancel)(this, none.cast()),
            NOT_STARTED,
        );
        walk.expect("Poll before Configure", (table.poll)(this), NOT_STARTED);
        walk.expect(
            "Configure(NULL) before Configure",
            child.configure(None),
            SUCCESS,
        );
        let mut config = point.config(any(address));
        walk.expect(
            "Configure of nobody",
            (table.configure)(none, &config),
            INVALID,
        );
        config.access_point = HttpConfigData::default().access_point;
        let nowhere = child.configure(Some(&config));
        walk.expect("Configure without an access point", nowhere, INVALID);
        config = point.config(any(address));
        config.http_version = HttpVersion::HTTP_VERSION_UNSUPPORTED;
        let unsupported = &[Status::UNSUPPORTED];
        walk.expect(
            "Configure of no version",
            child.configure(Some(&config)),
            unsupported,
        );
        let local = Local {
            address,
            timeout: 7000,
            ..any(address)
        };
        config = point.config(local);
        walk.expect("Configure", child.configure(Some(&config)), SUCCESS);
        let twice = child.configure(Some(&config));
        walk.expect("Configure twice", twice, &[Status::ALREADY_STARTED]);
        let mut place = AccessPoint::default();
        told.access_point = place.node(v6);
        walk.expect(
            "GetModeData",
            (table.get_mode_data)(this, &mut told),
            SUCCESS,
        );
        let as_configured = place.is(local)
            && told.time_out_millisec == 7000
            && told.http_version == HttpVersion::HTTP_VERSION_11
            && bool::from(told.local_addr_is_ipv6) == v6;
        walk.holds("GetModeData tells what was configured", as_configured);
        walk.expect(
            "Request(NULL)",
            (table.request)(none, &mut asking.token),
            INVALID,
        );
        walk.expect(
            "Request without a token",
            (table.request)(this, none.cast()),
            INVALID,
        );
        let nothing = (table.request)(this, &mut without_message);
        walk.expect("Request without a message", nothing, INVALID);
        let nothing = (table.request)(this, &mut without_data);
        walk.expect("Request without a request", nothing, INVALID);
        walk.expect(
            "Request by https",
            (table.request)(this, &mut https.token),
            unsupported,
        );
        let tunnelled = &[Status::UNSUPPORTED, Status::INVALID_PARAMETER];
        walk.expect(
            "Request of a tunnel",
            (table.request)(this, &mut tunnel.token),
            tunnelled,
        );
        walk.expect(
            "Response(NULL)",
            (table.response)(none, &mut asking.token),
            INVALID,
        );
        walk.expect(
            "Response without a token",
            (table.response)(this, none.cast()),
            INVALID,
        );
        let nothing = (table.response)(this, &mut without_message);
        walk.expect("Response without a message", nothing, INVALID);
        let unasked = &[Status::ACCESS_DENIED, Status::INVALID_PARAMETER];
        let early = (table.response)(this, &mut without_data);
        walk.expect("Response to nothing", early, unasked);
        walk.expect("Cancel(NULL)", (table.cancel)(none, none.cast()), INVALID);
        let unknown = (table.cancel)(this, &mut asking.token);
        walk.expect(
            "Cancel of a token that is not out",
            unknown,
            &[Status::NOT_FOUND],
        );
        walk.expect(
            "Cancel of all of none",
            (table.cancel)(this, none.cast()),
            SUCCESS,
        );
        walk.expect("Poll(NULL)", (table.poll)(none), INVALID);
        let idle = &[Status::NOT_READY, Status::SUCCESS];
        walk.expect("Poll for nothing", (table.poll)(this), idle);
        walk.expect("Configure(NULL)", child.configure(None), SUCCESS);
        walk.expect(
            "Poll after Configure(NULL)",
            (table.poll)(this),
            NOT_STARTED,
        );
    }
    walk.holds(
        "what was refused is not signalled",
        !asking.signal.is_signalled(),
    );
    Ok(())
}

/// Of this network's addresses one that is nobody's.
fn silent(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            [a, b, c, 251].into()
        }
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64 | 0xdead).into(),
    }
}

/// Tokens that are out: a host that is not there is asked.
fn tokens(walk: &mut Walk, handle: Handle, address: IpAddr) -> Result<(), Failure> {
    let url = match silent(address) {
        IpAddr::V4(host) => format!("http://{host}/"),
        IpAddr::V6(host) => format!("http://[{host}]/"),
    };
    let mut asking = Asking::new(HttpMethod::GET, &url)?;
    let mut other = Asking::new(HttpMethod::GET, &url)?;
    let mut data = HttpResponseData {
        status_code: HttpStatusCode::STATUS_UNSUPPORTED,
    };
    let mut message = HttpMessage {
        data: HttpRequestOrResponse {
            response: &mut data,
        },
        ..HttpMessage::default()
    };
    other.token.message = &mut message;
    let mut point = AccessPoint::default();
    let config = point.config(any(address));
    let child = Child::create(handle)?;
    let table = child.table();
    let this = child.protocol.as_ptr();
    let denied = &[Status::ACCESS_DENIED];
    walk.expect(
        "Configure for tokens",
        child.configure(Some(&config)),
        SUCCESS,
    );
    // SAFETY: tokens and what they lead to live until they are given back.
    unsafe {
        walk.expect("Request", (table.request)(this, &mut asking.token), SUCCESS);
        walk.expect(
            "Request of the same token",
            (table.request)(this, &mut asking.token),
            denied,
        );
        walk.expect(
            "Response",
            (table.response)(this, &mut other.token),
            SUCCESS,
        );
        walk.expect(
            "Response of the same token",
            (table.response)(this, &mut other.token),
            denied,
        );
        walk.expect("Poll for tokens", (table.poll)(this), SUCCESS);
        walk.expect(
            "Cancel of a response",
            (table.cancel)(this, &mut other.token),
            SUCCESS,
        );
        walk.holds(
            "its token is signalled, ABORTED",
            other.ended(Status::ABORTED),
        );
        walk.holds("the other token is not", !asking.signal.is_signalled());
        walk.expect(
            "Cancel of a request",
            (table.cancel)(this, &mut asking.token),
            SUCCESS,
        );
        walk.holds(
            "its token, too, is signalled, ABORTED",
            asking.ended(Status::ABORTED),
        );
        let again = (table.cancel)(this, &mut asking.token);
        walk.expect("Cancel of a cancelled token", again, &[Status::NOT_FOUND]);
    }
    let mut asking = Asking::new(HttpMethod::GET, &url)?;
    // SAFETY: as above.
    unsafe {
        walk.expect(
            "Request once more",
            (table.request)(this, &mut asking.token),
            SUCCESS,
        );
        walk.expect(
            "Configure(NULL) with a token out",
            child.configure(None),
            SUCCESS,
        );
        walk.holds("Configure(NULL) aborts it", asking.ended(Status::ABORTED));
    }
    walk.expect(
        "Configure after Configure(NULL)",
        child.configure(Some(&config)),
        SUCCESS,
    );
    let mut asking = Asking::new(HttpMethod::HEAD, &url)?;
    // SAFETY: as above.
    unsafe {
        walk.expect(
            "Request of a child's end",
            (table.request)(this, &mut asking.token),
            SUCCESS,
        );
    }
    walk.expect("DestroyChild with a token out", child.destroy(), SUCCESS);
    walk.holds("DestroyChild aborts it", asking.ended(Status::ABORTED));
    let mut asking = Asking::new(HttpMethod::GET, &url)?;
    let child = Child::create(handle)?;
    let this = child.protocol.as_ptr();
    walk.expect(
        "Configure of another child",
        child.configure(Some(&config)),
        SUCCESS,
    );
    // SAFETY: as above.
    unsafe {
        let request = (child.table().request)(this, &mut asking.token);
        walk.expect("Request of it", request, SUCCESS);
        walk.expect(
            "Cancel of all",
            (child.table().cancel)(this, ptr::null_mut()),
            SUCCESS,
        );
    }
    walk.holds("Cancel of all aborts it", asking.ended(Status::ABORTED));
    Ok(())
}
