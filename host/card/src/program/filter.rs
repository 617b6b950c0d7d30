//! A wire behind a program: what the program decides about a frame is done here.

use std::time::Duration;

use wireboot_card::feature::LARGE_UNITS;
use wireboot_card::{
    GuestMemory, Header, LONGEST_UNIT, Received, Span, Unit, Wire, gather, scatter,
};

use super::counters::ProgramCounters;
use super::machine::{CONTEXT, ProgramMemory, READ_ONLY, SEEN, Wild};
use super::waiting::Waiting;
use super::{Code, Hook, Program};

const PASS: u64 = 0;
const DROP: u64 = 1;
/// How long a program may have a frame wait, in microseconds.
const LONGEST_DELAY: u32 = 1_000_000;
const MOST_COPIES: u16 = 8;
/// Frames for other pairs, at most: as many as wait in one.
const MOST_DIVERTED: usize = 512;
/// In a unit's header: its checksum was found right.
const DATA_VALID: u8 = 2;

/// A wire, and the program in front of it, if there is one.
#[derive(Debug)]
pub(crate) struct Filter<W> {
    wire: W,
    running: Option<Box<Running>>,
}

/// One of the pairs of queues that a port has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairOf {
    pub pair: u16,
    pub pairs: u16,
}

impl PairOf {
    /// Where there is no other.
    pub(crate) const ONLY: Self = Self { pair: 0, pairs: 1 };
}

/// A frame that goes on by another pair.
#[derive(Debug)]
pub(crate) struct Diverted {
    pub hook: Hook,
    pub pair: usize,
    due: Duration,
    times: u32,
    header: Header,
    bytes: Box<[u8]>,
}

/// A program at work.
#[derive(Debug)]
struct Running {
    program: Program,
    place: PairOf,
    memory: ProgramMemory,
    context: [u8; CONTEXT],
    /// A frame that was edited.
    aside: Box<[u8]>,
    /// From the guest, and to it.
    waiting: [Waiting; 2],
    /// Until somebody takes them to their pairs.
    diverted: Vec<Diverted>,
    /// By hook: a failure after which nothing passes, until its queue starts again, and whether it was told.
    wild: [Option<(Wild, bool)>; 2],
    counters: ProgramCounters,
}

/// What is to become of a frame.
#[derive(Clone, Copy, Debug)]
struct Fate {
    due: Duration,
    copies: u32,
    /// Another than that by which it has come.
    pair: Option<usize>,
    edited: bool,
}

impl Fate {
    /// When it goes on, and how often.
    fn when(&self) -> (Duration, u32) {
        (self.due, 1 + self.copies)
    }
}

impl<W> Filter<W> {
    /// In front of the wire of this pair.
    pub(crate) fn new(wire: W, program: Option<Program>, place: PairOf) -> Self {
        let running = program.map(|program| Box::new(Running::new(program, place)));
        Self { wire, running }
    }

    pub(crate) fn wire(&self) -> &W {
        &self.wire
    }

    pub(crate) fn wire_mut(&mut self) -> &mut W {
        &mut self.wire
    }

    /// When a frame goes to the wire, though nobody rings.
    pub(crate) fn due_from_guest(&self) -> Option<Duration> {
        self.waiting(Hook::Guest)?.due()
    }

    /// When one goes to the guest.
    pub(crate) fn due_to_guest(&self) -> Option<Duration> {
        self.waiting(Hook::Wire)?.due()
    }

    fn waiting(&self, hook: Hook) -> Option<&Waiting> {
        self.running.as_ref()?.waiting.get(hook as usize)
    }

    /// What the program did so far; none without one.
    pub(crate) fn counters(&self) -> Option<ProgramCounters> {
        let running = self.running.as_ref()?;
        let names = running.program.maps.iter().map(|map| map.name.clone());
        let values = running.memory.values().map(Iterator::collect);
        Some(ProgramCounters {
            maps: names.zip(values).collect(),
            ..running.counters.clone()
        })
    }

    /// On which hook it has failed, told once.
    pub(crate) fn take_failure(&mut self) -> Option<(Hook, Wild)> {
        let wild = &mut self.running.as_mut()?.wild;
        Hook::ALL.into_iter().zip(wild).find_map(|(hook, wild)| {
            let (wild, told) = wild.as_mut()?;
            (!std::mem::replace(told, true)).then_some((hook, *wild))
        })
    }

