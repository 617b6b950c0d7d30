//! Where the BSP is while the firmware fetches a file by TFTP: an AP asks it, so many times a second, or the firmware's timer notes it.

use super::stock::{cost_of_looking, counted, first, median, named, quick_enough, seconds};
use crate::error::{Error, refused};
use crate::escape::is_ended;
use crate::examination::Examination;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_net::sort;
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::images::Images;
use wireboot_platform::profiler::{Position, Profiler};
use wireboot_platform::{console, memory};
use wireboot_report::{Profile, ProfiledImage};

/// Room for the file, in bytes.
const ROOM: usize = 64 << 20;
/// No further turn is begun after so many microseconds, nor more than so many.
const TURNS: u64 = 10_000_000;
const MOST_TURNS: u32 = 32;
/// Turns are made until so many samples were taken.
const ENOUGH: usize = 4000;

/// Has the firmware fetch its boot file again and again, by turns looked at and not.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let (clock, hertz) = (examination.clock, examination.options.hertz);
    // Whoever cannot sample needs no file.
    drop(Profiler::start(u64::from(hertz), clock)?);
    let (card, boot) = first(examination)?;
    let images = Images::read();
    console::progress("the firmware boots over its network; nothing is started");
    boot.load()
        .map_err(refused("the boot file by the firmware's network boot"))?;
    let (server, file) = boot
        .learnt()
        .as_ref()
        .and_then(named)
        .ok_or(Error::NoTftp)?;
    let file = examination.options.file.clone().unwrap_or(file);
    let (mut room, _) = memory::download_buffer(ROOM).map_err(refused("memory for the file"))?;
    let mut read = || {
        let start = clock.micros();
        boot.read(server, &file, room.rest_mut(0))
            .map_err(refused("a file by the firmware's TFTP"))?;
        Ok::<f64, Error>(seconds(clock.micros() - start))
    };
    let mut profile = Profile {
        file: file.clone(),
        hertz,
        ..Profile::default()
    };
    let mut positions: Vec<Position> = Vec::new();
    let (mut plain, mut looked) = (Vec::new(), Vec::new());
    let (mut plain_work, mut looked_work) = (Vec::new(), Vec::new());
    let begun = clock.micros();
    let goes_on = || clock.micros() - begun < TURNS && !is_ended();
    while profile.turns < MOST_TURNS
        && (profile.turns == 0 || positions.len() < ENOUGH && goes_on())
    {
        profile.turns += 1;
        console::progress(&format!("{file}, turn {}", profile.turns));
        let (plain_s, least) = counted(&card, &mut read);
        let plain_s = plain_s?;
        quick_enough(&file, plain_s)?;
        plain.push(plain_s);
        plain_work.extend(least);
        let profiler = Profiler::start(u64::from(hertz), clock)?;
        #[cfg(feature = "faults")]
        faults::reach(faults::Place::Profile);
        let (looked_s, least) = counted(&card, &mut read);
        looked.push(looked_s?);
        looked_work.extend(least);
        let taken = profiler.stop();
        profile.missed += taken.missed + taken.lost;
        profile.by_timer = taken.by_timer;
        positions.extend(taken.positions);
    }
    if positions.is_empty() && profile.missed == 0 {
        return Err(match profile.by_timer {
            true => Error::NotTicked,
            false => Error::NotAsked,
        });
    }
    if profile.by_timer {
        let looked_s: f64 = looked.iter().sum();
        profile.hertz = (positions.len() as f64 / looked_s.max(f64::MIN_POSITIVE)) as u32;
    }
    profile.plain_s = median(plain).unwrap_or_default();
    profile.seconds = median(looked).unwrap_or_default();
    profile.work = cost_of_looking(&plain_work, &looked_work);
    profile.samples = positions.len() as u64;
    profile.images = shares(&positions, &images);
    profile.interrupts_off = profile.images.iter().map(|one| one.interrupts_off).sum();
    examination.report.profile = Some(profile);
    Ok(())
}

/// How many samples each image has, the most first. Code that is in none is one, without a name.
fn shares(positions: &[Position], images: &Images) -> Vec<ProfiledImage> {
    let mut profiled: BTreeMap<u64, ProfiledImage> = BTreeMap::new();
    for position in positions {
        let image = images.at(position.address).map(|(_, image)| image);
        let found = profiled
            .entry(image.map_or(0, |image| image.base))
            .or_insert_with(|| ProfiledImage {
                name: image.map_or_else(String::new, |image| image.name.clone()),
                address: image.map_or(0, |image| image.base),
                bytes: image.map_or(0, |image| image.bytes),
                ..ProfiledImage::default()
            });
        found.samples += 1;
        found.interrupts_off += u64::from(position.interrupts_off());
    }
    let mut images: Vec<ProfiledImage> = profiled.into_values().collect();
    sort::insertion(&mut images, |one, other| one.samples > other.samples);
    images
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_platform::images::Image;

    #[test]
    fn each_sample_is_counted_where_it_was_found() {
        let at = |address, on: bool| Position::new(address, if on { 0x202 } else { 2 });
        let positions = [
            at(10, true),
            at(11, false),
            at(21, true),
            at(12, true),
            at(99, false),
        ];
        let image = |name: &str, base| Image {
            name: String::from(name),
            base,
            bytes: 10,
        };
        let images = Images::of(Vec::from([image("MnpDxe", 10), image("DxeCore", 20)]));
        let profiled = shares(&positions, &images);
        let counted: Vec<_> = profiled
            .iter()
            .map(|one| {
                (
                    one.name.as_str(),
                    one.address,
                    one.samples,
                    one.interrupts_off,
                )
            })
            .collect();
        let expected = [("MnpDxe", 10, 3, 1), ("", 0, 1, 1), ("DxeCore", 20, 1, 0)];
        assert_eq!(counted, expected);
    }
}
