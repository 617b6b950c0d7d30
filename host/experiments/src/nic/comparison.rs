//! What is compared with what, and how many times as fast it is to be.

use crate::protocol::TransferProtocol;

/// One way for a machine's frames, and what is done by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A stack of the benchmark downloads its file from its own server, by the lab's cable.
    Cable {
        /// The stack's short name.
        stack: &'static str,
        /// Who is at the cable.
        card: Card,
    },
    /// The sender on the lab's cable keeps it full, and doctor.efi takes the frames.
    FramesByCable {
        /// The ladder's rung.
        rung: &'static str,
        /// Who is at the cable.
        card: Card,
    },
    /// The sender in the card sends whatever the machine takes, and doctor.efi takes it.
    FramesOfCard {
        /// The ladder's rung.
        rung: &'static str,
    },
    /// wireboot.efi downloads from the server in the card.
    Served {
        /// The protocol of the download.
        protocol: TransferProtocol,
        /// Further arguments of the card.
        arguments: &'static [&'static str],
    },
}

/// Who carries frames between the cable and the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    /// QEMU itself, without another program.
    Qemu,
    /// `wireboot nic run`, with all offloads.
    Ours,
    /// DPDK's testpmd, from its vhost to its tap.
    Dpdk,
}

impl Side {
    /// As the report writes it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Cable { stack, card } => format!("{stack}, {}", card.name()),
            Self::FramesByCable { rung, card } => format!("{rung}, {}", card.name()),
            Self::FramesOfCard { rung } => format!("{rung}, the sender in the card, which polls"),
            Self::Served { protocol, .. } => {
                format!("{} from the server in the card", protocol.name())
            }
        }
    }
}

impl Card {
    fn name(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU's tap",
            Self::Ours => "the card's tap",
            Self::Dpdk => "DPDK's tap",
        }
    }
}

/// Two sides, by turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Short name for `--only`.
    pub id: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// What is measured: always with `wireboot nic`'s card.
    pub ours: Side,
    /// What it is compared with.
    pub theirs: Side,
    /// How many times as fast as theirs ours is to be.
    pub floor: f64,
}

/// No datagram is longer than a frame.
const OFFLOADS: &str = "guest_tso4,guest_tso6,host_tso4,host_tso6,host_ufo";
/// A frame is a unit of its own.
const SINGLE: &[&str] = &["--chunk", "none", "--offload", OFFLOADS];
/// Frames in chunks.
const CHUNKS: &[&str] = &["--offload", OFFLOADS];
/// Payload goes to the driver's buffers.
const NOT_PLACED: &[&str] = &["--placement", "none"];
/// The card looks at its queues all the time.
pub(super) const POLLS: &[&str] = &["--poll", "always"];
/// As the card is by itself.
const ALL: &[&str] = &[];

/// The rung on which frames are counted, and no more.
pub(super) const THROWN_AWAY: &str = "driver";
/// The rung on which their payload is copied.
const COPIED: &str = "driver, copied";

/// Frames that the card makes beside those that come by QEMU's tap.
const fn sent(id: &'static str, title: &'static str, rung: &'static str, floor: f64) -> Comparison {
    let card = Card::Qemu;
    Comparison {
        id,
        title,
        ours: Side::FramesOfCard { rung },
        theirs: Side::FramesByCable { rung, card },
        floor,
    }
}

/// A stack by the card's tap beside the same by QEMU's.
const fn same(
    id: &'static str,
    title: &'static str,
    stack: &'static str,
    floor: f64,
) -> Comparison {
    Comparison {
        id,
        title,
        ours: Side::Cable {
            stack,
            card: Card::Ours,
        },
        theirs: Side::Cable {
            stack,
            card: Card::Qemu,
        },
        floor,
    }
}

/// The server in the card beside a stack by QEMU's tap.
const fn served(
    id: &'static str,
    title: &'static str,
    protocol: TransferProtocol,
    arguments: &'static [&'static str],
    stack: &'static str,
    floor: f64,
) -> Comparison {
    Comparison {
        id,
        title,
        ours: Side::Served {
            protocol,
            arguments,
        },
        theirs: Side::Cable {
            stack,
            card: Card::Qemu,
        },
        floor,
    }
}

/// Frames by the card's tap beside those by another's.
const fn frames(id: &'static str, theirs: Card, floor: f64) -> Comparison {
    Comparison {
        id,
        title: "frames thrown away",
        ours: Side::FramesByCable {
            rung: THROWN_AWAY,
            card: Card::Ours,
        },
        theirs: Side::FramesByCable {
            rung: THROWN_AWAY,
            card: theirs,
        },
        floor,
    }
}

/// All of them. Four floors are lower than what was wanted at first (8, 3, 1.4, 1.6): docs/card.md says why.
pub(super) const COMPARISONS: [Comparison; 16] = [
    frames("tap-frames", Card::Qemu, 1.15),
    frames("tap-frames-dpdk", Card::Dpdk, 1.0),
    sent("sent-frames", "frames thrown away", THROWN_AWAY, 4.0),
    sent("sent-frames-copied", "frames copied", COPIED, 2.0),
    same("tap-http", "HTTP from nginx", "wireboot-http", 1.1),
    same("tap-tftp", "TFTP from atftpd", "wireboot-tftp", 1.0),
    served(
        "serve-tftp",
        "TFTP, blocks of 1468",
        TransferProtocol::Tftp,
        SINGLE,
        "wireboot-tftp-ours",
        1.3,
    ),
    served(
        "serve-tftp-chunks",
        "TFTP, blocks of 1468 in chunks",
        TransferProtocol::Tftp,
        CHUNKS,
        "wireboot-tftp-ours",
        1.3,
    ),
    served(
        "serve-tftp-messages",
        "TFTP, blocks of 65464",
        TransferProtocol::Tftp,
        ALL,
        "wireboot-tftp-ours",
        2.0,
    ),
    served(
        "serve-http",
        "HTTP",
        TransferProtocol::Http,
        NOT_PLACED,
        "wireboot-http",
        1.3,
    ),
    served(
        "serve-http-placed",
        "HTTP, with placement",
        TransferProtocol::Http,
        ALL,
        "wireboot-http",
        2.0,
    ),
    same("ipxe-http", "iPXE, HTTP from nginx", "ipxe-efi-http", 1.3),
    same("ipxe-tftp", "iPXE, TFTP from atftpd", "ipxe-efi-tftp", 1.5),
    same(
        "ovmf-tftp",
        "stock OVMF, TFTP from atftpd",
        "ovmf-tftp",
        0.95,
    ),
    same(
        "ovmf-http",
        "stock OVMF, HTTP from nginx",
        "ovmf-http",
        0.95,
    ),
    same("linux-http", "Linux, wget from nginx", "linux-http", 0.95),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_unique() {
        for (n, one) in COMPARISONS.iter().enumerate() {
            let others = COMPARISONS.iter().skip(n + 1);
            assert!(others.clone().all(|other| other.id != one.id), "{}", one.id);
        }
    }
}