    /// Frames that the program has sent to other pairs.
    pub(crate) fn take_diverted(&mut self) -> Vec<Diverted> {
        let running = self.running.as_mut();
        running.map_or_else(Vec::new, |running| std::mem::take(&mut running.diverted))
    }

    /// Takes a frame that the program of another pair has seen.
    pub(crate) fn take_over(&mut self, frame: &Diverted) {
        if let Some(running) = &mut self.running {
            let (when, bytes) = ((frame.due, frame.times), &frame.bytes);
            let write = |place: &mut [u8]| overwrite(place, bytes);
            let waiting = running.waiting.get_mut(frame.hook as usize);
            if !waiting.is_some_and(|waiting| waiting.put(when, frame.header, bytes.len(), write)) {
                running.counters.no_room += 1;
            }
        }
    }

    /// The guest's receive queue is stopped: what waits for it would be old when it starts again.
    pub(crate) fn forget_received(&mut self) {
        if let Some(running) = &mut self.running {
            let [_, to_guest] = &mut running.waiting;
            running.counters.forgotten += to_guest.clear() as u64;
        }
    }

    /// The queue behind the hook starts: a program that failed there may try again.
    pub(crate) fn restart(&mut self, hook: Hook) {
        if let Some(running) = &mut self.running
            && let Some(wild) = running.wild.get_mut(hook as usize)
        {
            *wild = None;
        }
    }
}

impl<W> From<W> for Filter<W> {
    /// Without a program.
    fn from(wire: W) -> Self {
        Self::new(wire, None, PairOf::ONLY)
    }
}

impl Running {
    fn new(program: Program, place: PairOf) -> Self {
        Self {
            memory: ProgramMemory::new(&program.maps),
            program,
            place,
            context: [0; CONTEXT],
            aside: vec![0; LONGEST_UNIT].into_boxed_slice(),
            waiting: [Waiting::new(), Waiting::new()],
            diverted: Vec::new(),
            wild: [None; 2],
            counters: ProgramCounters::default(),
        }
    }

    fn has(&self, hook: Hook) -> bool {
        self.program
            .hooks
            .get(hook as usize)
            .is_some_and(Option::is_some)
    }

