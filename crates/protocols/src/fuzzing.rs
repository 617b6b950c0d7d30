//! Bodies of fuzz targets. They panic when a promise is broken.

use crate::base_code::{Discovery, Expected, Host, NEIGHBORS, Port, Source, Transfer};
use crate::ip_config::{self, IpConfig, Kind, Settings, Stored};
use crate::link::Link;
use crate::near_end::tcp::{NearTcp, Status, StreamEnd, Streams};
use crate::near_end::{self, DownloadState, Files, NearEnd, Progress};
use crate::packet::{self, PACKET, Packet};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use wireboot_fetch::url::Url;
use wireboot_net::{Duration, Instant};

/// Frames of one turn at most: what eight transfers have in their windows, and what each has to say besides.
const MOST: usize = 8 * 66;
const LONGEST: usize = 1514;

/// A wire on which nothing comes.
struct Silence;

impl Link for Silence {
    fn set_up(&mut self, _: bool) {}

    fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
        true
    }

    fn peek(&mut self) -> Option<&[u8]> {
        None
    }

    fn skip(&mut self) {}
}

/// Files of any length that come as the input says.
struct AnyFiles<'a> {
    script: &'a [u8],
    now: Instant,
}

impl Files for AnyFiles<'_> {
    type File = u64;

    fn now(&self) -> Instant {
        self.now
    }

    fn open(&mut self, _: IpAddr, url: &Url) -> Option<u64> {
        let len = url.as_str().len() as u64;
        (!len.is_multiple_of(7)).then_some(len * 1000)
    }

    fn progress(&mut self, size: &u64) -> Progress {
        let (&first, rest) = self.script.split_first().unwrap_or((&3, &[]));
        self.script = rest;
        self.now += Duration::from_millis(u64::from(first));
        let (size, ready) = (*size, *size / u64::from(first | 1));
        let state = match first % 8 {
            0 => DownloadState::Asked,
            1 | 2 => DownloadState::Coming,
            4 if first > 128 => DownloadState::Refused {
                code: first.into(),
                text: String::from("text"),
            },
            5 if first > 200 => DownloadState::Silent,
            6 if first > 200 => DownloadState::ForTheWire,
            _ => DownloadState::Whole,
        };
        Progress {
            announced: (first % 3 == 0).then_some(size),
            ready: if state == DownloadState::Whole {
                size
            } else {
                ready
            },
            state,
        }
    }

    fn read(&self, size: &u64, at: u64, to: &mut [u8]) -> usize {
        let rest = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX);
        rest.min(to.len())
    }

    fn release(&mut self, _: &u64, _: u64) {}

    fn close(&mut self, _: u64) {}
}

/// Frames of a loader's, each a length and so many bytes, to the near end.
pub fn fuzz_near_end(data: &[u8]) {
    let (script, mut data) = data.split_at(data.len() / 4);
    let files = AnyFiles {
        script,
        now: Instant::ZERO,
    };
    let mut near = NearEnd::new(Silence, files, LONGEST, [1; 32]);
    while let Some((&len, rest)) = data.split_first() {
        let (frame, rest) = rest.split_at(usize::from(len).min(rest.len()));
        data = rest;
        if let Some((header, payload)) = frame.split_first_chunk() {
            near.send(header, payload);
        }
        let mut count = 0;
        while let Some(frame) = near.peek() {
            assert!(frame.len() <= LONGEST, "a frame of {} bytes", frame.len());
            near.skip();
            count += 1;
            if count > MOST {
                break;
            }
        }
    }
    near.set_up(false);
    assert!(near.peek().is_none(), "a frame of nobody's");
}

/// Connections whose bytes come as the input says.
struct AnyStreams<'a> {
    script: &'a [u8],
    now: Instant,
    ready: usize,
}

