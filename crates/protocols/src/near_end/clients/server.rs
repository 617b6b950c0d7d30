//! A TFTP server that may do what none should.

use alloc::vec::Vec;
use core::cell::Cell;
use core::net::SocketAddr;
use wireboot_net::{Duration, Stack, UdpSocket};
use wireboot_wire::tftp::{self, ErrorCode, Options, Packet, TransferOptions, data_header};

/// It sends a window again so often, and gives up.
const TRIES: u32 = 20;

/// What the server sends, and where it stops.
#[derive(Clone, Debug)]
pub(super) struct FaultyTftpScript {
    pub file: Vec<u8>,
    /// The size that it announces, if it knows the option.
    pub size: Option<u64>,
    pub options: bool,
    /// What happens when so many bytes were sent.
    pub stop: Option<(usize, Stop)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stop {
    /// The server sends an ERROR packet.
    Error,
    /// It says nothing for a minute, to nobody.
    Minute,
    /// It has forgotten the transfer, and answers new requests.
    Forgets,
}

impl FaultyTftpScript {
    pub(super) fn new(len: usize) -> Self {
        Self {
            file: (0..len).map(|i| (i * 7 + i / 251) as u8).collect(),
            size: Some(len as u64),
            options: true,
            stop: None,
        }
    }
}

pub(super) async fn serve(stack: Stack, script: FaultyTftpScript) {
    let listener = stack.udp_on(tftp::PORT);
    let mut served: Vec<SocketAddr> = Vec::new();
    let stop = Cell::new(script.stop);
    loop {
        let (client, packet) = listener.receive().await;
        if let Ok(Packet::Rrq(request)) = Packet::parse(&packet)
            && !served.contains(&client)
        {
            served.push(client);
            let asked = TransferOptions::from_request(request.options);
            let socket = stack.udp();
            transfer(&stack, &socket, client, &script, &asked, &stop).await;
        }
    }
}

/// The acknowledgement of a block from `from` on that comes within 300 ms; an error is one of the last block.
async fn acknowledged(stack: &Stack, socket: &UdpSocket, from: u64) -> Option<u64> {
    let wait = async {
        loop {
            let (_, packet) = socket.receive().await;
            match Packet::parse(&packet) {
                Ok(Packet::Ack { block }) if block.wrapping_sub(from as u16) < 0x8000 => {
                    return from + u64::from(block.wrapping_sub(from as u16));
                }
                Ok(Packet::Error { .. }) => return u64::MAX,
                _ => {}
            }
        }
    };
    stack.timeout(Duration::from_millis(300), wait).await
}

async fn transfer(
    stack: &Stack,
    socket: &UdpSocket,
    client: SocketAddr,
    script: &FaultyTftpScript,
    asked: &TransferOptions,
    stop: &Cell<Option<(usize, Stop)>>,
) {
    let send = |packet: &Packet<'_>| {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        let _ = socket.send_to(client, &bytes);
    };
    let mut granted = TransferOptions::default();
    if script.options {
        granted.block_size = asked.block_size;
        granted.window_size = asked.window_size.map(|window| window.min(8));
        granted.transfer_size = asked.transfer_size.and(script.size);
    }
    let mut tries = 0;
    while !granted.is_empty() {
        let mut bytes = Vec::new();
        granted.emit(&mut bytes);
        send(&Packet::Oack(Options::new(&bytes)));
        match acknowledged(stack, socket, 0).await {
            Some(0) => break,
            Some(_) => return,
            None => tries += 1,
        }
        if tries > TRIES {
            return;
        }
    }
    let size = usize::from(granted.block_size.unwrap_or(512));
    let window = u64::from(granted.window_size.unwrap_or(1));
    let last = (script.file.len() / size) as u64 + 1;
    let (mut acked, mut tries) = (0, 0);
    while acked < last {
        for block in acked + 1..=(acked + window).min(last) {
            let start = (block as usize - 1) * size;
            let end = (start + size).min(script.file.len());
            match stop.get() {
                Some((at, what)) if end > at => match what {
                    Stop::Error => {
                        let (code, text) = (ErrorCode(2), b"no more of it");
                        return send(&Packet::Error { code, text });
                    }
                    Stop::Minute => {
                        stop.set(None);
                        stack.sleep(Duration::from_secs(60)).await;
                        return;
                    }
                    Stop::Forgets => {
                        stop.set(None);
                        return;
                    }
                },
                _ => {}
            }
            let payload = &script.file[start..end];
            let bytes = [&data_header(block as u16)[..], payload].concat();
            let _ = socket.send_to(client, &bytes);
        }
        match acknowledged(stack, socket, acked).await {
            Some(block) if block > acked => (acked, tries) = (block, 0),
            _ => tries += 1,
        }
        if tries > TRIES {
            return;
        }
    }
}
