//! PXE's sub-options of option 43 (PXE 2.1 section 2.4, RFC 2132 section 8.4 for their form).

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::option::{self, Tlv};
use crate::text;

const MULTICAST: u8 = 7;
const DISCOVERY_CONTROL: u8 = 6;
const BOOT_SERVERS: u8 = 8;
const MENU: u8 = 9;
const PROMPT: u8 = 10;
const ITEM: u8 = 71;

/// Bits of the discovery control.
pub mod discovery {
    /// Do not look for boot servers by broadcast.
    pub const NO_BROADCAST: u8 = 1;
    /// Do not look for boot servers by multicast.
    pub const NO_MULTICAST: u8 = 2;
    /// Use and accept only the servers of the list.
    pub const LIST_ONLY: u8 = 4;
    /// Load the boot file that the offer names; no prompt, menu or discovery.
    pub const USE_BOOT_FILE: u8 = 8;
}

/// Boot servers of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootServers {
    /// Type, as menu items name it.
    pub kind: u16,
    /// Their addresses in the option's order; may be empty.
    pub addresses: Vec<Ipv4Addr>,
}

/// A line of the boot menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MenuItem {
    /// Type of boot server to ask; 0 boots from the local disk.
    pub kind: u16,
    /// What the menu shows, fit to be shown.
    pub description: String,
}

/// What is shown before the menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Seconds until the first item is taken. 0: at once; 255: never.
    pub timeout: u8,
    /// What to show, fit to be shown.
    pub text: String,
}

/// The boot item that a client asks a boot server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Type of boot server.
    pub kind: u16,
    /// Which of its files; 0 is the first. The top bit asks for its credentials.
    pub layer: u16,
}

/// PXE's sub-options. Those that this crate has no use for are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PxeOptions {
    /// How to find a boot server: bits of [`discovery`] (sub-option 6).
    pub discovery_control: Option<u8>,
    /// Group to multicast the discovery to (sub-option 7).
    pub multicast: Option<Ipv4Addr>,
    /// Known boot servers (sub-option 8).
    pub boot_servers: Vec<BootServers>,
    /// Boot menu (sub-option 9).
    pub menu: Vec<MenuItem>,
    /// Prompt before the menu (sub-option 10).
    pub prompt: Option<Prompt>,
    /// Boot item (sub-option 71).
    pub item: Option<Item>,
}

