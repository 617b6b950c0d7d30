//! Children and tokens of EFI_HTTP_PROTOCOL.

use super::super::firmware;
use super::super::loader::{Loader, Token};
use super::heap;
use core::ffi::c_void;
use core::ptr;
use std::cell::RefCell;
use std::rc::Rc;
use uefi_raw::protocol::media::LoadFileProtocol;
use uefi_raw::protocol::network::http::{
    HttpConfigData, HttpHeader, HttpMessage, HttpProtocol, HttpRequestData, HttpToken,
};
use uefi_raw::table::boot::Tpl;
use uefi_raw::{Boolean, Handle, Status};
use wireboot_platform::image;

const URL: &str = "http://10.0.0.1/a";
/// What the network says of an exchange: it is opened, nothing comes yet.
const SILENT: &[u8] = &[0];
/// A head with two header lines, nine bytes of a body, the end of all.
const HEAD: u8 = 0x11;
const BODY: u8 = 0x0a;
const END: u8 = 7;

fn child(loader: &Loader) -> (Handle, *mut HttpProtocol) {
    let handle = loader.create(ptr::null_mut()).unwrap();
    let child = loader.child(handle);
    assert_eq!(loader.configure(child), Status::SUCCESS);
    (handle, child)
}

/// A request and two responses that wait.
fn three_tokens(loader: &Loader, child: *mut HttpProtocol) -> [Rc<Token>; 3] {
    three_tokens_at(loader, child, Tpl::CALLBACK)
}

/// The same, whose events' functions are of level `tpl`.
fn three_tokens_at(loader: &Loader, child: *mut HttpProtocol, tpl: Tpl) -> [Rc<Token>; 3] {
    let tokens = [(); 3].map(|()| loader.token_at(64, tpl));
    assert_eq!(loader.request(child, &tokens[0], URL), Status::SUCCESS);
    for token in &tokens[1..] {
        assert_eq!(loader.response(child, token, true), Status::SUCCESS);
    }
    tokens
}

fn signals(tokens: &[Rc<Token>]) -> Vec<u32> {
    tokens.iter().map(|token| token.signals.get()).collect()
}

#[test]
fn a_response_comes_with_ticks_alone() {
    let loader = Loader::new(SILENT);
    let (_, child) = child(&loader);
    let [request, first, second] = three_tokens(&loader, child);
    loader.fake.say(&[HEAD, 0, BODY]);
    firmware::tick();
    assert_eq!(signals(&[request.clone(), first.clone()]), [1, 1]);
    assert_eq!(
        (request.status(), first.status()),
        (Status::SUCCESS, Status::SUCCESS)
    );
    assert_eq!((first.length(), second.signals.get()), (9, 0));
    loader.fake.say(&[END]);
    firmware::tick();
    assert_eq!(second.signals.get(), 1);
    assert_eq!(second.length(), 0);
    // A token that was answered may be used again.
    loader.fake.say(&[0, HEAD]);
    assert_eq!(loader.request(child, &request, URL), Status::SUCCESS);
    firmware::tick();
    assert_eq!(request.signals.get(), 2);
    loader.finish();
}

#[test]
fn a_token_that_is_out_is_refused() {
    let loader = Loader::new(SILENT);
    let (_, child) = child(&loader);
    let [request, first, _] = three_tokens(&loader, child);
    assert_eq!(loader.request(child, &request, URL), Status::ACCESS_DENIED);
    assert_eq!(
        loader.response(child, &request, true),
        Status::ACCESS_DENIED
    );
    assert_eq!(loader.response(child, &first, true), Status::ACCESS_DENIED);
    loader.finish();
}

#[test]
fn a_reset_and_a_cancel_abort_each_token_once() {
    let all: [fn(&Loader, *mut HttpProtocol) -> Status; 2] = [
        |loader, child| loader.reset(child),
        |loader, child| loader.cancel(child, ptr::null_mut()),
    ];
    for end in all {
        let loader = Loader::new(SILENT);
        let (_, child) = child(&loader);
        let tokens = three_tokens(&loader, child);
        assert_eq!(end(&loader, child), Status::SUCCESS);
        assert_eq!(signals(&tokens), [1, 1, 1]);
        assert!(tokens.iter().all(|token| token.status() == Status::ABORTED));
        assert!(loader.cancel(child, tokens[0].raw()).is_error());
        loader.finish();
    }
}

/// Of memory, in bytes.
const PAGE: usize = 4096;

