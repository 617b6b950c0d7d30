//! The rungs of frames: how many come through when nothing is done with them.

use super::Sample;
use super::frame::{self, FrameEndpoint};
use super::stretch::Stretch;
use super::tally::Tally;
use super::wire::Wire;
use crate::error::Error;
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_platform::Clock;
use wireboot_wire::ladder::{Answer, DATA_PORT, PORT, Request};

/// Bytes of a full frame without the check sequence.
const FULL: usize = 1514;
/// A payload that makes the smallest frame of IPv4, 64 bytes with the check sequence, and one of 84 of IPv6.
const SMALL: u16 = 18;

/// When nothing has come for so long, in microseconds, the sender is asked again: a frame may have been lost.
const SILENCE: u64 = 100_000;
/// When nobody has said hello, in microseconds, there is no sender.
const HELLO_PATIENCE: u64 = 3_000_000;
/// When nothing came of another request, or nothing after it should be over, in microseconds, a sender that has said hello is left: on a busy host it may do nothing
/// for seconds.
const PATIENCE: u64 = 10_000_000;
/// The answer may overtake what was sent before it. When nothing has come for so long, in microseconds, all has.
const LULL: u64 = 10_000;
/// Frames sent between two doorbells.
const BATCH: usize = 64;
const BROADCAST: [u8; 6] = [0xff; 6];

/// How large frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// As large as the network takes them.
    Full,
    /// With 18 bytes of payload.
    Small,
}

impl Size {
    /// Bytes of payload of a datagram to `address`.
    pub(crate) fn payload(self, address: IpAddr) -> u16 {
        match self {
            Self::Full => (FULL - frame::headers(address)) as u16,
            Self::Small => SMALL,
        }
    }
}

/// Measures against a sender.
pub(crate) struct Frames {
    /// For ticks and microseconds.
    pub clock: Clock,
    /// Where requests come from; answers and data go there.
    pub local: IpAddr,
    /// The sender's, of the same version of IP.
    pub sender: IpAddr,
    /// How long a measurement takes, in microseconds.
    pub micros: u32,
    /// The last request's number.
    number: u32,
}

impl Frames {
    /// Measures over the addresses given.
    pub(crate) fn new(clock: Clock, local: IpAddr, sender: IpAddr, micros: u32) -> Self {
        Self {
            clock,
            local,
            sender,
            micros,
            // The sender remembers what it was asked last.
            number: clock.ticks() as u32,
        }
    }

