//! EFI_HTTP_PROTOCOL: the tables of the children, and their callers' tokens.

mod answer;
mod caller;

use crate::caller::{Buffer, structure};
use crate::handle::Installed;
use crate::http_children::{Child, Children, GivenToken, GivenTokens};
use crate::service_binding::HttpServiceBinding;
use crate::shared::{ProtocolState, SharedProtocolState};
use crate::signal::signal_all;
use crate::status::{denied, status};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr::NonNull;
use uefi::Handle;
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::protocol::network::http::{HttpConfigData, HttpProtocol, HttpToken};
use uefi_raw::{Handle as RawHandle, Status};
use wireboot_net::{Duration, Memory};
use wireboot_platform::image;
use wireboot_protocols::Refusal;
use wireboot_protocols::http::{Answer, Http};

/// How long a call waits for what may be about to come.
const LINGER: Duration = Duration::from_micros(200);
/// The same for a poll, whose caller has nothing else to do: FreeBSD's loader polls again after a tenth of a second only.
const POLL_LINGER: Duration = Duration::from_millis(10);
/// Children at most: they take memory.
const MOST_CHILDREN: usize = 4096;

/// The functions of EFI_HTTP_SERVICE_BINDING_PROTOCOL.
pub(crate) const BINDING: ServiceBindingProtocol = ServiceBindingProtocol {
    create_child,
    destroy_child,
};

unsafe extern "efiapi" fn create_child(
    this: *mut ServiceBindingProtocol,
    handle: *mut RawHandle,
) -> Status {
    let Some(shared) = HttpServiceBinding::at(this).filter(|_| !handle.is_null()) else {
        return Status::INVALID_PARAMETER;
    };
    // SAFETY: the caller's variable.
    unsafe {
        match create(shared, handle.read_unaligned()) {
            Ok(child) => {
                handle.write_unaligned(child);
                Status::SUCCESS
            }
            Err(status) => status,
        }
    }
}

unsafe extern "efiapi" fn destroy_child(
    this: *mut ServiceBindingProtocol,
    handle: RawHandle,
) -> Status {
    match HttpServiceBinding::at(this) {
        Some(shared) if !handle.is_null() => destroy(shared, handle),
        _ => Status::INVALID_PARAMETER,
    }
}

/// A new child, on `handle` if it is not null.
fn create(shared: &'static SharedProtocolState, handle: RawHandle) -> Result<RawHandle, Status> {
    // A call that is at work would be in the way at the end.
    let call = shared.call().map_err(status)?;
    if call.state.http.all.len() >= MOST_CHILDREN {
        return Err(Status::OUT_OF_RESOURCES);
    }
    drop(call);
    let table = NonNull::from(Box::leak(Box::new(HttpProtocol {
        get_mode_data,
        configure,
        request,
        cancel,
        response,
        poll,
    })));
    // SAFETY: the caller's handle, or none.
    let on = unsafe { Handle::from_ptr(handle) };
    let protocol = (HttpProtocol::GUID, table.as_ptr().cast_const().cast());
    // SAFETY: the table lives as long as the protocol is installed.
    let installed = unsafe { Installed::on(on, &[protocol]) };
    let free = || {
        // SAFETY: leaked above, and not installed.
        drop(unsafe { Box::from_raw(table.as_ptr()) });
    };
    let mut installed = installed.map_err(|error| {
        free();
        error.status()
    })?;
    let handle = installed.handle().as_ptr();
    if let Ok(mut call) = shared.call() {
        call.state.http.all.push(Child {
            installed,
            table,
            http: Http::default(),
            given: GivenTokens::default(),
        });
        return Ok(handle);
    }
    if installed.remove() {
        free();
    }
    Err(Status::NOT_READY)
}

