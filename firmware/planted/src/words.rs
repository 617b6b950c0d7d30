//! Words of load options, without a heap.

/// Characters that are read.
const LONGEST: usize = 256;

/// Load options as text.
pub(crate) struct Words {
    text: [u8; LONGEST],
    length: usize,
}

impl Words {
    /// Of UCS-2 up to a zero. What is not ASCII becomes a question mark.
    pub(crate) fn of(options: &[u8]) -> Self {
        let mut words = Self {
            text: [0; LONGEST],
            length: 0,
        };
        let units = options
            .chunks_exact(2)
            .filter_map(|pair| Some(u16::from_le_bytes(*pair.first_chunk()?)));
        let letters = units.take_while(|unit| *unit != 0);
        for (to, unit) in words.text.iter_mut().zip(letters) {
            let letter = u8::try_from(unit).ok().filter(u8::is_ascii);
            *to = letter.unwrap_or(b'?');
            words.length += 1;
        }
        words
    }

    /// Whether `wanted` is one of them.
    pub(crate) fn has(&self, wanted: &str) -> bool {
        let text = self.text.get(..self.length).unwrap_or_default();
        text.split(|letter| *letter == b' ')
            .any(|word| word == wanted.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        let units = text.encode_utf16().chain([0, u16::from(b'x')]);
        Words::of(&units.flat_map(u16::to_le_bytes).collect::<Vec<_>>())
    }

    #[test]
    fn a_word_is_found_whole() {
        let two = words("slow-time receivers");
        assert!(two.has("slow-time") && two.has("receivers"));
        for other in ["slow", "time", "x", "debug-build"] {
            assert!(!two.has(other), "{other}");
        }
        assert!(words("größe receivers").has("receivers"));
    }

    #[test]
    fn any_bytes_are_read() {
        assert!(!Words::of(&[]).has("x"));
        assert!(!Words::of(&[7]).has("x"));
        let long = words(&"y".repeat(2 * LONGEST));
        assert!(long.has(&"y".repeat(LONGEST)));
    }
}
