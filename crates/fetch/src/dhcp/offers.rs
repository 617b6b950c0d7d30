//! Offers: which are kept, which one is taken, and who of them names the boot file.

use super::{Client, VendorClass, host_address, is_host};
use wireboot_net::{Duration, Instant, Ipv4Addr};
use wireboot_wire::dhcp::pxe::discovery;
use wireboot_wire::dhcp::{Message, MessageType, PxeOptions, option};

/// How long a plain offer waits for a better one. A proxy has no address to find and to probe, so it answers in a
/// round trip or two, long before most DHCP servers; half a second covers a relay across a slow line, too.
const GRACE: Duration = Duration::from_millis(500);
/// How long another server is waited for, when the one that has offered gave no lease before, and a proxy that the firmware has met. A
/// server that probes its address first takes as long.
const GRACE_OF_OTHERS: Duration = Duration::from_secs(2);
/// Offers kept of one DISCOVER; more are dropped.
const MAX_OFFERS: usize = 16;

/// An offer of an address.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) message: Message,
    pub(super) server: Ipv4Addr,
}

/// Who names the boot file, according to a message.
pub(super) enum Guide {
    /// The message itself.
    File,
    /// Its sender, on port 4011.
    Sender,
    /// Boot servers of type `kind` (PXE 2.1 section 2.2.3).
    BootServers { options: PxeOptions, kind: u16 },
}

impl Client<'_> {
    /// Keeps `message` if it is an offer.
    pub(super) fn keep(&mut self, source: Ipv4Addr, message: Message) {
        if message.message_type() != Some(MessageType::Offer) {
            return;
        }
        let server = message
            .options
            .address(option::SERVER_ID)
            .filter(|&a| is_host(a));
        if message.yiaddr.is_unspecified() {
            let sender = server.or(Some(source)).filter(|&a| is_host(a));
            if let Some(server) = sender
                && self.speaks_our_class(&message)
                && self.proxies.len() < MAX_OFFERS
            {
                self.proxies.push(Offer { message, server });
            }
        } else if let Some(server) = server
            && host_address(&message).is_some()
        {
            if self.offers.len() < MAX_OFFERS {
                self.offers.push(Offer { message, server });
            }
        } else {
            self.malformed = self.malformed.saturating_add(1);
        }
    }

    pub(super) fn speaks_our_class(&self, message: &Message) -> bool {
        message
            .options
            .text(option::VENDOR_CLASS)
            .is_some_and(|class| class.starts_with(self.request.vendor_class.prefix()))
    }

    /// Whether the offer itself has the boot file's name.
    pub(super) fn names_file(&self, offer: &Offer) -> bool {
        matches!(self.guide(&offer.message), Some(Guide::File))
    }

    /// How `message` leads to a boot file, if it does.
    pub(super) fn guide(&self, message: &Message) -> Option<Guide> {
        let file = message.boot_file().map(|_| Guide::File);
        if self.request.vendor_class != VendorClass::Pxe || !self.speaks_our_class(message) {
            return file;
        }
        let options = message
            .options
            .get(option::VENDOR)
            .and_then(PxeOptions::parse);
        let Some(options) = options else {
            return file.or(Some(Guide::Sender));
        };
        if file.is_some()
            && (options.controls(discovery::USE_BOOT_FILE) || options.boot_servers.is_empty())
        {
            return file;
        }
        // The first item of the menu is the one that boots when nobody is there to choose.
        let first = options.menu.first().map(|item| item.kind);
        match first.or(options.boot_servers.first().map(|servers| servers.kind)) {
            // From the local disk, that is, not from the network.
            Some(0) => None,
            Some(kind) => Some(Guide::BootServers { options, kind }),
            None => file.or(Some(Guide::Sender)),
        }
    }

    /// True if taking `offer` leads to all that was asked for.
    pub(super) fn complete(&self, offer: &Offer) -> bool {
        let guides = |offer: &Offer| self.guide(&offer.message).is_some();
        !self.request.want_boot_file
            || guides(offer) && !self.awaits_proxy(offer)
            || self.proxies.iter().any(guides)
    }

    /// Whether a proxy that the firmware has met may lead to another file than `offer` does.
    pub(super) fn awaits_proxy(&self, offer: &Offer) -> bool {
        self.request.proxied && !self.speaks_our_class(&offer.message)
    }

    /// Whether the server of `offer` gave no lease for an earlier one.
    fn has_failed(&self, offer: &Offer) -> bool {
        self.failed.contains(&offer.server)
    }

    /// Gathers offers until there is one to take. Beside that of a server that has failed, another's is waited for longer, and so is a
    /// proxy that the firmware has met. `None` if there is none at `end`.
    pub(super) async fn select(&mut self, mut end: Instant) -> Option<Offer> {
        // Earlier DISCOVERs' offers would have been taken then.
        let mut waits: Option<Duration> = None;
        while let Some((source, message)) = self.reply(end).await {
            self.keep(source, message);
            let mut good = self.offers.iter().filter(|offer| !self.has_failed(offer));
            let grace = match self.offers.is_empty() {
                true => continue,
                // What else has come already may be better still.
                false if good.clone().any(|offer| self.complete(offer)) => Duration::ZERO,
                false if good.any(|offer| !self.awaits_proxy(offer)) => GRACE,
                false => GRACE_OF_OTHERS,
            };
            if waits.is_none_or(|waits| grace < waits) {
                waits = Some(grace);
                end = self.stack.now() + grace;
            }
        }
        let wanted = |offer: &&Offer| {
            let named = self.guide(&offer.message).is_some();
            let address = Some(offer.message.yiaddr) == self.request.requested_address;
            // The first of equals wins, so the order is that of `min`.
            let nameless = !(named && self.request.want_boot_file);
            (self.has_failed(offer), nameless, !address)
        };
        self.offers.iter().min_by_key(wanted).cloned()
    }
}
