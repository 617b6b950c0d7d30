//! A loader: it makes calls by the pointers that it finds on handles, and looks after each whether all is as it must be.

use super::firmware;
use super::memory::Guarded;
use super::network::Fake;
use super::statuses;
use super::{MAC, STATION};
use crate::base_code::Packets;
use crate::ip_config::IP6_CONFIG_GUID;
use crate::resident::Resident;
use crate::shared::{Interface, Station};
use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::ptr;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::protocol::network::http::{
    HttpConfigData, HttpHeader, HttpMessage, HttpProtocol, HttpToken, HttpV4AccessPoint,
    HttpVersion,
};
use uefi_raw::protocol::network::ip4_config2::Ip4Config2Protocol;
use uefi_raw::protocol::network::pxe::PxeBaseCodeProtocol;
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::table::boot::{EventType, Tpl};
use uefi_raw::{Boolean, Event, Guid, Handle, Status};
use wireboot_fetch::url::Url;
use wireboot_protocols::ip_config::Settings;
use wireboot_protocols::packet::Packet;

/// What a loader does when a token's event is signalled.
type OnSignal = Box<dyn FnMut()>;

/// A token of EFI_HTTP_PROTOCOL with all that it leads to.
pub(super) struct Token {
    token: RefCell<Guarded>,
    message: RefCell<Guarded>,
    data: RefCell<Guarded>,
    body: RefCell<Guarded>,
    pub(super) event: Event,
    /// How often its event was signalled.
    pub(super) signals: Cell<u32>,
    /// How often it was taken by a call, and a signal is due.
    pub(super) taken: Cell<u32>,
    closed: Cell<bool>,
    on_signal: RefCell<Option<OnSignal>>,
}

unsafe extern "efiapi" fn on_token(_: Event, context: *mut c_void) {
    // SAFETY: the loader keeps its tokens.
    let token = unsafe { &*context.cast::<Token>().cast_const() };
    token.signals.set(token.signals.get() + 1);
    let status = token.status();
    if !statuses::HTTP_TOKEN.contains(&status) {
        firmware::fault(format!("a token is answered with {status}"));
    }
    token.free_headers();
    let on_signal = token.on_signal.borrow_mut().take();
    if let Some(mut on_signal) = on_signal {
        on_signal();
    }
}

impl Token {
    /// `tpl`: of its event's function.
    fn new(body: usize, tpl: Tpl) -> Rc<Self> {
        let mut new = Rc::new(Self {
            token: Guarded::new(size_of::<HttpToken>(), 0).into(),
            message: Guarded::new(size_of::<HttpMessage>(), 0).into(),
            data: Guarded::new(16, 0).into(),
            body: Guarded::new(body, 1).into(),
            event: ptr::null_mut(),
            signals: Cell::new(0),
            taken: Cell::new(0),
            closed: Cell::new(false),
            on_signal: RefCell::default(),
        });
        let context = Rc::as_ptr(&new).cast_mut().cast();
        let event = firmware::new_event(EventType::NOTIFY_SIGNAL, tpl, Some(on_token), context);
        if let Some(new) = Rc::get_mut(&mut new) {
            new.event = event;
        }
        new
    }

    pub(super) fn raw(&self) -> *mut HttpToken {
        self.token.borrow_mut().as_mut_ptr()
    }

    #[cfg(test)]
    pub(super) fn body_at(&self) -> usize {
        self.body.borrow_mut().as_mut_ptr::<u8>().addr()
    }

    fn message(&self) -> *mut HttpMessage {
        self.message.borrow_mut().as_mut_ptr()
    }

    pub(super) fn status(&self) -> Status {
        // SAFETY: it was filled, and nobody writes to it now.
        unsafe { (*self.raw()).status }
    }

