//! EFI_HTTP_PROTOCOL: what an instance is asked for, and when it answers what (UEFI 2.10, section 29.6).
//!
//! A call returns at once. Its token is answered when what it asks for is there: a request's with the head of the response, a response's
//! with the head and as much of the body as its buffer holds, straight from the wire. Redirects and errors of the server's are answers.

mod read_ahead;
mod request;
#[cfg(test)]
mod tests;

use crate::Refusal;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::net::IpAddr;
pub use read_ahead::ReadAhead;
pub use request::{Asked, Method};
use wireboot_fetch::Job;
use wireboot_fetch::http::{Problem, Request, ResponseHead};
use wireboot_net::{Memory, NetError};

/// Bytes that take longer than a tick of the firmware's at 3 Gbit/s.
const MUCH: usize = 4 << 20;
/// Responses that wait at the same time.
const MOST_WAITING: usize = 64;

/// Where requests go and responses come from.
pub trait Exchanges {
    /// Begins one; `None` where there is no room.
    fn open(&mut self, request: Request) -> Option<Job>;
    /// What has come of it since.
    fn news(&mut self, exchange: Job) -> Option<News>;
    /// Memory for the next bytes of the body: [`News::Body`] or [`News::Ended`] tells when it is nobody's any more.
    fn give(&mut self, exchange: Job, memory: Memory);
    /// Ends it. Nobody has memory of it afterwards.
    fn close(&mut self, exchange: Job);
}

/// What comes of an exchange.
#[derive(Debug)]
pub enum News {
    /// The head of the response.
    Head(ResponseHead),
    /// So many bytes of the body are in the memory that was given.
    Body(usize),
    /// Nothing more comes: all has come, or why not.
    Ended(Result<(), Verdict>),
}

/// How a token ends, by the names of EFI_STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// EFI_SUCCESS: the token has what there is of the response.
    Success,
    /// EFI_HTTP_ERROR: the server's status is 300 or more, as EDK II has it. ESXi's loader follows a redirect by this alone.
    HttpError,
    /// EFI_ABORTED: by Cancel, Configure or the end of the instance.
    Aborted,
    /// EFI_CONNECTION_FIN: the server closed the connection too early.
    ConnectionFin,
    /// EFI_CONNECTION_RESET: the connection broke, or could not be made for a reason that has no other name here.
    ConnectionReset,
    /// EFI_CONNECTION_REFUSED: the server answered the attempt to connect with a reset.
    ConnectionRefused,
    /// EFI_NETWORK_UNREACHABLE: no way to the server, or no address of it.
    Unreachable,
    /// EFI_TIMEOUT: it says nothing, or hardly anything.
    Timeout,
    /// EFI_DEVICE_ERROR: anything else, such as an answer that is no HTTP.
    DeviceError,
}

impl From<&Problem> for Verdict {
    fn from(problem: &Problem) -> Self {
        match problem {
            Problem::Connect(NetError::Refused) => Self::ConnectionRefused,
            Problem::Connect(NetError::TimedOut)
            | Problem::Connection(NetError::TimedOut)
            | Problem::Silent { .. }
            | Problem::Slow { .. } => Self::Timeout,
            Problem::Connect(NetError::Unreachable) | Problem::Resolve { .. } => Self::Unreachable,
            Problem::Connect(_) | Problem::Connection(_) => Self::ConnectionReset,
            Problem::NoAnswer | Problem::BrokeOff { .. } => Self::ConnectionFin,
            _ => Self::DeviceError,
        }
    }
}

/// EFI_HTTP_CONFIG_DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// HttpVersion: 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub version: i32,
    /// TimeOutMillisec. It is told back to callers and limits nothing.
    pub timeout: u32,
    /// UseDefaultAddress; always so over IPv6 with the unspecified address.
    pub default_address: bool,
    /// LocalAddress, of the version that LocalAddressIsIPv6 tells.
    pub address: IpAddr,
    /// LocalSubnet, a mask; zeros over IPv6. It is told back to callers and used for nothing.
    pub subnet: [u8; 4],
    /// LocalPort. Ours are random.
    pub port: u16,
}

/// HttpVersionUnsupported and above.
const VERSIONS: core::ops::Range<i32> = 0..2;

/// A caller's token, which only its caller knows more of.
pub type Token = usize;

/// A token that is answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The token that was signalled.
    pub token: Token,
    /// How the token ends.
    pub verdict: Verdict,
    /// What has come for a response's token; `None` for a request's.
    pub response: Option<Response>,
}

/// What a response's token is answered with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The server's status code; `None` where no head has come.
    pub status: Option<u16>,
    /// Names and values of header lines, for whom they are new.
    pub fields: Option<Vec<(String, String)>>,
    /// Bytes in the buffer.
    pub len: usize,
}

