//! `net`: what the switch, the servers and the routers on the machine's link say, and how far they are.
//!
//! ```text
//! the firmware's driver, for us alone ──all multicast frames──> observe: spanning tree, LACP, LLDP, CDP, offers, routers
//!                       ^                                └────> ask: answers
//!                       └──DHCPDISCOVER, router solicitation, ARP probes── ask
//! ```
//!
//! It takes no address: no server has anything to remember, and no other station is disturbed. Servers of DHCPv6 answer to the link-local
//! address that the firmware makes of the card's own.

mod ask;
mod ask6;

use crate::error::{Error, refused};
use crate::escape::is_ended;
use crate::examination::Examination;
use crate::ladder::wire::{Driver, Wire};
use crate::{cards, vlan};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use ask::{Asker, Client};
use ask6::Asker6;
use wireboot_boot::error::Error as BootError;
use wireboot_boot::origin::Origin;
use wireboot_nic::Nic;
use wireboot_nic::vlan::{VlanId, tagged, untagged};
use wireboot_observe::{LinkType, Mac, Observer};
use wireboot_platform::claim::pci::{self, Candidate as Function};
use wireboot_platform::claim::snp;
use wireboot_platform::console;
use wireboot_platform::device_path::NetworkPath;
use wireboot_platform::pcie::{Link, Width};
use wireboot_platform::snp::Snp;
use wireboot_platform::{Clock, duid, smbios};
use wireboot_report::{Pcie, Surroundings};

/// How long a card's link may take to come up, in microseconds.
const LINK: u64 = 5_000_000;
/// How long to listen, in microseconds: longer than LLDP's and slow LACP's 30 s; or where other checks are to have time, as long as EDK II
/// waits for an offer that came too late for its first timer.
const THOROUGH: u64 = 35_000_000;
const STANDARD: u64 = 12_000_000;
/// How often the keyboard is looked at, and progress shown.
const LOOKED: u64 = 100_000;
const SHOWN: u64 = 1_000_000;

/// Listens, asks, and tells.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let (origin, clock) = (examination.origin, examination.clock);
    let length = if examination.options.thorough {
        THOROUGH
    } else {
        STANDARD
    };
    let mut failure = Error::Boot(BootError::NoInterface);
    for card in interfaces(origin).iter().take(cards::MOST) {
        let began = clock.micros();
        let mut ear = match Ear::open(card, origin, clock) {
            Ok(ear) => ear,
            Err(error) => {
                failure = error;
                continue;
            }
        };
        if !ear.wait_for_link() {
            failure = BootError::NoLink(card.to_string()).into();
            continue;
        }
        examination.linked.found(&card.path, ear.mac);
        let zero = clock.micros();
        let heard = ear.listen(zero, length);
        console::clear_progress();
        let mut surroundings = ear.told(seconds(clock.micros() - zero));
        surroundings.link_after_s = Some(seconds(zero - began));
        surroundings.link_mbit_s = card.function().and_then(Function::link_speed);
        surroundings.pcie = card.function().and_then(Function::link).map(pcie);
        examination.report.surroundings = Some(surroundings);
        if let Some(cached) = &origin.cached {
            // The packets that the firmware had when it started this program.
            let _ = cached.restore();
        }
        return heard;
    }
    Err(failure)
}

