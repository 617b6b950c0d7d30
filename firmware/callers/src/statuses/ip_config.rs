//! EFI_IP4_CONFIG2_PROTOCOL and EFI_IP6_CONFIG_PROTOCOL (sections 28.5 and 28.7).

use super::{INVALID, SUCCESS, Walk};
use crate::http::{Signal, binding_on_the_way};
use crate::interface::{Data, Interface, octets};
use crate::report::Failure;
use alloc::format;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ptr;
use uefi::{Handle, Status};
use uefi_raw::protocol::network::ip4_config2::Ip4Config2DataType;
use uefi_raw::table::boot::Tpl;
use wireboot_platform::Clock;

/// A type of neither version.
const NO_TYPE: Ip4Config2DataType = Ip4Config2DataType(99);
const BAD_SIZE: &[Status] = &[Status::BAD_BUFFER_SIZE];
const PROTECTED: &[Status] = &[Status::WRITE_PROTECTED];
const NOT_FOUND: &[Status] = &[Status::NOT_FOUND];
/// Addresses may be tried on the network first.
const SET: &[Status] = &[Status::SUCCESS, Status::NOT_READY];
/// Policy: static or manual, and DHCP or automatic.
const FIXED: [u8; 4] = [0; 4];
const DHCP: [u8; 4] = [1, 0, 0, 0];

/// Of both versions, on the card's own handle. What is set is as before behind.
pub(super) fn walk(walk: &mut Walk, device: Handle, _: Clock) -> Result<(), Failure> {
    let handle = binding_on_the_way(device)?;
    for v6 in [false, true] {
        let interface = Interface::on(handle, v6)?;
        let before =
            [Data::Address, Data::Gateway, Data::Dns].map(|kind| (kind, interface.get(kind)));
        refusals(walk, &interface);
        sizes(walk, &interface);
        policies(walk, &interface);
        notifications(walk, &interface)?;
        for (kind, data) in before {
            let data = data.unwrap_or_default();
            // A router that the interface has without an address cannot be set.
            walk.expect(
                &named(v6, &format!("SetData({kind:?}) as it was")),
                interface.set(kind, &data),
                SET,
            );
        }
    }
    Ok(())
}

fn named(v6: bool, what: &str) -> alloc::string::String {
    format!("{} {what}", if v6 { "IP6Config" } else { "IP4Config2" })
}

fn refusals(walk: &mut Walk, interface: &Interface) {
    let v6 = interface.v6;
    // SAFETY: it stays while this program runs.
    let table = unsafe { interface.table.as_ref() };
    let this = interface.table.as_ptr();
    let policy = Data::Policy.of(v6);
    let mut data = FIXED;
    let mut expect = |what: &str, answer, allowed| walk.expect(&named(v6, what), answer, allowed);
    let mut size = 4;
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        let none = ptr::null_mut();
        let place = data.as_mut_ptr().cast();
        expect(
            "SetData(NULL)",
            (table.set_data)(none, policy, 4, place),
            INVALID,
        );
        let nothing = (table.set_data)(this, policy, 4, ptr::null());
        expect("SetData without data", nothing, INVALID);
        let strange = (table.set_data)(this, NO_TYPE, 4, place);
        expect("SetData of no type", strange, &[Status::UNSUPPORTED]);
        expect(
            "GetData(NULL)",
            (table.get_data)(none, policy, &mut size, place),
            INVALID,
        );
        let nowhere = (table.get_data)(this, policy, ptr::null_mut(), place);
        expect("GetData without a size", nowhere, INVALID);
        let nowhere = (table.get_data)(this, policy, &mut size, ptr::null_mut());
        expect("GetData without a place", nowhere, INVALID);
        let strange = (table.get_data)(this, NO_TYPE, &mut size, place);
        expect("GetData of no type", strange, NOT_FOUND);
        size = 3;
        let small = (table.get_data)(this, policy, &mut size, place);
        expect(
            "GetData to a small buffer",
            small,
            &[Status::BUFFER_TOO_SMALL],
        );
    }
    walk.holds(&named(v6, "GetData tells the size"), size == 4);
    let info = interface.get(Data::Info);
    let least = if v6 { 136 } else { 128 };
    walk.holds(
        &named(v6, "InterfaceInfo"),
        info.is_ok_and(|info| info.len() >= least),
    );
    let info = interface.set(Data::Info, &[0; 128]);
    walk.expect(&named(v6, "SetData(InterfaceInfo)"), info, PROTECTED);
}

/// Calls with data of a wrong size, for each type of data.
fn sizes(walk: &mut Walk, interface: &Interface) {
    let v6 = interface.v6;
    let (address, host) = if v6 { (18, 16) } else { (8, 4) };
    let mut expect = |what: &str, answer, allowed| walk.expect(&named(v6, what), answer, allowed);
    expect(
        "SetData(Policy) of 3 bytes",
        interface.set(Data::Policy, &[0; 3]),
        BAD_SIZE,
    );
    expect(
        "SetData(Policy) of no policy",
        interface.set(Data::Policy, &[9, 0, 0, 0]),
        INVALID,
    );
    expect(
        "SetData(Policy)",
        interface.set(Data::Policy, &FIXED),
        SUCCESS,
    );
    for (kind, size) in [
        (Data::Address, address),
        (Data::Gateway, host),
        (Data::Dns, host),
    ] {
        let long = alloc::vec![1; size + 1];
        expect(
            &format!("SetData({kind:?}) of {} bytes", long.len()),
            interface.set(kind, &long),
            BAD_SIZE,
        );
        let unspecified = alloc::vec![0; size];
        expect(
            &format!("SetData({kind:?}) of zeros"),
            interface.set(kind, &unspecified),
            INVALID,
        );
    }
    let group = octets(if v6 {
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::BROADCAST.into()
    });
    expect(
        "SetData(Gateway) of all hosts",
        interface.set(Data::Gateway, &group),
        INVALID,
    );
    if v6 {
        for (what, number, size) in [("AltInterfaceId", 1, 7), ("DupAddrDetectTransmits", 3, 3)] {
            // SAFETY: data of so many bytes.
            let answer = unsafe {
                (interface.table.as_ref().set_data)(
                    interface.table.as_ptr(),
                    Ip4Config2DataType(number),
                    size,
                    [0_u8; 8].as_ptr().cast(),
                )
            };
            expect(
                &format!("SetData({what}) of {size} bytes"),
                answer,
                BAD_SIZE,
            );
        }
    }
}

