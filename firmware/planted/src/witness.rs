//! Whether programs leave the firmware as they found it: a witness who is not the program. It looks when the firmware is first ready to boot, and
//! whenever it is again, as it is when a program has come back, and says on the console what differs.

mod drivers;
mod memory_types;
mod timer;

use crate::{appearing, services};
use core::ffi::c_void;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;
use core::slice;
use spinning_top::Spinlock;
use uefi::boot::{self, EventType, SearchType, Tpl};
use uefi::proto::network::snp::SimpleNetwork;
use uefi::{CStr16, Event, Guid, Handle, Identify, Status, cstr16, guid, system};
use uefi_raw::protocol::console::{SimpleTextInputProtocol, SimpleTextOutputProtocol};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;
use uefi_raw::table::Header;
use uefi_raw::table::runtime::{RuntimeServices, VariableAttributes};
use wireboot_platform::boot_points::READY_TO_BOOT;
use wireboot_platform::raw::pci_io::PciIoProtocol;
use x86_64::instructions::tables::sidt;

/// Handles of a protocol that are looked at.
const MOST: usize = 64;
/// The longest name of a variable, in characters, and the longest content; of a longer one its length counts.
const LONGEST_NAME: usize = 512;
const LONGEST_CONTENT: usize = 4096;
/// More variables than any firmware has: whoever names them in a circle is left.
const MOST_VARIABLES: usize = 1024;

/// A name, and a sum of all that it has. `None` where the firmware does not show it.
type Part = (&'static CStr16, fn() -> Option<u64>);

/// What is looked at.
const PARTS: [Part; 10] = [
    (cstr16!(" boot services"), boot_services),
    (cstr16!(" runtime services"), runtime_services),
    (cstr16!(" console"), console),
    (cstr16!(" interrupts"), interrupts),
    (cstr16!(" network interfaces"), network_interfaces),
    (cstr16!(" PCI functions"), pci_functions),
    (cstr16!(" drivers"), drivers_of_cards),
    (cstr16!(" timer"), timer::period),
    (cstr16!(" memory types"), memory_types::registers),
    (cstr16!(" variables"), variables),
];

type Sums = [Option<u64>; PARTS.len()];

/// As it was first.
static FIRST: Spinlock<Option<Sums>> = Spinlock::new(None);
/// The variables as they were first, each by a sum of its name and what it holds, so that one that differs can be named.
static VARIABLES: Spinlock<[u64; MOST_VARIABLES]> = Spinlock::new([0; MOST_VARIABLES]);

/// Looks from now on.
pub(crate) fn plant() -> uefi::Result {
    // SAFETY: the function is this image's, which stays.
    unsafe {
        boot::create_event_ex(
            EventType::NOTIFY_SIGNAL,
            Tpl::CALLBACK,
            Some(on_ready_to_boot),
            None,
            Some(&READY_TO_BOOT),
        )
    }?;
    services::stay();
    Ok(())
}

unsafe extern "efiapi" fn on_ready_to_boot(_: Event, _: Option<NonNull<c_void>>) {
    let now = PARTS.map(|(_, sum)| sum());
    let Some(mut first) = FIRST.try_lock() else {
        return;
    };
    match *first {
        None => {
            *first = Some(now);
            keep_variables();
        }
        Some(first) => tell(&first, &now),
    }
}

fn tell(first: &Sums, now: &Sums) {
    let say = |text: &CStr16| {
        // A console that fails shows nothing, which is noticed.
        let _ = system::with_stdout(|console| console.output_string(text));
    };
    if differing(first, now).next().is_none() {
        say(cstr16!("wireboot-planted: the firmware is as it was\r\n"));
        return;
    }
    say(cstr16!("wireboot-planted: not as it was:"));
    differing(first, now).for_each(say);
    say_variables(say);
    say(cstr16!("\r\n"));
}

fn keep_variables() {
    let mut kept = VARIABLES.lock();
    let mut places = kept.iter_mut();
    each_variable(|_, sum| {
        if let Some(place) = places.next() {
            *place = sum;
        }
    });
}

/// The names of variables that are new or hold something else.
fn say_variables(say: impl Fn(&CStr16)) {
    let kept = VARIABLES.lock();
    each_variable(|name, sum| {
        if !kept.contains(&sum) {
            say(cstr16!(" "));
            say(name);
        }
    });
}

/// The names of the parts that are not as they were, or could not be looked at.
fn differing(first: &Sums, now: &Sums) -> impl Iterator<Item = &'static CStr16> {
    let pairs = PARTS.iter().zip(first.iter().zip(now));
    let differing = pairs.filter(|(_, (first, now))| first.is_none() || first != now);
    differing.map(|((name, _), _)| *name)
}

