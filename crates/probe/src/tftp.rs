//! What a server grants by TFTP.

use crate::since;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;
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

/// Asks for `file`, takes its first block at most, and ends the transfer. The error is what a person reads.
pub(crate) async fn ask(
    stack: &Stack,
    server: SocketAddr,
    file: &str,
) -> Result<TftpAnswer, String> {
    let ip = if server.is_ipv6() { 40 } else { 20 };
    let block = stack.mtu().saturating_sub(ip + HEADERS);
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
    let mut begin = stack.now();
    let mut first = None;
    for _ in 0..TRIES {
        begin = stack.now();
        let sent = socket.send_to(server, &request);
        sent.map_err(|error| error.to_string())?;
        first = stack
            .timeout(PATIENCE, answer(stack, &socket, server))
            .await;
        if let Some(first) = &first {
            first.as_ref().map_err(ToString::to_string)?;
            break;
        }
    }
    let Some(Ok((end, packet))) = first else {
        return Err(format!("no answer to {TRIES} requests"));
    };
    let mut told = TftpAnswer {
        asked_block_bytes: block,
        asked_window: WINDOW,
        answer_us: since(stack, begin),
        ..TftpAnswer::default()
    };
    match Packet::parse(&packet) {
        Ok(Packet::Oack(options)) => {
            let granted = TransferOptions::from_acknowledgement(options);
            let granted = granted.map_err(|error| error.to_string())?;
            told.block_bytes = granted.block_size;
            told.window = granted.window_size;
            told.file_bytes = granted.transfer_size;
            let begin = stack.now();
            if socket.send_to(end, &ack(0)).is_ok() {
                let block = stack.timeout(PATIENCE, block_of(&socket, end)).await;
                told.first_block_us = block.map(|()| since(stack, begin));
            }
        }
        Ok(Packet::Data { .. }) => {}
        Ok(Packet::Error { code, text }) => {
            return Err(match text::shown(text) {
                text if text.is_empty() => code.meaning().to_string(),
                text => text,
            });
        }
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
    Ok(told)
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

/// Waits for the first block.
async fn block_of(socket: &UdpSocket, end: SocketAddr) {
    loop {
        let (from, packet) = socket.receive().await;
        if from == end && matches!(Packet::parse(&packet), Ok(Packet::Data { .. })) {
            return;
        }
    }
}
