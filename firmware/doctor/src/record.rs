//! `record on|off`: whether the firmware loads recorder.efi at each start, by `Driver####` and `DriverOrder` (UEFI 2.10 section 3.1.3).

use crate::error::{Error, refused};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_platform::image::LoadedSelf;
use wireboot_platform::variable;
use wireboot_platform::volume::Volume;

/// The file, beside doctor.efi.
const FILE: &str = "recorder.efi";
/// The name of our `Driver####`, by which it is known again.
const NAME: &str = "wireboot recorder";
/// `LOAD_OPTION_ACTIVE`.
const ACTIVE: u32 = 1;
const ORDER: &str = "DriverOrder";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    Off,
    /// Say whether it is on.
    Tell,
}

/// Does it, and tells.
///
/// # Errors
/// When doctor.efi did not come from a disk with recorder.efi, or the firmware takes no variables.
pub(crate) fn run(switch: Switch, image: &LoadedSelf) -> Result<(), Error> {
    let mut firmware = Firmware;
    let entry = match switch {
        Switch::On => {
            let place = Place::of(image.path.as_deref().unwrap_or_default())?;
            let there = image.device.is_some_and(|disk| {
                Volume::of(disk).is_some_and(|mut volume| volume.has_file(&place.file))
            });
            if !there {
                return Err(Error::NoRecorder(place.file));
            }
            Some(switch_on(&mut firmware, &place.option())?)
        }
        Switch::Off => {
            switch_off(&mut firmware)?;
            None
        }
        Switch::Tell => ours(&firmware).first().copied(),
    };
    match entry {
        Some(number) => log::info!(
            "record is on: {} has the firmware load {FILE} at each start of the machine",
            name(number)
        ),
        None => log::info!("record is off"),
    }
    Ok(())
}

/// The firmware's non-volatile global variables.
trait Variables {
    fn read(&self, name: &str) -> Option<Box<[u8]>>;
    fn write(&mut self, name: &str, content: &[u8]) -> Result<(), Error>;
    fn remove(&mut self, name: &str) -> Result<(), Error>;
}

struct Firmware;

impl Variables for Firmware {
    fn read(&self, name: &str) -> Option<Box<[u8]>> {
        variable::read(name, variable::GLOBAL)
    }

    fn write(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
        variable::store(name, variable::GLOBAL, content)
            .map_err(refused("a variable that it keeps"))
    }

    fn remove(&mut self, name: &str) -> Result<(), Error> {
        variable::remove(name, variable::GLOBAL);
        match self.read(name) {
            None => Ok(()),
            Some(_) => Err(Error::Kept(name.to_string())),
        }
    }
}

/// Where recorder.efi is.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// The nodes of the disk's path.
    disk: Vec<u8>,
    /// The file's path on it.
    file: String,
}

impl Place {
    /// Beside the program with this path, whose nodes are without an end.
    fn of(program: &[u8]) -> Result<Self, Error> {
        const MEDIA: u8 = 4;
        const FILE_PATH: u8 = 4;
        const DISKS: [u8; 2] = [1, 2];
        let mut rest = program;
        let mut disk = Vec::new();
        let mut file = String::new();
        let mut on_disk = false;
        while let [kind, sub_kind, low, high, ..] = *rest {
            let length = usize::from(u16::from_le_bytes([low, high])).max(4);
            let Some((node, behind)) = rest.split_at_checked(length) else {
                break;
            };
            rest = behind;
            match (kind, sub_kind) {
                (MEDIA, FILE_PATH) => {
                    let text = node.get(4..).unwrap_or_default();
                    push(&mut file, &text16(text));
                }
                _ => {
                    on_disk |= kind == MEDIA && DISKS.contains(&sub_kind);
                    disk.extend(node);
                }
            }
        }
        let directory = file.rfind('\\').and_then(|end| file.get(..end));
        match directory {
            Some(directory) if on_disk => Ok(Self {
                disk,
                file: format!("{directory}\\{FILE}"),
            }),
            _ => Err(Error::NotFromDisk),
        }
    }

