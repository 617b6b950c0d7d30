//! Functions of the firmware's, replaced by functions of ours until a [`Shim`] is dropped: members of a service table or of a protocol.
//!
//! A member is put back where it is still ours. Where somebody else has replaced it since, they may call our function at any time: the member
//! stays, [`as_found`] says so from then on, and the program's memory is not given back. A panic puts all of them back.

#[cfg(any(target_os = "uefi", test))]
#[cfg(target_os = "uefi")]
mod pages;

use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::{offset_of, transmute_copy};
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use uefi_raw::table::Header;

/// As many members can be replaced at a time.
const PLACES: usize = 192;
/// The longest table whose sum is redone, in bytes. Those of UEFI 2.10 have less than 400.
const LONGEST_TABLE: usize = 4096;

/// Why a member was not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The page tables do not let it be written.
    #[error("the firmware keeps its tables in read-only memory")]
    ReadOnly,
    /// So many are replaced already.
    #[error("more than {PLACES} functions of the firmware's would be replaced")]
    Full,
    /// One of them could not be put back before: others may call ours through it.
    #[error(
        "others have replaced a function of the firmware's meanwhile; reset the machine, then examine it again"
    )]
    Left,
}

/// The firmware's function behind one of ours, for ours to call. It stays known when the member has been put back, as a call may be under way.
#[derive(Debug)]
pub struct Original<F>(AtomicPtr<c_void>, PhantomData<fn() -> F>);

impl<F: Copy> Original<F> {
    /// Nothing was replaced yet.
    #[expect(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// The function; `None` when nothing was replaced yet.
    #[inline]
    pub fn get(&self) -> Option<F> {
        let function = self.0.load(Ordering::Acquire);
        // SAFETY: `replace` has stored it, which read it from a member of this type.
        (!function.is_null()).then(|| unsafe { transmute_copy(&function) })
    }
}

/// What has to be put back. Empty where the member is null.
struct Place {
    member: AtomicPtr<AtomicPtr<c_void>>,
    original: AtomicPtr<c_void>,
    ours: AtomicPtr<c_void>,
    /// The table's header, if its sum is to be redone.
    header: AtomicPtr<Header>,
}

static REPLACED: [Place; PLACES] = [const { Place::empty() }; PLACES];
/// A member could not be put back, or something else is not as it was.
static LEFT: AtomicBool = AtomicBool::new(false);

impl Place {
    const fn empty() -> Self {
        Self {
            member: AtomicPtr::new(ptr::null_mut()),
            original: AtomicPtr::new(ptr::null_mut()),
            ours: AtomicPtr::new(ptr::null_mut()),
            header: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Puts the member back, if it is still ours; true when nothing of ours is in it any more.
    fn put_back(&self) -> bool {
        let Some(member) = NonNull::new(self.member.load(Ordering::Acquire)) else {
            return true;
        };
        let (ours, original) = (
            self.ours.load(Ordering::Relaxed),
            self.original.load(Ordering::Relaxed),
        );
        // SAFETY: who called `replace` keeps the member valid until here.
        let member = unsafe { member.as_ref() };
        let put = member.compare_exchange(ours, original, Ordering::AcqRel, Ordering::Relaxed);
        if put.is_err() {
            return false;
        }
        if let Some(header) = NonNull::new(self.header.load(Ordering::Relaxed)) {
            // SAFETY: as the member.
            unsafe { redo_sum(header) };
        }
        self.member.store(ptr::null_mut(), Ordering::Release);
        true
    }
}

/// Whether memory may be written.
pub(crate) fn is_writable(place: *const c_void) -> bool {
    #[cfg(target_os = "uefi")]
    return pages::writable(place as u64);
    // A test's.
    #[cfg(not(target_os = "uefi"))]
    return !place.is_null();
}

/// A member that is replaced, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Shim(&'static Place);

impl core::fmt::Debug for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Place").field(&self.member).finish()
    }
}