/// A program that ends frees its memory, and we hear of its end later: a tick may come between.
#[test]
fn tokens_of_a_program_that_has_ended_are_forgotten() {
    let end: [fn(&Loader, &Token); 3] = [
        |loader, _| loader.free_all(),
        // As they were, and free.
        |_, token| firmware::set_free(token.raw().addr()),
        |_, token| firmware::set_free(token.body_at() + PAGE),
    ];
    for end in end {
        let loader = Loader::new(SILENT);
        let (_, child) = child(&loader);
        let tokens = [64, 3 * PAGE, 64].map(|body| loader.token(body));
        assert_eq!(loader.request(child, &tokens[0], URL), Status::SUCCESS);
        for token in &tokens[1..] {
            assert_eq!(loader.response(child, token, true), Status::SUCCESS);
        }
        end(&loader, &tokens[1]);
        loader.fake.say(&[HEAD, 0, BODY, END]);
        firmware::tick();
        firmware::tick();
        assert_eq!(signals(&tokens), [0, 0, 0]);
        loader.check();
        loader.finish();
    }
}

/// Its image has no protocol any more, and we have not heard of its end.
#[test]
fn tokens_of_a_program_that_is_being_unloaded_are_forgotten() {
    let loader = Loader::new(SILENT);
    let (handle, child) = child(&loader);
    let tokens = three_tokens(&loader, child);
    loader.fake.say(&[HEAD, 0, BODY, END]);
    image::set_started(handle);
    firmware::tick();
    image::set_started(ptr::null_mut());
    firmware::tick();
    assert_eq!(signals(&tokens), [0, 0, 0]);
    loader.finish();
}

/// LoadFile of the loader's own file.
fn load_file(_: &Loader) -> Status {
    let files = firmware::find(&LoadFileProtocol::GUID);
    let file: *mut LoadFileProtocol = files[0].1.cast();
    let end = [0x7f_u8, 0xff, 4, 0];
    let mut bytes = [0_u8; 64];
    let (path, mut size, at) = (end.as_ptr().cast(), 64, bytes.as_mut_ptr().cast());
    // SAFETY: the installed table, and this function's variables.
    unsafe { ((*file).load_file)(file, path, Boolean::TRUE, &raw mut size, at) }
}

fn dhcp(loader: &Loader) -> Status {
    loader.fake.begin_call();
    // SAFETY: the installed table.
    unsafe { ((*loader.base_code).dhcp)(loader.base_code, Boolean::FALSE) }
}

/// No tick comes in the middle of a call, and the network may write to their memory in each of its turns.
#[test]
fn tokens_of_a_program_that_has_ended_are_forgotten_before_a_call_turns_the_network() {
    type Call = fn(&Loader) -> Status;
    let calls: [(Call, Status); 2] = [(load_file, Status::SUCCESS), (dhcp, Status::TIMEOUT)];
    for (call, answer) in calls {
        let loader = Loader::new(SILENT);
        let (_, child) = child(&loader);
        let tokens = three_tokens(&loader, child);
        loader.free_all();
        let (fake, open) = (loader.fake.clone(), Rc::new(RefCell::new(Vec::new())));
        let seen = open.clone();
        loader
            .fake
            .interrupt(move || seen.borrow_mut().push(fake.open_exchanges()));
        assert_eq!(call(&loader), answer);
        assert_eq!(open.borrow().first(), Some(&0));
        assert_eq!(signals(&tokens), [0, 0, 0]);
        loader.fake.interrupt(|| {});
        loader.finish();
    }
}

#[test]
fn a_child_goes_on_for_the_next_program() {
    let loader = Loader::new(SILENT);
    let (_, child) = child(&loader);
    three_tokens(&loader, child);
    loader.free_all();
    firmware::tick();
    let token = loader.token(64);
    assert_eq!(loader.request(child, &token, URL), Status::SUCCESS);
    loader.fake.say(&[HEAD]);
    firmware::tick();
    assert_eq!(token.signals.get(), 1);
    loader.finish();
}

/// What has tokens answered for which something has come.
const ANSWERS: [fn(&Loader, *mut HttpProtocol); 2] = [
    |_, _| firmware::tick(),
    |loader, child| assert_eq!(loader.poll(child), Status::SUCCESS),
];

