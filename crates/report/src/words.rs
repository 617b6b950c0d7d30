//! What doctor.efi can be asked for, by the words of its options. A report names its checks by the same words.

/// Words that ask for one check each.
pub const CHECKS: [&str; 12] = [
    "check", "net", "servers", "boot", "cost", "dma", "frames", "trace", "profile", "sweep",
    "iperf3", "ttcp",
];

/// Words that ask for several checks at once.
pub const GROUPS: [&str; 2] = ["quick", "all"];

/// What a test of throughput does else.
pub const FLAGS: [&str; 3] = ["udp", "reverse", "bidir"];

/// Words with a value behind `=`.
pub const KEYS: [&str; 22] = [
    "server",
    "runs",
    "options",
    "trace",
    "file",
    "rounds",
    "block",
    "window",
    "hz",
    "calls",
    "nv",
    "plant",
    "iperf3",
    "ttcp",
    "port",
    "parallel",
    "time",
    "bytes",
    "length",
    "mss",
    "bandwidth",
    "driver",
];
