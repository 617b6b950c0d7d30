//! What is counted in a text before it is read, so that a stranger's takes little more memory than it has bytes.

use alloc::string::{String, ToString};

use crate::{LONGEST, ReadError};

/// Objects and lists that a report has at most. Each takes far more memory than the two bytes of an empty one, a dry boot more than 500. In
/// all, they take a few times as much as the longest text.
pub(crate) const MOST_PARTS: usize = 1 << 16;

/// Commas that it has at most: a list of empty strings takes eight times the memory of its text.
pub(crate) const MOST_COMMAS: usize = 1 << 20;

/// The longest string in it, in bytes of JSON. Errors quote a string that stands where a number belongs, with up to six bytes for each of its.
pub(crate) const LONGEST_STRING: usize = 64 << 10;

/// Characters that are shown of why a text is no report.
const SHOWN: usize = 160;

/// # Errors
/// When the text is longer than [`LONGEST`], or has more of something than a report.
pub(crate) fn check(text: &str) -> Result<(), ReadError> {
    if text.len() > LONGEST {
        return Err(ReadError::TooLong);
    }
    let (mut parts, mut commas) = (0, 0);
    // Bytes of the string that the text is in.
    let mut string: Option<usize> = None;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (&mut string, byte) {
            (None, b'"') => string = Some(0),
            (Some(_), b'"') => string = None,
            (None, b'{' | b'[') => parts += 1,
            (None, b',') => commas += 1,
            (None, _) => {}
            (Some(length), _) => {
                *length += 1;
                // What follows a backslash ends no string.
                if byte == b'\\' && bytes.next().is_some() {
                    *length += 1;
                }
                if *length > LONGEST_STRING {
                    return Err(ReadError::LongString);
                }
            }
        }
        if parts > MOST_PARTS || commas > MOST_COMMAS {
            return Err(ReadError::TooManyParts);
        }
    }
    Ok(())
}

/// What the parser says, and where, on a short line: it quotes what it did not expect, whatever its length.
pub(crate) fn shown(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let said = error.to_string();
    let place = alloc::format!(" at line {line} column {column}");
    let said = said.strip_suffix(&place).unwrap_or(&said);
    let end = said.char_indices().nth(SHOWN).map(|(end, _)| end);
    match end.and_then(|end| said.get(..end)) {
        Some(begin) => alloc::format!("{begin}...{place}"),
        None => alloc::format!("{said}{place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{
        BootServer, Dhcp, Dhcpv6, Dhcpv6Answer, NameQuery, Network, Offer, Router, Transfer,
    };
    use crate::throughput::{Interval, Stream};
    use crate::{
        Attempt, Cost, DryBoot, Finding, Module, NotMeasured, Phase, ProfiledImage, Receiver,
        Report, RoundTrip, Server, Throughput,
    };
    use crate::{ladder, memory, servers, sweep, trace};
    use std::vec;

    fn error(text: &str) -> String {
        Report::from_json(text).unwrap_err().to_string()
    }

    #[test]
    fn objects_lists_and_commas_are_counted_and_those_in_strings_are_not() {
        let many =
            |count| std::format!(r#"{{"schema":1,"timeline":[{}{{}}]}}"#, "{},".repeat(count));
        assert!(Report::from_json(&many(MOST_PARTS - 3)).is_ok());
        assert!(error(&many(MOST_PARTS - 2)).contains("65,536"));
        let strings = |count| {
            let some = "\"\",".repeat(count);
            std::format!(r#"{{"schema":1,"checkpoints":{{"options_before":[{some}""]}}}}"#)
        };
        assert!(Report::from_json(&strings(MOST_COMMAS - 1)).is_ok());
        assert!(error(&strings(MOST_COMMAS)).contains("1,048,576"));
        let word = "\"[{,\\\"[{,\",".repeat(MOST_COMMAS / 2);
        let words = std::format!(r#"{{"schema":1,"new":[{word}""]}}"#);
        assert!(Report::from_json(&words).is_ok());
    }

    #[test]
    fn a_string_has_an_end() {
        let version = |text: &str| std::format!(r#"{{"schema":1,"version":"{text}"}}"#);
        for (unit, length) in [("x", 1), ("\\\"", 2), ("\\\\", 2), ("\u{7f}", 1)] {
            let most = LONGEST_STRING / length;
            assert!(Report::from_json(&version(&unit.repeat(most))).is_ok());
            assert!(error(&version(&unit.repeat(most + 1))).contains("64 KiB"));
        }
        // One that does not end is no JSON.
        for open in ["{\"schema", "{\"schema\\", "\"\\\""] {
            assert!(error(open).starts_with("not a report"));
        }
    }

    #[test]
    fn an_error_is_a_short_line_however_long_what_it_quotes() {
        for unit in ["\u{7f}", "\\n", "ü", "\u{202e}"] {
            let long = unit.repeat(LONGEST_STRING / unit.len());
            let said = error(&std::format!(r#"{{"schema":"{long}"}}"#));
            assert!(said.starts_with("not a report: invalid type: string"));
            assert!(said.chars().count() <= 220, "{}", said.len());
            assert!(!said.contains('\n'));
            assert!(said.contains(" at line 1 column "), "{said}");
        }
        assert_eq!(
            error(r#"{"schema":"x"}"#),
            "not a report: invalid type: string \"x\", expected u32 at line 1 column 13"
        );
    }

    #[test]
    fn whatever_the_parts_are_they_take_three_times_the_longest_texts_memory_at_most() {
        let elements = [
            size_of::<Attempt>(),
            size_of::<BootServer>(),
            size_of::<Cost>(),
            size_of::<Dhcp>(),
            size_of::<Dhcpv6>(),
            size_of::<Dhcpv6Answer>(),
            size_of::<DryBoot>(),
            size_of::<Finding>(),
            size_of::<Interval>(),
            size_of::<Module>(),
            size_of::<NameQuery>(),
            size_of::<NotMeasured>(),
            size_of::<Offer>(),
            size_of::<Phase>(),
            size_of::<ProfiledImage>(),
            size_of::<Receiver>(),
            size_of::<RoundTrip>(),
            size_of::<Router>(),
            size_of::<Server>(),
            size_of::<Stream>(),
            size_of::<Throughput>(),
            size_of::<Transfer>(),
            size_of::<ladder::Rung>(),
            size_of::<memory::Rate>(),
            size_of::<memory::Receive>(),
            size_of::<memory::Region>(),
            size_of::<servers::Echoes>(),
            size_of::<sweep::Cell>(),
            size_of::<trace::Called>(),
        ];
        for bytes in elements {
            assert!(bytes * MOST_PARTS <= 3 * LONGEST, "{bytes}");
        }
    }

    #[test]
    fn as_many_files_as_a_capture_can_have_are_read() {
        let transfer = Transfer {
            answer_s: Some(0.5),
            message: Some("File not found".into()),
            asked: "tsize=0,blksize=1468,windowsize=4".into(),
            shortest_server_wait_s: Some(0.5),
            shortest_client_wait_s: Some(0.5),
            ..Transfer::default()
        };
        // As many as the observer keeps, and a phase for each.
        let files = 1 << 13;
        let report = Report {
            timeline: vec![Phase::default(); files],
            network: Network {
                transfers: vec![transfer; files],
                ..Network::default()
            },
            ..Report::new()
        };
        assert_eq!(Report::from_json(&report.to_json_line()).unwrap(), report);
    }
}