struct Waiting {
    token: Token,
    wants_head: bool,
    body: Option<Memory>,
    /// The length of the body's memory in bytes, once the exchange has that.
    given: Option<usize>,
}

/// An exchange, and how far it is.
struct Conversation {
    exchange: Job,
    /// The code, once the head is there.
    status: Option<u16>,
    /// The head's lines, until somebody has had them.
    fields: Option<Vec<(String, String)>>,
    /// Bytes of a piece of the body that has come.
    came: Option<usize>,
    end: Option<Result<(), Verdict>>,
    /// A token was told why no more comes.
    told: bool,
}

/// An instance of EFI_HTTP_PROTOCOL, at first not configured.
#[derive(Default)]
pub struct Http {
    config: Option<Config>,
    /// The token of the request whose response has not begun.
    asking: Option<Token>,
    waiting: VecDeque<Waiting>,
    conversation: Option<Conversation>,
}

impl Http {
    /// GetModeData.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`] where it is not configured.
    pub fn mode(&self) -> Result<Config, Refusal> {
        self.config.ok_or(Refusal::NotStarted)
    }

    /// Configure. `None` resets it, and aborts its tokens. `ours` are the station's addresses.
    ///
    /// # Errors
    /// [`Refusal::AlreadyStarted`], [`Refusal::Unsupported`] for the version, [`Refusal::InvalidParameter`] for an address that is not ours.
    pub fn configure(
        &mut self,
        config: Option<Config>,
        ours: &[IpAddr],
        exchanges: &mut dyn Exchanges,
    ) -> Result<Vec<Answer>, Refusal> {
        let Some(config) = config else {
            self.config = None;
            return Ok(self.abort(exchanges));
        };
        if !VERSIONS.contains(&config.version) {
            return Err(Refusal::Unsupported);
        }
        if !config.default_address && !ours.contains(&config.address) {
            return Err(Refusal::InvalidParameter);
        }
        if self.config.is_some() {
            return Err(Refusal::AlreadyStarted);
        }
        self.config = Some(config);
        Ok(Vec::new())
    }

    /// Ends the exchange and all tokens.
    pub fn abort(&mut self, exchanges: &mut dyn Exchanges) -> Vec<Answer> {
        if let Some(old) = self.conversation.take() {
            exchanges.close(old.exchange);
        }
        let asking = self.asking.take().map(|token| aborted(token, None));
        let waiting = mem::take(&mut self.waiting).into_iter();
        let waiting = waiting.map(|one| aborted(one.token, Some(Response::default())));
        asking.into_iter().chain(waiting).collect()
    }

    /// Request.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`]; [`Refusal::AccessDenied`] for a token that is in use, and while tokens wait for what was asked for before;
    /// [`Refusal::Unsupported`] for the method or the scheme; [`Refusal::InvalidParameter`]; [`Refusal::OutOfResources`].
    pub fn request(
        &mut self,
        token: Token,
        asked: &Asked<'_>,
        exchanges: &mut dyn Exchanges,
    ) -> Result<(), Refusal> {
        let config = self.config.ok_or(Refusal::NotStarted)?;
        if self.asking.is_some() || !self.waiting.is_empty() {
            return Err(Refusal::AccessDenied);
        }
        let request = asked.request(config.version == 0)?;
        // The response to the one before, as far as nobody has wanted it.
        if let Some(old) = self.conversation.take() {
            exchanges.close(old.exchange);
        }
        let exchange = exchanges.open(request).ok_or(Refusal::OutOfResources)?;
        self.conversation = Some(Conversation {
            exchange,
            status: None,
            fields: None,
            came: None,
            end: None,
            told: false,
        });
        self.asking = Some(token);
        Ok(())
    }

    /// Response. `wants_head`: there is room for the status code; `body`: a buffer, if it is not empty.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`]; [`Refusal::AccessDenied`] for a token that is in use, where nothing was asked for, and once a token was told
    /// why no more comes; [`Refusal::InvalidParameter`] for a body before the head; [`Refusal::OutOfResources`] when too many wait.
    pub fn response(
        &mut self,
        token: Token,
        wants_head: bool,
        body: Option<Memory>,
    ) -> Result<(), Refusal> {
        self.config.ok_or(Refusal::NotStarted)?;
        let mut waiting = self.waiting.iter();
        if self.asking == Some(token) || waiting.any(|one| one.token == token) {
            return Err(Refusal::AccessDenied);
        }
        // Loaders of ESXi and GRUB look at no token's status: only a refusal ends their loops.
        let conversation = self.conversation.as_ref().filter(|one| !one.told);
        let conversation = conversation.ok_or(Refusal::AccessDenied)?;
        let begun = conversation.status.is_some() && conversation.fields.is_none();
        if !wants_head && !begun && self.waiting.is_empty() {
            return Err(Refusal::InvalidParameter);
        }
        if self.waiting.len() >= MOST_WAITING {
            return Err(Refusal::OutOfResources);
        }
        self.waiting.push_back(Waiting {
            token,
            wants_head,
            body,
            given: None,
        });
        Ok(())
    }

