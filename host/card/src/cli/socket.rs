//! `--socket PATH,queues=N,mac=M,mtu=N`.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::vhost::MAX_PAIRS;

/// The MTU of a machine of which nobody says another.
pub(super) const USUAL_MTU: u16 = 1500;
/// What virtio-net and IPv4 have (virtio 1.2, section 5.1.4.1).
const MTUS: RangeInclusive<u16> = 68..=65_521;

/// Where a monitor connects, and what is known of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketArgument {
    pub(super) path: PathBuf,
    /// Pairs of queues, from 1 to `MAX_PAIRS`.
    pub(super) queues: usize,
    /// The machine's only address, if it is known.
    pub(super) mac: Option<[u8; 6]>,
    /// The longest packet of the machine's network, in bytes.
    pub(super) mtu: u16,
}

impl SocketArgument {
    /// For guests with one pair.
    pub(super) fn one_pair(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            queues: 1,
            mac: None,
            mtu: USUAL_MTU,
        }
    }

    /// The machine's address as people write it.
    pub(super) fn mac_text(&self) -> Option<String> {
        let [a, b, c, d, e, f] = self.mac?;
        Some(format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
    }

    /// Takes one of the options behind the path.
    fn take(&mut self, option: &str) -> Option<()> {
        let (name, value) = option.split_once('=')?;
        match name {
            "queues" => {
                let queues = value.parse().ok();
                self.queues = queues.filter(|queues| (1..=MAX_PAIRS).contains(queues))?;
            }
            "mac" => self.mac = Some(mac(value)?),
            "mtu" => self.mtu = value.parse().ok().filter(|mtu| MTUS.contains(mtu))?,
            _ => return None,
        }
        Some(())
    }
}

/// The address of one station.
fn mac(text: &str) -> Option<[u8; 6]> {
    let parts: Vec<_> = text.split(':').collect();
    let parts: [&str; 6] = parts.try_into().ok()?;
    let mut mac = [0; 6];
    for (byte, part) in mac.iter_mut().zip(parts) {
        let digits = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits)?;
    }
    (mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

impl fmt::Display for SocketArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        if self.queues != 1 {
            write!(f, ",queues={}", self.queues)?;
        }
        if let Some(mac) = self.mac_text() {
            write!(f, ",mac={mac}")?;
        }
        if self.mtu != USUAL_MTU {
            write!(f, ",mtu={}", self.mtu)?;
        }
        Ok(())
    }
}

impl FromStr for SocketArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let path = parts.next().unwrap_or_default();
        let mut socket = Self::one_pair(Path::new(path));
        let mut seen = Vec::new();
        for option in parts {
            let name = option.split('=').next();
            if seen.contains(&name) || socket.take(option).is_none() {
                return Err(format!(
                    "{option:?}: behind PATH and a comma may stand queues=N, 1 to {MAX_PAIRS}; mac=M, one station's address, as \
                     52:54:00:12:34:56; mtu=N, {} to {}; each once",
                    MTUS.start(),
                    MTUS.end()
                ));
            }
            seen.push(name);
        }
        if path.is_empty() {
            return Err("a socket has a path: PATH[,queues=N][,mac=M][,mtu=N]".to_owned());
        }
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_a_path_and_more() {
        let plain = SocketArgument::one_pair(Path::new("/run/card"));
        assert_eq!("/run/card".parse(), Ok(plain.clone()));
        let full = SocketArgument {
            path: "a=b".into(),
            queues: 8,
            mac: Some([0x52, 0x54, 0, 0x12, 0x34, 0xab]),
            mtu: 9000,
        };
        let text = "a=b,mtu=9000,queues=8,mac=52:54:00:12:34:AB";
        assert_eq!(text.parse(), Ok(full.clone()));
        for socket in [plain, full] {
            assert_eq!(socket.to_string().parse(), Ok(socket));
        }
    }

    #[test]
    fn other_sockets_are_refused() {
        for bad in ["", ",queues=2"] {
            let error = bad.parse::<SocketArgument>().unwrap_err();
            assert!(error.contains("a path"), "{bad}: {error}");
        }
        for bad in [
            "c,",
            "c,queues=0",
            "c,queues=9",
            "c,queues",
            "c,queues=1,queues=1",
            "c,mtu=67",
            "c,mtu=65522",
            "c,mac=52:54:00:12:34",
            "c,mac=52:54:00:12:34:56:78",
            "c,mac=52:54:00:12:34:5",
            "c,mac=52:54:00:12:34:+5",
            // Of many stations, and of none.
            "c,mac=53:54:00:12:34:56",
            "c,mac=00:00:00:00:00:00",
            "c,speed=9",
        ] {
            let error = bad.parse::<SocketArgument>().unwrap_err();
            assert!(error.contains("1 to 8"), "{bad}: {error}");
        }
    }
}
