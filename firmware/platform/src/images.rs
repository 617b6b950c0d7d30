//! Which image code in memory belongs to: the firmware's drivers by their names, for who has seen an address.
//!
//! A driver's name is the user interface section of its file in the firmware volume that it was loaded from (PI 1.8, volume 3, section 2.2.5), else
//! its file's name or number. What has neither is told by its address.

use crate::device_path;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::slice;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::ProtocolPointer;
use uefi::proto::loaded_image::LoadedImage;
use uefi::proto::unsafe_protocol;
use uefi::{Guid, Handle, Status};
use uefi_raw::protocol::firmware_volume::{FirmwareVolume2Protocol, SectionType};

/// As many images are named at most.
const MOST: usize = 1024;
/// The longest name that is taken, in characters.
const LONGEST_NAME: usize = 48;

/// An image in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What it is called.
    pub name: String,
    /// Address of its first byte in memory.
    pub base: u64,
    /// Its size in memory, in bytes.
    pub bytes: u64,
}

/// The images in memory when they were read, by address.
#[derive(Clone, Debug, Default)]
pub struct Images(Vec<Image>);

impl Images {
    /// All that the firmware knows of. Reads the firmware's flash or its copy, some milliseconds.
    #[must_use]
    pub fn read() -> Self {
        let handles = boot::locate_handle_buffer(SearchType::from_proto::<LoadedImage>());
        let Ok(handles) = handles else {
            return Self::default();
        };
        Self::of(
            handles
                .iter()
                .take(MOST)
                .filter_map(|&handle| image(handle)),
        )
    }

    /// These images, sorted by address.
    #[must_use]
    pub fn of(images: impl IntoIterator<Item = Image>) -> Self {
        let mut sorted: Vec<Image> = Vec::new();
        for image in images {
            // In its place at once: the library's sort is 4 kB of a program for each type.
            let place = sorted.partition_point(|one| one.base <= image.base);
            sorted.insert(place, image);
        }
        Self(sorted)
    }

    /// The image that has `address`, and its number: less than [`len`](Self::len).
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(usize, &Image)> {
        let number = self
            .0
            .partition_point(|image| image.base <= address)
            .checked_sub(1)?;
        let image = self.0.get(number)?;
        (address - image.base < image.bytes).then_some((number, image))
    }

    /// The images in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = &Image> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The protocol as the `uefi` crate opens it.
#[repr(transparent)]
#[unsafe_protocol(FirmwareVolume2Protocol::GUID)]
struct Volume(FirmwareVolume2Protocol);

fn open<P: ProtocolPointer>(handle: Handle) -> Option<ScopedProtocol<P>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: used at once; images and firmware volumes go only when somebody unloads them, which nothing below does.
    unsafe { boot::open_protocol(params, OpenProtocolAttributes::GetProtocol) }.ok()
}

/// The name of an image, by its handle.
pub(crate) fn name(handle: Handle) -> Option<String> {
    image(handle).map(|image| image.name)
}

fn image(handle: Handle) -> Option<Image> {
    let loaded = open::<LoadedImage>(handle)?;
    let loaded = loaded.get()?;
    let (base, bytes) = loaded.info();
    let base = base as u64;
    if base == 0 || bytes == 0 {
        return None;
    }
    let nodes: Box<[u8]> = loaded
        .file_path()
        .map(device_path::nodes)
        .unwrap_or_default();
    let name = match file_of(&nodes) {
        File::OfVolume(file) => loaded
            .device()
            .and_then(|volume| name_in(volume, &file))
            .unwrap_or_else(|| file.to_string()),
        File::Named(name) => name,
        File::Unknown => format!("image at {base:#x}"),
    };
    Some(Image { name, base, bytes })
}

/// What an image's path says of its file.
#[derive(Debug, PartialEq, Eq)]
enum File {
    /// Its number in a firmware volume.
    OfVolume(Guid),
    /// Its name on a medium.
    Named(String),
    Unknown,
}

/// Type and subtypes of nodes (UEFI 2.10, section 10.3.5; PI 1.8, volume 2, section 7.3).
const MEDIA: u8 = 4;
const FILE_PATH: u8 = 4;
const VOLUME_FILE: u8 = 6;

