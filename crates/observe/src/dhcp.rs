//! Conversations by DHCP, with proxies and boot servers.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use wireboot_report::network::{BootServer, Dhcp, Offer, VendorOptions};
use wireboot_wire::dhcp::{Message, MessageType, Operation, PxeOptions, option};
use wireboot_wire::text;

use crate::keep;

/// The same message within this time has come by another relay, or in and out of one. No client asks again so soon.
const RELAYED_S: f64 = 0.1;

/// What a machine and its servers said.
#[derive(Debug, Default)]
pub(crate) struct Conversations {
    pub(crate) dhcp: Vec<Dhcp>,
    pub(crate) boot_servers: Vec<BootServer>,
    /// Its first question with each: the machine's UUID and what it says that it is.
    pub(crate) uuid: Option<String>,
    pub(crate) vendor_class: Option<String>,
}

impl Conversations {
    /// A message to a DHCP server.
    pub(crate) fn asked(&mut self, at_s: f64, message: &Message) {
        let class = message.options.get(option::VENDOR_CLASS).map(text::shown);
        if self.uuid.is_none() {
            self.uuid = message.options.machine_id().map(uuid);
        }
        if self.vendor_class.is_none() {
            self.vendor_class.clone_from(&class);
        }
        let tried_before_s = message.secs;
        let user_class = message.options.user_classes().first().copied();
        let user_class = user_class.map(text::shown);
        let conversation = match self.of(message) {
            Some(conversation) => conversation,
            None => {
                keep(
                    &mut self.dhcp,
                    Dhcp {
                        xid: message.xid,
                        vendor_class: class,
                        user_class,
                        tried_before_s,
                        ..Dhcp::default()
                    },
                );
                let Some(conversation) = self.of(message) else {
                    return;
                };
                conversation
            }
        };
        let again = |times: &[f64]| times.last().is_some_and(|last| at_s - last < RELAYED_S);
        match message.message_type() {
            Some(MessageType::Discover) if !again(&conversation.discover_s) => {
                keep(&mut conversation.discover_s, at_s);
            }
            Some(MessageType::Request) if !again(&conversation.request_s) => {
                keep(&mut conversation.request_s, at_s);
                let chosen = message.options.address(option::SERVER_ID);
                conversation.chosen = chosen.map(|server| server.to_string());
            }
            _ => {}
        }
    }

    /// A DHCP server's message, from `server`.
    pub(crate) fn answered(&mut self, at_s: f64, server: IpAddr, message: &Message) {
        let Some(conversation) = self.of(message) else {
            return;
        };
        match message.message_type() {
            Some(MessageType::Offer) => {
                let offer = offer(at_s, server, message);
                let again = |one: &Offer| {
                    at_s - one.at_s < RELAYED_S
                        && (&one.server, &one.address) == (&offer.server, &offer.address)
                };
                if !conversation.offers.iter().any(again) {
                    keep(&mut conversation.offers, offer);
                }
            }
            Some(MessageType::Ack) if conversation.ack_s.is_none() => {
                conversation.ack_s = Some(at_s);
                // What a server forgot in its offer, it may say now.
                if conversation.offers.is_empty() {
                    keep(&mut conversation.offers, offer(at_s, server, message));
                }
            }
            Some(MessageType::Nak) if conversation.nak_s.is_none() => {
                conversation.nak_s = Some(at_s);
            }
            _ => {}
        }
    }

    /// A question to a server's port 4011.
    pub(crate) fn boot_server_asked(&mut self, at_s: f64, server: IpAddr) {
        let server = server.to_string();
        let open = self
            .boot_servers
            .iter_mut()
            .find(|one| one.server == server && one.answered_s.is_none());
        match open {
            Some(one) => keep(&mut one.asked_s, at_s),
            None => keep(
                &mut self.boot_servers,
                BootServer {
                    server,
                    asked_s: [at_s].into(),
                    answered_s: None,
                },
            ),
        }
    }

    /// An answer from such a port.
    pub(crate) fn boot_server_answered(&mut self, at_s: f64, server: IpAddr) {
        let server = server.to_string();
        // A question to several is answered from an address of the server's own.
        let several = |asked: &str| {
            let asked = asked.parse();
            asked.is_ok_and(|asked: Ipv4Addr| asked.is_broadcast() || asked.is_multicast())
        };
        if let Some(one) = self
            .boot_servers
            .iter_mut()
            .find(|one| one.answered_s.is_none() && (one.server == server || several(&one.server)))
        {
            one.answered_s = Some(at_s);
        }
    }

    fn of(&mut self, message: &Message) -> Option<&mut Dhcp> {
        self.dhcp
            .iter_mut()
            .rev()
            .find(|one| one.xid == message.xid)
    }
}

/// A reply of the machine `mac`, or a request of it.
pub(crate) fn of_machine(payload: &[u8], mac: [u8; 6]) -> Option<Message> {
    let message = Message::parse(payload).ok()?;
    (message.mac() == Some(mac)).then_some(message)
}

/// It comes from a server.
pub(crate) fn is_reply(message: &Message) -> bool {
    message.operation == Operation::Reply
}

fn offer(at_s: f64, from: IpAddr, message: &Message) -> Offer {
    let server = message.options.address(option::SERVER_ID);
    let pxe = message
        .options
        .get(option::VENDOR_CLASS)
        .is_some_and(|class| class.starts_with(b"PXEClient"));
    let vendor_options = match message.options.get(option::VENDOR) {
        None => VendorOptions::Absent,
        Some(options) if pxe && PxeOptions::are_in(options) => VendorOptions::Pxe,
        Some(_) => VendorOptions::Foreign,
    };
    Offer {
        at_s,
        server: server.map_or(from, IpAddr::from).to_string(),
        address: (!message.yiaddr.is_unspecified()).then(|| message.yiaddr.to_string()),
        boot_file: message
            .boot_file()
            .map(String::from)
            .or_else(|| message.unreadable_boot_file())
            .map(|file| text::shown(file.as_bytes())),
        pxe,
        vendor_options,
    }
}

/// A UUID as people write it; its first three fields are little-endian on PXE's wire, as in SMBIOS.
fn uuid(bytes: [u8; 16]) -> String {
    let mut out = String::new();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    for (place, from) in order.into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&place) {
            out.push('-');
        }
        let byte = bytes.get(from).copied().unwrap_or_default();
        out.push_str(&alloc::format!("{byte:02x}"));
    }
    out
}