    /// Bytes of the body that were answered.
    #[cfg(test)]
    pub(super) fn length(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.message()).body_length }
    }

    /// What to do when it is signalled next.
    pub(super) fn on_signal(&self, work: impl FnMut() + 'static) {
        *self.on_signal.borrow_mut() = Some(Box::new(work));
    }

    /// For a request of `url`.
    fn ask(&self, method: i32, url: &mut Guarded, headers: &mut Guarded, count: usize) {
        let body = self.body.borrow_mut().as_mut_ptr();
        let data: *mut u8 = self.data.borrow_mut().as_mut_ptr();
        // SAFETY: memory of these sizes, aligned.
        unsafe {
            data.cast::<i32>().write(method);
            data.add(8).cast::<*mut u16>().write(url.as_mut_ptr());
            self.message().write(HttpMessage {
                header_count: count,
                header: if count == 0 {
                    ptr::null_mut()
                } else {
                    headers.as_mut_ptr()
                },
                body_length: 0,
                body,
                ..HttpMessage::default()
            });
            (*self.message()).data.request = data.cast();
            self.point();
        }
    }

    /// For a response; `head`: with room for the status.
    fn await_response(&self, head: bool) {
        let mut body = self.body.borrow_mut();
        let len = body.bytes().len();
        // SAFETY: as above.
        unsafe {
            self.message().write(HttpMessage {
                body_length: len,
                body: body.as_mut_ptr(),
                ..HttpMessage::default()
            });
            if head {
                (*self.message()).data.response = self.data.borrow_mut().as_mut_ptr();
            }
            self.point();
        }
    }

    /// # Safety
    /// The token's memory is nobody else's.
    unsafe fn point(&self) {
        // SAFETY: the caller's word.
        unsafe {
            self.raw().write(HttpToken {
                event: self.event,
                status: Status::SUCCESS,
                message: self.message(),
            });
        }
    }

    /// The header lines of a response are the caller's to free.
    fn free_headers(&self) {
        // SAFETY: an answer's message.
        unsafe {
            let message = self.message();
            let (headers, count) = ((*message).header, (*message).header_count);
            // Those of a request lie in the loader's memory.
            if !firmware::is_allocated(headers.cast()) {
                return;
            }
            for index in 0..count {
                let HttpHeader {
                    field_name,
                    field_value,
                } = headers.add(index).read();
                firmware::free(field_name.cast_mut().cast());
                firmware::free(field_value.cast_mut().cast());
            }
            firmware::free(headers.cast());
            (*message).header = ptr::null_mut();
            (*message).header_count = 0;
        }
    }

    /// The loader frees it, and closes its event.
    pub(super) fn free(&self) {
        if !self.closed.replace(true) {
            // It may have been answered, and its function not been called yet.
            self.free_headers();
            firmware::close(self.event);
        }
        for memory in [&self.token, &self.message, &self.data, &self.body] {
            memory.borrow_mut().free();
        }
    }

    fn is_intact(&self) -> bool {
        let all = [&self.token, &self.message, &self.data, &self.body];
        all.iter().all(|memory| memory.borrow().is_intact())
    }

    /// Nothing is out: it may be used again.
    pub(super) fn is_idle(&self) -> bool {
        self.signals.get() == self.taken.get() && !self.closed.get()
    }
}

pub(super) struct Loader {
    pub(super) fake: Fake,
    resident: RefCell<Option<Resident>>,
    pub(super) snp: *mut SimpleNetworkProtocol,
    pub(super) base_code: *mut PxeBaseCodeProtocol,
    pub(super) base_code_handle: Handle,
    pub(super) http: *mut ServiceBindingProtocol,
    pub(super) ip: [*mut Ip4Config2Protocol; 2],
    tokens: RefCell<Vec<Rc<Token>>>,
    /// What requests lead to, as long as they may.
    kept: RefCell<Vec<Guarded>>,
    /// Calls under way.
    depth: Cell<u32>,
    /// One network is offered at a time.
    _alone: MutexGuard<'static, ()>,
}

fn interface(guid: &Guid) -> *mut c_void {
    let found = firmware::find(guid);
    found.first().map_or(ptr::null_mut(), |(_, at)| *at)
}

/// What the network is offered as.
pub(super) fn offer(fake: &Fake) -> uefi::Result<Resident> {
    let mut discover: Packet = [0; _];
    discover[0] = 1;
    let packets = Packets {
        discover: Some(discover),
        ack: Some(discover),
        ..Packets::default()
    };
    let path: Box<[u8]> = Box::new([0x7f, 0xff, 4, 0]);
    let station = Station {
        mac: MAC,
        mtu: 1500,
        address: STATION.into(),
        prefix_len: 24,
        router: None,
        vlan: None,
        mac_path: path.clone(),
        ip_path: path,
    };
    let url = Url::parse("http://10.0.0.2/loader.efi").map_err(|_| Status::INVALID_PARAMETER)?;
    let interface = Interface {
        url,
        uri_path: None,
        v4: Settings {
            addresses: vec![(STATION.into(), 24)],
            ..Settings::default()
        },
        v6: Settings::default(),
    };
    let (network, link) = (Box::new(fake.clone()), Box::new(fake.clone()));
    Resident::offer(network, link, station, &packets, interface, None)
}

