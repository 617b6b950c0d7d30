//! Is a file the one that was meant? SHA-256 (FIPS 180-4) of what was received.

use core::fmt;

use sha2::{Digest, Sha256};

/// A SHA-256 digest; displays as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sha256Digest(pub [u8; 32]);

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The file is not the one that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "wrong sha256: expected {expected}, received {received}; the file on the server changed or was damaged, \
     or the configuration names the digest of another file"
)]
pub struct WrongDigest {
    /// What the configuration says.
    pub expected: Sha256Digest,
    /// What the data has.
    pub received: Sha256Digest,
}

/// The check of a file, which may go on while the file comes.
pub struct Check {
    expected: Sha256Digest,
    hasher: Sha256,
    position: usize,
}

impl Check {
    /// Of a file with this SHA-256 digest.
    #[must_use]
    pub fn new(expected: [u8; 32]) -> Self {
        Self {
            expected: Sha256Digest(expected),
            hasher: Sha256::new(),
            position: 0,
        }
    }

    /// The file comes from its start again.
    pub fn restart(&mut self) {
        self.hasher.reset();
        self.position = 0;
    }

    /// Bytes that it has gone through.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Goes on by at most `most` of the bytes that are there behind its position. False when there are none.
    pub fn follow(&mut self, next: &[u8], most: usize) -> bool {
        let next = next.get(..most).unwrap_or(next);
        self.hasher.update(next);
        self.position += next.len();
        !next.is_empty()
    }

    /// The verdict on what it has gone through.
    ///
    /// # Errors
    /// [`WrongDigest`] holds both digests.
    pub fn finish(self) -> Result<(), WrongDigest> {
        let expected = self.expected;
        let received = Sha256Digest(self.hasher.finalize().into());
        if received == expected {
            Ok(())
        } else {
            Err(WrongDigest { expected, received })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// FIPS 180-4's example for "abc".
    const ABC: [u8; 32] = [
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22,
        0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00,
        0x15, 0xad,
    ];

    #[test]
    fn right_and_wrong() {
        let mut check = Check::new(ABC);
        // Something else came first, and was given up.
        assert!(check.follow(b"xyz", 3));
        check.restart();
        assert!(check.follow(b"ab", 1));
        assert_eq!(check.position(), 1);
        assert!(check.follow(b"b", 8));
        assert!(!check.follow(b"", 8));
        assert!(check.follow(b"c", 8));
        assert_eq!(check.finish(), Ok(()));
        let text = Check::new(ABC).finish().unwrap_err().to_string();
        assert!(text.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
        assert!(text.contains("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    }
}
