//! Conversations by DHCPv6.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use wireboot_report::network::{Dhcpv6, Dhcpv6Answer};
use wireboot_wire::dhcpv6::{Message, MessageType};
use wireboot_wire::text;

use crate::keep;

/// A message of the machine's to servers.
pub(crate) fn asked(conversations: &mut Vec<Dhcpv6>, at_s: f64, message: &Message<'_>) {
    match of(conversations, message) {
        Some(conversation) => keep(&mut conversation.asked_s, at_s),
        None => keep(
            conversations,
            Dhcpv6 {
                xid: message.transaction_id,
                kind: name(message.kind),
                asked_s: [at_s].into(),
                ..Dhcpv6::default()
            },
        ),
    }
}

/// A message to the machine of a server, or a relay, at this address.
pub(crate) fn answered(
    conversations: &mut [Dhcpv6],
    at_s: f64,
    server: IpAddr,
    message: &Message<'_>,
) {
    let Some(conversation) = of(conversations, message) else {
        return;
    };
    keep(&mut conversation.answered_s, at_s);
    let options = message.options;
    let boot_file = options
        .boot_file_url()
        .map(String::from)
        .or_else(|| options.unreadable_boot_file_url())
        .map(|url| text::shown(url.as_bytes()));
    if boot_file.is_some() {
        conversation.boot_file.clone_from(&boot_file);
    }
    let asked = conversation.asked_s.last();
    let mut associations = options.ia_na();
    let answer = Dhcpv6Answer {
        at_s,
        delay_s: asked.map(|asked| at_s - asked),
        kind: name(message.kind),
        server: server.to_string(),
        preference: options.preference(),
        address: associations
            .find_map(|ia| ia.options.ia_addresses().next())
            .map(|one| one.address.to_string()),
        boot_file,
    };
    keep(&mut conversation.answers, answer);
}

fn of<'a>(conversations: &'a mut [Dhcpv6], message: &Message<'_>) -> Option<&'a mut Dhcpv6> {
    conversations
        .iter_mut()
        .rev()
        .find(|one| one.xid == message.transaction_id)
}

/// As RFC 8415 writes it.
fn name(kind: MessageType) -> alloc::string::String {
    match kind {
        MessageType::InformationRequest => "Information-request".into(),
        kind => format!("{kind:?}"),
    }
}
