//! The speed of a network card's link, as the card's own registers tell it: firmware's interface to the card has no word for it. The card's driver
//! keeps the card; registers are read beside it.

/// A function's registers, as whoever is not its driver may use them.
pub(crate) trait Registers {
    /// 32 bits of configuration space.
    fn config(&self, at: u8) -> u32;
    /// 32 bits of a BAR. `None` where there are none.
    fn read(&self, bar: u8, offset: u64) -> Option<u32>;
    /// Writes them. Whether it did.
    fn write(&self, bar: u8, offset: u64, value: u32) -> bool;
}

const RED_HAT: u16 = 0x1af4;
/// Network devices of virtio, as they were before version 1 and since (virtio 1.2, section 4.1.2).
const VIRTIO_NET: [u16; 2] = [0x1000, 0x1041];
const INTEL: u16 = 0x8086;
/// 82544GC, 82540EM, 82545EM, 82574L, 82574IT: Intel's manuals of both families have the same register.
const GIGABIT: [u16; 5] = [0x100c, 0x100e, 0x100f, 0x10d3, 0x10f6];

/// In Mbit/s. `None` for a card that does not tell, or has no link.
pub(crate) fn link_speed(vendor: u16, device: u16, card: &impl Registers) -> Option<u32> {
    match vendor {
        RED_HAT if VIRTIO_NET.contains(&device) => of_virtio(card),
        INTEL if GIGABIT.contains(&device) => of_gigabit(card.read(0, STATUS)?),
        _ => None,
    }
}

/// Device status, in BAR 0 (82574 datasheet, section 10.2.2.2).
const STATUS: u64 = 0x08;
const LINK_UP: u32 = 1 << 1;

fn of_gigabit(status: u32) -> Option<u32> {
    // A card that is gone reads as ones.
    if status & LINK_UP == 0 || status == u32::MAX {
        return None;
    }
    Some(match status >> 6 & 3 {
        0 => 10,
        1 => 100,
        _ => 1000,
    })
}

/// Capabilities of virtio (virtio 1.2, section 4.1.4): the common configuration, and the device's own.
const VENDOR_SPECIFIC: u8 = 0x09;
const COMMON: u8 = 1;
const DEVICE: u8 = 4;
/// As many capabilities have room behind the header.
const MOST: usize = 48;
/// Which half of the features is read, and that half.
const FEATURE_SELECT: u64 = 0;
const FEATURES: u64 = 4;
/// `VIRTIO_NET_F_SPEED_DUPLEX`, bit 63: the speed is there (section 5.1.3).
const SPEED_DUPLEX: u32 = 1 << 31;
/// Of the device's configuration: the speed in Mbit/s (section 5.1.4).
const SPEED: u64 = 12;
const SPEEDS: core::ops::RangeInclusive<u32> = 1..=0x7fff_ffff;

fn of_virtio(card: &impl Registers) -> Option<u32> {
    let (common_bar, common) = capability(card, COMMON)?;
    let before = card.read(common_bar, common + FEATURE_SELECT)?;
    let selected = card.write(common_bar, common + FEATURE_SELECT, 1);
    let features = card.read(common_bar, common + FEATURES);
    card.write(common_bar, common + FEATURE_SELECT, before);
    features.filter(|features| selected && features & SPEED_DUPLEX != 0)?;
    let (bar, device) = capability(card, DEVICE)?;
    let speed = card.read(bar, device + SPEED)?;
    // What is beyond is said to be unknown.
    SPEEDS.contains(&speed).then_some(speed)
}