fn pcie(link: Link) -> Pcie {
    // 2.5 GT/s and its doubles, but that the third generation has 8.
    let rate = |width: Width| match width.generation {
        generation @ 0..3 => 1.25 * f64::from(1 << generation),
        generation => f64::from(1u32 << generation.min(15)),
    };
    Pcie {
        gt_per_s: rate(link.now),
        lanes: link.now.lanes,
        most_gt_per_s: rate(link.most),
        most_lanes: link.most.lanes,
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// The interface of the card that the machine came by, else of each: at the first of them that has a link is listened.
fn interfaces(origin: &Origin) -> Vec<snp::Candidate> {
    if origin.network.mac.is_none() {
        let cards = pci::functions();
        let cards = cards.iter().filter(|card| card.is_network());
        cards.for_each(Function::connect);
    }
    let mac = |interface: &snp::Candidate| NetworkPath::parse(&interface.path).mac;
    let mut cards: Vec<snp::Candidate> = Vec::new();
    for interface in snp::interfaces() {
        // What stands behind a card's own are those of its boot options, which go when the card is taken.
        let known = cards.iter().any(|card| mac(card) == mac(&interface));
        let wanted = origin.network.mac.is_none() || mac(&interface) == origin.network.mac;
        if wanted && !known {
            cards.push(interface);
        }
    }
    cards
}

/// A card that listens. Dropping it gives the card back to the firmware.
struct Ear {
    mac: [u8; 6],
    wire: Driver<Snp>,
    clock: Clock,
    observer: Observer,
    asker: Asker,
    asker6: Asker6,
    /// The VLAN in which is asked, and answers are looked for. The card's own interface puts no tag on and takes none off.
    vlan: Option<VlanId>,
    packets: u64,
}

impl Ear {
    fn open(card: &snp::Candidate, origin: &Origin, clock: Clock) -> Result<Self, Error> {
        let nic = Snp::open(card).map_err(refused("the firmware's driver of the network card"))?;
        let mac = nic.properties().mac;
        let client = Client {
            mac,
            uuid: smbios::system_uuid(),
            http: origin.http,
            // Differs from one examination to the next.
            xid: clock.nanos_since_reset() as u32,
            duid: duid::of_firmware(),
        };
        Ok(Self {
            mac,
            wire: Driver(nic),
            clock,
            observer: Observer::new(Mac(mac), 0.0),
            asker: Asker::new(&client),
            asker6: Asker6::new(&client),
            vlan: vlan::id(origin),
            packets: 0,
        })
    }

    /// What it has heard in so many seconds.
    fn told(self, listened_s: f64) -> Surroundings {
        let seen = self.observer.report_until(listened_s);
        Surroundings {
            mac: Mac(self.mac).to_string(),
            listened_s,
            packets: self.packets,
            timeline: seen.timeline,
            network: seen.network,
            round_trips: self.asker.round_trips(),
            ..Surroundings::default()
        }
    }

    fn wait_for_link(&mut self) -> bool {
        let end = self.clock.micros() + LINK;
        loop {
            if self.wire.0.link_up() {
                return true;
            }
            if self.clock.micros() > end || is_ended() {
                return false;
            }
        }
    }

    /// From `zero` on so long, or until the Esc key.
    fn listen(&mut self, zero: u64, length: u64) -> Result<(), Error> {
        let (mut looked, mut shown) = (0, 0);
        loop {
            let now = self.clock.micros() - zero;
            if now >= length {
                return Ok(());
            }
            if now >= looked {
                looked = now + LOOKED;
                if is_ended() {
                    return Ok(());
                }
            }
            if now >= shown {
                shown = now + SHOWN;
                let left = (length - now).div_ceil(1_000_000);
                console::progress(&format!("{left} s left; the Esc key ends it"));
            }
            self.turn(zero)?;
        }
    }

    fn turn(&mut self, zero: u64) -> Result<(), Error> {
        let Self {
            wire,
            clock,
            observer,
            asker,
            asker6,
            vlan,
            packets,
            ..
        } = self;
        let vlan = *vlan;
        loop {
            let now = clock.micros() - zero;
            let Some(frame) = asker.due(now).or_else(|| asker6.due(now)) else {
                break;
            };
            let frame = match vlan {
                Some(vlan) => tagged(&frame, vlan),
                None => frame,
            };
            if wire.send(&frame)? {
                let at_s = seconds(clock.micros() - zero);
                observer.frame(at_s, LinkType::Ethernet, &frame);
            }
        }
        wire.flush()?;
        wire.burst(|(parts, _)| {
            let now = clock.micros() - zero;
            let frame = parts.concat();
            // The switch speaks without a tag.
            observer.frame(seconds(now), LinkType::Ethernet, &frame);
            *packets += 1;
            let answer = match vlan {
                Some(vlan) => untagged(&frame, vlan),
                None => Some(frame),
            };
            if let Some(answer) = answer {
                asker.frame(now, &answer);
                asker6.frame(&answer);
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_generations() {
        let rate = |generation| {
            let width = Width {
                generation,
                lanes: 4,
            };
            let link = Link {
                now: width,
                most: width,
            };
            pcie(link).gt_per_s
        };
        let told: [f64; 6] = core::array::from_fn(|place| rate(place as u8 + 1));
        assert_eq!(told, [2.5, 5.0, 8.0, 16.0, 32.0, 64.0]);
    }
}
