//! Calls by place become calls by service and image, few enough for a report.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wireboot_net::sort;
use wireboot_report::trace::Called;

/// So many rows have a caller's name; the others are a row for each service.
const ROWS: usize = 64;
/// And so many of what is only counted while the rest is timed.
const COUNTED_ROWS: usize = 8;

/// Calls from one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub service: &'a str,
    pub image: &'a str,
    pub calls: u64,
    /// In the service itself, in ticks.
    pub ticks: u64,
}

/// The rows: those with the longest times, and the most calls. Times are told where calls were `timed`; those of some services never are.
pub(super) fn rows<'a>(
    places: impl Iterator<Item = Place<'a>>,
    timed: bool,
    seconds: impl Fn(u64) -> f64,
) -> Vec<Called> {
    let mut sums: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for place in places {
        let (calls, ticks) = sums.entry((place.service, place.image)).or_default();
        *calls = calls.saturating_add(place.calls);
        *ticks = ticks.saturating_add(place.ticks);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    // Frames apart, no call has ticks where they are only counted.
    let weight = |(calls, ticks): (u64, u64)| if timed { (ticks, calls) } else { (calls, 0) };
    sort::insertion(&mut sums, |(_, one), (_, other)| {
        weight(*one) > weight(*other)
    });
    let (mut room, mut room_of_counted) = (ROWS, COUNTED_ROWS);
    let mut named = Vec::new();
    let mut others: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for ((service, image), (calls, ticks)) in sums {
        let room = if timed && ticks == 0 {
            &mut room_of_counted
        } else {
            &mut room
        };
        if let Some(left) = room.checked_sub(1) {
            *room = left;
            named.push(((service, image), (calls, ticks)));
        } else {
            let other = others.entry(service).or_default();
            other.0 = other.0.saturating_add(calls);
            other.1 = other.1.saturating_add(ticks);
        }
    }
    let others = others
        .into_iter()
        .map(|(service, one)| ((service, ""), one));
    named
        .into_iter()
        .chain(others)
        .map(|((service, image), (calls, ticks))| Called {
            service: service.to_string(),
            image: String::from(image),
            calls,
            own_s: (timed && ticks > 0).then(|| seconds(ticks)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn no_call_goes_missing_where_rows_are_many() {
        let images: Vec<String> = (0..100).map(|image| format!("i{image}")).collect();
        let place = |service, image: usize| Place {
            service,
            image: &images[image],
            calls: 1 + image as u64,
            ticks: 1000 - image as u64,
        };
        // Each twice.
        let places = || {
            let both = (0..200).map(|one| place("a", one % 100));
            both.chain((0..2).map(|_| place("b", 3)))
        };
        // What is only counted among what is timed keeps its callers' names, a few.
        let brief = |image| Place {
            ticks: 0,
            ..place("brief", image)
        };
        let both = places().chain((0..20).map(brief));
        let both = rows(both, true, |ticks| ticks as f64);
        let counted: Vec<_> = both.iter().filter(|row| row.service == "brief").collect();
        assert!(counted.iter().all(|row| row.own_s.is_none()));
        let names: Vec<_> = counted.iter().map(|row| row.image.as_str()).collect();
        let wanted = ["i19", "i18", "i17", "i16", "i15", "i14", "i13", "i12", ""];
        assert_eq!(names, wanted);
        let calls: u64 = counted.iter().map(|row| row.calls).sum();
        assert_eq!(calls, 20 * 21 / 2);
        for timed in [false, true] {
            let rows = rows(places(), timed, |ticks| ticks as f64);
            assert_eq!(rows.len(), ROWS + if timed { 1 } else { 2 });
            let of = |service| {
                let rows = rows.iter().filter(move |row| row.service == service);
                rows.clone().map(|row| row.calls).sum::<u64>()
            };
            assert_eq!((of("a"), of("b")), (10_100, 8));
            let first = rows.first().unwrap();
            let expected = if timed {
                ("i0", 2, Some(2000.0))
            } else {
                ("i99", 200, None)
            };
            assert_eq!((first.image.as_str(), first.calls, first.own_s), expected);
        }
    }
}
