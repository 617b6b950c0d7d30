//! What the firmware calls while it boots over the network and while it fetches a file.

mod table;

use super::stock::{cost_of_looking, counted, first, named, quick_enough, seconds};
use crate::error::{Error, refused};
use crate::escape::is_ended;
use crate::examination::Examination;
use crate::options::Trace as Mode;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use table::Place;
use wireboot_platform::claim::pci::Candidate;
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::firmware_net::{NetworkBoot, receivers};
use wireboot_platform::images::Images;
use wireboot_platform::trace::{Calls, RECEIVE, TRANSMIT, Tracer};
use wireboot_platform::{Clock, console, memory};
use wireboot_report::Receiver;
use wireboot_report::trace::{Looking, Trace, Traced};

/// Room for the file that is fetched by turns, in bytes.
const ROOM: usize = 64 << 20;
/// No further turn is begun after so many microseconds.
const TURNS: u64 = 40_000_000;
/// What code is called that no image has.
const NO_IMAGE: &str = "code of no image";

/// A boot up to its file, and that file by TFTP by turns: not looked at, counted, timed.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let options = examination.options;
    let (card, boot) = first(examination)?;
    let watch = Watch {
        card: &card,
        clock: examination.clock,
        images: Images::read(),
    };
    let timed = options.trace == Mode::Time;
    console::progress("the firmware boots over its network; nothing is started");
    let booted = watch.run(timed, || boot.load().map(|bytes| bytes as u64));
    let (bytes, mut whole) = booted?;
    // While the stack stands as for a boot. Firmware without this service has none to tell of.
    let receivers = receivers(&card).unwrap_or_default();
    let receivers = receivers.into_iter().map(|one| Receiver {
        image: one.image,
        ether_type: one.ether_type,
    });
    examination.report.receivers = receivers.collect();
    let learnt = boot.learnt();
    let named = learnt.as_ref().and_then(named);
    whole.file = match &named {
        Some((_, file)) => file.clone(),
        None => String::from("the boot file"),
    };
    whole.bytes = bytes;
    let trace = examination.report.trace.insert(Trace {
        boot: Some(whole),
        ..Trace::default()
    });
    let Some((server, file)) = named else {
        return Ok(());
    };
    let file = options.file.clone().unwrap_or(file);
    let turns = watch.turns(&boot, server, &file, options.rounds, timed);
    let (transfer, looking) = turns?;
    trace.transfer = transfer;
    trace.looking = Some(looking);
    Ok(())
}

/// How it is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Plain,
    Counted,
    Timed,
}

struct Watch<'a> {
    card: &'a Candidate,
    clock: Clock,
    images: Images,
}

impl Watch<'_> {
    /// Looks at what `work` calls.
    fn run(
        &self,
        timed: bool,
        work: impl FnOnce() -> Result<u64, wireboot_platform::Error>,
    ) -> Result<(u64, Traced), Error> {
        let tracer = Tracer::start(self.card, timed)?;
        #[cfg(feature = "faults")]
        faults::reach(faults::Place::Trace);
        let start = self.clock.micros();
        let result = work();
        let micros = self.clock.micros() - start;
        let calls = tracer.finish();
        let bytes = result.map_err(refused("a file by the firmware's network boot"))?;
        Ok((bytes, self.traced(&calls, micros, timed)))
    }

    fn traced(&self, calls: &Calls, micros: u64, timed: bool) -> Traced {
        let succeeded = |service| {
            let sites = calls.sites.iter().filter(|site| site.service() == service);
            sites.map(|site| site.succeeded).sum()
        };
        let places = calls.sites.iter().map(|site| Place {
            service: site.service(),
            image: self
                .images
                .at(site.address)
                .map_or(NO_IMAGE, |(_, image)| image.name.as_str()),
            calls: site.calls,
            ticks: site.ticks,
        });
        Traced {
            took_s: seconds(micros),
            received: succeeded(RECEIVE),
            sent: succeeded(TRANSMIT),
            calls: table::rows(places, timed, |ticks| seconds(self.clock.micros_of(ticks))),
            lost: calls.lost,
            ..Traced::default()
        }
    }

    /// The file by turns.
    fn turns(
        &self,
        boot: &NetworkBoot,
        server: IpAddr,
        file: &str,
        rounds: u32,
        timed: bool,
    ) -> Result<(Option<Traced>, Looking), Error> {
        let (mut room, _) =
            memory::download_buffer(ROOM).map_err(refused("memory for the file"))?;
        let mut read = || boot.read(server, file, room.rest_mut(0));
        let mut turns = Vec::from([Turn::Plain, Turn::Counted]);
        if timed {
            turns.push(Turn::Timed);
        }
        let best = if timed { Turn::Timed } else { Turn::Counted };
        let mut took: Vec<(Turn, f64)> = Vec::new();
        let mut work: Vec<(Turn, u64)> = Vec::new();
        let mut fastest: Option<Traced> = None;
        let begun = self.clock.micros();
        let mut done = 0;
        let goes_on = || self.clock.micros() - begun < TURNS && !is_ended();
        while done < rounds && (done == 0 || goes_on()) {
            done += 1;
            console::progress(&format!("{file}, {done} of {rounds}"));
            for turn in &turns {
                if *turn == Turn::Plain {
                    let start = self.clock.micros();
                    let (came, least) = counted(self.card, &mut read);
                    came.map_err(refused("a file by the firmware's TFTP"))?;
                    let took_s = seconds(self.clock.micros() - start);
                    quick_enough(file, took_s)?;
                    took.push((*turn, took_s));
                    work.extend(least.map(|least| (*turn, least)));
                    continue;
                }
                // The tracer is before the counter: what it takes itself counts, too.
                let look = || self.run(*turn == Turn::Timed, &mut read);
                let (looked, least) = counted(self.card, look);
                let (bytes, mut traced) = looked?;
                took.push((*turn, traced.took_s));
                work.extend(least.map(|least| (*turn, least)));
                if *turn == best
                    && fastest
                        .as_ref()
                        .is_none_or(|one| traced.took_s < one.took_s)
                {
                    traced.file = file.to_string();
                    traced.bytes = bytes;
                    fastest = Some(traced);
                }
            }
            // Each comes first as often as the others.
            turns.rotate_left(1);
        }
        let of = |turn| {
            let runs = took.iter().filter(|(own, _)| *own == turn);
            runs.map(|(_, seconds)| *seconds).collect()
        };
        let work_of = |turn| -> Vec<u64> {
            let runs = work.iter().filter(|(own, _)| *own == turn);
            runs.map(|(_, ticks)| *ticks).collect()
        };
        let cost = |turn| cost_of_looking(&work_of(Turn::Plain), &work_of(turn));
        let looking = Looking {
            plain_s: of(Turn::Plain),
            counted_s: of(Turn::Counted),
            timed_s: of(Turn::Timed),
            counting_work: cost(Turn::Counted),
            timing_work: cost(Turn::Timed),
        };
        Ok((fastest, looking))
    }
}
