//! Which call with which arguments.

mod base_code;
mod interface;
mod snp;

use super::firmware;
use super::input::Input;
use super::loader::Loader;
use core::ffi::c_void;
use core::ptr;
use std::cell::RefCell;
use std::rc::Rc;
use uefi_raw::protocol::network::http::HttpProtocol;
use uefi_raw::protocol::network::pxe::PxeBaseCodePacket;
use uefi_raw::table::boot::Tpl;
use uefi_raw::{Boolean, Handle, Status};
use wireboot_platform::raw::pxe_callback::{
    PxeBaseCodeCallbackProtocol, PxeBaseCodeCallbackStatus, PxeBaseCodeFunction,
};

/// Calls within calls.
const DEEPEST: u32 = 3;
/// Bodies are up to so long.
const BODY: usize = 512;

/// One thing that a loader does.
pub(super) fn step(loader: &Rc<Loader>, input: &Input, depth: u32) {
    if depth > DEEPEST {
        return;
    }
    match input.byte() % 16 {
        0..4 => snp::call(loader, input),
        4..7 => base_code::call(loader, input),
        7 | 8 => interface::call(loader, input),
        9 if depth == 0 => firmware::tick(),
        10 if depth == 0 => at_another_level(loader, input),
        11 => in_the_middle(loader, input, depth),
        12 => callback(loader, input, depth),
        13 if depth == 0 => limits(input),
        _ => http(loader, input, depth),
    }
}

/// A call at a level that it may be made at, or not.
fn at_another_level(loader: &Rc<Loader>, input: &Input) {
    let levels = [Tpl::CALLBACK, Tpl::NOTIFY, Tpl::HIGH_LEVEL];
    let level = levels.get(usize::from(input.byte() % 3)).copied();
    // Deep enough for nothing that waits.
    firmware::at(level.unwrap_or(Tpl::CALLBACK), || step(loader, input, 1));
}

/// Another call comes in the middle of the next one that turns the network.
fn in_the_middle(loader: &Rc<Loader>, input: &Input, depth: u32) {
    let (weak, input) = (Rc::downgrade(loader), input.clone());
    let mut left = 1;
    loader.fake.interrupt(move || {
        if left == 0 || firmware::tpl() >= Tpl::NOTIFY.0 {
            return;
        }
        left -= 1;
        if let Some(loader) = weak.upgrade() {
            firmware::at(Tpl::NOTIFY, || step(&loader, &input, depth + 1));
        }
    });
}

/// The firmware refuses something soon, or nothing any more.
fn limits(input: &Input) {
    let room = input.byte() % 16;
    firmware::set_room((room < 8).then_some(room.into()));
    firmware::set_in_use(HttpProtocol::GUID, input.seldom());
}

/// What a loader's callback does.
type Work = Box<dyn Fn(PxeBaseCodeFunction) -> PxeBaseCodeCallbackStatus>;

std::thread_local! {
    static CALLBACK: RefCell<Option<Rc<Work>>> = const { RefCell::new(None) };
}

unsafe extern "efiapi" fn on_packet(
    _: *mut PxeBaseCodeCallbackProtocol,
    function: PxeBaseCodeFunction,
    _: Boolean,
    len: u32,
    packet: *const PxeBaseCodePacket,
) -> PxeBaseCodeCallbackStatus {
    if packet.is_null() != (len == 0) {
        firmware::fault("a callback gets a length and a packet that do not fit");
    }
    let work = CALLBACK.with(|work| work.borrow().clone());
    work.map_or_else(
        || {
            firmware::fault("a callback is called that was taken off");
            PxeBaseCodeCallbackStatus::CONTINUE
        },
        |work| work(function),
    )
}

static PROTOCOL: PxeBaseCodeCallbackProtocol = PxeBaseCodeCallbackProtocol {
    revision: 0x1_0000,
    callback: on_packet,
};

/// Puts a callback on the base code's handle.
pub(super) fn install_callback(loader: &Loader, work: Work) {
    CALLBACK.with(|place| *place.borrow_mut() = Some(Rc::new(work)));
    let _ = firmware::install_on(
        loader.base_code_handle,
        &PxeBaseCodeCallbackProtocol::GUID,
        (&raw const PROTOCOL).cast(),
    );
}