fn policies(walk: &mut Walk, interface: &Interface) {
    let v6 = interface.v6;
    let (mask, host) = if v6 {
        (&[0, 64][..], 16)
    } else {
        (&[255, 255, 255, 0][..], 4)
    };
    let host = alloc::vec![10; host];
    let address = [&host, mask].concat();
    let data = [
        (Data::Address, &address),
        (Data::Gateway, &host),
        (Data::Dns, &host),
    ];
    let mut expect = |what: &str, answer, allowed| walk.expect(&named(v6, what), answer, allowed);
    expect(
        "SetData(Policy) of DHCP",
        interface.set(Data::Policy, &DHCP),
        SUCCESS,
    );
    for (kind, data) in data {
        let answer = interface.set(kind, data);
        expect(&format!("SetData({kind:?}) under DHCP"), answer, PROTECTED);
    }
    let read = interface.get(Data::Policy) == Ok(DHCP.to_vec());
    expect(
        "SetData(Policy) back",
        interface.set(Data::Policy, &FIXED),
        SUCCESS,
    );
    expect(
        "SetData(DnsServer)",
        interface.set(Data::Dns, &host),
        SUCCESS,
    );
    let dns = interface.get(Data::Dns) == Ok(host.clone());
    expect(
        "SetData(DnsServer) of nothing",
        interface.set(Data::Dns, &[]),
        SUCCESS,
    );
    let none = interface.get(Data::Dns).err().unwrap_or(Status::SUCCESS);
    expect("GetData(DnsServer) of nothing", none, NOT_FOUND);
    walk.holds(&named(v6, "GetData(Policy) tells what was set"), read);
    walk.holds(&named(v6, "GetData(DnsServer) tells what was set"), dns);
}

fn notifications(walk: &mut Walk, interface: &Interface) -> Result<(), Failure> {
    let v6 = interface.v6;
    // SAFETY: it stays while this program runs.
    let table = unsafe { interface.table.as_ref() };
    let this = interface.table.as_ptr();
    let (dns, gateway) = (Data::Dns.of(v6), Data::Gateway.of(v6));
    let signal = Signal::new(Tpl::CALLBACK)?;
    let other = Signal::new(Tpl::CALLBACK)?;
    let mut expect = |what: &str, answer, allowed| walk.expect(&named(v6, what), answer, allowed);
    // SAFETY: what the specification says about each argument, NULL included.
    unsafe {
        let none = ptr::null_mut();
        let (register, unregister) = (table.register_data_notify, table.unregister_data_notify);
        expect(
            "RegisterDataNotify(NULL)",
            register(none, dns, signal.event),
            INVALID,
        );
        expect(
            "RegisterDataNotify without an event",
            register(this, dns, none.cast()),
            INVALID,
        );
        let strange = register(this, NO_TYPE, signal.event);
        expect(
            "RegisterDataNotify of no type",
            strange,
            &[Status::UNSUPPORTED],
        );
        expect(
            "RegisterDataNotify",
            register(this, dns, signal.event),
            SUCCESS,
        );
        let twice = register(this, dns, signal.event);
        expect("RegisterDataNotify twice", twice, &[Status::ACCESS_DENIED]);
        expect(
            "RegisterDataNotify of another type",
            register(this, gateway, other.event),
            SUCCESS,
        );
        let host = alloc::vec![10; if v6 { 16 } else { 4 }];
        expect(
            "SetData(DnsServer) with a notification",
            interface.set(Data::Dns, &host),
            SUCCESS,
        );
        expect(
            "UnregisterDataNotify(NULL)",
            unregister(none, dns, signal.event),
            INVALID,
        );
        let nothing = unregister(this, dns, none.cast());
        expect("UnregisterDataNotify without an event", nothing, INVALID);
        let strange = unregister(this, NO_TYPE, signal.event);
        expect("UnregisterDataNotify of no type", strange, NOT_FOUND);
        let stranger = unregister(this, gateway, signal.event);
        expect("UnregisterDataNotify of another type", stranger, NOT_FOUND);
        expect(
            "UnregisterDataNotify",
            unregister(this, dns, signal.event),
            SUCCESS,
        );
        expect(
            "UnregisterDataNotify twice",
            unregister(this, dns, signal.event),
            NOT_FOUND,
        );
        expect(
            "UnregisterDataNotify of the other",
            unregister(this, gateway, other.event),
            SUCCESS,
        );
    }
    walk.holds(&named(v6, "the event is signalled"), signal.is_signalled());
    walk.holds(
        &named(v6, "that of another type is not"),
        !other.is_signalled(),
    );
    Ok(())
}
