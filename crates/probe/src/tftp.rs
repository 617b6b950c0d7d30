//! What a server grants by TFTP.

use crate::since;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wireboot_net::{Duration, Stack, UdpSocket};
use wireboot_report::servers::TftpAnswer;
use wireboot_wire::text;
use wireboot_wire::tftp::{ErrorCode, Options, Packet, Request, TransferOptions, ack};

/// Requests, and how long each is waited for.
const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(2);
/// Blocks of a window that are asked for.
const WINDOW: u16 = 64;
/// Bytes of the headers before a block, beside IP's.
const HEADERS: u16 = 8 + 4;

/// Asks for `file`, takes its first block at most, and ends the transfer. What it said, and why no more, for people.
pub(crate) async fn ask(
    stack: &Stack,
    server: SocketAddr,
    file: &str,
) -> (Option<TftpAnswer>, Option<String>) {
    let mut told = None;
    let asked = converse(stack, server, file, &mut told).await;
    (told, asked.err())
}

async fn converse(
    stack: &Stack,
    server: SocketAddr,
    file: &str,
    told: &mut Option<TftpAnswer>,
) -> Result<(), String> {
    let (ip, unspecified): (_, IpAddr) = match server {
        SocketAddr::V4(_) => (20, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (40, Ipv6Addr::UNSPECIFIED.into()),
    };
    let block = stack.path_mtu(unspecified).saturating_sub(ip + HEADERS);
    let asked = TransferOptions {
        block_size: Some(block),
        window_size: Some(WINDOW),
        transfer_size: Some(0),
        ..TransferOptions::default()
    };
    let mut options = Vec::new();
    asked.emit(&mut options);
    let mut request = Vec::new();
    Packet::Rrq(Request {
        filename: file,
        mode: "octet",
        options: Options::new(&options),
    })
    .emit(&mut request);
    let socket = stack.udp();
    let begin = stack.now();
    let mut first = None;
    for _ in 0..TRIES {
        let sent = socket.send_to(server, &request);
        sent.map_err(|error| error.to_string())?;
        first = stack
            .timeout(PATIENCE, answer(stack, &socket, server))
            .await;
        if first.is_some() {
            break;
        }
    }
    let first = first.ok_or_else(|| format!("no answer to {TRIES} requests"))?;
    let (end, packet) = first.map_err(ToString::to_string)?;
    let answer = TftpAnswer {
        asked_block_bytes: block,
        asked_window: WINDOW,
        answer_us: since(stack, begin).await,
        ..TftpAnswer::default()
    };
    match Packet::parse(&packet) {
        Ok(Packet::Oack(options)) => {
            let granted = TransferOptions::from_acknowledgement(options);
            let granted = granted.map_err(|error| error.to_string())?;
            let answer = told.insert(TftpAnswer {
                block_bytes: granted.block_size,
                window: granted.window_size,
                file_bytes: granted.transfer_size,
                ..answer
            });
            let begin = stack.now();
            let sent = socket.send_to(end, &ack(0));
            sent.map_err(|error| error.to_string())?;
            let block = stack.timeout(PATIENCE, first_block(&socket, end)).await;
            let seconds = PATIENCE.secs();
            block.ok_or_else(|| format!("options, and no block within {seconds} s"))??;
            answer.first_block_us = Some(since(stack, begin).await);
        }
        Ok(Packet::Data { .. }) => *told = Some(answer),
        Ok(Packet::Error { code, text }) => return Err(refusal(code, text)),
        _ => return Err("an answer that is none of TFTP".to_string()),
    }
    let mut error = Vec::new();
    Packet::Error {
        code: ErrorCode::UNDEFINED,
        text: b"asked only",
    }
    .emit(&mut error);
    // It is not answered: a server that misses it ends the transfer by itself.
    let _ = socket.send_to(end, &error);
    stack.next_turn().await;
    Ok(())
}

/// A server's words, fit to be shown.
fn refusal(code: ErrorCode, text: &[u8]) -> String {
    match text::shown(text) {
        text if text.is_empty() => code.meaning().to_string(),
        text => text,
    }
}

/// The first packet from the server's host, and from where there.
async fn answer(
    stack: &Stack,
    socket: &UdpSocket,
    server: SocketAddr,
) -> Result<(SocketAddr, Vec<u8>), &'static str> {
    loop {
        if socket.was_refused_by(server) {
            return Err("nobody listens at the port");
        }
        if let Some((from, packet)) = socket.try_receive()
            && from.ip() == server.ip()
        {
            return Ok((from, packet));
        }
        stack.next_turn().await;
    }
}

/// Waits for the first block. The error is why the server sends none.
async fn first_block(socket: &UdpSocket, end: SocketAddr) -> Result<(), String> {
    loop {
        let (from, packet) = socket.receive().await;
        match Packet::parse(&packet) {
            Ok(Packet::Data { .. }) if from == end => return Ok(()),
            Ok(Packet::Error { code, text }) if from == end => return Err(refusal(code, text)),
            _ => {}
        }
    }
}
