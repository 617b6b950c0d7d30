//! Calls of a bad loader, on a firmware and a network of their own. What they check they panic for:
//!
//! - nobody writes outside what the loader has given, nor there after it was given back,
//! - the task priority level is the caller's again, and was raised and restored in order,
//! - a token that was taken is signalled once, another never,
//! - a function answers what the specification lists for it,
//! - nothing stays when the loader has returned: events, protocols, memory, exchanges.
//!
//! A loader that lies about its own memory (a buffer that is shorter than it says, a pointer to nowhere) is not among them: nobody can
//! see that.

mod calls;
mod firmware;
mod input;
mod loader;
mod memory;
mod network;
mod statuses;
#[cfg(test)]
mod tests;

use core::net::Ipv4Addr;
use input::Input;
use loader::Loader;
use uefi_raw::protocol::network::http::HttpProtocol;

/// The station.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const STATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

/// Calls in a row at most.
const CALLS: usize = 64;

/// A sequence of calls: the first part of the input is what the network answers, the rest says which calls with which arguments.
pub fn fuzz_loader_calls(data: &[u8]) {
    let (script, calls) = data.split_at(data.len() / 3);
    let loader = Loader::new(script);
    let input = Input::new(calls);
    for _ in 0..CALLS {
        if input.is_empty() {
            break;
        }
        calls::step(&loader, &input, 0);
        loader.check();
    }
    calls::forget_callback(&loader);
    firmware::set_room(None);
    firmware::set_in_use(HttpProtocol::GUID, false);
    loader.finish();
}