/// Puts `ours` in the place of the function in `member`, which `original` learns first. Where the member lies in a table with a header, the
/// table's sum is redone, unless it was wrong before.
///
/// # Errors
/// [`Refused`]; nothing was changed then.
///
/// # Safety
/// `F` is a function pointer's type. `member`, and `table` with as many bytes as its header says, are valid until the shim is dropped, and
/// nobody has a reference to them. `ours` behaves as the one that it replaces, and is called at any TPL that this one is called at. `original`
/// is of this member alone.
pub unsafe fn replace<F: Copy>(
    member: NonNull<F>,
    table: Option<NonNull<Header>>,
    ours: F,
    original: &Original<F>,
) -> Result<Shim, Refused> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // It could lead to who calls ours: a circle.
    if !as_found() {
        return Err(Refused::Left);
    }
    let header = table.map(NonNull::as_ptr).unwrap_or(ptr::null_mut());
    if !is_writable(member.as_ptr().cast()) || !(header.is_null() || is_writable(header.cast())) {
        return Err(Refused::ReadOnly);
    }
    let mut places = REPLACED.iter();
    let place = places.find(|place| place.member.load(Ordering::Relaxed).is_null());
    let place = place.ok_or(Refused::Full)?;
    let member = member.cast::<AtomicPtr<c_void>>();
    // SAFETY: a function pointer has this size (see above).
    let ours: *mut c_void = unsafe { transmute_copy(&ours) };
    // SAFETY: the caller's word.
    let (found, had_right_sum) = unsafe {
        let found = member.as_ref().load(Ordering::Acquire);
        (found, table.is_some_and(|table| sum_is_right(table)))
    };
    let header = if had_right_sum {
        header
    } else {
        ptr::null_mut()
    };
    original.0.store(found, Ordering::Release);
    place.original.store(found, Ordering::Relaxed);
    place.ours.store(ours, Ordering::Relaxed);
    place.header.store(header, Ordering::Relaxed);
    place.member.store(member.as_ptr(), Ordering::Release);
    // SAFETY: the caller's word.
    unsafe {
        member.as_ref().store(ours, Ordering::Release);
        if let Some(header) = NonNull::new(header) {
            redo_sum(header);
        }
    }
    Ok(Shim(place))
}

impl Drop for Shim {
    fn drop(&mut self) {
        if !self.0.put_back() {
            LEFT.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether all that was replaced, and whose shim is gone, was put back, and nothing else was left behind.
#[must_use]
pub fn as_found() -> bool {
    !LEFT.load(Ordering::Relaxed)
}

/// Something else was left behind, as a variable that the firmware does not remove.
pub(crate) fn leave_something() {
    LEFT.store(true, Ordering::Relaxed);
}

/// Whether a function of ours is in a member: the program must stay in memory.
pub(crate) fn any() -> bool {
    let mut places = REPLACED.iter();
    places.any(|place| !place.member.load(Ordering::Relaxed).is_null())
}

/// Puts all back, when their owners cannot: on a panic. Takes no lock and no memory.
#[cfg(any(target_os = "uefi", test))]
pub(crate) fn put_back_in_panic() {
    // A member that was replaced twice comes back from the last to the first.
    for _ in 0..PLACES {
        REPLACED.iter().for_each(|place| {
            place.put_back();
        });
        if !any() {
            return;
        }
    }
    LEFT.store(true, Ordering::Relaxed);
}

/// Bytes of a table, and those of the sum in it.
const SUM: core::ops::Range<usize> = offset_of!(Header, crc)..offset_of!(Header, crc) + 4;

/// The sum that a table should have. `None` for one that is not as long as a header, or longer than [`LONGEST_TABLE`].
///
/// # Safety
/// The table is valid, with as many bytes as its header says.
unsafe fn sum(table: NonNull<Header>) -> Option<u32> {
    // SAFETY: the caller's word.
    let size = unsafe { (&raw const (*table.as_ptr()).size).read() };
    let size = usize::try_from(size).ok()?;
    if !(size_of::<Header>()..=LONGEST_TABLE).contains(&size) {
        return None;
    }
    // SAFETY: the caller's word; nobody writes meanwhile, as this processor alone runs the firmware.
    let bytes = unsafe { slice::from_raw_parts(table.as_ptr().cast::<u8>(), size) };
    Some(crc32(
        bytes
            .iter()
            .enumerate()
            .map(|(at, byte)| if SUM.contains(&at) { 0 } else { *byte }),
    ))
}

/// # Safety
/// As [`sum`].
unsafe fn sum_is_right(table: NonNull<Header>) -> bool {
    // SAFETY: the caller's word.
    let (sum, crc) = unsafe { (sum(table), (&raw const (*table.as_ptr()).crc).read()) };
    sum == Some(crc)
}

/// # Safety
/// As [`sum`], and the header may be written.
unsafe fn redo_sum(table: NonNull<Header>) {
    // SAFETY: the caller's word.
    unsafe {
        if let Some(sum) = sum(table) {
            let crc = AtomicU32::from_ptr(&raw mut (*table.as_ptr()).crc);
            crc.store(sum, Ordering::Release);
        }
    }
}

/// CRC-32 of Ethernet, as UEFI's tables have it (UEFI 2.10, section 4.2).
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    !bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 }
        })
    })
}

/// What is replaced is counted for the whole program: one test at a time.
#[cfg(test)]
pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests;