/// The end of the child on `handle`: its tokens are aborted.
fn destroy(shared: &SharedProtocolState, handle: RawHandle) -> Status {
    let mut call = match shared.call() {
        Ok(call) => call,
        Err(refusal) => return status(refusal),
    };
    let children = &mut call.state.http.all;
    let is = |child: &Child| child.installed.handle().as_ptr() == handle;
    let Some(index) = children.iter().position(is) else {
        return Status::UNSUPPORTED;
    };
    let mut child = children.swap_remove(index);
    if children.is_empty() {
        // Its memory, too.
        *children = Vec::new();
    }
    drop(call);
    // The firmware refuses while somebody has it open for good.
    let removed = child.installed.remove();
    let Ok(mut call) = shared.call() else {
        return Status::NOT_READY;
    };
    if !removed {
        call.state.http.all.push(child);
        return Status::ACCESS_DENIED;
    }
    let answers = child.http.abort(&mut *call.state.network);
    // SAFETY: leaked by `create`, and installed no more.
    drop(unsafe { Box::from_raw(child.table.as_ptr()) });
    call.end(answer::write_all(answers));
    Status::SUCCESS
}

/// The loader has returned: its children go, and nothing of its tokens is touched, as their memory may be free. False when one stays.
///
/// # Safety
/// As for [`SharedProtocolState::afterwards`].
pub(crate) unsafe fn drop_children(shared: &SharedProtocolState) -> bool {
    // SAFETY: the caller's word.
    let children = unsafe {
        shared.afterwards(|state, panicked| {
            let mut children = core::mem::take(&mut state.http.all);
            if !panicked {
                for child in &mut children {
                    drop(child.http.abort(&mut *state.network));
                }
            }
            children
        })
    };
    let mut gone = true;
    for mut child in children {
        if child.installed.remove() {
            // SAFETY: leaked by `create`, and installed no more.
            drop(unsafe { Box::from_raw(child.table.as_ptr()) });
        } else {
            gone = false;
        }
    }
    gone
}

/// Forgets the tokens of programs that have ended, whose memory may be free before we hear of their end. For the timer's function, and for
/// calls that may be long, as no tick comes in their middle: before the network writes to memory of theirs.
pub(crate) fn forget_ended(state: &mut ProtocolState) {
    let ProtocolState { network, http, .. } = state;
    let Children { all, free } = http;
    let mut with_tokens = all.iter_mut().filter(|child| !child.given.is_empty());
    let Some(first) = with_tokens.next() else {
        return;
    };
    free.refresh();
    let has_ended = image::started_has_ended();
    for child in core::iter::once(first).chain(with_tokens) {
        if has_ended || child.given.are_gone(free) {
            drop(child.http.abort(&mut **network));
            child.given.clear();
        }
    }
}

/// Answers the tokens for which something has come, while nobody calls. For the timer's function, at TPL_CALLBACK.
pub(crate) fn advance_all(shared: &SharedProtocolState) {
    let Some(mut state) = shared.state() else {
        return;
    };
    let ProtocolState { network, http, .. } = &mut *state;
    let mut events = Vec::new();
    for child in &mut http.all {
        let answers = child.http.advance(&mut **network);
        child.given.answered(&answers);
        events.extend(answer::write_all(answers));
    }
    drop(state);
    signal_all(events);
}

/// Does `work` with a child, and ends the call with the answers that it has.
fn with(
    this: *const HttpProtocol,
    work: impl FnOnce(&mut Http, &mut ProtocolState) -> Result<Vec<Answer>, Status>,
) -> Status {
    with_token(this, None, work)
}

/// The same, and `work` gives a token to the child.
fn with_token(
    this: *const HttpProtocol,
    given: Option<GivenToken>,
    work: impl FnOnce(&mut Http, &mut ProtocolState) -> Result<Vec<Answer>, Status>,
) -> Status {
    let Some(shared) = HttpServiceBinding::offered().filter(|_| !this.is_null()) else {
        return Status::INVALID_PARAMETER;
    };
    let mut call = match shared.call() {
        Ok(call) => call,
        Err(refusal) => return denied(refusal),
    };
    // Only what is a child's table is one: a copy is not, nor one whose child was destroyed.
    let Some(child) = call.state.http.find(this) else {
        return Status::INVALID_PARAMETER;
    };
    let mut http = core::mem::take(&mut child.http);
    let result = work(&mut http, &mut call.state);
    if let Some(child) = call.state.http.find(this) {
        child.http = http;
        if let Ok(answers) = &result {
            given.into_iter().for_each(|given| child.given.push(given));
            child.given.answered(answers);
        }
    }
    match result {
        Ok(answers) => {
            call.end(answer::write_all(answers));
            Status::SUCCESS
        }
        Err(status) => status,
    }
}

