//! Conversations by DHCPv6.

use alloc::format;
use alloc::vec::Vec;

use wireboot_report::network::Dhcpv6;
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

/// A server's message to the machine.
pub(crate) fn answered(conversations: &mut [Dhcpv6], at_s: f64, message: &Message<'_>) {
    let Some(conversation) = of(conversations, message) else {
        return;
    };
    keep(&mut conversation.answered_s, at_s);
    if let Some(url) = message.options.boot_file_url() {
        conversation.boot_file = Some(text::shown(url.as_bytes()));
    }
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