/// FNV-1a, going on from `sum`.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Where it begins.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// # Safety
/// So many bytes are there, and nobody writes meanwhile.
unsafe fn sum(place: *const c_void, bytes: usize) -> u64 {
    // SAFETY: the caller's word.
    add(EMPTY, unsafe {
        slice::from_raw_parts(place.cast::<u8>(), bytes)
    })
}

/// A table with a header: all of it, the header's own sum, too.
fn table(header: *const Header) -> Option<u64> {
    let header = NonNull::new(header.cast_mut())?;
    // SAFETY: the firmware's table, live, with as many bytes as its header says.
    unsafe {
        let bytes = usize::try_from(header.as_ref().size).ok()?;
        Some(sum(header.as_ptr().cast(), bytes))
    }
}

fn boot_services() -> Option<u64> {
    // SAFETY: the system table is live.
    let services = unsafe { services::system().ok()?.as_ref() }.boot_services;
    table(services.cast::<Header>())
}

fn runtime() -> Option<*mut RuntimeServices> {
    // SAFETY: the system table is live.
    Some(unsafe { services::system().ok()?.as_ref() }.runtime_services)
}

fn runtime_services() -> Option<u64> {
    table(runtime()?.cast::<Header>())
}

/// The functions of input and output.
fn console() -> Option<u64> {
    // SAFETY: the system table is live, and so are the console's protocols.
    unsafe {
        let system = services::system().ok()?;
        let (input, output) = (system.as_ref().stdin, system.as_ref().stdout);
        if input.is_null() || output.is_null() {
            return None;
        }
        let input = sum(
            input.cast(),
            offset_of!(SimpleTextInputProtocol, wait_for_key),
        );
        let output = sum(output.cast(), offset_of!(SimpleTextOutputProtocol, mode));
        Some(input.wrapping_add(output.rotate_left(1)))
    }
}

/// The processor's gates, and where they are.
fn interrupts() -> Option<u64> {
    let table = sidt();
    let base = table.base.as_u64();
    // SAFETY: the processor's own register says that they are there.
    let gates = unsafe { sum(base as *const c_void, usize::from(table.limit) + 1) };
    Some(add(gates, &base.to_le_bytes()))
}

/// The functions of a protocol on all handles that have it, in any order.
fn of_all(protocol: &'static Guid, from: usize, to: usize) -> Option<u64> {
    let mut handles = [const { MaybeUninit::<Handle>::uninit() }; MOST];
    let handles = boot::locate_handle(SearchType::ByProtocol(protocol), &mut handles).ok()?;
    let mut all = handles.len() as u64;
    for handle in handles.iter() {
        let interface = appearing::interface(*handle, protocol).ok()?;
        // SAFETY: the handle has the protocol, and the bytes are its functions.
        let one = unsafe { sum(interface.as_ptr().byte_add(from), to.checked_sub(from)?) };
        all = all.wrapping_add(one);
    }
    Some(all)
}

fn network_interfaces() -> Option<u64> {
    let (from, to) = (
        offset_of!(SimpleNetworkProtocol, start),
        offset_of!(SimpleNetworkProtocol, wait_for_packet),
    );
    of_all(&SimpleNetwork::GUID, from, to)
}

