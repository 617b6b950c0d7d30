//! Cards that do wrong, and a guest that does. Whatever happens, it ends, and no byte is wrong that somebody could have checked.

use fastrand::Rng;
use wireboot_card::Lie;

use super::*;
use crate::guest::hostile::scribble_once;

/// More frames than the first 256, among which a card begins to lie.
const FILE: usize = 450_000;
const OFFLOADS: [u64; 4] = [
    0,
    feature::GUEST_CSUM,
    feature::GUEST_CSUM | feature::GUEST_TSO4,
    feature::KNOWN,
];
/// As many as the machines that run the tests have processors, at least.
const THREADS: u64 = 2;

/// What became of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DownloadOutcome {
    Whole,
    /// Bytes are not those of the file.
    Wrong,
    Failed,
    Fault,
}

/// Boots as far as the file, by the version of IP that comes first. Where nothing comes the engine's time passes faster, so that it has soon waited in vain.
fn download(served: &Served, guest: &Guest, scheme: &str) -> DownloadOutcome {
    let mut machine = Machine::start(guest, SEED, Some(0x1234)).unwrap();
    machine.ask_for_lease(PATIENCE);
    let mut begun = false;
    loop {
        match machine.turn() {
            // The other version's.
            Ok(Some(Event::Lease { .. })) if begun => {}
            Ok(Some(Event::Lease { result, .. })) => match result {
                Ok(leases) => {
                    let host = match leases.v4 {
                        Some(_) => "10.77.0.1",
                        None => "[fd00:77::1]",
                    };
                    machine.begin(&format!("{scheme}://{host}/file"));
                    begun = true;
                }
                Err(_) => return DownloadOutcome::Failed,
            },
            Ok(Some(Event::Done { result, .. })) => {
                return match result {
                    Ok(file) if file.content() == served.bytes => DownloadOutcome::Whole,
                    Ok(_) => DownloadOutcome::Wrong,
                    Err(_) => DownloadOutcome::Failed,
                };
            }
            Ok(_) => machine.hasten(),
            Err(MachineError::Fault(_)) => return DownloadOutcome::Fault,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A lie, a way to download and a place drawn by the seed.
fn lied_to(served: &Served, seed: u64) -> (Lie, DownloadOutcome) {
    let mut random = Rng::with_seed(seed);
    let (name, lie) = Lie::NAMED[random.usize(..Lie::NAMED.len())];
    let offloads = OFFLOADS[random.usize(..OFFLOADS.len())];
    let chunks = random.bool().then_some(CHUNKS);
    let scheme = ["tftp", "http"][random.usize(..2)];
    let offer = offer(offloads, chunks);
    let socket = served.socket(&format!("card{}", seed % THREADS));
    let card = Card::start(&served.files(), &socket, offer, Lies::new(&[lie], seed));
    let guest = Guest::connect(&socket, MAC).unwrap();
    let end = download(served, &guest, scheme);
    drop(guest);
    card.end();
    // A card damages frames that it says are right, or has frames looked at again while it writes to them. Who does not check sums, as there are none or
    // the card does, cannot know.
    let unseen = matches!(lie, Lie::Checksum | Lie::UsedIndex);
    let checks = scheme == "http" && offloads & feature::GUEST_CSUM == 0;
    let what = format!("seed {seed}: {name}, {scheme}, {offloads:#x}, {chunks:?}: {end:?}");
    assert!(end != DownloadOutcome::Wrong || unseen && !checks, "{what}");
    let breaks_rules = !matches!(
        lie,
        Lie::Checksum | Lie::Lost | Lie::Late | Lie::Order | Lie::Silence
    );
    assert!(end != DownloadOutcome::Fault || breaks_rules, "{what}");
    (lie, end)
}

#[test]
fn a_card_that_does_wrong_ends_in_the_file_or_an_error() {
    let served = Served::new(FILE);
    let mut ends = Vec::new();
    thread::scope(|scope| {
        let runs = [0, 1].map(|first| {
            let seeds = (first..1000).step_by(THREADS as usize);
            let served = &served;
            scope.spawn(|| seeds.map(|seed| lied_to(served, seed)).collect::<Vec<_>>())
        });
        ends.extend(runs.into_iter().flat_map(|run| run.join().unwrap()));
    });
    // That they were told, and not in vain.
    for lie in [Lie::ForeignBuffer, Lie::RepeatedBuffer, Lie::Length] {
        assert!(
            ends.contains(&(lie, DownloadOutcome::Fault)),
            "{lie:?}: {ends:?}"
        );
    }
    for lie in [Lie::Lost, Lie::Order, Lie::BufferCount] {
        assert!(
            ends.contains(&(lie, DownloadOutcome::Whole)),
            "{lie:?}: {ends:?}"
        );
    }
    assert!(
        ends.contains(&(Lie::Silence, DownloadOutcome::Failed)),
        "{ends:?}"
    );
}

/// A guest that writes to its rings whatever it likes harms itself: the next driver gets all.
#[test]
fn a_guest_that_scribbles_in_its_rings_harms_itself() {
    let served = Served::new(100_000);
    let socket = served.socket("card");
    let offer = offer(feature::KNOWN, Some(CHUNKS));
    let card = Card::start(&served.files(), &socket, offer, Lies::default());
    let guest = Guest::connect(&socket, MAC).unwrap();
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        scribble_once(&guest, &mut random).unwrap();
        let scheme = ["tftp", "http"][random.usize(..2)];
        served.fetch(&mut super::machine(&guest), scheme);
    }
    let stopped: Vec<_> = card.end().stopped().collect();
    assert!(stopped.len() > 3, "{stopped:?}");
}