impl Streams for AnyStreams<'_> {
    type Stream = ();

    fn now(&self) -> Instant {
        self.now
    }

    fn connect(&mut self, local: IpAddr, _: SocketAddr) -> Option<()> {
        (!local.is_unspecified()).then_some(())
    }

    fn status(&mut self, (): &()) -> Status {
        let (&first, rest) = self.script.split_first().unwrap_or((&3, &[]));
        self.script = rest;
        self.now += Duration::from_millis(u64::from(first) * 4);
        self.ready = (self.ready + usize::from(first) * 64).min(1 << 20);
        let end = match first % 16 {
            0 => return Status::Connecting,
            1 => return Status::Refused,
            2 => return Status::Silent,
            4 => return Status::Unreachable,
            5 => Some(StreamEnd::Finished),
            6 => Some(StreamEnd::Reset),
            7 => Some(StreamEnd::Silent),
            _ => None,
        };
        Status::Open {
            ready: self.ready,
            end,
        }
    }

    fn read(&self, (): &(), at: usize, to: &mut [u8]) -> usize {
        self.ready.saturating_sub(at).min(to.len())
    }

    fn release(&mut self, (): &(), count: usize) {
        self.ready = self.ready.saturating_sub(count);
    }

    fn room(&self, (): &()) -> usize {
        self.script.len()
    }

    fn write(&mut self, (): &(), bytes: &[u8]) {
        assert!(bytes.len() <= self.script.len(), "more than it takes");
    }

    fn finish(&mut self, (): &()) {}

    fn close(&mut self, (): ()) {}
}

/// Frames of a loader's, each a length and so many bytes, to the near end of its connections. Those that hold a segment get right checksums.
pub fn fuzz_near_tcp(data: &[u8]) {
    let (script, mut data) = data.split_at(data.len() / 4);
    let streams = AnyStreams {
        script,
        now: Instant::ZERO,
        ready: 0,
    };
    let mut near = NearTcp::new(Silence, streams, LONGEST, [1; 16]);
    while let Some((&len, rest)) = data.split_first() {
        let (frame, rest) = rest.split_at(usize::from(len).min(rest.len()));
        data = rest;
        let mut frame = frame.to_vec();
        if let Some((header, payload)) = frame.split_first_chunk_mut() {
            near_end::tcp::fill_checksums(header, payload);
            near.send(header, payload);
        }
        let mut count = 0;
        while let Some(frame) = near.peek() {
            assert!(frame.len() <= LONGEST, "a frame of {} bytes", frame.len());
            near.skip();
            count += 1;
            if count > MOST {
                break;
            }
        }
    }
    near.set_up(false);
    assert!(near.peek().is_none(), "a frame of nobody's");
}

/// A DHCP or DHCPv6 packet of a server's, shown to a loader.
pub fn fuzz_packet(data: &[u8]) {
    let raw = packet::padded(data);
    let works: [fn(&mut Packet); 3] = [
        packet::end_options,
        |packet| packet::name_file(packet, [10, 0, 0, 1].into(), "a/b"),
        |packet| packet::name_file6(packet, [0; 16].into(), "a/b"),
    ];
    for work in works {
        let mut packet = raw;
        work(&mut packet);
        let once = packet;
        work(&mut packet);
        assert!(once == packet, "another time it is another packet");
    }
    let mut packet = raw;
    packet::end_options(&mut packet);
    let end: Vec<_> = packet
        .iter()
        .rposition(|&byte| byte != 0)
        .into_iter()
        .collect();
    assert!(
        end.iter()
            .all(|&end| end < PACKET && packet.get(end) == Some(&255))
    );
}

/// A wire on which frames of the input's come, whatever is sent.
struct AnyFrames<'a> {
    data: &'a [u8],
    now: Instant,
}