    /// Lets the program see a frame of `len` bytes, whose first `read` reads. None when it is dropped.
    fn look(
        &mut self,
        hook: Hook,
        len: usize,
        now: Duration,
        read: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<Fate> {
        let n = hook as usize;
        let code = self.program.hooks.get(n).and_then(Option::as_ref)?;
        let (counters, wild) = (&mut self.counters, self.wild.get_mut(n)?);
        if let Some(seen) = counters.seen.get_mut(n) {
            *seen += 1;
        }
        if wild.is_some() {
            counters.failed += 1;
            return None;
        }
        let context = &mut self.context;
        context.fill(0);
        let (head, frame) = context.split_at_mut(READ_ONLY + 8);
        let seen = frame.get_mut(..len.min(SEEN))?;
        if !read(seen) {
            counters.failed += 1;
            return None;
        }
        let mut before = [0; SEEN];
        before.copy_from_slice(frame);
        let time = now.as_nanos() as u64;
        let PairOf { pair, pairs } = self.place;
        let told = [
            time.to_le_bytes(),
            tell(len as u32, [n as u16, pairs]),
            tell(0, [0, pair]),
        ];
        for (place, told) in head.chunks_exact_mut(8).zip(told) {
            place.copy_from_slice(&told);
        }
        match decide(code, &mut self.memory, context, self.place, now) {
            Err(failure) => {
                *wild = Some((failure, false));
                counters.failed += 1;
                None
            }
            Ok(None) => {
                counters.dropped += 1;
                None
            }
            Ok(Some(mut fate)) => {
                let seen = ..len.min(SEEN);
                let frame = context.get(READ_ONLY + 8..)?;
                fate.edited = frame.get(seen) != before.get(seen);
                counters.edited += u64::from(fate.edited);
                counters.delayed += u64::from(fate.due > now);
                counters.diverted += u64::from(fate.pair.is_some());
                counters.copies += u64::from(fate.copies);
                Some(fate)
            }
        }
    }

    /// The first bytes of a frame of that length, as the program has left them.
    fn edited(&self, len: usize) -> &[u8] {
        let end = READ_ONLY + 8 + len.min(SEEN);
        self.context.get(READ_ONLY + 8..end).unwrap_or_default()
    }

    /// Keeps a frame that `read` reads, as the program has left it, until it is due.
    fn keep(
        &mut self,
        hook: Hook,
        fate: &Fate,
        header: Header,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> bool,
    ) {
        let end = READ_ONLY + 8 + len.min(SEEN);
        let edited = self.context.get(READ_ONLY + 8..end).unwrap_or_default();
        let write = |place: &mut [u8]| read(place) && overwrite(place, edited);
        let kept = match fate.pair {
            None => {
                let waiting = self.waiting.get_mut(hook as usize);
                waiting.is_some_and(|waiting| waiting.put(fate.when(), header, len, write))
            }
            Some(pair) => {
                let mut bytes = vec![0; len].into_boxed_slice();
                let kept = self.diverted.len() < MOST_DIVERTED && write(&mut bytes);
                if kept {
                    let (due, times) = fate.when();
                    self.diverted.push(Diverted {
                        hook,
                        pair,
                        due,
                        times,
                        header,
                        bytes,
                    });
                }
                kept
            }
        };
        self.counters.no_room += u64::from(!kept);
    }
}

/// A number of 32 bits, and two of 16.
fn tell(low: u32, [middle, high]: [u16; 2]) -> [u8; 8] {
    (u64::from(high) << 48 | u64::from(middle) << 32 | u64::from(low)).to_le_bytes()
}

/// Runs a program of this pair on a context. None when the frame is to be dropped.
fn decide(
    code: &Code,
    memory: &mut ProgramMemory,
    context: &mut [u8; CONTEXT],
    PairOf { pair: own, pairs }: PairOf,
    now: Duration,
) -> Result<Option<Fate>, Wild> {
    let verdict = memory.run(&code.instructions, context)?;
    let said = context.get(READ_ONLY..).and_then(<[u8]>::first_chunk::<8>);
    let said = said.map_or(0, |said| u64::from_le_bytes(*said));
    let (delay, copies, pair) = (said as u32, (said >> 32) as u16, (said >> 48) as u16);
    if delay > LONGEST_DELAY {
        return Err(Wild::Delay(delay));
    }
    if copies > MOST_COPIES {
        return Err(Wild::Copies(copies));
    }
    if pair >= pairs {
        return Err(Wild::Pair { pair, pairs });
    }
    match verdict {
        PASS => Ok(Some(Fate {
            due: now + Duration::from_micros(delay.into()),
            copies: copies.into(),
            pair: (pair != own).then_some(pair.into()),
            edited: false,
        })),
        DROP => Ok(None),
        verdict => Err(Wild::Verdict(verdict)),
    }
}

fn overwrite(place: &mut [u8], from: &[u8]) -> bool {
    match place.get_mut(..from.len()) {
        Some(place) => {
            place.copy_from_slice(from);
            true
        }
        None => false,
    }
}

/// Copies the beginning of a unit, or all of it.
fn copy<M: GuestMemory>(memory: &M, unit: &Unit<'_>, to: &mut [u8]) -> bool {
    let head = to.len().min(unit.head.len());
    let (first, rest) = to.split_at_mut(head);
    unit.head
        .get(..head)
        .is_some_and(|head| overwrite(first, head))
        && (rest.is_empty() || gather(memory, unit.spans, rest) == Ok(true))
}

impl<M: GuestMemory, W: Wire<M>> Wire<M> for Filter<W> {
    fn offloads(&self) -> u64 {
        let wire = self.wire.offloads();
        match self.running {
            None => wire,
            Some(_) => wire & !LARGE_UNITS,
        }
    }

    fn agree(&mut self, features: u64) {
        let Some(running) = &mut self.running else {
            return self.wire.agree(features);
        };
        // What waits was made for another guest, or for the same one before it began anew.
        let forgotten: usize = running.waiting.iter_mut().map(Waiting::clear).sum();
        running.counters.forgotten += forgotten as u64;
        self.wire.agree(features & !LARGE_UNITS);
    }

