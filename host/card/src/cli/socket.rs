//! `--socket`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::vhost::MAX_PAIRS;

/// What `--socket` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketArgument {
    pub(super) path: PathBuf,
    /// Pairs of queues.
    pub(super) queues: usize,
}

impl SocketArgument {
    /// For guests with one pair.
    pub(super) fn one_pair(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            queues: 1,
        }
    }
}

impl fmt::Display for SocketArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        match self.queues {
            1 => Ok(()),
            queues => write!(f, ",queues={queues}"),
        }
    }
}

impl FromStr for SocketArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, option) = text.split_once(',').unwrap_or((text, "queues=1"));
        let queues = option.strip_prefix("queues=").and_then(|n| n.parse().ok());
        let queues = queues.filter(|queues| (1..=MAX_PAIRS).contains(queues));
        match queues {
            Some(queues) if !path.is_empty() => Ok(Self {
                path: path.into(),
                queues,
            }),
            _ => Err(format!(
                "a socket is PATH or PATH,queues=N, with N from 1 to {MAX_PAIRS} and no comma in PATH"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_a_path_and_queues() {
        let socket = |path: &str, queues| {
            Ok(SocketArgument {
                path: path.into(),
                queues,
            })
        };
        assert_eq!("/run/card".parse(), socket("/run/card", 1));
        assert_eq!("a=b,queues=8".parse(), socket("a=b", 8));
        for same in ["/run/card", "a=b,queues=8"] {
            let parsed = same.parse::<SocketArgument>().unwrap();
            assert_eq!(parsed.to_string(), same);
        }
        for bad in [
            "",
            ",queues=2",
            "c,",
            "c,queues=0",
            "c,queues=9",
            "c,queues=1,queues=2",
            "c,mtu=9",
        ] {
            let error = bad.parse::<SocketArgument>().unwrap_err();
            assert!(error.contains("1 to 8"), "{bad}: {error}");
        }
    }
}
