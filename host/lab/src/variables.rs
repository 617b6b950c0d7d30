//! A firmware's variables, written before it runs: what to boot next, where stock firmware would come to it only after others.

use std::mem::size_of;

use anyhow::{Context, Result, ensure};

/// Reads and adds to OVMF's variable store: a firmware volume whose one content is a list of variables (UEFI's
/// authenticated ones, as EDK II writes them).
struct Store<'a> {
    bytes: &'a mut [u8],
    /// Where the first variable is.
    begin: usize,
    /// Where the next variable goes.
    end: usize,
}

/// `EFI_FIRMWARE_VOLUME_HEADER.HeaderLength`.
const HEADER_LENGTH: usize = 48;
/// `gEfiAuthenticatedVariableGuid`, the format of the store.
const AUTHENTICATED: [u8; 16] = [
    0x78, 0x2c, 0xf3, 0xaa, 0x7b, 0x94, 0x9a, 0x43, 0xa1, 0x80, 0x2e, 0x14, 0x4e, 0xc3, 0x77, 0x92,
];
/// `VARIABLE_STORE_HEADER`.
const STORE_HEADER: usize = 28;
/// `EFI_GLOBAL_VARIABLE`.
const GLOBAL: [u8; 16] = [
    0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c,
];
/// `VARIABLE_DATA`, the first two bytes of each variable.
const START: [u8; 2] = [0xaa, 0x55];
/// `VAR_ADDED`.
const ADDED: u8 = 0x3f;
/// `VAR_ADDED & VAR_DELETED`.
const DELETED: u8 = ADDED & 0xfd;
/// Where `State` is in the header.
const STATE: usize = 2;
/// Non-volatile, and seen by boot services and by the system.
const ATTRIBUTES: u32 = 7;
/// `AUTHENTICATED_VARIABLE_HEADER`.
const HEADER: usize = 60;
/// Where `NameSize` is in it; `DataSize` follows.
const NAME_SIZE: usize = 36;

/// A variable of a store: where it begins, and where its data are.
struct Found {
    at: usize,
    data: std::ops::Range<usize>,
}

/// Little-endian, as all of UEFI is.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl Store<'_> {
    /// Finds the end of the variables that are there.
    fn open(bytes: &mut [u8]) -> Option<Store<'_>> {
        let header = usize::from(u16::from_le_bytes(number(bytes, HEADER_LENGTH)?));
        if number(bytes, header)? != AUTHENTICATED {
            return None;
        }
        let begin = header + STORE_HEADER;
        let mut end = begin;
        while number(bytes, end)? == START {
            let name = u32::from_le_bytes(number(bytes, end + NAME_SIZE)?);
            let data = u32::from_le_bytes(number(bytes, end + NAME_SIZE + size_of::<u32>())?);
            let length = usize::try_from(name).ok()? + usize::try_from(data).ok()?;
            end = (end + HEADER).checked_add(length)?.next_multiple_of(4);
        }
        Some(Store { bytes, begin, end })
    }

    /// A variable that is there, with its data.
    fn find(&self, wanted: &str) -> Option<Found> {
        let wanted = ucs2(wanted);
        let mut at = self.begin;
        while at < self.end {
            let length = |field| {
                let length = u32::from_le_bytes(number(self.bytes, at + NAME_SIZE + field)?);
                usize::try_from(length).ok()
            };
            let (name, data) = (length(0)?, length(size_of::<u32>())?);
            let name = at + HEADER..at + HEADER + name;
            let data = name.end..name.end + data;
            if self.bytes.get(at + STATE) == Some(&ADDED) && self.bytes.get(name)? == wanted {
                return Some(Found { at, data });
            }
            at = data.end.next_multiple_of(4);
        }
        None
    }

    /// Adds to the data of a variable that is there: deletes it, and writes it anew behind the others with the same header.
    fn extend(&mut self, name: &str, more: &[u8]) -> Option<()> {
        let Found { at, data } = self.find(name)?;
        let mut variable = self.bytes.get(at..data.end)?.to_vec();
        variable.extend(more);
        let length = u32::try_from(data.len() + more.len()).ok()?.to_le_bytes();
        let size = NAME_SIZE + size_of::<u32>();
        variable
            .get_mut(size..size + length.len())?
            .copy_from_slice(&length);
        *self.bytes.get_mut(at + STATE)? = DELETED;
        self.append(&variable)
    }

    fn add(&mut self, name: &str, data: &[u8]) -> Option<()> {
        let name = ucs2(name);
        let mut variable = [&START[..], &[ADDED, 0], &ATTRIBUTES.to_le_bytes()].concat();
        // No count, no time, no key: those are for variables that are signed.
        variable.resize(NAME_SIZE, 0);
        for length in [name.len(), data.len()] {
            variable.extend(u32::try_from(length).ok()?.to_le_bytes());
        }
        variable.extend(GLOBAL);
        variable.extend(name);
        variable.extend(data);
        self.append(&variable)
    }

    fn append(&mut self, variable: &[u8]) -> Option<()> {
        self.bytes
            .get_mut(self.end..)?
            .get_mut(..variable.len())?
            .copy_from_slice(variable);
        self.end = (self.end + variable.len()).next_multiple_of(4);
        Some(())
    }
}