    /// What comes through while the sender sends frames of a size. Where there is `memory`, their payload is copied there.
    pub(crate) fn receive(
        &mut self,
        wire: &mut impl Wire,
        size: Size,
        memory: Option<&mut [u8]>,
    ) -> Result<Sample, Error> {
        let (token, peer, _) = self.token(wire)?;
        let request = Request::Send {
            number: self.next_number(),
            token,
            payload: size.payload(self.sender),
            micros: self.micros,
        };
        let mut tally = self.tally(memory);
        let mut sample = Sample::default();
        let clock = self.clock;
        // What came first, when, and when the last came. The clock begins behind the first burst, which is not counted.
        let mut first = None;
        let mut last = 0;
        let mut stretch = Stretch::default();
        let look = &mut |tally: &Tally<'_>, before, after| {
            let (_, datagrams, bytes) = *first.get_or_insert((after, tally.datagrams, tally.bytes));
            let packets = tally.datagrams - datagrams;
            if packets > sample.packets {
                stretch.add(packets - sample.packets, after - before);
                sample.packets = packets;
                sample.bytes = tally.bytes - bytes;
                sample.busy += after - before;
                last = after;
            }
        };
        self.ask_until_answered(wire, (&request, peer), &mut tally, look)?;
        self.wait_for_lull(wire, &mut tally, look)?;
        let Some((
            Answer::Sent {
                datagrams, waited, ..
            },
            _,
        )) = tally.answer
        else {
            return Err(Error::Unserved(self.sender));
        };
        let begin = first.map_or(last, |(begin, ..)| begin);
        sample.micros = clock.micros_of(last.saturating_sub(begin));
        sample.sent = datagrams;
        sample.lost = datagrams.saturating_sub(tally.datagrams);
        sample.waited = waited;
        sample.least = stretch.least();
        Ok(sample)
    }

    /// What comes out at the other end while frames of a size are sent.
    pub(crate) fn transmit(&mut self, wire: &mut impl Wire, size: Size) -> Result<Sample, Error> {
        let payload = size.payload(self.sender);
        let (before, peer, _) = self.count(wire)?;
        let (from, to) = self.ends(wire, peer, DATA_PORT);
        let content: Vec<u8> = (0..payload).map(|n| n as u8).collect();
        let frame = frame::emit(from, to, &content);
        let mut sample = Sample::default();
        let begin = self.clock.micros();
        let end = begin + u64::from(self.micros);
        while self.clock.micros() < end {
            let start = self.clock.ticks();
            let mut queued = 0;
            while queued < BATCH && wire.send(&frame)? {
                queued += 1;
            }
            wire.flush()?;
            if queued > 0 {
                sample.sent += queued as u64;
                sample.busy += self.clock.ticks() - start;
            }
        }
        while !wire.sent()? && self.clock.micros() < end + SILENCE {}
        sample.micros = self.clock.micros() - begin;
        let (after, _, requests) = self.count(wire)?;
        sample.packets = after.saturating_sub(before).saturating_sub(requests);
        sample.bytes = sample.packets * u64::from(payload);
        sample.lost = sample.sent.saturating_sub(sample.packets);
        Ok(sample)
    }

    /// How many frames have come out at the other end so far, whose address that is, and how many frames it took to ask.
    fn count(&mut self, wire: &mut impl Wire) -> Result<(u64, [u8; 6], u64), Error> {
        let (token, peer, greetings) = self.token(wire)?;
        let request = Request::Count {
            number: self.next_number(),
            token,
        };
        let mut tally = self.tally(None);
        let asked = (&request, peer);
        let requests = self.ask_until_answered(wire, asked, &mut tally, &mut |_, _, _| {})?;
        match tally.answer {
            Some((Answer::Counted { frames, .. }, mac)) => Ok((frames, mac, greetings + requests)),
            _ => Err(Error::Unserved(self.sender)),
        }
    }

    /// What the sender wants to hear in a request, its Ethernet address, and how many frames it took to ask for that.
    fn token(&mut self, wire: &mut impl Wire) -> Result<(u64, [u8; 6], u64), Error> {
        let number = self.next_number();
        let request = Request::Hello { number };
        let mut tally = self.tally(None);
        let asked = (&request, BROADCAST);
        let greetings = self.ask_until_answered(wire, asked, &mut tally, &mut |_, _, _| {})?;
        match tally.answer {
            Some((Answer::Welcome { token, .. }, mac)) => Ok((token, mac, greetings)),
            _ => Err(Error::NoSender(self.sender)),
        }
    }

    fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    fn tally<'m>(&self, memory: Option<&'m mut [u8]>) -> Tally<'m> {
        Tally::new(self.number, self.sender, memory)
    }

    /// Asks the station `peer` until there is an answer, and shows `look` each burst before it, with its time in ticks. Returns how many frames it
    /// took.
    fn ask_until_answered(
        &self,
        wire: &mut impl Wire,
        (request, peer): (&Request, [u8; 6]),
        tally: &mut Tally<'_>,
        look: &mut dyn FnMut(&Tally<'_>, u64, u64),
    ) -> Result<u64, Error> {
        let (from, to) = self.ends(wire, peer, PORT);
        let datagram = frame::emit(from, to, request.emit().as_bytes());
        // The sender's kernel forgets where this machine is, and cannot ask it.
        let question = [frame::solicitation(from, self.sender), datagram];
        let mut frames = 0;
        let mut heard = None;
        let ticks = |micros| self.clock.ticks_of(micros);
        let patience = match request {
            Request::Hello { .. } => HELLO_PATIENCE,
            _ => PATIENCE,
        };
        let mut end = self.clock.ticks() + ticks(patience);
        let mut is_begun = false;
        while tally.answer.is_none() {
            let before = self.clock.ticks();
            if before > end {
                return Err(match request {
                    Request::Hello { .. } => Error::NoSender(self.sender),
                    _ => Error::Unserved(self.sender),
                });
            }
            if heard.is_none_or(|heard| before > heard + ticks(SILENCE)) {
                for frame in &question {
                    frames += u64::from(wire.send(frame)?);
                }
                wire.flush()?;
                heard = Some(before);
            }
            let seen = tally.datagrams;
            wire.receive(tally)?;
            if tally.datagrams > seen {
                let after = self.clock.ticks();
                look(tally, before, after);
                heard = Some(after);
                if !is_begun {
                    end = after + ticks(u64::from(self.micros) + PATIENCE);
                    is_begun = true;
                }
            }
        }
        Ok(frames)
    }

    /// Takes what comes behind the answer.
    fn wait_for_lull(
        &self,
        wire: &mut impl Wire,
        tally: &mut Tally<'_>,
        look: &mut dyn FnMut(&Tally<'_>, u64, u64),
    ) -> Result<(), Error> {
        let mut heard = self.clock.ticks();
        let end = heard + self.clock.ticks_of(SILENCE);
        loop {
            let before = self.clock.ticks();
            if before > end.min(heard + self.clock.ticks_of(LULL)) {
                return Ok(());
            }
            let seen = tally.datagrams;
            wire.receive(tally)?;
            if tally.datagrams > seen {
                heard = self.clock.ticks();
                look(tally, before, heard);
            }
        }
    }

    /// Us, and the other end.
    fn ends(
        &self,
        wire: &mut impl Wire,
        mac: [u8; 6],
        port: u16,
    ) -> (FrameEndpoint, FrameEndpoint) {
        let from = FrameEndpoint {
            mac: wire.mac(),
            address: self.local,
            port: PORT,
        };
        let to = FrameEndpoint {
            mac,
            address: self.sender,
            port,
        };
        (from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::tests::datagram;
    use super::*;
    use alloc::collections::VecDeque;

    const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const TOKEN: u64 = 77;
    /// Datagrams that a request brings.
    const SENT: u64 = 10;

    /// The sender that a [`Cable`] has at its other end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum FakeSender {
        /// Its answer overtakes half of what it sent.
        Hasty,
        /// It says hello, and then does nothing for as many questions as a machine asks in four seconds.
        Slow,
        /// It says hello, and no more.
        Silent,
        /// It sends for ever.
        Endless,
        /// Nobody is there.
        Absent,
    }

    /// A cable with a sender at its other end.
    struct Cable {
        sender: FakeSender,
        /// Questions that are lost on their way, each of two frames.
        lost: u32,
        /// What is on its way to the machine.
        coming: VecDeque<Vec<u8>>,
        /// The kinds of the requests that arrived, and to whom they went.
        heard: Vec<(Request, [u8; 6])>,
        frames: u64,
    }

    impl Cable {
        fn new(sender: FakeSender, lost: u32) -> Self {
            Self {
                sender,
                lost,
                coming: VecDeque::new(),
                heard: Vec::new(),
                frames: 0,
            }
        }

        fn answer(&mut self, request: Request) {
            let data = datagram(1, DATA_PORT, DATA_PORT, &[0x55; 18]);
            let mut say = |answer: Answer| {
                let text = answer.emit();
                self.coming
                    .push_back(datagram(1, PORT, PORT, text.as_bytes()));
            };
            match (request, self.sender) {
                (_, FakeSender::Absent) => {}
                (Request::Hello { number }, _) => say(Answer::Welcome {
                    number,
                    token: TOKEN,
                }),
                (_, FakeSender::Silent | FakeSender::Endless) => {}
                (_, FakeSender::Slow) if self.heard.len() < 40 => {}
                (Request::Count { number, .. }, _) => say(Answer::Counted {
                    number,
                    frames: self.frames,
                }),
                (Request::Send { number, .. }, _) => {
                    say(Answer::Sent {
                        number,
                        datagrams: SENT,
                        dropped: 0,
                        micros: 1000,
                        waited: 7,
                    });
                    for n in 0..SENT as usize {
                        let at = if n < 5 { 0 } else { self.coming.len() };
                        self.coming.insert(at, data.clone());
                    }
                }
            }
        }
    }

    impl Wire for Cable {
        fn mac(&mut self) -> [u8; 6] {
            OURS
        }

        /// One frame at a time.
        fn receive(&mut self, tally: &mut Tally<'_>) -> Result<(), Error> {
            let asked = self.heard.iter();
            let mut asked = asked.filter(|(request, _)| matches!(request, Request::Send { .. }));
            if self.sender == FakeSender::Endless && asked.next().is_some() {
                let data = datagram(1, DATA_PORT, DATA_PORT, &[0x55; 18]);
                self.coming.push_back(data);
            }
            if let Some(frame) = self.coming.pop_front() {
                tally.take((&[&frame], None));
            }
            Ok(())
        }

        fn send(&mut self, frame: &[u8]) -> Result<bool, Error> {
            self.frames += 1;
            let Some(frame::Datagram { port: PORT, at, .. }) = frame::parse(frame) else {
                return Ok(true);
            };
            if self.lost > 0 {
                self.lost -= 1;
                return Ok(true);
            }
            let request = Request::parse(&frame[at..]).unwrap();
            self.heard.push((request, *frame.first_chunk().unwrap()));
            self.answer(request);
            Ok(true)
        }

        fn flush(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn sent(&mut self) -> Result<bool, Error> {
            Ok(true)
        }
    }

    /// A machine whose time passes with its looks at the clock.
    fn machine() -> Frames {
        machine_with(Clock::stepping(20))
    }

    fn machine_with(clock: Clock) -> Frames {
        let [local, sender] = [9, 1].map(|last| IpAddr::from([10, 77, 0, last]));
        Frames::new(clock, local, sender, 1000)
    }

    #[test]
    fn what_the_answer_overtakes_is_not_lost() {
        let mut cable = Cable::new(FakeSender::Hasty, 0);
        let sample = machine().receive(&mut cable, Size::Small, None).unwrap();
        assert_eq!((sample.sent, sample.lost, sample.waited), (SENT, 0, 7));
        // All behind the first, with which the clock begins.
        assert_eq!(sample.packets, SENT - 1);
        assert_eq!(sample.bytes, 18 * (SENT - 1));
    }

    #[test]
    fn the_token_goes_to_the_sender_alone() {
        let clock = Clock::stepping(20);
        let (mut frames, mut cable) = (machine_with(clock), Cable::new(FakeSender::Hasty, 0));
        frames.receive(&mut cable, Size::Small, None).unwrap();
        frames.count(&mut cable).unwrap();
        let mut numbers = Vec::new();
        for (request, to) in &cable.heard {
            let hello = matches!(request, Request::Hello { .. });
            assert_eq!(*to, if hello { BROADCAST } else { SENDER_MAC });
            assert_eq!(request.token(), (!hello).then_some(TOKEN));
            let (Request::Hello { number }
            | Request::Send { number, .. }
            | Request::Count { number, .. }) = *request;
            numbers.push(number);
        }
        let first = numbers[0];
        assert_eq!(numbers, [0, 1, 2, 3].map(|n| first.wrapping_add(n)));
        // A sender may remember those of a boot before.
        assert_ne!(first, machine_with(clock).next_number());
    }

    #[test]
    fn what_is_lost_is_asked_again_and_its_frames_are_known() {
        let mut cable = Cable::new(FakeSender::Hasty, 2);
        let (counted, mac, asked) = machine().count(&mut cable).unwrap();
        // The hello three times, and the request: each behind a question for the sender's Ethernet address.
        assert_eq!((counted, mac, asked), (8, SENDER_MAC, 8));
    }

    #[test]
    fn a_sender_that_has_said_hello_is_waited_for() {
        let mut cable = Cable::new(FakeSender::Slow, 0);
        let sample = machine().receive(&mut cable, Size::Small, None).unwrap();
        assert_eq!((sample.sent, sample.lost), (SENT, 0));
    }

    #[test]
    fn a_sender_that_goes_on_or_says_nothing_is_left() {
        let unserved = |sender, receives| {
            let mut cable = Cable::new(sender, 0);
            let mut frames = machine();
            let error = match receives {
                true => frames.receive(&mut cable, Size::Small, None).unwrap_err(),
                false => frames.count(&mut cable).unwrap_err(),
            };
            assert!(matches!(error, Error::Unserved(_)), "{error}");
        };
        unserved(FakeSender::Endless, true);
        unserved(FakeSender::Silent, true);
        unserved(FakeSender::Silent, false);
        let mut absent = Cable::new(FakeSender::Absent, 0);
        let error = machine().count(&mut absent).unwrap_err();
        assert!(matches!(error, Error::NoSender(_)), "{error}");
    }

    #[test]
    fn full_frames_hold_1500_bytes_of_either_version() {
        let v4 = IpAddr::from([10, 77, 0, 1]);
        let v6 = IpAddr::from([0xfd00, 0x77, 0, 0, 0, 0, 0, 1]);
        assert_eq!(Size::Full.payload(v4), 1472);
        assert_eq!(Size::Full.payload(v6), 1452);
        for address in [v4, v6] {
            let end = FrameEndpoint {
                mac: BROADCAST,
                address,
                port: PORT,
            };
            let payload = [0; 1472];
            let payload = &payload[..Size::Full.payload(address).into()];
            assert_eq!(frame::emit(end, end, payload).len(), 14 + 1500);
        }
        let smallest = frame::headers(v4) + usize::from(Size::Small.payload(v4));
        assert_eq!(smallest + 4, 64);
    }
}