/// Where it lies.
#[cfg(test)]
pub(super) fn callback_at() -> usize {
    (&raw const PROTOCOL).addr()
}

/// Takes it off again.
pub(super) fn forget_callback(loader: &Loader) {
    let _ = firmware::uninstall_from(
        loader.base_code_handle,
        &PxeBaseCodeCallbackProtocol::GUID,
        (&raw const PROTOCOL).cast(),
    );
    CALLBACK.with(|place| *place.borrow_mut() = None);
}

fn callback(loader: &Rc<Loader>, input: &Input, depth: u32) {
    if input.flag() {
        return forget_callback(loader);
    }
    let (weak, input) = (Rc::downgrade(loader), input.clone());
    let work = move |_| {
        if let Some(loader) = weak.upgrade()
            && input.seldom()
        {
            step(&loader, &input, depth + 1);
        }
        if input.seldom() {
            PxeBaseCodeCallbackStatus::ABORT
        } else {
            PxeBaseCodeCallbackStatus::CONTINUE
        }
    };
    install_callback(loader, Box::new(work));
}

/// The protocol of some child that there is, and its handle.
fn some_child(input: &Input) -> Option<(Handle, *mut HttpProtocol)> {
    let found = firmware::find(&HttpProtocol::GUID);
    let index = usize::from(input.byte()).checked_rem(found.len())?;
    found.get(index).map(|(handle, at)| (*handle, at.cast()))
}

const URLS: [&str; 5] = [
    "http://10.0.0.1/a",
    "http://[fd00::1]:8080/b?c",
    "https://10.0.0.1/",
    "http://",
    "",
];

fn http(loader: &Rc<Loader>, input: &Input, depth: u32) {
    let kind = input.byte() % 16;
    let Some((handle, child)) = some_child(input).filter(|_| kind > 1) else {
        let odd = [
            firmware::find(&HttpProtocol::GUID)
                .first()
                .map_or(ptr::null_mut(), |(handle, _)| *handle),
            0x7777_usize as *mut c_void,
        ];
        let on = odd.into_iter().nth(usize::from(input.byte() % 16));
        let _ = loader.create(on.unwrap_or(ptr::null_mut()));
        return;
    };
    match kind {
        2 => {
            let odd = if input.flag() {
                ptr::null_mut()
            } else {
                loader.base_code_handle
            };
            let _ = loader.destroy(if input.seldom() { odd } else { handle });
        }
        3 | 4 => {
            let _ = loader.configure(child);
        }
        5 => {
            let _ = loader.reset(child);
        }
        6..9 => {
            let token = if input.seldom() {
                loader.any_token(input.byte())
            } else {
                None
            };
            let token = token.unwrap_or_else(|| loader.idle_token(BODY));
            act_on_signal(loader, input, depth, &token);
            let url = URLS.get(usize::from(input.byte() % 16)).unwrap_or(&URLS[0]);
            let count = usize::from(input.byte() % 4);
            let _ = loader.request_by(child, &token, (input.byte() % 12).into(), url, count);
        }
        9..12 => {
            let token = if input.seldom() {
                loader.any_token(input.byte())
            } else {
                None
            };
            let token = token.unwrap_or_else(|| loader.idle_token(BODY));
            act_on_signal(loader, input, depth, &token);
            let _ = loader.response(child, &token, !input.seldom());
        }
        12 => {
            let token = loader.any_token(input.byte()).filter(|_| input.flag());
            let _ = loader.cancel(child, token.map_or(ptr::null_mut(), |token| token.raw()));
        }
        13 => interface::odd_http(loader, input, child),
        _ => {
            let _: Status = loader.poll(child);
        }
    }
}

/// What a loader does as soon as its token is answered.
fn act_on_signal(loader: &Rc<Loader>, input: &Input, depth: u32, token: &super::loader::Token) {
    if input.flag() {
        let (weak, input) = (Rc::downgrade(loader), input.clone());
        token.on_signal(move || {
            if let Some(loader) = weak.upgrade() {
                step(&loader, &input, depth + 1);
            }
        });
    }
}