/// UTF-16 with a zero at its end.
fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16()
        .chain([0])
        .flat_map(u16::to_le_bytes)
        .collect()
}

/// Where the firmware's HTTP Boot over IPv6 has its device path: behind the network card in a slot of the first PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpBoot6 {
    pub slot: u8,
    pub mac: [u8; 6],
}

impl HttpBoot6 {
    /// `PciRoot(0)/Pci(slot,0)/MAC(mac,1)/IPv6()/Uri()` (UEFI 2.10 section 10.3), as EDK II makes it.
    fn device_path(self) -> Vec<u8> {
        // The address with room for longer ones; Ethernet.
        let mut mac = [0; 33];
        mac.iter_mut()
            .zip(self.mac)
            .for_each(|(to, from)| *to = from);
        mac[32] = 1;
        // No addresses yet: both, their ports, protocol, origin, the prefix's length, the router.
        let mut ip = [0; 56];
        ip[39] = 64;
        [
            // EISA id PNP0A03, unit 0.
            node(2, 1, &[0xd0, 0x41, 0x03, 0x0a, 0, 0, 0, 0]),
            node(1, 1, &[0, self.slot]),
            node(3, 11, &mac),
            node(3, 13, &ip),
            node(3, 24, &[]),
            END.to_vec(),
        ]
        .concat()
    }

    fn load_option(self) -> Vec<u8> {
        load_option("HTTP Boot over IPv6", &self.device_path(), &[])
    }
}

/// A driver that the firmware loads before it boots (`Driver####`, UEFI 2.10 section 3.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its file, in the root of any disk.
    pub file: String,
    /// Its load options.
    pub options: String,
}

impl Driver {
    fn load_option(&self) -> Vec<u8> {
        // A path of a file alone: the firmware looks for it on all disks.
        let path = [node(4, 4, &ucs2(&format!("\\{}", self.file))), END.to_vec()].concat();
        load_option(&self.file, &path, &ucs2(&self.options))
    }
}

/// A node of a device path.
fn node(kind: u8, sub_kind: u8, data: &[u8]) -> Vec<u8> {
    let length = (data.len() + 4) as u16;
    [&[kind, sub_kind], &length.to_le_bytes()[..], data].concat()
}

/// The last node.
const END: [u8; 4] = [0x7f, 0xff, 4, 0];

/// `EFI_LOAD_OPTION`, active.
fn load_option(name: &str, path: &[u8], options: &[u8]) -> Vec<u8> {
    let mut option = 1_u32.to_le_bytes().to_vec();
    option.extend((path.len() as u16).to_le_bytes());
    option.extend(ucs2(name));
    option.extend(path);
    option.extend(options);
    option
}

/// Has the firmware with these variables trust those whom the one with the `others` trusts, too (`db`, UEFI 2.10 section 32.4.1).
///
/// # Errors
/// When the variables are not in the form in which OVMF has them, or have no room.
pub fn trust_too(variables: &mut [u8], others: &mut [u8]) -> Result<()> {
    const DB: &str = "db";
    let trusted = Store::open(others).and_then(|store| {
        let data = store.find(DB)?.data;
        store.bytes.get(data).map(<[u8]>::to_vec)
    });
    let trusted = trusted.context("the other variables have no db")?;
    let extended = Store::open(variables).and_then(|mut store| store.extend(DB, &trusted));
    extended.context("the variables have no db, or no room")
}

/// A number that no other load option gets: firmware counts from 0.
const NUMBER: u16 = 0x0077;

/// Has the firmware with these variables begin with HTTP Boot over IPv6, once.
///
/// # Errors
/// When the variables are not in the form in which OVMF has them, or have no room.
pub(crate) fn boot_next(variables: &mut [u8], option: HttpBoot6) -> Result<()> {
    load(variables, "Boot", &option.load_option(), "BootNext")
}

/// Has the firmware with these variables load a driver before it boots. They have no other driver.
///
/// # Errors
/// When the variables are not in the form in which OVMF has them, or have no room.
pub(crate) fn load_driver(variables: &mut [u8], driver: &Driver) -> Result<()> {
    load(variables, "Driver", &driver.load_option(), "DriverOrder")
}

