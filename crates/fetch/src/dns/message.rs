//! Questions and answers as they lie in packets.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use smoltcp::wire::{
    DnsFlags, DnsOpcode, DnsPacket, DnsQueryType, DnsQuestion, DnsRcode, DnsRecord, DnsRecordData,
    DnsRepr,
};

/// Longest name in an answer or question, in bytes with the lengths of its labels (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 255;
const MAX_LABEL: usize = 63;

/// A name as it lies in a packet, without compression and in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) Vec<u8>);

impl Name {
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let graphic = text.bytes().all(|b| b.is_ascii_graphic());
        let labels = text.split('.').map(str::as_bytes);
        graphic.then(|| Self::from_labels(labels)).flatten()
    }

    pub(super) fn from_labels<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut name = Vec::new();
        for label in labels {
            if label.is_empty()
                || label.len() > MAX_LABEL
                || name.len() + label.len() + 2 > MAX_NAME
            {
                return None;
            }
            name.push(label.len() as u8);
            name.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        name.push(0);
        Some(Self(name))
    }

    /// The name that begins at the first of `bytes`, a part of `packet`. Its pointers can only lead back, so this ends.
    pub(super) fn parse(packet: &DnsPacket<&[u8]>, bytes: &[u8]) -> Option<Self> {
        let mut whole = true;
        let labels = packet.parse_name(bytes).map_while(|label| {
            whole &= label.is_ok();
            label.ok()
        });
        Self::from_labels(labels).filter(|_| whole)
    }
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Addresses(Vec<IpAddr>),
    /// The name is another's alias, and that one's addresses are not in the answer.
    Alias(Name),
    NoAddress,
    NotFound,
    Failed(String),
}

pub(super) fn question(id: u16, name: &Name, record: DnsQueryType) -> Vec<u8> {
    let repr = DnsRepr {
        transaction_id: id,
        opcode: DnsOpcode::Query,
        flags: DnsFlags::RECURSION_DESIRED,
        question: DnsQuestion {
            name: &name.0,
            type_: record,
        },
    };
    let mut bytes = alloc::vec![0; repr.buffer_len()];
    repr.emit(&mut DnsPacket::new_unchecked(bytes.as_mut_slice()));
    bytes
}

/// What `bytes` answer to the question for `name` with this ID; `None` if they are no answer to it.
pub(super) fn parse_answer(
    bytes: &[u8],
    id: u16,
    name: &Name,
    record: DnsQueryType,
) -> Option<Answer> {
    let packet = DnsPacket::new_checked(bytes).ok()?;
    let ours = packet.transaction_id() == id
        && packet.flags().contains(DnsFlags::RESPONSE)
        && packet.opcode() == DnsOpcode::Query
        && packet.question_count() == 1;
    if !ours {
        return None;
    }
    let (mut rest, question) = DnsQuestion::parse(packet.payload()).ok()?;
    if question.type_ != record || Name::parse(&packet, question.name)? != *name {
        return None;
    }
    match packet.rcode() {
        DnsRcode::NoError => {}
        DnsRcode::NXDomain => return Some(Answer::NotFound),
        DnsRcode::ServFail => return Some(Answer::Failed("SERVFAIL".to_owned())),
        DnsRcode::Refused => return Some(Answer::Failed("REFUSED".to_owned())),
        other => return Some(Answer::Failed(format!("with code {}", u8::from(other)))),
    }
    let mut addresses = Vec::new();
    let mut aliases = Vec::new();
    for _ in 0..packet.answer_record_count() {
        // A record that cannot be read ends the answer: it was cut off. Those before it hold.
        let Ok((after, found)) = DnsRecord::parse(rest) else {
            break;
        };
        rest = after;
        let Some(owner) = Name::parse(&packet, found.name) else {
            break;
        };
        match found.data {
            DnsRecordData::A(address) if record == DnsQueryType::A => {
                addresses.push((owner, IpAddr::V4(address)))
            }
            DnsRecordData::Aaaa(address) if record == DnsQueryType::Aaaa => {
                addresses.push((owner, IpAddr::V6(address)))
            }
            DnsRecordData::Cname(target) => match Name::parse(&packet, target) {
                Some(target) => aliases.push((owner, target)),
                None => break,
            },
            _ => {}
        }
    }
    // The aliases may be in any order; each leads on at most once, so a circle ends.
    let mut current = name.clone();
    while let Some(at) = aliases.iter().position(|(owner, _)| *owner == current) {
        (_, current) = aliases.swap_remove(at);
    }
    addresses.retain(|(owner, _)| *owner == current);
    if !addresses.is_empty() {
        Some(Answer::Addresses(
            addresses.into_iter().map(|(_, address)| address).collect(),
        ))
    } else if current != *name {
        Some(Answer::Alias(current))
    } else if packet.flags().contains(DnsFlags::TRUNCATED) {
        Some(Answer::Failed("more than fits a datagram".to_owned()))
    } else {
        Some(Answer::NoAddress)
    }
}

/// Body of a fuzz target: an answer to the question that the packet itself holds, read as a resolver would.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_dns(data: &[u8]) {
    let Ok(packet) = DnsPacket::new_checked(data) else {
        return;
    };
    let Ok((_, asked)) = DnsQuestion::parse(packet.payload()) else {
        return;
    };
    let Some(name) = Name::parse(&packet, asked.name) else {
        return;
    };
    let id = packet.transaction_id();
    let record = asked.type_;
    assert_eq!(
        parse_answer(data, !id, &name, record),
        None,
        "an answer to another question"
    );
    let sent = question(id, &name, record);
    assert_eq!(
        parse_answer(&sent, id, &name, record),
        None,
        "a question is no answer"
    );
    match parse_answer(data, id, &name, record) {
        Some(Answer::Addresses(addresses)) => {
            // Each takes a record of 16 bytes at least.
            assert!(!addresses.is_empty() && addresses.len() * 15 <= data.len());
        }
        Some(Answer::Alias(target)) => assert!(target != name && target.0.len() <= MAX_NAME),
        _ => {}
    }
}
