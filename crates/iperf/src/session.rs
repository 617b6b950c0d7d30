//! The states of a test as the server names them, without a network: bytes of the control connection in, what to do next out.

use crate::error::Error;
use crate::messages::Results;
use alloc::vec::Vec;

/// What the client says.
pub(crate) const TEST_END: u8 = 4;
pub(crate) const IPERF_DONE: u8 = 16;

const TEST_START: i8 = 1;
const TEST_RUNNING: i8 = 2;
const PARAM_EXCHANGE: i8 = 9;
const CREATE_STREAMS: i8 = 10;
const SERVER_TERMINATE: i8 = 11;
const EXCHANGE_RESULTS: i8 = 13;
const DISPLAY_RESULTS: i8 = 14;
const ACCESS_DENIED: i8 = -1;
const SERVER_ERROR: i8 = -2;

/// The longest results that are read, in bytes: each stream has some 250.
const LONGEST: u32 = 256 << 10;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Send the parameters.
    Parameters,
    /// Open the streams.
    Streams,
    /// Move data until the test's limit.
    Run,
    /// Send our results.
    Results,
    /// These are the server's.
    Told(Results),
    /// Say that it is over.
    Done,
}

/// Where a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connected,
    Asked,
    Streams,
    Started,
    Running,
    Ended,
    Results,
    Told,
    Done,
}

/// The server's side of a control connection, as far as it was heard.
#[derive(Debug)]
pub(crate) struct Session {
    /// The numbers of the test's streams.
    streams: Vec<u32>,
    phase: Phase,
    heard: Vec<u8>,
}

impl Session {
    /// What comes behind our cookie, in a test of these streams.
    pub(crate) fn new(streams: Vec<u32>) -> Self {
        Self {
            streams,
            phase: Phase::Connected,
            heard: Vec::new(),
        }
    }

    /// Takes bytes of the server's, no more than a message has. Returns how many.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> usize {
        let room = (LONGEST as usize + 4).saturating_sub(self.heard.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.heard.extend_from_slice(taken);
        taken.len()
    }

    /// What to do, by what was heard so far; `None` while more has to be heard.
    ///
    /// # Errors
    /// What the server complains of, and whatever does not belong there. The session is over then.
    pub(crate) fn next(&mut self) -> Result<Option<Step>, Error> {
        if self.phase == Phase::Results {
            return self.results();
        }
        let Some(&state) = self.heard.first() else {
            return Ok(None);
        };
        let state = state as i8;
        let (phase, step) = match (self.phase, state) {
            (_, ACCESS_DENIED) => return Err(Error::Busy),
            (_, SERVER_TERMINATE) => return Err(Error::Terminated),
            (_, SERVER_ERROR) => return self.failure(),
            (Phase::Connected, PARAM_EXCHANGE) => (Phase::Asked, Some(Step::Parameters)),
            (Phase::Asked, CREATE_STREAMS) => (Phase::Streams, Some(Step::Streams)),
            (Phase::Streams, TEST_START) => (Phase::Started, None),
            (Phase::Started, TEST_RUNNING) => (Phase::Running, Some(Step::Run)),
            (Phase::Ended, EXCHANGE_RESULTS) => (Phase::Results, Some(Step::Results)),
            (Phase::Told, DISPLAY_RESULTS) => (Phase::Done, Some(Step::Done)),
            _ => {
                let when = self.when();
                return Err(Error::State { state, when });
            }
        };
        self.heard.remove(0);
        self.phase = phase;
        match step {
            None => self.next(),
            step => Ok(step),
        }
    }

