//! Images: how this one was loaded, and loading and starting others.

use crate::device_path::{self, PathBuf};
use crate::watchdog;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::Handle;
use uefi::boot::{
    self, LoadImageSource, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol,
};
use uefi::proto::loaded_image::LoadedImage;
use uefi::proto::shell_params::ShellParameters;
use uefi_raw::protocol::loaded_image::LoadedImageProtocol;
use wireboot_wire::pe;

/// Name of the PE section that may hold a boot configuration.
const SECTION: &str = ".wbconf";

/// How the firmware loaded this image.
#[derive(Clone, Debug, Default)]
pub struct LoadedSelf {
    /// The device it came from: a network interface, a disk, or unknown.
    pub device: Option<Handle>,
    /// Nodes of that device's path.
    pub device_path: Option<Box<[u8]>>,
    /// Nodes of the image's whole path.
    pub path: Option<Box<[u8]>>,
    /// The load options as text; empty without any, or where they are none.
    pub options: String,
    /// Content of PE section `.wbconf`, if the image has it.
    pub section: Option<Vec<u8>>,
}

impl LoadedSelf {
    /// What a program that measures or tests is to do: the text of the section, else the load options.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match &self.section {
            Some(bytes) => String::from_utf8_lossy(bytes),
            None => self.options.as_str().into(),
        }
    }
}

/// Whether the shell has started this image (`EFI_SHELL_PARAMETERS_PROTOCOL`), not the boot manager.
#[must_use]
pub fn is_from_the_shell() -> bool {
    boot::test_protocol::<ShellParameters>(OpenProtocolParams {
        handle: boot::image_handle(),
        agent: boot::image_handle(),
        controller: None,
    })
    .unwrap_or(false)
}

/// Where this image lies in memory: its first address and its length in bytes.
pub(crate) fn extent() -> Option<(u64, u64)> {
    let image = open(boot::image_handle())?;
    let (base, bytes) = image.get()?.info();
    Some((base as u64, bytes))
}

/// The image that has loaded `image`.
pub(crate) fn parent(image: Handle) -> Option<Handle> {
    let image = open(image)?;
    let image = NonNull::from(image.get()?).cast::<LoadedImageProtocol>();
    // SAFETY: the protocol is open, and `LoadedImage` is a transparent wrapper of it; the handle is null or one of the firmware's.
    unsafe { Handle::from_ptr(image.as_ref().parent_handle) }
}

fn open(handle: Handle) -> Option<ScopedProtocol<LoadedImage>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the protocol stays on an image's handle while the image is loaded, and is used at once.
    unsafe { boot::open_protocol(params, OpenProtocolAttributes::GetProtocol) }.ok()
}

/// Bytes of the memory at `base`. No reference to it is made: an image also holds statics, which change.
///
/// # Safety
/// The range is valid memory from `base` on, and nobody writes it meanwhile.
unsafe fn copy(base: NonNull<u8>, range: Range<usize>) -> Vec<u8> {
    let mut bytes = alloc::vec![0; range.len()];
    // SAFETY: the caller's word; the copy is as long.
    unsafe {
        let from = base.as_ptr().add(range.start);
        from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len());
    }
    bytes
}

impl LoadedSelf {
    /// By `EFI_LOADED_IMAGE_PROTOCOL` and the image in memory. Empty where the firmware does not offer the protocol.
    #[must_use]
    pub fn read() -> Self {
        let Some(image) = open(boot::image_handle()) else {
            return Self::default();
        };
        let Some(image) = image.get() else {
            return Self::default();
        };
        let device = image.device();
        let (base, size) = image.info();
        let (base, size) = (base.cast::<u8>(), size as usize);
        let section = NonNull::new(base.cast_mut()).and_then(|base| {
            // SAFETY: the firmware loaded this image to `base`, `size` bytes of it, and both ranges are within. Nobody writes headers or a
            // constant section.
            let copied = |range: Range<usize>| unsafe { copy(base, range) };
            let headers = copied(0..size.min(pe::HEADERS));
            let range = pe::Headers::new(&headers)?.section(SECTION, size)?;
            Some(pe::trimmed(&copied(range)).to_vec())
        });
        Self {
            device,
            device_path: device.and_then(device_path::of_handle),
            path: device_path::of_image(),
            options: image
                .load_options_as_bytes()
                .map(options_text)
                .unwrap_or_default(),
            section,
        }
    }
}

/// Load options are UCS-2 by custom, ASCII where a boot option was made so (`efibootmgr` without `--unicode`), but may be anything: what is not
/// text counts as empty.
fn options_text(bytes: &[u8]) -> String {
    let ascii = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if ascii.iter().all(|&b| b == b' ' || b.is_ascii_graphic()) {
        return ascii.iter().copied().map(char::from).collect();
    }
    let units = bytes
        .chunks_exact(2)
        .filter_map(|pair| Some(u16::from_le_bytes(*pair.first_chunk()?)));
    let text: Result<String, _> = char::decode_utf16(units.take_while(|&unit| unit != 0)).collect();
    text.ok()
        .filter(|text| !text.chars().any(|c| c.is_control() && !c.is_whitespace()))
        .unwrap_or_default()
}

/// An image that has been loaded and not yet started. Dropping it unloads it.
#[derive(Debug)]
pub struct Loaded {
    handle: Option<Handle>,
    /// UCS-2 with terminator; the image's protocol points into it.
    options: Vec<u16>,
}

