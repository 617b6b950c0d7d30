//! A network and a link whose answers are written in a script.

use super::firmware;
use crate::caller::Buffer;
use crate::failure::Failure;
use crate::shared::Network;
use core::cell::RefCell;
use core::net::IpAddr;
use std::rc::Rc;
use uefi::{Handle, Status};
use wireboot_fetch::http::{Request, ResponseHead};
use wireboot_fetch::url::Url;
use wireboot_fetch::{File, Job, Stats};
use wireboot_net::{Duration, Instant, Memory};
use wireboot_protocols::http::{Exchanges, News, Verdict};
use wireboot_protocols::ip_config::Settings;
use wireboot_protocols::link::Link;

/// Exchanges at the same time.
const MOST: usize = 16;
/// Bytes of the largest file.
pub(super) const LARGEST: usize = 4096;
/// Time passes faster the longer a call waits: from a fraction of what calls linger, to steps in which long waits end soon.
const FIRST_STEP: Duration = Duration::from_micros(60);
const LAST_STEP: Duration = Duration::from_millis(200);
/// What files and bodies hold.
pub(super) const CONTENT: u8 = 0x5a;

#[derive(Default)]
struct Exchange {
    job: Job,
    memory: Option<Memory>,
    begun: bool,
    ended: bool,
}

/// What happens in the middle of a call.
type Interrupt = Box<dyn FnMut()>;

/// What all copies of a [`Fake`] share: the script, the clock, and the exchanges that it has.
#[derive(Default)]
struct FakeNetworkState {
    script: Vec<u8>,
    at: usize,
    now: Option<Instant>,
    step: Duration,
    exchanges: Vec<Exchange>,
    last_job: Job,
    frame: Vec<u8>,
    up: bool,
    /// Frames that left.
    sent: u32,
    /// The card has no link.
    cut: bool,
    halted: bool,
    /// Nothing more comes.
    quiet: bool,
    interrupt: Option<Interrupt>,
}

/// The network and its link, of which a test keeps a copy.
#[derive(Clone, Default)]
pub(super) struct Fake(Rc<RefCell<FakeNetworkState>>);

impl Fake {
    pub(super) fn new(script: &[u8]) -> Self {
        let fake = Self::default();
        fake.say(script);
        fake
    }

    /// What it answers next.
    pub(super) fn say(&self, script: &[u8]) {
        let mut state = self.0.borrow_mut();
        (state.script, state.at) = (script.to_vec(), 0);
    }

    /// Happens in the middle of calls from now on.
    pub(super) fn interrupt(&self, interrupt: impl FnMut() + 'static) {
        self.0.borrow_mut().interrupt = Some(Box::new(interrupt));
    }

    /// Frames that left since the last time.
    #[cfg(test)]
    pub(super) fn take_sent(&self) -> u32 {
        core::mem::take(&mut self.0.borrow_mut().sent)
    }

    /// The card's link is lost, or back.
    #[cfg(test)]
    pub(super) fn set_link(&self, up: bool) {
        self.0.borrow_mut().cut = !up;
    }

    /// A call begins, for which time passes slowly at first.
    pub(super) fn begin_call(&self) {
        self.0.borrow_mut().step = FIRST_STEP;
    }

    #[cfg(test)]
    pub(super) fn is_halted(&self) -> bool {
        self.0.borrow().halted
    }

    /// Nothing is on its way to a loader that has returned: that would be written until its exchange is closed.
    pub(super) fn quiet(&self) {
        self.0.borrow_mut().quiet = true;
    }

    /// Exchanges that nobody has closed.
    pub(super) fn open_exchanges(&self) -> usize {
        self.0.borrow().exchanges.len()
    }
}

impl FakeNetworkState {
    fn byte(&mut self) -> u8 {
        let byte = self.script.get(self.at).copied();
        self.at += 1;
        byte.unwrap_or(0)
    }

    fn result<T>(&mut self, done: T) -> Result<T, Failure> {
        Err(match self.byte() % 16 {
            9 => Failure::Tftp {
                code: self.byte(),
                text: String::from("text"),
            },
            10 => Failure::Refused,
            11 => Failure::Timeout,
            12 => Failure::OutOfResources,
            13 => Failure::Device,
            14 => Failure::TooSmall(u64::MAX),
            _ => return Ok(done),
        })
    }
}

impl Network for Fake {
    fn turn(&mut self) {
        let interrupt = self.0.borrow_mut().interrupt.take();
        if let Some(mut interrupt) = interrupt {
            interrupt();
            self.0.borrow_mut().interrupt.get_or_insert(interrupt);
        }
        let state = &mut *self.0.borrow_mut();
        if state.halted {
            firmware::fault("the network is used after it was halted");
        }
    }

    fn idle(&mut self) {
        self.turn();
    }

    fn now(&self) -> Instant {
        let state = &mut *self.0.borrow_mut();
        let now = state.now.unwrap_or(Instant::ZERO) + state.step;
        state.step = (state.step * 2).min(LAST_STEP);
        state.now = Some(now);
        now
    }

    fn link_up(&self) -> bool {
        !self.0.borrow().cut
    }

    fn configure(&mut self, address: IpAddr, _: u8, _: Option<IpAddr>) {
        if address.is_unspecified() {
            firmware::fault("the engine's address is taken away");
        }
    }

    fn hold_as_driver(&mut self) -> Result<Option<Handle>, Status> {
        Ok(None)
    }