/// Takes what has come and what comes in a moment.
fn linger(http: &mut Http, state: &mut ProtocolState, moment: Duration) -> Vec<Answer> {
    let mut until = None;
    loop {
        // What was read ahead is there without a look at the network.
        let answers = http.advance(&mut *state.network);
        let now = state.network.now();
        let over = now >= *until.get_or_insert(now + moment);
        if over || !answers.is_empty() || !http.waits() {
            return answers;
        }
        state.network.turn();
        if http.waits_for_much() {
            state.network.idle();
        }
    }
}

fn refused<T>(result: Result<T, Refusal>) -> Result<T, Status> {
    result.map_err(status)
}

unsafe extern "efiapi" fn get_mode_data(
    this: *const HttpProtocol,
    data: *mut HttpConfigData,
) -> Status {
    if data.is_null() || !data.is_aligned() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller's variable, and a pointer of either version.
    if unsafe { (*data).access_point.ipv4_node.is_null() } {
        return Status::INVALID_PARAMETER;
    }
    with(this, |http, _| {
        let config = refused(http.mode())?;
        // SAFETY: the caller's variable.
        unsafe { caller::tell(data, &config)? };
        Ok(Vec::new())
    })
}

unsafe extern "efiapi" fn configure(
    this: *mut HttpProtocol,
    data: *const HttpConfigData,
) -> Status {
    // SAFETY: null or the caller's data, with its access point.
    let config = unsafe { caller::config(data) };
    if config.is_none() && !data.is_null() {
        return Status::INVALID_PARAMETER;
    }
    with(this, |http, state| {
        let ours = state.ip.iter().flat_map(|ip| &ip.settings().addresses);
        let ours: Vec<IpAddr> = ours.map(|(address, _)| *address).collect();
        refused(http.configure(config, &ours, &mut *state.network))
    })
}

unsafe extern "efiapi" fn request(this: *mut HttpProtocol, token: *mut HttpToken) -> Status {
    // SAFETY: null or the caller's token, message, request, header lines and body, which stay as they are during the call.
    let Some(asked) = (unsafe { caller::Request::read(token) }) else {
        return Status::INVALID_PARAMETER;
    };
    // SAFETY: it was just read.
    let given = unsafe { GivenToken::read(token) };
    with_token(this, Some(given), |http, state| {
        let number = token.expose_provenance();
        refused(http.request(number, &asked.asked(), &mut *state.network))?;
        Ok(linger(http, state, LINGER))
    })
}

unsafe extern "efiapi" fn response(this: *mut HttpProtocol, token: *mut HttpToken) -> Status {
    // SAFETY: null or the caller's token with its message.
    let message = unsafe { structure(token).and_then(|token| structure(token.message)) };
    let Some(message) = message else {
        return Status::INVALID_PARAMETER;
    };
    // SAFETY: a pointer either way.
    let wants_head = unsafe { !message.data.response.is_null() };
    let body = if message.body_length == 0 {
        None
    } else {
        // SAFETY: the caller's buffer, which it leaves to us until its token is answered.
        match unsafe { Buffer::new(message.body, message.body_length as u64) } {
            Some(buffer) => Some(Memory::new(buffer)),
            None => return Status::INVALID_PARAMETER,
        }
    };
    // SAFETY: the caller's token, whose message was just read.
    let given = unsafe { GivenToken::read(token) };
    with_token(this, Some(given), |http, state| {
        refused(http.response(token.expose_provenance(), wants_head, body))?;
        Ok(linger(http, state, LINGER))
    })
}

unsafe extern "efiapi" fn cancel(this: *mut HttpProtocol, token: *mut HttpToken) -> Status {
    with(this, |http, state| {
        let token = (!token.is_null()).then(|| token.expose_provenance());
        refused(http.cancel(token, &mut *state.network))
    })
}

/// The specification has NOT_READY for a call that found nothing to do. EDK II answers SUCCESS, and there are callers, FreeBSD's loader among
/// them, that take all else for the end of their request.
unsafe extern "efiapi" fn poll(this: *mut HttpProtocol) -> Status {
    with(this, |http, state| {
        refused(http.mode())?;
        state.network.turn();
        Ok(linger(http, state, POLL_LINGER))
    })
}
