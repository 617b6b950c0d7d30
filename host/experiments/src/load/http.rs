//! HTTP clients, a thread each, which read one file and keep nothing of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::client::Wanted;
use super::crowd::ClientOutcome;
use wireboot_lab::network::{SERVER, Station};

const PORT: u16 = 80;
/// Most that is taken from a connection at a time, in bytes.
const PIECE: usize = 256 * 1024;
/// Longest head of an answer, in bytes, and most fields in it.
const LONGEST_HEAD: usize = 8 * 1024;
const FIELDS: usize = 32;

/// Lets `count` clients at the station begin together and read until all are done or `limit` has passed. `progress` counts the bytes.
///
/// # Errors
/// When threads cannot be had. What goes wrong for a client is in its outcome.
pub(super) fn run(
    station: &Station,
    wanted: &Wanted,
    count: usize,
    limit: Duration,
    progress: &AtomicU64,
) -> Result<Vec<ClientOutcome>> {
    let began = Instant::now();
    let client = || -> Result<ClientOutcome> {
        station.enter()?;
        let seconds = Client::begin(wanted, began + limit)
            .and_then(|mut client| client.read(progress))
            .map(|()| began.elapsed().as_secs_f64());
        Ok(ClientOutcome {
            seconds,
            doubled: 0,
            gaps: 0,
            timeouts: 0,
        })
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..count).map(|_| scope.spawn(client)).collect();
        let panicked = |_| Err(anyhow!("a client's thread panicked"));
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    })
}

struct Client<'a> {
    connection: TcpStream,
    content: &'a [u8],
    deadline: Instant,
}

impl<'a> Client<'a> {
    /// Asks for the file.
    fn begin(wanted: &'a Wanted, deadline: Instant) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("no connection: {error}");
        let address = SocketAddr::from((SERVER, PORT));
        let left = left(deadline)?;
        let mut connection = TcpStream::connect_timeout(&address, left).map_err(told)?;
        let request = format!(
            "GET /{} HTTP/1.1\r\nHost: {SERVER}\r\nConnection: close\r\n\r\n",
            wanted.file
        );
        connection.write_all(request.as_bytes()).map_err(told)?;
        Ok(Client {
            connection,
            content: &wanted.content,
            deadline,
        })
    }

    /// Reads all of it, and compares it with the file as it should be.
    fn read(&mut self, progress: &AtomicU64) -> Result<(), String> {
        let mut piece = vec![0; PIECE];
        let mut filled = 0;
        let head = loop {
            filled += self.some(piece.get_mut(filled..LONGEST_HEAD).unwrap_or_default())?;
            if let Some(head) = head(piece.get(..filled).unwrap_or_default(), self.content.len())? {
                break head;
            }
        };
        let mut done = self.compare(0, piece.get(head..filled).unwrap_or_default())?;
        while done < self.content.len() {
            let came = self.some(&mut piece)?;
            done = self.compare(done, piece.get(..came).unwrap_or_default())?;
            progress.fetch_add(came as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// At least one byte.
    fn some(&mut self, room: &mut [u8]) -> Result<usize, String> {
        let wait = Some(left(self.deadline)?);
        self.connection
            .set_read_timeout(wait)
            .map_err(|error| error.to_string())?;
        match self.connection.read(room) {
            Ok(0) => Err("the server ended the connection too soon".into()),
            Ok(came) => Ok(came),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(LATE.into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Compares bytes from `offset` on. Returns where they end.
    fn compare(&self, offset: usize, bytes: &[u8]) -> Result<usize, String> {
        let end = offset + bytes.len();
        if self.content.get(offset..end) == Some(bytes) {
            Ok(end)
        } else {
            Err(format!("wrong content behind byte {offset}"))
        }
    }
}

const LATE: &str = "not finished in time";

fn left(deadline: Instant) -> Result<Duration, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left).ok_or(LATE.to_owned())
}

/// The length of the answer's head, once all of it is there: that of an answer with `length` bytes of content.
fn head(bytes: &[u8], length: usize) -> Result<Option<usize>, String> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(bytes).map_err(|error| error.to_string())?;
    let httparse::Status::Complete(head) = parsed else {
        return match bytes.len() {
            LONGEST_HEAD.. => Err("the head of the answer does not end".into()),
            _ => Ok(None),
        };
    };
    if response.code != Some(200) {
        return Err(format!("the server says: {:?}", response.code));
    }
    let told = response
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("Content-Length"));
    if told.map(|field| field.value) != Some(length.to_string().as_bytes()) {
        return Err("the answer has another length than the file".into());
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_and_tell_the_length() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(head(answer, 5), Ok(Some(answer.len() - 5)));
        assert_eq!(head(&answer[..30], 5), Ok(None));
        assert!(head(answer, 6).is_err());
        assert!(head(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n", 5).is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n", 5).is_err());
        assert!(head(&[b'a'; LONGEST_HEAD], 5).is_err());
    }
}