impl Port for AnyFrames<'_> {
    fn now(&mut self) -> Instant {
        self.now += Duration::from_millis(50);
        self.now
    }

    fn link_up(&self) -> bool {
        true
    }

    fn send(&mut self, _: &[u8; 14], payload: &[u8]) -> bool {
        assert!(payload.len() <= LONGEST - 14, "{} bytes", payload.len());
        true
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let (&len, rest) = self.data.split_first()?;
        let (frame, rest) = rest.split_at(usize::from(len).min(rest.len()));
        self.data = rest;
        // Every other time nothing, so that calls go on while some come.
        (len % 2 == 0).then(|| frame.to_vec())
    }

    fn show(&mut self, _: bool, packet: &[u8]) -> bool {
        packet.first() != Some(&0xee)
    }
}

/// Frames, each a length and so many bytes, to the host in the call that the first byte chooses.
pub fn fuzz_host(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let mut port = AnyFrames {
        data,
        now: Instant::ZERO,
    };
    let mut host = Host::new([2, 0, 0, 0, 0, 1], 1500, [7; 32]);
    let (own, peer): (IpAddr, IpAddr) = if choice & 1 == 0 {
        ([10, 0, 0, 1].into(), [10, 0, 0, 9].into())
    } else {
        let own = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        (
            own.into(),
            (Ipv6Addr::from(own).to_bits() + 8).to_be_bytes().into(),
        )
    };
    host.configure(own, 24, None);
    let transfer = Transfer {
        server: peer,
        file: "a",
        block_size: Some(1000),
    };
    let port = &mut port;
    // Else all frames would be answers to who it is.
    if choice >> 1 != 0 {
        host.learn(peer, [2, 0, 0, 0, 0, 9]);
    }
    let _ = match choice >> 1 {
        0 => host.arp(port, peer).map(drop),
        1 => {
            let expected = Expected {
                destination: None,
                destination_port: None,
                source: None,
                source_port: None,
                use_filter: false,
            };
            host.udp_read(port, &expected).map(drop)
        }
        2 => {
            let mut end = 0;
            let read = host.tftp_read(
                port,
                &transfer,
                Source::File,
                Some(5000),
                &mut |at, bytes| {
                    assert!(at == end, "a gap");
                    end = at + bytes.len() as u64;
                    assert!(end <= 5000, "more than there is room for");
                },
            );
            read.map(drop)
        }
        3 => host.tftp_write(port, &transfer, &[1; 3000]),
        4 => host.dhcp(port, None, true).map(drop),
        5 => host.dhcp6(port, None).map(drop),
        _ => {
            let how = Discovery {
                unicast: alloc::vec![peer],
                ..Discovery::default()
            };
            host.discover(port, None, (1, 0), &how).map(drop)
        }
    };
    assert!(host.neighbors().len() <= NEIGHBORS, "too many neighbours");
}

/// A variable of the firmware's with settings of an interface, of the version that the first byte chooses. It gets a right checksum.
pub fn fuzz_ip_variable(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let v6 = choice & 1 == 1;
    let mut bytes = data.to_vec();
    ip_config::fill_checksum(v6, &mut bytes);
    let stored = Stored::read(v6, &bytes);
    if let Some(stored) = &stored
        && let Some(written) = stored.write()
    {
        let again = Stored::read(v6, &written);
        assert!(again.as_ref() == Some(stored), "it is read as another");
    }
    let mut config = IpConfig::new(v6, [2, 0, 0, 0, 0, 1], Settings::default(), stored);
    let kinds = [
        Kind::Info,
        Kind::AltInterfaceId,
        Kind::Policy,
        Kind::DupAddrDetect,
        Kind::Address,
        Kind::Gateway,
        Kind::Dns,
    ];
    for kind in kinds {
        // What is told can be set, and is no news then.
        if let Ok(data) = config.get(kind, 0x1000)
            && let Ok(change) = config.set(kind, &data)
        {
            assert!(!change.changed, "{kind:?} changes the interface");
        }
    }
    let change = config.set(Kind::Policy, &[0; 4]);
    let kept = change.is_ok_and(|change| {
        let variable = change.variable;
        variable.is_none_or(|variable| Stored::read(v6, &variable).is_some())
    });
    assert!(kept, "what is kept is not read");
}
