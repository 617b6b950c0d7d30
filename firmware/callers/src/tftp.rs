//! A loader's own TFTP client (RFC 1350, 2347, 2348, 7440): a window of blocks, then one acknowledgement.

use crate::datagrams::Datagrams;
use crate::report::Failure;
use alloc::format;
use alloc::vec::Vec;

/// What it asks for.
pub(crate) struct Wanted<'a> {
    pub file: &'a str,
    pub block: u16,
    /// 1 asks for no window.
    pub window: u16,
    /// An option that only some servers know, with its value.
    pub special: Option<(&'a str, &'a str)>,
}

const SERVER: u16 = 69;
const DATA: u16 = 3;
const ERROR: u16 = 5;
const OACK: u16 = 6;
/// Times that nothing comes.
const TRIES: u32 = 5;

fn request(wanted: &Wanted<'_>) -> Vec<u8> {
    let mut packet = alloc::vec![0, 1];
    let mut add = |text: &str| {
        packet.extend_from_slice(text.as_bytes());
        packet.push(0);
    };
    add(wanted.file);
    add("octet");
    add("blksize");
    add(&format!("{}", wanted.block));
    add("tsize");
    add("0");
    if wanted.window > 1 {
        add("windowsize");
        add(&format!("{}", wanted.window));
    }
    if let Some((name, value)) = wanted.special {
        add(name);
        add(value);
    }
    packet
}

fn acknowledgement(block: u16) -> [u8; 4] {
    let [high, low] = block.to_be_bytes();
    [0, 4, high, low]
}

/// The value of an option in an OACK.
fn option(body: &[u8], name: &str) -> Option<usize> {
    let mut words = body.split(|&byte| byte == 0);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if key.eq_ignore_ascii_case(name.as_bytes()) {
            return core::str::from_utf8(value).ok()?.parse().ok();
        }
    }
    None
}

/// Reads the file.
pub(crate) fn read(network: &mut impl Datagrams, wanted: &Wanted<'_>) -> Result<Vec<u8>, Failure> {
    let request = request(wanted);
    network.send(SERVER, &request)?;
    let mut file = Vec::new();
    let mut peer = None;
    let (mut block, mut window) = (512, 1);
    let (mut last, mut unacknowledged, mut quiet) = (0_u16, 0, 0);
    loop {
        let Some((port, packet)) = network.receive()? else {
            quiet += 1;
            if quiet == TRIES {
                return Err(Failure::Wrong("the server is silent"));
            }
            match peer {
                None => network.send(SERVER, &request)?,
                Some(port) => network.send(port, &acknowledgement(last))?,
            }
            unacknowledged = 0;
            continue;
        };
        if peer.is_some_and(|peer| peer != port) {
            continue;
        }
        let Some((head, body)) = packet.split_first_chunk::<2>() else {
            continue;
        };
        match u16::from_be_bytes(*head) {
            OACK if last == 0 && file.is_empty() => {
                peer = Some(port);
                block = option(body, "blksize").unwrap_or(512);
                window = option(body, "windowsize").unwrap_or(1);
                let size = option(body, "tsize").unwrap_or(0);
                file.try_reserve_exact(size)
                    .map_err(|_| Failure::Wrong("no memory for a file of this size"))?;
                network.send(port, &acknowledgement(0))?;
            }
            DATA => {
                let Some((number, data)) = body.split_first_chunk::<2>() else {
                    continue;
                };
                peer = Some(port);
                if u16::from_be_bytes(*number) != last.wrapping_add(1) {
                    // Not the next one: tell what is the last that came, once a window.
                    if unacknowledged > 0 {
                        unacknowledged = 0;
                        network.send(port, &acknowledgement(last))?;
                    }
                    continue;
                }
                quiet = 0;
                last = last.wrapping_add(1);
                unacknowledged += 1;
                file.extend_from_slice(data);
                let is_last = data.len() < block;
                if is_last || unacknowledged >= window {
                    unacknowledged = 0;
                    network.send(port, &acknowledgement(last))?;
                }
                if is_last {
                    return Ok(file);
                }
            }
            ERROR => return Err(Failure::Wrong("the server has answered with an error")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    /// A server of one file, which loses the packets of some numbers.
    struct Server {
        file: Vec<u8>,
        window: usize,
        out: VecDeque<Vec<u8>>,
        sent: usize,
        lost: Vec<usize>,
        requests: Vec<Vec<u8>>,
    }

    impl Server {
        fn new(len: usize, window: usize, lost: &[usize]) -> Self {
            Self {
                file: (0..len).map(|n| (n % 251) as u8).collect(),
                window,
                out: VecDeque::new(),
                sent: 0,
                lost: lost.to_vec(),
                requests: Vec::new(),
            }
        }

        fn put(&mut self, packet: Vec<u8>) {
            self.sent += 1;
            if !self.lost.contains(&self.sent) {
                self.out.push_back(packet);
            }
        }
    }

    impl Datagrams for Server {
        fn send(&mut self, port: u16, data: &[u8]) -> Result<(), Failure> {
            if port == SERVER {
                self.requests.push(data.to_vec());
                let oack = format!("blksize\0{}\0windowsize\0{}\0", 600, self.window);
                self.put([&[0, 6], oack.as_bytes()].concat());
                return Ok(());
            }
            assert_eq!(data[..2], [0, 4]);
            let first = usize::from(u16::from_be_bytes([data[2], data[3]])) + 1;
            for number in first..first + self.window {
                let start = (number - 1) * 600;
                if start > self.file.len() {
                    break;
                }
                let end = self.file.len().min(start + 600);
                let mut packet = alloc::vec![0, 3];
                packet.extend((number as u16).to_be_bytes());
                packet.extend(&self.file[start..end]);
                self.put(packet);
            }
            Ok(())
        }

        fn receive(&mut self) -> Result<Option<(u16, Vec<u8>)>, Failure> {
            Ok(self.out.pop_front().map(|packet| (2000, packet)))
        }
    }

    fn wanted() -> Wanted<'static> {
        Wanted {
            file: "f",
            block: 600,
            window: 4,
            special: Some(("msftwindow", "31416")),
        }
    }

    #[test]
    fn files_come_whole_over_a_network_that_loses() {
        for len in [0, 1, 599, 600, 2400, 10_000] {
            for lost in [&[][..], &[1], &[2], &[3, 4], &[5, 9, 14]] {
                let mut server = Server::new(len, 4, lost);
                let file = read(&mut server, &wanted()).unwrap();
                assert!(file == server.file, "{len} {lost:?}");
            }
        }
    }

    #[test]
    fn options_are_asked_for() {
        let mut server = Server::new(5, 4, &[]);
        read(&mut server, &wanted()).unwrap();
        let text = alloc::string::String::from_utf8(server.requests[0].clone()).unwrap();
        assert_eq!(
            text,
            "\0\u{1}f|octet|blksize|600|tsize|0|windowsize|4|msftwindow|31416|".replace('|', "\0")
        );
    }

    #[test]
    fn silence_ends() {
        let lost: Vec<usize> = (1..100).collect();
        let mut server = Server::new(5, 1, &lost);
        assert!(read(&mut server, &wanted()).is_err());
    }
}