/// Where the first structure of a type is: its BAR and the place there.
fn capability(card: &impl Registers, kind: u8) -> Option<(u8, u64)> {
    // The bit of the status register that says that there is a list.
    let has_list = card.config(0x04) & 1 << 20 != 0;
    let mut at = has_list.then(|| (card.config(0x34) & 0xfc) as u8)?;
    for _ in 0..MOST {
        if at < 0x40 {
            return None;
        }
        let [id, next, _, own_kind] = card.config(at).to_le_bytes();
        if id == VENDOR_SPECIFIC && own_kind == kind {
            let [bar, ..] = card.config(at.checked_add(4)?).to_le_bytes();
            let offset = card.config(at.checked_add(8)?);
            return (bar <= 5).then_some((bar, offset.into()));
        }
        at = next & 0xfc;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A card with its registers in a BAR: of virtio, the common configuration is at 0x1000, the device's own at 0x2000.
    struct Card {
        space: [u32; 64],
        bar: u8,
        features: u32,
        speed: u32,
        status: u32,
        selected: Cell<u32>,
    }

    impl Registers for Card {
        fn config(&self, at: u8) -> u32 {
            self.space[usize::from(at / 4)]
        }

        fn read(&self, bar: u8, offset: u64) -> Option<u32> {
            let value = match offset {
                0x08 => self.status,
                0x1000 => self.selected.get(),
                0x1004 if self.selected.get() == 1 => self.features,
                0x1004 => u32::MAX,
                0x200c => self.speed,
                other => panic!("{other:#x}"),
            };
            (bar == self.bar).then_some(value)
        }

        fn write(&self, bar: u8, offset: u64, value: u32) -> bool {
            assert_eq!((bar, offset), (self.bar, 0x1000));
            self.selected.set(value);
            true
        }
    }

    fn virtio() -> Card {
        let mut space = [0; 64];
        space[1] = 1 << 20;
        space[0x34 / 4] = 0x40;
        // MSI-X, then both structures.
        space[0x40 / 4] = 0x5011;
        space[0x50 / 4] = 0x0110_6009;
        (space[0x54 / 4], space[0x58 / 4]) = (4, 0x1000);
        space[0x60 / 4] = 0x0410_0009;
        (space[0x64 / 4], space[0x68 / 4]) = (4, 0x2000);
        Card {
            space,
            bar: 4,
            features: SPEED_DUPLEX,
            speed: 2500,
            status: 0,
            selected: Cell::new(0),
        }
    }

    fn told(card: &Card) -> Option<u32> {
        let told = link_speed(RED_HAT, 0x1041, card);
        assert_eq!(card.selected.get(), 0, "it is as it was");
        told
    }

    #[test]
    fn virtio_tells_where_it_has_the_feature() {
        assert_eq!(told(&virtio()), Some(2500));
        assert_eq!(link_speed(RED_HAT, 0x1000, &virtio()), Some(2500));
        assert_eq!(link_speed(RED_HAT, 0x1042, &virtio()), None);
        let without = |change: fn(&mut Card)| {
            let mut card = virtio();
            change(&mut card);
            told(&card)
        };
        assert_eq!(without(|card| card.features = !SPEED_DUPLEX), None);
        // Unknown.
        assert_eq!(without(|card| card.speed = u32::MAX), None);
        assert_eq!(without(|card| card.speed = 0), None);
        assert_eq!(without(|card| card.bar = 3), None);
        assert_eq!(without(|card| card.space[1] = 0), None);
        // A list in a circle, and a BAR that there is not.
        assert_eq!(without(|card| card.space[0x50 / 4] = 0x0210_4009), None);
        assert_eq!(without(|card| card.space[0x54 / 4] = 6), None);
    }

    #[test]
    fn intels_cards_tell_while_there_is_a_link() {
        let told = |status| {
            let card = Card {
                bar: 0,
                status,
                ..virtio()
            };
            assert_eq!(link_speed(INTEL, 0x15b7, &card), None);
            link_speed(INTEL, 0x10d3, &card)
        };
        assert_eq!(told(0x8008_0783), Some(1000));
        assert_eq!(told(0x43), Some(100));
        assert_eq!(told(0x03), Some(10));
        assert_eq!(told(0xc3), Some(1000));
        assert_eq!(told(0x81), None);
        assert_eq!(told(u32::MAX), None);
    }
}