impl Loaded {
    /// Loads the PE image in `bytes` (which are copied), telling it that it came from `path` and has
    /// load options `options`.
    ///
    /// # Errors
    /// The firmware's: `UNSUPPORTED` or `LOAD_ERROR` for what is no image for this machine,
    /// `SECURITY_VIOLATION` or `ACCESS_DENIED` under Secure Boot, `OUT_OF_RESOURCES`.
    pub fn load(bytes: &[u8], path: Option<&PathBuf>, options: &str) -> uefi::Result<Self> {
        let source = LoadImageSource::FromBuffer {
            buffer: bytes,
            file_path: path.and_then(PathBuf::as_path),
        };
        let handle = boot::load_image(boot::image_handle(), source)?;
        let mut loaded = Self {
            handle: Some(handle),
            options: Vec::new(),
        };
        if !options.is_empty() {
            loaded.options = options.encode_utf16().chain([0]).collect();
            if let Some(mut image) = open(handle)
                && let Some(image) = image.get_mut()
            {
                let size = u32::try_from(loaded.options.len() * 2).unwrap_or(0);
                // SAFETY: the vector is not touched again, and lives until the image has returned or was
                // unloaded.
                unsafe { image.set_load_options(loaded.options.as_ptr().cast(), size) };
            }
        }
        Ok(loaded)
    }

    /// Starts the image. Returns when the image does; a system that boots never does.
    ///
    /// # Errors
    /// What the image returned, or the firmware's refusal to start it.
    pub fn start(mut self) -> uefi::Result {
        let Some(handle) = self.handle else {
            return Ok(());
        };
        // The boot manager's own limit for a boot option that hangs (UEFI 2.10, section 3.1.2). What is started
        // may turn it off, and the end of boot services does.
        let watchdog = watchdog::arm(WATCHDOG_SECONDS);
        STARTED.store(handle.as_ptr(), Ordering::Relaxed);
        let result = boot::start_image(handle);
        forget_started();
        drop(watchdog);
        // An application that has returned is unloaded by the firmware.
        let refused = result.as_ref().is_err_and(|error| {
            [
                uefi::Status::SECURITY_VIOLATION,
                uefi::Status::INVALID_PARAMETER,
            ]
            .contains(&error.status())
        });
        if !refused {
            self.handle = None;
        }
        result
    }
}

/// The image that [`Loaded::start`] has started and that can still end.
static STARTED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether the image that [`Loaded::start`] has started has returned, and is being unloaded: its start has not come back yet.
#[must_use]
pub fn started_has_ended() -> bool {
    let handle = STARTED.load(Ordering::Relaxed);
    // SAFETY: null, or a handle that was started; one that is gone is asked for by its address alone.
    unsafe { Handle::from_ptr(handle) }.is_some_and(|handle| open(handle).is_none())
}

/// Has this image be the one that was started.
#[cfg(any(test, feature = "testing"))]
pub fn set_started(handle: *mut c_void) {
    STARTED.store(handle, Ordering::Relaxed);
}

/// Notes that the image has ended, or cannot end any more. Allocates nothing.
pub(crate) fn forget_started() {
    STARTED.store(ptr::null_mut(), Ordering::Relaxed);
}

/// Ends the image that was started, if there is one, so that [`Loaded::start`] returns: the way out of a panic in a callback. Returns where
/// the firmware refuses, as it does when that image has started another.
#[cfg(target_os = "uefi")]
pub(crate) fn end_started() {
    let handle = STARTED.load(Ordering::Relaxed);
    // SAFETY: null, or a handle that was just started.
    if let Some(handle) = unsafe { Handle::from_ptr(handle) } {
        lower_tpl();
        // SAFETY: what is on the stack above `Loaded::start` is left for good: the image, and a callback, which has nothing to drop.
        let _ = unsafe { boot::exit(handle, uefi::Status::ABORTED, 0, ptr::null_mut()) };
    }
}

/// Back to TPL_APPLICATION, at which the image was started: a callback may have raised it.
#[cfg(target_os = "uefi")]
fn lower_tpl() {
    // SAFETY: the system table is live, and boot services too, as an image runs that can still end. Whoever raised the TPL never goes on.
    unsafe {
        if let Some(table) = uefi::table::system_table_raw()
            && let Some(services) = table.as_ref().boot_services.as_ref()
        {
            (services.raise_tpl)(boot::Tpl::HIGH_LEVEL);
            (services.restore_tpl)(boot::Tpl::APPLICATION);
        }
    }
}

const WATCHDOG_SECONDS: usize = 300;

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            let _ = boot::unload_image(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_the_range() {
        let memory = [1_u8, 2, 3, 4, 5];
        let base = NonNull::from(&memory).cast();
        // SAFETY: ranges of the array.
        let copied = |range| unsafe { copy(base, range) };
        assert_eq!(copied(1..4), [2, 3, 4]);
        assert_eq!(copied(0..0), []);
    }

    #[test]
    fn load_options() {
        let ucs2 = |text: &str| -> Vec<u8> {
            text.encode_utf16()
                .chain([0])
                .flat_map(u16::to_le_bytes)
                .collect()
        };
        assert_eq!(
            options_text(&ucs2("wireboot.efi http://a/b c")),
            "wireboot.efi http://a/b c"
        );
        assert_eq!(options_text(&ucs2("")), "");
        for ascii in [&b"nic=snp http://a/b\0"[..], b"nic=snp http://a/b"] {
            assert_eq!(options_text(ascii), "nic=snp http://a/b");
        }
        assert_eq!(options_text(&[0xff]), "");
        assert_eq!(options_text(&[1, 0, 2, 0]), "");
        assert_eq!(options_text(&[0, 0xd8, 0x61, 0]), "");
    }
}