/// What the last node that names a file says.
fn file_of(nodes: &[u8]) -> File {
    let mut found = File::Unknown;
    let mut rest = nodes;
    while let [kind, sub_kind, low, high, ..] = *rest {
        let length = usize::from(u16::from_le_bytes([low, high]));
        let Some((node, next)) = rest.split_at_checked(length).filter(|_| length >= 4) else {
            break;
        };
        let content = node.get(4..).unwrap_or_default();
        match (kind, sub_kind) {
            (MEDIA, VOLUME_FILE) => {
                if let Some(bytes) = content.first_chunk() {
                    found = File::OfVolume(Guid::from_bytes(*bytes));
                }
            }
            (MEDIA, FILE_PATH) => {
                let name = text(content);
                let last = name.rsplit(['\\', '/']).next().unwrap_or_default();
                if !last.is_empty() {
                    found = File::Named(last.to_string());
                }
            }
            _ => {}
        }
        rest = next;
    }
    found
}

/// UCS-2 up to a zero, without what is no letter on a screen.
fn text(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).filter_map(|pair| {
        let unit = pair.first_chunk()?;
        Some(u16::from_le_bytes(*unit))
    });
    char::decode_utf16(units.take_while(|&unit| unit != 0))
        .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
        .filter(|letter| !letter.is_control())
        .take(LONGEST_NAME)
        .collect()
}

/// The name of a file in a firmware volume.
fn name_in(volume: Handle, file: &Guid) -> Option<String> {
    let volume = open::<Volume>(volume)?;
    let volume = &volume.get()?.0;
    let mut section: *mut c_void = ptr::null_mut();
    let (mut bytes, mut authentication) = (0, 0);
    // SAFETY: the protocol is live; the section comes in memory that the firmware allocates, as none is given.
    let status = unsafe {
        (volume.read_section)(
            volume,
            file,
            SectionType::USER_INTERFACE,
            0,
            &raw mut section,
            &raw mut bytes,
            &raw mut authentication,
        )
    };
    let section = NonNull::new(section.cast::<u8>())?;
    let name = (status == Status::SUCCESS).then(|| {
        // SAFETY: the firmware's memory, as long as it says.
        text(unsafe { slice::from_raw_parts(section.as_ptr(), bytes) })
    });
    // SAFETY: from the firmware's pool, and not used again.
    let _ = unsafe { boot::free_pool(section) };
    name.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ucs2(text: &str) -> Vec<u8> {
        let units = text.encode_utf16().chain([0]);
        units.flat_map(u16::to_le_bytes).collect()
    }

    fn node(kind: u8, sub_kind: u8, content: &[u8]) -> Vec<u8> {
        let length = (content.len() + 4) as u16;
        let [low, high] = length.to_le_bytes();
        [&[kind, sub_kind, low, high], content].concat()
    }

    #[test]
    fn a_path_names_its_file() {
        let guid = Guid::from_bytes([7; 16]);
        let acpi = node(2, 1, &[0; 8]);
        let of_volume = [acpi.clone(), node(4, 6, &[7; 16])].concat();
        assert_eq!(file_of(&of_volume), File::OfVolume(guid));
        let of_disk = [acpi.clone(), node(4, 4, &ucs2("\\EFI\\BOOT\\BOOTX64.EFI"))].concat();
        assert_eq!(file_of(&of_disk), File::Named("BOOTX64.EFI".into()));
        for nothing in [&acpi[..], &[], &node(4, 6, &[7; 15]), &node(4, 4, &[])] {
            assert_eq!(file_of(nothing), File::Unknown);
        }
        // Cut off, or without end.
        for length in 0..of_volume.len() {
            assert_eq!(file_of(&of_volume[..length]), File::Unknown);
        }
        assert_eq!(file_of(&[4, 6, 0, 0, 4, 6, 0, 0]), File::Unknown);
    }

    #[test]
    fn a_name_is_short_and_has_letters_alone() {
        assert_eq!(text(&ucs2("MnpDxe")), "MnpDxe");
        assert_eq!(text(&ucs2("a\u{1b}[31mb")), "a[31mb");
        assert_eq!(text(&ucs2(&"x".repeat(99))).len(), LONGEST_NAME);
        assert_eq!(text(&[0x41, 0, 0, 0xd8, 0x42]), "A\u{fffd}");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn an_address_is_in_the_image_around_it() {
        let image = |name: &str, base, bytes| Image {
            name: name.into(),
            base,
            bytes,
        };
        let images = Images::of([image("b", 0x3000, 0x1000), image("a", 0x1000, 0x1000)]);
        let at = |address| images.at(address).map(|(_, image)| image.name.as_str());
        for (address, name) in [
            (0x1000, Some("a")),
            (0x1fff, Some("a")),
            (0x2000, None),
            (0x3fff, Some("b")),
            (0x4000, None),
            (0xfff, None),
            (u64::MAX, None),
        ] {
            assert_eq!(at(address), name, "{address:#x}");
        }
        assert_eq!((images.len(), images.at(0x3000).unwrap().0), (2, 1));
    }
}
