//! Bodies of the fuzz targets: what must hold for any bytes. Each panics when it does not.

use alloc::vec::Vec;

use crate::tftp;

/// A packet that parses, emits to bytes that parse to the same packet.
pub fn fuzz_tftp(data: &[u8]) {
    let Ok(packet) = tftp::Packet::parse(data) else {
        return;
    };
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    assert_eq!(tftp::Packet::parse(&bytes), Ok(packet));
    let (tftp::Packet::Rrq(tftp::Request { options, .. })
    | tftp::Packet::Wrq(tftp::Request { options, .. })
    | tftp::Packet::Oack(options)) = packet
    else {
        return;
    };
    let asked = tftp::TransferOptions::from_request(options);
    let mut pairs = Vec::new();
    asked.emit(&mut pairs);
    assert_eq!(
        tftp::TransferOptions::from_acknowledgement(tftp::Options::new(&pairs)),
        Ok(asked)
    );
}
