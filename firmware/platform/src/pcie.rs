//! The link of a PCI Express function, as its configuration space tells it (PCI Express Base Specification 6.0, section 7.5.3).

/// The identifier of the capability.
const CAPABILITY: u32 = 0x10;
/// From its beginning: link capabilities, and link control with the link's status above.
const LINK_CAPABILITIES: u8 = 0x0c;
const LINK_CONTROL: u8 = 0x10;
/// As many capabilities have room behind the header.
const MOST: usize = 48;

/// How fast and how wide a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// 1: 2.5 GT/s, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64.
    pub generation: u8,
    /// Number of lanes, at least 1.
    pub lanes: u8,
}

impl Width {
    fn of(register: u32) -> Option<Self> {
        let width = Self {
            generation: (register & 0xf) as u8,
            lanes: (register >> 4 & 0x3f) as u8,
        };
        (width.generation > 0 && width.lanes > 0).then_some(width)
    }
}

/// The link of a PCI Express function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// By the Link Status register (section 7.5.3.8).
    pub now: Width,
    /// What the card could have, by its Link Capabilities register (section 7.5.3.6).
    pub most: Width,
}

/// By `read`, which reads 32 bits of configuration space. `None` for a function without a link: one that is not of PCI Express, or is part of
/// the processor.
pub(crate) fn link(read: impl Fn(u8) -> u32) -> Option<Link> {
    // The bit of the status register that says that there is a list.
    let has_list = read(0x04) & 1 << 20 != 0;
    let mut at = has_list.then(|| (read(0x34) & 0xfc) as u8)?;
    for _ in 0..MOST {
        if at < 0x40 {
            return None;
        }
        let header = read(at);
        if header & 0xff == CAPABILITY {
            let most = read(at.checked_add(LINK_CAPABILITIES)?);
            let now = read(at.checked_add(LINK_CONTROL)?) >> 16;
            return Some(Link {
                now: Width::of(now)?,
                most: Width::of(most)?,
            });
        }
        at = (header >> 8 & 0xfc) as u8;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function whose list begins at 0x40 with a capability of another kind, and goes on at 0x60.
    fn function(most: u32, status: u32) -> [u32; 64] {
        let mut space = [0; 64];
        space[1] = 1 << 20;
        space[0x34 / 4] = 0x40;
        space[0x40 / 4] = 0x6005;
        space[0x60 / 4] = 0x0010;
        space[0x6c / 4] = most;
        space[0x70 / 4] = status << 16 | 0xffff;
        space
    }

    fn read(space: [u32; 64]) -> Option<Link> {
        link(|at| space[usize::from(at / 4)])
    }

    #[test]
    fn a_link_is_as_it_is_and_as_it_could_be() {
        let width = |generation, lanes| Width { generation, lanes };
        let told = read(function(0x0040_0083, 0x1042)).unwrap();
        assert_eq!((told.now, told.most), (width(2, 4), width(3, 8)));
    }

    #[test]
    fn who_has_no_link_tells_none() {
        assert_eq!(read(function(0, 0x1042)), None);
        assert_eq!(read(function(0x83, 0)), None);
        let mut none = function(0x83, 0x42);
        none[1] = 0;
        assert_eq!(read(none), None);
        let mut circle = function(0x83, 0x42);
        circle[0x60 / 4] = 0x4005;
        assert_eq!(read(circle), None);
        // A function that is gone reads as ones.
        assert_eq!(read([u32::MAX; 64]), None);
    }
}
