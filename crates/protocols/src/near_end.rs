//! The near end: TFTP reads of a loader's own network stack are finished in the machine.
//!
//! Such a loader asks for a block, waits for it, and asks for the next: a round trip each. Here the engine gets the file with its own blocks
//! and windows, and the loader is served from memory, without a frame on the wire:
//!
//! ```text
//! loader ──read request──> NearEnd ──URL──> Files (the engine) <──blocks, windows──> server
//!        <──its own blocks──        <──bytes of the file, as they come──
//! ```
//!
//! To the loader this is its server: from its address, by the options that a server may grant or leave out, with the server's own error
//! where it sends one, behind the blocks that came before it, and silent where it is. A file may be larger than the memory for it, of which
//! parts that the loader has acknowledged are used again. What cannot be done exactly goes to the wire untouched: writes, other modes than octet,
//! reads from another address than the engine's or of a server that it has no way to, files for which there is no memory at all, everything
//! else.

mod datagram;
pub mod download;
mod frames;
mod segment;
pub mod tcp;
mod tftp_server;

use crate::base_code::packet;
use crate::link::Link;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use datagram::Datagram;
use frames::Frames;
use tftp_server::{Outcome, Session};
use wireboot_fetch::url::Url;
use wireboot_net::{Instant, Random};
use wireboot_wire::tftp;

/// Transfers at the same time; what is asked for beyond goes to the wire.
const SESSIONS: usize = 8;

/// Where the files come from.
pub trait Files {
    /// A download that was begun.
    type File;

    /// Time on the clock of the engine that downloads.
    fn now(&self) -> Instant;
    /// Begins to download `url`, for who has the address `client`; `None` where it cannot, or not from there.
    fn open(&mut self, client: IpAddr, url: &Url) -> Option<Self::File>;
    /// How far it is.
    fn progress(&mut self, file: &Self::File) -> Progress;
    /// Copies bytes of the file from `at` on, as many as have come without a gap and fit, and returns how many.
    fn read(&self, file: &Self::File, at: u64, to: &mut [u8]) -> usize;
    /// The bytes before `at` are of no more use.
    fn release(&mut self, file: &Self::File, at: u64);
    /// Ends it, if it is not over.
    fn close(&mut self, file: Self::File);
}

/// How far a download is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The file's size in bytes as the server has announced it; it need not be true.
    pub announced: Option<u64>,
    /// Bytes that have come without a gap, those that were released included.
    pub ready: u64,
    /// What has become of the rest.
    pub state: DownloadState,
}

/// What has become of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownloadState {
    /// The server has not answered yet.
    Asked,
    /// Bytes have come, and more are to.
    Coming,
    /// All bytes have come.
    Whole,
    /// The server sent an error.
    Refused {
        /// Its number (RFC 1350, section 5).
        code: u16,
        /// What the server says of it, unchecked.
        text: String,
    },
    /// The server says nothing, or no more.
    Silent,
    /// The loader has to read it by its own means: there is no memory for it, no way to the server, or that says what cannot be.
    ForTheWire,
}

/// A link on which TFTP reads end in the machine.
pub struct NearEnd<L, F: Files> {
    link: L,
    files: F,
    sessions: Vec<Session<F::File>>,
    /// Requests that went to the wire after they had been looked into, with who sent them: their repetitions go there too.
    passed: VecDeque<(SocketAddr, Vec<u8>)>,
    /// That wait for the loader.
    frames: Frames,
    random: Random,
    /// Longest frame that the loader takes, in bytes.
    longest: usize,
}

impl<L: Link, F: Files> NearEnd<L, F> {
    /// On `link`, whose frames have at most `longest` bytes. `seed`: for ports; unpredictable.
    pub fn new(link: L, files: F, longest: usize, seed: [u8; 32]) -> Self {
        Self {
            link,
            files,
            sessions: Vec::new(),
            passed: VecDeque::new(),
            frames: Frames::default(),
            random: Random::new(seed),
            longest,
        }
    }

    /// Takes a datagram of the loader's that is for a transfer of ours, or begins one. False when it is for the wire.
    fn take(&mut self, frame: (&[u8; 14], &[u8]), datagram: &Datagram<'_>, now: Instant) -> bool {
        let Ok(packet) = tftp::Packet::parse(datagram.payload) else {
            return false;
        };
        if let tftp::Packet::Rrq(request) = packet
            && datagram.destination.port() == tftp::PORT
        {
            return self.begin(frame, datagram, &request, now);
        }
        let (client, server) = (datagram.source, datagram.destination);
        let mut sessions = self.sessions.iter_mut();
        let Some(session) = sessions.find(|one| one.client == client && one.server == server)
        else {
            return false;
        };
        session.hear(&packet, now, self.frames.is_empty());
        true
    }