/// Adds a load option of a kind, and the variable that names it.
fn load(variables: &mut [u8], kind: &str, option: &[u8], by: &str) -> Result<()> {
    let mut store =
        Store::open(variables).context("the template of variables is not one of OVMF's")?;
    let added = store
        .add(&format!("{kind}{NUMBER:04X}"), option)
        .and_then(|()| store.add(by, &NUMBER.to_le_bytes()));
    ensure!(added.is_some(), "the firmware's variables have no room");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTION: HttpBoot6 = HttpBoot6 {
        slot: 3,
        mac: [0x52, 0x54, 0, 0x77, 0, 2],
    };

    /// An empty store of 1 KiB.
    fn store() -> Vec<u8> {
        let mut bytes = vec![0; 72];
        bytes[HEADER_LENGTH] = 72;
        bytes.extend(AUTHENTICATED);
        bytes.resize(72 + STORE_HEADER, 0);
        bytes.resize(1024, 0xff);
        bytes
    }

    #[test]
    fn path_is_that_of_firmware() {
        // As OVMF 2022.11 has it in a boot option that it made itself.
        let expected = "02010c00d041030a0000000001010600000303 0b2500 525400770002\
             0000000000000000000000000000000000000000000000000000 01 030d3c00\
             00000000000000000000000000000000 00000000000000000000000000000000 0000 0000 0000 00 40\
             00000000000000000000000000000000 03180400 7fff0400"
            .replace(' ', "");
        let path = OPTION.device_path();
        let path: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(path, expected);
    }

    #[test]
    fn variables_follow_one_another() {
        let mut bytes = store();
        boot_next(&mut bytes, OPTION).unwrap();
        let first = 72 + STORE_HEADER;
        assert_eq!(
            bytes.get(first..first + 4),
            Some(&[0xaa, 0x55, 0x3f, 0][..])
        );
        // What reads them finds the end behind both, and a third goes there.
        let end = Store::open(&mut bytes).unwrap().end;
        let length =
            |name: &str, data: usize| (HEADER + ucs2(name).len() + data).next_multiple_of(4);
        let option = OPTION.load_option().len();
        assert_eq!(
            end,
            first + length("Boot0077", option) + length("BootNext", 2)
        );
        let second = first + length("Boot0077", option) + HEADER;
        let name = ucs2("BootNext");
        assert_eq!(bytes.get(second..second + name.len()), Some(&name[..]));
        assert_eq!(
            bytes.get(second + name.len()..second + name.len() + 2),
            Some(&[0x77, 0][..])
        );
    }

    #[test]
    fn a_driver_is_loaded_with_its_options() {
        let driver = Driver {
            file: "a.efi".into(),
            options: "b".into(),
        };
        let mut bytes = store();
        load_driver(&mut bytes, &driver).unwrap();
        let store = Store::open(&mut bytes).unwrap();
        let of = |name| store.bytes.get(store.find(name).unwrap().data).unwrap();
        assert_eq!(of("DriverOrder"), [0x77, 0]);
        let path = [&[4, 4, 18, 0], &ucs2("\\a.efi")[..], &[0x7f, 0xff, 4, 0]].concat();
        let expected = [&[1, 0, 0, 0, 22, 0], &ucs2("a.efi")[..], &path, b"b\0\0\0"].concat();
        assert_eq!(of("Driver0077"), expected);
    }

    #[test]
    fn trust_is_added() {
        let with = |db: &[u8]| {
            let mut bytes = store();
            let mut store = Store::open(&mut bytes).unwrap();
            store.add("Timeout", &[5]).unwrap();
            store.add("db", db).unwrap();
            store.add("dbx", &[9]).unwrap();
            bytes
        };
        let mut both = with(b"first");
        trust_too(&mut both, &mut with(b"second")).unwrap();
        let again = Store::open(&mut both).unwrap();
        let found = again.find("db").unwrap();
        assert_eq!(again.bytes.get(found.data), Some(&b"firstsecond"[..]));
        assert!(again.find("dbx").unwrap().at < found.at);
        assert!(trust_too(&mut store(), &mut with(b"second")).is_err());
        assert!(trust_too(&mut both, &mut store()).is_err());
    }

    #[test]
    fn other_files_are_refused() {
        assert!(boot_next(&mut [], OPTION).is_err());
        assert!(boot_next(&mut [0xff; 4096], OPTION).is_err());
        let mut full = store();
        full.truncate(200);
        assert!(boot_next(&mut full, OPTION).is_err());
    }
}