impl PxeOptions {
    /// Reads the value of option 43. `None` when it is anything else than whole sub-options, or one of those above
    /// has a length that cannot be: other vendors use option 43 too, and a damaged list of servers is no guide.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut out = Self::default();
        let mut options = Tlv::new(bytes);
        for (code, value) in &mut options {
            match code {
                DISCOVERY_CONTROL => match *value {
                    [control] => out.discovery_control = Some(control),
                    _ => return None,
                },
                MULTICAST => out.multicast = Some(<[u8; 4]>::try_from(value).ok()?.into()),
                BOOT_SERVERS => out.boot_servers = boot_servers(value)?,
                MENU => out.menu = menu(value)?,
                PROMPT => {
                    let (&timeout, text) = value.split_first()?;
                    out.prompt = Some(Prompt {
                        timeout,
                        text: text::shown(text),
                    });
                }
                ITEM => match *value {
                    [a, b, c, d] => {
                        out.item = Some(Item {
                            kind: u16::from_be_bytes([a, b]),
                            layer: u16::from_be_bytes([c, d]),
                        });
                    }
                    _ => return None,
                },
                _ => {}
            }
        }
        options.cut_off().is_none().then_some(out)
    }

    /// Whether the value of option 43 is PXE's: [`parse`](Self::parse) reads it, and it has not only sub-options from 128 on, which PXE leaves to vendors
    /// (PXE 2.1, table 2-1). Access points and telephones have theirs there.
    pub fn are_in(bytes: &[u8]) -> bool {
        let mut codes = Tlv::new(bytes).map(|(code, _)| code).peekable();
        let is_empty = codes.peek().is_none();
        (is_empty || codes.any(|code| code < 128)) && Self::parse(bytes).is_some()
    }

    /// The value of option 43. A list or text that does not fit its 255 bytes is cut after the last piece that does.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(control) = self.discovery_control {
            option::emit(&mut out, DISCOVERY_CONTROL, &[control]);
        }
        if let Some(group) = self.multicast {
            option::emit(&mut out, MULTICAST, &group.octets());
        }
        let servers = self.boot_servers.iter().map(|servers| {
            let addresses = servers
                .addresses
                .get(..servers.addresses.len().min(63))
                .unwrap_or_default();
            let mut piece = servers.kind.to_be_bytes().to_vec();
            piece.push(addresses.len() as u8);
            piece.extend(addresses.iter().flat_map(Ipv4Addr::octets));
            piece
        });
        emit_list(&mut out, BOOT_SERVERS, servers);
        let menu = self.menu.iter().map(|item| {
            let description = clip(&item.description, 252);
            let mut piece = item.kind.to_be_bytes().to_vec();
            piece.push(description.len() as u8);
            piece.extend_from_slice(description);
            piece
        });
        emit_list(&mut out, MENU, menu);
        if let Some(prompt) = &self.prompt {
            let mut value = alloc::vec![prompt.timeout];
            value.extend_from_slice(clip(&prompt.text, 254));
            option::emit(&mut out, PROMPT, &value);
        }
        if let Some(item) = self.item {
            let mut value = item.kind.to_be_bytes().to_vec();
            value.extend_from_slice(&item.layer.to_be_bytes());
            option::emit(&mut out, ITEM, &value);
        }
        out.push(option::END);
        out
    }

    /// True when the discovery control has all of `bits`.
    pub fn controls(&self, bits: u8) -> bool {
        self.discovery_control.unwrap_or(0) & bits == bits
    }

    /// Known servers of a type, if any are listed.
    pub fn servers_of(&self, kind: u16) -> &[Ipv4Addr] {
        self.boot_servers
            .iter()
            .find(|servers| servers.kind == kind)
            .map_or(&[], |servers| servers.addresses.as_slice())
    }
}

fn boot_servers(mut rest: &[u8]) -> Option<Vec<BootServers>> {
    let mut servers = Vec::new();
    while !rest.is_empty() {
        let (&[a, b, count], after) = rest.split_first_chunk()?;
        let (addresses, after) = after.split_at_checked(usize::from(count) * 4)?;
        let (addresses, _) = addresses.as_chunks::<4>();
        servers.push(BootServers {
            kind: u16::from_be_bytes([a, b]),
            addresses: addresses.iter().map(|&octets| octets.into()).collect(),
        });
        rest = after;
    }
    Some(servers)
}

fn menu(mut rest: &[u8]) -> Option<Vec<MenuItem>> {
    let mut menu = Vec::new();
    while !rest.is_empty() {
        let (&[a, b, len], after) = rest.split_first_chunk()?;
        let (description, after) = after.split_at_checked(len.into())?;
        menu.push(MenuItem {
            kind: u16::from_be_bytes([a, b]),
            description: text::shown(description),
        });
        rest = after;
    }
    Some(menu)
}

/// As many of the pieces as fit one sub-option; none for none.
fn emit_list(out: &mut Vec<u8>, code: u8, pieces: impl Iterator<Item = Vec<u8>>) {
    let mut value = Vec::new();
    for piece in pieces {
        if value.len() + piece.len() > 255 {
            break;
        }
        value.extend_from_slice(&piece);
    }
    if !value.is_empty() {
        option::emit(out, code, &value);
    }
}

/// At most `limit` bytes of a text, whole characters.
fn clip(text: &str, limit: usize) -> &[u8] {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.as_bytes().get(..end).unwrap_or_default()
}