    /// Cancel: of one token, or of all.
    ///
    /// # Errors
    /// [`Refusal::NotStarted`]; [`Refusal::NotFound`] for a token that is not in use.
    pub fn cancel(
        &mut self,
        token: Option<Token>,
        exchanges: &mut dyn Exchanges,
    ) -> Result<Vec<Answer>, Refusal> {
        self.config.ok_or(Refusal::NotStarted)?;
        let Some(token) = token else {
            return Ok(self.abort(exchanges));
        };
        let index = self.waiting.iter().position(|one| one.token == token);
        match index.and_then(|index| self.waiting.remove(index)) {
            // What comes for it would be lost, so nobody gets the rest either.
            Some(Waiting { given: Some(_), .. }) => {
                let mut answers = self.abort(exchanges);
                answers.insert(0, aborted(token, Some(Response::default())));
                Ok(answers)
            }
            Some(_) => Ok(alloc::vec![aborted(token, Some(Response::default()))]),
            None if self.asking == Some(token) => Ok(self.abort(exchanges)),
            None => Err(Refusal::NotFound),
        }
    }

    /// Whether callers have given tokens, for requests or responses, that are not answered.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.asking.is_some() || !self.waiting.is_empty()
    }

    /// Whether what comes next is so much that a tick of the firmware's, 10 ms, means nothing to it.
    #[must_use]
    pub fn waits_for_much(&self) -> bool {
        let first = self.waiting.front().and_then(|first| first.given);
        first.is_some_and(|bytes| bytes >= MUCH)
    }

    /// Takes what has come. Returns the tokens that it answers.
    pub fn advance(&mut self, exchanges: &mut dyn Exchanges) -> Vec<Answer> {
        let mut answers = Vec::new();
        let Some(conversation) = &mut self.conversation else {
            return answers;
        };
        loop {
            // A piece of the body is the first waiter's, so that is answered before more is taken.
            while conversation.came.is_none()
                && let Some(news) = exchanges.news(conversation.exchange)
            {
                conversation.take(news);
            }
            let Some(verdict) = conversation.begun() else {
                return answers;
            };
            if let Some(token) = self.asking.take() {
                answers.push(Answer {
                    token,
                    verdict,
                    response: None,
                });
            }
            let Some(first) = self.waiting.front_mut() else {
                return answers;
            };
            if verdict == Verdict::Success && conversation.goes_on() {
                if let Some(memory) = first.body.take() {
                    first.given = Some(memory.len());
                    exchanges.give(conversation.exchange, memory);
                    // It may be there at once.
                    continue;
                }
                if first.given.is_some() {
                    return answers;
                }
            }
            let answer = conversation.answer(first, verdict);
            answers.push(answer);
            self.waiting.pop_front();
        }
    }
}

fn aborted(token: Token, response: Option<Response>) -> Answer {
    Answer {
        token,
        verdict: Verdict::Aborted,
        response,
    }
}

impl Conversation {
    fn take(&mut self, news: News) {
        match news {
            News::Head(head) => {
                self.status = Some(head.status);
                self.fields = Some(head.fields);
            }
            News::Body(len) => self.came = Some(len),
            News::Ended(end) => self.end = Some(end),
        }
    }

    /// How the request has ended: well when a head is there.
    fn begun(&self) -> Option<Verdict> {
        match (self.status, self.end) {
            (Some(_), _) => Some(Verdict::Success),
            (None, end) => end.map(|end| end.err().unwrap_or(Verdict::DeviceError)),
        }
    }

    /// Whether the next of the body is still to come.
    fn goes_on(&self) -> bool {
        self.came.is_none() && self.end.is_none()
    }

    /// The answer to who waits longest, once what it wants is there or will never be.
    fn answer(&mut self, first: &Waiting, begun: Verdict) -> Answer {
        let wants_body = first.given.is_some() || first.body.is_some();
        let verdict = match (begun, self.came, self.end) {
            (Verdict::Success, None, Some(Err(verdict))) if wants_body => verdict,
            (Verdict::Success, ..) if self.fields.is_some() && self.status >= Some(300) => {
                Verdict::HttpError
            }
            (begun, ..) => begun,
        };
        self.told |= !matches!(verdict, Verdict::Success | Verdict::HttpError);
        Answer {
            token: first.token,
            verdict,
            response: Some(Response {
                status: self.status,
                fields: self.fields.take().filter(|_| first.wants_head),
                len: self.came.take().unwrap_or(0),
            }),
        }
    }
}
