//! Names that were looked up by DNS (RFC 1035).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use smoltcp::wire::{DnsPacket, DnsQuestion};
use wireboot_report::network::NameQuery;

use crate::keep;

/// UDP port of DNS servers.
pub(crate) const PORT: u16 = 53;

/// The machine asks `server`. The same question to the same server is a repetition.
pub(crate) fn asked(queries: &mut Vec<NameQuery>, at_s: f64, server: IpAddr, payload: &[u8]) {
    let Some(name) = question(payload) else {
        return;
    };
    match open(queries, server, &name) {
        Some(query) => keep(&mut query.asked_s, at_s),
        None => keep(
            queries,
            NameQuery {
                name,
                server: server.to_string(),
                asked_s: [at_s].into(),
                answered_s: None,
            },
        ),
    }
}

/// An answer of `server` ends the oldest question to it with the same name.
pub(crate) fn answered(queries: &mut [NameQuery], at_s: f64, server: IpAddr, payload: &[u8]) {
    if let Some(query) = question(payload).and_then(|name| open(queries, server, &name)) {
        query.answered_s = Some(at_s);
    }
}

fn open<'a>(queries: &'a mut [NameQuery], server: IpAddr, name: &str) -> Option<&'a mut NameQuery> {
    let server = server.to_string();
    queries
        .iter_mut()
        .find(|one| one.answered_s.is_none() && one.server == server && one.name == name)
}

/// The name in a message's first question.
fn question(payload: &[u8]) -> Option<String> {
    let message = DnsPacket::new_checked(payload).ok()?;
    if message.question_count() == 0 {
        return None;
    }
    let (_, question) = DnsQuestion::parse(message.payload()).ok()?;
    let mut name = String::new();
    for label in message.parse_name(question.name) {
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&wireboot_wire::text::shown(label.ok()?));
    }
    Some(name)
}