impl Loader {
    /// Started over a network that answers as `script` says.
    pub(super) fn new(script: &[u8]) -> Rc<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        firmware::begin();
        let fake = Fake::new(script);
        let resident = offer(&fake).ok();
        let handles = firmware::find(&PxeBaseCodeProtocol::GUID);
        let ip = [Ip4Config2Protocol::GUID, IP6_CONFIG_GUID];
        Rc::new(Self {
            fake,
            resident: resident.into(),
            snp: interface(&SimpleNetworkProtocol::GUID).cast(),
            base_code: interface(&PxeBaseCodeProtocol::GUID).cast(),
            base_code_handle: handles
                .first()
                .map_or(ptr::null_mut(), |(handle, _)| *handle),
            http: interface(&HttpProtocol::SERVICE_BINDING_GUID).cast(),
            ip: ip.map(|guid| interface(&guid).cast()),
            tokens: RefCell::default(),
            kept: RefCell::default(),
            depth: Cell::new(0),
            _alone: alone,
        })
    }

    /// Calls a function, which may answer one of `allowed`.
    pub(super) fn call(
        &self,
        name: &str,
        allowed: &[Status],
        function: impl FnOnce() -> Status,
    ) -> Status {
        let depth = self.depth.get();
        let tpl = firmware::tpl();
        if depth == 0 {
            self.fake.begin_call();
        }
        self.depth.set(depth + 1);
        let status = function();
        self.depth.set(depth);
        if firmware::tpl() != tpl {
            firmware::fault(format!("{name} leaves TPL {} of {tpl}", firmware::tpl()));
        }
        let in_between = depth > 0 || tpl > Tpl::CALLBACK.0;
        let refused = in_between && statuses::REFUSED.contains(&status);
        if !refused && !allowed.contains(&status) {
            firmware::fault(format!("{name} answers {status}"));
        }
        if tpl > Tpl::CALLBACK.0 && status.is_success() {
            firmware::fault(format!("{name} works at TPL {tpl}"));
        }
        status
    }

    /// Panics where something was not as it must be.
    #[track_caller]
    pub(super) fn check(&self) {
        for token in self.tokens.borrow().iter() {
            assert!(token.is_intact(), "a token's memory was written to");
            let (signals, taken) = (token.signals.get(), token.taken.get());
            assert!(signals <= taken, "{signals} signals of a token for {taken}");
        }
        let kept = self.kept.borrow();
        assert!(
            kept.iter().all(Guarded::is_intact),
            "a request was written to"
        );
        let faults = firmware::faults();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    pub(super) fn create(&self, on: Handle) -> Result<Handle, Status> {
        let mut place = Guarded::of(&on.addr().to_ne_bytes(), 0);
        let at: *mut Handle = place.as_mut_ptr();
        // SAFETY: the variable is the loader's.
        let status = self.call("CreateChild", statuses::CREATE_CHILD, || unsafe {
            at.write(on);
            ((*self.http).create_child)(self.http, at)
        });
        if !place.is_intact() {
            firmware::fault("CreateChild writes elsewhere");
        }
        // SAFETY: as above.
        status
            .is_success()
            .then(|| unsafe { at.read() })
            .ok_or(status)
    }

    pub(super) fn destroy(&self, child: Handle) -> Status {
        self.call("DestroyChild", statuses::DESTROY_CHILD, || {
            // SAFETY: any handle may be given.
            unsafe { ((*self.http).destroy_child)(self.http, child) }
        })
    }

    /// The protocol of a child.
    #[cfg(test)]
    pub(super) fn child(&self, handle: Handle) -> *mut HttpProtocol {
        let found = firmware::find(&HttpProtocol::GUID);
        let mut found = found.iter().filter(|(one, _)| *one == handle);
        found.next().map_or(ptr::null_mut(), |(_, at)| at.cast())
    }

    pub(super) fn configure(&self, child: *mut HttpProtocol) -> Status {
        let mut point = Guarded::new(size_of::<HttpV4AccessPoint>(), 0);
        let at: *mut HttpV4AccessPoint = point.as_mut_ptr();
        let mut data = HttpConfigData {
            http_version: HttpVersion::HTTP_VERSION_11,
            ..HttpConfigData::default()
        };
        data.access_point.ipv4_node = at;
        self.call("Configure", statuses::HTTP_CONFIGURE, || {
            // SAFETY: the loader's variables.
            unsafe {
                (*at).use_default_addr = Boolean::TRUE;
                ((*child).configure)(child, &raw const data)
            }
        })
    }

    pub(super) fn reset(&self, child: *mut HttpProtocol) -> Status {
        self.call("Configure(NULL)", statuses::HTTP_CONFIGURE, || {
            // SAFETY: null is allowed.
            unsafe { ((*child).configure)(child, ptr::null()) }
        })
    }

    /// A new token, with a buffer for a body.
    pub(super) fn token(&self, body: usize) -> Rc<Token> {
        self.token_at(body, Tpl::CALLBACK)
    }

    /// The same, whose event's function is of level `tpl`.
    pub(super) fn token_at(&self, body: usize, tpl: Tpl) -> Rc<Token> {
        let token = Token::new(body, tpl);
        self.tokens.borrow_mut().push(token.clone());
        token
    }

    /// Tokens that are not out.
    pub(super) fn idle_token(&self, body: usize) -> Rc<Token> {
        let idle = self
            .tokens
            .borrow()
            .iter()
            .find(|one| one.is_idle())
            .cloned();
        idle.unwrap_or_else(|| self.token(body))
    }

    /// Some token, in use or not, unless its memory was freed.
    pub(super) fn any_token(&self, choice: u8) -> Option<Rc<Token>> {
        let tokens = self.tokens.borrow();
        let index = usize::from(choice).checked_rem(tokens.len())?;
        tokens.get(index).filter(|one| !one.closed.get()).cloned()
    }

    /// Gives a token to a call, for which its event is to be signalled once if that takes it.
    fn give(&self, token: &Token, function: impl FnOnce() -> Status) -> Status {
        // It may be signalled before the call returns.
        token.taken.set(token.taken.get() + 1);
        let status = function();
        if status.is_error() {
            token.taken.set(token.taken.get() - 1);
        }
        status
    }

    #[cfg(test)]
    pub(super) fn request(&self, child: *mut HttpProtocol, token: &Token, url: &str) -> Status {
        self.request_by(child, token, 0, url, 0)
    }

    /// A request with `count` header lines.
    pub(super) fn request_by(
        &self,
        child: *mut HttpProtocol,
        token: &Token,
        method: i32,
        url: &str,
        count: usize,
    ) -> Status {
        let units = url.encode_utf16().chain([0]);
        let bytes: Vec<u8> = units.flat_map(u16::to_ne_bytes).collect();
        let mut url = Guarded::of(&bytes, 0);
        let mut text = Guarded::of(b"Name\0", 0);
        let mut headers = Guarded::new(count * size_of::<HttpHeader>(), 0);
        for index in 0..count {
            // SAFETY: there is room for so many.
            unsafe {
                let at: *mut HttpHeader = headers.as_mut_ptr();
                at.add(index).write(HttpHeader {
                    field_name: text.as_mut_ptr(),
                    field_value: text.as_mut_ptr(),
                });
            }
        }
        if token.is_idle() {
            token.ask(method, &mut url, &mut headers, count);
        }
        let status = self.give(token, || {
            self.call("Request", statuses::HTTP_REQUEST, || {
                // SAFETY: the loader's token.
                unsafe { ((*child).request)(child, token.raw()) }
            })
        });
        self.kept.borrow_mut().extend([url, text, headers]);
        status
    }

    pub(super) fn response(&self, child: *mut HttpProtocol, token: &Token, head: bool) -> Status {
        if token.is_idle() {
            token.await_response(head);
        } else {
            // It may have been answered, and its function not been called yet: the next answer takes the place of that one.
            token.free_headers();
        }
        self.give(token, || {
            self.call("Response", statuses::HTTP_RESPONSE, || {
                // SAFETY: the loader's token.
                unsafe { ((*child).response)(child, token.raw()) }
            })
        })
    }

    pub(super) fn cancel(&self, child: *mut HttpProtocol, token: *mut HttpToken) -> Status {
        self.call("Cancel", statuses::HTTP_CANCEL, || {
            // SAFETY: null or the loader's token.
            unsafe { ((*child).cancel)(child, token) }
        })
    }

    pub(super) fn poll(&self, child: *mut HttpProtocol) -> Status {
        self.call("Poll", statuses::HTTP_POLL, || {
            // SAFETY: the loader's child.
            unsafe { ((*child).poll)(child) }
        })
    }

    /// The loader frees all that it has, and closes its events.
    pub(super) fn free_all(&self) {
        for token in self.tokens.borrow().iter() {
            token.free();
        }
        for memory in self.kept.borrow_mut().iter_mut() {
            memory.free();
        }
        firmware::close_shared();
    }

    /// The loader returns, with tokens out or not; its memory is free, and nothing of the network stays.
    #[track_caller]
    pub(super) fn finish(&self) {
        self.check();
        self.free_all();
        self.fake.quiet();
        drop(self.resident.borrow_mut().take());
        firmware::tick();
        self.check();
        assert_eq!(firmware::open_events(), 0, "events stay");
        assert_eq!(firmware::protocols(), 0, "protocols stay");
        assert_eq!(firmware::pieces(), 0, "memory stays");
        assert_eq!(self.fake.open_exchanges(), 0, "exchanges stay");
        assert_eq!(firmware::tpl(), Tpl::APPLICATION.0);
    }

    /// What was offered, for whoever ends it by other means.
    #[cfg(test)]
    pub(super) fn take_resident(&self) -> Option<Resident> {
        self.resident.borrow_mut().take()
    }
}