    fn begin(
        &mut self,
        frame: (&[u8; 14], &[u8]),
        datagram: &Datagram<'_>,
        request: &tftp::Request<'_>,
        now: Instant,
    ) -> bool {
        let client = datagram.source;
        let server = datagram.destination.ip();
        let known = |one: &Session<F::File>| one.client == client && one.server.ip() == server;
        if let Some(index) = self.sessions.iter().position(known) {
            // The same port anew: a repetition while nothing has been answered, else another transfer.
            if self
                .sessions
                .get(index)
                .is_some_and(|one| one.asks(datagram.payload))
            {
                return true;
            }
            let old = self.sessions.swap_remove(index);
            self.files.close(old.file);
        }
        let mut passed = self.passed.iter();
        let is_passed = passed.any(|(of, bytes)| *of == client && bytes == datagram.payload);
        let octet = request.mode.eq_ignore_ascii_case("octet");
        // What looks like a URL is a name to this server, which alone can tell what it means.
        let may_be_url = request.filename.as_bytes().contains(&b':');
        if is_passed || !octet || may_be_url || self.sessions.len() >= SESSIONS {
            return false;
        }
        let Ok(url) = Url::from_boot_file(server, request.filename) else {
            return false;
        };
        let Some(file) = self.files.open(client.ip(), &url) else {
            return false;
        };
        // Those that nobody has registered (RFC 6335, section 6). Nobody else shall know it.
        let port = 0xc000 | self.random.next_u16();
        let room = self
            .longest
            .saturating_sub(datagram::headers(server) + tftp::DATA_HEADER_LEN);
        self.sessions.push(Session::new(
            client,
            SocketAddr::new(server, port),
            frame,
            datagram.payload,
            request,
            file,
            room,
            now,
        ));
        true
    }

    /// Lets the transfers get on.
    fn turn(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(session) = self.sessions.get_mut(index) {
            match session.turn(&mut self.files, now, &mut self.frames) {
                Outcome::GoesOn => {
                    index += 1;
                    continue;
                }
                Outcome::Over => {}
                // As if nothing had happened.
                Outcome::ForTheWire => {
                    let (header, payload) = session.request_frame();
                    self.link.send(header, payload);
                    self.passed.truncate(SESSIONS - 1);
                    let request = (session.client, session.request().into());
                    self.passed.push_front(request);
                }
            }
            let session = self.sessions.swap_remove(index);
            self.files.close(session.file);
        }
    }

    fn end_all(&mut self) {
        for session in self.sessions.drain(..) {
            self.files.close(session.file);
        }
        self.passed.clear();
        self.frames.clear();
    }
}

/// Whether `frame` is for the loader's end of one of `sessions`, from the address of the server.
fn is_ours<F>(sessions: &[Session<F>], frame: &[u8]) -> bool {
    let Some((&[.., k0, k1], packet)) = frame.split_first_chunk::<14>() else {
        return false;
    };
    let Some(ip) = packet::parse([k0, k1], packet) else {
        return false;
    };
    packet::ports(&ip).is_some_and(|(_, port)| {
        let client = SocketAddr::new(ip.destination, port);
        let mut sessions = sessions.iter();
        sessions.any(|one| one.client == client && one.server.ip() == ip.source)
    })
}

impl<L: Link, F: Files> Link for NearEnd<L, F> {
    fn set_up(&mut self, up: bool) {
        self.end_all();
        self.link.set_up(up);
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        if let Some(datagram) = datagram::parse(header, payload) {
            let now = self.files.now();
            if self.take((header, payload), &datagram, now) {
                self.turn(now);
                return true;
            }
        }
        self.link.send(header, payload)
    }

    fn peek(&mut self) -> Option<&[u8]> {
        if self.frames.is_empty() && !self.sessions.is_empty() {
            self.turn(self.files.now());
        }
        if self.frames.is_empty() {
            // The server itself has no part in these reads.
            let sessions = &self.sessions;
            while !sessions.is_empty()
                && self
                    .link
                    .peek()
                    .is_some_and(|frame| is_ours(sessions, frame))
            {
                self.link.skip();
            }
            return self.link.peek();
        }
        self.frames.front()
    }

    fn skip(&mut self) {
        if !self.frames.skip() {
            self.link.skip();
        }
    }
}

#[cfg(test)]
mod clients;
#[cfg(test)]
mod tests;
