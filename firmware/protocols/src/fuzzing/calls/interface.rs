//! Calls of EFI_IP4_CONFIG2_PROTOCOL and EFI_IP6_CONFIG_PROTOCOL, and odd ones of EFI_HTTP_PROTOCOL and its service binding.

use super::super::firmware;
use super::super::input::{Arguments, Input};
use super::super::loader::Loader;
use super::super::statuses::{
    CREATE_CHILD, HTTP_CONFIGURE, HTTP_GET_MODE_DATA, HTTP_POLL, HTTP_REQUEST, HTTP_RESPONSE,
    IP_GET_DATA, IP_REGISTER, IP_SET_DATA, IP_UNREGISTER,
};
use core::ptr;
use uefi_raw::protocol::network::http::{
    HttpConfigData, HttpMessage, HttpProtocol, HttpRequestData, HttpToken,
};
use uefi_raw::protocol::network::ip4_config2::{Ip4Config2DataType, Ip4Config2Protocol};
use uefi_raw::table::boot::{EventType, Tpl};
use uefi_raw::{Event, Status};

/// An event of the loader's that does nothing.
fn event(input: &Input) -> Event {
    if input.seldom() {
        return ptr::null_mut();
    }
    firmware::shared_event(EventType::NOTIFY_SIGNAL, Tpl::CALLBACK)
}

#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what holds for all of them is said once"
)]
pub(in super::super) fn call(loader: &Loader, input: &Input) {
    let arguments = Arguments::new(input);
    let a = &arguments;
    let v6 = input.flag();
    let [v4_table, v6_table] = loader.ip;
    let own = if v6 { v6_table } else { v4_table };
    // SAFETY: the table is on its handle as long as the loader runs.
    let table = unsafe { &*own };
    let this: *mut Ip4Config2Protocol = match input.byte() {
        254 => ptr::null_mut(),
        255 => {
            let len = size_of::<Ip4Config2Protocol>();
            // SAFETY: the table's own bytes.
            a.word(unsafe { core::slice::from_raw_parts(own.cast(), len) })
        }
        _ => own,
    };
    let kind = Ip4Config2DataType((input.byte() % 10).into());
    // SAFETY, for all of the following: variables are null or the loader's, and buffers hold as much as the function may use.
    let _: Status = match input.byte() % 8 {
        0..3 => loader.call("SetData", IP_SET_DATA, || unsafe {
            let sizes = [0, 4, 4, 8, 16, 18, input.size()];
            let size = sizes
                .get(usize::from(input.byte() % 8))
                .copied()
                .unwrap_or(8);
            let bytes: Vec<u8> = (0..size.min(0x1000)).map(|_| input.byte()).collect();
            (table.set_data)(this, kind, size, a.bytes(&bytes))
        }),
        3..6 => loader.call("GetData", IP_GET_DATA, || unsafe {
            let size = input.size();
            (table.get_data)(this, kind, a.word(&size.to_ne_bytes()), a.buffer(size))
        }),
        6 => loader.call("RegisterDataNotify", IP_REGISTER, || unsafe {
            (table.register_data_notify)(this, kind, event(input))
        }),
        _ => loader.call("UnregisterDataNotify", IP_UNREGISTER, || unsafe {
            (table.unregister_data_notify)(this, kind, event(input))
        }),
    };
}

/// Calls with arguments that no call can have.
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what holds for all of them is said once"
)]
pub(super) fn odd_http(loader: &Loader, input: &Input, child: *mut HttpProtocol) {
    let arguments = Arguments::new(input);
    let a = &arguments;
    // SAFETY: the child's table is on its handle.
    let table = unsafe { &*child };
    let this: *mut HttpProtocol = match input.byte() % 4 {
        0 => ptr::null_mut(),
        1 => {
            let len = size_of::<HttpProtocol>();
            // SAFETY: the table's own bytes.
            a.word(unsafe { core::slice::from_raw_parts(child.cast(), len) })
        }
        _ => child,
    };
    // SAFETY, for all of the following: variables are null or the loader's, and what they lead to is null, or its own too.
    let _: Status = match input.byte() % 8 {
        0 => loader.call("GetModeData", HTTP_GET_MODE_DATA, || unsafe {
            let mut data = HttpConfigData::default();
            data.access_point.ipv4_node = a.word(&[0; 20]);
            let at = if input.seldom() {
                ptr::null_mut()
            } else {
                &raw mut data
            };
            (table.get_mode_data)(this, at)
        }),
        1 => loader.call("Configure", HTTP_CONFIGURE, || unsafe {
            let mut data = HttpConfigData::default();
            data.http_version.0 = i32::from(input.byte()) - 2;
            data.local_addr_is_ipv6 = input.flag().into();
            data.access_point.ipv4_node = a.word(&[input.byte(); 20]);
            (table.configure)(this, &raw const data)
        }),
        2 | 3 => {
            let request = input.flag();
            let (name, allowed) = if request {
                ("Request", HTTP_REQUEST)
            } else {
                ("Response", HTTP_RESPONSE)
            };
            // Each has something that it cannot have, so that none is taken.
            let mut message = HttpMessage {
                body_length: usize::MAX - usize::from(input.byte()),
                body: a.buffer(1),
                ..HttpMessage::default()
            };
            let mut data = HttpRequestData::default();
            let url = "http://10.0.0.1/a\0".encode_utf16();
            let url: Vec<u8> = url.flat_map(u16::to_ne_bytes).collect();
            data.url = a.bytes(&url);
            if input.flag() {
                message.data.request = &raw const data;
                message.header_count = input.size();
            }
            let mut token = HttpToken {
                message: if input.seldom() {
                    ptr::null_mut()
                } else {
                    &raw mut message
                },
                ..HttpToken::default()
            };
            let at = if input.seldom() {
                ptr::null_mut()
            } else {
                &raw mut token
            };
            let function = if request {
                table.request
            } else {
                table.response
            };
            let status = loader.call(name, allowed, || unsafe { function(this, at) });
            if status.is_success() {
                firmware::fault("a token that cannot be is taken");
            }
            status
        }
        4 => loader.call("Poll", HTTP_POLL, || unsafe { (table.poll)(this) }),
        5 => loader.call("CreateChild", CREATE_CHILD, || unsafe {
            ((*loader.http).create_child)(ptr::null_mut(), a.word(&[0; 8]))
        }),
        _ => loader.call("CreateChild", CREATE_CHILD, || unsafe {
            ((*loader.http).create_child)(loader.http, ptr::null_mut())
        }),
    };
}