/// Its memory is the program's own again.
#[test]
fn a_token_that_was_answered_may_be_freed() {
    for answer in ANSWERS {
        let loader = Loader::new(SILENT);
        let (_, child) = child(&loader);
        let tokens = three_tokens(&loader, child);
        loader.fake.say(&[HEAD, 0, BODY]);
        answer(&loader, child);
        assert_eq!(signals(&tokens), [1, 1, 0]);
        tokens[..2].iter().for_each(|token| token.free());
        loader.fake.say(&[END]);
        firmware::tick();
        assert_eq!(signals(&tokens), [1, 1, 1]);
        loader.finish();
    }
}

/// When DestroyChild has returned, the loader frees all that the child had, and closes the events: none may be signalled afterwards.
#[test]
fn a_child_may_be_destroyed_by_the_function_of_its_first_token() {
    let loader = Loader::new(SILENT);
    let (handle, child) = child(&loader);
    let tokens = three_tokens(&loader, child);
    let (weak, done) = (Rc::downgrade(&loader), Rc::new(RefCell::new(None)));
    let status = done.clone();
    tokens[0].on_signal(move || {
        let loader = weak.upgrade().unwrap();
        *status.borrow_mut() = Some(loader.destroy(handle));
        loader.free_all();
    });
    // The request and both responses are answered at once.
    loader.fake.say(&[HEAD, END]);
    firmware::tick();
    assert_eq!(*done.borrow(), Some(Status::SUCCESS));
    assert!(loader.child(handle).is_null());
    loader.check();
    // The same within a call.
    let (handle, child) = super::http::child(&loader);
    loader.fake.say(SILENT);
    let tokens = three_tokens(&loader, child);
    let weak = Rc::downgrade(&loader);
    tokens[0].on_signal(move || {
        let loader = weak.upgrade().unwrap();
        assert_eq!(loader.destroy(handle), Status::SUCCESS);
        loader.free_all();
    });
    loader.fake.say(&[HEAD, END]);
    assert_eq!(loader.poll(child), Status::SUCCESS);
    loader.finish();
}

/// A function at TPL_NOTIFY runs as soon as its event is signalled below that. The first one frees all tokens, and closes the other events.
#[test]
fn all_are_answered_and_signalled_before_a_function_at_tpl_notify_runs() {
    for answer in ANSWERS {
        let loader = Loader::new(SILENT);
        let (_, child) = child(&loader);
        let tokens = three_tokens_at(&loader, child, Tpl::NOTIFY);
        let weak = Rc::downgrade(&loader);
        tokens[0].on_signal(move || weak.upgrade().unwrap().free_all());
        loader.fake.say(&[HEAD, END]);
        answer(&loader, child);
        assert_eq!(signals(&tokens), [1, 0, 0]);
        loader.finish();
    }
}

#[test]
fn a_loader_may_return_with_tokens_out() {
    let loader = Loader::new(SILENT);
    let (_, child) = child(&loader);
    let tokens = three_tokens(&loader, child);
    loader.fake.say(&[HEAD]);
    firmware::tick();
    loader.finish();
    assert_eq!(signals(&tokens), [1, 0, 0]);
}

#[test]
fn a_thousand_children_leave_no_memory() {
    let loader = Loader::new(SILENT);
    let cycle = |count: usize| {
        let children: Vec<Handle> = (0..count)
            .map(|_| loader.create(ptr::null_mut()).unwrap())
            .collect();
        for child in children {
            assert_eq!(loader.destroy(child), Status::SUCCESS);
        }
    };
    firmware::reserve();
    let before = heap::used();
    cycle(1000);
    assert_eq!(heap::used(), before);
    loader.finish();
}

#[test]
fn there_is_an_end_of_children() {
    let loader = Loader::new(SILENT);
    let made = (0..5000).filter(|_| loader.create(ptr::null_mut()).is_ok());
    assert_eq!(made.count(), 4096);
    assert_eq!(
        loader.create(ptr::null_mut()),
        Err(Status::OUT_OF_RESOURCES)
    );
    loader.finish();
}

#[test]
fn a_child_that_somebody_uses_stays() {
    let loader = Loader::new(SILENT);
    let (handle, child) = child(&loader);
    let tokens = three_tokens(&loader, child);
    firmware::set_in_use(HttpProtocol::GUID, true);
    assert_eq!(loader.destroy(handle), Status::ACCESS_DENIED);
    assert_eq!(signals(&tokens), [0, 0, 0]);
    loader.fake.say(&[HEAD, END]);
    assert_eq!(loader.poll(child), Status::SUCCESS);
    assert_eq!(signals(&tokens), [1, 1, 1]);
    firmware::set_in_use(HttpProtocol::GUID, false);
    assert_eq!(loader.destroy(handle), Status::SUCCESS);
    assert_eq!(loader.destroy(handle), Status::UNSUPPORTED);
    loader.finish();
}

