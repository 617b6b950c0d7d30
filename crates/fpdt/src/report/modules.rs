//! The times of the firmware's modules, out of when what began and ended.

use crate::{Activity, ModuleEvent};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_report::Module;

/// So many are kept.
const MOST: usize = 40;

/// By module and activity, what has begun: when, and how much of it is counted already, in nanoseconds.
type Open = BTreeMap<([u8; 16], Activity), Vec<(u64, u64)>>;

/// What was done with each, out of beginnings and ends: the longest first. What lies in the same with the same module counts once. The boot option's loader was
/// to be loaded at `load_ns`.
pub(super) fn times<'a>(
    events: impl Iterator<Item = ModuleEvent<'a>>,
    load_ns: Option<u64>,
) -> Vec<Module> {
    let mut modules: BTreeMap<[u8; 16], Module> = BTreeMap::new();
    let mut open = Open::new();
    for event in events {
        let module = modules.entry(event.guid).or_insert_with(|| Module {
            name: guid(event.guid),
            ..Module::default()
        });
        if !event.name.is_empty() {
            event.name.clone_into(&mut module.name);
        }
        let begun = open.entry((event.guid, event.activity)).or_default();
        if event.begins {
            begun.push((event.at_ns, 0));
            continue;
        }
        let Some((from, counted)) = begun.pop() else {
            continue;
        };
        let took = event.at_ns.saturating_sub(from);
        if let Some((_, counted)) = begun.last_mut() {
            *counted += took;
        }
        let sum = match event.activity {
            Activity::LoadImage => &mut module.load_s,
            Activity::StartImage => &mut module.start_s,
            Activity::Supported => &mut module.supported_s,
            Activity::Start => &mut module.bind_s,
            Activity::Stop => &mut module.unbind_s,
        };
        let seconds = took.saturating_sub(counted) as f64 / 1e9;
        *sum += seconds;
        if event.activity == Activity::Start && load_ns.is_some_and(|load| event.at_ns <= load) {
            module.bind_before_s += seconds;
        }
    }
    let mut longest: Vec<Module> = Vec::new();
    for module in modules.into_values() {
        // In its place at once: the library's sort is 4 kB of a program for each type.
        let place = longest.partition_point(|one| one.total_s() >= module.total_s());
        if place < MOST {
            longest.truncate(MOST - 1);
            longest.insert(place, module);
        }
    }
    longest
}

/// As it is written (RFC 9562), the first three numbers of it little-endian (UEFI 2.10 appendix A).
fn guid(bytes: [u8; 16]) -> String {
    let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
    let first = u32::from_le_bytes([a, b, c, d]);
    let (second, third) = (u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]));
    let [i, j, node @ ..] = rest;
    let node: String = node.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{first:08x}-{second:04x}-{third:04x}-{i:02x}{j:02x}-{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(
        (module, name): (u8, &'static str),
        activity: Activity,
        begins: bool,
        at_ms: u64,
    ) -> ModuleEvent<'static> {
        ModuleEvent {
            activity,
            begins,
            at_ns: at_ms * 1_000_000,
            guid: [module; 16],
            name,
        }
    }

    #[test]
    fn what_lies_in_the_same_counts_once() {
        use Activity::{LoadImage, Start, StartImage, Stop, Supported};
        let (mnp, snp) = ((1, "MnpDxe"), (2, ""));
        let events = [
            event((1, ""), LoadImage, true, 100),
            event(mnp, LoadImage, false, 150),
            event(mnp, Start, true, 200),
            // It starts another, and itself for another device.
            event(snp, StartImage, true, 250),
            event(mnp, Start, true, 300),
            event(mnp, Start, false, 400),
            event(snp, StartImage, false, 450),
            event(mnp, Start, false, 700),
            event(mnp, Supported, true, 710),
            event(mnp, Supported, false, 712),
            event(mnp, Supported, true, 720),
            event(mnp, Supported, false, 721),
            // An end without a beginning, and a beginning without an end.
            event(snp, Stop, false, 800),
            event(snp, LoadImage, true, 810),
            event(snp, LoadImage, true, 820),
            event(snp, LoadImage, false, 830),
        ];
        let modules = times(events.into_iter(), Some(500_000_000));
        let told: Vec<_> = modules
            .iter()
            .map(|one| {
                (
                    one.name.as_str(),
                    one.load_s,
                    one.start_s,
                    one.supported_s,
                    one.bind_s,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("MnpDxe", 0.05, 0.0, 0.002 + 0.001, 0.5),
                ("02020202-0202-0202-0202-020202020202", 0.01, 0.2, 0.0, 0.0),
            ]
        );
        assert_eq!(modules[1].unbind_s, 0.0);
        assert_eq!(modules[0].bind_before_s, 0.1);
    }

    #[test]
    fn a_guid_is_written_as_uefi_does() {
        let bytes = [
            0x57, 0x32, 0x23, 0xdf, 0x2f, 0xae, 0x37, 0x4c, 0xbb, 0x24, 0xe6, 0x3e, 0x58, 0x8e,
            0xfd, 0x0f,
        ];
        assert_eq!(guid(bytes), "df233257-ae2f-4c37-bb24-e63e588efd0f");
    }

    #[test]
    fn the_longest_are_kept() {
        let events = (1..=60).flat_map(|n| {
            let module = (n, "");
            [
                event(module, Activity::LoadImage, true, 0),
                event(module, Activity::LoadImage, false, n.into()),
            ]
        });
        let modules = times(events, None);
        assert_eq!(modules.len(), MOST);
        assert_eq!(modules[0].load_s, 0.06);
        assert_eq!(modules[MOST - 1].load_s, 0.021);
    }
}