fn pci_functions() -> Option<u64> {
    of_all(&PciIoProtocol::GUID, 0, offset_of!(PciIoProtocol, rom_size))
}

/// Who drives the PCI functions, and the network interfaces above them.
fn drivers_of_cards() -> Option<u64> {
    let of_pci = drivers::of_all(&PciIoProtocol::GUID)?;
    Some(of_pci.wrapping_add(drivers::of_all(&SimpleNetwork::GUID)?.rotate_left(1)))
}

/// The firmware writes them itself with each boot option: which it is, and how much memory of each type was in use.
const ITS_OWN: [&CStr16; 2] = [cstr16!("BootCurrent"), cstr16!("MemoryTypeInformation")];

/// In whose name (EFI_IP4_CONFIG2_PROTOCOL, EFI_IP6_CONFIG_PROTOCOL; UEFI 2.10, sections 28.5 and 28.7) the firmware's IP keeps an interface's settings,
/// which its PXE changes.
const ITS_NETWORK: [Guid; 2] = [
    guid!("5b446ed1-e30b-4faa-871a-3654eca36080"),
    guid!("937fe521-95ae-4d1a-8929-48bcd90ad31a"),
];

/// All variables, with what they hold, in any order.
fn variables() -> Option<u64> {
    let mut all = 0_u64;
    each_variable(|_, sum| all = all.wrapping_add(sum)).then_some(all)
}

/// Each variable, with a sum of its name and what it holds. False where the firmware does not name them all.
fn each_variable(mut each: impl FnMut(&CStr16, u64)) -> bool {
    let Some(runtime) = runtime() else {
        return false;
    };
    let mut name = [0_u16; LONGEST_NAME];
    let mut content = [0_u8; LONGEST_CONTENT];
    let mut vendor = Guid::ZERO;
    for _ in 0..MOST_VARIABLES {
        let mut bytes = size_of_val(&name);
        // SAFETY: runtime services are live; they write so many bytes to the name at most.
        let status = unsafe {
            ((*runtime).get_next_variable_name)(&raw mut bytes, name.as_mut_ptr(), &raw mut vendor)
        };
        match status {
            Status::SUCCESS => {}
            Status::NOT_FOUND => return true,
            _ => return false,
        }
        let Ok(text) = CStr16::from_u16_until_nul(&name) else {
            return false;
        };
        if ITS_OWN.contains(&text) || ITS_NETWORK.contains(&vendor) {
            continue;
        }
        let mut one = add(EMPTY, &vendor.to_bytes());
        for letter in text.to_u16_slice() {
            one = add(one, &letter.to_le_bytes());
        }
        let mut length = content.len();
        let mut flags = VariableAttributes::empty();
        // SAFETY: the same; the name ends with a zero, and the length is the content's.
        let status = unsafe {
            ((*runtime).get_variable)(
                name.as_ptr(),
                &raw const vendor,
                &raw mut flags,
                &raw mut length,
                content.as_mut_ptr(),
            )
        };
        one = add(one, &length.to_le_bytes());
        if status.is_success() {
            one = add(one, &flags.bits().to_le_bytes());
            one = add(one, content.get(..length).unwrap_or_default());
        }
        each(text, one);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_or_was_not_seen_is_named() {
        let first: Sums = [Some(1); PARTS.len()];
        assert_eq!(differing(&first, &first).count(), 0);
        let mut now = first;
        now[9] = Some(2);
        now[3] = None;
        let names: Vec<_> = differing(&first, &now).map(ToString::to_string).collect();
        assert_eq!(names, [" interrupts", " variables"]);
        // What was never seen may be anything.
        let mut unseen = first;
        unseen[0] = None;
        assert_eq!(differing(&unseen, &unseen).count(), 1);
    }

    #[test]
    fn a_byte_more_or_another_order_is_another_sum() {
        let of = |bytes: &[u8]| add(EMPTY, bytes);
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[1]), of(&[1, 0]));
        assert_eq!(of(&[1, 2]), add(of(&[1]), &[2]));
    }
}