    fn let_go(&mut self) {}

    fn size(&mut self, _: &Url) -> Result<u64, Failure> {
        let state = &mut *self.0.borrow_mut();
        let size = u64::from(state.byte()) * 16;
        state.result(size)
    }

    /// Files of every other length come to other memory.
    fn read(&mut self, _: &Url, mut buffer: Buffer) -> Result<File, Failure> {
        self.turn();
        let state = &mut *self.0.borrow_mut();
        let size = state.byte();
        let content = vec![CONTENT; usize::from(size) * LARGEST / 255];
        let len = content.len() as u64;
        if content.len() > buffer.len() {
            return Err(Failure::TooSmall(len));
        }
        let memory = if size.is_multiple_of(2) {
            buffer.fill(&content);
            Memory::new(buffer)
        } else {
            Memory::from(content)
        };
        state.result(File {
            url: String::new(),
            memory,
            len,
            server: None,
            stats: Stats::default(),
        })
    }

    fn set_interface(&mut self, _: &Settings) {}

    fn halt(&mut self) {
        self.0.borrow_mut().halted = true;
    }
}

impl Exchanges for Fake {
    fn open(&mut self, _: Request) -> Option<Job> {
        let state = &mut *self.0.borrow_mut();
        if state.byte() % 16 == 15 || state.exchanges.len() >= MOST {
            return None;
        }
        state.last_job += 1;
        let job = state.last_job;
        state.exchanges.push(Exchange {
            job,
            ..Exchange::default()
        });
        Some(job)
    }

    fn news(&mut self, job: Job) -> Option<News> {
        let state = &mut *self.0.borrow_mut();
        let byte = state.byte();
        let exchange = state.exchanges.iter_mut().find(|one| one.job == job);
        let Some(exchange) = exchange else {
            firmware::fault("news of an exchange that is closed are asked for");
            return None;
        };
        if exchange.ended {
            return None;
        }
        let kind = byte % 8;
        if kind == 7 {
            exchange.ended = true;
            exchange.memory = None;
            return Some(News::Ended(match byte / 8 {
                0..16 => Ok(()),
                16..20 => Err(Verdict::ConnectionReset),
                20..24 => Err(Verdict::Timeout),
                24..28 => Err(Verdict::Unreachable),
                _ => Err(Verdict::ConnectionFin),
            }));
        }
        if !exchange.begun && kind == 1 {
            exchange.begun = true;
            let status = if byte < 128 { 200 } else { 404 };
            let count = usize::from(byte / 8 % 4);
            let field = |index: usize| (format!("name{index}"), "value".to_string());
            return Some(News::Head(ResponseHead {
                status,
                fields: (0..count).map(field).collect(),
            }));
        }
        if exchange.begun
            && kind == 2
            && let Some(mut memory) = exchange.memory.take()
        {
            let len = usize::from(byte / 8) * 8 + 1;
            let place = memory.rest_mut(0);
            let len = len.min(place.len());
            place.iter_mut().take(len).for_each(|byte| *byte = CONTENT);
            return Some(News::Body(len));
        }
        None
    }

    fn give(&mut self, job: Job, memory: Memory) {
        let state = &mut *self.0.borrow_mut();
        match state.exchanges.iter_mut().find(|one| one.job == job) {
            Some(exchange) => exchange.memory = Some(memory),
            None => firmware::fault("memory is given to an exchange that is closed"),
        }
    }

    fn close(&mut self, job: Job) {
        let state = &mut *self.0.borrow_mut();
        let before = state.exchanges.len();
        // What is on its way is still written until the service has answered.
        for exchange in state.exchanges.iter_mut().filter(|one| one.job == job) {
            if let (false, Some(memory)) = (state.quiet, &mut exchange.memory) {
                memory.rest_mut(0).iter_mut().take(8).for_each(|byte| {
                    *byte = CONTENT;
                });
            }
        }
        state.exchanges.retain(|one| one.job != job);
        if state.exchanges.len() == before {
            firmware::fault("an exchange is closed twice");
        }
    }
}

impl Link for Fake {
    fn set_up(&mut self, up: bool) {
        let state = &mut *self.0.borrow_mut();
        state.up = up;
        state.frame.clear();
    }

    fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
        let state = &mut *self.0.borrow_mut();
        state.sent += 1;
        state.byte() % 8 != 7
    }

    fn peek(&mut self) -> Option<&[u8]> {
        let frame = {
            let state = &mut *self.0.borrow_mut();
            if state.frame.is_empty() && state.up {
                let byte = state.byte();
                if byte.is_multiple_of(2) {
                    return None;
                }
                let len = 14 + usize::from(byte) * 1500 / 255;
                let to = match byte / 2 % 4 {
                    0 => [0xff; 6],
                    1 => [1, 0, 0x5e, 0, 0, byte],
                    _ => super::MAC,
                };
                state.frame = vec![byte; len];
                let places = state.frame.iter_mut().zip(to);
                places.for_each(|(place, byte)| *place = byte);
            }
            if state.frame.is_empty() {
                return None;
            }
            &raw const *state.frame
        };
        // SAFETY: the frame is changed by `set_up` and `skip` only, which need the link that this borrows; the copies in tests call
        // neither.
        Some(unsafe { &*frame })
    }

    fn skip(&mut self) {
        self.0.borrow_mut().frame.clear();
    }
}
