//! Which boot options lead over a network, and which handles load them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_platform::claim::pci;
use wireboot_platform::load_file::{self, LoadFile};
use wireboot_platform::variable::{self, GLOBAL};
use wireboot_wire::load_option::{self, LoadOption, NetworkBoot};

/// Something that the firmware boots over a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bootable {
    /// The option's name.
    pub name: String,
    /// The card's Ethernet address.
    pub mac: [u8; 6],
    /// The option's path, without end node.
    path: Box<[u8]>,
}

impl Bootable {
    /// `None` for what does not lead over a network.
    fn new(name: String, path: &[u8]) -> Option<Self> {
        Some(Self {
            name,
            mac: NetworkBoot::of(path)?.mac,
            path: path.into(),
        })
    }

    /// A handle that has no option.
    fn of_handle(path: &[u8]) -> Option<Self> {
        let way = NetworkBoot::of(path)?;
        let program = if way.http { "HTTP" } else { "PXE" };
        let version = if way.v6 { 6 } else { 4 };
        let mac: String = way.mac.iter().map(|byte| format!("{byte:02X}")).collect();
        Self::new(format!("{program}v{version} (MAC:{mac})"), path)
    }

    /// Whether a handle with this path loads it: it is on the same interface, for the same version of IP and the same protocol. HTTP Boot writes
    /// addresses into its handle's path.
    fn is_loaded_by(&self, path: &[u8]) -> bool {
        let (Some(own), Some(other)) = (NetworkBoot::of(&self.path), NetworkBoot::of(path)) else {
            return false;
        };
        (own.interface, own.v6, own.http) == (other.interface, other.v6, other.http)
    }

    /// The handle that loads it. Where there is none, the firmware's drivers are connected to the card first, as the boot manager does.
    pub(super) fn handle(&self) -> Option<LoadFile> {
        let find = || {
            let mut handles = load_file::all().into_iter();
            handles.find(|handle| self.is_loaded_by(&handle.path))
        };
        find().or_else(|| {
            pci::function_of(&self.path)?.connect();
            find()
        })
    }

    /// What of its path to give the handle: nothing where the handle's own path is the option's; else HTTP Boot gets all, for the URL in it.
    pub(super) fn path_for(&self, handle: &LoadFile) -> &[u8] {
        let is_http = NetworkBoot::of(&self.path).is_some_and(|way| way.http);
        if is_http && handle.path != self.path {
            &self.path
        } else {
            &[]
        }
    }
}

/// The network boot options, in the firmware's order; where it has none, all handles that could be one.
pub(super) fn found() -> Vec<Bootable> {
    let order = variable::read("BootOrder", GLOBAL).unwrap_or_default();
    let options = load_option::order(&order).filter_map(|number| {
        let bytes = variable::read(&format!("Boot{number:04X}"), GLOBAL)?;
        let option = LoadOption::parse(&bytes)?;
        let name = option.description;
        option.active.then(|| Bootable::new(name, option.path))?
    });
    let options: Vec<Bootable> = options.collect();
    if !options.is_empty() {
        return options;
    }
    let handles = load_file::all();
    let paths = handles.iter().map(|handle| &handle.path);
    paths.filter_map(|path| Bootable::of_handle(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn path(nodes: &[(u8, usize)]) -> Vec<u8> {
        let node = |(subtype, bytes): &(u8, usize)| {
            let length = u8::try_from(4 + bytes).unwrap();
            [vec![3, *subtype, length, 0], vec![7; *bytes]].concat()
        };
        nodes.iter().flat_map(node).collect()
    }

    /// MAC, then IPv4 or IPv6, then URI.
    const PXE4: [(u8, usize); 2] = [(11, 33), (12, 23)];
    const HTTP4: [(u8, usize); 3] = [(11, 33), (12, 23), (24, 0)];
    const HTTP6: [(u8, usize); 3] = [(11, 33), (13, 56), (24, 0)];

    #[test]
    fn a_handle_is_named_by_what_it_does() {
        let name = |nodes: &[_]| Bootable::of_handle(&path(nodes)).unwrap().name;
        assert_eq!(name(&PXE4), "PXEv4 (MAC:070707070707)");
        assert_eq!(name(&HTTP6), "HTTPv6 (MAC:070707070707)");
        assert_eq!(Bootable::of_handle(&path(&[(11, 33)])), None);
    }

    #[test]
    fn an_option_is_loaded_by_the_handle_of_its_card_version_and_protocol() {
        let http = Bootable::new("UEFI HTTPv4".into(), &path(&HTTP4)).unwrap();
        // After a boot: addresses, name servers, and the URL.
        let mut used = path(&[(11, 33), (12, 23), (31, 17), (24, 30)]);
        assert!(http.is_loaded_by(&path(&HTTP4)) && http.is_loaded_by(&used));
        for other in [path(&PXE4), path(&HTTP6), path(&[(11, 33)])] {
            assert!(!http.is_loaded_by(&other));
        }
        // Another card.
        used[4] = 8;
        assert!(!http.is_loaded_by(&used));
    }
}
