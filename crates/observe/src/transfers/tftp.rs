//! Transfers by TFTP (RFC 1350, 2347 to 2349, 7440).

use alloc::string::String;

use wireboot_report::network::{Outcome, Protocol, Transfer};
use wireboot_wire::text;
use wireboot_wire::tftp::{
    DATA_HEADER_LEN, DEFAULT_BLOCK_SIZE, Options, PORT, Packet, TransferOptions,
};

use super::{Endpoint, Followed, Transfers};
use crate::frame::Udp;

/// How far a transfer by TFTP is.
#[derive(Debug, Default)]
pub(super) struct TftpTransferState {
    /// The highest block in order, counted on beyond 65535.
    highest: u32,
    /// A block shorter than the others has come: the last one.
    last_block: Option<u16>,
    /// The size was asked for.
    size_wanted: bool,
}

impl Transfers {
    pub(super) fn udp(
        &mut self,
        at_s: f64,
        from: Endpoint,
        to: Endpoint,
        udp: &Udp<'_>,
        fragment: bool,
    ) {
        // A long text or the end of a name may be cut off; all else stands in the first bytes.
        let Ok(packet) = Packet::parse(udp.payload) else {
            return;
        };
        match packet {
            Packet::Rrq(request) if to.1 == PORT => {
                let file = text::shown(request.filename.as_bytes());
                // One that comes again for want of an answer belongs to the transfer that has begun.
                let unanswered = |one: &&mut Followed| {
                    one.transfer.answer_s.is_none() && one.transfer.file == file
                };
                if let Some(known) = self.at(Protocol::Tftp, from, to.0).filter(unanswered) {
                    known.transfer.end_s = at_s;
                    return;
                }
                if let Some(begun) = self.begin(Protocol::Tftp, at_s, from, to.0) {
                    begun.transfer.file = file;
                    begun.transfer.asked = listed(request.options);
                    begun.transfer.block_bytes = DEFAULT_BLOCK_SIZE.into();
                    begun.transfer.window_blocks = 1;
                    let asked = TransferOptions::from_request(request.options);
                    begun.tftp.size_wanted = asked.transfer_size.is_some();
                }
            }
            Packet::Oack(options) => {
                let Some(followed) = self.at(Protocol::Tftp, to, from.0) else {
                    return;
                };
                followed.server_spoke(at_s);
                followed.transfer.granted = listed(options);
                if let Ok(granted) = TransferOptions::from_acknowledgement(options) {
                    grant(&mut followed.transfer, &granted);
                }
            }
            Packet::Data { block, .. } => {
                let Some(followed) = self.at(Protocol::Tftp, to, from.0) else {
                    return;
                };
                followed.server_spoke(at_s);
                let (transfer, state) = (&mut followed.transfer, &mut followed.tftp);
                transfer.data_packets += 1;
                transfer.fragmented += u64::from(fragment);
                let length = udp.length.saturating_sub(DATA_HEADER_LEN);
                // Ahead of the next block by less than half the number space: new, perhaps after a lost one.
                let ahead = block.wrapping_sub(state.highest.wrapping_add(1) as u16);
                if ahead < 0x8000 {
                    state.highest = state.highest.wrapping_add(1 + u32::from(ahead));
                    transfer.bytes += length as u64;
                    if length < transfer.block_bytes as usize {
                        state.last_block = Some(block);
                    }
                } else {
                    transfer.repeated += 1;
                }
            }
            Packet::Ack { block } => {
                let Some(followed) = self.at(Protocol::Tftp, from, to.0) else {
                    return;
                };
                followed.client_spoke(at_s);
                followed.transfer.client_packets += 1;
                followed.transfer.end_s = at_s;
                if followed.tftp.last_block == Some(block) {
                    followed.transfer.outcome = Outcome::Complete;
                }
            }
            Packet::Error { text, .. } => self.error(at_s, from, to, text),
            Packet::Rrq(_) | Packet::Wrq(_) => {}
        }
    }

    fn error(&mut self, at_s: f64, from: Endpoint, to: Endpoint, words: &[u8]) {
        if let Some(followed) = self.at(Protocol::Tftp, to, from.0) {
            followed.server_spoke(at_s);
            let transfer = &mut followed.transfer;
            if transfer.outcome == Outcome::Unfinished {
                transfer.end_s = at_s;
                transfer.outcome = Outcome::Refused;
                transfer.message = Some(text::shown(words));
            }
        } else if let Some(followed) = self.at(Protocol::Tftp, from, to.0) {
            followed.client_spoke(at_s);
            let transfer = &mut followed.transfer;
            if transfer.outcome == Outcome::Unfinished {
                transfer.end_s = at_s;
                // Blocks that are under way when the size is known are not a download.
                let only_size = followed.tftp.size_wanted && transfer.client_packets == 0;
                transfer.outcome = if only_size {
                    Outcome::SizeProbe
                } else {
                    Outcome::BrokenOff
                };
            }
        }
    }
}

fn grant(transfer: &mut Transfer, granted: &TransferOptions) {
    if let Some(size) = granted.block_size {
        transfer.block_bytes = size.into();
    }
    if let Some(size) = granted.window_size {
        transfer.window_blocks = size.into();
    }
}

/// Names and values, `blksize=1468 windowsize=4`.
fn listed(options: Options<'_>) -> String {
    let mut out = String::new();
    for (name, value) in options {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&text::shown(name.as_bytes()));
        out.push('=');
        out.push_str(&text::shown(value.as_bytes()));
    }
    out
}
