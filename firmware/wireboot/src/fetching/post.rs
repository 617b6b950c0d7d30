//! Sending something to a server, by HTTP.

use super::Fetcher;
use crate::error::Error;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use wireboot_fetch::http::{HttpError, Request};
use wireboot_fetch::url::Url;
use wireboot_fetch::{Command, Event, Exchanged, FetchError};
use wireboot_platform::loader_times;

/// How long a server may take for the report of a boot, in microseconds: a machine that boots waits for nobody's statistics.
const LONGEST: u64 = 2_000_000;

impl Fetcher {
    /// Sends what the boot took so far.
    ///
    /// # Errors
    /// When the server does not take it in time; the boot may go on all the same.
    pub(crate) fn post_account(&mut self, url: &Url) -> Result<(), Error> {
        let clock = self.network.clock;
        let text = self
            .account
            .json(loader_times::since_reset(&clock), clock.micros());
        let reason = match self.post(url, "application/json", text.as_bytes(), LONGEST) {
            Ok(Some(200..300)) => return Ok(()),
            Ok(Some(status)) => format!("the server says {status}"),
            Ok(None) => "no answer within 2 s".to_string(),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => error.to_string(),
        };
        Err(Error::Report {
            url: url.to_string(),
            reason,
        })
    }

    /// Sends `body` to `url` by POST, once. Returns the status code of the answer, of which nothing else is looked at; `None` where none came
    /// within `longest` microseconds.
    ///
    /// # Errors
    /// When the server is not reached, refuses, or breaks off.
    pub fn post(
        &mut self,
        url: &Url,
        media_type: &str,
        body: &[u8],
        longest: u64,
    ) -> Result<Option<u16>, Error> {
        let wanted = self.job();
        let until = self.network.clock.micros().saturating_add(longest);
        let request = Request {
            url: url.clone(),
            method: "POST",
            bytes: request(url, media_type, body),
        };
        self.network.send(Command::Exchange {
            job: wanted,
            request: Box::new(request),
        })?;
        let mut status = None;
        let ended = self.drive(|network, event| {
            let news = match event {
                Some(Event::Exchange { job, news }) if job == wanted => news,
                None if network.clock.micros() >= until => {
                    return match network.send(Command::Cancel { job: wanted }) {
                        Ok(()) => ControlFlow::Break(Ok(None)),
                        Err(error) => ControlFlow::Break(Err(error)),
                    };
                }
                _ => return ControlFlow::Continue(false),
            };
            match news {
                Exchanged::Head(head) => {
                    status = Some(head.status);
                    // Its body is for people who read it in a browser.
                    match network.send(Command::Cancel { job: wanted }) {
                        Ok(()) => ControlFlow::Continue(true),
                        Err(error) => ControlFlow::Break(Err(error)),
                    }
                }
                Exchanged::Body { .. } => ControlFlow::Continue(true),
                Exchanged::Ended(result) => ControlFlow::Break(Ok(result)),
            }
        })??;
        match (status, ended) {
            (status, Some(Ok(())) | None) => Ok(status),
            (Some(status), _) => Ok(Some(status)),
            (None, Some(Err(problem))) => Err(FetchError::from(HttpError {
                url: url.clone(),
                server: None,
                attempts: 1,
                problem,
            })
            .into()),
        }
    }
}

/// The request as it goes to the server. The connection is for it alone.
fn request(url: &Url, media_type: &str, body: &[u8]) -> Vec<u8> {
    let (target, host, length) = (url.resource(), authority(url), body.len());
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: wireboot/{}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    );
    [head.as_bytes(), body].concat()
}

/// Host and port as the URL has them.
fn authority(url: &Url) -> &str {
    let rest = url.as_str().split_once("//").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_its_server_and_has_its_length() {
        let url = Url::parse("http://[fd00::1]:8080/a/report?x=1").unwrap();
        let bytes = request(&url, "application/json", b"{}");
        let text = core::str::from_utf8(&bytes).unwrap();
        assert!(text.starts_with("POST /a/report?x=1 HTTP/1.1\r\nHost: [fd00::1]:8080\r\n"));
        assert!(text.ends_with("\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"));
        assert_eq!(authority(&Url::parse("http://server").unwrap()), "server");
    }
}