    /// The client has said that the test is over.
    pub(crate) fn end(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Ended;
        }
    }

    /// What the server was to do, for errors.
    pub(crate) fn when(&self) -> &'static str {
        match self.phase {
            Phase::Connected => "before it asked for the parameters",
            Phase::Asked => "after it had the parameters",
            Phase::Streams | Phase::Started => "when the streams were to begin",
            Phase::Running => "during the test",
            Phase::Ended => "when the test was to end",
            Phase::Results => "in its results",
            Phase::Told => "after its results",
            Phase::Done => "after the end",
        }
    }

    /// The server failed: two numbers follow, if it can still send them.
    fn failure(&self) -> Result<Option<Step>, Error> {
        let number = |at: usize| {
            let bytes = self.heard.get(at..at + 4)?;
            Some(i32::from_be_bytes(bytes.try_into().ok()?))
        };
        match (number(1), number(5)) {
            (Some(code), Some(errno)) => Err(Error::Server { code, errno }),
            _ => Ok(None),
        }
    }

    fn results(&mut self) -> Result<Option<Step>, Error> {
        let Some((length, text)) = self.heard.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        if length > LONGEST {
            return Err(Error::TooLong(length));
        }
        let Some(text) = text.get(..length as usize) else {
            return Ok(None);
        };
        let results = Results::parse(text, &self.streams)?;
        self.heard.drain(..4 + length as usize);
        self.phase = Phase::Told;
        Ok(Some(Step::Told(results)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::StreamResults;
    use proptest::prelude::*;
    use std::vec;

    fn results() -> Results {
        Results {
            cpu_util_total: 12.5,
            streams: vec![StreamResults {
                id: 1,
                bytes: 77,
                ..StreamResults::default()
            }],
            ..Results::default()
        }
    }

    /// All that a server says, and the steps that follow.
    fn whole() -> (Vec<u8>, Vec<Step>) {
        let said = [&[9, 10, 1, 2, 13][..], &results().framed(), &[14]].concat();
        let steps = vec![
            Step::Parameters,
            Step::Streams,
            Step::Run,
            Step::Results,
            Step::Told(results()),
            Step::Done,
        ];
        (said, steps)
    }

    /// What comes of `said` in pieces of a size. The client ends the test as soon as it runs.
    fn steps(said: &[u8], piece: usize) -> (Vec<Step>, Option<Error>) {
        let mut session = Session::new(vec![1]);
        let mut steps = Vec::new();
        for bytes in said.chunks(piece) {
            let mut bytes = bytes;
            loop {
                let taken = session.hear(bytes);
                bytes = &bytes[taken..];
                match session.next() {
                    Ok(Some(step)) => {
                        if step == Step::Run {
                            session.end();
                        }
                        steps.push(step);
                    }
                    Ok(None) if bytes.is_empty() => break,
                    Ok(None) => {}
                    Err(error) => return (steps, Some(error)),
                }
            }
        }
        (steps, None)
    }

    #[test]
    fn a_test_goes_through_its_states_however_the_bytes_come() {
        let (said, wanted) = whole();
        for piece in [1, 2, 3, 7, 1000] {
            let (steps, error) = steps(&said, piece);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(steps, wanted);
        }
    }

    #[test]
    fn a_server_may_complain_at_any_time() {
        let (said, _) = whole();
        let states = [0, 1, 2, 4];
        for at in states {
            let complains = |tail: &[u8]| {
                let all = [&said[..at], tail].concat();
                steps(&all, 1).1
            };
            assert!(matches!(complains(&[255]), Some(Error::Busy)));
            assert!(matches!(complains(&[11]), Some(Error::Terminated)));
            let failed = complains(&[254, 0, 0, 0, 142, 0, 0, 0, 98]);
            let wanted = matches!(
                failed,
                Some(Error::Server {
                    code: 142,
                    errno: 98
                })
            );
            assert!(wanted, "{failed:?}");
            assert!(complains(&[254, 0, 0, 0, 142]).is_none(), "more may come");
        }
    }

    #[test]
    fn what_does_not_belong_there_is_refused() {
        for (said, when) in [
            (&b"HTTP/1.1 400 Bad Request"[..], "before it asked"),
            (&[10], "before it asked"),
            (&[9, 9], "after it had the parameters"),
            (&[9, 10, 2], "streams"),
            (&[9, 10, 1, 13], "streams"),
        ] {
            let (_, error) = steps(said, 1);
            let Some(Error::State { state, when: told }) = error else {
                panic!("{error:?}");
            };
            assert!(told.contains(when), "{state}: {told}");
        }
        // Results before the client has ended the test.
        let mut session = Session::new(vec![1]);
        session.hear(&[9, 10, 1, 2, 13]);
        for _ in 0..3 {
            session.next().unwrap();
        }
        assert!(matches!(
            session.next(),
            Err(Error::State { state: 13, .. })
        ));
    }

    #[test]
    fn four_gigabytes_of_results_are_refused_at_once() {
        let said = [&[9, 10, 1, 2, 13][..], &[255; 4]].concat();
        let (_, error) = steps(&said, 1);
        assert!(matches!(error, Some(Error::TooLong(u32::MAX))), "{error:?}");
        let most = [&[9, 10, 1, 2, 13][..], &LONGEST.to_be_bytes()].concat();
        assert!(steps(&most, 1).1.is_none());
        let more = [&[9, 10, 1, 2, 13][..], &(LONGEST + 1).to_be_bytes()].concat();
        assert!(matches!(steps(&more, 1).1, Some(Error::TooLong(_))));
    }

    #[test]
    fn no_more_is_kept_than_a_message() {
        let mut session = Session::new(vec![1]);
        assert_eq!(session.hear(&vec![0; 1 << 20]), LONGEST as usize + 4);
        assert_eq!(session.hear(&[0]), 0);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(said in proptest::collection::vec(prop_oneof![Just(9_u8), Just(10), Just(1), Just(2), Just(13), any::<u8>()], 0..40), piece in 1_usize..9) {
            let one = steps(&said, 1000);
            let other = steps(&said, piece);
            prop_assert_eq!(one.0, other.0);
            prop_assert_eq!(std::format!("{:?}", one.1), std::format!("{:?}", other.1));
        }
    }
}
