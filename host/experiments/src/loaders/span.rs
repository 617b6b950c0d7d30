//! From packets to a time: from when a loader asks for its file until it has all of it.
//!
//! What comes over wireboot's network may be acknowledged to the server before the loader has it. So the end is what the loader itself does
//! next: it asks for another file, or tells on the console. Where the file goes straight to its memory, the last acknowledgement will do.

use crate::bench::evaluate::{Packet, Watch, is_called};

/// What a [`Span`] begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanBegin {
    /// The request for the file.
    Asked,
    /// The machine's first request by TFTP, its boot program's.
    PowerOn,
}

/// What a [`Span`] ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanEnd {
    /// The last byte is acknowledged.
    Acknowledged,
    /// The loader asks for a file of this name.
    Next(&'static str),
    /// The console shows that it has it.
    Console,
}

/// A time that is being taken.
#[derive(Debug)]
pub(super) struct Span {
    begin: SpanBegin,
    end: SpanEnd,
    watch: Watch,
    first_request: Option<f64>,
    next_request: Option<f64>,
}

impl Span {
    /// For the file of this name and so many bytes.
    pub(super) fn new(file: &str, bytes: u64, begin: SpanBegin, end: SpanEnd) -> Self {
        Self {
            begin,
            end,
            watch: Watch::new(file, bytes),
            first_request: None,
            next_request: None,
        }
    }

    /// Takes note of a packet.
    pub(super) fn packet(&mut self, time: f64, packet: &Packet) {
        let request = match packet {
            Packet::ReadRequest { file, .. } => Some(file),
            Packet::FromClient { get: Some(get), .. } => Some(&get.target),
            _ => None,
        };
        if let Some(file) = request {
            self.first_request.get_or_insert(time);
            let is_next = matches!(self.end, SpanEnd::Next(next) if is_called(file, next));
            if is_next && self.watch.started().is_some() {
                self.next_request.get_or_insert(time);
            }
        }
        self.watch.packet(time, packet);
    }

    /// How the file itself came.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// When the request came with which it begins, if that was seen.
    pub(super) fn began(&self) -> Option<f64> {
        match self.begin {
            SpanBegin::Asked => self.watch.started(),
            SpanBegin::PowerOn => self.first_request,
        }
    }

    /// When it ended, if a packet tells.
    pub(super) fn ended(&self) -> Option<f64> {
        match self.end {
            SpanEnd::Acknowledged => self.watch.transfer().map(|transfer| transfer.end),
            SpanEnd::Next(_) => self.next_request,
            SpanEnd::Console => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::evaluate::Get;

    fn tftp(port: u16, file: &str) -> Packet {
        let file = file.to_owned();
        Packet::ReadRequest { port, file }
    }

    fn http(port: u16, file: &str) -> Packet {
        let get = Get {
            target: file.to_owned(),
            range: None,
        };
        Packet::FromClient {
            port,
            sequence: 1,
            acknowledged: 1,
            get: Some(get),
        }
    }

    /// A file of three blocks of 512 bytes and an empty one, from the second 2 to 6; then the next file.
    fn watched(begin: SpanBegin, end: SpanEnd) -> Span {
        let mut span = Span::new("file", 3 * 512, begin, end);
        let packets = [
            tftp(1, "boot/program"),
            tftp(2, "a/file"),
            Packet::Ack { port: 2, block: 1 },
            Packet::Ack { port: 2, block: 2 },
            Packet::Ack { port: 2, block: 3 },
            Packet::Ack { port: 2, block: 4 },
        ];
        for (packet, second) in packets.iter().zip(1..) {
            span.packet(f64::from(second), packet);
        }
        span
    }

    #[test]
    fn a_file_in_memory_has_come_with_its_last_acknowledgement() {
        let span = watched(SpanBegin::Asked, SpanEnd::Acknowledged);
        assert_eq!((span.began(), span.ended()), (Some(2.0), Some(6.0)));
    }

    #[test]
    fn a_loader_with_a_stack_has_a_file_when_it_asks_for_the_next() {
        for next in [tftp(3, "/end"), http(4, "/end")] {
            let mut span = watched(SpanBegin::PowerOn, SpanEnd::Next("end"));
            assert_eq!((span.began(), span.ended()), (Some(1.0), None));
            span.packet(7.5, &tftp(3, "another"));
            span.packet(8.0, &next);
            span.packet(9.0, &next);
            assert_eq!(span.ended(), Some(8.0));
        }
    }

    #[test]
    fn the_next_file_tells_nothing_before_the_first() {
        let mut span = Span::new("file", 9, SpanBegin::Asked, SpanEnd::Next("end"));
        span.packet(1.0, &tftp(3, "end"));
        span.packet(2.0, &http(4, "http://10.77.0.1/file"));
        assert_eq!((span.began(), span.ended()), (Some(2.0), None));
        span.packet(3.0, &http(5, "/end"));
        assert_eq!(span.ended(), Some(3.0));
    }

    #[test]
    fn the_console_is_no_packet() {
        let mut span = watched(SpanBegin::Asked, SpanEnd::Console);
        span.packet(8.0, &tftp(3, "end"));
        assert_eq!(span.ended(), None);
        assert!(span.watch().transfer().is_some());
    }
}