#[test]
fn a_child_where_none_can_be_is_refused() {
    let loader = Loader::new(SILENT);
    let (handle, _) = child(&loader);
    let nowhere: *mut c_void = ptr::without_provenance_mut(0x7777_0000);
    for on in [nowhere, handle] {
        assert_eq!(loader.create(on), Err(Status::INVALID_PARAMETER));
    }
    firmware::set_room(Some(0));
    assert_eq!(
        loader.create(ptr::null_mut()),
        Err(Status::OUT_OF_RESOURCES)
    );
    firmware::set_room(None);
    assert_eq!(
        loader.create(loader.base_code_handle),
        Ok(loader.base_code_handle)
    );
    assert_eq!(loader.destroy(loader.base_code_handle), Status::SUCCESS);
    loader.finish();
}

/// Header lines come whole or not at all, and nothing is lost.
#[test]
fn a_firmware_without_memory_for_header_lines_leaves_none() {
    for room in 0..=5 {
        let loader = Loader::new(SILENT);
        let (_, child) = child(&loader);
        let [_, first, _] = three_tokens(&loader, child);
        loader.fake.say(&[HEAD, 0, BODY]);
        firmware::set_room(Some(room));
        firmware::tick();
        firmware::set_room(None);
        let expected = if room < 5 {
            Status::OUT_OF_RESOURCES
        } else {
            Status::SUCCESS
        };
        assert_eq!(
            (first.signals.get(), first.status()),
            (1, expected),
            "{room}"
        );
        loader.finish();
    }
}

/// Neither a copy of a child's table nor that of a child which is no more leads anywhere.
#[test]
fn what_is_no_child_is_refused() {
    let loader = Loader::new(SILENT);
    let (handle, child) = child(&loader);
    // SAFETY: the child's own table, which lives until it is destroyed.
    let functions = unsafe { [(*child).poll] };
    // SAFETY: a copy of the bytes.
    let copy = unsafe { core::mem::ManuallyDrop::new(child.read()) };
    let copy: *const HttpProtocol = &raw const *copy;
    let polls = |this: *mut HttpProtocol| {
        // SAFETY: any address may be given.
        unsafe { functions[0](this) }
    };
    assert_eq!(polls(copy.cast_mut()), Status::INVALID_PARAMETER);
    assert_eq!(polls(ptr::null_mut()), Status::INVALID_PARAMETER);
    assert_eq!(polls(child), Status::SUCCESS);
    assert_eq!(loader.destroy(handle), Status::SUCCESS);
    assert_eq!(polls(child), Status::INVALID_PARAMETER);
    loader.finish();
    assert_eq!(polls(child), Status::INVALID_PARAMETER);
}

