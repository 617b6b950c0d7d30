//! Boot servers by PXE 2.1, section 2.2.3, for EFI_PXE_BASE_CODE_PROTOCOL.Discover().

use super::dhcp::Answer;
use super::{Host, Port};
use crate::Refusal;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use wireboot_net::Duration;
use wireboot_wire::dhcp::pxe::{Item, discovery};
use wireboot_wire::dhcp::{Message, MessageType, PXE_PORT, PxeOptions, SERVER_PORT, option};

/// How long answers are waited for, in seconds: 10 in all (UEFI 2.10, section 24.3.5).
const WAITS: [u64; 4] = [1, 2, 3, 4];

/// A boot server that may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Type of boot server (PXE 2.1), as option 43 numbers it.
    pub kind: u16,
    /// `None`: any of that type.
    pub address: Option<IpAddr>,
}

/// How to find a boot server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The group that they listen to.
    pub multicast: Option<IpAddr>,
    /// Whether all stations of the link are asked, where there is no group.
    pub broadcast: bool,
    /// Those that are asked each.
    pub unicast: Vec<IpAddr>,
    /// The only ones that may answer.
    pub only: Option<Vec<Server>>,
}

impl Discovery {
    /// What a DHCP server's or a proxy's packet says of the servers of a type (option 43).
    #[must_use]
    pub fn of_packet(raw: &[u8], kind: u16) -> Option<Self> {
        let message = Message::parse(raw).ok()?;
        let options = PxeOptions::parse(message.options.get(option::VENDOR)?)?;
        let servers = options.servers_of(kind).iter().copied().map(IpAddr::V4);
        let unicast: Vec<IpAddr> = servers.collect();
        let known = unicast.iter().map(|&address| Server {
            kind,
            address: Some(address).filter(|address| !address.is_unspecified()),
        });
        let only = options
            .controls(discovery::LIST_ONLY)
            .then(|| known.collect());
        let multicast = options.multicast.map(IpAddr::V4);
        Some(Self {
            multicast: multicast.filter(|_| !options.controls(discovery::NO_MULTICAST)),
            broadcast: !options.controls(discovery::NO_BROADCAST),
            unicast,
            only,
        })
    }

    fn may_answer(&self, kind: u16, server: IpAddr) -> bool {
        self.only.as_ref().is_none_or(|only| {
            let mut only = only.iter().filter(|one| one.kind == kind);
            only.any(|one| one.address.is_none_or(|address| address == server))
        })
    }
}

/// What a boot server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The question as it was sent.
    pub discover: Vec<u8>,
    /// The answer as it came.
    pub reply: Vec<u8>,
    /// The layer that it is about.
    pub layer: u16,
}

impl Host {
    /// Asks for the boot servers of a type, and which file one has for a layer. `template`: an earlier message of this machine.
    ///
    /// # Errors
    /// [`Refusal::InvalidParameter`]: no address, no way, or nobody who may answer. [`Refusal::Timeout`], [`Refusal::Aborted`].
    pub fn discover(
        &mut self,
        port: &mut dyn Port,
        template: Option<&[u8]>,
        item: (u16, u16),
        how: &Discovery,
    ) -> Result<Reply, Refusal> {
        self.has_address()?;
        let to: Vec<IpAddr> = match how.multicast {
            Some(group) => alloc::vec![group],
            None if how.broadcast => alloc::vec![Ipv4Addr::BROADCAST.into()],
            None => how.unicast.clone(),
        };
        let nobody = how.only.as_ref().is_some_and(Vec::is_empty);
        let same = |address: &IpAddr| address.is_ipv4() == self.address.is_ipv4();
        if to.is_empty() || nobody || !to.iter().all(same) {
            return Err(Refusal::InvalidParameter);
        }
        let (kind, layer) = item;
        let IpAddr::V4(own) = self.address else {
            return self.discover6(port, template, &to, layer, |server| {
                how.may_answer(kind, server)
            });
        };
        let xid = self.random.next_u32();
        let mut message = self.dhcp_message(MessageType::Request, xid, template);
        // So that the answer comes here and not to all.
        message.ciaddr = own;
        let options = PxeOptions {
            item: Some(Item { kind, layer }),
            ..PxeOptions::default()
        };
        message.options.set(option::VENDOR, options.emit());
        let right = |answer: &Answer| {
            let server = answer.message.options.address(option::SERVER_ID);
            let server = server.map_or(answer.source, IpAddr::V4);
            let item = item_of(&answer.message);
            how.may_answer(kind, server) && item.is_none_or(|item| item.kind == kind)
        };
        let (discover, answer) = self.inquire(port, &message, &to, right)?;
        Ok(Reply {
            discover,
            layer: item_of(&answer.message).map_or(layer, |item| item.layer),
            reply: answer.raw,
        })
    }

    /// Asks these servers until one gives an answer that is right.
    pub(super) fn inquire(
        &mut self,
        port: &mut dyn Port,
        message: &Message,
        to: &[IpAddr],
        right: impl Fn(&Answer) -> bool,
    ) -> Result<(Vec<u8>, Answer), Refusal> {
        let question = message.emit();
        for wait in WAITS {
            for &server in to {
                let number = if self.is_broadcast(server) {
                    SERVER_PORT
                } else {
                    PXE_PORT
                };
                match self.dhcp_send(port, SocketAddr::new(server, number), &question) {
                    // One that cannot be reached does not answer; another one may.
                    Ok(()) | Err(Refusal::Timeout) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            let end = port.now() + Duration::from_secs(wait);
            while let Some(answer) = self.dhcp_answer(port, end, message.xid)? {
                let kind = answer.message.message_type();
                if kind == Some(MessageType::Ack) && right(&answer) {
                    return Ok((question, answer));
                }
            }
        }
        Err(Refusal::Timeout)
    }
}

/// The server that a boot server's answer names.
#[must_use]
pub fn server_of(raw: &[u8]) -> Option<IpAddr> {
    let message = Message::parse(raw).ok()?;
    let server = message.options.address(option::SERVER_ID);
    let server = server.unwrap_or(message.siaddr);
    (!server.is_unspecified()).then_some(server.into())
}

fn item_of(message: &Message) -> Option<Item> {
    PxeOptions::parse(message.options.get(option::VENDOR)?)?.item
}