    /// The content of a `Driver####` for it (`EFI_LOAD_OPTION`).
    fn option(&self) -> Vec<u8> {
        let file = utf16(&self.file);
        let mut path = self.disk.clone();
        path.extend([4, 4]);
        path.extend(((file.len() + 4) as u16).to_le_bytes());
        path.extend(file);
        path.extend([0x7f, 0xff, 4, 0]);
        let mut option = ACTIVE.to_le_bytes().to_vec();
        option.extend((path.len() as u16).to_le_bytes());
        option.extend(utf16(NAME));
        option.extend(path);
        option
    }
}

/// File path nodes in a row are one path.
fn push(path: &mut String, more: &str) {
    if !path.ends_with('\\') && !more.starts_with('\\') {
        path.push('\\');
    }
    path.push_str(more);
}

/// With a NUL.
fn utf16(text: &str) -> Vec<u8> {
    let units = text.encode_utf16().chain([0]);
    units.flat_map(u16::to_le_bytes).collect()
}

/// Up to a NUL.
fn text16(bytes: &[u8]) -> String {
    let units = bytes.as_chunks::<2>().0.iter();
    let units = units.map(|unit| u16::from_le_bytes(*unit));
    let text = char::decode_utf16(units.take_while(|unit| *unit != 0));
    text.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

fn name(number: u16) -> String {
    format!("Driver{number:04X}")
}

/// `DriverOrder`.
fn order(variables: &impl Variables) -> Vec<u16> {
    let bytes = variables.read(ORDER).unwrap_or_default();
    let pairs = bytes.as_chunks::<2>().0.iter();
    pairs.map(|pair| u16::from_le_bytes(*pair)).collect()
}

/// Of the drivers in the order, those that are ours.
fn ours(variables: &impl Variables) -> Vec<u16> {
    let is_ours = |number: &u16| {
        let option = variables.read(&name(*number)).unwrap_or_default();
        option.get(6..).is_some_and(|named| text16(named) == NAME)
    };
    order(variables).into_iter().filter(is_ours).collect()
}

fn write_order(variables: &mut impl Variables, order: &[u16]) -> Result<(), Error> {
    if order.is_empty() {
        return variables.remove(ORDER);
    }
    let bytes: Vec<u8> = order
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    variables.write(ORDER, &bytes)
}

/// Has the firmware load what `option` says, and no other recorder. Which `Driver####` it is.
fn switch_on(variables: &mut impl Variables, option: &[u8]) -> Result<u16, Error> {
    if let Some(number) = ours(variables).first().copied() {
        let name = name(number);
        if variables.read(&name).as_deref() != Some(option) {
            variables.write(&name, option)?;
        }
        return Ok(number);
    }
    let free = (0..=u16::MAX).find(|number| variables.read(&name(*number)).is_none());
    let number = free.ok_or_else(|| Error::Kept(name(u16::MAX)))?;
    variables.write(&name(number), option)?;
    let mut all = order(variables);
    all.push(number);
    if let Err(error) = write_order(variables, &all) {
        // Nobody would come by it.
        variables.remove(&name(number))?;
        return Err(error);
    }
    Ok(number)
}

/// Removes ours, in an order in which the firmware never looks for one that is gone.
fn switch_off(variables: &mut impl Variables) -> Result<(), Error> {
    let ours = ours(variables);
    if ours.is_empty() {
        return Ok(());
    }
    let mut others = order(variables);
    others.retain(|number| !ours.contains(number));
    write_order(variables, &others)?;
    ours.iter()
        .try_for_each(|number| variables.remove(&name(*number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;

    /// Variables, and how many more can be written.
    #[derive(Clone, Debug, PartialEq)]
    struct Kept(BTreeMap<String, Vec<u8>>, usize);

    impl Variables for Kept {
        fn read(&self, name: &str) -> Option<Box<[u8]>> {
            self.0.get(name).map(|content| content.as_slice().into())
        }

        fn write(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
            let left = self.1.checked_sub(1);
            self.1 = left.ok_or_else(|| Error::Kept(name.into()))?;
            self.0.insert(name.into(), content.into());
            Ok(())
        }

        fn remove(&mut self, name: &str) -> Result<(), Error> {
            self.0.remove(name);
            Ok(())
        }
    }

    fn kept(variables: &[(&str, &[u8])]) -> Kept {
        let all = variables.iter();
        Kept(
            all.map(|(name, content)| ((*name).into(), content.to_vec()))
                .collect(),
            usize::MAX,
        )
    }

    /// A partition of a disk behind PCI, and files on it.
    fn program(files: &[&str]) -> Vec<u8> {
        let mut path = vec![
            2, 1, 12, 0, 0xd0, 0x41, 3, 0x0a, 0, 0, 0, 0, 1, 1, 6, 0, 0, 3,
        ];
        path.extend([4, 1, 42, 0]);
        path.extend([7; 38]);
        for file in files {
            let text = utf16(file);
            path.extend([4, 4, text.len() as u8 + 4, 0]);
            path.extend(text);
        }
        path
    }

    fn option() -> Vec<u8> {
        Place::of(&program(&["\\EFI\\BOOT\\BOOTX64.EFI"]))
            .unwrap()
            .option()
    }

    #[test]
    fn the_recorder_lies_beside_the_doctor() {
        let place = Place::of(&program(&["\\EFI\\BOOT\\BOOTX64.EFI"])).unwrap();
        assert_eq!(place.file, "\\EFI\\BOOT\\recorder.efi");
        assert_eq!(place.disk, program(&[]));
        for files in [
            &["doctor.efi"][..],
            &["\\doctor.efi"],
            &["\\", "doctor.efi"],
        ] {
            assert_eq!(Place::of(&program(files)).unwrap().file, "\\recorder.efi");
        }
        let apart = Place::of(&program(&["\\EFI", "tools\\doctor.efi"])).unwrap();
        assert_eq!(apart.file, "\\EFI\\tools\\recorder.efi");
    }

    #[test]
    fn a_doctor_by_network_has_none() {
        let by_network = [3, 11, 5, 0, 1];
        let in_memory = [1, 3, 4, 0];
        for path in [&[][..], &by_network, &in_memory, &program(&[])] {
            assert!(
                matches!(Place::of(path), Err(Error::NotFromDisk)),
                "{path:?}"
            );
        }
        let whole = program(&["\\doctor.efi"]);
        for end in 0..whole.len() {
            assert!(Place::of(&whole[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn an_option_is_as_uefi_has_it() {
        let option = option();
        assert_eq!(option[..4], [1, 0, 0, 0]);
        let length = usize::from(u16::from_le_bytes([option[4], option[5]]));
        assert_eq!(text16(&option[6..]), NAME);
        let path = &option[6 + utf16(NAME).len()..];
        assert_eq!(path.len(), length);
        let file = utf16("\\EFI\\BOOT\\recorder.efi");
        let head = [4, 4, file.len() as u8 + 4, 0];
        let end = [0x7f, 0xff, 4, 0];
        let expected = [&program(&[]), &head[..], &file, &end].concat();
        assert_eq!(path, expected);
    }

    #[test]
    fn on_and_off_leave_what_others_have() {
        let other = [1, 0, 0, 0, 4, 0, b'x', 0, 0, 0, 0x7f, 0xff, 4, 0];
        for before in [
            kept(&[]),
            kept(&[
                ("DriverOrder", &[3, 0, 0, 0]),
                ("Driver0000", &other),
                ("Driver0003", &other),
            ]),
        ] {
            let mut now = before.clone();
            let number = switch_on(&mut now, &option()).unwrap();
            assert_eq!(ours(&now), [number]);
            assert_eq!(order(&now).last(), Some(&number));
            let once = now.clone();
            assert_eq!(switch_on(&mut now, &option()).unwrap(), number);
            assert_eq!(now.0, once.0);
            switch_off(&mut now).unwrap();
            assert_eq!(now.0, before.0);
            switch_off(&mut now).unwrap();
            assert_eq!(now.0, before.0);
        }
    }

    #[test]
    fn a_recorder_that_moved_is_found_anew() {
        let mut now = kept(&[]);
        let number = switch_on(&mut now, &option()).unwrap();
        let moved = Place::of(&program(&["\\doctor.efi"])).unwrap().option();
        assert_eq!(switch_on(&mut now, &moved).unwrap(), number);
        assert_eq!(now.read(&name(number)).as_deref(), Some(&moved[..]));
        assert_eq!(order(&now), [number]);
    }

    #[test]
    fn firmware_that_is_full_keeps_what_it_had() {
        for room in 0..2 {
            let mut now = kept(&[]);
            now.1 = room;
            assert!(switch_on(&mut now, &option()).is_err());
            assert_eq!(now.0, BTreeMap::new(), "{room}");
        }
    }
}