/// Requests of which something cannot be.
#[test]
fn odd_requests_are_refused() {
    let loader = Loader::new(SILENT);
    let (_, child) = child(&loader);
    let url: Vec<u16> = URL.encode_utf16().chain([0]).collect();
    let endless = vec![u16::from(b'a'); 0x4001];
    let long = vec![b'a'; 0x4001];
    let header = |text: &[u8]| HttpHeader {
        field_name: text.as_ptr().cast(),
        field_value: text.as_ptr().cast(),
    };
    let (good, bad, null) = (header(b"Name\0"), header(&long), HttpHeader::default());
    let ask = |url: *const u16, header: *const HttpHeader, count, body: *mut c_void, length| {
        let data = HttpRequestData {
            url: url.cast(),
            ..HttpRequestData::default()
        };
        let mut message = HttpMessage {
            header_count: count,
            header: header.cast_mut(),
            body_length: length,
            body,
            ..HttpMessage::default()
        };
        message.data.request = &raw const data;
        let mut token = HttpToken {
            message: &raw mut message,
            ..HttpToken::default()
        };
        // SAFETY: the token is not taken, or aborted at once; it has no event.
        unsafe {
            let status = ((*child).request)(child, &raw mut token);
            let _ = ((*child).cancel)(child, ptr::null_mut());
            status
        }
    };
    let null_body = ptr::null_mut();
    let of = |url: *const u16| ask(url, ptr::null(), 0, null_body, 0);
    let with_header =
        |header: *const HttpHeader, count| ask(url.as_ptr(), header, count, null_body, 0);
    let with_body = |body, length| ask(url.as_ptr(), ptr::null(), 0, body, length);
    assert_eq!(of(url.as_ptr()), Status::SUCCESS);
    assert_eq!(with_header(&raw const good, 1), Status::SUCCESS);
    let odd = (&raw const good)
        .cast::<u8>()
        .wrapping_add(1)
        .cast::<HttpHeader>();
    let body: *mut c_void = ptr::without_provenance_mut(0x1000);
    for status in [
        of(ptr::null()),
        of(endless.as_ptr()),
        with_header(ptr::null(), 1),
        with_header(&raw const bad, 1),
        with_header(&raw const null, 1),
        with_header(odd, 1),
        with_header(&raw const good, 129),
        with_header(&raw const good, usize::MAX),
        with_body(ptr::null_mut(), 1),
        with_body(body, (16 << 20) + 1),
        with_body(body, usize::MAX),
        with_body(ptr::without_provenance_mut(usize::MAX - 5), 7),
    ] {
        assert_eq!(status, Status::INVALID_PARAMETER);
    }
    // Tokens and messages that are not aligned, or none.
    let mut message = HttpMessage::default();
    let mut token = HttpToken::default();
    let skewed = |at: *mut HttpToken| at.cast::<u8>().wrapping_add(1).cast::<HttpToken>();
    // SAFETY: refused before anything else is read.
    unsafe {
        let (request, response) = ((*child).request, (*child).response);
        for function in [request, response] {
            assert_eq!(function(child, ptr::null_mut()), Status::INVALID_PARAMETER);
            assert_eq!(function(child, &raw mut token), Status::INVALID_PARAMETER);
            assert_eq!(
                function(child, skewed(&raw mut token)),
                Status::INVALID_PARAMETER
            );
        }
        token.message = (&raw mut message).cast::<u8>().wrapping_add(1).cast();
        assert_eq!(response(child, &raw mut token), Status::INVALID_PARAMETER);
        message.body_length = 8;
        token.message = &raw mut message;
        assert_eq!(response(child, &raw mut token), Status::INVALID_PARAMETER);
    }
    loader.finish();
}

#[test]
fn a_configuration_is_told_where_there_is_a_place_for_it() {
    let loader = Loader::new(SILENT);
    let (_, child) = child(&loader);
    let mut data = HttpConfigData::default();
    // SAFETY: the loader's variables.
    unsafe {
        let told = (*child).get_mode_data;
        assert_eq!(told(child, ptr::null_mut()), Status::INVALID_PARAMETER);
        assert_eq!(told(child, &raw mut data), Status::INVALID_PARAMETER);
        let mut point = uefi_raw::protocol::network::http::HttpV4AccessPoint::default();
        data.access_point.ipv4_node = &raw mut point;
        assert_eq!(told(child, &raw mut data), Status::SUCCESS);
        assert_eq!(u8::from(bool::from(point.use_default_addr)), 1);
    }
    loader.finish();
}

/// A notify function at TPL_NOTIFY, as some loaders have, calls in the middle of another call.
#[test]
fn a_call_in_the_middle_of_another_is_refused() {
    let loader = Loader::new(SILENT);
    let (handle, child) = child(&loader);
    let _tokens = three_tokens(&loader, child);
    let (weak, said) = (Rc::downgrade(&loader), Rc::new(RefCell::new(Vec::new())));
    let inner = said.clone();
    let child_at = child.addr();
    loader.fake.interrupt(move || {
        let loader = weak.upgrade().unwrap();
        let child = ptr::with_exposed_provenance_mut(child_at);
        firmware::at(Tpl::NOTIFY, || {
            let mut said = inner.borrow_mut();
            said.push(loader.poll(child));
            said.push(loader.reset(child));
            said.push(loader.destroy(handle));
            said.push(loader.create(ptr::null_mut()).unwrap_err());
        });
    });
    let _ = child.expose_provenance();
    assert_eq!(loader.poll(child), Status::SUCCESS);
    let said = said.borrow();
    assert!(!said.is_empty());
    for four in said.chunks(4) {
        let (denied, not_ready) = (Status::ACCESS_DENIED, Status::NOT_READY);
        assert_eq!(four, [denied, denied, not_ready, not_ready]);
    }
    loader.fake.interrupt(|| {});
    loader.finish();
}