    fn max_unit(&self) -> usize {
        self.wire.max_unit()
    }

    fn useful_room(&self) -> usize {
        self.wire.useful_room()
    }

    fn advance(&mut self, memory: &M, now: Duration) {
        self.wire.advance(memory, now);
        let Some(running) = &mut self.running else {
            return;
        };
        let [from_guest, _] = &mut running.waiting;
        let mut any = false;
        while let Some((header, head)) = from_guest.first(now) {
            let unit = Unit {
                header,
                head,
                spans: &[],
                len: head.len(),
            };
            if !self.wire.send(memory, &unit, now) {
                running.counters.no_room += 1;
            }
            from_guest.pop();
            any = true;
        }
        if any {
            self.wire.flush();
        }
    }

    fn takes(&self) -> bool {
        let running = self.running.as_ref();
        // One unit is cut into 46 frames of 1500 bytes.
        running.is_none_or(|running| running.diverted.len() <= MOST_DIVERTED - 64)
            && self.wire.takes()
    }

    fn send(&mut self, memory: &M, unit: &Unit<'_>, now: Duration) -> bool {
        let running = self.running.as_mut();
        let Some(running) = running.filter(|running| running.has(Hook::Guest)) else {
            return self.wire.send(memory, unit, now);
        };
        let read = |place: &mut [u8]| copy(memory, unit, place);
        let Some(fate) = running.look(Hook::Guest, unit.len, now, read) else {
            return true;
        };
        if fate.due > now || fate.pair.is_some() {
            running.keep(Hook::Guest, &fate, unit.header, unit.len, read);
            return true;
        }
        // The guest can write to the frame while it is looked at: what goes is what the program has seen, edited or not.
        let mut aside = std::mem::take(&mut running.aside);
        let place = aside.get_mut(..unit.len);
        if !place.is_some_and(|place| read(place) && overwrite(place, running.edited(place.len())))
        {
            running.aside = aside;
            return false;
        }
        let unit = Unit {
            head: aside.get(..unit.len).unwrap_or_default(),
            spans: &[],
            ..*unit
        };
        let all = (0..=fate.copies).all(|_| self.wire.send(memory, &unit, now));
        running.aside = aside;
        all
    }

    fn flush(&mut self) {
        self.wire.flush();
    }

    #[inline]
    fn receive(&mut self, memory: &M, room: &[Span], now: Duration) -> Received {
        if self.running.is_none() {
            return self.wire.receive(memory, room, now);
        }
        self.receive_by_program(memory, room, now)
    }
}

impl<W> Filter<W> {
    fn receive_by_program<M: GuestMemory>(
        &mut self,
        memory: &M,
        room: &[Span],
        now: Duration,
    ) -> Received
    where
        W: Wire<M>,
    {
        let running = self.running.as_mut();
        let Some(running) = running.filter(|running| running.has(Hook::Wire)) else {
            return self.wire.receive(memory, room, now);
        };
        let [_, to_guest] = &mut running.waiting;
        if let Some((header, bytes)) = to_guest.first(now) {
            let (len, written) = (bytes.len(), scatter(memory, room, bytes) == Ok(true));
            to_guest.pop();
            if !written {
                return Received::TooLong;
            }
            return Received::Unit { header, len };
        }
        let received = self.wire.receive(memory, room, now);
        let Received::Unit { mut header, len } = received else {
            return received;
        };
        let read = |place: &mut [u8]| gather(memory, room, place) == Ok(true);
        let Some(mut fate) = running.look(Hook::Wire, len, now, read) else {
            return Received::Kept;
        };
        if fate.edited {
            header.flags &= !DATA_VALID;
        }
        if fate.due > now || fate.pair.is_some() {
            running.keep(Hook::Wire, &fate, header, len, read);
            return Received::Kept;
        }
        if let Some(besides) = fate.copies.checked_sub(1) {
            fate.copies = besides;
            running.keep(Hook::Wire, &fate, header, len, read);
        }
        if fate.edited && scatter(memory, room, running.edited(len)) != Ok(true) {
            return Received::TooLong;
        }
        Received::Unit { header, len }
    }
}
